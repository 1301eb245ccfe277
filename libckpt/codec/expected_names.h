/* expected_names.h - predicts the names that an output's tensors will have when it is read again.
 *
 * In some formats names follow from containers (torch files, DCP folders). Before writing, such a format lets its own
 * reader name the object. It does not write an object that would be read under other names. */
#ifndef CKPT_CODEC_EXPECTED_NAMES_H
#define CKPT_CODEC_EXPECTED_NAMES_H

#include "libckpt/format/format.h"

/* One name of a described tensor. */
typedef struct ckpt_expected_name {
  const char *text;
  uint32_t tensor, order;
  ckpt_role role;
} ckpt_expected_name;

/* Zero-initialise it; free with ckpt_expected_names_free. */
typedef struct ckpt_expected_names {
  ckpt_expected_name *names;
  uint32_t n, capacity;
  ckpt_arena arena; /* of texts */
} ckpt_expected_names;

/* A name in the order of reading; it is copied. ENOMEM. */
ckpt_status ckpt_expected_names_add(ckpt_expected_names *read, uint32_t tensor, const char *name, ckpt_role role,
                                    ckpt_error *err);
void ckpt_expected_names_free(ckpt_expected_names *read); /* the matching end */

/* What must be read as described. */
typedef enum ckpt_expected_names_want {
  CKPT_EXPECTED_ROLES,  /* names, and what tensors are for */
  CKPT_EXPECTED_NAMES,  /* names */
  CKPT_EXPECTED_NOTHING /* it will be written so in any case */
} ckpt_expected_names_want;

/* Whether tensors that are read under these names are read as they are described. Then the description says how they
 * are read (index.h, as_read), what they are for included, which is a loss. `stored` are the names that --names stored
 * gives, for a description that has such, else empty. config_of: whose config.json the output has, NULL: it has none.
 * ENOMEM. */
ckpt_status ckpt_expected_names_take(bool *is_taken, ckpt_expected_names_want want, ckpt_expected_names *read,
                                     ckpt_expected_names *stored, ckpt_index *described, const ckpt_index *config_of,
                                     ckpt_losses *losses, ckpt_error *err);

/* By the number of a tensor in the index that a description's objects are of: the one to be written with all its names,
 * or, with `renamed`, with any; UINT32_MAX where there is none. The table, of *n_numbers, is to be freed. ENOMEM. */
ckpt_status ckpt_described_numbers(uint32_t **out, uint32_t *n_numbers, const ckpt_index *described, bool renamed,
                                   ckpt_error *err);

#endif
