/* graph.c - see graph.h: the walk that finds tensors and storages, and what makes equal ones one.
 *
 * The walk goes depth first with its path on the heap and visits each node once. A call that is a tensor becomes a
 * TENSOR leaf in place, so whoever shares the node shares the leaf. Storages with one key are one, and views that are
 * equal in everything are one tensor; both by sorting, so that no forged hash costs more than a sort. */
#include "libckpt/codec/torch/read/graph.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"

typedef unsigned long long ull;

typedef struct step {
  ckpt_object *node;
  uint64_t next;
} step;

typedef struct walk {
  ckpt_torch_graph *graph;
  step *path;
  uint32_t n_path, path_capacity;
  ckpt_torch_reference *references;
  uint32_t n_references, reference_capacity;
  uint32_t *order; /* numbers of tensors, sorted */
  uint32_t *kept;  /* by number: the tensor that it is one with */
} walk;

/* ---- finding --------------------------------------------------------------------------------------------------- */

static bool holds(const ckpt_object *node) {
  return node != NULL && (node->kind == CKPT_OBJECT_TENSOR || node->mark == TORCH_HOLDS);
}

/* Makes a node a leaf of this tensor; class is that of a subclass, or NULL, and so are attributes of its own. */
static ckpt_status become_leaf(walk *w, ckpt_object *node, uint32_t tensor, const ckpt_object *class, uint32_t form,
                               ckpt_object *attributes, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  CKPT_TRY(ckpt_grow(&g->leaves, g->n_leaves, &g->leaf_capacity, sizeof *g->leaves, err));
  g->leaves[g->n_leaves++] = (ckpt_torch_leaf){node, *node, tensor};
  *node = (ckpt_object){.kind = CKPT_OBJECT_TENSOR, .tensor = tensor, .form = form & 0xF};
  if (class != NULL) node->name = class->name, node->n_module = class->n_module;
  if (attributes == NULL) return CKPT_OK;
  CKPT_TRY_ALLOC(node->items = ckpt_arena_array(g->arena, 1, sizeof *node->items), err);
  node->items[0] = attributes;
  node->extras = CKPT_EXTRA_STATE;
  return CKPT_OK;
}

/* Makes a number that a tensor's call holds a tensor of its own, without axes: items[i] of a node becomes its leaf. */
static ckpt_status take_number(walk *w, ckpt_object *node, uint64_t i, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  const ckpt_object *number = node->items[i];
  ckpt_object *leaf = ckpt_object_tensor(g->arena, g->n_tensors);
  ckpt_torch_tensor tensor = {.number = g->n_leaves, .is_literal = true, .n_elements = 1, .reach = 1};
  CKPT_TRY_ALLOC(leaf, err);
  tensor.dtype = number->kind == CKPT_OBJECT_FLOAT ? CKPT_F64 : CKPT_I64;
  tensor.first_name = tensor.last_name = UINT32_MAX;
  if (tensor.dtype == CKPT_F64)
    memcpy(&tensor.literal, &number->number, sizeof tensor.literal);
  else
    memcpy(&tensor.literal, &number->integer, sizeof tensor.literal);
  CKPT_TRY(ckpt_grow(&g->leaves, g->n_leaves, &g->leaf_capacity, sizeof *g->leaves, err));
  CKPT_TRY(ckpt_grow(&g->tensors, g->n_tensors, &g->tensor_capacity, sizeof *g->tensors, err));
  g->leaves[g->n_leaves++] = (ckpt_torch_leaf){leaf, *number, g->n_tensors};
  g->tensors[g->n_tensors++] = tensor;
  node->items[i] = leaf;
  return CKPT_OK;
}

/* Gives a call an array of its own: the tuple that it was made with, and other calls of that, share its array. */
static ckpt_status own_items(walk *w, ckpt_object *call, ckpt_error *err) {
  const size_t n = (size_t)ckpt_object_n_children(call);
  ckpt_object **items = ckpt_arena_array(w->graph->arena, n, sizeof *items);
  CKPT_TRY_ALLOC(items, err);
  memcpy(items, call->items, n * sizeof *items);
  call->items = items;
  return CKPT_OK;
}

/* The same of the scale and zero point of a call that has one of each: (scheme, scale, zero point), of which it gets a
 * copy of its own. */
static ckpt_status take_numbers(walk *w, ckpt_object *call, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  const ckpt_object *with = call->items[4];
  if (with->items[1]->kind == CKPT_OBJECT_TENSOR) return CKPT_OK;
  ckpt_object *copy = ckpt_object_new(g->arena, with->kind, with->n, NULL);
  CKPT_TRY_ALLOC(copy, err);
  memcpy(copy->items, with->items, (size_t)with->n * sizeof *copy->items);
  CKPT_TRY(take_number(w, copy, 1, err));
  CKPT_TRY(take_number(w, copy, 2, err));
  copy->mark = call->mark = TORCH_HOLDS;
  call->items[4] = copy;
  g->n_children += ckpt_object_n_children(call) + copy->n;
  return CKPT_OK;
}

/* Makes a quantized tensor's storage a leaf: the integers of the call, which stays what it is. */
static ckpt_status take_values(walk *w, ckpt_object *node, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  ckpt_object *leaf = ckpt_object_tensor(g->arena, g->n_tensors);
  CKPT_TRY_ALLOC(leaf, err);
  CKPT_TRY(ckpt_grow(&g->leaves, g->n_leaves, &g->leaf_capacity, sizeof *g->leaves, err));
  CKPT_TRY(ckpt_grow(&g->tensors, g->n_tensors, &g->tensor_capacity, sizeof *g->tensors, err));
  CKPT_TRY(ckpt_grow(&g->sparse, g->n_sparse, &g->sparse_capacity, sizeof *g->sparse, err));
  g->leaves[g->n_leaves] = (ckpt_torch_leaf){leaf, *node, g->n_tensors};
  CKPT_TRY(own_items(w, node, err));
  node->items[0] = leaf;
  g->sparse[g->n_sparse++] = node;
  g->tensors[g->n_tensors++] = (ckpt_torch_tensor){.number = g->n_leaves++}; /* its leaf, as below */
  return take_numbers(w, node, err);
}

/* Makes the storage of a view that is not read a tensor of bytes, so that the call can be written again. */
static ckpt_status take_storage(walk *w, ckpt_object *node, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  const ckpt_object *id = node->items[0], *class = ckpt_foreign_arg(id->items[0], 1);
  ckpt_object *leaf = ckpt_object_tensor(g->arena, g->n_tensors);
  CKPT_TRY_ALLOC(leaf, err);
  leaf->form = CKPT_LEAF_BARE;
  leaf->name = class->name;
  leaf->n_module = class->n_module;
  CKPT_TRY(ckpt_grow(&g->leaves, g->n_leaves, &g->leaf_capacity, sizeof *g->leaves, err));
  CKPT_TRY(ckpt_grow(&g->tensors, g->n_tensors, &g->tensor_capacity, sizeof *g->tensors, err));
  g->leaves[g->n_leaves] = (ckpt_torch_leaf){leaf, *id, g->n_tensors};
  CKPT_TRY(own_items(w, node, err));
  g->tensors[g->n_tensors++] = (ckpt_torch_tensor){.number = g->n_leaves++, .call = node, .id = id};
  node->items[0] = leaf;
  node->mark = TORCH_HOLDS;
  g->n_children += ckpt_object_n_children(node);
  return CKPT_OK;
}

static ckpt_status leave(walk *w, ckpt_object *node, ckpt_error *err);

/* Of (function, type, arguments, attributes), where what the function makes stays a call: puts that call in the place
 * of its arguments, as it stands in a Parameter. */
static ckpt_status take_called(walk *w, ckpt_object *node, ckpt_error *err) {
  enum { FUNCTION, ARGUMENTS = 2, MAX_ARGS = 16 }; /* many nodes can share a tuple */
  ckpt_torch_graph *g = w->graph;
  const ckpt_object *function = node->items[FUNCTION], *arguments = node->items[ARGUMENTS];
  ckpt_object call = *arguments;
  if (function->kind != CKPT_OBJECT_FOREIGN || function->form != CKPT_FORM_NAME ||
      arguments->kind != CKPT_OBJECT_TUPLE || arguments->extras != 0 || arguments->n > MAX_ARGS)
    return CKPT_OK;
  call.kind = CKPT_OBJECT_FOREIGN;
  call.form = CKPT_FORM_CALLED;
  call.name = function->name;
  call.n_module = function->n_module;
  if (!ckpt_torch_stays_call(&call)) return CKPT_OK;
  ckpt_object *made = ckpt_arena_alloc(g->arena, sizeof *made);
  CKPT_TRY_ALLOC(made, err);
  *made = call;
  CKPT_TRY(own_items(w, node, err));
  node->items[ARGUMENTS] = made;
  if (made->mark == TORCH_HOLDS) g->n_children += made->n;
  CKPT_TRY(leave(w, made, err));
  if (node->mark == TORCH_HOLDS || !holds(made)) return CKPT_OK;
  node->mark = TORCH_HOLDS;
  g->n_children += ckpt_object_n_children(node);
  return CKPT_OK;
}

/* What a call says in its argument i. */
static ckpt_object_grad grad_of(const ckpt_torch_call *call, uint64_t i) {
  bool is_known = i < call->n_args && call->args[i]->kind == CKPT_OBJECT_BOOL;
  return !is_known ? CKPT_GRAD_UNKNOWN : call->args[i]->boolean ? CKPT_GRAD_YES : CKPT_GRAD_NO;
}

/* The attributes that a call gives its tensor: a dict, or that and another of slots; NULL where there are none. */
static ckpt_object *attributes_of(const ckpt_torch_call *call, const ckpt_object *node) {
  enum { AT = 3 }; /* of (function, type, arguments, state), and of (data, requires grad, hooks, state) */
  const bool is_typed = call->args != node->items;
  ckpt_object *state = (ckpt_object *)(uintptr_t)ckpt_object_extra_of(node, CKPT_EXTRA_STATE);
  if (is_typed ? node->n > AT : call->kind == TORCH_CALL_INNER && node->n > AT) state = node->items[AT];
  const bool is_known = state != NULL && (state->kind == CKPT_OBJECT_DICT || state->kind == CKPT_OBJECT_TUPLE);
  return is_known && state->n != 0 ? state : NULL;
}

/* A node whose children have all been seen. */
static ckpt_status leave(walk *w, ckpt_object *node, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  ckpt_torch_call call;
  bool is_storage, is_sparse;
  if (node->kind != CKPT_OBJECT_FOREIGN) return CKPT_OK;
  if (node->form == CKPT_FORM_PERSISTENT) {
    CKPT_TRY(ckpt_grow(&w->references, w->n_references, &w->reference_capacity, sizeof *w->references, err));
    CKPT_TRY(ckpt_torch_reference_read(&w->references[w->n_references], &is_storage, node, err));
    if (is_storage)
      w->references[w->n_references].order = w->n_references, w->n_references++;
    else
      g->has_unknown_storage = true;
    return CKPT_OK;
  }
  if (ckpt_torch_is_from_type(node)) CKPT_TRY(take_called(w, node, err));
  if (node->mark == TORCH_HOLDS && ckpt_torch_is_wrapper(node)) {
    CKPT_TRY(ckpt_grow(&g->wrappers, g->n_wrappers, &g->wrapper_capacity, sizeof *g->wrappers, err));
    g->wrappers[g->n_wrappers++] = node;
  }
  ckpt_torch_call_read(&call, node);
  (void)ckpt_torch_sparse_parts(node, &is_sparse);
  if (is_sparse) {
    CKPT_TRY(ckpt_grow(&g->sparse, g->n_sparse, &g->sparse_capacity, sizeof *g->sparse, err));
    g->sparse[g->n_sparse++] = node;
  }
  if (call.kind == TORCH_CALL_OTHER) return CKPT_OK;
  if (call.kind == TORCH_CALL_QUANTIZED) return take_values(w, node, err);
  if (ckpt_torch_is_opaque(&call, node)) return take_storage(w, node, err);
  if (call.kind == TORCH_CALL_INNER) {
    static const ckpt_object parameter = {.name = "torch.nn.parameter.Parameter",
                                          .n_module = sizeof "torch.nn.parameter" - 1};
    bool has_tensor = call.n_args != 0 && call.args[0]->kind == CKPT_OBJECT_TENSOR;
    if (!has_tensor) return CKPT_OK;
    return become_leaf(w, node, call.args[0]->tensor, call.type == NULL ? &parameter : call.type, grad_of(&call, 1),
                       attributes_of(&call, node), err);
  }
  CKPT_TRY(ckpt_grow(&g->tensors, g->n_tensors, &g->tensor_capacity, sizeof *g->tensors, err));
  CKPT_TRY(become_leaf(w, node, g->n_tensors, call.type, grad_of(&call, 4), attributes_of(&call, node), err));
  g->tensors[g->n_tensors++] = (ckpt_torch_tensor){.number = g->n_leaves - 1}; /* its leaf, until it is read */
  return CKPT_OK;
}

static ckpt_status enter(walk *w, ckpt_object *node, ckpt_error *err) {
  if (node == NULL || node->mark != TORCH_UNSEEN || node->kind == CKPT_OBJECT_TENSOR) return CKPT_OK;
  node->mark = TORCH_PLAIN;
  if (node->kind == CKPT_OBJECT_TEXT) w->graph->n_children += node->n / TORCH_STEP_BYTES;
  if (ckpt_object_n_children(node) == 0) return leave(w, node, err);
  CKPT_TRY(ckpt_grow(&w->path, w->n_path, &w->path_capacity, sizeof *w->path, err));
  w->path[w->n_path++] = (step){node, 0};
  return CKPT_OK;
}

static ckpt_status find_tensors(walk *w, ckpt_error *err) {
  CKPT_TRY(enter(w, w->graph->root, err));
  while (w->n_path != 0) {
    step *top = &w->path[w->n_path - 1];
    ckpt_object *node = top->node;
    if (top->next < ckpt_object_n_children(node)) {
      CKPT_TRY(enter(w, node->items[top->next++], err));
      continue;
    }
    uint64_t n_children = ckpt_object_n_children(node);
    for (uint64_t i = 0; i < n_children && node->mark == TORCH_PLAIN; i++)
      if (holds(node->items[i])) node->mark = TORCH_HOLDS;
    if (node->mark == TORCH_HOLDS) w->graph->n_children += n_children;
    w->n_path--;
    CKPT_TRY(leave(w, node, err));
  }
  return CKPT_OK;
}

/* ---- storages --------------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b) {
  const ckpt_torch_reference *x = a, *y = b;
  int order = strcmp(x->key, y->key);
  return order != 0 ? order : (x->order > y->order) - (x->order < y->order);
}

static int compare_nodes(const void *a, const void *b) {
  uintptr_t x = (uintptr_t)((const ckpt_torch_reference *)a)->node;
  uintptr_t y = (uintptr_t)((const ckpt_torch_reference *)b)->node;
  return (x > y) - (x < y);
}

static int compare_order(const void *a, const void *b) {
  const ckpt_torch_reference *x = a, *y = b;
  return (x->order > y->order) - (x->order < y->order);
}

/* One storage for each key, numbered in the order in which they are met; references then lie in order of nodes. */
static ckpt_status unite_storages(walk *w, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  ckpt_torch_reference *r = w->references;
  if (w->n_references == 0) return CKPT_OK;
  qsort(r, w->n_references, sizeof *r, compare_keys);
  uint32_t first = 0;
  for (uint32_t i = 0; i < w->n_references; i++) { /* of one key, the first met stands for all */
    if (strcmp(r[first].key, r[i].key) != 0) first = i;
    if (r[i].n_bytes != r[first].n_bytes)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage '%.40s' is said to have %llu byte%s, and %llu", r[i].key,
                       (ull)r[first].n_bytes, ckpt_plural(r[first].n_bytes), (ull)r[i].n_bytes);
    r[i].storage = r[first].order;
  }
  qsort(r, w->n_references, sizeof *r, compare_order);
  for (uint32_t i = 0; i < w->n_references; i++) {
    if (r[i].storage == i) {
      CKPT_TRY(ckpt_grow(&g->storages, g->n_storages, &g->storage_capacity, sizeof *g->storages, err));
      g->storages[g->n_storages] =
          (ckpt_torch_storage){.key = r[i].key, .n_bytes = r[i].n_bytes, .element_bytes = r[i].element_bytes};
      r[i].storage = g->n_storages++;
    } else {
      r[i].storage = r[r[i].storage].storage; /* of an earlier one, which has its number */
    }
  }
  qsort(r, w->n_references, sizeof *r, compare_nodes);
  return CKPT_OK;
}

static const ckpt_torch_reference *find_reference(const walk *w, const ckpt_object *node) {
  ckpt_torch_reference key = {.node = node};
  return w->n_references == 0 ? NULL
                              : bsearch(&key, w->references, w->n_references, sizeof *w->references, compare_nodes);
}

/* ---- tensors ---------------------------------------------------------------------------------------------------- */

/* All bytes of a storage, and why its tensor is not read. */
static ckpt_status read_bytes(const walk *w, ckpt_torch_tensor *tensor, ckpt_error *err) {
  const ckpt_torch_reference *reference = find_reference(w, tensor->id);
  const ckpt_torch_tensor given = *tensor;
  uint64_t *axes = ckpt_arena_array(w->graph->arena, 2, sizeof *axes);
  ckpt_torch_call call;
  CKPT_TRY_ALLOC(axes, err);
  ckpt_torch_call_read(&call, given.call);
  CKPT_TRY(ckpt_torch_tensor_read(tensor, &call, reference, w->graph->arena, err));
  if (tensor->status != CKPT_EUNSUPPORTED) return CKPT_OK;
  const uint64_t n_bytes = axes[0] = reference->n_bytes;
  axes[1] = n_bytes != 1;
  w->graph->leaves[given.number].node->integer = reference->element_bytes;
  *tensor = (ckpt_torch_tensor){.call = given.call, .id = given.id, .opaque = tensor->reason, .dtype = CKPT_U8};
  tensor->storage = reference->storage;
  tensor->rank = 1;
  tensor->shape = axes;
  tensor->strides = axes + 1;
  tensor->n_elements = tensor->reach = n_bytes;
  tensor->first_name = tensor->last_name = UINT32_MAX;
  return CKPT_OK;
}

static ckpt_status read_tensors(walk *w, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  for (uint32_t i = 0; i < g->n_tensors; i++) {
    ckpt_torch_call call;
    if (g->tensors[i].is_literal) continue;
    if (g->tensors[i].id != NULL) {
      CKPT_TRY(read_bytes(w, &g->tensors[i], err));
      continue;
    }
    const ckpt_object *original = &g->leaves[g->tensors[i].number].original;
    ckpt_torch_call_read(&call, original);
    const ckpt_torch_reference *reference = call.n_args == 0 ? NULL : find_reference(w, call.args[0]);
    CKPT_TRY(ckpt_torch_tensor_read(&g->tensors[i], &call, reference, g->arena, err));
    g->tensors[i].is_kept = ckpt_foreign_is(original, "torch._utils", "_rebuild_meta_tensor_no_storage");
  }
  return CKPT_OK;
}

static int compare_axes(const uint64_t *a, const uint64_t *b, uint32_t rank) {
  for (uint32_t i = 0; i < rank; i++)
    if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
  return 0;
}

/* Orders tensors by what they are views of; those that are equal in all of it are one. */
static int compare_views(const ckpt_torch_tensor *x, const ckpt_torch_tensor *y) {
  if (x->storage != y->storage) return x->storage < y->storage ? -1 : 1;
  if (x->dtype != y->dtype) return x->dtype < y->dtype ? -1 : 1;
  if ((x->opaque == NULL) != (y->opaque == NULL)) return x->opaque == NULL ? -1 : 1;
  if (x->signs != y->signs) return x->signs < y->signs ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
  int order = compare_axes(x->shape, y->shape, x->rank);
  return order != 0 ? order : compare_axes(x->strides, y->strides, x->rank);
}

static int compare_numbers(const void *a, const void *b, void *tensors) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  int order = compare_views((const ckpt_torch_tensor *)tensors + x, (const ckpt_torch_tensor *)tensors + y);
  return order != 0 ? order : (x > y) - (x < y);
}

/* Leaves of equal tensors name the first of them; what is not read stays for itself. */
static ckpt_status unite_tensors(walk *w, ckpt_error *err) {
  ckpt_torch_graph *g = w->graph;
  if (g->n_tensors == 0) return CKPT_OK;
  w->order = reallocarray(NULL, g->n_tensors, sizeof *w->order);
  w->kept = reallocarray(NULL, g->n_tensors, sizeof *w->kept);
  CKPT_TRY_ALLOC(w->order, err);
  CKPT_TRY_ALLOC(w->kept, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < g->n_tensors; i++) {
    w->kept[i] = i;
    if (g->tensors[i].status == CKPT_OK && !g->tensors[i].is_literal) w->order[n++] = i;
  }
  if (n != 0) qsort_r(w->order, n, sizeof *w->order, compare_numbers, g->tensors);
  for (uint32_t i = 0, first = 0; i < n; i++) {
    if (compare_views(&g->tensors[w->order[first]], &g->tensors[w->order[i]]) != 0) first = i;
    w->kept[w->order[i]] = w->order[first];
    g->tensors[w->order[i]].is_copy = i != first;
    if (i == first) g->storages[g->tensors[w->order[i]].storage].n_tensors++;
  }
  for (uint32_t i = 0; i < g->n_leaves; i++) {
    ckpt_torch_leaf *leaf = &g->leaves[i];
    leaf->node->tensor = leaf->tensor = w->kept[leaf->tensor];
  }
  return CKPT_OK;
}

ckpt_status ckpt_torch_graph_read(ckpt_torch_graph *graph, ckpt_object *root, ckpt_torch_locate *locate, void *arg,
                                  ckpt_arena *arena, ckpt_error *err) {
  walk w = {.graph = graph};
  graph->root = root;
  graph->arena = arena;
  ckpt_status status;
  CKPT_TRY_GOTO(find_tensors(&w, err));
  CKPT_TRY_GOTO(unite_storages(&w, err));
  CKPT_TRY_GOTO(read_tensors(&w, err));
  CKPT_TRY_GOTO(unite_tensors(&w, err));
  CKPT_TRY_GOTO(locate(arg, graph->storages, graph->n_storages, err));
done:
  free(w.path);
  free(w.references);
  free(w.order);
  free(w.kept);
  return status;
}

void ckpt_torch_graph_free(ckpt_torch_graph *graph) {
  free(graph->storages);
  free(graph->tensors);
  free(graph->leaves);
  free(graph->names);
  free(graph->sparse);
  free(graph->wrappers);
  *graph = (ckpt_torch_graph){0};
}
