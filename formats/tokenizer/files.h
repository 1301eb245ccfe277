/* files.h - a tokenizer's files by their names: in a folder, or among the side files of an index. */
#ifndef CKPT_FORMATS_TOKENIZER_FILES_H
#define CKPT_FORMATS_TOKENIZER_FILES_H

#include "formats/tokenizer/build.h"

/* Where files are looked up: in a folder (source is its own), or among side files. */
typedef struct ckpt_tokenizer_files {
  ckpt_source *source; /* owned; NULL for an index */
  const ckpt_entry *entries;
  size_t n_entries;
  const ckpt_index *index;
} ckpt_tokenizer_files;

/* One of them; all is borrowed. */
typedef struct ckpt_tokenizer_file {
  ckpt_source *source;
  uint32_t file;
  uint64_t n_bytes;
  const char *path, *text; /* text: replaces what is stored; NULL */
} ckpt_tokenizer_file;

/* Finds a file by its name, and says whether it exists. ELIMIT: the file is larger than a tokenizer's may be. */
ckpt_status ckpt_tokenizer_find_file(const ckpt_tokenizer_files *f, const char *name, ckpt_tokenizer_file *out,
                                     bool *is_there, ckpt_error *err);

/* All bytes, terminated; the caller frees them. EIO, ENOMEM. */
ckpt_status ckpt_tokenizer_file_bytes(char **out, const ckpt_tokenizer_file *at, ckpt_error *err);

/* Takes what a JSON file says. */
typedef ckpt_status ckpt_tokenizer_take_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err);

/* Has a JSON file taken, and counts its bytes. Fails as take, and as reading. */
ckpt_status ckpt_tokenizer_read_file(ckpt_tokenizer_build *build, const ckpt_tokenizer_file *at,
                                     ckpt_tokenizer_take_json *take, ckpt_error *err);

/* The same of a name, where there is such a file. */
ckpt_status ckpt_tokenizer_read_if_there(ckpt_tokenizer_build *build, const ckpt_tokenizer_files *f, const char *name,
                                         ckpt_tokenizer_take_json *take, ckpt_error *err);

/* Adds chat templates that have files of their own, where the build has none yet. EFORMAT: as
 * ckpt_tokenizer_add_template. */
ckpt_status ckpt_tokenizer_read_template_files(ckpt_tokenizer_build *build, const ckpt_tokenizer_files *f,
                                               ckpt_error *err);

#endif
