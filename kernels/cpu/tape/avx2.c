/* avx2.c - the kernels of the tape, compiled as CMakeLists.txt says for this level. Rows and elements are the
 * reference's own sources, which compilers make vectors of; attention is by blocks. */
#define CKPT_REAL_BITS 32
#define CKPT_SLOW_STRIDE 512 /* rows that fall on the same lines of the cache: docs/tape.md */
#include "kernels/cpu/tape/attention.h"
#include "kernels/cpu/tape/panels.h"
#include "kernels/cpu/tape/tape.h"
#include "kernels/ref/tape/optimizer.h"
#include "kernels/ref/tape/rows.h"

#define attention attention_blocks
#define attention_backward attention_blocks_backward

const ckpt_tape_kernels ckpt_tape_kernels_avx2 = {.name = "avx2",
                                                  .real_bytes = sizeof(real),
                                                  .run =
                                                      {
#define CKPT_TAPE_KERNEL(id) CKPT_TAPE_KERNEL_OF(CKPT_KERNEL_##id, id)
#define CKPT_TAPE_KERNEL_OF(number, kernel) [number] = kernel,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
                                                      },
                                                  .gemm = multiply_panels,
                                                  .round = round_to_f32,
                                                  .slow_stride = CKPT_SLOW_STRIDE};
