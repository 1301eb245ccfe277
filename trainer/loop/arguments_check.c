/* arguments_check.c - what only all values of the arguments together show. */
#include <string.h>

#include "libckpt/base/error.h"
#include "trainer/loop/job.h"

static ckpt_status wrong(ckpt_error *err, const char *name, const char *value, const char *why) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %s: %s", name, value == NULL ? "None" : value, why);
}

/* A text that has to be one of several words. */
static ckpt_status check_word(const char *name, const char *value, const char *words, ckpt_error *err) {
  const size_t n = value == NULL ? 0 : strlen(value);
  for (const char *at = words; n != 0 && *at != '\0'; at += strcspn(at, " "), at += *at == ' ')
    if (strncmp(at, value, n) == 0 && (at[n] == ' ' || at[n] == '\0')) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %s: it has to be one of: %s", name, value == NULL ? "None" : value,
                   words);
}

static ckpt_status check_ranges(const ckpt_arguments *a, ckpt_error *err) {
  const struct {
    const char *name;
    double value, least;
  } rows[] = {{"per_device_train_batch_size", (double)a->per_device_train_batch_size, 1},
              {"per_device_eval_batch_size", (double)a->per_device_eval_batch_size, 1},
              {"gradient_accumulation_steps", (double)a->gradient_accumulation_steps, 1},
              {"learning_rate", a->learning_rate, 0},
              {"weight_decay", a->weight_decay, 0},
              {"adam_beta1", a->adam_beta1, 0},
              {"adam_beta2", a->adam_beta2, 0},
              {"adam_epsilon", a->adam_epsilon, 0},
              {"warmup_steps", a->warmup_steps, 0},
              {"warmup_ratio", a->warmup_ratio, 0},
              {"eval_delay", a->eval_delay, 0},
              {"max_grad_norm", a->max_grad_norm, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (!(rows[i].value >= rows[i].least))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %g: it has to be at least %g", rows[i].name, rows[i].value,
                       rows[i].least);
  if (a->per_device_train_batch_size > 1 << 20 || a->per_device_eval_batch_size > 1 << 20 ||
      a->gradient_accumulation_steps > 1 << 24)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "a batch of that many rows is past what is counted");
  if (a->adam_beta1 >= 1 || a->adam_beta2 >= 1)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "adam_beta1 and adam_beta2 have to be below 1 (%g, %g)",
                     a->adam_beta1, a->adam_beta2);
  if (!(a->label_smoothing_factor >= 0 && a->label_smoothing_factor < 1))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "label_smoothing_factor %g: it has to be at least 0 and below 1",
                     a->label_smoothing_factor);
  if (a->warmup_ratio > 1) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "warmup_ratio has to lie in [0, 1]");
  if (a->max_steps <= 0 && !(a->num_train_epochs > 0))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "num_train_epochs %g: no step would be taken", a->num_train_epochs);
  if (a->seed < 0) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "seed has to be at least 0");
  if (a->save_total_limit != CKPT_ARGUMENT_NONE && a->save_total_limit < 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "save_total_limit has to be at least 1, or None");
  return CKPT_OK;
}

#define MAX_STEPS 1e15 /* below 2^53: counted exactly */

static ckpt_status check_most(const char *name, double value, ckpt_error *err) {
  if (!(value > MAX_STEPS)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %g: it has to be at most %g steps", name, value, MAX_STEPS);
}

/* Numbers of steps: whole ones, or shares of all steps below 1. */
static ckpt_status check_steps(const char *name, double value, ckpt_error *err) {
  CKPT_TRY(check_most(name, value, err));
  if (value > 0 && (value < 1 || value == floor(value))) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s %g: a whole number of steps, or a share of all steps below 1",
                   name, value);
}

/* What of a schedule is wrong whatever the number of steps. */
static ckpt_status check_schedule(const ckpt_arguments *a, bool has_eval, ckpt_error *err) {
  const ckpt_schedule_kind kind =
      a->lr_scheduler_type == NULL ? CKPT_N_SCHEDULES : ckpt_schedule_find(a->lr_scheduler_type);
  if (kind == CKPT_N_SCHEDULES)
    return wrong(err, "lr_scheduler_type", a->lr_scheduler_type, "there is no such schedule (see --help)");
  if (kind == CKPT_SCHEDULE_REDUCE_ON_PLATEAU && (strcmp(a->eval_strategy, "no") == 0 || !has_eval))
    return wrong(err, "lr_scheduler_type", a->lr_scheduler_type, "it needs eval_strategy and --eval-data");
  ckpt_schedule schedule = ckpt_schedule_default(kind, a->learning_rate, 0, UINT64_MAX);
  CKPT_TRY(ckpt_schedule_kwargs(&schedule, a->lr_scheduler_kwargs, a->lr_scheduler_type, err));
  return ckpt_schedule_check(&schedule, err);
}

static ckpt_status check_best(ckpt_arguments *a, bool has_eval, ckpt_error *err) {
  const bool saves_best = strcmp(a->save_strategy, "best") == 0;
  if (a->load_best_model_at_end && a->metric_for_best_model == NULL) a->metric_for_best_model = "loss";
  if (!a->load_best_model_at_end && !saves_best) return CKPT_OK;
  if (strcmp(a->eval_strategy, "no") == 0 || !has_eval)
    return wrong(err, "load_best_model_at_end or save_strategy best", "",
                 "the best needs eval_strategy and --eval-data");
  if (a->metric_for_best_model == NULL)
    return wrong(err, "save_strategy", "best", "metric_for_best_model has to be given");
  if (strcmp(a->metric_for_best_model, "loss") != 0 && strcmp(a->metric_for_best_model, "eval_loss") != 0)
    return wrong(err, "metric_for_best_model", a->metric_for_best_model, "the metric is the loss");
  if (saves_best || !a->load_best_model_at_end) return CKPT_OK;
  if (strcmp(a->eval_strategy, a->save_strategy) != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "load_best_model_at_end: save_strategy and eval_strategy have to be the same (%s, %s)",
                     a->save_strategy, a->eval_strategy);
  const double ratio = a->save_steps / a->eval_steps;
  const bool are_alike = (a->save_steps < 1) == (a->eval_steps < 1);
  if (strcmp(a->eval_strategy, "steps") == 0 &&
      (are_alike ? fabs(ratio - nearbyint(ratio)) > 1e-9 : fmod(a->save_steps, a->eval_steps) != 0))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "load_best_model_at_end: save_steps has to be a multiple of eval_steps (%g, %g)", a->save_steps,
                     a->eval_steps);
  return CKPT_OK;
}

ckpt_status ckpt_arguments_check(ckpt_arguments *a, bool has_eval, ckpt_error *err) {
  CKPT_TRY(check_ranges(a, err));
  CKPT_TRY(check_word("logging_strategy", a->logging_strategy, "no steps epoch", err));
  CKPT_TRY(check_word("eval_strategy", a->eval_strategy, "no steps epoch", err));
  CKPT_TRY(check_word("save_strategy", a->save_strategy, "no steps epoch best", err));
  CKPT_TRY(check_word("optim", a->optim, "adamw_torch_fused adamw_torch adamw_hf", err));
  CKPT_TRY(check_word("train_sampling_strategy", a->train_sampling_strategy, "random sequential", err));
  if (a->greater_is_better != NULL) CKPT_TRY(check_word("greater_is_better", a->greater_is_better, "false true", err));
  CKPT_TRY(check_schedule(a, has_eval, err));
  CKPT_TRY(check_most("max_steps", (double)a->max_steps, err));
  CKPT_TRY(check_most("warmup_steps", a->warmup_steps, err));
  CKPT_TRY(check_steps("logging_steps", a->logging_steps, err));
  if (isnan(a->eval_steps)) a->eval_steps = a->logging_steps;
  CKPT_TRY(check_steps("eval_steps", a->eval_steps, err));
  CKPT_TRY(check_steps("save_steps", a->save_steps, err));
  if (strcmp(a->eval_strategy, "no") != 0 && !has_eval)
    return wrong(err, "eval_strategy", a->eval_strategy, "there is no --eval-data");
  return check_best(a, has_eval, err);
}
