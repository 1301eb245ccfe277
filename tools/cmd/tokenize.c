/* tokenize.c - `ckpt tokenize`: texts to token ids, a line for each text. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/tokenizer.h"
#include "libckpt/base/error.h"
#include "tools/cli/options.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"
#include "tools/report/text_files.h"

typedef struct job {
  const ckpt_args *args;
  const ckpt_text_encoder *encoder;
  ckpt_encoding encoding;
  ckpt_emitter json;
  unsigned flags;
} job;

static ckpt_status encode(job *j, const char *text, size_t n_bytes, ckpt_error *err) {
  CKPT_TRY(ckpt_text_encode(j->encoder, &j->encoding, text, n_bytes, j->flags, err));
  if (j->args->json) {
    ckpt_emit_array(&j->json, NULL);
    for (size_t i = 0; i < j->encoding.n; i++) ckpt_emit_u64(&j->json, NULL, j->encoding.ids[i]);
    ckpt_emit_end(&j->json);
    return CKPT_OK;
  }
  for (size_t i = 0; i < j->encoding.n; i++) printf("%s%" PRIu32, i == 0 ? "" : " ", j->encoding.ids[i]);
  putchar('\n');
  return CKPT_OK;
}

static ckpt_status encode_all(job *j, const char *text, size_t n_bytes, ckpt_error *err) {
  const ckpt_args *args = j->args;
  const char *line;
  size_t n_line, at = 0;
  for (uint32_t i = 0; i < args->n_inputs; i++) CKPT_TRY(encode(j, args->inputs[i], strlen(args->inputs[i]), err));
  if (text == NULL) return CKPT_OK;
  if (!ckpt_args_has(args, "lines")) return encode(j, text, n_bytes, err);
  while (ckpt_text_line(text, n_bytes, &at, &line, &n_line)) CKPT_TRY(encode(j, line, n_line, err));
  return CKPT_OK;
}

static ckpt_status check(const ckpt_args *args, ckpt_error *err) {
  const bool has_file = ckpt_args_has(args, "file");
  if (has_file && args->n_inputs != 0) return ckpt_args_fail(args, err, "a text is given, and -f too");
  if (!has_file && args->n_inputs == 0) return ckpt_args_fail(args, err, "no text is given (TEXT, or -f FILE)");
  return CKPT_OK;
}

static ckpt_status tokenize(job *j, ckpt_error *err) {
  const ckpt_args *args = j->args;
  if (!ckpt_args_has(args, "no-special")) j->flags |= CKPT_TEXT_SPECIAL;
  if (ckpt_args_has(args, "parse-special")) j->flags |= CKPT_TEXT_PARSE_SPECIAL;
  char *text = NULL; /* read before anything is printed */
  size_t n_bytes = 0;
  if (ckpt_args_has(args, "file"))
    CKPT_TRY(ckpt_text_file_read(&text, &n_bytes, ckpt_args_text(args, "file", NULL), CKPT_TEXT_FILE_MAX, err));
  ckpt_emit_begin(&j->json, stdout);
  if (args->json) ckpt_emit_array(&j->json, NULL);
  ckpt_status status = encode_all(j, text, n_bytes, err);
  if (args->json && status == CKPT_OK) ckpt_emit_end(&j->json);
  free(text);
  return status;
}

/* --plan: the tokenizer has been read, which is most of the work. */
static void show_plan(const ckpt_args *args, const ckpt_tokenizer *tokenizer) {
  char row[96];
  const ckpt_planned planned = {0};
  snprintf(row, sizeof row, "text to ids, by %" PRIu32 " tokens and %" PRIu32 " merges", tokenizer->n_tokens,
           tokenizer->n_merges);
  ckpt_proving_plan(args, row, &planned);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_tokenizer *tokenizer = NULL;
  ckpt_text_encoder *encoder = NULL;
  ckpt_status status = check(args, &err);
  if (status == CKPT_OK) status = ckpt_tokenizer_open(&tokenizer, ckpt_args_text(args, "model", NULL), &err);
  if (status == CKPT_OK) status = ckpt_text_encoder_new(&encoder, tokenizer, &err);
  job j = {.args = args, .encoder = encoder};
  if (status == CKPT_OK) ckpt_report_no_trace(args);
  if (status == CKPT_OK && ckpt_args_has(args, "plan"))
    show_plan(args, tokenizer);
  else if (status == CKPT_OK)
    status = tokenize(&j, &err);
  ckpt_encoding_free(&j.encoding);
  ckpt_text_encoder_free(encoder);
  ckpt_tokenizer_free(tokenizer);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_tokenize = {
    .name = "tokenize",
    .forms = "tokenize --model PATH [-f FILE [--lines] | TEXT...] [--no-special] [--parse-special]",
    .summary = "text to token ids",
    .details =
        "A line of ids per text. The model's own special tokens are put around a text (BOS, EOS), as its "
        "tokenizer says; one within the text is text unless --parse-special. Text that is no UTF-8 "
        "becomes U+FFFD.\n\n  ckpt tokenize --model llama/ 'Hello, world'",
    .json = "[[1,15043],...]: ids per text",
    .sets = CKPT_SET_RUN,
    .min_inputs = 0,
    .max_inputs = UINT32_MAX,
    .run = run,
};
