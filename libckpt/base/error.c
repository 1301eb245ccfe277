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

ckpt_status ckpt_fail_option(ckpt_error *err, ckpt_status status, const char *file, const char *option,
                             const char *format, ...) {
  if (err == NULL || err->status != CKPT_OK) return status;
  char message[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof message, format, args);
  va_end(args);
  fill(err, status, file, NULL, message);
  copy_cut(err->option, sizeof err->option, option);
  return status;
}

ckpt_status ckpt_advise_value(ckpt_status status, ckpt_error *err, const char *advice, const char *value) {
  if (err == NULL || status == CKPT_OK || err->advice[0] != '\0') return status;
  copy_cut(err->advice, sizeof err->advice, advice);
  copy_cut(err->value, sizeof err->value, value);
  return status;
}

ckpt_status ckpt_advise(ckpt_status status, ckpt_error *err, const char *advice) {
  return ckpt_advise_value(status, err, advice, "");
}

ckpt_status ckpt_fail_as(ckpt_error *err, ckpt_status status, const char *file, const char *tensor,
                         const ckpt_error *why) {
  if (err == NULL || err->status != CKPT_OK) return status;
  fill(err, status, file, tensor, why->message);
  memcpy(err->option, why->option, sizeof err->option);
  memcpy(err->advice, why->advice, sizeof err->advice);
  memcpy(err->value, why->value, sizeof err->value);
  return status;
}

/* Text that grows at the end of a buffer; what does not fit is cut. */
typedef struct growing {
  char *out;
  size_t n, n_bytes;
} growing;

static void add(growing *t, const char *from, size_t n) {
  if (n > t->n_bytes - 1 - t->n) n = t->n_bytes - 1 - t->n;
  memcpy(t->out + t->n, from, n);
  t->n += n;
  t->out[t->n] = '\0';
}

static void add_all(growing *t, const char *from) { add(t, from, strlen(from)); }

static void name_plainly(const char *field, const char *value, char *out, size_t n_bytes) {
  snprintf(out, n_bytes, "%s%s%s", field, value[0] == '\0' ? "" : "=", value);
}

/* A field and its value, which begin behind a %. Returns what is behind them. */
static const char *add_field(growing *t, const char *at, const char *value, ckpt_name_field *name) {
  char field[64], of[256], named[400];
  growing set = {of, 0, sizeof of};
  const size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz_");
  snprintf(field, sizeof field, "%.*s", (int)n, at);
  of[0] = '\0';
  at += n;
  const bool has_value = *at == '=';
  for (at += has_value; has_value && *at != '\0' && *at != ' ' && *at != ','; at++) {
    if (*at == '$')
      add_all(&set, value);
    else
      add(&set, at, 1);
  }
  name(field, of, named, sizeof named);
  add_all(t, named);
  return at;
}

const char *ckpt_advice_text(const char *message, const char *advice, const char *value, ckpt_name_field *name,
                             char *out, size_t n_bytes) {
  const size_t n = strlen(message);
  const bool is_closed = n != 0 && message[n - 1] == ')'; /* goes on in its brackets */
  growing t = {out, 0, n_bytes};
  add(&t, message, n - (advice != NULL && is_closed));
  if (advice == NULL) return out;
  add_all(&t, is_closed ? "; " : " (");
  for (const char *at = advice; *at != '\0';) {
    const size_t n_plain = strcspn(at, "%");
    add(&t, at, n_plain);
    at += n_plain;
    if (*at == '%') at = add_field(&t, at + 1, value, name == NULL ? name_plainly : name);
  }
  add_all(&t, ")");
  return out;
}

const char *ckpt_error_message(const ckpt_error *err, ckpt_name_field *name, char *out, size_t n_bytes) {
  char text[sizeof err->message + 512], field[128];
  (void)ckpt_advice_text(err->message, err->advice[0] == '\0' ? NULL : err->advice, err->value, name, text,
                         sizeof text);
  if (err->option[0] == '\0')
    snprintf(out, n_bytes, "%s", text);
  else
    (name == NULL ? name_plainly : name)(err->option, "", field, sizeof field);
  if (err->option[0] != '\0') snprintf(out, n_bytes, "%s%s%s", field, text[0] == '\'' ? " " : ": ", text);
  return out;
}

const char *ckpt_error_text(const ckpt_error *err, char *out, size_t n_bytes) {
  char message[sizeof err->message + 1024];
  snprintf(out, n_bytes, "%s%s%s%s%s%s", err->file, err->file[0] ? ": " : "", err->tensor[0] ? "tensor '" : "",
           err->tensor, err->tensor[0] ? "': " : "", ckpt_error_message(err, NULL, message, sizeof message));
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

const char *ckpt_status_code(ckpt_status status) {
  static const char *const codes[] = {[CKPT_OK] = "ok",
                                      [CKPT_EINVAL] = "invalid",
                                      [CKPT_ENOTFOUND] = "not_found",
                                      [CKPT_EEXIST] = "exists",
                                      [CKPT_EFORMAT] = "format",
                                      [CKPT_EUNSUPPORTED] = "unsupported",
                                      [CKPT_ELIMIT] = "limit",
                                      [CKPT_ENOMEM] = "no_memory",
                                      [CKPT_EIO] = "io",
                                      [CKPT_EDIFFERENT] = "different",
                                      [CKPT_EVALUE] = "value",
                                      [CKPT_ECANCELED] = "canceled",
                                      [CKPT_EINTERNAL] = "internal"};
  return (size_t)status < sizeof codes / sizeof *codes ? codes[status] : codes[CKPT_EINTERNAL];
}

const char *ckpt_version(void) { return CKPT_VERSION; }
