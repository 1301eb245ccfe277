/* fuzz_manifest - any bytes as a manifest of `ckpt hash -o`. What is read is written again, and reads the same. */
#include "libckpt/recipe/records/manifest.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

static ckpt_manifest *read_it(const char *path) {
  ckpt_manifest *manifest = NULL;
  ckpt_error err = {0};
  ckpt_status status = ckpt_manifest_read(&manifest, path, &err);
  if (status == CKPT_EINTERNAL || status != err.status) abort();
  if (status != CKPT_OK && err.message[0] == '\0') abort();
  return status == CKPT_OK ? manifest : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[256], again[256];
  ckpt_error err = {0};
  fuzz_folder_make();
  fuzz_folder_clear();
  fuzz_append("m.json", data, n_bytes);
  ckpt_manifest *manifest = read_it(fuzz_path(path, "m.json"));
  if (manifest == NULL) return 0;
  if (ckpt_manifest_write(manifest, fuzz_path(again, "again.json"), false, &err) != CKPT_OK) abort();
  ckpt_manifest *second = read_it(again);
  if (second == NULL || second->n != manifest->n || second->cast != manifest->cast) abort();
  if (memcmp(&second->digest, &manifest->digest, sizeof second->digest) != 0) abort();
  for (size_t i = 0; i < manifest->n; i++) {
    const ckpt_manifest_entry *a = &manifest->entries[i], *b = &second->entries[i];
    if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || a->rank != b->rank) abort();
    if (a->rank != 0 && memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) != 0) abort();
    if (memcmp(&a->digest, &b->digest, sizeof a->digest) != 0) abort();
    const ckpt_manifest_entry *found = ckpt_manifest_find(manifest, a->name);
    if (found == NULL || strcmp(found->name, a->name) != 0) abort();
  }
  ckpt_manifest_free(manifest);
  ckpt_manifest_free(second);
  return 0;
}
