/* metadata.c - metadata.pkl: dicts, lists, numbers and texts, without any class.
 *
 *   {"version": "2.0", "world_size": W, "metadata": {item: {
 *      "nested_path_to_metadata":
 *          {'["state","0.weight","exp_avg"]': [{"sharding_metadata": {"type", "data"}, "ranks"}]},
 *      "rank_to_layout_info": {rank: {"file_path", "serialization_format": {"type"}} | None}}}}
 *
 * Version 1.0 has one dict of all paths, '["optimizer","state",...]': [...], and {rank: {item: layout}} under
 * "rank_to_layout_info_mappings"; versions that are not said are 1.0. It is brought into the form of 2.0.
 *
 * DTensorShardingMetadata says a mesh of ranks and what each of its axes does to the tensor; default_tensor_v1 says
 * boxes. Which box a rank has follows as torch.chunk cuts: ceil(size / n) for each, less or none for the last. */
#include "formats/dcpv2/dcpv2.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/pickle/pickle.h"

typedef unsigned long long ull;

enum { MAX_NAME_BYTES = 4096, MAX_MESH_AXES = 16, MAX_ITEMS = 1024 };
/* 1,000 tensors of 1,000 ranks, whose mesh is in no order, take a quarter of it. */
#define MAX_STEPS (UINT64_C(2) << 30)

/* ---- the pickle -------------------------------------------------------------------------------------------------- */

typedef struct input {
  ckpt_source *source;
  uint32_t file;
} input;

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const input *in = arg;
  return ckpt_source_read(in->source, in->file, offset, dst, n_bytes, err);
}

static bool is_text(const ckpt_object *object) {
  return object != NULL && object->kind == CKPT_OBJECT_TEXT && object->n != 0 && object->n <= MAX_NAME_BYTES &&
         strlen(object->text) == object->n;
}

/* Appends the parts of a path, a JSON list of texts and numbers, to name[0, *n). */
static ckpt_status join_path(char name[MAX_NAME_BYTES + 1], size_t *n, const ckpt_object *path, ckpt_error *err) {
  ckpt_json *json = NULL;
  ckpt_json_token token;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_new_text(&json, path->text, (size_t)path->n, false, NULL, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_ARRAY, "a path", err));
  for (;;) {
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    const char *part = token == CKPT_JSON_STRING || token == CKPT_JSON_NUMBER ? ckpt_json_text(json, NULL) : NULL;
    size_t n_part = part == NULL ? 0 : strlen(part);
    if (part == NULL) status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "path %.80s is no list of keys", path->text);
    size_t n_joined = *n + (*n != 0) + n_part;
    if (part != NULL && n_joined > MAX_NAME_BYTES)
      status = ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "path %.80s makes a name of %zu bytes and more (at most %d)",
                         path->text, n_joined, MAX_NAME_BYTES);
    if (status != CKPT_OK) goto done;
    if (*n != 0) name[(*n)++] = '.';
    memcpy(name + *n, part, n_part);
    *n += n_part;
  }
  status = CKPT_OK;
done:
  ckpt_json_free(json);
  return status;
}

static int compare_places(const void *a, const void *b) {
  return strcmp(((const ckpt_dcpv2_place *)a)->name, ((const ckpt_dcpv2_place *)b)->name);
}

/* The files of an item are many where many items share them: n_left bounds them all. */
static ckpt_status check_files(const ckpt_object *files, const char *key, uint64_t *n_left, ckpt_error *err) {
  if (files == NULL || files->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, key, "its metadata has an item without files");
  if (files->n > *n_left)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, key, "more files (%llu) than the metadata has bytes for them (%llu)",
                     (ull)files->n, (ull)*n_left);
  *n_left -= files->n;
  return CKPT_OK;
}

static ckpt_status new_item(ckpt_dcpv2_metadata *m, const char *key, const ckpt_object *files, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&m->items, m->n, &m->capacity, sizeof *m->items, err));
  m->items[m->n++] = (ckpt_dcpv2_item){.key = key, .files = files};
  return CKPT_OK;
}

/* A tensor of an item by its name: n bytes. */
static ckpt_status add_place(ckpt_dcpv2_metadata *m, ckpt_dcpv2_item *item, const char *name, size_t n,
                             const ckpt_object *groups, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&item->places, item->n, &item->capacity, sizeof *item->places, err));
  const char *copy = ckpt_arena_text(&m->arena, name, n);
  CKPT_TRY_ALLOC(copy, err);
  item->places[item->n++] = (ckpt_dcpv2_place){.name = copy, .groups = groups};
  return CKPT_OK;
}

/* A path with its groups; n_left bounds paths that stand for many: honest ones stand in the file, each for itself. */
static ckpt_status check_path(const ckpt_object *path, const ckpt_object *groups, uint64_t *n_left, ckpt_error *err) {
  if (path->kind == CKPT_OBJECT_TEXT && (path->n > MAX_NAME_BYTES || path->n > *n_left))
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a path of %llu bytes (at most %llu)", (ull)path->n,
                     (ull)(*n_left < MAX_NAME_BYTES ? *n_left : MAX_NAME_BYTES));
  if (!is_text(path) || groups->kind != CKPT_OBJECT_LIST)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a path of its metadata is no text with a list");
  *n_left -= path->n;
  return CKPT_OK;
}

static ckpt_status sort_places(const ckpt_dcpv2_item *item, ckpt_error *err) {
  if (item->n != 0) qsort(item->places, item->n, sizeof *item->places, compare_places);
  for (uint32_t i = 1; i < item->n; i++)
    if (compare_places(&item->places[i - 1], &item->places[i]) == 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, item->places[i].name, "two paths of its metadata make this name");
  return CKPT_OK;
}

static ckpt_status enter_item(ckpt_dcpv2_metadata *m, const ckpt_object *key, const ckpt_object *value,
                              uint64_t *n_left, ckpt_error *err) {
  const ckpt_object *paths = ckpt_object_field(value, "nested_path_to_metadata");
  if (!is_text(key) || paths == NULL || paths->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its metadata has an item without name or paths");
  const ckpt_object *files = ckpt_object_field(value, "rank_to_layout_info");
  CKPT_TRY(check_files(files, key->text, n_left, err));
  CKPT_TRY(new_item(m, key->text, files, err));
  ckpt_dcpv2_item *item = &m->items[m->n - 1];
  for (uint64_t i = 0; i < paths->n; i++) {
    char name[MAX_NAME_BYTES + 1];
    size_t n = (size_t)key->n;
    memcpy(name, key->text, n);
    CKPT_TRY(check_path(paths->items[2 * i], paths->items[2 * i + 1], n_left, err));
    CKPT_TRY(join_path(name, &n, paths->items[2 * i], err));
    CKPT_TRY(add_place(m, item, name, n, paths->items[2 * i + 1], err));
  }
  return sort_places(item, err);
}

/* ---- version 1.0 ------------------------------------------------------------------------------------------------- */

/* A rank that JSON made a text of, as Python prints it: one rank has one text. */
static bool parse_rank(const ckpt_object *text, uint64_t *out) {
  if (!is_text(text) || (text->text[0] == '0' && text->n != 1)) return false;
  *out = 0;
  for (uint64_t i = 0; i < text->n; i++) {
    uint64_t digit = (uint64_t)(unsigned char)text->text[i] - '0';
    if (digit > 9 || !ckpt_mul_u64(*out, 10, out) || !ckpt_add_u64(*out, digit, out)) return false;
  }
  return *out <= INT64_MAX;
}

static int compare_ranks(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* {rank: {item: layout}} with numbers for ranks, each of them once. */
static ckpt_status number_ranks(ckpt_dcpv2_metadata *m, const ckpt_object *of_ranks, ckpt_object **out,
                                ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(&m->arena, CKPT_OBJECT_DICT, of_ranks->n, NULL), err);
  int64_t *ranks = ckpt_arena_array(&m->arena, of_ranks->n, sizeof *ranks);
  CKPT_TRY_ALLOC(ranks, err);
  for (uint64_t i = 0; i < of_ranks->n; i++) {
    ckpt_object *rank = of_ranks->items[2 * i];
    uint64_t number = 0;
    if (rank->kind != CKPT_OBJECT_INT) {
      if (!parse_rank(rank, &number))
        return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the metadata's ranks are no numbers");
      CKPT_TRY_ALLOC(rank = ckpt_object_int(&m->arena, (int64_t)number), err);
    }
    ranks[i] = rank->integer;
    (*out)->items[2 * i] = rank;
    (*out)->items[2 * i + 1] = of_ranks->items[2 * i + 1];
  }
  if (of_ranks->n != 0) qsort(ranks, (size_t)of_ranks->n, sizeof *ranks, compare_ranks);
  for (uint64_t i = 1; i < of_ranks->n; i++)
    if (ranks[i] == ranks[i - 1])
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "rank %lld stands twice in the metadata", (long long)ranks[i]);
  return CKPT_OK;
}

/* What ranks have of an item, {rank: layout}, out of {rank: {item: layout}}. */
static ckpt_status find_layouts(ckpt_dcpv2_metadata *m, const char *key, const ckpt_object *of_ranks, ckpt_object **out,
                                ckpt_error *err) {
  CKPT_TRY_ALLOC(*out = ckpt_object_new(&m->arena, CKPT_OBJECT_DICT, of_ranks->n, NULL), err);
  ckpt_object *none = ckpt_object_none(&m->arena);
  CKPT_TRY_ALLOC(none, err);
  for (uint64_t i = 0; i < of_ranks->n; i++) {
    ckpt_object *layout = (ckpt_object *)(uintptr_t)ckpt_object_field(of_ranks->items[2 * i + 1], key);
    (*out)->items[2 * i] = of_ranks->items[2 * i];
    (*out)->items[2 * i + 1] = layout == NULL ? none : layout;
  }
  return CKPT_OK;
}

/* The item that a path begins with; a new one where it is the first of it. */
static ckpt_status item_of_path(ckpt_dcpv2_metadata *m, const ckpt_object *path, const ckpt_object *of_ranks,
                                ckpt_dcpv2_item **out, uint64_t *n_left, ckpt_error *err) {
  ckpt_json *json = NULL;
  ckpt_json_token token;
  ckpt_object *files;
  const char *key;
  uint32_t i = 0;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_new_text(&json, path->text, (size_t)path->n, false, NULL, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_ARRAY, "a path", err));
  CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
  key = token == CKPT_JSON_STRING ? ckpt_json_text(json, NULL) : "";
  while (i < m->n && strcmp(m->items[i].key, key) != 0) i++;
  if (i == m->n) {
    if (key[0] == '\0') status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "path %.80s is of no item", path->text);
    if (m->n == MAX_ITEMS) /* each path looks through them */
      status = ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "path %.80s is of one more item: %u (at most %d)", path->text,
                         m->n + 1, MAX_ITEMS);
    if (status != CKPT_OK) goto done;
    CKPT_TRY_GOTO(check_files(of_ranks, key, n_left, err));
    key = ckpt_arena_copy(&m->arena, key);
    if (key == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (key == NULL) goto done;
    CKPT_TRY_GOTO(find_layouts(m, key, of_ranks, &files, err));
    CKPT_TRY_GOTO(new_item(m, key, files, err));
  }
  *out = &m->items[i];
done:
  ckpt_json_free(json);
  return status;
}

static ckpt_status enter_paths(ckpt_dcpv2_metadata *m, const ckpt_object *root, const ckpt_object *paths,
                               uint64_t n_left, ckpt_error *err) {
  const ckpt_object *of_ranks = ckpt_object_field(root, "rank_to_layout_info_mappings");
  if (of_ranks == NULL || of_ranks->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its metadata says no files of ranks");
  ckpt_object *numbered = NULL;
  CKPT_TRY(number_ranks(m, of_ranks, &numbered, err));
  for (uint64_t i = 0; i < paths->n; i++) {
    char name[MAX_NAME_BYTES + 1];
    size_t n = 0;
    ckpt_dcpv2_item *item = NULL;
    CKPT_TRY(check_path(paths->items[2 * i], paths->items[2 * i + 1], &n_left, err));
    CKPT_TRY(item_of_path(m, paths->items[2 * i], numbered, &item, &n_left, err));
    CKPT_TRY(join_path(name, &n, paths->items[2 * i], err));
    CKPT_TRY(add_place(m, item, name, n, paths->items[2 * i + 1], err));
  }
  for (uint32_t i = 0; i < m->n; i++) CKPT_TRY(sort_places(&m->items[i], err));
  return CKPT_OK;
}

static ckpt_status enter_items(ckpt_dcpv2_metadata *m, const ckpt_object *root, uint64_t n_left, ckpt_error *err) {
  const ckpt_object *version = ckpt_object_field(root, "version"), *items = ckpt_object_field(root, "metadata");
  if (items == NULL || items->kind != CKPT_OBJECT_DICT)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its pickle is no metadata of torch_checkpointing");
  if (version == NULL || (is_text(version) && strcmp(version->text, "1.0") == 0))
    return enter_paths(m, root, items, n_left, err);
  if (!is_text(version) || strcmp(version->text, "2.0") != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "metadata of version %.20s (1.0 and 2.0 are read)",
                     is_text(version) ? version->text : "that is no text");
  for (uint64_t i = 0; i < items->n; i++)
    CKPT_TRY(enter_item(m, items->items[2 * i], items->items[2 * i + 1], &n_left, err));
  return CKPT_OK;
}

ckpt_status ckpt_dcpv2_metadata_read(ckpt_dcpv2_metadata *metadata, ckpt_source *source, uint32_t file,
                                     ckpt_pickle_report *report, ckpt_error *err) {
  input in = {source, file};
  ckpt_pickle_options options = {.fetch = fetch,
                                 .arg = &in,
                                 .n_bytes = ckpt_source_size(source, file),
                                 .file = ckpt_source_path(source, file),
                                 .report = report};
  ckpt_object *root;
  uint64_t n_consumed;
  CKPT_TRY(ckpt_pickle_read(&root, &n_consumed, &options, &metadata->arena, err));
  if (n_consumed != options.n_bytes)
    return ckpt_fail(err, CKPT_EFORMAT, options.file, NULL, "bytes follow the pickle (%llu after %llu)",
                     (ull)(options.n_bytes - n_consumed), (ull)n_consumed);
  return ckpt_fail_at(enter_items(metadata, root, n_consumed, err), err, options.file, NULL);
}

void ckpt_dcpv2_metadata_free(ckpt_dcpv2_metadata *metadata) {
  for (uint32_t i = 0; i < metadata->n; i++) free(metadata->items[i].places);
  free(metadata->items);
  ckpt_arena_free(&metadata->arena);
}

ckpt_dcpv2_place *ckpt_dcpv2_find(const ckpt_dcpv2_item *item, const char *name) {
  const ckpt_dcpv2_place wanted = {.name = name};
  return item->n == 0 ? NULL : bsearch(&wanted, item->places, item->n, sizeof wanted, compare_places);
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* Where a number is in a tuple or list; -1: nowhere. It is mostly where it would be without gaps. */
static int64_t find_rank(const ckpt_object *ranks, uint64_t rank, uint64_t *n_steps) {
  if (ranks == NULL || (ranks->kind != CKPT_OBJECT_TUPLE && ranks->kind != CKPT_OBJECT_LIST) || ranks->n == 0)
    return -1;
  for (uint64_t i = 0, at = rank % ranks->n; i < ranks->n; i++, at = at + 1 == ranks->n ? 0 : at + 1) {
    if (++*n_steps > MAX_STEPS) return -1;
    if (ranks->items[at]->kind == CKPT_OBJECT_INT && ranks->items[at]->integer == (int64_t)rank) return (int64_t)at;
  }
  return -1;
}

/* One axis of a mesh: how many ranks there are along it, which of them this is, and what that does. */
typedef struct mesh_axis {
  uint64_t n, at;
  int64_t dim;    /* of the tensor; -1: replicated */
  uint64_t split; /* of a StridedShard: parts by the axes behind; 0: a Shard */
} mesh_axis;

static ckpt_status take_mesh(mesh_axis axes[MAX_MESH_AXES], uint32_t *n_axes, const ckpt_object *data, uint64_t rank,
                             uint64_t *n_steps, ckpt_error *err) {
  const ckpt_object *mesh = ckpt_object_field(data, "mesh_spec"), *placements = ckpt_object_field(data, "placements");
  const ckpt_object *ranks = ckpt_object_field(mesh, "mesh_data");
  uint64_t sizes[MAX_MESH_AXES], n_ranks;
  int64_t at = find_rank(ranks, rank, n_steps);
  if (at < 0 || !ckpt_foreign_u64s(ckpt_object_field(mesh, "mesh_shape"), sizes, MAX_MESH_AXES, n_axes) ||
      placements == NULL || placements->kind != CKPT_OBJECT_LIST || placements->n != *n_axes ||
      !ckpt_product_u64(sizes, *n_axes, &n_ranks) || n_ranks != ranks->n)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL,
                     "its mesh does not have rank %llu, or not as many axes as placements", (ull)rank);
  uint64_t place = (uint64_t)at;
  for (uint32_t i = *n_axes; i-- > 0;) {
    const ckpt_object *type = ckpt_object_field(placements->items[i], "type"),
                      *dim = ckpt_object_field(placements->items[i], "dim");
    const ckpt_object *split = ckpt_object_field(placements->items[i], "split_factor");
    axes[i] = (mesh_axis){.n = sizes[i], .at = place % sizes[i], .dim = -1};
    place /= sizes[i];
    if (is_text(type) && strcmp(type->text, "Replicate") == 0) continue;
    bool is_strided = is_text(type) && strcmp(type->text, "StridedShard") == 0;
    if (!is_text(type) || (!is_strided && strcmp(type->text, "Shard") != 0))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "placement %.40s",
                       is_text(type) ? type->text : "without type");
    if (dim == NULL || dim->kind != CKPT_OBJECT_INT || dim->integer < 0 || dim->integer >= CKPT_MAX_RANK ||
        (is_strided && (split == NULL || split->kind != CKPT_OBJECT_INT || split->integer < 1)))
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a shard of it without axis");
    axes[i].dim = dim->integer;
    if (is_strided) axes[i].split = (uint64_t)split->integer;
  }
  return CKPT_OK;
}

static void cut(ckpt_dcpv2_box *box, const mesh_axis *axis) {
  uint64_t *count = &box->counts[axis->dim], each = *count / axis->n + (*count % axis->n != 0), start;
  if (!ckpt_mul_u64(axis->at, each, &start) || start > *count) start = *count;
  box->starts[axis->dim] += start;
  *count = *count - start < each ? *count - start : each;
}

/* Whether axis i, a StridedShard, is the cut of what the axes behind it left, and they and it cut evenly. */
static bool is_nested(const mesh_axis *axes, uint32_t n, uint32_t i, const ckpt_dcpv2_box *box) {
  uint64_t n_parts = 1, n_all;
  for (uint32_t k = i + 1; k < n; k++)
    if (axes[k].dim == axes[i].dim && !ckpt_mul_u64(n_parts, axes[k].n, &n_parts)) return false;
  return n_parts == axes[i].split && ckpt_mul_u64(n_parts, axes[i].n, &n_all) && n_all != 0 &&
         box->shape[axes[i].dim] % n_all == 0;
}

/* Shards from left to right, then strided ones from right to left: what FSDP cuts of what tensor parallelism left. */
static ckpt_status take_placements(ckpt_dcpv2_box *box, const ckpt_object *data, uint64_t rank, uint64_t *n_steps,
                                   ckpt_error *err) {
  mesh_axis axes[MAX_MESH_AXES];
  uint32_t n = 0;
  CKPT_TRY(take_mesh(axes, &n, data, rank, n_steps, err));
  for (uint32_t i = 0; i < n; i++) {
    if (axes[i].dim >= (int64_t)box->rank)
      return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a shard along axis %lld of %u", (long long)axes[i].dim,
                       box->rank);
    if (axes[i].dim >= 0 && axes[i].split != 0 && !is_nested(axes, n, i, box))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a strided shard of it is no box (split_factor %llu)",
                       (ull)axes[i].split);
    if (axes[i].dim >= 0 && axes[i].split == 0) cut(box, &axes[i]);
  }
  for (uint32_t i = n; i-- > 0;)
    if (axes[i].dim >= 0 && axes[i].split != 0) cut(box, &axes[i]);
  return CKPT_OK;
}

/* One box that is all of the local tensor. */
static ckpt_status take_stated(ckpt_dcpv2_box *box, const ckpt_object *data, ckpt_error *err) {
  const ckpt_object *starts = ckpt_object_field(data, "global_offsets"),
                    *sizes = ckpt_object_field(data, "local_sizes");
  const ckpt_object *within = ckpt_object_field(data, "local_offsets");
  uint64_t local[CKPT_MAX_RANK];
  uint32_t n = 0, m = 0, k = 0;
  if (ckpt_foreign_arg(starts, 0) == NULL || starts->n != 1 || sizes == NULL || sizes->n != 1 || within == NULL ||
      within->n != 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a rank that has several boxes of it, or none");
  if (!ckpt_foreign_u64s(ckpt_foreign_arg(starts, 0), box->starts, CKPT_MAX_RANK, &n) || n != box->rank ||
      !ckpt_foreign_u64s(ckpt_foreign_arg(sizes, 0), box->counts, CKPT_MAX_RANK, &m) || m != box->rank ||
      !ckpt_foreign_u64s(ckpt_foreign_arg(within, 0), local, CKPT_MAX_RANK, &k) || k != box->rank)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a shard of it that is no box of its %u ax%s", box->rank,
                     box->rank == 1 ? "is" : "es");
  for (uint32_t i = 0; i < box->rank; i++)
    if (local[i] != 0) return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a box within what the rank has");
  return CKPT_OK;
}

ckpt_status ckpt_dcpv2_box_of(ckpt_dcpv2_box *out, ckpt_dcpv2_metadata *metadata, const ckpt_dcpv2_place *place,
                              uint64_t rank, ckpt_error *err) {
  const ckpt_object *groups = place->groups, *sharding = NULL;
  for (uint64_t i = 0, at = groups->n == 0 ? 0 : rank % groups->n; i < groups->n && sharding == NULL; i++) {
    if (find_rank(ckpt_object_field(groups->items[at], "ranks"), rank, &metadata->n_steps) >= 0)
      sharding = ckpt_object_field(groups->items[at], "sharding_metadata");
    at = at + 1 == groups->n ? 0 : at + 1;
    if (++metadata->n_steps > MAX_STEPS)
      return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the metadata's lists of ranks are too long to look through");
  }
  const ckpt_object *type = ckpt_object_field(sharding, "type"), *data = ckpt_object_field(sharding, "data");
  *out = (ckpt_dcpv2_box){.rank = 0};
  if (!is_text(type) ||
      !ckpt_foreign_u64s(ckpt_object_field(data, "global_shape"), out->shape, CKPT_MAX_RANK, &out->rank))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "rank %llu has it, and the metadata says no type or shape of that",
                     (ull)rank);
  memcpy(out->counts, out->shape, sizeof out->counts);
  if (strcmp(type->text, "DTensorShardingMetadata") == 0)
    return take_placements(out, data, rank, &metadata->n_steps, err);
  if (strcmp(type->text, "default_tensor_v1") == 0) return take_stated(out, data, err);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "sharding metadata of type %.60s", type->text);
}
