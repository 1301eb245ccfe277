/* graph.h - gives a model's graph other weights, for `convert IN --graph MODEL`. */
#ifndef CKPT_RECIPE_CONVERT_GRAPH_H
#define CKPT_RECIPE_CONVERT_GRAPH_H

#include "libckpt/recipe/convert/inputs.h"
#include "libckpt/recipe/select/select.h"

typedef struct ckpt_graph_request {
  const ckpt_index *graph; /* the model whose graph it is; NULL: none is asked for */
  const ckpt_index *old;   /* the checkpoint that it was exported from; NULL: not known */
  bool is_partial;         /* what has no counterpart becomes a loss, no error */
} ckpt_graph_request;

/* What further inputs and values of ONNX ask for. EINVAL: what is for a graph, without one; a message names `path`. */
ckpt_status ckpt_graph_request_of(ckpt_graph_request *out, const ckpt_further_inputs *inputs,
                                  const ckpt_format_values *values, const char *path, ckpt_error *err);

/* Adds a row for every tensor of a graph's model: the selected tensor of `from` that has its name, or whose name the
 * tensor of `old` has that it equals, as it is or transposed; cast to the graph's floating dtype where that differs.
 * Where there is none, the model's own. EUNSUPPORTED: another shape or kind of values, or weights that need their
 * scales; ENOTFOUND: a parameter of either side without its counterpart, unless is_partial, when each is a loss of the
 * output; as ckpt_graph_match. */
ckpt_status ckpt_graph_rows(ckpt_plan *plan, uint32_t sink, const ckpt_graph_request *request, const ckpt_index *from,
                            ckpt_selection *selection, bool is_quantized, ckpt_error *err);

#endif
