/* records.h - records of a source's files whose format carries the CRC-32 of their content: zip archives of PyTorch.
 *
 * Readers of headers add a row for each record that may be read later. Whoever reads one whole compares
 * (extents/record_checks.h), and asks here whether to go on with what is not as it was written. */
#ifndef CKPT_IO_RECORDS_H
#define CKPT_IO_RECORDS_H

#include "libckpt/io/source.h"

enum { CKPT_RECORD_NAME = 24 }; /* bytes of its name, cut off behind them */

typedef struct ckpt_stored_record {
  uint64_t offset, n_stored; /* of the payload in its file */
  uint64_t n_bytes;          /* of the content */
  uint32_t file, crc32;      /* crc32: of the content */
  char name[CKPT_RECORD_NAME];
} ckpt_stored_record;

typedef struct ckpt_records ckpt_records;                          /* a source's: source.c makes one for each */
ckpt_status ckpt_records_new(ckpt_records **out, ckpt_error *err); /* ENOMEM */
void ckpt_records_free(ckpt_records *records);                     /* NULL is fine */
ckpt_records *ckpt_source_records(const ckpt_source *source);      /* borrowed; never NULL */

/* A row with this name, cut off where it is too long. */
ckpt_stored_record ckpt_stored_record_of(uint32_t file, uint64_t offset, uint64_t n_stored, uint64_t n_bytes,
                                         uint32_t crc32, const char *name);

/* Adds a row, once or several times. Belongs to the thread that opens the source. ENOMEM. */
ckpt_status ckpt_source_add_record(ckpt_source *source, const ckpt_stored_record *record, ckpt_error *err);

/* The record whose payload has this byte of a file; false: none is known. Any thread. */
bool ckpt_source_find_record(ckpt_source *source, uint32_t file, uint64_t offset, ckpt_stored_record *out);

/* Rows, and the memory that they take. */
uint32_t ckpt_source_n_records(const ckpt_source *source);
const ckpt_stored_record *ckpt_source_record_at(const ckpt_source *source, uint32_t number); /* see above */
uint64_t ckpt_source_record_bytes(const ckpt_source *source);                                /* see above */

/* From here on records that are not as they were written are read all the same. `tell` (may be NULL) is called for
 * each, or for each tensor in it, never from two threads at once. */
void ckpt_source_allow_corrupt(ckpt_source *source, void (*tell)(void *arg, const ckpt_error *damage), void *arg);
bool ckpt_source_goes_on(const ckpt_source *source); /* whether that was called */

/* The same for a source that holds a part of another's bytes. */
void ckpt_source_follow(ckpt_source *source, const ckpt_source *of);

/* A record of a file, of a tensor (or NULL), whose content has another checksum than `said`: EDIFFERENT, or a call of
 * `tell` and OK where reading goes on. */
ckpt_status ckpt_source_refuse_record(ckpt_source *source, uint32_t file, const char *tensor, const char *record,
                                      uint32_t found, uint32_t said, uint64_t n_bytes, ckpt_error *err);

#endif
