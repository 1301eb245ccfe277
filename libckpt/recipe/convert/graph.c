/* graph.c - see graph.h. Names decide: both models have those that --names gives them, selection and --rename applied.
 */
#include "libckpt/recipe/convert/graph.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/recipe/quantize/quantized.h"

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
                       const ckpt_index *graph, const ckpt_tensor *place, bool is_quantized, ckpt_error *err) {
  char wanted[CKPT_SHAPE_TEXT], found[CKPT_SHAPE_TEXT];
  CKPT_TRY(ckpt_expr_read(expr, plan, from, tensor, err));
  if (!ckpt_tensor_same_shape(tensor, place))
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

static ckpt_status say(ckpt_output *output, const offers *o, const ckpt_index *from, const ckpt_name_list *missing,
                       ckpt_error *err) {
  ckpt_name_list extra = {.n = 0};
  CKPT_TRY(say_casts(output, o, err));
  for (uint32_t i = 0; i < from->n_tensors; i++)
    if (o->is_selected[i] && !o->is_used[i]) ckpt_name_list_add(&extra, from->tensors[i].name);
  if (extra.n != 0)
    CKPT_TRY(ckpt_losses_add(&output->losses, err, "%zu tensor%s that the graph has not (%s)", extra.n,
                             ckpt_plural(extra.n), extra.text));
  if (missing->n == 0) return CKPT_OK;
  return ckpt_losses_add(&output->losses, err, "other values of %zu tensor%s of the graph, which keep%s its own (%s)",
                         missing->n, ckpt_plural(missing->n), missing->n == 1 ? "s" : "", missing->text);
}

ckpt_status ckpt_graph_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *graph, const ckpt_index *from,
                            ckpt_selection *selection, bool is_quantized, ckpt_error *err) {
  offers o = {.n = 0};
  ckpt_name_list missing = {.n = 0};
  CKPT_TRY(ckpt_fail_at(take_offers(&o, from, selection, &plan->arena, err), err, from->path, NULL));
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    const ckpt_tensor *place = &graph->tensors[i];
    const offer wanted = {place->name, 0},
                *found = o.n == 0 ? NULL : bsearch(&wanted, o.items, o.n, sizeof wanted, compare_offers);
    ckpt_expr *expr;
    if (found != NULL) {
      o.is_used[found->number] = true;
      const ckpt_tensor *tensor = &from->tensors[found->number];
      CKPT_TRY(fit(&expr, plan, from, tensor, graph, place, is_quantized, err));
      o.n_cast[tensor->dtype][place->dtype] += tensor->dtype != place->dtype;
    } else {
      ckpt_name_list_add(&missing, place->name);
      CKPT_TRY(ckpt_expr_read(&expr, plan, graph, place, err));
    }
    CKPT_TRY(ckpt_plan_add_like(plan, sink, place->name, expr, place, NULL, err));
  }
  if (missing.n == graph->n_tensors)
    return ckpt_fail(err, CKPT_ENOTFOUND, from->path, NULL, "none of its tensors has a name of the graph's (%s)",
                     missing.text);
  return say(&plan->outputs[sink], &o, from, &missing, err);
}
