/* overlap.c - see overlap.h. Links are resolved on both sides: a file of the Hugging Face cache is the blob behind it.
 */
#include "libckpt/index/overlap.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/error.h"

/* The real path of what exists of path, with the rest as it stands. False when it is too long. */
static bool resolve(const char *path, char out[PATH_MAX]) {
  char head[PATH_MAX];
  size_t n = strlen(path), n_path = n;
  if (n >= sizeof head) return false;
  memcpy(head, path, n + 1);
  while (realpath(n == 0 ? "." : head, out) == NULL) {
    while (n > 0 && head[n - 1] == '/') n--;
    while (n > 0 && head[n - 1] != '/') n--;
    while (n > 1 && head[n - 1] == '/') n--;
    head[n] = '\0';
    if (n == 0 && realpath(".", out) == NULL) return false;
  }
  const char *rest = path + n;
  while (*rest == '/') rest++;
  size_t n_out = strlen(out), n_rest = n_path - (size_t)(rest - path);
  while (n_rest > 0 && rest[n_rest - 1] == '/') n_rest--;
  if (n_rest == 0) return true;
  if (n_out + 1 + n_rest >= PATH_MAX) return false;
  if (n_out > 1) out[n_out++] = '/';
  memcpy(out + n_out, rest, n_rest);
  out[n_out + n_rest] = '\0';
  return true;
}

/* Whether real path a is b or lies in it. */
static bool is_within(const char *a, const char *b) {
  size_t n = strlen(b);
  return strncmp(a, b, n) == 0 && (a[n] == '\0' || a[n] == '/' || (n > 0 && b[n - 1] == '/'));
}

bool ckpt_is_same_path(const char *a, const char *b) {
  char real_a[PATH_MAX], real_b[PATH_MAX];
  return resolve(a, real_a) && resolve(b, real_b) && strcmp(real_a, real_b) == 0;
}

/* An input named by its folder keeps the whole folder to itself. */
static ckpt_status check_folder(const char *input, const char *output, const char *real_output, bool may_lie_in,
                                ckpt_error *err) {
  char real[PATH_MAX];
  struct stat st;
  if (stat(input, &st) != 0 || !S_ISDIR(st.st_mode) || realpath(input, real) == NULL) return CKPT_OK;
  if (strcmp(real_output, real) == 0)
    return ckpt_fail(err, CKPT_EINVAL, output, NULL, "is the input itself (an input is never written)");
  if (is_within(real_output, real) && !may_lie_in)
    return ckpt_fail(err, CKPT_EINVAL, output, NULL, "lies in the input %s (write it elsewhere)", input);
  if (is_within(real, real_output))
    return ckpt_fail(err, CKPT_EINVAL, output, NULL, "contains the input %s (write it elsewhere)", input);
  return CKPT_OK;
}

ckpt_status ckpt_refuse_output_overlap(const char *path, const char *other, bool is_part, ckpt_error *err) {
  char real[PATH_MAX], real_other[PATH_MAX];
  if (!resolve(path, real)) return ckpt_fail(err, CKPT_EINVAL, path, NULL, "is too long for a path");
  if (!resolve(other, real_other)) return ckpt_fail(err, CKPT_EINVAL, other, NULL, "is too long for a path");
  if (strcmp(real, real_other) == 0)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "is given twice as output (the other is %s)", other);
  if (is_within(real, real_other) && !is_part)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "lies in the output %s (write it elsewhere)", other);
  if (is_within(real_other, real))
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "contains the output %s (write it elsewhere)", other);
  return CKPT_OK;
}

ckpt_status ckpt_refuse_input_overlap(const ckpt_index *index, const char *given, const char *output, bool may_lie_in,
                                      ckpt_error *err) {
  char real[PATH_MAX], real_output[PATH_MAX];
  if (index->source == NULL || ckpt_source_root(index->source)[0] == '\0') return CKPT_OK; /* memory */
  if (!resolve(output, real_output)) return ckpt_fail(err, CKPT_EINVAL, output, NULL, "is too long for a path");
  CKPT_TRY(check_folder(index->path, output, real_output, may_lie_in, err));
  if (given != NULL) CKPT_TRY(check_folder(given, output, real_output, may_lie_in, err));
  for (uint32_t i = 0; i < ckpt_source_count(index->source); i++) {
    const char *path = ckpt_source_path(index->source, i);
    if (path == NULL || realpath(path, real) == NULL || !is_within(real, real_output)) continue;
    if (strcmp(real, real_output) == 0)
      return ckpt_fail(err, CKPT_EINVAL, output, NULL, "is a file of the input (an input is never written)");
    return ckpt_fail(err, CKPT_EINVAL, output, NULL, "contains the input %s (write it elsewhere)", path);
  }
  return CKPT_OK;
}
