/* text.h - text for people: what hostile names look like on a terminal, counts and times.
 *
 * Names come from files that anybody may have written. Printed as text they lose every character that a terminal would
 * obey: controls, C1 controls, direction overrides and bytes that are no UTF-8 appear as \xHH or \uHHHH. */
#ifndef CKPT_TOOLS_CLI_TEXT_H
#define CKPT_TOOLS_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "libckpt/base/text.h" /* ckpt_text_size */

/* Decodes the character at text[0, n), n > 0. Returns its length in bytes, or 0 if it is no well-formed UTF-8. */
size_t ckpt_text_next(const char *text, size_t n, uint32_t *codepoint);

/* Whether a terminal would act on this character instead of showing it. */
bool ckpt_text_is_control(uint32_t codepoint);

/* Writes text with everything dangerous escaped. Returns the columns it takes (one per character). */
size_t ckpt_text_print(FILE *out, const char *text);

/* Whether ckpt_text_print would write text as it is. */
bool ckpt_text_is_plain(const char *text);

/* The columns that ckpt_text_print would take. */
size_t ckpt_text_columns(const char *text);

/* "1,234,567". out holds at least 32 bytes; returned. */
const char *ckpt_text_count(uint64_t n, char *out);

/* "14 s", "2 min 5 s", "1 h 12 min". out holds at least 48 bytes; returned. */
const char *ckpt_text_duration(double seconds, char *out);

/* The shortest decimal text that strtod (or strtof) reads back as value; "nan", "inf", "-inf". out holds at least 32
 * bytes; returned. */
const char *ckpt_text_number(double value, char *out);
const char *ckpt_text_float(float value, char *out); /* as above */

#endif
