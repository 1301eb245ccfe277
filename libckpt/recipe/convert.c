/* convert.c - see convert.h. */
#include "libckpt/recipe/convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/recipe/quantized.h"
#include "libckpt/run.h"

/* What rows decide while they are added: for config.json's dtype and for what is said afterwards. */
typedef struct totals {
  uint64_t n_bytes[CKPT_N_DTYPES]; /* of parameters, as written */
} totals;

/* Name by which config.json knows the dtype that most parameter bytes have; NULL where it has no such name. */
static const char *dtype_written(const totals *t) {
  int most = 0;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (ckpt_dtype_is_float((ckpt_dtype)i) && t->n_bytes[i] > t->n_bytes[most]) most = i;
  switch (most) {
    case CKPT_F64: return "float64";
    case CKPT_F32: return "float32";
    case CKPT_F16: return "float16";
    case CKPT_BF16: return "bfloat16";
    default: return NULL;
  }
}

static const char *human(uint64_t n_bytes, char *out, size_t n) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB"};
  double value = (double)n_bytes;
  int unit = 0;
  for (; value >= 1000 && unit < 4; unit++) value /= 1000;
  snprintf(out, n, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return out;
}

static ckpt_status say_left_out(ckpt_output *output, const ckpt_left_out *left_out, ckpt_error *err) {
  char size[32];
  for (int role = 0; role < CKPT_N_ROLES; role++)
    if (left_out->n_tensors[role] != 0)
      CKPT_TRY(ckpt_losses_add(&output->losses, err, "%s %s", ckpt_role_name((ckpt_role)role),
                               human(left_out->n_bytes[role], size, sizeof size)));
  if (left_out->n_unmatched != 0)
    CKPT_TRY(ckpt_losses_add(&output->losses, err, "%llu tensors by --match or --exclude",
                             (unsigned long long)left_out->n_unmatched));
  return CKPT_OK;
}

static ckpt_status add_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_selection *selection,
                            bool is_quantized, totals *t, ckpt_error *err) {
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    const char *name;
    ckpt_dtype dtype;
    ckpt_status status = ckpt_selection_take(selection, tensor, &plan->arena, &name, &dtype, err);
    if (status == CKPT_OK && name == NULL) continue;
    ckpt_expr *expr = NULL;
    if (status == CKPT_OK) status = ckpt_expr_read(&expr, plan, from, tensor, err);
    if (status == CKPT_OK && dtype != CKPT_DTYPE_NONE && dtype != (ckpt_dtype)tensor->dtype) {
      status = ckpt_refuse_quantized(from, tensor, is_quantized, err);
      if (status == CKPT_OK) status = ckpt_expr_cast(&expr, plan, expr, dtype, err);
    }
    if (status == CKPT_OK) status = ckpt_plan_add_like(plan, sink, name, expr, tensor, NULL, err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, from->path, tensor->name);
    if (tensor->role == CKPT_ROLE_PARAMETER) t->n_bytes[expr->dtype] += expr->n_bytes;
  }
  return ckpt_selection_finish(selection, err);
}

static ckpt_status add_target(ckpt_plan *plan, const ckpt_index *from, const ckpt_convert_target *target,
                              const ckpt_convert_options *options, bool is_quantized, ckpt_error *err) {
  uint32_t sink;
  CKPT_TRY(ckpt_plan_output(plan, target->path, target->to, options->force, &sink, err));
  ckpt_output *output = &plan->outputs[sink];
  output->options.shard_size = target->shard_size;
  const char *include = options->include;
  if (include == NULL) include = output->format->caps.training_state ? "all" : "model";
  ckpt_selection *selection = NULL;
  totals t = {0};
  ckpt_status status;
  CKPT_TRY(ckpt_plan_carry(plan, sink, from, err));
  CKPT_TRY(ckpt_selection_new(&selection, options, include, err));
  CKPT_TRY_GOTO(add_rows(plan, sink, from, selection, is_quantized, &t, err));
  output->options.dtype_written = is_quantized ? NULL : dtype_written(&t);
  if (output->described->n_tensors == 0)
    status =
        ckpt_fail(err, CKPT_EINVAL, from->path, NULL, "no tensor is left to write (%u in the input)", from->n_tensors);
  else
    status = say_left_out(output, ckpt_selection_left_out(selection), err);
done:
  ckpt_selection_free(selection);
  return status;
}

ckpt_status ckpt_convert_plan(ckpt_plan *plan, const ckpt_index *from, const ckpt_convert_target *targets,
                              uint32_t n_targets, const ckpt_convert_options *options, ckpt_error *err) {
  bool is_quantized;
  CKPT_TRY(ckpt_index_is_quantized(from, &is_quantized, err));
  plan->allow_overflow = options->allow_overflow;
  for (uint32_t i = 0; i < n_targets; i++) CKPT_TRY(add_target(plan, from, &targets[i], options, is_quantized, err));
  return CKPT_OK;
}

ckpt_status ckpt_convert(const ckpt_convert_options *options, ckpt_error *err) {
  ckpt_convert_options known = {0};
  memcpy(&known, options, options->struct_size < sizeof known ? options->struct_size : sizeof known);
  ckpt_index *index = NULL;
  ckpt_plan *plan = NULL;
  ckpt_status status;
  const ckpt_open_options open = {.struct_size = sizeof open, .stored_names = known.stored_names};
  const ckpt_convert_target target = {known.output, known.to, known.shard_size};
  if (known.input == NULL || known.output == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "input and output must be given");
  CKPT_TRY_GOTO(ckpt_open(&index, known.input, &open, err));
  CKPT_TRY_GOTO(ckpt_plan_new(&plan, err));
  CKPT_TRY_GOTO(ckpt_convert_plan(plan, index, &target, 1, &known, err));
  CKPT_TRY_GOTO(ckpt_plan_run(plan, known.run, err));
  if (known.digest != NULL) *known.digest = plan->outputs[0].digest;
done:
  ckpt_plan_free(plan);
  ckpt_index_free(index);
  return status;
}
