/* object.h - everything in a checkpoint that is not a tensor, as data.
 *
 * A graph of nodes in an arena: what a pickle, a JSON value or a metadata block describes, never executed. Shared
 * identity is a shared pointer; a tensor is a leaf that names one of the index's tensors by number; a class or callable
 * that we do not model is a FOREIGN node with its qualified name and arguments. Cycles are possible in hostile input:
 * walkers bound their depth.
 *
 * The canonical training state, for every format alike, so that no pair of formats needs its own converter:
 * tensors of a parameter P are named `optimizer.state.P.<exp_avg|exp_avg_sq|momentum|step|master>` with the matching
 * role; objects stand under the keys below. */
#ifndef CKPT_OBJECT_H
#define CKPT_OBJECT_H

#include "arena.h"

#define CKPT_STATE_PREFIX "optimizer.state."
#define CKPT_STATE_PARAM_GROUPS "optimizer.param_groups" /* list of dicts: lr, betas, eps, weight_decay, params... */
#define CKPT_STATE_SCHEDULER "scheduler"                 /* dict */
#define CKPT_STATE_LOSS_SCALER "loss_scaler"             /* dict: scale, growth_tracker */
#define CKPT_STATE_RNG "rng"                             /* dict: rank number -> dict of generator states (bytes) */
#define CKPT_STATE_TRAINER "trainer"                     /* dict: step, epoch, best_metric, ... */

typedef enum ckpt_object_kind {
  CKPT_OBJECT_NONE, /* Python's None, JSON's null */
  CKPT_OBJECT_BOOL,
  CKPT_OBJECT_INT,    /* fits int64_t */
  CKPT_OBJECT_BIGINT, /* decimal text */
  CKPT_OBJECT_FLOAT,
  CKPT_OBJECT_TEXT,    /* UTF-8, n bytes */
  CKPT_OBJECT_BYTES,   /* n bytes */
  CKPT_OBJECT_LIST,    /* n items */
  CKPT_OBJECT_TUPLE,   /* n items */
  CKPT_OBJECT_SET,     /* n items, in stored order */
  CKPT_OBJECT_DICT,    /* n pairs in stored order: items[2 * i] is the key, items[2 * i + 1] the value */
  CKPT_OBJECT_TENSOR,  /* the index's tensor number `tensor` */
  CKPT_OBJECT_FOREIGN, /* name of the class or callable, n items: arguments, then state if any */
  CKPT_N_OBJECT_KINDS
} ckpt_object_kind;

typedef struct ckpt_object ckpt_object;
struct ckpt_object {
  ckpt_object_kind kind;
  uint64_t n; /* bytes, items or pairs */
  union {
    bool boolean;
    int64_t integer;
    double number;
    const char *text; /* TEXT, BIGINT; terminated, may contain NUL before n */
    const uint8_t *bytes;
    ckpt_object **items; /* LIST, TUPLE, SET: n; DICT: 2 n; FOREIGN: n */
    uint32_t tensor;
  };
  const char *name; /* FOREIGN: "module.Class" */
};

/* Constructors: a new node in the arena, NULL when it is full. Text and bytes are copied. */
ckpt_object *ckpt_object_none(ckpt_arena *arena);
ckpt_object *ckpt_object_bool(ckpt_arena *arena, bool value);                           /* as above */
ckpt_object *ckpt_object_int(ckpt_arena *arena, int64_t value);                         /* as above */
ckpt_object *ckpt_object_float(ckpt_arena *arena, double value);                        /* as above */
ckpt_object *ckpt_object_text(ckpt_arena *arena, const char *text, uint64_t n_bytes);   /* as above */
ckpt_object *ckpt_object_bytes(ckpt_arena *arena, const void *bytes, uint64_t n_bytes); /* as above */
ckpt_object *ckpt_object_tensor(ckpt_arena *arena, uint32_t tensor);                    /* as above */
/* A LIST, TUPLE, SET, DICT or FOREIGN with room for n items or pairs, all NULL. name only for FOREIGN. */
ckpt_object *ckpt_object_new(ckpt_arena *arena, ckpt_object_kind kind, uint64_t n, const char *name);

/* The value of a text key in a DICT; NULL if there is none or dict is no DICT. The last of equal keys wins. */
const ckpt_object *ckpt_object_get(const ckpt_object *dict, const char *key);

/* Whether two graphs describe the same value: kinds, order, text, bits of numbers and sharing structure alike. */
bool ckpt_object_equal(const ckpt_object *a, const ckpt_object *b);

/* Writes the graph as JSON text for people and tests (tuples as lists, bytes as "<n bytes>", NaN and Infinity as
 * Python writes them), at most max_bytes with "..." after that. Returns arena text, NULL when the arena is full. */
char *ckpt_object_print(const ckpt_object *object, uint64_t max_bytes, ckpt_arena *arena);

#endif
