/* detokenize.c - `ckpt detokenize`: token ids to text, byte for byte. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "libckpt/base/error.h"
#include "tools/cli/options.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* The ids of all arguments; the caller frees them. */
static ckpt_status read_ids(uint32_t **out, size_t *n, const ckpt_args *args, ckpt_error *err) {
  size_t capacity = 0;
  for (uint32_t i = 0; i < args->n_inputs; i++) capacity += strlen(args->inputs[i]);
  *out = calloc(capacity + 1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  *n = 0;
  for (uint32_t i = 0; i < args->n_inputs; i++) {
    const char *at = args->inputs[i];
    while (*(at += strspn(at, " ,\t\n")) != '\0') {
      const size_t n_digits = strspn(at, "0123456789");
      if (n_digits == 0 || n_digits > 9 || (at[n_digits] != '\0' && strchr(" ,\t\n", at[n_digits]) == NULL))
        return ckpt_args_fail(args, err, "'%.40s' is no token id", at);
      (*out)[(*n)++] = (uint32_t)strtoul(at, NULL, 10);
      at += n_digits;
    }
  }
  return CKPT_OK;
}

static ckpt_status detokenize(const ckpt_args *args, const ckpt_text_encoder *encoder, const uint32_t *ids, size_t n,
                              ckpt_error *err) {
  char *text;
  size_t n_bytes;
  CKPT_TRY(ckpt_text_decode(encoder, &text, &n_bytes, ids, n, ckpt_args_has(args, "no-special"), err));
  if (args->json) {
    ckpt_emitter json;
    ckpt_emit_begin(&json, stdout);
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "status", "ok");
    ckpt_emit_text_n(&json, "text", text, n_bytes);
    ckpt_emit_end(&json);
  } else {
    fwrite(text, 1, n_bytes, stdout);
    putchar('\n');
  }
  free(text);
  return CKPT_OK;
}

static void show_plan(const ckpt_args *args, size_t n) {
  char row[64];
  const ckpt_planned planned = {0};
  snprintf(row, sizeof row, "%zu id%s to text", n, ckpt_plural(n));
  ckpt_proving_plan(args, row, &planned);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_tokenizer *tokenizer = NULL;
  ckpt_text_encoder *encoder = NULL;
  uint32_t *ids = NULL;
  size_t n = 0;
  ckpt_status status = read_ids(&ids, &n, args, &err);
  if (status == CKPT_OK) status = ckpt_tokenizer_open(&tokenizer, ckpt_args_text(args, "model", NULL), &err);
  if (status == CKPT_OK) status = ckpt_text_encoder_new(&encoder, tokenizer, &err);
  if (status == CKPT_OK) ckpt_report_no_trace(args);
  if (status == CKPT_OK && ckpt_args_has(args, "plan"))
    show_plan(args, n);
  else if (status == CKPT_OK)
    status = detokenize(args, encoder, ids, n, &err);
  free(ids);
  ckpt_text_encoder_free(encoder);
  ckpt_tokenizer_free(tokenizer);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_detokenize = {
    .name = "detokenize",
    .forms = "detokenize --model PATH IDS...",
    .summary = "token ids to text",
    .details =
        "The bytes that the ids stand for, and a line feed: not always UTF-8, for a character may be cut. "
        "Ids are parted by spaces or commas.\n\n  ckpt detokenize --model llama/ 1 15043 29892 3186",
    .json = "{\"status\",\"text\"}: bytes that are no UTF-8 are U+FFFD",
    .sets = CKPT_SET_RUN,
    .min_inputs = 1,
    .max_inputs = UINT32_MAX,
    .run = run,
};
