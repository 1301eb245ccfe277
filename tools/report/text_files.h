/* text_files.h - text that a verb reads whole: of a file, or stdin. */
#ifndef CKPT_TOOLS_REPORT_TEXT_FILES_H
#define CKPT_TOOLS_REPORT_TEXT_FILES_H

#include "libckpt/ckpt.h"

#define CKPT_TEXT_FILE_MAX (UINT64_C(4) << 30) /* bytes of a text that is read whole */

/* All bytes of a file, or of stdin for "-", terminated; the caller frees them. ELIMIT past max_bytes. */
ckpt_status ckpt_text_file_read(char **out, size_t *n_bytes, const char *path, uint64_t max_bytes, ckpt_error *err);

/* The text of a file: all of it, or of a .jsonl the field `text` of each line, with an empty line between. As above;
 * EFORMAT: a line that has none, with its number. */
ckpt_status ckpt_text_document_read(char **out, size_t *n_bytes, const char *path, ckpt_error *err);

/* The next line of a text, without its \n or \r\n, from *at, which moves behind it; false at the end. */
bool ckpt_text_line(const char *text, size_t n_bytes, size_t *at, const char **line, size_t *n_line);

#endif
