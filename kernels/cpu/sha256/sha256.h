/* sha256.h - private to kernels/cpu: SHA-256 of several leaves of a digest at once, one in each lane of a vector.
 *
 * One SHA-256 is a chain in which each step waits for the one before; eight or sixteen of them beside each other fill a
 * vector, and are faster than instructions made for one. OpenSSL hashes whatever is left over, and everything
 * elsewhere. */
#ifndef CKPT_KERNELS_CPU_SHA256_SHA256_H
#define CKPT_KERNELS_CPU_SHA256_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* SHA-256 of messages of n_bytes each, a multiple of 64, below 2^61. Needs AVX-512 (F, VL and BW); x86-64 only. */
void ckpt_sha256_x8(const uint8_t *const messages[8], size_t n_bytes, uint8_t digests[8][32]);
void ckpt_sha256_x16(const uint8_t *const messages[16], size_t n_bytes, uint8_t digests[16][32]); /* as above */

/* The slot of ckpt_backend_cpu. */
size_t ckpt_sha256_leaves(const uint8_t *const *leaves, size_t n, uint8_t (*digests)[32]);

#endif
