/* scan_look.h - internal to scan*.c: bytes that are looked at, and what looks at them. */
#ifndef CKPT_RECIPE_SCAN_LOOK_H
#define CKPT_RECIPE_SCAN_LOOK_H

#include "libckpt/recipe/scan.h"
#include "libckpt/source.h"

/* Twice this, and eight times its size, is what may be gone through for a file. */
#define CKPT_SCAN_UNPACKED_BYTES (UINT64_C(256) << 20)
/* What is compressed may unpack to this, and so many times the file's size, without counting as work. */
#define CKPT_SCAN_FRAMES_BYTES (UINT64_C(16) << 30)
#define CKPT_SCAN_FRAMES_RATIO 64
#define CKPT_SCAN_DEPTH 6 /* archives in archives */

typedef struct ckpt_scanner {
  ckpt_scan *scan;
  const ckpt_run_options *run;       /* or NULL */
  const char *path;                  /* of the file */
  uint32_t first;                    /* the file's first pickle in the scan */
  uint64_t n_work, max_work;         /* bytes gone through for this file; more is a hostile archive */
  uint64_t n_unpacked, max_unpacked; /* of what is compressed, which is no work */
  bool is_stopped;                   /* max_work is reached, which has been said */
} ckpt_scanner;

/* A file, a record of an archive, or what was unpacked. */
typedef struct ckpt_place {
  ckpt_source *source;
  uint32_t file;
  uint64_t offset, n_bytes;
  const char *record; /* NULL: the file */
  unsigned depth;     /* of archives around it */
  bool is_item;       /* of a DCP file: like pickles are counted together */
  bool is_carved;     /* found without a directory: archives in it are found where it was */
  bool is_tar;        /* gone through as a tar archive: what lies beside its zip archives has been looked at */
} ckpt_place;

/* Looks at a place by its content. EIO, ENOMEM, ECANCELED. */
ckpt_status ckpt_scan_look(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);

/* Its parts: pickles one behind another; archives; compressed bytes. */
ckpt_status ckpt_scan_pickles(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);
ckpt_status ckpt_scan_zip(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);    /* as above */
ckpt_status ckpt_scan_packed(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err); /* as above */

/* Whether a place is the object of a torch.save archive, whose pickle loading begins with. */
bool ckpt_scan_is_object(const ckpt_place *place);

/* Tar: whether a place is one, of which head has the first bytes, and where its first header is; the members from that
 * on. */
ckpt_status ckpt_scan_find_tar(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n_head, bool *is,
                               uint64_t *at, ckpt_error *err);
ckpt_status ckpt_scan_tar(ckpt_scanner *s, const ckpt_place *place, uint64_t at, ckpt_error *err); /* as above */

/* Looks at a record of raw deflate; n_bytes is what it is said to have, or UINT64_MAX. */
ckpt_status ckpt_scan_deflated(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, uint32_t crc32,
                               ckpt_error *err);

/* Whether bytes begin as something that zlib, zstd or another compressor wrote; its name, or NULL. */
const char *ckpt_scan_compressor(const uint8_t *head, size_t n_head, bool *is_known);

/* Adds a problem of a place. */
ckpt_status ckpt_scan_problem(const ckpt_scanner *s, const ckpt_place *place, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(4, 5);

/* Counts n_bytes gone through. False, once said, where it is more than any honest file asks for. */
ckpt_status ckpt_scan_work(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, bool *may_go_on,
                           ckpt_error *err);

/* The name of a record in an archive that lies at place, for the caller to free; NULL without memory. */
char *ckpt_scan_name(const ckpt_place *place, const char *name);

#endif
