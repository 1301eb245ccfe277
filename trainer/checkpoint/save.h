/* save.h - a run's state is written: by the convert recipe, all ranks together. */
#ifndef CKPT_TRAINER_CHECKPOINT_SAVE_H
#define CKPT_TRAINER_CHECKPOINT_SAVE_H

#include "libckpt/index/index.h"

/* Memory that writing takes on each rank, at most. */
#define CKPT_SAVE_MEMORY (UINT64_C(64) << 20)

typedef struct ckpt_save_request {
  const ckpt_index *state;
  const char *path;        /* of the folder or file that appears whole or not at all */
  const char *format;      /* "dcp", "torch", "zero", "universal", "hf" */
  const char *include;     /* "all" or "model" */
  uint32_t n_ranks, stage; /* that a distributed format is cut for; stage 0: the format's default */
  const ckpt_group *group; /* NULL: this thread alone */
  uint32_t n_threads;      /* of each rank */
} ckpt_save_request;

/* Writes and commits. Every rank of the group calls it with the same request and returns the same status. Fails like
 * ckpt_plan_run. */
ckpt_status ckpt_save(const ckpt_save_request *request, ckpt_digest *digest, ckpt_error *err);

/* Puts the files of the folder `from` into the folder `into`, each over what has its name there, config.json and the
 * index of shards last; then removes `from`. EIO. */
ckpt_status ckpt_publish_files(const char *from, const char *into, ckpt_error *err);

/* Makes the names in a folder durable. EIO. */
ckpt_status ckpt_sync_entries(const char *path, ckpt_error *err);

/* Writes a new file and syncs it. EIO. */
ckpt_status ckpt_write_whole(const char *path, const void *bytes, uint64_t n_bytes, ckpt_error *err);

/* Removes a file, or a folder and all in it. Links are removed, not followed. EIO. */
ckpt_status ckpt_remove_all(const char *path, ckpt_error *err);

#endif
