/* model.c - see model.h. */
#include "tools/report/model.h"

#include <inttypes.h>

#include "tools/cli/text.h"

void ckpt_report_unused(const ckpt_args *args, const ckpt_index *index, const ckpt_model *model) {
  const ckpt_tensor *first;
  const uint32_t n = ckpt_model_unused(index, model, &first);
  if (n == 0) return;
  ckpt_report_warning(args, "%s: the model runs without %" PRIu32 " tensor%s that its config has no place for (%s%s)",
                      index->path, n, ckpt_plural(n), first->name, n == 1 ? "" : ", ...");
}
