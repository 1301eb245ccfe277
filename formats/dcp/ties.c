/* ties.c - names that share their places: metadata may give several names the same chunks of the same files, as
 * layout.c does for ties. They are one tensor. A table of tensors by the place of their first extent; whoever
 * meets in it is compared whole. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/error.h"

enum { MAX_PROBES = 32 }; /* forged places may all meet in one: what is not entered then has no twin */

static size_t slot_of(const ckpt_dcp_twins *twins, const ckpt_extent *first) {
  uint64_t hash = (first->offset + first->file * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xBF58476D1CE4E5B9);
  return (size_t)(hash >> 24) & (twins->capacity - 1);
}

static bool is_same_extent(const ckpt_tensor *tensor, const ckpt_extent *a, const ckpt_extent *b) {
  if (a->file != b->file || a->offset != b->offset || a->n_stored != b->n_stored || a->skip != b->skip ||
      a->signs != b->signs || memcmp(a->chain, b->chain, sizeof a->chain) != 0)
    return false;
  if (tensor->details->extent_form == CKPT_EXTENT_FLAT) return a->start == b->start && a->count == b->count;
  size_t n = (tensor->details->extent_form == CKPT_EXTENT_STRIDED ? 3 : 2) * (size_t)tensor->rank;
  return memcmp(a->box, b->box, n * sizeof *a->box) == 0;
}

static bool is_same(const ckpt_tensor *a, const ckpt_tensor *b) {
  if (a->dtype != b->dtype || a->details->extent_form != b->details->extent_form || a->n_extents != b->n_extents ||
      !ckpt_tensor_same_shape(a, b))
    return false;
  for (uint32_t i = 0; i < a->n_extents; i++)
    if (!is_same_extent(a, &a->extents[i], &b->extents[i])) return false;
  return true;
}

static bool has_place(const ckpt_tensor *tensor) {
  return tensor->n_extents != 0 && tensor->extents[0].file != CKPT_FILE_LITERAL;
}

int64_t ckpt_dcp_twins_find(const ckpt_dcp_twins *twins, const ckpt_index *index, const ckpt_tensor *tensor) {
  if (!has_place(tensor) || twins->capacity == 0) return -1;
  size_t at = slot_of(twins, &tensor->extents[0]);
  for (int i = 0; i < MAX_PROBES && twins->slots[at] != 0; i++, at = (at + 1) & (twins->capacity - 1))
    if (is_same(&index->tensors[twins->slots[at] - 1], tensor)) return twins->slots[at] - 1;
  return -1;
}

static void enter(ckpt_dcp_twins *twins, const ckpt_index *index, uint32_t number) {
  size_t at = slot_of(twins, &index->tensors[number].extents[0]);
  for (int i = 0; i < MAX_PROBES; i++, at = (at + 1) & (twins->capacity - 1)) {
    if (twins->slots[at] != 0) continue;
    twins->slots[at] = number + 1;
    return;
  }
}

ckpt_status ckpt_dcp_twins_add(ckpt_dcp_twins *twins, const ckpt_index *index, uint32_t number, ckpt_error *err) {
  if (!has_place(&index->tensors[number])) return CKPT_OK;
  if (2 * (twins->n + 1) > twins->capacity) {
    ckpt_dcp_twins grown = {.n = twins->n, .capacity = twins->capacity == 0 ? 64 : 2 * twins->capacity};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    CKPT_TRY_ALLOC(grown.slots, err);
    for (size_t i = 0; i < twins->capacity; i++)
      if (twins->slots[i] != 0) enter(&grown, index, twins->slots[i] - 1);
    free(twins->slots);
    *twins = grown;
  }
  twins->n++;
  enter(twins, index, number);
  return CKPT_OK;
}

void ckpt_dcp_twins_free(ckpt_dcp_twins *twins) {
  free(twins->slots);
  *twins = (ckpt_dcp_twins){0};
}
