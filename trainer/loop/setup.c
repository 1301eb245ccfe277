/* setup.c - what a run needs before its ranks begin: the model's description, its files, data, and how many steps. */
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "trainer/loop/job.h"

#define MAX_CARRIED (UINT64_C(256) << 20)

/* ---- the model's files ------------------------------------------------------------------------------------------- */

static ckpt_status carry(ckpt_job *job, const char *name, const char *bytes, uint64_t n_bytes, ckpt_error *err) {
  ckpt_carried *all = reallocarray(job->carried, job->n_carried + 1, sizeof *all);
  CKPT_TRY_ALLOC(all, err);
  job->carried = all;
  const char *kept = ckpt_arena_copy(&job->arena, name);
  CKPT_TRY_ALLOC(kept, err);
  all[job->n_carried++] = (ckpt_carried){kept, bytes, n_bytes};
  return CKPT_OK;
}

/* What a run writes beside its model is that run's, and no part of the model that the next one begins with. */
static bool is_of_a_run(const char *name) {
  static const char *const names[] = {"run.json", "log.jsonl", "train_results.json", NULL};
  return ckpt_text_is_one_of(name, names);
}

static ckpt_status carry_from_index(ckpt_job *job, ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    const ckpt_side_file *side = &index->side_files[i];
    const char *text;
    if (side->is_read || strchr(side->name, '/') != NULL || is_of_a_run(side->name)) continue;
    CKPT_TRY(ckpt_index_side_text(index, side, MAX_CARRIED, &text, err));
    CKPT_TRY(carry(job, side->name, text, side->n_bytes, err));
  }
  return CKPT_OK;
}

static ckpt_status carry_file(ckpt_job *job, const char *name, ckpt_error *err) {
  char path[PATH_MAX];
  ckpt_c_snprintf(path, sizeof path, "%s/%s", job->options->model, name);
  FILE *file = fopen(path, "rb");
  if (file == NULL) return CKPT_OK;
  ckpt_status status = CKPT_OK;
  long n = -1;
  if (fseek(file, 0, SEEK_END) != 0 || (n = ftell(file)) < 0 || fseek(file, 0, SEEK_SET) != 0)
    status = ckpt_fail_errno(err, path, "it cannot be read");
  else if ((uint64_t)n > MAX_CARRIED)
    status = ckpt_fail(err, CKPT_ELIMIT, path, NULL, "%ld bytes are too many", n);
  char *bytes = status == CKPT_OK ? ckpt_arena_alloc(&job->arena, (size_t)n + 1) : NULL;
  if (status == CKPT_OK && (bytes == NULL || fread(bytes, 1, (size_t)n, file) != (size_t)n))
    status = ckpt_fail_errno(err, path, "it cannot be read");
  fclose(file);
  return status == CKPT_OK ? carry(job, name, bytes, (uint64_t)n, err) : status;
}

/* Of a model without weights: the files that transformers writes beside them. */
static ckpt_status carry_from_folder(ckpt_job *job, ckpt_error *err) {
  static const char *const names[] = {"config.json",
                                      "generation_config.json",
                                      "tokenizer.json",
                                      "tokenizer.model",
                                      "tokenizer_config.json",
                                      "special_tokens_map.json",
                                      "added_tokens.json",
                                      "vocab.json",
                                      "merges.txt",
                                      "chat_template.jinja"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) CKPT_TRY(carry_file(job, names[i], err));
  return CKPT_OK;
}

static const ckpt_carried *carried_of(const ckpt_job *job, const char *name) {
  for (uint32_t i = 0; i < job->n_carried; i++)
    if (strcmp(job->carried[i].name, name) == 0) return &job->carried[i];
  return NULL;
}

/* Rows of ids need no tokenizer: it is no failure that there is none. */
static ckpt_status open_tokenizer(ckpt_job *job, ckpt_error *err) {
  static const char *const names[] = {"tokenizer.json", "tokenizer.model", "vocab.json"};
  ckpt_error why = {0};
  bool has_one = job->base != NULL;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) has_one = has_one || carried_of(job, names[i]) != NULL;
  if (!has_one) return CKPT_OK;
  const ckpt_status status = job->base != NULL ? ckpt_tokenizer_read(&job->tokenizer, job->base, &why)
                                               : ckpt_tokenizer_open(&job->tokenizer, job->options->model, &why);
  if (status == CKPT_ENOTFOUND) return CKPT_OK;
  if (status != CKPT_OK) {
    if (err != NULL) *err = why;
    return status;
  }
  return ckpt_text_encoder_new(&job->encoder, job->tokenizer, err);
}

static ckpt_status make_model(ckpt_job *job, bool is_untied, ckpt_error *err) {
  const ckpt_carried *config = carried_of(job, "config.json");
  const ckpt_model_options options = {
      .struct_size = sizeof options, .needs_backward = true, .is_bf16 = job->arguments->bf16, .is_untied = is_untied};
  if (config == NULL) return ckpt_fail(err, CKPT_ENOTFOUND, job->options->model, NULL, "there is no config.json in it");
  ckpt_model_free(job->model);
  job->model = NULL;
  return ckpt_model_new(&job->model, config->bytes, (size_t)config->n_bytes, job->options->model, &options, err);
}

/* With an adapter its config goes along, and the model's does not: the folder is no model. */
static ckpt_status open_lora(ckpt_job *job, ckpt_error *err) {
  uint32_t n = 0;
  job->trained = job->model;
  if (job->options->lora == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_lora_new(&job->lora, job->options->lora, job->model, job->options->model, err));
  if (job->lora->unties) {
    ckpt_lora_free(job->lora);
    job->lora = NULL;
    CKPT_TRY(make_model(job, true, err));
    CKPT_TRY(ckpt_lora_new(&job->lora, job->options->lora, job->model, job->options->model, err));
  }
  CKPT_TRY(ckpt_lora_apply(job->lora, job->model, err));
  job->trained = &job->lora->table;
  for (uint32_t i = 0; i < job->n_carried; i++)
    if (strcmp(job->carried[i].name, "config.json") != 0 && strcmp(job->carried[i].name, "generation_config.json") != 0)
      job->carried[n++] = job->carried[i];
  job->n_carried = n;
  if (job->options->is_on_cuda && job->lora->n_merged != 0)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, job->options->lora, NULL,
                     "--device cuda: DoRA, and adapters of heads, train on the CPU only, so far");
  if (job->lora->dropout != 0 && job->lora->n_merged != 0)
    ckpt_job_report(job, CKPT_REPORT_WARNING,
                    "lora_dropout %g: there is none yet for DoRA and for heads, %u of %u adapted layers are without",
                    job->lora->dropout, job->lora->n_merged, job->lora->n_targets);
  return carry(job, "adapter_config.json", job->lora->config, strlen(job->lora->config), err);
}

/* As transformers says: weights that the config's model has no place for stay behind. */
static void warn_of_more(const ckpt_job *job) {
  const ckpt_tensor *more;
  const uint32_t n = ckpt_model_unused(job->base, job->model, &more);
  if (n != 0)
    ckpt_job_report(job, CKPT_REPORT_WARNING, "%s: %u tensor%s not trained, since %s has no such parameter%s (%s%s)",
                    job->options->model, n, n == 1 ? " is" : "s are", job->model->architecture, n == 1 ? "" : "s",
                    more->name, n == 1 ? "" : ", ...");
}

static ckpt_status open_model(ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  if (o->init == CKPT_INIT_PRETRAINED) {
    CKPT_TRY(ckpt_open(&job->base, o->model, NULL, err));
    CKPT_TRY(carry_from_index(job, job->base, err));
  } else {
    CKPT_TRY(carry_from_folder(job, err));
  }
  CKPT_TRY(make_model(job, false, err));
  if (job->base != NULL) warn_of_more(job);
  CKPT_TRY(open_lora(job, err));
  return open_tokenizer(job, err);
}

/* ---- data -------------------------------------------------------------------------------------------------------- */

static ckpt_status open_data(ckpt_job *job, ckpt_error *err) {
  const ckpt_train_options *o = job->options;
  ckpt_dataset_options options = {.paths = o->data,
                                  .tokenizer = job->tokenizer,
                                  .encoder = job->encoder,
                                  .columns = o->columns,
                                  .vocabulary = job->model->vocabulary,
                                  .max_positions = job->model->max_positions,
                                  .max_length = o->max_length,
                                  .packing = o->packing,
                                  .measures = o->plan,
                                  .dtype = o->data_dtype};
  CKPT_TRY(ckpt_dataset_open(&job->data, &options, err));
  if (o->eval_data == NULL) return CKPT_OK;
  options.paths = o->eval_data;
  return ckpt_dataset_open(&job->eval_data, &options, err);
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

/* A number of steps that may be a share of all. */
static uint64_t steps_of(double value, uint64_t n_steps) {
  const uint64_t n = value < 1 ? (uint64_t)ceil(value * (double)n_steps) : (uint64_t)value;
  return n == 0 ? 1 : n;
}

static ckpt_status set_schedule(ckpt_job *job, ckpt_error *err) {
  const ckpt_arguments *a = job->arguments;
  const uint64_t n = job->n_steps;
  const double share = a->warmup_steps > 0 ? a->warmup_steps : a->warmup_ratio;
  const uint64_t n_warmup = a->warmup_steps >= 1 ? (uint64_t)a->warmup_steps : (uint64_t)ceil(share * (double)n);
  job->schedule = ckpt_schedule_default(ckpt_schedule_find(a->lr_scheduler_type), a->learning_rate, n_warmup, n);
  CKPT_TRY(ckpt_schedule_kwargs(&job->schedule, a->lr_scheduler_kwargs, a->lr_scheduler_type, err));
  return ckpt_schedule_check(&job->schedule, err);
}

static ckpt_status count_steps(ckpt_job *job, ckpt_error *err) {
  const ckpt_arguments *a = job->arguments;
  job->data_seed = (uint64_t)(a->data_seed == CKPT_ARGUMENT_NONE ? a->seed : a->data_seed);
  job->order = (ckpt_order){.n_samples = ckpt_dataset_count(job->data),
                            .batch = (uint64_t)a->per_device_train_batch_size,
                            .accumulation = (uint64_t)a->gradient_accumulation_steps,
                            .ranks = job->options->n_ranks,
                            .seed = job->data_seed,
                            .drops_last = a->dataloader_drop_last,
                            .is_sequential = strcmp(a->train_sampling_strategy, "sequential") == 0};
  job->steps_per_epoch = ckpt_order_steps(&job->order);
  if (job->steps_per_epoch == 0)
    return ckpt_fail(
        err, CKPT_EINVAL, NULL, NULL, "dataloader_drop_last: no batch is whole (%llu rows, %llu a batch of all ranks)",
        (unsigned long long)job->order.n_samples, (unsigned long long)(job->order.batch * job->order.ranks));
  const double n = ceil(a->num_train_epochs * (double)job->steps_per_epoch);
  if (a->max_steps <= 0 && n > 1e15) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "num_train_epochs: too many steps");
  job->n_steps = a->max_steps > 0 ? (uint64_t)a->max_steps : (uint64_t)n;
  const bool logs = strcmp(a->logging_strategy, "steps") == 0, evals = strcmp(a->eval_strategy, "steps") == 0;
  const bool saves = strcmp(a->save_strategy, "steps") == 0;
  job->log_every = logs ? steps_of(a->logging_steps, job->n_steps) : 0;
  job->eval_every = evals ? steps_of(a->eval_steps, job->n_steps) : 0;
  job->save_every = saves ? steps_of(a->save_steps, job->n_steps) : 0;
  return set_schedule(job, err);
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* An adapter is one of the model that it was trained on, whatever the run began with is no part of other weights. */
static ckpt_status find_base_digest(ckpt_job *job, ckpt_error *err) {
  char text[72];
  ckpt_digest digest;
  if (job->lora == NULL) job->base_digest = job->recorded.base_digest;
  if (job->base == NULL || job->base_digest != NULL) return CKPT_OK;
  CKPT_TRY(ckpt_hash(job->base, NULL, &digest, err));
  job->base_digest = ckpt_arena_copy(&job->arena, ckpt_digest_text(&digest, text));
  CKPT_TRY_ALLOC(job->base_digest, err);
  if (job->recorded.base_digest == NULL || strcmp(job->recorded.base_digest, job->base_digest) == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, job->resumed->path, NULL, "its adapter is of the model %s, and %s is %s",
                   job->recorded.base_digest, job->options->model, job->base_digest);
}

static ckpt_status new_run_id(ckpt_job *job, ckpt_error *err) {
  uint8_t bytes[8];
  const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
  const bool has = fd >= 0 && read(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes;
  if (fd >= 0) close(fd);
  if (!has) return ckpt_fail_errno(err, "/dev/urandom", "it cannot be read");
  char *id = ckpt_arena_array(&job->arena, 2 * sizeof bytes + 1, 1);
  CKPT_TRY_ALLOC(id, err);
  for (size_t i = 0; i < sizeof bytes; i++) ckpt_c_snprintf(id + 2 * i, 3, "%02x", bytes[i]);
  job->start.run_id = id;
  return CKPT_OK;
}

ckpt_status ckpt_job_open(ckpt_job *job, const ckpt_train_options *options, ckpt_error *err) {
  job->options = options;
  job->arguments = options->arguments;
  job->log = job->lock = -1;
  ckpt_arena_init(&job->arena, UINT64_C(1) << 31);
  const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
  const uint32_t each = n_processors < 1 ? 1 : (uint32_t)n_processors / options->n_ranks;
  job->n_threads = options->n_threads != 0 ? options->n_threads : each == 0 ? 1 : each;
  job->ranks = calloc(options->n_ranks, sizeof *job->ranks);
  CKPT_TRY_ALLOC(job->ranks, err);
  CKPT_TRY(open_model(job, err));
  CKPT_TRY(open_data(job, err));
  CKPT_TRY(count_steps(job, err));
  job->start = (ckpt_progress_state){.best_metric = NAN};
  if (options->plan) return CKPT_OK;
  CKPT_TRY(ckpt_job_check_memory(job, err));
  if (!ckpt_job_only_dumps(job)) CKPT_TRY(ckpt_job_prepare_folder(job, err));
  CKPT_TRY(ckpt_job_find_resumed(job, err));
  if (job->resumed != NULL) {
    CKPT_TRY(ckpt_state_check(job->resumed, job->trained, err)); /* that of another model is not broken */
    CKPT_TRY(ckpt_job_check_resumed(job, err));
  } else {
    CKPT_TRY(new_run_id(job, err));
  }
  const bool has_plateau = job->schedule.kind == CKPT_SCHEDULE_REDUCE_ON_PLATEAU;
  if (!has_plateau) job->start.plateau = (ckpt_plateau){.best = NAN};
  if (has_plateau && job->start.plateau.rate == 0)
    job->start.plateau = (ckpt_plateau){.rate = job->arguments->learning_rate, .best = NAN};
  job->start.seed = (uint64_t)job->arguments->seed;
  job->start.data_seed = job->data_seed;
  job->start.n_samples = job->order.n_samples;
  job->start.batch = job->order.batch * job->order.accumulation * job->order.ranks;
  CKPT_TRY(find_base_digest(job, err));
  if (ckpt_job_only_dumps(job)) return CKPT_OK;
  CKPT_TRY(ckpt_job_write_run(job, err)); /* first: it says that the folder is a run's */
  return ckpt_job_open_log(job, err);
}

void ckpt_job_close(ckpt_job *job) {
  if (job->log >= 0) close(job->log);
  if (job->lock >= 0) close(job->lock);
  ckpt_dataset_free(job->data);
  ckpt_dataset_free(job->eval_data);
  ckpt_text_encoder_free(job->encoder);
  ckpt_tokenizer_free(job->tokenizer);
  ckpt_lora_free(job->lora);
  ckpt_model_free(job->model);
  ckpt_index_free(job->base);
  ckpt_index_free(job->resumed);
  free(job->carried);
  free(job->ranks);
  free(job->checkpoints);
  free(job->broken);
  ckpt_arena_free(&job->arena);
}
