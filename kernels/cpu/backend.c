/* backend.c - the cpu backend: picks the level once per cast and the route for each pair of dtypes.
 *
 *   8-bit sources          a table of the 256 results, made by the reference
 *   pairs of f64 and f32   one kernel
 *   f32 f16 bf16           to f32, then from f32, block by block (see kernels/cpu/cast/cast.h)
 *   all others             the reference
 *
 * Bits and statistics equal the reference's. Kernels count what became zero and keep the greatest magnitude: only a
 * block in which some source is out of the target's range is looked at element by element. */
#include "kernels/cpu/cast/cast.h"

#include <string.h>

#include "kernels/cpu/lora/lora.h"
#include "kernels/cpu/product/product.h"
#include "kernels/cpu/quant/quant.h"
#include "kernels/cpu/sha256/sha256.h"
#include "kernels/ref/cast/float_format.h"
#include "libckpt/base/dtype.h"

#define BLOCK 1024 /* elements; f32 of one block are 4 KiB and stay in L1 */

#if defined(__x86_64__)
const ckpt_convert_level *ckpt_convert_level_at(size_t i) {
  const ckpt_convert_level *levels[3] = {&ckpt_convert_scalar};
  size_t n = 1;
  if (__builtin_cpu_supports("avx2")) levels[n++] = &ckpt_convert_avx2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
    levels[n++] = &ckpt_convert_avx512;
  return i < n ? levels[i] : NULL;
}
#else
const ckpt_convert_level *ckpt_convert_level_at(size_t i) { return i == 0 ? &ckpt_convert_scalar : NULL; }
#endif

static bool is_big_endian(void) { return *(const uint8_t *)&(const uint16_t){0x0100} == 1; }

/* Greatest magnitudes, as kernels see them, that stay finite and that become zero. F32 stands for f64 to f32. */
static const struct {
  uint64_t limit, lost;
} ranges[CKPT_N_DTYPES] = {
    [CKPT_F32] = {CKPT_LIMIT_F64_TO_F32, CKPT_LOST_F64_TO_F32},
    [CKPT_F16] = {CKPT_LIMIT_F16, CKPT_LOST_F16},
    [CKPT_BF16] = {CKPT_LIMIT_BF16, CKPT_LOST_BF16},
    [CKPT_F8_E4M3] = {CKPT_LIMIT_E4M3, CKPT_LOST_E4M3},
    [CKPT_F8_E5M2] = {CKPT_LIMIT_E5M2, CKPT_LOST_E5M2},
};

/* Counts what the reference counts. */
static void count(ckpt_dtype dst_dtype, ckpt_dtype src_dtype, const void *src, size_t n, ckpt_cast_stats *stats) {
  for (size_t i = 0; i < n; i++)
    ckpt_float_encode(dst_dtype, ckpt_float_decode(src_dtype, ckpt_float_load(src_dtype, src, i)), stats);
}

/* Runs a kernel on the whole steps and the scalar level's on the rest. */
static ckpt_convert_seen apply(ckpt_convert_kernel *kernel, ckpt_convert_kernel *rest, char *dst, size_t dst_bytes,
                               const char *src, size_t src_bytes, size_t n) {
  size_t head = n - n % CKPT_CONVERT_STEP;
  ckpt_convert_seen seen = kernel(dst, src, head);
  if (head == n) return seen;
  ckpt_convert_seen tail = rest(dst + head * dst_bytes, src + head * src_bytes, n - head);
  return (ckpt_convert_seen){tail.largest > seen.largest ? tail.largest : seen.largest,
                             tail.n_underflow + seen.n_underflow};
}

/* Adds what kernels saw of a block. Sources out of range are rare, and the reference knows what to say of them. */
static void take_seen(const ckpt_convert_seen *seen, ckpt_dtype dst_dtype, ckpt_dtype src_dtype, const void *src,
                      size_t n, ckpt_cast_stats *stats) {
  uint64_t n_underflow = stats->n_underflow + seen->n_underflow;
  if (seen->largest > ranges[dst_dtype].limit) count(dst_dtype, src_dtype, src, n, stats);
  stats->n_underflow = n_underflow;
  stats->has_nonzero |= seen->largest > ranges[dst_dtype].lost;
}

static void cast_through_f32(const ckpt_convert_level *level, ckpt_dtype dst_dtype, char *dst, ckpt_dtype src_dtype,
                             const char *src, size_t n_elements, ckpt_cast_stats *stats) {
  size_t src_bytes = ckpt_dtype_get(src_dtype)->block_bytes, dst_bytes = ckpt_dtype_get(dst_dtype)->block_bytes;
  char buffer[BLOCK * 4];
  for (size_t n; n_elements > 0; src += n * src_bytes, dst += n * dst_bytes, n_elements -= n) {
    n = n_elements < BLOCK ? n_elements : BLOCK;
    const char *f32 = src;
    ckpt_convert_seen seen = {0};
    if (src_dtype != CKPT_F32) {
      char *widened = dst_dtype == CKPT_F32 ? dst : buffer;
      seen = apply(level->widen[src_dtype], ckpt_convert_scalar.widen[src_dtype], widened, 4, src, src_bytes, n);
      f32 = widened;
    }
    if (dst_dtype != CKPT_F32)
      seen = apply(level->narrow[dst_dtype], ckpt_convert_scalar.narrow[dst_dtype], dst, dst_bytes, f32, 4, n);
    take_seen(&seen, dst_dtype, src_dtype, src, n, stats);
  }
}

#define LOOK_UP(type)                                                                      \
  do {                                                                                     \
    for (size_t i = 0; i < n_elements; i++)                                                \
      memcpy((char *)dst + i * sizeof(type), table + src[i] * sizeof(type), sizeof(type)); \
  } while (0)

static void cast_by_table(ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype, const uint8_t *src, size_t n_elements,
                          ckpt_cast_stats *stats) {
  uint8_t codes[256];
  char table[256 * 8];
  ckpt_cast_stats per_code[256], any = {0};
  for (size_t code = 0; code < 256; code++) {
    codes[code] = (uint8_t)code;
    per_code[code] = (ckpt_cast_stats){0};
    count(dst_dtype, src_dtype, &codes[code], 1, &per_code[code]);
  }
  ckpt_backend_reference.cast(dst_dtype, table, src_dtype, codes, 256, &any);
  switch (ckpt_dtype_get(dst_dtype)->block_bytes) {
    case 1: LOOK_UP(uint8_t); break;
    case 2: LOOK_UP(uint16_t); break;
    case 4: LOOK_UP(uint32_t); break;
    default: LOOK_UP(uint64_t); break;
  }
  if (any.n_overflow + any.n_underflow == 0) return; /* NaN is never lost in a format of whole bytes */
  for (size_t i = 0; i < n_elements; i++) {
    const ckpt_cast_stats *s = &per_code[src[i]];
    stats->n_overflow += s->n_overflow;
    stats->n_underflow += s->n_underflow;
    stats->has_nonzero |= s->has_nonzero;
    if (s->largest > stats->largest) stats->largest = s->largest;
  }
}

static bool is_pivot(ckpt_dtype dtype, ckpt_convert_kernel *const *kernels) {
  return dtype == CKPT_F32 || (dtype != CKPT_F64 && kernels[dtype]);
}

void ckpt_convert_cast(const ckpt_convert_level *level, ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype,
                       const void *src, size_t n_elements, ckpt_cast_stats *stats) {
  const ckpt_dtype_row *src_row = ckpt_dtype_get(src_dtype), *dst_row = ckpt_dtype_get(dst_dtype);
  bool is_byte = src_row->block_bytes == 1 && src_row->block_elements == 1, is_packed = dst_row->block_elements > 1;
  bool from_f32 = is_pivot(src_dtype, level->widen) && (is_pivot(dst_dtype, level->narrow) || dst_dtype == CKPT_F64);
  if (src_dtype == dst_dtype || is_big_endian())
    ckpt_backend_reference.cast(dst_dtype, dst, src_dtype, src, n_elements, stats);
  else if (is_byte && !is_packed && n_elements >= 256)
    cast_by_table(dst_dtype, dst, src_dtype, src, n_elements, stats);
  else if (from_f32 || (src_dtype == CKPT_F64 && dst_dtype == CKPT_F32))
    cast_through_f32(level, dst_dtype, dst, src_dtype, src, n_elements, stats);
  else
    ckpt_backend_reference.cast(dst_dtype, dst, src_dtype, src, n_elements, stats);
}

static void cast(ckpt_dtype dst_dtype, void *dst, ckpt_dtype src_dtype, const void *src, size_t n_elements,
                 ckpt_cast_stats *stats) {
  const ckpt_convert_level *best = &ckpt_convert_scalar, *level;
  for (size_t i = 0; (level = ckpt_convert_level_at(i)); i++) best = level;
  ckpt_convert_cast(best, dst_dtype, dst, src_dtype, src, n_elements, stats);
}

static bool can_cast(ckpt_dtype src, ckpt_dtype dst) { return ckpt_backend_reference.can_cast(src, dst); }

const ckpt_backend ckpt_backend_cpu = {.name = "cpu",
                                       .can_cast = can_cast,
                                       .cast = cast,
                                       .can_quantize = ckpt_can_quantize,
                                       .uses_importance = ckpt_uses_importance,
                                       .quantize = ckpt_quant_cpu_quantize,
                                       .dequantize = ckpt_quant_cpu_dequantize,
                                       .product = ckpt_product_cpu,
                                       .lora = ckpt_lora_cpu,
                                       .hash_leaves = ckpt_sha256_leaves};
