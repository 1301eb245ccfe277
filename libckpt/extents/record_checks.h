/* record_checks.h - compares the CRC-32 of records with their content while they are read, in the same pass.
 *
 * A record may hold several tensors, and one tensor is read in pieces, by several threads and in any order. So each
 * record keeps which of its bytes have come, as a few ranges, and a checksum: CRC-32 is linear, and the sum of a whole
 * is the exclusive or of those of its pieces, each carried over the bytes behind it. Bytes that come twice count once.
 * When all have come, the sum is compared.
 *
 * Records of which only a part is wanted are not compared; several runs over one checkpoint may want all of one
 * together, and then it is read once more behind them (ckpt_record_parts). An eighth may be missing (padding), and of
 * records up to 64 KiB anything: that is read at the end. So are, once more, those whose bytes come in too many
 * separate ranges (a transposed matrix). */
#ifndef CKPT_EXTENTS_RECORD_CHECKS_H
#define CKPT_EXTENTS_RECORD_CHECKS_H

#include "libckpt/extents/decoder.h"
#include "libckpt/index/index.h"

typedef struct ckpt_record_checks ckpt_record_checks;

/* Bytes for each extent that may lie in such a record, and of everything else. */
enum { CKPT_RECORD_CHECK_BYTES = 80, CKPT_RECORD_CHECKS_BYTES = 128 << 10 };

/* Whether a tensor's extent lies in a record whose format may carry a checksum. */
bool ckpt_extent_has_record(ckpt_source *source, const ckpt_extent *extent);

/* Room for n extents; ckpt_record_checks_free. ENOMEM. */
ckpt_status ckpt_record_checks_new(ckpt_record_checks **out, uint32_t n, ckpt_error *err);
void ckpt_record_checks_free(ckpt_record_checks *checks); /* NULL is fine */

/* Announces a read of n_bytes of a tensor; several of one tensor add up. begin follows the last. */
void ckpt_record_checks_want(ckpt_record_checks *checks, ckpt_source *source, const ckpt_tensor *tensor,
                             uint64_t n_bytes);
void ckpt_record_checks_begin(ckpt_record_checks *checks); /* see above */

/* Takes bytes of an extent as they are decoded, `at` of them before; record: of its archive, else NULL. EDIFFERENT when
 * its record is whole and another than it was. Any thread. */
ckpt_status ckpt_record_checks_take(ckpt_record_checks *checks, ckpt_source *source, const ckpt_extent *extent,
                                    const ckpt_record *record, uint64_t at, const void *bytes, size_t n_bytes,
                                    ckpt_error *err);

/* Reads what is left, and what came in too many ranges, n_window bytes at a time. EDIFFERENT, EIO. */
ckpt_status ckpt_record_checks_end(ckpt_record_checks *checks, void *window, size_t n_window, ckpt_error *err);

/* Whether a record is not as it was, where its source goes on all the same. */
bool ckpt_record_checks_has_damage(const ckpt_record_checks *checks);

/* Calls the source's `tell` for a tensor that lies in such a record. */
void ckpt_record_checks_tell(ckpt_record_checks *checks, ckpt_source *source, const ckpt_tensor *tensor);

/* Records of which each of several runs reads a part. */
typedef struct ckpt_record_parts {
  struct ckpt_record_part *items;
  uint32_t n, capacity;
} ckpt_record_parts;

/* Adds those of a run that has ended. ENOMEM. */
ckpt_status ckpt_record_parts_add(ckpt_record_parts *parts, const ckpt_record_checks *checks, ckpt_error *err);

/* After the last run: reads those that were wanted as good as whole, and compares them. EDIFFERENT, EIO, ENOMEM. */
ckpt_status ckpt_record_parts_end(ckpt_record_parts *parts, ckpt_error *err);
void ckpt_record_parts_free(ckpt_record_parts *parts); /* what it holds */

#endif
