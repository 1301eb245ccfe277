/* contained.h - opens names that come from inside a checkpoint, without ever leaving its folder.
 *
 * A name is relative, has no empty and no `..` component, and resolves beneath its root. Links on the way are followed
 * as long as they stay beneath the ceiling: the root itself or, in a Hugging Face cache (the root's real path is
 * .../models--X/snapshots/REV or below), the models--X folder. Absolute links are refused wherever they lead. */
#ifndef CKPT_IO_CONTAINED_H
#define CKPT_IO_CONTAINED_H

#include "libckpt/ckpt.h"

typedef struct ckpt_root {
  int ceiling; /* descriptor of the folder that nothing may leave */
  char *below; /* the root's real path below the ceiling, with a slash at its end; "" when they are the same */
} ckpt_root;

/* Resolves a folder that the user named: links in path itself are followed wherever they lead. */
ckpt_status ckpt_root_open(ckpt_root *root, const char *path, ckpt_error *err);

/* Closes it; a root set to {-1, NULL} is fine. */
void ckpt_root_close(ckpt_root *root);

/* Whether a name may be used below a folder at all: relative, no empty component, no `..`. Does not check the length.
 */
bool ckpt_name_is_contained(const char *name);

/* Opens name ("" is the root itself) for reading; flags are added to O_RDONLY, O_CLOEXEC, O_NONBLOCK and O_NOCTTY, so
 * that a fifo or terminal in the checkpoint cannot hold the caller. Returns a descriptor or -errno: -EXDEV when it
 * leads outside. The caller checks the kind of the file. */
int ckpt_contained_open(const ckpt_root *root, const char *name, int flags);

/* The same by walking the components, for kernels and sandboxes without openat2. Declared for tests. */
int ckpt_contained_walk(const ckpt_root *root, const char *name, int flags);

/* Says why opening path failed, `code` being an errno value (-EXDEV and friends explained). */
ckpt_status ckpt_fail_open(ckpt_error *err, const char *path, int code);

#endif
