/* imatrix.c - importance matrices as llama-imatrix wrote them before it wrote GGUF (imatrix.dat); read only.
 *
 *   0      number of entries (i32); per entry:
 *            n (i32), n bytes of name; calls (i32); n values (i32), the values (f32): sums of squares, one per channel
 *   then   optional: chunks (i32), n (i32), n bytes: the text that it was made from
 *
 * All little-endian. An entry NAME becomes `NAME.in_sum2` and `NAME.counts`, as llama-imatrix names them in GGUF. There
 * is no magic: the first entry must look like one. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/format/format.h"

#define MAX_ENTRIES 1000000
#define MAX_NAME 1024
#define MAX_DATASET 65536

static bool is_name(const uint8_t *name, size_t n) {
  for (size_t i = 0; i < n; i++)
    if (name[i] < '!' || name[i] > '~') return false;
  return n > 0;
}

static bool probe(const ckpt_probe *p) {
  if (p->is_folder || p->n_head < 17) return false;
  const uint32_t n_entries = ckpt_le32(p->head), n_name = ckpt_le32(p->head + 4);
  if (n_entries == 0 || n_entries > MAX_ENTRIES || n_name > MAX_NAME || 16 + n_name > p->n_head) return false;
  const uint8_t *after = p->head + 8 + n_name;
  const uint32_t n_calls = ckpt_le32(after), n_values = ckpt_le32(after + 4);
  return is_name(p->head + 8, n_name) && n_calls <= INT32_MAX && n_values != 0 && n_values <= INT32_MAX &&
         n_values <= (p->n_bytes - 16 - n_name) / 4;
}

/* Where reading stands. */
typedef struct at {
  ckpt_index *index;
  uint32_t file;
  uint64_t offset, end;
} at;

/* The next n bytes; what they are is said where the file ends before. */
static ckpt_status take(at *a, void *dst, size_t n, const char *what, uint32_t entry, ckpt_error *err) {
  if (n > a->end - a->offset)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(a->index->source, a->file), NULL,
                     "%s of entry %u needs %zu bytes at %llu, the file has %llu", what, entry, n,
                     (unsigned long long)a->offset, (unsigned long long)a->end);
  CKPT_TRY(ckpt_source_read(a->index->source, a->file, a->offset, dst, n, err));
  a->offset += n;
  return CKPT_OK;
}

static ckpt_status take_count(at *a, uint32_t *count, const char *what, uint32_t entry, ckpt_error *err) {
  uint8_t bytes[4];
  CKPT_TRY(take(a, bytes, sizeof bytes, what, entry, err));
  *count = ckpt_le32(bytes);
  return CKPT_OK;
}

static ckpt_status add(at *a, const char *name, size_t n_name, const char *suffix, ckpt_dtype dtype, uint64_t n,
                       uint64_t offset, ckpt_error *err) {
  char full[MAX_NAME + 16];
  memcpy(full, name, n_name);
  memcpy(full + n_name, suffix, strlen(suffix) + 1);
  const ckpt_extent extent = {.offset = offset, .n_stored = 4 * n, .file = a->file, .count = n};
  return ckpt_index_add(a->index, full, n_name + strlen(suffix), dtype, 1, &n, CKPT_ROLE_BUFFER, &extent, 1, NULL, err);
}

static ckpt_status read_entry(at *a, uint32_t entry, ckpt_error *err) {
  char name[MAX_NAME];
  uint32_t n_name, n_calls, n_values;
  const char *path = ckpt_source_path(a->index->source, a->file);
  CKPT_TRY(take_count(a, &n_name, "the name", entry, err));
  if (n_name == 0 || n_name > MAX_NAME)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "the name of entry %u has %u bytes (1 to %d are expected)", entry,
                     n_name, MAX_NAME);
  CKPT_TRY(take(a, name, n_name, "the name", entry, err));
  if (!is_name((const uint8_t *)name, n_name))
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "the name of entry %u is none of a tensor", entry);
  const uint64_t calls_at = a->offset;
  CKPT_TRY(take_count(a, &n_calls, "the number of calls", entry, err));
  CKPT_TRY(take_count(a, &n_values, "the number of values", entry, err));
  const uint64_t left = (a->end - a->offset) / 4;
  if (n_calls > INT32_MAX || n_values == 0 || n_values > left)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "entry %u has %u call%s and %u value%s (%llu are left in the file)",
                     entry, n_calls, ckpt_plural(n_calls), n_values, ckpt_plural(n_values), (unsigned long long)left);
  CKPT_TRY(add(a, name, n_name, ".in_sum2", CKPT_F32, n_values, a->offset, err));
  CKPT_TRY(add(a, name, n_name, ".counts", CKPT_I32, 1, calls_at, err));
  a->offset += 4 * (uint64_t)n_values;
  return CKPT_OK;
}

/* Chunks and the text they are of, where there are any. */
static ckpt_status read_trailer(at *a, ckpt_error *err) {
  uint32_t n_chunks, n_text;
  char number[16];
  if (a->offset == a->end) return CKPT_OK;
  CKPT_TRY(take_count(a, &n_chunks, "the number of chunks", 0, err));
  snprintf(number, sizeof number, "%u", n_chunks);
  CKPT_TRY(ckpt_index_set_metadata(a->index, "imatrix.chunk_count", number, err));
  if (a->offset == a->end) return CKPT_OK;
  CKPT_TRY(take_count(a, &n_text, "the dataset", 0, err));
  if (n_text > MAX_DATASET || n_text > a->end - a->offset)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(a->index->source, a->file), NULL,
                     "the dataset's name has %u bytes (at most %d, and %llu are left)", n_text, MAX_DATASET,
                     (unsigned long long)(a->end - a->offset));
  char *text = ckpt_arena_alloc(&a->index->arena, (size_t)n_text + 1);
  CKPT_TRY_ALLOC(text, err);
  CKPT_TRY(take(a, text, n_text, "the dataset", 0, err));
  text[n_text] = '\0';
  return ckpt_index_set_metadata(a->index, "imatrix.datasets", text, err);
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)p, (void)options;
  at a = {.index = index};
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &a.file, &a.end, err));
  a.end = ckpt_source_size(index->source, a.file);
  uint32_t n_entries;
  CKPT_TRY(take_count(&a, &n_entries, "the number of entries", 0, err));
  for (uint32_t i = 0; i < n_entries; i++) CKPT_TRY(read_entry(&a, i, err));
  CKPT_TRY(read_trailer(&a, err));
  return ckpt_index_finish(index, err);
}

const ckpt_format ckpt_format_imatrix = {
    .name = "imatrix",
    .suffixes = "",
    .caps = {.dtypes = UINT64_C(1) << CKPT_F32 | UINT64_C(1) << CKPT_I32, .max_rank = 1},
    .probe = probe,
    .read = read_index,
};
