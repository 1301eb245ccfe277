/* unpacked.h - the unpacked bytes of a compressed stream, as a source: deflate (raw, zlib, gzip) and zstd.
 *
 * The first 8 MiB and the last one stay in memory. The rest is unpacked again on demand, from where the last read ended
 * or from the start. So an archive, whose directory is at its end, takes at most two passes, whatever its size. For
 * zstd at most 21 MiB are in memory: two windows of 2 MiB, a decoder's of 8 MiB. One thread at a time.
 */
#ifndef CKPT_CODEC_UNPACKED_H
#define CKPT_CODEC_UNPACKED_H

#include "libckpt/io/source.h"

typedef enum ckpt_packing { CKPT_PACKED_DEFLATE, CKPT_PACKED_ZLIB, CKPT_PACKED_ZSTD } ckpt_packing;

/* Bytes [offset, offset + n_bytes) of a file, which begin with a stream. */
typedef struct ckpt_packed {
  ckpt_source *source;
  uint32_t file;
  uint64_t offset, n_bytes;
  ckpt_packing packing; /* ZLIB: or gzip */
} ckpt_packed;

/* Called for every n_bytes that are unpacked, also again. */
typedef ckpt_status ckpt_unpacked_work(void *arg, uint64_t n_bytes, bool *may_go_on, ckpt_error *err);

typedef struct ckpt_unpacked ckpt_unpacked;

/* What is known of it. */
typedef struct ckpt_unpacked_state {
  const uint8_t *head; /* its first bytes; it stays until the end */
  size_t n_head;
  uint64_t n_bytes; /* unpacked */
  uint64_t n_used;  /* of the packed bytes */
  uint32_t crc32;   /* of all, but of zstd */
  bool is_whole, is_broken;
  bool is_too_wide; /* broken where a zstd frame begins whose window is over CKPT_ZSTD_WINDOW_LOG */
  bool is_stopped;  /* by the work function */
} ckpt_unpacked_state;

/* Begins with the first bytes, 8 MiB of them; work may be NULL. Borrows the source. */
ckpt_status ckpt_unpacked_new(ckpt_unpacked **out, const ckpt_packed *packed, ckpt_unpacked_work *work, void *arg,
                              ckpt_error *err);

/* Unpacks to the stream's end, to max_bytes or a little more, or to a defect. */
ckpt_status ckpt_unpacked_go(ckpt_unpacked *u, uint64_t max_bytes, ckpt_error *err);

/* The current state. */
ckpt_unpacked_state ckpt_unpacked_at(const ckpt_unpacked *u);

/* A source whose file 0 has the bytes gone through. Borrows u, which goes on no more. */
ckpt_status ckpt_unpacked_source(ckpt_source **out, ckpt_unpacked *u, const char *name, ckpt_error *err);

void ckpt_unpacked_free(ckpt_unpacked *u); /* NULL is fine */

#endif
