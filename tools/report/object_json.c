/* object_json.c - see object_json.h. */
#include "tools/report/object_json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { MAX_DEPTH = CKPT_OBJECT_DEPTH }; /* the emitter has room for two containers each */

const char *ckpt_object_kind_name(const ckpt_object *object) {
  static const char *const kinds[CKPT_N_OBJECT_KINDS] = {
      [CKPT_OBJECT_NONE] = "none",      [CKPT_OBJECT_BOOL] = "bool",   [CKPT_OBJECT_INT] = "int",
      [CKPT_OBJECT_BIGINT] = "bigint",  [CKPT_OBJECT_FLOAT] = "float", [CKPT_OBJECT_TEXT] = "text",
      [CKPT_OBJECT_BYTES] = "bytes",    [CKPT_OBJECT_LIST] = "list",   [CKPT_OBJECT_TUPLE] = "tuple",
      [CKPT_OBJECT_SET] = "set",        [CKPT_OBJECT_DICT] = "dict",   [CKPT_OBJECT_TENSOR] = "tensor",
      [CKPT_OBJECT_FOREIGN] = "foreign"};
  return kinds[object == NULL ? CKPT_OBJECT_NONE : object->kind];
}

/* ---- how much it is ---------------------------------------------------------------------------------------------- */

static bool count(const ckpt_object *object, int depth, uint64_t *n_left) {
  if (object == NULL) return true;
  if (depth > MAX_DEPTH) return false;
  const uint64_t n = 1 + (object->kind == CKPT_OBJECT_TEXT || object->kind == CKPT_OBJECT_BIGINT ? object->n / 64 : 0);
  if (n > *n_left) return false;
  *n_left -= n;
  const uint64_t n_children = ckpt_object_n_children(object);
  for (uint64_t i = 0; i < n_children; i++)
    if (!count(object->items[i], depth + 1, n_left)) return false;
  return true;
}

bool ckpt_object_is_printable(const ckpt_object *object, uint64_t max_nodes) { return count(object, 0, &max_nodes); }

/* ---- its value --------------------------------------------------------------------------------------------------- */

static void emit(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object, int depth);

/* Keys that are no text, nor anything that Python's json has text for, are printed. */
static void emit_entry(ckpt_emitter *json, const ckpt_index *index, const ckpt_object *key, const ckpt_object *value,
                       int depth) {
  char number[CKPT_OBJECT_KEY_BYTES];
  const char *text = key == NULL                     ? "null"
                     : key->kind == CKPT_OBJECT_TEXT ? key->text
                                                     : ckpt_object_key_text(number, key);
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 16);
  if (text == NULL) text = ckpt_object_print(key, 1000, &arena);
  emit(json, text == NULL ? "..." : text, index, value, depth);
  ckpt_arena_free(&arena);
}

static void emit_items(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object,
                       int depth) {
  const bool is_dict = object->kind == CKPT_OBJECT_DICT;
  if (is_dict)
    ckpt_emit_object(json, key);
  else
    ckpt_emit_array(json, key);
  for (uint64_t i = 0; i < object->n; i++)
    if (is_dict)
      emit_entry(json, index, object->items[2 * i], object->items[2 * i + 1], depth + 1);
    else
      emit(json, NULL, index, object->items[i], depth + 1);
  ckpt_emit_end(json);
}

/* What has a class: {"module.Class": its items, "state": ...}, or "<module.Class>". */
static void emit_named(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object,
                       int depth) {
  static const char *const extras[] = {"keywords", "list", "dict", "state"};
  const char *name = object->name == NULL ? "" : object->name;
  char text[1024];
  if (object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_NAME) {
    snprintf(text, sizeof text, "<%s>", name);
    ckpt_emit_text(json, key, text);
    return;
  }
  ckpt_emit_object(json, key);
  emit_items(json, name, index, object, depth);
  for (uint32_t i = 0; i < sizeof extras / sizeof *extras; i++)
    if ((object->extras & 1u << i) != 0)
      emit(json, extras[i], index, ckpt_object_extra_of(object, (ckpt_object_extra)(1 << i)), depth + 1);
  ckpt_emit_end(json);
}

static void emit_float(ckpt_emitter *json, const char *key, double number) {
  if (isfinite(number))
    ckpt_emit_number(json, key, number);
  else
    ckpt_emit_text(json, key, isnan(number) ? "NaN" : number < 0 ? "-Infinity" : "Infinity");
}

static void emit(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object, int depth) {
  char text[1024];
  if (depth > MAX_DEPTH) {
    ckpt_emit_text(json, key, "...");
    return;
  }
  switch (object == NULL ? CKPT_OBJECT_NONE : object->kind) {
    case CKPT_OBJECT_BOOL: ckpt_emit_bool(json, key, object->boolean); break;
    case CKPT_OBJECT_INT: ckpt_emit_i64(json, key, object->integer); break;
    case CKPT_OBJECT_BIGINT: ckpt_emit_literal(json, key, object->text); break;
    case CKPT_OBJECT_FLOAT: emit_float(json, key, object->number); break;
    case CKPT_OBJECT_TEXT: ckpt_emit_text_n(json, key, object->text, (size_t)object->n); break;
    case CKPT_OBJECT_BYTES:
      snprintf(text, sizeof text, "<%" PRIu64 " bytes>", object->n);
      ckpt_emit_text(json, key, text);
      break;
    case CKPT_OBJECT_TENSOR:
      snprintf(text, sizeof text, "<tensor %.900s>",
               object->tensor < index->n_tensors ? index->tensors[object->tensor].name : "...");
      ckpt_emit_text(json, key, text);
      break;
    case CKPT_OBJECT_LIST:
    case CKPT_OBJECT_TUPLE:
    case CKPT_OBJECT_SET:
    case CKPT_OBJECT_DICT:
      if (object->extras == 0)
        emit_items(json, key, index, object, depth);
      else
        emit_named(json, key, index, object, depth);
      break;
    case CKPT_OBJECT_FOREIGN: emit_named(json, key, index, object, depth); break;
    default: ckpt_emit_null(json, key); break;
  }
}

void ckpt_emit_object_value(ckpt_emitter *json, const char *key, const ckpt_index *index, const ckpt_object *object) {
  emit(json, key, index, object, 0);
}
