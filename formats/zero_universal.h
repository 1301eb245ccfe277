/* zero_universal.h - between the reader and the writer of universal checkpoints. */
#ifndef CKPT_FORMATS_ZERO_UNIVERSAL_H
#define CKPT_FORMATS_ZERO_UNIVERSAL_H

#include "libckpt/format.h"

#define CKPT_LATEST_UNIVERSAL "latest_universal"

/* As ckpt_format's slot. */
ckpt_status ckpt_universal_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err);

#endif
