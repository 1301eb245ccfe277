/* recognize.h - names what a path holds if no format finds a checkpoint there.
 *
 * It goes by content alone: magic numbers, the first name in a zip, the first fields of a protobuf. */
#ifndef CKPT_FORMAT_RECOGNIZE_H
#define CKPT_FORMAT_RECOGNIZE_H

#include "libckpt/format/format.h"

/* What a file's first bytes show. */
typedef struct ckpt_content {
  const char *name;   /* "a GGUF file"; NULL: they are no format known by name */
  const char *remedy; /* what to do about it; NULL: this version cannot read it */
  bool is_weights;    /* it may hold a model */
} ckpt_content;

/* Whether a name (n_name bytes) is that of weights or of their index, by how it ends. */
bool ckpt_names_weights(const char *name, size_t n_name);

/* By content alone; n_head is at most 4,096. name NULL where nothing is recognised. */
ckpt_content ckpt_content_of(const uint8_t *head, size_t n_head);

/* Fails: EUNSUPPORTED for what is known and cannot be read, EFORMAT for the rest. */
ckpt_status ckpt_refuse_file(const ckpt_probe *probe, ckpt_error *err);

/* The same for a folder, of which no format wants the entries: names the weights of other formats among its files, and
 * links that lead nowhere or out of it. */
ckpt_status ckpt_refuse_folder(const ckpt_probe *probe, ckpt_error *err);

#endif
