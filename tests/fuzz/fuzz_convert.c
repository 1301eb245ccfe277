/* fuzz_convert - whatever opens, converted to every format that can be written, and read again.
 *
 * Input: a byte of options (bits 0 to 1 the output's format, 2 stored names, 3 zstd, 4 to 5 ranks less one, 6 training
 * state too), then records as fuzz_open has them: a byte that picks a name, two bytes of length, low byte first, and
 * that many bytes. A first record that is a file's by itself is the input, else the folder is. What is written opens,
 * has the digest that was printed, and is what it is: converted again it has that digest still; which is the input's
 * where as many tensors are the model's: a name alone ("rng_state") may tell a role that the input did not. */
#include "libckpt/base/error.h"
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

enum { MAX_FILES = 16, N_HIGHEST = 1 << 20, N_FILE_NAMES = 2 };
enum { FORMAT = 3, STORED_NAMES = 4, ZSTD = 8, RANKS_AT = 4, TRAINING_STATE = 64 }; /* in the byte of options */

static const char *const names[] = {"in/in.pt",
                                    "in/in.safetensors",
                                    "in/.metadata",
                                    "in/__0_0.distcp",
                                    "in/__1_0.distcp",
                                    "in/__2_0.distcp",
                                    "in/__3_0.distcp",
                                    "in/__0.metadata",
                                    "in/__1.metadata",
                                    "in/__2.metadata",
                                    "in/model.safetensors",
                                    "in/config.json",
                                    "in/pytorch_model.bin"};

static const struct target {
  const char *to, *output, *again; /* beside the input */
} targets[] = {{"safetensors", "out.safetensors", "again.safetensors"},
               {"torch", "out.pt", "again.pt"},
               {"dcp", "out-dcp", "again-dcp"},
               {"hf", "out-hf", "again-hf"}};

static ckpt_status check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  if (status != CKPT_OK && err->message[0] == '\0') abort();
  return status;
}

static const ckpt_run_options run = {.struct_size = sizeof run, .memory = 24 << 20, .n_threads = 2};

/* The digest of the model that a path holds, and of how many tensors it is. ELIMIT: views make more of it than is worth
 * reading.
 */
static ckpt_status hash_path(const char *path, bool stored_names, ckpt_digest *digest, size_t *n_model) {
  ckpt_open_options options = {
      .struct_size = sizeof options, .max_index_bytes = 64 << 20, .stored_names = stored_names};
  ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "model", .run = &run};
  ckpt_index *index;
  ckpt_error err = {0};
  uint64_t n_bytes = 0;
  CKPT_TRY(check(ckpt_open(&index, path, &options, &err), &err));
  *n_model = 0;
  for (size_t i = 0; i < ckpt_index_count(index) && n_bytes <= N_HIGHEST; i++) {
    n_bytes += ckpt_index_at(index, i)->n_bytes;
    *n_model += ckpt_index_at(index, i)->role <= CKPT_ROLE_BUFFER;
  }
  ckpt_status status = n_bytes > N_HIGHEST ? CKPT_ELIMIT : check(ckpt_hash(index, &hash, digest, &err), &err);
  ckpt_index_free(index);
  return status;
}

/* Converts, and looks at what is there then. */
static ckpt_status convert(const char *input, const char *output, const struct target *target, uint8_t bits,
                           ckpt_digest *written, size_t *n_model) {
  ckpt_digest found;
  ckpt_format_value level = {.name = "zstd_level"};
  ckpt_convert_options options = {.struct_size = sizeof options,
                                  .input = input,
                                  .output = output,
                                  .to = target->to,
                                  .include = (bits & TRAINING_STATE) != 0 ? "all" : NULL,
                                  .stored_names = (bits & STORED_NAMES) != 0,
                                  .run = &run,
                                  .digest = written,
                                  .values = &level,
                                  .n_values = 1};
  if (strcmp(target->to, "dcp") == 0) {
    options.world = 1 + (bits >> RANKS_AT & 3);
    level.value = (bits & ZSTD) != 0;
  }
  ckpt_error err = {0};
  ckpt_status status = check(ckpt_convert(&options, &err), &err);
  if ((access(output, F_OK) == 0) != (status == CKPT_OK)) abort();
  if (status != CKPT_OK) return status;
  if (hash_path(output, false, &found, n_model) != CKPT_OK || memcmp(&found, written, sizeof found) != 0) abort();
  return CKPT_OK;
}

/* Writes the records; what is the input: a file, or the folder that they lie in. */
static const char *unpack(const uint8_t *data, size_t n_bytes) {
  const char *input = "in";
  for (int k = 0; k < MAX_FILES && n_bytes >= 3; k++) {
    size_t number = data[0] % (sizeof names / sizeof *names), n = (size_t)data[1] | (size_t)data[2] << 8;
    data += 3;
    n_bytes -= 3;
    if (n > n_bytes) n = n_bytes;
    if (k == 0 && number < N_FILE_NAMES) input = names[number];
    fuzz_append(names[number], data, n);
    data += n;
    n_bytes -= n;
  }
  return input;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char path[256], output[256], again[256];
  ckpt_digest digest, written, rewritten;
  size_t n_model, n_written, n_rewritten;
  if (n_bytes == 0) return 0;
  fuzz_folder_make();
  fuzz_folder_clear();
  fuzz_path(path, unpack(data + 1, n_bytes - 1));
  const struct target *target = &targets[data[0] & FORMAT];
  fuzz_path(output, target->output);
  fuzz_path(again, target->again);
  if (hash_path(path, (data[0] & STORED_NAMES) != 0, &digest, &n_model) != CKPT_OK) return 0;
  if (convert(path, output, target, data[0], &written, &n_written) != CKPT_OK) return 0;
  if (convert(output, again, target, data[0] & (uint8_t)~STORED_NAMES, &rewritten, &n_rewritten) != CKPT_OK) abort();
  if (memcmp(&written, &rewritten, sizeof written) != 0) abort();
  if ((data[0] & (STORED_NAMES | TRAINING_STATE)) == 0 && n_model == n_written &&
      memcmp(&digest, &written, sizeof written) != 0)
    abort();
  return 0;
}
