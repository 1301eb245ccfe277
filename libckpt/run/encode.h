/* encode.h - the lane of a file behind an encoder: one worker that writes it from front to back.
 *
 * The lane prints the file's literals and trailers as it passes them. It compresses each frame's segments into one zstd
 * frame with a pledged size, and sets each segment's offset and size for the footers. */
#ifndef CKPT_RUN_ENCODE_H
#define CKPT_RUN_ENCODE_H

#include "libckpt/plan/plan.h"

typedef struct ckpt_lane ckpt_lane;

/* The lane of one file of an output. */
ckpt_status ckpt_lane_new(ckpt_lane **out, ckpt_output *output, uint32_t file, ckpt_error *err);

/* The lane of the output's file that has this number (ckpt_lane_number). */
ckpt_status ckpt_lane_of(ckpt_lane **out, ckpt_plan *plan, uint32_t number, ckpt_error *err);

/* Whether what fills this segment goes through the lane. */
bool ckpt_lane_holds(const ckpt_lane *lane, const ckpt_output *output, uint32_t file);

/* The next bytes of a segment of the lane's file, in order. */
ckpt_status ckpt_lane_take(ckpt_lane *lane, const ckpt_segment *segment, const void *bytes, size_t n_bytes,
                           ckpt_error *err);

/* Everything after the last tensor, up to the first footer. */
ckpt_status ckpt_lane_finish(ckpt_lane *lane, ckpt_error *err);
void ckpt_lane_free(ckpt_lane *lane); /* NULL is fine */

#endif
