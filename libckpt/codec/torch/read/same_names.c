/* same_names.c - names that are one once paths are joined, {'a.b': x, 'a': {'b': y}}, made different. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/torch/read/graph.h"

static int compare_names(const void *a, const void *b, void *names) {
  uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  int order = strcmp(((const ckpt_torch_name *)names)[x].text, ((const ckpt_torch_name *)names)[y].text);
  return order != 0 ? order : (x > y) - (x < y);
}

static bool is_taken(const ckpt_torch_graph *g, const uint32_t *order, const char *text) {
  for (uint32_t low = 0, high = g->n_names; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    int compared = strcmp(text, g->names[order[middle]].text);
    if (compared == 0) return true;
    if (compared < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return false;
}

/* Paths that are one name once they are joined ({'a.b': x, 'a': {'b': y}}): the second and later get ~2, ~3. The
 * new texts are written when all are known, as the search goes by the old ones. */
ckpt_status ckpt_torch_names_separate(ckpt_torch_graph *g, ckpt_index *index, ckpt_error *err) {
  uint32_t n_same = 0, *order = reallocarray(NULL, (size_t)g->n_names + 1, sizeof *order);
  const char **texts = calloc((size_t)g->n_names + 1, sizeof *texts), *first = NULL;
  ckpt_status status = CKPT_OK;
  if (order == NULL || texts == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < g->n_names && status == CKPT_OK; i++) order[i] = i;
  if (g->n_names != 0 && status == CKPT_OK) qsort_r(order, g->n_names, sizeof *order, compare_names, g->names);
  for (uint32_t i = 1, k = 2; i < g->n_names && status == CKPT_OK; i++) {
    const char *text = g->names[order[i]].text;
    if (strcmp(g->names[order[i - 1]].text, text) != 0) {
      k = 2;
      continue;
    }
    do texts[order[i]] = ckpt_arena_printf(g->arena, "%s~%" PRIu32, text, k++);
    while (texts[order[i]] != NULL && is_taken(g, order, texts[order[i]]));
    if (n_same++ == 0) first = text;
    if (texts[order[i]] == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t i = 0; i < g->n_names && status == CKPT_OK; i++)
    if (texts[i] != NULL) g->names[i].text = texts[i];
  if (n_same != 0 && status == CKPT_OK)
    status = ckpt_index_note(index, false, err,
                             "%" PRIu32 " path%s a name that there is, first '%.200s': such names end in ~2", n_same,
                             n_same == 1 ? " makes" : "s make", first);
  if (n_same != 0 && status == CKPT_OK) status = ckpt_index_note_is(index, CKPT_NOTE_DOUBT, NULL, err);
  free(order);
  free(texts);
  return status;
}
