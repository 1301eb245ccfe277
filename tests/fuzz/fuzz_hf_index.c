/* fuzz_hf_index - any bytes as model.safetensors.index.json beside two small shards, in a folder of its own. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/format.h"
#include "tests/fuzz/fuzz.h"

static char folder[] = "/dev/shm/ckpt-fuzz-XXXXXX";

static void path_of(char *path, size_t n, const char *name) { snprintf(path, n, "%s/%s", folder, name); }

static void put(const char *name, const void *bytes, size_t n_bytes) {
  char path[128];
  path_of(path, sizeof path, name);
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0 || write(fd, bytes, n_bytes) != (ssize_t)n_bytes || close(fd) != 0) abort();
}

/* A shard with one tensor of a byte. */
static void put_shard(const char *name, const char *tensor) {
  char header[128], bytes[160] = {0};
  int n = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
  bytes[0] = (char)n;
  memcpy(bytes + 8, header, (size_t)n);
  put(name, bytes, (size_t)n + 9);
}

static void clean(void) {
  static const char *const names[] = {"model.safetensors.index.json", "a.safetensors", "b.safetensors"};
  char path[128];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    path_of(path, sizeof path, names[i]);
    unlink(path);
  }
  rmdir(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  static int is_ready;
  if (!is_ready) {
    if (mkdtemp(folder) == NULL) abort();
    atexit(clean);
    put_shard("a.safetensors", "x");
    put_shard("b.safetensors", "y");
    is_ready = 1;
  }
  put("model.safetensors.index.json", data, n_bytes);
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open(&index, folder, &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status == CKPT_OK && ckpt_index_count(index) > 2) abort();
  ckpt_index_free(index);
  return 0;
}
