/* train.h - one training run, as `ckpt-train` is asked for it: set up, done by its ranks, written. */
#ifndef CKPT_TRAINER_LOOP_TRAIN_H
#define CKPT_TRAINER_LOOP_TRAIN_H

#include <signal.h>

#include "trainer/data/dataset.h"
#include "trainer/loop/arguments.h"
#include "trainer/model/executor.h"

typedef enum ckpt_init_kind { CKPT_INIT_PRETRAINED, CKPT_INIT_SCRATCH } ckpt_init_kind;

/* What is shown while it runs. */
typedef enum ckpt_report_kind { CKPT_REPORT_LINE, CKPT_REPORT_NOTE, CKPT_REPORT_WARNING } ckpt_report_kind;

typedef struct ckpt_train_options {
  ckpt_arguments *arguments; /* checked */
  const char *model;         /* folder, or whatever ckpt_open opens; with SCRATCH a folder that has a config.json */
  const char *output;
  const char *const *data, *const *eval_data; /* paths and globs, NULL-terminated; eval_data may be NULL */
  const char *columns;
  const char *lora;        /* a LoraConfig or an adapter's folder; NULL: all weights are trained */
  const char *resume;      /* "last", "auto", a path; NULL: a new run */
  const char *save_format; /* "dcp,torch"; NULL: dcp */
  const char *dump_grads, *dump_logits;
  bool is_on_cuda; /* one rank on one GPU; EUNSUPPORTED where there is none, with the reason */
  ckpt_init_kind init;
  ckpt_packing packing;
  ckpt_dtype data_dtype;
  uint64_t max_length;                /* 0: the model's positions */
  uint64_t max_skipped;               /* steps in all */
  uint32_t n_ranks, stage, n_threads; /* threads of each rank; 0: processors / ranks */
  uint32_t n_replicas;                /* with a stage: of the shards; divides n_ranks; 0: 1 */
  int64_t patience;                   /* evaluations without a better one before the run ends; 0: it does not */
  double threshold;                   /* by how much better */
  bool force, plan;
  bool overlaps;                     /* stages 2 and 3 gather and sum while they compute */
  ckpt_recompute_kind recompute;     /* NONE: as gradient_checkpointing says */
  const volatile sig_atomic_t *stop; /* non-zero: save and stop */
  /* Called from rank 0's thread. */
  void (*report)(void *arg, ckpt_report_kind kind, const char *text);
  void *report_arg;
} ckpt_train_options;

typedef enum ckpt_outcome { CKPT_OUTCOME_DONE, CKPT_OUTCOME_STOPPED, CKPT_OUTCOME_INCOMPLETE } ckpt_outcome;

/* Trains. STOPPED: it was asked to stop, and saved. INCOMPLETE: it ran to its end, and a checkpoint or a line of the
 * log could not be written; or it was stopped, and its last checkpoint could not. EINVAL: what was asked for cannot be;
 * other failures as their parts. */
ckpt_status ckpt_train(const ckpt_train_options *options, ckpt_outcome *outcome, ckpt_error *err);

#endif
