/* client.c - client state and buffers that ranks have each their own: model files of several ranks, of which rank
 * 0's is read.
 *
 * DeepSpeed hands a rank what its own model file has, as the state of its random generators, and in stage 3 buffers.
 * What we write has one for all, so that those whose values differ are said. Tensors are compared by what they begin
 * with, which is all of a generator's: reading them whole is no part of opening a checkpoint. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/extents/decode.h"
#include "libckpt/index/name_table.h"

/* Whether rank 0's value under a key, of n bytes, is what all get. */
static bool is_carried(const char *key, size_t n) {
  static const char scheduler[] = "lr_scheduler";
  return !ckpt_zero_is_own(key, n) || (n == sizeof scheduler - 1 && memcmp(key, scheduler, n) == 0);
}

static ckpt_status add_key(ckpt_zero *zero, const char *key, ckpt_error *err) {
  ckpt_zero_client *client = &zero->client;
  for (uint32_t i = 0; i < client->n_keys; i++)
    if (strcmp(client->keys[i], key) == 0) return CKPT_OK;
  client->has_more = client->n_keys == CKPT_ZERO_CLIENT_KEYS;
  if (client->has_more) return CKPT_OK;
  CKPT_TRY_ALLOC(client->keys[client->n_keys] = ckpt_arena_copy(&zero->index->arena, key), err);
  client->n_keys++;
  return CKPT_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

enum { COMPARED_BYTES = 16 << 10 };

/* Reads what a tensor begins with; *n is 0 where that is expensive to get at: in strides, or far behind a decoder. */
static ckpt_status read_head(uint8_t *out, size_t *n, const ckpt_zero *zero, const ckpt_tensor *tensor,
                             ckpt_error *err) {
  const uint32_t unit = ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_bytes;
  const uint64_t most = COMPARED_BYTES - COMPARED_BYTES % unit;
  *n = 0;
  if (tensor->n_extents != 1 || tensor->details->extent_form != CKPT_EXTENT_FLAT ||
      (ckpt_extent_is_sequential(tensor->extents) && tensor->extents->skip > COMPARED_BYTES))
    return CKPT_OK;
  *n = (size_t)(tensor->n_bytes < most ? tensor->n_bytes : most);
  ckpt_reader reader = {.source = zero->index->source, .max_bytes = CKPT_CURSOR_BYTES};
  const ckpt_status status = ckpt_reader_read(&reader, tensor->extents, unit, 0, out, *n, err);
  ckpt_reader_reset(&reader);
  return status;
}

/* n_left: bytes that may be read, as views can share theirs; what is more counts as other. */
static ckpt_status compare_tensors(bool *is_same, const ckpt_zero *zero, const ckpt_tensor *a, const ckpt_tensor *b,
                                   uint64_t *n_left, ckpt_error *err) {
  uint8_t heads[2][COMPARED_BYTES];
  size_t n_a, n_b;
  const uint64_t n = a->n_bytes < COMPARED_BYTES ? a->n_bytes : COMPARED_BYTES;
  *is_same = a->dtype == b->dtype && ckpt_tensor_same_shape(a, b) && n <= *n_left;
  if (!*is_same) return CKPT_OK;
  *n_left -= n;
  CKPT_TRY(read_head(heads[0], &n_a, zero, a, err));
  CKPT_TRY(read_head(heads[1], &n_b, zero, b, err));
  *is_same = memcmp(heads[0], heads[1], n_a < n_b ? n_a : n_b) == 0;
  return CKPT_OK;
}

/* The name of a buffer in stage 3, where parameters are empty in module; NULL: it is none. */
static const char *buffer_of(const ckpt_zero *zero, const ckpt_tensor *tensor) {
  static const char prefix[] = "module.";
  const bool is_one =
      zero->stage == 3 && tensor->n_elements != 0 && strncmp(tensor->name, prefix, sizeof prefix - 1) == 0;
  return is_one ? tensor->name + sizeof prefix - 1 : NULL;
}

/* The numbers that the first file has for the tensors of client state of this one, by their names and values;
 * UINT32_MAX: it has no such. Of others their own. Adds buffers that differ. */
static ckpt_status number_tensors(uint32_t *numbers, ckpt_zero *zero, const ckpt_zero_file *file,
                                  const ckpt_zero_file *first, bool *is_same_file, ckpt_error *err) {
  uint64_t n_left = ckpt_source_size(zero->index->source, file->number);
  ckpt_name_table *table = NULL;
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < file->held->n_tensors && status == CKPT_OK; i++) {
    const ckpt_tensor *tensor = &file->held->tensors[i];
    const char *buffer = buffer_of(zero, tensor);
    numbers[i] = i;
    if (buffer == NULL && !is_carried(tensor->name, strcspn(tensor->name, "."))) continue;
    if (table == NULL) status = ckpt_name_table_new(&table, first->held, err);
    const int64_t number = status == CKPT_OK ? ckpt_name_table_find(table, tensor->name) : -1;
    bool is_same = false;
    if (number >= 0) status = compare_tensors(&is_same, zero, tensor, &first->held->tensors[number], &n_left, err);
    numbers[i] = is_same ? (uint32_t)number : UINT32_MAX;
    if (status != CKPT_OK || buffer == NULL || is_same) continue;
    *is_same_file = false;
    status = add_key(zero, buffer, err);
  }
  ckpt_name_table_free(table);
  return status;
}

/* ---- keys -------------------------------------------------------------------------------------------------------- */

/* The value that a file has under entry number i of another, where files of one save mostly have it, too. */
static const ckpt_object *value_at(const ckpt_object *root, uint64_t i, const char *key, uint64_t *n_left) {
  const ckpt_object *at = i < root->n ? root->items[2 * i] : NULL;
  if (at != NULL && at->kind == CKPT_OBJECT_TEXT && strcmp(at->text, key) == 0) return root->items[2 * i + 1];
  if (root->n > *n_left) return NULL;
  *n_left -= root->n;
  return ckpt_object_get(root, key);
}

/* Adds the keys under which a file has what the first has not, which may have more: what we write has tensors once.
 * n_left: nodes that may be looked at. */
static ckpt_status compare_roots(ckpt_zero *zero, const ckpt_object *root, const ckpt_object *first, uint64_t *n_left,
                                 bool *is_same, ckpt_error *err) {
  for (uint64_t i = 0; i < root->n; i++) {
    const ckpt_object *key = root->items[2 * i];
    bool is_equal;
    if (key->kind != CKPT_OBJECT_TEXT || !is_carried(key->text, (size_t)key->n)) continue;
    const ckpt_object *value = value_at(first, i, key->text, n_left);
    CKPT_TRY(ckpt_object_compare(&is_equal, root->items[2 * i + 1], value, n_left, err));
    if (is_equal) continue;
    *is_same = false;
    CKPT_TRY(add_key(zero, key->text, err));
  }
  return CKPT_OK;
}

/* Gives the leaves of a file the numbers that the first file has; given: one for each leaf, what they had. */
static ckpt_status number_leaves(uint32_t *given, ckpt_zero *zero, const ckpt_zero_file *file,
                                 const ckpt_zero_file *first, bool *is_same, ckpt_error *err) {
  uint32_t *numbers = reallocarray(NULL, (size_t)file->held->n_tensors + 1, sizeof *numbers);
  CKPT_TRY_ALLOC(numbers, err);
  ckpt_status status = number_tensors(numbers, zero, file, first, is_same, err);
  for (uint32_t i = 0; i < file->graph.n_leaves && status == CKPT_OK; i++)
    if (ckpt_zero_tensor(file, file->graph.leaves[i].node) != NULL) given[i] = file->graph.leaves[i].node->tensor;
  for (uint32_t i = 0; i < file->graph.n_leaves && status == CKPT_OK; i++)
    if (given[i] != UINT32_MAX) file->graph.leaves[i].node->tensor = numbers[given[i]];
  free(numbers);
  return ckpt_fail_at(status, err, file->path, NULL);
}

static void restore_leaves(const uint32_t *given, const ckpt_zero_file *file) {
  for (uint32_t i = 0; i < file->graph.n_leaves; i++)
    if (given[i] != UINT32_MAX) file->graph.leaves[i].node->tensor = given[i];
}

ckpt_status ckpt_zero_compare_client(ckpt_zero *zero, const ckpt_zero_file *file, ckpt_error *err) {
  const ckpt_zero_file *first = &zero->shards[0].file;
  const ckpt_object *root = file->graph.root, *of = first->graph.root;
  uint64_t n_left = ckpt_source_size(zero->index->source, file->number); /* a node takes a byte of it, or more */
  bool is_same = true;
  if (zero->copy != 0 || zero->twin != 0) return CKPT_OK;
  const size_t n_given_bytes = ((size_t)file->graph.n_leaves + 1) * sizeof(uint32_t);
  uint32_t *given = malloc(n_given_bytes);
  CKPT_TRY_ALLOC(given, err);
  memset(given, 0xFF, n_given_bytes);
  ckpt_status status = number_leaves(given, zero, file, first, &is_same, err);
  if (status == CKPT_OK) status = compare_roots(zero, root, of, &n_left, &is_same, err);
  restore_leaves(given, file);
  free(given);
  if (status != CKPT_OK || is_same) return status;
  if (zero->client.n_files++ != 0) return CKPT_OK;
  CKPT_TRY_ALLOC(zero->client.first = ckpt_arena_copy(&zero->index->arena, ckpt_path_name(file->path)), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_note_client(const ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_client *client = &zero->client;
  const char *keys = "";
  if (client->n_files == 0) return CKPT_OK;
  for (uint32_t i = 0; i < client->n_keys; i++) {
    keys = ckpt_arena_printf(&zero->index->arena, "%s%s%.100s", keys, i == 0 ? "" : ", ", client->keys[i]);
    CKPT_TRY_ALLOC(keys, err);
  }
  return ckpt_index_note(
      zero->index, false, err,
      "client state or buffers of %u rank%s are others than rank 0's, which are read: %s%s (%.200s%s)", client->n_files,
      ckpt_plural(client->n_files), keys, client->has_more ? ", ..." : "", client->first,
      client->n_files == 1 ? "" : " is the first");
}
