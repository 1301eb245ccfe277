/* weights.h - parameters as a checkpoint stores them, for a model that runs and is not trained.
 *
 * What linears, embeddings and the head alone read stays bf16, f16 or blocks; they widen it as they need it, a panel at
 * a time. All else (norms, biases, tables of positions) and other dtypes become f32. Results have the bits of weights
 * that are f32. On the CPU alone. */
#ifndef CKPT_TRAINER_MODEL_WEIGHTS_H
#define CKPT_TRAINER_MODEL_WEIGHTS_H

#include "trainer/model/model.h"

typedef struct ckpt_weights {
  ckpt_parameter_place *places; /* by the table's numbers: what an executor takes */
  void *memory;                 /* all of them */
  uint64_t n_bytes;
} ckpt_weights;

/* Their dtypes and bytes, with no memory and nothing read. Fails with ENOTFOUND and EFORMAT as ckpt_model_load, ELIMIT,
 * ENOMEM. Released with ckpt_weights_release whatever the result. */
ckpt_status ckpt_weights_plan(ckpt_weights *out, const ckpt_model *model, const ckpt_index *index, ckpt_error *err);

/* Reads them: as ckpt_model_load, and fails as it. Zeroed before; released with ckpt_weights_release whatever the
 * result. */
ckpt_status ckpt_weights_load(ckpt_weights *out, const ckpt_model *model, const ckpt_index *index,
                              const ckpt_load_options *options, ckpt_error *err);
void ckpt_weights_release(ckpt_weights *weights); /* as above */

#endif
