/* items.h - what the files of this room share: pairs of tensors, and the file of the factors. */
#ifndef CKPT_RECIPE_EXTRACT_ITEMS_H
#define CKPT_RECIPE_EXTRACT_ITEMS_H

#include "libckpt/recipe/adapter/models.h"
#include "libckpt/recipe/extract/extract.h"

typedef struct ckpt_extract_item {
  const ckpt_tensor *base, *tuned;
  const char *name, *module;  /* of the tuned model; the module is PEFT's path of it */
  const char *const *aliases; /* its other names that are not left out; NULL-terminated, or NULL */
  bool is_linear, is_transposed;
  bool is_of_linear; /* a bias of one */
  bool is_integer;   /* compared, and no difference taken */
  bool is_expert;    /* a linear layer's matrix that is one of many below `experts` */
  bool differs;
  uint64_t rank, offset; /* of the factors' first byte: PEFT's A, then B */
  double squares, error;
  struct ckpt_extract_item *next; /* of the same tensor of the base */
} ckpt_extract_item;

/* A tensor that the adapter stores whole. */
typedef struct ckpt_extract_whole {
  const char *name; /* that PEFT finds, without its prefix */
  const ckpt_index *index;
  const ckpt_tensor *tensor;
  const struct ckpt_extract_item *bias; /* of a linear layer, which may have factors; NULL: any other tensor */
} ckpt_extract_whole;

struct ckpt_extraction {
  const ckpt_index *base, *tuned;
  ckpt_extract_options options;
  ckpt_arena arena;
  ckpt_model_facts facts;   /* of the base */
  ckpt_extract_item *items; /* linear layers, and all other parameters */
  size_t n;
  int file;           /* of the factors; -1: none yet */
  const char *folder; /* that it lies in, for messages */
  uint64_t n_file;
  /* what ckpt_extract_settle() makes of them */
  const char **saved; /* modules that are saved whole, sorted */
  ckpt_extract_whole *wholes;
  size_t n_saved, n_wholes;
  uint64_t expert_rank; /* that all experts' factors have; 0: there are none */
};

/* A name without the prefix of facts. */
const char *ckpt_extract_name(const ckpt_extraction *x, const char *name);

/* Decides what is stored whole, once all items are compared: every parameter of a module of which one is, factors or
 * not, under every name that the model has for it. Experts' factors get one rank, as PEFT stacks them. EUNSUPPORTED: a
 * parameter that no module has; EIO, ENOMEM. */
ckpt_status ckpt_extract_settle(ckpt_extraction *x, ckpt_error *err);

/* Rank that a linear layer's factors have at most. */
uint64_t ckpt_extract_rank(const ckpt_extraction *x, const ckpt_extract_item *item);

/* Rows to read at a time. */
uint64_t ckpt_extract_rows(const ckpt_tensor *tensor);

#endif
