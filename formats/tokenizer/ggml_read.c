/* ggml_read.c - a tokenizer from the tokenizer.ggml.* keys of a GGUF index. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/ggml.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/gguf/value.h"

/* An array while it is walked: its encoded bytes. */
typedef struct array {
  uint8_t *bytes;
  uint64_t n_bytes, at, n; /* n elements; `at` is the next one's place */
  uint32_t type;
  const char *key;
} array;

static ckpt_status lies(const ckpt_tokenizer_build *build, const char *key, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "key '%s' %s", key, what);
}

/* All bytes of a value, which the caller frees. */
static ckpt_status value_bytes(uint8_t **out, const ckpt_tokenizer_build *build, const ckpt_index *index,
                               const ckpt_typed_value *value, const char *key, ckpt_error *err) {
  if (value->n_bytes > CKPT_TOKENIZER_MAX_BYTES) return lies(build, key, "is longer than a tokenizer is", err);
  uint8_t *bytes = *out = malloc((size_t)value->n_bytes + 1);
  CKPT_TRY_ALLOC(bytes, err);
  ckpt_status status = CKPT_OK;
  if (value->bytes != NULL)
    memcpy(bytes, value->bytes, (size_t)value->n_bytes);
  else
    status = ckpt_source_read(value->source != NULL ? value->source : index->source, value->file, value->offset, bytes,
                              (size_t)value->n_bytes, err);
  bytes[value->n_bytes] = 0;
  if (status == CKPT_OK) return CKPT_OK;
  free(bytes);
  return status;
}

/* The array under a key, of elements of this type; n is 0 where there is none. */
static ckpt_status array_of(array *out, const ckpt_tokenizer_build *build, const ckpt_index *index, const char *key,
                            uint32_t type, ckpt_error *err) {
  *out = (array){.key = key};
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  if (meta == NULL) return CKPT_OK;
  if (meta->typed == NULL || meta->typed->type != CKPT_GGUF_ARRAY || meta->typed->n_bytes < 12)
    return lies(build, key, "is no array", err);
  CKPT_TRY(value_bytes(&out->bytes, build, index, meta->typed, key, err));
  out->n_bytes = meta->typed->n_bytes;
  out->type = ckpt_le32(out->bytes);
  out->n = ckpt_le64(out->bytes + 4);
  out->at = 12;
  uint64_t n_least = type == CKPT_GGUF_STRING ? 8 : 4;
  if (out->type == type && out->n <= (out->n_bytes - 12) / n_least) return CKPT_OK;
  free(out->bytes);
  return lies(build, key, "has elements of another type, or fewer than it says", err);
}

static bool next_text(array *a, const char **text, size_t *n) {
  if (a->n_bytes - a->at < 8) return false;
  const uint64_t length = ckpt_le64(a->bytes + a->at);
  if (length > a->n_bytes - a->at - 8) return false;
  *text = (const char *)a->bytes + a->at + 8;
  *n = (size_t)length;
  a->at += 8 + length;
  return true;
}

static float number_at(const array *a, uint64_t i) {
  uint32_t bits = ckpt_le32(a->bytes + 12 + 4 * i);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static ckpt_status add_token(ckpt_tokenizer_build *build, const char *text, size_t n, uint32_t id, uint32_t type,
                             float score, ckpt_error *err) {
  ckpt_token *token = NULL;
  if (type == CKPT_TOKEN_UNUSED && ckpt_spellings_find(&build->spellings, text, n) != CKPT_TOKEN_NONE)
    return CKPT_OK; /* padding that repeats itself */
  CKPT_TRY(ckpt_tokenizer_build_token(build, text, n, id, &token, err));
  token->score = score;
  token->type = (uint8_t)type;
  if (type == CKPT_TOKEN_UNKNOWN && build->out->unknown == CKPT_TOKEN_NONE &&
      build->out->kind == CKPT_TOKENIZER_SPM_BPE)
    build->out->unknown = id;
  if (type != CKPT_TOKEN_CONTROL && type != CKPT_TOKEN_USER_DEFINED && type != CKPT_TOKEN_UNKNOWN) return CKPT_OK;
  const ckpt_added_token flags = {.is_special = type != CKPT_TOKEN_USER_DEFINED};
  return ckpt_tokenizer_build_added(build, text, n, id, &flags, err);
}

static ckpt_status read_tokens(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  array tokens, types = {0}, scores = {0};
  CKPT_TRY(array_of(&tokens, build, index, CKPT_GGML_TOKENS, CKPT_GGUF_STRING, err));
  ckpt_status status;
  CKPT_TRY_GOTO(array_of(&types, build, index, CKPT_GGML_TOKEN_TYPE, CKPT_GGUF_I32, err));
  CKPT_TRY_GOTO(array_of(&scores, build, index, CKPT_GGML_SCORES, CKPT_GGUF_F32, err));
  if ((types.n != 0 && types.n != tokens.n) || (scores.n != 0 && scores.n != tokens.n)) {
    status = lies(build, tokens.key, "has not as many elements as token_type or scores", err);
    goto done;
  }
  build->out->has_scores = scores.n != 0;
  for (uint64_t i = 0; i < tokens.n; i++) {
    const char *text;
    size_t n;
    const uint32_t type = types.n == 0 ? CKPT_TOKEN_NORMAL : ckpt_le32(types.bytes + 12 + 4 * i);
    if (!next_text(&tokens, &text, &n) || type < CKPT_TOKEN_NORMAL || type > CKPT_TOKEN_BYTE) {
      status = lies(build, tokens.key, "ends within a token, or has one of no type", err);
      goto done;
    }
    CKPT_TRY_GOTO(add_token(build, text, n, (uint32_t)i, type, scores.n == 0 ? 0 : number_at(&scores, i), err));
  }
  build->has_vocab = true;
done:
  free(tokens.bytes);
  free(types.bytes);
  free(scores.bytes);
  return status;
}

static ckpt_status read_merges(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  array merges;
  CKPT_TRY(array_of(&merges, build, index, CKPT_GGML_MERGES, CKPT_GGUF_STRING, err));
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < merges.n && status == CKPT_OK; i++) {
    const char *text;
    size_t n;
    status = next_text(&merges, &text, &n) ? ckpt_tokenizer_build_merge_line(build, text, n, err)
                                           : lies(build, merges.key, "ends within a merge", err);
  }
  free(merges.bytes);
  return status;
}

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

const char *const ckpt_ggml_specials[CKPT_N_SPECIALS] = {"bos", "eos",  "unknown", "seperator", "padding",
                                                         "cls", "mask", "eot",     "eom"};

static void read_specials(ckpt_tokenizer_build *build, const ckpt_index *index) {
  ckpt_tokenizer *out = build->out;
  char key[64];
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    uint32_t id;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ckpt_ggml_specials[i]);
    const ckpt_meta *meta = ckpt_index_meta(index, key);
    if (meta != NULL && meta->typed != NULL && ckpt_gguf_value_u32(meta->typed, &id) && id < out->n_tokens &&
        build->tokens[id].text != NULL)
      out->special[i] = id;
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", ckpt_special_name((ckpt_special)i));
    meta = ckpt_index_meta(index, key);
    if (meta != NULL && meta->typed != NULL && meta->typed->type == CKPT_GGUF_BOOL && meta->typed->bytes != NULL)
      out->adds[i] = meta->typed->bytes[0] != 0 ? CKPT_FLAG_YES : CKPT_FLAG_NO;
  }
}

/* A key that is a text, long or short, in the arena; NULL where there is none. */
static ckpt_status text_of(const char **out, ckpt_tokenizer_build *build, const ckpt_index *index, const char *key,
                           ckpt_error *err) {
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  ckpt_arena *arena = &build->out->arena;
  *out = NULL;
  if (meta == NULL) return CKPT_OK;
  if (meta->typed == NULL) {
    *out = ckpt_arena_copy(arena, meta->value);
  } else {
    uint8_t *bytes;
    if (meta->typed->type != CKPT_GGUF_STRING || meta->typed->n_bytes < 8) return lies(build, key, "is no text", err);
    CKPT_TRY(value_bytes(&bytes, build, index, meta->typed, key, err));
    const size_t n = (size_t)meta->typed->n_bytes - 8;
    const bool has_nul = memchr(bytes + 8, 0, n) != NULL;
    *out = ckpt_arena_text(arena, (const char *)bytes + 8, n);
    free(bytes);
    if (has_nul) return lies(build, key, "holds a NUL", err);
  }
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

static ckpt_status read_templates(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  static const char prefix[] = "tokenizer.chat_template";
  for (uint32_t i = 0; i < index->n_metadata; i++) {
    const char *key = index->metadata[i].key, *text;
    if (strncmp(key, prefix, sizeof prefix - 1) != 0) continue;
    const char *rest = key + sizeof prefix - 1;
    if (rest[0] != '\0' && rest[0] != '.') continue;
    CKPT_TRY(text_of(&text, build, index, key, err));
    CKPT_TRY(ckpt_tokenizer_add_template(build, rest[0] == '.' ? rest + 1 : NULL, text, strlen(text), err));
  }
  return CKPT_OK;
}

static ckpt_status read_byte_level(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  const char *name;
  CKPT_TRY(text_of(&name, build, index, CKPT_GGML_PRE, err));
  const ckpt_pre *pre = ckpt_pre_find(name == NULL ? "default" : name);
  if (pre == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL, "tokenizer.ggml.pre is '%.60s', which is not known",
                     name);
  CKPT_TRY(read_tokens(build, index, err));
  CKPT_TRY(read_merges(build, index, err));
  CKPT_TRY(ckpt_tokenizer_assume_bytes(build, pre->name, err));
  const ckpt_meta *prefix = ckpt_index_meta(index, CKPT_GGML_ADD_PREFIX);
  out->denies_prefix =
      prefix != NULL && prefix->typed != NULL && prefix->typed->bytes != NULL && prefix->typed->bytes[0] == 0;
  out->pre = pre->name;
  read_specials(build, index);
  if (out->adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_UNSAID && pre->adds_bos) out->adds[CKPT_SPECIAL_BOS] = CKPT_FLAG_YES;
  return CKPT_OK;
}

static ckpt_status read_spm(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  static const uint32_t llama[] = {1, 2, 0}; /* BOS, EOS and unknown, where no key says them */
  const ckpt_meta *prefix = ckpt_index_meta(index, CKPT_GGML_ADD_PREFIX);
  const bool has_prefix =
      prefix == NULL || prefix->typed == NULL || prefix->typed->bytes == NULL || prefix->typed->bytes[0] != 0;
  build->out->kind = CKPT_TOKENIZER_SPM_BPE;
  CKPT_TRY(read_tokens(build, index, err));
  if (!build->out->has_scores) return lies(build, CKPT_GGML_SCORES, "is missing", err);
  CKPT_TRY(ckpt_tokenizer_assume_spm(build, has_prefix, err));
  CKPT_TRY(ckpt_tokenizer_merges_of_scores(build, err));
  read_specials(build, index);
  for (uint32_t i = 0; i < sizeof llama / sizeof *llama; i++)
    if (build->out->special[i] == CKPT_TOKEN_NONE && llama[i] < build->out->n_tokens &&
        build->tokens[llama[i]].text != NULL)
      build->out->special[i] = llama[i];
  if (build->out->unknown == CKPT_TOKEN_NONE) build->out->unknown = build->out->special[CKPT_SPECIAL_UNK];
  if (build->out->adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_UNSAID) build->out->adds[CKPT_SPECIAL_BOS] = CKPT_FLAG_YES;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_read_ggml(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err) {
  const char *model;
  CKPT_TRY(text_of(&model, build, index, CKPT_GGML_MODEL, err));
  if (model == NULL) return lies(build, CKPT_GGML_MODEL, "is missing", err);
  if (strcmp(model, "gpt2") == 0)
    CKPT_TRY(read_byte_level(build, index, err));
  else if (strcmp(model, "llama") == 0)
    CKPT_TRY(read_spm(build, index, err));
  else
    return ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL,
                     "a tokenizer of model '%.60s' (gpt2 and llama are read)", model);
  CKPT_TRY(read_templates(build, index, err));
  return ckpt_tokenizer_assume_ends(build, err);
}
