/* text.c - see text.h. */
#include "text.h"

#include <stdio.h>
#include <string.h>

size_t ckpt_utf8_length(const void *text, size_t n) {
  const uint8_t *s = text;
  for (size_t i = 0; i < n;) {
    uint8_t lead = s[i];
    size_t n_more = lead < 0x80 ? 0 : lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if ((n_more != 0 && lead < 0xC2) || lead > 0xF4 || n - i <= n_more) return i;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (size_t k = 1; k <= n_more; k++, low = 0x80, high = 0xBF)
      if (s[i + k] < low || s[i + k] > high) return i;
    i += 1 + n_more;
  }
  return n;
}

bool ckpt_text_ends(const char *text, const char *ending) {
  size_t n_text = strlen(text), n = strlen(ending);
  return n_text >= n && strcmp(text + n_text - n, ending) == 0;
}

const char *ckpt_text_size(uint64_t n_bytes, char *out) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  double value = (double)n_bytes;
  size_t unit = 0;
  while (value >= (unit == 0 ? 1000 : 999.95)) { /* 999.96 would print as 1000.0 */
    value /= 1000;
    unit++;
  }
  snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return out;
}
