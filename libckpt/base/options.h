/* options.h - reads option structs of callers that were built with another version of ckpt.h. */
#ifndef CKPT_BASE_OPTIONS_H
#define CKPT_BASE_OPTIONS_H

#include <string.h>

#include "libckpt/base/error.h"

/* Copies what the caller's struct has into *known (n_known bytes; fields that it lacks are zero). options may be NULL.
 * EINVAL if struct_size was not set. */
static inline ckpt_status ckpt_options_take(void *known, size_t n_known, const void *options, ckpt_error *err) {
  memset(known, 0, n_known);
  memcpy(known, &n_known, sizeof n_known);
  if (options == NULL) return CKPT_OK;
  size_t n_given;
  memcpy(&n_given, options, sizeof n_given);
  if (n_given < sizeof n_given)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "an option struct has struct_size %zu (set it to its sizeof)",
                     n_given);
  memcpy(known, options, n_given < n_known ? n_given : n_known);
  memcpy(known, &n_known, sizeof n_known); /* a whole one from here on */
  return CKPT_OK;
}

#endif
