/* verify.h - everything that can be found wrong with a checkpoint: all of it, not only the first.
 *
 * Findings are problems, warnings, what was proven and what could not be. Structure and config need headers and side
 * files only; values and digests are one plan, in which each tensor is read once; sums of whole files are read beside
 * it. Functions fail only where nothing can be said (memory, I/O, cancelled, a bad argument): what is wrong with the
 * checkpoint is a finding, never a failure. */
#ifndef CKPT_RECIPE_VERIFY_VERIFY_H
#define CKPT_RECIPE_VERIFY_VERIFY_H

#include "libckpt/format/findings.h"
#include "libckpt/recipe/records/files.h"
#include "libckpt/recipe/records/manifest.h"

/* What opening noted against the format, and files of a numbered set that is not whole. */
ckpt_status ckpt_verify_structure(ckpt_findings *findings, const ckpt_index *index, ckpt_error *err);

/* config.json, that of `like` (or NULL) where there is none, against names and shapes (of known architectures), layers
 * without gaps, ties; token ids of the tokenizer and of the config against the rows of the embedding. A side file that
 * cannot be read is a problem too. */
ckpt_status ckpt_verify_config(ckpt_findings *findings, const ckpt_index *index, const ckpt_index *like,
                               ckpt_error *err);

/* What is known of the values of a slice of the tensors, items as in ckpt_hashing. Zero-initialise it. */
typedef struct ckpt_value_checks {
  const ckpt_stats **stats;       /* of each tensor of the slice; owned */
  const ckpt_difference **copies; /* of a stored parameter against its master, rounded; NULL: none, or no rounding */
  size_t capacity;
  size_t n_stored, n_rounded; /* of all slices: parameters that a master stands for; those that are it, rounded */
} ckpt_value_checks;

/* Adds the rows of tensors [first, end) that ckpt_verify_values looks at while the plan that has run is there. Free
 * with ckpt_value_checks_free after the last slice. */
ckpt_status ckpt_verify_plan(ckpt_value_checks *checks, ckpt_plan *plan, const ckpt_index *index, size_t first,
                             size_t end, ckpt_error *err);
void ckpt_value_checks_free(ckpt_value_checks *checks); /* a zeroed one is fine */

/* NaN and infinities (problems in parameters and their master copies, else warnings), matrices of zeros (warnings),
 * stored parameters that are not the master which stands for them, rounded (problems). */
ckpt_status ckpt_verify_values(ckpt_findings *findings, ckpt_value_checks *checks, const ckpt_index *index,
                               size_t first, size_t end, ckpt_error *err);

/* What the records of zip archives said of themselves. */
typedef struct ckpt_crc_counts {
  uint64_t n_checked; /* records with a CRC-32 */
  uint64_t n_wrong;   /* records whose bytes have another, and archives that are none: each is a problem */
  uint64_t n_without; /* records that have none: PyTorch can be told to write 0 */
  uint64_t n_others;  /* files of tensors that are no archives */
  const char *bare;   /* the first file without tensors that is none either (.metadata); NULL: none */
  uint64_t n_passed;  /* archives not gone through: behind zstd and broken, or larger than their tensors ask
                       * for; with a directory above 256 MiB; overlapping another that was */
} ckpt_crc_counts;

/* The CRC-32 of every record of the archives that tensors lie in (torch.save files, items of DCP files, unpacked ones
 * too) against their bytes, which are read once more, by windows of 1 MiB. Adds a problem for each that differs. */
ckpt_status ckpt_verify_crc(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                            ckpt_crc_counts *counts, ckpt_error *err);

/* What the index's format has to add (ckpt_format's `verify`): GGUF's padding. Then copies of tensors in it
 * (`show_copies`), which must be the same. Fails with EIO, ECANCELED, ENOMEM. */
ckpt_status ckpt_verify_format(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                               ckpt_error *err);

/* What differs between the manifest of an index and the one it must match, tensor by tensor. Bytes that could not be
 * read, which have no digest and are told of, are not compared. */
ckpt_status ckpt_verify_manifest(ckpt_findings *findings, const ckpt_index *index, const ckpt_manifest *actual,
                                 const ckpt_manifest *expected, const char *expected_path, ckpt_error *err);

/* Side files of the index against a list of them, which `record` (a path) holds: a problem for each that is changed,
 * missing or not listed, else a proof. What holds no side files in its format is said to be unproven. */
ckpt_status ckpt_verify_side_files(ckpt_findings *findings, const ckpt_index *index, const ckpt_side_sums *listed,
                                   const char *record, const ckpt_run_options *run, ckpt_error *err);

/* Side files by what ckpt_scan says of them: a problem for each dangerous name, a warning for whatever else it refuses,
 * a proof where pickles are there and fine. Fails with EIO, ENOENT, ECANCELED, ENOMEM. */
ckpt_status ckpt_verify_pickles(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err);

/* Files of the checkpoint against the sums they must have: pairs of a number in the source and what is promised.
 * `promise` says by whom ("SUMS", "the name of its blob in the cache"). Adds a problem for each that differs; *n_equal
 * counts the others. */
ckpt_status ckpt_verify_files(ckpt_findings *findings, ckpt_source *source, const ckpt_file_sum *promised, size_t n,
                              const char *promise, const ckpt_run_options *run, size_t *n_equal, ckpt_error *err);

#endif
