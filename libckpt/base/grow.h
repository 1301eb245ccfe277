/* grow.h - arrays that grow outside an arena: the owner frees them with free(). */
#ifndef CKPT_BASE_GROW_H
#define CKPT_BASE_GROW_H

#include "libckpt/ckpt.h"

/* The capacity that follows this one. */
uint32_t ckpt_grown(uint32_t capacity);

/* Makes room for item number n: *items (a pointer to any object) is reallocated by half where n reaches *capacity.
 * ENOMEM; ELIMIT past 2^31 items. */
ckpt_status ckpt_grow(void *items, uint32_t n, uint32_t *capacity, size_t item_bytes, ckpt_error *err);

#endif
