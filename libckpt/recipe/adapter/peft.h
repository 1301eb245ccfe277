/* peft.h - adapter_config.json as PEFT writes it: the scale of each module's update.
 *
 * What PEFT has beyond LoRA, and what LoRA has beyond a merge, is refused by name. Source: PEFT's LoraConfig and
 * LoraLayer.update_layer. */
#ifndef CKPT_RECIPE_ADAPTER_PEFT_H
#define CKPT_RECIPE_ADAPTER_PEFT_H

#include "libckpt/base/pattern.h"
#include "libckpt/index/config.h"
#include "libckpt/index/index.h"

typedef struct ckpt_peft_rule {
  ckpt_pattern *pattern; /* of a module's path */
  double value;
} ckpt_peft_rule;

/* Modules that a key of the config names: a list, or one expression for whole paths. */
typedef struct ckpt_peft_names {
  const char **names; /* sorted */
  size_t n;
  ckpt_pattern *pattern; /* or NULL */
  bool is_said;          /* the key has a value */
  bool is_all;           /* which is all-linear */
} ckpt_peft_names;

/* Zero, then ckpt_peft_read or ckpt_peft_parse; released with ckpt_peft_free. */
typedef struct ckpt_peft {
  const char *path; /* of the config, for messages; borrowed */
  bool is_rslora, is_dora, is_transposed, has_bias;
  double rank, alpha;
  ckpt_peft_rule *ranks, *alphas; /* the first that matches wins */
  size_t n_ranks, n_alphas;
  ckpt_peft_names targets, excluded, saved, parameters;
  uint64_t n_steps;    /* that patterns may still take */
  ckpt_config *config; /* all that it says */
} ckpt_peft;

/* Reads the adapter's config. ENOTFOUND where there is none; EFORMAT, EUNSUPPORTED, ELIMIT with what is wrong in it. */
ckpt_status ckpt_peft_read(ckpt_peft *out, const ckpt_index *adapter, ckpt_error *err);
/* The same of a config's text; path is for messages, and borrowed. */
ckpt_status ckpt_peft_parse(ckpt_peft *out, const char *text, const char *path, ckpt_error *err);
void ckpt_peft_free(ckpt_peft *peft); /* as above */

/* The config alone, unchecked; *path is that of its file, borrowed. Release it with ckpt_config_free. Fails as above.
 */
ckpt_status ckpt_peft_config(ckpt_config **out, const char **path, const ckpt_index *adapter, ckpt_error *err);

/* The rank that the config gives a module. ELIMIT: a pattern takes too many steps. */
ckpt_status ckpt_peft_rank(double *rank, ckpt_peft *peft, const char *module, ckpt_error *err);

/* What B x A of a module is multiplied with: alpha / rank, for rsLoRA alpha / sqrt(rank). rank is that of the stored
 * factors, 0 where there are none; EFORMAT where the config has another. */
ckpt_status ckpt_peft_scale(ckpt_peft *peft, const char *module, uint64_t rank, double *scale, ckpt_error *err);

/* Compiles an expression of the config, of which messages show `text`. EFORMAT: a mistake in it; ELIMIT. */
ckpt_status ckpt_peft_compile(ckpt_pattern **out, ckpt_peft *peft, const char *expression, const char *text,
                              ckpt_error *err);

/* Reads the names of modules into a config that is being read; ckpt_peft_read does. */
ckpt_status ckpt_peft_read_modules(ckpt_peft *peft, ckpt_error *err);
void ckpt_peft_free_modules(ckpt_peft *peft); /* ckpt_peft_free does */

/* Whether modules_to_save names a module, or one that it lies in. */
bool ckpt_peft_names_whole(const ckpt_peft *peft, const char *module);

/* Whether a module is one of the heads that PEFT saves for a task by itself: a model has one of them. */
bool ckpt_peft_is_task_head(const char *module);

/* Whether a name of modules_to_save is of the module of a tensor, or of one that it lies in. */
bool ckpt_peft_names_module_of(const char *name, const char *tensor);

/* Whether the module of a tensor is one that the config saves whole, by name or for its task: the base may lack it. */
bool ckpt_peft_saves(const ckpt_peft *peft, const char *tensor);

/* The rows of a module's embedding that were trained alone, in their order; *n of them, which the caller frees.
 * EFORMAT: one is no row of n_rows, or twice there. */
ckpt_status ckpt_peft_rows(uint64_t **out, size_t *n, const ckpt_peft *peft, const char *module, uint64_t n_rows,
                           ckpt_error *err);

/* The i-th module of which the config says that rows were trained alone; NULL: the input embedding. False past the
 * last. */
bool ckpt_peft_rows_of(const ckpt_peft *peft, size_t i, const char **module);

/* Whether the config targets a module, by the names, the expression or the layers that it has; *is_known is false
 * where it does not say by name. ELIMIT: an expression takes too many steps; EUNSUPPORTED: layers_pattern. */
ckpt_status ckpt_peft_targets(bool *targets, bool *is_known, ckpt_peft *peft, const char *module, ckpt_error *err);

/* Whether the config takes a module out of what it targets. ELIMIT as above. */
ckpt_status ckpt_peft_excludes(bool *excludes, ckpt_peft *peft, const char *module, ckpt_error *err);

/* Whether target_parameters has the parameter `leaf` of a module; NULL: any parameter of it. */
bool ckpt_peft_targets_parameter(const ckpt_peft *peft, const char *module, const char *leaf);

#endif
