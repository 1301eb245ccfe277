/* readback.h - what the tensors of an output will be called when it is read again, known before it is written.
 *
 * A format whose names follow from containers (torch files, DCP folders) has its own reader name what it is about to
 * write, and compares: an object that would be read under other names is not the one to write. */
#ifndef CKPT_CODEC_READBACK_H
#define CKPT_CODEC_READBACK_H

#include "libckpt/index.h"

/* One name of a described tensor. */
typedef struct ckpt_readback_name {
  const char *text;
  uint32_t tensor, order;
  ckpt_role role;
} ckpt_readback_name;

/* Zero-initialise it; free with ckpt_readback_free. */
typedef struct ckpt_readback {
  ckpt_readback_name *names;
  uint32_t n, capacity;
  ckpt_arena arena; /* of texts */
} ckpt_readback;

/* A name in the order of reading; it is copied. ENOMEM. */
ckpt_status ckpt_readback_add(ckpt_readback *read, uint32_t tensor, const char *name, ckpt_role role, ckpt_error *err);
void ckpt_readback_free(ckpt_readback *read); /* the matching end */

/* The index that a reader makes of these names: tensor i is the description's. Canonical names, by the config among the
 * side files of config_of (NULL: there is none), unless stored_names. *out is NULL where a tensor has no name, or two
 * have one. Free with ckpt_index_free. */
ckpt_status ckpt_readback_index(ckpt_index **out, ckpt_readback *read, const ckpt_index *described,
                                const ckpt_index *config_of, bool stored_names, ckpt_error *err);

/* Whether all tensors have their names in such an index; `roles`: and parts of the model stay that, others what they
 * are. ENOMEM. */
ckpt_status ckpt_readback_is_same(bool *same, const ckpt_index *read, const ckpt_index *described, bool roles,
                                  ckpt_error *err);

/* Makes a description say what an index that ckpt_readback_index made says of it (index.h, as_read), which is its own
 * from now on; *n_roles tensors got other roles. */
void ckpt_readback_keep(ckpt_index *described, ckpt_index *read, uint32_t *n_roles);

/* By the number of a tensor in the index that a description's objects are of: the one to be written with all its names,
 * UINT32_MAX where there is none. The table, of *n_numbers, is to be freed. ENOMEM. */
ckpt_status ckpt_described_numbers(uint32_t **out, uint32_t *n_numbers, const ckpt_index *described, ckpt_error *err);

#endif
