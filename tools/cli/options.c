/* options.c - the parser of options.h: one walk over argv, then what a whole command line must satisfy. */
#include "tools/cli/options.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "tools/cli/values.h"

#define ARGS_LIMIT (UINT64_C(64) << 20) /* bytes; far above what a command line can hold */

/* A walk over argv. */
typedef struct ckpt_walk {
  ckpt_args *args;
  char **argv;
  int at, argc;
  bool is_behind_option; /* one whose value is an input */
  ckpt_error *err;
} ckpt_walk;

ckpt_status ckpt_args_fail(const ckpt_args *args, ckpt_error *err, const char *format, ...) {
  char message[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s: %s", args->verb->name, message);
}

/* ---- one option ---------------------------------------------------------------------------------------------- */

static const ckpt_option *find_long(const ckpt_verb *verb, const char *name, size_t n) {
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, NULL)) != NULL; i++)
    if (strlen(option->name) == n && memcmp(option->name, name, n) == 0) return option;
  return NULL;
}

static const ckpt_option *find_short(const ckpt_verb *verb, char letter) {
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, NULL)) != NULL; i++)
    if (option->letter == letter) return option;
  return NULL;
}

/* Whether a verb has the option of this word: "--exclude", "-o". */
static bool has_word(const ckpt_verb *verb, const char *word) {
  if (word[1] == '-') return find_long(verb, word + 2, strlen(word + 2)) != NULL;
  return word[1] != '\0' && word[2] == '\0' && find_short(verb, word[1]) != NULL;
}

static ckpt_status unknown(const ckpt_walk *walk, const char *word, size_t n) {
  char typed[64], others[256];
  size_t n_others = 0;
  snprintf(typed, sizeof typed, "%.*s", (int)(n < 63 ? n : 63), word);
  for (size_t i = 0; ckpt_verbs[i] != NULL && n_others < sizeof others; i++)
    if (has_word(ckpt_verbs[i], typed))
      n_others += (size_t)snprintf(others + n_others, sizeof others - n_others, "%s%s", n_others == 0 ? "" : ", ",
                                   ckpt_verbs[i]->name);
  if (n_others != 0)
    return ckpt_args_fail(walk->args, walk->err, "%s is an option of %s, not of %s", typed, others,
                          walk->args->verb->name);
  const ckpt_option *option;
  const char *nearest = NULL;
  for (size_t i = 0; (option = ckpt_verb_option(walk->args->verb, i, NULL)) != NULL; i++)
    ckpt_value_nearest(typed + strspn(typed, "-"), option->name, &nearest);
  if (nearest != NULL)
    return ckpt_args_fail(walk->args, walk->err, "unknown option '%s', did you mean '--%s'?", typed, nearest);
  return ckpt_args_fail(walk->args, walk->err, "unknown option '%s' (ckpt help %s lists them)", typed,
                        walk->args->verb->name);
}

/* Whether a word that begins with "-" is the value of a numeric option all the same, so that it is judged as one. */
static bool is_negative_number(const ckpt_option *option, const char *word) {
  const ckpt_option_kind kind = option->kind;
  if (kind != CKPT_OPTION_SIZE && kind != CKPT_OPTION_INTEGER && kind != CKPT_OPTION_COUNT &&
      kind != CKPT_OPTION_LENGTH && kind != CKPT_OPTION_NUMBER)
    return false;
  return word[0] == '-' && ((word[1] >= '0' && word[1] <= '9') || word[1] == '.' || strcmp(word, "-inf") == 0);
}

/* Number of inputs so far that a modifier can belong to. */
static uint32_t n_paths(const ckpt_args *args) {
  uint32_t limit = args->verb->n_paths;
  return limit != 0 && args->n_inputs > limit ? limit : args->n_inputs;
}

/* Adds an occurrence; attached is the value after "=" or a letter, or NULL. */
static ckpt_status add(ckpt_walk *walk, const ckpt_option *option, const char *attached) {
  ckpt_args *args = walk->args;
  ckpt_arg *arg = &args->options[args->n_options];
  const int64_t after = walk->is_behind_option ? CKPT_INPUT_OF_OPTION : (int64_t)n_paths(args) - 1;
  *arg = (ckpt_arg){.option = option, .text = attached, .after = after};
  if (option->flags & CKPT_OPTION_MODEL) walk->is_behind_option = true;
  if (option->kind == CKPT_OPTION_FLAG) {
    if (attached != NULL) return ckpt_args_fail(args, walk->err, "--%s takes no value", option->name);
  } else if (attached == NULL && (option->flags & CKPT_OPTION_ATTACHED)) {
    args->n_options++;
    return CKPT_OK;
  } else if (attached == NULL) {
    const char *next = walk->at < walk->argc ? walk->argv[walk->at] : NULL;
    if (next == NULL || (next[0] == '-' && next[1] != '\0' && !is_negative_number(option, next)))
      return ckpt_args_fail(args, walk->err, "--%s needs a value: --%s %s", option->name, option->name,
                            option->metavar);
    arg->text = next;
    walk->at++;
  }
  CKPT_TRY(ckpt_value_parse(args->verb, arg, &args->arena, walk->err));
  args->n_options++;
  return CKPT_OK;
}

static ckpt_status parse_word(ckpt_walk *walk) {
  const char *word = walk->argv[walk->at++];
  ckpt_args *args = walk->args;
  if (word[0] == '\0') return ckpt_args_fail(args, walk->err, "an argument is empty (a variable that is not set?)");
  if (word[0] != '-' || word[1] == '\0') {
    args->inputs[args->n_inputs++] = word;
    walk->is_behind_option = false;
    return CKPT_OK;
  }
  const ckpt_option *option;
  const char *attached = NULL;
  if (word[1] == '-') {
    size_t n = strcspn(word + 2, "=");
    option = find_long(args->verb, word + 2, n);
    if (option == NULL) return unknown(walk, word, n + 2);
    if (word[2 + n] == '=') attached = word + 2 + n + 1;
  } else {
    option = find_short(args->verb, word[1]);
    if (option == NULL) return unknown(walk, word, strlen(word));
    if (word[2] != '\0') attached = word + 2 + (word[2] == '=');
  }
  return add(walk, option, attached);
}

/* ---- the whole line ------------------------------------------------------------------------------------------ */

static ckpt_status check_counts(const ckpt_args *args, ckpt_error *err) {
  const ckpt_verb *verb = args->verb;
  if (args->n_inputs < verb->min_inputs)
    return ckpt_args_fail(args, err, "%s is missing: ckpt %.*s", args->n_inputs == 0 ? "the input" : "an argument",
                          (int)strcspn(verb->forms, "\n"), verb->forms);
  if (args->n_inputs > verb->max_inputs && (verb->sets & CKPT_SET_OUTPUT) && !ckpt_args_has(args, "output"))
    return ckpt_args_fail(args, err, "unexpected argument '%s': an output is named with -o (ckpt %.*s)",
                          args->inputs[verb->max_inputs], (int)strcspn(verb->forms, "\n"), verb->forms);
  if (args->n_inputs > verb->max_inputs)
    return ckpt_args_fail(args, err, "unexpected argument '%s' (ckpt %.*s)", args->inputs[verb->max_inputs],
                          (int)strcspn(verb->forms, "\n"), verb->forms);
  return CKPT_OK;
}

/* An option that is given may need another: "--partial is for --graph MODEL.onnx". */
static ckpt_status check_with(const ckpt_args *args, const ckpt_option *option, ckpt_error *err) {
  if (option->with == NULL || ckpt_args_has(args, option->with)) return CKPT_OK;
  const ckpt_option *with = find_long(args->verb, option->with, strlen(option->with));
  const char letter[2] = {with->letter, '\0'};
  return ckpt_args_fail(args, err, "--%s is for %s%s%s%s", option->name, with->letter == 0 ? "--" : "-",
                        with->letter == 0 ? with->name : letter, with->metavar == NULL ? "" : " ",
                        with->metavar == NULL ? "" : with->metavar);
}

static ckpt_status check_option(const ckpt_args *args, const ckpt_option *option, ckpt_error *err) {
  const bool is_modifier = (option->flags & CKPT_OPTION_MODIFIER) != 0, is_one = n_paths(args) <= 1;
  uint32_t at = 0, n = 0, n_behind = 0, n_most = 0; /* n: of the input `last` */
  int64_t last = 0;
  for (const ckpt_arg *arg; (arg = ckpt_args_next(args, option->name, &at)) != NULL;) {
    if (is_modifier && arg->after < 0 && !is_one)
      return ckpt_args_fail(args, err, "--%s stands after the input that it belongs to", option->name);
    /* A modifier may be given once for each input, anything else once. Inputs come in order, an option's anywhere. */
    if (is_modifier && arg->after == CKPT_INPUT_OF_OPTION) {
      n_behind++;
    } else {
      const int64_t of = !is_modifier || is_one ? 0 : arg->after;
      n = of == last ? n + 1 : 1;
      last = of;
    }
    n_most = n > n_most ? n : n_most;
    n_most = n_behind > n_most ? n_behind : n_most;
  }
  if (n_most == 0 && (option->flags & CKPT_OPTION_REQUIRED))
    return ckpt_args_fail(args, err, "%s%s is missing: ckpt %.*s", option->letter == 'o' ? "-o, --" : "--",
                          option->name, (int)strcspn(args->verb->forms, "\n"), args->verb->forms);
  if (n_most > 1 && option->kind != CKPT_OPTION_FLAG && !(option->flags & CKPT_OPTION_REPEATED))
    return ckpt_args_fail(args, err, "--%s is given %u times", option->name, n_most);
  return n_most == 0 ? CKPT_OK : check_with(args, option, err);
}

static ckpt_status check_options(const ckpt_args *args, ckpt_error *err) {
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(args->verb, i, NULL)) != NULL; i++)
    CKPT_TRY(check_option(args, option, err));
  return CKPT_OK;
}

bool ckpt_args_says(int argc, char **argv, const char *word) {
  for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++)
    if (strcmp(argv[i], word) == 0) return true;
  return false;
}

static ckpt_status parse(ckpt_walk *walk) {
  while (walk->at < walk->argc && strcmp(walk->argv[walk->at], "--") != 0) CKPT_TRY(parse_word(walk));
  for (walk->at++; walk->at < walk->argc; walk->at++) walk->args->inputs[walk->args->n_inputs++] = walk->argv[walk->at];
  CKPT_TRY(check_counts(walk->args, walk->err));
  return check_options(walk->args, walk->err);
}

ckpt_status ckpt_args_parse(ckpt_args **out, const ckpt_verb *verb, int argc, char **argv, ckpt_error *err) {
  ckpt_args *args = calloc(1, sizeof *args);
  CKPT_TRY_ALLOC(args, err);
  ckpt_arena_init(&args->arena, ARGS_LIMIT);
  args->verb = verb;
  args->help = ckpt_args_says(argc, argv, "--help") || ckpt_args_says(argc, argv, "-h");
  args->json = ckpt_args_says(argc, argv, "--json");
  args->inputs = ckpt_arena_array(&args->arena, (size_t)argc + 1, sizeof *args->inputs);
  args->options = ckpt_arena_array(&args->arena, (size_t)argc + 1, sizeof *args->options);
  args->noted = calloc(1, sizeof *args->noted);
  ckpt_walk walk = {.args = args, .argv = argv, .argc = argc, .err = err};
  ckpt_status status = args->inputs == NULL || args->options == NULL || args->noted == NULL
                           ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory")
                           : CKPT_OK;
  if (status == CKPT_OK && !args->help) status = parse(&walk);
  if (status == CKPT_OK)
    *out = args;
  else
    ckpt_args_free(args);
  return status;
}

void ckpt_args_free(ckpt_args *args) {
  if (args == NULL) return;
  for (uint32_t i = 0; args->noted != NULL && i < args->noted->n; i++) free(args->noted->texts[i]);
  if (args->noted != NULL) free(args->noted->texts);
  free(args->noted);
  ckpt_arena_free(&args->arena);
  free(args);
}

/* ---- looking things up ----------------------------------------------------------------------------------------- */

const ckpt_arg *ckpt_args_next(const ckpt_args *args, const char *name, uint32_t *at) {
  assert(find_long(args->verb, name, strlen(name)) != NULL);
  while (*at < args->n_options) {
    const ckpt_arg *arg = &args->options[(*at)++];
    if (strcmp(arg->option->name, name) == 0) return arg;
  }
  return NULL;
}

const ckpt_arg *ckpt_args_get(const ckpt_args *args, const char *name) {
  const ckpt_arg *last = NULL;
  uint32_t at = 0;
  for (const ckpt_arg *arg; (arg = ckpt_args_next(args, name, &at)) != NULL;) last = arg;
  return last;
}

bool ckpt_args_belongs(const ckpt_args *args, const ckpt_arg *arg, uint32_t input) {
  if (arg->after == (int64_t)input) return true;
  return arg->after != CKPT_INPUT_OF_OPTION && n_paths(args) == 1 && input == 0;
}

const ckpt_arg *ckpt_args_of(const ckpt_args *args, const char *name, uint32_t input) {
  const ckpt_arg *last = NULL;
  uint32_t at = 0;
  for (const ckpt_arg *arg; (arg = ckpt_args_next(args, name, &at)) != NULL;)
    if (ckpt_args_belongs(args, arg, input)) last = arg;
  return last;
}

bool ckpt_args_plans_rows(const ckpt_args *args) {
  const ckpt_arg *arg = ckpt_args_get(args, "plan");
  return arg != NULL && arg->text != NULL;
}

bool ckpt_args_has(const ckpt_args *args, const char *name) { return ckpt_args_get(args, name) != NULL; }

const char *ckpt_args_text(const ckpt_args *args, const char *name, const char *if_absent) {
  const ckpt_arg *arg = ckpt_args_get(args, name);
  return arg == NULL ? if_absent : arg->text;
}

uint64_t ckpt_args_size(const ckpt_args *args, const char *name, uint64_t if_absent) {
  const ckpt_arg *arg = ckpt_args_get(args, name);
  return arg == NULL ? if_absent : arg->size;
}

double ckpt_args_number(const ckpt_args *args, const char *name, double if_absent) {
  const ckpt_arg *arg = ckpt_args_get(args, name);
  return arg == NULL ? if_absent : arg->number;
}

ckpt_dtype ckpt_args_dtype(const ckpt_args *args, const char *name) {
  const ckpt_arg *arg = ckpt_args_get(args, name);
  return arg == NULL ? CKPT_DTYPE_NONE : arg->dtype;
}

void ckpt_arg_fill(void *member, const ckpt_arg *arg) {
  const ckpt_option *option = arg->option;
  switch (option->kind) {
    case CKPT_OPTION_FLAG: *(bool *)member = true; break;
    case CKPT_OPTION_TEXT:
    case CKPT_OPTION_PATH:
    case CKPT_OPTION_PATTERN:
    case CKPT_OPTION_CHOICE:
    case CKPT_OPTION_FORMAT: *(const char **)member = option->fixed == NULL ? arg->text : option->fixed; break;
    case CKPT_OPTION_DTYPE:
    case CKPT_OPTION_TYPE: *(ckpt_dtype *)member = arg->dtype; break;
    case CKPT_OPTION_PRESET: *(const ckpt_preset **)member = arg->preset; break;
    case CKPT_OPTION_SIZE: *(uint64_t *)member = arg->size; break;
    case CKPT_OPTION_INTEGER:
    case CKPT_OPTION_COUNT:
    case CKPT_OPTION_LENGTH: *(uint32_t *)member = (uint32_t)arg->size; break;
    case CKPT_OPTION_NUMBER: *(double *)member = arg->number; break;
    case CKPT_OPTION_CAST: break;
  }
}

ckpt_status ckpt_args_texts(const char *const **out, ckpt_args *args, const char *name, ckpt_error *err) {
  uint32_t at = 0, n = 0;
  *out = NULL;
  if (!ckpt_args_has(args, name)) return CKPT_OK;
  const char **texts = ckpt_arena_array(&args->arena, (size_t)args->n_options + 1, sizeof *texts);
  CKPT_TRY_ALLOC(texts, err);
  for (const ckpt_arg *arg; (arg = ckpt_args_next(args, name, &at)) != NULL;) texts[n++] = arg->text;
  *out = texts;
  return CKPT_OK;
}
