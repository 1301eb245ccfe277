/* fuzz_folder.h - a folder of a fuzz target's own, in memory where the system has such a place; removed at exit. */
#ifndef CKPT_TESTS_FUZZ_FOLDER_H
#define CKPT_TESTS_FUZZ_FOLDER_H

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_folder[64];

static inline int fuzz_remove_entry(const char *path, const struct stat *st, int kind, struct FTW *walk) {
  (void)st, (void)kind;
  return walk->level == 0 ? 0 : remove(path);
}

/* Removes what is in the folder. */
static inline void fuzz_folder_clear(void) {
  if (nftw(fuzz_folder, fuzz_remove_entry, 8, FTW_DEPTH | FTW_PHYS) != 0) abort();
}

static inline void fuzz_folder_remove(void) {
  fuzz_folder_clear();
  rmdir(fuzz_folder);
}

/* Makes the folder once. */
static inline void fuzz_folder_make(void) {
  if (fuzz_folder[0] != '\0') return;
  snprintf(fuzz_folder, sizeof fuzz_folder, "%s/ckpt-fuzz-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
  if (mkdtemp(fuzz_folder) == NULL) abort();
  atexit(fuzz_folder_remove);
}

/* The path of a name in the folder, in out. */
static inline const char *fuzz_path(char out[256], const char *name) {
  snprintf(out, 256, "%s/%s", fuzz_folder, name);
  return out;
}

/* Appends bytes to a file of the folder, made where it is not there; folders in its name are made too. */
static inline void fuzz_append(const char *name, const void *bytes, size_t n_bytes) {
  char path[256];
  fuzz_path(path, name);
  for (char *slash = path + strlen(fuzz_folder) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
    *slash = '\0';
    mkdir(path, 0700);
  }
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, n_bytes) != (ssize_t)n_bytes || close(fd) != 0) abort();
}

#endif
