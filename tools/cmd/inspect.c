/* inspect.c - `ckpt inspect`: what a checkpoint is, from its headers. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/codec/side_files/side_files.h"
#include "libckpt/format/objects.h"
#include "libckpt/index/config.h"
#include "tools/cli/text.h"
#include "tools/report/input.h"
#include "tools/report/json_writer.h"
#include "tools/report/object_json.h"
#include "tools/report/proving.h"
#include "tools/report/report.h"

/* Tensors of one role and dtype. */
typedef struct tally {
  uint64_t n_tensors, n_elements, n_bytes;
} tally;

/* Everything that is printed. */
typedef struct inspection {
  const ckpt_args *args;
  ckpt_index *index;
  ckpt_info info;
  tally tallies[CKPT_N_ROLES][CKPT_N_DTYPES];
  ckpt_config *config; /* NULL if there is none */
  const ckpt_named_object *objects;
  size_t n_objects;
} inspection;

/* What is shown of a config.json, if it is there: integers, booleans or text. */
static const char *const config_keys[] = {"model_type",
                                          "hidden_size",
                                          "intermediate_size",
                                          "num_hidden_layers",
                                          "num_attention_heads",
                                          "num_key_value_heads",
                                          "head_dim",
                                          "vocab_size",
                                          "max_position_embeddings",
                                          "num_local_experts",
                                          "n_embd",
                                          "n_layer",
                                          "n_head",
                                          "n_positions",
                                          "tie_word_embeddings",
                                          "torch_dtype",
                                          "dtype",
                                          "transformers_version",
                                          "quantization_config.quant_method"};
enum { N_CONFIG_KEYS = sizeof config_keys / sizeof *config_keys };

static ckpt_status inspect(inspection *out, ckpt_index *index, ckpt_arena *arena, ckpt_error *err) {
  out->index = index;
  CKPT_TRY(ckpt_objects_list(&out->objects, &out->n_objects, index, arena, err));
  out->info.struct_size = sizeof out->info;
  ckpt_index_info(index, &out->info);
  for (size_t i = 0; i < ckpt_index_count(index); i++) {
    const ckpt_tensor *tensor = ckpt_index_at(index, i);
    tally *count = &out->tallies[tensor->role][tensor->dtype];
    count->n_tensors++;
    count->n_elements += tensor->n_elements;
    count->n_bytes += tensor->n_bytes;
  }
  const ckpt_side_file *side = ckpt_index_side_file(index, "config.json");
  if (side == NULL) return CKPT_OK;
  const char *text;
  ckpt_status status = ckpt_index_side_text(index, side, CKPT_CONFIG_MAX_BYTES, &text, err);
  if (status != CKPT_OK) return status;
  return ckpt_config_parse(&out->config, text, side->n_bytes, ckpt_index_side_path(index, side), err);
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static void print_pair(const char *key, const char *value, int width) {
  size_t n = ckpt_text_print(stdout, key);
  printf("%*s  ", n < (size_t)width ? width - (int)n : 0, "");
  ckpt_text_print(stdout, value);
  putchar('\n');
}

static bool has_version(const inspection *this) {
  return this->index->version != NULL && this->index->version[0] != '\0';
}

static void print_head(const inspection *this) {
  const ckpt_info *info = &this->info;
  char text[128], size[32], count[32];
  enum { WIDTH = 12 };
  print_pair("path", info->path, WIDTH);
  print_pair("format", info->format, WIDTH);
  if (has_version(this)) print_pair("version", this->index->version, WIDTH);
  if (info->architecture[0]) print_pair("architecture", info->architecture, WIDTH);
  print_pair("names", info->names, WIDTH);
  if (info->writer[0]) print_pair("writer", info->writer, WIDTH);
  if (info->step >= 0) print_pair("step", ckpt_text_count((uint64_t)info->step, count), WIDTH);
  if (info->min_ranks > 0) {
    snprintf(text, sizeof text, "%s or more", ckpt_text_count(info->min_ranks, count));
    print_pair("ranks", text, WIDTH);
  }
  const ckpt_parallel *of = &this->index->parallel;
  if (of->world > 0) {
    int n = of->world == of->data ? 0 : snprintf(text, sizeof text, "world %u, ", of->world);
    n += of->data == 0 ? snprintf(text + n, sizeof text - (size_t)n, "dp not said")
                       : snprintf(text + n, sizeof text - (size_t)n, "dp %u", of->data);
    snprintf(text + n, sizeof text - (size_t)n, ", tp %u, pp %u, ep %u, ZeRO stage %u", of->tensor, of->pipeline,
             of->expert, of->stage);
    print_pair("parallel", text, WIDTH);
  }
  if (this->index->tag != NULL) print_pair("tag", this->index->tag, WIDTH);
  print_pair("files", ckpt_text_count(info->n_files, count), WIDTH);
  print_pair("tensors", ckpt_text_count(ckpt_index_count(this->index), count), WIDTH);
  print_pair("parameters", ckpt_text_count(info->n_parameters, count), WIDTH);
  snprintf(text, sizeof text, "%s (%s)", ckpt_text_size(info->n_bytes, size), ckpt_text_count(info->n_bytes, count));
  print_pair("bytes", text, WIDTH);
}

static void print_tallies(const inspection *this) {
  char elements[32], size[32], tensors[32];
  if (ckpt_index_count(this->index) == 0) return;
  printf("\n%-10s  %-11s  %9s  %19s  %10s\n", "role", "dtype", "tensors", "elements", "size");
  for (int role = 0; role < CKPT_N_ROLES; role++)
    for (int dtype = 0; dtype < CKPT_N_DTYPES; dtype++) {
      const tally *count = &this->tallies[role][dtype];
      if (count->n_tensors == 0) continue;
      printf("%-10s  %-11s  %9s  %19s  %10s\n", ckpt_role_name((ckpt_role)role), ckpt_dtype_name((ckpt_dtype)dtype),
             ckpt_text_count(count->n_tensors, tensors), ckpt_text_count(count->n_elements, elements),
             ckpt_text_size(count->n_bytes, size));
    }
}

static void print_config(const inspection *this) {
  if (this->config == NULL) return;
  puts("\nconfig.json");
  for (size_t i = 0; i < N_CONFIG_KEYS; i++) {
    int64_t integer;
    bool boolean;
    const char *text = NULL;
    char number[32];
    if (ckpt_config_int(this->config, config_keys[i], &integer)) {
      snprintf(number, sizeof number, "%" PRId64, integer);
      text = number;
    } else if (ckpt_config_bool(this->config, config_keys[i], &boolean)) {
      text = boolean ? "true" : "false";
    } else if (!ckpt_config_text(this->config, config_keys[i], &text)) {
      continue;
    }
    fputs("  ", stdout);
    print_pair(config_keys[i], text, 23);
  }
}

static void print_notes(const ckpt_index *index, bool problems) {
  bool has_title = false;
  for (uint32_t i = 0; i < index->n_notes; i++) {
    if (index->notes[i].is_problem != problems) continue;
    if (!has_title) puts(problems ? "\nproblems" : "\nnotes");
    has_title = true;
    fputs("  ", stdout);
    char text[1536];
    ckpt_text_print(stdout, ckpt_report_note_text(&index->notes[i], index->notes[i].text, text, sizeof text));
    putchar('\n');
  }
}

enum { MAX_VALUE_BYTES = 200 };

/* What is neither tensor nor text, each in short. */
static void print_objects(const inspection *this) {
  enum { MAX_PRINTED = 32 };
  if (this->n_objects == 0) return;
  puts("\nobjects");
  for (size_t i = 0; i < this->n_objects && i < MAX_PRINTED; i++) {
    ckpt_arena arena;
    ckpt_arena_init(&arena, 1 << 20);
    const char *value = ckpt_object_print(this->objects[i].object, MAX_VALUE_BYTES, &arena);
    fputs("  ", stdout);
    print_pair(this->objects[i].name, value == NULL ? "..." : value, 23);
    ckpt_arena_free(&arena);
  }
  if (this->n_objects > MAX_PRINTED) printf("  and %zu more (--json)\n", this->n_objects - MAX_PRINTED);
}

static void print_text(const inspection *this) {
  const ckpt_index *index = this->index;
  print_head(this);
  print_tallies(this);
  print_config(this);
  if (index->n_metadata > 0) puts("\nmetadata");
  for (uint32_t i = 0; i < index->n_metadata; i++) {
    fputs("  ", stdout);
    print_pair(index->metadata[i].key, index->metadata[i].value, 23);
  }
  print_objects(this);
  if (index->n_side_files > 0) puts("\nside files");
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    char size[32];
    const char *role = ckpt_side_file_role(index->side_files[i].name);
    char text[64];
    ckpt_text_size(index->side_files[i].n_bytes, size);
    if (role == NULL)
      snprintf(text, sizeof text, "%s", size);
    else
      snprintf(text, sizeof text, "%-10s  %s", size, role);
    fputs("  ", stdout);
    print_pair(index->side_files[i].name, text, 23);
  }
  print_notes(index, false);
  print_notes(index, true);
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static void write_tallies(ckpt_emitter *json, const inspection *this) {
  ckpt_emit_array(json, "roles");
  for (int role = 0; role < CKPT_N_ROLES; role++)
    for (int dtype = 0; dtype < CKPT_N_DTYPES; dtype++) {
      const tally *count = &this->tallies[role][dtype];
      if (count->n_tensors == 0) continue;
      ckpt_emit_object(json, NULL);
      ckpt_emit_text(json, "role", ckpt_role_name((ckpt_role)role));
      ckpt_emit_text(json, "dtype", ckpt_dtype_name((ckpt_dtype)dtype));
      ckpt_emit_u64(json, "n_tensors", count->n_tensors);
      ckpt_emit_u64(json, "n_elements", count->n_elements);
      ckpt_emit_u64(json, "n_bytes", count->n_bytes);
      ckpt_emit_end(json);
    }
  ckpt_emit_end(json);
}

static void write_config(ckpt_emitter *json, const ckpt_config *config) {
  if (config == NULL) {
    ckpt_emit_null(json, "config");
    return;
  }
  ckpt_emit_object(json, "config");
  for (size_t i = 0; i < N_CONFIG_KEYS; i++) {
    int64_t integer;
    bool boolean;
    const char *text;
    if (ckpt_config_int(config, config_keys[i], &integer))
      ckpt_emit_i64(json, config_keys[i], integer);
    else if (ckpt_config_bool(config, config_keys[i], &boolean))
      ckpt_emit_bool(json, config_keys[i], boolean);
    else if (ckpt_config_text(config, config_keys[i], &text))
      ckpt_emit_text(json, config_keys[i], text);
  }
  ckpt_emit_end(json);
}

static void write_notes(ckpt_emitter *json, const ckpt_args *args, const ckpt_index *index, bool problems) {
  ckpt_emit_array(json, problems ? "problems" : "notes");
  for (uint32_t i = 0; i < index->n_notes; i++)
    if (index->notes[i].is_problem == problems) {
      char text[1536];
      ckpt_emit_text(json, NULL, ckpt_report_note_text(&index->notes[i], index->notes[i].text, text, sizeof text));
    }
  if (!problems) ckpt_report_emit_noted(args, json);
  ckpt_emit_end(json);
}

static void write_objects(ckpt_emitter *json, const inspection *this) {
  enum { MAX_NODES = 1 << 20 };
  ckpt_emit_array(json, "objects");
  for (size_t i = 0; i < this->n_objects; i++) {
    const ckpt_object *object = this->objects[i].object;
    ckpt_emit_object(json, NULL);
    ckpt_emit_text(json, "name", this->objects[i].name);
    ckpt_emit_text(json, "kind", ckpt_object_kind_name(object));
    if (object != NULL && object->kind >= CKPT_OBJECT_TEXT && object->kind != CKPT_OBJECT_TENSOR)
      ckpt_emit_u64(json, "size", object->n);
    else
      ckpt_emit_null(json, "size");
    const bool is_printable = ckpt_object_is_printable(object, MAX_NODES);
    if (is_printable)
      ckpt_emit_object_value(json, "value", this->index, object);
    else
      ckpt_emit_null(json, "value");
    if (!is_printable) ckpt_emit_bool(json, "is_too_large", true);
    ckpt_emit_end(json);
  }
  ckpt_emit_end(json);
}

/* A value of metadata: a number or truth value as such, anything else as the text that is shown. */
static void write_metadata(ckpt_emitter *json, const ckpt_meta *meta) {
  switch (meta->typed == NULL ? CKPT_GGUF_STRING : meta->typed->type) {
    case CKPT_GGUF_U8:
    case CKPT_GGUF_U16:
    case CKPT_GGUF_U32:
    case CKPT_GGUF_U64: ckpt_emit_u64(json, meta->key, strtoull(meta->value, NULL, 10)); break;
    case CKPT_GGUF_I8:
    case CKPT_GGUF_I16:
    case CKPT_GGUF_I32:
    case CKPT_GGUF_I64: ckpt_emit_i64(json, meta->key, strtoll(meta->value, NULL, 10)); break;
    case CKPT_GGUF_F32: ckpt_emit_float(json, meta->key, ckpt_c_strtof(meta->value, NULL)); break;
    case CKPT_GGUF_F64: ckpt_emit_number(json, meta->key, ckpt_c_strtod(meta->value, NULL)); break;
    case CKPT_GGUF_BOOL: ckpt_emit_bool(json, meta->key, strcmp(meta->value, "true") == 0); break;
    default: ckpt_emit_text(json, meta->key, meta->value);
  }
}

static void write_parallel(ckpt_emitter *json, const ckpt_parallel *of) {
  if (of->world == 0) {
    ckpt_emit_null(json, "parallel");
    return;
  }
  ckpt_emit_object(json, "parallel");
  if (of->data == 0) {
    ckpt_emit_null(json, "world");
    ckpt_emit_null(json, "dp");
  } else {
    ckpt_emit_u64(json, "world", of->world);
    ckpt_emit_u64(json, "dp", of->data);
  }
  ckpt_emit_u64(json, "tp", of->tensor);
  ckpt_emit_u64(json, "pp", of->pipeline);
  ckpt_emit_u64(json, "ep", of->expert);
  ckpt_emit_u64(json, "zero_stage", of->stage);
  ckpt_emit_end(json);
}

static const char *or_null(const char *text) { return text[0] == '\0' ? NULL : text; }

static void write_json(const inspection *this) {
  const ckpt_index *index = this->index;
  ckpt_emitter json;
  ckpt_emit_begin(&json, stdout);
  ckpt_emit_object(&json, NULL);
  ckpt_emit_text(&json, "status", "ok");
  ckpt_emit_text(&json, "path", this->info.path);
  ckpt_emit_text(&json, "format", this->info.format);
  ckpt_emit_text(&json, "version", has_version(this) ? this->index->version : NULL);
  ckpt_emit_text(&json, "architecture", or_null(this->info.architecture));
  ckpt_emit_text(&json, "names", this->info.names);
  ckpt_emit_text(&json, "writer", or_null(this->info.writer));
  if (this->info.step >= 0)
    ckpt_emit_i64(&json, "step", this->info.step);
  else
    ckpt_emit_null(&json, "step");
  if (this->info.min_ranks > 0)
    ckpt_emit_u64(&json, "min_ranks", this->info.min_ranks);
  else
    ckpt_emit_null(&json, "min_ranks");
  write_parallel(&json, &index->parallel);
  ckpt_emit_text(&json, "tag", index->tag);
  ckpt_emit_u64(&json, "n_files", this->info.n_files);
  ckpt_emit_u64(&json, "n_tensors", ckpt_index_count(index));
  ckpt_emit_u64(&json, "n_params", this->info.n_parameters);
  ckpt_emit_u64(&json, "n_bytes", this->info.n_bytes);
  write_tallies(&json, this);
  ckpt_emit_object(&json, "metadata");
  for (uint32_t i = 0; i < index->n_metadata; i++) write_metadata(&json, &index->metadata[i]);
  ckpt_emit_end(&json);
  write_config(&json, this->config);
  write_objects(&json, this);
  ckpt_emit_array(&json, "side_files");
  for (uint32_t i = 0; i < index->n_side_files; i++) {
    ckpt_emit_object(&json, NULL);
    ckpt_emit_text(&json, "name", index->side_files[i].name);
    ckpt_emit_text(&json, "role", ckpt_side_file_role(index->side_files[i].name));
    ckpt_emit_u64(&json, "n_bytes", index->side_files[i].n_bytes);
    ckpt_emit_end(&json);
  }
  ckpt_emit_end(&json);
  write_notes(&json, this->args, index, false);
  write_notes(&json, this->args, index, true);
  ckpt_emit_end(&json);
}

static int run(ckpt_args *args) {
  ckpt_error err = {0};
  ckpt_input input;
  inspection this = {.args = args};
  ckpt_status status = ckpt_input_open(&input, args, 0, &err);
  if (status == CKPT_OK) status = inspect(&this, input.index, &args->arena, &err);
  if (status == CKPT_OK) ckpt_report_no_trace(args);
  if (status == CKPT_OK && ckpt_args_has(args, "plan"))
    ckpt_proving_plan(args, NULL, &(ckpt_planned){0});
  else if (status == CKPT_OK)
    (args->json ? write_json : print_text)(&this);
  ckpt_config_free(this.config);
  ckpt_input_close(&input);
  return status == CKPT_OK ? CKPT_EXIT_DONE : ckpt_report_error(args, &err);
}

const ckpt_verb ckpt_verb_inspect = {
    .name = "inspect",
    .forms = "inspect PATH",
    .summary = "show format, layout, counts and metadata",
    .details =
        "Prints the format, names, writer, step, ranks, counts and bytes per role and dtype, metadata, "
        "config, objects and side files. For ZeRO it adds the degrees of parallelism and the tag. It also "
        "lists problems that headers show. Reads headers only; `ckpt verify` reads everything.",
    .json =
        "{\"status\",\"path\",\"format\",\"version\",\"architecture\",\"names\",\"writer\",\"step\",\"min_ranks\","
        "\"parallel\":{\"world\",\"dp\",\"tp\",\"pp\",\"ep\",\"zero_stage\"},\"tag\",\"n_files\",\"n_tensors\","
        "\"n_params\",\"n_bytes\",\"roles\":[{\"role\",\"dtype\",\"n_tensors\",\"n_elements\",\"n_bytes\"}],"
        "\"metadata\":{},\"config\":{},\"objects\":[{\"name\",\"kind\",\"size\",\"value\"}],\"side_files\":[{\"name\","
        "\"role\",\"n_bytes\"}],\"notes\":[],\"problems\":[]}: objects are those that an output "
        "can lack, each with its whole value, as ckpt cat prints it; parallel is null if the format does not record "
        "degrees",
    .sets = CKPT_SET_RUN | CKPT_SET_INPUT,
    .min_inputs = 1,
    .max_inputs = 1,
    .run = run,
};
