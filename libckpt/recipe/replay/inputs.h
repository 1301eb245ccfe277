/* inputs.h - the inputs of a receipt: where they lie now, opened as the run had them, and compared with what it says.
 */
#ifndef CKPT_RECIPE_REPLAY_INPUTS_H
#define CKPT_RECIPE_REPLAY_INPUTS_H

#include "libckpt/recipe/replay/recorded.h"

typedef struct ckpt_replay_reporter {
  ckpt_receipt_problem *report;
  void *arg;
  size_t *n_told; /* counts differences */
} ckpt_replay_reporter;

/* Tells a difference, in the form of a failure; a remark is no difference. */
void ckpt_replay_say(const ckpt_replay_reporter *to, const char *file, const char *tensor, const char *format, ...)
    CKPT_PRINTF(4, 5);
void ckpt_replay_remark(const ckpt_replay_reporter *to, const char *file, const char *format, ...)
    CKPT_PRINTF(3, 4); /* as above */

/* A path that the run was given, from the folder of the receipt. NULL: no room. */
char *ckpt_replay_beside(ckpt_recorded *r, const char *path);

/* Each text of `moved` must be about one of the inputs: ENOTFOUND. */
ckpt_status ckpt_replay_check_moved(const ckpt_recorded *r, ckpt_error *err);

/* Makes the request that was made then, over what the inputs' paths name now. Fails as ckpt_open, ckpt_adapters_open
 * and ckpt_extract_run do, which obeys `run` (may be NULL) and keeps its factors in a file without a name. */
ckpt_status ckpt_replay_open_inputs(ckpt_recorded *r, const ckpt_run_options *run, ckpt_error *err);

/* Reports each input that has changed since the run, from the rows of a plan that has run. */
ckpt_status ckpt_replay_compare_inputs(ckpt_recorded *r, const ckpt_plan *plan, const ckpt_replay_reporter *to,
                                       ckpt_error *err);

#endif
