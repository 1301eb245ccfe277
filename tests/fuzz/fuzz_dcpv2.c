/* fuzz_dcpv2 - any bytes as metadata.pkl beside the files of two ranks, in a folder of its own: open, and hash what
 * opens. The files are those of tests/data/make_dcpv2_errors.py: half of the rows of w (4, 3) each. */
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

static void make_data(void) {
  static const char header[] = "{\"w\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}   ";
  static const uint8_t payload[24];
  const uint8_t length[8] = {sizeof header - 1};
  for (int rank = 0; rank < 2; rank++) {
    const char *name = rank == 0 ? "rank_0/m.safetensors" : "rank_1/m.safetensors";
    fuzz_append(name, length, sizeof length);
    fuzz_append(name, header, sizeof header - 1);
    fuzz_append(name, payload, sizeof payload);
  }
}

static ckpt_status check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (fuzz_folder[0] == '\0') {
    fuzz_folder_make();
    make_data();
  }
  char path[256];
  unlink(fuzz_path(path, "metadata.pkl"));
  fuzz_append("metadata.pkl", data, n_bytes);
  for (int stored_names = 0; stored_names < 2; stored_names++) {
    ckpt_open_options options = {.struct_size = sizeof options,
                                 .max_index_bytes = 64 << 20,
                                 .stored_names = stored_names,
                                 .report = fuzz_report};
    ckpt_run_options run = {.struct_size = sizeof run, .memory = 8 << 20, .n_threads = 1};
    ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all", .run = &run};
    ckpt_index *index;
    ckpt_digest digest;
    ckpt_error err = {0};
    if (check(ckpt_open(&index, fuzz_folder, &options, &err), &err) != CKPT_OK) {
      if (index != NULL) abort();
      continue;
    }
    uint64_t n_all = 0;
    for (size_t i = 0; i < ckpt_index_count(index); i++) n_all += ckpt_index_at(index, i)->n_bytes;
    if (n_all < 1 << 24) check(ckpt_hash(index, &hash, &digest, &err), &err);
    ckpt_index_free(index);
  }
  return 0;
}
