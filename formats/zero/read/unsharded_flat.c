/* unsharded_flat.c - the optimizer of a run in fp16 or bf16 without ZeRO that FusedAdam steps (FP16_Optimizer): whole
 * in the model file, of each group one row of masters and one of each state, as ranks have them in stages 1 and 2.
 *
 *   {"optimizer_state_dict": {"state": {group: {"exp_avg": row, ...}}, "param_groups": [{"params": [group], ...}]},
 *    "fp32_groups_flat": [row of each group]}
 *
 * Nothing says which parameters a row is of. One that has as many elements as the model is all of it, in its order;
 * else rows have the numbers of their groups for names, which is said, since no run goes on from them. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/rank.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

static bool is_trainable(const ckpt_tensor *tensor) {
  return tensor->role == CKPT_ROLE_PARAMETER && tensor->n_elements != 0; /* others no optimizer has */
}

/* The elements of the model, and how many parameters have them. */
static uint64_t count_model(const ckpt_index *index, uint32_t *n_params) {
  uint64_t n = 0;
  *n_params = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    if (!is_trainable(&index->tensors[i])) continue;
    n += index->tensors[i].n_elements; /* which files hold */
    ++*n_params;
  }
  return n;
}

/* All of the model, in one row. */
static ckpt_status cut_row(ckpt_zero *zero, ckpt_error *err) {
  uint64_t at = 0;
  for (uint32_t i = 0, p = 0; i < zero->index->n_tensors; i++) {
    const ckpt_tensor *tensor = &zero->index->tensors[i];
    if (!is_trainable(tensor)) continue;
    ckpt_zero_param *param = &zero->params[p];
    *param =
        (ckpt_zero_param){.name = tensor->name, .n_elements = tensor->n_elements, .rank = tensor->rank, .number = i};
    if (tensor->rank != 0) memcpy(param->shape, tensor->shape, tensor->rank * sizeof *param->shape);
    CKPT_TRY(ckpt_zero_add_piece(zero, p++, 0, at, param->n_elements, err));
    at += param->n_elements;
  }
  return CKPT_OK;
}

/* Rows as they are. */
static ckpt_status number_rows(ckpt_zero *zero, ckpt_error *err) {
  for (uint32_t g = 0; g < zero->n_groups; g++) {
    const uint64_t n = zero->flats[g].n;
    const char *name = ckpt_arena_printf(&zero->index->arena, "%u", g);
    CKPT_TRY_ALLOC(name, err);
    zero->params[g] =
        (ckpt_zero_param){.name = name, .shape = {n}, .rank = 1, .n_elements = n, .group = g, .number = g};
    CKPT_TRY(ckpt_zero_add_piece(zero, g, g, 0, n, err));
  }
  return CKPT_OK;
}

/* Whether there is a row of masters for each group, and none has more than one parameter: its own row. */
static bool is_known(const ckpt_zero_rank *r) {
  enum { MAX_GROUPS = 4096 };
  if (r->flats->kind != CKPT_OBJECT_LIST || r->flats->n == 0 || r->groups == NULL || r->groups->n != r->flats->n ||
      r->groups->kind != CKPT_OBJECT_LIST || r->groups->n > MAX_GROUPS || r->states == NULL ||
      r->states->kind != CKPT_OBJECT_DICT)
    return false;
  for (uint64_t g = 0; g < r->groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(r->groups->items[g], "params");
    if (params == NULL || params->kind != CKPT_OBJECT_LIST || params->n != 1 ||
        ckpt_zero_number(params->items[0]) != (int64_t)g)
      return false;
  }
  return true;
}

static ckpt_status note_numbers(ckpt_zero *zero, uint64_t n_model, ckpt_error *err) {
  ckpt_index *index = zero->index;
  if (zero->n_groups != 1)
    CKPT_TRY(ckpt_index_note(index, false, err,
                             "the optimizer has a row of masters for each of %u groups, and nothing says which "
                             "parameters are in which: its states are called by number",
                             zero->n_groups));
  else
    CKPT_TRY(ckpt_index_note(index, false, err,
                             "the optimizer has a row of %llu masters, the model %llu elements, and nothing says which "
                             "of them are trained: its states are called by number",
                             (ull)zero->flats[0].n, (ull)n_model));
  return ckpt_index_note_is(index, CKPT_NOTE_STATE_LEFT, NULL, err);
}

ckpt_status ckpt_zero_add_flat(ckpt_zero *zero, const ckpt_zero_file *file, bool *is_read, ckpt_error *err) {
  const ckpt_object *optimizer = ckpt_object_get(file->graph.root, "optimizer");
  ckpt_zero_rank r = {.file = *file, .inner = ckpt_object_get(optimizer, "optimizer_state_dict")};
  r.flats = ckpt_object_get(optimizer, "fp32_groups_flat");
  r.states = ckpt_object_get(r.inner, "state");
  r.groups = ckpt_object_get(r.inner, "param_groups");
  *is_read = is_known(&r);
  if (!*is_read) return CKPT_OK;
  uint32_t n_params;
  const uint64_t n_model = count_model(zero->index, &n_params);
  const ckpt_tensor *row = ckpt_zero_tensor(file, r.flats->items[0]);
  const bool is_all = r.flats->n == 1 && row != NULL && row->n_elements == n_model;
  CKPT_TRY(ckpt_zero_renew_params(zero, is_all ? n_params : (uint32_t)r.flats->n, (uint32_t)r.flats->n, err));
  zero->groups = r.groups;
  CKPT_TRY(ckpt_zero_find_slots(zero, &r, err));
  CKPT_TRY(ckpt_zero_add_flats(zero, &r, err));
  CKPT_TRY(is_all ? cut_row(zero, err) : number_rows(zero, err));
  CKPT_TRY(ckpt_zero_sort_pieces(zero, err));
  CKPT_TRY(ckpt_zero_sort_params(zero, err));
  return is_all ? CKPT_OK : note_numbers(zero, n_model, err);
}
