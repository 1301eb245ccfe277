/* inputs.c - see inputs.h. */
#include "libckpt/recipe/replay/inputs.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"

typedef ckpt_recorded recorded;

static void tell(const ckpt_replay_reporter *to, ckpt_status kind, const char *file, const char *tensor,
                 const char *format, va_list args) {
  ckpt_error problem = {0};
  char text[sizeof problem.message];
  vsnprintf(text, sizeof text, format, args);
  (void)ckpt_fail(&problem, CKPT_EDIFFERENT, file, tensor, "%s", text);
  problem.status = kind;
  *to->n_told += kind != CKPT_OK;
  to->report(to->arg, &problem);
}

void ckpt_replay_say(const ckpt_replay_reporter *to, const char *file, const char *tensor, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(to, CKPT_EDIFFERENT, file, tensor, format, args);
  va_end(args);
}

void ckpt_replay_remark(const ckpt_replay_reporter *to, const char *file, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(to, CKPT_OK, file, NULL, format, args);
  va_end(args);
}

/* ---- where they lie ---------------------------------------------------------------------------------------------- */

char *ckpt_replay_beside(recorded *r, const char *path) {
  const char *slash = strrchr(r->path, '/');
  return ckpt_arena_printf(&r->arena, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - r->path), r->path, path);
}

/* What follows `path=` in a text; NULL: it is of another path. */
static const char *moved_to(const char *text, const char *path) {
  const size_t n = strlen(path);
  return strncmp(text, path, n) == 0 && text[n] == '=' && text[n + 1] != '\0' ? text + n + 1 : NULL;
}

/* Where the caller says that an input lies now, or where it was. */
static const char *path_now(const recorded *r, const char *path) {
  for (const char *const *text = r->moved; text != NULL && *text != NULL; text++)
    if (moved_to(*text, path) != NULL) return moved_to(*text, path);
  return path;
}

/* The path of input i, NULL where there is none of its kind; false past the last. */
static bool input_at(const recorded *r, size_t i, const char **path) {
  const ckpt_further_inputs *further = &r->request.further;
  const size_t first_adapter = 2 + (size_t)further->n;
  if (i >= first_adapter + r->n_adapters) return false;
  *path = i == 0              ? r->options.input
          : i == 1            ? r->request.like_path
          : i < first_adapter ? further->items[i - 2].path
                              : r->adapters[i - first_adapter].path;
  return true;
}

static size_t count_moves(const recorded *r, const char *path) {
  size_t n = 0;
  for (const char *const *text = r->moved; text != NULL && *text != NULL; text++) n += moved_to(*text, path) != NULL;
  return n;
}

ckpt_status ckpt_replay_check_moved(const recorded *r, ckpt_error *err) {
  ckpt_name_list names = {.n = 0};
  const char *path;
  for (size_t i = 0; input_at(r, i, &path); i++)
    if (path != NULL) ckpt_name_list_add(&names, path);
  for (const char *const *text = r->moved; text != NULL && *text != NULL; text++) {
    bool is_one = false;
    for (size_t i = 0; input_at(r, i, &path) && !is_one; i++) is_one = path != NULL && moved_to(*text, path) != NULL;
    if (!is_one)
      return ckpt_fail_option(err, CKPT_ENOTFOUND, r->path, "moved", "'%.400s' begins with none of its inputs (%s)",
                              *text, names.text);
  }
  for (size_t i = 0; input_at(r, i, &path); i++)
    if (path != NULL && count_moves(r, path) > 1)
      return ckpt_fail_option(err, CKPT_EINVAL, r->path, "moved", "says more than once where %.400s is", path);
  return CKPT_OK;
}

/* Opens an input by the path that the run was given: where the caller says that it lies now, else from the current
 * folder, as it was then, else from the receipt's own. *at: which of them. */
static ckpt_status open_input_at(recorded *r, ckpt_index **out, const char *path, const char **at,
                                 const ckpt_open_options *open, ckpt_error *err) {
  char here[PATH_MAX] = "the current folder";
  struct stat found;
  const char *now = *at = path_now(r, path);
  if (now != path || path[0] == '/' || stat(path, &found) == 0) {
    ckpt_error why = {0};
    ckpt_status status = ckpt_open(out, now, open, &why);
    if (status == CKPT_OK) return status;
    status = ckpt_fail_as(err, status, why.file, why.tensor, &why);
    return status == CKPT_ENOTFOUND && now == path ? ckpt_advise(status, err, "%moved=OLD=NEW says where it is now")
                                                   : status;
  }
  char *beside = ckpt_replay_beside(r, path);
  if (beside == NULL) return ckpt_recorded_full(r, err);
  if (stat(beside, &found) == 0) {
    *at = beside;
    return ckpt_open(out, beside, open, err);
  }
  ckpt_error why = {0};
  ckpt_status status = ckpt_open(out, path, open, &why); /* it may be a name in the Hugging Face cache */
  if (status != CKPT_ENOTFOUND) return ckpt_fail_as(err, status, why.file, why.tensor, &why);
  (void)!getcwd(here, sizeof here);
  return ckpt_advise(ckpt_fail(err, status, r->path, NULL,
                               "its input %s is not there, looked up from %s and from the receipt's folder (run it "
                               "where the receipt was written)",
                               path, here),
                     err, "%moved=OLD=NEW says where it is now");
}

static ckpt_status open_input(recorded *r, ckpt_index **out, const char *path, const ckpt_open_options *open,
                              ckpt_error *err) {
  const char *at;
  return open_input_at(r, out, path, &at, open, err);
}

/* Merges the adapters as the run did. */
static ckpt_status merge(recorded *r, ckpt_error *err) {
  const ckpt_open_options stored = {.struct_size = sizeof stored, .stored_names = true};
  ckpt_adapter_request *requests = ckpt_arena_array(&r->arena, r->n_adapters, sizeof *requests);
  if (requests == NULL) return ckpt_recorded_full(r, err);
  for (uint32_t i = 0; i < r->n_adapters; i++) {
    ckpt_index *found = NULL;
    CKPT_TRY(open_input_at(r, &found, r->adapters[i].path, &requests[i].path, &stored, err));
    ckpt_index_free(found);
    requests[i].scale = r->adapters[i].scale;
  }
  r->base = r->from;
  r->from = NULL;
  CKPT_TRY(ckpt_adapters_open(&r->opened, r->base, requests, r->n_adapters, &r->merge, err));
  r->request.adapters = r->opened;
  return ckpt_adapters_merge(&r->from, r->opened, err);
}

/* What options name: none of it is opened as the model is. */
static ckpt_status open_further(recorded *r, ckpt_error *err) {
  ckpt_further_inputs *further = &r->request.further;
  for (uint32_t i = 0; i < further->n; i++) {
    ckpt_further_input *input = &further->items[i];
    const ckpt_open_options open = {.struct_size = sizeof open,
                                    .stored_names = input->is_stored || r->options.stored_names,
                                    .allow_corrupt = r->options.allow_corrupt};
    CKPT_TRY(open_input(r, &input->index, input->path, &open, err));
  }
  const ckpt_index *graph = ckpt_further_index(further, "graph");
  r->quantize.imatrix = ckpt_further_index(further, "imatrix");
  if (graph == NULL || graph->graph != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, graph->path, NULL, "has no graph now");
}

/* Extracts the adapter as the run did. */
static ckpt_status extract(recorded *r, const ckpt_run_options *run, ckpt_error *err) {
  const char *folder = getenv("TMPDIR");
  const ckpt_index *tuned = ckpt_further_index(&r->request.further, "tuned");
  r->extract.base_name = r->options.input;
  r->base = r->from;
  r->from = NULL;
  CKPT_TRY(ckpt_extract_open(&r->extraction, r->base, tuned, &r->extract, err));
  r->request.extraction = r->extraction;
  CKPT_TRY(ckpt_extract_run(r->extraction, folder == NULL ? "/tmp" : folder, run, err));
  return ckpt_extract_adapter(&r->from, r->extraction, err);
}

ckpt_status ckpt_replay_open_inputs(recorded *r, const ckpt_run_options *run, ckpt_error *err) {
  r->options.struct_size = sizeof r->options;
  ckpt_open_options open = {
      .struct_size = sizeof open, .stored_names = r->options.stored_names, .allow_corrupt = r->options.allow_corrupt};
  if (r->request.like_path != NULL) CKPT_TRY(open_input(r, &r->like, r->request.like_path, &open, err));
  open.like = r->like;
  open.weights = r->given.weights;
  open.naming_revision = ckpt_naming_revision(r->input_names);
  CKPT_TRY(open_input(r, &r->from, r->options.input, &open, err));
  if (r->from->stored_form != NULL && strcmp(r->input_names, "stored") == 0) { /* before its family was known */
    ckpt_index_free(r->from);
    r->from = NULL;
    open.stored_names = true;
    CKPT_TRY(open_input(r, &r->from, r->options.input, &open, err));
  }
  if (r->n_adapters != 0) CKPT_TRY(merge(r, err));
  CKPT_TRY(open_further(r, err));
  if (r->extracts) CKPT_TRY(extract(r, run, err));
  r->request.from = r->from;
  r->request.like = r->like;
  r->request.options = &r->options;
  r->request.discards = true;
  return CKPT_OK;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* Tells where an input's digest is not that of what is there now, in the words for it. */
static void compare_digest(const ckpt_replay_reporter *to, const ckpt_recorded_output *then, const ckpt_digest *now,
                           const char *file, const char *what) {
  char text[80];
  if (!then->has_digest)
    ckpt_replay_say(to, file, NULL, "the receipt has no digest of it");
  else if (memcmp(&then->digest, now, sizeof *now) != 0)
    ckpt_replay_say(to, file, NULL, "%s (now %s)", what, ckpt_digest_text(now, text));
}

/* The model itself. */
static ckpt_status compare_model(const recorded *r, const ckpt_plan *plan, const ckpt_replay_reporter *to,
                                 ckpt_error *err) {
  const ckpt_index *base = ckpt_receipt_base(&r->request);
  const char *include = ckpt_receipt_include(plan, &r->request);
  ckpt_digest now;
  char then_text[80], now_text[80];
  CKPT_TRY(ckpt_receipt_input(plan, &r->request, &now, err));
  if (strcmp(r->input_names, base->names) != 0)
    ckpt_replay_say(to, base->path, NULL, "its tensors were named by %s, and are now by %s", r->input_names,
                    base->names);
  if ((r->given.weights == NULL) != (base->weights == NULL) ||
      (r->given.weights != NULL && strcmp(r->given.weights, base->weights) != 0))
    ckpt_replay_say(to, base->path, NULL, "the receipt takes %.80s weights, and the replay %s",
                    r->given.weights == NULL ? "its only" : r->given.weights,
                    base->weights == NULL ? "its only" : base->weights);
  if (strcmp(r->input_format, base->format) != 0)
    ckpt_replay_say(to, base->path, NULL, "the receipt says that it is %.80s, and it is %s", r->input_format,
                    base->format);
  if (strcmp(r->input_include, include) != 0)
    ckpt_replay_say(to, base->path, NULL, "the receipt says that its digest is of %.80s, the replay takes %s",
                    r->input_include, include);
  if (!r->input.has_digest)
    ckpt_replay_say(to, base->path, NULL, "the receipt has no digest of it");
  else if (memcmp(&r->input.digest, &now, sizeof now) != 0)
    ckpt_replay_say(to, base->path, NULL, "the input has changed (then %s, now %s)",
                    ckpt_digest_text(&r->input.digest, then_text), ckpt_digest_text(&now, now_text));
  return CKPT_OK;
}

/* What adapters did against what they do, in the order of both. */
typedef struct effects {
  const recorded *r;
  const ckpt_replay_reporter *to;
  size_t n; /* that the receipt has */
  bool is_out_of_step;
} effects;

static void compare_effect(void *arg, const ckpt_recorded_effect *then) {
  effects *e = arg;
  ckpt_adapter_effect now;
  ckpt_adapter_info info;
  if (!ckpt_adapters_effect(e->r->opened, e->n++, &now) || e->is_out_of_step) return; /* counted */
  const bool is_one = ckpt_adapters_at(e->r->opened, now.adapter, &info) && info.request == then->adapter;
  e->is_out_of_step = strcmp(then->name, now.name) != 0;
  if (e->is_out_of_step)
    ckpt_replay_say(e->to, e->r->path, then->name, "the receipt lists it where the replay merges %s", now.name);
  else if (!is_one || then->rank != now.rank || then->scale != now.scale)
    ckpt_replay_say(
        e->to, e->r->path, then->name,
        "the receipt says adapter %llu, rank %llu, scale %.9g, the replay adapter %u, rank %llu, scale %.9g",
        (unsigned long long)then->adapter, (unsigned long long)then->rank, then->scale, info.request,
        (unsigned long long)now.rank, now.scale);
}

static ckpt_status compare_adapters(recorded *r, const ckpt_replay_reporter *to, ckpt_error *err) {
  ckpt_adapter_info info;
  ckpt_adapter_effect effect;
  size_t n_told = *to->n_told, n = 0;
  for (uint32_t i = 0; ckpt_adapters_at(r->opened, i, &info); i++)
    compare_digest(to, &r->adapters[info.request].digest, &info.digest, info.path, "the adapter has changed");
  if (*to->n_told != n_told) return CKPT_OK; /* which may be why */
  effects both = {.r = r, .to = to};
  CKPT_TRY(ckpt_recorded_read_effects(r, compare_effect, &both, err));
  while (ckpt_adapters_effect(r->opened, n, &effect)) n++;
  if (both.n != n)
    ckpt_replay_say(to, r->path, NULL, "the receipt lists %zu change%s by adapters, the replay makes %zu", both.n,
                    ckpt_plural(both.n), n);
  return CKPT_OK;
}

ckpt_status ckpt_replay_compare_inputs(recorded *r, const ckpt_plan *plan, const ckpt_replay_reporter *to,
                                       ckpt_error *err) {
  ckpt_digest now;
  CKPT_TRY(compare_model(r, plan, to, err));
  if (r->opened != NULL) CKPT_TRY(compare_adapters(r, to, err));
  for (uint32_t i = 0; i < r->request.further.n; i++) {
    const ckpt_further_input *input = &r->request.further.items[i];
    CKPT_TRY(ckpt_receipt_further(plan, &r->request, i, &now, err));
    for (uint32_t k = 0; k < r->n_further; k++)
      if (strcmp(r->further[k].field, input->field) == 0)
        compare_digest(to, &r->further[k].digest, &now, input->index->path, input->changed);
  }
  return CKPT_OK;
}
