/* svd.c - see svd.h. */
#include "libckpt/recipe/extract/svd.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/error.h"
#include "libckpt/base/philox.h"
#include "libckpt/recipe/extract/jacobi.h"
#include "libckpt/run/run.h"

enum {
  BESIDE = 16,      /* columns of the block beyond the rank that is wanted: they make the last ones converge */
  FIRST = 48,       /* of the block where the rank is to be found */
  MAX_PASSES = 32,  /* of the matrix and its transpose */
  PART_ROWS = 120,  /* that threads share out: a multiple of a kernel's own block */
  MAX_PARTS = 64,   /* of one product */
  AT_ONCE = 1 << 22 /* multiplications that are not worth a thread */
};

#define KEY UINT64_C(0x636b70742f6c6f72) /* of the random words */
#define TOLERANCE 2e-4                   /* by which what is not captured has to shrink for another pass */

/* ---- products ---------------------------------------------------------------------------------------------------- */

typedef struct part {
  pthread_t thread;
  bool is_started;
  const ckpt_backend *backend;
  ckpt_product product;
} part;

static void *run_part(void *arg) {
  const part *p = arg;
  p->backend->product(&p->product);
  return NULL;
}

static size_t count_threads(const ckpt_run_options *run) {
  if (run != NULL && run->n_threads != 0) return run->n_threads;
  const long n = sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : (size_t)n;
}

void ckpt_svd_multiply(const ckpt_product *product, const ckpt_run_options *run) {
  part parts[MAX_PARTS];
  const ckpt_backend *backend = run != NULL && run->backend != NULL ? run->backend : &ckpt_backend_cpu;
  const size_t n_blocks = product->m / PART_ROWS + 1;
  size_t n = count_threads(run), row = 0;
  if (product->m * product->n * product->k < AT_ONCE) n = 1;
  if (n > n_blocks) n = n_blocks;
  if (n > MAX_PARTS) n = MAX_PARTS;
  for (size_t i = 0; i < n; i++) {
    const size_t end = i + 1 == n ? product->m : n_blocks * (i + 1) / n * PART_ROWS;
    part *p = &parts[i];
    *p = (part){.backend = backend, .product = *product};
    p->product.m = end - row;
    p->product.a += row * product->a_row;
    p->product.c += row * product->c_row;
    row = end;
    p->is_started = i + 1 < n && pthread_create(&p->thread, NULL, run_part, p) == 0;
    if (!p->is_started) run_part(p); /* the last is this thread's, and the rest where no more can be made */
  }
  for (size_t i = 0; i < n; i++)
    if (parts[i].is_started) pthread_join(parts[i].thread, NULL);
}

static void transpose(double *out, const double *in, size_t n_rows, size_t n_columns) {
  for (size_t i = 0; i < n_rows; i += 8)
    for (size_t k = 0; k < n_columns; k++)
      for (size_t at = i; at < i + 8 && at < n_rows; at++) out[k * n_rows + at] = in[at * n_columns + k];
}

/* ---- the block --------------------------------------------------------------------------------------------------- */

/* Vectors are rows; `columns` has them as columns, for a product. */
typedef struct block {
  const ckpt_svd_request *request;
  size_t n;                     /* vectors */
  double *left, *right, *basis; /* of the rows, of the columns, and the latter orthonormal */
  double *columns;              /* of either */
  size_t n_basis;
} block;

static ckpt_status reserve(block *b, size_t n, ckpt_error *err) {
  const ckpt_svd_request *r = b->request;
  const size_t longer = r->n_rows > r->n_columns ? r->n_rows : r->n_columns;
  double **places[] = {&b->left, &b->right, &b->basis, &b->columns};
  const size_t lengths[] = {r->n_rows, r->n_columns, r->n_columns, 2 * longer};
  for (size_t i = 0; i < 4; i++) {
    double *grown = reallocarray(*places[i], n, lengths[i] * sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    *places[i] = grown;
  }
  return CKPT_OK;
}

/* Rows [first, n) of the basis become random numbers between -1 and 1. */
static void draw(block *b, size_t first, size_t n) {
  const size_t width = b->request->n_columns;
  for (size_t i = first; i < n; i++)
    for (size_t k = 0; k < width; k += 4) {
      uint32_t words[4] = {(uint32_t)(k / 4), (uint32_t)((uint64_t)k / 4 >> 32), (uint32_t)i, 0};
      philox(words, 1, KEY);
      for (size_t at = k; at < k + 4 && at < width; at++)
        b->basis[i * width + at] = ((double)words[at - k] + 0.5) / 2147483648.0 - 1;
    }
}

/* Rows of `to` = the matrix, or its transpose, times each row of `from`. */
static void apply(block *b, double *to, const double *from, size_t n, bool is_transposed) {
  const ckpt_svd_request *r = b->request;
  const size_t n_in = is_transposed ? r->n_rows : r->n_columns, n_out = is_transposed ? r->n_columns : r->n_rows;
  double *in = b->columns, *out = in + n_in * n;
  transpose(in, from, n, n_in);
  memset(out, 0, n_out * n * sizeof *out);
  const ckpt_product product = {.c = out,
                                .a = r->matrix,
                                .b = in,
                                .m = n_out,
                                .n = n,
                                .k = n_in,
                                .c_row = n,
                                .a_row = is_transposed ? 1 : r->n_columns,
                                .a_column = is_transposed ? r->n_columns : 1,
                                .b_row = n};
  ckpt_svd_multiply(&product, r->run);
  transpose(to, out, n_out, n);
}

/* One pass over the matrix and its transpose, from the basis to the next one. */
static void pass(block *b) {
  const ckpt_svd_request *r = b->request;
  apply(b, b->left, b->basis, b->n, false);
  b->n = ckpt_orthonormalize(b->left, b->n, r->n_rows);
  apply(b, b->right, b->left, b->n, true);
  memcpy(b->basis, b->right, b->n * r->n_columns * sizeof *b->basis);
  b->n_basis = ckpt_orthonormalize(b->basis, b->n, r->n_columns);
}

/* ---- the small matrix -------------------------------------------------------------------------------------------- */

/* The products of the basis and right, and behind each row which combination of the basis it is. */
static ckpt_status project(double **out, const block *b, ckpt_error *err) {
  const size_t width = b->n + b->n_basis, n_columns = b->request->n_columns;
  double *rows = calloc(b->n_basis * width + 1, sizeof *rows);
  CKPT_TRY_ALLOC(rows, err);
  for (size_t i = 0; i < b->n_basis; i++) {
    for (size_t k = 0; k < b->n; k++)
      rows[i * width + k] = ckpt_dot(b->basis + i * n_columns, b->right + k * n_columns, n_columns);
    rows[i * width + b->n + i] = 1;
  }
  *out = rows;
  return CKPT_OK;
}

/* Squares that the rows have which will be kept: of energy, which asks for no number of them, all, and rotations keep
 * their sum. */
static double squares_kept(const block *b, const double *rows) {
  const size_t width = b->n + b->n_basis, rank = b->request->rank;
  double sum = 0;
  for (size_t i = 0; i < b->n_basis && (rank == 0 || i < rank); i++)
    sum += ckpt_dot(rows + i * width, rows + i * width, b->n);
  return sum;
}

/* Passes until what the kept rows of the small matrix leave no longer shrinks; *rows is that matrix, its rows
 * orthogonal. */
static ckpt_status converge(double **rows, block *b, ckpt_error *err) {
  const double squares = b->request->squares;
  const bool keeps_all = b->request->rank == 0;
  double before = INFINITY;
  for (int i = 0; i < MAX_PASSES; i++) {
    CKPT_TRY(ckpt_check_cancel(b->request->run, "cancelled", err));
    if (i != 0) b->n = b->n_basis;
    pass(b);
    free(*rows);
    *rows = NULL;
    CKPT_TRY(project(rows, b, err));
    if (!keeps_all) ckpt_jacobi(*rows, b->n_basis, b->n, b->n_basis);
    const double rest = squares - squares_kept(b, *rows);
    if (!(rest > 1e-15 * squares) || before - rest <= TOLERANCE * rest) break;
    before = rest;
  }
  if (keeps_all) ckpt_jacobi(*rows, b->n_basis, b->n, b->n_basis);
  return CKPT_OK;
}

/* How many of the small matrix's rows are kept. *is_enough: they have the energy. */
static size_t count_kept(bool *is_enough, const double *rows, const block *b) {
  const ckpt_svd_request *r = b->request;
  const size_t width = b->n + b->n_basis;
  double sum = 0, first = 0;
  size_t i = 0;
  for (; i < b->n_basis && (r->rank != 0 ? i < r->rank : sum < r->energy * r->squares); i++) {
    const double square = ckpt_dot(rows + i * width, rows + i * width, b->n);
    if (i == 0) first = square;
    if (!(square > 1e-30 * first)) break;
    sum += square;
  }
  *is_enough = r->rank != 0 || sum >= r->energy * r->squares;
  return i;
}

static ckpt_status take(ckpt_svd *out, const block *b, const double *rows, size_t rank, ckpt_error *err) {
  const ckpt_svd_request *r = b->request;
  const size_t width = b->n + b->n_basis;
  out->rank = rank;
  out->left = calloc(rank * r->n_rows + 1, sizeof *out->left);
  out->right = calloc(rank * r->n_columns + 1, sizeof *out->right);
  CKPT_TRY_ALLOC(out->left, err);
  CKPT_TRY_ALLOC(out->right, err);
  ckpt_product left = {.c = out->left, .a = rows, .b = b->left, .m = rank, .n = r->n_rows, .k = b->n};
  left.c_row = left.b_row = r->n_rows;
  left.a_row = width;
  left.a_column = 1;
  ckpt_product right = {
      .c = out->right, .a = rows + b->n, .b = b->basis, .m = rank, .n = r->n_columns, .k = b->n_basis};
  right.c_row = right.b_row = r->n_columns;
  right.a_row = width;
  right.a_column = 1;
  ckpt_svd_multiply(&left, r->run);
  ckpt_svd_multiply(&right, r->run);
  for (size_t i = 0; i < rank; i++) { /* a row of the small matrix is as long as its singular value */
    const double value = sqrt(ckpt_dot(rows + i * width, rows + i * width, b->n)), root = sqrt(value);
    for (size_t k = 0; k < r->n_rows; k++) out->left[i * r->n_rows + k] /= root;
    for (size_t k = 0; k < r->n_columns; k++) out->right[i * r->n_columns + k] *= root;
  }
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* One block of n vectors, of which the first n_known are there. */
static ckpt_status try_block(bool *is_done, ckpt_svd *out, block *b, size_t n_known, size_t n, ckpt_error *err) {
  double *rows = NULL;
  CKPT_TRY(reserve(b, n, err));
  draw(b, n_known, n);
  b->n = n;
  ckpt_status status = converge(&rows, b, err);
  const size_t rank = status == CKPT_OK ? count_kept(is_done, rows, b) : 0;
  if (status == CKPT_OK && *is_done) status = take(out, b, rows, rank, err);
  free(rows);
  return status;
}

ckpt_status ckpt_svd_truncate(ckpt_svd *out, const ckpt_svd_request *request, ckpt_error *err) {
  const size_t smaller = least(request->n_rows, request->n_columns);
  const size_t most = request->rank != 0 ? smaller : least(smaller, request->max_rank + BESIDE);
  block b = {.request = request};
  bool is_done = false;
  ckpt_status status = CKPT_OK;
  size_t n = least(request->rank != 0 ? request->rank + BESIDE : FIRST, most);
  for (size_t n_known = 0; status == CKPT_OK && !is_done; n = least(2 * n, most)) {
    status = try_block(&is_done, out, &b, n_known, n, err);
    if (status != CKPT_OK || is_done) break;
    if (n == most || b.n_basis < n) break;
    n_known = b.n_basis;
  }
  if (status == CKPT_OK && (!is_done || (request->rank == 0 && out->rank > request->max_rank)))
    status = ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                       "rank %zu, the largest that saves space, holds less than %g of its squared norm",
                       request->max_rank, request->energy);
  double *const all[] = {b.left, b.right, b.basis, b.columns};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  if (status != CKPT_OK) ckpt_svd_free(out);
  return status;
}

void ckpt_svd_free(ckpt_svd *svd) {
  free(svd->left);
  free(svd->right);
  *svd = (ckpt_svd){0};
}

uint64_t ckpt_svd_bytes(uint64_t n_rows, uint64_t n_columns, uint64_t rank) {
  const uint64_t smaller = n_rows < n_columns ? n_rows : n_columns, longer = n_rows + n_columns - smaller;
  const uint64_t n = rank + BESIDE < smaller ? rank + BESIDE : smaller;
  return 8 * (n * (n_rows + 2 * n_columns + 2 * longer + 2 * n) + rank * (n_rows + n_columns));
}
