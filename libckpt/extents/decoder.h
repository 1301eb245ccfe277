/* decoder.h - what a row of the table of decoders provides.
 *
 * A decoder is a stream, whose plain bytes come out in order, or it finds the one record of an archive. Raw and swapped
 * bytes need no row. formats/registry.c defines the table (list: formats/decoders.def), so that what an archive looks
 * like is the business of the room that knows it. */
#ifndef CKPT_EXTENTS_DECODER_H
#define CKPT_EXTENTS_DECODER_H

#include "libckpt/index/extent.h"
#include "libckpt/io/source.h"

/* Of zstd frames that are decoded: windows of at most 8 MiB, as level 19 writes them. */
#define CKPT_ZSTD_WINDOW_LOG 23

/* Stored bytes that a stream takes next: [n_used, n) of `bytes`. */
typedef struct ckpt_stream_input {
  const uint8_t *bytes;
  size_t n, n_used;
  bool is_last; /* nothing is stored behind them */
} ckpt_stream_input;

typedef struct ckpt_stream_decoder {
  size_t n_least;          /* bytes of input that a step wants, where as many are left */
  uint32_t max_unit_bytes; /* of elements that it can hold; 0: any */
  ckpt_status (*open)(void **state, ckpt_error *err);
  /* Makes up to n_bytes of plain bytes; *n_made says how many. Returns what is wrong with the stream, or NULL. */
  const char *(*step)(void *state, ckpt_stream_input *input, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes,
                      size_t *n_made);
  /* Memory that the state holds, and what more it will take for a stream that begins with these bytes. */
  uint64_t (*held)(const void *state);
  uint64_t (*announced)(const uint8_t *head, size_t n_head); /* as above; NULL: nothing */
  void (*close)(void *state);
} ckpt_stream_decoder;

/* The one record of an archive. */
typedef struct ckpt_record {
  uint64_t offset;      /* of the payload: in the file, or in the archive that was searched forwards */
  uint64_t n_stored;    /* bytes of the payload */
  uint64_t n_bytes;     /* of the record; UINT64_MAX where an archive read forwards says so only behind it */
  bool is_deflated;     /* else stored */
  bool is_big_endian;   /* elements are to be swapped */
  ckpt_dtype dtype;     /* as the archive says; NONE: it does not */
  uint8_t signs;        /* that are turned: ckpt_extent_signs */
  bool has_crc32;       /* the archive carries checksums */
  bool ends_with_crc32; /* of an archive read forwards: it may, behind the record */
  uint32_t crc32;       /* of the content */
} ckpt_record;

/* How a tensor lies in its record, in elements. */
typedef struct ckpt_record_layout {
  ckpt_dtype dtype; /* NONE: not said */
  uint8_t signs;    /* that are turned: ckpt_extent_signs */
  uint32_t rank;
  uint64_t start, sizes[CKPT_MAX_RANK], strides[CKPT_MAX_RANK];
} ckpt_record_layout;

#define CKPT_MAX_RECORD_TAIL 64

typedef struct ckpt_record_decoder {
  uint32_t n_head; /* bytes that a search forwards needs at most */
  uint32_t n_tail; /* bytes of an archive that follow any record, at most CKPT_MAX_RECORD_TAIL */
  /* Finds the record, and how the tensor lies in it, by the directory of the archive in [offset, offset + n_bytes). */
  ckpt_status (*find)(ckpt_record *out, ckpt_record_layout *layout, ckpt_source *source, uint32_t file, uint64_t offset,
                      uint64_t n_bytes, ckpt_error *err);
  /* The same in the first n_bytes of an archive that can only be read forwards. *n_needed is how many first bytes are
   * needed (none of the payload), 0 when the record is found. */
  ckpt_status (*scan)(ckpt_record *out, ckpt_record_layout *layout, size_t *n_needed, const uint8_t *bytes,
                      size_t n_bytes, const char *path, ckpt_error *err);
  /* Whether the n_tail bytes behind a record say that it ended there, with this length; then *crc32 is what they say
   * of its content, 0 for nothing. */
  bool (*ends)(const uint8_t *tail, uint64_t n_record, uint32_t *crc32);
  /* Fails where a tensor does not lie row-major from the beginning of its record. */
  ckpt_status (*check_row_major)(const ckpt_record_layout *layout, const char *path, ckpt_error *err);
} ckpt_record_decoder;

/* One of both is there. */
typedef struct ckpt_decoder_row {
  const char *name; /* in messages; of a record's its archive's */
  const ckpt_stream_decoder *stream;
  const ckpt_record_decoder *record;
} ckpt_decoder_row;

extern const ckpt_decoder_row *const ckpt_decoders[CKPT_N_DECODERS]; /* by ckpt_decoder; NULL: it needs no row */

#endif
