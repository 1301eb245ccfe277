/* float_env.h - the library computes in the default floating-point environment, so all callers get the same bytes.
 * A caller may change rounding (fesetround), flush subnormals to zero (-Ofast, torch.set_flush_denormal) or trap
 * exceptions, and threads inherit that. FE_DFL_ENV resets all of it, including flushing. */
#ifndef CKPT_BASE_FLOAT_ENV_H
#define CKPT_BASE_FLOAT_ENV_H

#include <fenv.h>

/* The environment that this thread had, the default one from here on. */
static inline fenv_t ckpt_float_env_enter(void) {
  fenv_t callers;
  fegetenv(&callers);
  fesetenv(FE_DFL_ENV);
  return callers;
}

/* Restores the caller's environment; drops exceptions raised meanwhile. */
static inline void ckpt_float_env_leave(fenv_t *callers) { fesetenv(callers); }

/* A declaration: the default environment until the end of the block. Opening, reading, converting and running a plan
 * begin with it, since all floats are computed, parsed and printed below them. */
#define CKPT_DEFAULT_FLOAT_ENV() \
  __attribute__((cleanup(ckpt_float_env_leave), unused)) fenv_t ckpt_callers_float_env = ckpt_float_env_enter()

#endif
