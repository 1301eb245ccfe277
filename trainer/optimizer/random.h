/* random.h - what is random in a run, by seed, name and position (libckpt/base/philox.h): no state to save, and an
 * element's value does not depend on which rank makes it. */
#ifndef CKPT_TRAINER_OPTIMIZER_RANDOM_H
#define CKPT_TRAINER_OPTIMIZER_RANDOM_H

#include <stddef.h>
#include <stdint.h>

/* Four words of (key, counter). */
void ckpt_philox(uint32_t out[4], uint64_t key, uint64_t counter_low, uint64_t counter_high);

/* Elements [first, first + n) of the standard normal stream of (seed, name), times deviation: what a parameter of this
 * name begins with. The same bits whatever the compiler. */
void ckpt_normal_fill(float *out, uint64_t seed, const char *name, uint64_t first, size_t n, double deviation);

/* A key for one purpose: FNV-1a of the text. */
uint64_t ckpt_name_key(const char *text);

#endif
