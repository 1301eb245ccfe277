// What codec/pickle/object.h prints, our machine reads back as the same graph: every kind and form, sharing, cycles,
// depth.
extern "C" {
#include "libckpt/codec/pickle/object.h"
#include "libckpt/codec/pickle/pickle.h"
}

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

class PickleObject : public ::testing::Test {
 protected:
  PickleObject() { ckpt_arena_init(&arena_, UINT64_C(1) << 30); }
  ~PickleObject() override { ckpt_arena_free(&arena_); }

  std::string print(const ckpt_object *object, ckpt_status *status = nullptr) {
    ckpt_stream out;
    ckpt_sink *sink = nullptr;
    ckpt_sink_file file = {nullptr, CKPT_SIZE_UNKNOWN};
    char window[64];
    EXPECT_EQ(ckpt_sink_memory(&sink, nullptr), CKPT_OK);
    EXPECT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
    ckpt_stream_sink(&out, sink, 0, 0, window, sizeof window, nullptr);
    ckpt_pickle_writer writer = ckpt_pickle_start(&out);
    ckpt_pickle_put_object(&writer, object, nullptr, nullptr);
    ckpt_pickle_stop(&writer);
    ckpt_status ended = ckpt_stream_end(&out);
    if (status != nullptr)
      *status = ended;
    else
      EXPECT_EQ(ended, CKPT_OK);
    EXPECT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
    uint64_t n_bytes = 0;
    const void *bytes = ckpt_sink_bytes(sink, 0, &n_bytes);
    std::string text(static_cast<const char *>(bytes), n_bytes);
    ckpt_sink_free(sink);
    return text;
  }

  const ckpt_object *read(const std::string &pickle) {
    ckpt_pickle_options options = {};
    options.data = pickle.data();
    options.n_bytes = pickle.size();
    ckpt_object *root = nullptr;
    ckpt_error err = {};
    EXPECT_EQ(ckpt_pickle_read(&root, nullptr, &options, &arena_, &err), CKPT_OK) << err.message;
    return root;
  }

  // What a pickle says, printed and read once more, is the same graph; and printing is a fixed point.
  void round_trip(const std::string &pickle) {
    const ckpt_object *first = read(pickle);
    ASSERT_NE(first, nullptr) << pickle;
    std::string printed = print(first);
    const ckpt_object *second = read(printed);
    ASSERT_NE(second, nullptr) << pickle;
    EXPECT_TRUE(ckpt_object_equal(first, second)) << ckpt_object_print(first, 2000, &arena_) << "\n"
                                                  << ckpt_object_print(second, 2000, &arena_);
    EXPECT_EQ(print(second), printed);
  }

  ckpt_arena arena_;
};

std::string proto(const std::string &body) { return "\x80\x04" + body + "."; }

TEST_F(PickleObject, EveryKindAndForm) {
  const std::vector<std::string> bodies = {
      "N",
      "\x88",
      "K\x07",
      "J\xff\xff\xff\xff",
      "G\x3f\xf8\x01\x01\x01\x01\x01\x01",
      "\x8c\x02hi",
      "C\x03\xff\x01\x61",
      "]",
      "}",
      ")",
      "](K\x01K\x02"
      "e",
      "}(K\x01K\x02u",
      "K\x01\x85",
      "K\x01K\x02\x86",
      "K\x01K\x02K\x03\x87",
      "(K\x01K\x02K\x03K\x04t",
      "\x8f(K\x01\x90",
      "(K\x01K\x02\x91",
      "ccollections\nOrderedDict\n)R(K\x01K\x02u}(\x8c\x01wNub",  // items and state
      "cm\nC\n",                                                  // a name
      "cm\nf\n(K\x01K\x02K\x03K\x04tR",                           // a call
      "cm\nf\nK\x01\x85R}K\x02K\x03sb",                           // with state
      "cm\nC\n)\x81(K\x01K\x02"
      "e(K\x03K\x04u}b",  // an instance: list, dict, state
      "cm\nC\n(K\x01K\x02K\x03K\x04t\x81",
      "cm\nC\nK\x01\x85}\x8c\x01kK\x02s\x92",  // with keywords
      "cm\nC\nK\x01\x85}\x8c\x01kK\x02s\x92}K\x05K\x06sb",
      "(K\x01\x8c\x01xtQ",  // a persistent id
      "cm\nf\n)R)R",        // a call of a value
      "cm\nf\n)R(K\x01K\x02K\x03K\x04tR",
      "\x8a\x10"
      "0123456789abcdef"};  // a large number
  for (const std::string &body : bodies) round_trip(proto(body));
  round_trip(proto(std::string("\x96\3\0\0\0\0\0\0\0xyz", 12)));  // a bytearray
}

TEST_F(PickleObject, SharingAndCycles) {
  round_trip(
      proto("](]q\x05h\x05h\x05"
            "e"));  // one list three times
  round_trip(
      proto("]q\x05h\x05"
            "a"));                                         // a list in itself
  round_trip(proto("}q\x05K\x01h\x05s"));                  // a dict in itself
  round_trip(proto("(\x8c\x03keyq\x05h\x05h\x05h\x05t"));  // a text
  round_trip(proto("cm\nf\n)Rq\x05h\x05\x86"));
  round_trip(proto("](cm\nf\n)Rcm\nf\n)Re"));           // calls of one name, not one call
  round_trip(proto("cm\nC\n)\x81q\x05}K\x01h\x05sb"));  // an instance in its own state
  round_trip(proto("ccollections\nOrderedDict\n)Rq\x05K\x01h\x05s"));
  const ckpt_object *shared =
      read(print(read(proto("](]q\x05h\x05"
                            "e"))));
  EXPECT_EQ(shared->items[0], shared->items[1]);
}

// A tuple that holds itself through a list: what Python does with it needs POP; here None stands for it.
TEST_F(PickleObject, ATupleInItselfHasNoneThere) {
  ckpt_object *tuple = ckpt_object_new(&arena_, CKPT_OBJECT_TUPLE, 1, nullptr);
  ckpt_object *list = ckpt_object_new(&arena_, CKPT_OBJECT_LIST, 1, nullptr);
  tuple->items[0] = list;
  list->items[0] = tuple;
  const ckpt_object *again = read(print(tuple));
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(std::string(ckpt_object_print(again, 100, &arena_)), "[[null]]");
}

TEST_F(PickleObject, ManyItemsAndDepth) {
  std::string many = "](", deep;
  for (int i = 0; i < 2500; i++) many += "K\x01";
  round_trip(proto(many + "e"));
  many = "}(";
  for (int i = 0; i < 2500; i++) many += std::string("M") + char(i & 255) + char(i >> 8) + "N";
  round_trip(proto(many + "u"));
  for (int i = 0; i < 200000; i++) deep += "]";
  for (int i = 0; i < 199999; i++) deep += "a";
  round_trip(proto(deep));
}

// One long text under many keys is printed once.
TEST_F(PickleObject, OutputIsLinear) {
  std::string body = "](X" + std::string("\x00\x00\x10\x00", 4) + std::string(1 << 20, 'x') + "q\x05";
  for (int i = 0; i < 1000; i++) body += "h\x05";
  EXPECT_LT(print(read(proto(body + "e"))).size(), (1u << 20) + 10000);
}

// A name cannot carry opcodes: GLOBAL ends its lines with a newline.
TEST_F(PickleObject, ANameWithANewlineIsRefused) {
  ckpt_object *name = ckpt_object_new(&arena_, CKPT_OBJECT_FOREIGN, 0, "m.C\nios\nsystem");
  name->form = CKPT_FORM_NAME;
  ckpt_status status = CKPT_OK;
  print(name, &status);
  EXPECT_EQ(status, CKPT_EINTERNAL);
}

}  // namespace
