/* hf.c - a Hugging Face folder: safetensors weights with the files that belong to them.
 *
 *   model.safetensors                      the weights, or
 *   model-00001-of-00003.safetensors ...   shards, and
 *   model.safetensors.index.json           {"metadata":{...},"weight_map":{"<tensor>":"<shard>",...}}
 *   pytorch_model.bin, or shards with pytorch_model.bin.index.json: where no safetensors file is
 *   config.json, tokenizer.json, ...       side files, carried as bytes
 *
 * The index file comes before a single file; without either a complete numbered set, or the only safetensors file. */
#include "formats/hf.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/arch.h"
#include "libckpt/codec/safetensors.h"
#include "libckpt/codec/side_file.h"
#include "libckpt/codec/torch_file.h"
#include "libckpt/error.h"
#include "libckpt/text.h"

#define SUFFIX ".safetensors"

/* Whether this is the text of an index file of safetensors shards: its first bytes name both. */
static bool is_index_text(const uint8_t *head, size_t n_head) {
  size_t i = 0;
  while (i < n_head && (head[i] == ' ' || head[i] == '\n' || head[i] == '\r' || head[i] == '\t')) i++;
  return i < n_head && head[i] == '{' && memmem(head, n_head, "\"weight_map\"", 12) != NULL &&
         (memmem(head, n_head, SUFFIX "\"", sizeof SUFFIX) != NULL || memmem(head, n_head, ".bin\"", 5) != NULL);
}

/* A link that cannot be followed counts too: opening it then says which and why, and no other file stands in for it. */
static bool may_be_file(const ckpt_entry *entry) { return !entry->is_folder; }

static bool has_safetensors(const ckpt_probe *p) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (may_be_file(&p->entries[i]) &&
        (ckpt_text_ends_in(p->entries[i].name, strlen(p->entries[i].name), SUFFIX) ||
         ckpt_text_ends_in(p->entries[i].name, strlen(p->entries[i].name), CKPT_HF_INDEX_SUFFIX)))
      return true;
  return false;
}

static bool has_file(const ckpt_probe *p, const char *name) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (may_be_file(&p->entries[i]) && strcmp(p->entries[i].name, name) == 0) return true;
  return false;
}

static bool probe(const ckpt_probe *p) {
  if (!p->is_folder) return is_index_text(p->head, p->n_head);
  return has_safetensors(p) || has_file(p, CKPT_HF_TORCH) || has_file(p, CKPT_HF_TORCH_INDEX);
}

ckpt_status ckpt_hf_read_weights_file(ckpt_index *index, uint32_t file, ckpt_error *err) {
  uint8_t head[1024]; /* more than an archive's first name */
  uint64_t size = ckpt_source_size(index->source, file);
  size_t n_head = size < sizeof head ? (size_t)size : sizeof head;
  CKPT_TRY(ckpt_source_read(index->source, file, 0, head, n_head, err));
  if (!ckpt_torch_probe(head, n_head)) return ckpt_safetensors_read(index, file, err);
  ckpt_torch_graph graph = {.first_storage = index->n_tensors}; /* storages have a tensor each */
  ckpt_arena nodes;
  ckpt_torch_arena_init(&nodes, index);
  ckpt_status status = ckpt_torch_file_read(&graph, index, file, false, &nodes, err);
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&nodes);
  return ckpt_fail_at(status, err, ckpt_source_path(index->source, file), NULL);
}

static ckpt_status add_file(ckpt_index *index, const char *name, ckpt_error *err) {
  uint32_t file;
  uint64_t size;
  CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  return ckpt_hf_read_weights_file(index, file, err);
}

static ckpt_status read_single(ckpt_index *index, const char *name, ckpt_error *err) {
  CKPT_TRY(add_file(index, name, err));
  return ckpt_safetensors_merge(index, err);
}

/* ---- which file holds the weights ---- */

/* The only file with this suffix, NULL if there are none or several. */
static const char *only_file(const ckpt_probe *p, const char *suffix) {
  const char *found = NULL;
  for (size_t i = 0; i < p->n_entries; i++) {
    if (!may_be_file(&p->entries[i]) || !ckpt_text_ends_in(p->entries[i].name, strlen(p->entries[i].name), suffix))
      continue;
    if (found != NULL) return NULL;
    found = p->entries[i].name;
  }
  return found;
}

/* A shard that is broken does not hide what is wrong with the others. */
static ckpt_status add_shard(ckpt_index *index, const char *name, ckpt_error *err) {
  ckpt_error defect = {0};
  return ckpt_defects_pass(&index->defects, add_file(index, name, &defect), &defect, err);
}

/* Numbers of a set between *n, the last one seen, and the next, which becomes it: those files are not there. */
static ckpt_status pass_absent(ckpt_index *index, unsigned *n, unsigned next, unsigned total, const char *first,
                               size_t n_first, ckpt_error *err) {
  unsigned from = *n + 1;
  ckpt_error defect = {0};
  *n = next;
  if (next == from) return CKPT_OK;
  ckpt_status status = CKPT_ENOTFOUND;
  if (next <= from + 1)
    ckpt_fail(&defect, status, NULL, NULL, "file %u of the %u called %.*s... is missing (download it)", from, total,
              (int)n_first, first);
  else
    ckpt_fail(&defect, status, NULL, NULL, "files %u to %u of the %u called %.*s... are missing (download them)", from,
              next - 1, total, (int)n_first, first);
  return ckpt_defects_pass(&index->defects, status, &defect, err);
}

/* Reads the files of a complete numbered set, if the folder holds exactly one. Entries are sorted, so numbers of equal
 * width come in order. */
static ckpt_status read_numbered(ckpt_index *index, const ckpt_probe *p, bool *is_found, ckpt_error *err) {
  const char *first = NULL;
  size_t n_first = 0, n_prefix;
  unsigned number, total, n_wanted = 0, n = 0;
  *is_found = false;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    if (!may_be_file(&p->entries[i]) || !ckpt_safetensors_numbered(name, &n_prefix, &number, &total)) continue;
    if (first == NULL) {
      first = name;
      n_first = n_prefix;
      n_wanted = total;
    }
    if (n_prefix != n_first || memcmp(name, first, n_prefix) != 0 || total != n_wanted) return CKPT_OK;
    CKPT_TRY(pass_absent(index, &n, number, n_wanted, first, n_first, err));
  }
  if (first == NULL) return CKPT_OK;
  CKPT_TRY(pass_absent(index, &n, n_wanted + 1, n_wanted, first, n_first, err));
  for (size_t i = 0; i < p->n_entries; i++)
    if (may_be_file(&p->entries[i]) && ckpt_safetensors_numbered(p->entries[i].name, &n_prefix, &number, &total))
      CKPT_TRY(add_shard(index, p->entries[i].name, err));
  *is_found = true;
  CKPT_TRY(ckpt_safetensors_merge(index, err));
  return ckpt_index_note(index, true, err, "no %.*s" CKPT_HF_INDEX_SUFFIX ", read as the set of %u files %.*s...",
                         (int)n_first - 1, first, n_wanted, (int)n_first, first);
}

static ckpt_status refuse_several(const ckpt_probe *p, ckpt_error *err) {
  char list[512] = "";
  size_t n_files = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    if (!may_be_file(&p->entries[i]) || !ckpt_text_ends_in(p->entries[i].name, strlen(p->entries[i].name), SUFFIX))
      continue;
    n_files++;
    ckpt_text_list_add(list, sizeof list, p->entries[i].name);
  }
  return ckpt_fail(err, CKPT_EUNSUPPORTED, p->path, NULL,
                   "holds %zu safetensors files that are no set, and no model.safetensors; name one of them:%s",
                   n_files, list);
}

/* Both forms at once are two models for two readers. */
static ckpt_status note_both(ckpt_index *index, const ckpt_probe *p, const char *usual, const char *usual_index,
                             ckpt_error *err) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (p->entries[i].is_file && strcmp(p->entries[i].name, usual) == 0)
      return ckpt_index_note(index, true, err,
                             "holds both %s and %s: the shards are read here, transformers loads %s (remove one)",
                             usual, usual_index, usual);
  return CKPT_OK;
}

static ckpt_status read_weights(ckpt_index *index, const ckpt_probe *p, const char *name, ckpt_error *err) {
  static const char *const usual = "model.safetensors", *const usual_index = "model" CKPT_HF_INDEX_SUFFIX;
  if (name != NULL) return ckpt_hf_read_shards(index, name, err);
  if (has_file(p, usual_index)) {
    CKPT_TRY(ckpt_hf_read_shards(index, usual_index, err));
    return note_both(index, p, usual, usual_index, err);
  }
  if (has_file(p, usual)) return read_single(index, usual, err);
  if (!has_safetensors(p)) {
    if (!has_file(p, CKPT_HF_TORCH_INDEX)) return read_single(index, CKPT_HF_TORCH, err);
    CKPT_TRY(ckpt_hf_read_shards(index, CKPT_HF_TORCH_INDEX, err));
    return note_both(index, p, CKPT_HF_TORCH, CKPT_HF_TORCH_INDEX, err);
  }
  const char *only = only_file(p, CKPT_HF_INDEX_SUFFIX);
  if (only != NULL) return ckpt_hf_read_shards(index, only, err);
  bool is_found;
  CKPT_TRY(read_numbered(index, p, &is_found, err));
  if (is_found) return CKPT_OK;
  only = only_file(p, SUFFIX);
  return only != NULL ? read_single(index, only, err) : refuse_several(p, err);
}

/* Shards that an index which is broken does not lead to: what is wrong with them is told too. */
static ckpt_status read_rest(ckpt_index *index, const ckpt_probe *p, ckpt_error *err) {
  const uint32_t n_read = ckpt_source_count(index->source);
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    uint32_t file;
    uint64_t size;
    ckpt_error defect = {0};
    if (!may_be_file(&p->entries[i]) || !ckpt_text_ends_in(name, strlen(name), SUFFIX)) continue;
    ckpt_status status = ckpt_source_add(index->source, name, &file, &size, &defect);
    if (status == CKPT_OK && file < n_read) continue;
    if (status == CKPT_OK) status = ckpt_hf_read_weights_file(index, file, &defect);
    CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  }
  return ckpt_safetensors_merge(index, err);
}

/* ---- the row ---- */

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  if (ckpt_source_root(index->source)[0] == '\0')
    return ckpt_fail(err, CKPT_EUNSUPPORTED, p->path, NULL, "an index file in memory has no shards beside it");
  ckpt_error weights = {0}, config = {0};
  ckpt_status status = read_weights(index, p, name, &weights);
  CKPT_TRY(ckpt_defects_pass(&index->defects, status, &weights, err));
  if (status != CKPT_OK && p->is_folder) CKPT_TRY(read_rest(index, p, err));
  CKPT_TRY(ckpt_side_files_read(index, err));
  status = ckpt_index_canonical_names(index, options->stored_names, options->like, &config);
  CKPT_TRY(ckpt_defects_pass(&index->defects, status, &config, err));
  return ckpt_index_finish(index, err);
}

const ckpt_format ckpt_format_hf = {
    .name = "hf",
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .side_files = true,
             .dtypes = CKPT_SAFETENSORS_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_hf_normalize,
    .layout = ckpt_hf_layout,
    .owns = ckpt_hf_owns,
};
