/* text.h - small text functions: UTF-8, endings, lists of names, numbers and sizes. */
#ifndef CKPT_BASE_TEXT_H
#define CKPT_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libckpt/ckpt.h"

/* Number of leading bytes that form whole UTF-8 characters, at most n. Overlong forms, surrogates and values past
 * U+10FFFF are not characters; NUL is. */
size_t ckpt_utf8_length(const void *text, size_t n);

/* Whether text ends with this. */
bool ckpt_text_ends(const char *text, const char *ending);

/* Whether a name of n_name bytes ends with this suffix, in either case, and begins before it. */
bool ckpt_text_ends_in(const char *name, size_t n_name, const char *suffix);

/* Whether text is one of some words; NULL ends them. */
bool ckpt_text_is_one_of(const char *text, const char *const *words);

/* What follows the last slash of a path. */
const char *ckpt_path_name(const char *path);

/* Appends a space and a name to a terminated list of names in n_room bytes; leaves out one that does not fit. */
void ckpt_text_list_add(char *list, size_t n_room, const char *name);

/* The first three of some names, for a message: "a, b, c, ...". Zero-initialise it. */
typedef struct ckpt_name_list {
  char text[400];
  size_t n_text, n; /* n counts all of them */
} ckpt_name_list;

void ckpt_name_list_add(ckpt_name_list *list, const char *name); /* cut to 100 bytes */

/* strtod in the C locale: numbers in files have a point, whatever the caller's locale. */
double ckpt_c_strtod(const char *text, char **end);
/* strtof likewise. */
float ckpt_c_strtof(const char *text, char **end);
/* snprintf likewise. */
int ckpt_c_snprintf(char *out, size_t n, const char *format, ...) CKPT_PRINTF(3, 4);

/* "30.4 GB": 1000-based, one decimal from KB on. out holds at least 32 bytes; returned. */
const char *ckpt_text_size(uint64_t n_bytes, char *out);

#endif
