/* verify.c - findings, and what is found in structure, values, digests and files; config.c has the rest. */
#include "libckpt/recipe/verify/verify.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/format/format.h"
#include "libckpt/index/masters.h"
#include "libckpt/index/overlap.h"
#include "libckpt/recipe/compare/stats.h"

typedef unsigned long long ull;

/* ---- structure -------------------------------------------------------------------------------------------------- */

static int compare_numbers(const void *x, const void *y) {
  const unsigned *a = x, *b = y;
  return (*a > *b) - (*a < *b);
}

/* Every number of the set that the files of weights belong to must be there: an index may well name fewer. Of what is
 * cut among ranks (DCP's shards) each rank has files of that set under its own prefix, and none needs all. Counts the
 * files that hold tensors. */
static ckpt_status check_numbered(ckpt_findings *findings, const ckpt_index *index, uint32_t *n_holding,
                                  ckpt_error *err) {
  uint32_t n_files = ckpt_source_count(index->source);
  const bool has_prefixes = ckpt_caps_of(index).ranks;
  unsigned number, total, n_total = 0, n_seen = 0, n_numbers = 0;
  size_t n_prefix, n_first = 0;
  const char *first = NULL;
  bool *holds = calloc((size_t)n_files + 1, sizeof *holds), is_mixed = false;
  unsigned *numbers = calloc((size_t)n_files + 1, sizeof *numbers);
  if (holds == NULL || numbers == NULL) {
    free(holds);
    free(numbers);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    for (uint32_t k = 0; k < index->tensors[i].n_extents; k++)
      if (index->tensors[i].extents[k].file < n_files) holds[index->tensors[i].extents[k].file] = true;
  for (uint32_t i = 0; i < n_files; i++) {
    const char *name = ckpt_path_name(ckpt_source_name(index->source, i));
    *n_holding += holds[i];
    if (!holds[i] || !ckpt_safetensors_numbered(name, &n_prefix, &number, &total)) continue;
    if (first == NULL) {
      first = name;
      n_first = n_prefix;
      n_total = total;
    }
    is_mixed = is_mixed || total != n_total;
    is_mixed = is_mixed || (!has_prefixes && (n_prefix != n_first || strncmp(name, first, n_prefix) != 0));
    numbers[n_seen++] = number;
  }
  qsort(numbers, n_seen, sizeof *numbers, compare_numbers);
  if (n_seen != 0 && numbers[n_seen - 1] >= n_total + (numbers[0] != 0)) is_mixed = true; /* sets begin with 1 or 0 */
  for (unsigned i = 0; i < n_seen; i++) n_numbers += i == 0 || numbers[i - 1] != numbers[i];
  free(holds);
  free(numbers);
  if (first == NULL) return CKPT_OK;
  if (is_mixed)
    return ckpt_findings_add(findings, err, CKPT_PROBLEM, index->path, NULL,
                             "its %u numbered files are not of one set (like %s)", n_seen, first);
  if (n_numbers < n_total && index->defects.n == 0) /* else it is told which are broken or missing */
    return ckpt_findings_add(findings, err, CKPT_PROBLEM, index->path, NULL,
                             "tensors come from %u of the %u numbered files (like %s)", n_numbers, n_total, first);
  return CKPT_OK;
}

ckpt_status ckpt_verify_structure(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  uint32_t n_files = 0;
  for (uint32_t i = 0; i < index->n_notes; i++) {
    const ckpt_note *note = &index->notes[i];
    if (!note->is_problem) continue;
    const char *file = note->file == NULL ? index->path : note->file;
    if (note->kind == CKPT_NOTE_KEY)
      CKPT_TRY(ckpt_findings_add_about(findings, err, CKPT_PROBLEM, file, note->cause, "%s", note->message));
    else
      CKPT_TRY(ckpt_findings_add_note(findings, file, note->message, note->cause, err));
    CKPT_TRY(ckpt_findings_advise(CKPT_OK, findings, note->advice, NULL));
  }
  for (uint32_t i = 0; i < index->n_unread; i++)
    if (index->unread[i].is_unknown)
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, index->path, index->unread[i].name, "cannot be read: %s",
                                 index->unread[i].why));
  if (index->source != NULL) CKPT_TRY(check_numbered(findings, index, &n_files, err));
  if (findings->n_of[CKPT_PROBLEM] != 0) return CKPT_OK; /* of opening too */
  if (index->n_tensors == 0)
    return ckpt_findings_add(findings, err, CKPT_WARNING, index->path, NULL, "holds no tensors");
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                           "structure: %u tensor%s in %u file%s, no hole, no overlap", index->n_tensors,
                           ckpt_plural(index->n_tensors), n_files, ckpt_plural(n_files));
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* What a parameter's master is when rounded to the stored dtype, against what is stored. */
static ckpt_status compare_copy(ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *parameter,
                                const ckpt_tensor *stored, const ckpt_difference **out, ckpt_error *err) {
  static const ckpt_tolerance exact = {0};
  ckpt_expr *args[2], *reduction;
  const void *value;
  *out = NULL;
  if (!ckpt_dtype_is_float((ckpt_dtype)stored->dtype) || !ckpt_dtype_is_float((ckpt_dtype)parameter->dtype))
    return CKPT_OK;
  CKPT_TRY(ckpt_expr_read(&args[0], plan, index, parameter, err));
  CKPT_TRY(ckpt_expr_cast(&args[0], plan, args[0], (ckpt_dtype)stored->dtype, err));
  CKPT_TRY(ckpt_expr_read(&args[1], plan, index, stored, err));
  CKPT_TRY(ckpt_expr_apply(&reduction, plan, &ckpt_op_compare, CKPT_F64, args, 2, &exact, err));
  CKPT_TRY(ckpt_plan_reduce(plan, stored->name, reduction, &value, err));
  *out = value;
  return CKPT_OK;
}

/* What is stored of a parameter beside its master; NULL: nothing is, as in ZeRO's stage 3. */
static const ckpt_tensor *own_copy(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_tensor *stored = ckpt_stored_copy(index, tensor);
  return stored == NULL || ckpt_tensor_same_place(stored, tensor) ? NULL : stored;
}

ckpt_status ckpt_verify_plan(ckpt_value_checks *checks, ckpt_plan *plan, const ckpt_index *index, size_t first,
                             size_t end, ckpt_error *err) {
  if (end - first > checks->capacity) {
    const ckpt_stats **stats = reallocarray(checks->stats, end - first, sizeof *stats);
    if (stats != NULL) checks->stats = stats;
    const ckpt_difference **copies = reallocarray(checks->copies, end - first, sizeof *copies);
    if (copies != NULL) checks->copies = copies;
    if (stats == NULL || copies == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    checks->capacity = end - first;
  }
  for (size_t i = first; i < end; i++) {
    const ckpt_tensor *tensor = &index->tensors[index->by_name[i]], *stored = own_copy(index, tensor);
    CKPT_TRY(ckpt_stats_add(plan, index, tensor, &checks->stats[i - first], err));
    checks->copies[i - first] = NULL;
    if (stored != NULL) CKPT_TRY(compare_copy(plan, index, tensor, stored, &checks->copies[i - first], err));
  }
  return CKPT_OK;
}

void ckpt_value_checks_free(ckpt_value_checks *checks) {
  free(checks->stats);
  free(checks->copies);
  *checks = (ckpt_value_checks){0};
}

static ckpt_status judge_copy(ckpt_findings *findings, ckpt_value_checks *checks, const ckpt_index *index,
                              const ckpt_tensor *stored, const ckpt_difference *copy, ckpt_error *err) {
  const char *dtype = ckpt_dtype_name((ckpt_dtype)stored->dtype), *file = ckpt_index_file_of(index, stored);
  checks->n_stored++;
  if (copy == NULL)
    return ckpt_findings_add(findings, err, CKPT_PROBLEM, file, stored->name,
                             "the stored copy is %s, to which its master cannot be rounded", dtype);
  checks->n_rounded += copy->n_bits == 0;
  if (copy->n_bits == 0) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, file, stored->name,
                           "the stored copy is not its master rounded to %s (%llu of %llu element%s differ)", dtype,
                           (ull)copy->n_bits, (ull)copy->n, ckpt_plural(copy->n));
}

ckpt_status ckpt_verify_values(ckpt_findings *findings, ckpt_value_checks *checks, const ckpt_index *index,
                               size_t first, size_t end, ckpt_error *err) {
  for (size_t i = first; i < end; i++) {
    const ckpt_tensor *tensor = &index->tensors[index->by_name[i]];
    const ckpt_stats *stats = checks->stats[i - first];
    bool is_weight = tensor->role == CKPT_ROLE_PARAMETER || tensor->role == CKPT_ROLE_MASTER;
    const char *role = ckpt_role_name((ckpt_role)tensor->role);
    const char *file = ckpt_index_file_of(index, tensor);
    ckpt_finding_kind kind = is_weight ? CKPT_PROBLEM : CKPT_WARNING;
    if (stats->n_nan != 0)
      CKPT_TRY(ckpt_findings_add(findings, err, kind, file, tensor->name, "%s with NaN (%llu of %llu value%s)", role,
                                 (ull)stats->n_nan, (ull)stats->n, ckpt_plural(stats->n)));
    if (stats->n_inf != 0) /* masks that an exporter folded into a graph have them */
      CKPT_TRY(ckpt_findings_add(findings, err, index->n_nodes != 0 ? CKPT_WARNING : kind, file, tensor->name,
                                 "%s with infinities (%llu of %llu value%s)", role, (ull)stats->n_inf, (ull)stats->n,
                                 ckpt_plural(stats->n)));
    if (is_weight && tensor->rank >= 2 && stats->n != 0 && stats->n_zero == stats->n)
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_WARNING, file, tensor->name, "all of its values are 0 (%llu)",
                                 (ull)stats->n));
    const ckpt_tensor *stored = own_copy(index, tensor);
    if (stored != NULL) CKPT_TRY(judge_copy(findings, checks, index, stored, checks->copies[i - first], err));
  }
  return CKPT_OK;
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_verify_manifest(ckpt_findings *findings, const ckpt_index *index, const ckpt_manifest *actual,
                                 const ckpt_manifest *expected, const char *expected_path, ckpt_error *err) {
  size_t n_problems = findings->n_of[CKPT_PROBLEM], n_broken = 0;
  char wanted_text[80], found_text[80];
  if (expected->n_not_read != 0 && actual->n_not_read == 0)
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "values: %s names %u tensor%s that no digest is of (%s%s)", expected_path,
                               expected->n_not_read, ckpt_plural(expected->n_not_read), expected->not_read[0],
                               expected->n_not_read == 1 ? "" : ", ..."));
  if (expected->n_exclude != 0)
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "values: %s leaves tensors out (exclude %s%s)",
                               expected_path, expected->exclude[0], expected->n_exclude == 1 ? "" : " ..."));
  for (size_t i = 0; i < expected->n_not_read; i++) {
    const char *name = expected->not_read[i];
    if (ckpt_index_is_unread(index, name) || ckpt_index_find(index, name) != NULL) continue;
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_index_file_of(index, NULL), name,
                               "missing, but listed as not read in %s", expected_path));
  }
  for (size_t i = 0; i < expected->n; i++) {
    const ckpt_manifest_entry *wanted = &expected->entries[i], *found = ckpt_manifest_find(actual, wanted->name);
    const char *what = NULL;
    if (found == NULL && ckpt_index_is_unread(index, wanted->name))
      what = "not read, but listed in";
    else if (found == NULL)
      what = "missing, but listed in";
    else if (found->dtype != wanted->dtype)
      what = "its dtype differs from";
    else if (!ckpt_manifest_same_shape(found, wanted))
      what = "its shape differs from";
    else if (!ckpt_digest_is_taken(&found->digest))
      n_broken++; /* which is told */
    else if (memcmp(&found->digest, &wanted->digest, sizeof found->digest) != 0)
      what = "its bytes differ from";
    if (what == NULL) continue;
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM,
                               ckpt_index_file_of(index, ckpt_index_find(index, wanted->name)), wanted->name, "%s %s",
                               what, expected_path));
  }
  for (size_t i = 0; i < actual->n; i++)
    if (ckpt_manifest_find(expected, actual->entries[i].name) == NULL)
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM,
                                 ckpt_index_file_of(index, ckpt_index_find(index, actual->entries[i].name)),
                                 actual->entries[i].name, "extra, not listed in %s", expected_path));
  bool is_other = strcmp(actual->names, expected->names) != 0, is_equal = findings->n_of[CKPT_PROBLEM] == n_problems;
  if (is_other && !(is_equal && ckpt_names_agree(actual->names, expected->names)))
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_WARNING, expected_path, NULL,
                               "is over names of %s, the checkpoint's are of %s (a config.json decides)",
                               expected->names, actual->names));
  if (!is_equal) return CKPT_OK; /* which make another digest */
  bool is_formed = ckpt_digest_is_taken(&actual->digest) && n_broken == 0;
  if (is_formed && memcmp(&actual->digest, &expected->digest, sizeof actual->digest) != 0)
    return ckpt_findings_add(
        findings, err, CKPT_PROBLEM, expected_path, NULL, "its digest %s is not that of the tensors that it lists, %s",
        ckpt_digest_text(&expected->digest, wanted_text), ckpt_digest_text(&actual->digest, found_text));
  const size_t n_equal = expected->n - n_broken;
  const char *are = n_equal == 1 ? " is" : "s are";
  if (n_equal == 0) return CKPT_OK;
  if (expected->cast != CKPT_DTYPE_NONE) /* bytes that round to the same are equal here */
    return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "values as %s: %zu tensor%s those of %s",
                             ckpt_dtype_name(expected->cast), n_equal, are, expected_path);
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "bytes: %zu tensor%s those of %s", n_equal, are,
                           expected_path);
}

/* ---- side files -------------------------------------------------------------------------------------------------- */

typedef struct side_check {
  ckpt_findings *findings;
  const char *folder, *record;
  ckpt_status status;
  ckpt_error *err;
} side_check;

/* A record that was put into the folder. */
static bool is_record(void *arg, const char *name) {
  const side_check *c = arg;
  char path[PATH_MAX];
  return (size_t)snprintf(path, sizeof path, "%s/%s", c->folder, name) < sizeof path &&
         ckpt_is_same_path(path, c->record);
}

static void take_side_difference(void *arg, const ckpt_error *difference) {
  side_check *c = arg;
  if (c->status == CKPT_OK)
    c->status = ckpt_findings_add_error(c->findings, c->err, CKPT_PROBLEM, difference->file, NULL, difference);
}

ckpt_status ckpt_verify_side_files(ckpt_findings *findings, const ckpt_index *index, const ckpt_side_sums *listed,
                                   const char *record, const ckpt_run_options *run, ckpt_error *err) {
  const ckpt_format *format = ckpt_format_find(index->format);
  const char *are = ckpt_plural(listed->n);
  if (format == NULL || !format->caps.side_files)
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "side files: %s lists %u file%s (%s%s), and none belongs to this format", record,
                             listed->n, are, listed->items[0].name, listed->n == 1 ? "" : ", ...");
  ckpt_side_sums now = {0};
  side_check check = {.findings = findings, .folder = ckpt_source_root(index->source), .record = record, .err = err};
  size_t n_problems = findings->n_of[CKPT_PROBLEM];
  const ckpt_side_comparison both = {.then = listed,
                                     .now = &now,
                                     .record = record,
                                     .whose = "the checkpoint",
                                     .folder = index->path,
                                     .is_excused = is_record,
                                     .report = take_side_difference,
                                     .arg = &check};
  ckpt_status status = ckpt_side_sums_take(&now, index, listed, false, run, err);
  if (status == CKPT_OK) ckpt_side_sums_compare(&both);
  if (status == CKPT_OK) status = check.status;
  if (status == CKPT_OK && findings->n_of[CKPT_PROBLEM] == n_problems)
    status = ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "side files: SHA-256 of %u file%s is that in %s",
                               listed->n, are, record);
  ckpt_side_sums_free(&now);
  return status;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_verify_files(ckpt_findings *findings, ckpt_source *source, const ckpt_file_sum *promised, size_t n,
                              const char *promise, const ckpt_run_options *run, size_t *n_equal, ckpt_error *err) {
  *n_equal = 0;
  ckpt_file_sum *sums = calloc(n + 1, sizeof *sums);
  CKPT_TRY_ALLOC(sums, err);
  for (size_t i = 0; i < n; i++) sums[i].file = promised[i].file;
  ckpt_status status = ckpt_sum_files(source, sums, n, run, err);
  for (size_t i = 0; i < n && status == CKPT_OK; i++) {
    if (memcmp(sums[i].sha256, promised[i].sha256, sizeof sums[i].sha256) == 0) {
      ++*n_equal;
      continue;
    }
    char hex[65];
    status = ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(source, sums[i].file), NULL,
                               "its SHA-256 is %s, not that of %s (download it again)",
                               ckpt_sum_text(sums[i].sha256, hex), promise);
  }
  free(sums);
  return status;
}
