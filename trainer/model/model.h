/* model.h - a model: its family's tape and its one table of parameters, made from the text of a config.json.
 *
 * The table is what loading, initialization, optimizer, checkpoints and sharding go by, and nothing else. All
 * parameters lie in one flat buffer of f32 in the table's order (embedding, layers in order, norm, head), each aligned
 * to 64 bytes; gradients and optimizer states use the same offsets. */
#ifndef CKPT_TRAINER_MODEL_MODEL_H
#define CKPT_TRAINER_MODEL_MODEL_H

#include "libckpt/index/config.h"
#include "trainer/model/tape.h"

typedef enum ckpt_initialization { CKPT_INIT_NORMAL, CKPT_INIT_ZEROS, CKPT_INIT_ONES } ckpt_initialization;

typedef struct ckpt_parameter {
  const char *name;      /* Hugging Face's: "model.layers.0.mlp.up_proj.weight" */
  const char *tied_name; /* another name of the same tensor ("lm_head.weight"), or NULL */
  const char *source;    /* the tensor that it is loaded from where its own is not there: of what was untied; or NULL */
  uint32_t rank;
  uint64_t shape[CKPT_TAPE_MAX_RANK]; /* global, row-major, as Hugging Face stores it */
  uint64_t n_elements;
  uint64_t offset;  /* elements from the start of the flat buffer; a multiple of 16 */
  ckpt_dtype dtype; /* CKPT_F32 */
  ckpt_initialization init;
  double init_std;     /* NORMAL, mean 0 */
  int64_t zero_row;    /* of NORMAL: this row is zeros (the padding token's), or -1 */
  bool decays;         /* weight decay applies, as the Hugging Face Trainer decides: matrices do */
  uint8_t split_parts; /* equal parts of that axis, each of which is cut: q, k and v in one */
  int8_t split_axis;   /* that tensor parallelism cuts (formats/arch), or -1: replicated */
  int32_t layer;       /* or -1 */
  uint32_t value;      /* of the tape */
} ckpt_parameter;

typedef struct ckpt_model_options {
  size_t struct_size;
  bool needs_backward;  /* operations without backward are refused */
  bool is_bf16;         /* linears and the head multiply in bf16; parameters, sums and all else stay f32 */
  bool is_untied;       /* the head is a parameter of its own, whatever the config says; the table stays its source */
  bool may_have_labels; /* a class that gives labels (LlamaForSequenceClassification) is made too, else refused */
} ckpt_model_options;

typedef struct ckpt_model {
  ckpt_arena arena;
  const char *family;       /* "llama", "gpt2" */
  const char *architecture; /* transformers' class: "Qwen2ForCausalLM" */
  ckpt_tape tape;
  ckpt_parameter *parameters;
  uint32_t n_parameters, parameter_capacity;
  uint64_t n_flat;     /* elements of the flat buffer, gaps of alignment included; a multiple of 16 */
  uint64_t n_elements; /* of all parameters */
  uint64_t vocabulary, width, n_layers;
  uint64_t n_labels;       /* that the head gives each token; 0: it gives the vocabulary */
  int64_t padding_id;      /* of the config; INT64_MIN: none */
  uint64_t max_positions;  /* positions that the model has; longer batches are ELIMIT */
  bool has_position_table; /* positions past it have no embedding (GPT-2); rope has one for any */
  double init_std;         /* config's initializer_range */
  bool is_untied;          /* as the options had it */
} ckpt_model;

/* Where a parameter and its gradient are, of the device; gradients NULL: it is frozen. */
typedef struct ckpt_parameter_place {
  void *weights, *gradients;
  ckpt_dtype dtype;  /* of weights as stored; NONE: reals. Else bf16, f16 or a block type, on the CPU alone */
  bool is_turned;    /* blocks of a matrix that the model has transposed: they lie as (out, in), of a linear alone */
  bool is_part;      /* of loading: only these elements are kept, and weights has room for them alone */
  uint64_t first, n; /* as above */
} ckpt_parameter_place;

/* Makes the model that the config describes (`architectures`, else `model_type`). Messages name `file`, which may be
 * NULL; nothing is borrowed. Fails with EUNSUPPORTED (a family, rope type or activation that is not known, by name),
 * EFORMAT (what is no JSON; a value that cannot be, such as zero heads, by key and number), ELIMIT, ENOMEM.
 * Release with ckpt_model_free (NULL is fine). */
ckpt_status ckpt_model_new(ckpt_model **out, const char *config_json, size_t n_bytes, const char *file,
                           const ckpt_model_options *options, ckpt_error *err);
void ckpt_model_free(ckpt_model *model); /* as above */

/* The table: n parameters. Borrowed from the model. */
const ckpt_parameter *ckpt_model_parameters(const ckpt_model *model, uint32_t *n);

/* The parameter of this name (or tied name); NULL: none. */
const ckpt_parameter *ckpt_model_find(const ckpt_model *model, const char *name);

/* The same of the config.json beside an opened checkpoint, or of a GGUF model's metadata, or of the config.json beside
 * `like` (NULL: none). ENOTFOUND where there is none of these. Neither index is kept. */
ckpt_status ckpt_model_open(ckpt_model **out, ckpt_index *index, ckpt_index *like, const ckpt_model_options *options,
                            ckpt_error *err);

/* ---- loading and saving (load.c) ----------------------------------------------------------------------------------
 */

typedef struct ckpt_load_options {
  size_t struct_size;
  const ckpt_run_options *run; /* threads, memory, progress, cancel; NULL: defaults */
  bool allow_missing;          /* parameters that the index lacks stay as they are and are counted */
} ckpt_load_options;

/* Fills flat (model->n_flat elements) with the tensors of an index, cast to f32, through a plan of the library: any
 * format, shards, derived tensors. Gaps stay as they are. n_missing may be NULL. Tensors that the model has no
 * parameter for are left alone. Fails with ENOTFOUND (names the first missing parameter, and how many), EFORMAT (a
 * shape, with both), EUNSUPPORTED (a dtype), EIO, ENOMEM, ECANCELED. */
ckpt_status ckpt_model_load(float *flat, const ckpt_model *model, const ckpt_index *index,
                            const ckpt_load_options *options, uint32_t *n_missing, ckpt_error *err);

/* Whether an index has every parameter in its shape. Fails as ckpt_model_load, with nothing read. */
ckpt_status ckpt_model_check(const ckpt_model *model, const ckpt_index *index, ckpt_error *err);

/* As ckpt_model_load, into places, by the table's numbers; each gets its dtype. */
ckpt_status ckpt_model_load_places(const ckpt_parameter_place *places, const ckpt_model *model, const ckpt_index *index,
                                   const ckpt_load_options *options, uint32_t *n_missing, ckpt_error *err);

/* The blocks that a tensor is the transpose of, dequantized; NULL: it is something else. In the arena. */
ckpt_status ckpt_model_turned(ckpt_expr **out, ckpt_arena *arena, const ckpt_index *index, const ckpt_tensor *tensor,
                              ckpt_error *err);

/* The tensor of an index that a parameter is loaded from, under one of its names; NULL: there is none. */
const ckpt_tensor *ckpt_model_tensor(const ckpt_index *index, const ckpt_parameter *p);

/* Parameters of an index that a model has no place for, and the first of them. */
uint32_t ckpt_model_unused(const ckpt_index *index, const ckpt_model *model, const ckpt_tensor **first);

/* Adds a row for each parameter to output `sink` of a plan, which reads them from flat (borrowed until the plan is
 * freed): what saving is. Names are Hugging Face's; a tied tensor has one row. ENOMEM, EEXIST. */
ckpt_status ckpt_model_save_rows(ckpt_plan *plan, uint32_t sink, const ckpt_model *model, const float *flat,
                                 ckpt_dtype dtype, ckpt_error *err);

/* ---- families (one row each in families.def) ----------------------------------------------------------------------
 */

/* What a family's builder is given. */
typedef struct ckpt_family {
  const char *name;
  const char *const *classes;     /* of transformers, NULL-terminated */
  const char *const *classifiers; /* its classes that give labels */
  const char *const *model_types; /* of config.json, for those without `architectures`; the class at the same place */
  ckpt_status (*build)(ckpt_model *model, const ckpt_config *config, ckpt_error *err);
} ckpt_family;

/* Adds a parameter to the table and its value to the tape. name is copied; `layer` fills its "#". ENOMEM, ELIMIT. */
ckpt_status ckpt_model_add(ckpt_model *model, const char *pattern, int32_t layer, uint32_t rank, const uint64_t *shape,
                           ckpt_initialization init, double std, uint32_t *value, ckpt_error *err);

/* Adds the head, a parameter of its own or the table of the first (is_tied), and records it with the loss: of `y`, what
 * the last norm gives. Before order_table. ENOMEM, ELIMIT. */
ckpt_status ckpt_model_head(ckpt_model *model, uint32_t y, uint64_t width, double std, bool is_tied, ckpt_error *err);

/* How many logits the head gives a token. */
static inline uint64_t ckpt_model_logits(const ckpt_model *model) {
  return model->n_labels != 0 ? model->n_labels : model->vocabulary;
}

/* Records dropout of a value at this rate, which then stands for it; nothing where the rate is 0 or nobody trains. */
ckpt_status ckpt_model_dropout(ckpt_model *model, double rate, uint32_t *value, ckpt_error *err);

/* A config's integer in [min, max]; `otherwise` where it is absent and that is not negative. EFORMAT with key and
 * value. */
ckpt_status ckpt_model_int(const ckpt_config *config, const char *key, uint64_t min, uint64_t max, int64_t otherwise,
                           uint64_t *out, ckpt_error *err);
/* A finite number, in [min, max], or `otherwise` where it is absent. EFORMAT. */
ckpt_status ckpt_model_number(const ckpt_config *config, const char *key, double min, double max, double otherwise,
                              double *out, ckpt_error *err);
/* A rate of dropout, in [0, 1), or `otherwise`. EFORMAT. */
ckpt_status ckpt_model_rate(const ckpt_config *config, const char *key, double otherwise, double *out, ckpt_error *err);
/* A boolean, or `otherwise` where it is absent. EFORMAT. */
ckpt_status ckpt_model_bool(const ckpt_config *config, const char *key, bool otherwise, bool *out, ckpt_error *err);
/* A text, borrowed from config; *value stays where it is absent. EFORMAT. */
ckpt_status ckpt_model_text(const ckpt_config *config, const char *key, const char **value, ckpt_error *err);

#endif
