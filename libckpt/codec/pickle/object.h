/* object.h - an object graph printed as a pickle of protocol 2; the inverse of pickle.h.
 *
 * What is read back equals what was printed (ckpt_object_equal): nodes that are shared stay shared, lists and dicts may
 * hold themselves. A tuple or a call that holds itself, which no pickle can say, has None in that place. Nothing is
 * judged here: whoever prints what others will load decides before what is in the graph. Time and output are linear in
 * the graph, its depth costs memory only. */
#ifndef CKPT_CODEC_PICKLE_OBJECT_H
#define CKPT_CODEC_PICKLE_OBJECT_H

#include "libckpt/codec/pickle/write.h"
#include "libckpt/index/object.h"

/* Prints one value: what a TENSOR leaf stands for. */
typedef void ckpt_pickle_put_leaf(void *arg, ckpt_pickle_writer *writer, const ckpt_object *leaf);

/* Prints one value: the graph below object. leaf may be NULL where there are no tensors. ENOMEM, and EINTERNAL for a
 * name that no pickle can hold, fail the stream. */
void ckpt_pickle_put_object(ckpt_pickle_writer *writer, const ckpt_object *object, ckpt_pickle_put_leaf *leaf,
                            void *arg);

#endif
