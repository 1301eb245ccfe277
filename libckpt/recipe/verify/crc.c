/* crc.c - the CRC-32 that zip archives carry of their records, and what stands around these, against what is
 * there: torch.save files, those of a trainer beside a model among them, and the archives of single tensors in DCP
 * files, compressed ones too. PyTorch itself never checks them. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/codec/unpacked.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/extents/decode.h"
#include "libckpt/format/format.h"
#include "libckpt/recipe/verify/verify.h"
#include "libckpt/run/run.h"

enum { WINDOW_BYTES = 1 << 20 };

/* An archive: a whole file, or a slice of it that holds a tensor or another item. */
typedef struct archive {
  uint32_t file;
  uint64_t offset, n_bytes;
  const char *tensor; /* or another item; NULL for a whole file */
  uint64_t n_raw;     /* 0, or it is behind zstd: bytes of the tensor, 1 for another item */
} archive;

/* Where the bytes of an archive are read: a file of the checkpoint, or what a slice of it unpacks to. */
typedef struct opened {
  const archive *of;
  ckpt_source *source;
  uint32_t file;
} opened;

typedef struct checking {
  ckpt_findings *findings;
  const ckpt_index *index;
  const ckpt_run_options *run;
  ckpt_crc_counts *counts;
  archive *archives;
  uint32_t n, capacity;
  bool *is_seen; /* of each file: looked at for being an archive */
  uint8_t *window;
  uint64_t n_read, n_total;
  uint32_t end_file; /* where the last archive that was gone through ends */
  uint64_t end;
  ckpt_finding *said; /* of before, of tensors, by tensor, message and file; owned */
  size_t n_said;
} checking;

/* ---- which archives ---------------------------------------------------------------------------------------------- */

static ckpt_status add_archive(checking *c, archive found, ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&c->archives, c->n, &c->capacity, sizeof *c->archives, err));
  c->archives[c->n++] = found;
  return CKPT_OK;
}

static ckpt_status add_file(checking *c, uint32_t file, ckpt_error *err) {
  uint8_t head[4];
  uint64_t n_bytes = ckpt_source_size(c->index->source, file);
  if (c->is_seen[file] || n_bytes < sizeof head) return CKPT_OK;
  c->is_seen[file] = true;
  CKPT_TRY(ckpt_source_read(c->index->source, file, 0, head, sizeof head, err));
  if (ckpt_zip_is_start(head, sizeof head)) return add_archive(c, (archive){file, 0, n_bytes, NULL, 0}, err);
  c->counts->n_others++;
  return CKPT_OK;
}

/* Archives of what is no tensor come first: the files that they are parts of are none. */
static ckpt_status add_parts(checking *c, ckpt_error *err) {
  for (uint32_t i = 0; i < c->index->n_archives; i++) {
    const ckpt_archive *a = &c->index->archives[i];
    CKPT_TRY(add_archive(c, (archive){a->file, a->offset, a->n_bytes, a->name, a->is_zstd}, err));
    c->is_seen[a->file] = true;
  }
  return CKPT_OK;
}

static ckpt_status add_tensors(checking *c, const ckpt_tensor *tensors, uint32_t n, ckpt_error *err) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t k = 0; k < tensors[i].n_extents; k++) {
      const ckpt_extent *extent = &tensors[i].extents[k];
      if (extent->file == CKPT_FILE_LITERAL) continue;
      bool is_packed = extent->chain[0] == CKPT_DECODE_ZSTD && extent->chain[1] == CKPT_DECODE_RECORD;
      const archive found = {extent->file, extent->offset, extent->n_stored, tensors[i].name,
                             is_packed ? tensors[i].n_bytes : 0};
      if (is_packed || extent->chain[0] == CKPT_DECODE_RECORD) {
        CKPT_TRY(add_archive(c, found, err));
        c->is_seen[extent->file] = true;
      } else {
        CKPT_TRY(add_file(c, extent->file, err));
      }
    }
  return CKPT_OK;
}

/* Whether a trainer's file is one that torch.save or pickle may have written. JSON is looked at elsewhere. */
static ckpt_status is_saved(const checking *c, const ckpt_side_file *side, bool *is, ckpt_error *err) {
  uint8_t head[1024];
  const size_t n = side->n_bytes < sizeof head ? (size_t)side->n_bytes : sizeof head;
  enum { PROTO = 0x80 };
  *is = ckpt_text_ends(side->name, ".json");
  if (*is) return CKPT_OK;
  CKPT_TRY(ckpt_source_read(c->index->source, side->file, 0, head, n, err));
  *is = ckpt_torch_probe(head, n) || (n > 1 && head[0] == PROTO && head[1] <= 5);
  return CKPT_OK;
}

/* What a trainer saved beside the model, optimizer states that are not read among it: archives, and never empty. */
static ckpt_status add_training(checking *c, ckpt_error *err) {
  const uint64_t n_others = c->counts->n_others;
  for (uint32_t i = 0; i < c->index->n_side_files; i++) {
    const ckpt_side_file *side = &c->index->side_files[i];
    bool is_one;
    if (!ckpt_side_file_is_training(side->name)) continue;
    CKPT_TRY(is_saved(c, side, &is_one, err));
    if (side->n_bytes != 0 && !is_one &&
        !ckpt_findings_tell_of(c->findings, ckpt_source_path(c->index->source, side->file), NULL))
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_source_path(c->index->source, side->file), NULL,
                                 "is no file of torch.save (a trainer's %s)", ckpt_side_file_role(side->name)));
    if (side->n_bytes == 0)
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_source_path(c->index->source, side->file), NULL,
                                 "is empty (a trainer's %s)", ckpt_side_file_role(side->name)));
    CKPT_TRY(add_file(c, side->file, err));
  }
  c->counts->n_others = n_others;
  return CKPT_OK;
}

/* Files that no tensor lies in: archives all the same, whose damage may be why; or what says what the tensors are.
 * Where items lie in one of several archives, which the broken ones are, is not known: no record of it is compared. */
static ckpt_status add_rest(checking *c, ckpt_error *err) {
  for (uint32_t i = 0; i < c->index->n_side_files; i++) c->is_seen[c->index->side_files[i].file] = true;
  const uint64_t n_others = c->counts->n_others;
  const bool is_of_items = ckpt_caps_of(c->index).items;
  for (uint32_t file = 0; file < ckpt_source_count(c->index->source); file++) {
    const uint32_t n = c->n;
    if (c->is_seen[file]) continue;
    if (!is_of_items) CKPT_TRY(add_file(c, file, err));
    if (c->n == n && c->counts->bare == NULL) c->counts->bare = ckpt_source_name(c->index->source, file);
  }
  c->counts->n_others = n_others;
  return CKPT_OK;
}

static int by_place(const void *a, const void *b) {
  const archive *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  if (x->n_bytes != y->n_bytes) return x->n_bytes < y->n_bytes ? -1 : 1;
  return (x->n_raw > y->n_raw) - (x->n_raw < y->n_raw);
}

/* ---- one archive ------------------------------------------------------------------------------------------------- */

static ckpt_status advance(checking *c, uint64_t n, ckpt_error *err) {
  c->n_read += n;
  return ckpt_tell_progress(c->run, c->n_read, c->n_total, err);
}

/* Whether a deflated record's stream ends where its bytes end, which whoever reads the content need not notice. PyTorch
 * refuses another one. *is_whole says so. */
static ckpt_status find_end(bool *is_whole, const opened *a, const ckpt_zip_entry *entry, ckpt_error *err) {
  enum { IN_BYTES = 16 << 10, RAW = -15 };
  uint8_t in[IN_BYTES], out[IN_BYTES];
  z_stream z = {0};
  int status = inflateInit2(&z, RAW);
  ckpt_status read = CKPT_OK;
  if (status != Z_OK) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint64_t at = 0; at < entry->n_stored && status == Z_OK && read == CKPT_OK;) {
    const uint64_t n_left = entry->n_stored - at;
    const uInt n = n_left < sizeof in ? (uInt)n_left : (uInt)sizeof in;
    read = ckpt_source_read(a->source, a->file, entry->offset + at, in, n, err);
    at += n;
    z.next_in = in;
    z.avail_in = n;
    do {
      z.next_out = out;
      z.avail_out = sizeof out;
      status = read == CKPT_OK ? inflate(&z, Z_NO_FLUSH) : Z_OK;
    } while (status == Z_OK && (z.avail_in != 0 || z.avail_out == 0) && read == CKPT_OK);
    if (status == Z_BUF_ERROR) status = Z_OK; /* it wants more */
    *is_whole = status == Z_STREAM_END && z.avail_in == 0 && at == entry->n_stored;
  }
  inflateEnd(&z);
  return read;
}

/* The CRC-32 of a record's content. EFORMAT for deflated bytes that are broken. */
static ckpt_status sum_record(checking *c, const opened *a, const ckpt_zip_entry *entry, uint32_t *sum,
                              ckpt_error *err) {
  ckpt_reader reader = {.source = a->source, .max_bytes = CKPT_CURSOR_BYTES};
  ckpt_extent extent = {.file = a->file, .offset = entry->offset, .n_stored = entry->n_stored};
  if (entry->method == CKPT_ZIP_DEFLATED) extent.chain[0] = CKPT_DECODE_INFLATE;
  ckpt_status status = CKPT_OK;
  uint32_t crc = 0;
  for (uint64_t at = 0; at < entry->n_bytes && status == CKPT_OK;) {
    uint64_t n_left = entry->n_bytes - at;
    size_t n = n_left < WINDOW_BYTES ? (size_t)n_left : WINDOW_BYTES;
    status = ckpt_reader_read(&reader, &extent, 1, at, c->window, n, err);
    if (status == CKPT_OK) crc = ckpt_crc32(crc, c->window, n);
    if (status == CKPT_OK) status = advance(c, a->of->n_raw == 0 ? n : 0, err);
    at += n;
  }
  ckpt_reader_reset(&reader);
  *sum = crc;
  bool is_whole = true;
  if (status == CKPT_OK && entry->method == CKPT_ZIP_DEFLATED) status = find_end(&is_whole, a, entry, err);
  if (status == CKPT_OK && !is_whole)
    status = ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its deflated bytes do not end where the record does");
  return status;
}

static ckpt_status check_record(checking *c, const opened *a, const ckpt_zip_entry *entry, ckpt_error *err) {
  ckpt_error defect = {0};
  uint32_t sum = 0;
  const char *path = ckpt_source_path(c->index->source, a->of->file), *tensor = a->of->tensor;
  if (entry->n_bytes == 0) return CKPT_OK;
  if (entry->crc32 == 0) {
    c->counts->n_without++;
    return CKPT_OK;
  }
  ckpt_status status = sum_record(c, a, entry, &sum, &defect);
  if (status == CKPT_EFORMAT) {
    c->counts->n_wrong++;
    return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, tensor, "record '%.200s': %s", entry->name,
                             defect.message);
  }
  if (status != CKPT_OK) {
    if (err != NULL) *err = defect;
    return status;
  }
  c->counts->n_checked++;
  if (sum == entry->crc32) return CKPT_OK;
  c->counts->n_wrong++;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, tensor,
                           "record '%.200s': the CRC-32 of its content is %08x, the archive says %08x (size %llu)",
                           entry->name, sum, entry->crc32, (unsigned long long)entry->n_bytes);
}

/* The bytes around a record; past the last those of the ends. */
static ckpt_status check_around(checking *c, const opened *a, const ckpt_zip *zip, uint32_t number, uint32_t *n_torch,
                                ckpt_error *err) {
  ckpt_error defect = {0};
  ckpt_status status = number == ckpt_zip_count(zip)
                           ? ckpt_zip_check_ends(zip, *n_torch, a->source, a->file, &defect)
                           : ckpt_zip_check(zip, number, a->source, a->file, n_torch, &defect);
  if (status == CKPT_OK) return CKPT_OK;
  if (status == CKPT_EFORMAT)
    return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, ckpt_source_path(c->index->source, a->of->file),
                                   a->of->tensor, &defect);
  if (err != NULL) *err = defect;
  return status;
}

static int by_defect(const void *a, const void *b) {
  const ckpt_finding *x = a, *y = b;
  int order = strcmp(x->tensor, y->tensor);
  if (order == 0) order = strcmp(x->message, y->message);
  return order != 0 ? order : strcmp(x->file, y->file);
}

static ckpt_status list_said(checking *c, ckpt_error *err) {
  const ckpt_findings *findings = c->findings;
  c->said = calloc(findings->n + 1, sizeof *c->said);
  CKPT_TRY_ALLOC(c->said, err);
  for (size_t i = 0; i < findings->n; i++)
    if (findings->items[i].file != NULL && findings->items[i].tensor != NULL) c->said[c->n_said++] = findings->items[i];
  qsort(c->said, c->n_said, sizeof *c->said, by_defect);
  return CKPT_OK;
}

/* Whether reading the values has met this defect too: that is said once. */
static bool is_said(const checking *c, const char *path, const char *tensor, const char *message) {
  const ckpt_finding wanted = {.file = path, .tensor = tensor, .message = message};
  return tensor != NULL && bsearch(&wanted, c->said, c->n_said, sizeof *c->said, by_defect) != NULL;
}

/* An archive that cannot be opened: a tensor may be read from it all the same, by its local headers. */
static ckpt_status refuse(checking *c, const archive *a, const char *message, ckpt_error *err) {
  const char *path = ckpt_source_path(c->index->source, a->file);
  c->counts->n_wrong++;
  if (is_said(c, path, a->tensor, message)) return CKPT_OK;
  if (a->tensor == NULL && ckpt_findings_tell_of(c->findings, path, message)) return CKPT_OK; /* why it was not read */
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, a->tensor, "its archive: %s", message);
}

static ckpt_status check_opened(checking *c, const opened *a, uint64_t offset, uint64_t n_bytes, ckpt_error *err) {
  ckpt_zip *zip;
  ckpt_error defect = {0};
  ckpt_status status = ckpt_zip_open(&zip, a->source, a->file, offset, n_bytes, CKPT_ZIP_MAX_BYTES, &defect);
  if (status == CKPT_EFORMAT || status == CKPT_EUNSUPPORTED) return refuse(c, a->of, defect.message, err);
  if (status == CKPT_ELIMIT) {
    c->counts->n_passed++;
    return CKPT_OK;
  }
  if (status != CKPT_OK) {
    if (err != NULL) *err = defect;
    return status;
  }
  uint32_t n_torch = 0;
  for (uint32_t i = 0; i < ckpt_zip_count(zip) && status == CKPT_OK; i++) {
    status = check_around(c, a, zip, i, &n_torch, err);
    if (status == CKPT_OK) status = check_record(c, a, ckpt_zip_at(zip, i), err);
  }
  if (status == CKPT_OK) status = check_around(c, a, zip, ckpt_zip_count(zip), &n_torch, err);
  ckpt_zip_free(zip);
  return status;
}

/* Unpacking can be cancelled. */
static ckpt_status look_up(void *arg, uint64_t n_bytes, bool *may_go_on, ckpt_error *err) {
  (void)n_bytes, (void)may_go_on;
  return advance(arg, 0, err);
}

/* An archive behind zstd; one that does not end where its tensor lets expect it is not gone through. */
static ckpt_status check_packed(checking *c, const archive *a, ckpt_error *err) {
  enum { MOST_AROUND = 64 << 20 };
  const ckpt_packed packed = {c->index->source, a->file, a->offset, a->n_bytes, CKPT_PACKED_ZSTD};
  uint64_t most;
  ckpt_unpacked *u;
  opened found = {.of = a};
  if (!ckpt_add_u64(a->n_raw, MOST_AROUND, &most)) most = UINT64_MAX;
  CKPT_TRY(ckpt_unpacked_new(&u, &packed, look_up, c, err));
  ckpt_status status = ckpt_unpacked_go(u, most, err);
  ckpt_unpacked_state end = ckpt_unpacked_at(u);
  if (status == CKPT_OK && !end.is_whole) {
    c->counts->n_passed++;
  } else if (status == CKPT_OK) {
    status = ckpt_unpacked_source(&found.source, u, ckpt_source_path(c->index->source, a->file), err);
    if (status == CKPT_OK) status = check_opened(c, &found, 0, end.n_bytes, err);
    ckpt_source_free(found.source);
    if (status == CKPT_OK && end.n_used != a->n_bytes) {
      c->counts->n_wrong++;
      status = ckpt_findings_add(c->findings, err, CKPT_PROBLEM, ckpt_source_path(c->index->source, a->file), a->tensor,
                                 "bytes follow the zstd stream in its slice (%llu after %llu)",
                                 (unsigned long long)(a->n_bytes - end.n_used), (unsigned long long)end.n_used);
    }
  }
  ckpt_unpacked_free(u);
  return status == CKPT_OK ? advance(c, a->n_bytes, err) : status;
}

static ckpt_status check_archive(checking *c, const archive *a, ckpt_error *err) {
  const opened found = {a, c->index->source, a->file};
  return a->n_raw != 0 ? check_packed(c, a, err) : check_opened(c, &found, a->offset, a->n_bytes, err);
}

/* One slice may stand for several tensors; what overlaps otherwise is not read again and again. */
static ckpt_status check_next(checking *c, uint32_t number, ckpt_error *err) {
  const archive *a = &c->archives[number];
  if (number != 0 && by_place(a - 1, a) == 0) return CKPT_OK;
  if (number != 0 && a->file == c->end_file && a->offset < c->end) {
    c->counts->n_passed++;
    return CKPT_OK;
  }
  c->end_file = a->file;
  c->end = a->offset + a->n_bytes;
  return check_archive(c, a, err);
}

ckpt_status ckpt_verify_crc(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                            ckpt_crc_counts *counts, ckpt_error *err) {
  checking c = {.findings = findings, .index = index, .run = run, .counts = counts};
  ckpt_status status = CKPT_OK;
  *counts = (ckpt_crc_counts){0};
  c.is_seen = calloc((size_t)ckpt_source_count(index->source) + 1, sizeof *c.is_seen);
  c.window = malloc(WINDOW_BYTES);
  if (c.is_seen == NULL || c.window == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = list_said(&c, err);
  if (status == CKPT_OK) status = add_parts(&c, err);
  if (status == CKPT_OK) status = add_tensors(&c, index->tensors, index->n_tensors, err);
  if (status == CKPT_OK) status = add_tensors(&c, index->stored, index->n_stored, err);
  if (status == CKPT_OK) status = add_training(&c, err);
  if (status == CKPT_OK) status = add_rest(&c, err);
  if (c.n > 1) qsort(c.archives, c.n, sizeof *c.archives, by_place);
  for (uint32_t i = 0; i < c.n; i++) c.n_total += c.archives[i].n_bytes;
  for (uint32_t i = 0; i < c.n && status == CKPT_OK; i++) status = check_next(&c, i, err);
  free(c.said);
  free(c.is_seen);
  free(c.window);
  free(c.archives);
  return status;
}
