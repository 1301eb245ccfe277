/* schedule.c - see schedule.h. Each function gives the factor that torch's LambdaLR multiplies the rate by. */
#include "trainer/optimizer/schedule.h"

#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"

#define PI 3.14159265358979323846

static const char *const names[CKPT_N_SCHEDULES] = {
    [CKPT_SCHEDULE_LINEAR] = "linear",
    [CKPT_SCHEDULE_COSINE] = "cosine",
    [CKPT_SCHEDULE_COSINE_WITH_RESTARTS] = "cosine_with_restarts",
    [CKPT_SCHEDULE_POLYNOMIAL] = "polynomial",
    [CKPT_SCHEDULE_CONSTANT] = "constant",
    [CKPT_SCHEDULE_CONSTANT_WITH_WARMUP] = "constant_with_warmup",
    [CKPT_SCHEDULE_INVERSE_SQRT] = "inverse_sqrt",
    [CKPT_SCHEDULE_COSINE_WITH_MIN_LR] = "cosine_with_min_lr",
    [CKPT_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR] = "cosine_warmup_with_min_lr",
    [CKPT_SCHEDULE_WARMUP_STABLE_DECAY] = "warmup_stable_decay",
    [CKPT_SCHEDULE_REDUCE_ON_PLATEAU] = "reduce_lr_on_plateau",
};

ckpt_schedule_kind ckpt_schedule_find(const char *name) {
  int kind = 0;
  while (kind < CKPT_N_SCHEDULES && strcmp(names[kind], name) != 0) kind++;
  return (ckpt_schedule_kind)kind;
}

ckpt_schedule ckpt_schedule_default(ckpt_schedule_kind kind, double learning_rate, uint64_t n_warmup,
                                    uint64_t n_steps) {
  return (ckpt_schedule){.kind = kind,
                         .learning_rate = learning_rate,
                         .n_warmup = n_warmup,
                         .n_steps = n_steps,
                         .n_cycles = kind == CKPT_SCHEDULE_COSINE_WITH_RESTARTS ? 1 : 0.5,
                         .end = 1e-7,
                         .power = 1,
                         .warmup_rate = -1,
                         .n_stable = UINT64_MAX,
                         .n_decay = UINT64_MAX,
                         .warmup = CKPT_SLOPE_LINEAR,
                         .decay = CKPT_SLOPE_COSINE,
                         .plateau = {.factor = 0.1, .threshold = 1e-4, .epsilon = 1e-8, .patience = 10}};
}

ckpt_status ckpt_schedule_check(ckpt_schedule *s, ckpt_error *err) {
  if (s->kind == CKPT_SCHEDULE_POLYNOMIAL && s->learning_rate <= s->end)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "lr_scheduler_type polynomial: lr_end has to be below learning_rate (%g, %g)", s->end,
                     s->learning_rate);
  if (s->kind == CKPT_SCHEDULE_REDUCE_ON_PLATEAU && !(s->plateau.factor > 0 && s->plateau.factor < 1))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "lr_scheduler_type reduce_lr_on_plateau: factor %g has to be above 0 and below 1",
                     s->plateau.factor);
  if (s->kind != CKPT_SCHEDULE_WARMUP_STABLE_DECAY) return CKPT_OK;
  if (s->n_decay == UINT64_MAX)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "lr_scheduler_type warmup_stable_decay: lr_scheduler_kwargs has to give num_decay_steps");
  if (s->n_stable == UINT64_MAX) {
    if (s->n_warmup + s->n_decay > s->n_steps)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                       "lr_scheduler_type warmup_stable_decay: warm-up and decay are longer than the run (%llu + %llu "
                       "steps of %llu)",
                       (unsigned long long)s->n_warmup, (unsigned long long)s->n_decay, (unsigned long long)s->n_steps);
    s->n_stable = s->n_steps - s->n_warmup - s->n_decay;
  }
  return CKPT_OK;
}

static double at_least(double value, double least) { return value > least ? value : least; }

static double rising(double step, double n) { return step / at_least(n, 1); }

/* How much of the way from the end of the warm-up to the last step is done. */
static double progress_of(const ckpt_schedule *s, double step) {
  return (step - (double)s->n_warmup) / at_least((double)s->n_steps - (double)s->n_warmup, 1);
}

static double half_cosine(double cycles, double progress) { return 0.5 * (1.0 + cos(PI * cycles * 2.0 * progress)); }

static double polynomial(const ckpt_schedule *s, double step) {
  if (step > (double)s->n_steps) return s->end / s->learning_rate;
  const double range = s->learning_rate - s->end, decay_steps = (double)s->n_steps - (double)s->n_warmup;
  const double rest = 1 - (step - (double)s->n_warmup) / decay_steps;
  return (range * pow(rest, s->power) + s->end) / s->learning_rate;
}

static double slope(ckpt_slope kind, double cycles, double progress, bool is_rising) {
  const double x = is_rising ? progress : 1.0 - progress;
  if (kind == CKPT_SLOPE_LINEAR) return x;
  if (kind == CKPT_SLOPE_SQRT) return is_rising ? 1.0 - sqrt(1.0 - progress) : 1.0 - sqrt(progress);
  return is_rising ? 0.5 * (1.0 - cos(PI * progress)) : half_cosine(cycles, progress);
}

static double stable_decay(const ckpt_schedule *s, double step) {
  const double warm = (double)s->n_warmup, flat = (double)s->n_stable, down = (double)s->n_decay;
  double factor;
  if (step < warm)
    factor = slope(s->warmup, 0.5, rising(step, warm), true);
  else if (step < warm + flat)
    return 1.0;
  else if (step < warm + flat + down)
    factor = slope(s->decay, s->n_cycles, (step - warm - flat) / at_least(down, 1), false);
  else
    return s->min_rate;
  return at_least(factor * (1.0 - s->min_rate) + s->min_rate, 0);
}

static double cosine_warmup(const ckpt_schedule *s, double step) {
  if (step < (double)s->n_warmup) {
    if (s->warmup_rate < 0) return (step + 1.0) / at_least((double)s->n_warmup, 1);
    return s->warmup_rate + (1.0 - s->warmup_rate) * step / at_least((double)s->n_warmup - 1, 1);
  }
  const double progress = (step - (double)s->n_warmup + 1.0) / at_least((double)s->n_steps - (double)s->n_warmup, 1);
  return at_least(half_cosine(s->n_cycles, progress) * (1 - s->min_rate) + s->min_rate, 0);
}

static double factor_of(const ckpt_schedule *s, double step) {
  const bool warms = step < (double)s->n_warmup;
  switch (s->kind) {
    case CKPT_SCHEDULE_CONSTANT: return 1.0;
    case CKPT_SCHEDULE_WARMUP_STABLE_DECAY: return stable_decay(s, step);
    case CKPT_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR: return cosine_warmup(s, step);
    default: break;
  }
  if (warms) return rising(step, (double)s->n_warmup);
  const double progress = progress_of(s, step);
  switch (s->kind) {
    case CKPT_SCHEDULE_LINEAR: /* one division, as transformers has it */
      return at_least(((double)s->n_steps - step) / at_least((double)s->n_steps - (double)s->n_warmup, 1), 0);
    case CKPT_SCHEDULE_COSINE: return at_least(half_cosine(s->n_cycles, progress), 0);
    case CKPT_SCHEDULE_COSINE_WITH_RESTARTS:
      if (progress >= 1.0) return 0;
      return at_least(0.5 * (1.0 + cos(PI * fmod(s->n_cycles * progress, 1.0))), 0);
    case CKPT_SCHEDULE_POLYNOMIAL: return polynomial(s, step);
    case CKPT_SCHEDULE_INVERSE_SQRT: {
      const double scale = s->timescale != 0 ? s->timescale : s->n_warmup != 0 ? (double)s->n_warmup : 10000;
      return 1.0 / sqrt((step + (scale - (double)s->n_warmup)) / scale);
    }
    case CKPT_SCHEDULE_COSINE_WITH_MIN_LR:
      return at_least(half_cosine(s->n_cycles, progress) * (1 - s->min_rate) + s->min_rate, 0);
    default: return 1.0;
  }
}

double ckpt_schedule_rate(const ckpt_schedule *s, const ckpt_plateau *plateau, uint64_t step) {
  return s->kind == CKPT_SCHEDULE_REDUCE_ON_PLATEAU ? plateau->rate : s->learning_rate * factor_of(s, (double)step);
}

static bool is_better(const ckpt_schedule *s, double metric, double best) {
  const double sign = s->plateau.is_max ? -1 : 1, threshold = s->plateau.threshold;
  if (isnan(best)) return !isnan(metric) && metric != sign * (double)INFINITY;
  const double bound = s->plateau.is_absolute ? best - sign * threshold : best * (1.0 - sign * threshold);
  return s->plateau.is_max ? metric > bound : metric < bound;
}

void ckpt_plateau_step(ckpt_plateau *p, const ckpt_schedule *s, double metric) {
  if (s->kind != CKPT_SCHEDULE_REDUCE_ON_PLATEAU) return;
  const bool improves = is_better(s, metric, p->best);
  p->n_bad = improves ? 0 : p->n_bad + 1;
  if (improves) p->best = metric;
  if (p->cooldown > 0) {
    p->cooldown--;
    p->n_bad = 0;
  }
  if (p->n_bad <= s->plateau.patience) return;
  const double rate = at_least(p->rate * s->plateau.factor, s->plateau.least);
  if (p->rate - rate > s->plateau.epsilon) p->rate = rate;
  p->cooldown = s->plateau.cooldown;
  p->n_bad = 0;
}
