/* blocks.h - tiles in two dimensions, for batches that transpose.
 *
 * For a transposed tensor, a tile of whole output rows reads a few elements of every stored row: many short runs. A
 * block cuts the output along stored rows and across them, so that runs are long on both sides. A block is not a range
 * of the row's output, so its digests are read back. Therefore blocks are used only if runs would be shorter than
 * CKPT_BLOCK_RUN_BYTES, or nothing else fits. */
#ifndef CKPT_PLAN_BLOCKS_H
#define CKPT_PLAN_BLOCKS_H

#include "libckpt/plan/plan.h"

/* Runs of a transposed tensor that are shorter than this call for blocks. */
#define CKPT_BLOCK_RUN_BYTES 4096

/* How the reads of a batch, which are all seen alike, are cut. A cell is one place on both cut axes; the batch's rows
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

/* Whether every piece of the batch transposes (and perhaps casts) equal boxes, and its output accepts blocks. Then
 * *block names the axes. */
bool ckpt_block_find(const ckpt_plan *plan, const ckpt_batch *batch, ckpt_block *block);

/* Cuts it into tiles of at most n_cells cells, as square as the matrix allows; returns their number. */
uint64_t ckpt_block_cut(ckpt_block *block, uint64_t n_cells);

/* The part that is tile `number`. */
ckpt_block_part ckpt_block_at(const ckpt_block *block, uint64_t number);

#endif
