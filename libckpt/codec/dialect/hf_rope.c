/* hf_rope.c - config.json's rope_scaling of a GGUF model, from its keys and its tensor of factors: see dialect.h. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"

enum { MAX_KEY = 128 };

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Keys of rope.scaling and config.json's beside its type and factor. */
static const struct {
  const char *gguf, *config;
} keys[] = {{"original_context_length", "original_max_position_embeddings"},
            {"yarn_ext_factor", "extrapolation_factor"},
            {"yarn_attn_factor", "attention_factor"},
            {"yarn_beta_fast", "beta_fast"},
            {"yarn_beta_slow", "beta_slow"}};

/* "linear", as llama.cpp takes a factor without a type, or "yarn"; NULL: none that config.json says. */
static const char *type_of(const ckpt_index *from, const ckpt_arch *arch) {
  char full[MAX_KEY];
  bool is_said = false;
  for (const ckpt_arch_key *row = arch->gguf->keys; row->gguf != NULL; row++)
    is_said = is_said || row->kind == CKPT_KEY_ROPE_SCALING;
  snprintf(full, sizeof full, "%s.rope.scaling.type", arch->gguf->architecture);
  const ckpt_meta *type = ckpt_index_meta(from, full);
  if (!is_said || (type != NULL && type->typed != NULL)) return NULL;
  if (type == NULL) return ckpt_dialect_gguf_number(from, arch, "rope.scaling.factor", 0) > 0 ? "linear" : NULL;
  return strcmp(type->value, "linear") == 0 || strcmp(type->value, "yarn") == 0 ? type->value : NULL;
}

bool ckpt_dialect_has_scaling(const ckpt_index *from, const ckpt_arch *arch, const char *key) {
  const char *type = type_of(from, arch);
  if (strcmp(key, "type") == 0) {
    char full[MAX_KEY];
    snprintf(full, sizeof full, "%s.rope.scaling.type", arch->gguf->architecture);
    const ckpt_meta *meta = ckpt_index_meta(from, full);
    return type != NULL || (meta != NULL && meta->typed == NULL && strcmp(meta->value, "none") == 0);
  }
  if (type == NULL) return false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i].gguf) == 0) return true;
  return strcmp(key, "factor") == 0;
}

/* linear and yarn. */
static ckpt_status print_keys(const char **out, const char *type, const ckpt_index *from, const ckpt_arch *arch,
                              ckpt_arena *arena, ckpt_error *err) {
  char text[512], key[64];
  size_t n = (size_t)ckpt_c_snprintf(text, sizeof text, "{\"rope_type\": \"%s\", \"factor\": %.9g", type,
                                     ckpt_dialect_gguf_number(from, arch, "rope.scaling.factor", 1));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    snprintf(key, sizeof key, "rope.scaling.%s", keys[i].gguf);
    const double value = ckpt_dialect_gguf_number(from, arch, key, NAN);
    if (isfinite(value))
      n += (size_t)ckpt_c_snprintf(text + n, sizeof text - n, ", \"%s\": %.9g", keys[i].config, value);
  }
  *out = ckpt_arena_printf(arena, "%s}", text);
  return *out == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

/* ---- the tensor -------------------------------------------------------------------------------------------------- */

/* Whether numbers are the same but for what torch's powf, which is not rounded correctly, makes of them. */
static bool is_near(const float *a, const float *b, uint64_t n) {
  const float few = 8 * 0x1p-24F;
  for (uint64_t i = 0; i < n; i++)
    if (!(fabsf(a[i] - b[i]) <= few * fabsf(b[i]))) return false;
  return true;
}

/* Llama 3.1's numbers, where some give these factors; *out is NULL otherwise. */
static ckpt_status print_llama3(const char **out, const float *stored, uint64_t n, const ckpt_index *from,
                                const ckpt_arch *arch, ckpt_arena *arena, ckpt_error *err) {
  static const double contexts[] = {8192, 4096, 2048, 1024, 512, 256, 128, 64, 32, 16384, 32768};
  double factor = 1;
  for (uint64_t i = 0; i < n; i++)
    if (stored[i] > factor) factor = stored[i];
  *out = NULL;
  for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++) {
    char scaling[256], text[384];
    ckpt_config *config;
    float *made;
    uint64_t n_made;
    ckpt_c_snprintf(
        scaling, sizeof scaling,
        "{\"rope_type\": \"llama3\", \"factor\": %.9g, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
        "\"original_max_position_embeddings\": %.0f}",
        factor, contexts[i]);
    ckpt_c_snprintf(text, sizeof text, "{\"head_dim\": %llu, \"rope_theta\": %.17g, \"rope_scaling\": %s}",
                    (unsigned long long)n * 2, ckpt_dialect_gguf_number(from, arch, "rope.freq_base", 10000), scaling);
    CKPT_TRY(ckpt_config_parse(&config, text, strlen(text), NULL, err));
    const ckpt_status status = ckpt_dialect_rope_factors(&made, &n_made, arch, config, arena, err);
    ckpt_config_free(config);
    CKPT_TRY(status);
    if (n_made != n || !is_near(made, stored, n)) continue;
    *out = ckpt_arena_copy(arena, scaling);
    CKPT_TRY_ALLOC(*out, err);
    return CKPT_OK;
  }
  return CKPT_OK;
}

/* Factors as longrope has them, for short texts and long ones alike. */
static ckpt_status print_longrope(const char **out, const float *factors, uint64_t n, double n_positions,
                                  ckpt_arena *arena, ckpt_error *err) {
  enum { EACH = 20 }; /* characters */
  char *list = ckpt_arena_array(arena, (size_t)n + 1, EACH);
  size_t at = 0;
  CKPT_TRY_ALLOC(list, err);
  for (uint64_t i = 0; i < n; i++)
    at += (size_t)ckpt_c_snprintf(list + at, EACH, "%s%.9g", i == 0 ? "" : ", ", (double)factors[i]);
  *out = ckpt_arena_printf(arena,
                           "{\"rope_type\": \"longrope\", \"factor\": 1.0, \"attention_factor\": 1.0, "
                           "\"short_factor\": [%s], \"long_factor\": [%s], "
                           "\"original_max_position_embeddings\": %.0f}",
                           list, list, n_positions);
  return *out == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

/* Of rope_freqs.weight: those numbers of Llama 3.1 that give it, else its own, or a loss where they cannot be. */
static ckpt_status print_factors(const char **out, const ckpt_tensor *tensor, const ckpt_index *from,
                                 const ckpt_arch *arch, ckpt_arena *arena, ckpt_losses *losses, ckpt_error *err) {
  float stored[4096];
  const uint64_t n = tensor->n_elements;
  const double width = ckpt_dialect_gguf_number(from, arch, "rope.dimension_count",
                                                ckpt_dialect_gguf_number(from, arch, "embedding_length", 0) /
                                                    ckpt_dialect_gguf_number(from, arch, "attention.head_count", 1));
  if (tensor->dtype != CKPT_F32 || tensor->rank != 1 || n > sizeof stored / sizeof *stored || (double)n * 2 != width)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_index_file_of(from, tensor), tensor->name,
                     "%llu rotary factors for heads of %g", (unsigned long long)n, width);
  CKPT_TRY(ckpt_read(from, tensor, NULL, CKPT_F32, stored, (size_t)tensor->n_bytes, err));
  for (uint64_t i = 0; i < n; i++)
    if (!(stored[i] > 0) || !isfinite(stored[i]))
      return ckpt_losses_add(losses, err, "rope_freqs.weight (config.json has no numbers that give it)");
  CKPT_TRY(print_llama3(out, stored, n, from, arch, arena, err));
  if (*out != NULL) return CKPT_OK;
  return print_longrope(out, stored, n, ckpt_dialect_gguf_number(from, arch, "context_length", 0), arena, err);
}

ckpt_status ckpt_dialect_print_scaling(const char **out, const ckpt_index *from, const ckpt_arch *arch,
                                       ckpt_arena *arena, ckpt_losses *losses, ckpt_error *err) {
  const char *type = type_of(from, arch);
  const ckpt_tensor *tensor = ckpt_index_find(from, "rope_freqs.weight");
  *out = NULL;
  if (tensor == NULL) return type == NULL ? CKPT_OK : print_keys(out, type, from, arch, arena, err);
  if (type == NULL) return print_factors(out, tensor, from, arch, arena, losses, err);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_index_file_of(from, tensor), tensor->name,
                   "scales rotary positions, and so does %s.rope.scaling (%s): config.json says one of them",
                   arch->gguf->architecture, type);
}
