/* device_table.h - the one table through which a trainer knows a device: memory, copies, kernels, GEMM, order.
 *
 * The CPU fills it (trainer/model/device_cpu.c), CUDA does (kernels/cuda/tape/device.cu). A device is one queue: a
 * launch, product or copy sees what those before it have done. Two devices of one processor are two streams of it;
 * events order them. Calls that give no status may fail: the first failure stays and comes back from `synchronize`. */
#ifndef CKPT_KERNELS_REF_TAPE_DEVICE_TABLE_H
#define CKPT_KERNELS_REF_TAPE_DEVICE_TABLE_H

#include "kernels/ref/tape/tape_kernels.h"

typedef struct ckpt_device ckpt_device;
typedef struct ckpt_device_event ckpt_device_event;

/* A part [begin, end) of a piece of work on the host. */
typedef void ckpt_device_part(const void *arg, size_t begin, size_t end);

typedef struct ckpt_device_table {
  const char *name;                                       /* "cpu", "cuda" */
  bool is_host;                                           /* its memory is the host's: anyone may read and write it */
  void *(*allocate)(ckpt_device *device, size_t n_bytes); /* zeroed, 64-byte aligned; NULL: there is none */
  void (*release)(ckpt_device *device, void *memory, size_t n_bytes);
  /* Copies are done when they return: the host's buffer may be used at once. */
  void (*copy_in)(ckpt_device *device, void *dst, const void *host, size_t n_bytes);
  void (*copy_out)(ckpt_device *device, void *host, const void *src, size_t n_bytes);
  void (*fill_zero)(ckpt_device *device, void *dst, size_t n_bytes);
  /* Runs a kernel over [0, n) in parts of `grain` (the last may be shorter), or as the device likes better. */
  void (*launch)(ckpt_device *device, ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain);
  ckpt_status (*gemm)(ckpt_device *device, const ckpt_gemm *gemm, ckpt_error *err);
  /* Whole blocks of a block type to f32, exactly, both in the device's memory. False: the type has no blocks. */
  bool (*dequantize)(ckpt_device *device, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements);
  /* Waits until all is done. EIO: something failed since the last call, by name. */
  ckpt_status (*synchronize)(ckpt_device *device, ckpt_error *err);
  /* What a library of collectives takes: the native stream, or NULL. */
  void *(*stream)(ckpt_device *device);
  /* An event marks a place in a queue. NULL: there is no memory for it. */
  ckpt_device_event *(*event_new)(ckpt_device *device);
  void (*event_free)(ckpt_device *device, ckpt_device_event *event);
  void (*event_record)(ckpt_device *device, ckpt_device_event *event);
  void (*event_wait)(ckpt_device *device, ckpt_device_event *event); /* what is queued next waits for the event */
  bool (*event_is_done)(ckpt_device *device, ckpt_device_event *event);
  double (*event_seconds)(ckpt_device *device, ckpt_device_event *from, ckpt_device_event *to); /* both are done */
  /* Work of the host beside the device: part(arg, ...) over [0, n) in parts of `grain`; done when it returns. */
  void (*run_host)(ckpt_device *device, ckpt_device_part *part, const void *arg, size_t n, size_t grain);
  void (*free)(ckpt_device *device);
} ckpt_device_table;

struct ckpt_device {
  const ckpt_device_table *table;
  const ckpt_tape_kernels *kernels; /* of the CPU; of others only name and real_bytes are filled */
};

#endif
