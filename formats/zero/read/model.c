/* model.c - the model files of a ZeRO checkpoint.
 *
 *   {"module": {name: tensor}, "buffer_names": [name], "param_shapes": [{name: shape} for each group],
 *    "frozen_param_shapes": {name: shape}, "frozen_param_fragments": {name: tensor}, "shared_params": {name: of},
 *    "lr_scheduler", "global_steps", ..., "ds_config", "ds_version", <key>: <what client_state had under it>}
 *
 * In stage 3 there is one for each rank: module holds empty tensors where parameters are, and the fragments are the
 * rank's part. Otherwise all that the model has is in module, and of frozen ones there are copies. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/index/name_table.h"

typedef unsigned long long ull;

/* ---- tensors that are stored whole ------------------------------------------------------------------------------- */

/* An entry of shared_params. Where exclude_frozen_parameters takes a frozen parameter out of module, it leaves its
 * other names there. */
typedef struct shared_name {
  const char *name, *of;
  bool is_left_over;
} shared_name;

/* An entry of frozen_param_fragments. */
typedef struct fragment {
  const char *name;
  const ckpt_object *leaf;
} fragment;

/* What becomes of the tensors of the file. */
typedef struct adder {
  ckpt_zero *zero;
  const ckpt_zero_file *file;
  ckpt_zero_slices *slices; /* of the same file of other tensor-parallel ranks; NULL: there are none */
  uint32_t *numbers;        /* by number in the file: in the index; UINT32_MAX: not there */
  const char **buffers;     /* names, sorted */
  uint64_t n_buffers;
  shared_name *shared; /* by name */
  uint64_t n_shared;
  fragment *fragments; /* by name */
  uint64_t n_fragments;
  const char *stray; /* the first parameter of module that is in no table; NULL: there is none */
  const char **keys; /* of the file's root, sorted */
  uint64_t n_keys;
  uint32_t n_hidden;  /* 1: a tensor of client_state that is called as DeepSpeed's own was said */
  int64_t expert;     /* whose file it is */
  const char *prefix; /* of names; not "" in a layer's file */
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

/* Marks those whose parameter is neither in module nor in param_shapes, in a save that has no frozen ones. */
static ckpt_status mark_left_over(adder *a, const ckpt_object *module, ckpt_error *err) {
  const ckpt_object *frozen = ckpt_object_get(a->file->graph.root, "frozen_param_shapes");
  if (a->zero->stage == 0 || frozen == NULL || frozen->kind != CKPT_OBJECT_NONE || module == NULL) return CKPT_OK;
  const char **names = reallocarray(NULL, (size_t)module->n + 1, sizeof *names);
  CKPT_TRY_ALLOC(names, err);
  uint64_t n = 0;
  for (uint64_t i = 0; module->kind == CKPT_OBJECT_DICT && i < module->n; i++)
    if (ckpt_zero_is_name(module->items[2 * i])) names[n++] = module->items[2 * i]->text;
  if (n > 1) qsort(names, n, sizeof *names, compare_texts);
  for (uint64_t i = 0; i < a->n_shared; i++) {
    shared_name *shared = &a->shared[i];
    const bool is_there = n != 0 && bsearch(&shared->of, names, n, sizeof *names, compare_texts) != NULL;
    shared->is_left_over = !is_there && ckpt_zero_find_any(a->zero, shared->of) == NULL &&
                           ckpt_zero_find_any(a->zero, shared->name) == NULL;
  }
  free(names);
  return CKPT_OK;
}

static ckpt_status sort_shared(adder *a, ckpt_error *err) {
  const ckpt_object *shared = ckpt_object_get(a->file->graph.root, "shared_params");
  if (shared == NULL || shared->kind != CKPT_OBJECT_DICT || shared->n == 0) return CKPT_OK;
  a->shared = reallocarray(NULL, (size_t)shared->n, sizeof *a->shared);
  CKPT_TRY_ALLOC(a->shared, err);
  for (uint64_t i = 0; i < shared->n; i++) {
    const ckpt_object *name = shared->items[2 * i], *of = shared->items[2 * i + 1];
    if (ckpt_zero_is_name(name) && ckpt_zero_is_name(of))
      a->shared[a->n_shared++] = (shared_name){.name = name->text, .of = of->text};
  }
  if (a->n_shared > 1) qsort(a->shared, a->n_shared, sizeof *a->shared, compare_texts);
  return mark_left_over(a, ckpt_object_get(a->file->graph.root, "module"), err);
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

/* What the tensor-parallel ranks have in module. */
static ckpt_status set_slices(adder *a, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_slices_new(&a->slices, a->zero, err));
  for (uint32_t t = 0; t < a->zero->n_tensor; t++) {
    const ckpt_zero_file *file = &a->zero->shards[t].file;
    CKPT_TRY(ckpt_zero_slices_set(a->slices, t, file, ckpt_object_get(file->graph.root, "module"), err));
  }
  return CKPT_OK;
}

/* ---- entries of module ------------------------------------------------------------------------------------------- */

/* What shared_params says of a name; NULL: nothing. */
static const shared_name *shared_of(const adder *a, const char *name) {
  return a->n_shared == 0 ? NULL : bsearch(&name, a->shared, a->n_shared, sizeof *a->shared, compare_texts);
}

static ckpt_status note_left_over(const adder *a, const char *name, ckpt_error *err) {
  return ckpt_index_note(a->zero->index, false, err,
                         "not read: %.200s, another name of a frozen parameter that this save left out "
                         "(exclude_frozen_parameters)",
                         name);
}

/* One entry of module that is a tensor. In stage 3 parameters are empty there. */
static ckpt_status add_entry(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  ckpt_zero_param *param = ckpt_zero_find_any(a->zero, name);
  const ckpt_tensor *tensor = &a->file->held->tensors[held];
  if (a->zero->stage == 3 && (param != NULL || tensor->n_elements == 0)) return CKPT_OK;
  const shared_name *shared = shared_of(a, name);
  if (shared != NULL && shared->is_left_over) return note_left_over(a, name, err);
  if (a->numbers[held] != UINT32_MAX)
    CKPT_TRY(ckpt_index_alias(a->zero->index, a->numbers[held], name, err));
  else if (a->slices != NULL && (a->zero->n_tensor > 1 || (param != NULL && param->cut != NULL)))
    CKPT_TRY(ckpt_zero_join_slices(a->slices, tensor, name + strlen(a->prefix), name, role_of(a, name), param,
                                   &a->numbers[held], err));
  else
    CKPT_TRY(copy_tensor(a, held, name, role_of(a, name), err));
  if (param == NULL) {
    const bool is_stray = shared == NULL && role_of(a, name) == CKPT_ROLE_PARAMETER;
    if (a->stray == NULL && is_stray) a->stray = name;
    return CKPT_OK;
  }
  param->number = a->numbers[held];
  if (tensor->n_elements == param->n_elements || param->cut != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, a->file->path, name, "it has %llu element%s, and %llu in param_shapes",
                   (ull)tensor->n_elements, ckpt_plural(tensor->n_elements), (ull)param->n_elements);
}

/* An empty tensor of module in stage 3 that no parameter's name is of: another name of one, which has the same empty
 * tensor or stands in shared_params. */
static ckpt_status add_empty(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  const char *path = a->file->held->tensors[held].name; /* the first: module.<name> */
  const shared_name *shared = shared_of(a, name);
  if (ckpt_zero_find(a->zero, 0, name) != NULL || a->file->held->tensors[held].n_elements != 0) return CKPT_OK;
  if (shared != NULL)
    path = shared->of;
  else
    path += strncmp(path, "module.", 7) == 0 ? 7 : 0;
  const ckpt_zero_param *param = ckpt_zero_find(a->zero, 0, path);
  if (param != NULL) return ckpt_index_alias(a->zero->index, param->number, name, err);
  if (role_of(a, name) == CKPT_ROLE_BUFFER) return copy_tensor(a, held, name, CKPT_ROLE_BUFFER, err);
  if (shared != NULL && shared->is_left_over) return note_left_over(a, name, err);
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

bool ckpt_zero_has_module(const ckpt_zero_file *file) {
  const ckpt_object *module = ckpt_object_get(file->graph.root, "module");
  return module != NULL && module->kind == CKPT_OBJECT_DICT;
}

static ckpt_status each_of_module(adder *a, add_one *add, ckpt_error *err) {
  const bool has_module = ckpt_zero_has_module(a->file);
  if (a->zero->n_layers != 0 && has_module)
    return ckpt_fail(err, CKPT_EFORMAT, a->file->path, NULL,
                     "weights in it, and files of a pipeline's layers beside it: of different saves");
  if (a->zero->n_layers != 0) return CKPT_OK; /* which have it */
  if (has_module) return each_of(a, ckpt_object_get(a->file->graph.root, "module"), add, err);
  if (a->zero->is_universal && a->zero->shards[0].n_shapes != 0)
    return ckpt_index_note(a->zero->index, false, err,
                           "of a pipeline, whose layers' files are not in it: weights are masters, and buffers and "
                           "frozen parameters, which DeepSpeed leaves out, are not read");
  return ckpt_fail(err, CKPT_EUNSUPPORTED, a->file->path, NULL,
                   "no weights in it (module is no dict), and no files of a pipeline's layers beside it");
}

/* ---- experts and layers ------------------------------------------------------------------------------------------ */

static ckpt_status add_expert(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  const int64_t expert = ckpt_zero_expert_of(name);
  if (expert == a->expert) return add_entry(a, name, held, err);
  return ckpt_fail(err, CKPT_EFORMAT, a->file->path, name, "it is no tensor of expert %lld, whose file this is",
                   (long long)a->expert);
}

static ckpt_status add_of_layer(adder *a, const char *name, uint32_t held, ckpt_error *err) {
  char full[CKPT_ZERO_NAME_BYTES];
  CKPT_TRY(ckpt_zero_name_layer(full, a->prefix, name, err));
  return add_entry(a, full, held, err);
}

/* Whether a layer's file has tensors, and none that the model files know. In stage 1 they do not list frozen ones. */
static bool is_unknown(const adder *a) {
  char full[CKPT_ZERO_NAME_BYTES];
  const ckpt_object *root = a->file->graph.root;
  uint64_t n = 0;
  for (uint32_t s = 0; s < a->zero->n_shards; s++)
    if (a->zero->shards[s].n_shapes == 0) return false;
  for (uint64_t i = 0; i < root->n; i++) {
    if (ckpt_zero_tensor(a->file, root->items[2 * i + 1]) == NULL || !ckpt_zero_is_name(root->items[2 * i])) continue;
    n++;
    if (ckpt_zero_name_layer(full, a->prefix, root->items[2 * i]->text, NULL) != CKPT_OK) return false;
    if (ckpt_zero_find_any(a->zero, full) != NULL || role_of(a, full) == CKPT_ROLE_BUFFER) return false;
  }
  return n != 0;
}

/* Adds what is in a layer's file. */
static ckpt_status add_layer(adder *a, const ckpt_zero_place *place, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_prefix_layer(a->zero, &a->prefix, place, a->file, err));
  if (ckpt_zero_turn_of_layer(a->zero, a->prefix) != a->zero->twin) return CKPT_OK;
  if (is_unknown(a))
    CKPT_TRY(
        ckpt_index_note(a->zero->index, false, err,
                        "%.200s has nothing that is in param_shapes or buffer_names: of a frozen layer, or left by "
                        "another save",
                        place->name));
  return each_of(a, a->file->graph.root, add_of_layer, err);
}

/* Adds what is in the files of an expert, or (add NULL) of a layer: one of each tensor-parallel rank. */
static ckpt_status add_files(adder *a, const ckpt_zero_place *places, uint32_t n, add_one *add, ckpt_error *err) {
  ckpt_zero_file *files = calloc(n, sizeof *files);
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(files, err);
  a->file = files;
  a->expert = places->rank;
  a->numbers = NULL;
  a->slices = NULL;
  const bool has_slices = n > 1 || (add == NULL && a->zero->rules != NULL);
  if (has_slices) CKPT_TRY_GOTO(ckpt_zero_slices_new(&a->slices, a->zero, err));
  for (uint32_t t = 0; t < n; t++) {
    CKPT_TRY_GOTO(ckpt_zero_open(&files[t], a->zero, places[t].name, err));
    if (has_slices) CKPT_TRY_GOTO(ckpt_zero_slices_set(a->slices, t, &files[t], files[t].graph.root, err));
  }
  CKPT_TRY_GOTO(new_numbers(a, err));
  if (add == NULL)
    CKPT_TRY_GOTO(add_layer(a, places, err));
  else
    CKPT_TRY_GOTO(each_of(a, files->graph.root, add, err));
  status = add_notes(a, err);
done:
  ckpt_zero_slices_free(a->slices);
  for (uint32_t t = 0; t < n; t++) ckpt_zero_close(&files[t]);
  free(files);
  free(a->numbers);
  return status;
}

static ckpt_status add_layers(const adder *model, ckpt_error *err) {
  const ckpt_zero *zero = model->zero;
  for (uint32_t i = 0; i < zero->n_layers; i++) {
    adder a = *model;
    CKPT_TRY(add_files(&a, &zero->layers[(size_t)i * zero->n_layer_ranks], zero->n_layer_ranks, NULL, err));
  }
  return CKPT_OK;
}

/* What is in param_shapes for all experts has to be in their files. */
static ckpt_status add_experts(const adder *a, ckpt_error *err) {
  const ckpt_zero *zero = a->zero;
  for (uint32_t i = 0; i < zero->n_experts; i++) {
    const ckpt_zero_place *place = &zero->experts[i];
    adder of_expert = *a;
    CKPT_TRY(add_files(&of_expert, place, 1, add_expert, err));
  }
  for (uint32_t i = 0; i < zero->n_params && zero->n_experts != 0; i++)
    if (zero->params[i].number == UINT32_MAX && ckpt_zero_expert_of(zero->params[i].name) >= 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, zero->params[i].name, "in no file of an expert");
  return CKPT_OK;
}

static ckpt_status sort_fragments(adder *a, ckpt_error *err) {
  const ckpt_object *given = ckpt_object_get(a->file->graph.root, "frozen_param_fragments");
  if (a->zero->stage == 3 || given == NULL || given->kind != CKPT_OBJECT_DICT || given->n == 0) return CKPT_OK;
  a->fragments = reallocarray(NULL, (size_t)given->n, sizeof *a->fragments);
  CKPT_TRY_ALLOC(a->fragments, err);
  for (uint64_t i = 0; i < given->n; i++)
    if (ckpt_zero_is_name(given->items[2 * i]))
      a->fragments[a->n_fragments++] = (fragment){given->items[2 * i]->text, given->items[2 * i + 1]};
  if (a->n_fragments > 1) qsort(a->fragments, a->n_fragments, sizeof *a->fragments, compare_texts);
  return CKPT_OK;
}

static const ckpt_object *fragment_of(const adder *a, const char *name) {
  const fragment *found =
      a->n_fragments == 0 ? NULL : bsearch(&name, a->fragments, a->n_fragments, sizeof *found, compare_texts);
  return found == NULL ? NULL : found->leaf;
}

/* In stages 1 and 2 module has every trained parameter: of one that it lacks, a name there that no table has is another
 * spelling. Universal checkpoints may have masters alone. */
static ckpt_status note_stray(const adder *a, const char *missing, ckpt_error *err) {
  if (a->stray == NULL || a->zero->is_universal || a->zero->stage == 3) return CKPT_OK;
  return ckpt_index_note(a->zero->index, true, err,
                         "module lacks '%.200s' of param_shapes, and has '%.200s', which is in no table: one of the "
                         "names is wrong",
                         missing, a->stray);
}

/* Parameters that module has not. Of frozen ones there are copies in stages 1 and 2. */
static ckpt_status add_held(adder *a, ckpt_error *err) {
  ckpt_zero *zero = a->zero;
  CKPT_TRY(sort_fragments(a, err));
  for (uint32_t i = 0; i < zero->n_params; i++) {
    ckpt_zero_param *param = &zero->params[i];
    const ckpt_zero_param *held = ckpt_zero_stand_in(zero, param);
    if (param->number != UINT32_MAX || held == NULL) continue;
    bool is_frozen = param->group == UINT32_MAX;
    const ckpt_object *leaf = is_frozen ? fragment_of(a, param->name) : NULL;
    if (ckpt_zero_tensor(a->file, leaf) != NULL) {
      CKPT_TRY(copy_tensor(a, leaf->tensor, param->name, CKPT_ROLE_PARAMETER, err));
      param->number = a->numbers[leaf->tensor];
    } else if (zero->n_layers != 0 && !is_frozen && zero->copy == 0) {
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, param->name,
                       "in no file of a layer: the one of its layer is of another layer, or of another run");
    } else {
      if (!is_frozen) CKPT_TRY(note_stray(a, param->name, err));
      CKPT_TRY(
          ckpt_zero_add_param(zero, held, 0, CKPT_DTYPE_NONE, param->name, CKPT_ROLE_PARAMETER, &param->number, err));
    }
  }
  return CKPT_OK;
}

/* Names that module has not, of parameters that it has under another. */
static ckpt_status add_shared(adder *a, ckpt_error *err) {
  ckpt_name_table *table = NULL;
  ckpt_status status = CKPT_OK;
  if (a->n_shared == 0) return CKPT_OK;
  CKPT_TRY(ckpt_name_table_new(&table, a->zero->index, err));
  for (uint64_t i = 0; i < a->n_shared && status == CKPT_OK; i++) {
    const shared_name *shared = &a->shared[i];
    if (ckpt_name_table_find(table, shared->name) >= 0) continue;
    const ckpt_zero_param *param = ckpt_zero_find(a->zero, 0, shared->of);
    if (param != NULL) status = ckpt_index_alias(a->zero->index, param->number, shared->name, err);
  }
  ckpt_name_table_free(table);
  return status;
}

/* ---- what else there is ------------------------------------------------------------------------------------------ */

/* Says that client_state has a tensor under a key that reads as DeepSpeed's own, `optimizer.<...>`. */
static ckpt_status note_hidden(adder *a, const char *name, ckpt_error *err) {
  ckpt_index *index = a->zero->index;
  CKPT_TRY(ckpt_index_note(index, false, err,
                           "not read: tensor %.200s of client_state, which is called as DeepSpeed's own are", name));
  ckpt_index_note_left(index, "not read: ");
  return ckpt_index_note_is(index, CKPT_NOTE_STATE_LEFT, NULL, err);
}

/* The keys of the file's root, sorted: a file can have very many. */
static ckpt_status list_keys(adder *a, ckpt_error *err) {
  const ckpt_object *root = a->file->graph.root;
  const uint64_t n = root->kind == CKPT_OBJECT_DICT ? root->n : 0;
  a->keys = reallocarray(NULL, (size_t)n + 1, sizeof *a->keys);
  CKPT_TRY_ALLOC(a->keys, err);
  for (uint64_t i = 0; i < n; i++)
    if (root->items[2 * i]->kind == CKPT_OBJECT_TEXT) a->keys[a->n_keys++] = root->items[2 * i]->text;
  qsort(a->keys, (size_t)a->n_keys, sizeof *a->keys, compare_texts);
  return CKPT_OK;
}

/* Whether a name that begins as DeepSpeed's own is a place under a key of client_state with dots. */
static bool is_hidden(const adder *a, const char *name) {
  enum { MAX_BYTES = 4096 };
  char key[MAX_BYTES];
  for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.')) {
    const char *end = strchr(dot + 1, '.');
    const size_t n = end == NULL ? strlen(name) : (size_t)(end - name);
    if (n >= sizeof key) return false;
    memcpy(key, name, n);
    key[n] = '\0';
    const char *wanted = key;
    if (bsearch(&wanted, a->keys, a->n_keys, sizeof *a->keys, compare_texts) != NULL) return true;
  }
  return false;
}

/* One name of a tensor of the file, where client_state has it. */
static ckpt_status add_client_name(adder *a, uint32_t held, const char *name, ckpt_error *err) {
  if (ckpt_zero_is_own(name, strcspn(name, "."))) {
    const bool is_said = a->numbers[held] != UINT32_MAX || a->n_hidden != 0 || !is_hidden(a, name);
    return is_said || a->n_hidden++ != 0 ? CKPT_OK : note_hidden(a, name, err);
  }
  if (a->numbers[held] == UINT32_MAX) return copy_tensor(a, held, name, CKPT_ROLE_OTHER, err);
  return ckpt_index_alias_as(a->zero->index, a->numbers[held], name, CKPT_ROLE_OTHER, err);
}

/* Tensors outside of what DeepSpeed writes are of client_state: they keep the names of their paths, all of them. */
static ckpt_status add_client(adder *a, ckpt_error *err) {
  CKPT_TRY(list_keys(a, err));
  for (uint32_t i = 0; i < a->file->held->n_tensors; i++) {
    const ckpt_tensor *tensor = &a->file->held->tensors[i];
    CKPT_TRY(add_client_name(a, i, tensor->name, err));
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      CKPT_TRY(add_client_name(a, i, *alias, err));
  }
  const ckpt_object *scheduler = ckpt_object_get(a->file->graph.root, "lr_scheduler");
  CKPT_TRY(ckpt_zero_take_scheduler(a->zero, a->file, scheduler, err));
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
  adder a = {.zero = zero, .file = file, .prefix = ""};
  ckpt_status status;
  CKPT_TRY_GOTO(new_numbers(&a, err));
  CKPT_TRY_GOTO(sort_buffers(&a, err));
  CKPT_TRY_GOTO(sort_shared(&a, err));
  if (zero->n_tensor > 1 || zero->rules != NULL) CKPT_TRY_GOTO(set_slices(&a, err));
  CKPT_TRY_GOTO(each_of_module(&a, add_entry, err));
  CKPT_TRY_GOTO(add_experts(&a, err));
  CKPT_TRY_GOTO(add_layers(&a, err));
  if (zero->twin == 0) CKPT_TRY_GOTO(add_held(&a, err));
  if (zero->copy == 0 && zero->twin == 0) CKPT_TRY_GOTO(add_others(&a, err));
  ckpt_zero_keep(file, zero, a.numbers);
done:
  ckpt_zero_slices_free(a.slices);
  free(a.numbers);
  free(a.buffers);
  free(a.shared);
  free(a.fragments);
  free(a.keys);
  return status;
}
