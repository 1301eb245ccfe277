/* device.h - the one table through which the trainer's upper parts know a device: memory, copies, kernels, GEMM.
 *
 * The CPU fills it (device_cpu.c); nothing above knows which device it is. Work of a device is in order: a launch sees
 * what those before it have done. Streams and events come with the second device. */
#ifndef CKPT_TRAINER_MODEL_DEVICE_H
#define CKPT_TRAINER_MODEL_DEVICE_H

#include "kernels/ref/tape/tape_kernels.h"

typedef struct ckpt_device ckpt_device;

/* A part [begin, end) of a piece of work. */
typedef void ckpt_device_part(const void *arg, size_t begin, size_t end);

typedef struct ckpt_device_table {
  const char *name;                                       /* "cpu" */
  void *(*allocate)(ckpt_device *device, size_t n_bytes); /* zeroed, 64-byte aligned; NULL: there is none */
  void (*release)(ckpt_device *device, void *memory, size_t n_bytes);
  void (*copy_in)(ckpt_device *device, void *dst, const void *host, size_t n_bytes);
  void (*copy_out)(ckpt_device *device, void *host, const void *src, size_t n_bytes);
  void (*fill_zero)(ckpt_device *device, void *dst, size_t n_bytes);
  /* Runs a kernel over [0, n) in parts of `grain` (the last may be shorter). Parts depend on n and grain alone. */
  void (*launch)(ckpt_device *device, ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain);
  ckpt_status (*gemm)(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err); /* cut into parts by shape */
  void (*synchronize)(ckpt_device *device);
  void (*free)(ckpt_device *device);
} ckpt_device_table;

struct ckpt_device {
  const ckpt_device_table *table;
  const ckpt_tape_kernels *kernels;
};

/* The CPU with n_threads (0: one per processor), the calling one included; kernels NULL: the best level of this
 * processor. ENOMEM, EIO (a thread cannot be made). Release with ckpt_device_free (NULL is fine). */
ckpt_status ckpt_device_cpu_new(ckpt_device **out, uint32_t n_threads, const ckpt_tape_kernels *kernels,
                                ckpt_error *err);
void ckpt_device_free(ckpt_device *device); /* as above */

/* Of the CPU: runs part(arg, ...) over [0, n) in parts of `grain` on its threads, and returns when all are done. For
 * what is no kernel of the tape (the optimizer's). */
void ckpt_device_cpu_run(ckpt_device *device, ckpt_device_part *part, const void *arg, size_t n, size_t grain);

#endif
