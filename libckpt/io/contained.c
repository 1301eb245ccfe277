/* contained.c - contained open: openat2(RESOLVE_BENEATH), or a walk over the components that does the same.
 *
 * The walk holds a stack of folders opened without following links. A link's target is spliced in front of what is
 * still to be resolved, `..` pops the stack, and popping its bottom is an escape; so the result never depends on
 * strings that something else could change on disk in between. */
#include "libckpt/io/contained.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "libckpt/base/error.h"

enum { MAX_LINKS = 40, MAX_DEPTH = 64 };

/* The flags of every open; O_PATH, which opens nothing, goes with none of the others. */
static int complete_flags(int flags) {
  return flags & O_PATH ? flags | O_CLOEXEC : flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
}

/* The start of "models--X/" in a real path .../models--X/snapshots/REV[/...], and where its name ends; NULL if this is
 * no snapshot of a Hugging Face cache. The innermost one is taken: it contains most narrowly. */
static char *find_models_folder(char *path, char **end) {
  char *found = NULL;
  for (char *at = path; (at = strstr(at, "/models--")) != NULL; at++) {
    char *slash = strchr(at + 1, '/');
    if (slash == NULL || slash == at + strlen("/models--")) continue;
    if (strncmp(slash, "/snapshots/", strlen("/snapshots/")) != 0 || slash[strlen("/snapshots/")] == '\0') continue;
    found = at;
    *end = slash;
  }
  return found;
}

ckpt_status ckpt_root_open(ckpt_root *root, const char *path, ckpt_error *err) {
  *root = (ckpt_root){-1, NULL};
  char *real = realpath(path, NULL), *end = NULL;
  if (real == NULL) return ckpt_fail_errno(err, path, "cannot open this folder");
  bool is_snapshot = find_models_folder(real, &end) != NULL;
  size_t n_below = is_snapshot ? strlen(end + 1) : 0;
  root->below = calloc(n_below + 2, 1);
  if (root->below == NULL) {
    free(real);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  if (is_snapshot) {
    memcpy(root->below, end + 1, n_below);
    root->below[n_below] = '/';
    *end = '\0';
  }
  root->ceiling = open(real, O_PATH | O_DIRECTORY | O_CLOEXEC);
  int code = errno;
  free(real);
  if (root->ceiling >= 0) return CKPT_OK;
  ckpt_root_close(root);
  errno = code;
  return ckpt_fail_errno(err, path, "cannot open this folder");
}

void ckpt_root_close(ckpt_root *root) {
  if (root->ceiling >= 0) close(root->ceiling);
  free(root->below);
  *root = (ckpt_root){-1, NULL};
}

bool ckpt_name_is_contained(const char *name) {
  if (*name == '\0') return false;
  for (const char *part = name;; part++) {
    size_t n = strcspn(part, "/");
    if (n == 0 || (n == 2 && memcmp(part, "..", 2) == 0)) return false;
    part += n;
    if (*part == '\0') return true;
  }
}

/* What is still to be resolved, and the folders that lead to where we are. */
typedef struct walk {
  char rest[PATH_MAX];
  int folders[MAX_DEPTH];
  uint32_t depth, n_links;
} walk;

/* Puts the target of the link `part` in front of the rest. Returns 0 or -errno; -EINVAL if it is no link. */
static int splice_link(walk *w, int folder, const char *part, const char *rest) {
  char target[PATH_MAX];
  ssize_t n = readlinkat(folder, part, target, sizeof target);
  if (n < 0) return -errno;
  if (++w->n_links > MAX_LINKS) return -ELOOP;
  if (n > 0 && target[0] == '/') return -EXDEV;
  size_t n_rest = strlen(rest);
  if ((size_t)n + n_rest + 1 > sizeof w->rest) return -ENAMETOOLONG;
  memmove(w->rest + n, rest, n_rest + 1); /* empty, or begins with a slash */
  memcpy(w->rest, target, (size_t)n);
  return 0;
}

/* Resolves one component. Returns a descriptor when it was the last one, -EAGAIN to go on, else -errno. */
static int step(walk *w, int ceiling, int flags) {
  int folder = w->depth == 0 ? ceiling : w->folders[w->depth - 1];
  char part[NAME_MAX + 1];
  char *at = w->rest + strspn(w->rest, "/");
  size_t n = strcspn(at, "/");
  if (n > NAME_MAX) return -ENAMETOOLONG;
  memcpy(part, at, n);
  part[n] = '\0';
  char *rest = at + n;
  bool is_last = rest[strspn(rest, "/")] == '\0', is_dot = n == 0 || strcmp(part, ".") == 0;
  if (strcmp(part, "..") == 0) {
    if (w->depth == 0) return -EXDEV;
    close(w->folders[--w->depth]);
    folder = w->depth == 0 ? ceiling : w->folders[w->depth - 1];
    is_dot = true;
  }
  if (!is_dot || is_last) {
    /* A slash behind the last component asks for a folder. */
    int last_flags = flags | (is_dot || *rest == '/' ? O_DIRECTORY : 0);
    int step_flags = is_last ? last_flags : O_PATH | O_DIRECTORY | O_CLOEXEC;
    int fd = openat(folder, is_dot ? "." : part, step_flags | O_NOFOLLOW);
    int code = errno;
    struct stat st;
    if (fd >= 0 && is_last && (flags & O_PATH) && fstat(fd, &st) == 0 && S_ISLNK(st.st_mode)) {
      close(fd); /* O_PATH opens the link itself */
      fd = -1, code = ELOOP;
    }
    if (fd < 0 && (code == ELOOP || code == ENOTDIR)) { /* O_DIRECTORY answers ENOTDIR for a link */
      int spliced = splice_link(w, folder, part, rest);
      return spliced == 0 ? -EAGAIN : spliced == -EINVAL ? -code : spliced;
    }
    if (fd < 0) return -code;
    if (is_last) return fd;
    if (w->depth == MAX_DEPTH) {
      close(fd);
      return -ENAMETOOLONG;
    }
    w->folders[w->depth++] = fd;
  }
  memmove(w->rest, rest, strlen(rest) + 1);
  return -EAGAIN;
}

/* Writes the path below the ceiling into out; false when it is too long. */
static bool join_below(char out[PATH_MAX], const ckpt_root *root, const char *name) {
  size_t n_below = strlen(root->below), n_name = strlen(name);
  if (n_below + n_name + 2 > PATH_MAX) return false;
  memcpy(out, root->below, n_below);
  memcpy(out + n_below, name, n_name + 1);
  if (n_below + n_name == 0) memcpy(out, ".", 2);
  return true;
}

int ckpt_contained_walk(const ckpt_root *root, const char *name, int flags) {
  walk w = {.depth = 0};
  if (!join_below(w.rest, root, name)) return -ENAMETOOLONG;
  int result;
  do {
    result = step(&w, root->ceiling, complete_flags(flags));
  } while (result == -EAGAIN);
  while (w.depth > 0) close(w.folders[--w.depth]);
  return result;
}

int ckpt_contained_open(const ckpt_root *root, const char *name, int flags) {
  char path[PATH_MAX];
  if (!join_below(path, root, name)) return -ENAMETOOLONG;
  struct open_how how = {.flags = (uint64_t)(unsigned)complete_flags(flags),
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
  /* EAGAIN: something was renamed while `..` was resolved; after a few tries the walk, which cannot be disturbed. */
  for (int i = 0; i < 4; i++) {
    long fd = syscall(SYS_openat2, root->ceiling, path, &how, sizeof how);
    if (fd >= 0) return (int)fd;
    if (errno == ENOSYS || errno == EPERM) break;
    if (errno != EAGAIN && errno != EINTR) return -errno;
  }
  return ckpt_contained_walk(root, name, flags);
}

/* Where a link leads, for a message: " to TARGET", or "" if path is none. */
static const char *link_target(const char *path, char *out, size_t n_bytes) {
  char target[256];
  ssize_t n = readlink(path, target, sizeof target);
  if (n > 0) snprintf(out, n_bytes, " to %.*s%s", (int)n, target, (size_t)n == sizeof target ? "..." : "");
  return n > 0 ? out : "";
}

ckpt_status ckpt_fail_open(ckpt_error *err, const char *path, int code) {
  char buffer[300];
  const char *to = link_target(path, buffer, sizeof buffer);
  switch (code) {
    case EXDEV:
      return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                       "a link%s leads out of the checkpoint's folder (name the path it leads to, or copy that into "
                       "the folder)",
                       to);
    case ELOOP: return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "too many links, or a link to itself");
    case ENXIO: return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "not a regular file");
    case ENOTDIR: return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "no such file (a part of the path is no folder)");
    case ENAMETOOLONG: return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "no such file (its name is longer than any)");
    case ENOENT:
      if (*to != '\0') return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "a link%s, which does not exist", to);
      break;
    default: break;
  }
  errno = code;
  return ckpt_fail_errno(err, path, "cannot open");
}
