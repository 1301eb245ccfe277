/* read_derived.c - see read_derived.h. The row's format is one tensor and nothing else; its sink is the caller's
 * buffer.
 */
#include "libckpt/run/read_derived.h"

#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/plan/plan.h"

/* ---- the caller's buffer as a sink ------------------------------------------------------------------------------- */

typedef struct buffer {
  uint8_t *bytes;
  uint64_t n_bytes;
} buffer;

static ckpt_status open_buffer(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  const buffer *to = ctx;
  if (n_files == 1 && files[0].n_bytes == to->n_bytes) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "%u files for one buffer", n_files);
}

static ckpt_status write_buffer(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                ckpt_error *err) {
  const buffer *to = ctx;
  if (file != 0 || !ckpt_range_within(offset, n_bytes, to->n_bytes))
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a write past a buffer");
  if (n_bytes != 0) memcpy(to->bytes + offset, src, n_bytes);
  return CKPT_OK;
}

static ckpt_status read_buffer(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const buffer *to = ctx;
  if (file != 0 || !ckpt_range_within(offset, n_bytes, to->n_bytes))
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a read past a buffer");
  if (n_bytes != 0) memcpy(dst, to->bytes + offset, n_bytes);
  return CKPT_OK;
}

static ckpt_status do_nothing(void *ctx, ckpt_error *err) {
  (void)ctx, (void)err;
  return CKPT_OK;
}

static void leave(void *ctx) { (void)ctx; }

static const ckpt_sink_ops ops = {.open = open_buffer,
                                  .write_at = write_buffer,
                                  .read_at = read_buffer,
                                  .seal = do_nothing,
                                  .publish = do_nothing,
                                  .abandon = leave,
                                  .close = leave};

static ckpt_status lay(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  (void)options;
  CKPT_TRY(ckpt_layout_file_add(layout, NULL, err));
  return ckpt_layout_tensor(layout, 0, NULL, CKPT_CHECKSUM_NONE, err);
}

static const ckpt_format one_tensor = {
    .name = "memory", .caps = {.can_write = true, .dtypes = UINT64_MAX, .max_rank = CKPT_MAX_RANK}, .layout = lay};

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* Blocks are cast before a box is cut out of them, which may cut them. */
static ckpt_status add_row(ckpt_plan *plan, const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                           ckpt_dtype as, uint32_t sink, ckpt_error *err) {
  ckpt_expr *x;
  uint32_t row;
  CKPT_TRY(ckpt_expr_read(&x, plan, index, tensor, err));
  const bool has_blocks = ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_elements > 1;
  if (has_blocks) CKPT_TRY(ckpt_expr_cast(&x, plan, x, as, err));
  for (uint32_t axis = 0; box != NULL && axis < tensor->rank; axis++)
    if (box->count[axis] != tensor->shape[axis])
      CKPT_TRY(ckpt_expr_slice(&x, plan, x, axis, box->start[axis], box->count[axis], err));
  CKPT_TRY(ckpt_expr_cast(&x, plan, x, as, err));
  CKPT_TRY(ckpt_plan_add_like(plan, sink, tensor->name, x, NULL, &row, err));
  plan->rows[row].wants_digest = false;
  return CKPT_OK;
}

static ckpt_status make(ckpt_plan **out, const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                        ckpt_dtype as, buffer *to, ckpt_error *err) {
  ckpt_plan *plan;
  ckpt_sink *sink;
  uint32_t number;
  CKPT_TRY(ckpt_plan_new(&plan, err));
  plan->wants_digests = false;
  ckpt_status status = ckpt_sink_custom(&sink, &ops, to, err);
  if (status == CKPT_OK) status = ckpt_plan_output_sink(plan, sink, &one_tensor, NULL, &number, err);
  if (status == CKPT_OK) status = add_row(plan, index, tensor, box, as, number, err);
  if (status != CKPT_OK) ckpt_plan_free(plan);
  if (status == CKPT_OK) *out = plan;
  return status;
}

ckpt_status ckpt_read_derived(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box, ckpt_dtype as,
                              void *dst, size_t n_bytes, ckpt_error *err) {
  ckpt_plan *plan;
  buffer to = {dst, n_bytes};
  const ckpt_run_options run = {.struct_size = sizeof run, .n_threads = 1};
  CKPT_TRY(make(&plan, index, tensor, box, as, &to, err));
  ckpt_status status = ckpt_plan_run(plan, &run, err);
  ckpt_plan_free(plan);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}

ckpt_status ckpt_read_derived_cost(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                                   uint64_t *n_read, uint64_t *n_fetched, ckpt_error *err) {
  ckpt_plan *plan;
  buffer to = {0};
  CKPT_TRY(make(&plan, index, tensor, box, (ckpt_dtype)tensor->dtype, &to, err));
  ckpt_status status = ckpt_plan_prepare(plan, NULL, err);
  *n_read = plan->n_bytes_read;
  *n_fetched = plan->n_bytes_fetched;
  ckpt_plan_free(plan);
  return ckpt_fail_at(status, err, index->path, tensor->name);
}
