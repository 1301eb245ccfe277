/* model.c - see model.h. How names are found is transformers' own way (rename_source_key of core_model_loading.py): the
 * prefix of the class is taken off, then added, where that makes a name that the class has.
 *
 * Names are those of the index, where a wrapper is gone and a bare model has its prefix. Of a folder that transformers
 * reads, nothing is proven where that made a difference. */
#include "libckpt/recipe/verify/model.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/recipe/verify/keys.h"

enum { MAX_LAYERS = 100000, MAX_SAID = 16, MAX_MISSING = 100, MAX_NAME = 256 };

typedef unsigned long long ull;

typedef struct checker {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_arch *arch;
  const ckpt_arch_model *model; /* NULL: the class is not known, and only what all of the family have is compared */
  const ckpt_config *config;
  const char *config_path;
  const ckpt_arch_shape *parts[2]; /* rows of the body and of the head, or NULL */
  uint64_t n_layers, n_experts;    /* 0: not known */
  char said[MAX_SAID][64];         /* keys that are told of */
  size_t n_said, n_missing;
  bool has_joined; /* tensors that join others, which nothing says of what is missing */
  char why[512];   /* why not all of it can be proven; empty: it can */
} checker;

/* Keeps the first reason. */
static void leave_unproven(checker *c, const char *format, const char *what) {
  if (c->why[0] == '\0') snprintf(c->why, sizeof c->why, format, what);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Whether a name of the index is stored, rather than another name of a tensor that the config ties. */
static bool is_stored(const checker *c, const char *name) {
  for (uint32_t t = 0; t < CKPT_MAX_TIES && c->arch->ties[t].kept != NULL; t++)
    if (((c->index->ties_without[0] >> t & 1) != 0 && strcmp(name, c->arch->ties[t].kept) == 0) ||
        ((c->index->ties_without[1] >> t & 1) != 0 && strcmp(name, c->arch->ties[t].tied) == 0))
      return false;
  return true;
}

/* Whether no file has a tensor of this name. One that is broken has been told of. */
static bool is_absent(const checker *c, const char *name) {
  if (ckpt_index_is_unread(c->index, name)) return false;
  return ckpt_index_find(c->index, name) == NULL || !is_stored(c, name);
}

static const char *after(const char *name, const char *prefix) {
  const size_t n = strlen(prefix);
  return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

static const char *prefix_of(const checker *c) { return c->model == NULL ? c->arch->base_prefix : c->model->prefix; }

static bool is_bare(const checker *c) { return c->model != NULL && c->model->head == NULL; }

/* The row of a name among rows of which `n_less` bytes of each pattern do not count; those that the config has first.
 */
static const ckpt_arch_shape *match(const checker *c, const ckpt_arch_shape *rows, size_t n_less, const char *name,
                                    uint64_t *numbers) {
  const ckpt_arch_shape *found = NULL;
  uint64_t of_row[2] = {0};
  for (; rows != NULL && rows->hf != NULL; rows++) {
    const bool has_prefix = strncmp(rows->hf, c->arch->base_prefix, strlen(c->arch->base_prefix)) == 0;
    if ((n_less != 0 && !has_prefix) || !ckpt_arch_matches(rows->hf + n_less, name, of_row)) continue;
    if (found == NULL || ckpt_arch_is_wanted(rows, c->config)) memcpy(numbers, of_row, sizeof of_row), found = rows;
    if (ckpt_arch_is_wanted(rows, c->config)) break;
  }
  return found;
}

/* The row of a name of the class's own state dict, or NULL. */
static const ckpt_arch_shape *own_row(const checker *c, const char *name, uint64_t *numbers) {
  const char *bare = is_bare(c) ? name : after(name, prefix_of(c));
  const ckpt_arch_shape *row = NULL;
  if (bare != NULL) row = match(c, c->parts[0], strlen(c->arch->base_prefix), bare, numbers);
  if (row == NULL) row = match(c, c->parts[1], 0, name, numbers);
  return row;
}

/* The row that a stored name is loaded as. */
static const ckpt_arch_shape *row_of(const checker *c, const char *name, uint64_t *numbers) {
  const char *bare = after(name, prefix_of(c));
  char whole[MAX_NAME];
  const ckpt_arch_shape *row = bare == NULL ? NULL : own_row(c, bare, numbers);
  if (row == NULL && snprintf(whole, sizeof whole, "%s%s", prefix_of(c), name) < (int)sizeof whole)
    row = own_row(c, whole, numbers);
  return row != NULL ? row : own_row(c, name, numbers);
}

/* Whether its names have the number of a layer and of an expert. */
static bool is_of_expert(const ckpt_arch_shape *row) {
  const char *layer = strchr(row->hf, '#');
  return layer != NULL && strchr(layer + 1, '#') != NULL;
}

/* ---- numbers and flags ------------------------------------------------------------------------------------------- */

/* Whether a key was not told of; it is now. */
static bool is_new(checker *c, const char *key) {
  for (size_t i = 0; i < c->n_said; i++)
    if (strcmp(c->said[i], key) == 0) return false;
  if (c->n_said < MAX_SAID) snprintf(c->said[c->n_said++], sizeof c->said[0], "%s", key);
  return true;
}

/* A key of the architecture that stands there but is no positive integer would count as absent below. */
static ckpt_status check_number(checker *c, const char *key, ckpt_error *err) {
  int64_t value;
  char shown[40];
  if (!ckpt_config_has(c->config, key) || (ckpt_config_int(c->config, key, &value) && value > 0)) return CKPT_OK;
  if (!is_new(c, key)) return CKPT_OK;
  ckpt_config_show(c->config, key, shown, sizeof shown);
  return ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, key,
                                 "%s is no whole number above 0 (%s)", key, shown);
}

/* One that is neither true nor false would count as absent. */
static ckpt_status check_flag(checker *c, const char *key, ckpt_error *err) {
  bool value;
  char shown[40];
  ckpt_config_show(c->config, key, shown, sizeof shown);
  if (shown[0] == '\0' || ckpt_config_bool(c->config, key, &value) || !is_new(c, key)) return CKPT_OK;
  return ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, key,
                                 "%s is neither true nor false (%s)", key, shown);
}

static ckpt_status check_row_keys(checker *c, const ckpt_arch_shape *row, ckpt_error *err) {
  char key[64];
  for (uint32_t axis = 0; axis < 3 && row->axes[axis] != NULL; axis++)
    for (const char *at = row->axes[axis]; *at != '\0'; at += *at != '\0') {
      const size_t n = strcspn(at, "*/|");
      snprintf(key, sizeof key, "%.*s", (int)n, at);
      if (strcmp(key, "num_labels") != 0) CKPT_TRY(check_number(c, key, err));
      at += n;
    }
  for (const char *at = row->when; at != NULL && *at != '\0'; at += *at == '&') {
    at += strspn(at, "!+");
    const size_t n = strcspn(at, "&");
    snprintf(key, sizeof key, "%.*s", (int)n, at);
    CKPT_TRY(check_flag(c, key, err));
    at += n;
  }
  return CKPT_OK;
}

/* What a class demands of its config beside types. */
static ckpt_status check_demands(checker *c, ckpt_error *err) {
  const ckpt_arch_model *model = c->model;
  int64_t whole, parts, id, n_rows;
  if (model == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_verify_keys(c->findings, c->config, c->config_path, c->arch, model, c->why, sizeof c->why, err));
  if (model->whole != NULL && ckpt_config_int(c->config, model->whole, &whole) && whole > 0) {
    if (!ckpt_config_int(c->config, model->parts, &parts))
      leave_unproven(c, "config.json has no %s", model->parts);
    else if (parts > 0 && whole % parts != 0)
      CKPT_TRY(ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, model->whole,
                                       "%s is no multiple of %s (%lld, %lld), which %s refuses", model->whole,
                                       model->parts, (long long)whole, (long long)parts, model->name));
  }
  if (!model->is_padding_a_row || !ckpt_config_int(c->config, "pad_token_id", &id) ||
      !ckpt_config_int(c->config, "vocab_size", &n_rows) || (id < n_rows && id >= -n_rows))
    return CKPT_OK;
  return ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, "pad_token_id",
                                 "pad_token_id is %lld, vocab_size %lld: %s refuses a padding row that is not there",
                                 (long long)id, (long long)n_rows, model->name);
}

/* How many numbers a `#` of names takes; key may be NULL. */
static ckpt_status count(checker *c, const char *key, uint64_t *out, ckpt_error *err) {
  int64_t n;
  if (key == NULL) return CKPT_OK;
  CKPT_TRY(check_number(c, key, err));
  if (ckpt_config_int(c->config, key, &n) && n > MAX_LAYERS)
    return ckpt_findings_add_about(c->findings, err, CKPT_PROBLEM, c->config_path, key, "%s is %lld", key,
                                   (long long)n);
  if (ckpt_config_int(c->config, key, &n) && n > 0)
    *out = (uint64_t)n;
  else
    leave_unproven(c, "config.json has no %s", key);
  return CKPT_OK;
}

/* Every number by which tensors are judged; of an unknown architecture the size of the vocabulary alone. */
static ckpt_status check_numbers(checker *c, ckpt_error *err) {
  CKPT_TRY(check_number(c, "vocab_size", err));
  if (c->arch == NULL) return CKPT_OK;
  for (size_t part = 0; part < 2; part++)
    for (const ckpt_arch_shape *row = c->parts[part]; row != NULL && row->hf != NULL; row++)
      CKPT_TRY(check_row_keys(c, row, err));
  CKPT_TRY(count(c, c->arch->n_layers, &c->n_layers, err));
  return count(c, c->arch->n_experts, &c->n_experts, err);
}

/* What an axis is; false, and unproven, where the config decides none. */
static bool extent_of(checker *c, const char *axis, uint64_t *out) {
  char key[64];
  const bool is_labels = strcmp(axis, "num_labels") == 0;
  if (is_labels ? ckpt_config_labels(c->config, out) : ckpt_config_extent(c->config, axis, out)) return true;
  snprintf(key, sizeof key, "%.*s", (int)strcspn(axis, "|"), axis);
  leave_unproven(c,
                 is_labels ? "id2label and num_labels of config.json do not agree on the %s" : "config.json has no %s",
                 is_labels ? "labels" : key);
  return false;
}

/* ---- tensors that are there -------------------------------------------------------------------------------------- */

static ckpt_status check_shape(checker *c, const ckpt_tensor *tensor, const ckpt_arch_shape *row, ckpt_error *err) {
  char is[128] = "", wanted[128] = "", said[256] = "";
  size_t n_is = 0, n_wanted = 0, n_said = 0;
  bool differs = false;
  uint32_t n_axes = 0;
  for (; n_axes < 3 && row->axes[n_axes] != NULL; n_axes++) {
    uint64_t extent = 0;
    bool is_known = extent_of(c, row->axes[n_axes], &extent);
    differs = differs || n_axes >= tensor->rank || (is_known && tensor->shape[n_axes] != extent);
    n_wanted += (size_t)snprintf(wanted + n_wanted, sizeof wanted - n_wanted, is_known ? "%s%llu" : "%s?",
                                 n_axes == 0 ? "" : ", ", (ull)extent);
    n_said += (size_t)snprintf(said + n_said, sizeof said - n_said, "%s%.*s", n_axes == 0 ? "" : ", ",
                               (int)strcspn(row->axes[n_axes], "|"), row->axes[n_axes]);
  }
  if (!differs && n_axes == tensor->rank) return CKPT_OK;
  for (uint32_t axis = 0; axis < tensor->rank && n_is < sizeof is; axis++)
    n_is += (size_t)snprintf(is + n_is, sizeof is - n_is, "%s%llu", axis == 0 ? "" : ", ", (ull)tensor->shape[axis]);
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, tensor), tensor->name,
                           "its shape is [%s], config.json says [%s] (%s)", is, wanted, said);
}

/* Numbers that are no floats are cast on the way, and nothing says so. */
static ckpt_status check_dtype(checker *c, const ckpt_tensor *tensor, ckpt_error *err) {
  const ckpt_dtype dtype = (ckpt_dtype)tensor->dtype;
  if (ckpt_dtype_is_float(dtype) || ckpt_dtype_is_block(dtype)) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, tensor), tensor->name,
                           "its dtype is %s, where the model has floats", ckpt_dtype_name(dtype));
}

static bool is_passed(const checker *c, const char *name) {
  for (const char *const *part = c->model->passed; part != NULL && *part != NULL; part++)
    if (strstr(name, *part) != NULL) return true;
  return false;
}

/* A tensor that the class has not. */
static ckpt_status check_unexpected(checker *c, const ckpt_tensor *tensor, const char *name, ckpt_error *err) {
  uint64_t numbers[2];
  const ckpt_arch_name *known = ckpt_arch_match(c->arch, name, numbers);
  const char *file = ckpt_index_file_of(c->index, tensor);
  if (c->model == NULL || is_passed(c, name)) return CKPT_OK;
  if (ckpt_arch_match_joined(c->arch, name, numbers) != NULL) {
    c->has_joined = true;
    leave_unproven(c, "%s is a name that not every release of transformers has", name);
    return CKPT_OK;
  }
  if (known != NULL && known->role == CKPT_ROLE_BUFFER) {
    leave_unproven(c, "transformers finds %s unexpected, a buffer of older releases", name);
    return CKPT_OK;
  }
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name,
                           "unexpected: %s has no such tensor with this config.json", c->model->name);
}

/* One stored name of a tensor; *is_judged: its shape and dtype are. */
static ckpt_status check_name(checker *c, const ckpt_tensor *tensor, const char *name, bool *is_judged,
                              ckpt_error *err) {
  uint64_t numbers[2] = {0};
  const ckpt_arch_shape *row = row_of(c, name, numbers);
  const char *file = ckpt_index_file_of(c->index, tensor);
  if (row == NULL) return check_unexpected(c, tensor, name, err);
  const bool is_layer = strchr(row->hf, '#') != NULL, is_known = c->model != NULL;
  if (is_layer && c->n_layers != 0 && numbers[0] >= c->n_layers) {
    if (is_known && is_passed(c, name)) return CKPT_OK;
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "of layer %llu, but config.json says %s %llu",
                             (ull)numbers[0], c->arch->n_layers, (ull)c->n_layers);
  }
  if (is_of_expert(row) && c->n_experts != 0 && numbers[1] >= c->n_experts)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "of expert %llu, but config.json says %s %llu",
                             (ull)numbers[1], c->arch->n_experts, (ull)c->n_experts);
  if (is_known && !ckpt_arch_is_wanted(row, c->config)) {
    if (is_passed(c, name)) return CKPT_OK;
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "unexpected: config.json says otherwise (%s)",
                             row->when + strspn(row->when, "!+"));
  }
  if (*is_judged) return CKPT_OK;
  *is_judged = true;
  CKPT_TRY(check_dtype(c, tensor, err));
  return check_shape(c, tensor, row, err);
}

/* Whether transformers would take what is no part of the model for a tensor of it. */
static bool is_loaded_too(const checker *c, const ckpt_tensor *tensor) {
  if (strcmp(c->index->format, "hf") != 0 || tensor->n_extents == 0) return false;
  const uint32_t file = tensor->extents[0].file;
  if (file >= ckpt_source_count(c->index->source)) return false;
  const char *name = ckpt_path_name(ckpt_source_name(c->index->source, file));
  return ckpt_text_ends(name, ".safetensors") || after(name, "pytorch_model") != NULL;
}

static ckpt_status check_tensors(checker *c, ckpt_error *err) {
  for (uint32_t k = 0; k < c->index->n_tensors; k++) {
    const ckpt_tensor *tensor = &c->index->tensors[c->index->by_name[k]];
    bool is_judged = false;
    if (!ckpt_role_is_model((ckpt_role)tensor->role)) {
      if (is_loaded_too(c, tensor)) leave_unproven(c, "transformers finds %s unexpected", tensor->name);
      continue;
    }
    if (is_stored(c, tensor->name)) CKPT_TRY(check_name(c, tensor, tensor->name, &is_judged, err));
    size_t n = 0;
    while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
    for (size_t i = 0; i + tensor->details->n_extra_names < n; i++)
      if (is_stored(c, tensor->aliases[i])) CKPT_TRY(check_name(c, tensor, tensor->aliases[i], &is_judged, err));
  }
  return CKPT_OK;
}

/* ---- tensors that are missing ------------------------------------------------------------------------------------ */

/* A row's name in the class, with its numbers in it; rows are shorter than the buffer. */
static void name_in_class(char out[MAX_NAME], const checker *c, const ckpt_arch_shape *row, bool is_body,
                          const uint64_t numbers[2]) {
  const bool is_moved = is_body && !is_bare(c) && after(row->hf, c->arch->base_prefix) != NULL;
  const char *text = row->hf + (is_moved ? strlen(c->arch->base_prefix) : 0);
  size_t n = (size_t)snprintf(out, MAX_NAME, "%s", is_moved ? prefix_of(c) : "");
  for (size_t i = 0; *text != '\0'; text += *text == '#') {
    const size_t n_plain = strcspn(text, "#");
    n += (size_t)snprintf(out + n, MAX_NAME - n, "%.*s", (int)n_plain, text);
    text += n_plain;
    if (*text == '#') n += (size_t)snprintf(out + n, MAX_NAME - n, "%llu", (ull)numbers[i++]);
  }
}

/* Whether no stored name is loaded as this one: with the prefix and without. */
static bool is_missing(const checker *c, const char *name) {
  const char *bare = after(name, prefix_of(c));
  char whole[MAX_NAME];
  if (!is_absent(c, name) || (bare != NULL && !is_absent(c, bare))) return false;
  return snprintf(whole, sizeof whole, "%s%s", prefix_of(c), name) >= (int)sizeof whole || is_absent(c, whole);
}

/* Whether a tensor may be missing, since the config ties it to one that is there. */
static bool is_tied(const checker *c, const char *name) {
  uint64_t numbers[2];
  for (uint32_t t = 0; t < CKPT_MAX_TIES && c->arch->ties[t].kept != NULL; t++) {
    const ckpt_arch_tie *tie = &c->arch->ties[t];
    const bool is_kept = strcmp(name, tie->kept) == 0;
    if (!is_kept && strcmp(name, tie->tied) != 0) continue;
    if (c->model == NULL && !is_kept) return true; /* a class of the family may lack the head */
    if (c->model != NULL && (c->index->ties >> t & 1) != 0 && own_row(c, tie->tied, numbers) != NULL &&
        !is_missing(c, is_kept ? tie->tied : tie->kept))
      return true;
  }
  return false;
}

/* What the config says of a tensor that is missing. */
static ckpt_status say_missing(checker *c, const ckpt_arch_shape *row, const char *name, ckpt_error *err) {
  const char *file = ckpt_index_file_of(c->index, NULL);
  for (const ckpt_arch_tie *tie = c->arch->ties; tie->kept != NULL; tie++)
    if (strcmp(tie->tied, name) == 0)
      return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name,
                               "missing: config.json does not tie it to %s (%s)", tie->kept, tie->config_key);
  if (row->when != NULL)
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "missing: config.json asks for it (%s)",
                             row->when + strspn(row->when, "!+"));
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "missing: every model of the %s %s has it",
                           c->model == NULL ? "architecture" : "class",
                           c->model == NULL ? c->arch->name : c->model->name);
}

/* Every layer of the config has each kind of tensor, and each expert of it. */
static ckpt_status check_layers(checker *c, const ckpt_arch_shape *row, bool is_body, ckpt_error *err) {
  char name[MAX_NAME];
  const char *file = ckpt_index_file_of(c->index, NULL);
  const bool has_experts = is_of_expert(row);
  const uint64_t n_each = has_experts ? c->n_experts : 1, n_most = c->index->n_tensors + MAX_MISSING + 1ULL;
  uint64_t n_found = 0, n_all = c->n_layers * n_each;
  if (has_experts && n_all > n_most) n_all = n_most; /* some of these are missing, and a config may say any number */
  for (uint64_t i = 0; i < n_all; i++) {
    name_in_class(name, c, row, is_body, (uint64_t[2]){i / n_each, i % n_each});
    n_found += !is_missing(c, name);
  }
  if (n_found == 0 && n_all != 0) {
    const bool is_moved = is_body && !is_bare(c);
    snprintf(name, sizeof name, "%s%s", is_moved ? prefix_of(c) : "",
             row->hf + (is_moved ? strlen(c->arch->base_prefix) : 0));
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name, "missing from every layer (# is its number)");
  }
  for (uint64_t i = 0; n_found != n_all && i < n_all; i++) {
    name_in_class(name, c, row, is_body, (uint64_t[2]){i / n_each, i % n_each});
    if (!is_missing(c, name) || ++c->n_missing > MAX_MISSING) continue;
    CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, file, name,
                               has_experts ? "missing: other experts have it, and config.json says %s %llu"
                                           : "missing: other layers have it, and config.json says %s %llu",
                               has_experts ? c->arch->n_experts : c->arch->n_layers,
                               (ull)(has_experts ? c->n_experts : c->n_layers)));
  }
  return CKPT_OK;
}

/* Whether a row says nothing of what must be there: of what another tensor may join; where the class is not known, of
 * what only some models of the family have. */
static bool is_left_out(const checker *c, const ckpt_arch_shape *row) {
  for (const ckpt_arch_joined *joined = c->arch->joined; c->has_joined && joined != NULL && joined->hf != NULL;
       joined++)
    for (size_t i = 0; i < 3 && joined->parts[i] != NULL; i++)
      if (strcmp(joined->parts[i], row->hf) == 0) return true;
  for (const ckpt_arch_name *name = c->arch->names; c->model == NULL && name->hf != NULL; name++)
    if (strcmp(name->hf, row->hf) == 0) return (name->notes & CKPT_NAME_OPTIONAL) != 0;
  return false;
}

static ckpt_status check_missing(checker *c, ckpt_error *err) {
  char name[MAX_NAME];
  for (size_t part = 0; part < 2; part++)
    for (const ckpt_arch_shape *row = c->parts[part]; row != NULL && row->hf != NULL; row++) {
      if (!ckpt_arch_is_wanted(row, c->config) || is_left_out(c, row)) continue;
      if (strchr(row->hf, '#') != NULL) {
        CKPT_TRY(check_layers(c, row, part == 0, err));
        continue;
      }
      name_in_class(name, c, row, part == 0, (uint64_t[2]){0});
      if (is_missing(c, name) && !is_tied(c, name)) CKPT_TRY(say_missing(c, row, name, err));
    }
  if (c->n_missing <= MAX_MISSING) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_index_file_of(c->index, NULL), NULL,
                           "%zu more tensor%s missing", c->n_missing - MAX_MISSING,
                           c->n_missing == MAX_MISSING + 1 ? " is" : "s are");
}

/* ---- the class --------------------------------------------------------------------------------------------------- */

/* The one of a class, or NULL, and why. *is_of_family: its state dict has the names of the bare model. */
static const ckpt_arch_model *model_of(checker *c, const char *class, bool *is_of_family) {
  const char *type = "";
  const ckpt_arch_model *model = c->arch->models;
  (void)ckpt_config_text(c->config, "model_type", &type);
  while (model != NULL && model->name != NULL && strcmp(model->name, class) != 0) model++;
  const bool is_known = model != NULL && model->name != NULL;
  *is_of_family = is_known;
  if (!is_known) {
    leave_unproven(c, "%s is not known", class);
    return NULL;
  }
  *is_of_family = strcmp(model->model_type, type) == 0;
  if (!*is_of_family) leave_unproven(c, "%s is no class of this model_type", class);
  return *is_of_family ? model : NULL;
}

/* Finds the class that the config names. False where it is one of which nothing is known. */
static bool find_model(checker *c) {
  const char *class = NULL, *other;
  bool is_of_family = true;
  if (!ckpt_config_item(c->config, "architectures", 0, &class))
    leave_unproven(c, "config.json names no class%s", " (architectures)");
  else if (ckpt_config_item(c->config, "architectures", 1, &other))
    leave_unproven(c, "config.json names more than one class (%s, ...)", class);
  else
    c->model = model_of(c, class, &is_of_family);
  c->parts[0] = c->model == NULL ? c->arch->shapes : c->model->body;
  c->parts[1] = c->model == NULL ? NULL : c->model->head;
  for (const char *const *key = c->model == NULL ? NULL : c->model->undecided; key != NULL && *key != NULL; key++)
    if (ckpt_config_has(c->config, *key)) leave_unproven(c, "config.json has %s, which is not known here", *key);
  /* Names that lost or gained a prefix on the way are not those that this class would find. */
  if (c->model != NULL && c->index->is_unwrapped && strcmp(c->model->prefix, c->arch->base_prefix) != 0) {
    leave_unproven(c, "%s has another prefix than the names are read with", class);
    return false;
  }
  return is_of_family;
}

/* Whether one of the files is of this name. */
static bool has_file(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < ckpt_source_count(index->source); i++)
    if (strcmp(ckpt_source_name(index->source, i), name) == 0) return true;
  return false;
}

/* Whether an adapter lies beside the model, which transformers applies, but does not belong to what is read. */
static bool has_adapter_beside(const ckpt_index *index) {
  char path[PATH_MAX];
  const char *root = ckpt_source_root(index->source);
  const int n = snprintf(path, sizeof path, "%s/adapter_config.json", root);
  return root[0] != '\0' && n > 0 && n < (int)sizeof path && access(path, F_OK) == 0;
}

/* What transformers does not do, and was done to read these names. */
static void check_folder(checker *c) {
  const ckpt_index *index = c->index;
  char shown[8];
  ckpt_config_show(c->config, "tie_word_embeddings", shown, sizeof shown);
  if (strcmp(shown, "null") == 0) leave_unproven(c, "%s is null in config.json", "tie_word_embeddings");
  if (strcmp(index->format, "hf") != 0) return;
  if (index->n_wrapped != 0)
    leave_unproven(c, "transformers does not find %s, whose wrappers convert takes off", index->first_wrapped);
  if (index->is_renamed) leave_unproven(c, "transformers does not look into the dict that holds them%s", "");
  if (ckpt_index_side_file(index, "adapter_config.json") != NULL)
    leave_unproven(c, "transformers loads the model that %s names", "adapter_config.json");
  else if (has_adapter_beside(index))
    leave_unproven(c, "transformers applies the adapter of %s to it", "adapter_config.json");
  const char *named;
  if (ckpt_config_text(c->config, CKPT_CONFIG_WEIGHTS_KEY, &named) && has_file(index, named)) return;
  if (!has_file(index, "model.safetensors") && !has_file(index, "model.safetensors.index.json") &&
      !has_file(index, "pytorch_model.bin") && !has_file(index, "pytorch_model.bin.index.json"))
    leave_unproven(c, "transformers looks for %s", "model.safetensors or its index");
}

ckpt_status ckpt_verify_model(ckpt_findings *findings, const ckpt_index *index, const ckpt_arch *arch,
                              const ckpt_config *config, const char *config_path, const char *unknown,
                              ckpt_error *err) {
  checker c = {.findings = findings, .index = index, .config = config, .config_path = config_path};
  if (arch != NULL && arch->shapes != NULL) c.arch = arch;
  const bool is_of_family = c.arch != NULL && find_model(&c);
  CKPT_TRY(check_numbers(&c, err));
  if (c.arch == NULL && unknown == NULL)
    unknown = "names and shapes were not compared (unknown model_type, or names as stored)";
  if (unknown != NULL) return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL, "config: %s", unknown);
  CKPT_TRY(check_demands(&c, err));
  check_folder(&c);
  if (is_of_family) CKPT_TRY(check_tensors(&c, err));
  if (is_of_family) CKPT_TRY(check_missing(&c, err));
  if (findings->n_of[CKPT_PROBLEM] != 0 || index->defects.n != 0) return CKPT_OK;
  if (c.why[0] != '\0')
    return ckpt_findings_add(findings, err, CKPT_UNPROVEN, NULL, NULL,
                             "config: not all names and shapes of %s could be compared (%s)", arch->name, c.why);
  return ckpt_findings_add(findings, err, CKPT_PROVEN, NULL, NULL, "config: names and shapes are those of %s",
                           arch->name);
}
