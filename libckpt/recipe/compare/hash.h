/* hash.h - digests of the tensors of an index and of the whole: rows that are digested and not written. */
#ifndef CKPT_RECIPE_COMPARE_HASH_H
#define CKPT_RECIPE_COMPARE_HASH_H

#include "libckpt/recipe/compare/prove.h"

/* Zero-initialise it. Items are the tensors in byte order of names. */
typedef struct ckpt_hashing {
  const ckpt_index *from;
  const char *include;
  const char *const *exclude; /* patterns, or NULL */
  ckpt_dtype cast;
  bool is_quantized;
  ckpt_digest *digests; /* of the tensors that are included, by their place in byte order of names; owned */
  bool sums_files;      /* files of the training state are summed apart: they need not be understood */
  bool *is_left_out;    /* by pattern, by the same place; NULL: none is; owned */
} ckpt_hashing;

/* Borrows from and the options' text. NULL options: the model as stored. EINVAL (include), ENOMEM. */
ckpt_status ckpt_hashing_start(ckpt_hashing *hashing, const ckpt_index *from, const ckpt_hash_options *options,
                               ckpt_error *err);
void ckpt_hashing_end(ckpt_hashing *hashing); /* a zeroed one is fine */

/* Leaves out the tensors whose names match a pattern (NULL-terminated, or NULL; borrowed): before any other use. With
 * is_strict a tensor that stays and is not read is EUNSUPPORTED, and a pattern that matches nothing ENOTFOUND. EINVAL
 * for a bad pattern, and for one name of a tensor that keeps another; ENOMEM. */
ckpt_status ckpt_hashing_choose(ckpt_hashing *hashing, const char *const *exclude, bool is_strict, ckpt_error *err);

/* The tensor at a place, or NULL if it is not included. */
const ckpt_tensor *ckpt_hashing_at(const ckpt_hashing *hashing, size_t place);

/* Whether a digest was taken. For an unreadable tensor all its bytes are zero. */
bool ckpt_digest_is_taken(const ckpt_digest *digest);

/* As ckpt_proof's add and take; EUNSUPPORTED for a cast of what needs its scales. */
ckpt_status ckpt_hashing_add(const ckpt_hashing *hashing, ckpt_plan *plan, size_t first, size_t end, ckpt_error *err);
void ckpt_hashing_take(ckpt_hashing *hashing, const ckpt_plan *plan); /* as above */

/* Both as a proof of their own, which borrows hashing. */
ckpt_proof ckpt_hashing_proof(ckpt_hashing *hashing);

/* Once all is taken: the digest of the whole, or of those tensors that have one. A tied pair that is stored twice
 * counts once; EDIFFERENT where its two differ. */
ckpt_status ckpt_hashing_result(const ckpt_hashing *hashing, ckpt_digest *out, ckpt_error *err);

/* Whether two namings can give a tensor the same name: they are equal, or both without architecture ("stored",
 * "hf:any/1"), which agree if nothing wraps the names. */
bool ckpt_names_agree(const char *a, const char *b);

#endif
