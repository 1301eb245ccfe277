/* text_files.h - text that a verb reads whole: of a file, or stdin. */
#ifndef CKPT_TOOLS_REPORT_TEXT_FILES_H
#define CKPT_TOOLS_REPORT_TEXT_FILES_H

#include <stdio.h>

#include "libckpt/ckpt.h"

#define CKPT_TEXT_FILE_MAX (UINT64_C(4) << 30) /* bytes of a text that is read whole */

/* Opens a file or pipe whose end comes, or gives stdin for "-"; the caller closes what is not stdin. EFORMAT: a folder,
 * a device such as /dev/zero, a fifo from which nothing comes within a second. what: "a list". */
ckpt_status ckpt_text_file_open(FILE **out, const char *path, const char *what, ckpt_error *err);

/* All bytes of a file, or of stdin for "-", terminated; the caller frees them. ELIMIT past max_bytes. Refuses what
 * ckpt_text_file_open refuses. */
ckpt_status ckpt_text_file_read(char **out, size_t *n_bytes, const char *path, uint64_t max_bytes, ckpt_error *err);

/* The text of a file: all of it, or of a .jsonl the field `text` of each line, with an empty line between. As above;
 * EFORMAT: a line that has none, with its number. */
ckpt_status ckpt_text_document_read(char **out, size_t *n_bytes, const char *path, ckpt_error *err);

/* The next line of a text, without its \n or \r\n, from *at, which moves behind it; false at the end. */
bool ckpt_text_line(const char *text, size_t n_bytes, size_t *at, const char **line, size_t *n_line);

#endif
