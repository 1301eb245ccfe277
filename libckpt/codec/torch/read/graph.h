/* graph.h - finds the tensors of a torch.save pickle: turns a graph of calls into tensors and the remaining object.
 *
 *   ckpt_pickle_read        bytes -> a graph in which a tensor is a call of torch._utils._rebuild_tensor_v2 or its like
 *   ckpt_torch_graph_read   those calls become TENSOR leaves; storages are found, and every view is checked against its
 *                           storage; what cannot be read stays the call that it was, with a reason
 *   ckpt_torch_graph_add    names (dicts, lists, modules, optimizer states), and into an index
 *
 * Nothing here reads a file: the caller gives the places of storages. Time is n log n in the graph's nodes,
 * whatever the input. docs/formats/torch.md lists the calls that are known. */
#ifndef CKPT_CODEC_TORCH_READ_GRAPH_H
#define CKPT_CODEC_TORCH_READ_GRAPH_H

#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/torch/state/mark.h"

/* A storage: memory that one or more tensors are views of. */
typedef struct ckpt_torch_storage {
  const char *key;        /* "0": names its record, or its place in a legacy stream; terminated, without NUL */
  uint64_t n_bytes;       /* as the pickle says */
  uint32_t element_bytes; /* of its class: what legacy streams count lengths in; 1 for UntypedStorage */
  uint32_t n_tensors;     /* different views of it */
  ckpt_extent extent;     /* locate's: file, offset, n_stored, skip and decoders of all its bytes */
  bool is_big_endian;     /* locate's */
} ckpt_torch_storage;

/* Finds storages: fills in extent and is_big_endian of each. Fails if n_bytes differs from the stored size. */
typedef ckpt_status ckpt_torch_locate(void *arg, ckpt_torch_storage *storages, uint32_t n, ckpt_error *err);

/* A tensor, or what would be one: see status. Shape, strides and offset are in elements of torch's dtype (a
 * float4_e2m1fn_x2 is two of ours). */
typedef struct ckpt_torch_tensor {
  ckpt_status status; /* EUNSUPPORTED: not read, a note; any other failure fails the file, with the tensor's name */
  const char *reason; /* of that failure */
  ckpt_dtype dtype;
  uint32_t rank, storage;
  uint64_t offset, n_elements;
  uint64_t reach;                  /* elements from offset to behind the last one that it touches */
  const uint64_t *shape, *strides; /* rank each; the stride of an axis of one element is 0 */
  uint32_t first_name, last_name;  /* numbers in names, UINT32_MAX: none */
  uint32_t number;                 /* in the index, once added */
  bool is_copy;                    /* a view equal to an earlier one, whose leaves it gave away */
  bool is_literal;                 /* a number of the pickle: no storage, but these 8 bytes */
  uint8_t signs;                   /* of it that are turned: ckpt_extent_signs */
  uint64_t literal;
  const ckpt_object *call, *id; /* it is the storage, as bytes, of a tensor that is not read for `opaque`; else NULL */
  const char *opaque;
  bool is_kept;    /* not read, and whole in its call: a meta tensor */
  bool is_unknown; /* not read, and made by what PyTorch has not */
} ckpt_torch_tensor;

/* A view that expands or overlaps its storage takes no space in a file, but reading it takes all its bytes. Tensors of
 * a graph may have CKPT_TORCH_VIEWS bytes for each byte of its storages. All graphs of an index may exceed that by
 * CKPT_TORCH_EXPANDED bytes. */
#define CKPT_TORCH_VIEWS 16
#define CKPT_TORCH_EXPANDED (UINT64_C(4) << 30)

/* One name of a tensor. */
typedef struct ckpt_torch_name {
  const char *text;
  uint32_t next; /* of the same tensor */
  ckpt_role role;
  ckpt_role whole; /* of the tensor whose storage it is, where its own is OTHER for that; else as role */
} ckpt_torch_name;

/* A node that became a TENSOR leaf, and what it was. */
typedef struct ckpt_torch_leaf {
  ckpt_object *node;
  ckpt_object original;
  uint32_t tensor;
} ckpt_torch_leaf;

/* Zero-initialise it; free with ckpt_torch_graph_free. */
typedef struct ckpt_torch_graph {
  ckpt_object *root;
  ckpt_arena *arena;
  ckpt_torch_storage *storages; /* in the order in which they are met */
  uint32_t n_storages, storage_capacity;
  ckpt_torch_tensor *tensors; /* as above */
  uint32_t n_tensors, tensor_capacity;
  ckpt_torch_leaf *leaves;
  uint32_t n_leaves, leaf_capacity;
  ckpt_torch_name *names;
  uint32_t n_names, name_capacity;
  const ckpt_object **sparse; /* calls that make one tensor of others: COO, and quantized by channels */
  uint32_t n_sparse, sparse_capacity;
  const ckpt_object **wrappers; /* calls of subclasses around tensors: DTensors */
  uint32_t n_wrappers, wrapper_capacity;
  uint32_t first_storage;       /* the caller's: storages of graphs that the same index has already */
  uint64_t n_expanded;          /* the caller's, and added to: bytes of views beyond what CKPT_TORCH_VIEWS allows */
  ckpt_role role;               /* the caller's: of its tensors, where they say nothing else */
  uint64_t n_children;          /* of the containers that tensors are in; long texts are more (TORCH_STEP_BYTES) */
  const ckpt_object *top;       /* the dict of the checkpoint's parts, once added: the root, or all that it holds */
  const ckpt_object *optimizer; /* whose states are called `optimizer.state`, once added; or NULL */
  bool has_unknown_storage;     /* a persistent id of a class that is not known */
  const char *stray;            /* the first of the archive's records that the object does not use */
  uint32_t n_strays;
  uint64_t n_trailing;    /* bytes of a stream's file behind its last storage */
  const char *archive;    /* what the archive's records lie below: the name that it was saved under; NULL: no archive */
  const char *version;    /* of the file's form: "zip 3", "": it does not say; NULL: the stream of before 1.6 */
  const char *refused[2]; /* why torch refuses to load the file: its version, its alignment; NULL: it does not */
  bool is_state_dict;     /* a dict of the model's plain tensors and nothing else: once added */
} ckpt_torch_graph;

/* Turns the graph below root, which came from ckpt_pickle_read, into tensors, in place. EFORMAT for storages that are
 * lies, as locate does, ELIMIT, ENOMEM. */
ckpt_status ckpt_torch_graph_read(ckpt_torch_graph *graph, ckpt_object *root, ckpt_torch_locate *locate, void *arg,
                                  ckpt_arena *arena, ckpt_error *err);
void ckpt_torch_graph_free(ckpt_torch_graph *graph); /* a zeroed one is fine */

/* Names the tensors and adds them to an index that is not finished; TENSOR leaves then bear the index's numbers, and
 * calls that are not read are back in their places. Names begin with prefix ("" for none); with stored_names they are
 * the paths in the object, nothing taken off. Notes what is not read (ckpt_index_add_unread), views of little that are
 * too large among it. EFORMAT names a tensor that reaches outside its storage; ELIMIT; as ckpt_index_add. */
ckpt_status ckpt_torch_graph_add(ckpt_torch_graph *graph, ckpt_index *index, const char *prefix, bool stored_names,
                                 ckpt_error *err);

/* The same of a graph whose tensors have been given their names. */
ckpt_status ckpt_torch_graph_add_named(ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err);

/* What is not read, for notes: one for each reason, which names the first tensor and counts the others. Texts are
 * borrowed. Zero-initialise it. */
enum { CKPT_TORCH_N_REASONS = 16 };
typedef struct ckpt_torch_unread {
  struct {
    const char *reason, *first;
    uint64_t n;
  } rows[CKPT_TORCH_N_REASONS];
  uint32_t n_rows;
} ckpt_torch_unread;

/* Counts a tensor; notes all that were. ENOMEM. */
void ckpt_torch_unread_add(ckpt_torch_unread *seen, const char *reason, const char *name);
ckpt_status ckpt_torch_unread_note(const ckpt_torch_unread *seen, ckpt_index *index, ckpt_error *err); /* as above */

/* The names that an object's leaves, which are numbers of a description's tensors, get when it is read: canonical but
 * for wrappers, and stored ones where `stored` is not NULL. Marks the object's nodes, which have no marks. ENOMEM. */
ckpt_status ckpt_torch_names_of(ckpt_expected_names *read, ckpt_expected_names *stored, ckpt_object *root,
                                const ckpt_index *described, ckpt_error *err);

/* Adds a note about tensors of which only parts are read (subclasses that wrap several, torchao's). If some are one
 * rank's part (DTensors, sharded tensors), adds a problem of the file. ENOMEM. */
ckpt_status ckpt_torch_parts_note(const ckpt_torch_graph *graph, ckpt_index *index, uint32_t file, ckpt_error *err);

/* Records which added tensors are parts of sparse ones. Call it when they have their final names. */
ckpt_status ckpt_torch_graph_composites(const ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err);

/* ---- between the files of this module ------------------------------------------------------------------------ */

/* Bytes of a name that cost one step, and bytes of a text that allow as many steps as one child. */
enum { TORCH_STEP_BYTES = 64 };

typedef enum ckpt_torch_call_kind {
  TORCH_CALL_OTHER,
  TORCH_CALL_VIEW,      /* of a storage */
  TORCH_CALL_INNER,     /* a tensor around its first argument: a Parameter */
  TORCH_CALL_QUANTIZED, /* a view of a storage of integers, with scales and zero points that are tensors */
  TORCH_CALL_REFUSED    /* a tensor that is not read */
} ckpt_torch_call_kind;

/* A call seen through _rebuild_from_type_v2. */
typedef struct ckpt_torch_call {
  ckpt_torch_call_kind kind;
  ckpt_object *const *args;
  uint64_t n_args;
  uint8_t dtype_at, metadata_at; /* places of these arguments, 0: there is none */
  const char *reason;            /* REFUSED; NULL: function is not known */
  const ckpt_object *function;   /* of that */
  const ckpt_object *type;       /* NAME of the subclass, or NULL */
} ckpt_torch_call;

/* A persistent id that is a storage. */
typedef struct ckpt_torch_reference {
  const ckpt_object *node, *type;
  const char *key;
  uint64_t n_bytes;           /* of the storage */
  uint64_t start, n_elements; /* of the part that is meant, in elements: a legacy view */
  uint32_t element_bytes;
  uint32_t order, storage;
} ckpt_torch_reference;

/* Whether a node is a call (function, type, arguments, ...) of _rebuild_from_type_v2, or of its elders. */
bool ckpt_torch_is_from_type(const ckpt_object *node);

/* Says which of the added tensors are parts of what a subclass wraps. ENOMEM. */
ckpt_status ckpt_torch_wrapped_add(const ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err);

/* Bytes of the name where a leaf's tensor is called <name>.<part>; 0 where it is not. */
size_t ckpt_torch_name_of(const ckpt_index *index, const ckpt_object *leaf, const char *part);

/* Whether such a call makes a subclass around tensors in its state. */
bool ckpt_torch_is_wrapper(const ckpt_object *node);

/* What kind of call a node is. */
void ckpt_torch_call_read(ckpt_torch_call *call, const ckpt_object *node);

/* What torch calls a dtype and its storage's class, both below torch; the class is NULL where storages of it are
 * UntypedStorage. False for a dtype that torch has not. */
bool ckpt_torch_type(ckpt_dtype dtype, const char **name, const char **storage);

/* The class, below torch, of the storage of a quantized tensor with these values; NULL where there is none. */
const char *ckpt_torch_quantized_storage(ckpt_dtype values);

/* The dtype that a NAME node means, torch.float32 and so on; NONE where we have none. */
ckpt_dtype ckpt_torch_dtype(const ckpt_object *name);

/* Bytes of an element of a storage's class, torch.FloatStorage and so on; 0 for any other node. */
uint32_t ckpt_torch_storage_bytes(const ckpt_object *name);

/* The dtype of the view that a call makes, as the call or its storage says; NONE where that is not said, or not one. */
ckpt_dtype ckpt_torch_call_dtype(const ckpt_object *node);

/* Parses a persistent id. *is_storage is false if it names no storage. EFORMAT: it is broken. */
ckpt_status ckpt_torch_reference_read(ckpt_torch_reference *out, bool *is_storage, const ckpt_object *node,
                                      ckpt_error *err);

/* Which signs the metadata of a tensor of this dtype turns ("conj", "neg"; NULL: none). False where it asks that of
 * what has no such sign, or is no bool. */
bool ckpt_torch_signs(uint8_t *signs, ckpt_dtype dtype, const ckpt_object *metadata);

/* Whether the view that a call makes is not read, though its storage is known: a conjugate or a negative of what has no
 * sign, a dtype that we have not, or quantized with several values in a byte. */
bool ckpt_torch_is_opaque(const ckpt_torch_call *call, const ckpt_object *node);

/* Whether a call's first argument is a storage of such a view, a leaf. */
bool ckpt_torch_has_bytes(const ckpt_object *call);

/* Whether a call makes a tensor, and stays a call when it is read: of what is quantized, sparse, meta or not read, but
 * for its storage. It can be what a Parameter or a tensor with attributes is around. */
bool ckpt_torch_stays_call(const ckpt_object *call);

/* Fills in a tensor from its call. reference is that of its storage, NULL where there is none. ENOMEM. */
ckpt_status ckpt_torch_tensor_read(ckpt_torch_tensor *out, const ckpt_torch_call *call,
                                   const ckpt_torch_reference *reference, ckpt_arena *arena, ckpt_error *err);

/* Marks what holds tensors, of nodes that have no marks, and counts its children, as n_children. ENOMEM. */
ckpt_status ckpt_torch_mark(ckpt_object *root, uint64_t *n_children, ckpt_error *err);

/* Gives every tensor that is reached its names. */
ckpt_status ckpt_torch_names_find(ckpt_torch_graph *graph, ckpt_index *index, const char *prefix, bool stored_names,
                                  ckpt_error *err);

/* Gives the second and later of names that are one ~2, ~3, with a note. ENOMEM. */
ckpt_status ckpt_torch_names_separate(ckpt_torch_graph *graph, ckpt_index *index, ckpt_error *err);

/* Whether all names that were found are of the model's tensors. */
bool ckpt_torch_is_model(const ckpt_torch_graph *graph);

/* Names of a sparse tensor's components ("indices", ...), NULL-terminated. NULL if call makes no sparse tensor, or one
 * of an unknown layout. is_coo may be NULL. */
const char *const *ckpt_torch_sparse_parts(const ckpt_object *call, bool *is_coo);

/* Whether a node is a quantized tensor: (values, offset, size, stride, (scheme, scales, zero points[, axis]), ...),
 * where values may still be a storage, and scales and zero points of a tensor as a whole numbers. */
bool ckpt_torch_is_quantized(const ckpt_object *call);

#endif
