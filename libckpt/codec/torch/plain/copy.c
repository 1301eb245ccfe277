/* copy.c - see copy.h. */
#include "libckpt/codec/torch/plain/copy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/plain/safe.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/groups.h"

enum { IN_WORK = 1 /* a mark */, MAX_DEPTH = 200 /* of a copy that is whole */ };
#define LEFT_OUT UINT64_MAX /* in the map, where else the copy is */

struct ckpt_torch_frame {
  const ckpt_object *node;
  ckpt_object *copy;
  uint64_t next, n_kept;            /* children seen; items in the copy */
  uint64_t n_leaves, n_leaves_kept; /* of the copier when it began */
  bool is_short, waits;             /* a part is left out; the child before `next` is in `result` */
};

typedef struct ckpt_torch_frame frame;
typedef ckpt_torch_copier copier;

/* ---- what is left out ----------------------------------------------------------------------------------------- */

enum { MAX_PLACE = 512, MAX_KEY = 80, MAX_KEYS = 64 };

/* Appends to a place of n bytes what leads from a node to its child; the new length. */
static size_t extend_place(char *text, size_t n, const ckpt_object *node, uint64_t child) {
  const ckpt_object *key = NULL;
  if (node->kind == CKPT_OBJECT_FOREIGN || node->kind == CKPT_OBJECT_TENSOR) return n; /* a state, arguments */
  if (node->kind == CKPT_OBJECT_DICT && child < 2 * node->n) key = node->items[child & ~UINT64_C(1)];
  if (key == NULL && child >= node->n) return n; /* another state */
  if (n + MAX_KEY + 2 > MAX_PLACE) return n;
  const char *dot = n == 0 ? "" : ".";
  typedef unsigned long long ull;
  int added;
  if (key != NULL && key->kind == CKPT_OBJECT_TEXT)
    added = snprintf(text + n, MAX_PLACE - n, "%s%.*s", dot, MAX_KEY, key->text);
  else if (key != NULL && key->kind == CKPT_OBJECT_INT)
    added = snprintf(text + n, MAX_PLACE - n, "%s%lld", dot, (long long)key->integer);
  else
    added =
        snprintf(text + n, MAX_PLACE - n, "%s%s%llu", dot, key == NULL ? "" : "key", (ull)(key ? child / 2 : child));
  return n + (size_t)added;
}

/* Counts a node that is left out, the one that was begun last below the path. */
static void count_left_out(copier *c, const ckpt_object *node) {
  if (c->is_whole) {
    c->refused = ckpt_torch_class(node);
    return;
  }
  char place[MAX_PLACE] = "", where[MAX_PLACE + 16];
  size_t n = 0;
  const frame *top = c->n_path == 0 ? NULL : &c->path[c->n_path - 1];
  const bool is_key =
      top != NULL && top->node->kind == CKPT_OBJECT_DICT && top->next % 2 == 1 && top->next < 2 * top->node->n;
  if (c->at != NULL)
    n = (size_t)snprintf(place, sizeof place, "%.*s", (int)(c->n_at < MAX_KEY ? c->n_at : MAX_KEY), c->at);
  for (uint32_t i = 0; i + is_key < c->n_path && i < MAX_KEYS; i++)
    n = extend_place(place, n, c->path[i].node, c->path[i].next - 1);
  const char *said = is_key ? (n == 0 ? ", a key" : ", a key of ") : n == 0 ? "" : " at ";
  snprintf(where, sizeof where, "%s%s", said, place);
  const ckpt_object *held = is_key ? top->node->items[top->next] : node; /* what goes with a key */
  ckpt_torch_left_out_add(&c->out, node, where, c->numbers == NULL ? NULL : held, c->arena);
}

static const char *next_of_list(const char *at) {
  const char *comma = strchr(at, ',');
  return comma == NULL ? NULL : comma + strspn(comma, ", ");
}

/* Whether all of a list of globals stand in another: "a, b" in "b, c, a". */
static bool are_among(const char *globals, const char *allowed) {
  for (const char *at = globals; at != NULL; at = next_of_list(at)) {
    const size_t n = strcspn(at, ",");
    const char *other = allowed;
    while (other != NULL && (strcspn(other, ",") != n || memcmp(other, at, n) != 0)) other = next_of_list(other);
    if (other == NULL) return false;
  }
  return true;
}

/* Says what loading a class takes, of which there are few: once for each. */
static ckpt_status note_class(const copier *c, const char *class, const char *globals, ckpt_error *err) {
  static const char format[] =
      "holds %s: torch.load(weights_only=True) takes it after torch.serialization.add_safe_globals([%s])";
  if (!c->has_notes) return CKPT_OK;
  for (uint32_t i = 0; i < c->described->n_notes; i++)
    if (c->described->notes[i].kind == CKPT_NOTE_LOADING && are_among(globals, c->described->notes[i].cause))
      return CKPT_OK;
  CKPT_TRY(ckpt_index_note(c->described, false, err, format, class, globals));
  return ckpt_index_note_is(c->described, CKPT_NOTE_LOADING, globals, err);
}

static ckpt_status note_numpy(const copier *c, const ckpt_torch_numpy *numpy, ckpt_error *err) {
  char globals[192];
  const bool is_array = numpy->function != NULL && strcmp(numpy->what, "numpy.ndarray") == 0;
  snprintf(globals, sizeof globals, "%.80s%s%snumpy.dtype, type(numpy.dtype('%.8s'))",
           numpy->function == NULL ? "" : numpy->function, numpy->function == NULL ? "" : ", ",
           is_array ? "numpy.ndarray, " : "", numpy->code);
  return note_class(c, numpy->what, globals, err);
}

/* ---- copying ---------------------------------------------------------------------------------------------------- */

static ckpt_status remember(copier *c, const ckpt_object *node, const ckpt_object *copy, ckpt_error *err) {
  uint64_t *place = ckpt_node_map_at(&c->map, node);
  CKPT_TRY_ALLOC(place, err);
  *place = copy == NULL ? LEFT_OUT : (uint64_t)(uintptr_t)copy;
  return CKPT_OK;
}

static ckpt_status copy_leaf(copier *c, const ckpt_object *node, ckpt_error *err) {
  uint32_t number = c->numbers != NULL && node->tensor < c->n_numbers ? c->numbers[node->tensor] : UINT32_MAX;
  c->result = NULL;
  c->n_leaves++;
  if (number != UINT32_MAX) {
    static const char parameter[] = "torch.nn.parameter.Parameter";
    CKPT_TRY_ALLOC(c->result = ckpt_object_tensor(c->arena, c->keeps_numbers ? node->tensor : number), err);
    c->result->form = node->form & (CKPT_GRAD_NO | CKPT_GRAD_YES);
    c->n_leaves_kept++;
    if ((node->form & CKPT_LEAF_BARE) != 0 && c->described->tensors[number].dtype == CKPT_U8) {
      const uint32_t tensor = c->result->tensor;
      *c->result = *node; /* a storage of a class */
      c->result->tensor = tensor;
      return remember(c, node, c->result, err);
    }
    if (node->name != NULL && strcmp(node->name, parameter) == 0) {
      c->result->name = parameter;
      c->result->n_module = sizeof "torch.nn.parameter" - 1;
    } else if (node->name != NULL && strcmp(node->name, "torch.Tensor") != 0) { /* which attributes have stated */
      count_left_out(c, node); /* a subclass of a tensor: its values are written as a tensor */
    }
  }
  return remember(c, node, c->result, err);
}

/* Puts a node on the path, whose children are to be copied. */
static ckpt_status copy_children(copier *c, const ckpt_object *node, ckpt_object *copy, ckpt_error *err) {
  const uint64_t n_children = ckpt_object_n_children(node);
  copy->mark = IN_WORK;
  if (n_children != 0) CKPT_TRY_ALLOC(copy->items = ckpt_arena_array(c->arena, n_children, sizeof *copy->items), err);
  CKPT_TRY(ckpt_grow(&c->path, c->n_path, &c->capacity, sizeof *c->path, err));
  c->path[c->n_path++] =
      (frame){.node = node, .copy = copy, .n_leaves = c->n_leaves, .n_leaves_kept = c->n_leaves_kept};
  return CKPT_OK;
}

/* Whether a node is an argument of such a collection, which is made of what is there by then. */
static bool is_in(const copier *c, const char *class) {
  return c->n_path != 0 && ckpt_foreign_is(c->path[c->n_path - 1].node, "collections", class);
}

/* Whether a node is what a defaultdict calls: of those that were looked at. */
static bool is_factory(const copier *c, const ckpt_object *node) {
  return is_in(c, "defaultdict") && c->path[c->n_path - 1].next == 1 && node->kind == CKPT_OBJECT_FOREIGN &&
         node->form == CKPT_FORM_NAME;
}

/* Begins a node; its copy is in c->result unless a frame is on the path for it. */
static ckpt_status enter(copier *c, const ckpt_object *node, bool *is_entered, ckpt_error *err) {
  const char *namespace = ckpt_torch_namespace(node);
  *is_entered = false;
  c->result = NULL;
  if (c->is_whole && c->n_path == MAX_DEPTH) return CKPT_OK;
  if (node->kind <= CKPT_OBJECT_BYTES && ckpt_torch_is_safe(node)) { /* nothing in it: shared with the input */
    c->result = (ckpt_object *)(uintptr_t)node;
    return CKPT_OK;
  }
  const uint64_t *known = ckpt_node_map_at(&c->map, node);
  CKPT_TRY_ALLOC(known, err);
  c->result = *known == LEFT_OUT ? NULL : (ckpt_object *)(uintptr_t)*known;
  if (*known != 0) {
    const bool is_open =
        !c->is_whole && (node->kind == CKPT_OBJECT_LIST || node->kind == CKPT_OBJECT_DICT || namespace != NULL);
    const bool is_cycle =
        c->result != NULL && c->result->mark == IN_WORK && (!is_open || is_in(c, "deque") || is_in(c, "defaultdict"));
    c->out.n_cycles += is_cycle;
    if (is_cycle) c->result = NULL; /* weights-only loading knows no opcode for it */
    return CKPT_OK;
  }
  if (is_factory(c, node)) {
    c->result = (ckpt_object *)(uintptr_t)node;
    return CKPT_OK;
  }
  ckpt_torch_numpy numpy;
  if (ckpt_torch_numpy_of(&numpy, node)) { /* no tensor in it: shared as well */
    c->result = (ckpt_object *)(uintptr_t)node;
    return note_numpy(c, &numpy, err);
  }
  if (node->kind == CKPT_OBJECT_TENSOR) {
    CKPT_TRY(copy_leaf(c, node, err));
    if (c->result == NULL || node->extras == 0) return CKPT_OK;
    c->result->extras = node->extras;
    *is_entered = true;
    return copy_children(c, node, c->result, err);
  }
  ckpt_torch_collection collection;
  CKPT_TRY(ckpt_torch_collection_of(&collection, node, c->arena, err));
  if (namespace != NULL) {
    CKPT_TRY(note_class(c, namespace, namespace, err));
  } else if (collection.what != NULL) {
    CKPT_TRY(note_class(c, collection.what, collection.globals, err));
  } else if (!ckpt_torch_is_safe(node)) {
    count_left_out(c, node);
    return remember(c, node, c->result = NULL, err);
  }
  ckpt_object *copy = ckpt_arena_alloc(c->arena, sizeof *copy);
  CKPT_TRY_ALLOC(copy, err);
  *copy = collection.what != NULL ? *collection.node : *node;
  copy->room = 0;
  if (namespace != NULL) copy->name = namespace; /* one text, which is printed once */
  CKPT_TRY(remember(c, node, copy, err));
  *is_entered = true;
  return copy_children(c, collection.what != NULL ? collection.node : node, copy, err);
}

/* Puts the child before f->next, which is in c->result, into the copy. */
static ckpt_status place(const copier *c, frame *f, ckpt_error *err) {
  const ckpt_object *node = f->node;
  const bool is_tensor = node->kind == CKPT_OBJECT_TENSOR;
  uint64_t i = f->next - 1, n_items = is_tensor ? 0 : node->kind == CKPT_OBJECT_DICT ? 2 * node->n : node->n;
  ckpt_object *child = c->result;
  f->waits = false;
  if (i >= n_items) { /* an OrderedDict's state, behind what is left of the items, or a tensor's attributes */
    const bool is_pair = is_tensor && child != NULL && child->kind == CKPT_OBJECT_TUPLE && child->n == 2;
    if (!is_pair && (child == NULL || child->kind != CKPT_OBJECT_DICT)) f->copy->extras = 0;
    f->copy->items[f->n_kept] = child;
    return CKPT_OK;
  }
  if (node->kind == CKPT_OBJECT_DICT) { /* both or none */
    if (i % 2 == 0) f->is_short = false;
    f->is_short = f->is_short || child == NULL;
    f->copy->items[f->n_kept + i % 2] = child;
    if (i % 2 == 1 && !f->is_short) f->n_kept += 2;
    return CKPT_OK;
  }
  if (child == NULL && node->kind == CKPT_OBJECT_SET) return CKPT_OK;
  f->is_short = f->is_short || child == NULL;
  if (child == NULL) CKPT_TRY_ALLOC(child = ckpt_object_none(c->arena), err);
  f->copy->items[f->n_kept++] = child;
  return CKPT_OK;
}

/* Whether a dict is an optimizer's, of whose states none is written. */
static bool is_empty_optimizer(const copier *c, const frame *f) {
  const ckpt_object *groups = ckpt_object_get(f->node, "param_groups"), *state = ckpt_object_get(f->node, "state");
  if (c->numbers == NULL || c->n_leaves == f->n_leaves || c->n_leaves_kept != f->n_leaves_kept) return false;
  if (groups == NULL || state == NULL) return ckpt_torch_is_flat_optimizer(f->node);
  return groups->kind == CKPT_OBJECT_LIST && state->kind == CKPT_OBJECT_DICT;
}

/* All children are there. What has begun to be referred to and is left out becomes None. */
static ckpt_status leave(copier *c, ckpt_error *err) {
  const frame *f = &c->path[--c->n_path];
  if (f->node->kind != CKPT_OBJECT_TENSOR) f->copy->n = f->node->kind == CKPT_OBJECT_DICT ? f->n_kept / 2 : f->n_kept;
  f->copy->mark = 0;
  c->result = f->copy;
  bool is_whole = !f->is_short;
  if (is_whole && c->settle != NULL && ckpt_torch_is_quantized(f->copy))
    CKPT_TRY(c->settle(c->arg, &is_whole, f->copy, err));
  if (is_empty_optimizer(c, f))
    c->out.n_optimizers++;
  else if (f->node->kind == CKPT_OBJECT_FOREIGN && !is_whole)
    count_left_out(c, f->node);
  else
    return CKPT_OK;
  *f->copy = (ckpt_object){.kind = CKPT_OBJECT_NONE};
  return remember(c, f->node, c->result = NULL, err);
}

/* What a copy that is whole cannot have is in all that is on the path. */
static ckpt_status give_up(copier *c, ckpt_error *err) {
  while (c->n_path != 0) CKPT_TRY(remember(c, c->path[--c->n_path].node, NULL, err));
  return CKPT_OK;
}

ckpt_status ckpt_torch_copy(ckpt_torch_copier *c, const ckpt_object *root, ckpt_object **out, ckpt_error *err) {
  bool is_entered;
  c->refused = NULL;
  CKPT_TRY(enter(c, root, &is_entered, err));
  while (c->n_path != 0) {
    frame *f = &c->path[c->n_path - 1];
    if (c->is_whole && f->waits && c->result == NULL) {
      CKPT_TRY(give_up(c, err));
      break;
    }
    if (f->waits) CKPT_TRY(place(c, f, err));
    if (f->next == ckpt_object_n_children(f->node)) {
      CKPT_TRY(leave(c, err));
      continue;
    }
    const ckpt_object *child = f->node->items[f->next++];
    f->waits = true;
    CKPT_TRY(enter(c, child, &is_entered, err)); /* f may have moved */
  }
  *out = c->result;
  return CKPT_OK;
}

void ckpt_torch_copier_free(ckpt_torch_copier *c) {
  free(c->path);
  ckpt_node_map_free(&c->map);
}

/* ---- keys ------------------------------------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b) {
  const ckpt_object *x = **(ckpt_object *const *const *)a, *y = **(ckpt_object *const *const *)b;
  const uint64_t n = x->n < y->n ? x->n : y->n;
  const int order = n == 0 ? 0 : memcmp(x->text, y->text, (size_t)n);
  return order != 0 ? order : (x->n > y->n) - (x->n < y->n);
}

static int compare_places(const void *a, const void *b) {
  const int order = compare_keys(a, b);
  ckpt_object *const *x = *(ckpt_object *const *const *)a, *const *y = *(ckpt_object *const *const *)b;
  return order != 0 ? order : (x > y) - (x < y);
}

ckpt_status ckpt_torch_drop_repeated(ckpt_object *dict, ckpt_losses *losses, ckpt_error *err) {
  ckpt_object ***pairs = reallocarray(NULL, (size_t)dict->n + 1, sizeof *pairs);
  CKPT_TRY_ALLOC(pairs, err);
  ckpt_status status = CKPT_OK;
  uint64_t n_texts = 0, n = 0;
  for (uint64_t i = 0; i < dict->n; i++)
    if (dict->items[2 * i]->kind == CKPT_OBJECT_TEXT) pairs[n_texts++] = &dict->items[2 * i];
  if (n_texts != 0) qsort(pairs, (size_t)n_texts, sizeof *pairs, compare_places);
  for (uint64_t i = 1, first = 0; i < n_texts && status == CKPT_OK; i++) {
    if (compare_keys(&pairs[i], &pairs[first]) != 0) {
      first = i;
      continue;
    }
    pairs[i][1] = NULL;
    status = ckpt_losses_add(losses, err, "%.200s (something else has that name)", pairs[i][0]->text);
  }
  free(pairs);
  for (uint64_t i = 0; i < dict->n; i++)
    if (dict->items[2 * i + 1] != NULL) memmove(&dict->items[2 * n++], &dict->items[2 * i], 2 * sizeof *dict->items);
  dict->n = n;
  return status;
}
