// Text for terminals, JSON, and the progress line.
#include <gtest/gtest.h>

#include <jansson.h>
#include <pty.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

extern "C" {
#include "tools/cli/text.h"
#include "tools/report/json_writer.h"
#include "tools/report/progress.h"
}

namespace {

// What `print` writes to a FILE.
template <typename Print>
std::string Printed(Print print) {
  char *bytes = nullptr;
  size_t n = 0;
  FILE *file = open_memstream(&bytes, &n);
  print(file);
  fclose(file);
  std::string text(bytes, n);
  free(bytes);
  return text;
}

std::string Safe(const std::string &text) {
  std::string printed =
      Printed([&](FILE *out) { EXPECT_EQ(ckpt_text_print(out, text.c_str()), ckpt_text_columns(text.c_str())); });
  EXPECT_EQ(ckpt_text_is_plain(text.c_str()), printed == text) << text;
  return printed;
}

TEST(Text, HostileNamesCannotActOnATerminal) {
  EXPECT_EQ(Safe("model.layers.0.weight"), "model.layers.0.weight");
  EXPECT_EQ(Safe("größe_権"), "größe_権");
  EXPECT_EQ(ckpt_text_columns("größe"), 5u);
  EXPECT_EQ(Safe("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(Safe("a\rb\nc\td\x7f"), "a\\x0db\\x0ac\\x09d\\x7f");
  EXPECT_EQ(Safe("\xc2\x9b"
                 "31m"),
            "\\u009b31m");  // C1 control sequence introducer
  EXPECT_EQ(Safe("a\xe2\x80\xae"
                 "b"),
            "a\\u202eb");                  // right-to-left override
  EXPECT_EQ(Safe("\xd8\x9c"), "\\u061c");  // Arabic letter mark
  EXPECT_EQ(Safe("\xff"
                 "a\xc3"),
            "\\xffa\\xc3");                                              // no UTF-8
  EXPECT_EQ(Safe("\xc0\xaf\xed\xa0\x80"), "\\xc0\\xaf\\xed\\xa0\\x80");  // overlong, surrogate
  EXPECT_EQ(Safe("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");           // past U+10FFFF
  EXPECT_EQ(Safe("\xf3\xa0\x80\x81"), "\\U000e0001");                    // tag character
}

TEST(Text, Numbers) {
  char out[64];
  EXPECT_STREQ(ckpt_text_size(0, out), "0 B");
  EXPECT_STREQ(ckpt_text_size(999, out), "999 B");
  EXPECT_STREQ(ckpt_text_size(1000, out), "1.0 KB");
  EXPECT_STREQ(ckpt_text_size(999949, out), "999.9 KB");
  EXPECT_STREQ(ckpt_text_size(999950, out), "1.0 MB");
  EXPECT_STREQ(ckpt_text_size(30400000000, out), "30.4 GB");
  EXPECT_STREQ(ckpt_text_size(UINT64_MAX, out), "18.4 EB");
  EXPECT_STREQ(ckpt_text_count(0, out), "0");
  EXPECT_STREQ(ckpt_text_count(999, out), "999");
  EXPECT_STREQ(ckpt_text_count(1000, out), "1,000");
  EXPECT_STREQ(ckpt_text_count(UINT64_MAX, out), "18,446,744,073,709,551,615");
  EXPECT_STREQ(ckpt_text_duration(0.2, out), "200 ms");
  EXPECT_STREQ(ckpt_text_duration(1e-6, out), "1 ms");
  EXPECT_STREQ(ckpt_text_duration(0.9994, out), "999 ms");
  EXPECT_STREQ(ckpt_text_duration(0.9996, out), "1 s");
  EXPECT_STREQ(ckpt_text_duration(59.4, out), "59 s");
  EXPECT_STREQ(ckpt_text_duration(125, out), "2 min 5 s");
  EXPECT_STREQ(ckpt_text_duration(4320, out), "1 h 12 min");
  EXPECT_STREQ(ckpt_text_duration(1e300, out), "very long");
  EXPECT_STREQ(ckpt_text_duration(NAN, out), "0 ms");
  EXPECT_STREQ(ckpt_text_number(0.1, out), "0.1");
  EXPECT_STREQ(ckpt_text_number(-0.0, out), "-0");
  EXPECT_STREQ(ckpt_text_number(-NAN, out), "nan");
  EXPECT_STREQ(ckpt_text_number(640, out), "640");
  EXPECT_STREQ(ckpt_text_number(1e15, out), "1000000000000000");
  EXPECT_STREQ(ckpt_text_number(1e16, out), "1e+16");
  EXPECT_STREQ(ckpt_text_number(1.5e-5, out), "0.000015");
  EXPECT_STREQ(ckpt_text_number(1.5e-6, out), "1.5e-06");
  EXPECT_STREQ(ckpt_text_float(0.1f, out), "0.1");
  EXPECT_STREQ(ckpt_text_float(16777216.0f, out), "16777216");
  EXPECT_STREQ(ckpt_text_float(-INFINITY, out), "-inf");
}

TEST(Text, NumbersReadBackAsThemselves) {
  std::mt19937_64 random(7);
  char out[64];
  for (int i = 0; i < 20000; i++) {
    uint64_t bits = random();
    double d;
    float f;
    memcpy(&d, &bits, sizeof d);
    memcpy(&f, &bits, sizeof f);
    if (std::isfinite(d)) {
      EXPECT_EQ(strtod(ckpt_text_number(d, out), nullptr), d);
    }
    if (std::isfinite(f)) {
      EXPECT_EQ(strtof(ckpt_text_float(f, out), nullptr), f);
    }
    ASSERT_LT(strlen(out), 32u);
  }
}

TEST(Json, Shapes) {
  std::string text = Printed([](FILE *out) {
    ckpt_emitter json;
    ckpt_emit_begin(&json, out);
    ckpt_emit_object(&json, nullptr);
    ckpt_emit_text(&json, "status", "ok");
    ckpt_emit_array(&json, "shape");
    ckpt_emit_u64(&json, nullptr, UINT64_MAX);
    ckpt_emit_i64(&json, nullptr, INT64_MIN);
    ckpt_emit_array(&json, nullptr);
    ckpt_emit_end(&json);
    ckpt_emit_end(&json);
    ckpt_emit_number(&json, "a", 1e-3);
    ckpt_emit_number(&json, "b", INFINITY);
    ckpt_emit_float(&json, "c", std::numeric_limits<float>::quiet_NaN());
    ckpt_emit_bool(&json, "d", true);
    ckpt_emit_text(&json, "e", nullptr);
    ckpt_emit_object(&json, "f");
    ckpt_emit_end(&json);
    ckpt_emit_end(&json);
  });
  EXPECT_EQ(text,
            "{\"status\":\"ok\",\"shape\":[18446744073709551615,-9223372036854775808,[]],\"a\":0.001,\"b\":null,"
            "\"c\":null,\"d\":true,\"e\":null,\"f\":{}}\n");
}

std::string JsonString(const std::string &bytes) {
  return Printed([&](FILE *out) {
    ckpt_emitter json;
    ckpt_emit_begin(&json, out);
    ckpt_emit_array(&json, nullptr);
    ckpt_emit_text_n(&json, nullptr, bytes.data(), bytes.size());
    ckpt_emit_end(&json);
  });
}

TEST(Json, StringsEscapeWhatTheyMust) {
  EXPECT_EQ(JsonString("a\"b\\c\n\t\x01\x1b\x7f"), "[\"a\\\"b\\\\c\\n\\t\\u0001\\u001b\\u007f\"]\n");
  EXPECT_EQ(JsonString("\xffx\xe2\x82"), "[\"\\ufffdx\\ufffd\\ufffd\"]\n");
  EXPECT_EQ(JsonString("\xf3\xa0\x80\x81"), "[\"\\udb40\\udc01\"]\n");
  EXPECT_EQ(JsonString(std::string("a\0b", 3)), "[\"a\\u0000b\"]\n");
}

// Any bytes give JSON that another parser reads, and well-formed text comes back unchanged.
TEST(Json, AnyBytesAreValid) {
  std::mt19937 random(11);
  for (int i = 0; i < 3000; i++) {
    std::string bytes(random() % 40, '\0');
    for (char &byte : bytes) byte = static_cast<char>(random() % 3 ? 0xC0 + random() % 64 : random());
    json_error_t error;
    std::string text = JsonString(bytes);
    json_t *root = json_loadb(text.data(), text.size(), JSON_ALLOW_NUL, &error);
    ASSERT_NE(root, nullptr) << error.text << ": " << text;
    json_decref(root);
  }
  const std::string plain = "größe \xf0\x9f\x98\x80 \xe2\x80\xae\xf3\xa0\x80\x81";
  json_t *root = json_loads(JsonString(plain).c_str(), 0, nullptr);
  EXPECT_EQ(json_string_value(json_array_get(root, 0)), plain);
  json_decref(root);
}

// ---- progress ------------------------------------------------------------------------------------------------

double fake_time;
double FakeNow() { return fake_time; }

ckpt_meter Meter(int fd, bool is_terminal) {
  ckpt_meter meter;
  ckpt_meter_begin(&meter, "always");
  fake_time = 100;
  meter.fd = fd;
  meter.is_terminal = is_terminal;
  meter.now = FakeNow;
  meter.started = 100;
  meter.drawn = 99;
  return meter;
}

// Everything up to the end; the other side must be closed. A pseudo-terminal ends with EIO.
std::string ReadAll(int fd) {
  std::string text;
  char bytes[4096];
  for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) text.append(bytes, static_cast<size_t>(n));
  return text;
}

TEST(Progress, PlainLinesEverySecondAfterTheFirst300Milliseconds) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ckpt_meter meter = Meter(fds[1], false);
  for (int i = 0; i < 300; i++) {  // three seconds
    fake_time = 100 + 0.01 * i;
    ckpt_meter_update(&meter, static_cast<uint64_t>(i) * 10000000, 6000000000);
  }
  ckpt_meter_end(&meter);
  close(fds[1]);
  std::string text = ReadAll(fds[0]);
  close(fds[0]);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3) << text;  // at 0.3, 1.3 and 2.3
  EXPECT_EQ(text.find("  5%  300.0 MB of 6.0 GB  1.0 GB/s  6 s left  peak "), 0u) << text;
  EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos) << text;
}

TEST(Progress, OneLineOnATerminalAtMostTenTimesASecondAndErased) {
  int master, slave;
  struct winsize window = {25, 30, 0, 0};
  ASSERT_EQ(openpty(&master, &slave, nullptr, nullptr, &window), 0);
  ckpt_meter meter = Meter(slave, true);
  for (int i = 0; i < 1000; i++) {  // one second
    fake_time = 100 + 0.001 * i;
    ckpt_meter_update(&meter, static_cast<uint64_t>(i), 1000);
  }
  ckpt_meter_end(&meter);
  close(slave);
  std::string text = ReadAll(master);
  close(master);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  size_t n_drawn = static_cast<size_t>(std::count(text.begin(), text.end(), '%'));
  EXPECT_GE(n_drawn, 6u);
  EXPECT_LE(n_drawn, 8u);
  for (size_t at = 0, next; at < text.size(); at = next) {  // no line is as wide as the terminal
    next = std::min(text.find('\r', at + 1), text.size());
    EXPECT_LE(next - at - 1, 29u);
  }
  EXPECT_EQ(text.substr(text.size() - 31), "\r" + std::string(29, ' ') + "\r");
}

TEST(Progress, SilentWhenFinishedEarlyOrOff) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ckpt_meter meter = Meter(fds[1], true);
  fake_time = 100.29;
  ckpt_meter_update(&meter, 10, 10);
  ckpt_meter_end(&meter);
  ckpt_meter off = Meter(fds[1], true);
  off.is_active = false;
  fake_time = 200;
  ckpt_meter_update(&off, 10, 10);
  ckpt_meter_end(&off);
  close(fds[1]);
  EXPECT_EQ(ReadAll(fds[0]), "");
  close(fds[0]);
}

TEST(Progress, NothingToReadIsNoDivision) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  ckpt_meter meter = Meter(fds[1], false);
  fake_time = 101;
  ckpt_meter_update(&meter, 0, 0);
  ckpt_meter_end(&meter);
  close(fds[1]);
  EXPECT_EQ(ReadAll(fds[0]).find("  0%  0 B of 0 B  0 B/s  ? left  peak "), 0u);
  close(fds[0]);
}

}  // namespace
