/* extent.h - where the bytes of a tensor are.
 *
 * An extent is a stored range of one file, the decoders between it and plain bytes, and the part of the tensor that it
 * holds: a flat range of row-major elements, or a box. A box that is not stored row-major has strides: a view, a
 * transposed shard, an expanded axis (stride 0). A whole file, a shard, a DCP box, a ZeRO partition and padding are all
 * extents. Counts are in units: blocks of the dtype, which for most dtypes are elements. The last axis is divided by
 * the block (dtype.h), so a box never cuts a block. */
#ifndef CKPT_INDEX_EXTENT_H
#define CKPT_INDEX_EXTENT_H

#include "libckpt/ckpt.h"

#define CKPT_FILE_LITERAL UINT32_MAX /* a literal, mostly of zeros: no file is read */

/* A chain of at most two decoders, inner one first: what turns the stored range into plain bytes. */
typedef enum ckpt_decoder {
  CKPT_DECODE_RAW,     /* the stored bytes themselves: random access */
  CKPT_DECODE_SWAPPED, /* big-endian elements: random access */
  CKPT_DECODE_RECORD,  /* an archive inside the slice; its one tensor record is found on first touch */
  CKPT_DECODE_INFLATE, /* raw deflate: sequential */
  CKPT_DECODE_ZSTD,    /* sequential */
  CKPT_DECODE_VARINT,  /* packed base-128 integers, protobuf's: sequential */
  CKPT_N_DECODERS
} ckpt_decoder;

/* Conjugates and negatives of what is stored. Numbers are counted from the decoded range's first byte, so that in
 * complex dtypes the odd ones are imaginary parts. */
typedef enum ckpt_extent_signs { CKPT_SIGNS_EVEN = 1, CKPT_SIGNS_ODD = 2 } ckpt_extent_signs;

typedef enum ckpt_extent_form {
  CKPT_EXTENT_FLAT,
  CKPT_EXTENT_BOX,
  CKPT_EXTENT_STRIDED,
  CKPT_EXTENT_BROKEN /* while an index is built: of a tensor that it will drop */
} ckpt_extent_form;

struct ckpt_extent {
  uint64_t offset;   /* of the stored range in its file, bytes; of a literal its 8 bytes, little-endian, repeated */
  uint64_t n_stored; /* bytes of the stored range */
  uint64_t skip;     /* decoded bytes before the extent's first unit */
  uint32_t file;     /* number in the index's source, or CKPT_FILE_LITERAL */
  uint8_t chain[2];  /* ckpt_decoder; RAW ends it */
  uint8_t signs;     /* that are turned once it is decoded: ckpt_extent_signs */
  uint8_t pad;       /* zero */
  union {
    struct {
      uint64_t start, count; /* FLAT: units [start, start + count) of the row-major tensor */
    };
    const uint64_t *box; /* BOX: rank starts, rank counts (units). STRIDED: and rank strides (units, not negative) */
  };
};

#endif
