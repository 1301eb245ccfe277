/* streams.c - the decoders that are streams: raw deflate, zstd, and the packed integers of protobuf. Each is a row of
 * the table of decoders (decoder.h); decode.c keeps a cursor over one, feeds it and bounds what it makes. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "libckpt/base/error.h"
#include "libckpt/extents/decoder.h"

static ckpt_status no_memory(ckpt_error *err) { return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory"); }

/* ---- deflate ----------------------------------------------------------------------------------------------------- */

/* What zlib takes for a window of 32 KiB, its state, and a little. */
enum { INFLATE_BYTES = 48 << 10 };

static ckpt_status inflate_open(void **state, ckpt_error *err) {
  z_stream *z = calloc(1, sizeof *z);
  if (z == NULL || inflateInit2(z, -MAX_WBITS) != Z_OK) {
    free(z);
    return no_memory(err);
  }
  *state = z;
  return CKPT_OK;
}

static const char *inflate_step(void *state, ckpt_stream_input *input, uint32_t unit_bytes, uint8_t *dst,
                                size_t n_bytes, size_t *n_made) {
  (void)unit_bytes;
  z_stream *z = state;
  z->next_in = (uint8_t *)(uintptr_t)input->bytes + input->n_used;
  z->avail_in = (uInt)(input->n - input->n_used);
  z->next_out = dst;
  z->avail_out = n_bytes > UINT32_MAX ? UINT32_MAX : (uInt)n_bytes;
  uInt room = z->avail_out;
  int result = inflate(z, Z_NO_FLUSH);
  input->n_used = input->n - z->avail_in;
  *n_made = room - z->avail_out;
  if (result == Z_OK || result == Z_BUF_ERROR) return NULL;
  return result == Z_STREAM_END ? (*n_made < n_bytes ? "the deflate stream ends early" : NULL)
                                : "damaged deflate stream";
}

static uint64_t inflate_held(const void *state) {
  (void)state;
  return INFLATE_BYTES;
}

static void inflate_close(void *state) {
  inflateEnd(state);
  free(state);
}

static const ckpt_stream_decoder inflate_stream = {
    .n_least = 1, .open = inflate_open, .step = inflate_step, .held = inflate_held, .close = inflate_close};
const ckpt_decoder_row ckpt_decoder_inflate = {.name = "deflate", .stream = &inflate_stream};

/* ---- zstd -------------------------------------------------------------------------------------------------------- */

static ckpt_status zstd_open(void **state, ckpt_error *err) {
  ZSTD_DStream *zstd = ZSTD_createDStream();
  if (zstd == NULL || ZSTD_isError(ZSTD_DCtx_setParameter(zstd, ZSTD_d_windowLogMax, CKPT_ZSTD_WINDOW_LOG))) {
    ZSTD_freeDStream(zstd);
    return no_memory(err);
  }
  *state = zstd;
  return CKPT_OK;
}

static const char *zstd_step(void *state, ckpt_stream_input *input, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes,
                             size_t *n_made) {
  (void)unit_bytes;
  ZSTD_inBuffer in = {input->bytes, input->n, input->n_used};
  ZSTD_outBuffer out = {dst, n_bytes, 0};
  size_t result = ZSTD_decompressStream(state, &out, &in);
  input->n_used = in.pos;
  *n_made = out.pos;
  return ZSTD_isError(result) ? ZSTD_getErrorName(result) : NULL;
}

static uint64_t zstd_held(const void *state) { return ZSTD_sizeof_DStream(state); }

/* The window that the frame announces (RFC 8878 3.1.1), what is decoded into it, and one block of input. */
static uint64_t zstd_announced(const uint8_t *head, size_t n_head) {
  enum { BLOCKS_BYTES = 2 * (128 << 10) + 4096, FRAME_BYTES = 14 };
  uint64_t n_window = UINT64_C(1) << CKPT_ZSTD_WINDOW_LOG;
  static const uint8_t magic[4] = {0x28, 0xB5, 0x2F, 0xFD};
  if (n_head < FRAME_BYTES || memcmp(head, magic, sizeof magic) != 0) return n_window + BLOCKS_BYTES;
  bool is_one_segment = head[4] >> 5 & 1;
  uint64_t n_content = ZSTD_getFrameContentSize(head, n_head);
  uint64_t base = UINT64_C(1) << (10 + (head[5] >> 3)),
           n = is_one_segment ? n_content : base + base / 8 * (head[5] & 7);
  return (n < n_window ? n : n_window) + BLOCKS_BYTES;
}

static void zstd_close(void *state) { ZSTD_freeDStream(state); }

static const ckpt_stream_decoder zstd_stream = {.n_least = 1,
                                                .open = zstd_open,
                                                .step = zstd_step,
                                                .held = zstd_held,
                                                .announced = zstd_announced,
                                                .close = zstd_close};
const ckpt_decoder_row ckpt_decoder_zstd = {.name = "zstd", .stream = &zstd_stream};

/* ---- packed integers --------------------------------------------------------------------------------------------- */

enum { MAX_VARINT_BYTES = 10 };

typedef struct varint {
  uint8_t bytes[8]; /* the value being handed out, little-endian */
  uint32_t n_left;
} varint;

static ckpt_status varint_open(void **state, ckpt_error *err) {
  *state = calloc(1, sizeof(varint));
  return *state == NULL ? no_memory(err) : CKPT_OK;
}

static size_t hand_out(varint *v, uint32_t unit_bytes, uint8_t *dst, size_t made, size_t n_bytes) {
  while (made < n_bytes && v->n_left != 0) dst[made++] = v->bytes[unit_bytes - v->n_left--];
  return made;
}

static const char *varint_step(void *state, ckpt_stream_input *input, uint32_t unit_bytes, uint8_t *dst, size_t n_bytes,
                               size_t *n_made) {
  varint *v = state;
  size_t made = hand_out(v, unit_bytes, dst, 0, n_bytes);
  while (made < n_bytes && input->n_used < input->n) {
    uint64_t value = 0;
    unsigned shift = 0;
    size_t used = input->n_used;
    bool is_whole = false;
    for (; used < input->n && shift <= 63 && !is_whole; shift += 7) {
      uint8_t byte = input->bytes[used++];
      value |= (uint64_t)(byte & 0x7F) << shift;
      is_whole = !(byte & 0x80);
    }
    if (!is_whole && shift > 63) return "a varint of more than ten bytes";
    if (!is_whole && input->is_last) return "a varint is cut off";
    if (!is_whole) break;
    input->n_used = used;
    for (uint32_t i = 0; i < unit_bytes; i++) v->bytes[i] = (uint8_t)(value >> 8 * i);
    v->n_left = unit_bytes;
    made = hand_out(v, unit_bytes, dst, made, n_bytes);
  }
  *n_made = made;
  return NULL;
}

static uint64_t varint_held(const void *state) {
  (void)state;
  return sizeof(varint);
}

static const ckpt_stream_decoder varint_stream = {.n_least = MAX_VARINT_BYTES,
                                                  .max_unit_bytes = 8,
                                                  .open = varint_open,
                                                  .step = varint_step,
                                                  .held = varint_held,
                                                  .close = free};
const ckpt_decoder_row ckpt_decoder_varint = {.name = "varint", .stream = &varint_stream};
