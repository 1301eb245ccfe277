/* copy.h - copies objects for torch.save files: plain data that torch.load(weights_only=True) accepts (safe.h), in part
 * after add_safe_globals, and the tensors that are written. Other parts are left out and counted (left_out.c): dicts
 * lose such an entry, lists and tuples have None in its place, and a call with such an argument is left out itself. A
 * namespace stays. */
#ifndef CKPT_CODEC_TORCH_PLAIN_COPY_H
#define CKPT_CODEC_TORCH_PLAIN_COPY_H

#include "libckpt/base/node_map.h"
#include "libckpt/format/format.h"

/* What was left out of an object that is written. Zero-initialise it; texts are borrowed, or an arena's. */
enum { CKPT_TORCH_LEFT_OUT_KINDS = 16 };
typedef struct ckpt_torch_left_out {
  const char *names[CKPT_TORCH_LEFT_OUT_KINDS];
  const char *places[CKPT_TORCH_LEFT_OUT_KINDS]; /* of the first: " at a.b"; "" for the root */
  uint64_t n[CKPT_TORCH_LEFT_OUT_KINDS], n_others;
  uint32_t n_kinds;
  uint64_t n_cycles, n_optimizers; /* the caller's: objects within themselves, optimizers without a state */
  const char *holder;              /* the first that goes with tensors: class and place; NULL: none */
  uint64_t n_steps;                /* of looking for those */
} ckpt_torch_left_out;

/* Counts a node at `where`. held: what is left out with it and may have tensors; NULL if none are written. */
void ckpt_torch_left_out_add(ckpt_torch_left_out *out, const ckpt_object *node, const char *where,
                             const ckpt_object *held, ckpt_arena *arena);
/* Says all of it. ENOMEM. */
ckpt_status ckpt_torch_left_out_say(const ckpt_torch_left_out *out, ckpt_losses *losses, ckpt_error *err);

/* Makes the copy of a quantized tensor's call one that can be written; *is_settled is false where it cannot. */
typedef ckpt_status ckpt_torch_settle(void *arg, bool *is_settled, ckpt_object *call, ckpt_error *err);

/* Copies of one description's objects, which share what they shared. Set what is above the line, zero-initialise the
 * rest; free with ckpt_torch_copier_free. */
typedef struct ckpt_torch_copier {
  ckpt_arena *arena;
  ckpt_index *described;   /* what is written */
  const uint32_t *numbers; /* by the number of a leaf: the tensor described, UINT32_MAX: none; NULL: none is written */
  uint32_t n_numbers;
  const char *at; /* where the root stands; NULL: nowhere */
  size_t n_at;
  bool has_notes;            /* the description gets notes of what loading takes */
  bool keeps_numbers;        /* leaves keep theirs, else they get that of the tensor described */
  bool is_whole;             /* a root without a part is left out, also one that is within itself, or too deep */
  ckpt_torch_settle *settle; /* NULL: quantized tensors stay as they were */
  void *arg;
  /* ---- */
  ckpt_torch_left_out out;          /* of copies that are not whole */
  const char *refused;              /* by the last copy where they are: a class; NULL: none */
  uint64_t n_leaves, n_leaves_kept; /* met so far */
  ckpt_object *result;              /* of the last node; NULL: left out */
  ckpt_node_map map;
  struct ckpt_torch_frame *path;
  uint32_t n_path, capacity;
} ckpt_torch_copier;

/* Copies a graph; *out is NULL where the root itself is left out. ENOMEM. */
ckpt_status ckpt_torch_copy(ckpt_torch_copier *copier, const ckpt_object *root, ckpt_object **out, ckpt_error *err);

void ckpt_torch_copier_free(ckpt_torch_copier *copier); /* the matching end */

/* Keeps the first of a dict's entries with the same text key and reports the others; Python would keep the last.
 * ENOMEM. */
ckpt_status ckpt_torch_drop_repeated(ckpt_object *dict, ckpt_losses *losses, ckpt_error *err);

#endif
