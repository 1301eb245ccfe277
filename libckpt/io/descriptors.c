/* descriptors.c - the cache of open files, and the loops around pread and pwrite.
 *
 * Idle open files form a doubly linked list, oldest at its end; files in use are in no list, so that eviction is O(1)
 * and cannot touch them. One mutex guards all of it; it is held while a file is opened, which is rare. */
#include "libckpt/io/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/io/contained.h"

#define NO_FILE UINT32_MAX

typedef struct slot {
  int fd; /* -1: closed */
  uint32_t n_users;
  uint32_t newer, older; /* neighbours in the list of idle files */
  bool is_known;         /* the identity below is set */
  dev_t device;
  ino_t inode;
  off_t size;
  struct timespec mtime;
} slot;

struct ckpt_descriptors {
  pthread_mutex_t mutex;
  pthread_cond_t released;
  slot *slots;
  uint32_t n_slots, n_open, limit;
  uint32_t newest, oldest; /* ends of the idle list */
  bool is_read_only;
  int close_error;  /* first errno that close gave */
  uint32_t changed; /* a file that was found changed when it was closed, or NO_FILE */
  off_t size_now;   /* of it */
  ckpt_open_file open_file;
  void *owner;
};

/* At most a quarter of what the process may open: a run has several caches, and opens folders besides. */
static uint32_t affordable(uint32_t limit) {
  struct rlimit allowed;
  if (getrlimit(RLIMIT_NOFILE, &allowed) != 0 || allowed.rlim_cur / 4 >= limit) return limit;
  return allowed.rlim_cur < 16 ? 4 : (uint32_t)(allowed.rlim_cur / 4);
}

ckpt_status ckpt_descriptors_new(ckpt_descriptors **out, uint32_t limit, bool is_read_only, ckpt_open_file open_file,
                                 void *owner, ckpt_error *err) {
  ckpt_descriptors *cache = *out = calloc(1, sizeof *cache);
  CKPT_TRY_ALLOC(cache, err);
  pthread_mutex_init(&cache->mutex, NULL);
  pthread_cond_init(&cache->released, NULL);
  cache->limit = affordable(limit);
  cache->newest = cache->oldest = cache->changed = NO_FILE;
  cache->is_read_only = is_read_only;
  cache->open_file = open_file;
  cache->owner = owner;
  return CKPT_OK;
}

ckpt_status ckpt_descriptors_grow(ckpt_descriptors *cache, uint32_t n_files, ckpt_error *err) {
  if (n_files <= cache->n_slots) return CKPT_OK;
  uint32_t n = cache->n_slots > UINT32_MAX / 2 || cache->n_slots * 2 < n_files ? n_files : cache->n_slots * 2;
  slot *slots = reallocarray(cache->slots, n, sizeof *slots);
  CKPT_TRY_ALLOC(slots, err);
  for (uint32_t i = cache->n_slots; i < n; i++) slots[i] = (slot){.fd = -1, .newer = NO_FILE, .older = NO_FILE};
  cache->slots = slots;
  cache->n_slots = n;
  return CKPT_OK;
}

static void leave_idle(ckpt_descriptors *cache, uint32_t file) {
  slot *s = &cache->slots[file];
  *(s->newer == NO_FILE ? &cache->newest : &cache->slots[s->newer].older) = s->older;
  *(s->older == NO_FILE ? &cache->oldest : &cache->slots[s->older].newer) = s->newer;
  s->newer = s->older = NO_FILE;
}

static void enter_idle(ckpt_descriptors *cache, uint32_t file) {
  slot *s = &cache->slots[file];
  s->newer = NO_FILE;
  s->older = cache->newest;
  *(s->older == NO_FILE ? &cache->oldest : &cache->slots[s->older].newer) = file;
  cache->newest = file;
}

/* ctime is not asked: a chmod, a chown or a hard link made meanwhile (a snapshot, a backup, a cache that links its
 * blobs) changes it and no byte. What it would show beside mtime is a writer that sets mtime back, or bytes that were
 * written through a mapping and not flushed yet; the digests of a receipt or manifest show those. */
static bool is_same(const ckpt_descriptors *cache, const slot *s, const struct stat *st) {
  return st->st_dev == s->device && st->st_ino == s->inode &&
         (!cache->is_read_only ||
          (st->st_size == s->size && st->st_mtim.tv_sec == s->mtime.tv_sec && st->st_mtim.tv_nsec == s->mtime.tv_nsec));
}

/* Looks once more at an open file that is only read. */
static void look_again(ckpt_descriptors *cache, uint32_t file) {
  struct stat st;
  const slot *s = &cache->slots[file];
  if (!cache->is_read_only || cache->changed != NO_FILE || fstat(s->fd, &st) != 0 || is_same(cache, s, &st)) return;
  cache->changed = file;
  cache->size_now = st.st_size;
}

bool ckpt_descriptors_changed(ckpt_descriptors *cache, uint32_t *file, uint64_t *size_before, uint64_t *size_now) {
  pthread_mutex_lock(&cache->mutex);
  for (uint32_t i = 0; i < cache->n_slots; i++)
    if (cache->slots[i].fd >= 0) look_again(cache, i);
  *file = cache->changed;
  *size_before = *file == NO_FILE ? 0 : (uint64_t)cache->slots[*file].size;
  *size_now = (uint64_t)cache->size_now;
  pthread_mutex_unlock(&cache->mutex);
  return *file != NO_FILE;
}

/* Closes the least recently used idle file; false when there is none. */
static bool evict(ckpt_descriptors *cache) {
  uint32_t file = cache->oldest;
  if (file == NO_FILE) return false;
  leave_idle(cache, file);
  look_again(cache, file);
  if (close(cache->slots[file].fd) != 0 && errno != EINTR && cache->close_error == 0) cache->close_error = errno;
  cache->slots[file].fd = -1;
  cache->n_open--;
  return true;
}

/* Checks that fd is a regular file and, when it was open before, the same one. */
static ckpt_status identify(const ckpt_descriptors *cache, slot *s, int fd, const char *path, ckpt_error *err) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ckpt_fail_errno(err, path, "cannot look at this file");
  if (!S_ISREG(st.st_mode)) return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "not a regular file");
  if (!s->is_known) {
    s->is_known = true;
    s->device = st.st_dev, s->inode = st.st_ino, s->size = st.st_size, s->mtime = st.st_mtim;
    return CKPT_OK;
  }
  if (is_same(cache, s, &st)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, path, NULL, "changed while being %s (%" PRIu64 " byte%s before, %" PRIu64 " now)",
                   cache->is_read_only ? "read" : "written", (uint64_t)s->size, ckpt_plural(s->size),
                   (uint64_t)st.st_size);
}

/* Opens a closed file, in the mutex. *is_open stays false when it must be tried again. */
static ckpt_status try_open(ckpt_descriptors *cache, uint32_t file, const char *path, bool *is_open, ckpt_error *err) {
  if (cache->n_open >= cache->limit && !evict(cache)) {
    pthread_cond_wait(&cache->released, &cache->mutex);
    return CKPT_OK;
  }
  slot *s = &cache->slots[file];
  int fd = cache->open_file(cache->owner, file);
  if (fd == -EINTR) return CKPT_OK;
  if (fd == -EMFILE || fd == -ENFILE) { /* the process is poorer than our limit: live on what we hold */
    if (evict(cache)) return CKPT_OK;
    if (cache->n_open > 0) {
      pthread_cond_wait(&cache->released, &cache->mutex);
      return CKPT_OK;
    }
  }
  if (fd < 0) return ckpt_fail_open(err, path, -fd);
  ckpt_status status = identify(cache, s, fd, path, err);
  if (status != CKPT_OK) {
    close(fd);
    return status;
  }
  s->fd = fd;
  cache->n_open++;
  *is_open = true;
  return CKPT_OK;
}

ckpt_status ckpt_descriptors_acquire(ckpt_descriptors *cache, uint32_t file, const char *path, int *fd,
                                     ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  pthread_mutex_lock(&cache->mutex);
  slot *s = &cache->slots[file];
  bool is_open = s->fd >= 0;
  while (!is_open) {
    CKPT_TRY_GOTO(try_open(cache, file, path, &is_open, err));
    if (is_open) enter_idle(cache, file);
    is_open = s->fd >= 0; /* another thread may have opened it while this one waited */
  }
  if (!cache->is_read_only && cache->close_error != 0) {
    errno = cache->close_error;
    status = ckpt_fail_errno(err, path, "cannot keep what was written");
    goto done;
  }
  if (s->n_users++ == 0) leave_idle(cache, file);
  *fd = s->fd;
done:
  pthread_mutex_unlock(&cache->mutex);
  return status;
}

void ckpt_descriptors_release(ckpt_descriptors *cache, uint32_t file) {
  pthread_mutex_lock(&cache->mutex);
  if (--cache->slots[file].n_users == 0) {
    enter_idle(cache, file);
    pthread_cond_broadcast(&cache->released);
  }
  pthread_mutex_unlock(&cache->mutex);
}

uint64_t ckpt_descriptors_size(const ckpt_descriptors *cache, uint32_t file) {
  return (uint64_t)cache->slots[file].size;
}

ckpt_status ckpt_descriptors_close(ckpt_descriptors *cache, ckpt_error *err) {
  while (evict(cache)) continue;
  if (cache->close_error == 0) return CKPT_OK;
  errno = cache->close_error;
  return ckpt_fail_errno(err, NULL, "cannot close a file");
}

void ckpt_descriptors_free(ckpt_descriptors *cache) {
  if (cache == NULL) return;
  (void)ckpt_descriptors_close(cache, NULL);
  pthread_cond_destroy(&cache->released);
  pthread_mutex_destroy(&cache->mutex);
  free(cache->slots);
  free(cache);
}

ckpt_status ckpt_read_exactly(int fd, const char *path, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  for (size_t n_done = 0; n_done < n_bytes;) {
    ssize_t n = pread(fd, (char *)dst + n_done, n_bytes - n_done, (off_t)(offset + n_done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return ckpt_fail_errno(err, path, "cannot read %zu byte%s at offset %" PRIu64, n_bytes - n_done,
                             ckpt_plural(n_bytes - n_done), offset + n_done);
    if (n == 0)
      return ckpt_fail(err, CKPT_EIO, path, NULL,
                       "ends early: %zu byte%s wanted at offset %" PRIu64 ", only %zu are there", n_bytes,
                       ckpt_plural(n_bytes), offset, n_done);
    n_done += (size_t)n;
  }
  return CKPT_OK;
}

ckpt_status ckpt_write_exactly(int fd, const char *path, uint64_t offset, const void *src, size_t n_bytes,
                               ckpt_error *err) {
  for (size_t n_done = 0; n_done < n_bytes;) {
    ssize_t n = pwrite(fd, (const char *)src + n_done, n_bytes - n_done, (off_t)(offset + n_done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = EIO; /* no progress and no reason given */
      return ckpt_fail_errno(err, path, "cannot write %zu byte%s at offset %" PRIu64, n_bytes - n_done,
                             ckpt_plural(n_bytes - n_done), offset + n_done);
    }
    n_done += (size_t)n;
  }
  return CKPT_OK;
}
