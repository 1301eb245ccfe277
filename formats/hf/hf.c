/* hf.c - a Hugging Face folder: safetensors weights with the files that belong to them.
 *
 *   model.safetensors                      the weights, or
 *   model-00001-of-00003.safetensors ...   shards, and
 *   model.safetensors.index.json           {"metadata":{...},"weight_map":{"<tensor>":"<shard>",...}}
 *   pytorch_model.bin, or shards with pytorch_model.bin.index.json: where no safetensors file is
 *   adapter_model.bin                      of PEFT, with adapter_config.json: where there is none of these
 *   pytorch_model_fsdp.bin                 what accelerate gathers of FSDP: where there is none of these
 *   config.json, tokenizer.json, ...       side files, carried as bytes
 *
 * The index file comes before a single file; without either a complete numbered set, or the only safetensors file. */
#include "formats/hf/hf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"

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

static bool has_adapter(const ckpt_probe *p) {
  return has_file(p, CKPT_HF_ADAPTER) && has_file(p, "adapter_config.json");
}

static bool probe(const ckpt_probe *p) {
  if (!p->is_folder) return is_index_text(p->head, p->n_head);
  return has_safetensors(p) || has_file(p, CKPT_HF_TORCH) || has_file(p, CKPT_HF_TORCH_INDEX) || has_adapter(p) ||
         has_file(p, CKPT_HF_FSDP);
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
  ckpt_error why = {0};
  ckpt_status status = ckpt_torch_file_read(&graph, index, file, false, &nodes, &why);
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&nodes);
  const char *path = ckpt_source_path(index->source, file);
  if (status == CKPT_EFORMAT && ckpt_text_ends_in(path, strlen(path), SUFFIX))
    return ckpt_safetensors_read(index, file, err); /* says what is wrong with it as that */
  if (status != CKPT_OK && err != NULL) *err = why;
  return ckpt_fail_at(status, err, path, NULL);
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

/* One file of a numbered set. */
typedef struct numbered {
  const char *name;
  unsigned number;
} numbered;

static int compare_numbered(const void *a, const void *b) {
  const numbered *x = a, *y = b;
  return x->number != y->number ? (x->number < y->number ? -1 : 1) : strcmp(x->name, y->name);
}

/* Files of a set from number `from` up to, not with, `end`: they are not there. */
static ckpt_status pass_absent(ckpt_index *index, unsigned from, unsigned end, unsigned total, const char *first,
                               size_t n_prefix, ckpt_error *err) {
  ckpt_error defect = {0};
  ckpt_status status = CKPT_ENOTFOUND;
  if (from == end) return CKPT_OK;
  if (end == from + 1)
    ckpt_fail(&defect, status, NULL, NULL, "file %u of the %u called %.*s... is missing (download it)", from, total,
              (int)n_prefix, first);
  else
    ckpt_fail(&defect, status, NULL, NULL, "files %u to %u of the %u called %.*s... are missing (download them)", from,
              end - 1, total, (int)n_prefix, first);
  return ckpt_defects_pass(&index->defects, status, &defect, err);
}

/* The numbered files of a folder in the order of their numbers, however these are printed. How many; none where they
 * are not of one set, which is numbered from 1 or from 0. */
static size_t find_numbered(numbered *files, const ckpt_probe *p, size_t *n_prefix, unsigned *total) {
  size_t n = 0, n_own;
  unsigned number, n_wanted;
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name;
    if (!may_be_file(&p->entries[i]) || !ckpt_safetensors_numbered(name, &n_own, &number, &n_wanted)) continue;
    if (n == 0) *n_prefix = n_own, *total = n_wanted;
    if (n_own != *n_prefix || n_wanted != *total || (n != 0 && memcmp(name, files[0].name, n_own) != 0)) return 0;
    files[n++] = (numbered){name, number};
  }
  if (n != 0) qsort(files, n, sizeof *files, compare_numbered);
  for (size_t i = 1; i < n; i++)
    if (files[i].number == files[i - 1].number) return 0;
  return n != 0 && files[n - 1].number < *total + (files[0].number != 0) ? n : 0;
}

/* Reads the files of a complete numbered set, if the folder holds exactly one. */
static ckpt_status read_numbered(ckpt_index *index, const ckpt_probe *p, bool *is_found, ckpt_error *err) {
  size_t n_prefix = 0;
  unsigned total = 0;
  numbered *files = calloc(p->n_entries + 1, sizeof *files);
  CKPT_TRY_ALLOC(files, err);
  const size_t n = find_numbered(files, p, &n_prefix, &total);
  ckpt_status status = CKPT_OK;
  *is_found = n != 0;
  if (n == 0) goto done;
  const char *first = files[0].name;
  unsigned from = files[0].number != 0, end = from + total;
  for (size_t i = 0; i < n; i++) {
    CKPT_TRY_GOTO(pass_absent(index, from, files[i].number, total, first, n_prefix, err));
    from = files[i].number + 1;
  }
  CKPT_TRY_GOTO(pass_absent(index, from, end, total, first, n_prefix, err));
  for (size_t i = 0; i < n; i++) CKPT_TRY_GOTO(add_shard(index, files[i].name, err));
  CKPT_TRY_GOTO(ckpt_safetensors_merge(index, err));
  CKPT_TRY_GOTO(ckpt_index_note(index, true, err,
                                "no %.*s" CKPT_HF_INDEX_SUFFIX ", read as the set of %u file%s %.*s...",
                                (int)n_prefix - 1, first, total, ckpt_plural(total), (int)n_prefix, first));
done:
  free(files);
  return status;
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

/* ---- what config.json names ---- */

/* The text of config.json, NULL without, through a source of its own: the index's has files of weights so far. */
static ckpt_status load_config(ckpt_index *index, char **text, size_t *n_bytes, ckpt_error *err) {
  ckpt_source *beside = NULL;
  uint32_t file;
  uint64_t size = 0;
  ckpt_error ignored = {0}; /* told where side files are read */
  ckpt_status status = ckpt_source_open(&beside, ckpt_source_root(index->source), &ignored);
  if (status == CKPT_OK) status = ckpt_source_add(beside, "config.json", &file, &size, &ignored);
  *text = NULL;
  *n_bytes = (size_t)size;
  if (status == CKPT_OK && size <= CKPT_CONFIG_MAX_BYTES) {
    *text = calloc(*n_bytes + 1, 1);
    if (*text != NULL)
      status = ckpt_source_read(beside, file, 0, *text, *n_bytes, &ignored);
    else
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_source_free(beside);
  if (status == CKPT_OK || status == CKPT_ENOMEM) return status;
  free(*text);
  *text = NULL;
  return CKPT_OK;
}

/* Finds the file of weights that config.json names, as transformers 5 does: *named is the index's; NULL without. A
 * missing file, or one of another kind, is a problem; then the folder's own files are read. */
static ckpt_status find_named(ckpt_index *index, const ckpt_probe *p, const char **named, ckpt_error *err) {
  ckpt_config *config = NULL;
  size_t n_bytes;
  char *text, shown[160];
  ckpt_error ignored = {0};
  *named = NULL;
  if (!p->is_folder || !has_file(p, "config.json")) return CKPT_OK;
  CKPT_TRY(load_config(index, &text, &n_bytes, err));
  if (text == NULL || !ckpt_config_may_have(text, CKPT_CONFIG_WEIGHTS_KEY)) {
    free(text);
    return CKPT_OK;
  }
  ckpt_status status = ckpt_config_parse(&config, text, n_bytes, NULL, &ignored);
  if (status == CKPT_ENOMEM && err != NULL) *err = ignored;
  const char *name = NULL;
  if (status == CKPT_OK && ckpt_config_has(config, CKPT_CONFIG_WEIGHTS_KEY)) {
    const bool is_text = ckpt_config_text(config, CKPT_CONFIG_WEIGHTS_KEY, &name);
    const bool is_kind = is_text && (ckpt_text_ends(name, SUFFIX) || ckpt_text_ends(name, CKPT_HF_INDEX_SUFFIX));
    ckpt_config_show(config, CKPT_CONFIG_WEIGHTS_KEY, shown, sizeof shown);
    if (is_kind && has_file(p, name))
      *named = ckpt_arena_copy(&index->arena, name);
    else
      status = ckpt_index_note(index, true, err,
                               "config.json says that the weights are in %s (" CKPT_CONFIG_WEIGHTS_KEY
                               "), which is no file "
                               "of safetensors here: transformers does not load what is read instead",
                               shown);
    if (is_kind && has_file(p, name) && *named == NULL)
      status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  ckpt_config_free(config);
  free(text);
  return status == CKPT_OK || status == CKPT_ENOMEM ? status : CKPT_OK;
}

static ckpt_status read_weights(ckpt_index *index, const ckpt_probe *p, const char *name, ckpt_error *err) {
  static const char *const usual = "model.safetensors", *const usual_index = "model" CKPT_HF_INDEX_SUFFIX;
  const char *named;
  if (name != NULL) return ckpt_hf_read_shards(index, name, err);
  CKPT_TRY(find_named(index, p, &named, err));
  if (named != NULL)
    return ckpt_text_ends(named, SUFFIX) ? read_single(index, named, err) : ckpt_hf_read_shards(index, named, err);
  if (has_file(p, usual_index)) {
    CKPT_TRY(ckpt_hf_read_shards(index, usual_index, err));
    return note_both(index, p, usual, usual_index, err);
  }
  if (has_file(p, usual)) return read_single(index, usual, err);
  if (!has_safetensors(p)) {
    if (!has_file(p, CKPT_HF_TORCH_INDEX)) {
      const char *other = has_adapter(p) ? CKPT_HF_ADAPTER : CKPT_HF_FSDP;
      return read_single(index, has_file(p, CKPT_HF_TORCH) ? CKPT_HF_TORCH : other, err);
    }
    CKPT_TRY(ckpt_hf_read_shards(index, CKPT_HF_TORCH_INDEX, err));
    return note_both(index, p, CKPT_HF_TORCH, CKPT_HF_TORCH_INDEX, err);
  }
  const char *only = only_file(p, CKPT_HF_INDEX_SUFFIX);
  if (only != NULL) return ckpt_hf_read_shards(index, only, err);
  bool is_found = false;
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
  CKPT_TRY(ckpt_hf_read_optimizer(index, err));
  return ckpt_index_finish(index, err);
}

const ckpt_format ckpt_format_hf = {
    .name = "hf",
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .side_files = true,
             .cut_by_size = true,
             .dtypes = CKPT_SAFETENSORS_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_hf_normalize,
    .layout = ckpt_hf_layout,
    .owns = ckpt_hf_owns,
};
