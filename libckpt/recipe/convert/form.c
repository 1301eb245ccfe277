/* form.c - see form.h. */
#include "libckpt/recipe/convert/form.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/plan/equal.h"
#include "libckpt/recipe/adapter/forms.h"

/* The pre-tokenizer that the dialect of outputs in GGUF has. */
const char *ckpt_form_pre(const ckpt_convert_request *request) {
  return ckpt_format_text_of(&request->targets[0].values, "pre");
}

/* A folder's config says what the model is, and a GGUF file that is not what it says has none. */
ckpt_status ckpt_form_refuse_misfit(const ckpt_convert_request *request, const ckpt_format *to, ckpt_error *err) {
  const ckpt_index *from = request->from;
  if (from->misfit == NULL || !to->caps.side_files || from->is_stored || request->keeps_names || request->like != NULL)
    return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, from->path, from->misfit_tensor, "%s", from->misfit), err,
                     "%names=stored writes its tensors as they are called, without a config.json");
}

/* A folder gets the names that files of its family have, also of a run's state that joins tensors. `split` only cuts.
 */
static ckpt_status choose_apart(const ckpt_index **from, ckpt_plan *plan, const ckpt_convert_request *request,
                                const ckpt_format *to, ckpt_error *err) {
  if (!to->caps.side_files || to->caps.training_state) return CKPT_OK;
  if (plan->apart == NULL) CKPT_TRY(ckpt_dialect_apart(&plan->apart, request->from, err));
  if (plan->apart != NULL && strcmp(request->verb, "split") != 0) *from = plan->apart;
  return CKPT_OK;
}

/* Chooses what an output is made from: the input, or its GGUF dialect where the output is a GGUF model and the input
 * is not. */
static ckpt_status choose_from(const ckpt_index **from, ckpt_plan *plan, const ckpt_convert_request *request,
                               const ckpt_format *to, ckpt_error *err) {
  const ckpt_dialect_options options = {.like = request->like, .pre = ckpt_form_pre(request)};
  *from = request->from;
  if (!to->caps.dialect) return choose_apart(from, plan, request, to, err);
  if (request->from->is_stored || request->keeps_names) return CKPT_OK;
  if (ckpt_caps_of(request->from).dialect) {
    *from = ckpt_index_as_stored(request->from);
    return CKPT_OK;
  }
  if (plan->dialect == NULL) {
    CKPT_TRY(ckpt_dialect_to_gguf(&plan->dialect, request->from, &options, err));
    CKPT_TRY(ckpt_plan_add_equal_ties(plan, request->from, err)); /* GGUF has one of them */
  }
  *from = plan->dialect;
  return CKPT_OK;
}

/* An adapter goes into a folder as PEFT has it, and into GGUF as llama.cpp has it: by the family of its base, which is
 * the model of --like, or the one that it names. */
ckpt_status ckpt_form_choose(const ckpt_index **from, ckpt_plan *plan, const ckpt_convert_request *request,
                             const ckpt_format *to, ckpt_error *err) {
  const ckpt_adapter_kind kind = ckpt_adapter_kind_of(request->from);
  const bool is_other = kind == CKPT_ADAPTER_PEFT ? to->caps.dialect : kind == CKPT_ADAPTER_GGUF && to->caps.side_files;
  if (!is_other || request->from->is_stored || request->keeps_names)
    return kind == CKPT_ADAPTER_NONE ? choose_from(from, plan, request, to, err) : CKPT_OK;
  const ckpt_index *base = request->like;
  const char *name;
  ckpt_index *opened = NULL;
  ckpt_status status = CKPT_OK;
  if (plan->dialect == NULL) {
    if (base == NULL) CKPT_TRY(ckpt_adapter_open_base(&opened, &name, request->from, &plan->arena, err));
    if (opened != NULL) base = opened;
    if (kind == CKPT_ADAPTER_GGUF)
      status = ckpt_adapter_from_gguf(&plan->dialect, request->from, base, err);
    else if (base != NULL)
      status = ckpt_adapter_to_gguf(&plan->dialect, request->from, base, err);
    else
      status = ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, request->from->path, NULL,
                                     "names no base (base_model_name_or_path), whose family GGUF names tensors by"),
                           err, "%like=BASE");
    ckpt_index_free(opened);
  }
  if (status == CKPT_OK) *from = plan->dialect;
  return status;
}

/* What the other form could not hold is a loss, but for doubts, and for an adapter's notes, which are remarks. */
ckpt_status ckpt_form_tell_notes(ckpt_output *output, const ckpt_index *dialect, bool is_adapter, ckpt_error *err) {
  for (uint32_t i = 0; i < dialect->n_notes; i++) {
    const ckpt_note *note = &dialect->notes[i];
    if (!is_adapter && note->kind != CKPT_NOTE_DOUBT) {
      CKPT_TRY(ckpt_losses_add(&output->losses, err, "%s", note->text));
      continue;
    }
    CKPT_TRY(ckpt_index_note(output->described, false, err, "%s", note->text));
    CKPT_TRY(ckpt_index_note_is(output->described, note->kind, NULL, err));
  }
  return CKPT_OK;
}
