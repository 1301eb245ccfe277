/* manifest.c - see manifest.h. Written through a sink by a generator that runs twice; read as a stream: neither needs
 * memory for the text. */
#include "libckpt/recipe/manifest.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/arch.h"
#include "libckpt/codec/json.h"
#include "libckpt/error.h"
#include "libckpt/out.h"
#include "libckpt/recipe/convert.h"

enum { MAX_TENSORS = 1000000, MAX_TEXT_BYTES = 8192, WINDOW_BYTES = 1 << 16 };

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
  free(manifest->entries);
  free(manifest);
}

/* Appends an entry, its name and shape copied. */
static ckpt_status add(ckpt_manifest *manifest, ckpt_manifest_entry entry, ckpt_error *err) {
  if (manifest->n == manifest->capacity) {
    size_t capacity = manifest->capacity < 64 ? 64 : manifest->capacity * 2;
    ckpt_manifest_entry *moved = reallocarray(manifest->entries, capacity, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    manifest->entries = moved;
    manifest->capacity = capacity;
  }
  uint64_t *shape = NULL;
  if (entry.rank != 0) {
    shape = ckpt_arena_array(&manifest->arena, entry.rank, sizeof *shape);
    CKPT_TRY_ALLOC(shape, err);
    memcpy(shape, entry.shape, entry.rank * sizeof *shape);
  }
  entry.shape = shape;
  entry.name = ckpt_arena_copy(&manifest->arena, entry.name);
  CKPT_TRY_ALLOC(entry.name, err);
  manifest->entries[manifest->n++] = entry;
  return CKPT_OK;
}

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

static ckpt_status fill(ckpt_manifest *manifest, const ckpt_plan *plan, const ckpt_index *from,
                        const ckpt_hash_options *options, ckpt_error *err) {
  manifest->names = ckpt_arena_copy(&manifest->arena, from->names);
  if (options->include != NULL) manifest->include = ckpt_arena_copy(&manifest->arena, options->include);
  if (manifest->names == NULL || manifest->include == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  manifest->cast = options->cast;
  for (uint32_t i = 0; i < plan->n_rows; i++) {
    const ckpt_row *row = &plan->rows[i];
    if (row->sink != CKPT_NO_SINK || is_tied_copy(from, row->name)) continue;
    CKPT_TRY(add(manifest,
                 (ckpt_manifest_entry){.name = row->name,
                                       .shape = row->expr->shape,
                                       .digest = row->digest,
                                       .dtype = row->expr->dtype,
                                       .rank = row->expr->rank},
                 err));
  }
  if (manifest->n != 0) qsort(manifest->entries, manifest->n, sizeof *manifest->entries, by_name);
  return CKPT_OK;
}

ckpt_status ckpt_manifest_new(ckpt_manifest **out, const ckpt_plan *plan, const ckpt_index *from,
                              const ckpt_hash_options *options, ckpt_error *digest_error, ckpt_error *err) {
  ckpt_manifest *manifest = NULL;
  CKPT_TRY(manifest_alloc(&manifest, err));
  ckpt_status status = fill(manifest, plan, from, options, err);
  if (status == CKPT_OK) {
    ckpt_error defect = {0};
    status = ckpt_hash_result(plan, from, &manifest->digest, NULL, &defect);
    if (status == CKPT_EDIFFERENT && digest_error != NULL) {
      *digest_error = defect;
      status = CKPT_OK;
    } else if (status != CKPT_OK) {
      status = ckpt_fail(err, status, defect.file, defect.tensor, "%s", defect.message);
    }
  }
  if (status == CKPT_OK)
    *out = manifest;
  else
    ckpt_manifest_free(manifest);
  return status;
}

/* ---- writing ------------------------------------------------------------------------------------------------------
 */

static void print_entry(const ckpt_manifest_entry *entry, ckpt_out *out) {
  char digest[80];
  ckpt_out_text(out, "    {\"name\": ");
  ckpt_out_json(out, entry->name, strlen(entry->name));
  ckpt_out_printf(out, ", \"dtype\": \"%s\", \"shape\": [", ckpt_dtype_name((ckpt_dtype)entry->dtype));
  for (uint32_t axis = 0; axis < entry->rank; axis++)
    ckpt_out_printf(out, "%s%llu", axis == 0 ? "" : ", ", (ull)entry->shape[axis]);
  ckpt_out_printf(out, "], \"digest\": \"%s\"}", ckpt_digest_text(&entry->digest, digest));
}

static void print(const ckpt_manifest *manifest, ckpt_out *out) {
  char digest[80];
  ckpt_out_printf(out, "{\n  \"ckpt_manifest\": %d,\n  \"digest\": \"%s\",\n  \"names\": ", CKPT_MANIFEST_VERSION,
                  ckpt_digest_text(&manifest->digest, digest));
  ckpt_out_json(out, manifest->names, strlen(manifest->names));
  ckpt_out_printf(out, ",\n  \"include\": \"%s\",\n  \"cast\": ", manifest->include);
  if (manifest->cast == CKPT_DTYPE_NONE)
    ckpt_out_text(out, "null");
  else
    ckpt_out_printf(out, "\"%s\"", ckpt_dtype_name(manifest->cast));
  ckpt_out_printf(out, ",\n  \"tensors\": [");
  for (size_t i = 0; i < manifest->n; i++) {
    ckpt_out_text(out, i == 0 ? "\n" : ",\n");
    print_entry(&manifest->entries[i], out);
  }
  ckpt_out_text(out, manifest->n == 0 ? "]\n}\n" : "\n  ]\n}\n");
}

ckpt_status ckpt_manifest_write(const ckpt_manifest *manifest, const char *path, bool force, ckpt_error *err) {
  ckpt_out out;
  ckpt_out_count(&out, err);
  print(manifest, &out);
  CKPT_TRY(ckpt_out_end(&out));
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
  ckpt_out_sink(&out, sink, 0, 0, window, WINDOW_BYTES, err);
  print(manifest, &out);
  CKPT_TRY_GOTO(ckpt_out_end(&out));
  status = ckpt_sink_commit(&sink, 1, err);
done:
  ckpt_sink_free(sink);
  free(window);
  return status;
}

/* ---- reading ------------------------------------------------------------------------------------------------------
 */

static ckpt_status fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  for (size_t done = 0; done < n_bytes;) {
    ssize_t n = pread(*(const int *)arg, (char *)dst + done, n_bytes - done, (off_t)(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ckpt_fail_errno(err, NULL, "cannot read");
    if (n == 0) return ckpt_fail(err, CKPT_EIO, NULL, NULL, "shrank while being read");
    done += (size_t)n;
  }
  return CKPT_OK;
}

/* The next token as text: fails with what is missing where it is none, or holds a NUL. */
static ckpt_status read_text(ckpt_json *json, const char *what, const char **text, ckpt_error *err) {
  size_t n;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_STRING, what, err));
  *text = ckpt_json_text(json, &n);
  return strlen(*text) == n ? CKPT_OK : ckpt_json_fail(json, err, "%s holds a NUL character", what);
}

static ckpt_status read_digest(ckpt_json *json, ckpt_digest *digest, ckpt_error *err) {
  const char *text;
  CKPT_TRY(read_text(json, "a digest", &text, err));
  return ckpt_digest_parse(text, digest) ? CKPT_OK : ckpt_json_fail(json, err, "no digest: '%.80s'", text);
}

static ckpt_status read_dtype(ckpt_json *json, ckpt_dtype *dtype, ckpt_error *err) {
  const char *text;
  CKPT_TRY(read_text(json, "a dtype", &text, err));
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
  char name[MAX_TEXT_BYTES + 1] = "";
  uint64_t shape[CKPT_MAX_RANK];
  bool has_digest = false, has_shape = false;
  ckpt_json_token token;
  for (;;) {
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL), *text;
    if (strcmp(key, "name") == 0) {
      CKPT_TRY(read_text(json, "a name", &text, err));
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
  if (manifest->n != 0) qsort(manifest->entries, manifest->n, sizeof *manifest->entries, by_name);
  for (size_t i = 1; i < manifest->n; i++)
    if (by_name(&manifest->entries[i - 1], &manifest->entries[i]) == 0)
      return ckpt_json_fail(json, err, "tensor '%.200s' stands there twice", manifest->entries[i].name);
  return CKPT_OK;
}

static ckpt_status read_key(ckpt_manifest *manifest, ckpt_json *json, const char *key, unsigned *seen,
                            ckpt_error *err) {
  static const char *const keys[] = {"ckpt_manifest", "digest", "names", "include", "cast", "tensors"};
  ckpt_json_token token;
  const char *text;
  unsigned number = 0;
  uint64_t version;
  bool known;
  while (number < 6 && strcmp(keys[number], key) != 0) number++;
  if (number == 6) return ckpt_json_skip(json, err);
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
      CKPT_TRY(read_text(json, keys[number], &text, err));
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
    default: return read_entries(manifest, json, err);
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
  if (seen != 0x3F)
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "no manifest: %s is missing (ckpt hash PATH -o FILE writes one)",
                     seen & 1 ? "one of digest, names, include, cast, tensors" : "ckpt_manifest");
  return ckpt_json_next(json, &token, err);
}

ckpt_status ckpt_manifest_read(ckpt_manifest **out, const char *path, ckpt_error *err) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat found;
  if (fd == -1) return ckpt_fail_errno(err, path, "cannot open the manifest");
  ckpt_manifest *manifest = NULL;
  ckpt_json *json = NULL;
  ckpt_status status;
  if (fstat(fd, &found) != 0) {
    status = ckpt_fail_errno(err, path, "cannot open the manifest");
    goto done;
  }
  if (!S_ISREG(found.st_mode)) {
    status = ckpt_fail(err, CKPT_EINVAL, path, NULL, "is no regular file");
    goto done;
  }
  const ckpt_json_options options = {
      .fetch = fetch, .arg = &fd, .n_bytes = (uint64_t)found.st_size, .max_text = MAX_TEXT_BYTES};
  CKPT_TRY_GOTO(manifest_alloc(&manifest, err));
  CKPT_TRY_GOTO(ckpt_json_new(&json, &options, err));
  status = parse(manifest, json, err);
done:
  ckpt_json_free(json);
  close(fd);
  if (status == CKPT_OK)
    *out = manifest;
  else
    ckpt_manifest_free(manifest);
  return ckpt_fail_at(status, err, path, NULL);
}
