/* runner.h - a model ready to run: what perplexity and logits need of an opened checkpoint. */
#ifndef CKPT_TRAINER_EVALUATION_RUNNER_H
#define CKPT_TRAINER_EVALUATION_RUNNER_H

#include "trainer/model/executor.h"
#include "trainer/model/weights.h"

/* Zeroed, then ckpt_runner_open; released with ckpt_runner_close whatever the result. */
typedef struct ckpt_runner {
  ckpt_model *model;
  ckpt_executor *executor;
  ckpt_device *device;
  ckpt_weights weights; /* on the CPU */
} ckpt_runner;

typedef struct ckpt_runner_options {
  uint32_t max_rows, max_length; /* of a batch; length 0: the model's */
  uint32_t n_threads;            /* 0: one per processor */
  const char *device;            /* as ckpt_device_choose; NULL: cuda where it can be used, else the CPU */
  ckpt_index *like;              /* whose config.json describes the model; NULL: the index's own */
  bool is_bf16;                  /* products in bf16 */
  bool may_have_labels;          /* of ckpt_model_options */
  const ckpt_run_options *run;   /* of the plan that loads the weights; NULL: defaults */
} ckpt_runner_options;

/* Makes the model that config.json describes and loads its weights, as they are stored (on other devices than the CPU:
 * in f32). A length past the model's positions becomes theirs. ENOTFOUND: no config.json, or a tensor is missing; else
 * as ckpt_device_choose, ckpt_model_new, _load and ckpt_executor_new. */
ckpt_status ckpt_runner_open(ckpt_runner *out, ckpt_index *index, const ckpt_runner_options *options, ckpt_error *err);
/* What a runner's memory will be, on the CPU, with nothing allocated. Fails as its model and plan. */
ckpt_status ckpt_runner_plan(ckpt_executor_memory *out, ckpt_index *index, const ckpt_runner_options *options,
                             ckpt_error *err);
void ckpt_runner_close(ckpt_runner *runner); /* as above */

#endif
