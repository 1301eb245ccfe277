/* digest.c - ckpt1 over OpenSSL's SHA-256.
 *
 * The algorithm is fetched once per hasher (a fetch takes locks and costs more than a short hash) and its context is
 * reused; OpenSSL 3.0 still allocates some hundred bytes at each begin, its only way to fail. docs/digest.md is the
 * specification. */
#include "libckpt/base/digest.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"

struct ckpt_hasher {
  EVP_MD *sha256;
  EVP_MD_CTX *context;
};

ckpt_status ckpt_hasher_new(ckpt_hasher **out, ckpt_error *err) {
  ckpt_hasher *hasher = calloc(1, sizeof *hasher);
  CKPT_TRY_ALLOC(hasher, err);
  /* OpenSSL does not survive a failed start of its own: look at it before use. */
  if (OSSL_LIB_CTX_get0_global_default() != NULL) hasher->sha256 = EVP_MD_fetch(NULL, "SHA256", NULL);
  hasher->context = EVP_MD_CTX_new();
  if (hasher->sha256 == NULL || hasher->context == NULL) {
    ckpt_hasher_free(hasher);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "cannot set up SHA-256 (out of memory, or OpenSSL lacks it)");
  }
  *out = hasher;
  return CKPT_OK;
}

void ckpt_hasher_free(ckpt_hasher *hasher) {
  if (hasher == NULL) return;
  EVP_MD_CTX_free(hasher->context);
  EVP_MD_free(hasher->sha256);
  free(hasher);
}

static ckpt_status check(int ok, ckpt_error *err) {
  return ok ? CKPT_OK : ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "SHA-256 failed in OpenSSL");
}

ckpt_status ckpt_hasher_begin(ckpt_hasher *hasher, ckpt_error *err) {
  if (EVP_DigestInit_ex2(hasher->context, hasher->sha256, NULL)) return CKPT_OK;
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

ckpt_status ckpt_hasher_add(ckpt_hasher *hasher, const void *bytes, size_t n_bytes, ckpt_error *err) {
  return check(EVP_DigestUpdate(hasher->context, bytes, n_bytes), err);
}

ckpt_status ckpt_hasher_end(ckpt_hasher *hasher, uint8_t digest[32], ckpt_error *err) {
  return check(EVP_DigestFinal_ex(hasher->context, digest, NULL), err);
}

ckpt_status ckpt_hasher_begin_sha1(ckpt_hasher *hasher, ckpt_error *err) {
  if (EVP_DigestInit_ex2(hasher->context, EVP_sha1(), NULL)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no SHA-1 from OpenSSL here (or memory is out)");
}

ckpt_status ckpt_hasher_end_sha1(ckpt_hasher *hasher, uint8_t digest[20], ckpt_error *err) {
  return check(EVP_DigestFinal_ex(hasher->context, digest, NULL), err);
}

ckpt_status ckpt_digest_leaf(ckpt_hasher *hasher, const void *bytes, size_t n_bytes, uint8_t leaf[32],
                             ckpt_error *err) {
  CKPT_TRY(ckpt_hasher_begin(hasher, err));
  CKPT_TRY(ckpt_hasher_add(hasher, bytes, n_bytes, err));
  return ckpt_hasher_end(hasher, leaf, err);
}

ckpt_status ckpt_digest_leaves(ckpt_hasher *hasher, const ckpt_backend *backend, const uint8_t *const *bytes, size_t n,
                               uint8_t (*leaves)[32], ckpt_error *err) {
  size_t n_done = backend->hash_leaves == NULL ? 0 : backend->hash_leaves(bytes, n, leaves);
  for (; n_done < n; n_done++) CKPT_TRY(ckpt_digest_leaf(hasher, bytes[n_done], CKPT_LEAF_BYTES, leaves[n_done], err));
  return CKPT_OK;
}

uint64_t ckpt_digest_n_leaves(uint64_t n_bytes) { return n_bytes / CKPT_LEAF_BYTES + (n_bytes % CKPT_LEAF_BYTES != 0); }

static ckpt_status add_text(ckpt_hasher *hasher, const char *text, ckpt_error *err) {
  return ckpt_hasher_add(hasher, text, strlen(text), err);
}

static ckpt_status add_u64(ckpt_hasher *hasher, uint64_t value, ckpt_error *err) {
  uint8_t bytes[8];
  ckpt_put_le64(bytes, value);
  return ckpt_hasher_add(hasher, bytes, sizeof bytes, err);
}

ckpt_status ckpt_digest_tensor(ckpt_hasher *hasher, ckpt_dtype dtype, uint32_t rank, const uint64_t *shape,
                               uint64_t n_bytes, const uint8_t *leaves, ckpt_digest *out, ckpt_error *err) {
  uint64_t n_elements, n_expected;
  if (!ckpt_product_u64(shape, rank, &n_elements) || !ckpt_dtype_bytes(dtype, n_elements, &n_expected) ||
      n_expected != n_bytes)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "digest of %llu bytes that do not fit %s and the shape",
                     (unsigned long long)n_bytes, ckpt_dtype_name(dtype));
  CKPT_TRY(ckpt_hasher_begin(hasher, err));
  CKPT_TRY(add_text(hasher, "ckpt1 tensor\n", err));
  CKPT_TRY(add_text(hasher, ckpt_dtype_name(dtype), err));
  CKPT_TRY(add_text(hasher, "\n", err));
  CKPT_TRY(add_u64(hasher, rank, err));
  for (uint32_t axis = 0; axis < rank; axis++) CKPT_TRY(add_u64(hasher, shape[axis], err));
  CKPT_TRY(add_u64(hasher, n_bytes, err));
  /* An index holds at most INT64_MAX bytes per tensor: 32 bytes of leaf per MiB cannot overflow. */
  CKPT_TRY(ckpt_hasher_add(hasher, leaves, (size_t)ckpt_digest_n_leaves(n_bytes) * 32, err));
  return ckpt_hasher_end(hasher, out->bytes, err);
}

ckpt_status ckpt_digest_model_begin(ckpt_hasher *hasher, uint64_t n_tensors, ckpt_error *err) {
  CKPT_TRY(ckpt_hasher_begin(hasher, err));
  CKPT_TRY(add_text(hasher, "ckpt1 model\n", err));
  return add_u64(hasher, n_tensors, err);
}

ckpt_status ckpt_digest_model_add(ckpt_hasher *hasher, const char *before, const char *name, const ckpt_digest *digest,
                                  ckpt_error *err) {
  const int order = before == NULL ? -1 : strcmp(before, name);
  if (order >= 0)
    return ckpt_fail(err, CKPT_EEXIST, NULL, name, "%s in one digest", order == 0 ? "counted twice" : "out of order");
  CKPT_TRY(add_u64(hasher, strlen(name), err));
  CKPT_TRY(add_text(hasher, name, err));
  return ckpt_hasher_add(hasher, digest->bytes, sizeof digest->bytes, err);
}

const char *ckpt_digest_text(const ckpt_digest *digest, char *out) {
  static const char digits[] = "0123456789abcdef";
  memcpy(out, "ckpt1:", 6);
  for (size_t i = 0; i < 32; i++) {
    out[6 + 2 * i] = digits[digest->bytes[i] >> 4];
    out[7 + 2 * i] = digits[digest->bytes[i] & 15];
  }
  out[70] = '\0';
  return out;
}

static int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

bool ckpt_digest_parse(const char *text, ckpt_digest *out) {
  if (strncmp(text, "ckpt1:", 6) != 0 || strlen(text) != 70) return false;
  ckpt_digest digest;
  for (size_t i = 0; i < 32; i++) {
    int high = hex_value(text[6 + 2 * i]), low = hex_value(text[7 + 2 * i]);
    if (high < 0 || low < 0) return false;
    digest.bytes[i] = (uint8_t)(high * 16 + low);
  }
  *out = digest;
  return true;
}
