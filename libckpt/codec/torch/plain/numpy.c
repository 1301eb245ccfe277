/* numpy.c - arrays, scalars and dtypes of numpy in a torch file, as numpy pickles them (see safe.h):
 *
 *   _reconstruct(ndarray, (0,), b"b"), state (1, shape, dtype, is Fortran, bytes)
 *   _frombuffer(bytes, dtype, shape, "C" or "F"), of protocol 5
 *   scalar(dtype, bytes)
 *   dtype("u4", False, True), state (3, "<", None, None, None, -1, -1, 0)
 *
 * Only numbers: what numpy has in object arrays are Python's, which are others' to judge. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/plain/safe.h"

/* A call in one of the modules that numpy has had for it. */
static bool is_multiarray(const ckpt_object *node, const char *function) {
  return ckpt_foreign_is(node, "numpy._core.multiarray", function) ||
         ckpt_foreign_is(node, "numpy.core.multiarray", function);
}

static bool is_call(const ckpt_object *node, uint64_t n, uint32_t extras) {
  return node != NULL && node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_CALL && node->n == n &&
         node->extras == extras;
}

/* Whether a text is a number's code: "u4", "c16". */
static bool is_code(const ckpt_object *text) {
  static const char *const widths[] = {"1", "2", "4", "8", "16"};
  if (text->kind != CKPT_OBJECT_TEXT || text->n < 2 || text->n != strlen(text->text)) return false;
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    if (strchr("biufc", text->text[0]) != NULL && strcmp(text->text + 1, widths[i]) == 0) return true;
  return false;
}

/* Whether a tuple of n items holds nothing but None, numbers and text. */
static bool is_plain(const ckpt_object *tuple, uint64_t n) {
  bool plain = tuple != NULL && tuple->kind == CKPT_OBJECT_TUPLE && tuple->n == n && tuple->extras == 0;
  for (uint64_t i = 0; plain && i < n; i++) {
    const ckpt_object *item = tuple->items[i];
    plain = item->kind == CKPT_OBJECT_NONE || item->kind == CKPT_OBJECT_INT ||
            (item->kind == CKPT_OBJECT_TEXT && item->n <= 1);
  }
  return plain;
}

static bool is_int(const ckpt_object *node, int64_t value) {
  return node->kind == CKPT_OBJECT_INT && node->integer == value;
}

/* The code of a dtype of numbers; NULL for anything else, and where its state says what numbers have not. */
static const char *code_of(const ckpt_object *node) {
  enum { N_STATE = 8, SIZE = 5, ALIGNMENT, FLAGS };
  const bool is_dtype = is_call(node, 3, CKPT_EXTRA_STATE) && ckpt_foreign_is(node, "numpy", "dtype");
  if (!is_dtype || !is_code(node->items[0]) || node->items[1]->kind != CKPT_OBJECT_BOOL ||
      node->items[2]->kind != CKPT_OBJECT_BOOL || !is_plain(ckpt_object_extra_of(node, CKPT_EXTRA_STATE), N_STATE))
    return NULL;
  ckpt_object *const *state = ckpt_object_extra_of(node, CKPT_EXTRA_STATE)->items;
  if (!is_int(state[SIZE], -1) || !is_int(state[ALIGNMENT], -1) || !is_int(state[FLAGS], 0)) return NULL;
  return node->items[0]->text;
}

/* Whether n bytes are the values of a shape; of a scalar NULL. */
static bool are_values(const char *code, const ckpt_object *shape, uint64_t n) {
  uint64_t n_bytes = strtoull(code + 1, NULL, 10);
  for (uint64_t i = 0; shape != NULL && i < shape->n; i++)
    if (shape->items[i]->integer < 0 || !ckpt_mul_u64(n_bytes, (uint64_t)shape->items[i]->integer, &n_bytes))
      return false;
  return n_bytes == n;
}

static bool is_shape(const ckpt_object *node) {
  enum { MAX_AXES = 64 };
  bool is_one = node->kind == CKPT_OBJECT_TUPLE && node->n <= MAX_AXES && node->extras == 0;
  for (uint64_t i = 0; is_one && i < node->n; i++) is_one = node->items[i]->kind == CKPT_OBJECT_INT;
  return is_one;
}

/* The code of an array's dtype. */
static const char *code_of_array(const ckpt_object *node) {
  const ckpt_object *state = ckpt_object_extra_of(node, CKPT_EXTRA_STATE);
  if (!is_call(node, 3, CKPT_EXTRA_STATE) || !is_multiarray(node, "_reconstruct") ||
      !ckpt_foreign_is_name(node->items[0], "numpy", "ndarray") || !is_shape(node->items[1]) ||
      node->items[2]->kind != CKPT_OBJECT_BYTES || node->items[2]->n != 1)
    return NULL;
  if (state->kind != CKPT_OBJECT_TUPLE || state->n != 5 || state->extras != 0 ||
      state->items[0]->kind != CKPT_OBJECT_INT || !is_shape(state->items[1]) ||
      state->items[3]->kind != CKPT_OBJECT_BOOL || state->items[4]->kind != CKPT_OBJECT_BYTES)
    return NULL;
  const char *code = code_of(state->items[2]);
  return code != NULL && are_values(code, state->items[1], state->items[4]->n) ? code : NULL;
}

/* The same of an array as protocol 5 has it. */
static const char *code_of_buffer(const ckpt_object *node) {
  const bool is_one = is_call(node, 4, 0) && (ckpt_foreign_is(node, "numpy._core.numeric", "_frombuffer") ||
                                              ckpt_foreign_is(node, "numpy.core.numeric", "_frombuffer"));
  if (!is_one || node->items[0]->kind != CKPT_OBJECT_BYTES || !is_shape(node->items[2]) ||
      node->items[3]->kind != CKPT_OBJECT_TEXT || node->items[3]->n != 1 ||
      strchr("CF", node->items[3]->text[0]) == NULL)
    return NULL;
  const char *code = code_of(node->items[1]);
  return code != NULL && are_values(code, node->items[2], node->items[0]->n) ? code : NULL;
}

bool ckpt_torch_numpy_of(ckpt_torch_numpy *out, const ckpt_object *node) {
  *out = (ckpt_torch_numpy){.what = "numpy.dtype", .code = code_of(node)};
  if (out->code != NULL) return true;
  if (node->kind != CKPT_OBJECT_FOREIGN || node->form != CKPT_FORM_CALL) return false;
  *out = (ckpt_torch_numpy){.what = "numpy.ndarray", .function = node->name, .code = code_of_array(node)};
  if (out->code == NULL) out->code = code_of_buffer(node);
  if (out->code != NULL || !is_call(node, 2, 0) || !is_multiarray(node, "scalar")) return out->code != NULL;
  if (node->items[1]->kind != CKPT_OBJECT_BYTES) return false;
  *out = (ckpt_torch_numpy){.what = "numpy.generic", .function = node->name, .code = code_of(node->items[0])};
  return out->code != NULL && are_values(out->code, NULL, node->items[1]->n);
}
