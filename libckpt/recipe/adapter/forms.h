/* forms.h - one adapter in its two forms: a folder of PEFT's, and llama.cpp's file.
 *
 *   PEFT       <module>.lora_A.weight (r, in), lora_B (out, r), scale alpha / r or what adapter_config.json says
 *   llama.cpp  <tensor>.lora_a (r, in), .lora_b (out, r) of GGUF's tensors, scale adapter.lora.alpha / r
 *
 * Rows of lora_B move as those of the family's tensor do (codec/dialect/). Where GGUF transposes a tensor,
 * both forms store the same factors, because PEFT's belong to the layer. Experts are stacked. Source: llama.cpp's
 * convert_lora_to_gguf.py and llama-adapter.cpp. */
#ifndef CKPT_RECIPE_ADAPTER_FORMS_H
#define CKPT_RECIPE_ADAPTER_FORMS_H

#include "libckpt/format/findings.h"
#include "libckpt/index/index.h"

#define CKPT_ADAPTER_ALPHA "adapter.lora.alpha"

typedef enum ckpt_adapter_kind {
  CKPT_ADAPTER_NONE,
  CKPT_ADAPTER_PEFT, /* adapter_config.json, and no model's config.json */
  CKPT_ADAPTER_GGUF  /* general.type says so */
} ckpt_adapter_kind;

/* Which of them an opened index is. */
ckpt_adapter_kind ckpt_adapter_kind_of(const ckpt_index *index);

/* llama.cpp's form of a PEFT adapter. Values are multiplied by what its one alpha cannot say of them: patterns,
 * rsLoRA. It borrows the adapter; the base only has to live for the call. EUNSUPPORTED and others as
 * ckpt_adapters_open, and for what llama.cpp does not compute: DoRA, whole tensors, biases, rows, tied and position
 * embeddings. */
ckpt_status ckpt_adapter_to_gguf(ckpt_index **out, const ckpt_index *adapter, const ckpt_index *base, ckpt_error *err);

/* PEFT's form of llama.cpp's adapter, with an adapter_config.json; base may be NULL where no rows have to be moved. It
 * borrows the adapter. ENOTFOUND: the base is needed; EDIFFERENT: it is of another family; EFORMAT, EUNSUPPORTED. */
ckpt_status ckpt_adapter_from_gguf(ckpt_index **out, const ckpt_index *adapter, const ckpt_index *base,
                                   ckpt_error *err);

/* Opens the base that an adapter names; *out is NULL where it names none, or (GGUF) one that is not here. *name is what
 * it is called, in the arena. A relative path is from the current folder, else from the one that the adapter lies in;
 * what is neither may be a name of the Hugging Face cache. */
ckpt_status ckpt_adapter_open_base(ckpt_index **out, const char **name, const ckpt_index *adapter, ckpt_arena *arena,
                                   ckpt_error *err);

/* The same path without opening it. */
ckpt_status ckpt_adapter_base_path(const char **out, const ckpt_index *adapter, ckpt_arena *arena, ckpt_error *err);

/* Checks a PEFT adapter without its base: what a merge would refuse of its config, and of tensors that contradict it,
 * is a problem. Kinds of adapters that are not merged are unproven. ENOMEM, EIO. */
ckpt_status ckpt_adapter_verify(ckpt_findings *findings, const ckpt_index *adapter, ckpt_error *err);

/* ---- adapter_config.json ----------------------------------------------------------------------------------------- */

/* A module that an adapter has factors of. */
typedef struct ckpt_adapter_module {
  const char *path; /* in the base */
  uint64_t rank;
} ckpt_adapter_module;

typedef struct ckpt_adapter_settings {
  const char *base_path;        /* what it is called; or NULL */
  const char *task;             /* PEFT's name of it; or NULL */
  ckpt_adapter_module *modules; /* ckpt_adapter_print_config() sorts them by path */
  size_t n_modules;
  const char *const *saved; /* modules that are stored whole, sorted */
  size_t n_saved;
  uint64_t rank;      /* of modules that no pattern names; 0: the one that most have */
  double alpha;       /* of every module; 0: its rank, so that its scale is 1 */
  bool is_transposed; /* fan_in_fan_out */
  bool has_biases;    /* of the base's modules */
} ckpt_adapter_settings;

/* EINVAL: a base's path (or NULL) is no UTF-8 text, and so the config cannot have it. */
ckpt_status ckpt_adapter_check_base(const char *path, ckpt_error *err);

/* The config as PEFT's LoraConfig reads it, in the arena. Modules are targeted by the last component of their path
 * where that is of no other matrix of the base; base may be NULL. EINVAL as above, ENOMEM. */
ckpt_status ckpt_adapter_print_config(const char **out, const ckpt_adapter_settings *settings, const ckpt_index *base,
                                      ckpt_arena *arena, ckpt_error *err);

#endif
