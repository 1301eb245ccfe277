/* markdown.c - docs/cli.md: the option tables as a page. */
#include <string.h>

#include "tools/cli/help.h"

/* Text in a table cell: a bar would end the cell, a bracket would be taken for HTML. */
static void print_cell(FILE *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '|' || *text == '<' || *text == '*') putc('\\', out);
    putc(*text, out);
  }
}

static void print_details(FILE *out, const char *text) {
  while (*text != '\0') {
    size_t n = strcspn(text, "\n");
    if (strncmp(text, "  ", 2) == 0) fputs("  ", out); /* four spaces make a code block */
    fprintf(out, "%.*s\n", (int)n, text);
    text += n + (text[n] == '\n');
  }
  putc('\n', out);
}

/* The options of one section (a title of ckpt_verb_option), as a table. */
static void print_section(FILE *out, const ckpt_verb *verb, const char *wanted) {
  const ckpt_option *option;
  const char *section = NULL;
  bool has_rows = false;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, &section)) != NULL; i++) {
    if (strcmp(section, wanted) != 0) continue;
    if (!has_rows) fputs("| option | |\n|---|---|\n", out);
    has_rows = true;
    char name[96];
    ckpt_help_option(option, name, sizeof name);
    fputs("| `", out);
    for (const char *at = name; *at != '\0'; at++) fprintf(out, *at == '|' ? "\\|" : "%c", *at);
    fputs("` | ", out);
    print_cell(out, option->help);
    fputs(option->flags & CKPT_OPTION_REPEATED ? " (repeatable)" : "", out);
    fputs(option->flags & CKPT_OPTION_REQUIRED ? " (required) |\n" : " |\n", out);
  }
  if (has_rows) putc('\n', out);
}

static void print_verb(FILE *out, const ckpt_verb *verb) {
  fprintf(out, "## ckpt %s\n\n%s\n\n", verb->name, verb->summary);
  for (const char *form = verb->forms; *form != '\0';) {
    size_t n = strcspn(form, "\n");
    fprintf(out, "    ckpt %.*s\n", (int)n, form);
    form += n + (form[n] == '\n');
  }
  putc('\n', out);
  if (verb->details != NULL) print_details(out, verb->details);
  print_section(out, verb, "Options");
  if (verb->json != NULL) fprintf(out, "`--json`: `%s`\n\n", verb->json);
}

void ckpt_help_markdown(FILE *out) {
  const ckpt_verb *fullest = ckpt_verb_find("convert"); /* has every shared section */
  fputs(
      "# The ckpt command\n\n"
      "Generated from the option tables by `ckpt help --markdown`; do not edit.\n\n"
      "    ckpt VERB [options] INPUT... [-o OUTPUT]\n\n"
      "Inputs are files or folders of any known format, recognised by content. Results go to stdout, progress and\n"
      "messages to stderr. Options and inputs come in any order; `--` ends options. An input `ORG/NAME[@REVISION]` "
      "that\n"
      "is no path is looked up in the Hugging Face cache (`HF_HUB_CACHE`, `HF_HOME`); nothing is downloaded.\n\n"
      "An error is `ckpt: <file>: tensor '<name>': <what>` on stderr; with `--json` also\n"
      "`{\"status\":\"error\",\"error\":{\"code\",\"file\",\"tensor\",\"message\"}}` on stdout. `code` is one of "
      "`invalid`,\n"
      "`not_found`, `exists`, `format`, `unsupported`, `limit`, `no_memory`, `io`, `different`, `value`, `canceled`,\n"
      "`internal`. Other lines begin with `ckpt: warning:` where something is lost, guessed or may not be what is "
      "meant,\n"
      "with `--quiet` too, and with `ckpt: note:` where it is a remark. The last lines name what an output lacks; JSON "
      "has\n"
      "it under `dropped`.\n\n"
      "Sizes: `512M`, `1.5G` (K M G T, 1024-based), `5GB` (KB MB GB TB, 1000-based), or plain bytes. Patterns: globs\n"
      "on tensor names; `re:` in front makes a regular expression. A pattern that matches nothing is an error.\n\n"
      "## Exit status\n\n"
      "| status | |\n|---|---|\n",
      out);
  for (const ckpt_exit_row *row = ckpt_exit_rows; row->meaning != NULL; row++)
    fprintf(out, "| %d | %s |\n", row->n, row->meaning);
  fputs(
      "\nOutputs are written under the name `.NAME.ckpt-tmp.XXXXXX` beside NAME, or in its folder. A run that is "
      "killed\n"
      "(SIGKILL, power) leaves it; you may delete it, and the next run to NAME does. Keep `.NAME.ckpt-old.XXXXXX` "
      "while\n"
      "NAME is missing: it is the output that was being replaced.\n",
      out);
  fputs("\n## Options that verbs share\n\n", out);
  const char *last = NULL, *section = NULL;
  for (size_t i = 0; ckpt_verb_option(fullest, i, &section) != NULL; i++) {
    if (section == last) continue;
    last = section;
    if (strcmp(section, "Options") == 0) continue;
    fprintf(out, "%s:\n\n", section);
    print_section(out, fullest, section);
  }
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) print_verb(out, ckpt_verbs[i]);
}
