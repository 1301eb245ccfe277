/* publish.c - renameat2 with its flags, and the substitutes for NFS, FUSE and old kernels. */
#include "libckpt/io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/io/temporary.h"

/* Whether errno says that the file system or kernel lacks a flag of renameat2. */
static bool lacks_flags(void) { return errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP; }

static ckpt_status fail_rename(const char *path, ckpt_error *err) {
  if (errno == EEXIST || errno == ENOTEMPTY)
    return ckpt_fail(err, CKPT_EEXIST, path, NULL, "exists: it was made by something else while this was written");
  return ckpt_fail_errno(err, path, "cannot be renamed into place");
}

ckpt_status ckpt_rename_new(int from_folder, const char *from, int to_folder, const char *to, const char *path,
                            ckpt_error *err) {
  if (renameat2(from_folder, from, to_folder, to, RENAME_NOREPLACE) == 0) return CKPT_OK;
  if (!lacks_flags()) return fail_rename(path, err);
  return ckpt_rename_new_portably(from_folder, from, to_folder, to, path, err);
}

ckpt_status ckpt_rename_new_portably(int from_folder, const char *from, int to_folder, const char *to, const char *path,
                                     ckpt_error *err) {
  if (linkat(from_folder, from, to_folder, to, 0) == 0) {
    (void)unlinkat(from_folder, from, 0);
    return CKPT_OK;
  }
  if (errno == EEXIST) return fail_rename(path, err);
  struct stat st; /* a folder, or a file system without links: what comes between look and rename is lost */
  if (fstatat(to_folder, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return fail_rename(path, err);
  }
  return renameat(from_folder, from, to_folder, to) == 0 ? CKPT_OK : fail_rename(path, err);
}

ckpt_status ckpt_exchange(int folder, const char *from, const char *to, const char *path, ckpt_error *err) {
  if (renameat2(folder, from, folder, to, RENAME_EXCHANGE) == 0) return CKPT_OK;
  if (!lacks_flags()) return fail_rename(path, err);
  return ckpt_exchange_portably(folder, from, to, path, err);
}

ckpt_status ckpt_exchange_portably(int folder, const char *from, const char *to, const char *path, ckpt_error *err) {
  char aside[NAME_MAX + 1];
  CKPT_TRY(ckpt_temporary_name(aside, to, CKPT_TEMPORARY_OLD, err));
  if (renameat(folder, to, folder, aside) != 0) return fail_rename(path, err);
  if (renameat(folder, from, folder, to) != 0) {
    int code = errno;
    (void)renameat(folder, aside, folder, to);
    errno = code;
    return fail_rename(path, err);
  }
  if (renameat(folder, aside, folder, from) == 0) return CKPT_OK;
  return ckpt_fail_errno(err, path, "is written, but the old one stays as '%s'", aside);
}
