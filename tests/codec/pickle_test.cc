// The pickle machine against tests/data/pickles.tsv (what Python's own reader makes of each pickle), opcode by opcode
// where no pickler goes, at its limits, truncated everywhere, and linear in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/pickle.h"
}

namespace {

struct Row {
  std::string name, data, json, globals;
  uint64_t n;
};

std::vector<Row> rows() {
  std::ifstream file(CKPT_TESTS_DIR "/data/pickles.tsv", std::ios::binary);
  std::vector<Row> all;
  for (std::string line; std::getline(file, line);) {
    std::vector<std::string> fields(1);
    for (char c : line)
      if (c == '\t')
        fields.emplace_back();
      else
        fields.back() += c;
    Row row{fields.at(0), "", fields.at(3), fields.at(4), std::stoull(fields.at(2))};
    for (size_t i = 0; i < fields[1].size(); i += 2)
      row.data += static_cast<char>(std::stoi(fields[1].substr(i, 2), nullptr, 16));
    all.push_back(row);
  }
  return all;
}

// Reads in windows, from memory of the exact size.
ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n, ckpt_error *err) {
  const auto *bytes = static_cast<const std::string *>(arg);
  EXPECT_LE(offset + n, bytes->size());
  (void)err;
  bytes->copy(static_cast<char *>(dst), n, offset);
  return CKPT_OK;
}

class PickleTest : public ::testing::Test {
 protected:
  void SetUp() override { ckpt_arena_init(&arena_, UINT64_C(1) << 30); }
  void TearDown() override { ckpt_arena_free(&arena_); }

  // What bytes describe, or "! message".
  std::string Read(const std::string &bytes, bool in_memory = true) {
    std::string exact(bytes);
    exact.shrink_to_fit();
    ckpt_pickle_options options = {};
    if (in_memory)
      options.data = exact.data();
    else
      options.fetch = fetch, options.arg = &exact;
    options.n_bytes = exact.size();
    options.file = "f";
    options.limits = &limits_;
    options.report = &report_;
    err_ = {};
    root_ = nullptr;
    n_ = 0;
    status_ = ckpt_pickle_read(&root_, &n_, &options, &arena_, &err_);
    EXPECT_EQ(err_.status, status_);
    EXPECT_NE(status_, CKPT_EINTERNAL);
    if (status_ != CKPT_OK) return std::string("! ") + err_.message;
    return ckpt_object_print(root_, UINT64_C(1) << 24, &arena_);
  }
  std::string Globals() const {
    std::string text;
    for (uint32_t i = 0; i < report_.n_globals; i++) {
      std::string name = report_.globals[i]->name;
      for (char &c : name)
        if (c == ' ') c = '_';
      text += (i == 0 ? "" : " ") + name + "@" + std::to_string(report_.globals[i]->first);
    }
    return text;
  }
  const ckpt_pickle_global *Global(const std::string &name) const {
    for (uint32_t i = 0; i < report_.n_globals; i++)
      if (report_.globals[i]->name == name) return report_.globals[i];
    return nullptr;
  }

  ckpt_arena arena_;
  ckpt_pickle_limits limits_ = CKPT_PICKLE_LIMITS;
  ckpt_pickle_report report_;
  ckpt_error err_;
  ckpt_object *root_;
  uint64_t n_;
  ckpt_status status_;
};

std::string Be(std::initializer_list<int> bytes) { return std::string(bytes.begin(), bytes.end()); }
std::string text_times(const std::string &text, int n) {
  std::string out;
  for (int i = 0; i < n; i++) out += text;
  return out;
}
std::string Le(uint64_t value, int n) {
  std::string text;
  for (int i = 0; i < n; i++) text += static_cast<char>(value >> (8 * i));
  return text;
}

TEST_F(PickleTest, DescribesWhatPythonReads) {
  size_t n_rows = 0;
  for (const Row &row : rows()) {
    for (bool in_memory : {true, false}) {
      EXPECT_EQ(Read(row.data, in_memory), row.json) << row.name;
      EXPECT_EQ(n_, row.n) << row.name;
      EXPECT_EQ(Globals(), row.globals) << row.name;
    }
    n_rows++;
  }
  EXPECT_GT(n_rows, 150u);
}

TEST_F(PickleTest, EveryProtocolDescribesTheSame) {
  std::string name, json;
  for (const Row &row : rows()) {
    if (row.name.rfind("hand-", 0) == 0 || row.name.rfind("malicious-", 0) == 0) continue;
    std::string zoo = row.name.substr(0, row.name.rfind('-'));
    // names of builtins, copyreg and exceptions of old protocols differ
    bool is_same = zoo == name && zoo != "classes" && zoo != "collections" && zoo != "keywords" && zoo != "objects" &&
                   zoo != "numbers" && row.name.back() > '2';
    if (is_same) {
      EXPECT_EQ(row.json, json) << row.name;
    }
    name = zoo;
    json = row.json;
  }
}

TEST_F(PickleTest, TruncationAtEveryByteIsAnError) {
  for (const Row &row : rows()) {
    if (row.data.size() > 2000) continue;
    for (size_t n = 0; n < row.n; n++)
      for (bool in_memory : {true, false}) EXPECT_EQ(Read(row.data.substr(0, n), in_memory)[0], '!') << row.name << n;
  }
}

// A flip of any byte to anything must neither crash nor break an invariant; sanitizers watch.
TEST_F(PickleTest, AnyByteChanged) {
  for (const Row &row : rows()) {
    if (row.data.size() > 300) continue;
    for (size_t i = 0; i < row.data.size(); i++)
      for (int value = 0; value < 256; value += 5) {
        std::string changed = row.data;
        changed[i] = static_cast<char>(value);
        Read(changed, (i & 1) != 0);
      }
    ckpt_arena_free(&arena_);
  }
}

TEST_F(PickleTest, StopsAtStopAndSaysWhere) {
  EXPECT_EQ(Read("I1\n.I2\n."), "1");
  EXPECT_EQ(n_, 4u);
  EXPECT_EQ(report_.n_consumed, 4u);
  EXPECT_EQ(Read("N."), "null");
  EXPECT_EQ(n_, 2u);
}

TEST_F(PickleTest, BytesAreTheBytes) {
  for (const Row &row : rows()) {
    if (row.name.rfind("bytes-", 0) != 0) continue;
    Read(row.data);
    ASSERT_EQ(root_->n, 5u);
    EXPECT_EQ(memcmp(root_->items[1]->bytes, "\x00\xff\x80", 3), 0) << row.name;
    EXPECT_EQ(memcmp(root_->items[3]->bytes, "ab\xe9", 3), 0) << row.name;
    EXPECT_EQ(root_->items[1]->name, nullptr);
    EXPECT_STREQ(root_->items[3]->name, "builtins.bytearray");
    EXPECT_STREQ(root_->items[4]->name, "builtins.bytearray");
  }
}

TEST_F(PickleTest, SharedIsShared) {
  EXPECT_EQ(Read("\x80\x04]\x94(h\x00K\x01"
                 "e."),
            "! pickle at byte 5: the input ends within BINGET (bytes wanted: 1, left: 0)");
  Read(
      std::string("\x80\x04]\x94]\x94(h\x00h\x00"
                  "e(h\x01K\x05"
                  "e.",
                  19));
  ASSERT_EQ(status_, CKPT_OK) << err_.message;
  EXPECT_EQ(root_->items[0], root_->items[1]);
  EXPECT_EQ(root_->items[2], root_);  // itself
  EXPECT_EQ(root_->n, 4u);
  EXPECT_TRUE(ckpt_object_equal(root_, root_));
}

TEST_F(PickleTest, ChangesAfterMemoizingAreSeenEverywhere) {
  // [a, a] where a gets its item after both references exist
  EXPECT_EQ(Read(std::string("]](q\x00", 4) + "0", true)[0], '!');
  EXPECT_EQ(Read("(]q" + Le(7, 1) + "h" + Le(7, 1) + "l0h" + Le(7, 1) + "I4\na."), "[4]");
  EXPECT_EQ(Read("(]q" + Le(7, 1) + "h" + Le(7, 1) + "lq" + Le(8, 1) + "0h" + Le(7, 1) + "I4\na0h" + Le(8, 1) + "."),
            "[[4], [4]]");
}

TEST_F(PickleTest, Misuse) {
  const std::string none = "N";
  struct {
    std::string bytes, message;
  } cases[] = {
      {"", "pickle at byte 0: the input ends without STOP"},
      {"N", "pickle at byte 1: the input ends without STOP"},
      {".", "pickle at byte 0: STOP takes 1 from a stack of 0"},
      {"N(.", "pickle at byte 2: STOP takes 1 from a stack of 0 above its last mark"},
      {"0.", "pickle at byte 0: POP takes 1 from a stack of 0"},
      {"1.", "pickle at byte 0: POP_MARK without a mark"},
      {"2.", "pickle at byte 0: DUP takes 1 from a stack of 0"},
      {"N(2.", "pickle at byte 2: DUP takes 1 from a stack of 0 above its last mark"},
      {"N(\x85.", "pickle at byte 2: TUPLE1 takes 1 from a stack of 0 above its last mark"},
      {"](Na.", "pickle at byte 3: APPEND takes 1 from a stack of 0 above its last mark"},
      {"e.", "pickle at byte 0: APPENDS without a mark"},
      {"(e.", "pickle at byte 1: APPENDS takes 1 from a stack of 0"},
      {"N(Ne.", "pickle at byte 3: APPENDS on a value of another kind"},
      {"NNa.", "pickle at byte 2: APPEND on a value of another kind"},
      {"}(Nu.", "pickle at byte 3: SETITEMS of a key without a value (values: 1)"},
      {"(Nd.", "pickle at byte 2: DICT of a key without a value (values: 1)"},
      {"]NNs.", "pickle at byte 3: SETITEM on a value of another kind"},
      {"](N\x90.", "pickle at byte 3: ADDITEMS on a value of another kind"},
      {"h\x01.", "pickle at byte 0: BINGET of memo number 1, which nothing was put under"},
      {"g5\n.", "pickle at byte 0: GET of memo number 5, which nothing was put under"},
      {"g-5\n.", "pickle at byte 0: GET is no memo number below 2^64"},
      {"Np18446744073709551616\n.", "pickle at byte 1: PUT is no memo number below 2^64"},
      {"q\x01N.", "pickle at byte 0: BINPUT takes 1 from a stack of 0"},
      {"\x94.", "pickle at byte 0: MEMOIZE takes 1 from a stack of 0"},
      {"\x80\x06.", "pickle at byte 0: protocol 6, the highest known is 5"},
      {"\x97.", "pickle at byte 0: NEXT_BUFFER: a buffer that lies outside of the file"},
      {"N\x98.", "pickle at byte 1: READONLY_BUFFER: a buffer that lies outside of the file"},
      {"X\xff\xff\xff\xff"
       "a.",
       "pickle at byte 0: the input ends within BINUNICODE (bytes wanted: 4294967295, left: 2)"},
      {"\x8e" + Le(UINT64_MAX, 8) + ".",
       "pickle at byte 0: BINBYTES8 of 18446744073709551615 bytes, at most 4294967296"},
      {"T\xff\xff\xff\xff.", "pickle at byte 0: a string of size -1"},
      {"\x8b\xff\xff\xff\xff.", "pickle at byte 0: an integer of size -1"},
      {"\x8b" + Le(1025, 4) + ".", "pickle at byte 0: an integer of 1025 bytes (the limit is 1024 bytes)"},
      {"X\x02" + Le(0, 3) + "\xc3\x28.", "pickle at byte 0: text that is no UTF-8 (byte 0 of 2)"},
      {"X\x04" + Le(0, 3) + "\xf4\x90\x80\x80.", "pickle at byte 0: text that is no UTF-8 (byte 0 of 4)"},
      {"X\x04" + Le(0, 3) + "\xf0\x8f\xbf\xbf.", "pickle at byte 0: text that is no UTF-8 (byte 0 of 4)"},
      {"X\x04" + Le(0, 3) + "a\xe0\x9f\xbf.", "pickle at byte 0: text that is no UTF-8 (byte 1 of 4)"},
      {"X\x02" + Le(0, 3) + "\xc1\xbf.", "pickle at byte 0: text that is no UTF-8 (byte 0 of 2)"},
      {"X\x02" + Le(0, 3) + "a\xc3.", "pickle at byte 0: text that is no UTF-8 (byte 1 of 2)"},
      {"I\n.", "pickle at byte 0: INT without digits"},
      {"I-\n.", "pickle at byte 0: INT without digits"},
      {"I1 \n.", "pickle at byte 0: INT is no decimal integer (character 1)"},
      {"I010\n.", "pickle at byte 0: INT is no decimal integer (character 0)"},
      {"L0x1L\n.", "pickle at byte 0: LONG is no decimal integer (character 0)"},
      {"F\n.", "pickle at byte 0: FLOAT is no decimal number (of size 0)"},
      {"F0x1p3\n.", "pickle at byte 0: FLOAT is no decimal number (of size 5)"},
      {"F1e\n.", "pickle at byte 0: FLOAT is no decimal number (of size 2)"},
      {"F" + Le(0, 1) + "inf\n.", "pickle at byte 0: FLOAT is no decimal number (of size 4)"},
      {"Finf" + Le(0, 1) + "x\n.", "pickle at byte 0: FLOAT is no decimal number (of size 5)"},
      {"Fnan(1)\n.", "pickle at byte 0: FLOAT is no decimal number (of size 6)"},
      {"Sab\n.", "pickle at byte 0: STRING without quotes around it (of size 2)"},
      {"S'a\"\n.", "pickle at byte 0: STRING without quotes around it (of size 3)"},
      {"S'\n.", "pickle at byte 0: STRING without quotes around it (of size 1)"},
      {"S'\\x4'\n.", "pickle at byte 0: STRING has a broken escape (byte 0 of 3)"},
      {"S'ab\\'\n.", "pickle at byte 0: STRING has a broken escape (byte 2 of 3)"},
      {"V\\u00\n.", "pickle at byte 0: UNICODE has a broken escape (byte 0 of 4)"},
      {"V\\U00110000\n.", "pickle at byte 0: UNICODE has a broken escape (byte 0 of 10)"},
      {"P\xe9\n.", "pickle at byte 0: PERSID is no ASCII text (byte 0 of 1)"},
      {"NN\x93.", "pickle at byte 2: STACK_GLOBAL of values that are no text"},
      {"ca\n\n.", "pickle at byte 0: the name of a class is empty"},
      {"c\nb\n.", "pickle at byte 0: the name of a module is empty"},
      {"ca" + Le(0, 1) + "\nb\n.", "pickle at byte 0: the name of a module is no text"},
      {"\x84" + Le(0, 4) + ".", "pickle at byte 0: extension code 0"},
      {"\x84\xff\xff\xff\xff.", "pickle at byte 0: extension code -1"},
      {"N)R.", "pickle at byte 2: REDUCE of something that is no class or function"},
      {"ca\nb\n]R.", "pickle at byte 6: REDUCE with arguments that are no tuple"},
      {"ca\nb\n)N\x92.", "pickle at byte 7: NEWOBJ_EX with keyword arguments that are no dict"},
      {"(o.", "pickle at byte 1: OBJ without a class"},
      {"ca\nb\n}b.", "pickle at byte 6: BUILD changes a.b itself, not an instance of it"},
      {"ca\nb\n(Ne.", "pickle at byte 7: APPENDS changes a.b itself, not an instance of it"},
      {"}}b.", "pickle at byte 2: BUILD of a value that has no attributes"},
      {"ca\nb\n)\x81}b}b.", "pickle at byte 10: BUILD gives a.b a second state"},
      {"\x95" + Le(9, 8) + "N.", "pickle at byte 0: a frame of size 9 where 2 are left"},
      {"\x95" + Le(UINT64_MAX, 8) + "N.", "pickle at byte 0: a frame of size 18446744073709551615 where 2 are left"},
      {"\x95" + Le(11, 8) + "N\x95" + Le(0, 8) + "N.",
       "pickle at byte 10: a frame begins before the last one ends (by 1)"},
      {"\x95" + Le(2, 8) + "M\x01\x00.",
       "pickle at byte 9: BININT2 goes past the end of its frame (bytes wanted: 2, in the frame: 1)"},
      {"\x95" + Le(3, 8) + "I12\n.", "pickle at byte 9: INT goes past the end of its frame (a line without end)"},
      {"\x95" + Le(4, 8) +
           "\x8c\x05"
           "ab"
           "cde.",
       "pickle at byte 9: SHORT_BINUNICODE goes past the end of its frame (bytes wanted: 5, in the frame: 2)"},
      {"\xff", "pickle at byte 0: 0xff is no opcode of protocols 0 to 5"},
  };
  for (const auto &c : cases)
    for (bool in_memory : {true, false}) EXPECT_EQ(Read(c.bytes, in_memory), "! " + c.message);
}

TEST_F(PickleTest, EveryOpcodeIsCovered) {
  uint64_t counts[256] = {};
  for (const Row &row : rows()) {
    Read(row.data);
    for (int i = 0; i < 256; i++) counts[i] += report_.counts[i];
  }
  int n_opcodes = 0;
  for (int i = 0; i < 256; i++) {
    const char *name = ckpt_pickle_opcode_name(static_cast<uint8_t>(i));
    n_opcodes += name != nullptr;
    if (name == nullptr) {
      EXPECT_EQ(Read(Be({i, '.'})).substr(0, 22), "! pickle at byte 0: 0x") << i;
    } else if (std::string(name).find("BUFFER") == std::string::npos) {
      EXPECT_GT(counts[i], 0u) << name;
    }
  }
  EXPECT_EQ(n_opcodes, 68);
}

TEST_F(PickleTest, LimitsHoldAtTheirValueAndNotPastIt) {
  struct {
    uint64_t ckpt_pickle_limits::*limit;
    uint64_t value;
    std::string good, bad, message;
  } cases[] = {
      {&ckpt_pickle_limits::n_bytes, 4, "I12\n", "I123\n", "longer than the limit of 5 bytes"},
      {&ckpt_pickle_limits::n_memo, 2, "Nq\x01q\x02q\x02", "Nq\x01q\x02q\x03", "more than 2 memo entries"},
      {&ckpt_pickle_limits::n_stack, 3, "NNN", "NNNN", "more than 3 values on the stack"},
      {&ckpt_pickle_limits::n_stack, 3, "(((N", "((((", "more than 3 marks"},
      {&ckpt_pickle_limits::n_text, 3, "X\x03" + Le(0, 3) + "abc", "X\x04" + Le(0, 3) + "abcd",
       "BINUNICODE of 4 bytes, at most 3"},
      {&ckpt_pickle_limits::n_text, 3, "Vabc\n", "Vabcd\n", "UNICODE has a line of more than 3 bytes"},
      {&ckpt_pickle_limits::n_text, 3,
       "C\x03"
       "abc",
       "C\x04"
       "abcd",
       "SHORT_BINBYTES of 4 bytes, at most 3"},
      {&ckpt_pickle_limits::n_long, 9,
       "\x8a\x09"
       "aaaaaaaaa",
       "\x8a\x0a"
       "aaaaaaaaaa",
       "an integer of 10 bytes (the limit is 9 bytes)"},
      {&ckpt_pickle_limits::n_long, 9, "L1234567890123456789L\n", "L12345678901234567890L\n",
       "an integer of 20 characters (the limit is 9 bytes)"},
      {&ckpt_pickle_limits::n_name, 3, "ca\nb\n", "ca\nbc\n", "the name of a class has 4 bytes, at most 3"},
      {&ckpt_pickle_limits::n_name, 3, "ca\nb\n", "cabcd\nb\n", "the name of a module has 4 bytes, at most 3"},
      {&ckpt_pickle_limits::n_globals, 2, "ca\nb\nca\nc\nca\nb\n", "ca\nb\nca\nc\nca\nd\n",
       "more than 2 different names of classes"},
  };
  for (const auto &c : cases) {
    limits_ = CKPT_PICKLE_LIMITS;
    limits_.*c.limit = c.limit == &ckpt_pickle_limits::n_bytes ? 5 : c.value;
    EXPECT_NE(Read(c.good + ".")[0], '!') << c.good << err_.message;
    std::string bad = Read(c.bad + ".");
    EXPECT_NE(bad.find(": " + c.message), std::string::npos) << bad;
    EXPECT_EQ(status_, CKPT_ELIMIT);
  }
  limits_ = CKPT_PICKLE_LIMITS;
  limits_.n_nodes = 3;
  EXPECT_EQ(Read("(]]]1N."), "null");
  EXPECT_NE(Read("(]]]]1N.").find("byte 4: more than 3 objects"), std::string::npos);
}

TEST_F(PickleTest, ArenaLimitIsNamed) {
  ckpt_arena_free(&arena_);
  ckpt_arena_init(&arena_, 1 << 16);
  std::string bytes(1 << 16, ']');
  EXPECT_NE(Read(bytes + ".").find(": its objects take more than the 65536 bytes that there are for them"),
            std::string::npos);
  EXPECT_EQ(status_, CKPT_ELIMIT);
  bytes = text_times("L" + std::string(2000, '7') + "L\n0", 100);
  ckpt_arena_free(&arena_);
  EXPECT_NE(Read(bytes + "N.").find(": its objects take more than the 65536 bytes that there are for them"),
            std::string::npos)
      << err_.message;
}

// A state is looked into once for each node that has it: as a record, of few attributes.
TEST_F(PickleTest, AttributesAreThoseOfARecord) {
  for (int n : {63, 64}) {
    Read("ca\nb\n)\x81}(Vx\nI7\n" + text_times("NN", n) + "ub.");
    EXPECT_EQ(ckpt_foreign_attribute(root_, "x") != nullptr, n == 63);
  }
}

TEST_F(PickleTest, FarMemoNumbersTakeNoRoom) {
  EXPECT_EQ(Read("Nr" + Le(UINT32_MAX, 4) + "0I7\np18446744073709551615\n0j" + Le(UINT32_MAX, 4) +
                 "0g18446744073709551615\n."),
            "7");
  EXPECT_EQ(report_.n_memo, 2u);
  std::string bytes;
  for (uint32_t i = 0; i < 4097; i++) bytes += "Nr" + Le(UINT32_MAX - i * 524288, 4) + "0";
  EXPECT_NE(Read(bytes + "N.").find("more than 4096 memo numbers larger than where they stand"), std::string::npos);
  bytes.resize(4096 * 7);
  EXPECT_EQ(Read(bytes + "j" + Le(UINT32_MAX, 4) + "."), "null");
  EXPECT_EQ(report_.n_memo, 4096u);
}

TEST_F(PickleTest, MemoNumberThatArrayReachesLater) {
  // 300 goes to the map at byte 4, then the array grows past it: read, replaced and counted once
  std::string bytes = "I7\np300\n0" + std::string(400, 'N') + "1";
  bytes = "I7\np300\n0(" + std::string(600, 'N') + "1Np299\n0g300\n.";
  EXPECT_EQ(Read(bytes), "7");
  EXPECT_EQ(report_.n_memo, 2u);
  bytes.insert(bytes.size() - 6, "I8\np300\n0");
  EXPECT_EQ(Read(bytes), "8");
  EXPECT_EQ(report_.n_memo, 2u);
}

TEST_F(PickleTest, LaughsAreSharedAndBounded) {
  std::string bytes = "]q" + Le(0, 1);
  for (int i = 0; i < 60; i++) bytes += "0(h" + Le(i, 1) + "h" + Le(i, 1) + "lq" + Le(i + 1, 1);
  Read(bytes + ".");
  ASSERT_EQ(status_, CKPT_OK) << err_.message;
  EXPECT_LT(report_.n_nodes, 100u);
  ckpt_arena text;
  ckpt_arena_init(&text, 1 << 16);
  EXPECT_EQ(strlen(ckpt_object_print(root_, 1000, &text)), 1003u);
  ckpt_arena_free(&text);
  EXPECT_TRUE(ckpt_object_equal(root_, root_));
}

TEST_F(PickleTest, DeepNestingIsDataToo) {
  std::string bytes = "N" + std::string(500000, '\x85') + ".";
  std::string text = Read(bytes);
  EXPECT_LT(text.size(), 200u);
  EXPECT_NE(text.find("\"...\""), std::string::npos);
  ckpt_object *deep = root_;
  Read(bytes);
  EXPECT_TRUE(ckpt_object_equal(deep, root_));
}

// Whatever the opcodes, memory is linear in the input: what one opcode copies is paid for by bytes read.
TEST_F(PickleTest, MemoryIsLinear) {
  std::string list = "(" + std::string(20000, 'N') + "lq" + Le(1, 1) + "0", many;
  std::string tuple = "(" + std::string(20000, 'N') + "tq" + Le(1, 1) + "0";
  std::string text = "X" + Le(20000, 4) + std::string(20000, 'a') + "q" + Le(1, 1) + "0";
  std::string pairs = "NN\x86q\x02\x30(" + text_times("h\x02", 20000) + "Nlq" + Le(1, 1) + "0";    // the last is none
  std::string wide = "X" + Le(20002, 4) + std::string(20000, 'a') + "\xc4\x80q" + Le(1, 1) + "0";  // nor is it latin1
  const std::string get = "h" + Le(1, 1);
  struct {
    std::string setup, repeated;
  } cases[] = {
      {list, "cbuiltins\nset\n" + get + "\x85R0"},
      {tuple, "ca\nb\n" + get + "R}b0"},
      {tuple, "ca\nb\n" + get + "R0"},
      {tuple, "ca\nb\n" + get + "\x81\x30"},
      {pairs, "ccollections\nOrderedDict\n" + get + "\x85R0"},
      {tuple, "ca\nb\n)R" + get + "R0"},
      {text, "c_codecs\nencode\n" + get + "Vlatin1\n\x86R0"},
      {wide, "c_codecs\nencode\n" + get + "Vlatin1\n\x86R0"},
      {text, "cbuiltins\nbytearray\n" + get + "Vlatin1\n\x86R0"},
  };
  for (const auto &c : cases) {
    std::string bytes = c.setup;
    for (int i = 0; i < 3000; i++) bytes += c.repeated;
    ckpt_arena_free(&arena_);
    EXPECT_NE(Read(bytes + "N.").find("copies of the same values again and again"), std::string::npos) << c.repeated;
    EXPECT_LT(arena_.n_taken, 200 * bytes.size() + (1 << 16)) << c.repeated;
    EXPECT_EQ(Read(c.setup + c.repeated + "N."), "null");
  }
}

// Opcodes of a byte or two that make a node each: what no pickler writes is refused early, however long it goes on.
TEST_F(PickleTest, MemoryIsBoundedByWhatWasRead) {
  const size_t n = 3 << 20;
  const std::string said = "takes more than 12 bytes of memory for each of its own";
  struct {
    std::string before, repeated, after;
    bool is_good;
  } cases[] = {
      {"(", "]", "t", false},      // nodes
      {"(", "]\x94", "t", false},  // and memo
      {"N", "\x85", "", false},    // each in the next
      {"](", "\x8c" + Le(0, 1), "e", false},
      {"(", "N", "t", false},  // the stack, which doubles, and a copy of it
      {"](", "J" + Le(0x7fffff, 4), "e", true},
      {"", "X" + Le(4096, 4) + std::string(4096, 'a') + "0", "N", true},
  };
  limits_.n_memory = 12;
  for (const auto &c : cases) {
    std::string bytes = c.before;
    while (bytes.size() < n) bytes += c.repeated;
    bytes += c.after + ".";
    ckpt_arena_free(&arena_);
    const std::string read = Read(bytes, false);
    EXPECT_EQ(status_, c.is_good ? CKPT_OK : CKPT_ELIMIT) << err_.message;
    EXPECT_EQ(read.find(said) == std::string::npos, c.is_good) << read.substr(0, 200);
    EXPECT_LE(arena_.n_taken, CKPT_PICKLE_FREE_BYTES + 12 * report_.n_consumed + (1 << 20));  // a block of it
  }
}

// The limit is one of bytes: with nothing for what is read, so much is there for all.
TEST_F(PickleTest, MemoryThatIsAllowedCanBeUsed) {
  limits_.n_memory = 0;
  ckpt_arena_free(&arena_);
  EXPECT_NE(Read("(" + std::string(300000, ']') + "1N.")[0], '!') << err_.message;
  ckpt_arena_free(&arena_);
  EXPECT_EQ(Read("(" + std::string(450000, ']') + "1N.")[0], '!');
  EXPECT_EQ(status_, CKPT_ELIMIT);
  const std::string text(20 << 20, 'a');  // more than that at once: it is counted with the bytes that hold it
  ckpt_arena_free(&arena_);
  EXPECT_EQ(Read("X" + Le(text.size(), 4) + text + "0N.", false)[0], '!');
  limits_.n_memory = 1;
  ckpt_arena_free(&arena_);
  EXPECT_EQ(Read("X" + Le(text.size(), 4) + text + "0N.", false), "null");
}

TEST_F(PickleTest, GrowthIsLinear) {
  for (const char *add : {"I7\na", "(I7\ne", "NNs", "(NNu"}) {
    std::string bytes = add[0] == 'N' || add[1] == 'N' ? "}" : "]";
    for (int i = 0; i < 100000; i++) bytes += add;
    Read(bytes + ".");
    ASSERT_EQ(status_, CKPT_OK) << err_.message;
    EXPECT_EQ(root_->n, 100000u);
    EXPECT_LT(arena_.n_taken, 8u << 20);
    ckpt_arena_free(&arena_);
  }
}

TEST_F(PickleTest, LongTextsAndLinesCrossWindows) {
  for (size_t n : {65530u, 65536u, 70000u, 200000u}) {
    std::string body(n, 'x');
    std::string json = "\"" + body + "\"";
    EXPECT_EQ(Read("X" + Le(n, 4) + body + ".", false), json);
    EXPECT_EQ(Read("V" + body + "\n.", false), json);
    EXPECT_EQ(Read("S'" + body + "'\n.", false), json);
    std::string list = "](";
    for (size_t i = 0; i < n / 5; i++) list += "J" + Le(i, 4);
    Read(list + "e.", false);
    ASSERT_EQ(status_, CKPT_OK) << err_.message;
    for (size_t i = 0; i < n / 5; i++) ASSERT_EQ(root_->items[i]->integer, static_cast<int64_t>(i));
  }
}

TEST_F(PickleTest, TorchTensorsAreEasyToRead) {
  for (const Row &row : rows()) {
    if (row.name.rfind("state-dict-", 0) != 0) continue;
    Read(row.data);
    const ckpt_object *w = ckpt_object_get(root_, "w"), *tied = ckpt_object_get(root_, "tied");
    ASSERT_TRUE(ckpt_foreign_is(w, "torch._utils", "_rebuild_tensor_v2")) << row.name;
    EXPECT_FALSE(ckpt_foreign_is(w, "torch", "_utils._rebuild_tensor_v2"));
    EXPECT_FALSE(ckpt_foreign_is_name(w, "torch._utils", "_rebuild_tensor_v2"));
    EXPECT_EQ(w->name, tied->name);
    const ckpt_object *storage = ckpt_foreign_arg(w, 0);
    ASSERT_EQ(storage->form, static_cast<uint32_t>(CKPT_FORM_PERSISTENT));
    const ckpt_object *id = ckpt_foreign_arg(storage, 0);
    if (row.name != "state-dict-0") {  // which writes the id as text
      EXPECT_STREQ(ckpt_foreign_arg(id, 0)->text, "storage");
      EXPECT_TRUE(ckpt_foreign_is_name(ckpt_foreign_arg(id, 1), "torch", "FloatStorage"));
      EXPECT_EQ(ckpt_foreign_arg(id, 4)->integer, 6);
      EXPECT_EQ(ckpt_foreign_arg(id, 5), nullptr);
    }
    uint64_t shape[2];
    uint32_t rank;
    ASSERT_TRUE(ckpt_foreign_u64s(ckpt_foreign_arg(w, 2), shape, 2, &rank));
    EXPECT_EQ(rank, 2u);
    EXPECT_EQ(shape[0], 2u);
    EXPECT_EQ(shape[1], 3u);
    EXPECT_FALSE(ckpt_foreign_u64s(ckpt_foreign_arg(w, 2), shape, 1, &rank));
    const ckpt_object *metadata = ckpt_foreign_attribute(root_, "_metadata");
    ASSERT_NE(metadata, nullptr);
    EXPECT_EQ(ckpt_object_get(ckpt_object_get(metadata, ""), "version")->integer, 1);
    EXPECT_STREQ(root_->name, "collections.OrderedDict");
    EXPECT_EQ(ckpt_foreign_attribute(w, "x"), nullptr);
  }
  for (const Row &row : rows()) {
    if (row.name.rfind("size-", 0) == 0) {
      Read(row.data);
      uint64_t size[3];
      uint32_t rank;
      ASSERT_TRUE(ckpt_foreign_u64s(ckpt_object_get(root_, "s"), size, 3, &rank));
      EXPECT_EQ(size[1], 4u);
    } else if (row.name.rfind("slots-", 0) == 0) {
      Read(row.data);
      EXPECT_EQ(ckpt_foreign_attribute(root_, "a")->integer, 1) << row.json;
    }
  }
}

TEST_F(PickleTest, MaliciousPicklesAreJudged) {
  struct {
    const char *row, *reason;
    ckpt_pickle_verdict verdict;
  } cases[] = {
      {"os-system", "os.system", CKPT_PICKLE_DANGEROUS},
      {"posix-reduce", "posix.system", CKPT_PICKLE_DANGEROUS},
      {"stack-global", "os.system", CKPT_PICKLE_DANGEROUS},
      {"stack-global-memo", "os.system", CKPT_PICKLE_DANGEROUS},
      {"inst", "os.system", CKPT_PICKLE_DANGEROUS},
      {"obj", "os.system", CKPT_PICKLE_DANGEROUS},
      {"newobj", "builtins.eval", CKPT_PICKLE_DANGEROUS},
      {"newobj-ex", "builtins.eval", CKPT_PICKLE_DANGEROUS},
      {"getattr", "__builtin__.getattr", CKPT_PICKLE_DANGEROUS},
      {"dotted", "torch._utils.sys.modules", CKPT_PICKLE_FOREIGN},
      {"submodule", "torch.utils.collect_env.run", CKPT_PICKLE_DANGEROUS},
      {"load-from-bytes", "torch.storage._load_from_bytes", CKPT_PICKLE_DANGEROUS},
      {"popped", "os.system", CKPT_PICKLE_DANGEROUS},
      {"after-payload", "os.system", CKPT_PICKLE_DANGEROUS},
      {"in-state", "builtins.exec", CKPT_PICKLE_DANGEROUS},
      {"ext", "copyreg extension.5", CKPT_PICKLE_FOREIGN},
      {"nested", "subprocess.Popen", CKPT_PICKLE_DANGEROUS},
  };
  size_t n_judged = 0;
  for (const Row &row : rows()) {
    const ckpt_pickle_global *reason = nullptr;
    Read(row.data);
    ckpt_pickle_verdict verdict = ckpt_pickle_judge_all(&report_, &reason);
    if (row.name.rfind("malicious-", 0) != 0) continue;
    bool found = false;
    for (const auto &c : cases) {
      if (row.name != std::string("malicious-") + c.row) continue;
      found = true;
      EXPECT_EQ(verdict, c.verdict) << row.name;
      ASSERT_NE(reason, nullptr) << row.name;
      EXPECT_STREQ(reason->name, c.reason);
    }
    EXPECT_TRUE(found) << row.name;
    n_judged++;
  }
  EXPECT_EQ(n_judged, sizeof cases / sizeof *cases);
}

TEST_F(PickleTest, HonestPicklesAreNotForeign) {
  for (const Row &row : rows())
    for (const char *zoo :
         {"state-dict-", "ordered-", "namespace-", "paths-", "size-", "bytes-", "sets-", "collections-"})
      if (row.name.rfind(zoo, 0) == 0) {
        Read(row.data);
        const ckpt_pickle_global *reason = nullptr;
        const bool is_class = row.name.rfind("namespace-", 0) == 0 || row.name.rfind("paths-", 0) == 0;
        EXPECT_EQ(ckpt_pickle_judge_all(&report_, &reason), is_class ? CKPT_PICKLE_KNOWN : CKPT_PICKLE_DATA)
            << row.name << " " << (reason == nullptr ? "" : reason->name);
      }
}

// A real unpickler has run the payload before it meets the broken opcode: the report must have it.
TEST_F(PickleTest, ReportsWhatCameBeforeAFailure) {
  EXPECT_EQ(Read("cos\nsystem\n(S'true'\ntR\xff")[0], '!');
  ASSERT_EQ(report_.n_globals, 1u);
  EXPECT_EQ(report_.globals[0]->n_called, 1u);
  EXPECT_EQ(report_.n_consumed, 22u);
  EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), CKPT_PICKLE_DANGEROUS);
  EXPECT_EQ(Read("ca\nb\n}b.")[0], '!');
  EXPECT_EQ(report_.n_changed_globals, 1u);
}

TEST_F(PickleTest, NamesArePartedWhereTheFilePartsThem) {
  Read("(ca\nb.c\nca.b\nc\nca\nb.c\nl.");
  EXPECT_EQ(report_.n_globals, 2u);
  EXPECT_EQ(root_->items[0], root_->items[2]);
  EXPECT_NE(root_->items[0], root_->items[1]);
  EXPECT_TRUE(ckpt_foreign_is_name(root_->items[0], "a", "b.c"));
  EXPECT_FALSE(ckpt_foreign_is_name(root_->items[0], "a.b", "c"));
  EXPECT_FALSE(ckpt_object_equal(root_->items[0], root_->items[1]));
}

TEST_F(PickleTest, ReportCounts) {
  Read(
      "\x80\x02"
      "ca\nb\n)\x81}bca\nb\n)R(I1\nia\nb\n\x82\x05)RPx\nNQK\x01K\x02.");
  ASSERT_EQ(status_, CKPT_OK) << err_.message;
  const ckpt_pickle_global *global = Global("a.b");
  ASSERT_NE(global, nullptr);
  EXPECT_EQ(global->first, 2u);
  EXPECT_EQ(global->n_named, 3u);
  EXPECT_EQ(global->n_called, 3u);
  EXPECT_EQ(global->n_built, 1u);
  EXPECT_EQ(Global("copyreg extension.5")->n_called, 1u);
  EXPECT_EQ(report_.protocol, 2);
  EXPECT_EQ(report_.n_persistent, 2u);
  EXPECT_EQ(report_.n_left, 7u);
  EXPECT_EQ(report_.counts[0x63], 2u);
  Read("ca\nb\n)R)R)R.");
  EXPECT_EQ(report_.n_value_calls, 2u);
  EXPECT_EQ(report_.first_value_call, 8u);
  EXPECT_EQ(ckpt_pickle_judge_all(&report_, nullptr), CKPT_PICKLE_FOREIGN);
}

// Known names alone run code where they are used as no honest file uses them.
TEST_F(PickleTest, KnownNamesThatAreMisused) {
  const std::string space = "cargparse\nNamespace\n)\x81", key = "U\x09__class__", dict = "cbuiltins\ndict\n";
  const std::string v2 = "ctorch._tensor\n_rebuild_from_type_v2\n(", type = "ctorch\nTensor\n",
                    rebuild = "ctorch._utils\n_rebuild_tensor_v2\n", config = "cpeft.tuners.lora.config\nLoraConfig\n",
                    task = "cpeft.utils.peft_types\nTaskType\n",
                    path =
                        "cpathlib\nPath\n(U\x01"
                        "atR";
  const std::string ctor =
                        "cnumpy.random._pickle\n__generator_ctor\n(U\x01"
                        "a",
                    model = "cdeepspeed.runtime.zero.config\nDeepSpeedZeroConfig\n)\x81";

  const struct {
    std::string pickle;
    ckpt_pickle_verdict verdict;
  } cases[] = {
      {space + "}U\x05"
               "classNsb",
       CKPT_PICKLE_KNOWN},
      {space + "}" + key + "Nsb", CKPT_PICKLE_DANGEROUS},
      {space + "N}" + key +
           "Ns\x86"
           "b",
       CKPT_PICKLE_DANGEROUS},
      {space + "}" + key +
           "NsN\x86"
           "b",
       CKPT_PICKLE_DANGEROUS},
      {space + dict + "(](" + key + "NtatRb", CKPT_PICKLE_DANGEROUS},
      {space + "}cbuiltins\nstr\n(" + key + "tRNsb", CKPT_PICKLE_DANGEROUS},
      {model + "}(" + "U\x08__dict__}U\x0e__fields_set__Nub", CKPT_PICKLE_KNOWN},
      {model + "}(" + "U\x08__dict__}" + key + "NsU\x0e__fields_set__Nub", CKPT_PICKLE_DANGEROUS},
      {model + "}U\x08__dict__}sb", CKPT_PICKLE_DANGEROUS},
      {v2 + rebuild + type + ")}tR", CKPT_PICKLE_DATA},
      {v2 + rebuild + type + ")}" + key + "NstR", CKPT_PICKLE_DANGEROUS},
      {v2 + type + type + ")}tR", CKPT_PICKLE_DANGEROUS},
      {v2 +
           "U\x01"
           "a" +
           type + ")}tR",
       CKPT_PICKLE_DANGEROUS},
      {v2 + space + type + ")}tR", CKPT_PICKLE_DANGEROUS},
      {v2 + rebuild + space + ")}tR", CKPT_PICKLE_DANGEROUS},
      {ctor + "cnumpy.random._pickle\n__bit_generator_ctor\ntR", CKPT_PICKLE_DATA},
      {ctor + config + "tR", CKPT_PICKLE_DANGEROUS},
      {"ccopyreg\n_reconstructor\n(" + config + dict + "}tR", CKPT_PICKLE_KNOWN},
      {"ccopyreg\n_reconstructor\n(" + config + config + "}tR", CKPT_PICKLE_DANGEROUS},
      {config + ")\x81}b", CKPT_PICKLE_KNOWN},
      {config + "(NtR", CKPT_PICKLE_FOREIGN},
      {"(" + config + "No", CKPT_PICKLE_FOREIGN},
      {"(Nipeft.tuners.lora.config\nLoraConfig\n", CKPT_PICKLE_FOREIGN},
      {"(ctorch.nn.modules.linear\nLinear\nK\x01K\x01o", CKPT_PICKLE_FOREIGN},
      {task + "(U\x01"
              "atR",
       CKPT_PICKLE_KNOWN},
      {path, CKPT_PICKLE_KNOWN},
      {"ccollections\ndeque\n)RK\x01"
       "a",
       CKPT_PICKLE_DATA},
      {space + "K\x01"
               "a",
       CKPT_PICKLE_FOREIGN},
      {space + "(K\x01"
               "e",
       CKPT_PICKLE_FOREIGN},
  };
  for (const auto &c : cases) {
    const ckpt_pickle_global *reason = nullptr;
    Read("\x80\x02" + c.pickle + ".");
    EXPECT_EQ(status_, CKPT_OK) << c.pickle << err_.message;
    EXPECT_EQ(ckpt_pickle_judge_all(&report_, &reason), c.verdict) << c.pickle;
  }
}

TEST_F(PickleTest, TableOfGlobals) {
  struct Entry {
    const char *module, *name, *verdict;
  };
  const Entry table[] = {
#define CKPT_PICKLE_GLOBAL(module, name, verdict) {module, name, #verdict},
#include "libckpt/codec/pickle_globals.def"
#undef CKPT_PICKLE_GLOBAL
  };
  std::vector<std::string> names;
  for (const Entry &row : table) {
    if (std::string(row.name) == "*") {
      EXPECT_STREQ(row.verdict, "DANGEROUS") << row.module;
      continue;
    }
    Read(std::string("c") + row.module + "\n" + row.name + "\n.");
    const char *wanted = std::string(row.verdict) == "DATA"    ? "tensor data"
                         : std::string(row.verdict) == "KNOWN" ? "known framework class"
                                                               : "dangerous";
    EXPECT_STREQ(ckpt_pickle_verdict_name(ckpt_pickle_judge(report_.globals[0])), wanted) << row.module << row.name;
    names.push_back(std::string(row.module) + " " + row.name);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  for (const char *other :
       {"torch\nload2", "torch\nfloat32.x", "torc\nhfloat32", "torch.float32\nx", "x\ntorch.float32"}) {
    Read(std::string("c") + other + "\n.");
    EXPECT_EQ(ckpt_pickle_judge(report_.globals[0]), CKPT_PICKLE_FOREIGN) << other;
  }
}

}  // namespace
