/* gemm_cpu.c - a product of the CPU, cut into tiles that any thread may make.
 *
 * Tiles depend on the product's shape alone, never on how many threads there are nor on how b is stored, and threads
 * never share a summed axis: results have the same bits for any number of threads, and for a stored b those of its f32.
 */
#include <pthread.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "trainer/model/device.h"

/* Tiles of a product: enough of them for many threads, and for two not to wait long for the last one; each large enough
 * that packing its panels pays. A panel has at most PANEL elements, which is 8 MiB of f32, or MIN_TILE rows. Where each
 * tile rounds its panel of b, ROUNDED_COLUMNS keep that in the cache until it is packed. */
enum { TILE_ROWS = 512, TILE_COLUMNS = 1024, ROUNDED_COLUMNS = 384 };
enum { MIN_TILE = 96, WANTED_TILES = 16, TILE_WORK = 1 << 24, PANEL = 1 << 21 };
enum { MAX_ROUNDED = 1 << 22 }; /* elements of a factor that is rounded once for all tiles, not by each */

typedef struct tiles {
  const ckpt_gemm *gemm;
  ckpt_gemm_function *multiply;
  size_t real_bytes, n_rows, n_columns, across; /* of a tile; tiles beside each other */
  size_t most_columns, slow_stride;
  pthread_mutex_t *mutex;
  ckpt_status *status;
  ckpt_error *err;
} tiles;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/* So many rows of k elements at most. */
static size_t limit_of(size_t k, size_t most) {
  const size_t limit = PANEL / (k + 1);
  return limit < MIN_TILE ? MIN_TILE : limit < most ? limit : most;
}

/* Columns of a tile at most: by shape alone, so that a product has the same bits however its factors come. */
static size_t most_columns(const ckpt_tape_kernels *kernels, const ckpt_gemm *g) {
  return g->is_bf16 && kernels->round != NULL && g->n * g->k > MAX_ROUNDED ? ROUNDED_COLUMNS : TILE_COLUMNS;
}

static void choose_tiles(tiles *t) {
  const ckpt_gemm *g = t->gemm;
  const bool packs_a = (g->is_bf16 && !g->is_a_rounded) || ckpt_gemm_spreads_a(g, t->slow_stride);
  const size_t most_rows = packs_a ? limit_of(g->k, TILE_ROWS) : TILE_ROWS;
  size_t down = 1, across = 1;
  for (;;) {
    t->n_rows = round_up((g->m + down - 1) / down, 16);
    t->n_columns = round_up((g->n + across - 1) / across, 64);
    bool is_few = down * across < WANTED_TILES && t->n_rows * t->n_columns * (g->k + 1) > TILE_WORK;
    bool is_tall = t->n_rows >= t->n_columns;
    if (t->n_rows > most_rows || (is_few && is_tall && t->n_rows > MIN_TILE))
      down++;
    else if (t->n_columns > limit_of(g->k, t->most_columns) || (is_few && t->n_columns > MIN_TILE))
      across++;
    else
      break;
  }
  t->across = (g->n + t->n_columns - 1) / t->n_columns;
}

/* b from this element of the summed axis and this column of the product on. */
static void move_b(ckpt_gemm *g, size_t k, size_t column, size_t real_bytes) {
  const ckpt_dtype_row *type = ckpt_dtype_get(g->b_dtype);
  const bool has_columns_as_rows = g->is_b_transposed || g->is_b_turned;
  const size_t row = has_columns_as_rows ? column : k, first = has_columns_as_rows ? k : column;
  if (g->b_dtype == CKPT_DTYPE_NONE) {
    g->b = (const char *)g->b + (row * g->ldb + first) * real_bytes;
    return;
  }
  g->b = (const char *)g->b + row * g->ldb / type->block_elements * type->block_bytes;
  g->b_first += first;
}

static void multiply_tiles(const void *arg, size_t begin, size_t end) {
  const tiles *t = arg;
  for (size_t i = begin; i < end; i++) {
    ckpt_gemm g = *t->gemm;
    ckpt_error error = {0};
    const size_t row = i / t->across * t->n_rows, column = i % t->across * t->n_columns;
    g.m = g.m - row < t->n_rows ? g.m - row : t->n_rows;
    g.n = g.n - column < t->n_columns ? g.n - column : t->n_columns;
    g.a = (const char *)g.a + (g.is_a_transposed ? row : row * g.lda) * t->real_bytes;
    move_b(&g, 0, column, t->real_bytes);
    g.c = (char *)g.c + (row * g.ldc + column) * t->real_bytes;
    if (g.bias != NULL) g.bias = (const char *)g.bias + column * t->real_bytes;
    ckpt_status status = t->multiply(&g, &error);
    if (status == CKPT_OK) continue;
    pthread_mutex_lock(t->mutex);
    if (*t->status == CKPT_OK && t->err != NULL) *t->err = error;
    *t->status = status;
    pthread_mutex_unlock(t->mutex);
  }
}

/* ---- factors that are rounded once for all tiles --------------------------------------------------------------------
 */

/* A factor as it lies, and its place packed. */
typedef struct factor {
  void (*round)(float *out, const float *x, size_t n);
  const float *from;
  float *to;
  size_t n_rows, n_columns, stride;
} factor;

static void round_rows(const void *arg, size_t begin, size_t end) {
  const factor *f = arg;
  for (size_t r = begin; r < end; r++) f->round(f->to + r * f->n_columns, f->from + r * f->stride, f->n_columns);
}

/* The same where it lies. */
static void round_in_place(const void *arg, size_t begin, size_t end) {
  const factor *f = arg;
  float rounded[1024];
  for (size_t r = begin; r < end; r++)
    for (size_t i = 0; i < f->n_columns; i += sizeof rounded / sizeof *rounded) {
      float *x = f->to + r * f->stride + i;
      const size_t n =
          f->n_columns - i < sizeof rounded / sizeof *rounded ? f->n_columns - i : sizeof rounded / sizeof *rounded;
      f->round(rounded, x, n);
      memcpy(x, rounded, n * sizeof *x);
    }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Bytes of a panel of at most `rows` rows of k, where k may be smaller too. */
static size_t panel_bytes(size_t rows, size_t most, size_t k, size_t element_bytes) {
  const size_t limit = PANEL > MIN_TILE * k ? PANEL : MIN_TILE * k;
  return round_up(least(least(rows, most) * k, limit) * element_bytes, 64);
}

enum { IN_A_ROW = 2 * 256, TURNED = 16 }; /* elements of blocks at its ends; rows at once of what lies turned */

/* A row of either panel in f32, on its way: of n elements, or of as many as a tile has columns. */
static size_t row_bytes(size_t n) {
  return round_up(((n > TILE_COLUMNS ? n : TILE_COLUMNS) + IN_A_ROW) * sizeof(float), 64);
}

/* A panel of b in f32, where it is stored otherwise, and a row on its way. */
static size_t stored_bytes(const ckpt_gemm *g) {
  if (g->b_dtype == CKPT_DTYPE_NONE) return 0;
  return panel_bytes(g->n, TILE_COLUMNS, g->k, sizeof(float)) + row_bytes(g->is_b_turned ? TURNED * g->k : g->k);
}

/* A panel that is packed, whose rows lie further apart where they are summed over. */
static size_t packed_bytes(size_t rows, size_t most, size_t k, size_t element_bytes, bool is_spread) {
  return panel_bytes(rows, most, k, element_bytes) + (is_spread ? k * CKPT_GEMM_SPREAD * element_bytes : 0);
}

static size_t bytes_of(const ckpt_tape_kernels *kernels, const ckpt_gemm *g, bool b_may_be_less, size_t *panels) {
  ckpt_gemm rounded = *g; /* small factors, which then lie without gaps */
  if (g->is_bf16) rounded.lda = g->is_a_transposed ? g->m : g->k, rounded.ldb = g->is_b_transposed ? g->k : g->n;
  const size_t slow = kernels->slow_stride;
  const bool spreads_a = ckpt_gemm_spreads_a(g, slow) || ckpt_gemm_spreads_a(&rounded, slow);
  const bool spreads_b = ckpt_gemm_spreads_b(g, slow) || ckpt_gemm_spreads_b(&rounded, slow);
  if (!g->is_bf16) {
    *panels = stored_bytes(g);
    if (spreads_a) *panels += packed_bytes(g->m, TILE_ROWS, g->k, sizeof(float), true);
    if (spreads_b) *panels += packed_bytes(g->n, TILE_COLUMNS, g->k, sizeof(float), true);
    if (spreads_a || spreads_b) *panels += row_bytes(g->k);
    return 0;
  }
  const size_t n_a = g->m * g->k, n_b = g->n * g->k;
  const bool is_native = kernels->round == NULL, a_is_ready = g->is_a_scratch || g->is_a_rounded;
  const bool packs_a = is_native || (!a_is_ready && n_a > MAX_ROUNDED);
  const bool packs_b = is_native || (!g->is_b_rounded && (packs_a || n_b > MAX_ROUNDED));
  const bool rounds_b = !g->is_b_rounded && (b_may_be_less || n_b <= MAX_ROUNDED);
  const size_t element_bytes = is_native ? sizeof(uint16_t) : sizeof(float);
  const size_t most = b_may_be_less ? TILE_COLUMNS : most_columns(kernels, g);
  *panels = packs_a || spreads_a ? packed_bytes(g->m, TILE_ROWS, g->k, element_bytes, spreads_a) : 0;
  if (packs_b || spreads_b) *panels += packed_bytes(g->n, most, g->k, element_bytes, spreads_b);
  if (*panels != 0) *panels += row_bytes(g->k);
  if (is_native) return 0;
  const size_t shared_a = a_is_ready ? 0 : round_up(least(n_a, MAX_ROUNDED), 16);
  return round_up((shared_a + (rounds_b ? least(n_b, MAX_ROUNDED) : 0)) * sizeof(float), 64);
}

/* A long summed axis is multiplied a slice after the other, so that b's slice is rounded once for all tiles. Slices are
 * whole blocks of every type. */
enum { LONG_AXIS = 1 << 14, LEAST_SLICE = 1 << 10, OF_BLOCKS = 256 };

/* How much of the summed axis is multiplied at once: of a shape, whatever b's dtype. */
static size_t slice_of(const ckpt_tape_kernels *kernels, const ckpt_gemm *g) {
  if (!g->is_bf16 || kernels->round == NULL || g->k < LONG_AXIS || g->n * g->k <= MAX_ROUNDED) return g->k;
  const size_t slice = MAX_ROUNDED / g->n / OF_BLOCKS * OF_BLOCKS;
  return slice < LEAST_SLICE ? g->k : slice;
}

size_t ckpt_gemm_cpu_bytes(const ckpt_tape_kernels *kernels, const ckpt_gemm *g, bool b_may_be_less, size_t *panels) {
  ckpt_gemm slice = *g;
  slice.k = slice_of(kernels, g);
  const size_t shared = bytes_of(kernels, &slice, b_may_be_less, panels);
  if (slice.k == g->k || !b_may_be_less) return shared;
  size_t own;
  slice.k = LONG_AXIS - 1; /* of a smaller batch, at once */
  const size_t other = bytes_of(kernels, &slice, b_may_be_less, &own);
  *panels = own > *panels ? own : *panels;
  return other > shared ? other : shared;
}

static bool is_small(const factor *f) { return f->n_rows * f->n_columns <= MAX_ROUNDED; }

/* Rounds a where it lies if it may, and small factors in f32. The products are then those of f32 that tiles would make.
 */
static void round_factors(ckpt_device *device, ckpt_gemm *g) {
  factor a = {.round = device->kernels->round, .from = g->a, .stride = g->lda};
  factor b = {.round = device->kernels->round, .from = g->b, .stride = g->ldb};
  a.n_rows = g->is_a_transposed ? g->k : g->m, a.n_columns = g->is_a_transposed ? g->m : g->k;
  b.n_rows = g->is_b_transposed ? g->n : g->k, b.n_columns = g->is_b_transposed ? g->k : g->n;
  if (!g->is_bf16 || a.round == NULL) return;
  if (g->is_a_scratch && !g->is_a_rounded) {
    a.to = (float *)g->a;
    device->table->run_host(device, round_in_place, &a, a.n_rows, 32);
    g->is_a_rounded = true;
  }
  if (!g->is_a_rounded && !is_small(&a)) return;
  const bool rounds_a = !g->is_a_rounded;
  const bool rounds_b = g->b_dtype == CKPT_DTYPE_NONE && !g->is_b_rounded && is_small(&b);
  const size_t n_a = rounds_a ? round_up(a.n_rows * a.n_columns, 16) : 0;
  const size_t n_b = rounds_b ? b.n_rows * b.n_columns : 0;
  float *shared = n_a + n_b == 0 ? NULL : ckpt_device_cpu_shared(device, (n_a + n_b) * sizeof(float));
  if (shared == NULL && n_a + n_b != 0) return; /* tiles do without */
  if (rounds_a) {
    a.to = shared;
    device->table->run_host(device, round_rows, &a, a.n_rows, 32);
    g->a = a.to, g->lda = a.n_columns, g->is_a_rounded = true;
  }
  if (rounds_b) {
    b.to = shared + n_a;
    device->table->run_host(device, round_rows, &b, b.n_rows, 32);
    g->b = b.to, g->ldb = b.n_columns, g->is_b_rounded = true;
  }
  if (g->is_b_rounded || g->b_dtype == CKPT_BF16) g->is_bf16 = false;
}

static ckpt_status multiply_at_once(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  ckpt_gemm g = *gemm;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ckpt_status status = CKPT_OK;
  tiles t = {.gemm = &g,
             .multiply = device->kernels->gemm,
             .real_bytes = device->kernels->real_bytes,
             .most_columns = most_columns(device->kernels, &g),
             .slow_stride = device->kernels->slow_stride,
             .mutex = &mutex,
             .status = &status,
             .err = err};
  if (g.m == 0 || g.n == 0) return CKPT_OK;
  round_factors(device, &g);
  choose_tiles(&t);
  device->table->run_host(device, multiply_tiles, &t, (g.m + t.n_rows - 1) / t.n_rows * t.across, 1);
  return status;
}

ckpt_status ckpt_gemm_cpu(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err) {
  const size_t slice = slice_of(device->kernels, gemm);
  ckpt_gemm whole = *gemm;
  if (device->kernels->round == NULL) whole.is_a_rounded = whole.is_b_rounded = false; /* here nothing is, beforehand */
  if (slice == gemm->k) return multiply_at_once(device, &whole, err);
  for (size_t k = 0; k < gemm->k; k += slice) {
    ckpt_gemm g = whole;
    g.a = (const char *)g.a + (g.is_a_transposed ? k * g.lda : k) * device->kernels->real_bytes;
    move_b(&g, k, 0, device->kernels->real_bytes);
    g.k = least(slice, gemm->k - k);
    if (k != 0) g.beta = 1, g.bias = NULL;
    CKPT_TRY(multiply_at_once(device, &g, err));
  }
  return CKPT_OK;
}
