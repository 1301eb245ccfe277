/* diff.c - `ckpt diff`: what two checkpoints do not have in common. */
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/index/arch.h"
#include "libckpt/index/config.h"
#include "libckpt/index/masters.h"
#include "libckpt/recipe/compare/diff.h"
#include "libckpt/recipe/compare/hash.h"
#include "libckpt/recipe/select/select.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* The lists of the result, in the order in which they are shown. */
typedef enum list { LIST_ONLY_A, LIST_ONLY_B, LIST_DTYPE, LIST_SHAPE, LIST_VALUE, N_LISTS } list;

static const char *const list_keys[N_LISTS] = {"only_a", "only_b", "dtype", "shape", "value"};

/* A tensor of another dtype whose values were compared, too, and differ stands in two lists. */
static bool is_in(const ckpt_diff_pair *pair, list which) {
  ckpt_diff_kind kind = ckpt_diff_judge(pair);
  switch (which) {
    case LIST_ONLY_A: return kind == CKPT_DIFF_ONLY_A;
    case LIST_ONLY_B: return kind == CKPT_DIFF_ONLY_B;
    case LIST_DTYPE: return kind == CKPT_DIFF_DTYPE || kind == CKPT_DIFF_DTYPE_ONLY;
    case LIST_SHAPE: return kind == CKPT_DIFF_SHAPE;
    default: return kind == CKPT_DIFF_VALUE || (kind == CKPT_DIFF_DTYPE && pair->difference != NULL);
  }
}

/* Differences in bits alone: -0.0 against 0.0, NaNs of other bits. */
static bool is_bits_only(const ckpt_diff_pair *pair) { return !pair->by_value && pair->difference->n_different == 0; }

static double rmse(const ckpt_difference *d) { return d->n == 0 ? 0 : sqrt(d->sum_sq / (double)d->n); }

/* ---- text -------------------------------------------------------------------------------------------------------- */

/* "[2,3]", of a shape or of the place of a flat index in it. */
static void print_place(const ckpt_tensor *tensor, const uint64_t *flat) {
  uint64_t below[CKPT_MAX_RANK + 1];
  below[tensor->rank] = 1;
  for (uint32_t i = tensor->rank; i-- > 0;) below[i] = below[i + 1] * (tensor->shape[i] == 0 ? 1 : tensor->shape[i]);
  putchar('[');
  for (uint32_t i = 0; i < tensor->rank; i++)
    printf("%s%" PRIu64, i == 0 ? "" : ",", flat == NULL ? tensor->shape[i] : *flat % below[i] / below[i + 1]);
  putchar(']');
}

static void print_value(const ckpt_diff_pair *pair) {
  char number[32], count[32], all[32];
  uint64_t first, n = ckpt_diff_count(pair, &first);
  const ckpt_difference *d = pair->difference;
  printf("%s of %s differ, first at ", ckpt_text_count(n, count), ckpt_text_count(d->n, all));
  print_place(pair->a, &first);
  if (is_bits_only(pair)) {
    fputs(", in bits only, not in value", stdout);
    return;
  }
  printf(", max abs %s", ckpt_text_number(d->max_abs, number));
  printf(", max rel %s", ckpt_text_number(d->max_rel, number));
  printf(", rmse %s", ckpt_text_number(rmse(d), number));
}

static void print_pair(const ckpt_diff_pair *pair, list which) {
  static const char *const heads[N_LISTS] = {"only in A", "only in B", "dtype", "shape", "value"};
  const ckpt_tensor *tensor = pair->a != NULL ? pair->a : pair->b;
  printf("%-9s  ", heads[which]);
  ckpt_text_print(stdout, pair->name);
  fputs("  ", stdout);
  if (which == LIST_ONLY_A || which == LIST_ONLY_B) {
    printf("%s ", ckpt_dtype_name((ckpt_dtype)tensor->dtype));
    print_place(tensor, NULL);
  } else if (which == LIST_DTYPE) {
    printf("%s in A, %s in B", ckpt_dtype_name(pair->dtype_a), ckpt_dtype_name(pair->dtype_b));
    if (ckpt_diff_judge(pair) == CKPT_DIFF_DTYPE_ONLY) fputs(" (values within the tolerance)", stdout);
  } else if (which == LIST_SHAPE) {
    print_place(pair->a, NULL);
    fputs(" in A, ", stdout);
    print_place(pair->b, NULL);
    fputs(" in B", stdout);
  } else {
    print_value(pair);
  }
  putchar('\n');
}

/* Tensors of both sides that --include leaves out, but for masters, which stand for what is compared. */
static size_t count_others(const ckpt_diff *diff) {
  size_t n = 0;
  const ckpt_index *const sides[2] = {diff->a, diff->b};
  for (int side = 0; side < 2; side++)
    for (uint32_t i = 0; i < sides[side]->n_tensors; i++)
      n += !ckpt_role_included(diff->options.include, (ckpt_role)sides[side]->tensors[i].role, NULL) &&
           !ckpt_master_stands(sides[side], &sides[side]->tensors[i]);
  return n;
}

/* What unread states are called. */
static const char *states_of(const ckpt_note *note) {
  return note->file == NULL ? "states of the optimizer" : ckpt_path_name(note->file);
}

/* Tensors of a side that are not read: nobody knows whether they are equal. An optimizer's go by their file. */
static ckpt_name_list unread_of(const ckpt_index *index, const char *include) {
  ckpt_name_list names = ckpt_unread_list(index, include, false);
  for (uint32_t i = 0; i < index->n_notes; i++)
    if (ckpt_states_unread(&index->notes[i], include)) ckpt_name_list_add(&names, states_of(&index->notes[i]));
  return names;
}

static size_t count_unread(const ckpt_diff *diff) {
  return unread_of(diff->a, diff->options.include).n + unread_of(diff->b, diff->options.include).n;
}

static void print_unread(const ckpt_diff *diff) {
  const ckpt_name_list names[2] = {unread_of(diff->a, diff->options.include),
                                   unread_of(diff->b, diff->options.include)};
  size_t n = names[0].n + names[1].n;
  if (n == 0) return;
  printf("not compared: %zu tensor%s not read (", n, n == 1 ? " that is" : "s that are");
  for (int side = 0; side < 2; side++) {
    if (names[side].n == 0) continue;
    printf("%s%c: ", side == 1 && names[0].n != 0 ? "; " : "", side == 0 ? 'A' : 'B');
    ckpt_text_print(stdout, names[side].text);
  }
  puts(")");
}

static void print_text(const ckpt_diff *diff, const size_t *n_in, size_t n_different, bool is_proven) {
  for (int which = 0; which < N_LISTS; which++)
    for (size_t i = 0; n_in[which] != 0 && i < diff->n && !ferror(stdout); i++)
      if (is_in(&diff->pairs[i], (list)which)) print_pair(&diff->pairs[i], (list)which);
  char count[32], different[32];
  size_t n_others = count_others(diff);
  if (n_others != 0)
    printf("not compared: %s tensor%s of other roles (--include all)\n", ckpt_text_count(n_others, count),
           ckpt_plural(n_others));
  print_unread(diff);
  if (n_different == 0 && !is_proven)
    printf("not proven equal: no difference in %s tensor%s\n", ckpt_text_count(diff->n, count), ckpt_plural(diff->n));
  else if (n_different == 0)
    printf("equal: %s tensor%s\n", ckpt_text_count(diff->n, count), ckpt_plural(diff->n));
  else
    printf("different: %s of %s tensor%s\n", ckpt_text_count(n_different, different), ckpt_text_count(diff->n, count),
           ckpt_plural(diff->n));
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void write_shape(ckpt_emitter *json, const char *key, const ckpt_tensor *tensor) {
  ckpt_emit_array(json, key);
  for (uint32_t i = 0; i < tensor->rank; i++) ckpt_emit_u64(json, NULL, tensor->shape[i]);
  ckpt_emit_end(json);
}

static void write_pair(ckpt_emitter *json, const ckpt_diff_pair *pair, list which) {
  if (which == LIST_ONLY_A || which == LIST_ONLY_B) {
    ckpt_emit_text(json, NULL, pair->name);
    return;
  }
  ckpt_emit_object(json, NULL);
  ckpt_emit_text(json, "name", pair->name);
  if (which == LIST_DTYPE) {
    ckpt_emit_text(json, "a", ckpt_dtype_name(pair->dtype_a));
    ckpt_emit_text(json, "b", ckpt_dtype_name(pair->dtype_b));
    if (pair->difference != NULL) ckpt_emit_bool(json, "within_tolerance", ckpt_diff_count(pair, NULL) == 0);
  } else if (which == LIST_SHAPE) {
    write_shape(json, "a", pair->a);
    write_shape(json, "b", pair->b);
  } else {
    uint64_t first;
    ckpt_emit_number(json, "max_abs", pair->difference->max_abs);
    ckpt_emit_number(json, "max_rel", pair->difference->max_rel);
    ckpt_emit_number(json, "rmse", rmse(pair->difference));
    ckpt_emit_u64(json, "n_different", ckpt_diff_count(pair, &first));
    ckpt_emit_u64(json, "n", pair->difference->n);
    ckpt_emit_u64(json, "first", first);
    ckpt_emit_bool(json, "bits_only", is_bits_only(pair));
  }
  ckpt_emit_end(json);
}

static void write_unread(ckpt_emitter *json, const ckpt_diff *diff) {
  const ckpt_index *const sides[2] = {diff->a, diff->b};
  ckpt_emit_array(json, "not_read");
  for (int side = 0; side < 2; side++) {
    for (uint32_t i = 0; i < sides[side]->n_unread; i++)
      if (ckpt_role_included(diff->options.include, sides[side]->unread[i].role, NULL))
        ckpt_emit_text(json, NULL, sides[side]->unread[i].name);
    for (uint32_t i = 0; i < sides[side]->n_notes; i++)
      if (ckpt_states_unread(&sides[side]->notes[i], diff->options.include))
        ckpt_emit_text(json, NULL, states_of(&sides[side]->notes[i]));
  }
  ckpt_emit_end(json);
}

static void write_json(const ckpt_args *args, const ckpt_diff *diff, size_t n_different, bool is_proven) {
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", n_different != 0 ? "different" : is_proven ? "ok" : "problems");
  ckpt_emit_bool(&json, "equal", n_different == 0 && is_proven);
  for (int which = 0; which < N_LISTS; which++) {
    ckpt_emit_array(&json, list_keys[which]);
    for (size_t i = 0; i < diff->n; i++)
      if (is_in(&diff->pairs[i], (list)which)) write_pair(&json, &diff->pairs[i], (list)which);
    ckpt_emit_end(&json);
  }
  ckpt_emit_u64(&json, "n_tensors", diff->n);
  ckpt_emit_u64(&json, "n_not_compared", count_others(diff));
  write_unread(&json, diff);
  ckpt_emit_text(&json, "weights_a", diff->a->weights);
  ckpt_emit_text(&json, "weights_b", diff->b->weights);
  ckpt_report_emit_notes(args, &json, NULL, 0);
  ckpt_emit_end(&json);
}

/* ---- beside the tensors, which alone it judges --------------------------------------------------------------------
 */

/* A config as JSON, without what a conversion rewrites; NULL: it is no JSON. */
static json_t *config_of(const char *text, uint64_t n_bytes) {
  static const char *const rewritten[] = {"dtype", "torch_dtype", "transformers_version", "_name_or_path"};
  json_t *config = ckpt_config_json(text, (size_t)n_bytes, 0, NULL);
  for (size_t i = 0; i < sizeof rewritten / sizeof *rewritten && json_is_object(config); i++)
    json_object_del(config, rewritten[i]);
  return config;
}

static ckpt_status compare_configs(const ckpt_args *args, ckpt_index *a, ckpt_index *b, ckpt_error *err) {
  const ckpt_side_file *of_a = ckpt_index_side_file(a, "config.json"), *of_b = ckpt_index_side_file(b, "config.json");
  const char *text_a, *text_b;
  if (of_a == NULL || of_b == NULL) return CKPT_OK;
  CKPT_TRY(ckpt_index_side_text(a, of_a, CKPT_CONFIG_MAX_BYTES, &text_a, err));
  CKPT_TRY(ckpt_index_side_text(b, of_b, CKPT_CONFIG_MAX_BYTES, &text_b, err));
  if (of_a->n_bytes == of_b->n_bytes && memcmp(text_a, text_b, (size_t)of_a->n_bytes) == 0) return CKPT_OK;
  json_t *json_a = config_of(text_a, of_a->n_bytes), *json_b = config_of(text_b, of_b->n_bytes);
  if (json_a == NULL || json_b == NULL || !json_equal(json_a, json_b))
    ckpt_report_warning(args, "config.json differs: tensors alone are compared");
  json_decref(json_a);
  json_decref(json_b);
  return CKPT_OK;
}

/* Whether a typed value and what another index has under its key are the same: their types and bytes. */
static ckpt_status is_same(bool *out, const ckpt_meta *meta, const ckpt_meta *there, ckpt_error *err) {
  *out = false;
  return there->typed == NULL ? CKPT_OK : ckpt_gguf_value_same(out, meta->typed, there->typed, err);
}

/* Counts what describes a model, not its file: keys of one that the other lacks, or, where values_too, has with another
 * value. */
static ckpt_status count_keys(size_t *n, const ckpt_index *of, const ckpt_index *other, bool values_too,
                              const char **first, ckpt_error *err) {
  for (uint32_t i = 0; i < of->n_metadata; i++) {
    const ckpt_meta *meta = &of->metadata[i], *there = ckpt_index_meta(other, meta->key);
    bool same = there != NULL;
    if (meta->typed == NULL || strncmp(meta->key, "general.", 8) == 0 || strncmp(meta->key, "quantize.", 9) == 0)
      continue;
    if (same && values_too) CKPT_TRY(is_same(&same, meta, there, err));
    if (!same && (*n)++ == 0) *first = meta->key;
  }
  return CKPT_OK;
}

static ckpt_status compare_metadata(const ckpt_args *args, const ckpt_index *a, const ckpt_index *b, ckpt_error *err) {
  const char *first = NULL;
  size_t n = 0;
  if (strcmp(a->format, b->format) != 0) return CKPT_OK;
  CKPT_TRY(count_keys(&n, a, b, true, &first, err));
  CKPT_TRY(count_keys(&n, b, a, false, &first, err));
  if (n != 0)
    ckpt_report_warning(args, "metadata differs in %zu key%s (%s%s): tensors alone are compared", n, n == 1 ? "" : "s",
                        first, n == 1 ? "" : ", ...");
  return CKPT_OK;
}

static bool has_objects(const ckpt_index *index) { return index->objects != NULL && index->objects->n != 0; }

static void name_objects(const ckpt_args *args, const ckpt_index *a, const ckpt_index *b, const char *include) {
  const ckpt_index *of = has_objects(a) ? a : b;
  if (strcmp(include, "model") == 0 || !has_objects(of)) return;
  const ckpt_object *key = of->objects->items[0];
  ckpt_report_warning(args, "not compared: objects (%s%s)", key->kind == CKPT_OBJECT_TEXT ? key->text : "...",
                      of->objects->n == 1 ? "" : ", ...");
}

/* ---- the verb ---------------------------------------------------------------------------------------------------- */

static bool is_tied_copy(const ckpt_index *index, const ckpt_tensor *tensor) {
  const ckpt_tensor *kept, *tied;
  for (size_t i = 0; ckpt_arch_tied_pair(index, i, &kept, &tied); i++)
    if (tied == tensor) return true;
  return false;
}

/* Tensors that met by another of their names are equal, and their checkpoints have other digests. */
static void note_digests(const ckpt_args *args, const ckpt_diff *diff) {
  if (diff->a == diff->apart[0] || diff->b == diff->apart[1])
    ckpt_report_note(args, "the digests of A and B differ: %s has the names of a state dict, %s those of files",
                     diff->a == diff->apart[0] ? "A" : "B", diff->a == diff->apart[0] ? "B" : "A");
  const ckpt_diff_pair *first = NULL;
  size_t n = 0;
  for (size_t i = 0; i < diff->n && !diff->options.has_tolerance; i++) {
    const ckpt_diff_pair *pair = &diff->pairs[i];
    if (ckpt_diff_judge(pair) != CKPT_DIFF_EQUAL || strcmp(pair->a->name, pair->b->name) == 0) continue;
    if (is_tied_copy(diff->a, pair->a) || is_tied_copy(diff->b, pair->b)) continue;
    if (n++ == 0) first = pair;
  }
  if (n != 0)
    ckpt_report_note(args,
                     "the digests of A and B differ: %zu tensor%s of several names count%s under another one (%s "
                     "in A, %s in B)",
                     n, ckpt_plural(n), n == 1 ? "s" : "", first->a->name, first->b->name);
}

static void print_notes(const ckpt_args *args, const ckpt_diff *diff, size_t n_different, const ckpt_input inputs[2]) {
  ckpt_input_print_notes(args, &inputs[0]);
  ckpt_input_print_notes(args, &inputs[1]);
  const char *a = inputs[0].index->names, *b = inputs[1].index->names;
  if (strcmp(a, b) != 0 && (n_different != 0 || !ckpt_names_agree(a, b)))
    ckpt_report_note(args, "names are %s in A and %s in B", a, b);
  if (n_different == 0) note_digests(args, diff);
  for (size_t i = 0; i < diff->n; i++)
    if (ckpt_diff_judge(&diff->pairs[i]) == CKPT_DIFF_TIED)
      ckpt_report_note(args, "%s is stored in %s only, and equal to %s, to which the config ties it",
                       diff->pairs[i].name, diff->pairs[i].a != NULL ? "A" : "B", diff->pairs[i].kept->name);
}

static int report(const ckpt_args *args, const ckpt_diff *diff, const ckpt_input inputs[2]) {
  size_t n_in[N_LISTS] = {0}, n_different = 0;
  for (size_t i = 0; i < diff->n; i++) {
    n_different += ckpt_diff_counts(ckpt_diff_judge(&diff->pairs[i]));
    for (int which = 0; which < N_LISTS; which++) n_in[which] += is_in(&diff->pairs[i], (list)which);
  }
  bool is_proven = count_unread(diff) == 0;
  print_notes(args, diff, n_different, inputs);
  if (args->json)
    write_json(args, diff, n_different, is_proven);
  else
    print_text(diff, n_in, n_different, is_proven);
  return n_different == 0 && is_proven ? CKPT_EXIT_DONE : CKPT_EXIT_FAILED;
}

/* No tensor against no tensor is equal only where there is nothing else. */
static ckpt_status check_any(const ckpt_diff *diff, ckpt_error *err) {
  const bool is_empty = diff->a->n_tensors + diff->b->n_tensors == 0;
  if (diff->n != 0 || (is_empty && !has_objects(diff->a) && !has_objects(diff->b))) return CKPT_OK;
  if (is_empty)
    return ckpt_fail(err, CKPT_ENOTFOUND, diff->a->path, NULL,
                     "nothing to compare: neither it nor %s has a tensor, and objects are not compared", diff->b->path);
  return ckpt_fail(err, CKPT_ENOTFOUND, diff->a->path, NULL,
                   "nothing to compare: neither it nor %s has tensors of --include %s", diff->b->path,
                   diff->options.include);
}

static ckpt_status report_rest(const ckpt_args *args, ckpt_index *a, ckpt_index *b, const char *include,
                               ckpt_error *err) {
  CKPT_TRY(compare_metadata(args, a, b, err));
  name_objects(args, a, b, include);
  return compare_configs(args, a, b, err);
}

static ckpt_status check_requantize(const ckpt_args *args, ckpt_error *err) {
  if (ckpt_args_has(args, "requantize") && ckpt_args_has(args, "cast"))
    return ckpt_args_fail(args, err, "--requantize compares B as it is stored, --cast does not");
  return CKPT_OK;
}

static int run(ckpt_args *args) {
  ckpt_diff_options diff_options = {.include = ckpt_args_text(args, "include", "model"),
                                    .cast = ckpt_args_dtype(args, "cast"),
                                    .has_tolerance = ckpt_args_has(args, "atol") || ckpt_args_has(args, "rtol"),
                                    .tolerance = {ckpt_args_number(args, "atol", 0), ckpt_args_number(args, "rtol", 0)},
                                    .requantizes = ckpt_args_has(args, "requantize")};
  ckpt_index *imatrix = NULL;
  ckpt_error err = {0};
  ckpt_input inputs[2] = {{0}, {0}};
  ckpt_diff *diff = NULL;
  bool is_printed = false;
  int exit_status = CKPT_EXIT_DONE;
  ckpt_status status = check_requantize(args, &err);
  if (status == CKPT_OK) status = ckpt_input_open(&inputs[0], args, 0, &err);
  if (status == CKPT_OK) status = ckpt_input_open(&inputs[1], args, 1, &err);
  if (status == CKPT_OK) status = ckpt_input_open_imatrix(&imatrix, args, &err);
  diff_options.imatrix = imatrix;
  if (status == CKPT_OK) status = ckpt_diff_new(&diff, inputs[0].index, inputs[1].index, &diff_options, &err);
  if (status == CKPT_OK) status = check_any(diff, &err);
  if (status == CKPT_OK) {
    ckpt_proof proof = ckpt_diff_proof(diff);
    proof.allow_overflow = ckpt_args_has(args, "allow-overflow");
    status = ckpt_proving_run(args, &proof, &is_printed, &err);
  }
  if (status == CKPT_OK && !is_printed)
    status = report_rest(args, inputs[0].index, inputs[1].index, diff_options.include, &err);
  if (status == CKPT_OK && !is_printed) exit_status = report(args, diff, inputs);
  ckpt_diff_free(diff);
  ckpt_input_close(&inputs[0]);
  ckpt_input_close(&inputs[1]);
  ckpt_index_free(imatrix);
  return status == CKPT_OK ? exit_status : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_diff = {
    .name = "diff",
    .forms =
        "diff A B [--atol X] [--rtol X] [--cast DTYPE] [--include WHAT]\n"
        "diff A B --requantize [--imatrix FILE]",
    .summary = "compare two checkpoints",
    .details =
        "Reports names only in A, names only in B, and different dtypes, shapes and values. For values it "
        "gives the largest absolute and relative difference, the count and the first index. Formats and "
        "shards may differ. Exit 0 when equal, 1 when different.\n"
        "\n"
        "Without a tolerance, equal means equal bits: -0.0 differs from 0.0, and NaNs with different bits "
        "differ (`bits only`). With --atol or --rtol, floating tensors are equal if |a - b| <= atol + rtol * "
        "|b|, and NaN equals NaN. A different dtype is then listed, but does not count as a difference. "
        "Integers are always compared by bits. Tied weights may be stored once or twice. Tensors that cannot "
        "be read (quantized ones of torch files) are listed. If nothing else differs, the result is then "
        "`not proven equal`, status `problems`, exit 1.\n"
        "\n"
        "--requantize proves that a quantized model was made from its source. It quantizes or casts every "
        "tensor of A to the type of B's tensor, and requires B's bytes. Give the importance matrix that B "
        "was made with.\n"
        "\n"
        "  ckpt diff model-f16.gguf model-Q4_K_M.gguf --requantize --imatrix imatrix.gguf",
    .json =
        "{\"status\",\"equal\",\"only_a\":[],\"only_b\":[],\"dtype\":[],\"shape\":[],\"value\":[{\"name\",\"max_abs\","
        "\"max_rel\",\"rmse\",\"n_different\",\"n\",\"first\",\"bits_only\"}],\"n_tensors\",\"n_not_compared\","
        "\"not_read\":[],\"weights_a\",\"weights_b\",\"notes\":[]}; numbers that are "
        "infinite are null",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 2,
    .max_inputs = 2,
    .run = run,
};
