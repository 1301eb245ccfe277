/* objects.h - the objects of a checkpoint, each under the name by which it is called where it is lost. */
#ifndef CKPT_FORMAT_OBJECTS_H
#define CKPT_FORMAT_OBJECTS_H

#include "libckpt/index/index.h"

typedef struct ckpt_named_object {
  const char *name;
  const ckpt_object *object;
} ckpt_named_object;

/* All objects of an index: its own, then the parts of its whole that those do not cover and that hold more than
 * tensors. *out is in the arena. ENOMEM. */
ckpt_status ckpt_objects_list(const ckpt_named_object **out, size_t *n, ckpt_index *index, ckpt_arena *arena,
                              ckpt_error *err);

/* The object that a path of names and numbers with dots between leads to: of the list, then into dicts and lists
 * (`optimizer.param_groups.0.lr`); NULL: there is none. */
const ckpt_object *ckpt_objects_find(const ckpt_named_object *list, size_t n, const char *path);

/* Whether what an entry of the parts holds stands among an index's objects, too, as the format that they were read from
 * sees it. Takes what it looks at from *n_left. */
bool ckpt_objects_cover(const ckpt_index *described, const ckpt_object *value, uint64_t *n_left);

#endif
