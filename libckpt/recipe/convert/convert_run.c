/* convert_run.c - a convert plan that is run: its outputs, the digests that their readers will find, the receipt, the
 * commit. See convert.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/masters.h"
#include "libckpt/index/name_table.h"
#include "libckpt/plan/equal.h"
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/run/run.h"

/* ---- digests as a reader finds them -------------------------------------------------------------------------------
 */

/* Masters stand for their parameters when the output is opened. */
static ckpt_status let_masters_stand(ckpt_index *index, const ckpt_index *described, ckpt_error *err) {
  ckpt_name_table *table = NULL;
  CKPT_TRY(ckpt_name_table_new(&table, index, err));
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *master = &described->tensors[i];
    char name[4096 + 1];
    size_t n;
    const char *of = master->role == CKPT_ROLE_MASTER ? ckpt_state_parameter(master->name, &n) : NULL;
    if (of == NULL || n >= sizeof name) continue;
    memcpy(name, of, n);
    name[n] = '\0';
    int64_t number = ckpt_name_table_find(table, name);
    if (number < 0) continue;
    index->tensors[number].dtype = master->dtype;
    index->tensors[number].n_bytes = master->n_bytes;
    index->tensors[number].details->origin = master->details->origin;
  }
  ckpt_name_table_free(table);
  return CKPT_OK;
}

/* The output as it will be opened: names and ties follow from what is written in it: names of one tensor where the
 * format keeps them, config.json where it is carried (normalize left just these). */
static ckpt_status reopen(ckpt_index **out, const ckpt_output *output, bool keeps_names, ckpt_error *err) {
  const ckpt_index *described = output->described;
  ckpt_index *index;
  CKPT_TRY(ckpt_index_new(&index, NULL, output->path, output->format->name, NULL, err));
  *out = index;
  index->naming_revision = described->naming_revision;
  bool known;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &(described->as_read == NULL ? described : described->as_read)->tensors[i];
    uint32_t number; /* in a flat file the name alone tells the role */
    ckpt_role role = output->format->caps.objects ? (ckpt_role)tensor->role : ckpt_role_of_name(tensor->name);
    if (!ckpt_role_included("model", role, &known)) continue;
    CKPT_TRY(ckpt_index_add(index, tensor->name, strlen(tensor->name), (ckpt_dtype)tensor->dtype, tensor->rank,
                            tensor->shape, role, NULL, 0, &number, err));
    index->tensors[number].details->origin = tensor->details->origin;
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      CKPT_TRY(ckpt_index_alias(index, number, *alias, err));
    index->tensors[number].details->n_extra_names = tensor->details->n_extra_names;
  }
  if (output->format->caps.masters) CKPT_TRY(let_masters_stand(index, described, err));
  const ckpt_side_file *config = ckpt_index_side_file(described, "config.json");
  if (config != NULL && config->text != NULL) {
    CKPT_TRY(ckpt_index_add_side_file(index, config->name, 0, config->n_bytes, err));
    index->side_files[0].text = config->text;
  }
  bool is_known = false;
  if (output->format->caps.dialect && !keeps_names) {
    for (uint32_t i = 0; i < described->n_metadata; i++) {
      const ckpt_meta *meta = &described->metadata[i];
      CKPT_TRY(ckpt_index_set_typed(index, meta->key, meta->value, meta->typed, err));
    }
    CKPT_TRY(ckpt_dialect_from_gguf(index, &is_known, err));
    if (is_known) return CKPT_OK;
  }
  CKPT_TRY(ckpt_index_canonical_names(index, false, NULL, err));
  return ckpt_index_finish(index, err);
}

static ckpt_status digest_outputs(ckpt_plan *plan, bool keeps_names, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++) {
    ckpt_index *index = NULL;
    const ckpt_digest **digests = NULL;
    status = reopen(&index, &plan->outputs[i], keeps_names, err);
    if (status == CKPT_OK) digests = calloc((size_t)index->n_tensors + 1, sizeof *digests);
    if (status == CKPT_OK && digests == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (status == CKPT_OK) plan->outputs[i].read_names = ckpt_arena_copy(&plan->arena, index->names);
    for (uint32_t k = 0; status == CKPT_OK && k < index->n_tensors; k++) {
      const uint32_t row = index->tensors[index->by_name[k]].details->origin, as_read = plan->rows[row].as_read;
      const bool is_other = index->stored_form != NULL && as_read != 0;
      digests[k] = &plan->rows[is_other ? as_read - 1 + index->tensors[index->by_name[k]].details->part : row].digest;
    }
    if (status == CKPT_OK) status = ckpt_digest_index(index, digests, &plan->outputs[i].digest, err);
    plan->outputs[i].is_of_none =
        status == CKPT_OK && index->n_tensors == 0 && plan->outputs[i].described->n_tensors != 0;
    ckpt_index_free(index);
    free(digests);
  }
  return status;
}

/* ---- the run ------------------------------------------------------------------------------------------------------
 */

static ckpt_status commit(ckpt_plan *plan, ckpt_sink *receipt, ckpt_error *err) {
  ckpt_sink **sinks = calloc((size_t)plan->n_outputs + 1, sizeof *sinks);
  CKPT_TRY_ALLOC(sinks, err);
  uint32_t n = 0;
  while (n < plan->n_outputs) {
    sinks[n] = plan->outputs[n].sink;
    n++;
  }
  if (receipt != NULL) sinks[n++] = receipt;
  ckpt_status status = ckpt_sink_commit(sinks, n, err);
  free(sinks);
  return status;
}

/* Once the formats have named and cast them, rows of a replay go nowhere but into their digests. */
static ckpt_status discard_rows(ckpt_plan *plan, const ckpt_run_options *run, ckpt_error *err) {
  CKPT_TRY(ckpt_plan_prepare(plan, run, err));
  for (uint32_t i = 0; i < plan->n_rows; i++)
    if (plan->rows[i].tensor != NULL) plan->rows[i].sink = CKPT_NO_SINK;
  ckpt_plan_drop_work(plan);
  return CKPT_OK;
}

/* What follows the plan's own phases: what the outputs are called by, and the receipt. The last look at the flag: once
 * the ranks have agreed on this phase, the outputs are published. */
static ckpt_status finish_phase(ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_run_options *run,
                                ckpt_sink *receipt, ckpt_error *err) {
  ckpt_plan_drop_work(plan); /* what is opened again for its digest takes no more than that */
  const char *advice = plan->dialect == NULL ? "%exclude=$ keeps the other for both"
                                             : "a folder that is written with %exclude=$ can be converted";
  CKPT_TRY(ckpt_plan_check_equal(plan, request->from->path, advice, err));
  CKPT_TRY(digest_outputs(plan, request->keeps_names, err));
  if (receipt != NULL) CKPT_TRY(ckpt_receipt_write(plan, request, receipt, err));
  return ckpt_check_cancel(run, "cancelled; nothing was written", err);
}

ckpt_status ckpt_convert_run(ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_run_options *run,
                             ckpt_sink *receipt, ckpt_error *err) {
  const ckpt_sink_file file = {.name = NULL, .n_bytes = CKPT_SIZE_UNKNOWN};
  const ckpt_group *group = ckpt_group_of(run);
  ckpt_status status = CKPT_OK;
  if (receipt != NULL && group->size > 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a receipt of a run of %u ranks: no rank knows all of it",
                     group->size);
  if (receipt != NULL) CKPT_TRY(ckpt_sink_open(receipt, &file, 1, err));
  if (request->discards) status = ckpt_group_agree(group, discard_rows(plan, run, err), err);
  if (status == CKPT_OK) status = ckpt_plan_run_on(plan, run, true, err);
  if (status == CKPT_OK) status = ckpt_group_agree(group, finish_phase(plan, request, run, receipt, err), err);
  if (status == CKPT_OK) /* the sinks of others have joined those of rank 0, and are sealed: nothing is left to fail */
    status = ckpt_group_agree(group, group->rank == 0 ? commit(plan, receipt, err) : CKPT_OK, err);
  if (status == CKPT_EVALUE || status == CKPT_EDIFFERENT) /* no output is there to be looked at */
    (void)ckpt_fail_at(status, err, request->from->path, NULL);
  for (uint32_t i = 0; i < plan->n_outputs && status != CKPT_OK; i++) ckpt_sink_abandon(plan->outputs[i].sink);
  if (receipt != NULL && status != CKPT_OK) ckpt_sink_abandon(receipt);
  return status;
}
