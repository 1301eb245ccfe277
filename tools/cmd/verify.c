/* verify.c - `ckpt verify`: read everything and report every problem. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/format/format.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/defects.h"
#include "libckpt/index/masters.h"
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/select/select.h"
#include "tools/report/job.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"
#include "tools/report/verification.h"

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static ckpt_status check_args(ckpt_verification *v, ckpt_error *err) {
  static const char *const payload[] = {"digest", "manifest", "sums", "receipt", "plan"};
  const char *digest = ckpt_args_text(v->args, "digest", NULL), *manifest = ckpt_args_text(v->args, "manifest", NULL);
  for (size_t i = 0; i < sizeof payload / sizeof *payload; i++)
    if (ckpt_args_has(v->args, "headers") && ckpt_args_has(v->args, payload[i]))
      return ckpt_args_fail(v->args, err, "--headers reads no tensor, --%s needs them", payload[i]);
  const ckpt_arg *moved = ckpt_args_get(v->args, "input");
  if (moved != NULL && strchr(moved->text, '=') == NULL)
    return ckpt_args_fail(v->args, err, "--input '%s' is not OLD=NEW", moved->text);
  v->has_digest = digest != NULL;
  if (v->has_digest && !ckpt_digest_parse(digest, &v->digest))
    return ckpt_args_fail(v->args, err, "--digest '%s' is not ckpt1: and 64 hex digits (ckpt hash prints it)", digest);
  if (manifest == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_manifest_read(&v->expected, manifest, err));
  v->cast = v->expected->cast;
  bool is_plain = v->cast == CKPT_DTYPE_NONE && strcmp(v->expected->include, "model") == 0;
  if (v->has_digest && !is_plain)
    return ckpt_args_fail(v->args, err, "--digest is of the model as stored, %s is of --include %s%s%s (one at a time)",
                          manifest, v->expected->include, v->cast == CKPT_DTYPE_NONE ? "" : " --cast ",
                          v->cast == CKPT_DTYPE_NONE ? "" : ckpt_dtype_name(v->cast));
  if (v->has_digest && v->expected->n_exclude != 0)
    return ckpt_args_fail(v->args, err, "--digest is of the whole model, %s leaves tensors out (one at a time)",
                          manifest);
  return CKPT_OK;
}

/* What the first opening has told. */
static void ignore_reported(void *arg, const ckpt_error *defect) { (void)arg, (void)defect; }

/* Whether the manifest's digests are over names as they are stored. */
static bool is_of_stored(const ckpt_verification *v) {
  return v->expected != NULL && strcmp(v->expected->names, "stored") == 0;
}

/* Whether they are over names of older rules than the checkpoint's: by others, or before its family was known. */
static bool is_of_older(const ckpt_verification *v) {
  return v->expected != NULL && strncmp(v->expected->names, "hf:any/", sizeof "hf:any/" - 1) == 0 &&
         strcmp(v->input.index->names, v->expected->names) != 0;
}

/* Whether the index's names are those of a family. */
static bool is_of_family(const ckpt_index *index) {
  return strncmp(index->names, "hf:", 3) == 0 && ckpt_naming_revision(index->names) == 0;
}

/* The same names, after the comparison with --like, which goes by the model's. */
static ckpt_status take_naming(ckpt_verification *v, ckpt_error *err) {
  const bool has_others = v->input.like != NULL || is_of_family(v->input.index);
  if (!is_of_older(v) && !(is_of_stored(v) && has_others)) return CKPT_OK;
  if (strcmp(v->input.index->names, "stored") == 0) return CKPT_OK;
  const ckpt_open_options open = {.struct_size = sizeof open,
                                  .stored_names = is_of_stored(v),
                                  .naming_revision = ckpt_naming_revision(v->expected->names),
                                  .like = v->input.like,
                                  .weights = v->input.weights,
                                  .report = ignore_reported,
                                  .allow_corrupt = true};
  ckpt_index_free(v->input.index);
  v->input.index = NULL;
  return ckpt_open(&v->input.index, v->args->inputs[0], &open, err);
}

/* Of a failure to open, or to read on: what is wrong with the checkpoint is a problem found, if it is there at all. */
static ckpt_status take_defect(ckpt_verification *v, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  const bool is_absent = status == CKPT_ENOTFOUND && access(v->args->inputs[0], F_OK) != 0;
  if (!ckpt_is_defect(status) || is_absent) {
    *err = *defect;
    return status;
  }
  return ckpt_findings_add_error(&v->findings, err, CKPT_PROBLEM, defect->file, defect->tensor, defect);
}

/* ---- values and digests ------------------------------------------------------------------------------------------ */

/* Digests and statistics of a tensor share its read. */
typedef struct reading {
  ckpt_verification *v;
  ckpt_hashing hashing;
  ckpt_value_checks checks;
} reading;

static ckpt_status add_slice(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  reading *r = arg;
  CKPT_TRY(ckpt_hashing_add(&r->hashing, plan, first, end, err));
  return ckpt_verify_plan(&r->checks, plan, r->v->input.index, first, end, err);
}

/* Bytes that cannot be decoded. */
static ckpt_status pass_tensor(void *arg, size_t item, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  reading *r = arg;
  const ckpt_index *index = r->v->input.index;
  const ckpt_tensor *tensor = ckpt_index_at(index, item);
  ckpt_error known = *defect;
  ckpt_fail_at(status, &known, ckpt_index_file_of(index, tensor), tensor->name);
  r->v->n_unread++;
  r->v->n_undecoded++;
  r->v->n_undecoded_bytes += tensor->n_bytes;
  return ckpt_findings_add_error(&r->v->findings, err, CKPT_PROBLEM, known.file, known.tensor, &known);
}

static ckpt_status take_slice(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  reading *r = arg;
  ckpt_hashing_take(&r->hashing, plan);
  return ckpt_verify_values(&r->v->findings, &r->checks, r->v->input.index, first, end, err);
}

static ckpt_status run_reading(reading *r, ckpt_error *err) {
  ckpt_verification *v = r->v;
  const ckpt_index *index = v->input.index;
  ckpt_hash_options hashing = {.struct_size = sizeof hashing, .include = "model"};
  if (v->expected != NULL) {
    hashing.include = v->expected->include;
    hashing.cast = v->expected->cast;
  }
  CKPT_TRY(ckpt_hashing_start(&r->hashing, index, &hashing, err));
  if (v->expected != NULL) CKPT_TRY(ckpt_hashing_choose(&r->hashing, v->expected->exclude, false, err));
  ckpt_proof proof = {.n = index->n_tensors, .arg = r, .add = add_slice, .take = take_slice, .pass = pass_tensor};
  proof.allow_overflow = true; /* a cast is the manifest's affair */
  for (uint32_t i = 0; i < index->n_tensors; i++) proof.n_bytes += index->tensors[i].n_bytes;
  for (uint32_t i = 0; i < index->n_stored; i++) proof.n_bytes += index->stored[i].n_bytes;
  return ckpt_proving_run(v->args, &proof, &v->is_printed, err);
}

static ckpt_status take_digests(ckpt_verification *v, const ckpt_hashing *hashing, ckpt_error *err) {
  ckpt_error tie = {0};
  CKPT_TRY(ckpt_manifest_new(&v->actual, hashing, &tie, err));
  bool is_of_none = v->actual->n == 0 && v->input.index->n_tensors != 0;
  v->is_formed = tie.status == CKPT_OK && v->n_unread == 0 && !is_of_none;
  v->content = v->actual->digest;
  if (tie.status == CKPT_OK) return CKPT_OK;
  return ckpt_findings_add_error(&v->findings, err, CKPT_PROBLEM, tie.file, tie.tensor, &tie);
}

static ckpt_status read_values(ckpt_verification *v, ckpt_error *err) {
  reading r = {.v = v};
  ckpt_error defect = {0};
  ckpt_status status = run_reading(&r, &defect);
  if (status != CKPT_OK) {
    ckpt_fail_at(status, &defect, v->input.index->path, NULL);
    status = take_defect(v, status, &defect, err);
  } else if (!v->is_printed) {
    status = take_digests(v, &r.hashing, err);
    if (status == CKPT_OK && r.checks.n_stored != 0 && r.checks.n_rounded == r.checks.n_stored)
      status = ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                                 "weights: stored parameters are their masters, rounded (%zu)", r.checks.n_stored);
  }
  ckpt_value_checks_free(&r.checks);
  ckpt_hashing_end(&r.hashing);
  return status;
}

/* Where digests differ, it may be for a tie that nothing states. */
static ckpt_status warn_of_tie(ckpt_verification *v, ckpt_error *err) {
  const char *note;
  const ckpt_index *index = v->input.index;
  CKPT_TRY(ckpt_arch_unstated_tie(index, index->architecture, &v->args->arena, &note, err));
  if (note == NULL) return CKPT_OK;
  return ckpt_findings_add(&v->findings, err, CKPT_WARNING, index->path, NULL, "%s (--like MODEL)", note);
}

static ckpt_status compare_digests(ckpt_verification *v, ckpt_error *err) {
  char actual[80], wanted[80];
  const ckpt_index *index = v->input.index;
  if (v->actual == NULL) return CKPT_OK;
  if (v->actual->n == 0 && index->n_tensors != 0 && (v->has_digest || v->expected != NULL)) {
    const char *include = v->actual->include, *verb = strcmp(include, "all") == 0 ? "" : " (ckpt hash --include all)";
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, ckpt_index_file_of(index, NULL), NULL,
                               "nothing to compare: none of its %u tensor%s is of --include %s%s", index->n_tensors,
                               ckpt_plural(index->n_tensors), include, verb));
  }
  if (v->expected != NULL)
    CKPT_TRY(ckpt_verify_manifest(&v->findings, v->input.index, v->actual, v->expected,
                                  ckpt_args_text(v->args, "manifest", NULL), err));
  if (v->has_digest && v->n_unread != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "digest: there is none, for tensors are broken"));
  if (!v->has_digest || !v->is_formed) return CKPT_OK;
  ckpt_digest_text(&v->content, actual);
  ckpt_digest_text(&v->digest, wanted);
  if (strcmp(actual, wanted) != 0)
    return ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, ckpt_index_file_of(v->input.index, NULL), NULL,
                             "its digest is %s, not %s (over names of %s; see ckpt diff)", actual, wanted,
                             v->actual->names);
  return ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL, "bytes: the content has the digest %s", wanted);
}

static ckpt_status check_digests(ckpt_verification *v, ckpt_error *err) {
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM];
  CKPT_TRY(compare_digests(v, err));
  return v->findings.n_of[CKPT_PROBLEM] == n_problems ? CKPT_OK : warn_of_tie(v, err);
}

/* ---- the receipt ------------------------------------------------------------------------------------------------- */

typedef struct replay {
  ckpt_verification *v;
  ckpt_error *err;
  ckpt_status status;
  bool has_side_files;
} replay;

static void take_difference(void *arg, const ckpt_error *problem) {
  replay *r = arg;
  if (problem->status == CKPT_OK)
    ckpt_report_note(r->v->args, "%s: %s", problem->file, problem->message);
  else if (r->status == CKPT_OK)
    r->status = ckpt_findings_add_error(&r->v->findings, r->err, CKPT_PROBLEM, problem->file, problem->tensor, problem);
}

static ckpt_status check_receipt(ckpt_verification *v, ckpt_error *err) {
  const char *path = ckpt_args_text(v->args, "receipt", NULL);
  if (path == NULL) return CKPT_OK;
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM];
  replay r = {.v = v, .err = err};
  const char *const *moved;
  CKPT_TRY(ckpt_args_texts(&moved, v->args, "input", err));
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status =
      ckpt_receipt_replay(path, v->args->inputs[0], moved, &job.run, take_difference, &r, &r.has_side_files, err);
  ckpt_job_end(&job);
  if (status == CKPT_OK) status = r.status;
  v->has_side_files = v->has_side_files || r.has_side_files;
  if (status != CKPT_OK || v->findings.n_of[CKPT_PROBLEM] != n_problems) return status;
  return ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                           "bytes: %s run again from its inputs gives the same content%s", path,
                           r.has_side_files && v->input.index->n_side_files != 0 ? " and side files" : "");
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* What stands beside the tensors is in no digest. */
static ckpt_status say_undigested(ckpt_verification *v, bool has_sums, ckpt_error *err) {
  static const char *const format = "%s (%s): they are in no digest (--sums proves them)";
  const ckpt_index *index = v->input.index;
  ckpt_name_list files = {.n = 0}, keys = {.n = 0};
  for (uint32_t i = 0; i < index->n_side_files && !v->has_side_files; i++) {
    uint32_t file = index->side_files[i].file;
    if (file >= v->n_summed || !v->is_summed[file]) ckpt_name_list_add(&files, index->side_files[i].name);
  }
  for (uint32_t i = 0; i < index->n_metadata && !has_sums; i++) ckpt_name_list_add(&keys, index->metadata[i].key);
  if (files.n != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, format, "side files", files.text));
  if (keys.n != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, format, "metadata", keys.text));
  if (has_sums || ckpt_objects_count(index) == 0) return CKPT_OK;
  ckpt_name_list objects = {.n = 0};
  for (uint64_t i = 0; i < index->objects->n; i++) ckpt_name_list_add(&objects, index->objects->items[2 * i]->text);
  return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, format, "objects", objects.text);
}

/* What the digest of --digest or --manifest is not of. */
static ckpt_status say_not_compared(ckpt_verification *v, const char *include, ckpt_error *err) {
  const ckpt_index *index = v->input.index;
  bool is_master = index->weights != NULL && strcmp(index->weights, "master") == 0;
  size_t n_others = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    n_others += !ckpt_role_included(include, (ckpt_role)index->tensors[i].role, NULL) &&
                !ckpt_master_stands(index, &index->tensors[i]);
  char weights[512];
  if (is_master)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, "%s: the digest is of the masters alone",
                               ckpt_report_weights(index, weights, sizeof weights)));
  if (n_others != 0)
    CKPT_TRY(ckpt_findings_add(
        &v->findings, err, CKPT_UNPROVEN, NULL, NULL,
        "roles: %zu tensor%s of other roles not compared (ckpt hash --include all -o FILE, then --manifest FILE)",
        n_others, ckpt_plural(n_others)));
  if (index->n_wrapped != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "names: stored as %.200s%s (%u tensor%s), the digest is over names without wrappers",
                               index->first_wrapped, index->n_wrapped == 1 ? "" : " ...", index->n_wrapped,
                               ckpt_plural(index->n_wrapped)));
  return CKPT_OK;
}

static ckpt_status say_unproven(ckpt_verification *v, const char *include, bool is_proven, bool has_crc,
                                ckpt_error *err) {
  bool has_digest = v->has_digest || ckpt_args_has(v->args, "manifest");
  const ckpt_index *index = v->input.index;
  ckpt_name_list unread = {.n = 0};
  for (uint32_t i = 0; i < index->n_unread; i++)
    if (!index->unread[i].is_unknown) ckpt_name_list_add(&unread, index->unread[i].name); /* others are problems */
  if (unread.n != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, "values: %zu tensor%s not read (%s)",
                               unread.n, unread.n == 1 ? " is" : "s are", unread.text));
  if (ckpt_args_has(v->args, "headers"))
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "values: tensor bytes were not read (--headers)");
  if (index->graph != NULL && !is_proven)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "graph: its nodes (%llu), inputs and outputs are in no digest (--sums proves them)",
                               (unsigned long long)index->n_nodes));
  bool is_cast = v->cast != CKPT_DTYPE_NONE,
       has_others = v->has_digest || ckpt_args_has(v->args, "receipt") || ckpt_args_has(v->args, "sums");
  if (has_digest) CKPT_TRY(say_not_compared(v, include, err));
  if (has_digest || has_others) CKPT_TRY(say_undigested(v, is_proven, err));
  if (has_digest || has_others) CKPT_TRY(ckpt_verification_others(v, err));
  if (has_crc && v->crc.bare != NULL && !is_proven && !has_others && !has_digest)
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "names, shapes: no checksum of %.200s is compared; give --digest, --manifest, --sums or "
                             "--receipt",
                             v->crc.bare);
  if (is_proven || has_others || has_crc || (has_digest && !is_cast)) return CKPT_OK;
  if (has_digest)
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "bytes: the manifest is of values as %s; give one without --cast, --sums or --receipt",
                             ckpt_dtype_name(v->cast));
  if (v->crc.n_passed != 0)
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "bytes: %llu archive%s not gone through; give --digest, --manifest, --sums or "
                             "--receipt",
                             (unsigned long long)v->crc.n_passed, v->crc.n_passed == 1 ? " was" : "s were");
  if (v->crc.n_without != 0)
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "bytes: %llu record%s no CRC-32; give --digest, --manifest, --sums or --receipt",
                             (unsigned long long)v->crc.n_without, v->crc.n_without == 1 ? " has" : "s have");
  return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "bytes: %s; give --digest, --manifest, --sums or --receipt",
                           v->has_some_sums ? "not all of them have a checksum" : "no checksum in this format");
}

/* A replay has indexes of its own: what has been compared makes room for them. */
static void free_manifests(ckpt_verification *v) {
  ckpt_manifest_free(v->actual);
  ckpt_manifest_free(v->expected);
  v->actual = v->expected = NULL;
}

/* The checksums that the format carries, and its padding. *is_whole: all bytes of tensors have a checksum. */
static ckpt_status check_crc(ckpt_verification *v, bool *is_whole, ckpt_error *err) {
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_verify_crc(&v->findings, v->input.index, &job.run, &v->crc, err);
  const size_t n_proven = v->findings.n_of[CKPT_PROVEN];
  if (status == CKPT_OK) status = ckpt_verify_format(&v->findings, v->input.index, &job.run, err);
  v->has_some_sums = v->findings.n_of[CKPT_PROVEN] != n_proven;
  ckpt_job_end(&job);
  *is_whole = v->crc.n_checked + v->crc.n_wrong != 0 && v->crc.n_without + v->crc.n_passed + v->crc.n_others == 0;
  if (status != CKPT_OK || v->crc.n_checked == 0 || v->crc.n_wrong != 0) return status;
  return ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                           "%s: CRC-32 of %llu record%s is what the archives say", *is_whole ? "bytes" : "records",
                           (unsigned long long)v->crc.n_checked, ckpt_plural(v->crc.n_checked));
}

static ckpt_status check_pickles(ckpt_verification *v, ckpt_error *err) {
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_verify_pickles(&v->findings, v->input.index, &job.run, err);
  ckpt_job_end(&job);
  return status;
}

static ckpt_status check_modules(ckpt_verification *v, ckpt_error *err) {
  if (ckpt_args_has(v->args, "headers")) return ckpt_verify_modules(&v->findings, v->input.index, NULL, err);
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_verify_modules(&v->findings, v->input.index, &job.run, err);
  ckpt_job_end(&job);
  return status;
}

/* Everything about an index that could be opened. */
static ckpt_status verify_index(ckpt_verification *v, ckpt_error *err) {
  bool is_cached = false, is_listed = false, has_crc = false;
  char include[16] = "model"; /* outlives the manifest */
  if (v->expected != NULL) snprintf(include, sizeof include, "%s", v->expected->include);
  CKPT_TRY(ckpt_verify_structure(&v->findings, v->input.index, err));
  CKPT_TRY(ckpt_verify_config(&v->findings, v->input.index, v->input.like, err));
  if (!ckpt_args_has(v->args, "headers")) {
    CKPT_TRY(read_values(v, err));
    if (v->is_printed) return CKPT_OK;
    CKPT_TRY(check_digests(v, err));
    CKPT_TRY(ckpt_verification_side_files(v, err));
    CKPT_TRY(check_crc(v, &has_crc, err));
    CKPT_TRY(check_pickles(v, err));
    CKPT_TRY(ckpt_verification_cache(v, &is_cached, err));
    CKPT_TRY(ckpt_verification_sums(v, &is_listed, err));
    CKPT_TRY(ckpt_source_unchanged(v->input.index->source, err));
    free_manifests(v);
    CKPT_TRY(check_receipt(v, err));
  }
  CKPT_TRY(check_modules(v, err));
  return say_unproven(v, include, is_cached || is_listed, has_crc, err);
}

typedef struct opening {
  ckpt_verification *v;
  ckpt_status status; /* of adding what was reported */
  ckpt_error *err;
} opening;

static void take_reported(void *arg, const ckpt_error *defect) {
  opening *o = arg;
  if (o->status == CKPT_OK)
    o->status = ckpt_findings_add_error(&o->v->findings, o->err, CKPT_PROBLEM, defect->file, defect->tensor, defect);
}

/* Whether there is something at the path, which is no checkpoint or none that can be read. Of a folder as a whole it is
 * the request that cannot be met (several checkpoints), unless its files are to be compared. */
static bool is_unopened(const ckpt_verification *v, const ckpt_error *defect) {
  const char *path = v->args->inputs[0];
  struct stat found;
  if (v->input.index != NULL || stat(path, &found) != 0) return false;
  bool is_unknown = defect->status == CKPT_EUNSUPPORTED || defect->status == CKPT_ELIMIT;
  bool is_request = S_ISDIR(found.st_mode) && strcmp(defect->file, path) == 0 && !ckpt_args_has(v->args, "sums");
  return ckpt_is_defect(defect->status) || (is_unknown && !is_request);
}

/* Files are what they are, whether a checkpoint can be read from them or not. */
static ckpt_status verify_files(ckpt_verification *v, const ckpt_error *defect, ckpt_error *err) {
  static const char *const others[] = {"digest", "manifest", "receipt"};
  bool is_listed;
  CKPT_TRY(ckpt_findings_add_error(&v->findings, err, CKPT_PROBLEM, defect->file, defect->tensor, defect));
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (ckpt_args_has(v->args, others[i]))
      CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                                 "--%s: not compared, for no tensor can be read", others[i]));
  return ckpt_args_has(v->args, "plan") ? CKPT_OK : ckpt_verification_sums(v, &is_listed, err);
}

static ckpt_status verify(ckpt_verification *v, ckpt_error *err) {
  ckpt_error defect = {0};
  opening o = {.v = v, .err = err};
  CKPT_TRY(check_args(v, err));
  const bool is_stored = is_of_stored(v) && !ckpt_args_has(v->args, "like");
  ckpt_status status = ckpt_input_open_all(&v->input, v->args, 0, is_stored, take_reported, &o, &defect);
  CKPT_TRY(o.status);
  if (status != CKPT_OK && is_unopened(v, &defect)) return verify_files(v, &defect, err);
  if (status != CKPT_OK) CKPT_TRY(take_defect(v, status, &defect, err));
  if (v->input.index == NULL) return CKPT_OK;
  v->n_unread = v->input.index->defects.n;
  defect = (ckpt_error){0}; /* of --like: what is there is looked at */
  status = take_naming(v, &defect);
  return status == CKPT_OK ? verify_index(v, err) : take_defect(v, status, &defect, err);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_verification v = {.args = args};
  ckpt_status status = verify(&v, &err);
  bool is_ok = v.findings.n_of[CKPT_PROBLEM] == 0;
  if (status == CKPT_OK && !v.is_printed) ckpt_verification_print(&v);
  ckpt_findings_free(&v.findings);
  free_manifests(&v);
  free(v.is_summed);
  ckpt_source_free(v.files);
  ckpt_input_close(&v.input);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return is_ok ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

const ckpt_verb ckpt_verb_verify = {
    .name = "verify",
    .forms =
        "verify PATH [--headers] [--digest ckpt1:HEX] [--manifest FILE] [--sums FILE]\n"
        "verify PATH --receipt FILE [--input OLD=NEW]",
    .summary = "read everything and report every problem",
    .details =
        "Checks structure, coverage, the format's own checksums, config and tokenizer against the tensors, "
        "and parameters for NaN and infinities. Config is proven where transformers would find no tensor missing, "
        "unexpected or of another shape. It judges every pickle in a folder as scan does. It is strict where convert "
        "is tolerant: holes, trailing bytes, padding. It reports every problem, and any problem makes the exit status "
        "1. NaN in buffers and all-zero matrices are warnings. It lists at most 1,000 problems and 20 warnings of "
        "each kind, and counts all. The result says what could not be proven.",
    .json =
        "{\"status\",\"problems\":[{\"file\",\"tensor\",\"message\"}],\"warnings\":[...],\"proven\":[...],"
        "\"unproven\":[...],\"n_problems\",\"n_warnings\",\"n_tensors\",\"n_bytes\",\"weights\",\"digest\",\"cast\","
        "\"notes\":[]}; proven and unproven are texts; \"cast\" is the dtype of the manifest's values, of which the "
        "digest is, too; \"n_more\" "
        "on the last of 1,000 problems or 20 warnings of one kind counts those that are not "
        "listed",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
