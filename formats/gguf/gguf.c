/* gguf.c - the format's row: one GGUF file, or several that are one model, named by the first of them or their folder.
 *
 *   "GGUF", u32 version, u64 tensors, u64 keys
 *   keys:     each a string key, u32 type, value                       (a string: u64 length, bytes)
 *   tensors:  each a string name, u32 axes, u64 axis..., u32 type, u64 offset     (axes from the fastest)
 *   padding, then the tensors, each padded to general.alignment (32)
 *
 * Known by its first four bytes, a folder by the files in it. read.c reads a header, layout.c writes one,
 * shards.c knows folders; docs/formats/gguf.md. */
#include "formats/gguf/gguf.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/name_table.h"

static bool probe(const ckpt_probe *p) {
  return p->is_folder ? ckpt_gguf_probe_folder(p) : ckpt_gguf_probe(p->head, p->n_head);
}

bool ckpt_gguf_numbered(const char *name, size_t *n_prefix, uint32_t *number, uint32_t *count) {
  enum { N_ENDING = sizeof "-00001-of-00001.gguf" - 1 };
  const size_t n = strlen(name);
  int n_read = 0;
  if (n <= N_ENDING) return false;
  const char *ending = name + n - N_ENDING;
  if (strspn(ending + 1, "0123456789") != 5 || strspn(ending + 10, "0123456789") != 5) return false;
  if (sscanf(ending, "-%5u-of-%5u.gguf%n", number, count, &n_read) != 2 || n_read != N_ENDING) return false;
  *n_prefix = n - N_ENDING;
  return *number != 0 && *number <= *count;
}

/* ---- a model in several files ------------------------------------------------------------------------------------ */

/* The name says which part it is, as the names of the others follow from it. */
static ckpt_status check_name(const ckpt_index *index, const char *name, const ckpt_gguf_part *part, size_t *n_prefix,
                              ckpt_error *err) {
  uint32_t number, count;
  if (!ckpt_gguf_numbered(name, n_prefix, &number, &count) || number != part->number + 1 || count != part->count)
    return ckpt_fail(err, CKPT_EFORMAT, index->path, NULL,
                     "says that it is file %u of %u: its name has to end in -%05u-of-%05u.gguf", part->number + 1,
                     part->count, part->number + 1, part->count);
  if (number == 1) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL,
                   "is file %u of the %u of a model (name the first, %.*s-00001-of-%05u.gguf, or their folder)", number,
                   count, (int)*n_prefix, name, count);
}

static ckpt_status read_other(ckpt_index *index, const char *name, uint32_t number, uint32_t count, ckpt_error *err) {
  uint32_t file;
  uint64_t size;
  ckpt_gguf_part part;
  ckpt_error cause = {0};
  ckpt_status status = ckpt_source_add(index->source, name, &file, &size, &cause);
  if (status == CKPT_ENOTFOUND)
    return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL, "file %u of %u is missing: %s (download it)", number + 1,
                     count, name);
  if (status != CKPT_OK && err != NULL && err->status == CKPT_OK) *err = cause;
  CKPT_TRY(status);
  CKPT_TRY(ckpt_gguf_read_file(index, file, false, &part, err));
  if (part.number == number && part.count == count) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(index->source, file), NULL,
                   "says that it is file %u of %u, its name says %u of %u", part.number + 1, part.count, number + 1,
                   count);
}

static ckpt_status read_others(ckpt_index *index, const char *name, const ckpt_gguf_part *first, ckpt_error *err) {
  size_t n_prefix;
  bool is_whole = true;
  ckpt_error defect = {0};
  if (ckpt_source_root(index->source)[0] == '\0')
    return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL, "is file %u of %u, and memory has no others beside it",
                     first->number + 1, first->count);
  CKPT_TRY(check_name(index, name, first, &n_prefix, err));
  for (uint32_t i = 1; i < first->count; i++) {
    char *other = ckpt_arena_printf(&index->arena, "%.*s-%05u-of-%05u.gguf", (int)n_prefix, name, i + 1, first->count);
    CKPT_TRY_ALLOC(other, err);
    ckpt_status status = read_other(index, other, i, first->count, &defect);
    is_whole = is_whole && status == CKPT_OK;
    CKPT_TRY(ckpt_defects_pass(&index->defects, status, &defect, err));
  }
  if (!is_whole || first->n_tensors < 0 || first->n_tensors == (int64_t)index->n_tensors) return CKPT_OK;
  ckpt_status status =
      ckpt_fail(&defect, CKPT_EFORMAT, index->path, NULL, "split.tensors.count is %lld, its %u file%s hold %u tensor%s",
                (long long)first->n_tensors, first->count, ckpt_plural(first->count), index->n_tensors,
                ckpt_plural(index->n_tensors));
  return ckpt_defects_pass(&index->defects, status, &defect, err);
}

ckpt_status ckpt_gguf_read_model(ckpt_index *index, const char *name, const ckpt_open_options *options,
                                 ckpt_error *err) {
  uint32_t file = 0; /* of a source in memory */
  uint64_t size;
  ckpt_gguf_part part;
  if (ckpt_source_root(index->source)[0] != '\0') CKPT_TRY(ckpt_source_add(index->source, name, &file, &size, err));
  CKPT_TRY(ckpt_gguf_read_file(index, file, true, &part, err));
  const ckpt_meta *architecture = ckpt_index_meta(index, CKPT_GGUF_ARCHITECTURE);
  if (architecture != NULL && architecture->typed == NULL) index->stated_architecture = architecture->value;
  if (part.count > 1) CKPT_TRY(read_others(index, name, &part, err));
  CKPT_TRY(ckpt_name_table_refuse_twice(index, err));
  bool is_known = false;
  if (options->stored_names)
    ckpt_dialect_find_misfit(index); /* `verify` tells of it */
  else
    CKPT_TRY(ckpt_dialect_from_gguf(index, &is_known, err));
  if (is_known) return CKPT_OK;
  CKPT_TRY(ckpt_index_canonical_names(index, options->stored_names, options->like, err));
  return ckpt_index_finish(index, err);
}

/* ---- the row ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  if (p->is_folder) CKPT_TRY(ckpt_gguf_find_first(p, &name, err));
  return ckpt_gguf_read_model(index, name, options, err);
}

static ckpt_status layout(ckpt_layout *l, const ckpt_layout_options *options, ckpt_error *err) {
  uint32_t *order = NULL, alignment;
  CKPT_TRY(ckpt_gguf_alignment(l->index, &alignment, err));
  CKPT_TRY(ckpt_gguf_order(&order, l, err));
  if (options->is_folder) return ckpt_gguf_lay_shards(l, order, alignment, options, err);
  CKPT_TRY(ckpt_layout_file_add(l, NULL, err));
  return ckpt_gguf_lay(l, order, l->index->n_tensors, l->index->metadata, l->index->n_metadata, alignment, err);
}

/* Recipes act on them (recipe/convert/metadata.h, codec/dialect), before the layout. */
static const ckpt_format_option options[] = {{"remove", CKPT_VALUE_LIST, .is_of_all = true},
                                             {"set", CKPT_VALUE_LIST, .is_of_all = true},
                                             {"pre", CKPT_VALUE_TEXT, .is_of_all = true},
                                             {.name = NULL}};

const ckpt_format ckpt_format_gguf = {
    .name = "gguf",
    .suffixes = ".gguf",
    .caps = {.can_write = true,
             .typed_metadata = true,
             .presets = true,
             .dialect = true,
             .shards = true,
             .cut_by_size = true,
             .dtypes = CKPT_GGUF_DTYPES,
             .max_rank = CKPT_GGUF_MAX_RANK},
    .options = options,
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_gguf_normalize,
    .layout = layout,
    .owns = ckpt_gguf_owns,
    .verify = ckpt_gguf_verify,
};
