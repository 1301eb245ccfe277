/* jacobi.c - see jacobi.h. */
#include "libckpt/recipe/extract/jacobi.h"

#include <math.h>
#include <string.h>

enum { LANES = 8, MAX_SWEEPS = 40 };

double ckpt_dot(const double *x, const double *y, size_t n) {
  double sums[LANES] = {0};
  size_t i = 0;
  for (; i + LANES <= n; i += LANES)
    for (size_t k = 0; k < LANES; k++) sums[k] += x[i + k] * y[i + k];
  for (; i < n; i++) sums[i % LANES] += x[i] * y[i];
  return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

static void subtract(double *x, const double *y, double by, size_t n) {
  for (size_t i = 0; i < n; i++) x[i] -= by * y[i];
}

size_t ckpt_orthonormalize(double *rows, size_t n_vectors, size_t n) {
  double longest = 0;
  size_t n_kept = 0;
  for (size_t i = 0; i < n_vectors; i++) longest = fmax(longest, ckpt_dot(rows + i * n, rows + i * n, n));
  for (size_t i = 0; i < n_vectors; i++) {
    double *row = rows + n_kept * n;
    if (n_kept != i) memmove(row, rows + i * n, n * sizeof *row);
    for (int pass = 0; pass < 2; pass++) /* twice is enough (Kahan, Parlett) */
      for (size_t k = 0; k < n_kept; k++) subtract(row, rows + k * n, ckpt_dot(rows + k * n, row, n), n);
    const double square = ckpt_dot(row, row, n);
    if (!(square > 1e-26 * longest)) continue; /* what is left of it is rounding */
    const double by = 1 / sqrt(square);
    for (size_t k = 0; k < n; k++) row[k] *= by;
    n_kept++;
  }
  return n_kept;
}

static void rotate(double *x, double *y, double c, double s, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const double a = x[i], b = y[i];
    x[i] = c * a - s * b;
    y[i] = s * a + c * b;
  }
}

/* Makes two rows orthogonal; false where they are. */
static int turn(double *x, double *y, size_t n, size_t width) {
  const double a = ckpt_dot(x, x, n), b = ckpt_dot(y, y, n), c = ckpt_dot(x, y, n);
  if (!(fabs(c) > 1e-14 * sqrt(a) * sqrt(b)) || c == 0) return 0;
  const double zeta = (b - a) / (2 * c);
  const double t = (zeta < 0 ? -1 : 1) / (fabs(zeta) + sqrt(1 + zeta * zeta)), cosine = 1 / sqrt(1 + t * t);
  rotate(x, y, cosine, cosine * t, width);
  return 1;
}

static void swap(double *x, double *y, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const double a = x[i];
    x[i] = y[i];
    y[i] = a;
  }
}

void ckpt_jacobi(double *rows, size_t n_vectors, size_t n, size_t n_extra) {
  const size_t width = n + n_extra;
  for (int sweep = 0, n_turned = 1; sweep < MAX_SWEEPS && n_turned != 0; sweep++) {
    n_turned = 0;
    for (size_t i = 0; i < n_vectors; i++)
      for (size_t k = i + 1; k < n_vectors; k++) n_turned += turn(rows + i * width, rows + k * width, n, width);
  }
  for (size_t i = 0; i < n_vectors; i++) {
    size_t longest = i;
    double square = 0;
    for (size_t k = i; k < n_vectors; k++) {
      const double own = ckpt_dot(rows + k * width, rows + k * width, n);
      if (own > square) square = own, longest = k;
    }
    if (longest != i) swap(rows + i * width, rows + longest * width, width);
  }
}
