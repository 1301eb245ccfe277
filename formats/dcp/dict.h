/* dict.h - the dict that was saved, put together from the paths of its items (dict.c). A part of dcp.h's. */
#ifndef CKPT_FORMATS_DCP_DICT_H
#define CKPT_FORMATS_DCP_DICT_H

#include "formats/dcp/dcp.h"
#include "libckpt/base/node_map.h"

typedef struct ckpt_dcp_leaf ckpt_dcp_leaf;

/* Zero-initialise it but for the first line; free with ckpt_dcp_dict_free, which leaves the nodes to the arena. */
typedef struct ckpt_dcp_dict {
  ckpt_arena *arena;
  uint64_t max_keys; /* of all paths; an honest pickle has a byte for each */
  ckpt_dcp_leaf *leaves;
  uint32_t n, capacity;
  uint64_t n_keys;
  uint64_t n_looks;  /* at parameters of groups */
  uint64_t n_empty;  /* places in lists */
  bool is_ambiguous; /* two leaves at one place, or one below another */
  ckpt_object *root; /* NULL where there is no leaf */
  ckpt_object **containers;
  uint32_t n_containers, container_capacity;
  ckpt_node_map keys;   /* of the metadata, each to its one copy: paths share long ones */
  ckpt_object ***slots; /* by the number of a leaf: where it stands; NULL: another one does */
} ckpt_dcp_dict;

/* Whether a path leads through dicts and lists only, and makes a name. */
bool ckpt_dcp_is_path(const ckpt_object *path);

/* Adds a value as the next leaf, where its path says, or under its name where it has no path. Both are borrowed until
 * the dict is built, the value for as long as that is used. ENOMEM. */
ckpt_status ckpt_dcp_dict_add(ckpt_dcp_dict *dict, const ckpt_object *name, const ckpt_object *path, ckpt_object *value,
                              ckpt_error *err);

/* Makes the containers. ENOMEM. */
ckpt_status ckpt_dcp_dict_build(ckpt_dcp_dict *dict, ckpt_error *err);

/* Puts another value in a leaf's place: NULL for what was not read, which the dict is then without. */
void ckpt_dcp_dict_put(ckpt_dcp_dict *dict, uint32_t leaf, ckpt_object *value);
ckpt_status ckpt_dcp_dict_settle(ckpt_dcp_dict *dict, ckpt_error *err); /* after the last. ENOMEM */
void ckpt_dcp_dict_free(ckpt_dcp_dict *dict);                           /* once more is fine */

#endif
