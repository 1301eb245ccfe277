/* fuzz_zero - three pickles as the model file and two optimizer files of a ZeRO checkpoint, in a folder of its own:
 * open, and hash what opens.
 *
 *   u8 of options | u16 length, pickle of the model | u16 length, pickle of rank 0 | u16 length, pickle of rank 1
 *                 | u16 length, pickle of a part | u16 length, pickle of another
 *
 * Options, modulo 7: files have the names of 0: stages 1 and 2; 1: stage 3, where the model's is that of both ranks; 2,
 * 3: two tensor-parallel ranks, which have the same model file; 4: those of 0, with two experts beside; 5: with two
 * layers of a pipeline; 6: two experts without ZeRO. Each archive has eight storages of 16 bytes. */
#include "libckpt/codec/zip/write.h"
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

enum { N_STORAGES = 8, STORAGE_BYTES = 16, N_RECORDS = N_STORAGES + 1 };

static ckpt_status put(void *name, const void *bytes, size_t n_bytes, ckpt_error *err) {
  (void)err;
  fuzz_append(name, bytes, n_bytes);
  return CKPT_OK;
}

static void make_archive(char *name, const uint8_t *pickle, size_t n_pickle) {
  static const uint8_t storage[STORAGE_BYTES] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40};
  char names[N_RECORDS][24], path[256], window[4096];
  ckpt_zip_record records[N_RECORDS];
  ckpt_stream out;
  snprintf(names[0], sizeof names[0], "archive/data.pkl");
  records[0] = (ckpt_zip_record){names[0], n_pickle, 0, ckpt_zip_crc32(pickle, n_pickle)};
  for (int i = 1; i < N_RECORDS; i++) {
    snprintf(names[i], sizeof names[i], "archive/data/%d", i - 1);
    records[i] = (ckpt_zip_record){names[i], STORAGE_BYTES, 0, ckpt_zip_crc32(storage, STORAGE_BYTES)};
  }
  unlink(fuzz_path(path, name));
  uint64_t directory = ckpt_zip_place(records, N_RECORDS);
  ckpt_stream_function(&out, put, name, window, sizeof window, NULL);
  ckpt_zip_put_record(&out, &records[0], pickle);
  for (int i = 1; i < N_RECORDS; i++) ckpt_zip_put_record(&out, &records[i], storage);
  ckpt_zip_put_end(&out, records, N_RECORDS, directory);
  if (ckpt_stream_end(&out) != CKPT_OK) abort();
}

static ckpt_status check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  if (status != CKPT_OK && err->message[0] == '\0') abort();
  return status;
}

static void open_all(void) {
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20};
  ckpt_run_options run = {.struct_size = sizeof run, .memory = 8 << 20, .n_threads = 1};
  ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all", .run = &run};
  ckpt_index *index;
  ckpt_digest digest;
  ckpt_error err = {0};
  if (check(ckpt_open(&index, fuzz_folder, &options, &err), &err) != CKPT_OK) {
    if (index != NULL) abort();
    return;
  }
  uint64_t n_all = 0;
  for (size_t i = 0; i < ckpt_index_count(index); i++) n_all += ckpt_index_at(index, i)->n_bytes;
  if (n_all < 1 << 24) check(ckpt_hash(index, &hash, &digest, &err), &err);
  ckpt_index_free(index);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  /* Of the pickles, a further one of the first, and of those of parts. */
  static char names[7][6][48] = {
      {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_1_mp_rank_00_optim_states.pt"},
      {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_1_mp_rank_00_optim_states.pt", "zero_pp_rank_1_mp_rank_00_model_states.pt"},
      {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_0_mp_rank_01_optim_states.pt", "mp_rank_01_model_states.pt"},
      {"zero_pp_rank_0_mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_0_mp_rank_01_optim_states.pt", "zero_pp_rank_0_mp_rank_01_model_states.pt"},
      {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_1_mp_rank_00_optim_states.pt", "", "layer_0_expert_0_mp_rank_00_model_states.pt",
       "layer_0_expert_1_mp_rank_00_model_states.pt"},
      {"mp_rank_00_model_states.pt", "zero_pp_rank_0_mp_rank_00_optim_states.pt",
       "zero_pp_rank_1_mp_rank_00_optim_states.pt", "", "layer_00-model_states.pt", "layer_01-model_states.pt"},
      {"mp_rank_00_model_states.pt", "expp_rank_0_mp_rank_00_optim_states.pt", "expp_rank_1_mp_rank_00_optim_states.pt",
       "", "layer_0_expert_0_mp_rank_00_model_states.pt", "layer_0_expert_1_mp_rank_00_model_states.pt"}};
  if (n_bytes == 0) return 0;
  const int kind = data[0] % 7;
  fuzz_folder_make();
  fuzz_folder_clear();
  size_t at = 1;
  for (int i = 0; i < 6; i++) {
    if (i == 3 || names[kind][i][0] == '\0') continue;
    size_t n = n_bytes - at < 2 ? 0 : data[at] | (size_t)data[at + 1] << 8;
    at += n_bytes - at < 2 ? n_bytes - at : 2;
    if (n > n_bytes - at) n = n_bytes - at;
    make_archive(names[kind][i], data + at, n);
    if (i == 0 && names[kind][3][0] != '\0') make_archive(names[kind][3], data + at, n);
    at += n;
  }
  open_all();
  return 0;
}
