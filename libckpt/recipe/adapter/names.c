/* names.c - see names.h.
 *
 * PEFT saves `base_model.model.<module>.lora_A.weight`: the adapter's name, which stands behind lora_A in the module
 * itself, is taken out, though not by every version and every tool. */
#include "libckpt/recipe/adapter/names.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"

static const char *const prefixes[] = {"base_model.model.", "module.", "_orig_mod."};
static const char *const wrappers[] = {"_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."};

/* Takes every whole component `part` out of a path. */
static void take_out(char *path, const char *part) {
  const size_t n = strlen(part);
  for (char *at = path; (at = strstr(at, part)) != NULL;) {
    if (at == path || at[-1] == '.')
      memmove(at, at + n, strlen(at + n) + 1);
    else
      at += n;
  }
}

static void strip(char *path) {
  for (bool is_changed = true; is_changed;) {
    is_changed = false;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
      const size_t n = strlen(prefixes[i]);
      if (strncmp(path, prefixes[i], n) != 0) continue;
      memmove(path, path + n, strlen(path + n) + 1);
      is_changed = true;
    }
  }
  for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) take_out(path, wrappers[i]);
}

/* Whether what follows the part's own component is [.<adapter's name>][.weight]. */
static bool ends_well(const char *rest, const char *leaf) {
  const char *dot;
  if (*rest == '\0') return *leaf == '\0';
  if (strcmp(rest + 1, leaf) == 0) return true;
  dot = strchr(rest + 1, '.');
  return dot == NULL ? *leaf == '\0' : strcmp(dot + 1, leaf) == 0;
}

typedef struct part_row {
  const char *component; /* ".lora_A" */
  const char *leaf;      /* what ends the name: "weight"; "": nothing */
  ckpt_adapter_part part;
  bool is_embedding;
} part_row;

static const part_row rows[] = {
    {".lora_A", "weight", CKPT_ADAPTER_INPUT, false},
    {".lora_B", "weight", CKPT_ADAPTER_OUTPUT, false},
    {".lora_B", "bias", CKPT_ADAPTER_BIAS, false},
    {".lora_embedding_A", "", CKPT_ADAPTER_INPUT, true},
    {".lora_embedding_B", "", CKPT_ADAPTER_OUTPUT, true},
    {".lora_magnitude_vector", "", CKPT_ADAPTER_MAGNITUDE, false},
    {".lora_magnitude_vector", "weight", CKPT_ADAPTER_MAGNITUDE, false},
    {".token_adapter.trainable_tokens_delta", "", CKPT_ADAPTER_ROWS, false},
};

/* The last place of a component in a path: it ends there, or at a dot. */
static char *find_component(char *path, const char *component) {
  char *found = NULL;
  const size_t n = strlen(component);
  for (char *at = path; (at = strstr(at, component)) != NULL; at += n)
    if (at[n] == '\0' || at[n] == '.') found = at;
  return found;
}

/* A tensor that takes another's place: saved with the module, or the layer below an adapter's. */
static void parse_whole(ckpt_adapter_name *out) {
  char *at = find_component(out->module, ".modules_to_save");
  out->part = CKPT_ADAPTER_WHOLE;
  out->is_ignored = find_component(out->module, ".original_module") != NULL;
  if (at != NULL) { /* .modules_to_save.<adapter's name>.weight */
    char *rest = at + sizeof ".modules_to_save" - 1, *dot = *rest == '.' ? strchr(rest + 1, '.') : NULL;
    if (dot != NULL) rest = dot;
    memmove(at, rest, strlen(rest) + 1);
  }
  out->is_below = strstr(out->module, ".base_layer.") != NULL;
  take_out(out->module, "token_adapter.");
  take_out(out->module, "base_layer.");
  memcpy(out->wanted, out->module, strlen(out->module) + 1);
}

ckpt_status ckpt_adapter_name_parse(ckpt_adapter_name *out, const char *name, ckpt_error *err) {
  *out = (ckpt_adapter_name){0};
  if (strlen(name) >= sizeof out->module - sizeof ".weight")
    return ckpt_fail(err, CKPT_ELIMIT, NULL, NULL, "a name of %zu bytes", strlen(name));
  memcpy(out->module, name, strlen(name) + 1);
  strip(out->module);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *at = find_component(out->module, rows[i].component);
    if (at == NULL || !ends_well(at + strlen(rows[i].component), rows[i].leaf)) continue;
    *at = '\0';
    while (ckpt_adapter_ends_with(out->module, "base_layer") && (at = strrchr(out->module, '.')) != NULL) {
      *at = '\0';
      out->n_below++;
    }
    if ((at = strstr(out->module, ".base_layer.")) != NULL) out->n_wrapper = (size_t)(at - out->module);
    take_out(out->module, "base_layer.");
    out->part = rows[i].part;
    out->is_embedding = rows[i].is_embedding;
    snprintf(out->wanted, sizeof out->wanted, "%.*s.%s", CKPT_ADAPTER_NAME - 8, out->module,
             rows[i].part == CKPT_ADAPTER_BIAS ? "bias" : "weight");
    return CKPT_OK;
  }
  if (strstr(out->module, ".lora_") != NULL || strstr(out->module, ".token_adapter.trainable_") != NULL ||
      strstr(out->module, ".hada_") != NULL || strstr(out->module, ".lokr_") != NULL ||
      strstr(out->module, ".ia3_") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no part of a LoRA module that is merged");
  parse_whole(out);
  return CKPT_OK;
}

bool ckpt_adapter_ends_with(const char *module, const char *name) {
  const size_t n = strlen(module), n_name = strlen(name);
  return n >= n_name && strcmp(module + n - n_name, name) == 0 && (n == n_name || module[n - n_name - 1] == '.');
}

/* ---- in the base ------------------------------------------------------------------------------------------------- */

static ckpt_adapter_place find_name(const ckpt_index *base, const char *name) {
  ckpt_adapter_place place = {.tensor = ckpt_index_find(base, name)};
  if (place.tensor == NULL) return place;
  place.name = place.tensor->name;
  const char *const *alias = place.tensor->aliases;
  for (; strcmp(place.name, name) != 0 && alias != NULL && *alias != NULL; alias++) place.name = *alias;
  return place;
}

/* The name, with a prefix, or without it. */
static ckpt_adapter_place find_prefixed(const ckpt_index *base, const char *wanted, const char *prefix) {
  char name[CKPT_ADAPTER_NAME + 64];
  const size_t n = strlen(prefix);
  if (n == 0 || strncmp(wanted, prefix, n) == 0) return find_name(base, wanted + n);
  if ((size_t)snprintf(name, sizeof name, "%s%s", prefix, wanted) >= sizeof name) return (ckpt_adapter_place){0};
  return find_name(base, name);
}

/* Whether a tensor's name begins so. */
static bool has_prefix(const ckpt_index *base, const char *prefix, size_t n) {
  uint32_t low = 0, high = base->n_tensors;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    if (strncmp(base->tensors[base->by_name[middle]].name, prefix, n) < 0)
      low = middle + 1;
    else
      high = middle;
  }
  return low < base->n_tensors && strncmp(base->tensors[base->by_name[low]].name, prefix, n) == 0;
}

/* The name without its first component, where the base is a bare model: no name of it begins with that. */
static ckpt_adapter_place find_bare(const ckpt_index *base, const char *wanted) {
  const char *dot = strchr(wanted, '.');
  if (dot == NULL || strchr(dot + 1, '.') == NULL || has_prefix(base, wanted, (size_t)(dot + 1 - wanted)))
    return (ckpt_adapter_place){0};
  return find_name(base, dot + 1);
}

/* A checkpoint of the bare model lacks a prefix that its class with a head has, or the reverse. */
static ckpt_adapter_place find_any(const ckpt_index *base, const char *wanted) {
  static const char *const usual[] = {"", "model.", "transformer.", "bert.", "roberta."};
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  ckpt_adapter_place found = find_name(base, wanted);
  if (arch != NULL && found.tensor == NULL && arch->base_prefix != NULL)
    return find_prefixed(base, wanted, arch->base_prefix);
  for (size_t i = 1; arch == NULL && found.tensor == NULL && i < sizeof usual / sizeof *usual; i++)
    found = find_prefixed(base, wanted, usual[i]);
  return arch == NULL && found.tensor == NULL ? find_bare(base, wanted) : found;
}

/* What transformers calls otherwise than files do. */
static bool as_stored(char name[CKPT_ADAPTER_NAME + 64], const ckpt_index *base, const char *wanted) {
  static const char fused[] = ".mlp.", stored[] = ".block_sparse_moe.";
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  for (const ckpt_arch_joined *row = arch == NULL ? NULL : arch->joined; row != NULL && row->hf != NULL; row++)
    if (strcmp(row->hf, wanted) == 0 && row->parts[1] == NULL && strchr(row->parts[0], '#') == NULL)
      return ckpt_c_snprintf(name, CKPT_ADAPTER_NAME + 64, "%s", row->parts[0]) > 0;
  const char *at = strstr(wanted, fused);
  return at != NULL && (size_t)snprintf(name, CKPT_ADAPTER_NAME + 64, "%.*s%s%s", (int)(at - wanted), wanted, stored,
                                        at + sizeof fused - 1) < CKPT_ADAPTER_NAME + 64;
}

ckpt_adapter_place ckpt_adapter_find(const ckpt_index *base, const char *wanted) {
  const ckpt_adapter_place found = find_any(base, wanted);
  char name[CKPT_ADAPTER_NAME + 64];
  return found.tensor == NULL && as_stored(name, base, wanted) ? find_any(base, name) : found;
}
