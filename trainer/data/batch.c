/* batch.c - see batch.h. */
#include "trainer/data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

static bool grow(void **array, size_t n, size_t n_bytes) {
  void *grown = reallocarray(*array, n, n_bytes);
  if (grown != NULL) *array = grown;
  return grown != NULL;
}

/* Room for n tokens; what is in it stays. */
static ckpt_status reserve(ckpt_loaded *b, size_t n, ckpt_error *err) {
  if (n <= b->capacity) return CKPT_OK;
  if (!grow((void **)&b->ids, n, sizeof *b->ids) || !grow((void **)&b->targets, n, sizeof *b->targets) ||
      !grow((void **)&b->positions, n, sizeof *b->positions) ||
      !grow((void **)&b->documents, n, sizeof *b->documents) || !grow((void **)&b->mask, n, 1))
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  b->capacity = n;
  return CKPT_OK;
}

static void pad(ckpt_loaded *b, size_t at) {
  b->ids[at] = b->positions[at] = 0;
  b->targets[at] = CKPT_NO_TARGET;
  b->documents[at] = -1;
  b->mask[at] = 0;
}

/* Widens the first n_rows of n_all from one length to another where they are: from the last on, none is overwritten. */
static ckpt_status widen(ckpt_loaded *b, uint32_t n_rows, uint32_t from, uint32_t to, uint64_t n_all, ckpt_error *err) {
  CKPT_TRY(reserve(b, (size_t)n_all * to, err));
  for (uint32_t r = n_rows; r-- > 0;) {
    const size_t src = (size_t)r * from, dst = (size_t)r * to;
    memmove(b->ids + dst, b->ids + src, from * sizeof *b->ids);
    memmove(b->targets + dst, b->targets + src, from * sizeof *b->targets);
    memmove(b->positions + dst, b->positions + src, from * sizeof *b->positions);
    memmove(b->documents + dst, b->documents + src, from * sizeof *b->documents);
    memmove(b->mask + dst, b->mask + src, from);
    for (uint32_t t = from; t < to; t++) pad(b, dst + t);
  }
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
