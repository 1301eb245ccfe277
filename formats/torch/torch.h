/* torch.h - the parts of the torch format that write: objects.c (which object), rename.c (the input's under
 * other names), make.c (one for tensors that have none), quantized.c (calls in it), views.c (who
 * shares memory). Not for others. */
#ifndef CKPT_FORMATS_TORCH_TORCH_H
#define CKPT_FORMATS_TORCH_TORCH_H

#include "libckpt/codec/torch/plain/object_tensors.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/write/write.h"
#include "libckpt/format/format.h"

/* As ckpt_format's slot. Normalized, the objects are NULL, for a dict of all tensors, or have the whole alone,
 * whose leaves are the description's own tensors. */
ckpt_status ckpt_torch_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* Of each tensor of a description the one in whose storage it is written: itself, or a row-major one that was read from
 * all the memory that it is a view of. NULL in *covers: each has its own. In the arena; ENOMEM. */
ckpt_status ckpt_torch_covers(const uint32_t **covers, const ckpt_index *described, ckpt_arena *arena, ckpt_error *err);

/* Where a tensor lies in the storage of its cover. Before the description has places: for those see layout.h. */
void ckpt_torch_view_of(ckpt_torch_view *out, const ckpt_tensor *tensor, const ckpt_tensor *cover);

/* Says which tensors shared memory or had strides, and will not. */
ckpt_status ckpt_torch_say_apart(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* Gives the tensors of a description, among whose objects *root is, the keys that their names ask for: *root becomes a
 * copy where a tensor has another name, or lost one. ENOMEM, ELIMIT. */
ckpt_status ckpt_torch_rename(ckpt_object **root, const ckpt_index *described, ckpt_arena *arena, ckpt_error *err);

/* Makes a quantized tensor's call, a copy with leaves of the description, one that can be written; *is_settled is false
 * where it cannot: its parts have other types now. covers as ckpt_torch_covers gives them. ENOMEM. */
ckpt_status ckpt_torch_settle_quantized(bool *is_settled, ckpt_object *call, const ckpt_index *described,
                                        const uint32_t *covers, ckpt_arena *arena, ckpt_error *err);

/* An object for the tensors and objects of a description; NULL for a model without more. In the losses' arena. */
ckpt_status ckpt_torch_make_object(ckpt_object **out, ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* A dict of all tensors, by all their names (those of one in byte order, whichever is its first): what a model's state
 * dict is. */
ckpt_status ckpt_torch_make_state_dict(ckpt_object **out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err);

/* A copy without what weights-only loading refuses, which is added to the losses, and with no tensors but those that
 * are `held` (NULL: none); NULL where that is all. A namespace is kept, and noted in the description. The object is
 * at `at`, n bytes long. */
ckpt_status ckpt_torch_copy_data(ckpt_object **out, const ckpt_object *object, const ckpt_object_tensors *held,
                                 const char *at, size_t n, ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* Copies the taken entries of top in the same way, to the end of root, which has room for them. Their keys are texts.
 * What is left out of them is added to the losses. An entry that holds tensors, or is left out, is no longer taken. */
ckpt_status ckpt_torch_copy_entries(ckpt_object *root, const ckpt_object *top, bool *is_taken, ckpt_index *described,
                                    ckpt_losses *losses, ckpt_error *err);

#endif
