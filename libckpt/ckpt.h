/* ckpt.h - the public interface of libckpt.
 *
 * A checkpoint is an index of named tensors over bytes. A tool writes a plan (rows of sink, name, expression), and one
 * loop runs it. A program that links libckpt needs this header alone. It compiles as C17 and as C++. The library keeps
 * no global state, prints nothing, handles no signals and never exits. Results come first and `ckpt_error *err` last;
 * err may be NULL.
 *
 * Threads: any number of threads may read a finished ckpt_index at once. A plan belongs to one thread.
 * Floats: results do not depend on the caller's floating-point environment (<fenv.h>). Each call restores it, and
 * callbacks run in the default one.
 * Ownership: `_free` releases what `_open` or `_new` returned and accepts NULL. Every other pointer borrows from its
 * parent and lives as long as the parent.
 * Option structs begin with `struct_size`: set it to the struct's sizeof, zero the rest, fill in what you need. */
#ifndef CKPT_H
#define CKPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CKPT_API __attribute__((visibility("default")))
#define CKPT_USE_RESULT __attribute__((warn_unused_result))
#define CKPT_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define CKPT_API
#define CKPT_USE_RESULT
#define CKPT_PRINTF(format_at, first_at)
#endif

#define CKPT_VERSION "0.1.0"
#define CKPT_MAX_RANK 8

/* ---- errors ---------------------------------------------------------------------------------------------- */

/* The class of a failure; the message says the rest. */
typedef enum ckpt_status {
  CKPT_OK = 0,
  CKPT_EINVAL,       /* an argument or option makes no sense */
  CKPT_ENOTFOUND,    /* a path, tensor or pattern names nothing */
  CKPT_EEXIST,       /* the output exists already, or two things have the same name */
  CKPT_EFORMAT,      /* the bytes violate their format */
  CKPT_EUNSUPPORTED, /* valid, but this version does not support it */
  CKPT_ELIMIT,       /* a documented limit (memory, depth, count, length) would be exceeded */
  CKPT_ENOMEM,       /* the allocator returned NULL */
  CKPT_EIO,          /* the operating system failed to read, write, sync or rename */
  CKPT_EDIFFERENT,   /* two things that had to be equal are not */
  CKPT_EVALUE,       /* the target cannot represent a value (overflowing cast) */
  CKPT_ECANCELED,    /* the caller set the cancel flag */
  CKPT_EINTERNAL     /* an invariant broke: a bug in libckpt */
} ckpt_status;

/* The first failure. The caller owns it and zero-initialises it; success leaves it unchanged. A text longer than its
 * array loses its middle. */
typedef struct ckpt_error {
  ckpt_status status;
  char file[512];     /* path, or "" */
  char tensor[256];   /* tensor name, or "" */
  char message[1024]; /* what is wrong; lower case, no full stop */
  char option[48];    /* the field of the option struct whose value is at fault ("shard_size"), or "" */
  char advice[128];   /* what to do about it, or "": "raise %memory", "leave out %weights=model"; % is before fields */
  char value[128];    /* replaces $ in it */
} ckpt_error;

/* Writes `<file>: tensor '<name>': <option>: <message> (<advice>)` into out (n_bytes > 0, always terminated) and
 * returns out. */
CKPT_API const char *ckpt_error_text(const ckpt_error *err, char *out, size_t n_bytes);

/* One sentence for a status, in static storage. */
CKPT_API const char *ckpt_status_text(ckpt_status status);

/* The library's version: CKPT_VERSION when it was built. */
CKPT_API const char *ckpt_version(void);

/* ---- element types ----------------------------------------------------------------------------------------- */

/* Ids are stable. The table behind them is libckpt/base/dtype.def. */
typedef enum ckpt_dtype {
  CKPT_DTYPE_NONE = 0,
  CKPT_BOOL,
  CKPT_U8,
  CKPT_U16,
  CKPT_U32,
  CKPT_U64,
  CKPT_I8,
  CKPT_I16,
  CKPT_I32,
  CKPT_I64,
  CKPT_F64,
  CKPT_F32,
  CKPT_F16,
  CKPT_BF16,
  CKPT_F8_E4M3,
  CKPT_F8_E5M2,
  CKPT_F8_E8M0,
  CKPT_F8_E4M3FNUZ,
  CKPT_F8_E5M2FNUZ,
  CKPT_F6_E2M3,
  CKPT_F6_E3M2,
  CKPT_F4_E2M1,
  CKPT_C64,
  CKPT_C128,
  CKPT_Q4_0, /* ggml's block types start here */
  CKPT_Q4_1,
  CKPT_Q5_0,
  CKPT_Q5_1,
  CKPT_Q8_0,
  CKPT_Q8_1,
  CKPT_Q2_K,
  CKPT_Q3_K,
  CKPT_Q4_K,
  CKPT_Q5_K,
  CKPT_Q6_K,
  CKPT_Q8_K,
  CKPT_IQ2_XXS,
  CKPT_IQ2_XS,
  CKPT_IQ3_XXS,
  CKPT_IQ1_S,
  CKPT_IQ4_NL,
  CKPT_IQ3_S,
  CKPT_IQ2_S,
  CKPT_IQ4_XS,
  CKPT_IQ1_M,
  CKPT_TQ1_0,
  CKPT_TQ2_0,
  CKPT_MXFP4,
  CKPT_NVFP4,
  CKPT_Q1_0,
  CKPT_Q2_0,
  CKPT_N_DTYPES
} ckpt_dtype;

/* "bf16"; "none" for CKPT_DTYPE_NONE and unknown ids. */
CKPT_API const char *ckpt_dtype_name(ckpt_dtype dtype);

/* The dtype of a name or synonym ("bf16", "bfloat16", "torch.bfloat16", any case); CKPT_DTYPE_NONE if unknown. */
CKPT_API ckpt_dtype ckpt_dtype_parse(const char *name);

/* ---- tensors and indexes ------------------------------------------------------------------------------------ */

typedef struct ckpt_index ckpt_index;
typedef struct ckpt_extent ckpt_extent;

/* What a tensor is used for. */
typedef enum ckpt_role {
  CKPT_ROLE_PARAMETER,
  CKPT_ROLE_BUFFER,
  CKPT_ROLE_MASTER,
  CKPT_ROLE_EXP_AVG,
  CKPT_ROLE_EXP_AVG_SQ,
  CKPT_ROLE_MOMENTUM,
  CKPT_ROLE_STEP,
  CKPT_ROLE_OTHER,
  CKPT_N_ROLES
} ckpt_role;

/* "parameter", "exp_avg", ...; static storage. */
CKPT_API const char *ckpt_role_name(ckpt_role role);

/* A tensor's description; it never owns data. Shapes are row-major, outermost axis first. The index owns it. */
typedef struct ckpt_tensor {
  const char *name;           /* UTF-8, never empty */
  const char *const *aliases; /* other names of the same storage and view, NULL-terminated; NULL if none */
  const uint64_t *shape;      /* rank extents in elements; NULL when rank is 0 (a scalar, one element) */
  uint64_t n_elements;
  uint64_t n_bytes;           /* row-major size, n_elements in blocks of the dtype */
  const ckpt_extent *extents; /* where the bytes are, or those that it is computed from; see ckpt_tensor_extents */
  uint32_t n_extents;
  uint32_t storage;                    /* equal for tensors that share memory; 0 means its own */
  uint8_t rank;                        /* 0..CKPT_MAX_RANK */
  uint8_t dtype;                       /* ckpt_dtype */
  uint8_t role;                        /* ckpt_role */
  struct ckpt_tensor_details *details; /* what the library keeps of it beside; NULL of one that is in no index */
} ckpt_tensor;

/* Allocates large memory: an index, or a run's tiles. Several threads may call both functions at once.
 * Small allocations, and those of other libraries, stay with malloc. */
typedef struct ckpt_allocator {
  void *ctx;
  void *(*allocate)(void *ctx, size_t n_bytes); /* aligned to 64 bytes; NULL fails with ENOMEM */
  void (*release)(void *ctx, void *memory, size_t n_bytes);
} ckpt_allocator;

/* How to open an input. Zero means the default, given in parentheses. */
typedef struct ckpt_open_options {
  size_t struct_size;
  uint64_t max_index_bytes; /* limit on the index's own memory (8 GiB) */
  bool stored_names;        /* keep tensor names as the file stores them */
  const char *weights;      /* copy to use as the parameters: "master" or "model"; NULL: master if there is one */
  const ckpt_allocator *allocator; /* allocates the index; the struct is copied; NULL: malloc */
  const ckpt_index *like;          /* its config.json gives names, roles and ties to an input without one; or NULL */
  /* Receives each broken part (shard, tensor, item). The index leaves that part out and keeps what is whole; opening
   * fails only if nothing is readable. ckpt_open calls it from its own thread. NULL: opening fails at the first
   * defect. */
  void (*report)(void *arg, const ckpt_error *defect);
  void *report_arg;
  /* Names by the rules for models of no family, of this revision, whatever is known now: 1 is that of digests over
   * "stored" and "hf:any/1", 2 that of "hf:any/2". 0: the newest rules. */
  uint32_t naming_revision;
  /* Reads records whose CRC-32 is not that of their content all the same; else that is EDIFFERENT, here and wherever
   * one is read whole. `corrupt` (may be NULL) receives each such record, or each tensor in it. This call and later
   * reads of the index call it, never from two threads at once. */
  bool allow_corrupt;
  void (*corrupt)(void *arg, const ckpt_error *damage);
  void *corrupt_arg;
} ckpt_open_options;

/* Opens a file or folder of any known format, recognised by its content. Reads headers only.
 * Fails with ENOTFOUND, EFORMAT, EDIFFERENT (a checksum), EUNSUPPORTED, ELIMIT, EIO, ENOMEM. Blocks on the file
 * system. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_open(ckpt_index **out, const char *path, const ckpt_open_options *options,
                                               ckpt_error *err);

/* Opens n_bytes at data, which the caller keeps and which must outlive the index. Messages call the input `name`. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_open_memory(ckpt_index **out, const void *data, size_t n_bytes,
                                                      const char *name, const ckpt_open_options *options,
                                                      ckpt_error *err);

/* Releases an index and everything borrowed from it. */
CKPT_API void ckpt_index_free(ckpt_index *index);

/* Number of tensors; aliases do not count. */
CKPT_API size_t ckpt_index_count(const ckpt_index *index);

/* The i-th tensor in byte order of names, i < ckpt_index_count; NULL past the end. */
CKPT_API const ckpt_tensor *ckpt_index_at(const ckpt_index *index, size_t i);

/* The tensor with this name or alias; NULL if there is none. */
CKPT_API const ckpt_tensor *ckpt_index_find(const ckpt_index *index, const char *name);

/* The value of a key in the format's own metadata, or NULL. GGUF's typed values become text: a number in digits, an
 * array as its first elements and its length. */
CKPT_API const char *ckpt_index_metadata(const ckpt_index *index, const char *key);

/* What was opened. Strings are borrowed from the index; "" where unknown. */
typedef struct ckpt_info {
  size_t struct_size;
  const char *format; /* "safetensors", "hf", ... */
  const char *path;
  const char *architecture; /* "llama": from the table that named the tensors, else from the file, else "" */
  const char *names;        /* "stored" or "hf:<architecture>/<revision>" */
  const char *writer;       /* program that wrote it, where the format says */
  int64_t step;             /* training step, -1 if unknown */
  uint32_t n_files;
  uint64_t n_parameters; /* elements of role parameter */
  uint64_t n_bytes;      /* row-major bytes of all tensors */
  uint32_t min_ranks;    /* the job that wrote it had at least this many ranks; 0: unknown */
} ckpt_info;

/* Fills *out, whose struct_size must be set. */
CKPT_API void ckpt_index_info(const ckpt_index *index, ckpt_info *out);

/* The place of one stored piece of a tensor, for callers with their own I/O. A literal is stored nowhere: zeros, or one
 * repeated value (a quantized torch tensor's scale). It has no file and no range, and is not raw: use ckpt_read. */
typedef struct ckpt_extent_view {
  size_t struct_size;
  const char *file;                                    /* a path to open; NULL for memory and literals */
  uint64_t offset, n_bytes;                            /* stored range; 0 for literals */
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK]; /* box of the tensor it holds; flat: start[0], count[0] */
  bool flat;                                           /* a range of row-major elements instead of a box */
  bool raw; /* bytes are the elements, contiguous; false: a decoder or strides stand between, it is a literal, or the
               tensor is computed from it: then the box is one of the stored tensor */
} ckpt_extent_view;

/* Fills *out with the tensor's i-th extent; false past the last one. */
CKPT_API bool ckpt_tensor_extents(const ckpt_index *index, const ckpt_tensor *tensor, size_t i, ckpt_extent_view *out);

/* A box of a tensor, in elements; the tensor gives the rank. */
typedef struct ckpt_box {
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
} ckpt_box;

/* Reads a tensor, or a box of it, into dst in row-major order. It gathers the shards and casts to `as`
 * (CKPT_DTYPE_NONE: as stored). n_bytes must be exactly the size of the result.
 * A record that the tensor is all of, and that carries a CRC-32, is compared with it.
 * Fails with EINVAL (size, box), EIO, EFORMAT, EDIFFERENT (that checksum), EUNSUPPORTED (cast), EVALUE (a cast that
 * overflows or loses a NaN). Blocks on reading. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_read(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                                               ckpt_dtype as, void *dst, size_t n_bytes, ckpt_error *err);

/* ---- content digest ------------------------------------------------------------------------------------------ */

/* ckpt1, as docs/digest.md specifies it. */
typedef struct ckpt_digest {
  uint8_t bytes[32];
} ckpt_digest;

/* Writes "ckpt1:" and 64 hex digits; out holds at least 71 bytes. Returns out. */
CKPT_API const char *ckpt_digest_text(const ckpt_digest *digest, char *out);

/* A run calls this between tiles from one of its threads, never from two at once. n_total: bytes it will read. */
typedef void ckpt_progress(void *arg, uint64_t n_read, uint64_t n_total);

/* The ranks of one job that run one plan together. Each builds the same plan; only the place of its data may differ.
 * Each calls ckpt_plan_run with its own rank and writes its own files. Rank 0 commits them all, and every rank returns
 * the same status. The bytes do not depend on the number of ranks. ckpt_convert and ckpt_hash work the same way if
 * every rank passes the same options. */
typedef struct ckpt_group {
  void *ctx;
  uint32_t rank, size;
  /* Gathers n_bytes from every rank into dst (size * n_bytes), in rank order. Blocks until all ranks have called it.
   * Fails if the caller's transport fails. */
  ckpt_status (*all_gather)(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err);
} ckpt_group;

/* The kernels that a run uses: "cpu" (chosen for this processor) or "reference" (plain C, which defines the results).
 * Both give the same bytes. */
typedef struct ckpt_backend ckpt_backend;
CKPT_API const ckpt_backend *ckpt_backend_find(const char *name); /* NULL if the name is unknown */

/* How to run. All fields are optional. */
typedef struct ckpt_run_options {
  size_t struct_size;
  uint64_t memory;    /* bytes for tiles, windows and footers (128 MiB) */
  uint32_t n_threads; /* 0: one per processor */
  ckpt_progress *progress;
  void *progress_arg;
  const volatile int *cancel;      /* non-zero: stop, remove temporary files, fail with ECANCELED */
  const char *trace;               /* path of a JSON lines trace, or NULL; rank k > 0 of a group adds ".k" */
  const ckpt_group *group;         /* NULL: this process runs alone */
  const ckpt_backend *backend;     /* NULL: "cpu" */
  const ckpt_allocator *allocator; /* allocates tiles; NULL: malloc */
} ckpt_run_options;

/* What to digest. */
typedef struct ckpt_hash_options {
  size_t struct_size;
  ckpt_dtype cast;     /* digests the values as this dtype; NONE: as stored */
  const char *include; /* "model" (default), "optimizer" or "all" */
  const ckpt_run_options *run;
  const char *const *exclude; /* leave out tensors whose names match these patterns (NULL-terminated), or NULL */
} ckpt_hash_options;

/* Computes the content digest of an index. Reads every byte of its tensors once, and blocks on reading. Fails with
 * EINVAL (include, exclude, options), ENOTFOUND (a pattern that matches nothing), EUNSUPPORTED (cast, and
 * a tensor that is not read), EVALUE (cast), EFORMAT, EDIFFERENT (a record's checksum, tied copies), EIO (also if a
 * file changed since it was opened), ELIMIT, ENOMEM, ECANCELED. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_hash(const ckpt_index *index, const ckpt_hash_options *options,
                                               ckpt_digest *out, ckpt_error *err);

/* ---- plans ---------------------------------------------------------------------------------------------------- */

typedef struct ckpt_plan ckpt_plan;
typedef struct ckpt_expr ckpt_expr; /* owned by its plan */

/* Makes an empty plan. It borrows every index that its expressions read. Fails with ENOMEM. Does not block. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_new(ckpt_plan **out, ckpt_error *err);
/* Releases a plan, or NULL. Removes the temporary files of outputs that did not run. */
CKPT_API void ckpt_plan_free(ckpt_plan *plan);

/* Adds an output that ckpt_plan_run writes and commits. *sink receives its number (0, 1, ...). format: "safetensors",
 * "hf", ...; NULL takes it from the suffix. An existing path fails with EEXIST unless force is true.
 * EINVAL: the path is another output's or one that the plan reads (links are followed), or no writable format has this
 * name or suffix. Adding a read of this path later fails with EINVAL too.
 * Also fails with ENOTFOUND (the folder to write to), EIO, ENOMEM. Blocks on the file system. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_output(ckpt_plan *plan, const char *path, const char *format, bool force,
                                                      uint32_t *sink, ckpt_error *err);

/* Adds the row (sink, name <- expr). If the sink has the name already, ckpt_plan_check fails with EEXIST.
 * EINVAL: no such sink, a reduction, or a plan that was checked already. EFORMAT: the name is not UTF-8. ELIMIT: the
 * name is too long, or the expression has more than 65,536 operations or 256 levels; an operation counts once for each
 * use. Also fails with ENOMEM. Does not block. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_add(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr,
                                                   ckpt_error *err);

/* Checks every row (shapes, dtypes, memory) without reading tensor data. peak and n_rows may be NULL.
 * peak: the most bytes that the run will hold, at most `options->memory`. ELIMIT names the row that cannot fit. Also
 * fails with EINVAL, EEXIST (a duplicate name), EUNSUPPORTED and EVALUE (the format cannot hold it), ENOMEM. If laying
 * out an output failed, the plan cannot be used again: make another. Blocks on small reads of the inputs at most. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_check(ckpt_plan *plan, const ckpt_run_options *options, uint64_t *peak,
                                                     size_t *n_rows, ckpt_error *err);

/* Runs the plan and commits its outputs, all or nothing for each. A plan with outputs runs once; the second call fails
 * with EINVAL. Blocks on reading the inputs, on writing and syncing the outputs and, in a group, on the other ranks.
 * Checks the plan first if the caller did not, and fails like ckpt_plan_check. Also fails with ENOTFOUND, EFORMAT,
 * EDIFFERENT (a record that was read whole has another checksum), EIO (no space, or an input that changed), EEXIST (an
 * output that appeared meanwhile), EVALUE (a cast that overflows or loses a NaN), ECANCELED. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_run(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err);

/* Expression builders. Each returns a node that the plan owns. They fail with EINVAL (shape, axis, invalid dtype),
 * EUNSUPPORTED (a cast or block type without a kernel) and ENOMEM. Only read blocks: it looks up the files of a new
 * index, and fails with EINVAL if the plan writes to one of them.
 * read: the tensor as stored.
 * memory: the caller's row-major bytes, borrowed until the plan is freed. NULL only if there are no bytes.
 * cast: rounds to nearest even. A block type becomes f32 first, which is exact. Only cast and quantize round.
 * quantize: f32 to one of ggml's block types, row by row, as ggml's reference does. importance is NULL or f32 of shape
 * [n_matrices, last axis]: one row of weights for each of n_matrices equal parts of x's last three axes. The run fails
 * with EVALUE if a value or a scale is not finite.
 * slice: [start, start + count) of one axis. permute: axis i of the result is axis order[i] of x. reshape: the same
 * elements. concat: along an existing axis. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *index,
                                                    const ckpt_tensor *tensor, ckpt_error *err);
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_memory(ckpt_expr **out, ckpt_plan *plan, ckpt_dtype dtype, uint32_t rank,
                                                      const uint64_t *shape, const void *data,
                                                      ckpt_error *err); /* see read */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_cast(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, ckpt_dtype dtype,
                                                    ckpt_error *err); /* see read */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_quantize(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x,
                                                        ckpt_dtype dtype, ckpt_expr *importance, ckpt_error *err);
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_slice(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, uint32_t axis,
                                                     uint64_t start, uint64_t count, ckpt_error *err); /* see read */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_permute(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x,
                                                       const uint32_t *order, ckpt_error *err); /* see read */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_reshape(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *x, uint32_t rank,
                                                       const uint64_t *shape, ckpt_error *err); /* see read */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_expr_concat(ckpt_expr **out, ckpt_plan *plan, ckpt_expr *const *xs,
                                                      uint32_t n, uint32_t axis, ckpt_error *err); /* see read */

/* ---- whole verbs ------------------------------------------------------------------------------------------------ */

/* One `PATTERN=DTYPE` of a conversion. A pattern is a glob on tensor names; with `re:` in front, a regular
 * expression. */
typedef struct ckpt_cast_rule {
  const char *pattern;
  ckpt_dtype dtype;
} ckpt_cast_rule;

/* An option that one format alone has, by the name that receipts have for it (docs/records.md): what it does, and the
 * values that it takes, says docs/cli.md. 0 and NULL are as good as none.
 * value: a number, 1 for a flag that is given, or the place of a word in the list of words, from 1.
 * text: a path, a name. list: what may be given several times, in order. */
typedef struct ckpt_format_value {
  const char *name;
  uint64_t value;
  const char *text;
  const char *const *list; /* NULL-terminated */
} ckpt_format_value;

/* What `ckpt convert` does, without a process. */
typedef struct ckpt_convert_options {
  size_t struct_size;
  const char *input;           /* path */
  const char *output;          /* path */
  const char *to;              /* output format; NULL: from the suffix, "hf" for a folder */
  const ckpt_cast_rule *casts; /* first matching rule wins; pattern NULL matches every floating tensor */
  size_t n_casts;
  const char *const *match;   /* keep only these patterns (NULL-terminated), or NULL */
  const char *const *exclude; /* drop these patterns (NULL-terminated), or NULL */
  const char *const *rename;  /* "s/re/replacement/" rules in order (NULL-terminated), or NULL */
  const char *include;        /* "model", "optimizer", "no-optimizer" or "all"; NULL: the format's default */
  uint64_t shard_size;        /* bytes per file of a folder; 0: 5 GB for hf */
  bool force, allow_overflow, stored_names;
  const ckpt_run_options *run;
  ckpt_digest *digest;             /* receives the output's content digest, or NULL */
  const char *weights;             /* "master" or "model", as ckpt_open_options; NULL: master where there is one */
  uint32_t world;                  /* ranks that a distributed format is cut among, at most 4096; 0: 1 */
  const ckpt_format_value *values; /* options of the output's format, each name once */
  size_t n_values;
  bool allow_corrupt; /* as ckpt_open_options; and so are these two */
  void (*corrupt)(void *arg, const ckpt_error *damage);
  void *corrupt_arg;
} ckpt_convert_options;

/* Converts and commits. Fails like ckpt_open and ckpt_plan_run, and with EINVAL for options that the output's format
 * does not use. A failure leaves nothing behind. Blocks on reading the input, on writing and syncing the output and, in
 * a group, on the other ranks. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_convert(const ckpt_convert_options *options, ckpt_error *err);

#ifdef __cplusplus
}
#endif
#endif
