/* ggml_write.c - a tokenizer as tokenizer.ggml.* keys, in the order and with the values of llama.cpp's converter. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/ggml.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/gguf/value.h"

#define SPACE_MARK "\xE2\x96\x81"

/* The bytes of an array while they are made; counted first, so that they are allocated once. */
typedef struct encoded {
  ckpt_arena *arena;
  uint8_t *bytes; /* NULL: only counted */
  uint64_t n;
} encoded;

static void put(encoded *e, const void *bytes, size_t n) {
  if (e->bytes != NULL) memcpy(e->bytes + e->n, bytes, n);
  e->n += n;
}

static void put_number(encoded *e, uint64_t value, unsigned n) {
  uint8_t bytes[8];
  ckpt_put_le64(bytes, value);
  put(e, bytes, n);
}

typedef struct writer {
  ckpt_index *index;
  const ckpt_tokenizer *tokenizer;
  uint32_t n; /* tokens to be written */
} writer;

/* Prints one array's elements; called twice. */
typedef void print_items(const writer *w, encoded *e);

static ckpt_status set_array(const writer *w, const char *key, uint32_t type, uint64_t n, print_items *print,
                             ckpt_error *err) {
  ckpt_arena *arena = &w->index->arena;
  encoded e = {.arena = arena};
  char shown[64];
  print(w, &e);
  ckpt_value *value = ckpt_arena_alloc(arena, sizeof *value);
  CKPT_TRY_ALLOC(value, err);
  uint64_t n_bytes = 12 + e.n;
  e.bytes = ckpt_arena_array(arena, (size_t)n_bytes, 1);
  CKPT_TRY_ALLOC(e.bytes, err);
  *value = (ckpt_value){.type = CKPT_GGUF_ARRAY, .bytes = e.bytes, .n_bytes = n_bytes};
  e.n = 0;
  put_number(&e, type, 4);
  put_number(&e, n, 8);
  print(w, &e);
  snprintf(shown, sizeof shown, "[...] (%llu %s%s)", (unsigned long long)n, ckpt_gguf_type_name(type),
           type == CKPT_GGUF_STRING && n != 1 ? "s" : "");
  return ckpt_index_set_typed(w->index, key, shown, value, err);
}

static ckpt_status set_scalar(const writer *w, const char *key, uint32_t type, uint64_t number, ckpt_error *err) {
  const ckpt_value *value;
  char shown[CKPT_GGUF_TEXT_BYTES];
  CKPT_TRY(ckpt_gguf_value_of(&value, &w->index->arena, type, number, err));
  ckpt_gguf_scalar_text(type, value->bytes, shown);
  return ckpt_index_set_typed(w->index, key, shown, value, err);
}

/* ---- arrays ------------------------------------------------------------------------------------------------------ */

static void put_text(encoded *e, const char *text, size_t n) {
  put_number(e, n, 8);
  put(e, text, n);
}

/* A token that is added and no special one is text: its U+2581 are spaces, which llama.cpp finds before it makes them
 * that. */
static void put_user_defined(encoded *e, const ckpt_token *token) {
  uint64_t n = token->n_bytes;
  const char *end = token->text + token->n_bytes, *hit;
  for (const char *at = token->text; (hit = memmem(at, (size_t)(end - at), SPACE_MARK, 3)) != NULL; at = hit + 3)
    n -= 2;
  put_number(e, n, 8);
  const char *at = token->text;
  for (; (hit = memmem(at, (size_t)(end - at), SPACE_MARK, 3)) != NULL; at = hit + 3) {
    put(e, at, (size_t)(hit - at));
    put(e, " ", 1);
  }
  put(e, at, (size_t)(end - at));
}

static const ckpt_token *token_of(const writer *w, uint32_t id) {
  return id < w->tokenizer->n_tokens && w->tokenizer->tokens[id].text != NULL ? &w->tokenizer->tokens[id] : NULL;
}

static void print_tokens(const writer *w, encoded *e) {
  for (uint32_t id = 0; id < w->n; id++) {
    const ckpt_token *token = token_of(w, id);
    char padding[24];
    if (token == NULL) {
      int n = snprintf(padding, sizeof padding, "[PAD%u]", id);
      put_text(e, padding, (size_t)n);
    } else if (token->type == CKPT_TOKEN_USER_DEFINED) {
      put_user_defined(e, token);
    } else {
      put_text(e, token->text, token->n_bytes);
    }
  }
}

static void print_types(const writer *w, encoded *e) {
  for (uint32_t id = 0; id < w->n; id++) {
    const ckpt_token *token = token_of(w, id);
    put_number(e, token == NULL ? CKPT_TOKEN_UNUSED : token->type, 4);
  }
}

/* Merges are "left right": a space within one is the letter that the byte has in GPT-2's alphabet. */
static void put_side(encoded *e, const ckpt_token *token) {
  for (uint32_t i = 0; i < token->n_bytes; i++) {
    if (token->text[i] == ' ')
      put(e, "\xC4\xA0", 2);
    else
      put(e, token->text + i, 1);
  }
}

static uint64_t side_bytes(const ckpt_token *token) {
  uint64_t n = token->n_bytes;
  for (uint32_t i = 0; i < token->n_bytes; i++) n += token->text[i] == ' ';
  return n;
}

static void print_merges(const writer *w, encoded *e) {
  for (uint32_t i = 0; i < w->tokenizer->n_merges; i++) {
    const ckpt_token_merge *merge = &w->tokenizer->merges[i];
    const ckpt_token *left = &w->tokenizer->tokens[merge->left], *right = &w->tokenizer->tokens[merge->right];
    put_number(e, side_bytes(left) + 1 + side_bytes(right), 8);
    put_side(e, left);
    put(e, " ", 1);
    put_side(e, right);
  }
}

/* Scores as the file has them; of merges the rank: what is merged first scores best, and what never is the least. */
static void print_scores(const writer *w, encoded *e) {
  const ckpt_tokenizer *tokenizer = w->tokenizer;
  const bool is_stored = tokenizer->has_scores;
  float *scores = NULL;
  if (!is_stored && e->bytes != NULL) {
    scores = calloc(w->n == 0 ? 1 : w->n, sizeof *scores);
    for (uint32_t i = tokenizer->n_merges; scores != NULL && i-- > 0;)
      if (tokenizer->merges[i].result < w->n)
        scores[tokenizer->merges[i].result] = -1.0f - (float)tokenizer->merges[i].rank;
  }
  for (uint32_t id = 0; id < w->n; id++) {
    const ckpt_token *token = token_of(w, id);
    float score = token == NULL ? -1000000.0f : token->score;
    if (!is_stored && token != NULL && scores != NULL)
      score = scores[id] != 0 ? scores[id] : token->type == CKPT_TOKEN_NORMAL ? -1000000.0f : 0;
    uint32_t bits;
    memcpy(&bits, &score, sizeof bits);
    put_number(e, bits, 4);
  }
  free(scores);
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static ckpt_flag flag(bool is_set) { return is_set ? CKPT_FLAG_YES : CKPT_FLAG_NO; }

/* The TemplateProcessing of the post-processor; NULL: it has none. */
static const ckpt_object *template_of(const ckpt_object *tree) {
  const ckpt_object *type = tree == NULL ? NULL : ckpt_object_field(tree, "type");
  if (type == NULL || type->kind != CKPT_OBJECT_TEXT) return NULL;
  if (strcmp(type->text, "TemplateProcessing") == 0) return tree;
  const ckpt_object *list = ckpt_object_field(tree, "processors");
  for (uint64_t i = 0; list != NULL && list->kind == CKPT_OBJECT_LIST && i < list->n; i++) {
    type = ckpt_object_field(list->items[i], "type");
    if (type != NULL && type->kind == CKPT_OBJECT_TEXT && strcmp(type->text, "TemplateProcessing") == 0)
      return list->items[i];
  }
  return NULL;
}

static const char *special_text(const ckpt_object *piece) {
  const ckpt_object *special = ckpt_object_field(piece, "SpecialToken"),
                    *id = special == NULL ? NULL : ckpt_object_field(special, "id");
  return id != NULL && id->kind == CKPT_OBJECT_TEXT ? id->text : NULL;
}

static bool is_special(const ckpt_tokenizer *t, ckpt_special special, const char *text) {
  return text != NULL && t->special[special] != CKPT_TOKEN_NONE &&
         strcmp(t->tokens[t->special[special]].text, text) == 0;
}

/* Whether a pair of texts has a separator between them, as the converter reads a template: UNSAID where it has nothing
 * there. */
static ckpt_flag adds_separator(const ckpt_tokenizer *t) {
  const ckpt_object *tree = template_of(t->trees[CKPT_TREE_POST_PROCESSOR]);
  const ckpt_object *pair = tree == NULL ? NULL : ckpt_object_field(tree, "pair");
  if (pair == NULL || pair->kind != CKPT_OBJECT_LIST || pair->n == 0) return CKPT_FLAG_UNSAID;
  uint64_t begin = t->n_before != 0 && special_text(pair->items[0]) != NULL, end = pair->n;
  bool has_last = t->n_after != 0;
  if (has_last && special_text(pair->items[end - 1]) != NULL) end--;
  if (end - begin < 3 || special_text(pair->items[begin]) != NULL || special_text(pair->items[end - 1]) != NULL)
    return CKPT_FLAG_UNSAID;
  const char *first = special_text(pair->items[begin + 1]),
             *second = end - begin == 4 ? special_text(pair->items[begin + 2]) : NULL;
  bool adds = !has_last && (is_special(t, CKPT_SPECIAL_SEP, first) || is_special(t, CKPT_SPECIAL_EOS, first));
  return flag(adds || is_special(t, CKPT_SPECIAL_SEP, second) || is_special(t, CKPT_SPECIAL_EOS, second));
}

typedef struct ends {
  uint32_t special[CKPT_N_SPECIALS];
  ckpt_flag adds[CKPT_N_SPECIALS];
} ends;

/* What is said outright, and what the post-processor does where nothing is. */
static void decide_ends(const ckpt_tokenizer *t, ends *out) {
  memcpy(out->special, t->special, sizeof out->special);
  memcpy(out->adds, t->adds, sizeof out->adds);
  ckpt_flag *adds = out->adds;
  const uint32_t *special = out->special;
  if (t->n_before != 0) { /* without a config the post-processor alone knows which token that is */
    const uint32_t first = t->before[0];
    if (special[CKPT_SPECIAL_BOS] == CKPT_TOKEN_NONE && special[CKPT_SPECIAL_CLS] == CKPT_TOKEN_NONE)
      out->special[CKPT_SPECIAL_BOS] = first;
    if (adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_UNSAID)
      adds[CKPT_SPECIAL_BOS] = flag(first == special[CKPT_SPECIAL_BOS] || first == special[CKPT_SPECIAL_CLS]);
  }
  if (t->n_after != 0) {
    const uint32_t last = t->after[t->n_after - 1];
    if (special[CKPT_SPECIAL_EOS] != CKPT_TOKEN_NONE && last != special[CKPT_SPECIAL_EOS] &&
        special[CKPT_SPECIAL_EOT] == CKPT_TOKEN_NONE)
      out->special[CKPT_SPECIAL_EOT] = special[CKPT_SPECIAL_EOS];
    out->special[CKPT_SPECIAL_EOS] = last;
    if (adds[CKPT_SPECIAL_EOS] == CKPT_FLAG_UNSAID) adds[CKPT_SPECIAL_EOS] = CKPT_FLAG_YES;
  }
  if (adds[CKPT_SPECIAL_SEP] == CKPT_FLAG_UNSAID) adds[CKPT_SPECIAL_SEP] = adds_separator(t);
}

static ckpt_status set_specials(const writer *w, ckpt_error *err) {
  ends e;
  char key[64];
  decide_ends(w->tokenizer, &e);
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    if (e.special[i] == CKPT_TOKEN_NONE || i == CKPT_SPECIAL_CLS || e.special[i] >= w->n) continue;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ckpt_ggml_specials[i]);
    CKPT_TRY(set_scalar(w, key, CKPT_GGUF_U32, e.special[i], err));
  }
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    if (e.adds[i] == CKPT_FLAG_UNSAID || (i != CKPT_SPECIAL_BOS && i != CKPT_SPECIAL_EOS && i != CKPT_SPECIAL_SEP))
      continue;
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", ckpt_special_name((ckpt_special)i));
    CKPT_TRY(set_scalar(w, key, CKPT_GGUF_BOOL, e.adds[i] == CKPT_FLAG_YES, err));
  }
  return CKPT_OK;
}

/* ---- chat templates ---------------------------------------------------------------------------------------------- */

/* A template's name in a key: letters and digits. */
static void plain_name(char out[64], const char *name) {
  size_t i = 0;
  for (; name[i] != '\0' && i < 63; i++) out[i] = isalnum((unsigned char)name[i]) ? name[i] : '_';
  out[i] = '\0';
}

static void print_names(const writer *w, encoded *e) {
  char name[64];
  for (uint32_t i = 0; i < w->tokenizer->n_templates; i++) {
    if (w->tokenizer->templates[i].name == NULL) continue;
    plain_name(name, w->tokenizer->templates[i].name);
    put_text(e, name, strlen(name));
  }
}

static ckpt_status set_templates(const writer *w, ckpt_error *err) {
  char name[64], key[96];
  uint32_t n_named = 0;
  const char *plain = NULL;
  for (uint32_t i = 0; i < w->tokenizer->n_templates; i++) {
    const ckpt_chat_template *one = &w->tokenizer->templates[i];
    if (one->name == NULL) plain = one->text;
    if (one->name == NULL) continue;
    plain_name(name, one->name);
    snprintf(key, sizeof key, "tokenizer.chat_template.%s", name);
    CKPT_TRY(ckpt_index_set_metadata(w->index, key, one->text, err));
    n_named++;
  }
  if (n_named != 0) CKPT_TRY(set_array(w, "tokenizer.chat_templates", CKPT_GGUF_STRING, n_named, print_names, err));
  return plain == NULL ? CKPT_OK : ckpt_index_set_metadata(w->index, "tokenizer.chat_template", plain, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static ckpt_status set_byte_level(const writer *w, const char *pre, ckpt_error *err) {
  char shown[640];
  if (pre == NULL) pre = w->tokenizer->pre;
  if (pre == NULL) {
    ckpt_pre_show(w->tokenizer, shown, sizeof shown);
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, w->tokenizer->path, NULL,
                                 "GGUF has no name for the way in which this tokenizer cuts text (%s)", shown),
                       err, "give %pre=NAME");
  }
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_MODEL, "gpt2", err));
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_PRE, pre, err));
  CKPT_TRY(set_array(w, CKPT_GGML_TOKENS, CKPT_GGUF_STRING, w->n, print_tokens, err));
  CKPT_TRY(set_array(w, CKPT_GGML_TOKEN_TYPE, CKPT_GGUF_I32, w->n, print_types, err));
  return set_array(w, CKPT_GGML_MERGES, CKPT_GGUF_STRING, w->tokenizer->n_merges, print_merges, err);
}

/* Whether U+2581 is put before a text. */
static bool has_prefix(const ckpt_tokenizer *t) {
  bool has = t->prefix != CKPT_PREFIX_NEVER;
  for (uint32_t i = 0; i < t->n_normalizer; i++) has = has || t->normalizer[i].kind == CKPT_NORMALIZE_PREPEND;
  return has;
}

static ckpt_status set_spm(const writer *w, const char *pre, ckpt_error *err) {
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_MODEL, "llama", err));
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_PRE, pre == NULL ? "default" : pre, err));
  CKPT_TRY(set_array(w, CKPT_GGML_TOKENS, CKPT_GGUF_STRING, w->n, print_tokens, err));
  CKPT_TRY(set_array(w, CKPT_GGML_SCORES, CKPT_GGUF_F32, w->n, print_scores, err));
  return set_array(w, CKPT_GGML_TOKEN_TYPE, CKPT_GGUF_I32, w->n, print_types, err);
}

ckpt_status ckpt_tokenizer_to_ggml(ckpt_index *index, const ckpt_tokenizer *tokenizer,
                                   const ckpt_tokenizer_ggml_options *options, ckpt_error *err) {
  writer w = {.index = index, .tokenizer = tokenizer, .n = options->n_vocab};
  if (w.n == 0) w.n = tokenizer->n_tokens;
  if (tokenizer->n_tokens > w.n)
    return ckpt_fail(err, CKPT_EFORMAT, tokenizer->path, NULL,
                     "the tokenizer has ids up to %u, and the model %u rows of embeddings", tokenizer->n_tokens - 1,
                     w.n);
  if (tokenizer->kind == CKPT_TOKENIZER_BYTE_BPE)
    CKPT_TRY(set_byte_level(&w, options->pre, err));
  else
    CKPT_TRY(set_spm(&w, options->pre, err));
  CKPT_TRY(set_specials(&w, err));
  if (tokenizer->kind == CKPT_TOKENIZER_SPM_BPE && !has_prefix(tokenizer))
    CKPT_TRY(set_scalar(&w, CKPT_GGML_ADD_PREFIX, CKPT_GGUF_BOOL, 0, err));
  return set_templates(&w, err);
}
