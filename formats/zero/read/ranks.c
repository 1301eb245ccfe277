/* ranks.c - the optimizer files of a ZeRO checkpoint, one for each data-parallel rank of a shard: flats and
 * pieces.
 *
 *   {"optimizer_state_dict": {"zero_stage", "partition_count", "loss_scaler",
 *      stages 1, 2:  "single_partition_of_fp32_groups": [tensor], "param_slice_mappings": [{name: (numel, start)}],
 *                    "base_optimizer_state": {"state": {group: {"exp_avg": tensor, ...}}, "param_groups"} or [{...}],
 *                    "param_alignment_paddings": [[padding behind each parameter]]
 *      stage 3:      "fp32_flat_groups": [tensor], "optimizer_state_dict": {"state", "param_groups"}},
 *    "ds_config", "ds_version"}
 *
 * In stages 1 and 2 the parameters of a group follow each other, and the whole is cut among the ranks; the mappings say
 * where they are, but for those of round_robin_gradients (goes_by_order). In stage 3 each parameter is cut among the
 * ranks. */
#include <stdlib.h>
#include <string.h>

#include "formats/zero/read/rank.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/pickle/pickle.h"

typedef unsigned long long ull;

ckpt_status ckpt_zero_bad_rank(const ckpt_zero_rank *r, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL, "%s: no optimizer file of ZeRO", what);
}

/* ---- one file ---------------------------------------------------------------------------------------------------- */

/* How many ranks a group is cut among by partition_count: a number, or one for each group; -1: it does not say. */
static int64_t count_of(const ckpt_zero_rank *r, uint64_t group) {
  const ckpt_object *count = ckpt_object_get(r->inner, "partition_count");
  bool is_list = count != NULL && (count->kind == CKPT_OBJECT_LIST || count->kind == CKPT_OBJECT_TUPLE);
  int64_t n = ckpt_zero_number(!is_list ? count : group < count->n ? count->items[group] : NULL);
  return n == 0 ? -1 : n;
}

/* The data-parallel ranks: those of a group, but for experts, that the fewest have. */
static ckpt_status read_world(ckpt_zero_rank *r, ckpt_error *err) {
  const ckpt_object *count = ckpt_object_get(r->inner, "partition_count");
  if (count != NULL && count->kind == CKPT_OBJECT_LIST && count->n != r->flats->n)
    return ckpt_zero_bad_rank(r, "partition_count has another number of groups", err);
  for (uint64_t g = 0; g < r->flats->n; g++) {
    const int64_t n = count_of(r, g);
    if (n < 0) return ckpt_zero_bad_rank(r, "partition_count says no number of ranks", err);
    if (n > r->world) r->world = n;
  }
  return CKPT_OK;
}

static ckpt_status open_rank(ckpt_zero_rank *r, ckpt_zero *zero, uint32_t shard, uint32_t rank, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_open(&r->file, zero, zero->optimizers.paths[shard * zero->optimizers.n + rank], err));
  r->inner = ckpt_object_get(r->file.graph.root, "optimizer_state_dict");
  if (r->inner == NULL || r->inner->kind != CKPT_OBJECT_DICT)
    return ckpt_zero_bad_rank(r, "no optimizer_state_dict", err);
  const ckpt_object *stage = ckpt_object_get(r->inner, "zero_stage");
  r->stage = ckpt_zero_number(stage);
  if (stage != NULL && (r->stage < 1 || r->stage > 3))
    return ckpt_zero_bad_rank(r, "zero_stage is none of 1, 2 and 3", err);
  bool is_stage3 = r->stage == 3;
  const ckpt_object *base = ckpt_object_get(r->inner, is_stage3 ? "optimizer_state_dict" : "base_optimizer_state");
  r->flats = ckpt_object_get(r->inner, is_stage3 ? "fp32_flat_groups" : "single_partition_of_fp32_groups");
  if (r->flats == NULL || r->flats->kind != CKPT_OBJECT_LIST || r->flats->n == 0)
    return ckpt_zero_bad_rank(r, is_stage3 ? "no fp32_flat_groups" : "no single_partition_of_fp32_groups", err);
  enum { GROUP_BYTES = 32 }; /* of a pickle for a tensor, at least: one can stand for many */
  if (r->flats->n > r->file.n_pickled / GROUP_BYTES)
    return ckpt_zero_bad_rank(r, "the same partitions again and again", err);
  CKPT_TRY(read_world(r, err));
  r->states = base == NULL || base->kind == CKPT_OBJECT_LIST ? base : ckpt_object_get(base, "state");
  r->groups = base == NULL || base->kind == CKPT_OBJECT_LIST ? NULL : ckpt_object_get(base, "param_groups");
  return ckpt_zero_take_settings(zero, &r->file, r->inner, err);
}

/* ---- pieces by mappings ------------------------------------------------------------------------------------------ */

/* Stages 1 and 2: where a rank's part of each parameter is. */
static ckpt_status map_group(ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_object *group, uint32_t shard,
                             uint32_t part, uint32_t flat, uint64_t *n_left, ckpt_error *err) {
  if (group->kind != CKPT_OBJECT_DICT || group->n > *n_left)
    return ckpt_zero_bad_rank(r, "param_slice_mappings is no table", err);
  *n_left -= group->n;
  for (uint64_t i = 0; i < group->n; i++) {
    const ckpt_object *key = group->items[2 * i], *address = group->items[2 * i + 1];
    int64_t count = ckpt_zero_number(ckpt_foreign_attribute(address, "numel"));
    int64_t at = ckpt_zero_number(ckpt_foreign_attribute(address, "start"));
    const ckpt_zero_param *param = NULL;
    if (key->kind == CKPT_OBJECT_TEXT) param = ckpt_zero_find_part(zero, shard, part, key->text);
    if (count < 0 || at < 0) return ckpt_zero_bad_rank(r, "param_slice_mappings has an entry that is no range", err);
    if (param == NULL || param->group == UINT32_MAX)
      return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL, "holds a part of '%.200s', which is not in param_shapes",
                       key->kind == CKPT_OBJECT_TEXT ? key->text : "?");
    ckpt_status status =
        ckpt_zero_add_piece(zero, (uint32_t)(param - zero->params), flat, (uint64_t)at, (uint64_t)count, err);
    CKPT_TRY(ckpt_fail_at(status, err, r->file.path, NULL));
  }
  return CKPT_OK;
}

static ckpt_status map_rank(ckpt_zero *zero, const ckpt_zero_rank *r, uint32_t shard, uint32_t rank,
                            const ckpt_object *mappings, ckpt_error *err) {
  const uint32_t first_flat = zero->shards[shard].first_flat + rank * zero->n_groups;
  uint64_t n_left = (uint64_t)zero->shards[shard].n_params; /* each at most once: one table can stand for many */
  if (mappings->kind != CKPT_OBJECT_LIST || mappings->n != zero->n_groups)
    return ckpt_zero_bad_rank(r, "param_slice_mappings has another number of groups", err);
  for (uint32_t g = 0; g < zero->n_groups; g++)
    CKPT_TRY(
        map_group(zero, r, mappings->items[g], shard, ckpt_zero_part_of(zero, g, rank), first_flat + g, &n_left, err));
  return CKPT_OK;
}

/* ---- pieces by order --------------------------------------------------------------------------------------------- */

/* Flats one after the other. */
typedef struct cursor {
  uint32_t flat, step, n_left; /* the flat at hand; to the next one; how many there are */
  uint64_t at;                 /* in the flat at hand */
} cursor;

/* Takes `count` elements for a parameter, or passes them by (UINT32_MAX); *n_short: how many there were not. */
static ckpt_status advance(ckpt_zero *zero, cursor *c, uint32_t param, uint64_t count, uint64_t *n_short,
                           ckpt_error *err) {
  while (count != 0 && c->n_left != 0) {
    uint64_t n = zero->flats[c->flat].n - c->at;
    if (n > count) n = count;
    if (param != UINT32_MAX) CKPT_TRY(ckpt_zero_add_piece(zero, param, c->flat, c->at, n, err));
    c->at += n;
    count -= n;
    if (c->at != zero->flats[c->flat].n) continue;
    c->flat += c->step;
    c->n_left--;
    c->at = 0;
  }
  *n_short = count;
  return CKPT_OK;
}

/* What is left behind a cursor. */
static uint64_t left_of(const ckpt_zero *zero, const cursor *c) {
  uint64_t n = 0;
  for (uint32_t i = 0; i < c->n_left; i++) n += zero->flats[c->flat + i * c->step].n; /* of tensors in files */
  return n - c->at;
}

/* Stage 3: every rank has a part of every parameter, the last ones with padding. */
static ckpt_status cut_rank(ckpt_zero *zero, const ckpt_zero_shard *shard, uint32_t rank, const char *path,
                            ckpt_error *err) {
  cursor c = {.flat = shard->first_flat + rank * zero->n_groups, .step = 1, .n_left = zero->n_groups};
  uint64_t n_all = left_of(zero, &c), n_wanted = 0, n_short = 0;
  for (uint32_t i = shard->first_param; i < shard->first_param + shard->n_params; i++) {
    uint64_t n = zero->params[i].n_elements, part = n / zero->world + (n % zero->world != 0);
    if (zero->params[i].group == UINT32_MAX) continue;
    if (!ckpt_add_u64(n_wanted, part, &n_wanted)) n_wanted = UINT64_MAX / 2;
    uint64_t before = part == 0 || rank > n / part ? n : rank * part, held = n - before < part ? n - before : part;
    if (n_short == 0) CKPT_TRY(advance(zero, &c, i, held, &n_short, err));
    if (n_short == 0) CKPT_TRY(advance(zero, &c, UINT32_MAX, part - held, &n_short, err));
  }
  if (n_wanted == n_all) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL,
                   "its partitions have %llu element%s, a rank's part of all parameters has %llu", (ull)n_all,
                   ckpt_plural(n_all), (ull)n_wanted);
}

/* The elements behind parameter number i of a group, which param_alignment_paddings says; 0: none. */
static uint64_t padding_of(const ckpt_object *paddings, uint32_t group, uint64_t i) {
  const ckpt_object *of = ckpt_foreign_arg(paddings, group);
  int64_t n = of == NULL ? -1 : ckpt_zero_number(ckpt_foreign_arg(of, i));
  return n < 0 ? 0 : (uint64_t)n;
}

/* Whether the parameters of a group lie in the order of param_shapes, whatever its mappings say. There are none before
 * DeepSpeed 0.7; with round_robin_gradients, which orders parameters anew, they are made of the old order, as long as
 * nothing is padded. */
static bool goes_by_order(const ckpt_zero *zero, const ckpt_object *paddings, bool is_mapped, uint32_t group) {
  const ckpt_object *of = ckpt_foreign_arg(paddings, group);
  if (!is_mapped || !zero->is_round_robin) return !is_mapped;
  for (uint64_t i = 0; of != NULL && of->kind == CKPT_OBJECT_LIST && i < of->n; i++)
    if (padding_of(paddings, group, i) != 0) return false;
  return true;
}

/* Forgets the pieces of a shard's parameters in groups that go by order, from first_piece on; by_order: of each group.
 */
static void drop_mapped(ckpt_zero *zero, const ckpt_zero_shard *shard, uint32_t first_piece, const bool *by_order) {
  uint32_t n = first_piece;
  for (uint32_t i = first_piece; i < zero->n_pieces; i++)
    if (!by_order[zero->params[zero->pieces[i].param].group]) zero->pieces[n++] = zero->pieces[i];
  zero->n_pieces = n;
  for (uint32_t i = 0; i < shard->n_params; i++) {
    ckpt_zero_param *param = &zero->params[shard->first_param + i];
    if (param->group != UINT32_MAX && by_order[param->group]) param->n_held = param->n_pieces = 0;
  }
  for (uint32_t i = 0; i < zero->world * zero->n_groups; i++)
    if (by_order[i % zero->n_groups]) zero->flats[shard->first_flat + i].n_taken = 0;
}

/* The flats of a group, of the ranks that have a part of it. */
static cursor begin_group(const ckpt_zero *zero, const ckpt_zero_shard *shard, uint32_t group, uint32_t part) {
  const uint32_t n_ranks = zero->world / zero->n_parts[group], first = ckpt_zero_rank_of(zero, group, part, 0);
  const uint32_t step = n_ranks == 1 ? 1 : ckpt_zero_rank_of(zero, group, part, 1) - first;
  return (cursor){
      .flat = shard->first_flat + first * zero->n_groups + group, .step = step * zero->n_groups, .n_left = n_ranks};
}

/* Stages 1 and 2: cuts the groups that go by order. */
static ckpt_status cut_groups(ckpt_zero *zero, const ckpt_zero_shard *shard, const ckpt_object *paddings,
                              const bool *by_order, ckpt_error *err) {
  const uint32_t first = shard->first_param;
  cursor c = {0};
  uint64_t n_short = 0;
  for (uint32_t i = first, of_group = 0; i < first + shard->n_params && n_short == 0; i++) {
    const ckpt_zero_param *param = &zero->params[i];
    if (param->group == UINT32_MAX || !by_order[param->group]) continue;
    bool is_next = i == first || param[-1].group != param->group || param[-1].part != param->part;
    if (is_next) c = begin_group(zero, shard, param->group, param->part);
    of_group = is_next ? 0 : of_group + 1;
    CKPT_TRY(advance(zero, &c, i, param->n_elements, &n_short, err));
    if (n_short == 0)
      CKPT_TRY(advance(zero, &c, UINT32_MAX, padding_of(paddings, param->group, of_group), &n_short, err));
  }
  return CKPT_OK; /* what is short is said with the parameter */
}

static ckpt_status order_groups(ckpt_zero *zero, const ckpt_zero_shard *shard, uint32_t first_piece,
                                const ckpt_object *paddings, bool is_mapped, ckpt_error *err) {
  bool *by_order = calloc((size_t)zero->n_groups + 1, sizeof *by_order);
  CKPT_TRY_ALLOC(by_order, err);
  for (uint32_t g = 0; g < zero->n_groups; g++) by_order[g] = goes_by_order(zero, paddings, is_mapped, g);
  drop_mapped(zero, shard, first_piece, by_order);
  ckpt_status status = cut_groups(zero, shard, paddings, by_order, err);
  free(by_order);
  return status;
}

/* What of a group's partitions is no parameter's is padding: a few elements for each rank, and those for alignment. */
static ckpt_status check_groups(const ckpt_zero *zero, const ckpt_zero_shard *shard, const ckpt_object *paddings,
                                ckpt_error *err) {
  enum { MAX_PADDING = 256 }; /* elements for each rank; 2 in any version known */
  for (uint32_t g = 0; g < zero->n_groups && zero->stage < 3; g++) {
    uint64_t n = 0, n_taken = 0, n_padding = (uint64_t)MAX_PADDING * zero->world;
    for (uint32_t r = 0; r < zero->world; r++) {
      const ckpt_zero_flat *flat = &zero->flats[shard->first_flat + r * zero->n_groups + g];
      n += flat->n;
      n_taken += flat->n_taken;
    }
    const ckpt_object *of = ckpt_foreign_arg(paddings, g);
    for (uint64_t i = 0; of != NULL && of->kind == CKPT_OBJECT_LIST && i < of->n && n_padding < n; i++)
      n_padding += padding_of(paddings, g, i);
    if (n - n_taken > n_padding)
      return ckpt_fail(err, CKPT_EFORMAT, zero->index->path, NULL,
                       "the partitions of group %u have %llu element%s, its parameters %llu: others are not in "
                       "param_shapes",
                       g, (ull)n, ckpt_plural(n), (ull)n_taken);
  }
  return CKPT_OK;
}

/* ---- all ranks --------------------------------------------------------------------------------------------------- */

static ckpt_status differ(const ckpt_zero_rank *r, const char *what, int64_t mine, int64_t first, ckpt_error *err) {
  if (mine == first) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL,
                   "another %s than rank 0 (%lld, %lld): files of different saves", what, (long long)mine,
                   (long long)first);
}

/* Steps of the groups that both say it of: what has no elements on a rank has made none. */
static ckpt_status compare_steps(const ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_zero_rank *first,
                                 ckpt_error *err) {
  for (uint64_t g = 0; g < r->flats->n; g++) {
    const ckpt_tensor *flat = ckpt_zero_tensor(&r->file, r->flats->items[g]);
    int64_t mine, of_first;
    if (flat == NULL || flat->n_elements == 0) continue;
    CKPT_TRY(ckpt_zero_step_of(zero, &r->file, ckpt_zero_step_in(r, g), &mine, err));
    CKPT_TRY(ckpt_zero_step_of(zero, &first->file, ckpt_zero_step_in(first, g), &of_first, err));
    if (mine >= 0 && of_first >= 0) CKPT_TRY(differ(r, "step", mine, of_first, err));
  }
  return CKPT_OK;
}

/* Rank 0's is read. The first that differs from it is said. */
static ckpt_status compare_scalers(ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_zero_rank *first,
                                   ckpt_error *err) {
  const ckpt_object *mine = ckpt_object_get(r->inner, "loss_scaler"),
                    *of = ckpt_object_get(first->inner, "loss_scaler");
  uint64_t n_left = 1u << 16; /* nodes: it has a few attributes */
  bool is_same = mine == of;
  if (zero->has_other_scaler) return CKPT_OK;
  if (mine != NULL && of != NULL) CKPT_TRY(ckpt_object_compare(&is_same, mine, of, &n_left, err));
  if (is_same) return CKPT_OK;
  zero->has_other_scaler = true;
  return ckpt_index_note(zero->index, true, err, "%.200s: another loss scaler than rank 0's, which is read",
                         ckpt_path_name(r->file.path));
}

/* Ranks that were not saved together. */
static ckpt_status compare_ranks(ckpt_zero *zero, const ckpt_zero_rank *r, const ckpt_zero_rank *first,
                                 ckpt_error *err) {
  CKPT_TRY(differ(r, "stage", r->stage, first->stage, err));
  CKPT_TRY(differ(r, "number of ranks", r->world, first->world, err));
  CKPT_TRY(differ(r, "number of groups", (int64_t)r->flats->n, (int64_t)first->flats->n, err));
  for (uint64_t g = 0; g < r->flats->n; g++)
    CKPT_TRY(differ(r, "number of ranks of a group", count_of(r, g), count_of(first, g), err));
  CKPT_TRY(compare_steps(zero, r, first, err));
  CKPT_TRY(compare_scalers(zero, r, first, err));
  return ckpt_zero_same_groups(r->groups, first->groups, r->file.path, err);
}

/* How many expert-parallel ranks have each their own parameters in the groups. */
static ckpt_status read_parts(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err) {
  const ckpt_object *config = ckpt_object_get(r->file.graph.root, "ds_config");
  const ckpt_object *said = ckpt_object_get(config, "use_data_before_expert_parallelism");
  zero->is_data_first = said != NULL && said->kind == CKPT_OBJECT_BOOL && said->boolean;
  CKPT_TRY_ALLOC(zero->n_parts = calloc(zero->n_groups, sizeof *zero->n_parts), err);
  for (uint32_t g = 0; g < zero->n_groups; g++) {
    const uint32_t n = (uint32_t)count_of(r, g);
    zero->n_parts[g] = zero->world / n;
    if (zero->world % n != 0 || (zero->stage == 3 && n != zero->world))
      return ckpt_fail(err, CKPT_EFORMAT, r->file.path, NULL,
                       "group %u is cut among %u ranks by partition_count, of %u: no groups of experts are", g, n,
                       zero->world);
  }
  return ckpt_zero_spread_experts(zero, err);
}

/* Ranks of a run that trains experts alone: no group is cut among all. */
static int64_t world_of(const ckpt_zero *zero, const ckpt_zero_rank *r) {
  const int64_t world = ckpt_zero_number(ckpt_object_get(zero->shards[0].file.graph.root, "dp_world_size"));
  return zero->n_experts != 0 && world > r->world && world < INT32_MAX ? world : r->world;
}

/* The model's file is of the step of the ranks'. */
static ckpt_status check_optimizer(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err) {
  uint64_t g = 0;
  int64_t step;
  while (g + 1 < r->flats->n && ckpt_zero_step_in(r, g) == NULL) g++;
  CKPT_TRY(ckpt_zero_step_of(zero, &r->file, ckpt_zero_step_in(r, g), &step, err));
  return ckpt_zero_check_optimizer(zero, &r->file, step, err);
}

static ckpt_status read_first(ckpt_zero *zero, const ckpt_zero_rank *r, ckpt_error *err) {
  const int64_t world = world_of(zero, r);
  zero->stage = r->stage < 0 ? 1 : (uint32_t)r->stage;
  zero->is_bf16_optimizer = r->stage < 0;
  if ((uint64_t)world > zero->optimizers.n)
    return ckpt_zero_missing(zero, &zero->optimizers, 0, zero->optimizers.n,
                             (uint64_t)zero->optimizers.n * zero->optimizers.n_shards,
                             (uint64_t)world * zero->optimizers.n_shards, err);
  zero->world = (uint32_t)world;
  if (r->flats->n > UINT32_MAX / 2 / zero->world / zero->n_shards)
    return ckpt_zero_bad_rank(r, "the same partitions again and again", err);
  zero->n_groups = (uint32_t)r->flats->n;
  zero->groups = r->groups;
  zero->is_round_robin = ckpt_zero_is_round_robin(r->file.graph.root);
  CKPT_TRY(check_optimizer(zero, r, err));
  if (r->states != NULL && r->states->kind == CKPT_OBJECT_LIST && r->groups == NULL)
    CKPT_TRY(ckpt_index_note(zero->index, false, err,
                             "its optimizer files have no param_groups (elastic_checkpoint), so that hyperparameters "
                             "are not known"));
  zero->loss_scaler = ckpt_object_get(r->inner, "loss_scaler");
  CKPT_TRY(ckpt_zero_find_slots(zero, r, err));
  return read_parts(zero, r, err);
}

static ckpt_status read_rank(ckpt_zero *zero, const ckpt_zero_rank *r, uint32_t shard, uint32_t rank, ckpt_error *err) {
  CKPT_TRY(ckpt_zero_add_flats(zero, r, err));
  if (zero->stage == 3) return cut_rank(zero, &zero->shards[shard], rank, r->file.path, err);
  const ckpt_object *mappings = ckpt_object_get(r->inner, "param_slice_mappings");
  return mappings == NULL ? CKPT_OK : map_rank(zero, r, shard, rank, mappings, err);
}

/* The ranks of a shard, the first of which is opened. first: of the first shard, which says what all have to say. */
static ckpt_status read_ranks(ckpt_zero *zero, uint32_t number, const ckpt_zero_rank *own, const ckpt_zero_rank *first,
                              ckpt_error *err) {
  const bool is_mapped = ckpt_object_get(own->inner, "param_slice_mappings") != NULL;
  const uint32_t first_piece = zero->n_pieces;
  zero->is_mapped = zero->is_mapped || is_mapped;
  ckpt_zero_shard *shard = &zero->shards[number];
  shard->first_flat = zero->n_flats;
  CKPT_TRY(read_rank(zero, own, number, 0, err));
  for (uint32_t rank = 1; rank < zero->world; rank++) {
    ckpt_zero_rank r = {.stage = -1};
    ckpt_status status = open_rank(&r, zero, number, rank, err);
    if (status == CKPT_OK) status = compare_ranks(zero, &r, first, err);
    if (status == CKPT_OK && (ckpt_object_get(r.inner, "param_slice_mappings") != NULL) != is_mapped)
      status = ckpt_zero_bad_rank(&r, "param_slice_mappings on some ranks alone", err);
    if (status == CKPT_OK) status = read_rank(zero, &r, number, rank, err);
    ckpt_zero_close(&r.file);
    CKPT_TRY(status);
  }
  if (zero->stage < 3 && shard->n_shapes > zero->n_groups)
    return ckpt_fail(err, CKPT_EFORMAT, own->file.path, NULL, "%u group%s, and param_shapes has %u", zero->n_groups,
                     ckpt_plural(zero->n_groups), shard->n_shapes);
  const ckpt_object *paddings = ckpt_object_get(own->inner, "param_alignment_paddings");
  if (zero->stage < 3) CKPT_TRY(order_groups(zero, shard, first_piece, paddings, is_mapped, err));
  return check_groups(zero, shard, paddings, err);
}

static ckpt_status read_shard(ckpt_zero *zero, uint32_t number, const ckpt_zero_rank *first, ckpt_error *err) {
  ckpt_zero_rank own = {.stage = -1};
  ckpt_status status = open_rank(&own, zero, number, 0, err);
  if (status == CKPT_OK) status = compare_ranks(zero, &own, first, err);
  if (status == CKPT_OK) status = read_ranks(zero, number, &own, first, err);
  ckpt_zero_close(&own.file);
  return status;
}

ckpt_status ckpt_zero_read_ranks(ckpt_zero *zero, ckpt_error *err) {
  const ckpt_zero_files *files = &zero->optimizers;
  ckpt_zero_rank first = {.stage = -1};
  ckpt_status status;
  if (files->n_shards != zero->n_shards) /* of the kind that has fewer, one is missing */
    return files->n_shards < zero->n_shards
               ? ckpt_zero_missing(zero, files, files->n_shards, 0, (uint64_t)files->n * files->n_shards,
                                   (uint64_t)files->n * zero->n_shards, err)
               : ckpt_zero_missing(zero, &zero->models, zero->n_shards, 0, (uint64_t)zero->models.n * zero->n_shards,
                                   (uint64_t)zero->models.n * files->n_shards, err);
  CKPT_TRY_GOTO(open_rank(&first, zero, 0, 0, err));
  CKPT_TRY_GOTO(read_first(zero, &first, err));
  CKPT_TRY_GOTO(read_ranks(zero, 0, &first, &first, err));
  for (uint32_t i = 1; i < zero->n_shards; i++) CKPT_TRY_GOTO(read_shard(zero, i, &first, err));
  ckpt_zero_keep(&first.file, zero, NULL);
done:
  ckpt_zero_close(&first.file);
  return status;
}
