/* products.c - how long one processor takes for a product of matrices: by the GEMM hook in f32, and by oneDNN in bf16.
 *
 *   products M N K
 *
 * y (M x N) = x (M x K) times the transpose of w (N x K), as a linear layer has it. Each line of the input is a round,
 * whose seconds are a line of the output; bf16 is 0 where this processor's oneDNN has no such product. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "kernels/cpu/tape/tape.h"
#include "trainer/model/device.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  setvbuf(stdout, NULL, _IOLBF, 0);
  const size_t m = strtoul(argv[1], NULL, 10), n = strtoul(argv[2], NULL, 10), k = strtoul(argv[3], NULL, 10);
  float *x = malloc((m * k + 1) * sizeof *x), *w = malloc((n * k + 1) * sizeof *w),
        *y = malloc((m * n + 1) * sizeof *y);
  ckpt_device *device;
  if (x == NULL || w == NULL || y == NULL || ckpt_device_cpu_new(&device, 1, NULL, NULL) != CKPT_OK) return 1;
  for (size_t i = 0; i < m * k; i++) x[i] = (float)(i % 7) - 3; /* their first halves are numbers of bf16 as well */
  for (size_t i = 0; i < n * k; i++) w[i] = (float)(i % 5) - 2;
  const ckpt_gemm g = {.is_b_transposed = true,
                       .m = m,
                       .n = n,
                       .k = k,
                       .alpha = 1,
                       .a = x,
                       .lda = k,
                       .b = w,
                       .ldb = k,
                       .c = y,
                       .ldc = n};
  while (getchar() == '\n') {
    const double begin = now();
    if (device->table->gemm(device, &g, NULL) != CKPT_OK) return 1;
    const double end = now();
    const ckpt_status status = ckpt_gemm_bf16(&g, NULL);
    printf("%.6f %.6f\n", end - begin, status == CKPT_OK ? now() - end : 0);
  }
  ckpt_device_free(device);
  free(x), free(w), free(y);
  return 0;
}
