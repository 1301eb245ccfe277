/* tar.c - tar archives, in which the first torch saved: every member by its content.
 *
 *   members: 512 bytes of header (name 100, ... size at 124, checksum at 148, type at 156) | payload, padded to 512
 *
 * What makes a header is its checksum, as for Python: 'ustar' stands only in later ones. Where readers would go on at
 * different places (a size that a link has, or that an extended header changes) that is said. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/error.h"
#include "libckpt/recipe/scan/look.h"

typedef unsigned long long ull;

enum { BLOCK = 512, SIZE_AT = 124, SUM_AT = 148, TYPE_AT = 156, WINDOW_BYTES = 64 << 10, MAX_EXTENDED = 64 << 10 };

static ckpt_status read_at(const ckpt_place *place, uint64_t at, void *dst, size_t n, ckpt_error *err) {
  return ckpt_source_read(place->source, place->file, place->offset + at, dst, n, err);
}

/* A number in a header: octal text between blanks, up to a zero byte, or base 256 with the highest bit set. */
static bool take_number(const uint8_t *at, size_t n, uint64_t *number) {
  size_t i = 0;
  *number = 0;
  if (at[0] == 0x80) {
    for (i = 1; i < n; i++) {
      if (*number >> 56 != 0) return false;
      *number = *number << 8 | at[i];
    }
    return true;
  }
  while (i < n && at[i] == ' ') i++;
  while (i < n && at[i] >= '0' && at[i] <= '7') *number = *number << 3 | (uint64_t)(at[i++] - '0');
  while (i < n && at[i] == ' ') i++;
  return i == n || at[i] == '\0';
}

/* Whether a block's checksum is right; bytes count as signed for some writers. */
static bool is_header(const uint8_t *block) {
  uint64_t claimed = 0;
  int64_t sum = 0, with_signs = 0;
  for (size_t i = 0; i < BLOCK; i++) {
    uint8_t byte = i >= SUM_AT && i < SUM_AT + 8 ? ' ' : block[i];
    sum += byte;
    with_signs += (int8_t)byte;
  }
  if (!take_number(block + SUM_AT, 8, &claimed)) return false;
  return claimed == (uint64_t)sum || claimed == (uint64_t)with_signs;
}

static bool is_zero(const uint8_t *block) { return block[0] == 0 && memcmp(block, block + 1, BLOCK - 1) == 0; }

/* The first block of [0, n_bytes) that is not of zeros; n_bytes where there is none. */
static ckpt_status find_block(ckpt_scanner *s, const ckpt_place *place, uint64_t *at, ckpt_error *err) {
  uint8_t *window = malloc(WINDOW_BYTES);
  CKPT_TRY_ALLOC(window, err);
  ckpt_status status = CKPT_OK;
  bool is_found = false, may_go_on = true;
  for (*at = 0; place->n_bytes - *at >= BLOCK && !is_found && may_go_on && status == CKPT_OK;) {
    uint64_t n_left = (place->n_bytes - *at) / BLOCK * BLOCK;
    size_t n = n_left < WINDOW_BYTES ? (size_t)n_left : WINDOW_BYTES;
    status = read_at(place, *at, window, n, err);
    for (size_t i = 0; i < n && !is_found && status == CKPT_OK; i += BLOCK) {
      is_found = !is_zero(window + i);
      if (!is_found) *at += BLOCK;
    }
    if (status == CKPT_OK) status = ckpt_scan_work(s, place, n, &may_go_on, err);
  }
  free(window);
  if (!is_found) *at = place->n_bytes;
  return status;
}

ckpt_status ckpt_scan_find_tar(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n_head, bool *is,
                               uint64_t *at, ckpt_error *err) {
  uint8_t block[BLOCK];
  *at = 0;
  *is = n_head >= BLOCK && is_header(head);
  if (*is || n_head < BLOCK || !is_zero(head)) return CKPT_OK;
  CKPT_TRY(find_block(s, place, at, err));
  if (place->n_bytes - *at < BLOCK) return CKPT_OK;
  CKPT_TRY(read_at(place, *at, block, BLOCK, err));
  *is = is_header(block);
  return CKPT_OK;
}

static ckpt_status look_at_member(ckpt_scanner *s, const ckpt_place *place, const uint8_t *header, uint64_t at,
                                  uint64_t n_bytes, bool is_renamed, ckpt_error *err) {
  char name[101] = "";
  memcpy(name, header, 100);
  ckpt_place member = *place;
  member.offset += at;
  member.n_bytes = n_bytes;
  member.depth++;
  bool is_storages = strcmp(name, "storages") == 0, is_tensors = strcmp(name, "tensors") == 0;
  member.member = is_storages ? CKPT_SCAN_STORAGES : is_tensors ? CKPT_SCAN_TENSORS : CKPT_SCAN_MEMBER;
  if (is_renamed && (is_storages || is_tensors)) /* what it is depends on the name */
    CKPT_TRY(ckpt_scan_problem(s, place, err, "readers differ about the name of a tar member (%s)", name));
  char *record = ckpt_scan_name(place, name);
  CKPT_TRY_ALLOC(record, err);
  member.record = record;
  ckpt_status status = ckpt_scan_look(s, &member, err);
  free(record);
  return status;
}

/* A problem where the extended header at `at` changes how long a member is; *is_renamed where it may change its name.
 */
static ckpt_status check_extended(const ckpt_scanner *s, const ckpt_place *place, uint64_t at, uint64_t n_bytes,
                                  bool *is_renamed, ckpt_error *err) {
  bool is_plain = n_bytes <= MAX_EXTENDED;
  char *text = malloc(MAX_EXTENDED);
  CKPT_TRY_ALLOC(text, err);
  ckpt_status status = is_plain ? read_at(place, at, text, (size_t)n_bytes, err) : CKPT_OK;
  is_plain = is_plain && status == CKPT_OK && memmem(text, (size_t)n_bytes, "size=", 5) == NULL &&
             memmem(text, (size_t)n_bytes, "GNU.sparse", 10) == NULL;
  *is_renamed = *is_renamed || !is_plain || memmem(text, (size_t)n_bytes, "path=", 5) != NULL;
  free(text);
  if (is_plain || status != CKPT_OK) return status;
  return ckpt_scan_problem(s, place, err, "not looked into: an extended tar header that changes a size (at %llu)",
                           (ull)at);
}

/* Looks at the member whose header stands before `at`; n_bytes is its size, *n_payload what follows it for
 * readers. *is_renamed: a header before it may have changed its name. */
static ckpt_status look_at_header(ckpt_scanner *s, const ckpt_place *place, const uint8_t *header, uint64_t at,
                                  uint64_t n_bytes, uint64_t *n_payload, bool *is_renamed, ckpt_error *err) {
  char type = (char)header[TYPE_AT];
  size_t n_name = strnlen((const char *)header, 100);
  bool is_folder = type == '5' || (type == '\0' && n_name != 0 && header[n_name - 1] == '/');
  *n_payload = n_bytes;
  if (is_folder || (type >= '1' && type <= '6')) {
    *n_payload = 0;
    bool is_known = is_folder || type == '1' || type == '2';
    if (is_known && n_bytes == 0) return CKPT_OK;
    return ckpt_scan_problem(s, place, err, "not looked into: a tar member of type '%c' with %llu byte%s", type | '0',
                             (ull)n_bytes, ckpt_plural(n_bytes));
  }
  if (type == 'x' || type == 'g' || type == 'X') return check_extended(s, place, at, n_bytes, is_renamed, err);
  *is_renamed = *is_renamed || type == 'L';
  if (type == 'L' || type == 'K') return CKPT_OK;
  if (type == '0' || type == '\0' || type == '7')
    return look_at_member(s, place, header, at, n_bytes, *is_renamed, err);
  return ckpt_scan_problem(s, place, err, "not looked into: a tar member of type '%c'",
                           type >= ' ' && type < 127 ? type : '?');
}

ckpt_status ckpt_scan_tar(ckpt_scanner *s, const ckpt_place *place, uint64_t at, ckpt_error *err) {
  uint8_t header[BLOCK];
  bool may_go_on = true, is_renamed = false; /* any after the first: one header may speak of all */
  while (may_go_on && ckpt_range_within(at, BLOCK, place->n_bytes)) {
    uint64_t n = 0, n_left;
    CKPT_TRY(read_at(place, at, header, sizeof header, err));
    CKPT_TRY(ckpt_scan_work(s, place, BLOCK, &may_go_on, err));
    at += BLOCK;
    if (is_zero(header)) continue; /* padding, and the end, behind which there may be more */
    n_left = place->n_bytes - at;
    if (!is_header(header) || !take_number(header + SIZE_AT, 12, &n) || n > n_left)
      return ckpt_scan_problem(s, place, err, "broken tar archive (at %llu): not looked into from there",
                               (ull)(at - BLOCK));
    CKPT_TRY(look_at_header(s, place, header, at, n, &n, &is_renamed, err));
    uint64_t n_padded = n + (BLOCK - n % BLOCK) % BLOCK;
    at = n_padded > n_left ? place->n_bytes : at + n_padded;
  }
  return CKPT_OK;
}
