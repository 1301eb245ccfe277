/* device_cpu.c - the CPU as a device: a pool of threads that claim parts, and GEMM cut into tiles.
 *
 * Parts and tiles depend on shapes alone, never on how many threads there are, and each is one call of one kernel: so
 * results have the same bits for any number of threads. The calling thread works too; others sleep between launches. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "trainer/model/device.h"

enum { MAX_THREADS = 1024, ALIGNMENT = 64, HUGE_PAGE = 1 << 21 };

typedef struct cpu {
  ckpt_device device;
  pthread_mutex_t mutex;
  pthread_cond_t has_work, is_done;
  pthread_t *threads;
  uint32_t n_threads; /* beside the calling one */
  uint64_t job;       /* number of the job, so that each thread takes part once */
  uint32_t n_busy;
  bool stops;
  void *shared; /* of a product at a time */
  size_t shared_bytes;
  /* the job: */
  ckpt_device_part *part;
  const void *arg;
  size_t n, grain;
  atomic_size_t next;
} cpu;

static void work(cpu *c) {
  for (;;) {
    size_t begin = atomic_fetch_add(&c->next, c->grain);
    if (begin >= c->n) return;
    c->part(c->arg, begin, c->n - begin < c->grain ? c->n : begin + c->grain);
  }
}

static void *run_thread(void *arg) {
  cpu *c = arg;
  uint64_t seen = 0;
  pthread_mutex_lock(&c->mutex);
  for (;;) {
    while (c->job == seen && !c->stops) pthread_cond_wait(&c->has_work, &c->mutex);
    if (c->stops) break;
    seen = c->job;
    pthread_mutex_unlock(&c->mutex);
    work(c);
    pthread_mutex_lock(&c->mutex);
    if (--c->n_busy == 0) pthread_cond_signal(&c->is_done);
  }
  pthread_mutex_unlock(&c->mutex);
  return NULL;
}

static void run_host(ckpt_device *device, ckpt_device_part *part, const void *arg, size_t n, size_t grain) {
  cpu *c = (cpu *)device;
  if (grain == 0) grain = 1;
  if (n <= grain || c->n_threads == 0) {
    for (size_t begin = 0; begin < n; begin += grain) part(arg, begin, n - begin < grain ? n : begin + grain);
    return;
  }
  pthread_mutex_lock(&c->mutex);
  c->part = part, c->arg = arg, c->n = n, c->grain = grain;
  atomic_store(&c->next, 0);
  c->n_busy = c->n_threads;
  c->job++;
  pthread_cond_broadcast(&c->has_work);
  pthread_mutex_unlock(&c->mutex);
  work(c);
  pthread_mutex_lock(&c->mutex);
  while (c->n_busy != 0) pthread_cond_wait(&c->is_done, &c->mutex);
  pthread_mutex_unlock(&c->mutex);
}

/* ---- the table ------------------------------------------------------------------------------------------------------
 */

/* Large memory is of huge pages, where the system has them: rows of a matrix lie pages apart. A last page that is not
 * whole stays ordinary, and what lies behind the memory is never touched. */
static void *allocate(ckpt_device *device, size_t n_bytes) {
  (void)device;
  if (n_bytes > SIZE_MAX - HUGE_PAGE) return NULL;
  const size_t alignment = n_bytes < HUGE_PAGE ? ALIGNMENT : HUGE_PAGE;
  const size_t n_whole = (n_bytes + alignment) / alignment * alignment;
  void *memory = aligned_alloc(alignment, n_whole);
  if (memory == NULL) return NULL;
  if (n_bytes >= HUGE_PAGE) (void)madvise(memory, n_bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
  memset(memory, 0, n_bytes);
  return memory;
}

static void release(ckpt_device *device, void *memory, size_t n_bytes) {
  (void)device, (void)n_bytes;
  free(memory);
}

static void copy(ckpt_device *device, void *dst, const void *src, size_t n_bytes) {
  (void)device;
  if (n_bytes > 0) memcpy(dst, src, n_bytes);
}

static void zero_part(const void *arg, size_t begin, size_t end) {
  memset(*(char *const *)arg + begin, 0, end - begin);
}

static void fill_zero(ckpt_device *device, void *dst, size_t n_bytes) {
  run_host(device, zero_part, &dst, n_bytes, 1 << 20);
}

static void launch(ckpt_device *device, ckpt_tape_kernel_id kernel, const void *args, size_t n, size_t grain) {
  run_host(device, device->kernels->run[kernel], args, n, grain);
}

static bool dequantize(ckpt_device *device, ckpt_dtype dtype, float *dst, const void *src, size_t n_elements) {
  (void)device;
  if (!ckpt_dtype_is_block(dtype)) return false;
  ckpt_backend_cpu.dequantize(dtype, dst, src, n_elements);
  return true;
}

/* Every call is done when it returns, so an event is a time. */
struct ckpt_device_event {
  struct timespec at;
};

static ckpt_status synchronize(ckpt_device *device, ckpt_error *err) {
  (void)device, (void)err;
  return CKPT_OK;
}

static void *stream(ckpt_device *device) {
  (void)device;
  return NULL;
}

static ckpt_device_event *event_new(ckpt_device *device) {
  (void)device;
  return calloc(1, sizeof(ckpt_device_event));
}

static void event_free(ckpt_device *device, ckpt_device_event *event) {
  (void)device;
  free(event);
}

static void event_record(ckpt_device *device, ckpt_device_event *event) {
  (void)device;
  clock_gettime(CLOCK_MONOTONIC, &event->at);
}

static void event_wait(ckpt_device *device, ckpt_device_event *event) { (void)device, (void)event; }

static bool event_is_done(ckpt_device *device, ckpt_device_event *event) {
  (void)device, (void)event;
  return true;
}

static double event_seconds(ckpt_device *device, ckpt_device_event *from, ckpt_device_event *to) {
  (void)device;
  return (double)(to->at.tv_sec - from->at.tv_sec) + 1e-9 * (double)(to->at.tv_nsec - from->at.tv_nsec);
}

/* ---- life -----------------------------------------------------------------------------------------------------------
 */

static void free_cpu(ckpt_device *device) {
  cpu *c = (cpu *)device;
  pthread_mutex_lock(&c->mutex);
  c->stops = true;
  pthread_cond_broadcast(&c->has_work);
  pthread_mutex_unlock(&c->mutex);
  for (uint32_t i = 0; i < c->n_threads; i++) pthread_join(c->threads[i], NULL);
  pthread_cond_destroy(&c->is_done);
  pthread_cond_destroy(&c->has_work);
  pthread_mutex_destroy(&c->mutex);
  free(c->shared);
  free(c->threads);
  free(c);
}

void *ckpt_device_cpu_shared(ckpt_device *device, size_t n_bytes) {
  cpu *c = (cpu *)device;
  if (c->shared_bytes >= n_bytes) return c->shared;
  free(c->shared);
  c->shared_bytes = (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  c->shared = aligned_alloc(ALIGNMENT, c->shared_bytes);
  if (c->shared == NULL) c->shared_bytes = 0;
  return c->shared;
}

static const ckpt_device_table cpu_table = {.name = "cpu",
                                            .is_host = true,
                                            .allocate = allocate,
                                            .release = release,
                                            .copy_in = copy,
                                            .copy_out = copy,
                                            .fill_zero = fill_zero,
                                            .launch = launch,
                                            .gemm = ckpt_gemm_cpu,
                                            .dequantize = dequantize,
                                            .synchronize = synchronize,
                                            .stream = stream,
                                            .event_new = event_new,
                                            .event_free = event_free,
                                            .event_record = event_record,
                                            .event_wait = event_wait,
                                            .event_is_done = event_is_done,
                                            .event_seconds = event_seconds,
                                            .run_host = run_host,
                                            .free = free_cpu};

const ckpt_tape_kernels *ckpt_device_cpu_kernels(void) {
  size_t i = 0;
  while (ckpt_tape_kernels_cpu(i + 1) != NULL) i++;
  return ckpt_tape_kernels_cpu(i);
}

uint32_t ckpt_device_cpu_threads(uint32_t n_threads) {
  const long n = n_threads != 0 ? (long)n_threads : sysconf(_SC_NPROCESSORS_ONLN);
  return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (uint32_t)n;
}

ckpt_status ckpt_device_cpu_new(ckpt_device **out, uint32_t n_threads, const ckpt_tape_kernels *kernels,
                                ckpt_error *err) {
  n_threads = ckpt_device_cpu_threads(n_threads);
  cpu *c = calloc(1, sizeof *c);
  CKPT_TRY_ALLOC(c, err);
  c->device.table = &cpu_table;
  c->device.kernels = kernels != NULL ? kernels : ckpt_device_cpu_kernels();
  pthread_mutex_init(&c->mutex, NULL);
  pthread_cond_init(&c->has_work, NULL);
  pthread_cond_init(&c->is_done, NULL);
  c->threads = calloc(n_threads, sizeof *c->threads);
  ckpt_status status = c->threads == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  while (status == CKPT_OK && c->n_threads + 1 < n_threads) {
    int error = pthread_create(&c->threads[c->n_threads], NULL, run_thread, c);
    if (error != 0)
      status = ckpt_fail(err, CKPT_EIO, NULL, NULL, "thread %u of %u cannot be made", c->n_threads + 2, n_threads);
    else
      c->n_threads++;
  }
  if (status == CKPT_OK)
    *out = &c->device;
  else
    free_cpu(&c->device);
  return status;
}
