/* write.h - prints the pieces of a zip archive as torch.save makes them (miniz, below caffe2's
 * PyTorchStreamWriter).
 *
 * Records are stored; each begins with a local header whose extra field "FB" fills up to a multiple of 64, so that
 * payloads are aligned relative to the archive's start; sizes and checksum follow the payload (flag bit 3), but for an
 * empty one. Names are UTF-8. The end is always a zip64 one.
 *
 *   local | payload | descriptor | local | payload | descriptor | ... | directory and ends
 *
 * No piece's size depends on a checksum: a layout knows all places before the run, and checksums may come from it. The
 * archive may lie anywhere: everything here is relative to its start, and nothing knows of files. */
#ifndef CKPT_CODEC_ZIP_WRITE_H
#define CKPT_CODEC_ZIP_WRITE_H

#include "libckpt/io/stream.h"

#define CKPT_ZIP_ALIGNMENT 64

typedef struct ckpt_zip_record {
  const char *name; /* with its root, "archive/data.pkl": 1 to 4,096 bytes of UTF-8 */
  uint64_t n_bytes; /* of the payload */
  uint64_t offset;  /* of its local header, from the archive's start; ckpt_zip_place's */
  uint32_t crc32;   /* of the payload; needed by the descriptor and the directory only */
} ckpt_zip_record;

/* Lets the records follow each other from the archive's start, and returns where the directory begins. */
uint64_t ckpt_zip_place(ckpt_zip_record *records, uint32_t n);

/* Where a placed record's payload begins, a multiple of CKPT_ZIP_ALIGNMENT. */
uint64_t ckpt_zip_payload(const ckpt_zip_record *record);

/* The pieces: before a payload; after it (nothing where it is empty); after all records, which begin at `directory`. */
void ckpt_zip_put_local(ckpt_stream *out, const ckpt_zip_record *record);
void ckpt_zip_put_descriptor(ckpt_stream *out, const ckpt_zip_record *record);                           /* as above */
void ckpt_zip_put_end(ckpt_stream *out, const ckpt_zip_record *records, uint32_t n, uint64_t directory); /* as above */

/* A small record with all that belongs to it: local header, payload, descriptor. crc32 has to be that of the bytes. */
void ckpt_zip_put_record(ckpt_stream *out, const ckpt_zip_record *record, const void *payload);

/* CRC-32 of bytes in memory. */
uint32_t ckpt_zip_crc32(const void *bytes, size_t n_bytes);

#endif
