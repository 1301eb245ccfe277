/* form.h - the form of an input that an output is made from: itself, or what it is called in another dialect. */
#ifndef CKPT_RECIPE_CONVERT_FORM_H
#define CKPT_RECIPE_CONVERT_FORM_H

#include "libckpt/recipe/convert/convert.h"

/* What an output in the format `to` is made from, owned by the request or the plan: an adapter in the other format's
 * form, GGUF's dialect, the names of files for a folder, else the input. Fails as ckpt_dialect_to_gguf and
 * ckpt_adapter_to_gguf do. */
ckpt_status ckpt_form_choose(const ckpt_index **from, ckpt_plan *plan, const ckpt_convert_request *request,
                             const ckpt_format *to, ckpt_error *err);

/* EUNSUPPORTED for a folder of a GGUF file that is not what its metadata says. */
ckpt_status ckpt_form_refuse_misfit(const ckpt_convert_request *request, const ckpt_format *to, ckpt_error *err);

/* Tells what another form could not hold, or may not be what is meant. ENOMEM. */
ckpt_status ckpt_form_tell_notes(ckpt_output *output, const ckpt_index *dialect, bool is_adapter, ckpt_error *err);

/* The pre-tokenizer that outputs in GGUF are to have: --pre NAME, or NULL. */
const char *ckpt_form_pre(const ckpt_convert_request *request);

#endif
