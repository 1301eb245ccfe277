/* record.c - see record.h. Forwards, PyTorch's local headers have no sizes (flag bit 3, zip.c): a record
 * ends at the first data descriptor whose size is the distance, with a header behind it. Empty records have neither
 * the flag nor a descriptor. */
#include "libckpt/codec/torch/read/record.h"

#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"
#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/codec/torch/read/graph.h"
#include "libckpt/codec/zip/zip.h"
#include "libckpt/io/records.h"

/* Looking for a descriptor goes on in steps that end, once it is seen, before the end of the local header behind it. */
enum { STEP_BYTES = 16 };

/* What a search needs at most of an archive that can only be read forwards, and bytes that follow any record of it. */
enum { HEAD_BYTES = 64 << 10, TAIL_BYTES = 28 };

enum { FLAG_DESCRIPTOR = 1 << 3, MAX_ROOT = 255, DIRECTORY_BYTES = 64 << 20, PICKLE_BYTES = 64 << 10 };

/* Bytes of the root of a name; 0 for none. */
static size_t root_of(const char *name, size_t n_name) {
  const char *slash = memchr(name, '/', n_name);
  return slash == NULL || slash - name > MAX_ROOT ? 0 : (size_t)(slash - name);
}

/* Whether a name is <root>/<rest>..., and exactly that where `whole`. */
static bool is_below(const char *name, size_t n_name, const char *root, size_t n_root, const char *rest, bool whole) {
  size_t n_rest = strlen(rest);
  if (n_name < n_root + 1 + n_rest || (whole && n_name != n_root + 1 + n_rest)) return false;
  return memcmp(name, root, n_root) == 0 && name[n_root] == '/' && memcmp(name + n_root + 1, rest, n_rest) == 0;
}

static ckpt_status take_byteorder(bool *is_big_endian, const uint8_t *bytes, uint64_t n_bytes, const char *path,
                                  ckpt_error *err) {
  *is_big_endian = n_bytes == 3 && memcmp(bytes, "big", 3) == 0;
  if (*is_big_endian || (n_bytes == 6 && memcmp(bytes, "little", 6) == 0)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "byteorder is neither 'little' nor 'big' in a torch.save archive");
}

static ckpt_status read_byteorder(bool *is_big_endian, ckpt_source *source, uint32_t file, const ckpt_zip_entry *entry,
                                  ckpt_error *err) {
  uint8_t bytes[8];
  const char *path = ckpt_source_path(source, file);
  if (entry->method != CKPT_ZIP_STORED || entry->n_bytes > sizeof bytes)
    return take_byteorder(is_big_endian, NULL, 0, path, err);
  CKPT_TRY(ckpt_source_read(source, file, entry->offset, bytes, (size_t)entry->n_bytes, err));
  return take_byteorder(is_big_endian, bytes, entry->n_bytes, path, err);
}

/* ---- how the tensor lies ---- */

static bool is_rebuild(const ckpt_object *object) {
  return ckpt_foreign_is(object, "torch._utils", "_rebuild_tensor_v2") ||
         ckpt_foreign_is(object, "torch._utils", "_rebuild_tensor_v3") ||
         ckpt_foreign_is(object, "torch._utils", "_rebuild_tensor");
}

/* The metadata behind v2's hooks, which says "conj" or "neg": bits that are not in the record; NULL where it is empty.
 */
static const ckpt_object *bits_of(const ckpt_object *call) {
  const ckpt_object *last = is_rebuild(call) && call->n > 6 ? ckpt_foreign_arg(call, call->n - 1) : NULL;
  return last != NULL && last->kind == CKPT_OBJECT_DICT && last->n != 0 ? last : NULL;
}

/* Takes these bits, where they turn signs and nothing else. */
static bool take_bits(ckpt_record_layout *out, const ckpt_object *bits) {
  const bool has_conj = ckpt_object_field(bits, "conj") != NULL, has_neg = ckpt_object_field(bits, "neg") != NULL;
  return bits == NULL ||
         (ckpt_torch_signs(&out->signs, out->dtype, bits) && bits->n == (uint64_t)has_conj + (uint64_t)has_neg);
}

/* _rebuild_tensor_v2(storage, offset, size, stride, ...), or nothing that we know. */
static bool take_call(ckpt_record_layout *out, const ckpt_object *root) {
  const ckpt_object *start = root == NULL || !is_rebuild(root) ? NULL : ckpt_foreign_arg(root, 1);
  uint32_t n_strides;
  if (start == NULL || start->kind != CKPT_OBJECT_INT || start->integer < 0) return false;
  out->start = (uint64_t)start->integer;
  out->dtype = ckpt_torch_call_dtype(root);
  if (!take_bits(out, bits_of(root))) return false;
  return ckpt_foreign_u64s(ckpt_foreign_arg(root, 2), out->sizes, CKPT_MAX_RANK, &out->rank) &&
         ckpt_foreign_u64s(ckpt_foreign_arg(root, 3), out->strides, CKPT_MAX_RANK, &n_strides) &&
         n_strides == out->rank;
}

/* The first that loading the archive would call and that is not for tensors, or NULL. */
static const char *what_runs(const ckpt_pickle_report *report) {
  for (uint32_t i = 0; i < report->n_globals; i++) {
    const ckpt_pickle_global *global = report->globals[i];
    ckpt_pickle_verdict verdict = ckpt_pickle_judge(global);
    bool is_used = global->n_called != 0 || global->n_built != 0;
    if (verdict == CKPT_PICKLE_DANGEROUS || (verdict == CKPT_PICKLE_FOREIGN && is_used)) return global->name;
  }
  return report->n_value_calls != 0 ? "what another call returned" : NULL;
}

static ckpt_status take_pickle(ckpt_record_layout *out, const void *bytes, size_t n_bytes, const char *path,
                               ckpt_error *err) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, 64 * PICKLE_BYTES);
  ckpt_pickle_report report = {0};
  ckpt_pickle_options options = {.data = bytes, .n_bytes = n_bytes, .file = path, .report = &report};
  const char *name = NULL;
  ckpt_object *root;
  ckpt_status status = ckpt_pickle_read(&root, NULL, &options, &arena, err);
  const ckpt_object *tensor = root;
  if (status == CKPT_OK && ckpt_foreign_is(root, "torch._utils", "_rebuild_parameter"))
    tensor = ckpt_foreign_arg(root, 0);
  if (status == CKPT_OK && (name = what_runs(&report)) != NULL)
    status = ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "would run code when it is unpickled: %.700s", name);
  else if (status == CKPT_OK && !take_call(out, tensor))
    status = ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a torch.save archive holds %s, not a plain tensor",
                       tensor != NULL && bits_of(tensor) != NULL ? "a conjugate or a negative of what has no sign"
                       : root->kind == CKPT_OBJECT_FOREIGN       ? root->name
                                                                 : "something else");
  ckpt_arena_free(&arena);
  return status;
}

/* EUNSUPPORTED where a tensor does not lie row-major from the beginning of its record. */
static ckpt_status check_row_major(const ckpt_record_layout *layout, const char *path, ckpt_error *err) {
  uint64_t n_elements;
  if (ckpt_is_row_major(layout->rank, layout->sizes, layout->strides) &&
      (layout->start == 0 || (ckpt_product_u64(layout->sizes, layout->rank, &n_elements) && n_elements == 0)))
    return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                   "a tensor of a torch.save archive is not contiguous, and its metadata does not say so (load it with "
                   "PyTorch, make it contiguous, and save it again)");
}

/* What whoever reads the record has to know of it. */
static void take_layout(ckpt_record *out, const ckpt_record_layout *layout) {
  out->dtype = layout->dtype;
  out->signs = layout->signs;
}

static ckpt_status read_pickle(ckpt_record_layout *out, ckpt_source *source, uint32_t file, const ckpt_zip_entry *entry,
                               ckpt_error *err) {
  const char *path = ckpt_source_path(source, file);
  if (entry == NULL || entry->method != CKPT_ZIP_STORED || entry->n_bytes > PICKLE_BYTES)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a torch.save archive %s",
                     entry == NULL                      ? "without data.pkl"
                     : entry->method != CKPT_ZIP_STORED ? "whose data.pkl is compressed"
                                                        : "whose data.pkl is larger than any tensor's");
  uint8_t few[1024], *bytes = entry->n_bytes <= sizeof few ? few : malloc((size_t)entry->n_bytes);
  CKPT_TRY_ALLOC(bytes, err);
  ckpt_status status = ckpt_source_read(source, file, entry->offset, bytes, (size_t)entry->n_bytes, err);
  const bool has_sum = status == CKPT_OK && entry->crc32 != 0;
  const uint32_t sum = has_sum ? ckpt_crc32(0, bytes, (size_t)entry->n_bytes) : entry->crc32;
  if (sum != entry->crc32)
    status = ckpt_source_refuse_record(source, file, NULL, entry->name, sum, entry->crc32, entry->n_bytes, err);
  if (status == CKPT_OK) status = take_pickle(out, bytes, (size_t)entry->n_bytes, path, err);
  if (bytes != few) free(bytes);
  return status;
}

/* ---- by the directory ---- */

static ckpt_status find_in(ckpt_record *out, ckpt_record_layout *layout, const ckpt_zip *zip, ckpt_source *source,
                           uint32_t file, ckpt_error *err) {
  const ckpt_zip_entry *pickle = NULL;
  const ckpt_zip_entry *first = ckpt_zip_count(zip) == 0 ? NULL : ckpt_zip_at(zip, 0), *data = NULL;
  size_t n_root = first == NULL ? 0 : root_of(first->name, strlen(first->name));
  uint32_t n_data = 0;
  for (uint32_t i = 0; i < ckpt_zip_count(zip) && n_root != 0; i++) {
    const ckpt_zip_entry *entry = ckpt_zip_at(zip, i);
    size_t n_name = strlen(entry->name);
    if (is_below(entry->name, n_name, first->name, n_root, "data/", false)) data = entry, n_data++;
    if (is_below(entry->name, n_name, first->name, n_root, "data.pkl", true)) pickle = entry;
    if (is_below(entry->name, n_name, first->name, n_root, "byteorder", true))
      CKPT_TRY(read_byteorder(&out->is_big_endian, source, file, entry, err));
  }
  if (n_data != 1)
    return ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL,
                     "a torch.save archive of one tensor has %u data records", n_data);
  out->offset = data->offset;
  out->n_stored = data->n_stored;
  out->n_bytes = data->n_bytes;
  out->is_deflated = data->method == CKPT_ZIP_DEFLATED;
  out->has_crc32 = data->crc32 != 0;
  out->crc32 = data->crc32;
  CKPT_TRY(read_pickle(layout, source, file, pickle, err));
  take_layout(out, layout);
  return CKPT_OK;
}

ckpt_status ckpt_torch_record_layout(ckpt_record *out, ckpt_record_layout *layout, ckpt_source *source, uint32_t file,
                                     uint64_t offset, uint64_t n_bytes, ckpt_error *err) {
  *out = (ckpt_record){0};
  *layout = (ckpt_record_layout){0};
  ckpt_zip *zip;
  CKPT_TRY(ckpt_zip_open(&zip, source, file, offset, n_bytes, DIRECTORY_BYTES, err));
  ckpt_status status = find_in(out, layout, zip, source, file, err);
  ckpt_zip_free(zip);
  return status;
}

/* ---- forwards ---------------------------------------------------------------------------------------------------- */

static bool is_header(const uint8_t *at) {
  return at[0] == 'P' && at[1] == 'K' && ((at[2] == 3 && at[3] == 4) || (at[2] == 1 && at[3] == 2));
}

/* Bytes of the descriptor at `at` of a record of n_record bytes; 0: there is none. TAIL_BYTES are there. */
static size_t descriptor_at(const uint8_t *at, uint64_t n_record) {
  if (at[0] != 'P' || at[1] != 'K' || at[2] != 7 || at[3] != 8) return 0;
  if (ckpt_le32(at + 8) == n_record && ckpt_le32(at + 12) == n_record && is_header(at + 16)) return 16;
  return ckpt_le64(at + 8) == n_record && ckpt_le64(at + 16) == n_record && is_header(at + 24) ? 24 : 0;
}

/* Whether the TAIL_BYTES behind a record that was found forwards say that it ended there, with this length: its data
 * descriptor, where it has one, and the next header. */
static bool record_ends(const uint8_t *bytes, uint64_t n_record, uint32_t *crc32) {
  const bool is_described = descriptor_at(bytes, n_record) != 0;
  *crc32 = is_described ? ckpt_le32(bytes + 4) : 0;
  return is_described || (n_record == 0 && is_header(bytes));
}

/* Where the stored record ends that begins at `at`; 0 where more bytes are needed. *next is past its descriptor. */
static size_t find_end(const uint8_t *bytes, size_t n_bytes, size_t at, size_t *next) {
  for (size_t i = at; i + TAIL_BYTES <= n_bytes; i++) {
    const uint8_t *found = memchr(bytes + i, 'P', n_bytes - TAIL_BYTES + 1 - i);
    if (found == NULL) return 0;
    i = (size_t)(found - bytes);
    size_t n = descriptor_at(found, i - at);
    if (n == 0) continue;
    *next = i + n;
    return i;
  }
  return 0;
}

/* A local header of the archive's first bytes. */
typedef struct local {
  const char *name;
  size_t n_name, payload; /* payload: where it begins */
  uint64_t n_bytes;       /* UINT64_MAX: a descriptor says it */
  uint32_t crc32;         /* of the content; 0: none is said, or behind it */
} local;

/* Takes the header at `at`, or says in *n_needed what is missing of it. */
static ckpt_status take_local(local *out, size_t *n_needed, const uint8_t *bytes, size_t n_bytes, size_t at,
                              const char *path, ckpt_error *err) {
  const uint8_t *head = bytes + at;
  *n_needed = at + CKPT_ZIP_LOCAL_BYTES;
  if (n_bytes < *n_needed) return CKPT_OK;
  if (!is_header(head) || head[2] != 3)
    return ckpt_fail(err, CKPT_EFORMAT, path, NULL, "no tensor record in a torch.save archive (up to byte %zu)", at);
  unsigned flags = ckpt_le16(head + 6), method = ckpt_le16(head + 8);
  *out = (local){.name = (const char *)head + CKPT_ZIP_LOCAL_BYTES,
                 .n_name = ckpt_le16(head + 26),
                 .n_bytes = ckpt_le32(head + 22),
                 .crc32 = ckpt_le32(head + 14)};
  *n_needed = out->payload = at + CKPT_ZIP_LOCAL_BYTES + out->n_name + ckpt_le16(head + 28);
  if (flags & FLAG_DESCRIPTOR) out->n_bytes = UINT64_MAX, out->crc32 = 0;
  if (method != CKPT_ZIP_STORED || (flags & 1) || out->n_bytes == UINT32_MAX)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                     "compressed or zip64 records in a torch.save archive that is compressed itself");
  if (n_bytes >= *n_needed) *n_needed = 0;
  return CKPT_OK;
}

ckpt_status ckpt_torch_record_scan(ckpt_record *out, ckpt_record_layout *layout, size_t *n_needed, const uint8_t *bytes,
                                   size_t n_bytes, const char *path, ckpt_error *err) {
  *out = (ckpt_record){0};
  *layout = (ckpt_record_layout){0};
  const char *root = NULL;
  size_t n_root = 0;
  bool has_layout = false;
  for (size_t at = 0, next;; at = next) {
    local l = {0};
    CKPT_TRY(take_local(&l, n_needed, bytes, n_bytes, at, path, err));
    if (*n_needed != 0) return CKPT_OK;
    if (root == NULL) root = l.name, n_root = root_of(l.name, l.n_name);
    if (is_below(l.name, l.n_name, root, n_root, "data/", false)) {
      if (!has_layout)
        return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                         "a torch.save archive without data.pkl before its data, compressed as a whole");
      out->offset = l.payload;
      out->n_bytes = out->n_stored = l.n_bytes;
      out->crc32 = l.crc32;
      out->has_crc32 = l.crc32 != 0;
      out->ends_with_crc32 = l.n_bytes == UINT64_MAX;
      return CKPT_OK;
    }
    size_t end;
    if (l.n_bytes != UINT64_MAX) {
      end = next = l.payload + (size_t)l.n_bytes;
    } else {
      end = find_end(bytes, n_bytes, l.payload, &next);
      if (end == 0) end = next = n_bytes + STEP_BYTES;
    }
    *n_needed = end;
    if (end > n_bytes) return CKPT_OK;
    if (is_below(l.name, l.n_name, root, n_root, "byteorder", true))
      CKPT_TRY(take_byteorder(&out->is_big_endian, bytes + l.payload, end - l.payload, path, err));
    if (is_below(l.name, l.n_name, root, n_root, "data.pkl", true)) {
      CKPT_TRY(take_pickle(layout, bytes + l.payload, end - l.payload, path, err));
      take_layout(out, layout);
      has_layout = true;
    }
  }
}

static const ckpt_record_decoder decoder = {.n_head = HEAD_BYTES,
                                            .n_tail = TAIL_BYTES,
                                            .find = ckpt_torch_record_layout,
                                            .scan = ckpt_torch_record_scan,
                                            .ends = record_ends,
                                            .check_row_major = check_row_major};
const ckpt_decoder_row ckpt_decoder_torch_record = {.name = "torch.save", .record = &decoder};
