/* dcp.c - a folder of PyTorch Distributed Checkpoint (torch.distributed.checkpoint): reading, the row.
 *
 *   .metadata                 pickle of Metadata: every tensor's dtype, shape and chunks, and where each chunk lies;
 *                             written last, so that its absence says that the save was cut off
 *   __0.metadata, ...         one for each rank instead, saved with use_collectives=False
 *   __<rank>_<i>.distcp       items one after another, each a torch.save archive
 *   shard-*.safetensors       instead of all these (hf.c)
 *   config.json, ...          side files, where the framework puts them there
 *   pytorch_model_fsdp_0/, optimizer_0/    two such folders that accelerate saves: one checkpoint
 *   model/, optimizer/                     the same by whoever calls save twice
 *
 * docs/formats/dcp.md has the layout. Writing: layout.c. The pickle's graph is dropped before the index is
 * finished. */
#include "formats/dcp/objects.h"
#include "formats/dcp/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/write/write.h"
#include "libckpt/index/arch.h"

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

static bool has_own(const ckpt_probe *p) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (!p->entries[i].is_folder && is_ours(p->entries[i].name)) return true;
  return false;
}

/* The folders of one model and its optimizer, and what their items are below in a checkpoint of both. */
enum { N_PARTS = 2 };
static const char *const accelerate[N_PARTS] = {"pytorch_model_fsdp_0", "optimizer_0"};
static const char *const plain[N_PARTS] = {"model", "optimizer"};

static bool has_folder(const ckpt_probe *p, const char *name) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (p->entries[i].is_folder && strcmp(p->entries[i].name, name) == 0) return true;
  return false;
}

/* Whether a folder below holds a checkpoint of this format: "model" may be anything's name. */
static bool holds_own(const ckpt_probe *p, const char *name) {
  ckpt_probe below = {.is_folder = true};
  ckpt_entry *entries = NULL;
  if (!has_folder(p, name) || ckpt_list(&entries, &below.n_entries, p->path, name, NULL) != CKPT_OK) return false;
  below.entries = entries;
  bool is_held = has_own(&below);
  ckpt_list_free(entries, below.n_entries);
  return is_held;
}

/* The two folders of a checkpoint that has them, or NULL. */
static const char *const *parts_of(const ckpt_probe *p) {
  if (has_folder(p, accelerate[0]) && has_folder(p, accelerate[1]))
    return has_folder(p, "pytorch_model_fsdp_1") ? NULL : accelerate;
  return holds_own(p, plain[0]) && holds_own(p, plain[1]) ? plain : NULL;
}

static bool probe(const ckpt_probe *p) { return p->is_folder && (has_own(p) || parts_of(p) != NULL); }

/* ---- the metadata ---- */

static ckpt_status read_file(ckpt_index *index, ckpt_dcp_metadata *metadata, const char *name, const char *folder,
                             ckpt_error *err) {
  uint32_t file;
  uint64_t n_bytes;
  const char *path = folder == NULL ? name : ckpt_arena_printf(&metadata->arena, "%s/%s", folder, name);
  CKPT_TRY_ALLOC(path, err);
  CKPT_TRY(ckpt_source_add(index->source, path, &file, &n_bytes, err));
  return ckpt_dcp_metadata_read(metadata, index->source, file, folder, err);
}

/* The metadata of a folder whose entries these are. */
static ckpt_status read_metadata(ckpt_index *index, ckpt_dcp_metadata *metadata, const ckpt_probe *p,
                                 const char *folder, ckpt_error *err) {
  int64_t highest = -1;
  uint32_t n = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    int64_t rank = rank_of(name, "_");
    bool is_data = has_suffix(name, CKPT_DCP_SUFFIX);
    metadata->n_files += is_data;
    if (is_data && rank > metadata->last_rank) metadata->last_rank = rank;
    if (!is_rank_metadata(name)) continue;
    rank = rank_of(name, CKPT_DCP_METADATA);
    if (rank > highest) highest = rank;
    n++;
  }
  for (size_t i = 0; i < p->n_entries; i++)
    if (strcmp(p->entries[i].name, CKPT_DCP_METADATA) == 0)
      return read_file(index, metadata, CKPT_DCP_METADATA, folder, err);
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
    CKPT_TRY(read_file(index, metadata, name, folder, err));
  }
  return CKPT_OK;
}

/* The metadata of the two folders, as roots of one checkpoint; a folder without any does not hide the other. */
static ckpt_status read_parts(ckpt_index *index, ckpt_dcp_metadata *metadata, const char *const *parts,
                              ckpt_error *err) {
  const char *root = ckpt_source_root(index->source);
  for (uint32_t i = 0; i < N_PARTS; i++) {
    const uint32_t first_root = metadata->n_roots;
    ckpt_entry *entries = NULL;
    ckpt_error defect = {0};
    ckpt_probe p = {.is_folder = true, .path = ckpt_arena_printf(&metadata->arena, "%s/%s", root, parts[i])};
    CKPT_TRY_ALLOC(p.path, err);
    CKPT_TRY(ckpt_list(&entries, &p.n_entries, root, parts[i], err));
    p.entries = entries;
    ckpt_status status = read_metadata(index, metadata, &p, parts[i], &defect);
    ckpt_list_free(entries, p.n_entries);
    CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
    if (status != CKPT_OK) ckpt_dcp_metadata_drop(metadata, first_root);
    CKPT_TRY(ckpt_dcp_metadata_put_below(metadata, first_root, plain[i], err));
  }
  return CKPT_OK;
}

/* ---- what is said of the folder ---- */

/* Ranks with nothing of their own write no file: how many there were is not known. */
static ckpt_status describe_folder(ckpt_index *index, const ckpt_dcp_metadata *metadata, ckpt_error *err) {
  if (metadata->last_rank >= 0 && metadata->last_rank < UINT32_MAX)
    index->min_ranks = (uint32_t)metadata->last_rank + 1;
  const char *version = metadata->roots[0].version;
  index->version = version == NULL ? "of before PyTorch 2.9" : ckpt_arena_copy(&index->arena, version);
  CKPT_TRY_ALLOC(index->version, err);
  index->writer = ckpt_arena_printf(&index->arena, "torch.distributed.checkpoint%s%s (%llu chunk%s, %llu file%s)",
                                    version == NULL ? "" : " ", version == NULL ? "" : version,
                                    (unsigned long long)index->n_extents, ckpt_plural(index->n_extents),
                                    (unsigned long long)metadata->n_files, ckpt_plural(metadata->n_files));
  CKPT_TRY_ALLOC(index->writer, err);
  return CKPT_OK;
}

static int compare_with_entry(const void *name, const void *entry) {
  return strcmp(name, ((const ckpt_entry *)entry)->name);
}

/* The name of a file of the source in a folder, NULL: the root; NULL where it lies elsewhere. */
static const char *name_in(const ckpt_source *source, uint32_t file, const char *folder) {
  const char *name = ckpt_source_name(source, file);
  const size_t n = folder == NULL ? 0 : strlen(folder);
  if (n == 0) return name;
  return strncmp(name, folder, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

/* Files of chunks among a folder's that the metadata does not name: left by a save of more ranks, or all that there is
 * of another. Those of ranks with nothing to say are empty. */
static ckpt_status note_others(ckpt_index *index, const ckpt_probe *p, const char *folder, ckpt_error *err) {
  const char *first = NULL;
  uint32_t n_others = 0;
  bool *is_named = calloc(p->n_entries + 1, sizeof *is_named);
  CKPT_TRY_ALLOC(is_named, err);
  for (uint32_t i = 0; i < ckpt_source_count(index->source); i++) {
    const char *name = name_in(index->source, i, folder);
    const ckpt_entry *entry =
        name == NULL ? NULL : bsearch(name, p->entries, p->n_entries, sizeof *p->entries, compare_with_entry);
    if (entry != NULL) is_named[entry - p->entries] = true;
  }
  for (size_t i = 0; i < p->n_entries; i++) {
    const ckpt_entry *entry = &p->entries[i];
    if (is_named[i] || entry->n_bytes == 0 || !entry->is_file || !has_suffix(entry->name, CKPT_DCP_SUFFIX)) continue;
    if (n_others++ == 0) first = entry->name;
  }
  free(is_named);
  if (n_others == 0) return CKPT_OK;
  char more[32] = "";
  if (n_others > 1) snprintf(more, sizeof more, " and %u more", n_others - 1);
  return ckpt_index_note(index, true, err,
                         "holds %s%s%.200s%s, which its metadata does not name (left by another save?)",
                         folder == NULL ? "" : folder, folder == NULL ? "" : "/", first, more);
}

/* The same of the two folders. */
static ckpt_status note_others_in(ckpt_index *index, const char *const *parts, ckpt_error *err) {
  for (uint32_t i = 0; i < N_PARTS; i++) {
    ckpt_probe below = {.is_folder = true};
    ckpt_entry *entries = NULL;
    CKPT_TRY(ckpt_list(&entries, &below.n_entries, ckpt_source_root(index->source), parts[i], err));
    below.entries = entries;
    const ckpt_status status = note_others(index, &below, parts[i], err);
    ckpt_list_free(entries, below.n_entries);
    CKPT_TRY(status);
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

static ckpt_status read_items(ckpt_index *index, ckpt_dcp_objects *objects, const ckpt_probe *p, bool stored_names,
                              ckpt_error *err) {
  ckpt_dcp_metadata metadata = {.last_rank = -1};
  ckpt_torch_arena_init(&metadata.arena, index);
  ckpt_status status;
  CKPT_TRY_GOTO(has_own(p) ? read_metadata(index, &metadata, p, NULL, err)
                           : read_parts(index, &metadata, parts_of(p), err));
  if (metadata.n_roots == 0) goto done; /* which is told */
  if (index->defects.report != NULL && metadata.n_roots == 1)
    index->defects.path = ckpt_source_path(index->source, metadata.roots[0].file);
  CKPT_TRY_GOTO(ckpt_dcp_metadata_sort(&metadata, err));
  CKPT_TRY_GOTO(ckpt_dcp_add_all(index, objects, &metadata, stored_names, err));
  CKPT_TRY_GOTO(describe_folder(index, &metadata, err));
  CKPT_TRY_GOTO(has_own(p) ? note_others(index, p, NULL, err) : note_others_in(index, parts_of(p), err));
done:
  ckpt_dcp_metadata_free(&metadata);
  return status;
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  ckpt_dcp_objects objects = {0};
  ckpt_error defect = {0};
  ckpt_status status =
      is_hf(p) ? ckpt_dcp_read_hf(index, p, &defect) : read_items(index, &objects, p, options->stored_names, &defect);
  bool is_whole = status == CKPT_OK;
  CKPT_TRY_GOTO(ckpt_defects_pass(&index->defects, status, &defect, err));
  CKPT_TRY_GOTO(ckpt_side_files_read(index, err));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  if (is_whole) CKPT_TRY_GOTO(ckpt_dcp_objects_composites(&objects, err));
  status = ckpt_index_finish(index, err);
done:
  ckpt_dcp_objects_free(&objects);
  return status;
}

const ckpt_format ckpt_format_dcp = {
    .name = CKPT_DCP_FORMAT,
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .aliases = true,
             .objects = true,
             .training_state = true,
             .side_files = true,
             .items = true,
             .ranks = true,
             .dtypes = CKPT_TORCH_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .options = ckpt_dcp_options,
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_dcp_normalize,
    .layout = ckpt_dcp_layout,
    .owns = ckpt_dcp_owns,
    .parts = ".metadata .distcp",
    .verify = ckpt_dcp_verify,
    .is_known = ckpt_torch_state_is_known,
};
