/* torch_objects.c - what object a torch file is written with.
 *
 * Where the input came from torch it is the input's own object, copied, with the keys that its tensors' names ask for
 * (torch_rename.c): leaves bear the numbers of the tensors to be written, and what torch.load(weights_only=True) does
 * not take (torch_safe.h) is left out and said. Dicts lose such an entry, lists and tuples have None in its place, a
 * call with such an argument is left out itself. A namespace stays, with a note. Else the object is made
 * (torch_make.c).
 */
#include "formats/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/node_map.h"
#include "libckpt/codec/pickle.h"
#include "libckpt/codec/pickle_object.h"
#include "libckpt/codec/readback.h"
#include "libckpt/codec/torch_dict.h"
#include "libckpt/codec/torch_graph.h"
#include "libckpt/codec/torch_groups.h"
#include "libckpt/codec/torch_safe.h"
#include "libckpt/codec/torch_write.h"
#include "libckpt/error.h"
#include "libckpt/grow.h"
#include "libckpt/text.h"

enum { IN_WORK = 1 /* a mark */ };
#define LEFT_OUT UINT64_MAX /* in the map, where else the copy is */

typedef struct frame {
  const ckpt_object *node;
  ckpt_object *copy;
  uint64_t next, n_kept;            /* children seen; items in the copy */
  uint64_t n_leaves, n_leaves_kept; /* of the copier when it began */
  bool is_short, waits;             /* a part is left out; the child before `next` is in `result` */
} frame;

typedef struct copier {
  ckpt_arena *arena;
  /* By the leaf's number: the tensor to be written, UINT32_MAX where it is not; NULL: none is. */
  const uint32_t *numbers;
  uint32_t n_numbers;
  const char *at; /* where the root stands; NULL: nowhere */
  size_t n_at;
  ckpt_index *described;  /* what is written: what the numbers are of, and its notes */
  const uint32_t *covers; /* who lies in whose storage there, once a quantized tensor asks */
  bool has_covers;
  ckpt_node_map map;
  frame *path;
  uint32_t n_path, capacity;
  uint64_t n_leaves, n_leaves_kept; /* met so far */
  ckpt_object *result;              /* of the last node; NULL: left out */
  ckpt_torch_left_out out;
} copier;

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

/* Says what loading a class takes, of which there are few: once for each. */
static ckpt_status note_class(ckpt_index *described, const char *class, const char *globals, ckpt_error *err) {
  static const char format[] =
      "holds %s: torch.load(weights_only=True) takes it after torch.serialization.add_safe_globals([%s])";
  for (uint32_t i = 0; i < described->n_notes; i++)
    if (strstr(described->notes[i].text, globals) != NULL) return CKPT_OK;
  return ckpt_index_note(described, false, err, format, class, globals);
}

static ckpt_status note_numpy(ckpt_index *described, const ckpt_torch_numpy *numpy, ckpt_error *err) {
  char globals[192];
  const bool is_array = numpy->function != NULL && strcmp(numpy->what, "numpy.ndarray") == 0;
  snprintf(globals, sizeof globals, "%.80s%s%snumpy.dtype, type(numpy.dtype('%.8s'))",
           numpy->function == NULL ? "" : numpy->function, numpy->function == NULL ? "" : ", ",
           is_array ? "numpy.ndarray, " : "", numpy->code);
  return note_class(described, numpy->what, globals, err);
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
    CKPT_TRY_ALLOC(c->result = ckpt_object_tensor(c->arena, number), err);
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
  if (node->kind <= CKPT_OBJECT_BYTES && ckpt_torch_is_safe(node)) { /* nothing in it: shared with the input */
    c->result = (ckpt_object *)(uintptr_t)node;
    return CKPT_OK;
  }
  const uint64_t *known = ckpt_node_map_at(&c->map, node);
  CKPT_TRY_ALLOC(known, err);
  c->result = *known == LEFT_OUT ? NULL : (ckpt_object *)(uintptr_t)*known;
  if (*known != 0) {
    const bool is_open = node->kind == CKPT_OBJECT_LIST || node->kind == CKPT_OBJECT_DICT || namespace != NULL;
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
    return note_numpy(c->described, &numpy, err);
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
    CKPT_TRY(note_class(c->described, namespace, namespace, err));
  } else if (collection.what != NULL) {
    CKPT_TRY(note_class(c->described, collection.what, collection.globals, err));
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
  if (is_whole && ckpt_torch_is_quantized(f->copy)) {
    if (!c->has_covers) CKPT_TRY(ckpt_torch_covers(&c->covers, c->described, c->arena, err));
    c->has_covers = true;
    CKPT_TRY(ckpt_torch_settle_quantized(&is_whole, f->copy, c->described, c->covers, c->arena, err));
  }
  if (is_empty_optimizer(c, f))
    c->out.n_optimizers++;
  else if (f->node->kind == CKPT_OBJECT_FOREIGN && !is_whole)
    count_left_out(c, f->node);
  else
    return CKPT_OK;
  *f->copy = (ckpt_object){.kind = CKPT_OBJECT_NONE};
  return remember(c, f->node, c->result = NULL, err);
}

/* Copies a graph: *out is NULL where the root itself is left out. */
static ckpt_status copy_graph(copier *c, const ckpt_object *root, ckpt_object **out, ckpt_error *err) {
  bool is_entered;
  CKPT_TRY(enter(c, root, &is_entered, err));
  while (c->n_path != 0) {
    frame *f = &c->path[c->n_path - 1];
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

static void copier_free(copier *c) {
  free(c->path);
  ckpt_node_map_free(&c->map);
}

ckpt_status ckpt_torch_copy_data(ckpt_object **out, const ckpt_object *object, const ckpt_held_tensors *held,
                                 const char *at, size_t n, ckpt_index *described, ckpt_losses *losses,
                                 ckpt_error *err) {
  copier c = {.arena = losses->arena, .described = described, .at = at, .n_at = n};
  if (held != NULL && held->n != 0) {
    c.numbers = held->numbers;
    c.n_numbers = held->n_numbers;
  }
  ckpt_status status = copy_graph(&c, object, out, err);
  if (status == CKPT_OK) status = ckpt_torch_left_out_say(&c.out, losses, err);
  copier_free(&c);
  return status;
}

ckpt_status ckpt_torch_copy_entries(ckpt_object *root, const ckpt_object *top, bool *is_taken, ckpt_index *described,
                                    ckpt_losses *losses, ckpt_error *err) {
  copier c = {.arena = losses->arena, .described = described};
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < top->n && status == CKPT_OK; i++) {
    ckpt_object *key = top->items[2 * i], *copy = NULL;
    const uint64_t n_leaves = c.n_leaves;
    if (!is_taken[i]) continue;
    c.at = key->text;
    c.n_at = (size_t)key->n;
    status = copy_graph(&c, top->items[2 * i + 1], &copy, err);
    is_taken[i] = status == CKPT_OK && copy != NULL && c.n_leaves == n_leaves;
    if (!is_taken[i]) continue;
    root->items[2 * root->n] = key;
    root->items[2 * root->n++ + 1] = copy;
  }
  if (status == CKPT_OK) status = ckpt_torch_left_out_say(&c.out, losses, err);
  copier_free(&c);
  return status;
}

/* ---- the input's own object ------------------------------------------------------------------------------------- */

typedef struct seen {
  uint8_t *is_seen;
  uint32_t n;
} seen;

static void see(void *arg, ckpt_pickle_writer *writer, const ckpt_object *leaf) {
  seen *s = arg;
  s->n += !s->is_seen[leaf->tensor];
  s->is_seen[leaf->tensor] = 1;
  ckpt_pickle_put_none(writer);
}

/* Whether every tensor is somewhere in the object. */
static ckpt_status holds_all(const ckpt_object *root, uint32_t n_tensors, bool *all, ckpt_error *err) {
  seen s = {.is_seen = calloc((size_t)n_tensors + 1, 1)};
  CKPT_TRY_ALLOC(s.is_seen, err);
  ckpt_out out;
  ckpt_out_count(&out, err);
  ckpt_pickle_writer writer = ckpt_pickle_start(&out);
  ckpt_pickle_put_object(&writer, root, see, &s);
  *all = s.n == n_tensors;
  free(s.is_seen);
  return ckpt_out_end(&out);
}

/* The input's own object as it can be written; NULL where it is none, or has not all tensors: *holder then names what
 * some stand in, or is NULL. */
static ckpt_status copy_own(ckpt_object **out, const char **holder, ckpt_index *described, ckpt_losses *losses,
                            ckpt_error *err) {
  ckpt_object *root = (ckpt_object *)(uintptr_t)ckpt_object_get(described->objects, CKPT_TORCH_OBJECT), *copy = NULL;
  uint32_t *numbers = NULL;
  bool all = false;
  *out = NULL;
  *holder = NULL;
  if (root == NULL) return CKPT_OK;
  copier c = {.arena = losses->arena, .described = described};
  CKPT_TRY(ckpt_torch_rename(&root, described, losses->arena, err));
  CKPT_TRY(ckpt_described_numbers(&numbers, &c.n_numbers, described, true, err));
  c.numbers = numbers;
  ckpt_status status = copy_graph(&c, root, &copy, err);
  if (status == CKPT_OK && copy != NULL) status = holds_all(copy, described->n_tensors, &all, err);
  if (status == CKPT_OK && all) status = ckpt_torch_left_out_say(&c.out, losses, err);
  if (all)
    *out = copy;
  else
    *holder = c.out.holder;
  copier_free(&c);
  free(numbers);
  return status;
}

/* The object stands under its key alone: what else the input's objects are is part of it. */
static ckpt_status set_object(ckpt_index *described, ckpt_object *root, ckpt_arena *arena, ckpt_error *err) {
  ckpt_object *objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, NULL);
  CKPT_TRY_ALLOC(objects, err);
  CKPT_TRY_ALLOC(objects->items[0] = ckpt_object_text(arena, CKPT_TORCH_OBJECT, strlen(CKPT_TORCH_OBJECT)), err);
  objects->items[1] = root;
  described->objects = objects;
  described->objects_of = NULL;
  return CKPT_OK;
}

/* Whether tensors in an object are read as they are described. */
static ckpt_status take(bool *is_taken, ckpt_readback_want want, ckpt_object *root, ckpt_index *described,
                        ckpt_losses *losses, ckpt_error *err) {
  ckpt_readback read = {0}, stored = {0};
  ckpt_status status = ckpt_torch_names_of(&read, described->is_stored ? &stored : NULL, root, described, err);
  if (status == CKPT_OK) status = ckpt_readback_take(is_taken, want, &read, &stored, described, NULL, losses, err);
  ckpt_readback_free(&read);
  ckpt_readback_free(&stored);
  return status;
}

/* Whether a dict of all tensors is no model for its reader. */
static bool is_doubtful(const ckpt_index *described) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role) || ckpt_torch_is_training_key(tensor->name)) return true;
  }
  return false;
}

/* Tensors that only the input's own object had. */
static ckpt_status say_unread(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_index *from = described->objects_of;
  ckpt_name_list gone = {.n = 0};
  for (uint32_t i = 0; from != NULL && i < from->n_unread; i++)
    if (from->unread[i].is_kept) ckpt_name_list_add(&gone, from->unread[i].name);
  if (gone.n == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "%zu tensor%s not read (%s)", gone.n, gone.n == 1 ? " that is" : "s that are",
                         gone.text);
}

static ckpt_status choose(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const uint32_t n_losses = losses->n, n_notes = described->n_notes;
  bool is_taken = false;
  const char *holder;
  ckpt_object *root;
  CKPT_TRY(copy_own(&root, &holder, described, losses, err));
  if (root != NULL) CKPT_TRY(take(&is_taken, CKPT_READBACK_ROLES, root, described, losses, err));
  if (root != NULL && !is_taken) CKPT_TRY(take(&is_taken, CKPT_READBACK_NAMES, root, described, losses, err));
  if (is_taken) {
    described->n_composites = 0; /* their calls are in it */
    return set_object(described, root, losses->arena, err);
  }
  losses->n = n_losses;
  described->n_notes = n_notes;
  if (holder != NULL)
    CKPT_TRY(ckpt_losses_add(losses, err, "the object as it was (tensors are in %s, which is no plain data)", holder));
  CKPT_TRY(say_unread(described, losses, err));
  CKPT_TRY(ckpt_torch_make_object(&root, described, losses, err));
  if (root != NULL) {
    CKPT_TRY(take(&is_taken, CKPT_READBACK_NOTHING, root, described, losses, err));
    return set_object(described, root, losses->arena, err);
  }
  if (is_doubtful(described)) {
    const uint32_t n_said = losses->n;
    CKPT_TRY(ckpt_torch_make_state_dict(&root, described, losses->arena, err));
    CKPT_TRY(take(&is_taken, CKPT_READBACK_NOTHING, root, described, losses, err));
    if (n_said != n_losses) losses->n = n_said; /* roles were named */
  }
  described->objects = NULL;
  return CKPT_OK;
}

ckpt_status ckpt_torch_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    const char *name, *storage;
    if (ckpt_torch_type((ckpt_dtype)tensor->dtype, &name, &storage) &&
        !ckpt_torch_holds((ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                       "torch counts pairs of %s, and its last axis is odd (convert --dtype gives it another)",
                       ckpt_dtype_name((ckpt_dtype)tensor->dtype));
  }
  CKPT_TRY(choose(described, losses, err));
  return ckpt_torch_say_apart(described, losses, err);
}
