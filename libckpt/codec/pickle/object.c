/* object.c - see object.h. A node is printed in up to four steps: what makes it (an empty list, a class),
 * its items, the opcode that ends them, and its extras. The path to the node in work is on the heap. */
#include "libckpt/codec/pickle/object.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/node_map.h"
#include "libckpt/codec/pickle/pickle.h"

enum { BATCH = 1000 };          /* items of one APPENDS or SETITEMS, as Python has it */
enum { ON_PATH = 1, KEPT = 2 }; /* in the map: printing has begun; in the memo under this number less KEPT */
enum { OPCODE_NEWOBJ_EX = 0x92 };

typedef struct frame {
  const ckpt_object *node;
  uint64_t next;   /* child */
  uint32_t n_open; /* items since the mark */
  bool is_inline;  /* extra items of another node, which is on the stack */
  bool is_made, wants_build;
} frame;

typedef struct printer {
  ckpt_pickle_writer *writer;
  ckpt_pickle_put_leaf *leaf;
  void *arg;
  ckpt_node_map map; /* nodes, and names of classes and callables */
  frame *path;
  uint32_t n_path, capacity;
} printer;

static void fail(const printer *p, ckpt_status status, const char *what) {
  ckpt_stream *out = p->writer->out;
  if (out->status == CKPT_OK) ckpt_stream_fail(out, ckpt_fail(out->err, status, NULL, NULL, "%s", what));
}

/* What is known of a node or name. */
static uint64_t get(printer *p, const void *key) {
  const uint64_t *value = ckpt_node_map_at(&p->map, key);
  if (value == NULL) fail(p, CKPT_ENOMEM, "out of memory");
  return value == NULL ? 0 : *value;
}

static void set(printer *p, const void *key, uint64_t value) {
  uint64_t *place = ckpt_node_map_at(&p->map, key);
  if (place == NULL)
    fail(p, CKPT_ENOMEM, "out of memory");
  else
    *place = value;
}

static void keep(printer *p, const void *key) { set(p, key, KEPT + (uint64_t)ckpt_pickle_keep(p->writer)); }

/* The class or callable of a node: once, then from the memo. */
static void put_name(printer *p, const ckpt_object *node) {
  char module[1 << 10];
  const char *name = node->name, *dot = node->n_module != 0 ? name + node->n_module : strrchr(name, '.');
  uint64_t known = get(p, name);
  if (known >= KEPT) {
    ckpt_pickle_recall(p->writer, (uint32_t)(known - KEPT));
    return;
  }
  if (dot == NULL || (size_t)(dot - name) >= sizeof module || strchr(name, '\n') != NULL) {
    fail(p, CKPT_EINTERNAL, "a name that is none of a class to pickle");
    return;
  }
  memcpy(module, name, (size_t)(dot - name));
  module[dot - name] = '\0';
  ckpt_pickle_put_global(p->writer, module, dot + 1);
  keep(p, name);
}

/* ---- leaves ----------------------------------------------------------------------------------------------------- */

static void put_bytes(printer *p, const ckpt_object *node) {
  bool is_array = node->name != NULL && strcmp(node->name, CKPT_PICKLE_BYTEARRAY) == 0;
  if (is_array) ckpt_pickle_put_global(p->writer, "__builtin__", "bytearray");
  ckpt_pickle_put_bytes(p->writer, node->bytes, node->n);
  if (!is_array) return;
  ckpt_pickle_put_tuple(p->writer, 1);
  ckpt_pickle_put_reduce(p->writer);
}

/* A node without children; false for others. */
static bool put_simple(printer *p, const ckpt_object *node) {
  ckpt_pickle_writer *w = p->writer;
  switch (node->kind) {
    case CKPT_OBJECT_NONE: ckpt_pickle_put_none(w); return true;
    case CKPT_OBJECT_BOOL: ckpt_pickle_put_bool(w, node->boolean); return true;
    case CKPT_OBJECT_INT: ckpt_pickle_put_int(w, node->integer); return true;
    case CKPT_OBJECT_FLOAT: ckpt_pickle_put_float(w, node->number); return true;
    case CKPT_OBJECT_BIGINT: ckpt_pickle_put_bigint(w, node->text); break;
    case CKPT_OBJECT_TEXT: ckpt_pickle_put_text(w, node->text, node->n); break;
    case CKPT_OBJECT_BYTES: put_bytes(p, node); break;
    case CKPT_OBJECT_TENSOR:
      if (p->leaf == NULL) fail(p, CKPT_EINTERNAL, "a tensor in an object that may have none");
      if (p->leaf == NULL) break;
      if (node->extras != 0) return false;
      p->leaf(p->arg, w, node);
      break;
    case CKPT_OBJECT_FOREIGN:
      if (node->form != CKPT_FORM_NAME) return false;
      put_name(p, node);
      return true;
    default: return false;
  }
  keep(p, node);
  return true;
}

/* ---- containers and calls --------------------------------------------------------------------------------------- */

static bool is_collecting(const ckpt_object *node) {
  return node->kind == CKPT_OBJECT_LIST || node->kind == CKPT_OBJECT_DICT || node->kind == CKPT_OBJECT_SET;
}

/* What is printed before the node is made: of a tensor with attributes these, which are arguments of its call. */
static uint64_t n_items_of(const ckpt_object *node) {
  if (node->kind == CKPT_OBJECT_TENSOR) return ckpt_object_n_children(node);
  return node->kind == CKPT_OBJECT_DICT ? 2 * node->n : node->n;
}

/* Arguments: all items, less the callable of a CALL_VALUE. */
static uint64_t n_arguments(const ckpt_object *node) {
  bool is_value = node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_CALL_VALUE;
  return node->n - (is_value && node->n != 0);
}

/* What stands before the items. */
static void begin(printer *p, const ckpt_object *node) {
  ckpt_pickle_writer *w = p->writer;
  set(p, node, ON_PATH);
  switch (node->kind) {
    case CKPT_OBJECT_LIST:
      ckpt_pickle_put_empty_list(w);
      keep(p, node);
      return;
    case CKPT_OBJECT_DICT:
      if (node->name == NULL) {
        ckpt_pickle_put_empty_dict(w);
      } else {
        put_name(p, node);
        ckpt_pickle_put_empty_tuple(w);
        ckpt_pickle_put_reduce(w);
      }
      keep(p, node);
      return;
    case CKPT_OBJECT_TENSOR: p->leaf(p->arg, w, node); return;
    case CKPT_OBJECT_SET:
      ckpt_pickle_put_global(w, "__builtin__", node->name == NULL ? "set" : "frozenset");
      ckpt_pickle_put_empty_list(w);
      return;
    case CKPT_OBJECT_FOREIGN:
      if (node->form <= CKPT_FORM_NEW) put_name(p, node);
      if (node->form != CKPT_FORM_CALL && node->form != CKPT_FORM_NEW && node->form != CKPT_FORM_CALLED) return;
      break;
    default: break;
  }
  if (node->n > 3) ckpt_pickle_put_mark(w);
}

/* What stands behind the items (and keywords): the node is on the stack then. */
static void end(printer *p, const ckpt_object *node) {
  ckpt_pickle_writer *w = p->writer;
  switch (node->kind) {
    case CKPT_OBJECT_TUPLE: ckpt_pickle_put_tuple(w, node->n); break;
    case CKPT_OBJECT_TENSOR:
      ckpt_pickle_put_tuple(w, 4); /* since the mark */
      ckpt_pickle_put_reduce(w);
      break;
    case CKPT_OBJECT_SET:
      ckpt_pickle_put_tuple(w, 1);
      ckpt_pickle_put_reduce(w);
      break;
    case CKPT_OBJECT_FOREIGN:
      if (node->form == CKPT_FORM_PERSISTENT) {
        ckpt_pickle_put_persid(w);
        break;
      }
      if ((node->extras & CKPT_EXTRA_KEYWORDS) != 0) {
        ckpt_stream_le(w->out, OPCODE_NEWOBJ_EX, 1);
        break;
      }
      ckpt_pickle_put_tuple(w, n_arguments(node));
      if (node->form == CKPT_FORM_NEW)
        ckpt_pickle_put_newobj(w);
      else if (node->form != CKPT_FORM_CALLED)
        ckpt_pickle_put_reduce(w);
      break;
    default: return; /* kept since its beginning */
  }
  keep(p, node);
}

static void push(printer *p, const ckpt_object *node, bool is_inline) {
  ckpt_stream *out = p->writer->out;
  if (ckpt_grow(&p->path, p->n_path, &p->capacity, sizeof *p->path, out->err) != CKPT_OK) {
    ckpt_stream_fail(out, CKPT_ENOMEM);
    return;
  }
  p->path[p->n_path++] = (frame){.node = node, .is_inline = is_inline};
  if (!is_inline) begin(p, node);
}

static void put_value(printer *p, const ckpt_object *node) {
  bool is_small = node != NULL && node->kind <= CKPT_OBJECT_FLOAT && node->kind != CKPT_OBJECT_BIGINT;
  uint64_t known = node == NULL ? ON_PATH : is_small ? 0 : get(p, node);
  if (known >= KEPT)
    ckpt_pickle_recall(p->writer, (uint32_t)(known - KEPT));
  else if (known == ON_PATH)
    ckpt_pickle_put_none(p->writer);
  else if (node->kind == CKPT_OBJECT_TUPLE && node->n == 0)
    ckpt_pickle_put_empty_tuple(p->writer);
  else if (!put_simple(p, node))
    push(p, node, false);
}

/* Ends what was collected since the mark. */
static void close_batch(const printer *p, frame *f) {
  if (f->n_open == 0) return;
  if (f->node->kind == CKPT_OBJECT_DICT)
    ckpt_pickle_put_setitems(p->writer);
  else
    ckpt_pickle_put_appends(p->writer);
  f->n_open = 0;
}

static void put_item(printer *p, frame *f) {
  const ckpt_object *node = f->node;
  uint64_t i = f->next++;
  bool is_value = node->kind == CKPT_OBJECT_DICT && i % 2 == 1;
  if (is_collecting(node) && !is_value) {
    if (f->n_open == BATCH) close_batch(p, f);
    if (f->n_open++ == 0) ckpt_pickle_put_mark(p->writer);
  }
  bool begins_arguments = node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_CALL_VALUE && i == 1;
  if (begins_arguments && n_arguments(node) > 3) ckpt_pickle_put_mark(p->writer);
  put_value(p, node->items[i]); /* f may have moved */
}

/* The extra after the last one: items to put into the node, or its state. */
static void put_extra(printer *p, frame *f, uint64_t n_items) {
  const ckpt_object *node = f->node;
  uint32_t left = node->extras;
  for (uint64_t i = f->next - n_items; i > 0; i--) left &= left - 1;
  const ckpt_object *extra = node->items[f->next++];
  uint32_t kind = left & -left;
  if (kind == CKPT_EXTRA_KEYWORDS) return; /* printed already */
  f->wants_build = kind == CKPT_EXTRA_STATE;
  if (f->wants_build)
    put_value(p, extra);
  else
    push(p, extra, true);
}

static void step(printer *p) {
  frame *f = &p->path[p->n_path - 1];
  const ckpt_object *node = f->node;
  const uint64_t n_items = n_items_of(node);
  if (f->wants_build) ckpt_pickle_put_build(p->writer);
  f->wants_build = false;
  if (f->next < n_items) {
    put_item(p, f);
    return;
  }
  if (!f->is_made) {
    bool has_keywords = (node->extras & CKPT_EXTRA_KEYWORDS) != 0 && node->kind == CKPT_OBJECT_FOREIGN;
    if (is_collecting(node)) close_batch(p, f);
    f->is_made = true;
    if (!f->is_inline && has_keywords) {
      ckpt_pickle_put_tuple(p->writer, node->n);
      put_value(p, ckpt_object_extra_of(node, CKPT_EXTRA_KEYWORDS));
      return; /* and what ends the call when the keywords are there */
    }
  }
  if (!f->is_inline && get(p, node) == ON_PATH) end(p, node);
  if (!f->is_inline && f->next < ckpt_object_n_children(node))
    put_extra(p, f, n_items);
  else
    p->n_path--;
}

void ckpt_pickle_put_object(ckpt_pickle_writer *writer, const ckpt_object *object, ckpt_pickle_put_leaf *leaf,
                            void *arg) {
  printer p = {.writer = writer, .leaf = leaf, .arg = arg};
  put_value(&p, object);
  while (p.n_path != 0 && writer->out->status == CKPT_OK) step(&p);
  free(p.path);
  ckpt_node_map_free(&p.map);
}
