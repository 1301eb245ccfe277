/* build.c - a tokenizer while it is read: tokens by id and by spelling, merges, and what follows from them.
 *
 * Files state tokens and merges in any order, so merges wait for their tokens where those come later. */
#include "formats/tokenizer/build.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "formats/tokenizer/pre.h"
#include "libckpt/base/error.h"
#include "libckpt/base/grow.h"
#include "libckpt/base/text.h"

enum { ARENA_LIMIT = 1 << 30, SHOWN_BYTES = 60 };

/* ---- spellings ----------------------------------------------------------------------------------------------- */

/* FNV-1a, folded. */
static uint64_t hash_of(const char *text, size_t n) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < n; i++) hash = (hash ^ (uint8_t)text[i]) * UINT64_C(0x100000001b3);
  return hash ^ hash >> 29;
}

static size_t slot_of(const ckpt_spellings *spellings, const char *text, size_t n) {
  size_t at = hash_of(text, n) & (spellings->capacity - 1);
  for (;; at = (at + 1) & (spellings->capacity - 1)) {
    const struct ckpt_spelling *slot = &spellings->slots[at];
    if (slot->text == NULL || (slot->n_bytes == n && memcmp(slot->text, text, n) == 0)) return at;
  }
}

uint32_t ckpt_spellings_find(const ckpt_spellings *spellings, const char *text, size_t n_bytes) {
  if (spellings->n == 0) return CKPT_TOKEN_NONE;
  const struct ckpt_spelling *slot = &spellings->slots[slot_of(spellings, text, n_bytes)];
  return slot->text == NULL ? CKPT_TOKEN_NONE : slot->id;
}

static ckpt_status widen(ckpt_spellings *spellings, ckpt_error *err) {
  ckpt_spellings wide = {.n = spellings->n, .capacity = spellings->capacity == 0 ? 1024 : spellings->capacity * 2};
  wide.slots = calloc(wide.capacity, sizeof *wide.slots);
  CKPT_TRY_ALLOC(wide.slots, err);
  for (size_t i = 0; i < spellings->capacity; i++)
    if (spellings->slots[i].text != NULL)
      wide.slots[slot_of(&wide, spellings->slots[i].text, spellings->slots[i].n_bytes)] = spellings->slots[i];
  free(spellings->slots);
  *spellings = wide;
  return CKPT_OK;
}

ckpt_status ckpt_spellings_add(ckpt_spellings *spellings, const char *text, size_t n_bytes, uint32_t id,
                               uint32_t *other, ckpt_error *err) {
  if (spellings->n * 2 >= spellings->capacity) CKPT_TRY(widen(spellings, err));
  struct ckpt_spelling *slot = &spellings->slots[slot_of(spellings, text, n_bytes)];
  *other = slot->text == NULL ? CKPT_TOKEN_NONE : slot->id;
  if (slot->text != NULL) return CKPT_OK;
  *slot = (struct ckpt_spelling){text, (uint32_t)n_bytes, id};
  spellings->n++;
  return CKPT_OK;
}

void ckpt_spellings_free(ckpt_spellings *spellings) {
  free(spellings->slots);
  *spellings = (ckpt_spellings){0};
}

/* ---- tokens -------------------------------------------------------------------------------------------------- */

ckpt_status ckpt_tokenizer_build_new(ckpt_tokenizer_build *build, const char *path, ckpt_error *err) {
  *build = (ckpt_tokenizer_build){.out = calloc(1, sizeof(ckpt_tokenizer))};
  CKPT_TRY_ALLOC(build->out, err);
  ckpt_arena_init(&build->out->arena, ARENA_LIMIT);
  for (int i = 0; i < CKPT_N_SPECIALS; i++) build->out->special[i] = build->out->model_special[i] = CKPT_TOKEN_NONE;
  build->out->unknown = CKPT_TOKEN_NONE;
  build->out->path = build->file = ckpt_arena_copy(&build->out->arena, path);
  if (build->out->path != NULL) return CKPT_OK;
  ckpt_tokenizer_build_free(build);
  return ckpt_fail(err, CKPT_ENOMEM, NULL, NULL, "out of memory");
}

void ckpt_tokenizer_build_free(ckpt_tokenizer_build *build) {
  ckpt_spellings_free(&build->spellings);
  free(build->tokens);
  free(build->stated);
  free(build->added);
  ckpt_tokenizer_free(build->out);
  *build = (ckpt_tokenizer_build){0};
}

void ckpt_tokenizer_free(ckpt_tokenizer *tokenizer) {
  if (tokenizer == NULL) return;
  free(tokenizer->tokens);
  free(tokenizer->merges);
  ckpt_arena_free(&tokenizer->arena);
  free(tokenizer);
}

/* A spelling in a message: cut, and always UTF-8. */
static int shown(size_t n_bytes, const char *text) {
  return (int)ckpt_utf8_length(text, n_bytes < SHOWN_BYTES ? n_bytes : SHOWN_BYTES);
}

enum { FREE_IDS = 1 << 16 };

/* Room for ids up to this one: tables are as long as the largest. */
static ckpt_status reach(ckpt_tokenizer_build *build, uint64_t id, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  if (id >= CKPT_TOKENIZER_MAX_TOKENS)
    return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL, "token id %" PRIu64 " (at most %d)", id,
                     CKPT_TOKENIZER_MAX_TOKENS - 1);
  if (build->n_bytes != 0 && id >= build->n_bytes + FREE_IDS)
    return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL,
                     "token id %" PRIu64 " in %" PRIu64 " bytes of files (ids go %d past their bytes at most)", id,
                     build->n_bytes, FREE_IDS);
  if (id >= build->token_capacity) {
    uint32_t capacity = build->token_capacity < 512 ? 1024 : build->token_capacity + build->token_capacity / 2;
    if (capacity <= id) capacity = (uint32_t)id + 1;
    ckpt_token *moved = reallocarray(build->tokens, capacity, sizeof *moved);
    CKPT_TRY_ALLOC(moved, err);
    memset(moved + build->token_capacity, 0, (capacity - build->token_capacity) * sizeof *moved);
    build->tokens = moved;
    build->token_capacity = capacity;
  }
  if (id >= out->n_tokens) out->n_tokens = (uint32_t)id + 1;
  return CKPT_OK;
}

/* The token with this id and spelling, new or the one that there is. */
static ckpt_status token_at(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, uint64_t id,
                            ckpt_token **out, ckpt_error *err) {
  if (n_bytes > CKPT_TOKENIZER_MAX_TOKEN_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL, "token %" PRIu64 " has %zu bytes (at most %d)", id, n_bytes,
                     CKPT_TOKENIZER_MAX_TOKEN_BYTES);
  uint32_t known = ckpt_spellings_find(&build->spellings, text, n_bytes), other;
  if (known != CKPT_TOKEN_NONE && known != id)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "token '%.*s' has two ids (%" PRIu32 " and %" PRIu64 ")",
                     shown(n_bytes, text), text, known, id);
  CKPT_TRY(reach(build, id, err));
  ckpt_token *token = *out = &build->tokens[id];
  if (known != CKPT_TOKEN_NONE) return CKPT_OK;
  if (token->text != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "id %" PRIu64 " has two tokens ('%.*s' and '%.*s')", id,
                     shown(token->n_bytes, token->text), token->text, shown(n_bytes, text), text);
  const char *copy = ckpt_arena_text(&build->out->arena, text, n_bytes);
  CKPT_TRY_ALLOC(copy, err);
  CKPT_TRY(ckpt_spellings_add(&build->spellings, copy, n_bytes, (uint32_t)id, &other, err));
  *token = (ckpt_token){.text = copy, .n_bytes = (uint32_t)n_bytes, .added = CKPT_TOKEN_NONE};
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_build_token(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, uint64_t id,
                                       ckpt_token **out, ckpt_error *err) {
  ckpt_token *token = NULL;
  CKPT_TRY(token_at(build, text, n_bytes, id, &token, err));
  if (token->is_in_model)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "token '%.*s' stands there twice (id %" PRIu64 ")",
                     shown(n_bytes, text), text, id);
  token->is_in_model = true;
  build->n_model++;
  if (out != NULL) *out = token;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_build_added(ckpt_tokenizer_build *build, const char *text, size_t n_bytes, uint64_t id,
                                       const ckpt_added_token *flags, ckpt_error *err) {
  if (n_bytes == 0) return CKPT_OK; /* `tokenizers` takes none of these */
  ckpt_token *token = NULL;
  CKPT_TRY(token_at(build, text, n_bytes, id, &token, err));
  uint32_t number = token->added;
  if (number == CKPT_TOKEN_NONE) {
    CKPT_TRY(ckpt_grow(&build->added, build->out->n_added, &build->added_capacity, sizeof *build->added, err));
    token->added = number = build->out->n_added++;
  }
  build->added[number] = *flags;
  build->added[number].id = (uint32_t)id;
  return CKPT_OK;
}

/* ---- merges -------------------------------------------------------------------------------------------------- */

static ckpt_status add_merge(ckpt_tokenizer_build *build, uint32_t left, uint32_t right, uint32_t result, uint32_t rank,
                             ckpt_error *err) {
  CKPT_TRY(ckpt_grow(&build->out->merges, build->out->n_merges, &build->merge_capacity, sizeof(ckpt_token_merge), err));
  build->out->merges[build->out->n_merges++] = (ckpt_token_merge){left, right, result, rank};
  return CKPT_OK;
}

static ckpt_status find_token(const ckpt_tokenizer_build *build, const char *text, size_t n, const char *what,
                              uint32_t *id, ckpt_error *err) {
  *id = ckpt_spellings_find(&build->spellings, text, n);
  if (*id != CKPT_TOKEN_NONE) return CKPT_OK;
  return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "merge %" PRIu32 " %s '%.*s', which is no token",
                   build->out->n_merges, what, shown(n, text), text);
}

static ckpt_status resolve(ckpt_tokenizer_build *build, const ckpt_stated_merge *stated, ckpt_error *err) {
  uint32_t left, right, result;
  CKPT_TRY(find_token(build, stated->left, stated->n_left, "is of", &left, err));
  CKPT_TRY(find_token(build, stated->right, stated->n_right, "is of", &right, err));
  char joined[512], *text = joined;
  size_t n = (size_t)stated->n_left + stated->n_right;
  if (n > sizeof joined) text = malloc(n);
  CKPT_TRY_ALLOC(text, err);
  memcpy(text, stated->left, stated->n_left);
  memcpy(text + stated->n_left, stated->right, stated->n_right);
  ckpt_status status = find_token(build, text, n, "makes", &result, err);
  if (text != joined) free(text);
  return status != CKPT_OK ? status : add_merge(build, left, right, result, build->out->n_merges, err);
}

ckpt_status ckpt_tokenizer_build_merge(ckpt_tokenizer_build *build, const char *left, size_t n_left, const char *right,
                                       size_t n_right, ckpt_error *err) {
  if (n_left > CKPT_TOKENIZER_MAX_TOKEN_BYTES || n_right > CKPT_TOKENIZER_MAX_TOKEN_BYTES)
    return ckpt_fail(err, CKPT_ELIMIT, build->file, NULL, "a merge of %zu and %zu bytes (at most %d)", n_left, n_right,
                     CKPT_TOKENIZER_MAX_TOKEN_BYTES);
  ckpt_stated_merge merge = {left, right, (uint32_t)n_left, (uint32_t)n_right};
  if (build->has_vocab) return resolve(build, &merge, err);
  merge.left = ckpt_arena_text(&build->out->arena, left, n_left);
  merge.right = ckpt_arena_text(&build->out->arena, right, n_right);
  CKPT_TRY_ALLOC(merge.left, err);
  CKPT_TRY_ALLOC(merge.right, err);
  CKPT_TRY(ckpt_grow(&build->stated, build->n_stated, &build->stated_capacity, sizeof merge, err));
  build->stated[build->n_stated++] = merge;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_build_merge_line(ckpt_tokenizer_build *build, const char *text, size_t n_bytes,
                                            ckpt_error *err) {
  const char *space = memchr(text, ' ', n_bytes);
  if (space == NULL || space == text || space + 1 == text + n_bytes ||
      memchr(space + 1, ' ', (size_t)(text + n_bytes - space - 1)) != NULL)
    return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "merge %" PRIu32 " is not two tokens ('%.*s')",
                     build->out->n_merges + build->n_stated, shown(n_bytes, text), text);
  return ckpt_tokenizer_build_merge(build, text, (size_t)(space - text), space + 1,
                                    (size_t)(text + n_bytes - space - 1), err);
}

/* Ids in the order of falling scores. */
static int by_score(const void *a, const void *b, void *arg) {
  const ckpt_token *tokens = arg;
  const float left = tokens[*(const uint32_t *)a].score, right = tokens[*(const uint32_t *)b].score;
  return left > right ? -1 : left < right ? 1 : 0;
}

ckpt_status ckpt_tokenizer_merges_of_scores(ckpt_tokenizer_build *build, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  uint32_t *order = calloc(out->n_tokens == 0 ? 1 : out->n_tokens, sizeof *order), n = 0, rank = 0;
  CKPT_TRY_ALLOC(order, err);
  ckpt_status status = CKPT_OK;
  for (uint32_t id = 0; id < out->n_tokens; id++)
    if (build->tokens[id].text != NULL && build->tokens[id].n_bytes > 1) order[n++] = id;
  qsort_r(order, n, sizeof *order, by_score, build->tokens);
  for (uint32_t i = 0; i < n; i++) {
    const ckpt_token *token = &build->tokens[order[i]];
    if (i != 0 && build->tokens[order[i - 1]].score != token->score) rank++;
    if (token->type != CKPT_TOKEN_NORMAL && token->type != CKPT_TOKEN_USER_DEFINED) continue;
    for (uint32_t cut = 1; cut < token->n_bytes && token->n_bytes <= 1024; cut++) {
      if (((uint8_t)token->text[cut] & 0xC0) == 0x80) continue; /* within a character */
      uint32_t left = ckpt_spellings_find(&build->spellings, token->text, cut);
      if (left == CKPT_TOKEN_NONE) continue;
      uint32_t right = ckpt_spellings_find(&build->spellings, token->text + cut, token->n_bytes - cut);
      if (right != CKPT_TOKEN_NONE) CKPT_TRY_GOTO(add_merge(build, left, right, order[i], rank, err));
    }
  }
done:
  free(order);
  return status;
}

/* ---- the whole ----------------------------------------------------------------------------------------------- */

static bool is_byte_token(const ckpt_token *token) {
  return token->n_bytes == 6 && memcmp(token->text, "<0x", 3) == 0 && token->text[5] == '>' &&
         strspn(token->text + 3, "0123456789ABCDEF") == 2;
}

static ckpt_token_type type_of(const ckpt_tokenizer_build *build, const ckpt_token *token, uint32_t unknown) {
  if (token->type != 0) return (ckpt_token_type)token->type; /* as the file says */
  if (unknown != CKPT_TOKEN_NONE && token == &build->tokens[unknown] && build->out->kind == CKPT_TOKENIZER_SPM_BPE)
    return CKPT_TOKEN_UNKNOWN;
  if (token->added != CKPT_TOKEN_NONE)
    return build->added[token->added].is_special || ckpt_token_looks_special(token->text) ? CKPT_TOKEN_CONTROL
                                                                                          : CKPT_TOKEN_USER_DEFINED;
  return build->out->kind == CKPT_TOKENIZER_SPM_BPE && is_byte_token(token) ? CKPT_TOKEN_BYTE : CKPT_TOKEN_NORMAL;
}

static ckpt_status finish_tokens(ckpt_tokenizer_build *build, ckpt_error *err) {
  ckpt_tokenizer *out = build->out;
  uint32_t unknown = CKPT_TOKEN_NONE;
  if (build->unknown_text != NULL) {
    unknown = ckpt_spellings_find(&build->spellings, build->unknown_text, strlen(build->unknown_text));
    if (unknown == CKPT_TOKEN_NONE)
      return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "unk_token '%.*s' is no token",
                       shown(strlen(build->unknown_text), build->unknown_text), build->unknown_text);
    out->unknown = unknown;
  }
  for (uint32_t id = 0; id < out->n_tokens; id++) {
    ckpt_token *token = &build->tokens[id];
    if (token->text == NULL)
      token->added = CKPT_TOKEN_NONE, token->type = CKPT_TOKEN_UNUSED;
    else
      token->type = (uint8_t)type_of(build, token, unknown);
  }
  ckpt_added_token *added = ckpt_arena_array(&out->arena, out->n_added + 1, sizeof *added);
  CKPT_TRY_ALLOC(added, err);
  if (out->n_added != 0) memcpy(added, build->added, out->n_added * sizeof *added);
  out->added = added;
  return CKPT_OK;
}

ckpt_status ckpt_tokenizer_build_finish(ckpt_tokenizer **out, ckpt_tokenizer_build *build, ckpt_error *err) {
  if (build->spellings.n == 0) return ckpt_fail(err, CKPT_EFORMAT, build->file, NULL, "a tokenizer without tokens");
  for (uint32_t i = 0; i < build->n_stated; i++) CKPT_TRY(resolve(build, &build->stated[i], err));
  CKPT_TRY(finish_tokens(build, err));
  if (build->out->pre == NULL && build->out->kind == CKPT_TOKENIZER_BYTE_BPE)
    build->out->pre = ckpt_pre_recognize(build->out);
  build->out->tokens = build->tokens;
  build->tokens = NULL;
  *out = build->out;
  build->out = NULL;
  ckpt_tokenizer_build_free(build);
  return CKPT_OK;
}

/* ---- GPT-2's alphabet ------------------------------------------------------------------------------------------ */

static bool is_printed(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

uint32_t ckpt_byte_letter(uint8_t byte) {
  if (is_printed(byte)) return byte;
  uint32_t n = 0;
  for (unsigned other = 0; other < byte; other++) n += !is_printed(other);
  return 256 + n;
}

int ckpt_letter_byte(uint32_t code) {
  if (code < 256) return is_printed(code) ? (int)code : -1;
  if (code >= 256 + 68) return -1;
  for (unsigned byte = 0; byte < 256; byte++)
    if (!is_printed(byte) && code-- == 256) return (int)byte;
  return -1;
}
