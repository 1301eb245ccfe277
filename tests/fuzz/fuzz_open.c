/* fuzz_open - any folder of up to 16 files: open it, hash it, convert it to a file and to a folder, open those.
 *
 * Input: records of a byte that picks a name (its high bit: the bytes are a safetensors header, which gets its length
 * in front and 64 bytes of payload behind), two bytes of length, low byte first, and that many bytes (or what is left).
 * What opens and hashes has to be written and come back the same; whatever fails has to say why. */
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

enum { MAX_FILES = 16, N_PAYLOAD = 64, N_HIGHEST = 1 << 20 };

static const char *const names[] = {"model.safetensors.index.json",
                                    "model.safetensors",
                                    "model-00001-of-00002.safetensors",
                                    "model-00002-of-00002.safetensors",
                                    "config.json",
                                    "a.safetensors",
                                    "sub/b.safetensors",
                                    "tokenizer.json",
                                    "generation_config.json",
                                    "pytorch_model.bin",
                                    "adapter_config.json",
                                    "checkpoint-5/model.safetensors",
                                    "model-00001-of-00003.safetensors",
                                    "optimizer.pt",
                                    "README.md",
                                    "pytorch_model_fsdp.bin"};

static void unpack(const uint8_t *data, size_t n_bytes) {
  uint8_t payload[N_PAYLOAD];
  for (size_t i = 0; i < N_PAYLOAD; i++) payload[i] = (uint8_t)(i * 37);
  for (int k = 0; k < MAX_FILES && n_bytes >= 3; k++) {
    const char *name = names[data[0] % (sizeof names / sizeof *names)];
    bool is_header = data[0] >= 128;
    size_t n = (size_t)data[1] | (size_t)data[2] << 8;
    data += 3;
    n_bytes -= 3;
    if (n > n_bytes) n = n_bytes;
    uint8_t length[8] = {(uint8_t)n, (uint8_t)(n >> 8)};
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

static ckpt_status hash_path(const char *path, bool stored_names, ckpt_digest *digest) {
  ckpt_open_options options = {
      .struct_size = sizeof options, .max_index_bytes = 64 << 20, .stored_names = stored_names};
  ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "model", .run = &run};
  ckpt_index *index;
  ckpt_error err = {0};
  ckpt_status status = check(ckpt_open(&index, path, &options, &err), &err);
  if ((status == CKPT_OK) != (index != NULL)) abort();
  uint64_t n_bytes = 0;
  for (size_t i = 0; status == CKPT_OK && i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    if (ckpt_index_find(index, tensor->name) != tensor) abort();
    n_bytes += tensor->n_bytes;
  }
  if (n_bytes > N_HIGHEST) abort(); /* more than the files hold */
  if (status == CKPT_OK) status = check(ckpt_hash(index, &hash, digest, &err), &err);
  ckpt_index_free(index);
  return status;
}

/* Converts the folder, and checks that the digest that was printed is the one that whoever opens the output finds; of
 * a folder, which keeps the config and with it names and ties, it is the input's too. */
static void convert(const char *to, bool stored_names, const ckpt_digest *digest) {
  char input[256], output[256];
  ckpt_digest written, found;
  ckpt_convert_options options = {.struct_size = sizeof options,
                                  .input = fuzz_path(input, ""),
                                  .output = fuzz_path(output, to),
                                  .include = "all",
                                  .stored_names = stored_names,
                                  .run = &run,
                                  .digest = &written};
  input[strlen(input) - 1] = '\0';
  snprintf(output, sizeof output, "%s-%s", fuzz_folder, to); /* beside the input */
  ckpt_error err = {0};
  if (check(ckpt_convert(&options, &err), &err) != CKPT_OK) {
    if (access(output, F_OK) == 0) abort();
    return;
  }
  if (hash_path(output, false, &found) != CKPT_OK || memcmp(&found, &written, sizeof found) != 0) abort();
  if (!stored_names && strchr(to, '.') == NULL && memcmp(&found, digest, sizeof found) != 0) abort();
  char removed[64];
  memcpy(removed, fuzz_folder, sizeof removed);
  snprintf(fuzz_folder, sizeof fuzz_folder, "%.*s", (int)sizeof fuzz_folder - 1, output);
  if (strchr(to, '.') == NULL) fuzz_folder_remove();
  memcpy(fuzz_folder, removed, sizeof removed);
  unlink(output);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  fuzz_folder_make();
  fuzz_folder_clear();
  unpack(data, n_bytes);
  for (int stored_names = 0; stored_names < 2; stored_names++) {
    ckpt_digest digest;
    if (hash_path(fuzz_folder, stored_names, &digest) != CKPT_OK) continue;
    convert("out.safetensors", stored_names, &digest);
    convert("out", stored_names, &digest);
  }
  return 0;
}
