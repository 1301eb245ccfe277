/* float_env.h - the same bytes for every caller: the library computes in the default floating-point environment.
 * A caller may round otherwise (fesetround), flush subnormals to zero (-Ofast, torch.set_flush_denormal) or trap
 * exceptions, and threads inherit that. FE_DFL_ENV turns all of it off, also where flushing is no part of <fenv.h>. */
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

/* What was raised meanwhile is forgotten. */
static inline void ckpt_float_env_leave(fenv_t *callers) { fesetenv(callers); }

/* A declaration: the default environment until the block is left, however it is left. Opening, reading,
 * converting and the run of a plan begin with it: all floats are computed, parsed and printed below them. */
#define CKPT_DEFAULT_FLOAT_ENV() \
  __attribute__((cleanup(ckpt_float_env_leave), unused)) fenv_t ckpt_callers_float_env = ckpt_float_env_enter()

#endif
