/* gguf.h - the parts of the GGUF format: gguf.c (the row), shards.c (a folder of files), read.c (the header
 * of one file), layout.c (writing one), verify.c and model.c (what verify alone looks at). Not for other formats. */
#ifndef CKPT_FORMATS_GGUF_GGUF_H
#define CKPT_FORMATS_GGUF_GGUF_H

#include "libckpt/base/dtype.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/format/findings.h"
#include "libckpt/format/format.h"

#define CKPT_GGUF_MAX_NAME 63         /* bytes of a tensor name, as ggml's readers */
#define CKPT_GGUF_MAX_RANK 4          /* GGML_MAX_DIMS */
#define CKPT_GGUF_MAX_TENSORS 1000000 /* in one file, as of safetensors; keys too */
#define CKPT_GGUF_DEFAULT_ALIGNMENT 32
#define CKPT_GGUF_DTYPES                                                                                   \
  (CKPT_BLOCK_DTYPES | UINT64_C(1) << CKPT_I8 | UINT64_C(1) << CKPT_I16 | UINT64_C(1) << CKPT_I32 |        \
   UINT64_C(1) << CKPT_I64 | UINT64_C(1) << CKPT_F64 | UINT64_C(1) << CKPT_F32 | UINT64_C(1) << CKPT_F16 | \
   UINT64_C(1) << CKPT_BF16)

/* What the header of one file says of the model that it may be a part of. */
typedef struct ckpt_gguf_part {
  uint32_t number, count; /* split.no, from 0, and split.count; 0: it is whole */
  int64_t n_tensors;      /* split.tensors.count, of all parts; -1: not stated */
} ckpt_gguf_part;

/* Bytes of padding behind n bytes. */
static inline uint64_t ckpt_gguf_padding(uint64_t n, uint32_t alignment) {
  return (alignment - n % alignment) % alignment;
}

/* Whether these are the first bytes of a GGUF file. */
bool ckpt_gguf_probe(const uint8_t *head, size_t n_head);

/* Adds a file's tensors to the index and, of the first part, its metadata. EFORMAT, EUNSUPPORTED (big-endian, version,
 * dtype), ELIMIT, EIO, ENOMEM; what ggml's own reader would refuse though it can be read is a problem note. */
ckpt_status ckpt_gguf_read_file(ckpt_index *index, uint32_t file, bool has_metadata, ckpt_gguf_part *part,
                                ckpt_error *err);

/* Reads the model whose only or first file this is, with its other parts beside it, as ckpt_format's `read`. */
ckpt_status ckpt_gguf_read_model(ckpt_index *index, const char *name, const ckpt_open_options *options,
                                 ckpt_error *err);

/* Whether a file's name is that of one of several parts, PREFIX-00001-of-00003.gguf, and of which: *n_prefix bytes, the
 * number from 1. */
bool ckpt_gguf_numbered(const char *name, size_t *n_prefix, uint32_t *number, uint32_t *count);

/* As ckpt_format's slot: what no GGUF file can hold. Notes what `verify` will say of the metadata. */
ckpt_status ckpt_gguf_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* As ckpt_format's slot. A problem is padding that is not zero, a bad scale of an NVFP4 weight, a block of MXFP4 that
 * is NaN, or metadata that contradict the tensors. Reads the paddings and all of MXFP4, by windows of 1 MiB. */
ckpt_status ckpt_gguf_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err);

/* Metadata against tensors: blocks, columns and rows of the embedding. The index may be a description; path: what
 * findings name, or NULL. EIO, ENOMEM. */
ckpt_status ckpt_gguf_check_model(ckpt_findings *findings, const ckpt_index *index, const char *path, ckpt_error *err);

/* The tensors of a description in the order of a file: as the input has them if that is GGUF, else as llama-quantize
 * orders them (those of no block by name, then by block and name). In the layout's arena. */
ckpt_status ckpt_gguf_order(uint32_t **out, const ckpt_layout *layout, ckpt_error *err);

/* The alignment that metadata states, or the default; 0 if it states a bad one. */
uint32_t ckpt_gguf_stated_alignment(const ckpt_index *index);

/* The same to be written by. EINVAL: a bad one, or one that makes files of padding. */
ckpt_status ckpt_gguf_alignment(const ckpt_index *index, uint32_t *out, ckpt_error *err);

/* Fills the newest file of a layout with n tensors, borrowed in this order, and metadata, borrowed too. */
ckpt_status ckpt_gguf_lay(ckpt_layout *layout, const uint32_t *tensors, uint32_t n, const ckpt_meta *metadata,
                          uint32_t n_metadata, uint32_t alignment, ckpt_error *err);

/* Whether a folder has a GGUF file; the first file of the only model in it (entries are sorted). EUNSUPPORTED (several
 * models), ENOTFOUND (the first of a set is missing). */
bool ckpt_gguf_probe_folder(const ckpt_probe *p);
ckpt_status ckpt_gguf_find_first(const ckpt_probe *p, const char **out, ckpt_error *err); /* as above */

/* Lays a model out as a set of files; order and alignment as above, order borrowed. ELIMIT: more than can be numbered.
 */
ckpt_status ckpt_gguf_lay_shards(ckpt_layout *layout, const uint32_t *order, uint32_t alignment,
                                 const ckpt_layout_options *options, ckpt_error *err);

/* As ckpt_format's slot: files of a set that is whole are a former output's, a part of another set is something else.
 */
void ckpt_gguf_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours);

#endif
