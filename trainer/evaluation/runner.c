/* runner.c - see runner.h. */
#include "trainer/evaluation/runner.h"

#include "libckpt/base/error.h"

ckpt_status ckpt_runner_open(ckpt_runner *out, ckpt_index *index, const ckpt_runner_options *options, ckpt_error *err) {
  *out = (ckpt_runner){0};
  const ckpt_model_options forward = {.struct_size = sizeof forward};
  CKPT_TRY(ckpt_model_open(&out->model, index, options->like, &forward, err));
  const uint64_t max = out->model->max_positions;
  ckpt_executor_options with = {
      .struct_size = sizeof with, .max_rows = options->max_rows, .max_length = options->max_length};
  const ckpt_load_options load = {.struct_size = sizeof load, .run = options->run};
  if (with.max_length == 0 || (max != 0 && with.max_length > max)) with.max_length = (uint32_t)max;
  CKPT_TRY(ckpt_device_choose(&out->device, options->device, options->n_threads, err));
  with.device = out->device;
  CKPT_TRY(ckpt_executor_new(&out->executor, out->model, &with, err));
  return ckpt_executor_load(out->executor, index, &load, err);
}

void ckpt_runner_close(ckpt_runner *runner) {
  ckpt_executor_free(runner->executor);
  ckpt_device_free(runner->device);
  ckpt_model_free(runner->model);
  *runner = (ckpt_runner){0};
}
