/* shapes.c - how an update lies in the tensor that it changes, and what fits nowhere. See changes.h.
 *
 * B x A is (out, in). A linear layer stores that, GPT-2's Conv1D and embeddings its transpose; a convolution stores
 * (out, in, taps), whose rows are those of A in one piece. */
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/base/text.h"
#include "libckpt/index/arch.h"
#include "libckpt/recipe/adapter/changes.h"

typedef unsigned long long ull;

/* Elements of a row, all axes but the first. */
static uint64_t width_of(const ckpt_tensor *tensor) {
  return tensor->shape[0] == 0 ? 0 : tensor->n_elements / tensor->shape[0];
}

/* The tensor that the update is added to. */
static const ckpt_tensor *target(const ckpt_change *c) { return c->whole != NULL ? c->whole : c->base; }

static bool fits(const ckpt_change *c, bool is_transposed) {
  const ckpt_tensor *to = target(c);
  if (is_transposed && to->rank != 2) return false;
  const uint64_t rows = to->shape[0], width = width_of(to);
  return c->output->shape[0] == (is_transposed ? width : rows) &&
         width_of(c->input) == (is_transposed ? rows : width) && width_of(c->output) == c->output->shape[1];
}

/* ---- which way a square matrix lies ------------------------------------------------------------------------------ */

/* 1: transposed, 0: as it is, -1: neither the family's row nor the shapes say so. */
static int decide(const ckpt_adapters *all, const ckpt_change *c) {
  uint64_t numbers[2];
  const ckpt_arch *arch = all->base->architecture != NULL ? ckpt_arch_find(all->base->architecture) : NULL;
  const ckpt_arch_name *row = arch != NULL ? ckpt_arch_match(arch, c->base->name, numbers) : NULL;
  if (c->is_embedding) return 1;
  if (target(c)->rank != 2) return 0;
  if (row != NULL) return (row->notes & CKPT_NAME_TRANSPOSE) != 0;
  return fits(c, true) == fits(c, false) ? -1 : fits(c, true);
}

/* A model of two: each side has a config in the config, and its own kind of layers. */
typedef enum side { WHOLE, ENCODER, DECODER, N_SIDES } side;

static const char *const side_names[N_SIDES] = {"", "encoder.", "decoder."};

/* What the square matrices of each side are, by the other matrices of one adapter, and by the config. */
typedef struct ways {
  const ckpt_config *config; /* NULL: none */
  int by_others[N_SIDES];    /* as decide() */
  int by_type[N_SIDES];      /* the same */
} ways;

static bool has_side(const ckpt_config *config, side s) {
  char key[32];
  ckpt_c_snprintf(key, sizeof key, "%smodel_type", side_names[s]);
  return config != NULL && ckpt_config_has(config, key);
}

static side side_of(const ckpt_config *config, const ckpt_change *c) {
  for (side s = ENCODER; s < N_SIDES; s++)
    if (strncmp(c->name, side_names[s], strlen(side_names[s])) == 0 && has_side(config, s)) return s;
  return WHOLE;
}

/* What the linear layers of a family without a row are: Conv1D in few. A class whose ties are known is transformers',
 * and so are these encoders; -1: another's. */
static int decide_by_type(const ckpt_config *config, side s) {
  static const char *const transposed[] = {"gpt2", "openai-gpt", "imagegpt", "decision_transformer"};
  static const char *const others[] = {
      "bert",       "roberta", "xlm-roberta", "camembert",  "distilbert", "electra",    "albert",   "deberta",
      "deberta-v2", "mpnet",   "ernie",       "modernbert", "big_bird",   "longformer", "roformer", "bert-generation",
      "vit",        "deit",    "beit",        "swin",       "wav2vec2",   "hubert",     "wavlm",    "whisper",
      "t5",         "bart",    "mbart",       "opt",        "trocr",      "clip"};
  char key[32];
  const char *type, *class;
  ckpt_c_snprintf(key, sizeof key, "%smodel_type", side_names[s]);
  if (config == NULL || !ckpt_config_text(config, key, &type)) return -1;
  for (size_t i = 0; i < sizeof transposed / sizeof *transposed; i++)
    if (strcmp(type, transposed[i]) == 0) return 1;
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (strcmp(type, others[i]) == 0) return 0;
  ckpt_c_snprintf(key, sizeof key, "%sarchitectures", side_names[s]);
  return ckpt_config_item(config, key, 0, &class) && ckpt_tied_class_of(class) != NULL ? 0 : -1;
}

ckpt_status ckpt_adapter_type_transposes(int *out, const ckpt_index *base, ckpt_error *err) {
  ckpt_config *config;
  CKPT_TRY(ckpt_config_of(&config, base, err));
  *out = decide_by_type(config, WHOLE);
  ckpt_config_free(config);
  return CKPT_OK;
}

/* What the other matrices of the same adapter and side have in common; -1: nothing. */
static void decide_by_others(ways *out, const ckpt_adapters *all, uint32_t adapter) {
  bool is_mixed[N_SIDES] = {false};
  for (side s = WHOLE; s < N_SIDES; s++) out->by_others[s] = -1;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    if (c->adapter != adapter || c->input == NULL || c->n_experts != 0 || c->is_embedding || target(c)->rank != 2)
      continue;
    const side s = side_of(out->config, c);
    const int way = decide(all, c);
    if (way >= 0 && out->by_others[s] >= 0 && way != out->by_others[s]) is_mixed[s] = true;
    if (way >= 0) out->by_others[s] = way;
  }
  for (side s = WHOLE; s < N_SIDES; s++)
    if (is_mixed[s]) out->by_others[s] = -1;
}

static ckpt_status refuse_square(const ckpt_adapters *all, const ckpt_change *c, ckpt_error *err) {
  (void)all;
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL,
                   "fan_in_fan_out is true, '%s' is square (%llu x %llu), and nothing else shows how it lies (a "
                   "config.json beside the base would)",
                   c->base->name, (ull)c->base->shape[0], (ull)c->base->shape[1]);
}

/* ---- one update -------------------------------------------------------------------------------------------------- */

static ckpt_status refuse_shape(const ckpt_change *c, ckpt_error *err) {
  char text[CKPT_SHAPE_TEXT];
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its update is %llu x %llu%s, '%s' is %s", (ull)c->output->shape[0],
                   (ull)width_of(c->input), c->is_transposed ? " transposed" : "", c->name,
                   ckpt_tensor_shape_text(target(c), text, sizeof text));
}

static ckpt_status check_magnitude(const ckpt_adapters *all, const ckpt_change *c, ckpt_error *err) {
  const bool is_dora = all->list[c->adapter].peft.is_dora;
  const uint64_t n = c->is_transposed ? target(c)->shape[1] : target(c)->shape[0];
  if (is_dora != (c->magnitude != NULL))
    return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "the config %s use_dora, and its magnitude vector is %s",
                     is_dora ? "sets" : "does not set", c->magnitude != NULL ? "there" : "missing");
  if (c->magnitude == NULL || c->magnitude->n_elements == n) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "%llu magnitudes for %llu %s of '%s'", (ull)c->magnitude->n_elements,
                   (ull)n, c->is_transposed ? "columns" : "rows", c->name);
}

static ckpt_status orient(ckpt_adapters *all, ckpt_change *c, const ways *known, ckpt_error *err) {
  const ckpt_peft *peft = &all->list[c->adapter].peft;
  if (c->base->rank < 2)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "only updates of matrices are merged ('%s' has %u axes)",
                     c->base->name, c->base->rank);
  const side s = side_of(known->config, c);
  int way = decide(all, c);
  if (way < 0) way = known->by_others[s];
  if (way < 0) way = known->by_type[s];
  if (way < 0 && peft->is_transposed && fits(c, true)) return refuse_square(all, c, err);
  c->is_transposed = way > 0;
  return fits(c, c->is_transposed) ? check_magnitude(all, c, err) : refuse_shape(c, err);
}

/* What takes the place of a tensor has its shape, unless it is a larger vocabulary: tied.c looks at those. */
static ckpt_status check_whole(const ckpt_change *c, ckpt_error *err) {
  const ckpt_tensor *other = c->whole != NULL ? c->whole : c->bias;
  if (c->base == NULL || other == NULL || ckpt_tensor_same_shape(other, c->base)) return CKPT_OK;
  if (c->whole != NULL && other->rank == c->base->rank && c->base->rank != 0 && other->shape[0] != c->base->shape[0] &&
      width_of(other) == width_of(c->base))
    return CKPT_OK;
  char text[CKPT_SHAPE_TEXT], base[CKPT_SHAPE_TEXT];
  return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "its shape is %s, that of '%s' %s",
                   ckpt_tensor_shape_text(other, text, sizeof text), c->name,
                   ckpt_tensor_shape_text(c->base, base, sizeof base));
}

static ckpt_status check_rows(const ckpt_change *c, ckpt_error *err) {
  if (c->rows == NULL) return CKPT_OK;
  if (c->input != NULL || (c->whole != NULL && !c->is_below) || target(c)->rank != 2)
    return ckpt_fail(err, CKPT_EUNSUPPORTED, NULL, NULL, "'%s' is changed as a whole too", c->name);
  if (c->rows->rank == 2 && c->rows->shape[1] == c->base->shape[1]) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, NULL, NULL, "its rows are not of %llu elements, as those of '%s'",
                   (ull)c->base->shape[1], c->name);
}

static ckpt_status check_one(ckpt_adapters *all, ckpt_change *c, const ways *known, ckpt_error *err) {
  CKPT_TRY(check_whole(c, err));
  CKPT_TRY(check_rows(c, err));
  if (c->input == NULL || c->n_experts != 0) return CKPT_OK; /* experts.c has looked at those */
  return orient(all, c, known, err);
}

/* PEFT says so in the config, and corrects it on loading. */
static ckpt_status note_flag(ckpt_adapters *all, uint32_t adapter, ckpt_error *err) {
  const ckpt_peft *peft = &all->list[adapter].peft;
  for (uint32_t i = 0; i < all->n_changes; i++) {
    const ckpt_change *c = &all->changes[i];
    if (c->adapter != adapter || c->input == NULL || c->n_experts != 0 || c->is_embedding || target(c)->rank != 2 ||
        c->is_transposed == peft->is_transposed)
      continue;
    return ckpt_adapters_note(
        all, err, "%s: fan_in_fan_out is %s, and '%s' is stored %s: the shapes and the family count", peft->path,
        peft->is_transposed ? "true" : "false", c->name, c->is_transposed ? "(in, out)" : "(out, in)");
  }
  return CKPT_OK;
}

static ckpt_status orient_all(ckpt_adapters *all, const ckpt_config *config, ckpt_error *err) {
  ways known = {.config = config};
  for (side s = WHOLE; s < N_SIDES; s++) known.by_type[s] = decide_by_type(config, s);
  for (uint32_t adapter = 0; adapter < all->n; adapter++) {
    decide_by_others(&known, all, adapter);
    for (uint32_t i = 0; i < all->n_changes; i++) {
      ckpt_change *c = &all->changes[i];
      if (c->adapter != adapter) continue;
      CKPT_TRY(ckpt_fail_at(check_one(all, c, &known, err), err, all->list[adapter].index->path,
                            ckpt_change_tensor(c)->name));
    }
    CKPT_TRY(note_flag(all, adapter, err));
  }
  return CKPT_OK;
}

ckpt_status ckpt_changes_orient(ckpt_adapters *all, ckpt_error *err) {
  ckpt_config *config;
  CKPT_TRY(ckpt_config_of(&config, all->base, err));
  const ckpt_status status = orient_all(all, config, err);
  ckpt_config_free(config);
  return status;
}
