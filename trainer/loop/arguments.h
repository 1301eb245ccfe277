/* arguments.h - transformers' TrainingArguments by name: one table (arguments.def), read from JSON, YAML and flags. */
#ifndef CKPT_TRAINER_LOOP_ARGUMENTS_H
#define CKPT_TRAINER_LOOP_ARGUMENTS_H

#include <math.h>

#include "libckpt/base/arena.h"

#define CKPT_ARGUMENT_NONE INT64_MIN /* an integer's None; a float's is NaN, a text's NULL */

typedef enum ckpt_argument_kind {
  CKPT_ARGUMENT_BOOL,
  CKPT_ARGUMENT_INT,
  CKPT_ARGUMENT_FLOAT,
  CKPT_ARGUMENT_TEXT,
  CKPT_ARGUMENT_SAID,    /* without meaning here */
  CKPT_ARGUMENT_REFUSED, /* only its default can be had */
  CKPT_ARGUMENT_ALIAS
} ckpt_argument_kind;

typedef struct ckpt_argument {
  const char *name;
  ckpt_argument_kind kind;
  const char *value; /* the default as JSON; of an alias the name that it stands for */
  const char *meaning;
  size_t offset; /* of the member of ckpt_arguments */
} ckpt_argument;

/* The values. */
typedef struct ckpt_arguments {
#define ARG_BOOL(name, value, meaning) bool name;
#define ARG_INT(name, value, meaning) int64_t name;
#define ARG_FLOAT(name, value, meaning) double name;
#define ARG_TEXT(name, value, meaning) const char *name;
#include "trainer/loop/arguments.def"
  ckpt_arena *arena; /* of texts */
  /* Told, once each, of what is given and has no meaning. */
  void (*say)(void *arg, const char *text);
  void *say_arg;
} ckpt_arguments;

/* The table; *n rows. */
const ckpt_argument *ckpt_argument_table(size_t *n);

/* The row of a name, with dashes or underscores; NULL: none. */
const ckpt_argument *ckpt_argument_find(const char *name);

/* Whether two names are one but for dashes and underscores. */
bool ckpt_argument_same_name(const char *a, const char *b);

/* Whether two texts of flags are one value of a row. */
bool ckpt_argument_is_same(const ckpt_argument *row, const char *a, const char *b);

/* EINVAL: a name twice, or two names of one argument with different values. */
ckpt_status ckpt_argument_refuse_both(const char *name, const char *other, ckpt_error *err);

/* The known name that is nearest to a misspelt one, of the table and of `others` (NULL-terminated, or NULL). */
const char *ckpt_argument_nearest(const char *name, const char *const *others);

/* Defaults. The arena must outlive it. */
void ckpt_arguments_init(ckpt_arguments *out, ckpt_arena *arena);

/* Sets one from a flag's text: a bool is true, false, 1, 0, yes or no; None and null are None. EINVAL with the name. */
ckpt_status ckpt_arguments_set(ckpt_arguments *arguments, const char *name, const char *text, ckpt_error *err);

/* Sets those of a JSON or YAML file (by its suffix .yaml or .yml). EINVAL with file and line, or with the name;
 * ENOTFOUND, EIO. */
ckpt_status ckpt_arguments_read(ckpt_arguments *arguments, const char *path, ckpt_error *err);

/* What only all values together show: contradictions and values out of range are EINVAL. has_eval: there are data to
 * evaluate on. */
ckpt_status ckpt_arguments_check(ckpt_arguments *arguments, bool has_eval, ckpt_error *err);

/* The values as a JSON object, in the arena; NULL when it is full. */
const char *ckpt_arguments_json(const ckpt_arguments *arguments, ckpt_arena *arena);

#endif
