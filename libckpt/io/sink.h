/* sink.h - writes bytes at positions and makes them visible, all or nothing.
 *
 * A sink is one output of a run: a file or a folder of files. Its life: open (names and sizes known or unknown),
 * write_at from many threads, seal (fsync of every file), publish, or abandon at any time before. File sinks write to a
 * temporary sibling `.<name>.ckpt-tmp.<random>` (O_EXCL), preallocate known sizes (ENOSPC at once, with both numbers),
 * and publish by rename: RENAME_NOREPLACE, or with force RENAME_EXCHANGE and removal of the old one; where the file
 * system lacks these, two renames. The parent folder is synced. An existing empty folder is staged inside and its
 * entries renamed, index and config files last. At most CKPT_MAX_DESCRIPTORS files are open at once.
 *
 * With force a folder is replaced only if this sink writes every entry in it, or its format knows the entry as part of
 * a former output (ckpt_sink_owns). Other entries fail with EEXIST and a list before anything is written. Opening a
 * sink removes leftovers of killed runs of the same output. */
#ifndef CKPT_IO_SINK_H
#define CKPT_IO_SINK_H

#include "libckpt/io/file_set.h"
#include "libckpt/io/temporary.h"

typedef struct ckpt_sink ckpt_sink;

typedef struct ckpt_sink_file {
  const char *name; /* below the output folder; NULL when the output is itself one file */
  uint64_t n_bytes; /* CKPT_SIZE_UNKNOWN behind an encoder */
} ckpt_sink_file;

#define CKPT_SIZE_UNKNOWN UINT64_MAX
#define CKPT_TOKEN_BYTES 260 /* a file name, terminated */

/* The slots of a sink; each takes the owner's ctx. Positional and safe from many threads. */
typedef struct ckpt_sink_ops {
  ckpt_status (*open)(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err);
  ckpt_status (*write_at)(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes, ckpt_error *err);
  /* Reads back what was written: digests of rows that are not written in order need it. */
  ckpt_status (*read_at)(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err);
  /* Sync every file; one of unknown size ends where it was last written. */
  ckpt_status (*seal)(void *ctx, ckpt_error *err);
  ckpt_status (*publish)(void *ctx, ckpt_error *err);
  void (*abandon)(void *ctx); /* before publish: removes everything; after: nothing */
  void (*close)(void *ctx);   /* abandons what is unpublished and frees ctx */
  /* For ranks that write one output: a text that lets others join what open made, and joining it instead of opening. A
   * sink that joined neither publishes nor removes. NULL: it cannot be shared. */
  ckpt_status (*share)(void *ctx, char token[CKPT_TOKEN_BYTES], ckpt_error *err);
  ckpt_status (*join)(void *ctx, const ckpt_sink_file *files, uint32_t n_files, const char *token, ckpt_error *err);
  /* Makes a file share all blocks of an open one of the same size (reflink); false if that is impossible. NULL:
   * never. */
  bool (*clone)(void *ctx, uint32_t file, int from);
  /* Leftovers of killed runs, after open. NULL: none. */
  const ckpt_leftovers *(*leftovers)(void *ctx);
  /* The path where it was published, even if publish failed afterwards; NULL before. NULL slot: it has no path. */
  const char *(*place)(void *ctx);
} ckpt_sink_ops;

/* A sink that writes path: one file, or a folder when is_folder. Fails with EEXIST when path exists (an empty folder
 * is fine for a folder) unless force. Nothing is created before ckpt_sink_open. */
ckpt_status ckpt_sink_path(ckpt_sink **out, const char *path, bool is_folder, bool force, ckpt_error *err);

/* Before open: lets a folder's sink replace the files that `owns` attributes to a former output. Other sinks ignore
 * it. */
void ckpt_sink_owns(ckpt_sink *sink, ckpt_owns_files *owns);

/* Before open: makes a path's sink keep old outputs that an interrupted run put aside, since they hold more than its
 * own. Other sinks ignore it. */
void ckpt_sink_keep_old(ckpt_sink *sink);

/* Before open: lets a path's sink create and reserve its files with up to n threads (default 1). Other sinks ignore
 * it. */
void ckpt_sink_threads(ckpt_sink *sink, uint32_t n);

/* A sink into memory, for tests and embedding. ckpt_sink_bytes gives a file's bytes after seal. */
ckpt_status ckpt_sink_memory(ckpt_sink **out, ckpt_error *err);
const void *ckpt_sink_bytes(const ckpt_sink *sink, uint32_t file, uint64_t *n_bytes); /* borrowed; NULL if not memory */

/* A sink that discards everything, for replays; it cannot read back. */
ckpt_status ckpt_sink_nothing(ckpt_sink **out, ckpt_error *err);

/* A sink with the caller's own ops. */
ckpt_status ckpt_sink_custom(ckpt_sink **out, const ckpt_sink_ops *ops, void *ctx, ckpt_error *err);

/* The ctx of a sink made with these ops; NULL for another kind. */
void *ckpt_sink_ctx(const ckpt_sink *sink, const ckpt_sink_ops *ops);

/* The slots of ckpt_sink_ops, in order of a sink's life. */
ckpt_status ckpt_sink_open(ckpt_sink *sink, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err);
ckpt_status ckpt_sink_share(ckpt_sink *sink, char token[CKPT_TOKEN_BYTES], ckpt_error *err); /* as the slot */
ckpt_status ckpt_sink_join(ckpt_sink *sink, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                           ckpt_error *err); /* as the slot */
ckpt_status ckpt_sink_write(ckpt_sink *sink, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                            ckpt_error *err); /* as the slot */
ckpt_status ckpt_sink_read(ckpt_sink *sink, uint32_t file, uint64_t offset, void *dst, size_t n_bytes,
                           ckpt_error *err);                     /* as the slot */
bool ckpt_sink_clone(ckpt_sink *sink, uint32_t file, int from);  /* as the slot */
ckpt_status ckpt_sink_seal(ckpt_sink *sink, ckpt_error *err);    /* as the slot */
ckpt_status ckpt_sink_publish(ckpt_sink *sink, ckpt_error *err); /* as the slot */
void ckpt_sink_abandon(ckpt_sink *sink);                         /* as the slot */
void ckpt_sink_free(ckpt_sink *sink);                            /* NULL is fine */

/* Seals and publishes several sinks in order. On failure it abandons those not yet published, and the message names
 * the published ones. */
ckpt_status ckpt_sink_commit(ckpt_sink *const *sinks, uint32_t n, ckpt_error *err);

/* Leftovers of killed runs, once the sink is open; NULL for none. Borrowed; sinks of one folder share it. */
const ckpt_leftovers *ckpt_sink_leftovers(const ckpt_sink *sink);

/* As the slot. Borrowed. */
const char *ckpt_sink_place(const ckpt_sink *sink);

/* Bytes written so far, all threads. */
uint64_t ckpt_sink_bytes_written(const ckpt_sink *sink);

#endif
