/* op.h - the operations of expressions: one row per operation (ops.def), one file per operation (ops/).
 *
 * The run evaluates an expression over flat, row-major tiles of its output. An operation's rule says which tiles it can
 * compute, and what a tile of its output needs of its arguments:
 *
 * - FLAT: any range; the same range of each argument of the same shape. Where it is_pointwise, any set of elements:
 *   then a transposition is cut into blocks (blocks.h).
 * - ROW: whole rows of the last axis.
 * - OUTER: whole blocks below the leading axes (concat along an inner axis); the same leading range of each argument.
 * - WHOLE: everything at once (rare).
 * - REDUCE: consumes tiles (multiples of 2^16 elements) and gives one small value; root of a row only.
 *
 * An argument marked `whole_args` bit i is needed whole for every tile (a small factor). READ and STRUCTURE nodes are
 * the run's own: lower.c turns slices, permutations and reshapes into views of reads. */
#ifndef CKPT_PLAN_OP_H
#define CKPT_PLAN_OP_H

#include "libckpt/base/arena.h"
#include "libckpt/base/backend.h"
#include "libckpt/base/exact_sum.h"
#include "libckpt/index/index.h"

typedef enum ckpt_rule {
  CKPT_RULE_READ,
  CKPT_RULE_STRUCTURE,
  CKPT_RULE_FLAT,
  CKPT_RULE_ROW,
  CKPT_RULE_OUTER,
  CKPT_RULE_WHOLE,
  CKPT_RULE_REDUCE
} ckpt_rule;

/* Elements per partial of a reduction. A partial is computed in order, and partials combine in index order, so the
 * result depends on neither tiles nor threads. */
#define CKPT_REDUCE_ELEMENTS (UINT64_C(1) << 16)

/* Partials of a reduction of so many elements. */
static inline uint64_t ckpt_n_partials(uint64_t n_elements) {
  return n_elements / CKPT_REDUCE_ELEMENTS + (n_elements % CKPT_REDUCE_ELEMENTS != 0);
}

/* What low-rank updates did to values: the same whatever the tiles, since sums are exact. */
typedef struct ckpt_update_stats {
  ckpt_exact_sum added, base; /* squares of what was added, and of the values that it was added to */
  uint64_t n;                 /* values */
  uint64_t n_same;            /* of these as before, once they are rounded to the dtype that the update is for */
  uint64_t n_same_f32;        /* the same as f32 */
} ckpt_update_stats;

/* Adds what happened to other values. */
void ckpt_update_stats_add(ckpt_update_stats *into, const ckpt_update_stats *from);

/* What operations did to values. */
typedef struct ckpt_value_stats {
  ckpt_cast_stats cast;
  ckpt_update_stats update;
} ckpt_value_stats;

/* One tile's work. Buffers are packed; n_args and args follow the node's. */
typedef struct ckpt_op_call {
  const ckpt_expr *node;
  const ckpt_backend *backend;
  const void *const *args;
  const uint64_t *n_elements_of; /* elements in each argument's buffer */
  const void *const *values;     /* results of the node's prologue */
  void *out;
  uint64_t begin, n_elements; /* of the output: flat range */
  bool is_finite;             /* an earlier operation found the first argument finite */
  ckpt_cast_stats *stats;     /* of the row; casts add to it */
  ckpt_update_stats *update;  /* of the row; low-rank updates add to it; NULL: nobody asks */
  bool counts_same;           /* to the numbers of values that are as before, too */
} ckpt_op_call;

typedef struct ckpt_op {
  const char *name;
  ckpt_rule rule;
  bool is_pointwise;    /* FLAT: an element depends on nothing but the arguments' elements there, not on its place */
  bool is_rowwise;      /* ROW: a row depends on the same row of the arguments, of any width, and on whole ones alone */
  bool wants_finite;    /* fails where a value of the first argument is not finite */
  bool is_check;        /* its result is its first argument, which it only looks at: run gets no out */
  uint32_t whole_args;  /* bit i: argument i is needed whole */
  uint32_t share_args;  /* of these, bit i: one row for each of equal shares of a stack's rows (ckpt_rows_of_stack) */
  uint32_t value_bytes; /* REDUCE: size of its value, also of a partial */
  /* Computes out; pure but for stats. Failing stops the run. */
  ckpt_status (*run)(const ckpt_op_call *call, ckpt_error *err);
  /* REDUCE: makes one partial of at most CKPT_REDUCE_ELEMENTS elements, first at flat index begin. */
  void (*partial)(const ckpt_op_call *call, void *partial);
  /* REDUCE: folds the next partial, in index order, into value (zeroed at first). */
  void (*combine)(void *value, const void *partial);
} ckpt_op;

/* Whether an argument is needed whole: one of the first few may be. */
static inline bool ckpt_op_wants_whole(const ckpt_op *op, uint32_t i) { return i < 32 && (op->whole_args >> i & 1); }

/* Rows of the last three axes: a stack of matrices, which more axes before them only repeat (ggml's ne[3]). */
static inline uint64_t ckpt_rows_of_stack(uint32_t rank, const uint64_t *shape) {
  uint64_t n = 1;
  for (uint32_t i = rank < 3 ? 0 : rank - 3; i + 1 < rank; i++) n *= shape[i];
  return n;
}

/* How a read is seen: a box of its bytes taken as `shape`, axes then permuted. All in units of its dtype. */
typedef struct ckpt_view {
  uint32_t rank;
  uint64_t shape[CKPT_MAX_RANK]; /* what the row-major units are taken as */
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
  uint8_t order[CKPT_MAX_RANK]; /* axis i of the view is axis order[i] of the box */
} ckpt_view;

/* Whether two views are the same, whatever the other axes hold. */
static inline bool ckpt_view_is_same(const ckpt_view *a, const ckpt_view *b) {
  bool is_same = a->rank == b->rank;
  for (uint32_t i = 0; is_same && i < a->rank; i++)
    is_same = a->shape[i] == b->shape[i] && a->start[i] == b->start[i] && a->count[i] == b->count[i] &&
              a->order[i] == b->order[i];
  return is_same;
}

/* A node of a row's tree: arguments, result, and what its operation needs. Owned by the plan's arena. */
struct ckpt_expr {
  const ckpt_op *op;
  ckpt_expr **args;
  uint32_t n_args;
  uint8_t rank, dtype;
  const uint64_t *shape; /* elements */
  uint64_t n_elements, n_bytes;
  const ckpt_index *index;   /* READ, and what reads a derived tensor */
  const ckpt_tensor *tensor; /* as above; of a memory read it has no extents */
  const void *memory;        /* READ: the bytes themselves, or NULL */
  const ckpt_view *view;     /* READ: NULL for the whole, unpermuted */
  const void *params;        /* the operation's own: slice, axis, order */
  ckpt_expr **prologue;      /* reductions run before; their values come in the call */
  uint32_t n_prologue;
  uint32_t value; /* REDUCE in a plan: number of its value, plus one */
};

#define CKPT_OP(name) extern const ckpt_op ckpt_op_##name;
#include "libckpt/plan/ops.def"
#undef CKPT_OP

/* Whether it rounds to another dtype. */
static inline bool ckpt_op_is_cast(const ckpt_op *op) { return op == &ckpt_op_cast || op == &ckpt_op_round; }

/* What the first cast or low-rank update of an expression rounds to; NONE without one. */
ckpt_dtype ckpt_expr_rounds_to(const ckpt_expr *expr);

/* EINVAL for an invalid dtype. */
ckpt_status ckpt_expr_check_dtype(ckpt_dtype dtype, ckpt_error *err);

/* A new node in the plan's arena with room for n_args; shape is copied. n_elements and n_bytes follow from it.
 * Fails with EINVAL (rank, blocks, overflow) or ENOMEM. */
ckpt_status ckpt_expr_new(ckpt_expr **out, ckpt_arena *arena, const ckpt_op *op, ckpt_dtype dtype, uint32_t rank,
                          const uint64_t *shape, uint32_t n_args, ckpt_error *err);

/* The builders of ckpt.h and of this header with their nodes in an arena: a plan's work, or an index whose tensors are
 * derived. A node is never changed once it is built. */
ckpt_status ckpt_expr_read_in(ckpt_expr **out, ckpt_arena *arena, const ckpt_index *index, const ckpt_tensor *tensor,
                              ckpt_error *err);
ckpt_status ckpt_expr_memory_in(ckpt_expr **out, ckpt_arena *arena, ckpt_dtype dtype, uint32_t rank,
                                const uint64_t *shape, const void *data, ckpt_error *err); /* as above */
ckpt_status ckpt_expr_cast_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_dtype dtype,
                              ckpt_error *err); /* as above */
/* x, which is computed, in the dtype that its tensor has: a cast that a later one takes the place of. Slices,
 * permutations, reshapes, concats and checks of it are under it. */
ckpt_status ckpt_expr_round_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_dtype dtype, ckpt_error *err);
ckpt_status ckpt_expr_slice_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint32_t axis, uint64_t start,
                               uint64_t count, ckpt_error *err); /* as above */
ckpt_status ckpt_expr_permute_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, const uint32_t *order,
                                 ckpt_error *err); /* as above */
ckpt_status ckpt_expr_reshape_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint32_t rank, const uint64_t *shape,
                                 ckpt_error *err); /* as above */
ckpt_status ckpt_expr_concat_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *const *xs, uint32_t n, uint32_t axis,
                                ckpt_error *err); /* as above */
ckpt_status ckpt_expr_apply_in(ckpt_expr **out, ckpt_arena *arena, const ckpt_op *op, ckpt_dtype dtype,
                               ckpt_expr *const *args, uint32_t n_args, const void *params,
                               ckpt_error *err);                                                        /* as above */
ckpt_status ckpt_expr_dequantize_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_error *err); /* as above */

/* x with the rows of each of n_parts equal parts in another order: counted by two numbers, of which the second comes
 * first then. It is computed on what x gives, so that a row that has x and one that has this compute x once. EINVAL for
 * rows that cannot be counted so. */
ckpt_status ckpt_expr_move_rows_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, uint64_t n_parts, uint64_t n_first,
                                   uint64_t n_second, ckpt_error *err);

/* An elementwise (or other) operation over args of equal shape, giving dtype: how tests and recipes apply ops. */
ckpt_status ckpt_expr_apply(ckpt_expr **out, ckpt_plan *plan, const ckpt_op *op, ckpt_dtype dtype,
                            ckpt_expr *const *args, uint32_t n_args, const void *params, ckpt_error *err);

/* Whether n values of f64, f32, bf16 or f16 are all finite; true for other dtypes. */
bool ckpt_are_finite(ckpt_dtype dtype, const void *x, size_t n);

/* The tensor that a node reads, whole and unchanged; NULL if it does something else. */
const ckpt_tensor *ckpt_expr_tensor(const ckpt_expr *node);

/* x, failing the run at what is not finite (EVALUE); what is no float stays x itself. */
ckpt_status ckpt_expr_finite(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_error *err);
ckpt_status ckpt_expr_finite_in(ckpt_expr **out, ckpt_arena *arena, ckpt_expr *x, ckpt_error *err); /* as above */

/* The f32 of blocks, exactly. */
ckpt_status ckpt_expr_dequantize(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_error *err);

/* Makes `reduction` (a node whose op is REDUCE) run before any row that holds node; its value reaches node's op. */
ckpt_status ckpt_expr_add_prologue(ckpt_expr *node, ckpt_plan *plan, ckpt_expr *reduction, ckpt_error *err);

/* Parameters of STRUCTURE nodes. */
typedef struct ckpt_slice_params {
  uint32_t axis;
  uint64_t start, count;
} ckpt_slice_params;
typedef struct ckpt_order_params {
  uint8_t order[CKPT_MAX_RANK];
} ckpt_order_params;
typedef struct ckpt_axis_params {
  uint32_t axis;
} ckpt_axis_params;

/* Of move_rows: the rows of each part are n_first * n_second chunks. */
typedef struct ckpt_move_params {
  uint64_t n_parts, n_first, n_second;
} ckpt_move_params;

/* Values of the statistics reductions (ops/stats.c, ops/compare.c); their arguments may have any dtype, complex ones
 * compared only with complex ones. */
typedef struct ckpt_stats {
  double min, max, mean, m2; /* over finite values; 0 where there is none; m2: squared distances to the mean, summed */
  uint64_t n, n_nan, n_inf, n_zero, n_finite;
} ckpt_stats;
typedef struct ckpt_difference {
  double max_abs, max_rel, sum_sq; /* of a - b; NaN against NaN is equal, NaN against a number infinite */
  uint64_t n, n_different;         /* elements; those that differ by more than atol + rtol * |b| */
  uint64_t first;                  /* flat index of the first of them, UINT64_MAX if none */
  uint64_t n_bits, first_bits;     /* the same for elements whose bits differ, where both have one dtype; else none */
} ckpt_difference;
typedef struct ckpt_tolerance {
  double atol, rtol;
} ckpt_tolerance; /* params of `compare` */

#endif
