/* options.h - the table of options, and the parser that reads a command line by it.
 *
 * The table (options.def) is the only place that knows a verb's options: parser, `--help`, man page, completions and
 * docs/cli.md all come from it. Options and inputs may come in any order; `--name value` and `--name=value` are the
 * same; `--` ends options. Each occurrence keeps its place among the inputs, so that a modifier belongs to the input
 * before it. */
#ifndef CKPT_TOOLS_CLI_OPTIONS_H
#define CKPT_TOOLS_CLI_OPTIONS_H

#include "libckpt/base/arena.h"
#include "libckpt/recipe/convert/options.h"

typedef struct ckpt_args ckpt_args;

/* A verb: one file tools/cmd/<name>.c that defines `const ckpt_verb ckpt_verb_<name>`, and one row in commands.def. */
typedef struct ckpt_verb {
  const char *name;
  const char *forms;   /* usage without "ckpt ", one per line */
  const char *summary; /* one line, lower case, no full stop */
  const char *details; /* paragraphs with an empty line between; lines that begin with two spaces stay as they are */
  const char *json;    /* shape of --json, or NULL */
  const ckpt_option *options; /* of a test: rows of its own, in front of those of options.def; else NULL */
  unsigned sets;
  uint32_t min_inputs, max_inputs;
  uint32_t n_paths; /* of the inputs, how many are paths that modifiers can belong to, the first ones; 0: all */
  int (*run)(ckpt_args *args); /* returns the exit status; NULL while it is not written */
} ckpt_verb;

extern const ckpt_verb *const ckpt_verbs[];  /* in the order of help; NULL ends */
extern const char *const ckpt_verb_groups[]; /* of each of them, the title under which help lists it */

/* The verb with this name; NULL if there is none. */
const ckpt_verb *ckpt_verb_find(const char *name);

/* The same, or EINVAL with a message that has the nearest name. */
ckpt_status ckpt_verb_get(const ckpt_verb **out, const char *name, ckpt_error *err);

/* The rows of options.def; name NULL ends. */
extern const ckpt_option ckpt_option_rows[];

/* The i-th option of a verb, its own first, then its sets in order; NULL past the end. *section (may be NULL) is the
 * title under which help lists it. */
const ckpt_option *ckpt_verb_option(const ckpt_verb *verb, size_t i, const char **section);

/* Whether it has an option of this name. */
bool ckpt_verb_takes(const ckpt_verb *verb, const char *name);

/* The verb that runs: advice names its options, and another verb's with that verb. */
void ckpt_option_names_of(const ckpt_verb *verb);

/* What a user calls a field of the library's options (ckpt_name_field): "--like MODEL"; "ckpt convert --rename" where
 * the verb that runs has no such option. */
void ckpt_option_name_field(const char *field, const char *value, char *out, size_t n_bytes);

/* What a verb has noted so far, for --json. */
typedef struct ckpt_noted {
  char **texts; /* owned, each of them too */
  uint32_t n, capacity;
} ckpt_noted;

/* One occurrence of an option. */
typedef struct ckpt_arg {
  const ckpt_option *option;
  const char *text;    /* as given; NULL for a flag, and where ATTACHED stands alone */
  const char *pattern; /* CAST: the text before the "=", or NULL */
  int64_t after;       /* number of the input before it (CKPT_INPUT_OF_OPTION: an option's), -1 if none */
  union {
    uint64_t size; /* SIZE, INTEGER, COUNT, LENGTH */
    double number;
    ckpt_dtype dtype; /* DTYPE, CAST, TYPE */
    const ckpt_preset *preset;
  };
} ckpt_arg;

/* A command line that has been read and checked. */
struct ckpt_args {
  ckpt_arena arena;
  const ckpt_verb *verb;
  const char **inputs; /* borrowed from argv */
  ckpt_arg *options;   /* in order */
  uint32_t n_inputs, n_options;
  bool help; /* --help stands somewhere: nothing else was checked */
  bool json; /* --json stands somewhere */
  ckpt_noted *noted;
};

/* Whether argv[0, argc) has a word before "--": for what must be known even when the rest is wrong. */
bool ckpt_args_says(int argc, char **argv, const char *word);

/* Reads argv[0, argc), which begins after the verb. Every failure is EINVAL with a message that names option, value and
 * what is accepted. Free with ckpt_args_free. */
ckpt_status ckpt_args_parse(ckpt_args **out, const ckpt_verb *verb, int argc, char **argv, ckpt_error *err);
void ckpt_args_free(ckpt_args *args); /* NULL is fine */

/* The next occurrence of an option at or after *at, which moves past it; NULL when there is none. The verb's
 * table must have the name (asserted). */
const ckpt_arg *ckpt_args_next(const ckpt_args *args, const char *name, uint32_t *at);

/* The occurrence of an option that is not repeated, or the last one; NULL if it is not given. */
const ckpt_arg *ckpt_args_get(const ckpt_args *args, const char *name);

/* The input that an option that is a MODEL names: modifiers behind it belong to it. */
#define CKPT_INPUT_OF_OPTION UINT32_MAX

/* Whether a modifier belongs to an input: it stands between it and the next, or, where there is one path, anywhere but
 * behind an option's. */
bool ckpt_args_belongs(const ckpt_args *args, const ckpt_arg *arg, uint32_t input);

/* The last occurrence that belongs to an input. */
const ckpt_arg *ckpt_args_of(const ckpt_args *args, const char *name, uint32_t input);

/* Whether an option is given; its text or value, else the default. */
bool ckpt_args_has(const ckpt_args *args, const char *name);
const char *ckpt_args_text(const ckpt_args *args, const char *name, const char *if_absent); /* as above */
uint64_t ckpt_args_size(const ckpt_args *args, const char *name, uint64_t if_absent);       /* as above */
double ckpt_args_number(const ckpt_args *args, const char *name, double if_absent);         /* as above */
ckpt_dtype ckpt_args_dtype(const ckpt_args *args, const char *name);                        /* NONE if absent */

/* Whether it is --plan=rows. */
bool ckpt_args_plans_rows(const ckpt_args *args);

/* Stores the value of one occurrence in its member. Does nothing for casts. */
void ckpt_arg_fill(void *member, const ckpt_arg *arg);

/* All texts of a repeated option, NULL-terminated, in the args' arena; NULL if it is not given. */
ckpt_status ckpt_args_texts(const char *const **out, ckpt_args *args, const char *name, ckpt_error *err);

/* Fails with EINVAL and a message that begins with the verb: for what a table cannot say. */
ckpt_status ckpt_args_fail(const ckpt_args *args, ckpt_error *err, const char *format, ...) CKPT_PRINTF(3, 4);

#endif
