/* file_set.h - the files that a folder output consists of, as names below a folder, and what is done to all of them.
 *
 * Everything that removes files goes through here, by these names: nothing that we did not write is ever deleted. */
#ifndef CKPT_IO_FILE_SET_H
#define CKPT_IO_FILE_SET_H

#include "libckpt/ckpt.h"

typedef struct ckpt_file_set {
  const char **names; /* in byte order, each once, relative with '/' between components */
  uint32_t n_names;
} ckpt_file_set;

/* Marks, of the n regular files of a folder and of its subfolders that are written anew, those that are one former
 * output of a format and of the kind that is written in its place: all of it is there, and of no other. The names are
 * as a tree's, in byte order; is_ours is false where it is called. */
typedef void ckpt_owns_files(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours);

/* Checks and sorts names in place: EINVAL for one that is not plainly below a folder (empty, absolute, `.` or `..` in
 * it, too long or deep), EEXIST for two that are equal. path is the output, for messages. */
ckpt_status ckpt_file_set_init(ckpt_file_set *tree, const char **names, uint32_t n_names, const char *path,
                               ckpt_error *err);

/* Makes the subfolders that the names need. */
ckpt_status ckpt_file_set_make_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err);

/* Syncs folder and the subfolders. */
ckpt_status ckpt_file_set_sync_folders(const ckpt_file_set *tree, int folder, const char *path, ckpt_error *err);

/* Removes the named files and then the subfolders that are empty; what is missing is fine. */
void ckpt_file_set_remove(const ckpt_file_set *tree, int folder);

/* EEXIST with a list when folder holds anything but regular files of these names in their subfolders, and files in it
 * or in these that `owns` (a format's, or NULL) takes for the former output's; these are added to former, which the
 * caller frees (ckpt_file_set_free). `.git` never passes, nor does a subfolder that no name is in. */
ckpt_status ckpt_file_set_covers(const ckpt_file_set *tree, ckpt_owns_files *owns, ckpt_file_set *former, int folder,
                                 const char *path, ckpt_error *err);

/* EEXIST with a list when folder holds anything but leftovers of name (temporary.h). */
ckpt_status ckpt_file_set_is_empty(int folder, const char *name, const char *path, ckpt_error *err);

/* Frees a tree whose names are its own. */
void ckpt_file_set_free(ckpt_file_set *tree);

/* fsync of a folder, quietly where its file system cannot. */
ckpt_status ckpt_sync_folder(int folder, const char *path, ckpt_error *err);

#endif
