/* fuzz_adapter - folders of adapters over a base: open them, merge them, hash and read the merged model.
 *
 * Input: a byte of options, then records of a byte that picks a name (its high bit: the bytes are a safetensors header,
 * which gets its length in front and 64 bytes of floats behind), two bytes of length, low byte first, and that many
 * bytes (or what is left). What opens has to merge and hash or say why not; two orders of adapters give one digest. An
 * adapter that merges has no problem when it is looked at alone. */
#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/adapter/forms.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

enum { MAX_FILES = 8, N_FLOATS = 16 };

static const char *const names[] = {"base/model.safetensors",
                                    "base/config.json",
                                    "a/adapter_model.safetensors",
                                    "a/adapter_config.json",
                                    "b/adapter_model.safetensors",
                                    "b/adapter_config.json",
                                    "a/tokenizer.json",
                                    "b/tokenizer.json"};

static void unpack(const uint8_t *data, size_t n_bytes) {
  float payload[N_FLOATS];
  for (size_t i = 0; i < N_FLOATS; i++) payload[i] = (float)i * 0.25F - 1;
  for (int k = 0; k < MAX_FILES && n_bytes >= 3; k++) {
    const char *name = names[data[0] % (sizeof names / sizeof *names)];
    const bool is_header = data[0] >= 128;
    size_t n = (size_t)data[1] | (size_t)data[2] << 8;
    data += 3;
    n_bytes -= 3;
    if (n > n_bytes) n = n_bytes;
    const uint8_t length[8] = {(uint8_t)n, (uint8_t)(n >> 8)};
    if (is_header) fuzz_append(name, length, sizeof length);
    fuzz_append(name, data, n);
    if (is_header) fuzz_append(name, payload, sizeof payload);
    data += n;
    n_bytes -= n;
  }
}

/* A failure without its status, or our own bug. */
static ckpt_status check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  if (status != CKPT_OK && err->message[0] == '\0') abort();
  return status;
}

static const ckpt_run_options run = {.struct_size = sizeof run, .memory = 8 << 20, .n_threads = 2};

/* Opens, merges and hashes; false where that is refused. */
static bool merge(const ckpt_index *base, const ckpt_adapter_request *requests, uint32_t n,
                  const ckpt_adapter_options *options, ckpt_digest *digest) {
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "model", .run = &run};
  ckpt_adapters *adapters = NULL;
  ckpt_adapter_info info;
  ckpt_adapter_effect effect;
  ckpt_index *merged = NULL;
  ckpt_error err = {0};
  ckpt_status status = check(ckpt_adapters_open(&adapters, base, requests, n, options, &err), &err);
  for (size_t i = 0; status == CKPT_OK && ckpt_adapters_effect(adapters, i, &effect); i++)
    if (!ckpt_adapters_at(adapters, effect.adapter, &info) || effect.name[0] == '\0') abort();
  if (status == CKPT_OK) status = check(ckpt_adapters_merge(&merged, adapters, &err), &err);
  if (status == CKPT_OK) status = check(ckpt_hash(merged, &hash, digest, &err), &err);
  ckpt_index_free(merged);
  ckpt_adapters_free(adapters);
  return status == CKPT_OK;
}

/* Looks at an adapter alone. What a merge takes whole has no problem. */
static void look_at(const char *path, bool is_merged) {
  const ckpt_open_options open = {.struct_size = sizeof open, .max_index_bytes = 64 << 20, .stored_names = true};
  ckpt_index *adapter;
  ckpt_findings findings = {0};
  ckpt_error err = {0};
  if (check(ckpt_open(&adapter, path, &open, &err), &err) != CKPT_OK) return;
  if (ckpt_adapter_kind_of(adapter) == CKPT_ADAPTER_PEFT &&
      check(ckpt_adapter_verify(&findings, adapter, &err), &err) == CKPT_OK && is_merged &&
      findings.n_of[CKPT_PROBLEM] != 0)
    abort();
  ckpt_findings_free(&findings);
  ckpt_index_free(adapter);
}

static void try_all(const ckpt_adapter_options *options, double scale) {
  char base_path[256], a_path[256], b_path[256];
  const ckpt_open_options open = {.struct_size = sizeof open, .max_index_bytes = 64 << 20};
  const ckpt_adapter_request both[] = {{fuzz_path(a_path, "a"), scale}, {fuzz_path(b_path, "b"), 1}},
                             swapped[] = {both[1], both[0]};
  ckpt_index *base;
  ckpt_error err = {0};
  ckpt_digest one, other;
  if (check(ckpt_open(&base, fuzz_path(base_path, "base"), &open, &err), &err) != CKPT_OK) return;
  look_at(a_path, merge(base, both, 1, options, &one) && !options->allow_partial);
  const bool is_merged = merge(base, both, 2, options, &one);
  if (is_merged != merge(base, swapped, 2, options, &other)) abort();
  if (is_merged && memcmp(&one, &other, sizeof one) != 0) abort();
  ckpt_index_free(base);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (n_bytes < 4) return 0;
  static const char *const tied[] = {"keep", "untie", "error"};
  const ckpt_adapter_options options = {
      .tied = tied[data[0] % 3], .allow_noop = (data[0] & 4) != 0, .allow_partial = (data[0] & 8) != 0};
  fuzz_folder_make();
  unpack(data + 1, n_bytes - 1);
  try_all(&options, (data[0] & 16) != 0 ? -0.5 : 1);
  fuzz_folder_clear();
  return 0;
}
