/* dataset.c - see dataset.h. Files are numbered in the order given; rows of all files follow one another. */
#include "trainer/data/dataset.h"

#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/base/digest.h"
#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "trainer/data/row.h"
#include "trainer/data/sequences.h"

enum { WINDOW = 1 << 20, LLMC_HEADER = 1024 };
#define MAX_LINE (UINT64_C(256) << 20)

typedef enum file_kind { FILE_JSONL, FILE_TEXT, FILE_TOKENS } file_kind;

typedef struct data_file {
  char *path;
  int fd;
  file_kind kind;
  uint64_t n_bytes, first_row, n_rows;
  uint64_t header, width; /* of tokens: bytes before them, bytes of each */
} data_file;

struct ckpt_dataset {
  ckpt_row_rules rules;
  ckpt_packing packing;
  uint64_t max_length; /* of blocks, and what rows are cut to */
  uint64_t longest;    /* no row has more tokens, as far as its line shows */
  bool measures;       /* as the options have it */
  data_file *files;
  uint32_t n_files;
  uint64_t *rows;   /* where each line begins; of tokens: 0 */
  uint64_t *before; /* of packing: tokens before each row, and in all */
  uint64_t n_rows, row_capacity;
  ckpt_dtype dtype;
  bool is_blocks;
  ckpt_hasher *hash;
  char digest[80];
};

/* ---- files ------------------------------------------------------------------------------------------------------- */

static ckpt_status add_file(ckpt_dataset *d, const char *path, ckpt_error *err) {
  data_file *files = reallocarray(d->files, d->n_files + 1, sizeof *files);
  CKPT_TRY_ALLOC(files, err);
  d->files = files;
  data_file *file = &files[d->n_files];
  /* O_NONBLOCK: a FIFO is refused, and nobody waits for its writer */
  *file = (data_file){.path = strdup(path), .fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), .width = 1};
  d->n_files++;
  CKPT_TRY_ALLOC(file->path, err);
  struct stat about;
  if (file->fd < 0 || fstat(file->fd, &about) != 0) return ckpt_fail_errno(err, path, "it cannot be opened");
  if (!S_ISREG(about.st_mode)) return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "it is not a regular file");
  file->n_bytes = (uint64_t)about.st_size;
  const bool is_text = ckpt_text_ends(path, ".txt"), is_tokens = ckpt_text_ends(path, ".bin");
  file->kind = is_text ? FILE_TEXT : is_tokens ? FILE_TOKENS : FILE_JSONL;
  return CKPT_OK;
}

static ckpt_status add_pattern(ckpt_dataset *d, const char *pattern, ckpt_error *err) {
  glob_t found;
  if (access(pattern, F_OK) == 0 || strpbrk(pattern, "*?[") == NULL) return add_file(d, pattern, err);
  const int rc = glob(pattern, 0, NULL, &found);
  if (rc == GLOB_NOSPACE) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (rc != 0) return ckpt_fail(err, CKPT_ENOTFOUND, pattern, NULL, "no file matches");
  ckpt_status status = CKPT_OK;
  for (size_t i = 0; i < found.gl_pathc && status == CKPT_OK; i++) status = add_file(d, found.gl_pathv[i], err);
  globfree(&found);
  return status;
}

static ckpt_status read_exactly(const data_file *file, uint64_t offset, void *dst, size_t n, ckpt_error *err) {
  for (size_t done = 0; done < n;) {
    const ssize_t got = pread(file->fd, (char *)dst + done, n - done, (off_t)(offset + done));
    if (got < 0) return ckpt_fail_errno(err, file->path, "it cannot be read");
    if (got == 0)
      return ckpt_fail(err, CKPT_EIO, file->path, NULL, "it has become shorter while it was read (%" PRIu64 " bytes)",
                       file->n_bytes);
    done += (size_t)got;
  }
  return CKPT_OK;
}

static ckpt_status add_row(ckpt_dataset *d, uint64_t offset, ckpt_error *err) {
  if (d->n_rows == d->row_capacity) {
    const uint64_t capacity = d->row_capacity == 0 ? 4096 : 2 * d->row_capacity;
    uint64_t *rows = reallocarray(d->rows, capacity, sizeof *rows);
    CKPT_TRY_ALLOC(rows, err);
    d->rows = rows;
    d->row_capacity = capacity;
  }
  d->rows[d->n_rows++] = offset;
  return CKPT_OK;
}

/* What the bytes of a JSON object show: whether it has ids, and how many numbers its longest list has. */
typedef struct line_scan {
  uint64_t n_numbers, longest; /* of the list at hand, of any */
  const char *rest;            /* of the key of ids, behind what a string begins with; NULL: it is another */
  uint32_t depth;
  bool is_filled, is_string, is_escaped, is_key, has_ids;
} line_scan;

static void scan_string(line_scan *s, char c) {
  const bool ends = c == '"' && !s->is_escaped;
  if (ends) s->is_key = s->depth == 1 && s->rest != NULL && *s->rest == '\0';
  s->rest = s->rest != NULL && c != '\0' && *s->rest == c ? s->rest + 1 : NULL;
  s->is_escaped = c == '\\' && !s->is_escaped;
  s->is_string = !ends;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static void scan(line_scan *s, const char *key, char c) {
  if (s->is_string) {
    scan_string(s, c);
    return;
  }
  if (is_blank(c)) return;
  s->is_filled = true;
  s->has_ids = s->has_ids || (s->is_key && c == ':');
  s->is_key = false;
  if (c == '"') s->is_string = true, s->rest = key;
  if (c == ',') s->n_numbers++;
  if (c == '{' || c == '[') s->depth++, s->n_numbers = 1;
  if (c == ']' && s->n_numbers > s->longest) s->longest = s->n_numbers;
  if (c == '}' || c == ']') s->depth--;
}

/* Adds a line, unless it is blank: the row is cut, and how many tokens a text has is not known. */
static ckpt_status add_line(ckpt_dataset *d, const data_file *file, uint64_t begin, const line_scan *s,
                            ckpt_error *err) {
  const uint64_t n = s->has_ids && s->longest < d->max_length ? s->longest : d->max_length;
  if (file->kind == FILE_JSONL && !s->is_filled) return CKPT_OK;
  if (n > d->longest) d->longest = n;
  return add_row(d, begin, err);
}

/* More bytes of a line: all of them, or those up to the first that is not blank. */
static void look(line_scan *s, const ckpt_dataset *d, const char *bytes, size_t n) {
  for (size_t i = 0; d->measures && i < n; i++) scan(s, d->rules.columns.input_ids, bytes[i]);
  for (size_t i = 0; !s->is_filled && i < n; i++) s->is_filled = !is_blank(bytes[i]);
}

/* Lines of text; of JSONL those that are not blank. */
static ckpt_status index_lines(ckpt_dataset *d, data_file *file, char *window, ckpt_error *err) {
  uint64_t begin = 0;
  line_scan s = {0};
  for (uint64_t at = 0; at < file->n_bytes; at += WINDOW) {
    const size_t n = file->n_bytes - at < WINDOW ? (size_t)(file->n_bytes - at) : WINDOW;
    CKPT_TRY(read_exactly(file, at, window, n, err));
    CKPT_TRY(ckpt_hasher_add(d->hash, window, n, err));
    for (size_t i = 0; i < n;) {
      const char *end = memchr(window + i, '\n', n - i);
      const size_t n_line = end == NULL ? n - i : (size_t)(end - (window + i));
      if (file->kind == FILE_JSONL) look(&s, d, window + i, n_line);
      i += n_line + (end != NULL);
      if (end == NULL) break;
      CKPT_TRY(add_line(d, file, begin, &s, err));
      begin = at + i;
      s = (line_scan){0};
    }
  }
  return begin < file->n_bytes ? add_line(d, file, begin, &s, err) : CKPT_OK;
}

static uint64_t row_end(const ckpt_dataset *d, const data_file *file, uint64_t row) {
  return row + 1 < file->first_row + file->n_rows ? d->rows[row + 1] : file->n_bytes;
}

/* llm.c's files begin with a header of 256 integers: magic, version, number of tokens. Its magics are days of 2024; of
 * data are 20240520 (GPT-2, version 1: u16) and 20240801 (Llama 3, version 7: u32). Source: dev/data/data_common.py. */
static ckpt_status read_llmc_header(data_file *file, bool *is_llmc, ckpt_error *err) {
  uint32_t header[3] = {0};
  if (file->n_bytes >= sizeof header) CKPT_TRY(read_exactly(file, 0, header, sizeof header, err));
  const bool is_u16 = header[0] == 20240520 && header[1] == 1, is_u32 = header[0] == 20240801 && header[1] == 7;
  *is_llmc = (header[0] >= 20240520 && header[0] <= 20240530) || header[0] == 20240801;
  if (!*is_llmc) return CKPT_OK;
  if (!is_u16 && !is_u32)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, file->path, NULL,
                     "its header has llm.c's magic %u and version %u: it has to be 20240520 and 1, or 20240801 and 7",
                     header[0], header[1]);
  if (file->n_bytes < LLMC_HEADER)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL, "its header is cut short (%" PRIu64 " bytes of %d)",
                     file->n_bytes, LLMC_HEADER);
  file->header = LLMC_HEADER;
  file->width = is_u16 ? 2 : 4;
  if (file->n_bytes - LLMC_HEADER != header[2] * file->width)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                     "its header says %u tokens of %" PRIu64 " bytes, and %" PRIu64 " bytes follow", header[2],
                     file->width, file->n_bytes - LLMC_HEADER);
  return CKPT_OK;
}

static ckpt_status read_token_header(const ckpt_dataset *d, data_file *file, ckpt_error *err) {
  bool is_llmc;
  CKPT_TRY(read_llmc_header(file, &is_llmc, err));
  if (!is_llmc) file->width = d->dtype == CKPT_U32 ? 4 : 2;
  if ((file->n_bytes - file->header) % file->width != 0)
    return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                     "%" PRIu64 " bytes are no whole number of tokens of %" PRIu64 " bytes (--data-dtype)",
                     file->n_bytes, file->width);
  return CKPT_OK;
}

/* Binary tokens are one row, or as many as Megatron's index beside them says. */
static ckpt_status index_tokens(ckpt_dataset *d, data_file *file, char *window, ckpt_error *err) {
  ckpt_sequences sequences;
  CKPT_TRY(ckpt_sequences_read(&sequences, file->path, file->n_bytes, err));
  ckpt_status status = CKPT_OK;
  for (uint64_t i = 0; i < sequences.n && status == CKPT_OK; i++) status = add_row(d, sequences.offsets[i], err);
  const bool has_index = sequences.n != 0;
  if (has_index) file->width = sequences.width;
  ckpt_sequences_free(&sequences);
  CKPT_TRY(status);
  if (!has_index) CKPT_TRY(read_token_header(d, file, err));
  if (!has_index) CKPT_TRY(add_row(d, file->header, err));
  CKPT_TRY(ckpt_hasher_add(d->hash, &file->n_bytes, sizeof file->n_bytes, err));
  const size_t n_end = file->n_bytes < WINDOW ? (size_t)file->n_bytes : WINDOW;
  CKPT_TRY(read_exactly(file, 0, window, n_end, err));
  CKPT_TRY(ckpt_hasher_add(d->hash, window, n_end, err));
  CKPT_TRY(read_exactly(file, file->n_bytes - n_end, window, n_end, err));
  return ckpt_hasher_add(d->hash, window, n_end, err);
}

static ckpt_status index_files(ckpt_dataset *d, ckpt_error *err) {
  char *window = malloc(WINDOW);
  ckpt_status status = window == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
  for (uint32_t i = 0; i < d->n_files && status == CKPT_OK; i++) {
    data_file *file = &d->files[i];
    file->first_row = d->n_rows;
    status = file->kind == FILE_TOKENS ? index_tokens(d, file, window, err) : index_lines(d, file, window, err);
    file->n_rows = d->n_rows - file->first_row;
    d->is_blocks = d->is_blocks || file->kind != FILE_JSONL;
  }
  free(window);
  return status;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

static const data_file *file_of(const ckpt_dataset *d, uint64_t row) {
  uint32_t i = 0;
  while (row >= d->files[i].first_row + d->files[i].n_rows) i++;
  return &d->files[i];
}

/* Lines before an offset, for messages. */
static uint64_t line_at(const data_file *file, uint64_t offset) {
  char window[4096];
  uint64_t n_lines = 1;
  for (uint64_t at = 0; at < offset;) {
    const ssize_t got = pread(file->fd, window, sizeof window, (off_t)at);
    if (got <= 0) break;
    for (ssize_t i = 0; i < got && at + (uint64_t)i < offset; i++) n_lines += window[i] == '\n';
    at += (uint64_t)got;
  }
  return n_lines;
}

static ckpt_status fail_at_line(const data_file *file, uint64_t offset, ckpt_status status, ckpt_error *err) {
  if (status == CKPT_OK || err == NULL) return status;
  char text[sizeof err->message];
  ckpt_c_snprintf(text, sizeof text, "line %" PRIu64 ": %.900s", line_at(file, offset), err->message);
  memcpy(err->message, text, sizeof text);
  return ckpt_fail_at(status, err, file->path, NULL);
}

/* Appends a row's tokens (not of binary files). */
static ckpt_status read_line(const ckpt_dataset *d, uint64_t row, ckpt_sample *sample, int32_t document,
                             ckpt_error *err) {
  const data_file *file = file_of(d, row);
  const uint64_t begin = d->rows[row], end = row_end(d, file, row);
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, sample, err));
  if (end - begin > MAX_LINE)
    return ckpt_fail(err, CKPT_ELIMIT, file->path, NULL, "line %" PRIu64 " has %" PRIu64 " bytes, at most %" PRIu64,
                     line_at(file, begin), end - begin, MAX_LINE);
  const size_t n = (size_t)(end - begin);
  if (room->line_capacity < n) {
    char *line = realloc(room->line, n);
    CKPT_TRY_ALLOC(line, err);
    room->line = line;
    room->line_capacity = n;
  }
  CKPT_TRY(read_exactly(file, begin, room->line, n, err));
  const uint64_t last = file->first_row + file->n_rows - 1;
  const ckpt_status status = file->kind == FILE_TEXT ? ckpt_row_text(sample, &d->rules, room->line, n,
                                                                     row == file->first_row, row == last, document, err)
                                                     : ckpt_row_json(sample, &d->rules, room->line, n, document, err);
  return fail_at_line(file, begin, status, err);
}

/* Appends n tokens of a binary file from a byte on. */
static ckpt_status read_tokens(const ckpt_dataset *d, const data_file *file, uint64_t begin, uint64_t n,
                               ckpt_sample *sample, int32_t document, ckpt_error *err) {
  uint8_t window[8192];
  const uint64_t n_window = sizeof window / file->width;
  for (uint64_t at = 0; at < n; at += n_window) {
    const uint64_t n_here = n - at < n_window ? n - at : n_window;
    CKPT_TRY(read_exactly(file, begin + at * file->width, window, n_here * file->width, err));
    for (uint64_t i = 0; i < n_here; i++) {
      const uint8_t *b = window + i * file->width;
      const uint32_t low = b[0] | (uint32_t)b[1] << 8;
      const uint32_t id = file->width == 2 ? low : low | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
      if (id >= d->rules.vocabulary)
        return ckpt_fail(err, CKPT_EFORMAT, file->path, NULL,
                         "token %" PRIu64 " is %u, and the model's vocabulary ends at %" PRIu64 " (--data-dtype)",
                         (begin - file->header) / file->width + at + i, id, d->rules.vocabulary);
      CKPT_TRY(ckpt_sample_add(sample, (int32_t)id, (int32_t)id, document, 1, err));
    }
  }
  return CKPT_OK;
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* A row of packing, kept until another is wanted: neighbouring blocks share one. */
static ckpt_status kept_row(const ckpt_dataset *d, uint64_t row, ckpt_sample *sample, ckpt_sample **out,
                            ckpt_error *err) {
  ckpt_sample_room *room = NULL;
  CKPT_TRY(ckpt_sample_room_of(&room, sample, err));
  if (room->row == NULL) room->row = calloc(1, sizeof *room->row);
  CKPT_TRY_ALLOC(room->row, err);
  *out = room->row;
  if (room->row_index == row) return CKPT_OK;
  room->row_index = UINT64_MAX;
  room->row->n = 0;
  CKPT_TRY(read_line(d, row, room->row, 0, err));
  room->row_index = row;
  return CKPT_OK;
}

static uint64_t row_at_token(const ckpt_dataset *d, uint64_t token) {
  uint64_t low = 0, high = d->n_rows; /* before[low] <= token < before[high] */
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (d->before[middle] <= token)
      low = middle;
    else
      high = middle;
  }
  return low;
}

static ckpt_status read_block(const ckpt_dataset *d, uint64_t index, ckpt_sample *sample, ckpt_error *err) {
  const uint64_t total = d->before[d->n_rows], begin = index * d->max_length;
  const uint64_t end = total - begin < d->max_length ? total : begin + d->max_length;
  int32_t document = 0;
  uint64_t row = row_at_token(d, begin);
  for (uint64_t at = begin; at < end; row++) {
    const uint64_t stop = d->before[row + 1] < end ? d->before[row + 1] : end, skip = at - d->before[row];
    if (stop <= at) continue;
    const data_file *file = file_of(d, row);
    if (file->kind == FILE_TOKENS) {
      CKPT_TRY(read_tokens(d, file, d->rows[row] + skip * file->width, stop - at, sample, document, err));
    } else {
      ckpt_sample *kept = NULL;
      CKPT_TRY(kept_row(d, row, sample, &kept, err));
      if (kept->n != d->before[row + 1] - d->before[row])
        return ckpt_fail(err, CKPT_EIO, file->path, NULL, "it changed while it was read");
      for (uint64_t i = skip; i < skip + stop - at; i++)
        CKPT_TRY(ckpt_sample_add(sample, kept->ids[i], kept->labels[i], document, kept->mask[i], err));
    }
    at = stop;
    const bool ends = file->kind != FILE_TEXT || row + 1 == file->first_row + file->n_rows;
    document += ends && d->packing == CKPT_PACKING_DOCUMENT;
  }
  return CKPT_OK;
}

/* Rows are counted by threads, a range of them at a time. */
enum { RANGE_ROWS = 256, MAX_COUNTERS = 32 };

typedef struct counting {
  ckpt_dataset *dataset;
  pthread_mutex_t mutex;
  uint64_t next;    /* the first row of the next range */
  uint64_t n_whole; /* rows before the first that cannot be read: those behind it do not matter */
  ckpt_status status;
  ckpt_error error; /* of that row */
} counting;

static ckpt_status count_row(ckpt_dataset *d, uint64_t row, ckpt_sample *sample, ckpt_error *err) {
  const data_file *file = file_of(d, row);
  sample->n = 0;
  if (file->kind != FILE_TOKENS) CKPT_TRY(read_line(d, row, sample, 0, err));
  d->before[row + 1] = file->kind == FILE_TOKENS ? (row_end(d, file, row) - d->rows[row]) / file->width : sample->n;
  return CKPT_OK;
}

static void *count_ranges(void *arg) {
  counting *c = arg;
  ckpt_sample sample = {0};
  ckpt_error err = {0};
  pthread_mutex_lock(&c->mutex);
  while (c->next < c->n_whole) {
    uint64_t row = c->next;
    const uint64_t end = c->n_whole - row < RANGE_ROWS ? c->n_whole : row + RANGE_ROWS;
    ckpt_status status = CKPT_OK;
    c->next = end;
    pthread_mutex_unlock(&c->mutex);
    for (; row < end && status == CKPT_OK; row++) status = count_row(c->dataset, row, &sample, &err);
    pthread_mutex_lock(&c->mutex);
    if (status == CKPT_OK || row > c->n_whole) continue;
    c->n_whole = row - 1;
    c->status = status;
    c->error = err;
    err = (ckpt_error){0};
  }
  pthread_mutex_unlock(&c->mutex);
  ckpt_sample_free(&sample);
  return NULL;
}

/* How many tokens each row has: one pass over everything. */
static ckpt_status count_tokens(ckpt_dataset *d, ckpt_error *err) {
  counting c = {.dataset = d, .mutex = PTHREAD_MUTEX_INITIALIZER, .n_whole = d->n_rows};
  pthread_t threads[MAX_COUNTERS];
  const long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
  long n = 0;
  d->before = calloc(d->n_rows + 1, sizeof *d->before);
  CKPT_TRY_ALLOC(d->before, err);
  while (n + 1 < n_processors && n < MAX_COUNTERS && (uint64_t)n * RANGE_ROWS < d->n_rows &&
         pthread_create(&threads[n], NULL, count_ranges, &c) == 0)
    n++;
  (void)count_ranges(&c);
  while (n > 0) pthread_join(threads[--n], NULL);
  for (uint64_t row = 0; row < d->n_rows; row++) d->before[row + 1] += d->before[row];
  if (c.status != CKPT_OK && err != NULL) *err = c.error;
  return c.status;
}

/* ---- the dataset ------------------------------------------------------------------------------------------------- */

static ckpt_status finish_digest(ckpt_dataset *d, ckpt_error *err) {
  uint8_t bytes[32];
  CKPT_TRY(ckpt_hasher_end(d->hash, bytes, err));
  memcpy(d->digest, "sha256:", 8);
  for (unsigned i = 0; i < sizeof bytes; i++) ckpt_c_snprintf(d->digest + 7 + 2 * i, 3, "%02x", bytes[i]);
  return CKPT_OK;
}

static ckpt_status open_all(ckpt_dataset *d, const ckpt_dataset_options *o, ckpt_error *err) {
  d->rules = (ckpt_row_rules){.encoder = o->encoder, .tokenizer = o->tokenizer, .vocabulary = o->vocabulary};
  d->packing = o->packing;
  d->dtype = o->dtype;
  d->is_blocks = o->packing != CKPT_PACKING_NONE;
  d->measures = o->measures;
  d->max_length = o->max_length != 0 ? o->max_length : o->max_positions;
  if (d->max_length > o->max_positions)
    return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "--max_length %" PRIu64 ": the model has %" PRIu64 " positions",
                     d->max_length, o->max_positions);
  CKPT_TRY(ckpt_columns_parse(&d->rules.columns, o->columns, err));
  CKPT_TRY(ckpt_hasher_new(&d->hash, err));
  CKPT_TRY(ckpt_hasher_begin(d->hash, err));
  for (size_t i = 0; o->paths[i] != NULL; i++) CKPT_TRY(add_pattern(d, o->paths[i], err));
  CKPT_TRY(index_files(d, err));
  CKPT_TRY(finish_digest(d, err));
  if (!d->is_blocks) {
    d->rules.limit = o->max_positions;
    d->rules.cut = d->max_length;
  } else {
    CKPT_TRY(count_tokens(d, err));
  }
  if (ckpt_dataset_count(d) == 0)
    return ckpt_fail(err, CKPT_EINVAL, o->paths[0], NULL, "there is no row to train on (%u file%s)", d->n_files,
                     ckpt_plural(d->n_files));
  return CKPT_OK;
}

ckpt_status ckpt_dataset_open(ckpt_dataset **out, const ckpt_dataset_options *options, ckpt_error *err) {
  ckpt_dataset *d = calloc(1, sizeof *d);
  CKPT_TRY_ALLOC(d, err);
  const ckpt_status status = open_all(d, options, err);
  if (status != CKPT_OK) {
    ckpt_dataset_free(d);
    return status;
  }
  *out = d;
  return CKPT_OK;
}

void ckpt_dataset_free(ckpt_dataset *d) {
  if (d == NULL) return;
  for (uint32_t i = 0; i < d->n_files; i++) {
    if (d->files[i].fd >= 0) close(d->files[i].fd);
    free(d->files[i].path);
  }
  ckpt_hasher_free(d->hash);
  free(d->files);
  free(d->rows);
  free(d->before);
  free(d);
}

uint64_t ckpt_dataset_count(const ckpt_dataset *d) {
  if (!d->is_blocks) return d->n_rows;
  const uint64_t total = d->before == NULL ? 0 : d->before[d->n_rows];
  return total / d->max_length + (total % d->max_length > 1); /* one token has no target */
}

uint64_t ckpt_dataset_max_length(const ckpt_dataset *d) {
  if (!d->is_blocks) return d->longest;
  return d->before[d->n_rows] < d->max_length ? d->before[d->n_rows] : d->max_length;
}

const char *ckpt_dataset_digest(const ckpt_dataset *d) { return d->digest; }

ckpt_status ckpt_dataset_read(const ckpt_dataset *d, uint64_t index, ckpt_sample *sample, ckpt_error *err) {
  sample->n = 0;
  return d->is_blocks ? read_block(d, index, sample, err) : read_line(d, index, sample, 0, err);
}

void ckpt_sample_free(ckpt_sample *sample) {
  if (sample->room != NULL) {
    if (sample->room->row != NULL) ckpt_sample_free(sample->room->row);
    ckpt_encoding_free(&sample->room->encoding);
    free(sample->room->row);
    free(sample->room->line);
    free(sample->room->text);
    free(sample->room);
  }
  free(sample->ids);
  free(sample->labels);
  free(sample->documents);
  free(sample->mask);
  *sample = (ckpt_sample){0};
}
