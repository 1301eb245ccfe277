/* sink_pair.h - one file, and possibly a second one that it needs: a model and its data.
 *
 * Both are staged and sealed before either gets its name. The second is published first, so a model never exists
 * without its data. When force replaces both, the old ones first get CKPT_TEMPORARY_OLD names (temporary.h): the model,
 * then its data. The model's own name stays free until the new model gets it. So a kill leaves the old pair, the new
 * pair, or no model and two names to rename back, which opening reports. The next run keeps these until its output is
 * there. */
#ifndef CKPT_IO_SINK_PAIR_H
#define CKPT_IO_SINK_PAIR_H

#include "libckpt/io/sink.h"

/* A sink that writes path, as ckpt_sink_path for a file. It is opened with that file, without name, or with a second
 * too, whose name is without folders. */
ckpt_status ckpt_sink_pair(ckpt_sink **out, const char *path, bool force, ckpt_error *err);

#endif
