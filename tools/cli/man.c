/* man.c - man pages: ckpt(1) and one ckpt-VERB(1) per verb, in man(7) macros. No date: the same bytes every time. */
#include <string.h>

#include "tools/cli/help.h"

/* Text in troff: backslashes and hyphens as themselves, no control characters at the start of a line. */
static void print_text(FILE *out, const char *text, size_t n) {
  for (size_t i = 0; i < n; i++) {
    if ((text[i] == '.' || text[i] == '\'') && (i == 0 || text[i - 1] == '\n')) fputs("\\&", out);
    switch (text[i]) {
      case '\\': fputs("\\e", out); break;
      case '-': fputs("\\-", out); break;
      case '\'': fputs("\\(aq", out); break;
      case '`': fputs("\\(ga", out); break;
      case '~': fputs("\\(ti", out); break;
      case '^': fputs("\\(ha", out); break;
      case ',': fputs(i + 1 < n && text[i + 1] != ' ' ? ",\\:" : ",", out); break; /* a line may break there */
      default: putc(text[i], out);
    }
  }
}

static void print_line(FILE *out, const char *text) {
  print_text(out, text, strlen(text));
  putc('\n', out);
}

static void print_title(FILE *out, const char *verb) {
  fprintf(out, ".TH CKPT%s", verb ? "\\-" : "");
  for (; verb != NULL && *verb != '\0'; verb++) putc(*verb >= 'a' && *verb <= 'z' ? *verb - 'a' + 'A' : *verb, out);
  fprintf(out, " 1 \"\" \"libckpt %s\" \"libckpt\"\n.ad l\n.nh\n", ckpt_version());
}

static void print_details(FILE *out, const char *text) {
  bool in_example = false;
  while (*text != '\0') {
    size_t n = strcspn(text, "\n");
    bool is_example = strncmp(text, "  ", 2) == 0;
    if (is_example != in_example)
      fputs(is_example ? ".PP\n.nf\n.RS 4\n" : ".RE\n.fi\n", out);
    else if (n == 0)
      fputs(".PP\n", out);
    in_example = is_example;
    if (n > 0) {
      print_text(out, is_example ? text + 2 : text, is_example ? n - 2 : n);
      putc('\n', out);
    }
    text += n + (text[n] == '\n');
  }
  if (in_example) fputs(".RE\n.fi\n", out);
}

static void print_options(FILE *out, const ckpt_verb *verb) {
  const ckpt_option *option;
  const char *section = NULL, *last = NULL;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, &section)) != NULL; i++) {
    if (section != last) fprintf(out, last == NULL ? ".SH OPTIONS\n.SS \"%s\"\n" : ".SS \"%s\"\n", section);
    last = section;
    char name[96];
    ckpt_help_option(option, name, sizeof name);
    fputs(".TP\n.B ", out);
    print_line(out, name);
    print_text(out, option->help, strlen(option->help));
    fputs(option->flags & CKPT_OPTION_REPEATED ? " (repeatable)" : "", out);
    fputs(option->flags & CKPT_OPTION_REQUIRED ? " (required)\n" : "\n", out);
  }
}

static void print_exit_status(FILE *out) {
  fputs(".SH EXIT STATUS\n", out);
  for (const ckpt_exit_row *row = ckpt_exit_rows; row->meaning != NULL; row++) {
    fprintf(out, ".TP\n.B %d\n", row->n);
    print_line(out, row->meaning);
  }
}

static void print_verb(FILE *out, const ckpt_verb *verb) {
  print_title(out, verb->name);
  fprintf(out, ".SH NAME\nckpt\\-%s \\- ", verb->name);
  print_line(out, verb->summary);
  fputs(".SH SYNOPSIS\n", out);
  for (const char *form = verb->forms; *form != '\0';) {
    size_t n = strcspn(form, "\n");
    fputs(form == verb->forms ? ".B ckpt\n" : ".br\n.B ckpt\n", out);
    print_text(out, form, n);
    putc('\n', out);
    form += n + (form[n] == '\n');
  }
  if (verb->details != NULL) {
    fputs(".SH DESCRIPTION\n", out);
    print_details(out, verb->details);
  }
  print_options(out, verb);
  if (verb->json != NULL) {
    fputs(".SH JSON\n", out);
    print_line(out, verb->json);
  }
  print_exit_status(out);
  fputs(".SH SEE ALSO\n.BR ckpt (1)\n", out);
}

void ckpt_help_man(FILE *out, const ckpt_verb *verb) {
  if (verb != NULL) {
    print_verb(out, verb);
    return;
  }
  print_title(out, NULL);
  fputs(
      ".SH NAME\nckpt \\- look at, check and convert machine learning checkpoints\n"
      ".SH SYNOPSIS\n.B ckpt\n.I VERB\n[options]\n.IR INPUT ...\n[\\-o\n.IR OUTPUT ]\n"
      ".SH DESCRIPTION\nReads and writes checkpoints in one pass and bounded memory, without running any code from "
      "them.\nEach verb has a page of its own, and\n.B ckpt help\n.I VERB\nprints it.\n"
      "An input is a file or folder, recognised by content, or\n.IR ORG / NAME [@ REVISION ]\n"
      "of the Hugging Face cache (HF_HUB_CACHE, HF_HOME); nothing is downloaded.\n",
      out);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) {
    fprintf(out, ".TP\n.BR ckpt\\-%s (1)\n", ckpt_verbs[i]->name);
    print_line(out, ckpt_verbs[i]->summary);
  }
  print_exit_status(out);
}
