/* masters.h - chooses which copy of a mixed-precision checkpoint serves as the parameters: stored or master. */
#ifndef CKPT_INDEX_MASTERS_H
#define CKPT_INDEX_MASTERS_H

#include "libckpt/index/index.h"

/* For callers that look at masters and stored copies alike: as "model", whatever is stored. */
#define CKPT_WEIGHTS_STORED "stored"

/* Gives parameters P of a finished index the dtype and extents of their masters (`optimizer.state.P.master`), which
 * stay tensors too. weights: "master", "model" (changes nothing), or NULL: "master" if there is one. If there was a
 * choice, it sets index->weights and adds the note index->weights_note. Fails with EINVAL (another weights), ENOTFOUND
 * ("master" without any master; "model" if only masters are stored) and EFORMAT (another shape). */
ckpt_status ckpt_index_choose_weights(ckpt_index *index, const char *weights, ckpt_error *err);

/* The stored copy of a parameter whose master replaced it, to be read by the opened index; NULL if none did. */
const ckpt_tensor *ckpt_stored_copy(const ckpt_index *index, const ckpt_tensor *parameter);

/* Whether tensor is a master that replaced its parameter in the opened index, so that dropping it loses nothing. */
bool ckpt_master_stands(const ckpt_index *index, const ckpt_tensor *tensor);

#endif
