/* hash.c - `ckpt hash`: the content digest, whatever the format, shards and file names; `--check` of lists of them;
 * `--files`, the SHA-256 of each file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/overlap.h"
#include "libckpt/recipe/records/files.h"
#include "libckpt/recipe/records/manifest.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/job.h"
#include "tools/report/json_writer.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* ---- several inputs ---------------------------------------------------------------------------------------------- */

/* The first input that failed. As for sha256sum the others are still read. */
typedef struct failing {
  ckpt_error first;
  uint32_t n;
} failing;

/* Whether a failure is of one input among several: then it is said, kept in out, and cleared. */
static bool goes_on(failing *out, const ckpt_args *args, ckpt_status status, ckpt_error *err) {
  if (status == CKPT_ECANCELED || status == CKPT_ENOMEM || status == CKPT_EINTERNAL || args->n_inputs < 2) return false;
  ckpt_report_line(err);
  if (out->n++ == 0) out->first = *err;
  *err = (ckpt_error){0};
  return true;
}

static void emit_status(ckpt_emitter *json, const failing *failed) {
  ckpt_emit_text(json, "status", failed->n == 0 ? "ok" : "error");
  if (failed->n != 0) ckpt_report_emit_error(json, &failed->first);
}

/* ---- one digest -------------------------------------------------------------------------------------------------- */

/* A path that has been hashed; with --plan there is no manifest. */
typedef struct hashed {
  const char *path;
  ckpt_manifest *manifest; /* owned */
  uint64_t n_bytes;
} hashed;

/* What a manifest that is to be written has beside the digests. */
static ckpt_status add_side_files(const hashed *out, const ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  ckpt_job job;
  if (out->manifest == NULL || !ckpt_args_has(args, "output")) return CKPT_OK;
  ckpt_job_begin(&job, args);
  ckpt_status status = ckpt_manifest_add_side_files(out->manifest, index, &job.run, err);
  ckpt_job_end(&job);
  return status;
}

/* Leaves out what --exclude says; nothing that is not read is passed over. */
static ckpt_status choose(ckpt_hashing *hashing, ckpt_args *args, ckpt_error *err) {
  const char *const *exclude;
  CKPT_TRY(ckpt_args_texts(&exclude, args, "exclude", err));
  hashing->sums_files = ckpt_args_has(args, "output");
  return ckpt_hashing_choose(hashing, exclude, true, err);
}

/* A digest of none of its tensors would be that of every such checkpoint. */
static ckpt_status check_included(const ckpt_hashing *hashing, ckpt_error *err) {
  const size_t n = ckpt_index_count(hashing->from);
  for (size_t i = 0; i < n; i++)
    if (ckpt_hashing_at(hashing, i) != NULL) return CKPT_OK;
  if (n == 0 && hashing->from->objects != NULL && hashing->from->objects->n != 0)
    return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "nothing to hash: it has no tensor, and objects are not hashed");
  if (n == 0) return CKPT_OK;
  if (hashing->is_left_out != NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL, "nothing to hash: --exclude leaves none of its %zu tensor%s", n,
                     ckpt_plural(n));
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                   "nothing to hash: none of its %zu tensor%s is of --include %s (--include all takes all of them)", n,
                   ckpt_plural(n), hashing->include);
}

static ckpt_status hash_index(hashed *out, ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  const ckpt_hash_options hash_options = {.struct_size = sizeof hash_options,
                                          .cast = ckpt_args_dtype(args, "cast"),
                                          .include = ckpt_args_text(args, "include", "model")};
  ckpt_hashing hashing = {0};
  bool is_printed = false;
  ckpt_status status = ckpt_hashing_start(&hashing, index, &hash_options, err);
  if (status == CKPT_OK) status = choose(&hashing, args, err);
  if (status == CKPT_OK) status = check_included(&hashing, err);
  if (status == CKPT_OK) {
    ckpt_proof proof = ckpt_hashing_proof(&hashing);
    proof.allow_overflow = ckpt_args_has(args, "allow-overflow");
    out->n_bytes = proof.n_bytes;
    status = ckpt_proving_run(args, &proof, &is_printed, err);
  }
  if (status == CKPT_OK && !is_printed) status = ckpt_manifest_new(&out->manifest, &hashing, NULL, err);
  ckpt_hashing_end(&hashing);
  if (status == CKPT_OK) status = add_side_files(out, args, index, err);
  return ckpt_fail_at(status, err, index->path, NULL);
}

/* The manifest's place, before anything is read. */
static ckpt_status check_output(const ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  const char *path = ckpt_args_text(args, "output", NULL);
  struct stat found;
  if (path == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_refuse_input_overlap(index, NULL, path, false, err));
  bool is_there = lstat(path, &found) == 0;
  if (is_there && S_ISDIR(found.st_mode))
    return ckpt_fail(err, CKPT_EEXIST, path, NULL, "is a folder, and a manifest is a file (-o %s/manifest.json)", path);
  if (is_there && !ckpt_args_has(args, "force"))
    return ckpt_fail(err, CKPT_EEXIST, path, NULL, "is there already (--force replaces it)");
  return CKPT_OK;
}

/* Why the digest of this may not be that of the same model elsewhere. */
static ckpt_status note_names(ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  const char *note;
  ckpt_index *apart;
  CKPT_TRY(ckpt_dialect_apart(&apart, index, err));
  if (apart != NULL)
    ckpt_report_note(args,
                     "%s: names are those of a state dict: a folder of this model has others, and another digest (ckpt "
                     "convert writes one)",
                     index->path);
  ckpt_index_free(apart);
  CKPT_TRY(ckpt_arch_unstated_tie(index, index->architecture, &args->arena, &note, err));
  if (note != NULL) ckpt_report_note(args, "%s: %s (--like MODEL)", index->path, note);
  return CKPT_OK;
}

static ckpt_status hash_input(hashed *out, ckpt_args *args, uint32_t number, ckpt_error *err) {
  ckpt_input input;
  out->path = args->inputs[number];
  ckpt_status status = ckpt_input_open(&input, args, number, err);
  if (status == CKPT_OK) ckpt_input_print_notes(args, &input);
  if (status == CKPT_OK) status = note_names(args, input.index, err);
  if (status == CKPT_OK) status = check_output(args, input.index, err);
  if (status == CKPT_OK) status = hash_index(out, args, input.index, err);
  ckpt_input_close(&input);
  return status;
}

/* Why two that are one model may have two digests: a GGUF file has vectors and norms in f32. */
static void note_widened(const ckpt_args *args, const hashed *one, const hashed *other) {
  const ckpt_manifest_entry *first;
  const size_t n = one->manifest == NULL || other->manifest == NULL
                       ? 0
                       : ckpt_manifest_n_widened(one->manifest, other->manifest, &first);
  if (n == 0) return;
  const ckpt_manifest_entry *there = ckpt_manifest_find(other->manifest, first->name);
  ckpt_report_note(args,
                   "%s: differs from %s in the dtype of %zu tensor%s (%s is %s, there %s); --cast f32 gives one digest "
                   "if values are equal",
                   one->path, other->path, n, ckpt_plural(n), first->name, ckpt_dtype_name((ckpt_dtype)first->dtype),
                   ckpt_dtype_name((ckpt_dtype)there->dtype));
}

static void print_text(const ckpt_args *args, const hashed *h) {
  if (!ckpt_args_has(args, "tensors")) {
    ckpt_report_digest(&h->manifest->digest, h->path);
    return;
  }
  for (size_t i = 0; i < h->manifest->n && !ferror(stdout); i++)
    ckpt_report_digest(&h->manifest->entries[i].digest, h->manifest->entries[i].name);
}

static void write_hash(ckpt_emitter *json, const ckpt_args *args, const hashed *h) {
  char digest[80];
  ckpt_emit_object(json, NULL);
  ckpt_emit_text(json, "path", h->path);
  ckpt_emit_text(json, "digest", ckpt_digest_text(&h->manifest->digest, digest));
  ckpt_emit_text(json, "names", h->manifest->names);
  ckpt_emit_u64(json, "n_tensors", h->manifest->n);
  ckpt_emit_u64(json, "n_bytes", h->n_bytes);
  if (ckpt_args_has(args, "tensors")) {
    ckpt_emit_array(json, "tensors");
    for (size_t i = 0; i < h->manifest->n; i++) {
      ckpt_emit_object(json, NULL);
      ckpt_emit_text(json, "name", h->manifest->entries[i].name);
      ckpt_emit_text(json, "digest", ckpt_digest_text(&h->manifest->entries[i].digest, digest));
      ckpt_emit_end(json);
    }
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

static void write_hashes(const ckpt_args *args, const hashed *hashes, const failing *failed) {
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  emit_status(&json, failed);
  ckpt_emit_array(&json, "hashes");
  for (uint32_t i = 0; i < args->n_inputs; i++)
    if (hashes[i].manifest != NULL) write_hash(&json, args, &hashes[i]);
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* Text appears path by path, JSON once all have been read. */
static int run_hash(ckpt_args *args) {
  ckpt_error err = {0};
  failing failed = {.n = 0};
  hashed *hashes = calloc(args->n_inputs, sizeof *hashes);
  ckpt_status status = CKPT_OK;
  if (hashes == NULL) status = ckpt_fail(&err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  bool is_plan = ckpt_args_has(args, "plan");
  for (uint32_t i = 0; i < args->n_inputs && status == CKPT_OK; i++) {
    status = hash_input(&hashes[i], args, i, &err);
    if (status == CKPT_OK && ckpt_args_has(args, "output") && !is_plan)
      status = ckpt_manifest_write(hashes[i].manifest, ckpt_args_text(args, "output", NULL),
                                   ckpt_args_has(args, "force"), &err);
    if (status == CKPT_OK && !args->json && !is_plan) print_text(args, &hashes[i]);
    if (status == CKPT_OK && i != 0) note_widened(args, &hashes[i], &hashes[0]);
    if (status != CKPT_OK && goes_on(&failed, args, status, &err)) status = CKPT_OK;
  }
  if (status == CKPT_OK && args->json && !is_plan) write_hashes(args, hashes, &failed);
  for (uint32_t i = 0; hashes != NULL && i < args->n_inputs; i++) ckpt_manifest_free(hashes[i].manifest);
  free(hashes);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return failed.n == 0 ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

/* ---- --check ----------------------------------------------------------------------------------------------------- */

typedef struct checked {
  ckpt_digest expected, actual;
  bool is_equal, is_read;
  char *error;         /* why it could not be read, or NULL; owned */
  const char *weights; /* as the index had it */
} checked;

static bool is_digest(const char *text) {
  ckpt_digest ignored;
  return ckpt_digest_parse(text, &ignored);
}

/* What cannot be opened or read is a result, as for sha256sum; a cancelled run is none. */
static ckpt_status check_one(checked *out, ckpt_args *args, const ckpt_listed *listed, ckpt_error *err) {
  ckpt_input input;
  ckpt_error error = {0};
  hashed h = {.path = listed->path};
  ckpt_digest_parse(listed->sum, &out->expected);
  ckpt_status status = ckpt_input_open_listed(&input, args, listed->path, &error);
  const ckpt_index *index = input.index;
  if (status == CKPT_OK && index->weights != NULL) {
    out->weights = strcmp(index->weights, "master") == 0 ? "master" : "model";
    char weights[512];
    ckpt_report_note(args, "%s: %s", listed->path, ckpt_report_weights(index, weights, sizeof weights));
  }
  if (status == CKPT_OK) status = hash_index(&h, args, index, &error);
  if (status == CKPT_OK) {
    out->actual = h.manifest->digest;
    out->is_read = true;
    out->is_equal = memcmp(&out->actual, &out->expected, sizeof out->actual) == 0;
    if (!out->is_equal) status = note_names(args, index, &error);
  }
  ckpt_manifest_free(h.manifest);
  ckpt_input_close(&input);
  if (status == CKPT_ECANCELED || status == CKPT_ENOMEM || status == CKPT_EINTERNAL) {
    *err = error;
    return status;
  }
  if (status != CKPT_OK) {
    char text[1800];
    ckpt_fail_at(status, &error, listed->path, NULL);
    out->error = strdup(ckpt_report_text(&error, text, sizeof text));
    CKPT_TRY_ALLOC(out->error, err);
  }
  return CKPT_OK;
}

static void print_checked(const ckpt_args *args, const ckpt_listed *listed, const checked *one) {
  if (one->error != NULL) ckpt_report_warning(args, "%s", one->error);
  ckpt_text_print(stdout, listed->path);
  puts(one->is_equal ? ": OK" : one->is_read ? ": FAILED" : ": FAILED open or read");
  fflush(stdout);
}

static void write_checked(const ckpt_args *args, const ckpt_listed *listed, const checked *results, size_t n,
                          size_t n_malformed) {
  char digest[80];
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  size_t n_equal = 0;
  for (size_t i = 0; i < n; i++) n_equal += results[i].is_equal;
  ckpt_emit_text(&json, "status", n_equal == n && n_malformed == 0 ? "ok" : "different");
  ckpt_emit_u64(&json, "n_malformed", n_malformed);
  ckpt_emit_array(&json, "checked");
  for (size_t i = 0; i < n; i++) {
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "path", listed[i].path);
    ckpt_emit_text(&json, "expected", ckpt_digest_text(&results[i].expected, digest));
    ckpt_emit_text(&json, "digest", results[i].is_read ? ckpt_digest_text(&results[i].actual, digest) : NULL);
    ckpt_emit_bool(&json, "equal", results[i].is_equal);
    ckpt_emit_text(&json, "weights", results[i].weights);
    if (!results[i].is_read) ckpt_emit_text(&json, "error", results[i].error);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* JSON is no list; a manifest holds digests too: say what checks it. */
static ckpt_status refuse_json(const char *path, ckpt_error *err) {
  struct stat found; /* a pipe can be read only once */
  char head[256];
  bool is_file = strcmp(path, "-") != 0 && stat(path, &found) == 0 && S_ISREG(found.st_mode);
  FILE *file = is_file ? fopen(path, "re") : NULL;
  size_t n = file == NULL ? 0 : fread(head, 1, sizeof head, file), first = 0;
  if (file != NULL) fclose(file);
  while (first < n && memchr(" \t\r\n", head[first], 4) != NULL) first++;
  if (first == n || (head[first] != '{' && head[first] != '[')) return CKPT_OK;
  if (memmem(head, n, "\"ckpt_manifest\"", 15) != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "is a manifest, not a list (ckpt verify PATH --manifest %s)", path);
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                   "is JSON; --check takes lines `ckpt1:<64 hex>  PATH`, as ckpt hash prints them (a manifest of ckpt "
                   "hash -o is for ckpt verify PATH --manifest)");
}

static int run_check(ckpt_args *args, const char *path) {
  ckpt_error err = {0};
  ckpt_listed *listed = NULL;
  checked *results = NULL;
  size_t n = 0, n_equal = 0, n_unread = 0, n_malformed = 0;
  ckpt_status status = refuse_json(path, &err);
  if (status == CKPT_OK)
    status = ckpt_proving_read_list(&listed, &n, args, path, is_digest, "ckpt1:<64 hex>  PATH", &n_malformed, &err);
  if (status == CKPT_OK && (results = calloc(n, sizeof *results)) == NULL)
    status = ckpt_fail(&err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (size_t i = 0; i < n && status == CKPT_OK; i++) {
    status = check_one(&results[i], args, &listed[i], &err);
    if (status != CKPT_OK) break;
    n_equal += results[i].is_equal;
    n_unread += !results[i].is_read;
    if (!args->json) print_checked(args, &listed[i], &results[i]);
  }
  bool is_ok = n_equal == n && n_malformed == 0;
  if (status == CKPT_OK && args->json) write_checked(args, listed, results, n, n_malformed);
  for (size_t i = 0; results != NULL && i < n; i++) free(results[i].error);
  free(results);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  if (n_equal + n_unread != n && !args->json)
    fprintf(stderr, "ckpt: %zu of %zu digest%s did NOT match (ckpt diff, or ckpt verify --manifest, says where)\n",
            n - n_equal - n_unread, n, ckpt_plural(n));
  if (n_unread != 0 && !args->json)
    fprintf(stderr, "ckpt: %zu of %zu path%s could not be read\n", n_unread, n, ckpt_plural(n));
  if (n_malformed != 0 && !args->json)
    fprintf(stderr, "ckpt: %zu line%s of the list cannot be read\n", n_malformed, ckpt_plural(n_malformed));
  return is_ok ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

/* ---- --files ----------------------------------------------------------------------------------------------------- */

typedef struct file_line {
  char *path; /* owned */
  uint8_t sha256[32];
} file_line;

typedef struct file_lines {
  file_line *lines;
  size_t n;
} file_lines;

static int by_path(const void *a, const void *b) {
  return strcmp(((const file_line *)a)->path, ((const file_line *)b)->path);
}

/* Adds every file right in a folder to its source; "." files are none of its. */
static ckpt_status add_plain_files(ckpt_source *source, const char *folder, ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n = 0;
  uint32_t file;
  uint64_t size;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_list(&entries, &n, folder, "", err));
  for (size_t i = 0; i < n; i++)
    if (entries[i].is_file && entries[i].name[0] != '.')
      CKPT_TRY_GOTO(ckpt_source_add(source, entries[i].name, &file, &size, err));
done:
  ckpt_list_free(entries, n);
  return status;
}

/* The files at a path that is no checkpoint we know: a sum needs no format. */
static ckpt_status open_plain(ckpt_source **out, const char *path, ckpt_error *err) {
  struct stat found;
  uint32_t file;
  uint64_t size;
  if (stat(path, &found) != 0) return ckpt_fail_errno(err, path, "cannot be opened");
  CKPT_TRY(ckpt_source_open(out, path, err));
  if (S_ISDIR(found.st_mode)) return add_plain_files(*out, path, err);
  return ckpt_source_add(*out, ckpt_path_name(path), &file, &size, err);
}

/* Every file of one input, side files too. */
static ckpt_status sum_input(file_lines *out, const ckpt_args *args, uint32_t number, ckpt_error *err) {
  ckpt_input input;
  ckpt_source *plain = NULL;
  ckpt_file_sum *sums = NULL;
  ckpt_job job;
  ckpt_status status = ckpt_input_open(&input, args, number, err);
  if (status == CKPT_EFORMAT || status == CKPT_EUNSUPPORTED) {
    *err = (ckpt_error){0};
    CKPT_TRY_GOTO(open_plain(&plain, args->inputs[number], err));
  } else if (status != CKPT_OK) {
    goto done;
  }
  if (plain == NULL) ckpt_input_print_notes(args, &input);
  ckpt_source *source = plain != NULL ? plain : input.index->source;
  uint32_t n = ckpt_source_count(source);
  sums = calloc((size_t)n + 1, sizeof *sums);
  file_line *lines = reallocarray(out->lines, out->n + n + 1, sizeof *lines);
  if (lines != NULL) out->lines = lines;
  if (sums == NULL || lines == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (uint32_t i = 0; i < n; i++) sums[i].file = i;
  ckpt_job_begin(&job, args);
  status = ckpt_sum_files(source, sums, n, &job.run, err);
  ckpt_job_end(&job);
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++) {
    file_line line = {.path = strdup(ckpt_source_path(source, i))};
    memcpy(line.sha256, sums[i].sha256, sizeof line.sha256);
    if (line.path == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (line.path != NULL) lines[out->n++] = line;
  }
done:
  free(sums);
  ckpt_source_free(plain);
  ckpt_input_close(&input);
  return status;
}

static void print_files(const ckpt_args *args, const file_lines *files, const failing *failed) {
  char hex[65];
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  if (args->json) {
    ckpt_emit_object(&json, NULL);
    emit_status(&json, failed);
    ckpt_emit_array(&json, "files");
  }
  for (size_t i = 0; i < files->n; i++) {
    ckpt_sum_text(files->lines[i].sha256, hex);
    if (!args->json) {
      ckpt_proving_print_sum(hex, files->lines[i].path);
      continue;
    }
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "path", files->lines[i].path);
    ckpt_emit_text(&json, "sha256", hex);
    ckpt_emit_end(&json);
  }
  if (!args->json) return;
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

static int run_files(ckpt_args *args) {
  ckpt_error err = {0};
  file_lines files = {0};
  failing failed = {.n = 0};
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < args->n_inputs && status == CKPT_OK; i++) {
    size_t first = files.n;
    status = sum_input(&files, args, i, &err);
    if (files.n != first) qsort(files.lines + first, files.n - first, sizeof *files.lines, by_path);
    if (status != CKPT_OK && goes_on(&failed, args, status, &err)) status = CKPT_OK;
  }
  if (status == CKPT_OK) print_files(args, &files, &failed);
  for (size_t i = 0; i < files.n; i++) free(files.lines[i].path);
  free(files.lines);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return failed.n == 0 ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* What the table cannot say about which options go together. */
static ckpt_status check_args(const ckpt_args *args, ckpt_error *err) {
  static const char *const digest_only[] = {"tensors", "output",         "cast",   "include",
                                            "exclude", "allow-overflow", "adapter"};
  bool is_check = ckpt_args_has(args, "check"), is_files = ckpt_args_has(args, "files");
  if (is_check && is_files) return ckpt_args_fail(args, err, "--check and --files exclude each other");
  if (is_check && args->n_inputs != 0)
    return ckpt_args_fail(args, err, "--check takes its paths from FILE (unexpected argument '%s')", args->inputs[0]);
  if (is_check && ckpt_args_has(args, "plan")) return ckpt_args_fail(args, err, "--check has no --plan");
  if (!is_check && args->n_inputs == 0)
    return ckpt_args_fail(args, err, "the input is missing: ckpt hash PATH..., or --check FILE");
  for (size_t i = 0; i < sizeof digest_only / sizeof *digest_only; i++)
    if (ckpt_args_has(args, digest_only[i]) && (is_files || (is_check && i < 2)))
      return ckpt_args_fail(args, err, "--%s has no meaning with --%s", digest_only[i], is_files ? "files" : "check");
  if (is_files && ckpt_args_has(args, "plan")) return ckpt_args_fail(args, err, "--files has no --plan");
  if (ckpt_args_has(args, "trace") && (is_check || args->n_inputs > 1))
    return ckpt_args_fail(args, err, "--trace follows one run: give one input");
  if (ckpt_args_has(args, "output") && ckpt_args_has(args, "adapter"))
    return ckpt_args_fail(args, err, "-o with --adapter: a manifest is of what is stored (merge it first)");
  if (ckpt_args_has(args, "output") && args->n_inputs > 1)
    return ckpt_args_fail(args, err, "-o writes the manifest of one input, %u are given", args->n_inputs);
  if (args->json && ckpt_args_has(args, "plan") && args->n_inputs > 1)
    return ckpt_args_fail(args, err, "--plan --json is of one input, %u are given", args->n_inputs);
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  const char *list = ckpt_args_text(args, "check", NULL);
  if (check_args(args, &err) != CKPT_OK) return ckpt_report_error(args, &err);
  if (list != NULL) return run_check(args, list);
  return ckpt_args_has(args, "files") ? run_files(args) : run_hash(args);
}

const ckpt_verb ckpt_verb_hash = {
    .name = "hash",
    .forms =
        "hash PATH... [--tensors] [--cast DTYPE] [--include WHAT] [--exclude PATTERN] [-o MANIFEST]\n"
        "hash --check FILE\n"
        "hash --files PATH...",
    .summary = "content digest, independent of format and shards",
    .details =
        "Prints `ckpt1:<64 hex>  PATH`. The digest covers names, dtypes, shapes and values. A model has the "
        "same digest in every format, however its files are sharded, ordered or named. A note tells where a "
        "format lost bits or tensors, or gave norms another dtype; compare such models with --cast f32.\n"
        "\n"
        "A manifest (-o) records each tensor's digest, the naming, --include, --exclude and --cast. Without --cast it "
        "also records the SHA-256 of the side files. `ckpt verify --manifest` names the tensors and files "
        "that differ from it. With --check, give the same --cast, --include, --exclude, --names, --weights, --like "
        "and --adapter as when the list was made. A tensor that is named but cannot be read is an error; --exclude "
        "leaves it out.\n"
        "\n"
        "  ckpt hash llama/ > llama.sum && ckpt hash --check llama.sum",
    .json =
        "{\"status\",\"hashes\":[{\"path\",\"digest\",\"names\",\"n_tensors\",\"n_bytes\",\"tensors\":[{\"name\","
        "\"digest\"}]}],\"notes\":[]}; --check: "
        "{\"status\",\"n_malformed\",\"checked\":[{\"path\",\"expected\",\"digest\",\"equal\",\"weights\"}],"
        "\"notes\":[]}, with \"error\" for what could not be read; --files: "
        "{\"status\",\"files\":[{\"path\",\"sha256\"}],\"notes\":[]}; with an input that "
        "failed, "
        "\"error\" of the first",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 0,
    .max_inputs = UINT32_MAX,
    .run = run,
};
