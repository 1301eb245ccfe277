/* error.h - how functions of libckpt fail.
 *
 * Every fallible function returns a ckpt_status and takes `ckpt_error *err` last. The first message wins: a filled
 * err is never overwritten, only completed (a codec knows the defect, its caller the file). */
#ifndef CKPT_BASE_ERROR_H
#define CKPT_BASE_ERROR_H

#include "libckpt/ckpt.h"

/* Fills err (unless NULL or already filled) and returns status. file and tensor may be NULL. */
ckpt_status ckpt_fail(ckpt_error *err, ckpt_status status, const char *file, const char *tensor, const char *format,
                      ...) CKPT_PRINTF(5, 6);

/* The same for a failed system call: appends what errno says. ENOMEM keeps its class; all else is EIO, a missing
 * file ENOTFOUND. */
ckpt_status ckpt_fail_errno(ckpt_error *err, const char *file, const char *format, ...) CKPT_PRINTF(3, 4);

/* Adds file and tensor to a failure from below, if they are still unknown. Returns
 * status, so that `return ckpt_fail_at(status, err, path, NULL)` reads well. */
ckpt_status ckpt_fail_at(ckpt_status status, ckpt_error *err, const char *file, const char *tensor);

/* The plural ending of a counted noun in a message. */
static inline const char *ckpt_plural(uint64_t n) { return n == 1 ? "" : "s"; }

/* Returns from the enclosing function when expr fails. */
#define CKPT_TRY(expr)                                        \
  do {                                                        \
    ckpt_status ckpt_try_status_ = (expr);                    \
    if (ckpt_try_status_ != CKPT_OK) return ckpt_try_status_; \
  } while (0)

/* The same for functions that own resources: jumps to `done` with `status` set. */
#define CKPT_TRY_GOTO(expr)                      \
  do {                                           \
    if ((status = (expr)) != CKPT_OK) goto done; \
  } while (0)

/* Returns ENOMEM when an allocation gave NULL. */
#define CKPT_TRY_ALLOC(pointer, err)                                                          \
  do {                                                                                        \
    if ((pointer) == NULL) return ckpt_fail((err), CKPT_ENOMEM, NULL, NULL, "out of memory"); \
  } while (0)

#endif
