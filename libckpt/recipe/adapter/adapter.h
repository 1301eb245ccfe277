/* adapter.h - LoRA adapters over a base: which tensors they change, and each one as an expression.
 *
 * Every tensor of an adapter is used, or refused by name. Several adapters: their updates are summed in the byte order
 * of their digests, before the base is added, so their order on a command line changes no byte. A merged tensor is
 * rounded once, to the dtype of the base. docs/merging.md has the formulas. */
#ifndef CKPT_RECIPE_ADAPTER_ADAPTER_H
#define CKPT_RECIPE_ADAPTER_ADAPTER_H

#include "libckpt/index/index.h"

typedef struct ckpt_adapters ckpt_adapters;

/* One adapter of a merge. */
typedef struct ckpt_adapter_request {
  const char *path; /* a folder that PEFT saved */
  double scale;     /* its updates are multiplied with */
} ckpt_adapter_request;

/* Opens n adapters of a base, which is a finished index and outlives them. Fails as ckpt_open does, and with EFORMAT,
 * EUNSUPPORTED and ENOTFOUND for what is not merged: the message names the adapter's tensor. Reads all of each adapter,
 * for its digest. */
ckpt_status ckpt_adapters_open(ckpt_adapters **out, const ckpt_index *base, const ckpt_adapter_request *requests,
                               uint32_t n, ckpt_error *err);
void ckpt_adapters_free(ckpt_adapters *adapters); /* NULL is fine */

/* Whether they change a tensor of the base. */
bool ckpt_adapters_change(const ckpt_adapters *adapters, const ckpt_tensor *tensor);

/* How many tensors of the base they change. */
size_t ckpt_adapters_count(const ckpt_adapters *adapters);

/* The merged model: an index of derived tensors, each of its base's dtype, with what else the base carries but training
 * state. It borrows the adapters and the base; release it with ckpt_index_free. Reading a changed tensor fails with
 * EVALUE at values that are not finite. */
ckpt_status ckpt_adapters_merge(ckpt_index **out, const ckpt_adapters *adapters, ckpt_error *err);

#endif
