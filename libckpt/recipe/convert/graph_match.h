/* graph_match.h - finds the weights of a checkpoint among the tensors of a graph that was exported from it. */
#ifndef CKPT_RECIPE_CONVERT_GRAPH_MATCH_H
#define CKPT_RECIPE_CONVERT_GRAPH_MATCH_H

#include "libckpt/plan/plan.h"

/* What a tensor of a graph was made from. */
typedef struct ckpt_graph_origin {
  const ckpt_tensor *tensor; /* of the checkpoint; NULL: none is known */
  bool is_transposed;        /* it is the matrix the other way round */
} ckpt_graph_origin;

/* Fills in origins[i] of each tensor of the graph that is open[i]: the floating tensor of the checkpoint that equals
 * it, as it is or transposed, cast to its dtype where that differs. is_used: tensors of the checkpoint, by number, that
 * others stand for already; they are taken last. Reads all that can be equal, once. EDIFFERENT where several tensors of
 * the checkpoint are equal, so that which it was cannot be told; as ckpt_plan_run. */
ckpt_status ckpt_graph_match(ckpt_graph_origin *origins, const ckpt_index *graph, const bool *open,
                             const ckpt_index *checkpoint, const bool *is_used, ckpt_error *err);

/* Compares tensors of the graph with those of the checkpoint that have their names, where is_named: folded constants
 * keep the name of the weight that they were made of. *differing: the first in another shape or with other values, cast
 * as above; NULL: none. Fails as ckpt_plan_run. */
ckpt_status ckpt_graph_check_named(const ckpt_tensor **differing, const ckpt_index *graph, const bool *is_named,
                                   const ckpt_index *checkpoint, ckpt_error *err);

#endif
