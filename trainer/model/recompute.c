/* recompute.c - see recompute.h. */
#include "trainer/model/recompute.h"

#include <string.h>

#include "libckpt/base/error.h"

static bool is_own(const ckpt_recompute *r, uint32_t value) { return value != CKPT_NO_VALUE && r->values[value]; }

/* Activations that a layer makes and no other entry reads than its own. */
static void find_values(ckpt_recompute *r, const ckpt_tape *tape, ckpt_recompute_kind kind) {
  for (uint32_t i = 0; i < tape->n_values; i++) {
    const ckpt_tape_value *value = &tape->values[i];
    const bool is_gathered =
        value->shape.kinds[0] == CKPT_AXIS_CONSTANT; /* parameters stay until they are read again */
    r->values[i] = value->residency == CKPT_RESIDES_ACTIVATION && !is_gathered && value->maker < tape->n_entries &&
                   tape->entries[value->maker].layer >= 0;
    if (r->values[i] && kind == CKPT_RECOMPUTE_SELECTIVE) {
      const ckpt_tape_op *op = ckpt_tape_ops[tape->entries[value->maker].op];
      r->values[i] = !op->is_costly && !op->is_collective;
    }
  }
  for (uint32_t i = 0; i < tape->n_entries; i++)
    for (uint32_t k = 0; k < tape->entries[i].n_in; k++) {
      const uint32_t in = tape->entries[i].in[k];
      if (is_own(r, in) && tape->entries[tape->values[in].maker].layer != tape->entries[i].layer) r->values[in] = false;
    }
}

/* What an entry's backward reads. */
static void need_of_backward(const ckpt_recompute *r, const ckpt_tape_entry *entry, bool *needed) {
  const ckpt_tape_keeps keeps = ckpt_tape_ops[entry->op]->keeps(entry);
  for (uint32_t k = 0; k < entry->n_in; k++)
    if ((keeps.in >> k & 1) != 0 && is_own(r, entry->in[k])) needed[entry->in[k]] = true;
  for (uint32_t k = 0; k < entry->n_out; k++)
    if ((keeps.out >> k & 1) != 0 && is_own(r, entry->out[k])) needed[entry->out[k]] = true;
}

ckpt_status ckpt_recompute_find(ckpt_recompute *out, ckpt_arena *arena, const ckpt_tape *tape, ckpt_recompute_kind kind,
                                ckpt_error *err) {
  out->entries = ckpt_arena_array(arena, (size_t)tape->n_entries + 1, sizeof(bool));
  out->values = ckpt_arena_array(arena, (size_t)tape->n_values + 1, sizeof(bool));
  bool *needed = ckpt_arena_array(arena, (size_t)tape->n_values + 1, sizeof(bool));
  CKPT_TRY_ALLOC(out->entries, err);
  CKPT_TRY_ALLOC(out->values, err);
  CKPT_TRY_ALLOC(needed, err);
  find_values(out, tape, kind);
  for (uint32_t i = 0; i < tape->n_entries; i++) need_of_backward(out, &tape->entries[i], needed);
  /* from the last: what is run again needs its own inputs */
  for (uint32_t i = tape->n_entries; i-- > 0;) {
    const ckpt_tape_entry *entry = &tape->entries[i];
    for (uint32_t k = 0; k < entry->n_out; k++) out->entries[i] = out->entries[i] || needed[entry->out[k]];
    for (uint32_t k = 0; k < entry->n_in && out->entries[i]; k++)
      if (is_own(out, entry->in[k])) needed[entry->in[k]] = true;
  }
  return CKPT_OK;
}
