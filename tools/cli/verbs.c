/* verbs.c - commands.def and options.def as tables. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "tools/cli/options.h"
#include "tools/cli/values.h"

#define CKPT_VERB(id, group) extern const ckpt_verb ckpt_verb_##id;
#include "tools/cli/commands.def"
#undef CKPT_VERB

const ckpt_verb *const ckpt_verbs[] = {
#define CKPT_VERB(id, group) &ckpt_verb_##id,
#include "tools/cli/commands.def"
#undef CKPT_VERB
    NULL};

const char *const ckpt_verb_groups[] = {
#define CKPT_VERB(id, group) group,
#include "tools/cli/commands.def"
#undef CKPT_VERB
    NULL};

const ckpt_option ckpt_option_rows[] = {
#include "tools/cli/options.def"
    {.name = NULL}};

const ckpt_verb *ckpt_verb_find(const char *name) {
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++)
    if (strcmp(ckpt_verbs[i]->name, name) == 0) return ckpt_verbs[i];
  return NULL;
}

ckpt_status ckpt_verb_get(const ckpt_verb **out, const char *name, ckpt_error *err) {
  const char *nearest = NULL;
  *out = ckpt_verb_find(name);
  if (*out != NULL) return CKPT_OK;
  if (name[0] == '-')
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "a verb comes first, '%s' is none (ckpt help lists them; ckpt --version)", name);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) ckpt_value_nearest(name, ckpt_verbs[i]->name, &nearest);
  if (nearest != NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "unknown verb '%s', did you mean '%s'?", name, nearest);
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "unknown verb '%s' (ckpt help lists them)", name);
}

/* Whether a verb takes an option, and under which set: 0 is the verb's own. */
static bool takes(const ckpt_verb *verb, unsigned set, const ckpt_option *option) {
  if (option->set != set) return false;
  return set != 0 ? (verb->sets & set) != 0 : ckpt_option_lists(option->verbs, verb->name);
}

const ckpt_option *ckpt_verb_option(const ckpt_verb *verb, size_t i, const char **section) {
  static const struct {
    unsigned set;
    const char *title;
  } sections[] = {{0, "Options"},
                  {CKPT_SET_OUTPUT, "Output"},
                  {CKPT_SET_INPUT, "Input, each after the path that it belongs to"},
                  {CKPT_SET_RUN, "Common"}};
  if (section != NULL) *section = sections[0].title;
  for (const ckpt_option *option = verb->options; option != NULL && option->name != NULL; option++)
    if (i-- == 0) return option;
  for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
    for (const ckpt_option *option = ckpt_option_rows; option->name != NULL; option++)
      if (takes(verb, sections[s].set, option) && i-- == 0) {
        if (section != NULL) *section = sections[s].title;
        return option;
      }
  return NULL;
}

bool ckpt_verb_takes(const ckpt_verb *verb, const char *name) {
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(verb, i, NULL)) != NULL; i++)
    if (strcmp(option->name, name) == 0) return true;
  return false;
}

/* Whether an option of its own gives a field this value: --drop optimizer. */
static bool is_fixed(const char *field, const char *value) {
  for (const ckpt_option *option = ckpt_option_rows; option->name != NULL; option++)
    if (option->fixed != NULL && strcmp(option->field, field) == 0 && strcmp(option->fixed, value) == 0) return true;
  return false;
}

static const ckpt_verb *running; /* the verb whose messages these are; NULL: none yet */

void ckpt_option_names_of(const ckpt_verb *verb) { running = verb; }

/* A verb that takes an option: convert, or the first. */
static const ckpt_verb *verb_of(const ckpt_option *option) {
  const ckpt_verb *convert = ckpt_verb_find("convert");
  if (convert != NULL && takes(convert, option->set, option)) return convert;
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++)
    if (takes(ckpt_verbs[i], option->set, option)) return ckpt_verbs[i];
  return NULL;
}

/* The row that gives a field this value: one of the running verb if there is one. */
static const ckpt_option *row_of(const char *field, const char *value) {
  const ckpt_option *other = NULL;
  for (const ckpt_option *option = ckpt_option_rows; option->name != NULL; option++) {
    const bool gives_it = option->field != NULL && strcmp(option->field, field) == 0 &&
                          (option->fixed != NULL ? strcmp(option->fixed, value) == 0 : !is_fixed(field, value));
    if (gives_it && running != NULL && takes(running, option->set, option)) return option;
    if (gives_it && other == NULL) other = option;
  }
  return other;
}

void ckpt_option_name_field(const char *field, const char *value, char *out, size_t n_bytes) {
  const ckpt_option *row = row_of(field, value);
  if (row == NULL) {
    snprintf(out, n_bytes, "%s%s%s", field, value[0] == '\0' ? "" : " ", value);
    return;
  }
  const bool is_letter = row->letter == 'o';
  const ckpt_verb *other = running == NULL || takes(running, row->set, row) ? NULL : verb_of(row);
  snprintf(out, n_bytes, "%s%s%s%s%s%s%s", other != NULL ? "ckpt " : "", other != NULL ? other->name : "",
           other != NULL ? " " : "", is_letter ? "-" : "--", is_letter ? "o" : row->name, value[0] == '\0' ? "" : " ",
           row->fixed != NULL ? row->metavar : value);
}
