/* modules.h - the folders of a sentence-transformers model that hold modules with weights of their own. They are
 * carried as they are; whoever carries or proves them opens them. */
#ifndef CKPT_RECIPE_RECORDS_MODULES_H
#define CKPT_RECIPE_RECORDS_MODULES_H

#include "libckpt/codec/side_files/side_files.h"

/* A module that was opened: index is NULL where that failed, and defect says why. Borrowed for the call. */
typedef ckpt_status ckpt_take_module(void *arg, const ckpt_module *module, const ckpt_index *index,
                                     const ckpt_error *defect, ckpt_error *err);

/* Opens each folder that modules.json among the side files names, if it has weights or its class needs them, with
 * `options` (or NULL). One that is not there where its class needs a file is a defect too. Fails as take does, ENOMEM,
 * EIO. */
ckpt_status ckpt_modules_open(const ckpt_index *index, const ckpt_open_options *options, ckpt_take_module *take,
                              void *arg, ckpt_error *err);

#endif
