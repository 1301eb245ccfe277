// ONNX with --dtype: which initializers get a Cast node before them, under which names, and what is refused.
#include "tests/formats/onnx/onnx_testing.h"

namespace formats_testing {
namespace {

// Floats of a byte in a graph are quantized, whatever they are called; a Cast node gives the graph its own back, as it
// does for scales.
TEST(OnnxCasts, QuantizedValuesAreCastInTheirGraphAlone) {
  const auto tensor = [](const std::string &name, int type, size_t n_bytes) {
    return field(5, std::string("\x08\x02\x10", 3) + static_cast<char>(type) + field(8, name) +
                        field(9, std::string(n_bytes, '\x38')));
  };
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  cast.force = true;
  Folder folder;
  const auto save = [&](const std::string &graph) {
    spill(folder / "a.onnx", std::string("\x08\x09", 2) + field(7, graph) + field(8, std::string("\x10\x13", 2)));
  };
  const std::string node = field(1, field(2, "y") + field(4, "Relu"));
  save(node + field(2, "g") + tensor("w", 17, 2));
  EXPECT_EQ(convert(folder / "a.onnx", folder / "b.onnx", cast), "");
  EXPECT_NE(
      convert(folder / "a.onnx", folder / "b.safetensors", cast)
          .find("tensor 'w': is quantized, by its dtype: the graph has its scales, and a cast alone would be wrong "
                "(leave it as it is stored)"),
      std::string::npos);
  save(field(2, "g") + tensor("w", 17, 2)); /* no graph around it */
  EXPECT_EQ(convert(folder / "a.onnx", folder / "b.safetensors", cast), "");
  save(node + field(2, "g") + tensor("w", 3, 2) + tensor("w_scale", 1, 8));
  EXPECT_EQ(convert(folder / "a.onnx", folder / "b.onnx", cast), "");
  EXPECT_NE(convert(folder / "a.onnx", folder / "b.safetensors", cast).find("tensor 'w_scale': belongs to w"),
            std::string::npos);
}

// What was cast already is as it was asked for; what the graph keeps is said again.
TEST(OnnxCasts, ADoneCastIsRepeated) {
  Folder folder;
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  ASSERT_EQ(convert(kData + "legacy.onnx", folder / "a.onnx", cast), "");
  ASSERT_EQ(convert(folder / "a.onnx", folder / "b.onnx", cast), "");
  EXPECT_EQ(slurp(folder / "b.onnx"), slurp(folder / "a.onnx"));
}

// Casts of initializers get a node that gives the graph what it works with, under the name that it knows; the digest is
// that of the cast weights, and what is cast is not cast again.
TEST(OnnxCasts, CastsGetANode) {
  Folder folder;
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16}, f32 = {nullptr, CKPT_F32};
  ckpt_convert_options cast = {}, back = {};
  cast.casts = &f16;
  back.casts = &f32;
  cast.n_casts = back.n_casts = 1;
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "a.onnx", cast), "");
  ASSERT_EQ(convert(kData + "dynamo.onnx", folder / "a.safetensors", cast), "");
  ASSERT_EQ(convert(folder / "a.onnx", folder / "again.onnx"), "");
  EXPECT_EQ(slurp(folder / "again.onnx"), slurp(folder / "a.onnx"));
  IndexPointer index = must_open(folder / "a.onnx"), was = must_open(kData + "dynamo.onnx");
  EXPECT_EQ(table_of(index.get()), table_of(must_open(folder / "a.safetensors").get()));
  EXPECT_EQ(index->n_nodes, was->n_nodes + was->n_tensors);
  EXPECT_NE(convert(folder / "a.onnx", folder / "b.onnx", back).find("it was cast before"), std::string::npos);
}

// A name that is an input of the graph too can be no node's.
TEST(OnnxCasts, InputsAreNotCast) {
  const std::string tensor = std::string("\x08\x02\x10\x01", 4) + field(8, "w") + field(9, std::string(8, '\0'));
  Folder folder;
  const ckpt_cast_rule f16 = {"w", CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  for (const char *input : {"v", "w"}) {
    const std::string graph = field(2, "g") + field(5, tensor) + field(11, field(1, "x")) + field(11, field(1, input));
    spill(folder / "a.onnx", std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
    EXPECT_EQ(convert(folder / "a.onnx", folder / (std::string(input) + ".onnx"), cast)
                      .find("it is an input of the graph too") != std::string::npos,
              std::string(input) == "w");
  }
}

// The name that a cast tensor gets may be there: of a node's output, an input or another initializer. One that ends so
// without a node of ours before it is a name like any other.
TEST(OnnxCasts, NamesOfCastsThatAreTakenAreRefused) {
  const auto tensor = [](const std::string &name) {
    return field(5, std::string("\x08\x02\x10\x01", 4) + field(8, name) + field(9, std::string(8, '\0')));
  };
  const auto node = [](const std::string &input, const std::string &output, const std::string &type) {
    return field(1, field(1, input) + field(2, output) + field(4, type));
  };
  const std::string suffixed = std::string("w") + CKPT_ONNX_CAST;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {node("x", suffixed, "Relu"), "w"},
      {field(11, field(1, suffixed)), "w"},
      {tensor(suffixed), "w"},
      {field(1, field(2, "y") + field(5, field(1, "then") + field(6, node("x", suffixed, "Relu")))), "w"},
      {field(1, field(2, "y") + field(5, field(1, "then") + field(6, tensor(suffixed)))), "w"},
  };
  Folder folder;
  const ckpt_cast_rule f16 = {"w", CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  const auto save = [&](const std::string &graph) {
    spill(folder / "a.onnx",
          std::string("\x08\x08", 2) + field(7, field(2, "g") + graph) + field(8, std::string("\x10\x11", 2)));
  };
  for (const auto &[more, name] : cases) {
    save(more + tensor(name));
    EXPECT_NE(
        convert(folder / "a.onnx", folder / "b.onnx", cast)
            .find("tensor 'w': the graph works with f32, and cannot be given f16: its new name, with ':ckpt-cast' "
                  "behind it, is in the graph already"),
        std::string::npos)
        << &more - &cases[0].first;
  }
  for (const std::string &graph : {tensor(suffixed), node(suffixed, "w", "Relu") + tensor(suffixed),
                                   node(suffixed, "v", "Cast") + tensor(suffixed)}) {
    save(graph);
    EXPECT_NE(ckpt_index_find(must_open(folder / "a.onnx").get(), suffixed.c_str()), nullptr);
  }
  save(node(suffixed, "w", "Cast") + tensor(suffixed));
  EXPECT_NE(ckpt_index_find(must_open(folder / "a.onnx").get(), "w"), nullptr);
}

// protobuf reads two graphs of a model as one, the nodes of the first before those of the second: casts stand before
// all.
TEST(OnnxCasts, NodesGoToTheFrontOfMergedGraphs) {
  const std::string node = field(1, field(1, "w") + field(2, "y") + field(4, "Relu"));
  const std::string tensor =
      field(5, std::string("\x08\x02\x10\x01", 4) + field(8, "w") + field(9, std::string(8, '\0')));
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  Folder folder;
  const std::string graphs = field(7, node + field(2, "g")) + field(7, tensor);
  spill(folder / "a.onnx", std::string("\x08\x08", 2) + graphs + field(8, std::string("\x10\x11", 2)));
  ASSERT_EQ(convert(folder / "a.onnx", folder / "same.onnx"), "");
  EXPECT_EQ(slurp(folder / "same.onnx"), slurp(folder / "a.onnx"));
  ASSERT_EQ(convert(folder / "a.onnx", folder / "b.onnx", cast), "");
  const std::string written = slurp(folder / "b.onnx");
  EXPECT_LT(written.find("Cast"), written.find("Relu"));
  EXPECT_EQ(must_open(folder / "b.onnx")->n_nodes, 2U);
  EXPECT_EQ(ckpt_index_find(must_open(folder / "b.onnx").get(), "w")->dtype, CKPT_F16);
}

// Quantized values of a graph belong to scales in it: other values are not cast to them.
TEST(OnnxCasts, AGraphsQuantizedValuesAreNotMadeByACast) {
  const auto tensor = [](int type, size_t n_bytes) {
    return field(5, std::string("\x08\x02\x10", 3) + static_cast<char>(type) + field(8, "w") +
                        field(9, std::string(n_bytes, '\x38')));
  };
  const std::string node = field(1, field(2, "y") + field(4, "Relu"));
  Folder folder;
  const auto said = [&](int type, size_t n_bytes, const std::string &values, int n) {
    const std::string model = folder / "a.onnx";
    spill(model, std::string("\x08\x09", 2) + field(7, node + field(2, "g") + tensor(type, n_bytes)) +
                     field(8, std::string("\x10\x13", 2)));
    spill(folder / "w.safetensors",
          safetensors(R"({"w":{"dtype":")" + values + R"(","shape":[2],"data_offsets":[0,)" + std::to_string(n) + "]}}",
                      std::string(static_cast<size_t>(n), '\0')));
    const Graph graph(model.c_str());
    ckpt_convert_options options = graph.options();
    options.force = true;
    return convert(folder / "w.safetensors", folder / "b.onnx", options);
  };
  EXPECT_EQ(said(17, 2, "F8_E4M3", 2), "");
  EXPECT_EQ(said(10, 4, "F32", 8), "");
  EXPECT_EQ(said(17, 2, "F32", 8),
            folder / "w.safetensors" +
                ": tensor 'w': the graph's is f8_e4m3 and quantized, or belongs to one that is, and this is f32: a "
                "cast alone would be wrong (give it f8_e4m3)");
}

// Where nothing can be cast the format says why.
TEST(OnnxCasts, WhereNothingCanBeCastTheReasonIsSaid) {
  const std::string tensor = std::string("\x08\x02\x10\x01", 4) + field(8, "w") + field(9, std::string(8, '\0'));
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16};
  ckpt_convert_options cast = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  Folder folder;
  const auto said = [&](const std::string &graph) {
    spill(folder / "a.onnx", std::string("\x08\x08", 2) + field(7, graph) + field(8, std::string("\x10\x11", 2)));
    return convert(folder / "a.onnx", folder / "b.onnx", cast);
  };
  const std::string all = folder / "a.onnx" +
                          ": the graph works with its tensors as they are, and none can be given "
                          "another dtype (";
  EXPECT_EQ(said(field(2, "g") + field(5, tensor) + field(11, field(1, "w"))),
            all + "w): of the first, it is an input of the graph too");
  EXPECT_EQ(said(field(1, field(2, "c") + field(5, field(1, "value") + field(5, tensor)))),
            all + "c): of the first, it is no initializer of the model's own graph");
}

}  // namespace
}  // namespace formats_testing
