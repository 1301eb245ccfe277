/* print.c - a structure as tokenizer.json and tokenizer_config.json, so that what a GGUF file has becomes files whose
 * ids are the same. Every token stands in the vocabulary with its id: `tokenizers` numbers those that do not anew. */
#include <stdio.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"
#include "libckpt/io/stream.h"

typedef struct printer {
  ckpt_stream *out;
  const ckpt_tokenizer *t;
  bool has_items; /* of the list that is open */
} printer;

static void text(printer *p, const char *plain) { ckpt_stream_text(p->out, plain); }
static void quoted(printer *p, const char *value) { ckpt_stream_json(p->out, value, strlen(value)); }

static void begin(printer *p, const char *opening) {
  text(p, opening);
  p->has_items = false;
}

static void item(printer *p) {
  if (p->has_items) text(p, ",");
  p->has_items = true;
}

/* "key": "value" */
static void member(printer *p, const char *key, const char *value) {
  ckpt_stream_printf(p->out, "\"%s\":", key);
  quoted(p, value);
}

static void truth(printer *p, const char *key, bool value) {
  ckpt_stream_printf(p->out, ",\"%s\":%s", key, value ? "true" : "false");
}

/* Padding that stands for no token. */
static bool is_padding(const ckpt_tokenizer *t, uint32_t id) {
  char name[24];
  snprintf(name, sizeof name, "[PAD%u]", id);
  return t->tokens[id].text == NULL ||
         (t->tokens[id].type == CKPT_TOKEN_UNUSED && strcmp(t->tokens[id].text, name) == 0);
}

/* ---- the trees --------------------------------------------------------------------------------------------------- */

static void print_pattern(printer *p, const char *regex, const char *literal) {
  text(p, ",\"pattern\":{");
  member(p, regex != NULL ? "Regex" : "String", regex != NULL ? regex : literal);
  text(p, "}");
}

static void print_normalizer(printer *p) {
  static const char *const names[] = {"NFC", "NFD", "NFKC", "NFKD", "Prepend", "Replace", "Strip"};
  if (p->t->n_normalizer == 0) {
    text(p, "null");
    return;
  }
  begin(p, "{\"type\":\"Sequence\",\"normalizers\":[");
  for (uint32_t i = 0; i < p->t->n_normalizer; i++) {
    const ckpt_normalize_step *step = &p->t->normalizer[i];
    item(p);
    text(p, "{");
    member(p, "type", names[step->kind]);
    if (step->kind == CKPT_NORMALIZE_PREPEND) text(p, ","), member(p, "prepend", step->to);
    if (step->kind == CKPT_NORMALIZE_REPLACE) {
      print_pattern(p, step->regex, step->from);
      text(p, ",");
      member(p, "content", step->to);
    }
    if (step->kind == CKPT_NORMALIZE_STRIP) truth(p, "strip_left", step->left), truth(p, "strip_right", step->right);
    text(p, "}");
  }
  text(p, "]}");
}

static void print_split(printer *p, const ckpt_split *split) {
  static const char *const behaviors[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
  item(p);
  text(p, "{\"type\":\"Split\"");
  print_pattern(p, split->regex, split->literal);
  text(p, ",");
  member(p, "behavior", behaviors[split->behavior]);
  truth(p, "invert", split->is_inverted);
  text(p, "}");
}

static void print_pre_tokenizer(printer *p) {
  static const char *const schemes[] = {"never", "first", "always"};
  const ckpt_tokenizer *t = p->t;
  uint32_t n = t->n_splits;
  const bool is_byte = t->kind == CKPT_TOKENIZER_BYTE_BPE;
  const bool uses_regex =
      is_byte && n != 0 && t->splits[n - 1].regex != NULL && strcmp(t->splits[n - 1].regex, ckpt_gpt2_regex) == 0;
  if (n == 0 && !is_byte && !t->escapes_spaces) {
    text(p, "null");
    return;
  }
  begin(p, "{\"type\":\"Sequence\",\"pretokenizers\":[");
  if (t->escapes_spaces) {
    item(p);
    text(p, "{\"type\":\"Metaspace\",\"replacement\":\"\xE2\x96\x81\",");
    member(p, "prepend_scheme", schemes[t->prefix]);
    truth(p, "split", n != 0);
    text(p, "}");
  }
  for (uint32_t i = t->escapes_spaces && n != 0; i + uses_regex < n; i++) print_split(p, &t->splits[i]);
  if (is_byte) {
    item(p);
    text(p, "{\"type\":\"ByteLevel\"");
    truth(p, "add_prefix_space", t->prefix == CKPT_PREFIX_ALWAYS);
    truth(p, "trim_offsets", true);
    truth(p, "use_regex", uses_regex);
    text(p, "}");
  }
  text(p, "]}");
}

static void print_ends(printer *p, const uint32_t *ids, uint32_t n, uint32_t kind) {
  for (uint32_t i = 0; i < n; i++) {
    item(p);
    text(p, "{\"SpecialToken\":{");
    member(p, "id", p->t->tokens[ids[i]].text);
    ckpt_stream_printf(p->out, ",\"type_id\":%u}}", kind);
  }
}

static void print_sequence(printer *p, const char *name, uint32_t kind) {
  print_ends(p, p->t->before, p->t->n_before, kind);
  item(p);
  ckpt_stream_printf(p->out, "{\"Sequence\":{\"id\":\"%s\",\"type_id\":%u}}", name, kind);
  print_ends(p, p->t->after, p->t->n_after, kind);
}

static void print_end_ids(printer *p, const uint32_t *ids, uint32_t n, const uint32_t *before, uint32_t n_before) {
  for (uint32_t i = 0; i < n; i++) {
    bool is_known = false; /* each once */
    for (uint32_t k = 0; k < i; k++) is_known = is_known || ids[k] == ids[i];
    for (uint32_t k = 0; k < n_before; k++) is_known = is_known || before[k] == ids[i];
    if (is_known) continue;
    const char *name = p->t->tokens[ids[i]].text;
    item(p);
    quoted(p, name);
    text(p, ":{");
    member(p, "id", name);
    ckpt_stream_printf(p->out, ",\"ids\":[%u],\"tokens\":[", ids[i]);
    quoted(p, name);
    text(p, "]}");
  }
}

/* Of two texts the converter reads whether a separator is put between them: nothing stands there where none says so. */
static void print_pair(printer *p) {
  const ckpt_tokenizer *t = p->t;
  if (t->adds[CKPT_SPECIAL_SEP] == CKPT_FLAG_NO) {
    print_sequence(p, "A", 0);
    print_sequence(p, "B", 1);
    return;
  }
  print_ends(p, t->before, t->n_before, 0);
  item(p);
  text(p, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}");
  print_ends(p, t->after, t->n_after, 1);
}

/* ByteLevel, which trims offsets, is what the converter takes to say that no BOS and no EOS is added: it stands where
 * the structure says that of either. */
static void print_post_processor(printer *p) {
  static const char byte_level[] =
      "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":false,\"use_regex\":true}";
  const ckpt_tokenizer *t = p->t;
  const bool has_ends = t->n_before != 0 || t->n_after != 0, is_byte = t->kind == CKPT_TOKENIZER_BYTE_BPE;
  const bool lacks_bos = t->adds[CKPT_SPECIAL_BOS] == CKPT_FLAG_NO,
             lacks_eos = t->adds[CKPT_SPECIAL_EOS] == CKPT_FLAG_NO;
  const bool is_pair = is_byte && has_ends && (lacks_bos || lacks_eos);
  if (!has_ends) {
    text(p, is_byte && lacks_bos && lacks_eos ? byte_level : "null");
    return;
  }
  if (is_pair) text(p, "{\"type\":\"Sequence\",\"processors\":["), text(p, byte_level), text(p, ",");
  begin(p, "{\"type\":\"TemplateProcessing\",\"single\":[");
  print_sequence(p, "A", 0);
  begin(p, "],\"pair\":[");
  print_pair(p);
  begin(p, "],\"special_tokens\":{");
  print_end_ids(p, t->before, t->n_before, NULL, 0);
  print_end_ids(p, t->after, t->n_after, t->before, t->n_before);
  text(p, is_pair ? "}}]}" : "}}");
}

static void print_decoder(printer *p) {
  static const char *const names[] = {"ByteLevel", "ByteFallback", "Fuse", "Replace", "Strip", "Metaspace"};
  if (p->t->n_decoder == 0) {
    text(p, "null");
    return;
  }
  begin(p, "{\"type\":\"Sequence\",\"decoders\":[");
  for (uint32_t i = 0; i < p->t->n_decoder; i++) {
    const ckpt_decode_step *step = &p->t->decoder[i];
    item(p);
    text(p, "{");
    member(p, "type", names[step->kind]);
    if (step->kind == CKPT_DECODE_BYTE_LEVEL)
      text(p, ",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true");
    if (step->kind == CKPT_DECODE_REPLACE) {
      print_pattern(p, NULL, step->from);
      text(p, ",");
      member(p, "content", step->to);
    }
    if (step->kind == CKPT_DECODE_STRIP) {
      text(p, ",");
      member(p, "content", step->from);
      ckpt_stream_printf(p->out, ",\"start\":%u,\"stop\":%u", step->start, step->stop);
    }
    if (step->kind == CKPT_DECODE_METASPACE) {
      text(p, ",\"replacement\":\"\xE2\x96\x81\",");
      member(p, "prepend_scheme", step->prefix == CKPT_PREFIX_NEVER ? "never" : "always");
      truth(p, "split", true);
    }
    text(p, "}");
  }
  text(p, "]}");
}

/* ---- tokens ------------------------------------------------------------------------------------------------------ */

static void print_added(printer *p) {
  begin(p, "[");
  for (uint32_t i = 0; i < p->t->n_added; i++) {
    const ckpt_added_token *added = &p->t->added[i];
    const ckpt_token *token = &p->t->tokens[added->id];
    item(p);
    ckpt_stream_printf(p->out, "{\"id\":%u,\"content\":", added->id);
    ckpt_stream_json(p->out, token->text, token->n_bytes);
    truth(p, "single_word", added->is_single_word);
    truth(p, "lstrip", added->strips_left);
    truth(p, "rstrip", added->strips_right);
    truth(p, "normalized", added->is_normalized);
    truth(p, "special", added->is_special);
    text(p, "}");
  }
  text(p, "]");
}

static void print_model(printer *p) {
  const ckpt_tokenizer *t = p->t;
  text(p, "{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
  if (t->unknown == CKPT_TOKEN_NONE)
    text(p, "null");
  else
    quoted(p, t->tokens[t->unknown].text);
  text(p, ",\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null");
  truth(p, "fuse_unk", t->fuses_unknown);
  truth(p, "byte_fallback", t->has_byte_fallback);
  truth(p, "ignore_merges", t->ignores_merges);
  begin(p, ",\"vocab\":{");
  for (uint32_t id = 0; id < t->n_tokens; id++) {
    if (is_padding(t, id)) continue;
    item(p);
    ckpt_stream_json(p->out, t->tokens[id].text, t->tokens[id].n_bytes);
    ckpt_stream_printf(p->out, ":%u", id);
  }
  begin(p, "},\"merges\":[");
  for (uint32_t i = 0; i < t->n_merges; i++) {
    const ckpt_token *left = &t->tokens[t->merges[i].left], *right = &t->tokens[t->merges[i].right];
    item(p);
    text(p, "[");
    ckpt_stream_json(p->out, left->text, left->n_bytes);
    text(p, ",");
    ckpt_stream_json(p->out, right->text, right->n_bytes);
    text(p, "]");
  }
  text(p, "]}");
}

static void print_tokenizer(printer *p) {
  text(p, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":");
  print_added(p);
  text(p, ",\"normalizer\":");
  print_normalizer(p);
  text(p, ",\"pre_tokenizer\":");
  print_pre_tokenizer(p);
  text(p, ",\"post_processor\":");
  print_post_processor(p);
  text(p, ",\"decoder\":");
  print_decoder(p);
  text(p, ",\"model\":");
  print_model(p);
  text(p, "}\n");
}

static void print_config(printer *p) {
  const ckpt_tokenizer *t = p->t;
  text(p, "{");
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    const char *name = ckpt_special_name((ckpt_special)i);
    if (t->adds[i] != CKPT_FLAG_UNSAID)
      ckpt_stream_printf(p->out, "\n  \"add_%s_token\": %s,", name, t->adds[i] == CKPT_FLAG_YES ? "true" : "false");
    if (t->special[i] == CKPT_TOKEN_NONE || i == CKPT_SPECIAL_EOT || i == CKPT_SPECIAL_EOM) continue;
    ckpt_stream_printf(p->out, "\n  \"%s_token\": ", name);
    quoted(p, t->tokens[t->special[i]].text);
    text(p, ",");
  }
  if (t->denies_prefix) text(p, "\n  \"add_prefix_space\": false,");
  const bool is_plain = t->n_templates == 1 && t->templates[0].name == NULL;
  if (is_plain) {
    text(p, "\n  \"chat_template\": ");
    quoted(p, t->templates[0].text);
    text(p, ",");
  } else if (t->n_templates != 0) {
    begin(p, "\n  \"chat_template\": [");
    for (uint32_t i = 0; i < t->n_templates; i++) {
      item(p);
      text(p, "{");
      member(p, "name", t->templates[i].name == NULL ? "default" : t->templates[i].name);
      text(p, ",");
      member(p, "template", t->templates[i].text);
      text(p, "}");
    }
    text(p, "],");
  }
  text(p, "\n  \"clean_up_tokenization_spaces\": false,\n  \"tokenizer_class\": \"PreTrainedTokenizerFast\"\n}\n");
}

/* ---- to memory --------------------------------------------------------------------------------------------------- */

typedef struct memory {
  char *at;
} memory;

static ckpt_status append(void *arg, const void *bytes, size_t n_bytes, ckpt_error *err) {
  (void)err;
  memory *to = arg;
  memcpy(to->at, bytes, n_bytes);
  to->at += n_bytes;
  return CKPT_OK;
}

static ckpt_status print(char **out, size_t *n, const ckpt_tokenizer *tokenizer, void (*how)(printer *),
                         ckpt_arena *arena, ckpt_error *err) {
  uint8_t window[4096];
  ckpt_stream stream;
  printer p = {.out = &stream, .t = tokenizer};
  ckpt_stream_count(&stream, err);
  how(&p);
  CKPT_TRY(ckpt_stream_end(&stream));
  *n = (size_t)stream.n_bytes;
  *out = ckpt_arena_array(arena, *n + 1, 1);
  CKPT_TRY_ALLOC(*out, err);
  memory to = {*out};
  ckpt_stream_function(&stream, append, &to, window, sizeof window, err);
  how(&p);
  return ckpt_stream_end(&stream);
}

ckpt_status ckpt_tokenizer_print(char **json, size_t *n_json, char **config, size_t *n_config,
                                 const ckpt_tokenizer *tokenizer, ckpt_arena *arena, ckpt_error *err) {
  CKPT_TRY(print(json, n_json, tokenizer, print_tokenizer, arena, err));
  return print(config, n_config, tokenizer, print_config, arena, err);
}
