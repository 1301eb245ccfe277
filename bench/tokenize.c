/* tokenize.c - how fast text becomes ids on one core: the best of several runs over a file, as one text and line by
 * line.
 *
 *   bench/tokenize MODEL FILE
 * bench/tokenize.py prints the same of the `tokenizers` library, and the ratio. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "formats/tokenizer/tokenizer.h"
#include "tools/report/text_files.h"

enum { N_RUNS = 5, N_TIMES = 10, MAX_TEXT = 1 << 28 };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static ckpt_status encode(const ckpt_text_encoder *encoder, ckpt_encoding *encoding, const char *text, size_t n_bytes,
                          bool by_lines, ckpt_error *err) {
  const unsigned flags = CKPT_TEXT_SPECIAL | CKPT_TEXT_PARSE_SPECIAL;
  if (!by_lines) return ckpt_text_encode(encoder, encoding, text, n_bytes, flags, err);
  const char *line;
  ckpt_status status = CKPT_OK;
  for (size_t at = 0, n_line; status == CKPT_OK && ckpt_text_line(text, n_bytes, &at, &line, &n_line);)
    status = ckpt_text_encode(encoder, encoding, line, n_line, flags, err);
  return status;
}

static ckpt_status measure(const ckpt_text_encoder *encoder, const char *text, size_t n_bytes, ckpt_error *err) {
  ckpt_encoding encoding = {0};
  ckpt_status status = CKPT_OK;
  for (int by_lines = 0; by_lines < 2 && status == CKPT_OK; by_lines++) {
    double best = 1e300;
    for (int run = 0; run < N_RUNS && status == CKPT_OK; run++) {
      const double begin = seconds();
      for (int i = 0; i < N_TIMES && status == CKPT_OK; i++)
        status = encode(encoder, &encoding, text, n_bytes, by_lines != 0, err);
      const double taken = (seconds() - begin) / N_TIMES;
      if (taken < best) best = taken;
    }
    printf("%s %.2f\n", by_lines ? "lines" : "whole", (double)n_bytes / best / 1e6);
  }
  ckpt_encoding_free(&encoding);
  return status;
}

int main(int argc, char **argv) {
  ckpt_error err = {0};
  ckpt_tokenizer *tokenizer = NULL;
  ckpt_text_encoder *encoder = NULL;
  char *text = NULL;
  size_t n_bytes = 0;
  if (argc != 3) return fputs("tokenize MODEL FILE\n", stderr), 2;
  ckpt_status status = ckpt_tokenizer_open(&tokenizer, argv[1], &err);
  if (status == CKPT_OK) status = ckpt_text_encoder_new(&encoder, tokenizer, &err);
  if (status == CKPT_OK) status = ckpt_text_file_read(&text, &n_bytes, argv[2], MAX_TEXT, &err);
  if (status == CKPT_OK) status = measure(encoder, text, n_bytes, &err);
  if (status != CKPT_OK) fprintf(stderr, "%s: %s\n", err.file, err.message);
  free(text);
  ckpt_text_encoder_free(encoder);
  ckpt_tokenizer_free(tokenizer);
  return status != CKPT_OK;
}
