/* cmd_help.c - `ckpt help`: for people, and for what is generated from the option tables. */
#include "help.h"
#include "report.h"
#include "shared_options.h"

static const ckpt_option options[] = {
    {"man", 0, CKPT_OPTION_FLAG, 0, NULL, "the man page of VERB, or ckpt(1), as troff"},
    {"completion", 0, CKPT_OPTION_CHOICE, 0, "bash|zsh|fish", "completion for a shell"},
    {"markdown", 0, CKPT_OPTION_FLAG, 0, NULL, "all of it as one page"},
    {"verbs", 0, CKPT_OPTION_FLAG, 0, NULL, "the names of the verbs, one a line"},
    CKPT_OPTION_END};

static int run(ckpt_args *args) {
  const ckpt_verb *verb = NULL;
  ckpt_error err = {0};
  if (args->n_inputs > 0 && ckpt_verb_get(&verb, args->inputs[0], &err) != CKPT_OK)
    return ckpt_report_error(args, &err);
  if (ckpt_args_has(args, "completion"))
    ckpt_help_completion(stdout, ckpt_args_text(args, "completion", NULL));
  else if (ckpt_args_has(args, "markdown"))
    ckpt_help_markdown(stdout);
  else if (ckpt_args_has(args, "verbs"))
    for (size_t i = 0; ckpt_verbs[i] != NULL; i++) puts(ckpt_verbs[i]->name);
  else if (ckpt_args_has(args, "man"))
    ckpt_help_man(stdout, verb);
  else if (verb != NULL)
    ckpt_help_verb(stdout, verb);
  else
    ckpt_help_all(stdout);
  return CKPT_EXIT_DONE;
}

const ckpt_verb ckpt_verb_help = {
    .name = "help",
    .forms = "help [VERB]\nhelp --man [VERB]\nhelp --completion SHELL",
    .summary = "how to use a verb",
    .options = options,
    .max_inputs = 1,
    .run = run,
};
