/* objects.c - what object a torch file is written with.
 *
 * Where the input came from torch it is the input's own object, copied (codec/torch/plain/copy.h), with the keys that
 * its tensors' names ask for (rename.c): leaves bear the numbers of the tensors to be written, and what
 * torch.load(weights_only=True) does not take is left out and said. Else the object is made (make.c).
 */
#include "formats/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/expected_names.h"
#include "libckpt/codec/pickle/object.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/plain/copy.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/torch/state/dict.h"
#include "libckpt/codec/torch/write/write.h"

/* What quantized tensors' calls are settled with. */
typedef struct settling {
  ckpt_index *described;
  ckpt_arena *arena;
  const uint32_t *covers; /* who lies in whose storage, once one asks */
  bool has_covers;
} settling;

static ckpt_status settle(void *arg, bool *is_settled, ckpt_object *call, ckpt_error *err) {
  settling *s = arg;
  if (!s->has_covers) CKPT_TRY(ckpt_torch_covers(&s->covers, s->described, s->arena, err));
  s->has_covers = true;
  return ckpt_torch_settle_quantized(is_settled, call, s->described, s->covers, s->arena, err);
}

static ckpt_torch_copier copier_of(settling *s, ckpt_index *described, const ckpt_losses *losses) {
  *s = (settling){.described = described, .arena = losses->arena};
  return (ckpt_torch_copier){
      .arena = losses->arena, .described = described, .has_notes = true, .settle = settle, .arg = s};
}

ckpt_status ckpt_torch_copy_data(ckpt_object **out, const ckpt_object *object, const ckpt_object_tensors *held,
                                 const char *at, size_t n, ckpt_index *described, ckpt_losses *losses,
                                 ckpt_error *err) {
  settling s;
  ckpt_torch_copier c = copier_of(&s, described, losses);
  c.at = at;
  c.n_at = n;
  if (held != NULL && held->n != 0) {
    c.numbers = held->numbers;
    c.n_numbers = held->n_numbers;
  }
  ckpt_status status = ckpt_torch_copy(&c, object, out, err);
  if (status == CKPT_OK) status = ckpt_torch_left_out_say(&c.out, losses, err);
  ckpt_torch_copier_free(&c);
  return status;
}

ckpt_status ckpt_torch_copy_entries(ckpt_object *root, const ckpt_object *top, bool *is_taken, ckpt_index *described,
                                    ckpt_losses *losses, ckpt_error *err) {
  settling s;
  ckpt_torch_copier c = copier_of(&s, described, losses);
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < top->n && status == CKPT_OK; i++) {
    ckpt_object *key = top->items[2 * i], *copy = NULL;
    const uint64_t n_leaves = c.n_leaves;
    if (!is_taken[i]) continue;
    c.at = key->text;
    c.n_at = (size_t)key->n;
    status = ckpt_torch_copy(&c, top->items[2 * i + 1], &copy, err);
    is_taken[i] = status == CKPT_OK && copy != NULL && c.n_leaves == n_leaves;
    if (!is_taken[i]) continue;
    root->items[2 * root->n] = key;
    root->items[2 * root->n++ + 1] = copy;
  }
  if (status == CKPT_OK) status = ckpt_torch_left_out_say(&c.out, losses, err);
  ckpt_torch_copier_free(&c);
  return status;
}

/* ---- the input's own object ------------------------------------------------------------------------------------- */

typedef struct seen {
  uint8_t *is_seen;
  uint32_t n;
} seen;

static void see(void *arg, ckpt_pickle_writer *writer, const ckpt_object *leaf) {
  seen *s = arg;
  s->n += !s->is_seen[leaf->tensor];
  s->is_seen[leaf->tensor] = 1;
  ckpt_pickle_put_none(writer);
}

/* Whether every tensor is somewhere in the object. */
static ckpt_status holds_all(const ckpt_object *root, uint32_t n_tensors, bool *all, ckpt_error *err) {
  seen s = {.is_seen = calloc((size_t)n_tensors + 1, 1)};
  CKPT_TRY_ALLOC(s.is_seen, err);
  ckpt_stream out;
  ckpt_stream_count(&out, err);
  ckpt_pickle_writer writer = ckpt_pickle_start(&out);
  ckpt_pickle_put_object(&writer, root, see, &s);
  *all = s.n == n_tensors;
  free(s.is_seen);
  return ckpt_stream_end(&out);
}

/* The input's own object as it can be written; NULL where it is none, or has not all tensors: *holder then names what
 * some stand in, or is NULL. */
static ckpt_status copy_own(ckpt_object **out, const char **holder, ckpt_index *described, ckpt_losses *losses,
                            ckpt_error *err) {
  ckpt_object *root = (ckpt_object *)(uintptr_t)described->whole, *copy = NULL;
  uint32_t *numbers = NULL;
  bool all = false;
  *out = NULL;
  *holder = NULL;
  if (root == NULL) return CKPT_OK;
  settling s;
  ckpt_torch_copier c = copier_of(&s, described, losses);
  CKPT_TRY(ckpt_torch_rename(&root, described, losses->arena, err));
  CKPT_TRY(ckpt_described_numbers(&numbers, &c.n_numbers, described, true, err));
  c.numbers = numbers;
  ckpt_status status = ckpt_torch_copy(&c, root, &copy, err);
  if (status == CKPT_OK && copy != NULL) status = holds_all(copy, described->n_tensors, &all, err);
  if (status == CKPT_OK && all) status = ckpt_torch_left_out_say(&c.out, losses, err);
  if (all)
    *out = copy;
  else
    *holder = c.out.holder;
  ckpt_torch_copier_free(&c);
  free(numbers);
  return status;
}

/* The object stands under its key alone: what else the input's objects are is part of it. */
static ckpt_status set_object(ckpt_index *described, ckpt_object *root, ckpt_arena *arena, ckpt_error *err) {
  ckpt_object *objects = ckpt_object_new(arena, CKPT_OBJECT_DICT, 1, NULL);
  CKPT_TRY_ALLOC(objects, err);
  CKPT_TRY_ALLOC(objects->items[0] = ckpt_object_text(arena, CKPT_TORCH_OBJECT, strlen(CKPT_TORCH_OBJECT)), err);
  objects->items[1] = root;
  ckpt_index_set_objects(described, objects, root);
  described->objects_of = NULL;
  return CKPT_OK;
}

/* Whether tensors in an object are read as they are described. */
static ckpt_status take(bool *is_taken, ckpt_expected_names_want want, ckpt_object *root, ckpt_index *described,
                        ckpt_losses *losses, ckpt_error *err) {
  ckpt_expected_names read = {0}, stored = {0};
  ckpt_status status = ckpt_torch_names_of(&read, described->is_stored ? &stored : NULL, root, described, err);
  if (status == CKPT_OK)
    status = ckpt_expected_names_take(is_taken, want, &read, &stored, described, NULL, losses, err);
  ckpt_expected_names_free(&read);
  ckpt_expected_names_free(&stored);
  return status;
}

/* Whether a dict of all tensors is no model for its reader. */
static bool is_doubtful(const ckpt_index *described) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    if (!ckpt_role_is_model((ckpt_role)tensor->role) || ckpt_torch_is_training_key(tensor->name)) return true;
  }
  return false;
}

/* Tensors that only the input's own object had. */
static ckpt_status say_unread(const ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_index *from = described->objects_of;
  ckpt_name_list gone = {.n = 0};
  for (uint32_t i = 0; from != NULL && i < from->n_unread; i++)
    if (from->unread[i].is_kept) ckpt_name_list_add(&gone, from->unread[i].name);
  if (gone.n == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "%zu tensor%s not read (%s)", gone.n, gone.n == 1 ? " that is" : "s that are",
                         gone.text);
}

static ckpt_status choose(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  const uint32_t n_losses = losses->n, n_notes = described->n_notes;
  bool is_taken = false;
  const char *holder;
  ckpt_object *root;
  CKPT_TRY(copy_own(&root, &holder, described, losses, err));
  if (root != NULL) CKPT_TRY(take(&is_taken, CKPT_EXPECTED_ROLES, root, described, losses, err));
  if (root != NULL && !is_taken) CKPT_TRY(take(&is_taken, CKPT_EXPECTED_NAMES, root, described, losses, err));
  if (is_taken) {
    described->n_composites = 0; /* their calls are in it */
    return set_object(described, root, losses->arena, err);
  }
  losses->n = n_losses;
  described->n_notes = n_notes;
  if (holder != NULL)
    CKPT_TRY(ckpt_losses_add(losses, err, "the object as it was (tensors are in %s, which is no plain data)", holder));
  CKPT_TRY(say_unread(described, losses, err));
  CKPT_TRY(ckpt_torch_make_object(&root, described, losses, err));
  if (root != NULL) {
    CKPT_TRY(take(&is_taken, CKPT_EXPECTED_NOTHING, root, described, losses, err));
    return set_object(described, root, losses->arena, err);
  }
  if (is_doubtful(described)) {
    const uint32_t n_said = losses->n;
    CKPT_TRY(ckpt_torch_make_state_dict(&root, described, losses->arena, err));
    CKPT_TRY(take(&is_taken, CKPT_EXPECTED_NOTHING, root, described, losses, err));
    if (n_said != n_losses) losses->n = n_said; /* roles were named */
  }
  ckpt_index_set_objects(described, NULL, NULL);
  return CKPT_OK;
}

ckpt_status ckpt_torch_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    const ckpt_tensor *tensor = &described->tensors[i];
    const char *name, *storage;
    if (ckpt_torch_type((ckpt_dtype)tensor->dtype, &name, &storage) &&
        !ckpt_torch_holds((ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape))
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "torch counts pairs of %s, and its last axis is odd",
                    ckpt_dtype_name((ckpt_dtype)tensor->dtype)),
          err, "convert %dtype gives it another");
  }
  CKPT_TRY(choose(described, losses, err));
  return ckpt_torch_say_apart(described, losses, err);
}
