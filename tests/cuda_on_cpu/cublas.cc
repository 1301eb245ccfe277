// cublas.cc - products as cuBLASLt describes them, by the CPU's GEMM: all that it is told is checked.
#include <cublasLt.h>

#include "kernels/cuda/tape/tape.cuh"

namespace {

bool IsWrong(const cublasLtMatrixLayoutOpaque_t *layout, uint64_t n_rows, uint64_t n_columns) {
  return layout->n_rows != n_rows || layout->n_columns != n_columns ||
         layout->stride < static_cast<int64_t>(layout->n_rows);
}

ckpt_gemm_function *BestGemm() {
  size_t i = 0;
  while (ckpt_tape_kernels_cpu(i + 1) != nullptr) i++;
  return ckpt_tape_kernels_cpu(i)->gemm;
}

}  // namespace

struct cublasLtContext {
  int unused;
};

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out) { return *out = new cublasLtContext{}, CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete handle, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t) {
  *out = new cublasLtMatmulDescOpaque_t;
  (*out)->compute = compute;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) { return delete desc, CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t n_bytes) {
  void *const places[] = {&desc->operations[0], &desc->operations[1], &desc->epilogue, &desc->bias};
  if (n_bytes != (attribute == CUBLASLT_MATMUL_DESC_BIAS_POINTER ? sizeof(void *) : sizeof(int)))
    return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(places[attribute], value, n_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t, uint64_t n_rows,
                                          uint64_t n_columns, int64_t stride) {
  return *out = new cublasLtMatrixLayoutOpaque_t{n_rows, n_columns, stride}, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete layout, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out) {
  return *out = new cublasLtMatmulPreferenceOpaque_t, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return delete preference, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
                                                    size_t n_bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (n_bytes != sizeof preference->workspace) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(&preference->workspace, value, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  if (n_bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  memcpy(&preference->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value, n_bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *results, int *n_found) {
  *n_found = n_wanted > 0 ? 1 : 0;
  if (*n_found == 1) memcpy(results[0].algo.alignments, preference->alignments, sizeof preference->alignments);
  return CUBLAS_STATUS_SUCCESS;
}

// The column-major d = op(a) op(b) is the row-major product of the same memory with a and b exchanged.
cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *, size_t,
                              cudaStream_t) {
  const bool turns_a = desc->operations[0] == CUBLAS_OP_T, turns_b = desc->operations[1] == CUBLAS_OP_T;
  const uint64_t m = d_layout->n_rows, n = d_layout->n_columns, k = turns_a ? a_layout->n_rows : a_layout->n_columns;
  const void *const pointers[] = {a, b, c, d};
  for (size_t i = 0; i < 4; i++)
    if (reinterpret_cast<uintptr_t>(pointers[i]) % algo->alignments[i] != 0) return CUBLAS_STATUS_EXECUTION_FAILED;
  if (c != d || IsWrong(a_layout, turns_a ? k : m, turns_a ? m : k) ||
      IsWrong(b_layout, turns_b ? n : k, turns_b ? k : n) || d_layout->stride < static_cast<int64_t>(m))
    return CUBLAS_STATUS_INVALID_VALUE;
  ckpt_gemm g = {};
  g.is_a_transposed = turns_b, g.is_b_transposed = turns_a;
  g.m = n, g.n = m, g.k = k;
  g.is_bf16 = desc->compute == CUBLAS_COMPUTE_32F_FAST_16BF;
  g.a = b, g.lda = static_cast<size_t>(b_layout->stride);
  g.b = a, g.ldb = static_cast<size_t>(a_layout->stride);
  g.c = d, g.ldc = static_cast<size_t>(d_layout->stride);
  g.bias = desc->epilogue == CUBLASLT_EPILOGUE_BIAS ? desc->bias : nullptr;
  g.alpha = *static_cast<const float *>(alpha), g.beta = *static_cast<const float *>(beta);
  ckpt_status status = CKPT_EINTERNAL;
  const cudaError_t error = cuda_on_cpu::WithMemory([&] { status = BestGemm()(&g, nullptr); });
  return error == cudaSuccess && status == CKPT_OK ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

const ckpt_cublas *ckpt_cublas_get(void) {
  static const ckpt_cublas functions = {cublasLtCreate,
                                        cublasLtDestroy,
                                        cublasLtMatmul,
                                        cublasLtMatmulDescCreate,
                                        cublasLtMatmulDescDestroy,
                                        cublasLtMatmulDescSetAttribute,
                                        cublasLtMatrixLayoutCreate,
                                        cublasLtMatrixLayoutDestroy,
                                        cublasLtMatmulPreferenceCreate,
                                        cublasLtMatmulPreferenceDestroy,
                                        cublasLtMatmulPreferenceSetAttribute,
                                        cublasLtMatmulAlgoGetHeuristic};
  return &functions;
}
