/* main.c - `ckpt-train`: options in, exit status out. What it does is trainer/loop's. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "trainer/loop/options.h"

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_STOPPED = 3 };

static volatile sig_atomic_t stop_asked; /* which any rank may see */

/* Saves and stops at the end of the step; a second SIGINT ends at once. */
static void on_signal(int number) {
  const bool is_asked = __atomic_exchange_n(&stop_asked, 1, __ATOMIC_RELAXED) != 0;
  if (number == SIGINT && is_asked) _exit(128 + SIGINT);
}

static void catch_signals(void) {
  const int numbers[] = {SIGTERM, SIGINT, SIGUSR1};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) sigaction(numbers[i], &action, NULL);
  action.sa_handler = SIG_IGN; /* a file that becomes too large is a failed write, and training goes on */
  sigaction(SIGXFSZ, &action, NULL);
}

static void say(void *arg, const char *text) {
  (void)arg;
  fprintf(stderr, "ckpt-train: note: %s\n", text);
}

static void report(void *arg, ckpt_report_kind kind, const char *text) {
  static const char *const heads[] = {"", "ckpt-train: note: ", "ckpt-train: warning: "};
  const ckpt_command *command = arg;
  if (command->train.plan)
    printf("%s%s\n", heads[kind], text);
  else if (kind == CKPT_REPORT_WARNING || !command->is_quiet)
    fprintf(stderr, "%s%s\n", heads[kind], text);
}

/* A field of options is the option of its name. */
static void name_option(const char *field, const char *value, char *out, size_t n_bytes) {
  snprintf(out, n_bytes, "--%s%s%s", field, value[0] == '\0' ? "" : " ", value);
}

static int fail(const ckpt_error *err, int code) {
  char text[2048];
  fputs("ckpt-train: ", stderr);
  if (err->file[0] != '\0') fprintf(stderr, "%s: ", err->file);
  if (err->tensor[0] != '\0') fprintf(stderr, "tensor '%s': ", err->tensor);
  fprintf(stderr, "%s\n", ckpt_error_message(err, name_option, text, sizeof text));
  return code;
}

static int train(ckpt_command *command) {
  ckpt_error err = {0};
  ckpt_outcome outcome;
  command->train.stop = &stop_asked;
  command->train.report = report;
  command->train.report_arg = command;
  if (ckpt_train(&command->train, &outcome, &err) != CKPT_OK) return fail(&err, EXIT_FAILED);
  return outcome == CKPT_OUTCOME_STOPPED ? EXIT_STOPPED : outcome == CKPT_OUTCOME_DONE ? EXIT_DONE : EXIT_FAILED;
}

int main(int argc, char **argv) {
  ckpt_command command;
  ckpt_error err = {0};
  memset(&command, 0, sizeof command);
  int code;
  catch_signals(); /* first: a signal that comes while it begins stops it after a step, as any other */
  if (ckpt_command_parse(&command, argc, argv, say, NULL, &err) != CKPT_OK) {
    code = fail(&err, err.status == CKPT_ENOMEM ? EXIT_FAILED : EXIT_USAGE);
  } else if (command.wants_version) {
    printf("ckpt-train %s\n", ckpt_version());
    code = EXIT_DONE;
  } else if (command.wants_help) {
    const char *help = ckpt_command_help(&command.arena);
    fputs(help == NULL ? "" : help, stdout);
    code = EXIT_DONE;
  } else {
    code = train(&command);
  }
  ckpt_command_free(&command);
  return code;
}
