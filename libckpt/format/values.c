/* values.c - see values.h. */
#include "libckpt/format/values.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/format/format.h"

static const ckpt_format_value *find_value(const ckpt_format_values *values, const char *name) {
  for (size_t i = 0; i < values->n; i++)
    if (strcmp(values->items[i].name, name) == 0) return &values->items[i];
  return NULL;
}

uint64_t ckpt_format_value_of(const ckpt_format_values *values, const ckpt_format_option *option) {
  const ckpt_format_value *given = find_value(values, option->name);
  return given == NULL || given->value == 0 ? option->if_absent : given->value;
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

ckpt_status ckpt_format_values_check(const ckpt_format_values *values, const ckpt_format_option *options,
                                     const char *path, ckpt_error *err) {
  for (const ckpt_format_option *option = options; option != NULL && option->name != NULL; option++) {
    const ckpt_format_value *given = find_value(values, option->name), *other = NULL;
    if (given == NULL || given->value == 0) continue;
    if (given->value < option->least || given->value > option->most)
      return ckpt_fail_option(err, CKPT_EINVAL, path, option->name, "%llu is not from %llu to %llu",
                              (unsigned long long)given->value, (unsigned long long)option->least,
                              (unsigned long long)option->most);
    if (option->excludes != NULL) other = find_value(values, option->excludes);
    if (other == NULL || other->value == 0) continue;
    char advice[120];
    snprintf(advice, sizeof advice, "leave out %%%s or %%%s", option->name, option->excludes);
    return ckpt_advise(ckpt_fail_option(err, CKPT_EINVAL, path, option->name, "%s", option->because), err, advice);
  }
  return CKPT_OK;
}
