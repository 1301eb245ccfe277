/* imatrix.c - see imatrix.h. */
#include "libckpt/recipe/quantize/imatrix.h"

#include <string.h>

#include "libckpt/base/error.h"

/* Bytes of a name and its ending: longer ones are none that an index can have. */
enum { N_ROOM = 4096 + 16 };

#define SUMS ".in_sum2"
#define COUNTS ".counts"
#define MEANS ".in_sum" /* plain sums, which newer ones may have too */

/* Whether name ends so; *n_stem is what stands before. */
static bool ends(const char *name, const char *suffix, size_t *n_stem) {
  const size_t n = strlen(name), n_suffix = strlen(suffix);
  if (n <= n_suffix || strcmp(name + n - n_suffix, suffix) != 0) return false;
  *n_stem = n - n_suffix;
  return true;
}

/* The tensor STEM + suffix; NULL where there is none. */
static const ckpt_tensor *find(const ckpt_index *imatrix, const char *stem, size_t n_stem, const char *suffix,
                               char *room, size_t n_room) {
  const size_t n_suffix = strlen(suffix);
  if (n_stem >= n_room || n_suffix >= n_room - n_stem) return NULL;
  memcpy(room, stem, n_stem);
  memcpy(room + n_stem, suffix, n_suffix + 1);
  return ckpt_index_find(imatrix, room);
}

static ckpt_status check_pair(const ckpt_tensor *sums, const ckpt_tensor *counts, ckpt_error *err) {
  if (counts == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, sums->name, "has no counts beside it (%s)", COUNTS);
  if (sums->dtype != CKPT_F32 || (counts->dtype != CKPT_F32 && counts->dtype != CKPT_I32))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, sums->name, "sums of %s over counts of %s (f32 is expected)",
                     ckpt_dtype_name((ckpt_dtype)sums->dtype), ckpt_dtype_name((ckpt_dtype)counts->dtype));
  if (sums->n_elements == 0 || counts->n_elements == 0 || sums->n_elements % counts->n_elements != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, sums->name, "%llu sum%s over %llu count%s",
                     (unsigned long long)sums->n_elements, ckpt_plural(sums->n_elements),
                     (unsigned long long)counts->n_elements, ckpt_plural(counts->n_elements));
  return CKPT_OK;
}

ckpt_status ckpt_imatrix_check(const ckpt_index *imatrix, ckpt_error *err) {
  char room[N_ROOM];
  uint32_t n_sums = 0;
  for (uint32_t i = 0; i < imatrix->n_tensors; i++) {
    const ckpt_tensor *tensor = &imatrix->tensors[i];
    size_t n;
    if (ends(tensor->name, SUMS, &n)) {
      n_sums++;
      ckpt_status status = check_pair(tensor, find(imatrix, tensor->name, n, COUNTS, room, sizeof room), err);
      if (status != CKPT_OK) return ckpt_fail_at(status, err, imatrix->path, NULL);
    } else if (ends(tensor->name, COUNTS, &n) || ends(tensor->name, MEANS, &n)) {
      if (find(imatrix, tensor->name, n, SUMS, room, sizeof room) != NULL) continue;
      return ckpt_fail(err, CKPT_EFORMAT, imatrix->path, tensor->name, "has no sums beside it (%s)", SUMS);
    } else {
      return ckpt_fail(err, CKPT_EFORMAT, imatrix->path, tensor->name,
                       "is no part of an importance matrix (NAME%s and NAME%s)", SUMS, COUNTS);
    }
  }
  if (n_sums != 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, imatrix->path, NULL, "holds no importance matrix");
}

ckpt_status ckpt_imatrix_expr(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *imatrix, const ckpt_tensor *tensor,
                              ckpt_error *err) {
  char room[N_ROOM];
  const size_t n_name = strlen(tensor->name);
  *out = NULL;
  const ckpt_tensor *sums = find(imatrix, tensor->name, n_name, SUMS, room, sizeof room);
  const ckpt_tensor *counts = find(imatrix, tensor->name, n_name, COUNTS, room, sizeof room);
  if (sums == NULL || counts == NULL || tensor->rank == 0) return CKPT_OK;
  const uint64_t n_columns = tensor->shape[tensor->rank - 1];
  const uint64_t n_matrices = tensor->rank >= 3 ? tensor->shape[tensor->rank - 3] : 1;
  if (n_columns == 0 || sums->n_elements / n_columns != n_matrices || sums->n_elements % n_columns != 0)
    return ckpt_fail(err, CKPT_EDIFFERENT, imatrix->path, tensor->name,
                     "%llu channel%s, the tensor has %llu in each of %llu matri%s (made from another model?)",
                     (unsigned long long)sums->n_elements, ckpt_plural(sums->n_elements), (unsigned long long)n_columns,
                     (unsigned long long)n_matrices, n_matrices == 1 ? "x" : "ces");
  ckpt_expr *args[2];
  CKPT_TRY(ckpt_expr_read(&args[0], plan, imatrix, sums, err));
  CKPT_TRY(ckpt_expr_read(&args[1], plan, imatrix, counts, err));
  return ckpt_expr_apply(out, plan, &ckpt_op_importance, CKPT_F32, args, 2, NULL, err);
}

ckpt_status ckpt_imatrix_fits(const ckpt_index *imatrix, const ckpt_index *model, uint32_t *n_entries,
                              ckpt_error *err) {
  char room[N_ROOM];
  const char *first = NULL;
  uint32_t n_strange = 0;
  *n_entries = 0;
  for (uint32_t i = 0; i < imatrix->n_tensors; i++) {
    size_t n;
    const char *name = imatrix->tensors[i].name;
    if (!ends(name, SUMS, &n)) continue;
    ++*n_entries;
    if (find(model, name, n, "", room, sizeof room) != NULL) continue;
    if (n_strange++ == 0) first = name;
  }
  if (n_strange == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EDIFFERENT, imatrix->path, first,
                   "%u of its %u entr%s are of no tensor of %s (made from another model?)", n_strange, *n_entries,
                   *n_entries == 1 ? "y" : "ies", model->path);
}
