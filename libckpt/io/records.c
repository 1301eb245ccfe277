/* records.c - see records.h. Rows are sorted by place when one is looked for. */
#include "libckpt/io/records.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

struct ckpt_records {
  pthread_mutex_t mutex; /* guards the order of rows, and calls of tell */
  ckpt_stored_record *rows;
  uint32_t n, capacity;
  bool is_sorted, goes_on;
  void (*tell)(void *arg, const ckpt_error *damage);
  void *arg;
};

ckpt_status ckpt_records_new(ckpt_records **out, ckpt_error *err) {
  *out = calloc(1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  pthread_mutex_init(&(*out)->mutex, NULL);
  return CKPT_OK;
}

void ckpt_records_free(ckpt_records *records) {
  if (records == NULL) return;
  pthread_mutex_destroy(&records->mutex);
  free(records->rows);
  free(records);
}

ckpt_stored_record ckpt_stored_record_of(uint32_t file, uint64_t offset, uint64_t n_stored, uint64_t n_bytes,
                                         uint32_t crc32, const char *name) {
  ckpt_stored_record record = {
      .file = file, .offset = offset, .n_stored = n_stored, .n_bytes = n_bytes, .crc32 = crc32};
  const size_t n = strnlen(name, sizeof record.name - 1);
  memcpy(record.name, name, n);
  return record;
}

ckpt_status ckpt_source_add_record(ckpt_source *source, const ckpt_stored_record *record, ckpt_error *err) {
  ckpt_records *records = ckpt_source_records(source);
  CKPT_TRY(ckpt_grow(&records->rows, records->n, &records->capacity, sizeof *records->rows, err));
  records->rows[records->n++] = *record;
  records->is_sorted = false;
  return CKPT_OK;
}

static int compare_rows(const void *a, const void *b) {
  const ckpt_stored_record *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return (x->offset > y->offset) - (x->offset < y->offset);
}

/* A file that is read twice adds its rows twice. */
static void sort_rows(ckpt_records *records) {
  uint32_t n = 0;
  if (records->is_sorted || records->n == 0) return;
  qsort(records->rows, records->n, sizeof *records->rows, compare_rows);
  for (uint32_t i = 0; i < records->n; i++)
    if (n == 0 || compare_rows(&records->rows[n - 1], &records->rows[i]) != 0) records->rows[n++] = records->rows[i];
  records->n = n;
  records->is_sorted = true;
}

bool ckpt_source_find_record(ckpt_source *source, uint32_t file, uint64_t offset, ckpt_stored_record *out) {
  ckpt_records *records = ckpt_source_records(source);
  pthread_mutex_lock(&records->mutex);
  sort_rows(records);
  uint32_t low = 0; /* rows that begin at this byte or before */
  for (uint32_t high = records->n; low < high;) {
    const uint32_t middle = low + (high - low) / 2;
    const ckpt_stored_record *row = &records->rows[middle];
    if (row->file < file || (row->file == file && row->offset <= offset))
      low = middle + 1;
    else
      high = middle;
  }
  if (low != 0) *out = records->rows[low - 1];
  const bool is_found = low != 0 && out->file == file && offset - out->offset < out->n_stored;
  pthread_mutex_unlock(&records->mutex);
  return is_found;
}

uint32_t ckpt_source_n_records(const ckpt_source *source) { return ckpt_source_records(source)->n; }

const ckpt_stored_record *ckpt_source_record_at(const ckpt_source *source, uint32_t number) {
  return &ckpt_source_records(source)->rows[number];
}

uint64_t ckpt_source_record_bytes(const ckpt_source *source) {
  return source == NULL ? 0 : ckpt_source_records(source)->capacity * sizeof(ckpt_stored_record);
}

/* ---- what is not as it was written ------------------------------------------------------------------------------- */

void ckpt_source_allow_corrupt(ckpt_source *source, void (*tell)(void *arg, const ckpt_error *damage), void *arg) {
  ckpt_records *records = ckpt_source_records(source);
  records->goes_on = true;
  records->tell = tell;
  records->arg = arg;
}

bool ckpt_source_goes_on(const ckpt_source *source) { return ckpt_source_records(source)->goes_on; }

void ckpt_source_follow(ckpt_source *source, const ckpt_source *of) {
  const ckpt_records *records = ckpt_source_records(of);
  if (records->goes_on) ckpt_source_allow_corrupt(source, records->tell, records->arg);
}

ckpt_status ckpt_source_refuse_record(ckpt_source *source, uint32_t file, const char *tensor, const char *record,
                                      uint32_t found, uint32_t said, uint64_t n_bytes, ckpt_error *err) {
  ckpt_records *records = ckpt_source_records(source);
  ckpt_error own = {0};
  (void)ckpt_fail(&own, CKPT_EDIFFERENT, ckpt_source_path(source, file), tensor,
                  "record '%s': the CRC-32 of its content is %08x, the archive says %08x (size %llu)", record, found,
                  said, (unsigned long long)n_bytes);
  if (!records->goes_on)
    return ckpt_advise(ckpt_fail_as(err, CKPT_EDIFFERENT, own.file, tensor, &own), err,
                       "%allow_corrupt reads it all the same");
  pthread_mutex_lock(&records->mutex);
  if (records->tell != NULL) records->tell(records->arg, &own);
  pthread_mutex_unlock(&records->mutex);
  return CKPT_OK;
}
