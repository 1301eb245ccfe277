/* fuzz_scan - any bytes as a file that is scanned. Counts agree with rows, and a row that calls what is foreign comes
 * with a problem. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/recipe/scan/scan.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  ckpt_scan scan = {0};
  ckpt_error err = {0};
  ckpt_status status = ckpt_scan_bytes(&scan, data, n_bytes, "fuzz", &err);
  if (status == CKPT_EINTERNAL || status != err.status) abort();
  if (status != CKPT_OK && err.message[0] == '\0') abort();
  uint64_t n_pickles = 0;
  bool is_bad = false;
  for (uint32_t i = 0; i < scan.n; i++) {
    const ckpt_scan_pickle *pickle = &scan.pickles[i];
    n_pickles += pickle->n_pickles;
    for (uint32_t k = 0; k < pickle->n_globals; k++) {
      const ckpt_scan_global *global = &pickle->globals[k];
      if (global->n_named == 0 || strchr(global->name, '.') == NULL) abort();
      is_bad = is_bad || (global->verdict >= CKPT_PICKLE_FOREIGN && (global->n_called != 0 || global->n_built != 0));
    }
  }
  if (status == CKPT_OK && n_pickles != scan.n_pickles) abort();
  if (status == CKPT_OK && is_bad && scan.findings.n_of[CKPT_PROBLEM] == 0) abort();
  ckpt_scan_free(&scan);
  return 0;
}
