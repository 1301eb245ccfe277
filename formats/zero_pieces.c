/* zero_pieces.c - from what ranks hold to tensors: the pieces of a parameter, in order, are its extents.
 *
 * Relies on the readers to add the pieces of one parameter in the order of its elements: ranks in order, and on each
 * rank one group after the other. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/checked.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"

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

ckpt_status ckpt_zero_sort_pieces(ckpt_zero *zero, ckpt_error *err) {
  CKPT_TRY(check_held(zero, err));
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
  uint32_t longest = 1;
  for (uint32_t i = 0; i < zero->n_params; i++)
    if (zero->params[i].n_pieces > longest) longest = zero->params[i].n_pieces;
  zero->extents = reallocarray(NULL, longest, sizeof *zero->extents);
  CKPT_TRY_ALLOC(zero->extents, err);
  return CKPT_OK;
}

/* One for a whole flat: that of the first rank that has some of the parameter. */
static void make_scalar(ckpt_zero *zero, const ckpt_zero_param *param, uint32_t slot, uint32_t *n) {
  if (param->n_pieces == 0) return;
  zero->extents[0] = zero->flats[zero->pieces[param->first_piece].flat].extents[slot];
  zero->extents[0].start = 0;
  zero->extents[0].count = 1;
  *n = 1;
}

ckpt_status ckpt_zero_add_param(ckpt_zero *zero, const ckpt_zero_param *param, uint32_t slot, const char *name,
                                ckpt_role role, uint32_t *number, ckpt_error *err) {
  ckpt_dtype dtype = (ckpt_dtype)(param->group == UINT32_MAX ? param->dtype : zero->slots[slot].dtype);
  bool is_scalar = zero->slots[slot].is_scalar;
  uint64_t start = 0;
  uint32_t n = 0;
  if (dtype == CKPT_DTYPE_NONE) /* frozen, without elements */
    return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, name, "no rank has a fragment of it");
  if (is_scalar) make_scalar(zero, param, slot, &n);
  for (uint32_t i = 0; i < param->n_pieces && !is_scalar; i++) {
    const ckpt_zero_piece *piece = &zero->pieces[param->first_piece + i];
    zero->extents[n++] = ckpt_zero_part(&zero->flats[piece->flat].extents[slot], dtype, piece->at, piece->count, start);
    start += piece->count;
  }
  if (is_scalar && n == 0) return CKPT_OK; /* of a parameter without elements, which nobody steps */
  return ckpt_index_add(zero->index, name, strlen(name), dtype, is_scalar ? 0 : param->rank, param->shape, role,
                        zero->extents, n, number, err);
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
    const ckpt_zero_param *param = &zero->params[i];
    for (uint32_t slot = 0; slot < zero->n_slots && param->group != UINT32_MAX; slot++) {
      CKPT_TRY(ckpt_zero_name_state(name, &role, param->name, zero->slots[slot].key, err));
      CKPT_TRY(ckpt_zero_add_param(zero, param, slot, name, role, NULL, err));
    }
  }
  return CKPT_OK;
}
