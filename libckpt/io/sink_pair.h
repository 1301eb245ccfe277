/* sink_pair.h - one file, and maybe another beside it that it cannot be without: a model and its data.
 *
 * Both are staged and sealed before either has its name; the one beside comes first, so that no file ever stands there
 * whose data are not. Where force replaces both, nothing stands at the file's own name from before the second changes
 * until the new one is there: the old ones get CKPT_TEMPORARY_OLD names (temporary.h) first, the file's, then the
 * other's. So a kill leaves the old pair, the new one, or no file and two names to rename back, which opening says. The
 * next run keeps these until its own output is there. */
#ifndef CKPT_IO_SINK_PAIR_H
#define CKPT_IO_SINK_PAIR_H

#include "libckpt/io/sink.h"

/* A sink that writes path, as ckpt_sink_path for a file. It is opened with that file, without name, or with a second
 * too, whose name is without folders. */
ckpt_status ckpt_sink_pair(ckpt_sink **out, const char *path, bool force, ckpt_error *err);

#endif
