/* iq23.h - private to kernels/ref: the search that the IQ2 and IQ3 types share (iq23.c). */
#ifndef CKPT_KERNELS_REF_QUANT_IQ23_H
#define CKPT_KERNELS_REF_QUANT_IQ23_H

#include "kernels/ref/quant/grid.h"

/* How one type searches. Levels l stand for odd numbers 2 l + 1 up to top = 2 max + 1. */
typedef struct ckpt_iq_search {
  ckpt_grid_name grid;
  int n;             /* elements of a sub-block: 16 or 32 */
  int max_level;     /* 2 or 7 */
  int n_steps;       /* inverse scales (top + step * i) / max are tried for i from -n_steps to n_steps */
  float step;        /* 0.1 or 0.2 */
  float epsilon;     /* below it a sub-block counts as zero */
  bool is_even;      /* an even number of signs is set: the eighth one is not stored */
  bool starts_close; /* max is not the greatest value but comes from a first fit (IQ2_XXS) */
  enum { REDO_ALL, REDO_ALL_IF_OFF, REDO_OFF } redo; /* what is rounded anew under the scale found */
} ckpt_iq_search;

/* A superblock as found: of each sub-block a scale, of each group a point, of each 8 elements signs. */
typedef struct ckpt_iq_found {
  float scales[16], max_scale;
  uint16_t points[64];
  uint8_t signs[32];
  bool is_empty[16]; /* sub-blocks that count as zero */
} ckpt_iq_found;

/* The scale and the levels of one sub-block, whose greatest value is max; false where all of it counts as zero. Groups
 * off the grid get the neighbour of their cell whose values under the scale are nearest: the least sum of the root of
 * the weight times the squared difference, from the first axis to the last; the first of equals, and the first of all
 * if no sum is finite. */
typedef bool ckpt_iq_search_block(const ckpt_iq_search *search, const ckpt_grid *grid, const float *x,
                                  const float *weights, float max, uint8_t *levels, float *scale);
ckpt_iq_search_block ckpt_iq_search_ref; /* the reference */

/* Empty sub-blocks have scale, points and signs 0. `weights` has 256. */
void ckpt_iq_find(const ckpt_iq_search *search, ckpt_iq_search_block *search_block, const float *x,
                  const float *weights, ckpt_iq_found *found);

/* Rows of the types, with any function that finds what the reference finds. */
typedef void ckpt_iq_quantize(ckpt_iq_search_block *search_block, uint8_t *dst, const float *x, size_t n,
                              const float *importance);
ckpt_iq_quantize ckpt_iq2_xxs, ckpt_iq2_xs, ckpt_iq2_s, ckpt_iq3_xxs, ckpt_iq3_s; /* as above */

/* A scale as four bits: 2 c + 1 of 31 parts of max_scale. */
uint32_t ckpt_iq_scale_code(float scale, float max_scale);

#endif
