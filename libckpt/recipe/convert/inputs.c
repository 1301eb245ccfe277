/* inputs.c - see inputs.h. */
#include "libckpt/recipe/convert/inputs.h"

#include <string.h>

#include "libckpt/recipe/convert/options.h"

static void add(ckpt_further_inputs *inputs, ckpt_further_input input) {
  if (input.path != NULL && inputs->n < CKPT_MAX_FURTHER_INPUTS) inputs->items[inputs->n++] = input;
}

ckpt_further_inputs ckpt_further_inputs_list(const ckpt_format_values *values, const ckpt_quantize_options *quantize,
                                             const ckpt_extract_options *extract) {
  ckpt_further_inputs inputs = {.n = 0};
  const ckpt_format_option *declared;
  for (size_t i = 0; (declared = ckpt_format_option_at(i)) != NULL; i++)
    if (declared->kind == CKPT_VALUE_INPUT)
      add(&inputs, (ckpt_further_input){.field = declared->name,
                                        .path = ckpt_format_text_of(values, declared->name),
                                        .include = "all",
                                        .changed = declared->changed});
  if (quantize != NULL)
    add(&inputs, (ckpt_further_input){.field = "imatrix",
                                      .path = quantize->imatrix_path,
                                      .include = "all",
                                      .changed = "the importance matrix is another one",
                                      .is_stored = true});
  if (extract != NULL)
    add(&inputs, (ckpt_further_input){.field = "tuned",
                                      .path = extract->tuned_path,
                                      .include = "model",
                                      .changed = "the tuned model has changed"});
  return inputs;
}

ckpt_status ckpt_further_inputs_open(ckpt_further_inputs *inputs, const ckpt_open_options *options, ckpt_error *err) {
  for (uint32_t i = 0; i < inputs->n; i++) {
    ckpt_open_options open = *options;
    open.stored_names = open.stored_names || inputs->items[i].is_stored;
    CKPT_TRY(ckpt_open(&inputs->items[i].index, inputs->items[i].path, &open, err));
  }
  return CKPT_OK;
}

void ckpt_further_inputs_close(ckpt_further_inputs *inputs) {
  for (uint32_t i = 0; i < inputs->n; i++) {
    ckpt_index_free(inputs->items[i].index);
    inputs->items[i].index = NULL;
  }
}

const ckpt_further_input *ckpt_further_inputs_find(const ckpt_further_inputs *inputs, const char *field) {
  for (uint32_t i = 0; i < inputs->n; i++)
    if (strcmp(inputs->items[i].field, field) == 0) return &inputs->items[i];
  return NULL;
}

const ckpt_index *ckpt_further_index(const ckpt_further_inputs *inputs, const char *field) {
  const ckpt_further_input *found = ckpt_further_inputs_find(inputs, field);
  return found == NULL ? NULL : found->index;
}
