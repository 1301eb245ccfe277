/* hf.c - what torch's HuggingFaceStorageWriter leaves where every rank saves its own shard and nobody consolidates.
 *
 *   shard-00001-model-00001-of-00002.safetensors   rank 0's chunks of the tensors that belong in file 1 of 2
 *
 * Each is a safetensors file whose __metadata__ says in DCP_SHARDING_INFO where its chunks begin:
 *   {"<name>": {"saved_offsets": [0, 0]}, ...}
 * Full shapes are stored nowhere: they are as far as chunks reach. A lost last shard shows where a file of the model is
 * in no other one; else only what --like compares tells, and `verify` says so. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/dcp.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/format/findings.h"
#include "libckpt/index/name_table.h"

#define SHARDING "DCP_SHARDING_INFO"

/* A stored box of a tensor: rank starts, rank counts. */
typedef struct chunk {
  const char *name;
  uint64_t *box;
  uint64_t offset, n_bytes;
  uint32_t file;
  uint8_t dtype, rank;
} chunk;

typedef struct shards {
  ckpt_index *index;
  chunk *chunks;
  uint32_t n_chunks, capacity;
  ckpt_extent *extents;
  uint32_t extent_capacity;
} shards;

/* The number of digits from name[from] on. */
static unsigned number_at(const char *name, size_t from) {
  unsigned number = 0;
  for (size_t i = from; i < from + 5; i++) number = 10 * number + (unsigned)(name[i] - '0');
  return number;
}

bool ckpt_dcp_hf_name(const char *name, unsigned *shard) {
  static const char form[] = "shard-#####-model-#####-of-#####.safetensors";
  for (size_t i = 0; i < sizeof form; i++)
    if (form[i] == '#' ? name[i] < '0' || name[i] > '9' : name[i] != form[i]) return false;
  *shard = number_at(name, 6);
  return true;
}

/* ---- one shard ---- */

/* {"saved_offsets": [...]} into starts. */
static ckpt_status take_offsets(ckpt_json *json, uint64_t *starts, uint32_t rank, ckpt_error *err) {
  ckpt_json_token token;
  uint32_t n = 0;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "the place of a chunk", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    if (strcmp(ckpt_json_text(json, NULL), "saved_offsets") != 0) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "saved_offsets", err));
    for (n = 0;; n++) {
      CKPT_TRY(ckpt_json_next(json, &token, err));
      if (token == CKPT_JSON_ARRAY_END) break;
      if (n == rank || token != CKPT_JSON_NUMBER || !ckpt_json_u64(json, &starts[n]))
        return ckpt_json_fail(json, err, "saved_offsets are no place on %u ax%s", rank, rank == 1 ? "is" : "es");
    }
  }
  return n == rank ? CKPT_OK
                   : ckpt_json_fail(json, err, "saved_offsets are no place on %u ax%s", rank, rank == 1 ? "is" : "es");
}

static ckpt_status take_places(ckpt_json *json, chunk *chunks, const ckpt_name_table *table, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, SHARDING, err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return ckpt_json_next(json, &token, err);
    int64_t number = ckpt_name_table_find(table, ckpt_json_text(json, NULL));
    if (number < 0)
      CKPT_TRY(ckpt_json_skip(json, err));
    else
      CKPT_TRY(take_offsets(json, chunks[number].box, chunks[number].rank, err));
  }
}

/* The tensors of a shard as chunks that begin at 0. */
static ckpt_status list_chunks(shards *s, const ckpt_index *held, uint32_t file, ckpt_error *err) {
  ckpt_arena *arena = &s->index->arena;
  for (uint32_t i = 0; i < held->n_tensors; i++) {
    const ckpt_tensor *tensor = &held->tensors[i];
    CKPT_TRY(ckpt_grow(&s->chunks, s->n_chunks, &s->capacity, sizeof *s->chunks, err));
    chunk *c = &s->chunks[s->n_chunks];
    *c = (chunk){.name = ckpt_arena_copy(arena, tensor->name),
                 .box = ckpt_arena_array(arena, 2 * (size_t)tensor->rank + 1, sizeof *c->box),
                 .file = file,
                 .dtype = tensor->dtype,
                 .rank = tensor->rank};
    CKPT_TRY_ALLOC(c->name, err);
    CKPT_TRY_ALLOC(c->box, err);
    if (tensor->rank != 0) memcpy(c->box + tensor->rank, tensor->shape, tensor->rank * sizeof *c->box);
    if (tensor->n_extents == 1) {
      c->offset = tensor->extents[0].offset;
      c->n_bytes = tensor->extents[0].n_stored;
    }
    s->n_chunks++;
  }
  return CKPT_OK;
}

static ckpt_status place_chunks(shards *s, const ckpt_index *held, uint32_t first, const char *path, ckpt_error *err) {
  const char *sharding = ckpt_index_metadata(held, SHARDING);
  if (sharding == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "named as a shard, but its metadata has no " SHARDING);
  ckpt_json *json = NULL;
  ckpt_name_table *table = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_name_table_new(&table, held, err));
  CKPT_TRY_GOTO(ckpt_json_new_text(&json, sharding, strlen(sharding), false, path, err));
  status = take_places(json, s->chunks + first, table, err);
done:
  ckpt_json_free(json);
  ckpt_name_table_free(table);
  return status;
}

static ckpt_status read_shard(shards *s, const char *name, ckpt_error *err) {
  ckpt_source *source = s->index->source;
  uint32_t file, first = s->n_chunks;
  uint64_t n_bytes;
  ckpt_index *held;
  CKPT_TRY(ckpt_source_add(source, name, &file, &n_bytes, err));
  const char *path = ckpt_source_path(source, file);
  CKPT_TRY(ckpt_safetensors_read_alone(&held, source, file, 0, &s->index->defects, err));
  ckpt_status status = list_chunks(s, held, file, err);
  if (status == CKPT_OK) status = place_chunks(s, held, first, path, err);
  ckpt_index_free(held);
  return status;
}

/* ---- all shards ---- */

static int compare_chunks(const void *x, const void *y) {
  const chunk *a = x, *b = y;
  int order = strcmp(a->name, b->name);
  if (order == 0) order = (a->rank > b->rank) - (a->rank < b->rank);
  for (uint32_t i = 0; i < 2u * a->rank && order == 0; i++) order = (a->box[i] > b->box[i]) - (a->box[i] < b->box[i]);
  return order != 0 ? order : (a->file > b->file) - (a->file < b->file);
}

/* torch saves each part once. Where two shards have it, one lies in the place of another, whose parts are lost. */
static ckpt_status check_alone(const shards *s, const chunk *c, const chunk *before, ckpt_error *err) {
  char place[32 * CKPT_MAX_RANK] = "";
  size_t n = 0;
  if (memcmp(c->box, before->box, 2 * (size_t)c->rank * sizeof *c->box) != 0) return CKPT_OK;
  for (uint32_t i = 0; i < c->rank; i++) /* an axis of no elements holds none that could be lost */
    if (c->box[c->rank + i] == 0) return CKPT_OK;
  for (uint32_t i = 0; i < c->rank; i++)
    n += (size_t)ckpt_c_snprintf(place + n, sizeof place - n, "%s%llu", i == 0 ? "" : ", ",
                                 (unsigned long long)c->box[i]);
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(s->index->source, c->file), c->name,
                   "its part at [%s] is in %s too: one of them lies in another shard's place (copy the shards again)",
                   place, ckpt_source_name(s->index->source, before->file));
}

static ckpt_status add_tensor(shards *s, const chunk *chunks, uint32_t n, ckpt_error *err) {
  uint32_t rank = chunks[0].rank, n_extents = 0, number;
  uint64_t shape[CKPT_MAX_RANK] = {0}, end;
  for (uint32_t i = 0; i < n; i++) {
    const chunk *c = &chunks[i];
    if (c->rank != rank || c->dtype != chunks[0].dtype)
      return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(s->index->source, c->file), c->name,
                       "%s of %u ax%s, %s of %u in the shards before", ckpt_dtype_name((ckpt_dtype)c->dtype), c->rank,
                       c->rank == 1 ? "is" : "es", ckpt_dtype_name((ckpt_dtype)chunks[0].dtype), rank);
    if (i > 0) CKPT_TRY(check_alone(s, c, c - 1, err));
    for (uint32_t axis = 0; axis < rank; axis++) {
      if (!ckpt_add_u64(c->box[axis], c->box[rank + axis], &end))
        return ckpt_fail(err, CKPT_EFORMAT, NULL, c->name, "a chunk reaches past 2^64");
      if (end > shape[axis]) shape[axis] = end;
    }
    CKPT_TRY(ckpt_grow(&s->extents, n_extents, &s->extent_capacity, sizeof *s->extents, err));
    s->extents[n_extents] = (ckpt_extent){.offset = c->offset, .n_stored = c->n_bytes, .file = c->file};
    if (rank == 0)
      s->extents[n_extents++].count = 1;
    else
      s->extents[n_extents++].box = c->box;
  }
  CKPT_TRY(ckpt_index_add(s->index, chunks[0].name, strlen(chunks[0].name), (ckpt_dtype)chunks[0].dtype, rank, shape,
                          CKPT_ROLE_PARAMETER, s->extents, n_extents, &number, err));
  s->index->tensors[number].details->extent_form = rank == 0 ? CKPT_EXTENT_FLAT : CKPT_EXTENT_BOX;
  return CKPT_OK;
}

/* Every one of the model's files must have a part in some shard: `-of-00002` says how many there are. */
static ckpt_status check_files(const ckpt_probe *probe, ckpt_error *err) {
  enum { MODEL = 18, TOTAL = 27 }; /* places in a name */
  unsigned shard, n_files = 0, n_total = 0;
  bool *is_there = calloc(100000, sizeof *is_there);
  CKPT_TRY_ALLOC(is_there, err);
  for (size_t i = 0; i < probe->n_entries; i++) {
    const char *name = probe->entries[i].name;
    if (!ckpt_dcp_hf_name(name, &shard)) continue;
    n_total = number_at(name, TOTAL) > n_total ? number_at(name, TOTAL) : n_total;
    n_files += !is_there[number_at(name, MODEL)];
    is_there[number_at(name, MODEL)] = true;
  }
  free(is_there);
  if (n_files >= n_total) return CKPT_OK;
  return ckpt_fail(err, CKPT_ENOTFOUND, probe->path, NULL,
                   "its shards have parts of %u of the model's %u files (copy the others, or save again)", n_files,
                   n_total);
}

/* Reads every shard's header; *n_shards counts them. */
static ckpt_status read_shards(shards *s, const ckpt_probe *probe, unsigned *n_shards, ckpt_error *err) {
  unsigned shard, last = 0;
  *n_shards = 0;
  for (size_t i = 0; i < probe->n_entries; i++) { /* sorted: the files of a shard follow each other */
    if (!ckpt_dcp_hf_name(probe->entries[i].name, &shard)) continue;
    if (shard == 0)
      return ckpt_fail(err, CKPT_EFORMAT, probe->path, NULL, "%s is of shard 0, and torch begins with 1",
                       probe->entries[i].name);
    ckpt_error defect = {0};
    ckpt_status status = read_shard(s, probe->entries[i].name, &defect);
    CKPT_TRY(ckpt_defects_pass(&s->index->defects, status, &defect, err));
    *n_shards += shard != last;
    last = shard;
  }
  if (last == *n_shards) return CKPT_OK;
  ckpt_error defect = {0};
  ckpt_status status =
      ckpt_fail(&defect, CKPT_ENOTFOUND, probe->path, NULL, "the files of %u shard%s are there, up to shard %u",
                *n_shards, ckpt_plural(*n_shards), last);
  return ckpt_defects_pass(&s->index->defects, status, &defect, err);
}

static ckpt_status read_all(shards *s, const ckpt_probe *probe, ckpt_error *err) {
  unsigned n_shards;
  ckpt_error defect = {0};
  CKPT_TRY(ckpt_defects_pass(&s->index->defects, check_files(probe, &defect), &defect, err));
  CKPT_TRY(read_shards(s, probe, &n_shards, err));
  const bool is_whole = s->index->defects.n == 0; /* else shapes are not known */
  if (s->n_chunks > 1) qsort(s->chunks, s->n_chunks, sizeof *s->chunks, compare_chunks);
  for (uint32_t i = 0, n; i < s->n_chunks; i += n) {
    const chunk *first = &s->chunks[i];
    for (n = 1; i + n < s->n_chunks && strcmp(first->name, s->chunks[i + n].name) == 0; n++) continue;
    CKPT_TRY(is_whole ? add_tensor(s, first, n, err)
                      : ckpt_index_add_broken(s->index, first->name, CKPT_ROLE_PARAMETER, first->file, err));
  }
  s->index->writer = ckpt_arena_printf(&s->index->arena, "torch.distributed.checkpoint (safetensors, %u shard%s)",
                                       n_shards, ckpt_plural(n_shards));
  CKPT_TRY_ALLOC(s->index->writer, err);
  CKPT_TRY(ckpt_index_note_advise(
      ckpt_index_note(s->index, false, err, "full shapes are stored nowhere: taken from %u shard%s to be all of them",
                      n_shards, n_shards == 1 ? ", which has" : "s, which have"),
      s->index, "%like=MODEL compares them"));
  return ckpt_index_note_is(s->index, CKPT_NOTE_DOUBT, NULL, err); /* a lost last shard looks the same */
}

ckpt_status ckpt_dcp_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                            ckpt_error *err) {
  unsigned shard;
  (void)run;
  CKPT_TRY(ckpt_dcp_verify_replicas(findings, index, err));
  CKPT_TRY(ckpt_dcp_verify_saves(findings, index, err));
  if (ckpt_source_count(index->source) == 0 || !ckpt_dcp_hf_name(ckpt_source_name(index->source, 0), &shard))
    return CKPT_OK;
  return ckpt_findings_advise(ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                                                "shapes: as far as the shards reach, for they are stored nowhere: "
                                                "whether the last shards are missing cannot be told"),
                              findings, "%like=MODEL compares them", NULL);
}

ckpt_status ckpt_dcp_read_hf(ckpt_index *index, const ckpt_probe *probe, ckpt_error *err) {
  shards s = {.index = index};
  ckpt_status status = read_all(&s, probe, err);
  free(s.chunks);
  free(s.extents);
  return status;
}
