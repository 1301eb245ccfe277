/* defects.c - see defects.h. */
#include "defects.h"

bool ckpt_is_defect(ckpt_status status) {
  return status == CKPT_EFORMAT || status == CKPT_ENOTFOUND || status == CKPT_EDIFFERENT;
}

ckpt_status ckpt_defects_pass(ckpt_defects *defects, ckpt_status status, ckpt_error *defect, ckpt_error *err) {
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_fail_at(status, defect, defects->path, NULL);
  if (!ckpt_is_defect(status) || defects->report == NULL)
    return ckpt_fail(err, status, defect->file, defect->tensor, "%s", defect->message);
  ckpt_defects_flush(defects);
  defects->last = *defect;
  return CKPT_OK;
}

ckpt_status ckpt_defects_end(ckpt_defects *defects, ckpt_error *err) {
  ckpt_error last = defects->last;
  defects->last = (ckpt_error){0};
  if (last.status == CKPT_OK) return CKPT_OK;
  return ckpt_fail(err, last.status, last.file, last.tensor, "%s", last.message);
}

void ckpt_defects_flush(ckpt_defects *defects) {
  if (defects->last.status != CKPT_OK) defects->report(defects->arg, &defects->last);
  defects->last = (ckpt_error){0};
}
