/* recorded_check.c - whether what a receipt records can be meant: which verb takes which options (tools/cmd_*.c), and
 * which formats have a use for them. Verbs that would ask for the same are not told apart. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/format.h"
#include "libckpt/recipe/replay/recorded.h"

enum need { NEVER, MAY, ALWAYS };

static const struct verb {
  const char *name;
  enum need include, casts, overflow, selection, shards, ranks, stage, zstd, types;
} verbs[] = {
    /*              include casts  overflow selection shards  ranks   stage  zstd   types */
    {"convert", MAY, MAY, MAY, MAY, MAY, NEVER, NEVER, MAY, NEVER},
    {"consolidate", MAY, MAY, MAY, NEVER, MAY, NEVER, NEVER, NEVER, NEVER},
    {"split", MAY, NEVER, NEVER, NEVER, ALWAYS, NEVER, NEVER, NEVER, NEVER},
    {"join", MAY, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER, NEVER},
    {"reshard", ALWAYS, NEVER, NEVER, NEVER, NEVER, ALWAYS, MAY, MAY, NEVER},
    {"quantize", NEVER, NEVER, MAY, MAY, MAY, NEVER, NEVER, NEVER, ALWAYS},
};

static ckpt_status check_need(const ckpt_recorded *r, enum need need, bool is_there, const char *what,
                              ckpt_error *err) {
  if (need == MAY || (need == ALWAYS) == is_there) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records %s %s, which ckpt %s %s", is_there ? "its" : "no", what,
                   r->request.verb, is_there ? "does not take" : "always has");
}

static ckpt_status check_options(const ckpt_recorded *r, const struct verb *verb, ckpt_error *err) {
  const ckpt_convert_options *options = &r->options;
  bool is_selected = options->match != NULL || options->exclude != NULL || options->rename != NULL ||
                     options->remove != NULL || options->set != NULL || options->external_data || options->link ||
                     options->graph != NULL;
  bool is_known = true;
  if (options->include != NULL) (void)ckpt_role_included(options->include, CKPT_ROLE_PARAMETER, &is_known);
  if (!is_known)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records the option include '%.80s', which there is not",
                     options->include);
  CKPT_TRY(check_need(r, verb->include, options->include != NULL, "include", err));
  CKPT_TRY(check_need(r, verb->casts, options->n_casts != 0, "dtype", err));
  CKPT_TRY(check_need(r, verb->overflow, options->allow_overflow, "allow_overflow", err));
  CKPT_TRY(check_need(r, verb->selection, is_selected, "selection", err));
  return check_need(r, verb->types, r->request.quantize != NULL, "quantize", err);
}

static ckpt_status check_target(const ckpt_recorded *r, const struct verb *verb, const ckpt_convert_target *target,
                                ckpt_error *err) {
  const ckpt_format *format = ckpt_format_find(target->to);
  CKPT_TRY(check_need(r, verb->shards, target->shard_size != 0, "shard_size", err));
  CKPT_TRY(check_need(r, verb->ranks, target->world != 0, "world", err));
  CKPT_TRY(check_need(r, verb->stage, target->stage != 0, "stage", err));
  CKPT_TRY(check_need(r, verb->zstd, target->zstd_level != 0, "zstd_level", err));
  bool has_type = target->preset != NULL; /* or another output has: beside it the model itself may be written */
  for (uint32_t i = 0; i < r->request.n_targets && verb->types == ALWAYS; i++)
    has_type = has_type || r->targets[i].preset != NULL;
  CKPT_TRY(check_need(r, verb->types, has_type, "type", err));
  if (format == NULL) return CKPT_OK; /* the replay says so */
  const bool is_folder = format->caps.is_folder || (format->caps.shards && ckpt_text_ends(target->path, "/"));
  const struct {
    bool is_fine;
    const char *what;
  } rules[] = {
      {target->shard_size == 0 || is_folder, "shard_size"},
      {target->world == 0 || format->caps.ranks, "world"},
      {target->stage <= format->caps.stages, "stage"},
      {target->zstd_level == 0 || (format->caps.zstd && target->zstd_level <= CKPT_MAX_ZSTD_LEVEL), "zstd_level"},
      {strcmp(verb->name, "join") != 0 || !is_folder, "verb"},
      {strcmp(verb->name, "consolidate") != 0 || !format->caps.ranks, "verb"}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (!rules[i].is_fine)
      return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records a %s that cannot be meant for %s %s", rules[i].what,
                       format->name, is_folder ? "folders" : "files");
  return CKPT_OK;
}

ckpt_status ckpt_recorded_check(const ckpt_recorded *r, ckpt_error *err) {
  const struct verb *verb = NULL;
  bool has_graph = false;
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (strcmp(r->request.verb, verbs[i].name) == 0) verb = &verbs[i];
  if (verb == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (%.80s)",
                     r->request.verb);
  CKPT_TRY(check_options(r, verb, err));
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    const ckpt_format *format = ckpt_format_find(r->targets[i].to);
    has_graph = has_graph || (format != NULL && format->caps.graphs);
    CKPT_TRY(check_target(r, verb, &r->targets[i], err));
  }
  const ckpt_convert_options *options = &r->options;
  if (!has_graph && (options->external_data || options->link || options->graph != NULL))
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records %s, and no output is an ONNX model",
                     options->external_data ? "external_data"
                     : options->link        ? "link"
                                            : "graph");
  return CKPT_OK;
}
