/* group.h - how the ranks of a ckpt_group (ckpt.h) agree and exchange data, with all_gather alone.
 *
 * A run is a sequence of phases. Each ends with ckpt_group_agree: one failure fails all ranks, and none waits forever.
 * In a phase that exchanges data, the exchange comes first. */
#ifndef CKPT_BASE_GROUP_H
#define CKPT_BASE_GROUP_H

#include "libckpt/ckpt.h"

/* The group of one: what a run without ranks uses. */
extern const ckpt_group ckpt_group_self;

/* The group of a run; of options that ckpt_options_take knows, or NULL. */
const ckpt_group *ckpt_group_of(const ckpt_run_options *run);

/* Ends a phase with this rank's outcome; *err holds its message if it failed. All ranks return the same: OK if all are,
 * else the status and message of the first rank that failed. */
ckpt_status ckpt_group_agree(const ckpt_group *group, ckpt_status status, ckpt_error *err);

/* Yields this rank's next item; false after the last. Takes an item of any rank, in order within that rank. */
typedef bool ckpt_group_give(void *arg, void *item);
typedef ckpt_status ckpt_group_take(void *arg, const void *item, ckpt_error *err); /* as above */

/* Hands every item (item_bytes each) that any rank gives to every rank's take, in blocks of bounded size; a rank takes
 * back its own too. Ends with ckpt_group_agree, so that a take which fails fails all. Does nothing in a group of one.
 */
ckpt_status ckpt_group_exchange(const ckpt_group *group, size_t item_bytes, ckpt_group_give *give,
                                ckpt_group_take *take, void *arg, ckpt_error *err);

#endif
