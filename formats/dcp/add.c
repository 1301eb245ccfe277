/* add.c - all items of a checkpoint's metadata to tensors and objects, those of several ranks together. Items that
 * are no tensors go to objects.c. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/add.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

enum { MAX_LISTED = 4 };

/* ---- objects ---- */

/* The path of rank R's own object or tensor: the last key gets @R. */
static ckpt_status rank_path(ckpt_dcp_adder *a, const ckpt_dcp_item *of, const ckpt_object *path, ckpt_object **out,
                             ckpt_error *err) {
  ckpt_arena *arena = &a->index->arena;
  bool has_path = path != NULL && path->kind == CKPT_OBJECT_TUPLE && path->n != 0;
  uint64_t n = has_path ? path->n : 1;
  const ckpt_object *last = has_path ? path->items[n - 1] : of->name;
  char *text = last->kind == CKPT_OBJECT_TEXT  ? ckpt_arena_printf(arena, "%s@%u", last->text, of->root)
               : last->kind == CKPT_OBJECT_INT ? ckpt_arena_printf(arena, "%lld@%u", (long long)last->integer, of->root)
                                               : ckpt_arena_printf(arena, "@%u", of->root);
  CKPT_TRY_ALLOC(text, err);
  ckpt_object *own = *out = ckpt_object_new(arena, CKPT_OBJECT_TUPLE, n, NULL);
  CKPT_TRY_ALLOC(own, err);
  for (uint64_t i = 0; i + 1 < n; i++) own->items[i] = path->items[i];
  own->items[n - 1] = ckpt_object_text(arena, text, strlen(text));
  CKPT_TRY_ALLOC(own->items[n - 1], err);
  return CKPT_OK;
}

/* Whether a rank's object is the first one's, as far as its own bytes go: one can share a long text among many. */
static ckpt_status compare_objects(bool *is_same, const ckpt_object *first, const ckpt_object *own,
                                   const ckpt_dcp_slice *at, ckpt_error *err) {
  enum { DEFLATED = 64 }; /* what honest streams have of nodes for each byte at most */
  uint64_t n_left;
  if (!ckpt_mul_u64(at->n_bytes, at->is_zstd ? DEFLATED : 1, &n_left)) n_left = UINT64_MAX;
  *is_same = false;
  return first == NULL ? CKPT_OK : ckpt_object_compare(is_same, first, own, &n_left, err);
}

/* Adds a part to the dict, under a path or its first item's name. A place is kept for a tensor, and for what was not
 * read, NULL: names follow from what stands where. */
static ckpt_status add_part(ckpt_dcp_adder *a, const ckpt_dcp_part *part, const ckpt_object *path, ckpt_error *err) {
  ckpt_object *value = part->value;
  if (part->n != 0)
    CKPT_TRY_ALLOC(value = ckpt_object_tensor(a->dict.arena, a->n_parts), err);
  else if (value == NULL)
    CKPT_TRY_ALLOC(value = ckpt_object_none(a->dict.arena), err);
  CKPT_TRY(ckpt_grow(&a->parts, a->n_parts, &a->part_capacity, sizeof *a->parts, err));
  CKPT_TRY(ckpt_dcp_dict_add(&a->dict, a->items[part->first].name, path, value, err));
  a->parts[a->n_parts] = *part;
  if (part->n != 0) a->parts[a->n_parts].value = value; /* its leaf, which gets the tensor's number */
  a->n_parts++;
  return CKPT_OK;
}

/* Reads an object; a graph that holds tensors is kept for when they have names. */
static ckpt_status read_object(ckpt_dcp_adder *a, ckpt_dcp_part *part, const ckpt_dcp_slice *at, const char *name,
                               ckpt_error *err) {
  ckpt_torch_graph graph = {.root = NULL};
  ckpt_status status = ckpt_dcp_objects_read(&graph, a->objects, at, name, err);
  part->value = graph.root;
  if (status == CKPT_OK && graph.root != NULL && graph.n_tensors != 0) {
    part->graph = malloc(sizeof graph);
    if (part->graph != NULL) {
      *part->graph = graph;
      return CKPT_OK;
    }
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_torch_graph_free(&graph);
  return status;
}

/* The objects of n roots with one name: one where all are equal, else those that differ from the first are their
 * ranks' own. */
static ckpt_status gather_objects(ckpt_dcp_adder *a, uint64_t first, uint64_t n, const ckpt_object *path,
                                  ckpt_error *err) {
  const ckpt_object *whole = NULL;
  for (uint64_t i = 0; i < n; i++) {
    const ckpt_dcp_item *of = &a->items[first + i];
    char own_name[CKPT_DCP_NAME_BYTES + 32];
    ckpt_dcp_part part = {.first = first + i};
    ckpt_dcp_slice at;
    ckpt_object *own = NULL;
    CKPT_TRY(ckpt_dcp_find_slice(a, of, NULL, &at, err));
    if (at.file == CKPT_FILE_LITERAL) continue;
    snprintf(own_name, sizeof own_name, "%s@%u", of->name->text, of->root);
    CKPT_TRY(read_object(a, &part, &at, i == 0 ? of->name->text : own_name, err));
    bool is_same = i != 0 && part.value == NULL;
    ckpt_status status = CKPT_OK;
    if (i == 0)
      whole = part.value;
    else if (!is_same && part.graph == NULL) /* tensors are each rank's own */
      status = compare_objects(&is_same, whole, part.value, &at, err);
    if (i != 0 && !is_same && status == CKPT_OK) status = rank_path(a, of, path, &own, err);
    if (!is_same && status == CKPT_OK) status = add_part(a, &part, i == 0 ? path : own, err);
    if ((is_same || status != CKPT_OK) && part.graph != NULL) {
      ckpt_torch_graph_free(part.graph);
      free(part.graph);
    }
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* ---- all items ---- */

static int compare_items(const void *x, const void *y) {
  const ckpt_dcp_item *a = x, *b = y;
  uint64_t n = a->name->n < b->name->n ? a->name->n : b->name->n;
  int order = memcmp(a->name->text, b->name->text, (size_t)n);
  if (order == 0) order = (a->name->n > b->name->n) - (a->name->n < b->name->n);
  return order != 0 ? order : (a->root > b->root) - (a->root < b->root);
}

static bool is_same_name(const ckpt_dcp_item *a, const ckpt_dcp_item *b) {
  return a->name->n == b->name->n && memcmp(a->name->text, b->name->text, (size_t)a->name->n) == 0;
}

/* Whether two items are ranks' of one thing: what folders that were saved apart call alike is each one's own. */
static bool is_same_item(const ckpt_dcp_adder *a, const ckpt_dcp_item *x, const ckpt_dcp_item *y) {
  return is_same_name(x, y) && a->metadata->roots[x->root].folder == a->metadata->roots[y->root].folder;
}

static bool is_tensor(const ckpt_dcp_item *of) { return ckpt_dcp_attribute(of->value, "size") != NULL; }

static ckpt_status refuse_name(const ckpt_object *name, uint64_t number, ckpt_error *err) {
  if (name->kind == CKPT_OBJECT_TEXT && name->n > CKPT_DCP_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                     "the name of item %llu of state_dict_metadata has %llu bytes, at most %d", (ull)number,
                     (ull)name->n, CKPT_DCP_NAME_BYTES);
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the name of item %llu of state_dict_metadata is %s", (ull)number,
                   ckpt_dcp_no_name(name));
}

/* The pickle that a root's defects are told of, where all are asked for. */
static const char *path_of(const ckpt_dcp_adder *a, uint32_t root) {
  if (a->index->defects.report == NULL) return NULL;
  return ckpt_source_path(a->index->source, a->metadata->roots[root].file);
}

/* Lists the items of all roots; those of several are sorted so that one name's follow each other. */
static ckpt_status list_items(ckpt_dcp_adder *a, ckpt_error *err) {
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) a->n_items += a->metadata->roots[r].tensors->n;
  a->items = reallocarray(NULL, (size_t)a->n_items + 1, sizeof *a->items);
  CKPT_TRY_ALLOC(a->items, err);
  uint64_t n = 0;
  for (uint32_t r = 0; r < a->metadata->n_roots; r++) {
    const ckpt_object *rows = a->metadata->roots[r].tensors;
    for (uint64_t i = 0; i < rows->n; i++) {
      ckpt_dcp_item of = {rows->items[2 * i], rows->items[2 * i + 1], r};
      if (!ckpt_dcp_is_name(of.name)) return ckpt_fail_at(refuse_name(of.name, i, err), err, path_of(a, r), NULL);
      a->items[n++] = of;
    }
  }
  if (a->metadata->n_roots > 1) qsort(a->items, (size_t)n, sizeof *a->items, compare_items);
  return CKPT_OK;
}

/* Says of which item a defect is: one of bytes is no tensor. */
static void fail_in(ckpt_error *defect, const ckpt_dcp_item *of, const char *path) {
  const ckpt_error why = *defect;
  if (is_tensor(of) || why.tensor[0] != '\0' || of->name->kind != CKPT_OBJECT_TEXT) {
    ckpt_fail_at(why.status, defect, path, of->name->text);
    return;
  }
  *defect = (ckpt_error){0};
  (void)ckpt_fail(defect, why.status, why.file[0] == '\0' ? path : why.file, NULL, "item '%.200s': %s", of->name->text,
                  why.message);
}

/* The parts that n items with one name are: a tensor, or an object of each root. */
static ckpt_status gather(ckpt_dcp_adder *a, uint64_t first, uint64_t n, ckpt_error *err) {
  const ckpt_dcp_item *items = &a->items[first];
  const ckpt_object *path = ckpt_dcp_find(&a->metadata->paths, items[0].root, items[0].name, NULL, NULL);
  for (uint64_t i = 0; i < n; i++)
    if (is_tensor(&items[i]) != is_tensor(&items[0]))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a tensor for one rank, something else for another");
  if (!is_tensor(&items[0])) return gather_objects(a, first, n, path, err);
  uint64_t n_same;
  CKPT_TRY(ckpt_dcp_split_replicas(a, &a->items[first], n, &n_same, err));
  CKPT_TRY(add_part(a, &(ckpt_dcp_part){.first = first, .n = (uint32_t)n_same}, path, err));
  for (uint64_t i = n_same; i < n; i++) {
    ckpt_object *own;
    CKPT_TRY(rank_path(a, &items[i], path, &own, err));
    CKPT_TRY(add_part(a, &(ckpt_dcp_part){.first = first + i, .n = 1}, own, err));
  }
  if (n_same != n && a->n_own++ == 0) a->first_own = items[0].name->text;
  return CKPT_OK;
}

/* What a defect says, in an item; passed where all of them are asked for. */
static ckpt_status pass(ckpt_dcp_adder *a, const ckpt_dcp_item *of, ckpt_status status, ckpt_error *defect,
                        ckpt_error *err) {
  if (status != CKPT_OK) fail_in(defect, of, path_of(a, of->root));
  return ckpt_defects_pass(&a->index->defects, status, defect, err);
}

/* ---- names ---- */

/* Moves the leaves of all graphs by their tensors' places behind the parts', there or back. */
static void move_leaves(const ckpt_dcp_adder *a, bool is_back) {
  uint32_t first = a->n_parts;
  for (uint32_t i = 0; i < a->n_parts; i++) {
    const ckpt_torch_graph *graph = a->parts[i].graph;
    for (uint32_t k = 0; graph != NULL && k < graph->n_leaves; k++)
      graph->leaves[k].node->tensor += is_back ? 0 - first : first;
    first += graph == NULL ? 0 : graph->n_tensors;
  }
}

/* Gives a graph its tensors' names, which are there from `first` on. */
static ckpt_status take_names(ckpt_torch_graph *graph, const ckpt_torch_graph *names, uint32_t first, ckpt_error *err) {
  for (uint32_t i = 0; i < graph->n_tensors; i++) {
    ckpt_torch_tensor *tensor = &graph->tensors[i];
    for (uint32_t k = names->tensors[first + i].first_name; k != UINT32_MAX; k = names->names[k].next) {
      CKPT_TRY(ckpt_grow(&graph->names, graph->n_names, &graph->name_capacity, sizeof *graph->names, err));
      graph->names[graph->n_names] = names->names[k];
      graph->names[graph->n_names].next = UINT32_MAX;
      if (tensor->first_name == UINT32_MAX)
        tensor->first_name = graph->n_names;
      else
        graph->names[tensor->last_name].next = graph->n_names;
      tensor->last_name = graph->n_names++;
    }
  }
  return CKPT_OK;
}

/* Names all tensors as in a torch file that holds the same dict. */
static ckpt_status find_names(ckpt_dcp_adder *a, ckpt_error *err) {
  ckpt_torch_graph *names = &a->names;
  uint64_t n = a->n_parts;
  if (a->dict.root == NULL) return CKPT_OK;
  for (uint32_t i = 0; i < a->n_parts; i++)
    if (a->parts[i].graph != NULL) {
      n += a->parts[i].graph->n_tensors;
      names->n_children += a->parts[i].graph->n_children;
    }
  if (n > UINT32_MAX) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%llu tensors", (ull)n);
  names->root = a->dict.root;
  names->arena = &a->nodes;
  CKPT_TRY_ALLOC(names->tensors = calloc(n, sizeof *names->tensors), err);
  names->n_tensors = (uint32_t)n;
  for (uint32_t i = 0; i < n; i++)
    names->tensors[i] = (ckpt_torch_tensor){.first_name = UINT32_MAX, .last_name = UINT32_MAX, .is_copy = true};
  uint32_t first = a->n_parts;
  for (uint32_t i = 0; i < a->n_parts; i++)
    for (uint32_t k = 0; a->parts[i].graph != NULL && k < a->parts[i].graph->n_tensors; k++)
      names->tensors[first++].is_copy = a->parts[i].graph->tensors[k].is_copy;
  uint64_t n_children;
  CKPT_TRY(ckpt_torch_mark(names->root, &n_children, err));
  names->n_children += n_children;
  move_leaves(a, false);
  const ckpt_status status = ckpt_torch_names_find(names, a->index, "", a->stored_names, err);
  move_leaves(a, true);
  CKPT_TRY(status);
  first = a->n_parts;
  for (uint32_t i = 0; i < a->n_parts; i++) {
    if (a->parts[i].graph == NULL) continue;
    CKPT_TRY(take_names(a->parts[i].graph, names, first, err));
    first += a->parts[i].graph->n_tensors;
  }
  return CKPT_OK;
}

/* The name of a tensor in the index and its role; borrowed. A stored name that another folder has too is no name. */
static const char *name_of(const ckpt_dcp_adder *a, uint32_t part, ckpt_role *role) {
  const ckpt_dcp_item *of = &a->items[a->parts[part].first];
  const uint32_t first = a->names.tensors[part].first_name;
  const bool is_stored = a->stored_names && of->name->n != 0 && (of == a->items || !is_same_name(of, of - 1));
  *role = first == UINT32_MAX ? CKPT_ROLE_OTHER : a->names.names[first].role;
  return first == UINT32_MAX || is_stored ? of->name->text : a->names.names[first].text;
}

/* ---- all parts ---- */

static ckpt_status gather_all(ckpt_dcp_adder *a, ckpt_error *err) {
  for (uint64_t i = 0, n; i < a->n_items; i += n) {
    ckpt_error defect = {0};
    for (n = 1; a->metadata->n_roots > 1 && i + n < a->n_items; n++)
      if (!is_same_item(a, &a->items[i], &a->items[i + n])) break;
    CKPT_TRY(pass(a, &a->items[i], gather(a, i, n, &defect), &defect, err));
  }
  CKPT_TRY(ckpt_dcp_dict_build(&a->dict, err));
  CKPT_TRY(find_names(a, err));
  if (a->objects->is_kept || ckpt_torch_is_model(&a->names)) return CKPT_OK;
  a->objects->is_kept = true; /* names alone would not say what stood where */
  ckpt_arena_adopt(&a->index->arena, &a->nodes);
  return CKPT_OK;
}

/* ---- parts to the index ---- */

/* A tensor under its name, or those of an object. */
static ckpt_status add_named(ckpt_dcp_adder *a, ckpt_dcp_part *part, const char *name, ckpt_role role,
                             ckpt_error *err) {
  const ckpt_dcp_item *items = &a->items[part->first];
  if (part->graph != NULL)
    return ckpt_dcp_objects_add(a->objects, part->graph, a->metadata->roots[items->root].file, err);
  if (part->n == 0) return CKPT_OK;
  ckpt_object *leaf = part->value;
  uint32_t number = UINT32_MAX;
  const uint32_t first = a->places.n;
  part->value = NULL;
  CKPT_TRY(ckpt_dcp_add_tensor(a, items, part->n, name, role, &number, err));
  ckpt_dcp_places_own(&a->places, first, number == UINT32_MAX ? CKPT_DCP_UNREAD : number);
  if (number == UINT32_MAX) return CKPT_OK;
  leaf->tensor = number;
  part->value = leaf;
  return CKPT_OK;
}

/* The same, which goes past what is broken where all defects are asked for. */
static ckpt_status settle_part(ckpt_dcp_adder *a, uint32_t number, ckpt_error *err) {
  ckpt_dcp_part *part = &a->parts[number];
  const ckpt_dcp_item *of = &a->items[part->first];
  ckpt_index *index = a->index;
  ckpt_error defect = {0};
  ckpt_role role;
  const uint32_t n_before = index->n_tensors;
  const char *name = name_of(a, number, &role);
  ckpt_status status = add_named(a, part, name, role, &defect);
  CKPT_TRY(pass(a, of, status, &defect, err));
  ckpt_dcp_dict_put(&a->dict, number, part->value);
  if (status == CKPT_OK) {
    if (part->n != 0 && strcmp(name, of->name->text) != 0) index->is_renamed = true;
    return CKPT_OK;
  }
  ckpt_index_break(index, n_before, index->n_tensors);
  if (index->n_tensors != n_before || part->n == 0) return CKPT_OK;
  return ckpt_index_add_broken(index, name, role, a->metadata->roots[of->root].file, err);
}

static int compare_paths(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ckpt_status refuse_missing(ckpt_dcp_adder *a, ckpt_error *err) {
  char listed[512] = "";
  uint32_t n = 0;
  qsort(a->missing, a->n_missing, sizeof *a->missing, compare_paths);
  for (uint32_t i = 0; i < a->n_missing; i++) {
    if (i != 0 && strcmp(a->missing[i - 1], a->missing[i]) == 0) continue;
    size_t end = strlen(listed);
    if (n++ < MAX_LISTED) snprintf(listed + end, sizeof listed - end, "%s%.100s", end == 0 ? "" : ", ", a->missing[i]);
  }
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, NULL,
                   "%u of the files that its metadata names are missing: %s%s (__R_... are rank R's; copy them, or "
                   "save again)",
                   n, listed, n > MAX_LISTED ? ", ..." : "");
}

static ckpt_status add_everything(ckpt_dcp_adder *a, ckpt_error *err) {
  CKPT_TRY(list_items(a, err));
  CKPT_TRY(gather_all(a, err));
  for (uint32_t i = 0; i < a->n_parts; i++) CKPT_TRY(settle_part(a, i, err));
  CKPT_TRY(ckpt_dcp_dict_settle(&a->dict, err));
  ckpt_error defect = {0};
  if (a->n_missing != 0) CKPT_TRY(ckpt_defects_pass(&a->index->defects, refuse_missing(a, &defect), &defect, err));
  CKPT_TRY(ckpt_torch_unread_note(&a->unread, a->index, err));
  if (a->n_own != 0)
    CKPT_TRY(ckpt_index_note(a->index, false, err,
                             "ranks have values of their own of %llu tensor%s (%s%.200s): rank R's is NAME@R, where it "
                             "is not the first's",
                             (ull)a->n_own, ckpt_plural(a->n_own), a->n_own == 1 ? "" : "first ", a->first_own));
  CKPT_TRY(ckpt_dcp_table_note(&a->metadata->places, a->index, err));
  CKPT_TRY(ckpt_dcp_agreement_note(&a->metadata->agreement, a->index, err));
  uint32_t n = 0;
  for (uint32_t i = 0; i < a->places.n; i++) { /* offsets in safetensors files mean nothing */
    const ckpt_dcp_place *place = &a->places.items[i];
    if (place->file >= a->n_files || !a->files[place->file].is_safetensors) a->places.items[n++] = *place;
  }
  a->places.n = n;
  CKPT_TRY(ckpt_dcp_places_note(&a->places, a->index, err));
  return ckpt_dcp_objects_set(a->objects, a->dict.root, a->names.top, a->names.optimizer, err);
}

ckpt_status ckpt_dcp_add_all(ckpt_index *index, ckpt_dcp_objects *objects, const ckpt_dcp_metadata *metadata,
                             bool stored_names, ckpt_error *err) {
  ckpt_dcp_adder *a = calloc(1, sizeof *a);
  CKPT_TRY_ALLOC(a, err);
  a->index = index;
  a->objects = objects;
  a->metadata = metadata;
  a->stored_names = stored_names;
  ckpt_dcp_objects_begin(objects, index, metadata);
  ckpt_torch_arena_init(&a->nodes, index);
  a->dict.arena = objects->is_kept ? &index->arena : &a->nodes;
  a->dict.max_keys = metadata->n_bytes;
  ckpt_status status = add_everything(a, err);
  for (uint32_t i = 0; i < a->n_files; i++) {
    ckpt_index_free(a->files[i].held);
    ckpt_name_table_free(a->files[i].table);
    free(a->files[i].is_taken);
  }
  for (uint32_t i = 0; i < a->n_parts; i++) {
    if (a->parts[i].graph == NULL) continue;
    ckpt_torch_graph_free(a->parts[i].graph);
    free(a->parts[i].graph);
  }
  free(a->parts);
  ckpt_dcp_dict_free(&a->dict);
  ckpt_torch_graph_free(&a->names);
  ckpt_arena_free(&a->nodes);
  ckpt_dcp_twins_free(&a->twins);
  ckpt_dcp_places_free(&a->places);
  free(a->files);
  free(a->items);
  free(a->missing);
  free(a->extents);
  free(a->boxes);
  free(a);
  return status;
}
