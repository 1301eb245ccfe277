/* misuse.c - known names, used as no honest file does: what they would call of their arguments, and states that
 * set what Python itself goes by. With these two, names that are all known run any code. */
#include "libckpt/codec/pickle/machine.h"

/* What an argument must be. */
typedef enum demand {
  ANYTHING,
  A_NAME,         /* of a class */
  A_NAME_OR_NONE, /* of a class that is called later */
  A_REBUILD,      /* the name of a function that rebuilds a tensor and calls nothing else */
  A_PLAIN_CLASS,  /* of Python's own classes, whose constructors take plain data */
  A_CONSTRUCTOR,  /* of numpy's random generators */
  A_MASKED_CLASS, /* of numpy.ma, whose __new__ takes what it is handed as data */
  AN_ARRAY_CLASS, /* numpy's own: of others __array_finalize__ is called */
  A_SHAPE,
  A_CODE /* of a dtype: text */
} demand;

static const struct caller {
  const char *name;
  demand demands[4];
} callers[] = {
    {"copyreg.__newobj__", {A_NAME}},
    {"copy_reg.__newobj__", {A_NAME}},
    {"copyreg._reconstructor", {A_NAME, A_PLAIN_CLASS}},
    {"copy_reg._reconstructor", {A_NAME, A_PLAIN_CLASS}},
    {"collections.defaultdict", {A_NAME_OR_NONE}},
    {"torch._tensor._rebuild_from_type", {A_REBUILD, A_NAME}},
    {"torch._tensor._rebuild_from_type_v2", {A_REBUILD, A_NAME}},
    {"torch.tensor._rebuild_from_type", {A_REBUILD, A_NAME}},
    {"torch._utils._rebuild_wrapper_subclass", {A_NAME}},
    {"torch._utils._rebuild_parameter_with_state", {ANYTHING}},
    {"numpy.core.multiarray._reconstruct", {A_NAME}},
    {"numpy._core.multiarray._reconstruct", {A_NAME}},
    {"numpy.ma.core._mareconstruct", {A_MASKED_CLASS, AN_ARRAY_CLASS, A_SHAPE, A_CODE}},
    {"numpy.random._pickle.__randomstate_ctor", {ANYTHING, A_CONSTRUCTOR}},
    {"numpy.random._pickle.__generator_ctor", {ANYTHING, A_CONSTRUCTOR}},
};

uint32_t ckpt_pickle_caller(const char *name) {
  for (uint32_t i = 0; i < sizeof callers / sizeof *callers; i++)
    if (strcmp(callers[i].name, name) == 0) return i + 1;
  return 0;
}

static bool is_rebuild(const char *name) {
  static const char *const names[] = {"torch._utils._rebuild_tensor",
                                      "torch._utils._rebuild_tensor_v2",
                                      "torch._utils._rebuild_tensor_v3",
                                      "torch._utils._rebuild_parameter",
                                      "torch._utils._rebuild_qtensor",
                                      "torch._utils._rebuild_sparse_tensor",
                                      "torch._utils._rebuild_sparse_csr_tensor",
                                      "torch._utils._rebuild_nested_tensor",
                                      "torch._utils._rebuild_meta_tensor_no_storage",
                                      "torch._utils._rebuild_wrapper_subclass",
                                      "torch._utils._rebuild_device_tensor_from_numpy",
                                      "torch._utils._rebuild_device_tensor_from_cpu_tensor",
                                      "torch._utils._rebuild_xla_tensor",
                                      "torch.nested._internal.nested_tensor._rebuild_njt",
                                      "torch.nested._internal.nested_tensor.NestedTensor"}; /* torch before 2.5 */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static bool is_plain_class(const ckpt_object *name) {
  static const char *const plain[] = {"object", "dict", "list",  "tuple",     "set",     "frozenset", "int",
                                      "float",  "str",  "bytes", "bytearray", "complex", "unicode",   "long"};
  bool is_plain = false;
  for (size_t i = 0; i < sizeof plain / sizeof *plain && !is_plain; i++)
    is_plain = ckpt_foreign_is_name(name, "builtins", plain[i]) || ckpt_foreign_is_name(name, "__builtin__", plain[i]);
  return is_plain || ckpt_foreign_is_name(name, "collections", "OrderedDict");
}

static bool is_masked_class(const ckpt_object *name) {
  return ckpt_foreign_is_name(name, "numpy.ma", "MaskedArray") ||
         ckpt_foreign_is_name(name, "numpy.ma.core", "MaskedArray") ||
         ckpt_foreign_is_name(name, "numpy.ma.core", "mvoid");
}

static bool is_shape(const ckpt_object *arg) {
  enum { MAX_AXES = 64 };
  bool is_one = arg->kind == CKPT_OBJECT_TUPLE && arg->n <= MAX_AXES;
  for (uint64_t i = 0; is_one && i < arg->n; i++) is_one = arg->items[i]->kind == CKPT_OBJECT_INT;
  return is_one;
}

static bool meets(const ckpt_object *arg, demand wanted) {
  bool is_name = arg->kind == CKPT_OBJECT_FOREIGN && arg->form == CKPT_FORM_NAME;
  switch (wanted) {
    case ANYTHING: return true;
    case A_NAME: return is_name;
    case A_NAME_OR_NONE: return is_name || arg->kind == CKPT_OBJECT_NONE;
    case A_REBUILD: return is_name && is_rebuild(arg->name);
    case A_PLAIN_CLASS: return is_plain_class(arg);
    case A_CONSTRUCTOR: return ckpt_foreign_is_name(arg, "numpy.random._pickle", "__bit_generator_ctor");
    case A_MASKED_CLASS: return is_masked_class(arg);
    case AN_ARRAY_CLASS: return ckpt_foreign_is_name(arg, "numpy", "ndarray");
    case A_SHAPE: return is_shape(arg);
    case A_CODE: return arg->kind == CKPT_OBJECT_TEXT || arg->kind == CKPT_OBJECT_BYTES;
  }
  return false;
}

/* Whether a call of a caller hands over something that is no plain name of what honest files hand over there. */
static bool is_misuse(uint32_t caller, const ckpt_object *args) {
  const demand *demands = callers[caller - 1].demands;
  for (uint64_t i = 0; i < args->n && i < sizeof callers->demands / sizeof *demands; i++)
    if (!meets(args->items[i], demands[i])) return true;
  return false;
}

static bool begins(const ckpt_object *text, const char *start) {
  size_t n = strlen(start);
  return text->kind == CKPT_OBJECT_TEXT && text->n >= n && memcmp(text->text, start, n) == 0;
}

static bool is_text(const ckpt_object *object, const char *text) {
  return begins(object, text) && object->n == strlen(text);
}

static bool is_of_multiarray(const ckpt_object *call, const char *function) {
  return ckpt_foreign_is(call, "numpy._core.multiarray", function) ||
         ckpt_foreign_is(call, "numpy.core.multiarray", function);
}

/* (version, shape, dtype, is Fortran, values, mask, what stands for a masked value): numpy.ma asks the dtype and that
 * value for attributes, so that they are numpy's own, or plain. */
static bool is_masked_state(const ckpt_object *state) {
  enum { SHAPE = 1, DTYPE, FORTRAN, VALUES, MASK, FILL, N };
  if (state->kind != CKPT_OBJECT_TUPLE || state->n != N) return false;
  ckpt_object *const *items = state->items;
  const ckpt_object *fill = items[FILL];
  const bool is_list = items[VALUES]->kind == CKPT_OBJECT_LIST && items[VALUES]->extras == 0; /* of objects */
  return items[0]->kind == CKPT_OBJECT_INT && is_shape(items[SHAPE]) &&
         ckpt_foreign_is(items[DTYPE], "numpy", "dtype") && items[FORTRAN]->kind == CKPT_OBJECT_BOOL &&
         (items[VALUES]->kind == CKPT_OBJECT_BYTES || is_list) && items[MASK]->kind == CKPT_OBJECT_BYTES &&
         (fill->kind <= CKPT_OBJECT_BYTES || is_of_multiarray(fill, "_reconstruct") ||
          is_of_multiarray(fill, "scalar"));
}

bool ckpt_pickle_is_state_of(const ckpt_pickle_global *global, const ckpt_object *state) {
  const struct caller *caller = global->caller == 0 ? NULL : &callers[global->caller - 1];
  return caller == NULL || caller->demands[0] != A_MASKED_CLASS || is_masked_state(state);
}

/* What TorchScript leaves in a module that was scripted and is saved whole: Python itself does not go by it. */
static bool is_of_script(const ckpt_object *key, const ckpt_object *value) {
  return is_text(key, "__overloads__") && value->kind == CKPT_OBJECT_DICT && value->n == 0;
}

/* What pydantic's models have beside their fields, which their own __setstate__ takes apart. */
static bool is_of_pydantic(const ckpt_object *key) {
  return begins(key, "__pydantic_") || is_text(key, "__fields_set__") || is_text(key, "__private_attribute_values__");
}

/* Whether a key of a dict is one that begins with two underscores, or one that a call makes. `inner` (may be NULL) gets
 * the fields of a pydantic model instead. */
static ckpt_status check_keys(ckpt_pickle_machine *m, const ckpt_object *dict, const ckpt_object **inner, bool *is) {
  const ckpt_object *fields = NULL;
  bool is_model = false, has_odd = false;
  if (dict->kind == CKPT_OBJECT_FOREIGN && dict->form != CKPT_FORM_NAME) {
    bool is_dict = strcmp(dict->name, "builtins.dict") == 0 || strcmp(dict->name, "__builtin__.dict") == 0 ||
                   strncmp(dict->name, "collections.", 12) == 0;
    for (uint64_t i = 0; is_dict && i < dict->n; i++) *is = *is || !meets(dict->items[i], A_NAME_OR_NONE);
    dict = ckpt_object_extra_of(dict, CKPT_EXTRA_DICT);
  }
  if (dict == NULL || dict->kind != CKPT_OBJECT_DICT) return CKPT_OK;
  CKPT_TRY(ckpt_pickle_copied(m, dict->n));
  for (uint64_t i = 0; i < dict->n; i++) {
    const ckpt_object *key = dict->items[2 * i];
    has_odd = has_odd || (key->kind == CKPT_OBJECT_FOREIGN && key->form != CKPT_FORM_NAME);
    if (!begins(key, "__") || is_of_script(key, dict->items[2 * i + 1])) continue;
    is_model = is_model || is_of_pydantic(key);
    if (inner != NULL && is_text(key, "__dict__"))
      fields = dict->items[2 * i + 1];
    else
      has_odd = has_odd || inner == NULL || !is_of_pydantic(key);
  }
  *is = *is || has_odd || (fields != NULL && !is_model);
  if (inner != NULL) *inner = fields;
  return CKPT_OK;
}

ckpt_status ckpt_pickle_check_state(ckpt_pickle_machine *m, const ckpt_object *state, bool *is_misuse) {
  const ckpt_object *fields = NULL;
  *is_misuse = false;
  if (state->kind != CKPT_OBJECT_TUPLE || state->n != 2) {
    CKPT_TRY(check_keys(m, state, &fields, is_misuse));
    return fields == NULL ? CKPT_OK : check_keys(m, fields, NULL, is_misuse);
  }
  CKPT_TRY(check_keys(m, state->items[0], NULL, is_misuse));
  return check_keys(m, state->items[1], NULL, is_misuse);
}

/* Whether what is called with an object may call a method of it that the file gave it: dict() calls `keys`,
 * torch._utils._rebuild_parameter `detach`. A state that is no dict is numpy's, which is taken apart. */
static bool has_methods(const ckpt_object *object) {
  if (object->kind == CKPT_OBJECT_FOREIGN && object->form == CKPT_FORM_NAME)
    return ckpt_pickle_judge(ckpt_pickle_global_of(object)) >= CKPT_PICKLE_FOREIGN;
  const ckpt_object *state = ckpt_object_extra_of(object, CKPT_EXTRA_STATE);
  bool is_array = state != NULL && state->kind == CKPT_OBJECT_TUPLE && state->n != 2;
  return (state != NULL && !is_array) ||
         (object->kind == CKPT_OBJECT_FOREIGN && ckpt_object_extra_of(object, CKPT_EXTRA_DICT) != NULL);
}

void ckpt_pickle_check_args(ckpt_pickle_machine *m, const ckpt_object *args) {
  bool is_handed = false;
  for (uint64_t i = 0; i < args->n && !is_handed; i++) is_handed = has_methods(args->items[i]);
  m->report->n_handed += is_handed;
}

ckpt_status ckpt_pickle_check_call(ckpt_pickle_machine *m, ckpt_pickle_global *global, const ckpt_object *args) {
  bool has_odd_state = false;
  global->n_constructed += args->n != 0;
  if (global->caller == 0) return CKPT_OK;
  if (args->n == 4) CKPT_TRY(ckpt_pickle_check_state(m, args->items[3], &has_odd_state)); /* of those that take one */
  global->n_misused += has_odd_state || is_misuse(global->caller, args);
  return CKPT_OK;
}
