/* keys.h - the keys of config.json beside those that decide shapes, against what the configuration classes of
 * transformers take. */
#ifndef CKPT_RECIPE_VERIFY_KEYS_H
#define CKPT_RECIPE_VERIFY_KEYS_H

#include "libckpt/format/findings.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"

/* A problem for each value that transformers 5 refuses in a config of this model of the family, unless the file has one
 * of that key. A key or a word that is not known here means that loading cannot be proven: `why`, if it is empty, then
 * becomes the reason. */
ckpt_status ckpt_verify_keys(ckpt_findings *findings, const ckpt_config *config, const char *config_path,
                             const ckpt_arch *arch, const ckpt_arch_model *model, char *why, size_t n_why,
                             ckpt_error *err);

#endif
