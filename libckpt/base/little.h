/* little.h - little-endian numbers at any address, as headers of files have them. */
#ifndef CKPT_BASE_LITTLE_H
#define CKPT_BASE_LITTLE_H

#include <stdint.h>

/* The unsigned number in the 2, 4 or 8 bytes at `at`. */
static inline uint16_t ckpt_le16(const uint8_t *at) { return (uint16_t)(at[0] | at[1] << 8); }
/* as above */
static inline uint32_t ckpt_le32(const uint8_t *at) { return ckpt_le16(at) | (uint32_t)ckpt_le16(at + 2) << 16; }
/* as above */
static inline uint64_t ckpt_le64(const uint8_t *at) { return ckpt_le32(at) | (uint64_t)ckpt_le32(at + 4) << 32; }

/* Puts a number into the 8 bytes at `at`; the first n of them are the number's in n bytes, where it fits. */
static inline void ckpt_put_le64(uint8_t *at, uint64_t value) {
  for (unsigned i = 0; i < 8; i++) at[i] = (uint8_t)(value >> (8 * i));
}

#endif
