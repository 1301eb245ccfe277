/* random.c - see random.h. Normal values come from the inverse of the normal distribution, algorithm AS 241 (PPND16) of
 * M. J. Wichura, Applied Statistics 37 (1988), with a logarithm of our own: nothing here calls the C library's. */
#include "trainer/optimizer/random.h"

#include <math.h>

#include "libckpt/base/philox.h"

void ckpt_philox(uint32_t out[4], uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  out[0] = (uint32_t)counter_low;
  out[1] = (uint32_t)(counter_low >> 32);
  out[2] = (uint32_t)counter_high;
  out[3] = (uint32_t)(counter_high >> 32);
  philox(out, 1, key);
}

uint64_t ckpt_name_key(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text != '\0'; text++) hash = (hash ^ (uint8_t)*text) * 0x100000001b3u;
  return hash;
}

/* ln(x) for 0 < x < 1: x = 2^e * f, f in [sqrt(1/2), sqrt(2)), and the series of atanh. */
static double natural_log(double x) {
  int e;
  double f = frexp(x, &e);
  if (f < 0.70710678118654752440) {
    f *= 2;
    e--;
  }
  const double s = (f - 1) / (f + 1), z = s * s;
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  return e * 0.69314718055994530942 + 2 * s * sum;
}

static double ratio(const double *a, const double *b, double r) {
  double above = a[7], below = b[7];
  for (int i = 6; i >= 0; i--) {
    above = above * r + a[i];
    below = below * r + b[i];
  }
  return above / below;
}

static double normal_quantile(double p) {
  static const double a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                              1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                              3.3430575583588128105e+4, 2.5090809287301226727e+3};
  static const double b[8] = {1.0,
                              4.2313330701600911252e+1,
                              6.8718700749205790830e+2,
                              5.3941960214247511077e+3,
                              2.1213794301586595867e+4,
                              3.9307895800092710610e+4,
                              2.8729085735721942674e+4,
                              5.2264952788528545610e+3};
  static const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                              3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                              2.27238449892691845833e-2, 7.74545014278341407640e-4};
  static const double d[8] = {1.0,
                              2.05319162663775882187e0,
                              1.67638483018380384940e0,
                              6.89767334985100004550e-1,
                              1.48103976427480074590e-1,
                              1.51986665636164571966e-2,
                              5.47593808499534494600e-4,
                              1.05075007164441684324e-9};
  static const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                              2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                              2.71155556874348757815e-5, 2.01033439929228813265e-7};
  static const double f[8] = {1.0,
                              5.99832206555887937690e-1,
                              1.36929880922735805310e-1,
                              1.48753612908506148525e-2,
                              7.86869131145613259100e-4,
                              1.84631831751005468180e-5,
                              1.42151175831644588870e-7,
                              2.04426310338993978564e-15};
  const double q = p - 0.5;
  if (fabs(q) <= 0.425) return q * ratio(a, b, 0.180625 - q * q);
  const double r = sqrt(-natural_log(q < 0 ? p : 1 - p));
  const double x = r <= 5 ? ratio(c, d, r - 1.6) : ratio(e, f, r - 5);
  return q < 0 ? -x : x;
}

void ckpt_normal_fill(float *out, uint64_t seed, const char *name, uint64_t first, size_t n, double deviation) {
  const uint64_t stream = ckpt_name_key(name);
  uint32_t words[4] = {0};
  uint64_t drawn = UINT64_MAX;
  for (size_t i = 0; i < n; i++) {
    const uint64_t at = first + i;
    if (at / 2 != drawn) ckpt_philox(words, seed, drawn = at / 2, stream);
    const uint64_t bits = at % 2 == 0 ? (uint64_t)words[0] << 32 | words[1] : (uint64_t)words[2] << 32 | words[3];
    const double p = ((double)(bits >> 12) + 0.5) * 0x1p-52;
    out[i] = (float)(normal_quantile(p) * deviation);
  }
}
