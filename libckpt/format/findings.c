/* findings.c - see findings.h. */
#include "libckpt/format/findings.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/grow.h"

static const char *copy_or_null(ckpt_arena *arena, const char *text, bool *failed) {
  const char *copy = text == NULL || text[0] == '\0' ? NULL : ckpt_arena_copy(arena, text);
  *failed = *failed || (copy == NULL && text != NULL && text[0] != '\0');
  return copy;
}

/* Formats are literals, and a literal may stand at several places of a program: their text decides. */
static ckpt_status find_sort(ckpt_findings *findings, ckpt_finding_kind kind, const char *format,
                             ckpt_finding_sort **out, ckpt_error *err) {
  for (uint32_t i = findings->n_sorts; i-- > 0;) {
    *out = &findings->sorts[i];
    if ((*out)->kind == kind && ((*out)->format == format || strcmp((*out)->format, format) == 0)) return CKPT_OK;
  }
  CKPT_TRY(ckpt_grow(&findings->sorts, findings->n_sorts, &findings->sort_capacity, sizeof *findings->sorts, err));
  *out = &findings->sorts[findings->n_sorts++];
  **out = (ckpt_finding_sort){.kind = kind, .format = format};
  return CKPT_OK;
}

static ckpt_status keep(ckpt_findings *findings, ckpt_finding finding, ckpt_error *err) {
  if (findings->n == findings->capacity) {
    size_t capacity = findings->capacity < 16 ? 16 : findings->capacity * 2;
    ckpt_finding *moved = reallocarray(findings->items, capacity, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    findings->items = moved;
    findings->capacity = capacity;
  }
  bool failed = false;
  if (findings->arena.limit == 0) ckpt_arena_init(&findings->arena, UINT64_MAX);
  finding.file = copy_or_null(&findings->arena, finding.file, &failed);
  finding.tensor = copy_or_null(&findings->arena, finding.tensor, &failed);
  finding.about = copy_or_null(&findings->arena, finding.about, &failed);
  finding.message = copy_or_null(&findings->arena, finding.message, &failed);
  if (failed) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  findings->items[findings->n++] = finding;
  return CKPT_OK;
}

static bool is_defect(const ckpt_finding *found, const char *defect) {
  return strcmp(found->cause == NULL ? found->message : found->cause, defect) == 0;
}

bool ckpt_findings_tell_of(const ckpt_findings *findings, const char *file, const char *defect) {
  for (size_t i = 0; i < findings->n && file != NULL; i++) {
    const ckpt_finding *found = &findings->items[i];
    if (found->kind == CKPT_PROBLEM && found->file != NULL && found->tensor == NULL && strcmp(found->file, file) == 0 &&
        (defect == NULL || is_defect(found, defect)))
      return true;
  }
  return false;
}

bool ckpt_findings_tell_about(const ckpt_findings *findings, const char *file, const char *key) {
  for (size_t i = 0; i < findings->n; i++) {
    const ckpt_finding *found = &findings->items[i];
    if (found->kind == CKPT_PROBLEM && found->about != NULL && strcmp(found->about, key) == 0 && found->file != NULL &&
        strcmp(found->file, file) == 0)
      return true;
  }
  return false;
}

/* Adds one whose message is still to be printed. */
static ckpt_status add(ckpt_findings *findings, ckpt_finding finding, const char *format, va_list list,
                       ckpt_error *err) {
  static const size_t most[CKPT_N_FINDING_KINDS] = {[CKPT_PROBLEM] = CKPT_MAX_PROBLEMS_OF_A_SORT,
                                                    [CKPT_WARNING] = CKPT_MAX_WARNINGS_OF_A_SORT,
                                                    [CKPT_PROVEN] = SIZE_MAX,
                                                    [CKPT_UNPROVEN] = SIZE_MAX};
  ckpt_finding_sort *sort;
  CKPT_TRY(find_sort(findings, finding.kind, format, &sort, err));
  if (sort->n >= most[finding.kind]) {
    findings->items[sort->last].n_more++;
    findings->is_kept = false;
  } else {
    char text[2048];
    vsnprintf(text, sizeof text, format, list);
    finding.message = text;
    CKPT_TRY(keep(findings, finding, err));
    sort->last = findings->n - 1;
    findings->is_kept = true;
  }
  sort->n++;
  findings->n_of[finding.kind]++;
  return CKPT_OK;
}

ckpt_status ckpt_findings_add(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                              const char *tensor, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const ckpt_finding finding = {.kind = kind, .file = file, .tensor = tensor};
  const ckpt_status status = add(findings, finding, format, list, err);
  va_end(list);
  return status;
}

ckpt_status ckpt_findings_add_about(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                                    const char *key, const char *format, ...) {
  va_list list;
  va_start(list, format);
  const ckpt_status status = add(findings, (ckpt_finding){.kind = kind, .file = file, .about = key}, format, list, err);
  va_end(list);
  return status;
}

ckpt_status ckpt_findings_add_note(ckpt_findings *findings, const char *file, const char *message, const char *cause,
                                   ckpt_error *err) {
  const size_t n = findings->n;
  CKPT_TRY(ckpt_findings_add(findings, err, CKPT_PROBLEM, file, NULL, "%s", message));
  if (cause != NULL && n != findings->n) /* it was kept */
    CKPT_TRY_ALLOC(findings->items[n].cause = ckpt_arena_copy(&findings->arena, cause), err);
  return CKPT_OK;
}

ckpt_status ckpt_findings_advise(ckpt_status status, ckpt_findings *findings, const char *advice, const char *value) {
  if (status != CKPT_OK || !findings->is_kept) return status;
  ckpt_finding *last = &findings->items[findings->n - 1];
  last->advice = advice;
  last->value = value == NULL ? "" : ckpt_arena_copy(&findings->arena, value);
  return last->value == NULL ? CKPT_ENOMEM : CKPT_OK;
}

ckpt_status ckpt_findings_add_error(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                                    const char *tensor, const ckpt_error *why) {
  CKPT_TRY(ckpt_findings_add(findings, err, kind, file, tensor, "%s", why->message));
  if (why->advice[0] == '\0' || !findings->is_kept) return CKPT_OK;
  const char *advice = ckpt_arena_copy(&findings->arena, why->advice);
  CKPT_TRY_ALLOC(advice, err);
  const ckpt_status status = ckpt_findings_advise(CKPT_OK, findings, advice, why->value);
  return status == CKPT_OK ? status : ckpt_fail(err, status, NULL, NULL, "out of memory");
}

void ckpt_findings_free(ckpt_findings *findings) {
  ckpt_arena_free(&findings->arena);
  free(findings->items);
  free(findings->sorts);
  *findings = (ckpt_findings){0};
}
