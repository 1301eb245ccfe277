/* options.c - see options.h. */
#include "trainer/loop/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"

typedef ckpt_status set_option(ckpt_command *c, const char *value, ckpt_error *err);

typedef struct option {
  const char *name, *value, *meaning; /* value NULL: a flag */
  set_option *set;
} option;

static ckpt_status wrong(ckpt_error *err, const char *name, const char *value, const char *wanted) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--%s %.200s: it has to be %s", name, value, wanted);
}

static ckpt_status set_count(uint64_t *out, const char *name, const char *value, uint64_t least, uint64_t most,
                             ckpt_error *err) {
  char *end;
  errno = 0;
  const unsigned long long n = strtoull(value, &end, 10);
  if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || n < least || n > most)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--%s %.200s: it has to be a whole number from %llu to %llu", name,
                     value, (unsigned long long)least, (unsigned long long)most);
  *out = n;
  return CKPT_OK;
}

/* The place of a word in a NULL-terminated list; -1: none. */
static int word_of(const char *value, const char *const *words) {
  for (int i = 0; words[i] != NULL; i++)
    if (strcmp(words[i], value) == 0) return i;
  return -1;
}

static ckpt_status add_path(const char ***paths, size_t *n, const char *value, ckpt_error *err) {
  const char **more = reallocarray(*paths, *n + 2, sizeof *more);
  CKPT_TRY_ALLOC(more, err);
  *paths = more;
  more[(*n)++] = value;
  more[*n] = NULL;
  return CKPT_OK;
}

#define SETTER(name) static ckpt_status set_##name(ckpt_command *c, const char *value, ckpt_error *err)
#define TEXT_SETTER(name, member) \
  SETTER(name) {                  \
    (void)err;                    \
    c->member = value;            \
    return CKPT_OK;               \
  }
#define FLAG_SETTER(name, member) \
  SETTER(name) {                  \
    (void)err;                    \
    (void)value;                  \
    c->member = true;             \
    return CKPT_OK;               \
  }

TEXT_SETTER(model, train.model)
TEXT_SETTER(output, train.output)
TEXT_SETTER(file, file)
TEXT_SETTER(columns, train.columns)
TEXT_SETTER(lora, train.lora)
TEXT_SETTER(resume, train.resume)
TEXT_SETTER(dump_grads, train.dump_grads)
TEXT_SETTER(dump_logits, train.dump_logits)
FLAG_SETTER(force, train.force)
FLAG_SETTER(plan, train.plan)
FLAG_SETTER(help, wants_help)
FLAG_SETTER(version, wants_version)
FLAG_SETTER(quiet, is_quiet)
SETTER(data) { return add_path(&c->data, &c->n_data, value, err); }
SETTER(eval_data) { return add_path(&c->eval_data, &c->n_eval_data, value, err); }
SETTER(max_length) { return set_count(&c->train.max_length, "max_length", value, 2, UINT32_MAX, err); }
SETTER(max_skipped) { return set_count(&c->train.max_skipped, "max-skipped", value, 0, UINT32_MAX, err); }

SETTER(init) {
  if (strcmp(value, "scratch") != 0) return wrong(err, "init", value, "scratch");
  c->train.init = CKPT_INIT_SCRATCH;
  return CKPT_OK;
}

SETTER(packing) {
  static const char *const words[] = {"none", "document", "concat", NULL};
  const int i = word_of(value, words);
  if (i < 0) return wrong(err, "packing", value, "none, document or concat");
  c->train.packing = (ckpt_packing)i;
  return CKPT_OK;
}

SETTER(data_dtype) {
  c->train.data_dtype = ckpt_dtype_parse(value);
  if (c->train.data_dtype == CKPT_U16 || c->train.data_dtype == CKPT_U32) return CKPT_OK;
  return wrong(err, "data-dtype", value, "u16 or u32");
}

SETTER(device) {
  c->train.is_on_cuda = strcmp(value, "cuda") == 0;
  return c->train.is_on_cuda || strcmp(value, "cpu") == 0 ? CKPT_OK : wrong(err, "device", value, "cpu or cuda");
}

SETTER(overlap) {
  c->train.overlaps = strcmp(value, "off") != 0;
  return !c->train.overlaps || strcmp(value, "on") == 0 ? CKPT_OK : wrong(err, "overlap", value, "on or off");
}

SETTER(recompute) {
  static const char *const words[] = {"selective", "full", NULL};
  const int i = word_of(value, words);
  if (i < 0) return wrong(err, "recompute", value, "selective or full");
  c->train.recompute = i == 0 ? CKPT_RECOMPUTE_SELECTIVE : CKPT_RECOMPUTE_FULL;
  return CKPT_OK;
}

SETTER(save_format) {
  static const char *const words[] = {"dcp", "zero", "universal", "torch", NULL};
  for (const char *at = value; *at != '\0' || at == value;) {
    char word[16];
    const size_t n = strcspn(at, ",");
    ckpt_c_snprintf(word, sizeof word, "%.*s", (int)(n < 15 ? n : 15), at);
    if (word_of(word, words) < 0) return wrong(err, "save-format", value, "some of dcp, zero, universal and torch");
    at += n + (at[n] == ',');
  }
  c->train.save_format = value;
  return CKPT_OK;
}

SETTER(ranks) {
  uint64_t n = 0;
  CKPT_TRY(set_count(&n, "ranks", value, 1, 1024, err));
  c->train.n_ranks = (uint32_t)n;
  return CKPT_OK;
}

SETTER(threads) {
  uint64_t n = 0;
  CKPT_TRY(set_count(&n, "threads", value, 0, 4096, err));
  c->train.n_threads = (uint32_t)n;
  return CKPT_OK;
}

SETTER(stage) {
  uint64_t n = 0;
  CKPT_TRY(set_count(&n, "stage", value, 0, 3, err));
  c->train.stage = (uint32_t)n;
  return CKPT_OK;
}

/* Axes and their sizes, whose product is the number of ranks. */
SETTER(mesh) {
  static const char *const axes[] = {"dp_replicate", "dp_shard", NULL};
  uint64_t *sizes = c->mesh;
  bool is_given[2] = {false, false};
  sizes[0] = sizes[1] = 1;
  for (const char *at = value;; at++) {
    char axis[16], count[24];
    const size_t n_axis = strcspn(at, "=,"), n = strcspn(at, ",");
    ckpt_c_snprintf(axis, sizeof axis, "%.*s", (int)(n_axis < 15 ? n_axis : 15), at);
    const int i = word_of(axis, axes);
    if (i < 0 || at[n_axis] != '=')
      return wrong(err, "mesh", value, "dp_replicate=N or dp_shard=N (other axes are not there yet)");
    if (is_given[i]) return wrong(err, "mesh", value, "each axis once");
    is_given[i] = true;
    ckpt_c_snprintf(count, sizeof count, "%.*s", (int)(n - n_axis - 1), at + n_axis + 1);
    CKPT_TRY(set_count(&sizes[i], "mesh", count, 1, 1024, err));
    at += n;
    if (*at == '\0') return CKPT_OK;
  }
}

SETTER(patience) {
  uint64_t n = 0;
  CKPT_TRY(set_count(&n, "early_stopping_patience", value, 1, UINT32_MAX, err));
  c->train.patience = (int64_t)n;
  return CKPT_OK;
}

SETTER(threshold) {
  char *end;
  c->train.threshold = ckpt_c_strtod(value, &end);
  if (end == value || *end != '\0' || !(c->train.threshold >= 0))
    return wrong(err, "early_stopping_threshold", value, "a number from 0 on");
  return CKPT_OK;
}

static const option options[] = {
    {"model", "DIR", "model to begin with: a Hugging Face folder, or a checkpoint with its config.json", set_model},
    {"data", "FILE", "JSONL, .txt or tokens in .bin; a glob; repeatable", set_data},
    {"eval-data", "FILE", "the same, to evaluate on", set_eval_data},
    {"args", "FILE", "TrainingArguments as JSON or YAML; flags win", set_file},
    {"output", "OUT", "folder of the run (-o)", set_output},
    {"init", "scratch", "begin with random weights, as config.json of --model says", set_init},
    {"lora", "FILE|DIR", "train an adapter: a LoraConfig of PEFT, or an adapter's folder to start from", set_lora},
    {"packing", "none|document|concat", "join rows to --max_length (default none)", set_packing},
    {"max_length", "N", "tokens of a row or block (default: the model's positions)", set_max_length},
    {"columns", "NAME=COLUMN,...", "columns of JSONL that are text, prompt, completion, input_ids, ...", set_columns},
    {"data-dtype", "u16|u32", "of .bin without a header (default u16)", set_data_dtype},
    {"ranks", "N", "ranks, as threads of this process (default 1)", set_ranks},
    {"mesh", "AXIS=N,...", "dp_replicate and, with a stage, dp_shard; their product is the number of ranks", set_mesh},
    {"stage", "0|1|2|3", "what is sharded over ranks: 1 optimizer, 2 gradients too, 3 weights too (FSDP)", set_stage},
    {"threads", "N", "threads of each rank (default: processors / ranks)", set_threads},
    {"device", "cpu|cuda", "where it runs (default cpu); cuda: one rank on one GPU", set_device},
    {"overlap", "on|off", "stages 2 and 3 gather and sum while they compute (default on); the same bits", set_overlap},
    {"recompute", "selective|full", "run layers again for backward: all but products and attention, or all",
     set_recompute},
    {"save-format", "FORMAT,...", "of checkpoints: dcp (default), zero, universal, torch", set_save_format},
    {"resume", "last|auto|PATH", "go on from a checkpoint; auto begins anew where there is none", set_resume},
    {"force", NULL, "move an old run aside (OUT.1)", set_force},
    {"max-skipped", "N", "steps that may be skipped for NaN or infinity (default 0)", set_max_skipped},
    {"early_stopping_patience", "N", "end after N evaluations without a better one", set_patience},
    {"early_stopping_threshold", "X", "by how much better it has to be (default 0)", set_threshold},
    {"dump-grads", "F.safetensors", "write the gradients of the first step, and exit", set_dump_grads},
    {"dump-logits", "F.safetensors", "write the logits of the first batch, and exit", set_dump_logits},
    {"plan", NULL, "say what the run would take, and exit", set_plan},
    {"quiet", NULL, "say only what went wrong", set_quiet},
    {"version", NULL, "print the version", set_version},
    {"help", NULL, "print this", set_help},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* Dashes and underscores are one. */
static bool is_name(const char *a, const char *b) {
  for (; *a != '\0' || *b != '\0'; a++, b++)
    if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
  return true;
}

static const option *find_option(const char *name) {
  for (size_t i = 0; i < N_OPTIONS; i++)
    if (is_name(options[i].name, name)) return &options[i];
  return NULL;
}

static ckpt_status unknown(const char *name, ckpt_error *err) {
  const char *names[N_OPTIONS + 1] = {NULL};
  for (size_t i = 0; i < N_OPTIONS; i++) names[i] = options[i].name;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "there is no option --%s (did you mean --%s?)", name,
                   ckpt_argument_nearest(name, names));
}

typedef struct reader {
  ckpt_command *c;
  char **argv;
  int argc, at;
  bool takes_arguments; /* the pass in which they are set: after the file's */
  struct {
    const char *name, *value;
  } * given; /* the last flag of each row of the table */
} reader;

/* The value of an option: behind "=", else the next word. */
static ckpt_status value_of(reader *r, const char *name, const char *after, const char **out, ckpt_error *err) {
  if (after != NULL) {
    *out = after;
    return CKPT_OK;
  }
  if (r->at + 1 >= r->argc) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--%s: a value has to follow", name);
  *out = r->argv[++r->at];
  return CKPT_OK;
}

/* Sets an argument. A flag may come again, and the last one wins; another name with another value is refused. */
static ckpt_status set_argument(reader *r, const char *name, const char *value, ckpt_error *err) {
  if (!r->takes_arguments) return CKPT_OK;
  size_t n_rows;
  const ckpt_argument *row = ckpt_argument_find(name);
  const size_t i = (size_t)(row - ckpt_argument_table(&n_rows));
  const char *other = r->given[i].name;
  if (other != NULL && !ckpt_argument_same_name(name, other) && !ckpt_argument_is_same(row, value, r->given[i].value))
    return ckpt_argument_refuse_both(name, other, err);
  r->given[i].name = ckpt_arena_copy(&r->c->arena, name);
  r->given[i].value = value;
  CKPT_TRY_ALLOC(r->given[i].name, err);
  return ckpt_arguments_set(&r->c->arguments, name, value, err);
}

static ckpt_status read_argument(reader *r, const char *name, const char *after, ckpt_error *err) {
  const char *value = "true";
  const char *positive = strncmp(name, "no_", 3) == 0 || strncmp(name, "no-", 3) == 0 ? name + 3 : NULL;
  const ckpt_argument *row = ckpt_argument_find(name);
  if (row == NULL && positive != NULL && (row = ckpt_argument_find(positive)) != NULL &&
      (row->kind == CKPT_ARGUMENT_BOOL || strstr(row->value, "true") != NULL))
    return set_argument(r, positive, "false", err);
  if (ckpt_argument_find(name) == NULL) return unknown(name, err);
  row = ckpt_argument_find(name);
  const char *next = r->at + 1 < r->argc ? r->argv[r->at + 1] : NULL;
  bool takes_next = true; /* of a number and a text a value has to follow */
  if (row->kind == CKPT_ARGUMENT_BOOL)
    takes_next = next != NULL && next[0] != '-';
  else if (row->kind == CKPT_ARGUMENT_SAID || row->kind == CKPT_ARGUMENT_REFUSED) /* a flag, or any value */
    takes_next = next != NULL && (next[0] != '-' || (next[1] >= '0' && next[1] <= '9'));
  if (after != NULL || takes_next) CKPT_TRY(value_of(r, name, after, &value, err));
  return set_argument(r, name, value, err);
}

static ckpt_status read_word(reader *r, ckpt_error *err) {
  const char *word = r->argv[r->at], *value = NULL;
  char name[128];
  if (strcmp(word, "-o") == 0) word = "--output";
  if (strcmp(word, "-h") == 0) word = "--help";
  if (strncmp(word, "--", 2) != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "'%.200s' belongs to no option (see --help)", word);
  const size_t n = strcspn(word + 2, "=");
  const char *after = word[2 + n] == '=' ? word + 2 + n + 1 : NULL;
  if (n == 0 || n >= sizeof name) return unknown(word + 2, err);
  memcpy(name, word + 2, n);
  name[n] = '\0';
  const option *o = find_option(name);
  if (o == NULL) return read_argument(r, name, after, err);
  if (o->value == NULL && after != NULL) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--%s takes no value", name);
  if (o->value != NULL) CKPT_TRY(value_of(r, name, after, &value, err));
  return r->takes_arguments ? CKPT_OK : o->set(r->c, value, err);
}

static ckpt_status read_words(ckpt_command *c, int argc, char **argv, bool takes_arguments, ckpt_error *err) {
  size_t n_rows;
  (void)ckpt_argument_table(&n_rows);
  reader r = {.c = c, .argv = argv, .argc = argc, .at = 1, .takes_arguments = takes_arguments};
  r.given = calloc(n_rows, sizeof *r.given);
  CKPT_TRY_ALLOC(r.given, err);
  ckpt_status status = CKPT_OK;
  for (; r.at < argc && status == CKPT_OK; r.at++) status = read_word(&r, err);
  free(r.given);
  return status;
}

static ckpt_status missing(const char *name, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--%s has to be given (see --help)", name);
}

/* The mesh against the ranks and the stage, in whatever order they were given. */
static ckpt_status check_mesh(ckpt_command *c, ckpt_error *err) {
  ckpt_train_options *t = &c->train;
  const unsigned long long replicate = c->mesh[0], shard = c->mesh[1], product = replicate * shard;
  if (product == 0) return CKPT_OK;
  if (t->n_ranks != 0 && t->n_ranks != product)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "--mesh: dp_replicate %llu * dp_shard %llu are %llu ranks, --ranks %u", replicate, shard, product,
                     t->n_ranks);
  if (replicate > 1 && shard == 1 && t->stage != 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "--mesh: dp_replicate %llu with --stage %u: ranks that replicate shard nothing (dp_shard=%llu)",
                     replicate, t->stage, replicate);
  if (shard > 1 && t->stage == 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "--mesh: dp_shard %llu with --stage 0: nothing is sharded (--stage 1, 2 or 3)", shard);
  t->n_ranks = (uint32_t)product;
  t->n_replicas = t->stage == 0 ? 1 : (uint32_t)replicate;
  return CKPT_OK;
}

static ckpt_status complete(ckpt_command *c, ckpt_error *err) {
  ckpt_train_options *t = &c->train;
  if (t->output == NULL) t->output = c->arguments.output_dir;
  if (t->resume == NULL) t->resume = c->arguments.resume_from_checkpoint;
  if (t->resume != NULL && strcasecmp(t->resume, "true") == 0) t->resume = "last";
  if (t->resume != NULL && strcasecmp(t->resume, "false") == 0) t->resume = NULL;
  if (t->model == NULL) return missing("model", err);
  if (c->n_data == 0) return missing("data", err);
  if (t->output == NULL && !t->plan && t->dump_grads == NULL && t->dump_logits == NULL) return missing("output", err);
  if (t->output == NULL && t->resume != NULL && !t->plan) return missing("output", err);
  CKPT_TRY(check_mesh(c, err));
  if (t->n_ranks == 0) t->n_ranks = 1;
  if (t->lora != NULL && t->init == CKPT_INIT_SCRATCH)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--lora with --init scratch: an adapter needs a model to adapt");
  t->data = c->data;
  t->eval_data = c->eval_data;
  t->arguments = &c->arguments;
  if (t->patience > 0 && strcmp(c->arguments.eval_strategy, "no") == 0)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--early_stopping_patience needs eval_strategy and --eval-data");
  if (t->resume != NULL && t->force)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                     "--resume goes on in the folder that --force moves aside: one of them");
  return ckpt_arguments_check(&c->arguments, c->n_eval_data != 0, err);
}

ckpt_status ckpt_command_parse(ckpt_command *c, int argc, char **argv, void (*say)(void *arg, const char *text),
                               void *say_arg, ckpt_error *err) {
  ckpt_arena_init(&c->arena, UINT64_C(64) << 20);
  ckpt_arguments_init(&c->arguments, &c->arena);
  c->train.overlaps = true;
  CKPT_TRY(read_words(c, argc, argv, false, err));
  if (c->wants_help || c->wants_version) return CKPT_OK;
  c->arguments.say = say;
  c->arguments.say_arg = say_arg;
  if (c->file != NULL) CKPT_TRY(ckpt_arguments_read(&c->arguments, c->file, err));
  CKPT_TRY(read_words(c, argc, argv, true, err));
  return complete(c, err);
}

void ckpt_command_free(ckpt_command *c) {
  free(c->data);
  free(c->eval_data);
  ckpt_arena_free(&c->arena);
}

const char *ckpt_command_help(ckpt_arena *arena) {
  char *text = NULL;
  size_t n = 0, n_rows;
  FILE *out = open_memstream(&text, &n);
  if (out == NULL) return NULL;
  fputs(
      "usage: ckpt-train --model DIR --data FILE [--eval-data FILE] [--args FILE] [--NAME VALUE]... -o OUT\n\n"
      "Trains a causal language model. Arguments are those of transformers' TrainingArguments.\n\n",
      out);
  for (size_t i = 0; i < N_OPTIONS; i++) {
    char left[80];
    ckpt_c_snprintf(left, sizeof left, "--%s %s", options[i].name, options[i].value == NULL ? "" : options[i].value);
    fprintf(out, "  %-34s %s\n", left, options[i].meaning);
  }
  fputs("\nTrainingArguments (others are known; what has no meaning here is said):\n", out);
  const ckpt_argument *table = ckpt_argument_table(&n_rows);
  for (size_t i = 0; i < n_rows; i++) {
    if (table[i].kind > CKPT_ARGUMENT_TEXT) continue;
    fprintf(out, "  --%-32s %s", table[i].name, table[i].meaning);
    const bool has_default = strcmp(table[i].value, "NULL") != 0 && strcmp(table[i].value, "NAN") != 0 &&
                             strcmp(table[i].value, "INT64_MIN") != 0;
    fprintf(out, has_default ? " (%s)\n" : "\n", table[i].value);
  }
  fputs("\nExit: 0 done, 1 failed, 2 wrong usage, 3 stopped on request after saving.\n", out);
  fclose(out);
  const char *copy = text == NULL ? NULL : ckpt_arena_copy(arena, text);
  free(text);
  return copy;
}
