/* modules.c - modules.json of sentence-transformers: [{"idx": 2, "name": "2", "path": "2_Dense", "type": "..."}, ...].
 */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/side_files/side_files.h"

enum { MAX_BYTES = 1 << 16 };

/* A path without `.`, and slashes of which there are two or which end it; NULL where it leads out of the folder. */
static ckpt_status normalise(const char **out, const char *said, ckpt_arena *arena, ckpt_error *err) {
  char *path = ckpt_arena_copy(arena, said);
  size_t n = 0;
  CKPT_TRY_ALLOC(path, err);
  *out = NULL;
  if (said[0] == '/') return CKPT_OK;
  while (*said != '\0') {
    const size_t n_part = strcspn(said, "/");
    if (n_part == 2 && strncmp(said, "..", 2) == 0) return CKPT_OK;
    const bool is_here = n_part == 0 || (n_part == 1 && said[0] == '.');
    if (!is_here && n != 0) path[n++] = '/';
    if (!is_here) memmove(path + n, said, n_part), n += n_part;
    said += n_part + (said[n_part] == '/');
  }
  path[n] = '\0';
  *out = path;
  return CKPT_OK;
}

/* One object, whose { was read. */
static ckpt_status read_module(ckpt_module *out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err) {
  ckpt_json_token token;
  *out = (ckpt_module){.path = "", .said = "", .type = ""};
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    const bool is_path = strcmp(ckpt_json_text(json, NULL), "path") == 0;
    const bool is_type = strcmp(ckpt_json_text(json, NULL), "type") == 0;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if ((is_path || is_type) && token == CKPT_JSON_STRING) {
      const char *text = ckpt_arena_copy(arena, ckpt_json_text(json, NULL));
      CKPT_TRY_ALLOC(text, err);
      *(is_path ? &out->said : &out->type) = text;
    }
    CKPT_TRY(ckpt_json_skip_rest(json, token, err));
  }
}

static ckpt_status read_list(ckpt_module out[CKPT_MAX_MODULES], size_t *n, ckpt_json *json, ckpt_arena *arena,
                             ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "the modules", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END || *n == CKPT_MAX_MODULES) return CKPT_OK;
    if (token != CKPT_JSON_OBJECT) return ckpt_json_fail(json, err, "a module is an object");
    CKPT_TRY(read_module(&out[*n], json, arena, err));
    CKPT_TRY(normalise(&out[*n].path, out[*n].said, arena, err));
    ++*n;
  }
}

ckpt_status ckpt_modules_read(ckpt_module out[CKPT_MAX_MODULES], size_t *n, ckpt_source *source, uint32_t file,
                              uint64_t n_bytes, ckpt_arena *arena, ckpt_error *err) {
  ckpt_json *json;
  ckpt_error broken = {0};
  *n = 0;
  if (n_bytes > MAX_BYTES) return CKPT_OK;
  CKPT_TRY(ckpt_json_new_source(&json, source, file, 0, n_bytes, MAX_BYTES, true, err));
  const ckpt_status status = read_list(out, n, json, arena, &broken);
  ckpt_json_free(json);
  if (status == CKPT_OK || status == CKPT_EFORMAT || status == CKPT_ELIMIT) return CKPT_OK;
  return ckpt_fail_as(err, status, NULL, NULL, &broken);
}
