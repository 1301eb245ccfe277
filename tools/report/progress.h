/* progress.h - one line on stderr about a run: share, bytes, rate, time left, peak memory.
 *
 * On a terminal the line is redrawn at most 10 times a second and erased at the end; elsewhere (--progress always) a
 * line is printed at most every second. Nothing appears in the first 300 ms. No colour, no escape sequences. */
#ifndef CKPT_TOOLS_REPORT_PROGRESS_H
#define CKPT_TOOLS_REPORT_PROGRESS_H

#include "libckpt/ckpt.h"

typedef struct ckpt_meter {
  int fd;
  bool is_active, is_terminal;
  double (*now)(void);      /* seconds of a clock that only goes forward */
  double started, drawn;    /* times of begin and of the last line; drawn < started: none yet */
  size_t n_shown;           /* columns of the line on the terminal */
  uint64_t n_read, n_total; /* of the last update */
} ckpt_meter;

/* A meter on fd 2; mode is auto, always or never. */
void ckpt_meter_begin(ckpt_meter *meter, const char *mode);

/* A ckpt_progress: arg is the meter. */
void ckpt_meter_update(void *arg, uint64_t n_read, uint64_t n_total);

/* The same for a job that is not counted in bytes: `what` ("ppl 12.3") after n_done of n_total steps. */
void ckpt_meter_step(ckpt_meter *meter, uint64_t n_done, uint64_t n_total, const char *what);

/* Erases what is on the terminal. */
void ckpt_meter_end(ckpt_meter *meter);

#endif
