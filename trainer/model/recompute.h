/* recompute.h - gradient checkpointing as a pass: what a layer makes is not kept for backward, but made again, by the
 * same entries, when backward comes to the layer. Full recomputation keeps what the layer is given; selective keeps
 * what costly entries make too (products, attention, collectives). Kernels give the same bits, so training does. */
#ifndef CKPT_TRAINER_MODEL_RECOMPUTE_H
#define CKPT_TRAINER_MODEL_RECOMPUTE_H

#include "trainer/model/op.h"

typedef struct ckpt_recompute {
  bool *entries; /* by entry: runs again before the backward of its layer */
  bool *values;  /* by value: its layer alone reads it, so it is let go after forward and made again */
} ckpt_recompute;

/* Looks at a tape; kind: not CKPT_RECOMPUTE_NONE. Everything is in the arena given. ENOMEM. */
ckpt_status ckpt_recompute_find(ckpt_recompute *out, ckpt_arena *arena, const ckpt_tape *tape, ckpt_recompute_kind kind,
                                ckpt_error *err);

#endif
