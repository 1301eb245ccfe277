/* template_files.c - chat templates in files of their own, in the order of llama.cpp's converter: chat_template.jinja
 * with those of a folder, by name; or chat_template.json. See files.h. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/files.h"
#include "libckpt/base/error.h"

typedef ckpt_tokenizer_files files;
typedef ckpt_tokenizer_file found;

#define TEMPLATE_FOLDER "additional_chat_templates"
#define TEMPLATE_SUFFIX ".jinja"

/* Line ends as Python reads a text: CR LF and CR are LF. */
static size_t plain_lines(char *text, size_t n) {
  size_t to = 0;
  for (size_t i = 0; i < n; i++) {
    if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
    text[to++] = text[i] == '\r' ? '\n' : text[i];
  }
  return to;
}

static ckpt_status read_template(ckpt_tokenizer_build *build, const found *at, const char *name, ckpt_error *err) {
  char *text;
  CKPT_TRY(ckpt_tokenizer_file_bytes(&text, at, err));
  build->file = at->path;
  ckpt_status status = ckpt_tokenizer_add_template(build, name, text, plain_lines(text, (size_t)at->n_bytes), err);
  free(text);
  return status;
}

/* Reads the template NAME from "additional_chat_templates/NAME.jinja", and ignores files with other names. */
static ckpt_status read_named_template(ckpt_tokenizer_build *build, const files *f, const char *path, ckpt_error *err) {
  const size_t n_folder = sizeof TEMPLATE_FOLDER, n_suffix = sizeof TEMPLATE_SUFFIX - 1, n = strlen(path);
  found at;
  bool is_there;
  if (n <= n_folder + n_suffix || strncmp(path, TEMPLATE_FOLDER "/", n_folder) != 0 ||
      strcmp(path + n - n_suffix, TEMPLATE_SUFFIX) != 0 || strchr(path + n_folder, '/') != NULL)
    return CKPT_OK;
  CKPT_TRY(ckpt_tokenizer_find_file(f, path, &at, &is_there, err));
  if (!is_there) return CKPT_OK;
  const char *name = ckpt_arena_text(&build->out->arena, path + n_folder, n - n_folder - n_suffix);
  CKPT_TRY_ALLOC(name, err);
  return read_template(build, &at, name, err);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The paths of files in the folder of named templates, in byte order; the caller frees the list. */
static ckpt_status list_templates(const char ***out, size_t *n, ckpt_tokenizer_build *build, const files *f,
                                  ckpt_error *err) {
  ckpt_entry *entries = NULL;
  size_t n_entries = 0;
  ckpt_error unheard = {0};
  *out = NULL;
  *n = 0;
  ckpt_status status = CKPT_OK;
  if (f->source != NULL)
    status = ckpt_list(&entries, &n_entries, ckpt_source_root(f->source), TEMPLATE_FOLDER, &unheard);
  if (status == CKPT_ENOMEM) return ckpt_fail_as(err, status, TEMPLATE_FOLDER, NULL, &unheard);
  if (status != CKPT_OK) return CKPT_OK; /* no such folder */
  const size_t n_most = n_entries + (f->index == NULL ? 0 : f->index->n_side_files);
  const char **paths = calloc(n_most + 1, sizeof *paths);
  if (paths == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (size_t i = 0; i < n_entries && status == CKPT_OK; i++) {
    const char *path = ckpt_arena_printf(&build->out->arena, TEMPLATE_FOLDER "/%s", entries[i].name);
    if (path == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    if (entries[i].is_file) paths[(*n)++] = path;
  }
  for (uint32_t i = 0; f->index != NULL && i < f->index->n_side_files && status == CKPT_OK; i++)
    paths[(*n)++] = f->index->side_files[i].name;
  ckpt_list_free(entries, n_entries);
  *out = paths;
  if (status != CKPT_OK) free(paths);
  if (status == CKPT_OK) qsort(paths, *n, sizeof *paths, by_text);
  return status;
}

/* {"chat_template": ...} */
static ckpt_status read_template_json(ckpt_tokenizer_build *build, ckpt_json *json, ckpt_error *err) {
  const ckpt_object *tree;
  CKPT_TRY(ckpt_tree_read(&tree, json, &build->out->arena, err));
  return ckpt_tokenizer_read_templates(build, ckpt_object_field(tree, "chat_template"), err);
}

ckpt_status ckpt_tokenizer_read_template_files(ckpt_tokenizer_build *build, const files *f, ckpt_error *err) {
  found at;
  bool is_there;
  const char **paths;
  size_t n;
  if (build->out->n_templates != 0) return CKPT_OK;
  CKPT_TRY(ckpt_tokenizer_find_file(f, "chat_template.jinja", &at, &is_there, err));
  if (!is_there) return ckpt_tokenizer_read_if_there(build, f, "chat_template.json", read_template_json, err);
  CKPT_TRY(read_template(build, &at, NULL, err));
  CKPT_TRY(list_templates(&paths, &n, build, f, err));
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < n && status == CKPT_OK; i++) status = read_named_template(build, f, paths[i], err);
  free(paths);
  return status;
}
