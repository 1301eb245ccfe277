/* saved.c - what an adapter stores whole, and under which names. See items.h.
 *
 * PEFT saves modules: of one that it saves it wants every parameter, and it puts no factors below it. It takes a module
 * by the end of its path, and knows the names of the model, which are not always those of files. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/descriptors.h"
#include "libckpt/recipe/extract/items.h"

/* One name that the model has for a tensor of the base. */
typedef struct place {
  const char *name;
  const ckpt_tensor *base;
  ckpt_extract_item *item; /* NULL: it was not compared, and is the base's */
} place;

typedef struct settling {
  ckpt_extraction *x;
  ckpt_adapter_place tied[CKPT_TIED_NAMES + 1];
  uint32_t n_tied;
  place *places;
  size_t n_places, place_capacity;
  const char **modules; /* that are saved whole */
  size_t n_modules, module_capacity;
} settling;

static int by_text(const void *x, const void *y) { return strcmp(*(const char *const *)x, *(const char *const *)y); }

static size_t module_length(const char *name) {
  const char *dot = strrchr(name, '.');
  return dot == NULL ? 0 : (size_t)(dot - name);
}

static ckpt_status add_module(settling *s, const char *path, size_t n, ckpt_error *err) {
  if (s->n_modules == s->module_capacity) {
    s->module_capacity = 2 * s->module_capacity + 64;
    const char **grown = reallocarray(s->modules, s->module_capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    s->modules = grown;
  }
  const char *copy = ckpt_arena_text(&s->x->arena, path, n);
  CKPT_TRY_ALLOC(copy, err);
  s->modules[s->n_modules++] = copy;
  return CKPT_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static ckpt_status add_place(settling *s, const char *stored, const ckpt_tensor *base, ckpt_extract_item *item,
                             ckpt_error *err) {
  char renamed[CKPT_ADAPTER_NAME];
  if (s->n_places == s->place_capacity) {
    s->place_capacity = 2 * s->place_capacity + 64;
    place *grown = reallocarray(s->places, s->place_capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    s->places = grown;
  }
  const char *name =
      ckpt_arena_copy(&s->x->arena, ckpt_model_name(renamed, s->x->base, ckpt_extract_name(s->x, stored)));
  CKPT_TRY_ALLOC(name, err);
  s->places[s->n_places++] = (place){name, base, item};
  return CKPT_OK;
}

/* The item of a tensor under one of its stored names; NULL: the name is left out. */
static ckpt_extract_item *item_of(ckpt_extract_item *const *first, const char *name) {
  for (ckpt_extract_item *item = *first; item != NULL; item = item->next) {
    if (strcmp(item->name, name) == 0) return item;
    for (const char *const *alias = item->aliases; alias != NULL && *alias != NULL; alias++)
      if (strcmp(*alias, name) == 0) return item;
  }
  return NULL;
}

/* A stored name, and those that only the model has for it. */
static ckpt_status add_names(settling *s, const char *name, const ckpt_tensor *base, ckpt_extract_item *item,
                             ckpt_error *err) {
  CKPT_TRY(add_place(s, name, base, item, err));
  for (uint32_t k = 0; k < s->n_tied; k++)
    if (s->tied[k].tensor == base && strcmp(base->name, name) == 0)
      CKPT_TRY(add_place(s, s->tied[k].name, base, item, err));
  return CKPT_OK;
}

static ckpt_status list_places(settling *s, ckpt_error *err) {
  const ckpt_index *base = s->x->base;
  ckpt_extract_item **firsts = calloc((size_t)base->n_tensors + 1, sizeof *firsts);
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(firsts, err);
  for (size_t i = s->x->n; i-- > 0;) {
    ckpt_extract_item *item = &s->x->items[i], **first = &firsts[item->base - base->tensors];
    item->next = *first;
    *first = item;
  }
  for (uint32_t i = 0; i < base->n_tensors; i++) {
    const ckpt_tensor *tensor = &base->tensors[i];
    if (tensor->role != CKPT_ROLE_PARAMETER) continue;
    CKPT_TRY_GOTO(add_names(s, tensor->name, tensor, item_of(&firsts[i], tensor->name), err));
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      CKPT_TRY_GOTO(add_names(s, *alias, tensor, item_of(&firsts[i], *alias), err));
  }
done:
  free(firsts);
  return status;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static bool is_saved(const settling *s, const char *path, size_t n) {
  char key[CKPT_ADAPTER_NAME];
  const char *wanted = key;
  if (n >= sizeof key || s->n_modules == 0) return false;
  ckpt_c_snprintf(key, sizeof key, "%.*s", (int)n, path);
  return bsearch(&wanted, s->modules, s->n_modules, sizeof wanted, by_text) != NULL;
}

/* Whether the module of a name, or one that it lies in, is saved. */
static bool is_covered(const settling *s, const char *name) {
  for (size_t n = module_length(name); n != 0;) {
    if (is_saved(s, name, n)) return true;
    while (n != 0 && name[n - 1] != '.') n--;
    if (n != 0) n--;
  }
  return false;
}

/* Sorts the modules, and keeps each once. */
static void sort_modules(settling *s) {
  size_t n = 0;
  if (s->n_modules != 0) qsort(s->modules, s->n_modules, sizeof *s->modules, by_text);
  for (size_t i = 0; i < s->n_modules; i++)
    if (n == 0 || strcmp(s->modules[i], s->modules[n - 1]) != 0) s->modules[n++] = s->modules[i];
  s->n_modules = n;
}

/* Keeps none that lies in another. */
static ckpt_status drop_nested(settling *s, ckpt_error *err) {
  bool *is_nested = calloc(s->n_modules + 1, sizeof *is_nested);
  const size_t n = s->n_modules;
  CKPT_TRY_ALLOC(is_nested, err);
  for (size_t i = 0; i < n; i++) is_nested[i] = is_covered(s, s->modules[i]);
  s->n_modules = 0;
  for (size_t i = 0; i < n; i++)
    if (!is_nested[i]) s->modules[s->n_modules++] = s->modules[i];
  free(is_nested);
  return CKPT_OK;
}

/* The modules of what differs and has no factors. */
static ckpt_status list_modules(settling *s, ckpt_error *err) {
  for (size_t i = 0; i < s->n_places; i++) {
    const place *at = &s->places[i];
    if (at->item == NULL || !at->item->differs || at->item->rank != 0 || at->item->is_of_linear) continue;
    const size_t n = module_length(at->name);
    if (n == 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, s->x->tuned->path, at->name,
                       "differs, and is of no module that PEFT could save (%%exclude leaves it out)");
    CKPT_TRY(add_module(s, at->name, n, err));
  }
  sort_modules(s);
  return CKPT_OK;
}

/* Modules whose paths end as one that is saved: PEFT saves them too. */
static ckpt_status add_namesakes(settling *s, ckpt_error *err) {
  const size_t n_saved = s->n_modules;
  for (size_t i = 0; i < s->n_places; i++) {
    const char *name = s->places[i].name;
    for (size_t n = module_length(name); n != 0;) {
      for (size_t k = 0; k < n_saved; k++) {
        const size_t n_end = strlen(s->modules[k]);
        if (n_end >= n || memcmp(name + n - n_end, s->modules[k], n_end) != 0) continue;
        CKPT_TRY(add_module(s, name, n, err));
        break;
      }
      while (n != 0 && name[n - 1] != '.') n--;
      if (n != 0) n--;
    }
  }
  sort_modules(s);
  return drop_nested(s, err);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static void add_whole(ckpt_extraction *x, const place *at, bool is_bias) {
  const bool is_tuned = at->item != NULL && !at->item->is_integer;
  x->wholes[x->n_wholes++] = (ckpt_extract_whole){.name = at->name,
                                                  .index = is_tuned ? x->tuned : x->base,
                                                  .tensor = is_tuned ? at->item->tuned : at->base,
                                                  .bias = is_bias ? at->item : NULL};
}

static ckpt_status list_wholes(settling *s, ckpt_error *err) {
  ckpt_extraction *x = s->x;
  x->wholes = ckpt_arena_array(&x->arena, s->n_places + 1, sizeof *x->wholes);
  x->saved = ckpt_arena_array(&x->arena, s->n_modules + 1, sizeof *x->saved);
  CKPT_TRY_ALLOC(x->wholes, err);
  CKPT_TRY_ALLOC(x->saved, err);
  for (size_t i = 0; i < s->n_modules; i++) x->saved[x->n_saved++] = s->modules[i];
  for (size_t i = 0; i < s->n_places; i++) {
    const place *at = &s->places[i];
    const bool is_whole = is_covered(s, at->name);
    if (is_whole && at->item != NULL) at->item->rank = 0;
    if (is_whole && at->item != NULL) at->item->error = 0;
    if (is_whole)
      add_whole(x, at, false);
    else if (at->item != NULL && at->item->is_of_linear && at->item->differs)
      add_whole(x, at, true);
  }
  return CKPT_OK;
}

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* Bytes of a name before its expert's number: those of a layer have the same. */
static size_t layer_length(const char *name) { return (size_t)(strstr(name, ".experts.") - name); }

/* Gives a matrix factors of a higher rank, whose other rows and columns are zero. */
static ckpt_status widen(ckpt_extraction *x, ckpt_extract_item *item, uint64_t rank, ckpt_error *err) {
  const uint64_t *shape = item->base->shape;
  const size_t n_in = shape[!item->is_transposed], n_out = shape[item->is_transposed];
  const size_t n_before = (size_t)item->rank, n_after = (size_t)rank;
  float *before = calloc(n_before * (n_in + n_out) + 1, sizeof *before);
  float *after = calloc(n_after * (n_in + n_out) + 1, sizeof *after);
  ckpt_status status = CKPT_OK;
  if (before == NULL || after == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  if (n_before != 0)
    CKPT_TRY_GOTO(ckpt_read_exactly(x->file, x->folder, item->offset, before, n_before * (n_in + n_out) * 4, err));
  memcpy(after, before, n_before * n_in * sizeof *after);
  for (size_t i = 0; i < n_out; i++)
    memcpy(after + n_after * n_in + i * n_after, before + n_before * n_in + i * n_before, n_before * sizeof *after);
  CKPT_TRY_GOTO(ckpt_write_exactly(x->file, x->folder, x->n_file, after, n_after * (n_in + n_out) * 4, err));
  item->offset = x->n_file;
  item->rank = rank;
  x->n_file += n_after * (n_in + n_out) * 4;
done:
  free(before);
  free(after);
  return status;
}

/* PEFT stacks the experts of a layer: all need factors where one has them, and one rank everywhere. */
static ckpt_status level_experts(ckpt_extraction *x, ckpt_error *err) {
  for (size_t i = 0; i < x->n; i++)
    if (x->items[i].is_expert && x->items[i].rank > x->expert_rank) x->expert_rank = x->items[i].rank;
  for (size_t first = 0, end; first < x->n; first = end) {
    const ckpt_extract_item *of = &x->items[first];
    const size_t n = of->is_expert ? layer_length(of->name) : 0;
    bool has_factors = of->is_expert && of->rank != 0;
    for (end = first + 1; n != 0 && end < x->n && strncmp(x->items[end].name, of->name, n) == 0 &&
                          x->items[end].is_expert && layer_length(x->items[end].name) == n;
         end++)
      has_factors = has_factors || x->items[end].rank != 0;
    for (size_t i = first; has_factors && i < end; i++)
      if (x->items[i].rank != x->expert_rank) CKPT_TRY(widen(x, &x->items[i], x->expert_rank, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_extract_settle(ckpt_extraction *x, ckpt_error *err) {
  settling s = {.x = x};
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_model_find_tied(s.tied, &s.n_tied, x->base, err));
  CKPT_TRY_GOTO(list_places(&s, err));
  CKPT_TRY_GOTO(list_modules(&s, err));
  CKPT_TRY_GOTO(add_namesakes(&s, err));
  CKPT_TRY_GOTO(list_wholes(&s, err));
  status = level_experts(x, err);
done:
  free(s.places);
  free(s.modules);
  return status;
}
