/* sink_parts.h - several sinks that write one folder: published together or not at all.
 *
 * `-o DIR -o DIR/model.onnx`: what goes below a folder that is itself an output becomes a part of that folder's sink.
 * Its parts are opened, sealed and published by whoever owns them; the folder follows with the last of them, so that no
 * byte may be written before all are open. Abandoning one abandons all. */
#ifndef CKPT_IO_SINK_PARTS_H
#define CKPT_IO_SINK_PARTS_H

#include "libckpt/io/sink.h"

/* A sink for `name`, a file or folder, below the folder that *folder writes, which is not open yet. *folder becomes a
 * part of the shared sink too, unless it is one already. */
ckpt_status ckpt_sink_below(ckpt_sink **out, ckpt_sink **folder, const char *name, ckpt_error *err);

#endif
