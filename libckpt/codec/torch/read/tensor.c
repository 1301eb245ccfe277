/* tensor.c - one rebuild call of torch, taken apart: dtypes, storage classes, persistent ids, views.
 *
 * Everything is checked here against what the pickle itself says of the storage; whether that is so, locate knows. */
#include <inttypes.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"

/* ---- types ---------------------------------------------------------------------------------------------------- */

typedef struct type_row {
  const char *dtype, *storage; /* below torch; NULL where there is none */
  uint8_t id, n_bytes;         /* id NONE: not read */
  uint8_t values;              /* what a quantized tensor of it stores, one in each element */
} type_row;

static const type_row types[] = {
    {"float64", "DoubleStorage", CKPT_F64, 8, 0},
    {"float32", "FloatStorage", CKPT_F32, 4, 0},
    {"float16", "HalfStorage", CKPT_F16, 2, 0},
    {"bfloat16", "BFloat16Storage", CKPT_BF16, 2, 0},
    {"int64", "LongStorage", CKPT_I64, 8, 0},
    {"int32", "IntStorage", CKPT_I32, 4, 0},
    {"int16", "ShortStorage", CKPT_I16, 2, 0},
    {"int8", "CharStorage", CKPT_I8, 1, 0},
    {"uint8", "ByteStorage", CKPT_U8, 1, 0},
    {"bool", "BoolStorage", CKPT_BOOL, 1, 0},
    {"complex128", "ComplexDoubleStorage", CKPT_C128, 16, 0},
    {"complex64", "ComplexFloatStorage", CKPT_C64, 8, 0},
    {"uint16", NULL, CKPT_U16, 2, 0},
    {"uint32", NULL, CKPT_U32, 4, 0},
    {"uint64", NULL, CKPT_U64, 8, 0},
    {"float8_e4m3fn", NULL, CKPT_F8_E4M3, 1, 0},
    {"float8_e5m2", NULL, CKPT_F8_E5M2, 1, 0},
    {"float8_e4m3fnuz", NULL, CKPT_F8_E4M3FNUZ, 1, 0},
    {"float8_e5m2fnuz", NULL, CKPT_F8_E5M2FNUZ, 1, 0},
    {"float8_e8m0fnu", NULL, CKPT_F8_E8M0, 1, 0},
    {"float4_e2m1fn_x2", NULL, CKPT_F4_E2M1, 1, 0},
    {"complex32", "ComplexHalfStorage", CKPT_DTYPE_NONE, 4, 0},
    {"qint8", "QInt8Storage", CKPT_DTYPE_NONE, 1, CKPT_I8},
    {"quint8", "QUInt8Storage", CKPT_DTYPE_NONE, 1, CKPT_U8},
    {"qint32", "QInt32Storage", CKPT_DTYPE_NONE, 4, CKPT_I32},
    {"quint4x2", "QUInt4x2Storage", CKPT_DTYPE_NONE, 1, 0},
    {"quint2x4", "QUInt2x4Storage", CKPT_DTYPE_NONE, 1, 0},
    {"bits8", NULL, CKPT_DTYPE_NONE, 1, 0},
    {"bits16", NULL, CKPT_DTYPE_NONE, 2, 0},
    {"bits1x8", NULL, CKPT_DTYPE_NONE, 1, 0},
    {"bits2x4", NULL, CKPT_DTYPE_NONE, 1, 0},
    {"bits4x2", NULL, CKPT_DTYPE_NONE, 1, 0},
    {NULL, "UntypedStorage", CKPT_DTYPE_NONE, 1, 0},
    {NULL, "_UntypedStorage", CKPT_DTYPE_NONE, 1, 0},
};
enum { N_TYPES = sizeof types / sizeof *types };

bool ckpt_torch_type(ckpt_dtype dtype, const char **name, const char **storage) {
  for (size_t i = 0; i < N_TYPES; i++) {
    if (types[i].id != dtype || dtype == CKPT_DTYPE_NONE) continue;
    *name = types[i].dtype;
    *storage = types[i].storage;
    return true;
  }
  return false;
}

const char *ckpt_torch_quantized_storage(ckpt_dtype values) {
  for (size_t i = 0; i < N_TYPES; i++)
    if (types[i].values == values && values != CKPT_DTYPE_NONE) return types[i].storage;
  return NULL;
}

/* The class or dtype of a NAME node below torch, torch.cuda or torch.storage; NULL for others. */
static const char *torch_name(const ckpt_object *name) {
  static const char *const modules[] = {"torch", "torch.cuda", "torch.storage"};
  if (name == NULL || name->kind != CKPT_OBJECT_FOREIGN || name->form != CKPT_FORM_NAME) return NULL;
  for (size_t i = 0; i < sizeof modules / sizeof *modules; i++)
    if (name->n_module == strlen(modules[i]) && memcmp(name->name, modules[i], name->n_module) == 0)
      return name->name + name->n_module + 1;
  return NULL;
}

/* The row of a storage's class, or of a dtype. */
static const type_row *find_type(const ckpt_object *name, bool is_storage) {
  const char *wanted = torch_name(name);
  for (size_t i = 0; i < N_TYPES && wanted != NULL; i++) {
    const char *own = is_storage ? types[i].storage : types[i].dtype;
    if (own != NULL && strcmp(own, wanted) == 0) return &types[i];
  }
  return NULL;
}

ckpt_dtype ckpt_torch_dtype(const ckpt_object *name) {
  const type_row *type = find_type(name, false);
  return type == NULL ? CKPT_DTYPE_NONE : (ckpt_dtype)type->id;
}

uint32_t ckpt_torch_storage_bytes(const ckpt_object *name) {
  const type_row *type = find_type(name, true);
  return type == NULL ? 0 : type->n_bytes;
}

/* ---- calls ---------------------------------------------------------------------------------------------------- */

typedef struct call_row {
  const char *name; /* below torch._utils */
  ckpt_torch_call_kind kind;
  uint8_t dtype_at, metadata_at;
  const char *reason;
} call_row;

#define PACKED "quantized, several values in a byte"

static const call_row calls[] = {
    {"_rebuild_tensor_v2", TORCH_CALL_VIEW, 0, 6, NULL},
    {"_rebuild_tensor_v3", TORCH_CALL_VIEW, 6, 7, NULL},
    {"_rebuild_tensor", TORCH_CALL_VIEW, 0, 0, NULL},
    {"_rebuild_parameter", TORCH_CALL_INNER, 0, 0, NULL},
    {"_rebuild_parameter_with_state", TORCH_CALL_INNER, 0, 0, NULL},
    {"_rebuild_device_tensor_from_cpu_tensor", TORCH_CALL_INNER, 0, 0, NULL},
    {"_rebuild_qtensor", TORCH_CALL_REFUSED, 0, 0, "quantized in a way that is not known"},
    {"_rebuild_meta_tensor_no_storage", TORCH_CALL_REFUSED, 0, 0, "a meta tensor, without data"},
    {"_rebuild_device_tensor_from_numpy", TORCH_CALL_REFUSED, 0, 0, "a NumPy array inside the pickle"},
    {"_rebuild_xla_tensor", TORCH_CALL_REFUSED, 0, 0, "a NumPy array inside the pickle"},
};

static bool is_text(const ckpt_object *object, const char *text) {
  return object != NULL && object->kind == CKPT_OBJECT_TEXT && object->n == strlen(text) &&
         memcmp(object->text, text, object->n) == 0;
}

/* The tuple of a persistent id that is a storage's, or NULL. */
static const ckpt_object *storage_id(const ckpt_object *node) {
  bool is_persistent = node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_PERSISTENT && node->n == 1;
  return is_persistent && is_text(ckpt_foreign_arg(node->items[0], 0), "storage") ? node->items[0] : NULL;
}

/* What protocol 0 makes of one: its tuple, printed. */
static bool is_text_id(const ckpt_object *node) {
  static const char start[] = "('storage',";
  return node->n == 1 && node->items[0]->kind == CKPT_OBJECT_TEXT &&
         strncmp(node->items[0]->text, start, sizeof start - 1) == 0;
}

/* What stands behind "torch._utils." in a function's name; NULL for other modules. */
static const char *utils_name(const ckpt_object *function) {
  static const char module[] = "torch._utils";
  if (function->n_module != sizeof module - 1 || memcmp(function->name, module, sizeof module - 1) != 0) return NULL;
  return function->name + sizeof module;
}

bool ckpt_torch_is_from_type(const ckpt_object *node) {
  enum { N_ARGS = 3 };
  return (ckpt_foreign_is(node, "torch._tensor", "_rebuild_from_type_v2") ||
          ckpt_foreign_is(node, "torch._tensor", "_rebuild_from_type") ||
          ckpt_foreign_is(node, "torch.tensor", "_rebuild_from_type")) &&
         node->n >= N_ARGS;
}

/* Whether what is called gets a storage: nothing but a tensor is made of one. */
static bool makes_tensor(const ckpt_torch_call *call) {
  enum { MAX_ARGS = 16 };
  for (uint64_t i = 0; i < call->n_args && i < MAX_ARGS; i++)
    if (storage_id(call->args[i]) != NULL) return true;
  return false;
}

/* Whether the storage of a quantized tensor holds several values in each byte. */
static bool is_packed(const ckpt_object *call) {
  const ckpt_object *id = storage_id(call->items[0]);
  const type_row *type = id == NULL ? NULL : find_type(ckpt_foreign_arg(id, 1), true);
  return ckpt_torch_has_bytes(call) || (type != NULL && type->id == CKPT_DTYPE_NONE && type->values == 0);
}

void ckpt_torch_call_read(ckpt_torch_call *call, const ckpt_object *node) {
  *call = (ckpt_torch_call){.kind = TORCH_CALL_OTHER};
  if (!ckpt_foreign_is_call(node)) return;
  const ckpt_object *function = node;
  call->args = node->items;
  call->n_args = node->n;
  if (ckpt_torch_is_from_type(node)) {
    const ckpt_object *args = node->items[2];
    function = node->items[0];
    if (function->kind != CKPT_OBJECT_FOREIGN || function->form != CKPT_FORM_NAME || args->kind != CKPT_OBJECT_TUPLE)
      return;
    call->args = args->items;
    call->n_args = args->n;
    if (node->items[1]->kind == CKPT_OBJECT_FOREIGN && node->items[1]->form == CKPT_FORM_NAME)
      call->type = node->items[1];
  }
  const char *name = utils_name(function);
  for (size_t i = 0; name != NULL && i < sizeof calls / sizeof *calls; i++) {
    if (strcmp(calls[i].name, name) != 0) continue;
    call->kind = calls[i].kind;
    call->dtype_at = calls[i].dtype_at;
    call->metadata_at = calls[i].metadata_at;
    call->reason = calls[i].reason;
  }
  if (ckpt_torch_is_quantized(node)) {
    call->kind = is_packed(node) ? TORCH_CALL_REFUSED : TORCH_CALL_QUANTIZED;
    if (is_packed(node)) call->reason = PACKED;
  }
  if (call->kind != TORCH_CALL_OTHER || !makes_tensor(call)) return;
  call->kind = TORCH_CALL_REFUSED;
  call->function = function;
}

bool ckpt_torch_is_quantized(const ckpt_object *call) {
  enum { MAX_ARGS = 7, OF_TENSOR = 3, OF_CHANNELS = 4 }; /* what torch unpacks */
  if (!ckpt_foreign_is(call, "torch._utils", "_rebuild_qtensor") || call->n > MAX_ARGS) return false;
  const ckpt_object *with = ckpt_foreign_arg(call, 4);
  const ckpt_object *scheme = ckpt_foreign_arg(with, 0), *scales = ckpt_foreign_arg(with, 1);
  const ckpt_object *zero_points = ckpt_foreign_arg(with, 2);
  if (scales == NULL || zero_points == NULL) return false;
  bool are_tensors = scales->kind == CKPT_OBJECT_TENSOR && zero_points->kind == CKPT_OBJECT_TENSOR;
  if (ckpt_foreign_is_name(scheme, "torch", "per_tensor_affine") && with->n == OF_TENSOR)
    return are_tensors || (with->kind == CKPT_OBJECT_TUPLE && scales->kind == CKPT_OBJECT_FLOAT &&
                           zero_points->kind == CKPT_OBJECT_INT);
  return are_tensors && with->n == OF_CHANNELS &&
         (ckpt_foreign_is_name(scheme, "torch", "per_channel_affine") ||
          ckpt_foreign_is_name(scheme, "torch", "per_channel_affine_float_qparams"));
}

const char *const *ckpt_torch_sparse_parts(const ckpt_object *call, bool *is_coo) {
  static const char *const coo[] = {"indices", "values", NULL};
  static const char *const rows[] = {"crow_indices", "col_indices", "values", NULL};
  static const char *const columns[] = {"ccol_indices", "row_indices", "values", NULL};
  static const struct {
    const char *layout;
    const char *const *parts;
  } layouts[] = {{"torch.sparse_coo", coo},
                 {"torch.sparse_csr", rows},
                 {"torch.sparse_bsr", rows},
                 {"torch.sparse_csc", columns},
                 {"torch.sparse_bsc", columns}};
  if (is_coo != NULL) *is_coo = false;
  if (!ckpt_foreign_is(call, "torch._utils", "_rebuild_sparse_tensor")) return NULL;
  const ckpt_object *layout = ckpt_foreign_arg(call, 0);
  const ckpt_object *name =
      ckpt_foreign_is(layout, "torch.serialization", "_get_layout") ? ckpt_foreign_arg(layout, 0) : NULL;
  for (size_t i = 0; name != NULL && name->kind == CKPT_OBJECT_TEXT && i < sizeof layouts / sizeof *layouts; i++)
    if (strcmp(layouts[i].layout, name->text) == 0) {
      if (is_coo != NULL) *is_coo = i == 0;
      return layouts[i].parts;
    }
  return NULL;
}

/* ---- storages ------------------------------------------------------------------------------------------------- */

static bool take_u64(const ckpt_object *object, uint64_t *value) {
  if (object == NULL || object->kind != CKPT_OBJECT_INT || object->integer < 0) return false;
  *value = (uint64_t)object->integer;
  return true;
}

ckpt_dtype ckpt_torch_call_dtype(const ckpt_object *node) {
  ckpt_torch_call call;
  ckpt_torch_call_read(&call, node);
  if (call.kind != TORCH_CALL_VIEW || call.n_args == 0) return CKPT_DTYPE_NONE;
  if (call.dtype_at != 0 && call.dtype_at < call.n_args) return ckpt_torch_dtype(call.args[call.dtype_at]);
  const ckpt_object *id = storage_id(call.args[0]);
  const type_row *type = id == NULL ? NULL : find_type(ckpt_foreign_arg(id, 1), true);
  return type == NULL ? CKPT_DTYPE_NONE : (ckpt_dtype)type->id;
}

/* ("storage", class, key, location, numel), and in legacy streams None or (view key, offset, size). */
ckpt_status ckpt_torch_reference_read(ckpt_torch_reference *out, bool *is_storage, const ckpt_object *node,
                                      ckpt_error *err) {
  enum { MAX_KEY_BYTES = 1024 };
  *is_storage = false;
  const ckpt_object *id = storage_id(node);
  if (is_text_id(node))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "storages are named by text, as pickle protocol 0 writes them: torch.load cannot read them either "
                     "(save with protocol 2)");
  if (id == NULL) return CKPT_OK;
  const ckpt_object *key = ckpt_foreign_arg(id, 2), *view = ckpt_foreign_arg(id, 5);
  *out = (ckpt_torch_reference){.node = node, .type = ckpt_foreign_arg(id, 1)};
  if (key == NULL || key->kind != CKPT_OBJECT_TEXT || key->n == 0 || strlen(key->text) != key->n)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a storage whose key is no text");
  if (key->n > MAX_KEY_BYTES) /* they are compared with each other, and many can share one */
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a storage whose key has %" PRIu64 " bytes (at most %d)", key->n,
                     MAX_KEY_BYTES);
  out->key = key->text;
  const type_row *type = find_type(out->type, true);
  *is_storage = type != NULL; /* of another class: its tensors are not read */
  if (type == NULL) return CKPT_OK;
  out->element_bytes = type->n_bytes;
  if (!take_u64(ckpt_foreign_arg(id, 4), &out->n_elements) ||
      !ckpt_mul_u64(out->n_elements, type->n_bytes, &out->n_bytes) || out->n_bytes > INT64_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "storage '%.40s' has no possible number of elements", key->text);
  if (view == NULL || view->kind == CKPT_OBJECT_NONE) return CKPT_OK;
  uint64_t n_root = out->n_elements;
  if (!take_u64(ckpt_foreign_arg(view, 1), &out->start) || !take_u64(ckpt_foreign_arg(view, 2), &out->n_elements) ||
      !ckpt_range_within(out->start, out->n_elements, n_root))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "a view of storage '%.40s' reaches outside its %" PRIu64 " element%s", key->text, n_root,
                     ckpt_plural(n_root));
  return CKPT_OK;
}

/* ---- views ---------------------------------------------------------------------------------------------------- */

/* A defect fails the file; what is not supported leaves the tensor out. */
static ckpt_status refuse(ckpt_torch_tensor *tensor, ckpt_status status, const char *reason, ckpt_error *err) {
  CKPT_TRY_ALLOC(reason, err);
  tensor->status = status;
  tensor->reason = reason;
  return CKPT_OK;
}

enum { MAX_METADATA = 16 }; /* entries of the dict with conj and neg, which tensors can share */

bool ckpt_torch_signs(uint8_t *signs, ckpt_dtype dtype, const ckpt_object *metadata) {
  const ckpt_object *conj = ckpt_object_get(metadata, "conj"), *neg = ckpt_object_get(metadata, "neg");
  *signs = 0;
  if ((conj != NULL && conj->kind != CKPT_OBJECT_BOOL) || (neg != NULL && neg->kind != CKPT_OBJECT_BOOL)) return false;
  const bool is_conjugate = conj != NULL && conj->boolean, is_negative = neg != NULL && neg->boolean;
  const bool is_complex = dtype == CKPT_C64 || dtype == CKPT_C128;
  const bool has_sign = is_complex || dtype == CKPT_F16 || dtype == CKPT_BF16 || dtype == CKPT_F32 || dtype == CKPT_F64;
  if (is_negative) *signs = CKPT_SIGNS_EVEN;
  if (is_negative != is_conjugate) *signs |= CKPT_SIGNS_ODD;
  return (!is_negative || has_sign) && (!is_conjugate || is_complex);
}

static const ckpt_object *metadata_of(const ckpt_torch_call *call) {
  return call->metadata_at != 0 && call->metadata_at < call->n_args ? call->args[call->metadata_at] : NULL;
}

/* Neither with a view of the storage in its id, as of before 0.4. */
bool ckpt_torch_is_opaque(const ckpt_torch_call *call, const ckpt_object *node) {
  const bool is_quantized = call->kind == TORCH_CALL_REFUSED && ckpt_torch_is_quantized(node);
  if ((call->kind != TORCH_CALL_VIEW && !is_quantized) || call->args != node->items || call->n_args < 4) return false;
  const ckpt_object *id = storage_id(call->args[0]), *view = ckpt_foreign_arg(id, 5);
  const type_row *type = id == NULL ? NULL : find_type(ckpt_foreign_arg(id, 1), true);
  if (type == NULL || (view != NULL && view->kind != CKPT_OBJECT_NONE)) return false;
  const ckpt_object *metadata = metadata_of(call);
  if (metadata != NULL && metadata->kind == CKPT_OBJECT_DICT && metadata->n > MAX_METADATA) return false;
  const bool is_named = call->dtype_at != 0 && call->dtype_at < call->n_args;
  if (is_named) type = find_type(call->args[call->dtype_at], false);
  uint8_t signs;
  if (type != NULL && !ckpt_torch_signs(&signs, (ckpt_dtype)type->id, metadata)) return true;
  return type != NULL && type->dtype != NULL && type->id == CKPT_DTYPE_NONE;
}

bool ckpt_torch_has_bytes(const ckpt_object *call) {
  return ckpt_foreign_is_call(call) && call->n != 0 && call->items[0]->kind == CKPT_OBJECT_TENSOR &&
         (call->items[0]->form & CKPT_LEAF_BARE) != 0 && call->items[0]->name != NULL;
}

bool ckpt_torch_stays_call(const ckpt_object *node) {
  ckpt_torch_call call;
  ckpt_torch_call_read(&call, node);
  return ckpt_torch_has_bytes(node) || ckpt_torch_is_opaque(&call, node) || ckpt_torch_is_quantized(node) ||
         ckpt_torch_sparse_parts(node, NULL) != NULL ||
         ckpt_foreign_is(node, "torch._utils", "_rebuild_meta_tensor_no_storage");
}

/* The dtype: an argument's where there is one, else the storage's. */
static ckpt_status take_dtype(ckpt_torch_tensor *out, const type_row **type, const ckpt_torch_call *call,
                              const ckpt_torch_reference *reference, ckpt_arena *arena, ckpt_error *err) {
  const ckpt_object *named = call->dtype_at != 0 && call->dtype_at < call->n_args ? call->args[call->dtype_at] : NULL;
  const ckpt_object *name = named != NULL ? named : reference->type;
  *type = find_type(name, named == NULL);
  uint8_t id = *type == NULL ? CKPT_DTYPE_NONE : call->kind == TORCH_CALL_QUANTIZED ? (*type)->values : (*type)->id;
  if (id != CKPT_DTYPE_NONE) {
    out->dtype = id;
    return CKPT_OK;
  }
  const char *shown = torch_name(name);
  return refuse(out, CKPT_EUNSUPPORTED,
                ckpt_arena_printf(arena, "of dtype %.60s",
                                  *type != NULL && (*type)->dtype != NULL ? (*type)->dtype
                                  : shown != NULL                         ? shown
                                                                          : "unknown"),
                err);
}

/* Why these are no shape and strides. */
static const char *axes_defect(const ckpt_object *size, const ckpt_object *stride, ckpt_arena *arena) {
  const ckpt_object *lists[] = {size, stride};
  for (int k = 0; k < 2; k++) {
    if (lists[k]->kind != CKPT_OBJECT_TUPLE && lists[k]->kind != CKPT_OBJECT_LIST) continue;
    for (uint64_t i = 0; i < lists[k]->n && i <= CKPT_MAX_RANK; i++) { /* tensors can share a long list */
      const ckpt_object *item = lists[k]->items[i];
      if (item->kind == CKPT_OBJECT_INT && item->integer < 0)
        return ckpt_arena_printf(arena, "%s %" PRIu64 " is negative (%lld)",
                                 k == 0 ? "the size of axis" : "the stride of axis", i, (long long)item->integer);
    }
  }
  return "its shape and strides are no two lists of as many sizes";
}

/* Shape and strides: as many of one as of the other, none negative. */
static ckpt_status take_axes(ckpt_torch_tensor *out, const ckpt_object *size, const ckpt_object *stride,
                             ckpt_arena *arena, ckpt_error *err) {
  uint64_t axes[2][CKPT_MAX_RANK];
  uint32_t rank, n_strides;
  if (size->kind == CKPT_OBJECT_FOREIGN && size->n == 1) size = size->items[0];
  if ((size->kind == CKPT_OBJECT_TUPLE || size->kind == CKPT_OBJECT_LIST) && size->n > CKPT_MAX_RANK)
    return refuse(out, CKPT_EUNSUPPORTED,
                  ckpt_arena_printf(arena, "of %" PRIu64 " axes (at most %d)", size->n, CKPT_MAX_RANK), err);
  if (!ckpt_foreign_u64s(size, axes[0], CKPT_MAX_RANK, &rank) ||
      !ckpt_foreign_u64s(stride, axes[1], CKPT_MAX_RANK, &n_strides) || rank != n_strides)
    return refuse(out, CKPT_EFORMAT, axes_defect(size, stride, arena), err);
  uint64_t *copy = ckpt_arena_array(arena, 2 * (size_t)rank, sizeof *copy);
  CKPT_TRY_ALLOC(copy, err);
  for (uint32_t i = 0; i < rank; i++) {
    copy[i] = axes[0][i];
    copy[rank + i] = axes[0][i] == 1 ? 0 : axes[1][i];
  }
  out->rank = rank;
  out->shape = copy;
  out->strides = copy + rank;
  return CKPT_OK;
}

/* Elements from the first to behind the last: false where that overflows. */
static bool take_reach(ckpt_torch_tensor *out) {
  if (!ckpt_product_u64(out->shape, out->rank, &out->n_elements)) return false;
  out->reach = out->n_elements == 0 ? 0 : 1;
  for (uint32_t i = 0; i < out->rank && out->n_elements != 0; i++) {
    uint64_t far;
    if (!ckpt_mul_u64(out->shape[i] - 1, out->strides[i], &far) || !ckpt_add_u64(out->reach, far, &out->reach))
      return false;
  }
  return true;
}

/* Why a tensor cannot begin there, or reach as far as its shape and strides say. */
static const char *reach_defect(const ckpt_torch_tensor *tensor, const ckpt_object *offset, ckpt_arena *arena) {
  const ckpt_tensor shape = {.rank = (uint8_t)tensor->rank, .shape = tensor->shape};
  const ckpt_tensor strides = {.rank = (uint8_t)tensor->rank, .shape = tensor->strides};
  char texts[2][CKPT_SHAPE_TEXT];
  if (offset->kind != CKPT_OBJECT_INT) return "its offset is no number";
  if (offset->integer < 0) return ckpt_arena_printf(arena, "its offset is negative (%lld)", (long long)offset->integer);
  return ckpt_arena_printf(arena, "its shape %s with strides %s goes past 2^64 elements",
                           ckpt_tensor_shape_text(&shape, texts[0], sizeof texts[0]),
                           ckpt_tensor_shape_text(&strides, texts[1], sizeof texts[1]));
}

static ckpt_status take_view(ckpt_torch_tensor *out, const ckpt_torch_call *call, const ckpt_torch_reference *reference,
                             ckpt_arena *arena, ckpt_error *err) {
  const type_row *type;
  uint64_t start;
  CKPT_TRY(take_dtype(out, &type, call, reference, arena, err));
  if (out->status == CKPT_OK && !ckpt_torch_signs(&out->signs, out->dtype, metadata_of(call)))
    return refuse(out, CKPT_EUNSUPPORTED, "a conjugate or a negative of what has no sign", err);
  if (out->status == CKPT_OK) CKPT_TRY(take_axes(out, call->args[2], call->args[3], arena, err));
  if (out->status != CKPT_OK) return CKPT_OK;
  if (out->rank == 0 && out->dtype == CKPT_F4_E2M1)
    return refuse(out, CKPT_EUNSUPPORTED, "a scalar of dtype float4_e2m1fn_x2", err);
  if (!take_u64(call->args[1], &start) || !take_reach(out))
    return refuse(out, CKPT_EFORMAT, reach_defect(out, call->args[1], arena), err);
  /* The part of the storage that is meant, in elements of this tensor. */
  uint64_t n_elements = reference->n_elements * reference->element_bytes / type->n_bytes;
  uint64_t first = reference->start * reference->element_bytes / type->n_bytes;
  if (out->n_elements == 0) {
    out->offset = 0;
  } else if (!ckpt_range_within(start, out->reach, n_elements)) {
    return refuse(out, CKPT_EFORMAT,
                  ckpt_arena_printf(arena,
                                    "reaches outside its storage (%" PRIu64 " element%s from %" PRIu64
                                    ", the storage has %" PRIu64 ")",
                                    out->reach, ckpt_plural(out->reach), start, n_elements),
                  err);
  } else {
    out->offset = first + start;
  }
  return CKPT_OK;
}

static bool is_unknown_storage(const ckpt_object *node) {
  const ckpt_object *id = storage_id(node);
  return id != NULL && find_type(ckpt_foreign_arg(id, 1), true) == NULL;
}

ckpt_status ckpt_torch_tensor_read(ckpt_torch_tensor *out, const ckpt_torch_call *call,
                                   const ckpt_torch_reference *reference, ckpt_arena *arena, ckpt_error *err) {
  *out = (ckpt_torch_tensor){.first_name = UINT32_MAX, .last_name = UINT32_MAX};
  const bool has_unknown = reference == NULL && call->n_args != 0 && is_unknown_storage(call->args[0]);
  out->is_unknown = call->kind == TORCH_CALL_REFUSED ? call->reason == NULL : has_unknown;
  if (call->kind == TORCH_CALL_REFUSED)
    return refuse(out, CKPT_EUNSUPPORTED,
                  call->reason != NULL
                      ? call->reason
                      : ckpt_arena_printf(arena, "made by %.120s, which is not known", call->function->name),
                  err);
  if (has_unknown) return refuse(out, CKPT_EUNSUPPORTED, "of a storage whose class is not known", err);
  if (reference == NULL || call->n_args < 4)
    return refuse(out, CKPT_EFORMAT, "a tensor without storage, offset, shape or strides", err);
  out->storage = reference->storage;
  const ckpt_object *metadata = metadata_of(call);
  if (metadata != NULL && metadata->kind == CKPT_OBJECT_DICT && metadata->n > MAX_METADATA)
    return refuse(out, CKPT_EUNSUPPORTED, "more metadata than conj and neg", err);
  return take_view(out, call, reference, arena, err);
}
