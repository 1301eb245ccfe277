/* crc32.h - the CRC-32 of zip and zlib, faster where the processor multiplies polynomials. */
#ifndef CKPT_CRC32_H
#define CKPT_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is of with n_bytes behind it; 0 is that of nothing. As zlib's crc32_z. */
uint32_t ckpt_crc32(uint32_t crc, const void *bytes, size_t n_bytes);

#endif
