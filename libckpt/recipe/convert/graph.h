/* graph.h - gives a model's graph other weights, for `convert IN --graph MODEL`. */
#ifndef CKPT_RECIPE_CONVERT_GRAPH_H
#define CKPT_RECIPE_CONVERT_GRAPH_H

#include "libckpt/recipe/select/select.h"

/* Adds a row for every tensor of a graph's model: the selected tensor of `from` that has its name, cast to the
 * graph's floating dtype where that differs, else the model's own. What stays and what has no place in the graph are
 * losses of the output. EUNSUPPORTED: another shape or kind of values, or weights that need their scales; ENOTFOUND:
 * not one name is the graph's. */
ckpt_status ckpt_graph_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *graph, const ckpt_index *from,
                            ckpt_selection *selection, bool is_quantized, ckpt_error *err);

#endif
