/* completion.c - completions for bash, zsh and fish: verbs, options, and the words that an option accepts. */
#include <string.h>

#include "tools/cli/help.h"
#include "tools/cli/values.h"

typedef void ckpt_print_option(FILE *out, const ckpt_verb *verb, const ckpt_option *option, const char *choices);

/* Calls print for every option; choices are separated by spaces, NULL where anything goes. */
static void each_option(FILE *out, const ckpt_verb *verb, ckpt_print_option *print) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(1) << 20);
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, NULL)) != NULL; i++) {
    const char *choices = ckpt_value_choices(option, &arena);
    char *words = choices == NULL ? NULL : ckpt_arena_copy(&arena, choices);
    for (char *at = words; at != NULL && *at != '\0'; at++)
      if (*at == '|') *at = ' ';
    print(out, verb, option, words);
  }
  ckpt_arena_free(&arena);
}

static void print_verb_names(FILE *out) {
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) fprintf(out, "%s%s", i ? " " : "", ckpt_verbs[i]->name);
}

/* ---- bash ------------------------------------------------------------------------------------------------------ */

static void bash_word(FILE *out, const ckpt_verb *verb, const ckpt_option *option, const char *choices) {
  (void)verb, (void)choices;
  fprintf(out, " --%s", option->name);
}

static void bash_choices(FILE *out, const ckpt_verb *verb, const ckpt_option *option, const char *choices) {
  if (choices == NULL) return;
  if (option->flags & CKPT_OPTION_ATTACHED) { /* only what follows `=` is its value */
    fprintf(out, "    %s:--%s) [[ -n $equals ]] && words='%s' ;;\n", verb->name, option->name, choices);
    return;
  }
  fprintf(out, "    %s:--%s", verb->name, option->name);
  if (option->letter != 0) fprintf(out, " | %s:-%c", verb->name, option->letter);
  fprintf(out, ") words='%s' ;;\n", choices);
}

static void print_bash(FILE *out) {
  fputs(
      "# bash completion of ckpt, from its option tables\n"
      "_ckpt() {\n"
      "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words= equals=\n"
      "  if [[ $cur == '=' ]]; then cur= equals=1\n"
      "  elif [[ $prev == '=' ]]; then prev=${COMP_WORDS[COMP_CWORD-2]} equals=1\n"
      "  fi\n"
      "  COMPREPLY=()\n"
      "  case $COMP_CWORD:${COMP_WORDS[1]} in\n"
      "    1:* | 2:help) COMPREPLY=($(compgen -W '",
      out);
  print_verb_names(out);
  fputs(
      "' -- \"$cur\")); return ;;\n"
      "  esac\n"
      "  case ${COMP_WORDS[1]}:$prev in\n",
      out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) each_option(out, ckpt_verbs[i], bash_choices);
  fputs(
      "  esac\n"
      "  if [[ -z $words && $cur == -* ]]; then\n"
      "    case ${COMP_WORDS[1]} in\n",
      out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    fprintf(out, "      %s) words='--help", ckpt_verbs[i]->name);
    each_option(out, ckpt_verbs[i], bash_word);
    fputs("' ;;\n", out);
  }
  fputs(
      "    esac\n"
      "  fi\n"
      "  [[ -n $words ]] && COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
      "  return 0\n"
      "}\n"
      "complete -o default -F _ckpt ckpt\n",
      out);
}

/* ---- zsh ------------------------------------------------------------------------------------------------------- */

/* Text inside a specification of _arguments, itself in single quotes. */
static void zsh_text(FILE *out, const char *text) {
  for (; *text != '\0'; text++) {
    if (*text == '\'')
      fputs("'\\''", out);
    else if (strchr("[]:\\", *text) != NULL)
      fprintf(out, "\\%c", *text);
    else
      putc(*text, out);
  }
}

static void zsh_option(FILE *out, const ckpt_verb *verb, const ckpt_option *option, const char *choices) {
  (void)verb;
  const char *star = option->flags & (CKPT_OPTION_REPEATED | CKPT_OPTION_MODIFIER) ? "*" : "";
  for (int is_short = 0; is_short <= (option->letter != 0); is_short++) {
    fprintf(out, "        '%s", star);
    if (is_short)
      fprintf(out, "-%c[", option->letter);
    else
      fprintf(out, "--%s%s[", option->name,
              option->kind == CKPT_OPTION_FLAG              ? ""
              : (option->flags & CKPT_OPTION_ATTACHED) != 0 ? "=-"
                                                            : "=");
    zsh_text(out, option->help);
    putc(']', out);
    if (option->kind != CKPT_OPTION_FLAG) {
      putc(':', out);
      zsh_text(out, option->kind == CKPT_OPTION_CHOICE ? option->name : option->metavar);
      if (choices != NULL)
        fprintf(out, ":(%s)", choices);
      else
        fputs(option->kind == CKPT_OPTION_PATH ? ":_files" : ":", out);
    }
    fputs("' \\\n", out);
  }
}

static void print_zsh(FILE *out) {
  fputs(
      "#compdef ckpt\n"
      "# zsh completion of ckpt, from its option tables\n"
      "_ckpt() {\n"
      "  local -a verbs\n"
      "  verbs=(\n",
      out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    fprintf(out, "    '%s:", ckpt_verbs[i]->name);
    zsh_text(out, ckpt_verbs[i]->summary);
    fputs("'\n", out);
  }
  fputs(
      "  )\n"
      "  if (( CURRENT == 2 )) || [[ $words[2] == help && $CURRENT == 3 && $words[3] != -* ]]; then\n"
      "    _describe verb verbs\n"
      "    return\n"
      "  fi\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $words[1] in\n",
      out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    fprintf(out, "    %s)\n      _arguments \\\n", ckpt_verbs[i]->name);
    each_option(out, ckpt_verbs[i], zsh_option);
    fputs("        '--help[how to use it]' \\\n        '*:path:_files' ;;\n", out);
  }
  fputs("  esac\n}\n_ckpt \"$@\"\n", out);
}

/* ---- fish ------------------------------------------------------------------------------------------------------ */

static void fish_text(FILE *out, const char *text) {
  putc('\'', out);
  for (; *text != '\0'; text++) {
    if (*text == '\'' || *text == '\\') putc('\\', out);
    putc(*text, out);
  }
  putc('\'', out);
}

static void fish_option(FILE *out, const ckpt_verb *verb, const ckpt_option *option, const char *choices) {
  fprintf(out, "complete -c ckpt -n '__fish_seen_subcommand_from %s' -l %s", verb->name, option->name);
  if (option->letter != 0) fprintf(out, " -s %c", option->letter);
  if (choices != NULL)
    fprintf(out, " %s -a '%s'", option->flags & CKPT_OPTION_ATTACHED ? "-f" : "-x", choices);
  else if (option->kind != CKPT_OPTION_FLAG)
    fputs(option->kind == CKPT_OPTION_PATH ? " -r -F" : " -x", out);
  fputs(" -d ", out);
  fish_text(out, option->help);
  putc('\n', out);
}

static void print_fish(FILE *out) {
  fputs("# fish completion of ckpt, from its option tables\n", out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    fprintf(out, "complete -c ckpt -f -n __fish_use_subcommand -a %s -d ", ckpt_verbs[i]->name);
    fish_text(out, ckpt_verbs[i]->summary);
    putc('\n', out);
  }
  fputs("complete -c ckpt -f -n '__fish_seen_subcommand_from help' -a '", out);
  print_verb_names(out);
  fputs("'\n", out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) each_option(out, ckpt_verbs[i], fish_option);
}

void ckpt_help_completion(FILE *out, const char *shell) {
  if (strcmp(shell, "bash") == 0)
    print_bash(out);
  else if (strcmp(shell, "zsh") == 0)
    print_zsh(out);
  else
    print_fish(out);
}
