/* plan.c - `--plan`: what a run would take, before anything of it is there. */
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "trainer/checkpoint/save.h"
#include "trainer/loop/job.h"

static uint64_t available_bytes(void) {
  const long n_pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  return n_pages < 0 || page < 0 ? UINT64_MAX : (uint64_t)n_pages * (uint64_t)page;
}

/* Elements of layers that are gathered in a step: two are still at hand where a pass turns. */
static uint64_t gathered(const ckpt_job *job) {
  const uint64_t n = job->model->n_layers, turn = n < 2 ? 0 : n - 2, n_batches = job->order.accumulation;
  uint64_t n_root = 0;
  for (uint32_t i = 0; i < job->model->n_parameters; i++)
    n_root += job->model->parameters[i].layer < 0 ? job->model->parameters[i].n_elements : 0;
  const uint64_t each = n == 0 ? 0 : (job->model->n_elements - n_root) / n;
  return n_root + each * (n + turn + (n_batches - 1) * 2 * turn);
}

/* Bytes that a rank receives in a step from the others of its replica. */
static uint64_t communicated(const ckpt_job *job) {
  const uint64_t n = ckpt_job_shards(job), stage = job->options->stage, all = job->trained->n_elements;
  uint64_t elements = 2 * all;
  if (stage >= 2) elements = all * (1 + job->order.accumulation);
  if (stage == 3 && job->lora == NULL) elements = all * job->order.accumulation + gathered(job);
  return elements * sizeof(float) / n * (n - 1);
}

/* And from other replicas: its shard's gradients, summed in parts and gathered. */
static uint64_t exchanged(const ckpt_job *job) {
  const uint64_t n = ckpt_job_shards(job), n_replicas = job->options->n_ranks / n;
  return 2 * job->trained->n_elements / n * sizeof(float) / n_replicas * (n_replicas - 1);
}

/* A rank's executor grows with its batches: rows and positions are those of the largest, whichever has them. */
typedef struct largest {
  uint32_t n_rows, length;
} largest;

static void enlarge(largest *l, const ckpt_dataset *data, uint64_t batch) {
  const uint64_t n = ckpt_dataset_count(data), n_rows = n < batch ? n : batch, length = ckpt_dataset_max_length(data);
  l->n_rows = n_rows > l->n_rows ? (uint32_t)n_rows : l->n_rows;
  l->length = length > l->length ? (uint32_t)length : l->length;
}

static largest largest_batch(const ckpt_job *job) {
  const ckpt_arguments *a = job->arguments;
  largest l = {0, 0};
  enlarge(&l, job->data, job->order.batch);
  if (job->eval_data != NULL && (a->eval_on_start || strcmp(a->eval_strategy, "no") != 0))
    enlarge(&l, job->eval_data, (uint64_t)a->per_device_eval_batch_size);
  return l;
}

/* *active: what a rank takes to run batches. */
static ckpt_status plan_executor(uint64_t *active, const ckpt_job *job, largest l, ckpt_error *err) {
  const ckpt_executor_options options = {.struct_size = sizeof options,
                                         .max_rows = l.n_rows,
                                         .max_length = ckpt_job_room(job, l.length),
                                         .n_threads = job->n_threads,
                                         .has_backward = true,
                                         .recompute = ckpt_job_recomputation(job)};
  ckpt_executor_memory memory;
  CKPT_TRY(ckpt_executor_plan(&memory, job->model, &options, err));
  *active = memory.arena + memory.state + (job->options->is_on_cuda ? 0 : memory.products);
  return CKPT_OK;
}

/* What writing takes: of each rank of the first replica its part of a checkpoint, of the first one the final model. */
static uint64_t save_bytes(const ckpt_job *job, uint32_t rank) {
  const uint32_t n_shards = ckpt_job_shards(job);
  const bool saves = strcmp(job->arguments->save_strategy, "no") != 0 && rank < n_shards;
  ckpt_sharded_memory m;
  ckpt_sharded_plan(&m, job->trained, job->options->stage, job->lora == NULL, rank % n_shards, n_shards);
  uint64_t n = saves ? m.weights + m.moments : 0;
  if (rank == 0 && n < job->trained->n_flat * sizeof(float)) n = job->trained->n_flat * sizeof(float);
  return n < CKPT_SAVE_MEMORY ? n : CKPT_SAVE_MEMORY;
}

/* Of an adapter: what is trained, and what is not. */
static void report_frozen(const ckpt_job *job) {
  const ckpt_lora *l = job->lora;
  uint64_t n_whole = 0;
  for (uint32_t i = 0; i < l->n_copies; i++) n_whole += l->base->parameters[l->copies[i].base].n_elements;
  ckpt_job_report(
      job, CKPT_REPORT_LINE,
      "trained: %llu of %llu parameters, the adapter's: of %u layers, and %u tensor%s whole (%llu parameters)",
      (unsigned long long)job->trained->n_elements, (unsigned long long)job->model->n_elements, l->n_targets,
      l->n_copies, ckpt_plural(l->n_copies), (unsigned long long)n_whole);
  ckpt_job_report(job, CKPT_REPORT_LINE, "frozen: %llu parameters in %u of the model's %u tensors",
                  (unsigned long long)(job->model->n_elements - n_whole), job->model->n_parameters - l->n_copies,
                  job->model->n_parameters);
}

/* What rank r holds from its first step to its last. */
static uint64_t held_bytes(ckpt_sharded_memory *m, const ckpt_job *job, uint32_t r) {
  const uint32_t n_shards = ckpt_job_shards(job);
  ckpt_sharded_plan(m, job->trained, job->options->stage, job->lora == NULL, r % n_shards, n_shards);
  if (job->lora != NULL) { /* the model's weights; where some run merged, those and their gradients */
    const uint64_t base = job->model->n_flat * sizeof(float);
    m->weights += job->lora->n_merged == 0 ? base : 2 * base;
    m->gradients += job->lora->n_merged == 0 ? 0 : base;
  }
  return m->weights + m->gradients + m->moments + m->summed;
}

static ckpt_status check_total(const ckpt_job *job, uint64_t total, ckpt_error *err) {
  char size[2][32];
  if (job->options->is_on_cuda || total <= available_bytes()) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the ranks need %s, this machine has %s",
                   ckpt_text_size(total, size[0]), ckpt_text_size(available_bytes(), size[1]));
}

ckpt_status ckpt_job_check_memory(const ckpt_job *job, ckpt_error *err) {
  ckpt_sharded_memory m;
  uint64_t total = 0;
  for (uint32_t r = 0; r < job->options->n_ranks; r++) total += held_bytes(&m, job, r);
  return check_total(job, total, err);
}

ckpt_status ckpt_job_plan(const ckpt_job *job, ckpt_error *err) {
  const uint32_t n_ranks = job->options->n_ranks, stage = job->options->stage, n_shards = ckpt_job_shards(job);
  char size[6][32];
  uint64_t total = 0, active;
  const largest l = largest_batch(job);
  CKPT_TRY(plan_executor(&active, job, l, err));
  if (job->lora != NULL) report_frozen(job);
  ckpt_job_report(job, CKPT_REPORT_LINE, "%s, %llu parameters in %u tensors, %llu rows, %llu steps of %llu rows",
                  job->model->architecture, (unsigned long long)job->model->n_elements, job->model->n_parameters,
                  (unsigned long long)job->order.n_samples, (unsigned long long)job->n_steps,
                  (unsigned long long)(job->order.batch * job->order.accumulation * n_ranks));
  for (uint32_t r = 0; r < n_ranks; r++) {
    ckpt_sharded_memory m;
    const uint64_t held = held_bytes(&m, job, r), saving = save_bytes(job, r), sum = held + active + saving;
    total += sum;
    ckpt_job_report(job, CKPT_REPORT_LINE,
                    "rank %u: %s: weights %s, gradients %s, optimizer %s, activations %s (batches of %u rows, at most "
                    "%u tokens each), saving %s",
                    r, ckpt_text_size(sum, size[0]), ckpt_text_size(m.weights, size[1]),
                    ckpt_text_size(m.gradients + m.summed, size[2]), ckpt_text_size(m.moments, size[3]),
                    ckpt_text_size(active, size[4]), l.n_rows, l.length, ckpt_text_size(saving, size[5]));
  }
  if (n_ranks != n_shards)
    ckpt_job_report(job, CKPT_REPORT_LINE, "a step: each rank receives %s over dp_shard, %s over dp_replicate",
                    ckpt_text_size(communicated(job), size[4]), ckpt_text_size(exchanged(job), size[5]));
  else
    ckpt_job_report(job, CKPT_REPORT_LINE, "a step: each rank receives %s over %s",
                    ckpt_text_size(communicated(job), size[5]), stage == 0 ? "dp_replicate" : "dp_shard");
  return check_total(job, total, err);
}
