/* sequences.c - see sequences.h. */
#include "trainer/data/sequences.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

enum { HEADER = 34 };
static const char magic[9] = "MMIDIDX";

static uint64_t number(const uint8_t *bytes, size_t n) {
  uint64_t value = 0;
  for (size_t i = 0; i < n; i++) value |= (uint64_t)bytes[i] << 8 * i;
  return value;
}

static ckpt_status read_header(ckpt_sequences *s, FILE *file, const char *path, uint64_t n_file, ckpt_error *err) {
  uint8_t header[HEADER];
  uint64_t n_bytes;
  if (fread(header, 1, HEADER, file) != HEADER || memcmp(header, magic, sizeof magic) != 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it is no index of Megatron's (MMIDIDX)");
  const uint64_t version = number(header + 9, 8);
  const uint8_t type = header[17];
  if (version != 1) return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "its version is %" PRIu64 ", not 1", version);
  if (type != 4 && type != 8)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "its tokens have type %u: it has to be 4 (i32) or 8 (u16)",
                     type);
  s->width = type == 4 ? 4 : 2;
  s->n = number(header + 18, 8);
  if (!ckpt_mul_u64(s->n, 12, &n_bytes) || !ckpt_range_within(HEADER, n_bytes, n_file))
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it says %" PRIu64 " sequences, and has %" PRIu64 " bytes", s->n,
                     n_file);
  return CKPT_OK;
}

/* Lengths first, which say where each has to begin; then where each does. */
static ckpt_status read_sequences(ckpt_sequences *s, FILE *file, const char *path, uint64_t n_bin, ckpt_error *err) {
  uint8_t bytes[8];
  uint64_t end = 0;
  s->offsets = calloc(s->n + 1, sizeof *s->offsets);
  CKPT_TRY_ALLOC(s->offsets, err);
  for (uint64_t i = 0; i < s->n; i++) {
    if (fread(bytes, 1, 4, file) != 4) return ckpt_fail_errno(err, path, "it cannot be read");
    const uint64_t length = number(bytes, 4);
    s->offsets[i] = end;
    if (length > INT32_MAX || !ckpt_range_within(end, length * s->width, n_bin))
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                       "sequence %" PRIu64 " has %" PRId32 " tokens from byte %" PRIu64 " on, and the .bin %" PRIu64
                       " bytes",
                       i, (int32_t)length, end, n_bin);
    end += length * s->width;
  }
  for (uint64_t i = 0; i < s->n; i++) {
    if (fread(bytes, 1, 8, file) != 8) return ckpt_fail_errno(err, path, "it cannot be read");
    if (number(bytes, 8) != s->offsets[i])
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                       "sequence %" PRIu64 " is at byte %" PRIu64 ", those before it end at %" PRIu64, i,
                       number(bytes, 8), s->offsets[i]);
  }
  if (end != n_bin)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its sequences end at byte %" PRIu64 ", the .bin at %" PRIu64, end,
                     n_bin);
  return CKPT_OK;
}

ckpt_status ckpt_sequences_read(ckpt_sequences *out, const char *bin, uint64_t n_bytes, ckpt_error *err) {
  char path[PATH_MAX];
  struct stat about;
  *out = (ckpt_sequences){0};
  const size_t n = strlen(bin);
  if (n < 4 || ckpt_c_snprintf(path, sizeof path, "%.*s.idx", (int)(n - 4), bin) >= (int)sizeof path) return CKPT_OK;
  FILE *file = fopen(path, "rb");
  if (file == NULL) return CKPT_OK;
  ckpt_status status = fstat(fileno(file), &about) != 0 ? ckpt_fail_errno(err, path, "it cannot be read") : CKPT_OK;
  if (status == CKPT_OK) status = read_header(out, file, path, (uint64_t)about.st_size, err);
  if (status == CKPT_OK) status = read_sequences(out, file, path, n_bytes, err);
  fclose(file);
  if (status != CKPT_OK) ckpt_sequences_free(out);
  return status;
}

void ckpt_sequences_free(ckpt_sequences *s) {
  free(s->offsets);
  *s = (ckpt_sequences){0};
}
