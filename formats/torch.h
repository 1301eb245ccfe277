/* torch.h - between the files of the torch format. */
#ifndef CKPT_FORMATS_TORCH_H
#define CKPT_FORMATS_TORCH_H

#include "libckpt/codec/pickle.h"
#include "libckpt/codec/torch_graph.h"
#include "libckpt/format.h"

/* Whether n_bytes begin like a stream of torch.save before 1.6. */
bool ckpt_torch_is_legacy(const uint8_t *head, size_t n_head);

/* Reads such a stream, which is a whole file. As ckpt_torch_archive_read. */
ckpt_status ckpt_torch_legacy_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, ckpt_arena *arena,
                                   ckpt_pickle_report *report, ckpt_error *err);

#endif
