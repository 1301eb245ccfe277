/* jacobi.h - the dense steps of a decomposition on a few long vectors: an orthonormal basis, and one-sided Jacobi. */
#ifndef CKPT_RECIPE_EXTRACT_JACOBI_H
#define CKPT_RECIPE_EXTRACT_JACOBI_H

#include <stddef.h>

/* x times y, in eight partial sums. */
double ckpt_dot(const double *x, const double *y, size_t n);

/* Makes n_vectors rows of n orthonormal, in place and in order; rows that depend on those before them are left out.
 * Returns how many are left. */
size_t ckpt_orthonormalize(double *rows, size_t n_vectors, size_t n);

/* Rotates n_vectors rows of n, and with them n_extra elements behind each, until the rows are orthogonal, and sorts
 * them by length, the longest first. */
void ckpt_jacobi(double *rows, size_t n_vectors, size_t n, size_t n_extra);

#endif
