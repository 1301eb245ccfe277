/* help.c - `ckpt help`: for people, and for what is generated from the option tables. */
#include "tools/cli/help.h"
#include "tools/report/report.h"

static void emit_options(ckpt_emitter *json, const ckpt_verb *verb) {
  const ckpt_option *option;
  ckpt_emit_array(json, "options");
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, NULL)) != NULL; i++) {
    const char letter[2] = {option->letter, '\0'};
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", option->name);
    ckpt_emit_text(json, "letter", option->letter == 0 ? NULL : letter);
    ckpt_emit_text(json, "value", option->metavar);
    ckpt_emit_bool(json, "required", option->flags & CKPT_OPTION_REQUIRED);
    ckpt_emit_bool(json, "repeated", option->flags & CKPT_OPTION_REPEATED);
    ckpt_emit_text(json, "help", option->help);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

void ckpt_help_json(const ckpt_verb *only) {
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_array(&json, "verbs");
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    const ckpt_verb *verb = ckpt_verbs[i];
    if (only != NULL && verb != only) continue;
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "name", verb->name);
    ckpt_emit_text(&json, "summary", verb->summary);
    ckpt_emit_text(&json, "forms", verb->forms);
    ckpt_emit_text(&json, "json", verb->json);
    emit_options(&json, verb);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_emit_end(&json);
}

static int run(ckpt_args *args) {
  const ckpt_verb *verb = NULL;
  ckpt_error err = {0};
  static const char *const forms[] = {"man", "completion", "markdown", "verbs", "json"};
  const char *chosen = NULL;
  for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
    if (!ckpt_args_has(args, forms[i])) continue;
    if (chosen != NULL) {
      (void)ckpt_args_fail(args, &err, "--%s and --%s exclude each other", chosen, forms[i]);
      return ckpt_report_error(args, &err);
    }
    chosen = forms[i];
  }
  if (args->n_inputs > 0 && ckpt_verb_get(&verb, args->inputs[0], &err) != CKPT_OK)
    return ckpt_report_error(args, &err);
  if (args->json)
    ckpt_help_json(verb);
  else if (ckpt_args_has(args, "completion"))
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
    .summary = "show how to use a verb",
    .json =
        "{\"status\",\"verbs\":[{\"name\",\"summary\",\"forms\",\"json\",\"options\":[{\"name\",\"letter\",\"value\","
        "\"required\",\"repeated\",\"help\"}]}]}",
    .max_inputs = 1,
    .run = run,
};
