/* replay.c - a receipt's plan rebuilt and run into the digest only, and compared with what was recorded; recorded.c
 * reads the receipt. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/masters.h"
#include "libckpt/index/overlap.h"
#include "libckpt/io/source.h"
#include "libckpt/recipe/compare/hash.h"
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/convert/updates.h"
#include "libckpt/recipe/replay/inputs.h"
#include "libckpt/run/run.h"

typedef ckpt_recorded recorded;
typedef ckpt_recorded_output recorded_output;

/* ---- outputs ----------------------------------------------------------------------------------------------------- */

/* The content of what is at path, if it has one. */
static ckpt_status digest_at(const char *path, const ckpt_run_options *run, recorded_output *now, ckpt_error *err) {
  const ckpt_hash_options options = {.struct_size = sizeof options, .run = run};
  const ckpt_open_options open = {.struct_size = sizeof open, .allow_corrupt = true};
  ckpt_index *index = NULL;
  ckpt_error why = {0};
  ckpt_status status = ckpt_open(&index, path, &open, &why);
  if (status == CKPT_OK) status = ckpt_hash(index, &options, &now->digest, &why);
  ckpt_index_free(index);
  now->has_digest = status == CKPT_OK;
  if (status == CKPT_ENOMEM || status == CKPT_ECANCELED) return ckpt_fail_as(err, status, NULL, NULL, &why);
  return CKPT_OK;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

static bool is_same_content(const recorded_output *a, const recorded_output *b) {
  return a->has_digest && b->has_digest && memcmp(&a->digest, &b->digest, sizeof a->digest) == 0;
}

/* The one output that has the content of what is at path; where several or none have it, the one of these that is
 * called so. False: none, or more than one. */
static bool find_moved(const recorded *r, const char *path, const recorded_output *now, uint32_t *number) {
  uint32_t n_equal = 0, n_named = 0, named = 0;
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    if (!is_same_content(&r->outputs[i], now)) continue;
    *number = i;
    n_equal++;
  }
  if (n_equal == 1) return true;
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    if (n_equal != 0 && !is_same_content(&r->outputs[i], now)) continue;
    if (strcmp(last_name(r->targets[i].path), last_name(path)) != 0) continue;
    named = i;
    n_named++;
  }
  *number = named;
  return n_named == 1;
}

/* Number of the output that path means. */
static ckpt_status find_output(recorded *r, const char *path, const ckpt_run_options *run, uint32_t *number,
                               ckpt_error *err) {
  char here[PATH_MAX] = "the current folder", names[256] = "";
  uint32_t n = r->request.n_targets;
  *number = 0;
  if (n == 1) return CKPT_OK; /* it may have been moved */
  for (; *number < n; ++*number)
    if (ckpt_is_same_path(r->targets[*number].path, path)) return CKPT_OK;
  for (*number = 0; *number < n; ++*number) {
    const char *beside = ckpt_replay_beside(r, r->targets[*number].path);
    if (beside == NULL) return ckpt_recorded_full(r, err);
    if (r->targets[*number].path[0] != '/' && ckpt_is_same_path(beside, path)) return CKPT_OK;
  }
  recorded_output now = {0};
  CKPT_TRY(digest_at(path, run, &now, err));
  if (find_moved(r, path, &now, number)) return CKPT_OK;
  for (uint32_t i = 0; i < n && strlen(names) + 2 < sizeof names; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i == 0 ? "" : ", ", r->targets[i].path);
  (void)!getcwd(here, sizeof here);
  return ckpt_fail(
      err, CKPT_ENOTFOUND, r->path, NULL,
      "has %" PRIu32
      " outputs (%s), and neither the path of %s, from %s or from the receipt's folder, nor its content tells "
      "which of them it is",
      n, names, path, here);
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* A tensor as it is now. */
typedef struct present {
  const char *name;
  ckpt_digest digest;
  const ckpt_tensor *source, *made; /* of a replay: what of the input it is made from, what it becomes; else NULL */
  uint64_t n_underflow;
  ckpt_quantize_told told; /* of a replay's quantized output, else zero */
  ckpt_recorded_figures figures;
} present;

static int compare_names(const void *a, const void *b) {
  return strcmp(((const present *)a)->name, ((const present *)b)->name);
}

/* Tensors as they are now, in byte order of names, to be met by those that the receipt lists. */
typedef struct comparison {
  const present *entries;
  bool *is_met;
  size_t n;
  const ckpt_index *index; /* whose places the entries are; of a replay: NULL */
  const ckpt_recorded *r;
  uint32_t output;
  const char *file, *whose;
  const ckpt_replay_reporter *to;
} comparison;

static const char *or_nothing(const char *name) { return name[0] == '\0' ? "nothing" : name; }

static const char *or_empty(const char *text) { return text == NULL ? "" : text; }

/* Why it has its type: "tensor_types instead of Q6_K, wanted Q4_K, with importance". */
static void compare_told(const comparison *c, const ckpt_recorded_tensor *then, const ckpt_quantize_told *now) {
  const struct {
    const char *decided_by, *instead_of, *wanted, *importance;
  } told[2] = {{then->decided_by, then->instead_of, then->wanted,
                !then->has_imatrix ? ""
                : then->imatrix    ? ", with importance"
                                   : ", without importance"},
               {or_empty(now->decided_by), or_empty(now->instead_of), or_empty(now->wanted),
                !now->is_quantized    ? ""
                : now->has_importance ? ", with importance"
                                      : ", without importance"}};
  if (strcmp(told[0].decided_by, told[1].decided_by) == 0 && strcmp(told[0].instead_of, told[1].instead_of) == 0 &&
      strcmp(told[0].wanted, told[1].wanted) == 0 && strcmp(told[0].importance, told[1].importance) == 0)
    return;
  char texts[2][160];
  for (size_t i = 0; i < 2; i++)
    snprintf(texts[i], sizeof texts[i], "%s%s%s%s%s%s", or_nothing(told[i].decided_by),
             told[i].instead_of[0] == '\0' ? "" : " instead of ", told[i].instead_of,
             told[i].wanted[0] == '\0' ? "" : ", wanted ", told[i].wanted, told[i].importance);
  ckpt_replay_say(c->to, c->file, then->name,
                  "the receipt says that its type was decided by %s, the replay decides by %s", texts[0], texts[1]);
}

/* The figures of a row as its receipt has them. */
static ckpt_recorded_figures figures_of(const ckpt_row *row) {
  ckpt_update_figures now;
  ckpt_recorded_figures figures = {-1, -1, UINT64_MAX};
  if (!ckpt_updates_of(row, &now)) return figures;
  const double relative = ckpt_update_relative(&now);
  if (isfinite(now.norm)) figures.norm = now.norm;
  if (isfinite(relative)) figures.relative = relative;
  if (now.n_rounded != 0) figures.n_unchanged = now.n_unchanged;
  return figures;
}

static bool same_figures(const ckpt_recorded_figures *a, const ckpt_recorded_figures *b) {
  return a->norm == b->norm && a->relative == b->relative && a->n_unchanged == b->n_unchanged;
}

/* "an update of norm 0.5, 0.01 of its base's, 12 elements unchanged" */
static const char *print_figures(const ckpt_recorded_figures *figures, char *out, size_t n_bytes) {
  char relative[64] = "", unchanged[64] = "";
  if (figures->norm < 0) return "no update";
  if (figures->relative >= 0) snprintf(relative, sizeof relative, ", %.9g of its base's", figures->relative);
  if (figures->n_unchanged != UINT64_MAX)
    snprintf(unchanged, sizeof unchanged, ", %" PRIu64 " element%s unchanged", figures->n_unchanged,
             ckpt_plural(figures->n_unchanged));
  snprintf(out, n_bytes, "an update of norm %.9g%s%s", figures->norm, relative, unchanged);
  return out;
}

static void say_figures(const comparison *c, const ckpt_recorded_tensor *then, const ckpt_recorded_figures *now) {
  char texts[2][200];
  ckpt_replay_say(c->to, c->file, then->name, "the receipt says %s, the replay %s",
                  print_figures(&then->figures, texts[0], sizeof texts[0]),
                  print_figures(now, texts[1], sizeof texts[1]));
}

/* What was decided then against what the replay does. is_same: the values are. */
static void compare_decision(const comparison *c, const ckpt_recorded_tensor *then, const present *now, bool is_same) {
  const char *source = now->source == NULL ? "" : now->source->name;
  const char *from = now->source == NULL ? "" : ckpt_dtype_name((ckpt_dtype)now->source->dtype);
  const char *to = ckpt_dtype_name((ckpt_dtype)now->made->dtype);
  if (strcmp(then->source, source) != 0 || strcmp(then->from, from) != 0 || strcmp(then->to, to) != 0)
    ckpt_replay_say(c->to, c->file, then->name,
                    "the receipt says that it is %s of %s as %s, the replay makes it of %s of %s as %s",
                    or_nothing(then->from), or_nothing(then->source), or_nothing(then->to), or_nothing(from),
                    or_nothing(source), to);
  else if (then->n_bytes != now->made->n_bytes || then->n_underflow != now->n_underflow)
    ckpt_replay_say(c->to, c->file, then->name,
                    "the receipt says %" PRIu64 " byte%s and %" PRIu64 " value%s lost to zero, the replay %" PRIu64
                    " and %" PRIu64,
                    then->n_bytes, ckpt_plural(then->n_bytes), then->n_underflow, ckpt_plural(then->n_underflow),
                    now->made->n_bytes, now->n_underflow);
  else if (is_same && !same_figures(&then->figures, &now->figures))
    say_figures(c, then, &now->figures);
  else
    compare_told(c, then, &now->told);
}

static void compare_tensor(void *arg, const ckpt_recorded_tensor *tensor) {
  const comparison *c = arg;
  const char *name = tensor->name;
  const bool is_replay = c->index == NULL; /* which tells the list's own faults, once */
  if (!tensor->digest.has_digest) {
    if (is_replay) ckpt_replay_say(c->to, c->file, name, "the receipt lists it without a digest");
    return;
  }
  size_t low = 0, high = c->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(c->entries[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  bool is_found = low < c->n && strcmp(c->entries[low].name, name) == 0;
  const ckpt_tensor *named = is_found || c->index == NULL ? NULL : ckpt_index_find(c->index, name);
  if (named != NULL) low = (size_t)ckpt_index_place(c->index, named->name); /* the reader calls it by another name */
  if (!is_found && named == NULL) {
    ckpt_replay_say(c->to, c->file, name, "the receipt lists it, %s does not have it", c->whose);
    return;
  }
  if (c->is_met[low] && is_replay) ckpt_replay_say(c->to, c->file, name, "the receipt lists it twice");
  c->is_met[low] = true;
  const bool is_same = memcmp(&c->entries[low].digest, &tensor->digest.digest, sizeof tensor->digest.digest) == 0;
  if (!is_same)
    ckpt_replay_say(c->to, c->file, name, "%s has other values, dtype or shape than the receipt says", c->whose);
  if (c->entries[low].made != NULL) compare_decision(c, tensor, &c->entries[low], is_same);
}

/* ---- side files -------------------------------------------------------------------------------------------------- */

/* What a run puts into the folder of an output beside it: the receipt, other outputs. */
static bool is_beside(void *arg, const char *name) {
  const comparison *c = arg;
  char path[PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", c->file, name) >= sizeof path) return false;
  bool is_one = ckpt_is_same_path(path, c->r->path);
  for (uint32_t i = 0; i < c->r->request.n_targets && !is_one; i++)
    is_one = i != c->output && ckpt_is_same_path(path, c->r->targets[i].path);
  return is_one;
}

static void tell_side(void *arg, const ckpt_error *difference) {
  const comparison *c = arg;
  ++*c->to->n_told;
  c->to->report(c->to->arg, difference);
}

/* Those of a plan's output that has run, or of what stands there now. */
static ckpt_status compare_side_files(comparison *c, const ckpt_side_sums *then, const ckpt_layout *layout,
                                      const ckpt_index *index, const ckpt_run_options *run, ckpt_error *err) {
  ckpt_side_sums now = {0};
  ckpt_status status = layout != NULL ? ckpt_side_sums_written(&now, layout, err)
                                      : ckpt_side_sums_take(&now, index, then, false, run, err);
  const ckpt_side_comparison both = {.then = then,
                                     .now = &now,
                                     .record = "the receipt",
                                     .whose = c->whose,
                                     .folder = c->file,
                                     .is_excused = is_beside,
                                     .report = tell_side,
                                     .arg = c};
  if (status == CKPT_OK) ckpt_side_sums_compare(&both);
  ckpt_side_sums_free(&now);
  return status;
}

/* ---- whole outputs ----------------------------------------------------------------------------------------------- */

/* What is there now: tensors in byte order of names, and where the side files are. */
typedef struct found_output {
  const present *entries; /* of what stands there: numbered as the index's places */
  size_t n;
  const ckpt_layout *layout; /* of a replay */
  const ckpt_index *index;   /* of what stands there */
} found_output;

/* Whether an entry that is not listed is a second copy of one that is, under the name that the config ties to it: some
 * formats write one tensor under each of its names. */
static bool is_tied_copy(const found_output *found, const bool *is_met, size_t number) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; found->index != NULL && ckpt_arch_tied_pair(found->index, i, &kept, &tied); i++) {
    if (ckpt_index_place(found->index, tied->name) != (int64_t)number) continue;
    int64_t place = ckpt_index_place(found->index, kept->name);
    const ckpt_digest *a = &found->entries[number].digest, *b = &found->entries[place].digest;
    return is_met[place] && memcmp(a, b, sizeof *a) == 0;
  }
  return false;
}

/* Compares with what the receipt lists of an output, in one more pass over it. *has_side: it lists side files. */
static ckpt_status compare_output(recorded *r, uint32_t output, const found_output *found, const char *file,
                                  const char *whose, const ckpt_run_options *run, const ckpt_replay_reporter *to,
                                  bool *has_side, ckpt_error *err) {
  comparison c = {.entries = found->entries,
                  .n = found->n,
                  .index = found->index,
                  .r = r,
                  .output = output,
                  .file = file,
                  .whose = whose,
                  .to = to};
  ckpt_side_sums then = {0};
  c.is_met = calloc(found->n + 1, sizeof *c.is_met);
  CKPT_TRY_ALLOC(c.is_met, err);
  ckpt_status status = ckpt_recorded_read(r, output, compare_tensor, &c, &then, has_side, err);
  size_t n_left = 0;
  for (size_t i = 0; i < found->n; i++) n_left += !c.is_met[i] && !is_tied_copy(found, c.is_met, i);
  if (status == CKPT_OK && n_left != 0)
    ckpt_replay_say(to, file, NULL, "%s has %zu tensor%s that the receipt does not list", whose, n_left,
                    ckpt_plural(n_left));
  if (status == CKPT_OK && *has_side) status = compare_side_files(&c, &then, found->layout, found->index, run, err);
  ckpt_side_sums_free(&then);
  free(c.is_met);
  return status;
}

/* What the receipt says of an output as a whole. Other parts, or parts that are not known to be the same (is_same is
 * false), make files of another size, and so do links from another folder; how long compressed items are is not known
 * to a replay, which compresses nothing. */
static void compare_whole(const recorded_output *then, const ckpt_output *now, bool is_same, const char *file,
                          const ckpt_replay_reporter *to) {
  uint64_t n_bytes = ckpt_output_bytes(now);
  bool is_sized = is_same;
  for (uint32_t i = 0; i < now->layout.n_files; i++) is_sized = is_sized && !now->layout.files[i].has_encoder;
  if (!then->has_digest || memcmp(&then->digest, &now->digest, sizeof then->digest) != 0)
    ckpt_replay_say(to, file, NULL, "the replay gives another content digest than the receipt says");
  if (then->names != NULL && (now->read_names == NULL || strcmp(then->names, now->read_names) != 0))
    ckpt_replay_say(to, file, NULL, "its digest is over names of %.80s, and the replay's over names of %.80s",
                    then->names, now->read_names == NULL ? "nobody" : now->read_names);
  if (then->n_tensors != now->described->n_tensors)
    ckpt_replay_say(to, file, NULL, "the receipt says %" PRIu64 " tensor%s, the replay makes %" PRIu32, then->n_tensors,
                    ckpt_plural(then->n_tensors), now->described->n_tensors);
  if (is_sized && then->n_bytes != n_bytes)
    ckpt_replay_say(to, file, NULL,
                    "the receipt says that its files have %" PRIu64 " byte%s, the replay makes %" PRIu64, then->n_bytes,
                    ckpt_plural(then->n_bytes), n_bytes);
}

/* Whether outputs say where the inputs' data are, from their own folders. */
static bool has_links(const recorded *r) {
  for (size_t i = 0; i < r->values.n; i++)
    if (ckpt_format_option_known(r->values.items[i].name, NULL)->links &&
        ckpt_format_value_is_given(&r->values.items[i]))
      return true;
  return false;
}

static ckpt_status compare_replayed(recorded *r, const ckpt_plan *plan, uint32_t number, const ckpt_replay_reporter *to,
                                    ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  bool has_side;
  for (uint32_t k = 0; k < plan->n_outputs && status == CKPT_OK; k++) {
    const ckpt_index *described = plan->outputs[k].described;
    const size_t n_before = *to->n_told;
    present *entries = calloc((size_t)described->n_tensors + 1, sizeof *entries);
    CKPT_TRY_ALLOC(entries, err);
    for (uint32_t i = 0; i < described->n_tensors; i++) {
      const ckpt_tensor *made = &described->tensors[i];
      const ckpt_row *row = &plan->rows[made->details->origin];
      const ckpt_tensor *source = ckpt_receipt_source(row->expr);
      entries[i] =
          (present){made->name, row->digest, source, made, ckpt_row_stats(row).n_underflow, {0}, figures_of(row)};
      if (r->targets[k].preset != NULL)
        entries[i].told =
            ckpt_quantize_tell(plan->outputs[k].quantized, described->objects_of, made->details->like - 1);
    }
    qsort(entries, described->n_tensors, sizeof *entries, compare_names);
    const found_output found = {.entries = entries, .n = described->n_tensors, .layout = &plan->outputs[k].layout};
    status = compare_output(r, k, &found, r->targets[k].path, "the replay", NULL, to, &has_side, err);
    free(entries);
    const bool is_placed = !has_links(r) || (r->request.folder != NULL && k == number);
    if (status == CKPT_OK)
      compare_whole(&r->outputs[k], &plan->outputs[k], has_side && *to->n_told == n_before && is_placed,
                    r->targets[k].path, to);
  }
  return status;
}

/* ---- running ----------------------------------------------------------------------------------------------------- */

/* An argument that cannot be meant is what the receipt says, not what the caller gave. */
static ckpt_status blame_receipt(const recorded *r, ckpt_status status, const ckpt_error *why, ckpt_error *err) {
  if (status != CKPT_EINVAL) return ckpt_fail_as(err, status, why->file, why->tensor, why);
  char text[sizeof why->message];
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records what cannot be meant: %s",
                   ckpt_error_message(why, NULL, text, sizeof text));
}

/* The folder that links of what is at path are from, if it is there. */
static ckpt_status find_link_folder(recorded *r, const char *path, ckpt_error *err) {
  char real[PATH_MAX];
  const size_t n = (size_t)(last_name(path) - path);
  const char *folder = n == 0 ? "." : ckpt_arena_text(&r->arena, path, n);
  if (folder == NULL) return ckpt_recorded_full(r, err);
  if (realpath(folder, real) == NULL) return CKPT_OK;
  r->request.folder = ckpt_arena_copy(&r->arena, real);
  return r->request.folder == NULL ? ckpt_recorded_full(r, err) : CKPT_OK;
}

/* The plan of then. */
static ckpt_status plan_once(recorded *r, ckpt_plan **plan, ckpt_error *err) {
  ckpt_error why = {0};
  CKPT_TRY(ckpt_plan_new(plan, err));
  ckpt_status status = ckpt_convert_plan(*plan, &r->request, &why);
  return status == CKPT_OK ? ckpt_receipt_plan(*plan, &r->request, err) : blame_receipt(r, status, &why, err);
}

/* Its links are from the folder where the output stands now; it has none where the inputs do not lie there. */
static ckpt_status plan_again(recorded *r, ckpt_plan **plan, const char *output, const ckpt_run_options *run,
                              ckpt_error *err) {
  if (has_links(r)) CKPT_TRY(find_link_folder(r, output, err));
  CKPT_TRY(plan_once(r, plan, err));
  if (r->request.folder == NULL) return CKPT_OK;
  ckpt_error why = {0};
  ckpt_status status = ckpt_plan_prepare(*plan, run, &why);
  if (status == CKPT_OK) return CKPT_OK;
  if (status != CKPT_EUNSUPPORTED) return ckpt_fail_as(err, status, why.file, why.tensor, &why);
  ckpt_plan_free(*plan);
  *plan = NULL;
  r->request.folder = NULL;
  return plan_once(r, plan, err);
}

/* Runs it: every row goes into its digest and nowhere else. number: of the output that stands at the path `output`. */
static ckpt_status replay(recorded *r, const char *output, uint32_t number, const ckpt_run_options *run,
                          const ckpt_replay_reporter *to, ckpt_error *err) {
  ckpt_plan *plan = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(plan_again(r, &plan, output, run, err));
  CKPT_TRY_GOTO(ckpt_convert_run(plan, &r->request, run, NULL, err));
  CKPT_TRY_GOTO(ckpt_replay_compare_inputs(r, plan, to, err));
  status = compare_replayed(r, plan, number, to, err);
done:
  ckpt_plan_free(plan);
  return status;
}

/* Counts the recorded names that an index has. */
typedef struct name_count {
  const ckpt_index *index;
  uint64_t n, n_found;
} name_count;

static void count_name(void *arg, const ckpt_recorded_tensor *tensor) {
  name_count *count = arg;
  count->n++;
  count->n_found += ckpt_index_find(count->index, tensor->name) != NULL;
}

/* Opens what stands at the output, with parameters as stored. A receipt has the names that the rows had: formats with
 * a structure of their own (torch, dcp) give them back when they are read as a model's, others as stored names too, and
 * only so where a row was given a wrapper's name. Of the two the one that has more of the same names. */
static ckpt_status open_output(recorded *r, ckpt_index **out, const char *path, uint32_t number, ckpt_error *err) {
  uint64_t least = UINT64_MAX;
  *out = NULL;
  for (int i = 0; i < 2 && least != 0; i++) {
    const ckpt_open_options open = {.struct_size = sizeof open,
                                    .stored_names = i == 1,
                                    .weights = CKPT_WEIGHTS_STORED,
                                    .allow_corrupt = true}; /* its values are compared */
    ckpt_index *index;
    CKPT_TRY(ckpt_open(&index, path, &open, err));
    name_count count = {.index = index};
    ckpt_status status = ckpt_recorded_read(r, number, count_name, &count, NULL, NULL, err);
    uint64_t n_more = index->n_tensors > count.n_found ? index->n_tensors - count.n_found : 0;
    uint64_t n_other = count.n - count.n_found + n_more;
    bool is_better = status == CKPT_OK && n_other < least;
    if (is_better) {
      ckpt_index_free(*out);
      *out = index;
      least = n_other;
    } else {
      ckpt_index_free(index);
    }
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* What stands at the output now. */
static ckpt_status look(recorded *r, const char *path, uint32_t number, const ckpt_run_options *run,
                        const ckpt_replay_reporter *to, bool *has_side, ckpt_error *err) {
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all"};
  ckpt_index *index = NULL;
  ckpt_hashing hashing = {0};
  present *entries = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(open_output(r, &index, path, number, err));
  CKPT_TRY_GOTO(ckpt_hashing_start(&hashing, index, &hash, err));
  const ckpt_proof proof = ckpt_hashing_proof(&hashing);
  CKPT_TRY_GOTO(ckpt_prove(&proof, run, NULL, NULL, err));
  entries = calloc((size_t)index->n_tensors + 1, sizeof *entries);
  if (entries == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    entries[i] = (present){.name = index->tensors[index->by_name[i]].name, .digest = hashing.digests[i]};
  const found_output found = {.entries = entries, .n = index->n_tensors, .index = index};
  CKPT_TRY_GOTO(compare_output(r, number, &found, path, "the output", run, to, has_side, err));
  status = ckpt_source_unchanged(index->source, err);
done:
  free(entries);
  ckpt_hashing_end(&hashing);
  ckpt_index_free(index);
  return status;
}

ckpt_status ckpt_receipt_replay(const char *receipt, const char *output, const char *const *moved,
                                const ckpt_run_options *run, ckpt_receipt_problem *report, void *arg,
                                bool *has_side_files, ckpt_error *err) {
  recorded r;
  size_t n_told = 0;
  const ckpt_replay_reporter to = {report, arg, &n_told};
  uint32_t number;
  bool has_side = false;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_recorded_open(&r, receipt, err));
  r.moved = moved;
  CKPT_TRY_GOTO(ckpt_replay_check_moved(&r, err));
  ckpt_run_options second = {.struct_size = sizeof second};
  if (run != NULL) second = *run;
  second.trace = NULL; /* that is the replay's */
  ckpt_error why = {0};
  status = ckpt_replay_open_inputs(&r, &second, &why);
  CKPT_TRY_GOTO(status == CKPT_OK ? status : blame_receipt(&r, status, &why, err));
  CKPT_TRY_GOTO(find_output(&r, output, &second, &number, err));
  if (strcmp(r.version, ckpt_version()) != 0)
    ckpt_replay_remark(&to, receipt, "was written by version %s, and is run again by %s", r.version, ckpt_version());
  CKPT_TRY_GOTO(replay(&r, output, number, run, &to, err));
  ckpt_recorded_close_inputs(&r); /* what was replayed is not needed beside what is there now */
  status = look(&r, output, number, &second, &to, &has_side, err);
  if (has_side_files != NULL) *has_side_files = has_side;
done:
  ckpt_recorded_close(&r);
  return status;
}
