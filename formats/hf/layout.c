/* layout.c - a Hugging Face folder as transformers 5 writes it: shards cut as huggingface_hub cuts them, tensors in
 * byte order of names, then the index file, then side files, with the dtype in config.json following what was written.
 *
 * The index file is what Python's json.dumps(index, indent=2, sort_keys=True) and a line feed give: keys in order of
 * code points, which is byte order, and ASCII only. */
#include <stdio.h>
#include <string.h>

#include "formats/hf/hf.h"
#include "libckpt/base/error.h"
#include "libckpt/codec/safetensors/safetensors.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/index/arch.h"

#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)

typedef unsigned long long ull;

#define WHOLE "model.safetensors"
#define INDEX "model" CKPT_HF_INDEX_SUFFIX
#define ADAPTER "adapter_model.safetensors"

/* How tensors fall into shards. */
typedef struct shards {
  uint32_t *of;      /* shard of each tensor number, from 0 */
  uint32_t *tensors; /* numbers, those of one shard beside each other */
  uint32_t *first;   /* n + 1 places in tensors */
  uint32_t n;
} shards;

/* ---- cutting ---- */

/* huggingface_hub's rule: a tensor above the limit is a shard by itself; else the current shard is closed when the
 * tensor no longer fits. Shards are numbered when they are closed, so one large tensor comes before what is open. */
static ckpt_status cut(shards *s, const ckpt_index *index, uint64_t limit, ckpt_arena *arena, ckpt_error *err) {
  uint32_t n = index->n_tensors, n_groups = 1;
  s->of = ckpt_arena_array(arena, n, sizeof *s->of);
  uint32_t *closed = ckpt_arena_array(arena, (size_t)n + 1, sizeof *closed); /* shard of each group */
  if (s->of == NULL || closed == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  uint32_t open = 0; /* the group that takes what fits */
  uint64_t n_open = 0;
  bool is_used = false;
  for (uint32_t i = 0; i < n; i++) {
    uint32_t number = index->by_name[i];
    uint64_t n_bytes = index->tensors[number].n_bytes;
    if (n_bytes > limit) {
      closed[n_groups] = s->n++;
      s->of[number] = n_groups++;
      continue;
    }
    if (n_bytes > limit - n_open) {
      closed[open] = s->n++;
      open = n_groups++;
      n_open = 0;
    }
    s->of[number] = open;
    n_open += n_bytes;
    is_used = true;
  }
  if (is_used) closed[open] = s->n++;
  for (uint32_t i = 0; i < n; i++) s->of[i] = closed[s->of[i]];
  if (s->n == 0) s->n = 1; /* a model without tensors */
  return CKPT_OK;
}

/* Lists each shard's tensors. */
static ckpt_status list(shards *s, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  s->tensors = ckpt_arena_array(arena, index->n_tensors, sizeof *s->tensors);
  s->first = ckpt_arena_array(arena, (size_t)s->n + 2, sizeof *s->first);
  if (s->tensors == NULL || s->first == NULL) return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  uint32_t *next = s->first + 1; /* next[k] ends as first[k + 1] */
  for (uint32_t i = 0; i < index->n_tensors; i++) next[s->of[i] + 1]++;
  for (uint32_t k = 1; k <= s->n; k++) next[k] += next[k - 1];
  for (uint32_t i = 0; i < index->n_tensors; i++) s->tensors[next[s->of[i]]++] = i;
  return CKPT_OK;
}

/* ---- the index file ---- */

/* Text as json.dumps prints it: non-ASCII characters as UTF-16 escapes. The text is UTF-8 (ckpt_index_add). */
static void print_ascii(ckpt_stream *out, const char *text) {
  const uint8_t *at = (const uint8_t *)text;
  ckpt_stream_text(out, "\"");
  while (*at != 0) {
    const uint8_t *run = at;
    while (*at >= 0x20 && *at < 0x80 && *at != '"' && *at != '\\') at++;
    ckpt_stream_bytes(out, run, (size_t)(at - run));
    if (*at == 0) break;
    uint32_t code = *at++;
    static const char special[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    const char *found = code < 0x80 ? strchr(special, (int)code) : NULL;
    int n_more = code >= 0xF0 ? 3 : code >= 0xE0 ? 2 : code >= 0xC0 ? 1 : 0;
    if (n_more != 0) code &= 0x3Fu >> n_more;
    for (; n_more > 0; n_more--) code = code << 6 | (*at++ & 0x3F);
    if (found != NULL)
      ckpt_stream_printf(out, "\\%c", letters[found - special]);
    else if (code < 0x10000)
      ckpt_stream_printf(out, "\\u%04x", (unsigned)code);
    else
      ckpt_stream_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD7C0 + (code >> 10)), (unsigned)(0xDC00 + (code & 0x3FF)));
  }
  ckpt_stream_text(out, "\"");
}

static void print_index(const ckpt_layout *layout, const void *arg, ckpt_stream *out) {
  const shards *s = arg;
  const ckpt_index *index = layout->index;
  uint64_t n_parameters = 0, n_bytes = 0;
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    if (index->tensors[i].role == CKPT_ROLE_PARAMETER) n_parameters += index->tensors[i].n_elements;
    n_bytes += index->tensors[i].n_bytes;
  }
  ckpt_stream_printf(out, "{\n  \"metadata\": {\n    \"total_parameters\": %llu,\n    \"total_size\": %llu\n  },\n",
                     (ull)n_parameters, (ull)n_bytes);
  ckpt_stream_text(out, "  \"weight_map\": {");
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    uint32_t number = index->by_name[i];
    ckpt_stream_text(out, i == 0 ? "\n    " : ",\n    ");
    print_ascii(out, index->tensors[number].name);
    ckpt_stream_printf(out, ": \"model-%05u-of-%05u.safetensors\"", s->of[number] + 1, s->n);
  }
  ckpt_stream_text(out, "\n  }\n}\n");
}

/* ---- the folder ---- */

enum { SHARD_NAME_BYTES = 64 };

/* Whether the weights are a PEFT adapter's: of these PEFT reads one file, by its own name. */
static bool is_adapter(const ckpt_index *index) {
  return ckpt_index_side_file(index, "adapter_config.json") != NULL &&
         ckpt_index_side_file(index, "config.json") == NULL;
}

static void print_shard_name(char out[SHARD_NAME_BYTES], uint32_t number, uint32_t n) {
  if (n == 1)
    memcpy(out, WHOLE, sizeof WHOLE);
  else
    snprintf(out, SHARD_NAME_BYTES, "model-%05u-of-%05u.safetensors", number, n);
}

/* How many files a model's weights are that a file of this name is one of; 0: of none. */
static unsigned set_of(const char *name) {
  char shard[SHARD_NAME_BYTES];
  unsigned number, n;
  if (strcmp(name, WHOLE) == 0) return 1;
  if (sscanf(name, "model-%9u-of-%9u", &number, &n) != 2 || n < 2 || number < 1 || number > n) return 0;
  print_shard_name(shard, number, n);
  return strcmp(name, shard) == 0 ? n : 0;
}

/* Shards of two models, or a whole one beside shards or an adapter, are not what one run wrote, nor is a set of which
 * any is missing: a lone shard may be all that is left of something else. An adapter's one file has one name: it is
 * replaced by itself alone, and it takes no model's place. */
void ckpt_hf_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours) {
  unsigned set = 0, n_found = 0;
  bool is_model = false;
  for (uint32_t i = 0; i < written->n_names; i++) is_model = is_model || set_of(written->names[i]) != 0;
  for (uint32_t i = 0; i < n; i++) {
    unsigned found = set_of(names[i]);
    if (strcmp(names[i], ADAPTER) == 0 || (found != 0 && set != 0 && found != set)) return;
    if (found != 0) set = found, n_found++;
  }
  if (!is_model || n_found == 0 || n_found != set) return;
  for (uint32_t i = 0; i < n; i++) is_ours[i] = set_of(names[i]) != 0 || strcmp(names[i], INDEX) == 0;
}

/* The index's metadata with format "pt", without which transformers refuses a file. */
static ckpt_status make_metadata(ckpt_meta **out, uint32_t *n, const ckpt_layout *layout, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  ckpt_meta *metadata = ckpt_arena_array(layout->arena, (size_t)index->n_metadata + 1, sizeof *metadata);
  CKPT_TRY_ALLOC(metadata, err);
  *n = 0;
  metadata[(*n)++] = (ckpt_meta){.key = "format", .value = "pt"};
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (strcmp(index->metadata[i].key, "format") != 0) metadata[(*n)++] = index->metadata[i];
  *out = metadata;
  return CKPT_OK;
}

/* The shards of a folder's tensors; of an adapter there is one. */
static ckpt_status make_shards(shards *s, const ckpt_layout *layout, uint64_t limit, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  uint64_t otherwise = is_adapter(index) ? UINT64_MAX : DEFAULT_SHARD_BYTES;
  CKPT_TRY(cut(s, index, limit != 0 ? limit : otherwise, layout->arena, err));
  if (s->n > 1 && is_adapter(index))
    return ckpt_advise(
        ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                  "an adapter is one file, " ADAPTER ", and %llu bytes a shard would make it %u", (ull)limit, s->n),
        err, "leave out %shard_size");
  return list(s, index, layout->arena, err);
}

ckpt_status ckpt_hf_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err) {
  const ckpt_index *index = layout->index;
  shards *s = ckpt_arena_alloc(layout->arena, sizeof *s);
  CKPT_TRY_ALLOC(s, err);
  ckpt_meta *metadata = NULL;
  uint32_t n_metadata = 0;
  CKPT_TRY(make_metadata(&metadata, &n_metadata, layout, err));
  CKPT_TRY(make_shards(s, layout, options->shard_size, err));
  layout->is_folder = true;
  for (uint32_t k = 0; k < s->n; k++) {
    char name[SHARD_NAME_BYTES];
    print_shard_name(name, k + 1, s->n);
    CKPT_TRY(ckpt_layout_file_add(layout, is_adapter(index) ? ADAPTER : name, err));
    layout->files[layout->n_files - 1].rank = k;
    CKPT_TRY(ckpt_safetensors_lay(layout, s->tensors + s->first[k], s->first[k + 1] - s->first[k], metadata, n_metadata,
                                  err));
  }
  if (s->n > 1) {
    CKPT_TRY(ckpt_layout_file_add(layout, INDEX, err));
    CKPT_TRY(ckpt_layout_literal(layout, print_index, s, err));
  }
  for (uint32_t i = 0; i < index->n_side_files; i++)
    CKPT_TRY(ckpt_side_file_lay(layout, &index->side_files[i], options->dtype_written, err));
  return CKPT_OK;
}

/* A tie that config.json states needs no second name in the file: whoever reads the folder ties again. */
ckpt_status ckpt_hf_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err) {
  (void)losses;
  for (uint32_t i = 0; i < described->n_tensors; i++) {
    ckpt_tensor *tensor = &described->tensors[i];
    uint32_t n = 0, n_kept = 0;
    while (tensor->aliases != NULL && tensor->aliases[n] != NULL) n++;
    if (n == 0) continue;
    const char **kept = ckpt_arena_array(&described->arena, (size_t)n + 1, sizeof *kept);
    CKPT_TRY_ALLOC(kept, err);
    for (uint32_t k = 0; k < n; k++)
      if (!ckpt_arch_states_tie(described, tensor->name, tensor->aliases[k])) kept[n_kept++] = tensor->aliases[k];
    tensor->aliases = n_kept == 0 ? NULL : kept;
    described->n_aliases -= n - n_kept;
  }
  return CKPT_OK;
}
