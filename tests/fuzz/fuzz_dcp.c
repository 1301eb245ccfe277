/* fuzz_dcp - any bytes as .metadata beside data files that hold chunks, in a folder of its own: open, and hash what
 * opens.
 *
 * The data files, as tests/data/dcp/fsdp4 has them, are made of one archive again and again, so that slices lead
 * somewhere. */
#include "libckpt/format/format.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/fuzz_folder.h"

enum { N_RANKS = 4, N_ARCHIVES = 24 };

/* An archive of 1,577 bytes: what torch.save makes of small tensors has this size. */
static const char pickle[] =
    "\x80\x02"
    "ctorch._utils\n_rebuild_tensor_v2\n(P0\nK\x00K\x03\x85K\x01\x85\x89}tR.";

static size_t put(uint8_t *out, uint32_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; i++) out[i] = i < 4 ? (uint8_t)(value >> 8 * i) : 0;
  return (size_t)n_bytes;
}

/* Appends a header and returns the bytes written: local (with the payload behind it) or of the directory. */
static size_t put_header(uint8_t *out, const char *name, uint32_t n_payload, uint32_t at, int is_central) {
  size_t n = 0;
  n += put(out, is_central ? 0x02014b50 : 0x04034b50, 4);
  if (is_central) n += put(out + n, 0, 2);
  n += put(out + n, 0, 2), n += put(out + n, 0, 4), n += put(out + n, 0, 4), n += put(out + n, 0, 4);
  n += put(out + n, n_payload, 4), n += put(out + n, n_payload, 4);
  n += put(out + n, (uint32_t)strlen(name), 2), n += put(out + n, 0, 2);
  if (is_central) n += put(out + n, 0, 10), n += put(out + n, at, 4);
  memcpy(out + n, name, strlen(name));
  return n + strlen(name);
}

static size_t make_archive(uint8_t *out, uint32_t n_bytes) {
  static const uint8_t zeros[1024];
  static const char *const names[] = {"archive/data.pkl", "archive/data/0", "archive/version"};
  uint32_t n_directory = 0, n_fixed = 22, at[3];
  for (int i = 0; i < 3; i++) n_fixed += 30 + 46 + 2 * (uint32_t)strlen(names[i]);
  const uint32_t sizes[3] = {sizeof pickle - 1, 12, n_bytes - n_fixed - (uint32_t)(sizeof pickle - 1) - 12};
  size_t n = 0;
  for (int i = 0; i < 3; i++) {
    at[i] = (uint32_t)n;
    n += put_header(out + n, names[i], sizes[i], 0, 0);
    memcpy(out + n, i == 0 ? (const void *)pickle : zeros, i == 2 && sizes[i] > sizeof zeros ? 0 : sizes[i]);
    n += sizes[i];
  }
  uint32_t start = (uint32_t)n;
  for (int i = 0; i < 3; i++) n += put_header(out + n, names[i], sizes[i], at[i], 1);
  n_directory = (uint32_t)n - start;
  n += put(out + n, 0x06054b50, 4), n += put(out + n, 0, 4), n += put(out + n, 3, 2), n += put(out + n, 3, 2);
  n += put(out + n, n_directory, 4), n += put(out + n, start, 4), n += put(out + n, 0, 2);
  return n;
}

static void make_data(void) {
  static uint8_t archive[4096];
  size_t n = make_archive(archive, 1577);
  if (n != 1577) abort();
  for (int rank = 0; rank < N_RANKS; rank++) {
    char name[32];
    snprintf(name, sizeof name, "__%d_0.distcp", rank);
    for (int i = 0; i < N_ARCHIVES; i++) fuzz_append(name, archive, n);
  }
}

static ckpt_status check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  if (status != CKPT_OK && err->message[0] == '\0') abort();
  return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  if (fuzz_folder[0] == '\0') {
    fuzz_folder_make();
    make_data();
  }
  char path[256];
  unlink(fuzz_path(path, ".metadata"));
  fuzz_append(".metadata", data, n_bytes);
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
