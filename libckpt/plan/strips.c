/* strips.c - see strips.h. */
#include "libckpt/plan/strips.h"

#include "libckpt/plan/lower.h"

/* Of a strip's arguments and results: the smallest of second-level caches. */
#define STRIP_BYTES (UINT64_C(256) << 10)

/* Rows that go together through an argument that each of them needs whole, however wide they are: for fewer it would
 * come from memory again too often. */
#define STRIP_ROWS_OF_WHOLE 48

static bool has_whole(const ckpt_expr *node) {
  if (node->op->whole_args != 0 && node->op->share_args == 0 && node->op->is_rowwise) return true;
  for (uint32_t i = 0; i < node->n_args; i++)
    if (has_whole(node->args[i])) return true;
  return false;
}

/* Bytes that a row of node takes with all that it is made of; 0 where some rows of a tile alone do not give it. */
static uint64_t strip_row_bytes(const ckpt_batch *batch, const ckpt_expr *node) {
  uint64_t n_bytes = node->op->is_check ? 0 : node->n_bytes / batch->n_rows;
  if (batch->block != NULL) return 0;
  if (node->op->rule == CKPT_RULE_READ) {
    bool is_direct;
    const ckpt_batch_read *read = &batch->reads[ckpt_batch_find_read(batch, node, false, &is_direct)];
    return is_direct && !read->is_whole && read->cut_axis == 0 ? n_bytes : 0;
  }
  if (node->op->rule != CKPT_RULE_FLAT && node->op->rule != CKPT_RULE_ROW) return 0;
  for (uint32_t i = 0; i < node->n_args; i++) {
    if (ckpt_op_wants_whole(node->op, i)) continue;
    const uint64_t n = strip_row_bytes(batch, node->args[i]);
    if (n == 0) return 0;
    n_bytes += n;
  }
  return n_bytes;
}

/* Whether the first argument of node may be one of other nodes too. */
static bool can_share(const ckpt_batch *batch, const ckpt_expr *node) {
  return node->op->rule != CKPT_RULE_READ && node->n_args != 0 && (node->op->whole_args & 1) == 0 &&
         node->args[0]->op->rule != CKPT_RULE_READ && strip_row_bytes(batch, node) != 0;
}

uint32_t ckpt_pieces_together(const ckpt_plan *plan, const ckpt_batch *batch, uint32_t first, const ckpt_expr **exprs,
                              uint32_t *next) {
  const ckpt_expr *leader = ckpt_expr_made(plan->pieces[first].expr);
  uint32_t n = 1, at;
  exprs[0] = leader;
  const bool shares = can_share(batch, leader);
  for (*next = plan->pieces[first].next; *next != UINT32_MAX; *next = plan->pieces[*next].next) {
    const ckpt_expr *expr = ckpt_expr_made(plan->pieces[*next].expr);
    for (at = 0; at < n && exprs[at] != expr;) at++;
    if (at < n) continue;
    if (!shares || n == CKPT_MAX_TOGETHER || expr->n_args == 0 || expr->args[0] != leader->args[0] ||
        !can_share(batch, expr))
      break;
    exprs[n++] = expr;
  }
  return n;
}

uint64_t ckpt_strip_rows(const ckpt_batch *batch, const ckpt_expr *const *exprs, uint32_t n, uint64_t n_rows) {
  uint64_t row_bytes = 0;
  const ckpt_expr *made = exprs[0];
  while (made->op->is_check) made = made->args[0];
  if (made->op->rule == CKPT_RULE_READ) return n_rows;
  for (uint32_t i = 0; i < n; i++) {
    const uint64_t n_bytes = strip_row_bytes(batch, exprs[i]);
    if (n_bytes > row_bytes) row_bytes = n_bytes;
  }
  uint64_t n_strip = row_bytes == 0 ? n_rows : STRIP_BYTES / row_bytes + (row_bytes > STRIP_BYTES);
  for (uint32_t i = 0; i < n && n_strip < STRIP_ROWS_OF_WHOLE; i++)
    if (has_whole(exprs[i])) n_strip = STRIP_ROWS_OF_WHOLE;
  return n_strip < n_rows ? n_strip : n_rows;
}
