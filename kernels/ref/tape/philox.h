/* philox.h - random words by counter, for devices too: libckpt/base/philox.h. */
#ifndef CKPT_KERNELS_REF_TAPE_PHILOX_H
#define CKPT_KERNELS_REF_TAPE_PHILOX_H

#include "kernels/ref/tape/qualifier.h"
#include "libckpt/base/philox.h"

#endif
