/* tape.h - a model as an array of coarse operations on values: what forward, backward, memory and sharding go by.
 *
 * A value has a dtype, a shape in terms of batch and length, and a residency; it has no address. An entry is
 * {operation, values in, parameters, values out, attributes}. Entries run in their order. Families
 * (llama.c, gpt2.c) record them; the executor gives kernels their pointers at each call, so that recomputation,
 * gathered parameters and a second device are passes over this array. Each operation is a row of tape_ops.def with its
 * slots; a row that lacks what the tape needs is refused, by name, when the entry is recorded. */
#ifndef CKPT_TRAINER_MODEL_TAPE_H
#define CKPT_TRAINER_MODEL_TAPE_H

#include "kernels/ref/tape/tape_kernels.h"
#include "libckpt/base/arena.h"

/* Axes of a value; what an entry may have of each. */
enum { CKPT_TAPE_MAX_RANK = 3, CKPT_TAPE_MAX_IN = 5, CKPT_TAPE_MAX_PARAMETERS = 4, CKPT_TAPE_MAX_OUT = 3 };
#define CKPT_NO_VALUE UINT32_MAX
#define CKPT_NO_PARAMETER UINT32_MAX

typedef enum ckpt_residency {
  CKPT_RESIDES_INPUT,      /* the caller's batch: ids, targets, positions, documents, mask */
  CKPT_RESIDES_PARAMETER,  /* in the flat buffer of parameters */
  CKPT_RESIDES_ACTIVATION, /* in the arena, from the entry that makes it to the last that needs it */
  CKPT_RESIDES_STATE       /* outlives a call: tables of rope; later a cache */
} ckpt_residency;

/* What an axis counts. */
typedef enum ckpt_axis_kind {
  CKPT_AXIS_CONSTANT,
  CKPT_AXIS_TOKENS /* batch * length, row-major: row b, position t is token b * length + t */
} ckpt_axis_kind;

typedef struct ckpt_tape_shape {
  uint8_t rank;
  uint8_t kinds[CKPT_TAPE_MAX_RANK];  /* ckpt_axis_kind */
  uint64_t sizes[CKPT_TAPE_MAX_RANK]; /* of CONSTANT axes */
  uint32_t times;                     /* so many times the batch's tokens: of cp, gathered; 0: once */
} ckpt_tape_shape;

typedef enum ckpt_value_dtype { CKPT_VALUE_REAL, CKPT_VALUE_I32, CKPT_VALUE_U8 } ckpt_value_dtype;

typedef struct ckpt_tape_value {
  const char *name; /* "layer.3.gate": for plans and messages */
  ckpt_tape_shape shape;
  uint8_t dtype;      /* ckpt_value_dtype; REAL is the executor's: f32, or f64 in tests */
  uint8_t residency;  /* ckpt_residency */
  uint8_t input;      /* INPUT: ckpt_tape_input */
  uint32_t parameter; /* PARAMETER: number in the model's table */
  uint32_t maker;     /* entry whose output it is, or CKPT_NO_VALUE */
} ckpt_tape_value;

/* The arrays of a batch. All but ids may be absent. */
typedef enum ckpt_tape_input {
  CKPT_INPUT_IDS,       /* i32 */
  CKPT_INPUT_TARGETS,   /* i32, negative: none */
  CKPT_INPUT_POSITIONS, /* i32; absent: 0, 1, ... in each row */
  CKPT_INPUT_DOCUMENTS, /* i32; attention stays within tokens of one number; absent: one document a row */
  CKPT_INPUT_MASK,      /* u8, 0: padding, to which nothing attends */
  CKPT_N_INPUTS
} ckpt_tape_input;

/* How rotary frequencies are made; see llama.c. */
typedef enum ckpt_rope_kind { CKPT_ROPE_DEFAULT, CKPT_ROPE_LINEAR, CKPT_ROPE_LLAMA3, CKPT_ROPE_LONG } ckpt_rope_kind;

typedef struct ckpt_rope {
  ckpt_rope_kind kind;
  double theta, factor, low_frequency_factor, high_frequency_factor;
  uint64_t original_positions;
  const float *factors; /* LONG: of each frequency, in the model's arena */
} ckpt_rope;

/* What an operation needs to know beside its values; each row of tape_ops.def says which fields it reads. */
typedef struct ckpt_tape_attributes {
  double epsilon;    /* norms */
  bool is_in_by_out; /* linear: the weight is stored (in, out), as GPT-2's Conv1D has it */
  bool is_exact;     /* gelu: by erf, not by tanh */
  bool is_bf16;      /* linear, lora, linear_loss: products in bf16; recording gives it */
  bool is_frozen;    /* linear, lora: nothing wants the gradient of the weight, so x is not kept for it */
  uint32_t n_heads, n_kv_heads, head_width;
  uint64_t window;     /* attention: keys at most window - 1 positions back; 0: all */
  double scale;        /* attention: of the scores; lora: of its part */
  uint32_t columns[3]; /* attention: first column of q, k, v in their values */
  bool has_padding;    /* embedding: the row `padding` gets no gradient */
  uint32_t padding;
  double dropout; /* dropout, attention: the rate while training */
  uint32_t site;  /* the first of its counters' sites: recording gives it */
  ckpt_rope rope;
  /* of the sharding pass: */
  bool skips_bias; /* linear, lora: another rank of a sum adds it */
  uint32_t axis;   /* collectives: of the mesh, its ranks, and of a parameter the rows of the whole */
  uint32_t axis_size;
  uint64_t axis_rows;
} ckpt_tape_attributes;

typedef struct ckpt_tape_entry {
  uint8_t op; /* ckpt_tape_op_id */
  uint8_t n_in, n_parameters, n_out;
  uint32_t in[CKPT_TAPE_MAX_IN];                 /* values; CKPT_NO_VALUE for an optional one that is absent */
  uint32_t parameters[CKPT_TAPE_MAX_PARAMETERS]; /* values of residency PARAMETER; CKPT_NO_VALUE: none */
  uint32_t out[CKPT_TAPE_MAX_OUT];
  int32_t layer; /* -1: of no layer */
  ckpt_tape_attributes attributes;
} ckpt_tape_entry;

typedef enum ckpt_tape_op_id {
#define CKPT_TAPE_OP(id) CKPT_OP_##id,
#include "trainer/model/tape_ops.def"
#undef CKPT_TAPE_OP
  CKPT_N_TAPE_OPS
} ckpt_tape_op_id;

typedef struct ckpt_tape {
  ckpt_arena *arena; /* the model's */
  ckpt_tape_value *values;
  uint32_t n_values, value_capacity;
  ckpt_tape_entry *entries;
  uint32_t n_entries, entry_capacity;
  uint32_t inputs[CKPT_N_INPUTS]; /* their values */
  bool needs_backward;            /* rows without backward are refused */
  bool is_bf16;                   /* what is recorded multiplies in bf16 */
  uint32_t n_sites;               /* that dropouts have taken */
  int32_t layer;                  /* of what is recorded next */
} ckpt_tape;

/* An empty tape in the model's arena, with a value for each input. ENOMEM. */
ckpt_status ckpt_tape_init(ckpt_tape *tape, ckpt_arena *arena, bool needs_backward, ckpt_error *err);

/* The value of a parameter of this shape. ENOMEM. */
ckpt_status ckpt_tape_parameter(ckpt_tape *tape, const char *name, uint32_t number, uint32_t rank,
                                const uint64_t *shape, uint32_t *value, ckpt_error *err);

/* Records an entry: in, parameters and attributes are given; its row infers the outputs, which get values. EUNSUPPORTED
 * names a row and the slot that it lacks; EINVAL a shape that does not fit, with both; ENOMEM. */
ckpt_status ckpt_tape_record(ckpt_tape *tape, ckpt_tape_entry *entry, ckpt_error *err);

/* Adds a value of an entry's output; for the `shapes` slot. */
ckpt_status ckpt_tape_output(ckpt_tape *tape, ckpt_tape_entry *entry, const char *name, uint64_t n_columns,
                             ckpt_error *err);

/* Elements of a value in a batch of n_tokens. */
uint64_t ckpt_tape_elements(const ckpt_tape_value *value, uint64_t n_tokens);

/* Prints the tape, a line an entry. */
void ckpt_tape_print(const ckpt_tape *tape, void (*print)(void *arg, const char *line), void *arg);

#endif
