/* convert.h - an index and a selection become rows of a plan: what convert, split, join and consolidate share. */
#ifndef CKPT_RECIPE_CONVERT_H
#define CKPT_RECIPE_CONVERT_H

#include "libckpt/recipe/select.h"

/* What one of several outputs asks for; the plan's output number is its place in the array. */
typedef struct ckpt_convert_target {
  const char *path;
  const char *to; /* format, or NULL: from the suffix */
  uint64_t shard_size;
} ckpt_convert_target;

/* Fills an empty plan with the rows of converting `from` to every target in one read: outputs are numbered as the
 * targets. Fails with EINVAL, EEXIST (output, colliding names), ENOTFOUND (idle patterns), EUNSUPPORTED (a cast of a
 * weight that needs its scales). */
ckpt_status ckpt_convert_plan(ckpt_plan *plan, const ckpt_index *from, const ckpt_convert_target *targets,
                              uint32_t n_targets, const ckpt_convert_options *options, ckpt_error *err);

/* Adds rows of the digest of `from` to a plan: one per selected tensor, written nowhere. */
ckpt_status ckpt_hash_plan(ckpt_plan *plan, const ckpt_index *from, const ckpt_hash_options *options, ckpt_error *err);

/* After the run of a hash plan: digest of the whole, and where entries is not NULL each tensor's (n_rows of the plan,
 * in byte order of names). A tied pair that is stored twice counts once. */
ckpt_status ckpt_hash_result(const ckpt_plan *plan, const ckpt_index *from, ckpt_digest *out,
                             ckpt_digest_entry *entries, ckpt_error *err);

#endif
