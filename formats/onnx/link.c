/* link.c - data that are not copied: where in a file below the model's folder they stand already.
 *
 * ONNX Runtime follows a location below the folder of the model, and no link that leads out of it; onnx follows no link
 * at all, and no file with more names than one. So the location is the real path of the file from the real path of the
 * folder. Facts on what either accepts: onnx's ExternalDataSecurity.md, and tests/interop/test_onnx_link.py. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/source.h"
#include "libckpt/plan/plan.h"

typedef unsigned long long ull;

/* Where a file is, seen from the folder; "" where it is elsewhere. Remembered, as tensors of a file mostly follow each
 * other. */
static ckpt_status find_file(ckpt_onnx_links *links, ckpt_source *source, uint32_t file, ckpt_error *err) {
  char real[PATH_MAX];
  if (links->source == source && links->file == file) return CKPT_OK;
  links->source = source;
  links->file = file;
  links->location = "";
  links->n_links = ckpt_source_links(source, file);
  if (ckpt_source_root(source)[0] == '\0' || realpath(ckpt_source_path(source, file), real) == NULL) return CKPT_OK;
  const char *below = ckpt_path_below(links->folder, real);
  if (below == NULL) return CKPT_OK;
  links->location = ckpt_arena_copy(links->arena, below);
  CKPT_TRY_ALLOC(links->location, err);
  return CKPT_OK;
}

ckpt_status ckpt_onnx_link(ckpt_onnx_links *links, const ckpt_layout_read *read, const char *name, ckpt_onnx_place *out,
                           ckpt_error *err) {
  const ckpt_tensor *tensor = read->tensor;
  *out = (ckpt_onnx_place){NULL, 0};
  if (read->index == NULL)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, name,
                                 "cannot be linked: it is cast, and so stands nowhere as it is to be"),
                       err, "leave out %link, or %dtype");
  ckpt_source *source = read->index->source;
  const ckpt_extent *extent = tensor->extents;
  const char *path = read->index->path;
  if (tensor->n_extents == 0 || extent->file == CKPT_FILE_LITERAL) return CKPT_OK; /* in no file */
  if (links->graph != NULL && links->graph->source == source && links->graph->file == extent->file) return CKPT_OK;
  if (tensor->n_extents != 1 || tensor->details->extent_form != CKPT_EXTENT_FLAT || extent->chain[0] != CKPT_DECODE_RAW)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, tensor->name,
                     "cannot be linked: its bytes do not stand as they are in one piece of a file (of %s)",
                     read->index->format);
  CKPT_TRY(find_file(links, source, extent->file, err));
  path = ckpt_source_path(source, extent->file);
  if (links->location[0] == '\0')
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, tensor->name,
                     "cannot be linked: the file does not lie below %s, and ONNX Runtime follows nothing out of the "
                     "model's folder (write the model above the file, or copy that)",
                     links->folder);
  if (ckpt_utf8_length(links->location, strlen(links->location)) != strlen(links->location))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, tensor->name, "cannot be linked: the name of the file is no UTF-8");
  if (links->n_links > 1)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, tensor->name,
                     "cannot be linked: the file has %llu names (hard links), and onnx refuses such (copy it)",
                     (ull)links->n_links);
  *out = (ckpt_onnx_place){links->location, extent->offset + extent->skip};
  return CKPT_OK;
}
