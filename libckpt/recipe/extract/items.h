/* items.h - what the files of this room share: pairs of tensors, and the file of the factors. */
#ifndef CKPT_RECIPE_EXTRACT_ITEMS_H
#define CKPT_RECIPE_EXTRACT_ITEMS_H

#include "libckpt/recipe/extract/extract.h"

typedef struct ckpt_extract_item {
  const ckpt_tensor *base, *tuned;
  const char *name, *module;  /* of the tuned model; the module is the name without its last component */
  const char *const *aliases; /* its other names that are not left out; NULL-terminated, or NULL */
  bool is_linear, is_transposed;
  bool is_of_linear; /* a bias of one */
  bool differs;
  uint64_t rank, offset; /* of the factors' first byte: PEFT's A, then B */
  double squares, error;
} ckpt_extract_item;

struct ckpt_extraction {
  const ckpt_index *base, *tuned;
  ckpt_extract_options options;
  ckpt_arena arena;
  ckpt_extract_item *items; /* linear layers, and all other parameters */
  size_t n;
  int file;           /* of the factors; -1: none yet */
  const char *folder; /* that it lies in, for messages */
  uint64_t n_file;
};

/* Rank that a linear layer's factors have at most. */
uint64_t ckpt_extract_rank(const ckpt_extraction *x, const ckpt_extract_item *item);

/* Rows to read at a time. */
uint64_t ckpt_extract_rows(const ckpt_tensor *tensor);

#endif
