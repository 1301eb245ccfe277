/* read.h - what ckpt_read (ckpt.h) costs, for a plan: it reads nothing. */
#ifndef CKPT_RUN_READ_H
#define CKPT_RUN_READ_H

#include "libckpt/index/index.h"

/* Bytes of the tensor that ckpt_read reads for a box (NULL: all of it), whole blocks where the box cuts them; and with
 * the gaps between short runs, as long as the tensor is stored in one piece. EINVAL for a box past its shape. */
ckpt_status ckpt_read_cost(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, uint64_t *n_read,
                           uint64_t *n_fetched, ckpt_error *err);

#endif
