// Scan: no byte of an archive hides what its pickle calls, no tensor is taken for a pickle; tests/tools/cases/scan.sh
// has the files.
#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "tests/build.h"

extern "C" {
#include "libckpt/codec/zip/write.h"
#include "libckpt/recipe/scan/scan.h"
}

namespace {

const std::string kBad = CKPT_TESTS_DIR "/data/scan/bad/";
const std::string kCall = "cposix\nsystem\n(X\x04";  // of make_scan.py, up to the length's zeros

std::string ReadFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Problems of bytes, and pickles in them.
size_t Scan(const std::string &bytes, uint64_t *n_pickles = nullptr) {
  ckpt_scan scan = {};
  ckpt_error err = {};
  EXPECT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", &err), CKPT_OK) << err.message;
  size_t n = scan.findings.n_of[CKPT_PROBLEM];
  if (n_pickles != nullptr) *n_pickles = scan.n_pickles;
  ckpt_scan_free(&scan);
  return n;
}

// A change of any byte outside of the pickle leaves it found, or the archive refused.
TEST(Scan, NoByteOfAnArchiveHidesAPickle) {
  for (const char *name : {"torch.pt", "nested.zip", "deflated.pt"}) {
    std::string whole = ReadFile(kBad + name);
    ASSERT_GT(Scan(whole), 0u) << name;
    size_t pickle = whole.find(kCall), end = pickle + 27;
    if (pickle == std::string::npos) pickle = 46, end = pickle + static_cast<uint8_t>(whole[18]);  // deflated
    for (size_t i = 0; i < whole.size(); i++) {
      if (i + 2 >= pickle && i < end) continue;
      for (uint8_t change : {0x01, 0x40, 0xff}) {
        std::string changed = whole;
        changed[i] = static_cast<char>(changed[i] ^ change);
        ASSERT_GT(Scan(changed), 0u) << name << " byte " << i << " ^ " << int{change};
      }
    }
  }
}

// What is named before a pickle breaks is in the problem, whether it is called before, behind, or out of sight.
TEST(Scan, WhatABrokenPickleNamesIsNamed) {
  const std::string text("X\x02\0\0\0ls\x85R.", 11), start("\x80\x02(NNN", 6), foreign = start + "cmine\nThing\n";
  const std::string hex = start + "I0x10\n";
  for (const auto &[bytes, said] : std::vector<std::pair<std::string, std::string>>{
           {foreign, "names mine.Thing, named at byte 6 (foreign)"},
           {(foreign + text).substr(0, foreign.size() + 8), "names mine.Thing, named at byte 6 (foreign)"},
           {(foreign + text).substr(0, foreign.size() + 9), "calls mine.Thing, named at byte 6 (foreign)"},
           {hex + "cmine\nThing\n" + text, "what follows names mine.Thing and calls it"},
           {hex + "cmine\n" + std::string(300, 'x') + "\n" + text,
            "what follows names mine." + std::string(195, 'x') + " and calls it"},
           {hex + "X\x01" + std::string(3, '\0') + "mX\x01" + std::string(3, '\0') + "f\x93" + text,
            "what follows names something and calls it"}}) {
    ckpt_scan scan = {};
    ckpt_error err = {};
    ASSERT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", &err), CKPT_OK) << err.message;
    std::string all;
    for (size_t i = 0; i < scan.findings.n; i++) all += std::string(scan.findings.items[i].message) + "\n";
    EXPECT_NE(all.find(said + "\n"), std::string::npos) << all;
    ckpt_scan_free(&scan);
  }
}

// Cut anywhere behind the call, it is still one; and cut anywhere, nothing but its beginning passes.
TEST(Scan, TruncationHidesNothingThatHasBeenCalled) {
  for (const char *name : {"torch.pt", "reduce4.pkl", "reduce0.pkl", "memo.pkl", "legacy.pt", "payload.joblib"}) {
    std::string whole = ReadFile(kBad + name);
    size_t call = whole.find("tR"), from = call == std::string::npos ? whole.size() : call + 2;
    for (size_t n = from; n <= whole.size(); n++) ASSERT_GT(Scan(whole.substr(0, n)), 0u) << name << " of " << n;
  }
}

// What tensors may hold is no pickle: uniform bytes, small integers, and half floats near one value; also where they
// begin as PROTO does, which one in 10,000 does, next to none is.
TEST(Scan, TensorsAreNoPickles) {
  std::mt19937_64 random(20240501);
  uint64_t n_forced = 0, n_others = 0, n_pickles;
  for (int i = 0; i < 60000; i++) {
    std::string bytes(256, '\0');
    for (size_t k = 0; k < bytes.size(); k += 8) {
      uint64_t value = random();
      if (i % 3 == 1) value &= 0x0f0f0f0f0f0f0f0f;
      if (i % 3 == 2) value = (value & 0x00ff00ff00ff00ff) | 0x3c003c003c003c00;
      memcpy(&bytes[k], &value, sizeof value);
    }
    bool is_forced = i % 5 == 0;
    if (is_forced) bytes[0] = static_cast<char>(0x80), bytes[1] = static_cast<char>(i % 6);
    size_t n = Scan(bytes, &n_pickles);
    ASSERT_TRUE(is_forced || n == 0) << "buffer " << i;
    (is_forced ? n_forced : n_others) += n + n_pickles;
  }
  EXPECT_LT(n_forced, 12u);  // of 12,000: docs/formats/pickle.md
  EXPECT_EQ(n_others, 0u);
}

// Text that begins as an opcode does.
TEST(Scan, TextIsNoPickle) {
  for (const char *text :
       {"class Foo:\n  pass\n", "(in a way\nit is\nR.\n", "Introduction\n\nR.", "import os\nos.system\n",
        "cat\ndog\nRabbit.", "PK\n", "x", "", "ZF", "}", "0", "(((((", "cos\nsystem\n"})
    if (std::string(text) == "cos\nsystem\n")
      EXPECT_GT(Scan(text), 0u);  // a name that is dangerous to load
    else
      EXPECT_EQ(Scan(text), 0u) << text;
}

// The walk's bound: archives whose records overlap are not gone through again and again.
TEST(Scan, OverlappingRecordsAreBounded) {
  std::string header("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a", 31), bytes;
  // Each is a pickle up to the last byte, in which the headers behind it are texts: 1.2 GB in all.
  for (int i = 0; i < 8000; i++) bytes += header + std::string("X\x1f\0\0\0", 5);
  bytes += std::string(31, ' ') + ".";
  ckpt_scan scan = {};
  ASSERT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", nullptr), CKPT_OK);
  bool is_stopped = false;
  for (size_t i = 0; i < scan.findings.n; i++)
    is_stopped |= strstr(scan.findings.items[i].message, "not looked into any further") != nullptr;
  EXPECT_TRUE(is_stopped);
  ckpt_scan_free(&scan);
}

// A zip archive of (name, content), as torch.save has them.
std::string Archive(const std::vector<std::pair<std::string, std::string>> &contents) {
  std::vector<ckpt_zip_record> records;
  for (const auto &record : contents)
    records.push_back(
        {record.first.c_str(), record.second.size(), 0, ckpt_zip_crc32(record.second.data(), record.second.size())});
  uint32_t n = static_cast<uint32_t>(records.size());
  uint64_t directory = ckpt_zip_place(records.data(), n), n_bytes;
  ckpt_sink *sink = nullptr;
  ckpt_sink_file file = {"archive", CKPT_SIZE_UNKNOWN};
  char window[4096];
  ckpt_stream out;
  EXPECT_EQ(ckpt_sink_memory(&sink, nullptr), CKPT_OK);
  EXPECT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
  ckpt_stream_sink(&out, sink, 0, 0, window, sizeof window, nullptr);
  for (uint32_t i = 0; i < n; i++) ckpt_zip_put_record(&out, &records[i], contents[i].second.data());
  ckpt_zip_put_end(&out, records.data(), n, directory);
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_OK);
  const void *bytes = ckpt_sink_bytes(sink, 0, &n_bytes);
  std::string archive(static_cast<const char *>(bytes), n_bytes);
  ckpt_sink_free(sink);
  return archive;
}

// What torch.load begins with is a pickle, or broken: nothing else.
TEST(Scan, TheObjectOfAnArchiveIsAPickle) {
  const std::string ones(8, '\xff'), two = "\x80\x02", four = "\x80\x04";
  for (const std::string &broken : {four + "\x95" + ones + "N.", four + "\x8d" + ones + "abc.", two + "0000.",
                                    two + "\x8b\xff\xff\xff\x7fx.", std::string("abc")}) {
    EXPECT_EQ(Scan(Archive({{"a/data.pkl", broken}})), 1u) << testing::PrintToString(broken);
    EXPECT_EQ(Scan(Archive({{"a/data/0", broken}})), 0u) << testing::PrintToString(broken);
  }
  EXPECT_EQ(Scan(Archive({{"a/data.pkl", two + "N."}})), 0u);
}

std::string Frame(const std::string &bytes) {
  std::string out(ZSTD_compressBound(bytes.size()), '\0');
  out.resize(ZSTD_compress(&out[0], out.size(), bytes.data(), bytes.size(), 1));
  return out;
}

std::string Gzip(const std::string &bytes) {
  z_stream z = {};
  std::string out(bytes.size() / 100 + 4096, '\0');
  EXPECT_EQ(deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  z.next_in = reinterpret_cast<Bytef *>(const_cast<char *>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef *>(&out[0]);
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// More than is held at once: gone through all the same, wherever the pickle is.
TEST(Scan, LargeFramesHideNothing) {
  const std::string zeros(10 << 20, '\0'), few(4 << 20, '\0'), good = "\x80\x04}.",
                                                               bad = ReadFile(kBad + "reduce4.pkl");
  ASSERT_GT(Scan(bad), 0u);
  using Records = std::vector<std::pair<std::string, std::string>>;
  uint64_t n_pickles = 0;
  Records honest = {{"a/data.pkl", good}, {"a/data/0", zeros}, {"a/data/1", few}, {"a/version", "3\n"}};
  EXPECT_EQ(Scan(Frame(Archive(honest)) + Frame(Archive(honest)), &n_pickles), 0u);
  EXPECT_EQ(n_pickles, 2u);
  EXPECT_EQ(Scan(Gzip(Archive(honest)), &n_pickles), 0u);
  EXPECT_EQ(n_pickles, 1u);
  for (size_t place = 0; place <= honest.size(); place++) {
    Records records = honest;
    records.insert(records.begin() + static_cast<std::ptrdiff_t>(place), {"a/other.pkl", bad});
    std::string archive = Archive(records), frame = Frame(archive);
    EXPECT_GT(Scan(frame), 0u) << place;
    EXPECT_GT(Scan(Gzip(archive)), 0u) << place;
    EXPECT_GT(Scan(Frame(zeros) + frame), 0u) << place;
    EXPECT_GT(Scan(frame.substr(0, frame.size() - 20)), 0u) << place;
    EXPECT_GT(Scan(frame + "behind"), 0u) << place;
  }
  std::string frame = Frame(Archive(honest));
  EXPECT_GT(Scan(frame.substr(0, frame.size() - 20)), 0u); /* broken is not honest */
}

// A frame asks for as much memory as its window: up to 8 MiB it is looked into, a wider one is a problem, said as such.
TEST(Scan, WideWindowsAreNotLookedInto) {
  const std::string good = "\x80\x04}.";
  for (int log = 22; log <= 27; log++) {
    std::string packed(1000, '\0');
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, log);
    ZSTD_inBuffer in = {good.data(), good.size(), 0};
    ZSTD_outBuffer out = {&packed[0], packed.size(), 0};
    EXPECT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_flush), 0u);  // so that its size is not known
    EXPECT_EQ(ZSTD_compressStream2(context, &out, &in, ZSTD_e_end), 0u);
    ZSTD_freeCCtx(context);
    packed.resize(out.pos);
    uint64_t n_pickles = 0;
    EXPECT_EQ(Scan(packed, &n_pickles), log > 23 ? 1u : 0u) << log;
    EXPECT_EQ(n_pickles, log > 23 ? 0u : 1u) << log;
    packed[5] = '\x01', packed[6] = '\xFF';  // no block of any kind
    EXPECT_EQ(Scan(packed), 1u) << log;
  }
}

// A pickle may do nothing for more than any buffer holds, and call then; tests/data/scan/bad/idle.pt is one deflated.
TEST(Scan, WhatIsCompressedIsLookedAtToItsEnd) {
  std::string idle = "Np0\n", get = "g" + std::string(100000, '0') + "\n0";
  while (idle.size() < 280000000) idle += get;
  idle += ReadFile(kBad + "reduce0.pkl");
  EXPECT_GT(Scan(Frame(idle)), 0u);
  EXPECT_GT(Scan(Gzip(idle)), 0u);
}

// Whatever stands before an archive and, up to what zipfile searches, behind it.
TEST(Scan, AnArchiveIsFoundBehindAnything) {
  std::string whole = ReadFile(kBad + "torch.pt"), numbers = ReadFile(kBad + "../good/numbers.npy");
  for (size_t n_behind : {0, 1, 22, 1000, 65535})
    for (const std::string &before : {numbers, std::string(5000, 'a'), std::string(1024, '\0'), std::string("\x9f")})
      ASSERT_GT(Scan(before + whole + std::string(n_behind, '\0')), 0u) << before.size() << " and " << n_behind;
}

// Numbers are no pickles, however their arrays are written: also what is behind a dtype that is not known.
TEST(Scan, ArraysOfNumbersPass) {
  for (const char *descr :
       {"'<f4'", "'|b1'", "'>i8'", "'<M8[ns]'", "'<U12'", "'|S3'", "'<c16'", "'|V2'", "[('a', '<f4'), ('b', '<i8')]"}) {
    std::string header = std::string("{'descr': ") + descr + ", 'fortran_order': False, 'shape': (2, 3), }";
    header += std::string(117 - header.size(), ' ') + "\n";
    EXPECT_EQ(Scan(std::string("\x93NUMPY\x01\0\x76\0", 10) + header + std::string(96, '\x3f')), 0u) << descr;
  }
}

// An honest tar archive passes, also where its last member is a zip archive.
TEST(Scan, TarOfAnArchivePasses) {
  std::string inner = ReadFile(kBad + "../good/tensors.pt"), header(512, '\0');
  char number[16];
  snprintf(number, sizeof number, "%011o", static_cast<unsigned>(inner.size()));
  header.replace(0, 4, "a.pt");
  header.replace(124, 11, number);
  header.replace(148, 8, 8, ' ');
  unsigned sum = 0;
  for (char c : header) sum += static_cast<uint8_t>(c);
  snprintf(number, sizeof number, "%06o", sum);
  header.replace(148, 6, number);
  std::string bytes = header + inner + std::string((512 - inner.size() % 512) % 512 + 1024, '\0');
  uint64_t n_pickles;
  EXPECT_EQ(Scan(bytes, &n_pickles), 0u);
  EXPECT_GT(n_pickles, 0u);
}

// All of a literal, with its zeros.
template <size_t n>
std::string Zeros(const char (&text)[n]) {
  return std::string(text, n - 1);
}

// posix.system("true"), by names; and by texts that stand in the memo under 0 and 1, and call below them.
const std::string kSystem = Zeros("cposix\nsystem\nX\x04\0\0\0true\x85R.");
const std::string kTexts = "\x8c\x05posixq", kMore =
                                                 "0\x8c\x06systemq\x01"
                                                 "0";
const std::string kFromMemo = Zeros("h\0h\x01\x93X\x04\0\0\0true\x85R.");
const std::string kHandled = Zeros(
                      "cmine\nrun\nq\x02"
                      "0"),
                  kFromHandled = "h\x02)R.";

// As the object of an array, of numpy's own spelling.
std::string Objects(const std::string &pickle) {
  std::string header = "{'descr': '|O', 'fortran_order': False, 'shape': (), }";
  return std::string("\x93NUMPY\x01\0\x76\0", 10) + header + std::string(117 - header.size(), ' ') + "\n" + pickle;
}

// A frame that zstd skips is a pickle, too: the first byte of its magic may be any of sixteen opcodes.
TEST(Scan, WhatLooksSkippableIsAPickle) {
  std::string pickle = Zeros("U*M\x18"), text(36, 'A');
  uint32_t n = static_cast<uint32_t>(text.size() + 1 + kSystem.size());
  pickle += std::string(reinterpret_cast<char *>(&n), 4) + text + "0" + kSystem;
  EXPECT_GT(Scan(pickle), 0u);
  EXPECT_GT(Scan(Archive({{"a/data.pkl", pickle}})), 0u);
  EXPECT_GT(Scan(Archive({{"a/data.pkl", Archive({{"a", "b"}})}})), 0u);  // an object is a pickle, and nothing else
}

// Where Python accepts what no pickler writes, what stands before it counts: names, and texts for names.
TEST(Scan, WhatOnlyPythonAcceptsHidesNothing) {
  const std::string texts = kTexts + Zeros("\0") + kMore;
  for (const std::string &odd :
       {std::string("NNb0"),
        std::string("NNN\x86"
                    "b0"),
        std::string("N(e0"), std::string("N(u0"),
        std::string("N(\x90"
                    "0"),
        std::string("]K") + Zeros("\0NsN") + "0" + "0", std::string("I0x1\n0"), std::string("F1_0\n0"),
        std::string("L0x1L\n0"), Zeros("\x96\1\0\0\0\0\0\0\0aK\1a0")}) {
    EXPECT_GT(Scan(texts + odd + kFromMemo), 0u) << testing::PrintToString(odd);
    EXPECT_GT(Scan(kHandled + odd + kFromHandled), 0u) << testing::PrintToString(odd);
    EXPECT_GT(Scan(Objects(texts + odd + kFromMemo)), 0u) << testing::PrintToString(odd);
    EXPECT_GT(Scan(odd + "N." + kSystem), 0u) << testing::PrintToString(odd);  // the next of several
  }
  EXPECT_GT(Scan("cmine\nrun\n]R."), 0u);  // Python's own reader, without C, takes any sequence of arguments
  // Where Python refuses, too, nothing behind it runs.
  for (const char *end : {"0", "R", "t", "h\x07", "\xff", "1"})
    EXPECT_EQ(Scan(std::string(end) + kSystem), 0u) << testing::PrintToString(end);
}

// Several pickles, as in legacy torch files, the first of them spelled in any way.
TEST(Scan, TheNextPickleIsLookedAt) {
  const std::string magic = "119547037146038801333356", rest = "I1001\n.(d.";
  const std::string bytes = "\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
  for (const std::string &first :
       {"N0L" + magic + "L\n.", "L" + magic + "\n.", "I" + magic + "\n.", "L0" + magic + "L\n.",
        std::string("L0x1950a86a20f9469cfc6cL\n."), Zeros("\x8b\x0a\0\0\0") + bytes + "."}) {
    EXPECT_GT(Scan(first + rest + kSystem), 0u) << first;
    EXPECT_GT(Scan(first + rest + "(d." + kSystem), 0u) << first;
  }
  EXPECT_EQ(Scan("N0L" + magic + "L\n." + rest + "(d.(l."), 0u);
  std::string idle;
  for (int i = 0; i < 300000; i++) idle += "K\x01.";
  EXPECT_EQ(Scan(idle), 0u);  // no more than numbers
  EXPECT_GT(Scan(idle + kSystem), 0u);
}

// What follows the storages of a legacy stream is none of torch's, and a pickle there is found.
TEST(Scan, NothingHidesBehindTheStoragesOfAStream) {
  const std::string whole = ReadFile(CKPT_TESTS_DIR "/data/torch/legacy.pt");
  EXPECT_EQ(Scan(whole), 0u);
  EXPECT_EQ(Scan(whole + Zeros("\0\0\n")), 0u);  // padding
  EXPECT_EQ(Scan(whole + "more"), 1u);
  EXPECT_EQ(Scan(whole + kSystem), 2u);
  EXPECT_EQ(Scan(whole + "(d." + kSystem), 2u);
}

// Blanks in the first name hide no other: modules have what they are asked for (torch.ops), and an extension's is ours.
TEST(Scan, BlanksInNamesHideNothing) {
  EXPECT_GT(Scan("\x82\x01"
                 "0" +
                 kSystem),
            0u);
  EXPECT_GT(Scan("\x82\x01)R."), 0u);
  EXPECT_GT(Scan("ctorch.ops\na b\n0" + kSystem), 0u);
  EXPECT_GT(Scan("ctorch.ops\na b\n0I0x1\n0" + kSystem), 0u);
}

// Bytes gone through from each of many local headers are counted, whatever they are looked at as: two of those, or all
// with CKPT_TEST_FULL.
TEST(Scan, ManyHeadersAreBounded) {
  const std::string stored("PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0a", 31);
  std::string deflated = stored;
  deflated[8] = 8;
  std::vector<std::string> begins = {
      stored + "R", stored + "I0x1\n", stored + "NNb", stored + "c", stored + Zeros("X\0\0\x04\0\xff"),
      deflated,     stored + "N."};
  const char *given = getenv("CKPT_TEST_SEED");
  const unsigned seed = given != nullptr ? static_cast<unsigned>(std::stoul(given)) : std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed) + " (CKPT_TEST_SEED)");
  std::mt19937 random(seed);
  std::shuffle(begins.begin(), begins.end(), random);
  if (getenv("CKPT_TEST_FULL") == nullptr) begins.resize(is_sanitized() ? 1 : 2);
  for (const std::string &begin : begins) {
    std::string bytes;
    while (bytes.size() < 400000) bytes += begin;
    for (int i = 0; i < 40000; i++) bytes += begin == deflated ? Zeros("\0\0\0\xff\xff") : "N0N0N";
    ckpt_scan scan = {};
    ASSERT_EQ(ckpt_scan_bytes(&scan, bytes.data(), bytes.size(), "bytes", nullptr), CKPT_OK);
    bool is_stopped = false;
    for (size_t i = 0; i < scan.findings.n; i++)
      is_stopped |= strstr(scan.findings.items[i].message, "not looked into any further") != nullptr;
    EXPECT_TRUE(is_stopped) << testing::PrintToString(begin);
    ckpt_scan_free(&scan);
  }
}

// A tar archive of (name, content), of regular files unless `type` says so.
std::string Member(const std::string &name, const std::string &content, char type = '0') {
  std::string header(512, '\0');
  char number[16];
  header.replace(0, name.size(), name);
  snprintf(number, sizeof number, "%011o", static_cast<unsigned>(content.size()));
  header.replace(124, 11, number);
  header.replace(148, 8, 8, ' ');
  header[156] = type;
  unsigned sum = 0;
  for (char c : header) sum += static_cast<uint8_t>(c);
  snprintf(number, sizeof number, "%06o", sum);
  header.replace(148, 6, number);
  header[154] = '\0';
  return header + content + std::string((512 - content.size() % 512) % 512, '\0');
}

// In torch's tar archives, pickles and payload take turns: what torch finds behind payload is found.
TEST(Scan, PayloadOfATarHidesNothing) {
  const std::string one = "\x80\x02K\x01.", none = "\x80\x02].";
  const std::string storage =
      Zeros("\x80\x02(K\x07X\x03\0\0\0cpuctorch\nDoubleStorage\nt.\2\0\0\0\0\0\0\0") + std::string(16, '?');
  const std::string tensor = Zeros(
                                 "\x80\x02(K\x08K\x07"
                                 "ctorch\nDoubleTensor\nt.\1\0\0\0\0\0\0\0") +
                             Zeros("\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
  auto Torch = [&](const std::string &storages, const std::string &tensors) {
    return Member("sys_info", none) + Member("pickle", none) + Member("storages", storages) +
           Member("tensors", tensors) + std::string(1024, '\0');
  };
  uint64_t n_pickles;
  EXPECT_EQ(Scan(Torch(one + storage + none, one + tensor), &n_pickles), 0u);
  EXPECT_EQ(n_pickles, 7u);
  EXPECT_EQ(Scan(Torch("\x80\x02K\x02." + storage + storage + none, one + tensor)), 0u);
  EXPECT_GT(Scan(Torch(one + storage + kSystem, one + tensor)), 0u);
  EXPECT_GT(Scan(Torch(one + storage + none, one + tensor + kSystem)), 0u);
  // Payload of which we do not know how long it is, or that readers would disagree about.
  std::string unknown = storage;
  unknown.replace(unknown.find("DoubleStorage"), 6, "Doubel");
  EXPECT_GT(Scan(Torch(one + unknown + none, one)), 0u);
  EXPECT_GT(Scan(Torch(one + storage + none, "I0x1\n." + tensor)), 0u);
  EXPECT_GT(Scan(Member("other", one + storage + none) + std::string(1024, '\0')), 0u);
  EXPECT_GT(Scan(Member("pax", "16 path=tensors\n", 'x') + Member("storages", one + storage + none)), 0u);
}

std::string Text(const std::string &text) {
  return std::string("X") + static_cast<char>(text.size()) + std::string(3, '\0') + text;
}

// What the metadata of a DCP folder places is looked at, wherever it lies and however the instances are made.
TEST(Scan, ItemsAreLookedAtWhereTheMetadataPlacesThem) {
  namespace fs = std::filesystem;
  const std::string at = "ctorch.distributed.checkpoint.", good = Archive({{"a/data.pkl", "\x80\x02}."}});
  auto Metadata = [&](const std::string &info) {
    return "\x80\x02" + at + "metadata\nMetadata\n)\x81}" + Text("storage_data") + "}" + Text("b") + info + "ssb.";
  };
  auto Info = [&](const std::string &path, size_t offset, size_t n, bool is_called) {
    auto Number = [](size_t i) { return std::string("M") + static_cast<char>(i & 255) + static_cast<char>(i >> 8); };
    std::string name = at + "filesystem\n_StorageInfo\n";
    if (is_called) return name + "(" + Text(path) + Number(offset) + Number(n) + "tR";
    return name + ")\x81}(" + Text("relative_path") + Text(path) + Text("offset") + Number(offset) + Text("length") +
           Number(n) + "ub";
  };
  fs::path folder = fs::path(testing::TempDir()) / ("scan_items_" + std::to_string(getpid()));
  auto Problems = [&](const std::string &metadata, const std::string &data) {
    fs::create_directories(folder);
    std::ofstream(folder / ".metadata", std::ios::binary) << metadata;
    std::ofstream(folder / "__0_0.distcp", std::ios::binary) << data;
    ckpt_scan scan = {};
    ckpt_error err = {};
    EXPECT_EQ(ckpt_scan_path(&scan, folder.c_str(), nullptr, &err), CKPT_OK) << err.message;
    size_t n = scan.findings.n_of[CKPT_PROBLEM];
    ckpt_scan_free(&scan);
    fs::remove_all(folder);
    return n;
  };
  const std::string zeros(64, '\0'), hidden = Archive({{"a/data.pkl", "\x80\x02}."}, {"a/data/0", zeros + kSystem}});
  for (bool is_called : {false, true}) {
    auto Of = [&](size_t offset, size_t n) { return Metadata(Info("__0_0.distcp", offset, n, is_called)); };
    EXPECT_EQ(Problems(Of(good.size(), good.size()), good + good), 0u);
    EXPECT_EQ(Problems(Of(60, 4), zeros + kSystem), 0u);
    EXPECT_GT(Problems(Of(64, kSystem.size()), zeros + kSystem), 0u);
    EXPECT_GT(Problems(Of(hidden.find(kSystem), kSystem.size()), hidden), 0u);
    EXPECT_GT(Problems(Of(good.size() + hidden.find(kSystem), 60), good + hidden), 0u);
  }
  for (const char *path : {"./__0_0.distcp", "/__0_0.distcp", "a/../__0_0.distcp", "a//b", ""})
    EXPECT_GT(Problems(Metadata(Info(path, 0, 4, false)), good), 0u) << path;
  EXPECT_GT(Problems(Metadata("N"), good), 0u);
  EXPECT_GT(Problems("\x80\x02" + at + "metadata\nMetadata\n0}.", good), 0u);  // whose places nobody finds
  EXPECT_EQ(Problems("\x80\x02}.", good), 0u);
}

}  // namespace
