/* sink_parts.c - see sink_parts.h. A part's files are a range of the folder's, with the part's name before theirs. */
#include "libckpt/io/sink_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

typedef struct shared_folder {
  ckpt_sink *sink; /* owned */
  ckpt_sink_file *files;
  uint32_t n_files, n_parts, n_opened, n_sealed, n_published, n_closed;
} shared_folder;

typedef struct sink_part {
  shared_folder *folder;
  char *name; /* below the folder; "" for the folder's own files */
  uint32_t first_file;
} sink_part;

/* "name/file", or the one that is not empty; NULL when memory is out. is_beside: name is a file, beside which this one
 * stands (sink_pair.h). */
static char *name_below(const char *name, const char *file, bool is_beside) {
  char *joined = NULL;
  const char *slash = strrchr(name, '/');
  const size_t n = !is_beside ? strlen(name) : slash == NULL ? 0 : (size_t)(slash - name);
  const bool both = n != 0 && file != NULL;
  if (asprintf(&joined, "%.*s%s%s", (int)n, name, both ? "/" : "", file != NULL ? file : "") < 0) return NULL;
  return joined;
}

/* Opens the folder, or joins it by a token, with the files of its last part. */
static ckpt_status open_or_join(sink_part *part, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                                ckpt_error *err) {
  shared_folder *folder = part->folder;
  ckpt_sink_file *grown = reallocarray(folder->files, (size_t)folder->n_files + n_files + 1, sizeof *grown);
  CKPT_TRY_ALLOC(grown, err);
  folder->files = grown;
  part->first_file = folder->n_files;
  for (uint32_t i = 0; i < n_files; i++) {
    char *name = name_below(part->name, files[i].name, i != 0 && files[0].name == NULL);
    CKPT_TRY_ALLOC(name, err);
    folder->files[folder->n_files++] = (ckpt_sink_file){name, files[i].n_bytes};
  }
  if (++folder->n_opened < folder->n_parts) return CKPT_OK;
  return token == NULL ? ckpt_sink_open(folder->sink, folder->files, folder->n_files, err)
                       : ckpt_sink_join(folder->sink, folder->files, folder->n_files, token, err);
}

static ckpt_status part_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  return open_or_join(ctx, files, n_files, NULL, err);
}

static ckpt_status part_share(void *ctx, char token[CKPT_TOKEN_BYTES], ckpt_error *err) {
  return ckpt_sink_share(((sink_part *)ctx)->folder->sink, token, err);
}

static ckpt_status part_join(void *ctx, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                             ckpt_error *err) {
  return open_or_join(ctx, files, n_files, token, err);
}

static ckpt_status part_write_at(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                 ckpt_error *err) {
  sink_part *part = ctx;
  return ckpt_sink_write(part->folder->sink, part->first_file + file, offset, src, n_bytes, err);
}

static ckpt_status part_read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  sink_part *part = ctx;
  return ckpt_sink_read(part->folder->sink, part->first_file + file, offset, dst, n_bytes, err);
}

static bool part_clone(void *ctx, uint32_t file, int from) {
  sink_part *part = ctx;
  return ckpt_sink_clone(part->folder->sink, part->first_file + file, from);
}

static ckpt_status part_seal(void *ctx, ckpt_error *err) {
  shared_folder *folder = ((sink_part *)ctx)->folder;
  return ++folder->n_sealed < folder->n_parts ? CKPT_OK : ckpt_sink_seal(folder->sink, err);
}

static ckpt_status part_publish(void *ctx, ckpt_error *err) {
  shared_folder *folder = ((sink_part *)ctx)->folder;
  return ++folder->n_published < folder->n_parts ? CKPT_OK : ckpt_sink_publish(folder->sink, err);
}

static const ckpt_leftovers *part_leftovers(void *ctx) { return ckpt_sink_leftovers(((sink_part *)ctx)->folder->sink); }

static const char *part_place(void *ctx) {
  const sink_part *part = ctx;
  return ckpt_sink_place(part->folder->sink);
}

static void part_abandon(void *ctx) { ckpt_sink_abandon(((sink_part *)ctx)->folder->sink); }

static void part_close(void *ctx) {
  sink_part *part = ctx;
  shared_folder *folder = part->folder;
  if (++folder->n_closed == folder->n_parts) {
    ckpt_sink_free(folder->sink);
    for (uint32_t i = 0; i < folder->n_files; i++) free((char *)(uintptr_t)folder->files[i].name);
    free(folder->files);
    free(folder);
  }
  free(part->name);
  free(part);
}

static const ckpt_sink_ops part_ops = {
    .open = part_open,
    .share = part_share,
    .join = part_join,
    .write_at = part_write_at,
    .read_at = part_read_at,
    .seal = part_seal,
    .publish = part_publish,
    .abandon = part_abandon,
    .close = part_close,
    .clone = part_clone,
    .leftovers = part_leftovers,
    .place = part_place,
};

/* On failure a folder without parts is freed. */
static ckpt_status add_part(ckpt_sink **out, shared_folder *folder, const char *name, ckpt_error *err) {
  sink_part *part = calloc(1, sizeof *part);
  char *copy = strdup(name);
  if (part == NULL || copy == NULL) {
    free(part), free(copy);
    if (folder->n_parts == 0) free(folder);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  for (size_t n = strlen(copy); n > 0 && copy[n - 1] == '/'; n--)
    copy[n - 1] = '\0'; /* "sub/" is a folder's name too */
  *part = (sink_part){.folder = folder, .name = copy};
  folder->n_parts++;
  return ckpt_sink_custom(out, &part_ops, part, err); /* closes part on failure */
}

ckpt_status ckpt_sink_below(ckpt_sink **out, ckpt_sink **folder, const char *name, ckpt_error *err) {
  *out = NULL;
  sink_part *first = ckpt_sink_ctx(*folder, &part_ops);
  if (first != NULL) return add_part(out, first->folder, name, err);
  shared_folder *shared = calloc(1, sizeof *shared);
  CKPT_TRY_ALLOC(shared, err);
  ckpt_sink *own;
  CKPT_TRY(add_part(&own, shared, "", err));
  shared->sink = *folder;
  *folder = own;
  return add_part(out, shared, name, err);
}
