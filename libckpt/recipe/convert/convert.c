/* convert.c - see convert.h. */
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/plan/equal.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/float_env.h"
#include "libckpt/base/group.h"
#include "libckpt/base/options.h"
#include "libckpt/base/pattern.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/masters.h"
#include "libckpt/recipe/adapter/forms.h"
#include "libckpt/recipe/convert/form.h"
#include "libckpt/recipe/convert/graph.h"
#include "libckpt/recipe/convert/metadata.h"
#include "libckpt/recipe/convert/training.h"
#include "libckpt/recipe/convert/updates.h"
#include "libckpt/recipe/quantize/quantized.h"
#include "libckpt/recipe/records/modules.h"
#include "libckpt/run/run.h"

/* What rows decide while they are added: for config.json's dtype and for what is said afterwards. */
typedef struct totals {
  uint64_t n_bytes[CKPT_N_DTYPES]; /* of parameters, as written */
  bool is_cast[CKPT_N_DTYPES];     /* some of them were cast to it */
  bool is_asked;                   /* some tensor has the dtype that a rule gives it */
  bool drops_ties;                 /* a tie of which both sides are stored is written once */
} totals;

/* The floating dtype that most parameter bytes have, or NONE. */
static ckpt_dtype most_written(const totals *t) {
  int most = CKPT_DTYPE_NONE;
  for (int i = 1; i < CKPT_N_DTYPES; i++)
    if (ckpt_dtype_is_float((ckpt_dtype)i) && t->n_bytes[i] > t->n_bytes[most]) most = i;
  return (ckpt_dtype)most;
}

/* Name by which config.json knows a dtype, that of torch; NULL where no model can be loaded in it. */
static const char *config_dtype(ckpt_dtype dtype) {
  switch (dtype) {
    case CKPT_F64: return "float64";
    case CKPT_F32: return "float32";
    case CKPT_F16: return "float16";
    case CKPT_BF16: return "bfloat16";
    case CKPT_F8_E4M3: return "float8_e4m3fn";
    case CKPT_F8_E5M2: return "float8_e5m2";
    case CKPT_F8_E4M3FNUZ: return "float8_e4m3fnuz";
    case CKPT_F8_E5M2FNUZ: return "float8_e5m2fnuz";
    default: return NULL;
  }
}

/* Masters that stand for parameters were not left out: they were read as these. */
static ckpt_left_out less_standing(const ckpt_left_out *left_out, const ckpt_index *from) {
  ckpt_left_out rest = *left_out;
  for (uint32_t i = 0; i < from->n_tensors && rest.n_tensors[CKPT_ROLE_MASTER] != 0; i++) {
    if (!ckpt_master_stands(from, &from->tensors[i])) continue;
    rest.n_tensors[CKPT_ROLE_MASTER]--;
    rest.n_bytes[CKPT_ROLE_MASTER] -= from->tensors[i].n_bytes;
  }
  return rest;
}

/* What is no part of the model is not in its dialect. */
static void count_left(ckpt_left_out *left_out, const ckpt_index *from) {
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    if (ckpt_role_is_model((ckpt_role)tensor->role) || ckpt_master_stands(from, tensor)) continue;
    left_out->n_tensors[tensor->role]++;
    left_out->n_bytes[tensor->role] += tensor->n_bytes;
  }
}

/* holds_all: the output could have had the roles that are left out. */
static ckpt_status say_left_out(ckpt_output *output, const ckpt_index *from, const char *include, bool holds_all,
                                const ckpt_left_out *left_out, ckpt_error *err) {
  char size[32];
  for (int role = 0; role < CKPT_N_ROLES; role++)
    if (left_out->n_tensors[role] != 0)
      CKPT_TRY((holds_all ? ckpt_losses_add_by_include : ckpt_losses_add)(
          &output->losses, err, "%s %s", ckpt_role_name((ckpt_role)role),
          ckpt_text_size(left_out->n_bytes[role], size)));
  if (left_out->n_unmatched != 0)
    CKPT_TRY(ckpt_losses_add(&output->losses, err, "%llu tensor%s by pattern",
                             (unsigned long long)left_out->n_unmatched, ckpt_plural(left_out->n_unmatched)));
  const ckpt_name_list unread = ckpt_unread_list(from, include, output->format->caps.unread);
  if (unread.n != 0)
    CKPT_TRY(ckpt_losses_add(&output->losses, err, "%zu tensor%s not read (%s)", unread.n,
                             unread.n == 1 ? " that is" : "s that are", unread.text));
  return CKPT_OK;
}

/* Whether a trainer's file whose tensors were read goes along as the file that it is: into a folder whose format has no
 * states of its own. Elsewhere its tensors go. */
static bool goes_as_file(const ckpt_side_file *side, const ckpt_format *format) {
  return side->is_read && format->caps.side_files && !format->caps.training_state;
}

/* Whether a tensor goes along in such a file. */
static bool goes_in_file(const ckpt_index *from, const ckpt_tensor *tensor, const ckpt_format *format) {
  if (ckpt_role_is_model((ckpt_role)tensor->role) || tensor->n_extents == 0) return false;
  for (uint32_t i = 0; i < from->n_side_files; i++)
    if (goes_as_file(&from->side_files[i], format) && from->side_files[i].file == tensor->extents[0].file) return true;
  return false;
}

/* Its other names, and what it lost of them. */
static ckpt_status add_names(ckpt_output *output, const ckpt_selected *selected, ckpt_error *err) {
  ckpt_index *described = output->described;
  const uint32_t number = described->n_tensors - 1;
  const ckpt_role role = (ckpt_role)described->tensors[number].role;
  size_t n_aliases = 0, n_dropped = 0;
  while (selected->aliases != NULL && selected->aliases[n_aliases] != NULL) n_aliases++;
  for (size_t i = 0; i < n_aliases; i++)
    CKPT_TRY(ckpt_index_alias_as(described, number, selected->aliases[i],
                                 i + selected->n_extra < n_aliases ? role : CKPT_ROLE_OTHER, err));
  while (selected->dropped != NULL && selected->dropped[n_dropped] != NULL) n_dropped++;
  for (size_t i = 0; i < n_dropped; i++)
    CKPT_TRY(ckpt_losses_add(&output->losses, err, "name %s (of %s) %s", selected->dropped[i], selected->name,
                             i + selected->n_extra_dropped < n_dropped ? "by pattern" : "of role other"));
  return CKPT_OK;
}

/* Where a rule casts every tensor, those stay as they are that the graph needs so; at least one is as it was asked.
 * why: of the first. */
static ckpt_status say_kept(ckpt_output *output, const ckpt_index *from, const ckpt_name_list *kept, const char *why,
                            const totals *t, ckpt_error *err) {
  if (kept->n == 0) return CKPT_OK;
  if (t->is_asked)
    return ckpt_losses_add(&output->losses, err, "%zu tensor%s in another dtype, as the graph works with %s (%s)",
                           kept->n, ckpt_plural(kept->n), kept->n == 1 ? "it" : "them", kept->text);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, from->path, NULL,
                   "the graph works with its tensors as they are, and none can be given another dtype (%s): of the "
                   "first, %s",
                   kept->text, why);
}

/* Whether a format of Hugging Face's names has no place for a value's blocks. */
static bool is_block_nowhere(const ckpt_format *format, const ckpt_expr *expr) {
  return ckpt_dtype_is_block((ckpt_dtype)expr->dtype) && (format->caps.dtypes >> expr->dtype & 1) == 0;
}

/* Adds a tensor's row; where a reader of the output finds other tensors than are written, rows for their digests. A
 * stack is written as these, one below the other, so that each is computed once. */
static ckpt_status add_row(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr, const ckpt_index *from,
                           const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_output *output = &plan->outputs[sink];
  ckpt_expr **read = NULL;
  uint64_t n = 0;
  uint32_t row = 0, other = 0;
  if (output->format->caps.dialect)
    CKPT_TRY(ckpt_dialect_as_read(&read, &n, plan, output->described, name, from, tensor, expr, err));
  if (n > 1) {
    ckpt_expr **parts = ckpt_arena_array(&plan->arena, n, sizeof *parts);
    CKPT_TRY_ALLOC(parts, err);
    memcpy(parts, read, n * sizeof *parts);
    CKPT_TRY(ckpt_dialect_stack(&expr, &plan->arena, parts, n, err));
  }
  CKPT_TRY(ckpt_plan_add_like(plan, sink, name, expr, tensor, &row, err));
  for (uint64_t i = 0; i < n; i++) {
    CKPT_TRY(ckpt_plan_add_like(plan, CKPT_NO_SINK, tensor->name, read[i], tensor, &other, err));
    if (i == 0) plan->rows[row].as_read = other + 1;
  }
  return CKPT_OK;
}

/* The model whose graph an output gets; NULL: none. */
static const ckpt_index *graph_of(const ckpt_convert_request *request) {
  return ckpt_further_index(&request->further, "graph");
}

static bool has_any(const char *const *list) { return list != NULL && *list != NULL; }

/* The second copy of a tie that the config states goes into no folder of Hugging Face's where the input's writer had no
 * choice (a DCP folder), or --like shows how the model has it: nothing chooses among its tensors, so both are there. */
static bool drops_ties(const ckpt_output *output, const ckpt_convert_request *request) {
  const ckpt_convert_options *options = request->options;
  for (size_t i = 0; i < options->n_casts; i++)
    if (options->casts[i].pattern != NULL) return false;
  return output->format->caps.side_files && !output->format->caps.aliases && output->quantized == NULL &&
         graph_of(request) == NULL && !has_any(options->match) && !has_any(options->exclude) &&
         !has_any(options->rename) && ckpt_index_side_file(output->described, "config.json") != NULL &&
         (ckpt_caps_of(request->from).items || request->like != NULL);
}

/* What the config ties a tensor to, where both are stored; NULL: nothing. */
static const ckpt_tensor *tied_to(const ckpt_index *from, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(from, i, &kept, &tied); i++)
    if (tied == tensor && ckpt_tensor_same_shape(kept, tied) && kept->dtype == tied->dtype) return kept;
  return NULL;
}

/* What a run goes on from is rounded where a pattern names it, and that is said. */
static ckpt_status say_cast_states(ckpt_output *output, const ckpt_name_list *states, ckpt_error *err) {
  if (states->n == 0) return CKPT_OK;
  CKPT_TRY(ckpt_index_note(output->described, false, err,
                           "a pattern casts %zu tensor%s of the optimizer (%s): a run that goes on from %s is another",
                           states->n, ckpt_plural(states->n), states->text, states->n == 1 ? "it" : "them"));
  return ckpt_index_note_is(output->described, CKPT_NOTE_DOUBT, NULL, err);
}

/* The '@' of a name like NAME@R, which a rank other than the first has of a weight with other values; NULL: of none. */
static const char *rank_mark(const ckpt_index *from, const ckpt_tensor *tensor) {
  const char *at = strrchr(tensor->name, '@');
  const bool is_number = at != NULL && at[1] != '\0' && at[1 + strspn(at + 1, "0123456789")] == '\0';
  const bool is_weight = tensor->role == CKPT_ROLE_PARAMETER && ckpt_dtype_is_float((ckpt_dtype)tensor->dtype);
  return is_number && is_weight && ckpt_caps_of(from).items ? at : NULL;
}

/* A model has one of each. A training state keeps them all, as the ranks do. */
static ckpt_status refuse_drift(const ckpt_index *from, const ckpt_tensor *tensor, const ckpt_format *format,
                                ckpt_arena *arena, ckpt_error *err) {
  const char *at = format->caps.training_state ? NULL : rank_mark(from, tensor);
  if (at == NULL) return CKPT_OK;
  const char *name = ckpt_arena_text(arena, tensor->name, (size_t)(at - tensor->name));
  CKPT_TRY_ALLOC(name, err);
  if (ckpt_index_find(from, name) == NULL) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EDIFFERENT, NULL, NULL,
                               "has other values than the first rank's: the ranks have drifted, and a model has one"),
                     err, "%exclude=*@* takes the first rank's");
}

static ckpt_status add_rows(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_selection *selection,
                            bool is_quantized, totals *t, ckpt_error *err) {
  const ckpt_quantize_decisions *quantized = plan->outputs[sink].quantized;
  const ckpt_format *format = plan->outputs[sink].format;
  const bool keeps_graph = format->caps.graph && from->graph != NULL; /* which gets what it works with */
  ckpt_name_list kept = {.n = 0}, states = {.n = 0};
  const char *why_first = NULL;
  uint32_t n_widened = 0;
  for (uint32_t k = 0; k < from->n_tensors; k++) {
    const uint32_t i = quantized == NULL ? k : quantized->order[k];
    const ckpt_tensor *tensor = &from->tensors[i];
    ckpt_selected selected;
    if (goes_in_file(from, tensor, format)) continue;
    ckpt_status status = ckpt_selection_take(selection, tensor, &plan->arena, &selected, err);
    if (status == CKPT_OK && selected.name == NULL) continue;
    if (status == CKPT_OK) status = refuse_drift(from, tensor, format, &plan->arena, err);
    const ckpt_tensor *same = status == CKPT_OK && t->drops_ties ? tied_to(from, tensor) : NULL;
    if (same != NULL) {
      CKPT_TRY(ckpt_plan_add_equal(plan, from, same, tensor, err));
      continue;
    }
    ckpt_expr *expr = NULL;
    const char *why = NULL;
    if (status == CKPT_OK && selected.is_any_cast && selected.dtype != (ckpt_dtype)tensor->dtype &&
        format->keeps_dtype != NULL)
      why = format->keeps_dtype(from, tensor);
    if (why != NULL) {
      selected.dtype = CKPT_DTYPE_NONE;
      if (why_first == NULL) why_first = why;
      ckpt_name_list_add(&kept, tensor->name);
    }
    if (status == CKPT_OK && quantized != NULL)
      status = ckpt_quantize_expr(&expr, plan, from, i, quantized, err);
    else if (status == CKPT_OK)
      status = ckpt_expr_read(&expr, plan, from, tensor, err);
    if (status == CKPT_OK && quantized == NULL && selected.dtype != CKPT_DTYPE_NONE &&
        selected.dtype != (ckpt_dtype)tensor->dtype) {
      if (!keeps_graph) status = ckpt_refuse_quantized(from, tensor, is_quantized, err);
      if (status == CKPT_OK) status = ckpt_expr_cast(&expr, plan, expr, selected.dtype, err);
      const bool is_state = !ckpt_role_is_model((ckpt_role)tensor->role) && tensor->role != CKPT_ROLE_OTHER;
      if (is_state) ckpt_name_list_add(&states, tensor->name);
    }
    if (status == CKPT_OK && from->stored_form != NULL && is_block_nowhere(format, expr)) {
      status = ckpt_expr_cast(&expr, plan, expr, CKPT_F32, err);
      n_widened++;
    }
    if (status == CKPT_OK) status = add_row(plan, sink, selected.name, expr, from, tensor, err);
    if (status == CKPT_OK) status = add_names(&plan->outputs[sink], &selected, err);
    if (status != CKPT_OK) return ckpt_fail_at(status, err, from->path, tensor->name);
    if (tensor->role == CKPT_ROLE_PARAMETER) t->n_bytes[expr->dtype] += expr->n_bytes;
    t->is_cast[expr->dtype] = t->is_cast[expr->dtype] || expr->dtype != tensor->dtype;
    t->is_asked = t->is_asked || expr->dtype == selected.dtype;
  }
  CKPT_TRY(say_kept(&plan->outputs[sink], from, &kept, why_first, t, err));
  CKPT_TRY(say_cast_states(&plan->outputs[sink], &states, err));
  if (n_widened != 0)
    CKPT_TRY(ckpt_losses_add(&plan->outputs[sink].losses, err, "the blocks of %u tensor%s, which became f32, exactly",
                             n_widened, ckpt_plural(n_widened)));
  ckpt_status status = ckpt_selection_finish(selection, err);
  if (status == CKPT_ENOTFOUND && from == plan->dialect)
    status = ckpt_advise(status, err, "names here are those of the output's dialect, as in blk.0.attn_q.weight");
  if (status == CKPT_ENOTFOUND && from == plan->apart)
    status = ckpt_advise(status, err, "names here are those that save_pretrained writes");
  return ckpt_fail_at(status, err, from->path, NULL);
}

/* Once masters do not stand for parameters any more. */
static void count_parameters(totals *t, const ckpt_index *described) {
  memset(t->n_bytes, 0, sizeof t->n_bytes);
  for (uint32_t i = 0; i < described->n_tensors; i++)
    if (described->tensors[i].role == CKPT_ROLE_PARAMETER)
      t->n_bytes[described->tensors[i].dtype] += described->tensors[i].n_bytes;
}

/* The dtype that a tensor of this name is written in; NONE: there is none. */
static ckpt_dtype written_dtype(const ckpt_output *output, const char *name) {
  const ckpt_index *described = output->described; /* not sorted yet */
  uint32_t i = 0;
  while (i < described->n_tensors && strcmp(described->tensors[i].name, name) != 0) i++;
  return i == described->n_tensors ? CKPT_DTYPE_NONE : (ckpt_dtype)described->tensors[i].dtype;
}

/* A tie of which both sides are stored stays one: rules for one of them would make two of it. */
static ckpt_status refuse_untying(const ckpt_output *output, const ckpt_index *from, ckpt_error *err) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(from, i, &kept, &tied); i++) {
    ckpt_dtype a = written_dtype(output, kept->name), b = written_dtype(output, tied->name);
    if (kept->dtype == tied->dtype && a != CKPT_DTYPE_NONE && b != CKPT_DTYPE_NONE && a != b)
      return ckpt_fail_at(ckpt_advise_value(ckpt_fail_option(err, CKPT_EINVAL, from->path, "dtype",
                                                             "makes it %s and %s %s, but config.json ties them",
                                                             ckpt_dtype_name(b), kept->name, ckpt_dtype_name(a)),
                                            err, "give both one dtype, or %exclude=$", tied->name),
                          err, NULL, tied->name);
  }
  return CKPT_OK;
}

/* Of a tie of which both sides are stored, one can be left out: who reads the output takes the other for both. */
static ckpt_status say_tied(ckpt_output *output, const ckpt_index *from, ckpt_error *err) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; output->format->caps.side_files && ckpt_arch_tied_pair(from, i, &kept, &tied); i++) {
    const bool has_kept = written_dtype(output, kept->name) != CKPT_DTYPE_NONE;
    if (has_kept == (written_dtype(output, tied->name) != CKPT_DTYPE_NONE)) continue;
    const char *stays = has_kept ? kept->name : tied->name, *goes = has_kept ? tied->name : kept->name;
    CKPT_TRY(ckpt_losses_add(&output->losses, err,
                             "values of %s (config.json ties it to %s, whose values stand for both)", goes, stays));
  }
  return CKPT_OK;
}

/* Side files, naming and ties come from the model of --like; metadata and objects stay those of the input. */
static ckpt_status carry(ckpt_plan *plan, uint32_t sink, const ckpt_convert_request *request, ckpt_error *err) {
  const ckpt_index *like = request->like;
  CKPT_TRY(ckpt_plan_carry(plan, sink, graph_of(request) != NULL ? graph_of(request) : request->from, err));
  if (like == NULL || ckpt_adapter_kind_of(request->from) != CKPT_ADAPTER_NONE) return CKPT_OK; /* its base */
  ckpt_output *output = &plan->outputs[sink];
  ckpt_index *described = output->described;
  output->carried = like;
  described->architecture = like->architecture;
  described->names = like->names;
  described->ties = like->ties;
  described->n_side_files = 0;
  for (uint32_t i = 0; i < like->n_side_files; i++) {
    const ckpt_side_file *side = &like->side_files[i];
    CKPT_TRY(ckpt_index_add_side_file(described, side->name, side->file, side->n_bytes, err));
    described->side_files[described->n_side_files - 1].text = side->text;
  }
  return CKPT_OK;
}

/* Files of a trainer's state go where all of a checkpoint goes (those of its optimizer not without it), with the
 * input's own weights and not with --like's; generators of random numbers with the ranks that are left. */
static ckpt_status choose_training(ckpt_output *output, const ckpt_convert_request *request, uint32_t world,
                                   ckpt_error *err) {
  const char *include = ckpt_convert_include(request->options, output->format);
  const bool is_all = strcmp(include, "all") == 0, is_rest = strcmp(include, "no-optimizer") == 0;
  const ckpt_index *from = request->from;
  ckpt_index *described = output->described;
  uint32_t n_kept = 0;
  for (uint32_t i = 0; i < described->n_side_files; i++)
    if (!ckpt_side_file_is_training(described->side_files[i].name))
      described->side_files[n_kept++] = described->side_files[i];
  described->n_side_files = n_kept;
  uint32_t n_left = 0, n_ranks = 0;
  const char *first = NULL, *first_rank = NULL;
  for (uint32_t i = 0; i < from->n_side_files; i++) {
    const ckpt_side_file *side = &from->side_files[i];
    if (!ckpt_side_file_is_training(side->name)) continue;
    if (goes_as_file(side, output->format))
      ckpt_index_set_objects(described, NULL, NULL); /* the groups in it */
    else if (side->is_read)
      continue;
    const bool is_optimizer = strcmp(ckpt_side_file_role(side->name), "optimizer") == 0;
    if (!is_all && (!is_rest || is_optimizer)) {
      if (n_left++ == 0) first = side->name;
    } else if (world != 0 && ckpt_side_file_rank(side->name) >= (int64_t)world) {
      if (n_ranks++ == 0) first_rank = side->name;
    } else {
      CKPT_TRY(ckpt_index_add_side_file(described, side->name, side->file, side->n_bytes, err));
      described->side_files[described->n_side_files - 1].source = from->source;
    }
  }
  if (n_left != 0)
    CKPT_TRY(ckpt_losses_add_by_include(&output->losses, err, "%u file%s of training state (%.100s%s)", n_left,
                                        ckpt_plural(n_left), first, n_left == 1 ? "" : ", ..."));
  if (n_ranks == 0) return CKPT_OK;
  return ckpt_losses_add(&output->losses, err, "%u file%s of ranks beyond %u (%.100s%s)", n_ranks, ckpt_plural(n_ranks),
                         world, first_rank, n_ranks == 1 ? "" : ", ...");
}

/* An output of a replay: described, but written nowhere. */
static ckpt_status add_discarded(ckpt_plan *plan, const ckpt_convert_target *target, uint32_t *sink, ckpt_error *err) {
  const ckpt_format *format = target->to == NULL ? NULL : ckpt_format_find(target->to);
  if (format == NULL || format->layout == NULL)
    return ckpt_fail(err, CKPT_EINVAL, target->path, NULL, "format '%s' is none that can be written",
                     target->to == NULL ? "" : target->to);
  const bool is_folder = format->caps.is_folder || (format->caps.shards && ckpt_text_ends(target->path, "/"));
  const ckpt_layout_options options = {.is_folder = is_folder, .name = is_folder ? NULL : ckpt_path_name(target->path)};
  ckpt_sink *discarding;
  CKPT_TRY(ckpt_sink_nothing(&discarding, err));
  CKPT_TRY(ckpt_plan_output_sink(plan, discarding, format, &options, sink, err));
  plan->outputs[*sink].path = ckpt_arena_copy(&plan->arena, target->path);
  CKPT_TRY_ALLOC(plan->outputs[*sink].path, err);
  return CKPT_OK;
}

/* One dtype for a GGUF model is what llama.cpp's converter calls its outtype, a preset like others: what is small or
 * delicate keeps its own. NULL where that is not what was asked for. */
static const ckpt_preset *outtype(const ckpt_convert_request *request, const ckpt_index *from, bool is_dialect,
                                  const ckpt_format *to) {
  const ckpt_convert_options *options = request->options;
  if (!to->caps.presets || !ckpt_quantize_knows(from) || ckpt_adapter_kind_of(from) != CKPT_ADAPTER_NONE) return NULL;
  if (is_dialect && options->n_casts == 0) return ckpt_preset_find(ckpt_dtype_name(ckpt_dialect_auto(request->from)));
  if (is_dialect && options->n_casts == 1 && options->casts[0].pattern == NULL && options->casts[0].dtype == CKPT_Q8_0)
    return ckpt_preset_find("Q8_0");
  if (options->n_casts != 1 || options->casts[0].pattern != NULL || ckpt_dtype_is_block(options->casts[0].dtype))
    return NULL;
  return ckpt_preset_find(ckpt_dtype_name(options->casts[0].dtype));
}

/* A block type is no cast, but an outtype. */
static ckpt_status refuse_block_casts(const ckpt_convert_options *options, const char *path, ckpt_error *err) {
  for (size_t i = 0; i < options->n_casts; i++)
    if (ckpt_dtype_is_block(options->casts[i].dtype))
      return ckpt_advise(ckpt_fail(err, CKPT_EINVAL, path, NULL, "%s is a block type, which no cast gives",
                                   ckpt_dtype_name(options->casts[i].dtype)),
                         err, "ckpt quantize");
  return CKPT_OK;
}

/* ---- targets ----------------------------------------------------------------------------------------------------- */

/* The folder that the paths of linked data are from. */
static ckpt_status set_folder(ckpt_plan *plan, ckpt_output *output, ckpt_error *err) {
  char real[PATH_MAX];
  const size_t n = (size_t)(ckpt_path_name(output->path) - output->path);
  const char *folder = n == 0 ? "." : ckpt_arena_text(&plan->arena, output->path, n);
  CKPT_TRY_ALLOC(folder, err);
  if (realpath(folder, real) == NULL) return ckpt_fail_errno(err, output->path, "the folder above cannot be used");
  output->options.folder = ckpt_arena_copy(&plan->arena, real);
  CKPT_TRY_ALLOC(output->options.folder, err);
  return CKPT_OK;
}

/* Whether an output is to say where the inputs' data are. */
static bool links(const ckpt_format_values *values) {
  for (size_t i = 0; i < values->n; i++) {
    const ckpt_format_option *option = ckpt_format_option_known(values->items[i].name, NULL);
    if (option != NULL && option->links && ckpt_format_value_is_given(&values->items[i])) return true;
  }
  return false;
}

/* What is asked of formats, of which one at least must have a use for it. */
static ckpt_status check_values(const ckpt_plan *plan, const ckpt_convert_target *target, ckpt_error *err) {
  for (size_t i = 0; i < target->values.n; i++) {
    const ckpt_format_value *value = &target->values.items[i];
    const char *of = NULL;
    bool is_taken = !ckpt_format_value_is_given(value);
    for (uint32_t k = 0; k < plan->n_outputs && !is_taken; k++)
      is_taken = ckpt_format_option_find(plan->outputs[k].format->options, value->name) != NULL;
    if (is_taken) continue;
    const ckpt_format_option *option = ckpt_format_option_known(value->name, &of);
    if (option == NULL)
      return ckpt_fail_option(err, CKPT_EINVAL, target->path, "values", "'%.80s' is an option of no format",
                              value->name);
    return ckpt_fail_option(err, CKPT_EINVAL, target->path, option->name, "%s has no such option (%s has)",
                            plan->outputs[0].format->name, of);
  }
  return CKPT_OK;
}

/* The same of a folder's files: whether a size that they are cut by is asked for, and no output is cut by it. */
static ckpt_status check_shard_size(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err) {
  const char *path = request->targets[0].path, *other = NULL;
  bool is_asked = false, is_cut = false;
  for (uint32_t i = 0; i < request->n_targets; i++) {
    const ckpt_output *output = &plan->outputs[i];
    is_asked = is_asked || request->targets[i].shard_size != 0;
    is_cut = is_cut || (output->options.is_folder && output->format->caps.cut_by_size);
    if (output->options.is_folder) other = output->format->name;
  }
  if (!is_asked || is_cut) return CKPT_OK;
  if (other != NULL)
    return ckpt_fail_option(err, CKPT_EINVAL, path, "shard_size", "files of %s are not cut by size", other);
  return ckpt_advise(
      ckpt_fail_option(err, CKPT_EINVAL, path, "shard_size", "it cuts a folder's files, and this is one file"), err,
      "%output=FOLDER/");
}

static ckpt_status check_outputs(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err) {
  const char *path = request->targets[0].path;
  const bool is_adapter = ckpt_adapter_kind_of(request->from) != CKPT_ADAPTER_NONE;
  if (ckpt_form_pre(request) != NULL && (plan->dialect == NULL || is_adapter))
    return ckpt_fail_option(err, CKPT_EINVAL, path, "pre", "no output is made into another dialect");
  for (uint32_t i = 0; i < request->n_targets; i++) CKPT_TRY(check_values(plan, &request->targets[i], err));
  return check_shard_size(plan, request, err);
}

/* Whether one of several outputs has metadata to be edited, for those that have none. */
static bool has_editable(const ckpt_convert_request *request) {
  for (uint32_t i = 0; i < request->n_targets; i++) {
    const ckpt_convert_target *target = &request->targets[i];
    const ckpt_format *to = target->to != NULL ? ckpt_format_find(target->to) : ckpt_format_of_suffix(target->path);
    if (to != NULL && to->caps.typed_metadata) return true;
  }
  return false;
}

typedef struct modules {
  ckpt_index *described;
  bool has_casts;
} modules;

/* A module goes along as it is: one that cannot be read is no part of a model that anybody can load. */
static ckpt_status take_module(void *arg, const ckpt_module *module, const ckpt_index *index, const ckpt_error *defect,
                               ckpt_error *err) {
  const modules *m = arg;
  if (index == NULL) return ckpt_fail_as(err, defect->status, defect->file, defect->tensor, defect);
  if (!m->has_casts) return CKPT_OK;
  CKPT_TRY(ckpt_index_note(m->described, false, err, "%s/ is carried as it is: dtype casts tensors of the model itself",
                           module->path));
  return ckpt_index_note_is(m->described, CKPT_NOTE_DOUBT, NULL, err);
}

/* Modules that are carried among the side files. */
static ckpt_status check_modules(ckpt_output *output, const ckpt_convert_request *request, ckpt_error *err) {
  modules m = {.described = output->described, .has_casts = request->options->n_casts != 0};
  const ckpt_index *of = output->carried != NULL ? output->carried : request->from;
  if (!output->format->caps.side_files || ckpt_index_side_file(output->described, "modules.json") == NULL)
    return CKPT_OK;
  return ckpt_modules_open(of, NULL, take_module, &m, err);
}

/* A dtype that config.json cannot name is for files alone. */
static ckpt_status check_nameable(const ckpt_output *output, ckpt_dtype dtype, const char *path, ckpt_error *err) {
  if (config_dtype(dtype) != NULL || !output->format->caps.side_files ||
      ckpt_index_side_file(output->described, "config.json") == NULL)
    return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                               "config.json has no name for %s, no model can be loaded in it", ckpt_dtype_name(dtype)),
                     err, "a file, %output=NAME.safetensors, can hold it");
}

/* A graph goes into formats that have one, and what they write is run by one: the input's own or another model's. */
static ckpt_status check_graph(const ckpt_output *output, const ckpt_convert_request *request, ckpt_error *err) {
  const bool takes = output->format->caps.graph;
  const ckpt_index *graph = graph_of(request);
  if (graph != NULL && !takes)
    return ckpt_fail_option(err, CKPT_EINVAL, output->path, "graph", "%s has none (it is for *.onnx)",
                            output->format->name);
  if (graph != NULL && graph->graph == NULL)
    return ckpt_fail_option(err, CKPT_EINVAL, graph->path, "graph", "the model has no graph");
  if (!takes || graph != NULL || request->from->graph != NULL) return CKPT_OK;
  return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, request->from->path, NULL,
                               "has no graph, and an %s model cannot run without one", output->format->name),
                     err, "%graph=MODEL.onnx");
}

static ckpt_status add_target(ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_convert_target *target,
                              bool is_quantized, uint64_t *n_steps, ckpt_error *err) {
  const ckpt_convert_options *options = request->options;
  uint32_t sink;
  if (request->discards)
    CKPT_TRY(add_discarded(plan, target, &sink, err));
  else
    CKPT_TRY(ckpt_plan_output(plan, target->path, target->to, options->force, &sink, err));
  ckpt_output *output = &plan->outputs[sink];
  CKPT_TRY(ckpt_format_values_check(&target->values, output->format->options, target->path, err));
  output->options.shard_size = target->shard_size;
  output->options.world = target->world;
  output->options.values = target->values;
  if (links(&target->values)) output->options.folder = request->folder;
  if (links(&target->values) && !request->discards) CKPT_TRY(set_folder(plan, output, err));
  CKPT_TRY(check_graph(output, request, err));
  ckpt_selection *selection = NULL;
  totals t = {0};
  ckpt_status status;
  const ckpt_index *from = request->from;
  const bool is_adapter = ckpt_adapter_kind_of(from) != CKPT_ADAPTER_NONE;
  CKPT_TRY(ckpt_form_choose(&from, plan, request, output->format, err));
  CKPT_TRY(ckpt_form_refuse_misfit(request, output->format, err));
  const ckpt_index *named = from == plan->apart ? from : request->from; /* that has the ties of the output's names */
  if (from == named)
    CKPT_TRY(carry(plan, sink, request, err));
  else
    CKPT_TRY(ckpt_plan_carry(plan, sink, from, err));
  if (from == plan->dialect) CKPT_TRY(ckpt_form_tell_notes(output, from, is_adapter, err));
  if (request->from->stored_form != NULL && request->like == NULL && output->format->caps.side_files)
    CKPT_TRY(ckpt_dialect_hf_files(output->described, request->from, &output->losses, err));
  CKPT_TRY(choose_training(output, request, target->world, err));
  CKPT_TRY(check_modules(output, request, err));
  static const ckpt_quantize_options plain = {.allow_requantize = true}; /* to what is no block type */
  static const ckpt_quantize_options converter = {.pure = true, .allow_fallback = true, .keeps_order = true};
  const ckpt_preset *preset =
      target->preset != NULL ? target->preset : outtype(request, from, from == plan->dialect, output->format);
  if (preset == NULL) CKPT_TRY(refuse_block_casts(options, target->path, err));
  if (target->preset != NULL) output->retyping = "%tensor_types=REGEX=TYPE gives it another, or %allow_overflow";
  if (preset != NULL)
    CKPT_TRY(ckpt_quantize_decide(plan, sink, from, preset,
                                  target->preset != NULL  ? request->quantize
                                  : from != plan->dialect ? &plain
                                                          : &converter,
                                  n_steps, err));
  if (output->format->caps.typed_metadata || !has_editable(request)) CKPT_TRY(ckpt_metadata_edit(output, err));
  CKPT_TRY(ckpt_selection_new(&selection, options, ckpt_convert_include(options, output->format), n_steps, err));
  CKPT_TRY_GOTO(ckpt_selection_refuse_unread(selection, request->from, output->format->caps.unread,
                                             output->format->caps.side_files, err));
  t.drops_ties = drops_ties(output, request);
  ckpt_graph_request graph;
  CKPT_TRY_GOTO(ckpt_graph_request_of(&graph, &request->further, &target->values, request->from->path, err));
  CKPT_TRY_GOTO(graph.graph != NULL ? ckpt_graph_rows(plan, sink, &graph, request->from, selection, is_quantized, err)
                                    : add_rows(plan, sink, from, selection, is_quantized, &t, err));
  if (output->format->caps.masters) {
    CKPT_TRY_GOTO(ckpt_training_rows(plan, sink, request->from, err));
    count_parameters(&t, output->described);
  }
  if (options->n_casts != 0) CKPT_TRY_GOTO(refuse_untying(output, named, err));
  const ckpt_dtype most = most_written(&t);
  output->options.dtype_written = is_quantized ? NULL : config_dtype(most);
  if (t.is_cast[most]) CKPT_TRY_GOTO(check_nameable(output, most, target->path, err));
  const bool has_objects = request->from->objects != NULL && request->from->objects->n != 0;
  if (output->described->n_tensors == 0 &&
      (request->from->n_tensors != 0 || (has_objects && !output->format->caps.objects)))
    status = ckpt_fail(err, CKPT_ENOTFOUND, request->from->path, NULL, "no tensor is left to write (%u in the input)",
                       request->from->n_tensors);
  else {
    ckpt_left_out left_out = less_standing(ckpt_selection_left_out(selection), request->from);
    if (from == plan->dialect) count_left(&left_out, request->from);
    const bool holds_all = from != plan->dialect && !output->format->caps.graph;
    status =
        say_left_out(output, request->from, ckpt_convert_include(options, output->format), holds_all, &left_out, err);
    if (status == CKPT_OK) status = say_tied(output, named, err);
  }
done:
  ckpt_selection_free(selection);
  return status;
}

const char *ckpt_convert_include(const ckpt_convert_options *options, const ckpt_format *format) {
  if (options->include != NULL) return options->include;
  return format->caps.training_state ? "all" : "model";
}

ckpt_status ckpt_convert_plan(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err) {
  bool is_quantized, like_is_quantized = false;
  uint64_t n_steps = CKPT_PATTERN_STEPS; /* of the patterns of all targets */
  CKPT_TRY(ckpt_index_is_quantized(request->from, &is_quantized, err));
  if (request->like != NULL) CKPT_TRY(ckpt_index_is_quantized(request->like, &like_is_quantized, err));
  plan->allow_overflow = request->options->allow_overflow;
  for (uint32_t i = 0; i < request->n_targets; i++) plan->links = plan->links || links(&request->targets[i].values);
  CKPT_TRY(ckpt_plan_reads(plan, request->from, request->options->input, err));
  if (request->like != NULL) CKPT_TRY(ckpt_plan_reads(plan, request->like, request->like_path, err));
  for (uint32_t i = 0; i < request->further.n; i++)
    CKPT_TRY(ckpt_plan_reads(plan, request->further.items[i].index, request->further.items[i].path, err));
  ckpt_graph_request graph; /* of every output */
  CKPT_TRY(ckpt_graph_request_of(&graph, &request->further, &request->targets[0].values, request->from->path, err));
  for (uint32_t i = 0; i < request->n_targets; i++)
    CKPT_TRY(add_target(plan, request, &request->targets[i], is_quantized || like_is_quantized, &n_steps, err));
  if (request->adapters != NULL) CKPT_TRY(ckpt_updates_ask(plan, err));
  return check_outputs(plan, request, err);
}

/* ---- the library's own verb -------------------------------------------------------------------------------------- */

typedef struct job {
  ckpt_convert_options options;
  ckpt_index *index;
  ckpt_plan *plan;
  ckpt_convert_target target;
  ckpt_convert_request request;
} job;

static ckpt_status plan_job(job *j, ckpt_error *err) {
  const ckpt_convert_options *options = &j->options;
  const ckpt_open_options open = {.struct_size = sizeof open,
                                  .stored_names = options->stored_names,
                                  .weights = options->weights,
                                  .allow_corrupt = options->allow_corrupt,
                                  .corrupt = options->corrupt,
                                  .corrupt_arg = options->corrupt_arg};
  if (options->input == NULL || options->output == NULL)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "input and output must be given");
  CKPT_TRY(ckpt_open(&j->index, options->input, &open, err));
  j->target = (ckpt_convert_target){.path = options->output,
                                    .to = options->to,
                                    .shard_size = options->shard_size,
                                    .world = options->world,
                                    .values = {options->values, options->n_values}};
  j->request.further = ckpt_further_inputs_list(&j->target.values, NULL, NULL);
  CKPT_TRY(ckpt_further_inputs_open(&j->request.further, &open, err));
  CKPT_TRY(ckpt_plan_new(&j->plan, err));
  j->request.verb = "convert";
  j->request.from = j->index;
  j->request.targets = &j->target;
  j->request.n_targets = 1;
  j->request.options = options;
  return ckpt_convert_plan(j->plan, &j->request, err);
}

ckpt_status ckpt_convert(const ckpt_convert_options *options, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  job j = {.index = NULL};
  ckpt_run_options run;
  ckpt_error own = {0};
  if (err == NULL) err = &own; /* other ranks want to know */
  CKPT_TRY(ckpt_options_take(&j.options, sizeof j.options, options, err));
  CKPT_TRY(ckpt_options_take(&run, sizeof run, j.options.run, err));
  ckpt_status status = ckpt_group_agree(ckpt_group_of(&run), plan_job(&j, err), err);
  if (status == CKPT_OK) status = ckpt_convert_run(j.plan, &j.request, &run, NULL, err);
  if (status == CKPT_OK && j.options.digest != NULL) *j.options.digest = j.plan->outputs[0].digest;
  ckpt_plan_free(j.plan);
  ckpt_index_free(j.index);
  ckpt_further_inputs_close(&j.request.further);
  return status;
}
