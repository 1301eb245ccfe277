/* node_map.h - an open-addressing map from pointers to numbers, for walks over graphs. */
#ifndef CKPT_BASE_NODE_MAP_H
#define CKPT_BASE_NODE_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Zero-initialise it; free with ckpt_node_map_free. */
typedef struct ckpt_node_map {
  struct ckpt_node_slot {
    const void *key;
    uint64_t value;
  } * slots;
  size_t n, capacity; /* a power of two, at least twice n */
} ckpt_node_map;

/* The value of a key, 0 when it is new, until the next call; NULL when memory ran out. */
uint64_t *ckpt_node_map_at(ckpt_node_map *map, const void *key);
void ckpt_node_map_free(ckpt_node_map *map); /* as above */

#endif
