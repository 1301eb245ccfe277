/* values.h - options that one format alone has: its row declares them, callers give them by name.
 *
 * Nothing between the two knows what they are: they are checked against the row, kept in receipts under their name, and
 * handed to the format's layout. */
#ifndef CKPT_FORMAT_VALUES_H
#define CKPT_FORMAT_VALUES_H

#include "libckpt/base/error.h"

/* What a value is: the member of ckpt_format_value that holds it. */
typedef enum ckpt_format_option_kind {
  CKPT_VALUE_NUMBER, /* value: from least to most; a flag is 0 or 1; a word of a list is its place */
  CKPT_VALUE_TEXT,   /* text */
  CKPT_VALUE_INPUT,  /* text: the path of a further input, whose digest receipts keep beside it */
  CKPT_VALUE_LIST    /* list */
} ckpt_format_option_kind;

/* What a format's row declares; its row in recipe/convert/options.def explains it to users. */
typedef struct ckpt_format_option {
  const char *name; /* NULL ends */
  ckpt_format_option_kind kind;
  uint64_t least, most; /* of a number */
  uint64_t if_absent;   /* as if it were given; 0 where it may be left out */
  const char *excludes; /* another one that excludes it, or NULL */
  const char *because;  /* why it cannot */
  bool is_of_all;       /* one for all outputs of a run, and kept so in receipts */
  bool links;           /* the output says where the inputs' data are, from its own folder */
  const char *words;    /* "a|b|c", of which a is 1; NULL: a number or a flag */
  const char *changed;  /* INPUT: what a replay says where another one lies at its path */
} ckpt_format_option;

/* Values that were given. A name occurs once. */
typedef struct ckpt_format_values {
  const ckpt_format_value *items; /* borrowed */
  size_t n;
} ckpt_format_values;

/* Whether it holds anything. */
bool ckpt_format_value_is_given(const ckpt_format_value *value);

/* What was given under a name: the text of an input, too. NULL: nothing. */
const ckpt_format_value *ckpt_format_values_find(const ckpt_format_values *values, const char *name);
const char *ckpt_format_text_of(const ckpt_format_values *values, const char *name);        /* as above */
const char *const *ckpt_format_list_of(const ckpt_format_values *values, const char *name); /* as above */

/* The number that was given for an option, else what it is if absent. */
uint64_t ckpt_format_value_of(const ckpt_format_values *values, const ckpt_format_option *option);

/* The row with this name of a NULL-ended table (NULL: an empty one), or NULL. */
const ckpt_format_option *ckpt_format_option_find(const ckpt_format_option *options, const char *name);

/* The same of whichever format declares it, and that format's name (may be NULL). */
const ckpt_format_option *ckpt_format_option_known(const char *name, const char **format);

/* Which word of a list "a|b|c" this is, from 1; 0: none. And the word at such a place, or NULL. */
uint64_t ckpt_format_word_number(const char *words, const char *word);
const char *ckpt_format_word(const char *words, uint64_t number, size_t *n_bytes); /* as above; not terminated */

/* Declared options of all formats, each name once: the i-th; NULL past the end. */
const ckpt_format_option *ckpt_format_option_at(size_t i);

/* Whether the values that a table declares are of their kind and in its bounds, and go together; others are passed by.
 * EINVAL. */
ckpt_status ckpt_format_values_check(const ckpt_format_values *values, const ckpt_format_option *options,
                                     const char *path, ckpt_error *err);

#endif
