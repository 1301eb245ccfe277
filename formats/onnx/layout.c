/* layout.c - a model written: the skeleton of the one that was read, or a new one of nothing but initializers,
 * with the tensors as they are described.
 *
 * A tensor that is not changed keeps its message byte for byte. Any other is its small fields in order, and its data
 * as raw_data 9, or outside: in `NAME.data`, aligned, with location, offset and length, or in a file that is there
 * already (link.c). Data stay inside while the model is below 2 GB; what is small, or no initializer, stays there
 * in any case. */
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

typedef unsigned long long ull;

enum { NONE = UINT32_MAX };

/* What becomes of a slot. */
typedef struct placed {
  uint32_t tensor; /* described; NONE while unknown */
  bool is_kept;    /* its message stays as it stands in the file, but for the data that the run puts into it */
  bool is_same;    /* all of its message stays */
  bool is_linked;  /* outside, where it stands */
  bool is_cast;    /* a Cast node makes of it what the graph works with */
  ckpt_onnx_place outside;
} placed;

typedef struct writer {
  const struct ckpt_graph *graph;
  const ckpt_index *index;
  placed *slots;
  uint64_t *lengths;    /* of the message that a part begins, or that is a tensor's */
  const char *location; /* of data outside */
} writer;

/* What a literal prints: what follows the data of part `from`, the parts between, and what stands before those of `to`.
 */
typedef struct stretch {
  const writer *w;
  uint32_t from, to; /* NONE: from the first, to the last */
} stretch;

/* ---- what does not fit ------------------------------------------------------------------------------------------- */

static int compare_names(const void *name, const void *item) { return strcmp(name, *(char *const *)item); }

static bool is_among(const ckpt_onnx_names *names, const char *name) {
  return names->n != 0 && bsearch(name, names->items, names->n, sizeof *names->items, compare_names) != NULL;
}

/* A number that the model's metadata has under a key; 0: none. */
static long stated(const ckpt_index *of, const char *key) {
  const char *text = ckpt_index_metadata(of, key);
  return text == NULL ? 0 : strtol(text, NULL, 10);
}

/* Whether the model's operators cast between these dtypes. */
static bool can_cast(const ckpt_index *of, ckpt_dtype was, ckpt_dtype now) {
  static const struct {
    uint32_t ir;
    long opset;
  } casts[] = {{9, 19}, {11, 23}, {12, 24}};
  const ckpt_onnx_type_row *row = ckpt_onnx_type_get(ckpt_onnx_type_of(now));
  long opset = was == CKPT_BF16 || now == CKPT_BF16 ? 13 : 6;
  if (row == NULL) return false;
  for (size_t i = 0; i < sizeof casts / sizeof *casts; i++)
    if (row->ir_version == casts[i].ir) opset = casts[i].opset;
  return stated(of, CKPT_ONNX_KEY "opset.ai.onnx") >= opset &&
         stated(of, CKPT_ONNX_KEY "ir_version") >= row->ir_version;
}

/* Why no node can stand between a tensor and the graph; NULL: one can. */
static const char *why_kept(const struct ckpt_graph *graph, uint32_t number, const char *name) {
  if (!graph->slots[number].is_outer) return "it is no initializer of the model's own graph";
  if (is_among(&graph->inputs, name)) return "it is an input of the graph too";
  return NULL;
}

const char *ckpt_onnx_keeps_dtype(const ckpt_index *index, const ckpt_tensor *tensor) {
  const uint32_t number = (uint32_t)(tensor - index->tensors);
  return index->graph == NULL ? NULL : why_kept(index->graph, number, tensor->name);
}

/* A Cast node has to stand between a tensor of another dtype and the graph: refused where it cannot. */
static ckpt_status check_cast(const ckpt_index *described, uint32_t number, const ckpt_tensor *tensor,
                              ckpt_error *err) {
  const struct ckpt_graph *graph = described->graph;
  const ckpt_onnx_slot *slot = &graph->slots[number];
  const ckpt_dtype was = (ckpt_dtype)described->objects_of->tensors[number].dtype, now = (ckpt_dtype)tensor->dtype;
  const char *why = why_kept(graph, number, tensor->name);
  if (!ckpt_dtype_is_float(was) || !ckpt_dtype_is_float(now))
    why = "only floats are cast";
  else if (why == NULL && strlen(tensor->name) > CKPT_ONNX_MAX_NAME + 1 - sizeof CKPT_ONNX_CAST)
    why = "its name is too long for '" CKPT_ONNX_CAST "' behind it";
  else if (why == NULL && slot->is_cast)
    why = "it was cast before (start from the model as it was)";
  else if (why == NULL && is_among(&graph->taken, tensor->name))
    why = "its new name, with '" CKPT_ONNX_CAST "' behind it, is in the graph already";
  else if (why == NULL && !can_cast(described->objects_of, was, now))
    why = "its operators or its IR version are too old for that";
  if (why == NULL) return CKPT_OK;
  return ckpt_advise_value(
      ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "the graph works with %s, and cannot be given %s: %s",
                ckpt_dtype_name(was), ckpt_dtype_name(now), why),
      err, "%dtype=PATTERN=DTYPE chooses others, a first %dtype='NAME=$' keeps it", ckpt_dtype_name(was));
}

/* A graph works with tensors of just these names and types. */
static ckpt_status check_slot(const ckpt_index *described, uint32_t number, const ckpt_tensor *tensor,
                              ckpt_error *err) {
  const ckpt_index *of = described->objects_of;
  const ckpt_tensor *was = &of->tensors[number];
  if (tensor == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, was->name,
                     "the graph works with it, so that it cannot be left out (safetensors holds a selection)");
  if (strcmp(tensor->name, was->name) != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                     "the graph calls it '%.200s', and it cannot be renamed", was->name);
  if (tensor->dtype != was->dtype) CKPT_TRY(check_cast(described, number, tensor, err));
  if (ckpt_tensor_same_shape(tensor, was)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "the graph works with another shape");
}

/* The described tensor of each slot, all NONE without a graph. */
static ckpt_status match(uint32_t **out, const ckpt_index *described, ckpt_arena *arena, ckpt_error *err) {
  const uint32_t n = described->graph == NULL ? 0 : described->graph->n_slots;
  uint32_t *matches = *out = ckpt_arena_array(arena, (size_t)n + 1, sizeof *matches);
  CKPT_TRY_ALLOC(matches, err);
  for (uint32_t i = 0; i < n; i++) matches[i] = NONE;
  for (uint32_t i = 0; i < described->n_tensors && described->graph != NULL; i++) {
    const uint32_t like = described->tensors[i].details->like;
    if (like == 0 || like > n)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, described->tensors[i].name, "the graph has no such tensor");
    matches[like - 1] = i;
  }
  return CKPT_OK;
}

/* Of a model without a graph that it comes from: what another said of itself is not true of it. */
static ckpt_status say_own_keys(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  ckpt_name_list own = {.n = 0};
  for (uint32_t i = 0; i < described->n_metadata; i++)
    if (ckpt_onnx_is_own_key(described->metadata[i].key)) ckpt_name_list_add(&own, described->metadata[i].key);
  if (own.n == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "metadata of another model (%s): this has its own", own.text);
}

ckpt_status ckpt_onnx_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  uint32_t *matches;
  if (described->graph == NULL) return say_own_keys(described, losses, err);
  CKPT_TRY(match(&matches, described, &described->arena, err));
  for (uint32_t i = 0; i < described->graph->n_slots; i++)
    CKPT_TRY(check_slot(described, i, matches[i] == NONE ? NULL : &described->tensors[matches[i]], err));
  return CKPT_OK;
}

/* ---- a model of its own ------------------------------------------------------------------------------------------ */

/* A stream into an arena: counted first, then kept. */
typedef struct kept {
  uint8_t *bytes;
  uint64_t n;
} kept;

static ckpt_status keep(void *arg, const void *bytes, size_t n, ckpt_error *err) {
  kept *to = arg;
  (void)err;
  memcpy(to->bytes + to->n, bytes, n);
  to->n += n;
  return CKPT_OK;
}

static ckpt_status pack(ckpt_onnx_part *part, const ProtobufCMessage *message, ckpt_arena *arena, ckpt_error *err) {
  ckpt_stream out;
  uint8_t window[64];
  kept to = {.n = 0};
  ckpt_stream_count(&out, err);
  ckpt_onnx_pack(message, &out);
  to.bytes = ckpt_arena_alloc(arena, out.n_bytes + 1);
  CKPT_TRY_ALLOC(to.bytes, err);
  ckpt_stream_function(&out, keep, &to, window, sizeof window, err);
  ckpt_onnx_pack(message, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  *part = (ckpt_onnx_part){.kind = CKPT_ONNX_RUN, .n = to.n, .bytes = to.bytes};
  return CKPT_OK;
}

static ProtobufCBinaryData bytes_of(const char *text) {
  return (ProtobufCBinaryData){.len = strlen(text), .data = (uint8_t *)(uintptr_t)text};
}

/* The lowest version that has the types, and the operators that came with it. */
static void lowest_version(const ckpt_index *described, int64_t *ir, int64_t *opset) {
  static const int64_t opsets[] = {[4] = 9, [9] = 19, [10] = 21, [11] = 23, [12] = 24, [13] = 25};
  *ir = 4;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_onnx_type_row *row = ckpt_onnx_type_get(ckpt_onnx_type_of((ckpt_dtype)described->tensors[i].dtype));
    if (row != NULL && row->ir_version > *ir) *ir = row->ir_version;
  }
  *opset = opsets[*ir];
}

/* What stands behind the graph: operators, and metadata, which a model has beside what it is. */
static ckpt_status pack_tail(ckpt_onnx_part *part, const ckpt_index *described, int64_t version, ckpt_arena *arena,
                             ckpt_error *err) {
  /* An entry is three fields; the head and the operators leave room for these. */
  enum { MAX_PROPS = CKPT_ONNX_MAX_FIELDS / 4, MAX_TAIL = CKPT_ONNX_MAX_OUTLINE - 64 };
  Onnx__ModelProto tail;
  Onnx__OperatorSetIdProto opset, *opsets[] = {&opset};
  onnx__model_proto__init(&tail);
  onnx__operator_set_id_proto__init(&opset);
  opset.has_domain = opset.has_version = true;
  opset.domain = bytes_of("");
  opset.version = version;
  tail.n_opset_import = 1;
  tail.opset_import = opsets;
  Onnx__StringStringEntryProto *entries = ckpt_arena_array(arena, described->n_metadata, sizeof *entries);
  tail.metadata_props = ckpt_arena_array(arena, described->n_metadata, sizeof *tail.metadata_props);
  if (entries == NULL || tail.metadata_props == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < described->n_metadata; i++) {
    const ckpt_meta *meta = &described->metadata[i];
    if (ckpt_onnx_is_own_key(meta->key)) continue;
    Onnx__StringStringEntryProto *entry = &entries[tail.n_metadata_props];
    onnx__string_string_entry_proto__init(entry);
    entry->has_key = entry->has_value = true;
    entry->key = bytes_of(meta->key);
    entry->value = bytes_of(meta->value);
    tail.metadata_props[tail.n_metadata_props++] = entry;
  }
  const size_t n_bytes = onnx__model_proto__get_packed_size(&tail);
  if (tail.n_metadata_props > MAX_PROPS || n_bytes > MAX_TAIL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "%zu metadata entries of %zu bytes: in an ONNX model are read %d, of %d bytes together",
                     tail.n_metadata_props, n_bytes, MAX_PROPS, MAX_TAIL);
  return pack(part, &tail.base, arena, err);
}

ckpt_status ckpt_onnx_graph_new(const struct ckpt_graph **out, const ckpt_index *described, ckpt_arena *arena,
                                ckpt_error *err) {
  enum { INITIALIZER = 5, GRAPH = 7 };
  const uint32_t n = described->n_tensors;
  int64_t ir, opset;
  Onnx__ModelProto head;
  Onnx__GraphProto name;
  struct ckpt_graph *graph = ckpt_arena_alloc(arena, sizeof *graph);
  ckpt_onnx_part *parts = ckpt_arena_array(arena, (size_t)n + 5, sizeof *parts);
  ckpt_onnx_slot *slots = ckpt_arena_array(arena, (size_t)n + 1, sizeof *slots);
  if (graph == NULL || parts == NULL || slots == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  onnx__model_proto__init(&head);
  onnx__graph_proto__init(&name);
  lowest_version(described, &ir, &opset);
  head.has_ir_version = head.has_producer_name = name.has_name = true;
  head.ir_version = ir;
  head.producer_name = bytes_of("ckpt");
  name.name = bytes_of("weights");
  CKPT_TRY(pack(&parts[0], &head.base, arena, err));
  parts[1] = (ckpt_onnx_part){.kind = CKPT_ONNX_BEGIN, .number = GRAPH};
  CKPT_TRY(pack(&parts[2], &name.base, arena, err));
  for (uint32_t i = 0; i < n; i++) {
    slots[i] = (ckpt_onnx_slot){.field = INITIALIZER, .is_initializer = true};
    parts[3 + i] = (ckpt_onnx_part){.kind = CKPT_ONNX_TENSOR, .number = i};
  }
  parts[3 + n] = (ckpt_onnx_part){.kind = CKPT_ONNX_END};
  CKPT_TRY(pack_tail(&parts[4 + n], described, opset, arena, err));
  *graph = (struct ckpt_graph){.outer = 1, .parts = parts, .n_parts = n + 5, .slots = slots, .n_slots = n};
  *out = graph;
  return CKPT_OK;
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static ckpt_onnx_tensor tensor_of(const writer *w, uint32_t slot) {
  const placed *at = &w->slots[slot];
  const ckpt_onnx_slot *read = &w->graph->slots[slot];
  return (ckpt_onnx_tensor){.slot = read->outline == NULL ? NULL : read,
                            .tensor = &w->index->tensors[at->tensor],
                            .is_cast = at->is_cast,
                            .location = at->outside.location,
                            .offset = at->outside.offset};
}

/* The bytes of a slot's message before its data, without tag and length. */
static void put_before(const writer *w, uint32_t slot, ckpt_stream *out) {
  const ckpt_onnx_slot *read = &w->graph->slots[slot];
  const ckpt_onnx_tensor tensor = tensor_of(w, slot);
  if (w->slots[slot].is_kept)
    ckpt_stream_range(out, w->graph->source, w->graph->file, read->at, read->data_at - read->at);
  else
    ckpt_onnx_print_before(&tensor, out);
}

static void put_after(const writer *w, uint32_t slot, ckpt_stream *out) {
  const ckpt_onnx_slot *read = &w->graph->slots[slot];
  const ckpt_onnx_tensor tensor = tensor_of(w, slot);
  const uint64_t data_end = read->data_at + tensor.tensor->n_bytes;
  if (w->slots[slot].is_kept)
    ckpt_stream_range(out, w->graph->source, w->graph->file, data_end, read->at + read->n - data_end);
  else
    ckpt_onnx_print_after(&tensor, out);
}

/* Tag, length and the fields before the data of a part that is a tensor. */
static void open_tensor(const writer *w, uint32_t number, ckpt_stream *out) {
  const uint32_t slot = w->graph->parts[number].number;
  ckpt_onnx_put_tag(out, w->graph->slots[slot].field, CKPT_WIRE_BYTES);
  ckpt_onnx_put_varint(out, w->lengths[number]);
  put_before(w, slot, out);
}

/* The whole field, as it stands in the file. */
static void put_same(const writer *w, uint32_t number, ckpt_stream *out) {
  const ckpt_onnx_slot *read = &w->graph->slots[w->graph->parts[number].number];
  ckpt_onnx_put_tag(out, read->field, CKPT_WIRE_BYTES);
  ckpt_onnx_put_varint(out, read->n);
  ckpt_stream_range(out, w->graph->source, w->graph->file, read->at, read->n);
}

/* The nodes that go to the front of the model's own graph. */
static void put_casts(const writer *w, ckpt_stream *out) {
  for (uint32_t i = 0; i < w->graph->n_slots; i++) {
    const ckpt_onnx_tensor tensor = tensor_of(w, i);
    if (w->slots[i].is_cast) ckpt_onnx_print_cast(&tensor, (ckpt_dtype)w->index->objects_of->tensors[i].dtype, out);
  }
}

/* A part without data of its own in the file. */
static void put_part(const writer *w, uint32_t number, ckpt_stream *out) {
  const ckpt_onnx_part *part = &w->graph->parts[number];
  switch (part->kind) {
    case CKPT_ONNX_RUN:
      if (part->bytes != NULL)
        ckpt_stream_bytes(out, part->bytes, (size_t)part->n);
      else
        ckpt_stream_range(out, w->graph->source, w->graph->file, part->at, part->n);
      break;
    case CKPT_ONNX_BEGIN:
      ckpt_onnx_put_tag(out, part->number, CKPT_WIRE_BYTES);
      ckpt_onnx_put_varint(out, w->lengths[number]);
      if (number == w->graph->outer) put_casts(w, out);
      break;
    case CKPT_ONNX_TENSOR:
      if (w->slots[part->number].is_same) {
        put_same(w, number, out);
        break;
      }
      open_tensor(w, number, out);
      put_after(w, part->number, out);
      break;
    case CKPT_ONNX_END: break;
  }
}

static void print(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const stretch *s = arg;
  const ckpt_onnx_part *parts = s->w->graph->parts;
  const uint32_t end = s->to == NONE ? s->w->graph->n_parts : s->to;
  (void)layout;
  if (s->from != NONE) put_after(s->w, parts[s->from].number, out);
  for (uint32_t i = s->from == NONE ? 0 : s->from + 1; i < end; i++) put_part(s->w, i, out);
  if (s->to != NONE) open_tensor(s->w, s->to, out);
}

/* ---- sizes ------------------------------------------------------------------------------------------------------- */

static uint64_t varint_bytes(uint64_t value) {
  uint8_t bytes[CKPT_WIRE_VARINT_BYTES];
  return ckpt_wire_put(bytes, value);
}

/* Adds the bytes of tag, length and message; false past 2^64. */
static bool add_message(uint64_t *total, uint32_t field, uint64_t n) {
  return ckpt_add_u64(*total, varint_bytes(ckpt_wire_tag(field, CKPT_WIRE_BYTES)) + varint_bytes(n), total) &&
         ckpt_add_u64(*total, n, total);
}

/* The length of a tensor's message. */
static ckpt_status measure_tensor(const writer *w, uint32_t slot, uint64_t *n, ckpt_error *err) {
  const placed *at = &w->slots[slot];
  ckpt_stream out;
  *n = w->graph->slots[slot].n;
  if (at->is_same) return CKPT_OK;
  ckpt_stream_count(&out, err);
  put_before(w, slot, &out);
  put_after(w, slot, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  *n = out.n_bytes + (at->outside.location != NULL ? 0 : w->index->tensors[at->tensor].n_bytes);
  return CKPT_OK;
}

/* The lengths of all messages, and of the model. */
static ckpt_status measure(writer *w, uint64_t *n_model, ckpt_error *err) {
  uint64_t totals[CKPT_ONNX_MAX_DEPTH + 2] = {0};
  uint32_t begun[CKPT_ONNX_MAX_DEPTH + 2] = {0};
  int depth = 0;
  bool fits = true;
  for (uint32_t i = 0; i < w->graph->n_parts && fits; i++) {
    const ckpt_onnx_part *part = &w->graph->parts[i];
    ckpt_stream out;
    if (part->kind == CKPT_ONNX_RUN) {
      fits = ckpt_add_u64(totals[depth], part->n, &totals[depth]);
    } else if (part->kind == CKPT_ONNX_BEGIN) {
      ckpt_stream_count(&out, err);
      if (i == w->graph->outer) put_casts(w, &out);
      CKPT_TRY(ckpt_stream_end(&out));
      totals[++depth] = out.n_bytes;
      begun[depth] = i;
    } else if (part->kind == CKPT_ONNX_END) {
      w->lengths[begun[depth]] = totals[depth];
      depth--;
      fits = add_message(&totals[depth], w->graph->parts[begun[depth + 1]].number, totals[depth + 1]);
    } else {
      CKPT_TRY(measure_tensor(w, part->number, &w->lengths[i], err));
      fits = add_message(&totals[depth], w->graph->slots[part->number].field, w->lengths[i]);
    }
  }
  if (!fits) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the model would be larger than 2^64 bytes");
  *n_model = totals[0];
  return CKPT_OK;
}

/* ---- layout ------------------------------------------------------------------------------------------------------ */

/* Whether a tensor is the one that was read from the model's own file, with its own values. */
static bool is_unchanged(const ckpt_layout *layout, uint32_t tensor, uint32_t slot) {
  const ckpt_index *of = layout->index->graph == NULL ? NULL : layout->index->objects_of;
  if (of == NULL || layout->reads == NULL || layout->index->graph->slots[slot].is_external) return false;
  return layout->reads[tensor].index == of && layout->reads[tensor].tensor == &of->tensors[slot];
}

static ckpt_status start(writer *w, ckpt_layout *layout, ckpt_error *err) {
  uint32_t *matches;
  w->index = layout->index;
  w->graph = layout->index->graph;
  CKPT_TRY(match(&matches, w->index, layout->arena, err));
  if (w->graph == NULL) CKPT_TRY(ckpt_onnx_graph_new(&w->graph, w->index, layout->arena, err));
  w->slots = ckpt_arena_array(layout->arena, (size_t)w->graph->n_slots + 1, sizeof *w->slots);
  w->lengths = ckpt_arena_array(layout->arena, (size_t)w->graph->n_parts + 1, sizeof *w->lengths);
  if (w->slots == NULL || w->lengths == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < w->graph->n_slots; i++) {
    placed *at = &w->slots[i];
    const ckpt_index *of = w->index->graph == NULL ? NULL : w->index->objects_of;
    at->tensor = of == NULL ? i : matches[i];
    at->is_cast = of != NULL && w->index->tensors[at->tensor].dtype != of->tensors[i].dtype;
    at->is_kept = !at->is_cast && w->graph->slots[i].is_inline;
    at->is_same = !at->is_kept && is_unchanged(layout, at->tensor, i);
  }
  return CKPT_OK;
}

/* Puts the large initializers outside. */
static ckpt_status move_outside(writer *w, ckpt_error *err) {
  uint64_t end = 0;
  if (ckpt_utf8_length(w->location, strlen(w->location)) != strlen(w->location))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                     "the data would lie in '%s', whose name is no UTF-8, as a model has to name it", w->location);
  for (uint32_t i = 0; i < w->graph->n_slots; i++) {
    placed *at = &w->slots[i];
    const uint64_t n = w->index->tensors[at->tensor].n_bytes;
    if (!w->graph->slots[i].is_initializer || n < CKPT_ONNX_INLINE_BELOW) continue;
    uint64_t *offset = &at->outside.offset;
    const uint64_t alignment = n >= CKPT_ONNX_PAGE_FROM ? CKPT_ONNX_PAGE : CKPT_ONNX_ALIGNMENT;
    const uint64_t padding = (alignment - end % alignment) % alignment;
    if (!ckpt_add_u64(end, padding, offset) || !ckpt_add_u64(*offset, n, &end) || end > INT64_MAX)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the data would be larger than 2^63 bytes");
    at->outside.location = w->location;
    at->is_kept = at->is_same = false;
  }
  return CKPT_OK;
}

/* Says where the large initializers stand. */
static ckpt_status link_outside(writer *w, const ckpt_layout *layout, const char *folder, ckpt_error *err) {
  ckpt_onnx_links links = {.arena = layout->arena, .folder = folder, .graph = w->index->graph};
  bool is_any = false;
  for (uint32_t i = 0; i < w->graph->n_slots; i++) {
    placed *at = &w->slots[i];
    const ckpt_tensor *tensor = &w->index->tensors[at->tensor];
    if (!w->graph->slots[i].is_initializer || tensor->n_bytes < CKPT_ONNX_INLINE_BELOW) continue;
    const ckpt_layout_read nothing = {NULL, NULL};
    const ckpt_layout_read *read = layout->reads == NULL ? &nothing : &layout->reads[at->tensor];
    CKPT_TRY(ckpt_onnx_link(&links, read, tensor->name, &at->outside, err));
    if (at->outside.location == NULL) continue;
    at->is_linked = is_any = true;
    at->is_kept = at->is_same = false;
  }
  if (is_any) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "there is nothing to link: no initializer of %d bytes and more stands in another file",
                   CKPT_ONNX_INLINE_BELOW);
}

enum { EXTERNAL_DATA, LINK };

/* The layout acts on the first two, recipes on the others (recipe/convert/graph.h). */
const ckpt_format_option ckpt_onnx_options[] = {
    [EXTERNAL_DATA] = {"external_data", .least = 1, .most = 1, .is_of_all = true},
    [LINK] = {"link", .least = 1, .most = 1, .is_of_all = true, .links = true, .excludes = "external_data",
              .because = "linked data stand outside already"},
    {"graph", CKPT_VALUE_INPUT, .is_of_all = true, .changed = "the tensors of the graph's model have changed"},
    {"partial", .least = 1, .most = 1, .is_of_all = true},
    {"graph_weights", CKPT_VALUE_INPUT, .is_of_all = true, .changed = "the checkpoint of the graph has changed"},
    {.name = NULL}};

static ckpt_status choose(writer *w, const ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  uint64_t n_model;
  const bool wants_outside = ckpt_format_value_of(&options->values, &ckpt_onnx_options[EXTERNAL_DATA]) != 0;
  const bool links = options->folder != NULL && ckpt_format_value_of(&options->values, &ckpt_onnx_options[LINK]) != 0;
  if (links) CKPT_TRY(link_outside(w, layout, options->folder, err));
  if (wants_outside) CKPT_TRY(move_outside(w, err));
  CKPT_TRY(measure(w, &n_model, err));
  if (n_model > CKPT_ONNX_MAX_MODEL && !wants_outside && !links) {
    CKPT_TRY(move_outside(w, err));
    CKPT_TRY(measure(w, &n_model, err));
  }
  if (n_model <= CKPT_ONNX_MAX_MODEL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "a model of %llu bytes without the data that can lie outside, %llu are what protobuf reads",
                   (ull)n_model, (ull)CKPT_ONNX_MAX_MODEL);
}

static ckpt_status add_stretch(ckpt_layout *layout, const writer *w, uint32_t from, uint32_t to, ckpt_error *err) {
  stretch *s = ckpt_arena_alloc(layout->arena, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  *s = (stretch){w, from, to};
  return ckpt_layout_literal(layout, print, s, err);
}

/* Whether the run puts data into a slot's message. */
static bool is_filled(const writer *w, uint32_t slot) {
  return w->slots[slot].outside.location == NULL && !w->slots[slot].is_same;
}

static ckpt_status lay_model(ckpt_layout *layout, const writer *w, ckpt_error *err) {
  uint32_t from = NONE;
  CKPT_TRY(ckpt_layout_file_add(layout, NULL, err));
  for (uint32_t i = 0; i < w->graph->n_parts; i++) {
    const ckpt_onnx_part *part = &w->graph->parts[i];
    if (part->kind != CKPT_ONNX_TENSOR || !is_filled(w, part->number)) continue;
    CKPT_TRY(add_stretch(layout, w, from, i, err));
    CKPT_TRY(ckpt_layout_tensor(layout, w->slots[part->number].tensor, NULL, CKPT_CHECKSUM_NONE, err));
    from = i;
  }
  return add_stretch(layout, w, from, NONE, err);
}

static ckpt_status lay_data(ckpt_layout *layout, const writer *w, ckpt_error *err) {
  uint64_t end = 0;
  bool has_file = false;
  for (uint32_t i = 0; i < w->graph->n_slots; i++) {
    const placed *at = &w->slots[i];
    if (at->is_linked || at->is_same) CKPT_TRY(ckpt_layout_elsewhere(layout, at->tensor, err));
    if (at->outside.location == NULL || at->is_linked) continue;
    if (!has_file) CKPT_TRY(ckpt_layout_file_add(layout, w->location, err));
    has_file = true;
    CKPT_TRY(ckpt_layout_zeros(layout, at->outside.offset - end, err));
    CKPT_TRY(ckpt_layout_tensor(layout, at->tensor, NULL, CKPT_CHECKSUM_NONE, err));
    end = at->outside.offset + w->index->tensors[at->tensor].n_bytes; /* checked in move_outside */
  }
  return CKPT_OK;
}

ckpt_status ckpt_onnx_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  writer *w = ckpt_arena_alloc(layout->arena, sizeof *w);
  CKPT_TRY_ALLOC(w, err);
  CKPT_TRY(start(w, layout, err));
  w->location = ckpt_arena_printf(layout->arena, "%s.data", options->name == NULL ? "model.onnx" : options->name);
  CKPT_TRY_ALLOC(w->location, err);
  CKPT_TRY(choose(w, layout, options, err));
  CKPT_TRY(lay_model(layout, w, err));
  return lay_data(layout, w, err);
}
