/* job.c - see job.h. The cancel flag is the one global of the command: a signal handler has no argument. */
#include "tools/report/job.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
enum { N_SIGNALS = sizeof signals / sizeof *signals };

static volatile int received; /* the first signal of the running job */
static double first_at;       /* seconds of a monotonic clock; set before received, which any thread may see */
static struct sigaction previous[N_SIGNALS];

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A terminal, a shell and `timeout` may each deliver one interruption: what comes within half a second is the same one,
 * and the run still removes its temporary files. */
static void on_signal(int number) {
  if (__atomic_load_n(&received, __ATOMIC_ACQUIRE) == 0) {
    first_at = seconds();
    __atomic_store_n(&received, number, __ATOMIC_RELEASE);
  } else if (seconds() - first_at > 0.5) {
    _exit(128 + number);
  }
}

void ckpt_job_begin(ckpt_job *job, const ckpt_args *args) {
  *job = (ckpt_job){.run = {.struct_size = sizeof job->run,
                            .memory = ckpt_args_size(args, "memory", 0),
                            .n_threads = (uint32_t)ckpt_args_size(args, "threads", 0),
                            .progress = ckpt_meter_update,
                            .progress_arg = &job->meter,
                            .cancel = &received,
                            .trace = ckpt_args_text(args, "trace", NULL)}};
  bool quiet = ckpt_args_has(args, "quiet");
  ckpt_meter_begin(&job->meter, quiet ? "never" : ckpt_args_text(args, "progress", "auto"));
  received = 0;
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (int i = 0; i < N_SIGNALS; i++) {
    sigaction(signals[i], NULL, &previous[i]);
    /* What our parent told us to ignore (nohup, background jobs) stays ignored. */
    if (previous[i].sa_handler != SIG_IGN) sigaction(signals[i], &action, NULL);
  }
}

void ckpt_job_end(ckpt_job *job) {
  for (int i = 0; i < N_SIGNALS; i++) sigaction(signals[i], &previous[i], NULL);
  job->seconds = job->meter.now() - job->meter.started;
  ckpt_meter_end(&job->meter);
}

int ckpt_job_signal(void) { return received; }
