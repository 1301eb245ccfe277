/* add.h - the tables of a checkpoint's metadata to an index: add.c (all items), tensors.c (tensors and
 * their chunks), files.c (where chunks lie). A part of dcp.h's. */
#ifndef CKPT_FORMATS_DCP_ADD_H
#define CKPT_FORMATS_DCP_ADD_H

#include "formats/dcp/dict.h"
#include "formats/dcp/objects.h"
#include "libckpt/index/name_table.h"

enum { CKPT_DCP_CACHED = 4096 }; /* names of files */

/* An item of one root; those of all roots with one name are one tensor. */
typedef struct ckpt_dcp_item {
  const ckpt_object *name, *value;
  uint32_t root;
} ckpt_dcp_item;

/* A file of chunks. */
typedef struct ckpt_dcp_file {
  bool is_known, is_safetensors;
  ckpt_index *held;       /* what a safetensors file holds */
  ckpt_name_table *table; /* its names */
  uint8_t *is_taken;      /* of each, whether a chunk lies there */
} ckpt_dcp_file;

/* A tensor, or an object of one root or of several: a leaf of the dict that was saved. */
typedef struct ckpt_dcp_part {
  uint64_t first;          /* of its items */
  uint32_t n;              /* of a tensor's; 0: it is an object */
  ckpt_object *value;      /* of the dict; NULL: not read */
  ckpt_torch_graph *graph; /* of an object that holds tensors, to be freed; else NULL */
} ckpt_dcp_part;

typedef struct ckpt_dcp_adder {
  ckpt_index *index;
  const ckpt_dcp_metadata *metadata;
  bool stored_names;
  ckpt_dcp_item *items;
  uint64_t n_items, n_chunks;
  struct {
    const ckpt_object *name;
    uint32_t file;
  } cache[CKPT_DCP_CACHED]; /* by the node that names the file: a pickle repeats it */
  ckpt_dcp_file *files;
  uint32_t n_files, file_capacity;
  const char **missing; /* paths, some more than once */
  uint32_t n_missing, missing_capacity;
  ckpt_extent *extents; /* of the tensor at hand */
  uint64_t *boxes;      /* 2 * CKPT_MAX_RANK of each: starts, counts */
  uint32_t n_extents, capacity, box_capacity;
  uint32_t n_looks; /* at first chunks, for their strides */
  ckpt_dcp_objects *objects;
  ckpt_dcp_dict dict;     /* a leaf is a part's */
  ckpt_torch_graph names; /* of leaves, by their numbers */
  ckpt_arena nodes;       /* of names, and of a dict that is not kept */
  ckpt_dcp_part *parts;
  uint32_t n_parts, part_capacity;
  ckpt_dcp_twins twins;
  ckpt_dcp_places places; /* of all items but those in safetensors files */
  ckpt_torch_unread unread;
  const char *first_own; /* of tensors that ranks have of their own: stored name */
  uint64_t n_own;
} ckpt_dcp_adder;

/* A tensor's description: the same in every root. Shape is torch's; of packed dtypes, in packs. */
typedef struct ckpt_dcp_described {
  ckpt_dtype dtype;
  uint32_t rank;
  uint64_t shape[CKPT_MAX_RANK];
  bool is_strided;    /* its chunks may not be row-major */
  bool is_unsaid;     /* whether they are is not said */
  const char *reason; /* why it is not read; or NULL */
} ckpt_dcp_described;

/* Takes an item's description. EFORMAT; ENOMEM. */
ckpt_status ckpt_dcp_describe(const ckpt_object *row, ckpt_dcp_described *out, ckpt_arena *arena, ckpt_error *err);

/* Of n items of one name, moves those whose values are not the first's behind the others, *n_same of them: they are
 * their ranks' own. EDIFFERENT where a rank has a part with other values and not all of the tensor; as reading. */
ckpt_status ckpt_dcp_split_replicas(ckpt_dcp_adder *adder, ckpt_dcp_item *items, uint64_t n, uint64_t *n_same,
                                    ckpt_error *err);

/* What is wrong with a text that is short enough to be a name. */
const char *ckpt_dcp_no_name(const ckpt_object *name);

/* The slice of an item's chunk, or, without an offset, of an object; its file is CKPT_FILE_LITERAL where that is
 * missing, which is kept. EFORMAT, EUNSUPPORTED for unknown extensions, ELIMIT, ENOMEM. */
ckpt_status ckpt_dcp_find_slice(ckpt_dcp_adder *adder, const ckpt_dcp_item *of, const ckpt_object *offset,
                                ckpt_dcp_slice *out, ckpt_error *err);

/* The same, which nobody takes for a use of the slice. */
ckpt_status ckpt_dcp_peek_slice(ckpt_dcp_adder *adder, const ckpt_dcp_item *of, const ckpt_object *offset,
                                ckpt_dcp_slice *out, ckpt_error *err);

/* What kind of file a chunk lies in, by its first bytes. */
ckpt_status ckpt_dcp_look_at(ckpt_dcp_adder *adder, const ckpt_dcp_slice *at, ckpt_dcp_file **out, ckpt_error *err);

/* The same behind items that are no tensors, where torch writes a safetensors file too: for a chunk of n_raw bytes, by
 * its place, which the metadata gives as one for all chunks of such a file. An archive has more bytes than it holds. */
ckpt_status ckpt_dcp_look_behind(ckpt_dcp_adder *adder, const ckpt_dcp_slice *at, uint64_t n_raw, ckpt_dcp_file *file,
                                 ckpt_error *err);

/* The extent of the one chunk of a tensor that a safetensors file holds: once. EFORMAT. */
ckpt_status ckpt_dcp_find_held(ckpt_dcp_file *file, const char *stored, ckpt_dtype dtype, uint32_t rank,
                               const uint64_t *counts, ckpt_extent *out, ckpt_error *err);

/* Tensor of the n items with one name, or one more name of the tensor that lies in the same places; *number is
 * UINT32_MAX where it is not read. */
ckpt_status ckpt_dcp_add_tensor(ckpt_dcp_adder *adder, const ckpt_dcp_item *items, uint64_t n, const char *name,
                                ckpt_role role, uint32_t *number, ckpt_error *err);

#endif
