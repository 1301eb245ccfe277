/* group.c - see group.h. */
#include "libckpt/base/group.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"

/* What all ranks together send at a time. */
enum { BLOCK_BYTES = 64 << 10 };

static ckpt_status self_all_gather(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err) {
  (void)ctx, (void)err;
  if (n_bytes != 0) memcpy(dst, src, n_bytes);
  return CKPT_OK;
}

const ckpt_group ckpt_group_self = {.size = 1, .all_gather = self_all_gather};

const ckpt_group *ckpt_group_of(const ckpt_run_options *run) {
  return run != NULL && run->group != NULL ? run->group : &ckpt_group_self;
}

/* Every rank's failure sent in slices, so that agreeing cannot fail for want of memory; that of `rank` is kept. */
static ckpt_status spread_error(const ckpt_group *group, uint32_t rank, ckpt_error *error, ckpt_error *err) {
  uint8_t all[BLOCK_BYTES], *bytes = (uint8_t *)error;
  size_t slice = BLOCK_BYTES / group->size;
  for (size_t at = 0; at < sizeof *error; at += slice) {
    size_t n = sizeof *error - at < slice ? sizeof *error - at : slice;
    CKPT_TRY(group->all_gather(group->ctx, bytes + at, all, n, err));
    memcpy(bytes + at, all + rank * n, n);
  }
  return CKPT_OK;
}

ckpt_status ckpt_group_agree(const ckpt_group *group, ckpt_status status, ckpt_error *err) {
  if (group->size == 1) return status;
  if (group->size > BLOCK_BYTES || group->rank >= group->size)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "rank %u of %u rank%s (at most %d)", group->rank, group->size,
                     ckpt_plural(group->size), BLOCK_BYTES);
  uint8_t mine = (uint8_t)status, all[BLOCK_BYTES];
  CKPT_TRY(group->all_gather(group->ctx, &mine, all, 1, err));
  uint32_t failed = 0;
  while (failed < group->size && all[failed] == CKPT_OK) failed++;
  if (failed == group->size) return CKPT_OK;
  ckpt_error error = {.status = status};
  if (status != CKPT_OK && err != NULL) error = *err;
  CKPT_TRY(spread_error(group, failed, &error, err));
  if (err != NULL) *err = error;
  return (ckpt_status)all[failed];
}

ckpt_status ckpt_group_exchange(const ckpt_group *group, size_t item_bytes, ckpt_group_give *give,
                                ckpt_group_take *take, void *arg, ckpt_error *err) {
  if (group->size == 1) return CKPT_OK;
  /* A slice is a count of items and the items; one that is not full is its rank's last. */
  size_t n_most = BLOCK_BYTES / group->size / item_bytes + 1, slice = sizeof(uint64_t) + n_most * item_bytes;
  uint8_t *mine = calloc(1, slice), *all = calloc(group->size, slice);
  ckpt_status status = mine == NULL || all == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  ckpt_status taken = status = ckpt_group_agree(group, status, err);
  for (bool goes_on = true; goes_on && status == CKPT_OK;) {
    uint64_t n = 0;
    while (n < n_most && give(arg, mine + sizeof n + n * item_bytes)) n++;
    memcpy(mine, &n, sizeof n);
    status = group->all_gather(group->ctx, mine, all, slice, err);
    goes_on = false;
    for (uint32_t rank = 0; rank < group->size && status == CKPT_OK; rank++) {
      const uint8_t *theirs = all + rank * slice;
      memcpy(&n, theirs, sizeof n);
      goes_on = goes_on || n == n_most;
      for (uint64_t i = 0; i < n && i < n_most && taken == CKPT_OK; i++)
        taken = take(arg, theirs + sizeof n + i * item_bytes, err);
    }
  }
  free(mine);
  free(all);
  return status != CKPT_OK ? status : ckpt_group_agree(group, taken, err);
}
