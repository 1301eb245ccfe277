// Every allocation of a tokenizer that is read and written as GGUF's metadata fails in turn: it fails as what it is,
// and what is made is whole.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "tests/faults/wrapped.h"

extern "C" {
#include "formats/tokenizer/tokenizer.h"
}

namespace {

const std::string kData = CKPT_TESTS_DIR "/data/tokenizer/";

std::string BytesOf(const ckpt_index *index, const char *key) {
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  if (meta == nullptr || meta->typed == nullptr) return "";
  return std::string(reinterpret_cast<const char *>(meta->typed->bytes), meta->typed->n_bytes);
}

// Reads a folder and makes keys of it; scores receives theirs.
ckpt_status Make(const std::string &folder, std::string *scores, ckpt_error *err) {
  ckpt_tokenizer *tokenizer = nullptr;
  ckpt_index *made = nullptr;
  ckpt_open_options options = {};
  const ckpt_tokenizer_ggml_options how = {"gpt-2", 0};
  options.struct_size = sizeof options;
  ckpt_status status = ckpt_tokenizer_open(&tokenizer, folder.c_str(), err);
  if (status == CKPT_OK) status = ckpt_index_new(&made, nullptr, "made.gguf", "gguf", &options, err);
  if (status == CKPT_OK) status = ckpt_tokenizer_to_ggml(made, tokenizer, &how, err);
  if (status == CKPT_OK) *scores = BytesOf(made, "tokenizer.ggml.scores");
  ckpt_index_free(made);
  ckpt_tokenizer_free(tokenizer);
  return status;
}

TEST(Tokenizer, EveryAllocationFailsAsWhatItIs) {
  for (const char *name : {"spm", "llama2", "gpt2-slow"}) {
    ckpt_error err = {};
    std::string wanted, scores;
    ASSERT_EQ(Make(kData + name, &wanted, &err), CKPT_OK) << err.message;
    for (long n = 1;; n += n < 60 ? 1 : 7) {
      err = {};
      wrapped::Fault fault(wrapped::kMemory, n);
      const ckpt_status status = Make(kData + name, &scores, &err);
      if (!fault.is_hit()) break;
      ASSERT_EQ(status, status == CKPT_OK ? CKPT_OK : CKPT_ENOMEM) << name << " " << n << " " << err.message;
      if (status == CKPT_OK) {
        ASSERT_TRUE(scores == wanted) << name << " " << n;
      }
    }
  }
}

}  // namespace
