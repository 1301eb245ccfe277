/* quantize.h - plans a conversion to block types: each tensor's type, source and importance.
 *
 * A preset gives the types (preset.h), an importance matrix the importance (imatrix.h). Headers alone decide both
 * before the run, so every refusal comes before a byte is written. */
#ifndef CKPT_RECIPE_QUANTIZE_QUANTIZE_H
#define CKPT_RECIPE_QUANTIZE_QUANTIZE_H

#include "libckpt/plan/plan.h"
#include "libckpt/recipe/quantize/preset.h"

/* The type that an option names, if GGUF has it and ckpt can make it; else NONE. */
ckpt_dtype ckpt_quantize_type(const char *name);

/* Options for all outputs of one read. Everything is borrowed. */
typedef struct ckpt_quantize_options {
  const char *const *tensor_types; /* "REGEX=TYPE" in order, NULL-terminated; NULL: none */
  ckpt_dtype output_type, embedding_type;
  bool pure, leave_output, allow_requantize, allow_fallback;
  bool keeps_order;          /* of metadata: as the converter has it, where llama-quantize puts what it says last */
  const ckpt_index *imatrix; /* NULL: none */
  const char *imatrix_path;  /* as the user gave it */
} ckpt_quantize_options;

/* Checks tensor_types before any file is opened. EINVAL (a bad pattern or type), ELIMIT, ENOMEM. */
ckpt_status ckpt_quantize_check_types(const ckpt_quantize_options *options, ckpt_error *err);

/* A tensor whose rows the wanted type's blocks do not fit. */
typedef struct ckpt_quantize_fallback {
  const char *name;
  ckpt_dtype wanted, dtype;
  uint64_t n_columns;
} ckpt_quantize_fallback;

/* The decisions about one output; in the plan's arena. */
typedef struct ckpt_quantize_decisions {
  const ckpt_preset *preset;
  uint32_t *order;             /* numbers of the input's tensors in llama.cpp's order, that of the output */
  ckpt_preset_choice *choices; /* of each tensor of the input, in its order */
  ckpt_expr **importance;      /* of its channels, where its type uses it, or NULL; as above */
  ckpt_expr **widened;         /* its values in f32, for what is made of them; as above */
  ckpt_expr **exprs;           /* what it becomes, NULL before; as above */
  ckpt_quantize_fallback *fallbacks;
  uint32_t n_fallbacks;
  const char **unweighted; /* quantized tensors whose type uses importance that the matrix lacks */
  uint32_t n_unweighted;
} ckpt_quantize_decisions;

/* A tensor's decision for receipts: what decided its type, instead of what, and the type before a fallback. */
typedef struct ckpt_quantize_told {
  const char *decided_by;            /* ckpt_preset_choice */
  const char *instead_of, *wanted;   /* types; NULL where there is no other */
  bool is_quantized, has_importance; /* blocks were made of it; with importance of its own */
} ckpt_quantize_told;

/* Of the input's tensor number i. */
ckpt_quantize_told ckpt_quantize_tell(const ckpt_quantize_decisions *decisions, const ckpt_index *from, size_t i);

/* Whether an index is a GGUF model that states its architecture, which quantizing depends on. */
bool ckpt_quantize_knows(const ckpt_index *from);

/* Decides about every tensor of a GGUF model and says in the output's metadata what was done (general.file_type,
 * general.quantization_version, quantize.imatrix.*). n_steps is the budget of patterns.
 * Fails with EUNSUPPORTED: the input is not GGUF, no type fits a row, a fallback is not allowed, a tensor is quantized
 * already, or a low-bit type lacks importance. Also fails with EDIFFERENT (importance of another model), EINVAL (a bad
 * pattern or type), ENOTFOUND (a pattern that matches nothing), EFORMAT, ENOMEM. */
ckpt_status ckpt_quantize_decide(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, const ckpt_preset *preset,
                                 const ckpt_quantize_options *options, uint64_t *n_steps, ckpt_error *err);

/* Reads a tensor with the axes that ggml's writers give it (ckpt_preset_rank). */
ckpt_status ckpt_quantize_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *tensor,
                               ckpt_error *err);

/* The expression of tensor number i of the input: as it is, cast, or quantized. It shares
 * expressions of earlier outputs, so that they are computed once. */
ckpt_status ckpt_quantize_expr(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *from, uint32_t i,
                               const ckpt_quantize_decisions *decisions, ckpt_error *err);

#endif
