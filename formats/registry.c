/* registry.c - the tables that libckpt declares: formats.def, arch/archs.def and decoders.def as arrays. */
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/extents/decoder.h"
#include "libckpt/format/format.h"
#include "libckpt/index/arch.h"

#define CKPT_FORMAT(name) extern const ckpt_format ckpt_format_##name;
#include "formats/formats.def"
#undef CKPT_FORMAT
#define CKPT_ARCH(name) extern const ckpt_arch ckpt_arch_##name;
#include "formats/arch/archs.def"
#undef CKPT_ARCH
#define CKPT_DECODER(NAME, row) extern const ckpt_decoder_row ckpt_decoder_##row;
#include "formats/decoders.def"
#undef CKPT_DECODER

const ckpt_format *const ckpt_formats[] = {
#define CKPT_FORMAT(name) &ckpt_format_##name,
#include "formats/formats.def"
#undef CKPT_FORMAT
    NULL,
};

const ckpt_arch *const ckpt_archs[] = {
#define CKPT_ARCH(name) &ckpt_arch_##name,
#include "formats/arch/archs.def"
#undef CKPT_ARCH
    NULL,
};

const ckpt_decoder_row *const ckpt_decoders[CKPT_N_DECODERS] = {
#define CKPT_DECODER(NAME, row) [CKPT_DECODE_##NAME] = &ckpt_decoder_##row,
#include "formats/decoders.def"
#undef CKPT_DECODER
};

extern const ckpt_dialect_tokenizer ckpt_tokenizer_dialect; /* formats/tokenizer/dialect.c */
const ckpt_dialect_tokenizer *const ckpt_dialect_tokenizers = &ckpt_tokenizer_dialect;
