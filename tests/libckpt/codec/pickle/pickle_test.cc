// The pickle machine against tests/data/pickles.tsv (what Python's own reader makes of each pickle), opcode by opcode
// where no pickler goes, and truncated everywhere.
#include "tests/libckpt/codec/pickle/pickle_testing.h"

namespace pickle_testing {
namespace {

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
    const int step = getenv("CKPT_TEST_FULL") == nullptr ? 17 : 1;
    for (size_t i = 0; i < row.data.size(); i++)
      for (int value = static_cast<int>(i) % step; value < 256; value += step) {
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

// One small pickle behind another is read as what it is, not with 64 KiB of those that follow.
TEST(Pickle, FirstReadIsShort) {
  struct Input {
    std::string bytes;
    uint64_t n_fetched;
  } input = {std::string("\x80\x02}.", 4) + std::string(1 << 20, '.'), 0};
  ckpt_pickle_options options = {};
  options.arg = &input;
  options.n_bytes = input.bytes.size();
  options.fetch = [](void *arg, uint64_t at, void *dst, size_t n, ckpt_error *) {
    auto *from = static_cast<Input *>(arg);
    memcpy(dst, from->bytes.data() + at, n);
    from->n_fetched += n;
    return CKPT_OK;
  };
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  ckpt_object *root = nullptr;
  uint64_t n = 0;
  ckpt_error err = {};
  EXPECT_EQ(ckpt_pickle_read(&root, &n, &options, &arena, &err), CKPT_OK) << err.message;
  EXPECT_EQ(n, 4u);
  EXPECT_LE(input.n_fetched, 1024u);
  input.bytes = std::string("\x80\x02X\x00\x00\x08\x00", 7) + std::string(1 << 19, 'x') + ".";
  options.n_bytes = input.bytes.size();
  input.n_fetched = 0;
  EXPECT_EQ(ckpt_pickle_read(&root, &n, &options, &arena, &err), CKPT_OK) << err.message;
  EXPECT_EQ(n, input.bytes.size());
  EXPECT_LE(input.n_fetched, n);
  ckpt_arena_free(&arena);
}

}  // namespace
}  // namespace pickle_testing
