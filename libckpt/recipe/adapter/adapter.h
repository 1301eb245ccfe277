/* adapter.h - LoRA adapters over a base: which tensors they change, and each one as an expression.
 *
 * Every tensor of an adapter is used, or refused by name. The updates of several are summed in the byte order of their
 * digests, before the base is added: their order on a command line changes no byte. A merged tensor is
 * rounded once, to the dtype of the base or to the one that it is cast to. docs/merging.md has the formulas. */
#ifndef CKPT_RECIPE_ADAPTER_ADAPTER_H
#define CKPT_RECIPE_ADAPTER_ADAPTER_H

#include "libckpt/index/index.h"

typedef struct ckpt_adapters ckpt_adapters;

/* The formulas and the order of sums: others would give other bytes. 2: an attention's out_proj gets its update twice,
 * an expert gets its own, and f32 decides whether what was trained in f32 is the base's. */
#define CKPT_MERGE_RULES "2"

/* One adapter of a merge. */
typedef struct ckpt_adapter_request {
  const char *path; /* a folder that PEFT saved, or an adapter of llama.cpp's */
  double scale;     /* its updates are multiplied with */
} ckpt_adapter_request;

typedef struct ckpt_adapter_options {
  const char *combine; /* several adapters: "cat" (NULL too) adds up their updates */
  /* Weights that are tied, input embedding and output head, and that would not change in the same way: "keep" (NULL
   * too) fails, with "untie" they become two tensors and the config says so. "error" fails wherever one changes. */
  const char *tied;
  bool allow_noop;    /* an adapter may change nothing: its scale or alpha is 0, or every B is zero */
  bool allow_partial; /* modules that the config names may lack tensors */
  uint64_t memory;    /* bytes for reading adapters; 0: as ckpt_run_options */
  uint32_t n_threads; /* of these reads; 0: one per processor */
  const ckpt_index
      *first; /* the only adapter, opened, which outlives them, and has no digest; NULL: its path is opened */
} ckpt_adapter_options;

/* One adapter, as receipts state it; borrowed from the adapters. */
typedef struct ckpt_adapter_info {
  const char *path; /* as it was given */
  uint32_t request; /* number of its request */
  double scale;
  ckpt_digest digest;
  const ckpt_digest *base; /* content of the base that it was trained on, where ckpt-train has recorded that; or NULL */
  const ckpt_index *index;
} ckpt_adapter_info;

/* What one adapter does to one tensor of the merged model. rank 0: its tensor takes the base's place. */
typedef struct ckpt_adapter_effect {
  uint32_t adapter; /* number of ckpt_adapters_at */
  const char *name;
  uint64_t rank;
  double scale; /* of B x A, the request's included */
} ckpt_adapter_effect;

/* Opens n adapters of a base, which is a finished index and outlives them; options may be NULL. Fails as ckpt_open
 * does, with EINVAL for an option or a scale, and with EFORMAT, EUNSUPPORTED, EVALUE and ENOTFOUND for what it does not
 * merge: the message names the adapter's tensor. Reads all of each adapter, for its digest and to find what is not
 * finite. */
ckpt_status ckpt_adapters_open(ckpt_adapters **out, const ckpt_index *base, const ckpt_adapter_request *requests,
                               uint32_t n, const ckpt_adapter_options *options, ckpt_error *err);
void ckpt_adapters_free(ckpt_adapters *adapters); /* NULL is fine */

/* What they were opened with. */
const ckpt_index *ckpt_adapters_base(const ckpt_adapters *adapters);
const ckpt_adapter_options *ckpt_adapters_options(const ckpt_adapters *adapters); /* as above */

/* The i-th adapter, in the byte order of their digests; false past the last. */
bool ckpt_adapters_at(const ckpt_adapters *adapters, uint32_t i, ckpt_adapter_info *info);

/* The i-th effect; false past the last. Those on one tensor stand together, in the order of their adapters. */
bool ckpt_adapters_effect(const ckpt_adapters *adapters, size_t i, ckpt_adapter_effect *effect);

/* Whether they change a tensor of the base, under any of its names. */
bool ckpt_adapters_change(const ckpt_adapters *adapters, const ckpt_tensor *tensor);

/* How many tensors of the merged model they change or add. */
size_t ckpt_adapters_count(const ckpt_adapters *adapters);

/* The merged model: an index of derived tensors, each of its base's dtype (blocks become f32). It keeps what else the
 * base carries, but no training state, and takes tokenizer files of the adapters. It borrows the adapters and the base;
 * release it with ckpt_index_free. */
ckpt_status ckpt_adapters_merge(ckpt_index **out, const ckpt_adapters *adapters, ckpt_error *err);

#endif
