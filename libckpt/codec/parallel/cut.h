/* cut.h - how the tensor-parallel ranks of a ZeRO checkpoint cut tensors. docs/formats/zero.md has the rules.
 *
 * Each rank has a SLICE, which is a tensor. A STRIP is a run of a slice's places along the axis that is cut; the strips
 * of all slices make up the tensor. universal_checkpoint_info, which DeepSpeed itself uses to join slices, gives the
 * strips by patterns on names. */
#ifndef CKPT_CODEC_PARALLEL_CUT_H
#define CKPT_CODEC_PARALLEL_CUT_H

#include "libckpt/index/index.h"
#include "libckpt/index/object.h"

#define CKPT_ZERO_RULES "universal_checkpoint_info" /* in a model file, and among the objects of an index */

/* ---- rules.c: the rules of universal_checkpoint_info for a name ---- */

typedef enum ckpt_zero_rule {
  CKPT_ZERO_REPLICATED,
  CKPT_ZERO_AVERAGED,
  CKPT_ZERO_BY_COLUMNS,  /* cut along axis 1, "row parallel" */
  CKPT_ZERO_VOCABULARY,  /* rows behind original_vocab_size are padding */
  CKPT_ZERO_TWO_PARTS,   /* two tensors, one behind the other along axis 0, each of them cut */
  CKPT_ZERO_PARTS,       /* any number of them along any axis */
  CKPT_ZERO_WIDTHS,      /* what each rank has of each of them, under the same pattern */
  CKPT_ZERO_MAPPED,      /* by strided blocks; comes before all others */
  CKPT_ZERO_UNDESCRIBED, /* of a layout that nothing of this describes */
  CKPT_ZERO_N_RULES
} ckpt_zero_rule;

/* In one file. */
enum { CKPT_ZERO_MAX_PATTERNS = 1 << 20 };
typedef struct ckpt_zero_rules ckpt_zero_rules;

/* The rule for a name: its pattern and that pattern's value. pattern NULL: no rule. */
typedef struct ckpt_zero_said {
  const char *pattern;
  const ckpt_object *value;
} ckpt_zero_said;

/* The rules of a model file of n_bytes. *out is NULL if there is no pattern. The object must outlive the rules. */
ckpt_status ckpt_zero_rules_new(ckpt_zero_rules **out, const ckpt_object *info, const char *path, uint64_t n_bytes,
                                ckpt_error *err);
void ckpt_zero_rules_free(ckpt_zero_rules *rules); /* NULL is fine */

/* The rules for a name. EFORMAT: two patterns of one list match; ELIMIT: patterns take too many steps. */
ckpt_status ckpt_zero_rules_find(ckpt_zero_rules *rules, const char *name, ckpt_zero_said said[CKPT_ZERO_N_RULES],
                                 ckpt_error *err);

/* Whether one of the patterns contains the text. Accepts NULL. */
bool ckpt_zero_rules_mention(const ckpt_zero_rules *rules, const char *text);

/* The first pattern of a list that has matched no name so far, and the number of such patterns; or NULL. */
const char *ckpt_zero_rules_unused(const ckpt_zero_rules *rules, uint32_t *n);

/* Counts what of the file a rule is, n bytes at least; false: more than there are, for one stands for many. */
bool ckpt_zero_rules_spend(ckpt_zero_rules *rules, uint64_t n);

/* Rows of a vocabulary (original_vocab_size); -1 if unknown. */
int64_t ckpt_zero_rules_vocabulary(const ckpt_zero_rules *rules);

/* ---- cut.c: strips ---- */

typedef struct ckpt_zero_strip {
  uint32_t slice;
  uint64_t at, to, n; /* n places of the slice from `at` on are those of the tensor from `to` on */
} ckpt_zero_strip;

typedef struct ckpt_zero_cut {
  uint64_t shape[CKPT_MAX_RANK]; /* of the tensor */
  uint32_t rank, axis;
  uint32_t n_slices, n_strips, strip_capacity;
  const uint64_t *slices;  /* their shapes, one after the other */
  ckpt_zero_strip *strips; /* in the order of slices, then of places */
  bool has_whole;          /* every slice is one strip, or none of it is */
  bool is_replicated;      /* the first slice is the tensor, and so are the others */
  bool is_averaged;        /* the mean of the slices is, each of which is one strip */
} ckpt_zero_cut;

/* How a tensor of `rank` axes is put together from slices of these shapes (one after the other, kept), in the arena.
 * path: of the file that says it. EUNSUPPORTED, EFORMAT say what does not fit, or what is not said. */
ckpt_status ckpt_zero_cut_of(ckpt_zero_cut **out, ckpt_zero_rules *rules, const char *path, const char *name,
                             uint32_t rank, const uint64_t *slices, uint32_t n_slices, ckpt_arena *arena,
                             ckpt_error *err);

/* How many parts a parameter_with_sub_params says by their number, or by a tuple of sizes, which are equal or not. */
uint32_t ckpt_zero_n_parts(const ckpt_object *sizes, bool *are_equal);

/* The strips of one slice: *n of them. */
const ckpt_zero_strip *ckpt_zero_strips_of(const ckpt_zero_cut *cut, uint32_t slice, uint32_t *n);

#endif
