/* write.h - what the writing half of the DCP format shares: layout.c cuts tensors into chunks for ranks and
 * lays them out, chunk.c prints the archive around a chunk, paths.c chooses the paths, items.c flattens the
 * dict and prints items, carry.c copies items, print.c prints `.metadata`. */
#ifndef CKPT_FORMATS_DCP_WRITE_H
#define CKPT_FORMATS_DCP_WRITE_H

#include "formats/dcp/dcp.h"
#include "libckpt/base/node_map.h"
#include "libckpt/codec/torch/plain/object_tensors.h"

/* Keys of a path, and values that are looked at, at most. */
enum { CKPT_DCP_MAX_KEYS = 64, CKPT_DCP_MAX_STEPS = 1 << 24 };

/* A name in the dict that torch loads, and what it is of. */
typedef struct ckpt_dcp_named {
  const ckpt_object *path;  /* TUPLE of TEXT and INT; NULL: `text` is the only key */
  const char *text;         /* NULL where there is a path */
  const ckpt_object *value; /* an item's; NULL: of a tensor */
  uint32_t place;           /* of the tensor in order of names */
} ckpt_dcp_named;

/* One chunk: the tensor segment `segment` of a file; the segments before and behind it are the rest of its archive. */
typedef struct ckpt_dcp_chunk {
  uint32_t tensor, rank, file, segment;
} ckpt_dcp_chunk;

/* A folder that is laid out. */
typedef struct ckpt_dcp_folder {
  bool is_zstd;           /* chunks and items are compressed */
  ckpt_dcp_chunk *chunks; /* by the tensors' names, and those of one tensor by their rows */
  uint32_t *first;        /* n_tensors + 1 places in chunks, by the tensors' places in order of names */
  uint32_t *by_file;      /* numbers of chunks in the order in which they lie in the files */
  uint32_t *places;       /* by the tensors' numbers, in order of names */
  uint32_t *first_name;   /* by the tensors' places: the first of their names, by number */
  uint32_t *memo;         /* of the pickle that is printed: each name's number */
  uint32_t n_chunks, n_names;
  uint32_t n_items; /* objects: the i-th is segment i of the first file */
} ckpt_dcp_folder;

/* Name k of a folder. */
ckpt_dcp_named ckpt_dcp_name_at(const ckpt_layout *layout, const ckpt_dcp_folder *folder, uint32_t k);

/* The text of a name: its keys joined with dots, terminated; returns its bytes, more than the room where it is too
 * long, and there is no text. */
size_t ckpt_dcp_path_text(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *path);

/* The box of a chunk as torch counts: `counts` and, where not NULL, `starts`; scalars have no axes. Returns the rank.
 */
uint32_t ckpt_dcp_box(const ckpt_layout *layout, const ckpt_dcp_chunk *chunk, uint64_t starts[CKPT_MAX_RANK],
                      uint64_t counts[CKPT_MAX_RANK]);

/* ---- the dict, flattened ---- */

/* Zero-initialise it but for the first line; pairs are the caller's to free. */
typedef struct ckpt_dcp_flattener {
  ckpt_index *described;
  ckpt_losses *losses;
  const uint32_t *numbers; /* by the number of a leaf: the tensor to be written, UINT32_MAX: it is not. NULL: tensors
                              have their paths from elsewhere */
  uint32_t n_numbers;
  ckpt_object_tensors held; /* without numbers: those that are written where objects have them; the caller's */
  ckpt_object **pairs;      /* path and value: a TENSOR, or an item's */
  uint64_t n, n_items;
  uint32_t capacity;
  bool leaves_states;                         /* the optimizer had tensors, and none is written: nor are its objects */
  uint32_t n_optimizers;                      /* whose parameters were named */
  const ckpt_object *path[CKPT_DCP_MAX_KEYS]; /* to the value at hand */
  uint32_t depth;
  uint64_t n_steps;      /* values looked at: a graph may have more paths than nodes */
  uint64_t n_attributes; /* tensors whose attributes torch would not write either */
  ckpt_node_map *roots;  /* what the input's archives hold, with their numbers + 1; NULL: none */
  uint8_t *is_carried;   /* by tensor of the description: it lies in an item that is carried; the caller's */
  uint32_t n_unfolded;   /* items that hold dicts and lists with tensors, which are flattened */
  uint32_t n_classes;    /* items that are carried for a class of theirs */
  const char *class_of;  /* the first of them, and its class */
  const char *own_class; /* in the last item that was looked at: of Python's own collections; NULL: none */
} ckpt_dcp_flattener;

/* Adds all that torch would find in the dict that it saved: tensors and items with their paths. */
ckpt_status ckpt_dcp_flatten(ckpt_dcp_flattener *f, const ckpt_object *root, ckpt_error *err);

/* Adds the items among a description's objects, the optimizer's below "optimizer". */
ckpt_status ckpt_dcp_flatten_objects(ckpt_dcp_flattener *f, const ckpt_object *objects, ckpt_error *err);

/* Adds a pair. */
ckpt_status ckpt_dcp_flattener_add(ckpt_dcp_flattener *f, const ckpt_object *const *keys, uint32_t n,
                                   const ckpt_object *value, ckpt_error *err);

/* Notes what the archives of an index, or of none, hold. ENOMEM. */
ckpt_status ckpt_dcp_carried_find(ckpt_node_map *roots, const ckpt_index *from, ckpt_error *err);

/* Where *value is all that an item of the input holds, and its tensors are written as they are stored: it becomes a
 * stand-in for its archive, which is the description's then. ENOMEM. */
ckpt_status ckpt_dcp_carry(ckpt_dcp_flattener *f, const ckpt_object **value, ckpt_error *err);

/* The archive that a value among the pairs stands for; NULL: it is an item to be printed. */
const ckpt_archive *ckpt_dcp_carried(const ckpt_index *described, const ckpt_object *value);

/* Generator: the bytes of a ckpt_archive. */
void ckpt_dcp_print_carried(const ckpt_layout *layout, const void *archive, ckpt_stream *out);

/* Generators: a chunk's archive up to its bytes, what follows them (both of a ckpt_dcp_chunk), an item (of its
 * value), and `.metadata` (of a ckpt_dcp_folder). */
void ckpt_dcp_print_head(const ckpt_layout *layout, const void *chunk, ckpt_stream *out);
void ckpt_dcp_print_tail(const ckpt_layout *layout, const void *chunk, ckpt_stream *out);      /* as above */
void ckpt_dcp_print_item(const ckpt_layout *layout, const void *value, ckpt_stream *out);      /* as above */
void ckpt_dcp_print_metadata(const ckpt_layout *layout, const void *folder, ckpt_stream *out); /* as above */

/* As ckpt_format's slots. Normalized, the objects are a DICT from TUPLEs, paths of TEXT and INT, to TENSORs (each
 * tensor under all its names) and to what is written as items; NULL where there is nothing but the model, under its
 * own names. */
ckpt_status ckpt_dcp_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
extern const ckpt_format_option ckpt_dcp_options[]; /* as ckpt_format's slot */
ckpt_status ckpt_dcp_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err); /* as above */
void ckpt_dcp_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours); /* as above */

#endif
