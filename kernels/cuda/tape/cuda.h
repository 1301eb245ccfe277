/* cuda.h - CUDA as a device: what the trainer needs beside the table. kernels/cuda/tape defines it where the build has
 * a CUDA compiler, kernels/cuda/none where it has not. */
#ifndef CKPT_KERNELS_CUDA_TAPE_CUDA_H
#define CKPT_KERNELS_CUDA_TAPE_CUDA_H

#include "kernels/ref/tape/device_table.h"

/* EUNSUPPORTED, with the reason, where no CUDA device can be used: the build, the driver, the machine, cuBLASLt. */
ckpt_status ckpt_cuda_check(ckpt_error *err);

/* The current CUDA device with a stream of its own. `host` is the CPU that works beside it; the device owns it. Fails
 * as above, and with ENOMEM and EIO; then `host` stays the caller's. */
ckpt_status ckpt_device_cuda_new(ckpt_device **out, ckpt_device *host, ckpt_error *err);

#endif
