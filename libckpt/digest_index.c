/* digest_index.c - the digest of a model from those of its tensors: where ties are taken into account. */
#include <stdlib.h>
#include <string.h>

#include "arch.h"
#include "error.h"
#include "run.h"

/* Place of a tensor in byte order of names. */
static uint32_t place_of(const ckpt_index *index, const ckpt_tensor *tensor) {
  uint32_t low = 0, high = index->n_tensors;
  while (low + 1 < high) {
    uint32_t middle = low + (high - low) / 2;
    if (strcmp(index->tensors[index->by_name[middle]].name, tensor->name) <= 0)
      low = middle;
    else
      high = middle;
  }
  return low;
}

ckpt_status ckpt_digest_index(const ckpt_index *index, const ckpt_digest *digests, ckpt_digest *out, ckpt_error *err) {
  ckpt_digest_entry *entries = calloc((size_t)index->n_tensors + 1, sizeof *entries);
  CKPT_TRY_ALLOC(entries, err);
  ckpt_hasher *hasher = NULL;
  ckpt_status status = CKPT_OK;
  size_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    entries[i] = (ckpt_digest_entry){index->tensors[index->by_name[i]].name, digests[i]};
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(index, i, &kept, &tied); i++) {
    uint32_t a = place_of(index, kept), b = place_of(index, tied);
    if (memcmp(&digests[a], &digests[b], sizeof *digests) != 0) {
      status = ckpt_fail(err, CKPT_EDIFFERENT, index->path, tied->name,
                         "differs from %s, though the config ties them (see --tied, or open with --names stored)",
                         kept->name);
      goto done;
    }
    entries[b].name = NULL;
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (entries[i].name != NULL) entries[n++] = entries[i];
  CKPT_TRY_GOTO(ckpt_hasher_new(&hasher, err));
  status = ckpt_digest_model(hasher, entries, n, out, err);
done:
  ckpt_hasher_free(hasher);
  free(entries);
  return status;
}
