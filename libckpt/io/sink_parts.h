/* sink_parts.h - several sinks that write one folder and are published together or not at all.
 *
 * With `-o DIR -o DIR/model.onnx` the second output becomes a part of the folder's sink. The owner of each part opens,
 * seals and publishes it; the folder follows with the last part. So nothing may be written before all parts are open.
 * Abandoning one abandons all. */
#ifndef CKPT_IO_SINK_PARTS_H
#define CKPT_IO_SINK_PARTS_H

#include "libckpt/io/sink.h"

/* A sink for `name`, a file or folder, below the folder that *folder writes, which is not open yet. *folder becomes a
 * part of the shared sink too, unless it is one already. */
ckpt_status ckpt_sink_below(ckpt_sink **out, ckpt_sink **folder, const char *name, ckpt_error *err);

#endif
