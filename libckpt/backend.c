/* backend.c - the backends that every build has, by name. */
#include "backend.h"

#include <string.h>

const ckpt_backend *ckpt_backend_find(const char *name) {
  if (strcmp(name, ckpt_backend_cpu.name) == 0) return &ckpt_backend_cpu;
  return strcmp(name, ckpt_backend_reference.name) == 0 ? &ckpt_backend_reference : NULL;
}
