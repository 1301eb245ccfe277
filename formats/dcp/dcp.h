/* dcp.h - the parts of the PyTorch Distributed Checkpoint format: dcp.c (the folder, the row), metadata.c (the
 * pickle as tables), agree.c (its names), add.c (tables to an index), objects.c (what is no tensor), dict.c (the dict
 * that was saved), places.c (bytes that are nobody's), saves.c (files of one save), ties.c (names of one place),
 * files.c (what files are), tensors.c (chunks), hf.c (shards in safetensors, which have no metadata). Not for other
 * formats. */
#ifndef CKPT_FORMATS_DCP_DCP_H
#define CKPT_FORMATS_DCP_DCP_H

#include "libckpt/codec/torch/read/file.h"
#include "libckpt/format/format.h"

#define CKPT_DCP_FORMAT "dcp"
#define CKPT_DCP_METADATA ".metadata"
#define CKPT_DCP_SUFFIX ".distcp"
#define CKPT_DCP_NAME_BYTES 4096 /* of a name, as ckpt_index_add allows */

/* One pickle of metadata: the whole checkpoint's, or one rank's where it was saved without collectives. */
typedef struct ckpt_dcp_root {
  const ckpt_object *tensors; /* DICT: name -> TensorStorageMetadata or BytesStorageMetadata */
  const ckpt_object *paths;   /* DICT: name -> tuple of keys; NULL where the planner left none */
  const char *version;        /* "1.0.0"; NULL before 2.9 */
  const char *folder;         /* of its files, below the checkpoint's; NULL: that itself */
  uint32_t file;              /* the pickle's own */
} ckpt_dcp_root;

/* What a name stands for: an item with its place, or a path. */
typedef struct ckpt_dcp_entry {
  uint64_t hash;
  const ckpt_object *name;   /* TEXT */
  const ckpt_object *offset; /* of a chunk: what ckpt_foreign_u64s reads; NULL for other items and paths */
  const ckpt_object *value;
  uint32_t root, order; /* which pickle, and its place there: the last of equals counts, as in a dict. Found: FOUND */
} ckpt_dcp_entry;

#define CKPT_DCP_FOUND UINT32_MAX

/* Entries in buckets by the first bits of their hash. Each bucket is sorted by hash and key, so forged collisions cost
 * no more than a sort. */
typedef struct ckpt_dcp_table {
  ckpt_dcp_entry *entries;
  size_t n, capacity;
  uint32_t *buckets; /* 2^n_bits + 1 places where they begin */
  uint32_t n_bits;
} ckpt_dcp_table;

/* How many names a message is about, and the first. */
typedef struct ckpt_dcp_count {
  uint64_t n;
  const char *first; /* of the metadata's arena */
} ckpt_dcp_count;

/* Names on which the parts of a pickle do not agree. */
typedef struct ckpt_dcp_agreement {
  ckpt_dcp_count without_path, without_item, elsewhere; /* of items; of paths; a path that is another name's */
  ckpt_dcp_count odd;     /* items and places that are made of other classes than PyTorch's */
  ckpt_dcp_count unknown; /* classes of PyTorch's or Python's modules that are not there */
} ckpt_dcp_agreement;

/* All that the pickles of a checkpoint say. Nodes live in the arena. */
typedef struct ckpt_dcp_metadata {
  ckpt_arena arena;
  ckpt_dcp_root *roots;
  uint32_t n_roots, capacity;
  ckpt_dcp_table places, paths;
  uint64_t n_bytes;  /* of the pickles: honest ones have more than a byte for each thing that they say */
  uint64_t n_files;  /* of chunks, as the folders list them */
  int64_t last_rank; /* of those that wrote one; -1: none is known */
  ckpt_torch_globals globals;
  ckpt_dcp_agreement agreement;
} ckpt_dcp_metadata;

/* agree.c: adds what state_dict_metadata and planner_data of one pickle do not agree on; adds the classes that PyTorch
 * would look for in vain; notes both. ENOMEM. */
ckpt_status ckpt_dcp_agree(ckpt_dcp_agreement *agreement, const ckpt_object *items, const ckpt_object *paths,
                           ckpt_error *err);
/* Counts items and places (storage_data, both dicts) that PyTorch's loader would stumble over. */
void ckpt_dcp_check_kinds(ckpt_dcp_agreement *agreement, const ckpt_object *items, const ckpt_object *places);
ckpt_status ckpt_dcp_look_up(ckpt_dcp_agreement *agreement, const ckpt_pickle_report *report, ckpt_arena *arena,
                             ckpt_error *err); /* as above */
ckpt_status ckpt_dcp_agreement_note(const ckpt_dcp_agreement *agreement, ckpt_index *index,
                                    ckpt_error *err); /* as above */

/* Reads the pickle in a file of the source as one more root, whose files are in folder (borrowed). Its bytes are all
 * read once, nothing is executed. EFORMAT for what is no metadata, EUNSUPPORTED for another framework's, and as
 * ckpt_pickle_read. */
ckpt_status ckpt_dcp_metadata_read(ckpt_dcp_metadata *metadata, ckpt_source *source, uint32_t file, const char *folder,
                                   ckpt_error *err);

/* Puts what the roots from first_root on hold below a container, "model" or "optimizer", unless they have such a
 * container already: parts that were saved apart are one checkpoint then. Entries outside such a container stay where
 * they are, unless a root before has that key at its top. Before the tables are sorted; container is borrowed.
 * ENOMEM, ELIMIT. */
ckpt_status ckpt_dcp_metadata_put_below(ckpt_dcp_metadata *metadata, uint32_t first_root, const char *container,
                                        ckpt_error *err);

/* Forgets the roots from first_root on, and what was read of the one that failed. Before the tables are sorted. */
void ckpt_dcp_metadata_drop(ckpt_dcp_metadata *metadata, uint32_t first_root);

/* Sorts the tables, after the last root. */
ckpt_status ckpt_dcp_metadata_sort(ckpt_dcp_metadata *metadata, ckpt_error *err);
void ckpt_dcp_metadata_free(ckpt_dcp_metadata *metadata); /* the matching end */

/* An attribute of an instance, or NULL. Only of states of a few attributes, as all our classes have: a file may repeat
 * one large state a million times. */
const ckpt_object *ckpt_dcp_attribute(const ckpt_object *object, const char *name);

/* Whether a node is a text that can be an item's name or path: not too long, without zero bytes. */
bool ckpt_dcp_is_name(const ckpt_object *object);

/* The value of a name in a root: of a chunk by its offset, or NULL. *is_first: nobody asked for it before; NULL:
 * nobody does now. */
const ckpt_object *ckpt_dcp_find(const ckpt_dcp_table *table, uint32_t root, const ckpt_object *name,
                                 const ckpt_object *offset, bool *is_first);

/* Notes entries that nobody asked for, as a problem. */
ckpt_status ckpt_dcp_table_note(const ckpt_dcp_table *places, ckpt_index *index, ckpt_error *err);

/* ---- the index ---- */

typedef struct ckpt_dcp_objects ckpt_dcp_objects; /* objects.h */

/* Adds the tensors and objects to an index; objects is the caller's to free in any case. */
ckpt_status ckpt_dcp_add_all(ckpt_index *index, ckpt_dcp_objects *objects, const ckpt_dcp_metadata *metadata,
                             bool stored_names, ckpt_error *err);

/* Says which tensors of objects are parts of sparse ones, once all have their final names. */
ckpt_status ckpt_dcp_objects_composites(const ckpt_dcp_objects *objects, ckpt_error *err);
void ckpt_dcp_objects_free(ckpt_dcp_objects *objects); /* a zeroed one is fine */

/* ---- names that share their places ---- */

/* Zero-initialise it; free with ckpt_dcp_twins_free. */
typedef struct ckpt_dcp_twins {
  uint32_t *slots; /* tensor + 1, by the place of its first extent; 0: none */
  size_t n, capacity;
} ckpt_dcp_twins;

/* The tensor of the index, entered before, that has the same dtype, shape and extents, whatever it is for; -1: none.
 * What has no place anywhere is nobody's twin. */
int64_t ckpt_dcp_twins_find(const ckpt_dcp_twins *twins, const ckpt_index *index, const ckpt_tensor *tensor);
ckpt_status ckpt_dcp_twins_add(ckpt_dcp_twins *twins, const ckpt_index *index, uint32_t number,
                               ckpt_error *err); /* ENOMEM */
void ckpt_dcp_twins_free(ckpt_dcp_twins *twins); /* once more is fine */

/* ---- shards of HuggingFaceStorageWriter ---- */

/* Whether a file is called as one of them, and whose: 1 is the first. */
bool ckpt_dcp_hf_name(const char *name, unsigned *shard);

/* As ckpt_format's slot. */
ckpt_status ckpt_dcp_verify(struct ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                            ckpt_error *err);

/* Compares the bytes of replicas that opening took to be the same by their checksums. A difference is a problem; EIO.
 */
ckpt_status ckpt_dcp_verify_replicas(struct ckpt_findings *findings, const ckpt_index *index, ckpt_error *err);

/* What can be told of whether all files are of one save: a warning where steps differ between them, else that it is not
 * proven; the same of names that share a place. EIO. */
ckpt_status ckpt_dcp_verify_saves(struct ckpt_findings *findings, const ckpt_index *index, ckpt_error *err);

/* Adds the tensors of all shards of a folder to an index. EFORMAT, ENOTFOUND where one between them is missing. */
ckpt_status ckpt_dcp_read_hf(ckpt_index *index, const ckpt_probe *probe, ckpt_error *err);

#endif
