/* fuzz_hf_index - any bytes as model.safetensors.index.json beside two small shards, in a folder of its own. */
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

static void put(const char *name, const void *bytes, size_t n_bytes) {
  char path[256];
  unlink(fuzz_path(path, name));
  fuzz_append(name, bytes, n_bytes);
}

/* A shard with one tensor of a byte. */
static void put_shard(const char *name, const char *tensor) {
  char header[128], bytes[160] = {0};
  int n = snprintf(header, sizeof header, "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", tensor);
  bytes[0] = (char)n;
  memcpy(bytes + 8, header, (size_t)n);
  put(name, bytes, (size_t)n + 9);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (fuzz_folder[0] == '\0') {
    fuzz_folder_make();
    put_shard("a.safetensors", "x");
    put_shard("b.safetensors", "y");
  }
  put("model.safetensors.index.json", data, n_bytes);
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20, .report = fuzz_report};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open(&index, fuzz_folder, &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  if (status == CKPT_OK && ckpt_index_count(index) > 2) abort();
  ckpt_index_free(index);
  return 0;
}
