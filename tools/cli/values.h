/* values.h - the values of options: sizes, dtypes, choices; and the nearest of several names. */
#ifndef CKPT_TOOLS_CLI_VALUES_H
#define CKPT_TOOLS_CLI_VALUES_H

#include "tools/cli/options.h"

/* Bytes from "4096", "1.5G" (1024-based: K M G T) or "500MB" (1000-based: KB MB GB TB), any case. False if text has
 * no such form, is zero or does not fit. */
bool ckpt_value_size(const char *text, uint64_t *n_bytes);

/* Fills arg from arg->text by the option's kind. EINVAL says what is accepted; the message begins with the verb. */
ckpt_status ckpt_value_parse(const ckpt_verb *verb, ckpt_arg *arg, ckpt_arena *arena, ckpt_error *err);

/* The words that an option accepts, '|' between them: choices, formats or dtypes; NULL where anything goes. Text in
 * the arena. */
const char *ckpt_value_choices(const ckpt_option *option, ckpt_arena *arena);

/* Edit distance: insertions, deletions, substitutions and swaps of neighbours; names are cut at 64 bytes. */
unsigned ckpt_value_distance(const char *a, const char *b);

/* Follows the nearest of many names: begin with NULL in *nearest and offer each. It becomes the best one that is near
 * enough to have been meant, or that begins with what was typed. */
void ckpt_value_nearest(const char *typed, const char *name, const char **nearest);

#endif
