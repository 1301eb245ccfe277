/* chunks.c - what the ranks of a DCPv2 checkpoint have of its tensors: from the tensors of their files to those
 * of the index. Chunks of one name are one tensor, each at the box that the metadata says of its rank. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcpv2/dcpv2.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

/* ---- a rank's ---------------------------------------------------------------------------------------------------- */

static ckpt_status copy_aliases(ckpt_dcpv2_chunks *all, ckpt_dcpv2_chunk *c, const ckpt_tensor *named,
                                ckpt_error *err) {
  size_t n = 0;
  while (named->aliases != NULL && named->aliases[n] != NULL) n++;
  if (n == 0) return CKPT_OK;
  const char **copies = ckpt_arena_array(&all->index->arena, n + 1, sizeof *copies);
  CKPT_TRY_ALLOC(copies, err);
  for (size_t i = 0; i < n; i++)
    CKPT_TRY_ALLOC(copies[i] = ckpt_arena_copy(&all->index->arena, named->aliases[i]), err);
  c->aliases = copies;
  return CKPT_OK;
}

/* The place of a tensor by any of its names: those of tied ones say the same. */
static ckpt_dcpv2_place *find_place(const ckpt_dcpv2_item *item, const ckpt_tensor *stored) {
  ckpt_dcpv2_place *place = ckpt_dcpv2_find(item, stored->name);
  for (const char *const *alias = stored->aliases; alias != NULL && *alias != NULL; alias++) {
    ckpt_dcpv2_place *other = ckpt_dcpv2_find(item, *alias);
    if (other != NULL && other->used == NULL) other->used = other->name;
    if (place == NULL) place = other;
  }
  return place;
}

static ckpt_status take_box(ckpt_dcpv2_chunks *all, ckpt_dcpv2_box *box, const ckpt_dcpv2_place *place, uint64_t rank,
                            const ckpt_tensor *stored, ckpt_error *err) {
  uint64_t units[CKPT_MAX_RANK] = {0};
  (void)ckpt_tensor_units(stored, units);
  if (place == NULL) {
    *box = (ckpt_dcpv2_box){.rank = stored->rank};
    memcpy(box->shape, units, sizeof units);
    memcpy(box->counts, units, sizeof units);
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_dcpv2_box_of(box, all->metadata, place, rank, err));
  if (box->rank == stored->rank && memcmp(box->counts, units, box->rank * sizeof *units) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "what rank %llu has of it has another shape than its metadata says",
                   (ull)rank);
}

ckpt_status ckpt_dcpv2_chunks_take(ckpt_dcpv2_chunks *all, const ckpt_dcpv2_item *item, uint64_t rank,
                                   const ckpt_tensor *stored, const ckpt_tensor *named, ckpt_error *err) {
  ckpt_arena *arena = &all->index->arena;
  ckpt_dcpv2_place *place = find_place(item, stored);
  CKPT_TRY(ckpt_grow(&all->items, all->n, &all->capacity, sizeof *all->items, err));
  ckpt_dcpv2_chunk *c = &all->items[all->n];
  *c = (ckpt_dcpv2_chunk){.of_rank = rank, .id = all->n++, .dtype = stored->dtype, .role = named->role};
  c->is_placed = place != NULL;
  c->is_spec = place == NULL && strncmp(stored->name, "unnamed.", 8) == 0; /* as no path leads there */
  c->name = place != NULL && place->used != NULL && strcmp(place->used, named->name) == 0
                ? place->used
                : ckpt_arena_copy(arena, named->name);
  CKPT_TRY_ALLOC(c->name, err);
  if (place != NULL) place->used = c->name;
  CKPT_TRY(copy_aliases(all, c, named, err));
  CKPT_TRY_ALLOC(c->box = ckpt_arena_alloc(arena, sizeof *c->box), err);
  ckpt_status status = take_box(all, c->box, place, rank, stored, err);
  if (status != CKPT_OK) return ckpt_fail_at(status, err, NULL, c->name);
  if (stored->n_extents != 0) c->extent = stored->extents[0];
  if (stored->details->extent_form != CKPT_EXTENT_STRIDED) return CKPT_OK;
  uint64_t *strides = ckpt_arena_array(arena, stored->rank, sizeof *strides);
  CKPT_TRY_ALLOC(strides, err);
  memcpy(strides, c->extent.box + 2 * stored->rank, stored->rank * sizeof *strides);
  c->strides = strides;
  return CKPT_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

static int compare_chunks(const void *x, const void *y) {
  const ckpt_dcpv2_chunk *a = x, *b = y;
  int order = a->name == b->name ? 0 : strcmp(a->name, b->name);
  if (order == 0) order = (a->of_rank > b->of_rank) - (a->of_rank < b->of_rank);
  return order != 0 ? order : (a->id > b->id) - (a->id < b->id);
}

static bool is_empty(const ckpt_dcpv2_box *box) {
  for (uint32_t i = 0; i < box->rank; i++)
    if (box->counts[i] == 0) return true;
  return false;
}

/* A chunk's extent, with its box and, where any of the tensor is strided, strides. */
static ckpt_status make_extent(ckpt_dcpv2_chunks *all, ckpt_extent *out, const ckpt_dcpv2_chunk *c, bool is_strided,
                               ckpt_error *err) {
  uint32_t rank = c->box->rank;
  *out = c->extent;
  out->start = out->count = 0;
  out->box = NULL;
  if (rank == 0) {
    out->count = 1;
    return CKPT_OK;
  }
  uint64_t *box = ckpt_arena_array(&all->index->arena, (is_strided ? 3 : 2) * (size_t)rank, sizeof *box);
  CKPT_TRY_ALLOC(box, err);
  memcpy(box, c->box->starts, rank * sizeof *box);
  memcpy(box + rank, c->box->counts, rank * sizeof *box);
  if (is_strided && c->strides != NULL)
    memcpy(box + 2 * rank, c->strides, rank * sizeof *box);
  else if (is_strided)
    ckpt_row_major(rank, box + rank, box + 2 * rank);
  out->box = box;
  return CKPT_OK;
}

/* The tensor of n chunks with one name; without a place the first rank's, which others have for themselves. */
static ckpt_status add_tensor(ckpt_dcpv2_chunks *all, const ckpt_dcpv2_chunk *chunks, uint32_t n, ckpt_error *err) {
  const ckpt_dcpv2_chunk *first = &chunks[0];
  uint32_t rank = first->box->rank, n_extents = 0, number;
  uint64_t shape[CKPT_MAX_RANK];
  bool is_strided = false;
  for (uint32_t i = 0; i < n; i++) {
    if (chunks[i].dtype != first->dtype || chunks[i].is_placed != first->is_placed ||
        (first->is_placed &&
         (chunks[i].box->rank != rank || memcmp(chunks[i].box->shape, first->box->shape, rank * sizeof *shape) != 0)))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, first->name, "ranks %llu and %llu say different dtypes or shapes",
                       (ull)first->of_rank, (ull)chunks[i].of_rank);
    is_strided = is_strided || (rank != 0 && chunks[i].strides != NULL);
  }
  for (uint32_t i = 0; i < (first->is_placed ? n : 1); i++) {
    if (is_empty(chunks[i].box)) continue;
    CKPT_TRY(ckpt_grow(&all->extents, n_extents, &all->extent_capacity, sizeof *all->extents, err));
    CKPT_TRY(make_extent(all, &all->extents[n_extents++], &chunks[i], is_strided, err));
  }
  memcpy(shape, first->box->shape, sizeof shape);
  uint64_t block = ckpt_dtype_get(first->dtype)->block_elements;
  if (rank != 0 && __builtin_mul_overflow(shape[rank - 1], block, &shape[rank - 1]))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, first->name, "shape has more than 2^64 elements");
  CKPT_TRY(ckpt_index_add(all->index, first->name, strlen(first->name), (ckpt_dtype)first->dtype, rank, shape,
                          (ckpt_role)first->role, all->extents, n_extents, &number, err));
  all->index->tensors[number].details->extent_form = (uint8_t)(rank == 0    ? CKPT_EXTENT_FLAT
                                                               : is_strided ? CKPT_EXTENT_STRIDED
                                                                            : CKPT_EXTENT_BOX);
  for (const char *const *alias = first->aliases; alias != NULL && *alias != NULL; alias++)
    CKPT_TRY(ckpt_index_alias(all->index, number, *alias, err));
  for (uint32_t i = 0; i < n; i++) all->numbers[chunks[i].id] = number;
  return CKPT_OK;
}

ckpt_status ckpt_dcpv2_chunks_add(ckpt_dcpv2_chunks *all, ckpt_error *err) {
  uint64_t n_own = 0;
  all->numbers = calloc((size_t)all->n + 1, sizeof *all->numbers);
  CKPT_TRY_ALLOC(all->numbers, err);
  if (all->n > 1) qsort(all->items, all->n, sizeof *all->items, compare_chunks);
  for (uint32_t i = 0, n; i < all->n; i += n) {
    for (n = 1; i + n < all->n && strcmp(all->items[i].name, all->items[i + n].name) == 0; n++) continue;
    if (all->items[i].is_spec) continue;
    const ckpt_dcpv2_chunk *first = &all->items[i];
    ckpt_error defect = {0};
    ckpt_status status = add_tensor(all, first, n, &defect);
    CKPT_TRY(ckpt_defects_pass(&all->index->defects, status, &defect, err));
    if (status != CKPT_OK)
      CKPT_TRY(ckpt_index_add_broken(all->index, first->name, (ckpt_role)first->role, first->extent.file, err));
    n_own += !all->items[i].is_placed && n > 1;
  }
  if (n_own == 0) return CKPT_OK;
  return ckpt_index_note(all->index, false, err,
                         "each rank has its own of %llu tensor%s that the metadata does not place: the first rank's "
                         "are read",
                         (ull)n_own, ckpt_plural(n_own));
}

void ckpt_dcpv2_chunks_free(ckpt_dcpv2_chunks *all) {
  free(all->items);
  free(all->numbers);
  free(all->extents);
}
