/* save.c - see save.h. */
#include "trainer/checkpoint/save.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/error.h"
#include "libckpt/base/group.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/convert/convert.h"

ckpt_status ckpt_save(const ckpt_save_request *r, ckpt_digest *digest, ckpt_error *err) {
  ckpt_error own = {0};
  if (err == NULL) err = &own; /* other ranks want to know */
  const ckpt_run_options run = {
      .struct_size = sizeof run, .memory = CKPT_SAVE_MEMORY, .n_threads = r->n_threads, .group = r->group};
  const ckpt_convert_options options = {.struct_size = sizeof options, .include = r->include, .run = &run};
  const ckpt_format_value stage = {.name = "stage", .value = r->stage};
  const ckpt_convert_target target = {
      .path = r->path, .to = r->format, .world = r->n_ranks, .values = {&stage, r->stage != 0}};
  const ckpt_convert_request request = {
      .verb = "train", .from = r->state, .targets = &target, .n_targets = 1, .options = &options};
  ckpt_plan *plan = NULL;
  ckpt_status status = ckpt_plan_new(&plan, err);
  if (status == CKPT_OK) status = ckpt_convert_plan(plan, &request, err);
  status = ckpt_group_agree(ckpt_group_of(&run), status, err);
  if (status == CKPT_OK) status = ckpt_convert_run(plan, &request, &run, NULL, err);
  if (status == CKPT_OK && digest != NULL) *digest = plan->outputs[0].digest;
  ckpt_plan_free(plan);
  return status;
}

static bool comes_last(const char *name) {
  return strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0 ||
         ckpt_text_ends(name, ".index.json");
}

static ckpt_status publish_some(const char *from, const char *into, bool last_ones, ckpt_error *err) {
  DIR *folder = opendir(from);
  if (folder == NULL) return ckpt_fail_errno(err, from, "it cannot be opened");
  ckpt_status status = CKPT_OK;
  for (const struct dirent *entry; status == CKPT_OK && (entry = readdir(folder)) != NULL;) {
    char src[PATH_MAX], dst[PATH_MAX];
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (comes_last(entry->d_name) != last_ones) continue;
    if (snprintf(src, sizeof src, "%s/%s", from, entry->d_name) >= (int)sizeof src ||
        snprintf(dst, sizeof dst, "%s/%s", into, entry->d_name) >= (int)sizeof dst)
      status = ckpt_fail(err, CKPT_ELIMIT, from, NULL, "the path is too long");
    else if (rename(src, dst) != 0)
      status = ckpt_fail_errno(err, dst, "it cannot be put in place");
  }
  closedir(folder);
  return status;
}

ckpt_status ckpt_write_whole(const char *path, const void *bytes, uint64_t n_bytes, ckpt_error *err) {
  const int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return ckpt_fail_errno(err, path, "it cannot be made");
  ckpt_status status = CKPT_OK;
  for (uint64_t done = 0; done < n_bytes && status == CKPT_OK;) {
    const ssize_t wrote = write(fd, (const char *)bytes + done, n_bytes - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) status = ckpt_fail_errno(err, path, "it cannot be written");
    if (wrote > 0) done += (uint64_t)wrote;
  }
  if (status == CKPT_OK && fsync(fd) != 0) status = ckpt_fail_errno(err, path, "it cannot be synced");
  close(fd);
  return status;
}

ckpt_status ckpt_sync_entries(const char *path, ckpt_error *err) {
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return ckpt_fail_errno(err, path, "it cannot be opened");
  const int rc = fsync(fd);
  close(fd);
  return rc == 0 ? CKPT_OK : ckpt_fail_errno(err, path, "it cannot be synced");
}

ckpt_status ckpt_publish_files(const char *from, const char *into, ckpt_error *err) {
  CKPT_TRY(publish_some(from, into, false, err));
  CKPT_TRY(ckpt_sync_entries(into, err));
  CKPT_TRY(publish_some(from, into, true, err));
  CKPT_TRY(ckpt_sync_entries(into, err));
  return ckpt_remove_all(from, err);
}

static ckpt_status remove_at(int at, const char *name, const char *path, int depth, ckpt_error *err) {
  if (unlinkat(at, name, 0) == 0 || errno == ENOENT) return CKPT_OK;
  const int fd = depth > 8 ? -1 : openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (folder == NULL) {
    const ckpt_status status = ckpt_fail_errno(err, path, "it cannot be removed");
    if (fd >= 0) close(fd);
    return status;
  }
  ckpt_status status = CKPT_OK;
  for (const struct dirent *entry; status == CKPT_OK && (entry = readdir(folder)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      status = remove_at(dirfd(folder), entry->d_name, path, depth + 1, err);
  closedir(folder);
  if (status == CKPT_OK && unlinkat(at, name, AT_REMOVEDIR) != 0)
    return ckpt_fail_errno(err, path, "it cannot be removed");
  return status;
}

ckpt_status ckpt_remove_all(const char *path, ckpt_error *err) { return remove_at(AT_FDCWD, path, path, 0, err); }
