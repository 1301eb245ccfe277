/* tensor.c - one TensorProto: what type and shape, and where its elements stand.
 *
 *   1 dims, 2 type, 8 name, 13 external_data, 14 data_location       small fields, unpacked by protobuf-c
 *   9 raw_data                                                       little-endian elements: a range of the file
 *   4 f32, 5 and 7 and 11 integers, 10 f64                           typed fields: ranges behind a decoder
 *   6 texts                                                          not read
 *
 * Data are never copied. External ones lie in a file below the model's folder, at an offset. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"

typedef unsigned long long ull;

enum {
  FLOAT_DATA = 4,
  INT32_DATA = 5,
  STRING_DATA = 6,
  INT64_DATA = 7,
  RAW_DATA = 9,
  DOUBLE_DATA = 10,
  UINT64_DATA = 11
};
enum { SEGMENT = 3, NAME = 8, N_TYPES = 27 };

/* ---- types ------------------------------------------------------------------------------------------------------- */

static const ckpt_onnx_type_row types[N_TYPES] = {
    [1] = {"float", CKPT_F32, 0, FLOAT_DATA, 4},
    [2] = {"uint8", CKPT_U8, 0, INT32_DATA, 4},
    [3] = {"int8", CKPT_I8, 0, INT32_DATA, 4},
    [4] = {"uint16", CKPT_U16, 0, INT32_DATA, 4},
    [5] = {"int16", CKPT_I16, 0, INT32_DATA, 4},
    [6] = {"int32", CKPT_I32, 0, INT32_DATA, 4},
    [7] = {"int64", CKPT_I64, 0, INT64_DATA, 4},
    [8] = {"string", CKPT_DTYPE_NONE, 0, STRING_DATA, 4},
    [9] = {"bool", CKPT_BOOL, 0, INT32_DATA, 4},
    [10] = {"float16", CKPT_F16, 0, INT32_DATA, 4},
    [11] = {"double", CKPT_F64, 0, DOUBLE_DATA, 4},
    [12] = {"uint32", CKPT_U32, 0, UINT64_DATA, 4},
    [13] = {"uint64", CKPT_U64, 0, UINT64_DATA, 4},
    [14] = {"complex64", CKPT_C64, 0, FLOAT_DATA, 4},
    [15] = {"complex128", CKPT_C128, 0, DOUBLE_DATA, 4},
    [16] = {"bfloat16", CKPT_BF16, 0, INT32_DATA, 4},
    [17] = {"float8e4m3fn", CKPT_F8_E4M3, 0, INT32_DATA, 9},
    [18] = {"float8e4m3fnuz", CKPT_F8_E4M3FNUZ, 0, INT32_DATA, 9},
    [19] = {"float8e5m2", CKPT_F8_E5M2, 0, INT32_DATA, 9},
    [20] = {"float8e5m2fnuz", CKPT_F8_E5M2FNUZ, 0, INT32_DATA, 9},
    [21] = {"uint4", CKPT_U8, 2, INT32_DATA, 10},
    [22] = {"int4", CKPT_U8, 2, INT32_DATA, 10},
    [23] = {"float4e2m1", CKPT_F4_E2M1, 0, INT32_DATA, 11},
    [24] = {"float8e8m0", CKPT_F8_E8M0, 0, INT32_DATA, 12},
    [25] = {"uint2", CKPT_U8, 4, INT32_DATA, 13},
    [26] = {"int2", CKPT_U8, 4, INT32_DATA, 13},
};

const ckpt_onnx_type_row *ckpt_onnx_type_get(int64_t type) { return type > 0 && type < N_TYPES ? &types[type] : NULL; }

int32_t ckpt_onnx_type_of(ckpt_dtype dtype) {
  for (int32_t type = 1; type < N_TYPES; type++)
    if (types[type].dtype == dtype && types[type].n_packed == 0) return type;
  return 0;
}

/* ---- the walk over its fields ------------------------------------------------------------------------------------ */

/* What was met of the data. */
typedef struct data {
  uint32_t field; /* of all that was met; 0: none */
  uint64_t at, n; /* RAW_DATA */
} data;

static ckpt_status add_run(ckpt_onnx_reader *r, const ckpt_wire_field *field, uint64_t count, ckpt_error *err) {
  if (field->n == 0) return CKPT_OK;
  if (r->n_runs == CKPT_ONNX_MAX_RUNS)
    return ckpt_fail(err, CKPT_ELIMIT, r->wire.path, r->name,
                     "its values stand in more than %d pieces (load and save it with onnx)", CKPT_ONNX_MAX_RUNS);
  CKPT_TRY(ckpt_grow(&r->runs, r->n_runs, &r->run_capacity, sizeof *r->runs, err));
  r->runs[r->n_runs++] =
      (ckpt_extent){.offset = field->at, .n_stored = field->n, .file = r->wire.file, .start = 0, .count = count};
  return CKPT_OK;
}

/* Values of a typed field, packed or one alone. */
static ckpt_status take_values(ckpt_onnx_reader *r, const ckpt_wire_field *field, ckpt_error *err) {
  const bool is_fixed = field->number == FLOAT_DATA || field->number == DOUBLE_DATA;
  const ckpt_wire_type one = field->number == FLOAT_DATA ? CKPT_WIRE_FIXED32
                             : is_fixed                  ? CKPT_WIRE_FIXED64
                                                         : CKPT_WIRE_VARINT;
  uint64_t count = 1;
  if (field->type != one) CKPT_TRY(ckpt_wire_expect(&r->wire, field, CKPT_WIRE_BYTES, "a tensor", err));
  if (field->type != one && !is_fixed) CKPT_TRY(ckpt_wire_count(&r->wire, field->at, field->n, &count, err));
  return add_run(r, field, count, err);
}

static ckpt_status take_data(ckpt_onnx_reader *r, data *met, const ckpt_wire_field *field, ckpt_error *err) {
  if (met->field == RAW_DATA || (met->field != 0 && met->field != field->number))
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its values stand in it twice (fields %u and %u)",
                     met->field, field->number);
  met->field = field->number;
  if (field->number == STRING_DATA) return CKPT_OK;
  if (field->number != RAW_DATA) return take_values(r, field, err);
  CKPT_TRY(ckpt_wire_expect(&r->wire, field, CKPT_WIRE_BYTES, "a tensor", err));
  met->at = field->at;
  met->n = field->n;
  return CKPT_OK;
}

static ckpt_status walk(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, data *met, ckpt_error *err) {
  uint32_t n_names = 0;
  r->wire.at = frame->at;
  r->wire.end = frame->end;
  r->n_runs = 0;
  r->tensor.n = 0;
  r->tensor.n_fields = 0;
  while (r->wire.at < frame->end) {
    ckpt_wire_field field;
    CKPT_TRY(ckpt_wire_next(&r->wire, &field, err));
    switch (field.number) {
      case FLOAT_DATA:
      case INT32_DATA:
      case STRING_DATA:
      case INT64_DATA:
      case RAW_DATA:
      case DOUBLE_DATA:
      case UINT64_DATA: CKPT_TRY(take_data(r, met, &field, err)); break;
      case SEGMENT:
        return ckpt_fail(err, CKPT_EUNSUPPORTED, r->wire.path, r->name,
                         "is stored in segments, which no known program writes");
      default:
        n_names += field.number == NAME;
        CKPT_TRY(ckpt_onnx_outline_add(&r->tensor, &r->wire, &onnx__tensor_proto__descriptor, &field, err));
    }
  }
  if (n_names <= 1) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "has %u names", n_names);
}

/* ---- data outside ------------------------------------------------------------------------------------------------ */

/* What external_data says. */
typedef struct outside {
  char location[PATH_MAX];
  uint64_t offset, length;
  bool has_length;
  ProtobufCBinaryData checksum; /* borrowed; len 0: none */
} outside;

static ckpt_status take_number(const ckpt_onnx_reader *r, const char *key, ProtobufCBinaryData value, uint64_t *out,
                               ckpt_error *err) {
  bool is_number = value.len != 0;
  *out = 0;
  for (size_t i = 0; i < value.len && is_number; i++)
    is_number = value.data[i] >= '0' && value.data[i] <= '9' && ckpt_mul_u64(*out, 10, out) &&
                ckpt_add_u64(*out, (uint64_t)(value.data[i] - '0'), out);
  if (is_number && *out <= INT64_MAX) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "%s of its external data is '%.*s', no number of bytes",
                   key, (int)(value.len < 40 ? value.len : 40), (const char *)value.data);
}

static bool is_key(ProtobufCBinaryData key, const char *name) {
  return key.len == strlen(name) && memcmp(key.data, name, key.len) == 0;
}

/* Leaves out the components that lead nowhere, which both onnx and ONNX Runtime pass over. What is absolute stays so.
 */
static void simplify(char *name) {
  char *to = name;
  for (const char *part = name; *name != '/' && *part != '\0';) {
    const size_t n = strcspn(part, "/"), n_step = n + (part[n] == '/');
    if (n_step == n || (n != 0 && !(n == 1 && *part == '.'))) {
      memmove(to, part, n_step);
      to += n_step;
    }
    part += n_step;
  }
  if (*name != '/') *to = '\0';
}

static ckpt_status take_location(const ckpt_onnx_reader *r, ProtobufCBinaryData value, outside *out, ckpt_error *err) {
  if (value.len == 0 || value.len >= sizeof out->location || memchr(value.data, '\0', value.len) != NULL ||
      ckpt_utf8_length(value.data, value.len) != value.len)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name,
                     "the location of its external data is no file name (%zu byte%s)", value.len,
                     ckpt_plural(value.len));
  memcpy(out->location, value.data, value.len);
  out->location[value.len] = '\0';
  simplify(out->location);
  return CKPT_OK;
}

static ckpt_status take_outside(const ckpt_onnx_reader *r, const Onnx__TensorProto *message, outside *out,
                                ckpt_error *err) {
  static const char *const keys[] = {"location", "offset", "length", "checksum"};
  enum { N_KEYS = sizeof keys / sizeof *keys };
  unsigned met = 0;
  *out = (outside){.offset = 0};
  for (size_t i = 0; i < message->n_external_data; i++) {
    const Onnx__StringStringEntryProto *entry = message->external_data[i];
    unsigned k = 0;
    while (k < N_KEYS && !is_key(entry->key, keys[k])) k++;
    if (k == N_KEYS)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name,
                       "its external data has a key '%.*s' (location, offset, length and checksum are known)",
                       (int)(entry->key.len < 40 ? entry->key.len : 40), (const char *)entry->key.data);
    if ((met >> k & 1) != 0)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its external data has two keys '%s'", keys[k]);
    met |= 1U << k;
    if (k == 0) CKPT_TRY(take_location(r, entry->value, out, err));
    if (k == 1) CKPT_TRY(take_number(r, keys[k], entry->value, &out->offset, err));
    if (k == 2) CKPT_TRY(take_number(r, keys[k], entry->value, &out->length, err));
    if (k == 3) out->checksum = entry->value;
  }
  out->has_length = out->length != 0; /* 0: all the file from there on, as none is stated */
  if ((met & 1) != 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its external data has no location");
}

/* `verify` compares it. Tensors that follow each other mostly have the same. */
static ckpt_status keep_checksum(const ckpt_onnx_reader *r, ProtobufCBinaryData value, ckpt_onnx_slot *slot,
                                 ckpt_error *err) {
  enum { MAX_SHOWN = 100 };
  const struct ckpt_graph *graph = r->graph;
  const char *last = graph->n_slots == 0 ? NULL : graph->slots[graph->n_slots - 1].checksum;
  const size_t n = ckpt_utf8_length(value.data, value.len < MAX_SHOWN ? value.len : MAX_SHOWN);
  if (memchr(value.data, '\0', value.len) != NULL || ckpt_utf8_length(value.data, value.len) != value.len)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "the checksum of its external data is no text");
  slot->checksum = last != NULL && strlen(last) == n && memcmp(last, value.data, n) == 0
                       ? last
                       : ckpt_arena_text(&r->index->arena, (const char *)value.data, n);
  CKPT_TRY_ALLOC(slot->checksum, err);
  return CKPT_OK;
}

/* The one extent of data that lie outside: the file is opened below the model's folder, and is a file of its own. */
static ckpt_status find_outside(ckpt_onnx_reader *r, const Onnx__TensorProto *message, uint64_t n_bytes,
                                ckpt_extent *extent, ckpt_onnx_slot *slot, ckpt_error *err) {
  outside out;
  uint64_t size;
  ckpt_source *source = r->index->source;
  CKPT_TRY(take_outside(r, message, &out, err));
  if (out.has_length && out.length != n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name,
                     "its external data has %llu byte%s, its shape and type take %llu", (ull)out.length,
                     ckpt_plural(out.length), (ull)n_bytes);
  if (ckpt_source_root(source)[0] == '\0')
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->wire.path, r->name,
                     "its data lies in the file '%.100s', and memory has no files beside it", out.location);
  ckpt_status status = ckpt_source_add(source, out.location, &extent->file, &size, err);
  CKPT_TRY(ckpt_fail_at(status, err, r->wire.path, r->name));
  if (ckpt_source_links(source, extent->file) > 1)
    return ckpt_fail(
        err, CKPT_EFORMAT, r->wire.path, r->name,
        "its external data '%.100s' is a hard link, which can be any file's (copy it; onnx refuses it too)",
        out.location);
  if (!ckpt_range_within(out.offset, n_bytes, size))
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name,
                     "truncated or lies: %llu byte%s at byte %llu of '%.100s', which has %llu (download it again)",
                     (ull)n_bytes, ckpt_plural(n_bytes), (ull)out.offset, out.location, (ull)size);
  extent->offset = out.offset;
  extent->n_stored = n_bytes;
  slot->is_external = true;
  if (out.checksum.len != 0) CKPT_TRY(keep_checksum(r, out.checksum, slot, err));
  return CKPT_OK;
}

/* ---- type, shape and extents ------------------------------------------------------------------------------------- */

/* What a tensor is in the index. */
typedef struct described {
  const ckpt_onnx_type_row *type;
  ckpt_dtype dtype;
  uint32_t rank;
  uint64_t shape[CKPT_MAX_RANK];
  uint64_t n_units, n_bytes;
} described;

/* Elements of less than a byte: the bytes that they are packed in, by rows where these are whole bytes. */
static void pack_shape(described *d, uint64_t n_elements, uint32_t n_packed) {
  d->dtype = CKPT_U8;
  if (d->rank != 0 && d->shape[d->rank - 1] % n_packed == 0) {
    d->shape[d->rank - 1] /= n_packed;
    return;
  }
  d->rank = 1;
  d->shape[0] = n_elements / n_packed + (n_elements % n_packed != 0);
}

/* Type and shape. rank is left beyond CKPT_MAX_RANK where there are more axes. */
static ckpt_status describe(ckpt_onnx_reader *r, const Onnx__TensorProto *message, described *d, ckpt_error *err) {
  uint64_t n_elements = 1;
  d->type = message->has_data_type ? ckpt_onnx_type_get(message->data_type) : NULL;
  if (d->type == NULL)
    return ckpt_fail(err, message->has_data_type && message->data_type >= N_TYPES ? CKPT_EUNSUPPORTED : CKPT_EFORMAT,
                     r->wire.path, r->name, "type %d is none that is known",
                     message->has_data_type ? message->data_type : 0);
  d->dtype = d->type->dtype;
  for (size_t i = 0; i < message->n_dims; i++) {
    if (message->dims[i] < 0)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "axis %zu has %lld elements", i,
                       (long long)message->dims[i]);
    if (!ckpt_mul_u64(n_elements, (uint64_t)message->dims[i], &n_elements) || n_elements > INT64_MAX)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its axes have more than 2^63 elements together");
    if (i < CKPT_MAX_RANK) d->shape[i] = (uint64_t)message->dims[i];
  }
  d->rank = message->n_dims <= CKPT_MAX_RANK ? (uint32_t)message->n_dims : CKPT_MAX_RANK + 1;
  if (d->dtype == CKPT_DTYPE_NONE || d->rank > CKPT_MAX_RANK) return CKPT_OK;
  const uint32_t block = ckpt_dtype_get(d->dtype)->block_elements;
  if (d->type->n_packed != 0)
    pack_shape(d, n_elements, d->type->n_packed);
  else if (n_elements % block != 0)
    pack_shape(d, n_elements, block);
  if (!ckpt_product_u64(d->shape, d->rank, &n_elements) || !ckpt_dtype_bytes(d->dtype, n_elements, &d->n_bytes) ||
      d->n_bytes > INT64_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "%llu elements of %s are more than 2^63 bytes",
                     (ull)n_elements, d->type->name);
  d->n_units = d->n_bytes / ckpt_dtype_get(d->dtype)->block_bytes;
  return CKPT_OK;
}

/* Extents of a typed field's runs: f32 and f64 stand as they are, integers as varints. */
static ckpt_status place_runs(ckpt_onnx_reader *r, const described *d, const data *met, ckpt_error *err) {
  const uint32_t n_unit = ckpt_dtype_get(d->dtype)->block_bytes;
  const bool is_fixed = met->field == FLOAT_DATA || met->field == DOUBLE_DATA;
  const bool is_complex = d->dtype == CKPT_C64 || d->dtype == CKPT_C128;
  uint64_t n_units = 0;
  if (met->field != d->type->typed_field)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its values of %s stand in field %u, not %u",
                     d->type->name, met->field, d->type->typed_field);
  for (uint32_t i = 0; i < r->n_runs; i++) {
    ckpt_extent *run = &r->runs[i];
    if (is_complex && is_fixed && run->n_stored % n_unit != 0 && r->n_runs > 1)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, r->wire.path, r->name,
                       "real and imaginary parts of its %s stand in fields of their own, as no known program writes "
                       "them (load and save it with onnx)",
                       d->type->name);
    if (is_fixed && run->n_stored % n_unit != 0)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "%llu byte%s no whole number of %s",
                       (ull)run->n_stored, run->n_stored == 1 ? " is" : "s are", d->type->name);
    if (is_fixed) run->count = run->n_stored / n_unit;
    run->chain[0] = is_fixed ? CKPT_DECODE_RAW : CKPT_DECODE_VARINT;
    run->start = n_units;
    n_units += run->count; /* of a file's bytes */
  }
  if (n_units == d->n_units) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "has %llu value%s, its shape and type take %llu",
                   (ull)n_units, ckpt_plural(n_units), (ull)d->n_units);
}

/* Makes r->runs the tensor's extents, and says in the slot where they are. */
static ckpt_status place(ckpt_onnx_reader *r, const Onnx__TensorProto *message, const described *d, const data *met,
                         ckpt_onnx_slot *slot, ckpt_error *err) {
  const bool is_outside = message->has_data_location && message->data_location == 1;
  if (message->has_data_location && (message->data_location < 0 || message->data_location > 1))
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "data_location is %d, not 0 or 1",
                     message->data_location);
  if (is_outside && met->field != 0 && !(met->field == RAW_DATA && met->n == 0))
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name, "its values stand both in the model and outside");
  if (met->field != 0 && met->field != RAW_DATA) {
    CKPT_TRY(place_runs(r, d, met, err));
    slot->is_inline = r->n_runs == 1 && r->runs[0].chain[0] == CKPT_DECODE_RAW;
    if (slot->is_inline) slot->data_at = r->runs[0].offset;
    return CKPT_OK;
  }
  ckpt_extent extent = {.file = r->wire.file, .offset = met->at, .n_stored = met->n, .count = d->n_units};
  if (is_outside) CKPT_TRY(find_outside(r, message, d->n_bytes, &extent, slot, err));
  if (!is_outside && met->n != d->n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, r->name,
                     "has %llu byte%s of values, its shape and type take %llu", (ull)met->n, ckpt_plural(met->n),
                     (ull)d->n_bytes);
  slot->is_inline = met->field == RAW_DATA && !is_outside; /* without values there is nothing to keep in its place */
  slot->data_at = met->at;
  CKPT_TRY(ckpt_grow(&r->runs, 0, &r->run_capacity, sizeof *r->runs, err));
  r->runs[0] = extent;
  r->n_runs = 1;
  return CKPT_OK;
}

/* What is not read stays where it is, which data outside do not. */
static ckpt_status leave(ckpt_onnx_reader *r, const Onnx__TensorProto *message, const described *d, ckpt_error *err) {
  if (message->has_data_location && message->data_location == 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->wire.path, r->name, "%s of %zu ax%s with external data are not read",
                     d->type->name, message->n_dims, message->n_dims == 1 ? "is" : "es");
  r->n_unread++;
  return ckpt_index_add_unread(r->index, r->name, CKPT_ROLE_OTHER, d->type->name, err);
}

static ckpt_status add_tensor(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, const Onnx__TensorProto *message,
                              const data *met, bool is_initializer, bool *is_read, ckpt_error *err) {
  described d = {.rank = 0};
  ckpt_onnx_slot slot = {
      .field = frame->field, .is_initializer = is_initializer, .at = frame->at, .n = frame->end - frame->at};
  CKPT_TRY(describe(r, message, &d, err));
  *is_read = d.dtype != CKPT_DTYPE_NONE && d.rank <= CKPT_MAX_RANK;
  if (!*is_read) return leave(r, message, &d, err);
  CKPT_TRY(place(r, message, &d, met, &slot, err));
  r->n_packed += d.type->n_packed != 0;
  uint8_t *outline = ckpt_arena_alloc(&r->index->arena, r->tensor.n + 1);
  CKPT_TRY_ALLOC(outline, err);
  if (r->tensor.n != 0) memcpy(outline, r->tensor.bytes, r->tensor.n);
  slot.outline = outline;
  slot.n_outline = r->tensor.n;
  struct ckpt_graph *graph = r->graph;
  CKPT_TRY(ckpt_grow(&graph->slots, graph->n_slots, &graph->slot_capacity, sizeof *graph->slots, err));
  graph->slots[graph->n_slots++] = slot;
  return ckpt_index_add(r->index, r->name, strlen(r->name), d.dtype, d.rank, d.shape, ckpt_role_of_name(r->name),
                        r->runs, r->n_runs, NULL, err);
}

ckpt_status ckpt_onnx_read_tensor(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, bool is_initializer, bool *is_read,
                                  ckpt_error *err) {
  data met = {.field = 0};
  Onnx__TensorProto *message;
  CKPT_TRY(walk(r, frame, &met, err));
  CKPT_TRY(ckpt_onnx_unpack_tensor(&message, r->tensor.bytes, r->tensor.n, r->wire.path, err));
  ckpt_status status = add_tensor(r, frame, message, &met, is_initializer, is_read, err);
  onnx__tensor_proto__free_unpacked(message, NULL);
  return status;
}
