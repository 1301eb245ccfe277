/* convert.h - turns an index and a selection into rows of a plan, for convert, split, join, consolidate and reshard. */
#ifndef CKPT_RECIPE_CONVERT_CONVERT_H
#define CKPT_RECIPE_CONVERT_CONVERT_H

#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/convert/inputs.h"
#include "libckpt/recipe/quantize/quantize.h"
#include "libckpt/recipe/select/select.h"

/* One of several outputs; its place in the array is the plan's output number. */
typedef struct ckpt_convert_target {
  const char *path;
  const char *to; /* format, or NULL: from the suffix */
  uint64_t shard_size;
  uint32_t world;            /* ranks to cut it among; 0: the format's default */
  const ckpt_preset *preset; /* of quantize: the types of a mixture; NULL: as stored or cast */
  ckpt_format_values values; /* options of its format; of another one where one of the outputs has that */
} ckpt_convert_target;

/* A writing verb's request. Everything is borrowed. */
/* How an input is opened, as receipts keep it. */
typedef struct ckpt_input_modifiers {
  const char *names;   /* "stored"; NULL: the model's own */
  const char *weights; /* "master" or "model"; NULL: there is no choice */
  const char *like;    /* path of the model that it was trained from; NULL: none is named */
} ckpt_input_modifiers;

typedef struct ckpt_convert_request {
  const char *verb; /* the command's, for receipts */
  const ckpt_index *from;
  const ckpt_adapters *adapters;     /* that from is merged of; NULL: none */
  const ckpt_extraction *extraction; /* that from is the adapter of; NULL: none */
  const ckpt_index *like;      /* the model whose side files, naming and ties the outputs get; NULL: those of from */
  const char *like_path;       /* as the user gave it */
  ckpt_further_inputs further; /* opened */
  const ckpt_convert_target *targets;
  uint32_t n_targets;
  const ckpt_convert_options *options;   /* but for output, to, shard_size, values (in targets), run, digest */
  const ckpt_quantize_options *quantize; /* of targets with a preset */
  bool discards;                         /* outputs are described and digested, but written nowhere: a replay */
  bool keeps_names;                      /* GGUF is written and digested under the names that the input's tensors have:
                                            a replay of what was written before families had rules for it */
  const char *folder;                    /* of a replay: what its links are from (a real path); NULL: it has none */
} ckpt_convert_request;

/* Fills an empty plan with the rows of a conversion to every target in one read: outputs are numbered as the targets.
 * Fails with EINVAL (an option that no output uses; an output equal to, inside, or containing an input), EEXIST
 * (output, colliding names), ENOTFOUND (a pattern without a match, nothing to write), EUNSUPPORTED (a cast of a weight
 * that needs its scales). */
ckpt_status ckpt_convert_plan(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err);

/* What --include is for an output of this format: as asked for, or the format's default. */
const char *ckpt_convert_include(const ckpt_convert_options *options, const ckpt_format *format);

/* Runs a convert plan and commits its outputs in order, then the receipt where there is one (a sink not open yet, the
 * caller's; see ckpt_plan_sink and ckpt_receipt_plan). An output's digest is what `ckpt hash` will give
 * for it: over the model's tensors, under the names that its readers see. */
ckpt_status ckpt_convert_run(ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_run_options *run,
                             ckpt_sink *receipt, ckpt_error *err);

#endif
