/* job.h - one run of the library on behalf of a verb: options, progress, and signals turned into cancellation.
 *
 * Between begin and end SIGINT, SIGTERM and SIGHUP set the cancel flag, so that the run removes its temporary files; a
 * second one, half a second later or more, ends the process at once. Outside, they have their usual effect: nothing
 * needs to be cleaned up. */
#ifndef CKPT_TOOLS_REPORT_JOB_H
#define CKPT_TOOLS_REPORT_JOB_H

#include "tools/cli/options.h"
#include "tools/report/progress.h"

typedef struct ckpt_job {
  ckpt_run_options run; /* points into the job: it must not be copied */
  ckpt_meter meter;
  double seconds; /* from begin to end */
} ckpt_job;

/* Fills job->run from --memory, --threads and --trace, shows progress as --progress and --quiet say. */
void ckpt_job_begin(ckpt_job *job, const ckpt_args *args);

/* Erases the progress line and gives the signals back. */
void ckpt_job_end(ckpt_job *job);

/* The signal that cancelled the last job; 0 if none did. */
int ckpt_job_signal(void);

#endif
