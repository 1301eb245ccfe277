/* publish.h - the renames that make an output visible, and substitutes for file systems that lack them. */
#ifndef CKPT_IO_PUBLISH_H
#define CKPT_IO_PUBLISH_H

#include "libckpt/ckpt.h"

/* Renames from to to, which must not exist (EEXIST). The folders are descriptors; path is the output, for messages.
 * Where RENAME_NOREPLACE is missing: link and unlink for a file, else a look before the rename. */
ckpt_status ckpt_rename_new(int from_folder, const char *from, int to_folder, const char *to, const char *path,
                            ckpt_error *err);
ckpt_status ckpt_rename_new_portably(int from_folder, const char *from, int to_folder, const char *to, const char *path,
                                     ckpt_error *err); /* the substitute alone, for tests */

/* Exchanges two names of a folder. Where RENAME_EXCHANGE is missing: three renames, undone if the second fails; a kill
 * in between leaves the old one under a name of its own (CKPT_TEMPORARY_OLD of temporary.h). */
ckpt_status ckpt_exchange(int folder, const char *from, const char *to, const char *path, ckpt_error *err);
ckpt_status ckpt_exchange_portably(int folder, const char *from, const char *to, const char *path,
                                   ckpt_error *err); /* the substitute alone, for tests */

#endif
