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
#include "libckpt/codec/name_table.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"

typedef unsigned long long ull;

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
      if (ckpt_zero_is_name(names->items[i])) a->buffers[a->n_buffers++] = names->items[i]->text;
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
      if (ckpt_zero_is_name(module->items[2 * i])) entries->items[entries->n++] = &module->items[2 * i];
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

/* Puts slices together that lie in the ranks' files; of what all have all of, that of the rank that is read. */
static ckpt_status join_leaves(adder *a, uint32_t held, const char *name, const ckpt_zero_cut *cut,
                               const ckpt_tensor *const *slices, ckpt_error *err) {
  bool has_views = false;
  ckpt_zero_join join;
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    has_views = has_views || slices[t]->extent_form == CKPT_EXTENT_STRIDED;
    if (memcmp(slices[t]->shape, cut->slices + (size_t)t * cut->rank, cut->rank * sizeof *cut->slices) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, a->zero->shards[t].file.path, name, "has another shape than in param_shapes");
  }
  CKPT_TRY(ckpt_zero_join_begin(&join, a->zero, cut, (ckpt_dtype)slices[0]->dtype, has_views, err));
  for (uint32_t t = 0; t < (cut->is_replicated ? 1 : cut->n_slices); t++) {
    const ckpt_tensor *slice = slices[cut->is_replicated ? a->zero->copy : t];
    const bool is_view = slice->extent_form == CKPT_EXTENT_STRIDED;
    const ckpt_zero_held all = {.extent = slice->extents,
                                .count = slice->n_extents == 0 ? 0 : slice->n_elements,
                                .strides = is_view ? slice->extents->box + 2 * (size_t)cut->rank : NULL};
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
  const bool is_all =
      cut == NULL || (cut->is_replicated && memcmp(cut->shape, slices[0]->shape, cut->rank * sizeof *cut->shape) == 0);
  if (status == CKPT_OK && is_all)
    status = ckpt_zero_copy(a->zero, of, (uint32_t)(slices[a->zero->copy] - of->held->tensors), name, role_of(a, name),
                            &a->numbers[held], err);
  else if (status == CKPT_OK && cut->is_averaged && a->zero->copy == 0 && param != NULL && param->group != UINT32_MAX)
    status = ckpt_zero_add_param(a->zero, param, 0, (ckpt_dtype)slices[0]->dtype, name, role_of(a, name),
                                 &a->numbers[held], err); /* what a run makes of the mean of masters */
  else if (status == CKPT_OK && (cut->is_replicated || a->zero->copy == 0))
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
  else if (a->zero->n_tensor > 1 || (param != NULL && param->cut != NULL))
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
  if (of != NULL && ckpt_zero_is_name(of))
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
    if (ckpt_zero_tensor(a->file, leaf) != NULL && ckpt_zero_is_name(key))
      CKPT_TRY(add(a, key->text, leaf->tensor, err));
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
      CKPT_TRY(
          ckpt_zero_add_param(zero, held, 0, CKPT_DTYPE_NONE, param->name, CKPT_ROLE_PARAMETER, &param->number, err));
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
    if (!ckpt_zero_is_name(name) || !ckpt_zero_is_name(of) || ckpt_name_table_find(table, name->text) >= 0) continue;
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
