/* side_file.h - side files in the folders that formats write: copied as they are, but that the dtype in config.json
 * follows what was written. */
#ifndef CKPT_CODEC_SIDE_FILE_H
#define CKPT_CODEC_SIDE_FILE_H

#include "libckpt/layout.h"

/* Adds a side file as a file of its own. Where it is config.json, the dtype in it becomes `dtype` (NULL leaves it):
 * EFORMAT where that is no JSON; as ckpt_layout_side_file. */
ckpt_status ckpt_side_file_lay(ckpt_layout *layout, const ckpt_side_file *side, const char *dtype, ckpt_error *err);

#endif
