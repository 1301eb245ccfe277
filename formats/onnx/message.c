/* message.c - what protobuf-c takes apart and builds: the small fields of tensors and models.
 *
 * protobuf-c bounds nothing, and takes some 100 bytes for each field, so it never sees a file: only outlines, which
 * were walked as it walks them (codec/protobuf.h), so that bytes and fields are counted. What it does not know it
 * keeps. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

typedef unsigned long long ull;

enum { NAME = 8, RAW_DATA = 9, EXTERNAL_DATA = 13, DATA_LOCATION = 14, FIRST_ROOM = 256, OUTSIDE = 1 };

/* ---- outlines ---------------------------------------------------------------------------------------------------- */

/* Adds what protobuf-c makes of a field of a message to *count: itself, the fields of the message in it, the numbers
 * that are packed in it. Leaves off past CKPT_ONNX_MAX_FIELDS. */
static ckpt_status count_field(ckpt_wire *wire, const ProtobufCMessageDescriptor *of, const ckpt_wire_field *field,
                               uint64_t *count, ckpt_error *err) {
  const ProtobufCFieldDescriptor *known = protobuf_c_message_descriptor_get_field(of, field->number);
  const uint64_t at = wire->at, end = wire->end;
  ++*count;
  if (known == NULL || known->label != PROTOBUF_C_LABEL_REPEATED || field->type != CKPT_WIRE_BYTES) return CKPT_OK;
  if (known->type != PROTOBUF_C_TYPE_MESSAGE) {
    uint64_t n_numbers;
    CKPT_TRY(ckpt_wire_count(wire, field->at, field->n, &n_numbers, err));
    *count += n_numbers;
    return CKPT_OK;
  }
  wire->at = field->at;
  wire->end = field->at + field->n;
  while (wire->at < wire->end && *count <= CKPT_ONNX_MAX_FIELDS) {
    ckpt_wire_field inner;
    CKPT_TRY(ckpt_wire_next(wire, &inner, err));
    ++*count; /* no message of ours has one that is deeper */
  }
  wire->at = at;
  wire->end = end;
  return CKPT_OK;
}

ckpt_status ckpt_onnx_outline_add(ckpt_onnx_outline *outline, ckpt_wire *wire, const ProtobufCMessageDescriptor *of,
                                  const ckpt_wire_field *field, ckpt_error *err) {
  const uint64_t n = field->at + field->n - field->begin;
  if (n > CKPT_ONNX_MAX_OUTLINE - outline->n)
    return ckpt_fail(err, CKPT_ELIMIT, wire->path, NULL,
                     "the small fields of the message with byte %llu take more than %d bytes", (ull)field->begin,
                     CKPT_ONNX_MAX_OUTLINE);
  CKPT_TRY(count_field(wire, of, field, &outline->n_fields, err));
  if (outline->n_fields > CKPT_ONNX_MAX_FIELDS)
    return ckpt_fail(err, CKPT_ELIMIT, wire->path, NULL, "the message with byte %llu has more than %d small fields",
                     (ull)field->begin, CKPT_ONNX_MAX_FIELDS);
  if (n > outline->room - outline->n) {
    uint32_t room = outline->room == 0 ? FIRST_ROOM : outline->room;
    while (room < outline->n + n) room *= 2;
    uint8_t *grown = realloc(outline->bytes, room);
    CKPT_TRY_ALLOC(grown, err);
    outline->bytes = grown;
    outline->room = room;
  }
  CKPT_TRY(ckpt_wire_bytes(wire, field->begin, outline->bytes + outline->n, n, err));
  outline->n += (uint32_t)n;
  return CKPT_OK;
}

/* An allocator of protobuf-c's that remembers that memory was out. */
static void *take_memory(void *is_out, size_t n) {
  void *memory = malloc(n);
  *(bool *)is_out |= memory == NULL;
  return memory;
}

static void give_memory(void *is_out, void *memory) {
  (void)is_out;
  free(memory);
}

/* An outline taken apart: what protobuf-c's own allocator frees. what: it is. */
static ckpt_status unpack(void *out, const ProtobufCMessageDescriptor *of, const uint8_t *outline, uint32_t n,
                          const char *what, const char *path, ckpt_error *err) {
  bool is_out = false;
  ProtobufCAllocator allocator = {.alloc = take_memory, .free = give_memory, .allocator_data = &is_out};
  ProtobufCMessage *message = protobuf_c_message_unpack(of, &allocator, n, outline);
  memcpy(out, &message, sizeof message);
  if (message != NULL) return CKPT_OK;
  if (is_out) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "%s fields are none of ONNX", what);
}

ckpt_status ckpt_onnx_unpack_tensor(Onnx__TensorProto **out, const uint8_t *outline, uint32_t n, const char *path,
                                    ckpt_error *err) {
  return unpack(out, &onnx__tensor_proto__descriptor, outline, n, "a tensor's", path, err);
}

/* ---- what a model says of itself --------------------------------------------------------------------------------- */

/* A terminated copy, or NULL for what is no text. */
static const char *text_of(ckpt_arena *arena, ProtobufCBinaryData bytes) {
  if (bytes.len == 0) return "";
  if (memchr(bytes.data, '\0', bytes.len) != NULL || ckpt_utf8_length(bytes.data, bytes.len) != bytes.len) return NULL;
  return ckpt_arena_text(arena, (const char *)bytes.data, bytes.len);
}

static ckpt_status set_number(ckpt_index *index, const char *key, int64_t value, ckpt_error *err) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)value);
  return ckpt_index_set_metadata(index, key, text, err);
}

static ckpt_status add_opset(ckpt_index *index, const Onnx__OperatorSetIdProto *opset, ckpt_error *err) {
  enum { MAX_SHOWN = 100 };
  const char *domain = text_of(&index->arena, opset->domain);
  if (domain == NULL || domain[0] == '\0') domain = "ai.onnx";
  const size_t n = strlen(domain), n_shown = ckpt_utf8_length(domain, n < MAX_SHOWN ? n : MAX_SHOWN);
  char *key = ckpt_arena_printf(&index->arena, CKPT_ONNX_KEY "opset.%.*s", (int)n_shown, domain);
  CKPT_TRY_ALLOC(key, err);
  return ckpt_index_metadata(index, key) != NULL ? CKPT_OK : set_number(index, key, opset->version, err);
}

bool ckpt_onnx_is_own_key(const char *key) {
  return strcmp(key, CKPT_ONNX_KEY "ir_version") == 0 ||
         strncmp(key, CKPT_ONNX_KEY "opset.", sizeof CKPT_ONNX_KEY "opset." - 1) == 0;
}

/* Under a key stands one value: the first, and what the model is under its own keys. */
static ckpt_status add_metadata(ckpt_index *index, const Onnx__ModelProto *model, ckpt_error *err) {
  uint32_t n_taken = 0;
  for (size_t i = 0; i < model->n_metadata_props; i++) {
    const char *key = text_of(&index->arena, model->metadata_props[i]->key);
    const char *value = text_of(&index->arena, model->metadata_props[i]->value);
    if (key == NULL || value == NULL) continue;
    if (ckpt_onnx_is_own_key(key) || ckpt_index_metadata(index, key) != NULL) /* of a number that is bounded */
      n_taken++;
    else
      CKPT_TRY(ckpt_index_set_metadata(index, key, value, err));
  }
  if (n_taken == 0) return CKPT_OK;
  return ckpt_index_note(index, false, err, "%u of its metadata %s not read: the key has another value already",
                         n_taken, n_taken == 1 ? "is" : "are");
}

static ckpt_status add_model(ckpt_index *index, const Onnx__ModelProto *model, const char *path, ckpt_error *err) {
  ckpt_arena *arena = &index->arena;
  const char *producer = text_of(arena, model->producer_name), *version = text_of(arena, model->producer_version);
  if (producer != NULL && producer[0] != '\0') {
    index->writer = ckpt_arena_printf(arena, "%s %s", producer, version == NULL ? "" : version);
    CKPT_TRY_ALLOC(index->writer, err);
  }
  if (!model->has_ir_version || model->ir_version <= 0 || model->n_opset_import == 0)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                     "truncated or no model: it states no IR version, or no operators (download it again)");
  CKPT_TRY(set_number(index, CKPT_ONNX_KEY "ir_version", model->ir_version, err));
  index->version = ckpt_arena_printf(arena, "IR %lld, operators %lld", (long long)model->ir_version,
                                     (long long)model->opset_import[0]->version);
  CKPT_TRY_ALLOC(index->version, err);
  for (size_t i = 0; i < model->n_opset_import; i++) CKPT_TRY(add_opset(index, model->opset_import[i], err));
  return add_metadata(index, model, err);
}

ckpt_status ckpt_onnx_read_model(ckpt_index *index, const ckpt_onnx_outline *outline, const char *path,
                                 ckpt_error *err) {
  Onnx__ModelProto *model;
  CKPT_TRY(unpack(&model, &onnx__model_proto__descriptor, outline->bytes, outline->n, "the model's", path, err));
  ckpt_status status = add_model(index, model, path, err);
  onnx__model_proto__free_unpacked(model, NULL);
  return status;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

void ckpt_onnx_put_varint(ckpt_stream *out, uint64_t value) {
  uint8_t bytes[CKPT_WIRE_VARINT_BYTES];
  ckpt_stream_bytes(out, bytes, ckpt_wire_put(bytes, value));
}

void ckpt_onnx_put_tag(ckpt_stream *out, uint32_t number, ckpt_wire_type type) {
  ckpt_onnx_put_varint(out, ckpt_wire_tag(number, type));
}

/* protobuf-c's stream into ours. */
typedef struct stream {
  ProtobufCBuffer base;
  ckpt_stream *out;
} stream;

static void put(ProtobufCBuffer *base, size_t n, const uint8_t *bytes) {
  ckpt_stream_bytes(((stream *)base)->out, bytes, n);
}

void ckpt_onnx_pack(const ProtobufCMessage *message, ckpt_stream *out) {
  stream to = {.base = {.append = put}, .out = out};
  protobuf_c_message_pack_to_buffer(message, &to.base);
}

static ProtobufCBinaryData bytes_of(const char *text) {
  return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

/* The entries of data outside, the last of them pointing to texts that the caller has. */
typedef struct entries {
  Onnx__StringStringEntryProto items[3], *list[3];
  char offset[24], length[24];
} entries;

static void point_outside(Onnx__TensorProto *message, entries *e, const ckpt_onnx_tensor *tensor) {
  static const char *const keys[] = {"location", "offset", "length"};
  snprintf(e->offset, sizeof e->offset, "%llu", (ull)tensor->offset);
  snprintf(e->length, sizeof e->length, "%llu", (ull)tensor->tensor->n_bytes);
  const char *const values[] = {tensor->location, e->offset, e->length};
  for (int i = 0; i < 3; i++) {
    onnx__string_string_entry_proto__init(&e->items[i]);
    e->items[i].has_key = e->items[i].has_value = true;
    e->items[i].key = bytes_of(keys[i]);
    e->items[i].value = bytes_of(values[i]);
    e->list[i] = &e->items[i];
  }
  message->n_external_data = 3;
  message->external_data = e->list;
  message->has_data_location = true;
  message->data_location = OUTSIDE;
}

/* A message of the fields of `from` up to its data, or behind them; both borrow. */
static Onnx__TensorProto half_of(const Onnx__TensorProto *from, bool is_after) {
  Onnx__TensorProto half = *from;
  if (!is_after) {
    half.has_doc_string = half.has_data_location = false;
    half.n_external_data = half.n_metadata_props = 0;
    half.base.n_unknown_fields = 0;
    return half;
  }
  half.n_dims = 0;
  half.has_data_type = half.has_name = false;
  return half;
}

/* Where the data go, one half of the message: the same call for a tensor that was read and for a new one. */
static void print_half(const ckpt_onnx_tensor *tensor, Onnx__TensorProto *message, bool is_after, ckpt_stream *out) {
  entries outside;
  message->n_external_data = 0;
  message->has_data_location = false;
  if (tensor->location != NULL) point_outside(message, &outside, tensor);
  const Onnx__TensorProto half = half_of(message, is_after);
  ckpt_onnx_pack(&half.base, out);
  if (is_after || tensor->location != NULL || tensor->tensor->n_bytes == 0) return;
  ckpt_onnx_put_tag(out, RAW_DATA, CKPT_WIRE_BYTES);
  ckpt_onnx_put_varint(out, tensor->tensor->n_bytes);
}

/* A cast tensor's name in the file. */
typedef struct cast_name {
  uint8_t bytes[4096 + sizeof CKPT_ONNX_CAST];
} cast_name;

static ProtobufCBinaryData suffixed(cast_name *to, ProtobufCBinaryData name) {
  const size_t n_suffix = sizeof CKPT_ONNX_CAST - 1, n = name.len <= sizeof to->bytes - n_suffix ? name.len : 0;
  if (n != 0) memcpy(to->bytes, name.data, n);
  memcpy(to->bytes + n, CKPT_ONNX_CAST, n_suffix);
  return (ProtobufCBinaryData){.len = n + n_suffix, .data = to->bytes};
}

static void print_read(const ckpt_onnx_tensor *tensor, bool is_after, ckpt_stream *out) {
  Onnx__TensorProto *message;
  ckpt_status status =
      ckpt_onnx_unpack_tensor(&message, tensor->slot->outline, tensor->slot->n_outline, NULL, out->err);
  if (status != CKPT_OK) {
    ckpt_stream_fail(out, status);
    return;
  }
  Onnx__TensorProto changed = *message; /* whose own entries stay the message's to free */
  cast_name name;
  if (tensor->is_cast) {
    changed.name = suffixed(&name, message->name);
    changed.data_type = ckpt_onnx_type_of((ckpt_dtype)tensor->tensor->dtype);
  }
  print_half(tensor, &changed, is_after, out);
  onnx__tensor_proto__free_unpacked(message, NULL);
}

static void print_new(const ckpt_onnx_tensor *tensor, bool is_after, ckpt_stream *out) {
  Onnx__TensorProto message;
  int64_t dims[CKPT_MAX_RANK];
  onnx__tensor_proto__init(&message);
  for (uint32_t axis = 0; axis < tensor->tensor->rank; axis++) dims[axis] = (int64_t)tensor->tensor->shape[axis];
  message.n_dims = tensor->tensor->rank;
  message.dims = dims;
  message.has_data_type = message.has_name = true;
  message.data_type = ckpt_onnx_type_of((ckpt_dtype)tensor->tensor->dtype);
  message.name = bytes_of(tensor->tensor->name);
  print_half(tensor, &message, is_after, out);
}

void ckpt_onnx_print_before(const ckpt_onnx_tensor *tensor, ckpt_stream *out) {
  (tensor->slot != NULL ? print_read : print_new)(tensor, false, out);
}

void ckpt_onnx_print_after(const ckpt_onnx_tensor *tensor, ckpt_stream *out) {
  (tensor->slot != NULL ? print_read : print_new)(tensor, true, out);
}

void ckpt_onnx_print_cast(const ckpt_onnx_tensor *tensor, ckpt_dtype was, ckpt_stream *out) {
  enum { INT = 2 };
  Onnx__TensorProto *message;
  Onnx__NodeProto node;
  Onnx__AttributeProto to, *attributes[] = {&to};
  cast_name name;
  ckpt_status status =
      ckpt_onnx_unpack_tensor(&message, tensor->slot->outline, tensor->slot->n_outline, NULL, out->err);
  if (status != CKPT_OK) {
    ckpt_stream_fail(out, status);
    return;
  }
  ProtobufCBinaryData input = suffixed(&name, message->name);
  onnx__node_proto__init(&node);
  onnx__attribute_proto__init(&to);
  to.has_name = to.has_i = to.has_type = node.has_op_type = true;
  to.name = bytes_of("to");
  to.i = ckpt_onnx_type_of(was);
  to.type = INT;
  node.n_input = node.n_output = node.n_attribute = 1;
  node.input = &input;
  node.output = &message->name;
  node.op_type = bytes_of("Cast");
  node.attribute = attributes;
  ckpt_onnx_put_tag(out, 1, CKPT_WIRE_BYTES);
  ckpt_onnx_put_varint(out, onnx__node_proto__get_packed_size(&node));
  ckpt_onnx_pack(&node.base, out);
  onnx__tensor_proto__free_unpacked(message, NULL);
}
