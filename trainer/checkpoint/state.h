/* state.h - the state of a run as an index of the library: weights, moments and steps in the memory of its ranks, what
 * is no tensor as objects, the model's config and tokenizer as side files. Whatever the library writes from an index,
 * it writes from a running job. */
#ifndef CKPT_TRAINER_CHECKPOINT_STATE_H
#define CKPT_TRAINER_CHECKPOINT_STATE_H

#include "libckpt/index/index.h"
#include "trainer/optimizer/schedule.h"
#include "trainer/parallel/sharded.h"

/* A file that goes beside the weights. */
typedef struct ckpt_carried {
  const char *name;
  const char *bytes;
  uint64_t n_bytes;
} ckpt_carried;

/* Where a run is: what it goes on from. */
typedef struct ckpt_progress_state {
  uint64_t step;      /* steps done */
  uint64_t n_updates; /* of AdamW: steps that were not skipped */
  uint64_t n_tokens;  /* trained on */
  uint64_t n_skipped;
  double loss_sum;    /* of the losses of all updates */
  double best_metric; /* NaN: none yet */
  uint64_t best_step, patience;
  uint64_t best_saved;                        /* the last step that was the best when it was saved; 0: none yet */
  double learning_rate;                       /* of the next step */
  ckpt_plateau plateau;                       /* of reduce_lr_on_plateau; a rate of 0: there is none */
  uint64_t seed, data_seed, n_samples, batch; /* batch: rows of a whole step */
  const char *run_id;
} ckpt_progress_state;

/* AdamW's settings, as a parameter group has them. */
typedef struct ckpt_group_settings {
  double learning_rate, initial_rate, beta1, beta2, epsilon, weight_decay;
} ckpt_group_settings;

typedef struct ckpt_state_parts {
  const ckpt_model *model;
  const ckpt_sharded *const *ranks; /* of every rank */
  uint32_t n_ranks, stage;
  const float *weights; /* whole; NULL: the ranks have shards */
  const ckpt_progress_state *progress;
  const ckpt_group_settings *settings;
  const ckpt_carried *carried;
  uint32_t n_carried;
  bool has_optimizer;
} ckpt_state_parts;

/* The index; it borrows all of the parts. ENOMEM. */
ckpt_status ckpt_state_index(ckpt_index **out, const ckpt_state_parts *parts, ckpt_error *err);

/* Whether a checkpoint has the weights and moments of a model, by name and shape, and no others. ENOTFOUND, EFORMAT,
 * EINVAL with the tensor's name. */
ckpt_status ckpt_state_check(const ckpt_index *index, const ckpt_model *model, ckpt_error *err);

/* What a checkpoint that was opened says of where its run was. EFORMAT: no run of ours wrote it, with what it lacks. */
ckpt_status ckpt_state_progress(ckpt_progress_state *out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err);

/* Fills a rank's weights, or its shards of them, from a checkpoint of any format. Fails as ckpt_model_load. */
ckpt_status ckpt_state_load_weights(ckpt_sharded *sharded, const ckpt_index *index, ckpt_error *err);

/* Fills a rank's weights and moments from a checkpoint of any number of ranks: its own pieces of the moments, and all
 * weights. ENOTFOUND, EFORMAT with the tensor's name; EDIFFERENT: a record is not as its checksum says. */
ckpt_status ckpt_state_load(ckpt_sharded *sharded, const ckpt_index *index, ckpt_error *err);

#endif
