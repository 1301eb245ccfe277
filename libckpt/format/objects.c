/* objects.c - see objects.h. */
#include "libckpt/format/objects.h"

#include <string.h>

#include "libckpt/base/error.h"

/* Whether the loss of a part of the whole is told under its own name. */
static bool is_told(const ckpt_index *index, const ckpt_object *key, const ckpt_object *value, uint64_t *n_left) {
  if (key->kind == CKPT_OBJECT_TEXT && ckpt_index_is_unread(index, key->text)) return false;
  return !ckpt_objects_cover(index, value, n_left) && ckpt_object_holds_more(value, n_left);
}

ckpt_status ckpt_objects_list(const ckpt_named_object **out, size_t *n, ckpt_index *index, ckpt_arena *arena,
                              ckpt_error *err) {
  const ckpt_object *parts = NULL, *objects = index->objects;
  uint64_t n_left = CKPT_OBJECT_LOOKS;
  *n = 0;
  *out = NULL;
  if (objects == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_index_parts(&parts, index, err));
  ckpt_named_object *list =
      ckpt_arena_array(arena, (size_t)(objects->n + (parts == NULL ? 0 : parts->n)) + 1, sizeof *list);
  CKPT_TRY_ALLOC(list, err);
  for (uint64_t i = 0; i < objects->n; i++)
    list[(*n)++] = (ckpt_named_object){objects->items[2 * i]->text, objects->items[2 * i + 1]};
  for (uint64_t i = 0; parts != NULL && i < parts->n; i++) {
    const ckpt_object *key = parts->items[2 * i], *value = parts->items[2 * i + 1];
    const char *name = key->kind == CKPT_OBJECT_TEXT ? key->text : "(no text)";
    if (is_told(index, key, value, &n_left)) list[(*n)++] = (ckpt_named_object){name, value};
  }
  *out = list;
  return CKPT_OK;
}

/* What is left of a path behind a key and its dot; NULL: it does not begin with the key. */
static const char *behind(const char *path, const char *key) {
  const size_t n = strlen(key);
  if (strncmp(path, key, n) != 0 || (path[n] != '.' && path[n] != '\0')) return NULL;
  return path + n + (path[n] == '.');
}

/* Goes down a path; keys may have dots themselves, so that several of a dict can begin it. */
static const ckpt_object *descend(const ckpt_object *object, const char *path, uint64_t *n_left) {
  if (*path == '\0' || object == NULL) return object;
  const bool is_dict = object->kind == CKPT_OBJECT_DICT;
  if (!is_dict && object->kind != CKPT_OBJECT_LIST && object->kind != CKPT_OBJECT_TUPLE) return NULL;
  for (uint64_t i = 0; i < object->n && *n_left != 0; i++, --*n_left) {
    char number[CKPT_OBJECT_KEY_BYTES];
    const ckpt_object at = {.kind = CKPT_OBJECT_INT, .integer = (int64_t)i};
    const ckpt_object *key = is_dict ? object->items[2 * i] : &at;
    const char *text = key->kind == CKPT_OBJECT_TEXT ? key->text : ckpt_object_key_text(number, key);
    const char *rest = text == NULL ? NULL : behind(path, text);
    const ckpt_object *found = rest == NULL ? NULL : descend(object->items[is_dict ? 2 * i + 1 : i], rest, n_left);
    if (found != NULL) return found;
  }
  return NULL;
}

const ckpt_object *ckpt_objects_find(const ckpt_named_object *list, size_t n, const char *path) {
  uint64_t n_left = CKPT_OBJECT_LOOKS;
  for (size_t i = 0; i < n; i++) {
    const char *rest = behind(path, list[i].name);
    const ckpt_object *found = rest == NULL ? NULL : descend(list[i].object, rest, &n_left);
    if (found != NULL) return found;
  }
  return NULL;
}
