/* quantized.h - recognises weights that mean nothing without their scales, so that no cast takes them alone. */
#ifndef CKPT_RECIPE_QUANTIZE_QUANTIZED_H
#define CKPT_RECIPE_QUANTIZE_QUANTIZED_H

#include "libckpt/index/index.h"

/* The two can disagree: a model that was dequantized often keeps the config of what it was. */
typedef struct ckpt_quantization {
  bool is_stated;  /* config.json has a quantization_config */
  bool is_present; /* some tensor is quantized */
  char method[32]; /* its quant_method; empty where there is none */
} ckpt_quantization;

/* What config.json beside the index and its tensors say; index is finished. */
ckpt_status ckpt_index_quantization(const ckpt_index *index, ckpt_quantization *out, ckpt_error *err);

/* Whether both say so. */
ckpt_status ckpt_index_is_quantized(const ckpt_index *index, bool *is_quantized, ckpt_error *err);

/* EUNSUPPORTED when casting tensor would read a quantized weight, or what belongs to one, alone: it has a dtype of
 * quantized values with its scales beside it (`<name>_scale`, ...), it is such a scale with such values beside it, or
 * it is like one of both and the config says quantized; also of a block type, and of floats of a byte or less that a
 * graph works with, which has their scales somewhere. */
ckpt_status ckpt_refuse_quantized(const ckpt_index *index, const ckpt_tensor *tensor, bool is_quantized,
                                  ckpt_error *err);

#endif
