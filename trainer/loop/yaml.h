/* yaml.h - a YAML file as a JSON value: what people keep arguments in. One document; scalars as YAML's core schema
 * types them; no anchors and no tags. */
#ifndef CKPT_TRAINER_LOOP_YAML_H
#define CKPT_TRAINER_LOOP_YAML_H

#include <jansson.h>

#include "libckpt/ckpt.h"

/* EINVAL with file and line; ENOTFOUND, EIO, ENOMEM. The value is released with json_decref. */
ckpt_status ckpt_yaml_read(json_t **out, const char *path, ckpt_error *err);

#endif
