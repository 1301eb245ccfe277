/* gguf_keys.c - a config.json's values as GGUF's metadata, in the order of llama.cpp's converter: general.*, what the
 * family's row says, the tokenizer's. See dialect.h. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"

enum { MAX_KEY = 128, QUANTIZATION_VERSION = 2 /* GGML_QNT_VERSION */ };

typedef struct setter {
  ckpt_index *index;
  const ckpt_index *from, *config_of;
  const ckpt_arch *arch;
  const ckpt_config *config;
  const char *pre; /* of the tokenizer, or NULL */
} setter;

/* ---- one value --------------------------------------------------------------------------------------------------- */

/* <architecture>.<key> */
static const char *own_key(const setter *s, const char *key) {
  return ckpt_arena_printf(&s->index->arena, "%s.%s", s->arch->gguf->architecture, key);
}

static ckpt_status set_own_u32(const setter *s, const char *key, uint64_t value, ckpt_error *err) {
  const char *full = own_key(s, key);
  CKPT_TRY_ALLOC(full, err);
  if (value > UINT32_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s would be %llu, and it is a number of 32 bits", full,
                     (unsigned long long)value);
  return ckpt_gguf_set_scalar(s->index, full, CKPT_GGUF_U32, (uint32_t)value, err);
}

static ckpt_status set_own_f32(const setter *s, const char *key, double value, ckpt_error *err) {
  const char *full = own_key(s, key);
  CKPT_TRY_ALLOC(full, err);
  return ckpt_gguf_set_f32(s->index, full, value, err);
}

bool ckpt_dialect_number(const ckpt_config *config, const char *keys, double *out) {
  for (char key[MAX_KEY]; *keys != '\0'; keys += *keys == '|') {
    const size_t n = strcspn(keys, "|");
    snprintf(key, sizeof key, "%.*s", (int)n, keys);
    if (ckpt_config_number(config, key, out)) return true;
    keys += n;
  }
  return false;
}

/* ---- rotary embeddings ------------------------------------------------------------------------------------------- */

const char *ckpt_dialect_rope_key(const ckpt_config *config, const char *key, ckpt_arena *arena) {
  const char *of = !ckpt_config_has(config, "rope_parameters")                 ? "rope_scaling"
                   : ckpt_config_has(config, "rope_parameters.full_attention") ? "rope_parameters.full_attention"
                                                                               : "rope_parameters";
  return ckpt_arena_printf(arena, "%s.%s", of, key);
}

static bool rope_number(const ckpt_config *config, const char *key, ckpt_arena *arena, double *out) {
  const char *full = ckpt_dialect_rope_key(config, key, arena);
  return full != NULL && ckpt_config_number(config, full, out);
}

/* "linear", "yarn", "llama3", ...; "" where nothing is scaled. */
static const char *rope_type(const ckpt_config *config, ckpt_arena *arena) {
  const char *value = "", *key = ckpt_dialect_rope_key(config, "rope_type", arena);
  if (key != NULL && ckpt_config_text(config, key, &value)) return value;
  key = ckpt_dialect_rope_key(config, "type", arena); /* as transformers called it before */
  if (key != NULL) (void)ckpt_config_text(config, key, &value);
  return value;
}

static ckpt_status set_yarn(const setter *s, ckpt_error *err) {
  static const struct {
    const char *gguf, *config, *otherwise;
  } keys[] = {{"rope.scaling.yarn_ext_factor", "extrapolation_factor", NULL},
              {"rope.scaling.yarn_attn_factor", "attention_factor", "attn_factor"},
              {"rope.scaling.yarn_beta_fast", "beta_fast", NULL},
              {"rope.scaling.yarn_beta_slow", "beta_slow", NULL}};
  ckpt_arena *arena = &s->index->arena;
  double value;
  if (!rope_number(s->config, "original_max_position_embeddings", arena, &value) &&
      !ckpt_config_number(s->config, "original_max_position_embeddings", &value))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "yarn scaling without original_max_position_embeddings");
  CKPT_TRY(set_own_u32(s, "rope.scaling.original_context_length", value > 0 ? (uint64_t)value : 0, err));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (rope_number(s->config, keys[i].config, arena, &value) ||
        (keys[i].otherwise != NULL && rope_number(s->config, keys[i].otherwise, arena, &value)))
      CKPT_TRY(set_own_f32(s, keys[i].gguf, value, err));
  return CKPT_OK;
}

static ckpt_status set_scaling(const setter *s, ckpt_error *err) {
  ckpt_arena *arena = &s->index->arena;
  const char *type = rope_type(s->config, arena), *key = own_key(s, "rope.scaling.type");
  double factor;
  CKPT_TRY_ALLOC(key, err);
  static const char *const without[] = {"", "default", "llama3", "dynamic"};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (strcmp(type, without[i]) == 0) return CKPT_OK; /* llama3's are a tensor */
  if (strcmp(type, "linear") != 0 && strcmp(type, "yarn") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no GGUF key says that rotary positions are scaled as '%.40s'",
                     type);
  if (!rope_number(s->config, "factor", arena, &factor)) return CKPT_OK;
  CKPT_TRY(ckpt_index_set_metadata(s->index, key, type, err));
  CKPT_TRY(set_own_f32(s, "rope.scaling.factor", factor, err));
  return strcmp(type, "yarn") == 0 ? set_yarn(s, err) : CKPT_OK;
}

/* The part of a head that rotates; false where the config does not say. */
static bool rotary_part(const ckpt_config *config, ckpt_arena *arena, double *out) {
  return rope_number(config, "partial_rotary_factor", arena, out) ||
         ckpt_dialect_number(config, "rotary_pct|partial_rotary_factor", out);
}

static ckpt_status set_rotary(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  double part = 0.25; /* as transformers' GPTNeoXConfig has it */
  uint64_t width = 0;
  (void)rotary_part(s->config, &s->index->arena, &part);
  if (!ckpt_config_extent(s->config, key->config, &width) || !(part > 0 && part <= 1))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%g of a head of %llu cannot rotate", part,
                     (unsigned long long)width);
  return set_own_u32(s, key->gguf, (uint64_t)(part * (double)width), err);
}

static bool has_key_of(const setter *s, ckpt_key_kind kind) {
  const ckpt_arch_key *key = s->arch->gguf->keys;
  while (key->gguf != NULL && key->kind != kind) key++;
  return key->gguf != NULL;
}

/* What the family's keys cannot say of rotary positions. */
static ckpt_status check_rope(const setter *s, ckpt_error *err) {
  ckpt_arena *arena = &s->index->arena;
  const char *type = rope_type(s->config, arena);
  double part = 1;
  if (!has_key_of(s, CKPT_KEY_ROTARY) && rotary_part(s->config, arena, &part) && part != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "%g of a head rotates, and llama.cpp rotates a %s's whole heads", part, s->arch->name);
  if (!has_key_of(s, CKPT_KEY_ROPE_SCALING) && type[0] != '\0' && strcmp(type, "default") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no key of a %s in GGUF says that rotary positions are scaled "
                     "as '%.40s'",
                     s->arch->name, type);
  return CKPT_OK;
}

/* As torch computes it: each step rounded to f32. */
static float llama3_factor(float frequency, float factor, float low, float high, float context) {
  const float wavelength = (float)(2 * 3.14159265358979323846) / frequency;
  if (wavelength < context / high) return 1;
  if (wavelength > context / low) return factor;
  const float smooth = (context / wavelength - low) / (high - low);
  return 1 / ((1 - smooth) / factor + smooth);
}

ckpt_status ckpt_dialect_llama3_factors(float **out, uint64_t *n, const ckpt_config *config, ckpt_arena *arena,
                                        ckpt_error *err) {
  enum { MAX_HEAD = 1 << 20 };
  uint64_t dim;
  double base = 10000, factor = 8, low = 1, high = 4, context = 8192;
  *out = NULL;
  if (strcmp(rope_type(config, arena), "llama3") != 0) return CKPT_OK;
  if (!rope_number(config, "rope_theta", arena, &base)) (void)ckpt_config_number(config, "rope_theta", &base);
  (void)rope_number(config, "factor", arena, &factor);
  (void)rope_number(config, "low_freq_factor", arena, &low);
  (void)rope_number(config, "high_freq_factor", arena, &high);
  if (!rope_number(config, "original_max_position_embeddings", arena, &context))
    (void)ckpt_config_number(config, "original_max_position_embeddings", &context);
  if (!ckpt_config_extent(config, "head_dim|hidden_size/num_attention_heads", &dim) || dim == 0 || dim > MAX_HEAD ||
      dim % 2 != 0)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "heads of an odd or unknown width have no rotary factors");
  if (!(base > 0) || !(factor > 0) || !(low > 0) || !(high > low) || !(context > 0))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "llama3 scaling by %g from %g to %g of %g positions, base %g, is none", factor, low, high, context,
                     base);
  *n = dim / 2;
  float *factors = *out = ckpt_arena_array(arena, (size_t)*n, sizeof *factors);
  CKPT_TRY_ALLOC(factors, err);
  for (uint64_t i = 0; i < *n; i++) {
    const float power = (float)pow(base, (double)((float)(2 * i) / (float)dim));
    factors[i] = llama3_factor(1 / power, (float)factor, (float)low, (float)high, (float)context);
  }
  return CKPT_OK;
}

/* ---- general ----------------------------------------------------------------------------------------------------- */

/* The last part of a path; of "." and ".." the name that the folder has. */
static char *folder_name(const char *path, ckpt_arena *arena) {
  char real[PATH_MAX];
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t start = n;
  while (start > 0 && path[start - 1] != '/') start--;
  const bool is_dots = n - start != 0 && n - start <= 2 && strspn(path + start, ".") >= n - start;
  if (is_dots && realpath(path, real) != NULL && strcmp(real, "/") != 0) return folder_name(real, arena);
  return ckpt_arena_text(arena, path + start, n - start);
}

const char *ckpt_dialect_title(const char *path, ckpt_arena *arena) {
  char *out = folder_name(path, arena);
  if (out == NULL) return NULL;
  for (char *c = out; *c != '\0'; c++)
    if (*c == '-') *c = ' ';
  for (char *word = out; *word != '\0';) {
    const size_t n_word = strcspn(word, " ");
    bool is_lower = false, has_upper = false, is_after_letter = false;
    for (size_t i = 0; i < n_word; i++) {
      is_lower = is_lower || islower((unsigned char)word[i]);
      has_upper = has_upper || isupper((unsigned char)word[i]);
    }
    const bool is_version = isdigit((unsigned char)word[0]) ||
                            (word[0] == 'v' && n_word > 1 && strspn(word + 1, "0123456789.") >= n_word - 1);
    for (size_t i = 0; i < n_word && is_lower && !has_upper && !is_version; i++) {
      if (!is_after_letter) word[i] = (char)toupper((unsigned char)word[i]);
      is_after_letter = isalpha((unsigned char)word[i]) != 0;
    }
    word += n_word + (word[n_word] == ' ');
  }
  return out;
}

/* "1.4M", of experts "8x1.4M": at least two digits, of thousands, millions, ...; one expert of each stack counts. */
static const char *size_label(const ckpt_index *index, char out[32]) {
  double n = 0;
  uint64_t n_experts = 0, n_stacks = 0;
  char before[16] = "";
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const bool is_stack = tensor->rank == 3 && strstr(tensor->name, "_exps.") != NULL && tensor->shape[0] != 0;
    n += (double)(is_stack ? tensor->n_elements / tensor->shape[0] : tensor->n_elements);
    n_experts += is_stack ? tensor->shape[0] : 0;
    n_stacks += is_stack;
  }
  if (n_stacks != 0) snprintf(before, sizeof before, "%llux", (unsigned long long)(n_experts / n_stacks % 1000000));
  const char *unit = n > 1e12 ? "T" : n > 1e9 ? "B" : n > 1e6 ? "M" : "K";
  const double scaled = n * (n > 1e12 ? 1e-12 : n > 1e9 ? 1e-9 : n > 1e6 ? 1e-6 : 1e-3);
  const double rounded = nearbyint(scaled);
  const int n_digits = rounded == 0 ? 0 : snprintf(NULL, 0, "%.0f", rounded);
  ckpt_c_snprintf(out, 32, "%s%.*f%s", before, n_digits < 2 ? 2 - n_digits : 0, scaled, unit);
  return out;
}

static ckpt_status side_text(const setter *s, const ckpt_side_file *side, const char **text, ckpt_error *err) {
  if (side->text != NULL) {
    *text = side->text;
    return CKPT_OK;
  }
  const char *path = ckpt_index_side_path(s->config_of, side);
  if (side->n_bytes > CKPT_CONFIG_MAX_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "%llu bytes", (unsigned long long)side->n_bytes);
  char *copy = ckpt_arena_alloc(&s->index->arena, (size_t)side->n_bytes + 1);
  CKPT_TRY_ALLOC(copy, err);
  *text = copy;
  return ckpt_source_read(ckpt_index_side_source(s->config_of, side), side->file, 0, copy, (size_t)side->n_bytes, err);
}

const ckpt_dialect_sampling_key ckpt_dialect_sampling[] = {
    {"top_k", "top_k", true},
    {"top_p", "top_p", false},
    {"min_p", "min_p", false},
    {"xtc_probability", "xtc_probability", false},
    {"xtc_threshold", "xtc_threshold", false},
    {"temp", "temperature", false},
    {"penalty_last_n", "penalty_last_n", true},
    {"penalty_repeat", "repetition_penalty|penalty_repeat", false},
    {"mirostat", "mirostat", true},
    {"mirostat_tau", "mirostat_tau", false},
    {"mirostat_eta", "mirostat_eta", false},
    {0}};

/* What generation_config.json says of sampling. */
static ckpt_status set_sampling(const setter *s, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(s->config_of, "generation_config.json");
  ckpt_config *config = NULL;
  const char *text = NULL;
  if (side == NULL) return CKPT_OK;
  CKPT_TRY(side_text(s, side, &text, err));
  ckpt_error ignored = {0}; /* the converter goes on without it, too */
  if (ckpt_config_parse(&config, text, side->n_bytes, NULL, &ignored) != CKPT_OK) return CKPT_OK;
  ckpt_status status = CKPT_OK;
  for (const ckpt_dialect_sampling_key *row = ckpt_dialect_sampling; row->gguf != NULL && status == CKPT_OK; row++) {
    char key[64];
    double value;
    if (!ckpt_dialect_number(config, row->config, &value)) continue;
    snprintf(key, sizeof key, "general.sampling.%s", row->gguf);
    status = row->is_whole
                 ? ckpt_gguf_set_scalar(s->index, key, CKPT_GGUF_I32,
                                        value >= INT32_MIN && value <= INT32_MAX ? (uint32_t)(int32_t)value : 0, err)
                 : ckpt_gguf_set_f32(s->index, key, value, err);
  }
  ckpt_config_free(config);
  return status;
}

static ckpt_status set_general(const setter *s, ckpt_error *err) {
  char label[32];
  const char *name = ckpt_dialect_title(s->config_of->path, &s->index->arena);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_index_set_metadata(s->index, CKPT_GGUF_ARCHITECTURE, s->arch->gguf->architecture, err));
  CKPT_TRY(ckpt_index_set_metadata(s->index, "general.type", "model", err));
  CKPT_TRY(set_sampling(s, err));
  CKPT_TRY(ckpt_index_set_metadata(s->index, "general.name", name, err));
  return ckpt_index_set_metadata(s->index, "general.size_label", size_label(s->index, label), err);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

/* Whether one of several keys says null, where llama.cpp would take a number of its own. */
static bool is_null(const ckpt_config *config, const char *keys) {
  char key[MAX_KEY], shown[8];
  for (; *keys != '\0'; keys += *keys == '|') {
    const size_t n = strcspn(keys, "|");
    snprintf(key, sizeof key, "%.*s", (int)n, keys);
    ckpt_config_show(config, key, shown, sizeof shown);
    if (strcmp(shown, "null") == 0) return true;
    keys += n;
  }
  return false;
}

static ckpt_status set_number(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  double number;
  if (ckpt_dialect_number(s->config, key->config, &number)) {
    const bool is_usual = key->kind == CKPT_KEY_THETA && number == 10000;
    return is_usual ? CKPT_OK : set_own_f32(s, key->gguf, number, err);
  }
  if (key->kind == CKPT_KEY_F32 && is_null(s->config, key->config))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "%s is null, and llama.cpp takes a number of its own then",
                     key->config);
  return CKPT_OK;
}

static ckpt_status set_bool(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  bool value = true;
  const char *full = own_key(s, key->gguf);
  CKPT_TRY_ALLOC(full, err);
  (void)ckpt_config_bool(s->config, key->config, &value);
  return ckpt_gguf_set_scalar(s->index, full, CKPT_GGUF_BOOL, value, err);
}

/* llama.cpp takes a window of its own where no key says one: without any it is as long as the context. */
static ckpt_status set_window(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  uint64_t n = 0;
  if (is_null(s->config, key->config)) {
    if (!ckpt_config_extent(s->config, "max_position_embeddings", &n))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                       "%.*s is null, and llama.cpp takes a number of its own then (no max_position_embeddings)",
                       (int)strcspn(key->config, "|"), key->config);
    return set_own_u32(s, key->gguf, n, err);
  }
  return ckpt_config_extent(s->config, key->config, &n) ? set_own_u32(s, key->gguf, n, err) : CKPT_OK;
}

static ckpt_status set_key(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  uint64_t whole;
  switch (key->kind) {
    case CKPT_KEY_U32:
      return ckpt_config_extent(s->config, key->config, &whole) ? set_own_u32(s, key->gguf, whole, err) : CKPT_OK;
    case CKPT_KEY_WINDOW: return set_window(s, key, err);
    case CKPT_KEY_F32:
    case CKPT_KEY_THETA: return set_number(s, key, err);
    case CKPT_KEY_BOOL: return set_bool(s, key, err);
    case CKPT_KEY_ROTARY: return set_rotary(s, key, err);
    case CKPT_KEY_ROPE_SCALING: return set_scaling(s, err);
    case CKPT_KEY_FILE_TYPE: return ckpt_gguf_set_scalar(s->index, "general.file_type", CKPT_GGUF_U32, 0, err);
  }
  return CKPT_OK;
}

/* Whether a key of config.json is one of those that "|", "*" or "/" part in a text. */
static bool is_among(const char *keys, const char *key) {
  const size_t n = strlen(key);
  for (; *keys != '\0'; keys += strspn(keys, "|*/")) {
    const size_t n_one = strcspn(keys, "|*/");
    if (n_one == n && memcmp(keys, key, n) == 0) return true;
    keys += n_one;
  }
  return false;
}

static bool has_place(const ckpt_arch_gguf *gguf, const char *key) {
  for (const ckpt_arch_key *row = gguf->keys; row->gguf != NULL; row++)
    if (is_among(row->config, key)) return true;
  for (const ckpt_arch_constant *constant = gguf->constants; constant != NULL && constant->config != NULL; constant++)
    if (strcmp(constant->config, key) == 0) return true;
  for (const char *const *needless = gguf->needless; *needless != NULL; needless++)
    if (strcmp(*needless, key) == 0) return true;
  return false;
}

/* Whether the kinds of its layers are those that every model of the family has. */
static bool has_usual_layers(const setter *s) {
  static const char *const full[] = {"full_attention", NULL};
  const char *const *period = s->arch->gguf->layer_types == NULL ? full : s->arch->gguf->layer_types, *type;
  size_t n_period = 0;
  while (period[n_period] != NULL) n_period++;
  for (size_t i = 0; ckpt_config_item(s->config, "layer_types", i, &type); i++)
    if (strcmp(type, period[i % n_period]) != 0) return false;
  return true;
}

const ckpt_arch_implied *ckpt_dialect_implied(const ckpt_arch *arch, const ckpt_config *config, const char *key,
                                              uint64_t *value) {
  uint64_t n_layers = 0;
  (void)ckpt_config_extent(config, arch->n_layers, &n_layers);
  const ckpt_arch_implied *one = arch->gguf->implied;
  for (; one != NULL && one->config != NULL; one++)
    if ((one->n_layers == 0 || one->n_layers == n_layers) && (key == NULL || strcmp(one->config, key) == 0) &&
        ckpt_config_extent(config, one->extent, value))
      return one;
  return NULL;
}

/* Whether a number is what llama.cpp works out by itself. */
static bool has_implied(const setter *s, const char *key) {
  uint64_t value;
  double number;
  return ckpt_dialect_implied(s->arch, s->config, key, &value) != NULL && ckpt_config_number(s->config, key, &number) &&
         number == (double)value;
}

/* Whether a key says nothing: null, false, or what follows from another. */
static bool is_idle(const setter *s, const char *key) {
  bool value;
  if (!ckpt_config_has(s->config, key) || (ckpt_config_bool(s->config, key, &value) && !value)) return true;
  if (strcmp(key, "layer_types") == 0) return has_usual_layers(s);
  if (has_implied(s, key)) return true;
  const ckpt_arch_needless_without *row = s->arch->gguf->needless_without;
  for (; row != NULL && row->config != NULL; row++)
    if (strcmp(row->config, key) == 0) return !ckpt_config_bool(s->config, row->flag, &value) || !value;
  return false;
}

/* What GGUF has no place for is said, by name. */
static ckpt_status note_left(const setter *s, ckpt_error *err) {
  ckpt_name_list left = {.n = 0};
  const char *key;
  for (size_t i = 0; (key = ckpt_config_key(s->config, i)) != NULL; i++)
    if (!has_place(s->arch->gguf, key) && !is_idle(s, key)) ckpt_name_list_add(&left, key);
  if (left.n == 0) return CKPT_OK;
  return ckpt_index_note(s->index, false, err, "%zu key%s of config.json (%s)", left.n, ckpt_plural(left.n), left.text);
}

static ckpt_status set_tokenizer(const setter *s, ckpt_error *err) {
  uint64_t n_vocab = 0;
  if (ckpt_dialect_tokenizers == NULL) return CKPT_OK;
  (void)ckpt_config_extent(s->config, "vocab_size", &n_vocab);
  ckpt_error why = {0};
  ckpt_status status = ckpt_dialect_tokenizers->to_ggml(s->index, s->config_of, s->pre,
                                                        n_vocab > UINT32_MAX ? 0 : (uint32_t)n_vocab, &why);
  if (status == CKPT_ENOTFOUND)
    return ckpt_index_note(s->index, false, err, "a tokenizer, without which llama.cpp cannot run it (none is here)");
  if (status == CKPT_EUNSUPPORTED)
    (void)ckpt_advise(status, &why, "%names=stored writes the model under the names that it has, and without it");
  if (status != CKPT_OK && err != NULL && err->status == CKPT_OK) *err = why;
  return status;
}

ckpt_status ckpt_dialect_set_keys(ckpt_index *index, const ckpt_index *from, const ckpt_index *config_of,
                                  const ckpt_arch *arch, const ckpt_config *config, const char *pre, ckpt_error *err) {
  const setter s = {index, from, config_of, arch, config, pre};
  CKPT_TRY(check_rope(&s, err));
  CKPT_TRY(set_general(&s, err));
  for (const ckpt_arch_key *key = arch->gguf->keys; key->gguf != NULL; key++) CKPT_TRY(set_key(&s, key, err));
  CKPT_TRY(ckpt_gguf_set_scalar(index, "general.quantization_version", CKPT_GGUF_U32, QUANTIZATION_VERSION, err));
  CKPT_TRY(note_left(&s, err));
  return set_tokenizer(&s, err);
}
