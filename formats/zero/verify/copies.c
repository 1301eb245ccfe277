/* copies.c - what ZeRO checkpoints hold more than once. Of what tensor-parallel ranks all have (norms, buffers, their
 * masters and states) the first rank's is read, and of tied modules the first stage's. Whoever verifies gets the others
 * as checkpoints of their own: the folder is read once more for each of them. */
#include <stdio.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "libckpt/base/error.h"
#include "libckpt/index/masters.h"
#include "libckpt/io/records.h"

/* The folder of an index read again. */
static ckpt_status read_again(ckpt_index **out, const ckpt_index *index, ckpt_zero_reading reading,
                              ckpt_zero_copies *n_copies, ckpt_error *err) {
  const ckpt_open_options options = {
      .struct_size = sizeof options, .stored_names = true, .weights = CKPT_WEIGHTS_STORED};
  ckpt_entry *entries = NULL;
  size_t n = 0;
  ckpt_source *source;
  CKPT_TRY(ckpt_list(&entries, &n, ckpt_source_root(index->source), "", err));
  reading.latest = ckpt_zero_has_states(entries, n) ? NULL : CKPT_ZERO_LATEST;
  ckpt_list_free(entries, n);
  CKPT_TRY(ckpt_source_open(&source, ckpt_source_root(index->source), err));
  ckpt_source_follow(source, index->source);
  CKPT_TRY(ckpt_index_new(out, source, index->path, index->format, &options, err));
  ckpt_status status = ckpt_zero_read(*out, &reading, &options, n_copies, err);
  if (status == CKPT_OK) status = ckpt_index_choose_weights(*out, options.weights, err);
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_index_free(*out);
  *out = NULL;
  return status;
}

/* What is said of copy number i. */
typedef struct words {
  char set[96], name[64];
} words;

static ckpt_copy describe(words *w, uint32_t i, uint32_t n, bool is_of_twins) {
  if (is_of_twins) {
    snprintf(w->name, sizeof w->name, "copy %u of this tied module", i);
    return (ckpt_copy){.set = "what stages of the pipeline have of tied modules",
                       .name = w->name,
                       .first = "the first",
                       .kept = "the first stage's",
                       .is_last = i == n};
  }
  snprintf(w->set, sizeof w->set, "what %u tensor parallel ranks all have", n + 1);
  snprintf(w->name, sizeof w->name, "tensor parallel rank %u", i);
  return (ckpt_copy){.set = w->set, .name = w->name, .first = "rank 0", .kept = "rank 0's", .is_last = i == n};
}

/* Shows copies number 1 to n of one kind. */
static ckpt_status show_all(const ckpt_index *index, const ckpt_index *read, uint32_t n, bool is_of_twins,
                            ckpt_copy_visit *visit, void *arg, ckpt_error *err) {
  for (uint32_t i = 1; i <= n; i++) {
    const ckpt_zero_reading reading = {.copy = is_of_twins ? 0 : i, .twin = is_of_twins ? i : 0};
    ckpt_index *other;
    words w;
    CKPT_TRY(read_again(&other, index, reading, NULL, err));
    ckpt_copy copy = describe(&w, i, n, is_of_twins);
    copy.read = read;
    copy.other = other;
    ckpt_status status = visit(arg, &copy, err);
    ckpt_index_free(other);
    CKPT_TRY(status);
  }
  return CKPT_OK;
}

/* Whether there are files of a second model-parallel rank, or of layers: else reading it again would find nothing. */
static bool has_shards(const ckpt_source *source) {
  for (uint32_t i = 0; i < ckpt_source_count(source); i++)
    if (strstr(ckpt_source_name(source, i), "mp_rank_01_") != NULL ||
        strstr(ckpt_source_name(source, i), "layer_") != NULL)
      return true;
  return false;
}

ckpt_status ckpt_zero_copies_show(const ckpt_index *index, ckpt_copy_visit *visit, void *arg, ckpt_error *err) {
  ckpt_index *read;
  ckpt_zero_copies n = {0};
  if (!has_shards(index->source)) return CKPT_OK;
  CKPT_TRY(read_again(&read, index, (ckpt_zero_reading){0}, &n, err));
  ckpt_status status = n.n_tensor < 2 ? CKPT_OK : show_all(index, read, n.n_tensor - 1, false, visit, arg, err);
  if (status == CKPT_OK) status = show_all(index, read, n.n_twins, true, visit, arg, err);
  ckpt_index_free(read);
  return status;
}
