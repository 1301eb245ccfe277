/* options.h - the command line of ckpt-train: its own options, and every argument of the table, in one pass. */
#ifndef CKPT_TRAINER_LOOP_OPTIONS_H
#define CKPT_TRAINER_LOOP_OPTIONS_H

#include "trainer/loop/train.h"

typedef struct ckpt_command {
  ckpt_arena arena;
  ckpt_arguments arguments;
  ckpt_train_options train;
  bool wants_help, wants_version, is_quiet;
  const char *file; /* --args */
  const char **data, **eval_data;
  size_t n_data, n_eval_data;
  uint64_t mesh[2]; /* sizes of dp_replicate and dp_shard; 0: not given */
} ckpt_command;

/* Reads argv into a zeroed command. Every failure is wrong usage. say: told of arguments without meaning here. */
ckpt_status ckpt_command_parse(ckpt_command *command, int argc, char **argv, void (*say)(void *arg, const char *text),
                               void *say_arg, ckpt_error *err);
void ckpt_command_free(ckpt_command *command); /* a zeroed one too */

/* The text of --help, in the arena; NULL when it is full. */
const char *ckpt_command_help(ckpt_arena *arena);

#endif
