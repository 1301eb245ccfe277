/* exact_sum.c - see exact_sum.h. */
#include "libckpt/base/exact_sum.h"

#include <math.h>

/* Adds to the word `at`, with what it carries. */
static void add_word(ckpt_exact_sum *sum, unsigned at, uint64_t word) {
  for (; word != 0 && at < CKPT_EXACT_WORDS; at++) {
    sum->words[at] += word;
    word = sum->words[at] < word; /* the carry */
  }
  sum->is_infinite = sum->is_infinite || word != 0;
}

void ckpt_exact_sum_add(ckpt_exact_sum *sum, double x) {
  int exponent;
  if (x == 0) return;
  if (!isfinite(x)) {
    sum->is_infinite = true;
    return;
  }
  uint64_t bits = (uint64_t)ldexp(frexp(x, &exponent), 53);
  int place = exponent - 53 - CKPT_EXACT_UNIT; /* of the lowest bit */
  if (place < 0) bits = place <= -64 ? 0 : bits >> -place;
  if (place < 0) place = 0;
  const unsigned word = (unsigned)place / 64, shift = (unsigned)place % 64;
  add_word(sum, word, bits << shift);
  if (shift != 0) add_word(sum, word + 1, bits >> (64 - shift));
}

void ckpt_exact_sum_join(ckpt_exact_sum *into, const ckpt_exact_sum *from) {
  for (unsigned i = 0; i < CKPT_EXACT_WORDS; i++) add_word(into, i, from->words[i]);
  into->is_infinite = into->is_infinite || from->is_infinite;
}

/* The highest 64 bits below the first one that is set, and whether any is set below those, round as one number. */
double ckpt_exact_sum_value(const ckpt_exact_sum *sum) {
  int top = CKPT_EXACT_WORDS - 1;
  while (top >= 0 && sum->words[top] == 0) top--;
  if (sum->is_infinite) return INFINITY;
  if (top < 0) return 0;
  uint64_t high = sum->words[top];
  int place = 64 * top;
  const int shift = __builtin_clzll(high);
  uint64_t below = top > 0 ? sum->words[top - 1] : 0;
  if (shift != 0) {
    high = high << shift | below >> (64 - shift);
    below <<= shift;
    place -= shift;
  }
  for (int i = top - 2; i >= 0; i--) below |= sum->words[i];
  return ldexp((double)(high | (below != 0)), place + CKPT_EXACT_UNIT);
}
