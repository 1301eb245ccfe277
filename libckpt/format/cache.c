/* cache.c - <cache>/models--org--name/{refs/<ref>, snapshots/<commit>/}, as the Hugging Face hub documents it. */
#include "libckpt/format/cache.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/recognize.h"

/* Whether text[0, n) may be a part of `org/name`: no path tricks. */
static bool is_part(const char *text, size_t n) {
  if (n == 0 || n > 96 || text[0] == '.' || text[0] == '-') return false;
  for (size_t i = 0; i < n; i++)
    if (!isalnum((unsigned char)text[i]) && memchr("._-", text[i], 3) == NULL) return false; /* nor a NUL */
  return memmem(text, n, "..", 2) == NULL && memmem(text, n, "--", 2) == NULL;
}

/* Whether `org/name` is rather a path that is not there: its folder is, or its name is a file's. */
static bool looks_local(const char *reference, size_t n_org, const char *name, size_t n_name) {
  static const char *const others[] = {".json", ".npz",   ".zip", ".yaml", ".yml",  ".txt",
                                       ".md",   ".index", ".pkl", ".tar",  ".model"};
  if (ckpt_names_weights(name, n_name)) return true;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (ckpt_text_ends_in(name, n_name, others[i])) return true;
  char folder[128];
  snprintf(folder, sizeof folder, "%.*s", (int)n_org, reference);
  return access(folder, F_OK) == 0;
}

static bool cache_root(char *out, size_t n) {
  const char *hub = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
  int length = hub != NULL && *hub     ? snprintf(out, n, "%s", hub)
               : home != NULL && *home ? snprintf(out, n, "%s/hub", home)
               : user != NULL && *user ? snprintf(out, n, "%s/.cache/huggingface/hub", user)
                                       : -1;
  return length > 0 && (size_t)length < n;
}

/* What a ref file holds, at most n bytes of it; it may have become a pipe, which must not be waited for. */
static ckpt_status read_ref(const char *path, int file, char *text, size_t n, size_t *n_text, ckpt_error *err) {
  struct stat found;
  ssize_t n_read;
  if (fstat(file, &found) != 0) return ckpt_fail_errno(err, path, "cannot be looked at");
  if (!S_ISREG(found.st_mode)) return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "not a regular file");
  do n_read = pread(file, text, n, 0);
  while (n_read < 0 && errno == EINTR);
  if (n_read < 0) return ckpt_fail_errno(err, path, "cannot read");
  *n_text = (size_t)n_read;
  while (*n_text > 0 && isspace((unsigned char)text[*n_text - 1])) --*n_text;
  return is_part(text, *n_text) ? CKPT_OK
                                : ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                                            "does not hold the name of a commit (download the model again)");
}

/* The commit that refs/<revision> names, or the revision itself when there is no such ref. */
static ckpt_status resolve_revision(const char *model, const char *revision, char *commit, size_t n_commit,
                                    ckpt_error *err) {
  char path[PATH_MAX], text[128];
  size_t n = 0;
  snprintf(commit, n_commit, "%s", revision);
  if ((size_t)snprintf(path, sizeof path, "%s/refs/%s", model, revision) >= sizeof path) return CKPT_OK;
  int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return CKPT_OK;
  if (file < 0) return ckpt_fail_errno(err, path, "cannot be opened");
  ckpt_status status = read_ref(path, file, text, sizeof text, &n, err);
  close(file);
  if (status == CKPT_OK) snprintf(commit, n_commit, "%.*s", (int)n, text);
  return status;
}

ckpt_status ckpt_cache_find(char *path, size_t n_path, const char *reference, ckpt_error *err) {
  const char *slash = strchr(reference, '/'), *at = strchr(reference, '@');
  const char *end = at != NULL ? at : reference + strlen(reference);
  const char *revision = at != NULL ? at + 1 : "main";
  if (slash == NULL || slash > end || !is_part(reference, (size_t)(slash - reference)) ||
      !is_part(slash + 1, (size_t)(end - slash - 1)) || !is_part(revision, strlen(revision)))
    return ckpt_fail(err, CKPT_ENOTFOUND, reference, NULL, "no such file or folder");
  char root[PATH_MAX / 2], model[PATH_MAX], commit[128];
  int n_org = (int)(slash - reference), n_name = (int)(end - slash - 1);
  if (cache_root(root, sizeof root)) {
    snprintf(model, sizeof model, "%s/models--%.*s--%.*s", root, n_org, reference, n_name, slash + 1);
    CKPT_TRY(resolve_revision(model, revision, commit, sizeof commit, err));
    int n = snprintf(path, n_path, "%s/snapshots/%s", model, commit);
    if (n > 0 && (size_t)n < n_path && access(path, R_OK) == 0) return CKPT_OK;
  }
  if (looks_local(reference, (size_t)n_org, slash + 1, (size_t)n_name))
    return ckpt_fail(err, CKPT_ENOTFOUND, reference, NULL, "no such file or folder");
  return ckpt_fail(err, CKPT_ENOTFOUND, reference, NULL,
                   "neither a local path nor in the Hugging Face cache (fetch it with: hf download %.*s%s%s)",
                   (int)(end - reference), reference,
                   at != NULL ? " --"
                                "revision "
                              : "",
                   at != NULL ? revision : "");
}
