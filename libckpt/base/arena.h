/* arena.h - bump allocation with a hard limit: one arena per index or plan, freed with its owner.
 *
 * Memory is zeroed and aligned to 8 bytes. It is freed with the whole arena only. The limit counts memory taken from
 * the system. */
#ifndef CKPT_BASE_ARENA_H
#define CKPT_BASE_ARENA_H

#include "libckpt/ckpt.h"

typedef struct ckpt_arena_block ckpt_arena_block;

typedef struct ckpt_arena {
  ckpt_arena_block *blocks;
  size_t n_used, n_free; /* bytes in the newest block */
  uint64_t n_taken;      /* bytes taken from the system so far */
  uint64_t limit;        /* n_taken never exceeds it */
  bool is_full;          /* the limit refused a block */
  ckpt_allocator from;   /* empty: malloc */
  bool *tells;           /* also set with is_full: a flag of the arena that lent the limit; or NULL */
} ckpt_arena;

/* An empty arena that will take at most `limit` bytes. */
void ckpt_arena_init(ckpt_arena *arena, uint64_t limit);

/* n_bytes of zeroed memory; NULL when the limit or the system's memory is reached (CKPT_TRY_ALLOC reports it). */
void *ckpt_arena_alloc(ckpt_arena *arena, size_t n_bytes);

/* n_items of item_bytes each; NULL also when the product overflows. */
void *ckpt_arena_array(ckpt_arena *arena, size_t n_items, size_t item_bytes);

/* A terminated copy of text[0, n_bytes). */
char *ckpt_arena_text(ckpt_arena *arena, const char *text, size_t n_bytes);

/* A terminated copy of a string. */
char *ckpt_arena_copy(ckpt_arena *arena, const char *text);

/* printf into the arena. */
char *ckpt_arena_printf(ckpt_arena *arena, const char *format, ...) CKPT_PRINTF(2, 3);

/* Takes over the memory of other, which has the same allocator and becomes empty. If that exceeds the limit, nothing
 * more can be allocated. */
void ckpt_arena_adopt(ckpt_arena *arena, ckpt_arena *other);

/* Frees everything; the arena is empty and usable again. */
void ckpt_arena_free(ckpt_arena *arena);

#endif
