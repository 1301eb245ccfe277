/* write.h - between the files that write DeepSpeed's checkpoints: what a description is as a training run.
 *
 * A PARAMETER is trained where a group of the optimizer names it; its fp32 values are its master's, or its own where it
 * has none. A parameter that is read as its master is, every one in stage 3, and the steps of a group's parameters are
 * elsewhere (layout.h): the files hold them once. Files are torch.save archives (codec/torch/write/archive_write.h)
 * whose leaves are numbered: first those of the input's objects, then the tensors of the description, then the steps of
 * groups. */
#ifndef CKPT_FORMATS_ZERO_WRITE_WRITE_H
#define CKPT_FORMATS_ZERO_WRITE_WRITE_H

#include "libckpt/codec/torch/state/state.h"
#include "libckpt/codec/torch/write/archive_write.h"
#include "libckpt/codec/torch/write/write.h"
#include "libckpt/format/format.h"

#define CKPT_ZERO_VERSION "0.19.8" /* whose files these are */
#define CKPT_ZERO_STAGES 3
#define CKPT_STEP_TAG "global_step"
#define CKPT_UNIVERSAL_END "_universal"
#define CKPT_NO_TENSOR UINT32_MAX

/* States of one parameter, without its master. */
enum { CKPT_ZERO_MAX_STATES = 7 };

typedef struct ckpt_zero_trained {
  const char *name;      /* as the group has it */
  uint32_t of;           /* the optimizer's group */
  uint32_t tensor, fp32; /* fp32: the master's number, or tensor */
  uint32_t states[CKPT_ZERO_MAX_STATES];
} ckpt_zero_trained;

typedef struct ckpt_zero_group {
  const ckpt_object *object; /* lr, betas, ...; NULL: nothing is known */
  uint32_t of;               /* the optimizer's group: several may be parts of one */
  uint32_t first, n;         /* of the parameters */
  bool has_step, is_number;  /* a step as a tensor, or as an INT */
  float step;
  int64_t number;
} ckpt_zero_group;

/* What an engine computes in, which names of files and the loss scaler depend on. */
typedef enum ckpt_zero_engine {
  CKPT_ENGINE_SAID,
  CKPT_ENGINE_BF16,
  CKPT_ENGINE_FP16,
  CKPT_ENGINE_FP32
} ckpt_zero_engine;

typedef struct ckpt_zero_run {
  ckpt_layout *layout;
  const ckpt_index *index;
  ckpt_arena *arena;
  ckpt_zero_trained *params;
  uint32_t n_params;
  ckpt_zero_group *groups;
  uint32_t n_groups;
  bool has_order;                         /* the optimizer's groups say which parameter follows which */
  const char *keys[CKPT_ZERO_MAX_STATES]; /* torch's, of states */
  uint32_t n_keys, scalars;    /* scalars: bits of keys whose states are one value, the same of a group's parameters */
  bool *is_trained, *has_copy; /* by tensor: a trained parameter; one that is written beside its fp32 values */
  uint32_t *numbers;           /* by leaf of the input's objects: tensor, CKPT_NO_TENSOR */
  uint32_t n_numbers;
  uint32_t n_leaves;
  ckpt_torch_part *steps;  /* of groups */
  uint32_t world, stage;   /* stage: 0: universal */
  ckpt_zero_engine engine; /* SAID: as far as the input says */
} ckpt_zero_run;

/* normalize.c: reduces a description's objects to what a run's files hold; the rest is lost. As ckpt_format's
 * slot. */
ckpt_status ckpt_zero_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);

/* Finds groups, parameters and states of a layout's index, for a stage (0: universal) and a number of ranks (0: 1).
 * EUNSUPPORTED names what DeepSpeed has no place for. */
ckpt_status ckpt_zero_run_find(ckpt_zero_run **out, ckpt_layout *layout, uint32_t stage, uint32_t world,
                               ckpt_error *err);

/* Leaves the one value of a group's parameters to the first of them, which the group's state has. Stages 1 to 3, whose
 * groups are cut. ENOMEM. */
ckpt_status ckpt_zero_run_share(ckpt_zero_run *run, ckpt_error *err);

/* Cuts groups as an engine of stage 3 does whose sub_group_size this is: after the parameter with which what a rank has
 * of them reaches it. ENOMEM. */
ckpt_status ckpt_zero_run_split(ckpt_zero_run *run, uint64_t sub_group_size, ckpt_error *err);

/* Leaves: a tensor's, and that of a group's step (NULL: it has none that is a tensor). NULL also when out of memory. */
ckpt_object *ckpt_zero_leaf(const ckpt_zero_run *run, uint32_t tensor);
ckpt_object *ckpt_zero_step_leaf(const ckpt_zero_run *run, uint32_t group); /* as above */

/* What such a leaf is, ckpt_torch_item_of; arg: the run. */
void ckpt_zero_item(const void *arg, uint32_t leaf, ckpt_torch_item *item);

/* An empty dict with room for n keys, and entries of it. A value of NULL is out of memory. */
ckpt_status ckpt_zero_dict(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err);
ckpt_status ckpt_zero_set(const ckpt_zero_run *run, ckpt_object *dict, const char *key, const ckpt_object *value,
                          ckpt_error *err); /* as above */

/* A leaf under all names of its tensor. */
ckpt_status ckpt_zero_set_names(const ckpt_zero_run *run, ckpt_object *dict, const ckpt_tensor *tensor,
                                const ckpt_object *leaf, ckpt_error *err);

/* A list of n items, NULL at first. */
ckpt_status ckpt_zero_list(const ckpt_zero_run *run, uint64_t n, ckpt_object **out, ckpt_error *err);

/* A call with n arguments, NULL at first, and an instance as pickle makes it, whose attributes a dict holds. name:
 * "module.Class", which is not copied. */
ckpt_status ckpt_zero_call(const ckpt_zero_run *run, const char *name, uint64_t n, ckpt_object **out, ckpt_error *err);
ckpt_status ckpt_zero_instance(const ckpt_zero_run *run, const char *name, const ckpt_object *attributes,
                               ckpt_object **out, ckpt_error *err); /* as above */

/* The groups as the optimizer of a run says them: params are numbers of the run's groups. */
ckpt_status ckpt_zero_groups(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err);

/* Whether the engine computes in bf16: as it was asked for, else as far as the input says. */
bool ckpt_zero_is_bf16(const ckpt_zero_run *run);

/* Adds a note on the layout. ENOMEM. */
ckpt_status ckpt_zero_say(const ckpt_zero_run *run, const char *text, ckpt_error *err);

/* ---- model.c: the model file ---- */

/* Its object; of stage 3 without the tensors of parameters. */
ckpt_status ckpt_zero_model(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err);

/* The step that it says: DeepSpeed's own where the input kept it, the trainer's, or that of the optimizer's states. */
int64_t ckpt_zero_step_said(const ckpt_zero_run *run);

/* The same without what holds tensors, and without module: what ranks of stage 3 open. */
ckpt_status ckpt_zero_without_tensors(const ckpt_zero_run *run, const ckpt_object *root, ckpt_object **out,
                                      ckpt_error *err);

/* Appends a file that is an archive of root, as ckpt_torch_archive_lay. */
ckpt_status ckpt_zero_lay(const ckpt_zero_run *run, const char *name, const ckpt_object *root, uint32_t n_leaves,
                          ckpt_torch_item_of *of, const void *arg, ckpt_error *err);

/* Appends a file that is a text; the side files. */
ckpt_status ckpt_zero_lay_text(const ckpt_zero_run *run, const char *name, const char *text, ckpt_error *err);
ckpt_status ckpt_zero_lay_sides(const ckpt_zero_run *run, const char *dtype, ckpt_error *err); /* as above */

/* The name of the folder of a save: the input's, for accelerate's load_state asks for its own pytorch_model, or
 * global_step<N>. */
const char *ckpt_zero_tag(const ckpt_zero_run *run);

/* ---- scaler.c: the loss scaler ---- */

/* A loss scaler's state as DeepSpeed has it: its own, or that of torch's GradScaler which scales by the same and grows
 * at the same step. NULL: there is none that does. */
ckpt_status ckpt_zero_scaler_of(const ckpt_object **out, const ckpt_object *given, ckpt_arena *arena, ckpt_error *err);

/* The scaler of a run. It scales by 1 where the input or the engine has none, and begins anew where an engine of fp16
 * needs one. And the note on that. */
ckpt_status ckpt_zero_scaler(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err);
ckpt_status ckpt_zero_scaler_say(const ckpt_zero_run *run, ckpt_error *err); /* as above */

/* Whether it changes its scale. */
bool ckpt_zero_is_dynamic(const ckpt_zero_run *run);

/* layout.c: as ckpt_format's slots. */
extern const ckpt_format_option ckpt_zero_options[];
const char *ckpt_zero_only_masters(const ckpt_format_values *values, const char **instead);             /* as above */
ckpt_status ckpt_zero_layout(ckpt_layout *layout, const ckpt_layout_options *options, ckpt_error *err); /* as above */

/* owns.c: as ckpt_format's slot. */
void ckpt_zero_owns(const char *const *names, uint32_t n, const ckpt_file_set *written, bool *is_ours);

/* ---- formats/zero/write/universal.c ---- */

/* As ckpt_format's slots. Notes what engines of stage 3 do not take from it. */
ckpt_status ckpt_universal_normalize(ckpt_index *described, ckpt_losses *losses, ckpt_error *err);
ckpt_status ckpt_universal_layout(ckpt_layout *layout, const ckpt_layout_options *options,
                                  ckpt_error *err); /* as above */
void ckpt_universal_owns(const char *const *names, uint32_t n, const ckpt_file_set *written,
                         bool *is_ours); /* as above */

#endif
