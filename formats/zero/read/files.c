/* files.c - which files a folder of ZeRO has: of each kind a grid of model-parallel and data-parallel ranks.
 *
 * A rank whose file is missing, and two files of one rank, are refused by name; files of more data-parallel ranks than
 * the save had are left over from another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

typedef enum file_kind {
  FILE_OTHER,
  FILE_MODEL,            /* mp_rank_SS_model_states.pt */
  FILE_RANK_MODEL,       /* zero_pp_rank_R_mp_rank_SS_model_states.pt */
  FILE_OPTIMIZER,        /* zero_pp_rank_R_mp_rank_SS_optim_states.pt, after bf16_ or fp16_ or nothing */
  FILE_EXPERT,           /* layer_L_expert_E_mp_rank_SS_model_states.pt; in old versions expert_E_... for all layers */
  FILE_LAYER,            /* layer_LL-model_states.pt, layer_LL-model_SS-model_states.pt */
  FILE_EXPERT_OPTIMIZER, /* expp_rank_R_mp_rank_SS_optim_states.pt */
  FILE_UNREAD            /* of a rank, and of none of the kinds above */
} file_kind;

typedef ckpt_zero_place place;

/* ---- names ------------------------------------------------------------------------------------------------------- */

static const char before_rank[] = "pp_rank_", before_shard[] = "mp_rank_";

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

/* layer_L_expert_E_ or expert_E_ */
static bool pass_expert(const char **text, place *at) {
  const char *name = *text;
  if (pass(&name, "layer_") && (!pass_number(&name, &at->layer) || !pass(&name, "_"))) return false;
  if (!pass(&name, "expert_") || !pass_number(&name, &at->rank) || !pass(&name, "_")) return false;
  *text = name;
  return true;
}

/* layer_LL[-model_SS]-model_states.pt */
static bool is_layer(const char *text, place *at) {
  if (!pass(&text, "layer_") || !pass_number(&text, &at->layer)) return false;
  if (pass(&text, "-model_") && pass_number(&text, &at->shard)) return strcmp(text, "-model_states.pt") == 0;
  return strcmp(text, "states.pt") == 0; /* -model_ is passed by */
}

static file_kind kind_of(const char *name, place *at) {
  const char *text = name;
  *at = (place){.name = name};
  size_t n = strlen(name), n_suffix = sizeof CKPT_ZERO_SUFFIX - 1;
  if (n <= n_suffix || strcmp(name + n - n_suffix, CKPT_ZERO_SUFFIX) != 0) return FILE_OTHER;
  if (!pass(&text, "bf16_")) (void)pass(&text, "fp16_");
  const bool is_of_experts = pass(&text, "expp_rank_"), is_rank = is_of_experts || pass(&text, "zero_pp_rank_");
  if (is_rank && (!pass_number(&text, &at->rank) || !pass(&text, "_"))) return FILE_OTHER;
  if (is_layer(text, at)) return FILE_LAYER;
  at->layer = 0;
  bool is_expert = !is_rank && pass_expert(&text, at);
  if (!pass(&text, before_shard)) return strstr(name, before_shard) != NULL ? FILE_UNREAD : FILE_OTHER;
  if (!pass_number(&text, &at->shard)) return FILE_OTHER;
  if (is_of_experts) return strcmp(text, "_optim_states.pt") == 0 ? FILE_EXPERT_OPTIMIZER : FILE_UNREAD;
  if (strcmp(text, "_model_states.pt") == 0) return is_expert ? FILE_EXPERT : is_rank ? FILE_RANK_MODEL : FILE_MODEL;
  bool is_optimizer = strcmp(text, "_optim_states.pt") == 0 || strcmp(text, "optim_states.pt") == 0;
  return is_rank && is_optimizer ? FILE_OPTIMIZER : FILE_OTHER;
}

static file_kind kind_of_entry(const ckpt_entry *entry, place *at) {
  return entry->is_folder ? FILE_OTHER : kind_of(entry->name, at);
}

bool ckpt_zero_has_models(const ckpt_entry *entries, size_t n_entries) {
  place at;
  for (size_t i = 0; i < n_entries; i++) {
    file_kind kind = kind_of_entry(&entries[i], &at);
    if (kind == FILE_MODEL || kind == FILE_RANK_MODEL) return true;
  }
  return false;
}

bool ckpt_zero_has_states(const ckpt_entry *entries, size_t n_entries) {
  place at;
  for (size_t i = 0; i < n_entries; i++)
    if (kind_of_entry(&entries[i], &at) != FILE_OTHER) return true;
  return false;
}

bool ckpt_zero_has_unread(const ckpt_entry *entries, size_t n_entries) {
  place at;
  for (size_t i = 0; i < n_entries; i++)
    if (kind_of_entry(&entries[i], &at) == FILE_UNREAD) return true;
  return false;
}

/* ---- the grid ---------------------------------------------------------------------------------------------------- */

/* Writes `name` with another number behind `before`. */
static void renumber(char *out, size_t n_out, const char *name, const char *before, uint32_t number) {
  const char *found = strstr(name, before), *at = found == NULL ? name : found + strlen(before);
  size_t n_digits = found == NULL ? 0 : strspn(at, "0123456789");
  bool is_padded = n_digits > 1 && strcmp(before, before_shard) == 0;
  if (found == NULL)
    snprintf(out, n_out, "%s", name);
  else
    snprintf(out, n_out, "%.*s%0*u%s", (int)(at - name), name, is_padded ? 2 : 1, number, at + n_digits);
}

ckpt_status ckpt_zero_missing(const ckpt_zero *zero, const ckpt_zero_files *files, uint32_t shard, uint32_t rank,
                              uint64_t n_there, uint64_t n_wanted, ckpt_error *err) {
  char of_rank[256], name[256]; /* names of the forms above are shorter */
  renumber(of_rank, sizeof of_rank, files->like, before_rank, rank);
  renumber(name, sizeof name, of_rank, before_shard, shard);
  return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                   "%s is missing: %llu of the files of %llu rank%s are there (copy it, or save again)", name,
                   (ull)n_there, (ull)n_wanted, ckpt_plural(n_wanted));
}

static int compare_places(const void *a, const void *b) {
  const place *x = a, *y = b;
  if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
  if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
  return (x->rank > y->rank) - (x->rank < y->rank);
}

static ckpt_status refuse_twice(const ckpt_zero *zero, const char *what, uint32_t number, const place *second,
                                ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL, "two files of %s %u: %s and %s", what, number,
                   second[-1].name, second->name);
}

/* Fills a grid from places in its order, each of which is there once. */
static ckpt_status fill_grid(ckpt_zero *zero, ckpt_zero_files *files, const place *places, uint32_t n,
                             ckpt_error *err) {
  uint32_t n_ranks = 1, n_shards = n == 0 ? 0 : places[n - 1].shard + 1;
  const char *slash = zero->folder[0] == '\0' ? "" : "/";
  for (uint32_t i = 0; i < n; i++)
    if (places[i].rank >= n_ranks) n_ranks = places[i].rank + 1;
  const uint64_t n_wanted = (uint64_t)n_ranks * n_shards;
  for (uint32_t i = 0; i < n; i++) {
    if (i > 0 && compare_places(&places[i - 1], &places[i]) == 0)
      return refuse_twice(zero, "rank", places[i].rank, &places[i], err);
    if (places[i].shard != i / n_ranks || places[i].rank != i % n_ranks)
      return ckpt_zero_missing(zero, files, i / n_ranks, i % n_ranks, n, n_wanted, err);
    files->paths[i] = ckpt_arena_printf(&zero->index->arena, "%s%s%s", zero->folder, slash, places[i].name);
    CKPT_TRY_ALLOC(files->paths[i], err);
  }
  files->n = n == 0 ? 0 : n_ranks;
  files->n_shards = n_shards;
  return n == n_wanted ? CKPT_OK : ckpt_zero_missing(zero, files, n / n_ranks, n % n_ranks, n, n_wanted, err);
}

static ckpt_status list_kind(ckpt_zero *zero, ckpt_zero_files *files, const ckpt_entry *entries, size_t n_entries,
                             file_kind kind, ckpt_error *err) {
  place *places = reallocarray(NULL, n_entries + 1, sizeof *places);
  CKPT_TRY_ALLOC(places, err);
  ckpt_status status = CKPT_OK;
  uint32_t n = 0;
  for (size_t i = 0; i < n_entries; i++)
    if (kind_of_entry(&entries[i], &places[n]) == kind) n++;
  if (n > 0) {
    files->like = ckpt_arena_copy(&zero->index->arena, places[0].name);
    files->paths = ckpt_arena_array(&zero->index->arena, n, sizeof *files->paths);
    qsort(places, n, sizeof *places, compare_places);
    if (files->like == NULL || files->paths == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (status == CKPT_OK) status = fill_grid(zero, files, places, n, err);
  }
  free(places);
  return status;
}

/* Lists the files of experts, or of layers: each once. */
static ckpt_status list_places(ckpt_zero *zero, place **out, uint32_t *n_out, const ckpt_entry *entries,
                               size_t n_entries, file_kind kind, ckpt_error *err) {
  ckpt_arena *arena = &zero->index->arena;
  const char *slash = zero->folder[0] == '\0' ? "" : "/";
  place at, *places;
  uint32_t n = 0;
  for (size_t i = 0; i < n_entries; i++) n += kind_of_entry(&entries[i], &at) == kind;
  CKPT_TRY_ALLOC(places = *out = ckpt_arena_array(arena, (size_t)n + 1, sizeof *places), err);
  for (size_t i = 0; i < n_entries && *n_out < n; i++)
    if (kind_of_entry(&entries[i], &places[*n_out]) == kind) (*n_out)++;
  qsort(places, n, sizeof *places, compare_places);
  for (uint32_t i = 1; i < n; i++)
    if (compare_places(&places[i - 1], &places[i]) == 0)
      return kind == FILE_EXPERT ? refuse_twice(zero, "expert", places[i].rank, &places[i], err)
                                 : refuse_twice(zero, "tensor parallel rank", places[i].shard, &places[i], err);
  for (uint32_t i = 0; i < n; i++) {
    uint32_t file;
    places[i].name = ckpt_arena_printf(arena, "%s%s%s", zero->folder, slash, places[i].name);
    CKPT_TRY_ALLOC(places[i].name, err);
    CKPT_TRY(ckpt_source_add(zero->index->source, places[i].name, &file, &places[i].n_bytes, err));
  }
  return CKPT_OK;
}

static ckpt_status refuse_unread(const ckpt_zero *zero, const ckpt_entry *entries, size_t n_entries, ckpt_error *err) {
  place at;
  for (size_t i = 0; i < n_entries; i++)
    if (kind_of_entry(&entries[i], &at) == FILE_UNREAD)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, NULL, "%s is of a kind that this version cannot read",
                       entries[i].name);
  return CKPT_OK;
}

ckpt_status ckpt_zero_find_files(ckpt_zero *zero, ckpt_error *err) {
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
  CKPT_TRY_GOTO(list_kind(zero, &models, entries, n, FILE_MODEL, err));
  CKPT_TRY_GOTO(list_kind(zero, &zero->models, entries, n, FILE_RANK_MODEL, err));
  CKPT_TRY_GOTO(list_kind(zero, &zero->optimizers, entries, n, FILE_OPTIMIZER, err));
  CKPT_TRY_GOTO(list_kind(zero, &zero->expert_optimizers, entries, n, FILE_EXPERT_OPTIMIZER, err));
  CKPT_TRY_GOTO(list_places(zero, &zero->experts, &zero->n_experts, entries, n, FILE_EXPERT, err));
  CKPT_TRY_GOTO(list_places(zero, &zero->layers, &zero->n_layers, entries, n, FILE_LAYER, err));
  if (zero->is_universal && models.n != 0) zero->rank_models = zero->models;
  if (zero->models.n == 0 || zero->rank_models.n != 0) zero->models = models; /* one of each shard */
  if (zero->models.n == 0)
    status = ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                       "%s%sno model_states.pt: the weights' names and shapes are in it (copy it, or save again)",
                       zero->folder, zero->folder[0] == '\0' ? "" : ": ");
done:
  ckpt_list_free(entries, n);
  return status;
}

/* ---- the ranks that there were ----------------------------------------------------------------------------------- */

/* Files that a save did not have. */
typedef struct leftovers {
  uint32_t n;
  const char *first; /* path of one */
} leftovers;

/* Keeps n_shards shards. */
static void cut_shards(ckpt_zero_files *files, uint32_t n_shards, leftovers *left) {
  if (files->n_shards <= n_shards) return;
  if (left->first == NULL) left->first = files->paths[n_shards * files->n];
  left->n += (files->n_shards - n_shards) * files->n;
  files->n_shards = n_shards;
}

/* Keeps n_ranks ranks of each shard. */
static void cut_ranks(ckpt_zero_files *files, uint32_t n_ranks, leftovers *left) {
  if (files->n <= n_ranks) return;
  if (left->first == NULL) left->first = files->paths[n_ranks];
  left->n += (files->n - n_ranks) * files->n_shards;
  for (uint32_t i = 0; i < n_ranks * files->n_shards; i++)
    files->paths[i] = files->paths[i / n_ranks * files->n + i % n_ranks];
  files->n = n_ranks;
}

ckpt_status ckpt_zero_note_leftovers(ckpt_zero *zero, uint32_t n, const char *first, ckpt_error *err) {
  if (n == 0) return CKPT_OK;
  return ckpt_index_note(zero->index, true, err,
                         "%u file%s of ranks that the save had not, first %.200s (left by "
                         "another save of more ranks?)",
                         n, ckpt_plural(n), first);
}

ckpt_status ckpt_zero_check_shards(ckpt_zero *zero, const ckpt_zero_file *first, ckpt_error *err) {
  const int64_t said = ckpt_zero_number(ckpt_object_get(first->graph.root, "mp_world_size"));
  ckpt_zero_files *models = &zero->models;
  leftovers left = {0};
  if (said < 1) return CKPT_OK;
  if ((uint64_t)said > models->n_shards)
    return ckpt_zero_missing(zero, models, models->n_shards, 0, (uint64_t)models->n * models->n_shards,
                             (uint64_t)models->n * (uint64_t)said, err);
  cut_shards(&zero->optimizers, (uint32_t)said, &left);
  cut_shards(models, (uint32_t)said, &left);
  cut_shards(&zero->rank_models, (uint32_t)said, &left);
  return ckpt_zero_note_leftovers(zero, left.n, left.first, err);
}

ckpt_status ckpt_zero_check_files(ckpt_zero *zero, ckpt_error *err) {
  ckpt_zero_files *models = &zero->models;
  const uint32_t n_ranks = zero->stage == 3 ? zero->world : 1;
  leftovers left = {0};
  if (models->n < n_ranks)
    return ckpt_zero_missing(zero, models, 0, models->n, (uint64_t)models->n * models->n_shards,
                             (uint64_t)n_ranks * models->n_shards, err);
  cut_ranks(&zero->optimizers, zero->world, &left);
  cut_ranks(models, n_ranks, &left);
  return ckpt_zero_note_leftovers(zero, left.n, left.first, err);
}
