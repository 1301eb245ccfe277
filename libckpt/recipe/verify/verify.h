/* verify.h - finds everything that is wrong with a checkpoint, not only the first problem.
 *
 * Findings are problems, warnings, proofs, and what could not be proven. Structure and config need only headers and
 * side files. Values and digests are one plan, which reads each tensor once; sums of whole files are read separately.
 * Functions fail only for memory, I/O, cancellation or a bad argument. A broken checkpoint is a finding, not a failure.
 */
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

/* Adds a problem for each side file that is called *.json and holds something else; config.json is
 * ckpt_verify_config's. *has_tokenizer: none of them is the tokenizer's. */
ckpt_status ckpt_verify_json_files(ckpt_findings *findings, const ckpt_index *index, bool *has_tokenizer,
                                   ckpt_error *err);

/* The folders that modules.json names, each a checkpoint of its own: what is wrong with one is a problem or warning
 * here. run: NULL reads headers alone. Fails with EIO, ECANCELED, ENOMEM. */
ckpt_status ckpt_verify_modules(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err);

/* What is known of the values of a slice of the tensors, items as in ckpt_hashing. Zero-initialise it. */
typedef struct ckpt_value_checks {
  const ckpt_stats **stats;       /* of each tensor of the slice; owned */
  const ckpt_difference **copies; /* a stored parameter against its rounded master; NULL: no master, or no rounding */
  size_t capacity;
  size_t n_stored, n_rounded; /* in all slices: parameters with a master; those equal to it, rounded */
} ckpt_value_checks;

/* Adds the rows of tensors [first, end) that ckpt_verify_values looks at while the plan that has run is there. Free
 * with ckpt_value_checks_free after the last slice. */
ckpt_status ckpt_verify_plan(ckpt_value_checks *checks, ckpt_plan *plan, const ckpt_index *index, size_t first,
                             size_t end, ckpt_error *err);
void ckpt_value_checks_free(ckpt_value_checks *checks); /* a zeroed one is fine */

/* NaN and infinities (problems in parameters and their master copies, else warnings), matrices of zeros (warnings),
 * stored parameters that differ from their rounded master (problems). */
ckpt_status ckpt_verify_values(ckpt_findings *findings, ckpt_value_checks *checks, const ckpt_index *index,
                               size_t first, size_t end, ckpt_error *err);

/* The checksums of zip records. */
typedef struct ckpt_crc_counts {
  uint64_t n_checked; /* records with a CRC-32 */
  uint64_t n_wrong;   /* records with another CRC-32, and broken archives: each is a problem */
  uint64_t n_without; /* records without one: PyTorch can write 0 */
  uint64_t n_others;  /* tensor files that are not archives */
  const char *bare;   /* the first file without tensors that is not an archive either (.metadata); or NULL */
  uint64_t n_passed;  /* archives not gone through: behind zstd and broken, or larger than their tensors ask
                       * for; with a directory above 256 MiB; overlapping another that was */
} ckpt_crc_counts;

/* Compares the CRC-32 of every record with its bytes, in all archives that hold tensors: torch.save files and items of
 * DCP files, also compressed ones. Reads the bytes again, in windows of 1 MiB. Adds a problem for each that differs. */
ckpt_status ckpt_verify_crc(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                            ckpt_crc_counts *counts, ckpt_error *err);

/* What the index's format has to add (ckpt_format's `verify`): GGUF's padding. Then copies of tensors in it
 * (`show_copies`), which must be the same. Fails with EIO, ECANCELED, ENOMEM. */
ckpt_status ckpt_verify_format(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                               ckpt_error *err);

/* What differs between the manifest of an index and the one it must match, tensor by tensor. It skips tensors that
 * could not be read, which have no digest and are reported already. */
ckpt_status ckpt_verify_manifest(ckpt_findings *findings, const ckpt_index *index, const ckpt_manifest *actual,
                                 const ckpt_manifest *expected, const char *expected_path, ckpt_error *err);

/* Side files of the index against a list of them, which `record` (a path) holds: a problem for each that is changed,
 * missing or not listed, else a proof. A format without side files makes it unproven. */
ckpt_status ckpt_verify_side_files(ckpt_findings *findings, const ckpt_index *index, const ckpt_side_sums *listed,
                                   const char *record, const ckpt_run_options *run, ckpt_error *err);

/* Scans every file below the checkpoint's folder; of a checkpoint that is one file its side files. A problem for each
 * dangerous name and for anything else that ckpt_scan refuses, a proof if there are pickles and all are fine. Fails
 * with EIO, ENOTFOUND, ECANCELED, ENOMEM. */
ckpt_status ckpt_verify_pickles(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                                ckpt_error *err);

/* Compares files of the checkpoint with the sums that they must have; each names a file of the source. `promise` says
 * who stated them ("SUMS", "the name of its blob in the cache"). Adds a problem for each that differs; *n_equal
 * counts the others. */
ckpt_status ckpt_verify_files(ckpt_findings *findings, ckpt_source *source, const ckpt_file_sum *promised, size_t n,
                              const char *promise, const ckpt_run_options *run, size_t *n_equal, ckpt_error *err);

#endif
