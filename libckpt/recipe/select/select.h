/* select.h - decides which tensors of an index are written, under which names, and in which dtype.
 *
 * --include by role, --match and --exclude by pattern, --rename rules in order, --dtype rules (the first that matches).
 * A pattern or rule that matches nothing is an error: ckpt_selection_finish. --match and
 * --exclude decide about each name of a tensor, and a tensor without names left is left out. --dtype takes any name. */
#ifndef CKPT_RECIPE_SELECT_SELECT_H
#define CKPT_RECIPE_SELECT_SELECT_H

#include "libckpt/base/text.h"
#include "libckpt/plan/plan.h"

typedef struct ckpt_selection ckpt_selection;

/* What the selection left out. */
typedef struct ckpt_left_out {
  uint64_t n_bytes[CKPT_N_ROLES]; /* by --include */
  uint64_t n_tensors[CKPT_N_ROLES];
  uint64_t n_unmatched; /* tensors left out by --match and --exclude */
} ckpt_left_out;

/* The decision about one tensor. Lists are NULL-terminated, or NULL if empty. */
typedef struct ckpt_selected {
  const char *name;     /* its new name; NULL: it is left out */
  const char **aliases; /* its other names that stay, new ones too */
  const char **dropped; /* its old names that --match, --exclude or --include removes */
  ckpt_dtype dtype;     /* what it is cast to; NONE: as stored */
  bool is_any_cast;     /* by a rule for every tensor, which names none */
  /* The last ones of aliases and of dropped: names outside the model; --include dropped them. */
  uint32_t n_extra, n_extra_dropped;
} ckpt_selected;

/* Compiles the selection of a conversion. include: NULL means "model". n_steps is the budget of its patterns, to live
 * as long; NULL: one of its own. Fails with EINVAL naming the bad pattern, ELIMIT. */
ckpt_status ckpt_selection_new(ckpt_selection **out, const ckpt_convert_options *options, const char *include,
                               uint64_t *n_steps, ckpt_error *err);
void ckpt_selection_free(ckpt_selection *selection); /* NULL is fine */

/* Decides about one tensor; new names and lists are the arena's. */
ckpt_status ckpt_selection_take(ckpt_selection *selection, const ckpt_tensor *tensor, ckpt_arena *arena,
                                ckpt_selected *out, ckpt_error *err);

/* EUNSUPPORTED where a tensor that the index cannot read would take part: such a one is left out by name alone. Counts
 * as a match of --match and --exclude. keeps_objects: those that the kept torch object holds whole are written. The
 * same of an optimizer's states, which have no names; keeps_files: a file of them that is whole goes along. */
ckpt_status ckpt_selection_refuse_unread(ckpt_selection *selection, const ckpt_index *index, bool keeps_objects,
                                         bool keeps_files, ckpt_error *err);

/* ENOTFOUND for the first pattern or rule that matched nothing. */
ckpt_status ckpt_selection_finish(const ckpt_selection *selection, ckpt_error *err);

/* What was left out so far. */
const ckpt_left_out *ckpt_selection_left_out(const ckpt_selection *selection);

/* Whether a role takes part under --include WHAT; *known (may be NULL) is false if WHAT is not model,
 * optimizer or all. */
bool ckpt_role_included(const char *include, ckpt_role role, bool *known);

/* Whether a note tells of optimizer states that take part under --include WHAT and are not read. */
bool ckpt_states_unread(const ckpt_note *note, const char *include);

/* Tensors of these roles that the index cannot read, without those that its kept torch object holds whole. */
ckpt_name_list ckpt_unread_list(const ckpt_index *index, const char *include, bool keeps_objects);

#endif
