/* read.c - the walk over a model: finds every TensorProto, wherever it stands, and keeps all else as ranges.
 *
 *   model     1 IR version, 2 and 3 producer, 7 graph, 8 opsets, 14 metadata, 20 training graphs, 25 functions
 *   graph     1 node, 2 name, 5 initializer, 11 to 13 types, 15 sparse initializer
 *   node      1 input, 2 output, 4 operator, 5 attribute: its tensors (constants) and graphs (branches, loops)
 *
 * A tensor of the graph has its own name; one that is no initializer of it is called after where it stands: by the
 * output that it is a constant of, then `:attribute`, below `output:attribute/` of each graph it is in. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"

typedef unsigned long long ull;

enum { MAX_NAME_BYTES = 64 << 20, N_CAST = sizeof CKPT_ONNX_CAST - 1 };

typedef enum message_kind {
  MODEL,
  GRAPH,
  TRAINING,
  FUNCTION,
  NODE,
  ATTRIBUTE,
  SPARSE,
  TENSOR,
  NO_MESSAGE
} message_kind;

static const char *const kind_names[] = {"a model", "a graph",      "a training graph", "a function",
                                         "a node",  "an attribute", "a sparse tensor",  "a tensor"};

/* Which fields of a message are messages that tensors can stand in. */
static const struct edge {
  message_kind from;
  uint32_t field;
  message_kind to;
} edges[] = {{MODEL, 7, GRAPH},       {MODEL, 20, TRAINING},   {MODEL, 25, FUNCTION},     {TRAINING, 1, GRAPH},
             {TRAINING, 2, GRAPH},    {FUNCTION, 7, NODE},     {FUNCTION, 11, ATTRIBUTE}, {GRAPH, 1, NODE},
             {GRAPH, 5, TENSOR},      {GRAPH, 15, SPARSE},     {NODE, 5, ATTRIBUTE},      {ATTRIBUTE, 5, TENSOR},
             {ATTRIBUTE, 6, GRAPH},   {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH},    {ATTRIBUTE, 22, SPARSE},
             {ATTRIBUTE, 23, SPARSE}, {SPARSE, 1, TENSOR},     {SPARSE, 2, TENSOR}};

static message_kind kind_of(message_kind from, uint32_t field) {
  for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
    if (edges[i].from == from && edges[i].field == field) return edges[i].to;
  return NO_MESSAGE;
}

/* The field of a message that it is called by; 0: none. A sparse tensor has the name of its values. */
static uint32_t label_field(const ckpt_onnx_frame *frame) {
  switch ((message_kind)frame->kind) {
    case TENSOR: return 8;
    case NODE: return 2;
    case ATTRIBUTE:
    case FUNCTION:
    case SPARSE: return 1;
    default: return 0;
  }
}

/* ---- the skeleton ------------------------------------------------------------------------------------------------ */

static ckpt_status add_part(ckpt_onnx_reader *r, ckpt_onnx_part part, ckpt_error *err) {
  struct ckpt_graph *graph = r->graph;
  CKPT_TRY(ckpt_grow(&graph->parts, graph->n_parts, &graph->part_capacity, sizeof *graph->parts, err));
  graph->parts[graph->n_parts++] = part;
  return CKPT_OK;
}

/* What lies before `end` and is not in the skeleton goes there as it is. */
static ckpt_status add_run(ckpt_onnx_reader *r, uint64_t end, ckpt_error *err) {
  if (end == r->run_at) return CKPT_OK;
  const ckpt_onnx_part part = {.kind = CKPT_ONNX_RUN, .at = r->run_at, .n = end - r->run_at};
  r->run_at = end;
  return add_part(r, part, err);
}

/* A tensor stands in this message: it and those around it are cut open. */
static ckpt_status begin(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, ckpt_error *err) {
  if (frame == NULL || frame->is_begun || frame->kind == MODEL) return CKPT_OK;
  CKPT_TRY(begin(r, (ckpt_onnx_frame *)(uintptr_t)frame->parent, err));
  CKPT_TRY(add_run(r, frame->begin, err));
  frame->is_begun = true;
  r->run_at = frame->at;
  if (frame->parent->kind == MODEL && frame->kind == GRAPH && frame->number == 0) r->graph->outer = r->graph->n_parts;
  return add_part(r, (ckpt_onnx_part){.kind = CKPT_ONNX_BEGIN, .number = frame->field}, err);
}

static ckpt_status end(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, ckpt_error *err) {
  if (!frame->is_begun) return CKPT_OK;
  CKPT_TRY(add_run(r, frame->end, err));
  return add_part(r, (ckpt_onnx_part){.kind = CKPT_ONNX_END}, err);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static ckpt_status append(ckpt_onnx_reader *r, const char *text, ckpt_error *err) {
  const size_t n = strlen(r->name), n_more = strlen(text);
  if (n_more >= sizeof r->name - n)
    return ckpt_fail(err, CKPT_ELIMIT, r->wire.path, NULL, "the name of a tensor in '%.100s' has more than %zu bytes",
                     r->name, sizeof r->name - 1);
  memcpy(r->name + n, text, n_more + 1);
  return CKPT_OK;
}

/* Finds the first field of a number in [begin, end) that has bytes; *n stays 0 without one. */
static ckpt_status find_bytes(ckpt_onnx_reader *r, uint64_t begin, uint64_t end, uint32_t number, uint64_t *at,
                              uint64_t *n, ckpt_error *err) {
  ckpt_wire_field field;
  const uint64_t was_at = r->wire.at, was_end = r->wire.end;
  r->wire.at = begin;
  r->wire.end = end;
  while (r->wire.at < end && *n == 0) {
    CKPT_TRY(ckpt_wire_next(&r->wire, &field, err));
    if (field.number == number && field.type == CKPT_WIRE_BYTES) *at = field.at, *n = field.n;
  }
  r->wire.at = was_at;
  r->wire.end = was_end;
  return CKPT_OK;
}

/* Finds where a frame's own name stands, once. */
static ckpt_status find_label(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, ckpt_error *err) {
  uint64_t at = 0, n = 0;
  if (frame->has_label) return CKPT_OK;
  frame->has_label = true; /* where looking fails too: once for all tensors in it */
  CKPT_TRY(find_bytes(r, frame->at, frame->end, label_field(frame), &at, &n, err));
  if (frame->kind == SPARSE && n != 0) {
    const uint64_t begin = at, end = at + n;
    at = n = 0;
    CKPT_TRY(find_bytes(r, begin, end, 8, &at, &n, err));
  }
  frame->label_at = at;
  frame->n_label = n < sizeof r->name ? (uint32_t)n : sizeof r->name;
  if (frame->kind != FUNCTION) return CKPT_OK;
  CKPT_TRY(find_bytes(r, frame->at, frame->end, 10, &frame->domain_at, &frame->n_domain, err));
  return find_bytes(r, frame->at, frame->end, 13, &frame->overload_at, &frame->n_overload, err);
}

static ckpt_status append_bytes(ckpt_onnx_reader *r, uint64_t at, uint64_t n, ckpt_error *err) {
  char text[sizeof r->name];
  if (n > sizeof text - 1)
    return ckpt_fail(err, CKPT_ELIMIT, r->wire.path, NULL, "a name of more than %zu bytes at byte %llu",
                     sizeof text - 1, (ull)at);
  CKPT_TRY(ckpt_wire_bytes(&r->wire, at, text, n, err));
  text[n] = '\0';
  if (strlen(text) == n && ckpt_utf8_length(text, n) == n) return append(r, text, err);
  return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, NULL, "the name at byte %llu is not UTF-8 text or holds a NUL",
                   (ull)at);
}

static ckpt_status append_label(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, ckpt_error *err) {
  char number[24];
  CKPT_TRY(find_label(r, frame, err));
  if (frame->n_label == 0 && frame->kind == TENSOR)
    return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, NULL, "an initializer at byte %llu has no name",
                     (ull)frame->begin);
  if (frame->n_label != 0) return append_bytes(r, frame->label_at, frame->n_label, err);
  snprintf(number, sizeof number, "%llu", (ull)frame->number);
  return append(r, number, err);
}

/* `domain.name:overload`, which no two functions share. */
static ckpt_status append_function(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, ckpt_error *err) {
  CKPT_TRY(find_label(r, frame, err));
  if (frame->n_domain != 0) {
    CKPT_TRY(append_bytes(r, frame->domain_at, frame->n_domain, err));
    CKPT_TRY(append(r, ".", err));
  }
  CKPT_TRY(append_label(r, frame, err));
  if (frame->n_overload == 0) return CKPT_OK;
  CKPT_TRY(append(r, ":", err));
  return append_bytes(r, frame->overload_at, frame->n_overload, err);
}

/* Whether frame is the attribute `value` of a node, whose tensor has the output's name. */
static ckpt_status is_value(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, bool *is, ckpt_error *err) {
  char text[5];
  CKPT_TRY(find_label(r, frame, err));
  *is = frame->parent->kind == NODE && frame->n_label == sizeof text;
  if (!*is) return CKPT_OK;
  CKPT_TRY(ckpt_wire_bytes(&r->wire, frame->label_at, text, sizeof text, err));
  *is = memcmp(text, "value", sizeof text) == 0;
  return CKPT_OK;
}

/* Appends what a frame adds to the name of a tensor in it. in: the frame in it that leads there, NULL for its own. */
static ckpt_status append_frame(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, const ckpt_onnx_frame *in,
                                ckpt_error *err) {
  char number[48] = "";
  const message_kind around = frame->parent == NULL ? NO_MESSAGE : (message_kind)frame->parent->kind;
  bool is_plain;
  switch ((message_kind)frame->kind) {
    case TRAINING:
      snprintf(number, sizeof number, "training.%llu.%s/", (ull)frame->number, in->field == 1 ? "initial" : "step");
      return append(r, number, err);
    case FUNCTION: CKPT_TRY(append_function(r, frame, err)); return append(r, in->kind == NODE ? "/" : "", err);
    case ATTRIBUTE:
      CKPT_TRY(is_value(r, frame, &is_plain, err));
      if (is_plain && in->field == 5) return CKPT_OK;
      CKPT_TRY(append(r, ":", err));
      CKPT_TRY(append_label(r, frame, err));
      if (in->field == 10 || in->field == 11 || in->field == 23)
        snprintf(number, sizeof number, ".%llu", (ull)in->number);
      CKPT_TRY(append(r, number, err));
      return append(r, in->kind == GRAPH ? "/" : "", err);
    case NODE: return append_label(r, frame, err);
    case SPARSE: return around == GRAPH ? append_label(r, frame, err) : CKPT_OK;
    case TENSOR:
      if (around == SPARSE) return append(r, frame->field == 1 ? ".values" : ".indices", err);
      return around == GRAPH ? append_label(r, frame, err) : CKPT_OK;
    default: return CKPT_OK;
  }
}

/* The name of what the last frame of a chain holds, into r->name. */
static ckpt_status name_frame(ckpt_onnx_reader *r, const ckpt_onnx_frame *last, ckpt_error *err) {
  const ckpt_onnx_frame *chain[CKPT_ONNX_MAX_DEPTH + 1], *in = NULL;
  int n = 0;
  for (const ckpt_onnx_frame *frame = last; frame != NULL; frame = frame->parent) chain[n++] = frame;
  r->name[0] = '\0';
  while (n-- > 0) {
    in = n == 0 ? NULL : chain[n - 1];
    CKPT_TRY(append_frame(r, (ckpt_onnx_frame *)(uintptr_t)chain[n], in, err)); /* it keeps its label */
  }
  return CKPT_OK;
}

/* ---- the walk ---------------------------------------------------------------------------------------------------- */

/* What stands in a node is a constant, which nothing trains. */
static ckpt_role role_of(const ckpt_onnx_reader *r, const ckpt_onnx_frame *tensor) {
  const ckpt_onnx_frame *around = tensor->parent->kind == SPARSE ? tensor->parent->parent : tensor->parent;
  return around->kind == ATTRIBUTE ? CKPT_ROLE_BUFFER : ckpt_role_of_name(r->name);
}

/* Tensor and slot under the name that was read, of one that is broken: what comes after it has its own numbers. */
static ckpt_status add_broken(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, uint32_t n_before, ckpt_error *err) {
  struct ckpt_graph *graph = r->graph;
  ckpt_index *index = r->index;
  if (index->n_tensors == n_before)
    CKPT_TRY(ckpt_index_add_broken(index, r->name, role_of(r, frame), r->wire.file, err));
  ckpt_index_break(index, n_before, index->n_tensors);
  graph->n_slots = n_before;
  if (index->n_tensors == n_before) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&graph->slots, graph->n_slots, &graph->slot_capacity, sizeof *graph->slots, err));
  graph->slots[graph->n_slots++] = (ckpt_onnx_slot){.field = 0};
  return CKPT_OK;
}

/* Adds a name that stands in the file to a list. One that is as long as no tensor's can be is none. */
static ckpt_status take_name(ckpt_onnx_reader *r, ckpt_onnx_names *names, uint64_t at, uint64_t n, ckpt_error *err) {
  if (n == 0 || n >= sizeof r->name) return CKPT_OK;
  char *name = ckpt_arena_alloc(&r->index->arena, (size_t)n + 1);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_wire_bytes(&r->wire, at, name, n, err));
  CKPT_TRY(ckpt_grow(&names->items, names->n, &names->capacity, sizeof *names->items, err));
  names->items[names->n++] = name;
  return CKPT_OK;
}

/* Whether a name ends as those of cast tensors do. */
static ckpt_status ends_as_cast(ckpt_onnx_reader *r, uint64_t at, uint64_t n, bool *does, ckpt_error *err) {
  char text[N_CAST];
  *does = n > N_CAST;
  if (!*does) return CKPT_OK;
  CKPT_TRY(ckpt_wire_bytes(&r->wire, at + n - N_CAST, text, N_CAST, err));
  *does = memcmp(text, CKPT_ONNX_CAST, N_CAST) == 0;
  return CKPT_OK;
}

/* A name of the graph's: where it ends so, no cast tensor can have it. */
static ckpt_status take_taken(ckpt_onnx_reader *r, uint64_t at, uint64_t n, ckpt_error *err) {
  bool does;
  CKPT_TRY(ends_as_cast(r, at, n, &does, err));
  return does ? take_name(r, &r->taken, at, n - N_CAST, err) : CKPT_OK;
}

/* A node of the model's own graph with this input is a cast of ours where it is a Cast of it to its name. */
static ckpt_status take_cast(ckpt_onnx_reader *r, ckpt_onnx_frame *node, uint64_t at, uint64_t n, ckpt_error *err) {
  char type[4], input[sizeof r->name], output[sizeof r->name];
  uint64_t type_at = 0, n_type = 0;
  bool does;
  CKPT_TRY(ends_as_cast(r, at, n, &does, err));
  if (!does) return CKPT_OK;
  CKPT_TRY(find_bytes(r, node->at, node->end, 4, &type_at, &n_type, err));
  CKPT_TRY(find_label(r, node, err));
  if (n_type != sizeof type || node->n_label != n - N_CAST || node->n_label >= sizeof r->name) return CKPT_OK;
  CKPT_TRY(ckpt_wire_bytes(&r->wire, type_at, type, sizeof type, err));
  CKPT_TRY(ckpt_wire_bytes(&r->wire, at, input, node->n_label, err));
  CKPT_TRY(ckpt_wire_bytes(&r->wire, node->label_at, output, node->n_label, err));
  if (memcmp(type, "Cast", sizeof type) != 0 || memcmp(input, output, node->n_label) != 0) return CKPT_OK;
  return take_name(r, &r->casts, node->label_at, node->n_label, err);
}

static ckpt_status read_tensor(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, ckpt_error *err) {
  const uint32_t n_before = r->index->n_tensors;
  bool is_read;
  CKPT_TRY(name_frame(r, frame, err));
  const bool is_outer = frame->parent->kind == GRAPH && frame->parent->parent->kind == MODEL;
  r->n_name_bytes += frame->parent->kind == GRAPH ? 0 : strlen(r->name); /* else they stand in the file */
  if (r->n_name_bytes > MAX_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, r->wire.path, r->name, "the names of constants take more than %d bytes",
                     MAX_NAME_BYTES);
  ckpt_status status = ckpt_onnx_read_tensor(r, frame, frame->parent->kind == GRAPH, &is_read, err);
  (void)ckpt_fail_at(status, err, r->wire.path, r->name);
  if (status != CKPT_OK && r->index->defects.report != NULL) CKPT_TRY(add_broken(r, frame, n_before, NULL));
  CKPT_TRY(status);
  if (!is_read) return CKPT_OK;
  ckpt_onnx_slot *slot = &r->graph->slots[r->graph->n_slots - 1];
  slot->is_outer = is_outer;
  r->index->tensors[r->graph->n_slots - 1].role = (uint8_t)role_of(r, frame);
  if (!is_outer && frame->parent->kind == GRAPH) CKPT_TRY(take_taken(r, frame->label_at, frame->n_label, err));
  CKPT_TRY(begin(r, (ckpt_onnx_frame *)(uintptr_t)frame->parent, err));
  CKPT_TRY(add_run(r, frame->begin, err));
  r->run_at = frame->end;
  return add_part(r, (ckpt_onnx_part){.kind = CKPT_ONNX_TENSOR, .number = r->graph->n_slots - 1}, err);
}

/* Says that two tensors that were just read are one: `name.values` at `name.indices`. */
static ckpt_status add_sparse(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, uint32_t first, uint32_t rank,
                              const uint64_t *shape, ckpt_error *err) {
  const ckpt_index *index = r->index;
  const uint32_t n_parts = index->n_tensors - first;
  if (n_parts == 1 && index->tensors[first].n_elements != 0 &&
      index->tensors[first].details->extent_form != CKPT_EXTENT_BROKEN)
    return ckpt_index_note(r->index, true, err, "the sparse tensor of '%s' has no values, or they have no indices",
                           index->tensors[first].name);
  if (n_parts != 2 || rank > CKPT_MAX_RANK) return CKPT_OK;
  const char *components[] = {index->tensors[first].name, index->tensors[first + 1].name, NULL};
  CKPT_TRY(name_frame(r, frame, err));
  const ckpt_composite composite = {.name = r->name,
                                    .kind = CKPT_COMPOSITE_SPARSE_COO,
                                    .dtype = (ckpt_dtype)index->tensors[first].dtype,
                                    .rank = rank,
                                    .shape = shape,
                                    .components = components};
  return ckpt_index_add_composite(r->index, &composite, err);
}

/* The dims of a sparse tensor, packed or not; *rank counts on beyond those that are kept. */
static ckpt_status take_dims(ckpt_onnx_reader *r, const ckpt_wire_field *field, uint32_t *rank, uint64_t *shape,
                             ckpt_error *err) {
  const uint64_t end = r->wire.end;
  r->wire.at = field->at;
  r->wire.end = field->at + field->n;
  while (r->wire.at < r->wire.end) {
    uint64_t value;
    CKPT_TRY(ckpt_wire_varint(&r->wire, &value, err));
    if (value > INT64_MAX)
      return ckpt_fail(err, CKPT_EFORMAT, r->wire.path, NULL, "a sparse tensor at byte %llu has an axis of %lld",
                       (ull)field->begin, (long long)value);
    if (*rank < CKPT_MAX_RANK) shape[*rank] = value;
    *rank += *rank <= CKPT_MAX_RANK;
  }
  r->wire.end = end;
  return CKPT_OK;
}

static ckpt_status walk(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, int depth, ckpt_error *err);

/* A field that may hold tensors. What is broken in it is passed where all defects are asked for: its end is known. */
static ckpt_status walk_child(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, const ckpt_wire_field *field,
                              message_kind kind, uint64_t number, int depth, ckpt_error *err) {
  ckpt_onnx_frame child = {.parent = frame,
                           .kind = (uint8_t)kind,
                           .field = field->number,
                           .number = number,
                           .begin = field->begin,
                           .at = field->at,
                           .end = field->at + field->n};
  CKPT_TRY(ckpt_wire_expect(&r->wire, field, CKPT_WIRE_BYTES, kind_names[frame->kind], err));
  if (depth == CKPT_ONNX_MAX_DEPTH)
    return ckpt_fail(err, CKPT_ELIMIT, r->wire.path, NULL,
                     "more than %d messages in each other at byte %llu (graphs within graphs)", CKPT_ONNX_MAX_DEPTH,
                     (ull)field->begin);
  r->n_nodes += kind == NODE;
  if (frame->kind == MODEL && kind == GRAPH && number == 0) /* protobuf merges several: casts go to the front of all */
    CKPT_TRY(begin(r, &child, err));
  ckpt_status status = kind == TENSOR ? read_tensor(r, &child, &r->defect) : walk(r, &child, depth + 1, &r->defect);
  (void)ckpt_fail_at(status, &r->defect, r->wire.path, NULL);
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &r->defect, err));
  r->wire.at = child.end;
  r->wire.end = frame->end;
  return CKPT_OK;
}

/* An input of a graph; those of the model's own are names that no node can have. */
static ckpt_status take_input(ckpt_onnx_reader *r, const ckpt_onnx_frame *graph, const ckpt_wire_field *field,
                              ckpt_error *err) {
  uint64_t at = 0, n = 0;
  if (field->type == CKPT_WIRE_BYTES) CKPT_TRY(find_bytes(r, field->at, field->at + field->n, 1, &at, &n, err));
  if (graph->parent->kind == MODEL) CKPT_TRY(take_name(r, &r->inputs, at, n, err));
  return take_taken(r, at, n, err);
}

/* An input or output of a node. */
static ckpt_status take_operand(ckpt_onnx_reader *r, ckpt_onnx_frame *node, const ckpt_wire_field *field,
                                ckpt_error *err) {
  const ckpt_onnx_frame *graph = node->parent;
  if (field->type != CKPT_WIRE_BYTES) return CKPT_OK;
  if (field->number == 2) return take_taken(r, field->at, field->n, err);
  if (graph->kind != GRAPH || graph->parent->kind != MODEL) return CKPT_OK;
  return take_cast(r, node, field->at, field->n, err);
}

/* Which fields of a model are unpacked: version, producer, operators, metadata. */
static bool is_said(uint32_t number) { return number <= 3 || number == 8 || number == 14; }

static ckpt_status walk(ckpt_onnx_reader *r, ckpt_onnx_frame *frame, int depth, ckpt_error *err) {
  const uint32_t first = r->index->n_tensors;
  uint64_t shape[CKPT_MAX_RANK], numbers[NO_MESSAGE] = {0};
  uint32_t rank = 0;
  r->wire.at = frame->at;
  r->wire.end = frame->end;
  while (r->wire.at < frame->end) {
    ckpt_wire_field field;
    CKPT_TRY(ckpt_wire_next(&r->wire, &field, err));
    const message_kind kind = kind_of((message_kind)frame->kind, field.number);
    if (kind != NO_MESSAGE)
      CKPT_TRY(walk_child(r, frame, &field, kind, numbers[kind]++, depth, err));
    else if (frame->kind == MODEL && is_said(field.number))
      CKPT_TRY(ckpt_onnx_outline_add(&r->model, &r->wire, &onnx__model_proto__descriptor, &field, err));
    else if (frame->kind == GRAPH && field.number == 11)
      CKPT_TRY(take_input(r, frame, &field, err));
    else if (frame->kind == NODE && field.number <= 2)
      CKPT_TRY(take_operand(r, frame, &field, err));
    else if (frame->kind == SPARSE && field.number == 3)
      CKPT_TRY(take_dims(r, &field, &rank, shape, err));
  }
  if (frame->kind == SPARSE) CKPT_TRY(add_sparse(r, frame, first, rank, shape, err));
  return end(r, frame, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void sort(ckpt_onnx_names *names) {
  if (names->n != 0) qsort(names->items, names->n, sizeof *names->items, compare_names);
}

/* Initializers that casts of ours stand before have the names that these make. */
static ckpt_status name_casts(ckpt_onnx_reader *r, ckpt_error *err) {
  struct ckpt_graph *graph = r->graph;
  sort(&r->casts);
  for (uint32_t i = 0; i < graph->n_slots; i++) {
    ckpt_tensor *tensor = &r->index->tensors[i];
    const size_t n = strlen(tensor->name);
    if (!graph->slots[i].is_outer || n <= N_CAST || !ckpt_text_ends(tensor->name, CKPT_ONNX_CAST)) continue;
    const char *name = ckpt_arena_text(&r->index->arena, tensor->name, n - N_CAST);
    CKPT_TRY_ALLOC(name, err);
    graph->slots[i].is_cast =
        r->casts.n != 0 && bsearch(&name, r->casts.items, r->casts.n, sizeof name, compare_names) != NULL;
    if (graph->slots[i].is_cast) {
      tensor->name = name;
      tensor->role = (uint8_t)ckpt_role_of_name(name);
      continue;
    }
    CKPT_TRY(ckpt_grow(&r->taken.items, r->taken.n, &r->taken.capacity, sizeof name, err));
    r->taken.items[r->taken.n++] = name;
  }
  return CKPT_OK;
}

/* Names into the index's arena, sorted. */
static ckpt_status keep_names(ckpt_onnx_reader *r, ckpt_onnx_names *names, ckpt_onnx_names *out, ckpt_error *err) {
  sort(names);
  *out = (ckpt_onnx_names){.items = ckpt_arena_array(&r->index->arena, names->n, sizeof *out->items), .n = names->n};
  CKPT_TRY_ALLOC(out->items, err);
  if (names->n != 0) memcpy(out->items, names->items, names->n * sizeof *names->items);
  return CKPT_OK;
}

/* The skeleton into the index's arena. */
static ckpt_status keep_graph(ckpt_onnx_reader *r, ckpt_error *err) {
  struct ckpt_graph *graph = r->graph;
  CKPT_TRY(keep_names(r, &r->inputs, &graph->inputs, err));
  CKPT_TRY(keep_names(r, &r->taken, &graph->taken, err));
  ckpt_onnx_part *parts = ckpt_arena_array(&r->index->arena, graph->n_parts, sizeof *parts);
  ckpt_onnx_slot *slots = ckpt_arena_array(&r->index->arena, graph->n_slots, sizeof *slots);
  if (parts == NULL || slots == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (graph->n_parts != 0) memcpy(parts, graph->parts, graph->n_parts * sizeof *parts);
  if (graph->n_slots != 0) memcpy(slots, graph->slots, graph->n_slots * sizeof *slots);
  free(graph->parts), free(graph->slots);
  graph->parts = parts, graph->slots = slots;
  r->index->graph = graph;
  r->index->n_nodes = r->n_nodes;
  return CKPT_OK;
}

static ckpt_status note(const ckpt_onnx_reader *r, ckpt_error *err) {
  if (r->n_packed != 0)
    CKPT_TRY(ckpt_index_note(r->index, false, err, "%llu tensor%s of 2 or 4 bits %s read as packed bytes (u8)",
                             (ull)r->n_packed, ckpt_plural(r->n_packed), r->n_packed == 1 ? "is" : "are"));
  if (r->n_unread == 0) return CKPT_OK;
  return ckpt_index_note(r->index, false, err, "%llu tensor%s of texts or of more than %d axes %s not read",
                         (ull)r->n_unread, ckpt_plural(r->n_unread), CKPT_MAX_RANK, r->n_unread == 1 ? "is" : "are");
}

static void free_reader(ckpt_onnx_reader *r, bool is_kept) {
  if (r == NULL) return;
  if (!is_kept && r->graph != NULL) free(r->graph->parts), free(r->graph->slots);
  free(r->inputs.items), free(r->taken.items), free(r->casts.items);
  free(r->model.bytes), free(r->tensor.bytes), free(r->runs);
  free(r);
}

static ckpt_status read_all(ckpt_onnx_reader *r, bool *is_kept, ckpt_error *err) {
  ckpt_onnx_frame model = {.kind = MODEL, .end = r->wire.end};
  CKPT_TRY(walk(r, &model, 1, err));
  CKPT_TRY(add_run(r, model.end, err));
  ckpt_status status = ckpt_onnx_read_model(r->index, &r->model, r->wire.path, &r->defect);
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &r->defect, err));
  CKPT_TRY(note(r, err));
  CKPT_TRY(name_casts(r, err));
  CKPT_TRY(keep_graph(r, err));
  *is_kept = true;
  return CKPT_OK;
}

/* Which two have a name: one of them may be a name that was made. */
static ckpt_status say_two(const ckpt_index *index, ckpt_error *err) {
  const ckpt_onnx_slot *slots = index->graph->slots, *first = NULL;
  char name[sizeof err->tensor];
  if (err == NULL) return CKPT_EFORMAT;
  memcpy(name, err->tensor, sizeof name);
  for (uint32_t i = 0; i < index->graph->n_slots && name[0] != '\0'; i++) {
    if (strcmp(index->tensors[i].name, name) != 0) continue;
    if (first != NULL) *err = (ckpt_error){.status = CKPT_OK}; /* in place of what was said */
    if (first != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, ckpt_index_file_of(index, &index->tensors[i]), name,
                       "is the name of %s at byte %llu and of %s at byte %llu",
                       first->is_initializer ? "an initializer" : "a constant or sparse part", (ull)first->at,
                       slots[i].is_initializer ? "an initializer" : "a constant or sparse part", (ull)slots[i].at);
    first = &slots[i];
  }
  return CKPT_EFORMAT;
}

ckpt_status ckpt_onnx_read(ckpt_index *index, const char *name, const ckpt_open_options *options, ckpt_error *err) {
  uint32_t file = 0; /* of a source in memory */
  uint64_t size;
  bool is_kept = false;
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  ckpt_onnx_reader *r = calloc(1, sizeof *r);
  CKPT_TRY_ALLOC(r, err);
  r->index = index;
  r->graph = ckpt_arena_alloc(&index->arena, sizeof *r->graph);
  r->wire.source = index->source;
  r->wire.file = file;
  r->wire.path = ckpt_source_path(index->source, file);
  r->wire.end = ckpt_source_size(index->source, file);
  ckpt_status status = r->graph == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK) {
    r->graph->source = index->source;
    r->graph->file = file;
    status = read_all(r, &is_kept, err);
  }
  (void)ckpt_fail_at(status, err, r->wire.path, NULL);
  free_reader(r, is_kept);
  CKPT_TRY(status);
  status = ckpt_index_canonical_names(index, options->stored_names, options->like, err);
  if (status == CKPT_OK) status = ckpt_index_finish(index, err);
  return status == CKPT_EFORMAT ? say_two(index, err) : status;
}
