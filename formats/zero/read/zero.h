/* zero.h - between the files of the reader of DeepSpeed's ZeRO checkpoints. docs/formats/zero.md has the layout.
 *
 * What a rank keeps of one group of parameters is a FLAT: a row of its elements, once as masters and once for each
 * state of the optimizer. A PIECE is the part of a parameter that lies in one flat. Readers of rank files add flats,
 * and pieces of each parameter in the order of its elements; from them come tensors. */
#ifndef CKPT_FORMATS_ZERO_READ_ZERO_H
#define CKPT_FORMATS_ZERO_READ_ZERO_H

#include "libckpt/codec/parallel/cut.h"
#include "libckpt/codec/torch/read/file.h"
#include "libckpt/codec/torch/state/state.h"
#include "libckpt/format/format.h"

#define CKPT_ZERO_LATEST "latest"
#define CKPT_LATEST_UNIVERSAL "latest_universal"
#define CKPT_ZERO_SUFFIX "_states.pt"

/* A torch file of the checkpoint, opened as an index of its own: names are paths in its object, and the object's leaves
 * are its numbers. */
typedef struct ckpt_zero_file {
  const char *path;   /* for messages; borrowed from the source */
  uint32_t number;    /* in the source */
  uint64_t n_pickled; /* bytes of its object's pickle, which bound what that can say */
  ckpt_index *held;
  ckpt_torch_graph graph;
  ckpt_arena nodes;
} ckpt_zero_file;

/* The files of one kind: a grid of model-parallel ranks (tensor-parallel ones of one pipeline stage after the other)
 * and data-parallel ranks. Paths are below the root of the source, in the index's arena. */
typedef struct ckpt_zero_files {
  const char **paths; /* of data-parallel rank R of model-parallel rank S at S * n + R */
  const char *like;   /* the name of one of them; NULL: there are none */
  uint32_t n, n_shards;
} ckpt_zero_files;

/* A file by the numbers in its name; of an expert's file the rank is the expert. */
typedef struct ckpt_zero_place {
  const char *name; /* below the root */
  uint32_t shard, layer, rank;
  uint64_t n_bytes;
} ckpt_zero_place;

/* What one model-parallel rank has: a model of its own, of slices, cut among data-parallel ranks as any other. */
typedef struct ckpt_zero_shard {
  ckpt_zero_file file; /* the model file; in stage 3 that of the first data-parallel rank */
  uint32_t first_param, n_params;
  uint32_t n_shapes;   /* tables in param_shapes */
  uint32_t first_flat; /* flats of rank R and group G at first_flat + R * n_groups + G */
} ckpt_zero_shard;

/* A parameter of param_shapes, or a frozen one. */
typedef struct ckpt_zero_param {
  const char *name;
  uint64_t shape[CKPT_MAX_RANK], n_elements;
  uint64_t n_held;      /* elements of its pieces */
  uint8_t dtype;        /* of a frozen one's pieces */
  uint32_t rank, group; /* group: place in param_shapes; of a frozen one UINT32_MAX */
  uint32_t shard;
  uint32_t part, stride;    /* of an expert: which of the expert-parallel ranks has it; to the next one's of the kind */
  bool is_other;            /* a slice of a tensor that an earlier shard's slice stands for, or a copy of it */
  const ckpt_zero_cut *cut; /* of the one that stands for all: how its slices, which are those of the first shards from
                               its own on that have it, make the tensor; NULL: it is all of it */
  uint32_t first_piece, n_pieces;
  uint32_t n_files; /* of its module's layers; counted at the first of the module's parameters */
  uint32_t number;  /* of its model tensor in the index; UINT32_MAX: none yet */
} ckpt_zero_param;

/* Masters, and states of the optimizer by the keys that rank 0 has. Bits are those of slots. */
enum { CKPT_ZERO_SLOTS = 8, CKPT_ZERO_KEY_BYTES = 64 };
typedef struct ckpt_zero_slot {
  char key[CKPT_ZERO_KEY_BYTES]; /* torch's; of the first slot "master" */
  bool is_scalar;                /* one for a whole flat: step */
  uint8_t dtype;
} ckpt_zero_slot;

/* The slots that go together, as those of one optimizer do: Muon has one for matrices and another for the rest. */
typedef struct ckpt_zero_kinds {
  uint32_t bits[CKPT_ZERO_SLOTS];
  uint32_t n;
} ckpt_zero_kinds;

/* Elements of one rank and group. extents[slot] holds all of them, and may hold padding behind. */
typedef struct ckpt_zero_flat {
  ckpt_extent extents[CKPT_ZERO_SLOTS];
  uint32_t slots;      /* bits: what it has */
  uint32_t muon;       /* the slot of its momentum of Muon; 0: none */
  uint64_t n_momentum; /* elements of that as stored; 0: it lies as other states */
  uint64_t n_skipped;  /* of them before those of the first element */
  uint64_t n;          /* elements, as masters have them */
  uint64_t n_taken;    /* by pieces */
} ckpt_zero_flat;

typedef struct ckpt_zero_piece {
  uint64_t at, count; /* in the flat */
  uint32_t param, flat;
} ckpt_zero_piece;

/* Client state and buffers of ranks that are others than rank 0's. */
enum { CKPT_ZERO_CLIENT_KEYS = 4 }; /* that a note names; DeepSpeed's users have few */
typedef struct ckpt_zero_client {
  const char *keys[CKPT_ZERO_CLIENT_KEYS];
  const char *first; /* the first of n_files that have other values; in the index's arena, as the keys */
  uint32_t n_keys, n_files;
  bool has_more; /* keys */
} ckpt_zero_client;

typedef struct ckpt_zero {
  ckpt_index *index;
  bool checks_names;                  /* as ckpt_zero_reading */
  const char *folder;                 /* of the files, below the root; "" for the root itself */
  ckpt_zero_files models, optimizers; /* as the folder lists them */
  ckpt_zero_files expert_optimizers;  /* of expert-parallel ranks, without ZeRO */
  ckpt_zero_files rank_models;        /* of a universal checkpoint that has both kinds */
  ckpt_zero_place *experts, *layers;  /* files: shard by shard, layer by layer, in order; in the index's arena */
  uint32_t n_experts, n_layers;
  uint32_t n_layer_ranks; /* tensor-parallel ranks: once checked, layer number I has its files from I * this on */
  uint32_t stage, world, n_groups; /* world: data-parallel ranks; groups: flats of each */
  uint32_t *n_parts;               /* of each group: expert-parallel ranks, each with parameters of its own; or 1 */
  bool is_data_first;              /* expert-parallel ranks are blocks of data-parallel ones, not every n-th */
  bool has_other_scaler;           /* a rank's is not that of rank 0, and that was said */
  bool is_mapped;                  /* files say by mappings which elements of a partition are whose */
  bool is_round_robin;             /* order of param_shapes is that of the ranks, not of the optimizer */
  bool is_universal;               /* read by universal.c */
  bool is_bf16_optimizer;          /* files state no stage, padding is not stripped */
  ckpt_zero_shard *shards;
  uint32_t n_shards;
  ckpt_zero_param *params; /* shard by shard in the order of the file */
  uint32_t n_params, param_capacity;
  uint32_t *by_name;                     /* numbers of params in order of names, then of shards */
  ckpt_zero_slot slots[CKPT_ZERO_SLOTS]; /* the first: masters */
  uint32_t n_slots;
  ckpt_zero_kinds kinds;
  ckpt_zero_flat *flats; /* those of shards; then frozen fragments */
  uint32_t n_flats, flat_capacity;
  ckpt_zero_piece *pieces; /* once all are there: in the order of parameters */
  uint32_t n_pieces, piece_capacity;
  uint32_t n_tensor;      /* tensor-parallel ranks: shards that follow each other */
  uint32_t copy;          /* not 0: read only what tensor-parallel rank number `copy` has a copy of */
  uint32_t twin, n_twins; /* not 0: read only copy number `twin` of modules that a pipeline ties; of how many at most */
  ckpt_zero_rules *rules; /* NULL: there are none */
  ckpt_extent *extents;   /* of the tensor at hand */
  uint32_t n_extents, extent_capacity;
  uint64_t n_expanded; /* as ckpt_torch_graph */
  ckpt_torch_globals globals;
  const ckpt_object *groups;      /* of the optimizer, from rank 0 */
  const ckpt_object *loss_scaler; /* an instance, its attributes, or NULL */
  const char *left;               /* the first of n_left values that are carried nowhere */
  const char *left_why;
  uint64_t n_left;
  ckpt_zero_client client;
  const ckpt_object **steps; /* of groups whose states have it as a number, else NULL; n_groups, in the arena */
} ckpt_zero;

/* ---- files.c: which files there are ---- */

/* Lists the folder's files: models, rank_models, optimizers. ENOTFOUND names a file that is missing. */
ckpt_status ckpt_zero_find_files(ckpt_zero *zero, ckpt_error *err);

/* Whether model files are among a folder's entries; any file of ZeRO; one of a kind that this version cannot read. */
bool ckpt_zero_has_models(const ckpt_entry *entries, size_t n_entries);
bool ckpt_zero_has_states(const ckpt_entry *entries, size_t n_entries); /* as above */
bool ckpt_zero_has_unread(const ckpt_entry *entries, size_t n_entries); /* as above */

/* Fails with the name of the file of a rank that is missing, of n_wanted of which n_there are there. */
ckpt_status ckpt_zero_missing(const ckpt_zero *zero, const ckpt_zero_files *files, uint32_t shard, uint32_t rank,
                              uint64_t n_there, uint64_t n_wanted, ckpt_error *err);

/* Takes files of ranks that the save had not out of the lists, which is noted: of model-parallel ranks, whose number
 * the first model file says, then of data-parallel ones. ENOTFOUND as above. */
ckpt_status ckpt_zero_check_shards(ckpt_zero *zero, const ckpt_zero_file *first, ckpt_error *err);
ckpt_status ckpt_zero_check_files(ckpt_zero *zero, ckpt_error *err); /* as above */
ckpt_status ckpt_zero_note_leftovers(ckpt_zero *zero, uint32_t n, const char *first, ckpt_error *err);

/* ---- experts.c ---- */

/* Refuses an expert whose file is missing, or is of none of the model's, and experts of kinds that are not read. */
ckpt_status ckpt_zero_check_experts(const ckpt_zero *zero, ckpt_error *err);

/* Adds the parameters of the experts that other expert-parallel ranks have to those of the first, which param_shapes
 * has; n_parts says in which groups. Relies on ckpt_zero_read_params. */
ckpt_status ckpt_zero_spread_experts(ckpt_zero *zero, ckpt_error *err);

/* Which expert-parallel rank a data-parallel rank is in a group. */
uint32_t ckpt_zero_part_of(const ckpt_zero *zero, uint32_t group, uint32_t rank);

/* The n-th of the data-parallel ranks that are expert-parallel rank `part` in a group. */
uint32_t ckpt_zero_rank_of(const ckpt_zero *zero, uint32_t group, uint32_t part, uint32_t n);

/* A shard's parameter that a rank of expert-parallel rank `part` calls so; NULL: there is none. */
ckpt_zero_param *ckpt_zero_find_part(const ckpt_zero *zero, uint32_t shard, uint32_t part, const char *name);

/* How many experts the modules have that names are of: one more than the highest number among them; 0: of none. */
ckpt_status ckpt_zero_count_experts(const char *const *names, uint32_t n, uint64_t *n_experts, ckpt_error *err);

/* The number of the expert that a name is of; -1: of none. */
int64_t ckpt_zero_expert_of(const char *name);

/* Writes the name that the expert with another number has. ELIMIT: longer than there is room for. */
enum { CKPT_ZERO_NAME_BYTES = 8192 }; /* of a state's name, too */
ckpt_status ckpt_zero_name_expert(char name[CKPT_ZERO_NAME_BYTES], const char *of, uint64_t expert, ckpt_error *err);

/* ---- layers.c ---- */

/* Refuses what is missing of a pipeline, or of other ranks than its save had. Relies on ckpt_zero_read_params. */
ckpt_status ckpt_zero_check_layers(ckpt_zero *zero, ckpt_error *err);

/* What comes before the names in a layer's file: in the index's arena. */
ckpt_status ckpt_zero_prefix_layer(const ckpt_zero *zero, const char **prefix, const ckpt_zero_place *place,
                                   const ckpt_zero_file *file, ckpt_error *err);

/* How many files there were before, of layers that are the same module. */
uint32_t ckpt_zero_turn_of_layer(ckpt_zero *zero, const char *prefix);

/* Writes prefix and name. ELIMIT: longer than there is room for. */
ckpt_status ckpt_zero_name_layer(char name[CKPT_ZERO_NAME_BYTES], const char *prefix, const char *of, ckpt_error *err);

/* ---- file.c: files and their contents ---- */

/* Opens a file by its path below the root. Close it in any case. */
ckpt_status ckpt_zero_open(ckpt_zero_file *file, ckpt_zero *zero, const char *path, ckpt_error *err);
void ckpt_zero_close(ckpt_zero_file *file); /* a zeroed one is fine */

/* Makes the nodes of a file's object the index's: tensors in it get the index's numbers by `numbers`, and become None
 * where that says UINT32_MAX (all of them where it is NULL). */
void ckpt_zero_keep(ckpt_zero_file *file, ckpt_zero *zero, const uint32_t *numbers);

/* The tensor of a leaf of the file's object; NULL for anything else. */
const ckpt_tensor *ckpt_zero_tensor(const ckpt_zero_file *file, const ckpt_object *node);

/* A flat tensor's extent, whose elements follow each other; EFORMAT, EUNSUPPORTED where they do not. */
ckpt_status ckpt_zero_flat_of(const ckpt_zero_file *file, const ckpt_object *node, const char *what,
                              ckpt_extent *extent, uint64_t *n, uint8_t *dtype, ckpt_error *err);

/* An extent of `count` units at unit `at` of a flat one, which begin at `start` of their tensor. */
ckpt_extent ckpt_zero_part(const ckpt_extent *flat, ckpt_dtype dtype, uint64_t at, uint64_t count, uint64_t start);

/* Adds tensor number `held` of a file to the index, under another name. number may be NULL. */
ckpt_status ckpt_zero_copy(ckpt_zero *zero, const ckpt_zero_file *file, uint32_t held, const char *name, ckpt_role role,
                           uint32_t *number, ckpt_error *err);

/* A number that is an INT, or a call of an enumeration of one; -1: neither, or negative. */
int64_t ckpt_zero_number(const ckpt_object *node);

/* ---- settings.c: what is kept beside states ---- */

/* The number in a tensor of one element, exactly. *is_number is false for any other tensor, or where it is expensive to
 * get at: far behind a decoder. */
ckpt_status ckpt_zero_read_number(ckpt_object *out, bool *is_number, const ckpt_zero *zero, const ckpt_tensor *tensor,
                                  ckpt_error *err);

/* Makes numbers of the tensors of one element in a scheduler of a file's object (NULL: none), which is not kept yet.
 * Others are left: counted, for a note. */
ckpt_status ckpt_zero_take_scheduler(ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *value,
                                     ckpt_error *err);

/* The same of what an optimizer's dict (NULL: none) and the one within say besides states: groups, a loss scaler.
 * Tensors of entries that are not known are left, too. */
ckpt_status ckpt_zero_take_settings(ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *optimizer,
                                    ckpt_error *err);

/* Notes what was left, without which a run does not go on. */
ckpt_status ckpt_zero_note_left(const ckpt_zero *zero, ckpt_error *err);

/* ---- slice_extents.c: tensors from slices ---- */

/* Finds how the parameters of shards make tensors: which stand for which, and their cuts. Once all pieces are there. */
ckpt_status ckpt_zero_cut_params(ckpt_zero *zero, ckpt_error *err);

/* Whether patterns say anything of a checkpoint: of stage 3 ds_to_universal asks for them from two tensor-parallel
 * ranks on, and what a universal checkpoint has is what it made. */
bool ckpt_zero_goes_by_rules(const ckpt_zero *zero);

/* Notes patterns that are of no parameter, nor of another name of one. Once the model is read. */
ckpt_status ckpt_zero_note_unused(const ckpt_zero *zero, const ckpt_object *root, ckpt_error *err);

/* Elements [start, start + count) of a slice, which begin at element `at` of a flat extent; or all of a slice, by
 * strides where it is a view. */
typedef struct ckpt_zero_held {
  const ckpt_extent *extent;
  uint64_t at, start, count;
  const uint64_t *strides;
} ckpt_zero_held;

/* A tensor that is being put together; cut NULL: of one slice, which is all of it. */
typedef struct ckpt_zero_join {
  ckpt_zero *zero;
  const ckpt_zero_cut *cut;
  ckpt_dtype dtype, as; /* of what slices hold; of the tensor, another one of a mean alone */
  uint8_t form;
  uint32_t *n_of; /* extents of each slice of a mean; NULL: no mean */
} ckpt_zero_join;

/* Begins one; has_views: slices of it are. Then what there is of each slice, in any order; of a mean in theirs. */
ckpt_status ckpt_zero_join_begin(ckpt_zero_join *join, ckpt_zero *zero, const ckpt_zero_cut *cut, ckpt_dtype dtype,
                                 bool has_views, ckpt_error *err);
ckpt_status ckpt_zero_join_add(ckpt_zero_join *join, uint32_t slice, const ckpt_zero_held *held,
                               ckpt_error *err); /* as above */

/* Adds the tensor to the index; shape: of one without a cut. */
ckpt_status ckpt_zero_join_end(ckpt_zero_join *join, const char *name, ckpt_role role, uint32_t rank,
                               const uint64_t *shape, uint32_t *number, ckpt_error *err);

/* ---- model_slices.c: stored tensors that each tensor-parallel rank has a slice of ---- */

/* One file of each rank, and the names in it. */
typedef struct ckpt_zero_slices ckpt_zero_slices;

/* One without files; free it in any case. */
ckpt_status ckpt_zero_slices_new(ckpt_zero_slices **out, ckpt_zero *zero, ckpt_error *err);
void ckpt_zero_slices_free(ckpt_zero_slices *slices); /* NULL is fine */

/* The file of rank t, which stays open, and where it has them: a DICT. Anything else has none. The first rank's first;
 * EFORMAT where another has more names. */
ckpt_status ckpt_zero_slices_set(ckpt_zero_slices *slices, uint32_t t, const ckpt_zero_file *file,
                                 const ckpt_object *table, ckpt_error *err);

/* Adds the tensor whose first slice is `first`, of the first rank's file; the others are stored under a name of their
 * own. param: what it is of, NULL for none. What all ranks have is one of them. */
ckpt_status ckpt_zero_join_slices(const ckpt_zero_slices *slices, const ckpt_tensor *first, const char *stored,
                                  const char *name, ckpt_role role, const ckpt_zero_param *param, uint32_t *number,
                                  ckpt_error *err);

/* ---- params.c: which parameters the model files list ---- */

/* Whether a key is the name of a tensor. */
bool ckpt_zero_is_name(const ckpt_object *key);

/* Reads param_shapes and the shapes of frozen parameters of all shards, whose files are open and stay so. */
ckpt_status ckpt_zero_read_params(ckpt_zero *zero, ckpt_error *err);

/* Sorts params by name; refuses two of one name. */
ckpt_status ckpt_zero_sort_params(ckpt_zero *zero, ckpt_error *err);

/* Makes room for n parameters of an optimizer without ZeRO, which param_shapes has not, in place of what there is: all
 * are the first shard's, and their groups go up. They are to be sorted again. */
ckpt_status ckpt_zero_renew_params(ckpt_zero *zero, uint32_t n, uint32_t n_groups, ckpt_error *err);

/* The place in by_name of the first parameter that is not before a shard's of that name. */
uint32_t ckpt_zero_lower(const ckpt_zero *zero, uint32_t shard, const char *name);

/* The first shard's parameter of that name that has one; NULL: none has. */
ckpt_zero_param *ckpt_zero_find_any(const ckpt_zero *zero, const char *name);

/* A shard's parameter of that name; NULL: there is none. */
ckpt_zero_param *ckpt_zero_find(const ckpt_zero *zero, uint32_t shard, const char *name);

/* What the model files of all ranks say: in stage 3 what each has of frozen parameters, flats and pieces. Refuses ranks
 * of different steps; compares client state. */
ckpt_status ckpt_zero_read_rank_models(ckpt_zero *zero, ckpt_error *err);

/* ---- model.c: what the model files say ---- */

/* Whether a model file stores weights. */
bool ckpt_zero_has_module(const ckpt_zero_file *file);

/* Adds the model's tensors that are stored whole, with their other names, and those of client state; then those that
 * are held in pieces. The first shard's nodes are the index's afterwards. */
ckpt_status ckpt_zero_add_model(ckpt_zero *zero, ckpt_error *err);

/* ---- unsharded.c: stage 0 ---- */

/* Adds the optimizer's states, which are in the model file, after the model's tensors: by name where shapes and order
 * tell which parameter each number means, else by number. */
ckpt_status ckpt_zero_add_whole(ckpt_zero *zero, const ckpt_zero_file *file, ckpt_error *err);

/* ---- unsharded_flat.c: stage 0 with flat masters ---- */

/* Reads the optimizer of a model file that has fp32_groups_flat: flats and pieces. What it is not read for is that its
 * layout is another. */
ckpt_status ckpt_zero_add_flat(ckpt_zero *zero, const ckpt_zero_file *file, bool *is_read, ckpt_error *err);

/* ---- formats/zero/write/scaler.c: the loss scaler ---- */

/* The attributes of a loss scaler that scales as an engine without ZeRO does, whose numbers are beside its optimizer's
 * states; config: what DeepSpeed was configured with, or NULL. NULL: there are none. */
ckpt_status ckpt_zero_scaler_of_whole(const ckpt_object **out, const ckpt_object *optimizer, const ckpt_object *config,
                                      ckpt_arena *arena, ckpt_error *err);

/* ---- steps.c: whether files are of one save ---- */

/* The step that a state says, as a number or in a tensor; -1: it does not. */
ckpt_status ckpt_zero_step_of(const ckpt_zero *zero, const ckpt_zero_file *file, const ckpt_object *said, int64_t *step,
                              ckpt_error *err);

/* Keeps the step of a group that a state says as a number; NULL is fine. EUNSUPPORTED where another state of the group
 * said another. */
ckpt_status ckpt_zero_take_step(ckpt_zero *zero, uint32_t group, const ckpt_object *said, ckpt_error *err);

/* What was kept of a group becomes *step, which is NULL at first; EUNSUPPORTED where that is another. */
ckpt_status ckpt_zero_step_for(const ckpt_zero *zero, uint64_t group, const ckpt_object **step, ckpt_error *err);

/* Refuses a model file of another step than the tag that `latest` names; NULL: none does. */
ckpt_status ckpt_zero_check_tag(const ckpt_zero *zero, const char *latest, ckpt_error *err);

/* Refuses a model file of another step than the first. */
ckpt_status ckpt_zero_same_step(const ckpt_zero_file *file, const ckpt_zero_file *first, ckpt_error *err);

/* Compares the step of a file's optimizer with the first model file's: what no one run counts is noted as a problem. */
ckpt_status ckpt_zero_check_optimizer(ckpt_zero *zero, const ckpt_zero_file *file, int64_t step, ckpt_error *err);

/* ---- objects.c: what is no tensor ---- */

/* Whether a key at the top of a model file, of n bytes, is one that DeepSpeed itself writes. */
bool ckpt_zero_is_own(const char *key, size_t n);

/* The key that a key of client_state has in the model file, where the index calls it client_state.KEY because KEY means
 * something of ours; NULL for other keys, which are as they are. */
const char *ckpt_zero_client_key(const char *key);

/* The other way: the key in an index's objects of what client_state calls so. NULL when out of memory. */
const char *ckpt_zero_client_name(const char *key, ckpt_arena *arena);

/* The part of universal_checkpoint_info (NULL: none) by which a run of other ranks cuts whole tensors, without who has
 * what; vocabularies count where they have no padding. *out is NULL where there is no such part. */
ckpt_status ckpt_zero_rules_of_whole(ckpt_object **out, const ckpt_object *info, bool has_padding, ckpt_arena *arena,
                                     ckpt_error *err);

/* Whether the ds_config of a model's or an optimizer's file asks for round_robin_gradients. */
bool ckpt_zero_is_round_robin(const ckpt_object *root);

/* Refuses groups of an optimizer, of the file at path, that say something else than those of the first file, which are
 * carried: any entry but params, which are its own. */
ckpt_status ckpt_zero_same_groups(const ckpt_object *groups, const ckpt_object *first, const char *path,
                                  ckpt_error *err);

/* Makes what the files hold beside tensors the index's objects, and sets its step and writer. root: of the first model
 * file, whose nodes are the index's. */
ckpt_status ckpt_zero_set_objects(ckpt_zero *zero, const ckpt_object *root, ckpt_error *err);

/* Gives the parameters of its groups the names that the index's tensors have been given. ENOMEM. */
ckpt_status ckpt_zero_name_groups(ckpt_zero *zero, ckpt_error *err);

/* ---- client.c: client state of several ranks ---- */

/* Compares what a further model file has of client state, and of buffers in stage 3, with the first one's. */
ckpt_status ckpt_zero_compare_client(ckpt_zero *zero, const ckpt_zero_file *file, ckpt_error *err);

/* Says which of it is not carried. */
ckpt_status ckpt_zero_note_client(const ckpt_zero *zero, ckpt_error *err);

/* ---- zero.c ---- */

/* The folder that is read, and which of its parts. */
typedef struct ckpt_zero_reading {
  const char *latest; /* the file that says the tag, whose folder it is; NULL: the folder itself */
  bool is_universal;
  uint32_t copy, twin; /* as ckpt_zero has them */
  bool checks_names;   /* refuses a file that was saved as another rank's */
} ckpt_zero_reading;

/* Of which there are copies: tensor-parallel ranks that have slices, and what of tied modules is there again. */
typedef struct ckpt_zero_copies {
  uint32_t n_tensor, n_twins;
} ckpt_zero_copies;

/* Reads a folder. The index is finished then. copies may be NULL. */
ckpt_status ckpt_zero_read(ckpt_index *index, const ckpt_zero_reading *reading, const ckpt_open_options *options,
                           ckpt_zero_copies *copies, ckpt_error *err);

/* ---- formats/zero/verify/copies.c ---- */

/* What other tensor-parallel ranks have of what all have, and other stages of tied modules; as ckpt_format's slot. */
ckpt_status ckpt_zero_copies_show(const ckpt_index *index, ckpt_copy_visit *visit, void *arg, ckpt_error *err);

/* ---- formats/zero/verify/same_ranks.c ---- */

/* No rank's optimizer file is another's of the same shard, and each file has the name that it was saved under; as
 * ckpt_format's slot. */
ckpt_status ckpt_zero_verify(struct ckpt_findings *findings, const ckpt_index *index, const ckpt_run_options *run,
                             ckpt_error *err);

/* ---- formats/zero/verify/saved_as.c ---- */

/* EFORMAT where a file is a rank's, and its archive was saved as another's; archive may be NULL. */
ckpt_status ckpt_zero_check_name(const char *path, const char *archive, ckpt_error *err);

/* A problem for each file that was saved under another name; what the others do not say is named. EIO, ENOMEM. */
ckpt_status ckpt_zero_verify_names(struct ckpt_findings *findings, const ckpt_index *index, ckpt_error *err);

/* ---- universal.c ---- */

/* Flats and pieces of a universal checkpoint, each parameter's whole. */
ckpt_status ckpt_zero_read_universal(ckpt_zero *zero, ckpt_error *err);

/* Refuses a folder of no name that the model has. Relies on ckpt_zero_add_model. */
ckpt_status ckpt_zero_check_universal(const ckpt_zero *zero, ckpt_error *err);

/* ---- ranks.c: what the optimizer files say ---- */

/* Flats and pieces of all ranks, the first of which is opened (and kept, its nodes being the index's then). */
ckpt_status ckpt_zero_read_ranks(ckpt_zero *zero, ckpt_error *err);

/* ---- pieces.c ---- */

/* A piece of a parameter. EFORMAT where the flat has not as many elements. */
ckpt_status ckpt_zero_add_piece(ckpt_zero *zero, uint32_t param, uint32_t flat, uint64_t at, uint64_t count,
                                ckpt_error *err);

/* Sorts the pieces by parameter and refuses those that nobody, or not all of them somebody, holds. */
ckpt_status ckpt_zero_sort_pieces(ckpt_zero *zero, ckpt_error *err);

/* ---- muon.c ---- */

#define CKPT_ZERO_MUON "momentum_buffer"

/* Whether a state of a group of the optimizer (NULL: none) is Muon's. */
bool ckpt_zero_is_muon(const ckpt_object *group, const char *key);

/* Finds where momentum of Muon is in flats. EFORMAT: it has neither what the flat has nor its parameters whole. */
ckpt_status ckpt_zero_place_momentum(ckpt_zero *zero, ckpt_error *err);

/* The bits that something with these must have: where it shares a state with another, or one of both has none, those
 * of the other. shared: bits that different kinds may share. */
uint32_t ckpt_zero_kind_of(ckpt_zero_kinds *kinds, uint32_t bits, uint32_t shared);
uint32_t ckpt_zero_shared_slots(const ckpt_zero *zero); /* masters, and what is one for a whole flat */

/* Adds the tensor of a parameter from its pieces: what the slot holds of it. as: the dtype of the tensor where it is a
 * mean; NONE: that of the slot. */
ckpt_status ckpt_zero_add_param(ckpt_zero *zero, const ckpt_zero_param *param, uint32_t slot, ckpt_dtype as,
                                const char *name, ckpt_role role, uint32_t *number, ckpt_error *err);

/* The slice whose pieces a parameter's tensors are made of: it itself, or the copy of it that is read; NULL: none is.
 */
const ckpt_zero_param *ckpt_zero_stand_in(const ckpt_zero *zero, const ckpt_zero_param *param);

/* The name and role of a parameter's state under torch's key of it. ELIMIT: longer than there is room for. */
ckpt_status ckpt_zero_name_state(char name[CKPT_ZERO_NAME_BYTES], ckpt_role *role, const char *parameter,
                                 const char *key, ckpt_error *err);

/* Adds the states of all parameters that are trained. */
ckpt_status ckpt_zero_add_states(ckpt_zero *zero, ckpt_error *err);

#endif
