/* safe.h - what torch.load(weights_only=True) accepts (torch/_weights_only_unpickler.py of PyTorch 2.15) and every
 * version reads alike. Objects that we write for torch hold nothing else. */
#ifndef CKPT_CODEC_TORCH_PLAIN_SAFE_H
#define CKPT_CODEC_TORCH_PLAIN_SAFE_H

#include "libckpt/base/error.h"
#include "libckpt/index/object.h"

/* Whether a node is taken; what it holds is not looked at. Tensors are. */
bool ckpt_torch_is_safe(const ckpt_object *node);

/* What a node is an instance of that is nothing but attributes: argparse.Namespace, which most training scripts save,
 * or types.SimpleNamespace. Weights-only loading takes them once it was told to. NULL for anything else. */
const char *ckpt_torch_namespace(const ckpt_object *node);
/* The attributes of one, a DICT; NULL where it has none, and for anything else. */
const ckpt_object *ckpt_torch_attributes(const ckpt_object *node);

/* An array, scalar or dtype of numpy, of numbers; weights-only loading takes those once it was told to, too. What it
 * holds is looked at, and safe. */
typedef struct ckpt_torch_numpy {
  const char *what;     /* "numpy.ndarray", "numpy.generic", "numpy.dtype" */
  const char *function; /* that makes it, beside what; NULL: none. Borrowed */
  const char *code;     /* of its dtype: "u4". Borrowed */
} ckpt_torch_numpy;

/* Takes one apart; false for anything else. */
bool ckpt_torch_numpy_of(ckpt_torch_numpy *out, const ckpt_object *node);

/* A defaultdict, deque, frozenset, date or path, as it is written (collections.c): weights-only loading takes it
 * once it was told of globals. */
typedef struct ckpt_torch_collection {
  const char *what, *globals; /* NULL: none of these, or not of plain values */
  ckpt_object *node;
  uint32_t first; /* of its items: those before it are known to be what they may be */
} ckpt_torch_collection;

/* Takes a node as one of these; what it holds is not looked at. New nodes are the arena's. ENOMEM. */
ckpt_status ckpt_torch_collection_of(ckpt_torch_collection *out, const ckpt_object *node, ckpt_arena *arena,
                                     ckpt_error *err);

/* What is held by a namespace, defaultdict or deque: a DICT or LIST by whose keys and places tensors in it are named;
 * the node itself for anything else. */
const ckpt_object *ckpt_torch_held_by(const ckpt_object *node);

/* What a node is called where it is left out: its class, mostly. Borrowed. */
const char *ckpt_torch_class(const ckpt_object *node);

#endif
