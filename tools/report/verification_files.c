/* verification_files.c - `ckpt verify` and whole files: blobs of the cache, --sums, side files of --manifest. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/format.h"
#include "libckpt/index/overlap.h"
#include "tools/report/job.h"
#include "tools/report/proving.h"
#include "tools/report/verification.h"

static ckpt_source *source_of(const ckpt_verification *v) {
  return v->input.index == NULL ? v->files : v->input.index->source;
}

/* Keeps which files are as promised. */
static ckpt_status note_summed(ckpt_verification *v, const ckpt_file_sum *promised, size_t n, ckpt_error *err) {
  uint32_t n_files = ckpt_source_count(source_of(v));
  bool *moved = reallocarray(v->is_summed, (size_t)n_files + 1, sizeof *moved);
  CKPT_TRY_ALLOC(moved, err);
  v->is_summed = moved;
  for (; v->n_summed < n_files; v->n_summed++) moved[v->n_summed] = false;
  for (size_t i = 0; i < n; i++) moved[promised[i].file] = true;
  return CKPT_OK;
}

/* Runs ckpt_verify_files as a job of its own. */
static ckpt_status check_files(ckpt_verification *v, const ckpt_file_sum *promised, size_t n, const char *promise,
                               size_t *n_equal, ckpt_error *err) {
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_verify_files(&v->findings, source_of(v), promised, n, promise, &job.run, n_equal, err);
  ckpt_job_end(&job);
  return status == CKPT_OK && *n_equal == n ? note_summed(v, promised, n, err) : status;
}

ckpt_status ckpt_verification_cache(ckpt_verification *v, bool *is_whole, ckpt_error *err) {
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
        *is_whole = *is_whole && (file == CKPT_FILE_LITERAL || is_promised[file]);
      }
    if (status == CKPT_OK && n_equal == n)
      status = ckpt_findings_add(&v->findings, err, CKPT_PROVEN, NULL, NULL,
                                 "%s: SHA-256 of %zu file%s is that of the blob's name in the cache",
                                 *is_whole ? "bytes" : "files", n, ckpt_plural(n));
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
static ckpt_status find_listed(ckpt_verification *v, const ckpt_listed *listed, size_t n_listed,
                               ckpt_file_sum *promised, size_t *n, ckpt_error *err) {
  ckpt_source *source = source_of(v);
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
    if (status == CKPT_ENOMEM) return ckpt_fail_as(err, status, NULL, NULL, &absent);
    if (status == CKPT_OK)
      ++*n;
    else
      CKPT_TRY(ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, absent.file[0] != '\0' ? absent.file : name, NULL,
                                 "listed in %s, line %u: %s", sums, listed[i].line, absent.message));
  }
  return CKPT_OK;
}

static int compare_sums(const void *a, const void *b) {
  const ckpt_file_sum *x = a, *y = b;
  return x->file != y->file ? (x->file < y->file ? -1 : 1) : memcmp(x->sha256, y->sha256, sizeof x->sha256);
}

/* Leaves one of lines that say the same of a file. */
static void drop_repeated(ckpt_file_sum *promised, size_t *n) {
  size_t n_kept = 0;
  qsort(promised, *n, sizeof *promised, compare_sums);
  for (size_t i = 0; i < *n; i++)
    if (i == 0 || compare_sums(&promised[n_kept - 1], &promised[i]) != 0) promised[n_kept++] = promised[i];
  *n = n_kept;
}

/* Whether every file that holds tensors is among the listed ones. */
static bool covers_weights(const ckpt_index *index, const ckpt_file_sum *promised, size_t n) {
  if (index == NULL) return false;
  uint32_t n_files = ckpt_source_count(index->source);
  bool *is_listed = calloc((size_t)n_files + 1, sizeof *is_listed), covers = is_listed != NULL;
  for (size_t i = 0; i < n && covers; i++) is_listed[promised[i].file] = true;
  for (uint32_t i = 0; i < index->n_tensors && covers; i++)
    for (uint32_t k = 0; k < index->tensors[i].n_extents; k++) {
      uint32_t file = index->tensors[i].extents[k].file;
      covers = covers && (file == CKPT_FILE_LITERAL || is_listed[file]);
    }
  free(is_listed);
  return covers;
}

/* The files of a path that no index is of. */
static ckpt_status open_files(ckpt_verification *v, ckpt_error *err) {
  const char *path = v->args->inputs[0];
  struct stat found;
  uint32_t file;
  uint64_t size;
  CKPT_TRY(ckpt_source_open(&v->files, path, err));
  if (stat(path, &found) != 0 || S_ISDIR(found.st_mode)) return CKPT_OK;
  return ckpt_source_add(v->files, ckpt_path_name(path), &file, &size, err);
}

ckpt_status ckpt_verification_sums(ckpt_verification *v, bool *is_whole, ckpt_error *err) {
  const char *sums = ckpt_args_text(v->args, "sums", NULL);
  ckpt_listed *listed;
  size_t n_listed, n = 0, n_equal = 0;
  *is_whole = false;
  if (sums == NULL) return CKPT_OK;
  if (v->input.index == NULL) CKPT_TRY(open_files(v, err));
  CKPT_TRY(ckpt_proving_read_list(&listed, &n_listed, v->args, sums, is_sha256, "<64 hex>  PATH", NULL, err));
  ckpt_file_sum *promised = calloc(n_listed, sizeof *promised);
  CKPT_TRY_ALLOC(promised, err);
  size_t n_problems = v->findings.n_of[CKPT_PROBLEM];
  ckpt_status status = find_listed(v, listed, n_listed, promised, &n, err);
  drop_repeated(promised, &n);
  if (status == CKPT_OK) status = check_files(v, promised, n, sums, &n_equal, err);
  *is_whole = status == CKPT_OK && n != 0 && n_equal == n && covers_weights(v->input.index, promised, n);
  bool is_equal = v->findings.n_of[CKPT_PROBLEM] == n_problems, has_index = v->input.index != NULL;
  if (status == CKPT_OK && is_equal && n == 0)
    status = ckpt_findings_add(&v->findings, err, CKPT_PROBLEM, sums, NULL, "lists no file of the checkpoint");
  else if (status == CKPT_OK && is_equal)
    status = ckpt_findings_add(&v->findings, err, *is_whole || !has_index ? CKPT_PROVEN : CKPT_PROBLEM,
                               *is_whole || !has_index ? NULL : sums, NULL,
                               *is_whole || !has_index
                                   ? "bytes: SHA-256 of %zu file%s is that in %s"
                                   : "bytes: SHA-256 of %zu file%s is that in %s, but not every file of tensors "
                                     "stands there",
                               n, ckpt_plural(n), sums);
  free(promised);
  return status;
}

ckpt_status ckpt_verification_side_files(ckpt_verification *v, ckpt_error *err) {
  if (v->expected == NULL || v->expected->side_files.n == 0) return CKPT_OK;
  ckpt_job job;
  ckpt_job_begin(&job, v->args);
  ckpt_status status = ckpt_verify_side_files(&v->findings, v->input.index, &v->expected->side_files,
                                              ckpt_args_text(v->args, "manifest", NULL), &job.run, err);
  ckpt_job_end(&job);
  v->has_side_files = true;
  return status;
}

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether one of the checkpoint's files, sorted, is this entry of its folder or lies below it. */
static bool is_part(const char *const *parts, uint32_t n_parts, const ckpt_entry *entry) {
  char name[PATH_MAX];
  uint32_t low = 0, high = n_parts;
  int n = snprintf(name, sizeof name, "%s%s", entry->name, entry->is_folder ? "/" : "");
  if (n < 0 || (size_t)n >= sizeof name) return false;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (strcmp(parts[middle], name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low < n_parts && (entry->is_folder ? strncmp(parts[low], name, (size_t)n) : strcmp(parts[low], name)) == 0;
}

/* A record that was put into the folder. */
static bool is_record(const ckpt_verification *v, const char *name) {
  static const char *const options[] = {"manifest", "receipt", "sums"};
  const char *root = ckpt_source_root(v->input.index->source);
  char path[PATH_MAX];
  if ((size_t)snprintf(path, sizeof path, "%s/%s", root, name) >= sizeof path) return false;
  for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
    const char *record = ckpt_args_text(v->args, options[i], NULL);
    if (record != NULL && ckpt_is_same_path(path, record)) return true;
  }
  return false;
}

ckpt_status ckpt_verification_others(ckpt_verification *v, ckpt_error *err) {
  const ckpt_source *source = v->input.index->source;
  const ckpt_caps caps = ckpt_caps_of(v->input.index);
  ckpt_name_list others = {.n = 0};
  size_t n_entries = 0;
  ckpt_entry *entries = NULL;
  const bool is_folder = strcmp(ckpt_source_root(source), v->input.index->path) == 0;
  if (!caps.is_folder && !(caps.shards && is_folder)) return CKPT_OK;
  uint32_t n_parts = ckpt_source_count(source);
  const char **parts = calloc((size_t)n_parts + 1, sizeof *parts);
  CKPT_TRY_ALLOC(parts, err);
  for (uint32_t i = 0; i < n_parts; i++) parts[i] = ckpt_source_name(source, i);
  qsort(parts, n_parts, sizeof *parts, compare_texts);
  ckpt_status status = ckpt_list(&entries, &n_entries, ckpt_source_root(source), "", err);
  for (size_t i = 0; status == CKPT_OK && i < n_entries; i++)
    if (!is_part(parts, n_parts, &entries[i]) && !is_record(v, entries[i].name))
      ckpt_name_list_add(&others, entries[i].name);
  if (status == CKPT_OK && others.n != 0)
    status = ckpt_findings_add(&v->findings, err, CKPT_UNPROVEN, NULL, NULL,
                               "folder: %zu other%s there that %s no part of the checkpoint (%s)", others.n,
                               others.n == 1 ? " lies" : "s lie", others.n == 1 ? "is" : "are", others.text);
  ckpt_list_free(entries, n_entries);
  free(parts);
  return status;
}
