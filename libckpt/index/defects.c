/* defects.c - see defects.h. */
#include "libckpt/index/defects.h"

bool ckpt_is_defect(ckpt_status status) {
  return status == CKPT_EFORMAT || status == CKPT_ENOTFOUND || status == CKPT_EDIFFERENT;
}

static bool is_defect_of_part(ckpt_status status) {
  return ckpt_is_defect(status) || status == CKPT_EUNSUPPORTED || status == CKPT_ELIMIT || status == CKPT_EEXIST ||
         status == CKPT_EIO;
}

ckpt_status ckpt_defects_pass(ckpt_defects *defects, ckpt_status status, ckpt_error *defect, ckpt_error *err) {
  if (status == CKPT_OK) return CKPT_OK;
  ckpt_fail_at(status, defect, defects->path, NULL);
  if (!is_defect_of_part(status) || defects->report == NULL)
    return ckpt_fail_as(err, status, defect->file, defect->tensor, defect);
  defects->report(defects->arg, defect);
  defects->n++;
  *defect = (ckpt_error){0};
  return CKPT_OK;
}
