/* load.c - weights into memory through a plan of the library, and rows of a plan that saves them.
 *
 * A row for each parameter: read, cast to what its place wants (f32 of the flat buffer) where it is stored otherwise.
 * The output is a format of this file alone: each tensor is a file of its own, and the sink of those files is the
 * places. So any source, shards, derived tensors and block types come as they come to every verb, and nothing here
 * reads a byte. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/format/findings.h"
#include "libckpt/io/sink.h"
#include "libckpt/plan/equal.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "trainer/model/model.h"

/* Whether llama.cpp's loader takes a GGUF file of a known family: what it refuses, it computes nothing with. */
static ckpt_status check_gguf(const ckpt_index *index, ckpt_error *err) {
  const ckpt_index *stored = index->stored_form == NULL ? index : index->stored_form;
  ckpt_findings findings = {0};
  if (ckpt_dialect_of_gguf(stored) == NULL) return CKPT_OK;
  ckpt_status status = ckpt_dialect_check(&findings, stored, NULL, 0, err);
  for (size_t i = 0; i < findings.n && status == CKPT_OK; i++)
    if (findings.items[i].kind == CKPT_PROBLEM)
      status = ckpt_fail(err, CKPT_EFORMAT, index->path, findings.items[i].tensor, "%s", findings.items[i].message);
  ckpt_findings_free(&findings);
  return status;
}

/* A tensor that is in a GGUF file takes part in what llama.cpp computes. */
static ckpt_status check_all_used(const ckpt_index *index, const ckpt_model *model, ckpt_error *err) {
  const ckpt_tensor *first;
  const uint32_t n = ckpt_model_unused(index, model, &first);
  if (n == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, first->name,
                   "llama.cpp computes with it, and %s is run without it here (%" PRIu32 " tensor%s)",
                   model->architecture, n, ckpt_plural(n));
}

/* What a GGUF model's metadata says instead of a config.json; *out stays NULL where there is none. */
static ckpt_status open_gguf(ckpt_model **out, ckpt_index *index, const ckpt_model_options *options, ckpt_error *err) {
  const char *text;
  *out = NULL;
  CKPT_TRY(check_gguf(index, err));
  CKPT_TRY(ckpt_dialect_config(&text, index, &index->arena, err));
  if (text == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_model_new(out, text, strlen(text), index->path, options, err));
  ckpt_status status = check_all_used(index, *out, err);
  if (status != CKPT_OK) {
    ckpt_model_free(*out);
    *out = NULL;
  }
  return status;
}

ckpt_status ckpt_model_open(ckpt_model **out, ckpt_index *index, ckpt_index *like, const ckpt_model_options *options,
                            ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  const char *text;
  if (side == NULL && like == NULL) {
    CKPT_TRY(open_gguf(out, index, options, err));
    if (*out != NULL) return CKPT_OK;
  }
  if (side == NULL && like != NULL) {
    index = like;
    side = ckpt_index_side_file(like, "config.json");
  }
  if (side == NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL,
                     "no config.json says what model this is (--like MODEL names one that has it)");
  CKPT_TRY(ckpt_index_side_text(index, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  return ckpt_model_new(out, text, strlen(text), ckpt_index_side_path(index, side), options, err);
}

/* ---- memory as an output --------------------------------------------------------------------------------------------
 */

/* A file: a parameter's place. */
typedef struct memory_file {
  char *at;
  uint64_t n_bytes;     /* of the parameter */
  uint64_t first, last; /* bytes that are kept, the first of them at `at` */
} memory_file;

typedef struct memory_sink {
  const ckpt_parameter_place *places;
  const ckpt_model *model;
  memory_file *files;
} memory_sink;

static ckpt_dtype dtype_of(const ckpt_parameter_place *place) {
  return place->dtype == CKPT_DTYPE_NONE ? CKPT_F32 : place->dtype;
}

static ckpt_status sink_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  memory_sink *s = ctx;
  s->files = calloc((size_t)n_files + 1, sizeof *s->files);
  CKPT_TRY_ALLOC(s->files, err);
  for (uint32_t i = 0; i < n_files; i++) {
    const ckpt_parameter *p = ckpt_model_find(s->model, files[i].name);
    const ckpt_parameter_place *place = p == NULL ? NULL : &s->places[p - s->model->parameters];
    uint64_t n_bytes = 0;
    if (place == NULL || !ckpt_dtype_bytes(dtype_of(place), p->n_elements, &n_bytes) || n_bytes != files[i].n_bytes)
      return ckpt_fail(err, CKPT_EINTERNAL, NULL, files[i].name, "is no parameter of %" PRIu64 " bytes",
                       files[i].n_bytes);
    s->files[i] = (memory_file){.at = place->weights, .n_bytes = n_bytes, .last = n_bytes};
    if (place->is_part) s->files[i].first = place->first * sizeof(float);
    if (place->is_part) s->files[i].last = (place->first + place->n) * sizeof(float);
  }
  return CKPT_OK;
}

static ckpt_status sink_write(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                              ckpt_error *err) {
  const memory_file *f = &((const memory_sink *)ctx)->files[file];
  if (!ckpt_range_within(offset, n_bytes, f->n_bytes))
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a write past a parameter's end");
  const uint64_t begin = offset > f->first ? offset : f->first;
  const uint64_t end = offset + n_bytes < f->last ? offset + n_bytes : f->last;
  if (begin < end) memcpy(f->at + (begin - f->first), (const char *)src + (begin - offset), end - begin);
  return CKPT_OK;
}

static ckpt_status sink_read(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const memory_file *f = &((const memory_sink *)ctx)->files[file];
  if (offset < f->first || !ckpt_range_within(offset, n_bytes, f->last))
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a read of what is not kept of a parameter");
  if (n_bytes > 0) memcpy(dst, f->at + (offset - f->first), n_bytes);
  return CKPT_OK;
}

static ckpt_status sink_done(void *ctx, ckpt_error *err) {
  (void)ctx, (void)err;
  return CKPT_OK;
}

static void sink_nothing(void *ctx) { (void)ctx; }

static const ckpt_sink_ops memory_ops = {.open = sink_open,
                                         .write_at = sink_write,
                                         .read_at = sink_read,
                                         .seal = sink_done,
                                         .publish = sink_done,
                                         .abandon = sink_nothing,
                                         .close = sink_nothing};

static ckpt_status lay_out(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  (void)options;
  for (uint32_t i = 0; i < layout->index->n_tensors; i++) {
    CKPT_TRY(ckpt_layout_file_add(layout, layout->index->tensors[i].name, err));
    CKPT_TRY(ckpt_layout_tensor(layout, i, NULL, CKPT_CHECKSUM_NONE, err));
  }
  return CKPT_OK;
}

static const ckpt_format memory_format = {
    .name = "memory",
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .dtypes = UINT64_C(1) << CKPT_F32 | UINT64_C(1) << CKPT_F16 | UINT64_C(1) << CKPT_BF16 | CKPT_BLOCK_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .layout = lay_out};

/* ---- loading --------------------------------------------------------------------------------------------------------
 */

const ckpt_tensor *ckpt_model_tensor(const ckpt_index *index, const ckpt_parameter *p) {
  const ckpt_tensor *tensor = ckpt_index_find(index, p->name);
  if (tensor == NULL && p->tied_name != NULL) tensor = ckpt_index_find(index, p->tied_name);
  return tensor == NULL && p->source != NULL ? ckpt_index_find(index, p->source) : tensor;
}

static bool has_name(const ckpt_model *model, const char *name) {
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    if (strcmp(p->name, name) == 0 || (p->tied_name != NULL && strcmp(p->tied_name, name) == 0)) return true;
  }
  return false;
}

uint32_t ckpt_model_unused(const ckpt_index *index, const ckpt_model *model, const ckpt_tensor **first) {
  uint32_t n = 0;
  *first = NULL;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    bool is_known = tensor->role != CKPT_ROLE_PARAMETER || has_name(model, tensor->name);
    for (const char *const *alias = tensor->aliases; !is_known && alias != NULL && *alias != NULL; alias++)
      is_known = has_name(model, *alias);
    if (is_known) continue;
    if (n++ == 0) *first = tensor;
  }
  return n;
}

static ckpt_status check_shape(const ckpt_parameter *p, const ckpt_tensor *tensor, ckpt_error *err) {
  bool is_equal = tensor->rank == p->rank;
  for (uint32_t i = 0; i < p->rank && is_equal; i++) is_equal = tensor->shape[i] == p->shape[i];
  if (is_equal) return CKPT_OK;
  const uint64_t *has = tensor->shape;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, p->name,
                   "has shape [%" PRIu64 "%s%" PRIu64 "] of rank %u, the model's config makes it [%" PRIu64 "%s%" PRIu64
                   "] of rank %u",
                   tensor->rank > 0 ? has[0] : 1, tensor->rank > 1 ? ", " : " x ", tensor->rank > 1 ? has[1] : 1,
                   tensor->rank, p->shape[0], p->rank > 1 ? ", " : " x ", p->rank > 1 ? p->shape[1] : 1, p->rank);
}

ckpt_status ckpt_model_turned(ckpt_expr **out, ckpt_arena *arena, const ckpt_index *index, const ckpt_tensor *tensor,
                              ckpt_error *err) {
  ckpt_expr *x;
  *out = NULL;
  CKPT_TRY(ckpt_expr_read_in(&x, arena, index, tensor, err));
  if (x->op != &ckpt_op_permute || x->rank != 2 || x->args[0]->op != &ckpt_op_dequantize) return CKPT_OK;
  const ckpt_order_params *order = x->params;
  if (order->order[0] == 1 && order->order[1] == 0) *out = x->args[0]->args[0];
  return CKPT_OK;
}

static ckpt_status refuse_missing(const ckpt_model *model, const ckpt_parameter *first, uint32_t n, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ENOTFOUND, NULL, first->name,
                   "is not there, and %s needs it (%u of %u parameters are missing)", model->architecture, n,
                   model->n_parameters);
}

ckpt_status ckpt_model_check(const ckpt_model *model, const ckpt_index *index, ckpt_error *err) {
  const ckpt_parameter *missing = NULL;
  uint32_t n_missing = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    const ckpt_tensor *tensor = ckpt_model_tensor(index, p);
    if (tensor != NULL) CKPT_TRY(check_shape(p, tensor, err));
    if (tensor == NULL && n_missing++ == 0) missing = p;
  }
  return missing == NULL ? CKPT_OK : refuse_missing(model, missing, n_missing, err);
}

static ckpt_status add_row(ckpt_plan *plan, uint32_t sink, const ckpt_index *index, const ckpt_parameter *p,
                           const ckpt_tensor *tensor, const ckpt_parameter_place *at, ckpt_error *err) {
  ckpt_expr *expr;
  const ckpt_dtype dtype = dtype_of(at);
  CKPT_TRY(check_shape(p, tensor, err));
  if (at->is_turned) {
    CKPT_TRY(ckpt_model_turned(&expr, &plan->arena, index, tensor, err));
    return ckpt_plan_add(plan, sink, p->name, expr, err);
  }
  CKPT_TRY(ckpt_expr_read(&expr, plan, index, tensor, err));
  if (tensor->dtype != CKPT_F32) CKPT_TRY(ckpt_refuse_quantized(index, tensor, false, err));
  if (tensor->dtype != dtype) CKPT_TRY(ckpt_expr_cast(&expr, plan, expr, dtype, err));
  return ckpt_plan_add(plan, sink, p->name, expr, err);
}

static ckpt_status add_rows(ckpt_plan *plan, uint32_t sink, const memory_sink *target, const ckpt_index *index,
                            bool allow_missing, uint32_t *n_missing, ckpt_error *err) {
  const ckpt_model *model = target->model;
  const ckpt_parameter *missing = NULL;
  uint32_t n_more = 0;
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    const ckpt_tensor *tensor = ckpt_model_tensor(index, p);
    if (tensor == NULL) {
      if (missing == NULL) missing = p;
      n_more++;
      continue;
    }
    CKPT_TRY(ckpt_fail_at(add_row(plan, sink, index, p, tensor, &target->places[i], err), err, NULL, p->name));
  }
  *n_missing = n_more;
  if (missing == NULL || allow_missing) return CKPT_OK;
  return refuse_missing(model, missing, n_more, err);
}

ckpt_status ckpt_model_load_places(const ckpt_parameter_place *places, const ckpt_model *model, const ckpt_index *index,
                                   const ckpt_load_options *options, uint32_t *n_missing, ckpt_error *err) {
  memory_sink target = {.places = places, .model = model};
  const ckpt_layout_options layout = {.is_folder = true};
  ckpt_plan *plan = NULL;
  ckpt_sink *sink = NULL;
  uint32_t number, n = 0;
  CKPT_TRY(ckpt_plan_new(&plan, err));
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_sink_custom(&sink, &memory_ops, &target, err));
  CKPT_TRY_GOTO(ckpt_plan_output_sink(plan, sink, &memory_format, &layout, &number, err));
  CKPT_TRY_GOTO(add_rows(plan, number, &target, index, options != NULL && options->allow_missing, &n, err));
  for (uint32_t i = 0; i < plan->n_rows; i++) plan->rows[i].wants_digest = false; /* but of ties */
  CKPT_TRY_GOTO(ckpt_plan_add_equal_ties(plan, index, err));
  CKPT_TRY_GOTO(ckpt_plan_run(plan, options == NULL ? NULL : options->run, err));
  CKPT_TRY_GOTO(ckpt_plan_check_equal(plan, index->path, NULL, err));
done:
  ckpt_plan_free(plan);
  free(target.files);
  if (n_missing != NULL) *n_missing = n;
  return status;
}

ckpt_status ckpt_model_load(float *flat, const ckpt_model *model, const ckpt_index *index,
                            const ckpt_load_options *options, uint32_t *n_missing, ckpt_error *err) {
  ckpt_parameter_place *places = calloc((size_t)model->n_parameters + 1, sizeof *places);
  CKPT_TRY_ALLOC(places, err);
  for (uint32_t i = 0; i < model->n_parameters; i++) places[i].weights = flat + model->parameters[i].offset;
  const ckpt_status status = ckpt_model_load_places(places, model, index, options, n_missing, err);
  free(places);
  return status;
}

/* ---- saving ---------------------------------------------------------------------------------------------------------
 */

ckpt_status ckpt_model_save_rows(ckpt_plan *plan, uint32_t sink, const ckpt_model *model, const float *flat,
                                 ckpt_dtype dtype, ckpt_error *err) {
  for (uint32_t i = 0; i < model->n_parameters; i++) {
    const ckpt_parameter *p = &model->parameters[i];
    ckpt_expr *expr;
    CKPT_TRY(ckpt_expr_memory(&expr, plan, CKPT_F32, p->rank, p->shape, flat + p->offset, err));
    if (dtype != CKPT_F32) CKPT_TRY(ckpt_expr_cast(&expr, plan, expr, dtype, err));
    CKPT_TRY(ckpt_plan_add(plan, sink, p->name, expr, err));
  }
  return CKPT_OK;
}
