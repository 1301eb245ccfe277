/* write.h - prints opcodes of pickle protocol 2, the one that torch.load(weights_only=True) reads.
 *
 * An emitter over a ckpt_stream: each call appends one value or one opcode. A generator can print a pickle of any size
 * in constant memory, first to count it and later to write it. Memo entries are numbered from 0 in the order
 * of the puts; the caller keeps the numbers. It uses only opcodes that torch's weights-only unpickler accepts
 * (torch/_weights_only_unpickler.py), except ckpt_pickle_put_newobj, which that accepts for few classes. */
#ifndef CKPT_CODEC_PICKLE_WRITE_H
#define CKPT_CODEC_PICKLE_WRITE_H

#include "libckpt/io/stream.h"

typedef struct ckpt_pickle_writer {
  ckpt_stream *out;
  uint32_t n_memo;
} ckpt_pickle_writer;

/* The first opcode and the last. */
ckpt_pickle_writer ckpt_pickle_start(ckpt_stream *out);
void ckpt_pickle_stop(ckpt_pickle_writer *writer); /* as above */

/* Values. Text is UTF-8 (lone surrogates as in pickle.h), at most 4 GiB - 1 byte: longer fails the stream (ELIMIT).
 * Bytes become the call `_codecs.encode(text, "latin1")` that Python itself prints below protocol 3. */
void ckpt_pickle_put_none(ckpt_pickle_writer *writer);
void ckpt_pickle_put_bool(ckpt_pickle_writer *writer, bool value);                              /* as above */
void ckpt_pickle_put_int(ckpt_pickle_writer *writer, int64_t value);                            /* as above */
void ckpt_pickle_put_u64(ckpt_pickle_writer *writer, uint64_t value);                           /* as above */
void ckpt_pickle_put_float(ckpt_pickle_writer *writer, double value);                           /* as above */
void ckpt_pickle_put_text(ckpt_pickle_writer *writer, const char *text, uint64_t n_bytes);      /* as above */
void ckpt_pickle_put_bytes(ckpt_pickle_writer *writer, const uint8_t *bytes, uint64_t n_bytes); /* as above */
#define CKPT_PICKLE_MAX_DIGITS 2500
/* A whole number as decimal text, a minus in front allowed: at most CKPT_PICKLE_MAX_DIGITS, EINTERNAL for other text.
 */
void ckpt_pickle_put_bigint(ckpt_pickle_writer *writer, const char *digits);
void ckpt_pickle_put_global(ckpt_pickle_writer *writer, const char *module, const char *name); /* "torch", "Size" */

/* Containers and calls: opcodes, by their names in Lib/pickletools.py. */
void ckpt_pickle_put_mark(ckpt_pickle_writer *writer);        /* MARK */
void ckpt_pickle_put_empty_dict(ckpt_pickle_writer *writer);  /* EMPTY_DICT */
void ckpt_pickle_put_empty_list(ckpt_pickle_writer *writer);  /* EMPTY_LIST */
void ckpt_pickle_put_empty_tuple(ckpt_pickle_writer *writer); /* EMPTY_TUPLE */
void ckpt_pickle_put_setitem(ckpt_pickle_writer *writer);     /* SETITEM */
void ckpt_pickle_put_setitems(ckpt_pickle_writer *writer);    /* SETITEMS: of the pairs since the mark */
void ckpt_pickle_put_append(ckpt_pickle_writer *writer);      /* APPEND */
void ckpt_pickle_put_appends(ckpt_pickle_writer *writer);     /* APPENDS: as above */
/* The tuple of the n values on top of the stack; above 3 a mark lies below them. */
void ckpt_pickle_put_tuple(ckpt_pickle_writer *writer, uint64_t n);
void ckpt_pickle_put_reduce(ckpt_pickle_writer *writer); /* REDUCE: callable, tuple of arguments -> result */
void ckpt_pickle_put_newobj(ckpt_pickle_writer *writer); /* NEWOBJ: class, tuple of arguments -> instance */
void ckpt_pickle_put_build(ckpt_pickle_writer *writer);  /* BUILD: instance, state -> instance */
void ckpt_pickle_put_persid(ckpt_pickle_writer *writer); /* BINPERSID: id -> what it stands for */

/* Keeps what is on top of the stack in the memo and returns its number; brings it back. */
uint32_t ckpt_pickle_keep(ckpt_pickle_writer *writer);
void ckpt_pickle_recall(ckpt_pickle_writer *writer, uint32_t number); /* as above */

/* A tuple of integers. */
void ckpt_pickle_put_u64s(ckpt_pickle_writer *writer, const uint64_t *values, uint32_t n);

#endif
