/* quantized.h - recognises weights that mean nothing without their scales, so that no cast takes them alone. */
#ifndef CKPT_RECIPE_QUANTIZE_QUANTIZED_H
#define CKPT_RECIPE_QUANTIZE_QUANTIZED_H

#include "libckpt/index/index.h"

/* The two can disagree: a model that was dequantized often keeps the config of what it was. */
typedef struct ckpt_quantization {
  bool is_stated;  /* config.json has a quantization_config, or MLX's quantization */
  bool is_present; /* some tensor is quantized */
  const char *key; /* which of both it is; NULL: none */
  char method[32]; /* its quant_method; empty where there is none */
} ckpt_quantization;

/* What config.json beside the index and its tensors say; index is finished. */
ckpt_status ckpt_index_quantization(const ckpt_index *index, ckpt_quantization *out, ckpt_error *err);

/* Whether both say so. */
ckpt_status ckpt_index_is_quantized(const ckpt_index *index, bool *is_quantized, ckpt_error *err);

/* EUNSUPPORTED if a cast would take a quantized weight, or its scales, alone. The tensor is such a weight if it has a
 * dtype of quantized values and scales next to it (`<name>_scale`, ...). It is such a scale if it has such values next
 * to it. If the config says quantized, looking like one of both suffices. Block types are refused too, and so are
 * floats of at most a byte that a graph uses, since the graph has their scales somewhere. */
ckpt_status ckpt_refuse_quantized(const ckpt_index *index, const ckpt_tensor *tensor, bool is_quantized,
                                  ckpt_error *err);

#endif
