// GGUF: files of llama.cpp's converter, gguf-py and llama-gguf-split are read as they say, written again byte for byte,
// and cut and joined as llama-gguf-split does it; what GGUF cannot hold is refused by name.
#include <locale.h>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "formats/gguf/gguf.h"
#include "libckpt/base/text.h"
#include "libckpt/plan/plan.h"
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/gguf/";

IndexPointer must_open(const std::string &path) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err);
  EXPECT_NE(index, nullptr) << text_of(err);
  return index;
}

// What a conversion says: "" where it is done.
std::string convert(const std::string &input, const std::string &output, const char *to = nullptr,
                    std::vector<const char *> set = {}, std::vector<const char *> remove = {},
                    uint64_t shard_size = 0) {
  ckpt_convert_options options = {};
  ckpt_error err = {};
  set.push_back(nullptr);
  remove.push_back(nullptr);
  options.struct_size = sizeof options;
  options.input = input.c_str();
  options.output = output.c_str();
  options.to = to;
  options.shard_size = shard_size;
  const ckpt_format_value edits[] = {{"set", 0, nullptr, set.size() > 1 ? set.data() : nullptr},
                                     {"remove", 0, nullptr, remove.size() > 1 ? remove.data() : nullptr}};
  options.values = edits;
  options.n_values = 2;
  options.force = true;
  options.stored_names = true;  // what a family's rules make of a model: dialect_test.cc
  char text[2048];
  return ckpt_convert(&options, &err) == CKPT_OK ? "" : ckpt_error_message(&err, nullptr, text, sizeof text);
}

std::string metadata(const ckpt_index *index, const char *key) {
  const char *value = ckpt_index_metadata(index, key);
  return value == nullptr ? "(none)" : value;
}

const ckpt_typed_value *typed(const ckpt_index *index, const char *key) {
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  return meta == nullptr ? nullptr : meta->typed;
}

// ---- verify ------------------------------------------------------------------------------------------------------

struct Seen {
  std::vector<uint64_t> read;
  uint64_t total = 0;
  volatile int cancel = 0;
  uint64_t cancel_at = UINT64_MAX;
};

// What verify finds in a file of these bytes, or fails with; how it went is *seen.
std::string verified(const Folder &folder, const std::string &bytes, Seen *seen) {
  spill(folder / "a.gguf", bytes);
  IndexPointer index = must_open(folder / "a.gguf");
  ckpt_findings findings = {};
  ckpt_run_options run = {};
  ckpt_error err = {};
  run.struct_size = sizeof run;
  run.cancel = &seen->cancel;
  run.progress_arg = seen;
  run.progress = [](void *arg, uint64_t n_read, uint64_t n_total) {
    Seen *s = static_cast<Seen *>(arg);
    s->read.push_back(n_read);
    s->total = n_total;
    if (n_read >= s->cancel_at) s->cancel = 1;
  };
  ckpt_status status = ckpt_verify_format(&findings, index.get(), &run, &err);
  std::string text = status == CKPT_OK ? "" : status == CKPT_ECANCELED ? "cancelled" : err.message;
  for (size_t i = 0; i < findings.n; i++)
    if (findings.items[i].kind == CKPT_PROBLEM) text += findings.items[i].message;
  ckpt_findings_free(&findings);
  return text;
}

// What lies behind the last tensor is read by large windows, each of which is progress, and can be cancelled.
TEST(Gguf, PaddingIsZero) {
  Folder folder;
  std::string whole = slurp(kData + "whole.gguf");
  whole.replace(whole.find("general.architecture"), 20, "general.architecturx");  // it is no whole model
  const std::string large = whole + std::string(5 << 20, '\0');
  Seen seen;
  EXPECT_EQ(verified(folder, large, &seen), "");
  EXPECT_GE(seen.total, 5U << 20);
  ASSERT_FALSE(seen.read.empty());
  EXPECT_EQ(seen.read.back(), seen.total);
  EXPECT_LE(seen.read.size(), 7U + 6U);  // tensors, windows
  std::string broken = large;
  broken[whole.size() + (3 << 20)] = 1;
  broken[whole.size() + (4 << 20)] = 1;
  seen = {};
  EXPECT_EQ(verified(folder, broken, &seen), "the padding behind it is not zero: 2 bytes, the first at byte " +
                                                 std::to_string(whole.size() + (3 << 20)) +
                                                 " of the file (no reader looks there)");
  seen = {};
  seen.cancel_at = 2 << 20;
  EXPECT_EQ(verified(folder, broken, &seen), "cancelled");
  EXPECT_LT(seen.read.back(), 4U << 20);
}

// A file whose u32 with this key is another.
std::string with_u32(std::string bytes, const std::string &key, uint32_t value) {
  const size_t at = bytes.find(key);
  EXPECT_NE(at, std::string::npos) << key;
  memcpy(&bytes[at + key.size() + 4], &value, sizeof value);
  return bytes;
}

// llama.cpp counts on what the metadata says of the tensors, and refuses others.
TEST(Gguf, MetadataIsThatOfTheTensors) {
  Folder folder;
  Seen seen;
  const std::string whole = slurp(kData + "tiny-llama-f16.gguf");
  EXPECT_EQ(verified(folder, whole, &seen), "");
  EXPECT_EQ(verified(folder, with_u32(whole, "llama.block_count", 5), &seen),
            "llama.block_count is 5, and 1 block has tensors (none of block 1): llama.cpp refuses the model");
  EXPECT_EQ(verified(folder, with_u32(whole, "llama.block_count", 0), &seen),
            "llama.block_count is 0, and there are tensors of later blocks: llama.cpp refuses the model");
  EXPECT_NE(verified(folder, with_u32(whole, "llama.embedding_length", 17), &seen)
                .find("columns, llama.embedding_length is 17"),
            std::string::npos);
  EXPECT_NE(verified(folder, slurp(kData + "whole.gguf"), &seen)
                .find("it has 3 rows, tokenizer.ggml.tokens has 30 tokens: llama.cpp refuses the model"),
            std::string::npos);
}

// A file where one text of it is another of the same length.
std::string with(std::string bytes, const std::string &before, const std::string &after) {
  const size_t at = bytes.find(before);
  EXPECT_NE(at, std::string::npos) << before;
  EXPECT_EQ(before.size(), after.size());
  return bytes.replace(at, before.size(), after);
}

// Each of these llama.cpp refuses to load; tests/interop/test_gguf.py asks it.
TEST(Gguf, WhatLlamaCppRefusesIsAProblem) {
  Folder folder;
  Seen seen;
  const std::string whole = slurp(kData + "tiny-llama-f16.gguf");
  const auto says = [&](const std::string &bytes, const std::string &wanted) {
    const std::string said = verified(folder, bytes, &seen);
    EXPECT_NE(said.find(wanted), std::string::npos) << wanted << ": " << said;
  };
  says(with_u32(whole, "llama.feed_forward_length", 257), "its shape is [256, 256], the metadata says [256, 257]");
  says(with_u32(whole, "llama.feed_forward_length", 0), "llama.feed_forward_length is 0");
  says(with_u32(whole, "llama.attention.head_count", 8), "the metadata says [512, 256]");
  says(with_u32(whole, "llama.attention.head_count_kv", 2), "the metadata says [128, 256]");
  says(with_u32(whole, "llama.attention.key_length", 65), "llama.rope.dimension_count is 64, and a head has 65");
  says(with_u32(whole, "llama.attention.value_length", 65), "llama.attention.value_length is 65, and a head has 64");
  says(with_u32(whole, "llama.rope.dimension_count", 32), "llama.rope.dimension_count is 32, and a head has 64");
  says(with_u32(whole, "llama.attention.layer_norm_rms_epsilon", 0x7fc00000), "is NaN: no model computes with it");
  for (const char *key : {"context_length", "embedding_length", "feed_forward_length", "attention.head_count\4",
                          "attention.layer_norm_rms_epsilon"}) {
    std::string other = key;
    other[1] = 'x';
    says(with(whole, std::string("llama.") + key, "llama." + other), "a llama has 1 key that is not there");
  }
  for (const char *name : {"token_embd.weight", "output_norm.weight", "blk.0.attn_k.weight", "blk.0.ffn_up.weight"}) {
    std::string other = name;
    other[1] = 'x';
    says(with(whole, name, other), "is none of a llama of 1 layers: llama.cpp refuses the model");
  }
  says(with(whole, "tokenizer.ggml.model", "tokenizer.ggml.mxdel"), "there is no tokenizer.ggml.model");
  says(with(whole, "tokenizer.ggml.tokens", "tokenizer.ggml.txkens"), "there is no tokenizer.ggml.tokens");
  EXPECT_EQ(verified(folder, with_u32(whole, "llama.vocab_size", 321), &seen), "");  // it goes by the tokens
  EXPECT_EQ(verified(folder, with_u32(whole, "llama.context_length", 0), &seen), "");
}

// A file of one tensor in MXFP4, of n blocks.
std::string mxfp4(uint64_t n) {
  const auto little = [](uint64_t value, size_t n_bytes) {
    return std::string(reinterpret_cast<const char *>(&value), n_bytes);
  };
  std::string bytes = "GGUF" + little(3, 4) + little(1, 8) + little(0, 8) + little(1, 8) + "w" + little(1, 4) +
                      little(32 * n, 8) + little(39, 4) + little(0, 8);
  bytes.resize((bytes.size() + 31) / 32 * 32);
  for (uint64_t i = 0; i < n; i++) bytes += std::string(17, 'x');
  bytes.resize((bytes.size() + 31) / 32 * 32);
  return bytes;
}

// What no reader looks at before the payload; and exponents that are NaN, which ggml takes for numbers.
TEST(Gguf, PaddingOfTheHeaderAndExponentsAreLookedAt) {
  Folder folder;
  Seen seen;
  std::string bytes = mxfp4(70000);
  EXPECT_EQ(verified(folder, bytes, &seen), "");
  const size_t payload = 64, block = 17;
  bytes[payload + block * 69999] = bytes[payload + block * 3] = '\xff';
  EXPECT_EQ(verified(folder, bytes, &seen),
            "2 of its blocks have the exponent 255, which is NaN (the first is block 3; ggml reads numbers of 2^127 "
            "there)");
  bytes = mxfp4(1);
  bytes[payload - 1] = 1;
  spill(folder / "a.gguf", bytes);
  EXPECT_EQ(notes_of(must_open(folder / "a.gguf").get()),
            std::vector<std::string>({"! a.gguf: the padding between header and payload is not zero: 1 byte (no reader "
                                      "looks there)"}));
}

// ---- reading ------------------------------------------------------------------------------------------------------

TEST(Gguf, EveryTypeOfMetadataIsRead) {
  IndexPointer index = must_open(kData + "every-type.gguf");
  const ckpt_index *i = index.get();
  EXPECT_EQ(metadata(i, "general.architecture"), "llama");
  EXPECT_EQ(metadata(i, "general.alignment"), "64");
  EXPECT_EQ(metadata(i, "value.u8"), "200");
  EXPECT_EQ(metadata(i, "value.i8"), "-3");
  EXPECT_EQ(metadata(i, "value.u16"), "60000");
  EXPECT_EQ(metadata(i, "value.i16"), "-300");
  EXPECT_EQ(metadata(i, "value.u32"), "4000000000");
  EXPECT_EQ(metadata(i, "value.i32"), "-5");
  EXPECT_EQ(metadata(i, "value.f32"), "0.00001");
  EXPECT_EQ(metadata(i, "value.bool"), "true");
  EXPECT_EQ(metadata(i, "value.text"), "h\u00e9llo\n\"quoted\"");
  EXPECT_EQ(metadata(i, "value.empty"), "");
  EXPECT_EQ(metadata(i, "value.long"), "<70000 bytes>");
  EXPECT_EQ(metadata(i, "value.u64"), "9223372036854775808");
  EXPECT_EQ(metadata(i, "value.i64"), "-4611686018427387904");
  EXPECT_EQ(metadata(i, "value.f64"), "3.14159");
  EXPECT_EQ(metadata(i, "array.u8"), "[1, 2, 255] (3 u8)");
  EXPECT_EQ(metadata(i, "array.i32"), "[-50, -49, -48, -47, -46, -45, -44, -43, ...] (100 i32)");
  EXPECT_EQ(metadata(i, "array.f32"), "[0.1, 1e+30, Infinity] (3 f32)");
  EXPECT_EQ(metadata(i, "array.bool"), "[true, false] (2 bool)");
  EXPECT_EQ(metadata(i, "array.u64"), "[18446744073709551615] (1 u64)");
  EXPECT_EQ(metadata(i, "array.i64"), "[-9223372036854775808] (1 i64)");
  EXPECT_EQ(metadata(i, "array.text").rfind("[\"\", \"a\", \"\u2581the long text of a to...\", ", 0), 0U)
      << metadata(i, "array.text");
  EXPECT_EQ(typed(i, "value.text"), nullptr);
  ASSERT_NE(typed(i, "value.i16"), nullptr);
  EXPECT_EQ(typed(i, "value.i16")->type, static_cast<uint32_t>(CKPT_GGUF_I16));
}

// The names of a file are its own: no table of ours has named them.
TEST(Gguf, TheArchitectureIsWhatTheFileStates) {
  const auto architecture = [](const ckpt_index *index) {
    ckpt_info info = {};
    info.struct_size = sizeof info;
    ckpt_index_info(index, &info);
    EXPECT_STREQ(info.names, "stored");
    return std::string(info.architecture);
  };
  EXPECT_EQ(architecture(must_open(kData + "every-type.gguf").get()), "llama");
  EXPECT_EQ(architecture(must_open(kData + "split").get()), "llama");
  std::string bytes = "GGUF" + std::string("\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\24\0\0\0\0\0\0\0", 28) +
                      "general.architecture" + std::string("\4\0\0\0\7\0\0\0", 8);  // a number
  EXPECT_EQ(architecture(open_bytes(bytes, nullptr).get()), "");
}

// Long values cost the memory of a line, however long they are.
TEST(Gguf, LongValuesStayInTheFile) {
  IndexPointer index = must_open(kData + "every-type.gguf");
  const ckpt_typed_value *text = typed(index.get(), "value.long");
  ASSERT_NE(text, nullptr);
  EXPECT_EQ(text->bytes, nullptr);
  EXPECT_EQ(text->n_bytes, 8U + 70000U);
  uint8_t bytes[3];
  ASSERT_EQ(ckpt_source_read(text->source, text->file, text->offset + 8 + 69997, bytes, 3, nullptr), CKPT_OK);
  EXPECT_EQ(memcmp(bytes, "789", 3), 0);
  EXPECT_LT(index->arena.n_taken, 64000U);
}

TEST(Gguf, ShapesAreRowMajorAndTensorsAligned) {
  IndexPointer index = must_open(kData + "every-type.gguf");
  const ckpt_tensor *tensor = ckpt_index_find(index.get(), "tensor.four_axes");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(tensor->rank, 4);
  EXPECT_EQ(std::vector<uint64_t>(tensor->shape, tensor->shape + 4), (std::vector<uint64_t>{2, 3, 4, 5}));
  for (uint32_t i = 0; i < index->n_tensors; i++) EXPECT_EQ(index->tensors[i].extents->offset % 64, 0U);
  tensor = ckpt_index_find(index.get(), "blk.0.q4_0.weight");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, CKPT_Q4_0);
  EXPECT_EQ(tensor->n_bytes, 4U * 64 / 32 * 18);
  float one;
  tensor = ckpt_index_find(index.get(), "tensor.one");
  ASSERT_EQ(ckpt_read(index.get(), tensor, nullptr, CKPT_F32, &one, sizeof one, nullptr), CKPT_OK);
  EXPECT_EQ(one, 1.0F);
}

TEST(Gguf, AScalarHasNoAxes) {
  std::string bytes("GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24);
  bytes += std::string("\1\0\0\0\0\0\0\0s", 9) + std::string(4, '\0') + std::string(4, '\0') + std::string(8, '\0');
  bytes.resize(64);
  bytes += std::string("\0\0\x80\x3f", 4);
  bytes.resize(96);
  ckpt_error err = {};
  IndexPointer index = open_bytes(bytes, &err);
  ASSERT_NE(index, nullptr) << text_of(err);
  EXPECT_EQ(index->tensors[0].rank, 0);
  EXPECT_EQ(index->tensors[0].n_elements, 1U);
  EXPECT_EQ(write("gguf", index.get(), {}, &err)[""], bytes) << text_of(err);
}

TEST(Gguf, Version2IsReadAndWrittenAsVersion3) {
  Folder folder;
  ASSERT_EQ(convert(kData + "version-2.gguf", folder / "a.gguf"), "");
  EXPECT_EQ(slurp(folder / "a.gguf"), slurp(kData + "whole.gguf"));
}

// Every cut of a small file is refused or said, and never crashes.
TEST(Gguf, NoTruncationIsAccepted) {
  const std::string whole = slurp(kData + "whole.gguf");
  for (size_t n = 0; n < whole.size(); n++) {
    ckpt_error err = {};
    IndexPointer index = open_bytes(whole.substr(0, n), &err);
    bool has_problem = false;
    for (uint32_t i = 0; index != nullptr && i < index->n_notes; i++) has_problem |= index->notes[i].is_problem;
    EXPECT_TRUE(index == nullptr || has_problem) << n;
    EXPECT_NE(err.status, CKPT_EINTERNAL) << text_of(err);
  }
}

// ---- writing ------------------------------------------------------------------------------------------------------

TEST(Gguf, IsWrittenByteForByte) {
  for (const char *name : {"every-type.gguf", "tiny-llama-f16.gguf", "whole.gguf"}) {
    Folder folder;
    IndexPointer index = must_open(kData + name);
    ckpt_error err = {};
    Files files = write("gguf", index.get(), {}, &err);
    EXPECT_TRUE(files[""] == slurp(kData + name)) << name << ": " << text_of(err);
    ASSERT_EQ(convert(kData + name, folder / "out.gguf"), "");
    EXPECT_TRUE(slurp(folder / "out.gguf") == slurp(kData + name)) << name;
  }
}

TEST(Gguf, ShardsAreThoseOfLlamaGgufSplit) {
  Folder folder;
  IndexPointer split = must_open(kData + "split");
  EXPECT_EQ(split->n_tensors, 7U);
  EXPECT_EQ(metadata(split.get(), "split.count"), "(none)");
  ASSERT_EQ(convert(kData + "split", folder / "joined.gguf"), "");
  EXPECT_EQ(slurp(folder / "joined.gguf"), slurp(kData + "whole.gguf"));
  ASSERT_EQ(convert(kData + "split/model-00001-of-00003.gguf", folder / "first.gguf"), "");
  EXPECT_EQ(slurp(folder / "first.gguf"), slurp(kData + "whole.gguf"));
  // Each tensor has 64 bytes with its padding.
  ASSERT_EQ(convert(kData + "whole.gguf", folder / "shards/", "gguf", {}, {}, 192), "");
  for (const char *name : {"model-00001-of-00003.gguf", "model-00002-of-00003.gguf", "model-00003-of-00003.gguf"})
    EXPECT_EQ(slurp(folder / "shards/" + name), slurp(kData + "split/" + name)) << name;
}

// Three keys say which part a file is; others of the kind are the model's, as of llama-gguf-split.
TEST(Gguf, ShardsKeepForeignKeysOfSplits) {
  Folder folder;
  ASSERT_EQ(convert(kData + "whole.gguf", folder / "in.gguf", nullptr, {"split.custom=7", "splitting=1"}), "");
  ASSERT_EQ(convert(folder / "in.gguf", folder / "shards/", "gguf", {}, {}, 192), "");
  IndexPointer index = must_open(folder / "shards");
  EXPECT_EQ(metadata(index.get(), "split.custom"), "7");
  EXPECT_EQ(metadata(index.get(), "split.no"), "(none)");
  ASSERT_EQ(convert(folder / "shards", folder / "joined.gguf"), "");
  EXPECT_TRUE(slurp(folder / "joined.gguf") == slurp(folder / "in.gguf"));
}

TEST(Gguf, AShardHoldsATensorThatIsLargerThanIt) {
  Folder folder;
  ASSERT_EQ(convert(kData + "whole.gguf", folder / "shards/", "gguf", {}, {}, 1), "");
  IndexPointer index = must_open(folder / "shards");
  EXPECT_EQ(ckpt_source_count(index->source), 7U);
  ASSERT_EQ(convert(folder / "shards", folder / "joined.gguf"), "");
  EXPECT_EQ(slurp(folder / "joined.gguf"), slurp(kData + "whole.gguf"));
}

// A caller of ckpt_open who asks is told of each broken part, and gets the others.
TEST(Gguf, EveryBrokenPartIsReported) {
  Folder folder;
  const auto part = [](int i) { return "model-0000" + std::to_string(i) + "-of-00003.gguf"; };
  for (int i = 1; i <= 3; i++) {
    const std::string bytes = slurp(kData + "split/" + part(i));
    spill(folder / part(i), i == 1 ? bytes : bytes.substr(0, static_cast<size_t>(40 * i)));
  }
  ckpt_error first = {};
  EXPECT_EQ(open(folder.path(), &first), nullptr);
  EXPECT_NE(std::string(first.file).find(part(2)), std::string::npos) << text_of(first);
  IndexPointer index(nullptr, ckpt_index_free);
  const std::vector<std::string> reported = broken_parts(folder.path(), &index);
  ASSERT_EQ(reported.size(), 2u);
  EXPECT_EQ(reported[0], text_of(first));
  EXPECT_NE(reported[1].find(part(3)), std::string::npos) << reported[1];
  ASSERT_NE(index, nullptr);
  EXPECT_GT(index->n_tensors, 0u);
}

// ggml's own writer pads to 32 whatever the key says, and then refuses its file.
TEST(Gguf, ShardsKeepTheAlignment) {
  Folder folder;
  ASSERT_EQ(convert(kData + "every-type.gguf", folder / "shards/", "gguf", {}, {}, 500), "");
  IndexPointer index = must_open(folder / "shards");
  EXPECT_EQ(notes_of(index.get()), std::vector<std::string>{});
  EXPECT_GT(ckpt_source_count(index->source), 3U);
  for (uint32_t i = 0; i < index->n_tensors; i++) EXPECT_EQ(index->tensors[i].extents->offset % 64, 0U);
  ASSERT_EQ(convert(folder / "shards", folder / "joined.gguf"), "");
  EXPECT_TRUE(slurp(folder / "joined.gguf") == slurp(kData + "every-type.gguf"));
}

TEST(Gguf, WithoutGgufInputTensorsAreInTheOrderOfLlamaQuantize) {
  Folder folder;
  ASSERT_EQ(convert(kData + "tiny-llama-f16.gguf", folder / "model.safetensors"), "");
  ASSERT_EQ(convert(folder / "model.safetensors", folder / "back.gguf"), "");
  IndexPointer index = must_open(folder / "back.gguf");
  ASSERT_EQ(index->n_tensors, 12U);
  EXPECT_STREQ(index->tensors[0].name, "output.weight");
  EXPECT_STREQ(index->tensors[1].name, "output_norm.weight");
  EXPECT_STREQ(index->tensors[2].name, "token_embd.weight");
  EXPECT_STREQ(index->tensors[3].name, "blk.0.attn_k.weight");
}

TEST(Gguf, BlocksAreNumberedNotSpelled) {
  Folder folder;
  std::string header = "{";
  for (const char *name : {"blk.10.b", "blk.2.a", "blk.2.B", "blk.x.y", "output"})
    header += (header.size() > 1 ? ",\"" : "\"") + std::string(name) +
              "\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}";
  spill(folder / "in.safetensors", safetensors(header + "}", ""));
  ASSERT_EQ(convert(folder / "in.safetensors", folder / "out.gguf"), "");
  IndexPointer index = must_open(folder / "out.gguf");
  std::vector<std::string> names;
  for (uint32_t i = 0; i < index->n_tensors; i++) names.push_back(index->tensors[i].name);
  EXPECT_EQ(names, (std::vector<std::string>{"blk.x.y", "output", "blk.2.B", "blk.2.a", "blk.10.b"}));
}

// ---- what does not fit --------------------------------------------------------------------------------------------

TEST(Gguf, WhatGgufCannotHoldIsRefusedByName) {
  Folder folder;
  spill(folder / "u8.safetensors", safetensors("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x"));
  EXPECT_EQ(convert(folder / "u8.safetensors", folder / "a.gguf"),
            "gguf cannot hold u8 (convert dtype gives it another)");
  spill(folder / "axes.safetensors",
        safetensors("{\"a\":{\"dtype\":\"I8\",\"shape\":[1,1,1,1,1],\"data_offsets\":[0,1]}}", "x"));
  EXPECT_EQ(convert(folder / "axes.safetensors", folder / "a.gguf"), "5 axes, gguf holds at most 4");
  spill(folder / "name.safetensors",
        safetensors("{\"" + std::string(64, 'n') + "\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "x"));
  EXPECT_EQ(convert(folder / "name.safetensors", folder / "a.gguf"),
            "a name of 64 bytes, GGUF holds at most 63 (rename makes it shorter)");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.gguf"));
}

TEST(Gguf, SecondNamesAndSideFilesAreSaid) {
  ckpt_error err = {};
  IndexPointer index = open(std::string(CKPT_TESTS_DIR) + "/data/gpt2-tiny", &err, false);
  std::vector<std::string> losses;
  write("gguf", index.get(), {}, &err, &losses);
  ASSERT_EQ(losses.size(), 2U) << text_of(err);
  EXPECT_EQ(losses[0], "name lm_head.weight (tied to transformer.wte.weight)");
  EXPECT_EQ(losses[1].substr(0, 12), "4 side files") << losses[1];
}

TEST(Gguf, OtherFormatsSayWhatTheyDropOfIt) {
  IndexPointer index = must_open(kData + "tiny-llama-f16.gguf");
  for (const char *format : {"safetensors", "torch", "dcp", "hf"}) {
    ckpt_error err = {};
    std::vector<std::string> losses;
    write(format, index.get(), {}, &err, &losses);
    ASSERT_EQ(losses.size(), 1U) << format << text_of(err);
    EXPECT_EQ(losses[0], "19 metadata values that are no text (llama.block_count, ...)") << format;
  }
  IndexPointer blocks = must_open(kData + "every-type.gguf");
  for (const char *format : {"safetensors", "torch", "dcp", "hf"}) {
    ckpt_error err = {};
    write(format, blocks.get(), {}, &err);
    EXPECT_NE(text_of(err).find(format + std::string(" cannot hold Q4_0 (convert dtype gives it another)")),
              std::string::npos)
        << text_of(err);
  }
}

TEST(Gguf, TextOfOtherFormatsIsKept) {
  Folder folder;
  spill(folder / "in.safetensors", safetensors("{\"__metadata__\":{\"made\":\"by hand\",\"\":\"no key\"}}", ""));
  ASSERT_EQ(convert(folder / "in.safetensors", folder / "out.gguf"), "");
  IndexPointer index = must_open(folder / "out.gguf");
  EXPECT_EQ(index->n_metadata, 1U);
  EXPECT_EQ(metadata(index.get(), "made"), "by hand");
}

// ---- --set and --remove -------------------------------------------------------------------------------------------

TEST(Gguf, SetKeepsTypeAndPlace) {
  Folder folder;
  const std::string in = kData + "every-type.gguf", out = folder / "out.gguf";
  ASSERT_EQ(convert(in, out, nullptr,
                    {"value.u8=255", "value.i8=-128", "value.f32=2", "value.bool=false", "value.text=7",
                     "value.u64=18446744073709551615", "value.f64=1e300", "value.long=short"}),
            "");
  IndexPointer before = must_open(in), after = must_open(out);
  ASSERT_EQ(before->n_metadata, after->n_metadata);
  for (uint32_t i = 0; i < before->n_metadata; i++) {
    EXPECT_STREQ(before->metadata[i].key, after->metadata[i].key);
    const ckpt_typed_value *a = before->metadata[i].typed, *b = after->metadata[i].typed;
    const uint32_t text = CKPT_GGUF_STRING;
    EXPECT_EQ(a == nullptr ? text : a->type, b == nullptr ? text : b->type) << before->metadata[i].key;
  }
  EXPECT_EQ(metadata(after.get(), "value.u8"), "255");
  EXPECT_EQ(metadata(after.get(), "value.i8"), "-128");
  EXPECT_EQ(metadata(after.get(), "value.f32"), "2.0");
  EXPECT_EQ(metadata(after.get(), "value.bool"), "false");
  EXPECT_EQ(metadata(after.get(), "value.text"), "7");
  EXPECT_EQ(metadata(after.get(), "value.u64"), "18446744073709551615");
  EXPECT_EQ(metadata(after.get(), "value.f64"), "1e+300");
  EXPECT_EQ(metadata(after.get(), "value.long"), "short");
}

TEST(Gguf, SetGivesNewKeysTheTypeOfTheirText) {
  Folder folder;
  const std::string out = folder / "out.gguf";
  ASSERT_EQ(convert(kData + "whole.gguf", out, nullptr,
                    {"a=true", "b=4294967295", "c=-1", "d=4294967296", "e=-2147483649", "f=1.5", "g=text", "h=\"7\"",
                     "i=", "j=a=b"}),
            "");
  IndexPointer index = must_open(out);
  const std::pair<const char *, int> types[] = {{"a", CKPT_GGUF_BOOL},
                                                {"b", CKPT_GGUF_U32},
                                                {"c", CKPT_GGUF_I32},
                                                {"d", CKPT_GGUF_U64},
                                                {"e", CKPT_GGUF_I64},
                                                {"f", CKPT_GGUF_F32},
                                                {"g", -1},
                                                {"h", -1},
                                                {"i", -1},
                                                {"j", -1}};
  for (const auto &[key, type] : types) {
    const ckpt_typed_value *value = typed(index.get(), key);
    EXPECT_EQ(value == nullptr ? -1 : static_cast<int>(value->type), type) << key;
  }
  EXPECT_EQ(metadata(index.get(), "h"), "7");
  EXPECT_EQ(metadata(index.get(), "i"), "");
  EXPECT_EQ(metadata(index.get(), "j"), "a=b");
}

// The calling thread under a locale that writes 1,5; none where the machine has none.
class Comma {
 public:
  Comma() {
    for (const char *name : {"de_DE.UTF-8", "de_DE.utf8", "de_DE", "fr_FR.UTF-8", "es_ES.UTF-8", "pt_BR.UTF-8"})
      if (locale_ == nullptr) locale_ = newlocale(LC_NUMERIC_MASK, name, nullptr);
    if (locale_ != nullptr) before_ = uselocale(locale_);
  }
  ~Comma() {
    if (locale_ == nullptr) return;
    uselocale(before_);
    freelocale(locale_);
  }
  bool is_there() const { return locale_ != nullptr; }

 private:
  locale_t locale_ = nullptr, before_ = nullptr;
};

TEST(Gguf, NumbersHaveAPointInEveryLocale) {
  Folder folder;
  const std::string out = folder / "out.gguf";
  Comma comma;
  if (!comma.is_there()) GTEST_SKIP() << "no locale with a decimal comma is installed (de_DE.UTF-8)";
  char text[32];
  snprintf(text, sizeof text, "%.1f", 1.5);
  ASSERT_STREQ(text, "1,5");
  EXPECT_STREQ(ckpt_text_size(1500, text), "1.5 KB");
  EXPECT_EQ(ckpt_c_strtod("1.28e2", nullptr), 128);
  EXPECT_EQ(ckpt_c_strtof("0.5", nullptr), 0.5F);
  ASSERT_EQ(convert(kData + "every-type.gguf", out, nullptr, {"value.f32=2.5", "value.f64=1.25e300", "new=1.5"}), "");
  IndexPointer index = must_open(out);
  EXPECT_EQ(metadata(index.get(), "value.f32"), "2.5");
  EXPECT_EQ(metadata(index.get(), "value.f64"), "1.25e+300");
  EXPECT_EQ(metadata(index.get(), "new"), "1.5");
  ASSERT_NE(typed(index.get(), "new"), nullptr);
  EXPECT_EQ(typed(index.get(), "new")->type, static_cast<uint32_t>(CKPT_GGUF_F32));
  EXPECT_EQ(metadata(index.get(), "array.f32"), "[0.1, 1e+30, Infinity] (3 f32)");
}

TEST(Gguf, RemoveDropsKeys) {
  Folder folder;
  const std::string out = folder / "out.gguf";
  ASSERT_EQ(convert(kData + "every-type.gguf", out, nullptr, {"value.u8=text now"}, {"value.u8", "array.text"}), "");
  IndexPointer before = must_open(kData + "every-type.gguf"), index = must_open(out);
  EXPECT_EQ(index->n_metadata, before->n_metadata - 1);
  EXPECT_EQ(metadata(index.get(), "value.u8"), "text now");
  EXPECT_EQ(metadata(index.get(), "array.text"), "(none)");
}

TEST(Gguf, AlignmentFollowsTheKey) {
  Folder folder;
  const std::string out = folder / "out.gguf";
  for (const char *rule : {"general.alignment=8", "general.alignment=4096"}) {
    ASSERT_EQ(convert(kData + "every-type.gguf", out, nullptr, {rule}), "");
    IndexPointer index = must_open(out);
    EXPECT_EQ(notes_of(index.get()), std::vector<std::string>{});
    EXPECT_EQ(index->tensors[3].extents->offset % strtoull(strchr(rule, '=') + 1, nullptr, 10), 0U);
  }
  ASSERT_EQ(convert(out, folder / "back.gguf", nullptr, {"general.alignment=64"}), "");
  EXPECT_TRUE(slurp(folder / "back.gguf") == slurp(kData + "every-type.gguf"));
}

// What is beyond what is written may be read and verified: one tensor, whose padding is most of the file.
TEST(Gguf, AnAlignmentBeyondMeasureIsVerified) {
  enum { kAlignment = 1 << 21 };
  const auto little = [](uint64_t value, size_t n) { return std::string(reinterpret_cast<const char *>(&value), n); };
  const auto text = [&](const std::string &value) { return little(value.size(), 8) + value; };
  Folder folder;
  Seen seen;
  std::string bytes = "GGUF" + little(3, 4) + little(1, 8) + little(1, 8) + text("general.alignment") +
                      little(CKPT_GGUF_U32, 4) + little(kAlignment, 4) + text("w") + little(1, 4) + little(8, 8) +
                      little(0, 4) + little(0, 8);
  bytes.resize(2 * kAlignment);
  EXPECT_EQ(verified(folder, bytes, &seen), "");
  bytes[kAlignment + 32] = 1;
  EXPECT_EQ(verified(folder, bytes, &seen),
            "the padding behind it is not zero: 1 byte, the first at byte 2097184 of the file (no reader looks there)");
}

// Two gigabytes of zeros are not what a file of 57 bytes is converted to.
TEST(Gguf, AnAlignmentBeyondMeasureIsReadButNotWritten) {
  std::string bytes("GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\x11\0\0\0\0\0\0\0general.alignment\4\0\0\0", 53);
  Folder folder;
  spill(folder / "in.gguf", bytes + std::string("\0\0\0\x80", 4));
  EXPECT_EQ(convert(folder / "in.gguf", folder / "out.gguf"),
            "general.alignment has to be a power of two up to 1048576 as u32 to be written, not 2147483648 (set it)");
  EXPECT_EQ(convert(folder / "in.gguf", folder / "out.gguf", nullptr, {"general.alignment=32"}), "");
}

TEST(Gguf, WhatWouldBreakTheFileIsRefused) {
  Folder folder;
  const std::string in = kData + "every-type.gguf", out = folder / "out.gguf";
  auto set = [&](const char *rule) { return convert(in, out, nullptr, {rule}); };
  EXPECT_EQ(set("value.u8=256"), "value.u8 is of type u8, which '256' is not");
  EXPECT_EQ(set("value.u8=-1"), "value.u8 is of type u8, which '-1' is not");
  EXPECT_EQ(set("value.i8=128"), "value.i8 is of type i8, which '128' is not");
  EXPECT_EQ(set("value.i8=-129"), "value.i8 is of type i8, which '-129' is not");
  EXPECT_EQ(set("value.f32=1e99"), "value.f32 is of type f32, which '1e99' is not");
  EXPECT_EQ(set("value.bool=1"), "value.bool is of type bool, which '1' is not");
  EXPECT_EQ(set("array.u8=1"), "array.u8 is an array, and one value cannot take its place");
  EXPECT_EQ(set("general.alignment=48"), "set 'general.alignment=48': has to be a power of two from 8 to 1048576");
  EXPECT_EQ(set("general.alignment=0"), "set 'general.alignment=0': has to be a power of two from 8 to 1048576");
  EXPECT_EQ(set("split.count=3"), "set 'split.count' says how a model is cut into files (ckpt split, ckpt join)");
  EXPECT_EQ(set("=3"), "set '=3' is no KEY=VALUE");
  EXPECT_EQ(set("key"), "set 'key' is no KEY=VALUE");
  EXPECT_EQ(convert(in, out, nullptr, {}, {"general.architecture"}),
            "remove 'general.architecture': no reader takes a model without it");
  EXPECT_EQ(convert(in, out, nullptr, {}, {"nothing"}),
            "remove 'nothing': there is no such key (ckpt inspect lists them)");
  EXPECT_EQ(convert(kData + "whole.gguf", folder / "out.safetensors", nullptr, {"a=1"}),
            "set: it changes GGUF metadata, and safetensors has none");
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace formats_testing
