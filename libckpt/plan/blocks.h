/* blocks.h - tiles in two dimensions, for batches that transpose.
 *
 * A tile that is a range of whole output rows reads, of a transposed tensor, a few elements of every stored row: short
 * runs, and many. A block cuts the output along two axes, the one that stored rows run along and the one that walks
 * them, so that runs are long on both sides. What it writes is no range of the row's output, so that digests are read
 * back: blocks are taken only where runs would be shorter than CKPT_BLOCK_RUN_BYTES, or nothing else fits. */
#ifndef CKPT_PLAN_BLOCKS_H
#define CKPT_PLAN_BLOCKS_H

#include "libckpt/plan/plan.h"

/* Shorter runs of a transposed tensor are a reason for blocks. */
#define CKPT_BLOCK_RUN_BYTES 4096

/* How the leaves of a batch, which are all seen alike, are cut. A cell is one place on both cut axes; the batch's rows
 * (plan.h) are cells. */
struct ckpt_block {
  uint32_t lead;           /* axes before it are those stored: one place on them per tile */
  uint32_t row_axis;       /* of the stored box: what the view's axis `lead` walks */
  uint64_t n_outer;        /* places on the axes before lead */
  uint64_t n_rows, n_cols; /* cells: length of row_axis, and of the stored axis `lead` */
  uint64_t n_between;      /* places on the view's axes between its rows and its columns */
  uint64_t tile_rows, tile_cols;
};

/* One tile of a block. */
typedef struct ckpt_block_part {
  uint64_t outer, first_row, n_rows, first_col, n_cols;
} ckpt_block_part;

/* Whether every piece of the batch is a transposition, maybe cast, of equal boxes, and goes where blocks can be
 * written; then *block says along which axes. */
bool ckpt_block_find(const ckpt_plan *plan, const ckpt_batch *batch, ckpt_block *block);

/* Cuts it into tiles of at most n_cells cells, as square as the matrix allows; returns their number. */
uint64_t ckpt_block_cut(ckpt_block *block, uint64_t n_cells);

/* The part that is tile `number`. */
ckpt_block_part ckpt_block_at(const ckpt_block *block, uint64_t number);

#endif
