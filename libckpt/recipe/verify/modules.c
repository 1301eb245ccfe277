/* modules.c - the modules of a sentence-transformers model: each is opened and read as a checkpoint of its own. */
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/compare/prove.h"
#include "libckpt/recipe/records/modules.h"
#include "libckpt/recipe/verify/verify.h"

typedef struct checking {
  ckpt_findings *findings; /* of the whole */
  ckpt_findings own;       /* of the module in hand */
  const ckpt_run_options *run;
  const ckpt_index *index; /* of the module */
  ckpt_value_checks values;
  ckpt_name_list names; /* of modules with weights */
  ckpt_status status;   /* of keeping what opening reports */
} checking;

static void take_reported(void *arg, const ckpt_error *defect) {
  checking *c = arg;
  if (c->status == CKPT_OK)
    c->status = ckpt_findings_add_error(c->findings, NULL, CKPT_PROBLEM, defect->file, defect->tensor, defect);
}

static ckpt_status add(void *arg, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  checking *c = arg;
  return ckpt_verify_plan(&c->values, plan, c->index, first, end, err);
}

static ckpt_status take(void *arg, const ckpt_plan *plan, size_t first, size_t end, ckpt_error *err) {
  checking *c = arg;
  (void)plan;
  return ckpt_verify_values(&c->own, &c->values, c->index, first, end, err);
}

static ckpt_status pass(void *arg, size_t item, ckpt_status status, const ckpt_error *defect, ckpt_error *err) {
  checking *c = arg;
  const ckpt_tensor *tensor = ckpt_index_at(c->index, item);
  (void)status;
  return ckpt_findings_add_error(&c->own, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, tensor), tensor->name,
                                 defect);
}

static ckpt_status read_values(checking *c, ckpt_error *err) {
  ckpt_proof proof = {.n = c->index->n_tensors, .arg = c, .add = add, .take = take, .pass = pass};
  ckpt_run_options run = *c->run;
  ckpt_crc_counts counts = {0};
  run.trace = NULL; /* it is of the whole's own tensors */
  for (uint32_t i = 0; i < c->index->n_tensors; i++) proof.n_bytes += c->index->tensors[i].n_bytes;
  ckpt_status status = ckpt_prove(&proof, &run, NULL, NULL, err);
  ckpt_value_checks_free(&c->values);
  if (status == CKPT_OK) status = ckpt_verify_crc(&c->own, c->index, &run, &counts, err);
  if (status == CKPT_OK) status = ckpt_verify_format(&c->own, c->index, &run, err);
  return status;
}

/* What is wrong with the module is wrong with the whole; what is proven of it is not. */
static ckpt_status keep(checking *c, ckpt_error *err) {
  for (size_t i = 0; i < c->own.n; i++) {
    const ckpt_finding *found = &c->own.items[i];
    if (found->kind == CKPT_PROBLEM || found->kind == CKPT_WARNING)
      CKPT_TRY(ckpt_findings_add(c->findings, err, found->kind, found->file, found->tensor, "%s", found->message));
  }
  return CKPT_OK;
}

static ckpt_status take_module(void *arg, const ckpt_module *module, const ckpt_index *index, const ckpt_error *defect,
                               ckpt_error *err) {
  checking *c = arg;
  CKPT_TRY(c->status);
  if (module->path != NULL) ckpt_name_list_add(&c->names, module->path);
  if (index == NULL)
    return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, defect->file, defect->tensor, defect);
  c->index = index;
  ckpt_status status = index->defects.n != 0 ? CKPT_OK : ckpt_verify_structure(&c->own, index, err);
  if (status == CKPT_OK && c->run != NULL) status = read_values(c, err);
  if (status == CKPT_OK) status = keep(c, err);
  ckpt_findings_free(&c->own);
  c->own = (ckpt_findings){0};
  return status;
}

ckpt_status ckpt_verify_modules(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err) {
  checking c = {.findings = findings, .run = run};
  const ckpt_open_options options = {
      .struct_size = sizeof options, .report = take_reported, .report_arg = &c, .allow_corrupt = true};
  CKPT_TRY(ckpt_modules_open(index, &options, take_module, &c, err));
  if (c.names.n == 0) return CKPT_OK;
  return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "modules: names and shapes of %s were not compared with what its class wants", c.names.text);
}
