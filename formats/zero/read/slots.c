/* slots.c - what one rank's optimizer file of a ZeRO checkpoint keeps: its states' keys are slots, and what it has
 * of each group in them is a flat.
 *
 * What is in no slot, and no step, is refused: its state would be lost. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/rank.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/extents/decode.h"

typedef unsigned long long ull;

#define MORE_THAN_OTHERS "%.200s of group %u, which others with its states have not: its state would be lost"

/* ---- the states of a file ---------------------------------------------------------------------------------------- */

/* The state of a group: entry number k of a LIST, or of a DICT by numbers that go up, of which some may be missing.
 * NULL: none. */
static const ckpt_object *state_of(const ckpt_zero_rank *r, uint64_t k) {
  const ckpt_object *states = r->states, *state = NULL;
  if (states != NULL && states->kind == CKPT_OBJECT_LIST) state = k < states->n ? states->items[k] : NULL;
  uint64_t low = 0, high = states == NULL || states->kind != CKPT_OBJECT_DICT ? 0 : states->n;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    int64_t number = ckpt_zero_number(states->items[2 * middle]);
    if (number == (int64_t)k) state = states->items[2 * middle + 1];
    if (number >= (int64_t)k)
      high = middle;
    else
      low = middle + 1;
  }
  return state == NULL || state->kind != CKPT_OBJECT_DICT || state->n > 64 ? NULL : state;
}

const ckpt_object *ckpt_zero_step_in(const ckpt_zero_rank *r, uint64_t group) {
  const ckpt_object *state = state_of(r, group), *step = state == NULL ? NULL : ckpt_object_field(state, "step");
  const ckpt_object *of = ckpt_foreign_arg(r->groups, group);
  return step != NULL || of == NULL || of->kind != CKPT_OBJECT_DICT ? step : ckpt_object_field(of, "step");
}

/* ---- slots ------------------------------------------------------------------------------------------------------- */

/* The state that says most: an empty group has none, or one without a step. NULL: there are none. */
static const ckpt_object *first_state(const ckpt_zero_rank *r) {
  const ckpt_object *first = NULL;
  for (uint64_t g = 0; g < r->flats->n; g++) {
    const ckpt_object *state = state_of(r, g);
    if (state != NULL && ckpt_object_field(state, "step") != NULL) return state;
    if (first == NULL) first = state;
  }
  return first;
}

static bool is_slot(const ckpt_zero *zero, const ckpt_object *key) {
  for (uint32_t slot = 1; slot < zero->n_slots; slot++)
    if (strcmp(zero->slots[slot].key, key->text) == 0) return strlen(key->text) == key->n;
  return false;
}

static ckpt_status add_slots(ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_object *state, ckpt_error *err) {
  for (uint64_t i = 0; state != NULL && i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i];
    const ckpt_tensor *tensor = ckpt_zero_tensor(&r->file, state->items[2 * i + 1]);
    if (tensor == NULL || key->kind != CKPT_OBJECT_TEXT || is_slot(zero, key)) continue;
    if (zero->n_slots == CKPT_ZERO_SLOTS || key->n >= CKPT_ZERO_KEY_BYTES || strlen(key->text) != key->n)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, r->file.path, NULL, "its optimizer keeps more than %d states",
                       CKPT_ZERO_SLOTS - 1);
    ckpt_zero_slot *slot = &zero->slots[zero->n_slots++];
    *slot = (ckpt_zero_slot){.is_scalar = tensor->rank == 0, .dtype = tensor->dtype};
    memcpy(slot->key, key->text, (size_t)key->n);
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_find_slots(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err) {
  zero->slots[0] = (ckpt_zero_slot){.key = "master"};
  zero->n_slots = 1;
  const ckpt_object *first = first_state(r);
  if (first == NULL && r->states != NULL && r->states->n != 0) return ckpt_zero_bad_rank(r, "states of no group", err);
  CKPT_TRY(add_slots(zero, r, first, err));
  for (uint64_t g = 0; g < r->flats->n; g++) CKPT_TRY(add_slots(zero, r, state_of(r, g), err));
  return CKPT_OK;
}

/* ---- kinds ------------------------------------------------------------------------------------------------------- */

uint32_t ckpt_zero_shared_slots(const ckpt_zero *zero) {
  uint32_t bits = 1;
  for (uint32_t slot = 1; slot < zero->n_slots; slot++)
    if (zero->slots[slot].is_scalar) bits |= 1u << slot;
  return bits;
}

uint32_t ckpt_zero_kind_of(ckpt_zero_kinds *kinds, uint32_t bits, uint32_t shared) {
  const uint32_t own = bits & ~shared;
  for (uint32_t i = 0; i < kinds->n; i++) {
    const uint32_t others = kinds->bits[i] & ~shared;
    if ((own & others) != 0 || own == 0 || others == 0) return kinds->bits[i];
  }
  kinds->bits[kinds->n++] = bits; /* none shares a bit with another: there are no more than bits */
  return bits;
}

/* The slots that a state fills, which are those of its kind. */
static ckpt_status find_kind(ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_object *state, uint32_t group,
                             uint32_t *bits, ckpt_error *err) {
  *bits = 1;
  for (uint32_t slot = 1; slot < zero->n_slots && state != NULL; slot++)
    if (ckpt_object_field(state, zero->slots[slot].key) != NULL) *bits |= 1u << slot;
  const uint32_t shared = ckpt_zero_shared_slots(zero);
  uint32_t wanted = ckpt_zero_kind_of(&zero->kinds, *bits, shared);
  if ((*bits & ~shared) == 0) wanted |= ((1u << zero->n_slots) - 1) & ~shared; /* others have them */
  for (uint32_t slot = 1; slot < zero->n_slots; slot++) {
    if (((wanted ^ *bits) >> slot & 1) == 0) continue;
    const char *key = zero->slots[slot].key;
    if (wanted >> slot & 1)
      return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL, "no %s of group %u: its state would be lost", key, group);
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->file.path, NULL, MORE_THAN_OTHERS, key, group);
  }
  return CKPT_OK;
}

/* Refuses a state that is carried nowhere: a tensor that is no slot, or anything else but a step that is a number. */
static ckpt_status check_state(const ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_object *state, uint32_t group,
                               ckpt_error *err) {
  for (uint64_t i = 0; state != NULL && i < state->n; i++) {
    const ckpt_object *key = state->items[2 * i], *value = state->items[2 * i + 1];
    const bool is_tensor = value->kind == CKPT_OBJECT_TENSOR, is_text = key->kind == CKPT_OBJECT_TEXT;
    const bool is_number = value->kind == CKPT_OBJECT_INT || value->kind == CKPT_OBJECT_FLOAT;
    if (value->kind == CKPT_OBJECT_NONE || (is_text && is_tensor && is_slot(zero, key)) ||
        (is_text && is_number && strcmp(key->text, "step") == 0))
      continue;
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->file.path, NULL,
                     is_tensor ? MORE_THAN_OTHERS : "%.200s of group %u is no tensor: its state would be lost",
                     is_text ? key->text : "a key", group);
  }
  return CKPT_OK;
}

/* What a rank keeps of one group in one slot. States may have padding that masters have not. */
static ckpt_status fill_slot(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_zero_flat *flat, uint32_t group,
                             uint32_t slot, const ckpt_object *state, ckpt_error *err) {
  const ckpt_zero_slot *of = &zero->slots[slot];
  const ckpt_object *value = slot == 0 ? r->flats->items[group] : ckpt_object_field(state, of->key);
  char what[CKPT_ZERO_KEY_BYTES + 40];
  uint64_t n;
  uint8_t dtype;
  snprintf(what, sizeof what, "%s of group %u", slot == 0 ? "the partition" : of->key, group);
  CKPT_TRY(ckpt_zero_flat_of(&r->file, value, what, &flat->extents[slot], &n, &dtype, err));
  if (slot == 0) flat->n = n;
  if (of->is_scalar ? n != 1 : n < flat->n)
    return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL, "%s has %llu element%s, %s", what, (ull)n, ckpt_plural(n),
                     of->is_scalar ? "and not one" : "fewer than its masters");
  if (slot != 0 && zero->stage < 3 && ckpt_zero_is_muon(ckpt_foreign_arg(zero->groups, group), of->key)) {
    flat->muon = slot;
    flat->n_momentum = n;
  }
  if (of->dtype == CKPT_DTYPE_NONE) zero->slots[slot].dtype = dtype;
  if (zero->slots[slot].dtype == dtype) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, r->file.path, NULL, "%s is %s, elsewhere it is %s", what,
                   ckpt_dtype_name((ckpt_dtype)dtype), ckpt_dtype_name((ckpt_dtype)of->dtype));
}

ckpt_status ckpt_zero_add_flats(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err) {
  if (r->states != NULL && r->states->n > zero->n_groups) return ckpt_zero_bad_rank(r, "states of no group", err);
  for (uint32_t g = 0; g < zero->n_groups; g++) {
    const ckpt_object *state = state_of(r, g);
    CKPT_TRY(ckpt_grow(&zero->flats, zero->n_flats, &zero->flat_capacity, sizeof *zero->flats, err));
    ckpt_zero_flat *flat = &zero->flats[zero->n_flats++];
    *flat = (ckpt_zero_flat){0};
    CKPT_TRY(fill_slot(zero, r, flat, g, 0, NULL, err));
    if (flat->n != 0) CKPT_TRY(find_kind(zero, r, state, g, &flat->slots, err));
    for (uint32_t slot = 1; slot < zero->n_slots; slot++)
      if (flat->slots >> slot & 1) CKPT_TRY(fill_slot(zero, r, flat, g, slot, state, err));
    if (flat->n != 0) CKPT_TRY(check_state(zero, r, state, g, err));
    const ckpt_status status =
        ckpt_zero_take_step(zero, g, state == NULL ? NULL : ckpt_object_field(state, "step"), err);
    CKPT_TRY(ckpt_fail_at(status, err, r->file.path, NULL));
  }
  return CKPT_OK;
}
