// The byte stream: what is counted is what is written, for any window; JSON text; the first failure stays.
#include "tests/libckpt/io/folder.h"

extern "C" {
#include "libckpt/io/stream.h"
}

namespace {

void generate(ckpt_stream *out) {
  ckpt_stream_text(out, "head");
  ckpt_stream_le(out, 0x0102030405060708, 8);
  ckpt_stream_le(out, 0xABCD, 2);
  ckpt_stream_fill(out, ' ', 5000);
  ckpt_stream_printf(out, "%d-%s", 7, "x");
  ckpt_stream_json(out, "a\"b", 3);
  ckpt_stream_bytes(out, "", 0);
}

std::string expected() {
  return "head" + std::string("\x08\x07\x06\x05\x04\x03\x02\x01\xCD\xAB") + std::string(5000, ' ') + "7-x\"a\\\"b\"";
}

class Out : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(ckpt_sink_memory(&sink_, nullptr), CKPT_OK);
    ckpt_sink_file file = {"f", CKPT_SIZE_UNKNOWN};
    ASSERT_EQ(ckpt_sink_open(sink_, &file, 1, nullptr), CKPT_OK);
  }
  void TearDown() override { ckpt_sink_free(sink_); }
  std::string bytes() const {
    uint64_t n;
    const char *data = static_cast<const char *>(ckpt_sink_bytes(sink_, 0, &n));
    return std::string(data, n);
  }
  ckpt_sink *sink_ = nullptr;
};

TEST_F(Out, CountsWhatItWrites) {
  ckpt_stream out;
  ckpt_stream_count(&out, nullptr);
  generate(&out);
  ASSERT_EQ(ckpt_stream_end(&out), CKPT_OK);
  EXPECT_EQ(out.n_bytes, expected().size());
}

TEST_F(Out, AnyWindowGivesTheSameBytes) {
  for (size_t n_window : {1, 2, 3, 7, 64, 4096, 5019, 5024, 10000}) {
    std::string window(n_window, '?');
    ckpt_stream out;
    ckpt_stream_sink(&out, sink_, 0, 10, window.data(), n_window, nullptr);
    generate(&out);
    ASSERT_EQ(ckpt_stream_end(&out), CKPT_OK);
    EXPECT_EQ(out.n_bytes, expected().size());
    EXPECT_EQ(bytes(), std::string(10, '\0') + expected()) << n_window;
  }
}

TEST_F(Out, JsonEscapesAsSerdeJsonDoes) {
  std::string all;
  for (int c = 0; c < 256; c++) all += static_cast<char>(c);
  std::string expected = "\"";
  for (int c = 0; c < 256; c++) {
    char code[8];
    snprintf(code, sizeof code, "\\u%04x", c);
    expected += c == '"'    ? "\\\""
                : c == '\\' ? "\\\\"
                : c == 8    ? "\\b"
                : c == 12   ? "\\f"
                : c == 10   ? "\\n"
                : c == 13   ? "\\r"
                : c == 9    ? "\\t"
                : c < 32    ? code
                            : std::string(1, static_cast<char>(c));
  }
  expected += "\"";
  char window[16];
  ckpt_stream out;
  ckpt_stream_sink(&out, sink_, 0, 0, window, sizeof window, nullptr);
  ckpt_stream_json(&out, all.data(), all.size());
  ASSERT_EQ(ckpt_stream_end(&out), CKPT_OK);
  EXPECT_EQ(bytes(), expected);
  EXPECT_NE(expected.find("\\u001f"), std::string::npos);
}

TEST_F(Out, FirstFailureStays) {
  Error err;
  ckpt_stream out;
  ckpt_stream_count(&out, err);
  ckpt_stream_text(&out, "abc");
  ckpt_stream_fail(&out, CKPT_EVALUE);
  ckpt_stream_fail(&out, CKPT_EIO);
  ckpt_stream_text(&out, "more");
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_EVALUE);
  EXPECT_EQ(out.n_bytes, 3u);

  ckpt_stream_count(&out, err);
  ckpt_stream_printf(&out, "%600d", 1);
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_EINTERNAL);

  ckpt_stream_count(&out, nullptr);
  ckpt_stream_fill(&out, 0, UINT64_MAX);
  ckpt_stream_fill(&out, 0, 1);
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_ELIMIT);

  ckpt_sink *small;
  ASSERT_EQ(ckpt_sink_memory(&small, nullptr), CKPT_OK);
  ckpt_sink_file file = {"f", 2};
  ASSERT_EQ(ckpt_sink_open(small, &file, 1, nullptr), CKPT_OK);
  char window[2];
  ckpt_stream_sink(&out, small, 0, 0, window, sizeof window, nullptr);
  ckpt_stream_text(&out, "abc");
  EXPECT_EQ(ckpt_stream_end(&out), CKPT_EINTERNAL) << "beyond the size that was promised";
  ckpt_sink_free(small);
}

}  // namespace
