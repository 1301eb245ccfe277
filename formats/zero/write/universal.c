/* universal.c - a universal checkpoint of DeepSpeed, as docs/formats/zero.md has it.
 *
 *   latest_universal
 *   <tag>/mp_rank_00_model_states.pt                          what engines of stages 1 and 2 open
 *   <tag>/zero_pp_rank_R_mp_rank_00_model_states.pt           what rank R of an engine of stage 3 opens, of `world`
 *   <tag>/zero/optimizer_state.pt                             groups and loss scaler, in both of their forms
 *   <tag>/zero/<parameter>/fp32.pt, exp_avg.pt, ..., step.pt
 *
 * Engines take weights from fp32.pt alone; a parameter that has no other values is there and nowhere else. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/parallel/cut.h"
#include "libckpt/codec/pickle/pickle.h"

#define MODEL_SUFFIX "mp_rank_00_model_states.pt"

/* ---- the optimizer's own ------------------------------------------------------------------------------------------
 */

/* {"state": {0: {"step": ...}}, "param_groups": [...]}: where stage 3 looks for them. */
static ckpt_status make_inner(const ckpt_zero_run *run, const ckpt_object *groups, ckpt_object **out, ckpt_error *err) {
  ckpt_object *states, *state;
  CKPT_TRY(ckpt_zero_dict(run, 2, out, err));
  CKPT_TRY(ckpt_zero_dict(run, run->n_groups, &states, err));
  for (uint32_t g = 0; g < run->n_groups; g++) {
    const ckpt_zero_group *group = &run->groups[g];
    if (!group->has_step && !group->is_number) continue;
    const ckpt_object *step =
        group->has_step ? ckpt_zero_step_leaf(run, g) : ckpt_object_int(run->arena, group->number);
    CKPT_TRY(ckpt_zero_dict(run, 1, &state, err));
    CKPT_TRY(ckpt_zero_set(run, state, "step", step, err));
    CKPT_TRY_ALLOC(states->items[2 * states->n] = ckpt_object_int(run->arena, g), err);
    states->items[2 * states->n++ + 1] = state;
  }
  CKPT_TRY(ckpt_zero_set(run, *out, "state", states, err));
  return ckpt_zero_set(run, *out, "param_groups", groups, err);
}

static ckpt_status lay_optimizer(const ckpt_zero_run *run, const char *name, ckpt_error *err) {
  ckpt_object *root, *groups, *inner, *scaler;
  CKPT_TRY(ckpt_zero_groups(run, &groups, err));
  CKPT_TRY(make_inner(run, groups, &inner, err));
  CKPT_TRY(ckpt_zero_scaler(run, &scaler, err));
  CKPT_TRY(ckpt_zero_dict(run, 5, &root, err));
  CKPT_TRY(ckpt_zero_set(run, root, "param_groups", groups, err));
  CKPT_TRY(ckpt_zero_set(run, root, "optimizer_state_dict", inner, err));
  CKPT_TRY(ckpt_zero_set(run, root, "zero_stage", ckpt_object_int(run->arena, 1), err));
  CKPT_TRY(ckpt_zero_set(run, root, "ds_version",
                         ckpt_object_text(run->arena, CKPT_ZERO_VERSION, sizeof CKPT_ZERO_VERSION - 1), err));
  CKPT_TRY(ckpt_zero_set(run, root, "loss_scaler", scaler, err));
  return ckpt_zero_lay(run, name, root, run->n_leaves, ckpt_zero_item, run, err);
}

/* ---- parameters ---------------------------------------------------------------------------------------------------
 */

/* One tensor, which leaf 0 is. */
typedef struct single {
  const ckpt_zero_run *run;
  ckpt_torch_part part; /* all of it */
  bool is_step;
} single;

/* What has no axes has one: engines of stages 1 and 2 take a parameter's files apart along axis 0. */
static void single_item(const void *arg, uint32_t leaf, ckpt_torch_item *item) {
  static const uint64_t one[1] = {1};
  const single *s = arg;
  const ckpt_tensor *tensor = s->is_step ? NULL : &s->run->index->tensors[s->part.tensor];
  (void)leaf;
  if (tensor != NULL && tensor->rank != 0)
    item->whole = s->part.tensor;
  else
    *item = (ckpt_torch_item){.dtype = tensor == NULL ? CKPT_F32 : tensor->dtype,
                              .rank = tensor == NULL ? 0 : 1,
                              .shape = one,
                              .parts = &s->part,
                              .n_parts = 1};
}

static ckpt_status lay_file(const ckpt_zero_run *run, const char *tag, const char *param, const char *key,
                            const ckpt_object *root, const single *of, ckpt_error *err) {
  const char *name = ckpt_arena_printf(run->arena, "%s/zero/%s/%s.pt", tag, param, key);
  CKPT_TRY_ALLOC(name, err);
  single *kept = ckpt_arena_alloc(run->arena, sizeof *kept);
  CKPT_TRY_ALLOC(kept, err);
  *kept = *of;
  return ckpt_zero_lay(run, name, root, 1, single_item, kept, err);
}

static ckpt_status check_name(const ckpt_zero_run *run, const ckpt_zero_trained *param, ckpt_error *err) {
  enum { MAX_FOLDER_BYTES = 255 };
  bool is_folder = strchr(param->name, '/') == NULL && param->name[0] != '.' && param->name[0] != '\0' &&
                   strcmp(param->name, "optimizer_state.pt") != 0 && strlen(param->name) <= MAX_FOLDER_BYTES;
  if (!is_folder)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, run->index->tensors[param->tensor].name,
                                 "no folder can have its name, which universal checkpoints have one for"),
                       err, "%to=zero needs none");
  for (uint32_t slot = 0; slot < run->n_keys; slot++)
    if (param->states[slot] != CKPT_NO_TENSOR && (strchr(run->keys[slot], '/') != NULL || run->keys[slot][0] == '.' ||
                                                  run->keys[slot][0] == '\0' || strcmp(run->keys[slot], "fp32") == 0))
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, run->index->tensors[param->states[slot]].name,
                                   "no file can have its name, which universal checkpoints have one for"),
                         err, "%to=zero needs none");
  return CKPT_OK;
}

/* How tensor-parallel ranks cut a parameter, as the files of it say it. */
typedef struct cutting {
  int64_t axis, n_parts;
  ckpt_zero_said uneven; /* of parts of several sizes; no pattern: n_parts says all */
  bool is_vocabulary;
} cutting;

/* Whether all are numbers but the parts of an axis, a list of them. */
static bool is_shape(const ckpt_object *shape, int64_t axis) {
  if ((shape->kind != CKPT_OBJECT_LIST && shape->kind != CKPT_OBJECT_TUPLE) || shape->n > CKPT_MAX_RANK) return false;
  for (uint64_t i = 0; i < shape->n; i++) {
    const ckpt_object_kind kind = shape->items[i]->kind;
    if ((int64_t)i != axis ? kind != CKPT_OBJECT_INT : kind != CKPT_OBJECT_LIST && kind != CKPT_OBJECT_TUPLE)
      return false;
  }
  return true;
}

/* As ds_to_universal says it. */
static ckpt_status find_cutting(cutting *of, ckpt_zero_rules *rules, const char *name, ckpt_error *err) {
  ckpt_zero_said said[CKPT_ZERO_N_RULES];
  *of = (cutting){.n_parts = 1};
  if (rules == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_zero_rules_find(rules, name, said, err));
  of->is_vocabulary = said[CKPT_ZERO_VOCABULARY].pattern != NULL;
  if (said[CKPT_ZERO_TWO_PARTS].pattern != NULL) {
    of->n_parts = 2;
  } else if (said[CKPT_ZERO_PARTS].pattern != NULL) {
    const ckpt_object *axis = ckpt_object_field(said[CKPT_ZERO_PARTS].value, "partition_dim");
    const ckpt_object *shape = ckpt_object_field(said[CKPT_ZERO_PARTS].value, "shape");
    if (axis != NULL && axis->kind == CKPT_OBJECT_INT && axis->integer >= 0 && axis->integer < CKPT_MAX_RANK)
      of->axis = axis->integer;
    bool are_equal;
    const ckpt_object *sizes = shape == NULL ? NULL : ckpt_foreign_arg(shape, (uint64_t)of->axis);
    const uint32_t n = ckpt_zero_n_parts(sizes, &are_equal);
    if (are_equal)
      of->n_parts = n;
    else if (is_shape(shape, of->axis))
      of->uneven = said[CKPT_ZERO_PARTS];
  } else {
    of->axis = said[CKPT_ZERO_BY_COLUMNS].pattern != NULL ? 1 : 0;
  }
  return CKPT_OK;
}

static ckpt_status make_tuple(const ckpt_zero_run *run, const ckpt_object *list, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(run->arena, CKPT_OBJECT_TUPLE, list->n, NULL), err);
  memcpy((*out)->items, list->items, (size_t)list->n * sizeof *list->items);
  return CKPT_OK;
}

/* What engines cut parts of several sizes by. */
static ckpt_status make_parts(const ckpt_zero_run *run, const cutting *of, ckpt_object **out, ckpt_error *err) {
  static const char name[] = "deepspeed.checkpoint.universal_checkpoint.SubparamShape"; /* a dataclass */
  const uint64_t axis = (uint64_t)of->axis;
  const ckpt_object *said_shape = ckpt_object_field(of->uneven.value, "shape"), *pattern;
  ckpt_object *attributes, *patterns, *shape;
  CKPT_TRY(make_tuple(run, said_shape, &shape, err));
  CKPT_TRY(make_tuple(run, shape->items[axis], &shape->items[axis], err)); /* DeepSpeed asks whether it is one */
  CKPT_TRY_ALLOC(pattern = ckpt_object_text(run->arena, of->uneven.pattern, strlen(of->uneven.pattern)), err);
  CKPT_TRY(ckpt_zero_list(run, 1, &patterns, err));
  patterns->items[0] = (ckpt_object *)(uintptr_t)pattern;
  CKPT_TRY(ckpt_zero_dict(run, 3, &attributes, err));
  CKPT_TRY(ckpt_zero_set(run, attributes, "patterns", patterns, err));
  CKPT_TRY(ckpt_zero_set(run, attributes, "shape", shape, err));
  CKPT_TRY(ckpt_zero_set(run, attributes, "partition_dim", ckpt_object_int(run->arena, of->axis), err));
  return ckpt_zero_instance(run, name, attributes, out, err);
}

/* The object of a parameter's files: {"param": tensor, "cat_dim": 0}, and what else there is to be said. */
static ckpt_status make_payload(const ckpt_zero_run *run, const cutting *of, const ckpt_object *leaf, ckpt_object **out,
                                ckpt_error *err) {
  CKPT_TRY(ckpt_zero_dict(run, 5, out, err));
  CKPT_TRY(ckpt_zero_set(run, *out, "param", leaf, err));
  CKPT_TRY(ckpt_zero_set(run, *out, "cat_dim", ckpt_object_int(run->arena, of->axis), err));
  if (of->n_parts > 1)
    CKPT_TRY(ckpt_zero_set(run, *out, "param_n_sub_params", ckpt_object_int(run->arena, of->n_parts), err));
  if (of->uneven.pattern != NULL) {
    ckpt_object *parts;
    CKPT_TRY(make_parts(run, of, &parts, err));
    CKPT_TRY(ckpt_zero_set(run, *out, "sub_param_shape", parts, err));
  }
  return of->is_vocabulary ? ckpt_zero_set(run, *out, "vocab_tensor", ckpt_object_bool(run->arena, true), err)
                           : CKPT_OK;
}

static ckpt_status lay_group(const ckpt_zero_run *run, ckpt_zero_rules *rules, const char *tag, uint32_t g,
                             ckpt_error *err) {
  const ckpt_zero_group *group = &run->groups[g];
  ckpt_object *leaf = ckpt_object_tensor(run->arena, 0), *plain, *number = ckpt_object_int(run->arena, group->number);
  CKPT_TRY_ALLOC(number, err);
  CKPT_TRY_ALLOC(leaf, err);
  CKPT_TRY(make_payload(run, &(cutting){.n_parts = 1}, leaf, &plain, err));
  for (uint32_t i = group->first; i < group->first + group->n; i++) {
    const ckpt_zero_trained *param = &run->params[i];
    single of = {.run = run, .part = {.tensor = param->fp32}};
    ckpt_object *payload = plain;
    cutting cut;
    CKPT_TRY(check_name(run, param, err));
    CKPT_TRY(find_cutting(&cut, rules, param->name, err));
    if (cut.axis != 0 || cut.n_parts != 1 || cut.is_vocabulary || cut.uneven.pattern != NULL)
      CKPT_TRY(make_payload(run, &cut, leaf, &payload, err));
    CKPT_TRY(lay_file(run, tag, param->name, "fp32", payload, &of, err));
    for (uint32_t slot = 0; slot < run->n_keys; slot++) {
      if (param->states[slot] == CKPT_NO_TENSOR) continue;
      of.part.tensor = param->states[slot];
      CKPT_TRY(lay_file(run, tag, param->name, run->keys[slot], payload, &of, err));
    }
    of = (single){.run = run, .part = run->steps[g], .is_step = true};
    if (group->has_step || group->is_number)
      CKPT_TRY(lay_file(run, tag, param->name, "step", group->has_step ? leaf : number, &of, err));
  }
  return CKPT_OK;
}

/* ---- what engines make of it --------------------------------------------------------------------------------------
 */

/* Parameters that no group of the optimizer trains. */
static uint64_t count_frozen(const ckpt_index *described, const ckpt_object *groups) {
  uint64_t n = 0, n_named = 0;
  for (uint32_t i = 0; i < described->n_tensors; i++) n += ckpt_tensor_may_train(&described->tensors[i]);
  for (uint64_t g = 0; g < groups->n; g++) {
    const ckpt_object *params = ckpt_object_field(groups->items[g], "params");
    if (params != NULL && params->kind == CKPT_OBJECT_LIST) n_named += params->n;
  }
  return n_named == 0 || n_named > n ? 0 : n - n_named;
}

/* Files of ranks have no tensors: client state has some. */
static ckpt_status note_client(ckpt_index *described, ckpt_error *err) {
  uint32_t n = 0, first = 0;
  size_t n_bytes;
  for (uint32_t i = described->n_tensors; i-- > 0;) {
    const ckpt_tensor *tensor = &described->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) || ckpt_state_parameter(tensor->name, &n_bytes) != NULL) continue;
    first = i;
    n++;
  }
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(described, false, err,
                         "engines of stage 3 do not load %u tensor%s of client state (%.200s%s), nor the objects that "
                         "hold them",
                         n, ckpt_plural(n), described->tensors[first].name, n == 1 ? "" : ", ...");
}

ckpt_status ckpt_universal_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_normalize(described, losses, err));
  CKPT_TRY(note_client(described, err));
  const ckpt_object *groups = ckpt_object_get(described->objects, CKPT_STATE_PARAM_GROUPS);
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST) return CKPT_OK;
  const unsigned long long n_frozen = count_frozen(described, groups), n = groups->n;
  if (n > 1)
    CKPT_TRY(ckpt_index_note_advise(ckpt_index_note(described, false, err,
                                                    "engines of stage 3 go on with the hyperparameters and the step of "
                                                    "the first of %llu groups of the optimizer",
                                                    n),
                                    described, "%to=zero has all"));
  if (n_frozen == 0) return CKPT_OK;
  return ckpt_index_note_advise(
      ckpt_index_note(described, false, err, "engines of stage 3 do not load %llu frozen parameter%s", n_frozen,
                      ckpt_plural(n_frozen)),
      described, "%to=zero");
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

/* The model file, and for each rank of stage 3 one that has no tensors. */
static ckpt_status lay_models(const ckpt_zero_run *run, const char *tag, ckpt_error *err) {
  ckpt_object *root, *bare;
  const char *name = ckpt_arena_printf(run->arena, "%s/" MODEL_SUFFIX, tag);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_zero_model(run, &root, err));
  CKPT_TRY(ckpt_zero_lay(run, name, root, run->n_leaves, ckpt_zero_item, run, err));
  CKPT_TRY(ckpt_zero_without_tensors(run, root, &bare, err));
  for (uint32_t rank = 0; rank < run->world; rank++) {
    name = ckpt_arena_printf(run->arena, "%s/zero_pp_rank_%u_" MODEL_SUFFIX, tag, rank);
    CKPT_TRY_ALLOC(name, err);
    CKPT_TRY(ckpt_zero_lay(run, name, bare, 0, NULL, NULL, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_universal_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  ckpt_zero_run *run;
  CKPT_TRY(ckpt_zero_run_find(&run, layout, 0, options->world, err));
  layout->is_folder = true;
  const char *tag = ckpt_zero_tag(run);
  CKPT_TRY_ALLOC(tag, err);
  CKPT_TRY_ALLOC(tag = ckpt_arena_printf(run->arena, "%s" CKPT_UNIVERSAL_END, tag), err);
  CKPT_TRY(lay_models(run, tag, err));
  ckpt_zero_rules *rules;
  CKPT_TRY(ckpt_zero_rules_new(&rules, ckpt_object_get(run->index->objects, CKPT_ZERO_RULES), NULL, 0, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t g = 0; g < run->n_groups && status == CKPT_OK; g++) status = lay_group(run, rules, tag, g, err);
  ckpt_zero_rules_free(rules);
  CKPT_TRY(status);
  const char *name = ckpt_arena_printf(run->arena, "%s/zero/optimizer_state.pt", tag);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(lay_optimizer(run, name, err));
  CKPT_TRY(ckpt_zero_lay_sides(run, options->dtype_written, err));
  return ckpt_zero_lay_text(run, CKPT_LATEST_UNIVERSAL, tag, err);
}
