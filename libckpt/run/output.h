/* output.h - what a run does for its outputs before and after its tiles, in this order.
 *
 * Every function is called by all ranks of the run's group and does the part of this rank: what belongs to the files it
 * writes (ckpt_plan_writes). Those that exchange do that first, so that no rank waits for one that failed. */
#ifndef CKPT_RUN_OUTPUT_H
#define CKPT_RUN_OUTPUT_H

#include "libckpt/plan/plan.h"

/* Where the bytes of a side file of an output come from; NULL: from no file. */
ckpt_source *ckpt_output_side_source(const ckpt_output *output, const ckpt_side_file *side);

/* Opens every output: on rank 0 their sinks make what is written to, on the others they join it. */
ckpt_status ckpt_outputs_open(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err);

/* Receives the bytes of side files that were copied or skipped. A status other than CKPT_OK ends the copying. */
typedef ckpt_status ckpt_side_progress(void *arg, uint64_t n_bytes, ckpt_error *err);

/* Clones files that equal an input's; prints literals and side files whose places are known. window has
 * CKPT_WINDOW_BYTES. */
ckpt_status ckpt_outputs_begin(ckpt_plan *plan, uint8_t *window, ckpt_side_progress *progress, void *arg,
                               ckpt_error *err);

/* After the tiles: exchanges offsets, sizes and checksums of segments and what casts did to values, and refuses the run
 * where values overflowed (EVALUE). */
ckpt_status ckpt_outputs_settle(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err);

/* Prints footers, which see all of that, and the literals behind them. */
ckpt_status ckpt_outputs_end(ckpt_plan *plan, uint8_t *window, ckpt_error *err);

/* Exchanges the digests of rows and makes those of the outputs. */
ckpt_status ckpt_outputs_digest(ckpt_plan *plan, const ckpt_group *group, ckpt_error *err);

/* Seals every output and, unless keeps_staged, publishes it. */
ckpt_status ckpt_outputs_commit(ckpt_plan *plan, bool keeps_staged, ckpt_error *err);

#endif
