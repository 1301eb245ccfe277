/* copy.c - the smallest program that uses sources and sinks, for the fault tests of tests/bytes: copies files of one
 * folder into a new one. copy IN OUT FORCE NAME...; FORCE is 0 or 1. Exit 0 or, with a message, 1. */
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/io/sink.h"
#include "libckpt/io/source.h"

enum { MAX_FILES = 64, TILE_BYTES = 1000 };

static ckpt_status copy_file(ckpt_source *source, ckpt_sink *sink, uint32_t file, ckpt_error *err) {
  char tile[TILE_BYTES];
  uint64_t n_bytes = ckpt_source_size(source, file);
  for (uint64_t at = 0; at < n_bytes; at += TILE_BYTES) {
    size_t n = n_bytes - at < TILE_BYTES ? (size_t)(n_bytes - at) : TILE_BYTES;
    CKPT_TRY(ckpt_source_read(source, file, at, tile, n, err));
    CKPT_TRY(ckpt_sink_write(sink, file, at, tile, n, err));
  }
  return CKPT_OK;
}

int main(int argc, char **argv) {
  if (argc < 5 || argc - 4 > MAX_FILES) return 2;
  ckpt_error err = {CKPT_OK, "", "", "", "", "", ""};
  ckpt_source *source = NULL;
  ckpt_sink *sink = NULL;
  ckpt_sink_file files[MAX_FILES];
  uint32_t n = 0;
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_source_open(&source, argv[1], &err));
  for (; (int)n < argc - 4; n++) {
    files[n].name = argv[n + 4];
    uint32_t file;
    CKPT_TRY_GOTO(ckpt_source_add(source, argv[n + 4], &file, &files[n].n_bytes, &err));
    if (n % 2 == 1) files[n].n_bytes = CKPT_SIZE_UNKNOWN;
  }
  CKPT_TRY_GOTO(ckpt_sink_path(&sink, argv[2], true, strcmp(argv[3], "1") == 0, &err));
  CKPT_TRY_GOTO(ckpt_sink_open(sink, files, n, &err));
  for (uint32_t i = 0; i < n; i++) CKPT_TRY_GOTO(copy_file(source, sink, i, &err));
  CKPT_TRY_GOTO(ckpt_sink_commit(&sink, 1, &err));
done:
  ckpt_sink_free(sink);
  ckpt_source_free(source);
  char text[2048];
  if (status != CKPT_OK) fprintf(stderr, "%s\n", ckpt_error_text(&err, text, sizeof text));
  return status == CKPT_OK ? 0 : 1;
}
