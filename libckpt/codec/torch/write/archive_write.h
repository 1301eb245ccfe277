/* archive_write.h - a torch.save archive at the end of a layout, as PyTorch 2.15 writes it.
 *
 *   archive/data.pkl, .format_version, .storage_alignment, byteorder   literals
 *   archive/data/0 ... data/<n - 1>                                    storages, in order of first use in the object
 *   archive/version, .data/serialization_id, the directory             literals
 *
 * In a folder of files each archive is called after its own, as torch.save does. An object's leaves are ITEMS: tensors,
 * each alone in its storage or a view of another's, which tensors of the layout's index fill, or literals, or parts of
 * both. The checksums of tensors come from the run, so each storage is followed by a trailer. */
#ifndef CKPT_CODEC_TORCH_WRITE_ARCHIVE_WRITE_H
#define CKPT_CODEC_TORCH_WRITE_ARCHIVE_WRITE_H

#include "libckpt/codec/torch/write/write.h"
#include "libckpt/format/layout.h"

#define CKPT_TORCH_LITERAL UINT32_MAX

/* A part of a storage: a tensor of the layout's index, or bytes. */
typedef struct ckpt_torch_part {
  uint32_t tensor;          /* CKPT_TORCH_LITERAL: bytes */
  ckpt_segment_range range; /* of the tensor's units; count 0: all of it */
  const void *bytes;        /* NULL: zeros */
  uint64_t n_bytes;         /* of a literal */
} ckpt_torch_part;

typedef struct ckpt_torch_item {
  uint8_t dtype;
  uint32_t rank;
  const uint64_t *shape;
  const ckpt_torch_part *parts; /* one after the other: all bytes; borrowed as long as the layout, like shape */
  uint32_t n_parts;             /* 0: the tensor `whole` */
  uint32_t whole;
  const ckpt_torch_view *view; /* NULL: it has a storage of its own; else it lies in that of leaf `storage` */
  uint32_t storage;
} ckpt_torch_item;

/* What the leaf with this number is. */
typedef void ckpt_torch_item_of(const void *arg, uint32_t leaf, ckpt_torch_item *item);

/* Appends an archive to the newest file, which has nothing in front of it. Leaves have numbers below n_leaves; root and
 * arg have to live as long as the layout. of NULL: a leaf is the layout's tensor of its number. ELIMIT for more
 * tensors than an archive holds, EUNSUPPORTED as ckpt_torch_put_tensor, ENOMEM. */
ckpt_status ckpt_torch_archive_lay(ckpt_layout *layout, const ckpt_object *root, uint32_t n_leaves,
                                   ckpt_torch_item_of *of, const void *arg, ckpt_error *err);

#endif
