/* object.h - prints an object graph as a pickle of protocol 2; the inverse of pickle.h.
 *
 * Reading it back gives an equal graph (ckpt_object_equal). Shared nodes stay shared, and lists and dicts may hold
 * themselves. A tuple or call that holds itself gets None in that place, since no pickle can express it. This code
 * judges nothing: the caller decides what the graph may hold. Time and output are linear in the graph; depth costs only
 * memory. */
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
