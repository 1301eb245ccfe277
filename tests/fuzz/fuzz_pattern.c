/* fuzz_pattern - one line of a pattern or a renaming, then names, a line each. Matching is bounded: a timeout is a
 * defect. A new name is never empty and at most 4,096 bytes. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/pattern.h"
#include "tests/fuzz/fuzz.h"

static void check(ckpt_status status, const ckpt_error *err) {
  if (status == CKPT_EINTERNAL || status != err->status) abort();
  if (status != CKPT_OK && err->message[0] == '\0') abort();
}

static void match(ckpt_pattern *pattern, const char *name) {
  bool matched = false;
  uint64_t before = ckpt_pattern_n_matched(pattern);
  ckpt_error err = {0};
  check(ckpt_pattern_match(pattern, name, &matched, &err), &err);
  if (err.status == CKPT_OK && ckpt_pattern_n_matched(pattern) != before + matched) abort();
}

static void rename_it(ckpt_renaming *renaming, const char *name) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 1 << 20);
  const char *renamed = NULL;
  ckpt_error err = {0};
  check(ckpt_renaming_apply(renaming, name, &arena, &renamed, &err), &err);
  if (err.status == CKPT_OK && renamed != name && (renamed[0] == '\0' || strlen(renamed) > 4096)) abort();
  ckpt_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes) {
  char *text = malloc(n_bytes + 1);
  if (text == NULL) abort();
  if (n_bytes > 0) memcpy(text, data, n_bytes);
  text[n_bytes] = '\0';
  char *rest = text, *line = strsep(&rest, "\n"), *name;
  ckpt_pattern *pattern = NULL;
  ckpt_renaming *renaming = NULL;
  ckpt_error err = {0}, no_renaming = {0};
  check(ckpt_pattern_new(&pattern, line, NULL, &err), &err);
  check(ckpt_renaming_new(&renaming, line, NULL, &no_renaming), &no_renaming);
  if ((pattern == NULL) != (err.status != CKPT_OK) || (renaming == NULL) != (no_renaming.status != CKPT_OK)) abort();
  for (int i = 0; i < 16 && (name = strsep(&rest, "\n")) != NULL; i++) {
    if (pattern != NULL) match(pattern, name);
    if (renaming != NULL && name[0] != '\0') rename_it(renaming, name);
  }
  ckpt_pattern_free(pattern);
  ckpt_renaming_free(renaming);
  free(text);
  return 0;
}
