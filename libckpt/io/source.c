/* source.c - files beneath a folder, a block of memory, or a caller's own ops, as one table of numbered files.
 *
 * Files are found by name in glibc's balanced tree (search.h): thousands of hostile names cost no more than thousands
 * of others. Adding belongs to the thread that opens a checkpoint; once it is done any number of threads may read. */
#include "libckpt/io/source.h"
#include "libckpt/base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <search.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/io/contained.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/io/records.h"

enum { MAX_ENTRIES = 1000000 };

typedef struct source_file {
  char *path;       /* root/name, owned */
  const char *name; /* in path */
  uint64_t n_bytes;
  uint32_t number;
} source_file;

struct ckpt_source {
  const ckpt_source_ops *ops; /* NULL: files */
  void *ctx;
  const uint8_t *memory; /* file 0 of a memory source */
  char *root_path;       /* "" for memory and custom sources */
  bool is_bare;          /* a file was named without a folder: so are the paths of what stands beside it */
  char *entry;           /* the file that the user named, NULL for a folder: its own link is not from inside */
  ckpt_root root;
  ckpt_descriptors *descriptors; /* NULL unless files */
  source_file **files;
  uint32_t n_files, capacity;
  void *by_name;         /* tree of source_file */
  ckpt_records *records; /* whose checksums are known */
  _Atomic uint64_t n_bytes_read;
};

static ckpt_status new_source(ckpt_source **out, ckpt_error *err) {
  *out = calloc(1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  (*out)->root = (ckpt_root){-1, NULL};
  const ckpt_status status = ckpt_records_new(&(*out)->records, err);
  if (status == CKPT_OK) return CKPT_OK;
  free(*out);
  *out = NULL;
  return status;
}

/* The user's own file follows its links; everything else is contained. */
static int open_source_file(void *owner, uint32_t file) {
  const ckpt_source *source = owner;
  const char *name = source->files[file]->name;
  if (source->entry == NULL || strcmp(name, source->entry) != 0) return ckpt_contained_open(&source->root, name, 0);
  int fd = open(source->files[file]->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  return fd < 0 ? -errno : fd;
}

/* Splits a path to a file into its folder and the name in it. */
static ckpt_status set_root(ckpt_source *source, const char *path, ckpt_error *err) {
  struct stat st;
  if (stat(path, &st) != 0) return ckpt_fail_errno(err, path, "cannot open");
  const char *slash = strrchr(path, '/');
  if (S_ISDIR(st.st_mode)) {
    source->root_path = strdup(path);
  } else {
    source->is_bare = slash == NULL;
    source->entry = strdup(ckpt_path_name(path));
    source->root_path = slash == NULL ? strdup(".") : strndup(path, slash == path ? 1 : (size_t)(slash - path));
    CKPT_TRY_ALLOC(source->entry, err);
  }
  CKPT_TRY_ALLOC(source->root_path, err);
  return ckpt_root_open(&source->root, source->root_path, err);
}

ckpt_status ckpt_source_open(ckpt_source **out, const char *root, ckpt_error *err) {
  ckpt_status status;
  CKPT_TRY(new_source(out, err));
  CKPT_TRY_GOTO(ckpt_descriptors_new(&(*out)->descriptors, CKPT_MAX_DESCRIPTORS, true, open_source_file, *out, err));
  CKPT_TRY_GOTO(set_root(*out, root, err));
  return CKPT_OK;
done:
  ckpt_source_free(*out);
  *out = NULL;
  return status;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const source_file *)a)->name, ((const source_file *)b)->name);
}

static source_file *find_file(const ckpt_source *source, const char *name) {
  source_file key = {.name = name};
  void *found = tfind(&key, &source->by_name, compare_names);
  return found == NULL ? NULL : *(source_file **)found;
}

static void free_file(source_file *file) {
  if (file != NULL) free(file->path);
  free(file);
}

/* Appends a file whose size is not known yet to the table, not yet to the tree. */
static ckpt_status append_file(source_file **out, ckpt_source *source, const char *name, ckpt_error *err) {
  if (source->n_files >= MAX_ENTRIES)
    return ckpt_fail(err, CKPT_ELIMIT, name, NULL, "more than %d files in one checkpoint", MAX_ENTRIES);
  if (source->n_files == source->capacity) {
    uint32_t capacity = source->capacity == 0 ? 8 : source->capacity * 2;
    source_file **files = reallocarray(source->files, capacity, sizeof *files);
    CKPT_TRY_ALLOC(files, err);
    source->files = files;
    source->capacity = capacity;
  }
  if (source->descriptors != NULL) CKPT_TRY(ckpt_descriptors_grow(source->descriptors, source->n_files + 1, err));
  source_file *file = calloc(1, sizeof *file);
  CKPT_TRY_ALLOC(file, err);
  size_t n_root = source->root_path == NULL || source->is_bare ? 0 : strlen(source->root_path), n_name = strlen(name);
  bool has_slash = n_root == 0 || source->root_path[n_root - 1] == '/';
  file->path = malloc(n_root + 1 + n_name + 1);
  if (file->path == NULL) {
    free(file);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  if (n_root > 0) memcpy(file->path, source->root_path, n_root);
  if (!has_slash) file->path[n_root++] = '/';
  file->name = memcpy(file->path + n_root, name, n_name + 1);
  file->number = source->n_files;
  source->files[source->n_files++] = file;
  *out = file;
  return CKPT_OK;
}

static void drop_last_file(ckpt_source *source) { free_file(source->files[--source->n_files]); }

/* Appends a file and enters it into the tree. */
static ckpt_status enter_file(source_file **out, ckpt_source *source, const char *name, ckpt_error *err) {
  CKPT_TRY(append_file(out, source, name, err));
  if (tsearch(*out, &source->by_name, compare_names) != NULL) return CKPT_OK;
  drop_last_file(source);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

ckpt_status ckpt_source_declare(ckpt_source *source, const char *name, uint64_t size, uint32_t *file, ckpt_error *err) {
  if (source->descriptors != NULL) return ckpt_fail(err, CKPT_EINTERNAL, name, NULL, "declared in a source of files");
  source_file *added;
  if (find_file(source, name) != NULL) return ckpt_fail(err, CKPT_EEXIST, name, NULL, "declared twice");
  CKPT_TRY(enter_file(&added, source, name, err));
  added->n_bytes = size;
  *file = added->number;
  return CKPT_OK;
}

ckpt_status ckpt_source_memory(ckpt_source **out, const void *data, size_t n_bytes, const char *name, ckpt_error *err) {
  uint32_t file;
  CKPT_TRY(new_source(out, err));
  (*out)->memory = data == NULL ? (const uint8_t *)"" : data;
  ckpt_status status = ckpt_source_declare(*out, name, n_bytes, &file, err);
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_source_free(*out);
  *out = NULL;
  return status;
}

ckpt_status ckpt_source_custom(ckpt_source **out, const ckpt_source_ops *ops, void *ctx, ckpt_error *err) {
  ckpt_status status = new_source(out, err);
  if (status != CKPT_OK) {
    if (ops->close != NULL) ops->close(ctx);
    return status;
  }
  (*out)->ops = ops;
  (*out)->ctx = ctx;
  return CKPT_OK;
}

ckpt_status ckpt_source_add(ckpt_source *source, const char *name, uint32_t *file, uint64_t *size, ckpt_error *err) {
  source_file *added = find_file(source, name);
  if (added == NULL) {
    if (source->descriptors == NULL) return ckpt_fail(err, CKPT_ENOTFOUND, name, NULL, "no such file in this source");
    if (!ckpt_name_is_contained(name))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                       "file name '%s' is not one below the checkpoint's folder (relative, no '..')", name);
    int fd;
    CKPT_TRY(enter_file(&added, source, name, err));
    ckpt_status status = ckpt_descriptors_acquire(source->descriptors, added->number, added->path, &fd, err);
    if (status != CKPT_OK) {
      (void)tdelete(added, &source->by_name, compare_names);
      drop_last_file(source);
      return status;
    }
    added->n_bytes = ckpt_descriptors_size(source->descriptors, added->number);
    ckpt_descriptors_release(source->descriptors, added->number);
  }
  *file = added->number;
  *size = added->n_bytes;
  return CKPT_OK;
}

ckpt_status ckpt_source_read(ckpt_source *source, uint32_t file, uint64_t offset, void *dst, size_t n_bytes,
                             ckpt_error *err) {
  if (file >= source->n_files)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "file %" PRIu32 " of %" PRIu32, file, source->n_files);
  const source_file *f = source->files[file];
  if (!ckpt_range_within(offset, n_bytes, f->n_bytes))
    return ckpt_fail(err, CKPT_EIO, f->path, NULL,
                     "ends early: %zu byte%s wanted at offset %" PRIu64 ", file has %" PRIu64, n_bytes,
                     ckpt_plural(n_bytes), offset, f->n_bytes);
  if (source->memory != NULL) {
    if (n_bytes > 0) memcpy(dst, source->memory + offset, n_bytes);
  } else if (source->ops != NULL) {
    CKPT_TRY(ckpt_fail_at(source->ops->read_at(source->ctx, file, offset, dst, n_bytes, err), err, f->path, NULL));
  } else {
    int fd;
    CKPT_TRY(ckpt_descriptors_acquire(source->descriptors, file, f->path, &fd, err));
    ckpt_status status = ckpt_read_exactly(fd, f->path, offset, dst, n_bytes, err);
    ckpt_descriptors_release(source->descriptors, file);
    CKPT_TRY(status);
  }
  atomic_fetch_add_explicit(&source->n_bytes_read, n_bytes, memory_order_relaxed);
  return CKPT_OK;
}

ckpt_status ckpt_source_unchanged(ckpt_source *source, ckpt_error *err) {
  uint32_t file;
  uint64_t before, now;
  if (source == NULL || source->descriptors == NULL ||
      !ckpt_descriptors_changed(source->descriptors, &file, &before, &now))
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, source->files[file]->path, NULL,
                   "changed while being read (%" PRIu64 " byte%s before, %" PRIu64 " now)", before, ckpt_plural(before),
                   now);
}

bool ckpt_source_lend(ckpt_source *source, uint32_t file, int *fd) {
  return source->descriptors != NULL && file < source->n_files &&
         ckpt_descriptors_acquire(source->descriptors, file, source->files[file]->path, fd, NULL) == CKPT_OK;
}

void ckpt_source_take_back(ckpt_source *source, uint32_t file) { ckpt_descriptors_release(source->descriptors, file); }

uint64_t ckpt_source_links(ckpt_source *source, uint32_t file) {
  int fd;
  struct stat st;
  if (!ckpt_source_lend(source, file, &fd)) return 0;
  const bool is_known = fstat(fd, &st) == 0;
  ckpt_source_take_back(source, file);
  return is_known ? st.st_nlink : 0;
}

uint32_t ckpt_source_count(const ckpt_source *source) { return source->n_files; }
const char *ckpt_source_name(const ckpt_source *source, uint32_t file) {
  return file < source->n_files ? source->files[file]->name : ""; /* of a literal */
}
const char *ckpt_source_path(const ckpt_source *source, uint32_t file) {
  return file < source->n_files ? source->files[file]->path : NULL;
}
uint64_t ckpt_source_size(const ckpt_source *source, uint32_t file) { return source->files[file]->n_bytes; }
const char *ckpt_source_root(const ckpt_source *source) { return source->root_path == NULL ? "" : source->root_path; }
uint64_t ckpt_source_bytes_read(const ckpt_source *source) { return source->n_bytes_read; }
ckpt_records *ckpt_source_records(const ckpt_source *source) { return source->records; }

static void keep_node(void *node) { (void)node; }

void ckpt_source_free(ckpt_source *source) {
  if (source == NULL) return;
  if (source->ops != NULL && source->ops->close != NULL) source->ops->close(source->ctx);
  ckpt_descriptors_free(source->descriptors);
  ckpt_root_close(&source->root);
  tdestroy(source->by_name, keep_node);
  while (source->n_files > 0) drop_last_file(source);
  free(source->files);
  free(source->root_path), free(source->entry);
  ckpt_records_free(source->records);
  free(source);
}

/* What an entry is: links are followed as contained open would, and one that leads nowhere or out is nothing. `sub`
 * ends with a slash or is empty. A file that cannot be looked at is a failure: without it this would be another
 * checkpoint. */
static ckpt_status describe_entry(ckpt_entry *entry, const ckpt_root *root, int folder, const char *sub,
                                  ckpt_error *err) {
  struct stat st;
  if (fstatat(folder, entry->name, &st, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? CKPT_OK : ckpt_fail_errno(err, entry->name, "cannot be looked at"); /* gone meanwhile */
  entry->is_link = S_ISLNK(st.st_mode);
  if (entry->is_link) {
    char name[PATH_MAX];
    if ((size_t)snprintf(name, sizeof name, "%s%s", sub, entry->name) >= sizeof name) return CKPT_OK;
    int fd = ckpt_contained_open(root, name, O_PATH);
    if (fd == -ENOENT || fd == -EXDEV || fd == -ELOOP || fd == -ENOTDIR || fd == -ENAMETOOLONG) return CKPT_OK;
    if (fd < 0) return ckpt_fail_open(err, entry->name, -fd);
    int failed = fstat(fd, &st);
    if (failed != 0) (void)ckpt_fail_errno(err, entry->name, "cannot be looked at");
    close(fd);
    if (failed != 0) return CKPT_EIO;
  }
  entry->is_folder = S_ISDIR(st.st_mode);
  entry->is_file = S_ISREG(st.st_mode);
  entry->n_bytes = entry->is_file ? (uint64_t)st.st_size : 0;
  return CKPT_OK;
}

static int compare_entries(const void *a, const void *b) {
  return strcmp(((const ckpt_entry *)a)->name, ((const ckpt_entry *)b)->name);
}

/* Collects the names of an open folder. */
static ckpt_status read_names(ckpt_entry **out, size_t *n, DIR *folder, const char *path, ckpt_error *err) {
  size_t capacity = 0;
  for (;;) {
    errno = 0;
    const struct dirent *found = readdir(folder);
    if (found == NULL) return errno == 0 ? CKPT_OK : ckpt_fail_errno(err, path, "cannot list this folder");
    if (strcmp(found->d_name, ".") == 0 || strcmp(found->d_name, "..") == 0) continue;
    if (*n == MAX_ENTRIES)
      return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "more than %d entries in this folder", MAX_ENTRIES);
    if (*n == capacity) {
      capacity = capacity == 0 ? 32 : capacity * 2;
      ckpt_entry *entries = reallocarray(*out, capacity, sizeof *entries);
      CKPT_TRY_ALLOC(entries, err);
      *out = entries;
    }
    char *name = strdup(found->d_name);
    CKPT_TRY_ALLOC(name, err);
    (*out)[(*n)++] = (ckpt_entry){.name = name};
  }
}

ckpt_status ckpt_list(ckpt_entry **out, size_t *n, const char *root, const char *sub, ckpt_error *err) {
  *out = NULL;
  *n = 0;
  ckpt_root contained = {-1, NULL};
  DIR *folder = NULL;
  char prefix[PATH_MAX] = "", path[PATH_MAX];
  if (*sub != '\0' &&
      (!ckpt_name_is_contained(sub) || (size_t)snprintf(prefix, sizeof prefix, "%s/", sub) >= sizeof prefix))
    return ckpt_fail(err, CKPT_EFORMAT, root, NULL, "folder name '%s' is not one below it", sub);
  snprintf(path, sizeof path, "%s%s%s", root, *sub == '\0' ? "" : "/", sub);
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_root_open(&contained, root, err));
  int fd = ckpt_contained_open(&contained, sub, O_DIRECTORY);
  if (fd < 0) {
    status = ckpt_fail_open(err, path, -fd);
    goto done;
  }
  folder = fdopendir(fd);
  if (folder == NULL) {
    status = ckpt_fail_errno(err, path, "cannot list this folder");
    close(fd);
    goto done;
  }
  CKPT_TRY_GOTO(read_names(out, n, folder, path, err));
  for (size_t i = 0; i < *n; i++) CKPT_TRY_GOTO(describe_entry(&(*out)[i], &contained, dirfd(folder), prefix, err));
  if (*n > 1) qsort(*out, *n, sizeof **out, compare_entries);
done:
  if (folder != NULL) closedir(folder);
  ckpt_root_close(&contained);
  if (status != CKPT_OK) {
    ckpt_list_free(*out, *n);
    *out = NULL;
    *n = 0;
  }
  return status;
}

void ckpt_list_free(ckpt_entry *entries, size_t n) {
  for (size_t i = 0; i < n; i++) free((char *)(uintptr_t)entries[i].name);
  free(entries);
}
