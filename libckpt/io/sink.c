/* sink.c - the life of a sink above its ops, the sink into memory, and the commit of several.
 *
 * The order of calls and the bounds of known sizes are checked here once, for every kind of sink: a violation is our
 * own bug (CKPT_EINTERNAL), never the user's. */
#include "libckpt/io/sink.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"

typedef enum sink_state { SINK_NEW, SINK_OPEN, SINK_SEALED, SINK_PUBLISHED, SINK_ABANDONED } sink_state;

struct ckpt_sink {
  const ckpt_sink_ops *ops;
  void *ctx;
  sink_state state;
  bool is_joined;  /* another rank's sink opened it, and publishes or removes it */
  uint64_t *sizes; /* as given to open */
  uint32_t n_files;
  _Atomic uint64_t n_bytes_written;
};

ckpt_status ckpt_sink_custom(ckpt_sink **out, const ckpt_sink_ops *ops, void *ctx, ckpt_error *err) {
  ckpt_sink *sink = *out = calloc(1, sizeof *sink);
  if (sink == NULL) {
    ops->close(ctx);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  sink->ops = ops;
  sink->ctx = ctx;
  return CKPT_OK;
}

void *ckpt_sink_ctx(const ckpt_sink *sink, const ckpt_sink_ops *ops) { return sink->ops == ops ? sink->ctx : NULL; }

static ckpt_status expect(const ckpt_sink *sink, bool is_fine, const char *verb, ckpt_error *err) {
  if (is_fine) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "a sink in state %d cannot %s", (int)sink->state, verb);
}

static ckpt_status start(ckpt_sink *sink, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  CKPT_TRY(expect(sink, sink->state == SINK_NEW, "open", err));
  sink->sizes = calloc(n_files == 0 ? 1 : n_files, sizeof *sink->sizes);
  CKPT_TRY_ALLOC(sink->sizes, err);
  for (uint32_t i = 0; i < n_files; i++) sink->sizes[i] = files[i].n_bytes;
  sink->n_files = n_files;
  sink->state = SINK_OPEN;
  return CKPT_OK;
}

ckpt_status ckpt_sink_open(ckpt_sink *sink, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  CKPT_TRY(start(sink, files, n_files, err));
  ckpt_status status = sink->ops->open(sink->ctx, files, n_files, err);
  if (status != CKPT_OK) ckpt_sink_abandon(sink);
  return status;
}

ckpt_status ckpt_sink_share(ckpt_sink *sink, char token[CKPT_TOKEN_BYTES], ckpt_error *err) {
  CKPT_TRY(expect(sink, sink->state == SINK_OPEN, "be shared", err));
  if (sink->ops->share == NULL || sink->ops->join == NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "this output cannot be written by several ranks");
  return sink->ops->share(sink->ctx, token, err);
}

ckpt_status ckpt_sink_join(ckpt_sink *sink, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                           ckpt_error *err) {
  CKPT_TRY(start(sink, files, n_files, err));
  sink->is_joined = true;
  return sink->ops->join(sink->ctx, files, n_files, token, err);
}

/* Whether [offset, offset + n_bytes) may be touched in a file. */
static ckpt_status check_range(const ckpt_sink *sink, uint32_t file, uint64_t offset, size_t n_bytes, ckpt_error *err) {
  uint64_t limit = INT64_MAX;
  if (file < sink->n_files && sink->sizes[file] != CKPT_SIZE_UNKNOWN) limit = sink->sizes[file];
  if (file < sink->n_files && ckpt_range_within(offset, n_bytes, limit)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL,
                   "%zu bytes at offset %" PRIu64 " of output file %" PRIu32 " of %" PRIu32 ", which has %" PRIu64,
                   n_bytes, offset, file, sink->n_files, limit);
}

ckpt_status ckpt_sink_write(ckpt_sink *sink, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                            ckpt_error *err) {
  CKPT_TRY(expect(sink, sink->state == SINK_OPEN, "write", err));
  CKPT_TRY(check_range(sink, file, offset, n_bytes, err));
  CKPT_TRY(sink->ops->write_at(sink->ctx, file, offset, src, n_bytes, err));
  atomic_fetch_add_explicit(&sink->n_bytes_written, n_bytes, memory_order_relaxed);
  return CKPT_OK;
}

ckpt_status ckpt_sink_read(ckpt_sink *sink, uint32_t file, uint64_t offset, void *dst, size_t n_bytes,
                           ckpt_error *err) {
  CKPT_TRY(expect(sink, sink->state == SINK_OPEN || sink->state == SINK_SEALED, "read", err));
  CKPT_TRY(check_range(sink, file, offset, n_bytes, err));
  return sink->ops->read_at(sink->ctx, file, offset, dst, n_bytes, err);
}

bool ckpt_sink_clone(ckpt_sink *sink, uint32_t file, int from) {
  return sink->state == SINK_OPEN && sink->ops->clone != NULL && sink->ops->clone(sink->ctx, file, from);
}

ckpt_status ckpt_sink_seal(ckpt_sink *sink, ckpt_error *err) {
  if (sink->state == SINK_SEALED) return CKPT_OK;
  CKPT_TRY(expect(sink, sink->state == SINK_OPEN, "seal", err));
  CKPT_TRY(sink->ops->seal(sink->ctx, err));
  sink->state = SINK_SEALED;
  return CKPT_OK;
}

ckpt_status ckpt_sink_publish(ckpt_sink *sink, ckpt_error *err) {
  CKPT_TRY(expect(sink, sink->state == SINK_SEALED, "publish", err));
  if (!sink->is_joined) CKPT_TRY(sink->ops->publish(sink->ctx, err));
  sink->state = SINK_PUBLISHED;
  return CKPT_OK;
}

void ckpt_sink_abandon(ckpt_sink *sink) {
  if (sink->state != SINK_OPEN && sink->state != SINK_SEALED) return;
  if (!sink->is_joined) sink->ops->abandon(sink->ctx);
  sink->state = SINK_ABANDONED;
}

void ckpt_sink_free(ckpt_sink *sink) {
  if (sink == NULL) return;
  ckpt_sink_abandon(sink);
  sink->ops->close(sink->ctx);
  free(sink->sizes);
  free(sink);
}

const char *ckpt_sink_place(const ckpt_sink *sink) {
  return sink->ops->place == NULL ? NULL : sink->ops->place(sink->ctx);
}

/* Completes a failure's message by what is in its place all the same. */
static void name_published(ckpt_sink *const *sinks, uint32_t n, ckpt_error *err) {
  const char *before = NULL;
  char list[300] = "";
  size_t n_list = 0;
  for (uint32_t i = 0; i < n && err != NULL; i++) {
    const char *place = ckpt_sink_place(sinks[i]);
    if (place == NULL || place == before || strcmp(place, err->file) == 0) continue; /* parts of one folder; said */
    int n_text = snprintf(list + n_list, sizeof list - n_list, "%s%s", before == NULL ? "" : ", ", place);
    n_list += n_text > 0 && (size_t)n_text < sizeof list - n_list ? (size_t)n_text : 0;
    list[n_list] = '\0';
    before = place;
  }
  if (before == NULL) return;
  const ckpt_error own = *err;
  *err = (ckpt_error){0};
  (void)ckpt_fail(err, own.status, own.file, own.tensor, "%s (in place already: %s)", own.message, list);
}

ckpt_status ckpt_sink_commit(ckpt_sink *const *sinks, uint32_t n, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++) status = ckpt_sink_seal(sinks[i], err);
  for (uint32_t i = 0; i < n && status == CKPT_OK; i++) status = ckpt_sink_publish(sinks[i], err);
  if (status == CKPT_OK) return CKPT_OK;
  name_published(sinks, n, err);
  for (uint32_t i = 0; i < n; i++) ckpt_sink_abandon(sinks[i]);
  return status;
}

const ckpt_leftovers *ckpt_sink_leftovers(const ckpt_sink *sink) {
  const ckpt_leftovers *found = sink->ops->leftovers == NULL ? NULL : sink->ops->leftovers(sink->ctx);
  return found == NULL || (found->n_removed == 0 && found->kept_old[0] == '\0') ? NULL : found;
}

uint64_t ckpt_sink_bytes_written(const ckpt_sink *sink) { return sink->n_bytes_written; }

/* ---- memory ---------------------------------------------------------------------------------------------------- */

typedef struct memory_file {
  uint8_t *bytes;
  uint64_t n_bytes, capacity; /* bytes behind n_bytes are zero */
} memory_file;

typedef struct memory_sink {
  pthread_mutex_t mutex; /* a growing file moves under its writers */
  memory_file *files;
  uint32_t n_files;
} memory_sink;

/* Makes a file at least n_bytes long, zero-filled. */
static ckpt_status grow(memory_file *file, uint64_t n_bytes, ckpt_error *err) {
  if (n_bytes > file->capacity) {
    uint64_t capacity = file->capacity > n_bytes / 2 ? file->capacity * 2 : n_bytes;
    if (capacity > PTRDIFF_MAX) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    uint8_t *bytes = realloc(file->bytes, (size_t)capacity);
    CKPT_TRY_ALLOC(bytes, err);
    memset(bytes + file->capacity, 0, (size_t)(capacity - file->capacity));
    file->bytes = bytes;
    file->capacity = capacity;
  }
  if (n_bytes > file->n_bytes) file->n_bytes = n_bytes;
  return CKPT_OK;
}

static ckpt_status memory_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  memory_sink *sink = ctx;
  sink->files = calloc(n_files == 0 ? 1 : n_files, sizeof *sink->files);
  CKPT_TRY_ALLOC(sink->files, err);
  sink->n_files = n_files;
  for (uint32_t i = 0; i < n_files; i++)
    if (files[i].n_bytes != CKPT_SIZE_UNKNOWN) CKPT_TRY(grow(&sink->files[i], files[i].n_bytes, err));
  return CKPT_OK;
}

static ckpt_status memory_write_at(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                   ckpt_error *err) {
  memory_sink *sink = ctx;
  if (n_bytes == 0) return CKPT_OK;
  pthread_mutex_lock(&sink->mutex);
  ckpt_status status = grow(&sink->files[file], offset + n_bytes, err);
  if (status == CKPT_OK) memcpy(sink->files[file].bytes + offset, src, n_bytes);
  pthread_mutex_unlock(&sink->mutex);
  return status;
}

static ckpt_status memory_read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes,
                                  ckpt_error *err) {
  memory_sink *sink = ctx;
  pthread_mutex_lock(&sink->mutex);
  const memory_file *f = &sink->files[file];
  bool is_there = ckpt_range_within(offset, n_bytes, f->n_bytes);
  if (is_there && n_bytes > 0) memcpy(dst, f->bytes + offset, n_bytes);
  pthread_mutex_unlock(&sink->mutex);
  if (is_there) return CKPT_OK;
  return ckpt_fail(err, CKPT_EIO, NULL, NULL, "ends early: %zu byte%s wanted at offset %" PRIu64, n_bytes,
                   ckpt_plural(n_bytes), offset);
}

static ckpt_status memory_done(void *ctx, ckpt_error *err) {
  (void)ctx, (void)err;
  return CKPT_OK;
}

static void memory_abandon(void *ctx) {
  memory_sink *sink = ctx;
  for (uint32_t i = 0; i < sink->n_files; i++) free(sink->files[i].bytes);
  free(sink->files);
  sink->files = NULL;
  sink->n_files = 0;
}

static void memory_close(void *ctx) {
  memory_abandon(ctx);
  pthread_mutex_destroy(&((memory_sink *)ctx)->mutex);
  free(ctx);
}

static const ckpt_sink_ops memory_ops = {
    .open = memory_open,
    .write_at = memory_write_at,
    .read_at = memory_read_at,
    .seal = memory_done,
    .publish = memory_done,
    .abandon = memory_abandon,
    .close = memory_close,
};

ckpt_status ckpt_sink_memory(ckpt_sink **out, ckpt_error *err) {
  *out = NULL;
  memory_sink *sink = calloc(1, sizeof *sink);
  CKPT_TRY_ALLOC(sink, err);
  pthread_mutex_init(&sink->mutex, NULL);
  return ckpt_sink_custom(out, &memory_ops, sink, err);
}

const void *ckpt_sink_bytes(const ckpt_sink *sink, uint32_t file, uint64_t *n_bytes) {
  *n_bytes = 0;
  if (sink->ops != &memory_ops || file >= ((memory_sink *)sink->ctx)->n_files) return NULL;
  const memory_file *f = &((memory_sink *)sink->ctx)->files[file];
  *n_bytes = f->n_bytes;
  return f->bytes == NULL ? (const void *)"" : f->bytes;
}
