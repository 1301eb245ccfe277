/* recompute.h - gradient checkpointing as a pass: of a layer only what it is given is kept for backward; the rest is
 * made again, by the same entries, when backward comes to the layer. Kernels give the same bits, so training does. */
#ifndef CKPT_TRAINER_MODEL_RECOMPUTE_H
#define CKPT_TRAINER_MODEL_RECOMPUTE_H

#include "trainer/model/op.h"

typedef struct ckpt_recompute {
  bool *entries; /* by entry: runs again before the backward of its layer */
  bool *values;  /* by value: its layer alone reads it, so it is let go after forward and made again */
} ckpt_recompute;

/* Looks at a tape. Everything is in the arena given. ENOMEM. */
ckpt_status ckpt_recompute_find(ckpt_recompute *out, ckpt_arena *arena, const ckpt_tape *tape, ckpt_error *err);

#endif
