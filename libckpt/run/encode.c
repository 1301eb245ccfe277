/* encode.c - see encode.h. zstd's framing is the same for the same libzstd version, level and input. */
#include "libckpt/run/encode.h"

#include <stdlib.h>
#define ZSTD_STATIC_LINKING_ONLY /* ZSTD_estimateCStreamSize */
#include <zstd.h>
#include <zstd_errors.h>

#include "libckpt/base/crc32.h"
#include "libckpt/base/error.h"

enum { BUFFER_BYTES = 256 << 10, WINDOW_BYTES = 64 << 10 };

struct ckpt_lane {
  ckpt_output *output;
  uint32_t file, next; /* next: segment that is being written or comes next */
  uint64_t at;         /* in the file */
  uint64_t begin;      /* of the open frame, or segment without one, in the file */
  uint64_t n_left;     /* raw bytes that the open segment still expects */
  uint32_t n_parts;    /* segments that the open frame still expects, the open one included */
  bool is_open;
  ZSTD_CCtx *zstd;
  uint8_t buffer[BUFFER_BYTES], window[WINDOW_BYTES]; /* of what zstd makes; of what is printed */
};

_Static_assert(sizeof(ckpt_lane) <= CKPT_LANE_BYTES, "the plan counts a lane's memory");

ckpt_status ckpt_lane_new(ckpt_lane **out, ckpt_output *output, uint32_t file, ckpt_error *err) {
  ckpt_lane *lane = malloc(sizeof *lane);
  CKPT_TRY_ALLOC(lane, err);
  *lane = (ckpt_lane){.output = output, .file = file, .zstd = ZSTD_createCCtx()};
  *out = lane;
  if (lane->zstd != NULL) return CKPT_OK;
  ckpt_lane_free(lane);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_lane_free(ckpt_lane *lane) {
  if (lane == NULL) return;
  ZSTD_freeCCtx(lane->zstd);
  free(lane);
}

ckpt_status ckpt_lane_of(ckpt_lane **out, ckpt_plan *plan, uint32_t number, ckpt_error *err) {
  uint32_t file = number - 1, output = 0;
  while (file >= plan->outputs[output].layout.n_files) file -= plan->outputs[output++].layout.n_files;
  return ckpt_lane_new(out, &plan->outputs[output], file, err);
}

bool ckpt_lane_holds(const ckpt_lane *lane, const ckpt_output *output, uint32_t file) {
  return lane->output == output && lane->file == file;
}

static ckpt_status put(ckpt_lane *lane, const void *bytes, size_t n_bytes, ckpt_error *err) {
  CKPT_TRY(ckpt_sink_write(lane->output->sink, lane->file, lane->at, bytes, n_bytes, err));
  lane->at += n_bytes;
  return CKPT_OK;
}

static ckpt_status check(size_t result, ckpt_error *err) {
  if (!ZSTD_isError(result)) return CKPT_OK;
  if (ZSTD_getErrorCode(result) == ZSTD_error_memory_allocation)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "zstd: %s", ZSTD_getErrorName(result));
}

static ckpt_status encode(ckpt_lane *lane, const void *bytes, size_t n_bytes, ZSTD_EndDirective how, ckpt_error *err) {
  ZSTD_inBuffer in = {bytes, n_bytes, 0};
  for (size_t n_left = 1; n_left != 0 || in.pos < in.size;) {
    ZSTD_outBuffer out = {lane->buffer, BUFFER_BYTES, 0};
    n_left = ZSTD_compressStream2(lane->zstd, &out, &in, how);
    CKPT_TRY(check(n_left, err));
    CKPT_TRY(put(lane, lane->buffer, out.pos, err));
    if (how == ZSTD_e_continue && in.pos == in.size) break;
  }
  return CKPT_OK;
}

/* The next raw bytes of the open segment. */
static ckpt_status put_raw(void *arg, const void *bytes, size_t n_bytes, ckpt_error *err) {
  ckpt_lane *lane = arg;
  const ckpt_segment *segment = &lane->output->layout.files[lane->file].segments[lane->next];
  return segment->encoder == CKPT_ENCODE_RAW ? put(lane, bytes, n_bytes, err)
                                             : encode(lane, bytes, n_bytes, ZSTD_e_continue, err);
}

/* Begins the frame of n segments from the next one on. */
static ckpt_status open_frame(ckpt_lane *lane, const ckpt_segment *segments, uint32_t n, ckpt_error *err) {
  uint64_t n_raw = 0;
  for (uint32_t i = 0; i < n; i++) n_raw += segments[i].n_raw;
  size_t results[] = {ZSTD_CCtx_reset(lane->zstd, ZSTD_reset_session_and_parameters),
                      ZSTD_CCtx_setParameter(lane->zstd, ZSTD_c_compressionLevel, segments[0].level),
                      ZSTD_CCtx_setParameter(lane->zstd, ZSTD_c_checksumFlag, 1),
                      ZSTD_CCtx_setPledgedSrcSize(lane->zstd, n_raw)};
  for (size_t i = 0; i < sizeof results / sizeof *results; i++) CKPT_TRY(check(results[i], err));
  return CKPT_OK;
}

static ckpt_status open_segment(ckpt_lane *lane, ckpt_segment *segment, ckpt_error *err) {
  segment->crc32 = 0;
  lane->n_left = segment->n_raw;
  lane->is_open = true;
  if (segment->is_joined) return CKPT_OK;
  const ckpt_layout_file *file = &lane->output->layout.files[lane->file];
  lane->begin = lane->at;
  lane->n_parts = 1;
  while (lane->next + lane->n_parts < file->n_segments && segment[lane->n_parts].is_joined) lane->n_parts++;
  return segment->encoder == CKPT_ENCODE_RAW ? CKPT_OK : open_frame(lane, segment, lane->n_parts, err);
}

/* Ends the open segment, and with the last of a frame the frame: then its size is known. */
static ckpt_status close_segment(ckpt_lane *lane, ckpt_error *err) {
  lane->is_open = false;
  lane->next++;
  if (--lane->n_parts != 0) return CKPT_OK;
  ckpt_segment *segment = &lane->output->layout.files[lane->file].segments[lane->next];
  if (segment[-1].encoder != CKPT_ENCODE_RAW) CKPT_TRY(encode(lane, NULL, 0, ZSTD_e_end, err));
  do {
    segment--;
    segment->offset = lane->begin;
    segment->n_bytes = lane->at - lane->begin;
  } while (segment->is_joined);
  return CKPT_OK;
}

static ckpt_status print(ckpt_lane *lane, ckpt_segment *segment, ckpt_error *err) {
  ckpt_stream out;
  ckpt_stream_function(&out, put_raw, lane, lane->window, WINDOW_BYTES, err);
  segment->print(&lane->output->layout, segment->arg, &out);
  return ckpt_segment_printed(segment, &out, err);
}

/* Writes segments that need no tensor bytes, up to the next one that does (or a footer). All before a trailer is
 * written by then. */
static ckpt_status advance(ckpt_lane *lane, ckpt_error *err) {
  ckpt_layout_file *file = &lane->output->layout.files[lane->file];
  while (lane->next < file->n_segments && !lane->is_open) {
    ckpt_segment *segment = &file->segments[lane->next];
    if (segment->kind == CKPT_SEGMENT_FOOTER) return CKPT_OK;
    if (segment->kind == CKPT_SEGMENT_SIDE_FILE)
      return ckpt_fail(err, CKPT_EINTERNAL, file->name, NULL, "a side file behind an encoder");
    CKPT_TRY(open_segment(lane, segment, err));
    if (segment->kind != CKPT_SEGMENT_TENSOR)
      CKPT_TRY(print(lane, segment, err));
    else if (segment->n_raw != 0)
      return CKPT_OK;
    CKPT_TRY(close_segment(lane, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_lane_take(ckpt_lane *lane, const ckpt_segment *wanted, const void *bytes, size_t n_bytes,
                           ckpt_error *err) {
  CKPT_TRY(advance(lane, err));
  ckpt_layout_file *file = &lane->output->layout.files[lane->file];
  ckpt_segment *segment = lane->is_open ? &file->segments[lane->next] : NULL;
  if (segment == NULL || segment != wanted || n_bytes > lane->n_left)
    return ckpt_fail(err, CKPT_EINTERNAL, file->name, NULL, "encoded tensors out of order (%u)", wanted->tensor);
  if (segment->checksum == CKPT_CHECKSUM_CRC32) segment->crc32 = ckpt_crc32(segment->crc32, bytes, n_bytes);
  CKPT_TRY(put_raw(lane, bytes, n_bytes, err));
  lane->n_left -= n_bytes;
  return lane->n_left == 0 ? close_segment(lane, err) : CKPT_OK;
}

ckpt_status ckpt_lane_finish(ckpt_lane *lane, ckpt_error *err) {
  CKPT_TRY(advance(lane, err));
  if (lane->is_open) return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "an encoded tensor is not complete");
  return CKPT_OK;
}
