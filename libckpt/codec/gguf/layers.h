/* layers.h - the layer of a GGUF name, and llama.cpp's order of tensors. */
#ifndef CKPT_CODEC_GGUF_LAYERS_H
#define CKPT_CODEC_GGUF_LAYERS_H

#include "libckpt/index/tensor.h"

/* The number after "blk." at a name's start, INT32_MAX at most; -1: it has no layer. */
int64_t ckpt_gguf_layer(const char *name);

/* Sorts numbers of tensors into llama.cpp's order: those of no layer first, then by layer, each in byte order of names.
 */
void ckpt_gguf_sort(uint32_t *numbers, uint32_t n, const ckpt_tensor *tensors);

#endif
