/* sink_beside.h - one file, and maybe another beside it that it cannot be without: a model and its data.
 *
 * Both are staged and sealed before either has its name; the one beside comes first, so that no file ever stands there
 * whose data are not. What stands where the second goes is never replaced, with force either: between two renames the
 * old model would be found with the new data. */
#ifndef CKPT_SINK_BESIDE_H
#define CKPT_SINK_BESIDE_H

#include "sink.h"

/* A sink that writes path, as ckpt_sink_path for a file. It is opened with that file, without name, or with a second
 * too, whose name is without folders. */
ckpt_status ckpt_sink_beside(ckpt_sink **out, const char *path, bool force, ckpt_error *err);

#endif
