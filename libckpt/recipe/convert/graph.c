/* graph.c - see graph.h. Names decide: both models have those that --names gives them, selection and --rename applied.
 * What an exporter stored under a name of its own is found by its values, with the checkpoint that it exported. */
#include "libckpt/recipe/convert/graph.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/convert/graph_match.h"
#include "libckpt/recipe/quantize/quantized.h"

ckpt_status ckpt_graph_request_of(ckpt_graph_request *out, const ckpt_further_inputs *inputs,
                                  const ckpt_format_values *values, const char *path, ckpt_error *err) {
  *out = (ckpt_graph_request){.graph = ckpt_further_index(inputs, "graph"),
                              .old = ckpt_further_index(inputs, "graph_weights"),
                              .is_partial = ckpt_format_values_find(values, "partial") != NULL};
  if (out->graph != NULL || (out->old == NULL && !out->is_partial)) return CKPT_OK;
  return ckpt_fail_option(err, CKPT_EINVAL, path, out->is_partial ? "partial" : "graph_weights",
                          "is for an output with another model's graph");
}

/* A tensor that may go into the graph, under one of its names. */
typedef struct offer {
  const char *name;
  uint32_t number;
} offer;

typedef struct offers {
  offer *items;
  uint32_t n;
  bool *is_selected, *is_used;       /* by number */
  uint32_t (*n_cast)[CKPT_N_DTYPES]; /* tensors, by the dtype that they have and that the graph has */
} offers;

static int compare_offers(const void *a, const void *b) {
  return strcmp(((const offer *)a)->name, ((const offer *)b)->name);
}

static ckpt_status take_offers(offers *o, const ckpt_index *from, ckpt_selection *selection, ckpt_arena *arena,
                               ckpt_error *err) {
  const size_t n_most = (size_t)from->n_tensors + from->n_aliases + 1;
  o->items = ckpt_arena_array(arena, n_most, sizeof *o->items);
  o->is_selected = ckpt_arena_array(arena, n_most, sizeof *o->is_selected);
  o->is_used = ckpt_arena_array(arena, n_most, sizeof *o->is_used);
  o->n_cast = ckpt_arena_array(arena, CKPT_N_DTYPES, sizeof *o->n_cast);
  if (o->items == NULL || o->is_selected == NULL || o->is_used == NULL || o->n_cast == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    ckpt_selected selected;
    CKPT_TRY(ckpt_selection_take(selection, &from->tensors[i], arena, &selected, err));
    if (selected.name == NULL) continue;
    if (selected.dtype != CKPT_DTYPE_NONE)
      return ckpt_fail_option(err, CKPT_EINVAL, NULL, "dtype", "the graph says what it works with");
    o->is_selected[i] = true;
    o->items[o->n++] = (offer){selected.name, i};
    for (size_t k = 0; selected.aliases != NULL && selected.aliases[k] != NULL; k++)
      o->items[o->n++] = (offer){selected.aliases[k], i};
  }
  CKPT_TRY(ckpt_selection_finish(selection, err));
  qsort(o->items, o->n, sizeof *o->items, compare_offers);
  for (uint32_t i = 1; i < o->n; i++)
    if (strcmp(o->items[i - 1].name, o->items[i].name) == 0)
      return ckpt_fail(err, CKPT_EEXIST, NULL, o->items[i].name, "two tensors would have this name");
  return CKPT_OK;
}

/* The tensor for a place in the graph, as the graph needs it. */
static ckpt_status fit(ckpt_expr **expr, ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *tensor,
                       bool is_transposed, const ckpt_index *graph, const ckpt_tensor *place, bool is_quantized,
                       ckpt_error *err) {
  static const uint32_t order[] = {1, 0};
  char wanted[CKPT_SHAPE_TEXT], found[CKPT_SHAPE_TEXT];
  CKPT_TRY(ckpt_expr_read(expr, plan, from, tensor, err));
  if (is_transposed && tensor->rank == 2) CKPT_TRY(ckpt_expr_permute(expr, plan, *expr, order, err));
  if ((*expr)->rank != place->rank ||
      (place->rank != 0 && memcmp((*expr)->shape, place->shape, place->rank * sizeof *place->shape) != 0))
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, from->path, tensor->name, "the graph works with another shape (%s, and this has %s)",
        ckpt_tensor_shape_text(place, wanted, sizeof wanted), ckpt_tensor_shape_text(tensor, found, sizeof found));
  if (tensor->dtype == place->dtype) return CKPT_OK;
  if (!ckpt_dtype_is_float((ckpt_dtype)tensor->dtype) || !ckpt_dtype_is_float((ckpt_dtype)place->dtype))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, from->path, tensor->name, "the graph works with %s, and this is %s",
                     ckpt_dtype_name((ckpt_dtype)place->dtype), ckpt_dtype_name((ckpt_dtype)tensor->dtype));
  CKPT_TRY(ckpt_refuse_quantized(from, tensor, is_quantized, err));
  if (ckpt_refuse_quantized(graph, place, false, NULL) != CKPT_OK) /* it has scales that are for its own values */
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, from->path, tensor->name,
        "the graph's is %s and quantized, or belongs to one that is, and this is %s: a cast alone would be "
        "wrong (give it %s)",
        ckpt_dtype_name((ckpt_dtype)place->dtype), ckpt_dtype_name((ckpt_dtype)tensor->dtype),
        ckpt_dtype_name((ckpt_dtype)place->dtype));
  return ckpt_expr_cast(expr, plan, *expr, (ckpt_dtype)place->dtype, err);
}

static ckpt_status say_casts(ckpt_output *output, const offers *o, ckpt_error *err) {
  for (int was = 0; was < CKPT_N_DTYPES; was++)
    for (int now = 0; now < CKPT_N_DTYPES; now++)
      if (o->n_cast[was][now] != 0)
        CKPT_TRY(ckpt_losses_add(&output->losses, err, "%u tensor%s as %s (cast to %s, which the graph works with)",
                                 o->n_cast[was][now], ckpt_plural(o->n_cast[was][now]),
                                 ckpt_dtype_name((ckpt_dtype)was), ckpt_dtype_name((ckpt_dtype)now)));
  return CKPT_OK;
}

/* ---- what has no counterpart ------------------------------------------------------------------------------------- */

/* Whether an exporter of torch's made up the name: `val_3`, `onnx::MatMul_26`, `/layer/Constant_output_0`. */
static bool is_made_up(const char *name) {
  const bool is_numbered = strncmp(name, "val_", 4) == 0 && name[4 + strspn(name + 4, "0123456789")] == '\0';
  return is_numbered || strncmp(name, "onnx::", 6) == 0 || name[0] == '/';
}

/* Whether a checkpoint has a tensor of a place's shape, as it is or transposed. */
static bool has_its_shape(const ckpt_index *old, const ckpt_tensor *place) {
  for (uint32_t i = 0; i < old->n_tensors; i++) {
    const ckpt_tensor *tensor = &old->tensors[i];
    if (ckpt_tensor_same_shape(tensor, place)) return true;
    if (tensor->rank == 2 && place->rank == 2 && tensor->shape[0] == place->shape[1] &&
        tensor->shape[1] == place->shape[0])
      return true;
  }
  return false;
}

/* Whether a tensor of the graph may be a weight of the model: not a value of a node, nor a number or a shape that the
 * graph needs for itself, nor, where the weights are known, a table or a mask of another shape than theirs. */
static bool is_parameter(const ckpt_tensor *place, const ckpt_index *old) {
  if (place->role != CKPT_ROLE_PARAMETER) return false;
  if (!is_made_up(place->name)) return true;
  return ckpt_dtype_is_float((ckpt_dtype)place->dtype) && place->n_elements > 1 &&
         (old == NULL || has_its_shape(old, place));
}

/* Whether the config ties a tensor to one that the graph has. */
static bool is_tied_to_used(const ckpt_index *from, const offers *o, uint32_t number) {
  const ckpt_tensor *kept, *tied, *tensor = &from->tensors[number];
  for (size_t i = 0; ckpt_arch_tied_pair(from, i, &kept, &tied); i++)
    if ((tied == tensor && o->is_used[kept - from->tensors]) || (kept == tensor && o->is_used[tied - from->tensors]))
      return true;
  return false;
}

/* What stays the graph's own though it may be a weight: refused, or said of each. */
static ckpt_status take_missing(ckpt_output *output, const ckpt_index *graph, const bool *is_filled,
                                const ckpt_index *from, const ckpt_graph_request *request, ckpt_error *err) {
  ckpt_name_list missing = {.n = 0};
  const char *first = NULL;
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    const ckpt_tensor *place = &graph->tensors[i];
    if (is_filled[i] || !is_parameter(place, request->old)) continue;
    if (first == NULL) first = place->name;
    ckpt_name_list_add(&missing, place->name);
    if (request->is_partial)
      CKPT_TRY(ckpt_losses_add_alone(&output->losses, err, "other values of %.300s, which keeps the graph's own",
                                     place->name));
  }
  if (missing.n == 0 || request->is_partial) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_ENOTFOUND, graph->path, first,
                               "would keep the values that the graph has: nothing in %s is its replacement (%zu "
                               "tensor%s: %s)",
                               from->path, missing.n, ckpt_plural(missing.n), missing.text),
                     err,
                     request->old == NULL ? "%graph_weights=OLD, the checkpoint that it was exported from, finds what "
                                            "was stored under other names; %partial keeps them"
                                          : "%partial keeps them");
}

/* Whether a buffer was learned: without a place in the graph, its old values are in other constants of it. */
static bool is_learned(const char *name) {
  return ckpt_text_ends(name, "running_mean") || ckpt_text_ends(name, "running_var");
}

/* Parameters of the input that the graph has no place for: the same. */
static ckpt_status take_extra(ckpt_output *output, const offers *o, const ckpt_index *from,
                              const ckpt_graph_request *request, ckpt_error *err) {
  ckpt_name_list extra = {.n = 0}, buffers = {.n = 0};
  const char *first = NULL;
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    if (!o->is_selected[i] || o->is_used[i] || is_tied_to_used(from, o, i)) continue;
    if ((tensor->role != CKPT_ROLE_PARAMETER || ckpt_tensor_is_buffer(tensor)) && !is_learned(tensor->name)) {
      ckpt_name_list_add(&buffers, tensor->name);
      continue;
    }
    if (first == NULL) first = tensor->name;
    ckpt_name_list_add(&extra, tensor->name);
    if (request->is_partial)
      CKPT_TRY(ckpt_losses_add_alone(&output->losses, err, "%.300s, which the graph has not", tensor->name));
  }
  if (extra.n != 0 && !request->is_partial)
    return ckpt_advise_value(
        ckpt_fail(err, CKPT_ENOTFOUND, from->path, first, "has no place in the graph (%zu tensor%s: %s)", extra.n,
                  ckpt_plural(extra.n), extra.text),
        err, "%partial leaves them out, %exclude=$ that one", first);
  if (buffers.n == 0) return CKPT_OK;
  return ckpt_losses_add(&output->losses, err, "%zu buffer%s that the graph has not (%s)", buffers.n,
                         ckpt_plural(buffers.n), buffers.text);
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

static const offer *find_offer(const offers *o, const char *name) {
  const offer wanted = {name, 0};
  return o->n == 0 ? NULL : bsearch(&wanted, o->items, o->n, sizeof wanted, compare_offers);
}

/* The offer for a tensor of the checkpoint that the graph was exported from, by any of its names. */
static const offer *offer_for(const offers *o, const ckpt_tensor *old) {
  const offer *found = find_offer(o, old->name);
  for (size_t i = 0; found == NULL && old->aliases != NULL && old->aliases[i] != NULL; i++)
    found = find_offer(o, old->aliases[i]);
  return found;
}

/* Where the tensors come from that the graph has under no name of the input's. */
static ckpt_status find_origins(ckpt_graph_origin *origins, const ckpt_index *graph, const offers *o,
                                const ckpt_graph_request *request, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_index *old = request->old;
  if (old == NULL) return CKPT_OK;
  bool *open = ckpt_arena_array(arena, (size_t)graph->n_tensors + 1, sizeof *open);
  bool *is_used = ckpt_arena_array(arena, (size_t)old->n_tensors + 1, sizeof *is_used);
  bool *named = ckpt_arena_array(arena, (size_t)graph->n_tensors + 1, sizeof *named);
  CKPT_TRY_ALLOC(open, err);
  CKPT_TRY_ALLOC(named, err);
  CKPT_TRY_ALLOC(is_used, err);
  memset(is_used, 0, old->n_tensors * sizeof *is_used);
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    const ckpt_tensor *place = &graph->tensors[i], *same = ckpt_index_find(old, place->name);
    const bool is_named = named[i] = find_offer(o, place->name) != NULL;
    open[i] = !is_named && is_parameter(place, old) && ckpt_dtype_is_float((ckpt_dtype)place->dtype);
    if (is_named && same != NULL) is_used[same - old->tensors] = true;
  }
  const ckpt_tensor *differing;
  CKPT_TRY(ckpt_graph_check_named(&differing, graph, named, old, err));
  if (differing != NULL)
    return ckpt_fail(
        err, CKPT_EDIFFERENT, graph->path, differing->name,
        "differs from the one in %s: the exporter combined several tensors (a norm folded into a weight), or "
        "exported another checkpoint, so new values would give wrong results",
        old->path);
  return ckpt_graph_match(origins, graph, open, old, is_used, err);
}

static ckpt_status add_place(ckpt_plan *plan, uint32_t sink, const ckpt_index *graph, const ckpt_tensor *place,
                             const ckpt_index *from, const ckpt_graph_origin *origin, offers *o, bool is_quantized,
                             bool *is_filled, ckpt_error *err) {
  ckpt_expr *expr;
  const offer *found = find_offer(o, place->name);
  const bool is_found = found != NULL;
  if (found == NULL && origin->tensor != NULL) found = offer_for(o, origin->tensor);
  *is_filled = found != NULL;
  if (found == NULL) {
    CKPT_TRY(ckpt_expr_read(&expr, plan, graph, place, err));
  } else {
    const ckpt_tensor *tensor = &from->tensors[found->number];
    o->is_used[found->number] = true;
    CKPT_TRY(fit(&expr, plan, from, tensor, !is_found && origin->is_transposed, graph, place, is_quantized, err));
    o->n_cast[tensor->dtype][place->dtype] += tensor->dtype != place->dtype;
  }
  return ckpt_plan_add_like(plan, sink, place->name, expr, place, NULL, err);
}

ckpt_status ckpt_graph_rows(ckpt_plan *plan, uint32_t sink, const ckpt_graph_request *request, const ckpt_index *from,
                            ckpt_selection *selection, bool is_quantized, ckpt_error *err) {
  const ckpt_index *graph = request->graph;
  ckpt_output *output = &plan->outputs[sink];
  offers o = {.n = 0};
  uint32_t n_filled = 0;
  CKPT_TRY(ckpt_fail_at(take_offers(&o, from, selection, &plan->arena, err), err, from->path, NULL));
  ckpt_graph_origin *origins = ckpt_arena_array(&plan->arena, (size_t)graph->n_tensors + 1, sizeof *origins);
  bool *is_filled = ckpt_arena_array(&plan->arena, (size_t)graph->n_tensors + 1, sizeof *is_filled);
  CKPT_TRY_ALLOC(origins, err);
  CKPT_TRY_ALLOC(is_filled, err);
  memset(origins, 0, graph->n_tensors * sizeof *origins);
  CKPT_TRY(find_origins(origins, graph, &o, request, &plan->arena, err));
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    CKPT_TRY(add_place(plan, sink, graph, &graph->tensors[i], from, &origins[i], &o, is_quantized, &is_filled[i], err));
    n_filled += is_filled[i];
  }
  if (n_filled == 0)
    return ckpt_fail(err, CKPT_ENOTFOUND, from->path, NULL, "none of its tensors has a name of the graph's (%s, ...)",
                     graph->n_tensors == 0 ? "" : graph->tensors[0].name);
  CKPT_TRY(take_missing(output, graph, is_filled, from, request, err));
  CKPT_TRY(take_extra(output, &o, from, request, err));
  return say_casts(output, &o, err);
}
