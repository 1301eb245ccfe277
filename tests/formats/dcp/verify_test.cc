// What `verify` sees of a DCP folder beside its tensors: items of bytes, chunks read by their strides, zstd streams.
#include <zstd.h>

#include <array>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "libckpt/recipe/verify/verify.h"
}

namespace formats_testing {
namespace {

const std::string kData = std::string(CKPT_TESTS_DIR) + "/data/dcp/";

// The findings about an index's checksums, a line each.
std::string found_in(const ckpt_index *index, ckpt_crc_counts *counts) {
  ckpt_findings findings = {};
  ckpt_run_options run = {};
  run.struct_size = sizeof run;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_verify_crc(&findings, index, &run, counts, &err), CKPT_OK) << text_of(err);
  std::string text;
  for (size_t i = 0; i < findings.n; i++)
    text += std::string(findings.items[i].tensor == nullptr ? "" : findings.items[i].tensor) + ": " +
            findings.items[i].message + "\n";
  ckpt_findings_free(&findings);
  return text;
}

// The name of the one archive that a byte of a file lies in; "" where that is no item's.
std::string archive_at(const ckpt_index *index, const std::string &file, uint64_t at) {
  for (uint32_t i = 0; i < index->n_archives; i++) {
    const ckpt_archive &a = index->archives[i];
    if (ckpt_source_name(index->source, a.file) == file && at >= a.offset && at - a.offset < a.n_bytes) return a.name;
  }
  return "";
}

// Every byte of a record of every item has a checksum that is compared.
TEST(DcpVerify, ItemsOfBytesHaveChecksums) {
  for (const char *name : {"objects", "objects-zstd", "fsdp4"}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder.path(), std::filesystem::copy_options::recursive);
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    ckpt_crc_counts good, counts;
    EXPECT_EQ(found_in(index.get(), &good), "") << name;
    ASSERT_NE(index->n_archives, 0u) << name;
    for (uint32_t i = 0; i < index->n_archives; i++) {
      const ckpt_archive a = index->archives[i];
      EXPECT_EQ(a.is_zstd, std::string(name) == "objects-zstd");
      if (a.is_zstd) continue;
      const std::string path = ckpt_source_path(index->source, a.file), bytes = slurp(path);
      const size_t at = bytes.find("\x80\x02", a.offset);  // its pickle
      ASSERT_LT(at, a.offset + a.n_bytes);
      std::string damaged = bytes;
      damaged[bytes.find('.', at)] ^= 1;
      spill(path, damaged);
      EXPECT_NE(found_in(open(folder.path(), &err, true, true).get(), &counts).find(std::string(a.name) + ": record '"),
                std::string::npos)
          << name << " " << a.name << " " << archive_at(index.get(), path, at);
      EXPECT_EQ(counts.n_wrong, 1u);
      EXPECT_EQ(counts.n_checked, good.n_checked);
      spill(path, bytes);
    }
  }
}

// Metadata that names what runs code is a problem, also where all that it says of tensors is in order.
TEST(DcpVerify, MetadataThatWouldRunCodeIsAProblem) {
  for (const auto &[name, file] : std::vector<std::array<std::string, 2>>{
           {"dcp/fsdp4", ".metadata"}, {"dcp/no-collectives", "__1.metadata"}, {"dcpv2/fsdp", "metadata.pkl"}}) {
    Folder folder;
    std::filesystem::copy(std::string(CKPT_TESTS_DIR) + "/data/" + name, folder.path(),
                          std::filesystem::copy_options::recursive);
    std::string metadata = slurp(folder / file);
    ASSERT_EQ(metadata[0], '\x80') << name;
    for (const char *more : {"", "cposix\nsystem\n0"}) {
      spill(folder / file, metadata.substr(0, 2) + more + metadata.substr(2));
      ckpt_error err = {};
      IndexPointer index = open(folder.path(), &err);
      ASSERT_NE(index, nullptr) << name << ": " << text_of(err);
      std::string found;
      for (size_t i = 0; i < index->n_notes; i++)
        if (index->notes[i].is_problem) found += index->notes[i].text;
      EXPECT_EQ(found.find("would run code when it is unpickled: posix.system") != std::string::npos, more[0] != '\0')
          << name << ": " << found;
    }
  }
}

// What is left of a save without the files of one rank is whole: a file whose tensors are all broken is no one archive.
TEST(DcpVerify, FilesOfBrokenTensorsAreNotAccused) {
  for (const std::string name : {"app", "fsdp4", "mcore"}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder.path(), std::filesystem::copy_options::recursive);
    std::filesystem::remove(folder / "__1_0.distcp");
    IndexPointer index(nullptr, ckpt_index_free);
    EXPECT_EQ(broken_parts(folder.path(), &index).size(), 1u) << name;
    EXPECT_NE(index->n_unread, 0u) << name;
    ckpt_crc_counts counts;
    EXPECT_EQ(found_in(index.get(), &counts), "") << name;
    EXPECT_EQ(counts.n_wrong, 0u) << name;
  }
}

// A half without its metadata does not hide the other, and what is broken in either is told of its own metadata.
TEST(DcpVerify, HalvesOfACheckpointHaveTheirOwnMetadata) {
  for (const auto &[name, half, other] :
       std::vector<std::array<std::string, 3>>{{"accelerate", "pytorch_model_fsdp_0", "optimizer_0"},
                                               {"accelerate", "optimizer_0", "pytorch_model_fsdp_0"},
                                               {"apart", "model", "optimizer"},
                                               {"apart", "optimizer", "model"}}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder.path(), std::filesystem::copy_options::recursive);
    const std::string metadata = folder.path() + "/" + half + "/.metadata";
    std::string bytes = slurp(metadata);
    bytes.replace(bytes.find("relative_path"), 13, "relative_qath");
    spill(metadata, bytes);
    IndexPointer index(nullptr, ckpt_index_free);
    std::vector<std::string> reported = broken_parts(folder.path(), &index);
    ASSERT_NE(reported.size(), 0u) << name << " " << half;
    for (const std::string &defect : reported)
      EXPECT_TRUE(defect.find(metadata + ": tensor '") == 0 || defect.find(metadata + ": item 'param_groups") == 0 ||
                  defect.find(metadata + ": item 'optim") == 0)
          << half << ": " << defect;
    const uint32_t n_whole = index->n_tensors;
    EXPECT_NE(n_whole, 0u);
    std::filesystem::remove(metadata);
    reported = broken_parts(folder.path(), &index);
    ASSERT_EQ(reported.size(), 1u) << name << " " << half;
    EXPECT_EQ(reported[0].find(folder.path() + "/" + half + ": holds .distcp files without .metadata"), 0u);
    EXPECT_EQ(index->n_tensors, n_whole);
    std::filesystem::remove(folder.path() + "/" + other + "/.metadata");
    EXPECT_EQ(broken_parts(folder.path(), &index).size(), 2u);
    EXPECT_EQ(index->n_tensors, 0u);
  }
}

// Chunks that are read by their strides lie in archives all the same, and their file is none as a whole.
TEST(DcpVerify, ChunksReadByTheirStridesHaveChecksums) {
  ckpt_error err = {};
  uint32_t n_strided = 0;
  for (const auto &entry : std::filesystem::directory_iterator(kData)) {
    IndexPointer index = open(entry.path(), &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    for (uint32_t i = 0; i < index->n_tensors; i++) {
      const ckpt_tensor &tensor = index->tensors[i];
      if (tensor.details->extent_form != CKPT_EXTENT_STRIDED) continue;
      n_strided++;
      const ckpt_extent &extent = tensor.extents[0];
      const bool is_archive = extent.chain[0] == CKPT_DECODE_ZSTD || extent.chain[0] == CKPT_DECODE_RECORD;
      if (is_archive) continue;  // the extent itself is one
      EXPECT_NE(archive_at(index.get(), ckpt_source_name(index->source, extent.file), extent.offset), "");
    }
  }
  EXPECT_NE(n_strided, 0u);
}

TEST(DcpVerify, BytesBehindAStreamAreAProblem) {
  const std::string archive = slurp(std::string(CKPT_TESTS_DIR) + "/data/torch/tensor.pt");
  std::string packed(ZSTD_compressBound(archive.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), archive.data(), archive.size(), 3));
  for (const std::string &behind : {std::string(), std::string(9, '\0'), packed}) {
    const std::string bytes = packed + behind;
    ckpt_source *source = nullptr;
    ckpt_index *index = nullptr;
    ckpt_error err = {};
    ckpt_crc_counts counts;
    ASSERT_EQ(ckpt_source_memory(&source, bytes.data(), bytes.size(), "items", &err), CKPT_OK);
    ASSERT_EQ(ckpt_index_new(&index, source, "items", "dcp", nullptr, &err), CKPT_OK);
    ckpt_archive item = {};
    item.name = "item";
    item.n_bytes = bytes.size();
    item.is_zstd = true;
    ASSERT_EQ(ckpt_index_add_archive(index, &item, &err), CKPT_OK);
    const std::string problem = "item: bytes follow the zstd stream in its slice (" + std::to_string(behind.size()) +
                                " after " + std::to_string(packed.size()) + ")\n";
    EXPECT_EQ(found_in(index, &counts), behind.empty() ? "" : problem);
    EXPECT_EQ(counts.n_wrong, behind.empty() ? 0u : 1u);
    EXPECT_NE(counts.n_checked, 0u);
    ckpt_index_free(index);
  }
}

// The metadata says another dtype, of the same width, than the archives: none of their values is what it would be.
TEST(DcpVerify, ArchivesOfAnotherDtypeAreRefused) {
  for (const char *name : {"fsdp4", "zstd"}) {
    Folder folder;
    std::filesystem::copy(kData + name, folder.path(), std::filesystem::copy_options::recursive);
    const std::string path = folder.path() + "/.metadata";
    const std::string from = std::string("\x8c\x07") + "float32", to = std::string("\x8c\x05") + "int32";
    std::string bytes = slurp(path);
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << name;
    bytes.replace(at, from.size(), to);
    uint64_t n_frame;
    memcpy(&n_frame, &bytes[3], sizeof n_frame);
    n_frame -= from.size() - to.size();
    memcpy(&bytes[3], &n_frame, sizeof n_frame);
    spill(path, bytes);
    ckpt_error err = {};
    IndexPointer index = open(folder.path(), &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    ckpt_digest digest;
    ckpt_hash_options options = {};
    options.struct_size = sizeof options;
    EXPECT_EQ(ckpt_hash(index.get(), &options, &digest, &err), CKPT_EFORMAT) << name;
    EXPECT_NE(text_of(err).find("its torch.save archive holds f32, the metadata says i32"), std::string::npos)
        << text_of(err);
  }
}

// The problems of a folder's structure.
std::string problems_in(const std::string &folder) {
  ckpt_error err = {};
  IndexPointer index = open(folder, &err);
  if (index == nullptr) return text_of(err);
  ckpt_findings findings = {};
  EXPECT_EQ(ckpt_verify_structure(&findings, index.get(), &err), CKPT_OK) << text_of(err);
  std::string text;
  for (size_t i = 0; i < findings.n; i++)
    if (findings.items[i].kind == CKPT_PROBLEM) text += findings.items[i].message;
  ckpt_findings_free(&findings);
  return text;
}

// Each of torch's shards in safetensors has files of one numbered set.
TEST(DcpVerify, ShardsHaveFilesOfOneSet) {
  const auto problems = [](const std::string &one, const std::string &two) {
    Folder folder;
    const std::string ending = ".safetensors", from = kData + "hf-shards/shard-0000";
    spill(folder / ("shard-00001-model-" + one + ending), slurp(from + "1-model-00001-of-00001" + ending));
    spill(folder / ("shard-00002-model-" + two + ending), slurp(from + "2-model-00001-of-00001" + ending));
    return problems_in(folder.path());
  };
  EXPECT_EQ(problems("00001-of-00001", "00001-of-00001"), "");
  EXPECT_EQ(problems("00001-of-00002", "00002-of-00002"), "");
  EXPECT_NE(problems("00001-of-00002", "00002-of-00003").find("parts of 2 of the model's 3 files"), std::string::npos);
  EXPECT_NE(problems("00001-of-00002", "00001-of-00002").find("parts of 1 of the model's 2 files"), std::string::npos);
  EXPECT_NE(problems("00001-of-00001", "00002-of-00002").find("not of one set"), std::string::npos);
}

// What no shard says: how far tensors reach.
TEST(DcpVerify, ShardsDoNotProveShapes) {
  for (const auto &[name, is_shapes] : std::map<std::string, bool>{{"hf-shards", true}, {"fsdp4", false}}) {
    ckpt_error err = {};
    ckpt_findings findings = {};
    ckpt_run_options run = {};
    run.struct_size = sizeof run;
    IndexPointer index = open(kData + name, &err);
    ASSERT_NE(index, nullptr) << text_of(err);
    EXPECT_EQ(ckpt_verify_format(&findings, index.get(), &run, &err), CKPT_OK) << text_of(err);
    EXPECT_EQ(findings.n_of[CKPT_UNPROVEN], size_t{1}) << name;
    std::string said;
    for (size_t i = 0; i < findings.n; i++)
      if (findings.items[i].kind == CKPT_UNPROVEN) said = findings.items[i].message;
    EXPECT_EQ(said.rfind(is_shapes ? "shapes: " : "saves: ", 0), 0u) << name << ": " << said;
    ckpt_findings_free(&findings);
  }
}

// Each byte of a file of chunks is an item's, each item a name's.
TEST(DcpVerify, WhatNoMetadataNamesIsAProblem) {
  for (const auto &entry : std::filesystem::directory_iterator(kData)) {
    if (!entry.is_directory() || entry.path().filename() == "parts") continue;  // parts: of tensors, said by open
    EXPECT_EQ(problems_in(entry.path()), "") << entry.path();
  }
  Folder folder;
  std::filesystem::copy(kData + "mesh", folder.path(), std::filesystem::copy_options::recursive);
  const std::string metadata = slurp(folder / ".metadata"), data = slurp(folder / "__1_0.distcp");
  spill(folder / "__1_0.distcp", data + "more");
  EXPECT_EQ(problems_in(folder.path()),
            "bytes belong to no item that its metadata names (4 in 1 file, the first in "
            "__1_0.distcp from byte " +
                std::to_string(data.size()) + ")");
  spill(folder / "__1_0.distcp", data);
  // the second length or offset of 1,577 bytes is where "few" lies in __0_0.distcp: behind "both"
  const std::string number = std::string("M") + '\x29' + '\x06';
  std::string moved = metadata;
  moved.replace(moved.find(number, moved.find(number) + 3), 3, std::string("M\0\0", 3));
  spill(folder / ".metadata", moved);
  EXPECT_EQ(problems_in(folder.path()),
            "'state_dict.both' and 'state_dict.few' lie at one place of __0_0.distcp (byte 0; 1 such pairs): one of "
            "them is not what was savedbytes belong to no item that its metadata names (1577 in 1 file, the first in "
            "__0_0.distcp from byte 1577)");
}

TEST(DcpVerify, FilesThatTwoFoldersDoNotNameAreAProblem) {
  for (const std::string model : {"accelerate/pytorch_model_fsdp_0", "apart/model"}) {
    const std::string whole = model.substr(0, model.find('/')), part = model.substr(whole.size() + 1);
    Folder folder;
    std::filesystem::copy(kData + whole, folder.path(), std::filesystem::copy_options::recursive);
    spill(folder / (part + "/__9_0.distcp"), "left");
    EXPECT_NE(problems_in(folder.path()).find("holds " + part + "/__9_0.distcp, which its metadata does not name"),
              std::string::npos)
        << problems_in(folder.path());
  }
}

// What is not cut among ranks has one prefix, in the same folder too.
TEST(DcpVerify, NumberedFilesOfAModelAreOfOneSet) {
  const auto problems = [](const std::vector<std::string> &names) {
    Folder folder;
    std::string map;
    for (size_t i = 0; i < names.size(); i++) {
      const std::string tensor(1, static_cast<char>('a' + i)), file = names[i] + ".safetensors";
      spill(folder / file,
            safetensors("{\"" + tensor + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "1"));
      map += (i == 0 ? "\"" : ",\"") + tensor + "\":\"" + file + "\"";
    }
    spill(folder / "model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":{" + map + "}}");
    return problems_in(folder.path());
  };
  const std::string one = "model-00001-of-00002", two = "model-00002-of-00002";
  EXPECT_EQ(problems({one, two}), "");
  EXPECT_EQ(problems({one, two, "extra"}), "");  // has no number
  EXPECT_NE(problems({one, two, "extra-00001-of-00002"}).find("its 3 numbered files are not of one set"),
            std::string::npos);
  EXPECT_NE(problems({one, "other-00002-of-00002"}).find("not of one set"), std::string::npos);  // as long a prefix
  EXPECT_EQ(problems({"model-00000-of-00002", one}), "");                                        // counts from 0
  EXPECT_NE(problems({"model-00000-of-00002", two}).find("not of one set"), std::string::npos);
  EXPECT_NE(problems({one}).find("1 of the 2 numbered files"), std::string::npos);
}

// A copy of fsdp4 whose metadata say `after` instead of `before`, which is as long, the first time behind `from`; the
// problems that opening notes.
std::vector<std::string> problems_with(const std::string &from, const std::string &before, const std::string &after) {
  Folder folder;
  std::filesystem::copy(kData + "fsdp4", folder.path(), std::filesystem::copy_options::recursive);
  std::string bytes = slurp(folder / ".metadata");
  const size_t at = bytes.find(before, bytes.find(from));
  EXPECT_EQ(before.size(), after.size());
  EXPECT_NE(at, std::string::npos) << before;
  bytes.replace(at, after.size(), after);
  spill(folder / ".metadata", bytes);
  ckpt_error err = {};
  IndexPointer index = open(folder.path(), &err);
  if (index == nullptr) return {"cannot be opened: " + text_of(err)};
  std::vector<std::string> problems;
  for (const std::string &note : notes_of(index.get()))
    if (note[0] == '!') problems.push_back(note.substr(2));
  return problems;
}

// Names stand in state_dict_metadata, in planner_data and in storage_data: all of them are one, and a path is its name.
TEST(DcpVerify, NamesAgree) {
  EXPECT_EQ(problems_with("", "torch", "torch"), std::vector<std::string>());
  EXPECT_EQ(
      problems_with("planner_data", "model.2.weight", "model.3.weight"),
      std::vector<std::string>({"planner_data has no path for what state_dict_metadata names (1 item: model.2.weight)",
                                "planner_data has another path than the name says (1 item: model.3.weight)",
                                "planner_data has paths for what was not saved: a rank's own objects are lost (1 item: "
                                "model.3.weight)"}));
  const std::vector<std::string> elsewhere = problems_with("planner_data",
                                                           "\x08"
                                                           "2.weight",
                                                           "\x08"
                                                           "3.weight");
  EXPECT_EQ(elsewhere,
            std::vector<std::string>({"planner_data has another path than the name says (1 item: model.2.weight)"}));
  const std::vector<std::string> renamed = problems_with("", "model.2.weight", "model.3.weight");
  EXPECT_FALSE(renamed.empty());
}

// What PyTorch makes of each item, whether it uses it or not: a layout that it has, a number of a memory format.
TEST(DcpVerify, ItemsAreOfTheKindsOfPyTorch) {
  const std::string odd = "its metadata are not of the classes and kinds that PyTorch goes through (";
  for (const auto &[before, after] : std::vector<std::pair<std::string, std::string>>{
           {"torch.strided", "torch.stridee"}, {"ENCODING\x94\x93\x94K", "ENCODING\x94\x93\x94J"}}) {
    const std::vector<std::string> problems = problems_with("", before, after);
    ASSERT_FALSE(problems.empty()) << after;
    const bool is_read = problems[0].find("cannot be opened") == std::string::npos;
    EXPECT_TRUE(!is_read || problems[0].find(odd) == 0) << problems[0];
  }
  std::string five = "ENCODING\x94\x93\x94K";
  EXPECT_EQ(problems_with("", five + std::string(1, '\0'), five + "\5")[0].find(odd), 0u);
}

// PyTorch unpickles metadata whole, and loads nothing where it cannot find a class.
TEST(DcpVerify, ClassesAreThoseOfPyTorch) {
  for (const auto &[before, after] : std::vector<std::pair<std::string, std::string>>{
           {"torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.metadatb"},
           {"torch.distributed.checkpoint.metadata", "porch.distributed.checkpoint.metadata"},
           {"pathlib", "pathlic"},
           {"StorageMeta", "StorageMetb"},
           {"PosixPath", "PosixPatg"}}) {
    const std::vector<std::string> problems = problems_with("", before, after);
    ASSERT_FALSE(problems.empty()) << after;
    EXPECT_NE(problems[0].find("that PyTorch cannot find"), std::string::npos) << problems[0];
  }
}

}  // namespace
}  // namespace formats_testing
