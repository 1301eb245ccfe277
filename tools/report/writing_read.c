/* writing_read.c - a command line into what a writing verb is asked for: each option goes where its row says. */
#include <stdlib.h>

#include "libckpt/base/error.h"
#include "tools/report/writing.h"

static ckpt_status read_casts(ckpt_convert_options *selection, ckpt_args *args, ckpt_error *err) {
  size_t n = 0;
  for (uint32_t at = 0; ckpt_args_next(args, "dtype", &at) != NULL;) n++;
  ckpt_cast_rule *rules = ckpt_arena_array(&args->arena, n + 1, sizeof *rules);
  CKPT_TRY_ALLOC(rules, err);
  n = 0;
  const ckpt_arg *arg;
  for (uint32_t at = 0; (arg = ckpt_args_next(args, "dtype", &at)) != NULL; n++)
    if (arg->dtype == CKPT_DTYPE_NONE)
      n--; /* auto is no rule */
    else
      rules[n] = (ckpt_cast_rule){arg->pattern, arg->dtype};
  selection->casts = rules;
  selection->n_casts = n;
  return CKPT_OK;
}

/* What an option says, as its format declares it. */
static ckpt_status read_value(ckpt_format_value *value, ckpt_args *args, const ckpt_arg *arg, ckpt_error *err) {
  const ckpt_option *option = arg->option;
  const ckpt_format_option *known = ckpt_format_option_known(option->field, NULL);
  *value = (ckpt_format_value){.name = option->field};
  if (known != NULL && known->kind == CKPT_VALUE_LIST) return ckpt_args_texts(&value->list, args, option->name, err);
  if (known != NULL && known->kind != CKPT_VALUE_NUMBER)
    value->text = arg->text;
  else if (known != NULL && known->words != NULL)
    value->value = ckpt_format_word_number(known->words, arg->text);
  else if (option->kind == CKPT_OPTION_CHOICE)
    value->value = strtoull(arg->text, NULL, 10);
  else
    value->value = option->kind == CKPT_OPTION_FLAG ? 1 : arg->size;
  return CKPT_OK;
}

/* One more value of the output's format. */
static ckpt_status add_value(ckpt_writing *writing, ckpt_args *args, const ckpt_arg *arg, ckpt_error *err) {
  ckpt_format_values *values = &writing->target.values;
  ckpt_format_value *items = ckpt_arena_array(&args->arena, values->n + 1, sizeof *items);
  CKPT_TRY_ALLOC(items, err);
  for (size_t i = 0; i < values->n; i++) items[i] = values->items[i];
  CKPT_TRY(read_value(&items[values->n], args, arg, err));
  *values = (ckpt_format_values){items, values->n + 1};
  return CKPT_OK;
}

/* An option that is given, into the member that its row names. */
static ckpt_status fill(void *member, ckpt_args *args, const ckpt_arg *arg, ckpt_error *err) {
  const ckpt_option *option = arg->option;
  if (option->flags & CKPT_OPTION_REPEATED && option->kind != CKPT_OPTION_PRESET)
    return ckpt_args_texts(member, args, option->name, err);
  ckpt_arg_fill(member, arg);
  return CKPT_OK;
}

ckpt_status ckpt_writing_read(ckpt_writing *writing, ckpt_args *args, ckpt_error *err) {
  void *const places[] = {[CKPT_PLACE_INPUT] = NULL, /* the input's own reader takes it; so it is of adapters */
                          [CKPT_PLACE_CONVERT] = &writing->selection,
                          [CKPT_PLACE_TARGET] = &writing->target,
                          [CKPT_PLACE_QUANTIZE] = &writing->quantize,
                          [CKPT_PLACE_ADAPTER] = NULL,
                          [CKPT_PLACE_FORMAT] = NULL};
  const ckpt_option *option;
  for (size_t i = 0; (option = ckpt_verb_option(args->verb, i, NULL)) != NULL; i++) {
    const bool is_read_here = option->place == CKPT_PLACE_FORMAT || places[option->place] != NULL;
    const ckpt_arg *arg = is_read_here ? ckpt_args_get(args, option->name) : NULL;
    if (arg == NULL) continue;
    if (option->kind == CKPT_OPTION_CAST)
      CKPT_TRY(read_casts(&writing->selection, args, err));
    else if (option->place == CKPT_PLACE_FORMAT)
      CKPT_TRY(add_value(writing, args, arg, err));
    else
      CKPT_TRY(fill(ckpt_option_member(option, places[option->place]), args, arg, err));
  }
  return CKPT_OK;
}
