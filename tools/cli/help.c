/* help.c - `ckpt help` and `ckpt VERB --help`: plain text, 100 columns. */
#include "tools/cli/help.h"

#include <string.h>

#include "libckpt/format/format.h"

const ckpt_exit_row ckpt_exit_rows[] = {
    {0, "done, equal or passed"},
    {1, "failed, different or refused"},
    {2, "wrong usage"},
    {129, "ended by SIGHUP; like 130 and 143: removes temporary files and replaces no output"},
    {130, "ended by SIGINT (Ctrl-C)"},
    {141, "the reader of stdout closed the pipe"},
    {143, "ended by SIGTERM"},
    {0, NULL}};

enum { WIDTH = 100, HELP_COLUMN = 30 };

/* Bytes up to the next place where a line may be broken: before a space, or after a comma. */
static size_t word_length(const char *text, size_t n) {
  size_t i = 0;
  while (i < n && text[i] != ' ' && (i == 0 || text[i - 1] != ',')) i++;
  return i;
}

/* Text broken at WIDTH; the first line continues at `column`, later ones begin at `indent`. */
static void wrap(FILE *out, const char *text, size_t n, int column, int indent) {
  int at = column;
  for (size_t i = 0; i < n;) {
    size_t n_space = strspn(text + i, " "), n_word = word_length(text + i + n_space, n - i - n_space);
    if (i > 0 && at + (int)(n_space + n_word) > WIDTH) {
      fprintf(out, "\n%*s", indent, "");
      at = indent;
      i += n_space;
      n_space = 0;
    }
    fwrite(text + i, 1, n_space + n_word, out);
    at += (int)(n_space + n_word);
    i += n_space + n_word;
  }
  putc('\n', out);
}

/* Paragraphs are wrapped; lines that begin with two spaces are examples and stay. */
static void print_details(FILE *out, const char *text) {
  while (*text != '\0') {
    size_t n = strcspn(text, "\n");
    if (n == 0)
      putc('\n', out);
    else if (strncmp(text, "  ", 2) == 0)
      fprintf(out, "%.*s\n", (int)n, text);
    else
      wrap(out, text, n, 0, 0);
    text += n + (text[n] == '\n');
  }
}

void ckpt_help_option(const ckpt_option *option, char *out, size_t n_bytes) {
  char letter[8] = "";
  if (option->letter != 0) snprintf(letter, sizeof letter, "-%c, ", option->letter);
  const bool is_attached = (option->flags & CKPT_OPTION_ATTACHED) != 0;
  snprintf(out, n_bytes, "%s--%s%s%s%s", letter, option->name,
           is_attached       ? "[="
           : option->metavar ? " "
                             : "",
           option->metavar ? option->metavar : "", is_attached ? "]" : "");
}

static void print_option(FILE *out, const ckpt_option *option) {
  char name[96], help[512];
  ckpt_help_option(option, name, sizeof name);
  int n = fprintf(out, "  %s", name);
  if (n >= HELP_COLUMN - 1) {
    putc('\n', out);
    n = 0;
  }
  fprintf(out, "%*s", HELP_COLUMN - n, "");
  snprintf(help, sizeof help, "%s%s%s", option->help, option->flags & CKPT_OPTION_REPEATED ? " (repeatable)" : "",
           option->flags & CKPT_OPTION_REQUIRED ? " (required)" : "");
  wrap(out, help, strlen(help), HELP_COLUMN, HELP_COLUMN);
}

void ckpt_help_verb(FILE *out, const ckpt_verb *verb) {
  fprintf(out, "ckpt %s: %s\n\n", verb->name, verb->summary);
  for (const char *form = verb->forms; *form != '\0';) {
    size_t n = strcspn(form, "\n");
    fprintf(out, "  ckpt %.*s\n", (int)n, form);
    form += n + (form[n] == '\n');
  }
  if (verb->details != NULL) {
    putc('\n', out);
    print_details(out, verb->details);
  }
  const ckpt_option *option;
  const char *section = NULL, *last = NULL;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, &section)) != NULL; i++) {
    if (section != last) fprintf(out, "\n%s:\n", section);
    last = section;
    print_option(out, option);
  }
  if (verb->json != NULL) {
    fputs("\nWith --json: ", out);
    wrap(out, verb->json, strlen(verb->json), 13, 2);
  }
}

/* Names of the formats that can be written, or of those that cannot. */
static void print_formats(FILE *out, bool written) {
  const char *before = "";
  for (size_t i = 0; ckpt_formats[i] != NULL; i++) {
    if (ckpt_formats[i]->caps.can_write != written) continue;
    fprintf(out, "%s%s", before, ckpt_formats[i]->name);
    before = ", ";
  }
}

void ckpt_help_all(FILE *out) {
  fprintf(out,
          "ckpt %s: look at, check and convert machine learning checkpoints, in one pass and bounded memory\n\n"
          "  ckpt VERB [options] INPUT... [-o OUTPUT]\n"
          "  ckpt help VERB\n"
          "  ckpt --version\n",
          ckpt_version());
  const char *group = "";
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    if (strcmp(ckpt_verb_groups[i], group) != 0) fprintf(out, "\n%s:\n", ckpt_verb_groups[i]);
    group = ckpt_verb_groups[i];
    fprintf(out, "  %-12s %s\n", ckpt_verbs[i]->name, ckpt_verbs[i]->summary);
  }
  fputs("\nTraining:\n  ckpt-train   a program of its own: ckpt-train --help\n\nFormats: ", out);
  print_formats(out, true);
  fputs("; only read: ", out);
  print_formats(out, false);
  fputs(
      "\n\nInputs are files or folders of any of these, recognised by content, or ORG/NAME[@REVISION] of the Hugging\n"
      "Face cache (HF_HUB_CACHE, HF_HOME); nothing is downloaded.\n"
      "\nExamples:\n"
      "  ckpt inspect checkpoint-1000\n"
      "  ckpt consolidate checkpoint-1000 -o model/ --like org/base\n"
      "  ckpt quantize model/ -o 'model-{type}.gguf' --type Q4_K_M --type Q8_0\n",
      out);
  fputs(
      "\nSizes: 512M, 1.5G (K M G T, 1024-based), 5GB (KB MB GB TB, 1000-based), or plain bytes.\n"
      "Patterns: globs on tensor names; re: in front makes a regular expression.\n"
      "Exit status: 0 done, equal or passed; 1 failed, different or refused; 2 wrong usage;\n"
      "128 + N ended by signal N (130 is Ctrl-C).\n",
      out);
}
