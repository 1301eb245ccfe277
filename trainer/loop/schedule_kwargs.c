/* schedule_kwargs.c - lr_scheduler_kwargs: which schedule takes what, and where it goes. */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "libckpt/base/error.h"
#include "libckpt/index/config.h"
#include "trainer/loop/job.h"

typedef enum value_kind {
  VALUE_NUMBER, /* [double] */
  VALUE_RATE,   /* a learning rate, kept as its share of the schedule's own [double] */
  VALUE_COUNT,  /* of steps or evaluations [uint64_t] */
  VALUE_SLOPE,  /* [ckpt_slope] */
  VALUE_WORD    /* one of two, `first` or `second` [bool: the second] */
} value_kind;

typedef struct kwarg {
  const char *key;
  unsigned kinds; /* of schedules: 1 << ckpt_schedule_kind */
  value_kind kind;
  size_t offset; /* in ckpt_schedule */
  const char *first, *second;
} kwarg;

#define OF(kind) (1u << CKPT_SCHEDULE_##kind)
#define OF_MIN_LR (OF(COSINE_WITH_MIN_LR) | OF(COSINE_WARMUP_WITH_MIN_LR))
#define OF_CYCLES (OF(COSINE) | OF(COSINE_WITH_RESTARTS) | OF_MIN_LR | OF(WARMUP_STABLE_DECAY))
#define AT(member) offsetof(ckpt_schedule, member)

/* Source: the signatures of transformers.optimization, and torch's ReduceLROnPlateau. */
static const kwarg kwargs_known[] = {
    {"num_cycles", OF_CYCLES, VALUE_NUMBER, AT(n_cycles), NULL, NULL},
    {"lr_end", OF(POLYNOMIAL), VALUE_NUMBER, AT(end), NULL, NULL},
    {"power", OF(POLYNOMIAL), VALUE_NUMBER, AT(power), NULL, NULL},
    {"timescale", OF(INVERSE_SQRT), VALUE_NUMBER, AT(timescale), NULL, NULL},
    {"min_lr", OF_MIN_LR, VALUE_RATE, AT(min_rate), NULL, NULL},
    {"min_lr", OF(REDUCE_ON_PLATEAU), VALUE_NUMBER, AT(plateau.least), NULL, NULL},
    {"min_lr_rate", OF_MIN_LR, VALUE_NUMBER, AT(min_rate), NULL, NULL},
    {"min_lr_ratio", OF(WARMUP_STABLE_DECAY), VALUE_NUMBER, AT(min_rate), NULL, NULL},
    {"warmup_lr_rate", OF(COSINE_WARMUP_WITH_MIN_LR), VALUE_NUMBER, AT(warmup_rate), NULL, NULL},
    {"num_stable_steps", OF(WARMUP_STABLE_DECAY), VALUE_COUNT, AT(n_stable), NULL, NULL},
    {"num_decay_steps", OF(WARMUP_STABLE_DECAY), VALUE_COUNT, AT(n_decay), NULL, NULL},
    {"warmup_type", OF(WARMUP_STABLE_DECAY), VALUE_SLOPE, AT(warmup), NULL, NULL},
    {"decay_type", OF(WARMUP_STABLE_DECAY), VALUE_SLOPE, AT(decay), NULL, NULL},
    {"mode", OF(REDUCE_ON_PLATEAU), VALUE_WORD, AT(plateau.is_max), "min", "max"},
    {"factor", OF(REDUCE_ON_PLATEAU), VALUE_NUMBER, AT(plateau.factor), NULL, NULL},
    {"patience", OF(REDUCE_ON_PLATEAU), VALUE_COUNT, AT(plateau.patience), NULL, NULL},
    {"threshold", OF(REDUCE_ON_PLATEAU), VALUE_NUMBER, AT(plateau.threshold), NULL, NULL},
    {"threshold_mode", OF(REDUCE_ON_PLATEAU), VALUE_WORD, AT(plateau.is_absolute), "rel", "abs"},
    {"cooldown", OF(REDUCE_ON_PLATEAU), VALUE_COUNT, AT(plateau.cooldown), NULL, NULL},
    {"eps", OF(REDUCE_ON_PLATEAU), VALUE_NUMBER, AT(plateau.epsilon), NULL, NULL},
};

enum { N_KNOWN = sizeof kwargs_known / sizeof *kwargs_known };

static ckpt_status wrong(ckpt_error *err, const kwarg *row, const char *what) {
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "lr_scheduler_kwargs %s: it has to be %s", row->key, what);
}

static ckpt_status set_number(double *to, const kwarg *row, const json_t *value, double divisor, ckpt_error *err) {
  if (!json_is_number(value)) return wrong(err, row, "a number");
  *to = json_number_value(value) / divisor;
  return CKPT_OK;
}

static ckpt_status set_count(uint64_t *to, const kwarg *row, const json_t *value, ckpt_error *err) {
  const double n = json_is_number(value) ? json_number_value(value) : NAN;
  if (!(n >= 0 && n < 1e15 && n == floor(n))) return wrong(err, row, "a whole number, at least 0");
  *to = (uint64_t)n;
  return CKPT_OK;
}

static ckpt_status set_slope(ckpt_slope *to, const kwarg *row, const json_t *value, ckpt_error *err) {
  static const char *const names[] = {"linear", "cosine", "1-sqrt"};
  const char *text = json_string_value(value);
  for (int i = 0; text != NULL && i < 3; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    *to = (ckpt_slope)i;
    return CKPT_OK;
  }
  return wrong(err, row, "linear, cosine or 1-sqrt");
}

static ckpt_status set_word(bool *to, const kwarg *row, const json_t *value, ckpt_error *err) {
  const char *text = json_string_value(value);
  *to = text != NULL && strcmp(text, row->second) == 0;
  if (*to || (text != NULL && strcmp(text, row->first) == 0)) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "lr_scheduler_kwargs %s: it has to be %s or %s", row->key, row->first,
                   row->second);
}

/* The row of a key for a schedule; NULL, and *is_known where another schedule has the key. */
static const kwarg *find(const char *key, ckpt_schedule_kind kind, bool *is_known) {
  *is_known = false;
  for (size_t i = 0; i < N_KNOWN; i++) {
    if (strcmp(kwargs_known[i].key, key) != 0) continue;
    if (kwargs_known[i].kinds & 1u << kind) return &kwargs_known[i];
    *is_known = true;
  }
  return NULL;
}

static ckpt_status set(ckpt_schedule *s, const kwarg *row, const json_t *value, ckpt_error *err) {
  void *to = (char *)s + row->offset;
  switch (row->kind) {
    case VALUE_NUMBER: return set_number(to, row, value, 1, err);
    case VALUE_RATE:
      if (s->learning_rate == 0) return wrong(err, row, "given with a learning_rate above 0");
      return set_number(to, row, value, s->learning_rate, err);
    case VALUE_COUNT: return set_count(to, row, value, err);
    case VALUE_SLOPE: return set_slope(to, row, value, err);
    case VALUE_WORD: break;
  }
  return set_word(to, row, value, err);
}

static bool is_given(const json_t *kwargs, const char *key) {
  const json_t *value = json_object_get(kwargs, key);
  return value != NULL && !json_is_null(value);
}

/* The least rate is one number, and these two have no default for it. */
static ckpt_status check_least(const ckpt_schedule *s, const json_t *kwargs, const char *type, ckpt_error *err) {
  if ((OF_MIN_LR & 1u << s->kind) == 0) return CKPT_OK;
  const bool has_rate = is_given(kwargs, "min_lr"), has_share = is_given(kwargs, "min_lr_rate");
  if (has_rate != has_share) return CKPT_OK;
  return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "lr_scheduler_type %s: lr_scheduler_kwargs has to give %s", type,
                   has_rate ? "min_lr or min_lr_rate, not both" : "min_lr or min_lr_rate");
}

static ckpt_status apply(ckpt_schedule *s, json_t *kwargs, const char *type, ckpt_error *err) {
  const char *key;
  json_t *value;
  bool is_known;
  json_object_foreach(kwargs, key, value) {
    const kwarg *row = find(key, s->kind, &is_known);
    if (row == NULL && !is_known)
      return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "lr_scheduler_kwargs: no schedule has %s", key);
    if (row == NULL) return ckpt_fail(err, CKPT_EINVAL, NULL, NULL, "lr_scheduler_kwargs: %s is not of %s", key, type);
    if (!json_is_null(value)) CKPT_TRY(set(s, row, value, err));
  }
  return check_least(s, kwargs, type, err);
}

ckpt_status ckpt_schedule_kwargs(ckpt_schedule *schedule, const char *text, const char *type, ckpt_error *err) {
  if (text == NULL || text[0] == '\0') return check_least(schedule, NULL, type, err);
  json_t *kwargs = ckpt_config_json(text, strlen(text), JSON_REJECT_DUPLICATES, NULL);
  const ckpt_status status = json_is_object(kwargs) ? apply(schedule, kwargs, type, err)
                                                    : ckpt_fail(err, CKPT_EINVAL, NULL, NULL,
                                                                "lr_scheduler_kwargs: it has to be a JSON object");
  json_decref(kwargs);
  return status;
}
