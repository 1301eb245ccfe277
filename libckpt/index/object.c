/* object.c - building, comparing and printing the data-only graph.
 *
 * Graphs come from hostile files: they may be cyclic, deeper than the stack, or share one node a billion times.
 * Equality keeps its path on the heap and visits each pair of nodes once; printing stops at its byte limit and at a
 * depth. */
#include "libckpt/index/object.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

const char *ckpt_state_parameter(const char *name, size_t *n) {
  const size_t n_prefix = sizeof CKPT_STATE_PREFIX - 1;
  const char *leaf = strrchr(name, '.');
  *n = 0;
  if (strncmp(name, CKPT_STATE_PREFIX, n_prefix) != 0 || leaf <= name + n_prefix) return NULL;
  *n = (size_t)(leaf - name) - n_prefix;
  return name + n_prefix;
}

/* ---- building -------------------------------------------------------------------------------------------- */

static ckpt_object *node(ckpt_arena *arena, ckpt_object_kind kind) {
  ckpt_object *object = ckpt_arena_alloc(arena, sizeof *object);
  if (object != NULL) object->kind = kind;
  return object;
}

ckpt_object *ckpt_object_none(ckpt_arena *arena) { return node(arena, CKPT_OBJECT_NONE); }

ckpt_object *ckpt_object_bool(ckpt_arena *arena, bool value) {
  ckpt_object *object = node(arena, CKPT_OBJECT_BOOL);
  if (object != NULL) object->boolean = value;
  return object;
}

ckpt_object *ckpt_object_int(ckpt_arena *arena, int64_t value) {
  ckpt_object *object = node(arena, CKPT_OBJECT_INT);
  if (object != NULL) object->integer = value;
  return object;
}

ckpt_object *ckpt_object_float(ckpt_arena *arena, double value) {
  ckpt_object *object = node(arena, CKPT_OBJECT_FLOAT);
  if (object != NULL) object->number = value;
  return object;
}

ckpt_object *ckpt_object_text(ckpt_arena *arena, const char *text, uint64_t n_bytes) {
  ckpt_object *object = node(arena, CKPT_OBJECT_TEXT);
  char *copy = object == NULL ? NULL : ckpt_arena_text(arena, text, (size_t)n_bytes);
  if (copy == NULL) return NULL;
  object->n = n_bytes;
  object->text = copy;
  return object;
}

ckpt_object *ckpt_object_bytes(ckpt_arena *arena, const void *bytes, uint64_t n_bytes) {
  ckpt_object *object = ckpt_object_text(arena, bytes, n_bytes);
  if (object == NULL) return NULL;
  const char *copy = object->text;
  object->kind = CKPT_OBJECT_BYTES;
  object->bytes = (const uint8_t *)copy;
  return object;
}

ckpt_object *ckpt_object_tensor(ckpt_arena *arena, uint32_t tensor) {
  ckpt_object *object = node(arena, CKPT_OBJECT_TENSOR);
  if (object != NULL) object->tensor = tensor;
  return object;
}

ckpt_object *ckpt_object_new(ckpt_arena *arena, ckpt_object_kind kind, uint64_t n, const char *name) {
  uint64_t n_items = n;
  if (kind == CKPT_OBJECT_DICT && !ckpt_mul_u64(n, 2, &n_items)) return NULL;
  ckpt_object *object = node(arena, kind);
  if (object == NULL) return NULL;
  object->n = n;
  object->items = ckpt_arena_array(arena, (size_t)n_items, sizeof *object->items);
  if (object->items == NULL) return NULL;
  if (name != NULL && (object->name = ckpt_arena_copy(arena, name)) == NULL) return NULL;
  return object;
}

ckpt_object *ckpt_object_put(ckpt_arena *arena, ckpt_object *dict, const char *key, const ckpt_object *value) {
  ckpt_object *text = value == NULL ? NULL : ckpt_object_text(arena, key, strlen(key));
  if (text == NULL) return NULL;
  dict->items[2 * dict->n] = text;
  dict->items[2 * dict->n++ + 1] = (ckpt_object *)(uintptr_t)value;
  return dict;
}

const ckpt_object *ckpt_object_get(const ckpt_object *dict, const char *key) {
  if (dict == NULL || dict->kind != CKPT_OBJECT_DICT) return NULL;
  size_t n = strlen(key);
  for (uint64_t i = dict->n; i-- > 0;) {
    const ckpt_object *item = dict->items[2 * i];
    if (item != NULL && item->kind == CKPT_OBJECT_TEXT && item->n == n && memcmp(item->text, key, n) == 0)
      return dict->items[2 * i + 1];
  }
  return NULL;
}

const ckpt_object *ckpt_object_field(const ckpt_object *record, const char *key) {
  enum { MAX_FIELDS = 64 };
  return record == NULL || record->n > MAX_FIELDS ? NULL : ckpt_object_get(record, key);
}

static uint32_t n_extras(uint32_t extras) {
  static const uint8_t n_bits[16] = {0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4};
  return n_bits[extras & 0xF];
}

static bool holds_more(const ckpt_object *object, int depth, uint64_t *n_left) {
  enum { MAX_DEPTH = 4 };
  if (object->kind == CKPT_OBJECT_TENSOR) return object->extras != 0; /* attributes */
  if (object->kind != CKPT_OBJECT_DICT || depth == MAX_DEPTH) return true;
  for (uint64_t i = 0; i < object->n; i++)
    if (*n_left == 0 || ((*n_left)--, holds_more(object->items[2 * i + 1], depth + 1, n_left))) return true;
  return false;
}

bool ckpt_object_holds_more(const ckpt_object *object, uint64_t *n_left) { return holds_more(object, 0, n_left); }

uint64_t ckpt_object_n_children(const ckpt_object *object) {
  switch (object->kind) {
    case CKPT_OBJECT_LIST:
    case CKPT_OBJECT_TUPLE:
    case CKPT_OBJECT_SET:
    case CKPT_OBJECT_FOREIGN: return object->n + n_extras(object->extras);
    case CKPT_OBJECT_DICT: return 2 * object->n + n_extras(object->extras);
    case CKPT_OBJECT_TENSOR: return n_extras(object->extras);
    default: return 0;
  }
}

const ckpt_object *ckpt_object_extra_of(const ckpt_object *object, ckpt_object_extra extra) {
  if ((object->extras & extra) == 0) return NULL;
  return object->items[ckpt_object_n_children(object) - n_extras(object->extras & ~((uint32_t)extra - 1))];
}

/* ---- equality ---------------------------------------------------------------------------------------------- */

/* An open-addressing map from nodes to their partners in the other graph. */
typedef struct partners {
  struct partner {
    const ckpt_object *node, *partner;
  } * slots;
  size_t n, capacity; /* a power of two, at least twice n */
} partners;

static struct partner *slot_of(const partners *map, const ckpt_object *object) {
  size_t at = (size_t)(((uint64_t)(uintptr_t)object >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 20);
  while (map->slots[at &= map->capacity - 1].node != NULL && map->slots[at].node != object) at++;
  return &map->slots[at];
}

/* The partner object already has, or NULL after giving it this one. False when memory ran out. */
static bool pair(partners *map, const ckpt_object *object, const ckpt_object *partner, const ckpt_object **known) {
  if (2 * (map->n + 1) > map->capacity) {
    partners grown = {.n = map->n, .capacity = map->capacity == 0 ? 64 : 2 * map->capacity};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (grown.slots == NULL) return false;
    for (size_t i = 0; i < map->capacity; i++)
      if (map->slots[i].node != NULL) *slot_of(&grown, map->slots[i].node) = map->slots[i];
    free(map->slots);
    *map = grown;
  }
  struct partner *slot = slot_of(map, object);
  *known = slot->partner;
  if (slot->node == NULL) {
    *slot = (struct partner){object, partner};
    map->n++;
  }
  return true;
}

/* One step of the path from the roots: a pair of containers and the child to compare next. */
typedef struct step {
  const ckpt_object *a, *b;
  uint64_t next;
} step;

typedef struct comparison {
  partners of_a, of_b;
  step *path;
  size_t depth, capacity;
  uint64_t *n_left;
  bool is_out; /* memory ran out: what was compared is unknown */
} comparison;

/* Kind, class, size and the value of a leaf; items are not looked at. */
static bool same_node(const ckpt_object *a, const ckpt_object *b) {
  if (a->kind != b->kind || a->n != b->n || a->form != b->form || a->extras != b->extras) return false;
  if (a->n_module != b->n_module || strcmp(a->name == NULL ? "" : a->name, b->name == NULL ? "" : b->name) != 0)
    return false;
  switch (a->kind) {
    case CKPT_OBJECT_BOOL: return a->boolean == b->boolean;
    case CKPT_OBJECT_INT: return a->integer == b->integer;
    case CKPT_OBJECT_FLOAT: return memcmp(&a->number, &b->number, sizeof a->number) == 0;
    case CKPT_OBJECT_BIGINT:
    case CKPT_OBJECT_TEXT:
    case CKPT_OBJECT_BYTES: return a->n == 0 || memcmp(a->bytes, b->bytes, (size_t)a->n) == 0;
    case CKPT_OBJECT_TENSOR: return a->tensor == b->tensor;
    default: return true;
  }
}

/* Compares two nodes; containers that are met for the first time go on the path. */
static bool visit(comparison *c, const ckpt_object *a, const ckpt_object *b) {
  if (a == NULL || b == NULL) return a == b;
  const bool is_text = a->kind == CKPT_OBJECT_BIGINT || a->kind == CKPT_OBJECT_TEXT || a->kind == CKPT_OBJECT_BYTES;
  const uint64_t n_looked_at = 1 + (is_text ? a->n / 64 : 0);
  if (n_looked_at > *c->n_left) return false;
  *c->n_left -= n_looked_at;
  if (!same_node(a, b)) return false;
  if (ckpt_object_n_children(a) == 0) return true;
  const ckpt_object *partner_of_a, *partner_of_b;
  c->is_out = !pair(&c->of_a, a, b, &partner_of_a) || !pair(&c->of_b, b, a, &partner_of_b);
  if (c->is_out) return false;
  if (partner_of_a != NULL || partner_of_b != NULL) return partner_of_a == b; /* and so b's is a */
  if (c->depth == c->capacity) {
    size_t wanted = c->capacity == 0 ? 32 : 2 * c->capacity;
    step *moved = reallocarray(c->path, wanted, sizeof *moved);
    c->is_out = moved == NULL;
    if (c->is_out) return false;
    c->path = moved;
    c->capacity = wanted;
  }
  c->path[c->depth++] = (step){a, b, 0};
  return true;
}

bool ckpt_object_equal(const ckpt_object *a, const ckpt_object *b) {
  uint64_t n_left = UINT64_MAX;
  bool is_equal;
  return ckpt_object_compare(&is_equal, a, b, &n_left, NULL) == CKPT_OK && is_equal;
}

ckpt_status ckpt_object_compare(bool *is_equal, const ckpt_object *a, const ckpt_object *b, uint64_t *n_left,
                                ckpt_error *err) {
  comparison c = {.n_left = n_left};
  bool equal = visit(&c, a, b);
  while (equal && c.depth != 0) {
    step *top = &c.path[c.depth - 1];
    if (top->next == ckpt_object_n_children(top->a)) {
      c.depth--;
      continue;
    }
    uint64_t i = top->next++;
    equal = visit(&c, top->a->items[i], top->b->items[i]);
  }
  free(c.of_a.slots);
  free(c.of_b.slots);
  free(c.path);
  *is_equal = equal;
  return c.is_out ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

/* ---- printing ---------------------------------------------------------------------------------------------- */

enum { PRINT_DEPTH = 64 };

typedef struct printer {
  char *out; /* NULL while only counting */
  uint64_t n, max;
  bool in_key; /* inside the quotes of a key that is no text */
} printer;

static void put_char(printer *p, char c) {
  if (p->n >= p->max) return;
  if (p->out != NULL) p->out[p->n] = c;
  p->n++;
}

static void put(printer *p, const char *text) {
  for (; *text != '\0'; text++) {
    if (p->in_key && (*text == '"' || *text == '\\')) put_char(p, '\\');
    put_char(p, *text);
  }
}

static void put_escaped(printer *p, const char *text, uint64_t n) {
  for (uint64_t i = 0; i < n && p->n < p->max; i++) {
    unsigned char c = (unsigned char)text[i];
    char escaped[8] = {(char)c};
    if (c == '"' || c == '\\') {
      snprintf(escaped, sizeof escaped, "\\%c", c);
    } else if (c == '\n') {
      snprintf(escaped, sizeof escaped, "\\n");
    } else if (c < ' ' || c == 0x7F) {
      snprintf(escaped, sizeof escaped, "\\u%04x", c);
    } else if (c == 0xED && i + 2 < n &&
               (unsigned char)text[i + 1] >= 0xA0) { /* a lone surrogate, as Python has them */
      snprintf(escaped, sizeof escaped, "\\ud%03x", (text[i + 1] & 0x3F) << 6 | (text[i + 2] & 0x3F));
      i += 2;
    }
    put(p, escaped);
  }
}

static void put_text(printer *p, const char *text, uint64_t n) {
  put(p, "\"");
  put_escaped(p, text, n);
  put(p, "\"");
}

/* The shortest of 15 to 17 digits that reads back as the same double, with Python's names for what has none. */
static void put_number(printer *p, double number) {
  char text[40];
  if (number != number) {
    put(p, "NaN");
    return;
  }
  if (number - number != 0) {
    put(p, number < 0 ? "-Infinity" : "Infinity");
    return;
  }
  for (int n_digits = 15; n_digits <= 17; n_digits++) {
    ckpt_c_snprintf(text, sizeof text, "%.*g", n_digits, number);
    if (ckpt_c_strtod(text, NULL) == number) break;
  }
  put(p, text);
  if (strpbrk(text, ".e") == NULL) put(p, ".0");
}

static void print(printer *p, const ckpt_object *object, int depth);

static void print_dict(printer *p, const ckpt_object *dict, int depth);

static void print_items(printer *p, const ckpt_object *object, int depth) {
  if (object->kind == CKPT_OBJECT_DICT) {
    print_dict(p, object, depth);
    return;
  }
  put(p, "[");
  for (uint64_t i = 0; i < object->n && p->n < p->max; i++) {
    if (i != 0) put(p, ", ");
    print(p, object->items[i], depth + 1);
  }
  put(p, "]");
}

/* JSON knows only text as keys: others are printed inside quotes, as Python's json does with numbers. */
static void print_key(printer *p, const ckpt_object *key, int depth) {
  if (key != NULL && key->kind == CKPT_OBJECT_TEXT) {
    put_text(p, key->text, key->n);
    return;
  }
  bool outer = p->in_key;
  put(p, "\"");
  p->in_key = true;
  print(p, key, depth);
  p->in_key = outer;
  put(p, "\"");
}

static void print_dict(printer *p, const ckpt_object *dict, int depth) {
  put(p, "{");
  for (uint64_t i = 0; i < dict->n && p->n < p->max; i++) {
    if (i != 0) put(p, ", ");
    print_key(p, dict->items[2 * i], depth + 1);
    put(p, ": ");
    print(p, dict->items[2 * i + 1], depth + 1);
  }
  put(p, "}");
}

/* {"module.Class": its items, "state": ...} or "<module.Class>". */
static void print_named(printer *p, const ckpt_object *object, int depth) {
  static const char *const names[] = {"keywords", "list", "dict", "state"};
  const char *name = object->name == NULL ? "" : object->name;
  if (object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_NAME) {
    put(p, "\"<");
    put_escaped(p, name, strlen(name));
    put(p, ">\"");
    return;
  }
  put(p, "{");
  put_text(p, name, strlen(name));
  put(p, ": ");
  print_items(p, object, depth);
  for (uint32_t i = 0; i < sizeof names / sizeof *names; i++) {
    if ((object->extras & 1u << i) == 0) continue;
    put(p, ", ");
    put_text(p, names[i], strlen(names[i]));
    put(p, ": ");
    print(p, ckpt_object_extra_of(object, (ckpt_object_extra)(1 << i)), depth + 1);
  }
  put(p, "}");
}

static void print(printer *p, const ckpt_object *object, int depth) {
  char text[40];
  if (p->n >= p->max) return;
  if (object == NULL || depth > PRINT_DEPTH) {
    put(p, object == NULL ? "null" : "\"...\"");
    return;
  }
  switch (object->kind) {
    case CKPT_OBJECT_BOOL: put(p, object->boolean ? "true" : "false"); return;
    case CKPT_OBJECT_INT: snprintf(text, sizeof text, "%" PRId64, object->integer); break;
    case CKPT_OBJECT_BIGINT: put(p, object->text); return;
    case CKPT_OBJECT_FLOAT: put_number(p, object->number); return;
    case CKPT_OBJECT_TEXT: put_text(p, object->text, object->n); return;
    case CKPT_OBJECT_BYTES: snprintf(text, sizeof text, "\"<%" PRIu64 " bytes>\"", object->n); break;
    case CKPT_OBJECT_LIST:
    case CKPT_OBJECT_TUPLE:
    case CKPT_OBJECT_SET:
    case CKPT_OBJECT_DICT:
      if (object->extras == 0)
        print_items(p, object, depth);
      else
        print_named(p, object, depth);
      return;
    case CKPT_OBJECT_TENSOR: snprintf(text, sizeof text, "\"<tensor %" PRIu32 ">\"", object->tensor); break;
    case CKPT_OBJECT_FOREIGN: print_named(p, object, depth); return;
    default: snprintf(text, sizeof text, "null"); break;
  }
  put(p, text);
}

char *ckpt_object_print(const ckpt_object *object, uint64_t max_bytes, ckpt_arena *arena) {
  printer count = {.max = max_bytes < UINT64_MAX ? max_bytes + 1 : max_bytes};
  print(&count, object, 0);
  bool is_cut = count.n > max_bytes;
  uint64_t n = is_cut ? max_bytes : count.n;
  char *text = ckpt_arena_alloc(arena, (size_t)n + sizeof "...");
  if (text == NULL) return NULL;
  printer write = {.out = text, .max = n};
  print(&write, object, 0);
  if (!is_cut) return text;
  /* Not in the middle of a character: back to before its lead byte when some of its bytes are missing. */
  uint64_t lead = n;
  while (lead != 0 && ((unsigned char)text[lead - 1] & 0xC0) == 0x80) lead--;
  if (lead != 0 && (unsigned char)text[lead - 1] >= 0xC0) {
    unsigned char c = (unsigned char)text[lead - 1];
    uint64_t wanted = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (n - (lead - 1) < wanted) n = lead - 1;
  }
  memcpy(text + n, "...", sizeof "...");
  return text;
}
