/* tied_classes.h - which names transformers' classes tie, and which of them files keep. */
#ifndef CKPT_RECIPE_ADAPTER_TIED_CLASSES_H
#define CKPT_RECIPE_ADAPTER_TIED_CLASSES_H

#include <stdbool.h>

enum { CKPT_TIED_NAMES = 3 /* of one embedding */ };

typedef struct ckpt_tied_class {
  const char *kept;                  /* how the name of the embedding that files keep ends; no other name ends so */
  const char *tied[CKPT_TIED_NAMES]; /* its other names; NULL fills it up */
  const char *bias[2];               /* the head's bias, kept and tied; or NULL */
  const char *classes;               /* with a space before and behind each */
  bool is_always; /* without the tie, which config.json decides, the class ties all the same or computes otherwise */
} ckpt_tied_class;

/* The row of a class; NULL: there is none. */
const ckpt_tied_class *ckpt_tied_class_of(const char *class);

/* Whether a class without a row ties nothing, since it has no head of a language model. */
bool ckpt_tied_class_has_none(const char *class);

#endif
