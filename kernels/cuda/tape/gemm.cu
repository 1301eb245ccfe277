/* gemm.cu - the GEMM hook of CUDA: cuBLASLt of f32, whose products are of f32 or, rounded by the library, of bf16.
 *
 * Its matrices are column-major. A row-major c = op(a) op(b) is the column-major product of the same memory with a and
 * b exchanged, and a bias for each column of ours is one for each row of its. */
#include "kernels/cuda/tape/tape.cuh"

typedef struct product {
  const ckpt_cublas *lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, c; /* a, b: exchanged */
  cublasLtMatmulPreference_t preference;
} product;

/* The largest power of two, up to what the library asks for, that an address is a multiple of. */
static uint32_t alignment_of(const void *at) {
  uint32_t alignment = 256;
  while ((uintptr_t)at % alignment != 0) alignment /= 2;
  return alignment;
}

static cublasStatus_t describe(product *p, const ckpt_gemm *g) {
  const cublasOperation_t first = g->is_b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t second = g->is_a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
  const cublasComputeType_t compute = g->is_bf16 ? CUBLAS_COMPUTE_32F_FAST_16BF : CUBLAS_COMPUTE_32F;
  cublasStatus_t s = p->lt->desc_create(&p->desc, compute, CUDA_R_32F);
  if (s == CUBLAS_STATUS_SUCCESS) s = p->lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
  if (s == CUBLAS_STATUS_SUCCESS) s = p->lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
  if (s != CUBLAS_STATUS_SUCCESS || g->bias == NULL) return s;
  s = p->lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  return p->lt->desc_set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &g->bias, sizeof g->bias);
}

static cublasStatus_t lay_out(product *p, const ckpt_gemm *g) {
  const uint64_t a_rows = g->is_b_transposed ? g->k : g->n, a_columns = g->is_b_transposed ? g->n : g->k;
  const uint64_t b_rows = g->is_a_transposed ? g->m : g->k, b_columns = g->is_a_transposed ? g->k : g->m;
  cublasStatus_t s = p->lt->layout_create(&p->a, CUDA_R_32F, a_rows, a_columns, (int64_t)g->ldb);
  if (s == CUBLAS_STATUS_SUCCESS) s = p->lt->layout_create(&p->b, CUDA_R_32F, b_rows, b_columns, (int64_t)g->lda);
  if (s == CUBLAS_STATUS_SUCCESS) s = p->lt->layout_create(&p->c, CUDA_R_32F, g->n, g->m, (int64_t)g->ldc);
  return s;
}

static cublasStatus_t prefer(product *p, const ckpt_gemm *g) {
  const struct {
    cublasLtMatmulPreferenceAttributes_t attribute;
    const void *at;
  } pointers[] = {{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, g->b},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, g->a},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, g->c},
                  {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, g->c}};
  const size_t n_workspace = CKPT_CUDA_WORKSPACE;
  cublasStatus_t s = p->lt->preference_create(&p->preference);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = p->lt->preference_set(p->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &n_workspace,
                              sizeof n_workspace);
  for (size_t i = 0; i < sizeof pointers / sizeof *pointers && s == CUBLAS_STATUS_SUCCESS; i++) {
    const uint32_t alignment = alignment_of(pointers[i].at);
    s = p->lt->preference_set(p->preference, pointers[i].attribute, &alignment, sizeof alignment);
  }
  return s;
}

/* ---- algorithms -------------------------------------------------------------------------------------------------- */

/* All that the library's choice may depend on. */
static void kind_of(uint64_t kind[8], const ckpt_gemm *g) {
  const uint64_t alignments =
      alignment_of(g->a) | (uint64_t)alignment_of(g->b) << 16 | (uint64_t)alignment_of(g->c) << 32;
  const uint64_t flags = (g->is_a_transposed ? 1U : 0U) | (g->is_b_transposed ? 2U : 0U) | (g->is_bf16 ? 4U : 0U) |
                         (g->bias != NULL ? 8U : 0U);
  const uint64_t all[8] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc, alignments, flags};
  memcpy(kind, all, sizeof all);
}

/* The place of a kind, by its hash (FNV-1a over words). */
static ckpt_cuda_algorithm *place_of(ckpt_cuda *c, const uint64_t kind[8]) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (int i = 0; i < 8; i++) hash = (hash ^ kind[i]) * 0x100000001b3U;
  return &c->algorithms[(hash ^ hash >> 32) % CKPT_CUDA_ALGORITHMS];
}

/* Asks the library, where it has not said it of such a product before. */
static cublasStatus_t choose(product *p, ckpt_cuda *c, const ckpt_gemm *g, ckpt_cuda_algorithm **out) {
  uint64_t kind[8];
  kind_of(kind, g);
  ckpt_cuda_algorithm *place = *out = place_of(c, kind);
  if (place->is_known && memcmp(place->kind, kind, sizeof kind) == 0) return CUBLAS_STATUS_SUCCESS;
  cublasLtMatmulHeuristicResult_t found;
  int n_found = 0;
  cublasStatus_t s = prefer(p, g);
  if (s == CUBLAS_STATUS_SUCCESS)
    s = p->lt->heuristic(c->cublas, p->desc, p->a, p->b, p->c, p->c, p->preference, 1, &found, &n_found);
  if (s == CUBLAS_STATUS_SUCCESS && n_found == 0) s = CUBLAS_STATUS_NOT_SUPPORTED;
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  memcpy(place->kind, kind, sizeof kind);
  place->algorithm = found.algo;
  place->is_known = true;
  return s;
}

/* ---- the product ------------------------------------------------------------------------------------------------- */

static cublasStatus_t multiply(product *p, ckpt_cuda *c, const ckpt_gemm *g) {
  const float alpha = (float)g->alpha, beta = (float)g->beta;
  ckpt_cuda_algorithm *chosen = NULL;
  cublasStatus_t s = describe(p, g);
  if (s == CUBLAS_STATUS_SUCCESS) s = lay_out(p, g);
  if (s == CUBLAS_STATUS_SUCCESS) s = choose(p, c, g, &chosen);
  if (s != CUBLAS_STATUS_SUCCESS) return s;
  return p->lt->matmul(c->cublas, p->desc, &alpha, g->b, p->a, g->a, p->b, &beta, g->c, p->c, g->c, p->c,
                       &chosen->algorithm, c->workspace, CKPT_CUDA_WORKSPACE, c->stream);
}

ckpt_status ckpt_cuda_gemm(ckpt_cuda *c, const ckpt_gemm *g, ckpt_error *err) {
  product p = {};
  p.lt = ckpt_cublas_get();
  if (g->m == 0 || g->n == 0) return CKPT_OK;
  if (g->b_dtype != CKPT_DTYPE_NONE) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "CUDA multiplies f32 alone");
  const cublasStatus_t status = multiply(&p, c, g);
  if (p.preference != NULL) (void)p.lt->preference_destroy(p.preference);
  if (p.c != NULL) (void)p.lt->layout_destroy(p.c);
  if (p.b != NULL) (void)p.lt->layout_destroy(p.b);
  if (p.a != NULL) (void)p.lt->layout_destroy(p.a);
  if (p.desc != NULL) (void)p.lt->desc_destroy(p.desc);
  if (status == CUBLAS_STATUS_SUCCESS) return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, NULL, NULL, "cuBLASLt gave %d for a product of %zu x %zu x %zu", (int)status, g->m,
                   g->n, g->k);
}
