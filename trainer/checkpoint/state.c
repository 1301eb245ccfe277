/* state.c - see state.h. The source's files: 0 the weights where they are whole, 1 the step, then the moments and the
 * weights' shards of each rank, then what is carried. */
#include "trainer/checkpoint/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"

enum { FILE_WEIGHTS, FILE_STEP, FILE_RANKS };
enum { KIND_EXP_AVG, KIND_EXP_AVG_SQ, KIND_WEIGHTS }; /* files of each rank */

/* ---- the source -------------------------------------------------------------------------------------------------- */

typedef struct memory_file {
  const char *bytes;
  uint64_t n_bytes;
} memory_file;

typedef struct memory {
  float step;
  uint32_t n;
  memory_file files[];
} memory;

static ckpt_status read_memory(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const memory *m = ctx;
  if (file >= m->n || offset > m->files[file].n_bytes || n_bytes > m->files[file].n_bytes - offset)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a read past the memory of the state");
  memcpy(dst, m->files[file].bytes + offset, n_bytes);
  return CKPT_OK;
}

static const ckpt_source_ops memory_ops = {.read_at = read_memory, .close = free};

static ckpt_status declare(ckpt_source *source, memory *m, const char *name, const void *bytes, uint64_t n_bytes,
                           ckpt_error *err) {
  uint32_t number;
  m->files[m->n] = (memory_file){bytes, n_bytes};
  CKPT_TRY(ckpt_source_declare(source, name, n_bytes, &number, err));
  if (number != m->n++) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "two files of the state are called %s", name);
  return CKPT_OK;
}

static ckpt_status declare_all(ckpt_source *source, memory *m, const ckpt_state_parts *p, ckpt_error *err) {
  const uint64_t n_weights = p->weights == NULL ? 0 : p->model->n_flat * sizeof(float);
  CKPT_TRY(declare(source, m, "weights", p->weights, n_weights, err));
  CKPT_TRY(declare(source, m, "step", &m->step, sizeof m->step, err));
  const uint32_t n_holders = p->stage == 0 ? 1 : p->n_ranks;
  for (uint32_t r = 0; r < n_holders; r++) {
    char name[64];
    const ckpt_sharded *s = p->ranks[r];
    ckpt_c_snprintf(name, sizeof name, "rank %u exp_avg", r);
    CKPT_TRY(declare(source, m, name, s->host.exp_avg, s->n_local * sizeof(float), err));
    ckpt_c_snprintf(name, sizeof name, "rank %u exp_avg_sq", r);
    CKPT_TRY(declare(source, m, name, s->host.exp_avg_sq, s->n_local * sizeof(float), err));
    ckpt_c_snprintf(name, sizeof name, "rank %u weights", r);
    CKPT_TRY(declare(source, m, name, s->own, s->own == NULL ? 0 : s->n_local * sizeof(float), err));
  }
  for (uint32_t i = 0; i < p->n_carried; i++)
    CKPT_TRY(declare(source, m, p->carried[i].name, p->carried[i].bytes, p->carried[i].n_bytes, err));
  return CKPT_OK;
}

static ckpt_status new_source(ckpt_source **out, const ckpt_state_parts *p, ckpt_error *err) {
  const size_t n = FILE_RANKS + 3 * (size_t)p->n_ranks + p->n_carried;
  memory *m = calloc(1, sizeof *m + n * sizeof m->files[0]);
  CKPT_TRY_ALLOC(m, err);
  m->step = (float)p->progress->n_updates;
  const ckpt_status status = ckpt_source_custom(out, &memory_ops, m, err);
  if (status != CKPT_OK) {
    free(m);
    return status;
  }
  return declare_all(*out, m, p, err);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What a tensor is of that lies in the pieces of those that hold it. */
static uint32_t extents_of(ckpt_extent *extents, const ckpt_state_parts *parts, uint32_t i, uint32_t kind) {
  const uint32_t n_holders = parts->stage == 0 ? 1 : parts->n_ranks;
  uint32_t n = 0;
  for (uint32_t r = 0; r < n_holders; r++) {
    const ckpt_shard_piece *piece = &parts->ranks[r]->pieces[i];
    if (piece->n == 0) continue;
    extents[n++] = (ckpt_extent){.file = FILE_RANKS + 3 * r + kind,
                                 .offset = piece->local * sizeof(float),
                                 .n_stored = piece->n * sizeof(float),
                                 .start = piece->flat - parts->model->parameters[i].offset,
                                 .count = piece->n};
  }
  return n;
}

static ckpt_status add_parameter(ckpt_index *index, const ckpt_state_parts *parts, uint32_t i, ckpt_extent *extents,
                                 ckpt_error *err) {
  const ckpt_parameter *p = &parts->model->parameters[i];
  uint32_t number, n = p->n_elements != 0;
  extents[0] = (ckpt_extent){
      .offset = p->offset * sizeof(float), .n_stored = p->n_elements * sizeof(float), .count = p->n_elements};
  if (parts->weights == NULL) n = extents_of(extents, parts, i, KIND_WEIGHTS);
  CKPT_TRY(ckpt_index_add(index, p->name, strlen(p->name), CKPT_F32, p->rank, p->shape, CKPT_ROLE_PARAMETER, extents, n,
                          &number, err));
  return p->tied_name == NULL ? CKPT_OK : ckpt_index_alias(index, number, p->tied_name, err);
}

/* A moment lies in the pieces of those that hold it. */
static ckpt_status add_moment(ckpt_index *index, const ckpt_state_parts *parts, uint32_t i, bool is_second,
                              ckpt_extent *extents, ckpt_error *err) {
  const ckpt_parameter *p = &parts->model->parameters[i];
  const uint32_t n = extents_of(extents, parts, i, is_second ? KIND_EXP_AVG_SQ : KIND_EXP_AVG);
  const char *name =
      ckpt_arena_printf(&index->arena, CKPT_STATE_PREFIX "%s.%s", p->name, is_second ? "exp_avg_sq" : "exp_avg");
  CKPT_TRY_ALLOC(name, err);
  return ckpt_index_add(index, name, strlen(name), CKPT_F32, p->rank, p->shape,
                        is_second ? CKPT_ROLE_EXP_AVG_SQ : CKPT_ROLE_EXP_AVG, extents, n, NULL, err);
}

static ckpt_status add_step(ckpt_index *index, const ckpt_parameter *p, ckpt_error *err) {
  const ckpt_extent extent = {.file = FILE_STEP, .n_stored = sizeof(float), .count = 1};
  const char *name = ckpt_arena_printf(&index->arena, CKPT_STATE_PREFIX "%s.step", p->name);
  CKPT_TRY_ALLOC(name, err);
  return ckpt_index_add(index, name, strlen(name), CKPT_F32, 0, NULL, CKPT_ROLE_STEP, &extent, 1, NULL, err);
}

static ckpt_status add_tensors(ckpt_index *index, const ckpt_state_parts *p, ckpt_error *err) {
  const ckpt_model *model = p->model;
  ckpt_extent *extents = calloc(p->n_ranks, sizeof *extents);
  CKPT_TRY_ALLOC(extents, err);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < model->n_parameters && status == CKPT_OK; i++)
    status = add_parameter(index, p, i, extents, err);
  for (uint32_t i = 0; i < model->n_parameters && status == CKPT_OK && p->has_optimizer; i++) {
    status = add_moment(index, p, i, false, extents, err);
    if (status == CKPT_OK) status = add_moment(index, p, i, true, extents, err);
    if (status == CKPT_OK) status = add_step(index, &model->parameters[i], err);
  }
  free(extents);
  return status;
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static ckpt_object *put_text(ckpt_arena *a, ckpt_object *dict, const char *key, const char *text) {
  return ckpt_object_put(a, dict, key, ckpt_object_text(a, text, strlen(text)));
}

static ckpt_object *put_int(ckpt_arena *a, ckpt_object *dict, const char *key, uint64_t value) {
  return ckpt_object_put(a, dict, key, ckpt_object_int(a, (int64_t)value));
}

static ckpt_object *put_float(ckpt_arena *a, ckpt_object *dict, const char *key, double value) {
  return ckpt_object_put(a, dict, key, ckpt_object_float(a, value));
}

static ckpt_object *new_dict(ckpt_arena *a, uint64_t room) {
  ckpt_object *dict = ckpt_object_new(a, CKPT_OBJECT_DICT, room, NULL);
  if (dict != NULL) dict->n = 0;
  return dict;
}

/* One of the optimizer's two groups: parameters that decay, and those that do not. */
static ckpt_object *new_group(ckpt_arena *a, const ckpt_state_parts *p, bool decays) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->model->n_parameters; i++) n += p->model->parameters[i].decays == decays;
  ckpt_object *group = new_dict(a, 16), *names = ckpt_object_new(a, CKPT_OBJECT_LIST, n, NULL);
  ckpt_object *betas = ckpt_object_new(a, CKPT_OBJECT_TUPLE, 2, NULL);
  if (group == NULL || names == NULL || betas == NULL) return NULL;
  betas->items[0] = ckpt_object_float(a, p->settings->beta1);
  betas->items[1] = ckpt_object_float(a, p->settings->beta2);
  n = 0;
  for (uint32_t i = 0; i < p->model->n_parameters; i++) {
    const char *name = p->model->parameters[i].name;
    if (p->model->parameters[i].decays == decays) names->items[n++] = ckpt_object_text(a, name, strlen(name));
  }
  for (uint32_t i = 0; i < n; i++)
    if (names->items[i] == NULL) return NULL;
  if (betas->items[0] == NULL || betas->items[1] == NULL) return NULL;
  static const char *const flags[] = {"amsgrad", "maximize", "capturable", "differentiable"};
  put_float(a, group, "lr", p->settings->learning_rate);
  ckpt_object_put(a, group, "betas", betas);
  put_float(a, group, "eps", p->settings->epsilon);
  put_float(a, group, "weight_decay", decays ? p->settings->weight_decay : 0);
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    ckpt_object_put(a, group, flags[i], ckpt_object_bool(a, false));
  ckpt_object_put(a, group, "foreach", ckpt_object_none(a));
  ckpt_object_put(a, group, "fused", ckpt_object_bool(a, true));
  ckpt_object_put(a, group, "decoupled_weight_decay", ckpt_object_bool(a, true));
  put_float(a, group, "initial_lr", p->settings->initial_rate);
  return ckpt_object_put(a, group, "params", names);
}

/* As torch's schedulers have it; of ReduceLROnPlateau what it counts. NULL: out of memory. */
static ckpt_object *new_scheduler(ckpt_arena *a, const ckpt_state_parts *p, uint64_t n_groups) {
  const ckpt_plateau *plateau = &p->progress->plateau;
  ckpt_object *scheduler = new_dict(a, 5), *rates = ckpt_object_new(a, CKPT_OBJECT_LIST, n_groups, NULL);
  if (scheduler == NULL || rates == NULL) return NULL;
  for (uint64_t i = 0; i < n_groups; i++)
    if ((rates->items[i] = ckpt_object_float(a, p->settings->learning_rate)) == NULL) return NULL;
  put_int(a, scheduler, "last_epoch", p->progress->step);
  if (plateau->rate != 0) {
    ckpt_object_put(a, scheduler, "best",
                    isnan(plateau->best) ? ckpt_object_none(a) : ckpt_object_float(a, plateau->best));
    put_int(a, scheduler, "num_bad_epochs", plateau->n_bad);
    put_int(a, scheduler, "cooldown_counter", plateau->cooldown);
  }
  return ckpt_object_put(a, scheduler, "_last_lr", rates);
}

static ckpt_object *new_trainer(ckpt_arena *a, const ckpt_progress_state *s) {
  ckpt_object *t = new_dict(a, 16);
  if (t == NULL) return NULL;
  put_int(a, t, "global_step", s->step);
  put_int(a, t, "n_updates", s->n_updates);
  put_int(a, t, "n_tokens", s->n_tokens);
  put_int(a, t, "n_skipped", s->n_skipped);
  put_float(a, t, "loss_sum", s->loss_sum);
  ckpt_object_put(a, t, "best_metric",
                  isnan(s->best_metric) ? ckpt_object_none(a) : ckpt_object_float(a, s->best_metric));
  put_int(a, t, "best_step", s->best_step);
  put_int(a, t, "best_saved", s->best_saved);
  put_int(a, t, "patience", s->patience);
  put_int(a, t, "seed", s->seed);
  put_int(a, t, "data_seed", s->data_seed);
  put_int(a, t, "n_samples", s->n_samples);
  put_int(a, t, "rows_per_step", s->batch);
  return put_text(a, t, "run_id", s->run_id);
}

static ckpt_status add_objects(ckpt_index *index, const ckpt_state_parts *p, ckpt_error *err) {
  ckpt_arena *a = &index->arena;
  ckpt_object *objects = new_dict(a, 4), *groups = ckpt_object_new(a, CKPT_OBJECT_LIST, 2, NULL);
  CKPT_TRY_ALLOC(objects, err);
  CKPT_TRY_ALLOC(groups, err);
  groups->n = 0;
  for (int decays = 1; decays >= 0; decays--) {
    ckpt_object *group = new_group(a, p, decays);
    CKPT_TRY_ALLOC(group, err);
    if (ckpt_object_get(group, "params")->n != 0) groups->items[groups->n++] = group;
  }
  ckpt_object *scheduler = new_scheduler(a, p, groups->n);
  CKPT_TRY_ALLOC(scheduler, err);
  ckpt_object *trainer = new_trainer(a, p->progress);
  if (p->has_optimizer) {
    CKPT_TRY_ALLOC(ckpt_object_put(a, objects, CKPT_STATE_PARAM_GROUPS, groups), err);
    CKPT_TRY_ALLOC(ckpt_object_put(a, objects, CKPT_STATE_SCHEDULER, scheduler), err);
  }
  CKPT_TRY_ALLOC(ckpt_object_put(a, objects, CKPT_STATE_TRAINER, trainer), err);
  index->objects = objects;
  return CKPT_OK;
}

/* ---- the index --------------------------------------------------------------------------------------------------- */

static ckpt_status fill(ckpt_index *index, const ckpt_state_parts *p, ckpt_error *err) {
  CKPT_TRY(add_tensors(index, p, err));
  CKPT_TRY(add_objects(index, p, err));
  const uint32_t first = ckpt_source_count(index->source) - p->n_carried;
  for (uint32_t i = 0; i < p->n_carried; i++)
    CKPT_TRY(ckpt_index_add_side_file(index, p->carried[i].name, first + i, p->carried[i].n_bytes, err));
  for (uint32_t i = 0; i < index->n_side_files; i++) /* its dtype becomes that of the weights */
    if (strcmp(index->side_files[i].name, "config.json") == 0)
      index->side_files[i].text = p->carried[index->side_files[i].file - first].bytes;
  index->step = (int64_t)p->progress->step;
  index->min_ranks = p->n_ranks;
  CKPT_TRY(ckpt_index_canonical_names(index, false, NULL, err));
  return ckpt_index_finish(index, err);
}

ckpt_status ckpt_state_index(ckpt_index **out, const ckpt_state_parts *parts, ckpt_error *err) {
  ckpt_source *source = NULL;
  ckpt_index *index = NULL;
  ckpt_status status = new_source(&source, parts, err);
  if (status != CKPT_OK) {
    ckpt_source_free(source);
    return status;
  }
  CKPT_TRY(ckpt_index_new(&index, source, "the run's memory", "memory", NULL, err));
  status = fill(index, parts, err);
  if (status != CKPT_OK) {
    ckpt_index_free(index);
    return status;
  }
  *out = index;
  return CKPT_OK;
}
