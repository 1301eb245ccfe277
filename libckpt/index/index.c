/* index.c - building, finishing and looking up an index: see index.h for the life cycle. */
#include "libckpt/index/index.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/index/cover.h"

enum { MAX_NAME_BYTES = 4096 };
#define DEFAULT_MAX_INDEX_BYTES (UINT64_C(8) << 30)

ckpt_status ckpt_index_new(ckpt_index **out, ckpt_source *source, const char *path, const char *format,
                           const ckpt_open_options *options, ckpt_error *err) {
  ckpt_index *index = calloc(1, sizeof *index);
  if (index == NULL) ckpt_source_free(source);
  CKPT_TRY_ALLOC(index, err);
  uint64_t limit =
      options != NULL && options->max_index_bytes != 0 ? options->max_index_bytes : DEFAULT_MAX_INDEX_BYTES;
  index->max_bytes = limit;
  ckpt_arena_init(&index->arena, limit);
  if (options != NULL && options->allocator != NULL) index->arena.from = *options->allocator;
  index->source = source;
  index->path = ckpt_arena_copy(&index->arena, path);
  index->format = ckpt_arena_copy(&index->arena, format);
  index->defects.path = index->path;
  index->naming_revision = options != NULL && options->naming_revision != 0 ? options->naming_revision : UINT32_MAX;
  if (options != NULL) index->defects.report = options->report;
  if (options != NULL) index->defects.arg = options->report_arg;
  index->architecture = index->writer = "";
  index->names = "stored";
  index->step = -1;
  if (index->path != NULL && index->format != NULL) {
    *out = index;
    return CKPT_OK;
  }
  ckpt_status status = ckpt_index_no_memory(index, err);
  ckpt_index_free(index);
  return status;
}

ckpt_status ckpt_index_no_memory(const ckpt_index *index, ckpt_error *err) {
  if (!index->arena.is_full) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "an index of more than %llu bytes (max_index_bytes)",
                   (unsigned long long)index->max_bytes);
}

/* ckpt_grow for one of the index's arrays: the arena may take that much less. */
static ckpt_status grow(ckpt_index *index, void *items, uint32_t n, uint32_t *capacity, size_t item_bytes,
                        ckpt_error *err) {
  const uint32_t n_before = *capacity;
  ckpt_arena *arena = &index->arena;
  if (n < n_before) return CKPT_OK;
  const uint64_t n_bytes = (uint64_t)(ckpt_grown(n_before) - n_before) * item_bytes;
  if (n_bytes > arena->limit - arena->n_taken) {
    arena->is_full = true;
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory"); /* of no part: whoever opens says which limit */
  }
  CKPT_TRY(ckpt_grow(items, n, capacity, item_bytes, err));
  arena->limit -= n_bytes;
  return CKPT_OK;
}

void ckpt_index_free(ckpt_index *index) {
  if (index == NULL) return;
  ckpt_index_free(index->as_read);
  if (index->stored_form != NULL) {
    index->stored_form->source = NULL; /* borrowed */
    index->stored_form->metadata = NULL;
    ckpt_index_free(index->stored_form);
  }
  ckpt_source_free(index->source);
  ckpt_arena_free(&index->arena);
  free(index->tensors);
  free(index->metadata);
  free(index->side_files);
  free(index->notes);
  free(index->unread);
  free(index->archives);
  free(index->composites);
  free(index);
}

/* Sizes of a tensor from its shape: elements and bytes, in whole blocks. */
static ckpt_status measure(ckpt_tensor *tensor, ckpt_error *err) {
  if (!ckpt_product_u64(tensor->shape, tensor->rank, &tensor->n_elements))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, tensor->name, "shape has more than 2^64 elements");
  const ckpt_dtype_row *row = ckpt_dtype_get(tensor->dtype);
  if (!ckpt_dtype_bytes(tensor->dtype, tensor->n_elements, &tensor->n_bytes) || tensor->n_bytes > INT64_MAX)
    return ckpt_fail(
        err, CKPT_EFORMAT, NULL, tensor->name, "%llu element%s of %s are no whole number of blocks of %u, or too many",
        (unsigned long long)tensor->n_elements, ckpt_plural(tensor->n_elements), row->name, row->block_elements);
  return CKPT_OK;
}

ckpt_status ckpt_index_add(ckpt_index *index, const char *name, size_t n_name, ckpt_dtype dtype, uint32_t rank,
                           const uint64_t *shape, ckpt_role role, const ckpt_extent *extents, uint32_t n_extents,
                           uint32_t *number, ckpt_error *err) {
  if (n_name == 0 || n_name > MAX_NAME_BYTES)
    return ckpt_fail(err, n_name == 0 ? CKPT_EFORMAT : CKPT_ELIMIT, NULL, NULL,
                     "a tensor name of %zu bytes (1 to %d are accepted)", n_name, MAX_NAME_BYTES);
  if (memchr(name, '\0', n_name) != NULL || ckpt_utf8_length(name, n_name) != n_name)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a tensor name is not UTF-8 text or holds a NUL");
  CKPT_TRY(grow(index, &index->tensors, index->n_tensors, &index->capacity, sizeof *index->tensors, err));
  ckpt_arena *arena = &index->arena;
  ckpt_tensor tensor = {.n_extents = n_extents, .rank = (uint8_t)rank, .dtype = (uint8_t)dtype, .role = (uint8_t)role};
  tensor.name = ckpt_arena_text(arena, name, n_name);
  CKPT_TRY_ALLOC(tensor.name, err);
  if (rank > CKPT_MAX_RANK)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, tensor.name, "%u axes (at most %d)", rank, CKPT_MAX_RANK);
  if (dtype <= CKPT_DTYPE_NONE || dtype >= CKPT_N_DTYPES)
    return ckpt_fail(err, CKPT_EINTERNAL, NULL, tensor.name, "dtype number %d", (int)dtype);
  if (rank != 0) {
    uint64_t *copy = ckpt_arena_array(arena, rank, sizeof *shape);
    CKPT_TRY_ALLOC(copy, err);
    memcpy(copy, shape, rank * sizeof *shape);
    tensor.shape = copy;
  }
  CKPT_TRY(measure(&tensor, err));
  if (n_extents != 0) {
    ckpt_extent *copy = ckpt_arena_array(arena, n_extents, sizeof *extents);
    CKPT_TRY_ALLOC(copy, err);
    memcpy(copy, extents, n_extents * sizeof *extents);
    tensor.extents = copy;
  }
  CKPT_TRY(ckpt_index_own_details(index, &tensor, err));
  tensor.details->origin = index->n_tensors;
  if (number != NULL) *number = index->n_tensors;
  index->tensors[index->n_tensors++] = tensor;
  index->n_extents += n_extents;
  return CKPT_OK;
}

ckpt_status ckpt_index_own_details(ckpt_index *index, ckpt_tensor *tensor, ckpt_error *err) {
  ckpt_tensor_details *details = ckpt_arena_alloc(&index->arena, sizeof *details);
  CKPT_TRY_ALLOC(details, err);
  if (tensor->details != NULL) *details = *tensor->details;
  tensor->details = details;
  return CKPT_OK;
}

ckpt_status ckpt_index_operand(ckpt_tensor **out, ckpt_index *index, const ckpt_tensor *like, ckpt_dtype dtype,
                               const ckpt_extent *extents, uint32_t n_extents, ckpt_error *err) {
  ckpt_tensor *tensor = ckpt_arena_alloc(&index->arena, sizeof *tensor);
  CKPT_TRY_ALLOC(tensor, err);
  *tensor = *like;
  tensor->dtype = (uint8_t)dtype;
  tensor->extents = extents;
  tensor->n_extents = n_extents;
  CKPT_TRY(ckpt_index_own_details(index, tensor, err));
  *out = tensor;
  return measure(tensor, err);
}

ckpt_status ckpt_index_derive(ckpt_index *index, uint32_t number, const ckpt_derivation *derived, ckpt_error *err) {
  ckpt_derivation *kept = ckpt_arena_alloc(&index->arena, sizeof *kept);
  ckpt_operand *operands = ckpt_arena_array(&index->arena, derived->n_operands, sizeof *operands);
  CKPT_TRY_ALLOC(kept, err);
  CKPT_TRY_ALLOC(operands, err);
  if (derived->n_operands != 0) memcpy(operands, derived->operands, derived->n_operands * sizeof *operands);
  *kept = *derived;
  kept->operands = operands;
  index->tensors[number].details->derived = kept;
  return CKPT_OK;
}

ckpt_status ckpt_index_alias(ckpt_index *index, uint32_t number, const char *name, ckpt_error *err) {
  ckpt_tensor *tensor = &index->tensors[number];
  /* The list of the tensor that got the last alias has room and a known length; any other may be another index's. */
  bool is_last = index->alias_list != NULL && index->alias_list == (const char **)tensor->aliases;
  size_t n = is_last ? index->n_alias_list : 0;
  while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
  const char **aliases = index->alias_list;
  if (!is_last || n + 1 >= index->alias_room) {
    index->alias_room = 2 * n + 2;
    aliases = ckpt_arena_array(&index->arena, index->alias_room, sizeof *aliases);
    CKPT_TRY_ALLOC(aliases, err);
    if (n != 0) memcpy(aliases, tensor->aliases, n * sizeof *aliases);
  }
  index->alias_list = aliases;
  index->n_alias_list = n;
  const size_t at = n - tensor->details->n_extra_names; /* those stay the last */
  aliases[n] = aliases[at];
  aliases[at] = ckpt_arena_copy(&index->arena, name);
  CKPT_TRY_ALLOC(aliases[at], err);
  tensor->aliases = aliases;
  index->n_aliases++;
  return CKPT_OK;
}

ckpt_status ckpt_index_alias_as(ckpt_index *index, uint32_t number, const char *name, ckpt_role role, ckpt_error *err) {
  ckpt_tensor *tensor = &index->tensors[number];
  if ((role == CKPT_ROLE_OTHER) == (tensor->role == CKPT_ROLE_OTHER)) return ckpt_index_alias(index, number, name, err);
  const char *extra = name;
  if (role != CKPT_ROLE_OTHER) { /* all its names so far */
    extra = tensor->name;
    CKPT_TRY_ALLOC(tensor->name = ckpt_arena_copy(&index->arena, name), err);
    tensor->role = (uint8_t)role;
    while (tensor->aliases != NULL && tensor->aliases[tensor->details->n_extra_names] != NULL)
      tensor->details->n_extra_names++;
  }
  CKPT_TRY(ckpt_index_alias(index, number, extra, err));
  tensor->details->n_extra_names++;
  return CKPT_OK;
}

ckpt_status ckpt_index_add_composite(ckpt_index *index, const ckpt_composite *composite, ckpt_error *err) {
  CKPT_TRY(
      grow(index, &index->composites, index->n_composites, &index->composite_capacity, sizeof *index->composites, err));
  if (composite->rank > CKPT_MAX_RANK)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, composite->name, "%u axes (at most %d)", composite->rank, CKPT_MAX_RANK);
  ckpt_composite copy = *composite;
  size_t n = 0;
  while (composite->components[n] != NULL) n++;
  const char **components = ckpt_arena_array(&index->arena, n + 1, sizeof *components);
  uint64_t *shape = ckpt_arena_array(&index->arena, composite->rank, sizeof *shape);
  copy.name = ckpt_arena_copy(&index->arena, composite->name);
  if (components == NULL || shape == NULL || copy.name == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (composite->rank != 0) memcpy(shape, composite->shape, composite->rank * sizeof *shape);
  for (size_t i = 0; i < n; i++) {
    components[i] = ckpt_arena_copy(&index->arena, composite->components[i]);
    CKPT_TRY_ALLOC(components[i], err);
  }
  copy.components = components;
  copy.shape = shape;
  index->composites[index->n_composites++] = copy;
  return CKPT_OK;
}

ckpt_status ckpt_index_set_metadata(ckpt_index *index, const char *key, const char *value, ckpt_error *err) {
  return ckpt_index_set_typed(index, key, value, NULL, err);
}

ckpt_status ckpt_index_set_typed(ckpt_index *index, const char *key, const char *value, const ckpt_typed_value *typed,
                                 ckpt_error *err) {
  CKPT_TRY(grow(index, &index->metadata, index->n_metadata, &index->metadata_capacity, sizeof *index->metadata, err));
  ckpt_meta meta = {ckpt_arena_copy(&index->arena, key), ckpt_arena_copy(&index->arena, value), typed};
  if (meta.key == NULL || meta.value == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  index->metadata[index->n_metadata++] = meta;
  return CKPT_OK;
}

ckpt_status ckpt_index_add_side_file(ckpt_index *index, const char *name, uint32_t file, uint64_t n_bytes,
                                     ckpt_error *err) {
  CKPT_TRY(grow(index, &index->side_files, index->n_side_files, &index->side_capacity, sizeof *index->side_files, err));
  ckpt_side_file side = {.name = ckpt_arena_copy(&index->arena, name), .file = file, .n_bytes = n_bytes};
  CKPT_TRY_ALLOC(side.name, err);
  index->side_files[index->n_side_files++] = side;
  return CKPT_OK;
}

static int compare_texts(const void *a, const void *b) {
  return strcmp(*(const char *const *)a, *(const char *const *)b);
}

ckpt_status ckpt_index_add_unread(ckpt_index *index, const char *name, ckpt_role role, const char *why,
                                  ckpt_error *err) {
  CKPT_TRY(grow(index, &index->unread, index->n_unread, &index->unread_capacity, sizeof *index->unread, err));
  ckpt_unread unread = {ckpt_arena_copy(&index->arena, name), ckpt_arena_copy(&index->arena, why), role, false, false};
  CKPT_TRY_ALLOC(unread.name, err);
  CKPT_TRY_ALLOC(unread.why, err);
  index->unread[index->n_unread++] = unread;
  return CKPT_OK;
}

bool ckpt_index_is_unread(const ckpt_index *index, const char *name) {
  return index->n_unread != 0 &&
         bsearch(&name, index->unread_by_name, index->n_unread, sizeof name, compare_texts) != NULL;
}

void ckpt_index_break(ckpt_index *index, uint32_t first, uint32_t end) {
  for (uint32_t i = first; i < end; i++) index->tensors[i].details->extent_form = CKPT_EXTENT_BROKEN;
}

ckpt_status ckpt_index_add_broken(ckpt_index *index, const char *name, ckpt_role role, uint32_t file, ckpt_error *err) {
  const ckpt_extent nothing = {.file = file};
  uint32_t number = 0;
  ckpt_error defect = {0};
  ckpt_status status = ckpt_index_add(index, name, strlen(name), CKPT_U8, 0, NULL, role, &nothing, 1, &number, &defect);
  if (status == CKPT_EFORMAT || status == CKPT_ELIMIT) return CKPT_OK; /* it may be the name that is broken */
  if (status != CKPT_OK) return ckpt_fail_as(err, status, NULL, NULL, &defect);
  ckpt_index_break(index, number, number + 1);
  return CKPT_OK;
}

ckpt_status ckpt_index_add_archive(ckpt_index *index, const ckpt_archive *archive, ckpt_error *err) {
  CKPT_TRY(grow(index, &index->archives, index->n_archives, &index->archive_capacity, sizeof *index->archives, err));
  ckpt_archive *added = &index->archives[index->n_archives];
  const char *last = index->n_archives == 0 ? "" : added[-1].name; /* a tensor has as many as chunks */
  *added = *archive;
  added->name = strcmp(last, archive->name) == 0 ? last : ckpt_arena_copy(&index->arena, archive->name);
  CKPT_TRY_ALLOC(added->name, err);
  index->n_archives++;
  return CKPT_OK;
}

static ckpt_status add_note(ckpt_index *index, bool is_problem, const char *file, const char *name, const char *format,
                            va_list args, ckpt_error *err) {
  CKPT_TRY(grow(index, &index->notes, index->n_notes, &index->note_capacity, sizeof *index->notes, err));
  char message[1024];
  vsnprintf(message, sizeof message, format, args);
  ckpt_note note = {.is_problem = is_problem};
  note.text = ckpt_arena_printf(&index->arena, "%s%s%s", name, name[0] == '\0' ? "" : ": ", message);
  CKPT_TRY_ALLOC(note.text, err);
  note.message = note.text + (strlen(note.text) - strlen(message));
  if (file != NULL) CKPT_TRY_ALLOC(note.file = ckpt_arena_copy(&index->arena, file), err);
  index->notes[index->n_notes++] = note;
  return CKPT_OK;
}

ckpt_status ckpt_index_note_advise(ckpt_status status, ckpt_index *index, const char *advice) {
  if (status == CKPT_OK) index->notes[index->n_notes - 1].advice = advice;
  return status;
}

ckpt_status ckpt_index_note(ckpt_index *index, bool is_problem, ckpt_error *err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  ckpt_status status = add_note(index, is_problem, NULL, "", format, args, err);
  va_end(args);
  return status;
}

ckpt_status ckpt_index_note_is(ckpt_index *index, ckpt_note_kind kind, const char *cause, ckpt_error *err) {
  ckpt_note *note = &index->notes[index->n_notes - 1];
  note->kind = kind;
  if (cause != NULL) CKPT_TRY_ALLOC(note->cause = ckpt_arena_copy(&index->arena, cause), err);
  return CKPT_OK;
}

void ckpt_index_note_left(ckpt_index *index, const char *head) {
  ckpt_note *note = &index->notes[index->n_notes - 1];
  note->left = note->text + strlen(head);
}

bool ckpt_note_is_state(const ckpt_note *note) {
  return note->kind == CKPT_NOTE_STATE_LEFT || note->kind == CKPT_NOTE_STATES_UNREAD;
}

bool ckpt_note_is_warning(const ckpt_note *note) {
  const bool is_unread = note->kind == CKPT_NOTE_UNREAD || ckpt_note_is_state(note);
  return note->is_problem || is_unread || note->kind == CKPT_NOTE_DOUBT || note->left != NULL;
}

ckpt_status ckpt_index_problem(ckpt_index *index, uint32_t file, ckpt_error *err, const char *format, ...) {
  va_list args;
  va_start(args, format);
  ckpt_status status = add_note(index, true, ckpt_source_path(index->source, file),
                                ckpt_source_name(index->source, file), format, args, err);
  va_end(args);
  return status;
}

static int compare_numbers(const void *a, const void *b, void *tensors) {
  const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
  int order = strcmp(((const ckpt_tensor *)tensors)[x].name, ((const ckpt_tensor *)tensors)[y].name);
  return order != 0 ? order : (x > y) - (x < y);
}

typedef struct alias_row {
  const char *name;
  uint32_t tensor;
} alias_row;

static int compare_aliases(const void *a, const void *b) {
  return strcmp(((const alias_row *)a)->name, ((const alias_row *)b)->name);
}

static ckpt_status refuse_duplicate(const ckpt_index *index, const ckpt_tensor *tensor, const char *name,
                                    ckpt_error *err) {
  const char *file = ckpt_index_file_of(index, tensor);
  if (index->is_unwrapped)
    return ckpt_advise(ckpt_fail(err, CKPT_EEXIST, file, name, "two tensors have this name once wrappers are removed"),
                       err, "%names=stored keeps them apart");
  if (index->source == NULL) return ckpt_fail(err, CKPT_EEXIST, NULL, name, "two tensors would have this name");
  return ckpt_fail(err, CKPT_EFORMAT, file, name, "appears twice");
}

int64_t ckpt_index_place(const ckpt_index *index, const char *name) {
  for (uint32_t low = 0, high = index->n_tensors; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(name, index->tensors[index->by_name[middle]].name);
    if (order == 0) return middle;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return -1;
}

ckpt_status ckpt_index_drop_broken(ckpt_index *index, ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->details->extent_form != CKPT_EXTENT_BROKEN) {
      index->tensors[n++] = *tensor;
      continue;
    }
    index->n_extents -= tensor->n_extents;
    CKPT_TRY(ckpt_index_add_unread(index, tensor->name, (ckpt_role)tensor->role, "broken", err));
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      CKPT_TRY(ckpt_index_add_unread(index, *alias, (ckpt_role)tensor->role, "broken", err));
  }
  if (n != index->n_tensors) ckpt_index_set_objects(index, NULL, NULL);
  index->n_tensors = n;
  return CKPT_OK;
}

static ckpt_status sort_unread(ckpt_index *index, ckpt_error *err) {
  index->unread_by_name = ckpt_arena_array(&index->arena, index->n_unread, sizeof *index->unread_by_name);
  CKPT_TRY_ALLOC(index->unread_by_name, err);
  for (uint32_t i = 0; i < index->n_unread; i++) index->unread_by_name[i] = index->unread[i].name;
  if (index->n_unread > 1) qsort(index->unread_by_name, index->n_unread, sizeof *index->unread_by_name, compare_texts);
  return CKPT_OK;
}

/* Numbers the tensors in byte order of their names. Of several with one name the first is the tensor. */
static ckpt_status sort_names(ckpt_index *index, ckpt_error *err) {
  uint32_t n = 0;
  index->by_name = ckpt_arena_array(&index->arena, index->n_tensors, sizeof *index->by_name);
  CKPT_TRY_ALLOC(index->by_name, err);
  for (uint32_t i = 0; i < index->n_tensors; i++) index->by_name[i] = i;
  qsort_r(index->by_name, index->n_tensors, sizeof *index->by_name, compare_numbers, index->tensors);
  for (uint32_t i = 1; i < index->n_tensors; i++) {
    const char *name = index->tensors[index->by_name[i]].name;
    if (strcmp(index->tensors[index->by_name[i - 1]].name, name) != 0) continue;
    ckpt_error defect = {0};
    CKPT_TRY(ckpt_defects_pass(
        &index->defects, refuse_duplicate(index, &index->tensors[index->by_name[i]], name, &defect), &defect, err));
    ckpt_index_break(index, index->by_name[i], index->by_name[i] + 1);
    n++;
  }
  if (n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_index_drop_broken(index, err));
  return sort_names(index, err); /* which has no two of a name now */
}

/* Sorts the aliases into two parallel arrays and refuses one that is also a name or another alias. */
static ckpt_status sort_aliases(ckpt_index *index, ckpt_error *err) {
  if (index->n_aliases == 0) return CKPT_OK;
  alias_row *rows = ckpt_arena_array(&index->arena, index->n_aliases, sizeof *rows);
  index->alias_names = ckpt_arena_array(&index->arena, index->n_aliases, sizeof *index->alias_names);
  index->alias_tensors = ckpt_arena_array(&index->arena, index->n_aliases, sizeof *index->alias_tensors);
  if (rows == NULL || index->alias_names == NULL || index->alias_tensors == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    for (const char *const *alias = index->tensors[i].aliases; alias != NULL && *alias != NULL; alias++)
      if (n < index->n_aliases) rows[n++] = (alias_row){*alias, i};
  /* n: fewer than were added where tensors were dropped */
  qsort(rows, n, sizeof *rows, compare_aliases);
  index->n_aliases = 0;
  for (uint32_t i = 0; i < n; i++) {
    ckpt_error defect = {0};
    bool is_taken =
        ckpt_index_place(index, rows[i].name) >= 0 || (i != 0 && strcmp(rows[i - 1].name, rows[i].name) == 0);
    ckpt_status status =
        is_taken ? refuse_duplicate(index, &index->tensors[rows[i].tensor], rows[i].name, &defect) : CKPT_OK;
    CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
    if (is_taken) continue;
    index->alias_names[index->n_aliases] = rows[i].name;
    index->alias_tensors[index->n_aliases++] = rows[i].tensor;
  }
  return CKPT_OK;
}

/* Whether the extents cover what is stored of a tensor. Operands of other indexes have been checked. */
static ckpt_status check_stored(const ckpt_index *index, ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_derivation *derived = tensor->details->derived;
  if (derived == NULL) return ckpt_cover_check(tensor, index->source, err);
  for (uint32_t i = 0; i < derived->n_operands; i++)
    if (derived->operands[i].index == index)
      CKPT_TRY(ckpt_cover_check((ckpt_tensor *)derived->operands[i].tensor, index->source, err));
  return CKPT_OK;
}

/* Whether extents cover their tensors. */
static ckpt_status check_cover(ckpt_index *index, ckpt_error *err) {
  if (index->source == NULL) return CKPT_OK;
  ckpt_error defect = {0};
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->details->extent_form == CKPT_EXTENT_BROKEN) continue;
    ckpt_status status = check_stored(index, tensor, &defect);
    const char *file = index->defects.report == NULL ? NULL : ckpt_index_file_of(index, tensor);
    ckpt_fail_at(status, &defect, tensor->n_extents == 0 ? NULL : file, tensor->name);
    CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
    if (status != CKPT_OK) ckpt_index_break(index, i, i + 1);
  }
  return CKPT_OK;
}

/* Every part of a composite is there. One that lacks a part is no more than its other parts. */
static ckpt_status check_composites(ckpt_index *index, ckpt_error *err) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_composites; i++) {
    const ckpt_composite composite = index->composites[i];
    const char *const *name = composite.components;
    while (*name != NULL && ckpt_index_place(index, *name) >= 0) name++;
    if (*name == NULL) {
      index->composites[n++] = composite;
      continue;
    }
    ckpt_error defect = {0};
    ckpt_status status = ckpt_fail(&defect, CKPT_EFORMAT, index->path, composite.name, "its part %s is missing", *name);
    if (!ckpt_index_is_unread(index, *name)) CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  }
  index->n_composites = n;
  return CKPT_OK;
}

ckpt_status ckpt_index_finish(ckpt_index *index, ckpt_error *err) {
  CKPT_TRY(check_cover(index, err));
  CKPT_TRY(ckpt_index_drop_broken(index, err));
  CKPT_TRY(sort_names(index, err));
  if (index->n_tensors != 0) {
    void *fitted = reallocarray(index->tensors, index->n_tensors, sizeof *index->tensors);
    if (fitted != NULL) {
      index->tensors = fitted;
      index->arena.limit += (uint64_t)(index->capacity - index->n_tensors) * sizeof *index->tensors;
      index->capacity = index->n_tensors;
    }
  }
  CKPT_TRY(sort_unread(index, err));
  CKPT_TRY(sort_aliases(index, err));
  return check_composites(index, err);
}

ckpt_status ckpt_index_carry(ckpt_index *into, const ckpt_index *from, ckpt_error *err) {
  into->architecture = from->architecture;
  into->names = from->names;
  into->ties = from->ties;
  into->stated_ties = from->stated_ties;
  into->naming_revision = from->naming_revision;
  into->is_stored = from->is_stored;
  ckpt_index_set_objects(into, from->objects, from->whole);
  into->top = from->top;
  into->objects_of = from;
  into->graph = from->graph;
  into->n_nodes = from->n_nodes;
  into->step = from->step;
  into->has_metadata = from->has_metadata;
  for (uint32_t i = 0; i < from->n_metadata; i++)
    CKPT_TRY(ckpt_index_set_typed(into, from->metadata[i].key, from->metadata[i].value, from->metadata[i].typed, err));
  for (uint32_t i = 0; i < from->n_composites; i++) CKPT_TRY(ckpt_index_add_composite(into, &from->composites[i], err));
  for (uint32_t i = 0; i < from->n_side_files; i++) {
    const ckpt_side_file *side = &from->side_files[i];
    CKPT_TRY(ckpt_index_add_side_file(into, side->name, side->file, side->n_bytes, err));
    into->side_files[into->n_side_files - 1].text = side->text;
    into->side_files[into->n_side_files - 1].source = side->source;
  }
  return CKPT_OK;
}

const ckpt_index *ckpt_index_as_stored(const ckpt_index *index) {
  return index->stored_form == NULL ? index : index->stored_form;
}

void ckpt_index_set_objects(ckpt_index *index, ckpt_object *objects, const ckpt_object *whole) {
  index->objects = objects;
  index->whole = whole;
}

ckpt_status ckpt_index_parts(const ckpt_object **parts, ckpt_index *index, ckpt_error *err) {
  const ckpt_object *whole = index->whole;
  ckpt_object *made;
  uint64_t at = 0;
  *parts = whole == NULL || whole->kind != CKPT_OBJECT_DICT ? NULL : whole;
  if (*parts == NULL || index->top == NULL) return CKPT_OK;
  while (at < whole->n && whole->items[2 * at + 1] != index->top) at++;
  if (at == whole->n) return CKPT_OK; /* it is the whole */
  const ckpt_object *top = index->top;
  CKPT_TRY_ALLOC(made = ckpt_object_new(&index->arena, CKPT_OBJECT_DICT, top->n + whole->n - 1, NULL), err);
  ckpt_object **items = made->items;
  memcpy(items, whole->items, 2 * at * sizeof *items);
  if (top->n != 0) memcpy(items + 2 * at, top->items, 2 * top->n * sizeof *items);
  memcpy(items + 2 * (at + top->n), whole->items + 2 * (at + 1), 2 * (whole->n - at - 1) * sizeof *items);
  *parts = made;
  return CKPT_OK;
}

size_t ckpt_index_count(const ckpt_index *index) { return index->n_tensors; }

const ckpt_tensor *ckpt_index_at(const ckpt_index *index, size_t i) {
  return i < index->n_tensors ? &index->tensors[index->by_name[i]] : NULL;
}

const ckpt_tensor *ckpt_index_find(const ckpt_index *index, const char *name) {
  int64_t place = ckpt_index_place(index, name);
  if (place >= 0) return &index->tensors[index->by_name[place]];
  for (uint32_t low = 0, high = index->n_aliases; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    int order = strcmp(name, index->alias_names[middle]);
    if (order == 0) return &index->tensors[index->alias_tensors[middle]];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

ckpt_meta *ckpt_index_meta(const ckpt_index *index, const char *key) {
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (strcmp(index->metadata[i].key, key) == 0) return &index->metadata[i];
  return NULL;
}

const char *ckpt_index_metadata(const ckpt_index *index, const char *key) {
  const ckpt_meta *meta = ckpt_index_meta(index, key);
  return meta == NULL ? NULL : meta->value;
}

void ckpt_index_info(const ckpt_index *index, ckpt_info *out) {
  ckpt_info info = {.struct_size = sizeof info,
                    .format = index->format,
                    .path = index->path,
                    .architecture = index->architecture[0] == '\0' && index->stated_architecture != NULL
                                        ? index->stated_architecture
                                        : index->architecture,
                    .names = index->names,
                    .writer = index->writer,
                    .step = index->step,
                    .min_ranks = index->min_ranks,
                    .n_files = index->source == NULL ? 0 : ckpt_source_count(index->source)};
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->role == CKPT_ROLE_PARAMETER) info.n_parameters += tensor->n_elements;
    info.n_bytes += tensor->n_bytes;
  }
  size_t n = out->struct_size < sizeof info ? out->struct_size : sizeof info;
  info.struct_size = out->struct_size;
  memcpy(out, &info, n);
}

const ckpt_side_file *ckpt_index_side_file(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_side_files; i++)
    if (strcmp(index->side_files[i].name, name) == 0) return &index->side_files[i];
  return NULL;
}

/* The number of the file that a tensor begins in; false where there is none. */
static bool begins_in(const ckpt_index *index, const ckpt_tensor *tensor, uint32_t *file) {
  if (index->source == NULL || tensor->n_extents == 0) return false;
  *file = tensor->extents[0].file;
  return *file < ckpt_source_count(index->source);
}

const char *ckpt_index_file_of(const ckpt_index *index, const ckpt_tensor *tensor) {
  uint32_t file = 0, other;
  if (tensor != NULL) return begins_in(index, tensor, &file) ? ckpt_source_path(index->source, file) : index->path;
  for (uint32_t i = 0; index->source != NULL && i < ckpt_source_count(index->source); i++)
    if (ckpt_text_ends(ckpt_source_name(index->source, i), ".index.json")) return ckpt_source_path(index->source, i);
  bool is_one = index->n_tensors != 0 && begins_in(index, &index->tensors[0], &file);
  for (uint32_t i = 1; i < index->n_tensors && is_one; i++)
    is_one = !begins_in(index, &index->tensors[i], &other) || other == file;
  if (is_one) return ckpt_source_path(index->source, file);
  return index->path;
}

const char *ckpt_index_side_path(const ckpt_index *index, const ckpt_side_file *side) {
  const ckpt_source *source = ckpt_index_side_source(index, side);
  return source == NULL ? side->name : ckpt_source_path(source, side->file);
}

ckpt_status ckpt_index_side_text(ckpt_index *index, const ckpt_side_file *side, uint64_t max_bytes, const char **text,
                                 ckpt_error *err) {
  const char *file = ckpt_index_side_path(index, side);
  if (side->n_bytes > max_bytes)
    return ckpt_fail(err, CKPT_ELIMIT, file, NULL, "%llu bytes, at most %llu are read",
                     (unsigned long long)side->n_bytes, (unsigned long long)max_bytes);
  char *copy = ckpt_arena_alloc(&index->arena, (size_t)side->n_bytes + 1);
  CKPT_TRY_ALLOC(copy, err);
  if (side->text != NULL)
    memcpy(copy, side->text, (size_t)side->n_bytes);
  else
    CKPT_TRY(ckpt_source_read(ckpt_index_side_source(index, side), side->file, 0, copy, (size_t)side->n_bytes, err));
  *text = copy;
  return CKPT_OK;
}
