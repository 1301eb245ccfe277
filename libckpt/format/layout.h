/* layout.h - what a format's `layout` returns: for each file of an output, its segments in order.
 *
 * A segment is a literal, which a generator prints; a tensor or a box of one, which the run places, perhaps with a
 * checksum; a side file; or a footer. A footer is printed when everything before it is written, and sees sizes, offsets
 * and checksums. A trailer is a footer of known size. An encoder may turn consecutive literals, tensors and trailers
 * into one frame. Sizes are known before the run, except those of frames and footers. So trailers may be anywhere in a
 * file, footers only at its end. Padding is a literal of zeros or spaces. ckpt_layout_finish computes offsets from the
 * order. */
#ifndef CKPT_FORMAT_LAYOUT_H
#define CKPT_FORMAT_LAYOUT_H

#include "libckpt/format/values.h"
#include "libckpt/index/index.h"
#include "libckpt/io/stream.h"

typedef struct ckpt_layout ckpt_layout;

/* Prints a literal, footer or trailer. layout is complete, but for footers' own sizes; `arg` is the segment's. */
typedef void ckpt_generator(const ckpt_layout *layout, const void *arg, ckpt_stream *out);

typedef enum ckpt_segment_kind {
  CKPT_SEGMENT_LITERAL,
  CKPT_SEGMENT_TENSOR,
  CKPT_SEGMENT_SIDE_FILE,
  CKPT_SEGMENT_FOOTER,
  CKPT_SEGMENT_TRAILER /* a footer of a size that does not depend on what it sees; and that is in its own file */
} ckpt_segment_kind;

typedef enum ckpt_encoder { CKPT_ENCODE_RAW, CKPT_ENCODE_ZSTD } ckpt_encoder;
typedef enum ckpt_checksum { CKPT_CHECKSUM_NONE, CKPT_CHECKSUM_CRC32 } ckpt_checksum;

/* Units of a tensor in row-major order; count 0: no range, but all of it, or its box. */
typedef struct ckpt_segment_range {
  uint64_t start, count;
} ckpt_segment_range;

typedef struct ckpt_segment {
  ckpt_segment_kind kind;
  ckpt_encoder encoder;
  ckpt_checksum checksum;
  uint8_t level;            /* of the encoder */
  bool is_joined;           /* goes on in the frame of the segment before */
  uint32_t tensor;          /* TENSOR: number in the described index */
  const uint64_t *box;      /* TENSOR: rank starts, rank counts in units; NULL for the whole */
  ckpt_segment_range range; /* TENSOR, without a box */
  const ckpt_side_file *side;
  ckpt_generator *print; /* LITERAL, FOOTER, TRAILER */
  const void *arg;
  uint64_t offset;  /* in its file, of a part of a frame the frame's; CKPT_SIZE_UNKNOWN behind an encoder under way */
  uint64_t n_bytes; /* in its file, of a part of a frame the frame's */
  uint64_t n_raw;   /* before the encoder */
  uint32_t crc32;   /* of the raw bytes, set by the run where `checksum` asks for it */
} ckpt_segment;

typedef struct ckpt_layout_file {
  const char *name; /* below the output folder; NULL where the output is one file */
  ckpt_segment *segments;
  uint32_t n_segments, capacity;
  uint64_t n_bytes;   /* CKPT_SIZE_UNKNOWN behind an encoder */
  bool is_cloned;     /* shares the blocks of an equal input file (clone.c): nothing else is written to it */
  bool has_encoder;   /* of any segment: the file is written from front to back, by its lane */
  uint32_t rank;      /* of the group member that writes it, modulo the group's size */
  uint8_t sha256[32]; /* of a carried file, set by the run where its plan wants_side_sums, by the rank that writes it */
} ckpt_layout_file;

/* What a tensor is, where it is read and nothing else is done with it. */
typedef struct ckpt_layout_read {
  const ckpt_index *index; /* NULL: it is made of something */
  const ckpt_tensor *tensor;
} ckpt_layout_read;

struct ckpt_layout {
  ckpt_arena *arena;             /* the plan's */
  const ckpt_index *index;       /* what is laid out: describes only */
  const ckpt_layout_read *reads; /* by tensor of the index, where caps ask for it; NULL: unknown */
  bool *is_elsewhere;            /* by tensor; NULL: none is */
  ckpt_layout_file *files;
  uint32_t n_files, capacity;
  bool is_folder;
  const char *note; /* what depends on how it is laid out, said of the output; NULL: nothing */
};

/* What may be asked for: of the library, of the command, and by a receipt that is run again. */
#define CKPT_MAX_RANKS 4096

/* What the caller may ask of a layout; formats ignore what they have no use for. */
typedef struct ckpt_layout_options {
  uint64_t shard_size;       /* bytes per file, 0: the format's default */
  uint32_t world;            /* ranks of a distributed format, at most CKPT_MAX_RANKS; 0: 1 */
  bool is_folder;            /* the output path is a folder */
  const char *name;          /* of the output's one file, without folders; NULL: it has none */
  ckpt_format_values values; /* of the format's own options */
  const char *folder;        /* real path of the folder of the output, where one of them links; else NULL */
  const char *dtype_written; /* name that config files state as dtype, or NULL to leave them */
} ckpt_layout_options;

/* Appends a file; segments are appended to the newest file. All return ENOMEM or ELIMIT only. */
ckpt_status ckpt_layout_file_add(ckpt_layout *layout, const char *name, ckpt_error *err);
/* Room in the newest file for n more segments, all at once: doubling would leave as much again in the arena. */
ckpt_status ckpt_layout_reserve(ckpt_layout *layout, uint32_t n, ckpt_error *err);
ckpt_status ckpt_layout_literal(ckpt_layout *layout, ckpt_generator *print, const void *arg,
                                ckpt_error *err); /* as above */
ckpt_status ckpt_layout_tensor(ckpt_layout *layout, uint32_t tensor, const uint64_t *box, ckpt_checksum checksum,
                               ckpt_error *err); /* as above */
ckpt_status ckpt_layout_range(ckpt_layout *layout, uint32_t tensor, const ckpt_segment_range *range,
                              ckpt_checksum checksum, ckpt_error *err); /* as above; a tensor's are all, or none */
ckpt_status ckpt_layout_side_file(ckpt_layout *layout, const ckpt_side_file *side, ckpt_error *err); /* as above */
ckpt_status ckpt_layout_footer(ckpt_layout *layout, ckpt_generator *print, const void *arg,
                               ckpt_error *err); /* as above */
ckpt_status ckpt_layout_trailer(ckpt_layout *layout, ckpt_generator *print, const void *arg,
                                ckpt_error *err);                                      /* as above */
ckpt_status ckpt_layout_zeros(ckpt_layout *layout, uint64_t n_bytes, ckpt_error *err); /* as above */

/* No segment holds the tensor: its bytes stay where they are, or are part of a literal or of another tensor. The run
 * only digests it. */
ckpt_status ckpt_layout_elsewhere(ckpt_layout *layout, uint32_t tensor, ckpt_error *err);

/* Makes the last n segments of the newest file one zstd frame. */
void ckpt_layout_frame(ckpt_layout *layout, uint32_t n, int level);

/* The side file that a file consists of; NULL for one that holds something else. */
const ckpt_side_file *ckpt_layout_carried(const ckpt_layout_file *file);

/* Ends the stream that a segment was printed to, and takes a footer's size from it. EINTERNAL where another segment
 * printed more or less than was measured. */
ckpt_status ckpt_segment_printed(ckpt_segment *segment, ckpt_stream *out, ckpt_error *err);

/* Computes sizes and offsets; checks that every tensor of the index is placed exactly once (EINTERNAL otherwise). */
ckpt_status ckpt_layout_finish(ckpt_layout *layout, ckpt_error *err);

#endif
