/* value.c - see value.h. */
#include "libckpt/codec/gguf/value.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"

typedef enum form { UNSIGNED, SIGNED, REAL, TRUTH, OTHER } form;

static const struct {
  const char *name;
  uint32_t n_bytes;
  form form;
} types[CKPT_GGUF_N_TYPES] = {
    [CKPT_GGUF_U8] = {"u8", 1, UNSIGNED},      [CKPT_GGUF_I8] = {"i8", 1, SIGNED},
    [CKPT_GGUF_U16] = {"u16", 2, UNSIGNED},    [CKPT_GGUF_I16] = {"i16", 2, SIGNED},
    [CKPT_GGUF_U32] = {"u32", 4, UNSIGNED},    [CKPT_GGUF_I32] = {"i32", 4, SIGNED},
    [CKPT_GGUF_F32] = {"f32", 4, REAL},        [CKPT_GGUF_BOOL] = {"bool", 1, TRUTH},
    [CKPT_GGUF_STRING] = {"string", 0, OTHER}, [CKPT_GGUF_ARRAY] = {"array", 0, OTHER},
    [CKPT_GGUF_U64] = {"u64", 8, UNSIGNED},    [CKPT_GGUF_I64] = {"i64", 8, SIGNED},
    [CKPT_GGUF_F64] = {"f64", 8, REAL},
};

const char *ckpt_gguf_type_name(uint32_t type) { return type < CKPT_GGUF_N_TYPES ? types[type].name : NULL; }

uint32_t ckpt_gguf_type_bytes(uint32_t type) { return type < CKPT_GGUF_N_TYPES ? types[type].n_bytes : 0; }

bool ckpt_gguf_is_part_key(const char *key) {
  static const char *const keys[] = {CKPT_GGUF_SPLIT "no", CKPT_GGUF_SPLIT "count", CKPT_GGUF_SPLIT "tensors.count"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

/* ---- to text ----------------------------------------------------------------------------------------------------- */

static uint64_t load(const uint8_t *bytes, uint32_t n) {
  uint64_t value = 0;
  for (uint32_t i = n; i-- > 0;) value = value << 8 | bytes[i];
  return value;
}

/* Of n bytes, with the sign of the highest bit. */
static int64_t load_signed(const uint8_t *bytes, uint32_t n) {
  uint64_t value = load(bytes, n), sign = UINT64_C(1) << (8 * n - 1);
  return (int64_t)((value ^ sign) - sign);
}

static void print_real(const uint8_t *bytes, uint32_t n, char out[CKPT_GGUF_TEXT_BYTES]) {
  float single;
  double value;
  memcpy(&single, bytes, sizeof single);
  if (n == sizeof single)
    value = (double)single;
  else
    memcpy(&value, bytes, sizeof value);
  if (isnan(value) || isinf(value)) {
    snprintf(out, CKPT_GGUF_TEXT_BYTES, "%s", isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity");
    return;
  }
  int n_behind = 0; /* digits behind the first */
  for (; n_behind < 17; n_behind++) {
    ckpt_c_snprintf(out, CKPT_GGUF_TEXT_BYTES, "%.*e", n_behind, value);
    if (n == sizeof single ? ckpt_c_strtof(out, NULL) == single : ckpt_c_strtod(out, NULL) == value) break;
  }
  const int exponent = (int)strtol(strchr(out, 'e') + 1, NULL, 10);
  const int n_decimals = n_behind > exponent ? n_behind - exponent : 1;
  if (exponent >= -5 && exponent < 16) ckpt_c_snprintf(out, CKPT_GGUF_TEXT_BYTES, "%.*f", n_decimals, value);
}

void ckpt_gguf_scalar_text(uint32_t type, const uint8_t *bytes, char out[CKPT_GGUF_TEXT_BYTES]) {
  const uint32_t n = ckpt_gguf_type_bytes(type);
  switch (type < CKPT_GGUF_N_TYPES ? types[type].form : OTHER) {
    case UNSIGNED: snprintf(out, CKPT_GGUF_TEXT_BYTES, "%" PRIu64, load(bytes, n)); break;
    case SIGNED: snprintf(out, CKPT_GGUF_TEXT_BYTES, "%" PRId64, load_signed(bytes, n)); break;
    case REAL: print_real(bytes, n, out); break;
    case TRUTH: snprintf(out, CKPT_GGUF_TEXT_BYTES, "%s", bytes[0] != 0 ? "true" : "false"); break;
    case OTHER: out[0] = '\0'; break;
  }
}

bool ckpt_gguf_value_u32(const ckpt_typed_value *value, uint32_t *out) {
  const uint32_t n = ckpt_gguf_type_bytes(value->type);
  if (n == 0 || n > sizeof *out || value->bytes == NULL) return false;
  const form kind = types[value->type].form;
  if (kind != UNSIGNED && (kind != SIGNED || load_signed(value->bytes, n) < 0)) return false;
  *out = (uint32_t)load(value->bytes, n);
  return true;
}

bool ckpt_gguf_value_f32(const ckpt_typed_value *value, float *out) {
  if (value->type != CKPT_GGUF_F32 || value->bytes == NULL) return false;
  const uint32_t bits = (uint32_t)load(value->bytes, sizeof bits);
  memcpy(out, &bits, sizeof bits);
  return true;
}

ckpt_status ckpt_gguf_set_scalar(ckpt_index *index, const char *key, uint32_t type, uint32_t bits, ckpt_error *err) {
  uint8_t bytes[8];
  char text[CKPT_GGUF_TEXT_BYTES];
  const ckpt_typed_value *typed = NULL;
  ckpt_put_le64(bytes, bits);
  ckpt_gguf_scalar_text(type, bytes, text);
  CKPT_TRY(ckpt_gguf_value_new(&typed, &index->arena, type, bytes, ckpt_gguf_type_bytes(type), err));
  return ckpt_index_set_typed(index, key, text, typed, err);
}

ckpt_status ckpt_gguf_set_f32(ckpt_index *index, const char *key, double value, ckpt_error *err) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  return ckpt_gguf_set_scalar(index, key, CKPT_GGUF_F32, bits, err);
}

/* ---- from text --------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_gguf_array_count(uint64_t *out, const ckpt_index *index, const ckpt_typed_value *value,
                                  ckpt_error *err) {
  uint8_t head[12];
  *out = 0;
  if (value == NULL || value->type != CKPT_GGUF_ARRAY || value->n_bytes < sizeof head) return CKPT_OK;
  if (value->bytes != NULL)
    memcpy(head, value->bytes, sizeof head);
  else
    CKPT_TRY(ckpt_source_read(value->source != NULL ? value->source : index->source, value->file, value->offset, head,
                              sizeof head, err));
  *out = ckpt_le64(head + 4);
  return CKPT_OK;
}

ckpt_status ckpt_gguf_value_read(const ckpt_typed_value *value, uint64_t at, void *dst, size_t n, ckpt_error *err) {
  if (value->bytes == NULL) return ckpt_source_read(value->source, value->file, value->offset + at, dst, n, err);
  memcpy(dst, value->bytes + at, n);
  return CKPT_OK;
}

/* Whether the elements from byte HEAD on are all as the first of them, of n bytes. */
static bool is_uniform(const ckpt_typed_value *array, uint64_t head, uint32_t n, const uint8_t *first) {
  uint8_t window[4096];
  const size_t n_window = sizeof window / n * n;
  for (uint64_t at = head; at < array->n_bytes; at += n_window) {
    const size_t n_read = array->n_bytes - at < n_window ? (size_t)(array->n_bytes - at) : n_window;
    if (ckpt_gguf_value_read(array, at, window, n_read, NULL) != CKPT_OK) return false;
    for (size_t i = 0; i < n_read; i += n)
      if (memcmp(window + i, first, n) != 0) return false;
  }
  return true;
}

bool ckpt_gguf_array_u32(const ckpt_typed_value *value, uint32_t *out) {
  enum { HEAD_BYTES = 12, MAX_ARRAY = 1 << 16 };
  uint8_t head[HEAD_BYTES], first[8];
  if (value->type != CKPT_GGUF_ARRAY || (value->bytes == NULL && value->source == NULL)) return false;
  if (value->n_bytes <= HEAD_BYTES || value->n_bytes > MAX_ARRAY) return false;
  if (ckpt_gguf_value_read(value, 0, head, sizeof head, NULL) != CKPT_OK) return false;
  const ckpt_typed_value one = {.type = ckpt_le32(head), .bytes = first};
  const uint32_t n = ckpt_gguf_type_bytes(one.type);
  if (n == 0 || (value->n_bytes - HEAD_BYTES) % n != 0) return false;
  if (ckpt_gguf_value_read(value, HEAD_BYTES, first, n, NULL) != CKPT_OK) return false;
  return ckpt_gguf_value_u32(&one, out) && is_uniform(value, HEAD_BYTES, n, first);
}

ckpt_status ckpt_gguf_value_same(bool *out, const ckpt_typed_value *a, const ckpt_typed_value *b, ckpt_error *err) {
  uint8_t of_a[8192], of_b[sizeof of_a];
  *out = a->type == b->type && a->n_bytes == b->n_bytes;
  for (uint64_t at = 0; *out && at < a->n_bytes; at += sizeof of_a) {
    const size_t n = a->n_bytes - at < sizeof of_a ? (size_t)(a->n_bytes - at) : sizeof of_a;
    CKPT_TRY(ckpt_gguf_value_read(a, at, of_a, n, err));
    CKPT_TRY(ckpt_gguf_value_read(b, at, of_b, n, err));
    *out = memcmp(of_a, of_b, n) == 0;
  }
  return CKPT_OK;
}

ckpt_status ckpt_gguf_value_new(const ckpt_typed_value **out, ckpt_arena *arena, uint32_t type, const void *bytes,
                                uint64_t n_bytes, ckpt_error *err) {
  ckpt_typed_value *value = ckpt_arena_alloc(arena, sizeof *value);
  uint8_t *copy = ckpt_arena_array(arena, (size_t)n_bytes, 1);
  if (value == NULL || copy == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  memcpy(copy, bytes, (size_t)n_bytes);
  *value = (ckpt_typed_value){.type = type, .bytes = copy, .n_bytes = n_bytes};
  *out = value;
  return CKPT_OK;
}

ckpt_status ckpt_gguf_value_of(const ckpt_typed_value **out, ckpt_arena *arena, uint32_t type, uint64_t number,
                               ckpt_error *err) {
  uint8_t bytes[8];
  ckpt_put_le64(bytes, number);
  return ckpt_gguf_value_new(out, arena, type, bytes, types[type].n_bytes, err);
}

/* Whether text is a whole number that n bytes hold, signed or not; its little-endian bytes. */
static bool parse_integer(const char *text, uint32_t n, bool is_signed, uint8_t out[8]) {
  const char *digits = text + (is_signed && text[0] == '-');
  char *end;
  if (digits[0] < '0' || digits[0] > '9') return false;
  errno = 0;
  uint64_t value = strtoull(digits, &end, 10);
  if (errno != 0 || *end != '\0') return false;
  const uint64_t most = UINT64_MAX >> (64 - 8 * n);
  if (value > (is_signed ? most / 2 + (digits != text) : most)) return false;
  ckpt_put_le64(out, digits != text ? -value : value);
  return true;
}

/* Whether text is a finite number; its little-endian bytes as f32 or f64. */
static bool parse_real(const char *text, uint32_t n, uint8_t out[8]) {
  char *end;
  if (text[0] == '\0' || strspn(text, "+-.0123456789eE") != strlen(text)) return false;
  double value = n == 4 ? (double)ckpt_c_strtof(text, &end) : ckpt_c_strtod(text, &end);
  if (*end != '\0' || !isfinite(value)) return false;
  float single = (float)value;
  if (n == 4)
    memcpy(out, &single, sizeof single);
  else
    memcpy(out, &value, sizeof value);
  return true;
}

static bool parse_as(uint32_t type, const char *text, uint8_t out[8]) {
  const uint32_t n = types[type].n_bytes;
  switch (types[type].form) {
    case UNSIGNED: return parse_integer(text, n, false, out);
    case SIGNED: return parse_integer(text, n, true, out);
    case REAL: return parse_real(text, n, out);
    case TRUTH: out[0] = strcmp(text, "true") == 0; return out[0] || strcmp(text, "false") == 0;
    case OTHER: break;
  }
  return false;
}

/* The text without the double quotes around it. */
static ckpt_status take_text(const char *given, ckpt_arena *arena, const char **text, ckpt_error *err) {
  size_t n = strlen(given);
  bool is_quoted = n >= 2 && given[0] == '"' && given[n - 1] == '"';
  *text = is_quoted ? ckpt_arena_text(arena, given + 1, n - 2) : given;
  CKPT_TRY_ALLOC(*text, err);
  return CKPT_OK;
}

ckpt_status ckpt_gguf_value_parse(const ckpt_meta *now, const char *given, ckpt_arena *arena,
                                  const ckpt_typed_value **typed, const char **text, ckpt_error *err) {
  static const uint32_t tried[] = {CKPT_GGUF_BOOL, CKPT_GGUF_U32, CKPT_GGUF_I32,
                                   CKPT_GGUF_U64,  CKPT_GGUF_I64, CKPT_GGUF_F32};
  uint8_t bytes[8];
  *typed = NULL;
  if (now != NULL && (now->typed == NULL || now->typed->type == CKPT_GGUF_STRING))
    return take_text(given, arena, text, err);
  *text = given;
  if (now == NULL) {
    for (size_t i = 0; i < sizeof tried / sizeof *tried; i++)
      if (parse_as(tried[i], given, bytes))
        return ckpt_gguf_value_new(typed, arena, tried[i], bytes, types[tried[i]].n_bytes, err);
    return take_text(given, arena, text, err);
  }
  const uint32_t type = now->typed->type;
  if (type == CKPT_GGUF_ARRAY)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%.100s is an array, and one value cannot take its place", now->key);
  if (!parse_as(type, given, bytes))
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "%.100s is of type %s, which '%.100s' is not", now->key,
                     types[type].name, given);
  return ckpt_gguf_value_new(typed, arena, type, bytes, types[type].n_bytes, err);
}
