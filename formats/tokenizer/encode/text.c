/* text.c - runs: bytes that know where in the given text they came from; and the little of UTF-8 that they need. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/encode/encoder.h"
#include "libckpt/base/error.h"

ckpt_run ckpt_run_cut(const ckpt_run *run, size_t from, size_t to) {
  return (ckpt_run){.bytes = run->bytes + from,
                    .n = to - from,
                    .begin = run->begin == NULL ? NULL : run->begin + from,
                    .end = run->end == NULL ? NULL : run->end + from,
                    .base = run->base + from};
}

static ckpt_status reserve(ckpt_mapped *mapped, size_t n, ckpt_error *err) {
  if (mapped->limit != 0 && (mapped->n > mapped->limit || n > mapped->limit - mapped->n))
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "the normalizer makes too much of a text: %zu bytes (%zu are left of %d times its own and %d)",
                     mapped->n + n, mapped->limit, CKPT_NORMAL_FACTOR, CKPT_NORMAL_BYTES);
  if (n <= mapped->capacity - mapped->n) return CKPT_OK;
  size_t capacity = mapped->capacity + mapped->capacity / 2;
  if (capacity < mapped->n + n) capacity = mapped->n + n + 256;
  uint8_t *bytes = realloc(mapped->bytes, capacity);
  if (bytes != NULL) mapped->bytes = bytes;
  uint64_t *begin = reallocarray(mapped->begin, capacity, sizeof *begin);
  if (begin != NULL) mapped->begin = begin;
  uint64_t *end = reallocarray(mapped->end, capacity, sizeof *end);
  if (end != NULL) mapped->end = end;
  if (bytes == NULL || begin == NULL || end == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  mapped->capacity = capacity;
  return CKPT_OK;
}

ckpt_status ckpt_mapped_put(ckpt_mapped *mapped, const void *bytes, size_t n, uint64_t begin, uint64_t end,
                            ckpt_error *err) {
  CKPT_TRY(reserve(mapped, n, err));
  memcpy(mapped->bytes + mapped->n, bytes, n);
  for (size_t i = 0; i < n; i++) {
    mapped->begin[mapped->n + i] = begin;
    mapped->end[mapped->n + i] = end;
  }
  mapped->n += n;
  return CKPT_OK;
}

ckpt_status ckpt_mapped_copy(ckpt_mapped *mapped, const ckpt_run *run, size_t from, size_t to, ckpt_error *err) {
  CKPT_TRY(reserve(mapped, to - from, err));
  if (to == from) return CKPT_OK;
  memcpy(mapped->bytes + mapped->n, run->bytes + from, to - from);
  for (size_t i = from; i < to; i++) {
    mapped->begin[mapped->n] = ckpt_run_begin(run, i);
    mapped->end[mapped->n++] = ckpt_run_end(run, i);
  }
  return CKPT_OK;
}

ckpt_run ckpt_mapped_run(const ckpt_mapped *mapped) {
  return (ckpt_run){.bytes = mapped->bytes, .n = mapped->n, .begin = mapped->begin, .end = mapped->end};
}

void ckpt_mapped_free(ckpt_mapped *mapped) {
  free(mapped->bytes);
  free(mapped->begin);
  free(mapped->end);
  *mapped = (ckpt_mapped){0};
}

uint32_t ckpt_utf8_at(const uint8_t *bytes, size_t *n) {
  const uint32_t lead = bytes[0];
  *n = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (*n == 1) return lead;
  uint32_t code = lead & (0x7Fu >> *n);
  for (size_t i = 1; i < *n; i++) code = code << 6 | (bytes[i] & 0x3Fu);
  return code;
}

size_t ckpt_utf8_put(uint8_t out[4], uint32_t code) {
  static const uint8_t leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
  const size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
  for (size_t i = n; i-- > 1; code >>= 6) out[i] = (uint8_t)(0x80 | (code & 0x3F));
  out[0] = (uint8_t)(leads[n] | code);
  return n;
}

bool ckpt_is_space(uint32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}
