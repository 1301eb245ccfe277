/* index.h - the result of opening anything: immutable named tensors over bytes, objects, metadata, side files.
 *
 * A format's `read` builds an index: ckpt_index_new, ckpt_index_add for each tensor, ckpt_index_finish. Finishing sorts
 * by name, refuses duplicates, and checks every extent against its file. The extents of a tensor must cover it without
 * hole or overlap; of identical boxes, which are replicas, the first stays. Memory comes from one arena: at most 400
 * bytes per extent when finished, 1,200 while opening. */
#ifndef CKPT_INDEX_INDEX_H
#define CKPT_INDEX_INDEX_H

#include "libckpt/base/arena.h"
#include "libckpt/index/defects.h"
#include "libckpt/index/object.h"
#include "libckpt/index/tensor.h"
#include "libckpt/io/source.h"

/* A file copied as bytes: config, tokenizer, licence, training state. */
typedef struct ckpt_side_file {
  const char *name;    /* below the root */
  ckpt_source *source; /* of a description that takes it from elsewhere; NULL: the carried index's; borrowed */
  uint32_t file;       /* number in the source */
  uint64_t n_bytes;
  const char *text; /* NULL, or the n_bytes that replace the stored ones (a spliced config) */
  bool is_read;     /* a trainer's file whose tensors are in the index too */
} ckpt_side_file;

/* One logical tensor made of several stored ones: sparse COO (`w.indices`, `w.values`), quantized (`w`, `w.scale`), or
 * what a subclass of torch's tensors wraps (torchao's `w.qdata`, `w.scale`), which it alone knows how to put together.
 * The components are ordinary tensors of the index, which every format can move. Readers that need them together use
 * this. */
typedef enum ckpt_composite_kind {
  CKPT_COMPOSITE_SPARSE_COO,
  CKPT_COMPOSITE_QUANTIZED,
  CKPT_COMPOSITE_WRAPPED
} ckpt_composite_kind;
typedef struct ckpt_composite {
  const char *name; /* of the logical tensor */
  ckpt_composite_kind kind;
  ckpt_dtype dtype; /* of its values when put together */
  uint32_t rank;
  const uint64_t *shape;
  const char *const *components; /* tensor names, NULL-terminated */
} ckpt_composite;

/* A metadata value that is not plain text (number, bool, array, very long or odd text), as GGUF encodes it:
 * libckpt/codec/gguf/value.h. Short ones are in memory, long ones stay in their file. */
typedef struct ckpt_typed_value {
  uint32_t type;        /* ckpt_gguf_type */
  uint32_t file;        /* of source */
  const uint8_t *bytes; /* NULL: in the file */
  ckpt_source *source;  /* borrowed from the index that was read; NULL where bytes are in memory */
  uint64_t offset, n_bytes;
} ckpt_typed_value;

/* One entry of metadata. */
typedef struct ckpt_meta {
  const char *key, *value;       /* text; for a typed value, how it is shown */
  const ckpt_typed_value *typed; /* NULL: a text */
} ckpt_meta;

/* What a note is about, for whoever acts on it: nobody looks into its text. */
typedef enum ckpt_note_kind {
  CKPT_NOTE_REMARK,
  CKPT_NOTE_UNREAD,        /* what is not read, and why */
  CKPT_NOTE_STATE_LEFT,    /* training state that is not carried, or not read: a run cannot go on from a copy */
  CKPT_NOTE_STATES_UNREAD, /* the same of an optimizer's states: whoever asks for them is refused */
  CKPT_NOTE_WEIGHTS_LEFT,  /* other weights beside those that were read */
  CKPT_NOTE_LOADING,       /* what has to be allowed before it can be loaded */
  CKPT_NOTE_KEY,           /* what a key of the file says that it cannot mean */
  CKPT_NOTE_DOUBT          /* what was asked for or guessed, and may not be what is meant */
} ckpt_note_kind;

/* A remark that belongs to what was opened, not to an error: "also holds pytorch_model.bin". Printed by tools. */
typedef struct ckpt_note {
  ckpt_note_kind kind;
  const char *cause; /* of UNREAD the defect alone, where the text has more; of LOADING the list of what is to be
                        allowed; of KEY the key; or NULL */
  const char *text;
  const char *file;    /* path of the one that it is about; NULL: of the whole */
  const char *message; /* text without the name of that file */
  bool is_problem;     /* `verify` counts it: tolerated where reading is concerned, but not as the format demands */
  const char *left;    /* what no copy has, where the note is about that: "2 files of training state (latest, x.pt)" */
  const char *advice;  /* what to do about it, as ckpt_advise has it; NULL: no advice */
} ckpt_note;

/* An archive within a file that no tensor's extents describe: an item of bytes in a DCP folder, or the archive around a
 * chunk that is read by its strides. `verify` reads them. */
typedef struct ckpt_archive {
  const char *name; /* of the item or tensor */
  uint64_t offset, n_bytes;
  uint32_t file;
  bool is_zstd;                     /* compressed as a whole */
  const ckpt_object *root;          /* content of an item that may be copied byte for byte; or NULL */
  ckpt_source *source;              /* of a description that takes it from elsewhere; NULL: the index's own; borrowed */
  uint64_t n_same;                  /* bytes of its record that are taken to be another's by their CRC-32; 0: none */
  uint64_t own_offset, same_offset; /* of them, here and there */
  uint32_t same_file;
} ckpt_archive;

struct ckpt_graph; /* the format's own */

/* A tensor that the checkpoint holds but the index cannot read: quantized by torch, of an unknown dtype, or broken. It
 * is not in `tensors`. Verbs that compare, prove or write report that they leave it out. */
typedef struct ckpt_unread {
  const char *name, *why; /* "quantized by channels" */
  ckpt_role role;
  bool is_kept;    /* `whole` has all of it: written with that, it is there */
  bool is_unknown; /* made by what its framework has not: damage, or another's code */
} ckpt_unread;

/* How the job that wrote the checkpoint was cut into ranks. */
typedef struct ckpt_parallel {
  uint32_t world, data, tensor, pipeline, expert; /* degrees; world 0: unknown; data 0: unknown */
  uint32_t stage; /* what data-parallel ranks share: 1 optimizer, 2 and gradients, 3 and parameters; 0: nothing said */
} ckpt_parallel;

struct ckpt_index {
  ckpt_arena arena; /* its limit: max_bytes less the arrays outside it */
  uint64_t max_bytes;
  ckpt_source *source;                       /* owned; NULL for an index that only describes */
  const char *path;                          /* as the user gave it */
  const char *format;                        /* name of the format row */
  const char *version;                       /* of the format, if the files state one; or NULL */
  const char *architecture, *names, *writer; /* as ckpt_info, architecture of a row alone */
  const char *stated_architecture;           /* what the file calls its own, where the format says; NULL: nothing */
  uint32_t ties;                  /* bit i: the config ties pair i of the architecture; see ckpt_arch_tied_pair */
  uint32_t ties_without[2];       /* bit i: of pair i the kept name [0] or the tied one [1] is stored by no file */
  const char *const *stated_ties; /* names that the config of no known family ties: kept, tied, kept, tied, ..., NULL;
                                     or NULL */
  uint32_t naming_revision;       /* UINT32_MAX; or rules of names from before a family was known: ties.h */
  const char *weights;   /* "master" or "model": the copy that the parameters are; NULL where there is no choice */
  uint32_t weights_note; /* number of the note that says so, plus 1; 0: none does */
  ckpt_tensor *stored;   /* parameters that a master stands for, as they are stored, by name */
  uint32_t n_stored;
  bool is_stored;            /* names are the stored ones, as the caller asked */
  bool is_renamed;           /* set by the reader: names are not the stored ones, since containers were removed */
  bool is_unwrapped;         /* some names lost wrappers or gained a prefix */
  const char *first_wrapped; /* a stored name that had wrappers, and how many tensors had some */
  uint32_t n_wrapped;
  int64_t step;
  uint32_t min_ranks; /* as ckpt_info */
  ckpt_parallel parallel;
  const char *part;     /* text: it holds one rank's part of tensors; names one with both shapes; or NULL */
  const char *tag;      /* name of this save in its folder, where that can have several; or NULL */
  ckpt_tensor *tensors; /* in the order they were added: source order */
  uint32_t n_tensors, capacity;
  uint32_t *by_name;        /* n_tensors numbers in byte order of names; NULL before finish */
  const char **alias_names; /* all aliases in byte order; alias_tensors has their tensors */
  uint32_t *alias_tensors;
  uint32_t n_aliases;
  const char **alias_list; /* the list that grew last: its names, and room with the NULL */
  size_t n_alias_list, alias_room;
  ckpt_composite *composites;
  uint32_t n_composites, composite_capacity;
  uint64_t n_extents;
  ckpt_meta *metadata;
  uint32_t n_metadata, metadata_capacity;
  bool has_metadata; /* the file has a place for some, which may be empty */
  ckpt_side_file *side_files;
  uint32_t n_side_files, side_capacity;
  ckpt_note *notes;
  uint32_t n_notes, note_capacity;
  ckpt_unread *unread;         /* in the order of reading */
  const char **unread_by_name; /* their names in byte order; NULL before finish */
  uint32_t n_unread, unread_capacity;
  ckpt_archive *archives; /* as above */
  uint32_t n_archives, archive_capacity;
  ckpt_object *objects;           /* a DICT, or NULL */
  const ckpt_object *whole;       /* of its values the object as the source had it, tensors as leaves, so that what
                                     holds such objects can write it back; NULL: there was none. `objects` has the
                                     parts that every format knows, as the same nodes (object.h) */
  const ckpt_object *top;         /* the DICT in it whose entries are a training checkpoint's parts, as its reader
                                     found; NULL: none is known */
  ckpt_defects defects;           /* while it is opened; afterwards n says whether it lacks what was broken */
  ckpt_index *as_read;            /* a description's: its tensors by number, with the names and roles that the format's
                                     reader will find (codec/expected_names.h); owned. NULL: those that they have */
  const struct ckpt_graph *graph; /* what computes with the tensors, for the format that keeps it; NULL: nothing */
  uint64_t n_nodes;               /* operations of the graph */
  const char *misfit;             /* of a file of a known family that keeps its names: why; NULL: it does not */
  const char *misfit_tensor;      /* and which tensor is wrong or missing, or NULL */
  ckpt_index *stored_form;        /* what the files hold, under the names that they have, where the tensors are those of
                                     another dialect: outputs in the files' own are made from it. It borrows source and
                                     metadata; owned. NULL: there is no other */
  const ckpt_index *objects_of;   /* whose tensors the leaves of objects are, by number; NULL: this index's own */
};

/* An empty index that owns source (even on failure). path and format are copied. */
ckpt_status ckpt_index_new(ckpt_index **out, ckpt_source *source, const char *path, const char *format,
                           const ckpt_open_options *options, ckpt_error *err);

/* The index that outputs in the dialect of its files are made from: its stored form, or itself. */
const ckpt_index *ckpt_index_as_stored(const ckpt_index *index);

/* Says why an allocation of the index failed: ELIMIT where max_bytes did not allow it, else ENOMEM. */
ckpt_status ckpt_index_no_memory(const ckpt_index *index, ckpt_error *err);

/* Describes one tensor. name and shape are copied; extents are copied too, with boxes taken as arena pointers.
 * Checks: name not empty and at most 4,096 bytes of UTF-8 without NUL, rank, dtype, whole blocks, sizes without
 * overflow. On success *number is its place in `tensors`; number may be NULL. */
ckpt_status ckpt_index_add(ckpt_index *index, const char *name, size_t n_name, ckpt_dtype dtype, uint32_t rank,
                           const uint64_t *shape, ckpt_role role, const ckpt_extent *extents, uint32_t n_extents,
                           uint32_t *number, ckpt_error *err);

/* A stored tensor that is not one of the index's own, for derived ones to be made of: in all as `like`, but for its
 * dtype and its n_extents, which are borrowed. */
ckpt_status ckpt_index_operand(ckpt_tensor **out, ckpt_index *index, const ckpt_tensor *like, ckpt_dtype dtype,
                               const ckpt_extent *extents, uint32_t n_extents, ckpt_error *err);

/* Makes a tensor a derived one; the operands are copied. Finishing the index checks those of its own that are not
 * among its tensors, as it checks tensors. plan/derive.h finds an expression's operands. */
ckpt_status ckpt_index_derive(ckpt_index *index, uint32_t number, const ckpt_derivation *derived, ckpt_error *err);

/* Gives a tensor that was copied from another details of its own. */
ckpt_status ckpt_index_own_details(ckpt_index *index, ckpt_tensor *tensor, ckpt_error *err);

/* Adds another name for a tensor already added. */
ckpt_status ckpt_index_alias(ckpt_index *index, uint32_t number, const char *name, ckpt_error *err);

/* The same for a name that implies a role. A role of the model or a run wins over "other", and its name becomes the
 * first. */
ckpt_status ckpt_index_alias_as(ckpt_index *index, uint32_t number, const char *name, ckpt_role role, ckpt_error *err);

/* Declares the named tensors (NULL-terminated) parts of one; everything is copied. Finishing fails with EFORMAT if one
 * is missing. */
ckpt_status ckpt_index_add_composite(ckpt_index *index, const ckpt_composite *composite, ckpt_error *err);

/* Records a tensor that cannot be read, and why; both texts are copied. */
ckpt_status ckpt_index_add_unread(ckpt_index *index, const char *name, ckpt_role role, const char *why,
                                  ckpt_error *err);

/* Whether a finished index has a tensor of this name among those that are not read. */
bool ckpt_index_is_unread(const ckpt_index *index, const char *name);

/* Marks tensors [first, end) as broken: name lookups still find them, and finish moves them to `unread`. */
void ckpt_index_break(ckpt_index *index, uint32_t first, uint32_t end);

/* Moves broken tensors to `unread`, with all their names, before names change. Renumbers the other tensors. */
ckpt_status ckpt_index_drop_broken(ckpt_index *index, ckpt_error *err);

/* Adds a broken tensor of which only name and file are known; ignores a name that no tensor can have. */
ckpt_status ckpt_index_add_broken(ckpt_index *index, const char *name, ckpt_role role, uint32_t file, ckpt_error *err);

/* Records an archive; its name is copied. */
ckpt_status ckpt_index_add_archive(ckpt_index *index, const ckpt_archive *archive, ckpt_error *err);

/* The entry of a key, writable in a described index; or NULL. ckpt_index_metadata gives its value. */
ckpt_meta *ckpt_index_meta(const ckpt_index *index, const char *key);

/* Metadata, side files and notes; text is copied. */
ckpt_status ckpt_index_set_metadata(ckpt_index *index, const char *key, const char *value, ckpt_error *err);
/* The same for a typed value, which is borrowed; value is how it is shown. */
ckpt_status ckpt_index_set_typed(ckpt_index *index, const char *key, const char *value, const ckpt_typed_value *typed,
                                 ckpt_error *err);
ckpt_status ckpt_index_add_side_file(ckpt_index *index, const char *name, uint32_t file, uint64_t n_bytes,
                                     ckpt_error *err); /* as above */
ckpt_status ckpt_index_note(ckpt_index *index, bool is_problem, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(4, 5); /* as above */
/* Says what the newest note is about; cause is copied, or NULL. */
ckpt_status ckpt_index_note_is(ckpt_index *index, ckpt_note_kind kind, const char *cause, ckpt_error *err);
/* The newest note is about what no copy has, which its text behind head says: whoever writes one names that as lost. */
void ckpt_index_note_left(ckpt_index *index, const char *head);
/* Whether it is about training state that is not carried, or not read. */
bool ckpt_note_is_state(const ckpt_note *note);
/* Whether something is lost, or was guessed, or may not be what is meant; else a note is a remark. */
bool ckpt_note_is_warning(const ckpt_note *note);
/* What to do about the newest note, as ckpt_advise has it. */
ckpt_status ckpt_index_note_advise(ckpt_status status, ckpt_index *index, const char *advice);
/* A note of a problem in a file of the source, whose name it begins with. */
ckpt_status ckpt_index_problem(ckpt_index *index, uint32_t file, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(4, 5);

/* Sorts, checks and freezes. Duplicate names are EFORMAT (unless in a description: EEXIST). If the
 * caller asks for defects, broken parts are left out. Then there are no objects, since they refer to tensors by number.
 */
ckpt_status ckpt_index_finish(ckpt_index *index, ckpt_error *err);

/* Gives a description everything of `from` except its tensors: metadata, composites, objects, side files and facts.
 * Texts that are not copied are borrowed. */
ckpt_status ckpt_index_carry(ckpt_index *into, const ckpt_index *from, ckpt_error *err);

/* Gives an index other objects (a DICT, or NULL), and says which of its values is their `whole`, or NULL. */
void ckpt_index_set_objects(ckpt_index *index, ckpt_object *objects, const ckpt_object *whole);

/* A DICT of the parts of the checkpoint: of `whole`, with what `top` holds in that one's place. The index's arena may
 * own it. NULL: there is no whole, or it is no dict. ENOMEM. */
ckpt_status ckpt_index_parts(const ckpt_object **parts, ckpt_index *index, ckpt_error *err);

/* Place of the tensor with this name (no alias) in byte order of names, what ckpt_index_at takes; -1: there is none. */
int64_t ckpt_index_place(const ckpt_index *index, const char *name);

/* The side file with this name, or NULL. */
const ckpt_side_file *ckpt_index_side_file(const ckpt_index *index, const char *name);

/* Path of the file where a tensor begins: the one to look at, or to download again. For NULL: the shard index, or the
 * only file with tensors, else the folder. Borrowed. */
const char *ckpt_index_file_of(const ckpt_index *index, const ckpt_tensor *tensor);

/* The path of a side file as messages name it: below what the user gave; its bare name in a description, which has no
 * source. Borrowed. */
const char *ckpt_index_side_path(const ckpt_index *index, const ckpt_side_file *side);

/* The source that a side file's bytes are in; NULL: text has them. */
static inline ckpt_source *ckpt_index_side_source(const ckpt_index *index, const ckpt_side_file *side) {
  return side->source != NULL ? side->source : index->source;
}

/* A side file's bytes as terminated arena text (at most max_bytes, ELIMIT beyond). */
ckpt_status ckpt_index_side_text(ckpt_index *index, const ckpt_side_file *side, uint64_t max_bytes, const char **text,
                                 ckpt_error *err);

#endif
