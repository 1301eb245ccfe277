/* quantized.c - see quantized.h. Endings as the writers of quantized models give them. */
#include "libckpt/recipe/quantize/quantized.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"

enum { MAX_NAME = 4200 };

/* Names of one stem: of quantized values, and of what stands beside them to read them. "" is the bare stem; an ending
 * that begins with a letter is a whole component, or follows a '_' where it is torchao's. */
typedef struct ending_pair {
  const char *values, *beside;
} ending_pair;

static const ending_pair pairs[] = {
    {"", "_scale"},     /* FP8 and compressed-tensors: weight, weight_scale */
    {"", "_scale_inv"}, /* DeepSeek's FP8 */
    {"", "_scales"},    /* EETQ */
    {"", ".scale"},
    {"", "_zero_point"},
    {"", "_absmax"},
    {"", ".absmax"}, /* bitsandbytes, 4 bit */
    {"", ".quant_map"},
    {"", ".nested_absmax"},
    {"", ".nested_quant_map"},
    {"weight", "SCB"},         /* bitsandbytes, int8 */
    {"weight", "input_scale"}, /* compressed-tensors: of activations */
    {"weight", "output_scale"},
    {"weight", "scale_weight"}, /* ComfyUI's scaled FP8 */
    {"weight", "scale_input"},
    {"weight", "weights_scaling_factor"}, /* TensorRT-LLM */
    {"weight", "weights_scaling_factor_2"},
    {"weight", "activation_scaling_factor"},
    {"weight", "prequant_scaling_factor"},
    {"weight", "per_channel_scale"},
    {"weight", "scale"}, /* DeepSeek's FP8 as its own code runs it, and int8 of many; wide weights have norms' scales */
    {"weight", "zero_point"},
    {"weight_packed", "weight_scale"},
    {"weight_packed", "weight_global_scale"},
    {"weight_packed", "weight_zero_point"},
    {"weight_packed", "input_scale"},
    {"weight_packed", "input_global_scale"},
    {"qweight", "scales"}, /* GPTQ, AWQ, FP-Quant */
    {"qweight", "qzeros"},
    {"qweight", "weight_global_scale"},
    {"qweight", "act_global_scale"},
    {"qweight", "forward_hadamard_matrix"},
    {"qweight", "backward_hadamard_matrix"},
    {"weight", "scales"}, /* MLX: weights are u32 */
    {"weight", "biases"},
    {"weight", "qbiases"}, /* the same for Metal */
    {"weight", "tables"},  /* HIGGS */
    {"weight", "tables2"},
    {"_blocks", "_scales"}, /* MXFP4 */
    {"._data", "._scale"},  /* quanto */
    {"W_q", "scale"},       /* HQQ */
    {"W_q", "zero"},
    {"codes", "codebooks"}, /* AQLM */
    {"codes", "scales"},
    {"q_weight", "q_scale_max"}, /* EXL2 */
    {"q_weight", "q_scale"},
    {"trellis", "suh"}, /* EXL3 */
    {"trellis", "svh"},
    {"Qidxs", "SU"}, /* QuIP# */
    {"Qidxs", "SV"},
    {"Qidxs", "Wscale"},
    {"qweight", "wscales"}, /* nunchaku */
    {"qweight", "smooth_factor"},
    {"indices", "centroids.weight"}, /* VPTQ; other indices can be u16 that are called f16 */
    {"indices", "res_centroids.weight"},
    {"indices", "res_indices"},
    {"indices", "outlier_centroids.weight"},
    {"indices", "outlier_indices"},
    {"indices", "weight_scale"},
    {"indices", "weight_bias"},
    {"indices", "perm"},
    {"qdata", "scale"}, /* torchao: parts of X.weight are X._weight_qdata, in a torch file X.weight.qdata */
    {"qdata", "zero_point"},
    {"qdata", "scale_and_zero"},
    {"qdata", "group_scale"},
    {"qdata", "group_zero"},
    {"qdata", "row_scale"},
    {"qdata", "per_tensor_scale"},
    {"qdata", "act_per_tensor_scale"},
    {"qdata", "act_pre_scale"},
    {"qdata", "act_quant_scale"},
    {"qdata", "output_act_quant_scale"},
    {"qdata", "sparse_metadata"},
    {"qdata_and_metadata", "scale"},
};

enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* Integers of less than 64 bits are packed values or codes; positions and counters have 64. Floats of a byte and packed
 * ones are scaled; block types hold their scales. */
static bool is_narrow(const ckpt_tensor *tensor) {
  const ckpt_dtype_row *dtype = ckpt_dtype_get(tensor->dtype);
  if (tensor->dtype == CKPT_BOOL || ckpt_dtype_is_block((ckpt_dtype)tensor->dtype)) return false;
  return dtype->block_elements != 1 || dtype->block_bytes < (ckpt_dtype_is_float((ckpt_dtype)tensor->dtype) ? 2 : 8);
}

/* Whether the stem is "..._weight_", as torchao begins the parts of a tensor called "...weight". */
static bool follows_torchao(const char *name, size_t n_stem) {
  if (n_stem < 2 || name[n_stem - 1] != '_') return false;
  while (n_stem != 0 && name[n_stem - 1] != '.') n_stem--;
  return name[n_stem] == '_';
}

/* Whether name ends so; *n_stem is what comes before. */
static bool take_stem(const char *name, const char *ending, size_t *n_stem) {
  bool is_component = ending[0] != '\0' && strchr("._", ending[0]) == NULL;
  if (!ckpt_text_ends(name, ending)) return false;
  *n_stem = strlen(name) - strlen(ending);
  return !is_component || *n_stem == 0 || name[*n_stem - 1] == '.' || follows_torchao(name, *n_stem);
}

/* The tensor of the same stem that ends otherwise, or NULL. */
static const ckpt_tensor *find_beside(const ckpt_index *index, const char *name, const char *ending,
                                      const char *other) {
  char beside[MAX_NAME];
  size_t n_stem;
  if (!take_stem(name, ending, &n_stem)) return NULL;
  int n = snprintf(beside, sizeof beside, "%.*s%s", (int)n_stem, name, other);
  return n < 0 || n >= MAX_NAME ? NULL : ckpt_index_find(index, beside);
}

/* What tensor needs to be read if it is quantized, or NULL. */
static const ckpt_tensor *find_scales(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_tensor *found = NULL;
  for (size_t i = 0; i < N_PAIRS && found == NULL; i++)
    found = find_beside(index, tensor->name, pairs[i].values, pairs[i].beside);
  return found;
}

/* The quantized tensor that needs this one, or NULL: a name alone, without it, proves nothing. */
static const ckpt_tensor *find_values(const ckpt_index *index, const ckpt_tensor *tensor) {
  for (size_t i = 0; i < N_PAIRS; i++) {
    const ckpt_tensor *found = find_beside(index, tensor->name, pairs[i].beside, pairs[i].values);
    if (found != NULL && is_narrow(found)) return found;
  }
  return NULL;
}

/* With a config that says quantized: some methods keep values in wide floats beside their scales. */
static bool is_quantized_tensor(const ckpt_index *index, const ckpt_tensor *tensor) {
  return tensor->role == CKPT_ROLE_PARAMETER && (is_narrow(tensor) || find_scales(index, tensor) != NULL);
}

ckpt_status ckpt_index_quantization(const ckpt_index *index, ckpt_quantization *out, ckpt_error *err) {
  *out = (ckpt_quantization){0};
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  if (side == NULL || side->n_bytes > CKPT_CONFIG_MAX_BYTES) return CKPT_OK;
  ckpt_arena arena;
  ckpt_arena_init(&arena, CKPT_CONFIG_MAX_BYTES + 4096);
  ckpt_config *config = NULL;
  char *text = ckpt_arena_array(&arena, (size_t)side->n_bytes + 1, 1);
  ckpt_status status = text == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK && side->text != NULL) memcpy(text, side->text, (size_t)side->n_bytes);
  if (status == CKPT_OK && side->text == NULL)
    status = ckpt_source_read(ckpt_index_side_source(index, side), side->file, 0, text, (size_t)side->n_bytes, err);
  if (status == CKPT_OK)
    status = ckpt_config_parse(&config, text, side->n_bytes, ckpt_index_side_path(index, side), err);
  const bool is_mlx = status == CKPT_OK && ckpt_config_has(config, "quantization");
  if (is_mlx || (status == CKPT_OK && ckpt_config_has(config, "quantization_config"))) {
    const char *method = is_mlx ? "mlx" : "";
    (void)ckpt_config_text(config, "quantization_config.quant_method", &method);
    snprintf(out->method, sizeof out->method, "%s", method);
    out->is_stated = true;
    out->key = ckpt_config_has(config, "quantization_config") ? "quantization_config" : "quantization";
    for (uint32_t i = 0; i < index->n_tensors; i++)
      out->is_present = out->is_present || is_quantized_tensor(index, &index->tensors[i]);
  }
  ckpt_config_free(config);
  ckpt_arena_free(&arena);
  return status;
}

ckpt_status ckpt_index_is_quantized(const ckpt_index *index, bool *is_quantized, ckpt_error *err) {
  ckpt_quantization quantization;
  CKPT_TRY(ckpt_index_quantization(index, &quantization, err));
  *is_quantized = quantization.is_stated && quantization.is_present;
  return CKPT_OK;
}

/* Blocks hold their scales, but NVFP4's may have one more, of the whole tensor: X.weight has X.scale. */
static ckpt_status refuse_scaled_blocks(const ckpt_index *index, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_tensor *scale = tensor->dtype == CKPT_NVFP4 ? find_beside(index, tensor->name, ".weight", ".scale") : NULL;
  if (scale == NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                   "is NVFP4 that %s scales, which this version does not apply (leave it as it is stored)",
                   scale->name);
}

ckpt_status ckpt_refuse_quantized(const ckpt_index *index, const ckpt_tensor *tensor, bool is_quantized,
                                  ckpt_error *err) {
  if (ckpt_dtype_is_block((ckpt_dtype)tensor->dtype)) return refuse_scaled_blocks(index, tensor, err);
  if (index->n_nodes != 0 && is_narrow(tensor) && ckpt_dtype_is_float((ckpt_dtype)tensor->dtype))
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, NULL, tensor->name,
        "is quantized, by its dtype: the graph has its scales, and a cast alone would be wrong (leave it as "
        "it is stored)");
  const ckpt_tensor *scales = find_scales(index, tensor), *values = find_values(index, tensor);
  size_t ignored;
  if (scales != NULL && (is_quantized || is_narrow(tensor)))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "is quantized: its values need %s, and a cast alone would be wrong (leave it as it is stored)",
                     scales->name);
  if (values != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "belongs to %s, which is quantized: a cast alone would be wrong (leave it as it is stored)",
                     values->name);
  bool is_suspect = is_narrow(tensor);
  for (size_t i = 0; i < N_PAIRS; i++) is_suspect = is_suspect || take_stem(tensor->name, pairs[i].beside, &ignored);
  if (is_quantized && is_suspect)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "belongs to a quantized model, as config.json says: a cast alone would be wrong");
  return CKPT_OK;
}
