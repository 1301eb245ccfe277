/* model.c - what the metadata of a GGUF file says of the model against its tensors, for `verify`, and for whoever
 * writes one: how many blocks there are, how wide the embedding is, its tokens. llama.cpp counts on these, whatever the
 * architecture, and refuses a model whose tensors are others; of known families the dialect's rows say the rest. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"

typedef unsigned long long ull;

typedef struct model {
  ckpt_findings *findings;
  const ckpt_index *index;
  const char *architecture, *path;
} model;

/* The value of ARCHITECTURE.key, or NULL. */
static const ckpt_typed_value *value_of(const model *m, const char *key) {
  char full[256];
  if ((size_t)snprintf(full, sizeof full, "%s.%s", m->architecture, key) >= sizeof full) return NULL;
  const ckpt_meta *meta = ckpt_index_meta(m->index, full);
  return meta == NULL ? NULL : meta->typed;
}

static bool number_of(const model *m, const char *key, uint32_t *out) {
  const ckpt_typed_value *value = value_of(m, key);
  return value != NULL && ckpt_gguf_value_u32(value, out);
}

/* Elements of an array. */
static ckpt_status count_of(const ckpt_typed_value *array, uint64_t *out, ckpt_error *err) {
  enum { HEAD_BYTES = 12 };
  uint8_t head[HEAD_BYTES];
  *out = 0;
  if (array->n_bytes < HEAD_BYTES) return CKPT_OK;
  if (array->source == NULL)
    memcpy(head, array->bytes, sizeof head);
  else
    CKPT_TRY(ckpt_source_read(array->source, array->file, array->offset, head, sizeof head, err));
  *out = ckpt_le64(head + 4);
  return CKPT_OK;
}

/* The number of a block's tensor, "blk.N.": false for others. */
static bool block_of(const char *name, uint64_t *out) {
  static const char prefix[] = "blk.";
  if (strncmp(name, prefix, sizeof prefix - 1) != 0) return false;
  const char *digits = name + sizeof prefix - 1;
  const size_t n = strspn(digits, "0123456789");
  if (n == 0 || n > 9 || digits[n] != '.') return false;
  *out = strtoull(digits, NULL, 10);
  return true;
}

/* A number of blocks that is nowhere: as where the architecture is one to which no key belongs. Parts of a model, as
 * adapters are, need none. */
static ckpt_status check_architecture(const model *m, ckpt_error *err) {
  const char *type = ckpt_index_metadata(m->index, "general.type");
  uint64_t number;
  if (value_of(m, "block_count") != NULL || (type != NULL && strcmp(type, "model") != 0)) return CKPT_OK;
  for (uint32_t i = 0; i < m->index->n_tensors; i++)
    if (block_of(m->index->tensors[i].name, &number))
      return ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, NULL,
                               CKPT_GGUF_ARCHITECTURE
                               " is %s, and there is no %s.block_count: llama.cpp refuses the "
                               "model",
                               m->architecture, m->architecture);
  return CKPT_OK;
}

/* Blocks without tensors are left out of models whose blocks differ, which have a list of heads. */
static ckpt_status check_blocks(const model *m, ckpt_error *err) {
  uint32_t n_blocks;
  uint64_t number, n_there = 0, most = 0;
  const ckpt_tensor *beyond = NULL;
  const ckpt_typed_value *heads = value_of(m, "attention.head_count");
  if (!number_of(m, "block_count", &n_blocks)) return CKPT_OK;
  bool *is_there = calloc((size_t)m->index->n_tensors + 1, sizeof *is_there);
  CKPT_TRY_ALLOC(is_there, err);
  for (uint32_t i = 0; i < m->index->n_tensors; i++) {
    if (!block_of(m->index->tensors[i].name, &number)) continue;
    if (number >= n_blocks && beyond == NULL) beyond = &m->index->tensors[i];
    if (number >= m->index->n_tensors) continue; /* with a gap, then */
    n_there += !is_there[number];
    is_there[number] = true;
    if (number + 1 > most) most = number + 1;
  }
  uint64_t missing = 0;
  while (missing < most && is_there[missing]) missing++;
  free(is_there);
  if (beyond != NULL)
    return ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, beyond->name,
                             "%s.block_count is %u, and there are tensors of later blocks: llama.cpp refuses the model",
                             m->architecture, n_blocks);
  if (n_there == 0 || n_there == n_blocks || (heads != NULL && heads->type == CKPT_GGUF_ARRAY)) return CKPT_OK;
  return ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, NULL,
                           "%s.block_count is %u, and %llu block%s tensors (none of block %llu): llama.cpp refuses the "
                           "model",
                           m->architecture, n_blocks, (ull)n_there, n_there == 1 ? " has" : "s have", (ull)missing);
}

/* In a description that is not finished, too. */
static const ckpt_tensor *find(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, name) == 0) return &index->tensors[i];
  return NULL;
}

/* Rows of the embedding are tokens, its columns what the metadata says. */
static ckpt_status check_embedding(const model *m, ckpt_error *err) {
  const ckpt_tensor *embedding = find(m->index, "token_embd.weight");
  const ckpt_meta *tokens = ckpt_index_meta(m->index, "tokenizer.ggml.tokens");
  uint32_t n_columns, n_rows;
  uint64_t n_tokens = 0;
  if (embedding == NULL || embedding->rank != 2) return CKPT_OK;
  if (number_of(m, "embedding_length", &n_columns) && value_of(m, "features_length") == NULL &&
      n_columns != embedding->shape[1])
    CKPT_TRY(ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, embedding->name,
                               "it has %llu column%s, %s.embedding_length is %u", (ull)embedding->shape[1],
                               ckpt_plural(embedding->shape[1]), m->architecture, n_columns));
  if (tokens != NULL && tokens->typed != NULL && tokens->typed->type == CKPT_GGUF_ARRAY)
    CKPT_TRY(count_of(tokens->typed, &n_tokens, err));
  if (n_tokens != 0 && n_tokens != embedding->shape[0])
    CKPT_TRY(ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, embedding->name,
                               "it has %llu row%s, tokenizer.ggml.tokens has %llu token%s: llama.cpp refuses the model",
                               (ull)embedding->shape[0], ckpt_plural(embedding->shape[0]), (ull)n_tokens,
                               ckpt_plural(n_tokens)));
  if (number_of(m, "vocab_size", &n_rows) && n_rows != embedding->shape[0]) /* read where there are no tokens */
    return ckpt_findings_add(m->findings, err, n_tokens == 0 ? CKPT_PROBLEM : CKPT_WARNING, m->path, embedding->name,
                             "it has %llu row%s, %s.vocab_size is %u%s", (ull)embedding->shape[0],
                             ckpt_plural(embedding->shape[0]), m->architecture, n_rows,
                             n_tokens == 0 ? "" : " (llama.cpp goes by the tokens)");
  return CKPT_OK;
}

/* ---- the tokenizer ----------------------------------------------------------------------------------------------- */

#define TOKENIZER "tokenizer.ggml."

static bool has_tokenizer(const ckpt_index *index) {
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (strncmp(index->metadata[i].key, TOKENIZER, sizeof TOKENIZER - 1) == 0) return true;
  return false;
}

/* Whether llama.cpp has this model of tokens. Newer releases may have others, so an unknown name is no problem. */
static bool is_known_model(const char *name) {
  static const char *const known[] = {"llama", "bert", "gpt2", "t5", "rwkv", "plamo2", "gemma4", "none", "no_vocab"};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i]) == 0) return true;
  return false;
}

static ckpt_status say_missing(const model *m, const char *key, ckpt_error *err) {
  return ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, NULL,
                           "there is no " TOKENIZER "%s: llama.cpp refuses the model", key);
}

/* Gives an array's length, or 0 without the array. */
static ckpt_status length_of(const model *m, const char *key, uint64_t *out, bool *is_there, ckpt_error *err) {
  const ckpt_meta *meta = ckpt_index_meta(m->index, key);
  *is_there = meta != NULL;
  *out = 0;
  return meta == NULL || meta->typed == NULL ? CKPT_OK : count_of(meta->typed, out, err);
}

/* How byte-level BPE cuts text; nothing says "default". */
static ckpt_status check_pre(const model *m, ckpt_error *err) {
  const char *pre = ckpt_index_metadata(m->index, TOKENIZER "pre");
  if (pre == NULL || ckpt_dialect_tokenizers == NULL || ckpt_dialect_tokenizers->knows_pre(pre)) return CKPT_OK;
  return ckpt_findings_add(m->findings, err, CKPT_UNPROVEN, NULL, NULL,
                           "tokenizer: whether llama.cpp knows " TOKENIZER "pre, which is %s", pre);
}

static ckpt_status check_tokenizer(const model *m, ckpt_error *err) {
  static const char *const each[] = {TOKENIZER "token_type", TOKENIZER "scores"};
  const char *name = ckpt_index_metadata(m->index, TOKENIZER "model"),
             *type = ckpt_index_metadata(m->index, "general.type");
  uint64_t n_tokens, n;
  bool is_there;
  if (type != NULL && strcmp(type, "model") != 0) return CKPT_OK;
  if (!has_tokenizer(m->index)) {
    if (value_of(m, "block_count") == NULL || find(m->index, "token_embd.weight") == NULL) return CKPT_OK;
    return ckpt_findings_add(m->findings, err, CKPT_WARNING, m->path, NULL,
                             "there is no tokenizer (" TOKENIZER "model, ...): llama.cpp refuses the model");
  }
  if (name == NULL) return say_missing(m, "model", err);
  if (!is_known_model(name))
    return ckpt_findings_add(m->findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "tokenizer: whether llama.cpp knows " TOKENIZER "model, which is %s", name);
  if (strcmp(name, "none") == 0 || strcmp(name, "no_vocab") == 0) return CKPT_OK;
  CKPT_TRY(length_of(m, TOKENIZER "tokens", &n_tokens, &is_there, err));
  if (!is_there) CKPT_TRY(say_missing(m, "tokens", err));
  for (size_t i = 0; i < sizeof each / sizeof *each; i++) {
    CKPT_TRY(length_of(m, each[i], &n, &is_there, err));
    if (is_there && n < n_tokens)
      CKPT_TRY(ckpt_findings_add(m->findings, err, CKPT_PROBLEM, m->path, NULL,
                                 "%s has %llu value%s for %llu token%s: llama.cpp refuses the model", each[i], (ull)n,
                                 ckpt_plural(n), (ull)n_tokens, ckpt_plural(n_tokens)));
  }
  if (strcmp(name, "gpt2") != 0) return CKPT_OK;
  CKPT_TRY(length_of(m, TOKENIZER "merges", &n, &is_there, err));
  if (!is_there) CKPT_TRY(say_missing(m, "merges", err));
  return check_pre(m, err);
}

ckpt_status ckpt_gguf_check_model(ckpt_findings *findings, const ckpt_index *index, const char *path, ckpt_error *err) {
  const ckpt_meta *architecture = ckpt_index_meta(index, CKPT_GGUF_ARCHITECTURE);
  if (architecture == NULL || architecture->typed != NULL || index->defects.n != 0) return CKPT_OK;
  const model m = {findings, index, architecture->value, path};
  const size_t n_before = findings->n_of[CKPT_PROBLEM];
  CKPT_TRY(check_architecture(&m, err));
  CKPT_TRY(check_blocks(&m, err));
  CKPT_TRY(check_embedding(&m, err));
  CKPT_TRY(check_tokenizer(&m, err));
  return ckpt_dialect_check(findings, index, path, n_before, err);
}
