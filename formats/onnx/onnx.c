/* onnx.c - one ONNX model, with the file of data outside that it may have.
 *
 * A protobuf message without magic: it is known by its fields, in the order in which every writer has them: 1 IR
 * version (a small number), texts 2, 3, 4, 6, version 5, and 7 the graph, or 8 the operators; docs/formats/onnx.md. */
#include "formats/onnx/onnx.h"

#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/format/recognize.h"
#include "libckpt/io/source.h"

#define ONNX_DTYPES (((UINT64_C(1) << CKPT_Q4_0) - 2) & ~(UINT64_C(1) << CKPT_F6_E2M3 | UINT64_C(1) << CKPT_F6_E3M2))

/* A varint; false where it goes past the end. */
static bool take(const uint8_t *head, size_t n_head, size_t *at, uint64_t *value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64 && *at < n_head; shift += 7) {
    const uint8_t byte = head[(*at)++];
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* Whether the first bytes are a model's up to its graph or operators, or as far as they are there. */
static bool is_model(const ckpt_probe *p) {
  enum {
    MAX_IR = 200,
    TEXTS = 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6,
    GRAPH = 7,
    OPERATORS = 8,
    INNER = 1 << 1 | 1 << 2 | 1 << 5
  };
  size_t at = 0;
  uint64_t tag, value;
  if (!take(p->head, p->n_head, &at, &tag) || tag != ckpt_wire_tag(1, CKPT_WIRE_VARINT)) return false;
  if (!take(p->head, p->n_head, &at, &value) || value == 0 || value > MAX_IR) return false;
  for (uint64_t last = 1;;) {
    if (!take(p->head, p->n_head, &at, &tag)) return false;
    const uint64_t number = tag >> 3, type = tag & 7;
    if (number <= last || number > OPERATORS || !take(p->head, p->n_head, &at, &value)) return false;
    last = number;
    if (number == 5 && type == CKPT_WIRE_VARINT) continue;
    if (type != CKPT_WIRE_BYTES) return false;
    if (number == OPERATORS) return value < 128 && at < p->n_head && (p->head[at] == 0x0A || p->head[at] == 0x10);
    if (number == GRAPH)
      return value != 0 && at < p->n_head && (p->head[at] & 7) == 2 && (INNER >> (p->head[at] >> 3) & 1);
    if (((TEXTS >> number) & 1) == 0) return false;
    if (value > p->n_head - at) return ckpt_text_ends(p->path, ".onnx"); /* a long text: its name has to say it */
    if (ckpt_utf8_length(p->head + at, (size_t)value) != value) return false;
    at += (size_t)value;
  }
}

/* A name counts where the content is not plainly something else: a page of a failed download, a pointer of Git LFS. */
static bool is_named(const ckpt_probe *p) {
  if (p->n_bytes == 0 || !ckpt_text_ends(p->path, ".onnx")) return false;
  const char *content = ckpt_content_of(p->head, p->n_head).name;
  return content == NULL || strcmp(content, "an ONNX model") == 0;
}

static bool is_entry(const ckpt_entry *entry) {
  return !entry->is_folder && entry->name[0] != '.' && ckpt_text_ends(entry->name, ".onnx");
}

static bool probe_folder(const ckpt_probe *p) {
  for (size_t i = 0; i < p->n_entries; i++)
    if (is_entry(&p->entries[i])) return true;
  return false;
}

static bool probe(const ckpt_probe *p) { return p->is_folder ? probe_folder(p) : is_model(p) || is_named(p); }

/* The one model in a folder; several are an error that lists them. */
static ckpt_status find_model(const ckpt_probe *p, const char **name, ckpt_error *err) {
  char list[512] = "";
  size_t n_models = 0;
  for (size_t i = 0; i < p->n_entries; i++) {
    if (!is_entry(&p->entries[i])) continue;
    *name = p->entries[i].name;
    n_models++;
    ckpt_text_list_add(list, sizeof list, *name);
  }
  if (n_models == 1) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, p->path, NULL, "holds %zu ONNX models, name one of them:%s", n_models, list);
}

static ckpt_status read_index(ckpt_index *index, const ckpt_probe *p, const char *name,
                              const ckpt_open_options *options, ckpt_error *err) {
  if (p->is_folder) CKPT_TRY(find_model(p, &name, err));
  return ckpt_onnx_read(index, name, options, err);
}

const ckpt_format ckpt_format_onnx = {
    .name = "onnx",
    .suffixes = ".onnx",
    .caps = {.can_write = true, .graph = true, .dtypes = ONNX_DTYPES, .max_rank = CKPT_MAX_RANK},
    .options = ckpt_onnx_options,
    .probe = probe,
    .read = read_index,
    .normalize = ckpt_onnx_normalize,
    .keeps_dtype = ckpt_onnx_keeps_dtype,
    .layout = ckpt_onnx_layout,
    .verify = ckpt_onnx_verify,
};
