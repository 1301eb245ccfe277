/* file_set.c - the names of a folder output: checked, made, synced, removed, compared with what is there.
 *
 * In byte order all names of one subfolder stand together, so a subfolder is met first where the name before does not
 * share it: every pass over the subfolders is linear and needs no set. */
#include "libckpt/io/file_set.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/io/contained.h"
#include "libckpt/io/temporary.h"

enum { MAX_DEPTH = 32, MAX_LISTED = 5 };

static bool is_plain_name(const char *name) {
  if (!ckpt_name_is_contained(name) || strlen(name) >= PATH_MAX - 1) return false;
  uint32_t depth = 0;
  for (const char *part = name;; part++) {
    size_t n = strcspn(part, "/");
    if (n > NAME_MAX || (n == 1 && *part == '.') || ++depth > MAX_DEPTH) return false;
    part += n;
    if (*part == '\0') return true;
  }
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Whether a name of the tree is `name` (a file), or begins with it (a subfolder, name ending with a slash). */
static bool has_name(const ckpt_file_set *tree, const char *name, bool is_folder) {
  uint32_t low = 0, high = tree->n_names;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (strcmp(tree->names[middle], name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == tree->n_names) return false;
  return is_folder ? strncmp(tree->names[low], name, strlen(name)) == 0 : strcmp(tree->names[low], name) == 0;
}

/* No folder has the name of a file. */
static ckpt_status check_folders(const ckpt_file_set *tree, const char *path, ckpt_error *err) {
  char folder[PATH_MAX + 1];
  for (uint32_t i = 0; i < tree->n_names; i++) {
    snprintf(folder, sizeof folder, "%s/", tree->names[i]);
    if (has_name(tree, folder, true))
      return ckpt_fail(err, CKPT_EEXIST, path, NULL, "'%s' would be a file, and a folder of others", tree->names[i]);
  }
  return CKPT_OK;
}

ckpt_status ckpt_file_set_init(ckpt_file_set *tree, const char **names, uint32_t n_names, const char *path,
                               ckpt_error *err) {
  *tree = (ckpt_file_set){names, n_names};
  for (uint32_t i = 0; i < n_names; i++)
    if (!is_plain_name(names[i]))
      return ckpt_fail(err, CKPT_EINVAL, path, NULL,
                       "'%s' cannot name a file below it (relative, no '.' or '..', at most %d levels)", names[i],
                       MAX_DEPTH);
  if (n_names > 1) qsort(names, n_names, sizeof *names, compare_names);
  for (uint32_t i = 1; i < n_names; i++)
    if (strcmp(names[i - 1], names[i]) == 0)
      return ckpt_fail(err, CKPT_EEXIST, path, NULL, "two files would have the name '%s'", names[i]);
  return check_folders(tree, path, err);
}

/* Whether the subfolder names[i][0, n) is met first at i. */
static bool is_first_of_folder(const ckpt_file_set *tree, uint32_t i, size_t n) {
  return i == 0 || strncmp(tree->names[i - 1], tree->names[i], n + 1) != 0;
}

/* Calls visit for every subfolder, parents first. Stops at the first failure. */
static ckpt_status each_folder(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err,
                               ckpt_status (*visit)(int folder, const char *sub, const char *path, ckpt_error *err)) {
  char sub[PATH_MAX];
  for (uint32_t i = 0; i < tree->n_names; i++) {
    const char *name = tree->names[i];
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
      size_t n = (size_t)(slash - name);
      if (!is_first_of_folder(tree, i, n)) continue;
      memcpy(sub, name, n);
      sub[n] = '\0';
      CKPT_TRY(visit(folder, sub, path, err));
    }
  }
  return CKPT_OK;
}

static ckpt_status make_folder(int folder, const char *sub, const char *path, ckpt_error *err) {
  if (mkdirat(folder, sub, 0777) == 0) return CKPT_OK;
  return ckpt_fail_errno(err, path, "cannot make the folder '%s'", sub);
}

static ckpt_status sync_subfolder(int folder, const char *sub, const char *path, ckpt_error *err) {
  int fd = openat(folder, sub, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return ckpt_fail_errno(err, path, "cannot sync the folder '%s'", sub);
  ckpt_status status = ckpt_sync_folder(fd, path, err);
  close(fd);
  return status;
}

ckpt_status ckpt_file_set_make_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err) {
  return each_folder(tree, folder, path, err, make_folder);
}

ckpt_status ckpt_file_set_sync_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err) {
  CKPT_TRY(each_folder(tree, folder, path, err, sync_subfolder));
  return ckpt_sync_folder(folder, path, err);
}

ckpt_status ckpt_sync_folder(int folder, const char *path, ckpt_error *err) {
  int failed;
  do {
    failed = fsync(folder);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0 || errno == EINVAL || errno == EOPNOTSUPP) return CKPT_OK;
  return ckpt_fail_errno(err, path, "cannot sync its folder");
}

void ckpt_file_set_remove(const ckpt_file_set *tree, int folder) {
  char sub[PATH_MAX];
  for (uint32_t i = tree->n_names; i-- > 0;) {
    const char *name = tree->names[i];
    (void)unlinkat(folder, name, 0);
    for (size_t n = strlen(name); n-- > 0;) {
      if (name[n] != '/') continue;
      if (!is_first_of_folder(tree, i, n)) break; /* then its parents have names before it too */
      memcpy(sub, name, n);
      sub[n] = '\0';
      (void)unlinkat(folder, sub, AT_REMOVEDIR);
    }
  }
}

/* What a folder holds beyond the tree. */
typedef struct foreign {
  const ckpt_file_set *tree;
  const char *name;        /* whose leftovers do not count; NULL: they do */
  char left[NAME_MAX + 1]; /* one of them */
  ckpt_file_set files;     /* regular files; names are its own */
  uint32_t file_capacity;
  char list[512];
  size_t n_list;
  uint64_t n;
} foreign;

static void add_foreign(foreign *f, const char *name) {
  if (f->n++ >= MAX_LISTED) return;
  int n = snprintf(f->list + f->n_list, sizeof f->list - f->n_list, "%s%s", f->n == 1 ? "" : ", ", name);
  f->n_list += n > 0 && (size_t)n < sizeof f->list - f->n_list ? (size_t)n : 0;
}

/* Keeps a regular file: they are judged together, when all have been seen. Returns 0 or errno. */
static int keep_file(foreign *f, const char *name) {
  ckpt_file_set *files = &f->files;
  if (ckpt_grow(&files->names, files->n_names, &f->file_capacity, sizeof *files->names, NULL) != CKPT_OK) return ENOMEM;
  const char *copy = strdup(name);
  if (copy == NULL) return ENOMEM;
  files->names[files->n_names++] = copy;
  return 0;
}

/* Whether two names differ in one number only, as shards of one set do. */
static bool is_sibling(const char *a, const char *b) {
  static const char digits[] = "0123456789";
  size_t n = 0;
  while (a[n] == b[n] && a[n] != '\0') n++;
  while (n > 0 && strchr(digits, a[n - 1]) != NULL) n--;
  return strcmp(a + n + strspn(a + n, digits), b + n + strspn(b + n, digits)) == 0;
}

/* Whether name i stands beside others of a set. */
static bool is_of_set(const ckpt_file_set *files, uint32_t i) {
  return (i > 0 && is_sibling(files->names[i - 1], files->names[i])) ||
         (i + 1 < files->n_names && is_sibling(files->names[i], files->names[i + 1]));
}

/* Lists what is neither the tree's nor a former output's. A file that keeps a format from owning a set of files makes
 * all of them foreign: it comes before them, where the list has room. */
static void list_foreign(foreign *f, const bool *is_ours) {
  for (int is_set = 0; is_set < 2; is_set++)
    for (uint32_t i = 0; i < f->files.n_names; i++)
      if (is_of_set(&f->files, i) == (is_set != 0) && !is_ours[i] && !has_name(f->tree, f->files.names[i], false))
        add_foreign(f, f->files.names[i]);
}

/* Leaves, of the files, the former output's that the tree lacks; what is neither's is foreign. */
static ckpt_status judge_files(foreign *f, ckpt_owns_files *owns, ckpt_error *err) {
  ckpt_file_set *files = &f->files;
  uint32_t n = files->n_names, n_kept = 0;
  bool *is_ours = calloc((size_t)n + 1, sizeof *is_ours);
  CKPT_TRY_ALLOC(is_ours, err);
  if (n > 1) qsort(files->names, n, sizeof *files->names, compare_names);
  if (owns != NULL) owns(files->names, n, f->tree, is_ours);
  list_foreign(f, is_ours);
  for (uint32_t i = 0; i < n; i++) {
    const char *name = files->names[i];
    if (is_ours[i] && !has_name(f->tree, name, false))
      files->names[n_kept++] = name;
    else
      free((char *)(uintptr_t)name);
  }
  files->n_names = n_kept;
  free(is_ours);
  return CKPT_OK;
}

static int find_foreign(foreign *f, int folder, const char *prefix);

/* Judges one entry, `name` below the output, which has room for a slash. Returns 0 or errno. */
static int judge(foreign *f, int folder, const char *entry, char *name) {
  struct stat st;
  if (f->name != NULL && ckpt_temporary_is_left(folder, entry, f->name)) {
    memcpy(f->left, entry, strlen(entry) + 1);
    return 0;
  }
  bool is_known = strcmp(entry, ".git") != 0 && fstatat(folder, entry, &st, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_known && S_ISREG(st.st_mode)) return keep_file(f, name);
  bool is_folder = is_known && S_ISDIR(st.st_mode);
  if (is_folder) memcpy(name + strlen(name), "/", 2);
  if (!is_folder || !has_name(f->tree, name, true)) {
    add_foreign(f, name);
    return 0;
  }
  int below = openat(folder, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return below < 0 ? errno : find_foreign(f, below, name);
}

/* Compares one folder; prefix is its name below the output, ending with a slash, or "". It enters only subfolders of
 * the tree, so its depth is bounded by MAX_DEPTH. Returns 0 or errno. */
static int find_foreign(foreign *f, int folder, const char *prefix) {
  DIR *dir = fdopendir(folder); /* owns folder now */
  if (dir == NULL) {
    int code = errno;
    close(folder);
    return code;
  }
  const struct dirent *entry;
  int code = 0;
  while (code == 0 && (errno = 0, entry = readdir(dir)) != NULL) {
    char name[PATH_MAX];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    int n = snprintf(name, sizeof name - 1, "%s%s", prefix, entry->d_name);
    if (n > 0 && (size_t)n < sizeof name - 1)
      code = judge(f, dirfd(dir), entry->d_name, name);
    else
      add_foreign(f, name);
  }
  if (code == 0) code = errno;
  closedir(dir);
  return code;
}

static ckpt_status look_for_foreign(foreign *f, ckpt_owns_files *owns, int folder, const char *path, ckpt_error *err) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* a position of its own in the folder */
  if (fd < 0 || (errno = find_foreign(f, fd, "")) != 0) return ckpt_fail_errno(err, path, "cannot list this folder");
  return judge_files(f, owns, err);
}

void ckpt_file_set_free(ckpt_file_set *tree) {
  for (uint32_t i = 0; i < tree->n_names; i++) free((char *)(uintptr_t)tree->names[i]);
  free(tree->names);
  *tree = (ckpt_file_set){NULL, 0};
}

ckpt_status ckpt_file_set_is_empty(int folder, const char *name, const char *path, ckpt_error *err) {
  const ckpt_file_set nothing = {NULL, 0};
  foreign f = {.tree = &nothing, .name = name};
  ckpt_status status = look_for_foreign(&f, NULL, folder, path, err);
  ckpt_file_set_free(&f.files);
  if (status != CKPT_OK || f.n == 0) return status;
  return ckpt_advise(
      ckpt_fail(err, CKPT_EEXIST, path, NULL, "exists and is not empty (%llu entr%s: %s%s%s%s%s)",
                (unsigned long long)f.n, f.n == 1 ? "y" : "ies", f.list, f.n > MAX_LISTED ? ", ..." : "",
                f.left[0] != '\0' ? "; an interrupted run left '" : "", f.left, f.left[0] != '\0' ? "' there" : ""),
      err, "%force replaces files that would be written anew");
}

ckpt_status ckpt_file_set_covers(const ckpt_file_set *tree, ckpt_owns_files *owns, ckpt_file_set *former, int folder,
                                 const char *path, ckpt_error *err) {
  foreign f = {.tree = tree};
  ckpt_status status = look_for_foreign(&f, owns, folder, path, err);
  if (status == CKPT_OK && f.n != 0)
    status = ckpt_fail(err, CKPT_EEXIST, path, NULL,
                       "not replaced: it holds %llu entr%s that would not be written anew: %s%s (move %s away, or "
                       "choose another output)",
                       (unsigned long long)f.n, f.n == 1 ? "y" : "ies", f.list, f.n > MAX_LISTED ? ", ..." : "",
                       f.n == 1 ? "it" : "them");
  *former = f.files;
  return status;
}
