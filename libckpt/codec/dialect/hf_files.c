/* hf_files.c - what stands beside the weights of a Hugging Face folder, from a GGUF model's metadata: config.json, and
 * the tokenizer's files. See dialect.h. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/dialect/dialect.h"
#include "libckpt/codec/gguf/value.h"

enum { MAX_KEY = 128 };

/* A JSON object that is printed into an arena, a line per key. */
typedef struct object {
  ckpt_arena *arena;
  const char *text; /* NULL: there was no room */
} object;

static void put(object *o, const char *key, const char *value) {
  if (o->text != NULL)
    o->text = ckpt_arena_printf(o->arena, "%s%s\n  \"%s\": %s", o->text, o->text[1] == '\0' ? "" : ",", key, value);
}

static void put_text(object *o, const char *key, const char *text) {
  const char *quoted = ckpt_arena_printf(o->arena, "\"%s\"", text); /* of our own tables: nothing to escape */
  if (quoted == NULL) o->text = NULL;
  if (quoted != NULL) put(o, key, quoted);
}

static void put_bool(object *o, const char *key, bool value) { put(o, key, value ? "true" : "false"); }

/* The scalar of a GGUF key as JSON; false where there is none. */
static bool put_meta(object *o, const ckpt_index *from, const char *gguf, const char *key) {
  const ckpt_meta *meta = ckpt_index_meta(from, gguf);
  uint32_t of_all;
  if (meta == NULL || meta->typed == NULL || meta->typed->type == CKPT_GGUF_STRING) return false;
  if (meta->typed->type == CKPT_GGUF_ARRAY) { /* one for each layer */
    char number[16];
    if (!ckpt_gguf_array_u32(meta->typed, &of_all)) return false;
    snprintf(number, sizeof number, "%u", of_all);
    put(o, key, number);
    return true;
  }
  if ((meta->typed->type == CKPT_GGUF_F32 || meta->typed->type == CKPT_GGUF_F64) &&
      !isfinite(ckpt_c_strtod(meta->value, NULL)))
    return false; /* JSON has no such number */
  put(o, key, meta->value);
  return true;
}

/* The key of config.json that a value of GGUF's goes back to: the first that it may come from. */
static void first_key(char out[MAX_KEY], const char *keys) {
  const size_t n = strcspn(keys, "|");
  snprintf(out, MAX_KEY, "%.*s", (int)n, keys);
}

static bool has(const object *o, const char *key) {
  char quoted[MAX_KEY + 4];
  snprintf(quoted, sizeof quoted, "\"%s\":", key);
  return o->text != NULL && strstr(o->text, quoted) != NULL;
}

/* In a description, too. */
static const ckpt_tensor *find(const ckpt_index *index, const char *name) {
  for (uint32_t i = 0; i < index->n_tensors; i++)
    if (strcmp(index->tensors[i].name, name) == 0) return &index->tensors[i];
  return NULL;
}

/* The vocabulary's size, where no key of GGUF says it: the rows of the embedding. */
static void put_vocabulary(object *o, const ckpt_index *from, const ckpt_arch *arch) {
  uint64_t numbers[2];
  char text[24];
  const ckpt_arch_name *row = ckpt_arch_match(arch, arch->shapes[0].hf, numbers);
  const ckpt_tensor *tensor = row == NULL || row->gguf == NULL ? NULL : find(from, row->gguf);
  if (tensor == NULL || tensor->rank != 2 || has(o, "vocab_size")) return;
  snprintf(text, sizeof text, "%llu", (unsigned long long)tensor->shape[0]);
  put(o, "vocab_size", text);
}

double ckpt_dialect_gguf_number(const ckpt_index *from, const ckpt_arch *arch, const char *key, double otherwise) {
  char full[2 * MAX_KEY];
  snprintf(full, sizeof full, "%s.%s", arch->gguf->architecture, key);
  const ckpt_meta *meta = ckpt_index_meta(from, full);
  uint32_t of_all;
  if (meta == NULL || meta->typed == NULL) return otherwise;
  return ckpt_gguf_array_u32(meta->typed, &of_all) ? of_all : ckpt_c_strtod(meta->value, NULL);
}

/* The part of a head that rotates; all of it where no key says. */
static void put_rotary(object *o, const ckpt_index *from, const ckpt_arch *arch, const ckpt_arch_key *row) {
  char text[40];
  const double width = ckpt_dialect_gguf_number(from, arch, "embedding_length", 0),
               n_heads = ckpt_dialect_gguf_number(from, arch, "attention.head_count", 0);
  if (!(width > 0) || !(n_heads > 0)) return;
  const double n = ckpt_dialect_gguf_number(from, arch, row->gguf, width / n_heads);
  if (!(n > 0)) return;
  const double part = n / (width / n_heads);
  ckpt_c_snprintf(text, sizeof text, part == 1 ? "%.1f" : "%.17g", part);
  put(o, arch->rope.part_key, text);
}

/* Writes llama.cpp's default for a missing key if the class has another default. */
static void put_absent(object *o, const ckpt_index *from, const ckpt_arch *arch) {
  char text[24];
  for (const ckpt_arch_key *row = arch->gguf->keys; row->gguf != NULL; row++) {
    char key[MAX_KEY];
    first_key(key, row->config);
    const bool is_base = row->kind == CKPT_KEY_BASE || row->kind == CKPT_KEY_THETA;
    if (has(o, key)) continue;
    if (is_base && arch->rope.theta != 10000) put(o, key, "10000.0");
    if (strcmp(row->gguf, "attention.head_count_kv") != 0) continue;
    snprintf(text, sizeof text, "%.0f", ckpt_dialect_gguf_number(from, arch, "attention.head_count", 0));
    put(o, key, text);
  }
}

static void put_keys(object *o, const ckpt_index *from, const ckpt_arch *arch) {
  char before[MAX_KEY] = "", key[MAX_KEY], gguf[MAX_KEY];
  for (const ckpt_arch_key *row = arch->gguf->keys; row->gguf != NULL; row++) {
    if (row->kind == CKPT_KEY_ROTARY) put_rotary(o, from, arch, row);
    if (row->kind == CKPT_KEY_ROTARY || row->kind == CKPT_KEY_ROPE_SCALING || row->kind == CKPT_KEY_FILE_TYPE) continue;
    first_key(key, row->config);
    snprintf(gguf, sizeof gguf, "%s.%s", arch->gguf->architecture, row->gguf);
    if (strcmp(key, before) == 0 || has(o, key)) continue;
    if (strcmp(row->gguf, "rope.dimension_count") == 0) continue; /* heads' width: said by its own key, or by others */
    if (put_meta(o, from, gguf, key)) snprintf(before, sizeof before, "%s", key);
  }
}

static void put_ids(object *o, const ckpt_index *from) {
  (void)put_meta(o, from, "tokenizer.ggml.bos_token_id", "bos_token_id");
  (void)put_meta(o, from, "tokenizer.ggml.eos_token_id", "eos_token_id");
  (void)put_meta(o, from, "tokenizer.ggml.padding_token_id", "pad_token_id");
}

/* generation_config.json; *out is NULL where nothing is known for it. */
static ckpt_status print_generation(const char **out, const ckpt_index *from, ckpt_arena *arena, ckpt_error *err) {
  object o = {arena, "{"};
  bool has_sampling = false;
  *out = NULL;
  put_ids(&o, from);
  for (const ckpt_dialect_sampling_key *row = ckpt_dialect_sampling; row->gguf != NULL; row++) {
    char gguf[MAX_KEY], key[MAX_KEY];
    snprintf(gguf, sizeof gguf, "general.sampling.%s", row->gguf);
    first_key(key, row->config);
    has_sampling = put_meta(&o, from, gguf, key) || has_sampling;
  }
  if (has_sampling) put_bool(&o, "do_sample", true);
  CKPT_TRY_ALLOC(o.text, err);
  if (o.text[1] == '\0') return CKPT_OK;
  *out = ckpt_arena_printf(arena, "%s\n}\n", o.text);
  CKPT_TRY_ALLOC(*out, err);
  return CKPT_OK;
}

/* A number that no key of GGUF says, and that follows from others. */
static ckpt_status put_implied(object *o, const ckpt_arch *arch, ckpt_error *err) {
  uint64_t value;
  char number[24];
  ckpt_config *config;
  if (arch->gguf->implied == NULL || o->text == NULL) return CKPT_OK;
  const char *text = ckpt_arena_printf(o->arena, "%s}", o->text);
  CKPT_TRY_ALLOC(text, err);
  CKPT_TRY(ckpt_config_parse(&config, text, strlen(text), NULL, err));
  const ckpt_arch_implied *one = ckpt_dialect_implied(arch, config, NULL, &value);
  ckpt_config_free(config);
  snprintf(number, sizeof number, "%llu", (unsigned long long)value);
  if (one != NULL) put(o, one->config, number);
  return CKPT_OK;
}

ckpt_status ckpt_dialect_gguf_numbers(ckpt_config **out, const ckpt_index *index, const ckpt_arch *arch,
                                      ckpt_error *err) {
  ckpt_arena arena;
  ckpt_arena_init(&arena, CKPT_CONFIG_MAX_BYTES);
  object o = {&arena, "{"};
  put_vocabulary(&o, index, arch); /* first: llama.cpp goes by the tokens, whatever vocab_size says */
  put_keys(&o, index, arch);
  ckpt_status status = put_implied(&o, arch, err);
  const char *text = status != CKPT_OK || o.text == NULL ? NULL : ckpt_arena_printf(&arena, "%s}", o.text);
  if (status == CKPT_OK && text == NULL) status = ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  if (status == CKPT_OK) status = ckpt_config_parse(out, text, strlen(text), NULL, err);
  ckpt_arena_free(&arena);
  return status;
}

/* Numbers that JSON does not have: config.json lacks them then. */
static ckpt_status lose_infinite(const ckpt_index *from, const ckpt_arch *arch, ckpt_losses *losses, ckpt_error *err) {
  for (const ckpt_arch_key *row = arch->gguf->keys; row->gguf != NULL; row++) {
    if (row->kind != CKPT_KEY_F32 && row->kind != CKPT_KEY_BASE && row->kind != CKPT_KEY_THETA) continue;
    const double value = ckpt_dialect_gguf_number(from, arch, row->gguf, 0);
    if (!isfinite(value))
      CKPT_TRY(
          ckpt_losses_add(losses, err, "%s.%s (config.json has no such number)", arch->gguf->architecture, row->gguf));
  }
  return CKPT_OK;
}

static ckpt_status print_config(const char **out, const ckpt_index *from, const ckpt_arch *arch, ckpt_arena *arena,
                                ckpt_losses *losses, ckpt_error *err) {
  object o = {arena, "{"};
  const char *scaling;
  const char *class = ckpt_arena_printf(arena, "[\"%s\"]", arch->gguf->classes[0]);
  CKPT_TRY_ALLOC(class, err);
  put(&o, "architectures", class);
  put_text(&o, "model_type", arch->model_types[0]);
  put_keys(&o, from, arch);
  put_absent(&o, from, arch);
  CKPT_TRY(lose_infinite(from, arch, losses, err));
  put_vocabulary(&o, from, arch);
  CKPT_TRY(put_implied(&o, arch, err));
  CKPT_TRY(ckpt_dialect_print_scaling(&scaling, from, arch, arena, losses, err));
  if (scaling != NULL) put(&o, "rope_scaling", scaling);
  for (const ckpt_arch_flag *flag = arch->gguf->flags; flag != NULL && flag->config != NULL; flag++)
    put_bool(&o, flag->config, ckpt_index_find(from, flag->gguf) != NULL);
  for (const ckpt_arch_tie *tie = arch->ties; tie->kept != NULL; tie++) {
    uint64_t numbers[2] = {0};
    const ckpt_arch_name *row = ckpt_arch_match(arch, tie->tied, numbers);
    if (row != NULL && row->gguf != NULL) put_bool(&o, tie->config_key, ckpt_index_find(from, row->gguf) == NULL);
  }
  put_ids(&o, from);
  put_text(&o, "torch_dtype", "float32"); /* what was written takes its place */
  for (const ckpt_arch_constant *one = arch->gguf->constants; one != NULL && one->config != NULL; one++) {
    char value[MAX_KEY];
    if (one->is_default) continue;
    first_key(value, one->values);
    put(&o, one->config, value);
  }
  CKPT_TRY_ALLOC(o.text, err);
  *out = ckpt_arena_printf(arena, "%s\n}\n", o.text);
  return *out == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

static ckpt_status add_file(ckpt_index *into, const char *name, const char *text, ckpt_error *err) {
  CKPT_TRY(ckpt_index_add_side_file(into, name, 0, strlen(text), err));
  into->side_files[into->n_side_files - 1].text = text;
  return CKPT_OK;
}

/* Keys that follow from the weights or from how the file was written, and those of the tokenizer, whose files say more.
 */
static bool is_implied(const char *key, const ckpt_index *from, const ckpt_arch *arch) {
  static const char *const general[] = {CKPT_GGUF_ARCHITECTURE, "general.type",      "general.file_type",
                                        "general.size_label",   CKPT_GGUF_ALIGNMENT, "general.quantization_version"};
  const size_t n = strlen(arch->gguf->architecture);
  for (size_t i = 0; i < sizeof general / sizeof *general; i++)
    if (strcmp(key, general[i]) == 0) return true;
  if (strncmp(key, "tokenizer.", sizeof "tokenizer." - 1) == 0) return true;
  for (const ckpt_dialect_sampling_key *row = ckpt_dialect_sampling; row->gguf != NULL; row++)
    if (strncmp(key, "general.sampling.", sizeof "general.sampling." - 1) == 0 &&
        strcmp(key + sizeof "general.sampling." - 1, row->gguf) == 0)
      return true;
  if (strncmp(key, arch->gguf->architecture, n) != 0 || key[n] != '.') return false;
  static const char scaling[] = ".rope.scaling.";
  if (strncmp(key + n, scaling, sizeof scaling - 1) == 0)
    return ckpt_dialect_has_scaling(from, arch, key + n + sizeof scaling - 1);
  for (const ckpt_arch_key *row = arch->gguf->keys; row->gguf != NULL; row++)
    if (strcmp(row->gguf, key + n + 1) == 0) return true;
  return false;
}

/* Whether a key of the family changes what llama.cpp computes, and config.json cannot say it. */
static bool is_computed_with(const ckpt_meta *meta, const ckpt_index *from, const ckpt_arch *arch) {
  static const char *const keys[] = {"rope.scale_linear", "expert_group_count", "nextn_predict_layers"};
  const size_t n = strlen(arch->gguf->architecture);
  if (strncmp(meta->key, arch->gguf->architecture, n) != 0 || meta->key[n] != '.' || is_implied(meta->key, from, arch))
    return false;
  const char *key = meta->key + n + 1;
  if (strcmp(key, "attention.causal") == 0) return strcmp(meta->value, "true") != 0;
  if (strcmp(key, "rope.scaling.finetuned") == 0) return false;
  if (strcmp(key, "rope.scaling.original_context_length") == 0) return false; /* of yarn, which says it */
  if (strcmp(key, "rope.scaling.attn_factor") == 0) return ckpt_dialect_gguf_number(from, arch, key, 1) != 1;
  if (strncmp(key, "rope.scaling.", sizeof "rope.scaling." - 1) == 0) return true;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (strcmp(key, keys[i]) == 0) return true;
  return false;
}

ckpt_status ckpt_dialect_config(const char **out, const ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  ckpt_losses losses = {.arena = arena};
  const ckpt_arch *arch = index->stored_form == NULL ? NULL : ckpt_dialect_of_gguf(index->stored_form);
  *out = NULL;
  if (arch == NULL) return CKPT_OK;
  CKPT_TRY(print_config(out, index->stored_form, arch, arena, &losses, err));
  for (uint32_t i = 0; i < index->stored_form->n_metadata; i++) {
    const ckpt_meta *meta = &index->stored_form->metadata[i];
    if (is_computed_with(meta, index->stored_form, arch))
      return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL,
                       "%s is %.40s: llama.cpp computes with it, and no config.json says it", meta->key, meta->value);
  }
  if (losses.n == 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, index->path, NULL, "%s", losses.texts[0]);
}

/* Metadata has become files; of what none of them has a place for the names are said. */
static ckpt_status drop_metadata(ckpt_index *into, const ckpt_index *from, const ckpt_arch *arch, ckpt_losses *losses,
                                 ckpt_error *err) {
  ckpt_name_list left = {.n = 0};
  for (uint32_t i = 0; i < into->n_metadata; i++)
    if (!is_implied(into->metadata[i].key, from, arch)) ckpt_name_list_add(&left, into->metadata[i].key);
  into->n_metadata = 0;
  if (left.n == 0) return CKPT_OK;
  return ckpt_losses_add(losses, err, "%zu key%s of GGUF's metadata (%s)", left.n, ckpt_plural(left.n), left.text);
}

/* Of tensors that depend on a key of config.json, as biases do, a class has all or none. */
static ckpt_status check_flag(const ckpt_index *gguf, const ckpt_arch *arch, const ckpt_arch_flag *flag,
                              ckpt_arena *arena, ckpt_error *err) {
  const ckpt_tensor *there = NULL;
  const char *missing = NULL;
  uint32_t n_layers = 0;
  (void)ckpt_dialect_gguf_u32(gguf, arch, "block_count", &n_layers);
  for (const ckpt_arch_shape *shape = arch->shapes; shape->hf != NULL; shape++) {
    uint64_t numbers[2] = {0};
    if (shape->when == NULL || strcmp(shape->when, flag->config) != 0) continue;
    const ckpt_arch_name *row = arch->names;
    while (row->hf != NULL && strcmp(row->hf, shape->hf) != 0) row++;
    for (; row->hf != NULL && numbers[0] < n_layers; numbers[0]++) {
      const char *name = ckpt_arch_fill(row->gguf == NULL ? row->hf : row->gguf, numbers, arena);
      CKPT_TRY_ALLOC(name, err);
      const ckpt_tensor *tensor = ckpt_index_find(gguf, name);
      if (tensor == NULL && missing == NULL) missing = name;
      if (tensor != NULL && there == NULL) there = tensor;
    }
  }
  if (there == NULL || missing == NULL) return CKPT_OK;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, ckpt_index_file_of(gguf, there), there->name,
                   "is there, and %s is not: with %s in config.json a %s has both, without it neither", missing,
                   flag->config, arch->name);
}

static ckpt_status check_flags(const ckpt_index *gguf, const ckpt_arch *arch, ckpt_arena *arena, ckpt_error *err) {
  for (const ckpt_arch_flag *flag = arch->gguf->flags; flag != NULL && flag->config != NULL; flag++)
    CKPT_TRY(check_flag(gguf, arch, flag, arena, err));
  return CKPT_OK;
}

/* Whether the config is that of these tensors: whoever opens the folder would go by it. */
static ckpt_status check_shapes(const ckpt_index *model, const ckpt_arch *arch, const char *text, ckpt_error *err) {
  ckpt_config *config;
  ckpt_status status = CKPT_OK;
  CKPT_TRY(ckpt_config_parse(&config, text, strlen(text), model->path, err));
  for (uint32_t i = 0; i < model->n_tensors && status == CKPT_OK; i++) {
    const ckpt_tensor *tensor = &model->tensors[i];
    uint64_t numbers[2];
    const ckpt_arch_name *row = ckpt_arch_match(arch, tensor->name, numbers);
    const ckpt_arch_shape *shape = row == NULL ? NULL : ckpt_arch_shape_of(arch, config, row->hf);
    ckpt_arch_extents extents = {0};
    if (shape != NULL) ckpt_arch_compare_shape(&extents, shape, config, tensor);
    if (extents.differs)
      status =
          ckpt_fail(err, CKPT_EFORMAT, ckpt_index_file_of(model, tensor), tensor->name,
                    "its shape is [%s], the file's metadata says [%s] (%s)", extents.is, extents.wanted, extents.said);
  }
  ckpt_config_free(config);
  return status;
}

/* Each row of the embedding has a token, and each token a row. */
static ckpt_status check_vocabulary(const ckpt_index *gguf, const ckpt_arch *arch, ckpt_error *err) {
  uint64_t numbers[2];
  const ckpt_arch_name *row = ckpt_arch_match(arch, arch->shapes[0].hf, numbers);
  const ckpt_tensor *tensor = row == NULL || row->gguf == NULL ? NULL : ckpt_index_find(gguf, row->gguf);
  const ckpt_meta *tokens = ckpt_index_meta(gguf, "tokenizer.ggml.tokens");
  if (tensor == NULL || tokens == NULL || tokens->typed == NULL) return CKPT_OK;
  uint64_t n;
  CKPT_TRY(ckpt_gguf_array_count(&n, gguf, tokens->typed, err));
  if (n == tensor->shape[0]) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, ckpt_index_file_of(gguf, tensor), tensor->name,
                   "%llu rows for the %llu tokens of tokenizer.ggml.tokens", (unsigned long long)tensor->shape[0],
                   (unsigned long long)n);
}

ckpt_status ckpt_dialect_hf_files(ckpt_index *into, const ckpt_index *model, ckpt_losses *losses, ckpt_error *err) {
  const ckpt_index *gguf = model->stored_form;
  const ckpt_arch *arch = gguf == NULL ? NULL : ckpt_dialect_of_gguf(gguf);
  const char *config = NULL, *generation;
  if (arch == NULL) return CKPT_OK;
  CKPT_TRY(check_flags(gguf, arch, &into->arena, err));
  CKPT_TRY(print_config(&config, gguf, arch, &into->arena, losses, err));
  CKPT_TRY(check_shapes(model, arch, config, err));
  CKPT_TRY(check_vocabulary(gguf, arch, err));
  CKPT_TRY(print_generation(&generation, gguf, &into->arena, err));
  CKPT_TRY(add_file(into, "config.json", config, err));
  if (generation != NULL) CKPT_TRY(add_file(into, "generation_config.json", generation, err));
  CKPT_TRY(drop_metadata(into, gguf, arch, losses, err));
  if (ckpt_dialect_tokenizers == NULL || ckpt_dialect_tokenizers->to_files == NULL) return CKPT_OK;
  const char *tokenizer = NULL, *settings = NULL;
  ckpt_error why = {0};
  ckpt_status status = ckpt_dialect_tokenizers->to_files(&tokenizer, &settings, gguf, &into->arena, &why);
  if (status == CKPT_ENOTFOUND || status == CKPT_EUNSUPPORTED)
    return ckpt_losses_add(losses, err, "the tokenizer (%s)", why.message);
  if (status != CKPT_OK) return ckpt_fail(err, status, why.file, NULL, "%s", why.message);
  CKPT_TRY(add_file(into, "tokenizer.json", tokenizer, err));
  return settings == NULL ? CKPT_OK : add_file(into, "tokenizer_config.json", settings, err);
}
