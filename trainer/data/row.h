/* row.h - one row of a data file becomes tokens. */
#ifndef CKPT_TRAINER_DATA_ROW_H
#define CKPT_TRAINER_DATA_ROW_H

#include "trainer/data/dataset.h"

/* The columns of a row under their names in the file. */
typedef struct ckpt_columns {
  char text[64], prompt[64], completion[64], input_ids[64], labels[64], attention_mask[64];
} ckpt_columns;

/* EINVAL: no "name=column" list, a name that is none. */
ckpt_status ckpt_columns_parse(ckpt_columns *out, const char *text, ckpt_error *err);

/* What all rows of a dataset share. */
typedef struct ckpt_row_rules {
  const ckpt_text_encoder *encoder;
  const ckpt_tokenizer *tokenizer;
  ckpt_columns columns;
  uint64_t vocabulary;
  uint64_t limit; /* rows of ids that are longer are refused; 0: none */
  uint64_t cut;   /* longer rows are cut to it; 0: never */
} ckpt_row_rules;

/* Appends the tokens of one JSON object to a sample, as the document of this number. EFORMAT, EINVAL, ELIMIT without
 * file and line, which the caller knows. */
ckpt_status ckpt_row_json(ckpt_sample *sample, const ckpt_row_rules *rules, const char *line, size_t n_bytes,
                          int32_t document, ckpt_error *err);

/* The same of plain text, with the tokenizer's tokens before it and after it where asked. */
ckpt_status ckpt_row_text(ckpt_sample *sample, const ckpt_row_rules *rules, const char *text, size_t n_bytes,
                          bool begins, bool ends, int32_t document, ckpt_error *err);

/* Appends one token. ENOMEM. */
ckpt_status ckpt_sample_add(ckpt_sample *sample, int32_t id, int32_t label, int32_t document, uint8_t mask,
                            ckpt_error *err);

/* The room of a sample, made when it is first asked for. */
typedef struct ckpt_sample_room {
  ckpt_encoding encoding;
  char *line, *text; /* a row as it lies in its file, and what its columns say */
  size_t line_capacity, text_capacity;
  ckpt_sample *row;   /* of packing: the row that was read last */
  uint64_t row_index; /* its number; UINT64_MAX: none */
} ckpt_sample_room;
ckpt_status ckpt_sample_room_of(ckpt_sample_room **out, ckpt_sample *sample, ckpt_error *err);

#endif
