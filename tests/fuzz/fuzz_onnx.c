/* fuzz_onnx - any bytes as one ONNX model in memory. What opens has tensors inside its bytes, and is written again:
 * as a model that opens with the same tensors, and with data outside to a stream of the size that was counted.
 * libFuzzer changes fields of messages in messages, whose lengths follow: bytes alone would break them all. */
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_WRITTEN = 1 << 20 };

static ckpt_index *open_bytes(const uint8_t *data, size_t n_bytes) {
  ckpt_open_options options = {.struct_size = sizeof options, .max_index_bytes = 64 << 20, .stored_names = true};
  ckpt_error err = {0};
  ckpt_index *index;
  ckpt_status status = ckpt_open_memory(&index, data, n_bytes, "fuzz.onnx", &options, &err);
  if (status == CKPT_EINTERNAL || status != err.status || (status == CKPT_OK) != (index != NULL)) abort();
  return index;
}

/* A description of all that an index holds. */
static ckpt_index *describe(const ckpt_index *from) {
  ckpt_index *index;
  if (ckpt_index_new(&index, NULL, "fuzz", "onnx", NULL, NULL) != CKPT_OK) return NULL;
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *t = &from->tensors[i];
    if (ckpt_index_add(index, t->name, strlen(t->name), (ckpt_dtype)t->dtype, t->rank, t->shape, (ckpt_role)t->role,
                       NULL, 0, NULL, NULL) != CKPT_OK)
      abort();
    index->tensors[i].details->like = i + 1;
  }
  if (ckpt_index_carry(index, from, NULL) != CKPT_OK) abort();
  return index;
}

static ckpt_status put(void *arg, const void *bytes, size_t n_bytes, ckpt_error *err) {
  uint8_t **to = arg;
  (void)err;
  if (*to != NULL) memcpy(*to, bytes, n_bytes), *to += n_bytes;
  return CKPT_OK;
}

/* Writes a file of a layout to `to`, NULL: nowhere. A tensor whose values are damaged (false) writes nothing. */
static bool print(const ckpt_layout *layout, const ckpt_layout_file *file, const ckpt_index *from, uint8_t *to) {
  for (uint32_t s = 0; s < file->n_segments; s++) {
    const ckpt_segment *segment = &file->segments[s];
    uint8_t window[64], *at = to == NULL ? NULL : to + segment->offset;
    ckpt_error err = {0};
    ckpt_stream out;
    if (segment->kind == CKPT_SEGMENT_TENSOR) {
      const ckpt_tensor *tensor = &from->tensors[layout->index->tensors[segment->tensor].details->like - 1];
      if (at != NULL && ckpt_read(from, tensor, NULL, CKPT_DTYPE_NONE, at, segment->n_bytes, &err) != CKPT_OK)
        return false;
      continue;
    }
    ckpt_stream_function(&out, put, &at, window, sizeof window, &err);
    segment->print(layout, segment->arg, &out);
    if (ckpt_stream_end(&out) != CKPT_OK || out.n_bytes != segment->n_bytes) abort();
  }
  return true;
}

/* What was written has the tensors that were read. */
static void check_again(const ckpt_index *index, const uint8_t *bytes, size_t n_bytes) {
  ckpt_index *again = open_bytes(bytes, n_bytes);
  if (again == NULL || again->n_tensors != index->n_tensors || again->n_unread != index->n_unread) abort();
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *a = &index->tensors[i], *b = &again->tensors[i];
    if (strcmp(a->name, b->name) != 0 || a->dtype != b->dtype || !ckpt_tensor_same_shape(a, b)) abort();
  }
  ckpt_index_free(again);
}

static void write(const ckpt_index *index, bool external) {
  ckpt_error err = {0};
  ckpt_arena arena;
  ckpt_losses losses = {0};
  ckpt_index *described = describe(index);
  if (described == NULL) return;
  ckpt_arena_init(&arena, 64 << 20);
  losses.arena = &described->arena;
  ckpt_layout layout = {.arena = &arena, .index = described};
  const ckpt_format_value value = {.name = "external_data", .value = external};
  const ckpt_layout_options options = {.name = "fuzz.onnx", .values = {&value, 1}};
  if (ckpt_normalize(ckpt_format_find("onnx"), described, &losses, &err) == CKPT_OK &&
      ckpt_onnx_layout(&layout, &options, &err) == CKPT_OK && ckpt_layout_finish(&layout, &err) == CKPT_OK) {
    const ckpt_layout_file *file = &layout.files[0];
    uint8_t *bytes = external || file->n_bytes > MAX_WRITTEN ? NULL : malloc((size_t)file->n_bytes + 1);
    if (print(&layout, file, index, bytes) && bytes != NULL) check_again(index, bytes, (size_t)file->n_bytes);
    free(bytes);
  } else if (err.status != CKPT_ENOMEM) {
    abort(); /* whatever can be read can be written */
  }
  ckpt_arena_free(&arena);
  ckpt_index_free(described);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  const ckpt_probe probe = {.path = "", .head = data, .n_head = n_bytes < 4096 ? n_bytes : 4096, .n_bytes = n_bytes};
  if (!ckpt_format_find("onnx")->probe(&probe)) return 0; /* other formats have targets of their own */
  ckpt_index *index = open_bytes(data, n_bytes);
  if (index == NULL) return 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    for (uint32_t k = 0; k < index->tensors[i].n_extents; k++) {
      const ckpt_extent *extent = &index->tensors[i].extents[k];
      if (extent->offset > n_bytes || extent->n_stored > n_bytes - extent->offset) abort();
    }
  write(index, false);
  write(index, true);
  ckpt_index_free(index);
  return 0;
}

#ifdef CKPT_LIBFUZZER
size_t LLVMFuzzerMutate(uint8_t *data, size_t n_bytes, size_t n_room);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n_bytes, size_t n_room, unsigned seed);

enum { MAX_FIELDS = 4096, MAX_LEVELS = 40 };

/* A field of a message in memory. */
typedef struct piece {
  size_t begin, at, end; /* of the tag, the value, and behind */
  uint64_t tag;
} piece;

static bool take(const uint8_t *data, size_t n, size_t *at, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && *at < n; shift += 7) {
    const uint8_t byte = data[(*at)++];
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* The fields of n bytes that are a message; 0 where they are none. */
static size_t split(const uint8_t *data, size_t n, piece *pieces) {
  size_t count = 0, at = 0;
  while (at < n) {
    piece *p = &pieces[count];
    uint64_t length = 0;
    p->begin = at;
    if (count++ == MAX_FIELDS - 1 || !take(data, n, &at, &p->tag) || p->tag >> 3 == 0) return 0;
    const unsigned type = p->tag & 7;
    p->at = at;
    if (type == CKPT_WIRE_VARINT && !take(data, n, &at, &length)) return 0;
    if (type == CKPT_WIRE_BYTES && !take(data, n, &at, &length)) return 0;
    if (type == CKPT_WIRE_BYTES) p->at = at;
    if (type == CKPT_WIRE_FIXED64 || type == CKPT_WIRE_FIXED32) length = type == CKPT_WIRE_FIXED64 ? 8 : 4;
    if (type == 3 || type == 4 || type > 5 || (type != CKPT_WIRE_VARINT && length > n - at)) return 0;
    if (type != CKPT_WIRE_VARINT) at += (size_t)length;
    p->end = at;
  }
  return count;
}

/* Changes one field of the message in data[0, n), or one in it: drops it, repeats it, or gives it another value. */
static size_t change(uint8_t *data, size_t n, size_t room, unsigned seed, int level) {
  piece *pieces = malloc(MAX_FIELDS * sizeof *pieces);
  uint8_t *value = malloc(room + CKPT_WIRE_VARINT_BYTES);
  const size_t count = pieces == NULL || value == NULL || level == MAX_LEVELS ? 0 : split(data, n, pieces);
  if (count == 0) {
    free(pieces), free(value);
    return LLVMFuzzerMutate(data, n, room);
  }
  const piece p = pieces[seed % count];
  const size_t n_tail = n - p.end, n_field = p.end - p.begin;
  seed = seed * 1103515245U + 12345U;
  const unsigned what = seed >> 16 & 7;
  size_t n_value = p.end - p.at;
  uint8_t head[2 * CKPT_WIRE_VARINT_BYTES];
  memcpy(value, data + p.at, n_value);
  if (what == 0) { /* gone */
    memmove(data + p.begin, data + p.end, n_tail);
    n -= n_field;
  } else if (what == 1 && n + n_field <= room) { /* twice */
    memmove(data + p.end + n_field, data + p.end, n_tail);
    memcpy(data + p.end, data + p.begin, n_field);
    n += n_field;
  } else {
    const bool has_length = (p.tag & 7) == CKPT_WIRE_BYTES;
    if (has_length && what > 2)
      n_value = change(value, n_value, room, seed, level + 1);
    else if (has_length)
      n_value = LLVMFuzzerMutate(value, n_value, room);
    else if ((p.tag & 7) == CKPT_WIRE_VARINT)
      n_value = ckpt_wire_put(value, what == 2 ? UINT64_MAX - seed % 64 : what < 5 ? seed % 64 : 1ULL << seed % 64);
    else
      memset(value, (int)seed, n_value);
    unsigned n_head = ckpt_wire_put(head, p.tag);
    if (has_length) n_head += ckpt_wire_put(head + n_head, n_value);
    if (p.begin + n_head + n_value + n_tail <= room) {
      memmove(data + p.begin + n_head + n_value, data + p.end, n_tail);
      memcpy(data + p.begin, head, n_head);
      memcpy(data + p.begin + n_head, value, n_value);
      n = p.begin + n_head + n_value + n_tail;
    }
  }
  free(pieces), free(value);
  return n;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n_bytes, size_t n_room, unsigned seed) {
  return seed % 8 == 0 ? LLVMFuzzerMutate(data, n_bytes, n_room) : change(data, n_bytes, n_room, seed / 8, 0);
}
#endif
