// A format that exists only in tests, with what later formats will ask of the center: several files, one tensor in
// boxes of different files (as DCP with W ranks), files behind an encoder, padding, checksums, trailers and footers
// that see them, literals behind footers, aliases, roles, objects, side files; `normalize` drops, casts and says so.
//
//   part-<k>.bin  "FAKE part <k>\n", tensor segments with zeros between them, "<crc>" after every other,
//                 footer "crc <hex>...\n", "END\n"
//
//   z.bin         (with zstd_level) the same with every third tensor as a zstd frame; boxes in odd parts are frames too
//
//   index.txt     one footer: everything that `open` needs, sizes, offsets and checksums of all files included
//
// Side files are as they are.
//
// A frame may hold the zeros before its tensor and the checksum behind it as well.
//
// "drop.*" is not held, "narrow.*" of f64 becomes f32.
#pragma once

#include "tests/libckpt/fake/fake_store.h"

namespace fake {

extern const ckpt_format format;

// Opens what the format wrote.
IndexPointer open_fake(const std::map<std::string, std::string> &files, ckpt_error *err);

// Checks the checksum of every segment that index.txt states; "" or what is wrong.
std::string check_checksums(const std::map<std::string, std::string> &files);

// A plan's output into memory, in this format or another row.
uint32_t add_output(ckpt_plan *plan, MemorySink *into, const ckpt_format *row, uint32_t world, int zstd_level,
                    Faults *faults = nullptr);

// "" or the first difference: names, dtypes, shapes, roles, aliases, bytes, metadata, objects, side files.
std::string difference(const ckpt_index *a, const ckpt_index *b);

std::vector<uint8_t> read_all(const ckpt_index *index, const ckpt_tensor *tensor);
std::string text_of(const ckpt_error &err);
ckpt_dtype random_dtype(Random *random);

// CKPT_TEST_SEED: the first seed (1); CKPT_TEST_FULL: twenty times as many cases.
uint64_t first_seed();
uint64_t n_cases(uint64_t usually);

}  // namespace fake
