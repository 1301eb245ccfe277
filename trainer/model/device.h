/* device.h - the devices that a trainer can make; what they do is the table's (kernels/ref/tape/device_table.h).
 *
 * The CPU fills the table here (device_cpu.c), CUDA in kernels/cuda; nothing above knows which device it is. */
#ifndef CKPT_TRAINER_MODEL_DEVICE_H
#define CKPT_TRAINER_MODEL_DEVICE_H

#include "kernels/ref/tape/device_table.h"

/* The CPU with n_threads (0: one per processor), the calling one included; kernels NULL: the best level of this
 * processor. ENOMEM, EIO (a thread cannot be made). Release with ckpt_device_free (NULL is fine). */
ckpt_status ckpt_device_cpu_new(ckpt_device **out, uint32_t n_threads, const ckpt_tape_kernels *kernels,
                                ckpt_error *err);
void ckpt_device_free(ckpt_device *device); /* as above */

/* How many threads that is. */
uint32_t ckpt_device_cpu_threads(uint32_t n_threads);

/* A product of the CPU in tiles, by the device's threads and its kernels' gemm: its slot of the table. */
ckpt_status ckpt_gemm_cpu(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err);

/* The most that a product in bf16, of a b that is not stored in f32, or of an a that is packed for its stride, takes of
 * the CPU beside its factors: bytes of the device, and *panels of each of its threads. m, k, and n with b_may_be_less,
 * are those of the largest batch. */
size_t ckpt_gemm_cpu_bytes(const ckpt_tape_kernels *kernels, const ckpt_gemm *gemm, bool b_may_be_less, size_t *panels);

/* The best kernels of this processor. */
const ckpt_tape_kernels *ckpt_device_cpu_kernels(void);

/* At least n_bytes, 64-byte aligned, of the CPU's device, until the next call; NULL: there are none. */
void *ckpt_device_cpu_shared(ckpt_device *device, size_t n_bytes);

/* Whether the device of this name (as below) can be made: EUNSUPPORTED with the reason. */
ckpt_status ckpt_device_check(const char *name, ckpt_error *err);

/* The device of this name: "cpu", "cuda", or NULL, which is cuda where it can be used and else the CPU. n_threads: of
 * the CPU, or beside the device. EUNSUPPORTED: the build or the machine has no such device, with the reason. */
ckpt_status ckpt_device_choose(ckpt_device **out, const char *name, uint32_t n_threads, ckpt_error *err);

#endif
