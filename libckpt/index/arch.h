/* arch.h - what is known of a model family: names, ties, splits, permutations. Data, versioned.
 *
 * Canonical names are those of the Hugging Face model class's own state dict. The rows are in
 * formats/arch/ (list: formats/arch/archs.def). In patterns `#` is a decimal layer, expert or block number. */
#ifndef CKPT_INDEX_ARCH_H
#define CKPT_INDEX_ARCH_H

#include "libckpt/index/config.h"
#include "libckpt/index/index.h"

/* What another dialect does to a tensor besides renaming it: bits, since GPT-2's c_attn is fused and transposed. */
typedef enum ckpt_name_note {
  CKPT_NAME_PLAIN = 0,
  CKPT_NAME_ROPE_PERMUTE = 1, /* GGUF and Meta interleave rotary pairs: rows of each head are permuted */
  CKPT_NAME_TRANSPOSE = 2,    /* stored (in, out) in the Hugging Face model (GPT-2's Conv1D) */
  CKPT_NAME_FUSED_QKV = 4,    /* q, k and v in one tensor */
  CKPT_NAME_OPTIONAL = 8,     /* only some models of the family have it */
  CKPT_NAME_KV_HEADS = 16,    /* its heads are those of keys and values */
  CKPT_NAME_BY_HEAD = 32,     /* of a fused q, k and v: each head's stand together; in GGUF all of q come first */
  CKPT_NAME_PLUS_ONE = 64,    /* a norm to which the model adds 1: GGUF has the sum */
  CKPT_NAME_COPY = 128        /* the tied copy of another: GGUF has no place for one that differs */
} ckpt_name_note;

/* Where hf has one `#` more than gguf, its last is an expert's: GGUF stacks these tensors along a new first axis. */
typedef struct ckpt_arch_name {
  const char *hf, *gguf, *meta; /* patterns; NULL where the dialect has none */
  uint8_t notes;                /* ckpt_name_note bits */
  int8_t split_axis;            /* of the Hugging Face tensor, that tensor parallelism cuts; -1 replicated */
  ckpt_role role;
} ckpt_arch_name;

/* A tensor that stands for others of a state dict, under a name of its own: in memory some releases join what files
 * have apart. The parts, rows of ckpt_arch_name, are equal shares of its rows; where they have one `#` more, it stacks
 * those of all experts along a first axis. With one part it is only renamed, or stacked. */
typedef struct ckpt_arch_joined {
  const char *hf;       /* pattern; NULL ends */
  const char *parts[3]; /* patterns of the parts, in order; NULL ends */
} ckpt_arch_joined;

typedef struct ckpt_arch_tie {
  const char *kept, *tied; /* canonical names; kept is the one that Hugging Face keeps */
  const char *config_key;  /* boolean that decides, e.g. "tie_word_embeddings" */
  bool by_default;         /* where config has no such key */
} ckpt_arch_tie;

/* What config.json says a tensor's axes are: a product (with "/") of its integer keys and of numbers for each axis, "|"
 * between alternatives where a key is absent ("n_inner|4*n_embd"). "num_labels" is how many labels the config has. What
 * no key decides is not checked. */
typedef struct ckpt_arch_shape {
  const char *hf;      /* pattern */
  const char *axes[3]; /* NULL ends */
  const char *when;    /* boolean keys of config.json, "&" between them, with which the tensor is there: "!key" where
                          it is false, "+key" where it is true or absent; NULL: it always is */
} ckpt_arch_shape;

/* What a value of config.json may be, as bits. */
typedef enum ckpt_setting_type {
  CKPT_IS_NULL = 1,
  CKPT_IS_BOOL = 2,
  CKPT_IS_INT = 4,
  CKPT_IS_FLOAT = 8, /* a number with a point, which 1 lacks */
  CKPT_IS_NUMBER = CKPT_IS_INT | CKPT_IS_FLOAT,
  CKPT_IS_TEXT = 16,
  CKPT_IS_LIST = 32,
  CKPT_IS_WORD = 64,    /* the name of an activation or of a summary */
  CKPT_IS_ROPE = 128,   /* a number above 0 that rotary positions are computed with, unless another key says it */
  CKPT_IS_ANY = 256,    /* nobody looks at it */
  CKPT_IS_ALIAS = 512,  /* another name of a key that decides shapes */
  CKPT_IS_LOOSE = 1024, /* another type may be refused, or not */
  CKPT_IS_FILLED = 2048 /* a null becomes a number as the config is made */
} ckpt_setting_type;

/* A key of config.json, and what transformers 5 demands of its value. */
typedef struct ckpt_arch_setting {
  const char *key; /* NULL ends */
  uint32_t types;  /* ckpt_setting_type bits */
} ckpt_arch_setting;

/* A class of transformers, and all that its state dict has. */
typedef struct ckpt_arch_model {
  const char *name;                  /* as config.json's `architectures` has it; NULL ends */
  const char *model_type;            /* of the configs that it is made for */
  const ckpt_arch_setting *settings; /* keys of these beside those of every config */
  const char *prefix;                /* of the body's names in it, which transformers adds and takes off as it loads */
  const ckpt_arch_shape *body;       /* the bare model's tensors, under canonical names; hf NULL ends */
  const ckpt_arch_shape *head;       /* those beside them; NULL: the class is the bare model, without the prefix */
  const char *const *passed;    /* parts of names that transformers passes over where the class has no such tensor */
  const char *const *undecided; /* keys of config.json with which the class has other tensors than these */
  const char *whole, *parts;    /* keys: whole is a multiple of parts, or the class refuses the config; or NULL */
  bool is_padding_a_row;        /* pad_token_id is a row of the embedding, or the class refuses the config */
} ckpt_arch_model;

/* How a value of GGUF's metadata follows from config.json. */
typedef enum ckpt_key_kind {
  CKPT_KEY_U32,          /* a whole number: a product of keys, see ckpt_arch_shape */
  CKPT_KEY_WINDOW,       /* a whole number of positions, as above; null, without a window, is the whole context */
  CKPT_KEY_F32,          /* a number: the first of several keys that the config has */
  CKPT_KEY_BOOL,         /* true or false; true where the config does not say */
  CKPT_KEY_BASE,         /* of rotary positions (ckpt_arch_rope); `config` is written back */
  CKPT_KEY_THETA,        /* the same where it is not 10000, which llama.cpp takes by itself */
  CKPT_KEY_ROTARY,       /* a head's width that rotates: `config` times the part that the config's rope has */
  CKPT_KEY_ROPE_SCALING, /* rope.scaling.*, as the type of scaling has them */
  CKPT_KEY_FILE_TYPE     /* general.file_type stands here */
} ckpt_key_kind;

typedef struct ckpt_arch_key {
  const char *gguf;   /* after "<architecture>." */
  const char *config; /* keys of config.json, "|" between those that are tried in turn; the first is written back */
  ckpt_key_kind kind;
} ckpt_arch_key;

/* A tensor of GGUF that no checkpoint has: it is computed from config.json. */
typedef enum ckpt_made_kind {
  CKPT_MADE_ROPE_FACTORS /* of rotary frequencies, where the config scales them as llama3 or longrope */
} ckpt_made_kind;

typedef struct ckpt_arch_made {
  const char *gguf; /* NULL ends */
  ckpt_made_kind kind;
} ckpt_arch_made;

/* A number that follows from others in every model that runs in GGUF, since no key says it. */
typedef struct ckpt_arch_implied {
  const char *config, *extent; /* config NULL ends; extent: see ckpt_arch_shape */
  uint64_t n_layers;           /* of models with so many; 0: of all that no earlier row is for */
} ckpt_arch_implied;

/* A key of config.json that is true where GGUF has a tensor: with it, a model has all that depend on it (`when` of
 * ckpt_arch_shape), without it none. */
typedef struct ckpt_arch_flag {
  const char *config, *gguf; /* config NULL ends */
} ckpt_arch_flag;

/* What every model of a family has that runs in GGUF: config.json may say nothing else, and says this on the way back.
 */
typedef struct ckpt_arch_constant {
  const char *config; /* key; NULL ends */
  const char *values; /* JSON, "|" between those that mean the same; the first is written */
  bool is_default;    /* of the class: it is not written */
} ckpt_arch_constant;

/* What transformers' class has where its config lacks a key: GGUF needs it, or llama.cpp would take another. */
typedef struct ckpt_arch_default {
  const char *config, *value; /* config NULL ends; value: JSON */
  const char *model_type;     /* of configs of this type; NULL: of all of the family */
} ckpt_arch_default;

/* A key of config.json that means nothing where a flag is not set. */
typedef struct ckpt_arch_needless_without {
  const char *config, *flag; /* config NULL ends */
} ckpt_arch_needless_without;

/* A family's other dialect: GGUF. ckpt_arch_name has the names; the rules are those of llama.cpp's converter. */
typedef struct ckpt_arch_gguf {
  const char *architecture;     /* general.architecture */
  const char *having;           /* key that tells it from another family of this architecture; NULL: it has none */
  const char *const *classes;   /* of config.json's architectures: the models that there is such a file of */
  const char *heads, *kv_heads; /* config keys: numbers of heads */
  const ckpt_arch_key *keys;    /* in the converter's order; gguf NULL ends */
  const ckpt_arch_made *made;
  const ckpt_arch_flag *flags;
  const char *const *needless; /* keys of config.json that a model in GGUF runs without, NULL-terminated */
  const ckpt_arch_needless_without *needless_without; /* or NULL */
  const char *const *layer_types;      /* the period of config's layer_types, NULL-terminated; NULL: full attention */
  const ckpt_arch_constant *constants; /* or NULL */
  const ckpt_arch_implied *implied;    /* or NULL */
  const ckpt_arch_default *defaults;   /* or NULL */
  bool needs_head;                     /* llama.cpp takes no embedding for an output head that is missing */
  const char *const *taken;            /* endings of names that llama.cpp takes beside those of the rows, or NULL */
} ckpt_arch_gguf;

/* A family's rotary positions: keys that stand outside the object of a config that has the rest (ckpt_config_rope), and
 * what its class takes where neither says it. */
typedef struct ckpt_arch_rope {
  const char *theta_key, *part_key; /* theta_key NULL: the family has none */
  double theta, part;               /* the base; the part of a head that rotates */
  bool by_layer;                    /* the object may have one for each kind of layers */
} ckpt_arch_rope;

typedef struct ckpt_arch {
  const char *name;               /* "llama": GGUF's and config's model_type alike where they agree */
  uint32_t revision;              /* of this table; part of the naming in digests */
  const char *const *model_types; /* config.json's model_type values, NULL-terminated */
  const ckpt_arch_model *models;  /* all that classes have; NULL: not known, so that no checkpoint is proven whole */
  const char *base_prefix;        /* "model." or "transformer.": absent in checkpoints of the bare model */
  /* hf NULL ends. The order is that of the model's own named_parameters(), which files of weights do not keep and
   * numbered optimizer states follow; rows that have a `#` and stand together are one list of layers. */
  const ckpt_arch_name *names;
  const ckpt_arch_joined *joined; /* or NULL */
  int64_t ordered_since[2];       /* that order's first version of transformers, "4.31"; 0, 0: it always was */
  const ckpt_arch_tie *ties;      /* kept NULL ends */
  const ckpt_arch_shape
      *shapes;           /* of a model's body; hf NULL ends; the first is the embedding's, axis 0 the vocabulary */
  const char *n_layers;  /* config key: how many numbers the first `#` of names takes */
  const char *n_experts; /* the same of the second; NULL: no name has one */
  ckpt_arch_rope rope;
  const ckpt_arch_gguf *gguf; /* NULL: names alone are known */
} ckpt_arch;

#define CKPT_MAX_TIES 32 /* ties of one row */

extern const ckpt_arch *const ckpt_archs[]; /* NULL-terminated; formats/registry.c */

/* The row for a config.json's model_type (or row name), or NULL. */
const ckpt_arch *ckpt_arch_find(const char *model_type);

/* The row's name entry that matches a canonical name, its numbers in numbers[] (at most 2); NULL if none does. */
const ckpt_arch_name *ckpt_arch_match(const ckpt_arch *arch, const char *name, uint64_t *numbers);

/* Whether two patterns are names that releases call one tensor by. */
bool ckpt_arch_is_one_tensor(const ckpt_arch *arch, const char *a, const char *b);

/* The row of a tensor that joins others, or NULL. */
const ckpt_arch_joined *ckpt_arch_match_joined(const ckpt_arch *arch, const char *name, uint64_t *numbers);

/* The name of the tensor that joins those of a row of names with others, in a layer; arena text, NULL: none does. */
const char *ckpt_arch_joined_name(const ckpt_arch *arch, const char *part, const uint64_t *numbers, ckpt_arena *arena);

/* The same of a name of GGUF's. */
const ckpt_arch_name *ckpt_arch_match_gguf(const ckpt_arch *arch, const char *name, uint64_t *numbers);

enum { CKPT_ARCH_PLACE = 3 }; /* words of a place, which compare one after the other */

/* A parameter's place in the model's order. False for a buffer, for a name that the row does not know, and for one with
 * more numbers than its layer's. */
bool ckpt_arch_place(const ckpt_arch *arch, const char *name, uint64_t place[CKPT_ARCH_PLACE]);

/* A tensor's shape beside the one that a config says of it, as text. */
typedef struct ckpt_arch_extents {
  bool differs;
  const char *undecided;                /* the first axis that no key of the config decides, or NULL */
  char is[128], wanted[128], said[256]; /* said: the keys */
} ckpt_arch_extents;

/* Finds the row of a name's pattern in the body or in a class's head; NULL: neither has it. The config's model_type
 * chooses the body, because its class may lack what its relatives have; without a config the family's body counts. */
const ckpt_arch_shape *ckpt_arch_shape_of(const ckpt_arch *arch, const ckpt_config *config, const char *pattern);

/* Whether a config has the tensors of a row, by its `when`. A value that is no boolean counts as absent. */
bool ckpt_arch_is_wanted(const ckpt_arch_shape *row, const ckpt_config *config);

/* Compares a tensor's shape with the one that the row and the config give. */
void ckpt_arch_compare_shape(ckpt_arch_extents *out, const ckpt_arch_shape *row, const ckpt_config *config,
                             const ckpt_tensor *tensor);

/* Whether a name is one of a pattern's, and its numbers (at most 2). */
bool ckpt_arch_matches(const char *pattern, const char *name, uint64_t *numbers);

/* Fills a pattern's `#` with numbers, in order; arena text. */
char *ckpt_arch_fill(const char *pattern, const uint64_t *numbers, ckpt_arena *arena);

/* Gives an opened, unfinished index its canonical names. Wrapper prefixes go, also inside
 * `optimizer.state.<parameter>.<leaf>`: `module.` at the start; `_orig_mod.`, `_fsdp_wrapped_module.` and
 * `_checkpoint_wrapped_module.` if they are whole components. Names of role OTHER stay. The config.json among the side
 * files, else that of `like` (may be NULL), may name a known architecture. Then a bare model's names get the base
 * prefix and roles come from the row. A pair that the config ties becomes one tensor under the kept name, with the tied
 * one as alias, unless both are stored (ckpt_arch_tied_pair). An alias group has the kept name of a tie, else, without
 * a known architecture, the name that ranks first (ties.h), else its first name in byte order. Sets architecture and
 * names: "hf:<architecture>/<revision>". Without a known architecture names is "stored", or "hf:any/2" if ranks decided
 * a tie, or "hf:any/1" if wrappers or containers were removed (is_renamed). With stored_names it only sets names =
 * "stored". Fails with EEXIST if names collide afterwards, and as ckpt_config_parse does. */
ckpt_status ckpt_index_canonical_names(ckpt_index *index, bool stored_names, const ckpt_index *like, ckpt_error *err);

/* The naming_revision of ckpt_open_options under which names are again what a digest over these was made of: 0, the
 * newest rules, where it names a family. */
uint32_t ckpt_naming_revision(const char *names);

/* The same of the names in a LIST, after that: parameters of a group of an optimizer. Names that change are new texts.
 * ENOMEM. */
ckpt_status ckpt_index_canonical_params(ckpt_index *index, ckpt_object *params, ckpt_error *err);

/* A parameter's name without wrapper prefixes: name itself, or a copy in the arena; NULL when that is full. */
const char *ckpt_name_unwrapped(const char *name, ckpt_arena *arena);

/* Whether the config ties the two names, canonical ones: who opens the model again ties them without being told. False
 * for a model whose config.json is not carried. */
bool ckpt_arch_states_tie(const ckpt_index *index, const char *kept, const char *tied);

/* The note for a checkpoint that holds a tied tensor under both names, without a config.json of a known architecture.
 * Its digest uses the first name in byte order, where a config might keep the other. `architecture` may be empty, since
 * an output may leave its input's config behind. *note is arena text; NULL if a config would not change the digest. */
ckpt_status ckpt_arch_unstated_tie(const ckpt_index *index, const char *architecture, ckpt_arena *arena,
                                   const char **note, ckpt_error *err);

/* The i-th pair of tensors that are both stored though the config ties them: they must hold the same bytes and count
 * once, under kept's name. index is finished; false past the last pair. */
bool ckpt_arch_tied_pair(const ckpt_index *index, size_t i, const ckpt_tensor **kept, const ckpt_tensor **tied);

#endif
