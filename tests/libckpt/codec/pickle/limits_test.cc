// The pickle machine at its limits, and linear in memory.
#include "tests/libckpt/codec/pickle/pickle_testing.h"

namespace pickle_testing {
namespace {

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

}  // namespace
}  // namespace pickle_testing
