/* recorded.h - a parsed receipt: the request that it records, and what it lists of its outputs. receipt.c has the form.
 *
 * Long lists (of tensors) stay in the file and are read when they are compared. The rest goes into an arena of 16 MiB:
 * a receipt is hostile input like any other. */
#ifndef CKPT_RECIPE_REPLAY_RECORDED_H
#define CKPT_RECIPE_REPLAY_RECORDED_H

#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/records/json_file.h"
#include "libckpt/recipe/records/side_sums.h"

/* What a receipt says of an output beside its target. */
typedef struct ckpt_recorded_output {
  ckpt_digest digest;
  bool has_digest;
  uint64_t n_tensors, n_bytes;
  const char *names; /* whose names the digest is over; NULL: it does not say */
} ckpt_recorded_output;

/* An input that an option names. */
typedef struct ckpt_recorded_input {
  const char *field;
  ckpt_recorded_output digest;
} ckpt_recorded_input;

/* An input that is merged into the first. */
typedef struct ckpt_recorded_adapter {
  const char *path;
  double scale;
  ckpt_recorded_output digest;
} ckpt_recorded_adapter;

typedef struct ckpt_recorded {
  const char *path;         /* of the receipt */
  const char *const *moved; /* "OLD=NEW": where inputs lie now; NULL ends it, or NULL */
  ckpt_json_file file;
  const char *key; /* whose value is read next */
  ckpt_arena arena;
  ckpt_convert_options options;
  ckpt_input_modifiers given;
  const char *version;
  const char *input_names, *input_format, *input_include;
  ckpt_recorded_output input, *outputs;
  ckpt_quantize_options quantize; /* where request.quantize says so */
  ckpt_convert_target *targets;
  ckpt_format_values values; /* of formats, for all targets, which have them too */
  ckpt_convert_request request;
  ckpt_recorded_input further[CKPT_MAX_FURTHER_INPUTS]; /* the request's */
  uint32_t n_further;
  ckpt_adapter_options merge; /* where it merges */
  bool merges;
  ckpt_extract_options extract; /* where extracts says so: its input is the base, a further one the tuned model */
  bool extracts;
  ckpt_recorded_adapter *adapters;
  uint32_t n_adapters;
  ckpt_index *from, *like; /* its inputs, once opened, beside the further ones; owned */
  ckpt_index *base; /* of adapters that are merged, where from is the merged model, or of an extraction, where from is
                       the adapter; else NULL */
  ckpt_adapters *opened;
  ckpt_extraction *extraction;
} ckpt_recorded;

/* What adapters did to a tensor (convert/updates.h); negative and UINT64_MAX where it does not say. */
typedef struct ckpt_recorded_figures {
  double norm, relative;
  uint64_t n_unchanged;
} ckpt_recorded_figures;

/* A tensor as a receipt lists it. */
typedef struct ckpt_recorded_tensor {
  char name[CKPT_JSON_FILE_MAX_TEXT + 1], source[CKPT_JSON_FILE_MAX_TEXT + 1]; /* empty: none */
  char from[32], to[32];
  char decided_by[32], instead_of[32], wanted[32]; /* of a quantized output; empty where it does not say */
  bool has_imatrix, imatrix;                       /* whether it says */
  uint64_t n_bytes, n_underflow;
  ckpt_recorded_figures figures;
  ckpt_recorded_output digest;
} ckpt_recorded_tensor;

/* What an adapter did to a tensor of the merged model. */
typedef struct ckpt_recorded_effect {
  char name[CKPT_JSON_FILE_MAX_TEXT + 1];
  uint64_t adapter, rank;
  double scale;
} ckpt_recorded_effect;

/* Opens and reads the receipt at path, which is borrowed. EFORMAT (not a receipt), ELIMIT. Close it even after a
 * failure. */
ckpt_status ckpt_recorded_open(ckpt_recorded *out, const char *path, ckpt_error *err);
void ckpt_recorded_close(ckpt_recorded *recorded); /* once more is fine */

/* Releases the inputs that it has opened. */
void ckpt_recorded_close_inputs(ckpt_recorded *recorded);

/* Fails with EFORMAT if no run of the verb could have had these options. Otherwise an option without effect on the
 * replay could hold anything. */
ckpt_status ckpt_recorded_check(const ckpt_recorded *recorded, ckpt_error *err);

/* Room in its arena ran out: ELIMIT. */
ckpt_status ckpt_recorded_full(const ckpt_recorded *recorded, ckpt_error *err);

/* Reads once more what the receipt lists of an output: `take` (arg first) is called for each tensor; side files go to
 * *side, owned by the caller even after a failure, and are passed by where it is NULL. *has_side (NULL with it) is
 * false where the receipt has no list of them. */
ckpt_status ckpt_recorded_read(ckpt_recorded *recorded, uint32_t output,
                               void (*take)(void *arg, const ckpt_recorded_tensor *tensor), void *arg,
                               ckpt_side_sums *side, bool *has_side, ckpt_error *err);

/* The same of what adapters did: `take` (arg first) is called for each effect. EFORMAT where it does not say. */
ckpt_status ckpt_recorded_read_effects(ckpt_recorded *recorded,
                                       void (*take)(void *arg, const ckpt_recorded_effect *effect), void *arg,
                                       ckpt_error *err);

#endif
