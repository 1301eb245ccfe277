/* write.c - see write.h; torch/_tensor.py has the calls (`Tensor.__reduce_ex__`). */
#include "libckpt/codec/torch/write/write.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/codec/torch/read/graph.h"

enum { TEXT_STORAGE, TEXT_CPU };
enum { REBUILD, REBUILD_WITH_DTYPE, REBUILD_PARAMETER, REBUILD_WITH_STATE, REBUILD_FROM_TYPE, TENSOR, ORDERED_DICT };

/* True where something is in the memo, and on the stack now; else the caller puts it there and keeps it. */
static bool recall(ckpt_pickle_writer *writer, uint32_t number) {
  if (number != 0) ckpt_pickle_recall(writer, number - 1);
  return number != 0;
}

static void put_text(ckpt_torch_memo *memo, ckpt_pickle_writer *writer, int which) {
  static const char *const texts[] = {"storage", "cpu"};
  if (recall(writer, memo->texts[which])) return;
  ckpt_pickle_put_text(writer, texts[which], strlen(texts[which]));
  memo->texts[which] = ckpt_pickle_keep(writer) + 1;
}

static void put_global(ckpt_pickle_writer *writer, uint32_t *number, const char *module, const char *name) {
  if (recall(writer, *number)) return;
  ckpt_pickle_put_global(writer, module, name);
  *number = ckpt_pickle_keep(writer) + 1;
}

static void put_hooks(ckpt_torch_memo *memo, ckpt_pickle_writer *writer) {
  put_global(writer, &memo->functions[ORDERED_DICT], "collections", "OrderedDict");
  ckpt_pickle_put_empty_tuple(writer);
  ckpt_pickle_put_reduce(writer);
}

bool ckpt_torch_holds(ckpt_dtype dtype, uint32_t rank, const uint64_t *shape) {
  const char *name, *storage;
  bool is_pair = dtype == CKPT_F4_E2M1;
  return ckpt_torch_type(dtype, &name, &storage) && (!is_pair || (rank != 0 && shape[rank - 1] % 2 == 0));
}

void ckpt_torch_put_storage(ckpt_torch_memo *memo, ckpt_pickle_writer *w, ckpt_dtype dtype, bool is_quantized,
                            const char *key, uint64_t n_elements) {
  const char *name, *storage = NULL;
  (void)ckpt_torch_type(dtype, &name, &storage);
  ckpt_pickle_put_mark(w);
  put_text(memo, w, TEXT_STORAGE);
  if (is_quantized)
    put_global(w, &memo->quantized[dtype], "torch", ckpt_torch_quantized_storage(dtype));
  else if (storage == NULL) /* one class for all that have none of their own */
    put_global(w, &memo->storages[CKPT_DTYPE_NONE], "torch.storage", "UntypedStorage");
  else
    put_global(w, &memo->storages[dtype], "torch", storage);
  ckpt_pickle_put_text(w, key, strlen(key));
  put_text(memo, w, TEXT_CPU);
  ckpt_pickle_put_u64(w, storage == NULL ? n_elements * ckpt_dtype_get(dtype)->block_bytes : n_elements);
  ckpt_pickle_put_tuple(w, 5);
  ckpt_pickle_put_persid(w);
}

void ckpt_torch_put_bytes(ckpt_torch_memo *memo, ckpt_pickle_writer *w, const ckpt_object *class, const char *key,
                          uint64_t n_elements) {
  char module[32]; /* torch, torch.storage */
  snprintf(module, sizeof module, "%.*s", (int)class->n_module, class->name);
  if (strcmp(module, "torch.cuda") == 0) module[sizeof "torch" - 1] = '\0'; /* it is on the CPU now */
  ckpt_pickle_put_mark(w);
  put_text(memo, w, TEXT_STORAGE);
  ckpt_pickle_put_global(w, module, class->name + class->n_module + 1);
  ckpt_pickle_put_text(w, key, strlen(key));
  put_text(memo, w, TEXT_CPU);
  ckpt_pickle_put_u64(w, n_elements);
  ckpt_pickle_put_tuple(w, 5);
  ckpt_pickle_put_persid(w);
}

void ckpt_torch_put_tensor(ckpt_torch_memo *memo, ckpt_pickle_writer *w, ckpt_dtype dtype, uint32_t rank,
                           const uint64_t *shape, const char *key, const ckpt_torch_view *view, bool is_parameter,
                           ckpt_object_grad grad, bool has_attributes) {
  const char *name = "", *storage = NULL;
  uint64_t sizes[CKPT_MAX_RANK] = {0}, strides[CKPT_MAX_RANK] = {0}, n = 1, stride = 1;
  (void)ckpt_torch_type(dtype, &name, &storage);
  for (uint32_t i = rank; i-- > 0;) {
    sizes[i] = dtype == CKPT_F4_E2M1 && i == rank - 1 ? shape[i] / 2 : shape[i];
    strides[i] = stride;
    stride *= sizes[i] == 0 ? 1 : sizes[i];
    n *= sizes[i];
  }
  if (view != NULL) n = view->n_elements;
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  const bool can_ask = row->kind == CKPT_KIND_FLOAT || row->kind == CKPT_KIND_COMPLEX;
  const bool asks = can_ask && (grad == CKPT_GRAD_YES || (is_parameter && grad == CKPT_GRAD_UNKNOWN));
  const bool is_typed = has_attributes && !is_parameter;
  if (is_typed)
    put_global(w, &memo->functions[REBUILD_FROM_TYPE], "torch._tensor", "_rebuild_from_type_v2");
  else if (has_attributes)
    put_global(w, &memo->functions[REBUILD_WITH_STATE], "torch._utils", "_rebuild_parameter_with_state");
  else if (is_parameter)
    put_global(w, &memo->functions[REBUILD_PARAMETER], "torch._utils", "_rebuild_parameter");
  if (has_attributes) ckpt_pickle_put_mark(w);
  put_global(w, &memo->functions[storage == NULL ? REBUILD_WITH_DTYPE : REBUILD], "torch._utils",
             storage == NULL ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
  if (is_typed) put_global(w, &memo->functions[TENSOR], "torch", "Tensor");
  ckpt_pickle_put_mark(w);
  ckpt_torch_put_storage(memo, w, dtype, false, key, n);
  ckpt_pickle_put_u64(w, view == NULL ? 0 : view->offset);
  ckpt_pickle_put_u64s(w, sizes, rank);
  ckpt_pickle_put_u64s(w, view == NULL ? strides : view->strides, rank);
  ckpt_pickle_put_bool(w, asks && !is_parameter);
  put_hooks(memo, w);
  if (storage == NULL) put_global(w, &memo->dtypes[dtype], "torch", name);
  ckpt_pickle_put_tuple(w, storage == NULL ? 7 : 6);
  if (!is_typed) ckpt_pickle_put_reduce(w);
  if (!is_parameter) return;
  ckpt_pickle_put_bool(w, asks);
  put_hooks(memo, w);
  if (has_attributes) return;
  ckpt_pickle_put_tuple(w, 3);
  ckpt_pickle_put_reduce(w);
}
