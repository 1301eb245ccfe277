/* record.h - the one tensor record inside a torch.save zip archive, as DCP stores each chunk of a tensor.
 *
 * Records are named <root>/..., where root is all before the first slash of the first entry. Exactly one record
 * <root>/data/<key> may be there, and <root>/byteorder says "little" (also meant where it is missing: PyTorch before
 * 2.1) or "big". <root>/data.pkl says how the tensor lies in its record: torch.save keeps strides.
 * `ckpt_decoder_torch_record`, a row of formats/decoders.def, is how extents are read that such an archive holds
 * (CKPT_DECODE_RECORD). */
#ifndef CKPT_CODEC_TORCH_READ_RECORD_H
#define CKPT_CODEC_TORCH_READ_RECORD_H

#include "libckpt/extents/decoder.h"

/* Finds the record by the directory of the archive in [offset, offset + n_bytes) of a file. *layout says how the tensor
 * lies in it. EFORMAT when there is no record or more than one, and as ckpt_zip_open; EUNSUPPORTED when it
 * is no plain tensor, or when loading it would call anything else. */
ckpt_status ckpt_torch_record_layout(ckpt_record *out, ckpt_record_layout *layout, ckpt_source *source, uint32_t file,
                                     uint64_t offset, uint64_t n_bytes, ckpt_error *err);

/* As ckpt_torch_record_layout from the first n_bytes of an archive, by its local headers: torch.save writes the small
 * records first. *n_needed is how many first bytes are needed (never any of the payload), 0 when the record is found.
 * path is for messages. */
ckpt_status ckpt_torch_record_scan(ckpt_record *out, ckpt_record_layout *layout, size_t *n_needed, const uint8_t *bytes,
                                   size_t n_bytes, const char *path, ckpt_error *err);

#endif
