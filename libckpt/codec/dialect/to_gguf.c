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
  ckpt_dialect_sizes sizes;
} maker;

/* ---- one tensor -------------------------------------------------------------------------------------------------- */

/* What the converter keeps in f32, whatever the outtype: the name is GGUF's. */
static bool is_f32(const char *name, uint32_t rank) {
  return rank <= 1 || ckpt_text_ends(name, "_norm.weight") || !ckpt_text_ends(name, ".weight") ||
         strcmp(name, "position_embd.weight") == 0 || strcmp(name, "token_types.weight") == 0 ||
         ckpt_text_ends(name, ".ffn_gate_inp.weight");
}

ckpt_status ckpt_dialect_apply(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                               const ckpt_arch_name *row, const char *name, ckpt_error *err) {
  CKPT_TRY(ckpt_dialect_forth(x, arena, sizes, row, err));
  return is_f32(name, (*x)->rank) ? ckpt_expr_cast_in(x, arena, *x, CKPT_F32, err) : CKPT_OK;
}

static ckpt_status add(maker *m, const char *name, ckpt_expr *expr, ckpt_role role, ckpt_error *err) {
  uint32_t number;
  CKPT_TRY(ckpt_index_add(m->index, name, strlen(name), (ckpt_dtype)expr->dtype, expr->rank, expr->shape, role, NULL, 0,
                          &number, err));
  return ckpt_derive(m->index, number, expr, err);
}

static const ckpt_arch_name *find_row(const maker *m, const char *pattern) {
  const ckpt_arch_name *row = m->arch->names;
  while (strcmp(row->hf, pattern) != 0) row++; /* arch_test.cc sees that it is there */
  return row;
}

static ckpt_status refuse_extra(const maker *m, const ckpt_tensor *tensor, ckpt_error *err) {
  return ckpt_fail(
      err, CKPT_EUNSUPPORTED, ckpt_index_file_of(m->from, tensor), tensor->name,
      "has no place in a GGUF model of the family %s (write a folder without it first, or keep the stored names)",
      m->arch->name);
}

static ckpt_status refuse_unwanted(const maker *m, const ckpt_tensor *tensor, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_index_file_of(m->from, tensor), tensor->name,
                   "is no part of the model that config.json describes (write a folder without it first, or keep the "
                   "stored names)");
}

/* Sizes by which llama.cpp will read it, since a part of a tensor that is cut elsewhere is still some tensor. */
static ckpt_status check_shape(const maker *m, const ckpt_arch_name *row, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_arch_shape *shape = ckpt_arch_shape_of(m->arch, m->config, row->hf);
  ckpt_arch_extents extents = {0};
  if (shape != NULL) ckpt_arch_compare_shape(&extents, shape, m->config, tensor);
  if (extents.undecided != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "config.json does not say how long an axis is (%s), and GGUF needs that", extents.undecided);
  if (!extents.differs) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its shape is [%s], config.json says [%s] (%s)", extents.is,
                   extents.wanted, extents.said);
}

static ckpt_status refuse_dtype(const ckpt_tensor *tensor, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s is no weight that a GGUF model has",
                   ckpt_dtype_name((ckpt_dtype)tensor->dtype));
}

static ckpt_status read_tensor(ckpt_expr **out, const maker *m, const ckpt_arch_name *row, const ckpt_tensor *tensor,
                               ckpt_error *err) {
  if (!ckpt_dtype_is_float((ckpt_dtype)tensor->dtype)) return refuse_dtype(tensor, err);
  CKPT_TRY(check_shape(m, row, tensor, err));
  return ckpt_expr_read_in(out, &m->index->arena, m->from, tensor, err);
}

static ckpt_status refuse_missing(const maker *m, const char *name, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ENOTFOUND, m->from->path, name, "is missing: a model of the family %s has it",
                   m->arch->name);
}

/* The same tensor of every expert, one below the other. */
static ckpt_status read_stack(ckpt_expr **out, const maker *m, const ckpt_arch_name *row, uint64_t layer,
                              ckpt_error *err) {
  ckpt_arena *arena = &m->index->arena;
  const uint64_t n = m->sizes.n_experts;
  ckpt_expr **parts = n > m->from->n_tensors ? NULL : ckpt_arena_array(arena, n, sizeof *parts);
  if (n > m->from->n_tensors)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s says %llu, and there are %u tensors", m->arch->n_experts,
                     (ull)n, m->from->n_tensors);
  CKPT_TRY_ALLOC(parts, err);
  for (uint64_t i = 0; i < n; i++) {
    const char *name = ckpt_arch_fill(row->hf, (uint64_t[2]){layer, i}, arena);
    CKPT_TRY_ALLOC(name, err);
    const ckpt_tensor *tensor = ckpt_index_find(m->from, name);
    if (tensor == NULL) return refuse_missing(m, name, err);
    CKPT_TRY(ckpt_fail_at(read_tensor(&parts[i], m, row, tensor, err), err, ckpt_index_file_of(m->from, tensor), name));
  }
  return ckpt_dialect_stack(out, arena, parts, n, err);
}

/* Whether a tensor is the copy that the config ties to another, which stands for both. */
static bool is_tied_copy(const maker *m, const ckpt_arch_name *row) {
  for (uint32_t i = 0; i < CKPT_MAX_TIES && m->arch->ties[i].kept != NULL; i++)
    if ((m->from->ties >> i & 1) != 0 && strcmp(m->arch->ties[i].tied, row->hf) == 0) return true;
  return false;
}

/* Whether that copy is stored beside the other, as the same: then GGUF has the other alone. */
static bool repeats_tied(const maker *m, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(m->from, i, &kept, &tied); i++)
    if (tied == tensor) return ckpt_tensor_same_shape(kept, tied) && kept->dtype == tied->dtype;
  return false;
}

/* ---- tensors that join others ------------------------------------------------------------------------------------ */

static ckpt_status check_joined(const maker *m, const ckpt_arch_joined *joined, const ckpt_tensor *tensor,
                                uint64_t n_parts, uint64_t part_shape[2], ckpt_error *err) {
  const ckpt_arch_name *row = find_row(m, joined->parts[0]);
  const bool is_stacked = ckpt_dialect_is_stacked(row);
  const uint64_t *shape = tensor->shape;
  if (tensor->rank != (is_stacked ? 3 : 2) || shape[is_stacked] % n_parts != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a tensor of %u axes is no %llu others joined", tensor->rank,
                     (ull)n_parts);
  if (is_stacked && shape[0] != m->sizes.n_experts)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "has %llu experts, config.json says %llu (%s)", (ull)shape[0],
                     (ull)m->sizes.n_experts, m->arch->n_experts);
  part_shape[0] = shape[is_stacked] / n_parts;
  part_shape[1] = shape[is_stacked + 1];
  return CKPT_OK;
}

/* One of the others: a share of the rows, of every expert. */
static ckpt_status add_part(maker *m, const ckpt_arch_name *row, const ckpt_tensor *joined, uint64_t layer, uint64_t i,
                            const uint64_t shape[2], ckpt_error *err) {
  ckpt_arena *arena = &m->index->arena;
  const uint64_t numbers[2] = {layer, 0};
  const char *stored = ckpt_arch_fill(row->hf, numbers, arena), *name = ckpt_arch_fill(row->gguf, numbers, arena);
  ckpt_tensor part = *joined;
  ckpt_expr *x;
  CKPT_TRY_ALLOC(stored, err);
  CKPT_TRY_ALLOC(name, err);
  part.rank = 2;
  part.shape = shape;
  if (ckpt_index_find(m->from, stored) != NULL) return refuse_extra(m, joined, err);
  CKPT_TRY(check_shape(m, row, &part, err));
  CKPT_TRY(ckpt_expr_read_in(&x, arena, m->from, joined, err));
  if (shape[0] != joined->shape[joined->rank - 2])
    CKPT_TRY(ckpt_expr_slice_in(&x, arena, x, joined->rank - 2U, i * shape[0], shape[0], err));
  CKPT_TRY(ckpt_dialect_apply(&x, arena, &m->sizes, row, name, err));
  return add(m, name, x, CKPT_ROLE_PARAMETER, err);
}

static ckpt_status add_joined(maker *m, const ckpt_arch_joined *joined, const ckpt_tensor *tensor, uint64_t layer,
                              ckpt_error *err) {
  uint64_t n = 0, shape[2];
  while (n < 3 && joined->parts[n] != NULL) n++;
  if (!ckpt_dtype_is_float((ckpt_dtype)tensor->dtype)) return refuse_dtype(tensor, err);
  CKPT_TRY(check_joined(m, joined, tensor, n, shape, err));
  for (uint64_t i = 0; i < n; i++) CKPT_TRY(add_part(m, find_row(m, joined->parts[i]), tensor, layer, i, shape, err));
  return CKPT_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* Whether the config's class has the tensors of a row: without their shape, a buffer. */
static bool is_wanted(const maker *m, const ckpt_arch_name *row) {
  const ckpt_arch_shape *shape = ckpt_arch_shape_of(m->arch, m->config, row->hf);
  return shape == NULL ? row->role == CKPT_ROLE_BUFFER : ckpt_arch_is_wanted(shape, m->config);
}

static ckpt_status add_tensor(maker *m, const ckpt_tensor *tensor, ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_name *row = ckpt_arch_match(m->arch, tensor->name, numbers);
  const ckpt_arch_joined *joined = row != NULL ? NULL : ckpt_arch_match_joined(m->arch, tensor->name, numbers);
  const char *pattern = row != NULL ? row->hf : joined != NULL ? joined->hf : NULL;
  if (pattern == NULL || (strchr(pattern, '#') != NULL && numbers[0] >= m->sizes.n_layers))
    return refuse_extra(m, tensor, err);
  if (row == NULL) return add_joined(m, joined, tensor, numbers[0], err);
  if ((row->notes & CKPT_NAME_COPY) != 0 && !is_tied_copy(m, row)) return refuse_extra(m, tensor, err);
  if (!is_wanted(m, row)) return refuse_unwanted(m, tensor, err);
  if (row->gguf == NULL || (repeats_tied(m, tensor) && !m->arch->gguf->needs_head))
    return CKPT_OK; /* computed anew by whoever runs the model, or the copy of another */
  const bool is_stacked = ckpt_dialect_is_stacked(row);
  if (is_stacked && numbers[1] >= m->sizes.n_experts) return refuse_extra(m, tensor, err);
  if (is_stacked && numbers[1] != 0) return CKPT_OK; /* comes with the first */
  const char *name = ckpt_arch_fill(row->gguf, numbers, &m->index->arena);
  CKPT_TRY_ALLOC(name, err);
  ckpt_expr *x;
  if (is_stacked)
    CKPT_TRY(read_stack(&x, m, row, numbers[0], err));
  else
    CKPT_TRY(read_tensor(&x, m, row, tensor, err));
  CKPT_TRY(ckpt_dialect_apply(&x, &m->index->arena, &m->sizes, row, name, err));
  return add(m, name, x, CKPT_ROLE_PARAMETER, err);
}

static ckpt_status add_made(maker *m, const ckpt_arch_made *made, ckpt_error *err) {
  float *factors;
  uint64_t n;
  ckpt_expr *x;
  if (made->kind != CKPT_MADE_ROPE_FACTORS) return CKPT_OK;
  CKPT_TRY(ckpt_dialect_rope_factors(&factors, &n, m->arch, m->config, &m->index->arena, err));
  if (factors == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_expr_memory_in(&x, &m->index->arena, CKPT_F32, 1, &n, factors, err));
  return add(m, made->gguf, x, CKPT_ROLE_PARAMETER, err);
}

/* Whether a parameter that the row has may be absent: one of a tie, or one that the config does not have. */
static bool may_lack(const maker *m, const ckpt_arch_name *row) {
  if (row->role != CKPT_ROLE_PARAMETER || row->gguf == NULL) return true;
  if (is_tied_copy(m, row)) return !m->arch->gguf->needs_head;
  return (row->notes & CKPT_NAME_OPTIONAL) != 0 && !is_wanted(m, row);
}

static ckpt_status refuse_tied(const maker *m, const char *name, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, m->from->path, name,
                   "is the embedding (tie_word_embeddings), and llama.cpp loads no %s without a head of its own",
                   m->arch->name);
}

static ckpt_status check_all_there(const maker *m, ckpt_error *err) {
  for (const ckpt_arch_name *row = m->arch->names; row->hf != NULL; row++) {
    const uint64_t n = strchr(row->hf, '#') == NULL ? 1 : m->sizes.n_layers;
    for (uint64_t i = 0; i < n && !may_lack(m, row); i++) { /* of a stack the first: the others were taken with it */
      const char *name = ckpt_arch_fill(row->hf, (uint64_t[2]){i, 0}, &m->index->arena);
      CKPT_TRY_ALLOC(name, err);
      const ckpt_tensor *found = ckpt_index_find(m->from, name); /* of a tie it may be the other, by this name */
      if (found != NULL && (!is_tied_copy(m, row) || strcmp(found->name, name) == 0)) continue;
      const char *joined = ckpt_arch_joined_name(m->arch, row->hf, (uint64_t[2]){i, 0}, &m->index->arena);
      if (joined != NULL && found == NULL && ckpt_index_find(m->from, joined) != NULL) continue;
      return is_tied_copy(m, row) ? refuse_tied(m, name, err) : refuse_missing(m, name, err);
    }
  }
  return CKPT_OK;
}

/* Sums of 1 and small values are not those values any more. */
static ckpt_status note_sums(const maker *m, ckpt_error *err) {
  uint64_t numbers[2];
  size_t n = 0;
  for (uint32_t i = 0; i < m->from->n_tensors; i++) {
    const ckpt_tensor *tensor = &m->from->tensors[i];
    const ckpt_arch_name *row =
        ckpt_role_is_model((ckpt_role)tensor->role) ? ckpt_arch_match(m->arch, tensor->name, numbers) : NULL;
    n += row != NULL && (row->notes & CKPT_NAME_PLUS_ONE) != 0;
  }
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(m->index, false, err, "the last bits of %zu norm%s (GGUF has the sums of 1 and their values)",
                         n, ckpt_plural(n));
}

static ckpt_status add_all(maker *m, ckpt_error *err) {
  for (const ckpt_arch_made *made = m->arch->gguf->made; made != NULL && made->gguf != NULL; made++)
    CKPT_TRY(add_made(m, made, err));
  for (uint32_t i = 0; i < m->from->n_tensors; i++) {
    const ckpt_tensor *tensor = &m->from->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) continue;
    CKPT_TRY(ckpt_fail_at(add_tensor(m, tensor, err), err, ckpt_index_file_of(m->from, tensor), tensor->name));
  }
  CKPT_TRY(check_all_there(m, err));
  return note_sums(m, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Whether the converter looks at a before b: files go by their names, and so do the tensors of a safetensors file; in a
 * pickle they stand as they were saved. */
static bool is_before(const ckpt_index *from, const ckpt_tensor *a, const ckpt_tensor *b) {
  const char *file_a = ckpt_index_file_of(from, a), *file_b = ckpt_index_file_of(from, b);
  const int by_file = file_a == NULL || file_b == NULL ? 0 : strcmp(file_a, file_b);
  if (by_file != 0) return by_file < 0;
  return file_a != NULL && ckpt_text_ends(file_a, ".safetensors") && strcmp(a->name, b->name) < 0;
}

ckpt_dtype ckpt_dialect_auto(const ckpt_index *from) {
  const ckpt_tensor *first = NULL;
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) && tensor->rank >= 2 &&
        (tensor->dtype == CKPT_BF16 || tensor->dtype == CKPT_F16) && (first == NULL || is_before(from, tensor, first)))
      first = tensor;
  }
  return first == NULL ? CKPT_F16 : (ckpt_dtype)first->dtype;
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

/* A model that computes something else would run, and say something else. */
static ckpt_status check_constants(const maker *m, ckpt_error *err) {
  const ckpt_arch_constant *one = m->arch->gguf->constants;
  for (; one != NULL && one->config != NULL; one++) {
    char shown[64];
    if (!ckpt_config_has(m->config, one->config)) continue;
    ckpt_config_show(m->config, one->config, shown, sizeof shown);
    const size_t n = strlen(shown);
    const char *at = one->values;
    while (*at != '\0' && (strcspn(at, "|") != n || memcmp(at, shown, n) != 0)) {
      at += strcspn(at, "|");
      at += *at == '|';
    }
    if (*at == '\0')
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s is %s, and llama.cpp computes a %s with %.*s",
                       one->config, shown, m->arch->name, (int)strcspn(one->values, "|"), one->values);
  }
  return CKPT_OK;
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
  ckpt_dialect_sizes *sizes = &m->sizes;
  const char *experts = m->arch->n_experts;
  if (!ckpt_config_extent(m->config, m->arch->gguf->heads, &sizes->n_heads) ||
      !ckpt_config_extent(m->config, m->arch->gguf->kv_heads, &sizes->n_kv_heads) ||
      !ckpt_config_extent(m->config, m->arch->n_layers, &sizes->n_layers) ||
      (experts != NULL && !ckpt_config_extent(m->config, experts, &sizes->n_experts)))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s%s%s and %s have to be numbers above 0", m->arch->gguf->heads,
                     experts == NULL ? "" : ", ", experts == NULL ? "" : experts, m->arch->n_layers);
  if (sizes->n_heads > UINT32_MAX || sizes->n_kv_heads > sizes->n_heads || sizes->n_heads % sizes->n_kv_heads != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu heads of queries for %llu of keys", (ull)sizes->n_heads,
                     (ull)sizes->n_kv_heads);
  return check_constants(m, err);
}

/* What the class has where its config says nothing. */
static ckpt_status add_defaults(ckpt_config *config, const ckpt_arch *arch, ckpt_error *err) {
  const char *type = arch->model_types[0];
  (void)ckpt_config_text(config, "model_type", &type);
  const ckpt_arch_default *one = arch->gguf->defaults;
  for (; one != NULL && one->config != NULL; one++)
    if ((one->model_type == NULL || strcmp(one->model_type, type) == 0) &&
        ckpt_config_kind_of(config, one->config) == CKPT_CONFIG_ABSENT)
      CKPT_TRY(ckpt_config_put(config, one->config, one->value, err));
  return CKPT_OK;
}

/* The config of a model of a family that GGUF has. */
static ckpt_status open_config(ckpt_config **out, const ckpt_arch *arch, const ckpt_index *from,
                               const ckpt_index *config_of, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(config_of, "config.json");
  if (arch == NULL || arch->gguf == NULL || side == NULL || side->text == NULL) return refuse_unknown(from, err);
  CKPT_TRY(ckpt_config_parse(out, side->text, side->n_bytes, ckpt_index_side_path(config_of, side), err));
  const ckpt_status status = add_defaults(*out, arch, err);
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_config_free(*out);
  *out = NULL;
  return status;
}

ckpt_status ckpt_dialect_of_model(const ckpt_arch **arch, ckpt_dialect_sizes *sizes, const ckpt_index *model,
                                  ckpt_error *err) {
  maker m = {.from = model, .arch = ckpt_arch_find(model->architecture)};
  ckpt_config *config = NULL;
  if (model->stored_form != NULL && ckpt_dialect_gguf_sizes(arch, sizes, model->stored_form)) return CKPT_OK;
  CKPT_TRY(open_config(&config, m.arch, model, model, err));
  m.config = config;
  const char *path = ckpt_index_side_path(model, ckpt_index_side_file(model, "config.json"));
  const ckpt_status status = ckpt_fail_at(read_numbers(&m, err), err, path, NULL);
  ckpt_config_free(config);
  if (status != CKPT_OK) return status;
  *arch = m.arch;
  *sizes = m.sizes;
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
  CKPT_TRY(open_config(&config, m.arch, from, config_of, err));
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
