/* slice.c - see slice.h. */
#include "tools/report/slice.h"

#include <inttypes.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/index.h"
#include "tools/cli/values.h"

/* A range as it is read: from text, for an axis of n. */
typedef struct range {
  uint64_t begin, end;
  bool is_index;
} range;

/* An optional minus sign and digits; *at moves past them. A number before the start counts as the start and one past
 * the end as the end; *is_inside says whether it needed that. False if there is no number. */
static bool read_number(const char **at, uint64_t n, uint64_t *value, bool *is_inside) {
  bool is_negative = **at == '-';
  const char *digits = *at + is_negative;
  size_t n_digits = strspn(digits, "0123456789");
  uint64_t number = 0;
  if (n_digits == 0) return false;
  for (size_t i = 0; i < n_digits; i++)
    number = number > UINT64_MAX / 10 - 1 ? UINT64_MAX : number * 10 + (uint64_t)(digits[i] - '0');
  *at = digits + n_digits;
  *is_inside = is_negative ? number <= n : number < n;
  if (number > n) number = n;
  *value = is_negative ? n - number : number;
  return true;
}

static bool starts_number(const char *at) { return *at == '-' || (*at >= '0' && *at <= '9'); }

/* One index, which has to be there, or a range, which is clipped as Python clips slices. */
static bool read_range(const char **at, uint64_t n, range *out) {
  bool is_inside = true, has_begin = starts_number(*at);
  *out = (range){.begin = 0, .end = n};
  if (has_begin && !read_number(at, n, &out->begin, &is_inside)) return false;
  if (**at != ':') {
    out->is_index = true;
    out->end = out->begin + 1;
    return has_begin && is_inside;
  }
  ++*at;
  if (starts_number(*at) && !read_number(at, n, &out->end, &is_inside)) return false;
  if (out->end < out->begin) out->end = out->begin;
  return true;
}

static ckpt_status bad_slice(const ckpt_tensor *tensor, const char *text, uint32_t axis, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name,
                   "%s is no box of it: axis %u has length %" PRIu64 " (give a:b, a:, :b, : or one index)", text, axis,
                   tensor->shape[axis]);
}

/* text begins with "[" and ends with "]". */
static ckpt_status parse_box(ckpt_slice *out, const char *text, ckpt_error *err) {
  const ckpt_tensor *tensor = out->tensor;
  const char *at = text + 1;
  for (uint32_t axis = 0; axis == 0 || strcmp(at, "]") != 0; axis++) {
    range part;
    if (axis == tensor->rank)
      return ckpt_fail(err, CKPT_EINVAL, NULL, tensor->name, "%s names more axes than its %u", text, tensor->rank);
    if (!read_range(&at, tensor->shape[axis], &part) || (*at != ',' && *at != ']'))
      return bad_slice(tensor, text, axis, err);
    out->box.start[axis] = part.begin;
    out->box.count[axis] = part.end - part.begin;
    if (part.is_index) out->shape[axis] = UINT64_MAX; /* dropped below */
    if (*at == ',') at++;                             /* one may stand before the bracket, as in Python */
  }
  return CKPT_OK;
}

static ckpt_status not_found(const ckpt_index *index, const char *name, ckpt_error *err) {
  const char *nearest = NULL;
  size_t n = ckpt_index_count(index), n_name = strcspn(name, "[");
  for (uint32_t i = 0; i < index->n_unread; i++)
    if (strlen(index->unread[i].name) == n_name && memcmp(index->unread[i].name, name, n_name) == 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, index->unread[i].name, "is there and not read: %s",
                       index->unread[i].why);
  for (size_t i = 0; i < n && i < 20000; i++) { /* enough for a hint, and quick in any index */
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    ckpt_value_nearest(name, tensor->name, &nearest);
    for (const char *const *alias = tensor->aliases; alias != NULL && *alias != NULL; alias++)
      ckpt_value_nearest(name, *alias, &nearest);
  }
  if (nearest != NULL)
    return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL, "no tensor '%s', did you mean '%s'?", name, nearest);
  return ckpt_fail(err, CKPT_ENOTFOUND, index->path, NULL,
                   "no tensor or object '%s' (ckpt ls lists tensors, ckpt inspect objects)", name);
}

ckpt_status ckpt_slice_parse(ckpt_slice *out, const ckpt_index *index, const char *text, ckpt_error *err) {
  *out = (ckpt_slice){.tensor = ckpt_index_find(index, text)};
  const char *bracket = strrchr(text, '[');
  bool has_box = out->tensor == NULL && bracket != NULL && text[strlen(text) - 1] == ']';
  if (has_box) {
    char name[4096 + 1]; /* no name is longer */
    size_t n = (size_t)(bracket - text);
    if (n < sizeof name) {
      memcpy(name, text, n);
      name[n] = '\0';
      out->tensor = ckpt_index_find(index, name);
      if (out->tensor == NULL) return not_found(index, name, err);
    }
  }
  if (out->tensor == NULL) return not_found(index, text, err);
  for (uint32_t i = 0; i < out->tensor->rank; i++) out->box.count[i] = out->tensor->shape[i];
  if (has_box) CKPT_TRY(ckpt_fail_at(parse_box(out, bracket, err), err, index->path, NULL));
  out->n_elements = 1;
  for (uint32_t i = 0; i < out->tensor->rank; i++) {
    out->n_elements *= out->box.count[i]; /* at most the tensor's own, which fits */
    if (out->shape[i] != UINT64_MAX) out->shape[out->rank++] = out->box.count[i];
  }
  return CKPT_OK;
}
