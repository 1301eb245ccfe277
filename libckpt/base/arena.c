/* arena.c - bump allocation in blocks that double from 4 KiB to 1 MiB, so that a small index stays small. */
#include "libckpt/base/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libckpt/base/checked.h"

enum { FIRST_BLOCK = 4096, LARGEST_BLOCK = 1 << 20 };

struct ckpt_arena_block {
  ckpt_arena_block *next;
  size_t n_bytes; /* with this head */
  uint64_t bytes[];
};

void ckpt_arena_init(ckpt_arena *arena, uint64_t limit) { *arena = (ckpt_arena){.limit = limit}; }

static ckpt_arena_block *block_new(ckpt_arena *arena, size_t n_bytes) {
  uint64_t n_block;
  if (!ckpt_add_u64(n_bytes, sizeof(ckpt_arena_block), &n_block) || n_block > SIZE_MAX) return NULL;
  if (n_block > arena->limit - arena->n_taken) {
    arena->is_full = true;
    if (arena->tells != NULL) *arena->tells = true;
    return NULL;
  }
  bool is_given = arena->from.allocate != NULL;
  ckpt_arena_block *block =
      is_given ? arena->from.allocate(arena->from.ctx, (size_t)n_block) : calloc(1, (size_t)n_block);
  if (block == NULL) return NULL;
  if (is_given) memset(block, 0, (size_t)n_block);
  block->n_bytes = (size_t)n_block;
  arena->n_taken += n_block;
  return block;
}

void *ckpt_arena_alloc(ckpt_arena *arena, size_t n_bytes) {
  if (n_bytes > SIZE_MAX - 8) return NULL;
  size_t n_rounded = n_bytes == 0 ? 8 : (n_bytes + 7) & ~(size_t)7;
  if (n_rounded <= arena->n_free) {
    void *memory = (char *)arena->blocks->bytes + arena->n_used;
    arena->n_used += n_rounded;
    arena->n_free -= n_rounded;
    return memory;
  }
  if (n_rounded > LARGEST_BLOCK / 4) { /* its own block, behind the newest, whose rest stays in use */
    ckpt_arena_block *block = block_new(arena, n_rounded);
    if (block == NULL) return NULL;
    if (arena->blocks == NULL) {
      arena->blocks = block;
    } else {
      block->next = arena->blocks->next;
      arena->blocks->next = block;
    }
    return block->bytes;
  }
  size_t n_block = arena->n_taken < FIRST_BLOCK     ? FIRST_BLOCK
                   : arena->n_taken > LARGEST_BLOCK ? LARGEST_BLOCK
                                                    : (size_t)arena->n_taken;
  if (n_block < n_rounded) n_block = n_rounded;
  ckpt_arena_block *block = block_new(arena, n_block);
  if (block == NULL && n_block > n_rounded) block = block_new(arena, n_block = n_rounded);
  if (block == NULL) return NULL;
  block->next = arena->blocks;
  arena->blocks = block;
  arena->n_used = n_rounded;
  arena->n_free = n_block - n_rounded;
  return block->bytes;
}

void *ckpt_arena_array(ckpt_arena *arena, size_t n_items, size_t item_bytes) {
  uint64_t n_bytes;
  if (!ckpt_mul_u64(n_items, item_bytes, &n_bytes) || n_bytes > SIZE_MAX) return NULL;
  return ckpt_arena_alloc(arena, (size_t)n_bytes);
}

char *ckpt_arena_text(ckpt_arena *arena, const char *text, size_t n_bytes) {
  char *copy = n_bytes == SIZE_MAX ? NULL : ckpt_arena_alloc(arena, n_bytes + 1);
  if (copy != NULL && n_bytes != 0) memcpy(copy, text, n_bytes);
  return copy;
}

char *ckpt_arena_copy(ckpt_arena *arena, const char *text) { return ckpt_arena_text(arena, text, strlen(text)); }

char *ckpt_arena_printf(ckpt_arena *arena, const char *format, ...) {
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, args);
  char *text = n < 0 ? NULL : ckpt_arena_alloc(arena, (size_t)n + 1);
  if (text != NULL) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  va_end(args);
  return text;
}

void ckpt_arena_adopt(ckpt_arena *arena, ckpt_arena *other) {
  ckpt_arena_block *last = other->blocks;
  if (last == NULL) return;
  while (last->next != NULL) last = last->next;
  if (arena->blocks == NULL) {
    arena->blocks = other->blocks;
    arena->n_used = other->n_used;
    arena->n_free = other->n_free;
  } else { /* behind the newest, whose rest stays in use */
    last->next = arena->blocks->next;
    arena->blocks->next = other->blocks;
  }
  uint64_t n_room = arena->limit - arena->n_taken;
  arena->n_taken += other->n_taken < n_room ? other->n_taken : n_room;
  *other = (ckpt_arena){.limit = other->limit, .from = other->from, .tells = other->tells};
}

void ckpt_arena_free(ckpt_arena *arena) {
  for (ckpt_arena_block *block = arena->blocks, *next; block != NULL; block = next) {
    next = block->next;
    if (arena->from.release != NULL)
      arena->from.release(arena->from.ctx, block, block->n_bytes);
    else
      free(block);
  }
  *arena = (ckpt_arena){.limit = arena->limit, .from = arena->from, .tells = arena->tells};
}
