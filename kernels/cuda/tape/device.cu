/* device.cu - CUDA as a device: the table over the CUDA runtime. A device has one stream; calls go into it in order. */
#include "kernels/cuda/tape/tape.cuh"

enum { MIN_CAPABILITY = 8 }; /* what kernels are compiled for at least */

static ckpt_cuda *cuda_of(ckpt_device *device) { return (ckpt_cuda *)device; }

void ckpt_cuda_note(ckpt_cuda *c, cudaError_t error, const char *what) {
  if (error == cudaSuccess || c->error != cudaSuccess) return;
  c->error = error;
  c->failed = what;
}

/* ---- memory and copies ------------------------------------------------------------------------------------------- */

static void *allocate(ckpt_device *device, size_t n_bytes) {
  ckpt_cuda *c = cuda_of(device);
  void *memory = NULL;
  if (cudaMalloc(&memory, n_bytes == 0 ? 1 : n_bytes) != cudaSuccess) {
    (void)cudaGetLastError(); /* the caller says it */
    return NULL;
  }
  ckpt_cuda_note(c, cudaMemsetAsync(memory, 0, n_bytes, c->stream), "allocate");
  return memory;
}

static void release(ckpt_device *device, void *memory, size_t n_bytes) {
  (void)n_bytes;
  ckpt_cuda_note(cuda_of(device), cudaFree(memory), "release");
}

static void copy(ckpt_device *device, void *dst, const void *src, size_t n_bytes, cudaMemcpyKind kind,
                 const char *what) {
  ckpt_cuda *c = cuda_of(device);
  if (n_bytes == 0) return;
  ckpt_cuda_note(c, cudaMemcpyAsync(dst, src, n_bytes, kind, c->stream), what);
  ckpt_cuda_note(c, cudaStreamSynchronize(c->stream), what);
}

static void copy_in(ckpt_device *device, void *dst, const void *host, size_t n_bytes) {
  copy(device, dst, host, n_bytes, cudaMemcpyHostToDevice, "copy_in");
}

static void copy_out(ckpt_device *device, void *host, const void *src, size_t n_bytes) {
  copy(device, host, src, n_bytes, cudaMemcpyDeviceToHost, "copy_out");
}

static void fill_zero(ckpt_device *device, void *dst, size_t n_bytes) {
  ckpt_cuda *c = cuda_of(device);
  if (n_bytes != 0) ckpt_cuda_note(c, cudaMemsetAsync(dst, 0, n_bytes, c->stream), "fill_zero");
}

/* ---- work -------------------------------------------------------------------------------------------------------- */

static void launch(ckpt_device *device, ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain) {
  static ckpt_cuda_starter *const starters[CKPT_N_TAPE_KERNELS] = {
#define CKPT_TAPE_KERNEL(id) ckpt_cuda_start_##id,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
  };
  (void)grain;
  starters[kernel](cuda_of(device), args, n);
}

static ckpt_status gemm(ckpt_device *device, const ckpt_gemm *g, ckpt_error *err) {
  return ckpt_cuda_gemm(cuda_of(device), g, err);
}

static bool dequantize(ckpt_device *device, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  return ckpt_cuda_dequantize(cuda_of(device), dtype, dst, src, n_elements);
}

static ckpt_status synchronize(ckpt_device *device, ckpt_error *err) {
  ckpt_cuda *c = cuda_of(device);
  ckpt_cuda_note(c, cudaStreamSynchronize(c->stream), "synchronize");
  const cudaError_t error = c->error;
  c->error = cudaSuccess;
  if (error == cudaSuccess) return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, NULL, NULL, "CUDA: %s failed: %s", c->failed, cudaGetErrorString(error));
}

static void *stream(ckpt_device *device) { return cuda_of(device)->stream; }

static void run_host(ckpt_device *device, ckpt_device_part *part, const void *arg, size_t n, size_t grain) {
  ckpt_device *host = cuda_of(device)->host;
  host->table->run_host(host, part, arg, n, grain);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

struct ckpt_device_event {
  cudaEvent_t event;
};

static ckpt_device_event *event_new(ckpt_device *device) {
  ckpt_device_event *event = (ckpt_device_event *)calloc(1, sizeof *event);
  (void)device;
  if (event == NULL || cudaEventCreate(&event->event) == cudaSuccess) return event;
  free(event);
  return NULL;
}

static void event_free(ckpt_device *device, ckpt_device_event *event) {
  if (event == NULL) return;
  ckpt_cuda_note(cuda_of(device), cudaEventDestroy(event->event), "event_free");
  free(event);
}

static void event_record(ckpt_device *device, ckpt_device_event *event) {
  ckpt_cuda *c = cuda_of(device);
  ckpt_cuda_note(c, cudaEventRecord(event->event, c->stream), "event_record");
}

static void event_wait(ckpt_device *device, ckpt_device_event *event) {
  ckpt_cuda *c = cuda_of(device);
  ckpt_cuda_note(c, cudaStreamWaitEvent(c->stream, event->event, 0), "event_wait");
}

static bool event_is_done(ckpt_device *device, ckpt_device_event *event) {
  const cudaError_t error = cudaEventQuery(event->event);
  if (error != cudaErrorNotReady) ckpt_cuda_note(cuda_of(device), error, "event_is_done");
  return error != cudaErrorNotReady;
}

static double event_seconds(ckpt_device *device, ckpt_device_event *from, ckpt_device_event *to) {
  float milliseconds = 0;
  ckpt_cuda_note(cuda_of(device), cudaEventElapsedTime(&milliseconds, from->event, to->event), "event_seconds");
  return (double)milliseconds / 1000;
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void free_parts(ckpt_cuda *c) {
  if (c->cublas != NULL) (void)ckpt_cublas_get()->destroy(c->cublas);
  for (int i = 0; i < CKPT_N_GRIDS; i++)
    if (c->levels[i] != NULL) (void)cudaFree(c->levels[i]);
  (void)cudaFree(c->workspace);
  if (c->stream != NULL) (void)cudaStreamDestroy(c->stream);
  free(c);
}

static void free_cuda(ckpt_device *device) {
  ckpt_device *host = cuda_of(device)->host;
  free_parts(cuda_of(device));
  host->table->free(host);
}

static const ckpt_device_table cuda_table = {"cuda",      false,         allocate,      release,    copy_in,
                                             copy_out,    fill_zero,     launch,        gemm,       dequantize,
                                             synchronize, stream,        event_new,     event_free, event_record,
                                             event_wait,  event_is_done, event_seconds, run_host,   free_cuda};

static const ckpt_tape_kernels cuda_kernels = {"cuda", sizeof(float), {}, NULL, NULL, 0};

static ckpt_status fail(cudaError_t error, const char *what, ckpt_error *err) {
  (void)cudaGetLastError();
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no CUDA device can be used: %s: %s", what,
                   cudaGetErrorString(error));
}

ckpt_status ckpt_cuda_check(ckpt_error *err) {
  int n = 0, device = 0, major = 0;
  cudaError_t error = cudaGetDeviceCount(&n);
  if (error != cudaSuccess) return fail(error, "cudaGetDeviceCount", err);
  if (n == 0) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no CUDA device can be used: there is none");
  error = cudaGetDevice(&device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error != cudaSuccess) return fail(error, "cudaDeviceGetAttribute", err);
  if (major < MIN_CAPABILITY)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "no CUDA device can be used: compute capability %d, at least %d is needed", major, MIN_CAPABILITY);
  if (ckpt_cublas_get() == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no CUDA device can be used: cuBLASLt cannot be loaded");
  return CKPT_OK;
}

ckpt_status ckpt_device_cuda_new(ckpt_device **out, ckpt_device *host, ckpt_error *err) {
  CKPT_TRY(ckpt_cuda_check(err));
  ckpt_cuda *c = (ckpt_cuda *)calloc(1, sizeof *c);
  CKPT_TRY_ALLOC(c, err);
  c->device.table = &cuda_table;
  c->device.kernels = &cuda_kernels;
  c->host = host;
  cudaError_t error = cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking);
  if (error == cudaSuccess) error = cudaMalloc(&c->workspace, CKPT_CUDA_WORKSPACE);
  if (error == cudaSuccess && ckpt_cublas_get()->create(&c->cublas) != CUBLAS_STATUS_SUCCESS)
    error = cudaErrorInitializationError;
  if (error == cudaSuccess) {
    *out = &c->device;
    return CKPT_OK;
  }
  free_parts(c);
  return fail(error, "a stream", err);
}
