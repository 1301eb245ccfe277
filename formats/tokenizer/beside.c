/* beside.c - tokens that the files beside a vocabulary add: added_tokens of tokenizer.json, added_tokens_decoder and
 * special tokens of tokenizer_config.json, special_tokens_map.json, added_tokens.json.
 *
 * Who adds them decides their ids. `tokenizers` has no eye for an id that a file says: a token that the model has keeps
 * the model's, another gets the next. transformers adds those of the configs in the same way, after the others. The
 * converter of llama.cpp puts them into a tokenizer.model at the ids that they say, over what is there. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"

enum { MAX_CONFIG_TOKENS = 1 << 20, N_NAMED = CKPT_SPECIAL_MASK + 1 /* that transformers has a name for */ };

static const float placed_score = -1000.0f; /* the converter's, of what a config adds */

/* ---- as `tokenizers` numbers them ------------------------------------------------------------------------------ */

ckpt_status ckpt_tokenizer_build_row(ckpt_tokenizer_build *build, const char *text, size_t n_bytes,
                                     const ckpt_added_token *flags, ckpt_error *err) {
  if (n_bytes == 0) return CKPT_OK; /* `tokenizers` takes none of these */
  uint64_t id = ckpt_spellings_find(&build->spellings, text, n_bytes);
  if (id == CKPT_TOKEN_NONE) id = (uint64_t)build->n_model + build->n_new++;
  ckpt_added_token row = *flags;
  if (build->out->origin == CKPT_TOKENIZER_OF_MODEL) row.is_normalized = false; /* these classes normalize nothing */
  return ckpt_tokenizer_build_added(build, text, n_bytes, id, &row, err);
}

static bool flag_of(const ckpt_object *row, const char *key, bool if_absent) {
  const ckpt_object *value = ckpt_object_field(row, key);
  return value != NULL && value->kind == CKPT_OBJECT_BOOL ? value->boolean : if_absent;
}

static ckpt_added_token flags_of(const ckpt_object *row, bool is_special) {
  return (ckpt_added_token){.is_special = is_special,
                            .is_single_word = flag_of(row, "single_word", false),
                            .strips_left = flag_of(row, "lstrip", false),
                            .strips_right = flag_of(row, "rstrip", false),
                            .is_normalized = flag_of(row, "normalized", !is_special)};
}

/* A token's text: as it is, or the content of a dict. */
static const ckpt_object *content_of(const ckpt_object *value) {
  if (value != NULL && value->kind == CKPT_OBJECT_DICT) value = ckpt_object_field(value, "content");
  return value != NULL && value->kind == CKPT_OBJECT_TEXT ? value : NULL;
}

ckpt_status ckpt_tokenizer_add_listed(ckpt_tokenizer_build *build, ckpt_error *err) {
  const ckpt_object *list = build->listed;
  if (list == NULL || list->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  if (list->kind != CKPT_OBJECT_LIST)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "added_tokens has to be a list");
  for (uint64_t i = 0; i < list->n; i++) {
    const ckpt_object *row = list->items[i], *id = ckpt_object_field(row, "id"),
                      *content = ckpt_object_field(row, "content");
    if (id == NULL || id->kind != CKPT_OBJECT_INT || id->integer < 0 || content == NULL ||
        content->kind != CKPT_OBJECT_TEXT)
      return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL,
                       "entry %" PRIu64 " of added_tokens lacks an id or a content", i);
    const ckpt_added_token flags = flags_of(row, flag_of(row, "special", false));
    CKPT_TRY(ckpt_tokenizer_build_row(build, content->text, (size_t)content->n, &flags, err));
  }
  build->out->n_stated = build->out->n_added;
  return CKPT_OK;
}

/* ---- what the configs say ---------------------------------------------------------------------------------------- */

/* A token with the id that a file says. */
typedef struct stated {
  uint64_t id;
  const ckpt_object *text, *row; /* row: its settings; NULL: added_tokens.json, which has none */
} stated;

static int by_id(const void *a, const void *b) {
  const stated *left = a, *right = b;
  return left->id < right->id ? -1 : left->id > right->id ? 1 : 0;
}

static const ckpt_object *decoder_of(const ckpt_tokenizer_build *build) {
  const ckpt_object *config = build->out->config,
                    *decoder = config == NULL ? NULL : ckpt_object_get(config, "added_tokens_decoder");
  return decoder != NULL && decoder->kind == CKPT_OBJECT_DICT ? decoder : NULL;
}

static ckpt_status bad_row(const ckpt_object *key, const char *file, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, file, NULL, "token '%.60s' has no id that is a whole number, or no text",
                   key->text);
}

/* The tokens of added_tokens_decoder ({"id": {"content", ...}}) or added_tokens.json ({"text": id}), which the caller
 * frees, in the order of ids. */
static ckpt_status list_stated(stated **out, size_t *n, const ckpt_object *dict, bool is_decoder, ckpt_error *err) {
  const char *file = is_decoder ? "tokenizer_config.json" : "added_tokens.json";
  *out = NULL;
  *n = 0;
  if (dict == NULL) return CKPT_OK;
  if (dict->kind != CKPT_OBJECT_DICT || dict->n > MAX_CONFIG_TOKENS)
    return ckpt_fail(err, CKPT_EFORMAT, file, NULL, "no JSON object of tokens and ids, or more than %d",
                     MAX_CONFIG_TOKENS);
  stated *list = calloc((size_t)dict->n + 1, sizeof *list);
  CKPT_TRY_ALLOC(list, err);
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < dict->n && status == CKPT_OK; i++) {
    const ckpt_object *key = dict->items[2 * i], *value = dict->items[2 * i + 1];
    char *end = NULL;
    stated *one = &list[i];
    if (is_decoder)
      *one = (stated){strtoull(key->text, &end, 10), content_of(value), value};
    else if (value->kind == CKPT_OBJECT_INT && value->integer >= 0)
      *one = (stated){(uint64_t)value->integer, key, NULL};
    const bool has_id = !is_decoder || (key->text[0] >= '0' && key->text[0] <= '9' && *end == '\0');
    if (one->text == NULL || !has_id) status = bad_row(key, file, err);
  }
  if (status == CKPT_OK) {
    qsort(list, (size_t)dict->n, sizeof *list, by_id);
    *out = list;
    *n = (size_t)dict->n;
  } else {
    free(list);
  }
  return status;
}

/* What a named special token is called: special_tokens_map.json goes first, but where the config lists its tokens. */
static const ckpt_object *named(const ckpt_tokenizer_build *build, const char *key) {
  const ckpt_object *map = decoder_of(build) != NULL ? NULL : build->map, *config = build->out->config,
                    *found = map == NULL ? NULL : ckpt_object_get(map, key);
  if (found == NULL && config != NULL) found = ckpt_object_get(config, key);
  return found;
}

/* What the classes of transformers call their special tokens where no file says otherwise. */
static const struct {
  const char *class, *tokens[CKPT_SPECIAL_PAD + 1]; /* in the order of ckpt_special */
} class_tokens[] = {
    {"GPT2Tokenizer", {"<|endoftext|>", "<|endoftext|>", "<|endoftext|>", NULL, NULL}},
    {"Qwen2Tokenizer", {NULL, "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>"}},
    {"LlamaTokenizer", {"<s>", "</s>", "<unk>", NULL, NULL}},
};

static const char *token_of_class(const ckpt_tokenizer *t, ckpt_special special) {
  if (t->tokenizer_class == NULL || special > CKPT_SPECIAL_PAD || t->origin == CKPT_TOKENIZER_OF_JSON) return NULL;
  for (size_t i = 0; i < sizeof class_tokens / sizeof *class_tokens; i++)
    if (ckpt_tokenizer_has_class(t, class_tokens[i].class)) return class_tokens[i].tokens[special];
  return NULL;
}

static bool is_added(const ckpt_tokenizer_build *build, const char *text, size_t n) {
  const uint32_t id = ckpt_spellings_find(&build->spellings, text, n);
  return id != CKPT_TOKEN_NONE && build->tokens[id].added != CKPT_TOKEN_NONE;
}

/* Adds a special token that the list does not have yet. */
static ckpt_status add_special(ckpt_tokenizer_build *build, const ckpt_object *value, bool is_named, ckpt_error *err) {
  const ckpt_object *text = content_of(value);
  if (text == NULL || is_added(build, text->text, (size_t)text->n)) return CKPT_OK;
  const bool is_dict = value->kind == CKPT_OBJECT_DICT;
  ckpt_added_token flags = is_dict ? flags_of(value, flag_of(value, "special", false)) : flags_of(value, true);
  flags.is_special = flags.is_special || is_named;
  return ckpt_tokenizer_build_row(build, text->text, (size_t)text->n, &flags, err);
}

static ckpt_status add_named(ckpt_tokenizer_build *build, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  for (int i = 0; i < N_NAMED; i++) {
    char key[32];
    snprintf(key, sizeof key, "%s_token", ckpt_special_name((ckpt_special)i));
    const ckpt_object *value = named(build, key);
    const char *plain = value != NULL ? NULL : token_of_class(out, (ckpt_special)i);
    if (value != NULL) CKPT_TRY(add_special(build, value, true, err));
    if (plain == NULL || is_added(build, plain, strlen(plain))) continue;
    const ckpt_added_token flags = {.is_special = true};
    CKPT_TRY(ckpt_tokenizer_build_row(build, plain, strlen(plain), &flags, err));
  }
  return CKPT_OK;
}

/* Whether a key names a special token that only this model has ("image_token"). */
static bool is_models_own(const ckpt_object *key) {
  const size_t n = (size_t)key->n;
  if (key->kind != CKPT_OBJECT_TEXT || n < 6 || memcmp(key->text + n - 6, "_token", 6) != 0) return false;
  for (int i = 0; i < N_NAMED; i++) {
    const char *name = ckpt_special_name((ckpt_special)i);
    if (strlen(name) == n - 6 && memcmp(name, key->text, n - 6) == 0) return false;
  }
  return true;
}

/* Special tokens without one of the usual names. */
static ckpt_status add_extras(ckpt_tokenizer_build *build, ckpt_error *err) {
  const ckpt_object *config = build->out->config, *extras = named(build, "extra_special_tokens");
  for (uint64_t i = 0; config != NULL && i < config->n; i++)
    if (is_models_own(config->items[2 * i]) && config->items[2 * i + 1]->kind == CKPT_OBJECT_TEXT)
      CKPT_TRY(add_special(build, config->items[2 * i + 1], true, err));
  if (extras == NULL || extras->n == 0) extras = named(build, "additional_special_tokens");
  if (extras == NULL) return CKPT_OK;
  const bool is_dict = extras->kind == CKPT_OBJECT_DICT;
  for (uint64_t i = 0; (is_dict || extras->kind == CKPT_OBJECT_LIST) && i < extras->n; i++)
    CKPT_TRY(add_special(build, extras->items[is_dict ? 2 * i + 1 : i], false, err));
  return CKPT_OK;
}

/* Whether added_tokens.json's token is one of the special ones. */
static bool is_special_text(const ckpt_tokenizer_build *build, const ckpt_object *text) {
  char key[32];
  for (int i = 0; i < N_NAMED; i++) {
    snprintf(key, sizeof key, "%s_token", ckpt_special_name((ckpt_special)i));
    const ckpt_object *one = content_of(named(build, key));
    if (one != NULL && one->n == text->n && memcmp(one->text, text->text, (size_t)text->n) == 0) return true;
  }
  const ckpt_object *extras = named(build, "extra_special_tokens"), *config = build->out->config;
  if ((extras == NULL || extras->n == 0) && config != NULL)
    extras = ckpt_object_get(config, "additional_special_tokens"); /* those of the map count for nothing here */
  for (uint64_t i = 0; extras != NULL && extras->kind == CKPT_OBJECT_LIST && i < extras->n && i < 1024; i++) {
    const ckpt_object *one = content_of(extras->items[i]);
    if (one != NULL && one->n == text->n && memcmp(one->text, text->text, (size_t)text->n) == 0) return true;
  }
  return false;
}

static void find_specials(ckpt_tokenizer_build *build) {
  ckpt_tokenizer *out = build->out;
  char key[32];
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    snprintf(key, sizeof key, "%s_token", ckpt_special_name((ckpt_special)i));
    const ckpt_object *text = out->config == NULL ? NULL : content_of(ckpt_object_get(out->config, key));
    if (text == NULL && build->map != NULL) text = content_of(ckpt_object_get(build->map, key));
    if (text != NULL) out->special[i] = ckpt_spellings_find(&build->spellings, text->text, (size_t)text->n);
  }
}

ckpt_status ckpt_tokenizer_add_stated(ckpt_tokenizer_build *build, ckpt_error *err) {
  const ckpt_object *decoder = decoder_of(build);
  stated *list;
  size_t n;
  CKPT_TRY(list_stated(&list, &n, decoder != NULL ? decoder : build->added_json, decoder != NULL, err));
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < n && status == CKPT_OK; i++) {
    const bool is_special =
        list[i].row != NULL ? flag_of(list[i].row, "special", false) : is_special_text(build, list[i].text);
    const ckpt_added_token flags = list[i].row != NULL
                                       ? flags_of(list[i].row, is_special)
                                       : (ckpt_added_token){.is_special = is_special, .is_normalized = !is_special};
    const bool stays = list[i].row == NULL && is_added(build, list[i].text->text, (size_t)list[i].text->n);
    if (!stays) status = ckpt_tokenizer_build_row(build, list[i].text->text, (size_t)list[i].text->n, &flags, err);
  }
  free(list);
  if (status == CKPT_OK) status = add_named(build, err);
  if (status == CKPT_OK) status = add_extras(build, err);
  if (status == CKPT_OK) find_specials(build);
  return status;
}

/* ---- as the converter places them ------------------------------------------------------------------------------ */

static ckpt_status place(ckpt_tokenizer_build *build, const stated *one, ckpt_error *err) {
  const uint32_t n_vocab = build->ggml->n_vocab != 0 ? build->ggml->n_vocab : build->n_model;
  const size_t n = (size_t)one->text->n;
  if (one->id >= n_vocab) {
    build->out->n_dropped++;
    return CKPT_OK;
  }
  const bool is_control =
      one->row != NULL && (flag_of(one->row, "special", false) || ckpt_token_looks_special(one->text->text));
  if (one->id < build->out->n_tokens && build->tokens[one->id].text != NULL &&
      ckpt_spellings_find(&build->spellings, one->text->text, n) != one->id) {
    build->tokens[one->id].text = NULL; /* it takes the place of a piece */
    build->tokens[one->id].n_bytes = 0;
  }
  const ckpt_added_token flags = {.is_special = is_control};
  CKPT_TRY(ckpt_tokenizer_build_added(build, one->text->text, n, one->id, &flags, err));
  if (n == 0) return CKPT_OK;
  build->tokens[one->id].score = placed_score;
  build->tokens[one->id].type = is_control ? CKPT_TOKEN_CONTROL : CKPT_TOKEN_USER_DEFINED;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_place_stated(ckpt_tokenizer_build *build, ckpt_error *err) {
  for (int is_decoder = 0; is_decoder < 2; is_decoder++) {
    stated *list;
    size_t n;
    CKPT_TRY(list_stated(&list, &n, is_decoder ? decoder_of(build) : build->added_json, is_decoder != 0, err));
    ckpt_status status = CKPT_OK;
    for (size_t i = 0; i < n && status == CKPT_OK; i++) status = place(build, &list[i], err);
    free(list);
    CKPT_TRY(status);
  }
  find_specials(build);
  return CKPT_OK;
}
