/* widen.c - see widen.h. Floating dtypes go through the backend's cast, which is exact into f64. */
#include "libckpt/plan/ops/widen.h"

#include <string.h>

/* Elements of a caller's memory need not be aligned. */
#define WIDEN(type)                                            \
  for (size_t i = 0; i < n; i++) {                             \
    type x;                                                    \
    memcpy(&x, (const uint8_t *)src + i * sizeof x, sizeof x); \
    buffer[i] = (double)x;                                     \
  }                                                            \
  break

void ckpt_widen(const ckpt_backend *backend, ckpt_dtype dtype, const void *src, size_t n, double *buffer) {
  ckpt_cast_stats ignored = {0};
  switch (dtype) {
    case CKPT_F64:
    case CKPT_C128: memcpy(buffer, src, n * sizeof *buffer); break;
    case CKPT_C64: backend->cast(CKPT_F64, buffer, CKPT_F32, src, n, &ignored); break;
    case CKPT_BOOL:
      for (size_t i = 0; i < n; i++) buffer[i] = ((const uint8_t *)src)[i] != 0;
      break;
    case CKPT_U8: WIDEN(uint8_t);
    case CKPT_U16: WIDEN(uint16_t);
    case CKPT_U32: WIDEN(uint32_t);
    case CKPT_U64: WIDEN(uint64_t);
    case CKPT_I8: WIDEN(int8_t);
    case CKPT_I16: WIDEN(int16_t);
    case CKPT_I32: WIDEN(int32_t);
    case CKPT_I64: WIDEN(int64_t);
    default: ckpt_backend_read(backend, CKPT_F64, buffer, dtype, src, n, &ignored);
  }
}
