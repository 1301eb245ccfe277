/* arch.c - looking things up in the architecture rows: a `#` of a pattern stands for one decimal number without leading
 * zeros, so that matching a name and filling the pattern again gives the same bytes. */
#include "libckpt/index/arch.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/checked.h"

enum { MAX_NUMBERS = 2 };

const ckpt_arch *ckpt_arch_find(const char *model_type) {
  for (const ckpt_arch *const *arch = ckpt_archs; *arch != NULL; arch++) {
    if (strcmp((*arch)->name, model_type) == 0) return *arch;
    for (const char *const *type = (*arch)->model_types; *type != NULL; type++)
      if (strcmp(*type, model_type) == 0) return *arch;
  }
  return NULL;
}

/* Reads a decimal number at *text and moves past it; false if there is none or it does not fit. */
static bool read_number(const char **text, uint64_t *number) {
  const char *at = *text;
  uint64_t value = 0;
  if (*at < '0' || *at > '9' || (*at == '0' && at[1] >= '0' && at[1] <= '9')) return false;
  for (; *at >= '0' && *at <= '9'; at++)
    if (!ckpt_mul_u64(value, 10, &value) || !ckpt_add_u64(value, (uint64_t)(*at - '0'), &value)) return false;
  *text = at;
  *number = value;
  return true;
}

bool ckpt_arch_matches(const char *pattern, const char *name, uint64_t *numbers) {
  size_t n = 0;
  for (; *pattern != '\0'; pattern++) {
    if (*pattern == '#') {
      if (n == MAX_NUMBERS || !read_number(&name, &numbers[n++])) return false;
    } else if (*name++ != *pattern) {
      return false;
    }
  }
  return *name == '\0';
}

const ckpt_arch_name *ckpt_arch_match(const ckpt_arch *arch, const char *name, uint64_t *numbers) {
  for (const ckpt_arch_name *row = arch->names; row->hf != NULL; row++)
    if (ckpt_arch_matches(row->hf, name, numbers)) return row;
  return NULL;
}

bool ckpt_arch_is_one_tensor(const ckpt_arch *arch, const char *a, const char *b) {
  for (const ckpt_arch_joined *row = arch->joined; row != NULL && row->hf != NULL; row++)
    if (row->parts[1] == NULL && ((strcmp(row->hf, a) == 0 && strcmp(row->parts[0], b) == 0) ||
                                  (strcmp(row->hf, b) == 0 && strcmp(row->parts[0], a) == 0)))
      return true;
  return false;
}

const ckpt_arch_joined *ckpt_arch_match_joined(const ckpt_arch *arch, const char *name, uint64_t *numbers) {
  for (const ckpt_arch_joined *row = arch->joined; row != NULL && row->hf != NULL; row++)
    if (ckpt_arch_matches(row->hf, name, numbers)) return row;
  return NULL;
}

const char *ckpt_arch_joined_name(const ckpt_arch *arch, const char *part, const uint64_t *numbers, ckpt_arena *arena) {
  for (const ckpt_arch_joined *row = arch->joined; row != NULL && row->hf != NULL; row++)
    for (size_t i = 0; i < 3 && row->parts[i] != NULL; i++)
      if (strcmp(row->parts[i], part) == 0) return ckpt_arch_fill(row->hf, numbers, arena);
  return NULL;
}

const ckpt_arch_name *ckpt_arch_match_gguf(const ckpt_arch *arch, const char *name, uint64_t *numbers) {
  for (const ckpt_arch_name *row = arch->names; row->hf != NULL; row++)
    if (row->gguf != NULL && ckpt_arch_matches(row->gguf, name, numbers)) return row;
  return NULL;
}

bool ckpt_arch_place(const ckpt_arch *arch, const char *name, uint64_t place[CKPT_ARCH_PLACE]) {
  uint64_t numbers[MAX_NUMBERS] = {0};
  const ckpt_arch_name *row = ckpt_arch_match(arch, name, numbers);
  if (row == NULL || row->role != CKPT_ROLE_PARAMETER) return false;
  const char *hash = strchr(row->hf, '#');
  if (hash != NULL && strchr(hash + 1, '#') != NULL) return false; /* experts: in an order of their own */
  const ckpt_arch_name *first = row;
  while (hash != NULL && first > arch->names && strchr(first[-1].hf, '#') != NULL) first--;
  place[0] = (uint64_t)(first - arch->names);
  place[1] = numbers[0];
  place[2] = (uint64_t)(row - arch->names);
  return true;
}

static const ckpt_arch_shape *find_shape(const ckpt_arch_shape *rows, const char *pattern) {
  for (; rows != NULL && rows->hf != NULL; rows++)
    if (strcmp(rows->hf, pattern) == 0) return rows;
  return NULL;
}

/* The tensors of the bare model that a config is for. */
static const ckpt_arch_shape *body_of(const ckpt_arch *arch, const ckpt_config *config) {
  const char *type = "";
  if (config != NULL) (void)ckpt_config_text(config, "model_type", &type);
  for (const ckpt_arch_model *model = arch->models; model != NULL && model->name != NULL; model++)
    if (strcmp(model->model_type, type) == 0) return model->body;
  return arch->shapes;
}

const ckpt_arch_shape *ckpt_arch_shape_of(const ckpt_arch *arch, const ckpt_config *config, const char *pattern) {
  const ckpt_arch_shape *row = find_shape(body_of(arch, config), pattern);
  for (const ckpt_arch_model *model = arch->models; row == NULL && model != NULL && model->name != NULL; model++)
    row = find_shape(model->head, pattern);
  return row;
}

bool ckpt_arch_is_wanted(const ckpt_arch_shape *row, const ckpt_config *config) {
  for (const char *at = row->when; at != NULL && *at != '\0'; at += *at == '&') {
    char key[64];
    bool is_negated = *at == '!', value;
    at += is_negated;
    value = *at == '+';
    at += value;
    const size_t n = strcspn(at, "&");
    snprintf(key, sizeof key, "%.*s", (int)n, at);
    (void)ckpt_config_bool(config, key, &value);
    if (value == is_negated) return false;
    at += n;
  }
  return true;
}

void ckpt_arch_compare_shape(ckpt_arch_extents *out, const ckpt_arch_shape *row, const ckpt_config *config,
                             const ckpt_tensor *tensor) {
  size_t n_is = 0, n_wanted = 0, n_said = 0;
  uint32_t n_axes = 0;
  *out = (ckpt_arch_extents){0};
  for (; n_axes < 3 && row->axes[n_axes] != NULL; n_axes++) {
    uint64_t extent = 0;
    bool is_known = ckpt_config_extent(config, row->axes[n_axes], &extent);
    if (!is_known && out->undecided == NULL) out->undecided = row->axes[n_axes];
    out->differs = out->differs || n_axes >= tensor->rank || (is_known && tensor->shape[n_axes] != extent);
    n_wanted += (size_t)snprintf(out->wanted + n_wanted, sizeof out->wanted - n_wanted, is_known ? "%s%llu" : "%s?",
                                 n_axes == 0 ? "" : ", ", (unsigned long long)extent);
    n_said += (size_t)snprintf(out->said + n_said, sizeof out->said - n_said, "%s%.*s", n_axes == 0 ? "" : ", ",
                               (int)strcspn(row->axes[n_axes], "|"), row->axes[n_axes]);
  }
  out->differs = out->differs || n_axes != tensor->rank;
  for (uint32_t axis = 0; out->differs && axis < tensor->rank && n_is < sizeof out->is; axis++)
    n_is += (size_t)snprintf(out->is + n_is, sizeof out->is - n_is, "%s%llu", axis == 0 ? "" : ", ",
                             (unsigned long long)tensor->shape[axis]);
}

char *ckpt_arch_fill(const char *pattern, const uint64_t *numbers, ckpt_arena *arena) {
  const char *first = strchr(pattern, '#');
  if (first == NULL) return ckpt_arena_copy(arena, pattern);
  const char *second = strchr(first + 1, '#');
  if (second == NULL)
    return ckpt_arena_printf(arena, "%.*s%llu%s", (int)(first - pattern), pattern, (unsigned long long)numbers[0],
                             first + 1);
  return ckpt_arena_printf(arena, "%.*s%llu%.*s%llu%s", (int)(first - pattern), pattern, (unsigned long long)numbers[0],
                           (int)(second - first - 1), first + 1, (unsigned long long)numbers[1], second + 1);
}

bool ckpt_arch_tied_pair(const ckpt_index *index, size_t i, const ckpt_tensor **kept, const ckpt_tensor **tied) {
  const ckpt_arch *arch = ckpt_arch_find(index->architecture);
  const char *const *pair = index->is_stored || arch != NULL ? NULL : index->stated_ties;
  for (; pair != NULL && *pair != NULL; pair += 2) {
    *kept = ckpt_index_find(index, pair[0]);
    *tied = ckpt_index_find(index, pair[1]);
    if (*kept != NULL && *tied != NULL && *kept != *tied && i-- == 0) return true;
  }
  for (uint32_t t = 0; arch != NULL && t < CKPT_MAX_TIES && arch->ties[t].kept != NULL; t++) {
    if ((index->ties >> t & 1) == 0) continue;
    *kept = ckpt_index_find(index, arch->ties[t].kept);
    *tied = ckpt_index_find(index, arch->ties[t].tied);
    if (*kept != NULL && *tied != NULL && *kept != *tied && i-- == 0) return true;
  }
  return false;
}
