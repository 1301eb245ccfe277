// ONNX at its bounds: how much of a message is taken apart, which places of data are followed, what would not be read
// again, and the indices of sparse tensors.
#include "tests/formats/onnx/onnx_testing.h"

namespace formats_testing {
namespace {

// Every field costs memory to take apart, wherever it stands: so many, and no more, whatever the bytes.
TEST(OnnxBounds, FieldsAreCountedWhereverTheyStand) {
  Folder folder;
  enum { LIMIT = 16384, N_OWN = 3, N_ENTRY = 3 };  // of the tensor: an axis, type, name
  auto said = [&](const std::string &in_tensor, const std::string &in_model) {
    const std::string tensor = std::string("\x08\x01\x10\x02", 4) + field(8, "w") + field(9, "1") + in_tensor;
    spill(folder / "a.onnx",
          std::string("\x08\x08", 2) + field(7, field(5, tensor)) + field(8, std::string("\x10\x11", 2)) + in_model);
    ckpt_error err = {};
    if (open(folder / "a.onnx", &err) != nullptr) return std::string();
    const std::string text = text_of(err), has = " has ";
    return text.find(has) == std::string::npos ? text : text.substr(text.find(has) + has.size());
  };
  auto times = [](int n, const std::string &text) {
    std::string all;
    for (int i = 0; i < n; i++) all += text;
    return all;
  };
  const std::string refused = "more than 16384 small fields", pair = field(1, "k") + field(2, "v"),
                    number("\x90\x03\x01", 3);  // field 50
  EXPECT_EQ(said(times(LIMIT - N_OWN, number), ""), "");
  EXPECT_EQ(said(times(LIMIT - N_OWN + 1, number), ""), refused);
  EXPECT_EQ(said(field(13, pair + times(LIMIT - N_OWN - N_ENTRY, number)), ""), "");
  EXPECT_EQ(said(field(13, pair + times(LIMIT - N_OWN - N_ENTRY + 1, number)), ""), refused);
  EXPECT_EQ(said(field(1, std::string(LIMIT - N_OWN, '\x01')), ""), refused);  // axes, packed
  EXPECT_EQ(said("", times(LIMIT - 1 - 2, std::string("\x08\x08", 2))), "");   // an IR version, operators
  EXPECT_EQ(said("", times(LIMIT - 1 - 1, std::string("\x08\x08", 2))), refused);
  EXPECT_EQ(said("", field(14, pair + times(LIMIT, number))), refused);
}

// What onnx and ONNX Runtime both read of data outside, though no writer of theirs writes it.
TEST(OnnxBounds, DataOutsideAreFoundAsOnnxFindsThem) {
  Folder folder;
  std::filesystem::create_directory(folder / "sub");
  spill(folder / "sub/d.bin", "1234");
  auto read = [&](const std::string &location, const std::string &more) {
    const std::string tensor = std::string("\x08\x01\x10\x01", 4) + field(8, "w") +
                               field(13, field(1, "location") + field(2, location)) + more + std::string("\x70\x01", 2);
    spill(folder / "m.onnx",
          std::string("\x08\x08", 2) + field(7, field(5, tensor)) + field(8, std::string("\x10\x11", 2)));
    ckpt_error err = {};
    IndexPointer index = open(folder / "m.onnx", &err);
    if (index == nullptr) return text_of(err);
    for (const char *name : {"out.onnx", "again.onnx"})
      EXPECT_EQ(convert(name[0] == 'o' ? folder / "m.onnx" : folder / "out.onnx", folder / name), "") << location;
    EXPECT_EQ(slurp(folder / "out.onnx"), slurp(folder / "again.onnx")) << location;
    EXPECT_EQ(elements(must_open(folder / "out.onnx").get(), &must_open(folder / "out.onnx")->tensors[0]), "1234");
    for (const char *name : {"out.onnx", "again.onnx"}) std::filesystem::remove(folder / name);
    return ckpt_source_name(index->source, 1) + (" " + elements(index.get(), &index->tensors[0]));
  };
  const std::string found = "sub/d.bin 1234";
  for (const char *location : {"sub/d.bin", "sub//d.bin", "./sub/d.bin", ".//./sub/././/d.bin"})
    EXPECT_EQ(read(location, ""), found) << location;
  EXPECT_EQ(read("sub/d.bin", field(9, "")), found);
  EXPECT_EQ(read("sub/d.bin", field(13, field(1, "length") + field(2, "0"))), found);
  for (const char *location :
       {"/sub/d.bin", "//sub/d.bin", "sub/d.bin/", "sub/d.bin//", "sub/../sub/d.bin", ".//../d.bin"})
    EXPECT_NE(read(location, "").find("is not one below the checkpoint's folder"), std::string::npos) << location;
  EXPECT_NE(read("sub/d.bin", field(9, "1")).find("stand both in the model and outside"), std::string::npos);
}

// A model of one tensor `name` of 1,200 bytes, and what stands behind its graph.
std::string model_of(const std::string &name, const std::string &tail = "") {
  const std::string tensor =
      std::string("\x08\xAC\x02\x10\x01", 5) + field(8, name) + field(9, std::string(1200, '\0'));
  return std::string("\x08\x08", 2) + field(7, field(5, tensor)) + field(8, std::string("\x10\x11", 2)) + tail;
}

// What would be written and not be read is refused before.
TEST(OnnxBounds, WhatWouldNotBeReadIsNotWritten) {
  Folder folder;
  auto with_metadata = [&](const std::string &entries) {
    std::string header = R"({"__metadata__":{)" + entries + R"(},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    spill(folder / "a.safetensors", safetensors(header, "1"));
    const std::string said = convert_bare(folder / "a.safetensors", folder / "a.onnx");
    if (said.empty()) {
      must_open(folder / "a.onnx");
      std::filesystem::remove(folder / "a.onnx");
    }
    return said;
  };
  std::string entries = R"("k0":"")";
  for (int i = 1; i < 4096; i++) entries += R"(,"k)" + std::to_string(i) + R"(":"")";
  const std::string refused = ": in an ONNX model are read 4096, of 16777152 bytes together";
  EXPECT_EQ(with_metadata(entries), "");
  EXPECT_NE(with_metadata(entries + R"(,"more":"")").find("4097 metadata entries of "), std::string::npos);
  EXPECT_NE(with_metadata(R"("k":")" + std::string(16777152, 'v') + '"').find(refused), std::string::npos);
  EXPECT_EQ(with_metadata(R"("k":")" + std::string(16777152 - 20, 'v') + '"'), "");
  const ckpt_cast_rule f16 = {nullptr, CKPT_F16};
  ckpt_convert_options cast = {}, outside = {};
  cast.casts = &f16;
  cast.n_casts = 1;
  put_outside(&outside);
  spill(folder / "m.onnx", model_of(std::string(4086, 'n')));
  EXPECT_EQ(convert(folder / "m.onnx", folder / "b.onnx", cast), "");
  must_open(folder / "b.onnx");
  spill(folder / "m.onnx", model_of(std::string(4087, 'n')));
  EXPECT_NE(convert(folder / "m.onnx", folder / "c.onnx", cast).find("its name is too long for ':ckpt-cast' behind it"),
            std::string::npos);
  EXPECT_EQ(convert(folder / "m.onnx", folder / "\xff.onnx"), "");
  EXPECT_NE(convert(folder / "m.onnx", folder / "\xfe.onnx", outside).find("whose name is no UTF-8"),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(folder / "\xfe.onnx"));
}

// A key of metadata has one value, and none is passed off as what the model says of itself.
TEST(OnnxBounds, KeysOfMetadataAreReadOnce) {
  Folder folder;
  auto entry = [](const std::string &key, const std::string &value) {
    return field(14, field(1, key) + field(2, value));
  };
  spill(folder / "m.onnx", model_of("w", entry("onnx.ir_version", "99") + entry("a", "1") + entry("a", "2") +
                                             entry("onnx.opset.ai.onnx", "99") + entry("onnx.infer", "kept") +
                                             field(8, std::string("\x10\x05", 2))));
  ASSERT_EQ(convert(folder / "m.onnx", folder / "m.safetensors"), "");
  ASSERT_EQ(convert_bare(folder / "m.safetensors", folder / "again.onnx"), "");
  ASSERT_EQ(convert(folder / "m.onnx", folder / "same.onnx"), "");
  EXPECT_EQ(slurp(folder / "same.onnx"), slurp(folder / "m.onnx"));
  IndexPointer index = must_open(folder / "m.onnx");
  ASSERT_EQ(index->n_notes, 1U);
  EXPECT_STREQ(index->notes[0].text, "3 of its metadata are not read: the key has another value already");
  for (const char *name : {"m.onnx", "m.safetensors", "again.onnx"}) {
    index = must_open(folder / name);
    EXPECT_EQ(index->n_metadata, 4U) << name;
    EXPECT_STREQ(ckpt_index_metadata(index.get(), "a"), "1") << name;
    EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.infer"), "kept") << name;
    if (name[0] == 'm') {
      EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.ir_version"), "8") << name;
      EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.opset.ai.onnx"), "17") << name;
    }
  }
}

// Indices are read by verify, in windows: what onnx's checker refuses is a problem of the sparse tensor.
TEST(OnnxBounds, IndicesOfSparseTensorsAreChecked) {
  Folder folder;
  auto numbers = [](const std::vector<int64_t> &all) {
    return std::string(reinterpret_cast<const char *>(all.data()), all.size() * 8);
  };
  auto axes = [](const std::vector<uint64_t> &all) {
    std::string text;
    for (uint64_t axis : all) {
      text += '\x08';
      for (; axis >= 128; axis >>= 7) text += static_cast<char>(axis | 128);
      text += static_cast<char>(axis);
    }
    return text;
  };
  auto found = [&](uint64_t n_values, const std::string &indices, const std::string &shape) {
    const std::string values = field(1, axes({n_values}) + std::string("\x10\x02", 2) + field(8, "s") +
                                            (n_values == 0 ? "" : field(9, std::string(n_values, '\1'))));
    spill(folder / "m.onnx", std::string("\x08\x08", 2) +
                                 field(7, field(2, "g") + '\x7A' + field(1, values + indices + shape).substr(1)) +
                                 field(8, std::string("\x10\x11", 2)));
    IndexPointer index = must_open(folder / "m.onnx");
    ckpt_findings findings = {};
    ckpt_error err = {};
    EXPECT_EQ(ckpt_verify_structure(&findings, index.get(), &err), CKPT_OK);
    EXPECT_EQ(ckpt_onnx_verify(&findings, index.get(), nullptr, &err), CKPT_OK) << text_of(err);
    std::string text;
    for (size_t i = 0; i < findings.n; i++)
      if (findings.items[i].kind == CKPT_PROBLEM) text += findings.items[i].message;
    ckpt_findings_free(&findings);
    return text;
  };
  const std::string i64("\x10\x07", 2), i32("\x10\x06", 2), shape = field(3, std::string("\x03\x04", 2));  // [3, 4]
  auto flat = [&](const std::vector<int64_t> &all) {
    return found(all.size(), field(2, axes({all.size()}) + i64 + field(9, numbers(all))), shape);
  };
  auto pairs = [&](const std::vector<int64_t> &all) {
    return found(all.size() / 2, field(2, axes({all.size() / 2, 2}) + i64 + field(9, numbers(all))), shape);
  };
  EXPECT_EQ(flat({0, 5, 11}), "");
  EXPECT_EQ(flat({0, 5, 12}), "index 2 of its values is not in its shape");
  EXPECT_EQ(flat({-1, 5}), "index 0 of its values is not in its shape");
  EXPECT_EQ(flat({1, 1}), "index 1 of its values is there twice");
  EXPECT_EQ(flat({1, 7, 3}), "index 2 of its values is not behind the one before it");
  EXPECT_EQ(pairs({0, 3, 1, 0, 2, 3}), "");
  EXPECT_EQ(pairs({0, 3, 0, 4}), "index 1 of its values is not in its shape");
  EXPECT_EQ(pairs({1, 3, 1, 3}), "index 1 of its values is there twice");
  EXPECT_EQ(pairs({1, 3, 2, 0, 1, 3}), "index 2 of its values is not behind the one before it");
  EXPECT_EQ(found(2, "", shape), "the sparse tensor of 's.values' has no values, or they have no indices");
  EXPECT_EQ(found(0, "", shape), "");
  EXPECT_EQ(found(2, field(2, axes({3}) + i64 + field(9, numbers({0, 1, 2}))), shape),
            "it has not one index for each value");
  EXPECT_EQ(found(2, field(2, axes({2}) + i32 + field(9, numbers({0}))), shape), "its indices are not of int64");
  EXPECT_EQ(found(2, field(2, axes({2, 1}) + i64 + field(9, numbers({0, 1}))), shape),
            "its indices have not one number for each of its axes");
  EXPECT_EQ(found(3, field(2, axes({3}) + i64 + field(7, std::string("\x00\x05\x04", 3))), shape),
            "index 2 of its values is not behind the one before it");  // typed
  std::vector<int64_t> many(300000);                                   // of several windows
  for (size_t i = 0; i < many.size(); i++) many[i] = static_cast<int64_t>(i);
  const std::string large = field(3, std::string("\xE0\xA7\x12", 3));  // [300,000]
  auto of_many = [&] {
    return found(many.size(), field(2, axes({many.size()}) + i64 + field(9, numbers(many))), large);
  };
  EXPECT_EQ(of_many(), "");
  many[131072] = 131071;  // the first of the second window
  EXPECT_EQ(of_many(), "index 131072 of its values is there twice");
}

// ckpt walks a model of any size; protobuf libraries do not.
TEST(OnnxBounds, AModelThatProtobufCannotReadIsAProblem) {
  Folder folder;
  const std::string tensor = std::string("\x08\x02\x10\x02", 4) + field(8, "w") + field(9, "12");
  const std::string start =
      std::string("\x08\x08", 2) + field(7, field(5, tensor)) + field(8, std::string("\x10\x11", 2));
  const auto found = [&](uint64_t n_bytes) { /* of which a comment takes all but the start */
                                             const uint64_t n_text = n_bytes - start.size() - 6;
                                             std::string tag("\x32", 1);
                                             for (uint64_t n = n_text, i = 0; i < 5; i++, n >>= 7)
                                               tag += static_cast<char>(n | (i < 4 ? 128 : 0));
                                             spill(folder / "m.onnx", start + tag);
                                             std::filesystem::resize_file(folder / "m.onnx", n_bytes); /* sparse */
                                             IndexPointer index = must_open(folder / "m.onnx");
                                             ckpt_findings findings = {};
                                             ckpt_error err = {};
                                             EXPECT_EQ(ckpt_onnx_verify(&findings, index.get(), nullptr, &err), CKPT_OK)
                                                 << text_of(err);
                                             const std::string text = findings.n == 0 ? "" : said(findings.items[0]);
                                             EXPECT_TRUE(findings.n == 0 || findings.items[0].kind == CKPT_PROBLEM);
                                             ckpt_findings_free(&findings);
                                             return text;
  };
  EXPECT_EQ(found(2147483647), "");
  EXPECT_EQ(found(2147483648),
            "a model of 2147483648 bytes, and 2147483647 are what protobuf reads: onnx and ONNX Runtime cannot load it "
            "(external_data)");
}

// Numbers of complex values, each in a field of its own, as protobuf may hold them and nothing writes them.
TEST(OnnxBounds, ComplexValuesInPiecesAreRefused) {
  Folder folder;
  const auto said = [&](int type, const std::string &values) {
    const std::string tensor = std::string("\x08\x01\x10", 3) + static_cast<char>(type) + field(8, "w") + values;
    spill(folder / "a.onnx",
          std::string("\x08\x08", 2) + field(7, field(5, tensor)) + field(8, std::string("\x10\x11", 2)));
    ckpt_error err = {};
    return open(folder / "a.onnx", &err) == nullptr ? std::string(text_of(err)) : "";
  };
  const std::string single("\x25\0\0\0\0", 5), twice("\x51\0\0\0\0\0\0\0\0", 9);
  const auto refused = [&](const std::string &type) {
    return folder / "a.onnx" + ": tensor 'w': real and imaginary parts of its " + type +
           " stand in fields of their own, as no known program writes them (load and save it with onnx)";
  };
  EXPECT_EQ(said(14, field(4, std::string(8, '\0'))), "");
  EXPECT_EQ(said(14, single + single), refused("complex64"));
  EXPECT_EQ(said(15, field(10, std::string(16, '\0'))), "");
  EXPECT_EQ(said(15, twice + twice), refused("complex128"));
}

// Keys of what a model is, in a file of safetensors that anyone wrote: a new model states its own, and says so. One
// that is cut short is whole characters.
TEST(OnnxBounds, KeysOfAnotherModelSayNothing) {
  Folder folder;
  spill(
      folder / "a.safetensors",
      safetensors(R"({"__metadata__":{"onnx.ir_version":"99","onnx.opset.ai.onnx":"99","onnx.opset.x":"1","by":"me"},)"
                  R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  "1234"));
  ASSERT_EQ(convert_bare(folder / "a.safetensors", folder / "a.onnx"), "");
  IndexPointer index = must_open(folder / "a.onnx");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.ir_version"), "4");
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "onnx.opset.ai.onnx"), "9");
  EXPECT_EQ(ckpt_index_metadata(index.get(), "onnx.opset.x"), nullptr);
  EXPECT_STREQ(ckpt_index_metadata(index.get(), "by"), "me");
  EXPECT_EQ(index->n_notes, 0U);                                /* none of them stands in it, to be passed over */
  const std::string domain = std::string(99, 'd') + "\xC3\xA9"; /* its 100th byte is half a character */
  spill(folder / "b.onnx", model_of("w", field(8, field(1, domain) + std::string("\x10\x01", 2))));
  ASSERT_EQ(convert(folder / "b.onnx", folder / "b.safetensors"), "");
  index = must_open(folder / "b.safetensors");
  ASSERT_NE(index, nullptr);
  EXPECT_STREQ(ckpt_index_metadata(index.get(), ("onnx.opset." + std::string(99, 'd')).c_str()), "1");
}

}  // namespace
}  // namespace formats_testing
