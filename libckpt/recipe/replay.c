/* replay.c - a receipt read back, its plan rebuilt and run into the digest only; receipt.c has the form. */
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/backend.h"
#include "libckpt/error.h"
#include "libckpt/recipe/apart.h"
#include "libckpt/recipe/hash.h"
#include "libckpt/recipe/json_file.h"
#include "libckpt/recipe/receipt.h"
#include "libckpt/run.h"
#include "libckpt/source.h"

enum { MAX_OPTION_BYTES = 16 << 20 }; /* more than any command line holds */

/* What a receipt says of an output beside its target. */
typedef struct recorded_output {
  ckpt_digest digest;
  bool has_digest;
} recorded_output;

/* A receipt as it was read, and the request that it stands for. Lists of tensors stay in the file: they are read where
 * they are compared. */
typedef struct recorded {
  const char *path; /* of the receipt */
  ckpt_json_file file;
  ckpt_arena arena;
  ckpt_convert_options options;
  const char *weights;
  const char *input_names;
  recorded_output input, *outputs;
  ckpt_convert_target *targets;
  ckpt_convert_request request;
  ckpt_index *from, *like;
} recorded;

typedef struct reporter {
  ckpt_receipt_problem *report;
  void *arg;
} reporter;

static void say(const reporter *to, const char *file, const char *tensor, const char *format, ...) CKPT_PRINTF(4, 5);
static void say(const reporter *to, const char *file, const char *tensor, const char *format, ...) {
  ckpt_error problem = {0};
  char text[sizeof problem.message];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  (void)ckpt_fail(&problem, CKPT_EDIFFERENT, file, tensor, "%s", text);
  to->report(to->arg, &problem);
}

/* ---- reading -------------------------------------------------------------------------------------------------------
 */

static ckpt_status refuse(const recorded *r, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (%s)", what);
}

/* What is read of an object: keys in any order, each at most once, others are passed by. */
typedef struct field {
  const char *key;
  ckpt_status (*read)(recorded *r, ckpt_json *json, void *into, ckpt_error *err); /* its value */
  void *into;
} field;

/* The rest of an object whose beginning has been read. */
static ckpt_status read_fields(recorded *r, ckpt_json *json, const field *fields, size_t n, ckpt_error *err) {
  uint32_t seen = 0;
  for (;;) {
    ckpt_json_token token;
    size_t i = 0;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    while (i < n && strcmp(fields[i].key, ckpt_json_text(json, NULL)) != 0) i++;
    if (i == n) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    if (seen >> i & 1) return ckpt_json_fail(json, err, "%s is given twice", fields[i].key);
    seen |= UINT32_C(1) << i;
    CKPT_TRY(fields[i].read(r, json, fields[i].into, err));
  }
}

static ckpt_status no_room(const recorded *r, ckpt_error *err) {
  return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "its options take more than %d bytes", MAX_OPTION_BYTES);
}

/* Room for item n of an array in the receipt's arena, and for a zero behind it. */
static ckpt_status grow(recorded *r, void *items, size_t n, size_t item_bytes, ckpt_error *err) {
  if ((n & (n - 1)) != 0) return CKPT_OK; /* it grows at powers of two */
  void *moved = ckpt_arena_array(&r->arena, 2 * n + 2, item_bytes), *old;
  if (moved == NULL) return no_room(r, err);
  memcpy(&old, items, sizeof old);
  if (n != 0) memcpy(moved, old, n * item_bytes);
  memcpy(items, &moved, sizeof moved);
  return CKPT_OK;
}

/* A string or null, kept. */
static ckpt_status read_text(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text;
  CKPT_TRY(ckpt_json_take_text(json, "what a receipt records", true, &text, err));
  if (text != NULL && (text = ckpt_arena_copy(&r->arena, text)) == NULL) return no_room(r, err);
  *(const char **)into = text;
  return CKPT_OK;
}

static ckpt_status read_flag(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  if (token != CKPT_JSON_TRUE && token != CKPT_JSON_FALSE) return refuse(r, "options", err);
  *(bool *)into = token == CKPT_JSON_TRUE;
  return CKPT_OK;
}

static ckpt_status read_size(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a size", err));
  return ckpt_json_u64(json, into) ? CKPT_OK : refuse(r, "shard_size", err);
}

static ckpt_status read_digest(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  recorded_output *output = into;
  const char *text;
  (void)r;
  CKPT_TRY(ckpt_json_take_text(json, "a digest", true, &text, err));
  output->has_digest = text != NULL && ckpt_digest_parse(text, &output->digest);
  return CKPT_OK;
}

static ckpt_status read_version(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  uint64_t version;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "ckpt_receipt", err));
  *(bool *)into = ckpt_json_u64(json, &version) && version == 1;
  return *(bool *)into ? CKPT_OK : refuse(r, "no \"ckpt_receipt\": 1", err);
}

static ckpt_status read_list(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char **texts = NULL;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "a list of options", err));
  for (size_t n = 0;; n++) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    if (token != CKPT_JSON_STRING) return refuse(r, "options", err);
    CKPT_TRY(grow(r, &texts, n, sizeof *texts, err));
    size_t n_text;
    const char *text = ckpt_json_text(json, &n_text);
    if (strlen(text) != n_text) return refuse(r, "options", err);
    texts[n] = ckpt_arena_copy(&r->arena, text);
    if (texts[n] == NULL) return no_room(r, err);
  }
  *(const char *const **)into = texts;
  return CKPT_OK;
}

/* The array's next object has begun, or *is_end. */
static ckpt_status next_object(const recorded *r, ckpt_json *json, const char *what, bool *is_end, ckpt_error *err) {
  ckpt_json_token token;
  CKPT_TRY(ckpt_json_next(json, &token, err));
  *is_end = token == CKPT_JSON_ARRAY_END;
  return *is_end || token == CKPT_JSON_OBJECT ? CKPT_OK : refuse(r, what, err);
}

static ckpt_status read_casts(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_cast_rule *casts = NULL;
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "dtype", err));
  for (size_t n = 0;; n++) {
    bool is_end;
    const char *dtype = NULL;
    CKPT_TRY(next_object(r, json, "dtype", &is_end, err));
    if (is_end) break;
    CKPT_TRY(grow(r, &casts, n, sizeof *casts, err));
    const field fields[] = {{"pattern", read_text, &casts[n].pattern}, {"dtype", read_text, &dtype}};
    CKPT_TRY(read_fields(r, json, fields, 2, err));
    casts[n].dtype = dtype == NULL ? CKPT_DTYPE_NONE : ckpt_dtype_parse(dtype);
    if (casts[n].dtype == CKPT_DTYPE_NONE) return refuse(r, "dtype", err);
    r->options.n_casts = n + 1;
  }
  r->options.casts = casts;
  return CKPT_OK;
}

static ckpt_status read_options(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_convert_options *options = &r->options;
  const char *names = NULL;
  (void)into;
  const field fields[] = {{"names", read_text, &names},
                          {"weights", read_text, &r->weights},
                          {"like", read_text, &r->request.like_path},
                          {"include", read_text, &options->include},
                          {"allow_overflow", read_flag, &options->allow_overflow},
                          {"dtype", read_casts, NULL},
                          {"match", read_list, &options->match},
                          {"exclude", read_list, &options->exclude},
                          {"rename", read_list, &options->rename}};
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_OBJECT, "options", err));
  CKPT_TRY(read_fields(r, json, fields, sizeof fields / sizeof *fields, err));
  options->stored_names = names != NULL && strcmp(names, "stored") == 0;
  return CKPT_OK;
}

static ckpt_status read_inputs(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "inputs", err));
  for (size_t n = 0;; n++) {
    bool is_end;
    CKPT_TRY(next_object(r, json, "inputs", &is_end, err));
    if (is_end) return CKPT_OK;
    if (n != 0) return refuse(r, "more than one input", err);
    const field fields[] = {{"path", read_text, &r->options.input},
                            {"names", read_text, &r->input_names},
                            {"digest", read_digest, &r->input}};
    CKPT_TRY(read_fields(r, json, fields, 3, err));
  }
}

static ckpt_status read_outputs(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "outputs", err));
  for (uint32_t n = 0;; n++) {
    bool is_end;
    CKPT_TRY(next_object(r, json, "outputs", &is_end, err));
    if (is_end) break;
    CKPT_TRY(grow(r, &r->targets, n, sizeof *r->targets, err));
    CKPT_TRY(grow(r, &r->outputs, n, sizeof *r->outputs, err));
    ckpt_convert_target *target = &r->targets[n];
    const field fields[] = {{"path", read_text, &target->path},
                            {"format", read_text, &target->to},
                            {"shard_size", read_size, &target->shard_size},
                            {"digest", read_digest, &r->outputs[n]}};
    CKPT_TRY(read_fields(r, json, fields, 4, err));
    if (target->path == NULL || target->to == NULL) return refuse(r, "outputs", err);
    r->request.n_targets = n + 1;
  }
  r->request.targets = r->targets;
  return CKPT_OK;
}

/* Opens an input by the path that the run was given: from the current folder, as it was then, else from the receipt's
 * own. */
static ckpt_status open_input(recorded *r, ckpt_index **out, const char *path, const ckpt_open_options *open,
                              ckpt_error *err) {
  char here[PATH_MAX] = "the current folder";
  struct stat found;
  if (path[0] == '/' || stat(path, &found) == 0) return ckpt_open(out, path, open, err);
  const char *slash = strrchr(r->path, '/');
  char *beside = ckpt_arena_printf(&r->arena, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - r->path), r->path, path);
  CKPT_TRY_ALLOC(beside, err);
  if (stat(beside, &found) == 0) return ckpt_open(out, beside, open, err);
  ckpt_error why = {0};
  ckpt_status status = ckpt_open(out, path, open, &why); /* it may be a name in the Hugging Face cache */
  if (status != CKPT_ENOTFOUND) return ckpt_fail(err, status, why.file, why.tensor, "%s", why.message);
  (void)!getcwd(here, sizeof here);
  return ckpt_fail(err, status, r->path, NULL,
                   "its input %s is not there, looked up from %s and from the receipt's folder (run it where the "
                   "receipt was written)",
                   path, here);
}

static ckpt_status parse(recorded *r, ckpt_error *err) {
  bool is_one = false;
  const field fields[] = {{"ckpt_receipt", read_version, &is_one},
                          {"verb", read_text, &r->request.verb},
                          {"options", read_options, NULL},
                          {"inputs", read_inputs, NULL},
                          {"outputs", read_outputs, NULL}};
  ckpt_json *json = NULL;
  ckpt_json_token token;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_file_read(&json, &r->file, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a receipt", err));
  CKPT_TRY_GOTO(read_fields(r, json, fields, sizeof fields / sizeof *fields, err));
  CKPT_TRY_GOTO(ckpt_json_next(json, &token, err)); /* the end, or an error */
  if (!is_one)
    status = refuse(r, "no \"ckpt_receipt\": 1", err);
  else if (r->options.input == NULL)
    status = refuse(r, "inputs", err);
  else if (r->request.n_targets == 0)
    status = refuse(r, "outputs", err);
done:
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, r->path, NULL);
}

/* The request that was made then, over what stands at the inputs' paths now. */
static ckpt_status open_inputs(recorded *r, ckpt_error *err) {
  r->options.struct_size = sizeof r->options;
  ckpt_open_options open = {.struct_size = sizeof open, .stored_names = r->options.stored_names};
  open.weights = r->weights;
  CKPT_TRY(open_input(r, &r->from, r->options.input, &open, err));
  open.weights = NULL;
  if (r->request.like_path != NULL) CKPT_TRY(open_input(r, &r->like, r->request.like_path, &open, err));
  r->request.from = r->from;
  r->request.like = r->like;
  r->request.options = &r->options;
  r->request.discards = true;
  return CKPT_OK;
}

/* Number of the output that path means. */
static ckpt_status find_output(const recorded *r, const char *path, uint32_t *number, ckpt_error *err) {
  *number = 0;
  if (r->request.n_targets == 1) return CKPT_OK; /* it may have been moved */
  for (; *number < r->request.n_targets; ++*number)
    if (ckpt_same_place(r->targets[*number].path, path)) return CKPT_OK;
  return ckpt_fail(err, CKPT_ENOTFOUND, r->path, NULL, "has %" PRIu32 " outputs, and none of them is %s",
                   r->request.n_targets, path);
}

/* ---- comparing -----------------------------------------------------------------------------------------------------
 */

static int compare_names(const void *a, const void *b) {
  return strcmp(((const ckpt_digest_entry *)a)->name, ((const ckpt_digest_entry *)b)->name);
}

/* Tensors as they are now, in byte order of names, to be met by those that the receipt lists. */
typedef struct comparison {
  const ckpt_digest_entry *entries;
  bool *is_met;
  size_t n;
  uint32_t output, number; /* wanted; of the output that is being read */
  const char *file, *whose;
  const reporter *to;
} comparison;

static void compare_tensor(const comparison *c, const char *name, const recorded_output *tensor) {
  if (name == NULL || !tensor->has_digest) {
    say(c->to, c->file, name, "the receipt lists it without a digest");
    return;
  }
  size_t low = 0, high = c->n;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (strcmp(c->entries[middle].name, name) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == c->n || strcmp(c->entries[low].name, name) != 0) {
    say(c->to, c->file, name, "the receipt lists it, %s does not have it", c->whose);
    return;
  }
  c->is_met[low] = true;
  if (memcmp(&c->entries[low].digest, &tensor->digest, sizeof tensor->digest) != 0)
    say(c->to, c->file, name, "%s has other values, dtype or shape than the receipt says", c->whose);
}

static ckpt_status read_name(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const char *text;
  (void)r;
  CKPT_TRY(ckpt_json_take_text(json, "a name", false, &text, err));
  memcpy(into, text, strlen(text) + 1);
  return CKPT_OK;
}

static ckpt_status compare_list(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const comparison *c = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "tensors", err));
  for (;;) {
    bool is_end;
    char name[CKPT_JSON_FILE_MAX_TEXT + 1] = "";
    recorded_output tensor = {0};
    CKPT_TRY(next_object(r, json, "tensors", &is_end, err));
    if (is_end) return CKPT_OK;
    const field fields[] = {{"name", read_name, name}, {"digest", read_digest, &tensor}};
    CKPT_TRY(read_fields(r, json, fields, 2, err));
    compare_tensor(c, name[0] == '\0' ? NULL : name, &tensor);
  }
}

static ckpt_status compare_outputs(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  comparison *c = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "outputs", err));
  for (c->number = 0;; c->number++) {
    bool is_end;
    CKPT_TRY(next_object(r, json, "outputs", &is_end, err));
    if (is_end) return CKPT_OK;
    const field tensors = {"tensors", compare_list, c};
    CKPT_TRY(read_fields(r, json, &tensors, c->number == c->output ? 1 : 0, err));
  }
}

/* Compares what is there now with what the receipt lists of an output, in one more pass over it. */
static ckpt_status compare_tensors(recorded *r, uint32_t output, const ckpt_digest_entry *entries, size_t n,
                                   const char *file, const char *whose, const reporter *to, ckpt_error *err) {
  comparison c = {.entries = entries, .n = n, .output = output, .file = file, .whose = whose, .to = to};
  const field outputs = {"outputs", compare_outputs, &c};
  ckpt_json *json = NULL;
  c.is_met = calloc(n + 1, sizeof *c.is_met);
  CKPT_TRY_ALLOC(c.is_met, err);
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_file_read(&json, &r->file, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a receipt", err));
  status = read_fields(r, json, &outputs, 1, err);
  size_t n_left = 0;
  for (size_t i = 0; i < n; i++) n_left += !c.is_met[i];
  if (status == CKPT_OK && n_left != 0)
    say(to, file, NULL, "%s has %zu tensors that the receipt does not list", whose, n_left);
done:
  ckpt_json_free(json);
  free(c.is_met);
  return ckpt_fail_at(status, err, r->path, NULL);
}

static ckpt_status compare_replayed(recorded *r, const ckpt_plan *plan, const reporter *to, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (uint32_t k = 0; k < plan->n_outputs && status == CKPT_OK; k++) {
    const ckpt_index *described = plan->outputs[k].described;
    ckpt_digest_entry *entries = calloc((size_t)described->n_tensors + 1, sizeof *entries);
    CKPT_TRY_ALLOC(entries, err);
    for (uint32_t i = 0; i < described->n_tensors; i++)
      entries[i] = (ckpt_digest_entry){described->tensors[i].name, plan->rows[described->tensors[i].origin].digest};
    qsort(entries, described->n_tensors, sizeof *entries, compare_names);
    status = compare_tensors(r, k, entries, described->n_tensors, r->targets[k].path, "the replay", to, err);
    free(entries);
    const recorded_output *output = &r->outputs[k];
    if (status == CKPT_OK &&
        (!output->has_digest || memcmp(&output->digest, &plan->outputs[k].digest, sizeof output->digest) != 0))
      say(to, r->targets[k].path, NULL, "the replay gives another content digest than the receipt says");
  }
  return status;
}

static ckpt_status compare_input(const recorded *r, const ckpt_plan *plan, const reporter *to, ckpt_error *err) {
  ckpt_digest now;
  char then_text[80], now_text[80];
  CKPT_TRY(ckpt_receipt_input(plan, &r->request, &now, err));
  if (r->input_names == NULL || strcmp(r->input_names, r->from->names) != 0)
    say(to, r->from->path, NULL, "its tensors were named by %s, and are now by %s",
        r->input_names == NULL ? "nothing" : r->input_names, r->from->names);
  if (!r->input.has_digest)
    say(to, r->from->path, NULL, "the receipt has no digest of it");
  else if (memcmp(&r->input.digest, &now, sizeof now) != 0)
    say(to, r->from->path, NULL, "the input has changed (then %s, now %s)",
        ckpt_digest_text(&r->input.digest, then_text), ckpt_digest_text(&now, now_text));
  return CKPT_OK;
}

/* ---- running -------------------------------------------------------------------------------------------------------
 */

/* The plan of then, every row of which goes into its digest and nowhere else. */
static ckpt_status replay(recorded *r, const ckpt_run_options *run, const reporter *to, ckpt_error *err) {
  ckpt_plan *plan;
  CKPT_TRY(ckpt_plan_new(&plan, err));
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_convert_plan(plan, &r->request, err));
  CKPT_TRY_GOTO(ckpt_receipt_plan(plan, &r->request, err));
  CKPT_TRY_GOTO(ckpt_convert_run(plan, &r->request, run, NULL, err));
  CKPT_TRY_GOTO(compare_input(r, plan, to, err));
  status = compare_replayed(r, plan, to, err);
done:
  ckpt_plan_free(plan);
  return status;
}

/* What stands at the output now: the names that are written in it, and the parameters as stored. */
static ckpt_status look(recorded *r, const char *path, uint32_t number, const ckpt_run_options *run, const reporter *to,
                        ckpt_error *err) {
  const ckpt_open_options open = {.struct_size = sizeof open, .stored_names = true, .weights = "model"};
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all"};
  ckpt_index *index = NULL;
  ckpt_hashing hashing = {0};
  ckpt_digest_entry *entries = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_open(&index, path, &open, err));
  CKPT_TRY_GOTO(ckpt_hashing_start(&hashing, index, &hash, err));
  const ckpt_proof proof = ckpt_hashing_proof(&hashing);
  CKPT_TRY_GOTO(ckpt_prove(&proof, run, NULL, NULL, err));
  entries = calloc((size_t)index->n_tensors + 1, sizeof *entries);
  if (entries == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  for (uint32_t i = 0; i < index->n_tensors; i++)
    entries[i] = (ckpt_digest_entry){index->tensors[index->by_name[i]].name, hashing.digests[i]};
  status = compare_tensors(r, number, entries, index->n_tensors, path, "the output", to, err);
done:
  free(entries);
  ckpt_hashing_end(&hashing);
  ckpt_index_free(index);
  return status;
}

ckpt_status ckpt_receipt_replay(const char *receipt, const char *output, const ckpt_run_options *run,
                                ckpt_receipt_problem *report, void *arg, ckpt_error *err) {
  recorded r = {.path = receipt};
  const reporter to = {report, arg};
  uint32_t number;
  ckpt_status status;
  CKPT_TRY(ckpt_json_file_open(&r.file, receipt, "the receipt", err));
  ckpt_arena_init(&r.arena, MAX_OPTION_BYTES);
  CKPT_TRY_GOTO(parse(&r, err));
  CKPT_TRY_GOTO(open_inputs(&r, err));
  CKPT_TRY_GOTO(find_output(&r, output, &number, err));
  CKPT_TRY_GOTO(replay(&r, run, &to, err));
  ckpt_run_options second = {.struct_size = sizeof second};
  if (run != NULL) second = *run;
  second.trace = NULL;     /* that is the replay's */
  ckpt_index_free(r.from); /* what was replayed is not needed beside what is there now */
  ckpt_index_free(r.like);
  r.from = r.like = NULL;
  status = look(&r, output, number, &second, &to, err);
done:
  ckpt_index_free(r.from);
  ckpt_index_free(r.like);
  ckpt_arena_free(&r.arena);
  ckpt_json_file_close(&r.file);
  return status;
}
