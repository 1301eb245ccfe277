/* side_sums.c - see side_sums.h. */
#include "libckpt/recipe/records/side_sums.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/io/contained.h"
#include "libckpt/recipe/records/files.h"
#include "libckpt/recipe/records/json_file.h"

enum { MAX_FILES = 10000 };

void ckpt_side_sums_free(ckpt_side_sums *sums) {
  free(sums->items);
  *sums = (ckpt_side_sums){0};
}

static ckpt_status add(ckpt_side_sums *sums, ckpt_side_sum sum, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&sums->items, sums->n, &sums->capacity, sizeof *sums->items, err));
  sums->items[sums->n++] = sum;
  return CKPT_OK;
}

static int compare_names(const void *a, const void *b) {
  return strcmp(((const ckpt_side_sum *)a)->name, ((const ckpt_side_sum *)b)->name);
}

static void sort(ckpt_side_sums *sums) {
  if (sums->n > 1) qsort(sums->items, sums->n, sizeof *sums->items, compare_names);
}

/* The files of `also` that the index does not have as side files, but that are there. */
static ckpt_status add_others(ckpt_side_sums *out, ckpt_source *source, const ckpt_side_sums *also, ckpt_error *err) {
  const uint32_t n_own = out->n; /* sorted */
  for (uint32_t i = 0; also != NULL && i < also->n; i++) {
    ckpt_side_sum sum = {.name = also->items[i].name};
    ckpt_error absent = {0};
    uint32_t file;
    if (n_own != 0 && bsearch(&sum, out->items, n_own, sizeof sum, compare_names) != NULL) continue;
    ckpt_status status = ckpt_source_add(source, sum.name, &file, &sum.n_bytes, &absent);
    if (status == CKPT_ENOMEM) return ckpt_fail_as(err, status, NULL, NULL, &absent);
    if (status == CKPT_OK) CKPT_TRY(add(out, sum, err));
  }
  sort(out);
  return CKPT_OK;
}

ckpt_status ckpt_side_sums_take(ckpt_side_sums *out, const ckpt_index *index, const ckpt_side_sums *also,
                                bool with_training, const ckpt_run_options *run, ckpt_error *err) {
  for (uint32_t i = 0; also != NULL && i < also->n; i++)
    with_training = with_training || ckpt_side_file_is_training(also->items[i].name);
  for (uint32_t i = 0; i < index->n_side_files; i++)
    if (with_training || !ckpt_side_file_is_training(index->side_files[i].name))
      CKPT_TRY(add(out, (ckpt_side_sum){index->side_files[i].name, index->side_files[i].n_bytes, {0}}, err));
  sort(out);
  CKPT_TRY(add_others(out, index->source, also, err));
  ckpt_file_sum *files = calloc((size_t)out->n + 1, sizeof *files);
  CKPT_TRY_ALLOC(files, err);
  ckpt_status status = CKPT_OK;
  uint64_t size;
  for (uint32_t i = 0; i < out->n && status == CKPT_OK; i++)
    status = ckpt_source_add(index->source, out->items[i].name, &files[i].file, &size, err);
  if (status == CKPT_OK) status = ckpt_sum_files(index->source, files, out->n, run, err);
  for (uint32_t i = 0; i < out->n; i++) memcpy(out->items[i].sha256, files[i].sha256, sizeof files[i].sha256);
  free(files);
  return status;
}

ckpt_status ckpt_side_sums_check_names(const ckpt_index *index, ckpt_error *err) {
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    const char *name = index->side_files[i].name;
    if (ckpt_utf8_length(name, strlen(name)) != strlen(name))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_index_side_path(index, &index->side_files[i]), NULL,
                       "its name is no UTF-8 text, and JSON cannot hold it (rename this file)");
  }
  return CKPT_OK;
}

ckpt_status ckpt_side_sums_written(ckpt_side_sums *out, const ckpt_layout *layout, ckpt_error *err) {
  for (uint32_t i = 0; i < layout->n_files; i++) {
    const ckpt_layout_file *file = &layout->files[i];
    const ckpt_side_file *side = ckpt_layout_carried(file);
    if (side == NULL) continue;
    ckpt_side_sum sum = {.name = file->name, .n_bytes = side->n_bytes};
    memcpy(sum.sha256, file->sha256, sizeof sum.sha256);
    CKPT_TRY(add(out, sum, err));
  }
  sort(out);
  return CKPT_OK;
}

void ckpt_side_sums_print(const ckpt_side_sums *sums, const char *gap, ckpt_stream *out) {
  char hex[65];
  ckpt_stream_text(out, "[");
  for (uint32_t i = 0; i < sums->n; i++) {
    const ckpt_side_sum *sum = &sums->items[i];
    ckpt_stream_printf(out, "%s%s{\"name\":", i == 0 ? "" : ",", gap);
    ckpt_stream_json(out, sum->name, strlen(sum->name));
    ckpt_stream_printf(out, ",\"n_bytes\":%" PRIu64 ",\"sha256\":\"%s\"}", sum->n_bytes,
                       ckpt_sum_text(sum->sha256, hex));
  }
  ckpt_stream_text(out, "]");
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static ckpt_status read_one(ckpt_side_sums *out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err) {
  ckpt_side_sum sum = {0};
  bool has_size = false, has_sum = false;
  for (;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) break;
    const char *key = ckpt_json_text(json, NULL), *text;
    if (strcmp(key, "name") == 0) {
      CKPT_TRY(ckpt_json_take_text(json, "a name", false, &text, err));
      if (!ckpt_name_is_contained(text))
        return ckpt_json_fail(json, err, "side file '%.200s' is not below the folder", text);
      sum.name = ckpt_arena_copy(arena, text);
      if (sum.name == NULL) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "the names of its side files are too long");
    } else if (strcmp(key, "n_bytes") == 0) {
      CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_NUMBER, "a size", err));
      has_size = ckpt_json_u64(json, &sum.n_bytes);
    } else if (strcmp(key, "sha256") == 0) {
      CKPT_TRY(ckpt_json_take_text(json, "a SHA-256", false, &text, err));
      has_sum = strlen(text) == 64 && ckpt_sum_parse(text, sum.sha256);
    } else {
      CKPT_TRY(ckpt_json_skip(json, err));
    }
  }
  if (sum.name == NULL || !has_size || !has_sum)
    return ckpt_json_fail(json, err, "a side file without name, n_bytes or sha256");
  if (out->n == MAX_FILES) return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "more than %d side files", MAX_FILES);
  return add(out, sum, err);
}

ckpt_status ckpt_side_sums_read(ckpt_side_sums *out, ckpt_json *json, ckpt_arena *arena, ckpt_error *err) {
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "side_files", err));
  for (;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(json, &token, err));
    if (token == CKPT_JSON_ARRAY_END) break;
    if (token != CKPT_JSON_OBJECT) return ckpt_json_fail(json, err, "a side file is an object");
    CKPT_TRY(read_one(out, json, arena, err));
  }
  sort(out);
  for (uint32_t i = 1; i < out->n; i++)
    if (compare_names(&out->items[i - 1], &out->items[i]) == 0)
      return ckpt_json_fail(json, err, "side file '%.200s' stands there twice", out->items[i].name);
  return CKPT_OK;
}

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* One that either list has: NULL for the other's. */
static void compare_one(const ckpt_side_comparison *c, const ckpt_side_sum *then, const ckpt_side_sum *now) {
  char path[PATH_MAX], then_sum[65] = "", now_sum[65] = "";
  ckpt_error found = {0};
  snprintf(path, sizeof path, "%s/%s", c->folder, then != NULL ? then->name : now->name);
  if (then != NULL) ckpt_sum_text(then->sha256, then_sum);
  if (now != NULL) ckpt_sum_text(now->sha256, now_sum);
  if (now == NULL)
    (void)ckpt_fail(&found, CKPT_EDIFFERENT, path, NULL,
                    "%s does not have it, %s lists it with SHA-256 %s (%" PRIu64 " byte%s)", c->whose, c->record,
                    then_sum, then->n_bytes, ckpt_plural(then->n_bytes));
  else if (then == NULL)
    (void)ckpt_fail(&found, CKPT_EDIFFERENT, path, NULL,
                    "%s has it with SHA-256 %s (%" PRIu64 " byte%s), %s does not list it", c->whose, now_sum,
                    now->n_bytes, ckpt_plural(now->n_bytes), c->record);
  else
    (void)ckpt_fail(&found, CKPT_EDIFFERENT, path, NULL,
                    "%s has it with SHA-256 %s (%" PRIu64 " byte%s), %s lists it with %s (%" PRIu64 " byte%s)",
                    c->whose, now_sum, now->n_bytes, ckpt_plural(now->n_bytes), c->record, then_sum, then->n_bytes,
                    ckpt_plural(then->n_bytes));
  c->report(c->arg, &found);
}

void ckpt_side_sums_compare(const ckpt_side_comparison *c) {
  const ckpt_side_sums *then = c->then, *now = c->now;
  for (uint32_t i = 0, k = 0; i < then->n || k < now->n;) {
    const ckpt_side_sum *a = i < then->n ? &then->items[i] : NULL, *b = k < now->n ? &now->items[k] : NULL;
    int order = a == NULL ? 1 : b == NULL ? -1 : compare_names(a, b);
    i += order <= 0;
    k += order >= 0;
    if (order < 0)
      compare_one(c, a, NULL);
    else if (order > 0 && (c->is_excused == NULL || !c->is_excused(c->arg, b->name)))
      compare_one(c, NULL, b);
    else if (order == 0 && (a->n_bytes != b->n_bytes || memcmp(a->sha256, b->sha256, sizeof a->sha256) != 0))
      compare_one(c, a, b);
  }
}
