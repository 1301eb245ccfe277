/* values.c - see values.h. */
#include "libckpt/format/values.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/format/format.h"

bool ckpt_format_value_is_given(const ckpt_format_value *value) {
  return value->value != 0 || value->text != NULL || value->list != NULL;
}

const ckpt_format_value *ckpt_format_values_find(const ckpt_format_values *values, const char *name) {
  for (size_t i = 0; i < values->n; i++)
    if (strcmp(values->items[i].name, name) == 0)
      return ckpt_format_value_is_given(&values->items[i]) ? &values->items[i] : NULL;
  return NULL;
}

const char *ckpt_format_text_of(const ckpt_format_values *values, const char *name) {
  const ckpt_format_value *given = ckpt_format_values_find(values, name);
  return given == NULL ? NULL : given->text;
}

const char *const *ckpt_format_list_of(const ckpt_format_values *values, const char *name) {
  const ckpt_format_value *given = ckpt_format_values_find(values, name);
  return given == NULL ? NULL : given->list;
}

uint64_t ckpt_format_value_of(const ckpt_format_values *values, const ckpt_format_option *option) {
  const ckpt_format_value *given = ckpt_format_values_find(values, option->name);
  return given == NULL ? option->if_absent : given->value;
}

const ckpt_format_option *ckpt_format_option_find(const ckpt_format_option *options, const char *name) {
  for (const ckpt_format_option *option = options; option != NULL && option->name != NULL; option++)
    if (strcmp(option->name, name) == 0) return option;
  return NULL;
}

const ckpt_format_option *ckpt_format_option_known(const char *name, const char **format) {
  for (const ckpt_format *const *row = ckpt_formats; *row != NULL; row++) {
    const ckpt_format_option *option = ckpt_format_option_find((*row)->options, name);
    if (option == NULL) continue;
    if (format != NULL) *format = (*row)->name;
    return option;
  }
  return NULL;
}

const ckpt_format_option *ckpt_format_option_at(size_t i) {
  for (const ckpt_format *const *row = ckpt_formats; *row != NULL; row++)
    for (const ckpt_format_option *option = (*row)->options; option != NULL && option->name != NULL; option++)
      if (ckpt_format_option_known(option->name, NULL) == option && i-- == 0) return option;
  return NULL;
}

const char *ckpt_format_word(const char *words, uint64_t number, size_t *n_bytes) {
  for (; number > 1 && words != NULL; number--) {
    words = strchr(words, '|');
    words = words == NULL ? NULL : words + 1;
  }
  if (number == 0 || words == NULL) return NULL;
  *n_bytes = strcspn(words, "|");
  return words;
}

uint64_t ckpt_format_word_number(const char *words, const char *word) {
  const char *at;
  size_t n;
  for (uint64_t number = 1; (at = ckpt_format_word(words, number, &n)) != NULL; number++)
    if (strlen(word) == n && memcmp(at, word, n) == 0) return number;
  return 0;
}

/* A value in another member than its own would be taken for none. */
static bool is_of_kind(const ckpt_format_value *value, ckpt_format_option_kind kind) {
  const bool is_number = kind == CKPT_VALUE_NUMBER, is_list = kind == CKPT_VALUE_LIST;
  return is_number == (value->value != 0) && is_list == (value->list != NULL) &&
         (is_number || is_list) == (value->text == NULL);
}

static ckpt_status check_value(const ckpt_format_value *value, const ckpt_format_option *option, const char *path,
                               ckpt_error *err) {
  if (!is_of_kind(value, option->kind))
    return ckpt_fail_option(err, CKPT_EINVAL, path, option->name, "its value is of another kind");
  if (option->kind != CKPT_VALUE_NUMBER || (value->value >= option->least && value->value <= option->most))
    return CKPT_OK;
  return ckpt_fail_option(err, CKPT_EINVAL, path, option->name, "%llu is not from %llu to %llu",
                          (unsigned long long)value->value, (unsigned long long)option->least,
                          (unsigned long long)option->most);
}

ckpt_status ckpt_format_values_check(const ckpt_format_values *values, const ckpt_format_option *options,
                                     const char *path, ckpt_error *err) {
  for (const ckpt_format_option *option = options; option != NULL && option->name != NULL; option++) {
    const ckpt_format_value *given = ckpt_format_values_find(values, option->name);
    if (given == NULL) continue;
    CKPT_TRY(check_value(given, option, path, err));
    if (option->excludes == NULL || ckpt_format_values_find(values, option->excludes) == NULL) continue;
    char advice[120];
    snprintf(advice, sizeof advice, "leave out %%%s or %%%s", option->name, option->excludes);
    return ckpt_advise(ckpt_fail_option(err, CKPT_EINVAL, path, option->name, "%s", option->because), err, advice);
  }
  return CKPT_OK;
}
