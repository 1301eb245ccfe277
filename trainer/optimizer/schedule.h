/* schedule.h - learning rates by step, as transformers.optimization computes them: pure functions of the step, so a
 * resumed run needs no state of a scheduler. Only reduce_lr_on_plateau goes by evaluations, and has a state. */
#ifndef CKPT_TRAINER_OPTIMIZER_SCHEDULE_H
#define CKPT_TRAINER_OPTIMIZER_SCHEDULE_H

#include "libckpt/ckpt.h"

typedef enum ckpt_schedule_kind {
  CKPT_SCHEDULE_LINEAR,
  CKPT_SCHEDULE_COSINE,
  CKPT_SCHEDULE_COSINE_WITH_RESTARTS,
  CKPT_SCHEDULE_POLYNOMIAL,
  CKPT_SCHEDULE_CONSTANT,
  CKPT_SCHEDULE_CONSTANT_WITH_WARMUP,
  CKPT_SCHEDULE_INVERSE_SQRT,
  CKPT_SCHEDULE_COSINE_WITH_MIN_LR,
  CKPT_SCHEDULE_COSINE_WARMUP_WITH_MIN_LR,
  CKPT_SCHEDULE_WARMUP_STABLE_DECAY,
  CKPT_SCHEDULE_REDUCE_ON_PLATEAU,
  CKPT_N_SCHEDULES
} ckpt_schedule_kind;

/* The shapes of warmup_stable_decay's two slopes. */
typedef enum ckpt_slope { CKPT_SLOPE_LINEAR, CKPT_SLOPE_COSINE, CKPT_SLOPE_SQRT } ckpt_slope;

/* A schedule and what lr_scheduler_kwargs says of it. ckpt_schedule_default fills in HF's defaults. */
typedef struct ckpt_schedule {
  ckpt_schedule_kind kind;
  double learning_rate;
  uint64_t n_warmup, n_steps;
  double n_cycles;            /* num_cycles: 0.5 of cosine, 1 of restarts (whole ones) */
  double end, power;          /* lr_end (1e-7) and power (1) of polynomial */
  double timescale;           /* of inverse_sqrt; 0: the warm-up, or 10000 without one */
  double min_rate;            /* least rate over learning_rate: min_lr_rate, min_lr_ratio, or min_lr / learning_rate */
  double warmup_rate;         /* of cosine_warmup_with_min_lr: rate at step 0 over learning_rate; negative: not set */
  uint64_t n_stable, n_decay; /* of warmup_stable_decay; UINT64_MAX: what is left */
  ckpt_slope warmup, decay;   /* of warmup_stable_decay: linear, cosine */
  struct {                    /* as torch's ReduceLROnPlateau has them */
    double factor, threshold, epsilon, least; /* least: rate */
    uint64_t patience, cooldown;              /* evaluations */
    bool is_max, is_absolute;                 /* mode max; threshold_mode abs */
  } plateau;
} ckpt_schedule;

/* The state of reduce_lr_on_plateau. */
typedef struct ckpt_plateau {
  double rate;
  double best; /* NaN: no evaluation yet */
  uint64_t n_bad, cooldown;
} ckpt_plateau;

/* The kind of a name of lr_scheduler_type; CKPT_N_SCHEDULES: there is none. */
ckpt_schedule_kind ckpt_schedule_find(const char *name);

/* A schedule with the defaults of its kind. */
ckpt_schedule ckpt_schedule_default(ckpt_schedule_kind kind, double learning_rate, uint64_t n_warmup, uint64_t n_steps);

/* EINVAL where it cannot be meant: a polynomial that ends above its start, a warmup_stable_decay without decay. */
ckpt_status ckpt_schedule_check(ckpt_schedule *schedule, ckpt_error *err);

/* The rate that step (from 0) is taken with; of reduce_lr_on_plateau the state's. */
double ckpt_schedule_rate(const ckpt_schedule *schedule, const ckpt_plateau *plateau, uint64_t step);

/* After an evaluation: the rate falls after more than `patience` evaluations without a better one. Does nothing for
 * other kinds. Source: torch.optim.lr_scheduler.ReduceLROnPlateau. */
void ckpt_plateau_step(ckpt_plateau *plateau, const ckpt_schedule *schedule, double metric);

#endif
