/* report.h - what the command says at its end: errors, notes, the lines of a written output, and the exit status.
 *
 * Results go to stdout, everything else to stderr; all text from files passes ckpt_text_print. */
#ifndef CKPT_TOOLS_REPORT_REPORT_H
#define CKPT_TOOLS_REPORT_REPORT_H

#include "libckpt/recipe/convert/updates.h"
#include "tools/report/job.h"
#include "tools/report/json_writer.h"

enum { CKPT_EXIT_DONE = 0, CKPT_EXIT_FAILED = 1, CKPT_EXIT_USAGE = 2 };

/* Prints `ckpt: <file>: tensor '<name>': <what>`, and with json the error object on stdout, which must be the
 * first there. Returns the exit status: 2 for EINVAL, 128 + signal where one cancelled the job, else 1. */
int ckpt_report_failure(bool json, const ckpt_error *err);

/* Its parts, for a failure that does not end the verb: the line on stderr, and `"error":{...}`. */
void ckpt_report_line(const ckpt_error *err);
void ckpt_report_emit_error(ckpt_emitter *json, const ckpt_error *err); /* as above */

/* The same for a verb. */
int ckpt_report_error(const ckpt_args *args, const ckpt_error *err);

/* For a verb that has no run to follow: says so where --trace is given. */
void ckpt_report_no_trace(const ckpt_args *args);

/* A line `ckpt: note: <text>` on stderr, unless --quiet; kept for --json in any case. Of the second kind `ckpt:
 * warning: <text>`, with --quiet too: something was lost or guessed, or may not be what the user means. */
void ckpt_report_note(const ckpt_args *args, const char *format, ...) CKPT_PRINTF(2, 3);
void ckpt_report_warning(const ckpt_args *args, const char *format, ...) CKPT_PRINTF(2, 3); /* as above */

/* One or the other, `<path>: <message>` with what to do about it; message is the note's text, or its message. */
void ckpt_report_note_of(const ckpt_args *args, const char *path, const ckpt_note *note, const char *message);

/* Warns of a tensor or record that is not as it was written, and read all the same; args: the verb's
 * (ckpt_args). */
void ckpt_report_corrupt(void *args, const ckpt_error *damage);

/* What has been noted so far, into the JSON array that is open. */
void ckpt_report_emit_noted(const ckpt_args *args, ckpt_emitter *json);

/* A tensor of which a cast made values zero that were not. */
typedef struct ckpt_underflowed {
  const char *name;
  uint64_t n; /* of its values */
} ckpt_underflowed;

/* A line about an output. */
typedef struct ckpt_said {
  const char *text; /* NULL ends a list */
  bool is_warning;  /* else a note */
} ckpt_said;

/* A tensor that adapters updated. */
typedef struct ckpt_updated {
  const char *name;
  ckpt_update_figures figures;
} ckpt_updated;

/* One output of a writing verb. */
typedef struct ckpt_written {
  const char *path, *format;
  uint64_t n_tensors, n_params, n_bytes;
  const char *dtype;           /* of the parameters: "bf16", or "mixed" */
  const char *weights;         /* "master" or "model" where there was a choice, else NULL */
  const char *const *alone;    /* losses of a tensor each, which take a line each; NULL ends it, or NULL */
  const char *const *remedied; /* "exp_avg 30.4 GB": what is not written and would be with the remedy; NULL ends it */
  const char *const *dropped;  /* "3 objects": what is not written whatever is asked for; as above, or NULL */
  const char *const *left; /* of the input, what no copy has: files beside it, objects that are not read; as above */
  const char *remedy;      /* "--include all", or NULL */
  const ckpt_said *said;   /* or NULL */
  uint64_t n_underflow;    /* values that casts made zero, of all tensors */
  const ckpt_underflowed *underflowed;
  size_t n_underflowed;                            /* the first tensors of them */
  const struct ckpt_quantize_decisions *quantized; /* of `quantize`, or NULL */
  const ckpt_updated *updated;                     /* tensors that adapters updated; NULL: none were merged */
  size_t n_updated;
  ckpt_digest digest;
  bool is_of_none; /* that digest, which is then none to print */
} ckpt_written;

/* The text of an error, a note (its text or its message) and a finding: with what to do about it, in the command's
 * words. Returns out. */
const char *ckpt_report_text(const ckpt_error *err, char *out, size_t n_bytes);
const char *ckpt_report_note_text(const ckpt_note *note, const char *message, char *out, size_t n_bytes); /* as above */
const char *ckpt_report_finding_text(const ckpt_finding *finding, char *out, size_t n_bytes);             /* as above */

/* The same of the choice of weights; NULL where there was none. */
const char *ckpt_report_weights(const ckpt_index *index, char *out, size_t n_bytes);

/* A line `not written: ...` behind head where something was dropped, after one for each loss that stands alone, with
 * the output's path before it if is_named; the same for --json. */
void ckpt_report_dropped(FILE *out, const char *head, const ckpt_written *output, bool is_named);
void ckpt_report_emit_dropped(ckpt_emitter *json, const ckpt_written *output); /* as above */

/* `"notes":[...]` of a whole verb: what has been noted so far, and what its n outputs have to say (NULL, 0: none). */
void ckpt_report_emit_notes(const ckpt_args *args, ckpt_emitter *json, const ckpt_written *outputs, size_t n);

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
