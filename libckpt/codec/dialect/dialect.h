/* dialect.h - one model, two dialects: the tensors and metadata of a Hugging Face model as GGUF has them.
 *
 * A dialect is an index whose tensors are derived (plan/derive.h) from those of an opened one, by the rules of the
 * family's row (ckpt_arch_gguf in index/arch.h). Convert, quantize, receipts and proofs work on it as on any other. It
 * reads nothing but headers and configs. What differs between dialects is data in the rows; the transforms are a small
 * closed set, each of them here once. */
#ifndef CKPT_CODEC_DIALECT_DIALECT_H
#define CKPT_CODEC_DIALECT_DIALECT_H

#include "libckpt/format/findings.h"
#include "libckpt/format/format.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"
#include "libckpt/plan/op.h"

/* What tokenizers know of GGUF, for a library that knows no tokenizer: formats/registry.c fills it in. */
typedef struct ckpt_dialect_tokenizer {
  /* Sets tokenizer.ggml.* of what `from` carries, for an embedding of n_vocab rows; pre: --pre NAME, or NULL.
   * ENOTFOUND: it carries no tokenizer; EUNSUPPORTED: one of a kind that is not read, or GGUF has no name for how it
   * cuts text. */
  ckpt_status (*to_ggml)(ckpt_index *into, const ckpt_index *from, const char *pre, uint32_t n_vocab, ckpt_error *err);
  /* tokenizer.json and tokenizer_config.json (NULL: none) of a GGUF model, in the arena. As above. */
  ckpt_status (*to_files)(const char **tokenizer, const char **config, const ckpt_index *gguf, ckpt_arena *arena,
                          ckpt_error *err);
  /* Whether a value of tokenizer.ggml.pre is one of llama.cpp's that is known. */
  bool (*knows_pre)(const char *pre);
} ckpt_dialect_tokenizer;

extern const ckpt_dialect_tokenizer *const ckpt_dialect_tokenizers; /* NULL: there is none */

typedef struct ckpt_dialect_options {
  const ckpt_index *like; /* whose config and tokenizer are the model's; NULL: the index's own */
  const char *pre;        /* --pre NAME; NULL: as recognised */
} ckpt_dialect_options;

/* The GGUF dialect of a model of a known family, under GGUF's names; vectors and norms are f32, all else as stored. It
 * borrows `from`, which must outlive it. Its notes name what it lacks. Fails with EUNSUPPORTED (no family, a class or
 * config that there is no GGUF of, a tensor that has no place in it), ENOTFOUND (config.json, a tensor that is
 * missing), EFORMAT (heads that do not divide, ...), ENOMEM. Free it with ckpt_index_free. */
ckpt_status ckpt_dialect_to_gguf(ckpt_index **out, const ckpt_index *from, const ckpt_dialect_options *options,
                                 ckpt_error *err);

/* The outtype that the converter's `auto` takes: that of the first matrix in bf16 or f16, else f16. */
ckpt_dtype ckpt_dialect_auto(const ckpt_index *from);

/* Gives an index that a GGUF file was read into, not finished, its Hugging Face dialect, and finishes it. *is_known is
 * false, and nothing is changed, where the file is of no known family, or does not fit its row in everything. */
ckpt_status ckpt_dialect_from_gguf(ckpt_index *index, bool *is_known, ckpt_error *err);

/* Whether a tensor, by Hugging Face's name, is not what the file holds. */
typedef bool ckpt_dialect_changed(const void *arg, const char *name);

/* Gives a finished model that was made of one opened from GGUF the stored form that its outputs in GGUF come from;
 * nothing where `from` has none. It borrows both. EUNSUPPORTED: a tensor that has no place in it; ENOMEM. */
ckpt_status ckpt_dialect_restore(ckpt_index *changed, const ckpt_index *from, ckpt_dialect_changed *is_changed,
                                 const void *arg, ckpt_error *err);

/* Gives a description the files of a Hugging Face folder that follow from the metadata of a GGUF model of a known
 * family, opened under Hugging Face's names; what has no place in them is a loss. EFORMAT: the metadata says other
 * sizes than its tensors have. */
ckpt_status ckpt_dialect_hf_files(ckpt_index *into, const ckpt_index *model, ckpt_losses *losses, ckpt_error *err);

/* What whoever opens a described GGUF output finds for a tensor `name` that is `expr` of `tensor` of `from`: *n
 * tensors, in their order, in the plan's arena; none where it is what is written. */
ckpt_status ckpt_dialect_as_read(ckpt_expr ***out, uint64_t *n, ckpt_plan *plan, const ckpt_index *described,
                                 const char *name, const ckpt_index *from, const ckpt_tensor *tensor, ckpt_expr *expr,
                                 ckpt_error *err);

/* The model under the names that its files have, where its tensors are those of a state dict that joins what these have
 * apart: each part is derived, all else is as it was. *out, which borrows `from`, is NULL where nothing is joined,
 * where something does not come apart, or where a part is there, too. ENOMEM. */
ckpt_status ckpt_dialect_apart(ckpt_index **out, const ckpt_index *from, ckpt_error *err);

/* Sets misfit and misfit_tensor of an index with GGUF's names, finished or not: why it fits no row of its family, or
 * NULL. Opening does this. */
void ckpt_dialect_find_misfit(ckpt_index *index);

/* Adds a problem for each thing in an index with GGUF's names, of a known family, that llama.cpp's loader refuses: keys
 * that are missing or of another type, shapes that the metadata does not give, and, unless there are more than n_before
 * problems, its misfit. path: what findings name, or NULL. Adds an unproven line for a tensor that the row lacks and
 * llama.cpp may have. ENOMEM. */
ckpt_status ckpt_dialect_check(ckpt_findings *findings, const ckpt_index *index, const char *path, size_t n_before,
                               ckpt_error *err);

/* The family of a GGUF model, by its metadata; NULL: none that is known. */
const ckpt_arch *ckpt_dialect_of_gguf(const ckpt_index *index);

/* A number of its metadata, <architecture>.<key>. */
bool ckpt_dialect_gguf_u32(const ckpt_index *index, const ckpt_arch *arch, const char *key, uint32_t *out);

/* The config.json that a GGUF model of a known family has, opened under Hugging Face's names; *out, in the arena, is
 * NULL for any other index. EUNSUPPORTED where it has something that no config.json says, ENOMEM. */
ckpt_status ckpt_dialect_config(const char **out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err);

/* The numbers by which tensors have their shapes, as a config: from the metadata, and the vocabulary from the
 * embedding. The index may be a description. Free it with ckpt_config_free. */
ckpt_status ckpt_dialect_gguf_numbers(ckpt_config **out, const ckpt_index *index, const ckpt_arch *arch,
                                      ckpt_error *err);

/* A model's numbers that transforms go by. */
typedef struct ckpt_dialect_sizes {
  uint64_t n_layers, n_heads, n_kv_heads, n_experts;
} ckpt_dialect_sizes;

/* The family and the numbers of a model, which GGUF may have been opened for. Fails as ckpt_dialect_to_gguf does. */
ckpt_status ckpt_dialect_of_model(const ckpt_arch **arch, ckpt_dialect_sizes *sizes, const ckpt_index *model,
                                  ckpt_error *err);

/* Whether a tensor of GGUF is a stack of those of several experts. */
bool ckpt_dialect_is_stacked(const ckpt_arch_name *row);

/* Whether rows change their order. */
bool ckpt_dialect_moves_rows(const ckpt_arch_name *row);

/* The rows of a matrix in GGUF's order, or (is_back) in Hugging Face's: what else the row says is not done. EFORMAT:
 * rows that no such tensor has. */
ckpt_status ckpt_dialect_move_rows(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                                   const ckpt_arch_name *row, bool is_back, ckpt_error *err);

/* x with its two axes swapped. EFORMAT: it has another number of them. */
ckpt_status ckpt_dialect_transpose(ckpt_expr **x, ckpt_arena *arena, ckpt_error *err);

/* One below the other, of one shape; parts that differ in dtype become f32. EFORMAT: they differ in shape. */
ckpt_status ckpt_dialect_stack(ckpt_expr **out, ckpt_arena *arena, ckpt_expr **parts, uint64_t n, ckpt_error *err);

/* A folder's name as a title, as the converter makes one: words in lower case get a capital, versions do not. Arena
 * text, NULL where that is full. */
const char *ckpt_dialect_title(const char *path, ckpt_arena *arena);

/* ---- within the room --------------------------------------------------------------------------------------------- */

/* How a model is sampled: general.sampling.<gguf>, and generation_config.json's key. */
typedef struct ckpt_dialect_sampling_key {
  const char *gguf, *config; /* gguf NULL ends; config as ckpt_arch_key has it */
  bool is_whole;
} ckpt_dialect_sampling_key;

extern const ckpt_dialect_sampling_key ckpt_dialect_sampling[]; /* in the converter's order */

/* Heads that the rows of a tensor are cut into. */
uint64_t ckpt_dialect_heads(const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row);

/* Whether anything but the name changes. */
bool ckpt_dialect_changes(const ckpt_arch_name *row);

/* From Hugging Face's tensor to GGUF's, but for stacking. EFORMAT: rows or axes that no such tensor has. */
ckpt_status ckpt_dialect_forth(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                               const ckpt_arch_name *row, ckpt_error *err);

/* Whether a tensor of GGUF can be one that ckpt_dialect_forth made. */
bool ckpt_dialect_fits(const ckpt_dialect_sizes *sizes, const ckpt_arch_name *row, const ckpt_tensor *tensor);

/* Back, of a stack to that of one expert. x fits. */
ckpt_status ckpt_dialect_back(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                              const ckpt_arch_name *row, uint64_t expert, ckpt_error *err);

/* x, a tensor of a row under Hugging Face's name, stacked where it is, as GGUF has it; name is GGUF's. EFORMAT: a shape
 * that does not fit. */
ckpt_status ckpt_dialect_apply(ckpt_expr **x, ckpt_arena *arena, const ckpt_dialect_sizes *sizes,
                               const ckpt_arch_name *row, const char *name, ckpt_error *err);

/* The family and the numbers of a GGUF model, by its metadata; false where it is of none, or lacks some. */
bool ckpt_dialect_gguf_sizes(const ckpt_arch **arch, ckpt_dialect_sizes *sizes, const ckpt_index *index);

/* Sets general.* and <architecture>.*, as the converter does, and the tokenizer's; what has no place is a note. */
ckpt_status ckpt_dialect_set_keys(ckpt_index *index, const ckpt_index *from, const ckpt_index *config_of,
                                  const ckpt_arch *arch, const ckpt_config *config, const char *pre, ckpt_error *err);

/* Sets general.*, but for the version of quantization: gguf_general.c. Its notes name what of generation_config.json
 * has no place. ELIMIT: that is far too long. */
ckpt_status ckpt_dialect_set_general(ckpt_index *index, const ckpt_index *config_of, const ckpt_arch *arch,
                                     ckpt_error *err);

/* A model's rotary positions, as its config.json says. */
typedef struct ckpt_dialect_rope {
  const ckpt_config *config; /* borrowed, as is the arena */
  ckpt_arena *arena;
  const char *section, *whole; /* dotted keys of the object that counts, and of the one around it, by layers; or NULL */
  const char *type;            /* "default", "linear", "llama3", "longrope", "yarn" */
  double theta, part;          /* the base; the part of a head that rotates */
} ckpt_dialect_rope;

/* EFORMAT: values that no such setting has; EUNSUPPORTED: positions that no model of the family in GGUF has. */
ckpt_status ckpt_dialect_read_rope(ckpt_dialect_rope *rope, const ckpt_arch *arch, const ckpt_config *config,
                                   ckpt_arena *arena, ckpt_error *err);

/* A number of the object that counts. */
bool ckpt_dialect_rope_number(const ckpt_dialect_rope *rope, const char *key, double *out);

/* Whether its type of scaling reads a key of that object. */
bool ckpt_dialect_rope_reads(const ckpt_dialect_rope *rope, const char *key);

/* The positions before they were scaled; 0: the config does not say. */
double ckpt_dialect_rope_positions(const ckpt_dialect_rope *rope);

/* The factors of rotary frequencies, of Llama 3.1's scaling or of longrope where its two lists are one: half a head's
 * number of them, in the arena. *out is NULL where the config has none. EFORMAT: numbers that no such scaling has; as
 * ckpt_dialect_read_rope. */
ckpt_status ckpt_dialect_rope_factors(float **out, uint64_t *n, const ckpt_arch *arch, const ckpt_config *config,
                                      ckpt_arena *arena, ckpt_error *err);

/* Prints config.json's rope_scaling of a GGUF model as JSON into the arena; *out is NULL if the model scales nothing.
 * Factors that config.json cannot say become a loss. EFORMAT: factors do not fit the heads; EUNSUPPORTED: keys and
 * factors both scale. */
ckpt_status ckpt_dialect_print_scaling(const char **out, const ckpt_index *from, const ckpt_arch *arch,
                                       ckpt_arena *arena, ckpt_losses *losses, ckpt_error *err);

/* Whether rope_scaling says the same as a key after "rope.scaling.", or that key says that nothing is scaled. */
bool ckpt_dialect_has_scaling(const ckpt_index *from, const ckpt_arch *arch, const char *key);

/* The number of a GGUF key of the family, as "context_length". */
double ckpt_dialect_gguf_number(const ckpt_index *from, const ckpt_arch *arch, const char *key, double otherwise);

/* The row for a number of the config that follows from others, and what it is then; key NULL: the first row's. NULL
 * where there is none. */
const ckpt_arch_implied *ckpt_dialect_implied(const ckpt_arch *arch, const ckpt_config *config, const char *key,
                                              uint64_t *value);

/* The first of several keys ("|" between them) whose value is a number. */
bool ckpt_dialect_number(const ckpt_config *config, const char *keys, double *out);

/* Whether a key of config.json is one of those that "|", "*" or "/" part in a text. */
bool ckpt_dialect_has_key(const char *keys, const char *key);

#endif
