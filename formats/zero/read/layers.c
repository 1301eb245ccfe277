/* layers.c - layers of a pipeline (PipelineModule) in a ZeRO checkpoint: names, and what is missing.
 *
 *   layer_LL-model_states.pt             {name: tensor} of layer L, whichever stage has it
 *   layer_LL-model_TT-model_states.pt    the same of tensor-parallel rank T
 *
 * The stages' model files have no weights; param_shapes of each has its own layers' parameters: `L.<name>`, or
 * `tied_modules.<key>.<name>` of a module that several layers share (TiedLayerSpec). Such a one is in the files of
 * those layers that are it, which do not say the key, and each stage that has it trains a copy: they are the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"

static const char tied[] = "tied_modules.";

/* The layer that a parameter's name is of; -1: of none. */
static int64_t layer_of(const char *name) {
  size_t n = strspn(name, "0123456789");
  return n == 0 || n > 9 || name[n] != '.' ? -1 : strtol(name, NULL, 10);
}

static int compare_layers(const void *a, const void *b) {
  const ckpt_zero_place *x = a, *y = b;
  return (x->layer > y->layer) - (x->layer < y->layer);
}

static int compare_files(const void *a, const void *b) {
  const ckpt_zero_place *x = a, *y = b;
  const int order = compare_layers(a, b);
  return order != 0 ? order : (x->shard > y->shard) - (x->shard < y->shard);
}

/* ---- what there is ----------------------------------------------------------------------------------------------- */

static ckpt_status refuse_missing(const ckpt_zero *zero, uint32_t layer, uint32_t rank, const char *name,
                                  ckpt_error *err) {
  char of_rank[24] = "";
  if (zero->n_layer_ranks > 1) snprintf(of_rank, sizeof of_rank, "-model_%02u", rank);
  return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, name, "layer_%02u%s-model_states.pt is missing, and %s",
                   layer, of_rank,
                   name == NULL ? "other tensor parallel ranks' is there (copy it, or save again)"
                                : "it is in there (copy it, or save again)");
}

/* Makes the files a grid: of each layer one of each tensor-parallel rank that the save had. */
static ckpt_status make_grid(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_file *file = &zero->shards[0].file;
  const ckpt_object *dims = ckpt_object_get(file->graph.root, "checkpoint_parallel_dimensions");
  const int64_t said = ckpt_zero_number(ckpt_object_get(dims, "tp_degree"));
  const uint32_t n_there = zero->layers[zero->n_layers - 1].shard + 1;
  const uint32_t n_ranks = zero->n_layer_ranks = said > 0 && said < n_there ? (uint32_t)said : n_there;
  const char *left = NULL;
  uint32_t n = 0;
  if (zero->n_shards % n_ranks != 0 || (said > 0 && said != n_ranks))
    return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                     "layers' files of %u tensor parallel rank%s are there, and the save had %lld (0: it does not say) "
                     "among %u model parallel ranks",
                     n_there, ckpt_plural(n_there), said < 0 ? 0 : (long long)said, zero->n_shards);
  qsort(zero->layers, zero->n_layers, sizeof *zero->layers, compare_files);
  for (uint32_t i = 0; i < zero->n_layers; i++) {
    if (zero->layers[i].shard < n_ranks)
      zero->layers[n++] = zero->layers[i];
    else if (left == NULL)
      left = zero->layers[i].name;
  }
  CKPT_TRY(ckpt_zero_note_leftovers(zero, zero->n_layers - n, left, err));
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_zero_place *at = &zero->layers[i], *of = i % n_ranks == 0 ? at : at - 1;
    if (at->shard != i % n_ranks || at->layer != of->layer)
      return refuse_missing(zero, of->layer, i % n_ranks, NULL, err);
  }
  if (n % n_ranks != 0) return refuse_missing(zero, zero->layers[n - 1].layer, n % n_ranks, NULL, err);
  zero->n_layers = n / n_ranks;
  return CKPT_OK;
}

/* Several stages' copies are of one shape. */
static ckpt_status check_copies(ckpt_zero *zero, ckpt_error *err) {
  uint32_t n_copies = 0, last = 0;
  for (uint32_t i = 0; i < zero->n_params; i++) { /* of one name, one stage after the other */
    const ckpt_zero_param *param = &zero->params[zero->by_name[i]], *first = ckpt_zero_find_any(zero, param->name);
    const uint32_t n_ranks = zero->n_layer_ranks, stage = param->shard / n_ranks - first->shard / n_ranks;
    n_copies = stage == 0 ? 0 : n_copies + (stage != last);
    last = stage;
    if (stage != 0) first = ckpt_zero_find(zero, param->shard - stage * n_ranks, param->name);
    if (stage == 0 || first == NULL) continue; /* whose slice is missing */
    if (first->rank != param->rank || memcmp(first->shape, param->shape, param->rank * sizeof *param->shape) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[param->shard].file.path, param->name,
                       "another shape than in an earlier stage of the pipeline");
    if (n_copies > zero->n_twins) zero->n_twins = n_copies;
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_check_layers(ckpt_zero *zero, ckpt_error *err) {
  if (zero->n_layers == 0) return CKPT_OK;
  CKPT_TRY(make_grid(zero, err));
  for (uint32_t i = 0; i < zero->n_params; i++) {
    const int64_t layer = layer_of(zero->params[i].name);
    const ckpt_zero_place wanted = {.layer = (uint32_t)layer};
    if (layer >= 0 && bsearch(&wanted, zero->layers, zero->n_layers, zero->n_layer_ranks * sizeof *zero->layers,
                              compare_layers) == NULL)
      return refuse_missing(zero, (uint32_t)layer, 0, zero->params[i].name, err);
  }
  return check_copies(zero, err);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Whether a layer's file has parameters of a module that is called so, and none of another shape. */
static ckpt_status fits(const ckpt_zero *zero, const ckpt_zero_file *file, const char *prefix, bool *does_fit,
                        ckpt_error *err) {
  const ckpt_object *root = file->graph.root;
  char name[CKPT_ZERO_NAME_BYTES];
  *does_fit = false;
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_tensor *tensor = ckpt_zero_tensor(file, root->items[2 * i + 1]);
    if (tensor == NULL || root->items[2 * i]->kind != CKPT_OBJECT_TEXT) continue;
    CKPT_TRY(ckpt_zero_name_layer(name, prefix, root->items[2 * i]->text, err));
    const ckpt_zero_param *param = ckpt_zero_find_any(zero, name);
    if (param == NULL) continue;
    *does_fit = param->rank == tensor->rank &&
                (param->rank == 0 || memcmp(param->shape, tensor->shape, param->rank * sizeof *param->shape) == 0);
    if (!*does_fit) return CKPT_OK;
  }
  return CKPT_OK;
}

/* The first parameter, in order of names, whose name is not before this one and begins with a prefix; NULL: none. */
static const ckpt_zero_param *first_with(const ckpt_zero *zero, const char *from, const char *prefix) {
  const uint32_t i = ckpt_zero_lower(zero, 0, from);
  const ckpt_zero_param *param = i < zero->n_params ? &zero->params[zero->by_name[i]] : NULL;
  return param == NULL || strncmp(param->name, prefix, strlen(prefix)) != 0 ? NULL : param;
}

/* The tied module that a layer's file is of; *prefix stays as it is where it is of none. */
static ckpt_status find_tied(const ckpt_zero *zero, const ckpt_zero_file *file, const char **prefix, ckpt_error *err) {
  enum { MAX_TIED = 64 };
  char key[CKPT_ZERO_NAME_BYTES];
  const char *found = NULL;
  const ckpt_zero_param *param = first_with(zero, tied, tied);
  for (uint32_t n_tied = 1; param != NULL; n_tied++) {
    const size_t n = strcspn(param->name + sizeof tied - 1, ".") + sizeof tied;
    bool does_fit;
    if (n >= sizeof key || n > strlen(param->name) || n_tied > MAX_TIED)
      return ckpt_fail(err, CKPT_ELIMIT, zero->index->path, NULL, "more than %d tied modules, or none by its name",
                       MAX_TIED);
    memcpy(key, param->name, n);
    key[n] = '\0';
    CKPT_TRY(fits(zero, file, key, &does_fit, err));
    if (does_fit && found != NULL)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, NULL,
                       "which of the tied modules %.200s and %.200s it is of, nothing says", found, key);
    if (does_fit) CKPT_TRY_ALLOC(found = ckpt_arena_copy(&zero->index->arena, key), err);
    key[n - 1]++; /* behind all of this module */
    param = first_with(zero, key, tied);
  }
  if (found != NULL) *prefix = found;
  return CKPT_OK;
}

ckpt_status ckpt_zero_prefix_layer(const ckpt_zero *zero, const char **prefix, const ckpt_zero_place *place,
                                   const ckpt_zero_file *file, ckpt_error *err) {
  CKPT_TRY_ALLOC(*prefix = ckpt_arena_printf(&zero->index->arena, "%u.", place->layer), err);
  return first_with(zero, *prefix, *prefix) != NULL ? CKPT_OK : find_tied(zero, file, prefix, err);
}

uint32_t ckpt_zero_turn_of_layer(ckpt_zero *zero, const char *prefix) {
  const ckpt_zero_param *first = first_with(zero, prefix, prefix);
  ckpt_zero_param *of = first == NULL ? NULL : &zero->params[first - zero->params];
  const uint32_t turn = of == NULL ? 0 : of->n_files++;
  if (turn > zero->n_twins) zero->n_twins = turn;
  return turn;
}

ckpt_status ckpt_zero_name_layer(char name[CKPT_ZERO_NAME_BYTES], const char *prefix, const char *of, ckpt_error *err) {
  const size_t n_prefix = strlen(prefix), n = strlen(of);
  if (n_prefix + n >= CKPT_ZERO_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a parameter's name is too long");
  memcpy(name, prefix, n_prefix);
  memcpy(name + n_prefix, of, n + 1);
  return CKPT_OK;
}
