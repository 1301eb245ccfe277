/* descriptors.h - a bounded cache of open files, for sources and sinks with thousands of files.
 *
 * The owner numbers the files; its callback opens them on first use. A file in use is never closed. At the limit the
 * least recently used idle file is closed; if all are in use, the caller waits. A reopened file must be the same:
 * device and inode and, if it is only read, size and mtime. Safe from many threads. */
#ifndef CKPT_IO_DESCRIPTORS_H
#define CKPT_IO_DESCRIPTORS_H

#include "libckpt/ckpt.h"

typedef struct ckpt_descriptors ckpt_descriptors;

/* Opens a file; returns a descriptor or -errno. */
typedef int (*ckpt_open_file)(void *owner, uint32_t file);

/* An empty cache of at most `limit` (> 0) open descriptors. is_read_only: files must not change. */
ckpt_status ckpt_descriptors_new(ckpt_descriptors **out, uint32_t limit, bool is_read_only, ckpt_open_file open_file,
                                 void *owner, ckpt_error *err);

/* Makes room for the files 0..n_files-1. Not while other threads use the cache. */
ckpt_status ckpt_descriptors_grow(ckpt_descriptors *cache, uint32_t n_files, ckpt_error *err);

/* The descriptor of a regular file, until the matching release; path is for messages. EIO if the file was replaced, or
 * if closing an earlier file lost its bytes. */
ckpt_status ckpt_descriptors_acquire(ckpt_descriptors *cache, uint32_t file, const char *path, int *fd,
                                     ckpt_error *err);
void ckpt_descriptors_release(ckpt_descriptors *cache, uint32_t file); /* the matching release */

/* Size of a file when it was first opened, in bytes; 0 before. */
uint64_t ckpt_descriptors_size(const ckpt_descriptors *cache, uint32_t file);

/* Finds a file that changed since it was first opened, in a cache of read-only files: its number and sizes. It sees
 * files whose descriptors are open or were closed here. A file replaced under its name does not count as changed. */
bool ckpt_descriptors_changed(ckpt_descriptors *cache, uint32_t *file, uint64_t *size_before, uint64_t *size_now);

/* Closes all, EIO if that failed. Nothing may be in use. */
ckpt_status ckpt_descriptors_close(ckpt_descriptors *cache, ckpt_error *err);

/* Closes all and frees the cache; NULL is fine. */
void ckpt_descriptors_free(ckpt_descriptors *cache);

/* Exactly n_bytes at offset of a descriptor, over interruptions and short transfers. Read fails with EIO when the file
 * ends before; messages name path, offset and sizes. */
ckpt_status ckpt_read_exactly(int fd, const char *path, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err);
ckpt_status ckpt_write_exactly(int fd, const char *path, uint64_t offset, const void *src, size_t n_bytes,
                               ckpt_error *err); /* as above */

#endif
