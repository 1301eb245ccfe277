/* main.c - the `ckpt` command: finds the verb, reads its command line by its table, runs it. */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "tools/cli/help.h"
#include "tools/report/report.h"

/* A standard descriptor that is closed would become the number of the next file we open, and be written over. Returns
 * whether stdout was: what cannot be said at the end is known before anything is written. */
static bool keep_standard_descriptors(void) {
  bool is_mute = fcntl(STDOUT_FILENO, F_GETFD) == -1;
  for (int fd = 0; fd <= 2; fd++)
    if (fcntl(fd, F_GETFD) == -1) {
      int opened = open("/dev/null", O_RDONLY);
      (void)opened; /* the lowest free number: fd itself */
    }
  return is_mute;
}

static int run_verb(const char *name, int argc, char **argv) {
  const ckpt_verb *verb;
  ckpt_args *args = NULL;
  ckpt_error err = {0};
  bool json = ckpt_args_says(argc, argv, "--json");
  if (ckpt_verb_get(&verb, name, &err) != CKPT_OK) return ckpt_report_failure(json, &err);
  ckpt_option_names_of(verb);
  if (ckpt_args_parse(&args, verb, argc, argv, &err) != CKPT_OK) return ckpt_report_failure(json, &err);
  int status = CKPT_EXIT_DONE;
  if (args->help && json)
    ckpt_help_json(verb);
  else if (args->help)
    ckpt_help_verb(stdout, verb);
  else if (verb->run != NULL)
    status = verb->run(args);
  else
    status = ckpt_report_failure(json, &(ckpt_error){.status = CKPT_EUNSUPPORTED, .message = "not built yet"});
  ckpt_args_free(args);
  return status;
}

static int print_version(int argc, char **argv) {
  bool json = ckpt_args_says(argc, argv, "--json");
  if (argc > (json ? 1 : 0)) {
    ckpt_error err = {0};
    (void)ckpt_fail(&err, CKPT_EINVAL, NULL, NULL, "--version takes nothing but --json ('%s')",
                    argv[json && strcmp(argv[0], "--json") == 0 ? 1 : 0]);
    return ckpt_report_failure(json, &err);
  }
  if (!json) {
    printf("ckpt %s\n", ckpt_version());
    return CKPT_EXIT_DONE;
  }
  ckpt_emitter out;
  ckpt_emit_begin(&out, stdout);
  ckpt_emit_object(&out, NULL);
  ckpt_emit_text(&out, "status", "ok");
  ckpt_emit_text(&out, "version", ckpt_version());
  ckpt_emit_end(&out);
  return CKPT_EXIT_DONE;
}

int main(int argc, char **argv) {
  if (keep_standard_descriptors())
    return ckpt_report_failure(false, &(ckpt_error){.status = CKPT_EIO,
                                                    .file = "stdout",
                                                    .message = "is closed, and results go there; nothing was done "
                                                               "(redirect it, at least to /dev/null)"});
#ifdef M_MMAP_THRESHOLD
  mallopt(M_MMAP_THRESHOLD, 1 << 20); /* stays so: what is large goes back when it is freed, and leaves no hole */
#endif
  signal(SIGPIPE, SIG_IGN); /* a reader that goes away must not leave temporary files behind */
  signal(SIGXFSZ, SIG_IGN); /* nor a limit on the size of files */
  const char *first = argc > 1 ? argv[1] : "";
  int status = CKPT_EXIT_DONE;
  if (argc < 2) {
    ckpt_help_all(stderr);
    status = CKPT_EXIT_USAGE;
  } else if (strcmp(first, "--version") == 0) {
    status = print_version(argc - 2, argv + 2);
  } else if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0) {
    if (argc > 2 && argv[2][0] != '-') /* of one verb */
      status = run_verb("help", argc - 2, argv + 2);
    else if (ckpt_args_says(argc - 2, argv + 2, "--json"))
      ckpt_help_json(NULL);
    else
      ckpt_help_all(stdout);
  } else {
    status = run_verb(first, argc - 2, argv + 2);
  }
  return ckpt_report_finish(status);
}
