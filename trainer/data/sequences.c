/* sequences.c - see sequences.h. */
#include "trainer/data/sequences.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

static ckpt_status read_header(ckpt_sequences *s, uint64_t *n_documents, FILE *file, const char *path, uint64_t n_file,
                               ckpt_error *err) {
  uint8_t header[HEADER];
  uint64_t n_bytes, n_rest;
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
  *n_documents = number(header + 26, 8);
  if (!ckpt_mul_u64(s->n, 12, &n_bytes) || !ckpt_range_within(HEADER, n_bytes, n_file))
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it says %" PRIu64 " sequences, and has %" PRIu64 " bytes", s->n,
                     n_file);
  if (!ckpt_mul_u64(*n_documents, 8, &n_rest) || !ckpt_range_within(HEADER + n_bytes, n_rest, n_file))
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                     "it says %" PRIu64 " entries of documents, and has %" PRIu64 " bytes", *n_documents, n_file);
  if (*n_documents == 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it says 0 entries of documents: there is at least 1");
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

/* The first sequence of each document, then the number of sequences. */
static ckpt_status check_documents(const ckpt_sequences *s, uint64_t n, FILE *file, const char *path, ckpt_error *err) {
  uint8_t bytes[8];
  uint64_t before = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (fread(bytes, 1, 8, file) != 8) return ckpt_fail_errno(err, path, "it cannot be read");
    const uint64_t first = number(bytes, 8);
    if (i == 0 && first != 0)
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "document 0 begins at sequence %" PRId64 ", not at 0",
                       (int64_t)first);
    if (first < before || first > s->n)
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                       "document %" PRIu64 " begins at sequence %" PRId64 ", the one before at %" PRIu64
                       ", and there are %" PRIu64 " sequences",
                       i, (int64_t)first, before, s->n);
    before = first;
  }
  if (before != s->n)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "its documents end at sequence %" PRIu64 ", and there are %" PRIu64,
                     before, s->n);
  return CKPT_OK;
}

ckpt_status ckpt_sequences_read(ckpt_sequences *out, const char *bin, uint64_t n_bytes, ckpt_error *err) {
  char path[PATH_MAX];
  struct stat about;
  *out = (ckpt_sequences){0};
  const size_t n = strlen(bin);
  if (n < 4 || ckpt_c_snprintf(path, sizeof path, "%.*s.idx", (int)(n - 4), bin) >= (int)sizeof path) return CKPT_OK;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* as add_file in dataset.c */
  FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
  if (file == NULL && fd >= 0) close(fd);
  if (fd < 0) return CKPT_OK;
  CKPT_TRY_ALLOC(file, err);
  uint64_t n_documents = 0;
  ckpt_status status = fstat(fd, &about) != 0 ? ckpt_fail_errno(err, path, "it cannot be read") : CKPT_OK;
  if (status == CKPT_OK && !S_ISREG(about.st_mode))
    status = ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it is not a regular file");
  if (status == CKPT_OK) status = read_header(out, &n_documents, file, path, (uint64_t)about.st_size, err);
  if (status == CKPT_OK) status = read_sequences(out, file, path, n_bytes, err);
  if (status == CKPT_OK) status = check_documents(out, n_documents, file, path, err);
  fclose(file);
  if (status != CKPT_OK) ckpt_sequences_free(out);
  return status;
}

void ckpt_sequences_free(ckpt_sequences *s) {
  free(s->offsets);
  *s = (ckpt_sequences){0};
}
