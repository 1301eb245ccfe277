/* optimizer.h - private to optimizer.c, which reads the optimizer that a trainer saved beside a model, and order.c,
 * which finds the parameter of each state. */
#ifndef CKPT_FORMATS_HF_OPTIMIZER_H
#define CKPT_FORMATS_HF_OPTIMIZER_H

#include "libckpt/codec/torch/read/file.h"
#include "libckpt/index/arch.h"

enum { CKPT_HF_WHY_BYTES = 512 }; /* of the reason why an optimizer is not taken */

typedef struct ckpt_hf_optimizer {
  ckpt_index *index;
  const ckpt_arch *arch; /* NULL: none that is known */
  ckpt_side_file *side;
  ckpt_index *held; /* the file as an index of its own: the leaves of its object are numbers of it */
  ckpt_torch_graph graph;
  ckpt_arena nodes;
  const ckpt_object *states, *groups;   /* DICT, LIST of DICTs with a LIST of params */
  bool is_named;                        /* parameters are texts, not numbers */
  bool is_adapter;                      /* they are an adapter's, of a base of arch */
  uint64_t n_numbered;                  /* parameters in all groups */
  uint32_t *members, *params;           /* tensors: of each parameter, group after group; of each state */
  uint32_t n_params, n_decay, n_leaves; /* of members, that decay, and leaves that are states */
  char why[CKPT_HF_WHY_BYTES];          /* it is not taken */
} ckpt_hf_optimizer;

/* Says why it is not taken: false. */
bool ckpt_hf_refuse(ckpt_hf_optimizer *o, const char *format, ...) CKPT_PRINTF(2, 3);

/* Finds members and params, which have room for all tensors of the index; *fits is false where that is not certain, and
 * said. EIO, ENOMEM. */
ckpt_status ckpt_hf_order(ckpt_hf_optimizer *o, bool *fits, ckpt_error *err);

#endif
