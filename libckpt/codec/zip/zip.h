/* zip.h - the directory of a zip archive in a slice of a source's file: names, sizes, and places of payloads.
 *
 * It unpacks nothing. Before the archive opens, it checks every entry against the slice, its local header and its
 * neighbours, in time n log n and memory proportional to the entries. It refuses whatever zip readers interpret
 * differently (see zip.c). Names are labels and never used as paths. */
#ifndef CKPT_CODEC_ZIP_ZIP_H
#define CKPT_CODEC_ZIP_ZIP_H

#include "libckpt/io/source.h"

#define CKPT_ZIP_STORED 0
#define CKPT_ZIP_DEFLATED 8

#define CKPT_ZIP_MAX_ENTRIES 1000000

/* Bytes of an archive's fixed parts: what varies follows each. */
enum {
  CKPT_ZIP_LOCAL_BYTES = 30,
  CKPT_ZIP_CENTRAL_BYTES = 46,
  CKPT_ZIP_END_BYTES = 22,
  CKPT_ZIP_LOCATOR_BYTES = 20,
  CKPT_ZIP_END64_BYTES = 56
};

/* What a directory may take where no budget says less: so many entries of ordinary names. */
#define CKPT_ZIP_MAX_BYTES (UINT64_C(256) << 20)

typedef struct ckpt_zip ckpt_zip;

typedef struct ckpt_zip_entry {
  const char *name;                /* terminated, without zero bytes; a folder's ends with a slash */
  uint64_t header;                 /* of its local header, in the file */
  uint64_t offset;                 /* of the payload, in the file */
  uint64_t n_stored;               /* bytes of the payload */
  uint64_t n_bytes;                /* of the content */
  uint64_t end;                    /* where the next entry begins, or the directory, in the file */
  uint32_t crc32;                  /* of the content as recorded; PyTorch can be told to record 0 */
  uint32_t time;                   /* and date, as the directory has them */
  uint32_t attributes;             /* of the file it was, as its system has them: the low byte is that of DOS */
  uint16_t made_by, needed, inner; /* versions of the format and the system; inner: attributes again */
  uint16_t n_comment;
  uint16_t flags;  /* as the directory has them */
  uint16_t method; /* CKPT_ZIP_STORED or CKPT_ZIP_DEFLATED */
  bool is_utf8;    /* the name is valid UTF-8; else bytes of code page 437 */
} ckpt_zip_entry;

/* Whether n_bytes begin like a zip archive: a local header, or the end of an empty one. */
bool ckpt_zip_is_start(const uint8_t *bytes, size_t n_bytes);

/* Opens the archive in [offset, offset + n_bytes) of a source's file; max_bytes limits the memory it takes. Free with
 * ckpt_zip_free (NULL is fine). EFORMAT for what is broken or ambiguous, EUNSUPPORTED for encryption, several disks and
 * other methods, ELIMIT past max_bytes or CKPT_ZIP_MAX_ENTRIES. */
ckpt_status ckpt_zip_open(ckpt_zip **out, ckpt_source *source, uint32_t file, uint64_t offset, uint64_t n_bytes,
                          uint64_t max_bytes, ckpt_error *err);
void ckpt_zip_free(ckpt_zip *zip); /* as above */

/* Where the directory begins, in the file. */
uint64_t ckpt_zip_directory(const ckpt_zip *zip);

/* Where the first entry begins, and the archive itself. */
uint64_t ckpt_zip_first(const ckpt_zip *zip);
uint64_t ckpt_zip_start(const ckpt_zip *zip); /* as above */

/* Entries in the directory's order; at and find borrow from the archive. find gives NULL for an unknown name. */
uint32_t ckpt_zip_count(const ckpt_zip *zip);
const ckpt_zip_entry *ckpt_zip_at(const ckpt_zip *zip, uint32_t number);    /* number < count */
const ckpt_zip_entry *ckpt_zip_find(const ckpt_zip *zip, const char *name); /* see above */

/* For `verify`: checks the bytes around an entry's payload that reading does not need. These are the local header
 * (against the directory), its extra fields, which PyTorch fills with 'Z', the descriptor after the payload, and bytes
 * of no entry; and attributes, of which one lets PyTorch pass the content by. It adds
 * 1 to *n_torch for an entry with PyTorch's own field. EFORMAT names the entry; EIO, ENOMEM. */
ckpt_status ckpt_zip_check(const ckpt_zip *zip, uint32_t number, ckpt_source *source, uint32_t file, uint32_t *n_torch,
                           ckpt_error *err);

/* The same of what the ends state and no reader needs: how many disks there are, versions. n_torch: of all entries, as
 * ckpt_zip_check has counted them: of PyTorch's archives each is one. */
ckpt_status ckpt_zip_check_ends(const ckpt_zip *zip, uint32_t n_torch, ckpt_source *source, uint32_t file,
                                ckpt_error *err);

#endif
