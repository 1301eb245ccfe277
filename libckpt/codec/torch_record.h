/* torch_record.h - the one tensor record inside a torch.save zip archive, as DCP stores each chunk of a tensor.
 *
 * Records are named <root>/..., where root is what stands before the first slash of the first entry. Exactly one record
 * <root>/data/<key> may be there, and <root>/byteorder says "little" (also meant where it is missing: PyTorch before
 * 2.1) or "big". Nothing is unpickled. */
#ifndef CKPT_CODEC_TORCH_RECORD_H
#define CKPT_CODEC_TORCH_RECORD_H

#include "libckpt/source.h"

/* What a search needs at most of an archive that can only be read forwards. */
#define CKPT_TORCH_HEAD_BYTES (64u << 10)

typedef struct ckpt_torch_record {
  uint64_t offset;    /* of the payload: in the file, or in the archive that was searched forwards */
  uint64_t n_stored;  /* bytes of the payload */
  uint64_t n_bytes;   /* of the record; UINT64_MAX where an archive read forwards says so only behind it */
  bool is_deflated;   /* else stored */
  bool is_big_endian; /* elements are to be swapped */
} ckpt_torch_record;

/* Finds the record by the directory of the archive in [offset, offset + n_bytes) of a file. EFORMAT when there is no
 * record or more than one, and as ckpt_zip_open. */
ckpt_status ckpt_torch_record_find(ckpt_torch_record *out, ckpt_source *source, uint32_t file, uint64_t offset,
                                   uint64_t n_bytes, ckpt_error *err);

/* The same from the first n_bytes of an archive, by its local headers: torch.save writes the small records first.
 * *n_needed is how many first bytes are needed (never any of the payload), 0 when the record is found. path is for
 * messages. */
ckpt_status ckpt_torch_record_scan(ckpt_torch_record *out, size_t *n_needed, const uint8_t *bytes, size_t n_bytes,
                                   const char *path, ckpt_error *err);

/* Bytes of an archive that follow any record. */
#define CKPT_TORCH_TAIL_BYTES 28

/* Whether the CKPT_TORCH_TAIL_BYTES behind a record that was found forwards say that it ended there, with this length:
 * its data descriptor, where it has one, and the next header. */
bool ckpt_torch_record_ends(const uint8_t *bytes, uint64_t n_record);

#endif
