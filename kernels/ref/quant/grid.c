/* grid.c - see grid.h. The tables are static memory filled once: making them cannot fail, and after it they
 * never change. */
#include "kernels/ref/quant/grid.h"

#include <pthread.h>

#include "kernels/ref/quant/points.h"

enum {
  MAX_DISTANCE = 4 * 7 * 7, /* squared: 8 axes of 0 to 2 reach 32, 4 of 0 to 7 reach 196 */
  N_POINTS = 2048 + 256 + 512 + 1024 + 256 + 512,
  N_CELLS = 4 * (6561 + 1) + 2 * (4096 + 1),
  N_NEIGHBOURS = 327721 + 113157 + 181721 + 44716 + 18985 + 24733 /* all lists, as they come out */
};

/* What a grid is made from: its points, with bits per level, and how many distances count as near. */
static const struct {
  const uint16_t *points;
  uint16_t n_points;
  uint8_t n_axes, bits, radix, n_distances;
} sources[CKPT_N_GRIDS] = {
    [CKPT_GRID_IQ1] = {iq1_points, 2048, 8, 2, 3, 3},        [CKPT_GRID_IQ2_XXS] = {iq2_xxs_points, 256, 8, 2, 3, 2},
    [CKPT_GRID_IQ2_XS] = {iq2_xs_points, 512, 8, 2, 3, 2},   [CKPT_GRID_IQ2_S] = {iq2_s_points, 1024, 8, 2, 3, 1},
    [CKPT_GRID_IQ3_XXS] = {iq3_xxs_points, 256, 4, 3, 8, 2}, [CKPT_GRID_IQ3_S] = {iq3_s_points, 512, 4, 3, 8, 3},
};

static pthread_once_t levels_once = PTHREAD_ONCE_INIT, lists_once = PTHREAD_ONCE_INIT;
static uint8_t all_levels[N_POINTS][CKPT_GRID_MAX_AXES];
static int16_t all_cells[N_CELLS];
static uint32_t all_firsts[N_CELLS];
static uint16_t all_neighbours[N_NEIGHBOURS], all_packed[N_NEIGHBOURS + CKPT_GRID_SLACK];
static ckpt_grid grids[CKPT_N_GRIDS];

static void make_levels(void) {
  uint8_t(*levels)[CKPT_GRID_MAX_AXES] = all_levels;
  for (int name = 0; name < CKPT_N_GRIDS; name++) {
    grids[name] = (ckpt_grid){.n_points = sources[name].n_points,
                              .n_axes = sources[name].n_axes,
                              .radix = sources[name].radix,
                              .n_bits = sources[name].bits,
                              .n_cells = 1,
                              .levels = levels};
    for (uint32_t i = 0; i < sources[name].n_axes; i++) grids[name].n_cells *= sources[name].radix;
    for (uint32_t p = 0; p < sources[name].n_points; p++, levels++)
      for (uint32_t i = 0; i < sources[name].n_axes; i++)
        (*levels)[i] = sources[name].points[p] >> sources[name].bits * i & ((1 << sources[name].bits) - 1);
  }
}

/* Appends the neighbours of a cell to `list`; returns how many. */
static uint32_t list_neighbours(const ckpt_grid *grid, const uint8_t *cell, int n_distances, uint16_t *list) {
  uint8_t distances[2048];
  uint32_t n_at[MAX_DISTANCE + 1] = {0}, first[MAX_DISTANCE + 1], n = 0;
  for (uint32_t p = 0; p < grid->n_points; p++) {
    int distance = 0;
    for (uint32_t i = 0; i < grid->n_axes; i++) {
      int difference = grid->levels[p][i] - cell[i];
      distance += difference * difference;
    }
    distances[p] = (uint8_t)distance;
    n_at[distance]++;
  }
  int last = 0;
  for (int distance = 0; distance <= MAX_DISTANCE && n_distances > 0; distance++) {
    first[distance] = n;
    n += n_at[distance];
    n_distances -= n_at[distance] != 0;
    last = distance;
  }
  for (uint32_t p = 0; p < grid->n_points; p++)
    if (distances[p] <= last) list[first[distances[p]]++] = (uint16_t)p;
  return n;
}

static void make_lists(void) {
  int16_t *points = all_cells;
  uint32_t *firsts = all_firsts;
  uint16_t *neighbours = all_neighbours, *packed = all_packed;
  for (int name = 0; name < CKPT_N_GRIDS; name++) {
    ckpt_grid *grid = &grids[name];
    uint32_t n = 0;
    for (uint32_t cell = 0; cell < grid->n_cells; cell++) points[cell] = -1;
    for (uint32_t p = 0; p < grid->n_points; p++) points[ckpt_grid_cell(grid, grid->levels[p])] = (int16_t)p;
    for (uint32_t cell = 0; cell < grid->n_cells; cell++) {
      uint8_t levels[CKPT_GRID_MAX_AXES];
      for (uint32_t i = 0, rest = cell; i < grid->n_axes; i++, rest /= grid->radix)
        levels[i] = (uint8_t)(rest % grid->radix);
      firsts[cell] = n;
      if (points[cell] < 0) n += list_neighbours(grid, levels, sources[name].n_distances, neighbours + n);
    }
    firsts[grid->n_cells] = n;
    grid->point = points;
    grid->first = firsts;
    for (uint32_t k = 0; k < n; k++) packed[k] = sources[name].points[neighbours[k]];
    grid->neighbours = neighbours;
    grid->packed = packed;
    points += grid->n_cells + 1;
    firsts += grid->n_cells + 1;
    neighbours += n;
    packed += n;
  }
}

const uint8_t (*ckpt_grid_levels(ckpt_grid_name name))[CKPT_GRID_MAX_AXES] {
  pthread_once(&levels_once, make_levels);
  return grids[name].levels;
}

size_t ckpt_grid_count(ckpt_grid_name name) { return sources[name].n_points; }

const uint16_t *ckpt_grid_points(ckpt_grid_name name) { return sources[name].points; }

const ckpt_grid *ckpt_grid_get(ckpt_grid_name name) {
  pthread_once(&levels_once, make_levels);
  pthread_once(&lists_once, make_lists);
  return &grids[name];
}
