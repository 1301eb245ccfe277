/* universal.c - the row of DeepSpeed's universal checkpoints; read/universal.c reads them, write/universal.c writes
 * them. */
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"

static bool has(const ckpt_probe *p, const char *name, bool is_folder) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (p->entries[i].is_folder == is_folder && strcmp(p->entries[i].name, name) == 0) return true;
  return false;
}

/* What is also the save folder of a run is that: DeepSpeed converts beside what it saved. */
static bool probe(const ckpt_probe *p) {
  if (!p->is_folder) return false;
  if (ckpt_zero_has_models(p->entries, p->n_entries)) return has(p, "zero", true);
  return has(p, CKPT_LATEST_UNIVERSAL, false) && !has(p, CKPT_ZERO_LATEST, false);
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)name;
  bool is_tag = ckpt_zero_has_models(p->entries, p->n_entries);
  const ckpt_zero_reading reading = {.latest = is_tag ? NULL : CKPT_LATEST_UNIVERSAL, .is_universal = true};
  return ckpt_zero_read(index, &reading, options, NULL, err);
}

const ckpt_format ckpt_format_universal = {
    .name = "universal",
    .suffixes = "",
    .caps = {.can_write = true,
             .is_folder = true,
             .aliases = true,
             .objects = true,
             .training_state = true,
             .side_files = true,
             .ranks = true,
             .masters = true,
             .dtypes = CKPT_TORCH_DTYPES,
             .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_universal_normalize,
    .layout = ckpt_universal_layout,
    .owns = ckpt_universal_owns,
    .parts = CKPT_LATEST_UNIVERSAL,
};
