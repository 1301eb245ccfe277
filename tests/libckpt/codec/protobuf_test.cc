// Protobuf's wire format: fields are walked as they stand, through windows, and whatever does not fit is refused.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

extern "C" {
#include "libckpt/codec/protobuf.h"
}

namespace {

std::string varint(uint64_t value) {
  uint8_t bytes[CKPT_WIRE_VARINT_BYTES];
  return std::string(reinterpret_cast<char *>(bytes), ckpt_wire_put(bytes, value));
}

std::string tag(uint32_t number, int type) { return varint(ckpt_wire_tag(number, static_cast<ckpt_wire_type>(type))); }

struct Walk {
  std::string bytes;
  ckpt_source *source = nullptr;
  std::unique_ptr<ckpt_wire> wire = std::make_unique<ckpt_wire>();
  ckpt_error err = {};

  explicit Walk(std::string given) : bytes(std::move(given)) {
    EXPECT_EQ(ckpt_source_memory(&source, bytes.data(), bytes.size(), "memory", nullptr), CKPT_OK);
    *wire = {};
    wire->source = source;
    wire->path = "memory";
    wire->end = bytes.size();
  }
  ~Walk() { ckpt_source_free(source); }

  // All fields, as "number:type:at+n", or the message of the first that is none.
  std::string all() {
    std::string text;
    while (wire->at < wire->end) {
      ckpt_wire_field field;
      if (ckpt_wire_next(wire.get(), &field, &err) != CKPT_OK) return text + "! " + err.message;
      text += std::to_string(field.number) + ":" + std::to_string(field.type) + ":" + std::to_string(field.at) + "+" +
              std::to_string(field.n);
      if (field.type == CKPT_WIRE_VARINT) text += "=" + std::to_string(field.value);
      text += " ";
    }
    return text;
  }
};

TEST(Wire, EveryTypeIsSteppedOver) {
  Walk walk(tag(1, 0) + varint(300) + tag(2, 1) + "12345678" + tag(3, 2) + varint(3) + "abc" + tag(4, 5) + "1234" +
            tag(536870911, 2) + varint(0));
  EXPECT_EQ(walk.all(), "1:0:1+2=300 2:1:4+8 3:2:14+3 4:5:18+4 536870911:2:28+0 ");
}

TEST(Wire, NumbersAreWhatWasWritten) {
  for (uint64_t value : {UINT64_C(0), UINT64_C(1), UINT64_C(127), UINT64_C(128), UINT64_C(1) << 35, UINT64_MAX}) {
    Walk walk(tag(1, 0) + varint(value));
    ckpt_wire_field field;
    ASSERT_EQ(ckpt_wire_next(walk.wire.get(), &field, &walk.err), CKPT_OK);
    EXPECT_EQ(field.value, value);
  }
  EXPECT_EQ(varint(UINT64_MAX).size(), 10U);
}

TEST(Wire, WhatDoesNotFitIsRefused) {
  EXPECT_EQ(Walk(tag(1, 2) + varint(4) + "abc").all(),
            "! truncated or lies: field 1 at byte 0 has 4 bytes, 3 remain (download it again)");
  EXPECT_EQ(Walk(tag(1, 2) + varint(UINT64_MAX) + "abc").all(),
            "! truncated or lies: field 1 at byte 0 has 18446744073709551615 bytes, 3 remain (download it again)");
  EXPECT_EQ(Walk(tag(1, 1) + "1234567").all(),
            "! truncated or lies: field 1 at byte 0 has 8 bytes, 7 remain (download it again)");
  EXPECT_EQ(Walk(tag(1, 5) + "123").all(),
            "! truncated or lies: field 1 at byte 0 has 4 bytes, 3 remain (download it again)");
  EXPECT_EQ(Walk(tag(1, 0)).all(),
            "! truncated or lies: a number at byte 1 goes past the end of its message (download it again)");
  EXPECT_EQ(Walk(tag(1, 0) + "\x80").all(),
            "! truncated or lies: a number at byte 1 goes past the end of its message (download it again)");
  EXPECT_EQ(Walk(tag(1, 0) + std::string(10, '\xFF') + "\x01").all(), "! a number of more than ten bytes at byte 1");
  EXPECT_EQ(Walk(tag(1, 3)).all(), "! field 1 at byte 0 has wire type 3, which is not read");
  EXPECT_EQ(Walk(tag(1, 4)).all(), "! field 1 at byte 0 has wire type 4, which is not read");
  EXPECT_EQ(Walk(tag(1, 6)).all(), "! field 1 at byte 0 has wire type 6, which is not read");
  EXPECT_EQ(Walk(varint(0) + varint(0)).all(), "! field number 0 at byte 0 is none");
  EXPECT_EQ(Walk(varint(UINT64_C(1) << 32) + varint(0)).all(), "! field number 536870912 at byte 0 is none");
}

// Numbers and texts that lie across windows, after jumps over much data.
TEST(Wire, WindowsDoNotShow) {
  std::string bytes, expected;
  for (size_t n : {10U, 4090U, 70000U, 300000U, 1U, 65530U}) {
    bytes += tag(1, 2) + varint(n);
    expected += "1:2:" + std::to_string(bytes.size()) + "+" + std::to_string(n) + " ";
    bytes += std::string(n, 'x') + tag(2, 0) + varint(n);
    expected += "2:0:" + std::to_string(bytes.size() - varint(n).size()) + "+" + std::to_string(varint(n).size()) +
                "=" + std::to_string(n) + " ";
  }
  Walk walk(bytes);
  EXPECT_EQ(walk.all(), expected);
  std::string copy(bytes.size(), '\0');
  ASSERT_EQ(ckpt_wire_bytes(walk.wire.get(), 0, copy.data(), copy.size(), &walk.err), CKPT_OK);
  EXPECT_EQ(copy, bytes);
}

// A jump over a gigabyte reads nothing of it.
TEST(Wire, ValuesAreNotRead) {
  std::string bytes = tag(1, 2) + varint(1 << 24) + std::string(1 << 24, 'x') + tag(2, 0) + varint(7);
  Walk walk(bytes);
  EXPECT_NE(walk.all().find("=7"), std::string::npos);
  EXPECT_LT(ckpt_source_bytes_read(walk.source), 20000U);
}

TEST(Wire, PackedNumbersAreCounted) {
  std::string packed;
  for (uint64_t i = 0; i < 50000; i++) packed += varint(i * i * i);
  Walk walk(packed + "\x80");
  uint64_t n = 0;
  EXPECT_EQ(ckpt_wire_count(walk.wire.get(), 0, packed.size(), &n, &walk.err), CKPT_OK);
  EXPECT_EQ(n, 50000U);
  EXPECT_EQ(ckpt_wire_count(walk.wire.get(), 0, 0, &n, &walk.err), CKPT_OK);
  EXPECT_EQ(n, 0U);
  EXPECT_EQ(ckpt_wire_count(walk.wire.get(), 0, packed.size() + 1, &n, &walk.err), CKPT_EFORMAT);
}

}  // namespace
