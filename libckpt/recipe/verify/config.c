/* config.c - config.json and the tokenizer against the tensors: see verify.h.
 *
 * What config.json must say about names and shapes stands in the architecture's row (arch.h); an architecture without
 * one is said to be unproven. The tokenizer is streamed: a vocabulary is never held. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/verify/verify.h"

enum { MAX_TOKEN_BYTES = 1 << 20, MAX_LAYERS = 100000, MAX_SAID = 16 };

typedef unsigned long long ull;

typedef struct checker {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_arch *arch;
  const ckpt_config *config;
  const char *config_path;
  bool is_quantized;
  char said[MAX_SAID][64]; /* keys of numbers that are none */
  size_t n_said;
  const char *undecided; /* an axis that no key of the config decides, or NULL */
} checker;

/* Whether there is no tensor of this name. One that is broken has been told of. */
static bool is_missing(const checker *c, const char *name) {
  return ckpt_index_find(c->index, name) == NULL && !ckpt_index_is_unread(c->index, name);
}

/* ---- axes and shapes --------------------------------------------------------------------------------------------- */

static ckpt_status check_shape(checker *c, const ckpt_tensor *tensor, const ckpt_arch_shape *row, ckpt_error *err) {
  ckpt_arch_extents extents;
  ckpt_arch_compare_shape(&extents, row, c->config, tensor);
  if (c->undecided == NULL) c->undecided = extents.undecided;
  if (!extents.differs) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, tensor), tensor->name,
                           "its shape is [%s], config.json says [%s] (%s)", extents.is, extents.wanted, extents.said);
}

static bool is_tied_name(const ckpt_arch *arch, const char *name) {
  for (const ckpt_arch_tie *tie = arch->ties; tie->kept != NULL; tie++)
    if (strcmp(tie->tied, name) == 0) return true;
  return false;
}

static ckpt_status check_shapes(checker *c, ckpt_error *err) {
  uint64_t numbers[2];
  for (uint32_t k = 0; k < c->index->n_tensors; k++) {
    const ckpt_tensor *tensor = &c->index->tensors[c->index->by_name[k]];
    const ckpt_arch_name *name = ckpt_arch_match(c->arch, tensor->name, numbers);
    const ckpt_arch_shape *row = name == NULL ? NULL : ckpt_arch_shape_of(c->arch, name->hf);
    if (row != NULL) CKPT_TRY(check_shape(c, tensor, row, err));
  }
  for (const ckpt_arch_shape *row = c->arch->shapes; row->hf != NULL; row++)
    if (strchr(row->hf, '#') == NULL && !is_tied_name(c->arch, row->hf) && is_missing(c, row->hf))
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), row->hf,
                                 "missing: every model of the architecture %s has it", c->arch->name));
  return CKPT_OK;
}

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* A key of the architecture that stands there but is no positive integer would count as absent below. */
static ckpt_status check_number(checker *c, const char *key, ckpt_error *err) {
  int64_t value;
  char shown[40];
  if (!ckpt_config_has(c->config, key) || (ckpt_config_int(c->config, key, &value) && value > 0)) return CKPT_OK;
  for (size_t i = 0; i < c->n_said; i++)
    if (strcmp(c->said[i], key) == 0) return CKPT_OK;
  if (c->n_said < MAX_SAID) snprintf(c->said[c->n_said++], sizeof c->said[0], "%s", key);
  ckpt_config_show(c->config, key, shown, sizeof shown);
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->config_path, NULL, "%s is no whole number above 0 (%s)",
                           key, shown);
}

/* Every number by which tensors are judged; of an unknown architecture the size of the vocabulary alone. */
static ckpt_status check_numbers(checker *c, ckpt_error *err) {
  CKPT_TRY(check_number(c, "vocab_size", err));
  if (c->arch == NULL || c->arch->shapes == NULL) return CKPT_OK;
  if (c->arch->n_layers != NULL) CKPT_TRY(check_number(c, c->arch->n_layers, err));
  for (const ckpt_arch_shape *row = c->arch->shapes; row->hf != NULL; row++)
    for (uint32_t axis = 0; axis < 3 && row->axes[axis] != NULL; axis++)
      for (const char *at = row->axes[axis]; *at != '\0'; at += *at != '\0') {
        size_t n = strcspn(at, "*/|");
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)n, at);
        CKPT_TRY(check_number(c, key, err));
        at += n;
      }
  return CKPT_OK;
}

/* ---- layers ------------------------------------------------------------------------------------------------------ */

/* Every layer of the config has each kind of tensor, and no other layer has; an optional kind all layers have or none.
 */
static ckpt_status check_layer_row(checker *c, const ckpt_arch_name *row, uint64_t n_layers, ckpt_arena *arena,
                                   size_t *n_missing, ckpt_error *err) {
  uint64_t n_found = 0, numbers[2];
  for (uint32_t i = 0; i < c->index->n_tensors; i++) {
    const ckpt_tensor *tensor = &c->index->tensors[i];
    if (ckpt_arch_match(c->arch, tensor->name, numbers) != row) continue;
    n_found++;
    if (numbers[0] >= n_layers)
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, tensor), tensor->name,
                                 "of layer %llu, but config.json says %s %llu", (ull)numbers[0], c->arch->n_layers,
                                 (ull)n_layers));
  }
  for (uint32_t i = 0; i < c->index->n_unread && n_found == 0; i++)
    n_found += ckpt_arch_match(c->arch, c->index->unread[i].name, numbers) == row;
  if (n_found == 0) {
    if (row->notes & CKPT_NAME_OPTIONAL || c->is_quantized) return CKPT_OK; /* packed under other names */
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), row->hf,
                             "missing from every layer (# is its number)");
  }
  for (uint64_t layer = 0; layer < n_layers; layer++) {
    const char *name = ckpt_arch_fill(row->hf, &layer, arena);
    CKPT_TRY_ALLOC(name, err);
    if (!is_missing(c, name) || ++*n_missing > 100) continue;
    CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), name,
                               "missing: other layers have it, and config.json says %s %llu", c->arch->n_layers,
                               (ull)n_layers));
  }
  return CKPT_OK;
}

static ckpt_status check_layers(checker *c, ckpt_error *err) {
  int64_t n_layers;
  size_t n_missing = 0;
  if (c->arch->n_layers == NULL) return CKPT_OK;
  if (!ckpt_config_int(c->config, c->arch->n_layers, &n_layers) || n_layers < 1) { /* check_numbers has judged it */
    c->undecided = c->arch->n_layers;
    return CKPT_OK;
  }
  if (n_layers > MAX_LAYERS)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->config_path, NULL, "%s is %lld", c->arch->n_layers,
                             (long long)n_layers);
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_MAX);
  ckpt_status status = CKPT_OK;
  for (const ckpt_arch_name *row = c->arch->names; row->hf != NULL && status == CKPT_OK; row++) {
    const char *number = strchr(row->hf, '#');
    if (number == NULL || strchr(number + 1, '#') != NULL || row->role != CKPT_ROLE_PARAMETER) continue;
    status = check_layer_row(c, row, (uint64_t)n_layers, &arena, &n_missing, err);
  }
  ckpt_arena_free(&arena);
  if (status == CKPT_OK && n_missing > 100)
    status = ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), NULL,
                               "%zu more tensor%s missing", n_missing - 100, n_missing == 101 ? " is" : "s are");
  return status;
}

/* ---- ties -------------------------------------------------------------------------------------------------------- */

/* What the config's `architectures` say of the model. */
typedef struct model_classes {
  bool has_head;     /* one of them has a head over the vocabulary */
  char unknown[128]; /* the first whose names the row does not know; empty where there is none */
} model_classes;

static void take_class(const ckpt_arch *arch, const char *name, model_classes *out) {
  const char *const *known = arch->classes;
  out->has_head = out->has_head || ckpt_text_ends(name, "ForCausalLM") || ckpt_text_ends(name, "LMHeadModel");
  while (*known != NULL && strcmp(*known, name) != 0) known++;
  if (*known == NULL && out->unknown[0] == '\0') snprintf(out->unknown, sizeof out->unknown, "%s", name);
}

static ckpt_status read_classes(const ckpt_arch *arch, const ckpt_side_file *side, const char *text, model_classes *out,
                                ckpt_error *err) {
  ckpt_json *json;
  ckpt_json_token token;
  ckpt_status status;
  *out = (model_classes){0};
  CKPT_TRY(ckpt_json_new_text(&json, text, (size_t)side->n_bytes, true, NULL, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a config", err));
  for (bool is_done = false; !is_done;) {
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    is_done = token == CKPT_JSON_OBJECT_END || strcmp(ckpt_json_text(json, NULL), "architectures") == 0;
    if (!is_done) CKPT_TRY_GOTO(ckpt_json_skip(json, err));
  }
  if (token == CKPT_JSON_OBJECT_END) goto done;
  for (;;) {
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY) continue;
    if (token != CKPT_JSON_STRING) break;
    take_class(arch, ckpt_json_text(json, NULL), out);
  }
done:
  ckpt_json_free(json);
  return status;
}

static ckpt_status check_ties(checker *c, bool is_head_wanted, ckpt_error *err) {
  for (uint32_t t = 0; c->arch->ties[t].kept != NULL && t < CKPT_MAX_TIES; t++) {
    const ckpt_arch_tie *tie = &c->arch->ties[t];
    bool is_tied = c->index->ties >> t & 1;
    if (is_tied || !is_head_wanted || !is_missing(c, tie->tied)) continue;
    CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), tie->tied,
                               "missing: config.json does not tie it to %s (%s)", tie->kept, tie->config_key));
  }
  return CKPT_OK;
}

/* ---- token ids --------------------------------------------------------------------------------------------------- */

typedef struct token_ids {
  uint64_t largest;
  bool has_any;
} token_ids;

static ckpt_status take_id(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  uint64_t id;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a token's id", err));
  if (!ckpt_json_u64(json, &id)) return ckpt_json_fail(json, err, "a token's id is a whole number");
  if (!ids->has_any || id > ids->largest) ids->largest = id;
  ids->has_any = true;
  return CKPT_OK;
}

/* {"token": id, ...}, its OBJECT read already. */
static ckpt_status read_vocabulary(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  ckpt_json_token token;
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    CKPT_TRY(take_id(json, ids, err));
  }
}

/* model.vocab: an object, or a list in which ids are places (Unigram). */
static ckpt_status read_model(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a tokenizer's model", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    if (strcmp(ckpt_json_text(json, NULL), "vocab") != 0) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT) {
      CKPT_TRY(read_vocabulary(json, ids, err));
    } else if (token == CKPT_JSON_ARRAY) {
      uint64_t n = 0;
      for (;; n++) {
        CKPT_TRY(ckpt_json_next(json, &token, err));
        if (token == CKPT_JSON_ARRAY_END) break;
        CKPT_TRY(ckpt_json_skip_rest(json, token, err));
      }
      if (n != 0 && (!ids->has_any || n - 1 > ids->largest)) *ids = (token_ids){n - 1, true};
    } else {
      return ckpt_json_fail(json, err, "a vocabulary is an object or a list");
    }
  }
}

static ckpt_status read_added(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "added_tokens", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    if (token != CKPT_JSON_OBJECT) return ckpt_json_fail(json, err, "an added token is an object");
    for (;;) {
      CKPT_TRY(ckpt_json_next(json, &token, err));
      if (token == CKPT_JSON_OBJECT_END) break;
      bool is_id = strcmp(ckpt_json_text(json, NULL), "id") == 0;
      CKPT_TRY(is_id ? take_id(json, ids, err) : ckpt_json_skip(json, err));
    }
  }
}

static ckpt_status read_tokenizer(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a tokenizer", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL);
    if (strcmp(key, "model") == 0)
      CKPT_TRY(read_model(json, ids, err));
    else if (strcmp(key, "added_tokens") == 0)
      CKPT_TRY(read_added(json, ids, err));
    else
      CKPT_TRY(ckpt_json_skip(json, err));
  }
  return ckpt_json_next(json, &token, err);
}

static ckpt_status read_added_file(ckpt_json *json, token_ids *ids, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "added tokens", err));
  CKPT_TRY(read_vocabulary(json, ids, err));
  return ckpt_json_next(json, &token, err);
}

/* Whether what went wrong is the file's fault: then it is a finding. */
static bool is_defect(ckpt_status status) { return status == CKPT_EFORMAT || status == CKPT_ELIMIT; }

/* One file of tokens, if it is there, against the number of rows. */
static ckpt_status check_tokens(checker *c, const char *name, uint64_t n_rows,
                                ckpt_status (*read)(ckpt_json *json, token_ids *ids, ckpt_error *err),
                                ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(c->index, name);
  if (side == NULL) return CKPT_OK;
  const char *path = ckpt_source_path(c->index->source, side->file);
  token_ids ids = {0};
  ckpt_json *json;
  ckpt_error defect = {0};
  CKPT_TRY(ckpt_json_new_source(&json, c->index->source, side->file, 0, side->n_bytes, MAX_TOKEN_BYTES, true, err));
  ckpt_status status = read(json, &ids, &defect);
  ckpt_json_free(json);
  if (is_defect(status)) return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, path, NULL, &defect);
  if (status != CKPT_OK) return ckpt_fail_as(err, status, path, NULL, &defect);
  if (!ids.has_any) return CKPT_OK;
  if (ids.largest >= n_rows)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, NULL,
                             "its largest token id is %llu, the embedding has %llu row%s", (ull)ids.largest,
                             (ull)n_rows, ckpt_plural(n_rows));
  return ckpt_findings_add(c->findings, err, CKPT_PROVEN, NULL, NULL,
                           "tokenizer: ids of %s up to %llu, %llu row%s in the embedding", name, (ull)ids.largest,
                           (ull)n_rows, ckpt_plural(n_rows));
}

/* Rows of the embedding; of an unknown architecture what the config says. */
static bool vocabulary_rows(const checker *c, uint64_t *n_rows) {
  int64_t n;
  const ckpt_tensor *embedding = NULL;
  if (c->arch != NULL && c->arch->shapes != NULL && !c->is_quantized)
    embedding = ckpt_index_find(c->index, c->arch->shapes[0].hf);
  if (embedding != NULL && embedding->rank == 2) {
    *n_rows = embedding->shape[0];
    return true;
  }
  if (c->config == NULL || !ckpt_config_int(c->config, "vocab_size", &n) || n < 1) return false;
  *n_rows = (uint64_t)n;
  return true;
}

static ckpt_status check_vocabulary(checker *c, ckpt_error *err) {
  static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  uint64_t n_rows;
  int64_t id;
  if (!vocabulary_rows(c, &n_rows)) {
    if (ckpt_index_side_file(c->index, "tokenizer.json") == NULL) return CKPT_OK;
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "tokenizer: its ids were not compared (no vocab_size in config.json)");
  }
  for (size_t i = 0; c->config != NULL && i < sizeof keys / sizeof *keys; i++) {
    char shown[40] = "[";
    bool is_number = ckpt_config_int(c->config, keys[i], &id);
    if (is_number && id >= 0 && (uint64_t)id >= n_rows)
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_WARNING, c->config_path, NULL,
                                 "%s is %lld, the embedding has %llu row%s", keys[i], (long long)id, (ull)n_rows,
                                 ckpt_plural(n_rows)));
    if (!is_number && ckpt_config_has(c->config, keys[i])) ckpt_config_show(c->config, keys[i], shown, sizeof shown);
    if (shown[0] != '[') /* several ids may end a text */
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->config_path, NULL, "%s is no token id (%s)",
                                 keys[i], shown));
  }
  CKPT_TRY(check_tokens(c, "tokenizer.json", n_rows, read_tokenizer, err));
  return check_tokens(c, "added_tokens.json", n_rows, read_added_file, err);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Whether a model stands in one of PEFT's, whose names its config does not say. */
static bool has_adapters(const ckpt_index *index) {
  static const char prefix[] = "base_model.model.";
  uint32_t i = 0;
  while (i < index->n_tensors && (index->tensors[i].role != CKPT_ROLE_PARAMETER ||
                                  strncmp(index->tensors[i].name, prefix, sizeof prefix - 1) != 0))
    i++;
  return i < index->n_tensors;
}

static ckpt_status check_architecture(checker *c, const ckpt_side_file *side, const char *text, ckpt_error *err) {
  size_t n_problems = c->findings->n_of[CKPT_PROBLEM];
  model_classes classes;
  CKPT_TRY(check_numbers(c, err));
  if (c->arch == NULL || c->arch->shapes == NULL || c->is_quantized)
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL, "config: %s",
                             c->is_quantized
                                 ? "the shapes of a quantized model are not known to it"
                                 : "names and shapes were not compared (unknown model_type, or names as stored)");
  if (has_adapters(c->index))
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "config: names and shapes were not compared (PEFT's, of a model with adapters in it)");
  CKPT_TRY(read_classes(c->arch, side, text, &classes, err));
  if (classes.unknown[0] != '\0')
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "coverage: %s is not known (names and shapes were not compared)", classes.unknown);
  CKPT_TRY(check_shapes(c, err));
  CKPT_TRY(check_layers(c, err));
  CKPT_TRY(check_ties(c, classes.has_head, err));
  if (c->findings->n_of[CKPT_PROBLEM] != n_problems || c->index->defects.n != 0) return CKPT_OK;
  if (c->undecided != NULL)
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "config: not all names and shapes of %s could be compared (config.json has no %.*s)",
                             c->arch->name, (int)strcspn(c->undecided, "|"), c->undecided);
  return ckpt_findings_add(c->findings, err, CKPT_PROVEN, NULL, NULL, "config: names and shapes are those of %s",
                           c->arch->name);
}

/* A model that was dequantized and kept its config cannot be loaded: readers look for scales. */
static ckpt_status check_quantization(checker *c, ckpt_error *err) {
  ckpt_quantization quantization;
  CKPT_TRY(ckpt_index_quantization(c->index, &quantization, err));
  c->is_quantized = quantization.is_stated && quantization.is_present;
  if (!quantization.is_stated || quantization.is_present) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->config_path, NULL,
                           "says %s (%s), but no tensor is quantized", quantization.key, quantization.method);
}

/* The whole text of a side file, terminated; free() it. */
static ckpt_status load(const ckpt_index *index, const ckpt_side_file *side, char **out, ckpt_error *err) {
  *out = calloc((size_t)side->n_bytes + 1, 1);
  CKPT_TRY_ALLOC(*out, err);
  if (side->text == NULL) return ckpt_source_read(index->source, side->file, 0, *out, (size_t)side->n_bytes, err);
  memcpy(*out, side->text, (size_t)side->n_bytes);
  return CKPT_OK;
}

/* Whether opening, which reads names by the config, has found the same. */
static bool was_told(const ckpt_findings *findings, const char *file, const char *message) {
  for (size_t i = 0; i < findings->n; i++)
    if (findings->items[i].file != NULL && strcmp(findings->items[i].file, file) == 0 &&
        strcmp(findings->items[i].message, message) == 0)
      return true;
  return false;
}

/* The config, parsed; NULL where there is none, or it is broken, which is said. */
static ckpt_status read_config(checker *c, const ckpt_index *of, const ckpt_side_file *side, char **text,
                               ckpt_config **config, ckpt_error *err) {
  ckpt_error defect = {0};
  c->config_path = ckpt_index_side_path(of, side);
  if (side->n_bytes > CKPT_CONFIG_MAX_BYTES)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, c->config_path, NULL, "has %llu bytes (at most %llu)",
                             (ull)side->n_bytes, (ull)CKPT_CONFIG_MAX_BYTES);
  CKPT_TRY(load(of, side, text, err));
  ckpt_status status = ckpt_config_parse(config, *text, side->n_bytes, NULL, &defect);
  if (is_defect(status) && was_told(c->findings, c->config_path, defect.message)) return CKPT_OK;
  if (is_defect(status)) return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, c->config_path, NULL, &defect);
  return status == CKPT_OK ? CKPT_OK : ckpt_fail_as(err, status, c->config_path, NULL, &defect);
}

ckpt_status ckpt_verify_config(ckpt_findings *findings, const ckpt_index *index, const ckpt_index *like,
                               ckpt_error *err) {
  checker c = {.findings = findings, .index = index, .arch = ckpt_arch_find(index->architecture)};
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  const ckpt_index *of = side == NULL && like != NULL ? like : index;
  ckpt_config *config = NULL;
  char *text = NULL;
  ckpt_status status = CKPT_OK;
  if (index->source == NULL) return CKPT_OK;
  if (of == like) side = ckpt_index_side_file(like, "config.json");
  if (side == NULL)
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "config: there is none beside the tensors"));
  else
    CKPT_TRY_GOTO(read_config(&c, of, side, &text, &config, err));
  c.config = config;
  if (config != NULL) CKPT_TRY_GOTO(check_quantization(&c, err));
  if (config != NULL) CKPT_TRY_GOTO(check_architecture(&c, side, text, err));
  status = check_vocabulary(&c, err);
done:
  ckpt_config_free(config);
  free(text);
  return status;
}
