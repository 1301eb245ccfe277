/* pickle.h - Python's pickle, protocols 0 to 5, as data: a machine that builds a graph and never resolves or calls.
 *
 * ckpt_pickle_read runs the opcodes of one pickle (Lib/pickletools.py of Python 3.11 is the reference; opcodes.def) and
 * returns what they describe as a ckpt_object graph. Shared references are shared nodes, so a list that holds itself is
 * a cycle; whoever walks a graph bounds its depth (object.h). Classes and callables are names:
 *
 *   torch.float32                   FOREIGN "torch.float32", form NAME; one node for each name of a pickle
 *   f(a, b)        (REDUCE, INST)   FOREIGN "module.f", form CALL, items a and b
 *   object.__new__ (NEWOBJ, _EX)    FOREIGN "module.Class", form NEW, items, keywords
 *   BUILD, APPENDS, SETITEMS        extras of the node: state, list, dict
 *   a persistent id                 FOREIGN "persistent id", form PERSISTENT, items[0]: ("storage", ...) in torch's
 * files
 *
 * What is plain data in the end is data: collections.OrderedDict is a DICT (its attributes, as torch's _metadata, its
 * state), set and frozenset a SET, bytearray BYTES, `_codecs.encode(text, "latin1")` (bytes below protocol 3) BYTES,
 * copyreg._reconstructor(cls, object, None) (objects below protocol 2) a NEW. The name of a
 * container holds its class if that is not the kind's own. Text of Python 2 (STRING) is TEXT where it is UTF-8, else
 * BYTES. Text may hold lone surrogates, encoded as UTF-8 would (ED A0 80 to ED BF BF). Small integers and None are
 * shared nodes.
 *
 * Memory is linear in what was read (test: PickleTest.MemoryIsLinear), whatever the input: nothing is copied more
 * often than a constant times the bytes that asked for it. */
#ifndef CKPT_CODEC_PICKLE_PICKLE_H
#define CKPT_CODEC_PICKLE_PICKLE_H

#include <stddef.h>

#include "libckpt/index/object.h"

#define CKPT_PICKLE_PROTOCOL 5 /* the highest that is known */

/* Names of the classes of containers that are data, and the module under which an extension code stands as a name. */
#define CKPT_PICKLE_FROZENSET "builtins.frozenset"
#define CKPT_PICKLE_BYTEARRAY "builtins.bytearray"
#define CKPT_PICKLE_EXTENSION "copyreg extension"

/* What one pickle may take. Anything above is ELIMIT, naming the limit. Bytes of memory are the graph's, which the
 * arena's own limit bounds too, and those of stack, marks and memo: 6 for each byte of a large honest pickle, 16 of one
 * that is nothing but small numbers, 48 of what no pickler writes. */
typedef struct ckpt_pickle_limits {
  uint64_t n_bytes;   /* of input, STOP included */
  uint64_t n_nodes;   /* of the graph */
  uint64_t n_memo;    /* memo entries in use */
  uint64_t n_stack;   /* values on the stack, and marks */
  uint64_t n_text;    /* bytes of one text, bytes object or line */
  uint64_t n_long;    /* bytes of a LONG1 or LONG4, and digits / 2 of a LONG or INT: conversion is quadratic */
  uint64_t n_name;    /* bytes of "module.qualname", at most 65,535 */
  uint64_t n_globals; /* different names */
  uint64_t n_memory;  /* bytes of memory for each byte read, beside CKPT_PICKLE_FREE_BYTES */
} ckpt_pickle_limits;
#define CKPT_PICKLE_FREE_BYTES (UINT64_C(16) << 20) /* of memory, whatever was read */
#define CKPT_PICKLE_LIMITS                                                                                        \
  {                                                                                                               \
    .n_bytes = UINT64_C(16) << 30, .n_nodes = UINT64_C(1) << 30, .n_memo = UINT64_C(1) << 28, .n_stack = 1 << 26, \
    .n_text = UINT64_C(4) << 30, .n_long = 1024, .n_name = 1024, .n_globals = 1 << 14, .n_memory = 24             \
  }

/* One global name (class or callable) that a pickle speaks of. */
typedef struct ckpt_pickle_global {
  ckpt_object *object;    /* the FOREIGN node of form NAME: its name, n_module */
  uint64_t first;         /* offset of the opcode that first names it */
  uint64_t n_named;       /* opcodes that name it: GLOBAL, STACK_GLOBAL, INST, EXT */
  uint64_t n_called;      /* REDUCE, INST, OBJ, NEWOBJ, NEWOBJ_EX of it */
  uint64_t n_built;       /* BUILDs of what came from it */
  uint64_t n_copied;      /* further references to the name: GET and DUP of it */
  uint64_t n_methods;     /* getattr: calls that give what honest files take: a known class, a CyclicLR's method */
  uint64_t n_constructed; /* REDUCE, INST, OBJ of it with arguments */
  uint64_t n_appended;    /* APPEND, APPENDS on what came from it */
  uint64_t n_misused;     /* calls that hand over what may not be called, BUILDs that set __class__ and its kin */
  uint32_t caller;        /* internal: what it calls of its arguments, + 1 */
  uint32_t row;           /* internal: of the tables, + 1; 0: foreign */
  uint32_t model;         /* internal: the call that is plain data, + 1 */
  char name[];            /* "module.qualname" */
} ckpt_pickle_global;

/* What a pickle does, for `scan`. Also filled when reading fails: a real unpickler has by then run all that came
 * before. Names live in the arena. */
typedef struct ckpt_pickle_report {
  uint8_t protocol;             /* the highest that PROTO declares; 0 without */
  uint64_t n_consumed;          /* bytes, STOP included; up to the failing opcode after a failure */
  uint64_t n_read;              /* bytes taken from the input, those of the failing opcode too */
  bool is_refused;              /* a failure that is Python's, for certain: nothing behind it runs */
  uint64_t n_nodes, n_memo;     /* made; memo entries in use at the end */
  uint64_t n_left;              /* values below the result on the stack: 0 from any honest writer */
  uint64_t n_persistent;        /* persistent ids */
  uint64_t n_value_calls;       /* calls of something that is no name: the result of another call */
  uint64_t first_value_call;    /* offset of the first of them */
  uint64_t n_handed;            /* calls that get an object with attributes, or a name that is not known */
  uint64_t n_changed_globals;   /* BUILD, APPENDS or SETITEMS on a class itself; refused */
  uint64_t counts[256];         /* by opcode */
  ckpt_pickle_global **globals; /* in the order in which they are first named */
  uint32_t n_globals;
} ckpt_pickle_report;

/* Exactly n_bytes of the input at offset into dst. */
typedef ckpt_status ckpt_pickle_fetch(void *arg, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err);

/* Where the pickle is. The input may go on behind it: legacy torch files hold several, then payload. */
typedef struct ckpt_pickle_options {
  const void *data;         /* n_bytes of input in memory, or NULL: */
  ckpt_pickle_fetch *fetch; /* reads them: 1 KiB, then windows of 64 KiB (larger texts at once) */
  void *arg;
  uint64_t n_bytes;
  const char *file;                 /* for messages, or NULL */
  uint64_t base;                    /* added to offsets in messages and reports */
  const ckpt_pickle_limits *limits; /* NULL: CKPT_PICKLE_LIMITS */
  ckpt_pickle_report *report;       /* NULL, or where to report */
} ckpt_pickle_options;

/* Reads one pickle. *n_consumed (may be NULL): bytes up to and with STOP. EFORMAT for what no unpickler accepts or no
 * pickler writes, EUNSUPPORTED for out-of-band buffers, ELIMIT; messages are `<file>: pickle at byte N: ...`, N being
 * the opcode's offset plus base. */
ckpt_status ckpt_pickle_read(ckpt_object **root, uint64_t *n_consumed, const ckpt_pickle_options *options,
                             ckpt_arena *arena, ckpt_error *err);

enum { CKPT_PICKLE_SEEN_BYTES = 200 }; /* of a name, what fits of it */

/* What follows a refused opcode, by operands alone: what a real unpickler may get to where this machine is stricter. */
typedef struct ckpt_pickle_rest {
  bool goes_on;  /* it, or what came before, names something, and then it calls something */
  bool has_stop; /* it is a run of opcodes up to STOP, and does not go on */
  uint64_t end;  /* gone through up to here: behind STOP */
  char
      seen[CKPT_PICKLE_SEEN_BYTES + 1]; /* "module.name" of the last GLOBAL or INST; empty where something else names */
} ckpt_pickle_rest;

/* Goes through that: options are those of the reading that failed, with its report. Nothing where Python refuses, too.
 */
ckpt_status ckpt_pickle_skim(ckpt_pickle_rest *rest, const ckpt_pickle_options *options, ckpt_error *err);

/* Goes past pickles, one behind another from the input's start, that have no PROTO and neither name nor call: *n_bytes
 * of them. */
ckpt_status ckpt_pickle_skip_idle(uint64_t *n_bytes, const ckpt_pickle_options *options, ckpt_error *err);

/* "BINPUT"; NULL for a byte that is no opcode. Static storage. */
const char *ckpt_pickle_opcode_name(uint8_t opcode);

/* ---- reading what was built --------------------------------------------------------------------------------- */

/* Whether object is a FOREIGN node of this class or callable, as a call of it or (is_name) as the name itself. Nodes of
 * one name in one pickle share their `name` pointer, so that loops may compare that. */
bool ckpt_foreign_is(const ckpt_object *object, const char *module, const char *name);
bool ckpt_foreign_is_call(const ckpt_object *object);                                       /* of any */
bool ckpt_foreign_is_name(const ckpt_object *object, const char *module, const char *name); /* as above */

/* Argument i of a FOREIGN node or item i of a TUPLE or LIST, counted from 0; NULL where there is none. */
const ckpt_object *ckpt_foreign_arg(const ckpt_object *object, uint64_t i);

/* An attribute from a node's state (a DICT, or the (DICT, slots DICT) that Python makes of __slots__), or NULL; as
 * ckpt_object_field, since many nodes can share a state. */
const ckpt_object *ckpt_foreign_attribute(const ckpt_object *object, const char *name);

/* The items of a TUPLE or LIST (or of a CALL whose only argument is one, as torch.Size) as up to max non-negative
 * integers. False when it is something else, or longer. */
bool ckpt_foreign_u64s(const ckpt_object *object, uint64_t *values, uint32_t max, uint32_t *n);

/* ---- judging ------------------------------------------------------------------------------------------------ */

typedef enum ckpt_pickle_verdict {
  CKPT_PICKLE_DATA,     /* rebuilds tensors, arrays or plain values */
  CKPT_PICKLE_KNOWN,    /* a class of a known framework: state, settings */
  CKPT_PICKLE_FOREIGN,  /* unknown: may do anything when it is loaded */
  CKPT_PICKLE_DANGEROUS /* known to run code, commands or to reach files */
} ckpt_pickle_verdict;

/* The verdict on a global by the table of globals.def: exact module and name only, no prefixes; submodules do
 * not inherit. What is unknown is FOREIGN, and what is done with no known name in honest files FOREIGN or, where it is
 * misused, DANGEROUS. */
ckpt_pickle_verdict ckpt_pickle_judge(const ckpt_pickle_global *global);

/* Whether one of its names may be one in Python, as those of text that begins as opcodes do are not: it has no blanks.
 * An extension code is one too where with_extensions says so: any bytes have them now and then. */
bool ckpt_pickle_has_name(const ckpt_pickle_report *report, bool with_extensions);

/* "tensor data", "known framework class", "foreign", "dangerous"; static storage. */
const char *ckpt_pickle_verdict_name(ckpt_pickle_verdict verdict);

/* Whether names that a pickle only mentions may be called too. That is so if it calls a function that calls its
 * arguments (copyreg.__newobj__, torch's rebuild functions, ...). It is also so if it gives attributes to an object
 * whose class may call them: an optimizer's __setstate__ calls state.get, and hash() or dict() call an object's
 * methods. */
bool ckpt_pickle_hands_over(const ckpt_pickle_report *report);

/* The worst verdict over a report; a call of a value, a changed class and an extension code are FOREIGN. *global (may
 * be NULL): the first global of that verdict, NULL where no global is the reason. */
ckpt_pickle_verdict ckpt_pickle_judge_all(const ckpt_pickle_report *report, const ckpt_pickle_global **global);

#endif
