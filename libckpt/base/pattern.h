/* pattern.h - patterns on tensor names, as users write them.
 *
 * `model.layers.*.weight` is a glob over the whole name: `*` any run (dots and slashes too), `?` one character,
 * `[abc]` `[!a-z]` one of a set, `\` takes the next literally. `re:` in front makes the rest a regular expression
 * (PCRE2), found anywhere in the name unless anchored. `s/re/replacement/` renames the first match, with `g` every one;
 * in the replacement `\1`..`\9` are groups, `&` or `\0` the match, and `\` before `\`, `/` or `&` makes it literal.
 * Steps and memory are bounded, also for all patterns that share a budget, because patterns come from command lines and
 * receipts, names from files. A pattern belongs to one thread at a time. */
#ifndef CKPT_BASE_PATTERN_H
#define CKPT_BASE_PATTERN_H

#include "libckpt/base/arena.h"

typedef struct ckpt_pattern ckpt_pattern;
typedef struct ckpt_renaming ckpt_renaming;

/* Steps that patterns may take together, compiling included: some seconds of work. A pattern takes 20 to 100 steps on a
 * usual name: 40 patterns on 100,000 names are within it. */
#define CKPT_PATTERN_STEPS UINT64_C(500000000)

/* Whether a pattern has no special characters, so that it matches one name. */
bool ckpt_pattern_is_word(const char *text);

/* Compiles a glob or `re:` expression. n_steps is the budget of steps, which other patterns may share and which
 * must outlive the pattern; NULL: its own budget. EINVAL names the pattern and the position of the mistake; ELIMIT. */
ckpt_status ckpt_pattern_new(ckpt_pattern **out, const char *text, uint64_t *n_steps, ckpt_error *err);
/* The same of a regular expression alone. Messages show `text`, in which the user wrote it, from byte `at` on. */
ckpt_status ckpt_pattern_new_search(ckpt_pattern **out, const char *expression, const char *text, size_t at,
                                    uint64_t *n_steps, ckpt_error *err);
void ckpt_pattern_free(ckpt_pattern *pattern); /* NULL is fine */

/* Whether name matches, counted in n_matched. Fails with ELIMIT where that takes too many steps, or more than the
 * budget has left. */
ckpt_status ckpt_pattern_match(ckpt_pattern *pattern, const char *name, bool *matched, ckpt_error *err);

/* How many names have matched so far: a pattern that ends with 0 is its caller's error. */
uint64_t ckpt_pattern_n_matched(const ckpt_pattern *pattern);

/* Compiles `s/re/replacement/` or `s/re/replacement/g`. n_steps and failures as above. */
ckpt_status ckpt_renaming_new(ckpt_renaming **out, const char *text, uint64_t *n_steps, ckpt_error *err);
void ckpt_renaming_free(ckpt_renaming *rename); /* NULL is fine */

/* *out is name itself where nothing matches, else the new name in the arena (1 to 4,096 bytes: EINVAL, ELIMIT). */
ckpt_status ckpt_renaming_apply(ckpt_renaming *rename, const char *name, ckpt_arena *arena, const char **out,
                                ckpt_error *err);

/* How many names a rename has matched so far. */
uint64_t ckpt_renaming_n_matched(const ckpt_renaming *rename);

#endif
