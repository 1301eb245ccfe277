/* pickles.c - side files against what scan says of them: a trainer's arguments and random states are pickles,
 * which loading the checkpoint elsewhere runs. Those that tensors come from are judged where they are read
 * (codec/torch/read/file.h). */
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/scan/scan.h"
#include "libckpt/recipe/verify/verify.h"

/* What would run code for certain: a problem. *n_dangerous: of the scan. */
static ckpt_status add_dangerous(ckpt_findings *findings, const ckpt_scan *scan, size_t *n_dangerous, ckpt_error *err) {
  for (uint32_t i = 0; i < scan->n; i++)
    for (uint32_t k = 0; k < scan->pickles[i].n_globals; k++) {
      const ckpt_scan_global *global = &scan->pickles[i].globals[k];
      if (global->verdict != CKPT_PICKLE_DANGEROUS) continue;
      ++*n_dangerous;
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, scan->pickles[i].file, NULL,
                                 "would run code when it is unpickled: %.700s", global->name));
    }
  return CKPT_OK;
}

/* What nothing is known of is a warning, as a class that is not known is in a file of tensors; what could not be read
 * is a problem, unless there is one with the file already. */
static ckpt_status add_scan(ckpt_findings *findings, const ckpt_scan *scan, ckpt_error *err) {
  size_t n_dangerous = 0;
  const bool is_told = scan->findings.n != 0 && ckpt_findings_tell_of(findings, scan->findings.items[0].file, NULL);
  CKPT_TRY(add_dangerous(findings, scan, &n_dangerous, err));
  for (size_t i = 0; i < scan->findings.n && n_dangerous == 0 && !is_told; i++) {
    const ckpt_finding *found = &scan->findings.items[i];
    const ckpt_finding_kind kind = scan->n_unread != 0 ? CKPT_PROBLEM : CKPT_WARNING;
    CKPT_TRY(ckpt_findings_add(findings, err, kind, found->file, NULL, "%s%s%s (ckpt scan refuses it)",
                               found->tensor == NULL ? "" : found->tensor, found->tensor == NULL ? "" : ": ",
                               found->message));
  }
  return CKPT_OK;
}

ckpt_status ckpt_verify_pickles(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err) {
  uint64_t n_pickles = 0;
  const size_t n_problems = findings->n_of[CKPT_PROBLEM], n_warnings = findings->n_of[CKPT_WARNING];
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    ckpt_scan scan = {0};
    ckpt_status status = ckpt_scan_path(&scan, ckpt_index_side_path(index, &index->side_files[i]), run, err);
    if (status == CKPT_OK) status = add_scan(findings, &scan, err);
    n_pickles += scan.n_pickles;
    ckpt_scan_free(&scan);
    CKPT_TRY(status);
  }
  const bool is_clean = findings->n_of[CKPT_PROBLEM] == n_problems && findings->n_of[CKPT_WARNING] == n_warnings;
  if (n_pickles == 0 || !is_clean) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL,
                           "side files: %llu pickle%s call%s known classes alone", (unsigned long long)n_pickles,
                           ckpt_plural(n_pickles), n_pickles == 1 ? "s" : "");
}
