/* error.c - filling and printing ckpt_error: the first message wins, later ones only complete it. */
#include "libckpt/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Copies text into a field of n bytes; what is too long loses its middle, so that both ends stay readable. */
static void copy_cut(char *field, size_t n, const char *text) {
  size_t length = strlen(text);
  if (length < n) {
    memcpy(field, text, length + 1);
    return;
  }
  size_t tail = (n - 4) / 2, head = n - 4 - tail;
  memcpy(field, text, head);
  memcpy(field + head, "...", 3);
  memcpy(field + head + 3, text + length - tail, tail + 1);
}

static void fill(ckpt_error *err, ckpt_status status, const char *file, const char *tensor, const char *message) {
  err->status = status;
  copy_cut(err->message, sizeof err->message, message);
  (void)ckpt_fail_at(status, err, file, tensor);
}

ckpt_status ckpt_fail(ckpt_error *err, ckpt_status status, const char *file, const char *tensor, const char *format,
                      ...) {
  if (err == NULL || err->status != CKPT_OK) return status;
  char message[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  fill(err, status, file, tensor, message);
  return status;
}

ckpt_status ckpt_fail_errno(ckpt_error *err, const char *file, const char *format, ...) {
  int code = errno;
  ckpt_status status = code == ENOMEM ? CKPT_ENOMEM : code == ENOENT ? CKPT_ENOTFOUND : CKPT_EIO;
  if (err == NULL || err->status != CKPT_OK) return status;
  char message[4096];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(message, sizeof message - 128, format, args);
  va_end(args);
  if (n < 0) n = 0;
  if ((size_t)n > sizeof message - 129) n = sizeof message - 129;
  char reason[120];
  snprintf(message + n, sizeof message - (size_t)n, ": %s", strerror_r(code, reason, sizeof reason));
  fill(err, status, file, NULL, message);
  return status;
}

ckpt_status ckpt_fail_at(ckpt_status status, ckpt_error *err, const char *file, const char *tensor) {
  if (err == NULL || status == CKPT_OK) return status;
  if (file != NULL && err->file[0] == '\0') copy_cut(err->file, sizeof err->file, file);
  if (tensor != NULL && err->tensor[0] == '\0') copy_cut(err->tensor, sizeof err->tensor, tensor);
  return status;
}

const char *ckpt_error_text(const ckpt_error *err, char *out, size_t n_bytes) {
  snprintf(out, n_bytes, "%s%s%s%s%s%s", err->file, err->file[0] ? ": " : "", err->tensor[0] ? "tensor '" : "",
           err->tensor, err->tensor[0] ? "': " : "", err->message);
  return out;
}

const char *ckpt_status_text(ckpt_status status) {
  switch (status) {
    case CKPT_OK: return "done";
    case CKPT_EINVAL: return "an argument or option cannot be meant";
    case CKPT_ENOTFOUND: return "a path, tensor or pattern names nothing";
    case CKPT_EEXIST: return "the output exists already, or two things have one name";
    case CKPT_EFORMAT: return "the bytes are not what their format demands";
    case CKPT_EUNSUPPORTED: return "well formed, but not something this version does";
    case CKPT_ELIMIT: return "a stated limit would be passed";
    case CKPT_ENOMEM: return "out of memory";
    case CKPT_EIO: return "the operating system failed to read or write";
    case CKPT_EDIFFERENT: return "two things that had to be equal are not";
    case CKPT_EVALUE: return "a value cannot be represented where it goes";
    case CKPT_ECANCELED: return "cancelled";
    case CKPT_EINTERNAL: return "a bug in libckpt";
  }
  return "unknown status";
}

const char *ckpt_version(void) { return CKPT_VERSION; }
