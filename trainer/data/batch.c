/* batch.c - see batch.h. */
#include "trainer/data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

static ckpt_status reserve(ckpt_loaded *b, size_t n, ckpt_error *err) {
  if (n <= b->capacity) return CKPT_OK;
  ckpt_batch_free(b);
  b->ids = calloc(n, sizeof *b->ids);
  b->targets = calloc(n, sizeof *b->targets);
  b->positions = calloc(n, sizeof *b->positions);
  b->documents = calloc(n, sizeof *b->documents);
  b->mask = calloc(n, 1);
  if (b->ids == NULL || b->targets == NULL || b->positions == NULL || b->documents == NULL || b->mask == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  b->capacity = n;
  return CKPT_OK;
}

/* Widens rows of n_rows from one length to another, from the last on. */
static ckpt_status widen(ckpt_loaded *b, uint32_t n_rows, uint32_t from, uint32_t to, uint64_t n_all, ckpt_error *err) {
  ckpt_loaded wide = {0};
  ckpt_status status = reserve(&wide, (size_t)n_all * to, err);
  for (uint32_t r = 0; r < n_rows && status == CKPT_OK; r++) {
    const size_t src = (size_t)r * from, dst = (size_t)r * to;
    memcpy(wide.ids + dst, b->ids + src, from * sizeof *b->ids);
    memcpy(wide.targets + dst, b->targets + src, from * sizeof *b->targets);
    memcpy(wide.positions + dst, b->positions + src, from * sizeof *b->positions);
    memcpy(wide.documents + dst, b->documents + src, from * sizeof *b->documents);
    memcpy(wide.mask + dst, b->mask + src, from);
    for (uint32_t t = from; t < to; t++) wide.targets[dst + t] = CKPT_NO_TARGET;
  }
  if (status != CKPT_OK) {
    ckpt_batch_free(&wide);
    return status;
  }
  wide.n_targets = b->n_targets;
  wide.n_tokens = b->n_tokens;
  ckpt_batch_free(b);
  *b = wide;
  return CKPT_OK;
}

static void put(ckpt_loaded *b, const ckpt_sample *s, uint32_t row, uint32_t length) {
  const size_t at = (size_t)row * length;
  int32_t position = 0;
  for (uint32_t t = 0; t < length; t++) {
    const bool is_token = t < s->n;
    b->ids[at + t] = is_token ? s->ids[t] : 0;
    b->mask[at + t] = is_token && s->mask[t] != 0;
    b->documents[at + t] = is_token ? s->documents[t] : -1;
    if (t != 0 && b->documents[at + t] != b->documents[at + t - 1]) position = 0;
    b->positions[at + t] = is_token ? position++ : 0;
    const bool has_next = t + 1 < s->n && s->documents[t + 1] == s->documents[t];
    b->targets[at + t] = has_next ? s->labels[t + 1] : CKPT_NO_TARGET;
    b->n_targets += has_next && s->labels[t + 1] != CKPT_NO_TARGET;
  }
  b->n_tokens += s->n;
}

ckpt_status ckpt_batch_load(ckpt_loaded *b, const ckpt_dataset *dataset, const ckpt_order *order, uint64_t epoch,
                            uint64_t first, uint64_t n, bool has_documents, ckpt_sample *sample, ckpt_error *err) {
  uint32_t length = 0;
  b->n_targets = b->n_tokens = 0;
  for (uint64_t r = 0; r < n; r++) {
    CKPT_TRY(ckpt_dataset_read(dataset, ckpt_order_sample(order, epoch, first + r), sample, err));
    if (sample->n > length) {
      const uint32_t from = length;
      length = (uint32_t)sample->n;
      CKPT_TRY(widen(b, (uint32_t)r, from, length, n, err));
    }
    put(b, sample, (uint32_t)r, length);
  }
  bool is_padded = false;
  for (size_t i = 0; i < (size_t)n * length; i++) is_padded = is_padded || b->mask[i] == 0;
  b->batch = (ckpt_token_batch){.n_rows = length == 0 ? 0 : (uint32_t)n,
                                .length = length,
                                .ids = b->ids,
                                .targets = b->targets,
                                .positions = has_documents ? b->positions : NULL,
                                .documents = has_documents ? b->documents : NULL,
                                .mask = is_padded ? b->mask : NULL};
  return CKPT_OK;
}

void ckpt_batch_free(ckpt_loaded *b) {
  free(b->ids);
  free(b->targets);
  free(b->positions);
  free(b->documents);
  free(b->mask);
  *b = (ckpt_loaded){0};
}
