/* extract.h - the LoRA adapter that makes one model of another: what differs between them, as low-rank factors.
 *
 * Of each matrix of a linear layer the difference is decomposed in f64 (svd.h), and its factors are kept as f32, the
 * root of each singular value in either. Whatever else differs is stored whole (modules_to_save, biases). Factors wait
 * in a file without a name, so that memory is that of the largest matrix. docs/merging.md has the formulas. */
#ifndef CKPT_RECIPE_EXTRACT_EXTRACT_H
#define CKPT_RECIPE_EXTRACT_EXTRACT_H

#include "libckpt/index/index.h"

/* The revision of what decides bytes: formulas, the random start, the order of sums, what is stored whole and under
 * which names. Receipts record it. 2: names and modules are those that PEFT finds in the model. */
#define CKPT_EXTRACT_RULES "2"

typedef struct ckpt_extraction ckpt_extraction;

typedef struct ckpt_extract_options {
  const char *tuned_path; /* as the user gave it, for receipts; else NULL */
  const char *base_name;  /* what adapter_config.json calls the base; NULL: its path */
  uint32_t rank;          /* of every matrix, or its smaller side; 0: energy says */
  double energy;          /* share of the squared norm of each difference that its factors have, above 0 and below 1 */
  const char *const *exclude; /* patterns of names that are left out; NULL-terminated, or NULL. They outlive the call */
} ckpt_extract_options;

/* The base that it was opened with, and its options. */
const ckpt_index *ckpt_extract_base(const ckpt_extraction *extraction);
const ckpt_extract_options *ckpt_extract_options_of(const ckpt_extraction *extraction); /* as above */

/* What became of one tensor, in the order of the tuned model. */
typedef struct ckpt_extracted {
  const char *name;
  const ckpt_tensor *tensor;
  bool is_linear;
  uint64_t rank; /* of a linear layer's factors; 0: it does not differ */
  double norm;   /* of the difference (Frobenius) */
  double error;  /* of what the factors, as they are stored, leave of it */
} ckpt_extracted;

/* Pairs the tensors of two models, which are finished indexes and outlive the result; reads headers alone. EINVAL: rank
 * above every matrix, energy; EDIFFERENT: a parameter that only one has, or has in another shape; EUNSUPPORTED: a
 * dtype, or a tensor that cannot be read and is not left out; ENOTFOUND: a pattern matches nothing. Buffers are left
 * out. */
ckpt_status ckpt_extract_open(ckpt_extraction **out, const ckpt_index *base, const ckpt_index *tuned,
                              const ckpt_extract_options *options, ckpt_error *err);
void ckpt_extract_free(ckpt_extraction *extraction); /* NULL is fine */

/* What it takes: bytes of memory (with energy at most), bytes that are read, and linear layers and other tensors. */
typedef struct ckpt_extract_plan {
  uint64_t memory, n_bytes_read, n_linear, n_others;
  const ckpt_tensor *largest; /* linear layer, or NULL */
  uint64_t n_bytes_factors;   /* at most */
} ckpt_extract_plan;

/* From the headers alone. */
void ckpt_extract_describe(ckpt_extract_plan *out, const ckpt_extraction *extraction);

/* Reads both models and decomposes; folder is where the file of the factors may lie. EVALUE: a difference that is not
 * finite, or models that do not differ; ELIMIT: energy takes a rank that saves
 * nothing; EIO, ENOMEM, ECANCELED. */
ckpt_status ckpt_extract_run(ckpt_extraction *extraction, const char *folder, const ckpt_run_options *run,
                             ckpt_error *err);

/* The i-th tensor after the run; false past the last. */
bool ckpt_extract_at(const ckpt_extraction *extraction, size_t i, ckpt_extracted *out);

/* The adapter as an index that PEFT's folder is written of. It borrows the extraction and the tuned model. */
ckpt_status ckpt_extract_adapter(ckpt_index **out, const ckpt_extraction *extraction, ckpt_error *err);

#endif
