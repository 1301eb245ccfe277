/* format.h - a format is two functions: bytes to index, and index to segments.
 *
 * Both are pure functions of headers: they see no clock, no environment and no payload. formats/registry.c has the rows
 * (list: formats/formats.def) in the order in which formats are asked. Adding a format is one file and one row. */
#ifndef CKPT_FORMAT_FORMAT_H
#define CKPT_FORMAT_FORMAT_H

#include "libckpt/format/findings.h"
#include "libckpt/format/layout.h"

/* What a path looks like before anything is parsed. */
typedef struct ckpt_probe {
  const char *path;
  bool is_folder;
  const uint8_t *head;       /* first bytes of a file */
  size_t n_head;             /* at most 4,096 */
  uint64_t n_bytes;          /* of the file */
  const ckpt_entry *entries; /* of a folder, sorted */
  size_t n_entries;
} ckpt_probe;

/* What a format can hold: drives normalize's losses, refusals and the convert matrix. */
typedef struct ckpt_caps {
  bool can_write, is_folder;
  bool aliases;        /* several names of one tensor */
  bool objects;        /* anything but tensors and string metadata */
  bool unread;         /* tensors that no index reads, in an object; normalize says which are lost */
  bool training_state; /* default --include is all */
  bool side_files;
  bool typed_metadata; /* numbers and arrays, not texts alone */
  bool presets;        /* tensors have the names and the order that presets of quantization go by */
  bool dialect;        /* models are written in a dialect of its own, which its reader takes back (codec/dialect) */
  bool shards;         /* one file, or several in a folder where the output is one: what split makes of it */
  bool cut_by_size;    /* a folder's files hold as many tensors as --shard-size lets them */
  bool items;          /* a file is several archives, one after another, and none as a whole */
  bool graph;          /* what computes with the tensors */
  bool ranks;          /* cut among the ranks of a job: what reshard writes and consolidate reads */
  bool masters;        /* a trained parameter has one, whatever the model computes with (recipe/convert/training.h) */
  uint64_t dtypes;     /* bit i: ckpt_dtype i */
  uint32_t max_rank;
} ckpt_caps;

typedef enum ckpt_loss_kind {
  CKPT_LOSS_ANY,
  CKPT_LOSS_BY_INCLUDE, /* --include left it out, and another would have it */
  CKPT_LOSS_ALONE       /* of one tensor, said in a line of its own */
} ckpt_loss_kind;

/* What normalize dropped or changed; texts are in the described index's arena. */
typedef struct ckpt_losses {
  const char **texts; /* "exp_avg 30.4 GB", "3 objects", "alias lm_head.weight (kept as model.embed_tokens.weight)" */
  uint8_t *kinds;     /* of each: ckpt_loss_kind */
  uint32_t n, capacity;
  ckpt_arena *arena;
} ckpt_losses;

/* Adds a loss; of the second kind, one that --include left out; of the third, one of a single tensor. */
ckpt_status ckpt_losses_add(ckpt_losses *losses, ckpt_error *err, const char *format, ...) CKPT_PRINTF(3, 4);
ckpt_status ckpt_losses_add_by_include(ckpt_losses *losses, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(3, 4); /* as above */
ckpt_status ckpt_losses_add_alone(ckpt_losses *losses, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(3, 4); /* as above */

/* Tensors that a checkpoint holds once more, as a checkpoint of their own, and the words for them. Borrowed. */
typedef struct ckpt_copy {
  const ckpt_index *read, *other; /* tensors of one name are to have the same bits in both; `read` counts */
  const char *set;                /* "what 2 tensor parallel ranks all have" */
  const char *name, *first;       /* whose `other` is, and `read`: "tensor parallel rank 1", "rank 0" */
  const char *kept;               /* whose are read: "rank 0's" */
  bool is_last;                   /* of its set */
} ckpt_copy;

/* Takes one of them. */
typedef ckpt_status ckpt_copy_visit(void *arg, const ckpt_copy *copy, ckpt_error *err);

typedef struct ckpt_format {
  const char *name;
  const char *suffixes; /* space separated, with dots: ".safetensors"; the first is the usual one */
  ckpt_caps caps;
  const ckpt_format_option *options; /* that it alone has (values.h); NULL: none */
  /* Whether this is our format; cheap and certain. */
  bool (*probe)(const ckpt_probe *probe);
  /* Fills and finishes an index that has nothing but its source (root: the folder or the file's; name: file below it,
   * NULL for a folder). */
  ckpt_status (*read)(ckpt_index *index, const ckpt_probe *probe, const char *name, const ckpt_open_options *options,
                      ckpt_error *err);
  /* Edits a description into what the format can hold, before it is finished: drops tensors
   * (from `tensors`), renames, changes dtypes (the plan casts), drops aliases. NULL: only caps apply. */
  ckpt_status (*normalize)(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
  /* Why an index's graph needs a tensor of its in the dtype that it has: "it is ..."; NULL: it does not, nor where
   * there is no such function. */
  const char *(*keeps_dtype)(const ckpt_index *index, const ckpt_tensor *tensor);
  /* Why an output with these values keeps of a trained parameter its master alone: "stage 3 has masters". *instead is
   * the value with which it keeps both, as advice names it. NULL: it keeps both, as all do without such a function. */
  const char *(*only_masters)(const ckpt_format_values *values, const char **instead);
  /* Files and segments for a normalized, finished description. NULL where caps.can_write is false. */
  ckpt_status (*layout)(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err);
  /* Which files of a folder an earlier layout wrote, so that --force may replace them. NULL: only those that the new
   * output writes. */
  ckpt_owns_files *owns;
  /* Names, or endings with a dot, of files in such a folder that cannot be opened alone, space separated; or NULL. The
   * message for one of them tells the user to name the folder. */
  const char *parts;
  /* Of objects that were read from this format: whether what an entry of ckpt_index_parts holds besides tensors stands
   * among the other objects, too. n_left as of ckpt_object_holds_more. NULL: where it is one of them. */
  bool (*is_known)(const ckpt_object *objects, const ckpt_object *value, uint64_t *n_left);
  /* Adds what `verify` finds in this format alone, beside structure and values (recipe/verify/verify.h). NULL: nothing.
   * Fails with EIO, ECANCELED, ENOMEM. */
  ckpt_status (*verify)(ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run, ckpt_error *err);
  /* Calls visit for each copy that the files have of tensors that are read from elsewhere in them. NULL: there are
   * none. Fails as visit, and as reading. */
  ckpt_status (*show_copies)(const ckpt_index *index, ckpt_copy_visit *visit, void *arg, ckpt_error *err);
} ckpt_format;

extern const ckpt_format *const ckpt_formats[]; /* NULL-terminated; formats/registry.c */

/* The row with this name, or whose suffix ends path; NULL if none. */
const ckpt_format *ckpt_format_find(const char *name);
const ckpt_format *ckpt_format_of_suffix(const char *path); /* as above */
const ckpt_format *ckpt_format_of_part(const char *path);   /* of whose folders the file is a part; NULL if none */

/* The capabilities of what an index was read from; none at all where that is no format of ours. */
ckpt_caps ckpt_caps_of(const ckpt_index *index);

/* How many objects of an index hold more than tensors. */
uint64_t ckpt_objects_count(const ckpt_index *index);

/* caps, then the row's own normalize, then ckpt_index_finish. */
ckpt_status ckpt_normalize(const ckpt_format *format, ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

#endif
