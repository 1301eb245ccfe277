/* describe.h - what a writing verb says of its outputs, before it runs (--plan) and after. */
#ifndef CKPT_TOOLS_REPORT_DESCRIBE_H
#define CKPT_TOOLS_REPORT_DESCRIBE_H

#include "tools/report/input.h"
#include "tools/report/report.h"
#include "tools/report/writing.h"

/* A plan and what it was made of; nothing of it is owned. */
typedef struct ckpt_described {
  ckpt_arena *arena; /* that owns the texts */
  const ckpt_plan *plan;
  const ckpt_input *input;
  const ckpt_convert_options *options;
  const ckpt_writing *writing;
  bool takes_include; /* the verb has --include */
} ckpt_described;

/* *out: plan->n_outputs of them. Errors: CKPT_ENOMEM; those of the files that --like carries. */
ckpt_status ckpt_describe_outputs(const ckpt_described *d, ckpt_written **out, ckpt_error *err);

#endif
