/* left_out.c - what of an object is not written: counted by class, with the place of the first. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/torch/plain/copy.h"
#include "libckpt/codec/torch/plain/safe.h"

enum { MAX_DEPTH = 32, MAX_STEPS = 1 << 20 };

/* Whether a tensor is somewhere in a node, as far as that is looked for. */
static bool holds_leaf(ckpt_torch_left_out *out, const ckpt_object *node, uint32_t depth) {
  const uint64_t n = ckpt_object_n_children(node);
  bool holds = node->kind == CKPT_OBJECT_TENSOR;
  for (uint64_t i = 0; i < n && !holds && depth < MAX_DEPTH && out->n_steps < MAX_STEPS; i++, out->n_steps++)
    holds = holds_leaf(out, node->items[i], depth + 1);
  return holds;
}

void ckpt_torch_left_out_add(ckpt_torch_left_out *out, const ckpt_object *node, const char *where,
                             const ckpt_object *held, ckpt_arena *arena) {
  const bool is_storage = node->kind == CKPT_OBJECT_FOREIGN && node->form == CKPT_FORM_PERSISTENT;
  const char *name = is_storage ? "a storage without a tensor" : ckpt_torch_class(node);
  uint32_t i = 0;
  if (out->holder == NULL && held != NULL && holds_leaf(out, held, 0))
    out->holder = ckpt_arena_printf(arena, "%.200s%s", name, where);
  while (i < out->n_kinds && strcmp(out->names[i], name) != 0) i++;
  if (i == CKPT_TORCH_LEFT_OUT_KINDS) {
    out->n_others++;
    return;
  }
  if (i == out->n_kinds) {
    const char *place = ckpt_arena_text(arena, where, strlen(where));
    out->places[i] = place == NULL ? "" : place;
    out->names[i] = name;
    out->n_kinds++;
  }
  out->n[i]++;
}

ckpt_status ckpt_torch_left_out_say(const ckpt_torch_left_out *out, ckpt_losses *losses, ckpt_error *err) {
  typedef unsigned long long ull;
  if (out->n_optimizers != 0)
    CKPT_TRY(ckpt_losses_add(losses, err, "the optimizer's param_groups (none of its states is written)"));
  if (out->n_cycles != 0)
    CKPT_TRY(ckpt_losses_add(losses, err, "an object within itself, %llu time%s (None, or nothing, stands there)",
                             (ull)out->n_cycles, ckpt_plural(out->n_cycles)));
  for (uint32_t i = 0; i < out->n_kinds; i++) {
    char times[32] = "";
    if (out->n[i] > 1) snprintf(times, sizeof times, ", %llu times", (ull)out->n[i]);
    CKPT_TRY(ckpt_losses_add(losses, err, "%.200s%s (no plain data%s)", out->names[i], out->places[i], times));
  }
  if (out->n_others == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "%llu object%s of other classes", (ull)out->n_others, ckpt_plural(out->n_others));
}
