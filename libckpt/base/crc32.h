/* crc32.h - the CRC-32 of zip, by libdeflate, which multiplies without carries where the processor can: several times
 * as fast as zlib's. */
#ifndef CKPT_BASE_CRC32_H
#define CKPT_BASE_CRC32_H

#include <libdeflate.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is of with n_bytes behind it; 0 is that of nothing. */
static inline uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes) {
  return n_bytes == 0 ? crc : libdeflate_crc32(crc, bytes, n_bytes); /* which begins anew at NULL */
}

#endif
