/* tree.c - a JSON value as objects: the four trees of a tokenizer.json and its config, which are small. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"

typedef struct tree {
  ckpt_json *json;
  ckpt_arena *arena;
  uint32_t n_nodes;
} tree;

/* Items of the containers that are open, one behind another. */
typedef struct items {
  ckpt_object **at;
  uint32_t n, capacity;
} items;

static ckpt_status read_value(ckpt_object **out, tree *t, ckpt_json_token token, uint32_t depth, ckpt_error *err);

static ckpt_status read_number(ckpt_object **out, tree *t) {
  const char *text = ckpt_json_text(t->json, NULL);
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  *out = *end == '\0' && errno == 0 ? ckpt_object_int(t->arena, value)
                                    : ckpt_object_float(t->arena, ckpt_c_strtod(text, &end));
  return CKPT_OK;
}

static ckpt_status read_items(ckpt_object **out, tree *t, bool is_dict, uint32_t depth, items *list, ckpt_error *err) {
  const ckpt_json_token end = is_dict ? CKPT_JSON_OBJECT_END : CKPT_JSON_ARRAY_END;
  for (;;) {
    ckpt_json_token token;
    ckpt_object *value;
    CKPT_TRY(ckpt_json_next(t->json, &token, err));
    if (token == end) break;
    CKPT_TRY(ckpt_grow(&list->at, list->n + 1, &list->capacity, sizeof *list->at, err));
    if (token == CKPT_JSON_KEY) {
      size_t n;
      const char *text = ckpt_json_text(t->json, &n);
      value = ckpt_object_text(t->arena, text, n);
      CKPT_TRY_ALLOC(value, err);
      list->at[list->n++] = value;
      CKPT_TRY(ckpt_json_next(t->json, &token, err));
    }
    CKPT_TRY(read_value(&value, t, token, depth + 1, err));
    list->at[list->n++] = value;
  }
  *out =
      ckpt_object_new(t->arena, is_dict ? CKPT_OBJECT_DICT : CKPT_OBJECT_LIST, is_dict ? list->n / 2 : list->n, NULL);
  CKPT_TRY_ALLOC(*out, err);
  if (list->n != 0) memcpy((*out)->items, list->at, list->n * sizeof *list->at);
  return CKPT_OK;
}

static ckpt_status read_value(ckpt_object **out, tree *t, ckpt_json_token token, uint32_t depth, ckpt_error *err) {
  if (++t->n_nodes > CKPT_TREE_MAX_NODES || depth > CKPT_TREE_MAX_DEPTH)
    return ckpt_json_fail(t->json, err, "values are nested deeper than %d, or more than %d", CKPT_TREE_MAX_DEPTH,
                          CKPT_TREE_MAX_NODES);
  size_t n;
  const char *text;
  items list = {0};
  switch (token) {
    case CKPT_JSON_OBJECT:
    case CKPT_JSON_ARRAY: {
      ckpt_status status = read_items(out, t, token == CKPT_JSON_OBJECT, depth, &list, err);
      free(list.at);
      return status;
    }
    case CKPT_JSON_STRING:
      text = ckpt_json_text(t->json, &n);
      *out = ckpt_object_text(t->arena, text, n);
      break;
    case CKPT_JSON_NUMBER: CKPT_TRY(read_number(out, t)); break;
    case CKPT_JSON_TRUE:
    case CKPT_JSON_FALSE: *out = ckpt_object_bool(t->arena, token == CKPT_JSON_TRUE); break;
    case CKPT_JSON_NULL: *out = ckpt_object_none(t->arena); break;
    default: return ckpt_json_fail(t->json, err, "%s where a value has to be", ckpt_json_token_name(token));
  }
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

ckpt_status ckpt_tree_read(const ckpt_object **out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err) {
  tree t = {.json = json, .arena = arena};
  ckpt_json_token token;
  ckpt_object *value;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  CKPT_TRY(read_value(&value, &t, token, 0, err));
  *out = value;
  return CKPT_OK;
}
