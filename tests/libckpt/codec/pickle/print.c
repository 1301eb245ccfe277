/* pickle_print - describes pickles that come on standard input, for mutants.py.
 *
 * In: u32 length, bytes, again and again. Out for each: u8 status, u8 verdict, u8 whether it is said to call or build
 * something, by what was read or by opcodes behind that, u64 bytes read, u32 length, text (what it describes, or the
 * message). Little-endian. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/codec/pickle/pickle.h"

enum { MAX_PRINT = 1 << 20 };

/* As `scan` asks: what a real reader would run is never silent. */
static bool is_said(const ckpt_pickle_options *options, ckpt_status read) {
  const ckpt_pickle_report *report = options->report;
  ckpt_pickle_rest rest = {0};
  bool has = report->n_value_calls != 0 || report->n_changed_globals != 0;
  for (uint32_t i = 0; i < report->n_globals; i++)
    has = has || report->globals[i]->n_called != 0 || report->globals[i]->n_built != 0;
  if (has || read == CKPT_OK) return has;
  return ckpt_pickle_skim(&rest, options, NULL) != CKPT_OK || rest.goes_on;
}

static bool answer(const uint8_t *data, uint32_t n_bytes) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_C(1) << 30);
  ckpt_error err = {0};
  ckpt_object *root;
  uint64_t n_read = 0;
  ckpt_pickle_report report;
  ckpt_pickle_options options = {.data = data, .n_bytes = n_bytes, .report = &report};
  ckpt_status status = ckpt_pickle_read(&root, &n_read, &options, &arena, &err);
  const char *text = status == CKPT_OK ? ckpt_object_print(root, MAX_PRINT, &arena) : err.message;
  bool said = is_said(&options, status);
  uint8_t codes[] = {(uint8_t)status, (uint8_t)ckpt_pickle_judge_all(&report, NULL), said};
  uint32_t n_text = text == NULL ? 0 : (uint32_t)strlen(text);
  bool ok = fwrite(codes, 1, 3, stdout) == 3 && fwrite(&n_read, 8, 1, stdout) == 1 &&
            fwrite(&n_text, 4, 1, stdout) == 1 && fwrite(text, 1, n_text, stdout) == n_text && fflush(stdout) == 0;
  ckpt_arena_free(&arena);
  return ok;
}

int main(void) {
  uint32_t n_bytes;
  while (fread(&n_bytes, sizeof n_bytes, 1, stdin) == 1) {
    uint8_t *data = malloc((size_t)n_bytes + 1);
    if (data == NULL || fread(data, 1, n_bytes, stdin) != n_bytes || !answer(data, n_bytes)) return 1;
    free(data);
  }
  return 0;
}
