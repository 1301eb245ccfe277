/* crc32.h - zip's CRC-32, by libdeflate. It uses carry-less multiplication and is several times as fast as zlib. */
#ifndef CKPT_BASE_CRC32_H
#define CKPT_BASE_CRC32_H

#include <libdeflate.h>
#include <stddef.h>
#include <stdint.h>

/* Continues checksum `crc` over n_bytes; 0 is the checksum of nothing. */
static inline uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes) {
  return n_bytes == 0 ? crc : libdeflate_crc32(crc, bytes, n_bytes); /* which begins anew at NULL */
}

#endif
