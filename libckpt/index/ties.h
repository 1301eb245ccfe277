/* ties.h - tied weights of models that no row of formats/arch/ knows: which of several names is the input embedding's,
 * and which stored tensors the config ties. */
#ifndef CKPT_INDEX_TIES_H
#define CKPT_INDEX_TIES_H

#include "libckpt/index/config.h"
#include "libckpt/index/index.h"

enum { CKPT_NAMING_REVISION = 2 }; /* of names where no family is known; 1 called ties by the first in byte order */

/* How well a name stands for a group of ties: the lowest keeps it, the first in byte order among equals. `like` (or
 * NULL) is the model whose names count before all others. */
int ckpt_tie_rank(const char *name, const ckpt_index *like);

/* Finds what a config of no known family ties with a true tie_word_embeddings: the input embedding, and the output
 * head and other embeddings of its shape and dtype; with a head its bias, where its module has that too. Sets
 * index->stated_ties; nothing where two could be the embedding. With `like` (or NULL), the model of --like, names that
 * it lacks are heads, too. ENOMEM. */
ckpt_status ckpt_index_find_ties(ckpt_index *index, const ckpt_config *config, const ckpt_index *like, ckpt_error *err);

/* Whether a parameter is an output head's, by the name of its module. */
bool ckpt_tie_is_head(const char *name);

/* Whether names are a stated tie of the index, in either order. */
bool ckpt_ties_state(const ckpt_index *index, const char *a, const char *b);

#endif
