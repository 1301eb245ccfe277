/* lora.h - low-rank adapters as PEFT has them: W + scale * B A, where A and B are trained and W is not; with DoRA each
 * row of that is scaled to a norm that is trained too.
 *
 * The adapter's parameters have a table of their own, in the shape of a model. Optimizer, ranks, checkpoints and saving
 * go by it as by any other. In the tape a linear with an adapter is the operation lora, whose weight is
 * frozen. DoRA, and a weight that is no linear's, run merged: such a weight is made anew when a step begins, and a
 * batch's gradient of it gives those of A and B; the price is a second copy of the weights. */
#ifndef CKPT_TRAINER_LORA_LORA_H
#define CKPT_TRAINER_LORA_LORA_H

#include "trainer/model/executor.h"
#include "trainer/model/model.h"

/* One weight of the base that has an adapter. */
typedef struct ckpt_lora_target {
  uint32_t base, a, b; /* parameters: of the model; of the table */
  uint32_t magnitude;  /* of DoRA, in the table; UINT32_MAX: it has none */
  uint64_t norms;      /* of DoRA: where the rows' norms are */
  bool is_merged;      /* the model runs with the merged weight (ckpt_lora_apply decides) */
  bool is_transposed;  /* the base is stored [in, out], as GPT-2's Conv1D are */
  uint64_t rank, n_in, n_out;
  double scale;
} ckpt_lora_target;

/* A parameter that is trained whole: of modules_to_save, or a bias that the config wants trained. */
typedef struct ckpt_lora_copy {
  uint32_t base, own;
} ckpt_lora_copy;

typedef struct ckpt_lora {
  ckpt_arena arena;
  const ckpt_model *base;
  ckpt_model table; /* parameters alone: it has no tape */
  ckpt_lora_target *targets;
  ckpt_lora_copy *copies;
  uint32_t n_targets, n_copies, n_merged;
  uint64_t n_norms;          /* of DoRA: rows of all targets */
  bool is_gaussian, is_zero; /* init_lora_weights: A is normal; B is zero */
  const char *config;        /* text of adapter_config.json, every key of PEFT's */
  const char *folder;        /* of an adapter to start from; NULL: none */
  bool unties;               /* it trains one name of a tied tensor: as PEFT does, apart from the other */
  double dropout;            /* of what goes through A; not of merged targets */
} ckpt_lora;

/* Reads a LoraConfig (a file, or a folder with adapter_config.json) for a model; what is written names model_path.
 * Where it `unties`, it is of no use with this model: it has to be made again for the untied one. EINVAL and
 * EUNSUPPORTED name the key; ENOTFOUND: no module has such a name. Free with ckpt_lora_free. */
ckpt_status ckpt_lora_new(ckpt_lora **out, const char *path, const ckpt_model *model, const char *model_path,
                          ckpt_error *err);
void ckpt_lora_free(ckpt_lora *lora); /* NULL is fine */

/* Records the model's tape anew, with the adapter in it: parameter i of the table is number n_parameters + i. Once.
 * ENOMEM. */
ckpt_status ckpt_lora_apply(ckpt_lora *lora, ckpt_model *model, ckpt_error *err);

/* Flat buffers of a rank: of the model, and of the adapter. merged and its gradients may be NULL without n_merged. */
typedef struct ckpt_lora_weights {
  float *base, *merged, *merged_gradients, *own, *own_gradients;
} ckpt_lora_weights;

/* Where the executor finds each parameter: n_parameters of the model and as many as the table has. */
void ckpt_lora_places(const ckpt_lora *lora, const ckpt_lora_weights *weights, ckpt_parameter_place *places);

/* What a new adapter begins with: A as PEFT's kaiming_uniform or normal, B zero, magnitudes and copies as the base has
 * them. */
void ckpt_lora_initialize(const ckpt_lora *lora, float *flat, const float *base, uint64_t seed);

/* Weights of the adapter folder that it starts from. EFORMAT: it has a tensor that the config has no place for; a copy
 * of a layer's own weight, as PEFT writes beside the adapter of a head, has to be that of the base. */
ckpt_status ckpt_lora_load(const ckpt_lora *lora, float *flat, const float *base, ckpt_error *err);

/* merged: those weights that run merged, with the adapter's part. norms: room for n_norms numbers, which the gradients
 * need. */
ckpt_status ckpt_lora_merge(const ckpt_lora *lora, ckpt_device *device, float *merged, float *norms, const float *base,
                            const float *flat, ckpt_error *err);

/* Adds to the adapter's gradients what those of the merged weights make them; the norms of DoRA are constants, as PEFT
 * takes them. of_merged: those gradients, which are changed. */
ckpt_status ckpt_lora_project(const ckpt_lora *lora, ckpt_device *device, float *gradients, float *of_merged,
                              const float *merged, const float *norms, const float *flat, ckpt_error *err);

#endif
