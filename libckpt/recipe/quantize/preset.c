/* preset.c - see preset.h. The mixtures are tables of rules per kind of tensor: the first whose presets hold the one
 * asked for and whose conditions are all met gives the type; where none is, the type stays as it was. */
#include "libckpt/recipe/quantize/preset.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/gguf/layers.h"

static const ckpt_preset presets[CKPT_N_PRESETS] = {
#define CKPT_PRESET(id, name, file_type, base) {CKPT_PRESET_##id, name, file_type, CKPT_##base},
#include "libckpt/recipe/quantize/presets.def"
#undef CKPT_PRESET
};

const ckpt_preset *ckpt_preset_at(uint32_t i) { return &presets[i]; }

const ckpt_preset *ckpt_preset_find(const char *name) {
  static const char *const medium[][2] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
  for (size_t i = 0; i < sizeof medium / sizeof *medium; i++)
    if (strcasecmp(name, medium[i][0]) == 0) name = medium[i][1];
  for (size_t i = 0; i < CKPT_N_PRESETS; i++)
    if (strcasecmp(name, presets[i].name) == 0) return &presets[i];
  return NULL;
}

/* ---- kinds of tensors, by parts of their names ---- */

typedef enum kind { OUTPUT, EMBEDDING, ATTN_V, ATTN_K, ATTN_Q, ATTN_OUTPUT, FFN_UP, FFN_GATE, FFN_DOWN, OTHER } kind;

static kind kind_of(const char *name) {
  static const struct {
    const char *part;
    kind kind;
  } parts[] = {
      {"attn_qkv.weight", ATTN_V}, {"attn_kv_b.weight", ATTN_V}, {"attn_v.weight", ATTN_V},
      {"attn_k.weight", ATTN_K},   {"attn_q.weight", ATTN_Q},    {"attn_output.weight", ATTN_OUTPUT},
      {"ffn_up", FFN_UP},          {"ffn_gate", FFN_GATE},       {"ffn_down", FFN_DOWN},
  };
  if (strcmp(name, "output.weight") == 0) return OUTPUT;
  if (strcmp(name, "token_embd.weight") == 0 || strcmp(name, "per_layer_token_embd.weight") == 0) return EMBEDDING;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strstr(name, parts[i].part) != NULL) return parts[i].kind;
  return OTHER;
}

/* Names with one of these in them are never quantized: norms, routers, positions, states of recurrent layers. */
static const char *const kept_parts[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    ".position_embd",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

/* The same in models of architecture glm5-next. */
static const char *const kept_parts_glm5[] = {
    "hc_",
    "indexer.attn_q_b",
    "indexer.attn_k",
    "indexer.proj",
    "indexer_compressor_gate",
    "indexer_compressor_ape",
    "ssm_f_a.weight",
    "ssm_f_b.weight",
    "ssm_g_a.weight",
    "ssm_g_b.weight",
    "ssm_beta.weight",
    "attn_kv_a_mqa.weight",
    "attn_k_b.weight",
    "attn_v_b.weight",
};

static bool has_part(const char *name, const char *const *parts, size_t n_parts) {
  for (size_t i = 0; i < n_parts; i++)
    if (strstr(name, parts[i]) != NULL) return true;
  return false;
}

uint32_t ckpt_preset_rank(const ckpt_tensor *tensor) {
  uint32_t rank = tensor->rank;
  const uint64_t *shape = tensor->shape;
  for (; rank > 1 && *shape == 1; shape++) rank--;
  return rank == 0 ? 1 : rank;
}

const uint64_t *ckpt_preset_shape(const ckpt_tensor *tensor, uint32_t rank) {
  static const uint64_t one = 1;
  return tensor->rank == 0 ? &one : tensor->shape + tensor->rank - rank;
}

static bool is_quantizable(const ckpt_preset_model *model, const ckpt_tensor *tensor) {
  const char *name = tensor->name;
  const size_t n_name = strlen(name);
  if (ckpt_preset_rank(tensor) < 2) return false;
  if (n_name < 6 || strcmp(name + n_name - 6, "weight") != 0) return false;
  if (strcmp(name, "position_embd.weight") == 0 || strcmp(name, "token_types.weight") == 0) return false;
  if (strcmp(model->architecture, "glm5-next") == 0 &&
      has_part(name, kept_parts_glm5, sizeof kept_parts_glm5 / sizeof *kept_parts_glm5))
    return false;
  return !has_part(name, kept_parts, sizeof kept_parts / sizeof *kept_parts);
}

/* ---- rules ---- */

/* Conditions of a rule; all must be met. "Place" is the tensor's place among its kind, of `of` in the model. */
enum {
  GQA4 = 1 << 0,      /* 4 or more query heads share a key head */
  EXPERTS4 = 1 << 1,  /* 4 or more experts */
  EXPERTS8 = 1 << 2,  /* exactly 8 */
  DENSE = 1 << 3,     /* not exactly 8 */
  FALCON = 1 << 4,    /* architecture */
  NO_FALCON = 1 << 5, /* as above */
  IMATRIX = 1 << 6,
  NO_IMATRIX = 1 << 7,
  ODD_ROW = 1 << 8,  /* rows are no multiple of the base dtype's block */
  FIRST_2 = 1 << 9,  /* place */
  FIRST_4 = 1 << 10, /* as above */
  EIGHTH = 1 << 11,  /* place in the first eighth */
  SIXTEENTH = 1 << 12,
  MIDDLE = 1 << 13, /* place in neither the first nor the last eighth */
  MORE = 1 << 14    /* place in the first or last eighth, and every third between */
};

typedef struct rule {
  uint64_t presets; /* bits by id */
  uint32_t conditions;
  ckpt_dtype dtype;
} rule;

#define P(id) (UINT64_C(1) << CKPT_PRESET_##id)
#define ANY UINT64_MAX
#define IQ1 (P(IQ1_S) | P(IQ1_M))
#define IQ2_SMALL (P(IQ2_XXS) | P(IQ2_XS))
#define IQ2_LARGE (P(IQ2_S) | P(IQ2_M))
#define VERY_LOW (IQ1 | IQ2_SMALL | IQ2_LARGE)
#define IQ4 (P(IQ4_NL) | P(IQ4_XS))

static const rule output_rules[] = {
    {P(MXFP4_MOE), 0, CKPT_Q8_0},          {ANY, FALCON, CKPT_Q8_0},       {ANY, ODD_ROW, CKPT_Q8_0},
    {VERY_LOW | P(IQ3_XXS), 0, CKPT_Q5_K}, {ANY & ~P(Q8_0), 0, CKPT_Q6_K}, {0, 0, CKPT_DTYPE_NONE},
};
static const rule embedding_rules[] = {
    {IQ1 | IQ2_SMALL, 0, CKPT_Q2_K},
    {IQ2_LARGE | P(IQ3_XXS), 0, CKPT_IQ3_S},
    {P(TQ1_0) | P(TQ2_0) | P(Q2_0), 0, CKPT_Q4_K},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule attn_v_rules[] = {
    {VERY_LOW, GQA4, CKPT_Q4_K},
    {VERY_LOW, EXPERTS4, CKPT_Q4_K},
    {IQ2_LARGE, 0, CKPT_IQ3_S},
    {VERY_LOW, 0, CKPT_Q2_K},
    {P(Q2_K) | P(Q2_K_S) | P(IQ3_XXS) | P(IQ3_XS) | P(IQ3_S), GQA4, CKPT_Q4_K},
    {P(Q2_K), 0, CKPT_Q3_K},
    {P(IQ3_XXS), NO_IMATRIX, CKPT_IQ3_S},
    {P(IQ3_M), 0, CKPT_Q4_K},
    {P(Q3_K_M), FIRST_2, CKPT_Q5_K},
    {P(Q3_K_M), 0, CKPT_Q4_K},
    {P(Q3_K_L), 0, CKPT_Q5_K},
    {IQ4, GQA4, CKPT_Q5_K},
    {P(Q4_K_M) | P(Q5_K_M), MORE, CKPT_Q6_K},
    {P(Q4_K_S), FIRST_4, CKPT_Q5_K},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule attn_k_rules[] = {
    {VERY_LOW, EXPERTS8, CKPT_Q4_K}, {VERY_LOW, 0, CKPT_DTYPE_NONE}, {ANY, EXPERTS8, CKPT_Q8_0},
    {P(IQ3_XS), 0, CKPT_IQ3_XXS},    {P(IQ3_XXS), 0, CKPT_IQ2_S},    {0, 0, CKPT_DTYPE_NONE},
};
static const rule attn_q_rules[] = {
    {P(IQ3_XS), 0, CKPT_IQ3_XXS},
    {P(IQ3_XXS), 0, CKPT_IQ2_S},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule attn_output_rules[] = {
    {VERY_LOW, EXPERTS8, CKPT_Q5_K},
    {IQ1, 0, CKPT_IQ2_XXS},
    {IQ2_LARGE, 0, CKPT_IQ3_S},
    {P(Q3_K_L), FALCON, CKPT_Q4_K},
    {ANY, FALCON, CKPT_DTYPE_NONE},
    {P(Q2_K) | P(IQ3_XS) | P(IQ3_XXS) | P(Q3_K_S) | P(Q3_K_M) | P(Q4_K_S) | P(Q4_K_M) | P(IQ3_S) | P(IQ3_M) | IQ4,
     EXPERTS8, CKPT_Q5_K},
    {P(Q2_K), DENSE, CKPT_Q3_K},
    {P(IQ3_XXS), DENSE, CKPT_IQ3_S},
    {P(Q3_K_M) | P(IQ3_M), DENSE, CKPT_Q4_K},
    {P(Q3_K_L), DENSE, CKPT_Q5_K},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule ffn_down_rules[] = {
    {IQ2_LARGE, EIGHTH, CKPT_IQ3_S},
    {VERY_LOW, EIGHTH, CKPT_Q2_K},
    {P(Q2_K), 0, CKPT_Q3_K},
    {P(Q2_K_S), EIGHTH, CKPT_Q4_K},
    {P(IQ3_XXS), NO_IMATRIX | EIGHTH, CKPT_Q4_K},
    {P(IQ3_XXS), NO_IMATRIX, CKPT_Q3_K},
    {P(Q3_K_M), SIXTEENTH, CKPT_Q5_K},
    {P(Q3_K_M), NO_FALCON, CKPT_Q4_K},
    {P(Q3_K_M), MORE, CKPT_Q4_K},
    {P(IQ3_M), EIGHTH, CKPT_Q4_K},
    {P(IQ3_M), EXPERTS8 | MORE, CKPT_Q4_K},
    {P(Q3_K_L), FALCON, CKPT_Q4_K},
    {P(Q3_K_L), 0, CKPT_Q5_K},
    {P(Q4_K_M), FALCON | SIXTEENTH, CKPT_Q6_K},
    {P(Q4_K_M), FALCON | MORE, CKPT_Q5_K},
    {P(Q4_K_M), NO_FALCON | MORE, CKPT_Q6_K},
    {P(Q5_K_M), MORE, CKPT_Q6_K},
    {IQ4, EIGHTH | NO_IMATRIX, CKPT_Q5_K},
    {P(Q4_K_S), NO_FALCON | EIGHTH, CKPT_Q5_K},
    {P(Q4_0), IMATRIX | EIGHTH, CKPT_Q4_1},
    {P(Q5_0), IMATRIX | EIGHTH, CKPT_Q5_1},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule ffn_in_rules[] = {
    {P(IQ3_XS), MIDDLE, CKPT_IQ3_XXS},
    {0, 0, CKPT_DTYPE_NONE},
};
static const rule no_rules[] = {{0, 0, CKPT_DTYPE_NONE}};

static const rule *const rules_of[] = {
    [OUTPUT] = output_rules, [EMBEDDING] = embedding_rules, [ATTN_V] = attn_v_rules,
    [ATTN_K] = attn_k_rules, [ATTN_Q] = attn_q_rules,       [ATTN_OUTPUT] = attn_output_rules,
    [FFN_UP] = ffn_in_rules, [FFN_GATE] = ffn_in_rules,     [FFN_DOWN] = ffn_down_rules,
    [OTHER] = no_rules,
};

/* What the rules know of all tensors together. */
typedef struct tally {
  int64_t n_attn_v;      /* in the model */
  int64_t at[OTHER + 1]; /* tensors of each kind so far */
  bool is_tied;          /* no output.weight: the embedding stands for it */
  uint32_t facts;        /* conditions that hold for every tensor */
} tally;

static uint32_t facts_of_place(int64_t place, int64_t of) {
  uint32_t facts = 0;
  if (place < 2) facts |= FIRST_2;
  if (place < 4) facts |= FIRST_4;
  if (place < of / 8) facts |= EIGHTH;
  if (place < of / 16) facts |= SIXTEENTH;
  if (place >= of / 8 && place < 7 * of / 8) facts |= MIDDLE;
  if (place < of / 8 || place >= 7 * of / 8 || (place - of / 8) % 3 == 2) facts |= MORE;
  return facts;
}

static uint32_t facts_of_model(const ckpt_preset_request *request, const ckpt_preset_model *model) {
  const uint32_t n_gqa = model->n_kv_heads == 0 ? 0 : model->n_heads / model->n_kv_heads;
  const bool is_falcon = strcmp(model->architecture, "falcon") == 0;
  return (n_gqa >= 4 ? GQA4 : 0) | (model->n_experts >= 4 ? EXPERTS4 : 0) | (model->n_experts == 8 ? EXPERTS8 : DENSE) |
         (is_falcon ? FALCON : NO_FALCON) | (request->has_imatrix ? IMATRIX : NO_IMATRIX);
}

/* The models that llama.cpp calls 70B: their value weights are small and get more bits. */
static bool is_70b(const ckpt_preset_model *model) {
  static const struct {
    const char *architecture;
    uint32_t n_layers;
    bool shares_heads; /* only where key heads are shared */
  } models[] = {
      {"llama", 80, true}, {"qwen2", 80, false}, {"deci", 80, false}, {"olmo", 80, false}, {"jais2", 68, false}};
  for (size_t i = 0; i < sizeof models / sizeof *models; i++)
    if (strcmp(model->architecture, models[i].architecture) == 0 && model->n_layers == models[i].n_layers)
      return !models[i].shares_heads || model->n_heads != model->n_kv_heads;
  return false;
}

/* The tensor's place among its kind and of how many. The layers of experts are not written in order: there the name
 * tells. */
static ckpt_status find_place(int64_t *place, int64_t *of, const ckpt_preset_request *request,
                              const ckpt_preset_model *model, const char *name, kind k, tally *t, ckpt_error *err) {
  const bool is_ffn = k == FFN_UP || k == FFN_GATE || k == FFN_DOWN;
  *place = t->at[k]++;
  *of = k == ATTN_V ? t->n_attn_v : model->n_layers;
  if (!is_ffn || model->n_experts <= 1 || (VERY_LOW >> request->preset->id & 1) != 0) return CKPT_OK;
  *place = ckpt_gguf_layer(name);
  if (*place >= 0 && *place < *of) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, name, "it has experts and is in none of the model's %u layer%s",
                   model->n_layers, ckpt_plural(model->n_layers));
}

static ckpt_dtype by_rules(const rule *rules, const ckpt_preset *preset, uint32_t facts, ckpt_dtype otherwise) {
  for (; rules->presets != 0; rules++)
    if ((rules->presets >> preset->id & 1) != 0 && (rules->conditions & ~facts) == 0)
      return rules->dtype == CKPT_DTYPE_NONE ? otherwise : rules->dtype;
  return otherwise;
}

/* Mixtures of experts in MXFP4: the experts themselves, all else in 8 bits. */
static ckpt_dtype mxfp4_moe(const ckpt_preset_model *model, const ckpt_tensor *tensor, kind k) {
  const bool is_ffn = k == FFN_UP || k == FFN_GATE || k == FFN_DOWN;
  const bool is_expert = tensor->rank >= 3 && tensor->shape[tensor->rank - 3] > 1;
  return is_expert && (is_ffn || strcmp(model->architecture, "bailingmoe3") != 0) ? CKPT_MXFP4 : CKPT_Q8_0;
}

static bool is_delicate_glm5(const ckpt_preset_model *model, const char *name) {
  return strcmp(model->architecture, "glm5-next") == 0 &&
         (strstr(name, "attn_q_a") != NULL || strstr(name, "attn_q_b") != NULL ||
          strstr(name, "nextn.eh_proj") != NULL);
}

static ckpt_status by_mixture(ckpt_preset_choice *choice, const ckpt_preset_request *request,
                              const ckpt_preset_model *model, const ckpt_tensor *tensor, tally *t, ckpt_error *err) {
  const ckpt_preset *preset = request->preset;
  ckpt_dtype *dtype = &choice->wanted;
  kind k = kind_of(tensor->name);
  *dtype = CKPT_Q8_0;
  if (is_delicate_glm5(model, tensor->name)) return CKPT_OK;
  if (k == EMBEDDING && t->is_tied) k = OUTPUT;
  if (k == OUTPUT && request->output_type != CKPT_DTYPE_NONE) { /* of an embedding that stands for the output */
    *dtype = request->output_type;
    choice->decided_by = "output_type";
    return CKPT_OK;
  }
  if (k != OUTPUT && preset->id == CKPT_PRESET_MXFP4_MOE) {
    *dtype = mxfp4_moe(model, tensor, k);
    return CKPT_OK;
  }
  int64_t place, of;
  CKPT_TRY(find_place(&place, &of, request, model, tensor->name, k, t, err));
  uint32_t facts = t->facts | facts_of_place(place, of);
  if (tensor->shape[tensor->rank - 1] % ckpt_dtype_get(preset->base)->block_elements != 0) facts |= ODD_ROW;
  *dtype = by_rules(rules_of[k], preset, facts, preset->base);
  if (k != ATTN_V || (VERY_LOW >> preset->id & 1) != 0) return CKPT_OK;
  if (is_70b(model) && (*dtype == CKPT_Q3_K || *dtype == CKPT_Q4_K)) *dtype = CKPT_Q5_K;
  if (model->n_experts == 8) *dtype = CKPT_Q8_0;
  return CKPT_OK;
}

/* ---- one tensor ---- */

/* A type for rows that the wanted one's blocks do not fit: smaller blocks of about the same width, else F16. */
static ckpt_status fall_back(ckpt_dtype *dtype, const ckpt_tensor *tensor, ckpt_error *err) {
  const uint64_t n_columns = tensor->shape[tensor->rank - 1];
  const ckpt_dtype_row *wanted = ckpt_dtype_get(*dtype);
  if (n_columns % wanted->block_elements == 0) return CKPT_OK;
  switch ((int)*dtype) {
    case CKPT_IQ1_S:
    case CKPT_IQ1_M:
    case CKPT_IQ2_XXS:
    case CKPT_IQ2_XS:
    case CKPT_IQ2_S:
    case CKPT_IQ3_XXS:
    case CKPT_IQ3_S:
    case CKPT_IQ4_XS: *dtype = CKPT_IQ4_NL; break;
    case CKPT_Q2_0:
    case CKPT_Q2_K:
    case CKPT_Q3_K:
    case CKPT_TQ1_0:
    case CKPT_TQ2_0: *dtype = CKPT_Q4_0; break;
    case CKPT_Q4_K: *dtype = CKPT_Q5_0; break;
    case CKPT_Q5_K: *dtype = CKPT_Q5_1; break;
    case CKPT_Q6_K: *dtype = CKPT_Q8_0; break;
    default:
      if (wanted->block_elements <= 32) break;
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                       "rows of %llu value%s are no multiple of the %u of a block of %s, and no other type stands in "
                       "for it",
                       (unsigned long long)n_columns, ckpt_plural(n_columns), wanted->block_elements, wanted->name);
  }
  if (n_columns % ckpt_dtype_get(*dtype)->block_elements != 0) *dtype = CKPT_F16;
  return CKPT_OK;
}

static ckpt_status find_override(const ckpt_preset_override **out, const ckpt_preset_request *request, const char *name,
                                 ckpt_error *err) {
  *out = NULL;
  for (uint32_t i = 0; i < request->n_overrides && *out == NULL; i++) {
    bool matches;
    CKPT_TRY(ckpt_pattern_match(request->overrides[i].pattern, name, &matches, err));
    if (matches) *out = &request->overrides[i];
  }
  return CKPT_OK;
}

static bool needs_imatrix(const ckpt_preset *preset, kind k, ckpt_dtype dtype) {
  if (k == OUTPUT || k == EMBEDDING) return false;
  switch ((int)dtype) {
    case CKPT_IQ1_S:
    case CKPT_IQ1_M:
    case CKPT_IQ2_XXS:
    case CKPT_IQ2_XS:
    case CKPT_IQ2_S:
    case CKPT_IQ3_XXS: return true;
    case CKPT_Q2_K: return preset->id == CKPT_PRESET_Q2_K_S;
    default: return false;
  }
}

/* The type that is wanted, and what decided so. */
static ckpt_status want(ckpt_preset_choice *choice, const ckpt_preset_request *request, const ckpt_preset_model *model,
                        const ckpt_tensor *tensor, tally *t, ckpt_error *err) {
  const kind k = kind_of(tensor->name);
  const ckpt_preset_override *override;
  const ckpt_dtype stored = (ckpt_dtype)tensor->dtype;
  const bool is_left = request->leave_output && strcmp(tensor->name, "output.weight") == 0;
  *choice = (ckpt_preset_choice){.wanted = stored, .is_kept = true, .decided_by = is_left ? "leave_output" : "kept"};
  if (is_left || !is_quantizable(model, tensor)) return CKPT_OK;
  choice->is_kept = false;
  CKPT_TRY(find_override(&override, request, tensor->name, err));
  /* one table for every layer is large: a pattern may name it apart from the embedding */
  const bool is_named = override != NULL && strcmp(tensor->name, "per_layer_token_embd.weight") == 0;
  const bool is_block = ckpt_dtype_get(request->preset->base)->block_elements > 1;
  const ckpt_dtype own = k == EMBEDDING && !is_named ? request->embedding_type
                         : k == OUTPUT               ? request->output_type
                                                     : CKPT_DTYPE_NONE;
  choice->decided_by = "preset";
  choice->wanted = request->preset->base;
  if (own != CKPT_DTYPE_NONE) {
    choice->wanted = own;
    choice->decided_by = k == OUTPUT ? "output_type" : "embedding_type";
  } else if (override != NULL) {
    choice->wanted = override->dtype;
    choice->decided_by = "tensor_types";
  } else if (request->pure) {
    choice->decided_by = "pure";
  } else if (is_block) {
    return by_mixture(choice, request, model, tensor, t, err);
  }
  return CKPT_OK;
}

/* own counts as if there were no options but the preset. */
static ckpt_status choose(ckpt_preset_choice *choice, const ckpt_preset_request *request,
                          const ckpt_preset_model *model, const ckpt_tensor *tensor, tally *t, tally *own,
                          ckpt_error *err) {
  const ckpt_preset_request plain = {.preset = request->preset, .has_imatrix = request->has_imatrix};
  ckpt_preset_choice alone;
  CKPT_TRY(want(choice, request, model, tensor, t, err));
  const bool is_known = want(&alone, &plain, model, tensor, own, NULL) == CKPT_OK;
  choice->instead_of = is_known && alone.wanted != choice->wanted ? alone.wanted : CKPT_DTYPE_NONE;
  choice->dtype = choice->wanted;
  if (choice->is_kept) return CKPT_OK;
  CKPT_TRY(fall_back(&choice->dtype, tensor, err));
  choice->needs_imatrix = needs_imatrix(request->preset, kind_of(tensor->name), choice->dtype);
  return CKPT_OK;
}

/* ---- all of them ---- */

ckpt_status ckpt_preset_choose(const ckpt_preset_request *request, const ckpt_preset_model *model,
                               const ckpt_tensor *tensors, const uint32_t *numbers, uint32_t n,
                               ckpt_preset_choice *choices, ckpt_error *err) {
  tally t = {.is_tied = true, .facts = facts_of_model(request, model)};
  for (uint32_t i = 0; i < n; i++) {
    const kind k = kind_of(tensors[numbers[i]].name);
    t.n_attn_v += k == ATTN_V;
    t.is_tied = t.is_tied && k != OUTPUT;
  }
  tally own = t;
  for (uint32_t i = 0; i < n; i++)
    CKPT_TRY(choose(&choices[numbers[i]], request, model, &tensors[numbers[i]], &t, &own, err));
  return CKPT_OK;
}
