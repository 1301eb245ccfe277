/* sink_nothing.c - a sink whose bytes go nowhere: see sink.h. */
#include "libckpt/base/error.h"
#include "libckpt/io/sink.h"

static ckpt_status nothing_open(void *ctx, const ckpt_sink_file *files, uint32_t n_files, ckpt_error *err) {
  (void)ctx, (void)files, (void)n_files, (void)err;
  return CKPT_OK;
}

static ckpt_status nothing_write(void *ctx, uint32_t file, uint64_t offset, const void *src, size_t n_bytes,
                                 ckpt_error *err) {
  (void)ctx, (void)file, (void)offset, (void)src, (void)n_bytes, (void)err;
  return CKPT_OK;
}

static ckpt_status nothing_read(void *ctx, uint32_t file, uint64_t offset, void *dst, size_t n_bytes, ckpt_error *err) {
  (void)ctx, (void)dst;
  return ckpt_fail(err, CKPT_EINTERNAL, NULL, NULL, "%zu bytes at %llu of file %u were written nowhere", n_bytes,
                   (unsigned long long)offset, file);
}

static ckpt_status nothing_done(void *ctx, ckpt_error *err) {
  (void)ctx, (void)err;
  return CKPT_OK;
}

static void nothing_close(void *ctx) { (void)ctx; }

static const ckpt_sink_ops nothing = {
    .open = nothing_open,
    .write_at = nothing_write,
    .read_at = nothing_read,
    .seal = nothing_done,
    .publish = nothing_done,
    .abandon = nothing_close,
    .close = nothing_close,
};

ckpt_status ckpt_sink_nothing(ckpt_sink **out, ckpt_error *err) { return ckpt_sink_custom(out, &nothing, NULL, err); }
