/* dtype.c - dtype.def as a table, and the names people use for its rows. */
#include "libckpt/base/dtype.h"

#include <string.h>
#include <strings.h>

#include "libckpt/base/checked.h"

static const ckpt_dtype_row rows[CKPT_N_DTYPES] = {
    [CKPT_DTYPE_NONE] = {"none", 1, 0, CKPT_KIND_NONE, -1},
#define CKPT_DTYPE(id, name, n_elements, n_bytes, kind, ggml) \
  [CKPT_##id] = {name, n_elements, n_bytes, CKPT_KIND_##kind, ggml},
#include "libckpt/base/dtype.def"
#undef CKPT_DTYPE
};

static const struct {
  const char *name;
  ckpt_dtype dtype;
} synonyms[] = {
    {"float64", CKPT_F64},
    {"double", CKPT_F64},
    {"fp64", CKPT_F64},
    {"float32", CKPT_F32},
    {"float", CKPT_F32},
    {"fp32", CKPT_F32},
    {"float16", CKPT_F16},
    {"half", CKPT_F16},
    {"fp16", CKPT_F16},
    {"bfloat16", CKPT_BF16},
    {"float8_e4m3", CKPT_F8_E4M3},
    {"float8_e4m3fn", CKPT_F8_E4M3},
    {"f8_e4m3fn", CKPT_F8_E4M3},
    {"fp8_e4m3", CKPT_F8_E4M3},
    {"float8_e5m2", CKPT_F8_E5M2},
    {"fp8_e5m2", CKPT_F8_E5M2},
    {"float8_e8m0fnu", CKPT_F8_E8M0},
    {"float8_e8m0", CKPT_F8_E8M0},
    {"float8_e4m3fnuz", CKPT_F8_E4M3FNUZ},
    {"float8_e5m2fnuz", CKPT_F8_E5M2FNUZ},
    {"float4_e2m1fn_x2", CKPT_F4_E2M1},
    {"f4", CKPT_F4_E2M1},
    {"int64", CKPT_I64},
    {"long", CKPT_I64},
    {"int32", CKPT_I32},
    {"int", CKPT_I32},
    {"int16", CKPT_I16},
    {"short", CKPT_I16},
    {"int8", CKPT_I8},
    {"uint64", CKPT_U64},
    {"uint32", CKPT_U32},
    {"uint16", CKPT_U16},
    {"uint8", CKPT_U8},
    {"byte", CKPT_U8},
    {"boolean", CKPT_BOOL},
    {"complex64", CKPT_C64},
    {"complex128", CKPT_C128},
};

const ckpt_dtype_row *ckpt_dtype_get(ckpt_dtype dtype) {
  return &rows[(unsigned)dtype < CKPT_N_DTYPES ? dtype : CKPT_DTYPE_NONE];
}

const char *ckpt_dtype_name(ckpt_dtype dtype) { return ckpt_dtype_get(dtype)->name; }

ckpt_dtype ckpt_dtype_parse(const char *name) {
  if (strncasecmp(name, "torch.", 6) == 0) name += 6;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (strcasecmp(name, rows[i].name) == 0) return (ckpt_dtype)i;
  for (size_t i = 0; i < sizeof synonyms / sizeof *synonyms; i++)
    if (strcasecmp(name, synonyms[i].name) == 0) return synonyms[i].dtype;
  return CKPT_DTYPE_NONE;
}

ckpt_dtype ckpt_dtype_of_ggml(uint32_t number) {
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (rows[i].ggml >= 0 && (uint32_t)rows[i].ggml == number) return (ckpt_dtype)i;
  return CKPT_DTYPE_NONE;
}

bool ckpt_dtype_bytes(ckpt_dtype dtype, uint64_t n_elements, uint64_t *n_bytes) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  return n_elements % row->block_elements == 0 &&
         ckpt_mul_u64(n_elements / row->block_elements, row->block_bytes, n_bytes);
}

bool ckpt_dtype_is_block(ckpt_dtype dtype) { return ckpt_dtype_get(dtype)->kind == CKPT_KIND_BLOCK; }

bool ckpt_dtype_is_float(ckpt_dtype dtype) { return ckpt_dtype_get(dtype)->kind == CKPT_KIND_FLOAT; }

bool ckpt_dtype_holds_floats(ckpt_dtype dtype) { return ckpt_dtype_is_float(dtype) || ckpt_dtype_is_block(dtype); }
