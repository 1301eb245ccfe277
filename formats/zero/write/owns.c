/* owns.c - which files of a folder a former ZeRO or universal checkpoint of ours was, so that --force may replace
 * them: one of another number of ranks, another stage, other states.
 *
 * Of the same step alone: another one's folder is not looked into (file_set.h). As layout.c and universal.c
 * name files; whatever DeepSpeed itself has besides (its script, experts, parallel ranks) is none of ours. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"

enum { NAME_BYTES = 96 };

typedef enum file_kind {
  FILE_NONE,
  FILE_LATEST,
  FILE_MODEL,
  FILE_RANK_MODEL,
  FILE_OPTIMIZER,
  FILE_BF16_OPTIMIZER,
  FILE_COMMON, /* zero/optimizer_state.pt */
  FILE_STATE,  /* zero/<parameter>/<key>.pt */
  N_KINDS
} file_kind;

/* How many files of each kind, and one more than the highest rank of theirs. */
typedef struct former {
  const char *tag; /* of the folder that they are in, which the first says; not terminated */
  size_t n_tag;
  uint32_t n[N_KINDS], n_ranks[N_KINDS];
} former;

static bool is_state(const char *name) {
  const char *key = strchr(name, '/');
  size_t n = key == NULL ? 0 : strlen(++key);
  if (n <= 3 || strcmp(key + n - 3, ".pt") != 0) return false;
  return strcmp(key, "fp32.pt") == 0 || ckpt_torch_state_of(key, n - 3) != NULL;
}

/* Of a name below the folder of a tag. */
static file_kind kind_below(const char *name, uint32_t *rank) {
  static const char *const prefixes[] = {"", "", "bf16_"}, *const ends[] = {"model", "optim", "optim"};
  char same[NAME_BYTES];
  if (strcmp(name, "mp_rank_00_model_states.pt") == 0) return FILE_MODEL;
  if (strcmp(name, "zero/optimizer_state.pt") == 0) return FILE_COMMON;
  if (strncmp(name, "zero/", 5) == 0) return is_state(name + 5) ? FILE_STATE : FILE_NONE;
  const char *number = strstr(name, "zero_pp_rank_");
  if (number == NULL || sscanf(number, "zero_pp_rank_%9u_", rank) != 1) return FILE_NONE;
  for (int i = 0; i < 3; i++) {
    snprintf(same, sizeof same, "%szero_pp_rank_%u_mp_rank_00_%s_states.pt", prefixes[i], *rank, ends[i]);
    if (strcmp(name, same) == 0) return (file_kind)(FILE_RANK_MODEL + i);
  }
  return FILE_NONE;
}

static file_kind kind_of(former *f, const char *name, const char *latest, uint32_t *rank) {
  const char *slash = strchr(name, '/');
  *rank = 0;
  if (slash == NULL) return strcmp(name, latest) == 0 ? FILE_LATEST : FILE_NONE;
  if (f->tag == NULL) f->tag = name, f->n_tag = (size_t)(slash - name);
  if ((size_t)(slash - name) != f->n_tag || memcmp(name, f->tag, f->n_tag) != 0) return FILE_NONE;
  return kind_below(slash + 1, rank);
}

/* Counts the files, and marks those of any kind. */
static void count(former *f, const char *const *names, uint32_t n, const char *latest, bool *is_ours) {
  *f = (former){0};
  for (uint32_t i = 0; i < n; i++) {
    uint32_t rank;
    file_kind kind = kind_of(f, names[i], latest, &rank);
    is_ours[i] = kind != FILE_NONE;
    f->n[kind]++;
    if (rank >= f->n_ranks[kind]) f->n_ranks[kind] = rank + 1;
  }
}

static bool is_complete(const former *f, file_kind kind) { return f->n[kind] != 0 && f->n[kind] == f->n_ranks[kind]; }

void ckpt_zero_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
  former f;
  (void)written; /* which stage it was does not matter */
  count(&f, names, n, CKPT_ZERO_LATEST, is_ours);
  const file_kind states = f.n[FILE_OPTIMIZER] != 0 ? FILE_OPTIMIZER : FILE_BF16_OPTIMIZER;
  const bool has_model = f.n[FILE_RANK_MODEL] == 0 ? f.n[FILE_MODEL] == 1
                                                   : f.n[FILE_MODEL] == 0 && is_complete(&f, FILE_RANK_MODEL) &&
                                                         f.n[FILE_RANK_MODEL] == f.n[states];
  const bool is_one = f.n[FILE_OPTIMIZER] == 0 || f.n[FILE_BF16_OPTIMIZER] == 0;
  const bool is_zero = f.n[FILE_COMMON] == 0 && f.n[FILE_STATE] == 0;
  if (f.n[FILE_LATEST] != 1 || !has_model || !is_one || !is_zero || !is_complete(&f, states))
    memset(is_ours, 0, n * sizeof *is_ours);
}

void ckpt_universal_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
  former f;
  (void)written; /* there is one kind */
  count(&f, names, n, CKPT_LATEST_UNIVERSAL, is_ours);
  const bool is_universal = f.n[FILE_OPTIMIZER] == 0 && f.n[FILE_BF16_OPTIMIZER] == 0;
  if (f.n[FILE_LATEST] != 1 || f.n[FILE_MODEL] != 1 || f.n[FILE_COMMON] != 1 || !is_universal ||
      !is_complete(&f, FILE_RANK_MODEL))
    memset(is_ours, 0, n * sizeof *is_ours);
}
