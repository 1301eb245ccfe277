/* device.c - which device a name stands for. */
#include "trainer/model/device.h"

#include <string.h>

#include "kernels/cuda/tape/cuda.h"
#include "libckpt/base/error.h"

static ckpt_status make_cuda(ckpt_device **out, uint32_t n_threads, ckpt_error *err) {
  ckpt_device *host = NULL;
  CKPT_TRY(ckpt_cuda_check(err));
  CKPT_TRY(ckpt_device_cpu_new(&host, n_threads, NULL, err));
  ckpt_status status = ckpt_device_cuda_new(out, host, err);
  if (status != CKPT_OK) ckpt_device_free(host);
  return status;
}

ckpt_status ckpt_device_check(const char *name, ckpt_error *err) {
  if (name == NULL || strcmp(name, "cuda") != 0) return CKPT_OK;
  return ckpt_cuda_check(err);
}

ckpt_status ckpt_device_choose(ckpt_device **out, const char *name, uint32_t n_threads, ckpt_error *err) {
  ckpt_error ignored = {0};
  if (name != NULL && strcmp(name, "cuda") == 0) return make_cuda(out, n_threads, err);
  if (name == NULL && ckpt_cuda_check(&ignored) == CKPT_OK && make_cuda(out, n_threads, &ignored) == CKPT_OK)
    return CKPT_OK;
  return ckpt_device_cpu_new(out, n_threads, NULL, err);
}

void ckpt_device_free(ckpt_device *device) {
  if (device != NULL) device->table->free(device);
}
