/* archive.h - a torch.save zip archive in a slice of a file, read as a graph of tensors.
 *
 *   <root>/data.pkl    the object; root is the first entry's name up to its first slash
 *   <root>/byteorder   "little" (also meant where it is missing) or "big"
 *   <root>/data/<key>  the bytes of a storage, stored or deflated
 *
 * Nothing in it is executed. TorchScript archives, which hold code, are refused. */
#ifndef CKPT_CODEC_TORCH_READ_ARCHIVE_H
#define CKPT_CODEC_TORCH_READ_ARCHIVE_H

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"

/* Reads the archive in [offset, offset + n_bytes) of a file into graph, whose nodes are the arena's. report as
 * ckpt_pickle_options; NULL: none. EFORMAT for what is broken or lies, EUNSUPPORTED for TorchScript and what
 * ckpt_zip_open refuses, ELIMIT, EIO, ENOMEM. The caller frees the graph in any case. */
ckpt_status ckpt_torch_archive_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, uint64_t offset,
                                    uint64_t n_bytes, ckpt_arena *arena, ckpt_pickle_report *report, ckpt_error *err);

#endif
