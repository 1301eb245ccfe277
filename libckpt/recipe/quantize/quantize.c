/* quantize.c - see quantize.h. */
#include "libckpt/recipe/quantize/quantize.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/dtype.h"
#include "libckpt/base/error.h"
#include "libckpt/base/little.h"
#include "libckpt/base/text.h"
#include "libckpt/codec/gguf/layers.h"
#include "libckpt/codec/gguf/value.h"
#include "libckpt/recipe/quantize/imatrix.h"

#define QUANTIZATION_VERSION 2 /* GGML_QNT_VERSION */
#define MAX_TEXT 127           /* bytes of a text that llama-quantize writes */

/* ---- the model, from its metadata ----------------------------------------------------------------------------------
 */

/* A number, or the first of an array of them (one per layer), as ARCHITECTURE.key; otherwise where there is none. */
static ckpt_status model_number(uint32_t *out, ckpt_arena *arena, const ckpt_index *from, const char *architecture,
                                const char *key, uint32_t otherwise, ckpt_error *err) {
  enum { ARRAY_HEAD = 12 }; /* type and count */
  uint8_t head[ARRAY_HEAD + 8];
  const char *full = ckpt_arena_printf(arena, "%s.%s", architecture, key);
  CKPT_TRY_ALLOC(full, err);
  const ckpt_meta *meta = ckpt_index_meta(from, full);
  *out = otherwise;
  if (meta == NULL) return CKPT_OK;
  ckpt_typed_value first = {0};
  if (meta->typed != NULL && meta->typed->type == CKPT_GGUF_ARRAY && meta->typed->n_bytes > ARRAY_HEAD) {
    const uint64_t n_head = meta->typed->n_bytes < sizeof head ? meta->typed->n_bytes : sizeof head;
    CKPT_TRY(ckpt_gguf_value_read(meta->typed, 0, head, (size_t)n_head, err));
    first =
        (ckpt_typed_value){.type = ckpt_le32(head), .bytes = head + ARRAY_HEAD}; /* whole: the reader walked over it */
    first.n_bytes = ckpt_gguf_type_bytes(first.type);
  } else if (meta->typed != NULL) {
    first = *meta->typed;
  }
  if (first.bytes != NULL && ckpt_gguf_value_u32(&first, out)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, from->path, NULL, "%.200s is no number that a model could have (%.100s)", full,
                   meta->value);
}

bool ckpt_quantize_knows(const ckpt_index *from) {
  const ckpt_meta *architecture = ckpt_index_meta(from, CKPT_GGUF_ARCHITECTURE);
  return ckpt_caps_of(from).presets && architecture != NULL && architecture->typed == NULL;
}

/* block_count, and what two architectures of llama.cpp make of it when they are loaded (n_layer_all). */
static ckpt_status count_layers(uint32_t *out, ckpt_arena *arena, const ckpt_index *from, const char *architecture,
                                ckpt_error *err) {
  uint32_t n_blocks, n_next, n_loops;
  CKPT_TRY(model_number(&n_blocks, arena, from, architecture, "block_count", 0, err));
  *out = n_blocks;
  const bool loops = strcmp(architecture, "nanbeige") == 0, routes = strcmp(architecture, "graniteswitch") == 0;
  if (n_blocks == 0 || (!loops && !routes)) return CKPT_OK;
  CKPT_TRY(model_number(&n_next, arena, from, architecture, "nextn_predict_layers", 0, err));
  CKPT_TRY(model_number(&n_loops, arena, from, architecture, "num_loops", 1, err));
  const uint64_t n_own = n_next < n_blocks ? n_blocks - n_next : 0, n = routes ? n_own + 1 : n_own * n_loops;
  if (n > INT32_MAX)
    return ckpt_fail(err, CKPT_EFORMAT, from->path, NULL, "%u layers, %u times, are none that a model could have",
                     n_blocks, n_loops);
  if (routes || n_loops > 1) *out = (uint32_t)n;
  return CKPT_OK;
}

/* What the preset's rules ask for: numbers where it is a mixture. */
static ckpt_status read_model(ckpt_preset_model *model, const ckpt_preset *preset, ckpt_arena *arena,
                              const ckpt_index *from, ckpt_error *err) {
  const ckpt_meta *architecture = ckpt_index_meta(from, CKPT_GGUF_ARCHITECTURE);
  *model = (ckpt_preset_model){0};
  if (!ckpt_quantize_knows(from))
    return ckpt_fail(
        err, CKPT_EUNSUPPORTED, from->path, NULL,
        "is no GGUF model (%s%s): quantize reads GGUF so far, as llama.cpp's convert_hf_to_gguf.py writes it",
        from->format, architecture == NULL ? ", without " CKPT_GGUF_ARCHITECTURE : "");
  const char *name = model->architecture = architecture->value;
  if (!ckpt_dtype_is_block(preset->base)) return CKPT_OK;
  CKPT_TRY(count_layers(&model->n_layers, arena, from, name, err));
  CKPT_TRY(model_number(&model->n_experts, arena, from, name, "expert_count", 0, err));
  CKPT_TRY(model_number(&model->n_heads, arena, from, name, "attention.head_count", 0, err));
  CKPT_TRY(model_number(&model->n_kv_heads, arena, from, name, "attention.head_count_kv", model->n_heads, err));
  if (model->n_layers != 0) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, from->path, NULL, "%.200s.block_count is missing: mixtures count layers", name);
}

/* ---- what the output says of itself --------------------------------------------------------------------------------
 */

/* What llama-gguf-split --merge leaves. */
static void drop_part_keys(ckpt_index *index) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (!ckpt_gguf_is_part_key(index->metadata[i].key)) index->metadata[n++] = index->metadata[i];
  index->n_metadata = n;
}

static void drop_key(ckpt_index *index, const char *key) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < index->n_metadata; i++)
    if (strcmp(index->metadata[i].key, key) != 0) index->metadata[n++] = index->metadata[i];
  index->n_metadata = n;
}

/* Puts a value last, whether there was one or not, as ggml's gguf_set_val does. */
static ckpt_status put_last(ckpt_index *index, const char *key, const char *text, const ckpt_typed_value *typed,
                            ckpt_error *err) {
  drop_key(index, key);
  return typed == NULL ? ckpt_index_set_metadata(index, key, text, err)
                       : ckpt_index_set_typed(index, key, text, typed, err);
}

static ckpt_status put_number(ckpt_index *index, const char *key, uint32_t number, bool keeps_order, ckpt_error *err) {
  char text[16];
  const ckpt_typed_value *typed;
  snprintf(text, sizeof text, "%u", number);
  CKPT_TRY(ckpt_gguf_value_of(&typed, &index->arena, CKPT_GGUF_U32, number, err));
  ckpt_meta *there = keeps_order ? ckpt_index_meta(index, key) : NULL;
  if (there != NULL) {
    CKPT_TRY_ALLOC(there->value = ckpt_arena_copy(&index->arena, text), err);
    there->typed = typed;
    return CKPT_OK;
  }
  return put_last(index, key, text, typed, err);
}

/* At most as much of a text as llama-quantize keeps. */
static ckpt_status put_text(ckpt_index *index, const char *key, const char *text, ckpt_error *err) {
  char *kept = ckpt_arena_text(&index->arena, text, strnlen(text, MAX_TEXT));
  CKPT_TRY_ALLOC(kept, err);
  return put_last(index, key, kept, NULL, err);
}

/* The first text that an importance matrix was made from; NULL: it does not say. */
static ckpt_status first_dataset(const char **out, const ckpt_index *imatrix, ckpt_arena *arena, ckpt_error *err) {
  enum { HEAD = 4 + 8 + 8, MOST = HEAD + MAX_TEXT };
  const ckpt_meta *meta = ckpt_index_meta(imatrix, "imatrix.datasets");
  *out = NULL;
  if (meta == NULL) return CKPT_OK;
  if (meta->typed == NULL) {
    *out = meta->value;
    return CKPT_OK;
  }
  uint8_t bytes[MOST];
  const uint64_t n_there = meta->typed->n_bytes < MOST ? meta->typed->n_bytes : MOST;
  if (meta->typed->type != CKPT_GGUF_ARRAY || n_there < HEAD) return CKPT_OK;
  CKPT_TRY(ckpt_gguf_value_read(meta->typed, 0, bytes, (size_t)n_there, err));
  if (ckpt_le32(bytes) != CKPT_GGUF_STRING) return CKPT_OK;
  uint64_t n_text = ckpt_le64(bytes + 12);
  if (n_text > n_there - HEAD) n_text = n_there - HEAD;
  *out = ckpt_arena_text(arena, (const char *)bytes + HEAD, (size_t)n_text);
  return *out == NULL ? ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory") : CKPT_OK;
}

/* Whose importance it was. The file's name, not where it lay: the same bytes wherever it is run. */
static ckpt_status describe_imatrix(ckpt_index *described, const ckpt_quantize_options *options, uint32_t n_entries,
                                    ckpt_error *err) {
  const char *dataset;
  const ckpt_meta *chunks = ckpt_index_meta(options->imatrix, "imatrix.chunk_count");
  CKPT_TRY(put_text(described, "quantize.imatrix.file", ckpt_path_name(options->imatrix_path), err));
  CKPT_TRY(first_dataset(&dataset, options->imatrix, &described->arena, err));
  if (dataset != NULL) CKPT_TRY(put_text(described, "quantize.imatrix.dataset", dataset, err));
  CKPT_TRY(put_number(described, "quantize.imatrix.entries_count", n_entries, false, err));
  if (chunks == NULL || chunks->value[strspn(chunks->value, "0123456789")] != '\0') return CKPT_OK;
  const unsigned long long n_chunks = strtoull(chunks->value, NULL, 10);
  if (n_chunks == 0 || n_chunks > UINT32_MAX) return CKPT_OK;
  return put_number(described, "quantize.imatrix.chunks_count", (uint32_t)n_chunks, false, err);
}

/* ---- --tensor-type -------------------------------------------------------------------------------------------------
 */

ckpt_dtype ckpt_quantize_type(const char *name) {
  const ckpt_dtype dtype = ckpt_dtype_parse(name);
  if (dtype == CKPT_DTYPE_NONE || ckpt_dtype_get(dtype)->ggml < 0 || !ckpt_dtype_holds_floats(dtype))
    return CKPT_DTYPE_NONE;
  return !ckpt_dtype_is_block(dtype) || ckpt_backend_reference.can_quantize(dtype, true) ? dtype : CKPT_DTYPE_NONE;
}

/* `REGEX=TYPE`: the type follows the first '='; the expression, in lower case, is found anywhere in a name. */
static ckpt_status parse_override(ckpt_preset_override *out, const char *rule, ckpt_arena *arena, uint64_t *n_steps,
                                  ckpt_error *err) {
  const char *equals = strchr(rule, '='), *start = strncmp(rule, "re:", 3) == 0 ? rule + 3 : rule;
  if (equals == NULL || equals <= start || equals[1] == '\0')
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "tensor_types", "'%.100s' is no PATTERN=TYPE", rule);
  out->dtype = ckpt_quantize_type(equals + 1);
  if (out->dtype == CKPT_DTYPE_NONE)
    return ckpt_fail_option(err, CKPT_EINVAL, NULL, "tensor_types", "'%.100s': '%.40s' is no type of GGUF weights",
                            rule, equals + 1);
  char *text = ckpt_arena_text(arena, start, (size_t)(equals - start));
  CKPT_TRY_ALLOC(text, err);
  for (char *c = text; *c != '\0'; c++) /* as llama-quantize does, which makes \D a \d too: that stays */
    if (*c == '\\' && c[1] != '\0')
      c++;
    else if (*c >= 'A' && *c <= 'Z')
      *c = (char)(*c - 'A' + 'a');
  return ckpt_pattern_new_search(&out->pattern, text, rule, (size_t)(start - rule), n_steps, err);
}

static void free_overrides(ckpt_preset_override *overrides, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) ckpt_pattern_free(overrides[i].pattern);
}

/* All of them, or none where one is a mistake; to be freed. */
static ckpt_status parse_overrides(ckpt_preset_override **out, uint32_t *n, const ckpt_quantize_options *options,
                                   ckpt_arena *arena, uint64_t *n_steps, ckpt_error *err) {
  const char *const *rules = options->tensor_types;
  uint32_t n_rules = 0;
  *n = 0;
  while (rules != NULL && rules[n_rules] != NULL) n_rules++;
  *out = ckpt_arena_array(arena, (size_t)n_rules + 1, sizeof **out);
  CKPT_TRY_ALLOC(*out, err);
  for (; *n < n_rules; ++*n) {
    ckpt_status status = parse_override(&(*out)[*n], rules[*n], arena, n_steps, err);
    if (status == CKPT_OK) continue;
    free_overrides(*out, *n);
    return status;
  }
  return CKPT_OK;
}

ckpt_status ckpt_quantize_check_types(const ckpt_quantize_options *options, ckpt_error *err) {
  ckpt_preset_override *overrides;
  uint32_t n;
  ckpt_arena arena;
  ckpt_arena_init(&arena, UINT64_MAX);
  const ckpt_status status = parse_overrides(&overrides, &n, options, &arena, NULL, err);
  if (status == CKPT_OK) free_overrides(overrides, n);
  ckpt_arena_free(&arena);
  return status;
}

static ckpt_status check_idle(const ckpt_preset_override *overrides, uint32_t n, const ckpt_quantize_options *options,
                              ckpt_error *err) {
  for (uint32_t i = 0; i < n; i++)
    if (ckpt_pattern_n_matched(overrides[i].pattern) == 0)
      return ckpt_fail_option(err, CKPT_ENOTFOUND, NULL, "tensor_types", "'%.100s' decides about no tensor",
                              options->tensor_types[i]);
  return CKPT_OK;
}

/* ---- decisions -----------------------------------------------------------------------------------------------------
 */

static ckpt_status choose(ckpt_quantize_decisions *decisions, ckpt_plan *plan, const ckpt_index *from,
                          const ckpt_quantize_options *options, uint64_t *n_steps, ckpt_error *err) {
  uint32_t n;
  ckpt_preset_model model;
  ckpt_preset_override *overrides;
  CKPT_TRY(read_model(&model, decisions->preset, &plan->arena, from, err));
  decisions->order = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->order);
  decisions->choices = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->choices);
  decisions->widened = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->widened);
  decisions->exprs = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->exprs);
  if (decisions->order == NULL || decisions->choices == NULL || decisions->widened == NULL || decisions->exprs == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    decisions->order[i] = i;
    decisions->widened[i] = decisions->exprs[i] = NULL;
  }
  ckpt_gguf_sort(decisions->order, from->n_tensors, from->tensors);
  CKPT_TRY(parse_overrides(&overrides, &n, options, &plan->arena, n_steps, err));
  const ckpt_preset_request request = {.preset = decisions->preset,
                                       .overrides = overrides,
                                       .n_overrides = n,
                                       .output_type = options->output_type,
                                       .embedding_type = options->embedding_type,
                                       .pure = options->pure,
                                       .leave_output = options->leave_output,
                                       .has_imatrix = options->imatrix != NULL};
  ckpt_status status =
      ckpt_preset_choose(&request, &model, from->tensors, decisions->order, from->n_tensors, decisions->choices, err);
  if (status == CKPT_OK) status = check_idle(overrides, n, options, err);
  free_overrides(overrides, n);
  return status;
}

/* One after the other, what must not be. */
static ckpt_status check_tensor(const ckpt_quantize_decisions *decisions, const ckpt_tensor *tensor,
                                const ckpt_preset_choice *choice, bool is_weighted,
                                const ckpt_quantize_options *options, ckpt_error *err) {
  const char *wanted = ckpt_dtype_name(choice->dtype), *stored = ckpt_dtype_name((ckpt_dtype)tensor->dtype);
  if (choice->is_kept || choice->dtype == (ckpt_dtype)tensor->dtype) return CKPT_OK;
  if (!ckpt_dtype_holds_floats((ckpt_dtype)tensor->dtype))
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "%s is no weight that %s could hold", stored, wanted);
  if (ckpt_dtype_is_block((ckpt_dtype)tensor->dtype) && !options->allow_requantize)
    return ckpt_advise(
        ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name,
                  "is quantized (%s), and doing it again, to %s, loses more than from the original", stored, wanted),
        err, "%allow_requantize");
  if (choice->needs_imatrix && !is_weighted)
    return ckpt_advise(ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, tensor->name, "%s in %s is of no use without importance",
                                 wanted, decisions->preset->name),
                       err, options->imatrix == NULL ? "%imatrix" : "%imatrix has none of this tensor");
  return CKPT_OK;
}

/* The importance of a tensor number i: the node that an output before this one has, so that it is read and worked out
 * once for all of them; NULL where there is none. */
static ckpt_status take_importance(ckpt_expr **out, ckpt_plan *plan, uint32_t sink, const ckpt_index *imatrix,
                                   const ckpt_tensor *tensor, uint32_t i, ckpt_error *err) {
  for (uint32_t k = 0; k < sink; k++) {
    const ckpt_quantize_decisions *before = plan->outputs[k].quantized;
    *out = before == NULL ? NULL : before->importance[i];
    if (*out != NULL) return CKPT_OK;
  }
  return ckpt_imatrix_expr(out, plan, imatrix, tensor, err);
}

/* Whether blocks are made of a tensor: what it becomes, and has not been before. */
static bool is_made(const ckpt_preset_choice *choice, const ckpt_tensor *tensor) {
  return ckpt_dtype_is_block(choice->dtype) && choice->dtype != (ckpt_dtype)tensor->dtype;
}

/* Looks at every choice: refusals, fallbacks, weights without importance. */
static ckpt_status look(ckpt_quantize_decisions *decisions, ckpt_plan *plan, uint32_t sink, const ckpt_index *from,
                        const ckpt_quantize_options *options, ckpt_error *err) {
  decisions->fallbacks = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->fallbacks);
  decisions->unweighted = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->unweighted);
  decisions->importance = ckpt_arena_array(&plan->arena, (size_t)from->n_tensors + 1, sizeof *decisions->importance);
  if (decisions->fallbacks == NULL || decisions->unweighted == NULL || decisions->importance == NULL)
    return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
  for (uint32_t i = 0; i < from->n_tensors; i++) {
    const ckpt_tensor *tensor = &from->tensors[i];
    const ckpt_preset_choice *choice = &decisions->choices[i];
    ckpt_expr **importance = &decisions->importance[i];
    const bool is_weighed = options->imatrix != NULL && is_made(choice, tensor);
    const bool is_used = is_weighed && ckpt_backend_reference.uses_importance(choice->dtype);
    *importance = NULL;
    if (is_weighed) /* it has to fit where it makes no difference, too: else it is another model's */
      CKPT_TRY(take_importance(importance, plan, sink, options->imatrix, tensor, i, err));
    if (!is_used) *importance = NULL;
    CKPT_TRY(check_tensor(decisions, tensor, choice, *importance != NULL, options, err));
    if (choice->wanted != choice->dtype)
      decisions->fallbacks[decisions->n_fallbacks++] =
          (ckpt_quantize_fallback){tensor->name, choice->wanted, choice->dtype, tensor->shape[tensor->rank - 1]};
    if (is_used && *importance == NULL) decisions->unweighted[decisions->n_unweighted++] = tensor->name;
  }
  return CKPT_OK;
}

/* "14 tensors Q4_K -> Q5_0, row 896 is no multiple of 256", of the first kind of fallback that there is. */
static ckpt_status check_fallbacks(const ckpt_quantize_decisions *decisions, const ckpt_quantize_options *options,
                                   ckpt_error *err) {
  if (decisions->n_fallbacks == 0 || options->allow_fallback) return CKPT_OK;
  const ckpt_quantize_fallback *first = &decisions->fallbacks[0];
  uint32_t n_like = 0;
  for (uint32_t i = 0; i < decisions->n_fallbacks; i++) {
    const ckpt_quantize_fallback *f = &decisions->fallbacks[i];
    n_like += f->wanted == first->wanted && f->dtype == first->dtype && f->n_columns == first->n_columns;
  }
  char others[64] = "";
  if (n_like < decisions->n_fallbacks)
    snprintf(others, sizeof others, "; %u more of other kinds", decisions->n_fallbacks - n_like);
  return ckpt_advise(
      ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, first->name, "%u tensor%s %s -> %s, row %llu is no multiple of %u%s",
                n_like, ckpt_plural(n_like), ckpt_dtype_name(first->wanted), ckpt_dtype_name(first->dtype),
                (unsigned long long)first->n_columns, ckpt_dtype_get(first->wanted)->block_elements, others),
      err, "%allow_fallback");
}

ckpt_status ckpt_quantize_decide(ckpt_plan *plan, uint32_t sink, const ckpt_index *from, const ckpt_preset *preset,
                                 const ckpt_quantize_options *options, uint64_t *n_steps, ckpt_error *err) {
  ckpt_output *output = &plan->outputs[sink];
  ckpt_quantize_decisions *decisions = ckpt_arena_alloc(&plan->arena, sizeof *decisions);
  CKPT_TRY_ALLOC(decisions, err);
  *decisions = (ckpt_quantize_decisions){.preset = preset};
  uint32_t n_entries = 0;
  if ((output->format->caps.dtypes & CKPT_BLOCK_DTYPES) == 0)
    return ckpt_advise(ckpt_fail(err, CKPT_EINVAL, output->path, NULL, "%s holds no block types", output->format->name),
                       err, "%output=NAME.gguf");
  if (options->imatrix != NULL) {
    CKPT_TRY(ckpt_imatrix_check(options->imatrix, err));
    CKPT_TRY(ckpt_imatrix_fits(options->imatrix, from, &n_entries, err));
  }
  ckpt_status status = choose(decisions, plan, from, options, n_steps, err);
  if (status == CKPT_OK) status = look(decisions, plan, sink, from, options, err);
  if (status == CKPT_OK) status = check_fallbacks(decisions, options, err);
  CKPT_TRY(ckpt_fail_at(status, err, from->path, NULL));
  drop_part_keys(output->described);
  CKPT_TRY(
      put_number(output->described, "general.quantization_version", QUANTIZATION_VERSION, options->keeps_order, err));
  CKPT_TRY(put_number(output->described, "general.file_type", preset->file_type, options->keeps_order, err));
  if (options->imatrix != NULL) CKPT_TRY(describe_imatrix(output->described, options, n_entries, err));
  output->quantized = decisions;
  return CKPT_OK;
}

static const char *type_name(ckpt_dtype dtype) { return dtype == CKPT_DTYPE_NONE ? NULL : ckpt_dtype_name(dtype); }

ckpt_quantize_told ckpt_quantize_tell(const ckpt_quantize_decisions *decisions, const ckpt_index *from, size_t i) {
  const ckpt_preset_choice *choice = &decisions->choices[i];
  const bool is_quantized = is_made(choice, &from->tensors[i]);
  return (ckpt_quantize_told){.decided_by = choice->decided_by,
                              .instead_of = type_name(choice->instead_of),
                              .wanted = choice->wanted == choice->dtype ? NULL : ckpt_dtype_name(choice->wanted),
                              .is_quantized = is_quantized,
                              .has_importance = is_quantized && decisions->importance[i] != NULL};
}

ckpt_status ckpt_quantize_read(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *from, const ckpt_tensor *tensor,
                               ckpt_error *err) {
  const uint32_t rank = ckpt_preset_rank(tensor);
  CKPT_TRY(ckpt_expr_read(out, plan, from, tensor, err));
  return rank == tensor->rank ? CKPT_OK
                              : ckpt_expr_reshape(out, plan, *out, rank, ckpt_preset_shape(tensor, rank), err);
}

ckpt_status ckpt_quantize_expr(ckpt_expr **out, ckpt_plan *plan, const ckpt_index *from, uint32_t i,
                               const ckpt_quantize_decisions *decisions, ckpt_error *err) {
  const ckpt_tensor *tensor = &from->tensors[i];
  const ckpt_dtype dtype = decisions->choices[i].dtype;
  ckpt_expr **widened = &decisions->widened[i], *importance = decisions->importance[i];
  for (uint32_t k = 0; k < plan->n_outputs && plan->outputs[k].quantized != decisions; k++) {
    const ckpt_quantize_decisions *before = plan->outputs[k].quantized;
    if (before == NULL) continue;
    if (before->widened[i] != NULL) *widened = before->widened[i];
    *out = decisions->exprs[i] = before->exprs[i];
    if (*out != NULL && (ckpt_dtype)(*out)->dtype == dtype && before->importance[i] == importance) return CKPT_OK;
  }
  CKPT_TRY(ckpt_quantize_read(out, plan, from, tensor, err));
  if (!ckpt_dtype_is_block(dtype)) { /* blocks find what is not finite by themselves */
    if (ckpt_dtype_is_block((ckpt_dtype)tensor->dtype)) CKPT_TRY(ckpt_expr_dequantize(out, plan, *out, err));
    CKPT_TRY(ckpt_expr_finite(out, plan, *out, err));
    CKPT_TRY(ckpt_expr_cast(out, plan, *out, dtype, err));
  } else if (dtype != (ckpt_dtype)tensor->dtype) {
    if (*widened == NULL && tensor->dtype != CKPT_F32) CKPT_TRY(ckpt_expr_cast(widened, plan, *out, CKPT_F32, err));
    CKPT_TRY(ckpt_expr_quantize(out, plan, *widened == NULL ? *out : *widened, dtype, importance, err));
  }
  decisions->exprs[i] = *out;
  return CKPT_OK;
}
