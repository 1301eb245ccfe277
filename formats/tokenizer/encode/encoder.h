/* encoder.h - the parts of the encoder: tables (encoder.c), text with its origin (text.c), normalizing (normalize.c),
 * cutting (split.c, regex.c), added tokens (added.c), BPE (bpe.c), the whole (encode.c, decode.c). Not for others. */
#ifndef CKPT_FORMATS_TOKENIZER_ENCODE_ENCODER_H
#define CKPT_FORMATS_TOKENIZER_ENCODE_ENCODER_H

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "formats/tokenizer/build.h"
#include "formats/tokenizer/tokenizer.h"

/* ---- text with its origin ------------------------------------------------------------------------------------ */

/* Bytes, and which bytes of the given text each came from: begin[i] to end[i], or base + i where there are no maps. */
typedef struct ckpt_run {
  const uint8_t *bytes;
  size_t n;
  const uint64_t *begin, *end;
  uint64_t base;
} ckpt_run;

/* Where byte i begins and ends in the given text. */
static inline uint64_t ckpt_run_begin(const ckpt_run *run, size_t i) {
  return run->begin != NULL ? run->begin[i] : run->base + i;
}
/* as above */
static inline uint64_t ckpt_run_end(const ckpt_run *run, size_t i) {
  return run->end != NULL ? run->end[i] : run->base + i + 1;
}

/* Bytes [from, to) of a run. */
ckpt_run ckpt_run_cut(const ckpt_run *run, size_t from, size_t to);

/* A run that grows. Zero-initialise it; free with ckpt_mapped_free. */
typedef struct ckpt_mapped {
  uint8_t *bytes;
  uint64_t *begin, *end;
  size_t n, capacity;
  size_t limit; /* most bytes; 0: as many as come */
} ckpt_mapped;

/* Appends n bytes that came from [begin, end) as a whole. ELIMIT: more than the limit; ENOMEM. */
ckpt_status ckpt_mapped_put(ckpt_mapped *mapped, const void *bytes, size_t n, uint64_t begin, uint64_t end,
                            ckpt_error *err);
/* Appends bytes [from, to) of a run as they are. */
ckpt_status ckpt_mapped_copy(ckpt_mapped *mapped, const ckpt_run *run, size_t from, size_t to, ckpt_error *err);
ckpt_run ckpt_mapped_run(const ckpt_mapped *mapped); /* it as a run */
void ckpt_mapped_free(ckpt_mapped *mapped);

/* The character at bytes[0], which are UTF-8; *n is its length. */
uint32_t ckpt_utf8_at(const uint8_t *bytes, size_t *n);
/* Writes a character; how many bytes. */
size_t ckpt_utf8_put(uint8_t out[4], uint32_t code);
/* White space as Unicode has it. */
bool ckpt_is_space(uint32_t code);

/* What a normalizer may make of a text: so many times its bytes, and so many more. NFKC makes 11 of one. */
enum { CKPT_NORMAL_FACTOR = 16, CKPT_NORMAL_BYTES = 64 << 10 };

/* ---- the room of one thread ---------------------------------------------------------------------------------- */

typedef struct ckpt_span {
  size_t begin, end;
  bool is_match;
} ckpt_span;

/* A part of a word while it is merged. */
typedef struct ckpt_symbol {
  uint32_t id, begin, n_bytes; /* of the word's bytes; n_bytes 0: merged away */
  int32_t previous, next;
} ckpt_symbol;

typedef struct ckpt_pending {
  uint32_t rank, at, result;
} ckpt_pending;

/* Longest word that is kept, with the most ids; how many. */
enum { CKPT_WORD_BYTES = 24, CKPT_WORD_IDS = 8, CKPT_WORDS = 1 << 13 };

/* A word that was encoded lately. */
typedef struct ckpt_word {
  uint8_t n_bytes, n_ids; /* n_bytes 0: none */
  uint8_t bytes[CKPT_WORD_BYTES];
  uint8_t lengths[CKPT_WORD_IDS];
  uint32_t ids[CKPT_WORD_IDS];
} ckpt_word;

typedef struct ckpt_encode_room {
  uint64_t of; /* fingerprint of the encoder whose words these are */
  ckpt_word *words;
  pcre2_match_data *found;
  pcre2_match_context *limits;
  pcre2_jit_stack *stack;
  ckpt_mapped whole, normal[2], prefixed; /* valid UTF-8; two to normalize to and fro; with spaces escaped */
  size_t n_normal_left;                   /* bytes that the normalizer may still make of this text */
  ckpt_span *spans;                       /* a stack: each level of splits is above the one before */
  uint32_t n_spans, span_capacity;
  ckpt_symbol *symbols;
  uint32_t n_symbols, symbol_capacity;
  ckpt_pending *heap;
  uint32_t n_heap, heap_capacity;
} ckpt_encode_room;

/* ---- tables -------------------------------------------------------------------------------------------------- */

typedef struct ckpt_merge_slot {
  uint64_t pair; /* left << 32 | right; UINT64_MAX: empty */
  uint32_t rank, result;
} ckpt_merge_slot;

/* A trie of added tokens: edges in a hash table. */
typedef struct ckpt_trie {
  struct ckpt_edge {
    uint64_t from; /* node << 8 | byte; UINT64_MAX: empty */
    uint32_t to;
  } * edges;
  size_t n, capacity;
  uint32_t *ends; /* of a node: number of the added token; CKPT_TOKEN_NONE */
  uint32_t n_nodes, node_capacity;
  bool starts[256];
} ckpt_trie;

typedef struct ckpt_regex {
  pcre2_code *code; /* NULL: the literal */
  const char *literal;
  bool has_jit;
} ckpt_regex;

struct ckpt_text_encoder {
  const ckpt_tokenizer *tokenizer;
  uint64_t fingerprint;
  ckpt_merge_slot *merges;
  size_t merge_mask;
  uint32_t bytes[256];           /* the token of a byte; CKPT_TOKEN_NONE */
  ckpt_spellings words;          /* bytes of text that are a token, to ids */
  uint8_t *word_bytes;           /* what they are spelled in */
  uint32_t *word_lengths;        /* by id: bytes of text */
  const uint8_t **word_of;       /* by id: where they stand */
  ckpt_trie raw, normalized;     /* added tokens, sought before and after normalizing */
  ckpt_regex *splits, *replaces; /* by number of step */
  bool cuts_at_marks; /* no merge reaches over a U+2581 that follows anything else: BPE may be cut before it */
};

/* Where an added token stands. */
typedef struct ckpt_added_match {
  size_t begin, end;
  uint32_t added;
} ckpt_added_match;

/* Adds the bytes of an added token. */
ckpt_status ckpt_trie_add(ckpt_trie *trie, const uint8_t *bytes, size_t n, uint32_t added, ckpt_error *err);
void ckpt_trie_free(ckpt_trie *trie); /* as above */
/* The next added token at or after `from`, stripping and words considered, behind `after`; false: there is none. */
bool ckpt_added_next(const ckpt_text_encoder *encoder, const ckpt_trie *trie, const ckpt_run *run, size_t after,
                     bool parses_special, size_t *from, ckpt_added_match *out);

/* A pattern of a tokenizer.json. EUNSUPPORTED: what Oniguruma has and PCRE2 has not, or means otherwise. */
ckpt_status ckpt_regex_new(ckpt_regex *out, const char *regex, const char *literal, const char *path, ckpt_error *err);
void ckpt_regex_free(ckpt_regex *regex); /* as above */
/* The first match at or after `at`. ELIMIT: too many steps. */
ckpt_status ckpt_regex_find(const ckpt_regex *regex, ckpt_encode_room *room, const uint8_t *bytes, size_t n, size_t at,
                            bool *found, size_t *begin, size_t *end, ckpt_error *err);

/* The normalizer's steps on a run; *out may be the run itself. */
ckpt_status ckpt_normalize_run(const ckpt_text_encoder *encoder, ckpt_encode_room *room, const ckpt_run *run,
                               ckpt_run *out, ckpt_error *err);

/* Cuts a run and encodes its pieces. */
ckpt_status ckpt_split_run(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                           ckpt_error *err);

/* Encodes one piece. */
ckpt_status ckpt_bpe_run(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const ckpt_run *run,
                         ckpt_error *err);

/* Appends an id. */
ckpt_status ckpt_encoding_put(ckpt_encoding *encoding, uint32_t id, uint64_t begin, uint64_t end, ckpt_error *err);

/* The room of an encoding, made where it has none. */
ckpt_status ckpt_room_of(ckpt_encode_room **out, ckpt_encoding *encoding, const ckpt_text_encoder *encoder,
                         ckpt_error *err);

#endif
