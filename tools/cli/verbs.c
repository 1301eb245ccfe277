/* verbs.c - commands.def as tables, and the options that verbs share. */
#include <string.h>

#include "libckpt/base/error.h"
#include "tools/cli/options.h"
#include "tools/cli/values.h"

#define CKPT_VERB(id) extern const ckpt_verb ckpt_verb_##id;
#define CKPT_LATER_VERB(name, summary)
#include "tools/cli/commands.def"
#undef CKPT_VERB
#undef CKPT_LATER_VERB

const ckpt_verb *const ckpt_verbs[] = {
#define CKPT_VERB(id) &ckpt_verb_##id,
#define CKPT_LATER_VERB(name, summary)
#include "tools/cli/commands.def"
#undef CKPT_VERB
#undef CKPT_LATER_VERB
    NULL};

const ckpt_later_verb ckpt_later_verbs[] = {
#define CKPT_VERB(id)
#define CKPT_LATER_VERB(name, summary) {name, summary},
#include "tools/cli/commands.def"
#undef CKPT_VERB
#undef CKPT_LATER_VERB
    {NULL, NULL}};

static const ckpt_option run_options[] = {
    {"plan", 0, CKPT_OPTION_FLAG, 0, NULL,
     "print what a run would read and write, its peak memory and time; write nothing"},
    {"memory", 0, CKPT_OPTION_SIZE, 0, "SIZE", "limit on tiles, windows and footers (default 128M)"},
    {"threads", 0, CKPT_OPTION_INTEGER, 0, "N", "compute threads, at most 4096 (0, the default: one per processor)"},
    {"trace", 0, CKPT_OPTION_PATH, 0, "FILE", "log reads and writes with their times, as JSON lines"},
    {"progress", 0, CKPT_OPTION_CHOICE, 0, "auto|always|never",
     "when to show progress on stderr (default auto: on a terminal)"},
    {"quiet", 0, CKPT_OPTION_FLAG, 0, NULL, "print only results and errors: no progress, notes or closing lines"},
    {"json", 0, CKPT_OPTION_FLAG, 0, NULL, "print one JSON object on stdout"},
    {NULL, 0, CKPT_OPTION_FLAG, 0, NULL, NULL}};

static const ckpt_option input_options[] = {
    {"adapter", 0, CKPT_OPTION_TEXT, CKPT_OPTION_MODIFIER | CKPT_OPTION_REPEATED | CKPT_OPTION_LATER, "DIR[=SCALE]",
     "with this adapter added"},
    {"weights", 0, CKPT_OPTION_CHOICE, CKPT_OPTION_MODIFIER, "master|model",
     "which copy of a mixed-precision checkpoint to use as parameters (default: master if there is one)"},
    {"like", 0, CKPT_OPTION_PATH, CKPT_OPTION_MODIFIER, "MODEL",
     "take config, tokenizer and names from the model that this was trained from, and check that no tensor is missing"},
    {"names", 0, CKPT_OPTION_CHOICE, CKPT_OPTION_MODIFIER, "stored", "use tensor names as the file stores them"},
    {NULL, 0, CKPT_OPTION_FLAG, 0, NULL, NULL}};

static const ckpt_option output_options[] = {
    {"output", 'o', CKPT_OPTION_PATH, CKPT_OPTION_REQUIRED | CKPT_OPTION_REPEATED, "PATH",
     "output path; several outputs need one read"},
    {"force", 0, CKPT_OPTION_FLAG, 0, NULL, "replace an existing output when the new one is whole"},
    {"receipt", 0, CKPT_OPTION_PATH, 0, "FILE", "write inputs, options, decisions and digests as JSON"},
    {NULL, 0, CKPT_OPTION_FLAG, 0, NULL, NULL}};

const ckpt_verb *ckpt_verb_find(const char *name) {
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++)
    if (strcmp(ckpt_verbs[i]->name, name) == 0) return ckpt_verbs[i];
  return NULL;
}

ckpt_status ckpt_verb_get(const ckpt_verb **out, const char *name, ckpt_error *err) {
  const char *nearest = NULL;
  *out = ckpt_verb_find(name);
  if (*out != NULL) return CKPT_OK;
  for (size_t i = 0; ckpt_later_verbs[i].name != NULL; i++)
    if (strcmp(ckpt_later_verbs[i].name, name) == 0)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%s (%s): this version does not have it yet (%s)", name,
                       ckpt_later_verbs[i].summary, ckpt_version());
  if (name[0] == '-')
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "a verb comes first, '%s' is none (ckpt help lists them; ckpt --version)", name);
  for (size_t i = 0; ckpt_verbs[i] != NULL; i++) ckpt_value_nearest(name, ckpt_verbs[i]->name, &nearest);
  if (nearest != NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "unknown verb '%s', did you mean '%s'?", name, nearest);
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "unknown verb '%s' (ckpt help lists them)", name);
}

const ckpt_option *ckpt_verb_option(const ckpt_verb *verb, size_t i, const char **section) {
  const struct {
    const ckpt_option *options;
    const char *title;
  } tables[] = {{verb->options, "Options"},
                {verb->sets & CKPT_SET_OUTPUT ? output_options : NULL, "Output"},
                {verb->sets & CKPT_SET_INPUT ? input_options : NULL, "Input, each after the path it applies to"},
                {verb->sets & CKPT_SET_RUN ? run_options : NULL, "Common"}};
  for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
    for (const ckpt_option *option = tables[t].options; option != NULL && option->name != NULL; option++)
      if (i-- == 0) {
        if (section != NULL) *section = tables[t].title;
        return option;
      }
  return NULL;
}
