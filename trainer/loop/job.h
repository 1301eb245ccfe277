/* job.h - what all ranks of a run share, and what each has: between the files of this room. */
#ifndef CKPT_TRAINER_LOOP_JOB_H
#define CKPT_TRAINER_LOOP_JOB_H

#include <jansson.h>

#include "trainer/checkpoint/state.h"
#include "trainer/data/loader.h"
#include "trainer/loop/train.h"
#include "trainer/lora/lora.h"
#include "trainer/optimizer/schedule.h"

/* Names in the output folder of what is being written or removed: a run that was killed may leave them. */
#define CKPT_STAGED ".checkpoint-"
#define CKPT_GOING ".going-"
#define CKPT_FINAL ".final"

/* What run.json says of the run that goes on; NULL where it does not say. */
typedef struct ckpt_recorded_run {
  const char *base_digest, *data_digest;
  const char *rows;      /* as ckpt_job_rows has it */
  const char *arguments; /* JSON of those that decide the order of the data */
  bool is_of_model;      /* its model has the architecture of this one, and as many parameters */
} ckpt_recorded_run;

/* Set up before the ranks begin, and not changed by them but for what rank 0 alone touches. */
typedef struct ckpt_job {
  const ckpt_train_options *options;
  const ckpt_arguments *arguments;
  ckpt_arena arena;
  ckpt_index *base;    /* of the weights to begin with; NULL: from scratch */
  ckpt_index *resumed; /* the checkpoint that the run goes on from; NULL: none */
  uint64_t below;      /* not from one of this step or later, which could not be loaded; 0: any */
  ckpt_model *model;
  ckpt_lora *lora;           /* NULL: all weights are trained */
  const ckpt_model *trained; /* the table of what is trained: the model's, or the adapter's */
  ckpt_tokenizer *tokenizer;
  ckpt_text_encoder *encoder;
  ckpt_dataset *data, *eval_data;
  ckpt_order order;
  ckpt_schedule schedule;
  ckpt_carried *carried;
  uint32_t n_carried;
  uint64_t n_steps, steps_per_epoch;
  uint64_t log_every, eval_every, save_every; /* 0: not by steps */
  uint64_t data_seed;
  uint32_t n_threads;         /* of a rank */
  ckpt_progress_state start;  /* where the run begins */
  const char *base_digest;    /* text; NULL: from scratch */
  ckpt_recorded_run recorded; /* of the run that goes on */
  const ckpt_sharded **ranks; /* of every rank, set by it */
  uint64_t *broken;           /* steps of checkpoints of this run that it cannot go on from */
  size_t n_broken;
  /* rank 0's */
  int log;           /* descriptor of log.jsonl */
  int lock;          /* of the output folder, which one run writes at a time */
  char *checkpoints; /* JSON of those this run wrote, for run.json */
  bool save_failed;  /* a checkpoint or a log line could not be written */
  bool log_failed;   /* a log line, which has been said */
  double save_seconds;
  bool is_unsaved; /* the last checkpoint is not there */
} ckpt_job;

/* One rank. */
typedef struct ckpt_rank {
  ckpt_job *job;
  ckpt_rank_groups groups;
  ckpt_device *device;
  ckpt_sharded *sharded;
  ckpt_executor *executor;
  float *base;                      /* of an adapter: the model's weights */
  float *frozen;                    /* the same on a device that is not the host; NULL: base is it */
  float *merged, *merged_gradients; /* with it, and their gradients, where some run merged; else NULL */
  float *norms;                     /* of DoRA's rows */
  ckpt_parameter_place *places;     /* of an adapter: where the executor finds each parameter */
  uint32_t max_rows, max_length;    /* of the executor */
  ckpt_loader *loader;              /* from the first step on */
  ckpt_loaded *batches;             /* of a step */
  ckpt_loaded eval_batch;
  ckpt_sample sample;
  ckpt_progress_state state;
  ckpt_outcome outcome;
  double eval_loss;
  bool is_resuming; /* the checkpoint is being loaded */
  ckpt_error error;
  ckpt_status status;
} ckpt_rank;

/* What a step came to: the same on every rank, but for times. */
typedef struct ckpt_step_result {
  double loss, norm, clip, learning_rate, n_tokens, seconds, data_seconds, comm_seconds;
  bool is_skipped, wants_stop;
} ckpt_step_result;

/* Ranks that the state is cut among: those of one replica. */
static inline uint32_t ckpt_job_shards(const ckpt_job *job) {
  const ckpt_train_options *o = job->options;
  return o->n_replicas < 2 ? o->n_ranks : o->n_ranks / o->n_replicas;
}

/* As --recompute says, else gradient_checkpointing: all of it. */
static inline ckpt_recompute_kind ckpt_job_recomputation(const ckpt_job *job) {
  const bool is_full = job->options->recompute == CKPT_RECOMPUTE_NONE && job->arguments->gradient_checkpointing;
  return is_full ? CKPT_RECOMPUTE_FULL : job->options->recompute;
}

/* setup.c: fills a zeroed job. */
ckpt_status ckpt_job_open(ckpt_job *job, const ckpt_train_options *options, ckpt_error *err);
/* Releases what a job holds, also after a failure to open it. */
void ckpt_job_close(ckpt_job *job);

/* schedule_kwargs.c: fills in what lr_scheduler_kwargs says (JSON, or NULL) of a schedule of lr_scheduler_type `type`.
 * EINVAL: what the schedule does not take, or lacks. */
ckpt_status ckpt_schedule_kwargs(ckpt_schedule *schedule, const char *text, const char *type, ckpt_error *err);

/* resumed.c: keeps what run.json says of its run (a json_t); the same from beside a checkpoint of the run that goes on,
 * where its folder has none. */
void ckpt_job_remember(ckpt_job *job, const json_t *run);
void ckpt_job_remember_beside(ckpt_job *job, const char *checkpoint); /* as above */
/* How rows of data become samples, in words; out is returned. */
const char *ckpt_job_rows(char out[64], const ckpt_job *job);
/* EINVAL where the checkpoint is of a run with other data, or in another order, another model or adapter. */
ckpt_status ckpt_job_check_resumed(const ckpt_job *job, ckpt_error *err);

/* plan.c: --plan, through the report. ELIMIT: more than the machine has. */
ckpt_status ckpt_job_plan(const ckpt_job *job, ckpt_error *err);
/* The same of weights, gradients and moments alone, which every run holds: batches may be smaller than planned. */
ckpt_status ckpt_job_check_memory(const ckpt_job *job, ckpt_error *err);

/* rank.c: all that a rank does; the rank keeps its outcome. */
void ckpt_rank_run(ckpt_rank *rank);
/* Weights that the executor can work with: those of other ranks gathered, an adapter's merged. */
ckpt_status ckpt_rank_gather(ckpt_rank *rank, ckpt_error *err);
/* The second half of it, where weights are gathered already. */
ckpt_status ckpt_rank_merge(ckpt_rank *rank, ckpt_error *err);
/* Positions that executors are made for where batches have this many: the next multiple of 32 that the model has. */
uint32_t ckpt_job_room(const ckpt_job *job, uint32_t length);
/* An executor that takes batches of this size. */
ckpt_status ckpt_rank_executor(ckpt_rank *rank, uint32_t n_rows, uint32_t length, ckpt_error *err);

/* step.c: one step of training. */
ckpt_status ckpt_rank_step(ckpt_rank *rank, uint64_t step, ckpt_step_result *result, ckpt_error *err);

/* evaluate.c: the loss over the data to evaluate on, the same for any number of ranks. */
ckpt_status ckpt_rank_evaluate(ckpt_rank *rank, double *loss, ckpt_error *err);

/* saving.c: writes a checkpoint of the state and removes those that have to go. A checkpoint that cannot be written is
 * reported and remembered, no failure. */
ckpt_status ckpt_rank_save(ckpt_rank *rank, ckpt_error *err);
/* Writes the final model, or the adapter, into the output folder. */
ckpt_status ckpt_rank_finish(ckpt_rank *rank, ckpt_error *err);

/* Whether the run only dumps, and so writes nothing into its folder. */
static inline bool ckpt_job_only_dumps(const ckpt_job *job) {
  return job->options->dump_grads != NULL || job->options->dump_logits != NULL;
}

/* folder.c: makes the output folder, moves an old one aside, or takes one to go on in. EEXIST where it holds anything
 * that the run must not touch. */
ckpt_status ckpt_job_prepare_folder(ckpt_job *job, ckpt_error *err);
/* Opens the checkpoint to go on from (job->resumed), where one is asked for and there. */
ckpt_status ckpt_job_find_resumed(ckpt_job *job, ckpt_error *err);
/* Rank 0, once the run goes on: what was broken gets another name, so that nothing takes it for a checkpoint. */
ckpt_status ckpt_job_set_aside(ckpt_job *job, ckpt_error *err);
/* Whether a failure to load a checkpoint means that the one before is to be tried. */
bool ckpt_job_walks_back(const ckpt_job *job, ckpt_status status);
/* Opens a checkpoint of a run: several formats lie each in a folder of its name. */
ckpt_status ckpt_open_checkpoint(ckpt_index **out, const char *path, ckpt_error *err);
/* Steps of the checkpoints in the folder, ascending; the caller frees them. */
ckpt_status ckpt_job_checkpoints(const ckpt_job *job, uint64_t **steps, size_t *n, ckpt_error *err);

/* log.c: opens log.jsonl; rows after the step that a run goes on from are dropped. */
ckpt_status ckpt_job_open_log(ckpt_job *job, ckpt_error *err);
/* Appends a step's row; is_shown: reports it too. */
ckpt_status ckpt_job_log_step(ckpt_job *job, const ckpt_rank *rank, const ckpt_step_result *result, bool is_shown,
                              ckpt_error *err);
/* Appends and reports an evaluation. */
ckpt_status ckpt_job_log_eval(ckpt_job *job, const ckpt_rank *rank, double loss, double seconds, ckpt_error *err);
/* Replaces run.json. */
ckpt_status ckpt_job_write_run(ckpt_job *job, ckpt_error *err);
/* Adds a checkpoint and its digest to run.json; a NULL digest removes it. */
ckpt_status ckpt_job_note_checkpoint(ckpt_job *job, uint64_t step, const char *digest, ckpt_error *err);
/* Replaces train_results.json. */
ckpt_status ckpt_job_write_results(ckpt_job *job, const ckpt_rank *rank, double seconds, ckpt_error *err);
/* The run id that the folder's run.json has, in the arena; NULL: none. Its checkpoints are kept for the next writing,
 * and its digests. */
const char *ckpt_job_read_run(ckpt_job *job);
/* Whether the folder's run.json names a run. */
bool ckpt_job_has_run(const ckpt_job *job);

/* Shows a text. */
void ckpt_job_report(const ckpt_job *job, ckpt_report_kind kind, const char *format, ...) CKPT_PRINTF(3, 4);

/* dump.c: called by every rank; the first one writes the gradients of the first step. EEXIST without --force. */
ckpt_status ckpt_dump_gradients(const ckpt_rank *rank, const char *path, ckpt_error *err);
/* Runs the first batch and writes its logits. EEXIST without --force. */
ckpt_status ckpt_dump_logits(ckpt_rank *rank, const char *path, ckpt_error *err);

#endif
