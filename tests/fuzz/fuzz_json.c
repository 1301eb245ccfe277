/* fuzz_json - any bytes as JSON text, by a window at a time and at once; and a splice of what is valid. The two
 * readings have to agree, and a spliced text has to be JSON with the value in its place. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/json.h"
#include "tests/fuzz/fuzz.h"

typedef struct bytes {
  const uint8_t *data;
  size_t n;
} bytes;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  (void)err;
  const bytes *b = arg;
  if (offset > b->n || n_bytes > b->n - offset) abort();
  memcpy(dst, b->data + offset, n_bytes);
  return CKPT_OK;
}

/* Reads to the end; a hash of tokens and their text in *hash. */
static ckpt_status read_all(ckpt_json *json, uint64_t *hash) {
  ckpt_json_token token = CKPT_JSON_NULL;
  *hash = 0;
  while (token != CKPT_JSON_END) {
    ckpt_status status = ckpt_json_next(json, &token, NULL);
    if (status == CKPT_EINTERNAL || ckpt_json_start(json) > ckpt_json_stop(json)) abort();
    if (status != CKPT_OK) return status;
    *hash = *hash * 31 + (uint64_t)token;
    size_t n;
    const char *text = ckpt_json_text(json, &n);
    if (token == CKPT_JSON_KEY || token == CKPT_JSON_STRING || token == CKPT_JSON_NUMBER)
      for (size_t i = 0; i < n; i++) *hash = *hash * 31 + (uint8_t)text[i];
  }
  return CKPT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  bytes b = {data, n_bytes};
  ckpt_json_options options = {.fetch = fetch, .arg = &b, .n_bytes = n_bytes, .max_text = n_bytes, .allow_nan = true};
  ckpt_json *json;
  uint64_t hash, again;
  if (ckpt_json_new(&json, &options, NULL) != CKPT_OK) return 0;
  ckpt_status status = read_all(json, &hash);
  ckpt_json_free(json);
  if (ckpt_json_new_text(&json, (const char *)data, n_bytes, true, NULL, NULL) != CKPT_OK) return 0;
  if (read_all(json, &again) != status || hash != again) abort();
  ckpt_json_free(json);
  return 0;
}
