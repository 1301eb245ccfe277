// What the emitter prints is what our own machine reads; tests/interop/test_pickle.py has Python read it.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/pickle/write.h"
}

namespace {

// The bytes that a generator prints; its counting run must agree with the written one.
std::string Printed(const std::function<void(ckpt_pickle_writer *)> &print) {
  ckpt_stream counted, out;
  ckpt_stream_count(&counted, nullptr);
  ckpt_pickle_writer writer = ckpt_pickle_start(&counted);
  print(&writer);
  ckpt_pickle_stop(&writer);
  EXPECT_EQ(counted.status, CKPT_OK);
  ckpt_sink *sink = nullptr;
  EXPECT_EQ(ckpt_sink_memory(&sink, nullptr), CKPT_OK);
  ckpt_sink_file file = {nullptr, counted.n_bytes};
  EXPECT_EQ(ckpt_sink_open(sink, &file, 1, nullptr), CKPT_OK);
  uint8_t window[64];
  ckpt_stream_sink(&out, sink, 0, 0, window, sizeof window, nullptr);
  writer = ckpt_pickle_start(&out);
  print(&writer);
  ckpt_pickle_stop(&writer);
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_OK);
  EXPECT_EQ(ckpt_sink_seal(sink, nullptr), CKPT_OK);
  uint64_t n_bytes = 0;
  const void *bytes = ckpt_sink_bytes(sink, 0, &n_bytes);
  EXPECT_EQ(n_bytes, counted.n_bytes);
  std::string text(static_cast<const char *>(bytes), n_bytes);
  ckpt_sink_free(sink);
  return text;
}

// What the machine reads, as text.
std::string Read(const std::string &pickle) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 24);
  ckpt_pickle_options options = {};
  options.data = pickle.data();
  options.n_bytes = pickle.size();
  ckpt_object *root = nullptr;
  ckpt_error error = {};
  std::string text;
  if (ckpt_pickle_read(&root, nullptr, &options, &arena, &error) == CKPT_OK)
    text = ckpt_object_print(root, 1 << 16, &arena);
  else
    text = error.message;
  ckpt_arena_free(&arena);
  return text;
}

std::string ReadInt(int64_t value) {
  return Read(Printed([=](ckpt_pickle_writer *w) { ckpt_pickle_put_int(w, value); }));
}

TEST(PickleWriteTest, WholeNumbersAtTheEdgesOfTheirOpcodes) {
  const std::vector<int64_t> values = {0,
                                       1,
                                       255,
                                       256,
                                       65535,
                                       65536,
                                       INT32_MAX,
                                       INT32_MIN,
                                       1LL << 31,
                                       1LL << 39,
                                       -1,
                                       -256,
                                       -(1LL << 31) - 1,
                                       INT64_MAX,
                                       INT64_MIN,
                                       -(1LL << 47)};
  for (int64_t value : values) EXPECT_EQ(ReadInt(value), std::to_string(value));
  EXPECT_EQ(Read(Printed([](ckpt_pickle_writer *w) { ckpt_pickle_put_u64(w, UINT64_MAX); })), "18446744073709551615");
}

TEST(PickleWriteTest, BigNumbersComeBackDigitByDigit) {
  std::string longest(600, '9');  // the machine's limit is 1,024 bytes of a LONG
  for (const std::string &digits : {std::string("0"), std::string("-1"), std::string("18446744073709551616"),
                                    std::string("-9223372036854775809"), std::string("-128"), longest, "-" + longest})
    EXPECT_EQ(Read(Printed([&](ckpt_pickle_writer *w) { ckpt_pickle_put_bigint(w, digits.c_str()); })), digits);
  for (const char *bad : {"", "-", "12a", "+1"}) {
    ckpt_stream out;
    ckpt_stream_count(&out, nullptr);
    ckpt_pickle_writer writer = ckpt_pickle_start(&out);
    ckpt_pickle_put_bigint(&writer, bad);
    EXPECT_EQ(out.status, CKPT_EINTERNAL) << bad;
  }
}

TEST(PickleWriteTest, OpcodesAreThoseOfPython) {
  // pickletools.dis of python 3.11's pickle.dumps({"a": (1, 2.5, None, True), "b": ["x"]}, 2), memo aside
  std::string text = Printed([](ckpt_pickle_writer *w) {
    const uint64_t shape[] = {70000, 3, 256, 1};
    ckpt_pickle_put_empty_dict(w);
    ckpt_pickle_keep(w);
    ckpt_pickle_put_mark(w);
    ckpt_pickle_put_text(w, "a", 1);
    ckpt_pickle_put_u64s(w, shape, 4);
    ckpt_pickle_put_text(w, "b", 1);
    ckpt_pickle_put_float(w, 2.5);
    ckpt_pickle_put_setitems(w);
  });
  const char expected[] =
      "\x80\x02}q\x00(X\x01\x00\x00\x00"
      "a(Jp\x11\x01\x00K\x03M\x00\x01K\x01tX\x01\x00\x00\x00"
      "bG@\x04\x00\x00\x00\x00\x00\x00u.";
  EXPECT_EQ(text, std::string(expected, sizeof expected - 1));
}

TEST(PickleWriteTest, CallsAndSharedValues) {
  std::string text = Read(Printed([](ckpt_pickle_writer *w) {
    const uint8_t bytes[] = {0, 0x7F, 0x80, 0xFF};
    ckpt_pickle_put_mark(w);
    ckpt_pickle_put_global(w, "torch", "Size");
    uint32_t size = ckpt_pickle_keep(w);
    const uint64_t shape[] = {4, 5};
    ckpt_pickle_put_u64s(w, shape, 2);
    ckpt_pickle_put_tuple(w, 1);
    ckpt_pickle_put_reduce(w);
    ckpt_pickle_recall(w, size);
    ckpt_pickle_put_bytes(w, bytes, sizeof bytes);
    ckpt_pickle_put_bool(w, true);
    ckpt_pickle_put_none(w);
    ckpt_pickle_put_tuple(w, 5);
  }));
  EXPECT_EQ(text, "[{\"torch.Size\": [[4, 5]]}, \"<torch.Size>\", \"<4 bytes>\", true, null]");
}

TEST(PickleWriteTest, TheMemoGoesBeyondOneByte) {
  std::string text = Read(Printed([](ckpt_pickle_writer *w) {
    ckpt_pickle_put_empty_list(w);
    for (int i = 0; i < 300; i++) {
      ckpt_pickle_put_int(w, i);
      EXPECT_EQ(ckpt_pickle_keep(w), static_cast<uint32_t>(i));
      if (i != 299) ckpt_pickle_put_append(w);
    }
    ckpt_pickle_put_append(w);
    ckpt_pickle_recall(w, 257);
    ckpt_pickle_put_append(w);
  }));
  EXPECT_EQ(text.substr(text.size() - 10), " 299, 257]");
}

}  // namespace
