// What the format tests share: opening, and writing a layout to memory without the run loop, so that formats are tested
// before and apart from it.
#pragma once

#include <gtest/gtest.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/format/format.h"
}

namespace formats_testing {

using Files = std::map<std::string, std::string>;  // name to bytes; "" where the output is one file
using IndexPointer = std::unique_ptr<ckpt_index, decltype(&ckpt_index_free)>;

inline std::string slurp(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

inline void spill(const std::string &path, const std::string &bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string sha256_of(const void *bytes, size_t n) {
  uint8_t digest[SHA256_DIGEST_LENGTH];
  SHA256(static_cast<const uint8_t *>(bytes), n, digest);
  std::string hex;
  for (uint8_t byte : digest) hex += "0123456789abcdef"[byte >> 4], hex += "0123456789abcdef"[byte & 15];
  return hex;
}

// A note with what to do about it.
inline std::string said(const ckpt_note &note) {
  char text[2048];
  return ckpt_advice_text(note.text, note.advice, "", nullptr, text, sizeof text);
}

inline std::string said(const ckpt_finding &finding) {
  char text[4096];
  return ckpt_advice_text(finding.message, finding.advice, finding.value, nullptr, text, sizeof text);
}

inline std::string text_of(const ckpt_error &err) {
  char text[2048];
  return ckpt_error_text(&err, text, sizeof text);
}

// The index of path, or null with err filled.
// What opening reports of parts that are broken, in order; *index has the others, and names what it leaves out.
inline std::vector<std::string> broken_parts(const std::string &path, IndexPointer *index) {
  std::vector<std::string> reported;
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.report_arg = &reported;
  options.report = [](void *arg, const ckpt_error *defect) {
    EXPECT_NE(defect->status, CKPT_OK);
    char text[8192];
    static_cast<std::vector<std::string> *>(arg)->push_back(ckpt_error_text(defect, text, sizeof text));
  };
  ckpt_index *opened = nullptr;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_open(&opened, path.c_str(), &options, &err), CKPT_OK) << err.message;
  index->reset(opened);
  EXPECT_EQ(opened == nullptr ? 0 : opened->defects.n, reported.size());
  return reported;
}

inline std::string names_of(const ckpt_index *index) {
  std::string names;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    names += std::string(i == 0 ? "" : " ") + ckpt_index_at(index, i)->name;
  for (uint32_t i = 0; i < index->n_unread; i++) names += std::string(i == 0 ? "; " : " ") + index->unread[i].name;
  return names;
}

// allow_corrupt: tests change bytes and leave the checksums.
inline IndexPointer open(const std::string &path, ckpt_error *err, bool stored_names = true,
                         bool allow_corrupt = false) {
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.stored_names = stored_names;
  options.allow_corrupt = allow_corrupt;
  ckpt_index *index = nullptr;
  ckpt_status status = ckpt_open(&index, path.c_str(), &options, err);
  EXPECT_EQ(status == CKPT_OK, index != nullptr);
  return IndexPointer(index, ckpt_index_free);
}

inline IndexPointer open_bytes(const std::string &bytes, ckpt_error *err, bool stored_names = true) {
  ckpt_open_options options = {};
  options.struct_size = sizeof options;
  options.stored_names = stored_names;
  ckpt_index *index = nullptr;
  ckpt_status status = ckpt_open_memory(&index, bytes.data(), bytes.size(), "memory", &options, err);
  EXPECT_EQ(status == CKPT_OK, index != nullptr);
  return IndexPointer(index, ckpt_index_free);
}

// A tensor's bytes; its extents have to be raw and in order, or one literal.
inline std::string bytes_of(const ckpt_index *index, const ckpt_tensor *tensor) {
  std::string bytes;
  if (tensor->n_extents == 1 && tensor->extents[0].file == CKPT_FILE_LITERAL)
    for (; bytes.size() < tensor->n_bytes;)
      bytes += static_cast<char>(tensor->extents[0].offset >> 8 * (bytes.size() % 8));
  for (uint32_t i = 0; i < tensor->n_extents && tensor->extents[i].file != CKPT_FILE_LITERAL; i++) {
    std::string piece(tensor->extents[i].n_stored, '\0');
    EXPECT_EQ(ckpt_source_read(index->source, tensor->extents[i].file, tensor->extents[i].offset, piece.data(),
                               piece.size(), nullptr),
              CKPT_OK);
    bytes += piece;
  }
  EXPECT_EQ(bytes.size(), tensor->n_bytes) << tensor->name;
  return bytes;
}

inline std::string bytes_of(const ckpt_index *index, const ckpt_side_file *side) {
  if (side->text != nullptr) return std::string(side->text, side->n_bytes);
  std::string bytes(side->n_bytes, '\0');
  EXPECT_EQ(ckpt_source_read(index->source, side->file, 0, bytes.data(), bytes.size(), nullptr), CKPT_OK);
  return bytes;
}

// One segment at its place in a memory sink.
inline void write_segment(const ckpt_layout *layout, const ckpt_index *from, ckpt_sink *sink, uint32_t file,
                          ckpt_segment *segment) {
  std::string bytes;
  char window[100];  // small: generators must not depend on it
  ckpt_stream out;
  switch (segment->kind) {
    case CKPT_SEGMENT_LITERAL:
    case CKPT_SEGMENT_FOOTER:
    case CKPT_SEGMENT_TRAILER:
      ckpt_stream_sink(&out, sink, file, segment->offset, window, sizeof window, nullptr);
      segment->print(layout, segment->arg, &out);
      ASSERT_EQ(ckpt_stream_end(&out), CKPT_OK);
      ASSERT_EQ(out.n_bytes, segment->n_bytes);
      return;
    case CKPT_SEGMENT_TENSOR:
      bytes = bytes_of(from, &from->tensors[layout->index->tensors[segment->tensor].details->origin]);
      break;
    case CKPT_SEGMENT_SIDE_FILE: bytes = bytes_of(from, segment->side); break;
  }
  ASSERT_EQ(bytes.size(), segment->n_bytes);
  if (segment->checksum == CKPT_CHECKSUM_CRC32)
    segment->crc32 = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef *>(bytes.data()), bytes.size()));
  ASSERT_EQ(ckpt_sink_write(sink, file, segment->offset, bytes.data(), bytes.size(), nullptr), CKPT_OK);
}

// A description of the index's tensors, of which number i has origin i, and of all it holds beside them.
inline ckpt_index *describe(const ckpt_index *from, ckpt_error *err) {
  ckpt_index *index = nullptr;
  EXPECT_EQ(ckpt_index_new(&index, nullptr, from->path, from->format, nullptr, err), CKPT_OK);
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor &t = from->tensors[i];
    uint32_t number = 0;
    EXPECT_EQ(ckpt_index_add(index, t.name, strlen(t.name), static_cast<ckpt_dtype>(t.dtype), t.rank, t.shape,
                             static_cast<ckpt_role>(t.role), nullptr, 0, &number, err),
              CKPT_OK);
    index->tensors[number].details->origin = i;
    index->tensors[number].details->like = i + 1;
    for (const char *const *alias = t.aliases; alias != nullptr && *alias != nullptr; alias++)
      EXPECT_EQ(ckpt_index_alias(index, number, *alias, err), CKPT_OK);
    index->tensors[number].details->n_extra_names = t.details->n_extra_names;
  }
  EXPECT_EQ(ckpt_index_carry(index, from, err), CKPT_OK);
  return index;
}

// What `format` writes for an index: its files. A failure gives none and fills err; losses are the loss texts, notes
// those on what is written.
inline Files write(const char *format_name, const ckpt_index *from, ckpt_layout_options options, ckpt_error *err,
                   std::vector<std::string> *losses_out = nullptr, std::vector<std::string> *notes = nullptr) {
  const ckpt_format *format = ckpt_format_find(format_name);
  ckpt_index *described = describe(from, err);
  ckpt_losses losses = {};
  losses.arena = &described->arena;
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(1) << 32);
  ckpt_layout layout = {};
  layout.arena = &arena;
  layout.index = described;
  Files files;
  ckpt_status status = ckpt_normalize(format, described, &losses, err);
  for (uint32_t i = 0; losses_out != nullptr && i < losses.n; i++) losses_out->push_back(losses.texts[i]);
  for (uint32_t i = 0; notes != nullptr && i < described->n_notes; i++) notes->push_back(said(described->notes[i]));
  if (status == CKPT_OK) status = format->layout(&layout, &options, err);
  if (status == CKPT_OK) status = ckpt_layout_finish(&layout, err);
  if (status == CKPT_OK) {
    ckpt_sink *sink = nullptr;
    EXPECT_EQ(ckpt_sink_memory(&sink, nullptr), CKPT_OK);
    std::vector<ckpt_sink_file> wanted;
    for (uint32_t i = 0; i < layout.n_files; i++) wanted.push_back({layout.files[i].name, layout.files[i].n_bytes});
    EXPECT_EQ(ckpt_sink_open(sink, wanted.data(), layout.n_files, nullptr), CKPT_OK);
    for (uint32_t i = 0; i < layout.n_files; i++)
      for (uint32_t k = 0; k < layout.files[i].n_segments; k++)
        write_segment(&layout, from, sink, i, &layout.files[i].segments[k]);
    EXPECT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
    for (uint32_t i = 0; i < layout.n_files; i++) {
      uint64_t n;
      const void *bytes = ckpt_sink_bytes(sink, i, &n);
      files[layout.files[i].name == nullptr ? "" : layout.files[i].name] =
          std::string(static_cast<const char *>(bytes), n);
    }
    ckpt_sink_free(sink);
  }
  ckpt_index_free(described);
  ckpt_arena_free(&arena);
  return files;
}

inline void spill(const Folder &folder, const Files &files) {
  for (const auto &file : files) spill(folder / file.first, file.second);
}

// Notes as text, problems marked with "! ".
inline std::vector<std::string> notes_of(const ckpt_index *index) {
  std::vector<std::string> notes;
  for (uint32_t i = 0; i < index->n_notes; i++)
    notes.push_back((index->notes[i].is_problem ? "! " : "") + said(index->notes[i]));
  return notes;
}

// A safetensors file: header text and payload.
inline std::string safetensors(const std::string &header, const std::string &payload) {
  std::string bytes(8, '\0');
  for (int i = 0; i < 8; i++) bytes[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i));
  return bytes + header + payload;
}

}  // namespace formats_testing
