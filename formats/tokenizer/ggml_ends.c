/* ggml_ends.c - which special tokens GGUF names, and which it says are put around a text: as llama.cpp's converter
 * decides, from tokenizer.json's post-processor, then tokenizer_config.json, then config.json, in this order.
 *
 * Where llama.cpp would do by itself what the tokenizer does not, the key says so, which the converter leaves out. */
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/ggml.h"
#include "formats/tokenizer/pre.h"

/* A special token as tokenizer_config.json has it; the converter compares none that is a dict. */
typedef struct name {
  const char *text; /* NULL: none */
  bool is_dict;
} name;

typedef struct chooser {
  ckpt_ggml_ends *out;
  const ckpt_tokenizer *t;
  name names[CKPT_N_SPECIALS];
  bool has_config, has_eot, has_eom; /* eot, eom: what EOS was before the post-processor had another */
} chooser;

static bool is_same(const name *a, const char *text) {
  return a->text != NULL && !a->is_dict && strcmp(a->text, text) == 0;
}

static void take_name(chooser *c, ckpt_special special, const ckpt_object *value) {
  const bool is_dict = value != NULL && value->kind == CKPT_OBJECT_DICT;
  if (is_dict) value = ckpt_object_field(value, "content");
  if (value != NULL && value->kind == CKPT_OBJECT_TEXT && value->n != 0)
    c->names[special] = (name){value->text, is_dict};
}

/* Sets a flag. One that is set keeps its value, unless this overrides it. */
static void say(chooser *c, ckpt_special special, bool is_added, bool overrides) {
  ckpt_ggml_ends *out = c->out;
  uint32_t i = 0;
  while (i < out->n_flags && out->flags[i].special != special) i++;
  if (i < out->n_flags && !overrides) return;
  out->flags[i].special = special;
  out->flags[i].is_added = is_added;
  if (i == out->n_flags) out->n_flags++;
}

static bool is_said(const chooser *c, ckpt_special special) {
  for (uint32_t i = 0; i < c->out->n_flags; i++)
    if (c->out->flags[i].special == special) return true;
  return false;
}

static void add_id(chooser *c, ckpt_special special, uint32_t id) {
  ckpt_ggml_ends *out = c->out;
  if (id == CKPT_TOKEN_NONE || special == CKPT_SPECIAL_CLS) return; /* GGUF has no key for CLS */
  for (uint32_t i = 0; i < out->n_ids; i++)
    if (out->ids[i].special == special) return;
  out->ids[out->n_ids].special = special;
  out->ids[out->n_ids++].id = id;
}

/* ---- the post-processor ------------------------------------------------------------------------------------------ */

static const char *text_field(const ckpt_object *tree, const char *key) {
  const ckpt_object *value = tree == NULL ? NULL : ckpt_object_field(tree, key);
  return value != NULL && value->kind == CKPT_OBJECT_TEXT && value->n != 0 ? value->text : NULL;
}

static const char *special_of(const ckpt_object *piece) {
  return text_field(ckpt_object_field(piece, "SpecialToken"), "id");
}

static bool is_sequence(const ckpt_object *piece, const char *which) {
  const char *id = text_field(ckpt_object_field(piece, "Sequence"), "id");
  return id != NULL && strcmp(id, which) == 0;
}

static const ckpt_object *pieces_of(const ckpt_object *tree, const char *key) {
  const ckpt_object *list = ckpt_object_field(tree, key);
  return list != NULL && list->kind == CKPT_OBJECT_LIST && list->n != 0 ? list : NULL;
}

static void choose_first(chooser *c, const char *first) {
  name *bos = &c->names[CKPT_SPECIAL_BOS], *cls = &c->names[CKPT_SPECIAL_CLS];
  if (!c->has_config) {
    *bos = (name){first, false};
  } else if (!is_same(bos, first) && !is_same(cls, first)) {
    if (bos->text == NULL) *bos = (name){first, false};
    if (cls->text == NULL) *cls = (name){first, false};
  }
  say(c, CKPT_SPECIAL_BOS, is_same(bos, first) || is_same(cls, first), true);
}

static void choose_last(chooser *c, const char *last) {
  name *eos = &c->names[CKPT_SPECIAL_EOS];
  if (c->has_config && !is_same(eos, last)) {
    if (!c->has_eot)
      c->names[CKPT_SPECIAL_EOT] = *eos, c->has_eot = true;
    else
      c->names[CKPT_SPECIAL_EOM] = *eos, c->has_eom = true;
  }
  *eos = (name){last, false};
  say(c, CKPT_SPECIAL_EOS, true, true);
}

/* Whether a separator stands between two texts: said where anything does. */
static void choose_separator(chooser *c, const ckpt_object *pair, const char *first, const char *last) {
  const name *sep = &c->names[CKPT_SPECIAL_SEP], *eos = &c->names[CKPT_SPECIAL_EOS];
  uint64_t begin = 0, end = pair->n;
  const char *text = special_of(pair->items[0]);
  if (first != NULL && text != NULL && strcmp(text, first) == 0) begin++;
  text = special_of(pair->items[end - 1]);
  if (last != NULL && text != NULL && strcmp(text, last) == 0) end--;
  if (end < begin + 3 || !is_sequence(pair->items[begin], "A") || !is_sequence(pair->items[end - 1], "B")) return;
  bool adds = false;
  text = special_of(pair->items[begin + 1]);
  if (text != NULL && last == NULL) adds = is_same(sep, text) || is_same(eos, text);
  text = end - begin == 4 ? special_of(pair->items[begin + 2]) : NULL;
  if (text != NULL) adds = adds || is_same(sep, text) || is_same(eos, text);
  say(c, CKPT_SPECIAL_SEP, adds, true);
  if (adds && sep->text == NULL && c->has_config) c->names[CKPT_SPECIAL_SEP] = *eos;
}

static void choose_template(chooser *c, const ckpt_object *tree) {
  const ckpt_object *single = pieces_of(tree, "single"), *pair = pieces_of(tree, "pair");
  const char *first = NULL, *last = NULL;
  if (single != NULL && single->n > 1) {
    first = special_of(single->items[0]);
    last = special_of(single->items[single->n - 1]);
    if (first != NULL) choose_first(c, first);
    if (last != NULL) choose_last(c, last);
  }
  if (pair != NULL) choose_separator(c, pair, first, last);
}

/* The token of a pair ["</s>", 2], where the config names none. */
static void name_by(chooser *c, ckpt_special special, const ckpt_object *tree, const char *key) {
  const ckpt_object *pair = pieces_of(tree, key);
  if (c->has_config && c->names[special].text == NULL && pair != NULL) take_name(c, special, pair->items[0]);
}

static void choose_by(chooser *c, const ckpt_object *tree) {
  const char *type = text_field(tree, "type");
  if (type == NULL) return;
  if (strcmp(type, "ByteLevel") == 0) {
    say(c, CKPT_SPECIAL_BOS, false, false);
    say(c, CKPT_SPECIAL_EOS, false, false);
  } else if (strcmp(type, "RobertaProcessing") == 0) {
    say(c, CKPT_SPECIAL_BOS, true, true);
    say(c, CKPT_SPECIAL_EOS, true, true);
    say(c, CKPT_SPECIAL_SEP, true, true);
    name_by(c, CKPT_SPECIAL_CLS, tree, "cls");
    name_by(c, CKPT_SPECIAL_SEP, tree, "sep");
  } else if (strcmp(type, "TemplateProcessing") == 0) {
    choose_template(c, tree);
  }
}

static void choose_by_post_processor(chooser *c) {
  const ckpt_object *tree = c->t->trees[CKPT_TREE_POST_PROCESSOR];
  name *names = c->names;
  if (c->has_config && names[CKPT_SPECIAL_BOS].text == NULL) names[CKPT_SPECIAL_BOS] = names[CKPT_SPECIAL_CLS];
  if (c->has_config && names[CKPT_SPECIAL_EOS].text == NULL) names[CKPT_SPECIAL_EOS] = names[CKPT_SPECIAL_SEP];
  if (tree == NULL) return;
  const ckpt_object *list = ckpt_object_field(tree, "processors");
  if (list == NULL || list->kind != CKPT_OBJECT_LIST) choose_by(c, tree);
  for (uint64_t i = 0; list != NULL && list->kind == CKPT_OBJECT_LIST && i < list->n; i++) choose_by(c, list->items[i]);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* The id of a token that tokenizer.json lists. */
static uint32_t listed_id(const ckpt_tokenizer *t, const char *text) {
  for (uint32_t i = 0; text != NULL && i < t->n_stated; i++)
    if (strcmp(t->tokens[t->added[i].id].text, text) == 0) return t->added[i].id;
  return CKPT_TOKEN_NONE;
}

/* What the converter does not know: tokens that only special_tokens_map.json names, or that tokenizer.json has without
 * listing them. Beside a tokenizer.model llama.cpp knows BOS, EOS and unknown by itself where they are Llama's. */
static void add_more_ids(chooser *c) {
  static const uint32_t llama[] = {1, 2, 0};
  const ckpt_tokenizer *t = c->t;
  for (int i = 0; i < CKPT_SPECIAL_EOT; i++) {
    const bool is_default = i <= CKPT_SPECIAL_UNK && t->special[i] == llama[i];
    if (t->origin != CKPT_TOKENIZER_OF_MODEL || (i <= CKPT_SPECIAL_UNK && !is_default))
      add_id(c, (ckpt_special)i, t->special[i]);
  }
  if (t->origin == CKPT_TOKENIZER_OF_JSON && t->n_before != 0 && t->special[CKPT_SPECIAL_CLS] == CKPT_TOKEN_NONE)
    add_id(c, CKPT_SPECIAL_BOS, t->before[0]);
}

/* Sets the flags of BOS and EOS where llama.cpp's default differs from what the tokenizer does. */
static void say_more(chooser *c, const char *pre) {
  const ckpt_tokenizer *t = c->t;
  const ckpt_pre *row = pre == NULL ? NULL : ckpt_pre_find(pre);
  const bool adds_bos = t->kind == CKPT_TOKENIZER_SPM_BPE || (row != NULL && row->adds_bos);
  if (!is_said(c, CKPT_SPECIAL_BOS) && adds_bos != (t->n_before != 0)) say(c, CKPT_SPECIAL_BOS, t->n_before != 0, true);
  if (!is_said(c, CKPT_SPECIAL_EOS) && t->n_after != 0) say(c, CKPT_SPECIAL_EOS, true, true);
}

void ckpt_ggml_ends_of(ckpt_ggml_ends *out, const ckpt_tokenizer *tokenizer, const char *pre) {
  const ckpt_tokenizer *t = tokenizer;
  chooser c = {.out = out, .t = t, .has_config = t->config != NULL};
  *out = (ckpt_ggml_ends){.n_ids = 0};
  for (int i = 0; t->config != NULL && i < CKPT_SPECIAL_EOT; i++) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    take_name(&c, (ckpt_special)i, ckpt_object_get(t->config, keys[i]));
  }
  if (t->origin == CKPT_TOKENIZER_OF_JSON) choose_by_post_processor(&c);
  const int n_kinds = c.has_eom ? CKPT_N_SPECIALS : c.has_eot ? CKPT_SPECIAL_EOM : CKPT_SPECIAL_EOT;
  for (int i = 0; t->origin != CKPT_TOKENIZER_OF_GGUF && i < n_kinds; i++) {
    if (t->adds[i] != CKPT_FLAG_UNSAID && i <= CKPT_SPECIAL_SEP && i != CKPT_SPECIAL_UNK)
      say(&c, (ckpt_special)i, t->adds[i] == CKPT_FLAG_YES, false);
    if (c.has_config) add_id(&c, (ckpt_special)i, listed_id(t, c.names[i].text));
  }
  for (int i = 0; t->origin != CKPT_TOKENIZER_OF_GGUF && i < n_kinds; i++)
    add_id(&c, (ckpt_special)i, t->model_special[i]);
  for (int i = 0; t->origin == CKPT_TOKENIZER_OF_GGUF && i < CKPT_N_SPECIALS; i++) {
    add_id(&c, (ckpt_special)i, t->special[i]);
    if (t->adds[i] != CKPT_FLAG_UNSAID && i <= CKPT_SPECIAL_SEP && i != CKPT_SPECIAL_UNK)
      say(&c, (ckpt_special)i, t->adds[i] == CKPT_FLAG_YES, false);
  }
  add_more_ids(&c);
  say_more(&c, pre);
}
