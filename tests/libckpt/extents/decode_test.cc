// Decoders behind extents: in steps of any size, forward and back, cut off, damaged, and chains that nobody can read.
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <fstream>

#include "tests/libckpt/fake/fake_format.h"

extern "C" {
#include "libckpt/extents/decode.h"
}

namespace {

using namespace fake;

// One reader over file 0 of a source.
class Reader {
 public:
  explicit Reader(const std::string &bytes) { reader_.source = memory_source({{"file", bytes}}); }
  ~Reader() {
    ckpt_reader_reset(&reader_);
    ckpt_source_free(reader_.source);
  }
  ckpt_status read(const ckpt_extent &extent, uint32_t unit, uint64_t at, size_t n, std::string *out) {
    err = {};
    out->assign(n, '\0');
    return ckpt_reader_read(&reader_, &extent, unit, at, &(*out)[0], n, &err);
  }
  ckpt_error err = {};

 private:
  ckpt_reader reader_ = {};
};

ckpt_extent extent_of(size_t n_stored, uint8_t first, uint8_t second = CKPT_DECODE_RAW) {
  ckpt_extent extent = {};
  extent.n_stored = n_stored;
  extent.chain[0] = first;
  extent.chain[1] = second;
  return extent;
}

std::string varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  return out + static_cast<char>(value);
}

TEST(Decode, StepsOfAnySizeForwardAndBack) {
  for (uint64_t seed = first_seed(); seed < first_seed() + n_cases(40); seed++) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    Store store(&random, 1);
    Array array = random_array(&random, CKPT_U32, {random.between(1, 200000)});
    store.add("t", array, Form::kFlat, true);
    ckpt_error err = {};
    IndexPointer index = store.build(&err);
    ASSERT_TRUE(index) << text_of(err);
    ckpt_reader reader = {};
    reader.source = index->source;
    const ckpt_tensor *tensor = &index->tensors[0];
    for (int i = 0; i < 12; i++) {
      const ckpt_extent *extent = &tensor->extents[random.below(tensor->n_extents)];
      uint64_t at = random.below(extent->count), n = random.between(1, extent->count - at);
      std::vector<uint8_t> got(4 * n);
      ASSERT_EQ(ckpt_reader_read(&reader, extent, 4, extent->skip + 4 * at, got.data(), got.size(), &err), CKPT_OK)
          << text_of(err);
      const uint8_t *wanted = store.tensors()[0].array.bytes.data() + 4 * (extent->start + at);
      EXPECT_EQ(memcmp(got.data(), wanted, got.size()), 0);
    }
    ckpt_reader_reset(&reader);
  }
}

TEST(Decode, VarintsAcrossEveryRefill) {
  std::string stored, plain;
  for (uint64_t i = 0; i < 30000; i++) {
    uint64_t value = i % 3 == 0 ? UINT64_MAX - i : i * i * 977;
    stored += varint(value);
    plain.append(reinterpret_cast<char *>(&value), 8);
  }
  Reader reader(stored);
  ckpt_extent extent = extent_of(stored.size(), CKPT_DECODE_VARINT);
  std::string out;
  for (size_t step : {size_t{1}, size_t{13}, size_t{65536}, plain.size()}) {
    std::string all;
    for (size_t at = 0; at < (step < 64 ? 4000 : plain.size()); at += step) {
      ASSERT_EQ(reader.read(extent, 8, at, std::min(step, plain.size() - at), &out), CKPT_OK) << text_of(reader.err);
      all += out;
    }
    EXPECT_EQ(all, plain.substr(0, all.size())) << step;
  }
}

TEST(Decode, NegativeNumbersAreCutToTheElement) {
  std::string stored = varint(static_cast<uint64_t>(-5)) + varint(7), out;
  Reader reader(stored);
  ASSERT_EQ(reader.read(extent_of(stored.size(), CKPT_DECODE_VARINT), 4, 0, 8, &out), CKPT_OK);
  int32_t values[2];
  memcpy(values, out.data(), 8);
  EXPECT_EQ(values[0], -5);
  EXPECT_EQ(values[1], 7);
}

TEST(Decode, CutOffAndDamagedStreamsAreRefused) {
  std::string out, text(100000, 'a');
  for (size_t i = 0; i < text.size(); i++) text[i] = static_cast<char>(i * i >> 3);
  Random random(5);
  std::string varints;
  for (int i = 0; i < 100; i++) varints += varint(1000 + static_cast<uint64_t>(i));
  std::string deflated(compressBound(text.size()), '\0');
  uLongf n = deflated.size();
  ASSERT_EQ(
      compress(reinterpret_cast<Bytef *>(&deflated[0]), &n, reinterpret_cast<const Bytef *>(text.data()), text.size()),
      Z_OK);
  deflated = deflated.substr(2, n - 6);  // zlib's wrapper apart
  for (size_t cut = 0; cut < deflated.size(); cut += 1 + cut / 2) {
    Reader reader(deflated);
    EXPECT_EQ(reader.read(extent_of(cut, CKPT_DECODE_INFLATE), 1, 0, text.size(), &out), CKPT_EFORMAT) << cut;
    EXPECT_NE(std::string(reader.err.message).find("ends early"), std::string::npos);
  }
  Reader whole(deflated);
  EXPECT_EQ(whole.read(extent_of(deflated.size(), CKPT_DECODE_INFLATE), 1, 0, text.size(), &out), CKPT_OK);
  EXPECT_EQ(out, text);
  EXPECT_EQ(whole.read(extent_of(deflated.size(), CKPT_DECODE_INFLATE), 1, 0, text.size() + 1, &out), CKPT_EFORMAT);
  EXPECT_EQ(whole.read(extent_of(deflated.size(), CKPT_DECODE_ZSTD), 1, 0, 10, &out), CKPT_EFORMAT);
  for (size_t cut = 0; cut < varints.size(); cut += 7) {
    Reader reader(varints);
    EXPECT_EQ(reader.read(extent_of(cut, CKPT_DECODE_VARINT), 4, 0, 400, &out), CKPT_EFORMAT) << cut;
  }
  std::string endless(40, '\xFF');
  Reader reader(endless);
  EXPECT_EQ(reader.read(extent_of(40, CKPT_DECODE_VARINT), 4, 0, 4, &out), CKPT_EFORMAT);
  EXPECT_NE(std::string(reader.err.message).find("more than ten bytes"), std::string::npos);
}

TEST(Decode, ChainsThatNobodyCanReadAreRefused) {
  std::string out, bytes(100, 'x');
  Reader reader(bytes);
  EXPECT_EQ(reader.read(extent_of(100, CKPT_DECODE_ZSTD, CKPT_DECODE_INFLATE), 4, 0, 4, &out), CKPT_EUNSUPPORTED);
  EXPECT_EQ(reader.read(extent_of(100, CKPT_DECODE_RECORD, CKPT_DECODE_SWAPPED), 4, 0, 4, &out), CKPT_EUNSUPPORTED);
  EXPECT_EQ(reader.read(extent_of(100, CKPT_DECODE_VARINT, CKPT_DECODE_RECORD), 4, 0, 4, &out), CKPT_EUNSUPPORTED);
  EXPECT_EQ(reader.read(extent_of(100, CKPT_DECODE_VARINT), 16, 0, 16, &out), CKPT_EUNSUPPORTED);
}

// The table has a row for each decoder that is more than an order of bytes, a stream or a record's.
TEST(Decode, EveryDecoderHasARow) {
  EXPECT_EQ(ckpt_decoders[CKPT_DECODE_RAW], nullptr);
  EXPECT_EQ(ckpt_decoders[CKPT_DECODE_SWAPPED], nullptr);
  for (int i = CKPT_DECODE_SWAPPED + 1; i < CKPT_N_DECODERS; i++) {
    const ckpt_decoder_row *row = ckpt_decoders[i];
    ASSERT_NE(row, nullptr) << i;
    EXPECT_NE(row->stream == nullptr, row->record == nullptr) << row->name;
    const uint32_t n_tail = row->record == nullptr ? 0 : row->record->n_tail;
    EXPECT_LE(n_tail, static_cast<uint32_t>(CKPT_MAX_RECORD_TAIL)) << row->name;
    const ckpt_extent extent = extent_of(1, static_cast<uint8_t>(i));
    EXPECT_EQ(ckpt_extent_is_sequential(&extent), row->stream != nullptr) << row->name;
  }
}

TEST(Decode, BigEndianComplexNumbersAreTwoParts) {
  ckpt_error err = {};
  const char stored[] = "\x3f\x80\x00\x00\x40\x00\x00\x00";  // 1 + 2i
  ckpt_index *index = nullptr;
  ASSERT_EQ(ckpt_index_new(&index, memory_source({{"file", std::string(stored, 8)}}), "test", "fake", nullptr, &err),
            CKPT_OK);
  IndexPointer owner(index, ckpt_index_free);
  ckpt_extent extent = extent_of(8, CKPT_DECODE_SWAPPED);
  extent.count = 1;
  ASSERT_EQ(ckpt_index_add(index, "z", 1, CKPT_C64, 0, nullptr, CKPT_ROLE_PARAMETER, &extent, 1, nullptr, &err),
            CKPT_OK);
  ASSERT_EQ(ckpt_index_finish(index, &err), CKPT_OK) << text_of(err);
  float parts[2];
  std::vector<uint8_t> bytes = read_all(index, &index->tensors[0]);
  memcpy(parts, bytes.data(), 8);
  EXPECT_EQ(parts[0], 1.0f);
  EXPECT_EQ(parts[1], 2.0f);
}

// An index of one float32 tensor of 6 elements in one extent of `bytes`, read whole.
ckpt_status read_six(const std::string &bytes, uint8_t first, uint8_t second, std::vector<float> *out,
                     ckpt_error *err) {
  *err = {};
  ckpt_index *index = nullptr;
  EXPECT_EQ(ckpt_index_new(&index, memory_source({{"file", "xx" + bytes}}), "test", "fake", nullptr, err), CKPT_OK);
  IndexPointer owner(index, ckpt_index_free);
  ckpt_extent extent = extent_of(bytes.size(), first, second);
  extent.offset = 2;
  extent.count = 6;
  uint64_t shape = 6;
  EXPECT_EQ(ckpt_index_add(index, "t", 1, CKPT_F32, 1, &shape, CKPT_ROLE_PARAMETER, &extent, 1, nullptr, err), CKPT_OK);
  EXPECT_EQ(ckpt_index_finish(index, err), CKPT_OK) << text_of(*err);
  out->assign(6, -1);
  return ckpt_read(index, &index->tensors[0], nullptr, CKPT_DTYPE_NONE, out->data(), 24, err);
}

std::string as_zstd(const std::string &bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(&out[0], out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

TEST(Decode, TorchRecordsHoldExactlyWhatIsExpected) {
  ckpt_error err;
  std::vector<float> got, wanted = {0, 1, 2, 3, 4, 5};
  std::string plain(reinterpret_cast<const char *>(wanted.data()), 24);
  auto status = [&](const std::string &archive, bool compressed) {
    return compressed ? read_six(as_zstd(archive), CKPT_DECODE_ZSTD, CKPT_DECODE_RECORD, &got, &err)
                      : read_six(archive, CKPT_DECODE_RECORD, CKPT_DECODE_RAW, &got, &err);
  };
  for (bool compressed : {false, true}) {
    ASSERT_EQ(status(torch_archive(plain), compressed), CKPT_OK) << text_of(err);
    EXPECT_EQ(got, wanted);
    for (const std::string &other : {plain + plain, plain.substr(0, 12), std::string()}) {
      EXPECT_EQ(status(torch_archive(other), compressed), CKPT_EFORMAT) << other.size() << compressed;
      EXPECT_NE(std::string(err.message).find(other.size() < 24 && compressed ? "" : "expected"), std::string::npos);
    }
    TorchOptions options;
    options.byteorder = "middle";
    EXPECT_EQ(status(torch_archive(plain, options), compressed), CKPT_EFORMAT);
    options.byteorder = "";
    options.n_records = 0;
    EXPECT_EQ(status(torch_archive(plain, options), compressed), CKPT_EFORMAT);
    EXPECT_EQ(status("no archive at all, but long enough for a header", compressed), CKPT_EFORMAT);
    std::string whole = torch_archive(plain);
    for (size_t cut = 0; cut < 200; cut++)
      EXPECT_EQ(status(whole.substr(0, cut), compressed), CKPT_EFORMAT) << cut << text_of(err);
  }
  TorchOptions options;
  options.n_records = 2;
  EXPECT_EQ(status(torch_archive(plain, options), false), CKPT_EFORMAT);
  EXPECT_NE(std::string(err.message).find("has 2 data records"), std::string::npos);
  options = {};
  options.deflates = true;
  EXPECT_EQ(status(torch_archive(plain, options), false), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(status(torch_archive(plain, options), true), CKPT_EUNSUPPORTED);
  options = {};
  options.pickle_behind = true;
  EXPECT_EQ(status(torch_archive(plain, options), false), CKPT_OK) << text_of(err);
  EXPECT_EQ(status(torch_archive(plain, options), true), CKPT_EUNSUPPORTED);  // forwards, its strides are not known
  EXPECT_NE(std::string(err.message).find("without data.pkl before its data"), std::string::npos);
}

// What loading would call beside the tensor's own function, another shape of as many bytes, and bits that no byte has.
TEST(Decode, TorchRecordsAreOfPlainTensorsOfTheirShape) {
  ckpt_error err;
  std::vector<float> got, wanted = {0, 1, 2, 3, 4, 5};
  std::string plain(reinterpret_cast<const char *>(wanted.data()), 24),
      begin = "ctorch._utils\n_rebuild_tensor_v2\n(P0\nI0\n";
  struct {
    std::string pickle, message;
    ckpt_status status;
  } cases[] = {
      {begin + "K\x06\x85K\x01\x85\x89}tR.", "", CKPT_OK},
      {"cos\nsystem\n(S'true'\ntR0" + begin + "K\x06\x85K\x01\x85\x89}tR.",
       "would run code when it is unpickled: os.system", CKPT_EUNSUPPORTED},
      {"cm\nf\n)R)R0" + begin + "K\x06\x85K\x01\x85\x89}tR.", "would run code when it is unpickled: m.f",
       CKPT_EUNSUPPORTED},
      {begin + "K\x02K\x03\x86K\x03K\x01\x86\x89}tR.", "holds the shape [2,3], the metadata says [6]", CKPT_EFORMAT},
      {begin + "K\x06\x85K\x01\x85\x89}}S'conj'\n\x88stR.",
       "holds a conjugate or a negative of what has no sign, not a plain tensor", CKPT_EUNSUPPORTED},
  };
  for (const auto &one : cases) {
    TorchOptions options;
    options.pickle = one.pickle;
    std::string archive = torch_archive(plain, options);
    for (bool compressed : {false, true}) {
      err = {};
      EXPECT_EQ(compressed ? read_six(as_zstd(archive), CKPT_DECODE_ZSTD, CKPT_DECODE_RECORD, &got, &err)
                           : read_six(archive, CKPT_DECODE_RECORD, CKPT_DECODE_RAW, &got, &err),
                one.status)
          << one.pickle;
      EXPECT_NE(text_of(err).find(one.message), std::string::npos) << text_of(err);
    }
  }
}

// As torch 2.15 writes them.
TEST(Decode, FilesOfTorch) {
  ckpt_error err;
  std::vector<float> got;
  std::ifstream in(CKPT_TESTS_DIR "/fuzz/corpus/zip/torch-one", std::ios::binary);
  std::string archive((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  ASSERT_EQ(archive.size() % 64, 1577u % 64);
  ASSERT_EQ(read_six(archive, CKPT_DECODE_RECORD, CKPT_DECODE_RAW, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, (std::vector<float>{0, 1, 2, 3, 4, 5}));
  ASSERT_EQ(read_six(as_zstd(archive), CKPT_DECODE_ZSTD, CKPT_DECODE_RECORD, &got, &err), CKPT_OK) << text_of(err);
  EXPECT_EQ(got, (std::vector<float>{0, 1, 2, 3, 4, 5}));
}

// Readers of one thread share nothing; a record is looked up once, not for each read.
TEST(Decode, TorchRecordsAreLookedUpOnce) {
  std::string plain(4096, 'x'), out, archive = torch_archive(plain);
  ckpt_reader reader = {};
  reader.source = memory_source({{"file", archive}});
  ckpt_extent extent = extent_of(archive.size(), CKPT_DECODE_RECORD);
  char byte;
  for (uint64_t at = 0; at < plain.size(); at++)
    ASSERT_EQ(ckpt_reader_read(&reader, &extent, 1, at, &byte, 1, nullptr), CKPT_OK);
  EXPECT_LE(ckpt_source_bytes_read(reader.source), plain.size() + 3 * archive.size());
  ckpt_reader_reset(&reader);
  ckpt_source_free(reader.source);
}

}  // namespace
