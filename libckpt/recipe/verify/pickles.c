/* pickles.c - the pickles of a folder against what scan says of them: whoever loads one of them runs what it calls, be
 * it the weights, the training arguments beside them, or a file that is no part of the checkpoint. Of a checkpoint that
 * is one file its side files are looked at; that file is judged where it is read (codec/torch/read/file.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/scan/scan.h"
#include "libckpt/recipe/verify/verify.h"

/* What would run code for certain, unless reading the file has told of it. */
static ckpt_status add_dangerous(ckpt_findings *findings, const ckpt_scan *scan, ckpt_error *err) {
  static const char *const format = "would run code when it is unpickled: %.700s";
  char defect[1024];
  for (uint32_t i = 0; i < scan->n; i++)
    for (uint32_t k = 0; k < scan->pickles[i].n_globals; k++) {
      const ckpt_scan_global *global = &scan->pickles[i].globals[k];
      const char *file = scan->pickles[i].file;
      if (global->verdict != CKPT_PICKLE_DANGEROUS) continue;
      snprintf(defect, sizeof defect, format, global->name);
      if (ckpt_findings_tell_of(findings, file, defect)) continue;
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, file, NULL, format, global->name));
    }
  return CKPT_OK;
}

/* Whether a pickle of the file names what nobody knows, or worse. */
static bool has_verdict(const ckpt_scan *scan, const char *file, ckpt_pickle_verdict verdict) {
  for (uint32_t i = 0; i < scan->n; i++)
    for (uint32_t k = 0; k < scan->pickles[i].n_globals; k++)
      if (scan->pickles[i].globals[k].verdict == verdict && strcmp(scan->pickles[i].file, file) == 0) return true;
  return false;
}

/* Whether there is a problem with the file or a tensor in it. */
static bool has_problem(const ckpt_findings *findings, const char *file) {
  for (size_t i = 0; i < findings->n; i++)
    if (findings->items[i].kind == CKPT_PROBLEM && findings->items[i].file != NULL &&
        strcmp(findings->items[i].file, file) == 0)
      return true;
  return false;
}

/* What is no file, as a link to another folder, holds no pickle of this one. */
static bool is_file(const char *path) {
  struct stat found;
  return lstat(path, &found) != 0 || S_ISREG(found.st_mode) ||
         (S_ISLNK(found.st_mode) && stat(path, &found) == 0 && S_ISREG(found.st_mode));
}

/* A foreign call and what could not be looked into are problems; the latter not where the file has one already. */
static ckpt_status add_scan(ckpt_findings *findings, const ckpt_scan *scan, ckpt_error *err) {
  bool *is_told = calloc(scan->findings.n + 1, sizeof *is_told);
  CKPT_TRY_ALLOC(is_told, err);
  for (size_t i = 0; i < scan->findings.n; i++) {
    const char *file = scan->findings.items[i].file;
    is_told[i] = has_verdict(scan, file, CKPT_PICKLE_DANGEROUS) ||
                 (has_problem(findings, file) && !has_verdict(scan, file, CKPT_PICKLE_FOREIGN));
  }
  ckpt_status status = add_dangerous(findings, scan, err);
  for (size_t i = 0; i < scan->findings.n && status == CKPT_OK; i++) {
    const ckpt_finding *found = &scan->findings.items[i];
    if (is_told[i]) continue;
    if (is_file(found->file))
      status = ckpt_findings_add(findings, err, CKPT_PROBLEM, found->file, NULL, "%s%s%s (ckpt scan refuses it)",
                                 found->tensor == NULL ? "" : found->tensor, found->tensor == NULL ? "" : ": ",
                                 found->message);
    else
      status =
          ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "pickles: %s: %s", found->file, found->message);
  }
  free(is_told);
  return status;
}

static ckpt_status scan_one(ckpt_findings *findings, const char *path, const ckpt_run_options *run, uint64_t *n_pickles,
                            ckpt_error *err) {
  ckpt_scan scan = {0};
  ckpt_status status = ckpt_scan_path(&scan, path, run, err);
  if (status == CKPT_OK) status = add_scan(findings, &scan, err);
  *n_pickles += scan.n_pickles;
  ckpt_scan_free(&scan);
  return status;
}

ckpt_status ckpt_verify_pickles(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err) {
  struct stat found;
  uint64_t n_pickles = 0;
  const size_t n_problems = findings->n_of[CKPT_PROBLEM], n_unproven = findings->n_of[CKPT_UNPROVEN];
  const char *root = ckpt_source_root(index->source);
  const bool is_folder = stat(index->path, &found) == 0 ? S_ISDIR(found.st_mode) : root[0] != '\0';
  if (is_folder && root[0] != '\0') CKPT_TRY(scan_one(findings, root, run, &n_pickles, err));
  for (uint32_t i = 0; i < index->n_side_files && !is_folder; i++)
    CKPT_TRY(scan_one(findings, ckpt_index_side_path(index, &index->side_files[i]), run, &n_pickles, err));
  const bool is_clean = findings->n_of[CKPT_PROBLEM] == n_problems && findings->n_of[CKPT_UNPROVEN] == n_unproven;
  if (n_pickles == 0 || !is_clean) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "pickles: %llu in the %s call%s known classes alone",
                           (unsigned long long)n_pickles, is_folder ? "folder" : "side files",
                           n_pickles == 1 ? "s" : "");
}
