/* arch.h - what is known of a model family: names, ties, splits, permutations. Data, versioned.
 *
 * Canonical names are those of the Hugging Face model class's own state dict. Rows stand in formats/arch/ (list:
 * archs.def). Patterns hold `#` for a decimal layer, expert or block number. */
#ifndef CKPT_ARCH_H
#define CKPT_ARCH_H

#include "index.h"

typedef enum ckpt_name_note {
  CKPT_NAME_PLAIN,
  CKPT_NAME_ROPE_PERMUTE,  /* GGUF and Meta interleave rotary pairs: rows of each head are permuted */
  CKPT_NAME_TRANSPOSE,     /* stored (in, out) in the Hugging Face model (GPT-2's Conv1D) */
  CKPT_NAME_FUSED_QKV      /* q, k and v in one tensor */
} ckpt_name_note;

typedef struct ckpt_arch_name {
  const char *hf, *gguf, *meta; /* patterns; NULL where the dialect has none */
  ckpt_name_note note;
  int8_t split_axis;            /* of tensor parallelism: 0 column, 1 row, -1 replicated */
  ckpt_role role;
} ckpt_arch_name;

typedef struct ckpt_arch_tie {
  const char *kept, *tied; /* canonical names; kept is the one that Hugging Face keeps */
  const char *config_key;  /* boolean that decides, e.g. "tie_word_embeddings" */
  bool by_default;         /* where config has no such key */
} ckpt_arch_tie;

typedef struct ckpt_arch {
  const char *name;              /* "llama": GGUF's and config's model_type alike where they agree */
  uint32_t revision;             /* of this table; stands in digests' naming */
  const char *const *model_types; /* config.json's model_type values, NULL-terminated */
  const char *base_prefix;       /* "model." or "transformer.": absent in checkpoints of the bare model */
  const ckpt_arch_name *names;   /* hf NULL ends */
  const ckpt_arch_tie *ties;     /* kept NULL ends */
} ckpt_arch;

extern const ckpt_arch *const ckpt_archs[]; /* NULL-terminated; formats/registry.c */

/* The row for a config.json's model_type (or row name), or NULL. */
const ckpt_arch *ckpt_arch_find(const char *model_type);

/* The row's name entry that matches a canonical name, its numbers in numbers[] (at most 2); NULL if none does. */
const ckpt_arch_name *ckpt_arch_match(const ckpt_arch *arch, const char *name, uint64_t *numbers);

/* Fills a pattern's `#` with numbers, in order; arena text. */
char *ckpt_arch_fill(const char *pattern, const uint64_t *numbers, ckpt_arena *arena);

/* Gives an opened, not yet finished index its canonical names: wrapper prefixes (`module.`, `_orig_mod.`,
 * `_fsdp_wrapped_module.`, `_checkpoint_wrapped_module.`) go, a bare model's names get the base prefix where the
 * architecture (from config.json among the side files) is known; sets architecture, names. Names that collide
 * afterwards are EEXIST. With stored_names it only sets names = "stored". */
ckpt_status ckpt_index_canonical_names(ckpt_index *index, bool stored_names, ckpt_error *err);

#endif
