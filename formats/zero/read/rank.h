/* rank.h - one optimizer file of a ZeRO checkpoint. Private to ranks.c, which opens the files and puts the ranks
 * together, and slots.c, which reads what a file keeps. */
#ifndef CKPT_FORMATS_ZERO_READ_RANK_H
#define CKPT_FORMATS_ZERO_READ_RANK_H

#include "formats/zero/read/zero.h"

/* One rank's file, and where things are in it. */
typedef struct ckpt_zero_rank {
  ckpt_zero_file file;
  const ckpt_object *inner;  /* DICT: the optimizer's */
  const ckpt_object *flats;  /* LIST of tensors */
  const ckpt_object *states; /* DICT by number, or LIST; NULL: there are none */
  const ckpt_object *groups; /* LIST; NULL: not said */
  int64_t stage;             /* -1: not said, by BF16_Optimizer */
  int64_t world;             /* -1: not said */
} ckpt_zero_rank;

/* ---- ranks.c ---- */

/* EFORMAT: what is wrong makes it no optimizer file. */
ckpt_status ckpt_zero_bad_rank(const ckpt_zero_rank *r, const char *what, ckpt_error *err);

/* ---- slots.c ---- */

/* What says the step of a group: its state, or the optimizer's group; NULL: nothing. */
const ckpt_object *ckpt_zero_step_in(const ckpt_zero_rank *r, uint64_t group);

/* The slots of the checkpoint, by what its first rank keeps. */
ckpt_status ckpt_zero_find_slots(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err);

/* Adds a rank's flats, one for each group. EFORMAT, EUNSUPPORTED: it has not what the slots say, or more. */
ckpt_status ckpt_zero_add_flats(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err);

#endif
