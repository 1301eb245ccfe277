/* model.h - the tensors against those that a class of transformers expects: what `from_pretrained` would find missing,
 * unexpected or mismatched. */
#ifndef CKPT_RECIPE_VERIFY_MODEL_H
#define CKPT_RECIPE_VERIFY_MODEL_H

#include "libckpt/format/findings.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"

/* Compares names, shapes and dtypes with those of the class that config.json's `architectures` names, by the row of its
 * family (ckpt_arch_model), which may be NULL. A problem for each that differs; else a proof, if there is no problem
 * yet and nothing is left that the row or the config does not decide; else that it is not proven, and why. With
 * `unknown`, the reason why names and shapes cannot be compared, it looks at the numbers of the config alone. */
ckpt_status ckpt_verify_model(ckpt_findings *findings, const ckpt_index *index, const ckpt_arch *arch,
                              const ckpt_config *config, const char *config_path, const char *unknown, ckpt_error *err);

#endif
