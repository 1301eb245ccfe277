/* report.h - what the command says at its end: errors, notes, the lines of a written output, and the exit status.
 *
 * Results go to stdout, everything else to stderr; all text from files passes ckpt_text_print. */
#ifndef CKPT_TOOLS_REPORT_H
#define CKPT_TOOLS_REPORT_H

#include "job.h"

enum { CKPT_EXIT_DONE = 0, CKPT_EXIT_FAILED = 1, CKPT_EXIT_USAGE = 2 };

/* Prints `ckpt: <file>: tensor '<name>': <what>`, and with json the error object on stdout: nothing of a result may
 * stand there before. Returns the exit status: 2 for EINVAL, 128 + signal where one cancelled the job, else 1. */
int ckpt_report_failure(bool json, const ckpt_error *err);

/* The same for a verb. */
int ckpt_report_error(const ckpt_args *args, const ckpt_error *err);

/* For a verb that has no run to follow: says so where --trace is given. */
void ckpt_report_no_trace(const ckpt_args *args);

/* A line `ckpt: note: <text>` on stderr, unless --quiet. */
void ckpt_report_note(const ckpt_args *args, const char *format, ...) CKPT_PRINTF(2, 3);

/* A tensor of which a cast made values zero that were not. */
typedef struct ckpt_underflowed {
  const char *name;
  uint64_t n; /* of its values */
} ckpt_underflowed;

/* One output of a writing verb. */
typedef struct ckpt_written {
  const char *path, *format;
  uint64_t n_tensors, n_params, n_bytes;
  const char *dtype;          /* of the parameters: "bf16", or "mixed" */
  const char *weights;        /* "master" or "model" where there was a choice, else NULL */
  const char *const *dropped; /* "exp_avg 30.4 GB", "3 objects": NULL-terminated, or NULL */
  const char *dropped_remedy; /* "--include all", or NULL */
  const char *const *notes;   /* whole lines for stderr: NULL-terminated, or NULL */
  uint64_t n_underflow;       /* values that casts made zero, of all tensors */
  const ckpt_underflowed *underflowed;
  size_t n_underflowed; /* the first tensors of them */
  ckpt_digest digest;
} ckpt_written;

/* Digest lines on stdout, closing lines on stderr; or with --json one object. Returns 0. */
int ckpt_report_written(const ckpt_args *args, const ckpt_job *job, const ckpt_written *outputs, size_t n);

/* `ckpt1:<hex>  PATH` on stdout. A path with a control character is escaped and, as sha256sum does, the line begins
 * with a backslash. */
void ckpt_report_digest(const ckpt_digest *digest, const char *path);

/* Largest memory that this process has held so far, bytes. */
uint64_t ckpt_report_peak(void);

/* Flushes stdout. A reader that has gone away is no error to report (status 141, as if SIGPIPE had ended us); any other
 * failure is, and makes status 0 into 1. */
int ckpt_report_finish(int status);

#endif
