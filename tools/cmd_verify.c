/* cmd_verify.c - `ckpt verify`: read everything and report every problem. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "input.h"
#include "job.h"
#include "json_writer.h"
#include "libckpt/error.h"
#include "libckpt/recipe/receipt.h"
#include "libckpt/recipe/select.h"
#include "libckpt/recipe/verify.h"
#include "libckpt/weights.h"
#include "proving.h"
#include "report.h"
#include "shared_options.h"
#include "text.h"

static const ckpt_option options[] = {
    {"headers", 0, CKPT_OPTION_FLAG, 0, NULL, "structure only; tensor bytes are not read"},
    {"digest", 0, CKPT_OPTION_TEXT, 0, "ckpt1:HEX", "the content digest that it must have"},
    {"manifest", 0, CKPT_OPTION_PATH, 0, "FILE", "a manifest of ckpt hash -o that it must match, tensor by tensor"},
    {"sums", 0, CKPT_OPTION_PATH, 0, "FILE", "sha256sum lines that its files must match"},
    {"receipt", 0, CKPT_OPTION_PATH, 0, "FILE", "run the receipt's plan again from its inputs into the digest"},
    CKPT_OPTION_END};

typedef struct verification {
  ckpt_args *args;
  ckpt_input input;
  ckpt_findings findings;
  ckpt_manifest *expected;                /* of --manifest */
  ckpt_manifest *actual;                  /* NULL with --headers, and once it has been compared */
  ckpt_digest digest, content;            /* of --digest, of what was read */
  ckpt_dtype cast;                        /* of the manifest: what `content` and the comparison are of; or NONE */
  bool has_digest, is_formed, is_printed; /* is_formed: the content has a digest */
  bool *is_summed;                        /* of n_summed files of the source: the SHA-256 is the promised one */
  uint32_t n_summed;
} verification;

/* ---- opening ------------------------------------------------------------------------------------------------------
 */

static ckpt_status check_args(verification *v, ckpt_error *err) {
  static const char *const payload[] = {"digest", "manifest", "sums", "receipt", "plan"};
  const char *digest = ckpt_args_text(v->args, "digest", NULL), *manifest = ckpt_args_text(v->args, "manifest", NULL);
  for (size_t i = 0; i < sizeof payload / sizeof *payload; i++)
    if (ckpt_args_has(v->args, "headers") && ckpt_args_has(v->args, payload[i]))
      return ckpt_args_fail(v->args, err, "--headers reads no tensor, --%s needs them", payload[i]);
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
  return CKPT_OK;
}

/* The names that the manifest's digests are over. */
static ckpt_status take_naming(verification *v, ckpt_error *err) {
  if (v->expected == NULL || strcmp(v->expected->names, "stored") != 0) return CKPT_OK;
  if (strcmp(v->input.index->names, "stored") == 0) return CKPT_OK;
  const ckpt_open_options open = {.struct_size = sizeof open, .stored_names = true, .weights = v->input.weights};
  ckpt_index_free(v->input.index);
  v->input.index = NULL;
  return ckpt_open(&v->input.index, v->args->inputs[0], &open, err);
}

/* Whether a failure to open, or to read on, is what is wrong with the checkpoint: then it is a problem found. */
static bool is_defect(const verification *v, ckpt_status status) {
  return status == CKPT_EFORMAT || status == CKPT_EDIFFERENT ||
         (status == CKPT_ENOTFOUND && access(v->args->inputs[0], F_OK) == 0);
}

static ckpt_status take_defect(verification *v, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  if (!is_defect(v, status)) {
    *err = *defect;
    return status;
  }
  return ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, defect->file, defect->tensor, "%s", defect->message);
}

/* ---- values and digests -------------------------------------------------------------------------------------------
 */

/* Digests and statistics of a tensor share its read. */
typedef struct reading {
  verification *v;
  ckpt_hashing hashing;
  ckpt_value_checks checks;
} reading;

static ckpt_status add_slice(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  reading *r = arg;
  CKPT_TRY(ckpt_hashing_add(&r->hashing, plan, first, end, err));
  return ckpt_verify_plan(&r->checks, plan, r->v->input.index, first, end, err);
}

static ckpt_status take_slice(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  reading *r = arg;
  ckpt_hashing_take(&r->hashing, plan);
  return ckpt_verify_values(&r->v->findings, &r->checks, r->v->input.index, first, end, err);
}

static ckpt_status run_reading(reading *r, ckpt_error *err) {
  verification *v = r->v;
  const ckpt_index *index = v->input.index;
  ckpt_hash_options hashing = {.struct_size = sizeof hashing, .include = "model"};
  if (v->expected != NULL) {
    hashing.include = v->expected->include;
    hashing.cast = v->expected->cast;
  }
  CKPT_TRY(ckpt_hashing_start(&r->hashing, index, &hashing, err));
  ckpt_proof proof = {.n = index->n_tensors, .arg = r, .add = add_slice, .take = take_slice};
  proof.allow_overflow = true; /* a cast is the manifest's affair */
  for (uint32_t i = 0; i < index->n_tensors; i++) proof.n_bytes += index->tensors[i].n_bytes;
  for (uint32_t i = 0; i < index->n_stored; i++) proof.n_bytes += index->stored[i].n_bytes;
  return ckpt_proving_run(v->args, &proof, &v->is_printed, err);
}

static ckpt_status take_digests(verification *v, const ckpt_hashing *hashing, ckpt_error *err) {
  ckpt_error tie = {0};
  CKPT_TRY(ckpt_manifest_new(&v->actual, hashing, &tie, err));
  v->is_formed = tie.status == CKPT_OK;
  v->content = v->actual->digest;
  if (v->is_formed) return CKPT_OK;
  return ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, tie.file, tie.tensor, "%s", tie.message);
}

static ckpt_status read_values(verification *v, ckpt_error *err) {
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

static ckpt_status check_digests(verification *v, ckpt_error *err) {
  char actual[80], wanted[80];
  if (v->actual == NULL) return CKPT_OK;
  if (v->expected != NULL)
    CKPT_TRY(ckpt_verify_manifest(&v->findings, v->input.index, v->actual, v->expected,
                                  ckpt_args_text(v->args, "manifest", NULL), err));
  if (!v->has_digest || !v->is_formed) return CKPT_OK;
  ckpt_digest_text(&v->content, actual);
  ckpt_digest_text(&v->digest, wanted);
  if (strcmp(actual, wanted) != 0)
    return ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, v->input.index->path, NULL,
                             "its digest is %s, not %s (over names of %s; see ckpt diff)", actual, wanted,
                             v->actual->names);
  return ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL, "bytes: the content has the digest %s", wanted);
}

/* ---- whole files --------------------------------------------------------------------------------------------------
 */

/* Keeps which files are as promised. */
static ckpt_status note_summed(verification *v, const ckpt_file_sum *promised, size_t n, ckpt_error *err) {
  uint32_t n_files = ckpt_source_count(v->input.index->source);
  bool *moved = reallocarray(v->is_summed, (size_t)n_files + 1, sizeof *moved);
  CKPT_TRY_ALLOC(moved, err);
  v->is_summed = moved;
  for (; v->n_summed < n_files; v->n_summed++) moved[v->n_summed] = false;
  for (size_t i = 0; i < n; i++) moved[promised[i].file] = true;
  return CKPT_OK;
}

/* Runs ckpt_verify_files as a job of its own. */
static ckpt_status check_files(verification *v, const ckpt_file_sum *promised, size_t n, const char *promise,
                               size_t *n_equal, ckpt_error *err) {
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status =
      ckpt_verify_files(&v->findings, v->input.index->source, promised, n, promise, &job.run, n_equal, err);
  ckpt_job_end(&job);
  return status == CKPT_OK && *n_equal == n ? note_summed(v, promised, n, err) : status;
}

/* Files of the Hugging Face cache, whose links say what their bytes must be. *is_whole: every file of tensors is one.
 */
static ckpt_status check_cache(verification *v, bool *is_whole, ckpt_error *err) {
  const ckpt_index *index = v->input.index;
  uint32_t n_files = ckpt_source_count(index->source);
  size_t n = 0, n_equal = 0;
  ckpt_file_sum *promised = calloc((size_t)n_files + 1, sizeof *promised);
  bool *is_promised = calloc((size_t)n_files + 1, sizeof *is_promised);
  ckpt_status status = CKPT_OK;
  *is_whole = false;
  if (promised == NULL || is_promised == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < n_files && status == CKPT_OK; i++) {
    promised[n].file = i;
    is_promised[i] = ckpt_sum_promised(index->source, i, promised[n].sha256);
    n += is_promised[i];
  }
  if (status == CKPT_OK && n != 0) {
    status = check_files(v, promised, n, "its blob's name in the cache", &n_equal, err);
    *is_whole = true;
    for (uint32_t i = 0; i < index->n_tensors && *is_whole; i++)
      for (uint32_t k = 0; k < index->tensors[i].n_extents; k++) {
        uint32_t file = index->tensors[i].extents[k].file;
        *is_whole = *is_whole && (file == CKPT_FILE_ZERO || is_promised[file]);
      }
    if (status == CKPT_OK && n_equal == n)
      status = ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                                 "bytes: SHA-256 of %zu file%s is that of the blob's name in the cache", n,
                                 n == 1 ? "" : "s");
  }
  free(promised);
  free(is_promised);
  return status;
}

static bool is_sha256(const char *text) {
  uint8_t ignored[32];
  return strlen(text) == 64 && ckpt_sum_parse(text, ignored);
}

/* The part of a listed path that is below the checkpoint's folder: as sums of `sha256sum *` inside it, or of paths that
 * lead to it, have it. NULL where it leads elsewhere. In buffer (PATH_MAX bytes) or borrowed. */
static const char *below_root(const char *path, const char *root, char *buffer) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  while (strncmp(path, "./", 2) == 0) path += 2;
  if (slash == NULL || slash < path) return path;
  if (slash - path >= PATH_MAX || slash == path) return path;
  memcpy(folder, path, (size_t)(slash - path));
  folder[slash - path] = '\0';
  char *real = realpath(folder, NULL), *real_root = realpath(root, NULL);
  size_t n_root = real_root == NULL ? 0 : strlen(real_root);
  bool is_below = real != NULL && n_root != 0 && strncmp(real, real_root, n_root) == 0 &&
                  (real[n_root] == '\0' || real[n_root] == '/');
  if (is_below)
    snprintf(buffer, PATH_MAX, "%s%s%s", real[n_root] == '\0' ? "" : real + n_root + 1, real[n_root] == '\0' ? "" : "/",
             slash + 1);
  bool is_elsewhere = real != NULL && !is_below;
  free(real);
  free(real_root);
  return is_below ? buffer : is_elsewhere && path[0] == '/' ? NULL : path;
}

/* Numbers the listed files in the source. Of a checkpoint that is one file, lines of other files do not matter. */
static ckpt_status find_listed(verification *v, const ckpt_listed *listed, size_t n_listed, ckpt_file_sum *promised,
                               size_t *n, ckpt_error *err) {
  ckpt_source *source = v->input.index->source;
  const char *sums = ckpt_args_text(v->args, "sums", NULL);
  uint32_t n_own = ckpt_source_count(source);
  struct stat found;
  bool is_folder = stat(v->args->inputs[0], &found) == 0 && S_ISDIR(found.st_mode);
  for (size_t i = 0; i < n_listed; i++) {
    char buffer[PATH_MAX];
    const char *name = below_root(listed[i].path, ckpt_source_root(source), buffer);
    ckpt_error absent = {0};
    uint64_t size;
    ckpt_sum_parse(listed[i].sum, promised[*n].sha256);
    bool is_own = false;
    for (uint32_t k = 0; k < n_own && name != NULL && !is_folder; k++)
      is_own = is_own || strcmp(ckpt_source_name(source, k), name) == 0;
    if (!is_folder && !is_own) continue;
    if (name == NULL) {
      CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, sums, NULL, "line %u: %s is not in the checkpoint",
                                 listed[i].line, listed[i].path));
      continue;
    }
    ckpt_status status = ckpt_source_add(source, name, &promised[*n].file, &size, &absent);
    if (status == CKPT_ENOMEM) return ckpt_fail(err, status, NULL, NULL, "%s", absent.message);
    if (status == CKPT_OK)
      ++*n;
    else
      CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, absent.file[0] != '\0' ? absent.file : name, NULL,
                                 "listed in %s, line %u: %s", sums, listed[i].line, absent.message));
  }
  return CKPT_OK;
}

/* Whether every file that holds tensors is among the listed ones. */
static bool covers_weights(const ckpt_index *index, const ckpt_file_sum *promised, size_t n) {
  uint32_t n_files = ckpt_source_count(index->source);
  bool *is_listed = calloc((size_t)n_files + 1, sizeof *is_listed), covers = is_listed != NULL;
  for (size_t i = 0; i < n && covers; i++) is_listed[promised[i].file] = true;
  for (uint32_t i = 0; i < index->n_tensors && covers; i++)
    for (uint32_t k = 0; k < index->tensors[i].n_extents; k++) {
      uint32_t file = index->tensors[i].extents[k].file;
      covers = covers && (file == CKPT_FILE_ZERO || is_listed[file]);
    }
  free(is_listed);
  return covers;
}

static ckpt_status check_sums(verification *v, bool *is_whole, ckpt_error *err) {
  const char *sums = ckpt_args_text(v->args, "sums", NULL);
  ckpt_listed *listed;
  size_t n_listed, n = 0, n_equal = 0;
  *is_whole = false;
  if (sums == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_proving_read_list(&listed, &n_listed, v->args, sums, is_sha256, "<64 hex>  PATH", NULL, err));
  ckpt_file_sum *promised = calloc(n_listed, sizeof *promised);
  CKPT_TRY_ALLOC(promised, err);
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM];
  ckpt_status status = find_listed(v, listed, n_listed, promised, &n, err);
  if (status == CKPT_OK) status = check_files(v, promised, n, sums, &n_equal, err);
  *is_whole = status == CKPT_OK && n_equal == n && covers_weights(v->input.index, promised, n);
  if (status == CKPT_OK && v->findings.n_of[CKPT_PROBLEM] == n_problems)
    status = ckpt_findings_add(&v->findings, err, *is_whole ? CKPT_PROVEN : CKPT_PROBLEM, NULL, NULL,
                               *is_whole ? "bytes: SHA-256 of %zu file%s is that in %s"
                                         : "bytes: SHA-256 of %zu file%s is that in %s, but not every file of tensors "
                                           "stands there",
                               n, n == 1 ? "" : "s", sums);
  free(promised);
  return status;
}

/* ---- the receipt ---------------------------------------------------------------------------------------------------
 */

typedef struct replay {
  verification *v;
  ckpt_error *err;
  ckpt_status status;
} replay;

static void take_difference(void *arg, const ckpt_error *problem) {
  replay *r = arg;
  if (problem->status == CKPT_OK)
    ckpt_report_note(r->v->args, "%s: %s", problem->file, problem->message);
  else if (r->status == CKPT_OK)
    r->status = ckpt_findings_add(&r->v->findings, r->err, CKPT_PROBLEM, problem->file, problem->tensor, "%s",
                                  problem->message);
}

static ckpt_status check_receipt(verification *v, ckpt_error *err) {
  const char *path = ckpt_args_text(v->args, "receipt", NULL);
  if (path == NULL) return CKPT_OK;
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM];
  replay r = {.v = v, .err = err};
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_receipt_replay(path, v->args->inputs[0], &job.run, take_difference, &r, err);
  ckpt_job_end(&job);
  if (status == CKPT_OK) status = r.status;
  if (status != CKPT_OK || v->findings.n_of[CKPT_PROBLEM] != n_problems) return status;
  return ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                           "bytes: %s run again from its inputs gives the same content", path);
}

/* ---- what was found ------------------------------------------------------------------------------------------------
 */

static void print_findings(const verification *v) {
  static const char *const heads[] = {"problem", "warning", "proven", "not proven"};
  char count[32];
  const ckpt_findings *findings = &v->findings;
  for (int kind = 0; kind < CKPT_N_FINDING_KINDS; kind++)
    for (size_t i = 0; i < findings->n; i++) {
      const ckpt_finding *finding = &findings->items[i];
      if ((int)finding->kind != kind) continue;
      printf("%s: ", heads[kind]);
      if (finding->file != NULL) ckpt_text_print(stdout, finding->file), fputs(": ", stdout);
      if (finding->tensor != NULL)
        fputs("tensor '", stdout), ckpt_text_print(stdout, finding->tensor), fputs("': ", stdout);
      ckpt_text_print(stdout, finding->message);
      putchar('\n');
      if (finding->n_more != 0)
        printf("%s: ... and %s more of this kind\n", heads[kind], ckpt_text_count(finding->n_more, count));
    }
}

static void print_text(const verification *v) {
  char digest[80], count[32], size[32];
  const ckpt_index *index = v->input.index;
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM], n_warnings = v->findings.n_of[CKPT_WARNING];
  uint64_t n_bytes = 0;
  print_findings(v);
  ckpt_text_print(stdout, v->args->inputs[0]);
  fputs(": ", stdout);
  if (n_problems == 0) fputs("ok", stdout);
  if (n_problems != 0) printf("%zu problem%s", n_problems, n_problems == 1 ? "" : "s");
  if (n_warnings != 0) printf(", %zu warning%s", n_warnings, n_warnings == 1 ? "" : "s");
  for (uint32_t i = 0; index != NULL && i < index->n_tensors; i++) n_bytes += index->tensors[i].n_bytes;
  if (index != NULL)
    printf(", %s tensor%s, %s", ckpt_text_count(index->n_tensors, count), index->n_tensors == 1 ? "" : "s",
           ckpt_text_size(n_bytes, size));
  if (v->is_formed) printf(", %s", ckpt_digest_text(&v->content, digest));
  if (v->is_formed && v->cast != CKPT_DTYPE_NONE) printf(" (values as %s)", ckpt_dtype_name(v->cast));
  putchar('\n');
}

static void write_list(ckpt_emitter *json, const verification *v, const char *key, ckpt_finding_kind kind) {
  ckpt_emit_array(json, key);
  for (size_t i = 0; i < v->findings.n; i++) {
    const ckpt_finding *finding = &v->findings.items[i];
    if (finding->kind != kind) continue;
    if (kind == CKPT_PROVEN || kind == CKPT_UNPROVEN) {
      ckpt_emit_text(json, NULL, finding->message);
      continue;
    }
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "file", finding->file);
    ckpt_emit_text(json, "tensor", finding->tensor);
    ckpt_emit_text(json, "message", finding->message);
    if (finding->n_more != 0) ckpt_emit_u64(json, "n_more", finding->n_more);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

static void write_json(const verification *v) {
  char digest[80];
  const ckpt_index *index = v->input.index;
  uint64_t n_bytes = 0;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", v->findings.n_of[CKPT_PROBLEM] == 0 ? "ok" : "problems");
  write_list(&json, v, "problems", CKPT_PROBLEM);
  write_list(&json, v, "warnings", CKPT_WARNING);
  write_list(&json, v, "proven", CKPT_PROVEN);
  write_list(&json, v, "unproven", CKPT_UNPROVEN);
  for (uint32_t i = 0; index != NULL && i < index->n_tensors; i++) n_bytes += index->tensors[i].n_bytes;
  ckpt_emit_u64(&json, "n_problems", v->findings.n_of[CKPT_PROBLEM]);
  ckpt_emit_u64(&json, "n_warnings", v->findings.n_of[CKPT_WARNING]);
  ckpt_emit_u64(&json, "n_tensors", index == NULL ? 0 : index->n_tensors);
  ckpt_emit_u64(&json, "n_bytes", n_bytes);
  ckpt_emit_text(&json, "weights", index == NULL ? NULL : index->weights);
  ckpt_emit_text(&json, "digest", v->is_formed ? ckpt_digest_text(&v->content, digest) : NULL);
  ckpt_emit_text(&json, "cast", v->cast == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name(v->cast));
  ckpt_report_emit_notes(v->args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* ---- the verb ------------------------------------------------------------------------------------------------------
 */

/* Up to three names, for a list in a finding. */
typedef struct name_list {
  char text[400];
  size_t n_text, n;
} name_list;

static void list_name(name_list *list, const char *name) {
  const char *gap = list->n == 0 ? "" : ", ";
  size_t n_room = sizeof list->text - list->n_text;
  if (++list->n > 4) return;
  int n = snprintf(list->text + list->n_text, n_room, "%s%.100s", gap, list->n == 4 ? "..." : name);
  if (n > 0 && (size_t)n < n_room) list->n_text += (size_t)n;
}

/* What stands beside the tensors is in no digest. */
static ckpt_status say_undigested(verification *v, bool has_sums, ckpt_error *err) {
  static const char *const format = "%s (%s): they are in no digest (--sums proves them)";
  const ckpt_index *index = v->input.index;
  name_list files = {0}, keys = {0};
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    uint32_t file = index->side_files[i].file;
    if (file >= v->n_summed || !v->is_summed[file]) list_name(&files, index->side_files[i].name);
  }
  for (uint32_t i = 0; i < index->n_metadata && !has_sums; i++) list_name(&keys, index->metadata[i].key);
  if (files.n != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, format, "side files", files.text));
  if (keys.n != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, format, "metadata", keys.text));
  return CKPT_OK;
}

/* What the digest of --digest or --manifest is not of. */
static ckpt_status say_not_compared(verification *v, const char *include, ckpt_error *err) {
  const ckpt_index *index = v->input.index;
  bool is_master = index->weights != NULL && strcmp(index->weights, "master") == 0;
  size_t n_others = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    n_others += !ckpt_role_included(include, (ckpt_role)index->tensors[i].role, NULL) &&
                !ckpt_master_stands(index, &index->tensors[i]);
  if (is_master)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL, "%s: the digest is of the masters alone",
                               index->weights_note));
  if (n_others != 0)
    CKPT_TRY(ckpt_findings_add(
        &v->findings, err, CKPT_UNPROVEN, NULL, NULL,
        "roles: %zu tensor%s of other roles not compared (ckpt hash --include all -o FILE, then --manifest FILE)",
        n_others, n_others == 1 ? "" : "s"));
  if (index->n_wrapped != 0)
    CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "names: stored as %.200s%s (%u tensor%s), the digest is over names without wrappers",
                               index->first_wrapped, index->n_wrapped == 1 ? "" : " ...", index->n_wrapped,
                               index->n_wrapped == 1 ? "" : "s"));
  return CKPT_OK;
}

static ckpt_status say_unproven(verification *v, const char *include, bool is_proven, ckpt_error *err) {
  bool has_digest = v->has_digest || ckpt_args_has(v->args, "manifest");
  if (ckpt_args_has(v->args, "headers"))
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "values: tensor bytes were not read (--headers)");
  bool is_cast = v->cast != CKPT_DTYPE_NONE,
       has_others = v->has_digest || ckpt_args_has(v->args, "receipt") || ckpt_args_has(v->args, "sums");
  if (has_digest) CKPT_TRY(say_not_compared(v, include, err));
  if (has_digest || has_others) CKPT_TRY(say_undigested(v, is_proven, err));
  if (is_proven || has_others || (has_digest && !is_cast)) return CKPT_OK;
  if (has_digest)
    return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "bytes: the manifest is of values as %s; give one without --cast, --sums or --receipt",
                             ckpt_dtype_name(v->cast));
  return ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "bytes: no checksum in this format; give --digest, --manifest, --sums or --receipt");
}

/* A replay has indexes of its own: what has been compared makes room for them. */
static void free_manifests(verification *v) {
  ckpt_manifest_free(v->actual);
  ckpt_manifest_free(v->expected);
  v->actual = v->expected = NULL;
}

/* Everything about an index that could be opened. */
static ckpt_status verify_index(verification *v, ckpt_error *err) {
  bool is_cached = false, is_listed = false;
  char include[16] = "model"; /* outlives the manifest */
  if (v->expected != NULL) snprintf(include, sizeof include, "%s", v->expected->include);
  CKPT_TRY(ckpt_verify_structure(&v->findings, v->input.index, err));
  CKPT_TRY(ckpt_verify_config(&v->findings, v->input.index, err));
  if (!ckpt_args_has(v->args, "headers")) {
    CKPT_TRY(read_values(v, err));
    if (v->is_printed) return CKPT_OK;
    CKPT_TRY(check_digests(v, err));
    CKPT_TRY(check_cache(v, &is_cached, err));
    CKPT_TRY(check_sums(v, &is_listed, err));
    CKPT_TRY(ckpt_source_unchanged(v->input.index->source, err));
    free_manifests(v);
    CKPT_TRY(check_receipt(v, err));
  }
  return say_unproven(v, include, is_cached || is_listed, err);
}

static ckpt_status verify(verification *v, ckpt_error *err) {
  ckpt_error defect = {0};
  CKPT_TRY(check_args(v, err));
  ckpt_status status = ckpt_input_open(&v->input, v->args, 0, &defect);
  if (status == CKPT_OK) status = take_naming(v, &defect);
  if (status == CKPT_OK) return verify_index(v, err);
  ckpt_input_close(&v->input); /* what --like refused, too */
  return take_defect(v, status, &defect, err);
}

/* Notes of the index that are no problems: those that are stand among the results. */
static void print_notes(const verification *v) {
  const ckpt_index *index = v->input.index;
  for (uint32_t i = 0; index != NULL && i < index->n_notes; i++)
    if (!index->notes[i].is_problem) ckpt_report_note(v->args, "%s: %s", index->path, index->notes[i].text);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  verification v = {.args = args};
  ckpt_status status = verify(&v, &err);
  bool is_ok = v.findings.n_of[CKPT_PROBLEM] == 0;
  if (status == CKPT_OK && !v.is_printed) {
    print_notes(&v);
    if (args->json)
      write_json(&v);
    else
      print_text(&v);
  }
  ckpt_findings_free(&v.findings);
  free_manifests(&v);
  free(v.is_summed);
  ckpt_input_close(&v.input);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return is_ok ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

const ckpt_verb ckpt_verb_verify = {
    .name = "verify",
    .forms = "verify PATH [--headers] [--digest ckpt1:HEX] [--manifest FILE] [--sums FILE] [--receipt FILE]",
    .summary = "read everything and report every problem",
    .details =
        "Structure, strict where convert is tolerant (holes, trailing bytes, padding); coverage; checksums that "
        "the format carries; config and tokenizer against tensors; NaN and infinities in parameters. All "
        "problems are reported, not only the first; any makes the exit status 1. NaN in buffers and all-zero "
        "matrices are warnings. Of one kind 1,000 problems and 20 warnings are listed; all are counted. The result "
        "says what could not be proven.",
    .json =
        "{\"status\",\"problems\":[{\"file\",\"tensor\",\"message\"}],\"warnings\":[...],\"proven\":[...],"
        "\"unproven\":[...],\"n_problems\",\"n_warnings\",\"n_tensors\",\"n_bytes\",\"weights\",\"digest\",\"cast\","
        "\"notes\":[]}; proven and unproven are texts; \"cast\" is the dtype of the manifest's values, of which the "
        "digest is, too; \"n_more\" "
        "on the last of 1,000 problems or 20 warnings of one kind counts those that are not "
        "listed",
    .options = options,
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
