/* expected_names.c - what tensors in an object are called when it is read as a torch file: our own reader names them,
 * in a graph of the object and of nothing else. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/torch/read/graph.h"

typedef struct step {
  ckpt_object *node;
  uint64_t next;
} step;

typedef struct marker {
  step *path;
  uint32_t n, capacity;
  uint64_t n_children; /* as ckpt_torch_graph's */
} marker;

static bool holds(const ckpt_object *node) { return node->kind == CKPT_OBJECT_TENSOR || node->mark == TORCH_HOLDS; }

static ckpt_status enter(marker *m, ckpt_object *node, ckpt_error *err) {
  if (node->mark != TORCH_UNSEEN || (node->kind == CKPT_OBJECT_TENSOR && node->extras == 0)) return CKPT_OK;
  node->mark = TORCH_PLAIN;
  if (node->kind == CKPT_OBJECT_TEXT) m->n_children += node->n / TORCH_STEP_BYTES;
  if (ckpt_object_n_children(node) == 0) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&m->path, m->n, &m->capacity, sizeof *m->path, err));
  m->path[m->n++] = (step){node, 0};
  return CKPT_OK;
}

static ckpt_status mark_below(marker *m, ckpt_object *root, ckpt_error *err) {
  CKPT_TRY(enter(m, root, err));
  while (m->n != 0) {
    step *top = &m->path[m->n - 1];
    ckpt_object *node = top->node;
    uint64_t n_children = ckpt_object_n_children(node);
    if (top->next < n_children) {
      CKPT_TRY(enter(m, node->items[top->next++], err));
      continue;
    }
    for (uint64_t i = 0; i < n_children && node->mark == TORCH_PLAIN; i++)
      if (holds(node->items[i])) node->mark = TORCH_HOLDS;
    if (node->mark == TORCH_HOLDS) m->n_children += n_children;
    m->n--;
  }
  return CKPT_OK;
}

ckpt_status ckpt_torch_mark(ckpt_object *root, uint64_t *n_children, ckpt_error *err) {
  marker m = {.n = 0};
  const ckpt_status status = mark_below(&m, root, err);
  *n_children = m.n_children;
  free(m.path);
  return status;
}

/* What names of tensors allow, which are texts already. */
static uint64_t allowed_by_names(const ckpt_index *described) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    n += strlen(tensor->name) / TORCH_STEP_BYTES;
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      n += strlen(*alias) / TORCH_STEP_BYTES;
  }
  return n;
}

/* Names of one kind; what no reader would take has none. */
static ckpt_status name(ckpt_expected_names *read, uint64_t n_children, ckpt_object *root, const ckpt_index *described,
                        bool stored_names, ckpt_error *err) {
  ckpt_torch_graph graph = {.root = root, .n_children = n_children, .n_tensors = described->n_tensors};
  ckpt_error why = {.status = CKPT_OK};
  ckpt_arena arena;
  ckpt_index *index = NULL;
  ckpt_status status;
  ckpt_arena_init(&arena, UINT64_MAX);
  graph.arena = &arena;
  CKPT_TRY_GOTO(ckpt_index_new(&index, NULL, "", "torch", NULL, err));
  graph.tensors = calloc((size_t)graph.n_tensors + 1, sizeof *graph.tensors);
  if (graph.tensors == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status != CKPT_OK) goto done;
  for (uint32_t i = 0; i < graph.n_tensors; i++) /* one that the object has not has no name */
    graph.tensors[i] = (ckpt_torch_tensor){.first_name = UINT32_MAX, .is_copy = true};
  status = ckpt_torch_names_find(&graph, index, "", stored_names, &why);
  if (status == CKPT_EFORMAT || status == CKPT_ELIMIT) { /* so would a reader's */
    status = CKPT_OK;
    goto done;
  }
  if (status != CKPT_OK) {
    if (err != NULL) *err = why;
    goto done;
  }
  for (uint32_t i = 0; i < graph.n_tensors; i++)
    for (uint32_t k = graph.tensors[i].first_name; k != UINT32_MAX; k = graph.names[k].next)
      CKPT_TRY_GOTO(ckpt_expected_names_add(read, i, graph.names[k].text, graph.names[k].role, err));
done:
  ckpt_index_free(index);
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&arena);
  return status;
}

ckpt_status ckpt_torch_names_of(ckpt_expected_names *read, ckpt_expected_names *stored, ckpt_object *root,
                                const ckpt_index *described, ckpt_error *err) {
  uint64_t n_children;
  CKPT_TRY(ckpt_torch_mark(root, &n_children, err));
  n_children += allowed_by_names(described);
  CKPT_TRY(name(read, n_children, root, described, false, err));
  return stored == NULL ? CKPT_OK : name(stored, n_children, root, described, true, err);
}
