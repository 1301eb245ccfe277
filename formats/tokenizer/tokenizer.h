/* tokenizer.h - how a model cuts text into tokens: its files read once into one structure, and an encoder made of it.
 *
 * The structure (ckpt_tokenizer) comes from a Hugging Face folder (tokenizer.json, or vocab.json and merges.txt, with
 * tokenizer_config.json beside them), from sentencepiece's tokenizer.model or from the tokenizer.ggml.* keys of a GGUF
 * index. Both dialects of metadata are made from it, and the encoder runs it: there is no second reader. It knows BPE,
 * byte-level (GPT-2, Llama 3, Qwen2) and sentencepiece's with byte fallback (Llama 1 and 2); others are EUNSUPPORTED
 * by name.
 * The reading half lies here and in libckpt.so; the encoder (encode/) needs utf8proc and is the tools' and trainer's.
 *
 * Every file is hostile: lengths, depth, ids and merges are checked against each other when the structure is made. */
#ifndef CKPT_FORMATS_TOKENIZER_TOKENIZER_H
#define CKPT_FORMATS_TOKENIZER_TOKENIZER_H

#include "libckpt/base/arena.h"
#include "libckpt/index/index.h"

/* ---- the structure ----------------------------------------------------------------------------------------- */

#define CKPT_TOKEN_NONE UINT32_MAX
#define CKPT_TOKENIZER_MAX_TOKENS (1 << 24)
#define CKPT_TOKENIZER_MAX_TOKEN_BYTES (1 << 16)
#define CKPT_TOKENIZER_MAX_BYTES (UINT64_C(256) << 20) /* of one file */

typedef enum ckpt_tokenizer_kind {
  CKPT_TOKENIZER_BYTE_BPE, /* tokens are spelled in GPT-2's alphabet of 256 letters: ggml's "gpt2" */
  CKPT_TOKENIZER_SPM_BPE   /* tokens are UTF-8 with U+2581 for a space, bytes are <0xXX>: ggml's "llama" */
} ckpt_tokenizer_kind;

/* As tokenizer.ggml.token_type has them. */
typedef enum ckpt_token_type {
  CKPT_TOKEN_NORMAL = 1,
  CKPT_TOKEN_UNKNOWN,
  CKPT_TOKEN_CONTROL,
  CKPT_TOKEN_USER_DEFINED,
  CKPT_TOKEN_UNUSED,
  CKPT_TOKEN_BYTE
} ckpt_token_type;

typedef struct ckpt_token {
  const char *text; /* n_bytes as the file spells it, terminated; NULL: no token has this id */
  uint32_t n_bytes;
  uint32_t added;   /* number of its row in `added`; CKPT_TOKEN_NONE: it is the model's alone */
  float score;      /* sentencepiece's; 0 without scores */
  uint8_t type;     /* ckpt_token_type */
  bool is_in_model; /* model.vocab has it; others are there by added_tokens alone */
} ckpt_token;

/* Of two tokens one. Lower ranks go first; equal ranks go from left to right. */
typedef struct ckpt_token_merge {
  uint32_t left, right, result, rank; /* ids */
} ckpt_token_merge;

/* A token that is found in text before the model sees it. */
typedef struct ckpt_added_token {
  uint32_t id;
  bool is_special, is_single_word, strips_left, strips_right, is_normalized;
} ckpt_added_token;

/* How text is cut before BPE, in order; each step cuts what the one before left. */
typedef enum ckpt_split_behavior {
  CKPT_SPLIT_ISOLATED,
  CKPT_SPLIT_REMOVED,
  CKPT_SPLIT_MERGED_WITH_PREVIOUS,
  CKPT_SPLIT_MERGED_WITH_NEXT,
  CKPT_SPLIT_CONTIGUOUS
} ckpt_split_behavior;

typedef struct ckpt_split {
  const char *regex; /* in the dialect of tokenizer.json (Oniguruma's); NULL: the text `literal` */
  const char *literal;
  ckpt_split_behavior behavior;
  bool is_inverted; /* what the pattern does not match is what is cut out */
} ckpt_split;

typedef enum ckpt_normalize_kind {
  CKPT_NORMALIZE_NFC,
  CKPT_NORMALIZE_NFD,
  CKPT_NORMALIZE_NFKC,
  CKPT_NORMALIZE_NFKD,
  CKPT_NORMALIZE_PREPEND, /* `to` before text that is not empty */
  CKPT_NORMALIZE_REPLACE, /* every `from` (text) or `regex` becomes `to` */
  CKPT_NORMALIZE_STRIP    /* white space at the ends */
} ckpt_normalize_kind;

typedef struct ckpt_normalize_step {
  ckpt_normalize_kind kind;
  const char *from, *regex, *to;
  bool left, right; /* STRIP */
} ckpt_normalize_step;

typedef enum ckpt_prefix_space { CKPT_PREFIX_NEVER, CKPT_PREFIX_FIRST, CKPT_PREFIX_ALWAYS } ckpt_prefix_space;

typedef enum ckpt_decode_kind {
  CKPT_DECODE_BYTE_LEVEL,
  CKPT_DECODE_BYTE_FALLBACK,
  CKPT_DECODE_FUSE,
  CKPT_DECODE_REPLACE, /* every `from` becomes `to` */
  CKPT_DECODE_STRIP,   /* at most `start` and `stop` times `from` at the ends */
  CKPT_DECODE_METASPACE
} ckpt_decode_kind;

typedef struct ckpt_decode_step {
  ckpt_decode_kind kind;
  const char *from, *to;
  uint32_t start, stop;
  ckpt_prefix_space prefix; /* METASPACE */
} ckpt_decode_step;

/* Named special ids, as tokenizer_config.json and tokenizer.ggml.* have them. */
typedef enum ckpt_special {
  CKPT_SPECIAL_BOS,
  CKPT_SPECIAL_EOS,
  CKPT_SPECIAL_UNK,
  CKPT_SPECIAL_SEP,
  CKPT_SPECIAL_PAD,
  CKPT_SPECIAL_CLS,
  CKPT_SPECIAL_MASK,
  CKPT_SPECIAL_EOT,
  CKPT_SPECIAL_EOM,
  CKPT_N_SPECIALS
} ckpt_special;

typedef enum ckpt_flag { CKPT_FLAG_UNSAID, CKPT_FLAG_NO, CKPT_FLAG_YES } ckpt_flag;

typedef struct ckpt_chat_template {
  const char *name; /* NULL: the default one */
  const char *text;
} ckpt_chat_template;

/* What a structure was read from. */
typedef enum ckpt_tokenizer_origin {
  CKPT_TOKENIZER_OF_GGUF,
  CKPT_TOKENIZER_OF_JSON,  /* tokenizer.json */
  CKPT_TOKENIZER_OF_MODEL, /* tokenizer.model alone */
  CKPT_TOKENIZER_OF_VOCAB  /* vocab.json and merges.txt */
} ckpt_tokenizer_origin;

/* Everything is borrowed from the arena; immutable once made, so threads may share it. */
typedef struct ckpt_tokenizer {
  ckpt_arena arena;
  const char *path; /* for messages */
  ckpt_tokenizer_kind kind;
  ckpt_tokenizer_origin origin;
  ckpt_token *tokens; /* by id */
  uint32_t n_tokens;  /* one past the largest id */
  ckpt_token_merge *merges;
  uint32_t n_merges;
  ckpt_added_token *added; /* in the order of the file */
  uint32_t n_added;
  uint32_t n_stated;  /* of these, those that tokenizer.json lists, which come first; the others are the config's */
  uint32_t n_dropped; /* tokens that a config adds past the rows of the embedding; with the GGUF options alone */
  uint32_t unknown;   /* the model's unk_token; CKPT_TOKEN_NONE */
  bool has_scores;    /* sentencepiece's */
  bool has_byte_fallback, fuses_unknown, ignores_merges;
  bool normalizes; /* the file has a normalizer, even one without steps */
  const ckpt_normalize_step *normalizer;
  uint32_t n_normalizer;
  const ckpt_split *splits;
  uint32_t n_splits;
  ckpt_prefix_space prefix;       /* a space (U+2581 where spaces become that) before text */
  bool escapes_spaces;            /* the pre-tokenizer makes spaces U+2581 (Metaspace) */
  bool denies_prefix;             /* GGUF says that no space is put before text, to byte-level BPE, which puts none */
  const uint32_t *before, *after; /* ids that the post-processor puts around a text */
  uint32_t n_before, n_after;
  const ckpt_decode_step *decoder;
  uint32_t n_decoder;
  const ckpt_object *trees[4];             /* normalizer, pre_tokenizer, post_processor, decoder as the file has them */
  uint32_t special[CKPT_N_SPECIALS];       /* ids; CKPT_TOKEN_NONE */
  uint32_t model_special[CKPT_N_SPECIALS]; /* those that config.json says, whether or not another file says them */
  ckpt_flag adds[CKPT_N_SPECIALS];         /* add_bos_token, add_eos_token, ... where something says so */
  const ckpt_chat_template *templates;
  uint32_t n_templates;
  const char *pre;             /* llama.cpp's name of the splits; NULL: none was recognised */
  const char *tokenizer_class; /* of tokenizer_config.json; NULL */
  const ckpt_object *config;   /* tokenizer_config.json; NULL */
  const char *left;            /* names the files that nothing uses, and why; NULL: all are used */
} ckpt_tokenizer;

/* Places in `trees`. */
enum { CKPT_TREE_NORMALIZER, CKPT_TREE_PRE_TOKENIZER, CKPT_TREE_POST_PROCESSOR, CKPT_TREE_DECODER };

/* The tokenizer of a path: a folder or one of its files (tokenizer.json, tokenizer.model), a GGUF file, or anything
 * that ckpt_open opens and that carries one. ENOTFOUND: it carries none (the message lists what is looked for);
 * EFORMAT, ELIMIT, EUNSUPPORTED with the file and what is wrong; EIO, ENOMEM. Free with ckpt_tokenizer_free. */
ckpt_status ckpt_tokenizer_open(ckpt_tokenizer **out, const char *path, ckpt_error *err);

/* The same of an index that is open: of its metadata (tokenizer.ggml.*), else of its side files. It borrows nothing. */
ckpt_status ckpt_tokenizer_read(ckpt_tokenizer **out, const ckpt_index *index, ckpt_error *err);

/* The same of one tokenizer.json in memory, with a tokenizer_config.json or NULL. */
ckpt_status ckpt_tokenizer_parse(ckpt_tokenizer **out, const char *json, size_t n_json, const char *config,
                                 size_t n_config, ckpt_error *err);

void ckpt_tokenizer_free(ckpt_tokenizer *tokenizer); /* NULL is fine */

/* ---- GGUF's metadata ----------------------------------------------------------------------------------------- */

typedef struct ckpt_tokenizer_ggml_options {
  const char *pre;  /* --pre NAME; NULL: as recognised. EUNSUPPORTED with the cause where nothing is */
  uint32_t n_vocab; /* rows of the embedding: ids without a token are [PADi], unused. 0: those that there are */
} ckpt_tokenizer_ggml_options;

/* ckpt_tokenizer_read for GGUF's metadata. Tokens, scores and types are those of tokenizer.model, as the converter has
 * them, also beside a tokenizer.json with the same ids; tokens that a config adds have the ids that it says. */
ckpt_status ckpt_tokenizer_read_for_ggml(ckpt_tokenizer **out, const ckpt_index *index,
                                         const ckpt_tokenizer_ggml_options *options, ckpt_error *err);

/* Sets tokenizer.ggml.* and tokenizer.chat_template in a described index, in the converter's order; long values are
 * in the index's arena. A note names a `pre` that is not the tokenizer's. EUNSUPPORTED: the splits have no name;
 * EFORMAT: more tokens than n_vocab. */
ckpt_status ckpt_tokenizer_to_ggml(ckpt_index *index, const ckpt_tokenizer *tokenizer,
                                   const ckpt_tokenizer_ggml_options *options, ckpt_error *err);

/* tokenizer.json and tokenizer_config.json of the structure, terminated, in the arena: what a GGUF has becomes files
 * whose ids are the same. */
ckpt_status ckpt_tokenizer_print(char **json, size_t *n_json, char **config, size_t *n_config,
                                 const ckpt_tokenizer *tokenizer, ckpt_arena *arena, ckpt_error *err);

/* ---- encoding and decoding (encode/) ------------------------------------------------------------------------- */

typedef struct ckpt_text_encoder ckpt_text_encoder;

/* Tables and compiled patterns of a tokenizer, which it borrows. Immutable: any number of threads may encode with it,
 * each into its own ckpt_encoding. EUNSUPPORTED: a pattern that PCRE2 does not have; ENOMEM. */
ckpt_status ckpt_text_encoder_new(ckpt_text_encoder **out, const ckpt_tokenizer *tokenizer, ckpt_error *err);
void ckpt_text_encoder_free(ckpt_text_encoder *encoder); /* NULL is fine */

/* How a text is taken: bits. */
enum {
  CKPT_TEXT_SPECIAL = 1,      /* the tokenizer's own tokens around the text (BOS, EOS), as its post-processor says */
  CKPT_TEXT_PARSE_SPECIAL = 2 /* the text of a special token is that token (what `tokenizers` does) */
};

/* What a text became, and the room to work in: zero-initialise it, use it again for the next text, free it. */
typedef struct ckpt_encoding {
  uint32_t *ids;   /* n */
  uint64_t *begin; /* n: bytes [begin, end) of the text that was given; none for tokens put around it */
  uint64_t *end;   /* n */
  size_t n, capacity;
  struct ckpt_encode_room *room; /* the encoder's own */
} ckpt_encoding;

/* Encodes text[0, n_bytes), replacing what the encoding holds. What is no UTF-8 becomes U+FFFD, as Python's
 * errors="replace" does. ELIMIT: a pattern takes too many steps; ENOMEM. */
ckpt_status ckpt_text_encode(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const char *text,
                             size_t n_bytes, unsigned flags, ckpt_error *err);
void ckpt_encoding_free(ckpt_encoding *encoding); /* a zeroed one is fine */

/* The bytes of ids, in *out (n_bytes, terminated; the caller frees it): not always UTF-8, a character may be cut.
 * skip_special leaves out special tokens. EINVAL: an id that is no token's. */
ckpt_status ckpt_text_decode(const ckpt_text_encoder *encoder, char **out, size_t *n_bytes, const uint32_t *ids,
                             size_t n, bool skip_special, ckpt_error *err);

#endif
