/* inputs.h - inputs of a run beside its model, which options name: those of a format (format/values.h), and quantize's.
 * Whoever makes a request lists them, opens them and closes them. */
#ifndef CKPT_RECIPE_CONVERT_INPUTS_H
#define CKPT_RECIPE_CONVERT_INPUTS_H

#include "libckpt/format/values.h"
#include "libckpt/recipe/extract/extract.h"
#include "libckpt/recipe/quantize/quantize.h"

typedef struct ckpt_further_input {
  const char *field;   /* the option's */
  const char *path;    /* as the user gave it; borrowed */
  const char *include; /* the roles that its digest is over: "model", "all" */
  const char *changed; /* what a replay says where another one lies there */
  bool is_stored;      /* it is opened under the names that it stores, whatever the model is opened under */
  ckpt_index *index;   /* owned; NULL: not opened yet */
} ckpt_further_input;

enum { CKPT_MAX_FURTHER_INPUTS = 4 }; /* more than options name in one run */

typedef struct ckpt_further_inputs {
  ckpt_further_input items[CKPT_MAX_FURTHER_INPUTS];
  uint32_t n;
} ckpt_further_inputs;

/* Those that values of formats, and options of quantize and of extraction (NULL: none) name. */
ckpt_further_inputs ckpt_further_inputs_list(const ckpt_format_values *values, const ckpt_quantize_options *quantize,
                                             const ckpt_extract_options *extract);

/* Opens each. Fails as ckpt_open; close them even then. */
ckpt_status ckpt_further_inputs_open(ckpt_further_inputs *inputs, const ckpt_open_options *options, ckpt_error *err);
void ckpt_further_inputs_close(ckpt_further_inputs *inputs); /* once more is fine */

/* The one that an option names, or NULL; the same as an index. */
const ckpt_further_input *ckpt_further_inputs_find(const ckpt_further_inputs *inputs, const char *field);
const ckpt_index *ckpt_further_index(const ckpt_further_inputs *inputs, const char *field); /* as above */

#endif
