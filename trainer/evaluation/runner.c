/* runner.c - see runner.h. */
#include "trainer/evaluation/runner.h"

#include "libckpt/base/error.h"
#include "libckpt/index/index.h"

static ckpt_model_options model_options(const ckpt_runner_options *options) {
  return (ckpt_model_options){.struct_size = sizeof(ckpt_model_options),
                              .is_bf16 = options->is_bf16,
                              .may_have_labels = options->may_have_labels};
}

ckpt_status ckpt_runner_open(ckpt_runner *out, ckpt_index *index, const ckpt_runner_options *options, ckpt_error *err) {
  *out = (ckpt_runner){0};
  const ckpt_model_options forward = model_options(options);
  CKPT_TRY(ckpt_model_open(&out->model, index, options->like, &forward, err));
  const uint64_t max = out->model->max_positions;
  ckpt_executor_options with = {
      .struct_size = sizeof with, .max_rows = options->max_rows, .max_length = options->max_length};
  const ckpt_load_options load = {.struct_size = sizeof load, .run = options->run};
  if (with.max_length == 0 || with.max_length > max) with.max_length = (uint32_t)max;
  CKPT_TRY(ckpt_device_choose(&out->device, options->device, options->n_threads, err));
  with.device = out->device;
  if (!out->device->table->is_host) {
    CKPT_TRY(ckpt_executor_new(&out->executor, out->model, &with, err));
    return ckpt_executor_load(out->executor, index, &load, err);
  }
  CKPT_TRY(ckpt_weights_load(&out->weights, out->model, index, &load, err));
  with.places = out->weights.places;
  return ckpt_executor_new(&out->executor, out->model, &with, err);
}

ckpt_status ckpt_runner_plan(ckpt_executor_memory *out, ckpt_index *index, const ckpt_runner_options *options,
                             ckpt_error *err) {
  ckpt_model *model;
  ckpt_weights weights = {0};
  const ckpt_model_options forward = model_options(options);
  ckpt_executor_options with = {.struct_size = sizeof with,
                                .max_rows = options->max_rows,
                                .max_length = options->max_length,
                                .n_threads = options->n_threads};
  CKPT_TRY(ckpt_model_open(&model, index, options->like, &forward, err));
  ckpt_status status = ckpt_weights_plan(&weights, model, index, err);
  with.places = weights.places;
  if (status == CKPT_OK) status = ckpt_executor_plan(out, model, &with, err);
  if (status == CKPT_OK) out->parameters = weights.n_bytes;
  ckpt_weights_release(&weights);
  ckpt_model_free(model);
  return ckpt_fail_at(status, err, index->path, NULL);
}

void ckpt_runner_close(ckpt_runner *runner) {
  ckpt_executor_free(runner->executor);
  ckpt_device_free(runner->device);
  ckpt_weights_release(&runner->weights);
  ckpt_model_free(runner->model);
  *runner = (ckpt_runner){0};
}
