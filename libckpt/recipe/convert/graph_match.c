/* graph_match.c - see graph_match.h. Shapes choose what is read; digests decide what is equal. */
#include "libckpt/recipe/convert/graph_match.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

/* A row of the plan: a tensor of the checkpoint as one of the graph could hold it. */
typedef struct candidate {
  uint32_t tensor, row;
  ckpt_dtype dtype;
  bool is_transposed;
} candidate;

typedef struct matcher {
  const ckpt_index *graph, *checkpoint;
  const bool *open, *is_used;
  ckpt_plan *plan;
  uint32_t *row_of; /* by number in the graph */
  candidate *candidates;
  uint32_t n, capacity;
} matcher;

/* Whether a tensor has the shape of another, or that of its transpose. */
static bool has_shape(const ckpt_tensor *tensor, const ckpt_tensor *place, bool is_transposed) {
  if (!is_transposed) return ckpt_tensor_same_shape(tensor, place);
  return tensor->rank == 2 && place->rank == 2 && tensor->shape[0] == place->shape[1] &&
         tensor->shape[1] == place->shape[0];
}

static bool is_known(const matcher *m, uint32_t tensor, ckpt_dtype dtype, bool is_transposed) {
  for (uint32_t i = m->n; i-- > 0 && m->candidates[i].tensor == tensor;)
    if (m->candidates[i].dtype == dtype && m->candidates[i].is_transposed == is_transposed) return true;
  return false;
}

/* Rows for one tensor, in each dtype and orientation in which the graph has a place of its shape. */
static ckpt_status add_candidates(matcher *m, uint32_t number, ckpt_error *err) {
  static const uint32_t order[] = {1, 0};
  const ckpt_tensor *tensor = &m->checkpoint->tensors[number];
  for (uint32_t i = 0; i < m->graph->n_tensors; i++)
    for (int is_transposed = 0; m->open[i] && is_transposed < 2; is_transposed++) {
      const ckpt_tensor *place = &m->graph->tensors[i];
      const ckpt_dtype dtype = (ckpt_dtype)place->dtype;
      if (!has_shape(tensor, place, is_transposed != 0) || is_known(m, number, dtype, is_transposed != 0)) continue;
      ckpt_expr *expr;
      candidate added = {.tensor = number, .dtype = dtype, .is_transposed = is_transposed != 0};
      CKPT_TRY(ckpt_grow(&m->candidates, m->n, &m->capacity, sizeof *m->candidates, err));
      CKPT_TRY(ckpt_expr_read(&expr, m->plan, m->checkpoint, tensor, err));
      if (added.is_transposed) CKPT_TRY(ckpt_expr_permute(&expr, m->plan, expr, order, err));
      if (expr->dtype != place->dtype) CKPT_TRY(ckpt_expr_cast(&expr, m->plan, expr, dtype, err));
      CKPT_TRY(ckpt_plan_add_like(m->plan, CKPT_NO_SINK, tensor->name, expr, tensor, &added.row, err));
      m->candidates[m->n++] = added;
    }
  return CKPT_OK;
}

static ckpt_status add_rows(matcher *m, ckpt_error *err) {
  for (uint32_t i = 0; i < m->graph->n_tensors; i++) {
    const ckpt_tensor *place = &m->graph->tensors[i];
    ckpt_expr *expr;
    if (!m->open[i]) continue;
    CKPT_TRY(ckpt_expr_read(&expr, m->plan, m->graph, place, err));
    CKPT_TRY(ckpt_plan_add_like(m->plan, CKPT_NO_SINK, place->name, expr, place, &m->row_of[i], err));
  }
  for (uint32_t i = 0; i < m->checkpoint->n_tensors; i++) {
    const ckpt_tensor *tensor = &m->checkpoint->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) && ckpt_dtype_is_float((ckpt_dtype)tensor->dtype))
      CKPT_TRY(add_candidates(m, i, err));
  }
  return CKPT_OK;
}

static bool is_equal(const matcher *m, uint32_t place, const candidate *c) {
  const ckpt_tensor *like = &m->graph->tensors[place], *tensor = &m->checkpoint->tensors[c->tensor];
  return c->dtype == (ckpt_dtype)like->dtype && has_shape(tensor, like, c->is_transposed) &&
         memcmp(&m->plan->rows[c->row].digest, &m->plan->rows[m->row_of[place]].digest, sizeof(ckpt_digest)) == 0;
}

/* The one candidate that equals a place: among those that nothing stands for yet, else among all. */
static ckpt_status choose(const matcher *m, uint32_t place, ckpt_graph_origin *out, ckpt_error *err) {
  for (int takes_used = 0; takes_used < 2 && out->tensor == NULL; takes_used++)
    for (uint32_t i = 0; i < m->n; i++) {
      const candidate *c = &m->candidates[i];
      const ckpt_tensor *tensor = &m->checkpoint->tensors[c->tensor];
      if ((!takes_used && m->is_used[c->tensor]) || !is_equal(m, place, c)) continue;
      if (out->tensor != NULL)
        return ckpt_fail(err, CKPT_EDIFFERENT, m->graph->path, m->graph->tensors[place].name,
                         "equals %.300s%s and %.300s%s of %s: which of them it was cannot be told", out->tensor->name,
                         out->is_transposed ? " transposed" : "", tensor->name, c->is_transposed ? " transposed" : "",
                         m->checkpoint->path);
      *out = (ckpt_graph_origin){tensor, c->is_transposed};
    }
  return CKPT_OK;
}

ckpt_status ckpt_graph_match(ckpt_graph_origin *origins, const ckpt_index *graph, const bool *open,
                             const ckpt_index *checkpoint, const bool *is_used, ckpt_error *err) {
  matcher m = {.graph = graph, .checkpoint = checkpoint, .open = open, .is_used = is_used};
  ckpt_status status;
  m.row_of = calloc((size_t)graph->n_tensors + 1, sizeof *m.row_of);
  CKPT_TRY_ALLOC(m.row_of, err);
  CKPT_TRY_GOTO(ckpt_plan_new(&m.plan, err));
  CKPT_TRY_GOTO(add_rows(&m, err));
  CKPT_TRY_GOTO(ckpt_plan_run(m.plan, NULL, err));
  for (uint32_t i = 0; i < graph->n_tensors; i++)
    if (open[i]) CKPT_TRY_GOTO(choose(&m, i, &origins[i], err));
done:
  ckpt_plan_free(m.plan);
  free(m.row_of);
  free(m.candidates);
  return status;
}

/* The rows of a place and of the tensor of its name. */
typedef struct named_pair {
  const ckpt_tensor *place;
  uint32_t row, other;
} named_pair;

/* Adds the rows of those that can be equal; *differing: the first that cannot. */
static ckpt_status add_named(ckpt_plan *plan, named_pair *pairs, uint32_t *n_pairs, const ckpt_tensor **differing,
                             const ckpt_index *graph, const bool *is_named, const ckpt_index *checkpoint,
                             ckpt_error *err) {
  for (uint32_t i = 0; i < graph->n_tensors && *differing == NULL; i++) {
    const ckpt_tensor *place = &graph->tensors[i], *same = ckpt_index_find(checkpoint, place->name);
    ckpt_expr *expr;
    if (!is_named[i] || same == NULL || !ckpt_dtype_is_float((ckpt_dtype)place->dtype)) continue;
    named_pair *pair = &pairs[(*n_pairs)++];
    pair->place = place;
    if (!ckpt_tensor_same_shape(place, same) || !ckpt_dtype_is_float((ckpt_dtype)same->dtype)) {
      *differing = place;
      return CKPT_OK;
    }
    CKPT_TRY(ckpt_expr_read(&expr, plan, graph, place, err));
    CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, place->name, expr, place, &pair->row, err));
    CKPT_TRY(ckpt_expr_read(&expr, plan, checkpoint, same, err));
    if (expr->dtype != place->dtype) CKPT_TRY(ckpt_expr_cast(&expr, plan, expr, (ckpt_dtype)place->dtype, err));
    CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, place->name, expr, place, &pair->other, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_graph_check_named(const ckpt_tensor **differing, const ckpt_index *graph, const bool *is_named,
                                   const ckpt_index *checkpoint, ckpt_error *err) {
  ckpt_plan *plan = NULL;
  ckpt_status status;
  uint32_t n = 0;
  *differing = NULL;
  named_pair *pairs = calloc((size_t)graph->n_tensors + 1, sizeof *pairs);
  CKPT_TRY_ALLOC(pairs, err);
  CKPT_TRY_GOTO(ckpt_plan_new(&plan, err));
  CKPT_TRY_GOTO(add_named(plan, pairs, &n, differing, graph, is_named, checkpoint, err));
  if (*differing == NULL) CKPT_TRY_GOTO(ckpt_plan_run(plan, NULL, err));
  for (uint32_t i = 0; i < n && *differing == NULL; i++)
    if (memcmp(&plan->rows[pairs[i].row].digest, &plan->rows[pairs[i].other].digest, sizeof(ckpt_digest)) != 0)
      *differing = pairs[i].place;
done:
  ckpt_plan_free(plan);
  free(pairs);
  return status;
}
