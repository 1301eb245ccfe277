/* manifest.c - see manifest.h. Written through a sink by a generator that runs twice; read as a stream: neither needs
 * memory for the text. */
#include "libckpt/recipe/records/manifest.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/index/arch.h"
#include "libckpt/io/stream.h"
#include "libckpt/recipe/records/json_file.h"
#include "libckpt/recipe/select/select.h"

enum { MAX_TENSORS = 1000000, WINDOW_BYTES = 1 << 16, N_KEYS = 9 };

typedef unsigned long long ull;

static ckpt_status manifest_alloc(ckpt_manifest **out, ckpt_error *err) {
  ckpt_manifest *manifest = calloc(1, sizeof *manifest);
  CKPT_TRY_ALLOC(manifest, err);
  ckpt_arena_init(&manifest->arena, UINT64_MAX);
  manifest->names = "stored";
  manifest->include = "model";
  *out = manifest;
  return CKPT_OK;
}

void ckpt_manifest_free(ckpt_manifest *manifest) {
  if (manifest == NULL) return;
  ckpt_arena_free(&manifest->arena);
  ckpt_side_sums_free(&manifest->side_files);
  free(manifest->entries);
  free(manifest->not_read);
  free(manifest->exclude);
  free(manifest);
}

bool ckpt_manifest_same_shape(const ckpt_manifest_entry *a, const ckpt_manifest_entry *b) {
  return a->rank == b->rank && (a->rank == 0 || memcmp(a->shape, b->shape, a->rank * sizeof *a->shape) == 0);
}

/* Whether one is f32, and the other what f32 holds. */
static bool is_widened(const ckpt_manifest_entry *a, const ckpt_manifest_entry *b) {
  const uint8_t shorter = a->dtype == CKPT_F32 ? b->dtype : a->dtype;
  return (a->dtype == CKPT_F32) != (b->dtype == CKPT_F32) && (shorter == CKPT_BF16 || shorter == CKPT_F16);
}

size_t ckpt_manifest_n_widened(const ckpt_manifest *a, const ckpt_manifest *b, const ckpt_manifest_entry **first) {
  size_t n = 0;
  if (a->n != b->n || a->n_not_read + b->n_not_read != 0 || strcmp(a->names, b->names) != 0) return 0;
  for (size_t i = 0; i < a->n; i++) {
    const ckpt_manifest_entry *x = &a->entries[i], *y = &b->entries[i];
    const bool is_equal = memcmp(&x->digest, &y->digest, sizeof x->digest) == 0;
    if (strcmp(x->name, y->name) != 0 || !ckpt_manifest_same_shape(x, y) || (!is_equal && !is_widened(x, y))) return 0;
    if (!is_equal && n++ == 0) *first = x;
  }
  return n;
}

/* Appends an entry, its name and shape copied; tensors of one shape, one after the other, share it. */
static ckpt_status add(ckpt_manifest *manifest, ckpt_manifest_entry entry, ckpt_error *err) {
  if (manifest->n == manifest->capacity) {
    size_t capacity = manifest->capacity < 64 ? 64 : manifest->capacity + manifest->capacity / 2;
    ckpt_manifest_entry *moved = reallocarray(manifest->entries, capacity, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    manifest->entries = moved;
    manifest->capacity = capacity;
  }
  const ckpt_manifest_entry *last = manifest->n == 0 ? NULL : &manifest->entries[manifest->n - 1];
  if (last != NULL && ckpt_manifest_same_shape(last, &entry)) {
    entry.shape = last->shape;
  } else if (entry.rank != 0) {
    uint64_t *shape = ckpt_arena_array(&manifest->arena, entry.rank, sizeof *shape);
    CKPT_TRY_ALLOC(shape, err);
    memcpy(shape, entry.shape, entry.rank * sizeof *shape);
    entry.shape = shape;
  } else {
    entry.shape = NULL;
  }
  entry.name = ckpt_arena_copy(&manifest->arena, entry.name);
  CKPT_TRY_ALLOC(entry.name, err);
  manifest->entries[manifest->n++] = entry;
  return CKPT_OK;
}

/* Appends a copied text to a list, behind which room for a NULL stays. */
static ckpt_status add_text(ckpt_manifest *manifest, const char ***list, uint32_t *n, uint32_t *capacity,
                            const char *text, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(list, *n + 1, capacity, sizeof **list, err));
  const char *copy = ckpt_arena_copy(&manifest->arena, text);
  CKPT_TRY_ALLOC(copy, err);
  (*list)[(*n)++] = copy;
  (*list)[*n] = NULL;
  return CKPT_OK;
}

/* The name of a tensor that was not read. */
static ckpt_status add_not_read(ckpt_manifest *manifest, const char *name, ckpt_error *err) {
  return add_text(manifest, &manifest->not_read, &manifest->n_not_read, &manifest->not_read_capacity, name, err);
}

static ckpt_status add_exclude(ckpt_manifest *manifest, const char *pattern, ckpt_error *err) {
  return add_text(manifest, &manifest->exclude, &manifest->n_exclude, &manifest->exclude_capacity, pattern, err);
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

static int by_name(const void *a, const void *b) {
  return strcmp(((const ckpt_manifest_entry *)a)->name, ((const ckpt_manifest_entry *)b)->name);
}

const ckpt_manifest_entry *ckpt_manifest_find(const ckpt_manifest *manifest, const char *name) {
  ckpt_manifest_entry wanted = {.name = name};
  return manifest->n == 0 ? NULL : bsearch(&wanted, manifest->entries, manifest->n, sizeof *manifest->entries, by_name);
}

/* ---- from a plan ------------------------------------------------------------------------------------------------ */

static bool is_tied_copy(const ckpt_index *from, const char *name) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(from, i, &kept, &tied); i++)
    if (strcmp(tied->name, name) == 0) return true;
  return false;
}

static ckpt_status fill(ckpt_manifest *manifest, const ckpt_hashing *hashing, ckpt_error *err) {
  const ckpt_index *from = hashing->from;
  manifest->names = ckpt_arena_copy(&manifest->arena, from->names);
  manifest->include = ckpt_arena_copy(&manifest->arena, hashing->include);
  manifest->cast = hashing->cast;
  manifest->entries = calloc((size_t)from->n_tensors + 1, sizeof *manifest->entries);
  manifest->capacity = (size_t)from->n_tensors + 1;
  if (manifest->names == NULL || manifest->include == NULL || manifest->entries == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (size_t i = 0; i < from->n_tensors; i++) { /* in byte order of names */
    const ckpt_tensor *tensor = ckpt_hashing_at(hashing, i);
    if (tensor == NULL || is_tied_copy(from, tensor->name)) continue;
    bool is_cast = manifest->cast != CKPT_DTYPE_NONE && ckpt_dtype_holds_floats((ckpt_dtype)tensor->dtype);
    CKPT_TRY(add(manifest,
                 (ckpt_manifest_entry){.name = tensor->name,
                                       .shape = tensor->shape,
                                       .digest = hashing->digests[i],
                                       .dtype = is_cast ? (uint8_t)manifest->cast : tensor->dtype,
                                       .rank = tensor->rank},
                 err));
  }
  for (size_t i = 0; hashing->exclude != NULL && hashing->exclude[i] != NULL; i++)
    CKPT_TRY(add_exclude(manifest, hashing->exclude[i], err));
  for (uint32_t i = 0; i < from->n_unread; i++)
    if (ckpt_role_included(hashing->include, from->unread[i].role, NULL))
      CKPT_TRY(add_not_read(manifest, from->unread[i].name, err));
  if (manifest->n_not_read > 1) qsort(manifest->not_read, manifest->n_not_read, sizeof *manifest->not_read, by_text);
  return CKPT_OK;
}

ckpt_status ckpt_manifest_new(ckpt_manifest **out, const ckpt_hashing *hashing, ckpt_error *digest_error,
                              ckpt_error *err) {
  ckpt_manifest *manifest = NULL;
  CKPT_TRY(manifest_alloc(&manifest, err));
  ckpt_error defect = {0};
  ckpt_status status = ckpt_hashing_result(hashing, &manifest->digest, &defect);
  if (status == CKPT_EDIFFERENT && digest_error != NULL) {
    *digest_error = defect;
    status = CKPT_OK;
  } else if (status != CKPT_OK) {
    status = ckpt_fail_as(err, status, defect.file, defect.tensor, &defect);
  }
  if (status == CKPT_OK) status = fill(manifest, hashing, err);
  if (status == CKPT_OK)
    *out = manifest;
  else
    ckpt_manifest_free(manifest);
  return status;
}

ckpt_status ckpt_manifest_add_side_files(ckpt_manifest *manifest, const ckpt_index *from, const ckpt_run_options *run,
                                         ckpt_error *err) {
  if (manifest->cast != CKPT_DTYPE_NONE || from->n_side_files == 0) return CKPT_OK;
  CKPT_TRY(ckpt_side_sums_check_names(from, err));
  CKPT_TRY(ckpt_side_sums_take(&manifest->side_files, from, NULL, strcmp(manifest->include, "all") == 0, run, err));
  for (uint32_t i = 0; i < manifest->side_files.n; i++) {
    const char *name = ckpt_arena_copy(&manifest->arena, manifest->side_files.items[i].name);
    CKPT_TRY_ALLOC(name, err);
    manifest->side_files.items[i].name = name;
  }
  return ckpt_source_unchanged(from->source, err);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static void print_entry(const ckpt_manifest_entry *entry, ckpt_stream *out) {
  char digest[80];
  ckpt_stream_text(out, "    {\"name\": ");
  ckpt_stream_json(out, entry->name, strlen(entry->name));
  ckpt_stream_printf(out, ", \"dtype\": \"%s\", \"shape\": [", ckpt_dtype_name((ckpt_dtype)entry->dtype));
  for (uint32_t axis = 0; axis < entry->rank; axis++)
    ckpt_stream_printf(out, "%s%llu", axis == 0 ? "" : ", ", (ull)entry->shape[axis]);
  ckpt_stream_printf(out, "], \"digest\": \"%s\"}", ckpt_digest_text(&entry->digest, digest));
}

static void print_list(const char *key, const char *const *texts, uint32_t n, ckpt_stream *out) {
  if (n == 0) return;
  ckpt_stream_printf(out, ",\n  \"%s\": [", key);
  for (uint32_t i = 0; i < n; i++) {
    ckpt_stream_text(out, i == 0 ? "" : ", ");
    ckpt_stream_json(out, texts[i], strlen(texts[i]));
  }
  ckpt_stream_text(out, "]");
}

static void print(const ckpt_manifest *manifest, ckpt_stream *out) {
  char digest[80];
  ckpt_stream_printf(out, "{\n  \"ckpt_manifest\": %d,\n  \"digest\": \"%s\",\n  \"names\": ", CKPT_MANIFEST_VERSION,
                     ckpt_digest_text(&manifest->digest, digest));
  ckpt_stream_json(out, manifest->names, strlen(manifest->names));
  ckpt_stream_printf(out, ",\n  \"include\": \"%s\",\n  \"cast\": ", manifest->include);
  if (manifest->cast == CKPT_DTYPE_NONE)
    ckpt_stream_text(out, "null");
  else
    ckpt_stream_printf(out, "\"%s\"", ckpt_dtype_name(manifest->cast));
  print_list("exclude", manifest->exclude, manifest->n_exclude, out);
  print_list("not_read", manifest->not_read, manifest->n_not_read, out);
  if (manifest->side_files.n != 0) {
    ckpt_stream_text(out, ",\n  \"side_files\": ");
    ckpt_side_sums_print(&manifest->side_files, "\n    ", out);
  }
  ckpt_stream_text(out, ",\n  \"tensors\": [");
  for (size_t i = 0; i < manifest->n; i++) {
    ckpt_stream_text(out, i == 0 ? "\n" : ",\n");
    print_entry(&manifest->entries[i], out);
  }
  ckpt_stream_text(out, manifest->n == 0 ? "]\n}\n" : "\n  ]\n}\n");
}

ckpt_status ckpt_manifest_write(const ckpt_manifest *manifest, const char *path, bool force, ckpt_error *err) {
  ckpt_stream out;
  ckpt_stream_count(&out, err);
  print(manifest, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  const ckpt_sink_file file = {.n_bytes = out.n_bytes};
  ckpt_sink *sink;
  uint8_t *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_status status = ckpt_sink_path(&sink, path, false, force, err);
  if (status != CKPT_OK) {
    free(window);
    return status;
  }
  CKPT_TRY_GOTO(ckpt_sink_open(sink, &file, 1, err));
  ckpt_stream_sink(&out, sink, 0, 0, window, WINDOW_BYTES, err);
  print(manifest, &out);
  CKPT_TRY_GOTO(ckpt_stream_end(&out));
  status = ckpt_sink_commit(&sink, 1, err);
done:
  ckpt_sink_free(sink);
  free(window);
  return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_digest(ckpt_json *json, ckpt_digest *digest, ckpt_error *err) {
  const char *text;
  CKPT_TRY(ckpt_json_take_text(json, "a digest", false, &text, err));
  return ckpt_digest_parse(text, digest) ? CKPT_OK : ckpt_json_fail(json, err, "no digest: '%.80s'", text);
}

static ckpt_status read_dtype(ckpt_json *json, ckpt_dtype *dtype, ckpt_error *err) {
  const char *text;
  CKPT_TRY(ckpt_json_take_text(json, "a dtype", false, &text, err));
  *dtype = ckpt_dtype_parse(text);
  return *dtype != CKPT_DTYPE_NONE ? CKPT_OK : ckpt_json_fail(json, err, "unknown dtype '%.80s'", text);
}

static ckpt_status read_shape(ckpt_json *json, ckpt_manifest_entry *entry, uint64_t *shape, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "a shape", err));
  for (entry->rank = 0;; entry->rank++) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    if (token != CKPT_JSON_NUMBER || entry->rank == CKPT_MAX_RANK || !ckpt_json_u64(json, &shape[entry->rank]))
      return ckpt_json_fail(json, err, "a shape is at most %d whole numbers", CKPT_MAX_RANK);
  }
}

static ckpt_status read_entry(ckpt_manifest *manifest, ckpt_json *json, ckpt_error *err) {
  ckpt_manifest_entry entry = {0};
  char name[CKPT_JSON_FILE_MAX_TEXT + 1] = "";
  uint64_t shape[CKPT_MAX_RANK];
  bool has_digest = false, has_shape = false;
  ckpt_json_token token;
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL), *text;
    if (strcmp(key, "name") == 0) {
      CKPT_TRY(ckpt_json_take_text(json, "a name", false, &text, err));
      memcpy(name, text, strlen(text) + 1);
    } else if (strcmp(key, "dtype") == 0) {
      ckpt_dtype dtype;
      CKPT_TRY(read_dtype(json, &dtype, err));
      entry.dtype = (uint8_t)dtype;
    } else if (strcmp(key, "shape") == 0) {
      has_shape = true;
      CKPT_TRY(read_shape(json, &entry, shape, err));
    } else if (strcmp(key, "digest") == 0) {
      has_digest = true;
      CKPT_TRY(read_digest(json, &entry.digest, err));
    } else {
      CKPT_TRY(ckpt_json_skip(json, err));
    }
  }
  if (name[0] == '\0' || entry.dtype == CKPT_DTYPE_NONE || !has_shape || !has_digest)
    return ckpt_json_fail(json, err, "a tensor without name, dtype, shape or digest");
  if (manifest->n == MAX_TENSORS) return ckpt_json_fail(json, err, "more than %d tensors", MAX_TENSORS);
  entry.name = name;
  entry.shape = shape;
  return add(manifest, entry, err);
}

static ckpt_status read_entries(ckpt_manifest *manifest, ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "tensors", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    if (token != CKPT_JSON_OBJECT) return ckpt_json_fail(json, err, "a tensor is an object");
    CKPT_TRY(read_entry(manifest, json, err));
  }
  bool is_sorted = true; /* as ckpt_manifest_write leaves them; sorting takes memory of its own */
  for (size_t i = 1; i < manifest->n && is_sorted; i++)
    is_sorted = by_name(&manifest->entries[i - 1], &manifest->entries[i]) < 0;
  if (!is_sorted) qsort(manifest->entries, manifest->n, sizeof *manifest->entries, by_name);
  for (size_t i = 1; i < manifest->n && !is_sorted; i++)
    if (by_name(&manifest->entries[i - 1], &manifest->entries[i]) == 0)
      return ckpt_json_fail(json, err, "tensor '%.200s' stands there twice", manifest->entries[i].name);
  return CKPT_OK;
}

/* A list of texts, each of which `take` gets. */
static ckpt_status read_texts(ckpt_manifest *manifest, ckpt_json *json, const char *key,
                              ckpt_status (*take)(ckpt_manifest *manifest, const char *text, ckpt_error *err),
                              ckpt_error *err) {
  ckpt_json_token token;
  size_t n;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, key, err));
  for (uint32_t n_read = 0;; n_read++) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) return CKPT_OK;
    const char *text = token == CKPT_JSON_STRING ? ckpt_json_text(json, &n) : NULL;
    if (text == NULL || strlen(text) != n) return ckpt_json_fail(json, err, "%s is a list of names", key);
    if (n_read == MAX_TENSORS) return ckpt_json_fail(json, err, "more than %d tensors", MAX_TENSORS);
    CKPT_TRY(take(manifest, text, err));
  }
}

static ckpt_status read_key(ckpt_manifest *manifest, ckpt_json *json, const char *key, unsigned *seen,
                            ckpt_error *err) {
  static const char *const keys[] = {"ckpt_manifest", "digest",     "names",    "include", "cast",
                                     "tensors",       "side_files", "not_read", "exclude"};
  ckpt_json_token token;
  const char *text;
  unsigned number = 0;
  uint64_t version;
  bool known;
  while (number < N_KEYS && strcmp(keys[number], key) != 0) number++;
  if (number == N_KEYS) return ckpt_json_skip(json, err);
  if (*seen >> number & 1) return ckpt_json_fail(json, err, "%s is given twice", keys[number]);
  *seen |= 1u << number;
  switch (number) {
    case 0:
      CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "ckpt_manifest", err));
      if (!ckpt_json_u64(json, &version) || version != CKPT_MANIFEST_VERSION)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "a manifest of version %.20s, this program knows %d",
                         ckpt_json_text(json, NULL), CKPT_MANIFEST_VERSION);
      return CKPT_OK;
    case 1: return read_digest(json, &manifest->digest, err);
    case 2:
    case 3:
      CKPT_TRY(ckpt_json_take_text(json, keys[number], false, &text, err));
      if (number == 3 && (ckpt_role_included(text, CKPT_ROLE_PARAMETER, &known), !known))
        return ckpt_json_fail(json, err, "include '%.40s' is none of model, optimizer, all", text);
      text = ckpt_arena_copy(&manifest->arena, text);
      CKPT_TRY_ALLOC(text, err);
      *(number == 2 ? &manifest->names : &manifest->include) = text;
      return CKPT_OK;
    case 4:
      CKPT_TRY(ckpt_json_next(json, &token, err));
      if (token == CKPT_JSON_NULL) return CKPT_OK;
      if (token != CKPT_JSON_STRING) return ckpt_json_fail(json, err, "cast is a dtype or null");
      manifest->cast = ckpt_dtype_parse(ckpt_json_text(json, NULL));
      return manifest->cast != CKPT_DTYPE_NONE ? CKPT_OK : ckpt_json_fail(json, err, "cast is an unknown dtype");
    case 5: return read_entries(manifest, json, err);
    case 6: return ckpt_side_sums_read(&manifest->side_files, json, &manifest->arena, err);
    case 7: return read_texts(manifest, json, keys[number], add_not_read, err);
    default: return read_texts(manifest, json, keys[number], add_exclude, err);
  }
}

static ckpt_status parse(ckpt_manifest *manifest, ckpt_json *json, ckpt_error *err) {
  ckpt_json_token token;
  unsigned seen = 0;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a manifest", err));
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    CKPT_TRY(read_key(manifest, json, ckpt_json_text(json, NULL), &seen, err));
  }
  if ((seen & 0x3F) != 0x3F) /* side files are as they may */
    return ckpt_advise(ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "no manifest: %s is missing",
                                 seen & 1 ? "one of digest, names, include, cast, tensors" : "ckpt_manifest"),
                       err, "ckpt hash PATH -o FILE writes one");
  return ckpt_json_next(json, &token, err);
}

ckpt_status ckpt_manifest_read(ckpt_manifest **out, const char *path, ckpt_error *err) {
  ckpt_json_file file;
  ckpt_manifest *manifest = NULL;
  ckpt_json *json = NULL;
  CKPT_TRY(ckpt_json_file_open(&file, path, "the manifest", err));
  ckpt_status status;
  CKPT_TRY_GOTO(manifest_alloc(&manifest, err));
  CKPT_TRY_GOTO(ckpt_json_file_read(&json, &file, err));
  status = parse(manifest, json, err);
done:
  ckpt_json_free(json);
  ckpt_json_file_close(&file);
  if (status == CKPT_OK)
    *out = manifest;
  else
    ckpt_manifest_free(manifest);
  return ckpt_fail_at(status, err, path, NULL);
}
