/* findings.h - what `verify` reports: problems, warnings, proofs, and what could not be proven. */
#ifndef CKPT_FORMAT_FINDINGS_H
#define CKPT_FORMAT_FINDINGS_H

#include "libckpt/base/arena.h"
#include "libckpt/base/error.h"

typedef enum ckpt_finding_kind {
  CKPT_PROBLEM,
  CKPT_WARNING,
  CKPT_PROVEN,
  CKPT_UNPROVEN,
  CKPT_N_FINDING_KINDS
} ckpt_finding_kind;

typedef struct ckpt_finding {
  ckpt_finding_kind kind;
  const char *file, *tensor; /* or NULL */
  const char *about;         /* the key of the file that it is about, or NULL */
  const char *message;
  const char *cause;  /* the defect alone, where the message says what came of it; NULL: the message is the defect */
  const char *advice; /* what to do about it, as ckpt_advise has it, or NULL; literal */
  const char *value;  /* replaces $ in it */
  size_t n_more;      /* on the last one that is kept of its sort: how many more of the sort there are */
} ckpt_finding;

/* How many findings of one sort (with the same message format) are kept; all are counted. */
#define CKPT_MAX_PROBLEMS_OF_A_SORT 1000
#define CKPT_MAX_WARNINGS_OF_A_SORT 20

typedef struct ckpt_finding_sort {
  ckpt_finding_kind kind;
  const char *format;
  size_t n, last; /* found; place of the last one that is kept */
} ckpt_finding_sort;

/* Zero-initialise it. */
typedef struct ckpt_findings {
  ckpt_arena arena;
  ckpt_finding *items; /* in the order of finding */
  size_t n, capacity;
  ckpt_finding_sort *sorts;
  uint32_t n_sorts, sort_capacity;
  size_t n_of[CKPT_N_FINDING_KINDS]; /* found, kept or not */
  bool is_kept;                      /* the last one that was added */
} ckpt_findings;

/* Adds one; texts are copied, format is a literal. ENOMEM. */
ckpt_status ckpt_findings_add(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                              const char *tensor, const char *format, ...) CKPT_PRINTF(6, 7);
/* The same of a key of a file. */
ckpt_status ckpt_findings_add_about(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                                    const char *key, const char *format, ...) CKPT_PRINTF(6, 7);
/* Adds a problem with a file that opening has noted, and its cause, or NULL. ENOMEM. */
ckpt_status ckpt_findings_add_note(ckpt_findings *findings, const char *file, const char *message, const char *cause,
                                   ckpt_error *err);
/* The same of what an error says, with its advice. */
ckpt_status ckpt_findings_add_error(ckpt_findings *findings, ckpt_error *err, ckpt_finding_kind kind, const char *file,
                                    const char *tensor, const ckpt_error *why);
/* Adds what to do about the last one, as ckpt_advise has it (value NULL: no $), and returns status. */
ckpt_status ckpt_findings_advise(ckpt_status status, ckpt_findings *findings, const char *advice, const char *value);
/* Whether there is a problem with this key of a file. */
bool ckpt_findings_tell_about(const ckpt_findings *findings, const char *file, const char *key);
/* Whether there is a problem with a file (NULL: no), and with no tensor of it, whose defect is this one (NULL: any). */
bool ckpt_findings_tell_of(const ckpt_findings *findings, const char *file, const char *defect);
void ckpt_findings_free(ckpt_findings *findings); /* a zeroed one is fine */

#endif
