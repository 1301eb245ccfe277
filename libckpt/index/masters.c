/* masters.c - see masters.h.
 *
 * Runs once, between a format's open and the caller, so that every reader of the index sees the same parameters.
 * Extents are shared, not copied: the bytes of a master were checked when the index was finished. */
#include "libckpt/index/masters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

#define MASTER_SUFFIX ".master"
enum { N_PREFIX = sizeof CKPT_STATE_PREFIX - 1, N_SUFFIX = sizeof MASTER_SUFFIX - 1, NAME_BYTES = 8192 };

/* One dtype of all tensors seen, or more than one. */
typedef struct common_dtype {
  ckpt_dtype dtype;
  bool is_mixed;
} common_dtype;

static void see(common_dtype *common, uint8_t dtype) {
  common->is_mixed = common->is_mixed || (common->dtype != CKPT_DTYPE_NONE && common->dtype != (ckpt_dtype)dtype);
  common->dtype = (ckpt_dtype)dtype;
}

static const char *dtype_text(const common_dtype *common) {
  return common->is_mixed ? "mixed" : ckpt_dtype_name(common->dtype);
}

static const ckpt_tensor *find_named(const ckpt_index *index, const char *parameter) {
  char name[NAME_BYTES];
  int n = snprintf(name, sizeof name, CKPT_STATE_PREFIX "%s" MASTER_SUFFIX, parameter);
  const ckpt_tensor *tensor = n < 0 || n >= NAME_BYTES ? NULL : ckpt_index_find(index, name);
  return tensor != NULL && tensor->role == CKPT_ROLE_MASTER ? tensor : NULL;
}

/* The master of a parameter, under its name or, failing that, the first of its aliases that has one. */
static const ckpt_tensor *find_master(const ckpt_index *index, const ckpt_tensor *parameter) {
  const ckpt_tensor *master = find_named(index, parameter->name);
  for (const char *const *alias = parameter->aliases; master == NULL && alias != NULL && *alias != NULL; alias++)
    master = find_named(index, *alias);
  return master;
}

static bool holds_masters(const ckpt_index *index) {
  uint32_t i = 0;
  while (i < index->n_tensors && index->tensors[i].role != CKPT_ROLE_MASTER) i++;
  return i < index->n_tensors;
}

/* Room for what masters will stand for: a parameter each, and one master may serve several. */
static ckpt_status reserve_stored(ckpt_index *index, ckpt_error *err) {
  size_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    n += index->tensors[i].role == CKPT_ROLE_PARAMETER && find_master(index, &index->tensors[i]) != NULL;
  index->stored = ckpt_arena_array(&index->arena, n, sizeof *index->stored);
  CKPT_TRY_ALLOC(index->stored, err);
  return CKPT_OK;
}

static ckpt_status stand_in(ckpt_index *index, ckpt_tensor *parameter, const ckpt_tensor *master, ckpt_error *err) {
  if (!ckpt_tensor_same_shape(parameter, master))
    return ckpt_advise(ckpt_fail(err, CKPT_EFORMAT, ckpt_index_file_of(index, master), parameter->name,
                                 "its master copy %s has another shape", master->name),
                       err, "%weights=model leaves masters alone");
  ckpt_tensor stored = *parameter;
  index->stored[index->n_stored++] = stored;
  *parameter = *master; /* but for what it is called and stands for */
  parameter->name = stored.name;
  parameter->aliases = stored.aliases;
  CKPT_TRY(ckpt_index_own_details(index, parameter, err));
  parameter->details->n_extra_names = stored.details->n_extra_names;
  parameter->role = stored.role;
  parameter->details->origin = stored.details->origin;
  return CKPT_OK;
}

static ckpt_status note_choice(ckpt_index *index, const common_dtype *stored, const common_dtype *masters,
                               ckpt_error *err) {
  if (stored->dtype == CKPT_DTYPE_NONE)
    CKPT_TRY(ckpt_index_note(index, false, err, "weights: master %s (no other copy of them is stored)",
                             dtype_text(masters)));
  else if (strcmp(index->weights, "master") == 0)
    CKPT_TRY(ckpt_index_note_advise(ckpt_index_note(index, false, err, "weights: master %s (stored parameters are %s)",
                                                    dtype_text(masters), dtype_text(stored)),
                                    index, "%weights=model"));
  else
    CKPT_TRY(ckpt_index_note_advise(ckpt_index_note(index, false, err, "weights: model %s (master copies are %s)",
                                                    dtype_text(stored), dtype_text(masters)),
                                    index, "%weights=master"));
  index->weights_note = index->n_notes;
  return CKPT_OK;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const ckpt_tensor *)a)->name, ((const ckpt_tensor *)b)->name);
}

ckpt_status ckpt_index_choose_weights(ckpt_index *index, const char *weights, ckpt_error *err) {
  const bool is_asked = weights != NULL && strcmp(weights, "model") == 0;
  const bool is_model = is_asked || (weights != NULL && strcmp(weights, CKPT_WEIGHTS_STORED) == 0);
  if (weights != NULL && !is_model && strcmp(weights, "master") != 0)
    return ckpt_fail(err, CKPT_EINVAL, index->path, NULL, "weights '%s' are neither master nor model", weights);
  common_dtype stored = {0}, masters = {0};
  uint32_t n_masters = 0;
  uint32_t n_tensors = holds_masters(index) ? index->n_tensors : 0;
  if (n_tensors != 0 && !is_model) CKPT_TRY(reserve_stored(index, err));
  for (uint32_t i = 0; i < n_tensors; i++) {
    ckpt_tensor *parameter = &index->tensors[i];
    const ckpt_tensor *master = parameter->role == CKPT_ROLE_PARAMETER ? find_master(index, parameter) : NULL;
    if (master == NULL) continue;
    if (!ckpt_tensor_same_place(parameter, master)) see(&stored, parameter->dtype);
    see(&masters, master->dtype);
    n_masters++;
    if (!is_model) CKPT_TRY(stand_in(index, parameter, master, err));
  }
  if (is_asked && n_masters != 0 && stored.dtype == CKPT_DTYPE_NONE)
    return ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL,
                                 "holds no weights of the model but masters: of %u parameter%s no other copy is stored",
                                 n_masters, ckpt_plural(n_masters)),
                       err, "leave out %weights=model");
  if (masters.dtype != CKPT_DTYPE_NONE) {
    index->weights = is_model && stored.dtype != CKPT_DTYPE_NONE ? "model" : "master";
    if (index->n_stored != 0) qsort(index->stored, index->n_stored, sizeof *index->stored, by_name);
    return note_choice(index, &stored, &masters, err);
  }
  if (weights == NULL || is_model) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL, "holds no master weights"), err,
                     "leave out %weights=master");
}

const ckpt_tensor *ckpt_stored_copy(const ckpt_index *index, const ckpt_tensor *parameter) {
  if (index->n_stored == 0 || parameter->role != CKPT_ROLE_PARAMETER) return NULL;
  return bsearch(parameter, index->stored, index->n_stored, sizeof *index->stored, by_name);
}

bool ckpt_master_stands(const ckpt_index *index, const ckpt_tensor *tensor) {
  if (tensor->role != CKPT_ROLE_MASTER || index->weights == NULL || strcmp(index->weights, "master") != 0) return false;
  char name[NAME_BYTES];
  size_t n = strlen(tensor->name);
  if (n <= N_PREFIX + N_SUFFIX || n - N_PREFIX - N_SUFFIX >= sizeof name) return false;
  n -= N_PREFIX + N_SUFFIX;
  memcpy(name, tensor->name + N_PREFIX, n);
  name[n] = '\0';
  const ckpt_tensor *parameter = ckpt_index_find(index, name);
  return parameter != NULL && parameter->role == CKPT_ROLE_PARAMETER && find_master(index, parameter) == tensor;
}
