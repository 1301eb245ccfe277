/* help.h - the option tables as text: --help, man pages, completions, docs/cli.md.
 *
 * All of it is a function of the tables alone (no terminal, no environment), so that tests compare it byte for byte. */
#ifndef CKPT_TOOLS_CLI_HELP_H
#define CKPT_TOOLS_CLI_HELP_H

#include <stdio.h>

#include "tools/cli/options.h"

/* A number that the command can exit with. */
typedef struct ckpt_exit_row {
  int n;
  const char *meaning; /* lower case, no full stop */
} ckpt_exit_row;

extern const ckpt_exit_row ckpt_exit_rows[]; /* meaning NULL ends */

/* `ckpt help`: verbs, how to go on. */
void ckpt_help_all(FILE *out);

/* `ckpt help VERB`. */
void ckpt_help_verb(FILE *out, const ckpt_verb *verb);

/* The same of one verb, or of all for NULL, as a JSON object on stdout. */
void ckpt_help_json(const ckpt_verb *only);

/* The man page of a verb, or ckpt(1) for NULL: troff. */
void ckpt_help_man(FILE *out, const ckpt_verb *verb);

/* docs/cli.md. */
void ckpt_help_markdown(FILE *out);

/* Completion for "bash", "zsh" or "fish". */
void ckpt_help_completion(FILE *out, const char *shell);

/* An option as a user types it: "-o, --output PATH", "--memory SIZE"; in the caller's buffer. */
void ckpt_help_option(const ckpt_option *option, char *out, size_t n_bytes);

#endif
