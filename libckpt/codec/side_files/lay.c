/* lay.c - side files as files of an output; see side_files.h.
 *
 * config.json is carried as the bytes its author wrote, but for the dtypes in it, which are exchanged in its text, and
 * for the name of the file of weights. A
 * model of several parts has a configuration of each inside its own: as transformers does on saving, all say one. */
#include "libckpt/codec/side_files/side_files.h"

#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/json.h"
#include "libckpt/index/config.h"

/* The key by which transformers finds weights under another name than its own. */
/* A walk over the objects of config.json, which copies its text with other dtypes. */
typedef struct edit {
  ckpt_json *json;
  const char *text, *dtype;
  char *out;            /* NULL: only counts */
  size_t n_out, n_done; /* bytes written, bytes of text that they stand for */
} edit;

static void put(edit *e, const char *text, size_t n_bytes) {
  if (e->out != NULL) memcpy(e->out + e->n_out, text, n_bytes);
  e->n_out += n_bytes;
}

/* The text up to the last token as it is, then the dtype in that token's place. */
static void replace(edit *e) {
  put(e, e->text + e->n_done, (size_t)ckpt_json_start(e->json) - e->n_done);
  put(e, "\"", 1);
  put(e, e->dtype, strlen(e->dtype));
  put(e, "\"", 1);
  e->n_done = (size_t)ckpt_json_stop(e->json);
}

/* Leaves out the entry whose key began at `start` and whose value is the last token: with the comma before it where an
 * entry was kept, else with the one behind it. */
static void leave_out(edit *e, size_t start, bool has_kept) {
  static const char *const space = " \t\r\n";
  size_t stop = (size_t)ckpt_json_stop(e->json);
  const size_t next = stop + strspn(e->text + stop, space);
  if (has_kept)
    while (e->text[start] != ',') start--; /* behind the entry that was kept, so behind n_done */
  else if (e->text[next] == ',')
    stop = next + 1 + strspn(e->text + next + 1, space);
  put(e, e->text + e->n_done, start - e->n_done);
  e->n_done = stop;
}

/* Whether the last token says another dtype than what was written; "torch.float32" says the same as "float32". Inside
 * another object the key may be a word of a vocabulary: there only what names a floating dtype is one. */
static bool is_stale(const edit *e, ckpt_json_token token, bool is_outermost) {
  if (token == CKPT_JSON_NULL) return is_outermost;
  if (token != CKPT_JSON_STRING) return false;
  ckpt_dtype said = ckpt_dtype_parse(ckpt_json_text(e->json, NULL));
  if (said == CKPT_DTYPE_NONE || !ckpt_dtype_is_float(said)) return is_outermost;
  return said != ckpt_dtype_parse(e->dtype);
}

/* Whether a key is of an object that tells how weights were quantized: quantization_config, quantization (MLX),
 * quant_config (AWQ), compression_config (compressed-tensors), ... */
static bool is_quantizer(const char *key) { return strstr(key, "quant") != NULL || strstr(key, "compression") != NULL; }

/* Reads one object whose `{` was the last token. Recursion is bounded by the reader's depth limit. */
static ckpt_status walk(edit *e, bool is_outermost, ckpt_error *err) {
  for (bool has_kept = false;;) {
    ckpt_json_token token;
    CKPT_TRY(ckpt_json_next(e->json, &token, err));
    if (token == CKPT_JSON_OBJECT_END) return CKPT_OK;
    const char *key = ckpt_json_text(e->json, NULL);
    bool is_dtype = e->dtype != NULL && (strcmp(key, "dtype") == 0 || strcmp(key, "torch_dtype") == 0);
    const bool is_place =
        is_outermost && strcmp(key, CKPT_CONFIG_WEIGHTS_KEY) == 0; /* of other files than are written */
    const size_t start = (size_t)ckpt_json_start(e->json);
    bool is_apart = is_quantizer(key); /* its dtypes are the quantizer's */
    CKPT_TRY(ckpt_json_next(e->json, &token, err));
    if (is_dtype && is_stale(e, token, is_outermost)) replace(e);
    if (token == CKPT_JSON_OBJECT && !is_apart && !is_place) /* which may not change what is left out */
      CKPT_TRY(walk(e, false, err));
    else
      CKPT_TRY(ckpt_json_skip_rest(e->json, token, err));
    if (is_place) leave_out(e, start, has_kept);
    has_kept = has_kept || !is_place;
  }
}

/* The side file's text with other dtypes, into out, or counted where that is NULL. */
static ckpt_status rewrite(const ckpt_side_file *side, const char *dtype, char *out, size_t *n_out, ckpt_error *err) {
  edit e = {.text = side->text, .dtype = dtype, .out = out};
  ckpt_json_token token;
  ckpt_status status = CKPT_OK;
  CKPT_TRY(ckpt_json_new_text(&e.json, side->text, (size_t)side->n_bytes, true, side->name, err));
  CKPT_TRY_GOTO(ckpt_json_expect(e.json, CKPT_JSON_OBJECT, "the outermost value", err));
  CKPT_TRY_GOTO(walk(&e, true, err));
  CKPT_TRY_GOTO(ckpt_json_next(e.json, &token, err)); /* the end, or an error */
  put(&e, e.text + e.n_done, (size_t)side->n_bytes - e.n_done);
  *n_out = e.n_out;
done:
  ckpt_json_free(e.json);
  return status;
}

ckpt_status ckpt_side_file_lay(ckpt_layout *layout, const ckpt_side_file *side, const char *dtype, ckpt_error *err) {
  CKPT_TRY(ckpt_layout_file_add(layout, side->name, err));
  const bool is_config = side->text != NULL && strcmp(side->name, "config.json") == 0;
  if (!is_config || (dtype == NULL && !ckpt_config_may_have(side->text, CKPT_CONFIG_WEIGHTS_KEY)))
    return ckpt_layout_side_file(layout, side, err);
  size_t n_bytes;
  CKPT_TRY(rewrite(side, dtype, NULL, &n_bytes, err));
  ckpt_side_file *rewritten = ckpt_arena_alloc(layout->arena, sizeof *rewritten);
  char *text = ckpt_arena_alloc(layout->arena, n_bytes + 1); /* terminated: the arena gives zeros */
  CKPT_TRY_ALLOC(rewritten, err);
  CKPT_TRY_ALLOC(text, err);
  CKPT_TRY(rewrite(side, dtype, text, &n_bytes, err));
  *rewritten = *side;
  rewritten->text = text;
  rewritten->n_bytes = n_bytes;
  return ckpt_layout_side_file(layout, rewritten, err);
}
