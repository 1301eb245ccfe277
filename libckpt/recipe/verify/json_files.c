/* json_files.c - side files that are called *.json are JSON, and those that libraries take for objects are objects: one
 * that is not stops whoever loads the model, its tokenizer or its adapter. They are streamed, whatever their size. */
#include <fnmatch.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/recipe/verify/verify.h"

enum { MAX_TEXT = 16 << 20 };

/* Whether what lies in a file of this name has to be an object: settings are. */
static bool is_of_settings(const char *name) {
  static const char *const patterns[] = {"*config*.json", "special_tokens_map.json", "added_tokens.json",
                                         "tokenizer.json", "trainer_state.json"};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
    if (fnmatch(patterns[i], ckpt_path_name(name), 0) == 0) return true;
  return false;
}

static ckpt_status read_all(const ckpt_index *index, const ckpt_side_file *side, ckpt_error *err) {
  ckpt_json *json;
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_new_source(&json, index->source, side->file, 0, side->n_bytes, MAX_TEXT, true, err));
  ckpt_status status = ckpt_json_next(json, &token, err);
  if (status == CKPT_OK && token != CKPT_JSON_OBJECT && is_of_settings(side->name))
    status = ckpt_json_fail(json, err, "it is %s, where an object is wanted", ckpt_json_token_name(token));
  if (status == CKPT_OK) status = ckpt_json_skip_rest(json, token, err);
  if (status == CKPT_OK) status = ckpt_json_next(json, &token, err);
  ckpt_json_free(json);
  return status;
}

ckpt_status ckpt_verify_json_files(ckpt_findings *findings, const ckpt_index *index, bool *has_tokenizer,
                                   ckpt_error *err) {
  *has_tokenizer = true;
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    const ckpt_side_file *side = &index->side_files[i];
    const char *path = ckpt_index_side_path(index, side);
    ckpt_error defect = {0};
    if (!ckpt_text_ends(side->name, ".json") || strcmp(side->name, "config.json") == 0) continue;
    const ckpt_status status = read_all(index, side, &defect);
    if (status == CKPT_OK) continue;
    if (status == CKPT_ELIMIT) {
      CKPT_TRY(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "side files: %s: %s", side->name,
                                 defect.message));
      continue;
    }
    if (status != CKPT_EFORMAT) return ckpt_fail_as(err, status, path, NULL, &defect);
    if (ckpt_side_file_is_tokenizer(side->name)) *has_tokenizer = false;
    if (!ckpt_findings_tell_of(findings, path, NULL))
      CKPT_TRY(ckpt_findings_add_error(findings, err, CKPT_PROBLEM, path, NULL, &defect));
  }
  return CKPT_OK;
}
