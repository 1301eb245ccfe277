/* name_table.c - one sorted array of (hash, name, tensor number). */
#include "libckpt/index/name_table.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

typedef struct row {
  uint64_t hash;
  const char *name;
  uint32_t number;
} row;

struct ckpt_name_table {
  uint32_t n;
  row *rows;
};

/* FNV-1a */
static uint64_t hash_name(const char *name) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *name != '\0'; name++) hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
  return hash;
}

static int compare_rows(const void *a, const void *b) {
  const row *x = a, *y = b;
  if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
  int order = strcmp(x->name, y->name);
  return order != 0 ? order : x->number < y->number ? -1 : x->number > y->number;
}

static void add_row(ckpt_name_table *table, const char *name, uint32_t number) {
  table->rows[table->n++] = (row){hash_name(name), name, number};
}

ckpt_status ckpt_name_table_new(ckpt_name_table **out, const ckpt_index *index, ckpt_error *err) {
  ckpt_name_table *table = malloc(sizeof *table);
  CKPT_TRY_ALLOC(table, err);
  row *rows = calloc((size_t)index->n_tensors + index->n_aliases + 1, sizeof *rows);
  if (rows == NULL) free(table);
  CKPT_TRY_ALLOC(rows, err);
  *table = (ckpt_name_table){0, rows};
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    add_row(table, index->tensors[i].name, i);
    for (const char *const *alias = index->tensors[i].aliases; alias != NULL && *alias != NULL; alias++)
      add_row(table, *alias, i);
  }
  qsort(table->rows, table->n, sizeof *table->rows, compare_rows);
  *out = table;
  return CKPT_OK;
}

void ckpt_name_table_free(ckpt_name_table *table) {
  if (table == NULL) return;
  free(table->rows);
  free(table);
}

/* Where the rows of a name begin, or would. */
static uint32_t place_of(const ckpt_name_table *table, uint64_t hash, const char *name) {
  uint32_t low = 0;
  for (uint32_t high = table->n; low < high;) {
    uint32_t middle = low + (high - low) / 2;
    const row *at = &table->rows[middle];
    if (at->hash < hash || (at->hash == hash && strcmp(at->name, name) < 0))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static bool is_row_of(const ckpt_name_table *table, uint32_t i, uint64_t hash, const char *name) {
  return i < table->n && table->rows[i].hash == hash && strcmp(table->rows[i].name, name) == 0;
}

int64_t ckpt_name_table_find(const ckpt_name_table *table, const char *name) {
  const uint64_t hash = hash_name(name);
  const uint32_t at = place_of(table, hash, name);
  return is_row_of(table, at, hash, name) ? (int64_t)table->rows[at].number : -1;
}

bool ckpt_name_table_is_twice(const ckpt_name_table *table, const char *name) {
  const uint64_t hash = hash_name(name);
  return is_row_of(table, place_of(table, hash, name) + 1, hash, name);
}

static ckpt_status refuse_twice(const ckpt_index *index, const ckpt_tensor *first, const ckpt_tensor *second,
                                ckpt_error *err) {
  uint32_t file_a = first->extents[0].file, file_b = second->extents[0].file;
  if (file_a == file_b)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(index->source, file_a), first->name,
                     "stands twice in the header");
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(index->source, file_b), first->name,
                   "stands in two files: %s and %s", ckpt_source_name(index->source, file_a),
                   ckpt_source_name(index->source, file_b));
}

ckpt_status ckpt_name_table_refuse_twice(ckpt_index *index, ckpt_error *err) {
  ckpt_name_table *table;
  CKPT_TRY(ckpt_name_table_new(&table, index, err));
  ckpt_error defect = {0};
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 1; i < table->n && status == CKPT_OK; i++) {
    const row *a = &table->rows[i - 1], *b = &table->rows[i];
    if (a->hash != b->hash || strcmp(a->name, b->name) != 0) continue;
    status = refuse_twice(index, &index->tensors[a->number], &index->tensors[b->number], &defect);
    status = ckpt_defects_pass(&index->defects, status, &defect, err);
    ckpt_index_break(index, b->number, b->number + 1);
  }
  ckpt_name_table_free(table);
  return status;
}
