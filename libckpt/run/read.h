/* read.h - ckpt_read (ckpt.h) for whoever reads a tensor in pieces, and what it costs. */
#ifndef CKPT_RUN_READ_H
#define CKPT_RUN_READ_H

#include "libckpt/extents/record_checks.h"

/* Bytes of the tensor that ckpt_read reads for a box (NULL: all of it), whole blocks where the box cuts them; and with
 * the gaps between short runs, as long as the tensor is stored in one piece. EINVAL for a box past its shape. */
ckpt_status ckpt_read_cost(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, uint64_t *n_read,
                           uint64_t *n_fetched, ckpt_error *err);

/* Checks for reading a tensor in pieces; end with ckpt_read_checks_end in any case. *out is NULL where no record of it
 * has a checksum. ENOMEM. */
ckpt_status ckpt_read_checks_new(ckpt_record_checks **out, const ckpt_index *index, const ckpt_tensor *tensor,
                                 ckpt_error *err);

/* Frees them, and returns status, or where that is OK what is found at the end. */
ckpt_status ckpt_read_checks_end(ckpt_record_checks *checks, const ckpt_index *index, const ckpt_tensor *tensor,
                                 ckpt_status status, ckpt_error *err);

/* As ckpt_read, a piece of what the checks (may be NULL) are for. */
ckpt_status ckpt_read_piece(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as,
                            void *dst, size_t n_bytes, ckpt_record_checks *checks, ckpt_error *err);

#endif
