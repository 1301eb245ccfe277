/* from_gguf.c - PEFT's form of llama.cpp's adapter. See forms.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/plan/derive.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/adapter/names.h"

typedef unsigned long long ull;

enum { MAX_EXPERTS = 4096 };

typedef struct maker {
  ckpt_index *into;
  const ckpt_index *adapter, *base; /* base may be NULL */
  const ckpt_arch *arch;
  ckpt_dialect_sizes sizes;
  ckpt_adapter_module *modules;
  uint32_t n_modules, capacity;
  bool is_transposed;
} maker;

/* ---- what the metadata says -------------------------------------------------------------------------------------- */

static const char *text_of(const ckpt_index *index, const char *key) {
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  return meta == NULL || meta->typed != NULL ? "" : meta->value;
}

static ckpt_status find_family(maker *m, ckpt_error *err) {
  const char *name = text_of(m->adapter, CKPT_GGUF_ARCHITECTURE);
  if (m->base != NULL) {
    CKPT_TRY(ckpt_dialect_of_model(&m->arch, &m->sizes, m->base, err));
    if (strcmp(m->arch->gguf->architecture, name) == 0) return CKPT_OK;
    return ckpt_fail(err, CKPT_EDIFFERENT, m->adapter->path, NULL, "is for a %.60s, and %s is a %s", name,
                     m->base->path, m->arch->gguf->architecture);
  }
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++)
    if ((*arch)->gguf != NULL && (*arch)->gguf->having == NULL && strcmp((*arch)->gguf->architecture, name) == 0)
      m->arch = *arch;
  if (m->arch != NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, m->adapter->path, NULL,
                   "is for a '%.60s', and there are no GGUF rules of such a family", name);
}

static ckpt_status read_alpha(double *out, const maker *m, ckpt_error *err) {
  const ckpt_meta *meta = ckpt_index_meta(m->adapter, CKPT_ADAPTER_ALPHA);
  float value = 0;
  *out = 0;
  if (meta == NULL) return CKPT_OK; /* as llama.cpp has it: the scale is 1 */
  if (meta->typed == NULL || !ckpt_gguf_value_f32(meta->typed, &value) || !isfinite(value))
    return ckpt_fail(err, CKPT_EFORMAT, m->adapter->path, NULL, CKPT_ADAPTER_ALPHA " is %.60s, and no finite f32",
                     meta->value);
  *out = (double)value;
  return CKPT_OK;
}

static ckpt_status check_kind(const ckpt_index *adapter, ckpt_error *err) {
  const char *type = text_of(adapter, "adapter.type");
  if (strcmp(type, "lora") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, adapter->path, NULL,
                     "adapters of the type '%.60s' are not read (adapter.type: lora is)", type);
  if (ckpt_index_meta(adapter, "adapter.alora.invocation_tokens") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, adapter->path, NULL, "is an aLoRA, which depends on the input");
  return CKPT_OK;
}

/* ---- one pair ---------------------------------------------------------------------------------------------------- */

static ckpt_status read_factor(ckpt_expr **out, maker *m, const ckpt_tensor *tensor, int64_t expert, ckpt_error *err) {
  ckpt_arena *arena = &m->into->arena;
  CKPT_TRY(ckpt_expr_read_in(out, arena, m->adapter, tensor, err));
  if (ckpt_dtype_is_block((ckpt_dtype)tensor->dtype)) CKPT_TRY(ckpt_expr_dequantize_in(out, arena, *out, err));
  if (expert < 0) return CKPT_OK;
  CKPT_TRY(ckpt_expr_slice_in(out, arena, *out, 0, (uint64_t)expert, 1, err));
  return ckpt_expr_reshape_in(out, arena, *out, 2, tensor->shape + 1, err);
}

static ckpt_status add(maker *m, const char *module, const char *part, ckpt_expr *x, ckpt_error *err) {
  uint32_t number;
  const char *name = ckpt_arena_printf(&m->into->arena, "base_model.model.%s.%s", module, part);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_index_add(m->into, name, strlen(name), (ckpt_dtype)x->dtype, x->rank, x->shape, CKPT_ROLE_PARAMETER,
                          NULL, 0, &number, err));
  return ckpt_derive(m->into, number, x, err);
}

static ckpt_status add_module(maker *m, const char *module, uint64_t rank, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&m->modules, m->n_modules, &m->capacity, sizeof *m->modules, err));
  m->modules[m->n_modules++] = (ckpt_adapter_module){.path = module, .rank = rank};
  return CKPT_OK;
}

/* lora_a and lora_b of one matrix as factors of the layer. */
static ckpt_status add_pair(maker *m, const ckpt_arch_name *row, const uint64_t numbers[2], const ckpt_tensor *a,
                            const ckpt_tensor *b, int64_t expert, ckpt_error *err) {
  ckpt_arena *arena = &m->into->arena;
  const bool is_embedding = strcmp(row->gguf, "token_embd.weight") == 0;
  const char *name = ckpt_arch_fill(row->hf, numbers, arena);
  ckpt_expr *input, *output;
  CKPT_TRY_ALLOC(name, err);
  if (!ckpt_text_ends(name, ".weight"))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "'%s' is no weight of a module", name);
  const char *module = ckpt_arena_text(arena, name, strlen(name) - (sizeof ".weight" - 1));
  CKPT_TRY_ALLOC(module, err);
  CKPT_TRY(read_factor(&input, m, a, expert, err));
  CKPT_TRY(read_factor(&output, m, b, expert, err));
  if (is_embedding) CKPT_TRY(ckpt_dialect_transpose(&input, arena, err)); /* stored (rows, r) */
  if (input->shape[0] != output->shape[1])
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its rank is %llu, that of '%s' %llu", (ull)input->shape[0],
                     b->name, (ull)output->shape[1]);
  if (ckpt_dialect_moves_rows(row) && m->base == NULL)
    return ckpt_advise(
        ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                  "rows of '%s' stand in another order in GGUF, by heads that only the base knows", name),
        err, "%like=BASE");
  CKPT_TRY(ckpt_dialect_move_rows(&output, arena, &m->sizes, row, true, err));
  m->is_transposed = m->is_transposed || (row->notes & CKPT_NAME_TRANSPOSE) != 0;
  CKPT_TRY(add_module(m, module, input->shape[0], err));
  CKPT_TRY(add(m, module, is_embedding ? "lora_embedding_A" : "lora_A.weight", input, err));
  return add(m, module, is_embedding ? "lora_embedding_B" : "lora_B.weight", output, err);
}

static ckpt_status find_other(const ckpt_tensor **out, const maker *m, const ckpt_tensor *a, const char *stem,
                              ckpt_error *err) {
  const char *name = ckpt_arena_printf(&m->into->arena, "%s.lora_b", stem);
  CKPT_TRY_ALLOC(name, err);
  *out = ckpt_index_find(m->adapter, name);
  if (*out == NULL) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "'%s' is missing, its other half", name);
  if (a->rank != (*out)->rank || (a->rank != 2 && a->rank != 3))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has %u axes, '%s' %u (2, or 3 of experts)", a->rank, name,
                     (*out)->rank);
  return CKPT_OK;
}

static ckpt_status take(maker *m, const ckpt_tensor *a, ckpt_error *err) {
  const size_t n = strlen(a->name), n_suffix = sizeof ".lora_a" - 1;
  const bool is_output = ckpt_text_ends(a->name, ".lora_b");
  uint64_t numbers[2] = {0};
  const ckpt_tensor *b = NULL;
  if (!is_output && !ckpt_text_ends(a->name, ".lora_a"))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "is no .lora_a or .lora_b, and llama.cpp does not use it");
  char *stem = ckpt_arena_text(&m->into->arena, a->name, n - n_suffix);
  CKPT_TRY_ALLOC(stem, err);
  if (is_output) {
    const char *other = ckpt_arena_printf(&m->into->arena, "%s.lora_a", stem);
    CKPT_TRY_ALLOC(other, err);
    if (ckpt_index_find(m->adapter, other) != NULL) return CKPT_OK; /* comes with that */
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "'%s' is missing, its other half", other);
  }
  CKPT_TRY(find_other(&b, m, a, stem, err));
  const ckpt_arch_name *row = ckpt_arch_match_gguf(m->arch, stem, numbers);
  const bool is_stacked = row != NULL && ckpt_dialect_is_stacked(row);
  if (row == NULL || is_stacked != (a->rank == 3))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "is for '%s', which is no %s of a model of the family %s",
                     stem, a->rank == 3 ? "stack of experts" : "matrix", m->arch->name);
  if (!is_stacked) return add_pair(m, row, numbers, a, b, -1, err);
  if (a->shape[0] != b->shape[0] || a->shape[0] > MAX_EXPERTS)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "is of %llu experts, '%s' of %llu", (ull)a->shape[0], b->name,
                     (ull)b->shape[0]);
  for (numbers[1] = 0; numbers[1] < a->shape[0]; numbers[1]++)
    CKPT_TRY(add_pair(m, row, numbers, a, b, (int64_t)numbers[1], err));
  return CKPT_OK;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static ckpt_status add_config(maker *m, const char *base_path, ckpt_error *err) {
  ckpt_adapter_settings settings = {.base_path = base_path,
                                    .task = "CAUSAL_LM",
                                    .modules = m->modules,
                                    .n_modules = m->n_modules,
                                    .is_transposed = m->is_transposed};
  const char *text;
  CKPT_TRY(read_alpha(&settings.alpha, m, err));
  CKPT_TRY(ckpt_adapter_print_config(&text, &settings, m->base, &m->into->arena, err));
  CKPT_TRY(ckpt_index_add_side_file(m->into, "adapter_config.json", 0, strlen(text), err));
  m->into->side_files[0].text = text;
  return CKPT_OK;
}

static ckpt_status make(maker *m, ckpt_error *err) {
  const char *recorded;
  CKPT_TRY(find_family(m, err));
  if (ckpt_index_count(m->adapter) == 0) return ckpt_fail(err, CKPT_EFORMAT, m->adapter->path, NULL, "no tensors");
  for (uint32_t i = 0; i < m->adapter->n_tensors; i++)
    CKPT_TRY(ckpt_fail_at(take(m, &m->adapter->tensors[i], err), err, m->adapter->path, m->adapter->tensors[i].name));
  CKPT_TRY(ckpt_adapter_base_path(&recorded, m->adapter, &m->into->arena, err));
  CKPT_TRY(add_config(m, recorded != NULL ? recorded : m->base != NULL ? m->base->path : NULL, err));
  return ckpt_index_finish(m->into, err);
}

ckpt_status ckpt_adapter_from_gguf(ckpt_index **out, const ckpt_index *adapter, const ckpt_index *base,
                                   ckpt_error *err) {
  maker m = {.adapter = adapter, .base = base};
  CKPT_TRY(check_kind(adapter, err));
  ckpt_status status = ckpt_index_new(&m.into, NULL, adapter->path, "hf", NULL, err);
  if (status == CKPT_OK) status = make(&m, err);
  free(m.modules);
  if (status == CKPT_OK)
    *out = m.into;
  else
    ckpt_index_free(m.into);
  return status;
}
