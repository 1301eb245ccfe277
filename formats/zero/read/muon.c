/* muon.c - where Muon's momentum is in the files of stages 1 and 2.
 *
 * Muon needs whole matrices: momentum_buffer of a rank has all of each parameter that its partition has a part of, one
 * behind the other and without padding; a parameter on two ranks is there twice. What an optimizer on the CPU keeps is
 * of the partition, as other states are, and so is all of stage 3 (runtime/zero/stage_1_and_2.py, 0.19.8). */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

bool ckpt_zero_is_muon(const ckpt_object *group, const char *key) {
  const ckpt_object *said = ckpt_object_get(group, "use_muon");
  return strcmp(key, CKPT_ZERO_MUON) == 0 && said != NULL && said->kind == CKPT_OBJECT_BOOL && said->boolean;
}

/* What the pieces of a flat say of it. */
typedef struct measure {
  uint64_t n_whole; /* elements of the parameters that it has parts of */
  uint64_t end;     /* behind its last piece */
  uint64_t skipped; /* of the parameter that it begins with, what other ranks have */
} measure;

static void measure_flats(const ckpt_zero *zero, measure *of) {
  for (uint32_t i = 0; i < zero->n_params; i++) {
    const ckpt_zero_param *param = &zero->params[i];
    uint64_t start = 0;
    for (uint32_t k = 0; k < param->n_pieces; k++) {
      const ckpt_zero_piece *piece = &zero->pieces[param->first_piece + k];
      measure *m = &of[piece->flat];
      if (!ckpt_add_u64(m->n_whole, param->n_elements, &m->n_whole)) m->n_whole = UINT64_MAX;
      if (piece->at == 0) m->skipped = start;
      if (piece->at + piece->count > m->end) m->end = piece->at + piece->count;
      start += piece->count;
    }
  }
}

/* Whether all ranks of a shard have whole parameters of a group; else all have their partitions. */
static ckpt_status place_group(ckpt_zero *zero, uint32_t first, uint32_t group, const measure *of, ckpt_error *err) {
  enum { MAX_PADDING = 256 }; /* elements of one rank */
  bool are_whole = true, are_parts = true;
  uint32_t bad = 0;
  for (uint32_t r = 0; r < zero->world; r++) {
    const uint32_t i = first + r * zero->n_groups + group;
    const ckpt_zero_flat *flat = &zero->flats[i];
    if (flat->n_momentum == 0) continue;
    const bool is_whole = flat->n_momentum == of[i].n_whole && of[i].end == flat->n_taken;
    const bool is_part = flat->n_momentum - flat->n <= MAX_PADDING;
    are_whole = are_whole && is_whole;
    are_parts = are_parts && is_part;
    if (!are_whole && !are_parts && bad == 0) bad = i;
  }
  if (!are_whole && !are_parts)
    return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL,
                     CKPT_ZERO_MUON " of group %u has %llu element%s on a rank, and its parameters have %llu", group,
                     (ull)zero->flats[bad].n_momentum, ckpt_plural(zero->flats[bad].n_momentum), (ull)of[bad].n_whole);
  for (uint32_t r = 0; r < zero->world && are_whole; r++) {
    const uint32_t i = first + r * zero->n_groups + group;
    zero->flats[i].n_skipped = zero->flats[i].n_momentum == 0 ? 0 : of[i].skipped;
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_place_momentum(ckpt_zero *zero, ckpt_error *err) {
  uint32_t i = 0;
  while (i < zero->n_flats && zero->flats[i].n_momentum == 0) i++;
  if (i == zero->n_flats) return CKPT_OK;
  measure *of = calloc(zero->n_flats, sizeof *of);
  CKPT_TRY_ALLOC(of, err);
  measure_flats(zero, of);
  ckpt_status status = CKPT_OK;
  for (uint32_t s = 0; s < zero->n_shards; s++)
    for (uint32_t g = 0; g < zero->n_groups && status == CKPT_OK; g++)
      status = place_group(zero, zero->shards[s].first_flat, g, of, err);
  free(of);
  return status;
}
