/* decode.h - reads the plain bytes behind an extent's decoder chain.
 *
 * A reader belongs to one thread. Raw and swapped extents are random access, and so is the record of an archive, which
 * is looked up once. Sequential decoders (inflate, zstd, varint) keep a cursor per extent. Reading on from its place is
 * cheap, and reading before it starts the stream anew. So the run gives such an extent to one worker, in order. A
 * reader keeps a cursor for each extent while they fit max_bytes: the least recently used goes first. Output never
 * exceeds what the extent declares: a stream that ends early or goes on is EFORMAT. */
#ifndef CKPT_EXTENTS_DECODE_H
#define CKPT_EXTENTS_DECODE_H

#include "libckpt/extents/decoder.h"

typedef struct ckpt_cursor ckpt_cursor;
typedef struct ckpt_found_record ckpt_found_record;
struct ckpt_record_checks;

typedef struct ckpt_reader {
  ckpt_source *source;    /* of the index whose extents are read */
  uint64_t n_expected;    /* decoded bytes that the next extent's record must have; 0: any */
  ckpt_dtype dtype;       /* that it must have; NONE: any */
  const uint64_t *counts; /* its shape: the next extent's box, of `rank` axes in units; NULL: any */
  uint32_t rank;
  bool is_strided;                   /* extents have strides: those of their records, which need not be row-major */
  uint64_t max_bytes;                /* that cursors may hold together; one is kept in any case */
  ckpt_cursor *cursors;              /* most recently used first */
  ckpt_found_record *records;        /* of archives looked up, or NULL */
  struct ckpt_record_checks *checks; /* of what is read (record_checks.h), or NULL */
} ckpt_reader;

/* Whether the extent's bytes come from a sequential decoder. */
bool ckpt_extent_is_sequential(const ckpt_extent *extent);

/* n_bytes of decoded bytes from position `at` into dst. unit_bytes: of one element, what `swapped` turns around. */
ckpt_status ckpt_reader_read(ckpt_reader *reader, const ckpt_extent *extent, uint32_t unit_bytes, uint64_t at,
                             void *dst, size_t n_bytes, ckpt_error *err);

/* The same as it is stored: nothing is turned around. */
ckpt_status ckpt_reader_read_content(ckpt_reader *reader, const ckpt_extent *extent, uint64_t at, void *dst,
                                     size_t n_bytes, ckpt_error *err);

/* How the tensor lies in the archive behind an extent's sequential decoder: a few KiB of it are decoded. As `scan` of
 * the record's decoder. */
ckpt_status ckpt_decode_layout(ckpt_record_layout *out, ckpt_source *source, const ckpt_extent *extent,
                               ckpt_error *err);

/* All that the zstd stream in an extent's stored range decodes to, at most max_bytes of it (ELIMIT beyond): free(*out),
 * NULL for none. For what is small and looked at as a whole. */
ckpt_status ckpt_decode_zstd(uint8_t **out, size_t *n_bytes, ckpt_source *source, const ckpt_extent *extent,
                             size_t max_bytes, ckpt_error *err);

/* Drops what the reader keeps. */
void ckpt_reader_reset(ckpt_reader *reader);

/* Memory that a cursor may hold: windows of the decoders and its input buffer. */
#define CKPT_CURSOR_BYTES (UINT64_C(10) << 20)

#endif
