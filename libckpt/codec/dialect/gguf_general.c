/* gguf_general.c - a model's general.* as GGUF's metadata, as llama.cpp's converter writes it: its title by the folder,
 * how many parameters it has, and what generation_config.json says. See dialect.h. */
#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"

/* The last part of a path; of "." and ".." the name that the folder has. */
static char *folder_name(const char *path, ckpt_arena *arena) {
  char real[PATH_MAX];
  size_t n = strlen(path);
  while (n > 1 && path[n - 1] == '/') n--;
  size_t start = n;
  while (start > 0 && path[start - 1] != '/') start--;
  const bool is_dots = n - start != 0 && n - start <= 2 && strspn(path + start, ".") >= n - start;
  if (is_dots && realpath(path, real) != NULL && strcmp(real, "/") != 0) return folder_name(real, arena);
  return ckpt_arena_text(arena, path + start, n - start);
}

const char *ckpt_dialect_title(const char *path, ckpt_arena *arena) {
  char *out = folder_name(path, arena);
  if (out == NULL) return NULL;
  for (char *c = out; *c != '\0'; c++)
    if (*c == '-') *c = ' ';
  for (char *word = out; *word != '\0';) {
    const size_t n_word = strcspn(word, " ");
    bool is_lower = false, has_upper = false, is_after_letter = false;
    for (size_t i = 0; i < n_word; i++) {
      is_lower = is_lower || islower((unsigned char)word[i]);
      has_upper = has_upper || isupper((unsigned char)word[i]);
    }
    const bool is_version = isdigit((unsigned char)word[0]) ||
                            (word[0] == 'v' && n_word > 1 && strspn(word + 1, "0123456789.") >= n_word - 1);
    for (size_t i = 0; i < n_word && is_lower && !has_upper && !is_version; i++) {
      if (!is_after_letter) word[i] = (char)toupper((unsigned char)word[i]);
      is_after_letter = isalpha((unsigned char)word[i]) != 0;
    }
    word += n_word + (word[n_word] == ' ');
  }
  return out;
}

/* A text of GGUF is UTF-8: U+FFFD in the place of each byte that is part of no character. */
static const char *as_utf8(const char *text, ckpt_arena *arena) {
  static const char replacement[] = "\xef\xbf\xbd";
  const size_t n = strlen(text);
  size_t at = ckpt_utf8_length(text, n), n_out = at;
  if (at == n) return text;
  char *out = ckpt_arena_array(arena, n + 1, sizeof replacement - 1);
  if (out == NULL) return NULL;
  memcpy(out, text, at);
  while (at < n) {
    memcpy(out + n_out, replacement, sizeof replacement - 1);
    n_out += sizeof replacement - 1;
    at++;
    const size_t n_whole = ckpt_utf8_length(text + at, n - at);
    memcpy(out + n_out, text + at, n_whole);
    n_out += n_whole;
    at += n_whole;
  }
  out[n_out] = '\0';
  return out;
}

/* "1.4M", of experts "8x1.4M": at least two digits, of thousands, millions, ...; one expert of each stack counts. */
static const char *size_label(const ckpt_index *index, char out[32]) {
  double n = 0;
  uint64_t n_experts = 0, n_stacks = 0;
  char before[16] = "";
  for (uint32_t i = 0; i < index->n_tensors; i++) {
    const ckpt_tensor *tensor = &index->tensors[i];
    const bool is_stack = tensor->rank == 3 && strstr(tensor->name, "_exps.") != NULL && tensor->shape[0] != 0;
    n += (double)(is_stack ? tensor->n_elements / tensor->shape[0] : tensor->n_elements);
    n_experts += is_stack ? tensor->shape[0] : 0;
    n_stacks += is_stack;
  }
  if (n_stacks != 0) snprintf(before, sizeof before, "%llux", (unsigned long long)(n_experts / n_stacks % 1000000));
  const char *unit = n > 1e12 ? "T" : n > 1e9 ? "B" : n > 1e6 ? "M" : "K";
  const double scaled = n * (n > 1e12 ? 1e-12 : n > 1e9 ? 1e-9 : n > 1e6 ? 1e-6 : 1e-3);
  const double rounded = nearbyint(scaled);
  const int n_digits = rounded == 0 ? 0 : snprintf(NULL, 0, "%.0f", rounded);
  ckpt_c_snprintf(out, 32, "%s%.*f%s", before, n_digits < 2 ? 2 - n_digits : 0, scaled, unit);
  return out;
}

static ckpt_status side_text(ckpt_index *index, const ckpt_index *of, const ckpt_side_file *side, const char **text,
                             ckpt_error *err) {
  if (side->text != NULL) {
    *text = side->text;
    return CKPT_OK;
  }
  const char *path = ckpt_index_side_path(of, side);
  if (side->n_bytes > CKPT_CONFIG_MAX_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, path, NULL, "%llu bytes", (unsigned long long)side->n_bytes);
  char *copy = ckpt_arena_alloc(&index->arena, (size_t)side->n_bytes + 1);
  CKPT_TRY_ALLOC(copy, err);
  *text = copy;
  return ckpt_source_read(ckpt_index_side_source(of, side), side->file, 0, copy, (size_t)side->n_bytes, err);
}

const ckpt_dialect_sampling_key ckpt_dialect_sampling[] = {
    {"top_k", "top_k", true},
    {"top_p", "top_p", false},
    {"min_p", "min_p", false},
    {"xtc_probability", "xtc_probability", false},
    {"xtc_threshold", "xtc_threshold", false},
    {"temp", "temperature", false},
    {"penalty_last_n", "penalty_last_n", true},
    {"penalty_repeat", "repetition_penalty|penalty_repeat", false},
    {"mirostat", "mirostat", true},
    {"mirostat_tau", "mirostat_tau", false},
    {"mirostat_eta", "mirostat_eta", false},
    {0}};

/* What it says of sampling. */
static ckpt_status set_sampling(ckpt_index *index, const ckpt_config *config, ckpt_error *err) {
  ckpt_status status = CKPT_OK;
  for (const ckpt_dialect_sampling_key *row = ckpt_dialect_sampling; row->gguf != NULL && status == CKPT_OK; row++) {
    char key[64];
    double value;
    if (!ckpt_dialect_number(config, row->config, &value)) continue;
    snprintf(key, sizeof key, "general.sampling.%s", row->gguf);
    status = row->is_whole
                 ? ckpt_gguf_set_scalar(index, key, CKPT_GGUF_I32,
                                        value >= INT32_MIN && value <= INT32_MAX ? (uint32_t)(int32_t)value : 0, err)
                 : ckpt_gguf_set_f32(index, key, value, err);
  }
  return status;
}

/* Whether a key of generation_config.json is of no model's use, or GGUF says it: special ids are the tokenizer's. */
static bool is_unsaid(const ckpt_config *config, const char *key) {
  static const char *const keys[] = {
      "_from_model_config", "transformers_version", "bos_token_id", "pad_token_id", "do_sample", "use_cache"};
  bool value;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  if (strcmp(key, "eos_token_id") == 0) return ckpt_config_count(config, key) < 2;
  for (const ckpt_dialect_sampling_key *row = ckpt_dialect_sampling; row->gguf != NULL; row++)
    if (ckpt_dialect_has_key(row->config, key)) return true;
  return !ckpt_config_has(config, key) || (ckpt_config_bool(config, key, &value) && !value);
}

/* What GGUF has no place for: other settings, and all tokens but one that end a text. */
static ckpt_status note_generation(ckpt_index *index, const ckpt_config *config, ckpt_error *err) {
  ckpt_name_list left = {.n = 0};
  const char *key;
  for (size_t i = 0; (key = ckpt_config_key(config, i)) != NULL; i++)
    if (!is_unsaid(config, key)) ckpt_name_list_add(&left, key);
  if (left.n == 0) return CKPT_OK;
  return ckpt_index_note(index, false, err, "%zu key%s of generation_config.json (%s)", left.n, ckpt_plural(left.n),
                         left.text);
}

/* What generation_config.json says. The converter goes on without one that is missing or unreadable, too. */
static ckpt_status set_generation(ckpt_index *index, const ckpt_index *config_of, ckpt_error *err) {
  const ckpt_side_file *side = ckpt_index_side_file(config_of, "generation_config.json");
  ckpt_config *config = NULL;
  const char *text = NULL;
  ckpt_error ignored = {0};
  if (side == NULL) return CKPT_OK;
  CKPT_TRY(side_text(index, config_of, side, &text, err));
  if (ckpt_config_parse(&config, text, side->n_bytes, NULL, &ignored) != CKPT_OK) return CKPT_OK;
  ckpt_status status = set_sampling(index, config, err);
  if (status == CKPT_OK) status = note_generation(index, config, err);
  ckpt_config_free(config);
  return status;
}

ckpt_status ckpt_dialect_set_general(ckpt_index *index, const ckpt_index *config_of, const ckpt_arch *arch,
                                     ckpt_error *err) {
  char label[32];
  const char *name = ckpt_dialect_title(config_of->path, &index->arena);
  CKPT_TRY_ALLOC(name, err);
  name = as_utf8(name, &index->arena);
  CKPT_TRY_ALLOC(name, err);
  CKPT_TRY(ckpt_index_set_metadata(index, CKPT_GGUF_ARCHITECTURE, arch->gguf->architecture, err));
  CKPT_TRY(ckpt_index_set_metadata(index, "general.type", "model", err));
  CKPT_TRY(set_generation(index, config_of, err));
  CKPT_TRY(ckpt_index_set_metadata(index, "general.name", name, err));
  return ckpt_index_set_metadata(index, "general.size_label", size_label(index, label), err);
}
