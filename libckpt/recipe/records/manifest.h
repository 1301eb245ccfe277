/* manifest.h - the digests of a checkpoint as a file: written by `ckpt hash -o`, checked by `ckpt verify --manifest`.
 *
 * JSON, the same bytes for the same content whatever the format, shards and paths; a line per tensor, names in byte
 * order, without the tied copy of a pair:
 *
 *   {"ckpt_manifest": 1, "digest": "ckpt1:...", "names": "hf:llama/1", "include": "model", "cast": null,
 *    "exclude": ["...", ...],
 *    "not_read": ["...", ...],
 *    "side_files": [{"name": "config.json", "n_bytes": 731, "sha256": "..."}, ...],
 *    "tensors": [
 *     {"name": "...", "dtype": "bf16", "shape": [64, 64], "digest": "ckpt1:..."},
 *     ...
 *   ]}
 *
 * `exclude` are patterns of names that were left out. `not_read` names tensors of these roles that could not be read
 * and have no digest. Each is present only if there are any. `side_files` is present only if there are any, and never
 * with a cast, which changes the config's dtype. It alone may depend on the format: some formats have no side files.
 * `names` is the naming that the digests use, with the revision of its table; a check recomputes with it. */
#ifndef CKPT_RECIPE_RECORDS_MANIFEST_H
#define CKPT_RECIPE_RECORDS_MANIFEST_H

#include "libckpt/recipe/compare/hash.h"
#include "libckpt/recipe/records/side_sums.h"

#define CKPT_MANIFEST_VERSION 1

typedef struct ckpt_manifest_entry {
  const char *name;
  const uint64_t *shape;
  ckpt_digest digest;
  uint8_t dtype, rank;
} ckpt_manifest_entry;

typedef struct ckpt_manifest {
  ckpt_arena arena; /* of names and shapes */
  ckpt_digest digest;
  const char *names, *include;
  ckpt_dtype cast;
  ckpt_manifest_entry *entries; /* in byte order of names */
  size_t n, capacity;
  const char **not_read; /* tensors that could not be read, in byte order of names */
  uint32_t n_not_read, not_read_capacity;
  const char **exclude; /* patterns that left tensors out, NULL behind the last; NULL: there are none */
  uint32_t n_exclude, exclude_capacity;
  ckpt_side_sums side_files; /* empty: none are recorded */
} ckpt_manifest;

/* The manifest of a finished hashing; it copies what it needs. If the digest of the whole cannot be formed (a tied pair
 * differs), a NULL digest_error makes that a failure; else *digest_error receives it and `digest` is zero. Free with
 * ckpt_manifest_free. */
ckpt_status ckpt_manifest_new(ckpt_manifest **out, const ckpt_hashing *hashing, ckpt_error *digest_error,
                              ckpt_error *err);
void ckpt_manifest_free(ckpt_manifest *manifest); /* NULL is fine */

/* Reads the side files of the index that was hashed into a manifest without a cast; does nothing for one with a
 * cast. Fails as ckpt_side_sums_take, with EIO if they changed meanwhile, and EUNSUPPORTED for a name that is not
 * UTF-8. */
ckpt_status ckpt_manifest_add_side_files(ckpt_manifest *manifest, const ckpt_index *from, const ckpt_run_options *run,
                                         ckpt_error *err);

/* Writes it, atomically. Fails with EEXIST unless force, and EIO. */
ckpt_status ckpt_manifest_write(const ckpt_manifest *manifest, const char *path, bool force, ckpt_error *err);

/* Reads a manifest. EFORMAT: it is not one; EUNSUPPORTED: a later version; ELIMIT: more than 1,000,000 tensors. */
ckpt_status ckpt_manifest_read(ckpt_manifest **out, const char *path, ckpt_error *err);

/* The entry with this name, or NULL. */
const ckpt_manifest_entry *ckpt_manifest_find(const ckpt_manifest *manifest, const char *name);

/* Whether two entries have one shape. */
bool ckpt_manifest_same_shape(const ckpt_manifest_entry *a, const ckpt_manifest_entry *b);

/* How many tensors are f32 in one of two manifests and shorter floats in the other, as norms are in GGUF, where all
 * else is equal: names, shapes, other digests. 0: there is more to it. *first is a's entry of the first. */
size_t ckpt_manifest_n_widened(const ckpt_manifest *a, const ckpt_manifest *b, const ckpt_manifest_entry **first);

#endif
