/* experts.c - experts (MoE) of a ZeRO checkpoint: names, and which ranks have which.
 *
 *   layer_L_expert_E_mp_rank_00_model_states.pt    {"<module>.deepspeed_moe.experts.deepspeed_experts.<E>.<name>":
 * tensor} expert_E_mp_rank_00_model_states.pt            in old versions: those of all layers
 *
 * E counts the experts of all expert-parallel ranks, as a run with ep_size 1 names them. Each of the ranks calls its
 * own from 0 on: param_shapes has the first one's, and what the ranks' optimizer files say is of their own. A group of
 * experts is cut among the data-parallel ranks that have the same experts; how many partition_count says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"

typedef unsigned long long ull;

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* How many bytes of a name come before the number of an expert; 0: there is none. */
static size_t before_expert(const char *name) {
  static const char folder[] = ".deepspeed_moe.experts.deepspeed_experts.";
  size_t n = 0;
  for (const char *at = strstr(name, folder); at != NULL; at = strstr(at + 1, folder))
    n = (size_t)(at - name) + sizeof folder - 1;
  const char *end = name + n + strspn(name + n, "0123456789");
  return n == 0 || end == name + n || end - (name + n) > 9 || *end != '.' ? 0 : n;
}

int64_t ckpt_zero_expert_of(const char *name) {
  size_t n = before_expert(name);
  return n == 0 ? -1 : strtol(name + n, NULL, 10);
}

ckpt_status ckpt_zero_name_expert(char name[CKPT_ZERO_NAME_BYTES], const char *of, uint64_t expert, ckpt_error *err) {
  size_t n_before = before_expert(of);
  const char *behind = of + n_before + strspn(of + n_before, "0123456789");
  int n = snprintf(name, CKPT_ZERO_NAME_BYTES, "%.*s%llu%s", (int)n_before, of, (ull)expert, behind);
  if (n >= 0 && n < CKPT_ZERO_NAME_BYTES) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a parameter's name is too long");
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The experts of a layer, by num_experts: a list of them, or in old versions a number for all; 0: there are none. */
static uint64_t experts_of(const ckpt_object *said, uint32_t layer) {
  int64_t n = said == NULL || said->kind != CKPT_OBJECT_LIST ? ckpt_zero_number(layer == 0 ? said : NULL)
              : layer < said->n                              ? ckpt_zero_number(said->items[layer])
                                                             : -1;
  return n < 0 ? 0 : (uint64_t)n;
}

static ckpt_status missing(const ckpt_zero *zero, const ckpt_object *said, uint32_t layer, uint32_t expert,
                           ckpt_error *err) {
  char of_layer[32] = "";
  if (said->kind == CKPT_OBJECT_LIST) snprintf(of_layer, sizeof of_layer, "layer_%u_", layer);
  return ckpt_fail(err, CKPT_ENOTFOUND, zero->index->path, NULL,
                   "%sexpert_%u_mp_rank_00_model_states.pt is missing: the layer has %llu experts (copy it, or save "
                   "again)",
                   of_layer, expert, (ull)experts_of(said, layer));
}

ckpt_status ckpt_zero_check_experts(const ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_file *file = &zero->shards[0].file;
  const ckpt_object *said = ckpt_object_get(file->graph.root, "num_experts");
  const ckpt_object *automatic = ckpt_object_get(file->graph.root, "ds_autoep_layers");
  if (automatic != NULL && automatic->kind != CKPT_OBJECT_NONE)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, NULL,
                     "experts of AutoEP (ds_autoep_layers): this version cannot read it yet");
  const uint64_t n_layers = said == NULL ? 0 : said->kind == CKPT_OBJECT_LIST ? said->n : experts_of(said, 0) != 0;
  if ((zero->n_shards > 1 || zero->n_layers != 0) && (n_layers != 0 || zero->n_experts != 0))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, NULL,
                     "experts of a model of tensor or pipeline parallel ranks; this version cannot read it yet");
  uint32_t layer = 0, expert = 0;
  for (uint32_t i = 0; i <= zero->n_experts; i++) {
    const ckpt_zero_place *at = i < zero->n_experts ? &zero->experts[i] : NULL;
    for (; layer < n_layers && expert == experts_of(said, layer); layer++) expert = 0;
    if (layer < n_layers && (at == NULL || at->layer != layer || at->rank != expert || at->shard != 0))
      return missing(zero, said, layer, expert, err);
    if (layer >= n_layers && at != NULL)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL,
                       "%s is of an expert that the model has not (num_experts)", at->name);
    expert++;
  }
  return CKPT_OK;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

uint32_t ckpt_zero_part_of(const ckpt_zero *zero, uint32_t group, uint32_t rank) {
  const uint32_t n = zero->n_parts[group];
  return zero->is_data_first ? rank / (zero->world / n) : rank % n;
}

uint32_t ckpt_zero_rank_of(const ckpt_zero *zero, uint32_t group, uint32_t part, uint32_t n) {
  const uint32_t n_parts = zero->n_parts[group];
  return zero->is_data_first ? part * (zero->world / n_parts) + n : n * n_parts + part;
}

ckpt_zero_param *ckpt_zero_find_part(const ckpt_zero *zero, uint32_t shard, uint32_t part, const char *name) {
  ckpt_zero_param *param = ckpt_zero_find(zero, shard, name);
  if (param == NULL || part == 0 || param->stride == 0) return param;
  return param->part == 0 ? param + (size_t)part * param->stride : NULL;
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* A name, and how many bytes of it come before the number of an expert. */
typedef struct member {
  const char *name;
  size_t n_before;
} member;

static int compare_members(const void *a, const void *b, void *arg) {
  const member *of = arg, *x = &of[*(const uint32_t *)a], *y = &of[*(const uint32_t *)b];
  if (x->n_before != y->n_before) return x->n_before < y->n_before ? -1 : 1;
  return memcmp(x->name, y->name, x->n_before);
}

/* order: room for as many numbers as there are members. */
static void count_members(member *members, uint32_t *order, uint32_t n, uint64_t *n_experts) {
  for (uint32_t i = 0; i < n; i++) order[i] = i;
  if (n > 1) qsort_r(order, n, sizeof *order, compare_members, members);
  for (uint32_t i = 0, end; i < n; i = end) {
    uint64_t n_found = 0;
    for (end = i; end < n && compare_members(&order[i], &order[end], members) == 0; end++) {
      const int64_t expert = ckpt_zero_expert_of(members[order[end]].name);
      if (expert >= (int64_t)n_found) n_found = (uint64_t)expert + 1;
    }
    for (uint32_t k = i; k < end; k++) n_experts[order[k]] = n_found;
  }
}

ckpt_status ckpt_zero_count_experts(const char *const *names, uint32_t n, uint64_t *n_experts, ckpt_error *err) {
  member *members = calloc((size_t)n + 1, sizeof *members);
  uint32_t *order = calloc((size_t)n + 1, sizeof *order);
  const bool has_room = members != NULL && order != NULL;
  for (uint32_t i = 0; has_room && i < n; i++) members[i] = (member){names[i], before_expert(names[i])};
  if (has_room) count_members(members, order, n, n_experts);
  free(members);
  free(order);
  return has_room ? CKPT_OK : ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

/* Frozen ones have none, nor those of groups that the optimizer has not. */
static uint32_t parts_of(const ckpt_zero *zero, uint32_t group) {
  return group < zero->n_groups ? zero->n_parts[group] : 1;
}

/* Adds a group's parameters once for each expert-parallel rank. */
static ckpt_status spread_group(ckpt_zero *zero, uint32_t first, uint32_t n, const uint64_t *n_experts,
                                ckpt_zero_param *out, ckpt_error *err) {
  const uint32_t n_parts = parts_of(zero, zero->params[first].group);
  char name[CKPT_ZERO_NAME_BYTES];
  for (uint32_t part = 0; part < n_parts; part++)
    for (uint32_t i = 0; i < n; i++) {
      ckpt_zero_param *param = &out[part * n + i];
      *param = zero->params[first + i];
      param->part = part;
      param->stride = n_parts == 1 ? 0 : n;
      const int64_t expert = ckpt_zero_expert_of(param->name);
      if (n_parts != 1 && expert < 0)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, zero->index->path, param->name,
                         "%u ranks have each its own, and its name has no number of an expert", n_parts);
      if (part == 0) continue;
      CKPT_TRY(ckpt_zero_name_expert(name, param->name, (uint64_t)expert + part * n_experts[first + i], err));
      CKPT_TRY_ALLOC(param->name = ckpt_arena_copy(&zero->index->arena, name), err);
    }
  return CKPT_OK;
}

/* Where the run of members of one shard's group ends. */
static uint32_t end_of(const ckpt_zero *zero, uint32_t begin) {
  uint32_t end = begin + 1;
  while (end < zero->n_params && zero->params[end].group == zero->params[begin].group &&
         zero->params[end].shard == zero->params[begin].shard)
    end++;
  return end;
}

/* How many parameters there are of all ranks. Each of other ranks' is a tensor in an expert's file. */
static ckpt_status count_all(const ckpt_zero *zero, uint64_t *n, ckpt_error *err) {
  enum { TENSOR_BYTES = 64 }; /* of a file for a tensor, at least */
  uint64_t n_bytes = 0;
  *n = 0;
  for (uint32_t i = 0; i < zero->n_params; i++) *n += parts_of(zero, zero->params[i].group); /* of 32 bits both */
  for (uint32_t i = 0; i < zero->n_experts; i++) n_bytes += zero->experts[i].n_bytes;
  if (*n - zero->n_params <= n_bytes / TENSOR_BYTES && *n < UINT32_MAX / 2) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL,
                   "param_shapes and partition_count say %llu parameters of all experts: more than their files have",
                   (ull)*n);
}

static ckpt_status spread(ckpt_zero *zero, const char **names, uint64_t *n_experts, ckpt_zero_param *out,
                          ckpt_error *err) {
  uint32_t n_out = 0;
  for (uint32_t i = 0; i < zero->n_params; i++) names[i] = zero->params[i].name;
  CKPT_TRY(ckpt_zero_count_experts(names, zero->n_params, n_experts, err));
  for (uint32_t i = 0, end, shard = UINT32_MAX; i < zero->n_params; i = end) {
    const uint32_t n_before = n_out;
    end = end_of(zero, i);
    CKPT_TRY(spread_group(zero, i, end - i, n_experts, &out[n_out], err));
    n_out += (end - i) * parts_of(zero, zero->params[i].group);
    if (zero->params[i].shard != shard) zero->shards[shard = zero->params[i].shard].first_param = n_before;
    zero->shards[shard].n_params = n_out - zero->shards[shard].first_param;
  }
  return CKPT_OK;
}

ckpt_status ckpt_zero_spread_experts(ckpt_zero *zero, ckpt_error *err) {
  uint64_t n;
  CKPT_TRY(count_all(zero, &n, err));
  if (n == zero->n_params) return CKPT_OK;
  ckpt_zero_param *out = calloc((size_t)n, sizeof *out);
  const char **names = calloc(zero->n_params, sizeof *names);
  uint64_t *n_experts = calloc(zero->n_params, sizeof *n_experts);
  ckpt_status status = CKPT_OK;
  if (out == NULL || names == NULL || n_experts == NULL)
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = spread(zero, names, n_experts, out, err);
  free(names);
  free(n_experts);
  free(status == CKPT_OK ? zero->params : out);
  CKPT_TRY(status);
  zero->params = out;
  zero->n_params = zero->param_capacity = (uint32_t)n;
  free(zero->by_name);
  zero->by_name = NULL;
  return ckpt_zero_sort_params(zero, err);
}
