/* torch.c - what torch.save writes: a zip archive (PyTorch 1.6 and later), or the stream of before.
 *
 *   <root>/data.pkl, byteorder, version, data/0, data/1, ...    records of the archive, mostly stored
 *   magic, protocol, system, object, keys (pickles), storages   the stream; see libckpt/codec/torch_stream.c
 *
 * Known by content: an archive whose first names are those of such records, or the magic pickle. What the object is,
 * and what its tensors are called, says libckpt/codec/torch_graph.h; docs/formats/torch.md has the bytes. */
#include <string.h>

#include "libckpt/arch.h"
#include "libckpt/codec/torch_file.h"
#include "libckpt/error.h"
#include "libckpt/format.h"

static bool probe(const ckpt_probe *p) { return !p->is_folder && ckpt_torch_probe(p->head, p->n_head); }

/* ---- objects --------------------------------------------------------------------------------------------------------
 */

/* An entry of the root under one of two keys, where it is no tensor. */
static ckpt_object *entry_of(const ckpt_object *root, const char *key, const char *other) {
  const ckpt_object *value = ckpt_object_get(root, key);
  if (value == NULL) value = ckpt_object_get(root, other);
  return value == NULL || value->kind == CKPT_OBJECT_TENSOR ? NULL : (ckpt_object *)(uintptr_t)value;
}

static ckpt_status add_object(ckpt_index *index, const char *key, ckpt_object *value, ckpt_error *err) {
  if (value == NULL) return CKPT_OK;
  ckpt_object **pair = &index->objects->items[2 * index->objects->n++];
  pair[0] = ckpt_object_text(&index->arena, key, strlen(key));
  pair[1] = value;
  CKPT_TRY_ALLOC(pair[0], err);
  return CKPT_OK;
}

/* Numbers and texts at the root: {'epoch': 3, 'best': 0.5}. NULL where there are none. */
static ckpt_status find_trainer(ckpt_object **out, ckpt_index *index, const ckpt_object *root, ckpt_error *err) {
  *out = NULL;
  ckpt_object *trainer = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, root->n, NULL);
  CKPT_TRY_ALLOC(trainer, err);
  trainer->n = 0;
  for (uint64_t i = 0; i < root->n; i++) {
    ckpt_object *const *pair = &root->items[2 * i];
    if (pair[0]->kind != CKPT_OBJECT_TEXT || pair[1]->kind == CKPT_OBJECT_NONE || pair[1]->kind > CKPT_OBJECT_TEXT)
      continue;
    memcpy(&trainer->items[2 * trainer->n++], pair, 2 * sizeof *pair);
  }
  if (trainer->n != 0) *out = trainer;
  return CKPT_OK;
}

/* The object itself under "torch", and what of it has a key that all formats know. A dict of tensors is no object. */
static ckpt_status set_objects(ckpt_index *index, const ckpt_torch_graph *graph, ckpt_error *err) {
  static const char *const steps[] = {"global_step", "step", "iteration"};
  enum { MAX_OBJECTS = 5 };
  ckpt_object *root = graph->root, *trainer = NULL;
  if (graph->is_state_dict) return CKPT_OK;
  index->objects = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, MAX_OBJECTS, NULL);
  CKPT_TRY_ALLOC(index->objects, err);
  index->objects->n = 0;
  CKPT_TRY(add_object(index, "torch", root, err));
  CKPT_TRY(add_object(index, CKPT_STATE_PARAM_GROUPS, (ckpt_object *)(uintptr_t)graph->param_groups, err));
  if (root->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  CKPT_TRY(add_object(index, CKPT_STATE_SCHEDULER, entry_of(root, "scheduler", "lr_scheduler"), err));
  CKPT_TRY(add_object(index, CKPT_STATE_LOSS_SCALER, entry_of(root, "scaler", "grad_scaler"), err));
  CKPT_TRY(find_trainer(&trainer, index, root, err));
  for (size_t i = 0; i < sizeof steps / sizeof *steps && index->step < 0; i++) {
    const ckpt_object *step = ckpt_object_get(trainer, steps[i]);
    if (step != NULL && step->kind == CKPT_OBJECT_INT) index->step = step->integer;
  }
  return add_object(index, CKPT_STATE_TRAINER, trainer, err);
}

/* ---- the row
 * --------------------------------------------------------------------------------------------------------- */

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)p;
  uint32_t file = 0; /* of a source in memory */
  uint64_t size;
  ckpt_torch_graph graph = {.root = NULL};
  ckpt_arena nodes;
  ckpt_status status;
  ckpt_torch_arena_init(&nodes, index);
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  CKPT_TRY_GOTO(ckpt_torch_file_read(&graph, index, file, options->stored_names, &nodes, err));
  CKPT_TRY_GOTO(set_objects(index, &graph, err));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, err));
  CKPT_TRY_GOTO(ckpt_torch_graph_composites(&graph, index, err));
  if (index->objects != NULL) ckpt_arena_adopt(&index->arena, &nodes);
  CKPT_TRY_GOTO(ckpt_index_finish(index, err));
done:
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&nodes);
  return status;
}

const ckpt_format ckpt_format_torch = {
    .name = "torch",
    .suffixes = ".pt .pth .bin",
    .caps = {.aliases = true, .objects = true, .training_state = true, .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
};
