/* order.c - see order.h. */
#include "trainer/data/order.h"

#include "trainer/optimizer/random.h"

static uint64_t min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Rows of all ranks in one batch. */
static uint64_t rows_of(const ckpt_order *o) { return o->batch * o->ranks; }

uint64_t ckpt_order_batches(const ckpt_order *o) {
  return o->n_samples / rows_of(o) + (!o->drops_last && o->n_samples % rows_of(o) != 0);
}

uint64_t ckpt_order_steps(const ckpt_order *o) {
  const uint64_t n = ckpt_order_batches(o);
  return n / o->accumulation + (n % o->accumulation != 0);
}

uint64_t ckpt_order_accumulated(const ckpt_order *o, uint64_t step) {
  const uint64_t first = step % ckpt_order_steps(o) * o->accumulation;
  return min_u64(o->accumulation, ckpt_order_batches(o) - first);
}

void ckpt_order_rows(const ckpt_order *o, uint64_t step, uint64_t micro, uint64_t rank, uint64_t *first, uint64_t *n) {
  const uint64_t batch = step % ckpt_order_steps(o) * o->accumulation + micro;
  const uint64_t begin = batch * rows_of(o) + rank * o->batch;
  *first = min_u64(begin, o->n_samples);
  *n = min_u64(o->batch, o->n_samples - *first);
}

uint64_t ckpt_permute(uint64_t n, uint64_t seed, uint64_t epoch, uint64_t i) {
  static const char purpose[] = "order of data";
  const uint64_t key = seed ^ ckpt_name_key(purpose);
  uint32_t half = 1;
  while (half < 32 && UINT64_C(1) << 2 * half < n) half++;
  const uint64_t mask = (UINT64_C(1) << half) - 1;
  do {
    uint64_t left = i >> half, right = i & mask;
    for (uint32_t round = 0; round < 6; round++) {
      uint32_t words[4];
      ckpt_philox(words, key, right, epoch << 3 | round);
      const uint64_t next = left ^ (words[0] & mask);
      left = right;
      right = next;
    }
    i = left << half | right;
  } while (i >= n);
  return i;
}

uint64_t ckpt_order_sample(const ckpt_order *o, uint64_t epoch, uint64_t place) {
  return o->is_sequential ? place : ckpt_permute(o->n_samples, o->seed, epoch, place);
}
