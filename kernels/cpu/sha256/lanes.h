/* lanes.h - as many SHA-256 (FIPS 180-4) beside each other as a vector has lanes: lane i of every vector is of
 * message i. Who includes it defines LANES, vi (the vector), V(name) (its intrinsic), TARGET, NAME and what is not the
 * same for all vectors: load_row, join_low, join_high, swap_bytes and store_row. */

/* By lanes. */
TARGET static inline vi NAME(add)(vi a, vi b) { return V(add_epi32)(a, b); }

/* Of each eight rows, in each 32 bytes of them, row i becomes column i. */
TARGET static inline void NAME(transpose)(vi rows[8]) {
  vi pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = V(unpacklo_epi32)(rows[i], rows[i + 1]);
    pairs[i + 1] = V(unpackhi_epi32)(rows[i], rows[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    fours[i] = V(unpacklo_epi64)(pairs[i], pairs[i + 2]);
    fours[i + 1] = V(unpackhi_epi64)(pairs[i], pairs[i + 2]);
    fours[i + 2] = V(unpacklo_epi64)(pairs[i + 1], pairs[i + 3]);
    fours[i + 3] = V(unpackhi_epi64)(pairs[i + 1], pairs[i + 3]);
  }
  for (int i = 0; i < 4; i++) {
    rows[i] = NAME(join_low)(fours[i], fours[4 + i]);
    rows[4 + i] = NAME(join_high)(fours[i], fours[4 + i]);
  }
}

/* The 16 words of a block, of each message. */
TARGET static inline void NAME(load)(vi words[16], const uint8_t *const messages[LANES], size_t at) {
  for (int half = 0; half < 16; half += 8) {
    for (int row = 0; row < 8; row++)
      words[half + row] = NAME(swap_bytes)(NAME(load_row)(messages + row, at + 4 * (size_t)half));
    NAME(transpose)(words + half);
  }
}

/* The word that replaces the one of 16 steps ago. */
TARGET static inline vi NAME(next_word)(const vi words[16], int i) {
  const vi a = words[(i + 1) & 15], b = words[(i + 14) & 15];
  const vi small0 = V(ternarylogic_epi32)(V(ror_epi32)(a, 7), V(ror_epi32)(a, 18), V(srli_epi32)(a, 3), XOR3);
  const vi small1 = V(ternarylogic_epi32)(V(ror_epi32)(b, 17), V(ror_epi32)(b, 19), V(srli_epi32)(b, 10), XOR3);
  return NAME(add)(NAME(add)(words[i & 15], small0), NAME(add)(words[(i + 9) & 15], small1));
}

/* One step; a to h are the standard's, in s from place -i on, so that nothing is moved. */
TARGET static inline void NAME(step)(vi s[8], vi word, int i) {
  vi *const d = &s[(3 - i) & 7], *const h = &s[(7 - i) & 7];
  const vi a = s[-i & 7], b = s[(1 - i) & 7], c = s[(2 - i) & 7];
  const vi e = s[(4 - i) & 7], f = s[(5 - i) & 7], g = s[(6 - i) & 7];
  const vi big0 = V(ternarylogic_epi32)(V(ror_epi32)(a, 2), V(ror_epi32)(a, 13), V(ror_epi32)(a, 22), XOR3);
  const vi big1 = V(ternarylogic_epi32)(V(ror_epi32)(e, 6), V(ror_epi32)(e, 11), V(ror_epi32)(e, 25), XOR3);
  const vi sum = NAME(add)(NAME(add)(*h, NAME(add)(word, V(set1_epi32)((int)constants[i]))),
                           NAME(add)(big1, V(ternarylogic_epi32)(e, f, g, CHOOSE)));
  *d = NAME(add)(*d, sum);
  *h = NAME(add)(sum, NAME(add)(big0, V(ternarylogic_epi32)(a, b, c, MAJORITY)));
}

/* Takes a block of each message into its state; words are used up. */
TARGET static inline void NAME(take_block)(vi state[8], vi words[16]) {
  vi s[8];
  for (int i = 0; i < 8; i++) s[i] = state[i];
#pragma GCC unroll 64
  for (int i = 0; i < 64; i++) {
    if (i >= 16) words[i & 15] = NAME(next_word)(words, i);
    NAME(step)(s, words[i & 15], i);
  }
  for (int i = 0; i < 8; i++) state[i] = NAME(add)(state[i], s[i]);
}

/* See sha256.h. */
TARGET void NAME(ckpt_sha256)(const uint8_t *const messages[LANES], size_t n_bytes, uint8_t digests[LANES][32]) {
  vi state[8], words[16];
  for (int i = 0; i < 8; i++) state[i] = V(set1_epi32)((int)first_state[i]);
  for (size_t at = 0; at < n_bytes; at += 64) {
    NAME(load)(words, messages, at);
    NAME(take_block)(state, words);
  }
  const uint64_t n_bits = (uint64_t)n_bytes * 8;
  for (int i = 0; i < 16; i++) words[i] = V(set1_epi32)(0);
  words[0] = V(set1_epi32)((int)0x80000000);
  words[14] = V(set1_epi32)((int)(uint32_t)(n_bits >> 32));
  words[15] = V(set1_epi32)((int)(uint32_t)n_bits);
  NAME(take_block)(state, words);
  NAME(transpose)(state);
  for (int row = 0; row < 8; row++) NAME(store_row)(digests + row, NAME(swap_bytes)(state[row]));
}
