/* settings.c - what a ZeRO checkpoint keeps beside states: groups of the optimizer, schedulers, loss scalers.
 *
 * None of their tensors is in the index. A learning rate may be one (torch.optim takes it), and then what a scheduler
 * keeps of it is: one of one element becomes its number, to the bit. Others, and tensors of entries that are not known,
 * are said, and reshard refuses them: without them a run is another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/backend.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/little.h"
#include "libckpt/base/node_map.h"
#include "libckpt/base/text.h"
#include "libckpt/extents/decode.h"

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

/* The number whose bytes are these, with zeros behind them up to eight; false: an object has no such. */
static bool decode(ckpt_object *out, ckpt_dtype dtype, const uint8_t bytes[8]) {
  const ckpt_dtype_row *row = ckpt_dtype_get(dtype);
  const uint32_t n_free = 64 - 8 * row->block_bytes;
  const uint64_t bits = ckpt_le64(bytes);
  ckpt_cast_stats stats = {0};
  uint8_t wide[8];
  switch (row->kind) {
    case CKPT_KIND_BOOL: *out = (ckpt_object){.kind = CKPT_OBJECT_BOOL, .boolean = bits != 0}; return true;
    case CKPT_KIND_INT:
      *out = (ckpt_object){.kind = CKPT_OBJECT_INT, .integer = (int64_t)(bits << n_free) >> n_free};
      return true;
    case CKPT_KIND_UINT:
      *out = (ckpt_object){.kind = CKPT_OBJECT_INT, .integer = (int64_t)bits};
      return bits <= INT64_MAX;
    case CKPT_KIND_FLOAT: break;
    default: return false;
  }
  ckpt_backend_reference.cast(CKPT_F64, wide, dtype, bytes, 1, &stats); /* which holds every value of every dtype */
  const uint64_t wide_bits = ckpt_le64(wide);
  *out = (ckpt_object){.kind = CKPT_OBJECT_FLOAT};
  memcpy(&out->number, &wide_bits, sizeof wide_bits);
  return true;
}

ckpt_status ckpt_zero_read_number(ckpt_object *out, bool *is_number, const ckpt_zero *zero, const ckpt_tensor *tensor,
                                  ckpt_error *err) {
  enum { MAX_SKIP = 1 << 16 }; /* behind a decoder: thousands of numbers may have all of it before them */
  uint8_t bytes[8] = {0};
  *is_number = false;
  if (tensor->n_elements != 1 || tensor->n_extents != 1 || tensor->details->extent_form != CKPT_EXTENT_FLAT ||
      ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_elements != 1 || tensor->n_bytes > sizeof bytes ||
      (ckpt_extent_is_sequential(tensor->extents) && tensor->extents->skip > MAX_SKIP))
    return CKPT_OK;
  ckpt_reader reader = {.source = zero->index->source, .max_bytes = CKPT_CURSOR_BYTES};
  ckpt_status status =
      ckpt_reader_read(&reader, tensor->extents, (uint32_t)tensor->n_bytes, 0, bytes, (size_t)tensor->n_bytes, err);
  ckpt_reader_reset(&reader);
  if (status == CKPT_OK) *is_number = decode(out, (ckpt_dtype)tensor->dtype, bytes);
  return status;
}

/* ---- the tensors of a value -------------------------------------------------------------------------------------- */

typedef struct walk {
  ckpt_zero *zero;
  const ckpt_zero_file *file;
  const char *why; /* its tensors are left */
  ckpt_node_map seen;
  ckpt_object **path; /* what is to be looked at, the next one last */
  uint32_t n, capacity;
} walk;

static ckpt_status push(walk *w, const ckpt_object *node, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&w->path, w->n, &w->capacity, sizeof *w->path, err));
  w->path[w->n++] = (ckpt_object *)(uintptr_t)node; /* of the file's object, which is the reader's own */
  return CKPT_OK;
}

/* Counts what is carried nowhere, `what` in a file; the first is said. */
static ckpt_status leave(walk *w, const char *what, const char *why, ckpt_error *err) {
  ckpt_zero *zero = w->zero;
  if (zero->n_left++ != 0) return CKPT_OK;
  zero->left_why = why;
  zero->left = ckpt_arena_printf(&zero->index->arena, "%.200s of %.200s", what, ckpt_path_name(w->file->path));
  CKPT_TRY_ALLOC(zero->left, err);
  return CKPT_OK;
}

/* A tensor that is carried nowhere, unless it is to be a number and is one. */
static ckpt_status take_tensor(walk *w, ckpt_object *leaf, bool takes_numbers, ckpt_error *err) {
  const ckpt_tensor *tensor = ckpt_zero_tensor(w->file, leaf);
  ckpt_object number;
  bool is_number = false;
  if (takes_numbers) {
    const ckpt_status status = ckpt_zero_read_number(&number, &is_number, w->zero, tensor, err);
    CKPT_TRY(ckpt_fail_at(status, err, w->file->path, tensor->name));
  }
  if (!is_number) return leave(w, tensor->name, w->why, err);
  *leaf = number;
  return CKPT_OK;
}

/* What a value holds that an earlier one of the walk held is done. */
static ckpt_status take_value(walk *w, const ckpt_object *value, bool takes_numbers, ckpt_error *err) {
  CKPT_TRY(push(w, value, err));
  while (w->n != 0) {
    ckpt_object *node = w->path[--w->n];
    if (node != NULL && node->kind == CKPT_OBJECT_TENSOR) CKPT_TRY(take_tensor(w, node, takes_numbers, err));
    const uint64_t n = node == NULL || node->kind == CKPT_OBJECT_TENSOR ? 0 : ckpt_object_n_children(node);
    if (n == 0) continue;
    uint64_t *known = ckpt_node_map_at(&w->seen, node);
    CKPT_TRY_ALLOC(known, err);
    if ((*known)++ != 0) continue;
    for (uint64_t i = n; i-- > 0;) CKPT_TRY(push(w, node->items[i], err));
  }
  return CKPT_OK;
}

static void free_walk(walk *w) {
  ckpt_node_map_free(&w->seen);
  free(w->path);
}

ckpt_status ckpt_zero_take_scheduler(ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *value,
                                     ckpt_error *err) {
  walk w = {.zero = zero, .file = file, .why = "the scheduler's, and no one number"};
  ckpt_status status = take_value(&w, value, true, err);
  free_walk(&w);
  return status;
}

/* ---- an optimizer ------------------------------------------------------------------------------------------------ */

typedef enum entry_kind {
  ENTRY_OTHER,
  ENTRY_READ,    /* its tensors are elsewhere, or nothing goes by it */
  ENTRY_NUMBERS, /* carried */
  ENTRY_INNER    /* the dict of another optimizer within */
} entry_kind;

static entry_kind kind_of(const ckpt_object *key) {
  static const struct {
    const char *key;
    entry_kind kind;
  } known[] = {{"state", ENTRY_READ},
               {"param_groups", ENTRY_NUMBERS},
               {"loss_scaler", ENTRY_NUMBERS},
               {"base_optimizer_state", ENTRY_INNER},
               {"optimizer_state_dict", ENTRY_INNER},
               {"single_partition_of_fp32_groups", ENTRY_READ},
               {"fp32_flat_groups", ENTRY_READ},
               {"fp32_groups", ENTRY_READ},
               {"fp32_groups_flat", ENTRY_READ},
               {"overflow", ENTRY_READ},
               {"clip_grad", ENTRY_READ},
               {"dynamic_loss_scale", ENTRY_READ},
               {"cur_scale", ENTRY_NUMBERS},
               {"cur_iter", ENTRY_NUMBERS},
               {"last_overflow_iter", ENTRY_NUMBERS},
               {"scale_factor", ENTRY_NUMBERS},
               {"scale_window", ENTRY_NUMBERS}};
  for (size_t i = 0; i < sizeof known / sizeof *known && key->kind == CKPT_OBJECT_TEXT; i++)
    if (strlen(known[i].key) == key->n && memcmp(known[i].key, key->text, key->n) == 0) return known[i].kind;
  return ENTRY_OTHER;
}

/* What an optimizer of the user's own keeps beside states and groups is its own to read: there is no place for it.
 * Around it is what DeepSpeed keeps, which each version makes anew. */
static ckpt_status take_unknown(walk *w, const ckpt_object *key, const ckpt_object *value, bool is_optimizers,
                                ckpt_error *err) {
  const uint64_t n_before = w->zero->n_left;
  const bool is_empty = value->kind == CKPT_OBJECT_NONE ||
                        (value->kind >= CKPT_OBJECT_LIST && value->kind <= CKPT_OBJECT_DICT && value->n == 0);
  CKPT_TRY(take_value(w, value, false, err));
  if (!is_optimizers || is_empty || w->zero->n_left != n_before) return CKPT_OK;
  const char *name = key->kind == CKPT_OBJECT_TEXT ? key->text : ckpt_object_print(key, 64, &w->zero->index->arena);
  CKPT_TRY_ALLOC(name, err);
  return leave(w, name, "an entry of the optimizer's that is neither a state nor a group", err);
}

static ckpt_status take_entries(walk *w, const ckpt_object *dict, bool is_inner, ckpt_error *err) {
  const bool is_optimizers = ckpt_object_get(dict, "state") != NULL;
  for (uint64_t i = 0; dict->kind == CKPT_OBJECT_DICT && i < dict->n; i++) {
    const ckpt_object *key = dict->items[2 * i], *value = dict->items[2 * i + 1];
    const entry_kind kind = kind_of(key);
    if (kind == ENTRY_INNER && !is_inner)
      CKPT_TRY(take_entries(w, value, true, err));
    else if (kind == ENTRY_NUMBERS)
      CKPT_TRY(take_value(w, value, true, err));
    else if (kind == ENTRY_OTHER)
      CKPT_TRY(take_unknown(w, key, value, is_optimizers, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_take_settings(ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *optimizer,
                                    ckpt_error *err) {
  walk w = {.zero = zero, .file = file, .why = "no state of the optimizer, and no one number"};
  ckpt_status status = optimizer == NULL ? CKPT_OK : take_entries(&w, optimizer, false, err);
  free_walk(&w);
  return status;
}

ckpt_status ckpt_zero_note_left(const ckpt_zero *zero, ckpt_error *err) {
  char more[48] = "";
  if (zero->n_left == 0) return CKPT_OK;
  if (zero->n_left > 1) snprintf(more, sizeof more, " and %llu more", (unsigned long long)zero->n_left - 1);
  CKPT_TRY(ckpt_index_note(zero->index, false, err, "not read: %s%s (%s)", zero->left, more, zero->left_why));
  ckpt_index_note_left(zero->index, "not read: ");
  return ckpt_index_note_is(zero->index, CKPT_NOTE_STATE_LEFT, NULL, err);
}
