/* universal.h - between the reader and the writer of universal checkpoints. */
#ifndef CKPT_FORMATS_ZERO_READ_UNIVERSAL_H
#define CKPT_FORMATS_ZERO_READ_UNIVERSAL_H

#include "libckpt/format/format.h"

#define CKPT_LATEST_UNIVERSAL "latest_universal"

/* As ckpt_format's slots. Notes what engines of stage 3 do not take from it. */
ckpt_status ckpt_universal_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
ckpt_status ckpt_universal_layout(ckpt_layout *layout, const ckpt_layout_options *options,
                                  ckpt_error *err);                                                      /* as above */
void ckpt_universal_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours); /* as above */

#endif
