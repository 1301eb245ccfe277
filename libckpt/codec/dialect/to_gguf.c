/* to_gguf.c - the tensors of a Hugging Face model as GGUF has them: see dialect.h. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/plan/derive.h"

typedef unsigned long long ull;

typedef struct maker {
  ckpt_index *index; /* what is made */
  const ckpt_index *from;
  const ckpt_arch *arch;
  const ckpt_config *config;
  const char *pre;
  uint64_t n_heads, n_kv_heads, n_layers;
} maker;

/* ---- transforms -------------------------------------------------------------------------------------------------- */

/* Rows of each head from halves that lie apart, as Hugging Face has rotary pairs, to pairs side by side. */
static ckpt_status interleave(ckpt_expr **x, ckpt_arena *arena, uint64_t n_heads, ckpt_error *err) {
  const ckpt_expr whole = **x;
  static const uint32_t order[] = {0, 2, 1, 3};
  uint64_t shape[4] = {n_heads, 2, 0, 1};
  if (whole.rank == 0 || whole.rank > 2 || whole.shape[0] % (2 * n_heads) != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu rows are no pairs of rows of %llu heads",
                     whole.rank == 0 ? 1 : (ull)whole.shape[0], (ull)n_heads);
  shape[2] = whole.shape[0] / n_heads / 2;
  if (whole.rank == 2) shape[3] = whole.shape[1];
  CKPT_TRY(ckpt_expr_reshape_in(x, arena, *x, whole.rank + 2, shape, err));
  CKPT_TRY(ckpt_expr_permute_in(x, arena, *x, order, err));
  return ckpt_expr_reshape_in(x, arena, *x, whole.rank, whole.shape, err);
}

static ckpt_status transpose(ckpt_expr **x, ckpt_arena *arena, ckpt_error *err) {
  static const uint32_t order[] = {1, 0};
  if ((*x)->rank != 2)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%u axes, a matrix that is transposed has 2", (*x)->rank);
  return ckpt_expr_permute_in(x, arena, *x, order, err);
}

/* What the converter keeps in f32, whatever the outtype: the name is GGUF's. */
static bool is_f32(const char *name, uint32_t rank) {
  return rank <= 1 || ckpt_text_ends(name, "_norm.weight") || !ckpt_text_ends(name, ".weight") ||
         strcmp(name, "position_embd.weight") == 0 || strcmp(name, "token_types.weight") == 0 ||
         ckpt_text_ends(name, ".ffn_gate_inp.weight");
}

ckpt_status ckpt_dialect_apply(ckpt_expr **x, ckpt_arena *arena, const ckpt_arch_name *row, const char *name,
                               uint64_t n_heads, uint64_t n_kv_heads, ckpt_error *err) {
  if ((row->notes & CKPT_NAME_ROPE_PERMUTE) != 0)
    CKPT_TRY(interleave(x, arena, (row->notes & CKPT_NAME_KV_HEADS) != 0 ? n_kv_heads : n_heads, err));
  if ((row->notes & CKPT_NAME_TRANSPOSE) != 0) CKPT_TRY(transpose(x, arena, err));
  return is_f32(name, (*x)->rank) ? ckpt_expr_cast_in(x, arena, *x, CKPT_F32, err) : CKPT_OK;
}

static ckpt_status add(maker *m, const char *name, ckpt_expr *expr, ckpt_role role, ckpt_error *err) {
  uint32_t number;
  CKPT_TRY(ckpt_index_add(m->index, name, strlen(name), (ckpt_dtype)expr->dtype, expr->rank, expr->shape, role, NULL, 0,
                          &number, err));
  return ckpt_derive(m->index, number, expr, err);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static ckpt_status refuse_extra(const maker *m, const ckpt_tensor *tensor, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_index_file_of(m->from, tensor), tensor->name,
                   "has no place in a GGUF model of the family %s (leave it out, or keep the stored names)",
                   m->arch->name);
}

static ckpt_status add_tensor(maker *m, const ckpt_tensor *tensor, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match(m->arch, tensor->name, numbers);
  if (row == NULL || (strchr(row->hf, '#') != NULL && numbers[0] >= m->n_layers)) return refuse_extra(m, tensor, err);
  if (row->gguf == NULL) return CKPT_OK; /* computed anew by whoever runs the model */
  if (!ckpt_dtype_is_float((ckpt_dtype)tensor->dtype))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s is no weight that a GGUF model has",
                     ckpt_dtype_name((ckpt_dtype)tensor->dtype));
  const char *name = ckpt_arch_fill(row->gguf, numbers, &m->index->arena);
  CKPT_TRY_ALLOC(name, err);
  ckpt_expr *x;
  CKPT_TRY(ckpt_expr_read_in(&x, &m->index->arena, m->from, tensor, err));
  CKPT_TRY(ckpt_dialect_apply(&x, &m->index->arena, row, name, m->n_heads, m->n_kv_heads, err));
  return add(m, name, x, CKPT_ROLE_PARAMETER, err);
}

static ckpt_status add_made(maker *m, const ckpt_arch_made *made, ckpt_error *err) {
  float *factors;
  uint64_t n;
  ckpt_expr *x;
  if (made->kind != CKPT_MADE_LLAMA3_FACTORS) return CKPT_OK;
  CKPT_TRY(ckpt_dialect_llama3_factors(&factors, &n, m->config, &m->index->arena, err));
  if (factors == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_expr_memory_in(&x, &m->index->arena, CKPT_F32, 1, &n, factors, err));
  return add(m, made->gguf, x, CKPT_ROLE_PARAMETER, err);
}

/* Whether a parameter that the row has may be absent: one of a tie, or one that only some models have. */
static bool may_lack(const maker *m, const ckpt_arch_name *row) {
  if (row->role != CKPT_ROLE_PARAMETER || (row->notes & CKPT_NAME_OPTIONAL) != 0 || row->gguf == NULL) return true;
  for (uint32_t i = 0; i < CKPT_MAX_TIES && m->arch->ties[i].kept != NULL; i++)
    if ((m->from->ties >> i & 1) != 0 && strcmp(m->arch->ties[i].tied, row->hf) == 0) return true;
  return false;
}

static ckpt_status check_all_there(const maker *m, ckpt_error *err) {
  for (const ckpt_arch_name *row = m->arch->names; row->hf != NULL; row++) {
    const uint64_t n = strchr(row->hf, '#') == NULL ? 1 : m->n_layers;
    for (uint64_t i = 0; i < n && !may_lack(m, row); i++) {
      const char *name = ckpt_arch_fill(row->hf, (uint64_t[2]){i, 0}, &m->index->arena);
      CKPT_TRY_ALLOC(name, err);
      if (ckpt_index_find(m->from, name) == NULL)
        return ckpt_fail(err, CKPT_ENOTFOUND, m->from->path, name, "is missing: a model of the family %s has it",
                         m->arch->name);
    }
  }
  return CKPT_OK;
}

static ckpt_status add_all(maker *m, ckpt_error *err) {
  for (const ckpt_arch_made *made = m->arch->gguf->made; made != NULL && made->gguf != NULL; made++)
    CKPT_TRY(add_made(m, made, err));
  for (uint32_t i = 0; i < m->from->n_tensors; i++) {
    const ckpt_tensor *tensor = &m->from->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    CKPT_TRY(ckpt_fail_at(add_tensor(m, tensor, err), err, ckpt_index_file_of(m->from, tensor), tensor->name));
  }
  return check_all_there(m, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

ckpt_dtype ckpt_dialect_auto(const ckpt_index *from) {
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) && tensor->rank >= 2 &&
        (tensor->dtype == CKPT_BF16 || tensor->dtype == CKPT_F16))
      return (ckpt_dtype)tensor->dtype;
  }
  return CKPT_F16;
}

static ckpt_status refuse_unknown(const ckpt_index *from, ckpt_error *err) {
  const bool is_unknown = from->architecture[0] == '\0';
  return ckpt_advise(
      ckpt_fail(err, CKPT_EUNSUPPORTED, from->path, NULL, "%s, and GGUF names tensors by family",
                is_unknown ? "is of no family that is known" : "there are no GGUF rules of its family"),
      err,
      is_unknown ? "%names=stored writes them as they are called, for no reader in particular; %like=MODEL has the "
                   "config.json that names it"
                 : "%names=stored writes them as they are called, for no reader in particular");
}

static ckpt_status read_numbers(maker *m, ckpt_error *err) {
  const char *class = NULL;
  const char *const *known = m->arch->gguf->classes;
  if (!ckpt_config_item(m->config, "architectures", 0, &class)) class = known[0]; /* a bare config: the family's own */
  while (*known != NULL && strcmp(*known, class) != 0) known++;
  if (*known == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "there is no GGUF of the class %.100s", class);
  static const char *const quantizers[] = {"quantization_config", "quantization"}; /* the second is MLX's */
  for (size_t i = 0; i < sizeof quantizers / sizeof *quantizers; i++)
    if (ckpt_config_has(m->config, quantizers[i]))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "its weights are quantized (%s)", quantizers[i]);
  if (!ckpt_config_extent(m->config, m->arch->gguf->heads, &m->n_heads) ||
      !ckpt_config_extent(m->config, m->arch->gguf->kv_heads, &m->n_kv_heads) ||
      !ckpt_config_extent(m->config, m->arch->n_layers, &m->n_layers))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s and %s have to be numbers above 0", m->arch->gguf->heads,
                     m->arch->n_layers);
  if (m->n_heads > UINT32_MAX || m->n_kv_heads > m->n_heads || m->n_heads % m->n_kv_heads != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu heads of queries for %llu of keys", (ull)m->n_heads,
                     (ull)m->n_kv_heads);
  return CKPT_OK;
}

static ckpt_status make(maker *m, const ckpt_index *config_of, const ckpt_side_file *side, ckpt_error *err) {
  ckpt_status status = ckpt_fail_at(read_numbers(m, err), err, ckpt_index_side_path(config_of, side), NULL);
  if (status == CKPT_OK) status = add_all(m, err);
  if (status == CKPT_OK) status = ckpt_dialect_set_keys(m->index, m->from, config_of, m->arch, m->config, m->pre, err);
  return status == CKPT_OK ? ckpt_index_finish(m->index, err) : status;
}

ckpt_status ckpt_dialect_to_gguf(ckpt_index **out, const ckpt_index *from, const ckpt_dialect_options *options,
                                 ckpt_error *err) {
  const ckpt_index *config_of = options->like != NULL ? options->like : from;
  const ckpt_side_file *side = ckpt_index_side_file(config_of, "config.json");
  maker m = {.from = from, .arch = ckpt_arch_find(from->architecture), .pre = options->pre};
  ckpt_config *config = NULL;
  if (m.arch == NULL || m.arch->gguf == NULL || side == NULL || side->text == NULL) return refuse_unknown(from, err);
  CKPT_TRY(ckpt_config_parse(&config, side->text, side->n_bytes, ckpt_index_side_path(config_of, side), err));
  m.config = config;
  ckpt_status status = ckpt_index_new(&m.index, NULL, from->path, "gguf", NULL, err);
  if (status == CKPT_OK) status = make(&m, config_of, side, err);
  ckpt_config_free(config);
  if (status == CKPT_OK)
    *out = m.index;
  else
    ckpt_index_free(m.index);
  return ckpt_fail_at(status, err, from->path, NULL);
}
