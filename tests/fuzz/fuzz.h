/* fuzz.h - what every tests/fuzz/fuzz_<target>.c defines: libFuzzer's entry point.
 *
 * With the fuzz preset libFuzzer calls it; in every other build replay.c does, once per file of
 * tests/fuzz/corpus/<target>, as an ordinary test. */
#ifndef CKPT_TESTS_FUZZ_H
#define CKPT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "libckpt/ckpt.h"

/* For ckpt_open_options.report: opening goes on past broken parts, which is more to get wrong. */
static inline void fuzz_report(void *arg, const ckpt_error *defect) {
  (void)arg;
  if (defect->status == CKPT_OK || defect->message[0] == '\0' || defect->file[0] == '\0') abort();
}

/* Feeds one hostile input. Returns 0; a defect is a crash (abort on CKPT_EINTERNAL). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#endif
