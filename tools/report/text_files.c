/* text_files.c - see text_files.h. */
#include "tools/report/text_files.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"

/* What a shell hands over below /dev (<(...), /dev/stdin) is taken as it is, but for devices that never end. */
static ckpt_status check_kind(int fd, const char *path, const char *what, ckpt_error *err) {
  enum { PATIENCE_MS = 1000 };
  struct stat found, null;
  struct pollfd waiting = {.fd = fd, .events = POLLIN};
  const bool is_given = strcmp(path, "-") == 0 || strncmp(path, "/dev/", 5) == 0;
  if (fstat(fd, &found) != 0 || S_ISREG(found.st_mode)) return CKPT_OK;
  if (S_ISFIFO(found.st_mode) && (is_given || poll(&waiting, 1, PATIENCE_MS) != 0)) return CKPT_OK;
  if (S_ISFIFO(found.st_mode))
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "is a fifo from which nothing comes (give a file, or - for stdin)");
  const bool is_null = stat("/dev/null", &null) == 0 && found.st_rdev == null.st_rdev;
  const bool ends =
      !S_ISDIR(found.st_mode) && !S_ISBLK(found.st_mode) && (!S_ISCHR(found.st_mode) || is_null || isatty(fd) == 1);
  if (is_given && ends) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "is no file, and %s is one", what);
}

/* Opening a fifo that nobody writes to would wait for ever. */
ckpt_status ckpt_text_file_open(FILE **out, const char *path, const char *what, ckpt_error *err) {
  if (strcmp(path, "-") == 0) {
    *out = stdin;
    return check_kind(STDIN_FILENO, path, what, err);
  }
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return ckpt_fail_errno(err, path, "cannot open");
  ckpt_status status = check_kind(fd, path, what, err);
  if (status == CKPT_OK && (fcntl(fd, F_SETFL, 0) != 0 || (*out = fdopen(fd, "r")) == NULL))
    status = ckpt_fail_errno(err, path, "cannot open");
  if (status != CKPT_OK) close(fd);
  return status;
}

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
  FILE *file;
  CKPT_TRY(ckpt_text_file_open(&file, path, "a text", err));
  ckpt_status status = read_all(out, n_bytes, file, file == stdin ? "stdin" : path, max_bytes, err);
  if (file != stdin) fclose(file);
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

/* Appends the field `text` of a JSON object to out. */
static ckpt_status take_line(char *out, size_t *n_out, const char *line, size_t n_line, ckpt_error *err) {
  ckpt_json *json;
  ckpt_json_token token;
  bool is_found = false;
  CKPT_TRY(ckpt_json_new_text(&json, line, n_line, true, NULL, err));
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a line", err));
  for (;;) {
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    if (token != CKPT_JSON_KEY) break;
    if (is_found || strcmp(ckpt_json_text(json, NULL), "text") != 0) {
      CKPT_TRY_GOTO(ckpt_json_skip(json, err));
      continue;
    }
    size_t n;
    CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_STRING, "text", err));
    const char *text = ckpt_json_text(json, &n);
    memcpy(out + *n_out, text, n);
    *n_out += n;
    is_found = true;
  }
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_END, "the end of the line", err));
  if (!is_found) status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has no field text");
done:
  ckpt_json_free(json);
  return status;
}

/* Decoded text is never longer than its line, whose braces leave room for the empty line. */
static ckpt_status take_lines(char **text, size_t *n_bytes, const char *path, ckpt_error *err) {
  char *out = malloc(*n_bytes + 1), where[32];
  const char *line;
  size_t n_out = 0, at = 0, n_line, number = 0;
  CKPT_TRY_ALLOC(out, err);
  while (ckpt_text_line(*text, *n_bytes, &at, &line, &n_line)) {
    number++;
    if (n_line == 0) continue;
    if (n_out != 0) out[n_out++] = '\n', out[n_out++] = '\n';
    ckpt_error why = {0};
    ckpt_status status = take_line(out, &n_out, line, n_line, &why);
    if (status == CKPT_OK) continue;
    free(out);
    (void)snprintf(where, sizeof where, "line %zu", number);
    return ckpt_fail(err, status, path, NULL, "%s: %s", where, why.message);
  }
  out[n_out] = '\0';
  free(*text);
  *text = out;
  *n_bytes = n_out;
  return CKPT_OK;
}

ckpt_status ckpt_text_document_read(char **out, size_t *n_bytes, const char *path, ckpt_error *err) {
  CKPT_TRY(ckpt_text_file_read(out, n_bytes, path, CKPT_TEXT_FILE_MAX, err));
  if (!ckpt_text_ends(path, ".jsonl")) return CKPT_OK;
  ckpt_status status = take_lines(out, n_bytes, path, err);
  if (status != CKPT_OK) {
    free(*out);
    *out = NULL;
  }
  return status;
}
