/* receipt.c - writing receipts; replay.c reads them.
 *
 *   {"ckpt_receipt":1,"version","verb",
 *    "options":{those of options.def that go to ckpt_input_modifiers and to ckpt_convert_options,
 *               "merge" with adapters:{"rules", those that go to ckpt_adapter_options},
 *               "quantize" where asked for:{"presets", those that go to ckpt_quantize_options},
 *               "extract" of an extraction:{"rules", those that go to ckpt_extract_options}},
 *    "inputs":[{"path","format","names","include","digest"}, and of each adapter {"path","scale","digest"}],
 *    "merged" with adapters:[{"name","adapter","rank","scale"}],
 *    "outputs":[{"path","format", those that go to ckpt_convert_target, values of the format,
 *                "digest","n_tensors","n_bytes","side_files":[{"name","n_bytes","sha256"}],
 *                "tensors":[{"name","source","from","to","decided_by","instead_of","wanted","imatrix","n_bytes",
 *                            "n_underflow","update_norm","update_relative","n_unchanged","digest"}]}]}
 *
 * The keys of options are the fields of their rows, those of values the names that their formats declare; some are
 * there only where they were asked for. n_underflow is there where a cast made values zero; decided_by of tensors of an
 * output with a type, instead_of and wanted where that was another one, imatrix (a bool) where blocks were made.
 *
 * With adapters the first input is their base. They stand in the byte order of their digests, and `adapter` is a place
 * among them, from 0: what it does to which tensor of the merged model. Without a rank its tensor takes the base's
 * place; the scale is that of B x A. The figures of updates.h are there where a tensor has updates, the second where
 * the base is not zero, the last where it is known.
 *
 * Printed as it goes: half a million tensors cost no memory. Everything in it is text that JSON can hold; paths that
 * are no UTF-8 are refused before the run (ckpt_receipt_plan). */
#include "libckpt/recipe/convert/receipt.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/stream.h"
#include "libckpt/plan/ops/lora.h"
#include "libckpt/recipe/convert/options.h"
#include "libckpt/recipe/convert/updates.h"
#include "libckpt/recipe/records/side_sums.h"
#include "libckpt/run/run.h"

enum { WINDOW_BYTES = 1 << 16 };

typedef unsigned long long ull;

/* ---- the input's digest ------------------------------------------------------------------------------------------ */

const ckpt_index *ckpt_receipt_base(const ckpt_convert_request *request) {
  if (request->extraction != NULL) return ckpt_extract_base(request->extraction);
  return request->adapters != NULL ? ckpt_adapters_base(request->adapters) : request->from;
}

const char *ckpt_receipt_include(const ckpt_plan *plan, const ckpt_convert_request *request) {
  if (request->adapters != NULL || request->extraction != NULL) return "model"; /* no more of their base is taken */
  const char *include = ckpt_convert_include(request->options, plan->outputs[0].format);
  for (uint32_t i = 1; i < plan->n_outputs; i++)
    if (strcmp(include, ckpt_convert_include(request->options, plan->outputs[i].format)) != 0) return "all";
  return include;
}

/* By number in the stored form of the input: the tensor, plus one, that it is under another name; 0: none. NULL where
 * there is no such form. free() it. */
static uint32_t *list_renamed(const ckpt_index *from) {
  const ckpt_index *stored = from->stored_form;
  uint32_t *names = stored == NULL ? NULL : calloc((size_t)stored->n_tensors + 1, sizeof *names);
  for (uint32_t i = 0; names != NULL && i < from->n_tensors; i++) {
    const ckpt_derivation *derived = from->tensors[i].details->derived;
    if (derived != NULL && derived->is_renamed) names[derived->operands[0].tensor - stored->tensors] = i + 1;
  }
  return names;
}

static bool is_of(const ckpt_index *index, const ckpt_expr *expr) {
  return expr->index == index && expr->tensor >= index->tensors && expr->tensor < index->tensors + index->n_tensors;
}

/* The base's tensor that a merged model has unchanged, where an expression reads that; else NULL. */
static const ckpt_tensor *unchanged(const ckpt_convert_request *request, const ckpt_expr *expr) {
  if (request->adapters == NULL || !is_of(request->from, expr)) return NULL;
  const ckpt_tensor *tensor = ckpt_index_find(ckpt_adapters_base(request->adapters), expr->tensor->name);
  return tensor == NULL || ckpt_adapters_change(request->adapters, tensor) ? NULL : tensor;
}

/* The number of the tensor of the input that an expression reads, all of it and as it is. */
static bool number_of(uint32_t *out, const ckpt_convert_request *request, const ckpt_index *from, const uint32_t *names,
                      const ckpt_expr *expr) {
  const ckpt_tensor *of_base = unchanged(request, expr);
  if (of_base != NULL && from == ckpt_adapters_base(request->adapters)) {
    *out = (uint32_t)(of_base - from->tensors);
    return true;
  }
  if (is_of(from, expr)) {
    *out = (uint32_t)(expr->tensor - from->tensors);
    return true;
  }
  if (names == NULL || !is_of(from->stored_form, expr)) return false; /* another's, or a stored copy */
  const uint32_t number = names[expr->tensor - from->stored_form->tensors];
  *out = number - 1;
  return number != 0;
}

/* The row, plus one, that has the digest of each tensor of the input as stored; 0: none. free() it. */
static ckpt_status find_rows(uint32_t **out, const ckpt_plan *plan, const ckpt_convert_request *request,
                             const ckpt_index *from, ckpt_error *err) {
  bool *is_described = calloc((size_t)plan->n_rows + 1, sizeof *is_described);
  CKPT_TRY_ALLOC(is_described, err);
  uint32_t *rows = *out = calloc((size_t)from->n_tensors + 1, sizeof *rows);
  uint32_t *names = list_renamed(from);
  if (rows == NULL || (names == NULL && from->stored_form != NULL)) {
    free(is_described);
    free(names);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (uint32_t i = 0; i < plan->n_outputs; i++)
    for (uint32_t k = 0; k < plan->outputs[i].described->n_tensors; k++)
      if (plan->outputs[i].described->tensors[k].details->origin < plan->n_rows)
        is_described[plan->outputs[i].described->tensors[k].details->origin] = true;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    const ckpt_expr *expr = row->expr;
    while (expr->op->is_check) expr = expr->args[0];
    bool is_dropped = row->sink < plan->n_outputs && !is_described[i];
    uint32_t number;
    bool is_own = ckpt_expr_tensor(expr) != NULL && number_of(&number, request, from, names, expr);
    if (is_own && !is_dropped && row->sink != CKPT_VALUE_SINK) rows[number] = i + 1;
  }
  free(is_described);
  free(names);
  return CKPT_OK;
}

static ckpt_status check_text(const char *text, ckpt_error *err) {
  const size_t n = strlen(text);
  if (ckpt_utf8_length(text, n) == n) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, text, NULL, "is no UTF-8 text, and a receipt cannot name it");
}

/* Of the base of a merge: in the same read as the merged tensor of that name. */
static ckpt_status read_with_update(ckpt_expr **expr, ckpt_plan *plan, const ckpt_convert_request *request,
                                    const ckpt_tensor *tensor, ckpt_error *err) {
  if (request->adapters == NULL) return CKPT_OK;
  const ckpt_tensor *merged = ckpt_index_find(request->from, tensor->name);
  const ckpt_derivation *derived = merged == NULL ? NULL : merged->details->derived;
  return derived == NULL ? CKPT_OK : ckpt_expr_unchanged_in(expr, &plan->arena, *expr, derived->expr, err);
}

/* Rows, written nowhere, of those tensors of an input whose digest no row gives. */
static ckpt_status add_digests(ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_index *from,
                               const char *include, ckpt_error *err) {
  uint32_t *rows;
  bool known;
  CKPT_TRY(find_rows(&rows, plan, request, from, err));
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < from->n_tensors && status == CKPT_OK; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    ckpt_expr *expr;
    if (rows[i] != 0 || !ckpt_role_included(include, (ckpt_role)tensor->role, &known)) continue;
    status = ckpt_expr_read(&expr, plan, from, tensor, err);
    if (status == CKPT_OK) status = read_with_update(&expr, plan, request, tensor, err);
    if (status == CKPT_OK) status = ckpt_plan_add_like(plan, CKPT_NO_SINK, tensor->name, expr, tensor, NULL, err);
  }
  free(rows);
  return status;
}

ckpt_status ckpt_receipt_plan_input(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err) {
  return add_digests(plan, request, ckpt_receipt_base(request), ckpt_receipt_include(plan, request), err);
}

ckpt_status ckpt_receipt_plan(ckpt_plan *plan, const ckpt_convert_request *request, ckpt_error *err) {
  plan->wants_side_sums = true;
  CKPT_TRY(check_text(request->options->input, err));
  ckpt_adapter_info adapter;
  for (uint32_t i = 0; request->adapters != NULL && ckpt_adapters_at(request->adapters, i, &adapter); i++)
    CKPT_TRY(check_text(adapter.path, err));
  if (request->like_path != NULL) CKPT_TRY(check_text(request->like_path, err));
  for (uint32_t i = 0; i < request->n_targets; i++) CKPT_TRY(check_text(request->targets[i].path, err));
  for (uint32_t i = 0; i < plan->n_outputs; i++)
    if (plan->outputs[i].format->caps.side_files) CKPT_TRY(ckpt_side_sums_check_names(plan->outputs[i].described, err));
  CKPT_TRY(ckpt_receipt_plan_input(plan, request, err));
  for (uint32_t i = 0; i < request->further.n; i++) {
    CKPT_TRY(check_text(request->further.items[i].path, err));
    CKPT_TRY(add_digests(plan, request, request->further.items[i].index, request->further.items[i].include, err));
  }
  return CKPT_OK;
}

/* The content digest of an input, from the rows of a plan that has run. */
static ckpt_status input_digest(const ckpt_plan *plan, const ckpt_convert_request *request, const ckpt_index *from,
                                const char *include, ckpt_digest *out, ckpt_error *err) {
  uint32_t *rows = NULL;
  bool known;
  const ckpt_digest **digests = calloc((size_t)from->n_tensors + 1, sizeof *digests);
  CKPT_TRY_ALLOC(digests, err);
  ckpt_status status;
  CKPT_TRY_GOTO(find_rows(&rows, plan, request, from, err));
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[from->by_name[i]];
    uint32_t row = rows[from->by_name[i]];
    if (!ckpt_role_included(include, (ckpt_role)tensor->role, &known)) continue;
    if (row == 0) {
      status = ckpt_fail(err, CKPT_EINTERNAL, NULL, tensor->name, "has no row with its digest");
      goto done;
    }
    digests[i] = &plan->rows[row - 1].digest;
  }
  status = ckpt_fail_at(ckpt_digest_index(from, digests, out, err), err, from->path, NULL);
done:
  free(rows);
  free(digests);
  return status;
}

ckpt_status ckpt_receipt_input(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_digest *out,
                               ckpt_error *err) {
  return input_digest(plan, request, ckpt_receipt_base(request), ckpt_receipt_include(plan, request), out, err);
}

ckpt_status ckpt_receipt_further(const ckpt_plan *plan, const ckpt_convert_request *request, uint32_t i,
                                 ckpt_digest *out, ckpt_error *err) {
  return input_digest(plan, request, request->further.items[i].index, request->further.items[i].include, out, err);
}

/* ---- printing ---------------------------------------------------------------------------------------------------- */

static void print_text(ckpt_stream *out, const char *before, const char *text) {
  ckpt_stream_text(out, before);
  if (text == NULL)
    ckpt_stream_text(out, "null");
  else
    ckpt_stream_json(out, text, strlen(text));
}

static void print_digest(ckpt_stream *out, const ckpt_digest *digest) {
  char text[80];
  print_text(out, ",\"digest\":", ckpt_digest_text(digest, text));
}

static void print_list(ckpt_stream *out, const char *key, const char *const *texts) {
  ckpt_stream_printf(out, ",\"%s\":[", key);
  for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) print_text(out, i == 0 ? "" : ",", texts[i]);
  ckpt_stream_text(out, "]");
}

/* A number that reads back as the same one. */
static void print_number(ckpt_stream *out, const char *before, double value) {
  char text[40];
  (void)ckpt_c_snprintf(text, sizeof text, "%.17g", value);
  ckpt_stream_text(out, before);
  ckpt_stream_text(out, text);
}

static const char *type_name(ckpt_dtype dtype) { return dtype == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name(dtype); }

/* The further inputs of a request, and the digest of each. */
typedef struct further_digests {
  const ckpt_further_inputs *inputs;
  ckpt_digest digests[CKPT_MAX_FURTHER_INPUTS];
} further_digests;

/* The input that an option names: null where there is none. */
static void print_input(ckpt_stream *out, const char *field, const further_digests *further) {
  const ckpt_further_input *input = ckpt_further_inputs_find(further->inputs, field);
  if (input == NULL) {
    ckpt_stream_text(out, "null");
    return;
  }
  print_text(out, "{\"path\":", input->path);
  print_digest(out, &further->digests[input - further->inputs->items]);
  ckpt_stream_text(out, "}");
}

static void print_casts(ckpt_stream *out, const ckpt_convert_options *options) {
  ckpt_stream_text(out, ",\"dtype\":[");
  for (size_t i = 0; i < options->n_casts; i++) {
    print_text(out, i == 0 ? "{\"pattern\":" : ",{\"pattern\":", options->casts[i].pattern);
    print_text(out, ",\"dtype\":", ckpt_dtype_name(options->casts[i].dtype));
    ckpt_stream_text(out, "}");
  }
  ckpt_stream_text(out, "]");
}

/* An option of a place, and its key. further: those that options of the place can name. */
static void print_option(ckpt_stream *out, const ckpt_option *option, const void *place,
                         const further_digests *further) {
  const void *member = (const char *)place + option->offset;
  const bool is_list = (option->flags & CKPT_OPTION_REPEATED) != 0;
  if (option->is_sparse && !ckpt_option_is_given(option, place)) return;
  if (option->kind == CKPT_OPTION_CAST) {
    print_casts(out, place);
    return;
  }
  if (is_list && option->kind != CKPT_OPTION_PRESET) {
    print_list(out, option->field, *(const char *const *const *)member);
    return;
  }
  const bool is_first = option->place == CKPT_PLACE_INPUT && option->key == 1; /* of its object */
  ckpt_stream_printf(out, "%s\"%s\":", is_first ? "" : ",", option->field);
  switch (option->kind) {
    case CKPT_OPTION_FLAG: ckpt_stream_text(out, *(const bool *)member ? "true" : "false"); break;
    case CKPT_OPTION_SIZE: ckpt_stream_printf(out, "%llu", (ull) * (const uint64_t *)member); break;
    case CKPT_OPTION_INTEGER:
    case CKPT_OPTION_COUNT:
    case CKPT_OPTION_LENGTH: ckpt_stream_printf(out, "%u", *(const uint32_t *)member); break;
    case CKPT_OPTION_NUMBER: print_number(out, "", *(const double *)member); break;
    case CKPT_OPTION_TYPE: print_text(out, "", type_name(*(const ckpt_dtype *)member)); break;
    case CKPT_OPTION_PRESET: print_text(out, "", (*(const ckpt_preset *const *)member)->name); break;
    default:
      if (option->flags & CKPT_OPTION_INPUT)
        print_input(out, option->field, further);
      else
        print_text(out, "", *(const char *const *)member);
  }
}

/* A value that was given, and its key; an input begins a line. */
static void print_value(ckpt_stream *out, const ckpt_format_option *option, const ckpt_format_value *value,
                        const further_digests *further) {
  size_t n = 0;
  const char *word = ckpt_format_word(option->words, value->value, &n);
  if (option->kind == CKPT_VALUE_LIST) {
    print_list(out, option->name, value->list);
    return;
  }
  ckpt_stream_printf(out, "%s\"%s\":", option->kind == CKPT_VALUE_INPUT ? ",\n  " : ",", option->name);
  if (option->kind == CKPT_VALUE_INPUT)
    print_input(out, option->name, further);
  else if (option->kind == CKPT_VALUE_TEXT)
    print_text(out, "", value->text);
  else if (word != NULL)
    ckpt_stream_printf(out, "\"%.*s\"", (int)n, word);
  else if (option->most == 1)
    ckpt_stream_text(out, "true");
  else
    ckpt_stream_printf(out, "%llu", (ull)value->value);
}

/* Values that a run (is_of_all) or an output of it has, as their formats declare them. */
static void print_values(ckpt_stream *out, const ckpt_format_values *values, bool is_of_all,
                         const further_digests *further) {
  const ckpt_option *row;
  for (unsigned key = 1; (row = ckpt_option_of_key(CKPT_PLACE_FORMAT, key)) != NULL; key++) {
    const ckpt_format_option *option = ckpt_format_option_known(row->field, NULL);
    const ckpt_format_value *value = ckpt_format_values_find(values, row->field);
    if (value != NULL && option->is_of_all == is_of_all) print_value(out, option, value, further);
  }
}

/* All that receipts keep of a place, in the order of its keys. */
static void print_place(ckpt_stream *out, ckpt_option_place kind, const void *place, const ckpt_format_values *values,
                        const further_digests *further) {
  const unsigned turn = kind == CKPT_PLACE_CONVERT  ? CKPT_VALUES_TURN_OF_CONVERT
                        : kind == CKPT_PLACE_TARGET ? CKPT_VALUES_TURN_OF_TARGET
                                                    : 0;
  for (unsigned key = 1;; key++) {
    const ckpt_option *option = ckpt_option_of_key(kind, key);
    if (option == NULL && key != turn) return;
    if (option == NULL)
      print_values(out, values, kind == CKPT_PLACE_CONVERT, further);
    else
      print_option(out, option, place, further);
  }
}

static void print_options(ckpt_stream *out, const ckpt_convert_request *request, const further_digests *further) {
  const ckpt_convert_options *options = request->options;
  const ckpt_input_modifiers input = {
      .names = options->stored_names ? "stored" : NULL, .weights = request->from->weights, .like = request->like_path};
  ckpt_stream_text(out, " \"options\":{");
  print_place(out, CKPT_PLACE_INPUT, &input, NULL, further);
  print_place(out, CKPT_PLACE_CONVERT, options, &request->targets[0].values, further);
  if (request->adapters != NULL) {
    print_text(out, ",\n  \"merge\":{\"rules\":", CKPT_MERGE_RULES);
    print_place(out, CKPT_PLACE_ADAPTER, ckpt_adapters_options(request->adapters), NULL, further);
    ckpt_stream_text(out, "}");
  }
  if (request->quantize != NULL) {
    print_text(out, ",\n  \"quantize\":{\"presets\":", CKPT_PRESETS_VERSION);
    print_place(out, CKPT_PLACE_QUANTIZE, request->quantize, NULL, further);
    ckpt_stream_text(out, "}");
  }
  if (request->extraction != NULL) {
    print_text(out, ",\n  \"extract\":{\"rules\":", CKPT_EXTRACT_RULES);
    print_place(out, CKPT_PLACE_EXTRACT, ckpt_extract_options_of(request->extraction), NULL, further);
    ckpt_stream_text(out, "}");
  }
  ckpt_stream_text(out, "},\n");
}

/* Why it has its type. */
static void print_decision(ckpt_stream *out, const ckpt_quantize_told *told) {
  print_text(out, ",\"decided_by\":", told->decided_by);
  if (told->instead_of != NULL) print_text(out, ",\"instead_of\":", told->instead_of);
  if (told->wanted != NULL) print_text(out, ",\"wanted\":", told->wanted);
  if (told->is_quantized) ckpt_stream_printf(out, ",\"imatrix\":%s", told->has_importance ? "true" : "false");
}

const ckpt_tensor *ckpt_receipt_source(const ckpt_expr *expr) {
  while (expr->n_args != 0) expr = expr->args[0];
  return expr->tensor;
}

/* What adapters did to a tensor. */
static void print_updates(ckpt_stream *out, const ckpt_row *row) {
  ckpt_update_figures figures;
  if (!ckpt_updates_of(row, &figures)) return;
  const double relative = ckpt_update_relative(&figures);
  if (isfinite(figures.norm)) print_number(out, ",\"update_norm\":", figures.norm);
  if (isfinite(relative)) print_number(out, ",\"update_relative\":", relative);
  if (figures.n_rounded != 0) ckpt_stream_printf(out, ",\"n_unchanged\":%llu", (ull)figures.n_unchanged);
}

static void print_output(ckpt_stream *out, const ckpt_plan *plan, const ckpt_convert_request *request, uint32_t number,
                         const ckpt_side_sums *side) {
  const ckpt_convert_target *target = &request->targets[number];
  const ckpt_output *output = &plan->outputs[number];
  print_text(out, number == 0 ? "  {\"path\":" : ",\n  {\"path\":", output->path);
  print_text(out, ",\"format\":", output->format->name);
  ckpt_convert_target asked = *target;
  if (!output->options.is_folder || !output->format->caps.cut_by_size) asked.shard_size = 0;
  print_place(out, CKPT_PLACE_TARGET, &asked, &asked.values, NULL);
  if (output->format->caps.dialect && output->read_names != NULL) print_text(out, ",\"names\":", output->read_names);
  print_digest(out, &output->digest);
  ckpt_stream_printf(out, ",\"n_tensors\":%u,\"n_bytes\":%llu,\"side_files\":", output->described->n_tensors,
                     (ull)ckpt_output_bytes(output));
  ckpt_side_sums_print(side, "\n   ", out);
  ckpt_stream_text(out, ",\"tensors\":[\n");
  bool is_first = true;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    if (row->output != number || row->tensor == NULL) continue;
    const ckpt_tensor *source = ckpt_receipt_source(row->expr);
    print_text(out, is_first ? "   {\"name\":" : ",\n   {\"name\":", row->tensor->name);
    print_text(out, ",\"source\":", source == NULL ? NULL : source->name);
    print_text(out, ",\"from\":", source == NULL ? NULL : ckpt_dtype_name((ckpt_dtype)source->dtype));
    print_text(out, ",\"to\":", ckpt_dtype_name((ckpt_dtype)row->tensor->dtype));
    if (target->preset != NULL) {
      const uint32_t like = row->tensor->details->like; /* of what it was made from: the input, or its dialect */
      const ckpt_quantize_told told = ckpt_quantize_tell(output->quantized, output->described->objects_of, like - 1);
      print_decision(out, &told);
    }
    ckpt_stream_printf(out, ",\"n_bytes\":%llu", (ull)row->tensor->n_bytes);
    const uint64_t n_underflow = ckpt_row_stats(row).n_underflow;
    if (n_underflow != 0) ckpt_stream_printf(out, ",\"n_underflow\":%llu", (ull)n_underflow);
    print_updates(out, row);
    print_digest(out, &row->digest);
    ckpt_stream_text(out, "}");
    is_first = false;
  }
  ckpt_stream_text(out, "]}");
}

/* The inputs that adapters are, and what each does to which tensor. */
static void print_adapters(ckpt_stream *out, const ckpt_adapters *adapters) {
  ckpt_adapter_info info;
  ckpt_adapter_effect effect;
  for (uint32_t i = 0; ckpt_adapters_at(adapters, i, &info); i++) {
    print_text(out, ",\n  {\"path\":", info.path);
    print_number(out, ",\"scale\":", info.scale);
    print_digest(out, &info.digest);
    ckpt_stream_text(out, "}");
  }
  ckpt_stream_text(out, "],\n \"merged\":[");
  for (size_t i = 0; ckpt_adapters_effect(adapters, i, &effect); i++) {
    print_text(out, i == 0 ? "\n  {\"name\":" : ",\n  {\"name\":", effect.name);
    ckpt_stream_printf(out, ",\"adapter\":%u,\"rank\":%llu", effect.adapter, (ull)effect.rank);
    print_number(out, ",\"scale\":", effect.scale);
    ckpt_stream_text(out, "}");
  }
}

ckpt_status ckpt_receipt_write(const ckpt_plan *plan, const ckpt_convert_request *request, ckpt_sink *sink,
                               ckpt_error *err) {
  ckpt_digest digest;
  further_digests further = {.inputs = &request->further};
  CKPT_TRY(ckpt_receipt_input(plan, request, &digest, err));
  for (uint32_t i = 0; i < request->further.n; i++)
    CKPT_TRY(ckpt_receipt_further(plan, request, i, &further.digests[i], err));
  void *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_stream out;
  ckpt_stream_sink(&out, sink, 0, 0, window, WINDOW_BYTES, err);
  print_text(&out, "{\"ckpt_receipt\":1,\n \"version\":", ckpt_version());
  print_text(&out, ",\n \"verb\":", request->verb);
  ckpt_stream_text(&out, ",\n");
  print_options(&out, request, &further);
  print_text(&out, " \"inputs\":[\n  {\"path\":", request->options->input);
  print_text(&out, ",\"format\":", ckpt_receipt_base(request)->format);
  print_text(&out, ",\"names\":", ckpt_receipt_base(request)->names);
  print_text(&out, ",\"include\":", ckpt_receipt_include(plan, request));
  print_digest(&out, &digest);
  ckpt_stream_text(&out, "}");
  if (request->adapters != NULL) print_adapters(&out, request->adapters);
  ckpt_stream_text(&out, "],\n \"outputs\":[\n");
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < plan->n_outputs && status == CKPT_OK; i++) {
    ckpt_side_sums side = {0};
    status = ckpt_side_sums_written(&side, &plan->outputs[i].layout, err);
    if (status == CKPT_OK) print_output(&out, plan, request, i, &side);
    ckpt_side_sums_free(&side);
  }
  ckpt_stream_text(&out, "]}\n");
  if (status == CKPT_OK) status = ckpt_stream_end(&out);
  free(window);
  return status;
}
