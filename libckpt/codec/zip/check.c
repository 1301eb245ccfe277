/* check.c - what stands around a zip entry's payload, for `verify`: see zip.h; zip.c has the fields.
 *
 * Reading takes the sizes and the checksum from the directory. So the descriptor behind a payload, the flags and times
 * of the local header and what fills up its extra field could be anything, and no reader would see it. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/codec/zip/zip.h"

enum { FIELD_BYTES = 4, MAX_DESCRIPTOR = 24, FLAG_DESCRIPTOR = 1 << 3 };

typedef unsigned long long ull;

/* The extra fields of n bytes: NULL where they are what they should be. "FB" is PyTorch's, up to an aligned payload. */
static const char *extra_defect(const uint8_t *extra, size_t n, bool *is_torch) {
  while (n != 0) {
    *is_torch = *is_torch || (n >= FIELD_BYTES && memcmp(extra, "FB", 2) == 0);
    size_t n_field = n < FIELD_BYTES ? n : ckpt_le16(extra + 2);
    if (n < FIELD_BYTES || n_field > n - FIELD_BYTES) return "its extra field is damaged";
    for (size_t i = 0; memcmp(extra, "FB", 2) == 0 && i < n_field; i++)
      if (extra[FIELD_BYTES + i] != 'Z') return "its padding is not 'Z'";
    extra += FIELD_BYTES + n_field;
    n -= FIELD_BYTES + n_field;
  }
  return NULL;
}

/* Whether n bytes are the descriptor of an entry: with a signature or without, sizes of 4 or of 8 bytes. */
static bool is_descriptor(const ckpt_zip_entry *entry, const uint8_t *bytes, size_t n) {
  const bool is_signed = n % 8 == 0; /* 16 or 24, else 12 or 20 */
  if (is_signed && memcmp(bytes, "PK\7\10", 4) != 0) return false;
  if (is_signed) bytes += 4, n -= 4;
  if (ckpt_le32(bytes) != entry->crc32) return false;
  if (n == 12) return ckpt_le32(bytes + 4) == entry->n_stored && ckpt_le32(bytes + 8) == entry->n_bytes;
  return ckpt_le64(bytes + 4) == entry->n_stored && ckpt_le64(bytes + 12) == entry->n_bytes;
}

/* NULL where nothing but the entry's descriptor lies between it and what follows. */
static ckpt_status find_behind(const char **defect, const ckpt_zip_entry *entry, ckpt_source *source, uint32_t file,
                               ckpt_error *err) {
  uint8_t bytes[MAX_DESCRIPTOR];
  const uint64_t from = entry->offset + entry->n_stored, n = entry->end - from;
  const bool has_descriptor = (entry->flags & FLAG_DESCRIPTOR) != 0;
  if (!has_descriptor && n != 0) *defect = "bytes that are no entry's follow it";
  if (!has_descriptor) return CKPT_OK;
  if (n != 12 && n != 16 && n != 20 && n != 24) {
    *defect = "no descriptor of its size alone follows it";
    return CKPT_OK;
  }
  CKPT_TRY(ckpt_source_read(source, file, from, bytes, (size_t)n, err));
  if (!is_descriptor(entry, bytes, (size_t)n)) *defect = "the descriptor behind it contradicts the directory";
  return CKPT_OK;
}

/* A local header against the directory: where a descriptor follows, its sums may be left out, as PyTorch does. */
static bool is_same(const ckpt_zip_entry *entry, const uint8_t *local, bool is_torch) {
  const uint64_t said[] = {entry->crc32, entry->n_stored, entry->n_bytes};
  bool same = ckpt_le16(local + 6) == entry->flags && ckpt_le32(local + 10) == entry->time &&
              ckpt_le16(local + 4) == entry->needed;
  for (size_t i = 0; i < 3 && (entry->flags & FLAG_DESCRIPTOR) != 0; i++) {
    const uint32_t value = ckpt_le32(local + 14 + 4 * i);
    same = same && (value == 0 || value == UINT32_MAX || (!is_torch && value == said[i]));
  }
  return same;
}

/* What the directory says of an entry that no reader of ours needs. PyTorch passes the content of folders by, and what
 * it gives for one is whatever was in memory. It writes nothing but zeros here itself; others state their system's. */
static const char *attribute_defect(const ckpt_zip_entry *entry, bool is_torch) {
  enum { DOS_FOLDER = 0x10, NEEDED = 20 }; /* 2.0, for deflated ones */
  const size_t n_name = strlen(entry->name);
  const bool is_folder = entry->name[n_name - 1] == '/';
  if (is_folder && entry->n_bytes != 0) return "it is named as a folder and has content, which PyTorch passes by";
  if (!is_folder && (entry->attributes & DOS_FOLDER) != 0)
    return "its attributes are those of a folder, whose content PyTorch passes by: it gives uninitialised memory";
  const uint16_t needed = entry->method == CKPT_ZIP_DEFLATED ? NEEDED : 0;
  const bool is_large = entry->n_bytes >= UINT32_MAX || entry->end >= UINT32_MAX; /* whose zip64 field may need 4.5 */
  const bool is_plain = entry->made_by == 0 && (entry->needed == needed || is_large) && entry->attributes == 0 &&
                        entry->inner == 0 && entry->n_comment == 0;
  if (!is_torch || is_plain) return NULL;
  return "the directory has versions, attributes or a comment that PyTorch does not write";
}

ckpt_status ckpt_zip_check(const ckpt_zip *zip, uint32_t number, ckpt_source *source, uint32_t file, uint32_t *n_torch,
                           ckpt_error *err) {
  const ckpt_zip_entry *entry = ckpt_zip_at(zip, number);
  const size_t n = (size_t)(entry->offset - entry->header), n_name = strlen(entry->name);
  const char *defect = NULL;
  bool is_own = false;
  uint8_t *local = malloc(n); /* its lengths have 16 bits */
  CKPT_TRY_ALLOC(local, err);
  ckpt_status status;
  CKPT_TRY_GOTO(ckpt_source_read(source, file, entry->header, local, n, err));
  CKPT_TRY_GOTO(find_behind(&defect, entry, source, file, err));
  const char *extra = extra_defect(local + CKPT_ZIP_LOCAL_BYTES + n_name, n - CKPT_ZIP_LOCAL_BYTES - n_name, &is_own);
  *n_torch += is_own;
  if (defect == NULL) defect = extra;
  if (defect == NULL) defect = attribute_defect(entry, is_own);
  if (!is_same(entry, local, is_own)) defect = "its local header contradicts the directory";
  if (entry->header == ckpt_zip_first(zip) && entry->header != ckpt_zip_start(zip))
    defect = "bytes that are no entry's stand before it";
  if (defect != NULL)
    status = ckpt_fail(err, CKPT_EFORMAT, ckpt_source_path(source, file), NULL, "zip entry '%.200s': %s (at %llu)",
                       entry->name, defect, (ull)entry->header);
done:
  free(local);
  return status;
}
