/* file.h - a whole file of torch.save, archive or stream, into an index. */
#ifndef CKPT_CODEC_TORCH_READ_FILE_H
#define CKPT_CODEC_TORCH_READ_FILE_H

#include "libckpt/codec/torch/read/archive.h"

/* Whether a file's first bytes are those of an archive whose first record is one of PyTorch's, or of a stream. */
bool ckpt_torch_probe(const uint8_t *head, size_t n_head);

/* Whether they are those of a stream, as torch.save wrote before 1.6. */
bool ckpt_torch_is_stream(const uint8_t *head, size_t n_head);

/* Reads a stream of at most n_bytes from an offset of a file. As ckpt_torch_archive_read. */
ckpt_status ckpt_torch_stream_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, uint64_t offset,
                                   uint64_t n_bytes, ckpt_arena *arena, ckpt_pickle_report *report, ckpt_error *err);

/* Reads a whole file that is either of the two, as ckpt_torch_archive_read. */
ckpt_status ckpt_torch_any_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, ckpt_arena *arena,
                                ckpt_pickle_report *report, ckpt_error *err);

/* Whether a small file below a folder is one of torch's, holds no tensor, and would run nothing. Where it cannot be
 * read, it is not. The index's memory is what it may take. */
bool ckpt_torch_is_plain_file(ckpt_index *index, const char *root, const char *name);

/* Classes that pickles speak of and nothing knows [0], and what would run code [1]; zero-initialise it. */
enum { CKPT_TORCH_MAX_GLOBALS = 64 };
typedef struct ckpt_torch_globals {
  const char *names[2][CKPT_TORCH_MAX_GLOBALS]; /* different ones, the first of them; in an arena */
  uint64_t n[2];
  bool is_of_file; /* all of them are of one file */
  uint32_t file;
} ckpt_torch_globals;

/* Adds those of one pickle: names that are new are copied, so that the report may go. ENOMEM. */
ckpt_status ckpt_torch_globals_add(ckpt_torch_globals *globals, const ckpt_pickle_report *report, ckpt_arena *arena,
                                   ckpt_error *err);
ckpt_status ckpt_torch_globals_note(const ckpt_torch_globals *globals, ckpt_index *index,
                                    ckpt_error *err); /* at most one note of each kind */

/* An empty arena for a graph beside an index: what the index may still take, of the same allocator. Where it is full,
 * the index is. */
void ckpt_torch_arena_init(ckpt_arena *arena, ckpt_index *index);

/* Adds the tensors of a file of the index's source, and notes; graph is what they came from, its nodes the arena's, the
 * caller's to free in any case. The index needs neither afterwards. Fails as ckpt_torch_archive_read and
 * ckpt_torch_graph_add do. */
ckpt_status ckpt_torch_file_read(ckpt_torch_graph *graph, ckpt_index *index, uint32_t file, bool stored_names,
                                 ckpt_arena *arena, ckpt_error *err);

#endif
