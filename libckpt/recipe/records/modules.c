/* modules.c - see modules.h. */
#include "libckpt/recipe/records/modules.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/arena.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

/* The class itself, without its modules. */
static const char *class_of(const ckpt_module *module) {
  const char *dot = strrchr(module->type, '.');
  return dot == NULL ? module->type : dot + 1;
}

/* Whether a class is sentence-transformers' own; one that is not named is taken for one. */
static bool is_known(const ckpt_module *module) {
  static const char package[] = "sentence_transformers.";
  return module->type[0] == '\0' || strncmp(module->type, package, sizeof package - 1) == 0;
}

/* Whether a class is loaded from weights in its folder. */
static bool needs_weights(const ckpt_module *module) {
  static const char *const classes[] = {"Transformer",
                                        "MLMTransformer",
                                        "CLIPModel",
                                        "Dense",
                                        "LSTM",
                                        "CNN",
                                        "LayerNorm",
                                        "WeightedLayerPooling",
                                        "WordEmbeddings",
                                        "StaticEmbedding",
                                        "SparseAutoEncoder"};
  const char *class = class_of(module);
  if (!is_known(module)) return false;
  for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
    if (strcmp(classes[i], class) == 0) return true;
  return false;
}

/* What follows a folder's name and its slash in a path; NULL where it is not in it. */
static const char *below(const char *path, const char *folder) {
  const size_t n = strlen(folder);
  return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

typedef struct found {
  bool has_files, has_weights; /* weights: right in the folder */
  bool is_read;                /* the weights that were read are in it */
} found;

static found look(const ckpt_index *index, const char *folder) {
  static const char *const endings[] = {".safetensors", ".bin", ".safetensors.index.json", ".bin.index.json"};
  found f = {0};
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    const char *name = below(index->side_files[i].name, folder);
    f.has_files = f.has_files || name != NULL;
    for (size_t k = 0; name != NULL && strchr(name, '/') == NULL && k < 4; k++)
      f.has_weights = f.has_weights || ckpt_text_ends(name, endings[k]);
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    for (uint32_t k = 0; k < index->tensors[i].n_extents && !f.is_read; k++)
      if (index->tensors[i].extents[k].file < ckpt_source_count(index->source))
        f.is_read = below(ckpt_source_name(index->source, index->tensors[i].extents[k].file), folder) != NULL;
  return f;
}

static ckpt_status open_one(const ckpt_index *index, const ckpt_module *module, const ckpt_open_options *options,
                            ckpt_take_module *take, void *arg, ckpt_error *err) {
  char path[PATH_MAX];
  ckpt_error defect = {0};
  ckpt_index *opened = NULL;
  const char *root = ckpt_source_root(index->source);
  const char *list = ckpt_index_side_path(index, ckpt_index_side_file(index, "modules.json"));
  if (module->path == NULL) {
    ckpt_fail(&defect, CKPT_EFORMAT, list, NULL, "names %s, which is no folder below this one", module->said);
    return take(arg, module, NULL, &defect, err);
  }
  if (module->path[0] == '\0') return CKPT_OK;
  const found f = look(index, module->path);
  if (f.is_read) return CKPT_OK;
  if (!f.has_files && is_known(module) && strcmp(class_of(module), "Normalize") != 0) {
    ckpt_fail(&defect, CKPT_ENOTFOUND, list, NULL, "names %s/ (%s), which is not there", module->path,
              class_of(module));
    return take(arg, module, NULL, &defect, err);
  }
  if (!f.has_weights && !needs_weights(module)) return CKPT_OK;
  if (snprintf(path, sizeof path, "%s/%s", root, module->path) >= (int)sizeof path)
    return ckpt_fail(err, CKPT_ELIMIT, list, NULL, "names a folder with too long a path");
  ckpt_status status = ckpt_open(&opened, path, options, &defect);
  if (status == CKPT_ENOMEM || status == CKPT_ECANCELED) return ckpt_fail_as(err, status, path, NULL, &defect);
  status = take(arg, module, opened, status == CKPT_OK ? NULL : &defect, err);
  ckpt_index_free(opened);
  return status;
}

ckpt_status ckpt_modules_open(const ckpt_index *index, const ckpt_open_options *options, ckpt_take_module *take,
                              void *arg, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, "modules.json");
  ckpt_module modules[CKPT_MAX_MODULES];
  size_t n;
  ckpt_arena arena;
  if (side == NULL || index->source == NULL || ckpt_source_root(index->source)[0] == '\0') return CKPT_OK;
  ckpt_arena_init(&arena, UINT64_MAX);
  ckpt_status status = ckpt_modules_read(modules, &n, index->source, side->file, side->n_bytes, &arena, err);
  for (size_t i = 0; i < n && status == CKPT_OK; i++) status = open_one(index, &modules[i], options, take, arg, err);
  ckpt_arena_free(&arena);
  return status;
}
