/* sink_pair.c - see sink_pair.h. Two sinks of one file each, the second made when it is known that there is one. */
#include "libckpt/io/sink_pair.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/io/source.h"
#include "libckpt/io/temporary.h"

typedef struct pair {
  ckpt_sink *sinks[2]; /* the file's; the one beside it, or NULL */
  char *path, *second; /* where they go */
  bool force;
  ckpt_leftovers found;
} pair;

static ckpt_status make_second(pair *p, const char *name, ckpt_error *err) {
  const int n_folder = (int)(ckpt_path_name(p->path) - p->path);
  if (asprintf(&p->second, "%.*s%s", n_folder, p->path, name) < 0) {
    p->second = NULL;
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  }
  return ckpt_sink_path(&p->sinks[1], p->second, false, p->force, err);
}

static const char *name_of(const pair *p, int i) { return ckpt_path_name(i == 0 ? p->path : p->second); }

/* The other's name; where this output has none, that of a former one's data, as temporary.c says where they are. */
static const char *name_beside(const pair *p, char made[PATH_MAX]) {
  if (p->second != NULL) return name_of(p, 1);
  snprintf(made, PATH_MAX, "%s.data", name_of(p, 0));
  return made;
}

static ckpt_status open_folder(const pair *p, int *out, ckpt_error *err) {
  const int n_folder = (int)(ckpt_path_name(p->path) - p->path);
  char *folder = NULL;
  if (asprintf(&folder, "%.*s", n_folder, p->path) < 0) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  *out = open(n_folder == 0 ? "." : folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  free(folder);
  return *out >= 0 ? CKPT_OK : ckpt_fail_errno(err, p->path, "the folder above cannot be used");
}

/* The file's come first. */
static void add_found(ckpt_leftovers *found, const ckpt_leftovers *more) {
  if (more == NULL) return;
  if (found->n_removed == 0) memcpy(found->first, more->first, sizeof found->first);
  found->n_removed += more->n_removed;
  found->n_bytes += more->n_bytes;
  memcpy(found->kept_old[0] == '\0' ? found->kept_old : found->kept_beside, more->kept_old, sizeof found->kept_old);
}

/* Removes what runs with data left of theirs, where this one has none. */
static void clean_beside(pair *p) {
  char made[PATH_MAX];
  ckpt_leftovers found = {0};
  int folder;
  if (open_folder(p, &folder, NULL) != CKPT_OK) return;
  ckpt_temporary_clean(folder, name_beside(p, made), NULL, &found);
  close(folder);
  add_found(&p->found, &found);
}

/* Opens both. While there is no file at its own name, old data are those of an old one that is put aside. */
static ckpt_status open_both(pair *p, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  struct stat st;
  if (n_files == 2) {
    const ckpt_sink_file second = {NULL, files[1].n_bytes};
    CKPT_TRY(make_second(p, files[1].name, err));
    if (lstat(p->path, &st) != 0) ckpt_sink_keep_old(p->sinks[1]);
    CKPT_TRY(ckpt_sink_open(p->sinks[1], &second, 1, err));
  }
  return ckpt_sink_open(p->sinks[0], files, 1, err);
}

static ckpt_status pair_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  pair *p = ctx;
  if (n_files == 0 || n_files > 2 || files[0].name != NULL || (n_files == 2 && files[1].name == NULL))
    return ckpt_fail(err, CKPT_EINTERNAL, p->path, NULL, "%u files for one and another", n_files);
  ckpt_status status = open_both(p, files, n_files, err);
  add_found(&p->found, ckpt_sink_leftovers(p->sinks[0]));
  if (p->sinks[1] != NULL)
    add_found(&p->found, ckpt_sink_leftovers(p->sinks[1]));
  else if (status == CKPT_OK)
    clean_beside(p);
  return status;
}

/* Rank 0 writes both files (layout_file's rank), so that the others need to know of one only. */
static ckpt_status pair_share(void *ctx, char token[CKPT_TOKEN_BYTES], ckpt_error *err) {
  return ckpt_sink_share(((const pair *)ctx)->sinks[0], token, err);
}

static ckpt_status pair_join(void *ctx, const ckpt_sink_file *files, uint32_t n_files, const char *token,
                             ckpt_error *err) {
  return ckpt_sink_join(((const pair *)ctx)->sinks[0], files, n_files == 0 ? 0 : 1, token, err);
}

static ckpt_status pair_write_at(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                 ckpt_error *err) {
  const pair *p = ctx;
  if (p->sinks[file] != NULL) return ckpt_sink_write(p->sinks[file], 0, offset, src, n_bytes, err);
  return ckpt_fail(err, CKPT_EINTERNAL, p->path, NULL, "another rank than 0 writes the file beside it");
}

static ckpt_status pair_read_at(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  const pair *p = ctx;
  if (p->sinks[file] != NULL) return ckpt_sink_read(p->sinks[file], 0, offset, dst, n_bytes, err);
  return ckpt_fail(err, CKPT_EINTERNAL, p->path, NULL, "another rank than 0 reads the file beside it");
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

/* ---- publishing -------------------------------------------------------------------------------------------------- */

/* The old ones, out of the way. */
typedef struct aside {
  int folder;
  char names[2][NAME_MAX + 1]; /* that they have now; "": there is none */
} aside;

static ckpt_status put_aside(aside *old, const pair *p, int i, ckpt_error *err) {
  char name[NAME_MAX + 1];
  CKPT_TRY(ckpt_temporary_name(name, name_of(p, i), CKPT_TEMPORARY_OLD, err));
  if (renameat(old->folder, name_of(p, i), old->folder, name) == 0)
    memcpy(old->names[i], name, sizeof name);
  else if (errno != ENOENT)
    return ckpt_fail_errno(err, i == 0 ? p->path : p->second, "cannot be replaced");
  return ckpt_sync_folder(old->folder, p->path, err);
}

/* In the order that leads back: the file's own name is the last to be there. */
static void put_back(const aside *old, const pair *p) {
  for (int i = 1; i >= 0; i--)
    if (old->names[i][0] != '\0') (void)renameat(old->folder, old->names[i], old->folder, name_of(p, i));
}

static void remove_old(const aside *old) {
  for (int i = 0; i < 2; i++)
    if (old->names[i][0] != '\0') (void)unlinkat(old->folder, old->names[i], 0);
}

/* Both, the one beside first. A failure takes that away again, unless the file is there too, which is said. */
static ckpt_status publish_both(const pair *p, ckpt_error *err) {
  CKPT_TRY(ckpt_sink_publish(p->sinks[1], err));
  ckpt_status status = ckpt_sink_publish(p->sinks[0], err);
  if (status == CKPT_OK) return status;
  if (ckpt_sink_place(p->sinks[0]) == NULL) {
    (void)unlink(ckpt_sink_place(p->sinks[1]));
  } else if (err != NULL) {
    const ckpt_error own = *err;
    *err = (ckpt_error){0};
    (void)ckpt_fail(err, own.status, own.file, own.tensor, "%s (in place already: %s)", own.message,
                    ckpt_sink_place(p->sinks[1]));
  }
  return status;
}

/* Puts both old ones aside, the file first. Where an interrupted run did so, what stands at the second's name since is
 * part of no pair, and goes when the new one comes. */
static ckpt_status put_both_aside(aside *old, const pair *p, ckpt_error *err) {
  CKPT_TRY(put_aside(old, p, 0, err));
  if (old->names[0][0] == '\0' && ckpt_temporary_has_old(old->folder, name_of(p, 1))) return CKPT_OK;
  return put_aside(old, p, 1, err);
}

/* Where something stands at the second's name, that may be what the old file needs. */
static ckpt_status replace_both(const pair *p, int folder, ckpt_error *err) {
  aside old = {.folder = folder};
  ckpt_status status = put_both_aside(&old, p, err);
  if (status == CKPT_OK) status = publish_both(p, err);
  if (status != CKPT_OK && ckpt_sink_place(p->sinks[0]) == NULL)
    put_back(&old, p);
  else
    remove_old(&old);
  return status;
}

/* What interrupted runs had put aside has no use any more. */
static void clean_old(pair *p, int folder) {
  char made[PATH_MAX];
  p->found.kept_old[0] = p->found.kept_beside[0] = '\0';
  ckpt_temporary_clean(folder, name_of(p, 0), name_of(p, 0), &p->found);
  ckpt_temporary_clean(folder, name_beside(p, made), name_of(p, 0), &p->found);
}

/* Alone in the folder: of two runs at once, one has both its files there before the other moves any. */
static ckpt_status publish_alone(const pair *p, int folder, ckpt_error *err) {
  struct stat st;
  int alone = ckpt_temporary_alone(folder);
  ckpt_status status = p->force && lstat(p->second, &st) == 0 ? replace_both(p, folder, err) : publish_both(p, err);
  if (alone >= 0) close(alone);
  return status;
}

static ckpt_status pair_publish(void *ctx, ckpt_error *err) {
  pair *p = ctx;
  int folder = -1;
  if (!p->force && p->sinks[1] == NULL) return ckpt_sink_publish(p->sinks[0], err);
  CKPT_TRY(open_folder(p, &folder, err));
  ckpt_status status = p->sinks[1] == NULL ? ckpt_sink_publish(p->sinks[0], err) : publish_alone(p, folder, err);
  if (status == CKPT_OK && p->force) clean_old(p, folder);
  close(folder);
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
  free(p->path), free(p->second);
  free(p);
}

static const ckpt_leftovers *pair_leftovers(void *ctx) { return &((const pair *)ctx)->found; }

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

ckpt_status ckpt_sink_pair(ckpt_sink **out, const char *path, bool force, ckpt_error *err) {
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
  *p = (pair){.sinks = {first}, .path = copy, .force = force};
  return ckpt_sink_custom(out, &pair_ops, p, err);
}
