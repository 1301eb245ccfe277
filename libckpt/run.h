/* run.h - running a plan with a backend of the caller's choice; ckpt_plan_run (ckpt.h) takes the CPU's. */
#ifndef CKPT_RUN_H
#define CKPT_RUN_H

#include "plan.h"

/* Prepares, runs and commits; see ckpt_plan_run. Slots that backend leaves empty are the reference's. With
 * keeps_staged the sinks are sealed but not published, so that the caller can commit them with others of its own
 * (ckpt_sink_commit). */
ckpt_status ckpt_plan_run_on(ckpt_plan *plan, const ckpt_run_options *options, const ckpt_backend *backend,
                             bool keeps_staged, ckpt_error *err);

/* The content digest of an output's description or an index from its tensors' digests: digests[i] points at that of the
 * i-th tensor in byte order of names, NULL where it takes no part. Stored pairs that the config ties count once if
 * equal, else EDIFFERENT. */
ckpt_status ckpt_digest_index(const ckpt_index *index, const ckpt_digest *const *digests, ckpt_digest *out,
                              ckpt_error *err);

#endif
