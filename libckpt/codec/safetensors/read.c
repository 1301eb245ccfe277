/* read.c - a safetensors header into an index, by streaming: see safetensors.h for the bytes.
 *
 * Strict where the reference crate is strict, with three differences on purpose: holes and trailing bytes are noted
 * instead of refused (other writers leave them), a name that stands twice is refused (the crate keeps one of the two),
 * and serde's other spellings (a tensor as an array, a dtype as an object) are refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/json.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/index/name_table.h"

enum { MAX_NAME_BYTES = 4096, LENGTH_BYTES = 8 };

typedef unsigned long long ull;

/* Where a tensor's bytes are in the payload. */
typedef struct range {
  uint64_t begin, end;
  uint32_t number; /* of the tensor in the index */
  bool is_told;    /* that its entry is broken */
} range;

typedef struct reader {
  ckpt_index *index;
  ckpt_json *json;
  uint32_t file;
  const char *path; /* for messages */
  uint64_t begin;   /* of the header's length in the file */
  uint64_t payload; /* offset of the payload in the file */
  uint64_t n_payload;
  range *ranges;
  uint32_t n_ranges, capacity;
  uint32_t n_entries; /* tensors of the header, whole or not */
  bool has_metadata;
  bool is_unsure;                /* of some bytes it is not known whose they are */
  char name[MAX_NAME_BYTES + 1]; /* of the tensor being read */
} reader;

/* One header entry. */
typedef struct entry {
  bool has_dtype, has_shape, has_offsets;
  ckpt_dtype dtype;
  uint32_t rank;
  uint64_t shape[CKPT_MAX_RANK], offsets[2];
} entry;

bool ckpt_safetensors_probe(const uint8_t *head, size_t n_head) {
  if (n_head <= LENGTH_BYTES || head[5] != 0 || head[6] != 0 || head[7] != 0) return false; /* text has no zeros */
  size_t i = LENGTH_BYTES;
  while (i < n_head && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t')) i++;
  return i < n_head && head[i] == '{';
}

/* ---- one tensor ---- */

/* The last token, a number, as an unsigned integer. */
static ckpt_status take_integer(reader *r, const char *what, uint64_t *out, ckpt_error *err) {
  if (ckpt_json_u64(r->json, out)) return CKPT_OK;
  return ckpt_json_fail(r->json, err, "%s holds %.40s, not a whole number from 0 to 2^64 - 1", what,
                        ckpt_json_text(r->json, NULL));
}

static ckpt_status read_offset(reader *r, const char *what, uint64_t *out, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_NUMBER, what, err));
  return take_integer(r, what, out, err);
}

static ckpt_status read_shape(reader *r, entry *e, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_ARRAY, "shape", err));
  for (e->rank = 0;; e->rank++) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(r->json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    if (token != CKPT_JSON_NUMBER)
      return ckpt_json_fail(r->json, err, "shape has to hold numbers, not %s", ckpt_json_token_name(token));
    if (e->rank == CKPT_MAX_RANK) return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "more than %d axes", CKPT_MAX_RANK);
    CKPT_TRY(take_integer(r, "shape", &e->shape[e->rank], err));
  }
}

static ckpt_status read_dtype(reader *r, ckpt_dtype *dtype, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_STRING, "dtype", err));
  const char *text = ckpt_json_text(r->json, NULL);
  *dtype = ckpt_safetensors_dtype_parse(text);
  if (*dtype != CKPT_DTYPE_NONE) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL, "dtype '%.40s' is none that safetensors defines", text);
}

/* One field of an entry, its key read. Unknown fields are skipped, as the reference does. */
static ckpt_status read_field(reader *r, entry *e, ckpt_error *err) {
  const char *key = ckpt_json_text(r->json, NULL);
  bool *seen = strcmp(key, "dtype") == 0          ? &e->has_dtype
               : strcmp(key, "shape") == 0        ? &e->has_shape
               : strcmp(key, "data_offsets") == 0 ? &e->has_offsets
                                                  : NULL;
  if (seen == NULL) return ckpt_json_skip(r->json, err);
  if (*seen) {
    ckpt_status status = ckpt_json_fail(r->json, err, "%s is given twice", key);
    return ckpt_json_skip(r->json, err) == CKPT_OK ? status : CKPT_EFORMAT;
  }
  *seen = true;
  if (seen == &e->has_dtype) return read_dtype(r, &e->dtype, err);
  if (seen == &e->has_shape) return read_shape(r, e, err);
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_ARRAY, "data_offsets", err));
  CKPT_TRY(read_offset(r, "data_offsets[0]", &e->offsets[0], err));
  CKPT_TRY(read_offset(r, "data_offsets[1]", &e->offsets[1], err));
  return ckpt_json_expect(r->json, CKPT_JSON_ARRAY_END, "data_offsets[2]", err);
}

/* Where the tensor added last begins and ends: of a broken one too, whose bytes are no hole. */
static ckpt_status keep_range(reader *r, const entry *e, ckpt_error *err) {
  const bool is_range = e->has_offsets && e->offsets[1] >= e->offsets[0];
  r->is_unsure = r->is_unsure || !is_range;
  if (!is_range || r->index->n_tensors == 0) return CKPT_OK;
  const uint32_t number = r->index->n_tensors - 1;
  if (r->n_ranges == r->capacity) {
    uint32_t wanted = r->capacity == 0 ? 64 : r->capacity * 2;
    range *moved = reallocarray(r->ranges, wanted, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    r->ranges = moved;
    r->capacity = wanted;
  }
  r->ranges[r->n_ranges++] = (range){e->offsets[0], e->offsets[1], number,
                                     r->index->tensors[number].details->extent_form == CKPT_EXTENT_BROKEN};
  return CKPT_OK;
}

/* Checks what can be said of one entry alone and adds it to the index. */
static ckpt_status add_tensor(reader *r, const entry *e, ckpt_error *err) {
  const char *missing = !e->has_dtype ? "dtype" : !e->has_shape ? "shape" : !e->has_offsets ? "data_offsets" : NULL;
  if (missing != NULL) return ckpt_json_fail(r->json, err, "%s is missing", missing);
  if (e->offsets[1] < e->offsets[0] || e->offsets[1] > INT64_MAX - r->payload)
    return ckpt_json_fail(r->json, err, "data_offsets [%llu, %llu] are no range", (ull)e->offsets[0],
                          (ull)e->offsets[1]);
  ckpt_extent extent = {
      .offset = r->payload + e->offsets[0], .n_stored = e->offsets[1] - e->offsets[0], .file = r->file};
  extent.count = extent.n_stored / ckpt_dtype_get(e->dtype)->block_bytes; /* right where the size is, see below */
  uint32_t number;
  CKPT_TRY(ckpt_index_add(r->index, r->name, strlen(r->name), e->dtype, e->rank, e->shape, ckpt_role_of_name(r->name),
                          &extent, 1, &number, err));
  const ckpt_tensor *tensor = &r->index->tensors[number];
  if (extent.n_stored != tensor->n_bytes)
    return ckpt_json_fail(r->json, err, "%llu element%s of %s need %llu byte%s, data_offsets [%llu, %llu] hold %llu",
                          (ull)tensor->n_elements, ckpt_plural(tensor->n_elements), ckpt_dtype_name(e->dtype),
                          (ull)tensor->n_bytes, ckpt_plural(tensor->n_bytes), (ull)e->offsets[0], (ull)e->offsets[1],
                          (ull)extent.n_stored);
  return CKPT_OK;
}

/* The value of a key that names a tensor. The first defect counts; what follows it is read all the same. */
static ckpt_status read_entry(reader *r, entry *e, ckpt_error *defect) {
  const uint32_t depth = ckpt_json_depth(r->json) + 1;
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_OBJECT, "what describes a tensor", defect));
  for (;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(r->json, &token, defect));
    if (token == CKPT_JSON_OBJECT_END) break;
    if (read_field(r, e, defect) != CKPT_OK) CKPT_TRY(ckpt_json_resume(r->json, depth, defect));
  }
  return defect->status == CKPT_OK ? add_tensor(r, e, defect) : defect->status;
}

/* Goes past what is broken inside the header, where defects are asked for, unless there is no reading on. */
static ckpt_status pass(reader *r, uint32_t depth, ckpt_error *defect, ckpt_error *err) {
  if (ckpt_json_resume(r->json, depth, defect) == CKPT_OK)
    return ckpt_defects_pass(&r->index->defects, defect->status, defect, err);
  return ckpt_fail_as(err, defect->status, defect->file, defect->tensor, defect);
}

static ckpt_status read_tensor(reader *r, ckpt_error *err) {
  const uint32_t depth = ckpt_json_depth(r->json), n_before = r->index->n_tensors;
  if (r->n_entries++ == CKPT_SAFETENSORS_MAX_TENSORS)
    return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "more than %u tensors", CKPT_SAFETENSORS_MAX_TENSORS);
  entry e = {0};
  ckpt_error defect = {0};
  ckpt_status status = read_entry(r, &e, &defect);
  if (status != CKPT_OK) {
    ckpt_fail_at(status, &defect, r->path, r->name);
    CKPT_TRY(pass(r, depth, &defect, err));
    if (r->index->n_tensors == n_before)
      CKPT_TRY(ckpt_index_add_broken(r->index, r->name, ckpt_role_of_name(r->name), r->file, err));
    ckpt_index_break(r->index, n_before, n_before + 1);
  }
  return keep_range(r, &e, err);
}

/* ---- metadata ---- */

static int compare_meta(const void *a, const void *b) {
  const ckpt_meta *x = a, *y = b;
  int order = strcmp(x->key, y->key);
  return order != 0 ? order : strcmp(x->value, y->value);
}

/* The last string as arena text; NUL inside would be lost. */
static ckpt_status take_text(reader *r, const char **out, ckpt_error *err) {
  size_t n;
  const char *text = ckpt_json_text(r->json, &n);
  if (strlen(text) != n) return ckpt_json_fail(r->json, err, "__metadata__ holds a NUL character");
  *out = ckpt_arena_text(&r->index->arena, text, n);
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

static ckpt_status refuse_key_twice(const reader *r, uint32_t first, ckpt_error *err) {
  uint32_t n = r->index->n_metadata - first;
  if (n == 0) return CKPT_OK;
  ckpt_meta *own = r->index->metadata + first;
  qsort(own, n, sizeof *own, compare_meta);
  for (uint32_t i = 1; i < n; i++)
    if (strcmp(own[i - 1].key, own[i].key) == 0)
      return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "__metadata__ has the key '%.80s' twice", own[i].key);
  return CKPT_OK;
}

static ckpt_status read_metadata(reader *r, ckpt_error *err) {
  ckpt_index *index = r->index;
  uint32_t first = index->n_metadata;
  ckpt_json_token token;
  if (r->has_metadata) {
    (void)ckpt_json_fail(r->json, err, "__metadata__ is given twice");
    return ckpt_json_skip(r->json, err);
  }
  r->has_metadata = true;
  CKPT_TRY(ckpt_json_next(r->json, &token, err));
  if (token == CKPT_JSON_NULL) return CKPT_OK; /* as the reference */
  if (token != CKPT_JSON_OBJECT)
    return ckpt_json_fail(r->json, err, "__metadata__ has to be an object, not %s", ckpt_json_token_name(token));
  index->has_metadata = true;
  for (;;) {
    const char *key, *value;
    CKPT_TRY(ckpt_json_next(r->json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return refuse_key_twice(r, first, err);
    if (index->n_metadata - first == CKPT_SAFETENSORS_MAX_TENSORS)
      return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "more than %u metadata entries", CKPT_SAFETENSORS_MAX_TENSORS);
    CKPT_TRY(take_text(r, &key, err));
    CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_STRING, "a value of __metadata__", err));
    CKPT_TRY(take_text(r, &value, err));
    CKPT_TRY(ckpt_index_set_metadata(index, key, value, err));
  }
}

/* ---- the whole header ---- */

/* A name that none can be, before its value. */
static ckpt_status check_name(reader *r, ckpt_error *err) {
  size_t n_name;
  const char *name = ckpt_json_text(r->json, &n_name);
  if (n_name > MAX_NAME_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "a tensor name of %zu bytes (at most %d)", n_name,
                     MAX_NAME_BYTES);
  if (n_name == 0 || strlen(name) != n_name)
    return ckpt_json_fail(r->json, err, "a tensor name %s", n_name == 0 ? "is empty" : "holds a NUL character");
  memcpy(r->name, name, n_name + 1);
  return CKPT_OK;
}

static ckpt_status read_entries(reader *r, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(r->json, CKPT_JSON_OBJECT, "the header", err));
  const uint32_t depth = ckpt_json_depth(r->json);
  for (;;) {
    CKPT_TRY(ckpt_json_next(r->json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    ckpt_error defect = {0};
    if (check_name(r, &defect) != CKPT_OK) {
      r->is_unsure = true;
      (void)ckpt_json_skip(r->json, &defect);
    } else if (strcmp(r->name, "__metadata__") == 0) {
      (void)read_metadata(r, &defect);
    } else {
      CKPT_TRY(read_tensor(r, err));
      continue;
    }
    if (defect.status != CKPT_OK) CKPT_TRY(pass(r, depth, &defect, err));
  }
  return ckpt_json_next(r->json, &token, err); /* the end, or an error */
}

static int compare_ranges(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  if (x->end != y->end) return x->end < y->end ? -1 : 1;
  return x->number < y->number ? -1 : 1;
}

/* Of a tensor whose range is found broken: that it is, unless one of the two is told for what its entry says, or will
 * be as one that stands there twice. */
static ckpt_status refuse_overlap(reader *r, const range *own, const range *before, ckpt_error *err) {
  const ckpt_tensor *tensors = r->index->tensors;
  r->is_unsure = true;
  if (own->is_told || before->is_told || strcmp(tensors[own->number].name, tensors[before->number].name) == 0)
    return CKPT_OK;
  ckpt_error defect = {0};
  ckpt_status status = ckpt_fail(&defect, CKPT_EFORMAT, r->path, tensors[own->number].name,
                                 "overlaps '%.80s' (begins at byte %llu of the payload, that one ends at %llu)",
                                 tensors[before->number].name, (ull)own->begin, (ull)before->end);
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &defect, err));
  ckpt_index_break(r->index, own->number, own->number + 1);
  return CKPT_OK;
}

/* Tensors whose bytes are not all there. */
static ckpt_status refuse_truncated(reader *r, uint64_t end, ckpt_error *err) {
  ckpt_error defect = {0};
  ckpt_status status = ckpt_fail(&defect, CKPT_EFORMAT, r->path, NULL,
                                 "truncated: the header says %llu bytes, the file has %llu (download it again)",
                                 (ull)(r->payload + end), (ull)(r->payload + r->n_payload));
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &defect, err));
  for (uint32_t i = 0; i < r->n_ranges; i++)
    if (r->ranges[i].end > r->n_payload) ckpt_index_break(r->index, r->ranges[i].number, r->ranges[i].number + 1);
  return CKPT_OK;
}

/* The tensors' ranges against each other and the payload: overlap is refused, what no tensor owns is noted. */
static ckpt_status check_ranges(reader *r, ckpt_error *err) {
  const range *before = NULL;
  uint64_t at = 0, n_missing = 0, n_misplaced = 0;
  if (r->n_ranges != 0) qsort(r->ranges, r->n_ranges, sizeof *r->ranges, compare_ranges);
  for (uint32_t i = 0; i < r->n_ranges; i++) {
    const range *own = &r->ranges[i];
    if (own->end > r->n_payload && own->is_told) continue; /* says nothing of the others */
    if (own->begin == own->end && own->begin != at) {
      n_misplaced++;
      continue;
    }
    if (own->begin < at) CKPT_TRY(refuse_overlap(r, own, before, err));
    if (own->begin > at && at < r->n_payload) n_missing += (own->begin < r->n_payload ? own->begin : r->n_payload) - at;
    if (own->end < at) continue;
    at = own->end;
    before = own;
  }
  if (at > r->n_payload) CKPT_TRY(refuse_truncated(r, at, err));
  r->is_unsure = r->is_unsure || at > r->n_payload;
  if (n_missing != 0 && !r->is_unsure)
    CKPT_TRY(ckpt_index_problem(r->index, r->file, err, "bytes between tensors belong to none (%llu)", (ull)n_missing));
  if (n_misplaced != 0)
    CKPT_TRY(ckpt_index_problem(r->index, r->file, err,
                                "empty tensors with offsets inside another or past the end: %llu", (ull)n_misplaced));
  if (at < r->n_payload && !r->is_unsure)
    CKPT_TRY(
        ckpt_index_problem(r->index, r->file, err, "bytes follow the last tensor (%llu)", (ull)(r->n_payload - at)));
  return CKPT_OK;
}

/* The header's length, checked against the file before anything is allocated. */
static ckpt_status read_length(reader *r, uint64_t *n_header, ckpt_error *err) {
  uint8_t bytes[LENGTH_BYTES];
  uint64_t size = ckpt_source_size(r->index->source, r->file);
  size -= r->begin < size ? r->begin : size;
  if (size < LENGTH_BYTES)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                     "truncated: the length of a header is not there (%llu byte%s; download it again)", (ull)size,
                     ckpt_plural(size));
  CKPT_TRY(ckpt_source_read(r->index->source, r->file, r->begin, bytes, sizeof bytes, err));
  if (memcmp(bytes, "version ", sizeof bytes) == 0)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "a Git LFS pointer, not the weights (run git lfs pull)");
  if (memcmp(bytes, "PK\3\4", 4) == 0)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                     "begins with a zip archive, not with the length of a header (items that are no tensors, which "
                     "PyTorch writes before the safetensors? nobody reads that: save tensors alone)");
  *n_header = 0;
  for (int i = LENGTH_BYTES; i-- > 0;) *n_header = *n_header << 8 | bytes[i];
  if (*n_header > CKPT_SAFETENSORS_MAX_HEADER)
    return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "a header of %llu bytes (at most %llu)", (ull)*n_header,
                     (ull)CKPT_SAFETENSORS_MAX_HEADER);
  if (*n_header > size - LENGTH_BYTES)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                     "truncated: the header says it is %llu byte%s long, the file has %llu (download it again)",
                     (ull)*n_header, ckpt_plural(*n_header), (ull)size);
  r->payload = r->begin + LENGTH_BYTES + *n_header;
  r->n_payload = size - LENGTH_BYTES - *n_header;
  return CKPT_OK;
}

static ckpt_status read_from(ckpt_index *index, uint32_t file, uint64_t begin, ckpt_error *err) {
  reader r = {.index = index, .file = file, .begin = begin, .path = ckpt_source_path(index->source, file)};
  const uint32_t first_tensor = index->n_tensors;
  uint64_t n_header = 0;
  CKPT_TRY(read_length(&r, &n_header, err));
  CKPT_TRY(
      ckpt_json_new_source(&r.json, index->source, file, begin + LENGTH_BYTES, n_header, (size_t)n_header, false, err));
  ckpt_status status = read_entries(&r, err);
  if (status == CKPT_OK) status = check_ranges(&r, err);
  if (status != CKPT_OK) ckpt_index_break(index, first_tensor, index->n_tensors); /* nothing of it is sure */
  ckpt_json_free(r.json);
  free(r.ranges);
  return ckpt_fail_at(status, err, r.path, NULL);
}

ckpt_status ckpt_safetensors_read(ckpt_index *index, uint32_t file, ckpt_error *err) {
  return read_from(index, file, 0, err);
}

ckpt_status ckpt_safetensors_read_alone(ckpt_index **out, ckpt_source *source, uint32_t file, uint64_t begin,
                                        ckpt_defects *defects, ckpt_error *err) {
  ckpt_index *index;
  CKPT_TRY(ckpt_index_new(&index, NULL, ckpt_source_path(source, file), "safetensors", NULL, err));
  index->source = source; /* lent */
  index->defects = *defects;
  ckpt_status status = read_from(index, file, begin, err);
  if (status == CKPT_OK) status = ckpt_index_drop_broken(index, err);
  defects->n = index->defects.n;
  index->source = NULL;
  if (status == CKPT_OK)
    *out = index;
  else
    ckpt_index_free(index);
  return status;
}

/* ---- several files ---- */

static ckpt_status merge_metadata(ckpt_index *index, ckpt_error *err) {
  uint32_t n = 0;
  if (index->n_metadata != 0) qsort(index->metadata, index->n_metadata, sizeof *index->metadata, compare_meta);
  for (uint32_t i = 0; i < index->n_metadata; i++) {
    const ckpt_meta *own = &index->metadata[i], *kept = n == 0 ? NULL : &index->metadata[n - 1];
    if (kept == NULL || strcmp(kept->key, own->key) != 0)
      index->metadata[n++] = *own;
    else if (strcmp(kept->value, own->value) != 0)
      CKPT_TRY(ckpt_index_note(index, false, err, "metadata '%.80s' differs between files, '%.80s' is kept", own->key,
                               kept->value));
  }
  index->n_metadata = n;
  return CKPT_OK;
}

ckpt_status ckpt_safetensors_merge(ckpt_index *index, ckpt_error *err) {
  CKPT_TRY(merge_metadata(index, err));
  return ckpt_name_table_refuse_twice(index, err);
}

bool ckpt_safetensors_numbered(const char *name, size_t *n_prefix, unsigned *number, unsigned *total) {
  static const char suffix[] = ".safetensors";
  const size_t n_suffix = sizeof suffix - 1;
  const char *of = strstr(name, "-of-");
  for (const char *next; of != NULL && (next = strstr(of + 1, "-of-")) != NULL;) of = next;
  if (of == NULL || strlen(name) < n_suffix || strcasecmp(name + strlen(name) - n_suffix, suffix) != 0) return false;
  const char *start = of;
  while (start > name && start[-1] >= '0' && start[-1] <= '9') start--;
  int n_read = 0;
  if (start == of || start == name || start[-1] != '-' || of - start > 9) return false;
  if (sscanf(start, "%9u-of-%9u%n", number, total, &n_read) != 2) return false;
  if (strcasecmp(start + n_read, suffix) != 0) return false;
  *n_prefix = (size_t)(start - name);
  return true;
}
