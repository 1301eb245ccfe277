/* weights.c - see weights.h. */
#include "trainer/model/weights.h"

#include <inttypes.h>
#include <stdlib.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/op.h"
#include "trainer/model/op.h"

enum { ALIGNMENT = 64 };

/* Whether all that reads a parameter takes it as it is stored, and turned. */
static bool may_be_stored(const ckpt_model *model, const ckpt_parameter *p, bool is_turned) {
  for (uint32_t i = 0; i < model->tape.n_entries; i++) {
    const ckpt_tape_entry *entry = &model->tape.entries[i];
    for (uint32_t k = 0; k < entry->n_parameters; k++) {
      if (entry->parameters[k] != p->value) continue;
      if ((ckpt_tape_ops[entry->op]->stored_parameters >> k & 1) == 0) return false;
      if (is_turned && entry->op != CKPT_OP_linear) return false;
    }
  }
  return true;
}

static bool is_kept(ckpt_dtype dtype) {
  if (dtype != CKPT_BF16 && dtype != CKPT_F16 && !ckpt_dtype_is_block(dtype)) return false;
  return ckpt_backend_can_read(&ckpt_backend_cpu, dtype, CKPT_F32);
}

static ckpt_status choose(ckpt_parameter_place *out, const ckpt_model *model, const ckpt_parameter *p,
                          const ckpt_index *index, ckpt_error *err) {
  const ckpt_tensor *tensor = ckpt_model_tensor(index, p);
  ckpt_arena arena;
  ckpt_expr *blocks = NULL;
  if (tensor == NULL || tensor->rank != 2 || p->rank != 2) return CKPT_OK;
  ckpt_arena_init(&arena, UINT64_MAX);
  const ckpt_status status = ckpt_model_turned(&blocks, &arena, index, tensor, err);
  const bool is_turned = blocks != NULL && is_kept((ckpt_dtype)blocks->dtype) && may_be_stored(model, p, true);
  if (is_turned) {
    out->is_turned = true;
    out->dtype = (ckpt_dtype)blocks->dtype;
  } else if (is_kept(tensor->dtype) && may_be_stored(model, p, false)) {
    out->dtype = tensor->dtype;
  }
  ckpt_arena_free(&arena);
  return status;
}

/* Dtypes, and offsets in `offsets`. */
static ckpt_status lay_out(ckpt_weights *w, uint64_t *offsets, const ckpt_model *model, const ckpt_index *index,
                           ckpt_error *err) {
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    uint64_t n_bytes;
    CKPT_TRY(choose(&w->places[i], model, p, index, err));
    offsets[i] = w->n_bytes;
    if (!ckpt_dtype_bytes(w->places[i].dtype == CKPT_DTYPE_NONE ? CKPT_F32 : w->places[i].dtype, p->n_elements,
                          &n_bytes) ||
        !ckpt_add_u64(w->n_bytes, n_bytes, &w->n_bytes) || w->n_bytes > SIZE_MAX / 2)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, p->name, "the model has more bytes than fit 64 bits");
    w->n_bytes = (w->n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
  return CKPT_OK;
}

static ckpt_status plan(ckpt_weights *w, uint64_t **offsets, const ckpt_model *model, const ckpt_index *index,
                        ckpt_error *err) {
  *w = (ckpt_weights){.places = calloc((size_t)model->n_parameters + 1, sizeof *w->places)};
  *offsets = calloc((size_t)model->n_parameters + 1, sizeof **offsets);
  if (w->places == NULL || *offsets == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  CKPT_TRY(ckpt_model_check(model, index, err));
  return lay_out(w, *offsets, model, index, err);
}

ckpt_status ckpt_weights_plan(ckpt_weights *out, const ckpt_model *model, const ckpt_index *index, ckpt_error *err) {
  uint64_t *offsets;
  const ckpt_status status = plan(out, &offsets, model, index, err);
  free(offsets);
  return status;
}

ckpt_status ckpt_weights_load(ckpt_weights *out, const ckpt_model *model, const ckpt_index *index,
                              const ckpt_load_options *options, ckpt_error *err) {
  uint64_t *offsets;
  ckpt_status status = plan(out, &offsets, model, index, err);
  if (status == CKPT_OK) {
    out->memory = aligned_alloc(ALIGNMENT, (size_t)out->n_bytes + ALIGNMENT);
    if (out->memory == NULL)
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "no memory for parameters (%" PRIu64 " bytes)", out->n_bytes);
  }
  for (uint32_t i = 0; i < model->n_parameters && status == CKPT_OK; i++)
    out->places[i].weights = (char *)out->memory + offsets[i];
  free(offsets);
  return status == CKPT_OK ? ckpt_model_load_places(out->places, model, index, options, NULL, err) : status;
}

void ckpt_weights_release(ckpt_weights *weights) {
  free(weights->places);
  free(weights->memory);
  *weights = (ckpt_weights){0};
}
