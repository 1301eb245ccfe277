/* digest_index.c - the digest of a model from those of its tensors: where ties are taken into account. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/arch.h"
#include "libckpt/run/run.h"

/* What in config.json ties a name to another. */
static const char *tie_key(const ckpt_index *index, const char *tied) {
  const ckpt_arch *arch = ckpt_arch_find(index->architecture);
  if (arch == NULL) return "tie_word_embeddings";
  const ckpt_arch_tie *tie = arch->ties;
  while (tie->kept != NULL && strcmp(tie->tied, tied) != 0) tie++;
  return tie->config_key;
}

ckpt_status ckpt_digest_index(const ckpt_index *index, const ckpt_digest **digests, ckpt_digest *out, ckpt_error *err) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(index, i, &kept, &tied); i++) {
    int64_t a = ckpt_index_place(index, kept->name), b = ckpt_index_place(index, tied->name);
    if (digests[a] == NULL || digests[b] == NULL) continue;
    if (memcmp(digests[a], digests[b], sizeof **digests) != 0)
      return ckpt_advise_value(
          ckpt_fail(err, CKPT_EDIFFERENT, NULL, tied->name,
                    "differs from %s, to which config.json ties it (say \"%s\": false there, or leave one of them out, "
                    "so that the other stands for both)",
                    kept->name, tie_key(index, tied->name)),
          err, "%exclude=$", tied->name);
    digests[b] = NULL;
  }
  uint64_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) n += digests[i] != NULL;
  ckpt_hasher *hasher;
  CKPT_TRY(ckpt_hasher_new(&hasher, err));
  ckpt_status status = ckpt_digest_model_begin(hasher, n, err);
  const char *before = NULL;
  for (uint32_t i = 0; i < index->n_tensors && status == CKPT_OK; i++) {
    const char *name = index->tensors[index->by_name[i]].name;
    if (digests[i] == NULL) continue;
    status = ckpt_digest_model_add(hasher, before, name, digests[i], err);
    before = name;
  }
  if (status == CKPT_OK) status = ckpt_hasher_end(hasher, out->bytes, err);
  ckpt_hasher_free(hasher);
  return status;
}
