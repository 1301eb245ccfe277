/* pickle_judge.c - what a pickle's names mean for whoever loads it elsewhere: the verdicts of pickle_globals.def.
 *
 * The machine here runs nothing, so this judges the file, not the danger of reading it with libckpt. */
#include <string.h>

#include "libckpt/codec/pickle.h"

static const struct row {
  const char *module, *name;
  ckpt_pickle_verdict verdict;
} rows[] = {
#define CKPT_PICKLE_GLOBAL(module, name, verdict) {module, name, CKPT_PICKLE_##verdict},
#include "libckpt/codec/pickle_globals.def"
#undef CKPT_PICKLE_GLOBAL
};

/* "*" stands for every name, and only where that makes a verdict worse. */
static bool matches(const struct row *row, const char *name) {
  return strcmp(row->name, name) == 0 || (row->verdict == CKPT_PICKLE_DANGEROUS && strcmp(row->name, "*") == 0);
}

ckpt_pickle_verdict ckpt_pickle_judge(const ckpt_pickle_global *global) {
  size_t n = global->object->n_module;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strncmp(rows[i].module, global->name, n) == 0 && rows[i].module[n] == '\0' &&
        matches(&rows[i], global->name + n + 1))
      return rows[i].verdict;
  return CKPT_PICKLE_FOREIGN;
}

const char *ckpt_pickle_verdict_name(ckpt_pickle_verdict verdict) {
  static const char *const names[] = {"tensor data", "known framework class", "foreign", "dangerous"};
  return (unsigned)verdict < sizeof names / sizeof *names ? names[verdict] : "unknown";
}

ckpt_pickle_verdict ckpt_pickle_judge_all(const ckpt_pickle_report *report, const ckpt_pickle_global **global) {
  ckpt_pickle_verdict worst = CKPT_PICKLE_DATA;
  if (report->n_value_calls != 0 || report->n_changed_globals != 0) worst = CKPT_PICKLE_FOREIGN;
  const ckpt_pickle_global *reason = NULL;
  for (uint32_t i = 0; i < report->n_globals; i++) {
    ckpt_pickle_verdict verdict = ckpt_pickle_judge(report->globals[i]);
    if (verdict < worst || (verdict == worst && reason != NULL)) continue;
    worst = verdict;
    reason = report->globals[i];
  }
  if (global != NULL) *global = reason;
  return worst;
}
