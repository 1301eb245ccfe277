/* read.c - the header of one GGUF file, read from front to back through a window; docs/formats/gguf.md has the
 * bytes.
 *
 * Nothing is believed: counts and lengths are compared with what remains of the file before anything is allocated.
 * Arrays are walked, not kept: their values stay ranges of the file, so that a tokenizer costs no memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"

enum {
  WINDOW_BYTES = 1 << 16,
  MAX_TEXT = 1 << 16,            /* a longer string stays in the file */
  MAX_INLINE = 64,               /* a shorter array does not */
  N_SHOWN = 8,                   /* elements of an array */
  KEY_BYTES = 8 + 1 + 4 + 1,     /* of the shortest entry: key, type, value */
  INFO_BYTES = 8 + 1 + 4 + 4 + 8 /* the same of a tensor: name, axes, type, offset */
};

typedef unsigned long long ull;

typedef struct reader {
  ckpt_index *index;
  const char *path, *name; /* of the file: as messages name it, and below the root */
  uint32_t file;
  uint64_t at, size;
  uint64_t window_at;
  size_t n_window;
  uint8_t *window;
  bool keeps_metadata;
  uint32_t alignment;
  uint32_t first_meta, first_tensor;
  uint64_t n_tensors, n_keys, n_long_names;
  char text[MAX_TEXT + 1];
} reader;

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

/* Checks that n bytes of `what` remain. */
static ckpt_status need(const reader *r, uint64_t n, const char *what, ckpt_error *err) {
  if (n <= r->size - r->at) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                   "truncated or lies: %s at byte %llu takes %llu byte%s, %llu remain (download it again)", what,
                   (ull)r->at, (ull)n, ckpt_plural(n), (ull)(r->size - r->at));
}

static ckpt_status take(reader *r, void *out, size_t n, const char *what, ckpt_error *err) {
  CKPT_TRY(need(r, n, what, err));
  uint8_t *to = out;
  while (n != 0) {
    if (r->at < r->window_at || r->at >= r->window_at + r->n_window) {
      r->window_at = r->at;
      r->n_window = r->size - r->at < WINDOW_BYTES ? (size_t)(r->size - r->at) : WINDOW_BYTES;
      ckpt_status status = ckpt_source_read(r->index->source, r->file, r->at, r->window, r->n_window, err);
      if (status != CKPT_OK) r->n_window = 0;
      CKPT_TRY(status);
    }
    const size_t skip = (size_t)(r->at - r->window_at), n_there = r->n_window - skip, n_now = n < n_there ? n : n_there;
    memcpy(to, r->window + skip, n_now);
    to += n_now;
    r->at += n_now;
    n -= n_now;
  }
  return CKPT_OK;
}

static ckpt_status take_u32(reader *r, uint32_t *out, const char *what, ckpt_error *err) {
  uint8_t bytes[4];
  CKPT_TRY(take(r, bytes, sizeof bytes, what, err));
  *out = ckpt_le32(bytes);
  return CKPT_OK;
}

static ckpt_status take_u64(reader *r, uint64_t *out, const char *what, ckpt_error *err) {
  uint8_t bytes[8];
  CKPT_TRY(take(r, bytes, sizeof bytes, what, err));
  *out = ckpt_le64(bytes);
  return CKPT_OK;
}

static ckpt_status skip(reader *r, uint64_t n, const char *what, ckpt_error *err) {
  CKPT_TRY(need(r, n, what, err));
  r->at += n;
  return CKPT_OK;
}

/* A length and so many bytes of a name into r->text, terminated; no NUL within. */
static ckpt_status take_name(reader *r, uint64_t max, const char *what, ckpt_error *err) {
  uint64_t n;
  CKPT_TRY(take_u64(r, &n, what, err));
  CKPT_TRY(need(r, n, what, err));
  if (n == 0 || n > max)
    return ckpt_fail(err, n == 0 ? CKPT_EFORMAT : CKPT_ELIMIT, r->path, NULL,
                     "%s of %llu bytes (1 to %llu are accepted)", what, (ull)n, (ull)max);
  CKPT_TRY(take(r, r->text, (size_t)n, what, err));
  r->text[n] = '\0';
  if (strlen(r->text) == n && ckpt_utf8_length(r->text, (size_t)n) == n) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "%s is not UTF-8 text or holds a NUL", what);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* A line of text that grows up to its room. */
typedef struct line {
  char text[600];
  size_t n;
} line;

static void append(line *l, const char *text, size_t n) {
  if (n > sizeof l->text - 1 - l->n) n = sizeof l->text - 1 - l->n;
  memcpy(l->text + l->n, text, n);
  l->n += n;
  l->text[l->n] = '\0';
}

/* Of a string's first bytes what can be shown: whole characters, 24 bytes at most. */
static void append_quoted(line *l, const char *text, size_t n, uint64_t n_all) {
  size_t n_whole = ckpt_utf8_length(text, n);
  const char *nul = memchr(text, '\0', n_whole);
  if (nul != NULL) n_whole = (size_t)(nul - text);
  append(l, "\"", 1);
  append(l, text, n_whole);
  append(l, n_whole < n_all ? "...\"" : "\"", n_whole < n_all ? 4 : 1);
}

static ckpt_status skip_string(reader *r, line *shown, ckpt_error *err) {
  char start[24];
  uint64_t n;
  CKPT_TRY(take_u64(r, &n, "the length of a string", err));
  CKPT_TRY(need(r, n, "a string", err));
  if (shown == NULL) return skip(r, n, "a string", err);
  const size_t n_start = n < sizeof start ? (size_t)n : sizeof start;
  CKPT_TRY(take(r, start, n_start, "a string", err));
  append_quoted(shown, start, n_start, n);
  return skip(r, n - n_start, "a string", err);
}

static ckpt_status skip_scalar(reader *r, uint32_t type, line *shown, ckpt_error *err) {
  uint8_t bytes[8];
  char text[CKPT_GGUF_TEXT_BYTES];
  CKPT_TRY(take(r, bytes, ckpt_gguf_type_bytes(type), "a value", err));
  ckpt_gguf_scalar_text(type, bytes, text);
  append(shown, text, strlen(text));
  return CKPT_OK;
}

/* Walks over an array's elements; *shown says what it holds. */
static ckpt_status skip_array(reader *r, const char *key, line *shown, ckpt_error *err) {
  uint32_t type;
  uint64_t n, n_least;
  char count[64];
  CKPT_TRY(take_u32(r, &type, "an array's type", err));
  CKPT_TRY(take_u64(r, &n, "an array's length", err));
  if (type == CKPT_GGUF_ARRAY)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL, "key '%.100s' is an array of arrays, which ggml refuses",
                     key);
  if (ckpt_gguf_type_name(type) == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "key '%.100s' is an array of type %u, which is none", key, type);
  const uint32_t n_element = type == CKPT_GGUF_STRING ? 8 : ckpt_gguf_type_bytes(type);
  if (!ckpt_mul_u64(n, n_element, &n_least) || n_least > r->size - r->at)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                     "truncated or lies: key '%.100s' has %llu element%s of at least %u bytes, %llu byte%s remain", key,
                     (ull)n, ckpt_plural(n), n_element, (ull)(r->size - r->at), ckpt_plural(r->size - r->at));
  append(shown, "[", 1);
  for (uint64_t i = 0; i < n && (i < N_SHOWN || type == CKPT_GGUF_STRING); i++) {
    line *here = i < N_SHOWN ? shown : NULL;
    if (here != NULL && i != 0) append(shown, ", ", 2);
    CKPT_TRY(type == CKPT_GGUF_STRING ? skip_string(r, here, err) : skip_scalar(r, type, here, err));
  }
  if (n > N_SHOWN && type != CKPT_GGUF_STRING) CKPT_TRY(skip(r, (n - N_SHOWN) * n_element, "an array", err));
  if (n > N_SHOWN) append(shown, ", ...", 5);
  snprintf(count, sizeof count, "] (%llu %s%s)", (ull)n, ckpt_gguf_type_name(type),
           type == CKPT_GGUF_STRING && n != 1 ? "s" : "");
  append(shown, count, strlen(count));
  return CKPT_OK;
}

/* A string is text where it is one that people can read, else typed. */
static ckpt_status take_string(reader *r, bool *is_text, line *shown, ckpt_error *err) {
  uint64_t n;
  CKPT_TRY(take_u64(r, &n, "the length of a string", err));
  CKPT_TRY(need(r, n, "a string", err));
  *is_text = false;
  snprintf(shown->text, sizeof shown->text, "<%llu bytes>", (ull)n);
  if (n > MAX_TEXT) return skip(r, n, "a string", err);
  CKPT_TRY(take(r, r->text, (size_t)n, "a string", err));
  r->text[n] = '\0';
  *is_text = strlen(r->text) == n && ckpt_utf8_length(r->text, (size_t)n) == n;
  return CKPT_OK;
}

/* Keeps the value whose encoding is [begin, r->at). */
static ckpt_status keep_value(reader *r, const char *key, uint32_t type, uint64_t begin, const char *shown,
                              ckpt_error *err) {
  ckpt_arena *arena = &r->index->arena;
  const ckpt_typed_value *kept;
  uint8_t bytes[MAX_INLINE];
  const uint64_t n = r->at - begin;
  if (n <= sizeof bytes) {
    r->at = begin;
    CKPT_TRY(take(r, bytes, (size_t)n, "a value", err));
    CKPT_TRY(ckpt_gguf_value_new(&kept, arena, type, bytes, n, err));
  } else {
    ckpt_typed_value *value = ckpt_arena_alloc(arena, sizeof *value);
    CKPT_TRY_ALLOC(value, err);
    *value =
        (ckpt_typed_value){.type = type, .file = r->file, .source = r->index->source, .offset = begin, .n_bytes = n};
    kept = value;
  }
  return ckpt_index_set_typed(r->index, key, shown, kept, err);
}

/* One key and its value, added to the index's metadata: those of a later part are taken off again. */
static ckpt_status read_pair(reader *r, ckpt_error *err) {
  line shown = {.n = 0};
  uint32_t type;
  bool is_text = false;
  CKPT_TRY(take_name(r, CKPT_GGUF_MAX_KEY, "a key", err));
  char *key = ckpt_arena_copy(&r->index->arena, r->text);
  CKPT_TRY_ALLOC(key, err);
  CKPT_TRY(take_u32(r, &type, "a value's type", err));
  if (ckpt_gguf_type_name(type) == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "key '%.100s' has type %u, which is none", key, type);
  const uint64_t begin = r->at;
  if (type == CKPT_GGUF_STRING)
    CKPT_TRY(take_string(r, &is_text, &shown, err));
  else if (type == CKPT_GGUF_ARRAY)
    CKPT_TRY(skip_array(r, key, &shown, err));
  else
    CKPT_TRY(skip_scalar(r, type, &shown, err));
  if (is_text) return ckpt_index_set_metadata(r->index, key, r->text, err);
  return keep_value(r, key, type, begin, shown.text, err);
}

static int compare_keys(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static ckpt_status refuse_key_twice(const reader *r, ckpt_error *err) {
  const uint32_t n = r->index->n_metadata - r->first_meta;
  const char **keys = reallocarray(NULL, (size_t)n + 1, sizeof *keys);
  CKPT_TRY_ALLOC(keys, err);
  for (uint32_t i = 0; i < n; i++) keys[i] = r->index->metadata[r->first_meta + i].key;
  qsort(keys, n, sizeof *keys, compare_keys);
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 1; i < n && status == CKPT_OK; i++)
    if (strcmp(keys[i - 1], keys[i]) == 0)
      status = ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "key '%.100s' stands twice", keys[i]);
  free(keys);
  return status;
}

/* ---- what keys say of the file ----------------------------------------------------------------------------------- */

/* Of this file's own metadata, which follows that of the files before it. */
static const ckpt_meta *find_meta(const reader *r, const char *key) {
  ckpt_meta *first = r->index->metadata;
  if (r->first_meta != 0) first += r->first_meta; /* there may be none at all */
  const ckpt_index own = {.metadata = first, .n_metadata = r->index->n_metadata - r->first_meta};
  return ckpt_index_meta(&own, key);
}

/* The number under a key, which has to be of this type; *out is unchanged where there is none. */
static ckpt_status read_number(const reader *r, const char *key, uint32_t type, uint32_t *out, bool *is_there,
                               ckpt_error *err) {
  const ckpt_meta *meta = find_meta(r, key);
  *is_there = meta != NULL;
  if (meta == NULL) return CKPT_OK;
  if (meta->typed != NULL && meta->typed->type == type && ckpt_gguf_value_u32(meta->typed, out)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                   "key '%s' has to be of type %s, not negative (it is the %s %.100s)", key, ckpt_gguf_type_name(type),
                   ckpt_gguf_type_name(meta->typed == NULL ? CKPT_GGUF_STRING : meta->typed->type), meta->value);
}

static ckpt_status read_part(const reader *r, ckpt_gguf_part *part, ckpt_error *err) {
  uint32_t n_tensors = 0;
  bool has_number, has_count, has_tensors;
  *part = (ckpt_gguf_part){.n_tensors = -1};
  CKPT_TRY(read_number(r, CKPT_GGUF_SPLIT "count", CKPT_GGUF_U16, &part->count, &has_count, err));
  if (part->count == 0) return CKPT_OK; /* what llama-gguf-split merged says 0 */
  CKPT_TRY(read_number(r, CKPT_GGUF_SPLIT "no", CKPT_GGUF_U16, &part->number, &has_number, err));
  CKPT_TRY(read_number(r, CKPT_GGUF_SPLIT "tensors.count", CKPT_GGUF_I32, &n_tensors, &has_tensors, err));
  if (has_tensors) part->n_tensors = n_tensors;
  if (!has_number)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "split.count is %u, and no split.no says which file this is",
                     part->count);
  if (part->number < part->count) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "split.no is %u of %u file%s (it counts from 0)", part->number,
                   part->count, ckpt_plural(part->count));
}

static ckpt_status read_alignment(reader *r, ckpt_error *err) {
  bool is_there;
  r->alignment = CKPT_GGUF_DEFAULT_ALIGNMENT;
  CKPT_TRY(read_number(r, CKPT_GGUF_ALIGNMENT, CKPT_GGUF_U32, &r->alignment, &is_there, err));
  if (r->alignment != 0 && (r->alignment & (r->alignment - 1)) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, CKPT_GGUF_ALIGNMENT " is %u, no power of two", r->alignment);
}

/* The keys about files are none of the model's; of a later part no key is. */
static ckpt_status settle_metadata(reader *r, const ckpt_gguf_part *part, ckpt_error *err) {
  ckpt_index *index = r->index;
  uint32_t n = r->first_meta, n_own = 0;
  for (uint32_t i = r->first_meta; i < index->n_metadata; i++) {
    const char *key = index->metadata[i].key;
    const bool is_of_part = ckpt_gguf_is_part_key(key);
    n_own += !is_of_part && strcmp(key, CKPT_GGUF_ALIGNMENT) != 0;
    if (r->keeps_metadata && (!is_of_part || part->count == 0)) index->metadata[n++] = index->metadata[i];
  }
  index->n_metadata = n;
  if (r->keeps_metadata || n_own == 0) return CKPT_OK;
  return ckpt_index_note(index, false, err, "%s: %u metadata value%s not read (the first file's count)", r->name, n_own,
                         n_own == 1 ? " of its own is" : "s of its own are");
}

static ckpt_status read_pairs(reader *r, ckpt_gguf_part *part, ckpt_error *err) {
  r->first_meta = r->index->n_metadata;
  for (uint64_t i = 0; i < r->n_keys; i++) CKPT_TRY(read_pair(r, err));
  CKPT_TRY(refuse_key_twice(r, err));
  CKPT_TRY(read_alignment(r, err));
  CKPT_TRY(read_part(r, part, err));
  return settle_metadata(r, part, err);
}

/* ---- tensors ----------------------------------------------------------------------------------------------------- */

/* A tensor's entry as it stands there. Shape as ours: the last axis of theirs, which counts from the fastest, is our
 * first. */
typedef struct entry {
  uint32_t rank, type;
  uint64_t shape[CKPT_GGUF_MAX_RANK], offset;
} entry;

static ckpt_status take_entry(reader *r, entry *e, ckpt_error *err) {
  CKPT_TRY(take_name(r, 4096, "a tensor name", err));
  CKPT_TRY(take_u32(r, &e->rank, "a tensor's number of axes", err));
  if (e->rank > CKPT_GGUF_MAX_RANK)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, r->text, "%u axes (at most %d)", e->rank, CKPT_GGUF_MAX_RANK);
  for (uint32_t i = e->rank; i-- > 0;) CKPT_TRY(take_u64(r, &e->shape[i], "a tensor's axis", err));
  CKPT_TRY(take_u32(r, &e->type, "a tensor's type", err));
  return take_u64(r, &e->offset, "a tensor's offset", err);
}

static ckpt_status check_shape(const reader *r, const entry *e, ckpt_error *err) {
  uint64_t n_elements = 1;
  for (uint32_t i = 0; i < e->rank; i++) {
    if (e->shape[i] > INT64_MAX)
      return ckpt_fail(err, CKPT_EFORMAT, r->path, r->text, "axis %u has %lld elements", i, (long long)e->shape[i]);
    if (!ckpt_mul_u64(n_elements, e->shape[i] == 0 ? 1 : e->shape[i], &n_elements) || n_elements > INT64_MAX)
      return ckpt_fail(err, CKPT_EFORMAT, r->path, r->text, "its axes have more than 2^63 elements together");
  }
  return CKPT_OK;
}

static ckpt_status check_dtype(const reader *r, const entry *e, ckpt_dtype *dtype, ckpt_error *err) {
  const uint64_t n_row = e->rank == 0 ? 1 : e->shape[e->rank - 1];
  *dtype = ckpt_dtype_of_ggml(e->type);
  if (*dtype == CKPT_DTYPE_NONE)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, r->text, "type %u is none that ggml has (now)", e->type);
  const ckpt_dtype_row *row = ckpt_dtype_get(*dtype);
  if (n_row % row->block_elements == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, r->text, "rows of %llu element%s are no whole blocks of %s (%u)",
                   (ull)n_row, ckpt_plural(n_row), row->name, row->block_elements);
}

static ckpt_status add_tensor(reader *r, const entry *e, ckpt_error *err) {
  const char *name = r->text;
  ckpt_dtype dtype;
  ckpt_extent extent = {.file = r->file, .offset = e->offset};
  CKPT_TRY(check_shape(r, e, err));
  CKPT_TRY(check_dtype(r, e, &dtype, err));
  uint64_t n_elements = 0;
  bool is_sized =
      ckpt_product_u64(e->shape, e->rank, &n_elements) && ckpt_dtype_bytes(dtype, n_elements, &extent.n_stored);
  if (!is_sized || extent.n_stored > INT64_MAX || extent.offset > INT64_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, name, "%llu element%s at byte %llu lie outside any file",
                     (ull)n_elements, ckpt_plural(n_elements), (ull)extent.offset);
  extent.count = extent.n_stored / ckpt_dtype_get(dtype)->block_bytes;
  return ckpt_index_add(r->index, name, strlen(name), dtype, e->rank, e->shape, ckpt_role_of_name(name), &extent, 1,
                        NULL, err);
}

static ckpt_status read_tensor(reader *r, ckpt_error *err) {
  entry e = {0};
  ckpt_error defect = {0};
  CKPT_TRY(take_entry(r, &e, err));
  r->n_long_names += strlen(r->text) > CKPT_GGUF_MAX_NAME;
  ckpt_status status = add_tensor(r, &e, &defect);
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &defect, err));
  if (status == CKPT_OK) return CKPT_OK;
  return ckpt_index_add_broken(r->index, r->text, ckpt_role_of_name(r->text), r->file, err);
}

/* Ranges of the payload, to be sorted. */
typedef struct range {
  uint64_t begin, end;
  uint32_t number; /* of the tensor */
} range;

static int compare_ranges(const void *a, const void *b) {
  const range *x = a, *y = b;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

static ckpt_status refuse_overlap(const reader *r, ckpt_error *err) {
  ckpt_index *index = r->index;
  range *ranges = reallocarray(NULL, (size_t)(index->n_tensors - r->first_tensor) + 1, sizeof *ranges), *before = NULL;
  CKPT_TRY_ALLOC(ranges, err);
  uint32_t n = 0;
  for (uint32_t i = r->first_tensor; i < index->n_tensors; i++) {
    const ckpt_extent *extent = index->tensors[i].extents;
    if (extent->n_stored != 0) ranges[n++] = (range){extent->offset, extent->offset + extent->n_stored, i};
  }
  qsort(ranges, n, sizeof *ranges, compare_ranges);
  ckpt_error defect = {0};
  ckpt_status status = CKPT_OK;
  for (range *own = ranges; own < ranges + n && status == CKPT_OK; own++) {
    if (before != NULL && own->begin < before->end) {
      status = ckpt_fail(&defect, CKPT_EFORMAT, r->path, index->tensors[own->number].name,
                         "overlaps '%.80s' (begins at byte %llu of the payload, that one ends at %llu)",
                         index->tensors[before->number].name, (ull)own->begin, (ull)before->end);
      status = ckpt_defects_pass(&index->defects, status, &defect, err);
      ckpt_index_break(index, own->number, own->number + 1);
    }
    if (before == NULL || own->end > before->end) before = own;
  }
  free(ranges);
  return status;
}

/* What ggml's reader refuses though all bytes are there. */
static ckpt_status note_oddities(const reader *r, const ckpt_tensor *misplaced, uint64_t expected, uint64_t end,
                                 uint64_t n_payload, ckpt_error *err) {
  ckpt_index *index = r->index;
  if (r->n_long_names != 0)
    CKPT_TRY(ckpt_index_problem(index, r->file, err, "tensor names of more than %d bytes, which ggml refuses: %llu",
                                CKPT_GGUF_MAX_NAME, (ull)r->n_long_names));
  if (misplaced != NULL)
    return ckpt_index_problem(index, r->file, err,
                              "tensor '%.80s' lies at byte %llu of the payload, the padded ones before it end at %llu: "
                              "ggml refuses the file",
                              misplaced->name, (ull)misplaced->extents->offset, (ull)expected);
  if (n_payload > end)
    return ckpt_index_problem(index, r->file, err, "bytes follow the last tensor (%llu)", (ull)(n_payload - end));
  if (n_payload < end)
    return ckpt_index_problem(index, r->file, err, "the padding of the last tensor is cut off (%llu missing)",
                              (ull)(end - n_payload));
  return CKPT_OK;
}

/* A tensor whose bytes are not in the file. */
static ckpt_status check_within(const reader *r, uint32_t number, uint64_t n_payload, ckpt_error *err) {
  const ckpt_tensor *tensor = &r->index->tensors[number];
  const ckpt_extent *extent = tensor->extents;
  if (ckpt_range_within(extent->offset, extent->n_stored, n_payload)) return CKPT_OK;
  ckpt_error defect = {0};
  ckpt_status status =
      ckpt_fail(&defect, CKPT_EFORMAT, r->path, tensor->name,
                "truncated or lies: %llu byte%s at byte %llu of a payload of %llu (download it again)",
                (ull)extent->n_stored, ckpt_plural(extent->n_stored), (ull)extent->offset, (ull)n_payload);
  CKPT_TRY(ckpt_defects_pass(&r->index->defects, status, &defect, err));
  ckpt_index_break(r->index, number, number + 1);
  return CKPT_OK;
}

/* The padding between header and payload, which ggml writes as zeros and passes by; without tensors it may be missing.
 */
static ckpt_status check_padding(reader *r, ckpt_error *err) {
  uint8_t bytes[64];
  const uint64_t n = ckpt_gguf_padding(r->at, r->alignment);
  uint64_t n_left = n < r->size - r->at ? n : r->size - r->at, n_other = 0;
  while (n_left != 0) {
    const size_t n_now = n_left < sizeof bytes ? (size_t)n_left : sizeof bytes;
    CKPT_TRY(take(r, bytes, n_now, "padding", err));
    for (size_t i = 0; i < n_now; i++) n_other += bytes[i] != 0;
    n_left -= n_now;
  }
  if (n_other != 0)
    CKPT_TRY(
        ckpt_index_problem(r->index, r->file, err,
                           "the padding between header and payload is not zero: %llu byte%s (no reader looks there)",
                           (ull)n_other, ckpt_plural(n_other)));
  return CKPT_OK;
}

/* The tensors' places against each other and the file. */
static ckpt_status place_tensors(reader *r, ckpt_error *err) {
  ckpt_index *index = r->index;
  const ckpt_tensor *misplaced = NULL;
  bool is_known = true; /* where the tensor before ends */
  uint64_t end = 0, expected = 0;
  const uint64_t payload = r->at + ckpt_gguf_padding(r->at, r->alignment);
  CKPT_TRY(check_padding(r, err));
  if (r->n_tensors == 0) return CKPT_OK;
  const uint64_t n_payload = payload < r->size ? r->size - payload : 0;
  for (uint32_t i = r->first_tensor; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const ckpt_extent *extent = tensor->extents;
    if (tensor->details->extent_form != CKPT_EXTENT_BROKEN) CKPT_TRY(check_within(r, i, n_payload, err));
    bool was_known = is_known;
    is_known = tensor->details->extent_form != CKPT_EXTENT_BROKEN;
    if (!is_known) continue;
    if (extent->offset != end && was_known && misplaced == NULL) misplaced = tensor, expected = end;
    end = extent->offset + extent->n_stored; /* within the file, so no overflow */
    end += ckpt_gguf_padding(end, r->alignment);
  }
  if (misplaced != NULL || index->defects.n != 0) CKPT_TRY(refuse_overlap(r, err));
  CKPT_TRY(note_oddities(r, misplaced, expected, is_known ? end : n_payload, n_payload, err));
  for (uint32_t i = r->first_tensor; i < index->n_tensors; i++)
    ((ckpt_extent *)(uintptr_t)index->tensors[i].extents)->offset += payload; /* the index's own, not frozen yet */
  return CKPT_OK;
}

/* ---- the whole header -------------------------------------------------------------------------------------------- */

static ckpt_status read_version(reader *r, ckpt_error *err) {
  uint8_t magic[4];
  uint32_t version;
  CKPT_TRY(take(r, magic, sizeof magic, "the magic", err));
  if (memcmp(magic, "GGUF", sizeof magic) != 0)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "does not begin with GGUF (not a part of this model?)");
  CKPT_TRY(take_u32(r, &version, "the version", err));
  if ((version & 0xFFFF) == 0 && version != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL,
                     "a big-endian file, which is not read (gguf_convert_endian.py of llama.cpp turns it)");
  if (version == 2 || version == 3) {
    r->index->version = version == 2 ? "2" : "3";
    return CKPT_OK;
  }
  return ckpt_fail(err, CKPT_EUNSUPPORTED, r->path, NULL, "GGUF version %u (2 and 3 are read)", version);
}

/* A count of the header against what remains for it. */
static ckpt_status check_count(const reader *r, uint64_t n, uint64_t n_each, uint64_t most, const char *what,
                               ckpt_error *err) {
  if (n > (r->size - r->at) / n_each)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL,
                     "truncated or lies: %llu %s of at least %llu bytes, the file has %llu bytes", (ull)n, what,
                     (ull)n_each, (ull)r->size);
  if (n > most) return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "%llu %s (at most %llu)", (ull)n, what, (ull)most);
  return CKPT_OK;
}

static ckpt_status read_header(reader *r, ckpt_gguf_part *part, ckpt_error *err) {
  CKPT_TRY(read_version(r, err));
  CKPT_TRY(take_u64(r, &r->n_tensors, "the number of tensors", err));
  CKPT_TRY(take_u64(r, &r->n_keys, "the number of keys", err));
  CKPT_TRY(check_count(r, r->n_tensors, INFO_BYTES, CKPT_GGUF_MAX_TENSORS, "tensors", err));
  CKPT_TRY(check_count(r, r->n_keys, KEY_BYTES, CKPT_GGUF_MAX_TENSORS, "keys", err));
  CKPT_TRY(read_pairs(r, part, err));
  CKPT_TRY(check_count(r, r->n_tensors, INFO_BYTES, CKPT_GGUF_MAX_TENSORS, "tensors", err));
  for (uint64_t i = 0; i < r->n_tensors; i++) CKPT_TRY(read_tensor(r, err));
  return place_tensors(r, err);
}

bool ckpt_gguf_probe(const uint8_t *head, size_t n_head) { return n_head >= 4 && memcmp(head, "GGUF", 4) == 0; }

ckpt_status ckpt_gguf_read_file(ckpt_index *index, uint32_t file, bool has_metadata, ckpt_gguf_part *part,
                                ckpt_error *err) {
  reader *r = calloc(1, sizeof *r);
  CKPT_TRY_ALLOC(r, err);
  r->index = index;
  r->file = file;
  r->path = ckpt_source_path(index->source, file);
  r->name = ckpt_source_name(index->source, file);
  r->size = ckpt_source_size(index->source, file);
  r->keeps_metadata = has_metadata;
  r->first_tensor = index->n_tensors;
  r->window = malloc(WINDOW_BYTES);
  ckpt_status status = r->window == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  if (status == CKPT_OK) status = read_header(r, part, err);
  if (status != CKPT_OK) ckpt_index_break(index, r->first_tensor, index->n_tensors); /* nothing of it is sure */
  (void)ckpt_fail_at(status, err, r->path, NULL);
  free(r->window);
  free(r);
  return status;
}
