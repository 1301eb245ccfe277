// wrapped.cc - see wrapped.h. tests/CMakeLists.txt gives the linker the same names.
#include "tests/faults/wrapped.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <cstdlib>
#include <utility>

namespace wrapped {

std::function<void()> before_rename, before_each_rename;
static std::atomic<int> chosen;
static std::atomic<long> n_left, n_transfers, n_armed;

const char *NameOf(Kind kind) {
  static const char *const names[kKinds] = {"nothing", "memory", "read",   "write", "sync",   "rename",
                                            "open",    "space",  "folder", "look",  "thread", "short"};
  return names[kind];
}

Fault::Fault(Kind kind, long n) {
  n_left = n_armed = n;
  n_transfers = 0;
  chosen = kind;
}
Fault::~Fault() { chosen = kNone; }
long Fault::n_calls() const { return n_armed - n_left; }
bool Fault::is_hit() const { return chosen == kShort ? n_transfers > 0 : n_left <= 0; }

static bool Fails(Kind kind) { return chosen == kind && n_left.fetch_sub(1) == 1; }

// Under kShort a transfer is interrupted, or moves fewer bytes.
static bool Shortens(size_t *n_bytes) {
  if (chosen != kShort) return true;
  long n = n_transfers.fetch_add(1);
  if (n % 5 == 4) {
    errno = EINTR;
    return false;
  }
  if (n % 2 == 0 && *n_bytes > 1) *n_bytes -= *n_bytes > 7 ? 1 + static_cast<size_t>(n) % 7 : 1;
  return true;
}

}  // namespace wrapped

using namespace wrapped;  // NOLINT: what follows stands in for the C library

// Defines __wrap_<name>, which fails with a value and errno, or calls the real one.
#define WRAP(kind, type, failure, code, name, parameters, arguments) \
  type __real_##name parameters;                                     \
  type __wrap_##name parameters;                                     \
  type __wrap_##name parameters {                                    \
    if (Fails(kind)) {                                               \
      errno = (code);                                                \
      return failure;                                                \
    }                                                                \
    return __real_##name arguments;                                  \
  }

// The same for functions that return their error number.
#define WRAP_CODE(kind, code, name, parameters, arguments) WRAP(kind, int, (code), (code), name, parameters, arguments)

extern "C" {

WRAP(kMemory, void *, nullptr, ENOMEM, malloc, (size_t n), (n))
WRAP(kMemory, void *, nullptr, ENOMEM, calloc, (size_t n, size_t size), (n, size))
WRAP(kMemory, void *, nullptr, ENOMEM, realloc, (void *old, size_t n), (old, n))
WRAP(kMemory, void *, nullptr, ENOMEM, reallocarray, (void *old, size_t n, size_t size), (old, n, size))
WRAP(kMemory, void *, nullptr, ENOMEM, aligned_alloc, (size_t alignment, size_t n), (alignment, n))
WRAP(kMemory, char *, nullptr, ENOMEM, strdup, (const char *text), (text))
WRAP(kMemory, char *, nullptr, ENOMEM, strndup, (const char *text, size_t n), (text, n))

WRAP(kSync, int, -1, EIO, fsync, (int fd), (fd))
WRAP(kSpace, int, -1, ENOSPC, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
WRAP(kSpace, int, -1, ENOSPC, ftruncate, (int fd, off_t n), (fd, n))
WRAP(kFolder, int, -1, EACCES, mkdirat, (int fd, const char *path, mode_t mode), (fd, path, mode))
WRAP(kFolder, DIR *, nullptr, ENOMEM, fdopendir, (int fd), (fd))
WRAP(kLook, int, -1, EACCES, stat, (const char *path, struct stat *st), (path, st))
WRAP(kLook, int, -1, EACCES, lstat, (const char *path, struct stat *st), (path, st))
WRAP(kLook, int, -1, EIO, fstat, (int fd, struct stat *st), (fd, st))
WRAP(kLook, int, -1, EIO, fstatat, (int fd, const char *path, struct stat *st, int flags), (fd, path, st, flags))
WRAP(kLook, char *, nullptr, EACCES, realpath, (const char *path, char *out), (path, out))
WRAP(kLook, ssize_t, -1, EIO, readlinkat, (int fd, const char *path, char *out, size_t n), (fd, path, out, n))
WRAP(kOpen, FILE *, nullptr, EMFILE, fopen, (const char *path, const char *mode), (path, mode))
WRAP(kThread, int, EAGAIN, EAGAIN, pthread_create,
     (pthread_t * thread, const pthread_attr_t *attributes, void *(*start)(void *), void *arg),
     (thread, attributes, start, arg))
WRAP_CODE(kThread, ENOMEM, pthread_mutex_init, (pthread_mutex_t * mutex, const pthread_mutexattr_t *attributes),
          (mutex, attributes))
WRAP_CODE(kThread, ENOMEM, pthread_cond_init, (pthread_cond_t * cond, const pthread_condattr_t *attributes),
          (cond, attributes))

int __real_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_renameat(int from, const char *a, int to, const char *b) {
  if (before_each_rename) before_each_rename();
  if (!Fails(kRename)) return __real_renameat(from, a, to, b);
  errno = EIO;
  return -1;
}

int __real_renameat2(int from, const char *a, int to, const char *b, unsigned flags);
int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags);
int __wrap_renameat2(int from, const char *a, int to, const char *b, unsigned flags) {
  if (before_rename) std::exchange(before_rename, nullptr)();
  if (before_each_rename) before_each_rename();
  if (!Fails(kRename)) return __real_renameat2(from, a, to, b, flags);
  errno = EIO;
  return -1;
}

ssize_t __real_pread(int fd, void *dst, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *dst, size_t n, off_t at) {
  if (Fails(kRead)) {
    errno = EIO;
    return -1;
  }
  return Shortens(&n) ? __real_pread(fd, dst, n, at) : -1;
}

ssize_t __real_pwrite(int fd, const void *src, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t at);
ssize_t __wrap_pwrite(int fd, const void *src, size_t n, off_t at) {
  if (Fails(kWrite)) {
    errno = ENOSPC;
    return -1;
  }
  return Shortens(&n) ? __real_pwrite(fd, src, n, at) : -1;
}

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int folder, const char *path, int flags, ...);
int __wrap___openat_2(int folder, const char *path, int flags);
long __wrap_syscall(long number, ...);

static int OpenAt(int folder, const char *path, int flags, unsigned mode) {
  if (Fails(kOpen)) {
    errno = EMFILE;
    return -1;
  }
  return openat64(folder, path, flags, mode);
}

// The mode is there only when a file may be made; reading it otherwise is harmless here.
int __wrap_open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  unsigned mode = va_arg(args, unsigned);
  va_end(args);
  return OpenAt(AT_FDCWD, path, flags, mode);
}

int __wrap_openat(int folder, const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  unsigned mode = va_arg(args, unsigned);
  va_end(args);
  return OpenAt(folder, path, flags, mode);
}

int __wrap___openat_2(int folder, const char *path, int flags) { return OpenAt(folder, path, flags, 0); }

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...) {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long &value : a) value = va_arg(args, long);
  va_end(args);
  if (number == SYS_openat2 && Fails(kOpen)) {
    errno = EMFILE;
    return -1;
  }
  return __real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
