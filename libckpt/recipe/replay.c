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
  const char *weights, *version;
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

static void tell(const reporter *to, ckpt_status kind, const char *file, const char *tensor, const char *format,
                 va_list args) {
  ckpt_error problem = {0};
  char text[sizeof problem.message];
  vsnprintf(text, sizeof text, format, args);
  (void)ckpt_fail(&problem, CKPT_EDIFFERENT, file, tensor, "%s", text);
  problem.status = kind;
  to->report(to->arg, &problem);
}

static void say(const reporter *to, const char *file, const char *tensor, const char *format, ...) CKPT_PRINTF(4, 5);
static void say(const reporter *to, const char *file, const char *tensor, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(to, CKPT_EDIFFERENT, file, tensor, format, args);
  va_end(args);
}

static void remark(const reporter *to, const char *file, const char *format, ...) CKPT_PRINTF(3, 4);
static void remark(const reporter *to, const char *file, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tell(to, CKPT_OK, file, NULL, format, args);
  va_end(args);
}

/* ---- reading -------------------------------------------------------------------------------------------------------
 */

static ckpt_status refuse(const recorded *r, const char *what, ckpt_error *err) {
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "is no receipt that this version knows (%s)", what);
}

/* What is read of an object: keys in any order, each at most once. Others are passed by, or met by a last field without
 * a key. */
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
    while (i < n && fields[i].key != NULL && strcmp(fields[i].key, ckpt_json_text(json, NULL)) != 0) i++;
    if (i == n) {
      CKPT_TRY(ckpt_json_skip(json, err));
      continue;
    }
    if (seen >> i & 1) return ckpt_json_fail(json, err, "%s is given twice", fields[i].key);
    seen |= UINT32_C(1) << i;
    CKPT_TRY(fields[i].read(r, json, fields[i].into, err));
  }
}

/* An option that is passed by would be replayed as if it had not been given. */
static ckpt_status refuse_option(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)into;
  return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "records the option '%.80s', which this version does not know",
                   ckpt_json_text(json, NULL));
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
  return ckpt_json_u64(json, into) ? CKPT_OK : refuse(r, "sizes", err);
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
    const field fields[] = {
        {"pattern", read_text, &casts[n].pattern}, {"dtype", read_text, &dtype}, {NULL, refuse_option, NULL}};
    CKPT_TRY(read_fields(r, json, fields, 3, err));
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
                          {"rename", read_list, &options->rename},
                          {NULL, refuse_option, NULL}};
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

/* A path that the run was given, from the folder of the receipt. NULL: no room. */
static char *beside_receipt(recorded *r, const char *path) {
  const char *slash = strrchr(r->path, '/');
  return ckpt_arena_printf(&r->arena, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - r->path), r->path, path);
}

/* Opens an input by the path that the run was given: from the current folder, as it was then, else from the receipt's
 * own. */
static ckpt_status open_input(recorded *r, ckpt_index **out, const char *path, const ckpt_open_options *open,
                              ckpt_error *err) {
  char here[PATH_MAX] = "the current folder";
  struct stat found;
  if (path[0] == '/' || stat(path, &found) == 0) return ckpt_open(out, path, open, err);
  char *beside = beside_receipt(r, path);
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

/* The verbs that write receipts; each is a request that the options stand for. */
static ckpt_status check_verb(const recorded *r, ckpt_error *err) {
  static const char *const verbs[] = {"convert", "split", "join", "consolidate", "reshard"};
  for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
    if (r->request.verb != NULL && strcmp(r->request.verb, verbs[i]) == 0) return CKPT_OK;
  return refuse(r, r->request.verb == NULL ? "no verb" : r->request.verb, err);
}

static ckpt_status parse(recorded *r, ckpt_error *err) {
  bool is_one = false;
  const field fields[] = {{"ckpt_receipt", read_version, &is_one}, {"version", read_text, &r->version},
                          {"verb", read_text, &r->request.verb},   {"options", read_options, NULL},
                          {"inputs", read_inputs, NULL},           {"outputs", read_outputs, NULL}};
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
  else
    status = check_verb(r, err);
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

/* The content of what is at path, if it has one. */
static ckpt_status digest_at(const char *path, const ckpt_run_options *run, recorded_output *now, ckpt_error *err) {
  const ckpt_hash_options options = {.struct_size = sizeof options, .run = run};
  ckpt_index *index = NULL;
  ckpt_error why = {0};
  ckpt_status status = ckpt_open(&index, path, NULL, &why);
  if (status == CKPT_OK) status = ckpt_hash(index, &options, &now->digest, &why);
  ckpt_index_free(index);
  now->has_digest = status == CKPT_OK;
  if (status == CKPT_ENOMEM || status == CKPT_ECANCELED) return ckpt_fail(err, status, NULL, NULL, "%s", why.message);
  return CKPT_OK;
}

static const char *last_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL || slash[1] == '\0' ? path : slash + 1;
}

static bool is_same_content(const recorded_output *a, const recorded_output *b) {
  return a->has_digest && b->has_digest && memcmp(&a->digest, &b->digest, sizeof a->digest) == 0;
}

/* The one output that has the content of what is at path; where several or none have it, the one of these that is
 * called so. False: none, or more than one. */
static bool find_moved(const recorded *r, const char *path, const recorded_output *now, uint32_t *number) {
  uint32_t n_equal = 0, n_named = 0, named = 0;
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    if (!is_same_content(&r->outputs[i], now)) continue;
    *number = i;
    n_equal++;
  }
  if (n_equal == 1) return true;
  for (uint32_t i = 0; i < r->request.n_targets; i++) {
    if (n_equal != 0 && !is_same_content(&r->outputs[i], now)) continue;
    if (strcmp(last_name(r->targets[i].path), last_name(path)) != 0) continue;
    named = i;
    n_named++;
  }
  *number = named;
  return n_named == 1;
}

/* Number of the output that path means. */
static ckpt_status find_output(recorded *r, const char *path, const ckpt_run_options *run, uint32_t *number,
                               ckpt_error *err) {
  char here[PATH_MAX] = "the current folder", names[256] = "";
  uint32_t n = r->request.n_targets;
  *number = 0;
  if (n == 1) return CKPT_OK; /* it may have been moved */
  for (; *number < n; ++*number)
    if (ckpt_same_place(r->targets[*number].path, path)) return CKPT_OK;
  for (*number = 0; *number < n; ++*number) {
    const char *beside = beside_receipt(r, r->targets[*number].path);
    if (beside == NULL) return no_room(r, err);
    if (r->targets[*number].path[0] != '/' && ckpt_same_place(beside, path)) return CKPT_OK;
  }
  recorded_output now = {0};
  CKPT_TRY(digest_at(path, run, &now, err));
  if (find_moved(r, path, &now, number)) return CKPT_OK;
  for (uint32_t i = 0; i < n && strlen(names) + 2 < sizeof names; i++)
    snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i == 0 ? "" : ", ", r->targets[i].path);
  (void)!getcwd(here, sizeof here);
  return ckpt_fail(
      err, CKPT_ENOTFOUND, r->path, NULL,
      "has %" PRIu32
      " outputs (%s), and neither the path of %s, from %s or from the receipt's folder, nor its content tells "
      "which of them it is",
      n, names, path, here);
}

/* ---- comparing -----------------------------------------------------------------------------------------------------
 */

/* A tensor as it is now. */
typedef struct present {
  const char *name;
  ckpt_digest digest;
  const ckpt_tensor *source, *made; /* of a replay: what of the input it is made from, what it becomes; else NULL */
  uint64_t n_underflow;
} present;

static int compare_names(const void *a, const void *b) {
  return strcmp(((const present *)a)->name, ((const present *)b)->name);
}

/* Tensors as they are now, in byte order of names, to be met by those that the receipt lists. */
typedef struct comparison {
  const present *entries;
  bool *is_met;
  size_t n;
  uint32_t output, number; /* wanted; of the output that is being read */
  const char *file, *whose;
  const reporter *to;
} comparison;

/* A tensor as the receipt lists it. */
typedef struct listed {
  char name[CKPT_JSON_FILE_MAX_TEXT + 1], source[CKPT_JSON_FILE_MAX_TEXT + 1]; /* empty: none */
  char from[32], to[32];
  uint64_t n_bytes, n_underflow;
  recorded_output digest;
} listed;

/* What was decided then against what the replay does. */
static void compare_decision(const comparison *c, const listed *then, const present *now) {
  const char *source = now->source == NULL ? "" : now->source->name;
  const char *from = now->source == NULL ? "" : ckpt_dtype_name((ckpt_dtype)now->source->dtype);
  const char *to = ckpt_dtype_name((ckpt_dtype)now->made->dtype);
  if (strcmp(then->source, source) != 0 || strcmp(then->from, from) != 0 || strcmp(then->to, to) != 0)
    say(c->to, c->file, then->name, "the receipt says that it is %s of %s as %s, the replay makes it of %s of %s as %s",
        then->from, then->source, then->to, from, source, to);
  else if (then->n_bytes != now->made->n_bytes || then->n_underflow != now->n_underflow)
    say(c->to, c->file, then->name,
        "the receipt says %" PRIu64 " bytes and %" PRIu64 " values lost to zero, the replay %" PRIu64 " and %" PRIu64,
        then->n_bytes, then->n_underflow, now->made->n_bytes, now->n_underflow);
}

static void compare_tensor(const comparison *c, const listed *tensor) {
  const char *name = tensor->name;
  if (name[0] == '\0' || !tensor->digest.has_digest) {
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
  if (memcmp(&c->entries[low].digest, &tensor->digest.digest, sizeof tensor->digest.digest) != 0)
    say(c->to, c->file, name, "%s has other values, dtype or shape than the receipt says", c->whose);
  if (c->entries[low].made != NULL) compare_decision(c, tensor, &c->entries[low]);
}

/* A string or null into a buffer: of a name, of a dtype. */
static ckpt_status read_short(ckpt_json *json, char *into, size_t n_into, ckpt_error *err) {
  const char *text;
  CKPT_TRY(ckpt_json_take_text(json, "what a receipt records", true, &text, err));
  snprintf(into, n_into, "%s", text == NULL ? "" : text);
  return CKPT_OK;
}

static ckpt_status read_name(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)r;
  return read_short(json, into, CKPT_JSON_FILE_MAX_TEXT + 1, err);
}

static ckpt_status read_dtype(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)r;
  return read_short(json, into, sizeof((listed *)0)->to, err);
}

static ckpt_status compare_list(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const comparison *c = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "tensors", err));
  for (;;) {
    bool is_end;
    listed tensor = {0};
    CKPT_TRY(next_object(r, json, "tensors", &is_end, err));
    if (is_end) return CKPT_OK;
    const field fields[] = {{"name", read_name, tensor.name},        {"source", read_name, tensor.source},
                            {"from", read_dtype, tensor.from},       {"to", read_dtype, tensor.to},
                            {"n_bytes", read_size, &tensor.n_bytes}, {"n_underflow", read_size, &tensor.n_underflow},
                            {"digest", read_digest, &tensor.digest}};
    CKPT_TRY(read_fields(r, json, fields, sizeof fields / sizeof *fields, err));
    compare_tensor(c, &tensor);
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
static ckpt_status compare_tensors(recorded *r, uint32_t output, const present *entries, size_t n, const char *file,
                                   const char *whose, const reporter *to, ckpt_error *err) {
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
    say(to, file, NULL, "%s has %zu tensor%s that the receipt does not list", whose, n_left, n_left == 1 ? "" : "s");
done:
  ckpt_json_free(json);
  free(c.is_met);
  return ckpt_fail_at(status, err, r->path, NULL);
}

static ckpt_status compare_replayed(recorded *r, const ckpt_plan *plan, const reporter *to, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (uint32_t k = 0; k < plan->n_outputs && status == CKPT_OK; k++) {
    const ckpt_index *described = plan->outputs[k].described;
    present *entries = calloc((size_t)described->n_tensors + 1, sizeof *entries);
    CKPT_TRY_ALLOC(entries, err);
    for (uint32_t i = 0; i < described->n_tensors; i++) {
      const ckpt_tensor *made = &described->tensors[i];
      const ckpt_row *row = &plan->rows[made->origin];
      entries[i] = (present){made->name, row->digest, ckpt_receipt_source(row->expr), made, row->stats.n_underflow};
    }
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
  present *entries = NULL;
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
    entries[i] = (present){.name = index->tensors[index->by_name[i]].name, .digest = hashing.digests[i]};
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
  ckpt_run_options second = {.struct_size = sizeof second};
  if (run != NULL) second = *run;
  second.trace = NULL; /* that is the replay's */
  CKPT_TRY_GOTO(open_inputs(&r, err));
  CKPT_TRY_GOTO(find_output(&r, output, &second, &number, err));
  if (r.version == NULL || strcmp(r.version, ckpt_version()) != 0)
    remark(&to, receipt, "was written by version %s, and is run again by %s", r.version == NULL ? "?" : r.version,
           ckpt_version());
  CKPT_TRY_GOTO(replay(&r, run, &to, err));
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
