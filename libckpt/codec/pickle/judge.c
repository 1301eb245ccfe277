/* judge.c - what a pickle's names mean for whoever loads it elsewhere: the verdicts of globals.def and
 * classes.def.
 *
 * The machine here runs nothing, so this judges the file, not the danger of reading it with libckpt. */
#include <string.h>

#include "libckpt/codec/pickle/machine.h"

static const struct row {
  const char *module, *name;
  size_t n_module;
  ckpt_pickle_verdict verdict;
  bool is_called; /* with arguments, by honest files */
} rows[] = {
#define ROW_DATA CKPT_PICKLE_DATA, true
#define ROW_KNOWN CKPT_PICKLE_KNOWN, false
#define ROW_CALLED CKPT_PICKLE_KNOWN, true
#define ROW_DANGEROUS CKPT_PICKLE_DANGEROUS, true
#define CKPT_PICKLE_GLOBAL(module, name, verdict) {module, name, sizeof module - 1, ROW_##verdict},
#include "libckpt/codec/pickle/classes.def"
#include "libckpt/codec/pickle/globals.def"
#undef CKPT_PICKLE_GLOBAL
};

/* "*" stands for every name, and only where that makes a verdict worse. */
static bool matches(const struct row *row, const char *name) {
  return strcmp(row->name, name) == 0 || (row->verdict == CKPT_PICKLE_DANGEROUS && strcmp(row->name, "*") == 0);
}

uint32_t ckpt_pickle_row(const char *name, size_t n_module) {
  for (uint32_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (rows[i].n_module == n_module && memcmp(rows[i].module, name, n_module) == 0 &&
        matches(&rows[i], name + n_module + 1))
      return i + 1;
  return 0;
}

bool ckpt_pickle_is_known_class(uint32_t row) { return row != 0 && rows[row - 1].verdict == CKPT_PICKLE_KNOWN; }

/* Whether all that a pickle does with a name is to take methods of torch's own, which are called by nobody here, or
 * classes within known ones, which are judged by their own names. */
static bool takes_methods(const ckpt_pickle_global *global) {
  return global->n_methods != 0 && global->n_methods == global->n_called &&
         global->n_called == global->n_named + global->n_copied && global->n_built == 0;
}

/* Whether instances take APPEND and APPENDS by a method of Python's own. Of others an attribute may be called. */
static bool is_list(const char *name) {
  return strcmp(name, "collections.deque") == 0 || strcmp(name, "builtins.list") == 0 ||
         strcmp(name, "__builtin__.list") == 0;
}

/* What honest files do with no name that is known: a constructor with arguments, contents for what is no list. */
static bool is_abused(const ckpt_pickle_global *global, const struct row *row) {
  return (global->n_constructed != 0 && !row->is_called) || (global->n_appended != 0 && !is_list(global->name));
}

/* Whether its module is a program: it is run when it is imported (unittest.__main__), which a name alone does. */
static bool is_of_program(const ckpt_pickle_global *global) {
  static const char program[] = ".__main__";
  const size_t n = sizeof program - 1, n_module = global->object->n_module;
  return n_module > n && memcmp(global->name + n_module - n, program, n) == 0;
}

ckpt_pickle_verdict ckpt_pickle_judge(const ckpt_pickle_global *global) {
  if (global->n_misused != 0 || is_of_program(global)) return CKPT_PICKLE_DANGEROUS;
  if (takes_methods(global)) return CKPT_PICKLE_KNOWN;
  if (global->row == 0) return CKPT_PICKLE_FOREIGN;
  const struct row *row = &rows[global->row - 1];
  return row->verdict < CKPT_PICKLE_FOREIGN && is_abused(global, row) ? CKPT_PICKLE_FOREIGN : row->verdict;
}

static bool is_word(const ckpt_pickle_global *global) {
  const char *at = global->name;
  while ((uint8_t)*at > ' ') at++;
  return *at == '\0';
}

bool ckpt_pickle_has_name(const ckpt_pickle_report *report, bool with_extensions) {
  const size_t n = sizeof CKPT_PICKLE_EXTENSION - 1;
  bool has = false;
  for (uint32_t i = 0; i < report->n_globals && !has; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    bool is_extension = global->object->n_module == n && memcmp(global->name, CKPT_PICKLE_EXTENSION, n) == 0;
    has = is_extension ? with_extensions : is_word(global); /* the blank in its name is ours */
  }
  return has;
}

bool ckpt_pickle_hands_over(const ckpt_pickle_report *report) {
  static const char *const callers[] = {"copyreg.__newobj__",
                                        "copy_reg.__newobj__",
                                        "copyreg._reconstructor",
                                        "copy_reg._reconstructor",
                                        "collections.defaultdict",
                                        "torch._tensor._rebuild_from_type",
                                        "torch._tensor._rebuild_from_type_v2",
                                        "torch.tensor._rebuild_from_type",
                                        "torch._utils._rebuild_wrapper_subclass",
                                        "torch.optim.lr_scheduler.LambdaLR",
                                        "torch.optim.lr_scheduler.MultiplicativeLR",
                                        "torch.optim.lr_scheduler.CyclicLR",
                                        "torch.optim.swa_utils.AveragedModel",
                                        "numpy.core.multiarray._reconstruct",
                                        "numpy._core.multiarray._reconstruct",
                                        "numpy.random._pickle.__randomstate_ctor",
                                        "numpy.random._pickle.__generator_ctor",
                                        "numpy.random._pickle.__bit_generator_ctor"};
  for (uint32_t i = 0; i < report->n_globals; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    if (global->n_built != 0 && ckpt_pickle_judge(global) == CKPT_PICKLE_KNOWN) return true;
    for (size_t k = 0; k < sizeof callers / sizeof *callers && global->n_called != 0; k++)
      if (strcmp(global->name, callers[k]) == 0) return true;
  }
  return report->n_handed != 0;
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
