/* fuzz.h - what every tests/fuzz/fuzz_<target>.c defines: libFuzzer's entry point.
 *
 * With the fuzz preset libFuzzer calls it; in every other build replay.c does, once per file of
 * tests/fuzz/corpus/<target>, as an ordinary test. */
#ifndef CKPT_TESTS_FUZZ_H
#define CKPT_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Feeds one hostile input. Returns 0; a defect is a crash (abort on CKPT_EINTERNAL). */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

#endif
