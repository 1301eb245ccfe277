/* text_files.c - see text_files.h. */
#include "tools/report/text_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

static ckpt_status read_all(char **out, size_t *n_bytes, FILE *file, const char *path, uint64_t max_bytes,
                            ckpt_error *err) {
  size_t n = 0, capacity = 1 << 16;
  char *bytes = malloc(capacity);
  CKPT_TRY_ALLOC(bytes, err);
  for (size_t n_read; (n_read = fread(bytes + n, 1, capacity - n - 1, file)) != 0;) {
    n += n_read;
    if (n > max_bytes) {
      free(bytes);
      return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "more than %llu bytes of text", (unsigned long long)max_bytes);
    }
    if (capacity - n > 1) continue;
    char *moved = realloc(bytes, capacity *= 2);
    if (moved == NULL) free(bytes);
    CKPT_TRY_ALLOC(moved, err);
    bytes = moved;
  }
  if (ferror(file)) {
    free(bytes);
    return ckpt_fail_errno(err, path, "cannot read");
  }
  bytes[n] = '\0';
  *out = bytes;
  *n_bytes = n;
  return CKPT_OK;
}

ckpt_status ckpt_text_file_read(char **out, size_t *n_bytes, const char *path, uint64_t max_bytes, ckpt_error *err) {
  if (strcmp(path, "-") == 0) return read_all(out, n_bytes, stdin, "stdin", max_bytes, err);
  FILE *file = fopen(path, "rb");
  if (file == NULL) return ckpt_fail_errno(err, path, "cannot open");
  ckpt_status status = read_all(out, n_bytes, file, path, max_bytes, err);
  fclose(file);
  return status;
}

bool ckpt_text_line(const char *text, size_t n_bytes, size_t *at, const char **line, size_t *n_line) {
  if (*at >= n_bytes) return false;
  const char *end = memchr(text + *at, '\n', n_bytes - *at);
  *line = text + *at;
  *n_line = end == NULL ? n_bytes - *at : (size_t)(end - *line);
  *at += *n_line + 1;
  if (end != NULL && *n_line != 0 && (*line)[*n_line - 1] == '\r') --*n_line;
  return true;
}
