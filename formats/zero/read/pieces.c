/* pieces.c - from what ranks hold to tensors: the pieces of a parameter, in order, are its extents.
 *
 * Relies on the readers to add the pieces of one parameter in the order of its elements: ranks in order, and on each
 * rank one group after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

ckpt_status ckpt_zero_add_piece(ckpt_zero *zero, uint32_t param, uint32_t flat, uint64_t at, uint64_t count,
                                ckpt_error *err) {
  ckpt_zero_flat *of = &zero->flats[flat];
  if (!ckpt_range_within(at, count, of->n) || count > of->n - of->n_taken)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, zero->params[param].name,
                     "%llu element%s of it are said to begin at %llu of a partition of %llu", (ull)count,
                     ckpt_plural(count), (ull)at, (ull)of->n);
  of->n_taken += count;
  zero->params[param].n_held += count; /* less than all flats have */
  if (count == 0) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&zero->pieces, zero->n_pieces, &zero->piece_capacity, sizeof *zero->pieces, err));
  zero->pieces[zero->n_pieces++] = (ckpt_zero_piece){.at = at, .count = count, .param = param, .flat = flat};
  zero->params[param].n_pieces++;
  return CKPT_OK;
}

static ckpt_status check_held(const ckpt_zero *zero, ckpt_error *err) {
  for (uint32_t i = 0; i < zero->n_params; i++) {
    const ckpt_zero_param *param = &zero->params[i];
    bool is_whole = param->group == UINT32_MAX && zero->stage < 3; /* frozen, and stored with the model */
    is_whole = is_whole || (zero->is_universal && param->group != UINT32_MAX && param->is_other);
    if (is_whole || param->n_held == param->n_elements) continue;
    if (param->n_held == 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name, "no rank holds any of its %llu element%s",
                       (ull)param->n_elements, ckpt_plural(param->n_elements));
    return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name,
                     "the ranks hold %llu element%s of it, its shape has %llu", (ull)param->n_held,
                     ckpt_plural(param->n_held), (ull)param->n_elements);
  }
  return CKPT_OK;
}

static int compare_places(const void *a, const void *b) {
  const ckpt_zero_piece *x = a, *y = b;
  if (x->flat != y->flat) return x->flat < y->flat ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

/* No element of a partition is two parameters', as mappings can say it; other readers cut what nobody has yet. */
static ckpt_status check_apart(const ckpt_zero *zero, ckpt_error *err) {
  const uint32_t n = zero->n_pieces;
  ckpt_zero_piece *sorted = reallocarray(NULL, (size_t)n + 1, sizeof *sorted);
  CKPT_TRY_ALLOC(sorted, err);
  ckpt_status status = CKPT_OK;
  if (n != 0) memcpy(sorted, zero->pieces, n * sizeof *sorted);
  if (n != 0) qsort(sorted, n, sizeof *sorted, compare_places);
  for (uint32_t i = 1; i < n && status == CKPT_OK; i++) {
    const ckpt_zero_piece *before = &sorted[i - 1], *piece = &sorted[i];
    if (piece->flat != before->flat || piece->at - before->at >= before->count) continue;
    status =
        ckpt_fail(err, CKPT_EFORMAT, zero->index->path, zero->params[piece->param].name,
                  "begins at %llu of a partition, and %llu element%s of %.200s at %llu of it", (ull)piece->at,
                  (ull)before->count, ckpt_plural(before->count), zero->params[before->param].name, (ull)before->at);
  }
  free(sorted);
  return status;
}

ckpt_status ckpt_zero_sort_pieces(ckpt_zero *zero, ckpt_error *err) {
  CKPT_TRY(check_held(zero, err));
  if (zero->is_mapped) CKPT_TRY(check_apart(zero, err));
  ckpt_zero_piece *sorted = reallocarray(NULL, (size_t)zero->n_pieces + 1, sizeof *sorted);
  CKPT_TRY_ALLOC(sorted, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < zero->n_params; i++) {
    zero->params[i].first_piece = n;
    n += zero->params[i].n_pieces;
    zero->params[i].n_pieces = 0;
  }
  for (uint32_t i = 0; i < zero->n_pieces; i++) {
    ckpt_zero_param *param = &zero->params[zero->pieces[i].param];
    sorted[param->first_piece + param->n_pieces++] = zero->pieces[i];
  }
  free(zero->pieces);
  zero->pieces = sorted;
  return CKPT_OK;
}

/* What the n-th stage of a pipeline that has a copy of a parameter has; NULL: there are not so many. */
static const ckpt_zero_param *twin_of(const ckpt_zero *zero, const ckpt_zero_param *param) {
  const char *name = param->name;
  for (uint32_t n = 0; n < zero->twin && param != NULL; n++) {
    const uint32_t next = ckpt_zero_lower(zero, (param->shard / zero->n_tensor + 1) * zero->n_tensor, name);
    param = next == zero->n_params ? NULL : &zero->params[zero->by_name[next]];
    if (param != NULL && strcmp(param->name, name) != 0) param = NULL;
  }
  return param;
}

const ckpt_zero_param *ckpt_zero_stand_in(const ckpt_zero *zero, const ckpt_zero_param *param) {
  if (param->is_other) return NULL;
  if (zero->twin != 0) return twin_of(zero, param);
  if (zero->copy == 0) return param;
  const bool is_copied = param->cut != NULL && param->cut->is_replicated && !zero->is_universal;
  return is_copied && zero->copy < param->cut->n_slices ? ckpt_zero_find(zero, param->shard + zero->copy, param->name)
                                                        : NULL;
}

/* One for a whole flat: that of the first rank that has some of the parameter. */
static ckpt_status add_scalar(ckpt_zero *zero, const ckpt_zero_param *param, uint32_t slot, const char *name,
                              ckpt_role role, uint32_t *number, ckpt_error *err) {
  if (param->n_pieces == 0) return CKPT_OK; /* of a parameter without elements, which nobody steps */
  ckpt_extent extent = zero->flats[zero->pieces[param->first_piece].flat].extents[slot];
  extent.start = 0;
  extent.count = 1;
  return ckpt_index_add(zero->index, name, strlen(name), (ckpt_dtype)zero->slots[slot].dtype, 0, NULL, role, &extent, 1,
                        number, err);
}

/* The pieces of a slice. */
static ckpt_status join_pieces(ckpt_zero_join *join, const ckpt_zero_param *param, uint32_t slice, uint32_t slot,
                               ckpt_error *err) {
  const ckpt_zero *zero = join->zero;
  uint64_t start = 0;
  for (uint32_t i = 0; i < param->n_pieces; i++) {
    const ckpt_zero_piece *piece = &zero->pieces[param->first_piece + i];
    if (slot != 0 && (zero->flats[piece->flat].slots >> slot & 1) == 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name, "not all ranks have %s of their parts of it",
                       zero->slots[slot].key);
    const ckpt_zero_flat *flat = &zero->flats[piece->flat];
    const uint64_t n_before = slot != 0 && slot == flat->muon ? flat->n_skipped : 0;
    const ckpt_zero_held held = {&flat->extents[slot], n_before + piece->at, start, piece->count, NULL};
    CKPT_TRY(ckpt_zero_join_add(join, slice, &held, err));
    start += piece->count;
  }
  return CKPT_OK;
}

/* How a parameter's slices make it; NULL: what is held is all of it. A copy's is that of the first slice. */
static const ckpt_zero_cut *cut_of(const ckpt_zero *zero, const ckpt_zero_param *param) {
  if (zero->is_universal && param->group != UINT32_MAX) return NULL;
  return zero->copy == 0 ? param->cut : ckpt_zero_find(zero, param->shard - zero->copy, param->name)->cut;
}

ckpt_status ckpt_zero_add_param(ckpt_zero *zero, const ckpt_zero_param *param, uint32_t slot, ckpt_dtype as,
                                const char *name, ckpt_role role, uint32_t *number, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)(param->group == UINT32_MAX ? param->dtype : zero->slots[slot].dtype);
  const ckpt_zero_cut *cut = cut_of(zero, param);
  ckpt_zero_join join;
  if (dtype == CKPT_DTYPE_NONE) /* frozen, without elements */
    return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, name, "no rank has a fragment of it");
  if (zero->slots[slot].is_scalar) return add_scalar(zero, param, slot, name, role, number, err);
  CKPT_TRY(ckpt_zero_join_begin(&join, zero, cut, dtype, false, err));
  if (as != CKPT_DTYPE_NONE) join.as = as;
  CKPT_TRY(join_pieces(&join, param, 0, slot, err));
  for (uint32_t t = 1; cut != NULL && !cut->is_replicated && t < cut->n_slices; t++) {
    const ckpt_zero_param *slice = ckpt_zero_find(zero, param->shard + t, param->name);
    if (slice->group == UINT32_MAX && slice->dtype != param->dtype)
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[slice->shard].file.path, name,
                       "a slice of %s, and others are %s", ckpt_dtype_name((ckpt_dtype)slice->dtype),
                       ckpt_dtype_name(dtype));
    CKPT_TRY(join_pieces(&join, slice, t, slot, err));
  }
  return ckpt_zero_join_end(&join, name, role, param->rank, param->shape, number, err);
}

ckpt_status ckpt_zero_name_state(char name[CKPT_ZERO_NAME_BYTES], ckpt_role *role, const char *parameter,
                                 const char *key, ckpt_error *err) {
  const ckpt_torch_state *state = ckpt_torch_state_of(key, strlen(key));
  int n = snprintf(name, CKPT_ZERO_NAME_BYTES, CKPT_STATE_PREFIX "%s.%s", parameter, state == NULL ? key : state->name);
  *role = state == NULL ? CKPT_ROLE_OTHER : state->role;
  if (n >= 0 && n < CKPT_ZERO_NAME_BYTES) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a parameter's name is too long");
}

ckpt_status ckpt_zero_add_states(ckpt_zero *zero, ckpt_error *err) {
  char name[CKPT_ZERO_NAME_BYTES];
  ckpt_role role;
  for (uint32_t i = 0; i < zero->n_params; i++) {
    const ckpt_zero_param *param = ckpt_zero_stand_in(zero, &zero->params[i]);
    const bool has_pieces = param != NULL && param->n_pieces != 0;
    const uint32_t slots = has_pieces ? zero->flats[zero->pieces[param->first_piece].flat].slots | 1 : UINT32_MAX;
    for (uint32_t slot = 0; param != NULL && slot < zero->n_slots && param->group != UINT32_MAX; slot++) {
      if ((slots >> slot & 1) == 0) continue;
      CKPT_TRY(ckpt_zero_name_state(name, &role, param->name, zero->slots[slot].key, err));
      CKPT_TRY(ckpt_zero_add_param(zero, param, slot, CKPT_DTYPE_NONE, name, role, NULL, err));
    }
  }
  return CKPT_OK;
}
