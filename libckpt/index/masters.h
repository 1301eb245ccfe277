/* masters.h - which copy of a mixed-precision checkpoint stands for the parameters: the stored or the master one. */
#ifndef CKPT_INDEX_MASTERS_H
#define CKPT_INDEX_MASTERS_H

#include "libckpt/index/index.h"

/* For those who look at masters and stored copies alike: as "model", whatever is stored. */
#define CKPT_WEIGHTS_STORED "stored"

/* Lets the masters (`optimizer.state.P.master`) of a finished index stand for their parameters P, which take over dtype
 * and extents; the masters stay tensors of their own. weights: "master", "model" (nothing is changed) or NULL: "master"
 * where there is one. Sets index->weights and adds the note index->weights_note where there was a choice.
 * Fails with EINVAL (another weights), ENOTFOUND ("master", and no parameter has one; "model", and those that have one
 * have nothing else), EFORMAT (another shape). */
ckpt_status ckpt_index_choose_weights(ckpt_index *index, const char *weights, ckpt_error *err);

/* What the checkpoint stores of a parameter that a master stands for, to be read by the opened index; NULL: none does.
 */
const ckpt_tensor *ckpt_stored_copy(const ckpt_index *index, const ckpt_tensor *parameter);

/* Whether tensor is a master that stands for a parameter of the opened index, so that leaving it out loses nothing. */
bool ckpt_master_stands(const ckpt_index *index, const ckpt_tensor *tensor);

#endif
