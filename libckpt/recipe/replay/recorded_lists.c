/* recorded_lists.c - the long lists of a receipt, read each time that they are compared. See recorded.h. */
#include <stdio.h>

#include "libckpt/base/error.h"
#include "libckpt/recipe/replay/recorded_fields.h"

typedef ckpt_recorded recorded;
typedef ckpt_recorded_field field;

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
  return read_short(json, into, sizeof((ckpt_recorded_tensor *)0)->to, err);
}

static ckpt_status read_imatrix_flag(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  ckpt_recorded_tensor *tensor = into;
  tensor->has_imatrix = true;
  return ckpt_recorded_flag(r, json, &tensor->imatrix, err);
}

/* What is read of the lists of one output. */
typedef struct listing {
  uint32_t output;
  void (*take)(void *arg, const ckpt_recorded_tensor *tensor);
  void *arg;
  ckpt_side_sums *side;
  bool *has_side;
} listing;

static ckpt_status read_tensors(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const listing *wanted = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "tensors", err));
  for (;;) {
    bool is_end;
    ckpt_recorded_tensor tensor = {.figures = {-1, -1, UINT64_MAX}};
    CKPT_TRY(ckpt_recorded_next(r, json, "tensors", &is_end, err));
    if (is_end) return CKPT_OK;
    const field fields[] = {{"name", read_name, tensor.name, false},
                            {"source", read_name, tensor.source, false},
                            {"from", read_dtype, tensor.from, false},
                            {"to", read_dtype, tensor.to, false},
                            {"decided_by", read_dtype, tensor.decided_by, true},
                            {"instead_of", read_dtype, tensor.instead_of, true},
                            {"wanted", read_dtype, tensor.wanted, true},
                            {"imatrix", read_imatrix_flag, &tensor, true},
                            {"n_bytes", ckpt_recorded_size, &tensor.n_bytes, false},
                            {"n_underflow", ckpt_recorded_size, &tensor.n_underflow, true},
                            {"update_norm", ckpt_recorded_number, &tensor.figures.norm, true},
                            {"update_relative", ckpt_recorded_number, &tensor.figures.relative, true},
                            {"n_unchanged", ckpt_recorded_size, &tensor.figures.n_unchanged, true},
                            {"digest", ckpt_recorded_digest, &tensor.digest, false}};
    CKPT_TRY(ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err));
    if (tensor.name[0] == '\0') return ckpt_json_fail(json, err, "a tensor without a name");
    wanted->take(wanted->arg, &tensor);
  }
}

static ckpt_status read_side_files(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const listing *wanted = into;
  *wanted->has_side = true;
  return ckpt_side_sums_read(wanted->side, json, &r->arena, err);
}

static ckpt_status read_lists(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  listing *wanted = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "outputs", err));
  for (uint32_t number = 0;; number++) {
    bool is_end;
    CKPT_TRY(ckpt_recorded_next(r, json, "outputs", &is_end, err));
    if (is_end) return CKPT_OK;
    const field fields[] = {{"tensors", read_tensors, wanted, false}, {"side_files", read_side_files, wanted, true}};
    CKPT_TRY(ckpt_recorded_fields(r, json, fields, number != wanted->output ? 0 : wanted->side == NULL ? 1 : 2, err));
  }
}

/* Reads one key of the receipt, in one more pass over it. */
static ckpt_status read_key(ckpt_recorded *r, const field *wanted, ckpt_error *err) {
  ckpt_json *json = NULL;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_json_file_read(&json, &r->file, err));
  CKPT_TRY_GOTO(ckpt_json_expect(json, CKPT_JSON_OBJECT, "a receipt", err));
  status = ckpt_recorded_fields(r, json, wanted, 1, err);
done:
  ckpt_json_free(json);
  return ckpt_fail_at(status, err, r->path, NULL);
}

ckpt_status ckpt_recorded_read(ckpt_recorded *r, uint32_t output,
                               void (*take)(void *arg, const ckpt_recorded_tensor *tensor), void *arg,
                               ckpt_side_sums *side, bool *has_side, ckpt_error *err) {
  listing wanted = {output, take, arg, side, has_side};
  const field outputs = {"outputs", read_lists, &wanted, false};
  if (has_side != NULL) *has_side = false;
  return read_key(r, &outputs, err);
}

/* ---- what adapters did ------------------------------------------------------------------------------------------- */

typedef struct effects {
  void (*take)(void *arg, const ckpt_recorded_effect *effect);
  void *arg;
} effects;

static ckpt_status read_effect_name(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  (void)r;
  return read_short(json, into, sizeof((ckpt_recorded_effect *)0)->name, err);
}

static ckpt_status read_effects(recorded *r, ckpt_json *json, void *into, ckpt_error *err) {
  const effects *wanted = into;
  CKPT_TRY(ckpt_json_expect(json, CKPT_JSON_ARRAY, "merged", err));
  for (;;) {
    bool is_end;
    ckpt_recorded_effect effect = {.rank = 0};
    CKPT_TRY(ckpt_recorded_next(r, json, "merged", &is_end, err));
    if (is_end) return CKPT_OK;
    const field fields[] = {{"name", read_effect_name, effect.name, false},
                            {"adapter", ckpt_recorded_size, &effect.adapter, false},
                            {"rank", ckpt_recorded_size, &effect.rank, false},
                            {"scale", ckpt_recorded_number, &effect.scale, false}};
    CKPT_TRY(ckpt_recorded_fields(r, json, fields, sizeof fields / sizeof *fields, err));
    wanted->take(wanted->arg, &effect);
  }
}

ckpt_status ckpt_recorded_read_effects(ckpt_recorded *r, void (*take)(void *arg, const ckpt_recorded_effect *effect),
                                       void *arg, ckpt_error *err) {
  effects wanted = {take, arg};
  const field merged = {"merged", read_effects, &wanted, false};
  return read_key(r, &merged, err);
}
