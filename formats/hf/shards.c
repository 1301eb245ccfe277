/* shards.c - the index file of a sharded folder, against its shards. See hf.c for its form.
 *
 * Both are streamed: once over weight_map to find and read the shards, once more to check each of its names against
 * what the shards hold. Names resolve beneath the folder (source.h). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/index/name_table.h"

enum { MAX_TEXT_BYTES = 4096, MAX_LISTED = 8, MAX_CLOSED = 64 };

typedef unsigned long long ull;

typedef struct map map;
struct map {
  ckpt_index *index;
  uint32_t file; /* of the index file */
  const char *path;
  bool has_weights, has_metadata, has_total, is_total_odd, is_metadata_odd,
      is_empty;   /* is_empty: weight_map names nothing */
  uint64_t total; /* metadata's total_size */
  /* Called for each entry of weight_map. */
  ckpt_status (*visit)(map *m, const char *tensor, const char *shard, ckpt_error *err);
  char shard[MAX_TEXT_BYTES + 1]; /* of the entry before, numbered shard_file: most entries repeat it */
  uint32_t shard_file;
  const char *missing[MAX_LISTED]; /* names of shards that are not there */
  size_t n_missing;
  const char *closed[MAX_CLOSED]; /* of those that cannot be opened, which is told once */
  size_t n_closed;
  bool is_lost;    /* of that shard: it is not there, or cannot be read, which is told */
  uint8_t *failed; /* by file: it could not be read */
  uint32_t n_failed, failed_capacity;
  ckpt_name_table *table; /* second walk: tensors of the shards */
  uint32_t n_tensors;     /* second walk: of the shards */
  uint8_t *seen;          /* second walk: bit i: tensor i is in the map */
  uint64_t n_bytes;       /* second walk: of the tensors in the map */
  bool is_unsure;         /* second walk: of some of them the size is not known */
};

/* ---- walking ---- */

static ckpt_status walk_weights(map *m, ckpt_json *json, ckpt_error *err) {
  char tensor[MAX_TEXT_BYTES + 1];
  ckpt_json_token token;
  if (m->has_weights) return ckpt_json_fail(json, err, "weight_map is given twice");
  m->has_weights = m->is_empty = true;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "weight_map", err));
  for (;;) {
    size_t n;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    m->is_empty = false;
    const char *text = ckpt_json_text(json, &n);
    if (strlen(text) != n) return ckpt_json_fail(json, err, "a tensor name holds a NUL character");
    memcpy(tensor, text, n + 1);
    CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_STRING, "a value of weight_map", err));
    text = ckpt_json_text(json, &n);
    for (; n > 2 && strncmp(text, "./", 2) == 0; n -= 2) text += 2; /* the same file */
    if (n == 0 || strlen(text) != n)
      return ckpt_json_fail(json, err, "the file of '%.80s' %s", tensor, n == 0 ? "is empty" : "holds a NUL character");
    CKPT_TRY(m->visit(m, tensor, text, err));
  }
}

/* A number of bytes; some writers put a float there. */
static bool take_total(const ckpt_json *json, uint64_t *total) {
  if (ckpt_json_u64(json, total)) return true;
  double value = ckpt_c_strtod(ckpt_json_text(json, NULL), NULL);
  if (!(value >= 0 && value < 0x1p64) || value != floor(value)) return false;
  *total = (uint64_t)value;
  return true;
}

static ckpt_status walk_metadata(map *m, ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  m->has_metadata = true;
  m->is_metadata_odd = token != CKPT_JSON_OBJECT;
  if (m->is_metadata_odd) return ckpt_json_skip_rest(json, token, err);
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    bool is_total = strcmp(ckpt_json_text(json, NULL), "total_size") == 0;
    if (!is_total) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    CKPT_TRY(ckpt_json_next(json, &token, err));
    m->has_total = token == CKPT_JSON_NUMBER && take_total(json, &m->total);
    m->is_total_odd = !m->has_total;
    CKPT_TRY(ckpt_json_skip_rest(json, token, err));
  }
}

static ckpt_status walk_keys(map *m, ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "an index file", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL);
    if (strcmp(key, "weight_map") == 0)
      CKPT_TRY(walk_weights(m, json, err));
    else if (strcmp(key, "metadata") == 0)
      CKPT_TRY(walk_metadata(m, json, err));
    else
      CKPT_TRY(ckpt_json_skip(json, err));
  }
  if (!m->has_weights) return ckpt_json_fail(json, err, "weight_map is missing");
  return ckpt_json_next(json, &token, err); /* the end, or an error */
}

static ckpt_status walk(map *m, ckpt_error *err) {
  ckpt_source *source = m->index->source;
  ckpt_json *json;
  m->has_weights = false;
  m->shard[0] = '\0';
  uint64_t n_bytes = ckpt_source_size(source, m->file);
  CKPT_TRY(ckpt_json_new_source(&json, source, m->file, 0, n_bytes, MAX_TEXT_BYTES, true, err));
  ckpt_status status = walk_keys(m, json, err);
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, m->path, NULL);
}

/* ---- first walk: the shards ---- */

/* Notes a shard in a list of n, of at most `most`, that does not have it. */
static ckpt_status note_shard(map *m, const char **list, size_t *n, size_t most, const char *shard, ckpt_error *err) {
  for (size_t i = 0; i < *n; i++)
    if (strcmp(list[i], shard) == 0) return CKPT_OK;
  if (*n == most) return CKPT_OK;
  list[*n] = ckpt_arena_copy(&m->index->arena, shard);
  CKPT_TRY_ALLOC(list[*n], err);
  (*n)++;
  return CKPT_OK;
}

/* Goes past a shard that cannot be opened, where all defects are asked for. */
static ckpt_status pass_closed(map *m, const char *shard, ckpt_status status, ckpt_error *defect, ckpt_error *err) {
  const size_t n_told = m->n_closed;
  CKPT_TRY(note_shard(m, m->closed, &m->n_closed, MAX_CLOSED, shard, err));
  return m->n_closed == n_told ? CKPT_OK : ckpt_defects_pass(&m->index->defects, status, defect, err);
}

/* Numbers the shard of an entry, as the one before has it or anew. */
static ckpt_status find_shard(map *m, const char *shard, bool *is_new, ckpt_error *err) {
  *is_new = strcmp(shard, m->shard) != 0;
  if (!*is_new) return CKPT_OK;
  memcpy(m->shard, shard, strlen(shard) + 1);
  uint64_t size;
  ckpt_error absent = {0};
  ckpt_status status = ckpt_source_add(m->index->source, shard, &m->shard_file, &size, &absent);
  m->is_lost = status != CKPT_OK || (m->shard_file < m->n_failed && m->failed[m->shard_file] != 0);
  if (status == CKPT_OK) return CKPT_OK;
  m->shard_file = UINT32_MAX;
  return ckpt_fail_as(err, status, absent.file[0] != '\0' ? absent.file : m->path, NULL, &absent);
}

/* Goes past a shard that cannot be read, where all defects are asked for. */
static ckpt_status pass_shard(map *m, ckpt_status status, ckpt_error *defect, ckpt_error *err) {
  if (status == CKPT_OK) return CKPT_OK;
  CKPT_TRY(ckpt_defects_pass(&m->index->defects, status, defect, err));
  while (m->n_failed <= m->shard_file) {
    CKPT_TRY(ckpt_grow(&m->failed, m->n_failed, &m->failed_capacity, sizeof *m->failed, err));
    m->failed[m->n_failed++] = 0;
  }
  m->failed[m->shard_file] = 1;
  return CKPT_OK;
}

/* Reads a shard when it is new. Once one is missing the rest is only looked for, unless all defects are asked for. */
static ckpt_status visit_shard(map *m, const char *tensor, const char *shard, ckpt_error *err) {
  (void)tensor;
  const uint32_t n_files = ckpt_source_count(m->index->source);
  bool is_new;
  ckpt_error defect = {0};
  ckpt_status status = find_shard(m, shard, &is_new, &defect);
  if (status == CKPT_ENOTFOUND) return note_shard(m, m->missing, &m->n_missing, MAX_LISTED, shard, err);
  if (status != CKPT_OK) return pass_closed(m, shard, status, &defect, err);
  if (!is_new || m->shard_file < n_files) return CKPT_OK;
  if (m->n_missing != 0 && m->index->defects.report == NULL) return CKPT_OK;
  return pass_shard(m, ckpt_hf_read_weights_file(m->index, m->shard_file, &defect), &defect, err);
}

static ckpt_status refuse_missing(const map *m, ckpt_error *err) {
  char list[1024] = "";
  size_t n = 0;
  for (size_t i = 0; i < m->n_missing; i++) {
    size_t n_name = strlen(m->missing[i]);
    if (n_name + 2 > sizeof list - n) break;
    list[n++] = ' ';
    memcpy(list + n, m->missing[i], n_name + 1);
    n += n_name;
  }
  return ckpt_fail(err, CKPT_ENOTFOUND, m->path, NULL, "%s missing:%.700s%s (download %s)",
                   m->n_missing == 1 ? "a shard is" : "shards are", list, m->n_missing == MAX_LISTED ? " ..." : "",
                   m->n_missing == 1 ? "it" : "them");
}

/* A map that names nothing stands for no shards: where some lie beside it, it is not theirs. */
static ckpt_status refuse_empty(const map *m, ckpt_error *err) {
  ckpt_entry *entries;
  size_t n;
  ckpt_status status = CKPT_OK;
  const char *suffix = ckpt_text_ends_in(m->path, strlen(m->path), CKPT_HF_INDEX_SUFFIX) ? ".safetensors" : ".bin";
  CKPT_TRY(ckpt_list(&entries, &n, ckpt_source_root(m->index->source), "", err));
  for (size_t i = 0; i < n && status == CKPT_OK; i++)
    if (!entries[i].is_folder && ckpt_text_ends_in(entries[i].name, strlen(entries[i].name), suffix))
      status = ckpt_fail(err, CKPT_EFORMAT, m->path, NULL,
                         "weight_map is empty, but %.200s lies beside it (download the index again)", entries[i].name);
  ckpt_list_free(entries, n);
  return status;
}

/* ---- second walk: each name against the shards ---- */

/* An entry against the tensor of that name, or number -1: there is none. One that stands in two shards is told. */
static ckpt_status check_entry(map *m, const char *tensor, const char *shard, int64_t number, ckpt_error *err) {
  const ckpt_source *source = m->index->source;
  if (number < 0)
    return ckpt_fail(err, CKPT_EFORMAT, m->path, tensor, "should be in %.200s, which does not hold it", shard);
  const ckpt_tensor *found = &m->index->tensors[number];
  bool is_seen = m->seen[number >> 3] >> (number & 7) & 1, is_alias = strcmp(found->name, tensor) != 0;
  if (!is_alias) m->seen[number >> 3] |= (uint8_t)(1u << (number & 7));
  if (!is_alias && !is_seen && !ckpt_add_u64(m->n_bytes, found->n_bytes, &m->n_bytes))
    return ckpt_fail(err, CKPT_EFORMAT, m->path, NULL, "tensors of more than 2^64 bytes");
  if (found->extents[0].file != m->shard_file && found->extents[0].file != CKPT_FILE_LITERAL &&
      !ckpt_name_table_is_twice(m->table, tensor))
    return ckpt_fail(err, CKPT_EFORMAT, m->path, tensor, "should be in %.200s, but is in %.200s", shard,
                     ckpt_source_name(source, found->extents[0].file));
  if (!is_alias && is_seen) return ckpt_fail(err, CKPT_EFORMAT, m->path, tensor, "stands twice in weight_map");
  return CKPT_OK;
}

static ckpt_status visit_tensor(map *m, const char *tensor, const char *shard, ckpt_error *err) {
  bool is_new;
  ckpt_error defect = {0};
  ckpt_status status = find_shard(m, shard, &is_new, &defect);
  if (status != CKPT_OK && m->index->defects.report == NULL)
    return ckpt_fail_as(err, status, defect.file, NULL, &defect); /* gone since the first walk */
  defect = (ckpt_error){0};
  int64_t number = ckpt_name_table_find(m->table, tensor);
  if (number >= 0 || !m->is_lost) status = check_entry(m, tensor, shard, number, &defect);
  if (defect.status != CKPT_OK) CKPT_TRY(ckpt_defects_pass(&m->index->defects, status, &defect, err));
  m->is_unsure = m->is_unsure || number < 0 || m->index->tensors[number].details->extent_form == CKPT_EXTENT_BROKEN;
  if (number >= 0) return CKPT_OK;
  return ckpt_index_add_broken(m->index, tensor, ckpt_role_of_name(tensor), m->file, err);
}

/* What the map and the shards disagree about without harm. */
static ckpt_status note_differences(const map *m, ckpt_error *err) {
  const char *first = NULL;
  uint64_t n_unnamed = 0; /* bytes; a total may count them */
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->n_tensors; i++) {
    if ((m->seen[i >> 3] >> (i & 7) & 1) != 0 || m->index->tensors[i].details->extent_form == CKPT_EXTENT_BROKEN)
      continue;
    if (n++ == 0) first = m->index->tensors[i].name;
    n_unnamed += m->index->tensors[i].n_bytes;
  }
  if (n != 0)
    CKPT_TRY(ckpt_index_problem(m->index, m->file, err, "does not name what its shards hold: '%.200s'%s (%u)", first,
                                n > 1 ? ", ..." : "", n));
  if (!m->has_metadata)
    CKPT_TRY(ckpt_index_problem(m->index, m->file, err, "has no metadata, which transformers refuses"));
  if (m->is_metadata_odd) CKPT_TRY(ckpt_index_problem(m->index, m->file, err, "metadata is no object"));
  if (m->is_total_odd)
    CKPT_TRY(ckpt_index_problem(m->index, m->file, err, "total_size is no whole number of bytes, its tensors have %llu",
                                (ull)m->n_bytes));
  const bool is_sum = m->total == m->n_bytes || m->total == m->n_bytes + n_unnamed;
  if (m->has_total && !is_sum && m->index->n_aliases == 0 && !m->is_unsure)
    CKPT_TRY(ckpt_index_problem(m->index, m->file, err, "says total_size %llu, its tensors have %llu", (ull)m->total,
                                (ull)m->n_bytes));
  return CKPT_OK;
}

ckpt_status ckpt_hf_read_shards(ckpt_index *index, const char *index_name, ckpt_error *err) {
  map *m = calloc(1, sizeof *m);
  CKPT_TRY_ALLOC(m, err);
  m->index = index;
  uint64_t size;
  ckpt_error defect = {0};
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_source_add(index->source, index_name, &m->file, &size, err));
  m->path = ckpt_source_path(index->source, m->file);
  m->visit = visit_shard;
  CKPT_TRY_GOTO(walk(m, err));
  if (m->is_empty) CKPT_TRY_GOTO(refuse_empty(m, err));
  if (m->n_missing != 0) CKPT_TRY_GOTO(ckpt_defects_pass(&index->defects, refuse_missing(m, &defect), &defect, err));
  CKPT_TRY_GOTO(ckpt_safetensors_merge(index, err));
  CKPT_TRY_GOTO(ckpt_name_table_new(&m->table, index, err));
  m->n_tensors = index->n_tensors;
  m->seen = calloc(index->n_tensors / 8 + 1, 1);
  if (m->seen == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  m->visit = visit_tensor;
  CKPT_TRY_GOTO(walk(m, err));
  status = note_differences(m, err);
done:
  ckpt_name_table_free(m->table);
  free(m->seen);
  free(m->failed);
  free(m);
  return status;
}
