/* options.c - options.def as a table, and finding rows in it. */
#include "libckpt/recipe/convert/options.h"

#include <string.h>

const ckpt_option ckpt_written_options[] = {
#include "libckpt/recipe/convert/options.def"
    {.name = NULL}};

const ckpt_option *ckpt_option_of_key(ckpt_option_place place, unsigned key) {
  for (const ckpt_option *option = ckpt_written_options; option->name != NULL; option++)
    if (option->place == place && option->key == key) return option;
  return NULL;
}

bool ckpt_option_lists(const char *words, const char *word) {
  const size_t n = strlen(word);
  for (const char *at = words; at != NULL && *at != '\0'; at += strspn(at, " ")) {
    const size_t n_word = strcspn(at, " ");
    if (n_word == n && memcmp(at, word, n) == 0) return true;
    at += n_word;
  }
  return false;
}

bool ckpt_option_is_given(const ckpt_option *option, const void *place) {
  const void *member = (const char *)place + option->offset;
  switch (option->kind) {
    case CKPT_OPTION_FLAG: return *(const bool *)member;
    case CKPT_OPTION_SIZE: return *(const uint64_t *)member != 0;
    case CKPT_OPTION_INTEGER:
    case CKPT_OPTION_COUNT:
    case CKPT_OPTION_LENGTH: return *(const uint32_t *)member != 0;
    case CKPT_OPTION_NUMBER: return *(const double *)member != 0;
    case CKPT_OPTION_DTYPE:
    case CKPT_OPTION_TYPE: return *(const ckpt_dtype *)member != CKPT_DTYPE_NONE;
    case CKPT_OPTION_CAST: return ((const ckpt_convert_options *)place)->n_casts != 0;
    default: return *(const void *const *)member != NULL;
  }
}

static bool is_same_member(const ckpt_option *a, const ckpt_option *b) {
  return a->place == b->place && a->offset == b->offset;
}

bool ckpt_option_is_taken(const ckpt_option *option, const char *verb) {
  for (const ckpt_option *row = ckpt_written_options; row->name != NULL; row++)
    if (is_same_member(row, option) && ckpt_option_lists(row->verbs, verb)) return true;
  return false;
}

bool ckpt_option_is_always(const ckpt_option *option, const char *verb) {
  for (const ckpt_option *row = ckpt_written_options; row->name != NULL; row++)
    if (is_same_member(row, option) && ckpt_option_lists(row->always, verb)) return true;
  return false;
}

bool ckpt_option_takes_value(const char *name, const char *verb) {
  for (const ckpt_option *row = ckpt_written_options; row->name != NULL; row++)
    if (row->place == CKPT_PLACE_FORMAT && strcmp(row->field, name) == 0 && ckpt_option_lists(row->verbs, verb))
      return true;
  return false;
}
