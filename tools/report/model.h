/* model.h - what verbs that run a model say of it. */
#ifndef CKPT_TOOLS_REPORT_MODEL_H
#define CKPT_TOOLS_REPORT_MODEL_H

#include "tools/report/report.h"
#include "trainer/model/model.h"

/* Warns of tensors that the model's config has no place for: it runs without them. */
void ckpt_report_unused(const ckpt_args *args, const ckpt_index *index, const ckpt_model *model);

#endif
