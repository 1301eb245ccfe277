/* file_set.h - the files of a folder output, as names below the folder, and operations on all of them.
 *
 * Everything that removes files does so here, by these names. So we never delete a file that we did not write. */
#ifndef CKPT_IO_FILE_SET_H
#define CKPT_IO_FILE_SET_H

#include "libckpt/ckpt.h"

typedef struct ckpt_file_set {
  const char **names; /* in byte order, each once, relative with '/' between components */
  uint32_t n_names;
} ckpt_file_set;

/* Marks files of a former output of this format and kind, if all of it is present and nothing of another output. names:
 * the n regular files of the folder, and of those subfolders that are written again, in byte order. is_ours is all
 * false on entry. */
typedef void ckpt_owns_files(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours);

/* Checks and sorts names in place: EINVAL for a name that is empty, absolute, too long, too deep, or has `.` or
 * `..` in it; EEXIST for two equal names. path is the output, for messages. */
ckpt_status ckpt_file_set_init(ckpt_file_set *tree, const char **names, uint32_t n_names, const char *path,
                               ckpt_error *err);

/* Makes the subfolders that the names need. */
ckpt_status ckpt_file_set_make_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err);

/* Syncs folder and the subfolders. */
ckpt_status ckpt_file_set_sync_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err);

/* Removes the named files and then the subfolders that are empty; what is missing is fine. */
void ckpt_file_set_remove(const ckpt_file_set *tree, int folder);

/* EEXIST with a list if folder holds anything but regular files of these names and files that `owns` (a format's, or
 * NULL) attributes to the former output. The latter go to former, which the caller frees (ckpt_file_set_free). `.git`
 * never passes, nor does a subfolder that holds no name. */
ckpt_status ckpt_file_set_covers(const ckpt_file_set *tree, ckpt_owns_files *owns, ckpt_file_set *former, int folder,
                                 const char *path, ckpt_error *err);

/* EEXIST with a list when folder holds anything but leftovers of name (temporary.h). */
ckpt_status ckpt_file_set_is_empty(int folder, const char *name, const char *path, ckpt_error *err);

/* Frees a set that owns its names. */
void ckpt_file_set_free(ckpt_file_set *tree);

/* fsync of a folder, quietly where its file system cannot. */
ckpt_status ckpt_sync_folder(int folder, const char *path, ckpt_error *err);

#endif
