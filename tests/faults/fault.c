/* fault.c - a shared object for LD_PRELOAD that makes one chosen call of a program fail.
 *
 * CKPT_FAULT="<what>:<n>[:forever]" makes the n-th matching call (from 1, all threads together, from the start of main
 * on) fail once, or that and all later ones:
 *   alloc   malloc, calloc, realloc, reallocarray, aligned ones   NULL, ENOMEM
 *   read    pread, read                                           EIO
 *   write   pwrite, write                                         ENOSPC
 *   fsync   fsync, fdatasync                                      EIO
 *   rename  rename, renameat, renameat2                           EIO
 *   open    open, openat, openat2 by syscall                      EMFILE
 *   fallocate                                                     ENOSPC
 *   norename2  renameat2 with flags, always (n counts for the report only)   EINVAL, as on file systems without them
 *   killrename the same, and SIGKILL in place of the n-th rename without flags
 *   kill    SIGKILL in place of the n-th call that changes files: making, writing (half of it is written), syncing,
 *           cutting, renaming, removing
 *   noopenat2  openat2, always                                               ENOSYS, as on old kernels
 * CKPT_FAULT="short:1" fails nothing, but pread and pwrite transfer up to 7 bytes fewer than asked and every 5th of
 * them is interrupted (EINTR): a program must not notice.
 * CKPT_FAULT_REPORT=path gets "hit" or "not reached: <calls there were>" at exit; a test loops n upward until then.
 * CKPT_FAULT_LOG=path gets a line for every write, fsync and rename (or link) that went well, in order, fields apart by
 * tabs, paths in full and as they are then: "write <path>", "sync <path>", "rename <flags> <from> <to>". read and write
 * leave descriptors 0 to 2 alone. Relies on glibc (__libc_malloc, __libc_start_main); not for sanitized programs. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes" /* these stand in for libc's, not all of which a header names */

#define EXPORT __attribute__((visibility("default")))

typedef enum fault {
  NONE,
  ALLOC,
  READ,
  WRITE,
  FSYNC,
  RENAME,
  OPEN,
  FALLOCATE,
  NO_RENAME2,
  KILL_RENAME,
  NO_OPENAT2,
  SHORT,
  KILL
} fault;
static const char *const fault_names[] = {"",          "alloc", "read",      "write",     "fsync",
                                          "rename",    "open",  "fallocate", "norename2", "killrename",
                                          "noopenat2", "short", "kill"};

static fault chosen;
static unsigned long wanted;
static bool is_forever;
static char report_path[4096], log_path[4096];
static atomic_bool is_armed, is_hit;
static atomic_ulong n_calls;

/* Whether this call is the one that fails. */
static bool fails(fault kind) {
  if (chosen != kind || !atomic_load(&is_armed)) return false;
  unsigned long n = atomic_fetch_add(&n_calls, 1) + 1;
  if (n < wanted || (n > wanted && !is_forever)) return false;
  atomic_store(&is_hit, true);
  return true;
}

static void die(void) { (void)kill(getpid(), SIGKILL); }

static void may_die(void) {
  if (fails(KILL)) die();
}

static bool lacks(fault kind) { return chosen == kind && atomic_load(&is_armed) && (fails(kind), true); }

static void configure(void) {
  const char *text = getenv("CKPT_FAULT"), *report = getenv("CKPT_FAULT_REPORT"), *log = getenv("CKPT_FAULT_LOG");
  if (log != NULL && strlen(log) < sizeof log_path) strcpy(log_path, log);
  if (report != NULL && strlen(report) < sizeof report_path) strcpy(report_path, report);
  if (text == NULL) return;
  size_t n = strcspn(text, ":");
  for (size_t i = 1; i < sizeof fault_names / sizeof *fault_names; i++)
    if (strlen(fault_names[i]) == n && strncmp(text, fault_names[i], n) == 0) chosen = (fault)i;
  char *end = NULL;
  wanted = text[n] == ':' ? strtoul(text + n + 1, &end, 10) : 1;
  is_forever = end != NULL && strcmp(end, ":forever") == 0;
}

__attribute__((destructor)) static void report(void) {
  atomic_store(&is_armed, false);
  if (report_path[0] == '\0') return;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, report_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  char digits[24], *first = digits + sizeof digits; /* nothing here may allocate */
  unsigned long n = atomic_load(&n_calls);
  *--first = '\n';
  do {
    *--first = (char)('0' + n % 10);
  } while ((n /= 10) > 0);
  if (fd < 0) return;
  if (atomic_load(&is_hit))
    (void)syscall(SYS_write, fd, "hit\n", 4);
  else
    (void)(syscall(SYS_write, fd, "not reached: ", 13) + syscall(SYS_write, fd, first, digits + sizeof digits - first));
  close(fd);
}

/* ---- arming when main starts ------------------------------------------------------------------------------------ */

static int (*real_main)(int, char **, char **);
static long (*real_syscall)(long, ...);

static int armed_main(int argc, char **argv, char **environment) {
  configure();
  atomic_store(&is_armed, true);
  int status = real_main(argc, argv, environment);
  atomic_store(&is_armed, false);
  return status;
}

EXPORT int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                             void (*fini)(void), void (*loader_fini)(void), void *stack_end) {
  int (*start)(int (*)(int, char **, char **), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);
  *(void **)&start = dlsym(RTLD_NEXT, "__libc_start_main");
  *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall"); /* now: dlsym may allocate, which is counted later */
  real_main = main;
  return start(armed_main, argc, argv, init, fini, loader_fini, stack_end);
}

/* ---- the log: nothing here may allocate -------------------------------------------------------------------------- */

/* Appends a path, or of a name in an open folder the folder's and the name. */
static void add_path(char *line, size_t n_line, int fd, const char *name) {
  size_t n = strlen(line);
  if (fd != -1 && (name == NULL || name[0] != '/')) {
    char link[32] = "/proc/self/cwd";
    if (fd != AT_FDCWD) snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n_path = syscall(SYS_readlinkat, AT_FDCWD, link, line + n, n_line - n - 1);
    n += n_path > 0 ? (size_t)n_path : 0;
    line[n] = '\0';
  }
  if (name != NULL) snprintf(line + n, n_line - n, "%s%s", name[0] == '/' ? "" : "/", name);
}

static void write_log(char *line) {
  int code = errno;
  size_t n = strlen(line);
  line[n++] = '\n';
  int fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  (void)syscall(SYS_write, fd, line, n);
  (void)syscall(SYS_close, fd);
  errno = code;
}

/* Logs what was done to a descriptor; returns result. */
static long logged(const char *what, int fd, long result) {
  char line[2 * 4096];
  if (result < 0 || log_path[0] == '\0' || !atomic_load(&is_armed)) return result;
  snprintf(line, sizeof line / 2, "%s\t", what);
  add_path(line, sizeof line / 2, fd, NULL);
  write_log(line);
  return result;
}

static void log_rename(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  char line[4 * 4096];
  if (log_path[0] == '\0' || !atomic_load(&is_armed)) return;
  snprintf(line, sizeof line, "rename\t%u\t", flags);
  add_path(line, sizeof line / 2, from_folder, from);
  strcat(line, "\t");
  add_path(line, sizeof line - 1, to_folder, to);
  write_log(line);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

void *__libc_malloc(size_t n_bytes);
void *__libc_calloc(size_t n, size_t n_bytes);
void *__libc_realloc(void *old, size_t n_bytes);
void *__libc_memalign(size_t alignment, size_t n_bytes);

#define FAIL(kind, code, value) \
  do {                          \
    if (fails(kind)) {          \
      errno = (code);           \
      return (value);           \
    }                           \
  } while (0)

EXPORT void *malloc(size_t n_bytes) {
  FAIL(ALLOC, ENOMEM, NULL);
  return __libc_malloc(n_bytes);
}

EXPORT void *calloc(size_t n, size_t n_bytes) {
  FAIL(ALLOC, ENOMEM, NULL);
  return __libc_calloc(n, n_bytes);
}

EXPORT void *realloc(void *old, size_t n_bytes) {
  FAIL(ALLOC, ENOMEM, NULL);
  return __libc_realloc(old, n_bytes);
}

EXPORT void *reallocarray(void *old, size_t n, size_t n_bytes) {
  size_t total;
  if (__builtin_mul_overflow(n, n_bytes, &total)) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(old, total);
}

EXPORT void *memalign(size_t alignment, size_t n_bytes) {
  FAIL(ALLOC, ENOMEM, NULL);
  return __libc_memalign(alignment, n_bytes);
}

EXPORT void *aligned_alloc(size_t alignment, size_t n_bytes) { return memalign(alignment, n_bytes); }

EXPORT int posix_memalign(void **out, size_t alignment, size_t n_bytes) {
  void *memory = memalign(alignment, n_bytes);
  if (memory == NULL) return ENOMEM;
  *out = memory;
  return 0;
}

/* ---- reading and writing ---------------------------------------------------------------------------------------- */

/* In short mode: false when the call is interrupted, else what is left of *n_bytes is to be transferred. */
static bool shorten(size_t *n_bytes) {
  if (chosen != SHORT || !atomic_load(&is_armed)) return true;
  unsigned long n = atomic_fetch_add(&n_calls, 1) + 1;
  atomic_store(&is_hit, true);
  if (n % 5 == 0) {
    errno = EINTR;
    return false;
  }
  if (n % 2 == 1 && *n_bytes > 1) *n_bytes -= *n_bytes > 7 ? 1 + n % 7 : 1;
  return true;
}

EXPORT ssize_t pread(int fd, void *dst, size_t n_bytes, off_t offset) {
  FAIL(READ, EIO, -1);
  return shorten(&n_bytes) ? syscall(SYS_pread64, fd, dst, n_bytes, offset) : -1;
}

EXPORT ssize_t pwrite(int fd, const void *src, size_t n_bytes, off_t offset) {
  FAIL(WRITE, ENOSPC, -1);
  if (fails(KILL)) {
    (void)syscall(SYS_pwrite64, fd, src, n_bytes / 2, offset);
    die();
  }
  return shorten(&n_bytes) ? logged("write", fd, syscall(SYS_pwrite64, fd, src, n_bytes, offset)) : -1;
}

EXPORT ssize_t pread64(int fd, void *dst, size_t n_bytes, off_t offset) { return pread(fd, dst, n_bytes, offset); }
EXPORT ssize_t pwrite64(int fd, const void *src, size_t n_bytes, off_t offset) {
  return pwrite(fd, src, n_bytes, offset);
}

EXPORT ssize_t read(int fd, void *dst, size_t n_bytes) {
  if (fd > 2) FAIL(READ, EIO, -1);
  return syscall(SYS_read, fd, dst, n_bytes);
}

EXPORT ssize_t write(int fd, const void *src, size_t n_bytes) {
  if (fd > 2) FAIL(WRITE, ENOSPC, -1);
  if (fd > 2 && fails(KILL)) {
    (void)syscall(SYS_write, fd, src, n_bytes / 2);
    die();
  }
  return fd > 2 ? logged("write", fd, syscall(SYS_write, fd, src, n_bytes)) : syscall(SYS_write, fd, src, n_bytes);
}

EXPORT int fallocate(int fd, int mode, off_t offset, off_t n_bytes) {
  FAIL(FALLOCATE, ENOSPC, -1);
  may_die();
  return (int)syscall(SYS_fallocate, fd, mode, offset, n_bytes);
}

EXPORT int fallocate64(int fd, int mode, off_t offset, off_t n_bytes) { return fallocate(fd, mode, offset, n_bytes); }

EXPORT int fsync(int fd) {
  FAIL(FSYNC, EIO, -1);
  may_die();
  return (int)logged("sync", fd, syscall(SYS_fsync, fd));
}

EXPORT int fdatasync(int fd) {
  FAIL(FSYNC, EIO, -1);
  may_die();
  return (int)logged("sync", fd, syscall(SYS_fdatasync, fd));
}

/* ---- names ------------------------------------------------------------------------------------------------------ */

EXPORT int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags) {
  FAIL(RENAME, EIO, -1);
  if (flags != 0 && (lacks(NO_RENAME2) || chosen == KILL_RENAME)) {
    errno = EINVAL;
    return -1;
  }
  if (fails(KILL_RENAME) || fails(KILL)) die();
  int failed = (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
  if (failed == 0) log_rename(from_folder, from, to_folder, to, flags);
  return failed;
}

EXPORT int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return renameat2(from_folder, from, to_folder, to, 0);
}

EXPORT int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
  may_die();
  int failed = (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
  if (failed == 0) log_rename(from_folder, from, to_folder, to, 0); /* its old name goes next */
  return failed;
}

EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }

EXPORT int unlinkat(int folder, const char *path, int flags) {
  may_die();
  return (int)syscall(SYS_unlinkat, folder, path, flags);
}

EXPORT int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
EXPORT int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

EXPORT int mkdirat(int folder, const char *path, mode_t mode) {
  may_die();
  return (int)syscall(SYS_mkdirat, folder, path, mode);
}

EXPORT int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }

EXPORT int ftruncate(int fd, off_t n_bytes) {
  may_die();
  return (int)syscall(SYS_ftruncate, fd, n_bytes);
}

EXPORT int ftruncate64(int fd, off_t n_bytes) { return ftruncate(fd, n_bytes); }

static int open_at(int folder, const char *path, int flags, mode_t mode) {
  FAIL(OPEN, EMFILE, -1);
  if ((flags & O_CREAT) != 0) may_die();
  return (int)syscall(SYS_openat, folder, path, flags, mode);
}

/* The mode is there only when a file may be created; reading it otherwise is harmless here. */
#define WITH_MODE(mode, last)              \
  va_list args;                            \
  va_start(args, last);                    \
  mode_t mode = (mode_t)va_arg(args, int); \
  va_end(args)

EXPORT int open(const char *path, int flags, ...) {
  WITH_MODE(mode, flags);
  return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...) {
  WITH_MODE(mode, flags);
  return open_at(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...) {
  WITH_MODE(mode, flags);
  return open_at(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...) {
  WITH_MODE(mode, flags);
  return open_at(folder, path, flags, mode);
}

/* openat2 has no wrapper in glibc, so it comes through here, as our own calls above do. */
EXPORT long syscall(long number, ...) {
  va_list args;
  va_start(args, number);
  long a = va_arg(args, long), b = va_arg(args, long), c = va_arg(args, long), d = va_arg(args, long),
       e = va_arg(args, long), f = va_arg(args, long);
  va_end(args);
  if (real_syscall == NULL) *(void **)&real_syscall = dlsym(RTLD_NEXT, "syscall"); /* from a constructor */
#ifdef SYS_openat2
  if (number == SYS_openat2) {
    FAIL(OPEN, EMFILE, -1);
    if (lacks(NO_OPENAT2)) {
      errno = ENOSYS;
      return -1;
    }
  }
#endif
  return real_syscall(number, a, b, c, d, e, f);
}

/* ---- what the same calls become where the program was built with _FORTIFY_SOURCE ------------------------------- */

EXPORT ssize_t __pread_chk(int fd, void *dst, size_t n_bytes, off_t offset, size_t room) {
  return n_bytes > room ? (ssize_t)(errno = EFAULT, -1) : pread(fd, dst, n_bytes, offset);
}
EXPORT ssize_t __pread64_chk(int fd, void *dst, size_t n_bytes, off_t offset, size_t room) {
  return __pread_chk(fd, dst, n_bytes, offset, room);
}
EXPORT ssize_t __read_chk(int fd, void *dst, size_t n_bytes, size_t room) {
  return n_bytes > room ? (ssize_t)(errno = EFAULT, -1) : read(fd, dst, n_bytes);
}
EXPORT int __open_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_at(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }
EXPORT int __openat64_2(int folder, const char *path, int flags) { return open_at(folder, path, flags, 0); }
