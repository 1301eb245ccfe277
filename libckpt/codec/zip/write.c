/* write.c - see write.h; zip.c has the fields of headers. Versions, times and attributes are 0, as miniz has
 * them without a clock. */
#include "libckpt/codec/zip/write.h"

#include <string.h>

#include "libckpt/base/crc32.h"

#include "libckpt/codec/zip/zip.h"

enum { FLAG_DESCRIPTOR = 1 << 3, FLAG_UTF8 = 1 << 11, EXTRA_ZIP64 = 1, EXTRA_HEAD = 4 };

/* What does not fit stands in the zip64 field; what is all ones does not fit. */
static bool is_large(uint64_t value) { return value >= UINT32_MAX; }

static uint32_t capped(uint64_t value) { return is_large(value) ? UINT32_MAX : (uint32_t)value; }

static unsigned n_zip64(const ckpt_zip_record *record) {
  unsigned n = (is_large(record->n_bytes) ? 16 : 0) + (is_large(record->offset) ? 8 : 0);
  return n == 0 ? 0 : EXTRA_HEAD + n;
}

static unsigned n_descriptor(const ckpt_zip_record *record) {
  if (record->n_bytes == 0) return 0;
  return n_zip64(record) == 0 ? 16 : 24;
}

/* Bytes of the extra field that fills up, without its head. */
static unsigned n_fill(const ckpt_zip_record *record) {
  uint64_t end = record->offset + CKPT_ZIP_LOCAL_BYTES + strlen(record->name) + n_zip64(record) + EXTRA_HEAD;
  return (unsigned)(-end % CKPT_ZIP_ALIGNMENT);
}

uint64_t ckpt_zip_payload(const ckpt_zip_record *record) {
  return record->offset + CKPT_ZIP_LOCAL_BYTES + strlen(record->name) + n_zip64(record) + EXTRA_HEAD + n_fill(record);
}

uint64_t ckpt_zip_place(ckpt_zip_record *records, uint32_t n) {
  uint64_t at = 0;
  for (uint32_t i = 0; i < n; i++) {
    records[i].offset = at;
    at = ckpt_zip_payload(&records[i]) + records[i].n_bytes + n_descriptor(&records[i]);
  }
  return at;
}

/* From the version needed to the time: the same in both headers. */
static void put_kind(ckpt_stream *out, const ckpt_zip_record *record) {
  ckpt_stream_le(out, 0, 2);
  ckpt_stream_le(out, FLAG_UTF8 | (record->n_bytes == 0 ? 0 : FLAG_DESCRIPTOR), 2);
  ckpt_stream_le(out, 0, 2); /* stored */
  ckpt_stream_le(out, 0, 4);
}

static void put_zip64(ckpt_stream *out, const ckpt_zip_record *record) {
  unsigned n = n_zip64(record);
  if (n == 0) return;
  ckpt_stream_le(out, EXTRA_ZIP64, 2);
  ckpt_stream_le(out, n - EXTRA_HEAD, 2);
  if (is_large(record->n_bytes)) {
    ckpt_stream_le(out, record->n_bytes, 8);
    ckpt_stream_le(out, record->n_bytes, 8);
  }
  if (is_large(record->offset)) ckpt_stream_le(out, record->offset, 8);
}

void ckpt_zip_put_local(ckpt_stream *out, const ckpt_zip_record *record) {
  ckpt_stream_text(out, "PK\3\4");
  put_kind(out, record);
  ckpt_stream_fill(out, 0, 12); /* checksum and sizes: the descriptor has them */
  ckpt_stream_le(out, strlen(record->name), 2);
  ckpt_stream_le(out, n_zip64(record) + EXTRA_HEAD + n_fill(record), 2);
  ckpt_stream_text(out, record->name);
  put_zip64(out, record);
  ckpt_stream_text(out, "FB");
  ckpt_stream_le(out, n_fill(record), 2);
  ckpt_stream_fill(out, 'Z', n_fill(record));
}

void ckpt_zip_put_descriptor(ckpt_stream *out, const ckpt_zip_record *record) {
  if (record->n_bytes == 0) return;
  unsigned n_size = (n_descriptor(record) - 8) / 2;
  ckpt_stream_text(out, "PK\7\10");
  ckpt_stream_le(out, record->crc32, 4);
  ckpt_stream_le(out, record->n_bytes, n_size);
  ckpt_stream_le(out, record->n_bytes, n_size);
}

static void put_central(ckpt_stream *out, const ckpt_zip_record *record) {
  ckpt_stream_text(out, "PK\1\2");
  ckpt_stream_le(out, 0, 2);
  put_kind(out, record);
  ckpt_stream_le(out, record->crc32, 4);
  ckpt_stream_le(out, capped(record->n_bytes), 4);
  ckpt_stream_le(out, capped(record->n_bytes), 4);
  ckpt_stream_le(out, strlen(record->name), 2);
  ckpt_stream_le(out, n_zip64(record), 2);
  ckpt_stream_fill(out, 0, 10); /* comment, disk, attributes */
  ckpt_stream_le(out, capped(record->offset), 4);
  ckpt_stream_text(out, record->name);
  put_zip64(out, record);
}

void ckpt_zip_put_end(ckpt_stream *out, const ckpt_zip_record *records, uint32_t n, uint64_t directory) {
  uint64_t start = out->n_bytes;
  for (uint32_t i = 0; i < n; i++) put_central(out, &records[i]);
  uint64_t n_bytes = out->n_bytes - start;
  ckpt_stream_text(out, "PK\6\6");
  ckpt_stream_le(out, 44, 8);
  ckpt_stream_le(out, 0x031e, 2); /* made by 3.0 on Unix; 4.5 is needed */
  ckpt_stream_le(out, 0x2d, 2);
  ckpt_stream_fill(out, 0, 8);
  ckpt_stream_le(out, n, 8);
  ckpt_stream_le(out, n, 8);
  ckpt_stream_le(out, n_bytes, 8);
  ckpt_stream_le(out, directory, 8);
  ckpt_stream_text(out, "PK\6\7");
  ckpt_stream_fill(out, 0, 4);
  ckpt_stream_le(out, directory + n_bytes, 8);
  ckpt_stream_le(out, 1, 4);
  ckpt_stream_text(out, "PK\5\6");
  ckpt_stream_fill(out, 0, 4);
  ckpt_stream_le(out, n < UINT16_MAX ? n : UINT16_MAX, 2);
  ckpt_stream_le(out, n < UINT16_MAX ? n : UINT16_MAX, 2);
  ckpt_stream_le(out, capped(n_bytes), 4);
  ckpt_stream_le(out, capped(directory), 4);
  ckpt_stream_fill(out, 0, 2);
}

void ckpt_zip_put_record(ckpt_stream *out, const ckpt_zip_record *record, const void *payload) {
  ckpt_zip_put_local(out, record);
  ckpt_stream_bytes(out, payload, (size_t)record->n_bytes);
  ckpt_zip_put_descriptor(out, record);
}

uint32_t ckpt_zip_crc32(const void *bytes, size_t n_bytes) { return ckpt_crc32(0, bytes, n_bytes); }
