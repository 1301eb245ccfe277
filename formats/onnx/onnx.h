/* onnx.h - the parts of the ONNX format: onnx.c (the row), read.c (the walk over a model), tensor.c (one
 * TensorProto to a tensor), message.c (what is built and taken apart by protobuf-c), layout.c (writing),
 * link.c (data that stay where they stand), verify.c (checksums, sparse tensors). Not for other formats.
 *
 * A model that was read is a skeleton: the file's bytes as ranges, in order, cut open only where a tensor stands. So
 * a graph costs nothing, whatever it holds, and is written again byte for byte; lengths of the messages around tensors
 * are the only things that are computed anew. */
#ifndef CKPT_FORMATS_ONNX_ONNX_H
#define CKPT_FORMATS_ONNX_ONNX_H

#include "formats/onnx/onnx.pb-c.h"
#include "libckpt/codec/protobuf.h"
#include "libckpt/format/format.h"

/* Bounds, and how data lie. */
enum {
  CKPT_ONNX_MAX_DEPTH = 100,        /* messages in each other, as protobuf's own readers */
  CKPT_ONNX_MAX_OUTLINE = 16 << 20, /* bytes of a tensor's fields without its data, of a model's without its graph */
  CKPT_ONNX_MAX_FIELDS = 1 << 14,   /* among these, and in their entries, and numbers that are packed in them */
  CKPT_ONNX_MAX_NAME = 4096,        /* bytes of a tensor's name */
  CKPT_ONNX_MAX_RUNS = 1 << 12,     /* pieces that a tensor's typed data is cut into */
  CKPT_ONNX_INLINE_BELOW = 1024,    /* bytes: smaller tensors stay in the model, where shape inference sees them */
  CKPT_ONNX_ALIGNMENT = 256,        /* of external tensors */
  CKPT_ONNX_PAGE = 4096,            /* of external tensors of CKPT_ONNX_PAGE_FROM bytes and more */
  CKPT_ONNX_PAGE_FROM = 1 << 20
};
#define CKPT_ONNX_MAX_MODEL UINT64_C(2147483647) /* bytes of one message, of every protobuf library */

/* What is known of a TensorProto.data_type: the dtype it is read as (NONE: not read; of 2 and 4 bits their bytes), how
 * many elements a byte of U8 packs (else 0), which typed field holds it, and the first IR version that has it. */
typedef struct ckpt_onnx_type_row {
  const char *name;
  ckpt_dtype dtype;
  uint32_t n_packed, typed_field, ir_version;
} ckpt_onnx_type_row;

/* The row of a type; NULL for an unknown one. */
const ckpt_onnx_type_row *ckpt_onnx_type_get(int64_t type);

/* The type that a dtype is written as; 0: none. */
int32_t ckpt_onnx_type_of(ckpt_dtype dtype);

/* A tensor of a model: number i is number i of the index. */
typedef struct ckpt_onnx_slot {
  uint32_t field;         /* of the message around it */
  bool is_outer;          /* an initializer of the model's own graph, so that a node can come before it */
  bool is_cast;           /* the model has such a node of ours: it has the name, the initializer one with a suffix */
  bool is_initializer;    /* of a graph, so that its data may stand outside */
  bool is_inline;         /* its message holds its data as they are written */
  bool is_external;       /* they stand outside */
  uint64_t at, n;         /* its message in the file */
  uint64_t data_at;       /* where they do */
  const uint8_t *outline; /* its fields but for the data: a TensorProto */
  uint32_t n_outline;     /* bytes */
  const char *checksum;   /* of the file outside, as it is written; NULL: none */
} ckpt_onnx_slot;

typedef enum ckpt_onnx_part_kind {
  CKPT_ONNX_RUN,   /* bytes, in the file or in memory */
  CKPT_ONNX_BEGIN, /* of a message with tensors in it, field `number` of the one around it */
  CKPT_ONNX_END,   /* of the newest message */
  CKPT_ONNX_TENSOR /* slot `number` */
} ckpt_onnx_part_kind;

typedef struct ckpt_onnx_part {
  ckpt_onnx_part_kind kind;
  uint32_t number;
  uint64_t at, n;       /* RUN */
  const uint8_t *bytes; /* RUN; NULL: the file has them */
} ckpt_onnx_part;

typedef struct ckpt_onnx_names {
  const char **items; /* sorted once the model is read */
  uint32_t n, capacity;
} ckpt_onnx_names;

/* A skeleton. */
struct ckpt_graph {
  ckpt_source *source; /* borrowed from the index that was read */
  uint32_t file;
  ckpt_onnx_part *parts;
  uint32_t n_parts, part_capacity;
  ckpt_onnx_slot *slots;
  uint32_t n_slots, slot_capacity;
  uint32_t outer;         /* the part that begins the model's own graph, or the first of those that are merged */
  ckpt_onnx_names inputs; /* of that graph */
  ckpt_onnx_names taken;  /* names that it has with CKPT_ONNX_CAST behind them, and not by a cast of ours */
};

/* One message within another while a model is walked: names of tensors follow from where they stand. */
typedef struct ckpt_onnx_frame {
  const struct ckpt_onnx_frame *parent;
  uint8_t kind;
  bool is_begun;     /* the skeleton has its BEGIN */
  bool has_label;    /* the two below are known */
  uint32_t field;    /* in the parent */
  uint64_t number;   /* among the parent's messages of its kind */
  uint64_t begin;    /* of its tag */
  uint64_t at, end;  /* of its fields */
  uint64_t label_at; /* of its own name in the file: an attribute's name, the first output of a node */
  uint32_t n_label;  /* 0: it has none */
  uint64_t domain_at, n_domain, overload_at, n_overload; /* of a function, once its label is known; 0 bytes: none */
} ckpt_onnx_frame;

/* The small fields of a message, copied to be unpacked. Zero-initialise it; free(bytes). */
typedef struct ckpt_onnx_outline {
  uint8_t *bytes;
  uint32_t n, room;
  uint64_t n_fields; /* with those of the messages among them, and the numbers that are packed in them */
} ckpt_onnx_outline;

/* A model that is being read. */
typedef struct ckpt_onnx_reader {
  ckpt_index *index;
  struct ckpt_graph *graph;
  ckpt_wire wire;
  uint64_t run_at; /* what is not in the skeleton yet */
  uint64_t n_nodes, n_unread;
  uint64_t n_packed;               /* tensors of 2 and 4 bits */
  uint64_t n_name_bytes;           /* of names that are made of those around */
  ckpt_onnx_outline model, tensor; /* of the model; of the tensor that is read */
  ckpt_onnx_names inputs, taken;   /* as those of the graph, while it is read */
  ckpt_onnx_names casts;           /* what Cast nodes of ours make */
  ckpt_extent *runs;               /* of its typed data; offset, n_stored and count are set */
  uint32_t n_runs, run_capacity;
  char name[CKPT_ONNX_MAX_NAME + 1]; /* its name */
  ckpt_error defect;                 /* of the newest message that is broken */
} ckpt_onnx_reader;

/* Adds the tensor in a TensorProto to the index, called r->name, and a slot for it; or notes that it is not read
 * (texts, too many axes): *is_read. EFORMAT, EUNSUPPORTED, ELIMIT, EIO, ENOMEM. */
ckpt_status ckpt_onnx_read_tensor(ckpt_onnx_reader *r, const ckpt_onnx_frame *frame, bool is_initializer, bool *is_read,
                                  ckpt_error *err);

/* Fills and finishes an index, as ckpt_format's `read`. */
ckpt_status ckpt_onnx_read(ckpt_index *index, const char *name, const ckpt_open_options *options, ckpt_error *err);

/* Appends a field to an outline, of: the message it is one of. ELIMIT for more than CKPT_ONNX_MAX_OUTLINE bytes, or
 * CKPT_ONNX_MAX_FIELDS; EFORMAT, EIO, ENOMEM. */
ckpt_status ckpt_onnx_outline_add(ckpt_onnx_outline *outline, ckpt_wire *wire, const ProtobufCMessageDescriptor *of,
                                  const ckpt_wire_field *field, ckpt_error *err);

/* A tensor's outline taken apart: free with onnx__tensor_proto__free_unpacked(out, NULL). EFORMAT, ENOMEM. */
ckpt_status ckpt_onnx_unpack_tensor(Onnx__TensorProto **out, const uint8_t *outline, uint32_t n, const char *path,
                                    ckpt_error *err);

/* Adds what a model's outline says to the index: metadata, and who wrote it. EFORMAT, ENOMEM. */
ckpt_status ckpt_onnx_read_model(ckpt_index *index, const ckpt_onnx_outline *outline, const char *path,
                                 ckpt_error *err);

/* Where data stand outside. */
typedef struct ckpt_onnx_place {
  const char *location; /* NULL: nowhere */
  uint64_t offset;
} ckpt_onnx_place;

/* Finding where data that are not copied stand. Zero-initialise it but for these three. */
typedef struct ckpt_onnx_links {
  ckpt_arena *arena;
  const char *folder;             /* of the model: a real path */
  const struct ckpt_graph *graph; /* data in its own file stay in the model; NULL: none */
  ckpt_source *source;            /* of the file below, which was looked at last */
  uint32_t file;
  const char *location; /* of that; "" for one that cannot be linked */
  uint64_t n_links;     /* names that it has */
} ckpt_onnx_links;

/* The place of a tensor that is nothing but `read`, and called `name`; nowhere for one in the model itself.
 * EUNSUPPORTED for what ONNX Runtime or onnx refuse to follow, and for bytes that no file holds as they are; ENOMEM. */
ckpt_status ckpt_onnx_link(ckpt_onnx_links *links, const ckpt_layout_read *read, const char *name, ckpt_onnx_place *out,
                           ckpt_error *err);

/* As ckpt_format's `verify`: the size, checksums of files outside, indices of sparse tensors. */
ckpt_status ckpt_onnx_verify(struct ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err);

/* What a tensor is written as. */
typedef struct ckpt_onnx_tensor {
  const ckpt_onnx_slot *slot; /* of the model that it replaces a tensor of; NULL: a new one */
  const ckpt_tensor *tensor;  /* as described */
  bool is_cast;               /* its type is another now: it gets a suffix to its name, and a Cast node */
  const char *location;       /* of its data outside; NULL: inside */
  uint64_t offset;            /* there */
} ckpt_onnx_tensor;

/* Prints a TensorProto's fields before its data (with their tag and length, where there are any) and after. Fails the
 * stream with EFORMAT, ENOMEM. */
void ckpt_onnx_print_before(const ckpt_onnx_tensor *tensor, ckpt_stream *out);
void ckpt_onnx_print_after(const ckpt_onnx_tensor *tensor, ckpt_stream *out); /* as above */

/* Prints the node that makes of a cast tensor what the graph works with, as field 1 of a graph; was: that dtype. */
void ckpt_onnx_print_cast(const ckpt_onnx_tensor *tensor, ckpt_dtype was, ckpt_stream *out);

/* A skeleton of nothing but initializers, for tensors that no graph is around; metadata becomes metadata_props. In the
 * arena. */
ckpt_status ckpt_onnx_graph_new(const struct ckpt_graph **out, const ckpt_index *described, ckpt_arena *arena,
                                ckpt_error *err);

/* As ckpt_format's slots. */
const char *ckpt_onnx_keeps_dtype(const ckpt_index *index, const ckpt_tensor *tensor);        /* as above */
ckpt_status ckpt_onnx_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err); /* as above */
extern const ckpt_format_option ckpt_onnx_options[];
ckpt_status ckpt_onnx_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err); /* as above */

/* A message to a stream. */
void ckpt_onnx_pack(const ProtobufCMessage *message, ckpt_stream *out);

/* A tag, and a number such as a length, to a stream. */
void ckpt_onnx_put_tag(ckpt_stream *out, uint32_t number, ckpt_wire_type type);
void ckpt_onnx_put_varint(ckpt_stream *out, uint64_t value); /* as above */

/* Whether metadata under this key says what the model is: IR version, operators. */
bool ckpt_onnx_is_own_key(const char *key);

#define CKPT_ONNX_CAST ":ckpt-cast" /* suffix of an initializer that a Cast node stands for */
#define CKPT_ONNX_KEY "onnx."       /* of metadata that says what the model is, and stands elsewhere in it */

#endif
