/* open.c - from a path to an index: what it is decides its content, never its suffix alone.
 *
 * A file is asked of each format by its first bytes, a folder by its entries. A folder that is no checkpoint itself is
 * searched one level down; exactly one subfolder may be one. A name `org/name[@revision]` that is no local path is
 * looked up in the Hugging Face cache by cache.c. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/float_env.h"
#include "libckpt/base/options.h"
#include "libckpt/base/text.h"
#include "libckpt/format/cache.h"
#include "libckpt/format/format.h"
#include "libckpt/format/recognize.h"
#include "libckpt/index/masters.h"
#include "libckpt/io/records.h"
#include "libckpt/io/temporary.h"

enum { HEAD_BYTES = 4096, MAX_BELOW = 1000000 };

static const ckpt_format *ask_formats(const ckpt_probe *probe) {
  for (const ckpt_format *const *format = ckpt_formats; *format != NULL; format++)
    if ((*format)->probe(probe)) return *format;
  return NULL;
}

/* Notes what a run that was writing this folder left in it, or still has there: not all of its files may be in their
 * places. What another output's run has there is no matter of this one's, and what it left is no problem of it. */
static ckpt_status note_stages(ckpt_index *index, const ckpt_probe *probe, ckpt_error *err) {
  for (size_t i = 0; i < probe->n_entries; i++) {
    const char *name = probe->entries[i].name;
    if (!probe->entries[i].is_folder || !ckpt_temporary_is_stage(name)) continue;
    bool is_held = ckpt_temporary_is_held(probe->path, name), is_own = ckpt_temporary_is_of(probe->path, name);
    if (is_held && is_own)
      CKPT_TRY(ckpt_index_note(index, true, err, "is being written: '%s' holds files that are not in their places yet",
                               name));
    else if (is_own)
      CKPT_TRY(ckpt_index_note_advise(
          ckpt_index_note(index, true, err,
                          "'%s' was left by an interrupted run: files of this checkpoint may still be in it", name),
          index, "write it anew with %force, or remove that"));
    else if (!is_held)
      CKPT_TRY(ckpt_index_note(index, false, err,
                               "'%s' was left by an interrupted run that wrote under another name (remove it)", name));
  }
  return CKPT_OK;
}

/* A folder that cannot be read, for files of it may still be where a run left them or has them: that is said too. */
static void add_stage(const ckpt_probe *probe, ckpt_error *err) {
  size_t n = err == NULL ? 0 : strlen(err->message);
  for (size_t i = 0; i < probe->n_entries && err != NULL; i++) {
    const char *name = probe->entries[i].name;
    if (!probe->entries[i].is_folder || !ckpt_temporary_is_stage(name) || !ckpt_temporary_is_of(probe->path, name))
      continue;
    snprintf(err->message + n, sizeof err->message - n,
             "; other files of it are in '%s', of a run that was interrupted or is still writing", name);
    return;
  }
}

/* Reads as the format says, then what is the same for every format. Owns source from the call on, also when it fails.
 */
static ckpt_status open_as(const ckpt_format *format, ckpt_index **out, const ckpt_probe *probe, ckpt_source *source,
                           const char *name, const ckpt_open_options *options, ckpt_error *err) {
  ckpt_index *index;
  ckpt_error why = {.status = CKPT_OK};
  CKPT_TRY(ckpt_index_new(&index, source, probe->path, format->name, options, err));
  ckpt_status status = format->read(index, probe, name, options, &why);
  if (status == CKPT_EFORMAT || status == CKPT_ENOTFOUND) add_stage(probe, &why);
  if (status == CKPT_OK) status = ckpt_index_choose_weights(index, options->weights, &why);
  if (status == CKPT_OK && probe->is_folder) status = note_stages(index, probe, &why);
  if (status == CKPT_OK) {
    *out = index;
    return CKPT_OK;
  }
  if (status == CKPT_ENOMEM)
    status = ckpt_index_no_memory(index, err);
  else if (err != NULL)
    *err = why;
  ckpt_index_free(index);
  return status;
}

/* Splits path into its folder and the name in it; both are the caller's to free. */
static ckpt_status split_path(const char *path, char **folder, char **name, ckpt_error *err) {
  const char *slash = strrchr(path, '/');
  *name = strdup(ckpt_path_name(path));
  *folder = slash == NULL ? strdup(".") : slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
  if (*name != NULL && *folder != NULL) return CKPT_OK;
  free(*name), free(*folder);
  *name = *folder = NULL;
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

/* A file that cannot be read for itself, because it is a part of what its folder holds. */
static ckpt_status refuse_part(const char *path, ckpt_status status, ckpt_error *err) {
  const ckpt_format *format = ckpt_format_of_part(path);
  const size_t n = (size_t)(ckpt_path_name(path) - path);
  if (format == NULL || (status != CKPT_EFORMAT && status != CKPT_EUNSUPPORTED)) return status;
  if (err != NULL) *err = (ckpt_error){.status = CKPT_OK};
  return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a part of a %s checkpoint (name its folder: %.*s)",
                   format->name, n > 1 ? (int)n - 1 : 1, n == 0 ? "." : path);
}

static void allow_corrupt(ckpt_source *source, const ckpt_open_options *options) {
  if (options->allow_corrupt) ckpt_source_allow_corrupt(source, options->corrupt, options->corrupt_arg);
}

static ckpt_status open_source(ckpt_source **out, const char *path, const ckpt_open_options *options, ckpt_error *err) {
  CKPT_TRY(ckpt_source_open(out, path, err));
  allow_corrupt(*out, options);
  return CKPT_OK;
}

static ckpt_status open_file(ckpt_index **out, const char *path, const ckpt_open_options *options, ckpt_error *err) {
  char *folder = NULL, *name = NULL;
  uint8_t head[HEAD_BYTES];
  ckpt_source *source = NULL;
  ckpt_probe probe = {.path = path, .head = head};
  uint32_t file;
  CKPT_TRY(split_path(path, &folder, &name, err));
  ckpt_status status;
  CKPT_TRY_GOTO(open_source(&source, path, options, err));
  CKPT_TRY_GOTO(ckpt_source_add(source, name, &file, &probe.n_bytes, err));
  probe.n_head = probe.n_bytes < HEAD_BYTES ? (size_t)probe.n_bytes : HEAD_BYTES;
  CKPT_TRY_GOTO(ckpt_source_read(source, file, 0, head, probe.n_head, err));
  const ckpt_format *format = ask_formats(&probe);
  if (format == NULL) {
    status = ckpt_refuse_file(&probe, err);
    goto done;
  }
  status = open_as(format, out, &probe, source, name, options, err);
  source = NULL; /* the index's, even on failure */
done:
  ckpt_source_free(source);
  free(folder), free(name);
  if (status != CKPT_OK) status = refuse_part(path, status, err);
  return ckpt_fail_at(status, err, path, NULL);
}

static ckpt_status open_folder(ckpt_index **out, const char *path, bool *is_checkpoint,
                               const ckpt_open_options *options, ckpt_error *err) {
  ckpt_source *source = NULL;
  ckpt_entry *entries = NULL;
  ckpt_probe probe = {.path = path, .is_folder = true};
  *is_checkpoint = true;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_list(&entries, &probe.n_entries, path, "", err));
  probe.entries = entries;
  const ckpt_format *format = ask_formats(&probe);
  *is_checkpoint = format != NULL;
  if (format == NULL) goto done;
  CKPT_TRY_GOTO(open_source(&source, path, options, err));
  status = open_as(format, out, &probe, source, NULL, options, err);
  source = NULL;
done:
  ckpt_source_free(source);
  ckpt_list_free(entries, probe.n_entries);
  return ckpt_fail_at(status, err, path, NULL);
}

/* The one subfolder that is a checkpoint; several of equal rank are an error that lists them. */
static ckpt_status find_below(char *found, const char *path, ckpt_error *err) {
  ckpt_entry *entries = NULL, *below = NULL;
  size_t n_entries = 0, n_below = 0, n_listed = 0, n_found = 0, n_list = 0;
  char child[PATH_MAX], list[512] = "";
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_list(&entries, &n_entries, path, "", err));
  for (size_t i = 0; i < n_entries; i++) {
    if (!entries[i].is_folder || entries[i].name[0] == '.') continue;
    if ((size_t)snprintf(child, sizeof child, "%s/%s", path, entries[i].name) >= sizeof child) continue;
    CKPT_TRY_GOTO(ckpt_list(&below, &n_below, child, "", err));
    ckpt_probe probed = {.path = child, .is_folder = true, .entries = below, .n_entries = n_below};
    bool is_checkpoint = ask_formats(&probed) != NULL;
    ckpt_list_free(below, n_below);
    below = NULL;
    n_listed += n_below;
    if (n_listed > MAX_BELOW) {
      status = ckpt_fail(err, CKPT_ELIMIT, path, NULL, "more than %d entries in its folders (name the checkpoint)",
                         MAX_BELOW);
      goto done;
    }
    if (!is_checkpoint) continue;
    if (n_found++ == 0) memcpy(found, child, strlen(child) + 1);
    int n = snprintf(list + n_list, sizeof list - n_list, "%s%s", n_list == 0 ? "" : " ", entries[i].name);
    if (n > 0 && (size_t)n < sizeof list - n_list) n_list += (size_t)n;
  }
  const ckpt_probe probe = {.path = path, .is_folder = true, .entries = entries, .n_entries = n_entries};
  if (n_found == 0)
    status = ckpt_refuse_folder(&probe, err);
  else if (n_found > 1)
    status =
        ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "holds %zu checkpoints, name one of them: %s", n_found, list);
done:
  ckpt_list_free(entries, n_entries);
  return status;
}

/* A link that leads nowhere is there, and what it should lead to is not. */
static ckpt_status refuse_link(const char *path, ckpt_error *err) {
  char target[512];
  ssize_t n = readlink(path, target, sizeof target - 1);
  if (n < 0) return CKPT_OK;
  target[n] = '\0';
  return ckpt_fail(err, CKPT_ENOTFOUND, path, NULL, "is a link to %s, which is not there", target);
}

ckpt_status ckpt_open(ckpt_index **out, const char *path, const ckpt_open_options *given, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  *out = NULL;
  ckpt_open_options options;
  CKPT_TRY(ckpt_options_take(&options, sizeof options, given, err));
  char found[PATH_MAX];
  struct stat stat_buffer;
  if (stat(path, &stat_buffer) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return ckpt_fail_errno(err, path, "cannot be opened");
    CKPT_TRY(ckpt_temporary_explain(path, err));
    CKPT_TRY(refuse_link(path, err));
    CKPT_TRY(ckpt_cache_find(found, sizeof found, path, err));
    path = found;
  } else if (!S_ISDIR(stat_buffer.st_mode)) {
    return open_file(out, path, &options, err);
  }
  bool is_checkpoint;
  CKPT_TRY(open_folder(out, path, &is_checkpoint, &options, err));
  if (is_checkpoint) return CKPT_OK;
  char below[PATH_MAX];
  CKPT_TRY(find_below(below, path, err));
  return open_folder(out, below, &is_checkpoint, &options, err);
}

ckpt_status ckpt_open_memory(ckpt_index **out, const void *data, size_t n_bytes, const char *name,
                             const ckpt_open_options *given, ckpt_error *err) {
  CKPT_DEFAULT_FLOAT_ENV();
  *out = NULL;
  ckpt_open_options options;
  CKPT_TRY(ckpt_options_take(&options, sizeof options, given, err));
  ckpt_source *source;
  CKPT_TRY(ckpt_source_memory(&source, data, n_bytes, name, err));
  allow_corrupt(source, &options);
  ckpt_probe probe = {
      .path = name, .head = data, .n_head = n_bytes < HEAD_BYTES ? n_bytes : HEAD_BYTES, .n_bytes = n_bytes};
  const ckpt_format *format = ask_formats(&probe);
  if (format == NULL) {
    ckpt_source_free(source);
    return ckpt_refuse_file(&probe, err);
  }
  return ckpt_fail_at(open_as(format, out, &probe, source, name, &options, err), err, name, NULL);
}
