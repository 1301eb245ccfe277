/* zero.c - a folder of DeepSpeed's ZeRO: reading, the row.
 *
 *   latest                                                    the tag, which is the folder of the newest save:
 *   global_step3/mp_rank_00_model_states.pt                   stages 0 to 2: the model
 *                zero_pp_rank_R_mp_rank_00_model_states.pt    stage 3: one for each data-parallel rank R
 *                [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt    what rank R has of masters and optimizer states
 *
 * Either folder is read; side files (config.json, a tokenizer) are those of the folder that is named. Files of tensor
 * and pipeline parallel ranks and of experts are refused. docs/formats/zero.md has the layout. */
#include "formats/zero.h"
#include "formats/zero_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/arch.h"
#include "libckpt/codec/side_file.h"
#include "libckpt/error.h"

typedef unsigned long long ull;

/* ---- names of files ---------------------------------------------------------------------------------------------- */

typedef enum file_kind {
  FILE_OTHER,
  FILE_MODEL,      /* mp_rank_00_model_states.pt */
  FILE_RANK_MODEL, /* zero_pp_rank_R_mp_rank_00_model_states.pt */
  FILE_OPTIMIZER,  /* zero_pp_rank_R_mp_rank_00_optim_states.pt, after bf16_ or fp16_ or nothing */
  FILE_UNREAD      /* of tensor or pipeline parallel ranks, or of experts */
} file_kind;

/* Passes `prefix` by; false where text does not begin so. */
static bool pass(const char **text, const char *prefix) {
  size_t n = strlen(prefix);
  if (strncmp(*text, prefix, n) != 0) return false;
  *text += n;
  return true;
}

static bool pass_number(const char **text, uint32_t *number) {
  size_t n = strspn(*text, "0123456789");
  if (n == 0 || n > 9) return false;
  *number = (uint32_t)strtoul(*text, NULL, 10);
  *text += n;
  return true;
}

static file_kind kind_of(const char *name, uint32_t *rank) {
  const char *text = name;
  uint32_t model_rank;
  *rank = 0;
  size_t n = strlen(name), n_suffix = sizeof CKPT_ZERO_SUFFIX - 1;
  if (n <= n_suffix || strcmp(name + n - n_suffix, CKPT_ZERO_SUFFIX) != 0) return FILE_OTHER;
  if (!pass(&text, "bf16_")) (void)pass(&text, "fp16_");
  bool is_rank = pass(&text, "zero_pp_rank_");
  if (is_rank && (!pass_number(&text, rank) || !pass(&text, "_"))) return FILE_OTHER;
  if (!pass(&text, "mp_rank_"))
    return strstr(name, "mp_rank_") != NULL || strncmp(name, "layer_", 6) == 0 ? FILE_UNREAD : FILE_OTHER;
  if (!pass_number(&text, &model_rank)) return FILE_OTHER;
  if (model_rank != 0) return FILE_UNREAD;
  if (strcmp(text, "_model_states.pt") == 0) return is_rank ? FILE_RANK_MODEL : FILE_MODEL;
  bool is_optimizer = strcmp(text, "_optim_states.pt") == 0 || strcmp(text, "optim_states.pt") == 0;
  return is_rank && is_optimizer ? FILE_OPTIMIZER : FILE_OTHER;
}

bool ckpt_zero_has_models(const ckpt_entry *entries, size_t n_entries) {
  uint32_t rank;
  for (size_t i = 0; i < n_entries; i++) {
    file_kind kind = entries[i].is_folder ? FILE_OTHER : kind_of(entries[i].name, &rank);
    if (kind == FILE_MODEL || kind == FILE_RANK_MODEL) return true;
  }
  return false;
}

static bool has_states(const ckpt_entry *entries, size_t n_entries) {
  uint32_t rank;
  for (size_t i = 0; i < n_entries; i++)
    if (!entries[i].is_folder && kind_of(entries[i].name, &rank) != FILE_OTHER) return true;
  return false;
}

static bool is_step(const ckpt_entry *entry) {
  return entry->is_folder && strncmp(entry->name, "global_step", 11) == 0;
}

/* Whether a folder below is one that is refused. */
static bool is_refused(const ckpt_probe *p, const char *folder) {
  ckpt_entry *entries = NULL;
  size_t n = 0;
  uint32_t rank;
  bool is_unread = ckpt_list(&entries, &n, p->path, folder, NULL) != CKPT_OK;
  for (size_t i = 0; i < n && !is_unread; i++) is_unread = kind_of(entries[i].name, &rank) == FILE_UNREAD;
  ckpt_list_free(entries, n);
  return is_unread;
}

/* The Trainer of Hugging Face saves a model beside it, which is read where this cannot be. */
static bool has_other_weights(const ckpt_probe *p) {
  for (size_t i = 0; i < p->n_entries; i++) {
    const char *name = p->entries[i].name, *dot = strrchr(name, '.');
    bool is_model = dot != NULL && (strcmp(dot, ".safetensors") == 0 || strcmp(dot, ".bin") == 0);
    if (!p->entries[i].is_folder && is_model && strstr(name, "model") != NULL) return true;
  }
  return false;
}

static bool has_latest(const ckpt_probe *p) {
  bool has_tag = false, has_folder = false;
  for (size_t i = 0; i < p->n_entries; i++) {
    has_tag = has_tag || (!p->entries[i].is_folder && strcmp(p->entries[i].name, CKPT_ZERO_LATEST) == 0);
    has_folder = has_folder || is_step(&p->entries[i]);
  }
  if (!has_tag || !has_folder || !has_other_weights(p)) return has_tag && has_folder;
  for (size_t i = 0; i < p->n_entries; i++)
    if (is_step(&p->entries[i]) && is_refused(p, p->entries[i].name)) return false;
  return true;
}

static bool probe(const ckpt_probe *p) {
  return p->is_folder && (has_latest(p) || has_states(p->entries, p->n_entries));
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* The tag that `latest` or its like says, as a folder's name. */
static ckpt_status read_tag(ckpt_zero *zero, const char *latest, ckpt_error *err) {
  enum { MAX_TAG_BYTES = 255 };
  char tag[MAX_TAG_BYTES + 1] = "";
  uint32_t file;
  uint64_t n;
  CKPT_TRY(ckpt_source_add(zero->index->source, latest, &file, &n, err));
  const char *path = ckpt_source_path(zero->index->source, file);
  if (n > MAX_TAG_BYTES) return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "no tag (%llu bytes)", (ull)n);
  CKPT_TRY(ckpt_source_read(zero->index->source, file, 0, tag, (size_t)n, err));
  while (n > 0 && strchr(" \t\r\n", tag[n - 1]) != NULL) tag[--n] = '\0';
  if (n == 0 || strlen(tag) != n || strchr(tag, '/') != NULL || tag[0] == '.')
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "no tag, which is the name of a folder beside it");
  CKPT_TRY_ALLOC(zero->folder = ckpt_arena_copy(&zero->index->arena, tag), err);
  return CKPT_OK;
}

ckpt_status ckpt_zero_missing(const ckpt_zero *zero, const ckpt_zero_files *files, uint32_t rank, uint64_t n_wanted,
                              ckpt_error *err) {
  static const char before[] = "zero_pp_rank_";
  const char *found = strstr(files->like, before), *number = found == NULL ? files->like : found + sizeof before - 1;
  return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                   "%.*s%u%s is missing: %u of the files of %llu rank%s are there (copy it, or save again)",
                   (int)(number - files->like), files->like, rank, number + strspn(number, "0123456789"), files->n,
                   (ull)n_wanted, ckpt_plural(n_wanted));
}

/* The files of one kind in order of ranks, which are those from 0 on. */
static ckpt_status list_files(ckpt_zero *zero, ckpt_zero_files *files, const ckpt_entry *entries, size_t n_entries,
                              file_kind kind, ckpt_error *err) {
  uint32_t n = 0, n_ranks = 0, n_world = 0, rank;
  for (size_t i = 0; i < n_entries; i++) n += !entries[i].is_folder && kind_of(entries[i].name, &rank) == kind;
  CKPT_TRY_ALLOC(files->paths = ckpt_arena_array(&zero->index->arena, (size_t)n + 1, sizeof *files->paths), err);
  const char *slash = zero->folder[0] == '\0' ? "" : "/";
  for (size_t i = 0; i < n_entries; i++) {
    if (entries[i].is_folder || kind_of(entries[i].name, &rank) != kind) continue;
    if (files->like == NULL) files->like = ckpt_arena_copy(&zero->index->arena, entries[i].name);
    CKPT_TRY_ALLOC(files->like, err);
    if (rank >= n_world) n_world = rank + 1;
    if (rank >= n) continue;
    if (files->paths[rank] != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL, "two files of rank %u: %s and %s", rank,
                       files->paths[rank], entries[i].name);
    files->paths[rank] = ckpt_arena_printf(&zero->index->arena, "%s%s%s", zero->folder, slash, entries[i].name);
    CKPT_TRY_ALLOC(files->paths[rank], err);
    n_ranks++;
  }
  for (rank = 0; rank < n && files->paths[rank] != NULL; rank++) continue;
  files->n = n;
  return n_ranks == n ? CKPT_OK : ckpt_zero_missing(zero, files, rank, n_world, err);
}

static ckpt_status refuse_unread(const ckpt_zero *zero, const ckpt_entry *entries, size_t n_entries, ckpt_error *err) {
  uint32_t rank;
  for (size_t i = 0; i < n_entries; i++)
    if (kind_of(entries[i].name, &rank) == FILE_UNREAD)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, NULL,
                       "%s is of tensor or pipeline parallel ranks, or of experts; this version cannot read it yet",
                       entries[i].name);
  return CKPT_OK;
}

static ckpt_status list_all(ckpt_zero *zero, ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_zero_files models = {0};
  ckpt_status status = ckpt_list(&entries, &n, ckpt_source_root(zero->index->source), zero->folder, err);
  if (status == CKPT_ENOTFOUND) {
    if (err != NULL) *err = (ckpt_error){0};
    status = ckpt_fail(err, status, zero->index->path, NULL,
                       "the tag is %s, and there is no such folder (copy it, or name the folder of another save)",
                       zero->folder);
  }
  CKPT_TRY_GOTO(status);
  CKPT_TRY_GOTO(refuse_unread(zero, entries, n, err));
  CKPT_TRY_GOTO(list_files(zero, &models, entries, n, FILE_MODEL, err));
  CKPT_TRY_GOTO(list_files(zero, &zero->models, entries, n, FILE_RANK_MODEL, err));
  CKPT_TRY_GOTO(list_files(zero, &zero->optimizers, entries, n, FILE_OPTIMIZER, err));
  if (zero->is_universal && models.n != 0) zero->rank_models = zero->models;
  if (zero->models.n == 0 || zero->rank_models.n != 0) zero->models = models; /* one, of rank 0 */
  if (zero->models.n == 0)
    status = ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                       "%s%sno model_states.pt: the weights' names and shapes are in it (copy it, or save again)",
                       zero->folder, zero->folder[0] == '\0' ? "" : ": ");
done:
  ckpt_list_free(entries, n);
  return status;
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

/* In stage 3 every rank has a model file, else there is one; files of more ranks than there were are left over. */
static ckpt_status check_files(ckpt_zero *zero, ckpt_error *err) {
  uint32_t n_models = zero->stage == 3 ? zero->world : 1;
  if (zero->models.n < n_models) return ckpt_zero_missing(zero, &zero->models, zero->models.n, n_models, err);
  uint32_t n_left = zero->models.n - n_models + zero->optimizers.n - zero->world;
  const char *first =
      zero->optimizers.n > zero->world ? zero->optimizers.paths[zero->world] : zero->models.paths[n_models];
  zero->models.n = n_models;
  if (n_left == 0) return CKPT_OK;
  return ckpt_index_note(zero->index, true, err,
                         "%u file%s of ranks that the save had not, first %.200s (left by "
                         "another save of more ranks?)",
                         n_left, ckpt_plural(n_left), first);
}

/* Of a universal checkpoint for engines of any stage: files of ranks that say what the first model file says. */
static ckpt_status check_rank_models(ckpt_zero *zero, const ckpt_zero_file *first, ckpt_error *err) {
  for (uint32_t rank = 0; rank < zero->rank_models.n; rank++) {
    ckpt_zero_file file = {0};
    ckpt_status status = ckpt_zero_open(&file, zero, zero->rank_models.paths[rank], err);
    if (status == CKPT_OK) status = ckpt_zero_same_step(&file, first, err);
    ckpt_zero_close(&file);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

static ckpt_status read_all(ckpt_zero *zero, ckpt_zero_file *file, ckpt_error *err) {
  CKPT_TRY(list_all(zero, err));
  CKPT_TRY(ckpt_zero_open(file, zero, zero->models.paths[0], err));
  CKPT_TRY(ckpt_zero_read_params(zero, file, err));
  zero->world = 1;
  if (zero->is_universal) {
    CKPT_TRY(ckpt_zero_read_universal(zero, err));
    CKPT_TRY(check_rank_models(zero, file, err));
  } else if (zero->optimizers.n != 0) {
    CKPT_TRY(ckpt_zero_read_ranks(zero, err));
    CKPT_TRY(check_files(zero, err));
  } else if (zero->n_shapes != 0) {
    return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                     "no optim_states.pt beside the model file: the ranks' partitions are in them (copy them)");
  }
  CKPT_TRY(ckpt_zero_read_frozen(zero, file, err));
  CKPT_TRY(ckpt_zero_sort_pieces(zero, err));
  const ckpt_object *root = file->graph.root;
  CKPT_TRY(ckpt_zero_add_model(zero, file, err));
  CKPT_TRY(ckpt_zero_add_states(zero, err));
  CKPT_TRY(ckpt_zero_set_objects(zero, root, err));
  return ckpt_torch_globals_note(&zero->globals, zero->index, err);
}

ckpt_status ckpt_zero_read(ckpt_index *index, const char *latest, bool is_universal, const ckpt_open_options *options,
                           ckpt_error *err) {
  ckpt_zero_file file = {0};
  ckpt_zero *zero = calloc(1, sizeof *zero);
  CKPT_TRY_ALLOC(zero, err);
  zero->index = index;
  zero->folder = "";
  zero->is_universal = is_universal;
  ckpt_status status;
  if (latest != NULL) CKPT_TRY_GOTO(read_tag(zero, latest, err));
  CKPT_TRY_GOTO(read_all(zero, &file, err));
  CKPT_TRY_GOTO(ckpt_side_files_read(index, err));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  status = ckpt_index_finish(index, err);
done:
  ckpt_zero_close(&file);
  free(zero->params);
  free(zero->by_name);
  free(zero->flats);
  free(zero->pieces);
  free(zero->extents);
  free(zero);
  return status;
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  bool is_tag = has_states(p->entries, p->n_entries);
  return ckpt_zero_read(index, is_tag ? NULL : CKPT_ZERO_LATEST, false, options, err);
}

const ckpt_format ckpt_format_zero = {
    .name = "zero",
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .aliases = true,
             .objects = true,
             .training_state = true,
             .side_files = true,
             .ranks = true,
             .masters = true,
             .stages = CKPT_ZERO_STAGES,
             .dtypes = CKPT_TORCH_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_zero_normalize,
    .layout = ckpt_zero_layout,
    .owns = ckpt_zero_owns,
};
