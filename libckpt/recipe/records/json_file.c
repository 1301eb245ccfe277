/* json_file.c - see json_file.h. */
#include "libckpt/recipe/records/json_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"

ckpt_status ckpt_json_file_open(ckpt_json_file *file, const char *path, const char *what, ckpt_error *err) {
  struct stat found;
  file->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd == -1) return ckpt_fail_errno(err, path, "cannot open %s", what);
  ckpt_status status = CKPT_OK;
  if (fstat(file->fd, &found) != 0)
    status = ckpt_fail_errno(err, path, "cannot open %s", what);
  else if (!S_ISREG(found.st_mode))
    status = ckpt_fail(err, CKPT_EFORMAT, path, NULL, "is no regular file");
  if (status == CKPT_OK)
    file->n_bytes = (uint64_t)found.st_size;
  else
    ckpt_json_file_close(file);
  return status;
}

void ckpt_json_file_close(ckpt_json_file *file) {
  if (file->fd != -1) close(file->fd);
  file->fd = -1;
}

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const ckpt_json_file *file = arg;
  for (size_t done = 0; done < n_bytes;) {
    ssize_t n = pread(file->fd, (char *)dst + done, n_bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ckpt_fail_errno(err, NULL, "cannot read");
    if (n == 0) return ckpt_fail(err, CKPT_EIO, NULL, NULL, "shrank while being read");
    done += (size_t)n;
  }
  return CKPT_OK;
}

ckpt_status ckpt_json_file_read(ckpt_json **out, ckpt_json_file *file, ckpt_error *err) {
  const ckpt_json_options options = {
      .fetch = fetch, .arg = file, .n_bytes = file->n_bytes, .max_text = CKPT_JSON_FILE_MAX_TEXT};
  return ckpt_json_new(out, &options, err);
}

ckpt_status ckpt_json_take_text(ckpt_json *json, const char *what, bool is_nullable, const char **text,
                                ckpt_error *err) {
  ckpt_json_token token;
  size_t n;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  *text = NULL;
  if (token == CKPT_JSON_NULL && is_nullable) return CKPT_OK;
  if (token != CKPT_JSON_STRING)
    return ckpt_json_fail(json, err, "%s has to be a string, not %s", what, ckpt_json_token_name(token));
  *text = ckpt_json_text(json, &n);
  return strlen(*text) == n ? CKPT_OK : ckpt_json_fail(json, err, "%s holds a NUL character", what);
}
