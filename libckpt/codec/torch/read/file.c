/* file.c - see file.h: what such a file is known by, and the way from it to an index. */
#include "libckpt/codec/torch/read/file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/zip/zip.h"

enum { HEAD_BYTES = 64 };

/* Whether an archive's first entry lies in a folder and has a name that PyTorch's records have, or such names follow.
 */
static bool is_archive(const uint8_t *head, size_t n_head) {
  static const char *const records[] = {"data.pkl",        "data/", "byteorder",     "version", ".data/",
                                        ".format_version", "code/", "constants.pkl", "extra/",  ".storage_alignment"};
  if (!ckpt_zip_is_start(head, n_head) || n_head < CKPT_ZIP_LOCAL_BYTES) return false;
  size_t n_name = ckpt_le16(head + 26);
  if (n_name > n_head - CKPT_ZIP_LOCAL_BYTES) n_name = n_head - CKPT_ZIP_LOCAL_BYTES;
  const char *name = (const char *)head + CKPT_ZIP_LOCAL_BYTES, *slash = memchr(name, '/', n_name);
  if (slash == NULL) return false;
  size_t n_rest = n_name - (size_t)(slash + 1 - name);
  for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
    size_t n = strlen(records[i]);
    bool is_folder = records[i][n - 1] == '/';
    if ((is_folder ? n_rest >= n : n_rest == n) && memcmp(slash + 1, records[i], n) == 0) return true;
  }
  return memmem(head, n_head, "/data.pkl", 9) != NULL; /* made by another program, which begins with something else */
}

bool ckpt_torch_probe(const uint8_t *head, size_t n_head) {
  return is_archive(head, n_head) || ckpt_torch_is_stream(head, n_head);
}

/* What a code of copyreg's calls is not in the file, and no class that somebody would know it by. */
static bool calls_extension(const ckpt_pickle_global *global) {
  static const char start[] = CKPT_PICKLE_EXTENSION ".";
  return global->n_called != 0 && strncmp(global->name, start, sizeof start - 1) == 0;
}

/* Adds a name that is not there yet. */
static ckpt_status add_name(ckpt_torch_globals *globals, bool is_dangerous, const char *name, ckpt_arena *arena,
                            ckpt_error *err) {
  uint64_t known = 0, n = globals->n[is_dangerous];
  if (n > CKPT_TORCH_MAX_GLOBALS) n = CKPT_TORCH_MAX_GLOBALS;
  while (known < n && strcmp(globals->names[is_dangerous][known], name) != 0) known++;
  if (known < n) return CKPT_OK;
  if (n < CKPT_TORCH_MAX_GLOBALS) CKPT_TRY_ALLOC(globals->names[is_dangerous][n] = ckpt_arena_copy(arena, name), err);
  globals->n[is_dangerous]++;
  return CKPT_OK;
}

ckpt_status ckpt_torch_globals_add(ckpt_torch_globals *globals, const ckpt_pickle_report *report, ckpt_arena *arena,
                                   ckpt_error *err) {
  for (uint32_t i = 0; i < report->n_globals; i++) {
    ckpt_pickle_verdict verdict = ckpt_pickle_judge(report->globals[i]);
    if (verdict < CKPT_PICKLE_FOREIGN) continue;
    bool is_dangerous = verdict == CKPT_PICKLE_DANGEROUS || calls_extension(report->globals[i]);
    CKPT_TRY(add_name(globals, is_dangerous, report->globals[i]->name, arena, err));
  }
  return report->n_value_calls == 0 ? CKPT_OK : add_name(globals, true, "what another call returned", arena, err);
}

ckpt_status ckpt_torch_globals_note(const ckpt_torch_globals *globals, ckpt_index *index, ckpt_error *err) {
  for (int is_dangerous = 1; is_dangerous >= 0; is_dangerous--) {
    enum { N_SHOWN = 4 };
    char text[800] = "";
    size_t n_text = 0;
    uint64_t n = globals->n[is_dangerous];
    for (uint64_t i = 0; i < n && i < N_SHOWN; i++) {
      int more = snprintf(text + n_text, sizeof text - n_text, "%s%.160s", i == 0 ? "" : ", ",
                          globals->names[is_dangerous][i]);
      if (more > 0) n_text += (size_t)more;
    }
    if (n == 0) continue;
    if (n > N_SHOWN) snprintf(text + n_text, sizeof text - n_text, " and %" PRIu64 " more", n - N_SHOWN);
    if (!is_dangerous)
      CKPT_TRY(ckpt_index_note(index, false, err, "speaks of classes that are not known: %s", text));
    else if (globals->is_of_file)
      CKPT_TRY(ckpt_index_problem(index, globals->file, err, "would run code when it is unpickled: %s", text));
    else
      CKPT_TRY(ckpt_index_note(index, true, err, "would run code when it is unpickled: %s", text));
  }
  return CKPT_OK;
}

void ckpt_torch_arena_init(ckpt_arena *arena, ckpt_index *index) {
  ckpt_arena_init(arena, index->arena.limit - index->arena.n_taken);
  arena->from = index->arena.from;
  arena->tells = &index->arena.is_full;
}

ckpt_status ckpt_torch_any_read(ckpt_torch_graph *graph, ckpt_source *source, uint32_t file, ckpt_arena *arena,
                                ckpt_pickle_report *report, ckpt_error *err) {
  uint64_t size = ckpt_source_size(source, file);
  size_t n_head = size < HEAD_BYTES ? (size_t)size : HEAD_BYTES;
  uint8_t head[HEAD_BYTES];
  CKPT_TRY(ckpt_source_read(source, file, 0, head, n_head, err));
  return ckpt_torch_is_stream(head, n_head) ? ckpt_torch_stream_read(graph, source, file, 0, size, arena, report, err)
                                            : ckpt_torch_archive_read(graph, source, file, 0, size, arena, report, err);
}

bool ckpt_torch_is_plain_file(ckpt_index *index, const char *root, const char *name) {
  enum { MAX_BYTES = 1 << 20, MAX_NODE_BYTES = 16 << 20 };
  ckpt_pickle_report report;
  ckpt_torch_graph graph = {.root = NULL};
  ckpt_source *source = NULL;
  ckpt_arena arena;
  uint32_t file;
  uint64_t n_bytes;
  ckpt_torch_arena_init(&arena, index);
  arena.tells = NULL; /* its end is not the index's */
  if (arena.limit > MAX_NODE_BYTES) arena.limit = MAX_NODE_BYTES;
  bool is_plain = ckpt_source_open(&source, root, NULL) == CKPT_OK &&
                  ckpt_source_add(source, name, &file, &n_bytes, NULL) == CKPT_OK && n_bytes <= MAX_BYTES &&
                  ckpt_torch_any_read(&graph, source, file, &arena, &report, NULL) == CKPT_OK && graph.n_tensors == 0 &&
                  graph.n_storages == 0 && ckpt_pickle_judge_all(&report, NULL) != CKPT_PICKLE_DANGEROUS;
  ckpt_torch_graph_free(&graph);
  ckpt_arena_free(&arena);
  ckpt_source_free(source);
  return is_plain;
}

ckpt_status ckpt_torch_file_read(ckpt_torch_graph *graph, ckpt_index *index, uint32_t file, bool stored_names,
                                 ckpt_arena *arena, ckpt_error *err) {
  ckpt_pickle_report report;
  ckpt_torch_globals globals = {.is_of_file = true, .file = file};
  CKPT_TRY(ckpt_torch_any_read(graph, index->source, file, arena, &report, err));
  index->version = graph->version == NULL ? "stream 1001" : ckpt_arena_copy(&index->arena, graph->version);
  CKPT_TRY_ALLOC(index->version, err);
  CKPT_TRY(ckpt_torch_globals_add(&globals, &report, &index->arena, err));
  CKPT_TRY(ckpt_torch_globals_note(&globals, index, err));
  for (size_t i = 0; i < sizeof graph->refused / sizeof *graph->refused; i++)
    if (graph->refused[i] != NULL) CKPT_TRY(ckpt_index_problem(index, file, err, "%s", graph->refused[i]));
  if (graph->n_strays != 0)
    CKPT_TRY(ckpt_index_problem(index, file, err, "%" PRIu32 " record%s that its object does not use (%s%s)",
                                graph->n_strays, ckpt_plural(graph->n_strays), graph->n_strays == 1 ? "" : "first ",
                                graph->stray));
  if (graph->n_trailing != 0)
    CKPT_TRY(ckpt_index_problem(index, file, err, "bytes follow its last storage (%" PRIu64 " of %" PRIu64 ")",
                                graph->n_trailing, ckpt_source_size(index->source, file)));
  CKPT_TRY(ckpt_torch_graph_add(graph, index, "", stored_names, err));
  return ckpt_torch_parts_note(graph, index, file, err);
}
