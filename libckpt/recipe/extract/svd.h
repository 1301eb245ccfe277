/* svd.h - the truncated singular value decomposition of a dense matrix in f64, by subspace iteration.
 *
 * The matrix and its transpose multiply a random block of columns in turn, until the block captures no more of the
 * squared norm. One-sided Jacobi rotations decompose the small matrix that is left. Random words come
 * from Philox, each element of a product sums in order, and no other library takes part: so the bytes depend neither on
 * threads nor on the machine. Sources: Halko, Martinsson, Tropp 2011 (algorithms 4.4 and 5.1); Demmel and Veselic 1992.
 */
#ifndef CKPT_RECIPE_EXTRACT_SVD_H
#define CKPT_RECIPE_EXTRACT_SVD_H

#include "libckpt/ckpt.h"

typedef struct ckpt_svd_request {
  const double *matrix; /* row-major, finite, not all zero */
  size_t n_rows, n_columns;
  double squares;              /* of its elements, added up */
  size_t rank;                 /* singular values to keep; 0: as few as have this share of the squares */
  double energy;               /* as above */
  size_t max_rank;             /* of energy */
  const ckpt_run_options *run; /* threads, backend, cancel; or NULL */
} ckpt_svd_request;

/* Singular vectors, each times the square root of its value, the greatest first. Zero, then ckpt_svd_truncate. */
typedef struct ckpt_svd {
  size_t rank;   /* at most what was asked for: values that are zero are left out */
  double *left;  /* rank x n_rows */
  double *right; /* rank x n_columns */
} ckpt_svd;

/* ELIMIT: energy needs more than max_rank; ECANCELED, ENOMEM. */
ckpt_status ckpt_svd_truncate(ckpt_svd *out, const ckpt_svd_request *request, ckpt_error *err);
void ckpt_svd_free(ckpt_svd *svd); /* as above */

/* Bytes that it takes beside the matrix for a rank. */
uint64_t ckpt_svd_bytes(uint64_t n_rows, uint64_t n_columns, uint64_t rank);

struct ckpt_product;

/* c += a x b as ckpt_backend.product, with the rows of c shared out among threads. */
void ckpt_svd_multiply(const struct ckpt_product *product, const ckpt_run_options *run);

#endif
