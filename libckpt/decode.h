/* decode.h - reading the plain bytes behind an extent's decoder chain.
 *
 * A reader belongs to one thread. Raw and swapped extents are random access. Sequential decoders (inflate, zstd,
 * varint) keep one cursor per reader: reading on from where it stands is cheap, reading before it starts the stream
 * anew, so the run gives such an extent to one worker, in order. Output never exceeds what the extent declares: a
 * stream that ends early or goes on is EFORMAT. */
#ifndef CKPT_DECODE_H
#define CKPT_DECODE_H

#include "extent.h"
#include "source.h"

typedef struct ckpt_cursor ckpt_cursor;

typedef struct ckpt_reader {
  ckpt_source *source; /* of the index whose extents are read */
  ckpt_cursor *cursor; /* of the last sequential extent, or NULL */
} ckpt_reader;

/* Whether the extent's bytes come from a sequential decoder. */
bool ckpt_extent_is_sequential(const ckpt_extent *extent);

/* n_bytes of decoded bytes from position `at` into dst. unit_bytes: of one element, what `swapped` turns around. */
ckpt_status ckpt_reader_read(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                             void *dst, size_t n_bytes, ckpt_error *err);

/* Drops the cursor. */
void ckpt_reader_reset(ckpt_reader *reader);

/* Memory that a cursor may hold: windows of the decoders and its input buffer. */
#define CKPT_CURSOR_BYTES (UINT64_C(10) << 20)

#endif
