/* fuzz_receipt - any bytes as a receipt that is replayed; `@` in it is the folder that holds in.safetensors and
 * out.safetensors. A receipt may name any path: those that name others have a slash, and are left alone. */
#include "libckpt/recipe/convert/receipt.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

static void count(void *arg, const ckpt_error *problem) {
  if (problem->message[0] == '\0') abort();
  ++*(unsigned *)arg;
}

static void put_model(const char *name) {
  static const char header[] =
      "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
      "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]}} ";
  const uint8_t length[8] = {sizeof header - 1};
  static const float values[] = {1, -2, 3};
  fuzz_append(name, length, sizeof length);
  fuzz_append(name, header, sizeof header - 1);
  fuzz_append(name, values, sizeof values);
}

/* The input as r.json, with the folder for each `@`. */
static void put_receipt(const uint8_t *data, size_t n_bytes) {
  size_t n_folder = strlen(fuzz_folder), n = 0;
  char *text = malloc(n_bytes * (n_folder + 1) + 1);
  if (text == NULL) abort();
  for (size_t i = 0; i < n_bytes; i++) {
    if (data[i] == '@') {
      memcpy(text + n, fuzz_folder, n_folder);
      n += n_folder;
      text[n++] = '/';
    } else {
      text[n++] = (char)data[i];
    }
  }
  fuzz_append("r.json", text, n);
  free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char receipt[256], output[256];
  if (fuzz_folder[0] == '\0') {
    fuzz_folder_make();
    put_model("in.safetensors");
    put_model("out.safetensors");
  }
  if (memmem(data, n_bytes, "/", 1) != NULL || memmem(data, n_bytes, "\\u", 2) != NULL) return 0;
  unlink(fuzz_path(receipt, "r.json"));
  put_receipt(data, n_bytes);
  ckpt_run_options run = {.struct_size = sizeof run, .memory = 8 << 20, .n_threads = 1};
  ckpt_error err = {0};
  unsigned n_problems = 0;
  ckpt_status status =
      ckpt_receipt_replay(receipt, fuzz_path(output, "out.safetensors"), NULL, &run, count, &n_problems, NULL, &err);
  if (status == CKPT_EINTERNAL || status != err.status) abort();
  if (status != CKPT_OK && err.message[0] == '\0') abort();
  return 0;
}
