/* diff.h - finds every difference between two indexes, in one read of each.
 *
 * Tensors pair by name or alias, whatever the format, shards and order. Without a tolerance, equal means equal bits:
 * -0.0 differs from 0.0, and so do two NaN payloads (max_abs 0, counted in n_bits). With one, floating and complex
 * tensors are equal if |a - b| <= atol + rtol * |b| everywhere; NaN equals NaN, and another dtype alone does not count.
 * Other dtypes are always compared by bits. A pair that the config ties is one tensor: stored once here and twice there
 * is equal. */
#ifndef CKPT_RECIPE_COMPARE_DIFF_H
#define CKPT_RECIPE_COMPARE_DIFF_H

#include "libckpt/recipe/compare/prove.h"

typedef struct ckpt_diff_options {
  const char *include; /* NULL: "model" */
  ckpt_dtype cast;     /* both sides are taken as this dtype first; NONE: as stored */
  bool has_tolerance;
  ckpt_tolerance tolerance;
  bool requantizes;          /* first quantizes a to the types of b, so that equal means: b was made from a */
  const ckpt_index *imatrix; /* the importance for that; or NULL */
} ckpt_diff_options;

/* A tensor of either side, or one of each. Borrowed from the indexes and the diff. */
typedef struct ckpt_diff_pair {
  const char *name;                  /* in a, else in b */
  const ckpt_tensor *a, *b;          /* NULL: missing */
  const ckpt_tensor *kept;           /* one side NULL: the tensor that the config ties this one to, compared with it */
  ckpt_dtype dtype_a, dtype_b;       /* after the cast */
  bool by_value;                     /* within the tolerance is equal; else bits decide */
  bool has_shapes;                   /* one shape on both sides */
  bool is_compared;                  /* false if shape or dtype decide, or one side lacks it */
  const ckpt_difference *difference; /* after the run; NULL: not compared */
} ckpt_diff_pair;

/* In byte order of names; freed with ckpt_diff_free. */
typedef struct ckpt_diff {
  const ckpt_index *a, *b;
  ckpt_index *own;      /* a in GGUF's dialect, made for requantizing; NULL */
  ckpt_index *apart[2]; /* the side that joins tensors, with those that the other has; NULL */
  ckpt_diff_options options;
  bool is_quantized_a, is_quantized_b;
  bool is_requantized; /* a is quantized as b was, and both count axes as presets do */
  ckpt_diff_pair *pairs;
  size_t n;
  ckpt_arena arena; /* of differences */
} ckpt_diff;

/* The result for a pair, after the run. */
typedef enum ckpt_diff_kind {
  CKPT_DIFF_EQUAL,
  CKPT_DIFF_TIED, /* stored by one side only, but equal to what the config ties it to: no difference */
  CKPT_DIFF_ONLY_A,
  CKPT_DIFF_ONLY_B,
  CKPT_DIFF_SHAPE,
  CKPT_DIFF_DTYPE,      /* decides: values were not compared, or bits cannot be */
  CKPT_DIFF_DTYPE_ONLY, /* another dtype, but every value within the tolerance: no difference */
  CKPT_DIFF_VALUE
} ckpt_diff_kind;

/* Pairs the tensors of two indexes. EINVAL (include), EFORMAT and EDIFFERENT (an invalid importance matrix, or one
 * of another model), ENOMEM. */
ckpt_status ckpt_diff_new(ckpt_diff **out, const ckpt_index *a, const ckpt_index *b, const ckpt_diff_options *options,
                          ckpt_error *err);

/* The comparison of the pairs, which are its items. Running it fails with EUNSUPPORTED for casts of weights that need
 * their scales, and for types of b that are not made without importance. */
ckpt_proof ckpt_diff_proof(ckpt_diff *diff);
void ckpt_diff_free(ckpt_diff *diff); /* NULL is fine */

/* After the run: what a pair is; how many of its elements differ, and the first of them. */
ckpt_diff_kind ckpt_diff_judge(const ckpt_diff_pair *pair);
uint64_t ckpt_diff_count(const ckpt_diff_pair *pair, uint64_t *first); /* as above */

/* Whether a kind makes the two sides different. */
bool ckpt_diff_counts(ckpt_diff_kind kind);

#endif
