/* dcp_write.h - what the writing half of the DCP format shares: dcp_layout.c cuts tensors into chunks for ranks and
 * lays them out, dcp_chunk.c prints the archive around a chunk, dcp_items.c makes items of objects, dcp_print.c prints
 * `.metadata`. */
#ifndef CKPT_FORMATS_DCP_WRITE_H
#define CKPT_FORMATS_DCP_WRITE_H

#include "formats/dcp.h"

/* Keys of a tensor's path, at most; of an object's. */
enum { CKPT_DCP_KEYS = 4, CKPT_DCP_MAX_KEYS = 64 };

/* The keys that lead to a tensor in the dict that torch loads; joined with dots they are its fully qualified name. */
typedef struct ckpt_dcp_path {
  struct {
    const char *text;
    size_t n_bytes;
  } keys[CKPT_DCP_KEYS];
  uint32_t n;
} ckpt_dcp_path;

/* One chunk: the tensor segment `segment` of a file; the segments before and behind it are the rest of its archive. */
typedef struct ckpt_dcp_chunk {
  uint32_t tensor, rank, file, segment;
} ckpt_dcp_chunk;

/* A folder that is laid out. */
typedef struct ckpt_dcp_folder {
  bool is_nested;         /* {"model": ..., "optimizer": ...}; else the model's names alone */
  bool is_zstd;           /* chunks and items are compressed */
  ckpt_dcp_chunk *chunks; /* by the tensors' names, and those of one tensor by their rows */
  uint32_t *first;        /* n_tensors + 1 places in chunks, by the tensors' places in order of names */
  uint32_t *by_file;      /* numbers of chunks in the order in which they lie in the files */
  uint32_t *memo;         /* of the pickle that is printed: its number for each tensor's name, item's, alias */
  uint32_t n_chunks;
  uint32_t n_items; /* objects, pairs of path and value; item i is segment i of the first file */
} ckpt_dcp_folder;

/* The path of a tensor. Borrows its name. */
void ckpt_dcp_path_of(ckpt_dcp_path *out, const ckpt_tensor *tensor, bool is_nested);

/* The name that a path is in torch's dict, terminated; returns its bytes: more than the room, and there is no text. */
size_t ckpt_dcp_path_text(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_dcp_path *path);

/* The box of a chunk as torch counts: `counts` and, where not NULL, `starts`; scalars have no axes. Returns the rank.
 */
uint32_t ckpt_dcp_box(const ckpt_layout *layout, const ckpt_dcp_chunk *chunk, uint64_t starts[CKPT_MAX_RANK],
                      uint64_t counts[CKPT_MAX_RANK]);

/* The name of an item; returns its bytes. path is a key of the normalized objects. */
size_t ckpt_dcp_item_name(char text[CKPT_DCP_NAME_BYTES + 1], const ckpt_object *path);

/* Generators: a chunk's archive up to its bytes, what follows them (both of a ckpt_dcp_chunk), an item (of its
 * value), and `.metadata` (of a ckpt_dcp_folder). */
void ckpt_dcp_print_head(const ckpt_layout *layout, const void *chunk, ckpt_out *out);
void ckpt_dcp_print_tail(const ckpt_layout *layout, const void *chunk, ckpt_out *out);      /* as above */
void ckpt_dcp_print_item(const ckpt_layout *layout, const void *value, ckpt_out *out);      /* as above */
void ckpt_dcp_print_metadata(const ckpt_layout *layout, const void *folder, ckpt_out *out); /* as above */

/* As ckpt_format's slots. Normalized, the objects are a DICT from TUPLEs, paths of TEXT and INT, to what is written. */
ckpt_status ckpt_dcp_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
ckpt_status ckpt_dcp_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err); /* as above */
void ckpt_dcp_owns(const char *const *names, uint32_t n, const ckpt_tree *written, bool *is_ours);     /* as above */

#endif
