/* cut.c - from rules and the shapes of slices to strips.
 *
 * As DeepSpeed's ds_to_universal puts slices together: by a map where there is one; else what is replicated, or
 * averaged; else along axis 1 (row parallel) or 0. A tensor of several parts, each of them cut (q, k and v in one), has
 * strips of each. Shapes, and every number of the file, are compared before they count. */
#include "libckpt/codec/parallel/cut.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"

typedef unsigned long long ull;

static const char again[] = "it says the same again and again";

enum { MAX_PARTS = 256, MAX_BLOCKS = 4096 }; /* of a tensor, of a slice */
enum { BLOCK_BYTES = 16 };                   /* in a pickle, at least */

/* A cut that is being made. */
typedef struct cutter {
  ckpt_zero_cut *cut;
  ckpt_zero_rules *rules;
  const char *path, *name;
  ckpt_arena *arena;
  uint64_t *widths, *at; /* room for those of MAX_PARTS parts, of each slice; for a place in each */
} cutter;

static ckpt_status bad(const cutter *c, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, c->path, c->name, "universal_checkpoint_info: %s", what);
}

static ckpt_status unread(const cutter *c, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, c->path, c->name,
                   "universal_checkpoint_info: affine_map %s: this version cannot read it", what);
}

static const uint64_t *slice_of(const ckpt_zero_cut *cut, uint32_t slice) { return cut->slices + slice * cut->rank; }

static ckpt_status add_strip(cutter *c, uint32_t slice, uint64_t at, uint64_t to, uint64_t n, ckpt_error *err) {
  ckpt_zero_cut *cut = c->cut;
  if (n == 0) return CKPT_OK;
  if (cut->n_strips == cut->strip_capacity) {
    const uint32_t capacity = cut->strip_capacity == 0 ? cut->n_slices : 2 * cut->strip_capacity;
    ckpt_zero_strip *grown = ckpt_arena_array(c->arena, capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    if (cut->n_strips != 0) memcpy(grown, cut->strips, cut->n_strips * sizeof *grown);
    cut->strips = grown;
    cut->strip_capacity = capacity;
  }
  cut->strips[cut->n_strips++] = (ckpt_zero_strip){slice, at, to, n};
  return CKPT_OK;
}

/* ---- along one axis ---------------------------------------------------------------------------------------------- */

/* Slices that differ along one axis alone; UINT32_MAX: along none. */
static ckpt_status check_shapes(const cutter *c, uint32_t axis, ckpt_error *err) {
  const ckpt_zero_cut *cut = c->cut;
  if (axis != UINT32_MAX && axis >= cut->rank)
    return ckpt_fail(err, CKPT_EFORMAT, c->path, c->name, "said to be cut along axis %u, and it has %u", axis,
                     cut->rank);
  for (uint32_t t = 1; t < cut->n_slices; t++)
    for (uint32_t i = 0; i < cut->rank; i++)
      if (i != axis && slice_of(cut, t)[i] != cut->slices[i])
        return ckpt_fail(err, CKPT_EFORMAT, c->path, c->name,
                         "tensor parallel rank %u has %llu on axis %u of it, and rank 0 has %llu: no slices of one "
                         "tensor%s",
                         t, (ull)slice_of(cut, t)[i], i, (ull)cut->slices[i],
                         axis == UINT32_MAX ? ", which is said to be the same on all" : "");
  return CKPT_OK;
}

/* Slices that are all of the tensor: what it is made of is the first of them, or n. */
static ckpt_status take_whole(cutter *c, uint32_t n, ckpt_error *err) {
  CKPT_TRY(check_shapes(c, UINT32_MAX, err));
  for (uint32_t t = 0; t < n; t++) CKPT_TRY(add_strip(c, t, 0, 0, c->cut->rank == 0 ? 1 : c->cut->shape[0], err));
  return CKPT_OK;
}

/* A tensor of parts, one behind the other, of which slice t has widths[part * n_slices + t] places. */
static ckpt_status cut_parts(cutter *c, uint32_t axis, uint32_t n_parts, ckpt_error *err) {
  ckpt_zero_cut *cut = c->cut;
  uint64_t to = 0, *at = c->at;
  CKPT_TRY(check_shapes(c, axis, err));
  cut->axis = axis;
  memset(at, 0, cut->n_slices * sizeof *at);
  for (uint32_t part = 0; part < n_parts; part++)
    for (uint32_t t = 0; t < cut->n_slices; t++) {
      const uint64_t n = c->widths[part * cut->n_slices + t];
      CKPT_TRY(add_strip(c, t, at[t], to, n, err));
      if (!ckpt_add_u64(at[t], n, &at[t]) || !ckpt_add_u64(to, n, &to)) return bad(c, "its widths overflow", err);
    }
  for (uint32_t t = 0; t < cut->n_slices; t++)
    if (at[t] != slice_of(cut, t)[axis])
      return ckpt_fail(err, CKPT_EFORMAT, c->path, c->name,
                       "tensor parallel rank %u has %llu on axis %u of it, and its parts are said to have %llu", t,
                       (ull)slice_of(cut, t)[axis], axis, (ull)at[t]);
  cut->shape[axis] = to;
  return CKPT_OK;
}

static ckpt_status cut_axis(cutter *c, uint32_t axis, uint32_t n_parts, ckpt_error *err) {
  ckpt_zero_cut *cut = c->cut;
  CKPT_TRY(check_shapes(c, axis, err));
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    uint64_t n = slice_of(cut, t)[axis], part = n / n_parts + (n % n_parts != 0);
    for (uint32_t i = 0; i < n_parts; i++, n -= part) { /* as torch.chunk */
      if (part > n) part = n;
      c->widths[i * cut->n_slices + t] = part;
    }
  }
  return cut_parts(c, axis, n_parts, err);
}

/* ---- sub-parameters ---------------------------------------------------------------------------------------------- */

/* What all slices have of the axis. */
static bool sum_axis(const ckpt_zero_cut *cut, uint32_t axis, uint64_t *sum) {
  *sum = 0;
  for (uint32_t t = 0; t < cut->n_slices; t++)
    if (!ckpt_add_u64(*sum, slice_of(cut, t)[axis], sum)) return false;
  return true;
}

uint32_t ckpt_zero_n_parts(const ckpt_object *sizes, bool *are_equal) {
  uint64_t said[MAX_PARTS];
  uint32_t n = 1;
  *are_equal = true;
  if (sizes == NULL) return 1;
  if (sizes->kind == CKPT_OBJECT_INT)
    return sizes->integer > 0 && sizes->integer <= MAX_PARTS ? (uint32_t)sizes->integer : 1;
  if (!ckpt_foreign_u64s(sizes, said, MAX_PARTS, &n) || n == 0) return 1;
  for (uint32_t i = 1; i < n; i++) *are_equal = *are_equal && said[i] == said[0];
  return n;
}

/* The widths of parts that are cut evenly: sizes are said, or (version 0.3 and before) their number. */
static ckpt_status even_widths(cutter *c, uint32_t axis, const ckpt_object *size, uint32_t *n_parts, ckpt_error *err) {
  uint64_t sizes[MAX_PARTS], sum;
  if (size != NULL && size->kind == CKPT_OBJECT_INT) {
    if (size->integer < 1 || size->integer > MAX_PARTS || !sum_axis(c->cut, axis, &sum) ||
        sum % (uint64_t)size->integer)
      return bad(c, "its number of sub-parameters does not divide it", err);
    *n_parts = (uint32_t)size->integer;
    for (uint32_t i = 0; i < *n_parts; i++) sizes[i] = sum / *n_parts;
  } else if (size == NULL || !ckpt_foreign_u64s(size, sizes, MAX_PARTS, n_parts)) {
    return bad(c, "its sub-parameters have no sizes", err);
  }
  for (uint32_t i = 0; i < *n_parts; i++) {
    if (sizes[i] % c->cut->n_slices != 0)
      return bad(c, "its sub-parameters are cut unevenly, and widths are not said", err);
    for (uint32_t t = 0; t < c->cut->n_slices; t++) c->widths[i * c->cut->n_slices + t] = sizes[i] / c->cut->n_slices;
  }
  return CKPT_OK;
}

/* sub_param_shard_widths: what each slice has of each part. */
static ckpt_status said_widths(cutter *c, const ckpt_object *said, uint32_t *n_parts, ckpt_error *err) {
  if ((said->kind != CKPT_OBJECT_LIST && said->kind != CKPT_OBJECT_TUPLE) || said->n > MAX_PARTS)
    return bad(c, "sub_param_shard_widths is no list of widths", err);
  *n_parts = (uint32_t)said->n;
  for (uint32_t i = 0; i < *n_parts; i++) {
    uint32_t n;
    if (!ckpt_foreign_u64s(said->items[i], c->widths + i * c->cut->n_slices, c->cut->n_slices, &n) ||
        n != c->cut->n_slices)
      return bad(c, "sub_param_shard_widths has not one width for each rank", err);
  }
  return CKPT_OK;
}

static ckpt_status cut_subs(cutter *c, const ckpt_zero_said *said, const ckpt_zero_said *widths_said, ckpt_error *err) {
  const ckpt_object *axis_said = ckpt_object_field(said->value, "partition_dim");
  const ckpt_object *shape = ckpt_object_field(said->value, "shape");
  const int64_t axis = axis_said == NULL || axis_said->kind != CKPT_OBJECT_INT ? -1 : axis_said->integer;
  if (axis < 0 || axis >= c->cut->rank) return bad(c, "partition_dim is none of its axes", err);
  if (shape == NULL || shape->n != c->cut->rank || ckpt_foreign_arg(shape, 0) == NULL)
    return bad(c, "its sub-parameters are of another shape", err);
  uint32_t n_parts;
  if (widths_said->pattern != NULL && strcmp(widths_said->pattern, said->pattern) == 0)
    CKPT_TRY(said_widths(c, widths_said->value, &n_parts, err));
  else
    CKPT_TRY(even_widths(c, (uint32_t)axis, ckpt_foreign_arg(shape, (uint64_t)axis), &n_parts, err));
  if (!ckpt_zero_rules_spend(c->rules, n_parts)) return bad(c, again, err);
  return cut_parts(c, (uint32_t)axis, n_parts, err);
}

/* ---- maps -------------------------------------------------------------------------------------------------------- */

/* [offset, [strides]] of a block in a tensor of that shape: where it begins. False where it is no box of it. */
static bool find_start(const ckpt_object *place, uint32_t rank, const uint64_t *shape, const uint64_t *block,
                       uint64_t *start) {
  uint64_t strides[CKPT_MAX_RANK], want[CKPT_MAX_RANK];
  uint32_t n;
  const ckpt_object *offset = ckpt_foreign_arg(place, 0), *said = ckpt_foreign_arg(place, 1);
  if (offset == NULL || offset->kind != CKPT_OBJECT_INT || offset->integer < 0 || said == NULL ||
      !ckpt_foreign_u64s(said, strides, CKPT_MAX_RANK, &n) || n != rank)
    return false;
  ckpt_row_major(rank, shape, want);
  uint64_t left = (uint64_t)offset->integer;
  for (uint32_t i = 0; i < rank; i++) {
    if (block[i] > 1 && strides[i] != want[i]) return false;
    start[i] = want[i] == 0 ? 0 : left / want[i];
    left = want[i] == 0 ? left : left % want[i];
    if (!ckpt_range_within(start[i], block[i], shape[i])) return false;
  }
  return left == 0;
}

/* A block of a slice as a strip along the axis on which it is not all of the tensor or of the slice. */
static ckpt_status map_block(cutter *c, uint32_t slice, const ckpt_object *block, uint32_t *axis, ckpt_error *err) {
  static const char other[] = "has a block that is no box of it, or cut along two axes";
  ckpt_zero_cut *cut = c->cut;
  uint64_t shape[CKPT_MAX_RANK], to[CKPT_MAX_RANK], at[CKPT_MAX_RANK], holder[1] = {0}, n_elements;
  uint32_t rank;
  const ckpt_object *scale = ckpt_object_field(block, "scale"), *said = ckpt_object_field(block, "shape");
  const ckpt_object *holders = ckpt_object_field(block, "locations");
  if (said == NULL || !ckpt_foreign_u64s(said, shape, CKPT_MAX_RANK, &rank) || rank != cut->rank ||
      !ckpt_product_u64(shape, rank, &n_elements))
    return bad(c, "affine_map has a block of another shape", err);
  if (n_elements == 0) return CKPT_OK;
  if (scale != NULL) return unread(c, "says that it is kept scaled", err);
  if (!find_start(ckpt_object_field(block, "source"), rank, cut->shape, shape, to) ||
      !find_start(ckpt_object_field(block, "dest"), rank, slice_of(cut, slice), shape, at))
    return unread(c, other, err);
  for (uint32_t i = 0; i < rank; i++) {
    if (shape[i] == cut->shape[i] && shape[i] == slice_of(cut, slice)[i]) continue;
    if (*axis != UINT32_MAX && *axis != i) return unread(c, other, err);
    *axis = i;
  }
  const ckpt_object *first = ckpt_foreign_arg(holders, 0);
  if (first != NULL && first->kind == CKPT_OBJECT_INT && first->integer >= 0) holder[0] = (uint64_t)first->integer;
  if (first == NULL || first->kind != CKPT_OBJECT_INT) return bad(c, "affine_map has a block without locations", err);
  if (holder[0] != slice) return CKPT_OK; /* a copy: the first of its ranks has it */
  const uint32_t of = *axis == UINT32_MAX ? 0 : *axis;
  if (cut->n_strips == MAX_BLOCKS * cut->n_slices)
    return ckpt_fail(err, CKPT_ELIMIT, c->path, c->name, "universal_checkpoint_info: affine_map has too many blocks");
  return rank == 0 ? add_strip(c, slice, 0, 0, 1, err) : add_strip(c, slice, at[of], to[of], shape[of], err);
}

/* The entry of a rank in the map's table, whose keys are numbers. */
static const ckpt_object *rank_of(const ckpt_object *ranks, uint32_t number) {
  for (uint64_t i = 0; ranks != NULL && ranks->kind == CKPT_OBJECT_DICT && i < ranks->n; i++)
    if (ranks->items[2 * i]->kind == CKPT_OBJECT_INT && ranks->items[2 * i]->integer == number)
      return ranks->items[2 * i + 1];
  return NULL;
}

/* Blocks make up the tensor, whose size is no more than that of its slices. */
static ckpt_status check_blocks(const cutter *c, ckpt_error *err) {
  const ckpt_zero_cut *cut = c->cut;
  uint64_t n_held, n = 0;
  if (cut->rank == 0) return CKPT_OK;
  for (uint32_t i = 0; i < cut->n_strips; i++)
    if (!ckpt_add_u64(n, cut->strips[i].n, &n)) return bad(c, "affine_map has blocks that overflow", err);
  if (!sum_axis(cut, cut->axis, &n_held) || n != cut->shape[cut->axis] || n > n_held)
    return ckpt_fail(err, CKPT_EFORMAT, c->path, c->name,
                     "universal_checkpoint_info: affine_map has blocks of %llu on axis %u of it, and it has %llu",
                     (ull)n, cut->axis, (ull)cut->shape[cut->axis]);
  return CKPT_OK;
}

static ckpt_status cut_mapped(cutter *c, const ckpt_object *map, ckpt_error *err) {
  ckpt_zero_cut *cut = c->cut;
  const ckpt_object *shape = ckpt_object_field(map, "logical_shape"), *ranks = ckpt_object_field(map, "ranks");
  uint32_t axis = UINT32_MAX, rank;
  if (shape == NULL || !ckpt_foreign_u64s(shape, cut->shape, CKPT_MAX_RANK, &rank) || rank != cut->rank ||
      ranks == NULL || ranks->n != cut->n_slices)
    return bad(c, "affine_map is of another shape, or of another number of ranks", err);
  for (uint32_t t = 0; t < cut->n_slices; t++) {
    uint64_t slice[CKPT_MAX_RANK];
    const ckpt_object *of = rank_of(ranks, t), *blocks = of == NULL ? NULL : ckpt_object_field(of, "pieces");
    const ckpt_object *said = of == NULL ? NULL : ckpt_object_field(of, "shard_shape");
    if (said == NULL || !ckpt_foreign_u64s(said, slice, CKPT_MAX_RANK, &rank) || rank != cut->rank ||
        memcmp(slice, slice_of(cut, t), rank * sizeof *slice) != 0)
      return bad(c, "affine_map says another shape of a slice", err);
    if (blocks == NULL || blocks->kind != CKPT_OBJECT_LIST || blocks->n > MAX_BLOCKS)
      return bad(c, "affine_map has no list of blocks", err);
    if (!ckpt_zero_rules_spend(c->rules, blocks->n * BLOCK_BYTES)) return bad(c, again, err);
    for (uint64_t i = 0; i < blocks->n; i++) CKPT_TRY(map_block(c, t, blocks->items[i], &axis, err));
  }
  cut->axis = axis == UINT32_MAX ? 0 : axis;
  cut->is_replicated = axis == UINT32_MAX;
  return check_blocks(c, err);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

/* Takes the rows behind those of the vocabulary off, which are padding. */
static ckpt_status cut_vocabulary(cutter *c, ckpt_error *err) {
  ckpt_zero_cut *cut = c->cut;
  const int64_t said = ckpt_zero_rules_vocabulary(c->rules);
  if (said < 0 || cut->rank == 0) return bad(c, "no original_vocab_size of its rows", err);
  const uint64_t n_rows = (uint64_t)said;
  uint32_t n = 0;
  if (cut->shape[0] <= n_rows) return CKPT_OK;
  if (cut->axis != 0) return bad(c, "a vocabulary that is not cut along its rows", err);
  for (uint32_t i = 0; i < cut->n_strips; i++) {
    ckpt_zero_strip strip = cut->strips[i];
    if (strip.to >= n_rows) continue;
    if (strip.n > n_rows - strip.to) strip.n = n_rows - strip.to;
    cut->strips[n++] = strip;
  }
  cut->n_strips = n;
  cut->shape[0] = n_rows;
  return CKPT_OK;
}

static ckpt_status make_cut(cutter *c, ckpt_error *err) {
  ckpt_zero_said said[CKPT_ZERO_N_RULES];
  if (c->rules == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, c->path, c->name,
                     "%u tensor parallel ranks have slices of it, and nothing says how they are put together (no "
                     "patterns in universal_checkpoint_info)",
                     c->cut->n_slices);
  CKPT_TRY(ckpt_zero_rules_find(c->rules, c->name, said, err));
  if (said[CKPT_ZERO_MAPPED].pattern != NULL) {
    CKPT_TRY(cut_mapped(c, said[CKPT_ZERO_MAPPED].value, err));
  } else if (c->cut->n_slices == 1) { /* along whatever axis, it is all of the tensor */
    c->cut->is_averaged = said[CKPT_ZERO_REPLICATED].pattern == NULL && said[CKPT_ZERO_AVERAGED].pattern != NULL;
    CKPT_TRY(take_whole(c, 1, err));
  } else if (said[CKPT_ZERO_UNDESCRIBED].pattern != NULL) {
    const ckpt_object *why = said[CKPT_ZERO_UNDESCRIBED].value;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, c->path, c->name, "its slices cannot be put together: %.300s",
                     why->kind == CKPT_OBJECT_TEXT ? why->text : "the checkpoint does not say how");
  } else if (said[CKPT_ZERO_REPLICATED].pattern != NULL) {
    c->cut->is_replicated = true;
    CKPT_TRY(take_whole(c, 1, err));
  } else if (said[CKPT_ZERO_AVERAGED].pattern != NULL) {
    c->cut->is_averaged = true;
    CKPT_TRY(take_whole(c, c->cut->n_slices, err));
  } else if (said[CKPT_ZERO_TWO_PARTS].pattern != NULL) {
    CKPT_TRY(cut_axis(c, 0, 2, err));
  } else if (said[CKPT_ZERO_PARTS].pattern != NULL) {
    CKPT_TRY(cut_subs(c, &said[CKPT_ZERO_PARTS], &said[CKPT_ZERO_WIDTHS], err));
  } else {
    CKPT_TRY(cut_axis(c, said[CKPT_ZERO_BY_COLUMNS].pattern != NULL ? 1 : 0, 1, err));
  }
  return said[CKPT_ZERO_VOCABULARY].pattern == NULL ? CKPT_OK : cut_vocabulary(c, err);
}

static int compare_strips(const void *a, const void *b) {
  const ckpt_zero_strip *x = a, *y = b;
  if (x->slice != y->slice) return x->slice < y->slice ? -1 : 1;
  return (x->at > y->at) - (x->at < y->at);
}

ckpt_status ckpt_zero_cut_of(ckpt_zero_cut **out, ckpt_zero_rules *rules, const char *path, const char *name,
                             uint32_t rank, const uint64_t *slices, uint32_t n_slices, ckpt_arena *arena,
                             ckpt_error *err) {
  ckpt_zero_cut *cut = *out = ckpt_arena_alloc(arena, sizeof *cut);
  CKPT_TRY_ALLOC(cut, err);
  *cut = (ckpt_zero_cut){.rank = rank, .n_slices = n_slices, .slices = slices};
  if (rank != 0) memcpy(cut->shape, slices, rank * sizeof *slices);
  cutter c = {.cut = cut, .rules = rules, .path = path, .name = name, .arena = arena};
  c.widths = reallocarray(NULL, (size_t)MAX_PARTS * n_slices, sizeof *c.widths);
  c.at = reallocarray(NULL, n_slices, sizeof *c.at);
  ckpt_status status =
      c.widths == NULL || c.at == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : make_cut(&c, err);
  free(c.widths);
  free(c.at);
  CKPT_TRY(status);
  if (cut->n_strips > 1) qsort(cut->strips, cut->n_strips, sizeof *cut->strips, compare_strips);
  cut->has_whole = true;
  for (uint32_t i = 0; i < cut->n_strips; i++) {
    const ckpt_zero_strip *strip = &cut->strips[i];
    const uint64_t n = rank == 0 ? 1 : slice_of(cut, strip->slice)[cut->axis];
    cut->has_whole = cut->has_whole && strip->at == 0 && strip->n == n;
  }
  return CKPT_OK;
}

const ckpt_zero_strip *ckpt_zero_strips_of(const ckpt_zero_cut *cut, uint32_t slice, uint32_t *n) {
  uint32_t low = 0;
  for (uint32_t high = cut->n_strips; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    if (cut->strips[middle].slice < slice)
      low = middle + 1;
    else
      high = middle;
  }
  for (*n = 0; low + *n < cut->n_strips && cut->strips[low + *n].slice == slice;) ++*n;
  return cut->strips + low;
}
