/* crc32.h - zip's CRC-32, several times as fast as zlib's: by carry-less multiplication, of 64 bytes at once where the
 * processor has AVX-512, of 16 by libdeflate elsewhere. */
#ifndef CKPT_BASE_CRC32_H
#define CKPT_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Continues checksum `crc` over n_bytes; 0 is the checksum of nothing. */
uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
