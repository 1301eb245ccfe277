/* input.h - an input of a verb: the index that its path and modifiers stand for. */
#ifndef CKPT_TOOLS_REPORT_INPUT_H
#define CKPT_TOOLS_REPORT_INPUT_H

#include "libckpt/index/index.h"
#include "libckpt/recipe/adapter/adapter.h"
#include "tools/cli/options.h"

typedef struct ckpt_input {
  ckpt_index *index;   /* with --adapter the merged model */
  ckpt_index *like;    /* the model of --like, whose tensors `index` has been found to cover; NULL without */
  const char *weights; /* "master" or "model" as asked for; NULL: the default */
  ckpt_index *base;    /* what adapters were merged into; NULL without */
  ckpt_adapters *adapters;
} ckpt_input;

/* What every input of the verb is opened with. */
ckpt_open_options ckpt_input_options(const ckpt_args *args, bool stored_names);

/* Opens input `number` with its modifiers. Close it whatever the result. Fails as ckpt_open does, EDIFFERENT where
 * --like finds a tensor missing, extra or of another shape, ENOTFOUND for --weights master without master weights, and
 * as ckpt_adapters_open. */
ckpt_status ckpt_input_open(ckpt_input *out, const ckpt_args *args, uint32_t number, ckpt_error *err);

/* The same, which reports every defect and leaves out what is broken; the index is NULL where nothing can be read.
 * stored_names: as with --names stored. */
ckpt_status ckpt_input_open_all(ckpt_input *out, const ckpt_args *args, uint32_t number, bool stored_names,
                                void (*report)(void *arg, const ckpt_error *defect), void *arg, ckpt_error *err);

/* The same for the path given to a MODEL option, with the modifiers behind it. */
ckpt_status ckpt_input_open_option(ckpt_input *out, const ckpt_args *args, const char *option, ckpt_error *err);

/* The same of a path in a list, not on the command line, whose modifiers belong to every one. */
ckpt_status ckpt_input_open_listed(ckpt_input *out, const ckpt_args *args, const char *path, ckpt_error *err);

/* DIR[=SCALE]: what follows the last = is the scale, if it is a number. The path is the caller's to free. ENOMEM. */
ckpt_status ckpt_input_split_adapter(ckpt_adapter_request *out, const char *text, ckpt_error *err);

/* Opens what --imatrix names, under the names that it stores; NULL without. The caller frees it. */
ckpt_status ckpt_input_open_imatrix(ckpt_index **out, const ckpt_args *args, ckpt_error *err);

void ckpt_input_close(ckpt_input *input); /* a zeroed one is fine */

/* Prints the notes of the index to stderr. A writing verb has closing lines for the weights and for what no
 * copy has instead. */
void ckpt_input_print_notes(const ckpt_args *args, const ckpt_input *input);

#endif
