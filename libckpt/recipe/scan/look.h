/* look.h - internal to this room: places in files, and the functions that examine them. */
#ifndef CKPT_RECIPE_SCAN_LOOK_H
#define CKPT_RECIPE_SCAN_LOOK_H

#include "libckpt/io/source.h"
#include "libckpt/recipe/scan/scan.h"

/* A file may cost twice this, plus eight times its size, in bytes examined. */
#define CKPT_SCAN_UNPACKED_BYTES (UINT64_C(256) << 20)
/* What is compressed may unpack to this, and so many times the file's size, without counting as work. */
#define CKPT_SCAN_FRAMES_BYTES (UINT64_C(16) << 30)
#define CKPT_SCAN_FRAMES_RATIO 64
#define CKPT_SCAN_DEPTH 6 /* archives in archives */

/* Bytes of a file, its path being below the walk's root. */
typedef struct ckpt_scan_item {
  const char *path;
  uint64_t offset, n_bytes;
} ckpt_scan_item;

/* Items that the metadata of DCP folders places, and ranges examined as archives or frames of their own. */
typedef struct ckpt_scan_items {
  ckpt_arena arena; /* of paths */
  ckpt_scan_item *all, *seen;
  uint32_t n, capacity, n_seen, seen_capacity;
} ckpt_scan_items;

typedef struct ckpt_scanner {
  ckpt_scan *scan;
  ckpt_scan_items *items;            /* or NULL: bytes in memory */
  const char *name;                  /* of the file, below the root */
  const ckpt_run_options *run;       /* or NULL */
  const char *path;                  /* of the file */
  uint32_t first;                    /* the file's first pickle in the scan */
  uint64_t n_work, max_work;         /* bytes examined for this file; a hostile archive exceeds the maximum */
  uint64_t n_unpacked, max_unpacked; /* of what is compressed, which is no work */
  bool is_stopped;                   /* max_work is reached and reported */
} ckpt_scanner;

/* What a member of a tar archive is by its name: what may stand behind a pickle in it. */
typedef enum ckpt_scan_member {
  CKPT_SCAN_NO_MEMBER,
  CKPT_SCAN_MEMBER,   /* any: nothing */
  CKPT_SCAN_STORAGES, /* of torch: more pickles, with payload between them */
  CKPT_SCAN_TENSORS   /* as above */
} ckpt_scan_member;

/* A file, a record of an archive, or what was unpacked. */
typedef struct ckpt_place {
  ckpt_source *source;
  uint32_t file;
  uint64_t offset, n_bytes;
  const char *record; /* NULL: the file */
  unsigned depth;     /* of archives around it */
  bool is_item;       /* of a DCP file: like pickles are counted together */
  bool is_carved;     /* found without a directory: archives in it are found where it was */
  ckpt_scan_member member;
  bool is_tar; /* read as a tar archive: everything around its zip archives has been examined */
} ckpt_place;

/* Looks at a place by its content. EIO, ENOMEM, ECANCELED. */
ckpt_status ckpt_scan_look(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);

/* Its parts: pickles one behind another; archives; compressed bytes. */
ckpt_status ckpt_scan_pickles(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);
ckpt_status ckpt_scan_zip(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err);    /* as above */
ckpt_status ckpt_scan_packed(ckpt_scanner *s, const ckpt_place *place, ckpt_error *err); /* as above */

/* Whether a place ends as a zip archive does, for Python's zipfile. EIO, ENOMEM. */
ckpt_status ckpt_scan_has_zip_end(const ckpt_place *place, bool *has, ckpt_error *err);

/* Whether a place is the object of a torch.save archive, whose pickle loading begins with. */
bool ckpt_scan_is_object(const ckpt_place *place);

/* Adds what the pickle of a file places, if it is DCP's metadata; what is not understood is a problem. */
ckpt_status ckpt_scan_items_add(ckpt_scanner *s, const ckpt_place *place, const ckpt_object *root,
                                const ckpt_pickle_report *report, ckpt_error *err);
/* Records that n_bytes of a file, from the place's start, were examined as one archive or frame. */
ckpt_status ckpt_scan_items_seen(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, ckpt_error *err);
/* Calls `look` for each item that was not examined, by path and offset; is_first: the first of its file. */
ckpt_status ckpt_scan_items_each(ckpt_scan_items *items,
                                 ckpt_status (*look)(void *arg, const ckpt_scan_item *item, bool is_first,
                                                     ckpt_error *err),
                                 void *arg, ckpt_error *err);
void ckpt_scan_items_free(ckpt_scan_items *items); /* the matching end */

/* Tar: whether a place is one, of which head has the first bytes, and where its first header is; the members from that
 * on. */
ckpt_status ckpt_scan_find_tar(ckpt_scanner *s, const ckpt_place *place, const uint8_t *head, size_t n_head, bool *is,
                               uint64_t *at, ckpt_error *err);
ckpt_status ckpt_scan_tar(ckpt_scanner *s, const ckpt_place *place, uint64_t at, ckpt_error *err); /* as above */

/* Looks at a record of raw deflate; n_bytes is the stated size, or UINT64_MAX. */
ckpt_status ckpt_scan_deflated(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, uint32_t crc32,
                               ckpt_error *err);

/* Whether bytes begin as something that zlib, zstd or another compressor wrote; its name, or NULL. */
const char *ckpt_scan_compressor(const uint8_t *head, size_t n_head, bool *is_known);

/* Adds a problem of a place. */
ckpt_status ckpt_scan_problem(const ckpt_scanner *s, const ckpt_place *place, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(4, 5);

/* Counts n_bytes examined. *may_go_on becomes false, and a problem is added once, if that exceeds any honest file. */
ckpt_status ckpt_scan_work(ckpt_scanner *s, const ckpt_place *place, uint64_t n_bytes, bool *may_go_on,
                           ckpt_error *err);

/* The name of a record in an archive that lies at place, for the caller to free; NULL without memory. */
char *ckpt_scan_name(const ckpt_place *place, const char *name);

#endif
