/* none.c - CUDA in a build without it. */
#include "kernels/cuda/tape/cuda.h"
#include "libckpt/base/error.h"

ckpt_status ckpt_cuda_check(ckpt_error *err) {
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "this build has no CUDA");
}

ckpt_status ckpt_device_cuda_new(ckpt_device **out, ckpt_device *host, ckpt_error *err) {
  (void)out, (void)host;
  return ckpt_cuda_check(err);
}
