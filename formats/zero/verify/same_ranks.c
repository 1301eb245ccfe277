/* same_ranks.c - optimizer files of two ranks that are one: a rank's file under another's name too, as a copy gone
 * wrong leaves it. Sizes and the CRCs that their archives record tell, so that next to nothing is read. Partitions of
 * one value each are the same on many ranks of a model that is only padding or zeros there: those are no copies. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/extents/decode.h"
#include "libckpt/format/findings.h"

/* A rank's file, by what its archive says of it. */
typedef struct print {
  uint64_t n_bytes, sums;
  uint32_t file; /* UINT32_MAX: of no optimizer, or it says nothing */
} print;

static uint64_t add_sum(uint64_t sums, uint64_t value) { return (sums ^ value) * UINT64_C(0x100000001b3); }

/* The print of a file; of ranks that cut other parameters (mp_rank_SS) they are never compared. */
static ckpt_status take_print(print *out, const ckpt_index *index, uint32_t file, ckpt_error *err) {
  const char *name = ckpt_path_name(ckpt_source_name(index->source, file));
  const char *shard = strstr(name, "mp_rank_"), *end = strstr(name, "optim_states.pt");
  uint8_t head[4] = {0};
  ckpt_zip *zip;
  bool is_said = false; /* PyTorch can be told to record 0 */
  *out = (print){.n_bytes = ckpt_source_size(index->source, file), .sums = UINT64_C(0xcbf29ce484222325)};
  out->file = UINT32_MAX;
  if (shard == NULL || end == NULL || end < shard || out->n_bytes < sizeof head) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(index->source, file, 0, head, sizeof head, err));
  if (!ckpt_zip_is_start(head, sizeof head)) return CKPT_OK;
  CKPT_TRY(ckpt_zip_open(&zip, index->source, file, 0, out->n_bytes, CKPT_ZIP_MAX_BYTES, err));
  for (; shard < end; shard++) out->sums = add_sum(out->sums, (uint8_t)*shard);
  for (uint32_t i = 0; i < ckpt_zip_count(zip); i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(zip, i);
    out->sums = add_sum(add_sum(out->sums, entry->n_bytes), entry->crc32);
    is_said = is_said || entry->crc32 != 0;
  }
  ckpt_zip_free(zip);
  if (is_said) out->file = file;
  return CKPT_OK;
}

static int compare(const void *a, const void *b) {
  const print *x = a, *y = b;
  if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
  if (x->sums != y->sums) return x->sums < y->sums ? -1 : 1;
  return x->file < y->file ? -1 : x->file > y->file;
}

/* Whether the elements of a part are not all the same one. */
static ckpt_status varies(bool *out, const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_extent *extent,
                          ckpt_error *err) {
  enum { WINDOW_BYTES = 1 << 16 }; /* of whole elements */
  const uint32_t unit = ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_bytes;
  uint8_t first[16], *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_reader reader = {.source = index->source, .max_bytes = CKPT_CURSOR_BYTES};
  ckpt_status status = CKPT_OK;
  const uint64_t n_bytes = extent->count * unit;
  for (uint64_t at = 0; at < n_bytes && !*out && status == CKPT_OK; at += WINDOW_BYTES) {
    const size_t n = (size_t)(n_bytes - at < WINDOW_BYTES ? n_bytes - at : WINDOW_BYTES);
    status = ckpt_reader_read(&reader, extent, unit, at, window, n, err);
    if (status != CKPT_OK) break;
    if (at == 0) memcpy(first, window, unit);
    for (size_t i = 0; i < n && !*out; i += unit) *out = memcmp(first, window + i, unit) != 0;
  }
  ckpt_reader_reset(&reader);
  free(window);
  return status;
}

/* What is known of each file. */
enum { IS_HELD = 1, IS_TWICE = 2, HAS_VALUES = 4 };

/* Looks once at all parts of masters: which files have some, or (of those that are there twice) more than one value. */
static ckpt_status look(uint8_t *known, const ckpt_index *index, bool reads, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    if (tensor->role != CKPT_ROLE_MASTER || tensor->details->extent_form != CKPT_EXTENT_FLAT ||
        ckpt_dtype_get((ckpt_dtype)tensor->dtype)->block_bytes > 8)
      continue;
    for (uint32_t k = 0; k < tensor->n_extents; k++) {
      const ckpt_extent *extent = &tensor->extents[k];
      if (extent->file == CKPT_FILE_LITERAL) continue;
      bool has_values = false;
      known[extent->file] |= IS_HELD;
      if (!reads || (known[extent->file] & (IS_TWICE | HAS_VALUES)) != IS_TWICE) continue;
      CKPT_TRY(varies(&has_values, index, tensor, extent, err));
      if (has_values) known[extent->file] |= HAS_VALUES;
    }
  }
  return CKPT_OK;
}

static bool is_same(const print *a, const print *b) { return a->n_bytes == b->n_bytes && a->sums == b->sums; }

/* Says of each of n files, sorted, that it is one before it; each such run's first is looked at. */
static ckpt_status judge(ckpt_findings *findings, const ckpt_index *index, const print *prints, uint32_t n,
                         uint8_t *known, ckpt_error *err) {
  uint32_t n_twice = 0;
  for (uint32_t i = 1, first = 0; i < n; i++) {
    if (!is_same(&prints[first], &prints[i])) first = i;
    if (first == i) continue;
    known[prints[first].file] |= IS_TWICE;
    n_twice++;
  }
  if (n_twice == 0) return CKPT_OK;
  CKPT_TRY(look(known, index, true, err));
  for (uint32_t i = 1, first = 0; i < n; i++) {
    if (!is_same(&prints[first], &prints[i])) first = i;
    if (first == i || (known[prints[first].file] & HAS_VALUES) == 0) continue;
    CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, prints[i].file), NULL,
                               "has the same records as %s, by their sizes and CRCs: one rank's states in place of "
                               "another's",
                               ckpt_path_name(ckpt_source_name(index->source, prints[first].file))));
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_verify(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  (void)run;
  const uint32_t n_files = ckpt_source_count(index->source);
  print *prints = calloc((size_t)n_files + 1, sizeof *prints);
  uint8_t *known = calloc((size_t)n_files + 1, sizeof *known);
  ckpt_status status = CKPT_OK;
  uint32_t n = 0;
  if (prints == NULL || known == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = look(known, index, false, err);
  for (uint32_t i = 0; i < n_files && status == CKPT_OK; i++) {
    if ((known[i] & IS_HELD) == 0) continue;
    status = take_print(&prints[n], index, i, err);
    n += prints[n].file != UINT32_MAX;
  }
  if (status == CKPT_OK && n > 1) qsort(prints, n, sizeof *prints, compare);
  if (status == CKPT_OK) status = judge(findings, index, prints, n, known, err);
  if (status == CKPT_OK) status = ckpt_zero_verify_names(findings, index, err);
  free(prints);
  free(known);
  return status;
}
