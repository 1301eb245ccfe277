/* write.h - pickles a tensor as torch.save does: a call of torch._utils._rebuild_tensor_v2 over a persistent id. */
#ifndef CKPT_CODEC_TORCH_WRITE_WRITE_H
#define CKPT_CODEC_TORCH_WRITE_WRITE_H

#include "libckpt/base/dtype.h"
#include "libckpt/ckpt.h"
#include "libckpt/codec/pickle/write.h"
#include "libckpt/index/object.h"

/* The dtypes of ours that torch has, as caps.dtypes. */
#define CKPT_TORCH_DTYPES                 \
  (((UINT64_C(1) << CKPT_N_DTYPES) - 1) & \
   ~(UINT64_C(1) << CKPT_DTYPE_NONE | UINT64_C(1) << CKPT_F6_E2M3 | UINT64_C(1) << CKPT_F6_E3M2 | CKPT_BLOCK_DTYPES))

/* What of a pickle is in its memo already. Zero-initialise it for each pickle. */
typedef struct ckpt_torch_memo {
  uint32_t texts[2], functions[7], storages[CKPT_N_DTYPES], quantized[CKPT_N_DTYPES], dtypes[CKPT_N_DTYPES]; /* + 1 */
} ckpt_torch_memo;

/* Whether torch has the dtype and the shape: a float4_e2m1fn_x2 counts pairs on its last axis. */
bool ckpt_torch_holds(ckpt_dtype dtype, uint32_t rank, const uint64_t *shape);

/* Where a tensor lies in a storage of n_elements with others. */
typedef struct ckpt_torch_view {
  uint64_t n_elements, offset, strides[CKPT_MAX_RANK];
} ckpt_torch_view;

/* Prints the persistent id of the storage `key` of n elements: of a quantized tensor, which has such values, or of the
 * dtype. */
void ckpt_torch_put_storage(ckpt_torch_memo *memo, ckpt_pickle_writer *writer, ckpt_dtype dtype, bool is_quantized,
                            const char *key, uint64_t n_elements);

/* The same of a storage that is no tensor's of ours: class has the name. */
void ckpt_torch_put_bytes(ckpt_torch_memo *memo, ckpt_pickle_writer *writer, const ckpt_object *class, const char *key,
                          uint64_t n_elements);

/* Prints a tensor on the CPU in the storage `key`: a view of it, or row-major and alone (NULL); ckpt_torch_holds it. A
 * parameter is wrapped into torch.nn.Parameter. Gradients are asked for where the dtype can have some, and `grad` says
 * so, or nothing of a parameter. One with attributes is left open: they follow, and a tuple and REDUCE behind them. */
void ckpt_torch_put_tensor(ckpt_torch_memo *memo, ckpt_pickle_writer *writer, ckpt_dtype dtype, uint32_t rank,
                           const uint64_t *shape, const char *key, const ckpt_torch_view *view, bool is_parameter,
                           ckpt_object_grad grad, bool has_attributes);

#endif
