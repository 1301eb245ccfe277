/* plan.h - rows (sink, name <- expression), their outputs, and what `check` makes of them.
 *
 * check turns rows into pieces: contiguous flat ranges of a row's output whose expression has no concat left. Pieces
 * with the same reads form a batch: each of its tiles makes each read once and evaluates every piece. Peak memory is
 * added up here, before any byte is read or written. */
#ifndef CKPT_PLAN_PLAN_H
#define CKPT_PLAN_PLAN_H

#include "libckpt/base/digest.h"
#include "libckpt/base/group.h"
#include "libckpt/format/format.h"
#include "libckpt/plan/op.h"

#define CKPT_NO_SINK UINT32_MAX /* evaluated and digested, written nowhere */
#define CKPT_NO_ROW UINT32_MAX
#define CKPT_VALUE_SINK (UINT32_MAX - 1) /* a reduction: its value is kept in the plan */

/* Bytes that the memory rule allows beyond the budget: for each tensor or extent of an index, and for the plan. */
enum { CKPT_INDEX_ALLOWANCE = 400, CKPT_PLAN_ALLOWANCE = 8 << 20 };

/* Bytes that a run has for each row: its state in run/rowdigest.h, and its place in the output's digest. */
enum { CKPT_ROW_STATE_BYTES = 24, CKPT_ROW_RUN_BYTES = CKPT_ROW_STATE_BYTES + 8 };

typedef struct ckpt_row {
  uint32_t sink;    /* where its bytes go */
  uint32_t output;  /* the output that has its tensor: as sink, unless its bytes are part of others or only digested */
  const char *name; /* as added; the format may rename it in its description */
  ckpt_expr *expr;
  const ckpt_tensor *tensor; /* after check: what is written, with its places in the output as extents */
  uint32_t value;            /* CKPT_VALUE_SINK: number of the value */
  bool wants_digest;
  uint32_t same_as;    /* after check: number of the row whose digest is its own too (duplicates.h), or CKPT_NO_ROW */
  uint32_t as_read;    /* number of the row with the digest of what a reader finds for it, plus one; 0: its own */
  uint32_t must_equal; /* number of the row whose digest must be this one's, plus one; 0: of none */
  bool is_shared;      /* its place in the output shares blocks of an input that has its bytes (clone.h) */
  ckpt_digest digest;  /* after the run */
  ckpt_cast_stats *stats;    /* after the run: what casts did to values; NULL: nothing in it rounds */
  ckpt_update_stats *update; /* after the run: what low-rank updates did to them; NULL: nobody asks */
} ckpt_row;

/* What casts did to a row's values; nothing where none of them is one. */
ckpt_cast_stats ckpt_row_stats(const ckpt_row *row);

typedef struct ckpt_output {
  const char *path;
  const ckpt_format *format;
  ckpt_layout_options options;
  bool force;
  bool is_at_path;       /* path is its final path; for a caller's sink it is only a name */
  ckpt_sink *sink;       /* owned; made by check for a path, or given */
  ckpt_index *described; /* owned: tensors as the format holds them */
  ckpt_layout layout;
  bool is_started, is_laid_out; /* by check: description and layout */
  bool by_segment; /* pieces fill one segment each: several ranks write, or an encoder needs them in order */
  ckpt_losses losses;
  const ckpt_index *carried; /* whose side files are copied; NULL: none */
  const struct ckpt_quantize_decisions
      *quantized;         /* which block types were chosen (recipe/quantize/quantize.h), or NULL */
  const char *read_names; /* with the digest: how a reader names its tensors, as ckpt_info's */
  ckpt_digest digest;     /* after the run: of the output's content */
  const char *retyping;   /* how a tensor is given another dtype, as advice (ckpt_advise); NULL: by a rule for casts */
  bool is_of_none;        /* that digest: no tensor of the output is the model's */
} ckpt_output;

/* A read of a batch: the box of one tensor that its pieces use, made once per tile. A tile holds a flat range of that
 * box, or, if pieces see it with another axis outermost, the box with that axis restricted. */
typedef struct ckpt_batch_read {
  const ckpt_expr *expr;     /* first READ node that named it: tensor, index, memory */
  const ckpt_view *view;     /* hull of the pieces' views; order is the identity */
  uint64_t n_units, n_bytes; /* of the hull */
  uint32_t unit_bytes;
  uint32_t cut_axis; /* 0: flat ranges */
  bool is_native;    /* view.shape is the tensor's own */
  bool needs_axes;   /* a piece sees a part of it, or its axes in another order: view.shape has to stay */
  bool is_whole;     /* every tile needs all of it */
} ckpt_batch_read;

/* A contiguous flat range of a row's output, or of one segment's part of it, evaluated over the tiles of its batch.
 * Counted in elements. */
typedef struct ckpt_piece {
  uint32_t row;
  uint32_t next; /* piece of the same batch, or UINT32_MAX */
  uint64_t begin, n_elements;
  ckpt_expr *expr;
  ckpt_segment *segment; /* what it fills, in `file` of the row's output; NULL: all places of the row's tensor */
  uint32_t file;
} ckpt_piece;

typedef struct ckpt_block ckpt_block;

/* An argument that every tile of a batch needs whole. */
typedef struct ckpt_whole {
  const ckpt_expr *node;
  uint32_t row; /* the first that needs it */
} ckpt_whole;

/* Keys that batches are ordered by. */
enum { CKPT_N_ORDER = 5 };

typedef struct ckpt_batch {
  uint32_t first_piece, last_piece, n_pieces;
  ckpt_batch_read *reads;
  uint32_t n_reads, n_wholes;
  ckpt_whole *wholes; /* each node once */
  uint32_t lane;      /* file behind an encoder, plus one: its batches are one sequence; 0: none */
  uint64_t n_rows;    /* how finely it can be cut: tiles are whole rows */
  uint64_t tile_rows, n_tiles;
  ckpt_block *block;   /* tiles are blocks, rows are cells (blocks.h); NULL: tiles are ranges of rows */
  uint64_t tile_bytes; /* memory of one tile: reads and buffers */
  /* Reads stay in source order: class (0 lane, 1 other, 2 lane that needs values), file (lane), offset of the first
   * read (segment), 0 (first element in the row), level: how many reductions deep its values are. */
  uint64_t order[CKPT_N_ORDER];
  bool in_order;   /* tiles by one worker, one after the other: sequential decoders, encoders */
  bool has_cursor; /* a decoder or encoder is why */
  bool exclusive;  /* needs more than a worker's share: runs alone, with all of the workspace */
  bool waits;      /* starts when every batch before it is done */
  bool has_value;  /* a piece is a reduction */
} ckpt_batch;

/* An index that the plan reads or carries from; outputs must not overlap it. */
typedef struct ckpt_plan_input {
  const ckpt_index *index;
  const char *given; /* as the user named it; NULL: the index's own path */
} ckpt_plan_input;

struct ckpt_plan {
  ckpt_arena arena;
  ckpt_index *dialect;     /* made of an input for its outputs (codec/dialect/), or NULL; owned */
  ckpt_index *apart;       /* the same for outputs with the names of files, where the input joins tensors */
  ckpt_plan_input *inputs; /* each once */
  uint32_t n_inputs, input_capacity, last_input;
  ckpt_row *rows;
  uint32_t n_rows, row_capacity;
  ckpt_output *outputs;
  uint32_t n_outputs, output_capacity;
  void **values; /* results of reductions */
  uint32_t n_values, value_capacity;
  bool wants_digests;              /* of every written row; default true */
  bool wants_updates;              /* rows of low-rank updates say what these did (update) */
  bool counts_same;                /* with how many values are as before */
  bool wants_side_sums;            /* SHA-256 of each carried file: what receipts record */
  bool allow_overflow;             /* counts damage by casts instead of failing */
  bool links;                      /* outputs refer to the inputs' data and may be in the inputs' folders */
  bool has_run;                    /* a plan with outputs runs once */
  struct ckpt_record_parts *parts; /* receives records that it reads a part of; borrowed; NULL: nobody compares them */
  /* made by check: */
  ckpt_arena work;
  ckpt_piece *pieces;
  uint32_t n_pieces, piece_capacity;
  ckpt_batch *batches;
  uint32_t n_batches, batch_capacity;
  bool is_checked;
  uint32_t n_threads;               /* wanted */
  uint32_t rank, n_ranks;           /* of the group that it was checked for */
  uint32_t n_workers, n_leaf_slots; /* planned; 1 MiB buffers for digest leaves that tiles cut */
  uint64_t workspace_bytes;         /* n_workers shares */
  uint64_t share_bytes;             /* workspace of each worker */
  uint64_t cursor_bytes;            /* that decoders of each worker may hold */
  uint64_t memory;                  /* the budget it was checked for */
  uint64_t peak;                    /* planned, at most memory */
  uint64_t beside;                  /* memory of the plan and the indexes, from the rule's extra allowance */
  uint64_t n_bytes_read, n_bytes_written;
  uint64_t n_bytes_fetched; /* n_bytes_read and the gaps between short runs that are read with them */
};

/* An output through a sink of the caller's (owned by the plan from now on): tests, memory, devices. */
ckpt_status ckpt_plan_output_sink(ckpt_plan *plan, ckpt_sink *sink, const ckpt_format *format,
                                  const ckpt_layout_options *options, uint32_t *number, ckpt_error *err);

/* Makes an index an input of the plan, as reading and carrying it do; given (may be NULL) is borrowed. EINVAL if an
 * output is equal to it, inside it, or contains it. */
ckpt_status ckpt_plan_reads(ckpt_plan *plan, const ckpt_index *index, const char *given, ckpt_error *err);

/* EINVAL for an output path that is equal to an input so far, inside one, or contains one. */
ckpt_status ckpt_plan_keeps_apart(const ckpt_plan *plan, const char *path, ckpt_error *err);

/* What follows folder in a path below it, as both are written; NULL where the path is not below it. */
const char *ckpt_path_below(const char *folder, const char *path);

/* A sink for one more file or folder of the caller's; EINVAL at the place of an input or output. Below the folder of an
 * output it becomes a part of that output (sink_parts.h), to be opened before the run; else it is on its own. */
ckpt_status ckpt_plan_sink(ckpt_plan *plan, const char *path, bool is_folder, bool force, ckpt_sink **out,
                           ckpt_error *err);

/* Adds a row whose role follows `like` (other names: ckpt_index_alias); sink may be CKPT_NO_SINK. *row numbers it. */
ckpt_status ckpt_plan_add_like(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr,
                               const ckpt_tensor *like, uint32_t *row, ckpt_error *err);

/* Carries metadata, side files and objects of an index into an output. */
ckpt_status ckpt_plan_carry(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, ckpt_error *err);

/* Adds a reduction; *value is borrowed from the plan and filled by the run (op->value_bytes). */
ckpt_status ckpt_plan_reduce(ckpt_plan *plan, const char *name, ckpt_expr *reduction, const void **value,
                             ckpt_error *err);

/* Prepares every row: descriptions, layouts, pieces, batches, memory. Idempotent for the same options. In a group, a
 * rank gets the pieces of its own files, every reduction, and its share of the rows that are not written. */
ckpt_status ckpt_plan_prepare(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err);

/* Frees the results of check, which a plan does not need after its run or before a new check. */
void ckpt_plan_drop_work(ckpt_plan *plan);

/* Takes a row's line: name, dtype, shape, expression. `from` is the expression, the end of it. */
typedef void ckpt_plan_printer(void *arg, const char *line, const char *from);

/* Prints the checked plan, a line per row. */
ckpt_status ckpt_plan_print(const ckpt_plan *plan, ckpt_plan_printer *print, void *arg, ckpt_error *err);

/* Whether the plan's rank writes the file, and whether it makes the digest of a row of the plan. */
bool ckpt_plan_writes(const ckpt_plan *plan, const ckpt_layout_file *file);
bool ckpt_plan_digests(const ckpt_plan *plan, uint32_t row); /* as above */

/* Whether a row's tensor is cut into boxes that are written one by one: its digest is made by reading back. */
bool ckpt_row_is_boxed(const ckpt_plan *plan, const ckpt_row *row);

/* Bytes of an output's files; those behind an encoder, before a run, without it. */
uint64_t ckpt_output_bytes(const ckpt_output *output);

/* Bytes of side files that the plan's rank reads for an output. */
uint64_t ckpt_output_side_bytes(const ckpt_plan *plan, const ckpt_output *output);

/* Memory of the worker that writes a file behind an encoder, beside the encoder's own. */
#define CKPT_LANE_BYTES (UINT64_C(320) << 10 | 56)

/* The number of an output's file among the files of all outputs, plus one (see ckpt_batch.lane). */
uint32_t ckpt_lane_number(const ckpt_plan *plan, const ckpt_output *output, uint32_t file);

/* Gives each described tensor its places in the output, as extents for scattering. Call it again after encoders have
 * finished, so that their files can be read back. */
void ckpt_output_place(ckpt_output *output);

/* Elements of node's result in a tile of n_rows of the batch; all of them where it is needed whole. */
uint64_t ckpt_tile_elements(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, uint64_t n_rows);

/* Number of the batch's read that a READ node sees. *is_direct: the read's tile is the node's result unchanged. */
uint32_t ckpt_batch_find_read(const ckpt_batch *batch, const ckpt_expr *node, bool is_whole, bool *is_direct);

#endif
