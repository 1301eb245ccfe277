/* slice_extents.c - a tensor from the slices that tensor-parallel ranks have of it: its extents.
 *
 * What a rank has of a slice is a run of its elements, which begins and ends anywhere. Of a tensor that is cut along
 * its first axis a strip's part of a run is a run of the tensor; otherwise it is boxes, at most two for each axis,
 * which have the slice's strides where the slice has other strips beside. */
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/extents/place.h"
#include "libckpt/plan/derive.h"

/* ---- which slices are of one tensor ------------------------------------------------------------------------------ */

/* The slices of a name, which is in param_shapes of n ranks, that those of a pipeline's stage hold. */
static ckpt_status cut_param(ckpt_zero *zero, ckpt_zero_param *first, uint32_t n, ckpt_error *err) {
  const uint32_t n_slices = zero->n_tensor, t_first = first->shard % n_slices;
  if (t_first != 0 && ckpt_zero_find(zero, first->shard - t_first, first->name) != NULL) return CKPT_OK; /* is done */
  if (t_first != 0)
    return ckpt_fail(err, CKPT_EFORMAT, zero->shards[first->shard].file.path, first->name,
                     "tensor parallel rank 0 has no slice of it");
  uint64_t *shapes = ckpt_arena_array(&zero->index->arena, (size_t)n_slices * first->rank + 1, sizeof *shapes);
  CKPT_TRY_ALLOC(shapes, err);
  for (uint32_t t = 0; t < n_slices; t++) {
    const ckpt_zero_param *slice = ckpt_zero_find(zero, first->shard + t, first->name);
    if (slice == NULL)
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[first->shard + t].file.path, first->name,
                       "not in param_shapes, and in those of %u other rank%s", n, ckpt_plural(n));
    if (slice->rank != first->rank || (slice->group == UINT32_MAX) != (first->group == UINT32_MAX))
      return ckpt_fail(err, CKPT_EFORMAT, zero->shards[first->shard + t].file.path, first->name,
                       "other axes than on tensor parallel rank 0, or frozen on one of them: no slices of one tensor");
    memcpy(shapes + t * first->rank, slice->shape, first->rank * sizeof *shapes);
  }
  ckpt_zero_cut *cut;
  CKPT_TRY(ckpt_zero_cut_of(&cut, zero->rules, zero->shards[0].file.path, first->name, first->rank, shapes, n_slices,
                            &zero->index->arena, err));
  bool is_all =
      n_slices == 1 && !cut->is_averaged && memcmp(cut->shape, first->shape, first->rank * sizeof *cut->shape) == 0;
  for (uint32_t i = 0; i < cut->n_strips; i++) is_all = is_all && cut->strips[i].at == cut->strips[i].to;
  if (!is_all) first->cut = cut;
  return CKPT_OK;
}

/* The ranks that have the parameters of the first, from it on: of a universal checkpoint of a pipeline those of its
 * first stage, else all. */
static uint32_t count_like_first(const ckpt_zero *zero) {
  const ckpt_zero_shard *first = &zero->shards[0];
  for (uint32_t s = 1; s < zero->n_shards; s++) {
    const ckpt_zero_shard *of = &zero->shards[s];
    for (uint32_t i = 0; i < first->n_params; i++)
      if (of->n_params != first->n_params ||
          strcmp(zero->params[of->first_param + i].name, zero->params[first->first_param + i].name) != 0)
        return zero->n_shards % s == 0 && !ckpt_zero_has_module(&first->file) ? s : zero->n_shards;
  }
  return zero->n_shards;
}

bool ckpt_zero_goes_by_rules(const ckpt_zero *zero) {
  if (zero->n_tensor > 1) return true;
  const bool is_stage3 = zero->is_universal ? strncmp(zero->models.like, "mp_rank_", 8) != 0 : zero->stage == 3;
  return zero->rules != NULL && !is_stage3;
}

ckpt_status ckpt_zero_cut_params(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_file *file = &zero->shards[0].file;
  const ckpt_object *dims = ckpt_object_get(file->graph.root, "checkpoint_parallel_dimensions");
  const int64_t n_tensor = ckpt_zero_number(ckpt_object_get(dims, "tp_degree"));
  if (n_tensor > 0 && n_tensor != zero->n_shards && zero->n_layers == 0 && !zero->is_universal)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                     "tp_degree is %lld in checkpoint_parallel_dimensions, and files of %u model parallel rank%s are "
                     "there: slices would be left out",
                     (long long)n_tensor, zero->n_shards, ckpt_plural(zero->n_shards));
  zero->n_tensor = zero->n_layers != 0  ? zero->n_layer_ranks
                   : zero->is_universal ? count_like_first(zero)
                                        : zero->n_shards;
  if (n_tensor > 0 && n_tensor < zero->n_tensor && zero->n_shards % n_tensor == 0) zero->n_tensor = (uint32_t)n_tensor;
  CKPT_TRY(ckpt_zero_rules_new(&zero->rules, ckpt_object_get(file->graph.root, CKPT_ZERO_RULES), file->path,
                               ckpt_source_size(zero->index->source, file->number), err));
  if (zero->n_layer_ranks > 1 && zero->shards[0].n_shapes == 0 && ckpt_zero_rules_mention(zero->rules, "tied_modules"))
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, file->path, NULL,
        "universal_checkpoint_info has patterns of tied_modules, and without ZeRO nothing says which layers "
        "those are: their slices cannot be put together");
  for (uint32_t i = 0, n; i < zero->n_params; i += n) {
    const char *name = zero->params[zero->by_name[i]].name;
    for (n = 1; i + n < zero->n_params && strcmp(zero->params[zero->by_name[i + n]].name, name) == 0; n++)
      zero->params[zero->by_name[i + n]].is_other = true;
    for (uint32_t k = 0; k < n && ckpt_zero_goes_by_rules(zero); k++)
      CKPT_TRY(cut_param(zero, &zero->params[zero->by_name[i + k]], n, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_note_unused(const ckpt_zero *zero, const ckpt_object *root, ckpt_error *err) {
  ckpt_zero_said said[CKPT_ZERO_N_RULES];
  const ckpt_object *module = ckpt_object_get(root, "module");
  const bool has_names = module != NULL && module->kind == CKPT_OBJECT_DICT;
  uint32_t n;
  if (zero->n_tensor == 1 || zero->rules == NULL || ckpt_zero_rules_unused(zero->rules, &n) == NULL) return CKPT_OK;
  if (zero->is_universal && !has_names) return CKPT_OK; /* of a pipeline: its frozen parameters are not in it */
  for (uint64_t i = 0; has_names && i < module->n;
       i++) /* those of tied parameters, too; what fails says nothing here */
    if (module->items[2 * i]->kind == CKPT_OBJECT_TEXT)
      (void)ckpt_zero_rules_find(zero->rules, module->items[2 * i]->text, said, NULL);
  const char *first = ckpt_zero_rules_unused(zero->rules, &n);
  if (first == NULL) return CKPT_OK;
  return ckpt_index_note(zero->index, true, err,
                         "universal_checkpoint_info: %u pattern%s of no parameter, the first '%.200s': slices may be "
                         "put together in another way than was meant",
                         n, n == 1 ? " is" : "s are", first);
}

/* ---- extents ----------------------------------------------------------------------------------------------------- */

/* Elements of one place along the axis: a run of them. */
static uint64_t inner_of(const ckpt_zero_cut *cut) {
  uint64_t n = 1;
  for (uint32_t i = cut->axis + 1; i < cut->rank; i++) n *= cut->shape[i]; /* slices in files have as many */
  return n;
}

static bool is_outermost(const ckpt_zero_cut *cut) {
  for (uint32_t i = 0; i < cut->axis; i++)
    if (cut->shape[i] != 1) return false;
  return true;
}

ckpt_status ckpt_zero_join_begin(ckpt_zero_join *join, ckpt_zero *zero, const ckpt_zero_cut *cut, ckpt_dtype dtype,
                                 bool has_views, ckpt_error *err) {
  *join = (ckpt_zero_join){.zero = zero, .cut = cut, .dtype = dtype, .as = dtype, .form = CKPT_EXTENT_FLAT};
  if (cut != NULL && (has_views || !is_outermost(cut)))
    join->form = has_views || !cut->has_whole ? CKPT_EXTENT_STRIDED : CKPT_EXTENT_BOX;
  zero->n_extents = 0;
  if (cut == NULL || !cut->is_averaged) return CKPT_OK;
  CKPT_TRY_ALLOC(join->n_of = ckpt_arena_array(&zero->index->arena, cut->n_slices, sizeof *join->n_of), err);
  return CKPT_OK;
}

static ckpt_status add_extent(ckpt_zero_join *join, const ckpt_extent *extent, ckpt_error *err) {
  ckpt_zero *zero = join->zero;
  CKPT_TRY(ckpt_grow(&zero->extents, zero->n_extents, &zero->extent_capacity, sizeof *zero->extents, err));
  zero->extents[zero->n_extents++] = *extent;
  return CKPT_OK;
}

/* A run of a slice as runs of the tensor. */
static ckpt_status add_run(ckpt_zero_join *join, const ckpt_zero_strip *strip, uint64_t inner,
                           const ckpt_zero_held *held, ckpt_error *err) {
  const uint64_t begin = strip->at * inner, end = begin + strip->n * inner;
  const uint64_t low = held->start > begin ? held->start : begin;
  const uint64_t high = held->start + held->count < end ? held->start + held->count : end;
  if (low >= high) return CKPT_OK;
  const ckpt_extent extent = ckpt_zero_part(held->extent, join->dtype, held->at + (low - held->start), high - low,
                                            strip->to * inner + (low - begin));
  return add_extent(join, &extent, err);
}

/* The boxes of a run of a slice, and the strips that they are parted into. */
typedef struct boxer {
  ckpt_zero_join *join;
  const ckpt_zero_held *held;
  const ckpt_zero_strip *strips;
  uint32_t n_strips;
  uint64_t strides[CKPT_MAX_RANK]; /* of the slice where it is */
} boxer;

static ckpt_status add_box(const boxer *b, const ckpt_zero_strip *strip, const uint64_t *from, const uint64_t *count,
                           ckpt_error *err) {
  const ckpt_zero_cut *cut = b->join->cut;
  const uint32_t rank = cut->rank, axis = cut->axis;
  const uint64_t low = from[axis] > strip->at ? from[axis] : strip->at, end = strip->at + strip->n;
  const uint64_t high = from[axis] + count[axis] < end ? from[axis] + count[axis] : end;
  if (low >= high) return CKPT_OK;
  uint64_t *box = ckpt_arena_array(&b->join->zero->index->arena, 3 * (size_t)rank, sizeof *box), place = 0, span = 1;
  CKPT_TRY_ALLOC(box, err);
  for (uint32_t i = 0; i < rank; i++) {
    const uint64_t first = i == axis ? low : from[i];
    box[i] = i == axis ? strip->to + (low - strip->at) : from[i];
    box[rank + i] = i == axis ? high - low : count[i];
    box[2 * rank + i] = b->strides[i];
    place += first * b->strides[i];
    span += (box[rank + i] - 1) * b->strides[i];
  }
  ckpt_extent extent = ckpt_zero_part(b->held->extent, b->join->dtype, b->held->at + (place - b->held->start), span, 0);
  extent.box = box;
  return add_extent(b->join, &extent, err);
}

static ckpt_status visit_box(void *arg, const uint64_t *from, const uint64_t *count, ckpt_error *err) {
  const boxer *b = arg;
  for (uint32_t i = 0; i < b->n_strips; i++) CKPT_TRY(add_box(b, &b->strips[i], from, count, err));
  return CKPT_OK;
}

static ckpt_status add_held(ckpt_zero_join *join, uint32_t slice, const ckpt_zero_held *held, ckpt_error *err) {
  const ckpt_zero_cut *cut = join->cut;
  uint32_t n = 0;
  if (held->count == 0) return CKPT_OK;
  if (cut == NULL) return add_run(join, &(ckpt_zero_strip){.n = held->start + held->count}, 1, held, err);
  const ckpt_zero_strip *strips = ckpt_zero_strips_of(cut, slice, &n);
  if (join->form == CKPT_EXTENT_FLAT) {
    const uint64_t inner = inner_of(cut);
    for (uint32_t i = 0; i < n; i++) CKPT_TRY(add_run(join, &strips[i], inner, held, err));
    return CKPT_OK;
  }
  const uint64_t *shape = cut->slices + (size_t)slice * cut->rank;
  boxer b = {join, held, strips, n, {0}};
  ckpt_row_major(cut->rank, shape, b.strides);
  if (held->strides != NULL) memcpy(b.strides, held->strides, cut->rank * sizeof *b.strides);
  return ckpt_split_range(cut->rank, shape, held->start, held->count, visit_box, &b, err);
}

ckpt_status ckpt_zero_join_add(ckpt_zero_join *join, uint32_t slice, const ckpt_zero_held *held, ckpt_error *err) {
  const uint32_t n_before = join->zero->n_extents;
  CKPT_TRY(add_held(join, slice, held, err));
  if (join->n_of != NULL) join->n_of[slice] += join->zero->n_extents - n_before;
  return CKPT_OK;
}

static bool may_be_mean(ckpt_dtype dtype) { return dtype == CKPT_F32 || dtype == CKPT_BF16 || dtype == CKPT_F16; }

/* Makes the tensor the mean of its slices, or (n_of NULL) one slice in another dtype. */
static ckpt_status average(const ckpt_zero_join *join, uint32_t number, ckpt_error *err) {
  const uint32_t n_slices = join->n_of == NULL ? 1 : join->cut->n_slices;
  if (!may_be_mean(join->dtype) || !may_be_mean(join->as))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, join->zero->shards[0].file.path, join->zero->index->tensors[number].name,
                     "the mean of %u slices of %s (parameter_to_average_patterns): means are of f32, bf16 and f16",
                     n_slices, ckpt_dtype_name(join->dtype));
  return ckpt_derive_mean(join->zero->index, number, join->dtype,
                          join->n_of == NULL ? &join->zero->n_extents : join->n_of, n_slices, err);
}

ckpt_status ckpt_zero_join_end(ckpt_zero_join *join, const char *name, ckpt_role role, uint32_t rank,
                               const uint64_t *shape, uint32_t *number, ckpt_error *err) {
  ckpt_zero *zero = join->zero;
  uint32_t added;
  CKPT_TRY(ckpt_index_add(zero->index, name, strlen(name), join->as, rank, join->cut == NULL ? shape : join->cut->shape,
                          role, zero->extents, zero->n_extents, &added, err));
  zero->index->tensors[added].details->extent_form = join->form;
  if (join->n_of != NULL || join->as != join->dtype) CKPT_TRY(average(join, added, err));
  if (number != NULL) *number = added;
  return CKPT_OK;
}
