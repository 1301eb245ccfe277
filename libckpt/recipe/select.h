/* select.h - which tensors of an index take part, under which names, and cast to what.
 *
 * --include by role, --match and --exclude by pattern, --rename rules in order, --dtype rules (the first that matches).
 * A pattern or rule that matches nothing is an error: ckpt_selection_finish. */
#ifndef CKPT_RECIPE_SELECT_H
#define CKPT_RECIPE_SELECT_H

#include "libckpt/plan.h"

typedef struct ckpt_selection ckpt_selection;

/* What the selection left out. */
typedef struct ckpt_left_out {
  uint64_t n_bytes[CKPT_N_ROLES]; /* by --include */
  uint64_t n_tensors[CKPT_N_ROLES];
  uint64_t n_unmatched; /* tensors left out by --match and --exclude */
} ckpt_left_out;

/* Compiles the selection of a conversion. include: NULL means "model". n_steps is the budget of its patterns, to live
 * as long; NULL: one of its own. Fails with EINVAL naming the bad pattern, ELIMIT. */
ckpt_status ckpt_selection_new(ckpt_selection **out, const ckpt_convert_options *options, const char *include,
                               uint64_t *n_steps, ckpt_error *err);
void ckpt_selection_free(ckpt_selection *selection); /* NULL is fine */

/* Decides about one tensor: *name is NULL when it is left out, else its new name (in arena); *dtype what it is cast
 * to, NONE for as stored. */
ckpt_status ckpt_selection_take(ckpt_selection *selection, const ckpt_tensor *tensor, ckpt_arena *arena,
                                const char **name, ckpt_dtype *dtype, ckpt_error *err);

/* ENOTFOUND for the first pattern or rule that matched nothing. */
ckpt_status ckpt_selection_finish(const ckpt_selection *selection, ckpt_error *err);

/* What was left out so far. */
const ckpt_left_out *ckpt_selection_left_out(const ckpt_selection *selection);

/* Whether a role takes part under --include WHAT; *known (may be NULL) is false when WHAT is none of
 * model, optimizer, all. */
bool ckpt_role_included(const char *include, ckpt_role role, bool *known);

#endif
