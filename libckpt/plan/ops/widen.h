/* widen.h - values of any dtype as f64, a small block at a time: what the reductions over values look at.
 *
 * Exact for every floating dtype, block type, bool, and integers up to 2^53; larger ones are rounded to nearest even.
 * It feeds statistics only: no row is ever made of widened values, so the rule that only `cast` rounds stands. */
#ifndef CKPT_PLAN_OPS_WIDEN_H
#define CKPT_PLAN_OPS_WIDEN_H

#include "libckpt/base/backend.h"

/* Elements that one call takes at most: a whole number of blocks of every dtype. */
enum { CKPT_WIDEN_ELEMENTS = 512 };

/* n elements at src into buffer (n <= CKPT_WIDEN_ELEMENTS). Complex dtypes count twice: n is their real and imaginary
 * parts, one after the other. */
void ckpt_widen(const ckpt_backend *backend, ckpt_dtype dtype, const void *src, size_t n, double *buffer);

#endif
