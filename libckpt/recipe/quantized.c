/* quantized.c - see quantized.h. Names as GPTQ, AWQ, compressed-tensors, FP8 and MXFP4 writers give them. */
#include "libckpt/recipe/quantized.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/config.h"
#include "libckpt/dtype.h"
#include "libckpt/error.h"
#include "libckpt/text.h"

enum { MAX_NAME = 4200 };

/* The scales that stand beside a tensor: their name in name[4200], or false. */
static bool has_scales(const ckpt_index *index, const ckpt_tensor *tensor, char *name) {
  static const char *const beside[] = {"_scale_inv", "_scale", "_scales", ".scale", "_absmax", ".absmax"};
  for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
    snprintf(name, MAX_NAME, "%s%s", tensor->name, beside[i]);
    if (ckpt_index_find(index, name) != NULL) return true;
  }
  return false;
}

/* Integers of less than 64 bits are packed values (GPTQ's qweight) or codes; positions and counters have 64. */
static bool is_quantized_tensor(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_dtype_row *dtype = ckpt_dtype_get(tensor->dtype);
  char name[MAX_NAME];
  bool is_float = ckpt_dtype_is_float((ckpt_dtype)tensor->dtype), is_plain = dtype->block_elements == 1;
  if (tensor->role != CKPT_ROLE_PARAMETER || tensor->dtype == CKPT_BOOL) return false;
  return !is_plain || dtype->block_bytes < (is_float ? 2 : 8) || has_scales(index, tensor, name);
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
    status = ckpt_source_read(index->source, side->file, 0, text, (size_t)side->n_bytes, err);
  if (status == CKPT_OK)
    status = ckpt_config_parse(&config, text, side->n_bytes, ckpt_index_side_path(index, side), err);
  if (status == CKPT_OK && ckpt_config_has(config, "quantization_config")) {
    const char *method = "";
    (void)ckpt_config_text(config, "quantization_config.quant_method", &method);
    snprintf(out->method, sizeof out->method, "%s", method);
    out->is_stated = true;
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

ckpt_status ckpt_refuse_quantized(const ckpt_index *index, const ckpt_tensor *tensor, bool is_quantized,
                                  ckpt_error *err) {
  static const char *const scales[] = {"_scale_inv", "_scale",  "_scales", ".scales",
                                       ".scale",     "_absmax", ".absmax", "_zero_point"};
  char name[MAX_NAME];
  if (has_scales(index, tensor, name))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "is quantized: its values need %s, and a cast alone would be wrong (leave it out of --dtype)",
                     name);
  bool is_small = ckpt_dtype_get(tensor->dtype)->block_bytes == 1 || ckpt_dtype_get(tensor->dtype)->block_elements > 1;
  bool is_scale = false;
  for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
    is_scale = is_scale || ckpt_text_ends(tensor->name, scales[i]);
  if (is_quantized && (is_small || is_scale))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "belongs to a quantized model (quantization_config in config.json): a cast alone would be wrong");
  return CKPT_OK;
}
