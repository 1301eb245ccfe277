/* resumed.c - whether the run that goes on is the one that its checkpoint is of: the same data in the same order, the
 * same model, the same adapter. What may change (the rate, how often it saves, ranks) is not looked at. */
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/config.h"
#include "trainer/loop/job.h"

/* ---- run.json ---------------------------------------------------------------------------------------------------- */

/* Keys of its arguments that decide the order of the data. */
static const char *const of_data[] = {"train_sampling_strategy", "dataloader_drop_last", NULL};

static const char *keep_text(ckpt_job *job, const json_t *run, const char *key) {
  const char *text = json_string_value(json_object_get(run, key));
  return text == NULL ? NULL : ckpt_arena_copy(&job->arena, text);
}

void ckpt_job_remember(ckpt_job *job, const json_t *run) {
  ckpt_recorded_run *was = &job->recorded;
  json_t *arguments = json_object(), *all = json_object_get(run, "arguments");
  for (size_t i = 0; of_data[i] != NULL && json_is_object(all); i++)
    json_object_set(arguments, of_data[i], json_object_get(all, of_data[i]));
  char *text = json_dumps(arguments, JSON_COMPACT);
  was->base_digest = keep_text(job, run, "base_digest");
  was->data_digest = keep_text(job, run, "data_digest");
  was->rows = keep_text(job, run, "rows");
  was->arguments = text == NULL ? NULL : ckpt_arena_copy(&job->arena, text);
  const char *architecture = json_string_value(json_object_get(run, "architecture"));
  const json_int_t n = json_integer_value(json_object_get(run, "n_parameters"));
  was->is_of_model = architecture != NULL && strcmp(architecture, job->model->architecture) == 0 && n >= 0 &&
                     (uint64_t)n == job->model->n_elements;
  json_decref(arguments);
  free(text);
}

void ckpt_job_remember_beside(ckpt_job *job, const char *checkpoint) {
  char path[PATH_MAX];
  size_t n = strlen(checkpoint);
  while (n > 1 && checkpoint[n - 1] == '/') n--;
  while (n > 0 && checkpoint[n - 1] != '/') n--;
  if (snprintf(path, sizeof path, "%.*srun.json", (int)n, checkpoint) >= (int)sizeof path) return;
  json_t *run;
  (void)ckpt_config_json_file(&run, path, 0, NULL);
  const char *id = json_string_value(json_object_get(run, "run_id"));
  if (id != NULL && strcmp(id, job->start.run_id) == 0) ckpt_job_remember(job, run);
  json_decref(run);
}

const char *ckpt_job_rows(char out[64], const ckpt_job *job) {
  static const char *const packings[] = {
      [CKPT_PACKING_NONE] = "single", [CKPT_PACKING_DOCUMENT] = "document", [CKPT_PACKING_CONCAT] = "concat"};
  ckpt_c_snprintf(out, 64, "%s, max_length %llu", packings[job->options->packing],
                  (unsigned long long)job->options->max_length);
  return out;
}

/* ---- the data ---------------------------------------------------------------------------------------------------- */

static ckpt_status check_arguments(const ckpt_job *job, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(16) << 20);
  const char *text = ckpt_arguments_json(job->arguments, &arena);
  json_t *was = job->recorded.arguments == NULL
                    ? NULL
                    : ckpt_config_json(job->recorded.arguments, strlen(job->recorded.arguments), 0, NULL);
  json_t *now = text == NULL ? NULL : ckpt_config_json(text, strlen(text), 0, NULL);
  for (size_t i = 0; of_data[i] != NULL && status == CKPT_OK; i++) {
    const json_t *a = json_object_get(was, of_data[i]), *b = json_object_get(now, of_data[i]);
    if (a != NULL && b != NULL && !json_equal(a, b))
      status =
          ckpt_fail(err, CKPT_EINVAL, job->resumed->path, NULL,
                    "its run took its data by another %s, which would repeat some and leave out others", of_data[i]);
  }
  json_decref(was);
  json_decref(now);
  ckpt_arena_free(&arena);
  return status;
}

static ckpt_status check_data(const ckpt_job *job, ckpt_error *err) {
  const ckpt_progress_state *was = &job->start;
  const uint64_t batch = job->order.batch * job->order.accumulation * job->order.ranks;
  const char *path = job->resumed->path, *digest = ckpt_dataset_digest(job->data);
  char now[64];
  const char *rows = ckpt_job_rows(now, job);
  if (was->n_samples != job->order.n_samples)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "its run had %llu rows of data, here are %llu",
                     (unsigned long long)was->n_samples, (unsigned long long)job->order.n_samples);
  if (was->batch != batch)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL,
                     "its steps had %llu rows, here they have %llu (per_device_train_batch_size * "
                     "gradient_accumulation_steps * ranks has to stay)",
                     (unsigned long long)was->batch, (unsigned long long)batch);
  if (was->data_seed != job->data_seed)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "its data were in the order of seed %llu, here it is %llu",
                     (unsigned long long)was->data_seed, (unsigned long long)job->data_seed);
  if (job->recorded.data_digest != NULL && strcmp(job->recorded.data_digest, digest) != 0)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "its run had the data %s, here they are %s",
                     job->recorded.data_digest, digest);
  if (job->recorded.rows != NULL && strcmp(job->recorded.rows, rows) != 0)
    return ckpt_fail(err, CKPT_EINVAL, path, NULL, "its rows were %s, here they are %s", job->recorded.rows, rows);
  return check_arguments(job, err);
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* Keys that say nothing of what the model computes. */
static const char *const aside[] = {"transformers_version",
                                    "_name_or_path",
                                    "dtype",
                                    "torch_dtype",
                                    "use_cache",
                                    "peft_version",
                                    "lora_dropout",
                                    "inference_mode",
                                    "init_lora_weights",
                                    "base_model_name_or_path",
                                    NULL};

/* Returns the first key whose values differ, or NULL. */
static const char *find_difference(json_t *was, json_t *now) {
  const char *key;
  json_t *value;
  json_object_foreach(was, key, value) {
    const json_t *other = json_object_get(now, key);
    if (!ckpt_text_is_one_of(key, aside) && (other == NULL ? !json_is_null(value) : !json_equal(value, other)))
      return key;
  }
  json_object_foreach(now, key, value) if (!ckpt_text_is_one_of(key, aside) && json_object_get(was, key) == NULL &&
                                           !json_is_null(value)) return key;
  return NULL;
}

/* The config that lies in the checkpoint, where its format has one, against the one that is trained. */
static ckpt_status check_config(const ckpt_job *job, const char *name, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(job->resumed, name);
  const ckpt_carried *carried = NULL;
  const char *text;
  for (uint32_t i = 0; i < job->n_carried; i++)
    if (strcmp(job->carried[i].name, name) == 0) carried = &job->carried[i];
  if (side == NULL || carried == NULL || side->n_bytes > CKPT_CONFIG_MAX_BYTES) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(job->resumed, side, CKPT_CONFIG_MAX_BYTES, &text, err));
  json_t *was = ckpt_config_json(text, (size_t)side->n_bytes, 0, NULL);
  json_t *now = ckpt_config_json(carried->bytes, (size_t)carried->n_bytes, 0, NULL);
  const char *key = was == NULL || now == NULL ? NULL : find_difference(was, now);
  const ckpt_status status = key == NULL
                                 ? CKPT_OK
                                 : ckpt_fail(err, CKPT_EINVAL, job->resumed->path, NULL,
                                             "its %s has another %.100s than the run that would go on", name, key);
  json_decref(was);
  json_decref(now);
  return status;
}

static ckpt_status check_seed(const ckpt_job *job, ckpt_error *err) {
  const bool drops = job->model->tape.n_sites != 0 || (job->lora != NULL && job->lora->dropout > 0);
  if (!drops || job->start.seed == (uint64_t)job->arguments->seed) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, job->resumed->path, NULL, "its run drew dropout by seed %llu, here it is %lld",
                   (unsigned long long)job->start.seed, (long long)job->arguments->seed);
}

ckpt_status ckpt_job_check_resumed(const ckpt_job *job, ckpt_error *err) {
  CKPT_TRY(check_data(job, err));
  CKPT_TRY(check_seed(job, err));
  CKPT_TRY(check_config(job, "config.json", err));
  return check_config(job, "adapter_config.json", err);
}
