/* layout.c - a folder of PyTorch Distributed Checkpoint as FSDP2 would leave it on a number of ranks.
 *
 * Every tensor is cut along its first axis as torch.chunk does (Shard(0)): ceil(n / ranks) rows for each rank, fewer or
 * none for the last ones. Scalars and empty tensors are written whole, by the ranks in turn. A rank with nothing has no
 * file. Files hold their chunks in order of names; `.metadata` is the last file. With zstd each chunk's archive, and
 * each item's, is one frame. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/write.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/write/write.h"

typedef unsigned long long ull;

enum { FILE_NAME_BYTES = 32, PARTS_PER_CHUNK = 3 };

/* ---- names ------------------------------------------------------------------------------------------------------- */

ckpt_dcp_named ckpt_dcp_name_at(const ckpt_layout *layout, const ckpt_dcp_folder *folder, uint32_t k) {
  const ckpt_index *index = layout->index;
  if (index->objects != NULL) {
    const ckpt_object *path = index->objects->items[2 * k], *value = index->objects->items[2 * k + 1];
    if (value->kind != CKPT_OBJECT_TENSOR) return (ckpt_dcp_named){.path = path, .value = value};
    return (ckpt_dcp_named){.path = path, .place = folder->places[value->tensor]};
  }
  if (k < index->n_tensors) return (ckpt_dcp_named){.text = index->tensors[index->by_name[k]].name, .place = k};
  k -= index->n_tensors;
  return (ckpt_dcp_named){.text = index->alias_names[k], .place = folder->places[index->alias_tensors[k]]};
}

/* A tensor without a name of its own lies in an item that is carried: its values are those that are stored. */
static ckpt_status leave(ckpt_layout *layout, uint32_t tensor, ckpt_error *err) {
  if (layout->reads == NULL || layout->reads[tensor].index == NULL)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, layout->index->tensors[tensor].name,
                                 "it lies in an item that is carried as it is, and its values are to be others"),
                       err, "%exclude");
  return ckpt_layout_elsewhere(layout, tensor, err);
}

/* Counts names and items, and finds each tensor's first name. */
static ckpt_status list_names(ckpt_dcp_folder *f, ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  uint64_t n = index->objects != NULL ? index->objects->n : (uint64_t)index->n_tensors + index->n_aliases;
  if (n > UINT32_MAX) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "too many names");
  f->n_names = (uint32_t)n;
  f->memo = ckpt_arena_array(layout->arena, f->n_names, sizeof *f->memo);
  f->places = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *f->places);
  f->first_name = ckpt_arena_array(layout->arena, index->n_tensors, sizeof *f->first_name);
  if (f->memo == NULL || f->places == NULL || f->first_name == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < index->n_tensors; i++) f->places[index->by_name[i]] = i;
  for (uint32_t i = 0; i < index->n_tensors; i++) f->first_name[i] = UINT32_MAX;
  for (uint32_t k = f->n_names; k-- > 0;) {
    ckpt_dcp_named named = ckpt_dcp_name_at(layout, f, k);
    if (named.value == NULL)
      f->first_name[named.place] = k;
    else
      f->n_items++;
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (f->first_name[i] == UINT32_MAX) CKPT_TRY(leave(layout, index->by_name[i], err));
  return CKPT_OK;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* A name in torch's dict, and whose it is: a tensor's, or the object's at a path. */
typedef struct owner {
  const char *name;
  const ckpt_tensor *tensor;
  const ckpt_object *path;
  size_t order;
} owner;

typedef struct owners {
  owner *items;
  size_t n;
  ckpt_arena arena; /* of their names */
} owners;

static int compare_owners(const void *x, const void *y) {
  const owner *a = x, *b = y;
  int order = strcmp(a->name, b->name);
  return order != 0 ? order : (a->order > b->order) - (a->order < b->order);
}

static ckpt_status add_owner(owners *all, const char *name, const ckpt_tensor *tensor, const ckpt_object *path,
                             ckpt_error *err) {
  owner *o = &all->items[all->n];
  *o = (owner){ckpt_arena_copy(&all->arena, name), tensor, path, all->n};
  CKPT_TRY_ALLOC(o->name, err);
  all->n++;
  return CKPT_OK;
}

/* The keys of a path as Python indexes with them: ['x'][0]. What does not fit is left out. */
static const char *print_keys(char *text, size_t n_text, const ckpt_object *path) {
  size_t at = 0;
  text[0] = '\0';
  for (uint64_t i = 0; i < path->n && at < n_text; i++) {
    const ckpt_object *key = path->items[i];
    int n = key->kind == CKPT_OBJECT_TEXT ? snprintf(text + at, n_text - at, "['%s']", key->text)
                                          : snprintf(text + at, n_text - at, "[%lld]", (long long)key->integer);
    at += n > 0 ? (size_t)n : 0;
  }
  return text;
}

/* torch: "duplicated flatten key". One of the two would be lost. */
static ckpt_status fail_twice(const owner *a, const owner *b, ckpt_error *err) {
  char one[400], other[400];
  if (a->tensor == NULL && b->tensor != NULL) return fail_twice(b, a, err);
  if (a->tensor != NULL && b->tensor != NULL)
    return ckpt_advise(
        ckpt_fail(err, CKPT_EEXIST, NULL, a->tensor->name,
                  "another tensor, '%s', would have its name in torch's dict, '%s'", b->tensor->name, a->name),
        err, "%rename, %exclude");
  if (a->tensor != NULL)
    return ckpt_advise(
        ckpt_fail(err, CKPT_EEXIST, NULL, a->tensor->name, "the object at %s has its name in torch's dict, '%s'",
                  print_keys(other, sizeof other, b->path), a->name),
        err, "%rename, %exclude");
  print_keys(one, sizeof one, a->path);
  print_keys(other, sizeof other, b->path);
  if (strcmp(one, other) == 0)
    return ckpt_fail(err, CKPT_EEXIST, NULL, NULL,
                     "two objects would be '%s' in torch's dict: %s, with a number and with a text as key", a->name,
                     one);
  return ckpt_fail(err, CKPT_EEXIST, NULL, NULL, "two objects would be '%s' in torch's dict: %s and %s", a->name, one,
                   other);
}

static ckpt_status list_owners(owners *all, const ckpt_index *index, ckpt_error *err) {
  const ckpt_object *names = index->objects;
  all->items = reallocarray(NULL, (size_t)names->n + 1, sizeof *all->items);
  CKPT_TRY_ALLOC(all->items, err);
  for (uint64_t i = 0; i < names->n; i++) {
    char text[CKPT_DCP_NAME_BYTES + 1];
    const ckpt_object *path = names->items[2 * i], *value = names->items[2 * i + 1];
    const ckpt_tensor *tensor = value->kind == CKPT_OBJECT_TENSOR ? &index->tensors[value->tensor] : NULL;
    size_t n = ckpt_dcp_path_text(text, path);
    if (n > CKPT_DCP_NAME_BYTES)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, tensor == NULL ? NULL : tensor->name,
                       "its name below its container has %zu bytes (at most %d)", n, CKPT_DCP_NAME_BYTES);
    CKPT_TRY(add_owner(all, text, tensor, path, err));
  }
  return CKPT_OK;
}

/* Every name in torch's dict is one thing's: tensors', their aliases', objects'. */
static ckpt_status check_names(const ckpt_index *index, uint64_t max_bytes, ckpt_error *err) {
  owners all = {0};
  ckpt_arena_init(&all.arena, max_bytes);
  ckpt_status status = list_owners(&all, index, err);
  if (status == CKPT_OK && all.n != 0) qsort(all.items, all.n, sizeof *all.items, compare_owners);
  for (size_t i = 1; status == CKPT_OK && i < all.n; i++)
    if (strcmp(all.items[i - 1].name, all.items[i].name) == 0)
      status = fail_twice(&all.items[i - 1], &all.items[i], err);
  free(all.items);
  ckpt_arena_free(&all.arena);
  return status;
}

static ckpt_status check_shapes(const ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (!ckpt_torch_holds((ckpt_dtype)tensor->dtype, tensor->rank, tensor->shape))
      return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                                   "torch holds %s as pairs along the last axis, which is odd",
                                   ckpt_dtype_name((ckpt_dtype)tensor->dtype)),
                         err, "convert %dtype gives it another");
  }
  return CKPT_OK;
}

/* ---- cutting ----------------------------------------------------------------------------------------------------- */

/* How the rows of a tensor fall to the ranks. */
typedef struct parts {
  uint64_t n_rows, per_rank; /* per_rank 0: it is written whole */
  uint32_t n;
} parts;

static parts parts_of(const ckpt_tensor *tensor, uint32_t n_ranks) {
  uint64_t units[CKPT_MAX_RANK];
  if (tensor->rank == 0 || tensor->n_elements == 0) return (parts){.n = 1};
  (void)ckpt_tensor_units(tensor, units);
  uint64_t per_rank = (units[0] - 1) / n_ranks + 1;
  return (parts){.n_rows = units[0], .per_rank = per_rank, .n = (uint32_t)((units[0] - 1) / per_rank + 1)};
}

/* Every chunk of every tensor, with its rank. */
static ckpt_status cut(ckpt_dcp_folder *f, const ckpt_index *index, uint32_t n_ranks, ckpt_arena *arena,
                       ckpt_error *err) {
  uint64_t n = 0;
  uint32_t next_whole = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (f->first_name[i] != UINT32_MAX) n += parts_of(&index->tensors[index->by_name[i]], n_ranks).n;
  if (n > UINT32_MAX / PARTS_PER_CHUNK)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%llu chunks for %u ranks (write fewer)", (ull)n, n_ranks);
  f->n_chunks = (uint32_t)n;
  f->chunks = ckpt_arena_array(arena, (size_t)n, sizeof *f->chunks);
  f->first = ckpt_arena_array(arena, (size_t)index->n_tensors + 1, sizeof *f->first);
  if (f->chunks == NULL || f->first == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  ckpt_dcp_chunk *chunk = f->chunks;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    parts p = parts_of(&index->tensors[index->by_name[i]], n_ranks);
    f->first[i] = (uint32_t)(chunk - f->chunks);
    for (uint32_t k = 0; k < p.n && f->first_name[i] != UINT32_MAX; k++)
      *chunk++ = (ckpt_dcp_chunk){.tensor = index->by_name[i], .rank = p.per_rank == 0 ? next_whole++ % n_ranks : k};
  }
  f->first[index->n_tensors] = f->n_chunks;
  return CKPT_OK;
}

/* Numbers of the chunks by rank; *ends becomes where each rank's end. */
static ckpt_status sort(ckpt_dcp_folder *f, uint32_t n_ranks, uint32_t **ends, ckpt_arena *arena, ckpt_error *err) {
  uint32_t *next = *ends = ckpt_arena_array(arena, n_ranks, sizeof *next);
  f->by_file = ckpt_arena_array(arena, f->n_chunks, sizeof *f->by_file);
  if (next == NULL || f->by_file == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < f->n_chunks; i++) next[f->chunks[i].rank]++;
  for (uint32_t r = 0, sum = 0; r < n_ranks; r++) {
    uint32_t n = next[r];
    next[r] = sum;
    sum += n;
  }
  for (uint32_t i = 0; i < f->n_chunks; i++) f->by_file[next[f->chunks[i].rank]++] = i;
  return CKPT_OK;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The archive of one chunk at the end of the newest file. */
static ckpt_status lay_chunk(ckpt_layout *layout, ckpt_dcp_chunk *chunk, uint32_t n_ranks, int level, ckpt_error *err) {
  const ckpt_tensor *tensor = &layout->index->tensors[chunk->tensor];
  parts p = parts_of(tensor, n_ranks);
  uint64_t *box = NULL;
  if (p.n > 1) {
    box = ckpt_arena_array(layout->arena, 2 * (size_t)tensor->rank, sizeof *box);
    CKPT_TRY_ALLOC(box, err);
    (void)ckpt_tensor_units(tensor, box + tensor->rank);
    box[0] = chunk->rank * p.per_rank;
    box[tensor->rank] = p.n_rows - box[0] < p.per_rank ? p.n_rows - box[0] : p.per_rank;
  }
  chunk->file = layout->n_files - 1;
  chunk->segment = layout->files[chunk->file].n_segments + 1;
  CKPT_TRY(ckpt_layout_literal(layout, ckpt_dcp_print_head, chunk, err));
  CKPT_TRY(ckpt_layout_tensor(layout, chunk->tensor, box, CKPT_CHECKSUM_CRC32, err));
  CKPT_TRY(ckpt_layout_trailer(layout, ckpt_dcp_print_tail, chunk, err));
  if (level != 0) ckpt_layout_frame(layout, PARTS_PER_CHUNK, level);
  return CKPT_OK;
}

static void print_file_name(char out[FILE_NAME_BYTES], uint32_t rank) {
  snprintf(out, FILE_NAME_BYTES, "__%u_0" CKPT_DCP_SUFFIX, rank);
}

static bool is_data_file(const char *name) {
  char same[FILE_NAME_BYTES];
  unsigned rank;
  if (sscanf(name, "__%7u_0", &rank) != 1) return false;
  print_file_name(same, rank);
  return strcmp(name, same) == 0;
}

/* Without its metadata a folder is a save that never finished, or what is left of something else. */
void ckpt_dcp_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
  (void)written; /* there is one kind */
  bool has_metadata = false;
  for (uint32_t i = 0; i < n; i++) has_metadata = has_metadata || strcmp(names[i], CKPT_DCP_METADATA) == 0;
  for (uint32_t i = 0; i < n && has_metadata; i++)
    is_ours[i] = is_data_file(names[i]) || strcmp(names[i], CKPT_DCP_METADATA) == 0;
}

static ckpt_status lay_files(ckpt_layout *layout, ckpt_dcp_folder *f, uint32_t n_ranks, int level, ckpt_error *err) {
  uint32_t *ends;
  CKPT_TRY(sort(f, n_ranks, &ends, layout->arena, err));
  for (uint32_t rank = 0, i = 0; rank < n_ranks; rank++) {
    uint32_t n_items = rank == 0 ? f->n_items : 0;
    if (ends[rank] - i + n_items == 0) continue;
    char name[FILE_NAME_BYTES];
    print_file_name(name, rank);
    CKPT_TRY(ckpt_layout_file_add(layout, name, err));
    layout->files[layout->n_files - 1].rank = rank;
    CKPT_TRY(ckpt_layout_reserve(layout, n_items + PARTS_PER_CHUNK * (ends[rank] - i), err));
    for (uint32_t k = 0; k < f->n_names && n_items != 0; k++) {
      const ckpt_object *value = ckpt_dcp_name_at(layout, f, k).value;
      if (value == NULL) continue;
      const ckpt_archive *carried = ckpt_dcp_carried(layout->index, value);
      CKPT_TRY(carried != NULL ? ckpt_layout_literal(layout, ckpt_dcp_print_carried, carried, err)
                               : ckpt_layout_literal(layout, ckpt_dcp_print_item, value, err));
      if (level != 0 && (carried == NULL || !carried->is_zstd)) ckpt_layout_frame(layout, 1, level);
    }
    for (; i < ends[rank]; i++) CKPT_TRY(lay_chunk(layout, &f->chunks[f->by_file[i]], n_ranks, level, err));
  }
  return CKPT_OK;
}

const ckpt_format_option ckpt_dcp_options[] = {{"zstd_level", .least = 1, .most = 22}, {.name = NULL}};

ckpt_status ckpt_dcp_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  uint32_t n_ranks = options->world == 0 ? 1 : options->world;
  ckpt_dcp_folder *f = ckpt_arena_alloc(layout->arena, sizeof *f);
  CKPT_TRY_ALLOC(f, err);
  const int level = (int)ckpt_format_value_of(&options->values, &ckpt_dcp_options[0]);
  f->is_zstd = level != 0;
  CKPT_TRY(list_names(f, layout, err));
  CKPT_TRY(check_shapes(index, err));
  if (index->objects != NULL) CKPT_TRY(check_names(index, layout->arena->limit, err));
  CKPT_TRY(cut(f, index, n_ranks, layout->arena, err));
  layout->is_folder = true;
  CKPT_TRY(lay_files(layout, f, n_ranks, level, err));
  for (uint32_t i = 0; i < index->n_side_files; i++)
    CKPT_TRY(ckpt_side_file_lay(layout, &index->side_files[i], options->dtype_written, err));
  CKPT_TRY(ckpt_layout_file_add(layout, CKPT_DCP_METADATA, err));
  return f->is_zstd ? ckpt_layout_footer(layout, ckpt_dcp_print_metadata, f, err) /* it says where frames ended */
                    : ckpt_layout_literal(layout, ckpt_dcp_print_metadata, f, err);
}
