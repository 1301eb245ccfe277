/* layout.c - a ZeRO checkpoint of DeepSpeed, as docs/formats/zero.md has it, for any stage and number of ranks.
 *
 *   latest
 *   <tag>/mp_rank_00_model_states.pt                        stages 1 and 2
 *   <tag>/zero_pp_rank_R_mp_rank_00_model_states.pt         stage 3
 *   <tag>/[bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt
 *
 * A rank's row of a group is a list of parts of tensors: ranges of parameters in the order of the group, and zeros
 * where there is padding. Of stages 1 and 2 the row of all ranks is cut into equal parts; of stage 3 every parameter
 * is. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"

enum { ALIGNMENT = 2 }; /* nccl_start_alignment_factor: elements for each rank */

#define SUB_GROUP_SIZE UINT64_C(1000000000) /* zero_optimization.sub_group_size where a configuration has none */

/* A row as a rank has it: one item of its file. */
typedef struct row {
  ckpt_torch_part *parts;
  uint32_t n_parts;
  uint64_t n_elements; /* with padding, where it has some */
  uint8_t dtype;
  bool is_value; /* the one of a group: what parts has first is a whole tensor, which each rank has */
} row;

/* One rank's optimizer file. Leaves: rows (slot by slot of each group), then the steps. */
typedef struct rank_file {
  const ckpt_zero_run *run;
  ckpt_torch_part *scratch; /* room for the parts of any row: one of every parameter, and padding behind each */
  row *rows;
  uint32_t n_rows, rank, stage;
  ckpt_object *mappings, *paddings; /* by group */
} rank_file;

static void rank_item(const void *arg, uint32_t leaf, ckpt_torch_item *item) {
  static const uint64_t no_shape[1] = {0};
  const rank_file *f = arg;
  if (leaf < f->n_rows) {
    const row *r = &f->rows[leaf];
    if (r->is_value)
      item->whole = r->parts->tensor;
    else
      *item = (ckpt_torch_item){
          .dtype = r->dtype, .rank = 1, .shape = &r->n_elements, .parts = r->parts, .n_parts = r->n_parts};
  } else {
    *item = (ckpt_torch_item){.dtype = CKPT_F32, .shape = no_shape, .n_parts = 1};
    item->parts = &f->run->steps[leaf - f->n_rows];
  }
}

/* Whether the parameters of a group have a state; a group without any has all that others have. */
static bool has_slot(const ckpt_zero_run *run, const ckpt_zero_group *group, uint32_t slot) {
  return slot == 0 || group->n == 0 || run->params[group->first].states[slot - 1] != CKPT_NO_TENSOR;
}

static const ckpt_tensor *of_slot(const ckpt_zero_run *run, const ckpt_zero_trained *param, uint32_t slot) {
  return &run->index->tensors[slot == 0 ? param->fp32 : param->states[slot - 1]];
}

static uint64_t unit_bytes(const row *r) { return ckpt_dtype_get((ckpt_dtype)r->dtype)->block_bytes; }

static void add_range(row *r, uint32_t tensor, uint64_t start, uint64_t count) {
  if (count == 0) return;
  r->parts[r->n_parts++] = (ckpt_torch_part){.tensor = tensor, .range = {start, count}};
  r->n_elements += count;
}

static void add_zeros(row *r, uint64_t count) {
  if (count == 0) return;
  r->parts[r->n_parts++] = (ckpt_torch_part){.tensor = CKPT_TORCH_LITERAL, .n_bytes = count * unit_bytes(r)};
  r->n_elements += count;
}

static uint32_t number_of(const ckpt_zero_run *run, const ckpt_tensor *tensor) {
  return (uint32_t)(tensor - run->index->tensors);
}

/* ---- rows ---------------------------------------------------------------------------------------------------------
 */

static uint64_t group_elements(const ckpt_zero_run *run, const ckpt_zero_group *group) {
  uint64_t n = 0; /* of tensors in files */
  for (uint32_t i = 0; i < group->n; i++) n += run->index->tensors[run->params[group->first + i].tensor].n_elements;
  return n;
}

/* What a rank has of all elements of a group in stages 1 and 2. */
typedef struct span {
  uint64_t begin, end, padding; /* of the group's row; zeros behind it */
} span;

static span span_of(const ckpt_zero_run *run, const ckpt_zero_group *group, uint32_t rank) {
  const uint64_t n = group_elements(run, group), unit = (uint64_t)ALIGNMENT * run->world;
  const uint64_t part = (n + unit - 1) / unit * ALIGNMENT;
  span s = {.begin = rank * part};
  if (s.begin > n) s.begin = n;
  s.end = n - s.begin < part ? n : s.begin + part;
  s.padding = part - (s.end - s.begin);
  return s;
}

/* Stages 1 and 2: masters are saved without padding, states with it, Muon's momentum of whole parameters: those that
 * two ranks have parts of would be there twice, which a layout has no place for. */
static ckpt_status cut_group(const rank_file *f, row *r, const ckpt_zero_group *group, uint32_t slot, ckpt_error *err) {
  const span s = span_of(f->run, group, f->rank);
  const bool is_whole = slot != 0 && ckpt_zero_is_muon(group->object, f->run->keys[slot - 1]);
  uint64_t at = 0;
  for (uint32_t i = 0; i < group->n; i++) {
    const ckpt_tensor *tensor = of_slot(f->run, &f->run->params[group->first + i], slot);
    const uint64_t end = at + tensor->n_elements, from = at > s.begin ? at : s.begin, to = end < s.end ? end : s.end;
    if (is_whole && from < to && to - from != tensor->n_elements)
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                                   "Muon's, of which stages 1 and 2 keep all on each of the ranks that have a part"),
                         err, "%stage=3, %world=1, or %include=no-optimizer");
    if (from < to) add_range(r, number_of(f->run, tensor), from - at, to - from);
    at = end;
  }
  if (slot != 0 && !is_whole) add_zeros(r, s.padding);
  return CKPT_OK;
}

/* What a rank has of a tensor in stage 3. */
static void cut_tensor(const rank_file *f, row *r, const ckpt_tensor *tensor) {
  const uint64_t n = tensor->n_elements, part = n / f->run->world + (n % f->run->world != 0);
  const uint64_t begin = part == 0 || f->rank > n / part ? n : f->rank * part;
  const uint64_t held = n - begin < part ? n - begin : part;
  add_range(r, number_of(f->run, tensor), begin, held);
  add_zeros(r, part - held);
}

/* A row that was put together in scratch keeps as many parts as it has. */
static ckpt_status keep_parts(const ckpt_zero_run *run, row *r, ckpt_error *err) {
  const ckpt_torch_part *made = r->parts;
  if (r->n_parts == 0) r->parts[r->n_parts++] = (ckpt_torch_part){.tensor = CKPT_TORCH_LITERAL};
  CKPT_TRY_ALLOC(r->parts = ckpt_arena_array(run->arena, r->n_parts, sizeof *r->parts), err);
  memcpy(r->parts, made, r->n_parts * sizeof *made);
  return CKPT_OK;
}

static ckpt_status make_rows(rank_file *f, ckpt_error *err) {
  const ckpt_zero_run *run = f->run;
  const uint32_t n_slots = 1 + run->n_keys;
  f->n_rows = run->n_groups * n_slots;
  CKPT_TRY_ALLOC(f->rows = ckpt_arena_array(run->arena, f->n_rows, sizeof *f->rows), err);
  for (uint32_t g = 0; g < run->n_groups; g++)
    for (uint32_t slot = 0; slot < n_slots; slot++) {
      const ckpt_zero_group *group = &run->groups[g];
      row *r = &f->rows[g * n_slots + slot];
      const bool is_there = has_slot(run, group, slot);
      r->dtype = group->n == 0 || !is_there ? CKPT_F32 : of_slot(run, &run->params[group->first], slot)->dtype;
      r->parts = f->scratch;
      r->is_value = slot != 0 && (run->scalars >> (slot - 1) & 1) != 0 && is_there && group->n != 0;
      if (r->is_value)
        add_range(r, number_of(run, of_slot(run, &run->params[group->first], slot)), 0, 1);
      else if (f->stage < 3 && is_there)
        CKPT_TRY(cut_group(f, r, group, slot, err));
      for (uint32_t i = 0; i < group->n && f->stage == 3 && is_there && !r->is_value; i++)
        cut_tensor(f, r, of_slot(run, &run->params[group->first + i], slot));
      CKPT_TRY(keep_parts(run, r, err));
    }
  return CKPT_OK;
}

/* ---- what stands in a rank's file ---------------------------------------------------------------------------------
 */

static ckpt_status make_stage(const ckpt_zero_run *run, uint32_t stage, ckpt_object **out, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_call(run, "deepspeed.runtime.zero.config.ZeroStageEnum", 1, out, err));
  CKPT_TRY_ALLOC((*out)->items[0] = ckpt_object_int(run->arena, stage), err);
  return CKPT_OK;
}

/* fragment_address(numel=..., start=...) of each parameter that the rank has a part of. */
static ckpt_status make_mapping(const rank_file *f, uint32_t g, ckpt_object **out, ckpt_error *err) {
  static const char name[] = "deepspeed.utils.tensor_fragment.fragment_address"; /* a dataclass */
  const ckpt_zero_run *run = f->run;
  const ckpt_zero_group *group = &run->groups[g];
  const span s = span_of(run, group, f->rank);
  uint64_t at = 0;
  CKPT_TRY(ckpt_zero_dict(run, f->rows[g * (run->n_keys + 1)].n_parts, out, err)); /* the masters': a part of each */
  for (uint32_t i = 0; i < group->n; i++) {
    const ckpt_zero_trained *param = &run->params[group->first + i];
    const uint64_t end = at + run->index->tensors[param->tensor].n_elements;
    const uint64_t from = at > s.begin ? at : s.begin, to = end < s.end ? end : s.end;
    at = end;
    if (from >= to) continue;
    ckpt_object *address, *state;
    CKPT_TRY(ckpt_zero_dict(run, 2, &state, err));
    CKPT_TRY(ckpt_zero_set(run, state, "numel", ckpt_object_int(run->arena, (int64_t)(to - from)), err));
    CKPT_TRY(ckpt_zero_set(run, state, "start", ckpt_object_int(run->arena, (int64_t)(from - s.begin)), err));
    CKPT_TRY(ckpt_zero_instance(run, name, state, &address, err));
    CKPT_TRY(ckpt_zero_set(run, *out, param->name, address, err));
  }
  return CKPT_OK;
}

/* {"state": {group: {key: row, "step": ...}}, "param_groups": [...]} */
static ckpt_status make_optimizer(const rank_file *f, ckpt_object **out, ckpt_error *err) {
  const ckpt_zero_run *run = f->run;
  ckpt_object *states, *groups, *state;
  CKPT_TRY(ckpt_zero_dict(run, 2, out, err));
  CKPT_TRY(ckpt_zero_dict(run, run->n_groups, &states, err));
  for (uint32_t g = 0; g < run->n_groups && run->n_keys != 0; g++) {
    const ckpt_zero_group *group = &run->groups[g];
    CKPT_TRY(ckpt_zero_dict(run, run->n_keys + 1, &state, err));
    if (group->has_step)
      CKPT_TRY(ckpt_zero_set(run, state, "step", ckpt_object_tensor(run->arena, f->n_rows + g), err));
    else if (group->is_number)
      CKPT_TRY(ckpt_zero_set(run, state, "step", ckpt_object_int(run->arena, group->number), err));
    for (uint32_t slot = 0; slot < run->n_keys; slot++) {
      ckpt_object *leaf = ckpt_object_tensor(run->arena, g * (run->n_keys + 1) + slot + 1);
      if (has_slot(run, group, slot + 1)) CKPT_TRY(ckpt_zero_set(run, state, run->keys[slot], leaf, err));
    }
    CKPT_TRY_ALLOC(states->items[2 * states->n] = ckpt_object_int(run->arena, g), err);
    states->items[2 * states->n++ + 1] = state;
  }
  CKPT_TRY(ckpt_zero_groups(run, &groups, err));
  CKPT_TRY(ckpt_zero_set(run, *out, "state", states, err));
  return ckpt_zero_set(run, *out, "param_groups", groups, err);
}

/* The same of all stages. */
static ckpt_status set_common(const rank_file *f, ckpt_object *root, ckpt_error *err) {
  const ckpt_zero_run *run = f->run;
  ckpt_object *stage, *scaler, *counts;
  CKPT_TRY(make_stage(run, f->stage, &stage, err));
  CKPT_TRY(ckpt_zero_scaler(run, &scaler, err));
  CKPT_TRY(ckpt_zero_set(run, root, "zero_stage", stage, err));
  CKPT_TRY(ckpt_zero_set(run, root, "loss_scaler", scaler, err));
  CKPT_TRY(
      ckpt_zero_set(run, root, "dynamic_loss_scale", ckpt_object_bool(run->arena, ckpt_zero_is_dynamic(run)), err));
  CKPT_TRY(ckpt_zero_set(run, root, "overflow", ckpt_object_bool(run->arena, false), err));
  if (f->stage == 3) return ckpt_zero_set(run, root, "partition_count", ckpt_object_int(run->arena, run->world), err);
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, &counts, err));
  for (uint32_t g = 0; g < run->n_groups; g++)
    CKPT_TRY_ALLOC(counts->items[g] = ckpt_object_int(run->arena, run->world), err);
  return ckpt_zero_set(run, root, "partition_count", counts, err);
}

/* Masters of each group, and of stages 1 and 2 where what is in them. */
static ckpt_status set_masters(const rank_file *f, ckpt_object *root, ckpt_error *err) {
  const ckpt_zero_run *run = f->run;
  ckpt_object *masters, *mappings, *paddings;
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, &masters, err));
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, &mappings, err));
  CKPT_TRY(ckpt_zero_list(run, run->n_groups, &paddings, err));
  for (uint32_t g = 0; g < run->n_groups; g++) {
    const int64_t padding = (int64_t)span_of(run, &run->groups[g], f->rank).padding;
    CKPT_TRY_ALLOC(masters->items[g] = ckpt_object_tensor(run->arena, g * (run->n_keys + 1)), err);
    CKPT_TRY_ALLOC(paddings->items[g] = ckpt_object_int(run->arena, padding), err);
    if (f->stage < 3) CKPT_TRY(make_mapping(f, g, &mappings->items[g], err));
  }
  if (f->stage == 3) return ckpt_zero_set(run, root, "fp32_flat_groups", masters, err);
  CKPT_TRY(ckpt_zero_set(run, root, "single_partition_of_fp32_groups", masters, err));
  CKPT_TRY(ckpt_zero_set(run, root, "group_paddings", paddings, err));
  return ckpt_zero_set(run, root, "param_slice_mappings", mappings, err);
}

static ckpt_status lay_rank(const ckpt_zero_run *run, const char *tag, uint32_t rank, uint32_t stage,
                            ckpt_torch_part *scratch, ckpt_error *err) {
  const char *name = ckpt_arena_printf(run->arena, "%s/%szero_pp_rank_%u_mp_rank_00_optim_states.pt", tag,
                                       ckpt_zero_is_bf16(run) ? "bf16_" : "", rank);
  rank_file *f = ckpt_arena_alloc(run->arena, sizeof *f);
  ckpt_object *inner, *root, *optimizer, *version;
  CKPT_TRY_ALLOC(f, err);
  CKPT_TRY_ALLOC(name, err);
  *f = (rank_file){.run = run, .scratch = scratch, .rank = rank, .stage = stage};
  CKPT_TRY(make_rows(f, err));
  CKPT_TRY(ckpt_zero_dict(run, 12, &inner, err));
  CKPT_TRY(ckpt_zero_dict(run, 2, &root, err));
  CKPT_TRY_ALLOC(version = ckpt_object_text(run->arena, CKPT_ZERO_VERSION, sizeof CKPT_ZERO_VERSION - 1), err);
  CKPT_TRY(set_common(f, inner, err));
  CKPT_TRY(make_optimizer(f, &optimizer, err));
  CKPT_TRY(ckpt_zero_set(run, inner, stage == 3 ? "optimizer_state_dict" : "base_optimizer_state", optimizer, err));
  CKPT_TRY(set_masters(f, inner, err));
  CKPT_TRY(ckpt_zero_set(run, inner, "ds_version", version, err));
  CKPT_TRY(ckpt_zero_set(run, root, "optimizer_state_dict", inner, err));
  CKPT_TRY(ckpt_zero_set(run, root, "ds_version", version, err));
  CKPT_TRY(ckpt_zero_lay(run, name, root, f->n_rows + run->n_groups, rank_item, f, err));
  run->layout->files[run->layout->n_files - 1].rank = rank;
  return CKPT_OK;
}

/* ---- model files of stage 3 ----------------------------------------------------------------------------------------
 */

/* One rank's. Leaves: the run's, then its rows of frozen parameters, then an empty tensor for each parameter. */
typedef struct model_file {
  const ckpt_zero_run *run;
  row *rows;
  uint32_t *frozen; /* tensors */
  uint32_t n_frozen;
} model_file;

static void model_item(const void *arg, uint32_t leaf, ckpt_torch_item *item) {
  static const uint64_t empty[1] = {0};
  static const ckpt_torch_part nothing = {.tensor = CKPT_TORCH_LITERAL};
  const model_file *f = arg;
  if (leaf < f->run->n_leaves) {
    ckpt_zero_item(f->run, leaf, item);
  } else if (leaf - f->run->n_leaves < f->n_frozen) {
    const row *r = &f->rows[leaf - f->run->n_leaves];
    *item = (ckpt_torch_item){
        .dtype = r->dtype, .rank = 1, .shape = &r->n_elements, .parts = r->parts, .n_parts = r->n_parts};
  } else {
    *item = (ckpt_torch_item){.dtype = CKPT_F32, .rank = 1, .shape = empty, .parts = &nothing, .n_parts = 1};
  }
}

/* What module and frozen_param_fragments are on every rank: their leaves have the same numbers. */
static ckpt_status make_module(const ckpt_zero_run *run, const model_file *f, ckpt_object **module,
                               ckpt_object **fragments, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_dict(run, (uint64_t)run->index->n_tensors + run->index->n_aliases, module, err));
  CKPT_TRY(ckpt_zero_dict(run, (uint64_t)f->n_frozen + run->index->n_aliases, fragments, err));
  for (uint32_t k = 0; k < run->index->n_tensors; k++) {
    const uint32_t i = run->index->by_name[k];
    const ckpt_tensor *tensor = &run->index->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    const bool is_buffer = !run->is_trained[i] && ckpt_tensor_is_buffer(tensor);
    const ckpt_object *leaf =
        is_buffer ? ckpt_zero_leaf(run, i) : ckpt_object_tensor(run->arena, run->n_leaves + f->n_frozen + i);
    CKPT_TRY(ckpt_zero_set_names(run, *module, tensor, leaf, err));
  }
  for (uint32_t i = 0; i < f->n_frozen; i++)
    CKPT_TRY(ckpt_zero_set_names(run, *fragments, &run->index->tensors[f->frozen[i]],
                                 ckpt_object_tensor(run->arena, run->n_leaves + i), err));
  return CKPT_OK;
}

/* A rank's parts of frozen parameters. */
static ckpt_status make_fragments(model_file *f, uint32_t rank, ckpt_error *err) {
  const ckpt_zero_run *run = f->run;
  const rank_file cut = {.run = run, .rank = rank};
  ckpt_torch_part scratch[2];
  CKPT_TRY_ALLOC(f->rows = ckpt_arena_array(run->arena, (size_t)f->n_frozen + 1, sizeof *f->rows), err);
  for (uint32_t i = 0; i < f->n_frozen; i++) {
    const ckpt_tensor *tensor = &run->index->tensors[f->frozen[i]];
    f->rows[i] = (row){.parts = scratch, .dtype = tensor->dtype};
    cut_tensor(&cut, &f->rows[i], tensor);
    CKPT_TRY(keep_parts(run, &f->rows[i], err));
  }
  return CKPT_OK;
}

/* The object of a rank's file, which those of all ranks but the first share: client state with tensors is the first
 * one's. */
static ckpt_status make_root(const ckpt_zero_run *run, const ckpt_object *whole, bool is_first, ckpt_object *module,
                             ckpt_object *fragments, ckpt_object **out, ckpt_error *err) {
  if (is_first) {
    CKPT_TRY(ckpt_zero_dict(run, whole->n + 1, out, err));
    memcpy((*out)->items, whole->items, 2 * (size_t)whole->n * sizeof *whole->items);
    (*out)->n = whole->n;
  } else {
    CKPT_TRY(ckpt_zero_without_tensors(run, whole, out, err));
  }
  for (uint64_t i = 0; i < (*out)->n; i++)
    if (strcmp((*out)->items[2 * i]->text, "module") == 0) (*out)->items[2 * i + 1] = module;
  return fragments->n == 0 ? CKPT_OK : ckpt_zero_set(run, *out, "frozen_param_fragments", fragments, err);
}

/* Other formats do not tell buffers from frozen parameters, which an engine of stage 3 looks for in another place. */
static ckpt_status note_frozen(const ckpt_zero_run *run, const model_file *any, ckpt_error *err) {
  const char *format = run->index->objects_of == NULL ? "" : run->index->objects_of->format;
  if (any->n_frozen == 0 || strcmp(format, "zero") == 0 || strcmp(format, "universal") == 0) return CKPT_OK;
  const char *first = run->index->tensors[any->frozen[0]].name;
  const char *note = ckpt_arena_printf(
      run->arena,
      "%u tensor%s that no group of the optimizer names count as frozen parameters (%.200s%s): an engine of stage 3 "
      "refuses those that are buffers of its model (stage 2 does not tell them apart)",
      any->n_frozen, ckpt_plural(any->n_frozen), first, any->n_frozen == 1 ? "" : ", ...");
  CKPT_TRY_ALLOC(note, err);
  return ckpt_zero_say(run, note, err);
}

static ckpt_status lay_rank_models(const ckpt_zero_run *run, const char *tag, const ckpt_object *whole,
                                   ckpt_error *err) {
  model_file any = {.run = run};
  ckpt_object *module, *fragments, *roots[2]; /* of the first rank, of others */
  any.frozen = ckpt_arena_array(run->arena, (size_t)run->index->n_tensors + 1, sizeof *any.frozen);
  CKPT_TRY_ALLOC(any.frozen, err);
  for (uint32_t k = 0; k < run->index->n_tensors; k++) {
    const uint32_t i = run->index->by_name[k];
    const ckpt_tensor *tensor = &run->index->tensors[i];
    if (tensor->role == CKPT_ROLE_PARAMETER && !run->is_trained[i] && !ckpt_tensor_is_buffer(tensor))
      any.frozen[any.n_frozen++] = i;
  }
  CKPT_TRY(note_frozen(run, &any, err));
  CKPT_TRY(make_module(run, &any, &module, &fragments, err));
  for (int i = 0; i < 2; i++) CKPT_TRY(make_root(run, whole, i == 0, module, fragments, &roots[i], err));
  for (uint32_t rank = 0; rank < run->world; rank++) {
    const char *name = ckpt_arena_printf(run->arena, "%s/zero_pp_rank_%u_mp_rank_00_model_states.pt", tag, rank);
    model_file *f = ckpt_arena_alloc(run->arena, sizeof *f);
    CKPT_TRY_ALLOC(name, err);
    CKPT_TRY_ALLOC(f, err);
    *f = any;
    CKPT_TRY(make_fragments(f, rank, err));
    CKPT_TRY(ckpt_zero_lay(run, name, roots[rank != 0], run->n_leaves + f->n_frozen + run->index->n_tensors, model_item,
                           f, err));
    run->layout->files[run->layout->n_files - 1].rank = rank;
  }
  return CKPT_OK;
}

/* ---- the whole ----------------------------------------------------------------------------------------------------
 */

static ckpt_status lay_models(const ckpt_zero_run *run, const char *tag, uint32_t stage, ckpt_error *err) {
  ckpt_object *root;
  const char *name = ckpt_arena_printf(run->arena, "%s/mp_rank_00_model_states.pt", tag);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_zero_model(run, &root, err));
  if (stage == 3) return lay_rank_models(run, tag, root, err);
  return ckpt_zero_lay(run, name, root, run->n_leaves, ckpt_zero_item, run, err);
}

const ckpt_format_option ckpt_zero_options[] = {
    {"stage", .least = 1, .most = CKPT_ZERO_STAGES, .if_absent = CKPT_ZERO_STAGES},
    {"engine", .least = CKPT_ENGINE_BF16, .most = CKPT_ENGINE_FP32, .words = "bf16|fp16|fp32"},
    {.name = NULL}};

const char *ckpt_zero_only_masters(const ckpt_format_values *values, const char **instead) {
  *instead = "%stage=2";
  return ckpt_format_value_of(values, &ckpt_zero_options[0]) == CKPT_ZERO_STAGES ? "stage 3 has masters" : NULL;
}

ckpt_status ckpt_zero_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  const uint32_t stage = (uint32_t)ckpt_format_value_of(&options->values, &ckpt_zero_options[0]);
  ckpt_zero_run *run;
  if (stage > CKPT_ZERO_STAGES) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "stage %u (ZeRO has 1 to 3)", stage);
  CKPT_TRY(ckpt_zero_run_find(&run, layout, stage, options->world, err));
  run->engine = (ckpt_zero_engine)ckpt_format_value_of(&options->values, &ckpt_zero_options[1]);
  layout->is_folder = true;
  if (!run->has_order)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                                 "parameters stand in the order of an optimizer in ZeRO, and the input names none"),
                       err, "%to=universal goes by names");
  if (stage == 3) CKPT_TRY(ckpt_zero_run_split(run, SUB_GROUP_SIZE, err));
  CKPT_TRY(ckpt_zero_run_share(run, err));
  CKPT_TRY(ckpt_zero_scaler_say(run, err));
  const char *tag = ckpt_zero_tag(run);
  CKPT_TRY_ALLOC(tag, err);
  CKPT_TRY(lay_models(run, tag, stage, err));
  ckpt_torch_part *scratch = ckpt_arena_array(run->arena, 2 * (size_t)run->n_params + 1, sizeof *scratch);
  CKPT_TRY_ALLOC(scratch, err);
  for (uint32_t rank = 0; rank < run->world; rank++) CKPT_TRY(lay_rank(run, tag, rank, stage, scratch, err));
  CKPT_TRY(ckpt_zero_lay_sides(run, options->dtype_written, err));
  return ckpt_zero_lay_text(run, CKPT_ZERO_LATEST, tag, err);
}
