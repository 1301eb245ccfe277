/* executor.h - runs a model's tape: one plan of memory for every batch up to the largest, one arena, exact to the byte.
 *
 * Liveness over the schedule (forward, and backward where wanted) gives each activation and gradient its place in the
 * arena, before anything is allocated. A smaller or shorter batch runs in the same arena. An executor belongs to one
 * thread; its device cuts operations into parts by shape, so results have the same bits for any number of threads. */
#ifndef CKPT_TRAINER_MODEL_EXECUTOR_H
#define CKPT_TRAINER_MODEL_EXECUTOR_H

#include "trainer/model/axes.h"
#include "trainer/model/device.h"
#include "trainer/model/model.h"

typedef struct ckpt_executor ckpt_executor;

/* Told before and after each layer's operations, forward and backward; a layer of -1 is what belongs to none. Places
 * may change meanwhile: those of a layer are read after `enter` and before `leave`. A batch without tokens visits, too.
 */
typedef struct ckpt_unit_hooks {
  void *arg;
  ckpt_status (*enter)(void *arg, int32_t layer, bool is_backward, ckpt_error *err);
  ckpt_status (*leave)(void *arg, int32_t layer, bool is_backward, ckpt_error *err);
} ckpt_unit_hooks;

/* What of a layer is run again for backward, in less memory: nothing; all but products, attention and collectives; all
 * (recompute.h). */
typedef enum ckpt_recompute_kind {
  CKPT_RECOMPUTE_NONE,
  CKPT_RECOMPUTE_SELECTIVE,
  CKPT_RECOMPUTE_FULL
} ckpt_recompute_kind;

typedef struct ckpt_executor_options {
  size_t struct_size;
  uint32_t max_rows;                       /* sequences of a batch; 0: 1 */
  uint32_t max_length;                     /* positions of a sequence; 0: the model's */
  uint32_t n_threads;                      /* 0: one per processor; of the executor's own device */
  ckpt_device *device;                     /* borrowed; NULL: the CPU, the executor's own */
  bool has_backward;                       /* ckpt_executor_train may be called; the model needs_backward */
  ckpt_recompute_kind recompute;           /* with it */
  ckpt_axis_group *axes[CKPT_N_MESH_AXES]; /* of a sharded model, borrowed; NULL where it has one rank */
  uint32_t loss_rows;                      /* tokens whose logits are held at once; 0: chosen */
  float *parameters; /* flat, 64-byte aligned, the device's memory, borrowed; NULL: the executor's own, zeros */
  float *gradients;  /* as above; only with has_backward */
  const ckpt_parameter_place
      *places;                  /* by the tape's numbers of parameters, borrowed; NULL: they lie in the flat buffers */
  const ckpt_unit_hooks *hooks; /* borrowed; NULL: nobody listens */
} ckpt_executor_options;

/* The plan of memory, in bytes. */
typedef struct ckpt_executor_memory {
  uint64_t parameters, gradients; /* flat buffers, also where they are the caller's */
  uint64_t arena;                 /* activations, their gradients, scratch: all of it, 64-byte aligned */
  uint64_t state;                 /* tables that outlive a call */
  uint64_t live;                  /* greatest sum of what is alive at one step: arena is at least that */
  /* What the CPU takes beside these, at most, for products in bf16 and of weights as they are stored: factors that are
   * rounded once for all tiles, and panels of each thread. The plan's alone. */
  uint64_t products;
} ckpt_executor_memory;

/* The plan without an executor: nothing is allocated for data, and of places only dtypes are looked at. EINVAL, ELIMIT
 * (an overflow), ENOMEM. */
ckpt_status ckpt_executor_plan(ckpt_executor_memory *out, const ckpt_model *model, const ckpt_executor_options *options,
                               ckpt_error *err);

/* An executor; it borrows the model. Fails as the plan, and with EINVAL (has_backward of a model without) and ENOMEM.
 * Release with ckpt_executor_free (NULL is fine). */
ckpt_status ckpt_executor_new(ckpt_executor **out, const ckpt_model *model, const ckpt_executor_options *options,
                              ckpt_error *err);
void ckpt_executor_free(ckpt_executor *executor); /* as above */

const ckpt_executor_memory *ckpt_executor_memory_of(const ckpt_executor *executor); /* its plan */
/* The highest byte of the arena, plus one, that a kernel has been given so far. */
uint64_t ckpt_executor_high_water(const ckpt_executor *executor);

/* A batch: row-major arrays of n_rows * length, borrowed for the call. An empty batch (either is 0) is fine. */
typedef struct ckpt_token_batch {
  uint32_t n_rows, length;
  const int32_t *ids;
  const int32_t *targets;   /* what follows each token, already shifted; negative (-100): none. NULL: no loss */
  const int32_t *positions; /* NULL: 0, 1, ... in each row */
  const int32_t *documents; /* attention stays within one number; NULL: a row is one document */
  const uint8_t *mask;      /* 0: padding; NULL: none */
  double
      label_smoothing;  /* share of the mean over the vocabulary in each log p, as transformers' LabelSmoother has it */
  uint64_t dropout_key; /* of the step: what dropout draws under while training */
  bool begins_gradients;    /* training sets gradients, whatever they held; else it adds. Needs a row */
  uint32_t first_row;       /* row 0's place in the epoch: a row draws the same in any batch and rank */
  float *logits;            /* out: n_rows * length * vocabulary, or NULL: none are kept */
  float *log_probabilities; /* out: n_rows * length, log p of each target, 0 where there is none; or NULL */
} ckpt_token_batch;

typedef struct ckpt_forward_result {
  double loss_sum;    /* of -log p over valid targets, in double, in order of the tokens */
  uint64_t n_targets; /* valid ones */
} ckpt_forward_result;

/* Forward: loss (with targets) and logits (where wanted). Padding tokens' own logits are of no meaning.
 * EINVAL: more rows or positions than planned, an id or target past the vocabulary, a position that the model has not
 * (row, position and number are named). */
ckpt_status ckpt_executor_forward(ckpt_executor *executor, const ckpt_token_batch *batch, ckpt_forward_result *result,
                                  ckpt_error *err);

/* Forward in two parts, for whoever compares the logits of two models: the body, all but the head; then, as often as
 * wanted, the head of tokens [first, first + n_rows), at most ckpt_executor_chunk at once. *logits are those tokens'
 * (n_rows x vocabulary, of the host, until the next call); their log_probabilities are filled where there are targets.
 * The batch is the same in all calls, its logits are NULL, the executor one of f32. Fails as forward. */
ckpt_status ckpt_executor_body(ckpt_executor *executor, const ckpt_token_batch *batch, ckpt_error *err);
ckpt_status ckpt_executor_head(ckpt_executor *executor, const ckpt_token_batch *batch, uint32_t first, uint32_t n_rows,
                               const float **logits, ckpt_error *err); /* as above */
uint32_t ckpt_executor_chunk(const ckpt_executor *executor);           /* as above */

/* Forward and backward: adds scale * d(loss_sum)/d(parameter) to the gradients (batch->begins_gradients: sets them).
 * scale is known before (1 / the step's global count of targets): the head's gradients are made in the pass that makes
 * its logits. Fails as forward; EINVAL without has_backward or targets. */
ckpt_status ckpt_executor_train(ckpt_executor *executor, const ckpt_token_batch *batch, double scale,
                                ckpt_forward_result *result, ckpt_error *err);

/* Fills the parameters of the flat buffer, wherever it lies, as ckpt_model_load does. Fails as it; EIO where the device
 * does. */
ckpt_status ckpt_executor_load(ckpt_executor *executor, const ckpt_index *index, const ckpt_load_options *options,
                               ckpt_error *err);

/* The flat buffers, n_flat elements in the table's order, in the device's memory; NULL where places were given.
 * Gradients: NULL without has_backward. */
float *ckpt_executor_parameters(ckpt_executor *executor);
float *ckpt_executor_gradients(ckpt_executor *executor); /* as above */

/* The device it runs on: for the optimizer's kernels. */
ckpt_device *ckpt_executor_device(ckpt_executor *executor);

#endif
