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

/* The same where the value of an option is at fault: a field of an option struct, or the name of a format's option
 * (static storage). */
ckpt_status ckpt_fail_option(ckpt_error *err, ckpt_status status, const char *file, const char *option,
                             const char *format, ...) CKPT_PRINTF(5, 6);

/* Adds what to do about a failure to err, where it says nothing yet, and returns status. A field
 * of options in it stands behind %, with a value as in "%weights=model", and $ stands for `value`. */
ckpt_status ckpt_advise(ckpt_status status, ckpt_error *err, const char *advice);
ckpt_status ckpt_advise_value(ckpt_status status, ckpt_error *err, const char *advice,
                              const char *value); /* as above */

/* Fails as something else did, with its message and advice, in a file and tensor of the caller's. */
ckpt_status ckpt_fail_as(ckpt_error *err, ckpt_status status, const char *file, const char *tensor,
                         const ckpt_error *why);

/* Writes what a reader calls a field of options: its name and its value, which may be empty. */
typedef void ckpt_name_field(const char *field, const char *value, char *out, size_t n_bytes);

/* A message with its advice: "too small (raise memory)", "two (one is; leave out weights=model)". NULL: as C has
 * fields. Returns out. */
const char *ckpt_advice_text(const char *message, const char *advice, const char *value, ckpt_name_field *name,
                             char *out, size_t n_bytes);

/* A message of an error in the same way, with the option at fault in front. */
const char *ckpt_error_message(const ckpt_error *err, ckpt_name_field *name, char *out, size_t n_bytes);

/* A status as scripts know it: "not_found". */
const char *ckpt_status_code(ckpt_status status);

/* The ending of a noun that is counted in a message: "byte" and this. */
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
