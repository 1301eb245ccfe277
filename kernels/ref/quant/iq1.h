/* iq1.h - private to kernels: IQ1_S and IQ1_M: superblocks of 256 whose groups of 8 are points of a grid of
 * -1, 0, 1, shifted.
 *
 *   IQ1_S  f16 d | 32 bytes: lower eight bits of points | 8 u16: four times their upper three bits, a scale (3 bits),
 *          a sign
 *   IQ1_M  32 bytes: lower eight bits of points | 16 bytes: two times three upper bits and a sign | 4 u16: four
 *          scales of three bits and, on top, four bits of the f16 d
 *
 * x is d * (2 scale + 1) * (level - 1 + shift), the shift being 1/8, or -1/8 where the sign is set: for 32 elements in
 * S, for 8 in M. Scales are for 32 elements in S and for 16 in M. The levels are those of grid.h. */
#ifndef CKPT_KERNELS_REF_QUANT_IQ1_H
#define CKPT_KERNELS_REF_QUANT_IQ1_H

#include "kernels/ref/quant/grid.h"

/* What levels 0, 1, 2 stand for: shifted up and down. */
static const float ckpt_iq1_values[2][3] = {{-1 + 0.125f, 0.125f, 1 + 0.125f}, {-1 - 0.125f, -0.125f, 1 - 0.125f}};

/* The scale and the shifts of a sub-block: bit k of down is for half k. */
typedef struct ckpt_iq1_cut {
  bool is_found;
  unsigned down;
  float scale;
} ckpt_iq1_cut;

/* Cuts each sub-block of a superblock, of n elements (32 or 16), in three once it is sorted, equal elements in
 * their order: levels 0, 1 and 2. A scale is fitted under each cut and shift; the first of the best stays. */
typedef void ckpt_iq1_cut_blocks(int n, const float *x, const float *weights, ckpt_iq1_cut *cuts, uint8_t *levels);

/* The neighbour of a cell whose values (by level) times scale are nearest to x: the least sum of weighted squares from
 * the first axis to the last, the first of equals, and the first of all if none is below FLT_MAX. */
typedef uint16_t ckpt_iq1_nearest(const ckpt_grid *grid, uint32_t cell, float scale, const float *values,
                                  const float *x, const float *weights);

/* The searches, as the reference or another level does them. */
typedef struct ckpt_iq1_search {
  ckpt_iq1_cut_blocks *cut_blocks;
  ckpt_iq1_nearest *nearest;
} ckpt_iq1_search;

/* Rows of the types. */
void ckpt_iq1_s(const ckpt_iq1_search *search, uint8_t *dst, const float *x, size_t n, const float *importance);

/* As above. */
void ckpt_iq1_m(const ckpt_iq1_search *search, uint8_t *dst, const float *x, size_t n, const float *importance);

#endif
