/* check.c - what llama.cpp would say of a GGUF model's metadata and tensors, by the row of its family: see dialect.h.
 *
 * Its loader goes by the metadata: it asks for every tensor by name and shape, refuses one that nothing asks for, and
 * needs some of the keys. Keys and types are those of its load_hparams; sizes come from the family's config. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"

typedef unsigned long long ull;

typedef struct checker {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_arch *arch;
  const char *path;
} checker;

static const ckpt_meta *meta_of(const checker *c, const char *key) {
  char full[160];
  if ((size_t)snprintf(full, sizeof full, "%s.%s", c->arch->gguf->architecture, key) >= sizeof full) return NULL;
  return ckpt_index_meta(c->index, full);
}

static bool u32_of(const checker *c, const char *key, uint32_t *out) {
  return ckpt_dialect_gguf_u32(c->index, c->arch, key, out);
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* Keys that have a default where they are absent. block_count is looked at for every architecture. */
static bool is_optional(const char *key) {
  static const char *const optional[] = {"block_count",
                                         "vocab_size",
                                         "attention.head_count_kv",
                                         "attention.key_length",
                                         "attention.value_length",
                                         "attention.sliding_window",
                                         "attn_logit_softcapping",
                                         "final_logit_softcapping"};
  for (size_t i = 0; i < sizeof optional / sizeof *optional; i++)
    if (strcmp(key, optional[i]) == 0) return true;
  return strncmp(key, "rope.", sizeof "rope." - 1) == 0;
}

/* Numbers that shapes are computed from. */
static bool is_counted(const char *key) {
  return ckpt_text_ends(key, "_length") ? strcmp(key, "context_length") != 0
                                        : strstr(key, "count") != NULL && strcmp(key, "block_count") != 0;
}

/* The type that the loader reads a key as. */
static uint32_t type_of(const ckpt_arch_key *row) {
  if (row->kind == CKPT_KEY_F32 || row->kind == CKPT_KEY_BASE || row->kind == CKPT_KEY_THETA) return CKPT_GGUF_F32;
  return row->kind == CKPT_KEY_BOOL ? CKPT_GGUF_BOOL : CKPT_GGUF_U32;
}

static bool has_value(const ckpt_arch_key *row) {
  return row->kind != CKPT_KEY_FILE_TYPE && row->kind != CKPT_KEY_ROPE_SCALING;
}

static ckpt_status check_key(const checker *c, const ckpt_arch_key *row, ckpt_error *err) {
  const ckpt_meta *meta = meta_of(c, row->gguf);
  const char *family = c->arch->gguf->architecture;
  const uint32_t wanted = type_of(row);
  uint32_t n;
  float number;
  if (meta == NULL) return CKPT_OK;
  const uint32_t type = meta->typed == NULL ? CKPT_GGUF_STRING : meta->typed->type;
  if (type != wanted && !(wanted == CKPT_GGUF_U32 && type == CKPT_GGUF_ARRAY))
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL,
                             "%s.%s is of type %s: llama.cpp reads %s, and refuses the model", family, row->gguf,
                             ckpt_gguf_type_name(type), ckpt_gguf_type_name(wanted));
  if (wanted == CKPT_GGUF_U32 && is_counted(row->gguf) && ckpt_gguf_value_u32(meta->typed, &n) && n == 0)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL, "%s.%s is 0: llama.cpp refuses the model",
                             family, row->gguf);
  if (wanted != CKPT_GGUF_F32 || !ckpt_gguf_value_f32(meta->typed, &number)) return CKPT_OK;
  if (isfinite(number) && (number >= 0 || !ckpt_text_ends(row->gguf, "epsilon"))) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL, "%s.%s is %s: no model computes with it",
                           family, row->gguf, meta->value);
}

static ckpt_status check_missing(const checker *c, ckpt_error *err) {
  ckpt_name_list missing = {.n = 0};
  for (const ckpt_arch_key *row = c->arch->gguf->keys; row->gguf != NULL; row++)
    if (has_value(row) && !is_optional(row->gguf) && meta_of(c, row->gguf) == NULL)
      ckpt_name_list_add(&missing, row->gguf);
  if (missing.n == 0) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL,
                           "a %s has %zu key%s that %s not there (%s): llama.cpp refuses the model",
                           c->arch->gguf->architecture, missing.n, ckpt_plural(missing.n),
                           missing.n == 1 ? "is" : "are", missing.text);
}

static ckpt_status check_keys(const checker *c, ckpt_error *err) {
  for (const ckpt_arch_key *row = c->arch->gguf->keys; row->gguf != NULL; row++)
    if (has_value(row)) CKPT_TRY(check_key(c, row, err));
  return check_missing(c, err);
}

/* A key that has a value for each layer, as llama.cpp reads of some; NULL: none has. */
static const char *per_layer_key(const checker *c) {
  for (const ckpt_arch_key *row = c->arch->gguf->keys; row->gguf != NULL; row++) {
    const ckpt_meta *meta = has_value(row) ? meta_of(c, row->gguf) : NULL;
    uint32_t n;
    if (meta != NULL && meta->typed != NULL && meta->typed->type == CKPT_GGUF_ARRAY && !u32_of(c, row->gguf, &n))
      return row->gguf;
  }
  return NULL;
}

static ckpt_status check_experts(const checker *c, ckpt_error *err) {
  uint32_t n = 0, n_used = 0;
  if (c->arch->n_experts == NULL || !u32_of(c, "expert_count", &n) || !u32_of(c, "expert_used_count", &n_used) ||
      n_used <= n)
    return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL,
                           "%s.expert_used_count is %u, and expert_count %u: llama.cpp refuses the model",
                           c->arch->gguf->architecture, n_used, n);
}

/* Families whose embedding llama.cpp does not take for an output head. */
static ckpt_status check_head(const checker *c, ckpt_error *err) {
  static const char name[] = "output.weight";
  for (uint32_t i = 0; i < c->index->n_tensors; i++)
    if (!c->arch->gguf->needs_head || strcmp(c->index->tensors[i].name, name) == 0) return CKPT_OK;
  if (!c->arch->gguf->needs_head) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, name,
                           "is missing: llama.cpp loads no %s without it", c->arch->gguf->architecture);
}

/* A width of heads beside the one that the model has. */
static ckpt_status check_width(const checker *c, const char *key, uint64_t width, ckpt_error *err) {
  uint32_t stated;
  if (!u32_of(c, key, &stated) || stated == width) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, NULL,
                           "%s.%s is %u, and a head has %llu: llama.cpp refuses the model", c->arch->gguf->architecture,
                           key, stated, (ull)width);
}

/* All of a head rotates in what llama.cpp calls "llama"; values are as wide as keys in every family of the rows. */
static ckpt_status check_widths(const checker *c, ckpt_error *err) {
  uint32_t width = 0, n_heads = 0, n_columns = 0;
  bool has_values = false, rotates_whole = false;
  if (!u32_of(c, "attention.key_length", &width) && u32_of(c, "embedding_length", &n_columns) &&
      u32_of(c, "attention.head_count", &n_heads) && n_heads != 0)
    width = n_columns / n_heads;
  if (width == 0) return CKPT_OK;
  for (const ckpt_arch_key *row = c->arch->gguf->keys; row->gguf != NULL; row++) {
    has_values = has_values || strcmp(row->gguf, "attention.value_length") == 0;
    rotates_whole = rotates_whole || (strcmp(row->gguf, "rope.dimension_count") == 0 && row->kind == CKPT_KEY_U32);
  }
  if (has_values) CKPT_TRY(check_width(c, "attention.value_length", width, err));
  return rotates_whole ? check_width(c, "rope.dimension_count", width, err) : CKPT_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* What llama.cpp takes beside the tensors of a row: other releases of a family, and scales of quantized weights. */
static bool is_taken_too(const ckpt_arch *arch, const char *name) {
  static const char *const of_all[] = {".scale",
                                       ".input_scale",
                                       "_exps.weight",
                                       "rope_factors_long.weight",
                                       "rope_factors_short.weight",
                                       "rope_freqs.weight",
                                       NULL};
  const char *const *const lists[] = {of_all, arch->gguf->taken};
  for (size_t i = 0; name != NULL && i < sizeof lists / sizeof *lists; i++)
    for (const char *const *ending = lists[i]; ending != NULL && *ending != NULL; ending++)
      if (ckpt_text_ends(name, *ending)) return true;
  return false;
}

/* A tensor of Hugging Face's axes, as far as its shape, which goes to `axes`: one of a stack, transposed back, with
 * axes of length 1 that GGUF leaves out. */
static ckpt_tensor as_hugging_face(const ckpt_arch_name *row, const ckpt_arch_shape *shape, const ckpt_tensor *tensor,
                                   uint64_t axes[CKPT_MAX_RANK + 3]) {
  ckpt_tensor x = *tensor;
  uint32_t n_axes = 0;
  const bool is_one_of = ckpt_dialect_is_stacked(row) && x.rank == 3;
  if (is_one_of) x.rank = 2;
  while (n_axes < 3 && shape->axes[n_axes] != NULL) n_axes++;
  const uint32_t n_left_out = x.rank != 0 && x.rank < n_axes ? n_axes - x.rank : 0;
  for (uint32_t i = 0; i < n_left_out; i++) axes[i] = 1;
  if (x.rank != 0) memcpy(axes + n_left_out, tensor->shape + is_one_of, x.rank * sizeof *axes);
  x.rank = (uint8_t)(x.rank + n_left_out);
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0 && x.rank == 2) {
    const uint64_t first = axes[0];
    axes[0] = axes[1];
    axes[1] = first;
  }
  x.shape = axes;
  return x;
}

static ckpt_status check_shape(const checker *c, const ckpt_config *config, const ckpt_tensor *tensor,
                               ckpt_error *err) {
  uint64_t numbers[2];
  ckpt_arch_extents extents;
  const ckpt_arch_name *row = ckpt_arch_match_gguf(c->arch, tensor->name, numbers);
  const ckpt_arch_shape *shape = row == NULL ? NULL : ckpt_arch_shape_of(c->arch, config, row->hf);
  if (shape == NULL) return CKPT_OK;
  uint64_t axes[CKPT_MAX_RANK + 3] = {0};
  const ckpt_tensor as_hf = as_hugging_face(row, shape, tensor, axes);
  ckpt_arch_compare_shape(&extents, shape, config, &as_hf);
  if (!extents.differs) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->path, tensor->name,
                           "its shape is [%s], the metadata says [%s] (%s): llama.cpp refuses the model", extents.is,
                           extents.wanted, extents.said);
}

static ckpt_status check_shapes(const checker *c, ckpt_error *err) {
  ckpt_config *config;
  CKPT_TRY(ckpt_dialect_gguf_numbers(&config, c->index, c->arch, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < c->index->n_tensors && status == CKPT_OK; i++)
    status = check_shape(c, config, &c->index->tensors[i], err);
  ckpt_config_free(config);
  return status;
}

ckpt_status ckpt_dialect_check(ckpt_findings *findings, const ckpt_index *index, const char *path, size_t n_before,
                               ckpt_error *err) {
  const checker c = {findings, index, ckpt_dialect_of_gguf(index), path};
  if (c.arch == NULL) return CKPT_OK;
  CKPT_TRY(check_keys(&c, err));
  const char *per_layer = per_layer_key(&c);
  if (per_layer != NULL)
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "metadata against tensors: %s.%s has a value for each layer", c.arch->gguf->architecture,
                             per_layer);
  CKPT_TRY(check_widths(&c, err));
  CKPT_TRY(check_experts(&c, err));
  CKPT_TRY(check_head(&c, err));
  CKPT_TRY(check_shapes(&c, err));
  if (index->misfit == NULL || findings->n_of[CKPT_PROBLEM] != n_before) return CKPT_OK;
  if (is_taken_too(c.arch, index->misfit_tensor))
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "metadata against tensors: %s %s",
                             index->misfit_tensor, index->misfit);
  return ckpt_findings_add(findings, err, CKPT_PROBLEM, path, index->misfit_tensor, "%s: llama.cpp refuses the model",
                           index->misfit);
}
