/* node_map.c - see node_map.h. */
#include "libckpt/base/node_map.h"

#include <stdlib.h>

static struct ckpt_node_slot *slot_of(const ckpt_node_map *map, const void *key) {
  size_t at = (size_t)(((uint64_t)(uintptr_t)key >> 3) * UINT64_C(0x9E3779B97F4A7C15) >> 20);
  while (map->slots[at &= map->capacity - 1].key != NULL && map->slots[at].key != key) at++;
  return &map->slots[at];
}

uint64_t *ckpt_node_map_at(ckpt_node_map *map, const void *key) {
  if (2 * (map->n + 1) > map->capacity) {
    ckpt_node_map grown = {.n = map->n, .capacity = map->capacity == 0 ? 64 : 2 * map->capacity};
    grown.slots = calloc(grown.capacity, sizeof *grown.slots);
    if (grown.slots == NULL) return NULL;
    for (size_t i = 0; i < map->capacity; i++)
      if (map->slots[i].key != NULL) *slot_of(&grown, map->slots[i].key) = map->slots[i];
    free(map->slots);
    *map = grown;
  }
  struct ckpt_node_slot *slot = slot_of(map, key);
  map->n += slot->key == NULL;
  slot->key = key;
  return &slot->value;
}

void ckpt_node_map_free(ckpt_node_map *map) {
  free(map->slots);
  *map = (ckpt_node_map){0};
}
