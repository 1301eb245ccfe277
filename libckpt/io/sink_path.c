/* sink_path.c - a sink that writes a file or a folder: staged beside its final place, published by rename.
 *
 * Staged means: a file is written as a temporary sibling, a folder's files in a temporary sibling folder, or, where the
 * output is an existing empty folder, in a temporary folder inside it whose entries are renamed out. Only names that
 * this sink made, that a former output had (file_set.h) or that a killed run left (temporary.h) are ever removed. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/io/file_set.h"
#include "libckpt/io/publish.h"
#include "libckpt/io/sink.h"
#include "libckpt/io/source.h"
#include "libckpt/io/temporary.h"

/* Dirty bytes of one file after which the kernel is told to start writing them, so that the sync at the end is short
 * and memory does not fill with them. */
#define WRITEBACK_BYTES (UINT64_C(32) << 20)

enum { MAX_STAGES = 8, MAX_CREATORS = 16 };

typedef struct output_file {
  char *name; /* below the sink's folder; "" where the output is one file */
  char *path; /* where it will be: for messages */
  uint64_t n_bytes;
  bool is_created;
  _Atomic uint64_t n_written;
} output_file;

typedef struct path_sink {
  char *path; /* as the user wrote it, without slashes at its end */
  bool is_folder, force;
  bool keeps_old;               /* that an interrupted run put aside */
  bool is_replacing;            /* a folder stands there that is to be exchanged */
  bool is_inside;               /* an empty folder stands there: parent is that folder */
  bool is_staged, is_published; /* published: or nothing is left to remove */
  bool is_in_place;
  bool is_joined;           /* another rank made the files, and publishes them */
  ckpt_owns_files *owns;    /* of the format, for folders that are replaced */
  char *parent_path, *name; /* real path of the folder that holds name */
  char stage[NAME_MAX + 1]; /* temporary name in parent */
  int parent;
  int staged; /* what was made under it, locked as long as we live (temporary.h) */
  int folder; /* what file names are relative to: the staged folder, or the parent itself */
  output_file *files;
  uint32_t n_files;
  uint32_t n_threads;   /* that make them; 0 for one */
  ckpt_file_set tree;   /* of a folder */
  ckpt_file_set former; /* what is replaced beyond the tree */
  ckpt_leftovers leftovers;
  ckpt_descriptors *descriptors;
} path_sink;

/* ---- where it goes ---------------------------------------------------------------------------------------------- */

/* Splits a path into parent and name. */
static ckpt_status split(path_sink *sink, const char *path, ckpt_error *err) {
  const char *slash = strrchr(path, '/'), *name = ckpt_path_name(path);
  if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
    return ckpt_fail(err, CKPT_EINVAL, sink->path, NULL, "cannot be an output");
  sink->name = strdup(name);
  sink->parent_path = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
  CKPT_TRY_ALLOC(sink->name, err);
  CKPT_TRY_ALLOC(sink->parent_path, err);
  struct stat st;
  if (stat(sink->parent_path, &st) != 0 && errno == ENOENT)
    return ckpt_fail(err, CKPT_ENOTFOUND, sink->path, NULL, "there is no folder %s to write it in (make it first)",
                     sink->parent_path);
  if (stat(sink->parent_path, &st) != 0) return ckpt_fail_errno(err, sink->path, "the folder above cannot be used");
  if (S_ISDIR(st.st_mode)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, sink->path, NULL, "'%s' is no folder", sink->parent_path);
}

/* A folder stands where the output goes; links to it stand for it. */
static ckpt_status meet_folder(path_sink *sink, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  char *real = realpath(sink->path, NULL);
  int fd = real == NULL ? -1 : open(real, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    status = ckpt_fail_errno(err, sink->path, "cannot be used");
    goto done;
  }
  ckpt_error not_empty = {.status = CKPT_OK};
  status = ckpt_file_set_is_empty(fd, strrchr(real, '/') + 1, sink->path, &not_empty);
  if (status == CKPT_OK) {
    sink->is_inside = true;
    sink->parent_path = strdup(real);
    sink->name = strdup(strrchr(real, '/') + 1);
    status = sink->parent_path == NULL || sink->name == NULL ? CKPT_ENOMEM : CKPT_OK;
  } else if (status == CKPT_EEXIST && sink->force) {
    sink->is_replacing = true;
    status = split(sink, real, err);
  } else {
    (void)ckpt_fail_as(err, status, sink->path, NULL, &not_empty);
  }
done:
  if (fd >= 0) close(fd);
  free(real);
  return status == CKPT_ENOMEM ? ckpt_fail(err, status, NULL, NULL, "out of memory") : status;
}

/* Looks at what stands at the path and settles how it will be published. */
static ckpt_status settle(path_sink *sink, ckpt_error *err) {
  struct stat st;
  if (lstat(sink->path, &st) != 0) {
    if (errno != ENOENT) return ckpt_fail_errno(err, sink->path, "cannot be an output");
    return split(sink, sink->path, err);
  }
  if (sink->is_folder && stat(sink->path, &st) == 0 && S_ISDIR(st.st_mode)) return meet_folder(sink, err);
  if (sink->is_folder) return ckpt_fail(err, CKPT_EEXIST, sink->path, NULL, "exists and is no folder");
  if (!S_ISREG(st.st_mode))
    return ckpt_fail(err, CKPT_EEXIST, sink->path, NULL, "exists and is no regular file (a %s is never replaced)",
                     S_ISDIR(st.st_mode)   ? "folder"
                     : S_ISLNK(st.st_mode) ? "link"
                                           : "device, socket or pipe");
  if (!sink->force)
    return ckpt_advise(ckpt_fail(err, CKPT_EEXIST, sink->path, NULL, "exists"), err, "%force replaces it");
  return split(sink, sink->path, err);
}

/* ---- opening ---------------------------------------------------------------------------------------------------- */

static int open_output_file(void *owner, uint32_t file) {
  path_sink *sink = owner;
  output_file *f = &sink->files[file];
  const char *name = sink->is_folder ? f->name : sink->stage;
  int fd = openat(sink->folder, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (f->is_created ? 0 : O_CREAT | O_EXCL),
                  0666); /* the umask applies */
  if (fd < 0) return -errno;
  f->is_created = true;
  return fd;
}

/* "folder/name", or a copy of one of them when the other is NULL. */
static char *join(const char *folder, const char *name) {
  size_t n_folder = folder == NULL ? 0 : strlen(folder), n_name = name == NULL ? 0 : strlen(name);
  char *path = malloc(n_folder + 1 + n_name + 1);
  if (path == NULL) return NULL;
  if (n_folder > 0) memcpy(path, folder, n_folder);
  if (n_folder > 0 && n_name > 0) path[n_folder++] = '/';
  if (n_name > 0) memcpy(path + n_folder, name, n_name);
  path[n_folder + n_name] = '\0';
  return path;
}

/* Copies what is to be written and, for a folder, makes its tree. */
static ckpt_status copy_files(path_sink *sink, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  if (!sink->is_folder && n_files != 1)
    return ckpt_fail(err, CKPT_EINTERNAL, sink->path, NULL, "%" PRIu32 " files for one", n_files);
  sink->files = calloc(n_files == 0 ? 1 : n_files, sizeof *sink->files);
  CKPT_TRY_ALLOC(sink->files, err);
  for (; sink->n_files < n_files; sink->n_files++) {
    output_file *f = &sink->files[sink->n_files];
    const char *name = files[sink->n_files].name;
    if (sink->is_folder == (name == NULL))
      return ckpt_fail(err, CKPT_EINTERNAL, sink->path, NULL, "a folder's files have names, a file has none");
    f->n_bytes = files[sink->n_files].n_bytes;
    f->name = join(NULL, name);
    f->path = join(sink->path, name);
    if (f->name == NULL || f->path == NULL) {
      free(f->name), free(f->path);
      return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    }
    if (f->n_bytes != CKPT_SIZE_UNKNOWN && f->n_bytes > INT64_MAX) {
      sink->n_files++; /* so that it is freed */
      return ckpt_fail(err, CKPT_ELIMIT, f->path, NULL, "%" PRIu64 " bytes are too large for a file", f->n_bytes);
    }
  }
  if (!sink->is_folder) return CKPT_OK;
  const char **names = calloc(n_files == 0 ? 1 : n_files, sizeof *names);
  CKPT_TRY_ALLOC(names, err);
  for (uint32_t i = 0; i < n_files; i++) names[i] = sink->files[i].name;
  return ckpt_file_set_init(&sink->tree, names, n_files, sink->path, err);
}

/* What a file system has left for us, and what the outputs of known size need. */
typedef struct disk_space {
  uint64_t n_needed, n_available;
} disk_space;

static ckpt_status fail_space(const path_sink *sink, const disk_space *space, ckpt_error *err) {
  return ckpt_fail_errno(err, sink->path, "not enough space: %" PRIu64 " byte%s needed, %" PRIu64 " available",
                         space->n_needed, ckpt_plural(space->n_needed), space->n_available);
}

static ckpt_status measure_space(disk_space *space, const path_sink *sink, ckpt_error *err) {
  struct statvfs st;
  space->n_needed = 0;
  if (fstatvfs(sink->parent, &st) != 0 || !ckpt_mul_u64(st.f_bavail, st.f_frsize, &space->n_available))
    space->n_available = UINT64_MAX;
  uint64_t block = space->n_available == UINT64_MAX || st.f_frsize == 0 ? 1 : st.f_frsize;
  for (uint32_t i = 0; i < sink->n_files; i++) { /* in whole blocks, as they are taken */
    uint64_t n_bytes = sink->files[i].n_bytes, n_taken;
    if (n_bytes == CKPT_SIZE_UNKNOWN) continue;
    if (!ckpt_mul_u64(n_bytes / block + (n_bytes % block != 0), block, &n_taken) ||
        !ckpt_add_u64(space->n_needed, n_taken, &space->n_needed))
      return ckpt_fail(err, CKPT_ELIMIT, sink->path, NULL, "the output is larger than 2^64 bytes");
  }
  return CKPT_OK;
}

/* Gives a new file its size, with blocks behind it where the file system can promise them. */
static ckpt_status preallocate(const path_sink *sink, const output_file *f, int fd, const disk_space *space,
                               ckpt_error *err) {
  if (f->n_bytes == CKPT_SIZE_UNKNOWN || f->n_bytes == 0) return CKPT_OK;
  int failed;
  do {
    failed = fallocate(fd, 0, 0, (off_t)f->n_bytes);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0) return CKPT_OK;
  if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL) { /* no promise: at least compare and set the size */
    errno = ENOSPC;
    if (space->n_needed > space->n_available) return fail_space(sink, space, err);
    if (ftruncate(fd, (off_t)f->n_bytes) == 0) return CKPT_OK;
  }
  if (errno == ENOSPC || errno == EDQUOT) return fail_space(sink, space, err);
  return ckpt_fail_errno(err, f->path, "cannot be made %" PRIu64 " byte%s long", f->n_bytes, ckpt_plural(f->n_bytes));
}

/* Making the files, by several threads: in memory, blocks are made when they are promised. */
typedef struct creation {
  path_sink *sink;
  disk_space space;
  pthread_mutex_t mutex; /* guards what follows */
  uint32_t next;
  ckpt_status status; /* the first failure ends it */
  ckpt_error error;
} creation;

static ckpt_status create_file(const creation *c, uint32_t file, ckpt_error *err) {
  path_sink *sink = c->sink;
  int fd;
  CKPT_TRY(ckpt_descriptors_acquire(sink->descriptors, file, sink->files[file].path, &fd, err));
  ckpt_status status = preallocate(sink, &sink->files[file], fd, &c->space, err);
  ckpt_descriptors_release(sink->descriptors, file);
  return status;
}

static void *create_some(void *arg) {
  creation *c = arg;
  ckpt_error error = {0};
  ckpt_status status = CKPT_OK;
  for (;;) {
    pthread_mutex_lock(&c->mutex);
    if (c->status == CKPT_OK && status != CKPT_OK) {
      c->status = status;
      c->error = error;
    }
    const uint32_t file = c->status == CKPT_OK && c->next < c->sink->n_files ? c->next++ : c->sink->n_files;
    pthread_mutex_unlock(&c->mutex);
    if (file == c->sink->n_files) return NULL;
    status = create_file(c, file, &error);
  }
}

static ckpt_status create_files(path_sink *sink, ckpt_error *err) {
  creation c = {.sink = sink};
  CKPT_TRY(measure_space(&c.space, sink, err));
  CKPT_TRY(ckpt_descriptors_new(&sink->descriptors, CKPT_MAX_DESCRIPTORS, false, open_output_file, sink, err));
  CKPT_TRY(ckpt_descriptors_grow(sink->descriptors, sink->n_files, err));
  pthread_t threads[MAX_CREATORS];
  uint32_t n_threads = sink->n_threads < MAX_CREATORS ? sink->n_threads : MAX_CREATORS, n_started = 0;
  if (n_threads > sink->n_files) n_threads = sink->n_files;
  pthread_mutex_init(&c.mutex, NULL); /* beside this thread; fewer than wanted only cost time */
  while (n_started + 1 < n_threads && pthread_create(&threads[n_started], NULL, create_some, &c) == 0) n_started++;
  create_some(&c);
  for (uint32_t i = 0; i < n_started; i++) pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&c.mutex);
  if (c.status == CKPT_OK) return CKPT_OK;
  return ckpt_fail_as(err, c.status, c.error.file, c.error.tensor, &c.error);
}

/* What an open folder, to be replaced, holds beyond the tree. */
static ckpt_status covers(path_sink *sink, int old, ckpt_error *err) {
  ckpt_file_set_free(&sink->former);
  return ckpt_file_set_covers(&sink->tree, sink->owns, &sink->former, old, sink->path, err);
}

/* Whether force may replace the folder that stands there: only files of the same names, or of a former output. */
static ckpt_status check_replaced(path_sink *sink, ckpt_error *err) {
  int old = openat(sink->parent, sink->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (old < 0) return ckpt_fail_errno(err, sink->path, "cannot be replaced");
  ckpt_status status = covers(sink, old, err);
  close(old);
  return status;
}

/* Removes what killed runs left beside the output and, where a folder stands there, inside it. */
static void clean(path_sink *sink) {
  const char *other = sink->is_inside ? ".." : sink->is_replacing ? sink->name : NULL;
  bool is_replaced = sink->force && !sink->is_inside && !sink->keeps_old; /* an empty folder replaces nothing */
  ckpt_temporary_clean(sink->parent, sink->name, is_replaced ? sink->name : NULL, &sink->leftovers);
  int fd = other == NULL ? -1 : openat(sink->parent, other, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return;
  ckpt_temporary_clean(fd, sink->name, is_replaced ? sink->name : NULL, &sink->leftovers);
  close(fd);
}

/* Makes the temporary file or folder. staged stays -1 where another run has removed the folder already. */
static ckpt_status make_stage(path_sink *sink, ckpt_error *err) {
  CKPT_TRY(ckpt_temporary_name(sink->stage, sink->name, CKPT_TEMPORARY_NEW, err));
  if (!sink->is_folder) {
    sink->staged = openat(sink->parent, sink->stage, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_CREAT | O_EXCL,
                          0666); /* the umask applies */
    if (sink->staged < 0) return ckpt_fail_errno(err, sink->path, "cannot make a file for it");
    sink->files[0].is_created = sink->is_staged = true;
    sink->folder = sink->parent;
    return CKPT_OK;
  }
  if (mkdirat(sink->parent, sink->stage, 0777) != 0)
    return ckpt_fail_errno(err, sink->path, "cannot make a folder for it");
  sink->is_staged = true;
  sink->staged = openat(sink->parent, sink->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (sink->staged < 0 && errno != ENOENT)
    return ckpt_fail_errno(err, sink->path, "cannot open the folder made for it");
  sink->folder = sink->staged;
  return CKPT_OK;
}

/* The same until it is locked: another run that met it before may remove it. */
static ckpt_status hold_stage(path_sink *sink, ckpt_error *err) {
  for (int i = 0; i < MAX_STAGES; i++) {
    int begun = ckpt_temporary_begin(sink->parent);
    ckpt_status status = make_stage(sink, err);
    bool is_held =
        status == CKPT_OK && sink->staged >= 0 && ckpt_temporary_hold(sink->parent, sink->stage, sink->staged);
    if (begun >= 0) close(begun);
    if (status != CKPT_OK || is_held) return status;
    if (sink->staged >= 0) close(sink->staged);
    sink->staged = sink->folder = -1;
    sink->is_staged = false;
  }
  return ckpt_fail(err, CKPT_EIO, sink->path, NULL, "its temporary files are removed by something else");
}

static ckpt_status path_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  path_sink *sink = ctx;
  CKPT_TRY(copy_files(sink, files, n_files, err));
  sink->parent = open(sink->parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (sink->parent < 0) return ckpt_fail_errno(err, sink->path, "the folder above cannot be used");
  clean(sink);
  if (sink->is_replacing) CKPT_TRY(check_replaced(sink, err));
  CKPT_TRY(hold_stage(sink, err));
  if (sink->is_folder) CKPT_TRY(ckpt_file_set_make_folders(&sink->tree, sink->folder, sink->path, err));
  return create_files(sink, err);
}

/* The temporary name: the others find it beside the same output. */
static ckpt_status path_share(void *ctx, char token[CKPT_TOKEN_BYTES], ckpt_error *err) {
  const path_sink *sink = ctx;
  if (strlen(sink->stage) >= CKPT_TOKEN_BYTES) return ckpt_fail(err, CKPT_EINTERNAL, sink->path, NULL, "long name");
  memcpy(token, sink->stage, strlen(sink->stage) + 1);
  return CKPT_OK;
}

static ckpt_status path_join(void *ctx, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                             ckpt_error *err) {
  path_sink *sink = ctx;
  sink->is_joined = sink->is_published = true; /* there is nothing to remove for this one */
  if (token[0] != '.' || strchr(token, '/') != NULL || strlen(token) >= sizeof sink->stage)
    return ckpt_fail(err, CKPT_EINVAL, sink->path, NULL, "'%s' is no temporary name of rank 0", token);
  memcpy(sink->stage, token, strlen(token) + 1);
  CKPT_TRY(copy_files(sink, files, n_files, err));
  for (uint32_t i = 0; i < n_files; i++) sink->files[i].is_created = true;
  sink->parent = open(sink->parent_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (sink->parent < 0) return ckpt_fail_errno(err, sink->path, "the folder above cannot be used");
  sink->folder = sink->parent;
  if (sink->is_folder)
    sink->folder = sink->staged = openat(sink->parent, token, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (sink->folder < 0)
    return ckpt_fail_errno(err, sink->path,
                           "'%s', which rank 0 made, is not seen here: ranks that write one output need one "
                           "file system",
                           token);
  CKPT_TRY(ckpt_descriptors_new(&sink->descriptors, CKPT_MAX_DESCRIPTORS, false, open_output_file, sink, err));
  return ckpt_descriptors_grow(sink->descriptors, n_files, err);
}

/* ---- bytes ------------------------------------------------------------------------------------------------------ */

static ckpt_status path_write_at(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                 ckpt_error *err) {
  path_sink *sink = ctx;
  output_file *f = &sink->files[file];
  int fd;
  CKPT_TRY(ckpt_descriptors_acquire(sink->descriptors, file, f->path, &fd, err));
  ckpt_status status = ckpt_write_exactly(fd, f->path, offset, src, n_bytes, err);
  uint64_t before = atomic_fetch_add_explicit(&f->n_written, n_bytes, memory_order_relaxed);
  if (status == CKPT_OK && (before + n_bytes) / WRITEBACK_BYTES != before / WRITEBACK_BYTES)
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); /* only a hint */
  ckpt_descriptors_release(sink->descriptors, file);
  return status;
}

static ckpt_status path_read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  path_sink *sink = ctx;
  int fd;
  CKPT_TRY(ckpt_descriptors_acquire(sink->descriptors, file, sink->files[file].path, &fd, err));
  ckpt_status status = ckpt_read_exactly(fd, sink->files[file].path, offset, dst, n_bytes, err);
  ckpt_descriptors_release(sink->descriptors, file);
  return status;
}

static bool path_clone(void *ctx, uint32_t file, int from) {
  path_sink *sink = ctx;
  int fd;
  if (ckpt_descriptors_acquire(sink->descriptors, file, sink->files[file].path, &fd, NULL) != CKPT_OK) return false;
  bool is_cloned = ioctl(fd, FICLONE, from) == 0;
  ckpt_descriptors_release(sink->descriptors, file);
  return is_cloned;
}

/* Whether an open file or folder is what name of `folder` is. */
static bool is_there(int folder, const char *name, int fd) {
  struct stat made, there;
  return fd >= 0 && fstat(fd, &made) == 0 && fstatat(folder, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
         made.st_dev == there.st_dev && made.st_ino == there.st_ino;
}

/* What is about to be published is what was written: a cleaner of temporary files may have come by. */
static ckpt_status check_there(const path_sink *sink, const output_file *f, int fd, ckpt_error *err) {
  struct stat made;
  if (fstat(fd, &made) != 0) return ckpt_fail_errno(err, f->path, "cannot be looked at");
  bool is_same = is_there(sink->folder, sink->is_folder ? f->name : sink->stage, fd);
  bool is_whole = f->n_bytes == CKPT_SIZE_UNKNOWN || (uint64_t)made.st_size == f->n_bytes;
  if (is_same && is_whole) return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, f->path, NULL, "was %s by somebody else while it was written",
                   is_same ? "cut or grown" : "removed or replaced");
}

static ckpt_status sync_file(path_sink *sink, uint32_t file, ckpt_error *err) {
  int fd, failed;
  CKPT_TRY(ckpt_descriptors_acquire(sink->descriptors, file, sink->files[file].path, &fd, err));
  do {
    failed = fsync(fd);
  } while (failed != 0 && errno == EINTR);
  ckpt_status status = failed == 0 ? check_there(sink, &sink->files[file], fd, err)
                                   : ckpt_fail_errno(err, sink->files[file].path, "cannot be synced");
  ckpt_descriptors_release(sink->descriptors, file);
  return status;
}

static ckpt_status path_seal(void *ctx, ckpt_error *err) {
  path_sink *sink = ctx;
  for (uint32_t i = 0; i < sink->n_files; i++)
    if (!sink->is_joined || sink->files[i].n_written != 0) CKPT_TRY(sync_file(sink, i, err));
  CKPT_TRY(ckpt_fail_at(ckpt_descriptors_close(sink->descriptors, err), err, sink->path, NULL));
  return sink->is_folder ? ckpt_file_set_sync_folders(&sink->tree, sink->folder, sink->path, err) : CKPT_OK;
}

/* ---- publishing ------------------------------------------------------------------------------------------------- */

static ckpt_status publish_file(path_sink *sink, ckpt_error *err) {
  struct stat st;
  if (!sink->force) return ckpt_rename_new(sink->parent, sink->stage, sink->parent, sink->name, sink->path, err);
  if (fstatat(sink->parent, sink->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode))
    return ckpt_fail(err, CKPT_EEXIST, sink->path, NULL, "is no regular file any more, and is not replaced");
  if (renameat(sink->parent, sink->stage, sink->parent, sink->name) == 0) return CKPT_OK;
  return ckpt_fail_errno(err, sink->path, "cannot be renamed into place");
}

/* The folder that an exchange left under the temporary name: `old`, which stood there before, or, where another run has
 * published in between, that one's, which is judged anew. -1 and a message where it cannot be removed. */
static int open_exchanged(path_sink *sink, int old, ckpt_error *err) {
  if (is_there(sink->parent, sink->stage, old)) return old;
  int other = openat(sink->parent, sink->stage, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (other < 0) {
    (void)ckpt_fail_errno(err, NULL, "it cannot be opened");
    return -1;
  }
  (void)flock(other, LOCK_EX | LOCK_NB);
  if (covers(sink, other, err) == CKPT_OK) return other;
  close(other);
  return -1;
}

/* Removes it; already gone is fine. */
static ckpt_status remove_exchanged(path_sink *sink, int old, ckpt_error *err) {
  struct stat st;
  ckpt_error own = {0};
  int fd = open_exchanged(sink, old, &own);
  if (fd >= 0) {
    ckpt_file_set_remove(&sink->tree, fd);
    ckpt_file_set_remove(&sink->former, fd);
    if (unlinkat(sink->parent, sink->stage, AT_REMOVEDIR) != 0) (void)ckpt_fail_errno(&own, NULL, "not removed");
    if (fd != old) close(fd);
  }
  if (own.status == CKPT_OK || fstatat(sink->parent, sink->stage, &st, AT_SYMLINK_NOFOLLOW) != 0) return CKPT_OK;
  return ckpt_fail(err, own.status, sink->path, NULL,
                   "is written, but the old one cannot be removed and stays as '%s' beside it: %s", sink->stage,
                   own.message);
}

/* Exchanges the staged folder with the old one and removes that, which then has the temporary name: not before the new
 * one is sure to be there. Where that fails they change back. */
static ckpt_status replace_folder(path_sink *sink, ckpt_error *err) {
  int old = openat(sink->parent, sink->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (old < 0) return ckpt_fail_errno(err, sink->path, "cannot be replaced");
  (void)flock(old, LOCK_EX | LOCK_NB);         /* it gets a temporary name, and is not left over yet */
  ckpt_status status = covers(sink, old, err); /* of what is removed, not of what stood there before it */
  if (status == CKPT_OK) status = ckpt_exchange(sink->parent, sink->stage, sink->name, sink->path, err);
  if (status == CKPT_OK) {
    status = ckpt_sync_folder(sink->parent, sink->path, err);
    if (status != CKPT_OK) (void)ckpt_exchange(sink->parent, sink->stage, sink->name, sink->path, NULL);
  }
  if (status == CKPT_OK) {
    sink->is_published = sink->is_in_place = true;
    status = remove_exchanged(sink, old, err);
  }
  close(old);
  return status;
}

/* When a top-level entry is renamed: 0 first; what makes a folder a checkpoint comes last. */
static int publish_turn(const char *name, size_t n) {
  static const char index[] = ".index.json", config[] = "config.json", metadata[] = ".metadata";
  if (n == sizeof config - 1 && memcmp(name, config, n) == 0) return 2;
  if (n == sizeof metadata - 1 && memcmp(name, metadata, n) == 0) return 3;
  return n >= sizeof index - 1 && memcmp(name + n - (sizeof index - 1), index, sizeof index - 1) == 0 ? 1 : 0;
}

/* Renames the first `limit` top-level entries, in order of their turns, out of the staged folder or back into it.
 * *n_moved counts them. */
static ckpt_status move_entries(const path_sink *sink, bool is_back, uint32_t limit, uint32_t *n_moved,
                                ckpt_error *err) {
  const ckpt_file_set *tree = &sink->tree;
  for (int turn = 0; turn <= 3; turn++) {
    for (uint32_t i = 0; i < tree->n_names; i++) {
      char entry[NAME_MAX + 1];
      const char *name = tree->names[i], *before = i == 0 ? "" : tree->names[i - 1];
      size_t n = strcspn(name, "/");
      if (strcspn(before, "/") == n && memcmp(before, name, n) == 0) continue; /* an entry met already */
      if (publish_turn(name, n) != turn) continue;
      if (*n_moved == limit) return CKPT_OK;
      memcpy(entry, name, n);
      entry[n] = '\0';
      if (is_back)
        (void)renameat(sink->parent, entry, sink->folder, entry);
      else
        CKPT_TRY(ckpt_rename_new(sink->folder, entry, sink->parent, entry, sink->path, err));
      ++*n_moved;
    }
  }
  return CKPT_OK;
}

/* Renames the entries out of the folder staged inside; what was moved before a failure goes back. */
static ckpt_status fill_folder(path_sink *sink, ckpt_error *err) {
  uint32_t n_moved = 0, n_back = 0;
  ckpt_status status = move_entries(sink, false, UINT32_MAX, &n_moved, err);
  if (status != CKPT_OK) {
    (void)move_entries(sink, true, n_moved, &n_back, NULL);
    return status;
  }
  sink->is_published = sink->is_in_place = true;
  if (unlinkat(sink->parent, sink->stage, AT_REMOVEDIR) == 0 || errno == ENOENT) return CKPT_OK;
  status = ckpt_fail_errno(err, sink->path, "is written, but the temporary folder '%s' in it cannot be removed",
                           sink->stage);
  (void)ckpt_sync_folder(sink->parent, sink->path, NULL);
  return status;
}

static ckpt_status path_publish(void *ctx, ckpt_error *err) {
  path_sink *sink = ctx;
  (void)ckpt_descriptors_close(sink->descriptors, NULL); /* read back after the seal; nothing written since */
  if (sink->is_folder && !is_there(sink->parent, sink->stage, sink->folder)) /* a publish that failed late moved it */
    return ckpt_fail(err, CKPT_EIO, sink->path, NULL, "the folder that it was written to is gone from '%s'",
                     sink->stage);
  if (!sink->is_folder)
    CKPT_TRY(publish_file(sink, err));
  else if (sink->is_inside)
    CKPT_TRY(fill_folder(sink, err));
  else if (sink->is_replacing)
    CKPT_TRY(replace_folder(sink, err));
  else
    CKPT_TRY(ckpt_rename_new(sink->parent, sink->stage, sink->parent, sink->name, sink->path, err));
  sink->is_published = sink->is_in_place = true;
  ckpt_error own = {0};
  ckpt_status status = ckpt_sync_folder(sink->parent, NULL, &own);
  if (status == CKPT_OK) return CKPT_OK;
  return ckpt_fail(err, status, sink->path, NULL, "is in its place, but a crash may undo that: %s", own.message);
}

static void path_abandon(void *ctx) {
  path_sink *sink = ctx;
  if (sink->is_published) return;
  if (sink->is_staged && sink->is_folder && is_there(sink->parent, sink->stage, sink->folder))
    ckpt_file_set_remove(&sink->tree, sink->folder);
  if (sink->is_staged) (void)unlinkat(sink->parent, sink->stage, sink->is_folder ? AT_REMOVEDIR : 0);
  sink->is_published = true; /* there is nothing left to remove */
}

static void path_close(void *ctx) {
  path_sink *sink = ctx;
  path_abandon(sink);
  ckpt_descriptors_free(sink->descriptors);
  if (sink->staged >= 0) close(sink->staged);
  if (sink->parent >= 0) close(sink->parent);
  for (uint32_t i = 0; i < sink->n_files; i++) free(sink->files[i].name), free(sink->files[i].path);
  free(sink->files);
  free(sink->tree.names);
  ckpt_file_set_free(&sink->former);
  free(sink->path), free(sink->parent_path), free(sink->name);
  free(sink);
}

static const ckpt_leftovers *path_leftovers(void *ctx) { return &((path_sink *)ctx)->leftovers; }

static const char *path_place(void *ctx) {
  const path_sink *sink = ctx;
  return sink->is_in_place ? sink->path : NULL;
}

static const ckpt_sink_ops path_ops = {
    .open = path_open,
    .share = path_share,
    .join = path_join,
    .write_at = path_write_at,
    .read_at = path_read_at,
    .clone = path_clone,
    .seal = path_seal,
    .publish = path_publish,
    .abandon = path_abandon,
    .close = path_close,
    .leftovers = path_leftovers,
    .place = path_place,
};

void ckpt_sink_owns(ckpt_sink *sink, ckpt_owns_files *owns) {
  path_sink *replacing = ckpt_sink_ctx(sink, &path_ops);
  if (replacing != NULL) replacing->owns = owns;
}

void ckpt_sink_keep_old(ckpt_sink *sink) {
  path_sink *kept = ckpt_sink_ctx(sink, &path_ops);
  if (kept != NULL) kept->keeps_old = true;
}

void ckpt_sink_threads(ckpt_sink *sink, uint32_t n) {
  path_sink *kept = ckpt_sink_ctx(sink, &path_ops);
  if (kept != NULL) kept->n_threads = n;
}

ckpt_status ckpt_sink_path(ckpt_sink **out, const char *path, bool is_folder, bool force, ckpt_error *err) {
  *out = NULL;
  path_sink *sink = calloc(1, sizeof *sink);
  CKPT_TRY_ALLOC(sink, err);
  sink->is_folder = is_folder;
  sink->force = force;
  sink->parent = sink->staged = sink->folder = -1;
  size_t n = strlen(path);
  while (is_folder && n > 1 && path[n - 1] == '/') n--;
  sink->path = strndup(path, n);
  ckpt_status status = CKPT_ENOMEM;
  if (sink->path == NULL)
    (void)ckpt_fail(err, status, NULL, NULL, "out of memory");
  else
    status = n == 0 ? ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "the output's path is empty") : settle(sink, err);
  if (status != CKPT_OK) {
    path_close(sink);
    return status;
  }
  return ckpt_sink_custom(out, &path_ops, sink, err);
}
