/* steps.c - the trees of a tokenizer.json (normalizer, pre_tokenizer, post_processor, decoder) as steps to run.
 *
 * Each is a type or a Sequence of them. A type that is not here is refused by its name: text would be cut another way.
 */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"

/* \w as Unicode's annex on regular expressions has it, which the Whitespace of `tokenizers` goes by. */
#define UNICODE_WORDS                                                                                                \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200c}\\x{200d}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}" \
  "\\x{1f170}-\\x{1f189}"

enum { MAX_STEPS = 64 };

#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

/* Steps of all four kinds while they are gathered. */
typedef struct steps {
  ckpt_tokenizer_build *build;
  ckpt_tokenizer *out;
  ckpt_normalize_step normalizer[MAX_STEPS];
  ckpt_split splits[MAX_STEPS];
  ckpt_decode_step decoder[MAX_STEPS];
  bool has_byte_level, has_template;
} steps;

typedef ckpt_status read_step(steps *s, const char *type, const ckpt_object *tree, ckpt_error *err);

static ckpt_status unsupported(const steps *s, const char *what, const char *type, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, s->build->file, NULL, "a %s of type %.60s", what, type);
}

static ckpt_status malformed(const steps *s, const char *what, const char *type, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, s->build->file, NULL, "a %s of type %.60s that lacks its settings", what, type);
}

/* A text of a tree without NUL; NULL: it has none. */
static const char *text_of(const ckpt_object *tree, const char *key) {
  const ckpt_object *value = ckpt_object_field(tree, key);
  if (value == NULL || value->kind != CKPT_OBJECT_TEXT || strlen(value->text) != value->n) return NULL;
  return value->text;
}

static bool bool_of(const ckpt_object *tree, const char *key, bool if_absent) {
  const ckpt_object *value = ckpt_object_field(tree, key);
  return value != NULL && value->kind == CKPT_OBJECT_BOOL ? value->boolean : if_absent;
}

static uint32_t count_of(const ckpt_object *tree, const char *key) {
  const ckpt_object *value = ckpt_object_field(tree, key);
  if (value == NULL || value->kind != CKPT_OBJECT_INT || value->integer < 0) return 0;
  return value->integer > 1 << 20 ? 1 << 20 : (uint32_t)value->integer;
}

/* Calls take for a tree, or for each of a Sequence's. */
static ckpt_status walk(steps *s, const ckpt_object *tree, const char *what, const char *list_key, read_step *take,
                        uint32_t depth, ckpt_error *err) {
  if (tree == NULL) return CKPT_OK;
  const char *type = text_of(tree, "type");
  if (type == NULL || depth > 8) return ckpt_fail(err, CKPT_EFORMAT, s->build->file, NULL, "a %s without a type", what);
  if (strcmp(type, "Sequence") != 0) return take(s, type, tree, err);
  const ckpt_object *list = ckpt_object_field(tree, list_key);
  if (list == NULL || list->kind != CKPT_OBJECT_LIST) return malformed(s, what, type, err);
  for (uint64_t i = 0; i < list->n; i++) CKPT_TRY(walk(s, list->items[i], what, list_key, take, depth + 1, err));
  return CKPT_OK;
}

/* {"String": text} or {"Regex": text}. */
static bool pattern_of(const ckpt_object *tree, const char **literal, const char **regex) {
  const ckpt_object *pattern = ckpt_object_field(tree, "pattern");
  *literal = pattern == NULL ? NULL : text_of(pattern, "String");
  *regex = pattern == NULL ? NULL : text_of(pattern, "Regex");
  return *literal != NULL || *regex != NULL;
}

static ckpt_status too_many(const steps *s, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ELIMIT, s->build->file, NULL, "more than %d steps of a %s", MAX_STEPS, what);
}

/* ---- normalizer ---------------------------------------------------------------------------------------------- */

static ckpt_status read_normalizer(steps *s, const char *type, const ckpt_object *tree, ckpt_error *err) {
  static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
  if (s->out->n_normalizer == MAX_STEPS) return too_many(s, "normalizer", err);
  ckpt_normalize_step step = {0};
  bool is_known = false;
  for (int i = 0; i < 4; i++)
    if (strcmp(type, forms[i]) == 0) is_known = true, step.kind = (ckpt_normalize_kind)i;
  if (strcmp(type, "Prepend") == 0) {
    step = (ckpt_normalize_step){.kind = CKPT_NORMALIZE_PREPEND, .to = text_of(tree, "prepend")};
    if (step.to == NULL) return malformed(s, "normalizer", type, err);
  } else if (strcmp(type, "Replace") == 0) {
    step = (ckpt_normalize_step){.kind = CKPT_NORMALIZE_REPLACE, .to = text_of(tree, "content")};
    if (step.to == NULL || !pattern_of(tree, &step.from, &step.regex)) return malformed(s, "normalizer", type, err);
    if (step.from != NULL && step.from[0] == '\0') return malformed(s, "normalizer", type, err);
  } else if (strcmp(type, "Strip") == 0) {
    step = (ckpt_normalize_step){.kind = CKPT_NORMALIZE_STRIP,
                                 .left = bool_of(tree, "strip_left", true),
                                 .right = bool_of(tree, "strip_right", true)};
  } else if (!is_known) {
    return unsupported(s, "normalizer", type, err);
  }
  s->normalizer[s->out->n_normalizer++] = step;
  return CKPT_OK;
}

/* ---- pre-tokenizer ------------------------------------------------------------------------------------------- */

static ckpt_status add_split(steps *s, ckpt_split split, ckpt_error *err) {
  if (s->out->n_splits == MAX_STEPS) return too_many(s, "pre_tokenizer", err);
  s->splits[s->out->n_splits++] = split;
  return CKPT_OK;
}

static bool behavior_of(const ckpt_object *tree, ckpt_split_behavior *out) {
  static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  const char *name = text_of(tree, "behavior");
  for (int i = 0; name != NULL && i < 5; i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (ckpt_split_behavior)i;
      return true;
    }
  return false;
}

static ckpt_status read_byte_level(steps *s, const ckpt_object *tree, ckpt_error *err) {
  s->has_byte_level = true;
  if (bool_of(tree, "add_prefix_space", true)) {
    if (s->out->n_splits != 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, s->build->file, NULL,
                       "a pre_tokenizer ByteLevel with add_prefix_space behind another step");
    s->out->prefix = CKPT_PREFIX_ALWAYS;
  }
  if (!bool_of(tree, "use_regex", true)) return CKPT_OK;
  return add_split(s, (ckpt_split){.regex = ckpt_gpt2_regex, .behavior = CKPT_SPLIT_ISOLATED}, err);
}

static ckpt_status read_metaspace(steps *s, const ckpt_object *tree, ckpt_error *err) {
  const char *mark = text_of(tree, "replacement"), *scheme = text_of(tree, "prepend_scheme");
  if (mark == NULL || strcmp(mark, SPACE_MARK) != 0 || s->out->n_splits != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, s->build->file, NULL,
                     "a pre_tokenizer Metaspace behind another step, or with another mark than U+2581");
  s->out->escapes_spaces = true;
  if (scheme == NULL) scheme = bool_of(tree, "add_prefix_space", true) ? "always" : "never";
  s->out->prefix = strcmp(scheme, "never") == 0   ? CKPT_PREFIX_NEVER
                   : strcmp(scheme, "first") == 0 ? CKPT_PREFIX_FIRST
                                                  : CKPT_PREFIX_ALWAYS;
  if (!bool_of(tree, "split", true)) return CKPT_OK;
  return add_split(s, (ckpt_split){.literal = SPACE_MARK, .behavior = CKPT_SPLIT_MERGED_WITH_NEXT}, err);
}

static ckpt_status read_pre_tokenizer(steps *s, const char *type, const ckpt_object *tree, ckpt_error *err) {
  ckpt_split split = {.behavior = CKPT_SPLIT_ISOLATED};
  if (s->has_byte_level)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, s->build->file, NULL, "a pre_tokenizer %.60s behind ByteLevel", type);
  if (strcmp(type, "ByteLevel") == 0) return read_byte_level(s, tree, err);
  if (strcmp(type, "Metaspace") == 0) return read_metaspace(s, tree, err);
  if (strcmp(type, "Digits") == 0) {
    split.regex = bool_of(tree, "individual_digits", false) ? "\\p{N}" : "\\p{N}+";
  } else if (strcmp(type, "Punctuation") == 0) {
    ckpt_split_behavior behavior = CKPT_SPLIT_ISOLATED;
    (void)behavior_of(tree, &behavior);
    split.regex = ckpt_punctuation_regex;
    if (behavior != CKPT_SPLIT_CONTIGUOUS) return unsupported(s, "pre_tokenizer", "Punctuation, not contiguous", err);
  } else if (strcmp(type, "WhitespaceSplit") == 0) {
    split = (ckpt_split){.regex = "\\s", .behavior = CKPT_SPLIT_REMOVED};
  } else if (strcmp(type, "Whitespace") == 0) {
    split = (ckpt_split){
        .regex = "[" UNICODE_WORDS "]+|[^" UNICODE_WORDS "\\s]+", .behavior = CKPT_SPLIT_REMOVED, .is_inverted = true};
  } else if (strcmp(type, "Split") == 0) {
    split.is_inverted = bool_of(tree, "invert", false);
    if (!pattern_of(tree, &split.literal, &split.regex) || !behavior_of(tree, &split.behavior))
      return malformed(s, "pre_tokenizer", type, err);
  } else {
    return unsupported(s, "pre_tokenizer", type, err);
  }
  return add_split(s, split, err);
}

/* ---- post-processor ------------------------------------------------------------------------------------------ */

static ckpt_status add_end(steps *s, bool is_before, uint64_t id, ckpt_error *err) {
  ckpt_tokenizer *out = s->out;
  if (id >= out->n_tokens || s->build->tokens[id].text == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, s->build->file, NULL, "the post_processor puts in id %llu, which is no token",
                     (unsigned long long)id);
  const uint32_t **list = is_before ? &out->before : &out->after;
  uint32_t *n = is_before ? &out->n_before : &out->n_after;
  if (*n == MAX_STEPS) return too_many(s, "post_processor", err);
  uint32_t *longer = ckpt_arena_array(&out->arena, *n + 1, sizeof *longer);
  CKPT_TRY_ALLOC(longer, err);
  if (*n != 0) memcpy(longer, *list, *n * sizeof *longer);
  longer[(*n)++] = (uint32_t)id;
  *list = longer;
  return CKPT_OK;
}

/* The ids of one piece of a template: {"SpecialToken": {"id"}} by special_tokens[id].ids. */
static ckpt_status read_piece(steps *s, const ckpt_object *tree, const ckpt_object *piece, bool is_before,
                              ckpt_error *err) {
  const ckpt_object *special = ckpt_object_field(piece, "SpecialToken");
  const char *name = special == NULL ? NULL : text_of(special, "id");
  const ckpt_object *entry = name == NULL ? NULL : ckpt_object_get(ckpt_object_field(tree, "special_tokens"), name);
  const ckpt_object *ids = entry == NULL ? NULL : ckpt_object_field(entry, "ids");
  if (ids == NULL || ids->kind != CKPT_OBJECT_LIST) return malformed(s, "post_processor", "TemplateProcessing", err);
  for (uint64_t i = 0; i < ids->n; i++) {
    const ckpt_object *id = ids->items[i];
    CKPT_TRY(add_end(s, is_before, id->kind == CKPT_OBJECT_INT ? (uint64_t)id->integer : UINT64_MAX, err));
  }
  return CKPT_OK;
}

static ckpt_status read_template(steps *s, const ckpt_object *tree, ckpt_error *err) {
  const ckpt_object *single = ckpt_object_field(tree, "single");
  if (single == NULL || single->kind != CKPT_OBJECT_LIST)
    return malformed(s, "post_processor", "TemplateProcessing", err);
  bool is_before = true;
  for (uint64_t i = 0; i < single->n; i++) {
    if (ckpt_object_field(single->items[i], "Sequence") == NULL) {
      CKPT_TRY(read_piece(s, tree, single->items[i], is_before, err));
      continue;
    }
    if (!is_before) return unsupported(s, "post_processor", "TemplateProcessing, with the text twice", err);
    is_before = false;
  }
  return is_before ? unsupported(s, "post_processor", "TemplateProcessing, without the text", err) : CKPT_OK;
}

/* ["</s>", 2] */
static ckpt_status read_named(steps *s, const ckpt_object *tree, const char *key, bool is_before, ckpt_error *err) {
  const ckpt_object *pair = ckpt_object_field(tree, key);
  if (pair == NULL || pair->kind != CKPT_OBJECT_LIST || pair->n != 2 || pair->items[1]->kind != CKPT_OBJECT_INT)
    return malformed(s, "post_processor", "RobertaProcessing", err);
  return add_end(s, is_before, (uint64_t)pair->items[1]->integer, err);
}

static ckpt_status read_post_processor(steps *s, const char *type, const ckpt_object *tree, ckpt_error *err) {
  if (strcmp(type, "ByteLevel") == 0) return CKPT_OK; /* it trims offsets, which are kept whole here */
  if (s->has_template) return unsupported(s, "post_processor", "Sequence, with two templates", err);
  s->has_template = true;
  if (strcmp(type, "TemplateProcessing") == 0) return read_template(s, tree, err);
  if (strcmp(type, "RobertaProcessing") != 0 && strcmp(type, "BertProcessing") != 0)
    return unsupported(s, "post_processor", type, err);
  CKPT_TRY(read_named(s, tree, "cls", true, err));
  return read_named(s, tree, "sep", false, err);
}

/* ---- decoder --------------------------------------------------------------------------------------------------- */

static ckpt_status read_decoder(steps *s, const char *type, const ckpt_object *tree, ckpt_error *err) {
  ckpt_decode_step step = {0};
  const char *regex;
  if (s->out->n_decoder == MAX_STEPS) return too_many(s, "decoder", err);
  if (strcmp(type, "ByteLevel") == 0) {
    if (s->out->n_decoder != 0) return unsupported(s, "decoder", "ByteLevel behind another step", err);
    step.kind = CKPT_DECODE_BYTE_LEVEL;
  } else if (strcmp(type, "ByteFallback") == 0) {
    step.kind = CKPT_DECODE_BYTE_FALLBACK;
  } else if (strcmp(type, "Fuse") == 0) {
    step.kind = CKPT_DECODE_FUSE;
  } else if (strcmp(type, "Replace") == 0) {
    step = (ckpt_decode_step){.kind = CKPT_DECODE_REPLACE, .to = text_of(tree, "content")};
    if (!pattern_of(tree, &step.from, &regex) || step.to == NULL) return malformed(s, "decoder", type, err);
    if (step.from == NULL || step.from[0] == '\0') return unsupported(s, "decoder", "Replace, by a regex", err);
  } else if (strcmp(type, "Strip") == 0) {
    step = (ckpt_decode_step){.kind = CKPT_DECODE_STRIP,
                              .from = text_of(tree, "content"),
                              .start = count_of(tree, "start"),
                              .stop = count_of(tree, "stop")};
    if (step.from == NULL || step.from[0] == '\0') return malformed(s, "decoder", type, err);
  } else if (strcmp(type, "Metaspace") == 0) {
    const char *scheme = text_of(tree, "prepend_scheme");
    step = (ckpt_decode_step){.kind = CKPT_DECODE_METASPACE, .from = SPACE_MARK, .to = " "};
    step.prefix = scheme != NULL && strcmp(scheme, "never") == 0 ? CKPT_PREFIX_NEVER : CKPT_PREFIX_ALWAYS;
  } else {
    return unsupported(s, "decoder", type, err);
  }
  s->decoder[s->out->n_decoder++] = step;
  return CKPT_OK;
}

/* ---- all of them --------------------------------------------------------------------------------------------- */

static ckpt_status keep(const void **out, ckpt_tokenizer *tokenizer, const void *items, size_t n, size_t item_bytes,
                        ckpt_error *err) {
  void *copy = ckpt_arena_array(&tokenizer->arena, n + 1, item_bytes);
  CKPT_TRY_ALLOC(copy, err);
  memcpy(copy, items, n * item_bytes);
  *out = copy;
  return CKPT_OK;
}

static ckpt_status keep_all(steps *s, ckpt_error *err) {
  ckpt_tokenizer *out = s->out;
  CKPT_TRY(keep((const void **)&out->normalizer, out, s->normalizer, out->n_normalizer, sizeof *s->normalizer, err));
  CKPT_TRY(keep((const void **)&out->splits, out, s->splits, out->n_splits, sizeof *s->splits, err));
  return keep((const void **)&out->decoder, out, s->decoder, out->n_decoder, sizeof *s->decoder, err);
}

/* What kind of BPE it is, by what stands around it. */
static ckpt_status decide_kind(steps *s, ckpt_error *err) {
  ckpt_tokenizer *out = s->out;
  bool is_spm = out->has_byte_fallback || out->escapes_spaces, is_byte = s->has_byte_level;
  for (uint32_t i = 0; i < out->n_decoder; i++) is_byte = is_byte || s->decoder[i].kind == CKPT_DECODE_BYTE_LEVEL;
  if (s->has_byte_level && !is_spm) {
    out->kind = CKPT_TOKENIZER_BYTE_BPE;
    return CKPT_OK;
  }
  out->kind = CKPT_TOKENIZER_SPM_BPE;
  if (is_spm && !is_byte) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, s->build->file, NULL,
                   "a BPE that is neither byte-level (pre_tokenizer ByteLevel) nor sentencepiece's (byte_fallback)");
}

ckpt_status ckpt_tokenizer_read_steps(ckpt_tokenizer_build *build, ckpt_error *err) {
  steps *s = calloc(1, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  ckpt_tokenizer *out = s->out = build->out;
  s->build = build;
  ckpt_status status;
  const ckpt_object *const *trees = out->trees;
  CKPT_TRY_GOTO(walk(s, trees[CKPT_TREE_NORMALIZER], "normalizer", "normalizers", read_normalizer, 0, err));
  CKPT_TRY_GOTO(walk(s, trees[CKPT_TREE_PRE_TOKENIZER], "pre_tokenizer", "pretokenizers", read_pre_tokenizer, 0, err));
  CKPT_TRY_GOTO(walk(s, trees[CKPT_TREE_POST_PROCESSOR], "post_processor", "processors", read_post_processor, 0, err));
  CKPT_TRY_GOTO(walk(s, trees[CKPT_TREE_DECODER], "decoder", "decoders", read_decoder, 0, err));
  CKPT_TRY_GOTO(decide_kind(s, err));
  CKPT_TRY_GOTO(keep_all(s, err));
done:
  free(s);
  return status;
}

ckpt_status ckpt_tokenizer_assume_bytes(ckpt_tokenizer_build *build, const char *pre, ckpt_error *err) {
  static const ckpt_decode_step decoder = {.kind = CKPT_DECODE_BYTE_LEVEL};
  static const ckpt_normalize_step nfc = {.kind = CKPT_NORMALIZE_NFC};
  ckpt_tokenizer *out = build->out;
  const ckpt_pre *row = ckpt_pre_find(pre == NULL ? "gpt-2" : pre);
  if (row == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, build->file, NULL, "'%.60s' names no way of cutting text that is known",
                     pre);
  out->kind = CKPT_TOKENIZER_BYTE_BPE;
  CKPT_TRY(ckpt_pre_splits(&out->splits, &out->n_splits, row, &out->arena, err));
  out->decoder = &decoder;
  out->n_decoder = 1;
  out->ignores_merges = row->ignores_merges;
  if (row->has_nfc) out->normalizer = &nfc, out->n_normalizer = 1;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_assume_spm(ckpt_tokenizer_build *build, bool has_prefix, ckpt_error *err) {
  static const ckpt_normalize_step normalizer[] = {{.kind = CKPT_NORMALIZE_PREPEND, .to = SPACE_MARK},
                                                   {.kind = CKPT_NORMALIZE_REPLACE, .from = " ", .to = SPACE_MARK}};
  static const ckpt_decode_step decoder[] = {{.kind = CKPT_DECODE_REPLACE, .from = SPACE_MARK, .to = " "},
                                             {.kind = CKPT_DECODE_BYTE_FALLBACK},
                                             {.kind = CKPT_DECODE_FUSE},
                                             {.kind = CKPT_DECODE_STRIP, .from = " ", .start = 1}};
  (void)err;
  build->out->kind = CKPT_TOKENIZER_SPM_BPE;
  build->out->has_byte_fallback = build->out->fuses_unknown = true;
  build->out->normalizer = normalizer + !has_prefix;
  build->out->n_normalizer = has_prefix ? 2 : 1;
  build->out->decoder = decoder;
  build->out->n_decoder = has_prefix ? 4 : 3;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_assume_ends(ckpt_tokenizer_build *build, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  steps s = {.build = build, .out = out};
  if (out->adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_YES && out->special[CKPT_SPECIAL_BOS] != CKPT_TOKEN_NONE)
    CKPT_TRY(add_end(&s, true, out->special[CKPT_SPECIAL_BOS], err));
  if (out->adds[CKPT_SPECIAL_EOS] == CKPT_FLAG_YES && out->special[CKPT_SPECIAL_EOS] != CKPT_TOKEN_NONE)
    CKPT_TRY(add_end(&s, false, out->special[CKPT_SPECIAL_EOS], err));
  return CKPT_OK;
}
