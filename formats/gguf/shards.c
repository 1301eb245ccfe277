/* shards.c - a folder of GGUF files that are one model, as llama-gguf-split names and cuts them.
 *
 *   model-00001-of-00003.gguf     all metadata, split.no 0, the first tensors
 *   model-00002-of-00003.gguf     split.no 1, split.count and split.tensors.count, more tensors; ...
 *
 * A folder with one GGUF file, or one set, is read; writing gives a set, however small. A tensor is never cut. */
#include <stdio.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)

enum { SHARD_NAME_BYTES = 64, MAX_SHARDS = 65535 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static bool is_gguf(const ckpt_entry *entry) { return !entry->is_folder && ckpt_text_ends(entry->name, ".gguf"); }

bool ckpt_gguf_probe_folder(const ckpt_probe *p) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (is_gguf(&p->entries[i])) return true;
  return false;
}

static ckpt_status refuse_several(const ckpt_probe *p, ckpt_error *err) {
  char list[512] = "";
  size_t n_files = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    if (!is_gguf(&p->entries[i])) continue;
    n_files++;
    ckpt_text_list_add(list, sizeof list, p->entries[i].name);
  }
  return ckpt_fail(err, CKPT_EUNSUPPORTED, p->path, NULL,
                   "holds %zu GGUF files that are no set; name one of them, or the first of a set:%s", n_files, list);
}

ckpt_status ckpt_gguf_find_first(const ckpt_probe *p, const char **out, ckpt_error *err) {
  const char *first = NULL;
  size_t n_first = 0, n_prefix = 0;
  uint32_t number, count, n_set = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    if (!is_gguf(&p->entries[i])) continue;
    bool is_part = ckpt_gguf_numbered(name, &n_prefix, &number, &count) && count > 1;
    if (first == NULL) {
      first = name;
      n_first = n_prefix;
      n_set = is_part ? count : 0;
    } else if (!is_part || count != n_set || n_prefix != n_first || memcmp(name, first, n_prefix) != 0) {
      return refuse_several(p, err);
    }
  }
  *out = first;
  if (n_set == 0 || (ckpt_gguf_numbered(first, &n_prefix, &number, &count) && number == 1)) return CKPT_OK;
  return ckpt_fail(err, CKPT_ENOTFOUND, p->path, NULL, "file 1 of %u is missing: %.*s-00001-of-%05u.gguf (download it)",
                   n_set, (int)n_first, first, n_set);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* The keys that say what part a file is, in the order in which llama-gguf-split has them. */
static ckpt_status add_part(ckpt_meta *metadata, uint32_t *n, const ckpt_layout *layout, uint32_t number,
                            uint32_t count, ckpt_error *err) {
  const struct {
    const char *key;
    uint32_t type, value;
  } parts[] = {{CKPT_GGUF_SPLIT "no", CKPT_GGUF_U16, number},
               {CKPT_GGUF_SPLIT "tensors.count", CKPT_GGUF_I32, layout->index->n_tensors},
               {CKPT_GGUF_SPLIT "count", CKPT_GGUF_U16, count}};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    ckpt_meta *meta = &metadata[(*n)++];
    *meta = (ckpt_meta){.key = parts[i].key, .value = ""};
    CKPT_TRY(ckpt_gguf_value_of(&meta->typed, layout->arena, parts[i].type, parts[i].value, err));
  }
  return CKPT_OK;
}

/* A file's metadata: the model's in the first, in the others only how they are aligned, if the model says it. */
static ckpt_status make_metadata(ckpt_meta **out, uint32_t *n, const ckpt_layout *layout, const ckpt_meta *alignment,
                                 uint32_t number, uint32_t count, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  const uint32_t n_room = number == 0 ? index->n_metadata : 1;
  ckpt_meta *metadata = *out = ckpt_arena_array(layout->arena, (size_t)n_room + 3, sizeof *metadata);
  CKPT_TRY_ALLOC(metadata, err);
  *n = 0;
  for (uint32_t i = 0; number == 0 && i < index->n_metadata; i++)
    if (!ckpt_gguf_is_part_key(index->metadata[i].key)) metadata[(*n)++] = index->metadata[i];
  if (number != 0 && alignment != NULL) metadata[(*n)++] = *alignment;
  return add_part(metadata, n, layout, number, count, err);
}

/* Where each file's tensors begin in the order: llama-gguf-split's rule with --split-max-size, which counts padded
 * tensors, but that no file is empty. first has room for n + 1 places; the number of files. */
static uint32_t cut(const ckpt_layout *layout, const uint32_t *order, uint32_t alignment, uint64_t limit,
                    uint32_t *first) {
  const ckpt_index *index = layout->index;
  uint64_t n_open = 0;
  uint32_t n_files = 1;
  first[0] = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    uint64_t n_bytes = index->tensors[order[i]].n_bytes;
    n_bytes += ckpt_gguf_padding(n_bytes, alignment); /* below 2^63 + 2^32 */
    if (i != first[n_files - 1] && (n_bytes > limit || n_open > limit - n_bytes)) {
      first[n_files++] = i;
      n_open = 0;
    }
    n_open += n_bytes;
  }
  first[n_files] = index->n_tensors;
  return n_files;
}

static void print_name(char out[SHARD_NAME_BYTES], uint32_t number, uint32_t count) {
  snprintf(out, SHARD_NAME_BYTES, "model-%05u-of-%05u.gguf", number + 1, count);
}

ckpt_status ckpt_gguf_lay_shards(ckpt_layout *l, const uint32_t *order, uint32_t alignment,
                                 const ckpt_layout_options *options, ckpt_error *err) {
  uint32_t *first = ckpt_arena_array(l->arena, (size_t)l->index->n_tensors + 2, sizeof *first);
  CKPT_TRY_ALLOC(first, err);
  const uint64_t limit = options->shard_size != 0 ? options->shard_size : DEFAULT_SHARD_BYTES;
  const uint32_t n_files = cut(l, order, alignment, limit, first);
  if (n_files > MAX_SHARDS || l->index->n_tensors > INT32_MAX)
    return ckpt_advise(ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u files of %llu bytes, GGUF numbers at most %d",
                                 n_files, (unsigned long long)limit, MAX_SHARDS),
                       err, "%shard_size");
  const ckpt_meta *aligned = ckpt_index_meta(l->index, CKPT_GGUF_ALIGNMENT); /* once: there are many files and keys */
  for (uint32_t i = 0; i < n_files; i++) {
    char name[SHARD_NAME_BYTES];
    ckpt_meta *metadata = NULL;
    uint32_t n_metadata = 0;
    print_name(name, i, n_files);
    CKPT_TRY(make_metadata(&metadata, &n_metadata, l, aligned, i, n_files, err));
    CKPT_TRY(ckpt_layout_file_add(l, name, err));
    l->files[l->n_files - 1].rank = i;
    CKPT_TRY(ckpt_gguf_lay(l, order + first[i], first[i + 1] - first[i], metadata, n_metadata, alignment, err));
  }
  return CKPT_OK;
}

void ckpt_gguf_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
  uint32_t set = 0, n_found = 0, number, count;
  size_t n_prefix;
  (void)written;
  for (uint32_t i = 0; i < n; i++) {
    if (!ckpt_gguf_numbered(names[i], &n_prefix, &number, &count)) continue;
    if (strncmp(names[i], "model-", 6) != 0 || n_prefix != 5 || (set != 0 && count != set)) return;
    set = count;
    n_found++;
  }
  if (n_found == 0 || n_found != set) return;
  for (uint32_t i = 0; i < n; i++) is_ours[i] = ckpt_gguf_numbered(names[i], &n_prefix, &number, &count);
}
