/* names.c - what the tensors of an object are called, and what they are for.
 *
 * A name is the path to a tensor, joined with dots. Containers that are there for torch's sake are left out of it: the
 * `_parameters`, `_buffers` and `_modules` of a module, the wrapper around a DTensor, and the entry of a training
 * checkpoint that holds the model. Optimizer states are known by their shape, {'state': ..., 'param_groups': [...]},
 * flattened ones by their keys and their place.
 *
 * A container is named by every path to it, which a hostile graph can have without end: steps, and bytes of names, are
 * bounded by a multiple of what the graph holds, and a path never enters a node that it is in. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/state/groups.h"
#include "libckpt/codec/torch/state/state.h"

enum { MAX_NAME_BYTES = 4096, STEPS_PER_CHILD = 8, MORE_STEPS = 4096, N_SHOWN = 100 };

/* What the children of a container are. */
typedef enum frame_kind {
  FRAME_PLAIN,
  FRAME_TOP,       /* the DICT of a checkpoint's parts */
  FRAME_MODULE,    /* attributes of a torch.nn.Module */
  FRAME_OPTIMIZER, /* {'state', 'param_groups', ...} */
  FRAME_STATE,     /* {parameter: {...}} */
  FRAME_STATE_OF,  /* {'exp_avg': ..., ...} of one parameter */
  FRAME_FLAT,      /* {'state.w.exp_avg': ..., 'param_groups.w.lr': ...} */
  FRAME_WRAPPED,   /* attributes of a subclass that wraps tensors: DTensor's _local_tensor */
  FRAME_SPARSE     /* components of a sparse tensor */
} frame_kind;

typedef struct frame {
  ckpt_object *node;
  uint64_t next;
  size_t base, length; /* of the path that leads here: text[base, length) */
  bool is_too_long;    /* the path did not fit */
  frame_kind kind;
  ckpt_role role;           /* of tensors below */
  const char *const *parts; /* FRAME_SPARSE */
} frame;

/* A child on its way onto the path. */
typedef struct child {
  ckpt_object *node;
  const char *part; /* of the name; NULL: none */
  size_t n_part;
  const char *state; /* a state's name, behind part and a dot; or NULL */
  bool is_fresh;     /* the name begins with part */
  frame_kind kind;
  ckpt_role role;
  const char *const *parts;
  char number[CKPT_OBJECT_KEY_BYTES];
} child;

typedef struct namer {
  ckpt_torch_graph *graph;
  ckpt_index *index;
  bool stored_names;
  ckpt_torch_dict dict;
  frame *path;
  uint32_t n_path, path_capacity;
  uint64_t n_steps, max_steps;
  const char *const *param_names; /* by the number of a parameter, or NULL */
  uint64_t n_param_names;
  char text[2 * MAX_NAME_BYTES + 2];
} namer;

/* ---- names by number ----------------------------------------------------------------------------------------------
 */

/* Names of an optimizer's parameters by number, where its groups have them: 'params' and 'param_names' side by side. */
static ckpt_status read_param_names(namer *w, const ckpt_object *optimizer, ckpt_error *err) {
  const ckpt_object *groups = ckpt_object_get(optimizer, "param_groups"), *state = ckpt_object_get(optimizer, "state");
  w->param_names = NULL;
  w->n_param_names = 0;
  if (groups == NULL || groups->kind != CKPT_OBJECT_LIST) return CKPT_OK;
  if (state == NULL || state->mark != TORCH_HOLDS) return CKPT_OK;
  uint64_t n = 0, max = 8 * state->n + 64; /* no more than walking the state takes */
  for (uint64_t i = 0; i < groups->n && n <= max; i++) {
    const ckpt_object *params = ckpt_object_field(groups->items[i], "params");
    const ckpt_object *names = ckpt_object_field(groups->items[i], "param_names");
    if (params == NULL || names == NULL || params->kind != CKPT_OBJECT_LIST || names->kind != CKPT_OBJECT_LIST ||
        params->n != names->n)
      return CKPT_OK;
    n += params->n + 1;
  }
  if (n > max) return CKPT_OK;
  const char **table = ckpt_arena_array(w->graph->arena, (size_t)n, sizeof *table);
  CKPT_TRY_ALLOC(table, err);
  for (uint64_t i = 0; i < groups->n; i++) {
    const ckpt_object *params = ckpt_object_field(groups->items[i], "params");
    const ckpt_object *names = ckpt_object_field(groups->items[i], "param_names");
    for (uint64_t k = 0; k < params->n; k++) {
      const ckpt_object *number = params->items[k], *name = names->items[k];
      bool is_known = number->kind == CKPT_OBJECT_INT && number->integer >= 0 && (uint64_t)number->integer < n &&
                      name->kind == CKPT_OBJECT_TEXT && name->n != 0 && strlen(name->text) == name->n;
      if (is_known) table[number->integer] = name->text;
    }
  }
  w->param_names = table;
  w->n_param_names = n;
  return CKPT_OK;
}

/* ---- a child's part of the name ---------------------------------------------------------------------------------- */

static void take_text(child *c, const char *text, size_t n) { c->part = text, c->n_part = n; }

static void take_number(child *c, const char *what, uint64_t number) {
  int n = snprintf(c->number, sizeof c->number, "%s%" PRIu64, what, number);
  take_text(c, c->number, (size_t)n);
}

/* A key is called what str() makes of it; a tuple and the like by its place. */
static void take_key(child *c, const ckpt_object *key, uint64_t place) {
  const bool is_text = key->kind == CKPT_OBJECT_TEXT;
  const char *text = is_text ? key->text : ckpt_object_key_text(c->number, key);
  if (text != NULL)
    take_text(c, text, is_text ? (size_t)key->n : strlen(text));
  else
    take_number(c, "key", place);
}

static bool is_key(const child *c, const char *key) {
  return c->part != NULL && c->n_part == strlen(key) && memcmp(c->part, key, c->n_part) == 0;
}

/* A tensor of an optimizer's state of one parameter; a DTensor is a call around one. */
static void take_state(const namer *w, child *c) {
  bool is_tensor = c->part != NULL && (c->node->kind == CKPT_OBJECT_TENSOR ||
                                       ckpt_foreign_is(c->node, "torch._tensor", "_rebuild_from_type_v2"));
  const ckpt_torch_state *state = is_tensor ? ckpt_torch_state_of(c->part, c->n_part) : NULL;
  c->role = state == NULL ? CKPT_ROLE_OTHER : state->role;
  if (state == NULL || w->stored_names || is_key(c, state->name)) return;
  take_text(c, state->name, strlen(state->name));
  w->index->is_renamed = true;
}

/* The same under the key of a flattened optimizer: state.<parameter>.<kind> */
static void take_flat_state(const namer *w, child *c) {
  static const char start[] = "state.";
  const char *dot = memrchr(c->part, '.', c->n_part);
  c->role = CKPT_ROLE_OTHER;
  if (strncmp(c->part, start, sizeof start - 1) != 0 || dot < c->part + sizeof start - 1) return;
  child last = {.node = c->node, .part = dot + 1, .n_part = c->n_part - (size_t)(dot + 1 - c->part)};
  const char *stored = last.part;
  take_state(w, &last);
  c->role = last.role;
  if (last.part == stored) return;
  c->n_part = (size_t)(dot - c->part);
  c->state = last.part;
}

/* What a name with dots is for, among what is for `all`. Megatron's states are called `optimizer.<...>` in DCP. */
static ckpt_role flat_role(const char *name, ckpt_role all) {
  static const char start[] = "optimizer.";
  const ckpt_role role = ckpt_role_of_name(name);
  if (role != CKPT_ROLE_PARAMETER) return role;
  return strncmp(name, start, sizeof start - 1) == 0 ? CKPT_ROLE_OTHER : all;
}

/* Whether an entry is a flattened optimizer. What is looked at are steps: it can stand under very many keys. */
static bool is_flat_optimizer(namer *w, const ckpt_object *key, const ckpt_object *node) {
  if (key->kind != CKPT_OBJECT_TEXT || node->kind != CKPT_OBJECT_DICT || !ckpt_torch_is_optimizer_key(key->text))
    return false;
  w->n_steps += node->n;
  return w->n_steps <= w->max_steps && ckpt_torch_is_flat_optimizer(node);
}

static void take_top(namer *w, child *c, const ckpt_object *key) {
  const bool is_text = key->kind == CKPT_OBJECT_TEXT;
  if (is_flat_optimizer(w, key, c->node)) {
    c->kind = FRAME_FLAT;
    return;
  }
  if (ckpt_torch_is_optimizer_at(key, c->node)) c->kind = FRAME_OPTIMIZER;
  if (c->node == w->graph->top) {
    c->kind = FRAME_TOP;
    if (!w->stored_names) c->part = NULL;
    w->index->is_renamed = w->index->is_renamed || !w->stored_names;
    return;
  }
  bool is_model = c->node == w->dict.container;
  bool is_training = is_text && ckpt_torch_is_training_key(key->text);
  const bool is_plain = c->node->kind == CKPT_OBJECT_TENSOR, has_dot = is_text && strchr(key->text, '.');
  const bool is_beside = w->dict.is_flat && !is_plain &&
                         !has_dot &&                      /* not a quantized weight, nor packed ones in a tuple */
                         !ckpt_torch_is_wrapper(c->node); /* nor a DTensor */
  const bool is_whole_name = has_dot && (is_plain || c->node->kind == CKPT_OBJECT_FOREIGN);
  if (w->dict.is_state_dict && is_plain && !has_dot) return; /* a parameter may be called "scaler" */
  if (w->dict.container == NULL && is_whole_name) /* "scaler.weight" is a parameter's: the model is a flat dict */
    c->role = flat_role(key->text, c->role);
  else if (w->dict.container != NULL ? !is_model : is_training || is_beside)
    c->role = CKPT_ROLE_OTHER;
  if (!is_model || w->stored_names) return;
  c->part = NULL;
  w->index->is_renamed = true;
}

static void take_module(child *c) {
  bool is_buffers = is_key(c, "_buffers");
  if (!is_buffers && !is_key(c, "_parameters") && !is_key(c, "_modules")) return;
  if (is_buffers && c->role == CKPT_ROLE_PARAMETER) c->role = CKPT_ROLE_BUFFER;
  c->part = NULL;
}

static void take_parameter_name(const namer *w, child *c, const ckpt_object *key) {
  c->kind = FRAME_STATE_OF;
  if (w->stored_names || key->kind != CKPT_OBJECT_INT || key->integer < 0) return;
  uint64_t number = (uint64_t)key->integer;
  const char *name = number < w->n_param_names ? w->param_names[number] : NULL;
  if (name == NULL) return;
  take_text(c, name, strlen(name));
  w->index->is_renamed = true;
}

/* DTensor: its local tensor has its name, and all else is the spec's. */
static void take_wrapped(child *c) {
  if (is_key(c, "_local_tensor"))
    c->part = NULL;
  else if (is_key(c, "_spec"))
    c->role = CKPT_ROLE_OTHER;
}

static void dict_child(namer *w, const frame *f, child *c, const ckpt_object *key, uint64_t place) {
  take_key(c, key, place);
  switch (f->kind) {
    case FRAME_TOP: take_top(w, c, key); break;
    case FRAME_MODULE: take_module(c); break;
    case FRAME_OPTIMIZER:
      if (is_key(c, "state")) c->kind = FRAME_STATE;
      break;
    case FRAME_STATE: take_parameter_name(w, c, key); break;
    case FRAME_STATE_OF: take_state(w, c); break;
    case FRAME_FLAT: take_flat_state(w, c); break;
    case FRAME_WRAPPED: take_wrapped(c); break;
    default: break;
  }
}

/* Whether an argument is what a collection holds: called as if it had been put there later. */
static bool is_collected(const ckpt_object *call, uint64_t i) {
  return (i == 0 && ckpt_foreign_is(call, "collections", "deque")) ||
         (i == 1 && ckpt_foreign_is(call, "collections", "defaultdict"));
}

/* An argument of a call or of an instance. */
static void argument_child(const frame *f, child *c, uint64_t i) {
  const ckpt_object *call = f->node;
  take_number(c, "", i);
  if (!ckpt_foreign_is_call(call)) return;
  const char *const *parts = ckpt_torch_sparse_parts(call, NULL);
  static const char *const of_quantizer[] = {"scheme", "scales", "zero_points", NULL};
  if (ckpt_torch_has_bytes(call) && i == 0) {
    take_text(c, "storage", sizeof "storage" - 1);
  } else if (ckpt_torch_is_quantized(call) && i == 0) {
    take_text(c, "values", sizeof "values" - 1);
  } else if (ckpt_torch_is_quantized(call) && i == 4) {
    if (ckpt_torch_has_bytes(call)) c->role = CKPT_ROLE_OTHER; /* of values that nobody has */
    c->part = NULL;
    c->kind = FRAME_SPARSE;
    c->parts = of_quantizer;
  } else if (parts != NULL && i == 1) {
    c->part = NULL;
    c->kind = FRAME_SPARSE;
    c->parts = parts;
  } else if (is_collected(call, i)) {
    c->part = NULL;
  } else if (ckpt_torch_is_from_type(call)) {
    const bool is_made = call->items[2]->kind != CKPT_OBJECT_TUPLE; /* by a call that stays one; else a wrapper is */
    c->part = NULL;
    if (i == 3 && !is_made)
      c->kind = FRAME_WRAPPED;
    else if (i != 2 || !is_made)
      c->role = CKPT_ROLE_OTHER;
  } else if (ckpt_foreign_is(call, "torch._utils", "_rebuild_parameter") ||
             ckpt_foreign_is(call, "torch._utils", "_rebuild_parameter_with_state")) {
    if (i != 0) c->role = CKPT_ROLE_OTHER;
    if (i == 0 || i == 3) c->part = NULL; /* what it is around, its attributes */
  }
}

/* Child i of a frame's node; c->node NULL where there is none to be named. */
static void take_child(namer *w, const frame *f, uint64_t i, child *c) {
  const ckpt_object *node = f->node;
  uint64_t n_items = node->kind == CKPT_OBJECT_TENSOR ? 0 : node->kind == CKPT_OBJECT_DICT ? 2 * node->n : node->n;
  *c = (child){.node = node->items[i], .role = f->role};
  if (node->kind == CKPT_OBJECT_DICT && i < n_items && i % 2 == 0) c->node = NULL; /* a key */
  if (c->node == NULL || !ckpt_torch_has_tensor(c->node)) {
    c->node = NULL;
    return;
  }
  if (i >= n_items) { /* state, and what was appended or set: the same name */
    if (f->kind == FRAME_WRAPPED) c->kind = FRAME_WRAPPED;
  } else if (node->kind == CKPT_OBJECT_DICT) {
    dict_child(w, f, c, node->items[i - 1], i / 2);
  } else if (node->kind == CKPT_OBJECT_FOREIGN) {
    argument_child(f, c, i);
  } else if (f->kind == FRAME_WRAPPED) { /* (attributes, slots) */
    c->kind = FRAME_WRAPPED;
  } else if (f->kind == FRAME_SPARSE) {
    uint64_t n_parts = 0;
    while (n_parts < i && f->parts[n_parts] != NULL) n_parts++;
    if (f->parts[n_parts] != NULL)
      take_text(c, f->parts[n_parts], strlen(f->parts[n_parts]));
    else
      take_number(c, "", i);
  } else {
    take_number(c, "", i);
  }
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

static bool is_word(const char *part, size_t n, const char *word) {
  return strlen(word) == n && memcmp(part, word, n) == 0;
}

/* The role of a tensor in what no container says is an optimizer's: below "optim.state" or "optimizer.state" a state,
 * whose kind stands before the parameter's name or behind it. Names of a plain state dict have to say a kind. */
static ckpt_role role_by_path(const namer *w, const char *text, size_t n) {
  bool is_optimizer = false, is_state = false;
  for (size_t at = 0, n_part; at <= n; at += n_part + 1) {
    const char *dot = memchr(text + at, '.', n - at);
    n_part = dot == NULL ? n - at : (size_t)(dot - text) - at;
    const ckpt_torch_state *state = is_state ? ckpt_torch_state_of(text + at, n_part) : NULL;
    if (state != NULL) return state->role == CKPT_ROLE_MASTER ? CKPT_ROLE_OTHER : state->role;
    is_state = is_state || (is_optimizer && is_word(text + at, n_part, "state"));
    is_optimizer = is_word(text + at, n_part, "optim") || is_word(text + at, n_part, "optimizer");
  }
  const bool is_plain = w->dict.is_state_dict || w->dict.is_flat;
  return is_state && !is_plain ? CKPT_ROLE_OTHER : CKPT_ROLE_PARAMETER;
}

/* Gives a leaf's tensor a name. The storage of one that is not read is nothing of the model's, which has that one. */
static ckpt_status add_name(namer *w, const ckpt_object *leaf, const char *text, size_t n, ckpt_role whole,
                            ckpt_error *err) {
  if (whole == CKPT_ROLE_PARAMETER && w->dict.container == NULL) whole = role_by_path(w, text, n);
  const bool is_storage = (leaf->form & CKPT_LEAF_BARE) != 0 && leaf->name != NULL;
  const ckpt_role role = is_storage ? CKPT_ROLE_OTHER : whole;
  const uint32_t number = leaf->tensor;
  ckpt_torch_graph *g = w->graph;
  ckpt_torch_tensor *tensor = &g->tensors[number];
  if (memchr(text, '\0', n) != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, ckpt_arena_text(g->arena, text, n), "a zero byte follows in its name");
  CKPT_TRY(ckpt_grow(&g->names, g->n_names, &g->name_capacity, sizeof *g->names, err));
  ckpt_torch_name *name = &g->names[g->n_names];
  *name =
      (ckpt_torch_name){.text = ckpt_arena_text(g->arena, text, n), .next = UINT32_MAX, .role = role, .whole = whole};
  CKPT_TRY_ALLOC(name->text, err);
  if (tensor->first_name == UINT32_MAX) {
    tensor->first_name = tensor->last_name = g->n_names++;
  } else if (role != CKPT_ROLE_OTHER && g->names[tensor->first_name].role == CKPT_ROLE_OTHER) {
    name->next = tensor->first_name; /* what it is for the model comes first */
    tensor->first_name = g->n_names++;
  } else {
    g->names[tensor->last_name].next = g->n_names;
    tensor->last_name = g->n_names++;
  }
  return CKPT_OK;
}

static void append(namer *w, frame *to, const char *part, size_t n_part) {
  size_t n_dot = to->length > to->base ? 1 : 0;
  to->is_too_long = to->is_too_long || to->length - to->base + n_dot + n_part > MAX_NAME_BYTES ||
                    to->length + n_dot + n_part > sizeof w->text;
  if (to->is_too_long) return;
  if (n_dot != 0) w->text[to->length++] = '.';
  if (n_part != 0) memcpy(w->text + to->length, part, n_part);
  to->length += n_part;
}

/* Appends a child's part to the path of f; the path to the child. */
static frame extend(namer *w, const frame *f, const child *c) {
  frame next = {.node = c->node, .base = f->base, .length = f->length, .is_too_long = f->is_too_long};
  if (c->is_fresh) next.base = next.length;
  if (c->part != NULL) append(w, &next, c->part, c->n_part);
  if (c->state != NULL) append(w, &next, c->state, strlen(c->state));
  return next;
}

/* The first optimizer's tensors are called after it, wherever it stands. */
static void take_first(namer *w, const frame *f, child *c) {
  if (w->graph->optimizer != NULL) return;
  w->graph->optimizer = c->node;
  if (w->stored_names) return;
  w->index->is_renamed = w->index->is_renamed || f->length != f->base || !is_key(c, "optimizer");
  c->is_fresh = true;
  take_text(c, "optimizer", sizeof "optimizer" - 1);
}

static ckpt_status visit(namer *w, const frame *f, child *c, ckpt_error *err) {
  if (c->kind == FRAME_PLAIN && ckpt_torch_is_optimizer(c->node)) c->kind = FRAME_OPTIMIZER;
  if (c->kind == FRAME_OPTIMIZER || c->kind == FRAME_FLAT) {
    c->role = CKPT_ROLE_OTHER;
    if (c->kind == FRAME_OPTIMIZER && !w->stored_names) CKPT_TRY(read_param_names(w, c->node, err));
    take_first(w, f, c);
  } else if (c->kind == FRAME_PLAIN && ckpt_torch_is_module(c->node)) {
    c->kind = FRAME_MODULE;
  }
  frame next = extend(w, f, c);
  if (c->node->kind == CKPT_OBJECT_TENSOR) {
    size_t n = next.length - next.base;
    if (next.is_too_long) {
      const char *begin = n == 0 && c->part != NULL ? c->part : w->text + next.base;
      if (begin == c->part) n = c->n_part;
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a tensor name of more than %d bytes, which begins '%.*s'",
                       MAX_NAME_BYTES, n < N_SHOWN ? (int)n : N_SHOWN, begin);
    }
    w->n_steps += n / TORCH_STEP_BYTES;
    CKPT_TRY(
        add_name(w, c->node, n == 0 ? "tensor" : w->text + next.base, n == 0 ? sizeof "tensor" - 1 : n, c->role, err));
    if (c->node->extras == 0 || !ckpt_torch_has_tensor(c->node->items[0]) || c->node->mark == TORCH_ON_PATH)
      return CKPT_OK;
    c->kind = FRAME_PLAIN; /* its attributes */
    c->role = CKPT_ROLE_OTHER;
  }
  CKPT_TRY(ckpt_grow(&w->path, w->n_path, &w->path_capacity, sizeof *w->path, err));
  next.kind = c->kind;
  next.role = c->role;
  next.parts = c->parts;
  c->node->mark = TORCH_ON_PATH;
  w->path[w->n_path++] = next;
  return CKPT_OK;
}

static ckpt_status name_all(namer *w, child *root, ckpt_error *err) {
  CKPT_TRY(visit(w, &(frame){.role = CKPT_ROLE_PARAMETER}, root, err));
  while (w->n_path != 0) {
    frame *top = &w->path[w->n_path - 1];
    if (top->next == ckpt_object_n_children(top->node)) {
      top->node->mark = TORCH_HOLDS;
      w->n_path--;
      continue;
    }
    if (++w->n_steps > w->max_steps)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                       "the same containers, or long names, again and again in its object (more than %" PRIu64
                       " steps to name its tensors)",
                       w->max_steps);
    child c;
    frame at = *top;
    top->next++;
    take_child(w, &at, at.next, &c);
    if (c.node != NULL) CKPT_TRY(visit(w, &at, &c, err));
  }
  return CKPT_OK;
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_torch_names_find(ckpt_torch_graph *graph, ckpt_index *index, const char *prefix, bool stored_names,
                                  ckpt_error *err) {
  namer *w = calloc(1, sizeof *w);
  CKPT_TRY_ALLOC(w, err);
  w->graph = graph;
  w->index = index;
  w->stored_names = stored_names;
  w->max_steps = STEPS_PER_CHILD * graph->n_children + MORE_STEPS;
  child root = {.node = graph->root, .role = graph->role};
  if (prefix[0] != '\0') take_text(&root, prefix, strlen(prefix));
  ckpt_status status = CKPT_OK;
  graph->top = root.node;
  if (!ckpt_torch_has_tensor(root.node)) goto done;
  ckpt_torch_dict_find(&w->dict, root.node, w->max_steps);
  graph->top = w->dict.top;
  if (ckpt_torch_is_flat_optimizer(root.node))
    root.kind = FRAME_FLAT;
  else if (root.node->kind == CKPT_OBJECT_DICT && !ckpt_torch_is_optimizer(root.node) &&
           !ckpt_torch_is_module(root.node))
    root.kind = FRAME_TOP;
  CKPT_TRY_GOTO(name_all(w, &root, err));
  for (uint32_t i = 0; i < graph->n_tensors; i++) { /* keys of dicts, and what only a cycle leads to */
    char text[40];
    if (graph->tensors[i].first_name != UINT32_MAX || graph->tensors[i].is_copy) continue;
    int n = snprintf(text, sizeof text, "unnamed.%" PRIu32, i);
    const ckpt_object leaf = {.kind = CKPT_OBJECT_TENSOR, .tensor = i};
    CKPT_TRY_GOTO(add_name(w, &leaf, text, (size_t)n, CKPT_ROLE_OTHER, err));
  }
  status = ckpt_torch_names_separate(graph, index, err);
done:
  free(w->path);
  free(w);
  return status;
}

bool ckpt_torch_is_model(const ckpt_torch_graph *graph) {
  for (uint32_t i = 0; i < graph->n_names; i++)
    if (!ckpt_role_is_model(graph->names[i].role)) return false;
  return true;
}
