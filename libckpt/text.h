/* text.h - the little that is asked of text from files: is it UTF-8, how does it end. */
#ifndef CKPT_TEXT_H
#define CKPT_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* How many of the n bytes, from the first, are whole UTF-8 characters: n where all are. Overlong forms, surrogates and
 * values past U+10FFFF are none; NUL is one. */
size_t ckpt_utf8_length(const void *text, size_t n);

/* Whether text ends with this. */
bool ckpt_text_ends(const char *text, const char *ending);

#endif
