/* object.h - everything in a checkpoint that is not a tensor, as data.
 *
 * It is a graph of nodes in an arena: what a pickle, a JSON value or a metadata block describes, never executed. Shared
 * identity is a shared pointer. A TENSOR node names one of the index's tensors by number. A class or callable that we
 * do not model is a FOREIGN node with its qualified name and arguments. Hostile input can have cycles, so walkers bound
 * their depth.
 *
 * All formats share one canonical training state, so that no pair of formats needs its own converter. Tensors of a
 * parameter P are named `optimizer.state.P.<exp_avg|exp_avg_sq|momentum|step|master>` and have the matching role.
 * Objects have the keys below. */
#ifndef CKPT_INDEX_OBJECT_H
#define CKPT_INDEX_OBJECT_H

#include "libckpt/base/arena.h"

#define CKPT_STATE_PREFIX "optimizer.state."
#define CKPT_STATE_PARAM_GROUPS "optimizer.param_groups" /* list of dicts: lr, betas, eps, weight_decay, params... */
#define CKPT_STATE_SCHEDULER "scheduler"                 /* dict */
#define CKPT_STATE_LOSS_SCALER "loss_scaler"             /* dict: scale, growth_tracker */
#define CKPT_STATE_RNG "rng"                             /* dict: rank number -> dict of generator states (bytes) */
#define CKPT_STATE_TRAINER "trainer"                     /* dict: step, epoch, best_metric, ... */
#define CKPT_STATE_CLIENT "client_state."                /* ahead of one of these keys: what a user calls so */

/* The parameter P, of *n bytes, in the name of a state, `optimizer.state.P.leaf`; NULL, and 0, for other names. */
const char *ckpt_state_parameter(const char *name, size_t *n);

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
  CKPT_OBJECT_FOREIGN, /* name of the class or callable, n items: its arguments */
  CKPT_N_OBJECT_KINDS
} ckpt_object_kind;

/* The origin of a FOREIGN node. */
typedef enum ckpt_object_form {
  CKPT_FORM_CALL,       /* a function or class called with arguments */
  CKPT_FORM_NEW,        /* cls.__new__(cls, arguments): an instance that __init__ has not seen */
  CKPT_FORM_NAME,       /* the class or callable itself: torch.float32 */
  CKPT_FORM_PERSISTENT, /* a persistent id, its one argument; the name is CKPT_PERSISTENT_ID */
  CKPT_FORM_CALL_VALUE, /* a call of items[0], which is no name; the arguments follow. The name is "" */
  CKPT_FORM_CALLED      /* a call that its holder makes, for which the pickle has the tuple of arguments alone */
} ckpt_object_form;
#define CKPT_PERSISTENT_ID "persistent id"

/* What a FOREIGN node, a container with a class of its own, or a tensor with attributes has besides its items. */
typedef enum ckpt_object_extra {
  CKPT_EXTRA_KEYWORDS = 1, /* DICT: keyword arguments */
  CKPT_EXTRA_LIST = 2,     /* LIST: what was appended to it (a list's subclass) */
  CKPT_EXTRA_DICT = 4,     /* DICT: what was set in it (a dict's subclass) */
  CKPT_EXTRA_STATE = 8     /* what __setstate__ would get: mostly a DICT of attributes */
} ckpt_object_extra;

/* Whether a leaf asks for gradients: what is made of anything but torch's objects does not say. A bit beside it: it is
 * written as what a call of a quantized tensor holds, its values' storage, or the number whose bits are in `integer`;
 * or as a storage whose class is the leaf's name and whose elements have `integer` bytes. Such a leaf has no extras. */
typedef enum ckpt_object_grad { CKPT_GRAD_UNKNOWN, CKPT_GRAD_NO, CKPT_GRAD_YES, CKPT_LEAF_BARE = 8 } ckpt_object_grad;

typedef struct ckpt_object ckpt_object;
struct ckpt_object {
  ckpt_object_kind kind;
  uint32_t form : 4;      /* FOREIGN: ckpt_object_form; TENSOR: ckpt_object_grad */
  uint32_t extras : 4;    /* bits of ckpt_object_extra; these nodes follow the items in that order */
  uint32_t room : 6;      /* its builder's: items has room for 2^room, or is full where 0 */
  uint32_t n_module : 16; /* bytes of name before the dot that parts module and class; 0: unknown */
  uint32_t mark : 2;      /* a walker's own (codec/torch/read/graph.h), of no meaning between walks */
  union {
    uint64_t n; /* bytes, items or pairs */
    uint32_t tensor;
  };
  union {
    bool boolean;
    int64_t integer; /* also of a bare leaf: ckpt_object_grad */
    double number;
    const char *text; /* TEXT, BIGINT; terminated, may contain NUL before n */
    const uint8_t *bytes;
    ckpt_object **items; /* LIST, TUPLE, SET: n; DICT: 2 n; FOREIGN: n; then one for each of extras */
  };
  const char *name; /* FOREIGN: "module.Class"; others: NULL, or a class that holds the same (an OrderedDict) */
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
/* Appends a text key and its value to a DICT that has room for the pair; returns the dict, or NULL if value is NULL. */
ckpt_object *ckpt_object_put(ckpt_arena *arena, ckpt_object *dict, const char *key, const ckpt_object *value);

/* The value of a text key in a DICT; NULL if there is none or dict is no DICT. The last of equal keys wins. */
const ckpt_object *ckpt_object_get(const ckpt_object *dict, const char *key);
/* The same for a DICT with few keys; NULL if it has more than 64 entries. For repeated lookups, since a hostile file
 * can share one large dict among many holders. */
const ckpt_object *ckpt_object_field(const ckpt_object *record, const char *key);

#define CKPT_OBJECT_KEY_BYTES 40

/* Python's str() of a dict's key that is None, a bool, an integer or a float, in text or static storage; NULL for other
 * keys. */
const char *ckpt_object_key_text(char text[CKPT_OBJECT_KEY_BYTES], const ckpt_object *key);

/* One of the nodes that follow the items, or NULL. */
const ckpt_object *ckpt_object_extra_of(const ckpt_object *object, ckpt_object_extra extra);

/* Whether an object holds more than tensors in dicts, which their names alone can describe. Each node costs one of
 * *n_left, since dicts can nest deeply; what is not reached counts as more. */
bool ckpt_object_holds_more(const ckpt_object *object, uint64_t *n_left);
#define CKPT_OBJECT_LOOKS (UINT64_C(1) << 24) /* at all objects of a checkpoint, one after the other */

/* Number of nodes in items: elements, arguments, keys and values, and extras. */
uint64_t ckpt_object_n_children(const ckpt_object *object);

/* Whether two graphs describe the same value: kinds, order, text, bits of numbers and sharing structure alike. */
bool ckpt_object_equal(const ckpt_object *a, const ckpt_object *b);
/* The same, taking what it looks at (nodes, and 64 bytes of text) from *n_left: not equal where that is not enough. For
 * values that are compared again and again: a file can share one of many nodes among all that have it. ENOMEM. */
ckpt_status ckpt_object_compare(bool *is_equal, const ckpt_object *a, const ckpt_object *b, uint64_t *n_left,
                                ckpt_error *err);

/* Writes the graph as JSON text for people and tests (tuples as lists, bytes as "<n bytes>", NaN and Infinity as
 * Python writes them, {"module.Class": [arguments], "state": ...} for FOREIGN, "<module.Class>" for a name), at most
 * max_bytes with "..." after that. Returns arena text, NULL when the arena is full. */
char *ckpt_object_print(const ckpt_object *object, uint64_t max_bytes, ckpt_arena *arena);

#endif
