// A tokenizer with its encoder, and the little that tests ask of them.
#pragma once

#include <jansson.h>

#include "tests/formats/formats_testing.h"

extern "C" {
#include "formats/tokenizer/tokenizer.h"
}

namespace formats_testing {

using Ids = std::vector<uint32_t>;

inline std::string tokenizer_data() { return std::string(CKPT_TESTS_DIR) + "/data/tokenizer/"; }

inline std::string unhex(const char *hex) {
  std::string bytes;
  for (; hex[0] != '\0'; hex += 2) bytes += static_cast<char>(std::stoi(std::string(hex, 2), nullptr, 16));
  return bytes;
}

inline Ids ids_of(const json_t *list) {
  Ids ids;
  for (size_t i = 0; i < json_array_size(list); i++)
    ids.push_back(static_cast<uint32_t>(json_integer_value(json_array_get(list, i))));
  return ids;
}

struct Tool {
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_text_encoder *encoder = nullptr;
  ckpt_encoding encoding = {};

  explicit Tool(ckpt_tokenizer *made) : tokenizer(made) { prepare(); }
  explicit Tool(const std::string &path) {
    ckpt_error err = {};
    EXPECT_EQ(ckpt_tokenizer_open(&tokenizer, path.c_str(), &err), CKPT_OK) << text_of(err);
    prepare();
  }
  Tool(const Tool &) = delete;
  ~Tool() {
    ckpt_encoding_free(&encoding);
    ckpt_text_encoder_free(encoder);
    ckpt_tokenizer_free(tokenizer);
  }

  Ids encode(const std::string &text, unsigned flags) {
    ckpt_error err = {};
    EXPECT_EQ(ckpt_text_encode(encoder, &encoding, text.data(), text.size(), flags, &err), CKPT_OK) << text_of(err);
    return Ids(encoding.ids, encoding.ids + encoding.n);
  }

  std::string decode(const Ids &ids, bool skip_special) {
    ckpt_error err = {};
    char *out = nullptr;
    size_t n = 0;
    EXPECT_EQ(ckpt_text_decode(encoder, &out, &n, ids.data(), ids.size(), skip_special, &err), CKPT_OK) << text_of(err);
    std::string text(out == nullptr ? "" : out, n);
    free(out);
    return text;
  }

 private:
  void prepare() {
    ckpt_error err = {};
    if (tokenizer == nullptr) return;
    EXPECT_EQ(ckpt_text_encoder_new(&encoder, tokenizer, &err), CKPT_OK) << text_of(err);
  }
};

}  // namespace formats_testing
