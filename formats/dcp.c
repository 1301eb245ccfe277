/* dcp.c - a folder of PyTorch Distributed Checkpoint (torch.distributed.checkpoint): read, not written yet.
 *
 *   .metadata                 pickle of Metadata: every tensor's dtype, shape and chunks, and where each chunk lies;
 *                             written last, so that its absence says that the save was cut off
 *   __0.metadata, ...         one for each rank instead, saved with use_collectives=False
 *   __<rank>_<i>.distcp       items one after another, each a torch.save archive
 *   shard-*.safetensors       instead of all these (dcp_hf.c)
 *   config.json, ...          side files, where the framework puts them there
 *
 * docs/formats/dcp.md has the layout. The pickle's graph is dropped before the index is finished. */
#include "formats/dcp.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/arch.h"
#include "libckpt/error.h"

enum { MAX_SIDE_BYTES = 256 << 20 };

static bool has_suffix(const char *text, const char *suffix) {
  size_t n_text = strlen(text), n_suffix = strlen(suffix);
  return n_text > n_suffix && strcmp(text + n_text - n_suffix, suffix) == 0;
}

/* The number in `__<rank>` followed by what `rest` begins with, or -1. */
static int64_t rank_of(const char *name, const char *rest) {
  size_t n = strncmp(name, "__", 2) != 0 ? 0 : strspn(name + 2, "0123456789");
  if (n == 0 || n > 9 || strncmp(name + 2 + n, rest, strlen(rest)) != 0) return -1;
  int64_t rank = 0;
  for (size_t i = 0; i < n; i++) rank = 10 * rank + (name[2 + i] - '0');
  return rank;
}

static bool is_rank_metadata(const char *name) {
  return rank_of(name, CKPT_DCP_METADATA) >= 0 && has_suffix(name, CKPT_DCP_METADATA);
}

static bool is_ours(const char *name) {
  unsigned shard;
  return ckpt_dcp_hf_name(name, &shard) || strcmp(name, CKPT_DCP_METADATA) == 0 || has_suffix(name, CKPT_DCP_SUFFIX) ||
         is_rank_metadata(name);
}

static bool probe(const ckpt_probe *p) {
  if (!p->is_folder) return false;
  for (size_t i = 0; i < p->n_entries; i++)
    if (!p->entries[i].is_folder && is_ours(p->entries[i].name)) return true;
  return false;
}

/* ---- the metadata ---- */

static ckpt_status read_file(ckpt_index *index, ckpt_dcp_metadata *metadata, const char *name, ckpt_error *err) {
  uint32_t file;
  uint64_t n_bytes;
  CKPT_TRY(ckpt_source_add(index->source, name, &file, &n_bytes, err));
  return ckpt_dcp_metadata_read(metadata, index->source, file, err);
}

static ckpt_status read_metadata(ckpt_index *index, ckpt_dcp_metadata *metadata, const ckpt_probe *p, ckpt_error *err) {
  int64_t highest = -1;
  uint32_t n = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    if (strcmp(name, CKPT_DCP_METADATA) == 0) return read_file(index, metadata, name, err);
    if (!is_rank_metadata(name)) continue;
    int64_t rank = rank_of(name, CKPT_DCP_METADATA);
    if (rank > highest) highest = rank;
    n++;
  }
  if (n == 0)
    return ckpt_fail(err, CKPT_EFORMAT, p->path, NULL,
                     "holds .distcp files without .metadata, which is written last: the save never finished, or the "
                     "file was not copied (names that begin with a dot are easily forgotten)");
  if (highest + 1 != n)
    return ckpt_fail(err, CKPT_ENOTFOUND, p->path, NULL, "%u of the %lld files __<rank>.metadata are there", n,
                     (long long)highest + 1);
  for (uint32_t rank = 0; rank < n; rank++) {
    char name[32];
    snprintf(name, sizeof name, "__%u" CKPT_DCP_METADATA, rank);
    CKPT_TRY(read_file(index, metadata, name, err));
  }
  return CKPT_OK;
}

/* ---- what is said of the folder ---- */

/* Ranks with nothing of their own write no file: how many there were is not known. */
static ckpt_status describe_folder(ckpt_index *index, const ckpt_dcp_metadata *metadata, const ckpt_probe *p,
                                   ckpt_error *err) {
  int64_t highest = -1;
  uint64_t n_files = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    int64_t rank = rank_of(p->entries[i].name, "_");
    n_files += has_suffix(p->entries[i].name, CKPT_DCP_SUFFIX);
    if (rank > highest && has_suffix(p->entries[i].name, CKPT_DCP_SUFFIX)) highest = rank;
  }
  char ranks[64] = "";
  if (highest >= 0) snprintf(ranks, sizeof ranks, ", ranks up to %lld", (long long)highest);
  const char *version = metadata->roots[0].version;
  index->writer = ckpt_arena_printf(&index->arena, "torch.distributed.checkpoint%s%s (%llu chunks, %llu files%s)",
                                    version == NULL ? "" : " ", version == NULL ? "" : version,
                                    (unsigned long long)index->n_extents, (unsigned long long)n_files, ranks);
  CKPT_TRY_ALLOC(index->writer, err);
  return CKPT_OK;
}

/* Files that belong to a model, as frameworks put them beside its tensors. */
static bool is_side_file(const ckpt_entry *entry) {
  static const char *const names[] = {"config.json",     "generation_config.json",  "tokenizer.json",
                                      "vocab.json",      "tokenizer_config.json",   "special_tokens_map.json",
                                      "tokenizer.model", "chat_template.jinja",     "merges.txt",
                                      "vocab.txt",       "preprocessor_config.json"};
  if (!entry->is_file || entry->n_bytes > MAX_SIDE_BYTES) return false;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(entry->name, names[i]) == 0) return true;
  return false;
}

static ckpt_status add_side_files(ckpt_index *index, const ckpt_probe *p, ckpt_error *err) {
  for (size_t i = 0; i < p->n_entries; i++) {
    if (!is_side_file(&p->entries[i])) continue;
    uint32_t file;
    uint64_t n_bytes;
    CKPT_TRY(ckpt_source_add(index->source, p->entries[i].name, &file, &n_bytes, err));
    CKPT_TRY(ckpt_index_add_side_file(index, p->entries[i].name, file, n_bytes, err));
  }
  return CKPT_OK;
}

/* ---- the row ---- */

/* Whether the folder holds shards in safetensors and no metadata of ours. */
static bool is_hf(const ckpt_probe *p) {
  unsigned shard;
  bool has_shards = false;
  for (size_t i = 0; i < p->n_entries; i++) {
    bool is_shard = ckpt_dcp_hf_name(p->entries[i].name, &shard);
    has_shards = has_shards || is_shard;
    if (!is_shard && is_ours(p->entries[i].name)) return false;
  }
  return has_shards;
}

static ckpt_status read_tensors(ckpt_index *index, const ckpt_probe *p, bool stored_names, ckpt_error *err) {
  ckpt_dcp_metadata metadata = {0};
  ckpt_arena_init(&metadata.arena, index->arena.limit);
  metadata.arena.from = index->arena.from;
  ckpt_status status;
  CKPT_TRY_GOTO(read_metadata(index, &metadata, p, err));
  CKPT_TRY_GOTO(ckpt_dcp_metadata_sort(&metadata, err));
  CKPT_TRY_GOTO(ckpt_dcp_add_all(index, &metadata, p, stored_names, err));
  CKPT_TRY_GOTO(describe_folder(index, &metadata, p, err));
done:
  ckpt_dcp_metadata_free(&metadata);
  return status;
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  CKPT_TRY(is_hf(p) ? ckpt_dcp_read_hf(index, p, err) : read_tensors(index, p, options->stored_names, err));
  CKPT_TRY(add_side_files(index, p, err));
  CKPT_TRY(ckpt_index_canonical_names(index, options->stored_names, err));
  return ckpt_index_finish(index, err);
}

const ckpt_format ckpt_format_dcp = {
    .name = "dcp",
    .suffixes = "",
    .caps = {.is_folder = true,
             .objects = true,
             .training_state = true,
             .side_files = true,
             .ranks = true,
             .dtypes = (UINT64_C(1) << CKPT_N_DTYPES) - 2,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
};
