/* avx512.c - the kernels of the tape, compiled as CMakeLists.txt says for this level. Rows and elements are the
 * reference's own sources, which compilers make vectors of; attention is by blocks. A level of its own has products of
 * bf16. */
#define CKPT_REAL_BITS 32
#include "kernels/cpu/tape/attention.h"
#include "kernels/cpu/tape/panels.h"
#include "kernels/cpu/tape/tape.h"
#include "kernels/ref/tape/optimizer.h"
#include "kernels/ref/tape/rows.h"

#define attention attention_blocks
#define attention_backward attention_blocks_backward

const ckpt_tape_kernels ckpt_tape_kernels_avx512 = {.name = "avx512",
                                                    .real_bytes = sizeof(real),
                                                    .run =
                                                        {
#define CKPT_TAPE_KERNEL(id) CKPT_TAPE_KERNEL_OF(CKPT_KERNEL_##id, id)
#define CKPT_TAPE_KERNEL_OF(number, kernel) [number] = kernel,
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
                                                        },
                                                    .gemm = multiply_panels,
                                                    .round = round_to_f32};

static ckpt_status multiply_bf16(const ckpt_gemm *g, ckpt_error *err) { return multiply_panels_as(g, true, err); }

const ckpt_tape_kernels ckpt_tape_kernels_avx512_bf16 = {.name = "avx512-bf16",
                                                         .real_bytes = sizeof(real),
                                                         .run =
                                                             {
#define CKPT_TAPE_KERNEL(id) CKPT_TAPE_KERNEL_OF(CKPT_KERNEL_##id, id)
#include "kernels/ref/tape/tape_kernels.def"
#undef CKPT_TAPE_KERNEL
                                                             },
                                                         .gemm = multiply_bf16};
