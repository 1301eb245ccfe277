/* keys.c - see keys.h. The rules are those of the dataclasses of transformers 5 (configuration_utils.py,
 * modeling_rope_utils.py), which checks types strictly: 1 is no float, true no int. */
#include "libckpt/recipe/verify/keys.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

enum { MAX_ENTRIES = 10000, MAX_KEY = 128 }; /* of an object: each is looked up from the first */

static const ckpt_arch_setting general[] = {
#define KEY(name, types) {#name, types},
#include "libckpt/recipe/verify/config_keys.def"
#undef KEY
    {0},
};

typedef struct checker {
  ckpt_findings *findings;
  const ckpt_config *config;
  const char *path;
  const ckpt_arch *arch;
  const ckpt_arch_model *model;
  char *why;
  size_t n_why;
} checker;

static const ckpt_arch_setting *find_setting(const ckpt_arch_setting *rows, const char *key) {
  while (rows->key != NULL && strcmp(rows->key, key) != 0) rows++;
  return rows->key == NULL ? NULL : rows;
}

/* The types of a key of the model's own config; 0: it has none such. */
static uint32_t own_types(const checker *c, const char *key) {
  const ckpt_arch_setting *row = find_setting(c->model->settings, key);
  return row == NULL ? 0 : row->types;
}

/* Whether it is one of another model: an attribute that nobody looks at. */
static bool is_of_another(const char *key) {
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++)
    for (const ckpt_arch_model *model = (*arch)->models; model != NULL && model->name != NULL; model++)
      if (find_setting(model->settings, key) != NULL) return true;
  return false;
}

/* Whether positions are rotary. */
static bool rotates(const checker *c) { return c->arch->rope.theta_key != NULL; }

static void leave_unproven(checker *c, const char *key) {
  if (c->why[0] == '\0')
    snprintf(c->why, c->n_why, "ckpt does not know whether transformers takes %s of config.json", key);
}

/* A problem with a key, unless there is one. */
static ckpt_status refuse(checker *c, const char *key, const char *wanted, ckpt_error *err) {
  char shown[60];
  if (ckpt_findings_tell_about(c->findings, c->path, key)) return CKPT_OK;
  ckpt_config_show(c->config, key, shown, sizeof shown);
  if (ckpt_config_kind_of(c->config, key) == CKPT_CONFIG_LIST && ckpt_config_count(c->config, key) == 0)
    snprintf(shown, sizeof shown, "[] or no number");
  return ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->path, key,
                                 "%s is %s, which transformers refuses (%s)", key, shown[0] == '\0' ? "missing" : shown,
                                 wanted);
}

/* ---- keys by their types ----------------------------------------------------------------------------------------- */

/* Activations without parameters, and what summaries are. */
static bool is_known_word(const char *key, const char *word) {
  static const char *const activations[] = {"gelu",
                                            "gelu_10",
                                            "gelu_accurate",
                                            "gelu_fast",
                                            "gelu_new",
                                            "gelu_python",
                                            "gelu_python_tanh",
                                            "gelu_pytorch_tanh",
                                            "hardswish",
                                            "leaky_relu",
                                            "linear",
                                            "mish",
                                            "quick_gelu",
                                            "relu",
                                            "relu2",
                                            "relu6",
                                            "sigmoid",
                                            "silu",
                                            "swish",
                                            "tanh",
                                            NULL};
  static const char *const summaries[] = {"last", "first", "mean", "cls_index", NULL};
  return ckpt_text_is_one_of(word, strcmp(key, "summary_type") == 0 ? summaries : activations);
}

static uint32_t type_of(ckpt_config_kind kind) {
  static const uint32_t types[] = {[CKPT_CONFIG_NULL] = CKPT_IS_NULL, [CKPT_CONFIG_BOOL] = CKPT_IS_BOOL,
                                   [CKPT_CONFIG_INT] = CKPT_IS_INT,   [CKPT_CONFIG_FLOAT] = CKPT_IS_FLOAT,
                                   [CKPT_CONFIG_TEXT] = CKPT_IS_TEXT, [CKPT_CONFIG_LIST] = CKPT_IS_LIST,
                                   [CKPT_CONFIG_OBJECT] = 0,          [CKPT_CONFIG_ABSENT] = 0};
  return types[kind];
}

static const char *name_types(uint32_t types, char out[64]) {
  static const char *const names[] = {"null",   "true or false", "a whole number", "a number with a point",
                                      "a text", "a list",        "a text"};
  size_t n = 0;
  out[0] = '\0';
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if ((types >> i & 1) != 0 && n < 64) n += (size_t)snprintf(out + n, 64 - n, "%s%s", n == 0 ? "" : " or ", names[i]);
  return out;
}

/* A number above 0 that rotary positions are computed with, unless another key says it. */
static void check_positive(checker *c, const char *key) {
  double value;
  if (!ckpt_config_number(c->config, key, &value) || !(value > 0)) leave_unproven(c, key);
}

/* Whether a share, as of dropout, is between 0 and 1, which a layer may insist on. */
static bool is_share(const checker *c, const char *key) {
  double value;
  if (strstr(key, "drop") == NULL && strstr(key, "rotary") == NULL) return true;
  return !ckpt_config_number(c->config, key, &value) || (value >= 0 && value <= 1);
}

static ckpt_status check_typed(checker *c, const char *key, uint32_t types, ckpt_error *err) {
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  const char *word;
  char wanted[64];
  if (types == CKPT_IS_ROPE) check_positive(c, key);
  if (types == CKPT_IS_ALIAS) leave_unproven(c, key);
  if (types == CKPT_IS_ROPE || types == CKPT_IS_ALIAS || types == CKPT_IS_ANY) return CKPT_OK;
  const bool is_word = kind == CKPT_CONFIG_TEXT && (types & CKPT_IS_WORD) != 0;
  if (is_word && (!ckpt_config_text(c->config, key, &word) || !is_known_word(key, word))) leave_unproven(c, key);
  const bool is_typed = is_word || (type_of(kind) & types) != 0;
  if (is_typed && !is_share(c, key)) leave_unproven(c, key);
  if (is_typed) return CKPT_OK;
  if ((types & CKPT_IS_LOOSE) != 0) {
    leave_unproven(c, key);
    return CKPT_OK;
  }
  if (kind == CKPT_CONFIG_LIST && ckpt_config_count(c->config, key) == 0) { /* it may be a number that is too large */
    leave_unproven(c, key);
    return CKPT_OK;
  }
  return refuse(c, key, name_types(types, wanted), err);
}

/* ---- keys with rules of their own -------------------------------------------------------------------------------- */

/* What transformers makes of a dtype that is no name of torch's it says with an error. */
static ckpt_status check_dtype(checker *c, const char *key, ckpt_error *err) {
  static const char *const floats[] = {"float32", "float16", "bfloat16", "float64", "float", "half", "double", NULL};
  const char *name;
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  const bool is_second = strcmp(key, "torch_dtype") == 0 && ckpt_config_has(c->config, "dtype");
  if (kind == CKPT_CONFIG_NULL || is_second) return CKPT_OK;
  if (kind != CKPT_CONFIG_TEXT) return refuse(c, key, "a dtype of torch", err);
  if (ckpt_config_text(c->config, key, &name) && ckpt_text_is_one_of(name, floats)) return CKPT_OK;
  if (!ckpt_config_text(c->config, key, &name) || ckpt_dtype_parse(name) == CKPT_DTYPE_NONE)
    return refuse(c, key, "a dtype of torch", err);
  leave_unproven(c, key);
  return CKPT_OK;
}

/* {"0": "positive", ...}: labels by their numbers. */
static ckpt_status check_id2label(checker *c, const char *key, ckpt_error *err) {
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  const char *name;
  if (kind == CKPT_CONFIG_NULL) return CKPT_OK;
  if (kind != CKPT_CONFIG_OBJECT) return refuse(c, key, "labels by their numbers", err);
  const size_t n = ckpt_config_count(c->config, key);
  if (n > MAX_ENTRIES) leave_unproven(c, key);
  for (size_t i = 0; i < n && n <= MAX_ENTRIES; i++) {
    (void)ckpt_config_kind_at(c->config, key, i, &name);
    const bool is_number = name[0] != '\0' && strspn(name, "0123456789") == strlen(name);
    if (strpbrk(name, "0123456789") == NULL) return refuse(c, key, "labels by their numbers", err);
    if (!is_number) leave_unproven(c, key);
  }
  return CKPT_OK;
}

static ckpt_status check_num_labels(checker *c, const char *key, ckpt_error *err) {
  int64_t n;
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  if (kind == CKPT_CONFIG_TEXT || kind == CKPT_CONFIG_FLOAT || kind == CKPT_CONFIG_OBJECT)
    return refuse(c, key, "a whole number", err);
  if (!ckpt_config_int(c->config, key, &n) || n < 1) leave_unproven(c, key);
  return CKPT_OK;
}

/* One label is no choice between several. */
static ckpt_status check_problem_type(checker *c, const char *key, ckpt_error *err) {
  const char *type;
  uint64_t n;
  if (!ckpt_config_text(c->config, key, &type) || strcmp(type, "single_label_classification") != 0) return CKPT_OK;
  if (!ckpt_config_labels(c->config, &n)) leave_unproven(c, key);
  return ckpt_config_labels(c->config, &n) && n == 1 ? refuse(c, key, "of one label", err) : CKPT_OK;
}

static ckpt_status check_layer_types(checker *c, const char *key, ckpt_error *err) {
  static const char *const known[] = {"full_attention", "sliding_attention", NULL};
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  const size_t n = ckpt_config_count(c->config, key);
  const char *type;
  int64_t n_layers;
  if (kind == CKPT_CONFIG_NULL) return CKPT_OK;
  if (kind != CKPT_CONFIG_LIST) return refuse(c, key, "a list", err);
  if (!ckpt_config_int(c->config, c->arch->n_layers, &n_layers))
    leave_unproven(c, key);
  else if (n_layers != (int64_t)n)
    return refuse(c, key, "one of each layer", err);
  for (size_t i = 0; i < n; i++) {
    if (!ckpt_config_item(c->config, key, i, &type)) return refuse(c, key, "texts", err);
    if (!ckpt_text_is_one_of(type, known)) leave_unproven(c, key);
  }
  return CKPT_OK;
}

/* ---- rotary positions -------------------------------------------------------------------------------------------- */

/* What a type of scaling cannot do without. */
static const struct {
  const char *name, *needs[4];
} ropes[] = {{"default", {NULL}},
             {"linear", {"factor", NULL}},
             {"dynamic", {"factor", NULL}},
             {"yarn", {"factor", NULL}},
             {"llama3", {"factor", "low_freq_factor", "high_freq_factor", NULL}}};

/* Entries that are positive numbers; what else there is may mean anything. */
static void check_rope_entries(checker *c, const char *key) {
  static const char *const numbers[] = {"rope_theta",
                                        "factor",
                                        "low_freq_factor",
                                        "high_freq_factor",
                                        "beta_fast",
                                        "beta_slow",
                                        "attention_factor",
                                        "mscale",
                                        "mscale_all_dim",
                                        "partial_rotary_factor",
                                        "original_max_position_embeddings",
                                        NULL};
  const char *name;
  char whole[MAX_KEY];
  double value;
  const size_t n = ckpt_config_count(c->config, key);
  if (n > MAX_ENTRIES) leave_unproven(c, key);
  for (size_t i = 0; i < n && n <= MAX_ENTRIES; i++) {
    (void)ckpt_config_kind_at(c->config, key, i, &name);
    if (strcmp(name, "rope_type") == 0 || strcmp(name, "type") == 0) continue;
    if (!ckpt_text_is_one_of(name, numbers) || snprintf(whole, sizeof whole, "%s.%s", key, name) >= (int)sizeof whole ||
        !ckpt_config_number(c->config, whole, &value) || !(value > 0) || !is_share(c, whole))
      leave_unproven(c, key);
  }
}

/* How wide a head is, as far as the config says; 0: it does not. */
static int64_t head_width(const checker *c, bool *is_stated) {
  int64_t dim = 0, width, n_heads;
  *is_stated = ckpt_config_int(c->config, "head_dim", &dim);
  if (!*is_stated && ckpt_config_int(c->config, "hidden_size", &width) &&
      ckpt_config_int(c->config, "num_attention_heads", &n_heads) && n_heads > 0)
    dim = width / n_heads;
  return dim;
}

static ckpt_status check_rope_needs(checker *c, const char *key, const char *type, ckpt_error *err) {
  char whole[MAX_KEY];
  double low, high;
  size_t row = 0;
  while (row < sizeof ropes / sizeof *ropes && strcmp(ropes[row].name, type) != 0) row++;
  if (row == sizeof ropes / sizeof *ropes) {
    leave_unproven(c, key);
    return CKPT_OK;
  }
  for (const char *const *need = ropes[row].needs; *need != NULL; need++) {
    snprintf(whole, sizeof whole, "%s.%s", key, *need);
    if (ckpt_config_kind_of(c->config, whole) == CKPT_CONFIG_NULL)
      leave_unproven(c, key);
    else if (!ckpt_config_number(c->config, whole, &low))
      CKPT_TRY(refuse(c, whole, type, err));
  }
  bool is_stated;
  const bool is_null = ckpt_config_kind_of(c->config, "head_dim") == CKPT_CONFIG_NULL;
  const bool is_filled = (own_types(c, "head_dim") & CKPT_IS_FILLED) != 0;
  if (is_null && row != 0 && !is_filled) leave_unproven(c, key);                              /* it is computed with */
  if (strcmp(type, "dynamic") == 0 && head_width(c, &is_stated) <= 4) leave_unproven(c, key); /* divides by dim - 2 */
  snprintf(whole, sizeof whole, "%s.low_freq_factor", key);
  const bool has_low = ckpt_config_number(c->config, whole, &low);
  snprintf(whole, sizeof whole, "%s.high_freq_factor", key);
  if (has_low && ckpt_config_number(c->config, whole, &high) && !(low < high)) leave_unproven(c, key);
  return CKPT_OK;
}

/* rope_scaling, or rope_parameters as newer configs call it. */
static ckpt_status check_rope(checker *c, const char *key, ckpt_error *err) {
  const ckpt_config_kind kind = ckpt_config_kind_of(c->config, key);
  const char *type = "default", *names[2] = {"rope_type", "type"};
  char whole[MAX_KEY];
  if (kind == CKPT_CONFIG_NULL) return CKPT_OK;
  const bool is_second = strcmp(key, "rope_parameters") == 0 && ckpt_config_has(c->config, "rope_scaling");
  if (is_second && kind == CKPT_CONFIG_OBJECT && rotates(c)) return CKPT_OK; /* rope_scaling is taken */
  if (!rotates(c) || kind == CKPT_CONFIG_LIST || ckpt_config_count(c->config, key) == 0) {
    leave_unproven(c, key);
    return CKPT_OK;
  }
  for (size_t i = 2; i-- != 0;) { /* rope_type decides */
    snprintf(whole, sizeof whole, "%s.%s", key, names[i]);
    if (ckpt_config_kind_of(c->config, whole) != CKPT_CONFIG_ABSENT && !ckpt_config_text(c->config, whole, &type))
      leave_unproven(c, key);
  }
  check_rope_entries(c, key);
  return check_rope_needs(c, key, type, err);
}

/* A head that is odd cannot be turned as a whole. Those of test models, of at most 4, transformers lets pass. */
static ckpt_status check_head(checker *c, ckpt_error *err) {
  double part;
  bool is_stated;
  if (!rotates(c) || ckpt_config_number(c->config, "partial_rotary_factor", &part)) return CKPT_OK;
  const int64_t dim = head_width(c, &is_stated);
  const uint32_t types = own_types(c, "head_dim");
  if (!is_stated && (types & CKPT_IS_NULL) == 0) return CKPT_OK;
  if (dim <= 4 || dim % 2 == 0) return CKPT_OK;
  if (is_stated && types != 0) return refuse(c, "head_dim", "an even number", err);
  leave_unproven(c, is_stated ? "head_dim" : "hidden_size");
  return CKPT_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

typedef ckpt_status check_key(checker *c, const char *key, ckpt_error *err);

static check_key *own_rule(const char *key) {
  static const struct {
    const char *key;
    check_key *check;
  } rules[] = {
      {"dtype", check_dtype},           {"torch_dtype", check_dtype},         {"id2label", check_id2label},
      {"num_labels", check_num_labels}, {"problem_type", check_problem_type}, {"layer_types", check_layer_types},
      {"rope_scaling", check_rope},     {"rope_parameters", check_rope}};
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
    if (strcmp(rules[i].key, key) == 0) return rules[i].check;
  return NULL;
}

static ckpt_status check_one(checker *c, const char *key, ckpt_error *err) {
  bool value = true;
  check_key *rule = own_rule(key);
  if (rule != NULL) return rule(c, key, err);
  if (strcmp(key, "output_attentions") == 0 && ckpt_config_bool(c->config, key, &value) && !value) return CKPT_OK;
  if (strcmp(key, "architectures") == 0) return CKPT_OK;
  const ckpt_arch_setting *row = find_setting(c->model->settings, key);
  if (row == NULL) row = find_setting(general, key);
  if (row != NULL) return check_typed(c, key, row->types, err);
  if (!is_of_another(key)) leave_unproven(c, key);
  return CKPT_OK;
}

ckpt_status ckpt_verify_keys(ckpt_findings *findings, const ckpt_config *config, const char *config_path,
                             const ckpt_arch *arch, const ckpt_arch_model *model, char *why, size_t n_why,
                             ckpt_error *err) {
  checker c = {.findings = findings,
               .config = config,
               .path = config_path,
               .arch = arch,
               .model = model,
               .why = why,
               .n_why = n_why};
  const char *key;
  for (size_t i = 0; (key = ckpt_config_key(config, i)) != NULL && i < MAX_ENTRIES; i++)
    CKPT_TRY(check_one(&c, key, err));
  if (key != NULL) leave_unproven(&c, "so many keys");
  if (ckpt_config_count(config, "architectures") > 1) leave_unproven(&c, "several architectures");
  return check_head(&c, err);
}
