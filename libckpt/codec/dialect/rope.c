/* rope.c - a config.json's rotary positions, and what no model in GGUF computes of them: see dialect.h.
 *
 * Where settings stand, and which counts where several do, is as transformers 5 has it (modeling_rope_utils.py): of
 * rope_scaling and rope_parameters one counts, and of what it lacks the family's own keys (ckpt_arch_rope). */
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"

/* What each type of scaling reads of the object, besides the keys that all have. */
static const struct {
  const char *type, *keys[9];
} types[] = {{"default", {NULL}},
             {"linear", {"factor", NULL}},
             {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings", NULL}},
             {"longrope",
              {"factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor", NULL}},
             {"yarn",
              {"factor", "original_max_position_embeddings", "extrapolation_factor", "attention_factor", "attn_factor",
               "beta_fast", "beta_slow", "truncate", NULL}}};

static size_t row_of(const char *type) {
  size_t row = 0;
  while (row < sizeof types / sizeof *types && strcmp(types[row].type, type) != 0) row++;
  return row;
}

bool ckpt_dialect_rope_reads(const ckpt_dialect_rope *rope, const char *key) {
  static const char *const always[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", NULL};
  const size_t row = row_of(rope->type);
  return ckpt_text_is_one_of(key, always) ||
         (row < sizeof types / sizeof *types && ckpt_text_is_one_of(key, types[row].keys));
}

bool ckpt_dialect_rope_number(const ckpt_dialect_rope *rope, const char *key, double *out) {
  const char *full = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, key);
  return full != NULL && ckpt_config_number(rope->config, full, out);
}

static bool has(const ckpt_dialect_rope *rope, const char *key) {
  const char *full = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, key);
  return full != NULL && ckpt_config_has(rope->config, full);
}

static bool has_key_of(const ckpt_arch *arch, ckpt_key_kind kind) {
  const ckpt_arch_key *key = arch->gguf->keys;
  while (key->gguf != NULL && key->kind != kind) key++;
  return key->gguf != NULL;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static ckpt_status refuse_value(const ckpt_config *config, const char *key, const char *wanted, ckpt_error *err) {
  char shown[64];
  ckpt_config_show(config, key, shown, sizeof shown);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is %s, and has to be %s", key, shown, wanted);
}

/* The object, or its part for layers of full attention, with which others have to agree. */
static ckpt_status find_section(ckpt_dialect_rope *rope, const ckpt_arch *arch, ckpt_error *err) {
  rope->section = ckpt_config_rope(rope->config);
  if (ckpt_config_has(rope->config, rope->section) &&
      ckpt_config_kind_of(rope->config, rope->section) != CKPT_CONFIG_OBJECT)
    return refuse_value(rope->config, rope->section, "an object", err);
  if (!has(rope, "full_attention")) return CKPT_OK;
  if (!arch->rope.by_layer)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s differs by kinds of layers, which a %s does not have",
                     rope->section, arch->name);
  rope->whole = rope->section;
  rope->section = ckpt_arena_printf(rope->arena, "%s.full_attention", rope->whole);
  CKPT_TRY_ALLOC(rope->section, err);
  return CKPT_OK;
}

static ckpt_status read_type(ckpt_dialect_rope *rope, ckpt_error *err) {
  static const char *const keys[] = {"rope_type", "type"}; /* the second is its older name */
  rope->type = "default";
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *key = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, keys[i]);
    CKPT_TRY_ALLOC(key, err);
    if (!ckpt_config_has(rope->config, key)) continue;
    return ckpt_config_text(rope->config, key, &rope->type) ? CKPT_OK : refuse_value(rope->config, key, "a text", err);
  }
  return CKPT_OK;
}

/* A number of the object, else that of a key beside it, else the class's own. */
static ckpt_status read_number(double *out, const ckpt_dialect_rope *rope, const char *key, const char *beside,
                               double otherwise, ckpt_error *err) {
  const char *full = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, key);
  CKPT_TRY_ALLOC(full, err);
  *out = otherwise;
  if (!ckpt_config_has(rope->config, full)) full = beside;
  if (full == NULL || !ckpt_config_has(rope->config, full) || ckpt_config_number(rope->config, full, out))
    return CKPT_OK;
  return refuse_value(rope->config, full, "a number", err);
}

/* Other kinds of layers that every model of the family has: no key of GGUF is read for them alone. */
static ckpt_status check_layers(const ckpt_dialect_rope *rope, const ckpt_arch *arch, ckpt_error *err) {
  const char *const *kind = rope->whole == NULL ? NULL : arch->gguf->layer_types;
  for (; kind != NULL && *kind != NULL; kind++) {
    ckpt_dialect_rope other = *rope;
    double theta;
    other.section = ckpt_arena_printf(rope->arena, "%s.%s", rope->whole, *kind);
    CKPT_TRY_ALLOC(other.section, err);
    if (!ckpt_config_has(rope->config, other.section)) continue;
    CKPT_TRY(read_type(&other, err));
    CKPT_TRY(read_number(&theta, &other, "rope_theta", arch->rope.theta_key, arch->rope.theta, err));
    if (theta != rope->theta || strcmp(other.type, rope->type) != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                       "%s says %s of base %g, %s %s of base %g: a %s in GGUF has one", other.section, other.type,
                       theta, rope->section, rope->type, rope->theta, arch->name);
  }
  return CKPT_OK;
}

/* ---- what no key says -------------------------------------------------------------------------------------------- */

/* Whether GGUF has a tensor of factors in the place of keys. */
static bool is_of_factors(const ckpt_dialect_rope *rope) {
  return strcmp(rope->type, "llama3") == 0 || strcmp(rope->type, "longrope") == 0;
}

static ckpt_status check_type(const ckpt_dialect_rope *rope, const ckpt_arch *arch, ckpt_error *err) {
  const bool is_default = strcmp(rope->type, "default") == 0;
  if (!is_default && !has_key_of(arch, CKPT_KEY_ROPE_SCALING))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no key of a %s in GGUF says that rotary positions are scaled as '%.40s'", arch->name, rope->type);
  if (strcmp(rope->type, "dynamic") == 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no GGUF key says that rotary positions are scaled as 'dynamic', by the length of each text");
  if (row_of(rope->type) == sizeof types / sizeof *types)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no GGUF key says that rotary positions are scaled as '%.40s'",
                     rope->type);
  if (is_of_factors(rope) && arch->gguf->made == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "a %s in GGUF has no tensor that says how rotary positions are scaled as '%s'", arch->name,
                     rope->type);
  return CKPT_OK;
}

static ckpt_status check_numbers(const ckpt_dialect_rope *rope, ckpt_error *err) {
  static const char *const others[] = {"truncate", "short_factor", "long_factor", NULL};
  const size_t row = row_of(rope->type);
  double value;
  for (const char *const *key = types[row].keys; *key != NULL; key++) {
    const char *full = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, *key);
    CKPT_TRY_ALLOC(full, err);
    if (ckpt_text_is_one_of(*key, others) || !ckpt_config_has(rope->config, full)) continue;
    if (!ckpt_config_number(rope->config, full, &value)) return refuse_value(rope->config, full, "a number", err);
    if (strcmp(*key, "factor") == 0 && !(value > 0)) return refuse_value(rope->config, full, "above 0", err);
  }
  if (row != row_of("default") && !is_of_factors(rope) && !has(rope, "factor"))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s scaling without %s.factor", rope->type, rope->section);
  return CKPT_OK;
}

/* llama.cpp has one formula for how much attention grows, and rounds the dimensions between which it turns. */
static ckpt_status check_yarn(const ckpt_dialect_rope *rope, ckpt_error *err) {
  double scale = 0, all = 0;
  bool truncates = true;
  const char *key = ckpt_arena_printf(rope->arena, "%s.truncate", rope->section);
  CKPT_TRY_ALLOC(key, err);
  if (strcmp(rope->type, "yarn") != 0) return CKPT_OK;
  if (ckpt_config_has(rope->config, key) && (!ckpt_config_bool(rope->config, key, &truncates) || !truncates))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no GGUF key says that yarn does not round dimensions (%s)",
                     key);
  (void)ckpt_dialect_rope_number(rope, "mscale", &scale);
  (void)ckpt_dialect_rope_number(rope, "mscale_all_dim", &all);
  if (scale == 0 || all == 0 || has(rope, "attention_factor")) return CKPT_OK; /* which transformers takes then */
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "no GGUF key says yarn's mscale %g and mscale_all_dim %g (attention_factor takes their place)",
                   scale, all);
}

ckpt_status ckpt_dialect_read_rope(ckpt_dialect_rope *rope, const ckpt_arch *arch, const ckpt_config *config,
                                   ckpt_arena *arena, ckpt_error *err) {
  const ckpt_arch_rope *family = &arch->rope;
  *rope = (ckpt_dialect_rope){.config = config, .arena = arena, .type = "default", .part = 1};
  if (family->theta_key == NULL) return CKPT_OK;
  CKPT_TRY(find_section(rope, arch, err));
  CKPT_TRY(read_type(rope, err));
  CKPT_TRY(read_number(&rope->theta, rope, "rope_theta", family->theta_key, family->theta, err));
  CKPT_TRY(read_number(&rope->part, rope, "partial_rotary_factor", family->part_key, family->part, err));
  CKPT_TRY(check_layers(rope, arch, err));
  if (rope->part != 1 && !has_key_of(arch, CKPT_KEY_ROTARY))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "%g of a head rotates, and llama.cpp rotates a %s's whole heads", rope->part, arch->name);
  CKPT_TRY(check_type(rope, arch, err));
  CKPT_TRY(check_numbers(rope, err));
  return check_yarn(rope, err);
}

double ckpt_dialect_rope_positions(const ckpt_dialect_rope *rope) {
  double value = 0;
  if (!ckpt_dialect_rope_number(rope, "original_max_position_embeddings", &value))
    (void)ckpt_config_number(rope->config, "max_position_embeddings", &value);
  return value;
}

/* ---- factors ----------------------------------------------------------------------------------------------------- */

/* As torch computes it, each step rounded to f32: what is divided by a tensor is multiplied by its reciprocal. */
static float llama3_factor(float frequency, double factor, double low, double high, double context) {
  const float wavelength = (1 / frequency) * (float)(2 * 3.14159265358979323846);
  if (wavelength < (float)(context / high)) return 1;
  if (wavelength > (float)(context / low)) return (float)factor;
  const float smooth = ((1 / wavelength) * (float)context - (float)low) / (float)(high - low);
  return 1 / ((1 - smooth) / (float)factor + smooth);
}

static ckpt_status make_llama3(float *factors, uint64_t n, const ckpt_dialect_rope *rope, ckpt_error *err) {
  double factor = 8, low = 1, high = 4;
  (void)ckpt_dialect_rope_number(rope, "factor", &factor);
  (void)ckpt_dialect_rope_number(rope, "low_freq_factor", &low);
  (void)ckpt_dialect_rope_number(rope, "high_freq_factor", &high);
  const double base = rope->theta, context = ckpt_dialect_rope_positions(rope);
  if (!(base > 0) || !(low > 0) || !(high > low) || !(context > 0))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "no llama3 scaling goes by %g from %g to %g of %g positions at base %g", factor, low, high,
                     context, base);
  for (uint64_t i = 0; i < n; i++) {
    const float power = (float)pow(base, (double)((float)(2 * i) / (float)(2 * n)));
    factors[i] = llama3_factor(1 / power, factor, low, high, context);
  }
  return CKPT_OK;
}

/* One list, of which attention knows nothing: GGUF has one tensor for short texts and long ones, and transformers makes
 * attention grow where no attention_factor says otherwise. */
static ckpt_status read_longrope(float *factors, uint64_t n, const ckpt_dialect_rope *rope, ckpt_error *err) {
  static const char *const lists[] = {"short_factor", "long_factor"};
  double grown = 0, value = 0;
  (void)ckpt_dialect_rope_number(rope, "attention_factor", &grown);
  if (grown != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no GGUF key says that longrope makes attention grow (%s.attention_factor 1 does not)",
                     rope->section);
  for (size_t k = 0; k < 2; k++) {
    const char *list = ckpt_arena_printf(rope->arena, "%s.%s", rope->section, lists[k]);
    CKPT_TRY_ALLOC(list, err);
    if (ckpt_config_count(rope->config, list) != n)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s has %zu factors, and heads rotate by %llu", list,
                       ckpt_config_count(rope->config, list), (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
      const char *item = ckpt_arena_printf(rope->arena, "%s.%llu", list, (unsigned long long)i);
      CKPT_TRY_ALLOC(item, err);
      if (!ckpt_config_number(rope->config, item, &value) || !((float)value > 0) || !isfinite((float)value))
        return refuse_value(rope->config, item, "a number above 0 that f32 has", err);
      if (k == 1 && factors[i] != (float)value)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                         "%s is %g, and %g for short texts: a tensor of GGUF has one factor for both", item, value,
                         (double)factors[i]);
      factors[i] = (float)value;
    }
  }
  return CKPT_OK;
}

ckpt_status ckpt_dialect_rope_factors(float **out, uint64_t *n, const ckpt_arch *arch, const ckpt_config *config,
                                      ckpt_arena *arena, ckpt_error *err) {
  enum { MAX_HEAD = 1 << 20 };
  ckpt_dialect_rope rope;
  uint64_t dim;
  *out = NULL;
  CKPT_TRY(ckpt_dialect_read_rope(&rope, arch, config, arena, err));
  if (!is_of_factors(&rope)) return CKPT_OK;
  if (!ckpt_config_extent(config, "head_dim|hidden_size/num_attention_heads", &dim) || dim == 0 || dim > MAX_HEAD ||
      dim % 2 != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "heads of an odd or unknown width have no rotary factors");
  *n = dim / 2;
  *out = ckpt_arena_array(arena, (size_t)*n, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  return strcmp(rope.type, "llama3") == 0 ? make_llama3(*out, *n, &rope, err) : read_longrope(*out, *n, &rope, err);
}
