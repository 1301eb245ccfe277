/* run.h - running a plan inside the library; ckpt_plan_run (ckpt.h) takes options of any version. */
#ifndef CKPT_RUN_RUN_H
#define CKPT_RUN_RUN_H

#include "libckpt/plan/plan.h"

/* Prepares, runs and commits; see ckpt_plan_run. With keeps_staged the sinks are sealed but not published, so that the
 * caller can commit them with others of its own (ckpt_sink_commit). */
ckpt_status ckpt_plan_run_on(ckpt_plan *plan, const ckpt_run_options *options, bool keeps_staged, ckpt_error *err);

/* ECANCELED with this message if the options (may be NULL) have a cancel flag that is set. The first to see it must end
 * the run, since the caller may clear the flag again. */
static inline ckpt_status ckpt_check_cancel(const ckpt_run_options *options, const char *message, ckpt_error *err) {
  const volatile int *cancel = options != NULL ? options->cancel : NULL;
  bool is_set = cancel != NULL && __atomic_load_n(cancel, __ATOMIC_RELAXED) != 0;
  return is_set ? ckpt_fail(err, CKPT_ECANCELED, NULL, NULL, "%s", message) : CKPT_OK;
}

/* Calls the options' progress function, if any, with the bytes done; then as above. */
static inline ckpt_status ckpt_tell_progress(const ckpt_run_options *options, uint64_t n_done, uint64_t n_total,
                                             ckpt_error *err) {
  if (options != NULL && options->progress != NULL) options->progress(options->progress_arg, n_done, n_total);
  return ckpt_check_cancel(options, "cancelled", err);
}

/* The content digest of an output's description or an index from its tensors' digests: digests[i] points at that of the
 * i-th tensor in byte order of names, NULL where it takes no part. Stored pairs that the config ties count once if
 * equal (the second one's is set to NULL), else EDIFFERENT, which names no file: that is whose config it is. */
ckpt_status ckpt_digest_index(const ckpt_index *index, const ckpt_digest **digests, ckpt_digest *out, ckpt_error *err);

#endif
