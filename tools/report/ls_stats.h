/* ls_stats.h - what `ls --stats` adds to a tensor's line: statistics of its values. */
#ifndef CKPT_TOOLS_REPORT_LS_STATS_H
#define CKPT_TOOLS_REPORT_LS_STATS_H

#include "libckpt/plan/plan.h"
#include "tools/cli/options.h"
#include "tools/report/json_writer.h"

/* Zero-initialise it; free with ckpt_ls_stats_free. */
typedef struct ckpt_ls_stats {
  const ckpt_index *index;
  const ckpt_tensor *const *tensors;
  ckpt_stats *stats;          /* of each listed tensor; NULL without --stats; owned */
  const ckpt_stats **running; /* those of the slice that is being read; owned */
  bool is_printed;            /* --plan: the plan was printed, there are no values */
} ckpt_ls_stats;

/* Reads n tensors of an index; without --stats does nothing. */
ckpt_status ckpt_ls_stats_read(ckpt_ls_stats *out, const ckpt_args *args, const ckpt_index *index,
                               const ckpt_tensor *const *tensors, size_t n, ckpt_error *err);
void ckpt_ls_stats_free(ckpt_ls_stats *stats);

/* The i-th tensor's statistics, as columns on stdout or as keys of the open object; nothing without --stats. */
void ckpt_ls_stats_print(const ckpt_ls_stats *stats, size_t i);
void ckpt_ls_stats_emit(const ckpt_ls_stats *stats, size_t i, ckpt_emitter *json); /* as above */

#endif
