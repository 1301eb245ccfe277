/* config.c - config.json and the tokenizer against the tensors: see verify.h.
 *
 * Names and shapes are model.c's. The tokenizer is streamed: a vocabulary is never held. */
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
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/verify/model.h"
#include "libckpt/recipe/verify/verify.h"

enum { MAX_TOKEN_BYTES = 1 << 20 };

typedef unsigned long long ull;

typedef struct checker {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_arch *arch;
  const ckpt_config *config;
  const char *config_path;
  bool is_quantized;
  bool has_tokenizer; /* its files are JSON where they should be */
} checker;

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
  if (is_defect(status) && ckpt_findings_tell_of(c->findings, path, NULL)) return CKPT_OK;
  if (is_defect(status)) return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, path, NULL, &defect);
  if (status != CKPT_OK) return ckpt_fail_as(err, status, path, NULL, &defect);
  if (!ids.has_any) return CKPT_OK;
  if (ids.largest >= n_rows)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, NULL,
                             "its largest token id is %llu, the embedding has %llu row%s", (ull)ids.largest,
                             (ull)n_rows, ckpt_plural(n_rows));
  if (!c->has_tokenizer) return CKPT_OK;
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

/* Ids in the config itself, which the rows must have. */
static ckpt_status check_ids(checker *c, ckpt_error *err) {
  static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  uint64_t n_rows;
  int64_t id;
  if (c->config == NULL || !vocabulary_rows(c, &n_rows)) return CKPT_OK;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    char shown[40] = "[";
    bool is_number = ckpt_config_int(c->config, keys[i], &id);
    if (is_number && id >= 0 && (uint64_t)id >= n_rows)
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_WARNING, c->config_path, NULL,
                                 "%s is %lld, the embedding has %llu row%s", keys[i], (long long)id, (ull)n_rows,
                                 ckpt_plural(n_rows)));
    if (!is_number && ckpt_config_has(c->config, keys[i])) ckpt_config_show(c->config, keys[i], shown, sizeof shown);
    if (shown[0] != '[') /* several ids may end a text */
      CKPT_TRY(ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, keys[i],
                                       "%s is no token id (%s)", keys[i], shown));
  }
  return CKPT_OK;
}

static ckpt_status check_vocabulary(checker *c, ckpt_error *err) {
  uint64_t n_rows;
  if (!vocabulary_rows(c, &n_rows)) {
    if (ckpt_index_side_file(c->index, "tokenizer.json") == NULL) return CKPT_OK;
    return ckpt_findings_add(c->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "tokenizer: its ids were not compared (no vocab_size in config.json)");
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

static ckpt_status check_architecture(checker *c, ckpt_error *err) {
  const char *why = NULL;
  if (c->is_quantized)
    why = "the shapes of a quantized model are not known to it";
  else if (has_adapters(c->index))
    why = "names and shapes were not compared (PEFT's, of a model with adapters in it)";
  return ckpt_verify_model(c->findings, c->index, c->arch, c->config, c->config_path, why, err);
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
  CKPT_TRY(ckpt_verify_json_files(findings, index, &c.has_tokenizer, err));
  if (ckpt_adapter_kind_of(index) == CKPT_ADAPTER_PEFT)
    CKPT_TRY(ckpt_adapter_verify(findings, index, err));
  else if (side == NULL && index->stated_architecture == NULL) /* else the format compares its own metadata */
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "config: there is none beside the tensors"));
  if (side != NULL) CKPT_TRY_GOTO(read_config(&c, of, side, &text, &config, err));
  c.config = config;
  if (config != NULL) CKPT_TRY_GOTO(check_quantization(&c, err));
  CKPT_TRY_GOTO(check_ids(&c, err));
  if (config != NULL) CKPT_TRY_GOTO(check_architecture(&c, err));
  status = check_vocabulary(&c, err);
done:
  ckpt_config_free(config);
  free(text);
  return status;
}
