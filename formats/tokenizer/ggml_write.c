/* ggml_write.c - a tokenizer as tokenizer.ggml.* keys, in the order and with the values of llama.cpp's converter. */
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
  uint32_t n;                  /* tokens to be written */
  const float *scores;         /* n; NULL: a tokenizer of this kind has no scores */
  const char **template_names; /* by number of the template */
} writer;

/* Prints one array's elements; called twice. */
typedef void print_items(const writer *w, encoded *e);

static ckpt_status set_array(const writer *w, const char *key, uint32_t type, uint64_t n, print_items *print,
                             ckpt_error *err) {
  ckpt_arena *arena = &w->index->arena;
  encoded e = {.arena = arena};
  char shown[64];
  print(w, &e);
  ckpt_typed_value *value = ckpt_arena_alloc(arena, sizeof *value);
  CKPT_TRY_ALLOC(value, err);
  uint64_t n_bytes = 12 + e.n;
  e.bytes = ckpt_arena_array(arena, (size_t)n_bytes, 1);
  CKPT_TRY_ALLOC(e.bytes, err);
  *value = (ckpt_typed_value){.type = CKPT_GGUF_ARRAY, .bytes = e.bytes, .n_bytes = n_bytes};
  e.n = 0;
  put_number(&e, type, 4);
  put_number(&e, n, 8);
  print(w, &e);
  snprintf(shown, sizeof shown, "[...] (%llu %s%s)", (unsigned long long)n, ckpt_gguf_type_name(type),
           type == CKPT_GGUF_STRING && n != 1 ? "s" : "");
  return ckpt_index_set_typed(w->index, key, shown, value, err);
}

static ckpt_status set_scalar(const writer *w, const char *key, uint32_t type, uint64_t number, ckpt_error *err) {
  const ckpt_typed_value *value;
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

static void print_scores(const writer *w, encoded *e) {
  for (uint32_t id = 0; id < w->n; id++) {
    uint32_t bits;
    memcpy(&bits, &w->scores[id], sizeof bits);
    put_number(e, bits, 4);
  }
}

/* Scores as the file has them; of merges the rank: what is merged first scores best, and what never is the least. Of
 * ids without a token they are the converter's. The caller frees them. */
static ckpt_status make_scores(float **out, const writer *w, ckpt_error *err) {
  const ckpt_tokenizer *t = w->tokenizer;
  float *scores = *out = calloc(w->n == 0 ? 1 : w->n, sizeof *scores);
  CKPT_TRY_ALLOC(scores, err);
  for (uint32_t i = t->has_scores ? 0 : t->n_merges; i-- > 0;)
    if (t->merges[i].result < w->n) scores[t->merges[i].result] = -1.0f - (float)t->merges[i].rank;
  for (uint32_t id = 0; id < w->n; id++) {
    const ckpt_token *token = token_of(w, id);
    if (token == NULL)
      scores[id] = t->has_scores ? -10000.0f : -1000000.0f;
    else if (t->has_scores)
      scores[id] = token->score;
    else if (scores[id] == 0 && token->type == CKPT_TOKEN_NORMAL)
      scores[id] = -1000000.0f;
  }
  return CKPT_OK;
}

/* ---- special tokens ---------------------------------------------------------------------------------------------- */

static bool is_of(const writer *w, const char *architecture) {
  const ckpt_meta *meta = ckpt_index_meta(w->index, CKPT_GGUF_ARCHITECTURE);
  return meta != NULL && meta->value != NULL && strcmp(meta->value, architecture) == 0;
}

static ckpt_status set_flag(const writer *w, const char *key, bool value, ckpt_error *err) {
  return set_scalar(w, key, CKPT_GGUF_BOOL, value, err);
}

static ckpt_status set_specials(const writer *w, const ckpt_ggml_ends *ends, ckpt_error *err) {
  char key[64];
  for (uint32_t i = 0; i < ends->n_ids; i++) {
    if (ends->ids[i].id >= w->n) continue;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", ckpt_ggml_specials[ends->ids[i].special]);
    CKPT_TRY(set_scalar(w, key, CKPT_GGUF_U32, ends->ids[i].id, err));
  }
  for (uint32_t i = 0; i < ends->n_flags; i++) {
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", ckpt_special_name(ends->flags[i].special));
    CKPT_TRY(set_flag(w, key, ends->flags[i].is_added, err));
  }
  return CKPT_OK;
}

/* ---- chat templates ---------------------------------------------------------------------------------------------- */

/* A template's name in a key: ASCII's letters and digits, and "_" for any other character. Terminated, in the arena. */
static char *plain_name(const writer *w, const char *name) {
  char *out = ckpt_arena_text(&w->index->arena, name, strlen(name));
  size_t n = 0;
  for (const char *at = name; out != NULL && *at != '\0'; at++) {
    if (((uint8_t)*at & 0xC0) == 0x80) continue; /* within a character */
    const bool is_plain = (*at >= '0' && *at <= '9') || (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z');
    out[n++] = is_plain ? *at : '_';
  }
  if (out != NULL) out[n] = '\0';
  return out;
}

static void print_names(const writer *w, encoded *e) {
  for (uint32_t i = 0; i < w->tokenizer->n_templates; i++)
    if (w->template_names[i] != NULL) put_text(e, w->template_names[i], strlen(w->template_names[i]));
}

/* Names of templates as keys have them, NULL for the default one and for what has no name. EFORMAT: two are one. */
static ckpt_status name_templates(writer *w, ckpt_error *err) {
  const ckpt_tokenizer *t = w->tokenizer;
  const char **names = ckpt_arena_array(&w->index->arena, t->n_templates + 1, sizeof *names);
  CKPT_TRY_ALLOC(names, err);
  for (uint32_t i = 0; i < t->n_templates; i++) {
    const char *name = t->templates[i].name;
    names[i] = NULL;
    if (name != NULL && name[0] != '\0') {
      names[i] = plain_name(w, name);
      CKPT_TRY_ALLOC(names[i], err);
    }
    for (uint32_t k = 0; k < i; k++) {
      const char *other = t->templates[k].name;
      const bool are_default = name == NULL && other == NULL;
      if (are_default || (names[i] != NULL && names[k] != NULL && strcmp(names[i], names[k]) == 0))
        return ckpt_fail(err, CKPT_EFORMAT, t->path, NULL,
                         "chat templates '%.60s' and '%.60s' would be one key of GGUF (tokenizer.chat_template%s%.60s)",
                         other == NULL ? "default" : other, name == NULL ? "default" : name, are_default ? "" : ".",
                         are_default ? "" : names[i]);
    }
  }
  w->template_names = names;
  return CKPT_OK;
}

static ckpt_status set_templates(const writer *w, ckpt_error *err) {
  uint32_t n_named = 0;
  const char *plain = NULL;
  for (uint32_t i = 0; i < w->tokenizer->n_templates; i++) {
    const ckpt_chat_template *one = &w->tokenizer->templates[i];
    const char *name = w->template_names[i];
    if (one->name == NULL) plain = one->text;
    if (name == NULL) continue;
    const char *long_key = ckpt_arena_printf(&w->index->arena, "tokenizer.chat_template.%s", name);
    CKPT_TRY_ALLOC(long_key, err);
    CKPT_TRY(ckpt_index_set_metadata(w->index, long_key, one->text, err));
    n_named++;
  }
  if (n_named != 0) CKPT_TRY(set_array(w, "tokenizer.chat_templates", CKPT_GGUF_STRING, n_named, print_names, err));
  return plain == NULL ? CKPT_OK : ckpt_index_set_metadata(w->index, "tokenizer.chat_template", plain, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* What of a byte-level tokenizer no name stands for. */
static ckpt_status refuse_splits(const ckpt_tokenizer *t, ckpt_error *err) {
  static const char *const steps[] = {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip"};
  char cause[700];
  const char *like = ckpt_pre_of_splits(t);
  if (t->prefix != CKPT_PREFIX_NEVER) {
    snprintf(cause, sizeof cause, "add_prefix_space: it puts a space before a text, and llama.cpp none");
  } else if (like != NULL && t->n_normalizer == 0) {
    snprintf(cause, sizeof cause, "the regex is that of %s, which has the normalizer NFC before it", like);
  } else if (like != NULL) {
    snprintf(cause, sizeof cause, "the regex is that of %s, and the normalizer %s stands before it", like,
             t->n_normalizer == 1 ? steps[t->normalizer[0].kind] : "Sequence");
  } else {
    ckpt_pre_show(t, cause, sizeof cause);
  }
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, t->path, NULL,
                               "GGUF has no name for the way in which this tokenizer cuts text (%s)", cause),
                     err, "give %pre=NAME");
}

static ckpt_status set_byte_level(const writer *w, const char *pre, ckpt_error *err) {
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_MODEL, "gpt2", err));
  CKPT_TRY(ckpt_index_set_metadata(w->index, CKPT_GGML_PRE, pre, err));
  CKPT_TRY(set_array(w, CKPT_GGML_TOKENS, CKPT_GGUF_STRING, w->n, print_tokens, err));
  CKPT_TRY(set_array(w, CKPT_GGML_TOKEN_TYPE, CKPT_GGUF_I32, w->n, print_types, err));
  return set_array(w, CKPT_GGML_MERGES, CKPT_GGUF_STRING, w->tokenizer->n_merges, print_merges, err);
}

static ckpt_status set_spm(writer *w, const char *pre, ckpt_error *err) {
  float *scores;
  CKPT_TRY(make_scores(&scores, w, err));
  w->scores = scores;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_index_set_metadata(w->index, CKPT_GGML_MODEL, "llama", err));
  CKPT_TRY_GOTO(ckpt_index_set_metadata(w->index, CKPT_GGML_PRE, pre == NULL ? "default" : pre, err));
  CKPT_TRY_GOTO(set_array(w, CKPT_GGML_TOKENS, CKPT_GGUF_STRING, w->n, print_tokens, err));
  CKPT_TRY_GOTO(set_array(w, CKPT_GGML_SCORES, CKPT_GGUF_F32, w->n, print_scores, err));
  CKPT_TRY_GOTO(set_array(w, CKPT_GGML_TOKEN_TYPE, CKPT_GGUF_I32, w->n, print_types, err));
done:
  w->scores = NULL;
  free(scores);
  return status;
}

/* Whether U+2581 is put before a text. */
static bool has_prefix(const ckpt_tokenizer *t) {
  bool has = t->prefix != CKPT_PREFIX_NEVER;
  for (uint32_t i = 0; i < t->n_normalizer; i++) has = has || t->normalizer[i].kind == CKPT_NORMALIZE_PREPEND;
  return has;
}

/* Where the converter sets add_space_prefix: of a Llama first, and as its config says; of Gemma 2 always, and last. */
static ckpt_status set_prefix(const writer *w, bool is_first, ckpt_error *err) {
  const ckpt_tokenizer *t = w->tokenizer;
  const bool is_spm = t->kind == CKPT_TOKENIZER_SPM_BPE;
  const ckpt_object *said = t->config == NULL ? NULL : ckpt_object_get(t->config, "add_prefix_space");
  const bool is_said = is_of(w, "llama") && said != NULL && said->kind == CKPT_OBJECT_BOOL;
  if (is_first)
    return is_said ? set_flag(w, CKPT_GGML_ADD_PREFIX, is_spm ? has_prefix(t) : said->boolean, err) : CKPT_OK;
  const bool is_without = (is_spm && !has_prefix(t)) || (is_of(w, "gemma2") && !is_spm);
  return is_without && !is_said ? set_flag(w, CKPT_GGML_ADD_PREFIX, false, err) : CKPT_OK;
}

/* What the converter says of two sizes of vocabulary, over what it said: of Code Llama's, and of small Granite's. */
static void choose_by_size(const writer *w, ckpt_ggml_ends *ends) {
  uint32_t i = 0;
  if (!is_of(w, "llama")) return;
  if (w->n == 32016) {
    while (i < ends->n_ids && ends->ids[i].special != CKPT_SPECIAL_EOT) i++;
    if (i == ends->n_ids) ends->n_ids++;
    ends->ids[i].special = CKPT_SPECIAL_EOT;
    ends->ids[i].id = 32010;
  } else if (w->n == 49152) {
    while (i < ends->n_flags && ends->flags[i].special != CKPT_SPECIAL_BOS) i++;
    if (i == ends->n_flags) ends->n_flags++;
    ends->flags[i].special = CKPT_SPECIAL_BOS;
    ends->flags[i].is_added = false;
  }
}

/* Whoever names another way of cutting text than the tokenizer's is told both. */
static ckpt_status note_other_pre(const writer *w, const char *asked, ckpt_error *err) {
  const char *own = w->tokenizer->pre;
  if (asked == NULL || own == NULL || strcmp(asked, own) == 0) return CKPT_OK;
  CKPT_TRY(ckpt_index_note(w->index, false, err, "%s is %s, as asked, and the tokenizer cuts text as %s", CKPT_GGML_PRE,
                           asked, own));
  return ckpt_index_note_is(w->index, CKPT_NOTE_DOUBT, NULL, err);
}

ckpt_status ckpt_tokenizer_to_ggml(ckpt_index *index, const ckpt_tokenizer *tokenizer,
                                   const ckpt_tokenizer_ggml_options *options, ckpt_error *err) {
  writer w = {.index = index, .tokenizer = tokenizer, .n = options->n_vocab};
  const bool is_byte = tokenizer->kind == CKPT_TOKENIZER_BYTE_BPE;
  const char *pre = options->pre != NULL || !is_byte ? options->pre : tokenizer->pre;
  ckpt_ggml_ends ends;
  if (w.n == 0) w.n = tokenizer->n_tokens;
  if (tokenizer->n_tokens > w.n)
    return ckpt_fail(err, CKPT_EFORMAT, tokenizer->path, NULL,
                     "the tokenizer has ids up to %u, and the model %u rows of embeddings", tokenizer->n_tokens - 1,
                     w.n);
  if (is_byte && pre == NULL) return refuse_splits(tokenizer, err);
  CKPT_TRY(note_other_pre(&w, options->pre, err));
  CKPT_TRY(name_templates(&w, err));
  ckpt_ggml_ends_of(&ends, tokenizer, pre);
  choose_by_size(&w, &ends);
  CKPT_TRY(set_prefix(&w, true, err));
  CKPT_TRY(is_byte ? set_byte_level(&w, pre, err) : set_spm(&w, pre, err));
  CKPT_TRY(set_specials(&w, &ends, err));
  CKPT_TRY(set_templates(&w, err));
  return set_prefix(&w, false, err);
}
