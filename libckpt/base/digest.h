/* digest.h - the content digest ckpt1, specified in docs/digest.md. This is its only implementation.
 *
 * A tensor's row-major little-endian bytes are cut into leaves of 1 MiB (the last one short; none for an empty tensor).
 * tensor = SHA-256("ckpt1 tensor\n" dtype "\n" rank (u64) shape (u64 each) n_bytes (u64) leaf digests...)
 * model  = SHA-256("ckpt1 model\n" n_tensors (u64), then per tensor in byte order of names: n_name (u64) name tensor)
 * Leaf = SHA-256(bytes). Integers little-endian. */
#ifndef CKPT_BASE_DIGEST_H
#define CKPT_BASE_DIGEST_H

#include "libckpt/base/backend.h"
#include "libckpt/ckpt.h"

#define CKPT_LEAF_BYTES (UINT64_C(1) << 20)

typedef struct ckpt_hasher ckpt_hasher; /* one SHA-256 context, reusable; one per thread */

/* A reusable context; free with ckpt_hasher_free (NULL is fine). */
ckpt_status ckpt_hasher_new(ckpt_hasher **out, ckpt_error *err);
void ckpt_hasher_free(ckpt_hasher *hasher); /* as above */

/* SHA-256 in steps: begin, add any number of times, end. These fail only where OpenSSL does: begin with
 * ENOMEM, the others with EINTERNAL. */
ckpt_status ckpt_hasher_begin(ckpt_hasher *hasher, ckpt_error *err);
ckpt_status ckpt_hasher_add(ckpt_hasher *hasher, const void *bytes, size_t n_bytes, ckpt_error *err); /* as above */
ckpt_status ckpt_hasher_end(ckpt_hasher *hasher, uint8_t digest[32], ckpt_error *err);                /* as above */

/* The same for SHA-1, for checksums that files state; it proves nothing against forgery. Begin fails with EUNSUPPORTED
 * if OpenSSL forbids it. */
ckpt_status ckpt_hasher_begin_sha1(ckpt_hasher *hasher, ckpt_error *err);
ckpt_status ckpt_hasher_end_sha1(ckpt_hasher *hasher, uint8_t digest[20], ckpt_error *err); /* as above */

/* SHA-256 of one leaf. */
ckpt_status ckpt_digest_leaf(ckpt_hasher *hasher, const void *bytes, size_t n_bytes, uint8_t leaf[32], ckpt_error *err);

/* SHA-256 of each of n whole leaves; they need not be contiguous. */
ckpt_status ckpt_digest_leaves(ckpt_hasher *hasher, const ckpt_backend *backend, const uint8_t *const *bytes, size_t n,
                               uint8_t (*leaves)[32], ckpt_error *err);

/* Number of leaves of n_bytes. */
uint64_t ckpt_digest_n_leaves(uint64_t n_bytes);

/* A tensor's digest from its description and leaves (n_leaves(n_bytes) of 32 bytes). */
ckpt_status ckpt_digest_tensor(ckpt_hasher *hasher, ckpt_dtype dtype, uint32_t rank, const uint64_t *shape,
                               uint64_t n_bytes, const uint8_t *leaves, ckpt_digest *out, ckpt_error *err);

/* A model's digest in steps: begin with the number of tensors, add each in byte order of names, then ckpt_hasher_end.
 * `before` is the name added before, NULL for the first. EEXIST: a name that does not come after it. */
ckpt_status ckpt_digest_model_begin(ckpt_hasher *hasher, uint64_t n_tensors, ckpt_error *err);
ckpt_status ckpt_digest_model_add(ckpt_hasher *hasher, const char *before, const char *name, const ckpt_digest *digest,
                                  ckpt_error *err); /* as above */

/* Parses "ckpt1:<64 hex>"; false if it is not one. */
bool ckpt_digest_parse(const char *text, ckpt_digest *out);

#endif
