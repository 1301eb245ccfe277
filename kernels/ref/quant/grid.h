/* grid.h - private to kernels: the grids of the IQ1, IQ2 and IQ3 types.
 *
 * Their codes are not levels of single elements but numbers of grid points, which stand for 8 levels (IQ1, IQ2: each 0
 * to 2) or 4 (IQ3: 0 to 7). Levels found by rounding, a cell, are seldom a point; then the best of the points nearest
 * to the cell is taken, those at its smallest one, two or three distances. The lists of these are made once per
 * process, from the points alone. */
#ifndef CKPT_KERNELS_REF_QUANT_GRID_H
#define CKPT_KERNELS_REF_QUANT_GRID_H

#include "kernels/ref/quant/quant.h"

/* Levels of a point, and cells of a grid, at most; and what vectors may read behind the lists. */
enum { CKPT_GRID_MAX_AXES = 8, CKPT_GRID_MAX_CELLS = 6561, CKPT_GRID_SLACK = 16 };

/* Immutable once made. */
typedef struct ckpt_grid {
  uint32_t n_points, n_axes, radix, n_cells;   /* levels below radix; radix^n_axes cells */
  uint32_t n_bits;                             /* of a level in a packed point, whose first level stands lowest */
  const uint8_t (*levels)[CKPT_GRID_MAX_AXES]; /* of each point */
  const int16_t *point;                        /* of each cell: its number; -1 where there is none */
  const uint32_t *first;                       /* of each cell: its neighbours are [first[c], first[c + 1]) */
  const uint16_t *neighbours;                  /* points, by distance, then number */
  const uint16_t *packed;                      /* the same, packed; CKPT_GRID_SLACK more can be read */
} ckpt_grid;

typedef enum ckpt_grid_name {
  CKPT_GRID_IQ1,
  CKPT_GRID_IQ2_XXS,
  CKPT_GRID_IQ2_XS,
  CKPT_GRID_IQ2_S,
  CKPT_GRID_IQ3_XXS,
  CKPT_GRID_IQ3_S,
  CKPT_N_GRIDS
} ckpt_grid_name;

/* Made by the first call in the process, which may come from any thread. */
const ckpt_grid *ckpt_grid_get(ckpt_grid_name name);

/* The levels of a point without the lists: for reading. Borrowed, static. */
const uint8_t (*ckpt_grid_levels(ckpt_grid_name name))[CKPT_GRID_MAX_AXES];

/* How many points it has. */
size_t ckpt_grid_count(ckpt_grid_name name);

/* The packed points, as above. */
const uint16_t *ckpt_grid_points(ckpt_grid_name name);

/* The cell of n_axes levels, the first one counting least. */
static inline uint32_t ckpt_grid_cell(const ckpt_grid *grid, const uint8_t *levels) {
  uint32_t cell = 0;
  for (uint32_t i = grid->n_axes; i-- > 0;) cell = cell * grid->radix + levels[i];
  return cell;
}

#endif
