/* recorded_check.c - whether what a receipt records can be meant: which verbs take which options (convert/options.def),
 * and which formats have a use for them. Verbs that would ask for the same are not told apart. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/format.h"
#include "libckpt/recipe/convert/options.h"
#include "libckpt/recipe/replay/recorded.h"

static ckpt_status refuse(const ckpt_recorded *r, bool is_there, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records %s %s, which ckpt %s %s", is_there ? "its" : "no", what,
                   r->request.verb, is_there ? "does not take" : "always has");
}

/* Whether a verb quantizes, or merges: it takes options of that. */
static bool takes(ckpt_option_place place, const char *verb) {
  for (const ckpt_option *option = ckpt_written_options; option->name != NULL; option++)
    if (option->place == place && ckpt_option_lists(option->verbs, verb)) return true;
  return false;
}

/* The options of a place, against those that the verb takes. */
static ckpt_status check_place(const ckpt_recorded *r, ckpt_option_place kind, const void *place, ckpt_error *err) {
  const char *verb = r->request.verb;
  for (const ckpt_option *option = ckpt_written_options; option->name != NULL; option++) {
    if (option->place != kind || option->key == 0) continue;
    const bool is_there = ckpt_option_is_given(option, place);
    if (is_there ? !ckpt_option_is_taken(option, verb) : ckpt_option_is_always(option, verb))
      return refuse(r, is_there, option->field, err);
  }
  return CKPT_OK;
}

static ckpt_status check_values(const ckpt_recorded *r, const ckpt_format_values *values, ckpt_error *err) {
  for (size_t i = 0; i < values->n; i++)
    if (ckpt_format_value_is_given(&values->items[i]) &&
        !ckpt_option_takes_value(values->items[i].name, r->request.verb))
      return refuse(r, true, values->items[i].name, err);
  return CKPT_OK;
}

/* Adapters are inputs, and merged as options say. */
static ckpt_status check_merge(const ckpt_recorded *r, ckpt_error *err) {
  const bool is_always = strcmp(r->request.verb, "merge") == 0;
  if (r->merges ? !takes(CKPT_PLACE_ADAPTER, r->request.verb) : is_always) return refuse(r, r->merges, "merge", err);
  if (r->merges == (r->n_adapters != 0)) return CKPT_OK;
  return ckpt_fail(
      err, CKPT_EFORMAT, r->path, NULL,
      r->merges ? "records options of merging, and no adapter" : "has more than one input, and no options of merging");
}

static ckpt_status check_extract(const ckpt_recorded *r, ckpt_error *err) {
  if (r->extracts != takes(CKPT_PLACE_EXTRACT, r->request.verb)) return refuse(r, r->extracts, "extract", err);
  return r->extracts ? check_place(r, CKPT_PLACE_EXTRACT, &r->extract, err) : CKPT_OK;
}

static ckpt_status check_options(const ckpt_recorded *r, ckpt_error *err) {
  const ckpt_convert_options *options = &r->options;
  bool is_known = true;
  if (options->include != NULL) (void)ckpt_role_included(options->include, CKPT_ROLE_PARAMETER, &is_known);
  if (!is_known)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records the option include '%.80s', which there is not",
                     options->include);
  CKPT_TRY(check_place(r, CKPT_PLACE_CONVERT, options, err));
  CKPT_TRY(check_values(r, &r->values, err));
  const bool is_there = r->request.quantize != NULL;
  CKPT_TRY(check_merge(r, err));
  CKPT_TRY(check_extract(r, err));
  return is_there == takes(CKPT_PLACE_QUANTIZE, r->request.verb) ? CKPT_OK : refuse(r, is_there, "quantize", err);
}

/* Values that are for one output are ones that its format takes. */
static bool has_values(const ckpt_convert_target *target, const ckpt_format *format) {
  for (size_t i = 0; i < target->values.n; i++) {
    const ckpt_format_value *value = &target->values.items[i];
    const ckpt_format_option *option = ckpt_format_option_known(value->name, NULL);
    if (ckpt_format_value_is_given(value) && !option->is_of_all &&
        ckpt_format_option_find(format->options, value->name) == NULL)
      return false;
  }
  return ckpt_format_values_check(&target->values, format->options, NULL, NULL) == CKPT_OK;
}

static ckpt_status check_target(const ckpt_recorded *r, const ckpt_convert_target *target, ckpt_error *err) {
  const ckpt_format *format = ckpt_format_find(target->to);
  const char *verb = r->request.verb;
  CKPT_TRY(check_place(r, CKPT_PLACE_TARGET, target, err));
  CKPT_TRY(check_values(r, &target->values, err));
  if (format == NULL) return CKPT_OK; /* the replay says so */
  const bool is_folder = format->caps.is_folder || (format->caps.shards && ckpt_text_ends(target->path, "/"));
  const struct {
    bool is_fine;
    const char *what;
  } rules[] = {{target->shard_size == 0 || (is_folder && format->caps.cut_by_size), "shard_size"},
               {target->world == 0 || format->caps.ranks, "world"},
               {has_values(target, format), "value"},
               {strcmp(verb, "join") != 0 || !is_folder, "verb"},
               {strcmp(verb, "consolidate") != 0 || !format->caps.ranks, "verb"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!rules[i].is_fine)
      return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records a %s that cannot be meant for %s %s", rules[i].what,
                       format->name, is_folder ? "folders" : "files");
  return CKPT_OK;
}

ckpt_status ckpt_recorded_check(const ckpt_recorded *r, ckpt_error *err) {
  bool has_graph = false;
  if (!ckpt_option_lists(CKPT_VERBS_THAT_WRITE, r->request.verb))
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (%.80s)",
                     r->request.verb);
  CKPT_TRY(check_options(r, err));
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    const ckpt_format *format = ckpt_format_find(r->targets[i].to);
    has_graph = has_graph || (format != NULL && format->caps.graph);
    CKPT_TRY(check_target(r, &r->targets[i], err));
  }
  if (ckpt_format_values_find(&r->values, "graph") != NULL && !has_graph)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records graph, and no output has one");
  return CKPT_OK;
}
