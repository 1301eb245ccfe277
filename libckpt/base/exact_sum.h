/* exact_sum.h - sums of doubles that are the same in any order: integers of 512 bits, in units of 2^-256.
 *
 * They are for squares of f32; those below 2^-256 are cut off. A sum cuts off each addend at its unit, whatever it is
 * added to, and becomes infinite past its range. */
#ifndef CKPT_BASE_EXACT_SUM_H
#define CKPT_BASE_EXACT_SUM_H

#include <stdbool.h>
#include <stdint.h>

/* Words of a sum, and the exponent of its unit. */
enum { CKPT_EXACT_WORDS = 8, CKPT_EXACT_UNIT = -256 };

/* Zero-initialise it. */
typedef struct ckpt_exact_sum {
  uint64_t words[CKPT_EXACT_WORDS]; /* the lowest first */
  bool is_infinite;
} ckpt_exact_sum;

/* Adds x, which is not negative. */
void ckpt_exact_sum_add(ckpt_exact_sum *sum, double x);

/* Adds another sum. */
void ckpt_exact_sum_join(ckpt_exact_sum *into, const ckpt_exact_sum *from);

/* The sum, rounded; INFINITY past the range. */
double ckpt_exact_sum_value(const ckpt_exact_sum *sum);

#endif
