/* sequences.h - Megatron's index beside a .bin of tokens: where each document begins.
 *
 * Little-endian: "MMIDIDX" and two zero bytes; u64 version 1; u8 type of a token (4 i32, 8 u16); u64 n sequences; u64 n
 * documents + 1; i32 length of each sequence, in tokens; i64 offset of each in the .bin, in bytes; i64 first sequence
 * of each document (megatron/core/datasets/indexed_dataset.py). */
#ifndef CKPT_TRAINER_DATA_SEQUENCES_H
#define CKPT_TRAINER_DATA_SEQUENCES_H

#include "libckpt/ckpt.h"

typedef struct ckpt_sequences {
  uint64_t *offsets; /* of each in the .bin; they follow one another */
  uint64_t n;
  uint32_t width; /* bytes of a token */
} ckpt_sequences;

/* The index of a .bin of n_bytes: BIN's name with .idx; none (n is 0) where there is no such file. EFORMAT: what points
 * outside, or does not follow what is before it; EUNSUPPORTED (another type); EIO, ENOMEM. */
ckpt_status ckpt_sequences_read(ckpt_sequences *out, const char *bin, uint64_t n_bytes, ckpt_error *err);
void ckpt_sequences_free(ckpt_sequences *sequences); /* a zeroed one is fine */

#endif
