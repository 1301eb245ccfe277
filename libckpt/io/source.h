/* source.h - reads bytes at positions: the only way in which libckpt reads a checkpoint.
 *
 * A source is a table of files numbered from 0 (files of one checkpoint, or one block of memory). Reads are
 * positional, exact and safe from many threads. Fewer bytes than asked are an error that names file, offset and sizes.
 * The file source keeps at most CKPT_MAX_DESCRIPTORS open, closing the least recently used; one that is reopened must
 * still have the device, inode, size and mtime it had, else EIO ("changed while being read").
 *
 * Contained open: a name that comes from inside a checkpoint resolves beneath its root folder (openat2
 * RESOLVE_BENEATH, or a component walk where the kernel lacks it). Links are followed only when they stay beneath the
 * root, or, in a Hugging Face cache (root is .../models--*--* /snapshots/REV), beneath that models-- folder. */
#ifndef CKPT_IO_SOURCE_H
#define CKPT_IO_SOURCE_H

#include "libckpt/ckpt.h"

#define CKPT_MAX_DESCRIPTORS 256

typedef struct ckpt_source ckpt_source;

/* What a source is made of; the slots take the owner's ctx. */
typedef struct ckpt_source_ops {
  /* Exactly n_bytes at offset of file into dst. */
  ckpt_status (*read_at)(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err);
  void (*close)(void *ctx);
} ckpt_source_ops;

/* A source over files beneath a root folder (or a single file: root is its folder). */
ckpt_status ckpt_source_open(ckpt_source **out, const char *root, ckpt_error *err);

/* A source over caller-owned memory, file 0 with this name. */
ckpt_status ckpt_source_memory(ckpt_source **out, const void *data, size_t n_bytes, const char *name, ckpt_error *err);

/* A source with the caller's own ops (tests, device memory); ctx is closed with it. */
ckpt_status ckpt_source_custom(ckpt_source **out, const ckpt_source_ops *ops, void *ctx, ckpt_error *err);

/* Adds a file by its name below the root and opens it once (contained, regular files only). *file numbers it, *size is
 * its length. The same name gives the same number. */
ckpt_status ckpt_source_add(ckpt_source *source, const char *name, uint32_t *file, uint64_t *size, ckpt_error *err);

/* Adds a file of a custom source, whose bytes only its ops know. */
ckpt_status ckpt_source_declare(ckpt_source *source, const char *name, uint64_t size, uint32_t *file, ckpt_error *err);

/* Exactly n_bytes at offset of file. EIO when the file ends before. */
ckpt_status ckpt_source_read(ckpt_source *source, uint32_t file, uint64_t offset, void *dst, size_t n_bytes,
                             ckpt_error *err);

/* EIO if a file of the source changed since it was added, so that its reads may be inconsistent. Accepts NULL. */
ckpt_status ckpt_source_unchanged(ckpt_source *source, ckpt_error *err);

/* A descriptor of a file, until ckpt_source_take_back; false where it has none (memory, custom ops) or cannot open. */
bool ckpt_source_lend(ckpt_source *source, uint32_t file, int *fd);
void ckpt_source_take_back(ckpt_source *source, uint32_t file); /* the matching end */

/* Number of files; of one its name below the root, path that can be opened (root joined with name), and size. */
uint32_t ckpt_source_count(const ckpt_source *source);
const char *ckpt_source_name(const ckpt_source *source, uint32_t file); /* borrowed */
const char *ckpt_source_path(const ckpt_source *source, uint32_t file); /* borrowed */
uint64_t ckpt_source_size(const ckpt_source *source, uint32_t file);    /* bytes */
uint64_t ckpt_source_links(ckpt_source *source, uint32_t file);         /* names that the file has; 0: unknown */
const char *ckpt_source_root(const ckpt_source *source);                /* folder; "" for memory */

/* Bytes read so far through ckpt_source_read, all threads: what tests count. */
uint64_t ckpt_source_bytes_read(const ckpt_source *source);

/* Closes everything. NULL is fine. */
void ckpt_source_free(ckpt_source *source);

/* One entry of a folder, as ckpt_list gives it. */
typedef struct ckpt_entry {
  const char *name; /* no slashes */
  bool is_folder;   /* links are followed under the containment rule; what cannot be followed is neither */
  bool is_file;
  bool is_link; /* whatever it leads to */
  uint64_t n_bytes;
} ckpt_entry;

/* The entries of root/sub ("" for root) in byte order of names, at most 1,000,000; memory from the arena-like callback
 * is the caller's: free with ckpt_list_free. */
ckpt_status ckpt_list(ckpt_entry **out, size_t *n, const char *root, const char *sub, ckpt_error *err);
void ckpt_list_free(ckpt_entry *entries, size_t n); /* NULL is fine */

#endif
