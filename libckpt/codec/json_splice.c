/* json_splice.c - one walk over the text finds the place; everything around it is copied. */
#include "libckpt/codec/json_splice.h"

#include <string.h>

#include "libckpt/error.h"

/* Whether the last KEY is path[0, n_path). */
static bool key_is(const ckpt_json *json, const char *path, size_t n_path) {
  size_t n_key;
  const char *key = ckpt_json_text(json, &n_key);
  return n_key == n_path && memcmp(key, path, n_path) == 0;
}

/* Reads one object whose `{` was the last token, looking for the first key of path in it, and for the rest of path in
 * that key's value. Recursion is bounded by the reader's depth limit. */
static ckpt_status walk_object(ckpt_json *json, const char *path, ckpt_json_place *place, ckpt_error *err) {
  size_t n_key = strcspn(path, ".");
  bool is_last = path[n_key] == '\0';
  *place = (ckpt_json_place){.has_parent = is_last, .is_empty = true, .insert_at = ckpt_json_stop(json)};
  for (;;) {
    uint64_t gap = ckpt_json_stop(json);
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    bool is_ours = key_is(json, path, n_key);
    uint64_t key = ckpt_json_start(json), colon = ckpt_json_stop(json);
    CKPT_TRY(ckpt_json_next(json, &token, err));
    uint64_t value = ckpt_json_start(json);
    if (is_ours && !is_last) *place = (ckpt_json_place){0}; /* of equal keys the last one counts */
    if (is_ours && !is_last && token == CKPT_JSON_OBJECT)
      CKPT_TRY(walk_object(json, path + n_key + 1, place, err));
    else
      CKPT_TRY(ckpt_json_skip_rest(json, token, err));
    if (!is_last) continue;
    place->is_empty = false;
    place->insert_at = ckpt_json_stop(json);
    place->gap = gap;
    place->key = key;
    place->colon = colon;
    place->value = value;
    if (!is_ours) continue;
    place->is_found = true;
    place->token = token;
    place->start = value;
    place->stop = place->insert_at;
  }
}

ckpt_status ckpt_json_find(const char *text, size_t n_bytes, const char *path, ckpt_json_place *place, const char *file,
                           ckpt_error *err) {
  ckpt_json *json;
  CKPT_TRY(ckpt_json_new_text(&json, text, n_bytes, true, file, err));
  ckpt_json_token token;
  ckpt_status status = CKPT_OK;
  *place = (ckpt_json_place){0};
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the outermost value", err));
  CKPT_TRY_GOTO(walk_object(json, path, place, err));
  CKPT_TRY_GOTO(ckpt_json_next(json, &token, err)); /* the end, or an error */
done:
  ckpt_json_free(json);
  return status;
}

/* text[0, start) + middle + text[stop, n_bytes) */
static ckpt_status replace(const char **out, size_t *n_out, const char *text, size_t n_bytes, size_t start, size_t stop,
                           const char *middle, ckpt_arena *arena, ckpt_error *err) {
  size_t n_middle = strlen(middle), n_tail = n_bytes - stop;
  char *result = ckpt_arena_alloc(arena, start + n_middle + n_tail + 1);
  CKPT_TRY_ALLOC(result, err);
  memcpy(result, text, start);
  memcpy(result + start, middle, n_middle);
  memcpy(result + start + n_middle, text + stop, n_tail);
  *out = result;
  *n_out = start + n_middle + n_tail;
  return CKPT_OK;
}

ckpt_status ckpt_json_splice(const char **out, size_t *n_out, const char *text, size_t n_bytes, const char *path,
                             const char *value, ckpt_arena *arena, const char *file, ckpt_error *err) {
  ckpt_json_place place;
  CKPT_TRY(ckpt_json_find(text, n_bytes, path, &place, file, err));
  if (place.is_found)
    return replace(out, n_out, text, n_bytes, (size_t)place.start, (size_t)place.stop, value, arena, err);
  if (!place.has_parent) return ckpt_fail(err, CKPT_ENOTFOUND, file, NULL, "has no object to hold '%s'", path);
  const char *key = strrchr(path, '.') != NULL ? strrchr(path, '.') + 1 : path;
  const char *middle;
  if (place.is_empty) {
    middle = ckpt_arena_printf(arena, "\"%s\": %s", key, value);
  } else {
    const char *gap = text + place.gap, *comma = memchr(gap, ',', (size_t)(place.key - place.gap));
    if (comma != NULL) gap = comma + 1;
    middle = ckpt_arena_printf(arena, ",%.*s\"%s\"%.*s%s", (int)(text + place.key - gap), gap, key,
                               (int)(place.value - place.colon), text + place.colon, value);
  }
  CKPT_TRY_ALLOC(middle, err);
  return replace(out, n_out, text, n_bytes, (size_t)place.insert_at, (size_t)place.insert_at, middle, arena, err);
}
