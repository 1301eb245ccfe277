/* scan.h - judges every pickle in files and folders by what it names, calls and builds.
 *
 * It executes nothing and ignores suffixes. It looks for pickles at the start of every file and record, several in a
 * row; in zip archives (torch.save, .npz, nested ones), tar archives and numpy's object arrays; and in zlib, gzip and
 * zstd streams. A zip archive that readers would interpret differently is searched by its local headers and reported as
 * broken. A pickle inside the bytes object of another pickle is data: loading it needs a call, which is judged. */
#ifndef CKPT_RECIPE_SCAN_SCAN_H
#define CKPT_RECIPE_SCAN_SCAN_H

#include "libckpt/codec/pickle/pickle.h"
#include "libckpt/format/findings.h"

typedef struct ckpt_scan_global {
  const char *name; /* "module.qualname" */
  ckpt_pickle_verdict verdict;
  uint64_t first; /* where it is first named, counted from where the pickle's file or record begins */
  uint64_t n_named, n_called, n_built;
} ckpt_scan_global;

typedef struct ckpt_scan_pickle {
  const char *file, *record; /* record: "archive/data.pkl", "a.zip > x/data.pkl"; NULL: the file itself */
  uint64_t at;               /* where it begins in that */
  uint64_t n_pickles;        /* 1; of the items of a DCP file those that name, call and build the same are one */
  uint64_t n_bytes, n_opcodes;
  uint8_t protocol;
  bool is_broken; /* not read to its end */
  uint32_t n_globals;
  ckpt_scan_global *globals; /* in the order in which they are first named; numbers are sums over n_pickles */
} ckpt_scan_pickle;

/* Zero-initialise it. Texts are the arena's. */
typedef struct ckpt_scan {
  ckpt_arena arena;
  ckpt_scan_pickle *pickles;
  uint32_t n, capacity;
  ckpt_findings
      findings; /* problems, `tensor` being the record: foreign and dangerous calls, what was not looked into */
  uint64_t n_files, n_bytes, n_pickles, n_opcodes;
  uint32_t n_unread; /* files that could not be read to their end: findings */
} ckpt_scan;

/* Adds what is in a file, or in every regular file below a folder or a model of the Hugging Face cache. Obeys progress,
 * cancel and memory of `run` (may be NULL; memory 0: what the largest pickle takes). A defect of the files is a
 * finding; ENOTFOUND and EIO of the path itself, ENOMEM and ECANCELED fail. */
ckpt_status ckpt_scan_path(ckpt_scan *scan, const char *path, const ckpt_run_options *run, ckpt_error *err);

/* How much ckpt_scan_path reads. */
typedef struct ckpt_scan_size {
  uint64_t n_files, n_bytes, n_largest; /* n_largest: bytes of the largest file */
} ckpt_scan_size;

/* Adds what ckpt_scan_path would look at to *size, and reads none of it. Fails as that does. */
ckpt_status ckpt_scan_measure(ckpt_scan_size *size, const char *path, ckpt_error *err);

/* The same of bytes in memory, under a name. */
ckpt_status ckpt_scan_bytes(ckpt_scan *scan, const void *data, size_t n_bytes, const char *name, ckpt_error *err);
void ckpt_scan_free(ckpt_scan *scan); /* a zeroed one is fine */

#endif
