/* universal.c - DeepSpeed's universal checkpoints (ds_to_universal): reading.
 *
 *   latest_universal                                      the tag
 *   global_step3_universal/..._model_states.pt            the model files of the ZeRO checkpoint that it came from
 *                          zero/optimizer_state.pt        {"param_groups", "loss_scaler", "zero_stage", ...}
 *                          zero/<parameter>/fp32.pt       {"param": tensor, "cat_dim", ...}, or of stage 3 a tensor
 *                          zero/<parameter>/exp_avg.pt, exp_avg_sq.pt, step.pt
 *
 * A parameter's files are flats that hold all of it, so that the rest is as zero*.c has it. Folders below zero/ of what
 * the model file stores whole (buffers, frozen and tied parameters, cast to fp32) are passed over. docs/formats/zero.md
 * has the layout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/index/defects.h"
#include "libckpt/index/name_table.h"

typedef unsigned long long ull;

/* ---- one parameter ----------------------------------------------------------------------------------------------- */

/* The path of a file below zero/; with empty texts that of a folder. */
static const char *path_of(const ckpt_zero *zero, const char *name, const char *file) {
  const char *slash = zero->folder[0] == '\0' ? "" : "/";
  return ckpt_arena_printf(&zero->index->arena, "%s%szero%s%s%s%s", zero->folder, slash, name[0] == '\0' ? "" : "/",
                           name, file[0] == '\0' ? "" : "/", file);
}

/* What is in a folder. */
typedef struct listing {
  ckpt_entry *entries;
  size_t n;
} listing;

/* Lists the folder of a parameter, or (name "") zero/ itself. */
static ckpt_status list_below(const ckpt_zero *zero, const char *name, listing *of, ckpt_error *err) {
  const char *folder = path_of(zero, name, "");
  CKPT_TRY_ALLOC(folder, err);
  return ckpt_list(&of->entries, &of->n, ckpt_source_root(zero->index->source), folder, err);
}

static bool has_file(const listing *of, const char *name) {
  size_t i = 0;
  while (i < of->n && strcmp(of->entries[i].name, name) != 0) i++;
  return i < of->n;
}

/* A parameter whose files are read, and the shape that its fp32.pt has. */
typedef struct folder {
  ckpt_zero_param *param;
  ckpt_zero_flat *flat;
  uint64_t shape[CKPT_MAX_RANK];
  uint8_t rank;
} folder;

/* Masters have the parameter's shape, or are flat, or have other axes (as sub-parameters are viewed); states have that
 * of the masters. */
static ckpt_status check_shape(folder *f, const ckpt_zero_file *file, const ckpt_tensor *tensor, uint32_t slot,
                               ckpt_error *err) {
  char here[CKPT_SHAPE_TEXT], there[CKPT_SHAPE_TEXT];
  ckpt_tensor wanted = {.rank = f->rank, .shape = f->shape};
  if (slot == 0) wanted = (ckpt_tensor){.rank = (uint8_t)f->param->rank, .shape = f->param->shape};
  if (!ckpt_tensor_same_shape(tensor, &wanted) && (slot != 0 || tensor->rank == wanted.rank))
    return ckpt_fail(err, CKPT_EFORMAT, file->path, f->param->name, "its shape is %s, and %s in %s",
                     ckpt_tensor_shape_text(tensor, here, sizeof here),
                     ckpt_tensor_shape_text(&wanted, there, sizeof there), slot == 0 ? "param_shapes" : "its fp32.pt");
  f->rank = tensor->rank;
  if (f->rank != 0) memcpy(f->shape, tensor->shape, f->rank * sizeof *f->shape);
  return CKPT_OK;
}

/* What a file holds in one slot of a parameter's flat. */
static ckpt_status take(ckpt_zero *zero, const ckpt_zero_file *file, folder *f, uint32_t slot, ckpt_error *err) {
  const ckpt_object *root = file->graph.root, *inner = ckpt_object_get(root, "param"),
                    *value = inner == NULL ? root : inner;
  const ckpt_zero_param *param = f->param;
  ckpt_zero_slot *of = &zero->slots[slot];
  uint8_t dtype;
  uint64_t n;
  CKPT_TRY(ckpt_zero_flat_of(file, value, "its value", &f->flat->extents[slot], &n, &dtype, err));
  if (slot == 0) f->flat->n = n;
  if (n != (of->is_scalar ? 1 : param->n_elements))
    return ckpt_fail(err, CKPT_EFORMAT, file->path, param->name, "it has %llu element%s, and %llu in param_shapes",
                     (ull)n, ckpt_plural(n), (ull)param->n_elements);
  if (!of->is_scalar) CKPT_TRY(check_shape(f, file, ckpt_zero_tensor(file, value), slot, err));
  if (of->dtype == CKPT_DTYPE_NONE) of->dtype = dtype;
  if (of->dtype == dtype) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, param->name, "%s, and others are %s",
                   ckpt_dtype_name((ckpt_dtype)dtype), ckpt_dtype_name((ckpt_dtype)of->dtype));
}

static ckpt_status read_slot(ckpt_zero *zero, folder *f, uint32_t slot, ckpt_error *err) {
  ckpt_zero_file file = {0};
  char name[CKPT_ZERO_KEY_BYTES + 4];
  const char *key = slot == 0 ? "fp32" : zero->slots[slot].key;
  memcpy(name, key, strlen(key));
  memcpy(name + strlen(key), ".pt", 4);
  const char *path = path_of(zero, f->param->name, name);
  CKPT_TRY_ALLOC(path, err);
  ckpt_status status = ckpt_zero_open(&file, zero, path, err);
  if (status == CKPT_OK) status = take(zero, &file, f, slot, err);
  ckpt_zero_close(&file);
  return status;
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

static bool is_state(const char *name) {
  const size_t n = strlen(name);
  return n > 3 && strcmp(name + n - 3, ".pt") == 0 && strcmp(name, "fp32.pt") != 0;
}

/* The slot of a file's name; 0: it has none. */
static uint32_t slot_of(const ckpt_zero *zero, const char *name) {
  const size_t n = strlen(name) - 3;
  for (uint32_t slot = 1; slot < zero->n_slots; slot++)
    if (strlen(zero->slots[slot].key) == n && memcmp(zero->slots[slot].key, name, n) == 0) return slot;
  return 0;
}

/* A state by its file in the folder of the first parameter that has it; a step that is no tensor stays in the groups.
 */
static ckpt_status add_slot(ckpt_zero *zero, const ckpt_zero_param *param, const char *name, ckpt_error *err) {
  size_t n = strlen(name);
  if (n - 3 >= CKPT_ZERO_KEY_BYTES || zero->n_slots == CKPT_ZERO_SLOTS)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, param->name, "more than %d states of it",
                     CKPT_ZERO_SLOTS - 1);
  ckpt_zero_file file = {0};
  const char *path = path_of(zero, param->name, name);
  CKPT_TRY_ALLOC(path, err);
  ckpt_status status = ckpt_zero_open(&file, zero, path, err);
  const ckpt_object *value = status == CKPT_OK ? ckpt_object_get(file.graph.root, "param") : NULL;
  const ckpt_tensor *tensor =
      status == CKPT_OK ? ckpt_zero_tensor(&file, value == NULL ? file.graph.root : value) : NULL;
  const bool is_step = strcmp(name, "step.pt") == 0;
  const bool is_number = status == CKPT_OK && is_step && tensor == NULL &&
                         (file.graph.root->kind == CKPT_OBJECT_INT || file.graph.root->kind == CKPT_OBJECT_FLOAT);
  if (tensor != NULL) {
    ckpt_zero_slot *slot = &zero->slots[zero->n_slots++]; /* of a parameter without axes not only the step has none */
    *slot = (ckpt_zero_slot){.is_scalar = tensor->rank == 0 && (param->rank != 0 || is_step)};
    memcpy(slot->key, name, n - 3);
  }
  if (is_number)
    status = ckpt_zero_take_step(zero, param->group, file.graph.root, err);
  else if (status == CKPT_OK && tensor == NULL)
    status = ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "it is no tensor: its state would be lost");
  status = ckpt_fail_at(status, err, file.path, param->name);
  ckpt_zero_close(&file);
  return status;
}

static ckpt_status find_slots(ckpt_zero *zero, const ckpt_zero_param *param, const listing *held, ckpt_error *err) {
  for (size_t i = 0; i < held->n; i++) {
    const char *name = held->entries[i].name;
    if (!held->entries[i].is_folder && is_state(name) && slot_of(zero, name) == 0)
      CKPT_TRY(add_slot(zero, param, name, err));
  }
  return CKPT_OK;
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The step of all parameters, where rank 0's optimizer state is kept whole, as of stage 3: numbers are of each group.
 */
static ckpt_status find_step(ckpt_zero *zero, const ckpt_zero_file *file, bool is_common, ckpt_extent *step,
                             uint8_t *dtype, ckpt_error *err) {
  const ckpt_object *states = ckpt_object_get(ckpt_object_get(file->graph.root, "optimizer_state_dict"), "state");
  const ckpt_object *first =
      states == NULL || states->kind != CKPT_OBJECT_DICT || states->n == 0 ? NULL : states->items[1];
  const ckpt_object *value = first == NULL ? NULL : ckpt_object_field(first, "step");
  int64_t of_first, of_other;
  uint64_t n;
  CKPT_TRY(ckpt_zero_step_of(zero, file, value, &of_first, err));
  for (uint64_t i = 0; first != NULL && i < states->n; i++) {
    const ckpt_object *state = states->items[2 * i + 1];
    const ckpt_object *said = state->kind == CKPT_OBJECT_DICT ? ckpt_object_field(state, "step") : NULL;
    const int64_t group = ckpt_zero_number(states->items[2 * i]);
    if (group >= 0 && group < zero->n_groups) CKPT_TRY(ckpt_zero_take_step(zero, (uint32_t)group, said, err));
    if (!is_common || ckpt_zero_tensor(file, said) == NULL || ckpt_zero_tensor(file, value) == NULL) continue;
    CKPT_TRY(ckpt_zero_step_of(zero, file, said, &of_other, err));
    if (of_other != of_first)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                       "state %llu of the optimizer is at step %lld, and the first at step %lld: one would be lost",
                       (ull)i, (long long)of_other, (long long)of_first);
  }
  if (ckpt_zero_tensor(file, value) == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_zero_flat_of(file, value, "the step", step, &n, dtype, err));
  if (n != 1) *dtype = CKPT_DTYPE_NONE;
  return CKPT_OK;
}

/* is_common: parameters have no step of their own. */
static ckpt_status read_common(ckpt_zero *zero, bool is_common, ckpt_extent *step, uint8_t *dtype, ckpt_error *err) {
  ckpt_zero_file file = {0};
  const char *path = path_of(zero, "optimizer_state.pt", "");
  CKPT_TRY_ALLOC(path, err);
  ckpt_status status = ckpt_zero_open(&file, zero, path, err);
  if (status == CKPT_OK) {
    int64_t stage = ckpt_zero_number(ckpt_object_get(file.graph.root, "zero_stage"));
    zero->stage = stage < 0 || stage > 3 ? 1 : (uint32_t)stage;
    zero->groups = ckpt_object_get(file.graph.root, "param_groups");
    zero->loss_scaler = ckpt_object_get(file.graph.root, "loss_scaler");
    status = ckpt_fail_at(find_step(zero, &file, is_common, step, dtype, err), err, file.path, NULL);
  }
  if (status == CKPT_OK) status = ckpt_zero_take_settings(zero, &file, file.graph.root, err);
  if (status == CKPT_OK) ckpt_zero_keep(&file, zero, NULL);
  ckpt_zero_close(&file);
  return status;
}

/* What model files have slices of is whole here. */
static ckpt_status take_merged(const ckpt_zero *zero, ckpt_zero_param *param, ckpt_error *err) {
  if (param->cut == NULL || param->group == UINT32_MAX) return CKPT_OK;
  memcpy(param->shape, param->cut->shape, param->rank * sizeof *param->shape);
  if (ckpt_product_u64(param->shape, param->rank, &param->n_elements)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name,
                   "its slices make a shape that is none of a tensor");
}

/* Whether it is of version 0.1, of BLOOM's training, and of the converters of before DeepSpeed 0.14: masters and
 * moments of a run below stage 3, without steps, groups or a loss scaler. Where a step is there, what is missing was
 * lost. */
static ckpt_status is_first_version(const ckpt_zero *zero, const listing *first, bool *is_first, ckpt_error *err) {
  listing held = {0};
  CKPT_TRY(list_below(zero, "", &held, err));
  *is_first = !has_file(&held, "optimizer_state.pt") && strncmp(zero->models.like, "mp_rank_", 8) == 0 &&
              first->n != 0 && !has_file(first, "step.pt");
  ckpt_list_free(held.entries, held.n);
  return CKPT_OK;
}

/* The slots that a folder fills, which are those of its kind; a step that is a number fills one behind them. common:
 * the slot of a step that all have; 0: none. */
static ckpt_status find_kind(ckpt_zero *zero, const ckpt_zero_param *param, const listing *held, uint32_t common,
                             uint32_t *bits, ckpt_error *err) {
  const uint32_t shared = ckpt_zero_shared_slots(zero) | 1u << CKPT_ZERO_SLOTS;
  *bits = common == 0 ? 1 : 1 | 1u << common;
  for (size_t i = 0; i < held->n; i++) {
    if (held->entries[i].is_folder || !is_state(held->entries[i].name)) continue;
    const uint32_t slot = slot_of(zero, held->entries[i].name);
    *bits |= 1u << (slot == 0 ? (uint32_t)CKPT_ZERO_SLOTS : slot);
  }
  const uint32_t wanted = ckpt_zero_kind_of(&zero->kinds, *bits, shared);
  for (uint32_t slot = 1; slot <= CKPT_ZERO_SLOTS; slot++) {
    if (((wanted ^ *bits) >> slot & 1) == 0) continue;
    char name[CKPT_ZERO_KEY_BYTES + 4];
    snprintf(name, sizeof name, "%s.pt", slot == CKPT_ZERO_SLOTS ? "step" : zero->slots[slot].key);
    const char *path = path_of(zero, param->name, name);
    CKPT_TRY_ALLOC(path, err);
    if (wanted >> slot & 1)
      return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, param->name,
                       "no %.300s, and others with its states have such a file", path);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, param->name,
                     "%.300s, and others with its states have no such file: its state would be lost", path);
  }
  return CKPT_OK;
}

static ckpt_status check_name(const ckpt_zero *zero, const ckpt_zero_param *param, ckpt_error *err) {
  if (strchr(param->name, '/') == NULL && param->name[0] != '.') return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name, "its name is no folder's");
}

static ckpt_status read_states(ckpt_zero *zero, folder *f, const listing *held, uint32_t common, ckpt_error *err) {
  CKPT_TRY(find_slots(zero, f->param, held, err));
  CKPT_TRY(find_kind(zero, f->param, held, common, &f->flat->slots, err));
  for (uint32_t slot = 1; slot < zero->n_slots; slot++) {
    const bool is_own = slot != common || has_file(held, "step.pt");
    if (is_own && (f->flat->slots >> slot & 1)) CKPT_TRY(read_slot(zero, f, slot, err));
  }
  return CKPT_OK;
}

/* All of a parameter as one flat. first: what is in the folder of the first one, which is listed once; NULL: it is
 * another. step: of all, in slot `common`. */
static ckpt_status read_param(ckpt_zero *zero, ckpt_zero_param *param, const listing *first, const ckpt_extent *step,
                              uint32_t common, ckpt_error *err) {
  listing held = {0};
  CKPT_TRY(check_name(zero, param, err));
  CKPT_TRY(ckpt_grow(&zero->flats, zero->n_flats, &zero->flat_capacity, sizeof *zero->flats, err));
  folder f = {.param = param, .flat = &zero->flats[zero->n_flats++]};
  *f.flat = (ckpt_zero_flat){0};
  if (common != 0) f.flat->extents[common] = *step;
  CKPT_TRY(read_slot(zero, &f, 0, err));
  ckpt_status status = first != NULL ? CKPT_OK : list_below(zero, param->name, &held, err);
  if (status == CKPT_OK) status = read_states(zero, &f, first != NULL ? first : &held, common, err);
  ckpt_list_free(held.entries, held.n);
  CKPT_TRY(status);
  return ckpt_zero_add_piece(zero, (uint32_t)(param - zero->params), zero->n_flats - 1, 0, param->n_elements, err);
}

/* All parameters, of which number `first` is the first that is trained; held: what is in its folder. */
static ckpt_status read_params(ckpt_zero *zero, uint32_t first, const listing *held, ckpt_error *err) {
  ckpt_extent step = {0};
  uint8_t dtype = CKPT_DTYPE_NONE;
  bool is_first;
  zero->n_groups = zero->shards[0].n_shapes; /* what groups number */
  CKPT_TRY(is_first_version(zero, held, &is_first, err));
  zero->stage = 1;
  if (is_first)
    CKPT_TRY(
        ckpt_index_note(zero->index, false, err,
                        "a universal checkpoint of version 0.1: it has no zero/optimizer_state.pt and no steps, so "
                        "that hyperparameters and steps are not known"));
  else
    CKPT_TRY(read_common(zero, !has_file(held, "step.pt"), &step, &dtype, err));
  zero->world = zero->stage == 3 ? zero->models.n : 1;
  zero->slots[0] = (ckpt_zero_slot){.key = "master"};
  zero->n_slots = 1;
  for (uint32_t i = 0; i < zero->n_params; i++) CKPT_TRY(take_merged(zero, &zero->params[i], err));
  if (first < zero->n_params) CKPT_TRY(find_slots(zero, &zero->params[first], held, err));
  uint32_t common = 0; /* the slot of a step that is kept once */
  if (dtype != CKPT_DTYPE_NONE && zero->n_slots < CKPT_ZERO_SLOTS && slot_of(zero, "step.pt") == 0) {
    common = zero->n_slots++;
    zero->slots[common] = (ckpt_zero_slot){.key = "step", .is_scalar = true, .dtype = dtype};
  }
  for (uint32_t i = 0; i < zero->n_params; i++)
    if (zero->params[i].group != UINT32_MAX && !zero->params[i].is_other)
      CKPT_TRY(read_param(zero, &zero->params[i], i == first ? held : NULL, &step, common, err));
  return CKPT_OK;
}

ckpt_status ckpt_zero_read_universal(ckpt_zero *zero, ckpt_error *err) {
  uint32_t first = 0;
  listing held = {0};
  while (first < zero->n_params && zero->params[first].group == UINT32_MAX) first++;
  if (first != zero->n_params) {
    CKPT_TRY(check_name(zero, &zero->params[first], err));
    CKPT_TRY(list_below(zero, zero->params[first].name, &held, err));
  }
  ckpt_status status = read_params(zero, first, &held, err);
  ckpt_list_free(held.entries, held.n);
  return status;
}

/* What is in a folder without being read there (buffers and frozen parameters are read from the model file) belongs to
 * the checkpoint all the same: who verifies gets its file, for its checksums. */
static ckpt_status show_file(const ckpt_zero *zero, const char *name, ckpt_error *err) {
  uint32_t file;
  uint64_t n_bytes;
  ckpt_error defect = {0};
  const char *path = path_of(zero, name, "fp32.pt");
  CKPT_TRY_ALLOC(path, err);
  if (zero->index->defects.report == NULL) return CKPT_OK;
  ckpt_status status = ckpt_source_add(zero->index->source, path, &file, &n_bytes, &defect);
  return status == CKPT_OK || ckpt_is_defect(status) ? CKPT_OK : ckpt_fail_as(err, status, NULL, NULL, &defect);
}

ckpt_status ckpt_zero_check_universal(const ckpt_zero *zero, ckpt_error *err) {
  ckpt_name_table *table = NULL;
  listing held = {0};
  CKPT_TRY(ckpt_name_table_new(&table, zero->index, err));
  ckpt_status status = list_below(zero, "", &held, err);
  for (size_t i = 0; i < held.n && status == CKPT_OK; i++)
    if (held.entries[i].is_folder && ckpt_name_table_find(table, held.entries[i].name) < 0)
      status = ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, held.entries[i].name,
                         "a folder below zero/, and neither in param_shapes nor a name of the model file: it would be "
                         "lost");
    else if (held.entries[i].is_folder)
      status = show_file(zero, held.entries[i].name, err);
  ckpt_list_free(held.entries, held.n);
  ckpt_name_table_free(table);
  return status;
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */
