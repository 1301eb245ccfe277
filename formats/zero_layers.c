/* zero_layers.c - layers of a pipeline (PipelineModule) in a ZeRO checkpoint: names, and what is missing.
 *
 *   layer_LL-model_states.pt             {name: tensor} of layer L, whichever stage has it
 *   layer_LL-model_TT-model_states.pt    the same of tensor-parallel rank T
 *
 * The stages' model files have no weights; param_shapes of each has its own layers' parameters: `L.<name>`, or
 * `tied_modules.<key>.<name>` of a module that several layers share (TiedLayerSpec). Such a one is in the files of
 * those layers that are it, which do not say the key, and each stage that has it trains a copy: they are the same. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero.h"
#include "libckpt/error.h"

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

/* ---- what there is ----------------------------------------------------------------------------------------------- */

/* Several stages' copies are of one shape. */
static ckpt_status check_copies(const ckpt_zero *zero, ckpt_error *err) {
  for (uint32_t i = 1; i < zero->n_params; i++) {
    const ckpt_zero_param *before = &zero->params[zero->by_name[i - 1]];
    const ckpt_zero_param *param = &zero->params[zero->by_name[i]];
    if (strcmp(before->name, param->name) != 0) continue;
    if (before->rank != param->rank || memcmp(before->shape, param->shape, param->rank * sizeof *param->shape) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[param->shard].file.path, param->name,
                       "another shape than in an earlier stage of the pipeline");
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_check_layers(const ckpt_zero *zero, ckpt_error *err) {
  if (zero->n_layers == 0) return CKPT_OK;
  for (uint32_t i = 0; i < zero->n_layers; i++)
    if (zero->layers[i].shard != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, NULL,
                       "%s is of tensor parallel rank %u of a pipeline; this version cannot read it yet",
                       zero->layers[i].name, zero->layers[i].shard);
  for (uint32_t i = 0; i < zero->n_params; i++) {
    const int64_t layer = layer_of(zero->params[i].name);
    const ckpt_zero_place wanted = {.layer = (uint32_t)layer};
    if (layer >= 0 && bsearch(&wanted, zero->layers, zero->n_layers, sizeof *zero->layers, compare_layers) == NULL)
      return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, zero->params[i].name,
                       "layer_%02lld-model_states.pt is missing, and it is in there (copy it, or save again)",
                       (long long)layer);
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

ckpt_status ckpt_zero_name_layer(char name[CKPT_ZERO_NAME_BYTES], const char *prefix, const char *of, ckpt_error *err) {
  const size_t n_prefix = strlen(prefix), n = strlen(of);
  if (n_prefix + n >= CKPT_ZERO_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a parameter's name is too long");
  memcpy(name, prefix, n_prefix);
  memcpy(name + n_prefix, of, n + 1);
  return CKPT_OK;
}
