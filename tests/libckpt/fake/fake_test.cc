// open(run(layout(normalize(x)))) == normalize(x): through the fake format, safetensors and Hugging Face folders.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/libckpt/fake/fake_format.h"
#include "tests/libckpt/io/folder.h"

namespace {

using namespace fake;

// A plan that copies everything of an index to one output.
void copy_all(ckpt_plan *plan, uint32_t sink, const ckpt_index *index) {
  ASSERT_EQ(ckpt_plan_carry(plan, sink, index, nullptr), CKPT_OK);
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    ckpt_expr *expr = nullptr;
    ckpt_error err = {};
    ASSERT_EQ(ckpt_expr_read(&expr, plan, index, &index->tensors[i], nullptr), CKPT_OK);
    ASSERT_EQ(ckpt_plan_add_like(plan, sink, index->tensors[i].name, expr, &index->tensors[i], nullptr, &err), CKPT_OK)
        << text_of(err);
    const char *const *alias = index->tensors[i].aliases;
    for (; alias != nullptr && *alias != nullptr; alias++)
      ASSERT_EQ(ckpt_index_alias(plan->outputs[sink].described, i, *alias, &err), CKPT_OK) << text_of(err);
  }
}

struct Plan {
  ckpt_plan *plan = nullptr;
  Plan() { EXPECT_EQ(ckpt_plan_new(&plan, nullptr), CKPT_OK); }
  ~Plan() { ckpt_plan_free(plan); }
};

ckpt_object *text(ckpt_arena *arena, const char *s) { return ckpt_object_text(arena, s, strlen(s)); }

// A training state under the canonical names, with what is hard about objects: ties between nodes apart.
void add_objects(ckpt_index *index) {
  ckpt_arena *arena = &index->arena;
  ckpt_object *group = ckpt_object_new(arena, CKPT_OBJECT_DICT, 3, nullptr);
  group->items[0] = text(arena, "lr"), group->items[1] = ckpt_object_float(arena, 0.1);
  ckpt_object *betas = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, 2, nullptr);
  betas->items[0] = ckpt_object_float(arena, 0.9), betas->items[1] = ckpt_object_float(arena, 0.999);
  group->items[2] = text(arena, "betas"), group->items[3] = betas;
  group->items[4] = text(arena, "amsgrad"), group->items[5] = ckpt_object_bool(arena, false);
  ckpt_object *groups = ckpt_object_new(arena, CKPT_OBJECT_LIST, 1, nullptr);
  groups->items[0] = group;
  ckpt_object *rng = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, nullptr);
  rng->items[0] = ckpt_object_int(arena, 0);
  rng->items[1] = ckpt_object_bytes(arena, "\0\1\xFF", 3);
  ckpt_object *root = ckpt_object_new(arena, CKPT_OBJECT_DICT, 4, nullptr);
  root->items[0] = text(arena, CKPT_STATE_PARAM_GROUPS), root->items[1] = groups;
  root->items[2] = text(arena, CKPT_STATE_RNG), root->items[3] = rng;
  root->items[4] = text(arena, CKPT_STATE_TRAINER), root->items[5] = ckpt_object_int(arena, -7);
  root->items[6] = text(arena, "first"), root->items[7] = ckpt_object_tensor(arena, 0);
  index->objects = root;
}

IndexPointer random_index(Random *random, bool any_dtype, ckpt_error *err) {
  Store store(random);
  const char *names[] = {"w", "b", "drop.x", "narrow.y", CKPT_STATE_PREFIX "w.exp_avg", "z", "q", "last"};
  for (const char *name : names) {
    ckpt_dtype dtype = any_dtype ? random_dtype(random) : CKPT_F32;
    if (strncmp(name, "narrow", 6) == 0) dtype = CKPT_F64;
    Array array = random_array(random, dtype, random_shape(random, dtype, 5, 3000));
    if (dtype == CKPT_F64) array = cast(random_array(random, CKPT_F32, array.shape), CKPT_F64);
    Stored &stored = store.add(name, array);
    if (strncmp(name, "optimizer", 9) == 0) stored.role = CKPT_ROLE_EXP_AVG;
    if (strcmp(name, "w") == 0 && any_dtype) stored.aliases = {"tied.one", "tied.two"};
  }
  IndexPointer index = store.build(err);
  EXPECT_TRUE(index) << text_of(*err);
  EXPECT_EQ(ckpt_index_set_metadata(index.get(), "k \"1\"", "v\n\xC3\xA9", err), CKPT_OK);
  EXPECT_EQ(ckpt_index_set_metadata(index.get(), "format", "pt", err), CKPT_OK);
  return index;
}

TEST(Fake, RoundTripKeepsEverything) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(40); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    ckpt_error err = {};
    IndexPointer index = random_index(&random, true, &err);
    ASSERT_TRUE(index);
    add_objects(index.get());
    ASSERT_EQ(ckpt_index_add_side_file(index.get(), "config.json", 1, ckpt_source_size(index->source, 1), &err),
              CKPT_OK);
    Plan p;
    MemorySink sink;
    uint32_t output = add_output(p.plan, &sink, &format, static_cast<uint32_t>(random.between(1, 5)),
                                 static_cast<int>(random.below(2)) * 3);
    copy_all(p.plan, output, index.get());
    ASSERT_EQ(ckpt_plan_run(p.plan, nullptr, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(p.plan->outputs[0].losses.n, 1u);
    EXPECT_STREQ(p.plan->outputs[0].losses.texts[0], "drop.x");
    EXPECT_EQ(check_checksums(sink.files), "");
    IndexPointer again = open_fake(sink.files, &err);
    ASSERT_TRUE(again) << text_of(err);

    // normalize(x), by hand: one tensor dropped, one narrowed
    EXPECT_EQ(ckpt_index_find(again.get(), "drop.x"), nullptr);
    const ckpt_tensor *narrow = ckpt_index_find(again.get(), "narrow.y");
    ASSERT_NE(narrow, nullptr);
    EXPECT_EQ(narrow->dtype, CKPT_F32);
    const ckpt_tensor *wide = ckpt_index_find(index.get(), "narrow.y");
    Array wanted =
        cast(Array{CKPT_F64, Shape(wide->shape, wide->shape + wide->rank), read_all(index.get(), wide)}, CKPT_F32);
    EXPECT_EQ(read_all(again.get(), narrow), wanted.bytes);
    EXPECT_EQ(ckpt_index_find(again.get(), "tied.two"), ckpt_index_find(again.get(), "w"));
    EXPECT_EQ(ckpt_index_find(again.get(), CKPT_STATE_PREFIX "w.exp_avg")->role, CKPT_ROLE_EXP_AVG);

    // and what is normal already comes back as it is, whatever the number of files
    Plan q;
    MemorySink other;
    copy_all(q.plan, add_output(q.plan, &other, &format, static_cast<uint32_t>(random.between(1, 5)), 1), again.get());
    ASSERT_EQ(ckpt_plan_run(q.plan, nullptr, &err), CKPT_OK) << text_of(err);
    IndexPointer third = open_fake(other.files, &err);
    ASSERT_TRUE(third) << text_of(err);
    EXPECT_EQ(difference(again.get(), third.get()), "");
    EXPECT_EQ(memcmp(&p.plan->outputs[0].digest, &q.plan->outputs[0].digest, sizeof(ckpt_digest)), 0);
    ckpt_digest digest;
    ASSERT_EQ(ckpt_hash(third.get(), nullptr, &digest, &err), CKPT_OK) << text_of(err);
    if (HasFailure()) return;
  }
}

// A tensor made of several: its parts come through, and that they were one is said, for no format holds it.
TEST(Fake, CompositesAreCarriedToWhereTheyAreSaid) {
  Random random(first_seed());
  ckpt_error err = {};
  Store store(&random);
  store.add("w.indices", random_array(&random, CKPT_I64, {2, 5}));
  store.add("w.values", random_array(&random, CKPT_F32, {5}));
  IndexPointer index = store.build(&err);
  ASSERT_TRUE(index) << text_of(err);
  const uint64_t shape[] = {7, 9};
  const char *parts[] = {"w.indices", "w.values", nullptr};
  ckpt_composite composite = {"w", CKPT_COMPOSITE_SPARSE_COO, CKPT_F32, 2, shape, parts};
  ASSERT_EQ(ckpt_index_add_composite(index.get(), &composite, &err), CKPT_OK) << text_of(err);
  Plan p;
  MemorySink sink;
  copy_all(p.plan, add_output(p.plan, &sink, &format, 2, 0), index.get());
  const ckpt_index *described = p.plan->outputs[0].described;
  ASSERT_EQ(described->n_composites, 1u);
  const ckpt_composite &carried = described->composites[0];
  EXPECT_STREQ(carried.name, "w");
  EXPECT_EQ(carried.kind, CKPT_COMPOSITE_SPARSE_COO);
  EXPECT_EQ(carried.dtype, CKPT_F32);
  EXPECT_EQ(Shape(carried.shape, carried.shape + carried.rank), (Shape{7, 9}));
  EXPECT_STREQ(carried.components[1], "w.values");
  EXPECT_EQ(carried.components[2], nullptr);
  EXPECT_NE(carried.components[1], parts[1]) << "copied";
  ASSERT_EQ(ckpt_plan_run(p.plan, nullptr, &err), CKPT_OK) << text_of(err);
  ASSERT_EQ(p.plan->outputs[0].losses.n, 1u);
  EXPECT_STREQ(p.plan->outputs[0].losses.texts[0], "w as one tensor (its parts are written)");
  IndexPointer again = open_fake(sink.files, &err);
  ASSERT_TRUE(again) << text_of(err);
  EXPECT_EQ(again->n_composites, 0u);
  for (const char *part : {"w.indices", "w.values"})
    EXPECT_EQ(read_all(again.get(), ckpt_index_find(again.get(), part)),
              read_all(index.get(), ckpt_index_find(index.get(), part)));
}

TEST(Fake, ACompositeHasItsPartsAndFewAxes) {
  ckpt_error err = {};
  ckpt_index *index = nullptr;
  ASSERT_EQ(ckpt_index_new(&index, nullptr, "m", "fake", nullptr, &err), CKPT_OK);
  IndexPointer owner(index, ckpt_index_free);
  const uint64_t shape[CKPT_MAX_RANK + 1] = {};
  const char *parts[] = {"w.gone", nullptr};
  ckpt_composite composite = {"w", CKPT_COMPOSITE_QUANTIZED, CKPT_F32, CKPT_MAX_RANK + 1, shape, parts};
  EXPECT_EQ(ckpt_index_add_composite(index, &composite, &err), CKPT_ELIMIT);
  composite.rank = CKPT_MAX_RANK;
  err = {};
  ASSERT_EQ(ckpt_index_add_composite(index, &composite, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(ckpt_index_finish(index, &err), CKPT_EFORMAT);
  EXPECT_STREQ(err.tensor, "w");
  EXPECT_STREQ(err.message, "its part w.gone is missing");
}

// Splices, side files and roles apart, what safetensors holds comes back from it and from a folder of shards.
TEST(Fake, RoundTripThroughRealFormats) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(15); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    ckpt_error err = {};
    IndexPointer index = random_index(&random, false, &err);
    ASSERT_TRUE(index);
    for (uint32_t i = 0; i < index->n_tensors; i++) index->tensors[i].role = CKPT_ROLE_PARAMETER;
    Folder folder;
    for (const char *name : {"safetensors", "hf"}) {
      SCOPED_TRACE(name);
      std::string path = folder / (strcmp(name, "hf") == 0 ? "model" : "model.safetensors");
      Plan p;
      uint32_t output = 0;
      ASSERT_EQ(ckpt_plan_output(p.plan, path.c_str(), name, false, &output, &err), CKPT_OK) << text_of(err);
      p.plan->outputs[output].options.shard_size = random.between(100, 20000);
      copy_all(p.plan, output, index.get());
      ASSERT_EQ(ckpt_plan_run(p.plan, nullptr, &err), CKPT_OK) << text_of(err);
      ckpt_open_options options = {};
      options.struct_size = sizeof options;
      options.stored_names = true;
      ckpt_index *opened = nullptr;
      ASSERT_EQ(ckpt_open(&opened, path.c_str(), &options, &err), CKPT_OK) << text_of(err);
      IndexPointer owner(opened, ckpt_index_free);
      for (uint32_t i = 0; i < opened->n_tensors; i++) opened->tensors[i].role = CKPT_ROLE_PARAMETER;
      EXPECT_EQ(difference(index.get(), opened), "");
    }
    if (HasFailure()) return;
  }
}

}  // namespace
