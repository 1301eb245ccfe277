/* fuzz_pickle - any bytes as a pickle, from memory and by windows: both readings agree, memory is linear in the input,
 * the graph can be printed, compared with itself and judged. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/pickle/pickle.h"
#include "tests/fuzz/fuzz.h"

typedef struct bytes {
  const uint8_t *data;
  size_t n;
} bytes;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  (void)err;
  const bytes *b = arg;
  if (offset > b->n || n_bytes > b->n - offset) abort();
  if (n_bytes != 0) memcpy(dst, b->data + offset, n_bytes);
  return CKPT_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  bytes b = {data, n_bytes};
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(1) << 30);
  ckpt_pickle_report reports[2];
  ckpt_pickle_options options = {.data = data, .n_bytes = n_bytes, .report = &reports[0]};
  ckpt_error err = {0}, again = {0};
  ckpt_object *root = NULL, *other = NULL;
  ckpt_status status = data == NULL ? CKPT_EFORMAT : ckpt_pickle_read(&root, NULL, &options, &arena, &err);
  if (arena.n_taken > (1 << 14) + 256 * (uint64_t)n_bytes) abort();
  options.data = NULL;
  options.fetch = fetch;
  options.arg = &b;
  options.report = &reports[1];
  if (ckpt_pickle_read(&other, NULL, &options, &arena, &again) != status || status == CKPT_EINTERNAL) abort();
  if (data != NULL && (strcmp(err.message, again.message) != 0 || reports[0].n_consumed != reports[1].n_consumed))
    abort();
  if (reports[1].n_consumed > n_bytes) abort();
  for (uint32_t i = 0; i < reports[1].n_globals; i++)
    if (reports[1].globals[i]->first >= n_bytes) abort();
  ckpt_pickle_judge_all(&reports[1], NULL);
  if (status == CKPT_OK) {
    if (!ckpt_object_equal(root, other)) abort();
    if (ckpt_object_print(root, 4096, &arena) == NULL) abort();
  }
  ckpt_arena_free(&arena);
  return 0;
}
