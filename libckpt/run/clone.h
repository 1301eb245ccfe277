/* clone.h - what of an output file equals an input file, at the same place, can share its blocks instead of being
 * written. */
#ifndef CKPT_RUN_CLONE_H
#define CKPT_RUN_CLONE_H

#include "libckpt/plan/plan.h"

/* Shares the blocks (FICLONE) of each file of an opened output that equals an input file, and sets is_cloned. Such a
 * file is a side file, or has the same size, tensors at the same places as stored, and literals equal to the input's
 * bytes. Where a file has the size of an input file, but only some tensors are at the same places as stored, these rows
 * are shared (is_shared) and all else is written over the clone. If the file system cannot share blocks, nothing
 * changes. Fails with EIO or ENOMEM only. */
ckpt_status ckpt_clone_files(ckpt_plan *plan, ckpt_output *output, ckpt_error *err);

#endif
