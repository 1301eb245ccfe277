/* safetensors.h - reads the safetensors header into an index and lays it out. Several formats contain it.
 *
 * n (u64, little-endian), n bytes of JSON, then the payload that the header's data_offsets count from:
 *   {"__metadata__":{"key":"text",...},"name":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
 * docs/formats/safetensors.md says what is accepted, what is noted and what is refused. */
#ifndef CKPT_CODEC_SAFETENSORS_SAFETENSORS_H
#define CKPT_CODEC_SAFETENSORS_SAFETENSORS_H

#include "libckpt/base/dtype.h"
#include "libckpt/format/layout.h"

#define CKPT_SAFETENSORS_MAX_HEADER UINT64_C(100000000) /* bytes of JSON, as the reference */
#define CKPT_SAFETENSORS_MAX_TENSORS UINT32_C(1000000)  /* in one file; metadata entries too */

/* Whether a file's first bytes are those of a safetensors file, whole or damaged. */
bool ckpt_safetensors_probe(const uint8_t *head, size_t n_head);

/* Adds the tensors and metadata of a file to an index. EFORMAT, ELIMIT, EUNSUPPORTED, EIO, ENOMEM; holes, trailing
 * bytes and misplaced empty tensors are accepted with a problem note. Time n log n, memory a window and 24 bytes per
 * tensor besides the index. */
ckpt_status ckpt_safetensors_read(ckpt_index *index, uint32_t file, ckpt_error *err);

/* The content of one file of a source from byte `begin` on, as a separate, unfinished index; the caller keeps the
 * source. As above; broken parts go to defects and are left out. */
ckpt_status ckpt_safetensors_read_alone(ckpt_index **out, ckpt_source *source, uint32_t file, uint64_t begin,
                                        ckpt_defects *defects, ckpt_error *err);

/* After the last file and before names change: refuses a duplicate name, naming both files, and reduces
 * metadata to one entry per key (the value first in byte order; a note says where files differ). */
ckpt_status ckpt_safetensors_merge(ckpt_index *index, ckpt_error *err);

/* The dtype of a header's name for it ("F8_E4M3"; case counts), CKPT_DTYPE_NONE if safetensors has none. */
ckpt_dtype ckpt_safetensors_dtype_parse(const char *name);

/* Every dtype that safetensors has: all but C128 and block types. Bit i: ckpt_dtype i. */
#define CKPT_SAFETENSORS_DTYPES (((UINT64_C(1) << CKPT_N_DTYPES) - 2) & ~(UINT64_C(1) << CKPT_C128 | CKPT_BLOCK_DTYPES))

/* Fills the newest file of a layout with n tensors of layout->index: the header as the reference library prints it
 * (metadata first, sorted by key; tensors by dtype, then name; padded with spaces to 8), then the tensors in order.
 * tensors (sorted in place) and metadata have to live as long as the layout; metadata is NULL for a header without.
 * ELIMIT for a header that no reader accepts, EINVAL for a tensor called __metadata__. */
ckpt_status ckpt_safetensors_lay(ckpt_layout *layout, uint32_t *tensors, uint32_t n, ckpt_meta *metadata,
                                 uint32_t n_metadata, ckpt_error *err);

/* Whether a file is called `<prefix>-00001-of-00003.safetensors`: bytes of `<prefix>-`, its number and their total. */
bool ckpt_safetensors_numbered(const char *name, size_t *n_prefix, unsigned *number, unsigned *total);

#endif
