/* safe.c - see safe.h. */
#include "libckpt/codec/torch/plain/safe.h"

#include <string.h>

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"

static bool is_one_of(const char *name, const char *const *names, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static bool may_call(const char *name) {
  static const char *const names[] = {"torch.Size",
                                      "torch.device",
                                      "torch.serialization._get_layout",
                                      "collections.Counter",
                                      "builtins.complex",
                                      "__builtin__.complex",
                                      "torch._utils._rebuild_qtensor",
                                      "torch._utils._rebuild_sparse_tensor",
                                      "torch._utils._rebuild_meta_tensor_no_storage"};
  return is_one_of(name, names, sizeof names / sizeof *names);
}

/* Where the storage is there to be written. */
static bool may_call_with_bytes(const char *name) {
  static const char *const names[] = {"torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2",
                                      "torch._utils._rebuild_tensor_v3"};
  return is_one_of(name, names, sizeof names / sizeof *names);
}

/* A call around one that stays a call: the Parameter or the attributes of a quantized, sparse or meta tensor. */
static bool may_wrap(const ckpt_object *node) {
  enum { CALL = 2, N = 4 };
  if (ckpt_foreign_is(node, "torch._utils", "_rebuild_parameter") ||
      ckpt_foreign_is(node, "torch._utils", "_rebuild_parameter_with_state"))
    return node->n != 0 && ckpt_torch_stays_call(node->items[0]);
  return ckpt_foreign_is(node, "torch._tensor", "_rebuild_from_type_v2") && node->n == N &&
         ckpt_torch_stays_call(node->items[CALL]) && ckpt_foreign_is_name(node->items[1], "torch", "Tensor");
}

/* Names that it resolves: dtypes and quantization schemes, and what makes tensors. */
static bool may_name(const char *name) {
  static const char *const names[] = {"torch.complex32",
                                      "torch.qint8",
                                      "torch.quint8",
                                      "torch.qint32",
                                      "torch.quint4x2",
                                      "torch.quint2x4",
                                      "torch.bits8",
                                      "torch.bits16",
                                      "torch.bits1x8",
                                      "torch.bits2x4",
                                      "torch.bits4x2",
                                      "torch.per_tensor_affine",
                                      "torch.per_tensor_symmetric",
                                      "torch.per_channel_affine",
                                      "torch.per_channel_symmetric",
                                      "torch.per_channel_affine_float_qparams",
                                      "torch.Size",
                                      "torch.Tensor",
                                      "torch.device",
                                      "torch._utils._rebuild_tensor_v2",
                                      "torch._utils._rebuild_tensor_v3",
                                      "torch._utils._rebuild_qtensor",
                                      "torch._utils._rebuild_sparse_tensor",
                                      "torch._utils._rebuild_meta_tensor_no_storage"};
  const char *dtype, *storage;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (ckpt_torch_type((ckpt_dtype)i, &dtype, &storage) && strncmp(name, "torch.", 6) == 0 &&
        strcmp(name + 6, dtype) == 0)
      return true;
  return is_one_of(name, names, sizeof names / sizeof *names);
}

bool ckpt_torch_is_safe(const ckpt_object *node) {
  switch (node->kind) {
    case CKPT_OBJECT_LIST:
    case CKPT_OBJECT_TUPLE: return node->name == NULL && node->extras == 0;
    case CKPT_OBJECT_SET: return node->name == NULL;
    case CKPT_OBJECT_BIGINT: return node->n <= 600; /* 255 bytes of LONG1 */
    case CKPT_OBJECT_DICT:
      if (node->name == NULL) return node->extras == 0;
      return strcmp(node->name, "collections.OrderedDict") == 0 && (node->extras & ~(uint32_t)CKPT_EXTRA_STATE) == 0;
    case CKPT_OBJECT_FOREIGN:
      if (node->form == CKPT_FORM_NAME) return may_name(node->name);
      if (!ckpt_foreign_is_call(node) || node->extras != 0) return false;
      return may_call(node->name) || may_wrap(node) || (ckpt_torch_has_bytes(node) && may_call_with_bytes(node->name));
    default: return true;
  }
}

const char *ckpt_torch_namespace(const ckpt_object *node) {
  static const char *const names[] = {"argparse.Namespace", "types.SimpleNamespace"};
  if (node->kind != CKPT_OBJECT_FOREIGN || node->form > CKPT_FORM_NEW || node->n != 0) return NULL;
  const ckpt_object *state = ckpt_object_extra_of(node, CKPT_EXTRA_STATE);
  if (state == NULL ? node->extras != 0 : node->extras != CKPT_EXTRA_STATE || state->kind != CKPT_OBJECT_DICT)
    return NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(node->name, names[i]) == 0) return names[i];
  return NULL;
}

const ckpt_object *ckpt_torch_attributes(const ckpt_object *node) {
  return ckpt_torch_namespace(node) == NULL ? NULL : ckpt_object_extra_of(node, CKPT_EXTRA_STATE);
}

const char *ckpt_torch_class(const ckpt_object *node) {
  if (node->kind == CKPT_OBJECT_BIGINT) return "a large number";
  return node->name != NULL && node->name[0] != '\0' ? node->name : "an object without a name";
}
