/* scaler.c - loss scalers as ZeRO has them: an instance of DeepSpeed's class, with these attributes.
 *
 * An engine without ZeRO has numbers in place of one, beside its optimizer's states ("dynamic_loss_scale", "cur_scale",
 * "cur_iter", "last_overflow_iter", "scale_factor", "scale_window"), and goes by the same rule without hysteresis.
 * torch's GradScaler doubles its scale after growth_interval steps without an overflow, which _growth_tracker counts,
 * and halves it at every overflow. DeepSpeed's grows where (cur_iter - last_overflow_iter - 1) % scale_window is 0
 * before a step is counted, and has one factor for both (runtime/fp16/loss_scaler.py, 0.19.8). */
#include <math.h>
#include <string.h>

#include "formats/zero/read/zero.h"
#include "formats/zero/write/write.h"
#include "libckpt/base/error.h"

#define SCALER_MODULE "deepspeed.runtime.fp16.loss_scaler"

/* ---- from others ------------------------------------------------------------------------------------------------- */

typedef struct grad_scaler {
  double scale, growth, backoff;
  int64_t interval, tracker;
} grad_scaler;

typedef struct dynamic_scaler {
  double scale, factor, least;
  int64_t iter, last_overflow, window;
  int64_t hysteresis; /* overflows before it halves; 0: 1 */
  bool raises;        /* at the least scale */
} dynamic_scaler;

static bool take_number(double *out, const ckpt_object *given, const char *key) {
  const ckpt_object *value = ckpt_object_field(given, key);
  if (value == NULL || (value->kind != CKPT_OBJECT_FLOAT && value->kind != CKPT_OBJECT_INT)) return false;
  *out = value->kind == CKPT_OBJECT_FLOAT ? value->number : (double)value->integer;
  return true;
}

static bool take_count(int64_t *out, const ckpt_object *given, const char *key) {
  const ckpt_object *value = ckpt_object_field(given, key);
  if (value == NULL || value->kind != CKPT_OBJECT_INT) return false;
  *out = value->integer;
  return true;
}

/* Whether it is one of which DeepSpeed's can do the same. */
static bool take_torch(grad_scaler *s, const ckpt_object *given) {
  int exponent;
  return take_number(&s->scale, given, "scale") && take_number(&s->growth, given, "growth_factor") &&
         take_number(&s->backoff, given, "backoff_factor") && take_count(&s->interval, given, "growth_interval") &&
         take_count(&s->tracker, given, "_growth_tracker") && s->scale > 0 && isfinite(s->scale) && s->growth > 1 &&
         isfinite(s->growth) && frexp(s->growth, &exponent) == 0.5 && s->backoff == 1 / s->growth && s->tracker >= 0 &&
         s->tracker < s->interval;
}

static ckpt_object *make_half(ckpt_arena *arena) {
  ckpt_object *half = ckpt_object_new(arena, CKPT_OBJECT_FOREIGN, 0, "torch.float16");
  if (half == NULL) return NULL;
  half->form = CKPT_FORM_NAME;
  half->n_module = sizeof "torch" - 1;
  return half;
}

static ckpt_status make_state(const ckpt_object **out, const dynamic_scaler *s, ckpt_arena *arena, ckpt_error *err) {
  const struct {
    const char *key;
    const ckpt_object *value;
  } attributes[] = {{"cur_scale", ckpt_object_float(arena, s->scale)},
                    {"dynamic", ckpt_object_bool(arena, true)},
                    {"cur_iter", ckpt_object_int(arena, s->iter)},
                    {"last_overflow_iter", ckpt_object_int(arena, s->last_overflow)},
                    {"scale_factor", ckpt_object_float(arena, s->factor)},
                    {"scale_window", ckpt_object_int(arena, s->window)},
                    {"min_scale", ckpt_object_float(arena, s->least)},
                    {"delayed_shift", ckpt_object_int(arena, s->hysteresis == 0 ? 1 : s->hysteresis)},
                    {"cur_hysteresis", ckpt_object_int(arena, s->hysteresis == 0 ? 1 : s->hysteresis)},
                    {"consecutive_hysteresis", ckpt_object_bool(arena, false)},
                    {"raise_error_at_min_scale", ckpt_object_bool(arena, s->raises)},
                    {"dtype", make_half(arena)}};
  const size_t n = sizeof attributes / sizeof *attributes;
  ckpt_object *state = ckpt_object_new(arena, CKPT_OBJECT_DICT, n, NULL);
  CKPT_TRY_ALLOC(state, err);
  state->n = 0;
  for (size_t i = 0; i < n; i++)
    CKPT_TRY_ALLOC(ckpt_object_put(arena, state, attributes[i].key, attributes[i].value), err);
  *out = state;
  return CKPT_OK;
}

ckpt_status ckpt_zero_scaler_of(const ckpt_object **out, const ckpt_object *given, ckpt_arena *arena, ckpt_error *err) {
  grad_scaler s;
  *out = ckpt_object_get(given, "cur_scale") == NULL ? NULL : given;
  if (*out != NULL || !take_torch(&s, given)) return CKPT_OK;
  const dynamic_scaler same = {/* torch's has no least scale, and fails at none */
                               .scale = s.scale,
                               .factor = s.growth,
                               .iter = s.tracker + 1,
                               .last_overflow = -1,
                               .window = s.interval};
  return make_state(out, &same, arena, err);
}

ckpt_status ckpt_zero_scaler_of_whole(const ckpt_object **out, const ckpt_object *optimizer, const ckpt_object *config,
                                      ckpt_arena *arena, ckpt_error *err) {
  dynamic_scaler s = {.least = 1};
  const ckpt_object *is_dynamic = ckpt_object_get(optimizer, "dynamic_loss_scale");
  *out = NULL;
  if (!take_number(&s.scale, optimizer, "cur_scale") || !(s.scale > 0) || !isfinite(s.scale)) return CKPT_OK;
  if (is_dynamic == NULL || is_dynamic->kind != CKPT_OBJECT_BOOL || !is_dynamic->boolean) {
    ckpt_object *plain = ckpt_object_new(arena, CKPT_OBJECT_DICT, 2, NULL);
    CKPT_TRY_ALLOC(plain, err);
    plain->n = 0;
    CKPT_TRY_ALLOC(ckpt_object_put(arena, plain, "cur_scale", ckpt_object_float(arena, s.scale)), err);
    CKPT_TRY_ALLOC(ckpt_object_put(arena, plain, "dynamic", ckpt_object_bool(arena, false)), err);
    *out = plain;
    return CKPT_OK;
  }
  take_number(&s.least, ckpt_object_get(config, "fp16"), "min_loss_scale");
  if (!take_number(&s.factor, optimizer, "scale_factor") || !take_count(&s.window, optimizer, "scale_window") ||
      !take_count(&s.iter, optimizer, "cur_iter") || !take_count(&s.last_overflow, optimizer, "last_overflow_iter") ||
      !(s.factor > 1) || !isfinite(s.factor) || s.window <= 0)
    return CKPT_OK;
  return make_state(out, &s, arena, err);
}

/* ---- DeepSpeed's ------------------------------------------------------------------------------------------------- */

static const ckpt_object *given(const ckpt_zero_run *run) {
  return ckpt_object_get(run->index->objects, CKPT_STATE_LOSS_SCALER);
}

static bool is_dynamic(const ckpt_object *state) { return ckpt_object_get(state, "scale_window") != NULL; }

/* Whether there is none, or one that changes no loss: what engines have that compute in bf16 or fp32. */
static bool is_idle(const ckpt_object *state) {
  double scale;
  return state == NULL || (!is_dynamic(state) && take_number(&scale, state, "cur_scale") && scale == 1);
}

/* An engine takes the scaler of the file for its own: one of fp16 without a scale that moves would lose small gradients
 * and notice no overflow, so that it gets what a new one has. */
static bool is_new(const ckpt_zero_run *run) { return run->engine == CKPT_ENGINE_FP16 && is_idle(given(run)); }

/* The state that is written; NULL: one that changes no loss. */
static const ckpt_object *state_of(const ckpt_zero_run *run) {
  const bool has_none = run->engine == CKPT_ENGINE_BF16 || run->engine == CKPT_ENGINE_FP32;
  return has_none ? NULL : given(run);
}

bool ckpt_zero_is_dynamic(const ckpt_zero_run *run) { return is_new(run) || is_dynamic(state_of(run)); }

ckpt_status ckpt_zero_scaler_say(const ckpt_zero_run *run, ckpt_error *err) {
  if (is_new(run))
    return ckpt_zero_say(run, "the input has no state of a loss scaler: it begins at 65536, as DeepSpeed's does", err);
  if (is_idle(given(run)) || state_of(run) != NULL) return CKPT_OK;
  return ckpt_zero_say(run, "the loss scaler's state is left out: an engine scales losses in fp16 alone", err);
}

ckpt_status ckpt_zero_scaler(const ckpt_zero_run *run, ckpt_object **out, ckpt_error *err) {
  static const dynamic_scaler fresh = {
      /* of a configuration with "fp16": {"enabled": true} alone */
      .scale = 65536, .factor = 2, .least = 1, .last_overflow = -1, .window = 1000, .hysteresis = 2, .raises = true};
  const ckpt_object *state = state_of(run);
  if (is_new(run)) CKPT_TRY(make_state(&state, &fresh, run->arena, err));
  if (state == NULL) {
    ckpt_object *plain;
    CKPT_TRY(ckpt_zero_dict(run, 2, &plain, err));
    CKPT_TRY(ckpt_zero_set(run, plain, "cur_scale", ckpt_object_float(run->arena, 1), err));
    CKPT_TRY(ckpt_zero_set(run, plain, "dynamic", ckpt_object_bool(run->arena, false), err));
    state = plain;
  }
  return ckpt_zero_instance(
      run, ckpt_zero_is_dynamic(run) ? SCALER_MODULE ".DynamicLossScaler" : SCALER_MODULE ".LossScaler", state, out,
      err);
}
