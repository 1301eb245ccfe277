/* logits.c - `ckpt logits`: the model run over given ids, and its logits written as one tensor. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/json.h"
#include "libckpt/plan/plan.h"
#include "tools/report/input.h"
#include "tools/report/job.h"
#include "tools/report/model.h"
#include "tools/report/report.h"
#include "tools/report/text_files.h"
#include "trainer/evaluation/runner.h"

/* ---- sequences ------------------------------------------------------------------------------------------------------
 */

typedef struct sequences {
  int32_t *ids;    /* one after the other */
  size_t *lengths; /* of each */
  size_t n, n_ids, longest, capacity, id_capacity;
} sequences;

static void free_sequences(sequences *s) {
  free(s->ids);
  free(s->lengths);
}

static ckpt_status add_id(sequences *s, uint64_t id, ckpt_error *err) {
  if (id > INT32_MAX) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "id %" PRIu64 " is past every vocabulary", id);
  if (s->n_ids == s->id_capacity) {
    s->id_capacity = s->id_capacity == 0 ? 1024 : s->id_capacity * 2;
    int32_t *grown = reallocarray(s->ids, s->id_capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    s->ids = grown;
  }
  s->ids[s->n_ids++] = (int32_t)id;
  return CKPT_OK;
}

/* Ends the sequence that began at id `first`. */
static ckpt_status end_sequence(sequences *s, size_t first, ckpt_error *err) {
  if (s->n_ids == first) return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "a sequence of no ids");
  if (s->n == s->capacity) {
    s->capacity = s->capacity == 0 ? 64 : s->capacity * 2;
    size_t *grown = reallocarray(s->lengths, s->capacity, sizeof *grown);
    CKPT_TRY_ALLOC(grown, err);
    s->lengths = grown;
  }
  s->lengths[s->n++] = s->n_ids - first;
  if (s->n_ids - first > s->longest) s->longest = s->n_ids - first;
  return CKPT_OK;
}

static ckpt_status read_ids(sequences *s, const char *text, ckpt_error *err) {
  for (const char *at = text;;) {
    char *end = NULL;
    errno = 0;
    unsigned long long id = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : 0;
    if (end == NULL || errno != 0 || (*end != ',' && *end != '\0'))
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--ids takes numbers with commas between them, not '%.64s'", text);
    CKPT_TRY(add_id(s, id, err));
    if (*end == '\0') return end_sequence(s, 0, err);
    at = end + 1;
  }
}

static ckpt_status read_list(sequences *s, ckpt_json *json, ckpt_error *err) {
  const size_t first = s->n_ids;
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "input_ids", err));
  for (;;) {
    uint64_t id;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return end_sequence(s, first, err);
    if (token != CKPT_JSON_NUMBER || !ckpt_json_u64(json, &id))
      return ckpt_json_fail(json, err, "input_ids holds what is no id");
    CKPT_TRY(add_id(s, id, err));
  }
}

/* Every id of a sequence is run. */
static ckpt_status check_mask(ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "attention_mask", err));
  for (;;) {
    uint64_t is_seen;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    if (token != CKPT_JSON_NUMBER || !ckpt_json_u64(json, &is_seen) || is_seen != 1)
      return ckpt_json_fail(json, err, "attention_mask hides ids: leave them out of input_ids");
  }
}

static ckpt_status read_line(sequences *s, const char *line, size_t n_bytes, const char *path, ckpt_error *err) {
  ckpt_json *json = NULL;
  ckpt_json_token token;
  bool has_ids = false;
  CKPT_TRY(ckpt_json_new_text(&json, line, n_bytes, true, path, err));
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a line", err));
  for (;;) {
    CKPT_TRY_GOTO(ckpt_json_next(json, &token, err));
    if (token != CKPT_JSON_KEY) break;
    if (!has_ids && strcmp(ckpt_json_text(json, NULL), "input_ids") == 0) {
      CKPT_TRY_GOTO(read_list(s, json, err));
      has_ids = true;
    } else if (strcmp(ckpt_json_text(json, NULL), "attention_mask") == 0) {
      CKPT_TRY_GOTO(check_mask(json, err));
    } else {
      CKPT_TRY_GOTO(ckpt_json_skip(json, err));
    }
  }
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_END, "the end of the line", err));
  if (!has_ids) status = ckpt_json_fail(json, err, "has no field input_ids");
done:
  ckpt_json_free(json);
  return status;
}

static ckpt_status read_file(sequences *s, const char *path, ckpt_error *err) {
  FILE *file;
  CKPT_TRY(ckpt_text_file_open(&file, path, "a list of sequences", err));
  char *line = NULL;
  size_t capacity = 0, number = 0;
  ckpt_status status = CKPT_OK;
  for (ssize_t n; status == CKPT_OK && (n = getline(&line, &capacity, file)) >= 0;) {
    number++;
    if (strspn(line, " \t\r\n") == (size_t)n) continue;
    char where[600];
    (void)snprintf(where, sizeof where, "%.500s:%zu", path, number);
    status = ckpt_fail_at(read_line(s, line, (size_t)n, where, err), err, where, NULL);
  }
  if (status == CKPT_OK && ferror(file) != 0) status = ckpt_fail_errno(err, path, "cannot be read");
  free(line);
  if (file != stdin) fclose(file);
  if (status == CKPT_OK && s->n == 0) return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "holds no sequence");
  return status;
}

static ckpt_status read_sequences(sequences *s, const ckpt_args *args, ckpt_error *err) {
  const char *ids = ckpt_args_text(args, "ids", NULL), *path = ckpt_args_text(args, "file", NULL);
  if (ids == NULL && path == NULL) return ckpt_args_fail(args, err, "one of --ids and -f is needed");
  if (ids != NULL && path != NULL) return ckpt_args_fail(args, err, "--ids and -f exclude each other");
  return ids != NULL ? read_ids(s, ids, err) : read_file(s, path, err);
}

/* ---- the run --------------------------------------------------------------------------------------------------------
 */

typedef struct logits {
  sequences sequences;
  ckpt_input input;
  ckpt_model *model; /* to check ids by, before anything is loaded */
  ckpt_runner runner;
  float *values;    /* sequences x longest x vocabulary, or sequences x labels */
  float *of_tokens; /* of a class that gives labels: those of a sequence's every token */
  int64_t *lengths;
  uint64_t n_values;
  ckpt_plan *plan; /* of the output */
  uint32_t sink;
} logits;

static ckpt_runner_options runner_options(const logits *l, const ckpt_args *args) {
  return (ckpt_runner_options){.max_rows = 1,
                               .max_length = (uint32_t)l->sequences.longest,
                               .n_threads = (uint32_t)ckpt_args_size(args, "threads", 0),
                               .device = ckpt_args_text(args, "device", NULL),
                               .is_bf16 = strcmp(ckpt_args_text(args, "dtype", "f32"), "bf16") == 0,
                               .may_have_labels = true,
                               .like = l->input.like};
}

/* Of a sequence in the output: a class that gives labels gives them once. */
static uint64_t positions_of(const logits *l) { return l->model->n_labels != 0 ? 1 : l->sequences.longest; }

/* The token whose labels are the sequence's, as transformers chooses it: the last that is not padding. */
static size_t token_with_labels(const ckpt_model *model, const int32_t *ids, size_t n) {
  size_t i = n - 1;
  while (i > 0 && ids[i] == model->padding_id) i--;
  return i;
}

static ckpt_status make_model(logits *l, const ckpt_args *args, ckpt_error *err) {
  const ckpt_model_options model_options = {.struct_size = sizeof model_options, .may_have_labels = true};
  const ckpt_status wrong = ckpt_args_has(args, "ids") ? CKPT_EINVAL : CKPT_EFORMAT; /* an option, or a file */
  CKPT_TRY(ckpt_model_open(&l->model, l->input.index, l->input.like, &model_options, err));
  ckpt_report_unused(args, l->input.index, l->model);
  if (l->sequences.longest > l->model->max_positions)
    return ckpt_fail(err, wrong, l->input.index->path, NULL,
                     "a sequence of %zu ids, the model has %" PRIu64 " positions", l->sequences.longest,
                     l->model->max_positions);
  for (size_t i = 0; i < l->sequences.n_ids; i++)
    if ((uint64_t)l->sequences.ids[i] >= l->model->vocabulary)
      return ckpt_fail(err, wrong, l->input.index->path, NULL, "id %d is not below %" PRIu64 " (the vocabulary)",
                       l->sequences.ids[i], l->model->vocabulary);
  if (!ckpt_mul_u64(l->sequences.n, positions_of(l), &l->n_values) ||
      !ckpt_mul_u64(l->n_values, ckpt_model_logits(l->model), &l->n_values) || l->n_values > SIZE_MAX / sizeof(float))
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the logits do not fit 64 bits");
  return CKPT_OK;
}

static ckpt_status run_sequences(logits *l, ckpt_error *err) {
  const uint64_t n_logits = ckpt_model_logits(l->model);
  const bool has_labels = l->model->n_labels != 0;
  const int32_t *ids = l->sequences.ids;
  l->values = calloc((size_t)l->n_values, sizeof *l->values);
  l->lengths = calloc(l->sequences.n, sizeof *l->lengths);
  if (has_labels) l->of_tokens = calloc(l->sequences.longest, (size_t)n_logits * sizeof *l->of_tokens);
  if (l->values == NULL || l->lengths == NULL || (has_labels && l->of_tokens == NULL))
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "no memory for %" PRIu64 " logits (fewer sequences)", l->n_values);
  for (size_t i = 0; i < l->sequences.n; i++) {
    ckpt_forward_result result;
    float *values = l->values + i * positions_of(l) * n_logits;
    const ckpt_token_batch batch = {.n_rows = 1,
                                    .length = (uint32_t)l->sequences.lengths[i],
                                    .ids = ids,
                                    .logits = has_labels ? l->of_tokens : values};
    CKPT_TRY(ckpt_executor_forward(l->runner.executor, &batch, &result, err));
    if (has_labels) {
      const size_t token = token_with_labels(l->model, ids, l->sequences.lengths[i]);
      memcpy(values, l->of_tokens + token * n_logits, (size_t)n_logits * sizeof *values);
    }
    l->lengths[i] = (int64_t)l->sequences.lengths[i];
    ids += l->sequences.lengths[i];
  }
  return CKPT_OK;
}

static bool is_ragged(const sequences *s) {
  for (size_t i = 0; i < s->n; i++)
    if (s->lengths[i] != s->longest) return true;
  return false;
}

/* The output, before anything is run: it may be there already. */
static ckpt_status open_output(logits *l, const ckpt_args *args, ckpt_error *err) {
  const char *path = ckpt_args_text(args, "output", NULL);
  const ckpt_format *format = ckpt_format_of_suffix(path);
  ckpt_error own = {0};
  CKPT_TRY(ckpt_plan_new(&l->plan, err));
  CKPT_TRY(ckpt_plan_reads(l->plan, l->input.index, NULL, err));
  ckpt_status status = ckpt_plan_output(l->plan, path, NULL, ckpt_args_has(args, "force"), &l->sink, &own);
  /* a name without a dot is a folder's; a graph is nothing without what it computes */
  const bool is_unknown = status == CKPT_EINVAL && format == NULL && strchr(ckpt_path_name(path), '.') != NULL;
  if (is_unknown || (format != NULL && format->caps.graph))
    return ckpt_args_fail(args, err, "-o %s: no known format can hold a tensor under this name (-o out.safetensors)",
                          path);
  if (status != CKPT_OK && err != NULL) *err = own;
  return status;
}

static ckpt_status write_output(logits *l, const ckpt_run_options *run, ckpt_error *err) {
  ckpt_expr *expr;
  const bool has_labels = l->model->n_labels != 0;
  const uint64_t shape[] = {l->sequences.n, has_labels ? l->model->n_labels : l->sequences.longest,
                            l->model->vocabulary};
  CKPT_TRY(ckpt_expr_memory(&expr, l->plan, CKPT_F32, has_labels ? 2 : 3, shape, l->values, err));
  CKPT_TRY(ckpt_plan_add(l->plan, l->sink, "logits", expr, err));
  if (is_ragged(&l->sequences) && !has_labels) {
    CKPT_TRY(ckpt_expr_memory(&expr, l->plan, CKPT_I64, 1, shape, l->lengths, err));
    CKPT_TRY(ckpt_plan_add(l->plan, l->sink, "lengths", expr, err));
  }
  return ckpt_plan_run(l->plan, run, err);
}

static ckpt_status load_and_run(logits *l, const ckpt_args *args, ckpt_error *err) {
  ckpt_job job;
  CKPT_TRY(open_output(l, args, err));
  ckpt_runner_options wanted = runner_options(l, args);
  ckpt_job_begin(&job, args);
  wanted.run = &job.run;
  ckpt_status status = ckpt_runner_open(&l->runner, l->input.index, &wanted, err);
  if (status == CKPT_OK) ckpt_report_note(args, "device %s", l->runner.device->table->name);
  if (status == CKPT_OK) status = run_sequences(l, err);
  job.run.trace = NULL; /* it is of the run that reads the model */
  if (status == CKPT_OK) status = write_output(l, &job.run, err);
  ckpt_job_end(&job);
  return ckpt_fail_at(status, err, l->input.index->path, NULL);
}

/* ---- what is printed ------------------------------------------------------------------------------------------------
 */

static void print_line(void *arg, const char *line) { fprintf(arg, "%s\n", line); }

static void emit_line(void *arg, const char *line) { ckpt_emit_text(arg, NULL, line); }

static ckpt_status print_plan(const logits *l, const ckpt_args *args, ckpt_error *err) {
  ckpt_executor_memory memory;
  const ckpt_runner_options wanted = runner_options(l, args);
  CKPT_TRY(ckpt_runner_plan(&memory, l->input.index, &wanted, err));
  const uint64_t n_logits = l->n_values * sizeof(float);
  if (!args->json) {
    ckpt_tape_print(&l->model->tape, print_line, stdout);
    printf("parameters %" PRIu64 ", activations %" PRIu64 ", states %" PRIu64 ", products %" PRIu64 ", logits %" PRIu64
           " bytes\n",
           memory.parameters, memory.arena, memory.state, memory.products, n_logits);
    return CKPT_OK;
  }
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_array(&json, "tape");
  ckpt_tape_print(&l->model->tape, emit_line, &json);
  ckpt_emit_end(&json);
  ckpt_emit_u64(&json, "parameter_bytes", memory.parameters);
  ckpt_emit_u64(&json, "activation_bytes", memory.arena);
  ckpt_emit_u64(&json, "state_bytes", memory.state);
  ckpt_emit_u64(&json, "product_bytes", memory.products);
  ckpt_emit_u64(&json, "logit_bytes", n_logits);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
  return CKPT_OK;
}

static void print_result(const logits *l, const ckpt_args *args) {
  const char *path = ckpt_args_text(args, "output", NULL);
  if (!args->json) return;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "output", path);
  ckpt_emit_text(&json, "device", l->runner.device->table->name);
  ckpt_emit_text(&json, "architecture", l->model->architecture);
  ckpt_emit_array(&json, "shape");
  ckpt_emit_u64(&json, NULL, l->sequences.n);
  if (l->model->n_labels == 0) ckpt_emit_u64(&json, NULL, l->sequences.longest);
  ckpt_emit_u64(&json, NULL, ckpt_model_logits(l->model));
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

static ckpt_status run_all(logits *l, ckpt_args *args, ckpt_error *err) {
  CKPT_TRY(ckpt_device_check(ckpt_args_text(args, "device", NULL), err));
  CKPT_TRY(read_sequences(&l->sequences, args, err));
  CKPT_TRY(ckpt_input_open(&l->input, args, 0, err));
  ckpt_input_print_notes(args, &l->input);
  CKPT_TRY(make_model(l, args, err));
  if (ckpt_args_has(args, "plan")) return print_plan(l, args, err);
  CKPT_TRY(load_and_run(l, args, err));
  print_result(l, args);
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  logits l = {0};
  ckpt_status status = run_all(&l, args, &err);
  ckpt_plan_free(l.plan);
  free(l.values);
  free(l.lengths);
  free(l.of_tokens);
  ckpt_runner_close(&l.runner);
  ckpt_model_free(l.model);
  ckpt_input_close(&l.input);
  free_sequences(&l.sequences);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_logits = {
    .name = "logits",
    .forms =
        "logits MODEL --ids 1,2,3 -o OUT\n"
        "logits MODEL -f IDS.jsonl -o OUT",
    .summary = "logits of given token ids",
    .details =
        "Runs the model in f32, whatever its weights are stored as (--dtype bf16: its products in bf16), and writes "
        "the tensor `logits` of shape (sequences, positions, vocabulary). Sequences of several lengths are filled up "
        "with zeros, and the tensor `lengths` says how many positions each has. Models: LlamaForCausalLM, "
        "MistralForCausalLM, Qwen2ForCausalLM, GPT2LMHeadModel, and of the same families ForSequenceClassification, "
        "whose logits are (sequences, labels): those of the last token that is not pad_token_id. Others are refused "
        "by name. The same command gives the same bits for any --threads.\n\n"
        "  ckpt logits llama/ --ids 1,15043,3186 -o out.safetensors && ckpt cat out.safetensors 'logits[0,-1,:8]'",
    .json =
        "{\"status\",\"output\",\"device\",\"architecture\",\"shape\",\"notes\":[]}; --plan: {\"status\",\"tape\","
        "\"parameter_bytes\",\"activation_bytes\",\"state_bytes\",\"product_bytes\",\"logit_bytes\",\"notes\":[]}",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
