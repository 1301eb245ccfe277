/* replay.c - a receipt read back, its plan rebuilt and run into the digest only; receipt.c has the form. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/backend.h"
#include "libckpt/error.h"
#include "libckpt/recipe/apart.h"
#include "libckpt/recipe/receipt.h"
#include "libckpt/run.h"
#include "libckpt/source.h"

#define MAX_RECEIPT_BYTES (UINT64_C(1) << 30)

/* A receipt as it was read, and the request that it stands for. */
typedef struct recorded {
  const char *path; /* of the receipt */
  json_t *root;
  ckpt_arena arena;
  ckpt_convert_options options;
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

static ckpt_status parse(recorded *r, ckpt_error *err) {
  json_error_t defect;
  struct stat found; /* a pipe would block, and has no size to bound */
  if (stat(r->path, &found) != 0) return ckpt_fail_errno(err, r->path, "cannot be opened");
  if (!S_ISREG(found.st_mode)) return ckpt_fail(err, CKPT_EINVAL, r->path, NULL, "is no regular file");
  FILE *file = fopen(r->path, "re");
  if (file == NULL) return ckpt_fail_errno(err, r->path, "cannot be opened");
  bool fits = fseeko(file, 0, SEEK_END) == 0 && ftello(file) >= 0 && (uint64_t)ftello(file) <= MAX_RECEIPT_BYTES;
  rewind(file);
  if (fits) r->root = json_loadf(file, JSON_REJECT_DUPLICATES, &defect);
  fclose(file);
  if (!fits) return ckpt_fail(err, CKPT_ELIMIT, r->path, NULL, "larger than 1 GiB, or no file");
  if (r->root == NULL)
    return ckpt_fail(err, CKPT_EFORMAT, r->path, NULL, "no JSON: %s (line %d, column %d)", defect.text, defect.line,
                     defect.column);
  if (json_integer_value(json_object_get(r->root, "ckpt_receipt")) != 1)
    return refuse(r, "no \"ckpt_receipt\": 1", err);
  return CKPT_OK;
}

/* Text under key; NULL where it is null or absent. */
static const char *text(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

static ckpt_status read_list(recorded *r, const json_t *options, const char *key, const char *const **out,
                             ckpt_error *err) {
  const json_t *list = json_object_get(options, key);
  size_t n = json_array_size(list);
  *out = NULL;
  if (n == 0) return CKPT_OK;
  const char **texts = ckpt_arena_array(&r->arena, n + 1, sizeof *texts);
  CKPT_TRY_ALLOC(texts, err);
  for (size_t i = 0; i < n; i++) {
    texts[i] = json_string_value(json_array_get(list, i));
    if (texts[i] == NULL) return refuse(r, key, err);
  }
  *out = texts;
  return CKPT_OK;
}

static ckpt_status read_casts(recorded *r, const json_t *options, ckpt_error *err) {
  const json_t *list = json_object_get(options, "dtype");
  size_t n = json_array_size(list);
  ckpt_cast_rule *casts = ckpt_arena_array(&r->arena, n + 1, sizeof *casts);
  CKPT_TRY_ALLOC(casts, err);
  for (size_t i = 0; i < n; i++) {
    const json_t *rule = json_array_get(list, i);
    const char *dtype = text(rule, "dtype");
    casts[i] = (ckpt_cast_rule){text(rule, "pattern"), dtype == NULL ? CKPT_DTYPE_NONE : ckpt_dtype_parse(dtype)};
    if (casts[i].dtype == CKPT_DTYPE_NONE) return refuse(r, "dtype", err);
  }
  r->options.casts = casts;
  r->options.n_casts = n;
  return CKPT_OK;
}

static ckpt_status read_targets(recorded *r, ckpt_error *err) {
  const json_t *outputs = json_object_get(r->root, "outputs");
  size_t n = json_array_size(outputs);
  if (n == 0 || n > UINT32_MAX) return refuse(r, "outputs", err);
  r->targets = ckpt_arena_array(&r->arena, n, sizeof *r->targets);
  CKPT_TRY_ALLOC(r->targets, err);
  for (size_t i = 0; i < n; i++) {
    const json_t *output = json_array_get(outputs, i);
    json_int_t shard_size = json_integer_value(json_object_get(output, "shard_size"));
    r->targets[i] = (ckpt_convert_target){text(output, "path"), text(output, "format"), (uint64_t)shard_size};
    if (r->targets[i].path == NULL || r->targets[i].to == NULL || shard_size < 0) return refuse(r, "outputs", err);
  }
  r->request.targets = r->targets;
  r->request.n_targets = (uint32_t)n;
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

/* The request that was made then, over what stands at the inputs' paths now. */
static ckpt_status read_request(recorded *r, ckpt_error *err) {
  const json_t *options = json_object_get(r->root, "options"), *inputs = json_object_get(r->root, "inputs");
  const char *names = text(options, "names");
  r->options.struct_size = sizeof r->options;
  r->options.input = text(json_array_get(inputs, 0), "path");
  r->options.include = text(options, "include");
  r->options.allow_overflow = json_is_true(json_object_get(options, "allow_overflow"));
  r->options.stored_names = names != NULL && strcmp(names, "stored") == 0;
  if (r->options.input == NULL) return refuse(r, "inputs", err);
  CKPT_TRY(read_casts(r, options, err));
  CKPT_TRY(read_list(r, options, "match", &r->options.match, err));
  CKPT_TRY(read_list(r, options, "exclude", &r->options.exclude, err));
  CKPT_TRY(read_list(r, options, "rename", &r->options.rename, err));
  CKPT_TRY(read_targets(r, err));
  ckpt_open_options open = {.struct_size = sizeof open, .stored_names = r->options.stored_names};
  open.weights = text(options, "weights");
  CKPT_TRY(open_input(r, &r->from, r->options.input, &open, err));
  open.weights = NULL;
  r->request.like_path = text(options, "like");
  if (r->request.like_path != NULL) CKPT_TRY(open_input(r, &r->like, r->request.like_path, &open, err));
  r->request.verb = text(r->root, "verb");
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

/* A recorded tensor's digest; false where the receipt has none. */
static bool recorded_digest(const json_t *object, ckpt_digest *out) {
  const char *digest = text(object, "digest");
  return digest != NULL && ckpt_digest_parse(digest, out);
}

/* Compares tensors by name with those that the receipt lists: entries (sorted by name) is what is there now. */
static void compare_tensors(const json_t *output, const ckpt_digest_entry *entries, size_t n, const char *file,
                            const char *whose, const reporter *to) {
  const json_t *tensors = json_object_get(output, "tensors");
  size_t n_recorded = json_array_size(tensors), n_found = 0;
  for (size_t i = 0; i < n_recorded; i++) {
    const json_t *tensor = json_array_get(tensors, i);
    const char *name = text(tensor, "name");
    ckpt_digest digest;
    if (name == NULL || !recorded_digest(tensor, &digest)) {
      say(to, file, name, "the receipt lists it without a digest");
      continue;
    }
    size_t low = 0, high = n;
    while (low < high) {
      size_t middle = low + (high - low) / 2;
      if (strcmp(entries[middle].name, name) < 0)
        low = middle + 1;
      else
        high = middle;
    }
    bool is_there = low < n && strcmp(entries[low].name, name) == 0;
    n_found += is_there;
    if (!is_there)
      say(to, file, name, "the receipt lists it, %s does not have it", whose);
    else if (memcmp(&entries[low].digest, &digest, sizeof digest) != 0)
      say(to, file, name, "%s has other values, dtype or shape than the receipt says", whose);
  }
  if (n_found < n) say(to, file, NULL, "%s has %zu tensors that the receipt does not list", whose, n - n_found);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const ckpt_digest_entry *)a)->name, ((const ckpt_digest_entry *)b)->name);
}

static ckpt_status compare_replayed(const recorded *r, const ckpt_plan *plan, const reporter *to, ckpt_error *err) {
  for (uint32_t k = 0; k < plan->n_outputs; k++) {
    const ckpt_index *described = plan->outputs[k].described;
    ckpt_digest_entry *entries = calloc((size_t)described->n_tensors + 1, sizeof *entries);
    CKPT_TRY_ALLOC(entries, err);
    for (uint32_t i = 0; i < described->n_tensors; i++)
      entries[i] = (ckpt_digest_entry){described->tensors[i].name, plan->rows[described->tensors[i].origin].digest};
    qsort(entries, described->n_tensors, sizeof *entries, compare_names);
    const json_t *output = json_array_get(json_object_get(r->root, "outputs"), k);
    compare_tensors(output, entries, described->n_tensors, r->targets[k].path, "the replay", to);
    free(entries);
    ckpt_digest digest;
    if (!recorded_digest(output, &digest) || memcmp(&digest, &plan->outputs[k].digest, sizeof digest) != 0)
      say(to, r->targets[k].path, NULL, "the replay gives another content digest than the receipt says");
  }
  return CKPT_OK;
}

static ckpt_status compare_input(const recorded *r, const ckpt_plan *plan, const reporter *to, ckpt_error *err) {
  const json_t *input = json_array_get(json_object_get(r->root, "inputs"), 0);
  const char *names = text(input, "names");
  ckpt_digest then, now;
  char then_text[80], now_text[80];
  CKPT_TRY(ckpt_receipt_input(plan, &r->request, &now, err));
  if (names == NULL || strcmp(names, r->from->names) != 0)
    say(to, r->from->path, NULL, "its tensors were named by %s, and are now by %s", names == NULL ? "nothing" : names,
        r->from->names);
  if (!recorded_digest(input, &then))
    say(to, r->from->path, NULL, "the receipt has no digest of it");
  else if (memcmp(&then, &now, sizeof now) != 0)
    say(to, r->from->path, NULL, "the input has changed (then %s, now %s)", ckpt_digest_text(&then, then_text),
        ckpt_digest_text(&now, now_text));
  return CKPT_OK;
}

/* ---- running -------------------------------------------------------------------------------------------------------
 */

/* The plan of then, every row of which goes into its digest and nowhere else. */
static ckpt_status replay(const recorded *r, const ckpt_run_options *run, const reporter *to, ckpt_error *err) {
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
static ckpt_status look(const recorded *r, const char *path, uint32_t number, const ckpt_run_options *run,
                        const reporter *to, ckpt_error *err) {
  const ckpt_open_options open = {.struct_size = sizeof open, .stored_names = true, .weights = "model"};
  const ckpt_hash_options hash = {.struct_size = sizeof hash, .include = "all"};
  ckpt_index *index = NULL;
  ckpt_plan *plan = NULL;
  ckpt_digest_entry *entries = NULL;
  ckpt_digest whole;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_open(&index, path, &open, err));
  CKPT_TRY_GOTO(ckpt_plan_new(&plan, err));
  CKPT_TRY_GOTO(ckpt_hash_plan(plan, index, &hash, err));
  CKPT_TRY_GOTO(ckpt_plan_run(plan, run, err));
  entries = calloc((size_t)plan->n_rows + 1, sizeof *entries);
  if (entries == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  CKPT_TRY_GOTO(ckpt_hash_result(plan, index, &whole, entries, err));
  compare_tensors(json_array_get(json_object_get(r->root, "outputs"), number), entries, plan->n_rows, path,
                  "the output", to);
done:
  free(entries);
  ckpt_plan_free(plan);
  ckpt_index_free(index);
  return status;
}

ckpt_status ckpt_receipt_replay(const char *receipt, const char *output, const ckpt_run_options *run,
                                ckpt_receipt_problem *report, void *arg, ckpt_error *err) {
  recorded r = {.path = receipt};
  const reporter to = {report, arg};
  uint32_t number;
  ckpt_status status;
  ckpt_arena_init(&r.arena, MAX_RECEIPT_BYTES);
  CKPT_TRY_GOTO(parse(&r, err));
  CKPT_TRY_GOTO(read_request(&r, err));
  CKPT_TRY_GOTO(find_output(&r, output, &number, err));
  CKPT_TRY_GOTO(replay(&r, run, &to, err));
  ckpt_run_options second = {.struct_size = sizeof second};
  if (run != NULL) second = *run;
  second.trace = NULL; /* that is the replay's */
  status = look(&r, output, number, &second, &to, err);
done:
  ckpt_index_free(r.from);
  ckpt_index_free(r.like);
  ckpt_arena_free(&r.arena);
  json_decref(r.root);
  return status;
}
