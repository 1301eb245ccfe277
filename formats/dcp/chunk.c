/* chunk.c - the archive around one chunk: what torch.save writes of one contiguous tensor on the CPU.
 *
 *   archive/data.pkl   the call that rebuilds the tensor
 *   archive/byteorder  "little"
 *   archive/data/0     the bytes
 *   archive/version    "3"
 *
 * The records that newer releases add (.format_version, .storage_alignment, .data/serialization_id) say how to find
 * others without looking; torch.load asks for none of them. Only the bytes' checksum is not known before the run. */
#include "formats/dcp/write.h"
#include "libckpt/base/dtype.h"
#include "libckpt/codec/pickle/write.h"
#include "libckpt/codec/torch/write/write.h"
#include "libckpt/codec/zip/write.h"

enum { RECORD_PICKLE, RECORD_BYTEORDER, RECORD_DATA, RECORD_VERSION, N_RECORDS };

static const char byteorder[] = "little", version[] = "3\n";

typedef struct archive {
  ckpt_zip_record records[N_RECORDS];
  uint64_t directory;
} archive;

static const ckpt_segment *segment_of(const ckpt_layout *layout, const ckpt_dcp_chunk *chunk) {
  return &layout->files[chunk->file].segments[chunk->segment];
}

uint32_t ckpt_dcp_box(const ckpt_layout *layout, const ckpt_dcp_chunk *chunk, uint64_t starts[CKPT_MAX_RANK],
                      uint64_t counts[CKPT_MAX_RANK]) {
  const ckpt_tensor *tensor = &layout->index->tensors[chunk->tensor];
  const uint64_t *box = segment_of(layout, chunk)->box;
  if (tensor->rank == 0) return 0;
  (void)ckpt_tensor_units(tensor, counts);
  for (uint32_t i = 0; i < tensor->rank; i++) {
    if (starts != NULL) starts[i] = box == NULL ? 0 : box[i];
    if (box != NULL) counts[i] = box[tensor->rank + i];
  }
  return tensor->rank;
}

/* The tensor of a chunk. Returns its bytes. */
static uint64_t print_pickle(const ckpt_layout *layout, const ckpt_dcp_chunk *chunk, ckpt_stream *out) {
  const ckpt_tensor *tensor = &layout->index->tensors[chunk->tensor];
  const ckpt_dtype_row *dtype = ckpt_dtype_get(tensor->dtype);
  uint64_t shape[CKPT_MAX_RANK], n_units = 1;
  uint32_t rank = ckpt_dcp_box(layout, chunk, NULL, shape);
  for (uint32_t i = 0; i < rank; i++) n_units *= shape[i];
  if (rank != 0) shape[rank - 1] *= dtype->block_elements;
  ckpt_torch_memo memo = {0};
  ckpt_pickle_writer w = ckpt_pickle_start(out);
  ckpt_torch_put_tensor(&memo, &w, (ckpt_dtype)tensor->dtype, rank, shape, "0", NULL, false, CKPT_GRAD_NO, false);
  ckpt_pickle_stop(&w);
  return n_units * dtype->block_bytes;
}

static void make_archive(archive *out, const ckpt_layout *layout, const ckpt_dcp_chunk *chunk) {
  ckpt_stream pickle;
  ckpt_stream_checksum(&pickle, NULL);
  uint64_t n_bytes = print_pickle(layout, chunk, &pickle);
  *out = (archive){.records = {
                       {"archive/data.pkl", pickle.n_bytes, 0, pickle.crc32},
                       {"archive/byteorder", sizeof byteorder - 1, 0, ckpt_zip_crc32(byteorder, sizeof byteorder - 1)},
                       {"archive/data/0", n_bytes, 0, segment_of(layout, chunk)->crc32},
                       {"archive/version", sizeof version - 1, 0, ckpt_zip_crc32(version, sizeof version - 1)},
                   }};
  out->directory = ckpt_zip_place(out->records, N_RECORDS);
}

void ckpt_dcp_print_head(const ckpt_layout *layout, const void *chunk, ckpt_stream *out) {
  archive a;
  make_archive(&a, layout, chunk);
  ckpt_zip_put_local(out, &a.records[RECORD_PICKLE]);
  (void)print_pickle(layout, chunk, out);
  ckpt_zip_put_descriptor(out, &a.records[RECORD_PICKLE]);
  ckpt_zip_put_record(out, &a.records[RECORD_BYTEORDER], byteorder);
  ckpt_zip_put_local(out, &a.records[RECORD_DATA]);
}

void ckpt_dcp_print_tail(const ckpt_layout *layout, const void *chunk, ckpt_stream *out) {
  archive a;
  make_archive(&a, layout, chunk);
  ckpt_zip_put_descriptor(out, &a.records[RECORD_DATA]);
  ckpt_zip_put_record(out, &a.records[RECORD_VERSION], version);
  ckpt_zip_put_end(out, a.records, N_RECORDS, a.directory);
}
