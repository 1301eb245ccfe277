/* safetensors.c - one safetensors file.
 *
 *   0      n: bytes of the header (u64, little-endian)
 *   8      header: JSON, {"__metadata__":{...},"<name>":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},...}
 *   8 + n  payload: row-major little-endian elements, at data_offsets
 *
 * The header itself is read and printed by libckpt/codec/safetensors/safetensors.h; docs/formats/safetensors.md has the
 * bytes. */
#include "libckpt/codec/safetensors/safetensors.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/format.h"
#include "libckpt/index/arch.h"

static bool probe(const ckpt_probe *p) { return !p->is_folder && ckpt_safetensors_probe(p->head, p->n_head); }

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  (void)p;
  uint32_t file = 0; /* of a source in memory */
  uint64_t size;
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  CKPT_TRY(ckpt_safetensors_read(index, file, err));
  CKPT_TRY(ckpt_safetensors_merge(index, err));
  size_t n_prefix;
  unsigned number, total;
  if (ckpt_safetensors_numbered(ckpt_path_name(name), &n_prefix, &number, &total) && total > 1)
    CKPT_TRY(ckpt_index_note(index, false, err, "is file %u of %u of a model (name the folder, or its index, for all)",
                             number, total));
  CKPT_TRY(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  return ckpt_index_finish(index, err);
}

static ckpt_status layout(ckpt_layout *l, const ckpt_layout_options *options, ckpt_error *err) {
  (void)options;
  const ckpt_index *index = l->index;
  uint32_t *tensors = ckpt_arena_array(l->arena, index->n_tensors, sizeof *tensors);
  ckpt_meta *metadata = ckpt_arena_array(l->arena, index->n_metadata, sizeof *metadata);
  if (tensors == NULL || metadata == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < index->n_tensors; i++) tensors[i] = i;
  if (index->n_metadata != 0) memcpy(metadata, index->metadata, index->n_metadata * sizeof *metadata);
  CKPT_TRY(ckpt_layout_file_add(l, NULL, err));
  if (index->n_metadata == 0 && !index->has_metadata) metadata = NULL;
  return ckpt_safetensors_lay(l, tensors, index->n_tensors, metadata, index->n_metadata, err);
}

const ckpt_format ckpt_format_safetensors = {
    .name = "safetensors",
    .suffixes = ".safetensors",
    .caps = {.can_write = true, .dtypes = CKPT_SAFETENSORS_DTYPES, .max_rank = CKPT_MAX_RANK},
    .probe = probe,
    .read = read_index,
    .layout = layout,
};
