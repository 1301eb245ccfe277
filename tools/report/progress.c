/* progress.c - see progress.h. Updates come from the run's threads, one at a time. */
#include "tools/report/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "tools/cli/text.h"
#include "tools/report/report.h"

enum { LINE = 256 };

static const double first_after = 0.3, redraw_after = 0.1, print_after = 1.0; /* seconds */

static double monotonic_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void ckpt_meter_begin(ckpt_meter *meter, const char *mode) {
  *meter = (ckpt_meter){.fd = STDERR_FILENO, .now = monotonic_now, .is_terminal = isatty(STDERR_FILENO) == 1};
  meter->is_active = strcmp(mode, "always") == 0 || (strcmp(mode, "auto") == 0 && meter->is_terminal);
  meter->started = meter->now();
  meter->drawn = meter->started - 1;
}

/* A line that cannot be written is lost: progress is never a reason to fail. */
static void put(const ckpt_meter *meter, const char *text, size_t n) {
  ssize_t n_written = write(meter->fd, text, n);
  (void)n_written;
}

static size_t format_line(const ckpt_meter *meter, double elapsed, char *line) {
  char done[32], total[32], rate[32], left[48], peak[32];
  double n_read = (double)meter->n_read, n_total = (double)meter->n_total;
  double per_second = elapsed > 0 ? n_read / elapsed : 0;
  double share = n_total > 0 ? n_read / n_total : 0;
  int n =
      snprintf(line, LINE, "%3d%%  %s of %s  %s/s  %s left  peak %s", (int)(100 * (share < 1 ? share : 1)),
               ckpt_text_size(meter->n_read, done), ckpt_text_size(meter->n_total, total),
               ckpt_text_size((uint64_t)per_second, rate),
               per_second > 0 && n_total >= n_read ? ckpt_text_duration((n_total - n_read) / per_second, left) : "?",
               ckpt_text_size(ckpt_report_peak(), peak));
  return n < LINE ? (size_t)n : LINE - 1;
}

/* Over the old line: carriage return, the new one, blanks where the old one was longer. */
static void redraw(ckpt_meter *meter, const char *line, size_t n) {
  struct winsize window;
  size_t n_columns = ioctl(meter->fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col : 80;
  char text[2 * LINE + 2];
  if (n > n_columns - 1) n = n_columns - 1;
  size_t n_blank = meter->n_shown > n ? meter->n_shown - n : 0;
  text[0] = '\r';
  memcpy(text + 1, line, n);
  memset(text + 1 + n, ' ', n_blank);
  size_t n_text = 1 + n + n_blank;
  if (n == 0) text[n_text++] = '\r';
  put(meter, text, n_text);
  meter->n_shown = n;
}

/* Whether a line is due; *now: the time. */
static bool is_due(ckpt_meter *meter, double *now) {
  bool is_first = meter->drawn < meter->started;
  double due =
      is_first ? meter->started + first_after : meter->drawn + (meter->is_terminal ? redraw_after : print_after);
  *now = meter->now();
  if (!meter->is_active || *now < due) return false;
  meter->drawn = *now;
  return true;
}

/* A line of n bytes; there is room for one more. */
static void show(ckpt_meter *meter, char *line, size_t n) {
  if (meter->is_terminal) {
    redraw(meter, line, n);
  } else {
    line[n] = '\n';
    put(meter, line, n + 1);
  }
}

void ckpt_meter_update(void *arg, uint64_t n_read, uint64_t n_total) {
  ckpt_meter *meter = arg;
  char line[LINE + 1];
  double now;
  meter->n_read = n_read;
  meter->n_total = n_total;
  if (is_due(meter, &now)) show(meter, line, format_line(meter, now - meter->started, line));
}

void ckpt_meter_step(ckpt_meter *meter, uint64_t n_done, uint64_t n_total, const char *what) {
  char line[LINE + 1], left[48];
  double now;
  if (n_done == 0 || !is_due(meter, &now)) return;
  const double seconds = (now - meter->started) / (double)n_done * (double)(n_total - n_done);
  int n = snprintf(line, LINE, "%llu of %llu  %.100s  %s left", (unsigned long long)n_done, (unsigned long long)n_total,
                   what, ckpt_text_duration(seconds, left));
  show(meter, line, n < LINE ? (size_t)n : LINE - 1);
}

void ckpt_meter_end(ckpt_meter *meter) {
  if (meter->n_shown > 0) redraw(meter, "", 0);
  meter->is_active = false;
}
