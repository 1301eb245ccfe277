/* zero_model.c - the model files of a ZeRO checkpoint.
 *
 *   {"module": {name: tensor}, "buffer_names": [name], "param_shapes": [{name: shape} for each group],
 *    "frozen_param_shapes": {name: shape}, "frozen_param_fragments": {name: tensor}, "shared_params": {name: of},
 *    "lr_scheduler", "global_steps", ..., "ds_config", "ds_version", <key>: <what client_state had under it>}
 *
 * In stage 3 there is one for each rank: module holds empty tensors where parameters are, and the fragments are the
 * rank's part. Otherwise all that the model has is in module, and of frozen ones there are copies. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/checked.h"
#include "libckpt/codec/name_table.h"
#include "libckpt/codec/pickle.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"

typedef unsigned long long ull;

/* ---- parameters -------------------------------------------------------------------------------------------------- */

static ckpt_status bad(const ckpt_zero_file *file, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL, "%s: no model file of ZeRO", what);
}

static bool is_name(const ckpt_object *key) {
  return key->kind == CKPT_OBJECT_TEXT && key->n != 0 && strlen(key->text) == key->n;
}

static ckpt_status add_params(ckpt_zero *zero, uint32_t shard, const ckpt_object *shapes, uint32_t group,
                              ckpt_error *err) {
  const ckpt_zero_file *file = &zero->shards[shard].file;
  const uint32_t n_before = zero->n_params - zero->shards[shard].first_param;
  uint64_t n_max = ckpt_source_size(zero->index->source, file->number); /* an entry takes more than a byte */
  if (shapes->kind != CKPT_OBJECT_DICT) return bad(file, "param_shapes is no list of tables", err);
  if (n_before > n_max || shapes->n > n_max - n_before)
    return bad(file, "param_shapes says the same again and again", err);
  for (uint64_t i = 0; i < shapes->n; i++) {
    const ckpt_object *key = shapes->items[2 * i];
    if (!is_name(key)) return bad(file, "a name in param_shapes is no text", err);
    CKPT_TRY(ckpt_grow(&zero->params, zero->n_params, &zero->param_capacity, sizeof *zero->params, err));
    ckpt_zero_param *param = &zero->params[zero->n_params++];
    *param = (ckpt_zero_param){.name = key->text, .group = group, .shard = shard, .number = UINT32_MAX};
    if (!ckpt_foreign_u64s(shapes->items[2 * i + 1], param->shape, CKPT_MAX_RANK, &param->rank) ||
        !ckpt_product_u64(param->shape, param->rank, &param->n_elements))
      return ckpt_fail(err, CKPT_EFORMAT, file->path, param->name, "its shape in param_shapes is none of a tensor");
  }
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

static ckpt_status add_fragments(ckpt_zero *zero, const ckpt_zero_file *file, uint32_t shard, uint32_t rank,
                                 ckpt_error *err) {
  const ckpt_object *fragments = ckpt_object_get(file->graph.root, "frozen_param_fragments");
  for (uint64_t i = 0; fragments != NULL && fragments->kind == CKPT_OBJECT_DICT && i < fragments->n; i++) {
    const ckpt_object *key = fragments->items[2 * i];
    ckpt_zero_param *param = is_name(key) ? ckpt_zero_find(zero, shard, key->text) : NULL;
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

static int64_t steps_of(const ckpt_zero_file *file) {
  return ckpt_zero_number(ckpt_object_get(file->graph.root, "global_steps"));
}

ckpt_status ckpt_zero_same_step(const ckpt_zero_file *file, const ckpt_zero_file *first, ckpt_error *err) {
  if (steps_of(file) == steps_of(first)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                   "of step %lld, and rank 0 is of step %lld: files of "
                   "different saves",
                   (long long)steps_of(file), (long long)steps_of(first));
}

ckpt_status ckpt_zero_read_frozen(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_files *models = &zero->models;
  for (uint32_t i = 0; i < models->n * models->n_shards && zero->stage == 3; i++) {
    const uint32_t shard = i / models->n, rank = i % models->n;
    const ckpt_zero_file *first = &zero->shards[shard].file;
    ckpt_zero_file file = {0};
    ckpt_status status = rank == 0 ? CKPT_OK : ckpt_zero_open(&file, zero, models->paths[i], err);
    const ckpt_zero_file *of = rank == 0 ? first : &file;
    if (status == CKPT_OK) status = ckpt_zero_same_step(of, first, err);
    if (status == CKPT_OK) status = add_fragments(zero, of, shard, rank, err);
    ckpt_zero_close(&file);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* ---- tensors that are stored whole ------------------------------------------------------------------------------- */

/* Names and values in module, in the order of names. */
typedef struct module_entries {
  ckpt_object *const **items; /* each a key, and behind it the value */
  uint64_t n;
} module_entries;

/* What becomes of the tensors of the file. */
typedef struct adder {
  ckpt_zero *zero;
  const ckpt_zero_file *file;
  uint32_t *numbers;      /* by number in the file: in the index; UINT32_MAX: not there */
  module_entries *others; /* by tensor-parallel rank, but for the first */
  const char **buffers;   /* names, sorted */
  uint64_t n_buffers;
  int64_t expert;     /* whose file it is */
  const char *prefix; /* of names, in a layer's file */
} adder;

static ckpt_status new_numbers(adder *a, ckpt_error *err) {
  const size_t n = (size_t)a->file->held->n_tensors + 1;
  a->numbers = reallocarray(NULL, n, sizeof *a->numbers);
  CKPT_TRY_ALLOC(a->numbers, err);
  memset(a->numbers, 0xFF, n * sizeof *a->numbers);
  return CKPT_OK;
}

/* What the file's own index says of what is not read. */
static ckpt_status add_notes(const adder *a, ckpt_error *err) {
  for (uint32_t i = 0; i < a->file->held->n_notes; i++)
    CKPT_TRY(ckpt_index_note(a->zero->index, false, err, "%s", a->file->held->notes[i].text));
  for (uint32_t i = 0; i < a->file->held->n_unread; i++) {
    const ckpt_unread *unread = &a->file->held->unread[i];
    bool is_module = strncmp(unread->name, "module.", 7) == 0, is_expert = ckpt_zero_expert_of(unread->name) >= 0;
    CKPT_TRY(ckpt_index_add_unread(a->zero->index, unread->name + (is_module ? 7 : 0),
                                   is_module || is_expert ? CKPT_ROLE_PARAMETER : CKPT_ROLE_OTHER, unread->why, err));
  }
  return CKPT_OK;
}

static int compare_texts(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ckpt_status sort_buffers(adder *a, ckpt_error *err) {
  for (uint32_t shard = 0; shard < a->zero->n_shards; shard++) {
    const ckpt_object *names = ckpt_object_get(a->zero->shards[shard].file.graph.root, "buffer_names");
    if (names == NULL || names->kind != CKPT_OBJECT_LIST) continue;
    const char **grown = reallocarray(a->buffers, (size_t)(a->n_buffers + names->n) + 1, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    a->buffers = grown;
    for (uint64_t i = 0; i < names->n; i++)
      if (is_name(names->items[i])) a->buffers[a->n_buffers++] = names->items[i]->text;
  }
  if (a->n_buffers > 1) qsort(a->buffers, a->n_buffers, sizeof *a->buffers, compare_texts);
  return CKPT_OK;
}

/* Of an expert's tensor, too: those of the first are in buffer_names on any rank. */
static ckpt_role role_of(const adder *a, const char *name) {
  char first[CKPT_ZERO_NAME_BYTES];
  if (ckpt_zero_expert_of(name) > 0 && ckpt_zero_name_expert(first, name, 0, NULL) == CKPT_OK) name = first;
  bool is_buffer = a->n_buffers != 0 && bsearch(&name, a->buffers, a->n_buffers, sizeof *a->buffers, compare_texts);
  return is_buffer ? CKPT_ROLE_BUFFER : CKPT_ROLE_PARAMETER;
}

static ckpt_status copy_tensor(adder *a, uint32_t held, const char *name, ckpt_role role, ckpt_error *err) {
  return ckpt_zero_copy(a->zero, a->file, held, name, role, &a->numbers[held], err);
}

/* ---- slices in the model files of tensor-parallel ranks ---------------------------------------------------------- */

static int compare_entries(const void *x, const void *y) {
  return strcmp((**(ckpt_object *const *const *)x)->text, (**(ckpt_object *const *const *)y)->text);
}

static ckpt_status list_others(adder *a, ckpt_error *err) {
  const uint32_t n_slices = a->zero->n_tensor;
  a->others = calloc(n_slices, sizeof *a->others);
  CKPT_TRY_ALLOC(a->others, err);
  for (uint32_t t = 1; t < n_slices; t++) {
    module_entries *entries = &a->others[t];
    const ckpt_object *module = ckpt_object_get(a->zero->shards[t].file.graph.root, "module");
    if (module == NULL || module->kind != CKPT_OBJECT_DICT) continue;
    entries->items = reallocarray(NULL, (size_t)module->n + 1, sizeof *entries->items);
    CKPT_TRY_ALLOC(entries->items, err);
    for (uint64_t i = 0; i < module->n; i++)
      if (is_name(module->items[2 * i])) entries->items[entries->n++] = &module->items[2 * i];
    if (entries->n > 1) qsort(entries->items, entries->n, sizeof *entries->items, compare_entries);
  }
  return CKPT_OK;
}

/* What tensor-parallel rank t has in module under a name. */
static ckpt_status find_slice(const adder *a, const ckpt_tensor **out, uint32_t t, const char *name,
                              const ckpt_tensor *first, ckpt_error *err) {
  const module_entries *entries = &a->others[t];
  const ckpt_zero_file *file = &a->zero->shards[t].file;
  const ckpt_tensor *tensor = NULL;
  for (uint64_t low = 0, high = entries->n; low < high && tensor == NULL;) {
    const uint64_t middle = low + (high - low) / 2;
    const int order = strcmp(name, entries->items[middle][0]->text);
    if (order == 0) tensor = ckpt_zero_tensor(file, entries->items[middle][1]);
    if (order == 0 && tensor == NULL) break;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  if (tensor == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, name, "not in module, as it is on tensor parallel rank 0");
  if (tensor->dtype != first->dtype || tensor->rank != first->rank)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, name,
                     "%s of %u ax%s, and on tensor parallel rank 0 %s of %u: no slices of one tensor",
                     ckpt_dtype_name((ckpt_dtype)tensor->dtype), tensor->rank, tensor->rank == 1 ? "is" : "es",
                     ckpt_dtype_name((ckpt_dtype)first->dtype), first->rank);
  *out = tensor;
  return CKPT_OK;
}

/* How the slices of a tensor that is no trained parameter make it; buffers are the same on all ranks. */
static ckpt_status cut_leaf(const adder *a, const ckpt_zero_cut **out, const char *name,
                            const ckpt_tensor *const *slices, ckpt_error *err) {
  ckpt_zero *zero = a->zero;
  const uint32_t rank = slices[0]->rank;
  const bool is_buffer = role_of(a, name) == CKPT_ROLE_BUFFER;
  uint64_t *shapes = ckpt_arena_array(&zero->index->arena, (size_t)zero->n_tensor * rank + 1, sizeof *shapes);
  CKPT_TRY_ALLOC(shapes, err);
  for (uint32_t t = 0; t < zero->n_tensor; t++) {
    if (rank != 0) memcpy(shapes + (size_t)t * rank, slices[t]->shape, rank * sizeof *shapes);
    if (is_buffer && !ckpt_tensor_same_shape(slices[0], slices[t]))
      return ckpt_fail(
          err, CKPT_EUNSUPPORTED, zero->shards[t].file.path, name,
          "a buffer of another shape than on tensor parallel rank 0: nothing says how they are put together");
  }
  ckpt_zero_cut *cut = NULL;
  if (!is_buffer)
    CKPT_TRY(ckpt_zero_cut_of(&cut, zero->rules, a->file->path, name, rank, shapes, zero->n_tensor, &zero->index->arena,
                              err));
  *out = cut;
  return CKPT_OK;
}

/* Puts slices together that lie in the ranks' files. */
static ckpt_status join_leaves(adder *a, uint32_t held, const char *name, const ckpt_zero_cut *cut,
                               const ckpt_tensor *const *slices, ckpt_error *err) {
  bool has_views = false;
  ckpt_zero_join join;
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    has_views = has_views || slices[t]->extent_form == CKPT_EXTENT_STRIDED;
    if (memcmp(slices[t]->shape, cut->slices + (size_t)t * cut->rank, cut->rank * sizeof *cut->slices) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, a->zero->shards[t].file.path, name, "has another shape than in param_shapes");
  }
  ckpt_zero_join_begin(&join, a->zero, cut, (ckpt_dtype)slices[0]->dtype, has_views);
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    const bool is_view = slices[t]->extent_form == CKPT_EXTENT_STRIDED;
    const ckpt_zero_held all = {.extent = slices[t]->extents,
                                .count = slices[t]->n_extents == 0 ? 0 : slices[t]->n_elements,
                                .strides = is_view ? slices[t]->extents->box + 2 * (size_t)cut->rank : NULL};
    CKPT_TRY(ckpt_zero_join_add(&join, t, &all, err));
  }
  return ckpt_zero_join_end(&join, name, role_of(a, name), cut->rank, cut->shape, &a->numbers[held], err);
}

/* A tensor that ranks have slices of. What all have is the first one's. */
static ckpt_status add_slices(adder *a, uint32_t held, const char *name, const ckpt_zero_param *param,
                              ckpt_error *err) {
  const ckpt_tensor **slices = reallocarray(NULL, a->zero->n_tensor, sizeof *slices);
  const ckpt_zero_cut *cut = param == NULL ? NULL : param->cut;
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(slices, err);
  slices[0] = &a->file->held->tensors[held];
  for (uint32_t t = 1; t < a->zero->n_tensor && status == CKPT_OK; t++)
    status = find_slice(a, &slices[t], t, name, slices[0], err);
  if (status == CKPT_OK && cut == NULL) status = cut_leaf(a, &cut, name, slices, err);
  const ckpt_zero_file *of = &a->zero->shards[a->zero->copy].file; /* all of them have it */
  if (status == CKPT_OK && (cut == NULL || cut->is_replicated))
    status = ckpt_zero_copy(a->zero, of, (uint32_t)(slices[a->zero->copy] - of->held->tensors), name, role_of(a, name),
                            &a->numbers[held], err);
  else if (status == CKPT_OK && !cut->is_averaged && a->zero->copy == 0)
    status = join_leaves(a, held, name, cut, slices, err);
  free(slices);
  return status;
}

/* ---- entries of module ------------------------------------------------------------------------------------------- */

/* One entry of module that is a tensor. In stage 3 parameters are empty there. */
static ckpt_status add_entry(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  ckpt_zero_param *param = ckpt_zero_find_any(a->zero, name);
  const ckpt_tensor *tensor = &a->file->held->tensors[held];
  if (a->zero->stage == 3 && (param != NULL || tensor->n_elements == 0)) return CKPT_OK;
  if (a->numbers[held] != UINT32_MAX)
    CKPT_TRY(ckpt_index_alias(a->zero->index, a->numbers[held], name, err));
  else if (a->zero->n_tensor > 1)
    CKPT_TRY(add_slices(a, held, name, param, err));
  else
    CKPT_TRY(copy_tensor(a, held, name, role_of(a, name), err));
  if (param == NULL) return CKPT_OK;
  param->number = a->numbers[held];
  if (tensor->n_elements == param->n_elements || param->cut != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, a->file->path, name, "it has %llu element%s, and %llu in param_shapes",
                   (ull)tensor->n_elements, ckpt_plural(tensor->n_elements), (ull)param->n_elements);
}

/* An empty tensor of module in stage 3 that no parameter's name is of: another name of one, which has the same empty
 * tensor or stands in shared_params. */
static ckpt_status add_empty(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  const ckpt_object *shared = ckpt_object_get(a->file->graph.root, "shared_params");
  const char *path = a->file->held->tensors[held].name; /* the first: module.<name> */
  const ckpt_object *of = ckpt_object_get(shared, name);
  if (ckpt_zero_find(a->zero, 0, name) != NULL || a->file->held->tensors[held].n_elements != 0) return CKPT_OK;
  if (of != NULL && is_name(of))
    path = of->text;
  else
    path += strncmp(path, "module.", 7) == 0 ? 7 : 0;
  const ckpt_zero_param *param = ckpt_zero_find(a->zero, 0, path);
  if (param != NULL) return ckpt_index_alias(a->zero->index, param->number, name, err);
  if (role_of(a, name) == CKPT_ROLE_BUFFER) return copy_tensor(a, held, name, CKPT_ROLE_BUFFER, err);
  return ckpt_fail(err, CKPT_EFORMAT, a->file->path, name,
                   "no rank holds it (it is empty in module, and not in param_shapes)");
}

typedef ckpt_status add_one(adder *a, const char *name, uint32_t held, ckpt_error *err);

static ckpt_status each_of(adder *a, const ckpt_object *table, add_one *add, ckpt_error *err) {
  for (uint64_t i = 0; i < table->n; i++) {
    const ckpt_object *key = table->items[2 * i], *leaf = table->items[2 * i + 1];
    if (ckpt_zero_tensor(a->file, leaf) != NULL && is_name(key)) CKPT_TRY(add(a, key->text, leaf->tensor, err));
  }
  return CKPT_OK;
}

static ckpt_status each_of_module(adder *a, add_one *add, ckpt_error *err) {
  const ckpt_object *module = ckpt_object_get(a->file->graph.root, "module");
  if (a->zero->n_layers != 0 && module != NULL && module->kind == CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, a->file->path, NULL,
                     "weights in it, and files of a pipeline's layers beside it: of different saves");
  if (a->zero->n_layers != 0) return CKPT_OK; /* which have it */
  if (module == NULL || module->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, a->file->path, NULL,
                     "no weights in it (module is no dict), and no files of a pipeline's layers beside it");
  return each_of(a, module, add, err);
}

/* ---- experts and layers ------------------------------------------------------------------------------------------ */

static ckpt_status add_expert(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  const int64_t expert = ckpt_zero_expert_of(name);
  if (expert == a->expert) return add_entry(a, name, held, err);
  return ckpt_fail(err, CKPT_EFORMAT, a->file->path, name, "it is no tensor of expert %lld, whose file this is",
                   (long long)a->expert);
}

/* An entry of a layer's file. A tied module is in the file of each layer that it is. */
static ckpt_status add_of_layer(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  char full[CKPT_ZERO_NAME_BYTES];
  CKPT_TRY(ckpt_zero_name_layer(full, a->prefix, name, err));
  const ckpt_zero_param *param = ckpt_zero_find_any(a->zero, full);
  return param != NULL && param->number != UINT32_MAX ? CKPT_OK : add_entry(a, full, held, err);
}

/* Adds what is in the file of an expert, or of a layer. */
static ckpt_status add_file(const adder *model, const ckpt_zero_place *place, add_one *add, ckpt_error *err) {
  ckpt_zero_file file = {0};
  adder a = *model;
  a.file = &file;
  a.numbers = NULL;
  a.expert = place->rank;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_zero_open(&file, a.zero, place->name, err));
  CKPT_TRY_GOTO(new_numbers(&a, err));
  if (add == add_of_layer) CKPT_TRY_GOTO(ckpt_zero_prefix_layer(a.zero, &a.prefix, place, &file, err));
  CKPT_TRY_GOTO(each_of(&a, file.graph.root, add, err));
  status = add_notes(&a, err);
done:
  ckpt_zero_close(&file);
  free(a.numbers);
  return status;
}

/* What is in param_shapes for all experts has to be in their files. */
static ckpt_status add_experts(const adder *a, ckpt_error *err) {
  const ckpt_zero *zero = a->zero;
  for (uint32_t i = 0; i < zero->n_experts; i++) CKPT_TRY(add_file(a, &zero->experts[i], add_expert, err));
  for (uint32_t i = 0; i < zero->n_params && zero->n_experts != 0; i++)
    if (zero->params[i].number == UINT32_MAX && ckpt_zero_expert_of(zero->params[i].name) >= 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, zero->params[i].name, "in no file of an expert");
  return CKPT_OK;
}

/* Parameters that module has not. Of frozen ones there are copies in stages 1 and 2. */
static ckpt_status add_held(adder *a, ckpt_error *err) {
  ckpt_zero *zero = a->zero;
  const ckpt_object *whole = ckpt_object_get(a->file->graph.root, "frozen_param_fragments");
  for (uint32_t i = 0; i < zero->n_params; i++) {
    ckpt_zero_param *param = &zero->params[i];
    const ckpt_zero_param *held = ckpt_zero_stand_in(zero, param);
    if (param->number != UINT32_MAX || held == NULL) continue;
    bool is_frozen = param->group == UINT32_MAX;
    const ckpt_object *leaf = is_frozen && zero->stage < 3 ? ckpt_object_get(whole, param->name) : NULL;
    if (ckpt_zero_tensor(a->file, leaf) != NULL) {
      CKPT_TRY(copy_tensor(a, leaf->tensor, param->name, CKPT_ROLE_PARAMETER, err));
      param->number = a->numbers[leaf->tensor];
    } else {
      CKPT_TRY(ckpt_zero_add_param(zero, held, 0, param->name, CKPT_ROLE_PARAMETER, &param->number, err));
    }
  }
  return CKPT_OK;
}

/* Names that module has not, of parameters that it has under another. */
static ckpt_status add_shared(adder *a, ckpt_error *err) {
  const ckpt_object *shared = ckpt_object_get(a->file->graph.root, "shared_params");
  ckpt_name_table *table = NULL;
  ckpt_status status = CKPT_OK;
  if (shared == NULL || shared->kind != CKPT_OBJECT_DICT || shared->n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_name_table_new(&table, a->zero->index, err));
  for (uint64_t i = 0; i < shared->n && status == CKPT_OK; i++) {
    const ckpt_object *name = shared->items[2 * i], *of = shared->items[2 * i + 1];
    if (!is_name(name) || !is_name(of) || ckpt_name_table_find(table, name->text) >= 0) continue;
    const ckpt_zero_param *param = ckpt_zero_find(a->zero, 0, of->text);
    if (param != NULL) status = ckpt_index_alias(a->zero->index, param->number, name->text, err);
  }
  ckpt_name_table_free(table);
  return status;
}

/* ---- what else there is ------------------------------------------------------------------------------------------ */

/* Tensors outside of what DeepSpeed writes are of client_state: they keep the names of their paths. */
static ckpt_status add_client(adder *a, ckpt_error *err) {
  for (uint32_t i = 0; i < a->file->held->n_tensors; i++) {
    const char *name = a->file->held->tensors[i].name;
    if (a->numbers[i] == UINT32_MAX && !ckpt_zero_is_own(name, strcspn(name, ".")))
      CKPT_TRY(copy_tensor(a, i, name, CKPT_ROLE_OTHER, err));
  }
  return add_notes(a, err);
}

/* Other names, and what is not the model's. */
static ckpt_status add_others(adder *a, ckpt_error *err) {
  if (a->zero->stage == 3) CKPT_TRY(each_of_module(a, add_empty, err));
  CKPT_TRY(add_shared(a, err));
  CKPT_TRY(add_client(a, err));
  return a->zero->stage == 0 ? ckpt_zero_add_whole(a->zero, a->file, err) : CKPT_OK;
}

ckpt_status ckpt_zero_add_model(ckpt_zero *zero, ckpt_error *err) {
  ckpt_zero_file *file = &zero->shards[0].file;
  adder a = {.zero = zero, .file = file};
  ckpt_status status;
  CKPT_TRY_GOTO(new_numbers(&a, err));
  CKPT_TRY_GOTO(sort_buffers(&a, err));
  CKPT_TRY_GOTO(list_others(&a, err));
  CKPT_TRY_GOTO(each_of_module(&a, add_entry, err));
  CKPT_TRY_GOTO(add_experts(&a, err));
  for (uint32_t i = 0; i < zero->n_layers; i++) CKPT_TRY_GOTO(add_file(&a, &zero->layers[i], add_of_layer, err));
  CKPT_TRY_GOTO(add_held(&a, err));
  if (zero->copy == 0) CKPT_TRY_GOTO(add_others(&a, err));
  ckpt_zero_keep(file, zero, a.numbers);
done:
  for (uint32_t t = 0; a.others != NULL && t < zero->n_tensor; t++) free(a.others[t].items);
  free(a.others);
  free(a.numbers);
  free(a.buffers);
  return status;
}
