/* lay.c - a safetensors header as the reference library (crate 0.8.0) prints it, byte for byte.
 *
 * Order: dtype, the largest of the crate's enum first, then name; so every tensor is aligned to its element size where
 * the payload is. Compact JSON, non-ASCII text as UTF-8, padded with spaces to a multiple of 8. The crate's metadata is
 * a hash map of random order: ours is sorted by key. */
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/codec/safetensors/safetensors.h"

/* Names in a header, and places in the crate's enum from 1 on; zero is what safetensors lacks. */
static const struct {
  const char *name;
  int place;
} dtypes[CKPT_N_DTYPES] = {
    [CKPT_BOOL] = {"BOOL", 1},
    [CKPT_F4_E2M1] = {"F4", 2},
    [CKPT_F6_E2M3] = {"F6_E2M3", 3},
    [CKPT_F6_E3M2] = {"F6_E3M2", 4},
    [CKPT_U8] = {"U8", 5},
    [CKPT_I8] = {"I8", 6},
    [CKPT_F8_E5M2] = {"F8_E5M2", 7},
    [CKPT_F8_E4M3] = {"F8_E4M3", 8},
    [CKPT_F8_E8M0] = {"F8_E8M0", 9},
    [CKPT_F8_E4M3FNUZ] = {"F8_E4M3FNUZ", 10},
    [CKPT_F8_E5M2FNUZ] = {"F8_E5M2FNUZ", 11},
    [CKPT_I16] = {"I16", 12},
    [CKPT_U16] = {"U16", 13},
    [CKPT_F16] = {"F16", 14},
    [CKPT_BF16] = {"BF16", 15},
    [CKPT_I32] = {"I32", 16},
    [CKPT_U32] = {"U32", 17},
    [CKPT_F32] = {"F32", 18},
    [CKPT_C64] = {"C64", 19},
    [CKPT_F64] = {"F64", 20},
    [CKPT_I64] = {"I64", 21},
    [CKPT_U64] = {"U64", 22},
};

ckpt_dtype ckpt_safetensors_dtype_parse(const char *name) {
  for (int i = 0; i < CKPT_N_DTYPES; i++)
    if (dtypes[i].place != 0 && strcmp(dtypes[i].name, name) == 0) return (ckpt_dtype)i;
  return CKPT_DTYPE_NONE;
}

/* What the header is printed from. */
typedef struct header {
  const uint32_t *tensors;
  uint32_t n;
  const ckpt_meta *metadata; /* NULL: the header has no __metadata__ */
  uint32_t n_metadata;
  uint64_t n_json; /* before padding */
} header;

static void print_key(ckpt_stream *out, const char *text) {
  ckpt_stream_json(out, text, strlen(text));
  ckpt_stream_text(out, ":");
}

static void print_json(const ckpt_layout *layout, const header *h, ckpt_stream *out) {
  const char *comma = "";
  ckpt_stream_text(out, "{");
  if (h->metadata != NULL) ckpt_stream_text(out, "\"__metadata__\":{");
  for (uint32_t i = 0; i < h->n_metadata; i++) {
    if (i != 0) ckpt_stream_text(out, ",");
    print_key(out, h->metadata[i].key);
    ckpt_stream_json(out, h->metadata[i].value, strlen(h->metadata[i].value));
  }
  if (h->metadata != NULL) {
    ckpt_stream_text(out, "}");
    comma = ",";
  }
  uint64_t at = 0;
  for (uint32_t i = 0; i < h->n; i++, comma = ",") {
    const ckpt_tensor *tensor = &layout->index->tensors[h->tensors[i]];
    ckpt_stream_text(out, comma);
    print_key(out, tensor->name);
    ckpt_stream_printf(out, "{\"dtype\":\"%s\",\"shape\":[", dtypes[tensor->dtype].name);
    for (uint32_t axis = 0; axis < tensor->rank; axis++)
      ckpt_stream_printf(out, axis == 0 ? "%llu" : ",%llu", (unsigned long long)tensor->shape[axis]);
    ckpt_stream_printf(out, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                       (unsigned long long)(at + tensor->n_bytes));
    at += tensor->n_bytes; /* ckpt_layout_finish refuses a sum that does not fit */
  }
  ckpt_stream_text(out, "}");
}

static uint64_t padding(uint64_t n_json) { return (8 - n_json % 8) % 8; }

static void print_header(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const header *h = arg;
  ckpt_stream_le(out, h->n_json + padding(h->n_json), 8);
  print_json(layout, h, out);
  ckpt_stream_fill(out, ' ', padding(h->n_json));
}

static int compare_tensors(const void *a, const void *b, void *tensors) {
  const ckpt_tensor *x = (const ckpt_tensor *)tensors + *(const uint32_t *)a;
  const ckpt_tensor *y = (const ckpt_tensor *)tensors + *(const uint32_t *)b;
  int order = dtypes[y->dtype].place - dtypes[x->dtype].place;
  return order != 0 ? order : strcmp(x->name, y->name);
}

static int compare_meta(const void *a, const void *b) {
  return strcmp(((const ckpt_meta *)a)->key, ((const ckpt_meta *)b)->key);
}

static ckpt_status check_tensors(const ckpt_layout *layout, const uint32_t *tensors, uint32_t n, ckpt_error *err) {
  if (n > CKPT_SAFETENSORS_MAX_TENSORS)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "%u tensors, a safetensors file holds at most %u (write shards)", n,
                     CKPT_SAFETENSORS_MAX_TENSORS);
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_tensor *tensor = &layout->index->tensors[tensors[i]];
    if (dtypes[tensor->dtype].place == 0)
      return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "safetensors has no %s",
                       ckpt_dtype_name(tensor->dtype));
    if (strcmp(tensor->name, "__metadata__") == 0)
      return ckpt_advise(
          ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "safetensors keeps this name for itself"), err,
          "%rename it");
  }
  return CKPT_OK;
}

ckpt_status ckpt_safetensors_lay(ckpt_layout *layout, uint32_t *tensors, uint32_t n, ckpt_meta *metadata,
                                 uint32_t n_metadata, ckpt_error *err) {
  CKPT_TRY(check_tensors(layout, tensors, n, err));
  if (n != 0) qsort_r(tensors, n, sizeof *tensors, compare_tensors, layout->index->tensors);
  if (n_metadata != 0) qsort(metadata, n_metadata, sizeof *metadata, compare_meta);
  header *h = ckpt_arena_alloc(layout->arena, sizeof *h);
  CKPT_TRY_ALLOC(h, err);
  *h = (header){.tensors = tensors, .n = n, .metadata = metadata, .n_metadata = n_metadata};
  ckpt_stream out;
  ckpt_stream_count(&out, err);
  print_json(layout, h, &out);
  CKPT_TRY(ckpt_stream_end(&out));
  h->n_json = out.n_bytes;
  if (h->n_json + padding(h->n_json) > CKPT_SAFETENSORS_MAX_HEADER)
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a header of %llu bytes, safetensors allows %llu (write shards)",
                     (unsigned long long)h->n_json, (unsigned long long)CKPT_SAFETENSORS_MAX_HEADER);
  CKPT_TRY(ckpt_layout_reserve(layout, n + 1, err));
  CKPT_TRY(ckpt_layout_literal(layout, print_header, h, err));
  for (uint32_t i = 0; i < n; i++) CKPT_TRY(ckpt_layout_tensor(layout, tensors[i], NULL, CKPT_CHECKSUM_NONE, err));
  return CKPT_OK;
}
