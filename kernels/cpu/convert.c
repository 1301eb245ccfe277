/* convert.c - the cpu backend: picks the level once per cast and the route for each pair of dtypes.
 *
 *   8-bit sources          a table of the 256 results, made by the reference
 *   pairs of f64 and f32   one kernel
 *   f32 f16 bf16           to f32, then from f32, block by block (see convert.h)
 *   all others             the reference
 *
 * Bits and statistics equal the reference's. Statistics cost one comparison per vector: only a block in which some
 * source is out of the target's range is looked at element by element. */
#include "convert.h"

#include <string.h>

#include "kernels/ref/float_format.h"
#include "libckpt/dtype.h"

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

/* Counts what the reference counts, for sources already known to hold something to count. */
static void count(ckpt_dtype dst_dtype, ckpt_dtype src_dtype, const void *src, size_t n, ckpt_cast_stats *stats) {
  for (size_t i = 0; i < n; i++)
    ckpt_float_encode(dst_dtype, ckpt_float_decode(src_dtype, ckpt_float_load(src_dtype, src, i)), stats);
}

/* Runs kernels[dtype] of the level on the whole steps and of the scalar level on the rest. */
static bool apply_widen(const ckpt_convert_level *level, ckpt_dtype dtype, char *f32, const char *src, size_t n) {
  size_t head = n - n % CKPT_CONVERT_STEP, n_bytes = ckpt_dtype_get(dtype)->block_bytes;
  bool look = level->widen[dtype](f32, src, head);
  return ckpt_convert_scalar.widen[dtype](f32 + head * 4, src + head * n_bytes, n - head) || look;
}

static bool apply_narrow(const ckpt_convert_level *level, ckpt_dtype dtype, char *dst, const char *f32, size_t n) {
  size_t head = n - n % CKPT_CONVERT_STEP, n_bytes = ckpt_dtype_get(dtype)->block_bytes;
  bool look = level->narrow[dtype](dst, f32, head);
  return ckpt_convert_scalar.narrow[dtype](dst + head * n_bytes, f32 + head * 4, n - head) || look;
}

static void cast_through_f32(const ckpt_convert_level *level, ckpt_dtype dst_dtype, char *dst, ckpt_dtype src_dtype,
                             const char *src, size_t n_elements, ckpt_cast_stats *stats) {
  size_t src_bytes = ckpt_dtype_get(src_dtype)->block_bytes, dst_bytes = ckpt_dtype_get(dst_dtype)->block_bytes;
  char buffer[BLOCK * 4];
  for (size_t n; n_elements > 0; src += n * src_bytes, dst += n * dst_bytes, n_elements -= n) {
    n = n_elements < BLOCK ? n_elements : BLOCK;
    const char *f32 = src;
    bool look = false;
    if (src_dtype != CKPT_F32) {
      char *widened = dst_dtype == CKPT_F32 ? dst : buffer;
      look = apply_widen(level, src_dtype, widened, src, n);
      f32 = widened;
    }
    if (dst_dtype != CKPT_F32) look = apply_narrow(level, dst_dtype, dst, f32, n);
    if (look) count(dst_dtype, src_dtype, src, n, stats);
  }
}

#define LOOK_UP(type)                                                                    \
  do {                                                                                   \
    for (size_t i = 0; i < n_elements; i++)                                              \
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
  if (any.n_overflow == 0) return; /* NaN is never lost in a format of whole bytes */
  for (size_t i = 0; i < n_elements; i++) {
    const ckpt_cast_stats *s = &per_code[src[i]];
    stats->n_overflow += s->n_overflow;
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

const ckpt_backend ckpt_backend_cpu = {.name = "cpu", .can_cast = can_cast, .cast = cast};
