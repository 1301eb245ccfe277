/* options.h - what a run can be asked for: one row per option, which the command's parser and help, receipts and their
 * replay all read.
 *
 * libckpt/recipe/convert/options.def has the rows of verbs that write, modifiers of inputs too. The command adds its
 * own to them (tools/cli/options.def). A row says what the option is called, what its value is, which verbs take it,
 * where the value goes, and under which key receipts keep it. */
#ifndef CKPT_RECIPE_CONVERT_OPTIONS_H
#define CKPT_RECIPE_CONVERT_OPTIONS_H

#include "libckpt/recipe/convert/convert.h"

/* What an option's value is; the parser checks it, and completion offers it. In brackets: the member that it fills. */
typedef enum ckpt_option_kind {
  CKPT_OPTION_FLAG,    /* no value [bool] */
  CKPT_OPTION_TEXT,    /* [const char *; where it is repeated, a list of them that NULL ends] */
  CKPT_OPTION_PATH,    /* as above */
  CKPT_OPTION_PATTERN, /* a glob, or re: and a regular expression; as above */
  CKPT_OPTION_CHOICE,  /* one of the words that the metavar lists: "a|b|c"; as above */
  CKPT_OPTION_FORMAT,  /* an output format of the registry; as above */
  CKPT_OPTION_DTYPE,   /* [ckpt_dtype] */
  CKPT_OPTION_CAST,    /* DTYPE, or PATTERN=DTYPE [casts and n_casts] */
  CKPT_OPTION_TYPE,    /* a type of weights that quantizing makes [ckpt_dtype] */
  CKPT_OPTION_PRESET,  /* [const ckpt_preset *] */
  CKPT_OPTION_SIZE,    /* bytes: 1.5G, 500MB, 4096; at least 1 [uint64_t] */
  CKPT_OPTION_INTEGER, /* 0..CKPT_OPTION_INTEGER_MAX [uint32_t] */
  CKPT_OPTION_COUNT,   /* 1..CKPT_OPTION_INTEGER_MAX [uint32_t] */
  CKPT_OPTION_LENGTH,  /* tokens or windows of a text: 1..4294967295 [uint32_t] */
  CKPT_OPTION_NUMBER   /* finite, not negative [double] */
} ckpt_option_kind;

/* Far more threads than any machine runs; what a larger number would mean is a mistake. */
#define CKPT_OPTION_INTEGER_MAX 4096

/* Flags of a row. */
enum {
  CKPT_OPTION_REQUIRED = 1,
  CKPT_OPTION_REPEATED = 2,  /* may stand several times; others are an error then */
  CKPT_OPTION_MODIFIER = 4,  /* belongs to the input before it */
  CKPT_OPTION_RANKS = 8,     /* FORMAT: only those that are cut among ranks */
  CKPT_OPTION_INPUT = 16,    /* PATH: of a further input (inputs.h), whose digest receipts keep beside the path */
  CKPT_OPTION_ATTACHED = 32, /* CHOICE: stands alone, or with a word behind "=" */
  CKPT_OPTION_MODEL = 64     /* PATH: of a model, to which modifiers behind it belong */
};

/* What verbs share; each is a section of the help. */
enum {
  CKPT_SET_RUN = 1,   /* --plan --memory --threads --trace --progress --quiet --json: every verb but help */
  CKPT_SET_INPUT = 2, /* modifiers of an input: every verb that reads a model */
  CKPT_SET_OUTPUT = 4 /* -o (required, repeated), --force, --receipt: every verb that writes one */
};

/* What the value is part of. */
typedef enum ckpt_option_place {
  CKPT_PLACE_VERB,     /* its verb takes it */
  CKPT_PLACE_INPUT,    /* ckpt_input_modifiers; its verb takes it */
  CKPT_PLACE_CONVERT,  /* ckpt_convert_options */
  CKPT_PLACE_TARGET,   /* ckpt_convert_target */
  CKPT_PLACE_QUANTIZE, /* ckpt_quantize_options */
  CKPT_PLACE_ADAPTER,  /* ckpt_adapter_options */
  CKPT_PLACE_EXTRACT,  /* ckpt_extract_options */
  CKPT_PLACE_FORMAT    /* the values of the output's format, under the name `field` */
} ckpt_option_place;

typedef struct ckpt_option {
  const char *name; /* without dashes; NULL ends a table */
  char letter;      /* of the short form, or 0 */
  ckpt_option_kind kind;
  unsigned flags;
  const char *metavar; /* of the value; NULL for a flag */
  const char *help;    /* lower case, no full stop */
  const char *verbs;   /* space separated; NULL: those that have `set` */
  unsigned set;
  ckpt_option_place place;
  size_t offset;      /* of the member that it fills */
  const char *field;  /* what the library and its receipts call it; NULL: nothing there has it */
  const char *with;   /* the option of the same verb without which it has no meaning; NULL: none */
  const char *fixed;  /* CHOICE: what is filled in where it is given; NULL: the word itself */
  const char *always; /* verbs whose receipts always have it, space separated */
  unsigned key;       /* its turn among the keys of its object in receipts, from 1; 0: not written by this row */
  bool is_sparse;     /* its key is there only where it was asked for */
} ckpt_option;

/* Those that write a checkpoint, and receipts. */
#define CKPT_VERBS_THAT_WRITE "convert consolidate split join reshard merge quantize extract-lora"

/* The turns at which the values of formats stand, in turns of their own: those of all outputs in a receipt's options,
 * those of one in that output. */
enum { CKPT_VALUES_TURN_OF_CONVERT = 7, CKPT_VALUES_TURN_OF_TARGET = 3 };

/* The rows of options.def; name NULL ends. */
extern const ckpt_option ckpt_written_options[];

/* The row with this turn among the keys of a place, or NULL. */
const ckpt_option *ckpt_option_of_key(ckpt_option_place place, unsigned key);

/* Whether a list of words (space separated, or NULL) has a word. */
bool ckpt_option_lists(const char *words, const char *word);

/* Whether a place has something other than nothing where an option goes: false, 0, NULL. */
bool ckpt_option_is_given(const ckpt_option *option, const void *place);

/* Whether a verb takes what a row's key says, by this row or by another for the same member; whether it always has it.
 */
bool ckpt_option_is_taken(const ckpt_option *option, const char *verb);
bool ckpt_option_is_always(const ckpt_option *option, const char *verb); /* as above */

/* The same of a value of a format. */
bool ckpt_option_takes_value(const char *name, const char *verb);

/* The member that an option fills, of the structure that its place is. */
static inline void *ckpt_option_member(const ckpt_option *option, void *place) {
  return (char *)place + option->offset;
}

#endif
