/* build.h - the parts of reading a tokenizer: a growing structure, JSON values as objects, and one file per source.
 * Not for others. */
#ifndef CKPT_FORMATS_TOKENIZER_BUILD_H
#define CKPT_FORMATS_TOKENIZER_BUILD_H

#include "formats/tokenizer/tokenizer.h"
#include "libckpt/codec/json.h"

/* Limits of a JSON value that becomes objects. */
enum { CKPT_TREE_MAX_DEPTH = 24, CKPT_TREE_MAX_NODES = 1 << 20 };

/* Spellings to ids, open addressing; keys are borrowed. Zero-initialise it; free with ckpt_spellings_free. */
typedef struct ckpt_spellings {
  struct ckpt_spelling {
    const char *text;
    uint32_t n_bytes, id;
  } * slots;
  size_t n, capacity; /* a power of two, at least twice n */
} ckpt_spellings;

/* The id of a spelling; CKPT_TOKEN_NONE where it has none. */
uint32_t ckpt_spellings_find(const ckpt_spellings *spellings, const char *text, size_t n_bytes);
/* Gives a spelling its id; *other is the one that it has already, or CKPT_TOKEN_NONE. ENOMEM. */
ckpt_status ckpt_spellings_add(ckpt_spellings *spellings, const char *text, size_t n_bytes, uint32_t id,
                               uint32_t *other, ckpt_error *err);
void ckpt_spellings_free(ckpt_spellings *spellings); /* as above */

/* A merge as a file states it, before all tokens are known. */
typedef struct ckpt_stated_merge {
  const char *left, *right; /* terminated; they may not hold NUL */
  uint32_t n_left, n_right;
} ckpt_stated_merge;

/* A tokenizer while it is read. */
typedef struct ckpt_tokenizer_build {
  ckpt_tokenizer *out;
  ckpt_spellings spellings;
  const char *file; /* that is read now, for messages */
  uint64_t n_bytes; /* of the files read so far: ids far past them are no vocabulary's. 0: ids follow each other */
  uint32_t token_capacity, merge_capacity, added_capacity, stated_capacity;
  ckpt_token *tokens; /* grow outside the arena until they are finished */
  ckpt_stated_merge *stated;
  uint32_t n_stated;
  bool has_vocab; /* merges can be resolved as they are read */
  ckpt_added_token *added;
  const char *unknown_text;                     /* model.unk_token */
  uint32_t n_model, n_new;                      /* tokens of the model; tokens that got an id behind those */
  const ckpt_object *listed, *map, *added_json; /* added_tokens; special_tokens_map.json, added_tokens.json; NULL */
  const ckpt_tokenizer_ggml_options *ggml;      /* the structure is for GGUF's metadata; NULL: for encoding */
} ckpt_tokenizer_build;

/* An empty structure. */
ckpt_status ckpt_tokenizer_build_new(ckpt_tokenizer_build *build, const char *path, ckpt_error *err);
void ckpt_tokenizer_build_free(ckpt_tokenizer_build *build); /* with the tokenizer, unless it was taken */

/* Adds a token of the model. EFORMAT: its id or its spelling is another's; ELIMIT: an id or a length past the limits.
 */
ckpt_status ckpt_tokenizer_build_token(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, uint64_t id,
                                       ckpt_token **out, ckpt_error *err);
/* Adds a row of added_tokens, whose token may be the model's. */
ckpt_status ckpt_tokenizer_build_added(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, uint64_t id,
                                       const ckpt_added_token *flags, ckpt_error *err);
/* Adds a merge as it is stated. */
ckpt_status ckpt_tokenizer_build_merge(ckpt_tokenizer_build *build, const char *left, size_t n_left, const char *right,
                                       size_t n_right, ckpt_error *err);
/* Adds one that is "left right". EFORMAT: it is not. */
ckpt_status ckpt_tokenizer_build_merge_line(ckpt_tokenizer_build *build, const char *text, size_t n_bytes,
                                            ckpt_error *err);

/* Adds a row of added_tokens as `tokenizers` does: a token of the vocabulary keeps its id, another gets the next. */
ckpt_status ckpt_tokenizer_build_row(ckpt_tokenizer_build *build, const char *text, size_t n_bytes,
                                     const ckpt_added_token *flags, ckpt_error *err);
/* Those that tokenizer.json lists. EFORMAT: an entry lacks an id or a content. */
ckpt_status ckpt_tokenizer_add_listed(ckpt_tokenizer_build *build, ckpt_error *err);
/* Those that transformers adds of the files beside the vocabulary, which the build has; then ids of special tokens. */
ckpt_status ckpt_tokenizer_add_stated(ckpt_tokenizer_build *build, ckpt_error *err);
/* Those that llama.cpp's converter puts into a tokenizer.model, at the ids that the files say. */
ckpt_status ckpt_tokenizer_place_stated(ckpt_tokenizer_build *build, ckpt_error *err);

/* Resolves merges, makes those of scores, types tokens, names the splits: the structure is whole, and `out` taken. */
ckpt_status ckpt_tokenizer_build_finish(ckpt_tokenizer **out, ckpt_tokenizer_build *build, ckpt_error *err);

/* Merges of a model that has scores instead: every token that two others make, better scores first. */
ckpt_status ckpt_tokenizer_merges_of_scores(ckpt_tokenizer_build *build, ckpt_error *err);

/* The JSON value that follows (after a KEY: its value) as an object in the arena: depth and count are bounded. */
ckpt_status ckpt_tree_read(const ckpt_object **out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err);

/* Reads one tokenizer.json, tokenizer_config.json, vocab.json, merges.txt. */
ckpt_status ckpt_tokenizer_read_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err);
ckpt_status ckpt_tokenizer_read_config(ckpt_tokenizer_build *build, const ckpt_object *config,
                                       ckpt_error *err);                                              /* as above */
ckpt_status ckpt_tokenizer_read_vocab(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err); /* as above */
ckpt_status ckpt_tokenizer_read_merges(ckpt_tokenizer_build *build, const char *text, size_t n_bytes,
                                       ckpt_error *err); /* as above */
/* Adds the chat templates of a JSON value, a text or a list of names and templates; what is neither has none. */
ckpt_status ckpt_tokenizer_read_templates(ckpt_tokenizer_build *build, const ckpt_object *value, ckpt_error *err);
/* Adds a chat template that has a file of its own; name NULL: the default one. EFORMAT: no UTF-8, or with a NUL. */
ckpt_status ckpt_tokenizer_add_template(ckpt_tokenizer_build *build, const char *name, const char *text, size_t n_bytes,
                                        ckpt_error *err);
/* What a vocab.json lacks: the splits and decoder of byte-level BPE; pre NULL: GPT-2's. */
ckpt_status ckpt_tokenizer_assume_bytes(ckpt_tokenizer_build *build, const char *pre, ckpt_error *err);
/* What a sentencepiece model does around BPE: U+2581 for spaces, and one before text; and its decoder. */
ckpt_status ckpt_tokenizer_assume_spm(ckpt_tokenizer_build *build, bool has_prefix, ckpt_error *err);
/* The ids around a text that BOS and EOS are, where the structure says so. */
ckpt_status ckpt_tokenizer_assume_ends(ckpt_tokenizer_build *build, ckpt_error *err);

/* The steps of the four trees. EUNSUPPORTED: a kind that this version does not run, by its name. */
ckpt_status ckpt_tokenizer_read_steps(ckpt_tokenizer_build *build, ckpt_error *err);

/* The same of a tokenizer.model. EUNSUPPORTED: it is no BPE, or normalizes text. */
ckpt_status ckpt_tokenizer_read_sentencepiece(ckpt_tokenizer_build *build, ckpt_source *source, uint32_t file,
                                              ckpt_error *err);

/* The structure of tokenizer.ggml.* in an index's metadata. */
ckpt_status ckpt_tokenizer_read_ggml(ckpt_tokenizer_build *build, const ckpt_index *index, ckpt_error *err);

const char *ckpt_special_name(ckpt_special special); /* "bos" */

/* Whether tokenizer_class is this class, or its "Fast" one. */
bool ckpt_tokenizer_has_class(const ckpt_tokenizer *tokenizer, const char *class);

/* A byte's letter in GPT-2's alphabet (a code point), and the byte of one; -1: no byte has it. */
uint32_t ckpt_byte_letter(uint8_t byte);
int ckpt_letter_byte(uint32_t code); /* as above */

#endif
