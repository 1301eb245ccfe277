/* names.c - see names.h.
 *
 * PEFT saves `base_model.model.<module>.lora_A.weight`: the adapter's name, which stands behind lora_A in the module
 * itself, is taken out, though not by every version and every tool. */
#include "libckpt/recipe/adapter/names.h"

#include <stdio.h>
#include <string.h>

#include "libckpt/base/error.h"
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
    take_out(out->module, "base_layer.");
    out->part = rows[i].part;
    out->is_embedding = rows[i].is_embedding;
    snprintf(out->wanted, sizeof out->wanted, "%.*s.%s", CKPT_ADAPTER_NAME - 8, out->module,
             rows[i].part == CKPT_ADAPTER_BIAS ? "bias" : "weight");
    return CKPT_OK;
  }
  if (strstr(out->module, ".lora_") != NULL || strstr(out->module, ".hada_") != NULL ||
      strstr(out->module, ".lokr_") != NULL || strstr(out->module, ".ia3_") != NULL)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "no part of a LoRA module that is merged");
  parse_whole(out);
  return CKPT_OK;
}

const ckpt_tensor *ckpt_adapter_find_base(const ckpt_index *base, const char *wanted) {
  const ckpt_arch *arch = base->architecture != NULL ? ckpt_arch_find(base->architecture) : NULL;
  const char *prefix = arch != NULL ? arch->base_prefix : NULL;
  char name[CKPT_ADAPTER_NAME + 64];
  const ckpt_tensor *found = ckpt_index_find(base, wanted);
  if (found != NULL || prefix == NULL) return found;
  const size_t n = strlen(prefix);
  if (strncmp(wanted, prefix, n) == 0) return ckpt_index_find(base, wanted + n);
  if ((size_t)snprintf(name, sizeof name, "%s%s", prefix, wanted) >= sizeof name) return NULL;
  return ckpt_index_find(base, name);
}
