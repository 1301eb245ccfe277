/* verify.c - what only `verify` looks at in ONNX models: the size that protobuf reads, the checksums of files of
 * external data, and the indices of sparse tensors.
 *
 * onnx.proto: `indices` are int64, [NNZ] into the flat tensor or [NNZ, rank], in order, none twice. `checksum`,
 * optional, the SHA1 digest of the file under `location`: all of it, whatever part of it a tensor has. Neither onnx nor
 * ONNX Runtime compares it. */
#include <stdlib.h>
#include <string.h>

#include "formats/onnx/onnx.h"
#include "libckpt/base/checked.h"
#include "libckpt/base/digest.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/extents/place.h"
#include "libckpt/format/findings.h"
#include "libckpt/index/defects.h"
#include "libckpt/io/source.h"
#include "libckpt/run/run.h"

enum { WINDOW_BYTES = 1 << 20, N_SHA1 = 20, N_HEX = 2 * N_SHA1 };

/* What a tensor says of a file. */
typedef struct claim {
  uint32_t file;
  const char *checksum, *tensor;
} claim;

typedef struct checking {
  ckpt_findings *findings;
  ckpt_source *source;
  const ckpt_run_options *run;
  claim *claims; /* sorted, each file and checksum once */
  uint32_t n;
  uint8_t *window;
  ckpt_hasher *hasher;
  uint64_t n_read, n_total;
} checking;

static int compare_claims(const void *a, const void *b) {
  const claim *x = a, *y = b;
  if (x->file != y->file) return x->file < y->file ? -1 : 1;
  return strcmp(x->checksum, y->checksum);
}

static ckpt_status take_claims(checking *c, const ckpt_index *index, ckpt_error *err) {
  const struct ckpt_graph *graph = index->graph;
  c->claims = calloc((size_t)index->n_tensors + 1, sizeof *c->claims);
  CKPT_TRY_ALLOC(c->claims, err);
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const char *checksum =
        graph->slots[tensor->details->origin].checksum; /* where others are broken the numbers have moved */
    if (checksum == NULL || tensor->n_extents == 0) continue;
    c->claims[n++] = (claim){tensor->extents->file, checksum, tensor->name};
  }
  qsort(c->claims, n, sizeof *c->claims, compare_claims);
  for (uint32_t i = 0; i < n; i++) {
    if (c->n != 0 && compare_claims(&c->claims[c->n - 1], &c->claims[i]) == 0) continue;
    if (c->n == 0 || c->claims[c->n - 1].file != c->claims[i].file)
      c->n_total += ckpt_source_size(c->source, c->claims[i].file);
    c->claims[c->n++] = c->claims[i];
  }
  return CKPT_OK;
}

static ckpt_status sum_file(checking *c, uint32_t file, char hex[N_HEX + 1], ckpt_error *err) {
  static const char digits[] = "0123456789abcdef";
  const uint64_t size = ckpt_source_size(c->source, file);
  uint8_t digest[N_SHA1];
  CKPT_TRY(ckpt_hasher_begin_sha1(c->hasher, err));
  for (uint64_t at = 0; at < size;) {
    const size_t n = size - at < WINDOW_BYTES ? (size_t)(size - at) : WINDOW_BYTES;
    CKPT_TRY(ckpt_source_read(c->source, file, at, c->window, n, err));
    CKPT_TRY(ckpt_hasher_add(c->hasher, c->window, n, err));
    at += n;
    c->n_read += n;
    CKPT_TRY(ckpt_tell_progress(c->run, c->n_read, c->n_total, err));
  }
  CKPT_TRY(ckpt_hasher_end_sha1(c->hasher, digest, err));
  for (size_t i = 0; i < N_HEX; i++) hex[i] = digits[digest[i / 2] >> (i % 2 == 0 ? 4 : 0) & 15];
  hex[N_HEX] = '\0';
  return CKPT_OK;
}

static bool is_sha1(const char *text) {
  return strlen(text) == N_HEX && strspn(text, "0123456789abcdefABCDEF") == N_HEX;
}

/* Hexadecimal digits, of either case. */
static bool is_equal(const char *stated, const char *hex) {
  for (size_t i = 0; i < N_HEX; i++)
    if ((stated[i] >= 'A' && stated[i] <= 'F' ? stated[i] - 'A' + 'a' : stated[i]) != hex[i]) return false;
  return true;
}

/* Reads each file once. */
static ckpt_status compare(checking *c, ckpt_error *err) {
  char hex[N_HEX + 1] = "";
  uint32_t n_equal = 0;
  for (uint32_t i = 0; i < c->n; i++) {
    const claim *said = &c->claims[i];
    const char *path = ckpt_source_path(c->source, said->file);
    if (i == 0 || said->file != said[-1].file) CKPT_TRY(sum_file(c, said->file, hex, err));
    if (!is_sha1(said->checksum)) {
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, said->tensor,
                                 "the model states the checksum '%s' of it, which is no SHA-1 (40 hexadecimal digits)",
                                 said->checksum));
    } else if (!is_equal(said->checksum, hex)) {
      CKPT_TRY(ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, said->tensor,
                                 "its SHA-1 is %s, not %s as the model states (download it again)", hex,
                                 said->checksum));
    } else {
      n_equal++;
    }
  }
  if (n_equal == 0) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROVEN, NULL, NULL,
                           "files: SHA-1 of %u file%s of external data is what the model states", n_equal,
                           ckpt_plural(n_equal));
}

/* ---- sparse tensors ---------------------------------------------------------------------------------------------- */

/* The indices of a sparse tensor, taken one after the other: each is `width` numbers below `bounds`. */
typedef struct places {
  uint32_t width;
  uint64_t bounds[CKPT_MAX_RANK];
  uint8_t last[8 * CKPT_MAX_RANK];
} places;

/* What is wrong with the shape of the parts; NULL: nothing, and *out is how they are read. */
static const char *check_parts(const ckpt_composite *sparse, const ckpt_tensor *values, const ckpt_tensor *indices,
                               places *out) {
  if (values->rank != 1) return "its values have more than one axis, or none";
  if (indices->dtype != CKPT_I64) return "its indices are not of int64";
  if (indices->rank == 0 || indices->shape[0] != values->shape[0]) return "it has not one index for each value";
  out->width = indices->rank == 1 ? 1 : sparse->rank;
  if (indices->rank > 2 || (indices->rank == 2 && indices->shape[1] != sparse->rank))
    return "its indices have not one number for each of its axes";
  memcpy(out->bounds, sparse->shape, sparse->rank * sizeof *out->bounds);
  if (indices->rank == 1 && !ckpt_product_u64(sparse->shape, sparse->rank, &out->bounds[0])) out->bounds[0] = INT64_MAX;
  return NULL;
}

/* What is wrong with an index; NULL: nothing. */
static const char *check_place(const places *p, const uint8_t *index, bool is_first) {
  int order = is_first ? 1 : 0;
  for (uint32_t i = 0; i < p->width; i++) {
    const uint64_t number = ckpt_le64(index + 8 * i), last = ckpt_le64(p->last + 8 * i);
    if (number >= p->bounds[i]) return "is not in its shape"; /* nor is what is negative */
    if (order == 0) order = number > last ? 1 : number < last ? -1 : 0;
  }
  return order > 0 ? NULL : order == 0 ? "is there twice" : "is not behind the one before it";
}

/* Reads indices until one is wrong: *what. */
static ckpt_status check_places(checking *c, ckpt_mover *mover, const ckpt_tensor *indices, places *p, uint64_t *number,
                                const char **what, ckpt_error *err) {
  static const uint64_t start[CKPT_MAX_RANK] = {0};
  const uint64_t n_all = indices->shape[0], n_window = WINDOW_BYTES / 8 / p->width;
  const size_t n_bytes = 8 * (size_t)p->width;
  for (uint64_t at = 0; at < n_all; at += n_window) {
    const uint64_t n = n_all - at < n_window ? n_all - at : n_window;
    CKPT_TRY(ckpt_place(mover, indices, start, indices->shape, at * p->width, n * p->width, c->window, err));
    for (*number = at; *number < at + n; ++*number) {
      const uint8_t *index = c->window + (*number - at) * n_bytes;
      *what = check_place(p, index, *number == 0);
      if (*what != NULL) return CKPT_OK;
      memcpy(p->last, index, n_bytes);
    }
    CKPT_TRY(ckpt_check_cancel(c->run, "cancelled", err));
  }
  return CKPT_OK;
}

static ckpt_status check_sparse(checking *c, ckpt_mover *mover, const ckpt_index *index, const ckpt_composite *sparse,
                                ckpt_error *err) {
  const ckpt_tensor *values = ckpt_index_find(index, sparse->components[0]);
  const ckpt_tensor *indices = ckpt_index_find(index, sparse->components[1]);
  if (values == NULL || indices == NULL || indices->details->extent_form == CKPT_EXTENT_BROKEN)
    return CKPT_OK; /* told of */
  places p = {.width = 1};
  const char *path = ckpt_index_file_of(index, indices), *what = check_parts(sparse, values, indices, &p);
  uint64_t number = 0;
  if (what != NULL) return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, sparse->name, "%s", what);
  ckpt_error defect = {0};
  ckpt_status status = check_places(c, mover, indices, &p, &number, &what, &defect);
  if (ckpt_is_defect(status)) /* a stream that the values' check names too */
    return ckpt_findings_add_error(c->findings, err, CKPT_PROBLEM, path, indices->name, &defect);
  if (status != CKPT_OK) return ckpt_fail_as(err, status, path, indices->name, &defect);
  if (what == NULL) return CKPT_OK;
  return ckpt_findings_add(c->findings, err, CKPT_PROBLEM, path, sparse->name, "index %llu of its values %s",
                           (unsigned long long)number, what);
}

static ckpt_status check_sparse_all(checking *c, const ckpt_index *index, ckpt_error *err) {
  ckpt_mover mover = {.reader.source = index->source};
  ckpt_status status = CKPT_OK;
  mover.window = malloc(CKPT_WINDOW_BYTES);
  CKPT_TRY_ALLOC(mover.window, err);
  for (uint32_t i = 0; i < index->n_composites && status == CKPT_OK; i++)
    if (index->composites[i].kind == CKPT_COMPOSITE_SPARSE_COO)
      status = check_sparse(c, &mover, index, &index->composites[i], err);
  ckpt_reader_reset(&mover.reader);
  free(mover.window);
  return status;
}

/* ckpt reads a model of any size, and nothing else does. */
static ckpt_status check_size(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err) {
  const uint64_t n = ckpt_source_size(index->source, index->graph->file);
  if (n <= CKPT_ONNX_MAX_MODEL) return CKPT_OK;
  return ckpt_findings_advise(
      ckpt_findings_add(findings, err, CKPT_PROBLEM, ckpt_source_path(index->source, index->graph->file), NULL,
                        "a model of %llu bytes, and %llu are what protobuf reads: onnx and ONNX Runtime cannot load it",
                        (unsigned long long)n, (unsigned long long)CKPT_ONNX_MAX_MODEL),
      findings, "%external_data", NULL);
}

ckpt_status ckpt_onnx_verify(struct ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err) {
  const ckpt_run_options plain = {.struct_size = sizeof plain};
  checking c = {.findings = findings, .source = index->source, .run = run == NULL ? &plain : run};
  ckpt_status status;
  CKPT_TRY_GOTO(check_size(findings, index, err));
  CKPT_TRY_GOTO(take_claims(&c, index, err));
  if (c.n == 0 && index->n_composites == 0) goto done;
  c.window = malloc(WINDOW_BYTES);
  if (c.window == NULL) {
    status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
    goto done;
  }
  CKPT_TRY_GOTO(check_sparse_all(&c, index, err));
  CKPT_TRY_GOTO(ckpt_hasher_new(&c.hasher, err));
  status = compare(&c, err);
done:
  ckpt_hasher_free(c.hasher);
  free(c.window);
  free(c.claims);
  return status;
}
