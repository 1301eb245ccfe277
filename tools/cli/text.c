/* text.c - see text.h. UTF-8 as RFC 3629 has it: no surrogates, no overlong forms, nothing past U+10FFFF. */
#include "tools/cli/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t ckpt_text_next(const char *text, size_t n, uint32_t *codepoint) {
  const unsigned char *s = (const unsigned char *)text;
  if (s[0] < 0x80) {
    *codepoint = s[0];
    return 1;
  }
  size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
  if (s[0] < 0xC2 || s[0] > 0xF4 || length > n) return 0;
  uint32_t value = s[0] & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; i++) {
    if ((s[i] & 0xC0) != 0x80) return 0;
    value = value << 6 | (s[i] & 0x3Fu);
  }
  static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (value < least[length] || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  *codepoint = value;
  return length;
}

bool ckpt_text_is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c <= 0x9F) || c == 0x061C || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFB) ||
         (c >= 0xE0000 && c <= 0xE007F);
}

/* Prints to out unless it is NULL; one walk serves printing and measuring, so that they cannot disagree. */
static size_t walk(FILE *out, const char *text) {
  size_t n = strlen(text), n_columns = 0;
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t length = ckpt_text_next(text + i, n - i, &c);
    char escaped[16];
    const char *shown = text + i;
    size_t n_shown = length;
    if (length == 0 || ckpt_text_is_control(c)) {
      const char *format = length == 0 || c < 0x80 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x";
      snprintf(escaped, sizeof escaped, format, length == 0 ? (unsigned)(unsigned char)text[i] : (unsigned)c);
      shown = escaped;
      n_shown = strlen(escaped);
    }
    if (out != NULL) fwrite(shown, 1, n_shown, out);
    n_columns += shown == escaped ? n_shown : 1;
    i += length == 0 ? 1 : length;
  }
  return n_columns;
}

size_t ckpt_text_print(FILE *out, const char *text) { return walk(out, text); }

size_t ckpt_text_columns(const char *text) { return walk(NULL, text); }

bool ckpt_text_is_plain(const char *text) {
  size_t n = strlen(text);
  for (size_t i = 0; i < n;) {
    uint32_t c;
    size_t length = ckpt_text_next(text + i, n - i, &c);
    if (length == 0 || ckpt_text_is_control(c)) return false;
    i += length;
  }
  return true;
}

const char *ckpt_text_count(uint64_t n, char *out) {
  char digits[24];
  int n_digits = snprintf(digits, sizeof digits, "%" PRIu64, n);
  char *at = out;
  for (int i = 0; i < n_digits; i++) {
    if (i > 0 && (n_digits - i) % 3 == 0) *at++ = ',';
    *at++ = digits[i];
  }
  *at = '\0';
  return out;
}

const char *ckpt_text_duration(double seconds, char *out) {
  if (!(seconds > 0)) seconds = 0;
  if (seconds > 3600e4) {
    snprintf(out, 48, "very long");
    return out;
  }
  if (seconds < 0.9995) {
    snprintf(out, 48, "%.0f ms", seconds > 0 && seconds < 0.001 ? 1 : seconds * 1000);
    return out;
  }
  unsigned long s = (unsigned long)(seconds + 0.5);
  if (s < 60)
    snprintf(out, 48, "%lu s", s);
  else if (s < 3600)
    snprintf(out, 48, "%lu min %lu s", s / 60, s % 60);
  else
    snprintf(out, 48, "%lu h %lu min", s / 3600, s % 3600 / 60);
  return out;
}

/* nan, inf and -inf; false for finite values. The sign of a NaN says nothing and differs between processors. */
static bool print_special(double value, char *out) {
  if (isfinite(value)) return false;
  snprintf(out, 32, "%s", isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
  return true;
}

/* Prints value with n_digits significant digits: plainly where that is readable, else with an exponent. */
static void print_digits(double value, int n_digits, char *out) {
  snprintf(out, 32, "%.*e", n_digits - 1, value);
  const char *e = strchr(out, 'e');
  long exponent = e == NULL ? 0 : strtol(e + 1, NULL, 10);
  if (exponent < -5 || exponent > 15)
    snprintf(out, 32, "%.*g", n_digits, value);
  else
    snprintf(out, 32, "%.*f", n_digits - 1 > exponent ? n_digits - 1 - (int)exponent : 0, value);
}

const char *ckpt_text_number(double value, char *out) {
  if (print_special(value, out)) return out;
  int n_digits = 1;
  do print_digits(value, n_digits, out);
  while (n_digits++ < 17 && strtod(out, NULL) != value);
  return out;
}

const char *ckpt_text_float(float value, char *out) {
  if (print_special((double)value, out)) return out;
  int n_digits = 1;
  do print_digits((double)value, n_digits, out);
  while (n_digits++ < 9 && strtof(out, NULL) != value);
  return out;
}
