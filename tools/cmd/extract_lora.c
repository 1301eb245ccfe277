/* extract_lora.c - `ckpt extract-lora`: the adapter that makes one model of another. See recipe/extract/extract.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/overlap.h"
#include "libckpt/recipe/convert/convert.h"
#include "libckpt/recipe/convert/receipt.h"
#include "libckpt/recipe/extract/extract.h"
#include "tools/cli/text.h"
#include "tools/report/describe.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/report.h"

typedef struct job {
  ckpt_args *args;
  const char *path; /* of the output */
  ckpt_index *base, *tuned, *adapter;
  ckpt_extraction *extraction;
  ckpt_plan *plan;
  ckpt_convert_options options;
  ckpt_convert_target target;
  ckpt_convert_request request;
  ckpt_extract_options wanted;
  ckpt_sink *receipt; /* NULL without --receipt */
} job;

/* ---- opening ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_options(ckpt_extract_options *out, ckpt_args *args, ckpt_error *err) {
  const bool has_rank = ckpt_args_has(args, "rank"), has_energy = ckpt_args_has(args, "energy");
  if (has_rank == has_energy) return ckpt_args_fail(args, err, "one of --rank and --energy is needed");
  *out = (ckpt_extract_options){.tuned_path = ckpt_args_text(args, "tuned", NULL),
                                .rank = (uint32_t)ckpt_args_size(args, "rank", 0),
                                .energy = ckpt_args_number(args, "energy", 0)};
  return ckpt_args_texts(&out->exclude, args, "exclude", err);
}

static ckpt_status open_all(job *j, ckpt_error *err) {
  const ckpt_open_options options = ckpt_input_options(j->args, false);
  CKPT_TRY(read_options(&j->wanted, j->args, err));
  CKPT_TRY(ckpt_open(&j->base, ckpt_args_text(j->args, "base", NULL), &options, err));
  CKPT_TRY(ckpt_open(&j->tuned, ckpt_args_text(j->args, "tuned", NULL), &options, err));
  return ckpt_extract_open(&j->extraction, j->base, j->tuned, &j->wanted, err);
}

/* Refuses an output that could not be written, before hours of work. */
static ckpt_status check_output(job *j, ckpt_error *err) {
  ckpt_plan *plan;
  uint32_t sink;
  CKPT_TRY(ckpt_plan_new(&plan, err));
  ckpt_status status = ckpt_plan_reads(plan, j->base, NULL, err);
  if (status == CKPT_OK) status = ckpt_plan_reads(plan, j->tuned, NULL, err);
  const bool force = ckpt_args_has(j->args, "force");
  const char *receipt = ckpt_args_text(j->args, "receipt", NULL);
  ckpt_sink *file = NULL;
  if (status == CKPT_OK) status = ckpt_plan_output(plan, j->path, "hf", force, &sink, err);
  if (status == CKPT_OK && receipt != NULL && ckpt_is_same_path(j->path, receipt))
    status = ckpt_args_fail(j->args, err, "--receipt %s is the output too", receipt);
  if (status == CKPT_OK && receipt != NULL) status = ckpt_plan_sink(plan, receipt, false, force, &file, err);
  ckpt_sink_free(file);
  ckpt_plan_free(plan);
  return status;
}

/* ---- --plan ------------------------------------------------------------------------------------------------------ */

static void show_plan(const job *j) {
  ckpt_extract_plan plan;
  char read[32], write[32], memory[32], linear[32], others[32], shape[CKPT_SHAPE_TEXT];
  ckpt_extract_describe(&plan, j->extraction);
  if (j->args->json) {
    ckpt_emitter json;
    ckpt_emit_begin(&json, stdout);
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "status", "ok");
    ckpt_emit_text(&json, "output", j->path);
    ckpt_emit_u64(&json, "n_linear", plan.n_linear);
    ckpt_emit_u64(&json, "n_others", plan.n_others);
    ckpt_emit_u64(&json, "n_bytes_read", plan.n_bytes_read);
    ckpt_emit_u64(&json, "n_bytes_factors", plan.n_bytes_factors);
    ckpt_emit_u64(&json, "peak_bytes", plan.memory);
    ckpt_emit_array(&json, "notes");
    ckpt_report_emit_noted(j->args, &json);
    ckpt_emit_end(&json);
    ckpt_emit_end(&json);
    return;
  }
  ckpt_text_print(stdout, j->path);
  printf(": factors of at most %s linear layers, %s, and of %s other tensors those that differ\n",
         ckpt_text_count(plan.n_linear, linear), ckpt_text_size(plan.n_bytes_factors, write),
         ckpt_text_count(plan.n_others, others));
  printf("reads %s, memory %s", ckpt_text_size(plan.n_bytes_read, read), ckpt_text_size(plan.memory, memory));
  if (plan.largest != NULL) {
    fputs(", which the largest matrix decides: ", stdout);
    ckpt_text_print(stdout, plan.largest->name);
    printf(" %s", ckpt_tensor_shape_text(plan.largest, shape, sizeof shape));
  }
  putchar('\n');
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

typedef struct sums {
  double squares, errors; /* of linear layers */
  uint64_t n_linear, n_whole;
} sums;

static sums add_up(const job *j) {
  sums all = {0};
  ckpt_extracted one;
  for (size_t i = 0; ckpt_extract_at(j->extraction, i, &one); i++) {
    all.n_linear += one.rank != 0;
    all.n_whole += one.rank == 0 && one.norm != 0;
    if (one.rank == 0) continue;
    all.squares += one.norm * one.norm;
    all.errors += one.error * one.error;
  }
  return all;
}

static double share(double error, double norm) { return norm == 0 ? 0 : error / norm; }

static void print_result(const job *j) {
  const sums all = add_up(j);
  ckpt_extracted one;
  char linear[32], whole[32];
  for (size_t i = 0; ckpt_extract_at(j->extraction, i, &one); i++) {
    if (one.norm == 0) continue;
    ckpt_text_print(stdout, one.name);
    if (one.rank != 0)
      printf("  rank %" PRIu64 ", norm %.4g, error %.4g (%.3g %%)\n", one.rank, one.norm, one.error,
             100 * share(one.error, one.norm));
    else
      printf("  whole, norm %.4g\n", one.norm);
  }
  printf("%s linear layer%s: norm %.4g, error %.4g (%.3g %%); %s tensor%s whole\n",
         ckpt_text_count(all.n_linear, linear), ckpt_plural(all.n_linear), sqrt(all.squares), sqrt(all.errors),
         100 * share(sqrt(all.errors), sqrt(all.squares)), ckpt_text_count(all.n_whole, whole),
         ckpt_plural(all.n_whole));
}

static void emit_result(const job *j, const ckpt_job *run, const ckpt_written *output) {
  const sums all = add_up(j);
  char digest[80];
  ckpt_extracted one;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "output", output->path);
  ckpt_emit_u64(&json, "n_tensors", output->n_tensors);
  ckpt_emit_u64(&json, "n_bytes", output->n_bytes);
  ckpt_emit_text(&json, "digest", ckpt_digest_text(&output->digest, digest));
  ckpt_emit_number(&json, "norm", sqrt(all.squares));
  ckpt_emit_number(&json, "error", sqrt(all.errors));
  ckpt_emit_number(&json, "relative_error", share(sqrt(all.errors), sqrt(all.squares)));
  ckpt_emit_array(&json, "tensors");
  for (size_t i = 0; ckpt_extract_at(j->extraction, i, &one); i++) {
    if (one.norm == 0) continue;
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "name", one.name);
    ckpt_emit_u64(&json, "rank", one.rank);
    ckpt_emit_number(&json, "norm", one.norm);
    ckpt_emit_number(&json, "error", one.error);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  ckpt_emit_number(&json, "seconds", run->seconds);
  ckpt_report_emit_notes(j->args, &json, output, 1);
  ckpt_emit_end(&json);
}

/* A rank above a matrix's smaller side is that side, which is exact. */
static void note_small(const job *j, uint64_t rank) {
  ckpt_extracted one;
  ckpt_name_list small = {.n = 0};
  for (size_t i = 0; rank != 0 && ckpt_extract_at(j->extraction, i, &one); i++)
    if (one.is_linear && (one.tensor->shape[0] < rank || one.tensor->shape[1] < rank))
      ckpt_name_list_add(&small, one.name);
  if (small.n == 0) return;
  ckpt_report_note(j->args, "%zu matri%s smaller than rank %" PRIu64 " (%s): of these the rank is the smaller side",
                   small.n, small.n == 1 ? "x is" : "ces are", rank, small.text);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

/* The folder that the output will be in. */
static const char *folder_of(job *j) {
  size_t n = strlen(j->path);
  while (n > 1 && j->path[n - 1] == '/') n--;
  while (n > 0 && j->path[n - 1] != '/') n--;
  return n == 0 ? "." : ckpt_arena_text(&j->args->arena, j->path, n);
}

static void make_request(job *j) {
  j->target = (ckpt_convert_target){.path = j->path, .to = "hf"};
  j->options = (ckpt_convert_options){.struct_size = sizeof j->options,
                                      .input = ckpt_args_text(j->args, "base", NULL),
                                      .force = ckpt_args_has(j->args, "force"),
                                      .allow_corrupt = ckpt_args_has(j->args, "allow-corrupt")};
  j->request = (ckpt_convert_request){.verb = j->args->verb->name,
                                      .from = j->adapter,
                                      .extraction = j->extraction,
                                      .targets = &j->target,
                                      .n_targets = 1,
                                      .options = &j->options};
  const ckpt_format_values none = {.n = 0};
  j->request.further = ckpt_further_inputs_list(&none, NULL, &j->wanted);
  j->request.further.items[0].index = j->tuned;
}

static ckpt_status write_adapter(job *j, const ckpt_run_options *run, ckpt_error *err) {
  const char *receipt = ckpt_args_text(j->args, "receipt", NULL);
  CKPT_TRY(ckpt_extract_adapter(&j->adapter, j->extraction, err));
  CKPT_TRY(ckpt_plan_new(&j->plan, err));
  make_request(j);
  CKPT_TRY(ckpt_convert_plan(j->plan, &j->request, err));
  if (receipt != NULL) {
    CKPT_TRY(ckpt_plan_sink(j->plan, receipt, false, j->options.force, &j->receipt, err));
    CKPT_TRY(ckpt_receipt_plan(j->plan, &j->request, err));
  }
  return ckpt_convert_run(j->plan, &j->request, run, j->receipt, err);
}

static ckpt_status extract(job *j, ckpt_job *run, ckpt_error *err) {
  const char *folder = folder_of(j);
  CKPT_TRY_ALLOC(folder, err);
  CKPT_TRY(ckpt_extract_run(j->extraction, folder, &run->run, err));
  return write_adapter(j, &run->run, err);
}

static ckpt_status report(job *j, const ckpt_job *run, ckpt_error *err) {
  static const ckpt_writing nothing = {0};
  const ckpt_input input = {.index = j->adapter};
  const ckpt_described described = {
      .arena = &j->args->arena, .plan = j->plan, .input = &input, .options = &j->options, .writing = &nothing};
  ckpt_written *output;
  CKPT_TRY(ckpt_describe_outputs(&described, &output, err));
  note_small(j, ckpt_args_size(j->args, "rank", 0));
  if (j->args->json) {
    emit_result(j, run, output);
    return CKPT_OK;
  }
  print_result(j);
  ckpt_report_written(j->args, run, output, 1);
  return CKPT_OK;
}

static void close_all(job *j) {
  ckpt_sink_free(j->receipt);
  ckpt_plan_free(j->plan);
  ckpt_index_free(j->adapter);
  ckpt_extract_free(j->extraction);
  ckpt_index_free(j->base);
  ckpt_index_free(j->tuned);
}

static int run(ckpt_args *args) {
  job j = {.args = args, .path = ckpt_args_text(args, "output", NULL)};
  ckpt_error err = {0};
  ckpt_status status = open_all(&j, &err);
  if (status == CKPT_OK) status = check_output(&j, &err);
  if (status == CKPT_OK && ckpt_args_has(args, "plan")) {
    show_plan(&j);
  } else if (status == CKPT_OK) {
    ckpt_job running;
    ckpt_job_begin(&running, args);
    status = extract(&j, &running, &err);
    ckpt_job_end(&running);
    if (status == CKPT_OK) status = report(&j, &running, &err);
  }
  close_all(&j);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_extract_lora = {
    .name = "extract-lora",
    .forms = "extract-lora --base BASE --tuned TUNED (--rank R | --energy X) -o ADAPTER_DIR",
    .summary = "make the LoRA adapter that turns one model into another",
    .details =
        "The difference of each linear layer becomes two factors, by a truncated singular value decomposition in f64: "
        "of rank R, or of the least rank that has the share X of its squared norm. Whatever else differs is stored "
        "whole. Prints what the factors leave out of each difference, and of all. ADAPTER_DIR is a folder as PEFT "
        "saves "
        "it, and BASE with it is TUNED up to that error. Memory is that of the largest matrix, which --plan says and "
        "--memory does not bound.\n\n"
        "  ckpt extract-lora --base llama/ --tuned chat/ --rank 32 -o lora/\n"
        "  ckpt extract-lora --base llama/ --tuned merged/ --energy 0.999999 -o lora/",
    .json =
        "{\"status\",\"output\",\"n_tensors\",\"n_bytes\",\"digest\",\"norm\",\"error\",\"relative_error\","
        "\"tensors\":[{\"name\",\"rank\",\"norm\",\"error\"}],\"seconds\",\"notes\":[]}",
    .sets = CKPT_SET_RUN,
    .min_inputs = 0,
    .max_inputs = 0,
    .run = run,
};
