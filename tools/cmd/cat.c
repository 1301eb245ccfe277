/* cat.c - `ckpt cat`: the values of one tensor, or of a box of it, read in blocks of a few MiB.
 *
 * Floats of at most 32 bits are read as f32, which holds each of them exactly, and printed with as many digits as it
 * takes to read them back. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/format/objects.h"
#include "libckpt/run/read.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/object_json.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"
#include "tools/report/slice.h"

enum { BLOCK_ELEMENTS = 1 << 18 }; /* a multiple of every dtype's block */

/* A slice in row-major order, block by block. */
typedef struct block_reader {
  const ckpt_index *index;
  const ckpt_slice *slice;
  ckpt_dtype as;
  uint32_t axis;    /* blocks are ranges of this axis, whole in those after it, one index in those before */
  uint64_t n_inner; /* elements of one step along it */
  ckpt_box at;      /* the block to be read next; count[axis] is set when it is */
  uint8_t *block;
  uint64_t n_block;           /* elements in it */
  uint64_t n_left;            /* elements of the slice not read yet */
  ckpt_record_checks *checks; /* of all of the tensor; NULL: of a part, or without checksums */
} block_reader;

static ckpt_status begin_blocks(block_reader *out, const ckpt_index *index, const ckpt_slice *slice, bool raw,
                                ckpt_error *err) {
  ckpt_dtype stored = (ckpt_dtype)slice->tensor->dtype;
  bool is_block = ckpt_dtype_is_block(stored);
  bool widen = !raw && (is_block || (ckpt_dtype_is_float(stored) && stored != CKPT_F64));
  uint32_t rank = slice->tensor->rank;
  *out =
      (block_reader){.index = index, .slice = slice, .as = widen ? CKPT_F32 : stored, .n_inner = 1, .at = slice->box};
  out->n_left = slice->n_elements;
  if (out->n_left == 0) return CKPT_OK;
  for (out->axis = rank == 0 ? 0 : rank - 1; out->axis > 0; out->axis--) {
    if (out->n_inner * slice->box.count[out->axis] > BLOCK_ELEMENTS / 8) break; /* counts are not zero here */
    out->n_inner *= slice->box.count[out->axis];
  }
  for (uint32_t i = 0; i < out->axis; i++) out->at.count[i] = 1;
  const ckpt_dtype_row *row = ckpt_dtype_get(out->as);
  out->block = calloc(BLOCK_ELEMENTS / row->block_elements, row->block_bytes);
  CKPT_TRY_ALLOC(out->block, err);
  return CKPT_OK;
}

/* The block after the last one: along the axis, then the axes before it, as an odometer. */
static void advance(block_reader *reader) {
  const ckpt_box *box = &reader->slice->box;
  uint32_t i = reader->axis;
  reader->at.start[i] += reader->at.count[i];
  while (i > 0 && reader->at.start[i] == box->start[i] + box->count[i]) {
    reader->at.start[i] = box->start[i];
    reader->at.start[--i]++;
  }
}

/* Reads the next block; n_block is 0 after the last one. */
static ckpt_status next_block(block_reader *reader, ckpt_error *err) {
  const ckpt_tensor *tensor = reader->slice->tensor;
  const ckpt_box *box = &reader->slice->box;
  reader->n_block = 0;
  if (reader->n_left == 0) return CKPT_OK;
  uint64_t n_steps = 1;
  if (tensor->rank > 0) {
    uint64_t n_rest = box->start[reader->axis] + box->count[reader->axis] - reader->at.start[reader->axis];
    n_steps = BLOCK_ELEMENTS / reader->n_inner;
    uint32_t unit = ckpt_dtype_get(reader->as)->block_elements; /* where raw bytes have to end */
    if (n_steps > unit) n_steps -= n_steps % unit;
    if (n_steps > n_rest) n_steps = n_rest;
    reader->at.count[reader->axis] = n_steps;
  }
  uint64_t n_bytes;
  reader->n_block = n_steps * reader->n_inner;
  if (!ckpt_dtype_bytes(reader->as, reader->n_block, &n_bytes))
    return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name,
                     "--raw gives whole bytes, and %u elements of %s share them (take a multiple, or leave out --raw)",
                     ckpt_dtype_get(reader->as)->block_elements, ckpt_dtype_name(reader->as));
  CKPT_TRY(ckpt_read_piece(reader->index, tensor, tensor->rank == 0 ? NULL : &reader->at, reader->as, reader->block,
                           n_bytes, reader->checks, err));
  reader->n_left -= reader->n_block;
  if (reader->n_left > 0) advance(reader);
  return CKPT_OK;
}

/* ---- one value --------------------------------------------------------------------------------------------------- */

typedef struct scalar {
  ckpt_dtype_kind kind;
  bool is_single;   /* parts came from 32 bits, and are printed with the digits that those need */
  double parts[2];  /* FLOAT: the first; COMPLEX: both */
  uint64_t integer; /* BOOL, UINT, INT (sign-extended) */
} scalar;

/* The i-th element of a block; the machine is little-endian, as the bytes are. */
static scalar scalar_at(ckpt_dtype dtype, const uint8_t *block, uint64_t i) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  const uint8_t *at = block + i * row->block_bytes;
  scalar value = {.kind = row->kind, .is_single = dtype == CKPT_F32 || dtype == CKPT_C64};
  if (row->kind != CKPT_KIND_FLOAT && row->kind != CKPT_KIND_COMPLEX) {
    unsigned n_unused = 64 - 8 * row->block_bytes;
    memcpy(&value.integer, at, row->block_bytes);
    if (row->kind == CKPT_KIND_INT) value.integer = (uint64_t)((int64_t)(value.integer << n_unused) >> n_unused);
    return value;
  }
  for (size_t part = 0; part < (row->kind == CKPT_KIND_COMPLEX ? 2 : 1); part++) {
    float single;
    memcpy(&single, at + part * sizeof single, sizeof single);
    value.parts[part] = (double)single;
    if (!value.is_single) memcpy(&value.parts[part], at + part * sizeof(double), sizeof(double));
  }
  return value;
}

static void print_part(const scalar *value, int part, const char *plus) {
  char text[32];
  if (value->is_single)
    ckpt_text_float((float)value->parts[part], text);
  else
    ckpt_text_number(value->parts[part], text);
  printf("%s%s", text[0] == '-' ? "" : plus, text);
}

static void print_value(const scalar *value) {
  switch (value->kind) {
    case CKPT_KIND_NONE:
    case CKPT_KIND_BLOCK: break; /* read as f32 */
    case CKPT_KIND_BOOL: fputs(value->integer ? "true" : "false", stdout); break;
    case CKPT_KIND_UINT: printf("%" PRIu64, value->integer); break;
    case CKPT_KIND_INT: printf("%" PRId64, (int64_t)value->integer); break;
    case CKPT_KIND_FLOAT: print_part(value, 0, ""); break;
    case CKPT_KIND_COMPLEX:
      print_part(value, 0, "");
      print_part(value, 1, "+");
      putchar('j');
      break;
  }
}

static void write_part(ckpt_emitter *json, const char *key, const scalar *value, int part) {
  if (value->is_single)
    ckpt_emit_float(json, key, (float)value->parts[part]);
  else
    ckpt_emit_number(json, key, value->parts[part]);
}

static void write_value(ckpt_emitter *json, const char *key, const scalar *value) {
  switch (value->kind) {
    case CKPT_KIND_NONE:
    case CKPT_KIND_BLOCK: break; /* read as f32 */
    case CKPT_KIND_BOOL: ckpt_emit_bool(json, key, value->integer != 0); break;
    case CKPT_KIND_UINT: ckpt_emit_u64(json, key, value->integer); break;
    case CKPT_KIND_INT: ckpt_emit_i64(json, key, (int64_t)value->integer); break;
    case CKPT_KIND_FLOAT: write_part(json, key, value, 0); break;
    case CKPT_KIND_COMPLEX:
      ckpt_emit_array(json, key);
      write_part(json, NULL, value, 0);
      write_part(json, NULL, value, 1);
      ckpt_emit_end(json);
      break;
  }
}

/* ---- three ways to print them; the first block has been read ---------------------------------------------------- */

static ckpt_status print_raw(block_reader *reader, ckpt_error *err) {
  while (reader->n_block > 0 && !ferror(stdout)) {
    uint64_t n_bytes;
    if (!ckpt_dtype_bytes(reader->as, reader->n_block, &n_bytes)) return CKPT_EINTERNAL;
    fwrite(reader->block, 1, n_bytes, stdout);
    CKPT_TRY(next_block(reader, err));
  }
  return CKPT_OK;
}

/* How many axes of the result, from the last, end with element number i. */
static uint32_t axes_ended(const ckpt_slice *slice, uint64_t i) {
  uint32_t n = 0;
  uint64_t product = 1;
  while (n < slice->rank) {
    product *= slice->shape[slice->rank - 1 - n];
    if ((i + 1) % product != 0) break;
    n++;
  }
  return n;
}

/* A line per row of the last axis, an empty line wherever an outer axis ends. */
static ckpt_status print_text(block_reader *reader, ckpt_error *err) {
  uint64_t n_printed = 0, n_total = reader->slice->n_elements;
  while (reader->n_block > 0 && !ferror(stdout)) {
    for (uint64_t i = 0; i < reader->n_block; i++, n_printed++) {
      scalar value = scalar_at(reader->as, reader->block, i);
      print_value(&value);
      uint32_t n_ended = axes_ended(reader->slice, n_printed);
      bool is_last = n_printed + 1 == n_total;
      fputs(is_last || n_ended == 1 ? "\n" : n_ended > 1 ? "\n\n" : " ", stdout);
    }
    CKPT_TRY(next_block(reader, err));
  }
  return CKPT_OK;
}

enum { MAX_EMPTY_LISTS = 1 << 24 };

/* Where there is no element: numpy's tolist gives the lists down to the first axis of length 0. Their number comes from
 * the file, and is not bounded by its size; false if it is absurd. */
static bool count_empty(const ckpt_slice *slice, ckpt_slice *lists, uint64_t *n_lists) {
  *lists = *slice; /* the axes before that one */
  *n_lists = 1;
  lists->rank = 0;
  if (slice->n_elements != 0) return true;
  for (; slice->shape[lists->rank] != 0; lists->rank++)
    if (!ckpt_mul_u64(*n_lists, slice->shape[lists->rank], n_lists) || *n_lists > MAX_EMPTY_LISTS) return false;
  return true;
}

static ckpt_status write_empty(ckpt_emitter *json, const ckpt_slice *slice) {
  ckpt_slice lists;
  uint64_t n_lists;
  uint32_t n_open = 0;
  if (!count_empty(slice, &lists, &n_lists)) return CKPT_EINTERNAL; /* cat has asked */
  for (uint64_t i = 0; i < n_lists && !ferror(stdout); i++) {
    for (; n_open <= lists.rank; n_open++) ckpt_emit_array(json, n_open == 0 ? "values" : NULL);
    for (uint32_t n = axes_ended(&lists, i) + 1; n > 0; n--, n_open--) ckpt_emit_end(json);
  }
  return CKPT_OK;
}

/* Nested as the shape is. */
static ckpt_status write_values(ckpt_emitter *json, block_reader *reader, ckpt_error *err) {
  const ckpt_slice *slice = reader->slice;
  uint64_t n_written = 0;
  uint32_t n_open = 0;
  if (slice->n_elements == 0) return write_empty(json, slice);
  while (reader->n_block > 0 && !ferror(stdout)) {
    for (uint64_t i = 0; i < reader->n_block; i++, n_written++) {
      for (; n_open < slice->rank; n_open++) ckpt_emit_array(json, n_open == 0 ? "values" : NULL);
      scalar value = scalar_at(reader->as, reader->block, i);
      write_value(json, slice->rank == 0 ? "values" : NULL, &value);
      for (uint32_t n = axes_ended(slice, n_written); n > 0; n--, n_open--) ckpt_emit_end(json);
    }
    CKPT_TRY(next_block(reader, err));
  }
  return CKPT_OK;
}

static ckpt_status write_json(const ckpt_args *args, block_reader *reader, ckpt_error *err) {
  const ckpt_slice *slice = reader->slice;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "name", slice->tensor->name);
  ckpt_emit_text(&json, "dtype", ckpt_dtype_name((ckpt_dtype)slice->tensor->dtype));
  ckpt_emit_array(&json, "shape");
  for (uint32_t i = 0; i < slice->rank; i++) ckpt_emit_u64(&json, NULL, slice->shape[i]);
  ckpt_emit_end(&json);
  CKPT_TRY(write_values(&json, reader, err));
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
  return CKPT_OK;
}

static uint64_t bytes_of_block(const block_reader *reader) {
  const ckpt_dtype_row *as = ckpt_dtype_get(reader->as);
  return BLOCK_ELEMENTS / as->block_elements * as->block_bytes;
}

static ckpt_status check_memory(const ckpt_args *args, const block_reader *reader, ckpt_error *err) {
  const uint64_t memory = ckpt_args_size(args, "memory", UINT64_MAX), needed = bytes_of_block(reader);
  if (memory >= needed) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL,
                   "the memory limit of %llu byte%s is too low: at least %llu are needed (raise --memory)",
                   (unsigned long long)memory, ckpt_plural(memory), (unsigned long long)needed);
}

/* --plan: the slice, and what is read for it. */
static ckpt_status show_plan(const ckpt_args *args, const block_reader *reader, ckpt_error *err) {
  const ckpt_slice *slice = reader->slice;
  ckpt_planned planned = {.peak = bytes_of_block(reader)};
  CKPT_TRY(ckpt_read_cost(reader->index, slice->tensor, slice->tensor->rank == 0 ? NULL : &slice->box,
                          &planned.n_bytes_read, &planned.n_bytes_fetched, err));
  char row[256];
  snprintf(row, sizeof row, "%" PRIu64 " of %" PRIu64 " element%s of %.150s, %s", slice->n_elements,
           slice->tensor->n_elements, ckpt_plural(slice->tensor->n_elements), slice->tensor->name,
           ckpt_dtype_name((ckpt_dtype)slice->tensor->dtype));
  ckpt_proving_plan(args, row, &planned);
  return CKPT_OK;
}

static ckpt_status cat(const ckpt_args *args, const ckpt_index *index, ckpt_error *err) {
  ckpt_slice slice;
  block_reader reader = {0};
  bool raw = ckpt_args_has(args, "raw");
  if (raw && args->json) return ckpt_args_fail(args, err, "--raw and --json exclude each other");
  if (raw && isatty(STDOUT_FILENO) && !ckpt_args_has(args, "plan"))
    return ckpt_args_fail(args, err, "--raw is not for a terminal (redirect it)");
  CKPT_TRY(ckpt_slice_parse(&slice, index, args->inputs[1], err));
  ckpt_slice lists;
  uint64_t n_lists;
  if (args->json && !count_empty(&slice, &lists, &n_lists))
    return ckpt_fail(err, CKPT_ELIMIT, index->path, slice.tensor->name,
                     "no elements, and more than %d empty lists (take a slice of it)", MAX_EMPTY_LISTS);
  ckpt_status status = begin_blocks(&reader, index, &slice, raw, err);
  if (status == CKPT_OK) status = check_memory(args, &reader, err);
  if (status == CKPT_OK && ckpt_args_has(args, "plan")) {
    status = show_plan(args, &reader, err);
    free(reader.block);
    return status;
  }
  if (status == CKPT_OK && slice.n_elements == slice.tensor->n_elements)
    status = ckpt_read_checks_new(&reader.checks, index, slice.tensor, err);
  if (status == CKPT_OK)
    status = next_block(&reader, err); /* before anything is printed: most failures are seen here */
  if (status == CKPT_OK && args->json)
    status = write_json(args, &reader, err);
  else if (status == CKPT_OK)
    status = (raw ? print_raw : print_text)(&reader, err);
  status = ckpt_read_checks_end(reader.checks, index, slice.tensor, status, err);
  free(reader.block);
  return ckpt_fail_at(status, err, index->path, slice.tensor->name);
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

/* The object of this name, or of this path into one; NULL: there is none, or a tensor is called so. */
static ckpt_status find_object(const ckpt_object **out, ckpt_args *args, ckpt_index *index, ckpt_error *err) {
  const ckpt_named_object *list;
  size_t n;
  *out = NULL;
  if (ckpt_index_find(index, args->inputs[1]) != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_objects_list(&list, &n, index, &args->arena, err));
  *out = ckpt_objects_find(list, n, args->inputs[1]);
  return CKPT_OK;
}

/* An object as JSON; of bytes or text, with --raw, these. */
static ckpt_status cat_object(const ckpt_args *args, const ckpt_index *index, const ckpt_object *object,
                              ckpt_error *err) {
  enum { MAX_NODES = 1 << 26 };
  const char *name = args->inputs[1];
  if (ckpt_args_has(args, "raw")) {
    if (args->json) return ckpt_args_fail(args, err, "--raw and --json exclude each other");
    if (object->kind != CKPT_OBJECT_BYTES && object->kind != CKPT_OBJECT_TEXT)
      return ckpt_args_fail(args, err, "--raw gives bytes and text, and %s is a %s", name,
                            ckpt_object_kind_name(object));
    fwrite(object->bytes, 1, (size_t)object->n, stdout);
    return CKPT_OK;
  }
  if (!ckpt_object_is_printable(object, MAX_NODES))
    return ckpt_fail(err, CKPT_ELIMIT, index->path, NULL,
                     "object '%s' has more than %d values, or more than %d containers in one another (name one in it: "
                     "%s.KEY)",
                     name, MAX_NODES, CKPT_OBJECT_DEPTH, name);
  if (ckpt_args_has(args, "plan")) {
    ckpt_proving_plan(args, NULL, &(ckpt_planned){0});
    return CKPT_OK;
  }
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  if (!args->json) {
    ckpt_emit_object_value(&json, NULL, index, object);
    if (!json.is_ended) putchar('\n');
    return CKPT_OK;
  }
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "name", name);
  ckpt_emit_text(&json, "kind", ckpt_object_kind_name(object));
  ckpt_emit_object_value(&json, "value", index, object);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_input input;
  ckpt_status status = ckpt_input_open(&input, args, 0, &err);
  char weights[512];
  if (status == CKPT_OK && input.index->weights_note != 0)
    ckpt_report_note(args, "%s: %s", input.index->path, ckpt_report_weights(input.index, weights, sizeof weights));
  if (status == CKPT_OK) ckpt_report_no_trace(args);
  const ckpt_object *object = NULL;
  if (status == CKPT_OK) status = find_object(&object, args, input.index, &err);
  if (status == CKPT_OK)
    status = object != NULL ? cat_object(args, input.index, object, &err) : cat(args, input.index, &err);
  ckpt_input_close(&input);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_cat = {
    .name = "cat",
    .forms = "cat PATH TENSOR[a:b,c:d] [--raw]\ncat PATH OBJECT",
    .summary = "print the values of a tensor, or an object",
    .details =
        "Give a range per axis as in Python, without a step: a:b, a:, :b, :, or one index. Negative numbers "
        "count from the end. Axes without a range are printed whole. Quote the argument, since the shell "
        "interprets brackets. Prints a line per row of the last axis, with enough digits to read each value "
        "back exactly.\n"
        "\n"
        "  ckpt cat model.safetensors 'model.norm.weight[0:8]'\n"
        "\n"
        "What is no tensor (`ckpt inspect` lists the objects) is printed as JSON, whole; names and numbers with dots "
        "between lead into it. With --raw an object that is bytes or text is printed as such.\n"
        "\n"
        "  ckpt cat checkpoint-500/ optimizer.param_groups.0.lr",
    .json =
        "{\"status\",\"name\",\"dtype\",\"shape\",\"values\",\"notes\":[]}: values nested as the shape is; NaN and "
        "infinities are "
        "null, complex numbers [re,im]; of an object {\"status\",\"name\",\"kind\",\"value\",\"notes\":[]}: NaN and "
        "infinities are "
        "text there, bytes \"<n bytes>\", tensors \"<tensor NAME>\"",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 2,
    .max_inputs = 2,
    .n_paths = 1,
    .run = run,
};
