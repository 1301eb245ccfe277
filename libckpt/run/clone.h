/* clone.h - an output file that equals an input file byte for byte can share its blocks instead of being written. */
#ifndef CKPT_RUN_CLONE_H
#define CKPT_RUN_CLONE_H

#include "libckpt/plan/plan.h"

/* Looks at each file of an opened output: when it is a side file, or its tensors are read as stored from the same
 * places of one input file of the same size whose other bytes equal its literals, its blocks are shared (FICLONE) and
 * is_cloned is set. Where the file system cannot, nothing changes. Fails with EIO or ENOMEM only. */
ckpt_status ckpt_clone_files(ckpt_plan *plan, ckpt_output *output, ckpt_error *err);

#endif
