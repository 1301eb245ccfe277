/* files.c - see files.h. */
#include "formats/tokenizer/files.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

enum { MAX_TEXT_BYTES = 1 << 26 };

typedef ckpt_tokenizer_files files;
typedef ckpt_tokenizer_file found;

ckpt_status ckpt_tokenizer_find_file(const files *f, const char *name, found *out, bool *is_there, ckpt_error *err) {
  *is_there = false;
  *out = (found){0};
  for (uint32_t i = 0; f->index != NULL && i < f->index->n_side_files; i++) {
    const ckpt_side_file *side = &f->index->side_files[i];
    if (strcmp(side->name, name) != 0) continue;
    *is_there = true;
    *out = (found){side->source != NULL ? side->source : f->index->source, side->file, side->n_bytes, NULL, side->text};
  }
  for (size_t i = 0; i < f->n_entries; i++) {
    const bool is_below = strchr(name, '/') != NULL && i == 0; /* of a folder that was listed */
    if (!is_below && (strcmp(f->entries[i].name, name) != 0 || !f->entries[i].is_file)) continue;
    CKPT_TRY(ckpt_source_add(f->source, name, &out->file, &out->n_bytes, err));
    *is_there = true;
    out->source = f->source;
  }
  if (!*is_there) return CKPT_OK;
  out->path = ckpt_source_path(out->source, out->file);
  if (out->n_bytes <= CKPT_TOKENIZER_MAX_BYTES) return CKPT_OK;
  return ckpt_fail(err, CKPT_ELIMIT, out->path, NULL, "%llu bytes, more than a tokenizer's files have (%llu)",
                   (unsigned long long)out->n_bytes, (unsigned long long)CKPT_TOKENIZER_MAX_BYTES);
}

static ckpt_status json_of(ckpt_json **out, const found *at, ckpt_error *err) {
  if (at->text != NULL) return ckpt_json_new_text(out, at->text, (size_t)at->n_bytes, true, at->path, err);
  return ckpt_json_new_source(out, at->source, at->file, 0, at->n_bytes, MAX_TEXT_BYTES, true, err);
}

ckpt_status ckpt_tokenizer_file_bytes(char **out, const found *at, ckpt_error *err) {
  char *bytes = malloc((size_t)at->n_bytes + 1);
  CKPT_TRY_ALLOC(bytes, err);
  ckpt_status status = CKPT_OK;
  if (at->text != NULL)
    memcpy(bytes, at->text, (size_t)at->n_bytes);
  else
    status = ckpt_source_read(at->source, at->file, 0, bytes, (size_t)at->n_bytes, err);
  bytes[at->n_bytes] = '\0';
  *out = bytes;
  if (status != CKPT_OK) free(bytes);
  return status;
}

ckpt_status ckpt_tokenizer_read_file(ckpt_tokenizer_build *build, const found *at, ckpt_tokenizer_take_json *take,
                                     ckpt_error *err) {
  ckpt_json *json;
  CKPT_TRY(json_of(&json, at, err));
  build->file = at->path;
  build->n_bytes += at->n_bytes;
  ckpt_status status = take(build, json, err);
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, at->path, NULL);
}

ckpt_status ckpt_tokenizer_read_if_there(ckpt_tokenizer_build *build, const files *f, const char *name,
                                         ckpt_tokenizer_take_json *take, ckpt_error *err) {
  found at;
  bool is_there;
  CKPT_TRY(ckpt_tokenizer_find_file(f, name, &at, &is_there, err));
  return is_there ? ckpt_tokenizer_read_file(build, &at, take, err) : CKPT_OK;
}
