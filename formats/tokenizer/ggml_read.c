#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"
ckpt_status ckpt_tokenizer_read_ggml(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  (void)build;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL, "later");
}
