/* object_key.c - keys of dicts that are no text, as texts: what Python's str() makes of them, which is what PyTorch
 * calls them by. Of a float that is the shortest text that reads back as it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/text.h"
#include "libckpt/index/object.h"

/* The digits of a float, with a point or an exponent. */
static void print_float(char text[CKPT_OBJECT_KEY_BYTES], double value) {
  enum { FEWEST = -4, MOST = 16, MAX_DIGITS = 17 }; /* exponents between which Python writes none */
  char digits[CKPT_OBJECT_KEY_BYTES];
  int n = 0;
  for (; n < MAX_DIGITS; n++) {
    ckpt_c_snprintf(digits, sizeof digits, "%.*e", n, value);
    if (ckpt_c_strtod(digits, NULL) == value) break;
    char *last = strchr(digits, 'e') - 1; /* above a power of two there is more room than below it */
    if (*last != '9') ++*last;
    if (ckpt_c_strtod(digits, NULL) == value) break;
  }
  const int exponent = (int)strtol(strchr(digits, 'e') + 1, NULL, 10);
  if (exponent < FEWEST || exponent >= MOST)
    memcpy(text, digits, sizeof digits);
  else
    ckpt_c_snprintf(text, CKPT_OBJECT_KEY_BYTES, "%.*f", n > exponent ? n - exponent : 1, value);
}

const char *ckpt_object_key_text(char text[CKPT_OBJECT_KEY_BYTES], const ckpt_object *key) {
  switch (key->kind) {
    case CKPT_OBJECT_NONE: return "None";
    case CKPT_OBJECT_BOOL: return key->boolean ? "True" : "False";
    case CKPT_OBJECT_INT: snprintf(text, CKPT_OBJECT_KEY_BYTES, "%lld", (long long)key->integer); return text;
    case CKPT_OBJECT_FLOAT:
      if (!isfinite(key->number)) return isnan(key->number) ? "nan" : key->number < 0 ? "-inf" : "inf";
      print_float(text, key->number);
      return text;
    default: return NULL;
  }
}
