/* places.c - whether the items of a checkpoint fill their files: each byte belongs to one item, each item to one
 * name, or to names of one tensor. Reading takes no notice; what is said here `verify` counts as problems. */
#include <stdlib.h>
#include <string.h>

#include "formats/dcp/objects.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"

typedef unsigned long long ull;

ckpt_status ckpt_dcp_places_add(ckpt_dcp_places *places, const ckpt_dcp_slice *at, const ckpt_object *name,
                                ckpt_error *err) {
  if (at->file == CKPT_FILE_LITERAL || at->n_bytes == 0) return CKPT_OK;
  CKPT_TRY(ckpt_grow(&places->items, places->n, &places->capacity, sizeof *places->items, err));
  places->items[places->n++] = (ckpt_dcp_place){at->file, UINT32_MAX, at->offset, at->n_bytes, name};
  return CKPT_OK;
}

void ckpt_dcp_places_own(ckpt_dcp_places *places, uint32_t first, uint32_t number) {
  for (uint32_t i = first; i < places->n; i++) places->items[i].number = number;
}

static int compare(const void *x, const void *y) {
  const ckpt_dcp_place *a = x, *b = y;
  if (a->file != b->file) return a->file < b->file ? -1 : 1;
  if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
  return (a->n_bytes > b->n_bytes) - (a->n_bytes < b->n_bytes);
}

/* Whether two items may lie where they do: the one behind the other, or in the very same place for two names of one
 * tensor, which those that are not read may all be. An object has no number, and nobody shares its place. */
static bool is_apart(const ckpt_dcp_place *a, const ckpt_dcp_place *b) {
  if (b->offset - a->offset >= a->n_bytes) return true;
  return a->offset == b->offset && a->n_bytes == b->n_bytes && a->number != UINT32_MAX && a->number == b->number &&
         a->name != b->name;
}

/* Bytes that no item names, and the first of them. */
typedef struct loose {
  uint64_t n_bytes, first;
  uint32_t file, n_files;
} loose;

static void count_loose(loose *out, uint32_t file, uint64_t from, uint64_t to) {
  if (from >= to) return;
  if (out->n_bytes == 0) out->first = from;
  if (out->n_bytes == 0 || out->file != file) out->n_files++;
  out->file = out->n_bytes == 0 ? file : out->file;
  out->n_bytes += to - from;
}

ckpt_status ckpt_dcp_places_note(ckpt_dcp_places *places, ckpt_index *index, ckpt_error *err) {
  const ckpt_source *source = index->source;
  const ckpt_dcp_place *items = places->items, *shared = NULL;
  uint64_t end = 0, n_shared = 0;
  loose found = {0};
  if (places->n != 0) qsort(places->items, places->n, sizeof *places->items, compare);
  for (uint32_t i = 0; i < places->n; i++) {
    if (i == 0 || items[i].file != items[i - 1].file)
      end = 0;
    else if (!is_apart(&items[i - 1], &items[i]) && n_shared++ == 0)
      shared = &items[i];
    count_loose(&found, items[i].file, end, items[i].offset);
    if (items[i].offset + items[i].n_bytes > end) end = items[i].offset + items[i].n_bytes;
    if (i + 1 == places->n || items[i + 1].file != items[i].file)
      count_loose(&found, items[i].file, end, ckpt_source_size(source, items[i].file));
  }
  if (shared != NULL)
    CKPT_TRY(ckpt_index_note(index, true, err,
                             "'%.200s' and '%.200s' lie at one place of %s (byte %llu; %llu such pairs): one of them "
                             "is not what was saved",
                             shared[-1].name->text, shared->name->text, ckpt_source_name(source, shared->file),
                             (ull)shared->offset, (ull)n_shared));
  if (found.n_bytes == 0) return CKPT_OK;
  return ckpt_index_note(
      index, true, err,
      "bytes belong to no item that its metadata names (%llu in %u file%s, the first in %s from byte %llu)",
      (ull)found.n_bytes, found.n_files, ckpt_plural(found.n_files), ckpt_source_name(source, found.file),
      (ull)found.first);
}

void ckpt_dcp_places_free(ckpt_dcp_places *places) {
  free(places->items);
  *places = (ckpt_dcp_places){0};
}
