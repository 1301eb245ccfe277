/* objects.h - what a checkpoint holds besides tensors (objects.c). A part of dcp.h's. */
#ifndef CKPT_FORMATS_DCP_OBJECTS_H
#define CKPT_FORMATS_DCP_OBJECTS_H

#include "formats/dcp/dcp.h"
#include "libckpt/codec/torch/read/file.h"

/* Where an item lies. */
typedef struct ckpt_dcp_slice {
  uint32_t file; /* CKPT_FILE_LITERAL: missing */
  uint64_t offset, n_bytes;
  bool is_zstd;
} ckpt_dcp_slice;

/* One of all items' places; number: of the tensor, UNREAD for one that is not read, UINT32_MAX for an object. */
typedef struct ckpt_dcp_place {
  uint32_t file, number;
  uint64_t offset, n_bytes;
  const ckpt_object *name;
} ckpt_dcp_place;

/* Zero-initialise it; free with ckpt_dcp_places_free. */
typedef struct ckpt_dcp_places {
  ckpt_dcp_place *items;
  uint32_t n, capacity;
} ckpt_dcp_places;

#define CKPT_DCP_UNREAD (UINT32_MAX - 1)

/* Keeps a place; name is borrowed. Those from the first-th on are then a tensor's. ENOMEM. */
ckpt_status ckpt_dcp_places_add(ckpt_dcp_places *places, const ckpt_dcp_slice *at, const ckpt_object *name,
                                ckpt_error *err);
void ckpt_dcp_places_own(ckpt_dcp_places *places, uint32_t first, uint32_t number); /* as above */

/* Notes bytes of their files that are nobody's, and items that share some: problems. Sorts. ENOMEM. */
ckpt_status ckpt_dcp_places_note(ckpt_dcp_places *places, ckpt_index *index, ckpt_error *err);
void ckpt_dcp_places_free(ckpt_dcp_places *places); /* once more is fine */

/* EFORMAT where a slice lies outside its file. */
ckpt_status ckpt_dcp_slice_check(ckpt_source *source, const ckpt_dcp_slice *at, ckpt_error *err);

/* All that is gathered on the way to index->objects. */
struct ckpt_dcp_objects {
  ckpt_index *index;
  bool is_kept;             /* there is more than names and tensors */
  uint32_t n_storages;      /* of all items so far */
  uint64_t n_expanded;      /* as above: see ckpt_torch_graph */
  ckpt_torch_graph *graphs; /* that hold sparse tensors */
  uint32_t n_graphs, graph_capacity;
  ckpt_torch_globals globals;
  const char *refused; /* the first item that was not read, and why */
  uint64_t n_refused;
};

/* Starts; free with ckpt_dcp_objects_free. */
void ckpt_dcp_objects_begin(ckpt_dcp_objects *objects, ckpt_index *index, const ckpt_dcp_metadata *metadata);

/* Reads an item of bytes, which messages call name. The graph, zeroed and the caller's to free, has no root
 * where it is damaged, not understood or, behind zstd, too large: that is noted, and no failure. EFORMAT where the
 * slice lies outside its file; ELIMIT, EIO, ENOMEM. */
ckpt_status ckpt_dcp_objects_read(ckpt_torch_graph *graph, ckpt_dcp_objects *objects, const ckpt_dcp_slice *at,
                                  const char *name, ckpt_error *err);

/* Adds the tensors of an item that was read to the index, under the names that they have been given; notes of the
 * metadata's file those that are one rank's part. EFORMAT where one reaches outside its storage; ELIMIT, ENOMEM. */
ckpt_status ckpt_dcp_objects_add(ckpt_dcp_objects *objects, ckpt_torch_graph *graph, uint32_t file, ckpt_error *err);

/* Makes the index's objects of the dict that was saved, NULL: there is none, of the dict of its parts, and of its first
 * optimizer's state; notes what was not read. */
ckpt_status ckpt_dcp_objects_set(ckpt_dcp_objects *objects, ckpt_object *root, const ckpt_object *top,
                                 const ckpt_object *optimizer, ckpt_error *err);

#endif
