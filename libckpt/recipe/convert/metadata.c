/* metadata.c - see metadata.h. */
#include "libckpt/recipe/convert/metadata.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/gguf/value.h"

/* Keys that follow from how a file is written, or without which none is read. */
static ckpt_status check_key(const char *option, const char *key, ckpt_error *err) {
  if (ckpt_gguf_is_part_key(key))
    return ckpt_advise(
        ckpt_fail_option(err, CKPT_EINVAL, NULL, option, "'%.100s' says how a model is cut into files", key), err,
        "ckpt split, ckpt join");
  return CKPT_OK;
}

static ckpt_status remove_key(ckpt_index *index, const char *key, ckpt_error *err) {
  CKPT_TRY(check_key("remove", key, err));
  if (strcmp(key, CKPT_GGUF_ARCHITECTURE) == 0)
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "remove", "'%s': no reader takes a model without it", key);
  ckpt_meta *meta = ckpt_index_meta(index, key);
  if (meta == NULL)
    return ckpt_advise(ckpt_fail_option(err, CKPT_ENOTFOUND, NULL, "remove", "'%.100s': there is no such key", key),
                       err, "ckpt inspect lists them");
  index->n_metadata--;
  memmove(meta, meta + 1, (size_t)(index->metadata + index->n_metadata - meta) * sizeof *meta);
  return CKPT_OK;
}

/* The part of the file that is read by it would be elsewhere. */
static ckpt_status check_alignment(const ckpt_typed_value *typed, const char *value, ckpt_error *err) {
  enum { MIN = 8, MAX = CKPT_GGUF_MAX_ALIGNMENT };
  uint32_t n = 0;
  bool is_number = typed != NULL && typed->type == CKPT_GGUF_U32 && ckpt_gguf_value_u32(typed, &n);
  if (is_number && n >= MIN && n <= MAX && (n & (n - 1)) == 0) return CKPT_OK;
  return ckpt_fail_option(err, CKPT_EINVAL, NULL, "set",
                          "'" CKPT_GGUF_ALIGNMENT "=%.40s': has to be a power of two from %d to %d", value, MIN, MAX);
}

static ckpt_status set_key(ckpt_index *index, const char *rule, ckpt_error *err) {
  const char *equals = strchr(rule, '='), *text;
  const ckpt_typed_value *typed;
  const size_t n_key = equals == NULL ? 0 : (size_t)(equals - rule);
  if (ckpt_utf8_length(rule, strlen(rule)) != strlen(rule))
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "set", "'%.100s' is not UTF-8", rule);
  if (n_key == 0 || n_key > CKPT_GGUF_MAX_KEY)
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "set", "'%.100s' is no KEY=VALUE", rule);
  char *key = ckpt_arena_text(&index->arena, rule, n_key);
  CKPT_TRY_ALLOC(key, err);
  CKPT_TRY(check_key("set", key, err));
  ckpt_meta *meta = ckpt_index_meta(index, key);
  CKPT_TRY(ckpt_gguf_value_parse(meta, equals + 1, &index->arena, &typed, &text, err));
  if (strcmp(key, CKPT_GGUF_ALIGNMENT) == 0) CKPT_TRY(check_alignment(typed, equals + 1, err));
  if (meta == NULL) return ckpt_index_set_typed(index, key, text, typed, err);
  meta->value = text;
  meta->typed = typed;
  return CKPT_OK;
}

ckpt_status ckpt_metadata_edit(ckpt_output *output, ckpt_error *err) {
  const ckpt_format_values *values = &output->options.values;
  const char *const *set = ckpt_format_list_of(values, "set"), *const *remove = ckpt_format_list_of(values, "remove");
  if (set == NULL && remove == NULL) return CKPT_OK;
  if (!output->format->caps.typed_metadata)
    return ckpt_fail_option(err, CKPT_EINVAL, output->path, set != NULL ? "set" : "remove",
                            "it changes GGUF metadata, and %s has none", output->format->name);
  for (size_t i = 0; remove != NULL && remove[i] != NULL; i++)
    CKPT_TRY(ckpt_fail_at(remove_key(output->described, remove[i], err), err, output->path, NULL));
  for (size_t i = 0; set != NULL && set[i] != NULL; i++)
    CKPT_TRY(ckpt_fail_at(set_key(output->described, set[i], err), err, output->path, NULL));
  return CKPT_OK;
}
