/* sink_beside.c - see sink_beside.h. Two sinks of one file each, the second made when it is known that there is one. */
#include "sink_beside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "error.h"

typedef struct pair {
  ckpt_sink *sinks[2]; /* the file's; the one beside it, or NULL */
  char *path;
} pair;

static ckpt_status make_second(pair *p, const char *name, ckpt_error *err) {
  const char *slash = strrchr(p->path, '/');
  const int n_folder = slash == NULL ? 0 : (int)(slash + 1 - p->path);
  char *path = NULL;
  if (asprintf(&path, "%.*s%s", n_folder, p->path, name) < 0)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  ckpt_error own = {0};
  ckpt_status status = ckpt_sink_path(&p->sinks[1], path, false, false, &own);
  if (status == CKPT_EEXIST)
    (void)ckpt_fail(err, status, path, NULL,
                    "exists, and is never replaced: the old model would be found with new data (remove both)");
  else if (status != CKPT_OK && err != NULL && err->status == CKPT_OK)
    *err = own;
  free(path);
  return status;
}

static ckpt_status pair_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  pair *p = ctx;
  if (n_files == 0 || n_files > 2 || files[0].name != NULL || (n_files == 2 && files[1].name == NULL))
    return ckpt_fail(err, CKPT_EINTERNAL, p->path, NULL, "%u files for one and another", n_files);
  if (n_files == 2) {
    const ckpt_sink_file second = {NULL, files[1].n_bytes};
    CKPT_TRY(make_second(p, files[1].name, err));
    CKPT_TRY(ckpt_sink_open(p->sinks[1], &second, 1, err));
  }
  return ckpt_sink_open(p->sinks[0], files, 1, err);
}

static ckpt_status pair_share(void *ctx, char token[CKPT_TOKEN_BYTES], ckpt_error *err) {
  const pair *p = ctx;
  if (p->sinks[1] == NULL) return ckpt_sink_share(p->sinks[0], token, err);
  return ckpt_fail(err, CKPT_EUNSUPPORTED, p->path, NULL, "a model with data beside it is written by one rank");
}

static ckpt_status pair_join(void *ctx, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                             ckpt_error *err) {
  const pair *p = ctx;
  return ckpt_sink_join(p->sinks[0], files, n_files, token, err);
}

static ckpt_status pair_write_at(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                 ckpt_error *err) {
  const pair *p = ctx;
  return ckpt_sink_write(p->sinks[file], 0, offset, src, n_bytes, err);
}

static ckpt_status pair_read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const pair *p = ctx;
  return ckpt_sink_read(p->sinks[file], 0, offset, dst, n_bytes, err);
}

static bool pair_clone(void *ctx, uint32_t file, int from) {
  const pair *p = ctx;
  return ckpt_sink_clone(p->sinks[file], 0, from);
}

static ckpt_status pair_seal(void *ctx, ckpt_error *err) {
  const pair *p = ctx;
  if (p->sinks[1] != NULL) CKPT_TRY(ckpt_sink_seal(p->sinks[1], err));
  return ckpt_sink_seal(p->sinks[0], err);
}

/* The first file failed, the second is in its place: it goes again, having replaced nothing, unless the first is there
 * too, which is said. */
static void take_back(const pair *p, ckpt_error *err) {
  const char *place = ckpt_sink_place(p->sinks[1]);
  if (ckpt_sink_place(p->sinks[0]) == NULL) {
    (void)unlink(place);
  } else if (err != NULL) {
    const ckpt_error own = *err;
    *err = (ckpt_error){0};
    (void)ckpt_fail(err, own.status, own.file, own.tensor, "%s (in place already: %s)", own.message, place);
  }
}

static ckpt_status pair_publish(void *ctx, ckpt_error *err) {
  const pair *p = ctx;
  if (p->sinks[1] != NULL) CKPT_TRY(ckpt_sink_publish(p->sinks[1], err));
  ckpt_status status = ckpt_sink_publish(p->sinks[0], err);
  if (status != CKPT_OK && p->sinks[1] != NULL) take_back(p, err);
  return status;
}

static void pair_abandon(void *ctx) {
  const pair *p = ctx;
  ckpt_sink_abandon(p->sinks[0]);
  if (p->sinks[1] != NULL) ckpt_sink_abandon(p->sinks[1]);
}

static void pair_close(void *ctx) {
  pair *p = ctx;
  ckpt_sink_free(p->sinks[0]);
  ckpt_sink_free(p->sinks[1]);
  free(p->path);
  free(p);
}

static const ckpt_leftovers *pair_leftovers(void *ctx) { return ckpt_sink_leftovers(((pair *)ctx)->sinks[0]); }

static const char *pair_place(void *ctx) { return ckpt_sink_place(((pair *)ctx)->sinks[0]); }

static const ckpt_sink_ops pair_ops = {
    .open = pair_open,
    .share = pair_share,
    .join = pair_join,
    .write_at = pair_write_at,
    .read_at = pair_read_at,
    .clone = pair_clone,
    .seal = pair_seal,
    .publish = pair_publish,
    .abandon = pair_abandon,
    .close = pair_close,
    .leftovers = pair_leftovers,
    .place = pair_place,
};

ckpt_status ckpt_sink_beside(ckpt_sink **out, const char *path, bool force, ckpt_error *err) {
  *out = NULL;
  ckpt_sink *first;
  CKPT_TRY(ckpt_sink_path(&first, path, false, force, err));
  pair *p = calloc(1, sizeof *p);
  char *copy = strdup(path);
  if (p == NULL || copy == NULL) {
    free(p), free(copy);
    ckpt_sink_free(first);
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  *p = (pair){.sinks = {first}, .path = copy};
  return ckpt_sink_custom(out, &pair_ops, p, err);
}
