/* sentencepiece.c - tokenizer.model: a protobuf message of pieces with scores, and how they were trained.
 *
 *   ModelProto: 1 pieces (repeated: 1 text, 2 score f32, 3 type), 2 trainer_spec (3 model_type: 1 Unigram, 2 BPE),
 *   3 normalizer_spec (1 name, 2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces).
 * Walked field by field: depth is that of the message, whatever the file says. */
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/build.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/protobuf.h"

enum { PIECES = 1, TRAINER = 2, NORMALIZER = 3, BPE = 2 };

typedef struct model {
  ckpt_tokenizer_build *build;
  ckpt_wire *wire;
  uint64_t n_pieces, type;
  bool has_prefix, removes_spaces, has_map;
} model;

static ckpt_status read_piece(model *m, ckpt_wire *wire, uint64_t end, ckpt_error *err) {
  static const uint8_t types[] = {0,
                                  CKPT_TOKEN_NORMAL,
                                  CKPT_TOKEN_UNKNOWN,
                                  CKPT_TOKEN_CONTROL,
                                  CKPT_TOKEN_USER_DEFINED,
                                  CKPT_TOKEN_UNUSED,
                                  CKPT_TOKEN_BYTE};
  char *text = NULL;
  uint64_t n = 0, type = 1;
  uint32_t bits = 0;
  uint8_t score[4];
  ckpt_status status = CKPT_OK;
  while (wire->at < end) {
    ckpt_wire_field field;
    CKPT_TRY_GOTO(ckpt_wire_next(wire, &field, err));
    if (field.number == 1) {
      CKPT_TRY_GOTO(ckpt_wire_expect(wire, &field, CKPT_WIRE_BYTES, "a piece", err));
      n = field.n;
      free(text);
      text = n > CKPT_TOKENIZER_MAX_TOKEN_BYTES ? NULL : malloc((size_t)n + 1);
      if (n > CKPT_TOKENIZER_MAX_TOKEN_BYTES)
        status = ckpt_fail(err, CKPT_ELIMIT, wire->path, NULL, "piece %llu has %llu bytes (at most %d)",
                           (unsigned long long)m->n_pieces, (unsigned long long)n, CKPT_TOKENIZER_MAX_TOKEN_BYTES);
      else if (text == NULL)
        status = ckpt_fail(err, CKPT_ENOMEM, wire->path, NULL, "out of memory");
      if (status != CKPT_OK) goto done;
      CKPT_TRY_GOTO(ckpt_wire_bytes(wire, field.at, text, n, err));
    } else if (field.number == 2) {
      CKPT_TRY_GOTO(ckpt_wire_expect(wire, &field, CKPT_WIRE_FIXED32, "a piece", err));
      CKPT_TRY_GOTO(ckpt_wire_bytes(wire, field.at, score, sizeof score, err));
      bits = ckpt_le32(score);
    } else if (field.number == 3) {
      CKPT_TRY_GOTO(ckpt_wire_expect(wire, &field, CKPT_WIRE_VARINT, "a piece", err));
      type = field.value;
    }
  }
  if (text == NULL || type == 0 || type >= sizeof types || ckpt_utf8_length(text, (size_t)n) != n) {
    status = ckpt_fail(err, CKPT_EFORMAT, wire->path, NULL, "piece %llu has no text, or type %llu",
                       (unsigned long long)m->n_pieces, (unsigned long long)type);
    goto done;
  }
  ckpt_token *token = NULL;
  CKPT_TRY_GOTO(ckpt_tokenizer_build_token(m->build, text, (size_t)n, m->n_pieces, &token, err));
  memcpy(&token->score, &bits, sizeof bits);
  token->type = types[type];
  if (type == 2) m->build->out->unknown = (uint32_t)m->n_pieces;
  if (type == 4) { /* found in text before the model sees it */
    const ckpt_added_token flags = {.is_normalized = false};
    CKPT_TRY_GOTO(ckpt_tokenizer_build_added(m->build, text, (size_t)n, m->n_pieces, &flags, err));
  }
  m->n_pieces++;
done:
  free(text);
  return status;
}

static ckpt_status read_spec(model *m, ckpt_wire *wire, uint64_t end, bool is_trainer, ckpt_error *err) {
  while (wire->at < end) {
    ckpt_wire_field field;
    CKPT_TRY(ckpt_wire_next(wire, &field, err));
    if (is_trainer && field.number == 3 && field.type == CKPT_WIRE_VARINT) m->type = field.value;
    if (is_trainer) continue;
    if (field.number == 2 && field.type == CKPT_WIRE_BYTES) m->has_map = field.n != 0;
    if (field.number == 3 && field.type == CKPT_WIRE_VARINT) m->has_prefix = field.value != 0;
    if (field.number == 4 && field.type == CKPT_WIRE_VARINT) m->removes_spaces = field.value != 0;
  }
  return CKPT_OK;
}

/* The parts of one field of the message, each a message of its own. */
static ckpt_status read_field(model *m, const ckpt_wire_field *field, ckpt_error *err) {
  if (field->number < PIECES || field->number > NORMALIZER) return CKPT_OK;
  CKPT_TRY(ckpt_wire_expect(m->wire, field, CKPT_WIRE_BYTES, "a sentencepiece model", err));
  const uint64_t next = m->wire->at, end = m->wire->end;
  m->wire->at = field->at;
  m->wire->end = field->at + field->n; /* within the message */
  ckpt_status status = field->number == PIECES ? read_piece(m, m->wire, m->wire->end, err)
                                               : read_spec(m, m->wire, m->wire->end, field->number == TRAINER, err);
  m->wire->at = next;
  m->wire->end = end;
  return status;
}

static ckpt_status check(const model *m, ckpt_error *err) {
  const char *path = m->wire->path;
  if (m->type != BPE)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL, "a sentencepiece model of type %llu (2, BPE, is read)",
                     (unsigned long long)m->type);
  if (m->has_map || m->removes_spaces)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, path, NULL,
                     "a sentencepiece model that normalizes text (a character map, or extra white space removed)");
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_read_sentencepiece(ckpt_tokenizer_build *build, ckpt_source *source, uint32_t file,
                                              ckpt_error *err) {
  ckpt_wire *wire = calloc(1, sizeof *wire);
  CKPT_TRY_ALLOC(wire, err);
  *wire = (ckpt_wire){
      .source = source, .file = file, .path = ckpt_source_path(source, file), .end = ckpt_source_size(source, file)};
  model m = {.build = build, .wire = wire, .type = 1, .has_prefix = true, .removes_spaces = true};
  ckpt_status status = CKPT_OK;
  while (wire->at < wire->end) {
    ckpt_wire_field field;
    CKPT_TRY_GOTO(ckpt_wire_next(wire, &field, err));
    CKPT_TRY_GOTO(read_field(&m, &field, err));
  }
  CKPT_TRY_GOTO(check(&m, err));
  build->out->has_scores = true;
  CKPT_TRY_GOTO(ckpt_tokenizer_assume_spm(build, m.has_prefix, err));
  CKPT_TRY_GOTO(ckpt_tokenizer_merges_of_scores(build, err));
done:
  free(wire);
  return status;
}
