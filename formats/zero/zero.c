/* zero.c - a folder of DeepSpeed's ZeRO: reading, the row.
 *
 *   latest                                                    the tag, which is the folder of the newest save:
 *   global_step3/mp_rank_00_model_states.pt                   stages 0 to 2: the model
 *                zero_pp_rank_R_mp_rank_00_model_states.pt    stage 3: one for each data-parallel rank R
 *                [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt    what rank R has of masters and optimizer states
 *
 * mp_rank counts model-parallel ranks, which we call shards. Either folder is read; side files (config.json, a
 * tokenizer) are those of the folder that is named. Experts have files of their own (formats/zero/read/experts.c), as
 * layers of pipelines have (formats/zero/read/layers.c). docs/formats/zero.md has the layout. */
#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/state/steps.h"
#include "libckpt/index/arch.h"

typedef unsigned long long ull;

/* ---- probing ----------------------------------------------------------------------------------------------------- */

/* Whether a folder below is a save, whatever its tag; *is_refused where it is one that is not read. */
static bool is_save(const ckpt_probe *p, const ckpt_entry *entry, bool *is_refused) {
  ckpt_entry *entries = NULL;
  size_t n = 0;
  *is_refused = false;
  if (!entry->is_folder) return false;
  const bool is_listed = ckpt_list(&entries, &n, p->path, entry->name, NULL) == CKPT_OK;
  const bool is = strncmp(entry->name, "global_step", 11) == 0 || (is_listed && ckpt_zero_has_states(entries, n));
  *is_refused = is && (!is_listed || ckpt_zero_has_unread(entries, n));
  ckpt_list_free(entries, n);
  return is;
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
  bool has_tag = false, has_folder = false, has_refused = false;
  for (size_t i = 0; i < p->n_entries && !has_tag; i++)
    has_tag = !p->entries[i].is_folder && strcmp(p->entries[i].name, CKPT_ZERO_LATEST) == 0;
  for (size_t i = 0; i < p->n_entries && has_tag; i++) {
    bool is_refused;
    has_folder = is_save(p, &p->entries[i], &is_refused) || has_folder;
    has_refused = has_refused || is_refused;
  }
  return has_folder && !(has_refused && has_other_weights(p));
}

static bool probe(const ckpt_probe *p) {
  return p->is_folder && (has_latest(p) || ckpt_zero_has_states(p->entries, p->n_entries));
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
  while (n > 0 && memchr(" \t\r\n", tag[n - 1], 4) != NULL) n--;
  tag[n] = '\0';
  if (n == 0 || strlen(tag) != n || strchr(tag, '/') != NULL || tag[0] == '.')
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "no tag, which is the name of a folder beside it");
  CKPT_TRY_ALLOC(zero->folder = ckpt_arena_copy(&zero->index->arena, tag), err);
  return CKPT_OK;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

/* Of a universal checkpoint for engines of any stage: files of ranks that say what the first model file says. */
static ckpt_status check_rank_models(ckpt_zero *zero, const ckpt_zero_file *first, ckpt_error *err) {
  for (uint32_t rank = 0; rank < zero->rank_models.n * zero->rank_models.n_shards; rank++) {
    ckpt_zero_file file = {0};
    ckpt_status status = ckpt_zero_open(&file, zero, zero->rank_models.paths[rank], err);
    if (status == CKPT_OK) status = ckpt_zero_same_step(&file, first, err);
    if (status == CKPT_OK) status = ckpt_zero_compare_client(zero, &file, err);
    ckpt_zero_close(&file);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* Opens a model file of each shard. */
static ckpt_status open_shards(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_files *models = &zero->models;
  zero->shards = calloc(models->n_shards, sizeof *zero->shards);
  CKPT_TRY_ALLOC(zero->shards, err);
  for (; zero->n_shards < models->n_shards; zero->n_shards++) {
    ckpt_zero_file *file = &zero->shards[zero->n_shards].file;
    ckpt_status status = ckpt_zero_open(file, zero, models->paths[zero->n_shards * models->n], err);
    if (status == CKPT_OK) status = ckpt_zero_same_step(file, &zero->shards[0].file, err);
    if (status == CKPT_OK && zero->n_shards == 0) status = ckpt_zero_check_shards(zero, file, err);
    if (status != CKPT_OK) ckpt_zero_close(file);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

static ckpt_status read_all(ckpt_zero *zero, const char *latest, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_find_files(zero, err));
  CKPT_TRY(open_shards(zero, err));
  CKPT_TRY(ckpt_zero_check_tag(zero, latest, err));
  CKPT_TRY(ckpt_zero_check_experts(zero, err));
  CKPT_TRY(ckpt_zero_read_params(zero, err));
  CKPT_TRY(ckpt_zero_check_layers(zero, err));
  zero->world = 1;
  if (zero->is_universal) {
    CKPT_TRY(ckpt_zero_cut_params(zero, err));
    CKPT_TRY(ckpt_zero_read_universal(zero, err));
    CKPT_TRY(check_rank_models(zero, &zero->shards[0].file, err));
  } else if (zero->optimizers.n != 0) {
    CKPT_TRY(ckpt_zero_read_ranks(zero, err));
    CKPT_TRY(ckpt_zero_check_files(zero, err));
  } else if (zero->shards[0].n_shapes != 0) {
    return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                     "no optim_states.pt beside the model file: the ranks' partitions are in them (copy them)");
  }
  CKPT_TRY(ckpt_zero_read_rank_models(zero, err));
  CKPT_TRY(ckpt_zero_sort_pieces(zero, err));
  CKPT_TRY(ckpt_zero_place_momentum(zero, err));
  if (!zero->is_universal) CKPT_TRY(ckpt_zero_cut_params(zero, err));
  const ckpt_object *root = zero->shards[0].file.graph.root;
  CKPT_TRY(ckpt_zero_add_model(zero, err));
  if (zero->copy == 0) CKPT_TRY(ckpt_zero_note_unused(zero, root, err));
  if (zero->is_universal && zero->copy == 0) CKPT_TRY(ckpt_zero_check_universal(zero, err));
  CKPT_TRY(ckpt_zero_add_states(zero, err));
  CKPT_TRY(ckpt_zero_set_objects(zero, root, err));
  const bool is_first = zero->copy == 0 && zero->twin == 0; /* groups have no copies */
  if (is_first) CKPT_TRY(ckpt_torch_add_steps_of_groups(zero->index, err));
  CKPT_TRY(ckpt_zero_note_left(zero, err));
  CKPT_TRY(ckpt_zero_note_client(zero, err));
  return ckpt_torch_globals_note(&zero->globals, zero->index, err);
}

ckpt_status ckpt_zero_read(ckpt_index *index, const ckpt_zero_reading *reading, const ckpt_open_options *options,
                           ckpt_zero_copies *copies, ckpt_error *err) {
  ckpt_zero *zero = calloc(1, sizeof *zero);
  CKPT_TRY_ALLOC(zero, err);
  zero->index = index;
  zero->folder = "";
  zero->is_universal = reading->is_universal;
  zero->checks_names = reading->checks_names;
  zero->copy = reading->copy;
  zero->twin = reading->twin;
  ckpt_status status;
  if (reading->latest != NULL) CKPT_TRY_GOTO(read_tag(zero, reading->latest, err));
  CKPT_TRY_GOTO(read_all(zero, reading->latest, err));
  CKPT_TRY_GOTO(ckpt_side_files_read(index, err));
  CKPT_TRY_GOTO(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  CKPT_TRY_GOTO(ckpt_zero_name_groups(zero, err));
  status = ckpt_index_finish(index, err);
  if (copies != NULL) *copies = (ckpt_zero_copies){zero->n_tensor, zero->n_twins};
done:
  for (uint32_t i = 0; i < zero->n_shards; i++) ckpt_zero_close(&zero->shards[i].file);
  free(zero->shards);
  ckpt_zero_rules_free(zero->rules);
  free(zero->params);
  free(zero->by_name);
  free(zero->n_parts);
  free(zero->flats);
  free(zero->pieces);
  free(zero->extents);
  free(zero);
  return status;
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  bool is_tag = ckpt_zero_has_states(p->entries, p->n_entries);
  /* a salvage takes what there is; `verify`, which collects defects, names each file itself */
  const ckpt_zero_reading reading = {.latest = is_tag ? NULL : CKPT_ZERO_LATEST,
                                     .checks_names = !options->allow_corrupt && index->defects.report == NULL};
  return ckpt_zero_read(index, &reading, options, NULL, err);
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
             .dtypes = CKPT_TORCH_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .options = ckpt_zero_options,
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_zero_normalize,
    .only_masters = ckpt_zero_only_masters,
    .layout = ckpt_zero_layout,
    .owns = ckpt_zero_owns,
    .parts = CKPT_ZERO_LATEST,
    .verify = ckpt_zero_verify,
    .show_copies = ckpt_zero_copies_show,
};
