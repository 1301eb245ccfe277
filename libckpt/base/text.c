/* text.c - see text.h. */
#include "libckpt/base/text.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

bool ckpt_text_ends_in(const char *name, size_t n_name, const char *suffix) {
  size_t n = strlen(suffix);
  return n_name > n && strncasecmp(name + n_name - n, suffix, n) == 0;
}

void ckpt_text_list_add(char *list, size_t n_room, const char *name) {
  size_t n_list = strlen(list), n = strlen(name);
  if (n >= n_room - n_list - 1) return;
  list[n_list] = ' ';
  memcpy(list + n_list + 1, name, n + 1);
}

void ckpt_name_list_add(ckpt_name_list *list, const char *name) {
  enum { N_SHOWN = 3 };
  size_t n_room = sizeof list->text - list->n_text;
  if (list->n++ > N_SHOWN) return;
  int n = snprintf(list->text + list->n_text, n_room, "%s%.100s", list->n == 1 ? "" : ", ",
                   list->n > N_SHOWN ? "..." : name);
  if (n > 0 && (size_t)n < n_room) list->n_text += (size_t)n;
}

/* Of this thread alone. The C locale is one that C libraries keep ready; were it missing, uselocale(0) changes nothing.
 */
static locale_t enter_c(locale_t *c) {
  *c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
  return uselocale(*c);
}

static void leave_c(locale_t c, locale_t before) {
  uselocale(before);
  if (c != (locale_t)0) freelocale(c);
}

double ckpt_c_strtod(const char *text, char **end) {
  locale_t c, before = enter_c(&c);
  double value = strtod(text, end);
  leave_c(c, before);
  return value;
}

float ckpt_c_strtof(const char *text, char **end) {
  locale_t c, before = enter_c(&c);
  float value = strtof(text, end);
  leave_c(c, before);
  return value;
}

int ckpt_c_snprintf(char *out, size_t n, const char *format, ...) {
  va_list args;
  locale_t c, before = enter_c(&c);
  va_start(args, format);
  int n_text = vsnprintf(out, n, format, args);
  va_end(args);
  leave_c(c, before);
  return n_text;
}

bool ckpt_text_is_one_of(const char *text, const char *const *words) {
  while (*words != NULL && strcmp(*words, text) != 0) words++;
  return *words != NULL;
}

const char *ckpt_path_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash == NULL ? path : slash + 1;
}

const char *ckpt_text_size(uint64_t n_bytes, char *out) {
  static const char *const units[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  double value = (double)n_bytes;
  size_t unit = 0;
  while (value >= (unit == 0 ? 1000 : 999.95)) { /* 999.96 would print as 1000.0 */
    value /= 1000;
    unit++;
  }
  ckpt_c_snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return out;
}
