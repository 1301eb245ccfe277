/* record_checks.c - see record_checks.h. */
#include "libckpt/extents/record_checks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/extents/decode.h"
#include "libckpt/extents/place.h"
#include "libckpt/io/records.h"

/* Ranges of all records that wait for bytes before them, those of one, and pieces of one read that are new. */
enum { N_RANGES = 4096, MAX_RANGES = 256, MAX_NEW = 16 };
enum { SMALL_BYTES = 64 << 10 }; /* a record that is read whole for any part of it */
#define NO_RANGE UINT32_MAX

typedef enum check_state {
  CHECK_OPEN,
  CHECK_SCATTERED, /* in too many ranges */
  CHECK_OVER,      /* compared, or not to be */
  CHECK_WRONG      /* and goes on */
} check_state;

/* A record. */
typedef struct check {
  ckpt_source *source;
  const ckpt_tensor *tensor; /* the first in it, and the extent that is */
  const ckpt_extent *extent;
  uint64_t offset;   /* where the record's payload begins in its file, or the archive or stream that it is in */
  uint64_t n_bytes;  /* of its content; 0: not known yet */
  uint64_t n_wanted; /* said to be read */
  uint64_t n_come;   /* whose sum is in `sum`; of a scattered one all, twice or not */
  uint32_t file, said, sum;
  uint32_t first; /* of its ranges, which are sorted and apart */
  uint16_t n_ranges;
  uint8_t state;    /* check_state */
  bool is_archived; /* its place is looked up in an archive when it is read */
  bool is_part;     /* not enough of it is wanted */
  bool has_said;    /* `said` is known */
} check;

_Static_assert(sizeof(check) <= CKPT_RECORD_CHECK_BYTES, "what the plan counts");

typedef struct range {
  uint64_t begin, end;
  uint32_t next;
} range;

_Static_assert(N_RANGES * sizeof(range) <= CKPT_RECORD_CHECKS_BYTES, "what the plan counts");

struct ckpt_record_checks {
  check *checks;
  uint32_t n, capacity, free_range;
  bool has_damage;
  pthread_mutex_t mutex;
  range ranges[N_RANGES];
};

ckpt_status ckpt_record_checks_new(ckpt_record_checks **out, uint32_t n, ckpt_error *err) {
  ckpt_record_checks *checks = *out = calloc(1, sizeof *checks);
  CKPT_TRY_ALLOC(checks, err);
  pthread_mutex_init(&checks->mutex, NULL);
  checks->capacity = n;
  checks->checks = calloc((size_t)n + 1, sizeof *checks->checks);
  for (uint32_t i = 0; i < N_RANGES; i++) checks->ranges[i].next = i + 1 == N_RANGES ? NO_RANGE : i + 1;
  if (checks->checks != NULL) return CKPT_OK;
  ckpt_record_checks_free(checks);
  *out = NULL;
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_record_checks_free(ckpt_record_checks *checks) {
  if (checks == NULL) return;
  pthread_mutex_destroy(&checks->mutex);
  free(checks->checks);
  free(checks);
}

/* ---- which records ----------------------------------------------------------------------------------------------- */

static bool is_in_archive(const ckpt_extent *extent) {
  return extent->chain[0] == CKPT_DECODE_RECORD || extent->chain[1] == CKPT_DECODE_RECORD;
}

/* The row of a record of which an extent is a part, or all that it decodes to. */
static bool find_row(ckpt_source *source, const ckpt_extent *extent, ckpt_stored_record *out) {
  if (extent->file == CKPT_FILE_LITERAL || source == NULL || is_in_archive(extent)) return false;
  if (!ckpt_source_find_record(source, extent->file, extent->offset, out)) return false;
  return !ckpt_extent_is_sequential(extent) || (out->offset == extent->offset && out->n_stored == extent->n_stored);
}

bool ckpt_extent_has_record(ckpt_source *source, const ckpt_extent *extent) {
  ckpt_stored_record row;
  return extent->file != CKPT_FILE_LITERAL && source != NULL &&
         (is_in_archive(extent) || find_row(source, extent, &row));
}

/* Bytes from the first that an extent needs to behind the last. */
static uint64_t span_bytes(const ckpt_tensor *tensor, const ckpt_extent *extent) {
  uint64_t units[CKPT_MAX_RANK], n_units = extent->count;
  const uint32_t rank = ckpt_tensor_units(tensor, units);
  const uint64_t *count = extent->box == NULL ? NULL : extent->box + rank; /* a range has no box */
  if (tensor->details->extent_form == CKPT_EXTENT_BOX) (void)ckpt_product_u64(count, rank, &n_units);
  if (tensor->details->extent_form == CKPT_EXTENT_STRIDED) {
    n_units = 1;
    for (uint32_t axis = 0; axis < rank; axis++) n_units += (count[axis] - 1) * count[rank + axis];
  }
  return n_units * ckpt_dtype_get(tensor->dtype)->block_bytes;
}

void ckpt_record_checks_want(ckpt_record_checks *checks, ckpt_source *source, const ckpt_tensor *tensor,
                             uint64_t n_bytes) {
  for (uint32_t i = 0; i < tensor->n_extents && n_bytes != 0; i++) {
    const ckpt_extent *extent = &tensor->extents[i];
    const uint64_t n_span = n_bytes < tensor->n_bytes ? n_bytes : span_bytes(tensor, extent);
    ckpt_stored_record row = {.file = extent->file, .offset = extent->offset};
    if (!ckpt_extent_has_record(source, extent) || checks->n == checks->capacity) continue;
    const bool is_archived = !find_row(source, extent, &row);
    checks->checks[checks->n++] = (check){.source = source,
                                          .tensor = tensor,
                                          .extent = extent,
                                          .offset = row.offset,
                                          .n_bytes = row.n_bytes,
                                          .n_wanted = n_span,
                                          .file = row.file,
                                          .said = row.crc32,
                                          .first = NO_RANGE,
                                          .is_archived = is_archived,
                                          .has_said = !is_archived};
  }
}

/* Bytes of a record that are as good as all: what is left is read for its sum alone. */
static uint64_t most_of(uint64_t n_bytes) { return n_bytes <= SMALL_BYTES ? 1 : n_bytes - n_bytes / 8; }

static int compare_places(const void *a, const void *b) {
  const check *x = a, *y = b;
  if (x->source != y->source) return (uintptr_t)x->source < (uintptr_t)y->source ? -1 : 1;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

static int compare_checks(const void *a, const void *b) {
  const check *x = a, *y = b;
  const int order = compare_places(a, b);
  return order != 0 ? order : strcmp(x->tensor->name, y->tensor->name);
}

void ckpt_record_checks_begin(ckpt_record_checks *checks) {
  uint32_t n = 0;
  if (checks->n > 1) qsort(checks->checks, checks->n, sizeof *checks->checks, compare_checks);
  for (uint32_t i = 0; i < checks->n; i++) {
    const check *wanted = &checks->checks[i];
    check *last = n == 0 ? NULL : &checks->checks[n - 1];
    if (last == NULL || compare_places(last, wanted) != 0)
      checks->checks[n++] = *wanted;
    else if (!ckpt_add_u64(last->n_wanted, wanted->n_wanted, &last->n_wanted))
      last->n_wanted = UINT64_MAX;
  }
  checks->n = n;
  for (uint32_t i = 0; i < n; i++) {
    check *c = &checks->checks[i];
    if (!c->is_archived && c->n_wanted < most_of(c->n_bytes)) c->state = CHECK_OVER, c->is_part = true;
  }
}

static check *find_check(const ckpt_record_checks *checks, ckpt_source *source, const ckpt_extent *extent) {
  const bool is_in_place = !is_in_archive(extent) && !ckpt_extent_is_sequential(extent);
  const check wanted = {.source = source, .file = extent->file, .offset = extent->offset};
  uint32_t low = 0; /* records that begin where it does, or before */
  for (uint32_t high = checks->n; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    if (compare_places(&checks->checks[middle], &wanted) <= 0)
      low = middle + 1;
    else
      high = middle;
  }
  check *found = low == 0 ? NULL : &checks->checks[low - 1];
  if (found == NULL || found->source != source || found->file != extent->file ||
      found->is_archived != is_in_archive(extent))
    return NULL;
  const uint64_t n_before = extent->offset - found->offset;
  return (is_in_place ? n_before < found->n_bytes || n_before == 0 : n_before == 0) ? found : NULL;
}

/* ---- what has come ------------------------------------------------------------------------------------------------*/

static void drop_ranges(ckpt_record_checks *checks, check *c) {
  while (c->first != NO_RANGE) {
    range *r = &checks->ranges[c->first];
    const uint32_t next = r->next;
    r->next = checks->free_range;
    checks->free_range = c->first;
    c->first = next;
  }
  c->n_ranges = 0;
}

/* Adds [begin, end) to the ranges and lists what of it is new: false where that takes too many. */
static bool add_range(ckpt_record_checks *checks, check *c, uint64_t begin, uint64_t end, range *news,
                      uint32_t *n_new) {
  uint32_t *link = &c->first;
  uint64_t at = begin;
  *n_new = 0;
  while (*link != NO_RANGE && checks->ranges[*link].end < begin) link = &checks->ranges[*link].next;
  range merged = {.begin = begin, .end = end};
  while (*link != NO_RANGE && checks->ranges[*link].begin <= end) { /* touches it, and becomes a part of it */
    range *r = &checks->ranges[*link];
    const uint32_t number = *link;
    if (r->begin > at) {
      if (*n_new == MAX_NEW) return false;
      news[(*n_new)++] = (range){.begin = at, .end = r->begin};
    }
    if (r->end > at) at = r->end;
    if (r->begin < merged.begin) merged.begin = r->begin;
    if (r->end > merged.end) merged.end = r->end;
    *link = r->next;
    r->next = checks->free_range;
    checks->free_range = number;
    c->n_ranges--;
  }
  if (at < end) {
    if (*n_new == MAX_NEW) return false;
    news[(*n_new)++] = (range){.begin = at, .end = end};
  }
  const uint32_t number = checks->free_range;
  if (number == NO_RANGE || c->n_ranges == MAX_RANGES) return false;
  checks->free_range = checks->ranges[number].next;
  checks->ranges[number] = (range){merged.begin, merged.end, *link};
  *link = number;
  c->n_ranges++;
  return true;
}

/* What is said of a record with all its bytes. */
static ckpt_status compare(bool *has_damage, check *c, const char *name, ckpt_error *err) {
  c->state = CHECK_OVER;
  if (!c->has_said || c->sum == c->said) return CKPT_OK;
  if (!ckpt_source_goes_on(c->source))
    return ckpt_source_refuse_record(c->source, c->file, c->tensor->name, name, c->sum, c->said, c->n_bytes, err);
  c->state = CHECK_WRONG;
  *has_damage = true;
  return CKPT_OK;
}

static const char *name_of(const check *c, ckpt_stored_record *row) {
  if (c->is_archived || !ckpt_source_find_record(c->source, c->file, c->offset, row)) return "data/0";
  return row->name;
}

/* Takes what an archive says of its record, which may be known only behind it. */
static void take_record(check *c, const ckpt_record *record) {
  if (record->has_crc32) c->said = record->crc32, c->has_said = true;
  if (c->n_bytes == 0) c->n_bytes = record->n_bytes;
  const bool has_none = (!record->has_crc32 && !record->ends_with_crc32) || c->n_bytes == 0;
  c->is_part = !has_none && c->n_wanted < most_of(c->n_bytes);
  if (has_none || c->is_part) c->state = CHECK_OVER;
}

ckpt_status ckpt_record_checks_take(ckpt_record_checks *checks, ckpt_source *source, const ckpt_extent *extent,
                                    const ckpt_record *record, uint64_t at, const void *bytes, size_t n_bytes,
                                    ckpt_error *err) {
  check *c = find_check(checks, source, extent);
  range news[MAX_NEW];
  uint32_t n_new = 0, sum = 0;
  uint64_t n_come = 0;
  if (c == NULL || n_bytes == 0) return CKPT_OK;
  if (!c->is_archived && !ckpt_extent_is_sequential(extent)) at += extent->offset - c->offset;
  pthread_mutex_lock(&checks->mutex);
  if (record != NULL && c->state != CHECK_OVER) take_record(c, record);
  if (c->state == CHECK_SCATTERED) c->n_come += n_bytes;
  if (c->state == CHECK_OPEN && !add_range(checks, c, at, at + n_bytes, news, &n_new)) {
    c->state = CHECK_SCATTERED;
    c->n_come += n_bytes;
    drop_ranges(checks, c);
  }
  const bool is_open = c->state == CHECK_OPEN;
  pthread_mutex_unlock(&checks->mutex);
  if (!is_open) return CKPT_OK;
  for (uint32_t i = 0; i < n_new && news[i].end <= c->n_bytes; i++) {
    const uint64_t n = news[i].end - news[i].begin;
    const uint32_t piece = ckpt_crc32(0, (const uint8_t *)bytes + (news[i].begin - at), (size_t)n);
    sum ^= (uint32_t)crc32_combine(piece, 0, (z_off_t)(c->n_bytes - news[i].end));
    n_come += n;
  }
  ckpt_status status = CKPT_OK;
  ckpt_stored_record row;
  pthread_mutex_lock(&checks->mutex);
  c->sum ^= sum;
  c->n_come += n_come;
  if (c->state == CHECK_OPEN && c->n_come == c->n_bytes) {
    drop_ranges(checks, c);
    status = compare(&checks->has_damage, c, name_of(c, &row), err);
  }
  pthread_mutex_unlock(&checks->mutex);
  return status;
}

/* ---- what is left ------------------------------------------------------------------------------------------------ */

/* The sum of bytes [begin, end) of a record, carried over those behind them: they are read now. */
static ckpt_status sum_bytes(const check *c, uint64_t begin, uint64_t end, void *window, size_t n_window, uint32_t *sum,
                             ckpt_error *err) {
  ckpt_reader reader = {.source = c->source, .max_bytes = CKPT_CURSOR_BYTES, .is_strided = true};
  ckpt_extent extent = *c->extent;
  ckpt_status status = CKPT_OK;
  uint32_t piece = 0;
  if (!c->is_archived) {
    extent.offset = c->offset;
    if (!ckpt_extent_is_sequential(&extent)) extent.chain[0] = CKPT_DECODE_RAW; /* as it is stored */
  }
  for (uint64_t at = begin; at < end && status == CKPT_OK; at += n_window) {
    const size_t n = end - at < n_window ? (size_t)(end - at) : n_window;
    status = ckpt_reader_read_content(&reader, &extent, at, window, n, err);
    if (status == CKPT_OK) piece = ckpt_crc32(piece, window, n);
  }
  ckpt_reader_reset(&reader);
  *sum ^= (uint32_t)crc32_combine(piece, 0, (z_off_t)(c->n_bytes - end));
  return status;
}

/* Reads what nobody wanted of a record: padding. */
static ckpt_status sum_rest(const ckpt_record_checks *checks, check *c, void *window, size_t n_window,
                            ckpt_error *err) {
  uint64_t at = 0;
  for (uint32_t i = c->first; i != NO_RANGE; i = checks->ranges[i].next) {
    CKPT_TRY(sum_bytes(c, at, checks->ranges[i].begin, window, n_window, &c->sum, err));
    at = checks->ranges[i].end;
  }
  return sum_bytes(c, at, c->n_bytes, window, n_window, &c->sum, err);
}

ckpt_status ckpt_record_checks_end(ckpt_record_checks *checks, void *window, size_t n_window, ckpt_error *err) {
  for (uint32_t i = 0; i < checks->n; i++) {
    check *c = &checks->checks[i];
    ckpt_status status = CKPT_OK;
    ckpt_stored_record row;
    if (c->n_come == 0 || c->n_come < most_of(c->n_bytes)) continue;
    if (c->state == CHECK_SCATTERED) {
      c->sum = 0;
      status = sum_bytes(c, 0, c->n_bytes, window, n_window, &c->sum, err);
    } else if (c->state == CHECK_OPEN) {
      status = sum_rest(checks, c, window, n_window, err);
    } else {
      continue;
    }
    if (status == CKPT_OK) status = compare(&checks->has_damage, c, name_of(c, &row), err);
    CKPT_TRY(ckpt_fail_at(status, err, ckpt_source_path(c->source, c->file), c->tensor->name));
  }
  return CKPT_OK;
}

bool ckpt_record_checks_has_damage(const ckpt_record_checks *checks) { return checks->has_damage; }

void ckpt_record_checks_tell(ckpt_record_checks *checks, ckpt_source *source, const ckpt_tensor *tensor) {
  for (uint32_t i = 0; i < tensor->n_extents; i++) {
    const ckpt_extent *extent = &tensor->extents[i];
    const check *c = extent->file == CKPT_FILE_LITERAL ? NULL : find_check(checks, source, extent);
    ckpt_stored_record row;
    if (c == NULL || c->state != CHECK_WRONG) continue;
    (void)ckpt_source_refuse_record(source, c->file, tensor->name, name_of(c, &row), c->sum, c->said, c->n_bytes, NULL);
  }
}

/* ---- in parts ---------------------------------------------------------------------------------------------------- */

/* A record, with what it refers to of its plan. */
typedef struct ckpt_record_part {
  check check;
  ckpt_extent extent;
  char *name; /* of a tensor in it */
} record_part;

ckpt_status ckpt_record_parts_add(ckpt_record_parts *parts, const ckpt_record_checks *checks, ckpt_error *err) {
  for (uint32_t i = 0; i < checks->n; i++) {
    if (!checks->checks[i].is_part) continue;
    CKPT_TRY(ckpt_grow(&parts->items, parts->n, &parts->capacity, sizeof *parts->items, err));
    record_part *part = &parts->items[parts->n];
    *part = (record_part){checks->checks[i], *checks->checks[i].extent, strdup(checks->checks[i].tensor->name)};
    CKPT_TRY_ALLOC(part->name, err);
    parts->n++;
  }
  return CKPT_OK;
}

/* Compares one with its content, which is read now. */
static ckpt_status compare_part(record_part *part, void *window, ckpt_error *err) {
  check *c = &part->check;
  const ckpt_tensor tensor = {.name = part->name};
  bool has_damage = false;
  ckpt_stored_record row;
  c->extent = &part->extent;
  c->tensor = &tensor;
  c->sum = 0;
  ckpt_status status = sum_bytes(c, 0, c->n_bytes, window, CKPT_WINDOW_BYTES, &c->sum, err);
  if (status == CKPT_OK) status = compare(&has_damage, c, name_of(c, &row), err);
  if (has_damage) /* and its source goes on */
    (void)ckpt_source_refuse_record(c->source, c->file, part->name, name_of(c, &row), c->sum, c->said, c->n_bytes,
                                    NULL);
  return ckpt_fail_at(status, err, ckpt_source_path(c->source, c->file), part->name);
}

ckpt_status ckpt_record_parts_end(ckpt_record_parts *parts, ckpt_error *err) {
  if (parts->n == 0) return CKPT_OK;
  void *window = malloc(CKPT_WINDOW_BYTES);
  ckpt_status status = CKPT_OK;
  CKPT_TRY_ALLOC(window, err);
  qsort(parts->items, parts->n, sizeof *parts->items, compare_places);
  for (uint32_t i = 0, end = 0; i < parts->n && status == CKPT_OK; i = end) {
    record_part *part = &parts->items[i];
    uint64_t n_wanted = 0;
    for (end = i; end < parts->n && compare_places(&part->check, &parts->items[end].check) == 0; end++)
      if (!ckpt_add_u64(n_wanted, parts->items[end].check.n_wanted, &n_wanted)) n_wanted = UINT64_MAX;
    if (n_wanted >= most_of(part->check.n_bytes)) status = compare_part(part, window, err);
  }
  free(window);
  return status;
}

void ckpt_record_parts_free(ckpt_record_parts *parts) {
  for (uint32_t i = 0; i < parts->n; i++) free(parts->items[i].name);
  free(parts->items);
  *parts = (ckpt_record_parts){0};
}
