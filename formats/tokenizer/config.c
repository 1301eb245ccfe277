/* config.c - what stands beside a vocabulary: tokenizer_config.json (and special_tokens_map.json, of the same keys),
 * chat templates, merges.txt. */
#include <stdio.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

const char *ckpt_special_name(ckpt_special special) {
  static const char *const names[CKPT_N_SPECIALS] = {"bos", "eos", "unk", "sep", "pad", "cls", "mask", "eot", "eom"};
  return names[special];
}

bool ckpt_tokenizer_has_class(const ckpt_tokenizer *tokenizer, const char *class) {
  const size_t n = strlen(class);
  return tokenizer->tokenizer_class != NULL && strncmp(tokenizer->tokenizer_class, class, n) == 0 &&
         (tokenizer->tokenizer_class[n] == '\0' || strcmp(tokenizer->tokenizer_class + n, "Fast") == 0);
}

/* ---- chat templates ---------------------------------------------------------------------------------------------- */

enum { MAX_TEMPLATES = 256 };

/* name NULL: the default one. Both are borrowed. */
static ckpt_status add_template(ckpt_tokenizer_build *build, const char *name, const char *text, size_t n_bytes,
                                ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  if (ckpt_utf8_length(text, n_bytes) != n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "a chat template that is not UTF-8 (byte %zu)",
                     ckpt_utf8_length(text, n_bytes));
  if (memchr(text, 0, n_bytes) != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "a chat template with a NUL (byte %zu)", strlen(text));
  if (out->n_templates == MAX_TEMPLATES)
    return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL, "more than %d chat templates", MAX_TEMPLATES);
  ckpt_chat_template *longer = ckpt_arena_array(&out->arena, out->n_templates + 1, sizeof *longer);
  CKPT_TRY_ALLOC(longer, err);
  if (out->n_templates != 0) memcpy(longer, out->templates, out->n_templates * sizeof *longer);
  longer[out->n_templates++] = (ckpt_chat_template){name, text};
  out->templates = longer;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_add_template(ckpt_tokenizer_build *build, const char *name, const char *text, size_t n_bytes,
                                        ckpt_error *err) {
  char *copy = ckpt_arena_text(&build->out->arena, text, n_bytes);
  CKPT_TRY_ALLOC(copy, err);
  if (name != NULL) {
    name = ckpt_arena_copy(&build->out->arena, name);
    CKPT_TRY_ALLOC(name, err);
  }
  return add_template(build, name, copy, n_bytes, err);
}

ckpt_status ckpt_tokenizer_read_templates(ckpt_tokenizer_build *build, const ckpt_object *value, ckpt_error *err) {
  if (value == NULL || build->out->n_templates != 0) return CKPT_OK;
  if (value->kind == CKPT_OBJECT_TEXT) return add_template(build, NULL, value->text, (size_t)value->n, err);
  if (value->kind != CKPT_OBJECT_LIST) return CKPT_OK;
  for (uint64_t i = 0; i < value->n; i++) {
    const ckpt_object *name = ckpt_object_field(value->items[i], "name"),
                      *text = ckpt_object_field(value->items[i], "template");
    if (name == NULL || name->kind != CKPT_OBJECT_TEXT || strlen(name->text) != name->n || text == NULL ||
        text->kind != CKPT_OBJECT_TEXT)
      return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "chat template %llu lacks its name or text",
                       (unsigned long long)i);
    CKPT_TRY(
        add_template(build, strcmp(name->text, "default") == 0 ? NULL : name->text, text->text, (size_t)text->n, err));
  }
  return CKPT_OK;
}

/* ---- tokenizer_config.json --------------------------------------------------------------------------------------- */

ckpt_status ckpt_tokenizer_read_config(ckpt_tokenizer_build *build, const ckpt_object *config, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  if (config->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "no JSON object, which a config is");
  if (config->n > 4096) return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL, "more than 4096 keys");
  out->config = config;
  for (int i = 0; i < CKPT_N_SPECIALS; i++) {
    char key[32];
    snprintf(key, sizeof key, "add_%s_token", ckpt_special_name((ckpt_special)i));
    const ckpt_object *adds = ckpt_object_get(config, key);
    if (adds != NULL && adds->kind == CKPT_OBJECT_BOOL) out->adds[i] = adds->boolean ? CKPT_FLAG_YES : CKPT_FLAG_NO;
  }
  const ckpt_object *kind = ckpt_object_get(config, "tokenizer_class");
  if (kind != NULL && kind->kind == CKPT_OBJECT_TEXT) out->tokenizer_class = kind->text;
  return ckpt_tokenizer_read_templates(build, ckpt_object_get(config, "chat_template"), err);
}

ckpt_status ckpt_tokenizer_read_merges(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, ckpt_error *err) {
  if (ckpt_utf8_length(text, n_bytes) != n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "not UTF-8 (byte %zu)", ckpt_utf8_length(text, n_bytes));
  for (size_t at = 0, line = 0; at < n_bytes; line++) {
    const char *end = memchr(text + at, '\n', n_bytes - at);
    size_t n = end == NULL ? n_bytes - at : (size_t)(end - text) - at, n_line = n;
    if (n_line != 0 && text[at + n_line - 1] == '\r') n_line--;
    bool is_version = line == 0 && n_line >= 8 && memcmp(text + at, "#version", 8) == 0;
    if (n_line != 0 && !is_version) CKPT_TRY(ckpt_tokenizer_build_merge_line(build, text + at, n_line, err));
    at += n + 1;
  }
  return CKPT_OK;
}
