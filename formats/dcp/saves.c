/* saves.c - whether the files of a checkpoint are of one save, for `verify`. DCP records no save's id: files of ranks
 * that were copied from another step fit in everything. What can tell is the optimizer's steps, and which names share
 * their bytes: PyTorch writes those of each name. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/findings.h"
#include "libckpt/index/arch.h"
#include "libckpt/plan/derive.h"

typedef unsigned long long ull;

enum { MAX_STEPS = 16 }; /* of one file that are read */

typedef struct steps {
  uint32_t n;
  bool is_one; /* all that were read */
  double value;
} steps;

static bool is_step(const ckpt_tensor *tensor) {
  return tensor->role == CKPT_ROLE_STEP && tensor->n_elements == 1 && tensor->n_extents == 1;
}

static ckpt_status take_step(steps *of_file, const ckpt_index *index, const ckpt_tensor *tensor, ckpt_error *err) {
  double value;
  if (of_file->n >= MAX_STEPS) return CKPT_OK;
  CKPT_TRY(ckpt_read(index, tensor, NULL, CKPT_F64, &value, sizeof value, err));
  of_file->is_one = of_file->n == 0 || (of_file->is_one && value == of_file->value);
  of_file->value = value;
  of_file->n++;
  return CKPT_OK;
}

/* Files in each of which all steps are one number, and another one than in the first. */
static ckpt_status compare_steps(ckpt_findings *findings, const ckpt_index *index, const steps *files, uint32_t n,
                                 ckpt_error *err) {
  uint32_t first = UINT32_MAX;
  for (uint32_t i = 0; i < n; i++) {
    if (files[i].n == 0 || !files[i].is_one) continue;
    if (first == UINT32_MAX) first = i;
    if (first == i || files[i].value == files[first].value) continue;
    return ckpt_findings_add(findings, err, CKPT_WARNING, ckpt_source_path(index->source, i), NULL,
                             "the optimizer's steps in it are all %.17g, in %s %.17g: parameters were trained apart, "
                             "or these are files of two saves",
                             files[i].value, ckpt_source_name(index->source, first), files[first].value);
  }
  return CKPT_OK;
}

static ckpt_status check_steps(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  const uint32_t n = ckpt_source_count(index->source);
  steps *files = calloc((size_t)n + 1, sizeof *files);
  CKPT_TRY_ALLOC(files, err);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++)
    if (is_step(&index->tensors[i]) && index->tensors[i].extents->file < n)
      status = take_step(&files[index->tensors[i].extents->file], index, &index->tensors[i], err);
  if (status == CKPT_OK) status = compare_steps(findings, index, files, n, err);
  free(files);
  return status;
}

/* Names of one place that no config ties. */
static ckpt_status check_sharing(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  const char *one = NULL, *other = NULL;
  uint64_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->n_elements == 0) continue;
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++) {
      if (ckpt_arch_states_tie(index, tensor->name, *alias)) continue;
      if (n++ == 0) one = tensor->name, other = *alias;
    }
  }
  if (n == 0) return CKPT_OK;
  return ckpt_findings_add(
      findings, err, CKPT_UNPROVEN, NULL, NULL,
      "ties: whether %s and %s are one tensor, as their metadata says (%llu such pair%s): they lie "
      "in one place, and PyTorch writes each name's own bytes",
      one, other, (ull)n, ckpt_plural(n));
}

ckpt_status ckpt_dcp_verify_saves(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  uint32_t n_files = 0;
  for (uint32_t i = 0; i < ckpt_source_count(index->source); i++)
    n_files += ckpt_text_ends(ckpt_source_name(index->source, i), CKPT_DCP_SUFFIX);
  if (n_files != 0) CKPT_TRY(check_sharing(findings, index, err));
  if (n_files < 2) return CKPT_OK;
  CKPT_TRY(check_steps(findings, index, err));
  return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "saves: whether %u files are of one save (DCP records no save's id)", n_files);
}
