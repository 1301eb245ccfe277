/* memo.c - an array that grows with its entries, and a map for numbers beyond it. */
#include "libckpt/codec/pickle/memo.h"

#include <stdlib.h>

enum { FIRST_DENSE = 256, FIRST_SLOTS = 64 };

struct ckpt_pickle_memo_slot {
  uint64_t number;
  ckpt_object *object; /* NULL: free */
};

static struct ckpt_pickle_memo_slot *slot_of(const ckpt_pickle_memo *memo, uint64_t number) {
  uint64_t at = number * UINT64_C(0x9E3779B97F4A7C15) >> 20;
  while (memo->sparse[at &= memo->n_slots - 1].object != NULL && memo->sparse[at].number != number) at++;
  return &memo->sparse[at];
}

static ckpt_status put_sparse(ckpt_pickle_memo *memo, uint64_t number, ckpt_object *object) {
  if (2 * (memo->n_sparse + 1) > memo->n_slots) {
    ckpt_pickle_memo grown = {.n_slots = memo->n_slots == 0 ? FIRST_SLOTS : 2 * memo->n_slots};
    grown.sparse = calloc(grown.n_slots, sizeof *grown.sparse);
    if (grown.sparse == NULL) return CKPT_ENOMEM;
    for (uint64_t i = 0; i < memo->n_slots; i++)
      if (memo->sparse[i].object != NULL) *slot_of(&grown, memo->sparse[i].number) = memo->sparse[i];
    free(memo->sparse);
    memo->sparse = grown.sparse;
    memo->n_slots = grown.n_slots;
  }
  struct ckpt_pickle_memo_slot *slot = slot_of(memo, number);
  if (slot->object == NULL) {
    if (memo->n_sparse == CKPT_PICKLE_MAX_SPARSE) return CKPT_ELIMIT;
    memo->n_sparse++;
    memo->n++;
  }
  *slot = (struct ckpt_pickle_memo_slot){number, object};
  return CKPT_OK;
}

/* What the array has to grow to for a number beyond it. */
static uint64_t dense_room(const ckpt_pickle_memo *memo, uint64_t number) {
  uint64_t wanted = memo->dense_room == 0 ? FIRST_DENSE : 2 * memo->dense_room;
  while (wanted <= number) wanted *= 2;
  return wanted;
}

uint64_t ckpt_pickle_memo_bytes(const ckpt_pickle_memo *memo) {
  return memo->dense_room * sizeof *memo->dense + memo->n_slots * sizeof *memo->sparse;
}

uint64_t ckpt_pickle_memo_growth(const ckpt_pickle_memo *memo, uint64_t number, uint64_t n_read) {
  if (number < memo->dense_room || number > n_read) return 0; /* the map is small */
  return (dense_room(memo, number) - memo->dense_room) * sizeof *memo->dense;
}

ckpt_status ckpt_pickle_memo_put(ckpt_pickle_memo *memo, uint64_t number, uint64_t n_read, ckpt_object *object) {
  if (number >= memo->dense_room) {
    if (number > n_read) return put_sparse(memo, number, object);
    uint64_t wanted = dense_room(memo, number);
    ckpt_object **moved = reallocarray(memo->dense, wanted, sizeof(ckpt_object *));
    if (moved == NULL) return CKPT_ENOMEM;
    memo->dense = moved;
    memo->dense_room = wanted;
  }
  while (memo->n_dense <= number) memo->dense[memo->n_dense++] = NULL;
  /* What the map has under this number from before the array grew past it stays there, unseen: count it once. */
  if (ckpt_pickle_memo_get(memo, number) == NULL) memo->n++;
  memo->dense[number] = object;
  return CKPT_OK;
}

ckpt_object *ckpt_pickle_memo_get(const ckpt_pickle_memo *memo, uint64_t number) {
  if (number < memo->n_dense && memo->dense[number] != NULL) return memo->dense[number];
  return memo->n_slots == 0 ? NULL : slot_of(memo, number)->object;
}

void ckpt_pickle_memo_free(ckpt_pickle_memo *memo) {
  free(memo->dense);
  free(memo->sparse);
  *memo = (ckpt_pickle_memo){0};
}
