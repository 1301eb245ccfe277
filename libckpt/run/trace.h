/* trace.h - logs what a run read and wrote, as JSON lines. Tests use it to prove "one read" and "peak <= planned".
 *
 * One line per tile as it finishes: {"group":i,"leaves":["name",...],"read":n,"written":n,"bytes":workspace
 * used,"at_ms":x,"ms":y}, begun x milliseconds after the run and done in y; a last line
 * {"total":{"read","written","planned_peak","tiles"},"at_ms":x}. What readers of traces know as a group is a batch
 * here, and leaves are the names of what its reads read. */
#ifndef CKPT_RUN_TRACE_H
#define CKPT_RUN_TRACE_H

#include "libckpt/plan/plan.h"

typedef struct ckpt_trace ckpt_trace;

/* Nanoseconds of a monotonic clock. */
uint64_t ckpt_trace_now(void);

/* Creates the file, EEXIST where there is one. Lines are buffered; a failed write is reported by ckpt_trace_close. */
ckpt_status ckpt_trace_open(ckpt_trace **out, const char *path, const ckpt_plan *plan, ckpt_error *err);

/* One tile of a batch, the plan's `number`; safe from many threads. */
void ckpt_trace_tile(ckpt_trace *trace, uint32_t number, uint64_t n_read, uint64_t n_written, uint64_t n_used,
                     uint64_t ns);

/* Writes the last line and closes, or removes the file of a run that failed; NULL is fine. */
ckpt_status ckpt_trace_close(ckpt_trace *trace, bool keep, ckpt_error *err);

#endif
