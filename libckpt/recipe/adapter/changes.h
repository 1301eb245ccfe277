/* changes.h - what the files of this room share: adapters as they were opened, and what each does to which tensor. */
#ifndef CKPT_RECIPE_ADAPTER_CHANGES_H
#define CKPT_RECIPE_ADAPTER_CHANGES_H

#include "libckpt/plan/ops/lora.h"
#include "libckpt/recipe/adapter/adapter.h"
#include "libckpt/recipe/adapter/names.h"
#include "libckpt/recipe/adapter/peft.h"
#include "libckpt/recipe/adapter/tied_classes.h"

/* What one adapter does to one tensor of the merged model. */
typedef struct ckpt_change {
  uint32_t adapter;
  const ckpt_tensor *base;                       /* NULL: the merged model has it from the adapter alone */
  const char *name;                              /* in the merged model: base's own, or an alias, or a new one */
  const char *module;                            /* PEFT's path of it */
  const ckpt_tensor *input, *output, *magnitude; /* of a low-rank update */
  const ckpt_tensor *bias;                       /* is added */
  const ckpt_tensor *rows;                       /* take the place of the base's rows, or of whole's */
  const char *rows_module;                       /* whose rows the config lists, where it is not `module`; or NULL */
  const ckpt_tensor *whole;                      /* takes the base's place */
  bool is_embedding, is_transposed;
  bool is_below;      /* whole is what the adapter was made for (base_layer) */
  bool is_dropped;    /* the same as another, of a tied tensor */
  uint32_t n_experts; /* whose factors are in one pair; 0: no experts */
  uint32_t expert;    /* which one, where base is one expert's matrix */
  uint64_t first;     /* as above: row of the fused matrix with which base begins */
  uint64_t rank;      /* of one factor; 0: no low-rank update */
  double scale;
} ckpt_change;

typedef struct ckpt_opened_adapter {
  const char *path; /* as it was given */
  uint32_t request;
  const ckpt_index *index;    /* under PEFT's names */
  ckpt_index *opened, *under; /* what is released with it: the index itself, and the file of llama.cpp's under it */
  ckpt_peft peft;
  ckpt_digest digest, base;
  bool has_base; /* its base's digest is known */
  bool *is_zero; /* for each tensor of the index */
  double scale;
} ckpt_opened_adapter;

typedef struct ckpt_adapters_note_text {
  const char *text;
  bool is_doubt; /* a warning */
} ckpt_adapters_note_text;

/* Another name of a tensor, by which a class of a family without a row ties two. */
typedef struct ckpt_tied_name {
  ckpt_adapter_place place;
  bool is_alias; /* of the index, too; else the base has no such name */
} ckpt_tied_name;

struct ckpt_adapters {
  const ckpt_index *base;
  ckpt_adapter_options options;
  ckpt_arena arena;          /* of names and notes */
  ckpt_opened_adapter *list; /* in the byte order of their digests */
  uint32_t n;
  ckpt_change *changes; /* by tensor of the base, then name, then adapter */
  uint32_t n_changes, capacity;
  bool *is_given;     /* while one adapter is looked at: which tensors of the base it has something for */
  const char *prefix; /* that PEFT's paths have before the base's names; NULL: none */
  ckpt_tied_name tied[CKPT_TIED_NAMES + 1];
  uint32_t n_tied;
  bool is_always_tied;        /* whatever config.json says */
  bool is_tie_unknown;        /* a head that the base lacks may be any of its matrices with a row a token */
  uint64_t n_vocabulary;      /* rows of the merged model's embedding, where the base has others; else 0 */
  uint64_t n_vocabulary_base; /* of the base's, then */
  const char **untied;        /* kept, tied, kept, tied, ...: pairs that the merged model has no more */
  uint32_t n_untied, untied_capacity;
  bool has_new_head; /* a tensor that the base lacks */
  const char *class; /* the merged model's for it; NULL: the base's, or not known */
  uint64_t n_labels; /* that it tells apart; 0: it has none, or no known number */
  ckpt_adapters_note_text *notes;
  uint32_t n_notes, note_capacity;
};

/* A note about the merge, or a warning. ENOMEM. */
ckpt_status ckpt_adapters_note(ckpt_adapters *all, ckpt_error *err, const char *format, ...) CKPT_PRINTF(3, 4);
ckpt_status ckpt_adapters_doubt(ckpt_adapters *all, ckpt_error *err, const char *format, ...)
    CKPT_PRINTF(3, 4); /* as above */

/* A tensor that the base lacks, which an adapter has saved: finds the class that has it (heads.c). */
ckpt_status ckpt_adapters_new_head(ckpt_adapters *all, uint32_t number, const char *name, const ckpt_tensor *tensor,
                                   ckpt_error *err);

/* Whether the merged model has no tensor of this name of the base: its class is that of another task, and lacks the
 * head of a language model (heads.c). */
bool ckpt_adapters_lacks(const ckpt_adapters *all, const char *name);

/* Notes what of the base is left out for that. ENOMEM. */
ckpt_status ckpt_adapters_note_lacking(ckpt_adapters *all, ckpt_error *err);

/* That class, and its labels, in config.json. */
ckpt_status ckpt_adapters_edit_head(ckpt_side_file *config_file, ckpt_arena *arena, const ckpt_adapters *all,
                                    ckpt_error *err);

/* Gives a key of config.json a value, in its place where it has one, else at the end (vocabulary.c). */
ckpt_status ckpt_config_set(ckpt_side_file *side, ckpt_arena *arena, const char *key, const char *value,
                            ckpt_error *err);

/* A change of a tensor more; *out is valid until the next one. ENOMEM. */
ckpt_status ckpt_change_add(ckpt_change **out, ckpt_adapters *all, const ckpt_change *change, ckpt_error *err);

/* Any tensor of the adapter that makes the change, for messages. */
const ckpt_tensor *ckpt_change_tensor(const ckpt_change *change);

/* The module whose rows the config lists. */
const char *ckpt_change_rows_module(const ckpt_change *change);

/* Adds the changes of one adapter, whose tensors are all looked at (collect.c). */
ckpt_status ckpt_changes_collect(ckpt_adapters *all, uint32_t number, ckpt_error *err);

/* Sorts the changes, joins those of one adapter to one tensor, and drops what changes nothing (changes.c). */
ckpt_status ckpt_changes_settle(ckpt_adapters *all, ckpt_error *err);

/* Notes what an adapter saved whole, or in rows, and its scale does not change. ENOMEM (changes.c). */
ckpt_status ckpt_changes_note_unscaled(ckpt_adapters *all, ckpt_error *err);

/* Finds how each update lies in its tensor, and refuses what does not fit (shapes.c). */
ckpt_status ckpt_changes_orient(ckpt_adapters *all, ckpt_error *err);

/* Whether the type of the base's model is one without a row whose linear layers are Conv1D, stored transposed: 1, 0, or
 * -1 where nothing says the type (shapes.c). ENOMEM. */
ckpt_status ckpt_adapter_type_transposes(int *out, const ckpt_index *base, ckpt_error *err);

/* Refuses what depends on the order of adapters (changes.c). */
ckpt_status ckpt_changes_check_pairs(const ckpt_adapters *all, ckpt_error *err);

/* Decides what becomes of tied weights, as the options say (tied.c). */
ckpt_status ckpt_changes_untie(ckpt_adapters *all, ckpt_error *err);

/* Finds the names that a model of a family without a row ties to tensors of the base: all->tied (tied.c). ENOMEM. */
ckpt_status ckpt_adapters_find_tied(ckpt_adapters *all, ckpt_error *err);

/* The place of such a name; tensor NULL: there is none (tied.c). */
ckpt_adapter_place ckpt_adapters_tied(const ckpt_adapters *all, const char *wanted);

enum { CKPT_VOCABULARIES = 16 }; /* that one config has */

/* The sizes of vocabularies that config.json has, and which of them the base stores an output head of, by its name. */
typedef struct ckpt_vocabularies {
  uint64_t sizes[CKPT_VOCABULARIES];
  bool has_head[CKPT_VOCABULARIES], has_any_head;
  size_t n;
} ckpt_vocabularies;

/* As ckpt_config_parse (vocabulary.c). */
ckpt_status ckpt_vocabularies_read(ckpt_vocabularies *out, const ckpt_index *base, ckpt_error *err);

/* Whether a tensor has a row a token of a vocabulary without such a head. */
bool ckpt_vocabularies_lack_head(const ckpt_vocabularies *all, const ckpt_index *base, const ckpt_tensor *tensor);

/* Whether the merged model has no more the tie that gives a tensor this other name. */
bool ckpt_adapters_untied(const ckpt_adapters *all, const char *kept, const char *tied);

/* Checks what has more rows or fewer than in the base: a vocabulary, and all of it (vocabulary.c). */
ckpt_status ckpt_changes_check_vocabulary(ckpt_adapters *all, ckpt_error *err);

/* Gives a change, whose rank is known, its scale: what the config says of the module at `path`, times the adapter's,
 * times how often PEFT adds the update (collect.c). EVALUE: no f32 holds it. */
ckpt_status ckpt_change_set_scale(ckpt_change *change, const ckpt_adapters *all, const char *path, double n_times,
                                  ckpt_error *err);

/* Adds the changes that a pair of factors makes to experts (experts.c). *found: whether its module has parameters that
 * the config targets. */
ckpt_status ckpt_change_experts(bool *found, ckpt_adapters *all, const ckpt_change *pair, ckpt_error *err);

/* Whether two tensors have the same values in a's dtype; transposed: b's axes are swapped. */
ckpt_status ckpt_same_values(bool *same, const ckpt_index *of_a, const ckpt_tensor *a, const ckpt_index *of_b,
                             const ckpt_tensor *b, bool is_transposed, ckpt_error *err);

/* One low-rank update in the axes of its tensor, for experts that of one; nodes are in the arena (merge.c). */
ckpt_status ckpt_change_term(ckpt_lora_term *out, const ckpt_adapters *all, const ckpt_change *change, uint64_t expert,
                             ckpt_arena *arena, ckpt_error *err);

/* The value of a tensor with the changes [changes, changes + n), which are all its, in its dtype (merge.c). */
ckpt_status ckpt_change_expr(ckpt_expr **out, const ckpt_adapters *all, const ckpt_change *changes, uint32_t n,
                             ckpt_arena *arena, ckpt_error *err);

/* The first change of a tensor under a name; *n: how many there are. */
const ckpt_change *ckpt_changes_of(const ckpt_adapters *all, const ckpt_tensor *tensor, const char *name, uint32_t *n);

/* Dtype and shape of a changed tensor in the merged model; shape is borrowed. */
ckpt_dtype ckpt_change_dtype(const ckpt_adapters *all, const ckpt_change *changes, uint32_t n);
const ckpt_tensor *ckpt_change_shape(const ckpt_change *changes, uint32_t n); /* as above */

/* config.json with what the merge makes of it: ties and the size of the vocabulary (vocabulary.c). */
ckpt_status ckpt_adapters_edit_config(ckpt_index *merged, const ckpt_adapters *all, ckpt_error *err);

/* Tokenizer files of the adapters, which take the place of the base's (vocabulary.c). EUNSUPPORTED: two adapters bring
 * different ones. */
ckpt_status ckpt_adapters_carry_tokenizer(ckpt_index *merged, const ckpt_adapters *all, ckpt_error *err);

/* Modules that the adapter's config targets, and that got no update: ENOTFOUND unless they may lack it (targets.c). */
ckpt_status ckpt_changes_check_targets(const ckpt_adapters *all, uint32_t number, ckpt_error *err);

/* Refuses a pair of factors of a module that the config does not target. wrapper: a module that holds this one, whose
 * name counts too; or NULL (targets.c). */
ckpt_status ckpt_change_check_target(ckpt_adapters *all, const ckpt_change *pair, const char *wrapper, ckpt_error *err);

/* What the config says is saved whole, or in rows, and is not there: as above. The changes of this adapter are those
 * from `first` on (targets.c). */
ckpt_status ckpt_changes_check_given(const ckpt_adapters *all, uint32_t number, uint32_t first, ckpt_error *err);

/* EVALUE where an adapter changes nothing, unless it may (targets.c). */
ckpt_status ckpt_changes_check_noop(const ckpt_adapters *all, uint32_t number, ckpt_error *err);

#endif
