/* dcpv2.h - the parts of the DCPv2 format (torch_checkpointing): dcpv2.c (the folder, the row), metadata.c (which
 * tensors there are, and which box of one a rank has), chunks.c (what ranks have, to tensors). Not for other
 * formats. */
#ifndef CKPT_FORMATS_DCPV2_DCPV2_H
#define CKPT_FORMATS_DCPV2_DCPV2_H

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/format/format.h"

#define CKPT_DCPV2_METADATA "metadata.pkl"

/* A tensor of an item, by its path as a name: "model.layers.0.weight". */
typedef struct ckpt_dcpv2_place {
  const char *name;
  const ckpt_object *groups; /* LIST of {sharding_metadata: {type, data}, ranks} */
  const char *used;          /* dcpv2.c's: what it is called; NULL: no file has had it */
} ckpt_dcpv2_place;

/* One entry of what was saved: "model", "optimizer". */
typedef struct ckpt_dcpv2_item {
  const char *key;
  const ckpt_object *files; /* DICT: rank -> {file_path, serialization_format: {type}} or None */
  ckpt_dcpv2_place *places; /* sorted by name */
  uint32_t n, capacity;
} ckpt_dcpv2_item;

/* Zero-initialise it but for the arena, in which nodes and names live; free with ckpt_dcpv2_metadata_free. */
typedef struct ckpt_dcpv2_metadata {
  ckpt_arena arena;
  ckpt_dcpv2_item *items;
  uint32_t n, capacity;
  uint64_t n_steps; /* that looking for ranks took */
} ckpt_dcpv2_metadata;

/* Reads the pickle in a file of the source; the report's names are the metadata's. Nothing is executed. EFORMAT for
 * what is no metadata, EUNSUPPORTED for another version than 1.0 and 2.0, and as ckpt_pickle_read. */
ckpt_status ckpt_dcpv2_metadata_read(ckpt_dcpv2_metadata *metadata, ckpt_source *source, uint32_t file,
                                     ckpt_pickle_report *report, ckpt_error *err);
void ckpt_dcpv2_metadata_free(ckpt_dcpv2_metadata *metadata); /* the matching end */

/* The place of a name, or NULL. */
ckpt_dcpv2_place *ckpt_dcpv2_find(const ckpt_dcpv2_item *item, const char *name);

/* What a rank has of a tensor, in torch's elements. */
typedef struct ckpt_dcpv2_box {
  uint32_t rank; /* axes */
  uint64_t shape[CKPT_MAX_RANK], starts[CKPT_MAX_RANK], counts[CKPT_MAX_RANK];
} ckpt_dcpv2_box;

/* The box of one rank. EFORMAT where the metadata has none for it or contradicts itself, EUNSUPPORTED for placements
 * that are not boxes, ELIMIT where its lists of ranks are long and in no order. */
ckpt_status ckpt_dcpv2_box_of(ckpt_dcpv2_box *out, ckpt_dcpv2_metadata *metadata, const ckpt_dcpv2_place *place,
                              uint64_t rank, ckpt_error *err);

/* What one rank has of a tensor, in a file of its own. */
typedef struct ckpt_dcpv2_chunk {
  const char *name;
  const char *const *aliases; /* NULL-terminated, or NULL */
  ckpt_dcpv2_box *box;        /* in units; of a tensor without place: all of it */
  const uint64_t *strides;    /* NULL: row-major */
  ckpt_extent extent;
  uint64_t of_rank;
  uint32_t id; /* its place when it was met */
  uint8_t dtype, role;
  bool is_placed, is_spec; /* is_spec: of a DTensor's description, and no tensor of the checkpoint */
} ckpt_dcpv2_chunk;

/* Zero-initialise it but for the index, in whose arena names and boxes live; free with ckpt_dcpv2_chunks_free. */
typedef struct ckpt_dcpv2_chunks {
  ckpt_index *index;
  ckpt_dcpv2_metadata *metadata;
  ckpt_dcpv2_chunk *items;
  uint32_t n, capacity;
  uint32_t *numbers; /* by chunk id: its tensor in the index, once added */
  ckpt_extent *extents;
  uint32_t extent_capacity;
} ckpt_dcpv2_chunks;

/* Takes a tensor of a rank's file, opened by the paths in it and by the names that they have here, as a chunk,
 * unless it describes a DTensor. EFORMAT where the metadata says another shape, and as ckpt_dcpv2_box_of. */
ckpt_status ckpt_dcpv2_chunks_take(ckpt_dcpv2_chunks *chunks, const ckpt_dcpv2_item *item, uint64_t rank,
                                   const ckpt_tensor *stored, const ckpt_tensor *named, ckpt_error *err);
/* Adds the tensors of all chunks to the index. EFORMAT where ranks contradict each other; as ckpt_index_add. */
ckpt_status ckpt_dcpv2_chunks_add(ckpt_dcpv2_chunks *chunks, ckpt_error *err);
void ckpt_dcpv2_chunks_free(ckpt_dcpv2_chunks *chunks); /* a zeroed one is fine */

#endif
