/* params.c - the parameters of a ZeRO checkpoint, which its model files list: param_shapes, and frozen ones.
 *
 * In stage 3 a frozen parameter's fragments, one on each rank, are in the model files, too. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"

typedef unsigned long long ull;

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static ckpt_status bad(const ckpt_zero_file *file, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL, "%s: no model file of ZeRO", what);
}

bool ckpt_zero_is_name(const ckpt_object *key) {
  return key->kind == CKPT_OBJECT_TEXT && key->n != 0 && strlen(key->text) == key->n;
}

static ckpt_status add_params(ckpt_zero *zero, uint32_t shard, const ckpt_object *shapes, uint32_t group,
                              ckpt_error *err) {
  const ckpt_zero_file *file = &zero->shards[shard].file;
  const uint32_t n_before = zero->n_params - zero->shards[shard].first_param;
  enum { ENTRY_BYTES = 8 }; /* of a pickle for a name of its own and a shape, at least: one table can stand for many */
  const uint64_t n_max = file->n_pickled / ENTRY_BYTES;
  if (shapes->kind != CKPT_OBJECT_DICT) return bad(file, "param_shapes is no list of tables", err);
  if (n_before > n_max || shapes->n > n_max - n_before)
    return bad(file, "param_shapes says the same again and again", err);
  for (uint64_t i = 0; i < shapes->n; i++) {
    const ckpt_object *key = shapes->items[2 * i];
    if (!ckpt_zero_is_name(key)) return bad(file, "a name in param_shapes is no text", err);
    CKPT_TRY(ckpt_grow(&zero->params, zero->n_params, &zero->param_capacity, sizeof *zero->params, err));
    ckpt_zero_param *param = &zero->params[zero->n_params++];
    *param = (ckpt_zero_param){.name = key->text, .group = group, .shard = shard, .number = UINT32_MAX};
    if (!ckpt_foreign_u64s(shapes->items[2 * i + 1], param->shape, CKPT_MAX_RANK, &param->rank) ||
        !ckpt_product_u64(param->shape, param->rank, &param->n_elements))
      return ckpt_fail(err, CKPT_EFORMAT, file->path, param->name, "its shape in param_shapes is none of a tensor");
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_renew_params(ckpt_zero *zero, uint32_t n, uint32_t n_groups, ckpt_error *err) {
  free(zero->params);
  free(zero->by_name);
  zero->by_name = NULL;
  zero->n_params = 0;
  CKPT_TRY_ALLOC(zero->params = calloc((size_t)n + 1, sizeof *zero->params), err);
  zero->n_params = n;
  zero->n_groups = n_groups;
  for (uint32_t s = 0; s < zero->n_shards; s++) {
    zero->shards[s].first_param = zero->shards[s].n_params = 0;
    zero->shards[s].n_shapes = n_groups;
  }
  zero->shards[0].n_params = n;
  return CKPT_OK;
}

static int compare_numbers(const void *a, const void *b, void *params) {
  const ckpt_zero_param *of = params;
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  int order = strcmp(of[x].name, of[y].name);
  return order != 0 ? order : (x > y) - (x < y); /* numbers go up with shards */
}

ckpt_status ckpt_zero_sort_params(ckpt_zero *zero, ckpt_error *err) {
  zero->by_name = reallocarray(NULL, (size_t)zero->n_params + 1, sizeof *zero->by_name);
  CKPT_TRY_ALLOC(zero->by_name, err);
  for (uint32_t i = 0; i < zero->n_params; i++) zero->by_name[i] = i;
  if (zero->n_params > 1) qsort_r(zero->by_name, zero->n_params, sizeof *zero->by_name, compare_numbers, zero->params);
  for (uint32_t i = 1; i < zero->n_params; i++) {
    const ckpt_zero_param *param = &zero->params[zero->by_name[i]], *before = &zero->params[zero->by_name[i - 1]];
    if (before->shard == param->shard && strcmp(before->name, param->name) == 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[param->shard].file.path, param->name, "twice in param_shapes");
  }
  return CKPT_OK;
}

static ckpt_status read_shard(ckpt_zero *zero, uint32_t number, ckpt_error *err) {
  ckpt_zero_shard *shard = &zero->shards[number];
  const ckpt_zero_file *file = &shard->file;
  shard->first_param = zero->n_params;
  const ckpt_object *shapes = ckpt_object_get(file->graph.root, "param_shapes");
  const ckpt_object *frozen = ckpt_object_get(file->graph.root, "frozen_param_shapes");
  if (shapes != NULL && shapes->kind == CKPT_OBJECT_DICT) { /* one group, before 0.3.17 */
    CKPT_TRY(add_params(zero, number, shapes, shard->n_shapes++, err));
  } else if (shapes != NULL && shapes->kind == CKPT_OBJECT_LIST) {
    for (uint64_t i = 0; i < shapes->n; i++)
      CKPT_TRY(add_params(zero, number, shapes->items[i], shard->n_shapes++, err));
  } else if (shapes != NULL && shapes->kind != CKPT_OBJECT_NONE) {
    return bad(file, "param_shapes is no list", err);
  }
  if (frozen != NULL && frozen->kind != CKPT_OBJECT_NONE) CKPT_TRY(add_params(zero, number, frozen, UINT32_MAX, err));
  shard->n_params = zero->n_params - shard->first_param;
  return CKPT_OK;
}

ckpt_status ckpt_zero_read_params(ckpt_zero *zero, ckpt_error *err) {
  for (uint32_t i = 0; i < zero->n_shards; i++) CKPT_TRY(read_shard(zero, i, err));
  return ckpt_zero_sort_params(zero, err);
}

uint32_t ckpt_zero_lower(const ckpt_zero *zero, uint32_t shard, const char *name) {
  uint32_t low = 0, high = zero->n_params;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    const ckpt_zero_param *param = &zero->params[zero->by_name[middle]];
    int order = strcmp(param->name, name);
    if (order < 0 || (order == 0 && param->shard < shard))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

ckpt_zero_param *ckpt_zero_find(const ckpt_zero *zero, uint32_t shard, const char *name) {
  const uint32_t i = ckpt_zero_lower(zero, shard, name);
  ckpt_zero_param *param = i == zero->n_params ? NULL : &zero->params[zero->by_name[i]];
  return param == NULL || param->shard != shard || strcmp(param->name, name) != 0 ? NULL : param;
}

ckpt_zero_param *ckpt_zero_find_any(const ckpt_zero *zero, const char *name) {
  const uint32_t i = ckpt_zero_lower(zero, 0, name);
  ckpt_zero_param *param = i == zero->n_params ? NULL : &zero->params[zero->by_name[i]];
  return param == NULL || strcmp(param->name, name) != 0 ? NULL : param;
}

/* ---- frozen parameters in stage 3 -------------------------------------------------------------------------------- */

/* Whether a fragment has the name before it as well: we write those of ties under all their names. */
static bool is_named_again(const ckpt_object *fragments, uint64_t i) {
  const ckpt_object *leaf = fragments->items[2 * i + 1], *before = i == 0 ? NULL : fragments->items[2 * i - 1];
  return before != NULL && leaf->kind == CKPT_OBJECT_TENSOR && before->kind == CKPT_OBJECT_TENSOR &&
         leaf->tensor == before->tensor;
}

static ckpt_status add_fragments(ckpt_zero *zero, const ckpt_zero_file *file, uint32_t shard, uint32_t rank,
                                 ckpt_error *err) {
  const ckpt_object *fragments = ckpt_object_get(file->graph.root, "frozen_param_fragments");
  for (uint64_t i = 0; fragments != NULL && fragments->kind == CKPT_OBJECT_DICT && i < fragments->n; i++) {
    const ckpt_object *key = fragments->items[2 * i];
    ckpt_zero_param *param = ckpt_zero_is_name(key) ? ckpt_zero_find(zero, shard, key->text) : NULL;
    if (param == NULL && ckpt_zero_is_name(key) && is_named_again(fragments, i)) continue;
    if (param == NULL || param->group != UINT32_MAX)
      return bad(file, "a fragment of a parameter that is not in frozen_param_shapes", err);
    uint64_t n = param->n_elements, part = n / zero->world + (n % zero->world != 0);
    uint64_t before = part == 0 || rank > n / part ? n : rank * part, held = n - before < part ? n - before : part;
    CKPT_TRY(ckpt_grow(&zero->flats, zero->n_flats, &zero->flat_capacity, sizeof *zero->flats, err));
    ckpt_zero_flat *flat = &zero->flats[zero->n_flats];
    *flat = (ckpt_zero_flat){0};
    uint8_t dtype;
    CKPT_TRY(ckpt_zero_flat_of(file, fragments->items[2 * i + 1], "a frozen parameter's fragment", &flat->extents[0],
                               &flat->n, &dtype, err));
    if (rank == 0) param->dtype = dtype;
    if (flat->n != part || dtype != param->dtype)
      return ckpt_fail(err, CKPT_EFORMAT, file->path, param->name,
                       "its fragment has %llu element%s of %s, a rank's part is %llu of %s", (ull)flat->n,
                       ckpt_plural(flat->n), ckpt_dtype_name((ckpt_dtype)dtype), (ull)part,
                       ckpt_dtype_name((ckpt_dtype)param->dtype));
    CKPT_TRY(ckpt_zero_add_piece(zero, (uint32_t)(param - zero->params), zero->n_flats++, 0, held, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_read_rank_models(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_files *models = &zero->models;
  for (uint32_t i = 0; i < models->n * models->n_shards; i++) {
    const uint32_t shard = i / models->n, rank = i % models->n;
    const ckpt_zero_file *first = &zero->shards[shard].file;
    ckpt_zero_file file = {0};
    ckpt_status status = rank == 0 ? CKPT_OK : ckpt_zero_open(&file, zero, models->paths[i], err);
    const ckpt_zero_file *of = rank == 0 ? first : &file;
    if (status == CKPT_OK) status = ckpt_zero_same_step(of, first, err);
    if (status == CKPT_OK && zero->stage == 3) status = add_fragments(zero, of, shard, rank, err);
    if (status == CKPT_OK && i != 0) status = ckpt_zero_compare_client(zero, of, err);
    ckpt_zero_close(&file);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}
