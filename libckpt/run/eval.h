/* eval.h - one tile of a batch: its reads are made once, then expressions are evaluated on them. Those that are made
 * of one node (what several outputs quantize) are evaluated together, and it once. Arguments that every tile needs
 * whole are read and evaluated once for all tiles of a batch that follow each other.
 *
 * A ckpt_tile belongs to one worker and allocates nothing: buffers come from the worker's workspace, which tiles.c has
 * sized, pointers from arrays sized for the plan's largest expression. */
#ifndef CKPT_RUN_EVAL_H
#define CKPT_RUN_EVAL_H

#include "libckpt/extents/place.h"
#include "libckpt/plan/blocks.h"
#include "libckpt/plan/strips.h"

/* What an argument is that is needed whole, and what making it did to values. */
typedef struct ckpt_kept {
  const void *bytes;
  ckpt_value_stats stats;
} ckpt_kept;

/* What a tile has evaluated, for pieces still to come. */
typedef struct ckpt_made {
  const ckpt_expr *expr;
  const void *bytes;
  ckpt_value_stats stats;
} ckpt_made;

typedef struct ckpt_tile {
  const ckpt_plan *plan;
  const ckpt_batch *batch;
  const ckpt_backend *backend;
  uint64_t number;            /* of the tile in its batch */
  uint64_t first_row, n_rows; /* of it; while a piece is evaluated in strips, of the strip */
  uint64_t n_before;          /* rows of the tile before the strip */
  ckpt_block_part part;       /* of a batch in blocks, where n_rows counts cells */
  uint8_t *workspace;         /* aligned to 64 bytes */
  uint64_t n_workspace, n_used;
  uint64_t n_used_by_reads; /* of it: pieces start anew behind them */
  uint64_t n_made_bytes;    /* the same of it and of what was made */
  uint64_t n_kept_bytes;    /* of that what is kept for the batch's next tile */
  const void *kept_in;      /* the workspace that has it; NULL: none has */
  ckpt_kept *kept;          /* of each of the batch's whole arguments */
  ckpt_made made[CKPT_MAX_TOGETHER];
  uint32_t n_made;
  uint64_t n_bytes_read; /* of reads, for this tile */
  const void **reads;    /* bytes of each of the batch's in this tile */
  const void **pointers; /* argument lists of expressions under evaluation */
  uint64_t *counts;      /* their elements */
  uint32_t n_pointers;
  ckpt_reader reader;     /* of all reads, with what it keeps of their extents from tile to tile */
  uint8_t *window;        /* CKPT_WINDOW_BYTES */
  ckpt_value_stats stats; /* of the piece being evaluated */
} ckpt_tile;

/* At most, over all of a plan's pieces: nodes (lengths of pointers and counts), reads, and whole arguments of a batch
 * (length of kept). */
void ckpt_tile_needs(const ckpt_plan *plan, uint32_t *n_nodes, uint32_t *n_reads, uint32_t *n_kept);

/* Makes the reads of the batch's tile `number`. The workspace must still hold what the tile before kept. */
ckpt_status ckpt_tile_read(ckpt_tile *tile, const ckpt_batch *batch, uint64_t number, ckpt_error *err);

/* Whether a piece has been evaluated on the tile, together with one before it, whose result then stays. */
bool ckpt_tile_has(const ckpt_tile *tile, uint32_t piece);

/* Evaluates a piece, by its number, on the tile: *bytes is its result (borrowed, until the next piece that the tile has
 * not), n elements from flat index `begin` of the piece. For a reduction they are the tile's partials (ckpt_n_partials
 * of its elements), in index order.
 */
ckpt_status ckpt_tile_eval(ckpt_tile *tile, uint32_t piece, const void **bytes, ckpt_error *err);

#endif
