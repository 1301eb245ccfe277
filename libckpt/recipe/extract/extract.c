/* extract.c - pairs of tensors: which is a linear layer's, what it takes, and how far each pair is apart. See
 * extract.h. */
#include "libckpt/recipe/extract/extract.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/float_env.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/adapter/parts.h"
#include "libckpt/recipe/extract/items.h"
#include "libckpt/recipe/extract/jacobi.h"
#include "libckpt/recipe/extract/svd.h"
#include "libckpt/recipe/select/select.h"
#include "libckpt/run/run.h"

typedef unsigned long long ull;

enum { PANEL = 1 << 21 }; /* f64 at a time beside a matrix: 16 MiB */

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

uint64_t ckpt_extract_rows(const ckpt_tensor *tensor) {
  const uint64_t n_rows = tensor->rank == 0 ? 1 : tensor->shape[0];
  const uint64_t width = n_rows == 0 ? 0 : tensor->n_elements / n_rows;
  return width == 0 ? n_rows : least(n_rows, width >= PANEL ? 1 : PANEL / width);
}

/* The factors are smaller than the matrix up to this one. */
static uint64_t saving_rank(const ckpt_tensor *t) {
  const uint64_t rank = t->n_elements / (t->shape[0] + t->shape[1]);
  return rank == 0 ? 1 : rank;
}

uint64_t ckpt_extract_rank(const ckpt_extraction *x, const ckpt_extract_item *item) {
  const uint64_t smaller = least(item->base->shape[0], item->base->shape[1]);
  return least(smaller, x->options.rank != 0 ? x->options.rank : saving_rank(item->base));
}

static bool is_linear(const ckpt_index *base, const ckpt_tensor *tensor) {
  return tensor->n_elements != 0 && !ckpt_adapter_is_integer(tensor) && ckpt_adapter_is_linear(base, tensor) &&
         !ckpt_model_routes(base, tensor);
}

/* Whether a name is of one of many: <...>.experts.<number>.<...>. */
static bool is_of_expert(const char *name) {
  const char *at = strstr(name, ".experts.");
  if (at == NULL) return false;
  at += sizeof ".experts." - 1;
  const size_t n = strspn(at, "0123456789");
  return n != 0 && at[n] == '.';
}

static ckpt_status check_pair(const ckpt_index *base, const ckpt_index *tuned, const ckpt_tensor *b,
                              const ckpt_tensor *t, ckpt_error *err) {
  char is[CKPT_SHAPE_TEXT], was[CKPT_SHAPE_TEXT];
  const ckpt_tensor *const both[] = {b, t};
  if (!ckpt_tensor_same_shape(b, t))
    return ckpt_fail(err, CKPT_EDIFFERENT, ckpt_index_file_of(tuned, t), t->name, "is %s, and %s in %s",
                     ckpt_tensor_shape_text(t, is, sizeof is), ckpt_tensor_shape_text(b, was, sizeof was), base->path);
  for (int i = 0; i < 2; i++) {
    const ckpt_dtype dtype = (ckpt_dtype)both[i]->dtype;
    if (ckpt_adapter_is_integer(b) && b->dtype == t->dtype) continue;
    if (!ckpt_dtype_is_block(dtype) && dtype != CKPT_F64 && dtype != CKPT_F32 && dtype != CKPT_F16 &&
        dtype != CKPT_BF16)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, i == 0 ? base->path : tuned->path, both[i]->name,
                       "is %s, of which no difference is taken", ckpt_dtype_name(dtype));
  }
  return CKPT_OK;
}

static ckpt_status add_item(ckpt_extraction *x, const ckpt_tensor *base, const ckpt_tensor *tuned,
                            const ckpt_selected *selected, ckpt_error *err) {
  const char *name = selected->name, *dot = strrchr(name, '.');
  const char *path = ckpt_extract_name(x, name);
  const size_t n_path = dot == NULL || dot < path ? strlen(path) : (size_t)(dot - path);
  ckpt_extract_item *item = &x->items[x->n];
  *item = (ckpt_extract_item){.base = base, .tuned = tuned, .name = name, .aliases = selected->aliases};
  item->module = ckpt_arena_text(&x->arena, path, n_path);
  const char *weight = ckpt_arena_printf(&x->arena, "%.*s.weight", (int)(path + n_path - name), name);
  CKPT_TRY_ALLOC(item->module, err);
  CKPT_TRY_ALLOC(weight, err);
  CKPT_TRY(check_pair(x->base, x->tuned, base, tuned, err));
  const ckpt_tensor *of = ckpt_index_find(x->base, weight);
  item->is_linear = is_linear(x->base, base);
  item->is_of_linear = !item->is_linear && of != NULL && is_linear(x->base, of) && ckpt_text_ends(name, ".bias");
  item->is_transposed = item->is_linear && ckpt_model_transposes(&x->facts, x->base, base);
  item->is_integer = ckpt_adapter_is_integer(base);
  item->is_expert = item->is_linear && is_of_expert(name);
  x->n++;
  return CKPT_OK;
}

const char *ckpt_extract_name(const ckpt_extraction *x, const char *name) {
  const size_t n = x->facts.prefix == NULL ? 0 : strlen(x->facts.prefix);
  return n != 0 && strncmp(name, x->facts.prefix, n) == 0 ? name + n : name;
}

/* Buffers are the base's: an adapter has no place for them. */
static bool is_compared(const ckpt_tensor *tensor) { return tensor->role == CKPT_ROLE_PARAMETER; }

static ckpt_status refuse_missing(const ckpt_index *in, const ckpt_index *has, const ckpt_tensor *tensor,
                                  ckpt_error *err) {
  return ckpt_fail(err, CKPT_EDIFFERENT, ckpt_index_file_of(has, tensor), tensor->name, "is missing in %s", in->path);
}

/* Under which names a tensor takes part: a parameter that no pattern leaves out. */
static ckpt_status take(ckpt_selected *out, ckpt_extraction *x, ckpt_selection *selection, const ckpt_tensor *tensor,
                        ckpt_error *err) {
  CKPT_TRY(ckpt_selection_take(selection, tensor, &x->arena, out, err));
  if (!is_compared(tensor)) out->name = NULL;
  return CKPT_OK;
}

static ckpt_status pair_all(ckpt_extraction *x, ckpt_selection *selection, ckpt_error *err) {
  const ckpt_index *base = x->base, *tuned = x->tuned;
  ckpt_selected selected;
  CKPT_TRY(ckpt_selection_refuse_unread(selection, base, false, true, err));
  CKPT_TRY(ckpt_selection_refuse_unread(selection, tuned, false, true, err));
  x->items = ckpt_arena_array(&x->arena, (size_t)tuned->n_tensors + 1, sizeof *x->items);
  CKPT_TRY_ALLOC(x->items, err);
  for (uint32_t i = 0; i < tuned->n_tensors; i++) {
    const ckpt_tensor *tensor = &tuned->tensors[i], *other = ckpt_index_find(base, tensor->name);
    CKPT_TRY(take(&selected, x, selection, tensor, err));
    if (selected.name == NULL) continue;
    if (other == NULL) return refuse_missing(base, tuned, tensor, err);
    CKPT_TRY(add_item(x, other, tensor, &selected, err));
  }
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    if (ckpt_index_find(tuned, base->tensors[i].name) != NULL) continue;
    CKPT_TRY(take(&selected, x, selection, &base->tensors[i], err));
    if (selected.name != NULL) return refuse_missing(tuned, base, &base->tensors[i], err);
  }
  return ckpt_selection_finish(selection, err);
}

static const char *leaf_of(const ckpt_extract_item *item) {
  const char *dot = strrchr(item->module, '.');
  return dot == NULL ? item->module : dot + 1;
}

/* PEFT takes every target that is called as an expert's matrix for one of the experts: other layers of that name, as a
 * shared expert's, are stored whole. */
static void leave_namesakes(ckpt_extraction *x) {
  const char *leaves[8];
  size_t n = 0;
  for (size_t i = 0; i < x->n; i++) {
    size_t k = 0;
    while (x->items[i].is_expert && k < n && strcmp(leaves[k], leaf_of(&x->items[i])) != 0) k++;
    if (x->items[i].is_expert && k == n && n < sizeof leaves / sizeof *leaves) leaves[n++] = leaf_of(&x->items[i]);
  }
  for (size_t i = 0; i < x->n; i++)
    for (size_t k = 0; k < n && x->items[i].is_linear && !x->items[i].is_expert; k++)
      if (strcmp(leaves[k], leaf_of(&x->items[i])) == 0) x->items[i].is_linear = false;
}

static ckpt_status pair(ckpt_extraction *x, ckpt_error *err) {
  const ckpt_convert_options options = {.struct_size = sizeof options, .exclude = x->options.exclude};
  ckpt_selection *selection;
  CKPT_TRY(ckpt_selection_new(&selection, &options, NULL, NULL, err));
  ckpt_status status = pair_all(x, selection, err);
  leave_namesakes(x);
  ckpt_selection_free(selection);
  return status;
}

static ckpt_status check_options(const ckpt_extraction *x, ckpt_error *err) {
  uint64_t most = 0;
  if (x->options.rank == 0 && !(x->options.energy > 0 && x->options.energy < 1))
    return ckpt_fail_option(err, CKPT_EINVAL, x->tuned->path, "energy", "%g is no share above 0 and below 1",
                            x->options.energy);
  for (size_t i = 0; i < x->n; i++) {
    const ckpt_tensor *t = x->items[i].base;
    uint64_t n_bytes;
    if (!x->items[i].is_linear) continue;
    most = most > least(t->shape[0], t->shape[1]) ? most : least(t->shape[0], t->shape[1]);
    if (!ckpt_mul_u64(t->n_elements, 64, &n_bytes) || n_bytes > SIZE_MAX / 64)
      return ckpt_fail(err, CKPT_ELIMIT, x->base->path, t->name, "is too large for memory");
  }
  if (most == 0 || x->options.rank <= most) return CKPT_OK;
  return ckpt_fail_option(err, CKPT_EINVAL, x->tuned->path, "rank",
                          "no matrix of a linear layer has more than rank %llu", (ull)most);
}

ckpt_status ckpt_extract_open(ckpt_extraction **out, const ckpt_index *base, const ckpt_index *tuned,
                              const ckpt_extract_options *options, ckpt_error *err) {
  CKPT_TRY(ckpt_adapter_check_base(base->path, err));
  ckpt_extraction *x = calloc(1, sizeof *x);
  CKPT_TRY_ALLOC(x, err);
  *x = (ckpt_extraction){.base = base, .tuned = tuned, .options = *options, .file = -1};
  ckpt_arena_init(&x->arena, tuned->max_bytes);
  ckpt_status status = ckpt_model_look(&x->facts, base, err);
  if (status == CKPT_OK) status = pair(x, err);
  if (status == CKPT_OK) status = check_options(x, err);
  if (status == CKPT_OK)
    *out = x;
  else
    ckpt_extract_free(x);
  return status;
}

void ckpt_extract_free(ckpt_extraction *x) {
  if (x == NULL) return;
  if (x->file >= 0) close(x->file);
  ckpt_arena_free(&x->arena);
  free(x);
}

const ckpt_index *ckpt_extract_base(const ckpt_extraction *x) { return x->base; }

const ckpt_extract_options *ckpt_extract_options_of(const ckpt_extraction *x) { return &x->options; }

void ckpt_extract_describe(ckpt_extract_plan *out, const ckpt_extraction *x) {
  *out = (ckpt_extract_plan){.memory = 0};
  for (size_t i = 0; i < x->n; i++) {
    const ckpt_extract_item *item = &x->items[i];
    const ckpt_tensor *t = item->base;
    out->n_bytes_read += t->n_bytes + item->tuned->n_bytes;
    out->n_linear += item->is_linear;
    out->n_others += !item->is_linear;
    const uint64_t panel =
        16 * ckpt_extract_rows(t) * (t->rank == 0 ? 1 : t->n_elements / (t->shape[0] + !t->shape[0]));
    if (panel > out->memory) out->memory = panel;
    if (!item->is_linear) continue;
    const uint64_t rank = ckpt_extract_rank(x, item);
    const uint64_t memory = 8 * t->n_elements + panel + ckpt_svd_bytes(t->shape[0], t->shape[1], rank);
    out->n_bytes_factors += 4 * rank * (t->shape[0] + t->shape[1]);
    if (out->largest == NULL || t->n_elements > out->largest->n_elements) out->largest = t;
    if (memory > out->memory) out->memory = memory;
  }
}

/* ---- differences ------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a tensor as f64. */
static ckpt_status read_rows(double *out, const ckpt_index *index, const ckpt_tensor *tensor, uint64_t first,
                             uint64_t n, ckpt_error *err) {
  ckpt_box box = {.start = {first}, .count = {n}};
  uint64_t n_elements = n;
  for (uint32_t axis = 1; axis < tensor->rank; axis++) {
    box.count[axis] = tensor->shape[axis];
    n_elements *= tensor->shape[axis];
  }
  if (tensor->rank == 0) return ckpt_read(index, tensor, NULL, CKPT_F64, out, sizeof *out, err);
  return ckpt_read(index, tensor, &box, CKPT_F64, out, (size_t)n_elements * sizeof *out, err);
}

/* The squares of what a pair differs by, added up; out NULL: the difference itself is not wanted. */
static ckpt_status subtract(double *squares, double *out, const ckpt_extraction *x, const ckpt_extract_item *item,
                            const ckpt_run_options *run, ckpt_error *err) {
  const uint64_t n_rows = item->base->rank == 0 ? 1 : item->base->shape[0], at_once = ckpt_extract_rows(item->base);
  const uint64_t width = n_rows == 0 ? 0 : item->base->n_elements / n_rows;
  *squares = 0;
  if (item->base->n_elements == 0) return CKPT_OK;
  double *panel = reallocarray(NULL, (size_t)(2 * at_once), (size_t)width * sizeof *panel);
  CKPT_TRY_ALLOC(panel, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t first = 0; status == CKPT_OK && first < n_rows; first += at_once) {
    const uint64_t n = least(at_once, n_rows - first);
    double *before = panel, *after = out != NULL ? out + first * width : panel + at_once * width;
    status = ckpt_check_cancel(run, "cancelled", err);
    if (status == CKPT_OK) status = read_rows(before, x->base, item->base, first, n, err);
    if (status == CKPT_OK) status = read_rows(after, x->tuned, item->tuned, first, n, err);
    for (uint64_t row = 0; status == CKPT_OK && row < n; row++) {
      double *a = after + row * width;
      for (uint64_t i = 0; i < width; i++) a[i] -= before[row * width + i];
      *squares += ckpt_dot(a, a, (size_t)width);
    }
  }
  free(panel);
  if (status == CKPT_OK && !isfinite(*squares))
    status = ckpt_fail(err, CKPT_EVALUE, NULL, NULL, "differs by values that are not finite");
  return status;
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */

static ckpt_status open_file(ckpt_extraction *x, const char *folder, ckpt_error *err) {
  char *path = NULL;
  x->folder = ckpt_arena_copy(&x->arena, folder);
  CKPT_TRY_ALLOC(x->folder, err);
  x->file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (x->file >= 0) return CKPT_OK;
  if (asprintf(&path, "%s/.ckpt-extract-XXXXXX", folder) < 0)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  x->file = mkostemp(path, O_CLOEXEC);
  ckpt_status status = x->file >= 0 ? CKPT_OK : ckpt_fail_errno(err, folder, "the factors cannot be kept there");
  if (x->file >= 0) unlink(path);
  free(path);
  return status;
}

/* One factor, as it is or transposed; its values become those that are stored. */
static ckpt_status store(ckpt_extraction *x, double *factor, size_t rank, size_t n, bool is_transposed,
                         ckpt_error *err) {
  const size_t n_values = rank * n;
  float *values = reallocarray(NULL, n_values + 1, sizeof *values);
  CKPT_TRY_ALLOC(values, err);
  for (size_t i = 0; i < n_values; i++) {
    const float value = (float)factor[i];
    values[is_transposed ? i % n * rank + i / n : i] = value;
    factor[i] = (double)value;
  }
  ckpt_status status = ckpt_write_exactly(x->file, x->folder, x->n_file, values, n_values * sizeof *values, err);
  if (status == CKPT_OK) x->n_file += n_values * sizeof *values;
  free(values);
  return status;
}

/* PEFT's A and B: (r, in) and (out, r) of a layer whose matrix is (out, in), or its transpose. */
static ckpt_status store_factors(ckpt_extraction *x, ckpt_extract_item *item, ckpt_svd *svd, ckpt_error *err) {
  const size_t n_rows = item->base->shape[0], n_columns = item->base->shape[1];
  item->rank = svd->rank;
  item->offset = x->n_file;
  if (item->is_transposed) {
    CKPT_TRY(store(x, svd->left, svd->rank, n_rows, false, err));
    return store(x, svd->right, svd->rank, n_columns, true, err);
  }
  CKPT_TRY(store(x, svd->right, svd->rank, n_columns, false, err));
  return store(x, svd->left, svd->rank, n_rows, true, err);
}

/* What is left of the matrix without its factors, in its place. */
static void measure(ckpt_extract_item *item, double *matrix, ckpt_svd *svd, const ckpt_run_options *run) {
  const size_t n_rows = item->base->shape[0], n_columns = item->base->shape[1];
  for (size_t i = 0; i < svd->rank * n_rows; i++) svd->left[i] = -svd->left[i];
  ckpt_product product = {.c = matrix, .a = svd->left, .b = svd->right, .m = n_rows, .n = n_columns, .k = svd->rank};
  product.c_row = product.b_row = n_columns;
  product.a_row = 1;
  product.a_column = n_rows;
  ckpt_svd_multiply(&product, run);
  double squares = 0;
  for (size_t i = 0; i < n_rows; i++) squares += ckpt_dot(matrix + i * n_columns, matrix + i * n_columns, n_columns);
  item->error = sqrt(squares);
}

static ckpt_status factorize(ckpt_extraction *x, ckpt_extract_item *item, const ckpt_run_options *run,
                             ckpt_error *err) {
  ckpt_svd svd = {0};
  ckpt_svd_request request = {
      .n_rows = item->base->shape[0], .n_columns = item->base->shape[1], .energy = x->options.energy, .run = run};
  double *matrix = reallocarray(NULL, (size_t)item->base->n_elements, sizeof *matrix);
  CKPT_TRY_ALLOC(matrix, err);
  ckpt_status status = subtract(&item->squares, matrix, x, item, run, err);
  item->differs = status == CKPT_OK && item->squares != 0;
  if (item->differs) {
    request.matrix = matrix;
    request.squares = item->squares;
    request.max_rank = (size_t)ckpt_extract_rank(x, item);
    if (x->options.rank != 0) request.rank = request.max_rank;
    status = ckpt_svd_truncate(&svd, &request, err);
    if (status == CKPT_OK) status = store_factors(x, item, &svd, err);
    if (status == CKPT_OK) measure(item, matrix, &svd, run);
    ckpt_svd_free(&svd);
  }
  free(matrix);
  return status;
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* Integers are the base's. Those that count the batches of a run are no part of a model. */
static ckpt_status compare(const ckpt_extraction *x, const ckpt_extract_item *item, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)item->base->dtype;
  const size_t n_bytes = (size_t)item->base->n_bytes;
  if (ckpt_text_ends(item->name, "num_batches_tracked")) return CKPT_OK;
  uint8_t *before = reallocarray(NULL, 2, n_bytes + 1), *after = before + n_bytes;
  CKPT_TRY_ALLOC(before, err);
  ckpt_status status = ckpt_read(x->base, item->base, NULL, dtype, before, n_bytes, err);
  if (status == CKPT_OK) status = ckpt_read(x->tuned, item->tuned, NULL, dtype, after, n_bytes, err);
  if (status == CKPT_OK && memcmp(before, after, n_bytes) != 0)
    status = ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "differs, and is %s, of which no difference is taken",
                       ckpt_dtype_name(dtype));
  free(before);
  return status;
}

static ckpt_status look_at(ckpt_extraction *x, ckpt_extract_item *item, const ckpt_run_options *run, ckpt_error *err) {
  if (item->is_integer) return compare(x, item, err);
  if (item->is_linear) return factorize(x, item, run, err);
  CKPT_TRY(subtract(&item->squares, NULL, x, item, run, err));
  item->differs = item->squares != 0;
  return CKPT_OK;
}

ckpt_status ckpt_extract_run(ckpt_extraction *x, const char *folder, const ckpt_run_options *run, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  ckpt_extract_plan plan;
  uint64_t n_read = 0;
  bool any_differs = false;
  ckpt_extract_describe(&plan, x);
  CKPT_TRY(open_file(x, folder, err));
  for (size_t i = 0; i < x->n; i++) {
    ckpt_extract_item *item = &x->items[i];
    CKPT_TRY(ckpt_fail_at(look_at(x, item, run, err), err, ckpt_index_file_of(x->tuned, item->tuned), item->name));
    any_differs = any_differs || item->differs;
    n_read += item->base->n_bytes + item->tuned->n_bytes;
    CKPT_TRY(ckpt_tell_progress(run, n_read, plan.n_bytes_read, err));
  }
  if (any_differs) return ckpt_extract_settle(x, err);
  return ckpt_fail(err, CKPT_EVALUE, x->tuned->path, NULL,
                   "does not differ from %s in any parameter: there is no adapter", x->base->path);
}

bool ckpt_extract_at(const ckpt_extraction *x, size_t i, ckpt_extracted *out) {
  if (i >= x->n) return false;
  const ckpt_extract_item *item = &x->items[i];
  *out = (ckpt_extracted){.name = item->name,
                          .tensor = item->tuned,
                          .is_linear = item->is_linear,
                          .rank = item->rank,
                          .norm = sqrt(item->squares),
                          .error = item->error};
  return true;
}
