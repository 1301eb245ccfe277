/* replay - runs a fuzz target on every file of its corpus, so that what was once found stays found without libFuzzer.
 *
 *   fuzz_<target> [FILE | FOLDER]...      always begins with the empty input
 *
 * A defect is a crash or a sanitizer's report, exactly as under libFuzzer. Each input lies in memory of its own exact
 * size, so that AddressSanitizer sees one byte too far. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/fuzz/fuzz.h"

static unsigned n_inputs;

static bool replay_file(const char *path, size_t n_bytes) {
  FILE *file = fopen(path, "rb");
  uint8_t *data = malloc(n_bytes > 0 ? n_bytes : 1);
  bool ok = file != NULL && data != NULL && fread(data, 1, n_bytes, file) == n_bytes;
  if (ok) {
    fprintf(stderr, "%s\n", path); /* the last line before a crash names the input */
    LLVMFuzzerTestOneInput(data, n_bytes);
    n_inputs++;
  } else {
    perror(path);
  }
  free(data);
  if (file != NULL) fclose(file);
  return ok;
}

static bool replay(const char *path, int depth) {
  struct stat status;
  if (stat(path, &status) != 0) {
    perror(path);
    return false;
  }
  if (!S_ISDIR(status.st_mode)) return replay_file(path, (size_t)status.st_size);
  struct dirent **entries;
  int n = depth < 4 ? scandir(path, &entries, NULL, alphasort) : -1;
  bool ok = n >= 0;
  if (!ok) perror(path);
  for (int i = 0; i < n; i++) {
    char child[4096];
    int length = snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
    if (entries[i]->d_name[0] != '.') ok = length < (int)sizeof child && replay(child, depth + 1) && ok;
    free(entries[i]);
  }
  if (n >= 0) free(entries);
  return ok;
}

int main(int argc, char **argv) {
  bool ok = true;
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  for (int i = 1; i < argc; i++) ok = replay(argv[i], 0) && ok;
  printf("%u inputs and the empty one\n", n_inputs);
  return ok ? 0 : 1;
}
