/* ppl.c - `ckpt ppl`: the gate before deployment, perplexity and divergence from a reference, as an exit code. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/job.h"
#include "tools/report/model.h"
#include "tools/report/report.h"
#include "tools/report/text_files.h"
#include "trainer/evaluation/perplexity.h"
#include "trainer/evaluation/runner.h"

enum { MAX_GATES = 4, DEFAULT_CTX = 512 };

/* A limit, and how the run stands to it. */
typedef struct gate {
  const char *name;
  double limit, value, error; /* of the value */
  bool is_least;              /* the value may not be below it */
} gate;

/* One model of the two. */
typedef struct side {
  ckpt_index *index, *like;
  uint64_t vocabulary;
  ckpt_runner runner;
  ckpt_tokenizer *tokenizer;
  ckpt_text_encoder *encoder;
} side;

typedef struct job {
  const ckpt_args *args;
  ckpt_input input, reference_input;
  side candidate, reference;
  bool has_reference;
  uint32_t ctx, n_windows;
  int32_t *ids; /* of the text, as the candidate's tokenizer has it */
  size_t n_ids;
  char **texts; /* owned, each of them too */
  size_t *n_bytes, n_texts;
  gate gates[MAX_GATES];
  uint32_t n_gates;
  ckpt_perplexity result;
  double seconds;
  ckpt_job *run;
} job;

/* ---- gates ------------------------------------------------------------------------------------------------------- */

/* "0.01" or "1%". */
static ckpt_status read_share(double *out, const ckpt_args *args, const char *name, ckpt_error *err) {
  const char *text = ckpt_args_text(args, name, NULL);
  char *end;
  *out = ckpt_c_strtod(text, &end);
  if (end != text && strcmp(end, "%") == 0) {
    *out /= 100;
    end++;
  }
  if (end == text || *end != '\0' || !isfinite(*out) || *out < 0)
    return ckpt_args_fail(args, err, "--%s takes a number or a percentage that is not negative, not '%.40s'", name,
                          text);
  return CKPT_OK;
}

static void add_gate(job *j, const char *name, double limit, bool is_least) {
  j->gates[j->n_gates++] = (gate){.name = name, .limit = limit, .is_least = is_least};
}

static ckpt_status read_gates(job *j, ckpt_error *err) {
  const ckpt_args *args = j->args;
  static const char *const relative[] = {"max-ppl-increase", "max-kl", "min-top1"};
  double share;
  for (size_t i = 0; i < sizeof relative / sizeof *relative; i++)
    if (ckpt_args_has(args, relative[i]) && !j->has_reference)
      return ckpt_args_fail(args, err, "--%s needs --against REF", relative[i]);
  if (ckpt_args_has(args, "max-ppl")) add_gate(j, "max_ppl", ckpt_args_number(args, "max-ppl", 0), false);
  if (ckpt_args_has(args, "max-ppl-increase")) {
    CKPT_TRY(read_share(&share, args, "max-ppl-increase", err));
    add_gate(j, "max_ppl_increase", share, false);
  }
  if (ckpt_args_has(args, "max-kl")) add_gate(j, "max_kl", ckpt_args_number(args, "max-kl", 0), false);
  if (ckpt_args_has(args, "min-top1")) {
    CKPT_TRY(read_share(&share, args, "min-top1", err));
    if (share > 1) return ckpt_args_fail(args, err, "--min-top1 is a share: at most 1, or 100%%, not %g", share);
    add_gate(j, "min_top1", share, true);
  }
  if (ckpt_args_has(args, "strict") && j->n_gates == 0) return ckpt_args_fail(args, err, "--strict without a gate");
  return CKPT_OK;
}

static void fill_gates(job *j) {
  const ckpt_perplexity *p = &j->result;
  for (uint32_t i = 0; i < j->n_gates; i++) {
    gate *g = &j->gates[i];
    if (strcmp(g->name, "max_ppl") == 0) g->value = p->ppl, g->error = p->ppl_stderr;
    if (strcmp(g->name, "max_ppl_increase") == 0) g->value = p->ppl_ratio - 1, g->error = p->ppl_ratio_stderr;
    if (strcmp(g->name, "max_kl") == 0) g->value = p->kl_mean, g->error = p->kl_stderr;
    if (strcmp(g->name, "min_top1") == 0) g->value = p->top1, g->error = p->top1_stderr;
  }
}

/* Why nothing passes: what is no number, or comes from one window, never does. NULL: it may. */
static const char *why_unmeasured(const job *j) {
  if (!j->result.is_finite) return "a probability is no number above 0: nothing passes";
  return j->result.n_windows < 2 ? "one window is not enough: nothing passes (more text, or a shorter --ctx)" : NULL;
}

static bool is_measured(const job *j) { return why_unmeasured(j) == NULL; }

static bool passes(const job *j, const gate *g) {
  return is_measured(j) && (g->is_least ? g->value >= g->limit : g->value <= g->limit);
}

static bool is_inconclusive(const job *j, const gate *g) {
  return is_measured(j) && fabs(g->value - g->limit) < 2 * g->error;
}

/* Whether the whole is good: without gates, a perplexity that is measured. */
static bool is_good(const job *j) {
  bool is_strict = ckpt_args_has(j->args, "strict");
  if (!is_measured(j)) return false;
  for (uint32_t i = 0; i < j->n_gates; i++)
    if (!passes(j, &j->gates[i]) || (is_strict && is_inconclusive(j, &j->gates[i]))) return false;
  return true;
}

/* ---- the text ---------------------------------------------------------------------------------------------------- */

static ckpt_status read_texts(job *j, ckpt_args *args, ckpt_error *err) {
  const char *const *paths;
  size_t n = 0;
  CKPT_TRY(ckpt_args_texts(&paths, args, "file", err));
  while (paths[n] != NULL) n++;
  j->texts = calloc(n, sizeof *j->texts);
  j->n_bytes = calloc(n, sizeof *j->n_bytes);
  if (j->texts == NULL || j->n_bytes == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (; j->n_texts < n; j->n_texts++)
    CKPT_TRY(ckpt_text_document_read(&j->texts[j->n_texts], &j->n_bytes[j->n_texts], paths[j->n_texts], err));
  return CKPT_OK;
}

/* The texts' ids, one text after the other; the caller frees them. */
static ckpt_status encode(int32_t **out, size_t *n, const job *j, const side *s, unsigned flags, ckpt_error *err) {
  ckpt_encoding encoding = {0};
  ckpt_status status = CKPT_OK;
  *out = NULL;
  *n = 0;
  for (size_t i = 0; i < j->n_texts && status == CKPT_OK; i++) {
    status = ckpt_text_encode(s->encoder, &encoding, j->texts[i], j->n_bytes[i], flags, err);
    int32_t *grown = reallocarray(*out, *n + encoding.n + 1, sizeof *grown);
    if (status == CKPT_OK && grown == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (grown != NULL) *out = grown;
    for (size_t k = 0; status == CKPT_OK && k < encoding.n; k++) (*out)[(*n)++] = (int32_t)encoding.ids[k];
  }
  ckpt_encoding_free(&encoding);
  return status;
}

static ckpt_status open_tokenizer(side *s, ckpt_error *err) {
  ckpt_error none = {0};
  ckpt_status status = ckpt_tokenizer_read(&s->tokenizer, s->index, s->like == NULL ? err : &none);
  if (status == CKPT_ENOTFOUND && s->like != NULL) status = ckpt_tokenizer_read(&s->tokenizer, s->like, err);
  if (status != CKPT_OK) return ckpt_fail(err, status, none.file, NULL, "%s", none.message);
  return ckpt_text_encoder_new(&s->encoder, s->tokenizer, err);
}

/* What the tokenizers put before a text. Formats differ in whether they say so: both models are given what the
 * candidate's says. Two that put different tokens there are two tokenizers. */
static ckpt_status compare_beginnings(const job *j, ckpt_error *err) {
  const ckpt_tokenizer *a = j->candidate.tokenizer, *b = j->reference.tokenizer;
  if ((a->n_before == 0) != (b->n_before == 0))
    ckpt_report_note(j->args, "%s puts token %" PRIu32 " before a text and %s none: both models are run %s it",
                     a->n_before != 0 ? j->candidate.index->path : j->reference.index->path,
                     a->n_before != 0 ? a->before[0] : b->before[0],
                     a->n_before != 0 ? j->reference.index->path : j->candidate.index->path,
                     a->n_before != 0 ? "with" : "without");
  if (a->n_before == 0 || b->n_before == 0 || a->before[0] == b->before[0]) return CKPT_OK;
  return ckpt_fail(err, CKPT_EDIFFERENT, j->reference.index->path, NULL,
                   "its tokenizer is another: it puts token %" PRIu32 " before a text, that of %s %" PRIu32,
                   b->before[0], j->candidate.index->path, a->before[0]);
}

/* The reference has to see the same ids: divergence over other tokens means nothing. */
static ckpt_status compare_ids(const job *j, ckpt_error *err) {
  int32_t *a = NULL, *b = NULL;
  size_t n_a, n_b, i = 0;
  CKPT_TRY(compare_beginnings(j, err));
  ckpt_status status = encode(&a, &n_a, j, &j->candidate, 0, err);
  if (status == CKPT_OK) status = encode(&b, &n_b, j, &j->reference, 0, err);
  if (status == CKPT_OK) {
    while (i < n_a && i < n_b && a[i] == b[i]) i++;
    if (i != n_a || i != n_b)
      status = ckpt_fail(err, CKPT_EDIFFERENT, j->reference.index->path, NULL,
                         "its tokenizer is another: token %zu of the text is %" PRId32 ", that of %s is %" PRId32, i,
                         i < n_b ? b[i] : -1, j->candidate.index->path, i < n_a ? a[i] : -1);
  }
  free(a);
  free(b);
  return status;
}

/* ---- the models -------------------------------------------------------------------------------------------------- */

/* llama.cpp puts BOS in the place of each window's first token where the text begins with one. */
static int32_t bos_of(const job *j) {
  const uint32_t bos = j->candidate.tokenizer->special[CKPT_SPECIAL_BOS];
  return bos != CKPT_TOKEN_NONE && j->n_ids != 0 && j->ids[0] == (int32_t)bos ? (int32_t)bos : -1;
}

static bool is_bf16(const ckpt_args *args) { return strcmp(ckpt_args_text(args, "dtype", "f32"), "bf16") == 0; }

static ckpt_status open_side(job *j, side *s, ckpt_error *err) {
  const ckpt_runner_options options = {.max_rows = 1,
                                       .max_length = j->ctx,
                                       .n_threads = (uint32_t)ckpt_args_size(j->args, "threads", 0),
                                       .device = ckpt_args_text(j->args, "device", NULL),
                                       .like = s->like,
                                       .is_bf16 = is_bf16(j->args),
                                       .run = &j->run->run};
  CKPT_TRY(ckpt_fail_at(ckpt_runner_open(&s->runner, s->index, &options, err), err, s->index->path, NULL));
  return CKPT_OK;
}

static ckpt_status check_ids(const job *j, const side *s, ckpt_error *err) {
  for (size_t i = 0; i < j->n_ids; i++)
    if ((uint64_t)j->ids[i] >= s->vocabulary)
      return ckpt_fail(err, CKPT_EFORMAT, s->index->path, NULL,
                       "its tokenizer gives id %" PRId32 ", its vocabulary has %" PRIu64, j->ids[i], s->vocabulary);
  return CKPT_OK;
}

static bool show_progress(void *arg, uint32_t n_done, uint32_t n_windows, double nll) {
  job *j = arg;
  char what[64];
  (void)snprintf(what, sizeof what, "ppl %.4f", exp(nll));
  ckpt_meter_step(&j->run->meter, n_done, n_windows, what);
  return ckpt_job_signal() == 0;
}

static ckpt_perplexity_options options_of(job *j) {
  const bool is_hf = strcmp(ckpt_args_text(j->args, "scoring", "llama"), "hf") == 0;
  return (ckpt_perplexity_options){.scoring = is_hf ? CKPT_SCORING_HF : CKPT_SCORING_LLAMA,
                                   .ctx = j->ctx,
                                   .stride = (uint32_t)ckpt_args_size(j->args, "stride", 0),
                                   .n_chunks = (uint32_t)ckpt_args_size(j->args, "chunks", 0),
                                   .bos = is_hf ? -1 : bos_of(j),
                                   .progress = show_progress,
                                   .progress_arg = j};
}

/* Tokenizers, windows and vocabularies, before any weight is read. */
static ckpt_status prepare(job *j, ckpt_error *err) {
  CKPT_TRY(ckpt_fail_at(open_tokenizer(&j->candidate, err), err, j->candidate.index->path, NULL));
  CKPT_TRY(encode(&j->ids, &j->n_ids, j, &j->candidate, CKPT_TEXT_SPECIAL, err));
  CKPT_TRY(check_ids(j, &j->candidate, err));
  const ckpt_perplexity_options options = options_of(j);
  CKPT_TRY(ckpt_perplexity_plan(&j->n_windows, j->n_ids, &options, err));
  if (!j->has_reference) return CKPT_OK;
  CKPT_TRY(ckpt_fail_at(open_tokenizer(&j->reference, err), err, j->reference.index->path, NULL));
  CKPT_TRY(compare_ids(j, err));
  if (j->reference.vocabulary == j->candidate.vocabulary) return CKPT_OK;
  return ckpt_fail(err, CKPT_EDIFFERENT, j->reference.index->path, NULL,
                   "has a vocabulary of %" PRIu64 ", %s one of %" PRIu64, j->reference.vocabulary,
                   j->candidate.index->path, j->candidate.vocabulary);
}

static ckpt_status evaluate(job *j, ckpt_error *err) {
  const ckpt_perplexity_options options = options_of(j);
  CKPT_TRY(open_side(j, &j->candidate, err));
  if (j->has_reference) CKPT_TRY(open_side(j, &j->reference, err));
  const double started = j->run->meter.now();
  j->run->meter.started = started; /* the text's own time is what is left of it judged by */
  CKPT_TRY(ckpt_perplexity_run(&j->result, j->candidate.runner.executor, j->reference.runner.executor,
                               j->candidate.vocabulary, j->ids, j->n_ids, &options, err));
  j->seconds = j->run->meter.now() - started;
  return CKPT_OK;
}

/* ---- what is printed --------------------------------------------------------------------------------------------- */

static double tokens_per_second(const job *j) { return j->seconds > 0 ? (double)j->result.n_run / j->seconds : 0; }

/* NaN has no sign to be shown. */
static double shown(double number) { return isnan(number) ? fabs(number) : number; }

static void print_text(const job *j) {
  const ckpt_perplexity *p = &j->result;
  char count[32];
  printf("ppl    %.4f +- %.4f  (%s token%s scored in %" PRIu32 " window%s of %" PRIu32 ")\n", shown(p->ppl),
         shown(p->ppl_stderr), ckpt_text_count(p->n_tokens, count), ckpt_plural(p->n_tokens), p->n_windows,
         ckpt_plural(p->n_windows), j->ctx);
  if (j->has_reference) {
    printf("ref    %.4f, ratio %.5f +- %.5f\n", shown(p->ref_ppl), shown(p->ppl_ratio), shown(p->ppl_ratio_stderr));
    printf("kl     mean %.6f +- %.6f, median %.6f, 99%% %.6f, max %.6f\n", shown(p->kl_mean), shown(p->kl_stderr),
           shown(p->kl_median), shown(p->kl_p99), shown(p->kl_max));
    printf("top1   %.4f +- %.4f\n", shown(p->top1), shown(p->top1_stderr));
  }
  for (uint32_t i = 0; i < j->n_gates; i++) {
    const gate *g = &j->gates[i];
    printf("%-6s %s %s %g: %g%s\n", passes(j, g) ? "passed" : "missed", g->name, g->is_least ? ">=" : "<=", g->limit,
           shown(g->value), is_inconclusive(j, g) ? " (inconclusive: within 2 standard errors)" : "");
  }
  if (!is_measured(j)) puts(why_unmeasured(j));
}

static void emit_result(const job *j, ckpt_emitter *json) {
  const ckpt_perplexity *p = &j->result;
  const struct {
    const char *key;
    double value;
    bool of_reference;
  } numbers[] = {{"ppl", p->ppl, false},
                 {"ppl_stderr", p->ppl_stderr, false},
                 {"nll", p->nll, false},
                 {"ref_ppl", p->ref_ppl, true},
                 {"ppl_ratio", p->ppl_ratio, true},
                 {"ppl_ratio_stderr", p->ppl_ratio_stderr, true},
                 {"kl_mean", p->kl_mean, true},
                 {"kl_stderr", p->kl_stderr, true},
                 {"kl_median", p->kl_median, true},
                 {"kl_p99", p->kl_p99, true},
                 {"kl_max", p->kl_max, true},
                 {"top1", p->top1, true}};
  ckpt_emit_u64(json, "n_tokens", p->n_tokens);
  ckpt_emit_u64(json, "n_windows", p->n_windows);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (!numbers[i].of_reference || j->has_reference) ckpt_emit_number(json, numbers[i].key, numbers[i].value);
  ckpt_emit_text(json, "device", j->candidate.runner.device->table->name);
  ckpt_emit_number(json, "tokens_per_second", tokens_per_second(j));
}

static void print_json(const job *j) {
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", is_good(j) ? "ok" : "missed");
  emit_result(j, &json);
  ckpt_emit_array(&json, "gates");
  for (uint32_t i = 0; i < j->n_gates; i++) {
    const gate *g = &j->gates[i];
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "name", g->name);
    ckpt_emit_number(&json, "limit", g->limit);
    ckpt_emit_number(&json, "value", g->value);
    ckpt_emit_bool(&json, "passed", passes(j, g));
    ckpt_emit_bool(&json, "inconclusive", is_inconclusive(j, g));
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  if (!is_measured(j)) ckpt_emit_text(&json, "why", why_unmeasured(j));
  ckpt_report_emit_notes(j->args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

static void print_memory(const job *j, const ckpt_executor_memory memory[2]) {
  const side *const sides[] = {&j->candidate, &j->reference};
  printf("%" PRIu32 " window%s of %" PRIu32 " tokens\n", j->n_windows, ckpt_plural(j->n_windows), j->ctx);
  for (size_t i = 0; i < 1 + (size_t)j->has_reference; i++)
    printf("%s: parameters %" PRIu64 ", activations %" PRIu64 ", states %" PRIu64 ", products %" PRIu64 " bytes\n",
           sides[i]->index->path, memory[i].parameters, memory[i].arena, memory[i].state, memory[i].products);
}

static void emit_memory(const job *j, const ckpt_executor_memory memory[2]) {
  const side *const sides[] = {&j->candidate, &j->reference};
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_u64(&json, "n_windows", j->n_windows);
  ckpt_emit_array(&json, "models");
  for (size_t i = 0; i < 1 + (size_t)j->has_reference; i++) {
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "path", sides[i]->index->path);
    ckpt_emit_u64(&json, "parameter_bytes", memory[i].parameters);
    ckpt_emit_u64(&json, "activation_bytes", memory[i].arena);
    ckpt_emit_u64(&json, "state_bytes", memory[i].state);
    ckpt_emit_u64(&json, "product_bytes", memory[i].products);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_report_emit_notes(j->args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

static ckpt_status print_plan(const job *j, ckpt_error *err) {
  const side *const sides[] = {&j->candidate, &j->reference};
  ckpt_executor_memory memory[2];
  for (size_t i = 0; i < 1 + (size_t)j->has_reference; i++) {
    const ckpt_runner_options options = {.max_rows = 1,
                                         .max_length = j->ctx,
                                         .n_threads = (uint32_t)ckpt_args_size(j->args, "threads", 0),
                                         .like = sides[i]->like,
                                         .is_bf16 = is_bf16(j->args)};
    CKPT_TRY(ckpt_runner_plan(&memory[i], sides[i]->index, &options, err));
  }
  if (j->args->json)
    emit_memory(j, memory);
  else
    print_memory(j, memory);
  return CKPT_OK;
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

/* --ctx as the models can take it. */
static ckpt_status choose_ctx(job *j, ckpt_error *err) {
  const uint64_t wanted = ckpt_args_size(j->args, "ctx", DEFAULT_CTX);
  side *const sides[] = {&j->candidate, &j->reference};
  uint64_t ctx = wanted;
  for (size_t i = 0; i < 1 + (size_t)j->has_reference; i++) {
    const ckpt_model_options forward = {.struct_size = sizeof forward};
    ckpt_model *model;
    CKPT_TRY(ckpt_fail_at(ckpt_model_open(&model, sides[i]->index, sides[i]->like, &forward, err), err,
                          sides[i]->index->path, NULL));
    if (ctx > model->max_positions) ctx = model->max_positions;
    sides[i]->vocabulary = model->vocabulary;
    ckpt_report_unused(j->args, sides[i]->index, model);
    ckpt_model_free(model);
  }
  if (ctx != wanted)
    ckpt_report_note(j->args, "windows of %" PRIu64 " tokens, the model's positions (--ctx %" PRIu64 ")", ctx, wanted);
  j->ctx = (uint32_t)ctx;
  return CKPT_OK;
}

static ckpt_status check_options(const ckpt_args *args, ckpt_error *err) {
  CKPT_TRY(ckpt_device_check(ckpt_args_text(args, "device", NULL), err));
  if (ckpt_args_has(args, "stride") && strcmp(ckpt_args_text(args, "scoring", "llama"), "hf") != 0)
    return ckpt_args_fail(args, err, "--stride is for --scoring hf");
  return CKPT_OK;
}

static ckpt_status run_all(job *j, ckpt_args *args, ckpt_error *err) {
  j->has_reference = ckpt_args_has(args, "against");
  CKPT_TRY(check_options(args, err));
  CKPT_TRY(read_gates(j, err));
  CKPT_TRY(ckpt_input_open(&j->input, args, 0, err));
  ckpt_input_print_notes(args, &j->input);
  j->candidate.index = j->input.index;
  j->candidate.like = j->input.like;
  if (j->has_reference) {
    CKPT_TRY(ckpt_input_open_option(&j->reference_input, args, "against", err));
    ckpt_input_print_notes(args, &j->reference_input);
    j->reference.index = j->reference_input.index;
    j->reference.like = j->reference_input.like;
  }
  CKPT_TRY(read_texts(j, args, err));
  CKPT_TRY(choose_ctx(j, err));
  CKPT_TRY(prepare(j, err));
  if (ckpt_args_has(args, "plan")) return print_plan(j, err);
  ckpt_job run;
  ckpt_job_begin(&run, args);
  j->run = &run;
  ckpt_status status = evaluate(j, err);
  ckpt_job_end(&run);
  CKPT_TRY(status);
  fill_gates(j);
  if (args->json)
    print_json(j);
  else
    print_text(j);
  if (!args->json)
    ckpt_report_note(args, "device %s, %.0f tokens/s", j->candidate.runner.device->table->name, tokens_per_second(j));
  return CKPT_OK;
}

static void release_side(side *s) {
  ckpt_runner_close(&s->runner);
  ckpt_text_encoder_free(s->encoder);
  ckpt_tokenizer_free(s->tokenizer);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  job j = {.args = args};
  ckpt_status status = run_all(&j, args, &err);
  const bool is_done = status == CKPT_OK && (ckpt_args_has(args, "plan") || is_good(&j));
  release_side(&j.candidate);
  release_side(&j.reference);
  ckpt_input_close(&j.reference_input);
  ckpt_input_close(&j.input);
  for (size_t i = 0; i < j.n_texts; i++) free(j.texts[i]);
  free(j.ids);
  free(j.texts);
  free(j.n_bytes);
  if (status != CKPT_OK) return ckpt_report_error(args, &err);
  return is_done ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

const ckpt_verb ckpt_verb_ppl = {
    .name = "ppl",
    .forms = "ppl MODEL -f TEXT... [--against REF] [--max-ppl X] [--max-ppl-increase 1%] [--max-kl X] [--min-top1 X]",
    .summary = "perplexity of a text, and divergence from a reference",
    .details =
        "The gate before deployment. MODEL and REF are of any format and of a family that runs; weights stay as they "
        "are stored and count as f32, blocks are dequantized exactly; --dtype bf16 multiplies in bf16. REF runs "
        "beside MODEL, window by window. --scoring llama counts as llama-perplexity does: the second half of each "
        "window, with BOS first where the tokenizer says so. --scoring hf weights every scored token alike, where "
        "transformers' recipe weights windows alike: with --stride they differ in the fourth digit. A gate that is "
        "missed is exit 1, and so is what is no number, or comes from fewer than two windows. A GGUF file that "
        "llama.cpp refuses is refused. The same command gives the same bits for any --threads.\n\n"
        "  ckpt ppl model-Q4_K_M.gguf --against release-hf/ -f eval.txt --max-kl 0.02",
    .json =
        "{\"status\",\"n_tokens\",\"n_windows\",\"ppl\",\"ppl_stderr\",\"nll\",\"ref_ppl\",\"ppl_ratio\","
        "\"ppl_ratio_stderr\",\"kl_mean\",\"kl_stderr\",\"kl_median\",\"kl_p99\",\"kl_max\",\"top1\",\"device\","
        "\"tokens_per_second\",\"gates\":[{\"name\",\"limit\",\"value\",\"passed\",\"inconclusive\"}],\"why\","
        "\"notes\":[]}; those of a reference only with --against, why only where nothing passes; --plan: "
        "{\"status\",\"n_windows\",\"models\":["
        "{\"path\",\"parameter_bytes\",\"activation_bytes\",\"state_bytes\",\"product_bytes\"}],\"notes\":[]}",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
