/* checksum.h - checksums of segments that are written in pieces and in any order.
 *
 * CRC-32 is linear: the checksum of a whole is the exclusive or of those of its pieces, each carried over the bytes
 * that follow it (crc32_combine with nothing). So a segment needs only its crc32 field, in whatever order tiles arrive.
 */
#ifndef CKPT_EXTENTS_CHECKSUM_H
#define CKPT_EXTENTS_CHECKSUM_H

#include "libckpt/format/layout.h"

/* Adds bytes at position `at` of a tensor segment, if that segment wants a checksum; an extent of the layout's index
 * names the segment. Each of its bytes must come exactly once. Safe from many threads. */
void ckpt_checksum_add(ckpt_layout *layout, const ckpt_extent *extent, uint64_t at, const void *bytes, size_t n_bytes);

#endif
