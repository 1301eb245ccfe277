/* gguf_keys.c - a config.json's values as GGUF's metadata, in the order of llama.cpp's converter: general.*, what the
 * family's row says, the tokenizer's. See dialect.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/codec/side_files/side_files.h"

enum { MAX_KEY = 128, QUANTIZATION_VERSION = 2 /* GGML_QNT_VERSION */ };

typedef struct setter {
  ckpt_index *index;
  const ckpt_index *from, *config_of;
  const ckpt_arch *arch;
  const ckpt_config *config;
  const char *pre; /* of the tokenizer, or NULL */
  ckpt_dialect_rope rope;
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

bool ckpt_dialect_has_key(const char *keys, const char *key) {
  const size_t n = strlen(key);
  for (; *keys != '\0'; keys += strspn(keys, "|*/")) {
    const size_t n_one = strcspn(keys, "|*/");
    if (n_one == n && memcmp(keys, key, n) == 0) return true;
    keys += n_one;
  }
  return false;
}

/* ---- rotary embeddings ------------------------------------------------------------------------------------------- */

static ckpt_status set_yarn(const setter *s, ckpt_error *err) {
  static const struct {
    const char *gguf, *config, *otherwise;
  } keys[] = {{"rope.scaling.yarn_ext_factor", "extrapolation_factor", NULL},
              {"rope.scaling.yarn_attn_factor", "attention_factor", "attn_factor"},
              {"rope.scaling.yarn_beta_fast", "beta_fast", NULL},
              {"rope.scaling.yarn_beta_slow", "beta_slow", NULL}};
  const double positions = ckpt_dialect_rope_positions(&s->rope);
  double value;
  if (!(positions >= 1))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "yarn scaling of %g positions (original_max_position_embeddings)",
                     positions);
  CKPT_TRY(set_own_u32(s, "rope.scaling.original_context_length",
                       positions > UINT32_MAX ? UINT64_MAX : (uint64_t)positions, err));
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (ckpt_dialect_rope_number(&s->rope, keys[i].config, &value) ||
        (keys[i].otherwise != NULL && ckpt_dialect_rope_number(&s->rope, keys[i].otherwise, &value)))
      CKPT_TRY(set_own_f32(s, keys[i].gguf, value, err));
  return CKPT_OK;
}

/* llama3's and longrope's is a tensor. */
static ckpt_status set_scaling(const setter *s, ckpt_error *err) {
  const char *key = own_key(s, "rope.scaling.type");
  double factor = 1;
  CKPT_TRY_ALLOC(key, err);
  if (strcmp(s->rope.type, "linear") != 0 && strcmp(s->rope.type, "yarn") != 0) return CKPT_OK;
  (void)ckpt_dialect_rope_number(&s->rope, "factor", &factor);
  CKPT_TRY(ckpt_index_set_metadata(s->index, key, s->rope.type, err));
  CKPT_TRY(set_own_f32(s, "rope.scaling.factor", factor, err));
  return strcmp(s->rope.type, "yarn") == 0 ? set_yarn(s, err) : CKPT_OK;
}

static ckpt_status set_rotary(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  const double part = s->rope.part;
  uint64_t width = 0;
  if (!ckpt_config_extent(s->config, key->config, &width) || !(part > 0 && part <= 1))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%g of a head of %llu cannot rotate", part,
                     (unsigned long long)width);
  return set_own_u32(s, key->gguf, (uint64_t)(part * (double)width), err);
}

/* llama.cpp takes 10000 by itself. */
static ckpt_status set_base(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  const bool is_usual = key->kind == CKPT_KEY_THETA && s->rope.theta == 10000;
  return is_usual ? CKPT_OK : set_own_f32(s, key->gguf, s->rope.theta, err);
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
  if (ckpt_dialect_number(s->config, key->config, &number)) return set_own_f32(s, key->gguf, number, err);
  if (is_null(s->config, key->config))
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

/* Keys that a number is computed from: one that is no such number would leave its place to another, or to a default. */
static ckpt_status check_whole(const setter *s, const char *keys, ckpt_error *err) {
  char key[MAX_KEY], shown[64];
  int64_t value;
  for (; *keys != '\0'; keys += strspn(keys, "|*/")) {
    const size_t n = strcspn(keys, "|*/");
    snprintf(key, sizeof key, "%.*s", (int)n, keys);
    keys += n;
    if (!ckpt_config_has(s->config, key) || (ckpt_config_int(s->config, key, &value) && value > 0)) continue;
    ckpt_config_show(s->config, key, shown, sizeof shown);
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is %s, and has to be a whole number above 0", key, shown);
  }
  return CKPT_OK;
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
  CKPT_TRY(check_whole(s, key->config, err));
  return ckpt_config_extent(s->config, key->config, &n) ? set_own_u32(s, key->gguf, n, err) : CKPT_OK;
}

static ckpt_status set_key(const setter *s, const ckpt_arch_key *key, ckpt_error *err) {
  uint64_t whole;
  switch (key->kind) {
    case CKPT_KEY_U32:
      CKPT_TRY(check_whole(s, key->config, err));
      return ckpt_config_extent(s->config, key->config, &whole) ? set_own_u32(s, key->gguf, whole, err) : CKPT_OK;
    case CKPT_KEY_WINDOW: return set_window(s, key, err);
    case CKPT_KEY_F32: return set_number(s, key, err);
    case CKPT_KEY_BASE:
    case CKPT_KEY_THETA: return set_base(s, key, err);
    case CKPT_KEY_BOOL: return set_bool(s, key, err);
    case CKPT_KEY_ROTARY: return set_rotary(s, key, err);
    case CKPT_KEY_ROPE_SCALING: return set_scaling(s, err);
    case CKPT_KEY_FILE_TYPE: return ckpt_gguf_set_scalar(s->index, "general.file_type", CKPT_GGUF_U32, 0, err);
  }
  return CKPT_OK;
}

static bool has_place(const ckpt_arch_gguf *gguf, const char *key) {
  for (const ckpt_arch_key *row = gguf->keys; row->gguf != NULL; row++)
    if (ckpt_dialect_has_key(row->config, key)) return true;
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

/* Whether a key beside the object of rotary positions says what counts. */
static bool is_of_rope(const setter *s, const char *key) {
  const ckpt_arch_rope *rope = &s->arch->rope;
  double value;
  if (rope->theta_key == NULL || !ckpt_config_number(s->config, key, &value)) return false;
  const bool is_base = strcmp(key, "rope_theta") == 0 || strcmp(key, rope->theta_key) == 0;
  const bool is_part = strcmp(key, "partial_rotary_factor") == 0 || strcmp(key, rope->part_key) == 0;
  return (is_base && value == s->rope.theta) || (is_part && value == s->rope.part);
}

/* Whether a key says nothing: null, false, or what follows from another. */
static bool is_idle(const setter *s, const char *key) {
  bool value;
  if (!ckpt_config_has(s->config, key) || (ckpt_config_bool(s->config, key, &value) && !value)) return true;
  if (strcmp(key, "layer_types") == 0) return has_usual_layers(s);
  if (is_of_rope(s, key)) return true;
  if (has_implied(s, key)) return true;
  const ckpt_arch_needless_without *row = s->arch->gguf->needless_without;
  for (; row != NULL && row->config != NULL; row++)
    if (strcmp(row->config, key) == 0) return !ckpt_config_bool(s->config, row->flag, &value) || !value;
  return false;
}

/* Keys of rotary positions that do not count: those of the object that its type does not read, the other object, and a
 * base beside the one that has it. */
static ckpt_status list_rope_left(ckpt_name_list *left, const setter *s, ckpt_error *err) {
  const ckpt_dialect_rope *rope = &s->rope;
  const char *name;
  if (s->arch->rope.theta_key == NULL) return CKPT_OK;
  for (size_t i = 0; i < ckpt_config_count(s->config, rope->section); i++) {
    const ckpt_config_kind kind = ckpt_config_kind_at(s->config, rope->section, i, &name);
    if (name == NULL || kind == CKPT_CONFIG_NULL || ckpt_dialect_rope_reads(rope, name)) continue;
    const char *full = ckpt_arena_printf(&s->index->arena, "%s.%s", rope->section, name);
    CKPT_TRY_ALLOC(full, err);
    ckpt_name_list_add(left, full);
  }
  if (strncmp(rope->section, "rope_scaling", sizeof "rope_scaling" - 1) == 0 &&
      ckpt_config_count(s->config, "rope_parameters") != 0)
    ckpt_name_list_add(left, "rope_parameters");
  return CKPT_OK;
}

/* What GGUF has no place for is said, by name. */
static ckpt_status note_left(const setter *s, ckpt_error *err) {
  ckpt_name_list left = {.n = 0};
  const char *key;
  for (size_t i = 0; (key = ckpt_config_key(s->config, i)) != NULL; i++) {
    const bool is_base = s->arch->rope.theta_key != NULL && strcmp(key, s->arch->rope.theta_key) == 0;
    if ((is_base || !has_place(s->arch->gguf, key)) && !is_idle(s, key)) ckpt_name_list_add(&left, key);
  }
  CKPT_TRY(list_rope_left(&left, s, err));
  if (ckpt_config_count(s->config, "eos_token_id") > 1) ckpt_name_list_add(&left, "eos_token_id"); /* but for one */
  if (left.n == 0) return CKPT_OK;
  return ckpt_index_note(s->index, false, err, "%zu key%s of config.json (%s)", left.n, ckpt_plural(left.n), left.text);
}

/* Files beside the weights that GGUF has nothing of. */
static ckpt_status note_files(const setter *s, const ckpt_index *from, ckpt_error *err) {
  static const char *const read[] = {"config.json", "generation_config.json"};
  ckpt_name_list left = {.n = 0};
  for (uint32_t i = 0; i < from->n_side_files; i++) {
    const char *name = from->side_files[i].name;
    if (strcmp(name, read[0]) != 0 && strcmp(name, read[1]) != 0 && !ckpt_side_file_is_tokenizer(name))
      ckpt_name_list_add(&left, name);
  }
  if (left.n == 0) return CKPT_OK;
  return ckpt_index_note(s->index, false, err, "%zu side file%s (%s)", left.n, ckpt_plural(left.n), left.text);
}

static ckpt_status check_experts(const setter *s, ckpt_error *err) {
  static const char key[] = "num_experts_per_tok";
  uint64_t n = 0, n_used = 0;
  if (s->arch->n_experts == NULL || !ckpt_config_extent(s->config, s->arch->n_experts, &n) ||
      !ckpt_config_extent(s->config, key, &n_used) || n_used <= n)
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%s is %llu, and %s %llu", key, (unsigned long long)n_used,
                   s->arch->n_experts, (unsigned long long)n);
}

/* A number that llama.cpp works out, whatever the config says. */
static ckpt_status check_implied(const setter *s, ckpt_error *err) {
  const ckpt_arch_implied *one = s->arch->gguf->implied;
  for (; one != NULL && one->config != NULL; one++) {
    uint64_t value = 0;
    double number;
    if (ckpt_config_number(s->config, one->config, &number) && !has_implied(s, one->config) &&
        ckpt_dialect_implied(s->arch, s->config, one->config, &value) != NULL)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                       "%s is %g, and llama.cpp computes a %s of these sizes with %llu", one->config, number,
                       s->arch->name, (unsigned long long)value);
  }
  return CKPT_OK;
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
  setter s = {index, from, config_of, arch, config, pre, {0}};
  CKPT_TRY(ckpt_dialect_read_rope(&s.rope, arch, config, &index->arena, err));
  CKPT_TRY(check_experts(&s, err));
  CKPT_TRY(check_implied(&s, err));
  CKPT_TRY(ckpt_dialect_set_general(index, config_of, arch, err));
  for (const ckpt_arch_key *key = arch->gguf->keys; key->gguf != NULL; key++) CKPT_TRY(set_key(&s, key, err));
  CKPT_TRY(ckpt_gguf_set_scalar(index, "general.quantization_version", CKPT_GGUF_U32, QUANTIZATION_VERSION, err));
  CKPT_TRY(note_left(&s, err));
  CKPT_TRY(note_files(&s, from, err));
  return set_tokenizer(&s, err);
}
