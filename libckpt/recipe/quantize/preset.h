/* preset.h - chooses the type of each tensor of a GGUF model: llama.cpp's mixtures as one pure function.
 *
 * A preset ("Q4_K_M") is a mixture: some tensors get more bits by their place in the model, some fewer, and small or
 * delicate ones stay unquantized. The rules are those of llama-quantize in the llama.cpp that dtype.def names (its
 * llama-quant.cpp). Receipts record CKPT_PRESETS_VERSION, so that old files can be made again when the rules change. */
#ifndef CKPT_RECIPE_QUANTIZE_PRESET_H
#define CKPT_RECIPE_QUANTIZE_PRESET_H

#include "libckpt/base/pattern.h"
#include "libckpt/index/index.h"

#define CKPT_PRESETS_VERSION "llama.cpp/1"

typedef enum ckpt_preset_id {
#define CKPT_PRESET(id, name, file_type, base) CKPT_PRESET_##id,
#include "libckpt/recipe/quantize/presets.def"
#undef CKPT_PRESET
  CKPT_N_PRESETS
} ckpt_preset_id;

typedef struct ckpt_preset {
  ckpt_preset_id id;
  const char *name;
  uint32_t file_type; /* general.file_type */
  ckpt_dtype base;
} ckpt_preset;

/* A preset by its name, in any case; Q3_K, Q4_K and Q5_K mean their _M. NULL if unknown. */
const ckpt_preset *ckpt_preset_find(const char *name);

/* Preset number i of CKPT_N_PRESETS. */
const ckpt_preset *ckpt_preset_at(uint32_t i);

/* Axes as ggml counts them (ggml_n_dims): leading axes of length 1 do not count, and a scalar has one axis. */
uint32_t ckpt_preset_rank(const ckpt_tensor *tensor);

/* The last `rank` axes of a shape; of a scalar {1}. */
const uint64_t *ckpt_preset_shape(const ckpt_tensor *tensor, uint32_t rank);

/* The model's facts that the rules need, from GGUF metadata. */
typedef struct ckpt_preset_model {
  const char *architecture;     /* general.architecture */
  uint32_t n_layers;            /* block_count, or what llama.cpp makes of it */
  uint32_t n_experts;           /* expert_count; 0: none */
  uint32_t n_heads, n_kv_heads; /* of the first layer; n_kv_heads 0: no attention there */
} ckpt_preset_model;

/* One `--tensor-type PATTERN=TYPE`: the first that matches a name decides. */
typedef struct ckpt_preset_override {
  ckpt_pattern *pattern;
  ckpt_dtype dtype;
} ckpt_preset_override;

/* The user's request. Types are NONE by default. */
typedef struct ckpt_preset_request {
  const ckpt_preset *preset;
  const ckpt_preset_override *overrides;
  uint32_t n_overrides;
  ckpt_dtype output_type, embedding_type; /* of output.weight, of token_embd.weight */
  bool pure;                              /* the preset's base for all, no mixture */
  bool leave_output;                      /* output.weight as it is stored */
  bool has_imatrix;
} ckpt_preset_request;

/* One tensor's type. */
typedef struct ckpt_preset_choice {
  ckpt_dtype dtype;
  ckpt_dtype wanted;      /* what the rules gave before a fallback; equal to dtype without one */
  bool is_kept;           /* as stored: dtype is the tensor's */
  bool needs_imatrix;     /* without importance the result would be garbage */
  const char *decided_by; /* "preset", "kept" by its rules, or the option that came before them, as receipts call it:
                             "leave_output", "output_type", "embedding_type", "tensor_types", "pure" */
  ckpt_dtype instead_of;  /* the preset's own type if an option changed it; else NONE */
} ckpt_preset_choice;

/* Decides about tensors, n numbers of them in llama.cpp's order, which must be all of the model's: rules count.
 * choices[i] is about tensor number i.
 * Fails with EUNSUPPORTED (a row length that no fallback fits), EFORMAT (an expert's tensor of no layer), ENOMEM, and
 * what patterns fail with. */
ckpt_status ckpt_preset_choose(const ckpt_preset_request *request, const ckpt_preset_model *model,
                               const ckpt_tensor *tensors, const uint32_t *numbers, uint32_t n,
                               ckpt_preset_choice *choices, ckpt_error *err);

#endif
