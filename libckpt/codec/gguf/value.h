/* value.h - the typed values of GGUF's metadata: their encoding, their text, and texts as values.
 *
 * A scalar is its little-endian bytes; a string a u64 length and bytes; an array a u32 element type, a u64 count and
 * that many elements. libckpt keeps them in this encoding (ckpt_typed_value), so that GGUF goes to GGUF byte for byte.
 */
#ifndef CKPT_CODEC_GGUF_VALUE_H
#define CKPT_CODEC_GGUF_VALUE_H

#include "libckpt/index/index.h"

/* The numbers that files use (ggml's gguf.h). */
typedef enum ckpt_gguf_type {
  CKPT_GGUF_U8,
  CKPT_GGUF_I8,
  CKPT_GGUF_U16,
  CKPT_GGUF_I16,
  CKPT_GGUF_U32,
  CKPT_GGUF_I32,
  CKPT_GGUF_F32,
  CKPT_GGUF_BOOL,
  CKPT_GGUF_STRING,
  CKPT_GGUF_ARRAY,
  CKPT_GGUF_U64,
  CKPT_GGUF_I64,
  CKPT_GGUF_F64,
  CKPT_GGUF_N_TYPES
} ckpt_gguf_type;

#define CKPT_GGUF_ALIGNMENT "general.alignment"
#define CKPT_GGUF_MAX_ALIGNMENT (1 << 20) /* that is written: a header is padded to it */
#define CKPT_GGUF_ARCHITECTURE "general.architecture"
#define CKPT_GGUF_SPLIT "split." /* keys of this kind: ckpt_gguf_is_part_key */
#define CKPT_GGUF_MAX_KEY 65535  /* bytes */

/* "u8", "string", ...; NULL for a number that is no type. */
const char *ckpt_gguf_type_name(uint32_t type);

/* Bytes of a scalar; 0 for strings, arrays and what is no type. */
uint32_t ckpt_gguf_type_bytes(uint32_t type);

/* Whether a key says what part of a model a file is: split.no, split.count or split.tensors.count. They are not
 * metadata of the model. */
bool ckpt_gguf_is_part_key(const char *key);

#define CKPT_GGUF_TEXT_BYTES 40 /* of a scalar as text, terminated */

/* A scalar as text: a float with the fewest digits that give it back. */
void ckpt_gguf_scalar_text(uint32_t type, const uint8_t *bytes, char out[CKPT_GGUF_TEXT_BYTES]);

/* The unsigned value of a scalar of 1 to 4 bytes, as its type has it; false for other types and negative values. */
bool ckpt_gguf_value_u32(const ckpt_typed_value *value, uint32_t *out);

/* The number that every element of an array of such numbers is, as llama.cpp has a value for each layer. False for
 * other values, for an empty array, one of more than 64 KiB, and one that cannot be read. */
bool ckpt_gguf_array_u32(const ckpt_typed_value *value, uint32_t *out);

/* How many elements an array has; *out is 0 for a value of another type. */
ckpt_status ckpt_gguf_array_count(uint64_t *out, const ckpt_index *index, const ckpt_typed_value *value,
                                  ckpt_error *err);

/* Bytes of a value's encoding, from byte `at` on, wherever they stand; the value has at least at + n of them. */
ckpt_status ckpt_gguf_value_read(const ckpt_typed_value *value, uint64_t at, void *dst, size_t n, ckpt_error *err);

/* Whether two values have the same type and the same encoding. */
ckpt_status ckpt_gguf_value_same(bool *out, const ckpt_typed_value *a, const ckpt_typed_value *b, ckpt_error *err);

/* A value in memory of this type, from its encoded bytes (copied). */
ckpt_status ckpt_gguf_value_new(const ckpt_typed_value **out, ckpt_arena *arena, uint32_t type, const void *bytes,
                                uint64_t n_bytes, ckpt_error *err);

/* A whole number as a value in memory of this type, a whole number's that holds it. */
ckpt_status ckpt_gguf_value_of(const ckpt_typed_value **out, ckpt_arena *arena, uint32_t type, uint64_t number,
                               ckpt_error *err);

/* Gives a key of an index's metadata a scalar of at most 4 bytes, in memory. */
ckpt_status ckpt_gguf_set_scalar(ckpt_index *index, const char *key, uint32_t type, uint32_t bits, ckpt_error *err);
ckpt_status ckpt_gguf_set_f32(ckpt_index *index, const char *key, double value, ckpt_error *err); /* as above */

/* The value of a scalar of type f32; false for other types. */
bool ckpt_gguf_value_f32(const ckpt_typed_value *value, float *out);

/* Parses the TEXT of `--set KEY=TEXT`. A key that exists keeps its type. A new key (now is NULL) gets one: bool for
 * `true` and `false`; the first of u32, i32, u64 and i64 that holds a whole number; f32 for other numbers; else text,
 * optionally in double quotes. *typed stays NULL for text, which goes to *text. EINVAL: not of that type, or an array.
 */
ckpt_status ckpt_gguf_value_parse(const ckpt_meta *now, const char *given, ckpt_arena *arena,
                                  const ckpt_typed_value **typed, const char **text, ckpt_error *err);

#endif
