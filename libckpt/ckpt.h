/* ckpt.h - the public interface of libckpt.
 *
 * A checkpoint is an index of named tensors over bytes; a tool writes a plan (rows: sink, name, expression);
 * one loop runs it. This header is everything a program that links libckpt needs: C17 and C++ clean, no global
 * state, no printing, no signals, no exit. Results come first, `ckpt_error *err` last; err may be NULL.
 *
 * Threads: a finished ckpt_index may be read by any number of threads at once. A plan belongs to one thread.
 * Floats: results do not depend on the caller's floating-point environment (<fenv.h>), which is afterwards as it was;
 * callbacks run in the default one.
 * Ownership: what `_open` or `_new` returned is released with its `_free` (NULL is fine); every other pointer
 * borrows from its parent and lives as long as that.
 * Option structs begin with `struct_size`: set it to sizeof the struct, zero the rest, fill what you need. */
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

/* What went wrong, as a class; the message says the rest. */
typedef enum ckpt_status {
  CKPT_OK = 0,
  CKPT_EINVAL,       /* the caller's argument or option cannot be meant */
  CKPT_ENOTFOUND,    /* a path, tensor or pattern names nothing */
  CKPT_EEXIST,       /* the output is there already, or two things have one name */
  CKPT_EFORMAT,      /* the bytes are not what their format demands */
  CKPT_EUNSUPPORTED, /* well formed, but not something this version does */
  CKPT_ELIMIT,       /* a stated limit (memory, depth, count, length) would be passed */
  CKPT_ENOMEM,       /* the allocator returned nothing */
  CKPT_EIO,          /* the operating system failed to read, write, sync or rename */
  CKPT_EDIFFERENT,   /* two things that had to be equal are not */
  CKPT_EVALUE,       /* a value cannot be represented where it goes (overflowing cast) */
  CKPT_ECANCELED,    /* the caller's cancel flag was seen */
  CKPT_EINTERNAL     /* our own invariant broke: a bug in libckpt */
} ckpt_status;

/* The first failure, owned by the caller; zero-initialise it. Unchanged on success. Fields longer than their
 * array are cut in the middle. */
typedef struct ckpt_error {
  ckpt_status status;
  char file[512];     /* path, or "" */
  char tensor[256];   /* tensor name, or "" */
  char message[1024]; /* what is wrong; lower case, no full stop */
  char option[48];    /* the field of the option struct whose value is at fault ("shard_size"), or "" */
  char advice[128];   /* what to do about it, or "": "raise %memory", "leave out %weights=model"; % is before fields */
  char value[128];    /* what stands for $ in it */
} ckpt_error;

/* Writes `<file>: tensor '<name>': <option>: <message> (<advice>)` into out (n_bytes > 0, always terminated) and
 * returns out. */
CKPT_API const char *ckpt_error_text(const ckpt_error *err, char *out, size_t n_bytes);

/* One sentence for a status, static storage. */
CKPT_API const char *ckpt_status_text(ckpt_status status);

/* The library's version, CKPT_VERSION of the build. */
CKPT_API const char *ckpt_version(void);

/* ---- element types ----------------------------------------------------------------------------------------- */

/* Ids are stable; the table behind them is libckpt/base/dtype.def. */
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
  CKPT_Q4_0, /* from here on block types of ggml */
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

/* What a tensor is for. */
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

/* A described tensor: it never owns data. Shapes are row-major, outermost axis first. Borrowed from its index. */
typedef struct ckpt_tensor {
  const char *name;           /* UTF-8, never empty */
  const char *const *aliases; /* other names of the same storage and view, NULL-terminated; NULL if none */
  const uint64_t *shape;      /* rank extents in elements; NULL when rank is 0 (a scalar, one element) */
  uint64_t n_elements;
  uint64_t n_bytes;           /* row-major size, n_elements in blocks of the dtype */
  const ckpt_extent *extents; /* where the bytes are, or those that it is computed from; see ckpt_tensor_extents */
  uint32_t n_extents;
  uint32_t storage;                  /* equal for tensors that share memory; 0 means its own */
  uint8_t rank;                      /* 0..CKPT_MAX_RANK */
  uint8_t dtype;                     /* ckpt_dtype */
  uint8_t role;                      /* ckpt_role */
  struct ckpt_tensor_record *record; /* what the library keeps of it beside; NULL of one that is in no index */
} ckpt_tensor;

/* Where the large memory comes from: an index, or a run's tiles. Both may be called from several threads.
 * What is small or belongs to other libraries stays with malloc. */
typedef struct ckpt_allocator {
  void *ctx;
  void *(*allocate)(void *ctx, size_t n_bytes); /* aligned to 64 bytes; NULL: there is none (ENOMEM) */
  void (*release)(void *ctx, void *memory, size_t n_bytes);
} ckpt_allocator;

/* Bounds for hostile or very large input; zero means the default in parentheses. */
typedef struct ckpt_open_options {
  size_t struct_size;
  uint64_t max_index_bytes; /* memory of the index itself (8 GiB) */
  bool stored_names;        /* keep the names that stand in the file (--names stored) */
  const char *weights; /* copy that stands for the parameters: "master" or "model"; NULL: master where there is one */
  const ckpt_allocator *allocator; /* of the index's memory, copied; NULL: malloc */
  const ckpt_index *like; /* its config.json gives names, roles and ties to an input that has none (--like); or NULL */
  /* Told of each part (shard, tensor, item) that is broken. It is left out of the index, for whatever is whole, and
   * opening goes on, to fail only where nothing can be read. Called during ckpt_open, from its thread. NULL: opening
   * fails at the first defect. */
  void (*report)(void *arg, const ckpt_error *defect);
  void *report_arg;
  /* Rules of names where no family is known: 1 is that of digests over "stored" and "hf:any/1". 0: the newest. */
  uint32_t naming_revision;
} ckpt_open_options;

/* Opens a file or folder of any known format, recognised by content. Reads headers only.
 * Fails with ENOTFOUND, EFORMAT, EUNSUPPORTED, ELIMIT, EIO, ENOMEM. Blocks on the file system. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_open(ckpt_index **out, const char *path, const ckpt_open_options *options,
                                               ckpt_error *err);

/* The same over n_bytes at data, which stay the caller's and must outlive the index; `name` stands in messages. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_open_memory(ckpt_index **out, const void *data, size_t n_bytes,
                                                      const char *name, const ckpt_open_options *options,
                                                      ckpt_error *err);

/* Releases an index and everything borrowed from it. */
CKPT_API void ckpt_index_free(ckpt_index *index);

/* Number of tensors; aliases are not counted. */
CKPT_API size_t ckpt_index_count(const ckpt_index *index);

/* The i-th tensor in byte order of names, i < ckpt_index_count; NULL past the end. */
CKPT_API const ckpt_tensor *ckpt_index_at(const ckpt_index *index, size_t i);

/* The tensor with this name or alias; NULL if there is none. */
CKPT_API const ckpt_tensor *ckpt_index_find(const ckpt_index *index, const char *name);

/* The format's own metadata: value of key, or NULL. What is no text (GGUF) is given as text: a number in digits, of an
 * array its first elements and its length. */
CKPT_API const char *ckpt_index_metadata(const ckpt_index *index, const char *key);

/* What was opened. Strings are borrowed from the index; "" where unknown. */
typedef struct ckpt_info {
  size_t struct_size;
  const char *format; /* "safetensors", "hf", ... */
  const char *path;
  const char *architecture; /* "llama": of the table that named the tensors, else what the file says (GGUF), or "" */
  const char *names;        /* "stored" or "hf:<architecture>/<revision>" */
  const char *writer;       /* program that wrote it, where the format says */
  int64_t step;             /* training step, -1 if unknown */
  uint32_t n_files;
  uint64_t n_parameters; /* elements of role parameter */
  uint64_t n_bytes;      /* row-major bytes of all tensors */
  uint32_t min_ranks;    /* of the job that wrote it there were at least so many ranks; 0: the format does not say */
} ckpt_info;

/* Fills out (its struct_size must be set). */
CKPT_API void ckpt_index_info(const ckpt_index *index, ckpt_info *out);

/* Where one stored piece of a tensor is, for callers with their own I/O. A literal is stored nowhere: zeros, or one
 * value that repeats (a quantized torch tensor's scale). It has no file or range and is not raw: ckpt_read has it. */
typedef struct ckpt_extent_view {
  size_t struct_size;
  const char *file;                                    /* path that can be opened; NULL for memory and literals */
  uint64_t offset, n_bytes;                            /* stored range; 0 for literals */
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK]; /* box of the tensor it holds; flat: start[0], count[0] */
  bool flat;                                           /* a range of row-major elements instead of a box */
  bool raw; /* bytes are the elements, contiguous; false: a decoder or strides stand between, it is a literal, or the
               tensor is computed from it: then the box is one of the stored tensor */
} ckpt_extent_view;

/* Fills out with the i-th extent of tensor; false past the last one. */
CKPT_API bool ckpt_tensor_extents(const ckpt_index *index, const ckpt_tensor *tensor, size_t i, ckpt_extent_view *out);

/* A box of a tensor, in elements; rank comes from the tensor. */
typedef struct ckpt_box {
  uint64_t start[CKPT_MAX_RANK], count[CKPT_MAX_RANK];
} ckpt_box;

/* Reads a tensor, or a box of it, row-major into dst, gathered from its shards and cast to `as`
 * (CKPT_DTYPE_NONE: as stored). n_bytes must be exactly the size of the result.
 * Fails with EINVAL (size, box), EIO, EFORMAT, EUNSUPPORTED (cast), EVALUE (a cast that overflows or loses a NaN).
 * Blocks on reading. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_read(const ckpt_index *index, const ckpt_tensor *tensor, const ckpt_box *box,
                                               ckpt_dtype as, void *dst, size_t n_bytes, ckpt_error *err);

/* ---- content digest ------------------------------------------------------------------------------------------ */

/* ckpt1, as docs/digest.md specifies it. */
typedef struct ckpt_digest {
  uint8_t bytes[32];
} ckpt_digest;

/* Writes "ckpt1:" and 64 hex digits; out holds at least 71 bytes. Returns out. */
CKPT_API const char *ckpt_digest_text(const ckpt_digest *digest, char *out);

/* Called between tiles from one of the run's threads, never from two at once. n_total is what the run will read. */
typedef void ckpt_progress(void *arg, uint64_t n_read, uint64_t n_total);

/* The ranks of one job that run one plan together. Each builds the same plan (where its data lies may differ, nothing
 * else) and calls ckpt_plan_run with its own rank: it writes the files that are its own, rank 0 commits them all, and
 * every rank returns the same status. The bytes do not depend on the number of ranks. ckpt_convert and ckpt_hash, given
 * the same on every rank, do so too. */
typedef struct ckpt_group {
  void *ctx;
  uint32_t rank, size;
  /* Gathers n_bytes of every rank, in rank order, into dst (size * n_bytes). Blocks until all ranks have called; fails
   * where the caller's transport does. */
  ckpt_status (*all_gather)(void *ctx, const void *src, void *dst, size_t n_bytes, ckpt_error *err);
} ckpt_group;

/* The kernels that a run computes with: "cpu" (chosen for this processor) or "reference" (plain C, the definition).
 * All give the same bytes. */
typedef struct ckpt_backend ckpt_backend;
CKPT_API const ckpt_backend *ckpt_backend_find(const char *name); /* NULL where there is none of this name */

/* How to run; all fields optional. */
typedef struct ckpt_run_options {
  size_t struct_size;
  uint64_t memory;    /* bytes for tiles, windows and footers (128 MiB) */
  uint32_t n_threads; /* 0: one per processor */
  ckpt_progress *progress;
  void *progress_arg;
  const volatile int *cancel;      /* non-zero: stop, remove temporary files, fail with ECANCELED */
  const char *trace;               /* path of a JSON-lines trace, or NULL; rank k > 0 of a group adds ".k" */
  const ckpt_group *group;         /* NULL: this process alone */
  const ckpt_backend *backend;     /* NULL: "cpu" */
  const ckpt_allocator *allocator; /* of tiles; NULL: malloc */
} ckpt_run_options;

/* What to digest. */
typedef struct ckpt_hash_options {
  size_t struct_size;
  ckpt_dtype cast;     /* digest of the values as this dtype; NONE: as stored */
  const char *include; /* "model" (default), "optimizer" or "all" */
  const ckpt_run_options *run;
} ckpt_hash_options;

/* The content digest of an index. Reads every byte of its tensors once, and blocks on that. Fails with EINVAL (include,
 * options), ENOTFOUND, EUNSUPPORTED and EVALUE (cast), EFORMAT, EIO (of a file
 * that changed since it was opened too), ELIMIT, ENOMEM, ECANCELED. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_hash(const ckpt_index *index, const ckpt_hash_options *options,
                                               ckpt_digest *out, ckpt_error *err);

/* ---- plans ---------------------------------------------------------------------------------------------------- */

typedef struct ckpt_plan ckpt_plan;
typedef struct ckpt_expr ckpt_expr; /* owned by its plan */

/* An empty plan; it borrows every index its expressions read. ENOMEM. Neither it nor releasing it blocks. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_new(ckpt_plan **out, ckpt_error *err);
CKPT_API void ckpt_plan_free(ckpt_plan *plan); /* NULL is fine; removes what an output that did not run holds open */

/* Adds an output that `ckpt_plan_run` writes and commits; *sink numbers it (0, 1, ...). format: "safetensors",
 * "hf", ...; NULL takes it from the suffix. An existing path fails with EEXIST unless force. EINVAL: it is at
 * another output's place, or where the plan reads (what reads there later fails so; links are followed for both), or
 * format or suffix name none that can be written. It looks at the file system, and blocks on that: ENOTFOUND (the
 * folder to write to), EIO, ENOMEM. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_output(ckpt_plan *plan, const char *path, const char *format, bool force,
                                                      uint32_t *sink, ckpt_error *err);

/* Adds the row (sink, name <- expr). The name must be new in its sink: ckpt_plan_check fails with EEXIST where it is
 * not. EINVAL: no such sink, a reduction, a plan that was checked; EFORMAT: a name that is no text; ELIMIT: one that is
 * too long, more than 65,536 operations (what several others take as argument counts once for each), or 256 inside each
 * other; ENOMEM. Blocks on nothing. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_add(ckpt_plan *plan, uint32_t sink, const char *name, ckpt_expr *expr,
                                                   ckpt_error *err);

/* Checks every row (shapes, dtypes, memory) without reading tensor data; peak and rows may be NULL.
 * peak: bytes that the run will hold at most, under `options->memory`. ELIMIT names the row that cannot fit; EINVAL,
 * EEXIST (a name twice), EUNSUPPORTED and EVALUE (what the format cannot hold), ENOMEM. After a failure of laying out
 * an output the plan is spoilt: make another. Blocks on small reads of the inputs at most. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_check(ckpt_plan *plan, const ckpt_run_options *options, uint64_t *peak,
                                                     size_t *n_rows, ckpt_error *err);

/* Runs the plan, once where it has outputs (EINVAL the second time), and commits them: all or nothing for each. Blocks
 * on reading the inputs, writing and syncing the outputs and, in a group, on the other ranks. Fails like
 * ckpt_plan_check, if it was not checked, and with ENOTFOUND, EFORMAT, EIO (no space too), EEXIST (an output that came
 * meanwhile), EVALUE (a cast that overflows or loses a NaN), ECANCELED. EIO: an input that changed too. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_plan_run(ckpt_plan *plan, const ckpt_run_options *options, ckpt_error *err);

/* Expression builders. Each returns a node owned by the plan, or fails: EINVAL (shape, axis, what is no dtype),
 * EUNSUPPORTED (a cast, a block type that there is no way to or from), ENOMEM. None blocks, except that read asks where
 * a new index's files are: EINVAL where an output of the plan is at their place.
 * read: the tensor as stored. memory: caller's row-major bytes, borrowed until the plan is freed; NULL for none only.
 * cast: round to nearest even; of a block type its f32, which is exact, is cast. It and quantize are the only nodes
 * that round.
 * quantize: f32 to a block type of ggml, row by row, as ggml's reference does; importance, or NULL, is f32 of the shape
 * [n_matrices, last axis], one row of weights for as many equal parts of its last three axes; the run fails with EVALUE
 * where a value or a scale is not finite. slice: [start, start + count) of one axis. permute: axis i of the result is
 * axis order[i] of x. reshape: same elements. concat: along an existing axis. */
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

/* One `PATTERN=DTYPE` of a conversion; patterns are globs on tensor names, `re:` in front makes a regular expression.
 */
typedef struct ckpt_cast_rule {
  const char *pattern;
  ckpt_dtype dtype;
} ckpt_cast_rule;

/* An option that one format alone has, by its name: "zstd_level" of dcp (1 to 22), "stage" of zero (1 to 3), and the
 * flags (1: given) "external_data" and "link" of onnx. 0 is as good as none. */
typedef struct ckpt_format_value {
  const char *name;
  uint64_t value;
} ckpt_format_value;

/* What `ckpt convert` does, without a process. */
typedef struct ckpt_convert_options {
  size_t struct_size;
  const char *input;           /* path */
  const char *output;          /* path */
  const char *to;              /* output format, or NULL: from the suffix, "hf" for a folder */
  const ckpt_cast_rule *casts; /* first matching rule wins; pattern NULL matches every floating tensor */
  size_t n_casts;
  const char *const *match;   /* keep only these patterns (NULL-terminated), or NULL */
  const char *const *exclude; /* drop these patterns (NULL-terminated), or NULL */
  const char *const *rename;  /* "s/re/replacement/" rules in order (NULL-terminated), or NULL */
  const char *include;        /* "model", "optimizer", "no-optimizer" (the rest), "all"; NULL: the format's default */
  uint64_t shard_size;        /* bytes per file of a folder; 0: 5 GB for hf */
  bool force, allow_overflow, stored_names;
  const ckpt_run_options *run;
  ckpt_digest *digest;             /* receives the output's content digest, or NULL */
  const char *weights;             /* "master" or "model", as ckpt_open_options; NULL: master where there is one */
  uint32_t world;                  /* ranks that a distributed format is cut among, at most 4096; 0: 1 */
  const char *const *set;          /* "KEY=VALUE" of GGUF's metadata, in order (NULL-terminated), or NULL */
  const char *const *remove;       /* keys of GGUF's metadata to drop (NULL-terminated), or NULL */
  const char *graph;               /* path of an ONNX model whose graph gets the input's tensors, by name; NULL: none */
  const ckpt_format_value *values; /* options of the output's format, each name once */
  size_t n_values;
  const char *pre; /* of GGUF from another dialect: llama.cpp's name of the pre-tokenizer; NULL: as it is recognised */
} ckpt_convert_options;

/* Converts and commits. Fails like ckpt_open and ckpt_plan_run, and with EINVAL for options that the output's format
 * has no use for; nothing is left behind on failure. Blocks on reading the input, writing and syncing the output and,
 * in a group, on the other ranks. */
CKPT_API CKPT_USE_RESULT ckpt_status ckpt_convert(const ckpt_convert_options *options, ckpt_error *err);

#ifdef __cplusplus
}
#endif
#endif
