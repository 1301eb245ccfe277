/* record.h - the one tensor record inside a torch.save zip archive, as DCP stores each chunk of a tensor.
 *
 * Records are named <root>/..., where root is the first entry's name up to its first slash. There is exactly one record
 * <root>/data/<key>. <root>/byteorder says "little" or "big"; without it (PyTorch before 2.1) the order is little.
 * <root>/data.pkl gives the tensor's strides in its record, since torch.save keeps them. */
#ifndef CKPT_CODEC_TORCH_READ_RECORD_H
#define CKPT_CODEC_TORCH_READ_RECORD_H

#include "libckpt/io/source.h"

/* What a search needs at most of an archive that can only be read forwards. */
#define CKPT_TORCH_HEAD_BYTES (64u << 10)

typedef struct ckpt_torch_record {
  uint64_t offset;                /* of the payload: in the file, or in the archive that was searched forwards */
  uint64_t n_stored;              /* bytes of the payload */
  uint64_t n_bytes;               /* of the record; UINT64_MAX where an archive read forwards says so only behind it */
  bool is_deflated;               /* else stored */
  bool is_big_endian;             /* elements are to be swapped */
  ckpt_dtype dtype;               /* as its pickle says; NONE: it does not */
  bool is_conjugate, is_negative; /* of what is stored */
} ckpt_torch_record;

/* How a tensor lies in its record, in elements. */
typedef struct ckpt_torch_layout {
  ckpt_dtype dtype;               /* NONE: not said */
  bool is_conjugate, is_negative; /* of what is stored: floating, and complex where it is a conjugate */
  uint32_t rank;
  uint64_t start, sizes[CKPT_MAX_RANK], strides[CKPT_MAX_RANK];
} ckpt_torch_layout;

/* Finds the record through the directory of the archive in [offset, offset + n_bytes) of a file; *layout receives the
 * tensor's layout in it. EFORMAT if there is no record or more than one, and as ckpt_zip_open. EUNSUPPORTED if it is
 * not a plain tensor, or if loading it would call anything else. */
ckpt_status ckpt_torch_record_layout(ckpt_torch_record *out, ckpt_torch_layout *layout, ckpt_source *source,
                                     uint32_t file, uint64_t offset, uint64_t n_bytes, ckpt_error *err);

/* As ckpt_torch_record_layout from the first n_bytes of an archive, by its local headers: torch.save writes the small
 * records first. *n_needed is how many first bytes are needed (never any of the payload), 0 when the record is found.
 * path is for messages. */
ckpt_status ckpt_torch_record_scan(ckpt_torch_record *out, ckpt_torch_layout *layout, size_t *n_needed,
                                   const uint8_t *bytes, size_t n_bytes, const char *path, ckpt_error *err);

/* EUNSUPPORTED where a tensor does not lie row-major from the beginning of its record. */
ckpt_status ckpt_torch_check_row_major(const ckpt_torch_layout *layout, const char *path, ckpt_error *err);

/* Bytes of an archive that follow any record. */
#define CKPT_TORCH_TAIL_BYTES 28

/* Whether the CKPT_TORCH_TAIL_BYTES behind a record that was found forwards say that it ended there, with this length:
 * its data descriptor, where it has one, and the next header. */
bool ckpt_torch_record_ends(const uint8_t *bytes, uint64_t n_record);

#endif
