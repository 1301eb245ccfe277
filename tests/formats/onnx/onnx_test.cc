// ONNX: models of both exporters of PyTorch and of onnx's helpers are read as onnx reads them, and written again byte
// for byte; what a graph cannot do without is refused by name; files beside a model stay beneath its folder.
#include "tests/formats/onnx/onnx_testing.h"

namespace formats_testing {
namespace {

// ---- reading ------------------------------------------------------------------------------------------------------

TEST(Onnx, EveryTensorIsAsOnnxReadsIt) {
  std::map<std::string, std::string> expected;
  std::istringstream rows(slurp(kData + "tensors.tsv"));
  for (std::string row; std::getline(rows, row);) {
    const size_t tab = row.find('\t');
    expected[row.substr(0, tab)] += row.substr(tab + 1) + "\n";
  }
  ASSERT_EQ(expected.size(), kModels.size());
  for (const auto &[name, table] : expected) EXPECT_EQ(table_of(must_open(kData + name).get()), table) << name;
}

TEST(Onnx, RawAndTypedValuesAreTheSame) {
  IndexPointer index = must_open(kData + "types.onnx");
  size_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    std::string name = index->tensors[i].name;
    if (name.size() < 4 || name.substr(name.size() - 4) != ".raw") continue;
    const ckpt_tensor *typed = ckpt_index_find(index.get(), (name.substr(0, name.size() - 4) + ".typed").c_str());
    ASSERT_NE(typed, nullptr) << name;
    EXPECT_EQ(elements(index.get(), &index->tensors[i]), elements(index.get(), typed)) << name;
    n++;
  }
  EXPECT_EQ(n, 25U);
}

TEST(Onnx, SaysWhatTheModelIs) {
  IndexPointer index = must_open(kData + "nested.onnx");
  EXPECT_STREQ(index->format, "onnx");
  EXPECT_STREQ(index->writer, "tests 1.0");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.ir_version"), "8");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.opset.ai.onnx"), "17");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.opset.local"), "1");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "author"), "tests");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "empty"), "");
  EXPECT_EQ(index->n_unread, 1U);
  ASSERT_EQ(index->n_composites, 2U);
  EXPECT_STREQ(index->composites[0].name, "dense:sparse_value");
  EXPECT_STREQ(index->composites[1].name, "sparse");
  EXPECT_EQ(index->composites[1].rank, 2U);
  EXPECT_EQ(index->composites[1].shape[1], 4U);
}

// A model costs its structure: of the payload nothing is read.
TEST(Onnx, OpeningReadsNoData) {
  Folder folder;
  std::string model = slurp(kData + "matmulnbits.onnx");
  IndexPointer small = must_open(kData + "legacy.onnx");
  EXPECT_LT(ckpt_source_bytes_read(small->source), 3 * slurp(kData + "legacy.onnx").size());
  ckpt_error err = {};
  const uint64_t n = uint64_t{1} << 28;
  std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[" + std::to_string(n / 4) + "],\"data_offsets\":[0," +
                       std::to_string(n) + "]}}";
  spill(folder / "large.safetensors", safetensors(header, ""));
  std::filesystem::resize_file(folder / "large.safetensors", 8 + header.size() + n);
  ASSERT_EQ(convert_bare(folder / "large.safetensors", folder / "large.onnx"), "");
  IndexPointer large = open(folder / "large.onnx", &err);
  ASSERT_NE(large, nullptr) << text_of(err);
  EXPECT_LT(ckpt_source_bytes_read(large->source), 100000U);
}

// ---- writing ------------------------------------------------------------------------------------------------------

// Typed values, sparse ones, branches and functions, too.
TEST(Onnx, WhatIsUnchangedIsWrittenByteForByte) {
  Folder folder;
  for (const std::string &name : kModels) {
    if (name == "external/model.onnx") continue;  // its data come in
    ASSERT_EQ(convert(kData + name, folder / name), "") << name;
    EXPECT_EQ(slurp(folder / name), slurp(kData + name)) << name;
  }
}

// Data outside come in; the rest stays, and from then on every byte.
TEST(Onnx, WritingAgainChangesNothing) {
  Folder folder;
  for (const std::string &name : kModels) {
    const std::string once = folder / "once.onnx", twice = folder / "twice.onnx";
    ASSERT_EQ(convert(kData + name, once), "") << name;
    ASSERT_EQ(convert(once, twice), "") << name;
    EXPECT_EQ(table_of(must_open(once).get()), table_of(must_open(kData + name).get())) << name;
    EXPECT_EQ(slurp(once), slurp(twice)) << name;
    std::filesystem::remove(once);
    std::filesystem::remove(twice);
  }
}

// Fields that nobody knows, in every message and behind every value, stay in their places.
TEST(Onnx, UnknownFieldsStay) {
  const std::string unknown("\xFA\x3E\x03new", 6);  // field 1007
  const std::string values(8, '\x01'), dims("\x08\x02\x10\x01", 4);
  const std::string tensor = unknown + dims + field(8, "w") + field(9, values) + unknown;
  const std::string typed = unknown + dims + field(8, "v") + field(4, values) + unknown;
  const std::string graph = field(2, "g") + unknown + field(5, tensor) + unknown + field(5, typed) + unknown;
  const std::string model = std::string("\x08\x08", 2) + field(2, "tests") + unknown + field(7, graph) + unknown +
                            field(8, std::string("\x10\x11", 2)) + unknown;
  Folder folder;
  spill(folder / "a.onnx", model);
  ASSERT_EQ(convert(folder / "a.onnx", folder / "b.onnx"), "");
  EXPECT_EQ(slurp(folder / "b.onnx"), model);
}

size_t count_of(const std::string &text, const std::string &part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size()) n++;
  return n;
}

// Also where a tensor's message is made anew, as its data go out or come in.
TEST(Onnx, UnknownFieldsStayWithDataThatMove) {
  const std::string unknown("\xFA\x3E\x03new", 6);  // field 1007
  const std::string values(1200, '\x01'), dims("\x08\xAC\x02\x10\x01", 5),
      props = field(16, field(1, "key") + field(2, "kept"));
  const std::string raw = unknown + dims + field(8, "w") + field(9, values) + field(12, "said") + unknown + props;
  const std::string typed = unknown + dims + field(8, "v") + field(4, values) + field(12, "said") + unknown + props;
  const std::string graph = field(2, "g") + field(5, raw) + unknown + field(5, typed);
  Folder folder;
  spill(folder / "a.onnx",
        std::string("\x08\x08", 2) + field(7, graph) + unknown + field(8, std::string("\x10\x11", 2)));
  ckpt_convert_options outside = {};
  put_outside(&outside);
  ASSERT_EQ(convert(folder / "a.onnx", folder / "b.onnx", outside), "");
  ASSERT_EQ(convert(folder / "b.onnx", folder / "c.onnx"), "");
  EXPECT_LT(slurp(folder / "b.onnx").size(), 500U);
  for (const char *name : {"a.onnx", "b.onnx", "c.onnx"}) {
    EXPECT_EQ(count_of(slurp(folder / name), unknown), 6U) << name;
    EXPECT_EQ(count_of(slurp(folder / name), "said"), 2U) << name;
    EXPECT_EQ(count_of(slurp(folder / name), props), 2U) << name;
    EXPECT_EQ(table_of(must_open(folder / name).get()), table_of(must_open(folder / "a.onnx").get())) << name;
  }
}

// Large data outside, aligned; small ones and constants stay; read again and written inside it is what it was.
TEST(Onnx, DataGoOutsideAndComeBack) {
  Folder folder;
  ckpt_convert_options outside = {};
  put_outside(&outside);
  for (const std::string &name : kModels) {
    const std::string there = folder / "there.onnx", back = folder / "back.onnx", again = folder / "again.onnx";
    ASSERT_EQ(convert(kData + name, there, outside), "") << name;
    EXPECT_EQ(table_of(must_open(there).get()), table_of(must_open(kData + name).get())) << name;
    IndexPointer index = must_open(there);
    const bool is_large = name == "dynamo.onnx" || name == "legacy.onnx" || name == "external/model.onnx";
    EXPECT_EQ(ckpt_source_count(index->source), is_large ? 2U : 1U) << name;
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      const ckpt_tensor &tensor = index->tensors[i];
      const bool is_outside = tensor.n_extents != 0 && tensor.extents->file != 0;
      EXPECT_EQ(is_outside, tensor.n_bytes >= 1024) << tensor.name;
      if (is_outside) {
        EXPECT_EQ(tensor.extents->offset % 256, 0U) << tensor.name;
      }
    }
    ASSERT_EQ(convert(there, back), "") << name;
    ASSERT_EQ(convert(kData + name, again), "") << name;
    EXPECT_EQ(slurp(back), slurp(again)) << name;
    for (const std::string &path : {there, there + ".data", back, again}) std::filesystem::remove(path);
  }
}

TEST(Onnx, LargeTensorsBeginOnPages) {
  Folder folder;
  const uint64_t n = 3 << 20;
  std::string header =
      "{\"a\":{\"dtype\":\"U8\",\"shape\":[1025],\"data_offsets\":[0,1025]},\"b\":{\"dtype\":\"U8\","
      "\"shape\":[3145728],\"data_offsets\":[1025,3146753]}}";
  spill(folder / "a.safetensors", safetensors(header, std::string(1025 + n, 'x')));
  ckpt_convert_options outside = {};
  put_outside(&outside);
  ASSERT_EQ(convert_bare(folder / "a.safetensors", folder / "a.onnx", outside), "");
  IndexPointer index = must_open(folder / "a.onnx");
  EXPECT_EQ(ckpt_index_find(index.get(), "a")->extents->offset, 0U);
  EXPECT_EQ(ckpt_index_find(index.get(), "b")->extents->offset, 4096U);
}

// A second file is as safe as the first: replaced with force alone, and never where a model that is read needs it.
TEST(Onnx, TheFileBesideIsReplacedWithForce) {
  Folder folder;
  ckpt_convert_options outside = {}, force = {};
  put_outside(&outside), put_outside(&force);
  force.force = true;
  spill(folder / "a.onnx.data", "somebody's");
  EXPECT_NE(convert(kData + "dynamo.onnx", folder / "a.onnx", outside).find("a.onnx.data: exists (force replaces it)"),
            std::string::npos);
  EXPECT_EQ(slurp(folder / "a.onnx.data"), "somebody's");
  EXPECT_FALSE(std::filesystem::exists(folder / "a.onnx"));
  spill(folder / "a.onnx", "old");
  for (const char *name : {"dynamo.onnx", "legacy.onnx"}) {
    ASSERT_EQ(convert(kData + name, folder / "a.onnx", force), "");
    EXPECT_EQ(table_of(must_open(folder / "a.onnx").get()), table_of(must_open(kData + name).get()));
  }
  size_t n = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder / "")) n += entry.is_regular_file();
  EXPECT_EQ(n, 2U);
  std::filesystem::copy(folder / "a.onnx", folder / "b.onnx");
  EXPECT_NE(convert(folder / "b.onnx", folder / "a.onnx", force)
                .find("a.onnx.data: is a file of the input (an input is never written)"),
            std::string::npos);
}

// ---- data that stay where they are --------------------------------------------------------------------------------

ckpt_convert_options linking(const char *graph = nullptr) {
  ckpt_convert_options link = {};
  static const ckpt_format_value alone = {"link", 1, nullptr, nullptr};
  static ckpt_format_value into_graph[] = {alone, {"graph", 0, nullptr, nullptr}};
  if (graph != nullptr) into_graph[1].text = graph;
  link.values = graph == nullptr ? &alone : into_graph;
  link.n_values = graph == nullptr ? 1 : 2;
  return link;
}

// The model of the weights that stand in `weights`, which is below its folder: nothing large is in it.
TEST(Onnx, LinksPointIntoOtherFiles) {
  Folder folder;
  const std::string model = kData + "dynamo.onnx", shards = folder / "model", data = shards + "/model.safetensors";
  std::filesystem::create_directory(shards);
  ckpt_convert_options cut = {};
  cut.shard_size = 4000;
  ASSERT_EQ(convert(model, shards + "/", cut), "");
  for (const char *name : {"model/in.onnx", "above.onnx"}) {
    ASSERT_EQ(convert(shards, folder / name, linking(model.c_str())), "");
    IndexPointer index = must_open(folder / name), was = must_open(model);
    EXPECT_EQ(table_of(index.get()), table_of(was.get()));
    EXPECT_EQ(index->n_nodes, was->n_nodes);
    size_t n_linked = 0;
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      const ckpt_tensor &tensor = index->tensors[i];
      const std::string file = ckpt_source_name(index->source, tensor.extents->file);
      const bool is_shard = file.find(".safetensors") != std::string::npos;
      EXPECT_EQ(is_shard, tensor.n_bytes >= 1024) << tensor.name;
      n_linked += is_shard;
    }
    EXPECT_GT(n_linked, 2U);
    EXPECT_FALSE(std::filesystem::exists(folder / (std::string(name) + ".data")));
  }
  ASSERT_EQ(convert(model, folder / "records.pt"), "");
  ASSERT_EQ(convert(folder / "records.pt", folder / "records.onnx", linking(model.c_str())), "");
  EXPECT_EQ(table_of(must_open(folder / "records.onnx").get()), table_of(must_open(folder / "records.pt").get()));
}

TEST(Onnx, WhatCannotBeLinkedIsRefusedByName) {
  Folder folder;
  const std::string model = kData + "dynamo.onnx", data = folder / "in/model.safetensors";
  std::filesystem::create_directory(folder / "in");
  std::filesystem::create_directory(folder / "out");
  ASSERT_EQ(convert(model, data), "");
  auto refused = [&](const std::string &input, const std::string &output, ckpt_convert_options options,
                     const std::string &why) {
    const std::string said = convert(input, output, options);
    EXPECT_NE(said.find(why), std::string::npos) << said;
    EXPECT_FALSE(std::filesystem::exists(output)) << why;
  };
  const ckpt_cast_rule f64 = {"emb*", CKPT_F64};
  ckpt_convert_options cast = {};
  cast.casts = &f64;
  cast.n_casts = 1;
  ASSERT_EQ(convert(model, folder / "in/wide.safetensors", cast), "");
  const ckpt_convert_options link = linking(model.c_str());
  refused(data, folder / "out/a.onnx", link,
          "model.safetensors: tensor 'emb.weight': cannot be linked: the file does not lie below " + folder / "out");
  refused(folder / "in/wide.safetensors", folder / "in/a.onnx", link,
          "tensor 'emb.weight': cannot be linked: it is cast");
  std::filesystem::remove(folder / "in/wide.safetensors");
  refused(model, folder / "in/a.onnx", linking(), "there is nothing to link");
  ckpt_convert_options zstd = {};
  zstd.to = "dcp";
  const ckpt_format_value level = {"zstd_level", 1, nullptr, nullptr};
  zstd.values = &level;
  zstd.n_values = 1;
  ASSERT_EQ(convert(model, folder / "in/dcp", zstd), "");
  refused(folder / "in/dcp", folder / "in/a.onnx", link,
          "tensor 'emb.weight': cannot be linked: its bytes do not stand as they are in one piece of a file (of dcp)");
  std::filesystem::create_directory(folder / "cache");
  std::filesystem::create_symlink("../in/model.safetensors", folder / "cache/model.safetensors");
  refused(folder / "cache/model.safetensors", folder / "cache/a.onnx", link, "");
  std::filesystem::create_hard_link(data, folder / "another");
  refused(data, folder / "in/a.onnx", link, "cannot be linked: the file has 2 names (hard links)");
  std::filesystem::remove(folder / "another");
  ckpt_convert_options replaced = link;
  replaced.to = "onnx";
  replaced.force = true;
  EXPECT_NE(convert(folder / "in", data, replaced).find("is a file of the input (an input is never written)"),
            std::string::npos);
  EXPECT_EQ(convert(folder / "in", folder / "in/a.onnx", link), "");
}

// The graph of one model with the values of another, in another dtype and order; what has no place is a loss.
TEST(Onnx, GraphsGetOtherWeightsByName) {
  Folder folder;
  const char *without[] = {"val_*", nullptr}, *rename[] = {"s/^emb/embedding/", nullptr};
  ckpt_cast_rule to_f64 = {nullptr, CKPT_F64};
  ckpt_convert_options cast = {}, renamed = {};
  cast.casts = &to_f64;
  cast.n_casts = 1;
  cast.exclude = without;
  ASSERT_EQ(convert(kData + "legacy.onnx", folder / "other.safetensors"), "");
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "wide.safetensors", cast), "");
  const std::string model = kData + "dynamo.onnx";
  const Graph partial(model.c_str(), true);
  const ckpt_convert_options graph = partial.options();
  ASSERT_EQ(convert(folder / "wide.safetensors", folder / "a.onnx", graph), "");
  EXPECT_EQ(slurp(folder / "a.onnx"), slurp(model));
  EXPECT_NE(convert(folder / "wide.safetensors", folder / "a.safetensors", graph)
                .find("graph: safetensors has none (it is for *.onnx)"),
            std::string::npos);
  renamed.rename = rename;
  ASSERT_EQ(convert(folder / "wide.safetensors", folder / "renamed.safetensors", renamed), "");
  ASSERT_EQ(convert(folder / "renamed.safetensors", folder / "b.onnx", graph), "");
  EXPECT_EQ(slurp(folder / "b.onnx"), slurp(model));
  const std::string types = kData + "types.onnx";
  EXPECT_NE(convert(folder / "wide.safetensors", folder / "c.onnx", Graph(types.c_str(), true).options())
                .find("none of its tensors has a name of the"),
            std::string::npos);
}

// Values of a typed field, which stay as they are where nothing changes, are others here.
TEST(Onnx, TypedValuesOfAGraphAreReplaced) {
  const std::string dims("\x08\x02\x10", 3), pieces("\x25\0\0\0\0", 5);  // floats that do not stand in one piece
  const std::string floats = dims + "\x01" + field(8, "w") + pieces + pieces;
  const std::string integers = dims + "\x07" + field(8, "v") + field(7, "\x05\x06");
  const std::string graph = field(2, "g") + field(5, floats) + field(5, integers);
  Folder folder;
  spill(folder / "a.onnx", std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
  spill(folder / "w.safetensors",
        safetensors("{\"w\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},\"v\":{\"dtype\":\"I64\","
                    "\"shape\":[2],\"data_offsets\":[8,24]}}",
                    "abcdefgh0123456789ABCDEF"));
  const std::string model = folder / "a.onnx";
  ASSERT_EQ(convert(folder / "w.safetensors", folder / "b.onnx", Graph(model.c_str()).options()), "");
  IndexPointer index = must_open(folder / "b.onnx");
  EXPECT_EQ(elements(index.get(), ckpt_index_find(index.get(), "w")), "abcdefgh");
  EXPECT_EQ(elements(index.get(), ckpt_index_find(index.get(), "v")), "0123456789ABCDEF");
}

// A model is run by its graph: without one no output is written, by no caller.
TEST(Onnx, WithoutAGraphNoModelIsWritten) {
  Folder folder;
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "a.safetensors"), "");
  const std::string none = folder / "a.safetensors", bare = folder / "bare.onnx";
  EXPECT_EQ(convert(none, folder / "b.onnx"),
            none + ": has no graph, and an onnx model cannot run without one (graph=MODEL.onnx)");
  EXPECT_EQ(convert(none, folder / "b.onnx", Graph(none.c_str()).options()), none + ": graph: the model has no graph");
  EXPECT_FALSE(std::filesystem::exists(folder / "b.onnx"));
  ASSERT_EQ(convert_bare(none, bare), "");
  EXPECT_EQ(convert(bare, folder / "b.onnx"), "");
  EXPECT_EQ(slurp(folder / "b.onnx"), slurp(bare));
}

TEST(Onnx, WhatDoesNotFitTheGraphIsRefused) {
  Folder folder;
  const std::string model = kData + "dynamo.onnx";
  const Graph partial(model.c_str(), true);
  const ckpt_convert_options graph = partial.options();
  auto said = [&](const std::string &dtype, const std::string &shape, size_t n) {
    std::string header = "{\"scale\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":[0," +
                         std::to_string(n) + "]}}";
    spill(folder / "a.safetensors", safetensors(header, std::string(n, 1)));
    return convert(folder / "a.safetensors", folder / "a.onnx", graph);
  };
  EXPECT_NE(said("F32", "[2]", 8).find("tensor 'scale': the graph works with another shape ([1], and this has [2])"),
            std::string::npos);
  EXPECT_NE(said("I32", "[1]", 4).find("tensor 'scale': the graph works with f32, and this is i32"), std::string::npos);
  EXPECT_EQ(said("F32", "[1]", 4), "");
  IndexPointer index = must_open(folder / "a.onnx");
  EXPECT_EQ(elements(index.get(), ckpt_index_find(index.get(), "scale")), std::string(4, 1));
}

TEST(Onnx, NewModelsSayTheLowestVersion) {
  Folder folder;
  const std::string header = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
  const std::string header8 = "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}";
  for (const auto &[text, version] : {std::pair(header, "4"), std::pair(header8, "9")}) {
    spill(folder / "a.safetensors", safetensors(text, "12345678"));
    ASSERT_EQ(convert_bare(folder / "a.safetensors", folder / "a.onnx"), "");
    IndexPointer index = must_open(folder / "a.onnx");
    EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.ir_version"), version);
    EXPECT_EQ(elements(index.get(), ckpt_index_at(index.get(), 0)), "12345678");
    std::filesystem::remove(folder / "a.onnx");
  }
}

TEST(Onnx, TheGraphIsALossOfOtherFormats) {
  ckpt_error err = {};
  std::vector<std::string> losses;
  IndexPointer index = must_open(kData + "nested.onnx");
  write("safetensors", index.get(), {}, &err, &losses);
  EXPECT_EQ(err.status, CKPT_OK) << text_of(err);
  ASSERT_FALSE(losses.empty());
  EXPECT_NE(std::find(losses.begin(), losses.end(), "the graph (20 nodes)"), losses.end()) << losses[0];
}

// A sparse tensor is one where the graph that has it is kept, and two elsewhere.
TEST(Onnx, SparseTensorsStayInAGraph) {
  ckpt_error err = {};
  for (const auto &[format, is_lost] : {std::pair("onnx", false), std::pair("safetensors", true)}) {
    std::vector<std::string> losses;
    IndexPointer index = must_open(kData + "nested.onnx");
    write(format, index.get(), {}, &err, &losses);
    EXPECT_EQ(err.status, CKPT_OK) << text_of(err);
    EXPECT_EQ(std::any_of(losses.begin(), losses.end(),
                          [](const std::string &loss) {
                            return loss.find("tensors as one each (") != loss.npos && loss.find("sparse") != loss.npos;
                          }),
              is_lost);
  }
}

// Functions of one name in two domains, or overloads of one, hold tensors of the same name.
TEST(Onnx, FunctionsAreTheirDomainAndOverload) {
  const auto function = [](const std::string &domain, const std::string &overload) {
    const std::string tensor = std::string("\x08\x02\x10\x01", 4) + field(9, std::string(8, '\0'));
    std::string text = field(1, "Scale") + field(7, field(2, "c") + field(5, field(1, "value") + field(5, tensor)));
    if (!domain.empty()) text += field(10, domain);
    if (!overload.empty()) text += field(13, overload);
    std::string tag("\xca\x01", 2); /* field 25 */
    return tag + field(1, text).substr(1);
  };
  Folder folder;
  const auto opened_with = [&](const std::string &functions) {
    spill(folder / "a.onnx",
          std::string("\x08\x08", 2) + field(7, field(2, "g")) + field(8, std::string("\x10\x11", 2)) + functions);
    ckpt_error err = {};
    IndexPointer index = open(folder / "a.onnx", &err);
    return index == nullptr ? text_of(err) : names_of(index.get());
  };
  EXPECT_EQ(opened_with(function("", "") + function("da", "") + function("db", "") + function("da", "ov")),
            "Scale/c da.Scale/c da.Scale:ov/c db.Scale/c");
  EXPECT_EQ(opened_with(function("da", "") + function("da", "")),
            folder / "a.onnx" +
                ": tensor 'da.Scale/c': is the name of a constant or sparse part at byte 37 and of a constant or "
                "sparse part at byte 81");
}

// Each kind of what has no name of its own is counted from 0.
TEST(Onnx, TrainingGraphsAreCounted) {
  const std::string tensor =
      field(5, std::string("\x08\x02\x10\x01", 4) + field(8, "w") + field(9, std::string(8, '\0')));
  const std::string tag("\xa2\x01", 2); /* field 20 */
  Folder folder;
  spill(folder / "a.onnx", std::string("\x08\x08", 2) + field(7, field(2, "g") + tensor) +
                               field(8, std::string("\x10\x11", 2)) + tag + field(1, field(1, tensor)).substr(1) + tag +
                               field(1, field(2, tensor)).substr(1));
  EXPECT_EQ(names_of(must_open(folder / "a.onnx").get()), "training.0.initial/w training.1.step/w w");
}

// What the graph works with cannot change under it.
TEST(Onnx, WhatTheGraphNeedsIsRefusedByName) {
  Folder folder;
  const char *match[] = {"out*", nullptr}, *rename[] = {"s/^out/in/", nullptr};
  const ckpt_cast_rule f16 = {"*onstant*", CKPT_F16};
  ckpt_convert_options selected = {}, renamed = {}, cast = {};
  selected.match = match;
  renamed.rename = rename;
  cast.casts = &f16;
  cast.n_casts = 1;
  EXPECT_NE(convert(kData + "dynamo.onnx", folder / "a.onnx", selected)
                .find("tensor 'emb.weight': the graph works with it, so that it cannot be left out"),
            std::string::npos);
  EXPECT_NE(convert(kData + "dynamo.onnx", folder / "a.onnx", renamed)
                .find("tensor 'in.bias': the graph calls it 'out.bias', and it cannot be renamed"),
            std::string::npos);
  EXPECT_NE(convert(kData + "legacy.onnx", folder / "a.onnx", cast)
                .find("tensor '/Constant_output_0': the graph works with f32, and cannot be given f16: it is no "
                      "initializer of the model's own graph"),
            std::string::npos);
  const ckpt_cast_rule any = {nullptr, CKPT_F16}; /* names no tensor: constants stay */
  cast.casts = &any;
  ASSERT_EQ(convert(kData + "legacy.onnx", folder / "cast.onnx", cast), "");
  IndexPointer index = must_open(folder / "cast.onnx");
  EXPECT_EQ(ckpt_index_find(index.get(), "/Constant_output_0")->dtype, CKPT_F32);
  EXPECT_EQ(ckpt_index_find(index.get(), "emb.weight")->dtype, CKPT_F16);
  const ckpt_cast_rule f8 = {nullptr, CKPT_F8_E4M3}; /* of opset 19 */
  cast.casts = &f8;
  EXPECT_NE(convert(kData + "dynamo.onnx", folder / "a.onnx", cast).find("its operators or its IR version are too old"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "a.onnx"));
}

// A model of one tensor of n bytes, planned: how many files it takes, and the bytes of the first.
std::pair<uint32_t, uint64_t> planned(const std::string &path, uint64_t n) {
  std::string header =
      R"({"w":{"dtype":"U8","shape":[)" + std::to_string(n) + R"(],"data_offsets":[0,)" + std::to_string(n) + "]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t n_header = header.size();
  spill(path, std::string(reinterpret_cast<const char *>(&n_header), 8) + header);
  std::filesystem::resize_file(path, 8 + n_header + n); /* sparse */
  IndexPointer index = must_open(path);
  ckpt_plan *plan = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_plan_new(&plan, &err), CKPT_OK);
  EXPECT_EQ(plan_bare(plan, index.get(), path + ".onnx", {}, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(ckpt_plan_prepare(plan, nullptr, &err), CKPT_OK) << text_of(err);
  const ckpt_layout &layout = plan->outputs[0].layout;
  const std::pair<uint32_t, uint64_t> files = {layout.n_files, layout.files[0].n_bytes};
  ckpt_plan_free(plan);
  return files;
}

// What protobuf reads at most stands in the model; one byte more, and the data stand outside.
TEST(Onnx, DataGoOutsideFromTwoGigabytesOn) {
  Folder folder;
  const uint64_t most = 2147483647, n = most - 1000, around = planned(folder / "w", n).second - n;
  EXPECT_LT(around, 1000U);
  EXPECT_EQ(planned(folder / "w", most - around), std::make_pair(1U, most));
  const auto outside = planned(folder / "w", most - around + 1);
  EXPECT_EQ(outside.first, 2U);
  EXPECT_LT(outside.second, 1000U);
}

// ---- hostile ------------------------------------------------------------------------------------------------------

TEST(Onnx, WhatIsCutOffIsNotRead) {
  const std::string whole = slurp(kData + "matmulnbits.onnx");
  for (size_t n = 0; n < whole.size(); n++) {
    ckpt_error err = {};
    if (n + 19 == whole.size()) continue;  // before the second set of operators: nothing tells
    EXPECT_EQ(open_bytes(whole.substr(0, n), &err), nullptr) << n;
  }
}

std::string opened(const std::string &path, const std::string &folder) {
  ckpt_error err = {};
  IndexPointer index = open(path, &err);
  std::string text = index == nullptr ? text_of(err) : "opened";
  for (size_t at; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
  return text;
}

// A folder with one model is that model.
TEST(Onnx, OneModelInAFolder) {
  Folder folder;
  ckpt_convert_options outside = {};
  put_outside(&outside);
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "model.onnx", outside), "");
  spill(folder / "config.json", "{}");
  EXPECT_EQ(table_of(must_open(folder / "").get()), table_of(must_open(kData + "dynamo.onnx").get()));
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "other.onnx"), "");
  ckpt_error err = {};
  EXPECT_EQ(open(folder / "", &err), nullptr);
  EXPECT_NE(text_of(err).find("holds 2 ONNX models, name one of them: model.onnx other.onnx"), std::string::npos)
      << text_of(err);
}

// onnx.proto: SHA-1 of the whole file.
TEST(Onnx, ChecksumsOfFilesOutsideAreCompared) {
  Folder folder;
  auto found = [&](const std::string &checksum) {
    std::string tensor = std::string("\x08\x01\x10\x01", 4) + field(8, "w");
    for (const auto &[key, value] : std::map<std::string, std::string>{
             {"location", "w.data"}, {"offset", "4"}, {"length", "4"}, {"checksum", checksum}})
      if (!value.empty()) tensor += field(13, field(1, key) + field(2, value));
    tensor += std::string("\x70\x01", 2);
    const std::string graph = field(2, "g") + field(5, tensor);
    spill(folder / "a.onnx", std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
    spill(folder / "w.data", "12345678");
    IndexPointer index = must_open(folder / "a.onnx");
    ckpt_findings findings = {};
    ckpt_error err = {};
    EXPECT_EQ(ckpt_onnx_verify(&findings, index.get(), nullptr, &err), CKPT_OK) << text_of(err);
    std::string text;
    for (size_t i = 0; i < findings.n; i++)
      text += std::string(findings.items[i].kind == CKPT_PROVEN ? "proven: " : "problem: ") + findings.items[i].message;
    ckpt_findings_free(&findings);
    return text;
  };
  const std::string sha1 = "7c222fb2927d828af22f592134e8932480637c0d";
  EXPECT_EQ(found(""), "");
  EXPECT_EQ(found(sha1), "proven: files: SHA-1 of 1 file of external data is what the model states");
  EXPECT_EQ(found("7C222FB2927D828AF22F592134E8932480637C0D").substr(0, 7), "proven:");
  EXPECT_EQ(found("7c222fb2927d828af22f592134e8932480637c0e"),
            "problem: its SHA-1 is " + sha1 +
                ", not 7c222fb2927d828af22f592134e8932480637c0e as the model states "
                "(download it again)");
  EXPECT_EQ(found("md5 abc"),
            "problem: the model states the checksum 'md5 abc' of it, which is no SHA-1 (40 hexadecimal digits)");
  ASSERT_EQ(convert(folder / "a.onnx", folder / "b.onnx"), "");  // inside it is nothing's
  EXPECT_EQ(slurp(folder / "b.onnx").find("checksum"), std::string::npos);
}

// Who asks for all defects is told of each tensor that is broken, in branches too, and gets the others.
TEST(Onnx, EveryBrokenTensorIsNamed) {
  Folder folder;
  auto tensor = [](const std::string &name, const std::string &rest) {
    return std::string("\x08\x01\x10\x01", 4) + field(8, name) + rest;
  };
  auto outside = [](const std::string &location) {
    return field(13, field(1, "location") + field(2, location)) + std::string("\x70\x01", 2);
  };
  const std::string whole = field(9, "1234");
  const std::string branch = field(1, field(2, "y") + field(4, "If") +
                                          field(5, field(1, "then") + field(6, field(5, tensor("in", field(9, "1"))) +
                                                                                   field(5, tensor("inner", whole)))));
  const std::string broken_node = field(1, field(2, "z") + "\xff");
  const std::string graph = branch + broken_node + field(2, "g") + field(5, tensor("a", whole)) +
                            field(5, tensor("cut", field(9, "123"))) + field(5, tensor("far", outside("none.data"))) +
                            field(5, tensor("up", outside("../x.data"))) + field(5, tensor("", whole)) +
                            field(5, tensor("varint", "\xff")) + field(5, tensor("z", whole)) +
                            field(5, tensor("long", outside(std::string(256, 'n'))));
  const std::string path = folder / "m.onnx";
  spill(path, std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
  IndexPointer index(nullptr, ckpt_index_free);
  const std::vector<std::string> reported = broken_parts(path, &index);
  const std::vector<std::string> wanted = {
      "m.onnx: tensor 'y:then/in': has 1 byte of values, its shape and type take 4",
      "m.onnx: truncated or lies: a number at byte 61 goes past the end of its message (download it again)",
      "m.onnx: tensor 'cut': has 3 bytes of values, its shape and type take 4",
      "none.data: tensor 'far': cannot open: No such file or directory",
      "m.onnx: tensor 'up': file name '../x.data' is not one below the checkpoint's folder (relative, no '..')",
      "m.onnx: an initializer at byte 167 has no name",
      "m.onnx: tensor 'varint': truncated or lies: a number at byte 195 goes past the end of its message (download it "
      "again)",
      std::string(256, 'n') + ": tensor 'long': no such file (its name is longer than any)"};
  ASSERT_EQ(reported.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); i++) EXPECT_EQ(reported[i], folder / wanted[i]);
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(names_of(index.get()), "a y:then/inner z; y:then/in cut far up varint long");
  for (const char *name : {"a", "z"})
    EXPECT_EQ(elements(index.get(), ckpt_index_find(index.get(), name)), "1234") << name;
  ckpt_error err = {};
  EXPECT_EQ(open(path, &err), nullptr);
  EXPECT_EQ(text_of(err), reported.empty() ? "" : reported[0]);
}

// A tensor that is broken takes no checksum from the others.
TEST(Onnx, ChecksumsAreComparedBesideWhatIsBroken) {
  Folder folder;
  auto tensor = [](const std::string &name, const std::string &checksum) {
    std::string text = std::string("\x08\x01\x10\x01", 4) + field(8, name);
    for (const auto &[key, value] :
         std::map<std::string, std::string>{{"location", name + ".data"}, {"length", "4"}, {"checksum", checksum}})
      text += field(13, field(1, key) + field(2, value));
    return field(5, text + std::string("\x70\x01", 2));
  };
  const std::string wrong = "0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d0a1b2c3d",
                    graph = field(2, "g") + tensor("a", wrong) + tensor("a", wrong) + tensor("w", "md5");
  spill(folder / "m.onnx", std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
  spill(folder / "a.data", "1234");
  spill(folder / "w.data", "1234");
  IndexPointer index(nullptr, ckpt_index_free);
  EXPECT_EQ(broken_parts(folder / "m.onnx", &index).size(), 1u);
  EXPECT_EQ(names_of(index.get()), "a w; a");
  ckpt_findings findings = {};
  ckpt_error err = {};
  EXPECT_EQ(ckpt_onnx_verify(&findings, index.get(), nullptr, &err), CKPT_OK) << text_of(err);
  std::string text;
  for (size_t i = 0; i < findings.n; i++)
    text += std::string(findings.items[i].tensor) + ": " + findings.items[i].message + "; ";
  ckpt_findings_free(&findings);
  EXPECT_EQ(text,
            "a: its SHA-1 is 7110eda4d09e062aa5e4a390b0a572ac0d2c0220, not " + wrong +
                " as the model states (download it again); w: the model states the checksum 'md5' of it, which is "
                "no SHA-1 (40 hexadecimal digits); ");
}

TEST(Onnx, DataStayBeneathTheFolder) {
  Folder folder;
  const std::string model = slurp(kData + "external/model.onnx"), data = slurp(kData + "external/weights.data");
  spill(folder / "model/model.onnx", model);
  spill(folder / "secret", data);
  const std::string path = folder / "model/model.onnx", beside = folder / "model/weights.data", root = folder / "";
  spill(beside, data);
  EXPECT_EQ(opened(path, root), "opened");
  std::filesystem::remove(beside);
  std::filesystem::create_symlink("../secret", beside);
  EXPECT_EQ(opened(path, root),
            "model/weights.data: tensor 'emb.weight': a link to ../secret leads out of the checkpoint's folder (name "
            "the path "
            "it leads to, or copy that into the folder)");
  std::filesystem::remove(beside);
  std::filesystem::create_hard_link(folder / "secret", beside);
  EXPECT_EQ(opened(path, root),
            "model/model.onnx: tensor 'emb.weight': its external data 'weights.data' is a hard link, which can be any "
            "file's (copy it; onnx refuses it too)");
  std::filesystem::remove(beside);
  spill(folder / "model/real", data);
  std::filesystem::create_symlink("real", beside);
  EXPECT_EQ(opened(path, root), "opened");
}

}  // namespace
}  // namespace formats_testing
