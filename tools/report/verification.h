/* verification.h - one run of `ckpt verify`: what it was asked, what it found, and its checks of whole files. */
#ifndef CKPT_TOOLS_REPORT_VERIFICATION_H
#define CKPT_TOOLS_REPORT_VERIFICATION_H

#include "libckpt/recipe/verify/verify.h"
#include "tools/report/input.h"

typedef struct ckpt_verification {
  ckpt_args *args;
  ckpt_input input;
  ckpt_source *files; /* where there is no index: the files at the path */
  ckpt_findings findings;
  ckpt_manifest *expected;                /* of --manifest */
  ckpt_manifest *actual;                  /* NULL with --headers, and once it has been compared */
  ckpt_digest digest, content;            /* of --digest, of what was read */
  ckpt_dtype cast;                        /* of the manifest: what `content` and the comparison are of; or NONE */
  bool has_digest, is_formed, is_printed; /* is_formed: the content has a digest */
  bool *is_summed;                        /* of n_summed files of the source: the SHA-256 is the promised one */
  uint32_t n_summed;
  ckpt_crc_counts crc; /* of the records of zip archives */
  uint64_t n_unread;   /* parts and tensors that are broken, and not among those that are looked at */
  uint64_t n_undecoded, n_undecoded_bytes; /* of those, tensors of the index */
  bool has_some_sums;                      /* the format has proven some of the bytes by a checksum of its own */
  bool has_side_files;                     /* the manifest or the receipt lists them: they were compared */
} ckpt_verification;

/* Files of the Hugging Face cache, whose links say what their bytes must be. *is_whole: every file of tensors is one.
 */
ckpt_status ckpt_verification_cache(ckpt_verification *v, bool *is_whole, ckpt_error *err);

/* --sums. *is_whole: every file of tensors is listed, and as it is listed. */
ckpt_status ckpt_verification_sums(ckpt_verification *v, bool *is_whole, ckpt_error *err);

/* The side files that --manifest lists. */
ckpt_status ckpt_verification_side_files(ckpt_verification *v, ckpt_error *err);

/* Says what else lies in the checkpoint's folder, neither read nor carried: no record is of it. */
ckpt_status ckpt_verification_others(ckpt_verification *v, ckpt_error *err);

/* Prints what was found, as text or as JSON (verification_print.c). */
void ckpt_verification_print(const ckpt_verification *v);

#endif
