/* temporary.c - see temporary.h. Everything here is by descriptors and never follows a link: whoever can write to the
 * folder may have put anything under these names. */
#include "libckpt/io/temporary.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/error.h"

#define LETTERS "abcdefghijklmnopqrstuvwxyz234567"
static const char *const marks[] = {".ckpt-tmp.", ".ckpt-old."};
enum { N_MARK = 10, N_RANDOM = 6, N_HASH = 17, MAX_DEPTH = 32 };

/* ---- names ------------------------------------------------------------------------------------------------------ */

/* What a temporary name has of name: all of it where there is room, else its beginning (never half a UTF-8 character)
 * and a hash (FNV-1a) of the whole, so that those of two outputs differ. */
static void stem_of(char out[NAME_MAX + 1], const char *name) {
  const size_t room = NAME_MAX - 1 - N_MARK - N_RANDOM;
  size_t n = strlen(name);
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  if (n <= room) {
    memcpy(out, name, n + 1);
    return;
  }
  for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)name[i]) * UINT64_C(0x100000001b3);
  for (n = room - N_HASH; n > 0 && ((uint8_t)name[n] & 0xC0) == 0x80;) n--;
  snprintf(out, NAME_MAX + 1, "%.*s~%016llx", (int)n, name, (unsigned long long)hash);
}

ckpt_status ckpt_temporary_name(char out[NAME_MAX + 1], const char *name, ckpt_temporary kind, ckpt_error *err) {
  uint8_t random[N_RANDOM];
  ssize_t n_random;
  do {
    n_random = getrandom(random, sizeof random, 0);
  } while (n_random < 0 && errno == EINTR);
  if (n_random != (ssize_t)sizeof random) return ckpt_fail_errno(err, name, "no random bytes for a temporary name");
  char stem[NAME_MAX + 1];
  stem_of(stem, name);
  int at = snprintf(out, NAME_MAX + 1, ".%s%s", stem, marks[kind]);
  for (int i = 0; i < N_RANDOM; i++) out[at + i] = LETTERS[random[i] % 32];
  out[at + N_RANDOM] = '\0';
  return CKPT_OK;
}

static bool is_name(const char *entry, const char *name, ckpt_temporary kind) {
  char stem[NAME_MAX + 1];
  stem_of(stem, name);
  const size_t n = strlen(stem);
  if (entry[0] != '.' || strncmp(entry + 1, stem, n) != 0 || strncmp(entry + 1 + n, marks[kind], N_MARK) != 0)
    return false;
  entry += 1 + n + N_MARK;
  return strspn(entry, LETTERS) == N_RANDOM && entry[N_RANDOM] == '\0';
}

/* ---- locks ------------------------------------------------------------------------------------------------------ */

/* Whether fd is what entry of folder names; `otherwise` where that cannot be seen. */
static bool is_at(int folder, const char *entry, int fd, bool otherwise) {
  struct stat made, there;
  if (fstat(fd, &made) != 0) return otherwise;
  if (fstatat(folder, entry, &there, AT_SYMLINK_NOFOLLOW) != 0) return errno != ENOENT && otherwise;
  return made.st_dev == there.st_dev && made.st_ino == there.st_ino;
}

/* Tries for n_ms; -1 where it cannot be locked. */
static int lock_folder(int folder, int kind, int n_ms) {
  const struct timespec pause = {.tv_nsec = 5000000};
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (; fd >= 0 && flock(fd, kind | LOCK_NB) != 0; n_ms -= 5) {
    if (errno != EWOULDBLOCK || n_ms <= 0) {
      close(fd);
      return -1;
    }
    nanosleep(&pause, NULL);
  }
  return fd;
}

int ckpt_temporary_begin(int folder) { return lock_folder(folder, LOCK_SH, 500); } /* a cleaner is soon done */

int ckpt_temporary_alone(int folder) { return lock_folder(folder, LOCK_EX, 10000); }

bool ckpt_temporary_hold(int folder, const char *entry, int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return false;
  return is_at(folder, entry, fd, true);
}

/* Opens and locks a file or folder of the user's; -1 for anything else, for what is in use, and for what cannot be
 * locked. */
static int take(int folder, const char *entry, struct stat *st) {
  if (fstatat(folder, entry, st, AT_SYMLINK_NOFOLLOW) != 0 || (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode)))
    return -1;
  int kind = S_ISDIR(st->st_mode) ? O_RDONLY | O_DIRECTORY : O_RDWR; /* NFS locks only what could be written */
  int fd = openat(folder, entry, kind | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return -1;
  if (fstat(fd, st) == 0 && st->st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      is_at(folder, entry, fd, false))
    return fd;
  close(fd);
  return -1;
}

/* Opens a folder for itself and keeps others from beginning in it; -1 where it cannot be opened, and while somebody is
 * about to hold what he has made there. */
static int quiet_folder(int folder) {
  int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return fd;
  close(fd);
  return -1;
}

bool ckpt_temporary_is_left(int folder, const char *entry, const char *name) {
  struct stat st;
  int quiet = is_name(entry, name, CKPT_TEMPORARY_NEW) ? quiet_folder(folder) : -1;
  int fd = quiet < 0 ? -1 : take(quiet, entry, &st);
  if (fd >= 0) close(fd);
  if (quiet >= 0) close(quiet);
  return fd >= 0;
}

/* How many bytes of an output's name stand in a temporary name of this kind; 0 for another entry. */
static size_t named_bytes(const char *entry, ckpt_temporary kind) {
  size_t n = strlen(entry);
  if (entry[0] != '.' || n <= 1 + N_MARK + N_RANDOM) return 0;
  const char *mark = entry + n - N_RANDOM - N_MARK;
  bool is_named = strncmp(mark, marks[kind], N_MARK) == 0 && strspn(mark + N_MARK, LETTERS) == N_RANDOM;
  return is_named ? (size_t)(mark - entry) - 1 : 0;
}

bool ckpt_temporary_is_stage(const char *entry) { return named_bytes(entry, CKPT_TEMPORARY_NEW) != 0; }

bool ckpt_temporary_is_of(const char *path, const char *entry) {
  char *real = realpath(path, NULL);
  bool is_of = real == NULL || is_name(entry, strrchr(real, '/') + 1, CKPT_TEMPORARY_NEW);
  free(real);
  return is_of;
}

bool ckpt_temporary_is_held(const char *path, const char *entry) {
  int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int fd = folder < 0 ? -1 : openat(folder, entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  bool is_held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  if (fd >= 0) close(fd);
  if (folder >= 0) close(folder);
  return is_held;
}

/* ---- removing --------------------------------------------------------------------------------------------------- */

/* Looks through everything below an open folder, or, in a second pass, removes it. False when there is something that
 * no run of ours makes. */
static bool go_through(int folder, bool removes, int depth, uint64_t *n_bytes) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = copy < 0 ? NULL : fdopendir(copy);
  if (dir == NULL) {
    if (copy >= 0) close(copy);
    return false;
  }
  const struct dirent *entry;
  bool is_fine = true;
  while (is_fine && (errno = 0, entry = readdir(dir)) != NULL) {
    const char *name = entry->d_name;
    struct stat st;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) continue;
    is_fine = fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_uid == geteuid();
    if (is_fine && S_ISREG(st.st_mode)) {
      *n_bytes += (uint64_t)st.st_size;
      is_fine = !removes || unlinkat(folder, name, 0) == 0;
    } else if (is_fine && S_ISDIR(st.st_mode) && depth < MAX_DEPTH) {
      int below = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
      is_fine = below >= 0 && go_through(below, removes, depth + 1, n_bytes) &&
                (!removes || unlinkat(folder, name, AT_REMOVEDIR) == 0);
      if (below >= 0) close(below);
    } else {
      is_fine = false;
    }
  }
  is_fine = is_fine && errno == 0;
  closedir(dir);
  return is_fine;
}

static void remove_left(int folder, const char *entry, ckpt_leftovers *found) {
  struct stat st;
  uint64_t n_bytes = 0, n_again = 0;
  int fd = take(folder, entry, &st);
  if (fd < 0) return;
  bool is_folder = S_ISDIR(st.st_mode), is_removed = true;
  if (is_folder)
    is_removed = go_through(fd, false, 0, &n_bytes) && go_through(fd, true, 0, &n_again);
  else
    n_bytes = (uint64_t)st.st_size;
  is_removed = is_removed && unlinkat(folder, entry, is_folder ? AT_REMOVEDIR : 0) == 0;
  close(fd);
  if (!is_removed) return;
  if (found->n_removed++ == 0) memcpy(found->first, entry, strlen(entry) + 1);
  found->n_bytes += n_bytes;
}

void ckpt_temporary_clean(int folder, const char *name, const char *holder, ckpt_leftovers *found) {
  struct stat st;
  int copy = quiet_folder(folder);
  bool is_stale = copy >= 0 && holder != NULL && fstatat(copy, holder, &st, AT_SYMLINK_NOFOLLOW) == 0;
  DIR *dir = copy < 0 ? NULL : fdopendir(copy);
  if (dir == NULL) {
    if (copy >= 0) close(copy);
    return;
  }
  const struct dirent *entry;
  while ((entry = readdir(dir)) != NULL) {
    bool is_old = is_name(entry->d_name, name, CKPT_TEMPORARY_OLD);
    if (is_old && !is_stale)
      memcpy(found->kept_old, entry->d_name, strlen(entry->d_name) + 1);
    else if (is_old || is_name(entry->d_name, name, CKPT_TEMPORARY_NEW))
      remove_left(folder, entry->d_name, found);
  }
  closedir(dir);
}

bool ckpt_temporary_has_old(int folder, const char *name) {
  int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *dir = copy < 0 ? NULL : fdopendir(copy);
  bool has_old = false;
  const struct dirent *entry;
  if (dir == NULL && copy >= 0) close(copy);
  while (dir != NULL && !has_old && (entry = readdir(dir)) != NULL)
    has_old = is_name(entry->d_name, name, CKPT_TEMPORARY_OLD);
  if (dir != NULL) closedir(dir);
  return has_old;
}

/* ---- saying ----------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_temporary_explain(const char *path, ckpt_error *err) {
  char folder[PATH_MAX], name[NAME_MAX + 1];
  size_t n = strlen(path), start;
  while (n > 1 && path[n - 1] == '/') n--;
  for (start = n; start > 0 && path[start - 1] != '/';) start--;
  if (start >= sizeof folder || n - start >= sizeof name) return CKPT_OK;
  memcpy(name, path + start, n - start);
  name[n - start] = '\0';
  snprintf(folder, sizeof folder, "%.*s", start == 0 ? 1 : (int)start, start == 0 ? "." : path);
  DIR *dir = opendir(folder);
  if (dir == NULL) return CKPT_OK;
  char beside[NAME_MAX + 8], olds[2][NAME_MAX + 1] = {"", ""};
  snprintf(beside, sizeof beside, "%s.data", name); /* sink_pair.h */
  const struct dirent *entry;
  while ((entry = readdir(dir)) != NULL)
    for (int i = 0; i < 2; i++)
      if (is_name(entry->d_name, i == 0 ? name : beside, CKPT_TEMPORARY_OLD))
        memcpy(olds[i], entry->d_name, strlen(entry->d_name) + 1);
  closedir(dir);
  if (olds[0][0] == '\0') return CKPT_OK;
  if (olds[1][0] != '\0')
    return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL,
                     "is not there: a run that was replacing it was interrupted, and the old one and its data are at "
                     "'%s' and '%s' beside it (rename both back, or write it anew)",
                     olds[0], olds[1]);
  return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL,
                   "is not there: a run that was replacing it was interrupted, and the old one is at '%s' beside it "
                   "(rename it back, or write it anew)",
                   olds[0]);
}

ckpt_status ckpt_temporary_explain_entry(const char *folder, const char *entry, ckpt_error *err) {
  char path[PATH_MAX];
  struct stat st;
  const size_t n = named_bytes(entry, CKPT_TEMPORARY_OLD);
  if (n == 0 || (size_t)snprintf(path, sizeof path, "%s/%.*s", folder, (int)n, entry + 1) >= sizeof path)
    return CKPT_OK;
  return lstat(path, &st) == 0 ? CKPT_OK : ckpt_temporary_explain(path, err);
}
