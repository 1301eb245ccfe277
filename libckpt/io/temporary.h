/* temporary.h - the names under which outputs are written, and the leftovers of killed runs.
 *
 * `.<name>.ckpt-tmp.<6 random characters>`, next to an output or inside it, is being written. Its writer locks it
 * (flock) while it lives; an unlocked one is a leftover, which a later run removes. `.<name>.ckpt-old.<...>` is an old
 * output that is being replaced on a file system that cannot exchange two names. While the name itself is free, it is
 * the only whole output, and nobody removes it. On file systems without locks leftovers stay. Where locks do not reach
 * other machines, two machines must not write the same output at once. */
#ifndef CKPT_IO_TEMPORARY_H
#define CKPT_IO_TEMPORARY_H

#include <limits.h>

#include "libckpt/ckpt.h"

typedef enum ckpt_temporary { CKPT_TEMPORARY_NEW, CKPT_TEMPORARY_OLD } ckpt_temporary;

/* What a run found. */
typedef struct ckpt_leftovers {
  uint32_t n_removed;
  uint64_t n_bytes;               /* of files, removed */
  char first[NAME_MAX + 1];       /* name of the first that was removed */
  char kept_old[NAME_MAX + 1];    /* an old output whose replacement is missing; or "" */
  char kept_beside[NAME_MAX + 1]; /* its old data (sink_pair.h); or "" */
} ckpt_leftovers;

/* A temporary name for name; what is too long for that is cut, and made distinct by a hash. */
ckpt_status ckpt_temporary_name(char out[NAME_MAX + 1], const char *name, ckpt_temporary kind, ckpt_error *err);

/* Keeps others from cleaning folder until the returned descriptor is closed: between making something in it and holding
 * that. -1 where it cannot be locked. */
int ckpt_temporary_begin(int folder);

/* Keeps others from beginning, cleaning and publishing pairs (sink_pair.h) in folder until the returned descriptor is
 * closed. -1 where it cannot be locked, and where somebody else, as a script around this run, has held it for 10 s. */
int ckpt_temporary_alone(int folder);

/* Locks an open file or folder that was made as `entry` of folder; false when another run took it for a leftover in
 * that moment. True too where nothing can be locked. */
bool ckpt_temporary_hold(int folder, const char *entry, int fd);

/* Whether entry of folder is a leftover of name: the user's own, by its exact name, locked by nobody. */
bool ckpt_temporary_is_left(int folder, const char *entry, const char *name);

/* Whether a name is one under which any output is written. */
bool ckpt_temporary_is_stage(const char *entry);

/* Whether such an entry of the folder at path is that of the folder itself, by the name that it has now; true where
 * that cannot be seen. */
bool ckpt_temporary_is_of(const char *path, const char *entry);

/* Whether the writer of `entry`, a folder in the folder at path, lives; false too where nothing can be locked. */
bool ckpt_temporary_is_held(const char *path, const char *entry);

/* Removes the leftovers of name in folder (a descriptor) and adds them to found. A leftover folder stays if it holds
 * anything but the user's own files and folders. An old output stays unless `holder` exists, the path whose output or
 * data it was (NULL: it always stays). Failures are ignored: the next run tries again. */
void ckpt_temporary_clean(int folder, const char *name, const char *holder, ckpt_leftovers *found);

/* Whether an old output of name is on its way out in folder. */
bool ckpt_temporary_has_old(int folder, const char *name);

/* For a path that does not exist: ENOTFOUND when an interrupted replacement left the old one beside it. */
ckpt_status ckpt_temporary_explain(const char *path, ckpt_error *err);

/* The same for an entry of a folder that is an old output and whose own name is free. */
ckpt_status ckpt_temporary_explain_entry(const char *folder, const char *entry, ckpt_error *err);

#endif
